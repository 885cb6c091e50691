// Normalisation along rows of groups of four neighbours, in one pass:
//     layer  y = (x - mean) / sqrt(mean((x - mean)^2) + eps) * weight + bias
//     RMS    y = x / sqrt(mean(x^2) + eps) * weight + bias
//
// Naive: a loop over the row for each sum and one for the result (norm.wgsl, which long and strided
// rows take). Here the row is read once, as vectors, and kept in registers, so that the variance is
// still that of the differences from the mean; the rounding error of the mean is subtracted as in
// norm_row.wgsl.
//
// 2 bytes of traffic per byte and about 10 operations an element: bound by bandwidth. {{quads}}
// vectors of row in registers, 4 bytes of workgroup memory a thread. Expected: 80 to 90 % of the
// bandwidth for rows that fill the threads.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
#if has_weight
@group(0) @binding({{weight_binding}}) var<storage, read> weight: array<{{weight_word}}>;
#endif
#if has_bias
@group(0) @binding({{bias_binding}}) var<storage, read> bias: array<{{bias_word}}>;
#endif
@group(0) @binding({{y_binding}}) var<storage, read_write> y: array<{{y_word}}>;

{{accessors}}
{{workgroup_sum}}

fn compute_row(row: u32, thread: u32) {
    let length = params.length >> 2u;
    let base = row_addresses(row);
    let begin = (base.x >> 2u) + thread;
    var sum4 = vec4<f32>();
#for q in 0..quads
    var v{{q}} = vec4<f32>();
    if thread + {{q}}u * THREADS < length {
        v{{q}} = load_x_quad(begin + {{q}}u * THREADS);
        sum4 += v{{q}};
    }
#endfor
{{statistics}}
    let to = row * length + thread;
#for q in 0..quads
    if thread + {{q}}u * THREADS < length {
        var r = (v{{q}} - rest) * scale;
#if has_weight
        r = r * load_weight_quad((base.weight >> 2u) + thread + {{q}}u * THREADS);
#endif
#if has_bias
        r = r + load_bias_quad((params.bias_offset >> 2u) + thread + {{q}}u * THREADS);
#endif
        store_y(to + {{q}}u * THREADS, r);
    }
#endfor
}
