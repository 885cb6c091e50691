// One kernel on many small tensors: y_p[i] = compute(a_p[i], b_p[i], ..) for each piece p.
//
// Naive, one launch of elementwise.wgsl for each tensor: a bias of 128 elements costs as much as a
// weight of 100,000, and an optimizer has one update for each parameter. Here the workgroups of a
// launch are dealt out to the pieces one after another, and each thread computes a group of neighbours
// as there. All results go into one buffer, each into a separate part, so that the next launch
// that reads them binds one buffer for all: of an optimizer's step only the gradients are apart.
// An input that is in one buffer for all pieces is read by an offset, others by the piece's number.
// The piece follows from the workgroup's number, so all threads of it take the same way.
//
// Arithmetic intensity: the kernel's; Adam has 14 flops for 28 bytes: bound by memory, 80 % of peak
// bandwidth is expected from 16 MiB together on; below, launches are what counts: one instead of
// one a parameter. Registers: a group of elements of each input and each output, one offset of
// each, and the kernel's. No workgroup memory.
{{params}}
{{bindings}}
{{compute}}
const THREADS = {{threads}}u;

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) workgroup: vec3<u32>,
    @builtin(num_workgroups) workgroups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let group = workgroup.y * workgroups.x + workgroup.x;
    var piece = 0u;
    var first = params.first_0;
    var end = params.groups_0;
#for k in 0..inputs
    var offset{{k}} = params.offset_{{k}}_0;
#endfor
#for k in 0..outputs
    var into{{k}} = params.into_{{k}}_0;
#endfor
#for p in 1..pieces
    if group >= params.first_{{p}} {
        piece = {{p}}u;
        first = params.first_{{p}};
        end = params.groups_{{p}};
#for k in 0..inputs
        offset{{k}} = params.offset_{{k}}_{{p}};
#endfor
#for k in 0..outputs
        into{{k}} = params.into_{{k}}_{{p}};
#endfor
    }
#endfor
    let t = (group - first) * THREADS + thread;
    if t >= end { return; }
{{loads}}
#for lane in 0..lanes
    let y{{lane}} = compute({{arguments[lane]}});
#endfor
{{stores}}
}
