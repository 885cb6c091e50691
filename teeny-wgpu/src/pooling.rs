//! Max-pooling: a thread per window looks through it once, for the value and its position. Averages
//! and the gradients are reductions and scatters, which the definitions in core make of this
//! engine's kernels.

use crate::device::{Launch, Wgpu};
use crate::generator::{self, types};
use crate::params::Params;
use crate::pipeline::{Key, Program};
use crate::walk::Walk;
use crate::wide;
use std::fmt::Write;
use teeny_core::{DType, Result, StorageRef, Tensor, Window, validate};

const THREADS: usize = 64;
/// Words 0..: windows, windows of an image, offset of x.
const HEAD: usize = 3;
/// Lists of one word per spatial axis: sizes of x, of the result, of the window, stride, padding,
/// dilation, strides of x.
const LISTS: usize = 7;

/// The shader over `ndim` spatial axes, with `rank` axes of images.
pub(crate) fn wgsl(rank: usize, ndim: usize, dtype: DType) -> String {
    let wide_type = wide::wide(dtype);
    let value = types::value(wide_type);
    let list = |list: usize, axis: usize| generator::param(HEAD + list * ndim + axis);
    let images = HEAD + LISTS * ndim;
    let mut text = generator::params_declaration();
    text.push_str(&wide::input(0, "source", dtype));
    text.push_str(&wide::output(1, "out", dtype));
    text.push_str("@group(0) @binding(2) var<storage, read_write> places: array<i32>;\n");
    text.push_str(&wide::main(THREADS));
    let _ = writeln!(
        text,
        "    let n = unit * {THREADS}u + thread;\n    if n >= {} {{ return; }}",
        generator::param(0)
    );
    let _ =
        writeln!(text, "    let image = n / {0};\n    var left = n % {0};", generator::param(1));
    text.push_str(&wide::addresses(
        rank,
        "image",
        images,
        &[("a".to_string(), generator::param(2), images + rank)],
    ));
    for axis in (0..ndim).rev() {
        let _ = writeln!(
            text,
            "    let start{axis} = i32(left % {0} * {1}) - i32({2});\n    left = left / {0};",
            list(1, axis),
            list(3, axis),
            list(4, axis)
        );
    }
    // A window of padding alone: the lowest value of the type, and no place.
    let lowest = match dtype {
        DType::I8 => "-128i",
        DType::I16 => "-32768i",
        _ => wide::extreme(dtype, false),
    };
    let _ = writeln!(text, "    var best: {value} = {lowest};\n    var place = -1;");
    for axis in 0..ndim {
        let _ = writeln!(
            text,
            "    for (var k{axis} = 0u; k{axis} < {}; k{axis} += 1u) {{\n    let h{axis} = start{axis} + i32(k{axis} * {});\n    \
             if h{axis} < 0 || h{axis} >= i32({}) {{ continue; }}",
            list(2, axis),
            list(5, axis),
            list(0, axis)
        );
    }
    let address =
        (0..ndim).map(|axis| format!(" + u32(h{axis}) * {}", list(6, axis))).collect::<String>();
    let flat = (0..ndim).fold("0u".to_string(), |flat, axis| {
        format!("({flat} * {} + u32(h{axis}))", list(0, axis))
    });
    // The first largest and the first NaN win.
    let better = match wide_type.is_float() {
        true => format!("(v > best || (is_nan_{value}(v) && !is_nan_{value}(best)))"),
        false => "v > best".to_string(),
    };
    let load = wide::widened(dtype, &types::load(dtype, "source", "p"));
    let _ = writeln!(
        text,
        "    let p = a{address};\n    let v = {load};\n    if place < 0 || {better} {{ best = v; place = i32({flat}); }}"
    );
    text.push_str(&"    }\n".repeat(ndim));
    let nothing = generator::scalar_param(images + 2 * rank, wide_type);
    let _ = writeln!(text, "    if place < 0 {{ best = {nothing}; }}");
    text.push_str("    out[n] = best;\n    places[n] = place;\n}\n");
    text
}

/// True if signed numbers of a shader reach all places of an axis of `size` elements with its
/// padding, and the parts of a kernel of `kernel` elements.
pub(crate) fn countable(size: usize, kernel: usize, window: &Window, axis: usize) -> bool {
    let padded = window.padding[axis].saturating_mul(2).saturating_add(size);
    let reach = window.dilation[axis].saturating_mul(kernel.saturating_sub(1));
    padded.saturating_add(reach).max(window.stride[axis]) <= i32::MAX as usize
}

impl Wgpu {
    /// The largest element of every window and its position, or nothing if some tensor is too large
    /// for a kernel.
    pub(crate) fn largest(
        &self,
        x: &Tensor,
        size: &[usize],
        window: &Window,
    ) -> Result<Option<(StorageRef, StorageRef)>> {
        let (dtype, ndim) = (x.dtype(), size.len());
        self.require(dtype, "max_pool")?;
        let lead = x.ndim() - ndim;
        let spatial = &x.shape()[lead..];
        let shape = validate::pool_shape(x.shape(), size, window)?;
        let counts = &shape[lead..];
        let (images, windows): (usize, usize) =
            (x.shape()[..lead].iter().product(), counts.iter().product());
        if self.hides(&[x]) {
            return self.largest(&self.seen(x)?, size, window);
        }
        let reachable = (0..ndim).all(|axis| countable(spatial[axis], size[axis], window, axis));
        if self.is_large(x) || self.exceeds(shape.numel(), wide::wide(dtype)) || !reachable {
            return Ok(None);
        }
        let _work = self.describe(&[x], &shape, dtype, 0);
        let (values, places) = (
            self.allocate(images * windows, wide::wide(dtype))?,
            self.allocate(images * windows, DType::I32)?,
        );
        if images * windows > 0 {
            let leading: Vec<usize> = (0..lead).collect();
            let walk = Walk::over(x.shape(), &[x.layout()], &leading)?.padded();
            let mut slot = Params::new();
            slot.counts(&[images * windows, windows, x.layout().offset()]);
            for list in [spatial, counts, size, &window.stride, &window.padding, &window.dilation] {
                slot.counts(list);
            }
            slot.strides(&x.strides()[lead..]);
            slot.counts(&walk.sizes);
            slot.strides(&walk.strides[0]);
            slot.scalar(wide::worst(dtype, false), wide::wide(dtype));
            let rank = walk.sizes.len();
            self.dispatch(&Launch {
                program: Program {
                    key: Key::new("max_pool", [rank as u32, ndim as u32, dtype as u32]),
                    wgsl: &|| Ok(wgsl(rank, ndim, dtype)),
                },
                inputs: &[self.part(x)?],
                outputs: &[self.whole(&values)?, self.whole(&places)?],
                params: &slot,
                groups: self.fold((images * windows).div_ceil(THREADS) as u64)?,
            })?;
        }
        Ok(Some((self.narrow(values, dtype, x)?, places)))
    }
}
