// The tiles of attention: products of rows of two sides, and sums of rows by weights.
//
// A workgroup has OWN_ROWS rows of one side (its own: queries, or keys for the gradients of keys
// and values) and passes tiles of OTHER_ROWS rows of the other side.
//
// Naive, one thread per own row t and other row s:
//     score[t, s] = sum over c of own[t, c] * other[s, c]
//     result[t, c] = sum over s of weight[t, s] * other[s, c]
// From there:
//  1. Thread (i, j) has four own and four other rows of a tile: i + OWN p and j + LANES k. Both
//     sides are in workgroup memory, DEPTH columns at a time and transposed, so that a column
//     takes 2 loads of a vector for 16 products.
//  2. The weights of a tile are in workgroup memory, four own rows in a vector. A thread sums
//     columns 4 (lane + COLUMN_LANES g) .. + 3 of its four rows in registers: 1 + G loads of a
//     vector for 16 G products, where G is the number of groups g.
//  3. Where the columns need fewer lanes than there are, PARTS groups of lanes share the other
//     rows, and the sums of the parts are added at the end, in their order.
//  4. Rows are padded by a vector in workgroup memory: the four columns of a block, which one
//     thread writes, are in different banks from the columns of its neighbours.
//
//                own x lanes   rows own, other   workgroup memory   used for
//     tall       16 x 8        64, 32            15,360 bytes       many own rows
//     wide        8 x 16       32, 64            15,872 bytes       up to 32 rows; wide heads
//     few         2 x 32        8, 128           15,360 bytes       up to 8 rows: decoding
//
// Registers: 16 G accumulators per result (G <= 2, except for the widest heads), 16 scores, 8 of the
// rows, about 30 for addresses: 5 to 8 workgroups of 128 threads in a core of 64 Ki registers.
const OWN = {{own}}u;
const LANES = {{lanes}}u;
const THREADS = OWN * LANES;
const OWN_ROWS = 4u * OWN;
const OTHER_ROWS = 4u * LANES;
const DEPTH = {{depth}}u;
const BLOCKS = DEPTH / 4u;
const OWN_PITCH = OWN + 1u;
const LANE_PITCH = LANES + 1u;
const OTHERS = DEPTH * OWN_PITCH;      // where the columns of the other side begin
const COLUMN_LANES = {{column_lanes}}u;
const PARTS = LANES / COLUMN_LANES;
const WIDE = COLUMN_LANES * {{column_groups}}u; // groups of four columns of a result
const STEP = {{step}}u;                // other rows in workgroup memory at a time, for results
const PART_STEP = STEP / PARTS;
const LOWEST = -3.4028234e38f; // of keys that are not seen: finite, so nothing is infinite

var<workgroup> pool: array<vec4<f32>, {{pool}}>; // columns, or rows, or a vector of each thread
// Not 0 once values are not finite: sums then leave out terms of weight 0, as of hidden pairs.
var<workgroup> special: atomic<u32>;
var<workgroup> weights: array<vec4<f32>, OTHER_ROWS * OWN_PITCH>;

var<private> base: BatchAddresses;
var<private> i: u32;
var<private> j: u32;

// Four elements of row r, from column c on; zeros beyond the ends.
#for f in 0..operands
fn four_{{operand[f]}}(r: u32, c: u32) -> vec4<f32> {
    var four = vec4<f32>();
    if r >= params.{{row_counts[f]}} { return four; }
    let p = base.{{operand[f]}} + r * params.{{operand[f]}}_row_stride
        + c * params.{{operand[f]}}_column_stride;
#if quads
    if c < params.{{column_counts[f]}} { four = load_{{operand[f]}}_quad(p >> 2u); }
#else
#for l in 0..4
    if c + {{l}}u < params.{{column_counts[f]}} {
        four[{{l}}] = load_{{operand[f]}}(p + {{l}}u * params.{{operand[f]}}_column_stride);
    }
#endfor
#endif
    return four;
}
#endfor

// Some other rows, all columns of a result.
#for f in 0..sources
fn fetch_{{source[f]}}(thread: u32, row0: u32) {
    for (var e = thread; e < STEP * WIDE; e += THREADS) {
        let four = four_{{source[f]}}(row0 + e / WIDE, 4u * (e % WIDE));
        let bits = bitcast<vec4<u32>>(four) & vec4<u32>(0x7f800000u);
        if any(bits == vec4<u32>(0x7f800000u)) { atomicStore(&special, 1u); }
        pool[e] = four;
    }
}
#endfor

