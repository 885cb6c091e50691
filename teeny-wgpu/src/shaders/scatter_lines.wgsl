// Scatter by lines: a thread goes through the sources of its line in order,
//     for r in 0..sources { out[index[r]] = update(out[index[r]], src[r]); }
// which is the definition: no other thread writes to the line, so no atomics are needed, and
// additions follow the order of the sources. `out` begins as a copy of x.
//
// Two loads, one update in memory and one test for each source: bound by latency, and for many lines
// only; few of them are sorted (scatter_keys.wgsl). One launch instead of about 15.
{{params}}
@group(0) @binding(0) var<storage, read> index: array<{{index_word}}>;
@group(0) @binding(1) var<storage, read> src: array<{{src_word}}>;
@group(0) @binding(2) var<storage, read_write> out: array<Value>;

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

fn update(value: Value, v: Value) -> Value { return {{update}}; }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.lines { return; }
    var at = line_addresses(n);
    for (var r = 0u; r < params.sources; r++) {
        let position = axis_position(load_index(at.index), at.place);
        if position.found {
            let o = at.out + position.at * params.out_step;
            out[o] = update(out[o], load_src(at.src));
        }
        at.index += params.index_step;
        at.src += params.src_step;
        at.place += params.place_step;
    }
}
