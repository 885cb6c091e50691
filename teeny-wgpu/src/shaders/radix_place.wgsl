// The third step of a pass of a radix sort: every thread puts its neighbouring keys where keys of
// their digit go, in their order, so the sort is stable. Positions travel with the keys; in the
// first pass the position of a key is its number.
{{params}}
@group(0) @binding(0) var<storage, read> keys: array<u32>;
@group(0) @binding(1) var<storage, read> offsets: array<u32>; // (digit, tile)
#if first_pass
@group(0) @binding(2) var<storage, read_write> new_keys: array<u32>;
@group(0) @binding(3) var<storage, read_write> new_order: array<u32>;
#else
@group(0) @binding(2) var<storage, read> order: array<u32>;
@group(0) @binding(3) var<storage, read_write> new_keys: array<u32>;
@group(0) @binding(4) var<storage, read_write> new_order: array<u32>;
#endif

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
    // One thread per digit: where the keys of each thread begin.
    if thread < DIGITS {
        var at = offsets[thread * params.tiles + tile];
        for (var j = thread * THREADS; j < (thread + 1u) * THREADS; j++) {
            let here = places[j];
            places[j] = at;
            at += here;
        }
    }
    workgroupBarrier();
    let low = first_key(tile, thread);
    let high = last_key(low);
    for (var i = low; i < high; i++) {
        let key = keys[i];
        let at = digit(key) * THREADS + thread;
        let to = places[at];
        places[at] = to + 1u;
        new_keys[to] = key;
#if first_pass
        new_order[to] = i;
#else
        new_order[to] = order[i];
#endif
    }
}
