// The gradients of attention, with the weights computed again from the logsumexp of each query:
//     w = exp(score - lse)          slope = w (g v' - sum(g y)) scale
//     queries   dq += slope k                   own 16 queries, past the keys
//     keys      dk += slope' q, dv += w' g      own 16 keys, past the queries
// Each result is summed by one thread in a fixed order. `stats` are the logsumexp and sum(g y) of
// every query.
{{params}}
@group(0) @binding(0) var<storage, read> q: array<{{q_word}}>;
@group(0) @binding(1) var<storage, read> k: array<{{k_word}}>;
@group(0) @binding(2) var<storage, read> v: array<{{v_word}}>;
@group(0) @binding(3) var<storage, read> g: array<{{g_word}}>;
@group(0) @binding(4) var<storage, read> mask: array<u32>; // bytes or numbers: see mask_kind
@group(0) @binding(5) var<storage, read> stats: array<f32>;
#if keys
@group(0) @binding(6) var<storage, read_write> dk: array<f32>;
@group(0) @binding(7) var<storage, read_write> dv: array<f32>;
#else
@group(0) @binding(6) var<storage, read_write> dq: array<f32>;
#endif

{{accessors}}

var<workgroup> slopes: array<f32, ROWS * WEIGHT_PITCH>;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let unit = group.y * groups.x + group.x;
    let batch = unit / params.tiles;
    if batch >= params.batches { return; }
    let own0 = (unit % params.tiles) * ROWS;
    i = thread / ROWS;
    j = thread % ROWS;
    base = batch_addresses(batch);
    // The rows of the other side that any own row meets.
    let offset = i32(params.offset);
    let window = i32(params.window);
#if keys
    let low = u32(max(i32(own0) - offset, 0)) / ROWS * ROWS;
    let high = min(u32(max(i32(own0 + ROWS - 1u) - offset + window, 0)), params.queries);
#else
    let low = u32(max(i32(own0) + offset - window + 1, 0)) / ROWS * ROWS;
    let high = min(u32(max(i32(own0 + ROWS) + offset, 0)), params.keys);
#endif
#for n in 0..results
#for c in 0..column_groups
#for p in 0..4
    var {{result_names[n]}}{{c}}_{{p}} = 0.0f;
#endfor
#endfor
#endfor
    for (var other0 = low; other0 < high; other0 += ROWS) {
#if keys
        let t = other0 + j;
        let score = masked(dot_k_q(thread, own0, other0), t, own0 + i);
        let d = dot_v_g(thread, own0, other0);
#else
        let t = own0 + i;
        let score = masked(dot_q_k(thread, own0, other0), t, other0 + j);
        let d = dot_g_v(thread, own0, other0);
#endif
        var weight = 0.0f;
        var slope = 0.0f;
        if score.seen {
            let at = batch * params.queries + t;
            weight = exp_f32(score.value - stats[at]);
            slope = weight * (d - stats[params.batches * params.queries + at]) * params.scale;
        }
        workgroupBarrier();
        weights[i * WEIGHT_PITCH + j] = weight;
        slopes[i * WEIGHT_PITCH + j] = slope;
        workgroupBarrier();
#for n in 0..results
#for c in 0..column_groups
        workgroupBarrier();
        fetch_other_{{result_others[n]}}(thread, other0, {{c}}u * WIDTH);
        workgroupBarrier();
        for (var r = 0u; r < ROWS; r += 1u) {
            let w = {{result_weights[n]}}[i * WEIGHT_PITCH + r];
#for p in 0..4
            {{result_names[n]}}{{c}}_{{p}} += w * other_tile[r * PITCH + j + {{p}}u * ROWS];
#endfor
        }
#endfor
#endfor
    }
#for n in 0..results
    if own0 + i < params.{{result_rows[n]}} {
        let start = (batch * params.{{result_rows[n]}} + own0 + i) * params.{{result_columns[n]}};
#for c in 0..column_groups
#for p in 0..4
        if j + {{c * width + p * rows}}u < params.{{result_columns[n]}} {
            let column = j + {{c * width + p * rows}}u;
            {{result_names[n]}}[start + column] = {{result_names[n]}}{{c}}_{{p}};
        }
#endfor
#endfor
    }
#endfor
}
