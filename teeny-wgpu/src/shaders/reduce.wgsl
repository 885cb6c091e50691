// Reductions of a kernel's output: sum, product, extremes, any, all, and positions of extremes.
//
// Naive, one thread per result:
//     acc = neutral(); for r in 0..elements { acc = combine(acc, element(r)); } out[result] = acc;
// From there:
//  1. Blocks of 64 are combined first: rounding errors grow with the number of blocks.
//  2. Long reductions are split into `chunks` of `length` elements (groups of four or eight, see 4),
//     and another launch combines the results of the chunks. Positions have one chunk: without its
//     value a position cannot be combined (ops/reduce/parts.rs).
//  3. TEAM threads share a chunk and combine their parts in workgroup memory: all THREADS for few
//     long rows, 8 for thousands of rows and for rows of some hundred elements. Columns and short
//     rows have one thread a result, so that neighbours read neighbouring elements.
//  4. Rows of neighbours that begin at multiples of four are read as vectors and counted by fours:
//     one address for four elements, and no division. So are they by eights, where a load of 64-bit
//     words costs no more.
//  5. The elements of a thread come in their order, so that a position is replaced by a better value
//     only: `followed` compares no positions; `combine`, between threads, does.
// 4 bytes an element, one addition: bound by bandwidth; one accumulator and a block in registers, 8
// bytes of workgroup memory a thread. Expected: 80 to 90 % of the bandwidth for rows of vectors, 40
// to 60 % for others.
{{params}}
#for i in 0..inputs
@group(0) @binding({{i}}) var<storage, read> {{names[i]}}: array<{{words[i]}}>;
#endfor
@group(0) @binding({{inputs}}) var<storage, read_write> out: array<{{out}}>;

alias Value = {{value}};
const THREADS = {{threads}}u;
const TEAM = {{team}}u;
const NOWHERE = 0xffffffffu;

struct State {
    value: Value,
    position: u32,
}

{{compute}}
{{accessors}}

#if arg
fn neutral() -> State { return State({{neutral}}, NOWHERE); }

// A NaN wins against every number; of equal elements, and of NaNs, the first wins.
fn combine(a: State, b: State) -> State {
    if a.position == NOWHERE { return b; }
    if b.position == NOWHERE { return a; }
    let first = a.position < b.position;
#if float
    let nan_a = is_nan_{{value}}(a.value);
    let nan_b = is_nan_{{value}}(b.value);
    if nan_a || nan_b {
        if nan_a && (first || !nan_b) { return a; }
        return b;
    }
#endif
    if a.value {{better}} b.value || (a.value == b.value && first) { return a; }
    return b;
}
fn result(acc: State) -> i32 { return i32(acc.position); }
#else
fn neutral() -> State { return State({{neutral}}, 0u); }
fn combine(a: State, b: State) -> State { return State({{combined}}, 0u); }
fn result(acc: State) -> {{out}} { return acc.value; }
#endif

#if arg
// `a` or `b`. All elements of `b` come after the elements of `a`.
fn followed(a: State, b: State) -> State {
#if float
    let better = b.value {{better}} a.value || (is_nan_{{value}}(b.value) && !is_nan_{{value}}(a.value));
#else
    let better = b.value {{better}} a.value;
#endif
    return State(select(a.value, b.value, better), select(a.position, b.position, better));
}
#else
fn followed(a: State, b: State) -> State { return combine(a, b); }
#endif

#if groups
// A group of neighbours, combined.
fn element(r: u32, base: KeptAddresses) -> State {
#for i in 0..inputs
    let v{{i}} = group_{{names[i]}}(base.{{names[i]}} / {{lanes}}u + r);
#endfor
#for lane in 0..lanes
    let lane{{lane}} = State(as_stored(compute({{operands[lane]}}).y0), r * {{lanes}}u + {{lane}}u);
#endfor
    let four = followed(followed(lane0, lane1), followed(lane2, lane3));
#if octets
    return followed(four, followed(followed(lane4, lane5), followed(lane6, lane7)));
#else
    return four;
#endif
}
#else
fn element(r: u32, base: KeptAddresses) -> State {
    let at = reduced_addresses(r);
    return State(as_stored(compute({{loads}}).y0), r);
}
#endif

#if shared
var<workgroup> parts: array<State, THREADS>;
#endif
{{workgroup_combine}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let units = params.results * params.chunks;
#if workgroup_team
    if unit >= units { return; }
    let o = unit / params.chunks;
    let chunk = unit % params.chunks;
#else
#if shared
    // Teams beyond the last result repeat it, since all threads must reach the barrier.
    let n = unit * (THREADS / TEAM) + thread / TEAM;
    let last = min(n, units - 1u);
    let o = last / params.chunks;
    let chunk = last % params.chunks;
#else
    let n = unit * THREADS + thread;
    if n >= units { return; }
    let o = n % params.results;
    let chunk = n / params.results;
#endif
#endif
    let base = kept_addresses(o);
    let low = chunk * params.length;
    let high = min(low + params.length, params.elements);
    var acc = neutral();
    var r = low + thread % TEAM;
    while r < high {
        var block = element(r, base);
        r += TEAM;
        for (var k = 1; k < {{block}} && r < high; k++) {
            block = followed(block, element(r, base));
            r += TEAM;
        }
        acc = combine(acc, block);
    }
#if workgroup_team
    acc = workgroup_combine(thread, acc);
    if thread == 0u { out[o * params.chunks + chunk] = result(acc); }
#else
#if shared
    parts[thread] = acc;
    workgroupBarrier();
    if thread % TEAM == 0u && n < units {
        for (var i = 1u; i < TEAM; i++) {
            let other = parts[thread + i];
            acc = combine(acc, other);
        }
        out[o * params.chunks + chunk] = result(acc);
    }
#else
    out[o * params.chunks + chunk] = result(acc);
#endif
#endif
}
