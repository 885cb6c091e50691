// Attention without the matrix of scores (Dao 2023, arXiv:2307.08691):
//     y = softmax(scale q k' + mask) v,   lse = log(sum(exp(scores)))
//
// Naive: a row of scores per query, its softmax, its product with v. Here 16 queries pass the tiles
// of keys they see with a running maximum and sum; y is rescaled as the maximum grows:
//     peak = max(top, scores); w = exp(scores - peak); shrink = exp(top - peak)
//     sum = sum shrink + w.sum(); y = y shrink + w v; top = peak
// Tiles that no query of the workgroup sees are never visited.
{{params}}
@group(0) @binding(0) var<storage, read> q: array<{{q_word}}>;
@group(0) @binding(1) var<storage, read> k: array<{{k_word}}>;
@group(0) @binding(2) var<storage, read> v: array<{{v_word}}>;
@group(0) @binding(3) var<storage, read> mask: array<u32>; // bytes or numbers: see mask_kind
@group(0) @binding(4) var<storage, read_write> y: array<f32>;
@group(0) @binding(5) var<storage, read_write> lse: array<f32>;

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
    let own0 = (unit % params.tiles) * ROWS;
    i = thread / ROWS;
    j = thread % ROWS;
    base = batch_addresses(batch);
    // The keys that any of these queries sees.
    let offset = i32(params.offset);
    let low = u32(max(i32(own0) + offset - i32(params.window) + 1, 0)) / ROWS * ROWS;
    let high = min(u32(max(i32(own0 + ROWS) + offset, 0)), params.keys);
    var top = LOWEST;
    var sum = 0.0f;
#for g in 0..column_groups
#for p in 0..4
    var y{{g}}_{{p}} = 0.0f;
#endfor
#endfor
    for (var other0 = low; other0 < high; other0 += ROWS) {
        let score = masked(dot_q_k(thread, own0, other0), own0 + i, other0 + j);
        workgroupBarrier();
        weights[i * WEIGHT_PITCH + j] = select(LOWEST, score.value, score.seen);
        workgroupBarrier();
        var peak = top;
        for (var r = 0u; r < ROWS; r += 1u) {
            peak = max_f32(peak, weights[i * WEIGHT_PITCH + r]);
        }
        workgroupBarrier();
        weights[i * WEIGHT_PITCH + j] = select(0.0f, exp_f32(score.value - peak), score.seen);
        workgroupBarrier();
        let shrink = exp_f32(top - peak);
        var row = 0.0f;
        for (var r = 0u; r < ROWS; r += 1u) { row += weights[i * WEIGHT_PITCH + r]; }
        sum = sum * shrink + row;
        top = peak;
#for g in 0..column_groups
#for p in 0..4
        y{{g}}_{{p}} = y{{g}}_{{p}} * shrink;
#endfor
#endfor
#for g in 0..column_groups
        workgroupBarrier();
        fetch_other_v(thread, other0, {{g}}u * WIDTH);
        workgroupBarrier();
        for (var r = 0u; r < ROWS; r += 1u) {
            let w = weights[i * WEIGHT_PITCH + r];
#for p in 0..4
            y{{g}}_{{p}} += w * other_tile[r * PITCH + j + {{p}}u * ROWS];
#endfor
        }
#endfor
    }
    let inverse = select(1.0f / sum, 0.0f, sum == 0.0f);
    if own0 + i < params.queries {
        let row = batch * params.queries + own0 + i;
        let start = row * params.value_size;
#for g in 0..column_groups
#for p in 0..4
        if j + {{g * width + p * rows}}u < params.value_size {
            y[start + j + {{g * width + p * rows}}u] = y{{g}}_{{p}} * inverse;
        }
#endfor
#endfor
        if j == 0u {
            var value = -inf_f32();
            if sum != 0.0f { value = top + log_f32(sum); }
            lse[row] = value;
        }
    }
}
