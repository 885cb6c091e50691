// Tensors one after another along an axis, in one launch.
//
// Naive, by the definition: zeros, and a copy into them for each tensor. Here a thread writes four
// neighbours of the result, which are whole words of every type. Their coordinates follow from
// their number, the tensor from the coordinate along the axis: a comparison with the end of each
// tensor. Each tensor is read by its own strides, so that no view is copied first; the offset of a
// tensor has the elements before its start subtracted, so the coordinate needs no correction.
// Bits are moved as integers of the element's width; 64-bit elements are an inner axis of two words.
//
// Arithmetic intensity: none; 8 bytes moved for each word. Bound by memory where rows of the result
// are longer than a cache line, 60 to 80 % of peak bandwidth is expected; by index arithmetic (AXES
// divisions an element) for short rows. Registers: 4 elements, their coordinates (AXES words at a
// time) and an address. No workgroup memory.
{{params}}
{{bindings}}
const THREADS = {{threads}}u;

fn element(index: u32) -> u32 {
    var rest = index;
#for axis in reversed 1..axes
    let d{{axis}} = divide_u32(rest, params.sizes_{{axis}});
    let c{{axis}} = d{{axis}}.y;
    rest = d{{axis}}.x;
#endfor
    let c0 = rest;
    let along = c{{axis_of_cat}};
{{branches}}
}

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let t = (group.y * groups.x + group.x) * THREADS + thread;
    if t >= (params.elements + 3u) / 4u { return; }
#for lane in 0..4
    let y{{lane}} = element(min(t * 4u + {{lane}}u, params.elements - 1u));
#endfor
    {{store}}
}
