// The gradient of softmax along a row, from its result y and the gradient g of y:
//     softmax      x_grad = y (g - sum(g y))
//     log-softmax  x_grad = g - exp(y) sum(g)
// A workgroup has a row and reads it twice, as in softmax.wgsl.
{{params}}
@group(0) @binding(0) var<storage, read> y: array<{{y_word}}>;
@group(0) @binding(1) var<storage, read> g: array<{{g_word}}>;
@group(0) @binding(2) var<storage, read_write> x_grad: array<Value>;

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

fn add(a: Value, b: Value) -> Value { return a + b; }

var<workgroup> parts: array<Value, THREADS>;
{{workgroup_sum}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group.y * groups.x + group.x;
    if row >= params.rows { return; }
    let base = row_addresses(row);
    var sum: Value = {{zero}};
    for (var r = thread; r < params.length; r += THREADS) {
#if log
        sum += load_g(base.g + r * params.g_step);
#else
        sum += load_y(base.y + r * params.y_step) * load_g(base.g + r * params.g_step);
#endif
    }
    sum = workgroup_sum(thread, sum);
    for (var r = thread; r < params.length; r += THREADS) {
        let v = load_y(base.y + r * params.y_step);
        let d = load_g(base.g + r * params.g_step);
#if log
        x_grad[base.x_grad + r * params.x_grad_step] = d - exp_{{value}}(v) * sum;
#else
        x_grad[base.x_grad + r * params.x_grad_step] = v * (d - sum);
#endif
    }
}
