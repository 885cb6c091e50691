// The gradient of softmax along a row of groups of four neighbours, or of its logarithm, in one
// pass, from its result y and the gradient g of y:
//     softmax      x_grad = y (g - sum(g y))
//     log-softmax  x_grad = g - exp(y) sum(g)
//
// Naive: a loop over a row for the sum and one for the result, which both read y and g
// (softmax_grad.wgsl, which long and strided rows take). Here the row is read once, as vectors, and
// kept in registers; results are written in their storage type, as vectors.
//
// 3 bytes of traffic for 2 read and about 4 operations an element, 20 for the logarithm: bound by
// bandwidth. {{quads}} vectors of y and as many of g in registers, 4 bytes of workgroup memory a
// thread. Expected: 80 to 90 % of the bandwidth for rows that fill the threads.
{{params}}
@group(0) @binding(0) var<storage, read> y: array<{{y_word}}>;
@group(0) @binding(1) var<storage, read> g: array<{{g_word}}>;
@group(0) @binding(2) var<storage, read_write> x_grad: array<{{x_grad_word}}>;

{{accessors}}
{{workgroup_sum}}

fn compute_row(row: u32, thread: u32) {
    let length = params.length >> 2u;
    let base = row_addresses(row);
    let y_begin = (base.y >> 2u) + thread;
    let g_begin = (base.g >> 2u) + thread;
    var sum4 = vec4<f32>();
#for q in 0..quads
    var y{{q}} = vec4<f32>();
    var g{{q}} = vec4<f32>();
    if thread + {{q}}u * THREADS < length {
        y{{q}} = load_y_quad(y_begin + {{q}}u * THREADS);
        g{{q}} = load_g_quad(g_begin + {{q}}u * THREADS);
    }
#if log
    sum4 += g{{q}};
#else
    sum4 += y{{q}} * g{{q}};
#endif
#endfor
    let sum = workgroup_sum(thread, sum_of(sum4));
    let to = row * length + thread;
#for q in 0..quads
    if thread + {{q}}u * THREADS < length {
#if log
        store_x_grad(to + {{q}}u * THREADS, g{{q}} - exp4_f32(y{{q}}) * sum);
#else
        store_x_grad(to + {{q}}u * THREADS, y{{q}} * (g{{q}} - sum));
#endif
    }
#endfor
}
