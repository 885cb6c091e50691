// Skinny products whose rhs is contiguous across k: one workgroup per COLUMNS neighbouring results.
//
// Naive: sum = 0; for k in 0..K { sum += lhs[row, k] * rhs[k, column]; }
// Here neighbouring threads have neighbouring columns; SLICES threads share the k of a column, and
// one of them adds their sums.
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
{{results}}

alias Value = {{value}};
const THREADS = {{threads}}u;
const COLUMNS = {{columns}}u;
const SLICES = THREADS / COLUMNS;

{{accessors}}

var<workgroup> parts: array<Value, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let units_per_row = (params.n + COLUMNS - 1u) / COLUMNS;
    let line = unit / units_per_row;
    let matrix = line / params.m;
    if matrix >= params.matrices { return; }
    let column = (unit % units_per_row) * COLUMNS + thread % COLUMNS;
    let base = matrix_addresses(matrix);
    let x = base.lhs + (line % params.m) * params.lhs_row_stride;
    let y = base.rhs + column * params.rhs_column_stride;
    var sum = Value(0);
    if column < params.n {
        for (var k = thread / COLUMNS; k < params.k; k += SLICES) {
            sum += load_lhs(x + k * params.lhs_k_stride) * load_rhs(y + k * params.rhs_k_stride);
        }
    }
    parts[thread] = sum;
    workgroupBarrier();
    if thread < COLUMNS && column < params.n {
        for (var i = 1u; i < SLICES; i++) { sum += parts[thread + i * COLUMNS]; }
        store(line * params.n + column, sum);
    }
}
