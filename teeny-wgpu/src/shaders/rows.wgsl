// A row program: for each row the values of the program at each element, the folds of its values,
// and values that depend on those. A fold is a reduction along the row. Level l has the values that
// need folds of level l - 1; level 0 needs none.
//
// Naive: a launch for each fold and for each value that later ones read (the definition of
// Op::Rows), so that every level reads and writes the row in memory. Here a launch computes all
// levels of a row:
//  1. All THREADS of a workgroup have a row. One thread has a row where the row is short, or where
//     the elements of neighbouring rows are contiguous, so that neighbouring threads read
//     neighbouring elements.
//  2. A level is a loop over the row that ends in its folds (rows_level.wgsl). The values of a row
//     are computed by each of its threads, between the loops.
//  3. Rows whose elements are contiguous are read and written in vectors of LANES, quads.
//  4. A row that fits is read once: its quads, and what later levels need of them, stay in
//     registers, and the loops are unrolled; groups past its end are passed over, so that few
//     shaders serve all lengths. Longer rows are read once a level, and computed again.
//
// Reads and writes each element once where the row fits: bound by bandwidth for programs of up to
// some 20 operations an element, such as softmax. Registers: {{held}} quads of {{lanes}}; workgroup
// memory: the folds of each thread. Expected: 70 to 90 % of the bandwidth for contiguous rows.
//
// `whole`: a workgroup has one row. See ops/rows/program.rs.
{{params}}
#for i in 0..inputs
@group(0) @binding({{i}}) var<storage, read> {{names[i]}}: array<{{words[i]}}>;
#endfor
#for o in 0..outputs
@group(0) @binding({{inputs + o}}) var<storage, read_write> out{{o}}: array<{{results[o]}}>;
#endfor

const THREADS = {{threads}}u;
const TEAM = {{team}}u;
const LANES = {{lanes}}u;

{{accessors}}
#if subgroups
var<private> subgroup: u32;
var<private> subgroup_lane: u32;
var<private> subgroup_count: u32;

fn subgroup_largest(x: f32) -> f32 { return float_of(subgroupMax(order_of(x, 0xffffffffu))); }
fn subgroup_smallest(x: f32) -> f32 { return float_of(subgroupMin(order_of(x, 0u))); }
#endif
{{functions}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
#if subgroups
    @builtin(subgroup_id) own_subgroup: u32,
    @builtin(subgroup_invocation_id) own_lane: u32,
    @builtin(num_subgroups) count: u32,
#endif
) {
#if subgroups
    subgroup = own_subgroup;
    subgroup_lane = own_lane;
    subgroup_count = count;
#endif
    let workgroup = group.y * groups.x + group.x;
#if whole
    if workgroup >= params.rows { return; }
    let row = workgroup;
#else
    let row = workgroup * THREADS + thread;
    if row >= params.rows { return; }
#endif
    let length = params.groups;
    let place = thread % TEAM;
    let base = row_addresses(row);
#for g in 0..held
    let q{{g}} = place + {{g}}u * TEAM;
    let at{{g}} = along_addresses(q{{g}} * LANES);
#endfor
{{body}}
    if place == 0u {
{{row_stores}}
    }
}
