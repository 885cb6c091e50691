// The tiles and scores of attention. A workgroup has 16 rows of one side (its own: queries, or keys
// for the gradients of keys and values) and passes tiles of 16 rows of the other side. Thread
// (i, j) is responsible for own row i and other row j of a tile, and for columns j, j + 16, ..
// of row i of the results.
const ROWS = {{rows}}u;
const THREADS = ROWS * ROWS;
const WIDTH = {{width}}u;   // columns of an operand in workgroup memory at a time
const PITCH = WIDTH + 1u;   // from one row there to the next: no two rows begin in one bank
const WEIGHT_PITCH = ROWS + 1u;
const LOWEST = -3.4028234e38f; // of keys that are not seen: finite, so nothing is infinite

var<workgroup> own_tile: array<f32, ROWS * PITCH>;
var<workgroup> other_tile: array<f32, ROWS * PITCH>;
var<workgroup> weights: array<f32, ROWS * WEIGHT_PITCH>;

var<private> base: BatchAddresses;
var<private> i: u32;
var<private> j: u32;

// Fills a tile with 16 rows and 64 columns of an operand; zeros beyond its ends.
#for f in 0..fetches
fn fetch_{{tiles[f]}}_{{operands[f]}}(thread: u32, row0: u32, column0: u32) {
    for (var e = thread; e < ROWS * WIDTH; e += THREADS) {
        let r = row0 + e / WIDTH;
        let c = column0 + e % WIDTH;
        var value = 0.0f;
        if r < params.{{row_counts[f]}} && c < params.{{column_counts[f]}} {
            let p = base.{{operands[f]}} + r * params.{{operands[f]}}_row_stride
                + c * params.{{operands[f]}}_column_stride;
            value = load_{{operands[f]}}(p);
        }
        {{tiles[f]}}_tile[(e / WIDTH) * PITCH + e % WIDTH] = value;
    }
}
#endfor

// The product of own row i and other row j over all columns.
#for d in 0..dots
fn dot_{{dot_own[d]}}_{{dot_other[d]}}(thread: u32, own0: u32, other0: u32) -> f32 {
    var sum = 0.0f;
    for (var column0 = 0u; column0 < params.{{dot_columns[d]}}; column0 += WIDTH) {
        workgroupBarrier();
        fetch_own_{{dot_own[d]}}(thread, own0, column0);
        fetch_other_{{dot_other[d]}}(thread, other0, column0);
        workgroupBarrier();
        for (var c = 0u; c < WIDTH; c += 1u) {
            sum += own_tile[i * PITCH + c] * other_tile[j * PITCH + c];
        }
    }
    return sum;
}
#endfor

// A score and whether it is seen: query t sees key s exactly if 0 <= t + offset - s < window, and
// the mask allows it. A score that is added by the mask and is -inf is not seen; NaN is, and so
// reaches the result.
struct Score {
    value: f32,
    seen: bool,
}

fn masked(product: f32, t: u32, s: u32) -> Score {
    var score = product * params.scale;
    let behind = i32(t) + i32(params.offset) - i32(s);
    var seen = t < params.queries && s < params.keys && behind >= 0 && behind < i32(params.window);
    if seen && params.mask_kind != 0u {
        let p = base.mask + t * params.mask_row_stride + s * params.mask_column_stride;
        if params.mask_kind == 1u { seen = mask_allows(p); } else { score = score + mask_value(p); }
    }
    if score <= LOWEST { seen = false; }
    return Score(score, seen);
}
