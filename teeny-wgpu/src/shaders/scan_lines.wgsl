// Running sums and products, one thread per line:
//     acc = identity; for r in 0..length { acc = combine(acc, x[r]); y[r] = acc; }
// For short lines, and for many lines whose neighbours are in other lines.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> y: array<Value>;

alias Value = {{value_type}};
const THREADS = {{threads}}u;

{{accessors}}

fn combine(a: Value, b: Value) -> Value { return a {{operator}} b; }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let line = (group.y * groups.x + group.x) * THREADS + thread;
    if line >= params.lines { return; }
    let base = line_addresses(line);
    var acc: Value = {{identity}};
    for (var r = 0u; r < params.length; r++) {
        acc = combine(acc, load_x(base.x + r * params.x_step));
        y[base.y + r * params.y_step] = acc;
    }
}
