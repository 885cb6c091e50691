// The gradient of a normalisation for its input along rows of groups of four neighbours, in one
// pass. With u = g weight, h = (x - mean) scale (layer) or x scale (RMS), and
// scale = 1 / sqrt(variance + eps):
//     layer  x_grad = scale (u - mean(u) - h mean(u h))
//     RMS    x_grad = scale (u - h mean(u h))
//
// Naive: a loop over the row for each sum and one for the result, four in all, which read x and g
// (norm_grad.wgsl, which long and strided rows take). Here both are read once, as vectors, and kept
// in registers; mean and variance are computed again from the row (norm_quads_statistics.wgsl).
//
// 3 bytes of traffic for 2 read and about 20 operations an element: bound by bandwidth. {{quads}}
// vectors of x and as many of u in registers, 4 bytes of workgroup memory a thread. Expected: 70 to
// 85 % of the bandwidth for rows that fill the threads.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read> g: array<{{g_word}}>;
#if has_weight
@group(0) @binding(2) var<storage, read> weight: array<{{weight_word}}>;
@group(0) @binding(3) var<storage, read_write> x_grad: array<{{x_grad_word}}>;
#else
@group(0) @binding(2) var<storage, read_write> x_grad: array<{{x_grad_word}}>;
#endif

{{accessors}}
{{workgroup_sum}}

fn compute_row(row: u32, thread: u32) {
    let length = params.length >> 2u;
    let base = row_addresses(row);
    let x_begin = (base.x >> 2u) + thread;
    let g_begin = (base.g >> 2u) + thread;
    var sum4 = vec4<f32>();
    var sum_u = vec4<f32>();
#for q in 0..quads
    var v{{q}} = vec4<f32>();
    var u{{q}} = vec4<f32>();
    if thread + {{q}}u * THREADS < length {
        v{{q}} = load_x_quad(x_begin + {{q}}u * THREADS);
        u{{q}} = load_g_quad(g_begin + {{q}}u * THREADS);
#if has_weight
        u{{q}} *= load_weight_quad((base.weight >> 2u) + thread + {{q}}u * THREADS);
#endif
    }
#if layer
    sum4 += v{{q}};
    sum_u += u{{q}};
#endif
#endfor
{{statistics}}
    var mean_u = 0.0f;
#if layer
    mean_u = workgroup_sum(thread, sum_of(sum_u)) * inverse_length();
#endif
    var products = vec4<f32>();
#for q in 0..quads
    products += u{{q}} * (v{{q}} - rest);
#endfor
    let mean_uh = workgroup_sum(thread, sum_of(products)) * scale * inverse_length();
    let to = row * length + thread;
#for q in 0..quads
    if thread + {{q}}u * THREADS < length {
        let h = (v{{q}} - rest) * scale;
        store_x_grad(to + {{q}}u * THREADS, scale * (u{{q}} - mean_u - h * mean_uh));
    }
#endfor
}
