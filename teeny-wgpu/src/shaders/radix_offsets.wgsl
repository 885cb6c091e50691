// The second step of a pass of a radix sort: counts[digit, tile] becomes where these keys begin,
// the exclusive scan of the counts. One workgroup: each thread scans a span, after the sums of the
// spans before it.
{{params}}
@group(0) @binding(0) var<storage, read_write> counts: array<u32>;

const THREADS = {{threads}}u;
const DIGITS = {{digits}}u;

var<workgroup> sums: array<u32, THREADS>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    if group.y * groups.x + group.x > 0u { return; }
    let total = params.tiles * DIGITS;
    let each = (total + THREADS - 1u) / THREADS;
    let low = min(thread * each, total);
    let high = min(low + each, total);
    var sum = 0u;
    for (var i = low; i < high; i++) { sum += counts[i]; }
    sums[thread] = sum;
    workgroupBarrier();
    var at = 0u;
    for (var i = 0u; i < thread; i++) { at += sums[i]; }
    for (var i = low; i < high; i++) {
        let here = counts[i];
        counts[i] = at;
        at += here;
    }
}
