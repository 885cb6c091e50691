// A kernel at every index of a range: y[i] = compute(a[i], b[i], ..).
//
// Naive, one thread per element. Here a thread computes four neighbours, so that it writes whole
// 32-bit words whatever the type and reads row-major inputs as vectors; or eight, by 64-bit words,
// where a load costs the same however wide it is. `compute`, the loads by the access class of each
// input and the stores are generated; the tail of a range is computed twice instead of being tested
// lane by lane.
{{params}}
{{bindings}}
{{compute}}
const THREADS = {{threads}}u;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let t = (group.y * groups.x + group.x) * THREADS + thread;
    if t >= (params.end - params.start + {{lanes - 1}}u) / {{lanes}}u { return; }
    let i0 = params.start + t * {{lanes}}u;
#for lane in 1..lanes
    let i{{lane}} = min(i0 + {{lane}}u, params.end - 1u);
#endfor
#if strided
    // Coordinates, for inputs that are found by them.
#for lane in 0..found
    var r{{lane}} = i{{lane}};
#for axis in reversed 1..axes
    let d{{axis}}_{{lane}} = divide_u32(r{{lane}}, params.sizes_{{axis}});
    let c{{axis}}_{{lane}} = d{{axis}}_{{lane}}.y;
    r{{lane}} = d{{axis}}_{{lane}}.x;
#endfor
    let c0_{{lane}} = r{{lane}};
#endfor
#endif
{{loads}}
#for lane in 0..lanes
    let y{{lane}} = compute({{arguments[lane]}});
#endfor
{{stores}}
}
