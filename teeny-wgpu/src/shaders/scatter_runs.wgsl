// The fourth step of a sorted scatter, for long lines: RUN neighbours in sorted order that go to
// one place are combined, one thread per run and column, so that a popular place takes N / RUN
// steps instead of N. Runs with several places are left to scatter_collect.wgsl.
{{params}}
@group(0) @binding(0) var<storage, read> keys: array<u32>;  // sorted
@group(0) @binding(1) var<storage, read> order: array<u32>; // the source that each key is of
@group(0) @binding(2) var<storage, read> src: array<{{src_word}}>;
@group(0) @binding(3) var<storage, read_write> runs: array<Value>;

alias Value = {{value}};
const THREADS = {{threads}}u;
const RUN = {{run}}u;

{{accessors}}

fn update(value: Value, v: Value) -> Value { return {{update}}; }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.results { return; }
    let low = n / params.columns * RUN;
    let column = n % params.columns;
    let key = keys[low];
    if key >= params.places || keys[low + RUN - 1u] != key { return; }
    let line = key / params.range_length;
    let first = line * params.sources;
    let base = line_addresses(line).src + column_addresses(column).src;
    var value = load_src(base + (order[low] - first) * params.src_step);
    for (var j = low + 1u; j < low + RUN; j++) {
        value = update(value, load_src(base + (order[j] - first) * params.src_step));
    }
    runs[n] = value;
}
