// The operands of a convolution as a matrix product, read straight out of the images: no patch is
// stored. For matmul_tiled.wgsl and conv_direct.wgsl.
//
// Naive forward, with input pixel h = place * stride + tap * dilation - padding:
//     y[image, row, place] = sum of weight[row, channel, tap] x[image, channel, h]
//
//                   row       column               k                    lhs      rhs
//     forward       C_out/G   (image, place)       (C_in/G, tap)        weight   x
//     input grad    C_in/G    (image, pixel)       (C_out/G, tap)       weight   g
//     weight grad   C_out/G   (C_in/G, tap)        (image, place)       g        x
//
// A column and a k are decomposed once; together they name an element of the right operand: its
// address is column.base + k.right plus a step per spatial axis, if the pixel is inside.
struct Column {
    base: u32,
#for axis in 0..ndim
    at{{axis}}: i32,
#endfor
}

struct Inner {
    left: u32,
    right: u32,
#for axis in 0..ndim
    at{{axis}}: i32,
#endfor
}

var<private> channel_group: u32;

fn column_of(column: u32) -> Column {
    var rest = column;
#for axis in reversed 0..ndim
    let d{{axis}} = divide_u32(rest, params.{{column_sizes}}_{{axis}});
    let i{{axis}} = d{{axis}}.y;
    rest = d{{axis}}.x;
#endfor
    var c: Column;
#if weight_grad
    c.base = params.rhs_offset + (channel_group * params.in_channels + rest) * params.rhs_strides_1;
#else
    c.base = params.rhs_offset + rest * params.rhs_strides_0;
#endif
#for axis in 0..ndim
#if forward
    c.at{{axis}} = i32(i{{axis}} * params.stride_{{axis}}) - i32(params.padding_{{axis}});
#endif
#if input_grad
    c.at{{axis}} = i32(i{{axis}} + params.padding_{{axis}});
#endif
#if weight_grad
    c.at{{axis}} = i32(i{{axis}} * params.dilation_{{axis}}) - i32(params.padding_{{axis}});
#endif
#endfor
    return c;
}

fn inner_of(k: u32) -> Inner {
    var rest = k;
#for axis in reversed 0..ndim
    let d{{axis}} = divide_u32(rest, params.{{inner_sizes}}_{{axis}});
    let i{{axis}} = d{{axis}}.y;
    rest = d{{axis}}.x;
#endfor
    var inner: Inner;
#if forward
    inner.left = rest * params.lhs_strides_1;
    inner.right = (channel_group * params.in_channels + rest) * params.rhs_strides_1;
#endif
#if input_grad
    inner.left = (channel_group * params.out_channels + rest) * params.lhs_strides_0;
    inner.right = (channel_group * params.out_channels + rest) * params.rhs_strides_1;
#endif
#if weight_grad
    inner.left = rest * params.lhs_strides_0;
    inner.right = rest * params.rhs_strides_0;
#endif
#for axis in 0..ndim
    inner.left += i{{axis}} * params.lhs_strides_{{axis + 2}};
#if weight_grad
    inner.at{{axis}} = i32(i{{axis}} * params.stride_{{axis}});
#else
    inner.at{{axis}} = i32(i{{axis}} * params.dilation_{{axis}});
#endif
#endfor
    return inner;
}

fn left_at(row: u32, k: Inner) -> Value {
#if forward
    let start = (channel_group * params.out_channels + row) * params.lhs_strides_0;
#endif
#if input_grad
    let start = row * params.lhs_strides_1;
#endif
#if weight_grad
    let start = (channel_group * params.out_channels + row) * params.lhs_strides_1;
#endif
    return load_lhs(params.lhs_offset + start + k.left);
}

fn right_at(k: Inner, column: Column) -> Value {
    var p = column.base + k.right;
#for axis in 0..ndim
#if input_grad
    // A pixel meets a place only where the step between them is a whole number of strides.
    let h{{axis}} = column.at{{axis}} - k.at{{axis}};
    let q{{axis}} = divide_u32(u32(max(h{{axis}}, 0)), params.stride_{{axis}}).x;
    let whole{{axis}} = h{{axis}} >= 0 && q{{axis}} * params.stride_{{axis}} == u32(h{{axis}});
    if !whole{{axis}} || q{{axis}} >= params.y_sizes_{{axis}} {
        return {{zero}};
    }
    p += q{{axis}} * params.rhs_strides_{{axis + 2}};
#else
    let h{{axis}} = column.at{{axis}} + k.at{{axis}};
    if h{{axis}} < 0 || h{{axis}} >= i32(params.x_sizes_{{axis}}) { return {{zero}}; }
    p += u32(h{{axis}}) * params.rhs_strides_{{axis + 2}};
#endif
#endfor
    return load_rhs(p);
}

// Where a result goes: row-major weights, or images one after another with their channels in them.
#if weight_grad
fn row_part(matrix: u32, row: u32) -> u32 {
    return (matrix * params.out_channels + row) * params.n;
}
fn column_part(column: u32) -> u32 { return column; }
#else
fn image_size() -> u32 {
    var size = 1u;
#for axis in 0..ndim
    size = size * params.{{column_sizes}}_{{axis}};
#endfor
    return size;
}
fn row_part(matrix: u32, row: u32) -> u32 {
    return (matrix * params.{{row_channels}} + row) * image_size();
}
fn column_part(column: u32) -> u32 {
    let size = image_size();
    let image = divide_u32(column, size);
    return image.x * (params.matrices * params.{{row_channels}} * size) + image.y;
}
#endif
