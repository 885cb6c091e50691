// The product of two matrices by tiles in workgroup memory; convolutions use it with other
// operands.
//
// Naive, one thread per result: sum = 0; for k in 0..K { sum += lhs[row, k] * rhs[k, column]; }
// From there:
//  1. A workgroup of 256 threads computes TILE_M x TILE_N results. TILE_K columns of lhs and rows
//     of rhs at a time are in workgroup memory, zeros where the matrices end, so that the inner
//     loop tests nothing.
//  2. A thread computes THREAD x THREAD results in registers: 2 THREAD loads for THREAD^2 products.
//     The loops over them are unrolled, since accumulators in an array would not stay in registers
//     everywhere.
//  3. Workgroup memory holds groups of four, so each load is a vector; lhs is transposed in it.
//     Neighbouring threads read neighbouring groups: a thread's columns are groups TILE_N / THREAD
//     apart. Where threads fetch along k, the groups of a k are permuted by k, so that neighbours
//     write to different banks.
//  4. Each thread fetches one group of four of each operand for the next step while the present one
//     is being multiplied.
//  5. Products have two buffers of each operand: a step is written while others may still read the
//     one before, and one barrier a step is enough. Convolutions need the memory for their indices.
//  6. Tiles are numbered in bands of eight rows of tiles: those that run together share operands.
//  7. Few tiles with a long k are split along k; another launch adds the slices.
//  8. Rows of 8- or 16-bit results that are whole groups of four are written in their type, a group
//     at a time. Others are written in the accumulation type, and another launch casts them.
// Large tile: 32 flops a byte of global memory (128 x 128 x 2 for 256 words a k); 64 products for 4
// loads of vectors, 6 % of the instructions; 64 accumulators, 16 operands, 8 fetched, about 30 for
// addresses; 16,384 bytes of workgroup memory: two workgroups in a core of 64 Ki registers.
// Expected: 50 to 65 % of the f32 peak.
// A dispatch covers `matrices` products. Other files have the functions that read and place:
//     begin(matrix, column0, low, thread)              before the first step
//     fetch_left(row0, k0, end, thread) -> vec4        four rows of lhs at one k
//     fetch_right(column0, k0, end, thread) -> vec4    four columns of rhs at one k
//     prepare(k0, thread)                              in each step, for the step after the next
//     row_part(matrix, row) + column_part(column)      where a result goes
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
{{results}}

alias Value = {{value}};
alias Quad = vec4<Value>;
const THREADS = {{threads}}u;
const TILE_M = {{tile_m}}u;
const TILE_N = {{tile_n}}u;
const TILE_K = {{tile_k}}u;
const THREAD = {{thread_tile}}u;
const LEFT_QUADS = TILE_M / 4u;
const RIGHT_QUADS = TILE_N / 4u;
const BAND = 8u;
const COLUMN_GROUPS = TILE_N / THREAD; // threads along a row of the tile

// (buffers, TILE_K, TILE_M / 4) of lhs, transposed, and (buffers, TILE_K, TILE_N / 4) of rhs.
#if double
const BUFFERS = 2u;
#else
const BUFFERS = 1u;
#endif
var<workgroup> left: array<Quad, BUFFERS * TILE_K * LEFT_QUADS>;
var<workgroup> right: array<Quad, BUFFERS * TILE_K * RIGHT_QUADS>;

// The group of four that a thread fetches: its k in the step, and its number across. Neighbouring
// threads fetch neighbours across k, or along k, as they are neighbours in memory.
#if left_across
fn left_k(thread: u32) -> u32 { return thread / LEFT_QUADS; }
fn left_quad(thread: u32) -> u32 { return thread % LEFT_QUADS; }
#else
fn left_k(thread: u32) -> u32 { return thread % TILE_K; }
fn left_quad(thread: u32) -> u32 { return thread / TILE_K; }
#endif
#if right_across
fn right_k(thread: u32) -> u32 { return thread / RIGHT_QUADS; }
fn right_quad(thread: u32) -> u32 { return thread % RIGHT_QUADS; }
#else
fn right_k(thread: u32) -> u32 { return thread % TILE_K; }
fn right_quad(thread: u32) -> u32 { return thread / TILE_K; }
#endif

// Where group `quad` of step k is in a buffer.
#if left_across
fn left_place(k: u32, quad: u32) -> u32 { return k * LEFT_QUADS + quad; }
#else
fn left_place(k: u32, quad: u32) -> u32 { return k * LEFT_QUADS + (quad ^ (k & 7u)); }
#endif
#if right_across
fn right_place(k: u32, quad: u32) -> u32 { return k * RIGHT_QUADS + quad; }
#else
fn right_place(k: u32, quad: u32) -> u32 { return k * RIGHT_QUADS + (quad ^ (k & 7u)); }
#endif

