// out[i, j, k] = x[i, index[i, j, k], k]: one thread per element of the index, or per pair of
// elements, where a word has two. Indices outside the axis give 0 and are noted; indices outside
// the range of this launch give 0.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read> index: array<{{index_word}}>;
@group(0) @binding(2) var<storage, read_write> out: array<{{out_word}}>;

const THREADS = {{threads}}u;

{{accessors}}

fn element(n: u32) -> {{value}} {
    let base = element_addresses(n);
    let position = axis_position(load_index(base.index), n);
    if !position.found { return {{zero}}; }
    return load_x(base.x + position.at * params.x_step);
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
#if pairs
    if n >= params.elements / 2u { return; }
    store_out(n, vec2<f32>(element(2u * n), element(2u * n + 1u)));
#else
    if n >= params.elements { return; }
    out[n] = element(n);
#endif
}
