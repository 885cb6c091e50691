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
#if strided
    // Coordinates, for inputs that are found by them: the first lane's by division, the next ones
    // by counting on, up to the last element of the range.
    var rest = i0;
#for axis in reversed 1..axes
    let d{{axis}} = divide_u32(rest, params.sizes_{{axis}});
    let c{{axis}}_0 = d{{axis}}.y;
    rest = d{{axis}}.x;
#endfor
    let c0_0 = rest;
#for lane in 1..found
    var carry{{lane}} = i0 + {{lane}}u < params.end;
#for axis in reversed 1..axes
    let n{{axis}}_{{lane}} = c{{axis}}_{{lane - 1}} + u32(carry{{lane}});
    carry{{lane}} = n{{axis}}_{{lane}} == params.sizes_{{axis}};
    let c{{axis}}_{{lane}} = select(n{{axis}}_{{lane}}, 0u, carry{{lane}});
#endfor
    let c0_{{lane}} = c0_{{lane - 1}} + u32(carry{{lane}});
#endfor
#endif
{{loads}}
#for lane in 0..lanes
    let y{{lane}} = compute({{arguments[lane]}});
#endfor
{{stores}}
}
