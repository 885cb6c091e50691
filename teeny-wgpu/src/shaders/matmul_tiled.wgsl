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
//  4. Each thread fetches one group of four of each operand for the next step while the present one
//     is being multiplied.
//  5. Tiles are numbered in bands of eight rows of tiles: those that run together share operands.
//  6. Few tiles with a long k are split along k; another launch adds the slices.
// A dispatch covers `matrices` products. Other files have the functions that read and place:
//     begin(matrix, column0, low, thread)              before the first step
//     fetch_left(row0, k0, end, thread) -> vec4        four rows of lhs at one k
//     fetch_right(column0, k0, end, thread) -> vec4    four columns of rhs at one k
//     prepare(k0, thread)                              in each step, for the step after the next
//     row_part(matrix, row) + column_part(column)      where a result goes
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
@group(0) @binding(2) var<storage, read_write> out: array<Value>;

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

var<workgroup> left: array<Quad, TILE_K * LEFT_QUADS>;   // (TILE_K, TILE_M / 4) of lhs, transposed
var<workgroup> right: array<Quad, TILE_K * RIGHT_QUADS>; // (TILE_K, TILE_N / 4) of rhs

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
    let row = (thread / (TILE_N / THREAD)) * THREAD;
    let column = (thread % (TILE_N / THREAD)) * THREAD;
#for i in 0..thread_tile
#for q in 0..thread_tile / 4
    var sum{{i}}_{{q}} = Quad();
#endfor
#endfor
    var next_left = fetch_left(row0, low, end, thread);
    var next_right = fetch_right(column0, low, end, thread);
    for (var k0 = low; k0 < end; k0 += TILE_K) {
#if left_partial
        // lhs has fewer groups of four than there are threads.
        if thread < TILE_K * LEFT_QUADS {
            left[left_k(thread) * LEFT_QUADS + left_quad(thread)] = next_left;
        }
#else
        left[left_k(thread) * LEFT_QUADS + left_quad(thread)] = next_left;
#endif
        right[right_k(thread) * RIGHT_QUADS + right_quad(thread)] = next_right;
        workgroupBarrier();
        next_left = fetch_left(row0, k0 + TILE_K, end, thread);
        next_right = fetch_right(column0, k0 + TILE_K, end, thread);
        prepare(k0, thread);
        for (var k = 0u; k < TILE_K; k += 1u) {
#for q in 0..thread_tile / 4
            let l{{q}} = left[k * LEFT_QUADS + row / 4u + {{q}}u];
            let r{{q}} = right[k * RIGHT_QUADS + column / 4u + {{q}}u];
#endfor
#for i in 0..thread_tile
#for q in 0..thread_tile / 4
            sum{{i}}_{{q}} += l{{i / 4}}[{{i % 4}}] * r{{q}};
#endfor
#endfor
        }
        workgroupBarrier();
    }
    let first = (slice / params.matrices) * (params.matrices * params.m * params.n);
#for j in 0..thread_tile
    let place{{j}} = column_part(column0 + column + {{j}}u);
#endfor
#for i in 0..thread_tile
    if row0 + row + {{i}}u < params.m {
        let to = first + row_part(matrix, row0 + row + {{i}}u);
#for j in 0..thread_tile
        if column0 + column + {{j}}u < params.n {
            out[to + place{{j}}] = sum{{i}}_{{j / 4}}[{{j % 4}}];
        }
#endfor
    }
#endfor
}
