// How matmul_tiled.wgsl reads a convolution: a thread decomposes its four columns once; each k is
// decomposed by one thread for the whole workgroup, two steps ahead, and kept in workgroup memory
// for the present step and the next.
var<workgroup> steps: array<Inner, 2 * TILE_K>;
var<private> slice_low: u32;
#for i in 0..4
var<private> own_column{{i}}: Column;
#endfor

fn step_of(k: u32) -> u32 { return (k - slice_low) % (2u * TILE_K); }

fn begin(matrix: u32, column0: u32, low: u32, thread: u32) {
    channel_group = matrix;
    slice_low = low;
#for i in 0..4
    own_column{{i}} = column_of(column0 + 4u * right_quad(thread) + {{i}}u);
#endfor
    if thread < 2u * TILE_K { steps[thread] = inner_of(low + thread); }
    workgroupBarrier();
}

fn prepare(k0: u32, thread: u32) {
    if thread < TILE_K {
        let later = k0 + 2u * TILE_K + thread;
        steps[step_of(later)] = inner_of(later);
    }
}

fn fetch_left(row0: u32, k0: u32, end: u32, thread: u32) -> Quad {
    let number = k0 + left_k(thread);
    let row = row0 + 4u * left_quad(thread);
    var v = Quad();
    if number >= end || left_quad(thread) >= LEFT_QUADS { return v; }
    let k = steps[step_of(number)];
#for i in 0..4
    if row + {{i}}u < params.m { v[{{i}}] = left_at(row + {{i}}u, k); }
#endfor
    return v;
}

fn fetch_right(column0: u32, k0: u32, end: u32, thread: u32) -> Quad {
    let number = k0 + right_k(thread);
    let column = column0 + 4u * right_quad(thread);
    var v = Quad();
    if number >= end || right_quad(thread) >= RIGHT_QUADS { return v; }
    let k = steps[step_of(number)];
#for i in 0..4
    if column + {{i}}u < params.n { v[{{i}}] = right_at(k, own_column{{i}}); }
#endfor
    return v;
}
