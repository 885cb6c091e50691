// The third step of a sorted scatter: bounds[n] is the number of keys below n, so the sources of
// place n are numbers bounds[n] to bounds[n + 1] in sorted order. One bisection per place.
{{params}}
@group(0) @binding(0) var<storage, read> keys: array<u32>; // sorted
@group(0) @binding(1) var<storage, read_write> bounds: array<u32>;

const THREADS = {{threads}}u;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.bounds { return; }
    var low = 0u;
    var high = params.keys;
    while low < high {
        let half = low + (high - low) / 2u;
        if keys[half] < n { low = half + 1u; } else { high = half; }
    }
    bounds[n] = low;
}
