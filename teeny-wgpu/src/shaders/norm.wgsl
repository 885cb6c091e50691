// Normalisation along the last axis:
//     layer  y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias
//     RMS    y = x / sqrt(mean(x^2) + eps) * weight + bias
//
// A workgroup has a row and reads it again for each sum and for the result, from cache. The
// variance is that of the differences from the mean, never a difference of sums. The rounding error
// of the mean is subtracted from both: rows of nearly equal elements would show it otherwise.
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
    var mean: Value = {{zero}};
    var squares: Value = {{zero}};
    var rest: Value = {{zero}};
#if layer
    for (var r = thread; r < params.length; r += THREADS) {
        mean += load_x(base.x + r * params.x_step);
    }
    mean = workgroup_sum(thread, mean) * inverse_length();
    for (var r = thread; r < params.length; r += THREADS) {
        let d = load_x(base.x + r * params.x_step) - mean;
        rest += d;
        squares += d * d;
    }
    rest = workgroup_sum(thread, rest) * inverse_length();
    mean += rest;
#else
    for (var r = thread; r < params.length; r += THREADS) {
        let v = load_x(base.x + r * params.x_step);
        squares += v * v;
    }
#endif
    let variance = max(workgroup_sum(thread, squares) * inverse_length() - rest * rest, {{zero}});
    let scale = Value(1) / sqrt(variance + eps());
    for (var r = thread; r < params.length; r += THREADS) {
        var v = load_x(base.x + r * params.x_step);
#if layer
        v = v - mean;
#endif
        v = v * scale;
#if has_weight
        v = v * load_weight(params.weight_offset + r * params.weight_step);
#endif
#if has_bias
        v = v + load_bias(params.bias_offset + r * params.bias_step);
#endif
        y[row * params.length + r] = v;
    }
}
