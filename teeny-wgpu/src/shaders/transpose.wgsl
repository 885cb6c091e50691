// A row-major copy of a view whose last axis is not contiguous: the last two axes of a transposed
// matrix, heads of attention before their keys are transposed, NCHW from NHWC.
//
// Naive, one thread per element of the result: dst[n] = src[address(n)]; neighbouring threads read
// `column_stride` elements apart, a whole line of memory for each element.
// From there:
//  1. A workgroup copies TILE x TILE elements of the axis along which elements are neighbours in
//     src (rows) and of the last axis (columns). It reads along rows, so that a line is read once.
//  2. The tile is in workgroup memory and is written along columns, as neighbours of the result.
//  3. Lines of the tile are one element longer than the banks: both directions use all of them.
//  4. Elements below 32 bits are read one by one and written as whole words.
// Other axes are counted by `matrices`. 2 bytes of traffic per byte, no arithmetic but addresses;
// 4,224 bytes of workgroup memory (8,448 for 64 bits), about 20 registers. Expected: 75 to 90 % of
// the bandwidth, where the naive form has 10 to 25 %.
{{params}}
@group(0) @binding(0) var<storage, read> src: array<{{src_word}}>;
@group(0) @binding(1) var<storage, read_write> dst: array<Element>;

alias Element = {{element}};
const THREADS = {{threads}}u;
const TILE = {{tile}}u;
const PITCH = TILE + 1u;
const PER_WORD = {{per_word}}u;      // elements of a word
const WORDS = TILE / PER_WORD;       // of a line of the tile
const LINES = THREADS / TILE;        // lines that are read at once

{{accessors}}

var<workgroup> elements: array<Element, TILE * PITCH>; // (columns, rows)

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let across = (params.columns + TILE - 1u) / TILE;
    let down = (params.rows + TILE - 1u) / TILE;
    let matrix = unit / (across * down);
    if matrix >= params.matrices { return; }
    let row0 = unit / across % down * TILE;
    let column0 = unit % across * TILE;
    let base = matrix_addresses(matrix);
    let row = row0 + thread % TILE;
    for (var line = thread / TILE; line < TILE; line += LINES) {
        let column = column0 + line;
        if row < params.rows && column < params.columns {
            let p = base.src + row + column * params.column_stride;
            elements[line * PITCH + thread % TILE] = load_src(p);
        }
    }
    workgroupBarrier();
    for (var e = thread; e < TILE * WORDS; e += THREADS) {
        let r = e / WORDS;
        let c = e % WORDS * PER_WORD;
        if row0 + r < params.rows && column0 + c < params.columns {
            var word = elements[c * PITCH + r];
#for part in 1..per_word
            word |= elements[(c + {{part}}u) * PITCH + r] << {{32 / per_word * part}}u;
#endfor
            dst[(base.dst + (row0 + r) * params.row_stride + column0 + c) / PER_WORD] = word;
        }
    }
}
