// A convolution with one thread per result, for groups of few channels (depthwise convolutions),
// which would leave a tile empty:
//     sum = 0; for k in 0..K { sum += left_at(row, k) * right_at(k, column); }
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
    if n >= params.matrices * params.m * params.n { return; }
    let line = n / params.n;
    channel_group = line / params.m;
    let row = line % params.m;
    let column = column_of(n % params.n);
    var sum = Value(0);
    for (var number = 0u; number < params.k; number += 1u) {
        let k = inner_of(number);
        sum += left_at(row, k) * right_at(k, column);
    }
    store(row_part(channel_group, row) + column_part(n % params.n), sum);
}
