// Softmax along a row, or its logarithm: y = exp(x - max) / sum(exp(x - max)).
//
// Naive, one thread per row: three loops, for the maximum, the sum and the result. Here a workgroup
// has a row and each thread every THREADS-th element of it; the second and third loop read the row
// from cache. Subtracting the maximum keeps exp finite.
//
// For rows that softmax_quads.wgsl does not take: long, strided, or not of whole groups of four. y
// has the accumulation dtype and is cast afterwards.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read_write> y: array<Value>;

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

fn add(a: Value, b: Value) -> Value { return a + b; }

var<workgroup> parts: array<Value, THREADS>;
{{workgroup_max}}
{{workgroup_sum}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let row = group.y * groups.x + group.x;
    if row >= params.rows { return; }
    let base = row_addresses(row);
    var largest = -inf_{{value}}();
    for (var r = thread; r < params.length; r += THREADS) {
        largest = max_{{value}}(largest, load_x(base.x + r * params.x_step));
    }
    largest = workgroup_max(thread, largest);
    var sum: Value = {{zero}};
    for (var r = thread; r < params.length; r += THREADS) {
        sum += exp_{{value}}(load_x(base.x + r * params.x_step) - largest);
    }
    sum = workgroup_sum(thread, sum);
    for (var r = thread; r < params.length; r += THREADS) {
        let shifted = load_x(base.x + r * params.x_step) - largest;
#if log
        y[base.y + r * params.y_step] = shifted - log_{{value}}(sum);
#else
        y[base.y + r * params.y_step] = exp_{{value}}(shifted) / sum;
#endif
    }
}
