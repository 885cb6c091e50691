// Scatter by looking through the sources: each element of the result goes through the indices of
// its line and takes those that name it, in order:
//     value = x[n]; for r in 0..sources { if index[r] == here { value = update(value, src[r]); } }
// No atomics on values, so every type works and the result does not depend on timing. The work is
// elements times sources: for few of them; see scatter_collect.wgsl for many.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read> index: array<{{index_word}}>;
@group(0) @binding(2) var<storage, read> src: array<{{src_word}}>;
@group(0) @binding(3) var<storage, read_write> out: array<Value>;

alias Value = {{value}};
const THREADS = {{threads}}u;

{{accessors}}

fn update(value: Value, v: Value) -> Value { return {{update}}; }

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let n = (group.y * groups.x + group.x) * THREADS + thread;
    if n >= params.elements { return; }
    var at = element_addresses(n);
    var value = load_x(at.x);
    if covered(n) {
        for (var r = 0u; r < params.sources; r++) {
            let position = axis_position(load_index(at.index), at.place);
            if position.found && position.at == at.here { value = update(value, load_src(at.src)); }
            at.index += params.index_step;
            at.src += params.src_step;
            at.place += params.place_step;
        }
    }
    out[n] = value;
}
