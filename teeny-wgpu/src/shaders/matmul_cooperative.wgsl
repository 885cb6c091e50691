// The product of two matrices by cooperative matrices (tensor cores): each subgroup multiplies
// small matrices of SIZE x SIZE elements by one instruction.
//
// Naive, one subgroup per SIZE x SIZE results: sum = 0; for k in (0..K).step(SIZE) {
// sum = coopMultiplyAdd(coopLoad(lhs[row, k]), coopLoad(rhs[k, column]), sum); }
// From there:
//  1. A workgroup computes TILE x TILE results. TILE_K columns of lhs and rows of rhs at a time are
//     in workgroup memory, zeros where the matrices end. So any strides, offsets and sizes are
//     accepted, and no cooperative matrix touches global memory, where it would need alignment.
//  2. Four subgroups compute a quarter each, 4 x 4 matrices of sums in registers: 8 loads of
//     workgroup memory for 16 multiplications.
//  3. An operand keeps its direction: it is stored along k or across k, as its elements are
//     neighbours in global memory, and loaded by rows or by columns (coopLoadT, coopLoad). Rows in
//     workgroup memory are 16 bytes longer than needed, so that neighbours are in other banks.
//  4. Each thread fetches its groups of four of the next step while the present one is multiplied.
//  5. Tiles are numbered in bands of eight rows of tiles: those that run together share operands.
//  6. Few tiles with a long k are split along k; another launch adds the slices.
//  7. Sums go through workgroup memory, one matrix of each subgroup at a time, since the layout of
//     a cooperative matrix in registers is the hardware's.
// Cooperative operations need uniform control flow: subgroups beyond the fourth, which exist where
// the size of subgroups varies, repeat the work of the fourth and write to an unread place.
// SIZE 16, f16: TILE 128. 64 flops a byte of global memory (128 x 128 x 2 for 256 halves a k). With
// subgroups of 32, 128 threads of 128 accumulators, 32 fetched, 32 operands and about 30 for
// addresses: two workgroups in a core of 64 Ki registers. Workgroup memory: 2 x 128 x 40 halves and
// 5 x 256 sums are 25,600 bytes. A step stores 2 x 8 groups a thread and loads 16 matrices a
// subgroup for 32 multiplications of 4,096 products, so memory of a workgroup is the limit.
// Expected: 30 to 50 % of the peak of matrix units; not measured on one.
// SIZE 8: TILE 64, 32 (f16) or 16 (f32) flops a byte, 32 accumulators; at most 19,712 bytes.
// The accessors are matmul_cooperative_operand.wgsl for lhs and rhs.
#if half
enable f16;
#endif
enable wgpu_cooperative_matrix;
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
{{results}}

alias Element = {{element}};
alias Quad = vec4<Element>;
alias Left = coop_mat{{size}}x{{size}}<{{element}}, A>;
alias Right = coop_mat{{size}}x{{size}}<{{element}}, B>;
alias Sum = coop_mat{{size}}x{{size}}<f32, C>;
const THREADS = {{threads}}u;
const SIZE = {{size}}u;
const TILE = {{tile}}u;
const TILE_K = {{tile_k}}u;
const PAD = {{pad}}u; // 16 bytes
const UNIT = TILE / 2u; // rows and columns of a subgroup
const BAND = 8u;

// A matrix of each subgroup, and one that is not read.
var<workgroup> sums: array<f32, 5u * SIZE * SIZE>;
{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
#if !fixed
    @builtin(subgroup_id) subgroup: u32,
#endif
) {
    let number = group.y * groups.x + group.x;
    let tiles = params.tiles_down * params.tiles_across;
    let slice = number / tiles;
    let matrix = slice % params.matrices;
    if slice >= params.matrices * params.splits { return; }
    let tile = number % tiles;
    let band = tile / (BAND * params.tiles_across);
    let high = min(BAND, params.tiles_down - band * BAND);
    let within = tile % (BAND * params.tiles_across);
    let row0 = (band * BAND + within % high) * TILE;
    let column0 = (within / high) * TILE;
    let low = (slice / params.matrices) * params.split_length;
    let end = min(low + params.split_length, params.k);
    let base = matrix_addresses(matrix);
#if fixed
    let subgroup = thread / {{subgroup_threads}}u;
#endif
    let row = min(subgroup, 3u) / 2u * UNIT;
    let column = min(subgroup, 3u) % 2u * UNIT;
#for i in 0..4
#for j in 0..4
    var sum{{i}}_{{j}} = Sum();
#endfor
#endfor
#for g in 0..groups
    var lhs{{g}} = fetch_lhs(base.lhs, row0, low, end, thread + {{g}}u * THREADS);
    var rhs{{g}} = fetch_rhs(base.rhs, column0, low, end, thread + {{g}}u * THREADS);
#endfor
    for (var k0 = low; k0 < end; k0 += TILE_K) {
#for g in 0..groups
        put_lhs(thread + {{g}}u * THREADS, lhs{{g}});
        put_rhs(thread + {{g}}u * THREADS, rhs{{g}});
#endfor
        workgroupBarrier();
#for g in 0..groups
        lhs{{g}} = fetch_lhs(base.lhs, row0, k0 + TILE_K, end, thread + {{g}}u * THREADS);
        rhs{{g}} = fetch_rhs(base.rhs, column0, k0 + TILE_K, end, thread + {{g}}u * THREADS);
#endfor
        for (var k = 0u; k < TILE_K; k += SIZE) {
#for i in 0..4
#if lhs_along
            let left{{i}} =
                coopLoadT<Left>(&lhs_tile[(row + {{i}}u * SIZE) * LHS_PITCH + k], LHS_PITCH);
#else
            let left{{i}} =
                coopLoad<Left>(&lhs_tile[k * LHS_PITCH + row + {{i}}u * SIZE], LHS_PITCH);
#endif
#if rhs_along
            let right{{i}} =
                coopLoad<Right>(&rhs_tile[(column + {{i}}u * SIZE) * RHS_PITCH + k], RHS_PITCH);
#else
            let right{{i}} =
                coopLoadT<Right>(&rhs_tile[k * RHS_PITCH + column + {{i}}u * SIZE], RHS_PITCH);
#endif
#endfor
#for i in 0..4
#for j in 0..4
            sum{{i}}_{{j}} = coopMultiplyAdd(left{{i}}, right{{j}}, sum{{i}}_{{j}});
#endfor
#endfor
        }
        workgroupBarrier();
    }
    let begin_slice = (slice / params.matrices) * (params.matrices * params.m * params.n);
    let first = begin_slice + matrix * params.m * params.n;
    let place = min(subgroup, 4u) * SIZE * SIZE;
    for (var f = 0u; f < 16u; f += 1u) {
        switch f {
#for i in 0..4
#for j in 0..4
            case {{4 * i + j}}u: { coopStoreT(sum{{i}}_{{j}}, &sums[place], SIZE); }
#endfor
#endfor
            default: {}
        }
        workgroupBarrier();
        for (var n = thread; n < 4u * SIZE * SIZE; n += THREADS) {
            let unit = n / (SIZE * SIZE);
            let at_row = row0 + unit / 2u * UNIT + f / 4u * SIZE + n / SIZE % SIZE;
            let at_column = column0 + unit % 2u * UNIT + f % 4u * SIZE + n % SIZE;
            if at_row < params.m && at_column < params.n {
                store(first + at_row * params.n + at_column, sums[n]);
            }
        }
        workgroupBarrier();
    }
}
