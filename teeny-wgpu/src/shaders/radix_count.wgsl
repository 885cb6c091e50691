// The first step of a pass of a radix sort: how many keys of each digit every tile has,
// counts[digit, tile]. One workgroup per tile.
{{params}}
@group(0) @binding(0) var<storage, read> keys: array<u32>;
@group(0) @binding(1) var<storage, read_write> counts: array<u32>;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let tile = group.y * groups.x + group.x;
    if tile >= params.tiles { return; }
    count_digits(tile, thread);
    if thread < DIGITS {
        var sum = 0u;
        for (var j = 0u; j < THREADS; j++) { sum += places[thread * THREADS + j]; }
        counts[thread * params.tiles + tile] = sum;
    }
}
