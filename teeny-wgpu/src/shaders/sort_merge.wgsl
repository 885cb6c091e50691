// Merges pairs of sorted runs of `width` elements, one thread per element: the position of an
// element is its number in its own run plus the number of elements of the other run that precede
// it, by bisection. The left run comes first among equal elements: a left element counts the
// smaller ones on the right, a right element also the equal ones on the left.
{{params}}
@group(0) @binding(0) var<storage, read> values: array<Value>;
@group(0) @binding(1) var<storage, read> positions: array<i32>;
@group(0) @binding(2) var<storage, read_write> new_values: array<Value>;
@group(0) @binding(3) var<storage, read_write> new_positions: array<i32>;

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.elements { return; }
    let base = n / params.length * params.length;
    let r = n - base;
    let width = params.width;
    let pair = r / (2u * width) * (2u * width);
    let middle = min(pair + width, params.length);
    let left = r < middle;
    let mine = values[n];
    // The other run.
    var low = select(pair, middle, left);
    var high = select(middle, min(pair + 2u * width, params.length), left);
    let start = low;
    while low < high {
        let half = (low + high) / 2u;
        let other = values[base + half];
        let precedes = select(!less(mine, other), less(other, mine), left);
        if precedes { low = half + 1u; } else { high = half; }
    }
    let own = select(r - middle, r - pair, left);
    let to = base + pair + own + (low - start);
    new_values[to] = mine;
    new_positions[to] = positions[n];
}
