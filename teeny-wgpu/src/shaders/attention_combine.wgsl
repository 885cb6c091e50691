// Joins the results of attention over parts of the keys, each with its logsumexp:
//     lse = log(sum over s of exp(lse_s)),   y = sum over s of exp(lse_s - lse) y_s
//
// One thread per element of y, neighbours along a row, so that the parts are read in whole lines;
// the weights of a row are computed by each of its threads, which is less than the read of y_s.
// Parts that saw no key have -inf and weigh nothing. The parts are added in their order. 2 flops
// and an exponential per 4 bytes: bound by bandwidth, and small beside the keys that were read.
{{params}}
@group(0) @binding(0) var<storage, read> parts: array<f32>;     // (splits, rows, columns)
@group(0) @binding(1) var<storage, read> part_lse: array<f32>;  // (splits, rows)
@group(0) @binding(2) var<storage, read_write> y: array<f32>;
@group(0) @binding(3) var<storage, read_write> lse: array<f32>;

const THREADS = {{threads}}u;
const LOWEST = -3.4028234e38f;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.rows * params.columns { return; }
    let row = n / params.columns;
    var peak = LOWEST;
    for (var s = 0u; s < params.splits; s += 1u) {
        peak = max_f32(peak, part_lse[s * params.rows + row]);
    }
    var sum = 0.0f;
    var value = 0.0f;
    for (var s = 0u; s < params.splits; s += 1u) {
        let own = part_lse[s * params.rows + row];
        if own <= LOWEST { continue; }
        let w = exp_f32(own - peak);
        sum += w;
        value += w * parts[s * params.rows * params.columns + n];
    }
    y[n] = select(value / sum, 0.0f, sum == 0.0f);
    if n % params.columns == 0u {
        // NOTE: `!=` is false for NaN.
        lse[row] = select(peak + log_f32(sum), -inf_f32(), sum == 0.0f);
    }
}
