// y = x @ weightᵀ by rows of one type of a quantised weight, 16 rows interleaved.
//
// Naive: for row, column { sum = 0; for k { sum += x[row, k] * weight(column, k); } }
// From there:
//  1. Neighbouring threads have neighbouring rows of the weight, whose bytes are neighbours: a
//     group of 16 is read as whole lines of memory, each byte once for ROWS rows of x.
//  2. A thread makes four elements of GROUPS groups in registers, and multiplies them with ROWS
//     rows of x: GROUPS + ROWS loads for 4 GROUPS ROWS multiplications.
//  3. On software adapters the 8 threads of a subgroup load different rows of x and pass them on, as
//     in software_matmul.wgsl.
//  4. TEAMS teams of 16 threads take the sub-blocks of 32 elements in turn; their sums are added in
//     workgroup memory in a fixed order. One team needs no barrier.
//  5. Loads of 8 quads are begun together where registers suffice: a GPU waits long for memory.
// ROWS x GROUPS accumulators, 64 bytes of workgroup memory a team for each. One row of x: bound by
// the bandwidth of the weight's own bytes.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read> blocks: array<u32>;
@group(0) @binding(2) var<storage, read_write> y: array<f32>;

const ROWS = {{rows}}u;
const GROUPS = {{groups}}u;
const TEAMS = {{teams}}u;

{{accessors}}

#if joins
var<workgroup> parts: array<f32, {{16 * teams * rows * groups}}>;
#endif

@compute @workgroup_size({{16 * teams}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
#if broadcasts
    @builtin(subgroup_invocation_id) own: u32,
#endif
) {
    let unit = group.y * groups.x + group.x;
    let first_row = unit % params.tiles * ROWS;
    let first_group = unit / params.tiles * GROUPS;
    if first_group >= params.groups { return; }
#if joins
    let lane = thread % 16u;
    let team = thread / 16u;
#else
    let lane = thread;
    let team = 0u;
#endif
    // Rows and groups beyond the last one repeat it; their sums are not stored.
#for r in 0..loads
#if broadcasts
    let row{{r}} = first_row + {{8 * r}}u + own;
#else
    let row{{r}} = first_row + {{r}}u;
#endif
    let from{{r}} = params.x_start + min(row{{r}}, params.m - 1u) * params.sub_blocks * 8u;
#endfor
    let words = params.sub_blocks / SUBS * BLOCK; // of a group
#for g in 0..groups
    let at{{g}} = params.start + min(first_group + {{g}}u, params.groups - 1u) * words;
#endfor
#for n in 0..rows * groups
    var sum{{n}} = 0.0f;
#endfor
    for (var s = team; s < params.sub_blocks; s += TEAMS) {
        let block = s / SUBS * BLOCK;
        let sub = s % SUBS;
#for g in 0..groups
        let scale{{g}} = scale(at{{g}} + block, sub, lane);
#endfor
        for (var quad = 0u; quad < 8u; quad += {{unrolled}}u) {
#for u in 0..unrolled
            let i{{u}} = quad + {{u}}u;
#for g in 0..groups
            let w{{g}}_{{u}} =
                scale{{g}}.x * integers(at{{g}} + block, sub, i{{u}}, lane) + scale{{g}}.y;
#endfor
#for r in 0..loads
            let v{{r}}_{{u}} = x[from{{r}} + 8u * s + i{{u}}];
#endfor
#for r in 0..rows
#if broadcasts
            let x{{r}}_{{u}} = subgroupBroadcast(v{{r / 8}}_{{u}}, {{r % 8}}u);
#else
            let x{{r}}_{{u}} = v{{r}}_{{u}};
#endif
#for g in 0..groups
#for c in 0..4
            sum{{r * groups + g}} += x{{r}}_{{u}}[{{c}}] * w{{g}}_{{u}}[{{c}}];
#endfor
#endfor
#endfor
#endfor
        }
    }
#if joins
#for n in 0..rows * groups
    parts[({{n}}u * TEAMS + team) * 16u + lane] = sum{{n}};
#endfor
    workgroupBarrier();
    for (var n = team; n < ROWS * GROUPS; n += TEAMS) {
        var sum = 0.0f;
        for (var t = 0u; t < TEAMS; t += 1u) { sum += parts[(n * TEAMS + t) * 16u + lane]; }
#else
    var sums: array<f32, ROWS * GROUPS>;
#for n in 0..rows * groups
    sums[{{n}}] = sum{{n}};
#endfor
    for (var n = 0u; n < ROWS * GROUPS; n += 1u) {
        let sum = sums[n];
#endif
        let row = first_row + n / GROUPS;
        let column = (first_group + n % GROUPS) * 16u + lane;
        if row < params.m && column < params.columns {
            y[row * params.n + params.column0 + column] = sum;
        }
    }
}
