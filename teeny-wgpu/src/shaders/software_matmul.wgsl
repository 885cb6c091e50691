// The product of two matrices by tiles that a subgroup of 8 threads computes alone, for software
// adapters: there workgroup memory is as slow as other memory, a barrier switches between the
// threads' stacks, and a load takes as long for four neighbours as for one, some 50 times as long
// as a multiplication. So loads dominate.
//
// Naive, one thread per result: sum = 0; for k in 0..K { sum += lhs[row, k] * rhs[k, column]; }
// From there:
//  1. A subgroup computes ROWS x 8 COLUMNS results, ROWS x COLUMNS a thread, in registers.
//  2. Four steps of k at a time: the threads load ROWS vectors of lhs, each its own, and pass the
//     elements on to all others as broadcasts, which are moves between registers. Each thread
//     loads its own columns of rhs: ROWS / 8 + 4 loads for 16 ROWS products of a thread.
//  3. Operands are read along k or across k, as their elements are neighbours in memory, and in
//     groups of four where those begin at multiples of four elements; else by four loads.
//  4. Tiles below each other come one after the other, and share the columns of rhs.
// 8 threads a workgroup, ROWS x COLUMNS accumulators, no workgroup memory, no barrier.
// Expected: 70 to 90 % of the f32 peak of a software adapter, where operands are read in groups.
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
{{results}}

alias Value = {{value}};
alias Quad = vec4<Value>;
alias Row = vec{{columns}}<Value>;
const ROWS = {{rows}}u;
const COLUMNS = {{columns}}u;

{{accessors}}

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let unit = group.y * groups.x + group.x;
    let tiles = params.tiles_down * params.tiles_across;
    let matrix = unit / tiles;
    if matrix >= params.matrices { return; }
    let row0 = unit % tiles % params.tiles_down * ROWS;
    let column0 = unit % tiles / params.tiles_down * 8u * COLUMNS;
    let base = matrix_addresses(matrix);
    // Indices beyond the last row or column read the last one; their results are not stored.
#for j in 0..rows / 8
#if lhs_along
    // Four k of row 8 j + lane.
    let left{{j}} = base.lhs + min(row0 + {{8 * j}}u + lane, params.m - 1u) * params.lhs_row_stride;
#else
    // Four rows at one of the four k: vector 8 j + lane, counted along the rows first.
    let down{{j}} = row0 + ({{8 * j}}u + lane) % (ROWS / 4u) * 4u;
    let step{{j}} = ({{8 * j}}u + lane) / (ROWS / 4u);
#endif
#endfor
#if rhs_along
#for c in 0..columns
    let right{{c}} =
        base.rhs + min(column0 + {{8 * c}}u + lane, params.n - 1u) * params.rhs_column_stride;
#endfor
#else
    let across = column0 + COLUMNS * lane;
#endif
#for i in 0..rows
    var sum{{i}} = Row();
#endfor
    for (var k = 0u; k < params.k; k += 4u) {
#for j in 0..rows / 8
#if lhs_along
        let l{{j}} = lhs_along_k(left{{j}}, k);
#else
        let l{{j}} = lhs_across_k(base.lhs, down{{j}}, k + step{{j}});
#endif
#endfor
#if rhs_along
#for c in 0..columns
        let c{{c}} = rhs_along_k(right{{c}}, k);
#endfor
#for kk in 0..4
        var r{{kk}}: Row;
#for c in 0..columns
        r{{kk}}[{{c}}] = c{{c}}[{{kk}}];
#endfor
#endfor
#else
#for kk in 0..4
        let r{{kk}} = rhs_across_k(base.rhs, across, k + {{kk}}u);
#endfor
#endif
#for kk in 0..4
#for i in 0..rows
#if lhs_along
        sum{{i}} += subgroupBroadcast(l{{i / 8}}[{{kk}}], {{i % 8}}u) * r{{kk}};
#else
        sum{{i}} += subgroupBroadcast(
            l{{(kk * rows / 4 + i / 4) / 8}}[{{i % 4}}], {{(kk * rows / 4 + i / 4) % 8}}u) * r{{kk}};
#endif
#endfor
#endfor
    }
    // Once in the text, in a loop, so that a kernel after the product is compiled once.
    var sums: array<Row, ROWS>;
#for i in 0..rows
    sums[{{i}}] = sum{{i}};
#endfor
    for (var n = 0u; n < ROWS * COLUMNS; n += 1u) {
        let row = row0 + n / COLUMNS;
#if rhs_along
        let column = column0 + n % COLUMNS * 8u + lane;
#else
        let column = column0 + COLUMNS * lane + n % COLUMNS;
#endif
        if row < params.m && column < params.n {
            store((matrix * params.m + row) * params.n + column, sums[n / COLUMNS][n % COLUMNS]);
        }
    }
}
