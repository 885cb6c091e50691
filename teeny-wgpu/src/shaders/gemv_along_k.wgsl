// Skinny products whose larger matrix is contiguous along k: one workgroup per result.
//
// Naive: sum = 0; for k in 0..K { sum += lhs[row, k] * rhs[k, column]; }
// Here neighbouring threads have neighbouring k, and their sums are added in workgroup memory.
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
{{results}}

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

fn add(a: Value, b: Value) -> Value { return a + b; }

var<workgroup> parts: array<Value, THREADS>;
{{workgroup_sum}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let size = params.m * params.n;
    let matrix = unit / size;
    if matrix >= params.matrices { return; }
    let base = matrix_addresses(matrix);
    let x = base.lhs + ((unit % size) / params.n) * params.lhs_row_stride;
    let y = base.rhs + ((unit % size) % params.n) * params.rhs_column_stride;
    var sum = Value(0);
    for (var k = thread; k < params.k; k += THREADS) {
        sum += load_lhs(x + k * params.lhs_k_stride) * load_rhs(y + k * params.rhs_k_stride);
    }
    sum = workgroup_sum(thread, sum);
    if thread == 0u { store(unit, sum); }
}
