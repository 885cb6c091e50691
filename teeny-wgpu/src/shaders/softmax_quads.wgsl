// Softmax along a row of groups of four neighbours, or its logarithm, in one pass:
//     y = exp(x - max) / sum(exp(x - max)),   y = x - max - log(sum)
//
// Naive: three loops over a row, for the maximum, the sum and the result (softmax.wgsl, which long
// and strided rows take). Here the row is read once, as vectors, and kept in registers between the
// loops, which are unrolled; results are written in their storage type, as vectors.
//
// 2 bytes of traffic per byte and about 30 operations an element: bound by bandwidth. {{quads}}
// vectors of row in registers, 4 bytes of workgroup memory a thread. Expected: 80 to 90 % of the
// bandwidth for rows that fill the threads.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> y: array<{{y_word}}>;

{{accessors}}
{{workgroup_max}}
{{workgroup_sum}}

fn compute_row(row: u32, thread: u32) {
    let length = params.length >> 2u;
    let begin = (row_addresses(row).x >> 2u) + thread;
    var top = vec4<f32>(-inf_f32());
#for q in 0..quads
    var v{{q}} = vec4<f32>();
    if thread + {{q}}u * THREADS < length {
        v{{q}} = load_x_quad(begin + {{q}}u * THREADS);
        top = max4_f32(top, v{{q}});
    }
#endfor
    let largest = workgroup_max(thread, max_f32(max_f32(top.x, top.y), max_f32(top.z, top.w)));
    var sum4 = vec4<f32>();
#for q in 0..quads
    v{{q}} = v{{q}} - largest;
    let e{{q}} = exp4_f32(v{{q}});
    if thread + {{q}}u * THREADS < length { sum4 += e{{q}}; }
#endfor
    let sum = workgroup_sum(thread, sum_of(sum4));
#if log
    let log_sum = log_f32(sum);
#endif
    let to = row * length + thread;
#for q in 0..quads
    if thread + {{q}}u * THREADS < length {
#if log
        store_y(to + {{q}}u * THREADS, v{{q}} - log_sum);
#else
        store_y(to + {{q}}u * THREADS, e{{q}} / sum);
#endif
    }
#endfor
}
