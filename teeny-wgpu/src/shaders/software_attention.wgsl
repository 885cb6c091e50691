// Attention by tiles that a subgroup of 8 threads computes alone, for software adapters: there a
// load takes as long for four neighbours as for one, some 50 times as long as a multiplication,
// from workgroup memory too, and a barrier switches between the threads' stacks.
//
// Naive: a row of scores per query, its softmax, its product with v. From there:
//  1. A thread has four queries, in the elements of a vector, and passes tiles of 32 keys with the
//     running maximum and sum of attention.wgsl. Both are per thread: nothing is reduced across
//     threads.
//  2. Scores, four columns at a time: each thread loads its four queries and four of the keys, and
//     passes the keys on to all others as broadcasts, which are moves between registers: 8 loads
//     for 512 products of a thread.
//  3. Weights times values, STEP keys at a time: the threads load the values, each its own groups
//     of four, and pass them on likewise: one load for 128 products of a thread.
//  4. Tiles of keys that no query of the subgroup sees are never visited.
// 8 threads a workgroup, 4 x columns + 128 accumulators, most of them on the stack; no workgroup
// memory, no barrier. Expected: 70 to 90 % of the f32 peak of a software adapter, less the half
// tiles at the end of a causal band. A score of +inf makes the row NaN.
{{params}}
@group(0) @binding(0) var<storage, read> q: array<{{q_word}}>;
@group(0) @binding(1) var<storage, read> k: array<{{k_word}}>;
@group(0) @binding(2) var<storage, read> v: array<{{v_word}}>;
@group(0) @binding(3) var<storage, read> mask: array<u32>; // bytes or numbers
@group(0) @binding(4) var<storage, read_write> y: array<{{y_word}}>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;

const ROWS = 32u;
const KEYS = {{keys}}u;
const STEP = {{step}}u;       // keys whose values are loaded at a time
const QUADS = {{columns / 4}}u; // groups of four columns of y
const LOWEST = -3.4028234e38f; // of keys that are not seen: finite, so nothing is infinite

{{accessors}}

// The scores of four queries for a key. A key that a query does not see has LOWEST, or less: query t
// sees key s if 0 <= t + offset - s < window, and the mask allows it. NaN is seen unless the mask
// is -inf, and so reaches the result.
fn masked(products: vec4<f32>, t: vec4<u32>, s: u32, allowed: vec4<u32>) -> vec4<f32> {
    var score = products * params.scale;
    // Beyond the last key larger than every window, as negative numbers are.
    let behind = t + select(0x80000000u, params.offset - s, s < params.keys);
    var seen = behind < vec4<u32>(params.window);
#if masks
    let p = allowed + min(s, params.keys - 1u) * params.mask_column_stride;
#if added
    let added = vec4<f32>(mask_value(p.x), mask_value(p.y), mask_value(p.z), mask_value(p.w));
    seen = seen & !(added <= vec4<f32>(LOWEST));
    score += added;
#else
    seen = seen & vec4<bool>(mask_allows(p.x), mask_allows(p.y), mask_allows(p.z),
        mask_allows(p.w));
#endif
#endif
    return select(vec4<f32>(LOWEST), score, seen);
}

