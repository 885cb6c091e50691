// A row in the registers of a workgroup, for softmax, normalisation and their gradients: thread t
// has groups of four t, t + THREADS, .. of the row. Each of these files has the function
// compute_row(row, thread).
const THREADS = {{threads}}u;

var<workgroup> parts: array<f32, THREADS>;
#if subgroups
var<private> subgroup: u32;
var<private> subgroup_lane: u32;
var<private> subgroup_count: u32;

fn subgroup_max(x: f32) -> f32 { return float_of(subgroupMax(order_of(x, 0xffffffffu))); }
fn subgroup_sum(x: f32) -> f32 { return subgroupAdd(x); }
#endif

fn add(a: f32, b: f32) -> f32 { return a + b; }
fn sum_of(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
#if subgroups
    @builtin(subgroup_id) own_subgroup: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    @builtin(num_subgroups) count: u32,
#endif
) {
#if subgroups
    subgroup = own_subgroup;
    subgroup_lane = lane;
    subgroup_count = count;
#endif
    let row = group.y * groups.x + group.x;
    if row >= params.rows { return; }
    compute_row(row, thread);
}
