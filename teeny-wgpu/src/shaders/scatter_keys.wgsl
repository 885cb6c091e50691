// The first step of a sorted scatter: the key of every source is the place that it goes to,
//     key[line, r] = line * range_length + index[line, r],
// and `no_place` where the index is outside the range.
{{params}}
@group(0) @binding(0) var<storage, read> index: array<{{index_word}}>;
@group(0) @binding(1) var<storage, read_write> keys: array<u32>;

const THREADS = {{threads}}u;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.keys { return; }
    let line = n / params.sources;
    let r = n % params.sources;
    let base = line_addresses(line);
    let k = load_index(base.index + r * params.index_step);
    let position = axis_position(k, base.place + r * params.place_step);
    keys[n] = select(params.no_place, line * params.range_length + position.at, position.found);
}
