// The last step of a sorted scatter: each element of the result goes through its sources, which are
// neighbours in sorted order. The work is near linear in sources and elements, for all indices.
{{params}}
@group(0) @binding(0) var<storage, read> x: array<{{x_word}}>;
@group(0) @binding(1) var<storage, read> src: array<{{src_word}}>;
@group(0) @binding(2) var<storage, read> order: array<u32>;  // the source that each key is of
@group(0) @binding(3) var<storage, read> bounds: array<u32>; // of the sources of each place
#if has_runs
@group(0) @binding(4) var<storage, read> runs: array<Value>; // combined by scatter_runs.wgsl
@group(0) @binding(5) var<storage, read_write> out: array<Value>;
#else
@group(0) @binding(4) var<storage, read_write> out: array<Value>;
#endif

alias Value = {{value}};
const THREADS = {{threads}}u;
const RUN = {{run}}u;

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
    let at = element_addresses(n);
    var value = load_x(at.x);
    if covered(n) {
        let first = at.key / params.range_length * params.sources;
        let end = bounds[at.key + 1u];
        var j = bounds[at.key];
#if only_last
        if j < end {
            value = load_src(at.src + (order[end - 1u] - first) * params.src_step);
        }
#else
        while j < end {
#if has_runs
            if j % RUN == 0u && end - j >= RUN {
                value = update(value, runs[j / RUN * params.columns + at.column]);
                j += RUN;
                continue;
            }
#endif
            value = update(value, load_src(at.src + (order[j] - first) * params.src_step));
            j += 1u;
        }
#endif
    }
    out[n] = value;
}
