// The end of a product: a kernel at each result while that is in a register, instead of
//     out[place] = v          and, in another launch,          y[i] = compute(out[i], x1[i], ..)
// which writes the product to memory and reads it again: 8 bytes a result less. `place` is the
// number of the result in row-major order; the other inputs are read through any strides, by its
// coordinates. A product of less than 32 bits is rounded to its type first, as if it were stored.
//
// Arithmetic intensity: the product's, with the traffic of the other inputs and the outputs instead
// of the result's. Registers: the coordinates and the kernel's. No workgroup memory.
{{bindings}}
{{compute}}
fn results_at(place: u32, product: {{value}}) -> Values {
#if strided
    var rest = place;
#for axis in reversed 1..axes
    let d{{axis}} = divide_u32(rest, params.after_sizes_{{axis}});
    let c{{axis}} = d{{axis}}.y;
    rest = d{{axis}}.x;
#endfor
    let c0 = rest;
#endif
{{loads}}
    return compute({{arguments}});
}

#if pairs
// Two neighbours, from an even place on: 16-bit floats are written in their type.
fn store_pair(place: u32, products: vec2<{{value}}>) {
    let y = results_at(place, products.x);
    let next = results_at(place + 1u, products.y);
{{stores}}
}
#else
fn store(place: u32, product: {{value}}) {
    let y = results_at(place, product);
{{stores}}
}
#endif
