// Attention without the matrix of scores (Dao 2023, arXiv:2307.08691):
//     y = softmax(scale q k' + mask) v,   lse = log(sum(exp(scores)))
//
// Naive: a row of scores per query, its softmax, its product with v. Here a workgroup's queries
// pass the tiles of keys they see (attention_tiles.wgsl) with a running maximum and sum; y is
// rescaled as the maximum grows:
//     peak = max(top, scores); w = exp(scores - peak); shrink = exp(top - peak)
//     sum = sum shrink + w.sum(); y = y shrink + w v; top = peak
// Each thread sums the weights of its keys only; the sums of the lanes meet at the end. Tiles
// that no query of the workgroup sees are never visited. Where there are few queries (decoding),
// `splits` workgroups share the keys of each, and attention_combine.wgsl joins their results.
//
// Arithmetic intensity, heads of 64 columns, tall: 64 x 32 x 128 products per tile for 64 + 32 + 32
// rows of 256 bytes: 16 flops a byte of cache, 64 of memory from T = 256 on. Bound by loads from
// workgroup memory: 5.3 products a word; expected 35 to 50 % of the f32 peak, or decoding, which
// reads each key and value once, 60 to 80 % of the bandwidth.
{{params}}
@group(0) @binding(0) var<storage, read> q: array<{{q_word}}>;
@group(0) @binding(1) var<storage, read> k: array<{{k_word}}>;
@group(0) @binding(2) var<storage, read> v: array<{{v_word}}>;
@group(0) @binding(3) var<storage, read> mask: array<u32>; // bytes or numbers: see mask_kind
@group(0) @binding(4) var<storage, read_write> y: array<{{y_word}}>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let split = unit % params.splits;
    let tile = unit / params.splits;
    let batch = tile / params.tiles;
    if batch >= params.batches { return; }
    let own0 = (tile % params.tiles) * OWN_ROWS;
    i = thread / LANES;
    j = thread % LANES;
    let lane = j % COLUMN_LANES;
    let part = j / COLUMN_LANES;
    base = batch_addresses(batch);
    // The keys that any of these queries sees, and the share of this workgroup.
    let offset = i32(params.offset);
    let first = u32(max(i32(own0) + offset - i32(params.window) + 1, 0)) / OTHER_ROWS * OTHER_ROWS;
    let last = min(u32(max(i32(own0 + OWN_ROWS) + offset, 0)), params.keys);
    let tiles = (max(last, first) - first + OTHER_ROWS - 1u) / OTHER_ROWS;
    let share = (tiles + params.splits - 1u) / params.splits * OTHER_ROWS;
    let low = first + split * share;
    let high = min(low + share, last);
    let mine = vec4<u32>(own0 + i) + vec4<u32>(0u, OWN, 2u * OWN, 3u * OWN);
    let lanes = min(LANES, params.keys); // the others have no key
    var top = vec4<f32>(LOWEST);
    var sum = vec4<f32>();
#for p in 0..4
#for g in 0..column_groups
    var y{{p}}_{{g}} = vec4<f32>();
#endfor
#endfor
    for (var other0 = low; other0 < high; other0 += OTHER_ROWS) {
        let products = dot_q_k(thread, own0, other0);
        var peak = top;
#for k in 0..4
        let m{{k}} = masked(products.s{{k}}, mine, vec4<u32>(other0 + j + {{k}}u * LANES));
        let score{{k}} = select(vec4<f32>(LOWEST), m{{k}}.value, m{{k}}.seen);
        peak = max4_f32(peak, score{{k}});
#endfor
        workgroupBarrier();
        pool[thread] = peak;
        workgroupBarrier();
        for (var l = 0u; l < lanes; l += 1u) { peak = max4_f32(peak, pool[i * LANES + l]); }
        let shrink = exp4_f32(top - peak);
        top = peak;
        sum = sum * shrink;
#for k in 0..4
        let w{{k}} = select(vec4<f32>(), exp4_f32(score{{k}} - peak), m{{k}}.seen);
        sum += w{{k}};
        weights[(j + {{k}}u * LANES) * OWN_PITCH + i] = w{{k}};
#endfor
#for p in 0..4
#for g in 0..column_groups
        y{{p}}_{{g}} = y{{p}}_{{g}} * shrink[{{p}}];
#endfor
#endfor
        let rows = min(OTHER_ROWS, high - other0);
        for (var r0 = 0u; r0 < rows; r0 += STEP) {
            workgroupBarrier();
            fetch_v(thread, other0 + r0);
            workgroupBarrier();
            if atomicLoad(&special) == 0u {
                for (var s = 0u; s < PART_STEP; s += 1u) {
                    let r = part * PART_STEP + s;
                    let w = weights[(r0 + r) * OWN_PITCH + i];
#for g in 0..column_groups
                    let v{{g}} = pool[r * WIDE + lane + {{g}}u * COLUMN_LANES];
#endfor
#for p in 0..4
#for g in 0..column_groups
                    y{{p}}_{{g}} += w[{{p}}] * v{{g}};
#endfor
#endfor
                }
            } else {
                for (var s = 0u; s < PART_STEP; s += 1u) {
                    let r = part * PART_STEP + s;
                    let w = weights[(r0 + r) * OWN_PITCH + i];
#for g in 0..column_groups
                    let v{{g}} = pool[r * WIDE + lane + {{g}}u * COLUMN_LANES];
#endfor
#for p in 0..4
                    if !(w[{{p}}] == 0.0f) {
#for g in 0..column_groups
                        y{{p}}_{{g}} += w[{{p}}] * v{{g}};
#endfor
                    }
#endfor
                }
            }
        }
    }
    workgroupBarrier();
    pool[thread] = sum;
    workgroupBarrier();
    sum = vec4<f32>();
    for (var l = 0u; l < lanes; l += 1u) { sum += pool[i * LANES + l]; }
#if parts
#for g in 0..column_groups
    workgroupBarrier();
#for p in 0..4
    weights[{{p}}u * THREADS + thread] = y{{p}}_{{g}};
#endfor
    workgroupBarrier();
    for (var t = 1u; t < PARTS; t += 1u) {
        let other = i * LANES + (part + t) % PARTS * COLUMN_LANES + lane;
#for p in 0..4
        y{{p}}_{{g}} += weights[{{p}}u * THREADS + other];
#endfor
    }
#endfor
#endif
    let rows = params.batches * params.queries;
#for p in 0..4
    if part == 0u && own0 + i + {{p}}u * OWN < params.queries {
        let row = split * rows + batch * params.queries + own0 + i + {{p}}u * OWN;
        let inverse = select(1.0f / sum[{{p}}], 0.0f, sum[{{p}}] == 0.0f);
#for g in 0..column_groups
        let c{{g}} = 4u * (lane + {{g}}u * COLUMN_LANES);
        let r{{g}} = y{{p}}_{{g}} * inverse;
#if packed
        if c{{g}} < params.value_size { store_y((row * params.value_size + c{{g}}) >> 2u, r{{g}}); }
#else
#for l in 0..4
        if c{{g}} + {{l}}u < params.value_size {
            y[row * params.value_size + c{{g}} + {{l}}u] = r{{g}}[{{l}}];
        }
#endfor
#endif
#endfor
    }
#endfor
    if part == 0u && lane < 4u && own0 + i + lane * OWN < params.queries {
        // NOTE: `!=` is false for NaN.
        let value = select(top[lane] + log_f32(sum[lane]), -inf_f32(), sum[lane] == 0.0f);
        lse[split * rows + batch * params.queries + own0 + i + lane * OWN] = value;
    }
}
