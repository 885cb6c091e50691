// Normalisation along the last axis:
//     layer  y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias
//     RMS    y = x / sqrt(mean(x^2) + eps) * weight + bias
//
// A workgroup has a row: it computes the statistics of the row first (norm_row.wgsl), then the
// result, for which it reads the row again, from cache.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
#if has_weight
@group(0) @binding({{weight_binding}}) var<storage, read> weight: array<{{weight_word}}>;
#endif
#if has_bias
@group(0) @binding({{bias_binding}}) var<storage, read> bias: array<{{bias_word}}>;
#endif
@group(0) @binding({{y_binding}}) var<storage, read_write> y: array<Value>;

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
    for (var r = thread; r < params.length; r += THREADS) {
        var v = centred(base.x, r, of_row) * scale;
#if has_weight
        v = v * load_weight(base.weight + r * params.weight_step);
#endif
#if has_bias
        v = v + load_bias(params.bias_offset + r * params.bias_step);
#endif
        y[row * params.length + r] = v;
    }
}
