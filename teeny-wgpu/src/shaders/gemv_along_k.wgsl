// Skinny products whose larger matrix is contiguous along k: TEAM threads per GROUP results.
//
// Naive: sum = 0; for k in 0..K { sum += lhs[row, k] * rhs[k, column]; }
// From there:
//  1. Neighbouring threads have neighbouring k; their sums are added in workgroup memory. Few results
//     have a whole workgroup each, many have teams of 8 threads: fewer sums to add.
//  2. Operands whose k are whole groups of four are read as vectors: 128 bytes a team at a time.
//  3. A team of 8 computes GROUP neighbours along the longer side of the result, which share what it
//     reads of the smaller operand.
// An element of the larger matrix takes one multiplication and one addition: bound by bandwidth.
// GROUP vectors of sums and GROUP + 1 operands in registers, 4 bytes of workgroup memory a sum.
// Expected: 70 to 90 % of the bandwidth where vectors are read.
{{params}}
@group(0) @binding(0) var<storage, read> lhs: array<{{lhs_word}}>;
@group(0) @binding(1) var<storage, read> rhs: array<{{rhs_word}}>;
{{results}}

alias Value = {{value}};
const THREADS = {{threads}}u;
const TEAM = {{team}}u;
const GROUP = {{group}}u;

{{accessors}}

fn add(a: Value, b: Value) -> Value { return a + b; }

var<workgroup> parts: array<Value, {{threads * group}}>;
{{workgroup_sum}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    // A unit is a group of results of one line of the result: a column, or a row.
    // NOTE: a return before barriers must be in uniform control flow.
    let number = workgroup.y * workgroups.x + workgroup.x;
#if whole
    let unit = number;
#else
    let unit = number * (THREADS / TEAM) + thread / TEAM;
#endif
#if down
    let length = params.m;
    let lines = params.n;
#else
    let length = params.n;
    let lines = params.m;
#endif
    let groups = (length + GROUP - 1u) / GROUP;
    let units = groups * lines * params.matrices;
#if whole
    if unit >= units { return; }
    let own = unit;
#else
    // Teams beyond the last unit repeat it, since all threads must reach the barrier.
    let own = min(unit, units - 1u);
#endif
    let matrix = own / (groups * lines);
    let line = own / groups % lines;
    let first = own % groups * GROUP;
    let base = matrix_addresses(matrix);
    // A group at the end repeats its last result.
#for i in 0..group
    let place{{i}} = min(first + {{i}}u, length - 1u);
#endfor
#if down
    let short = base.rhs + line * params.rhs_column_stride;
#for i in 0..group
    let long{{i}} = base.lhs + place{{i}} * params.lhs_row_stride;
#endfor
#else
    let short = base.lhs + line * params.lhs_row_stride;
#for i in 0..group
    let long{{i}} = base.rhs + place{{i}} * params.rhs_column_stride;
#endfor
#endif
#for i in 0..group
#if quads
    var sums{{i}} = vec4<Value>();
#else
    var sums{{i}} = Value(0);
#endif
#endfor
    for (var k = thread % TEAM; k < params.k / {{lanes}}u; k += TEAM) {
#if quads
        let v = load_{{short_name}}_quad((short >> 2u) + k);
#for i in 0..group
        sums{{i}} += load_{{long_name}}_quad((long{{i}} >> 2u) + k) * v;
#endfor
#else
        let v = load_{{short_name}}(short + k * params.{{short_stride}});
#for i in 0..group
        sums{{i}} += load_{{long_name}}(long{{i}} + k * params.{{long_stride}}) * v;
#endfor
#endif
    }
#for i in 0..group
#if quads
    let sum{{i}} = (sums{{i}}.x + sums{{i}}.y) + (sums{{i}}.z + sums{{i}}.w);
#else
    let sum{{i}} = sums{{i}};
#endif
#endfor
#if whole
    let sum = workgroup_sum(thread, sum0);
    let stores = thread == 0u;
    let place = first;
#else
    // Each of the first GROUP threads of a team adds the sums of one result.
#for i in 0..group
    parts[thread * GROUP + {{i}}u] = sum{{i}};
#endfor
    workgroupBarrier();
    let mine = thread % TEAM;
    let place = first + mine;
    let stores = unit < units && mine < GROUP && place < length;
    var sum = Value(0);
    if stores {
        for (var i = 0u; i < TEAM; i++) { sum += parts[(thread - mine + i) * GROUP + mine]; }
    }
#endif
    if stores {
#if down
        store((matrix * params.m + place) * params.n + line, sum);
#else
        store((matrix * params.m + line) * params.n + place, sum);
#endif
    }
}
