// The addresses of one element in several views that share a shape, counted in row-major order.
//
// Naive: for axis in (0..axes).rev() { address += number % size[axis] * stride[axis]; number /=
// size[axis]; } The loop is unrolled, and the views share its divisions. Strides are words modulo
// 2^32, so negative ones are right, too.
struct {{type}} {
#for v in 0..count
    {{views[v]}}: u32,
#endfor
}
fn {{name}}_addresses(number: u32) -> {{type}} {
#for v in 0..count
    var {{views[v]}} = {{starts[v]}};
#endfor
    var rest = number;
#for axis in reversed 1..axes
    {
        let parts = divide_u32(rest, params.{{prefix}}sizes_{{axis}});
#for v in 0..count
        {{views[v]}} += parts.y * params.{{views[v]}}_{{prefix}}strides_{{axis}};
#endfor
        rest = parts.x;
    }
#endfor
#if has_axes
#for v in 0..count
    {{views[v]}} += rest * params.{{views[v]}}_{{prefix}}strides_0;
#endfor
#endif
    return {{type}}({{arguments}});
}
