// The total of every chunk of a long line, one workgroup per chunk:
//     total[chunk] = combine(x[low], .., x[high - 1])
// The first of three launches; the second scans the totals, the third (scan_chunks.wgsl) the
// chunks.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> totals: array<Value>;

alias Value = {{value_type}};
const THREADS = {{threads}}u;

{{accessors}}

fn combine(a: Value, b: Value) -> Value { return a {{operator}} b; }

var<workgroup> parts: array<Value, THREADS>;
{{workgroup_combine}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    if unit >= params.lines * params.chunks { return; }
    let base = line_addresses(unit / params.chunks);
    let low = unit % params.chunks * params.chunk;
    let high = min(low + params.chunk, params.length);
    var total: Value = {{identity}};
    for (var r = low + thread; r < high; r += THREADS) {
        total = combine(total, load_x(base.x + r * params.x_step));
    }
    total = workgroup_combine(thread, total);
    if thread == 0u { totals[unit] = total; }
}