// Writes what a thread fetched to the buffers that begin at step `first` of the arrays.
fn put(first: u32, thread: u32, l: Quad, r: Quad) {
#if left_partial
    // lhs has fewer groups of four than there are threads.
    if thread < TILE_K * LEFT_QUADS {
        left[first * LEFT_QUADS + left_place(left_k(thread), left_quad(thread))] = l;
    }
#else
    left[first * LEFT_QUADS + left_place(left_k(thread), left_quad(thread))] = l;
#endif
    right[first * RIGHT_QUADS + right_place(right_k(thread), right_quad(thread))] = r;
}

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let tiles = params.tiles_down * params.tiles_across;
    let slice = unit / tiles;
    let matrix = slice % params.matrices;
    if slice >= params.matrices * params.splits { return; }
    let tile = unit % tiles;
    let band = tile / (BAND * params.tiles_across);
    let high = min(BAND, params.tiles_down - band * BAND);
    let within = tile % (BAND * params.tiles_across);
    let row0 = (band * BAND + within % high) * TILE_M;
    let column0 = (within / high) * TILE_N;
    let low = (slice / params.matrices) * params.split_length;
    let end = min(low + params.split_length, params.k);
    begin(matrix, column0, low, thread);
    let row = (thread / COLUMN_GROUPS) * THREAD;
    let column = (thread % COLUMN_GROUPS) * 4u; // and those 4 COLUMN_GROUPS further on
#for i in 0..thread_tile
#for q in 0..thread_tile / 4
    var sum{{i}}_{{q}} = Quad();
#endfor
#endfor
    var next_left = fetch_left(row0, low, end, thread);
    var next_right = fetch_right(column0, low, end, thread);
#if double
    var first = 0u;
    put(first, thread, next_left, next_right);
    workgroupBarrier();
#else
    let first = 0u;
#endif
    for (var k0 = low; k0 < end; k0 += TILE_K) {
#if !double
        put(first, thread, next_left, next_right);
        workgroupBarrier();
#endif
        next_left = fetch_left(row0, k0 + TILE_K, end, thread);
        next_right = fetch_right(column0, k0 + TILE_K, end, thread);
        prepare(k0, thread);
        for (var k = 0u; k < TILE_K; k += 1u) {
#for q in 0..thread_tile / 4
            let l{{q}} = left[first * LEFT_QUADS + left_place(k, row / 4u + {{q}}u)];
            let r{{q}} = right[first * RIGHT_QUADS
                + right_place(k, column / 4u + {{q}}u * COLUMN_GROUPS)];
#endfor
#for i in 0..thread_tile
#for q in 0..thread_tile / 4
            sum{{i}}_{{q}} += l{{i / 4}}[{{i % 4}}] * r{{q}};
#endfor
#endfor
        }
#if double
        first = TILE_K - first;
        put(first, thread, next_left, next_right);
#endif
        workgroupBarrier();
    }
#if !packed
    let begin_slice = (slice / params.matrices) * (params.matrices * params.m * params.n);
#endif
#if epilogue
    // A kernel runs on each result: once in the text, in a loop, so that it is compiled once.
    var sums: array<Value, THREAD * THREAD>;
#for i in 0..thread_tile
#for j in 0..thread_tile
    sums[{{i * thread_tile + j}}] = sum{{i}}_{{j / 4}}[{{j % 4}}];
#endfor
#endfor
    for (var n = 0u; n < THREAD * THREAD; n += {{epilogue_step}}u) {
        let j = n % THREAD;
        let at_row = row0 + row + n / THREAD;
        let at_column = column0 + column + j % 4u + j / 4u * 4u * COLUMN_GROUPS;
        if at_row < params.m && at_column < params.n {
            let place = begin_slice + row_part(matrix, at_row) + column_part(at_column);
#if pairs
            store_pair(place, vec2<Value>(sums[n], sums[n + 1u]));
#else
            store(place, sums[n]);
#endif
        }
    }
#else
#if packed
    // Four neighbouring columns of a type of 8 or 16 bits are whole words.
#for q in 0..thread_tile / 4
    let place{{q}} = column_part(column0 + column + {{q}}u * 4u * COLUMN_GROUPS);
#endfor
#for i in 0..thread_tile
    if row0 + row + {{i}}u < params.m {
        let to = row_part(matrix, row0 + row + {{i}}u);
#for q in 0..thread_tile / 4
        if column0 + column + {{q}}u * 4u * COLUMN_GROUPS < params.n {
            store_quad((to + place{{q}}) >> 2u, sum{{i}}_{{q}});
        }
#endfor
    }
#endfor
#else
#for j in 0..thread_tile
    let place{{j}} = column_part(column0 + column + {{j % 4}}u + {{j / 4}}u * 4u * COLUMN_GROUPS);
#endfor
#for i in 0..thread_tile
    if row0 + row + {{i}}u < params.m {
        let to = begin_slice + row_part(matrix, row0 + row + {{i}}u);
#for j in 0..thread_tile
        if column0 + column + {{j % 4}}u + {{j / 4}}u * 4u * COLUMN_GROUPS < params.n {
            store(to + place{{j}}, sum{{i}}_{{j / 4}}[{{j % 4}}]);
        }
#endfor
    }
#endfor
#endif
#endif
}
