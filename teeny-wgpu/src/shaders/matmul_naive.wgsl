// The product of two matrices, one thread per result:
//     sum = 0; for k in 0..K { sum += lhs[row, k] * rhs[k, column]; }
// For short sums; the definition that the other kernels are measured against.
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
{{results}}

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    let size = params.m * params.n;
    let matrix = n / size;
    if matrix >= params.matrices { return; }
    let base = matrix_addresses(matrix);
    let x = base.lhs + ((n % size) / params.n) * params.lhs_row_stride;
    let y = base.rhs + ((n % size) % params.n) * params.rhs_column_stride;
    var sum = Value(0);
    for (var k = 0u; k < params.k; k += 1u) {
        sum += load_lhs(x + k * params.lhs_k_stride) * load_rhs(y + k * params.rhs_k_stride);
    }
    store(n, sum);
}