// A block of four columns of four rows, transposed.
fn put(to: u32, pitch: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) {
    pool[to] = vec4<f32>(a.x, b.x, c.x, d.x);
    pool[to + pitch] = vec4<f32>(a.y, b.y, c.y, d.y);
    pool[to + 2u * pitch] = vec4<f32>(a.z, b.z, c.z, d.z);
    pool[to + 3u * pitch] = vec4<f32>(a.w, b.w, c.w, d.w);
}

// The products of a thread's own rows, in a vector, with each of its four other rows.
struct Products {
#for k in 0..4
    s{{k}}: vec4<f32>,
#endfor
}
#for d in 0..dots
fn dot_{{dot_own[d]}}_{{dot_other[d]}}(thread: u32, own0: u32, other0: u32) -> Products {
#for k in 0..4
    var s{{k}} = vec4<f32>();
#endfor
    for (var column0 = 0u; column0 < params.{{dot_columns[d]}}; column0 += DEPTH) {
        workgroupBarrier();
        for (var e = thread; e < OWN * BLOCKS; e += THREADS) {
            let r = own0 + e / BLOCKS;
            let c = column0 + 4u * (e % BLOCKS);
            put(4u * (e % BLOCKS) * OWN_PITCH + e / BLOCKS, OWN_PITCH,
                four_{{dot_own[d]}}(r, c), four_{{dot_own[d]}}(r + OWN, c),
                four_{{dot_own[d]}}(r + 2u * OWN, c), four_{{dot_own[d]}}(r + 3u * OWN, c));
        }
        for (var e = thread; e < LANES * BLOCKS; e += THREADS) {
            let r = other0 + e / BLOCKS;
            let c = column0 + 4u * (e % BLOCKS);
            put(OTHERS + 4u * (e % BLOCKS) * LANE_PITCH + e / BLOCKS, LANE_PITCH,
                four_{{dot_other[d]}}(r, c), four_{{dot_other[d]}}(r + LANES, c),
                four_{{dot_other[d]}}(r + 2u * LANES, c), four_{{dot_other[d]}}(r + 3u * LANES, c));
        }
        workgroupBarrier();
        for (var c = 0u; c < DEPTH; c += 1u) {
            let a = pool[c * OWN_PITCH + i];
            let b = pool[OTHERS + c * LANE_PITCH + j];
#for k in 0..4
            s{{k}} += a * b[{{k}}];
#endfor
        }
    }
    return Products(s0, s1, s2, s3);
}
#endfor

// Scores and which of them are seen: query t sees key s if 0 <= t + offset - s < window, and
// the mask allows it. A score that the mask makes -inf is not seen; NaN is, unless the mask is
// -inf, and so reaches the result. One branch for four: a pair beyond the ends reads the mask of
// the last.
struct Scores {
    value: vec4<f32>,
    seen: vec4<bool>,
}

fn masked(products: vec4<f32>, t: vec4<u32>, s: vec4<u32>) -> Scores {
    var score = products * params.scale;
    let behind = vec4<i32>(t) + vec4<i32>(i32(params.offset)) - vec4<i32>(s);
    var seen = (t < vec4<u32>(params.queries)) & (s < vec4<u32>(params.keys))
        & (behind >= vec4<i32>()) & (behind < vec4<i32>(i32(params.window)));
    if params.mask_kind != 0u {
        let p = vec4<u32>(base.mask)
            + min(t, vec4<u32>(params.queries - 1u)) * params.mask_row_stride
            + min(s, vec4<u32>(params.keys - 1u)) * params.mask_column_stride;
        if params.mask_kind == 1u {
            seen = seen & vec4<bool>(mask_allows(p.x), mask_allows(p.y), mask_allows(p.z),
                mask_allows(p.w));
        } else {
            let added = vec4<f32>(mask_value(p.x), mask_value(p.y), mask_value(p.z),
                mask_value(p.w));
            seen = seen & !(added <= vec4<f32>(LOWEST));
            score = score + added;
        }
    }
    seen = seen & !(score <= vec4<f32>(LOWEST));
    return Scores(score, seen);
}
