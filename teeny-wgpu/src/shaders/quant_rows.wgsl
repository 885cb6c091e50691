// y[i, k] = weight(index[i], k) by rows of one type of a quantised weight: one thread for four k.
// Indices outside the axis give 0 and are noted. A weight of several types has a launch for each;
// indices of rows of other types are left to these.
{{params}}
@group(0) @binding(0) var<storage, read> blocks: array<u32>;
@group(0) @binding(1) var<storage, read> index: array<{{index_word}}>;
@group(0) @binding(2) var<storage, read_write> y: array<vec4<f32>>;

const THREADS = {{threads}}u;

{{accessors}}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.quads { return; }
    let quads = params.sub_blocks * 8u; // of a row
    let place = n / quads;
    let row = axis_position(load_index(element_addresses(place).index), place);
    if row.found {
        let s = n % quads / 8u;
        let at = params.start + (row.at / 16u * (params.sub_blocks / SUBS) + s / SUBS) * BLOCK;
        let scale = scale(at, s % SUBS, row.at % 16u);
        y[n] = scale.x * integers(at, s % SUBS, n % 8u, row.at % 16u) + scale.y;
    } else if params.is_first != 0u {
        y[n] = vec4<f32>();
    }
}
