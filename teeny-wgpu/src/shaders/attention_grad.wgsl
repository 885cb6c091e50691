// The gradients of attention, with the weights computed again from the logsumexp of each query:
//     w = exp(score - lse)          slope = w (g v' - sum(g y)) scale
//     queries   dq += slope k                   own queries, past the keys
//     keys      dk += slope' q, dv += w' g      own keys, past the queries
// Two kernels instead of one with atomic additions: the scores are computed twice, and each result
// is summed by one thread in a fixed order. `stats` are the logsumexp and sum(g y) of every query.
//
// Arithmetic intensity, heads of 64 columns, tall: queries 64 x 32 x 192 products per tile for 224
// rows of 256 bytes, 14 flops a byte of cache; keys 64 x 32 x 256 for 288 rows, 14. Registers: 32
// accumulators for queries, 64 for keys, 32 scores. Expected 30 to 45 % of the f32 peak.
{{params}}
@group(0) @binding(0) var<storage, read> q: array<{{q_word}}>;
@group(0) @binding(1) var<storage, read> k: array<{{k_word}}>;
@group(0) @binding(2) var<storage, read> v: array<{{v_word}}>;
@group(0) @binding(3) var<storage, read> g: array<{{g_word}}>;
@group(0) @binding(4) var<storage, read> mask: array<u32>; // bytes or numbers: see mask_kind
@group(0) @binding(5) var<storage, read> stats: array<f32>;
#for n in 0..results
@group(0) @binding({{6 + n}}) var<storage, read_write> {{result_names[n]}}: array<{{result_word}}>;
#endfor

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let batch = unit / params.tiles;
    if batch >= params.batches { return; }
    let own0 = (unit % params.tiles) * OWN_ROWS;
    i = thread / LANES;
    j = thread % LANES;
    let lane = j % COLUMN_LANES;
    let part = j / COLUMN_LANES;
    base = batch_addresses(batch);
    let queries = params.batches * params.queries;
    let mine = vec4<u32>(own0 + i) + vec4<u32>(0u, OWN, 2u * OWN, 3u * OWN);
    // The rows of the other side that any own row meets.
    let offset = i32(params.offset);
    let window = i32(params.window);
#if keys
    let low = u32(max(i32(own0) - offset, 0)) / OTHER_ROWS * OTHER_ROWS;
    let high = min(u32(max(i32(own0 + OWN_ROWS - 1u) - offset + window, 0)), params.queries);
#else
    let low = u32(max(i32(own0) + offset - window + 1, 0)) / OTHER_ROWS * OTHER_ROWS;
    let high = min(u32(max(i32(own0 + OWN_ROWS) + offset, 0)), params.keys);
    var lse = vec4<f32>();
    var along = vec4<f32>();
#for p in 0..4
    if own0 + i + {{p}}u * OWN < params.queries {
        let at = batch * params.queries + own0 + i + {{p}}u * OWN;
        lse[{{p}}] = stats[at];
        along[{{p}}] = stats[queries + at];
    }
#endfor
#endif
#for n in 0..results
#for p in 0..4
#for c in 0..column_groups
    var {{result_names[n]}}{{p}}_{{c}} = vec4<f32>();
#endfor
#endfor
#endfor
    for (var other0 = low; other0 < high; other0 += OTHER_ROWS) {
#if keys
        let products = dot_k_q(thread, own0, other0);
        let slopes = dot_v_g(thread, own0, other0);
#else
        let products = dot_q_k(thread, own0, other0);
        let slopes = dot_g_v(thread, own0, other0);
#endif
#for k in 0..4
        let o{{k}} = other0 + j + {{k}}u * LANES;
#if keys
        let m{{k}} = masked(products.s{{k}}, vec4<u32>(o{{k}}), mine);
        let at{{k}} = batch * params.queries + min(o{{k}}, params.queries - 1u);
        let lse{{k}} = vec4<f32>(stats[at{{k}}]);
        let along{{k}} = vec4<f32>(stats[queries + at{{k}}]);
#else
        let m{{k}} = masked(products.s{{k}}, mine, vec4<u32>(o{{k}}));
        let lse{{k}} = lse;
        let along{{k}} = along;
#endif
        let weight{{k}} = select(vec4<f32>(), exp4_f32(m{{k}}.value - lse{{k}}), m{{k}}.seen);
        let slope{{k}} = select(vec4<f32>(),
            weight{{k}} * (slopes.s{{k}} - along{{k}}) * params.scale,
            m{{k}}.seen & !(weight{{k}} == vec4<f32>()));
#endfor
        let rows = min(OTHER_ROWS, high - other0);
#for n in 0..results
        workgroupBarrier();
#for k in 0..4
        weights[(j + {{k}}u * LANES) * OWN_PITCH + i] = {{result_weights[n]}}{{k}};
#endfor
        for (var r0 = 0u; r0 < rows; r0 += STEP) {
            workgroupBarrier();
            fetch_{{result_others[n]}}(thread, other0 + r0);
            workgroupBarrier();
            if atomicLoad(&special) == 0u {
                for (var s = 0u; s < PART_STEP; s += 1u) {
                    let r = part * PART_STEP + s;
                    let w = weights[(r0 + r) * OWN_PITCH + i];
#for c in 0..column_groups
                    let v{{c}} = pool[r * WIDE + lane + {{c}}u * COLUMN_LANES];
#endfor
#for p in 0..4
#for c in 0..column_groups
                    {{result_names[n]}}{{p}}_{{c}} += w[{{p}}] * v{{c}};
#endfor
#endfor
                }
            } else {
                for (var s = 0u; s < PART_STEP; s += 1u) {
                    let r = part * PART_STEP + s;
                    let w = weights[(r0 + r) * OWN_PITCH + i];
#for c in 0..column_groups
                    let v{{c}} = pool[r * WIDE + lane + {{c}}u * COLUMN_LANES];
#endfor
#for p in 0..4
                    if !(w[{{p}}] == 0.0f) {
#for c in 0..column_groups
                        {{result_names[n]}}{{p}}_{{c}} += w[{{p}}] * v{{c}};
#endfor
                    }
#endfor
                }
            }
        }
#endfor
    }
#for n in 0..results
#if parts
#for c in 0..column_groups
    workgroupBarrier();
#for p in 0..4
    weights[{{p}}u * THREADS + thread] = {{result_names[n]}}{{p}}_{{c}};
#endfor
    workgroupBarrier();
    for (var t = 1u; t < PARTS; t += 1u) {
        let other = i * LANES + (part + t) % PARTS * COLUMN_LANES + lane;
#for p in 0..4
        {{result_names[n]}}{{p}}_{{c}} += weights[{{p}}u * THREADS + other];
#endfor
    }
#endfor
#endif
#for p in 0..4
    if part == 0u && own0 + i + {{p}}u * OWN < params.{{result_rows[n]}} {
        let start = (batch * params.{{result_rows[n]}} + own0 + i + {{p}}u * OWN)
            * params.{{result_columns[n]}};
#for c in 0..column_groups
        let c{{c}} = 4u * (lane + {{c}}u * COLUMN_LANES);
#if packed
        if c{{c}} < params.{{result_columns[n]}} {
            store_{{result_names[n]}}((start + c{{c}}) >> 2u, {{result_names[n]}}{{p}}_{{c}});
        }
#else
#for l in 0..4
        if c{{c}} + {{l}}u < params.{{result_columns[n]}} {
            {{result_names[n]}}[start + c{{c}} + {{l}}u] = {{result_names[n]}}{{p}}_{{c}}[{{l}}];
        }
#endfor
#endif
#endfor
    }
#endfor
#endfor
}
