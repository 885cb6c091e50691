// A workgroup of 256 threads makes TALL x WIDE results, each thread PART x PART of them. DEPTH columns of lhs and rows of rhs at a time lie in workgroup
// memory as groups of four results' worth, zeros where the matrices end, so the inner loop tests nothing. Each thread carries one group of each operand;
// it fetches the next while the present ones are being used.
// Holes: VALUE; OPERANDS, the functions that read and place: fetch_left and fetch_right, row_part and column_part, whose sum is where a result goes;
// SETUP, what is known of the matrix before its tiles; AHEAD, what is prepared for the tile after the next; and what is unrolled: ACCUMULATORS, PRODUCTS, RESULTS. Convolutions fill the same holes.
var<workgroup> left: array<vec4<VALUE>, LEFT_GROUPS>; // (DEPTH, TALL / 4) of lhs, turned
var<workgroup> right: array<vec4<VALUE>, 256>; // (DEPTH, WIDE / 4) of rhs

OPERANDS
MAIN
    let tiles = DOWN * ACROSS;
    let slice = unit / tiles;
    let matrix = slice % MATRICES;
    if slice >= MATRICES * SPLITS { return; }
    // Tiles are numbered in bands of eight rows of tiles, so that those at work together share their operands.
    let tile = unit % tiles;
    let band = tile / (8u * ACROSS);
    let high = min(8u, DOWN - band * 8u);
    let within = tile % (8u * ACROSS);
    let row0 = (band * 8u + within % high) * TALLu;
    let column0 = (within / high) * WIDEu;
    let low = (slice / MATRICES) * SPLIT_LENGTH;
    let end = min(low + SPLIT_LENGTH, INNER);
SETUP
    let row = (thread / SIDEu) * PARTu;
    let column = (thread % SIDEu) * PARTu;
ACCUMULATORS
    var next_left = fetch_left(row0, low, end, thread);
    var next_right = fetch_right(column0, low, end, thread);
    for (var k0 = low; k0 < end; k0 += DEPTHu) {
        STORE_LEFT
        right[RIGHT_SLOT] = next_right;
        workgroupBarrier();
        next_left = fetch_left(row0, k0 + DEPTHu, end, thread);
        next_right = fetch_right(column0, k0 + DEPTHu, end, thread);
AHEAD
        for (var k = 0u; k < DEPTHu; k += 1u) {
PRODUCTS
        }
        workgroupBarrier();
    }
    let first = (slice / MATRICES) * (MATRICES * ROWS * COLUMNS);
RESULTS
}
