// Sorts blocks of BLOCK elements of each line, one thread per element: an element goes to the
// number of those that precede it, equal ones before it included. BLOCK comparisons an element, no
// exchange and no barrier.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> values: array<Value>;
@group(0) @binding(2) var<storage, read_write> positions: array<i32>;

alias Value = {{value}};
const THREADS = {{threads}}u;
const BLOCK = {{block}}u;

{{accessors}}

fn element(base: u32, r: u32) -> Value { return load_x(base + r * params.x_step); }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.elements { return; }
    let line = n / params.length;
    let r = n % params.length;
    let base = line_addresses(line).x;
    let low = r / BLOCK * BLOCK;
    let high = min(low + BLOCK, params.length);
    let mine = element(base, r);
    var before = 0u;
    for (var i = low; i < high; i++) {
        let other = element(base, i);
        if less(other, mine) || (i < r && !less(mine, other)) { before += 1u; }
    }
    let to = line * params.length + low + before;
    values[to] = mine;
    positions[to] = i32(r);
}