@compute @workgroup_size(8)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(subgroup_invocation_id) lane: u32,
) {
    let unit = group.y * groups.x + group.x;
    let batch = unit / params.tiles;
    if batch >= params.batches { return; }
    let own0 = unit % params.tiles * ROWS;
    let base = batch_addresses(batch);
    // The keys that any of these queries sees.
    let offset = i32(params.offset);
    let low = u32(max(i32(own0) + offset - i32(params.window) + 1, 0)) / KEYS * KEYS;
    let high = min(u32(max(i32(min(own0 + ROWS, params.queries)) + offset, 0)), params.keys);
    let t = vec4<u32>(own0 + lane) + vec4<u32>(0u, 8u, 16u, 24u);
#for p in 0..4
    let row{{p}} = min(t[{{p}}], params.queries - 1u);
    let from{{p}} = base.q + row{{p}} * params.q_row_stride;
#endfor
    let allowed = vec4<u32>(base.mask) + vec4<u32>(row0, row1, row2, row3) * params.mask_row_stride;
    var top = vec4<f32>(LOWEST);
    var sum = vec4<f32>();
#for c in 0..columns
    var y{{c}} = vec4<f32>();
#endfor
    for (var other0 = low; other0 < high; other0 += KEYS) {
#for j in 0..keys / 8
        let key{{j}} =
            base.k + min(other0 + {{8 * j}}u + lane, params.keys - 1u) * params.k_row_stride;
#endfor
#for s in 0..keys
        var s{{s}} = vec4<f32>();
#endfor
        for (var c = 0u; c < params.key_size; c += 4u) {
#for p in 0..4
            let q{{p}} = load_q_quad((from{{p}} + c) >> 2u);
#endfor
#for j in 0..keys / 8
            let k{{j}} = load_k_quad((key{{j}} + c) >> 2u);
#endfor
#for i in 0..4
            let a{{i}} = vec4<f32>(q0[{{i}}], q1[{{i}}], q2[{{i}}], q3[{{i}}]);
#for s in 0..keys
            s{{s}} += a{{i}} * subgroupBroadcast(k{{s / 8}}[{{i}}], {{s % 8}}u);
#endfor
#endfor
        }
        var peak = top;
#for s in 0..keys
        s{{s}} = masked(s{{s}}, t, other0 + {{s}}u, allowed);
        peak = select(peak, s{{s}}, s{{s}} > peak);
#endfor
        let shrink = exp4_f32(top - peak);
        top = peak;
        sum *= shrink;
#for c in 0..columns
        y{{c}} *= shrink;
#endfor
        let end = min(KEYS, high - other0);
        // The scores move down by STEP, so that their numbers are constants.
        for (var n = 0u; n < end; n += STEP) {
#for j in 0..step * columns / 32
            let e{{j}} = {{8 * j}}u + lane;
            let v{{j}} = load_v_quad((base.v
                + min(other0 + n + e{{j}} / QUADS, params.keys - 1u) * params.v_row_stride
                + min(e{{j}} % QUADS * 4u, params.value_size - 4u)) >> 2u);
#endfor
#for s in 0..step
            let w{{s}} = select(vec4<f32>(), exp4_f32(s{{s}} - top), !(s{{s}} <= vec4<f32>(LOWEST)));
            sum += w{{s}};
#endfor
            var largest = vec4<u32>();
#for j in 0..step * columns / 32
            largest = max(largest, bitcast<vec4<u32>>(v{{j}}) & vec4<u32>(0x7fffffffu));
#endfor
            // 0 times an infinity or NaN of a hidden key is left out.
            if subgroupAny(any(largest >= vec4<u32>(0x7f800000u))) {
#for s in 0..step
#for c in 0..columns
                y{{c}} += select(w{{s}}
                    * subgroupBroadcast(v{{(s * columns + c) / 32}}[{{c % 4}}], {{(s * columns + c) / 4 % 8}}u),
                    vec4<f32>(), w{{s}} == vec4<f32>());
#endfor
#endfor
            } else {
#for s in 0..step
#for c in 0..columns
                y{{c}} += w{{s}}
                    * subgroupBroadcast(v{{(s * columns + c) / 32}}[{{c % 4}}], {{(s * columns + c) / 4 % 8}}u);
#endfor
#endfor
            }
#for s in 0..keys - step
            s{{s}} = s{{s + step}};
#endfor
        }
    }
    let inverse = select(1.0f / sum, vec4<f32>(), sum == vec4<f32>());
#for p in 0..4
    if t[{{p}}] < params.queries {
        let row = batch * params.queries + t[{{p}}];
#for g in 0..columns / 4
        if {{4 * g}}u < params.value_size {
            store_y((row * params.value_size + {{4 * g}}u) >> 2u,
                inverse[{{p}}] * vec4<f32>(y{{4 * g}}[{{p}}], y{{4 * g + 1}}[{{p}}],
                    y{{4 * g + 2}}[{{p}}], y{{4 * g + 3}}[{{p}}]));
        }
#endfor
        // NOTE: `!=` is false for NaN.
        lse[row] = select(top[{{p}}] + log_f32(sum[{{p}}]), -inf_f32(), sum[{{p}}] == 0.0f);
    }
#endfor
}
