// The gradient of a normalisation for its input. With u = g weight, h = (x - mean) scale (layer) or
// x scale (RMS), and scale = 1 / sqrt(v + eps), where v is the variance (layer) or mean(x^2) (RMS):
//     layer  x_grad = scale (u - mean(u) - h mean(u h))
//     RMS    x_grad = scale (u - h mean(u h))
// Without a weight, u = g. Mean and v are computed again from the row (norm_row.wgsl), as in
// norm.wgsl.
//
// A workgroup has a row, so its early return is uniform. x, g and weight are views with strides,
// x_grad is contiguous, of the type that is computed in. Rows whose elements are contiguous and fit
// go to norm_grad_quads.wgsl.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read> g: array<{{g_word}}>;
#if has_weight
@group(0) @binding(2) var<storage, read> weight: array<{{weight_word}}>;
@group(0) @binding(3) var<storage, read_write> x_grad: array<Value>;
#else
@group(0) @binding(2) var<storage, read_write> x_grad: array<Value>;
#endif

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group.y * groups.x + group.x;
    if row >= params.rows { return; }
    let base = row_addresses(row);
    let of_row = row_statistics(thread, base.x);
    let scale = of_row.scale;
    var sum_u: Value = {{zero}};
    var sum_uh: Value = {{zero}};
    for (var r = thread; r < params.length; r += THREADS) {
        let u = gradient(base, r);
        sum_u += u;
        sum_uh += u * centred(base.x, r, of_row) * scale;
    }
    let mean_uh = workgroup_sum(thread, sum_uh) * inverse_length();
#if layer
    let mean_u = workgroup_sum(thread, sum_u) * inverse_length();
#else
    let mean_u = {{zero}};
#endif
    for (var r = thread; r < params.length; r += THREADS) {
        let u = gradient(base, r);
        let h = centred(base.x, r, of_row) * scale;
        x_grad[row * params.length + r] = scale * (u - mean_u - h * mean_uh);
    }
}

fn gradient(base: RowAddresses, r: u32) -> Value {
    let g = load_g(base.g + r * params.g_step);
#if has_weight
    return g * load_weight(base.weight + r * params.weight_step);
#else
    return g;
#endif
}
