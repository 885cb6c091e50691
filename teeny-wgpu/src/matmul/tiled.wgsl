// A workgroup of 256 threads makes 64 x 64 results, each thread 4 x 4 of them. 16 columns of lhs and 16 rows of rhs at a time lie in workgroup memory,
// zeros where the matrices end, so the inner loop tests nothing. Holes: VALUE, LOAD_LHS, LOAD_RHS, and the fastest axis of each operand.
var<workgroup> left: array<VALUE, 1024>; // (16 of k, 64 rows)
var<workgroup> right: array<VALUE, 1024>; // (16 of k, 64 columns)

fn load_left(base: u32, row0: u32, k0: u32, thread: u32) {
    for (var i = thread; i < 1024u; i += 256u) {
        let along = select(i / 64u, i % 16u, LHS_K_FASTEST);
        let across = select(i % 64u, i / 16u, LHS_K_FASTEST);
        let row = row0 + across;
        let k = k0 + along;
        var v = VALUE(0);
        if row < ROWS && k < INNER {
            let p = base + row * LHS_ROW + k * LHS_K;
            v = LOAD_LHS;
        }
        left[along * 64u + across] = v;
    }
}

fn load_right(base: u32, column0: u32, k0: u32, thread: u32) {
    for (var i = thread; i < 1024u; i += 256u) {
        let along = select(i / 64u, i % 16u, RHS_K_FASTEST);
        let across = select(i % 64u, i / 16u, RHS_K_FASTEST);
        let column = column0 + across;
        let k = k0 + along;
        var v = VALUE(0);
        if column < COLUMNS && k < INNER {
            let p = base + k * RHS_K + column * RHS_COLUMN;
            v = LOAD_RHS;
        }
        right[along * 64u + across] = v;
    }
}
