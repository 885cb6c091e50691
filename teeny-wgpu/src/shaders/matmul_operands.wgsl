// The operands of a matrix product for matmul_tiled.wgsl: strided views of a batch of matrices.
// Where rows, and columns, are neighbours in groups of four, a group is one load.
var<private> lhs_base: u32;
var<private> rhs_base: u32;

fn begin(matrix: u32, column0: u32, low: u32, thread: u32) {
    let base = matrix_addresses(matrix);
    lhs_base = base.lhs;
    rhs_base = base.rhs;
}

fn prepare(k0: u32, thread: u32) {}

fn fetch_left(row0: u32, k0: u32, end: u32, thread: u32) -> Quad {
    let k = k0 + left_k(thread);
    let row = row0 + 4u * left_quad(thread);
    var v = Quad();
    if k >= end { return v; }
    let p = lhs_base + row * params.lhs_row_stride + k * params.lhs_k_stride;
#if left_quads
    if row < params.m { v = load_lhs_quad(p >> 2u); }
#else
#for i in 0..4
    if row + {{i}}u < params.m { v[{{i}}] = load_lhs(p + {{i}}u * params.lhs_row_stride); }
#endfor
#endif
    return v;
}

fn fetch_right(column0: u32, k0: u32, end: u32, thread: u32) -> Quad {
    let k = k0 + right_k(thread);
    let column = column0 + 4u * right_quad(thread);
    var v = Quad();
    if k >= end { return v; }
    let p = rhs_base + column * params.rhs_column_stride + k * params.rhs_k_stride;
#if right_quads
    if column < params.n { v = load_rhs_quad(p >> 2u); }
#else
#for i in 0..4
    if column + {{i}}u < params.n { v[{{i}}] = load_rhs(p + {{i}}u * params.rhs_column_stride); }
#endfor
#endif
    return v;
}

fn row_part(matrix: u32, row: u32) -> u32 { return (matrix * params.m + row) * params.n; }
fn column_part(column: u32) -> u32 { return column; }
