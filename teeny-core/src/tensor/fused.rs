//! Operations that are one kernel, or that a device may carry out in one pass: `map`, `map_sum`, softmax, convolution, pooling.

use super::{Tensor, broadcast_shape, on_one_device, pair, run, run_one};
use crate::context::enter;
use crate::device::{ReduceOp, Window};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::build::{Builder, Expr};
use crate::layout::Layout;
use crate::shape::{IntoAxes, Shape};
use std::sync::Arc;

/// Your own elementwise operation: one kernel, one pass over memory, on every device, forward and backward.
///
/// The inputs broadcast to one shape. The kernel is built at each call (about a microsecond); a loop that runs the same one many times can keep it:
/// [`crate::Kernel::build`].
///
/// # Errors
/// If the shapes do not broadcast or an operation does not accept its types.
///
/// # Example
/// ```
/// use teeny_core::{map, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let x = Tensor::new([[1.0f32, -2.0]], &device)?; // (1, 2)
/// let b = Tensor::new([0.5f32, 0.5], &device)?; // (2)
/// let y = map([&x, &b], |[x, b]| (x + b).relu() * 2.0)?; // (1, 2)
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 0.0]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn map<const N: usize>(inputs: [&Tensor; N], body: impl for<'b> FnOnce([Expr<'b>; N]) -> Expr<'b>) -> Result<Tensor> {
    let _op = enter("map");
    let builder = Builder::new();
    let output = body(inputs.map(|t| builder.input(t.dtype())));
    let kernel = Arc::new(builder.finish(&[output])?);
    at_least_one(N)?;
    run_one(&kernel, &inputs, &[])
}

/// [`map`] with several outputs, computed in the same pass.
#[track_caller]
pub fn map_n<const N: usize, const M: usize>(inputs: [&Tensor; N], body: impl for<'b> FnOnce([Expr<'b>; N]) -> [Expr<'b>; M]) -> Result<[Tensor; M]> {
    let _op = enter("map");
    let builder = Builder::new();
    let outputs = body(inputs.map(|t| builder.input(t.dtype())));
    let kernel = Arc::new(builder.finish(&outputs)?);
    at_least_one(N)?;
    let (storages, shape, device) = run(&kernel, &inputs, &[])?;
    let tensors: Vec<Tensor> = storages
        .into_iter()
        .enumerate()
        .map(|(i, s)| Tensor::from_parts(s, Layout::contiguous(shape), kernel.output_dtype(i), device.clone()))
        .collect();
    tensors.try_into().map_err(|_| Error::internal("a kernel gave too few outputs"))
}

/// The sum of a [`map`] over `axes`, in one pass: what is summed is never stored. Types as in [`Tensor::sum`].
///
/// # Errors
/// As [`map`]; or if an axis of the common shape does not exist or is named twice.
///
/// # Example
/// ```
/// use teeny_core::{map_sum, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?; // (2, 2)
/// let mean = x.mean_keepdim(1)?; // (2, 1)
/// let squares = map_sum([&x, &mean], 1, |[x, mean]| (x - mean).square())?; // (2)
/// assert_eq!(squares.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn map_sum<const N: usize>(inputs: [&Tensor; N], axes: impl IntoAxes, body: impl for<'b> FnOnce([Expr<'b>; N]) -> Expr<'b>) -> Result<Tensor> {
    let _op = enter("map_sum");
    let builder = Builder::new();
    let output = body(inputs.map(|t| builder.input(t.dtype())));
    let kernel = Arc::new(builder.finish(&[output.cast(output.dtype().sum_type())])?);
    at_least_one(N)?;
    let shape = broadcast_shape(&inputs)?;
    let axes = axes.axes(&shape)?;
    if axes.is_empty() {
        return run_one(&kernel, &inputs, &[]);
    }
    let (device, lifted) = on_one_device(&inputs)?;
    let expanded = lifted.iter().map(|t| t.expand_to(&shape)).collect::<Result<Vec<_>>>()?;
    let views: Vec<&Tensor> = expanded.iter().collect();
    let storage = device.reduce_kernel(&kernel, &views, &[], &shape, ReduceOp::Sum, &axes)?;
    Ok(Tensor::from_parts(storage, Layout::contiguous(shape.reduced(&axes, false)), kernel.output_dtype(0), device))
}

fn at_least_one(inputs: usize) -> Result<()> {
    if inputs > 0 { Ok(()) } else { Err(Error::value("needs at least one tensor, whose device does the work")) }
}

impl Tensor {
    /// Softmax along `axis`: `exp(x - max) / sum(exp(x - max))`.
    ///
    /// Shapes: `(.., n, ..)` → the same. Subtracting the maximum keeps `exp` finite; a row of only -inf gives NaN, as in PyTorch.
    ///
    /// # Errors
    /// If `axis` does not exist, or the type is not a float.
    ///
    /// Source: Milakov & Gimelshein 2018, arXiv:1805.02867. Equivalent: `torch.softmax(x, dim)`.
    #[track_caller]
    pub fn softmax(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("softmax");
        self.require_float()?;
        let axis = self.shape().axis(axis)?;
        Ok(self.result(self.device().softmax(self, axis)?, *self.shape(), self.dtype()))
    }

    /// `log(softmax(x))` along `axis`, without the loss of small probabilities.
    ///
    /// # Errors
    /// If `axis` does not exist, or the type is not a float.
    #[track_caller]
    pub fn log_softmax(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("log_softmax");
        self.require_float()?;
        let axis = self.shape().axis(axis)?;
        Ok(self.result(self.device().log_softmax(self, axis)?, *self.shape(), self.dtype()))
    }

    /// Convolution (cross-correlation, as in all deep learning): self (N, C_in, spatial..), `weight` (C_out, C_in / groups, kernel..) →
    /// (N, C_out, out..) with `out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1`.
    ///
    /// # Errors
    /// If numbers of axes or channels do not fit, a window is larger than the padded input, or the types are not one float type.
    ///
    /// Equivalent: `torch.nn.functional.conv2d` without bias, and its 1- and 3-dimensional forms.
    #[track_caller]
    pub fn conv(&self, weight: &Tensor, window: &Window) -> Result<Tensor> {
        let _op = enter("conv");
        let (x, w) = pair(self, weight)?;
        let dtype = x.dtype().promote(w.dtype());
        let (x, w) = (x.cast(dtype)?, w.cast(dtype)?);
        x.require_float()?;
        let shape = conv_shape(x.shape(), w.shape(), window)?;
        Ok(x.result(x.device().conv(&x, &w, window)?, shape, dtype))
    }

    /// The transposed convolution: the gradient of [`Tensor::conv`] for its input. Self (N, C_out, ..), `weight` (C_out, C_in / groups, ..) →
    /// (N, C_in, ..) of the given spatial `size`.
    ///
    /// # Errors
    /// If a convolution of that size with this window would not give self's shape.
    #[track_caller]
    pub fn conv_transpose(&self, weight: &Tensor, window: &Window, size: &[usize]) -> Result<Tensor> {
        let _op = enter("conv_transpose");
        let (g, w) = pair(self, weight)?;
        let dtype = g.dtype().promote(w.dtype());
        let (g, w) = (g.cast(dtype)?, w.cast(dtype)?);
        g.require_float()?;
        if w.ndim() < 3 || g.ndim() != w.ndim() || size.len() + 2 != w.ndim() {
            return Err(Error::shape(format!("{} , weight {} and size {size:?} do not fit each other", g.shape(), w.shape())));
        }
        let mut sizes = vec![g.shape()[0], w.shape()[1] * window.groups];
        sizes.extend_from_slice(size);
        let x_shape = Shape::new(&sizes)?;
        let back = conv_shape(&x_shape, w.shape(), window)?;
        if back != *g.shape() {
            return Err(Error::shape(format!("an input of {x_shape} would have given {back}, not {}", g.shape())));
        }
        Ok(g.result(g.device().conv_input_grad(&g, &w, window, &x_shape)?, x_shape, dtype))
    }

    /// The gradient of [`Tensor::conv`] for its weight, from the input `x` and the output's gradient self.
    ///
    /// # Errors
    /// If the shapes are not those of such a convolution.
    #[track_caller]
    pub fn conv_weight_grad(&self, x: &Tensor, window: &Window, weight_shape: &Shape) -> Result<Tensor> {
        let _op = enter("conv_weight_grad");
        let (g, x) = pair(self, x)?;
        let dtype = g.dtype().promote(x.dtype());
        let (g, x) = (g.cast(dtype)?, x.cast(dtype)?);
        let back = conv_shape(x.shape(), weight_shape, window)?;
        if back != *g.shape() {
            return Err(Error::shape(format!("{} with a weight of {weight_shape} would have given {back}, not {}", x.shape(), g.shape())));
        }
        Ok(g.result(g.device().conv_weight_grad(&g, &x, window, weight_shape)?, *weight_shape, dtype))
    }

    /// The largest element of every window of `size` over the last `size.len()` axes. Padding never wins.
    ///
    /// # Errors
    /// If there are not enough axes, a window does not fit, or padding exceeds half the window.
    ///
    /// Equivalent: `torch.nn.functional.max_pool2d`.
    #[track_caller]
    pub fn max_pool(&self, size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("max_pool");
        Ok(self.max_pool_indices(size, window)?.0)
    }

    /// [`Tensor::max_pool`] with the positions (`I32`) of the winners in the flattened spatial axes of self.
    #[track_caller]
    pub fn max_pool_indices(&self, size: &[usize], window: &Window) -> Result<(Tensor, Tensor)> {
        let _op = enter("max_pool");
        if self.dtype() == DType::Bool {
            return Err(Error::dtype("bools have no largest window"));
        }
        let shape = pool_shape(self.shape(), size, window)?;
        if let Some(axis) = (0..size.len()).find(|&i| window.padding[i] * 2 > size[i]) {
            return Err(Error::value(format!("padding {} is more than half of window {}", window.padding[axis], size[axis])));
        }
        super::index_end(self.shape()[self.ndim() - size.len()..].iter().product())?;
        let (values, positions) = self.device().max_pool(self, size, window)?;
        Ok((self.result(values, shape, self.dtype()), self.result(positions, shape, DType::I32)))
    }

    /// The mean of every window of `size` over the last `size.len()` axes; padding counts as zeros.
    ///
    /// # Errors
    /// If there are not enough axes, a window does not fit, or the type is not a float.
    ///
    /// Equivalent: `torch.nn.functional.avg_pool2d`.
    #[track_caller]
    pub fn avg_pool(&self, size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("avg_pool");
        self.require_float()?;
        let shape = pool_shape(self.shape(), size, window)?;
        Ok(self.result(self.device().avg_pool(self, size, window)?, shape, self.dtype()))
    }
}

impl Window {
    /// Windows over `ndim` spatial axes: stride 1, no padding, dilation 1, one group.
    pub fn new(ndim: usize) -> Window {
        Window { stride: vec![1; ndim], padding: vec![0; ndim], dilation: vec![1; ndim], groups: 1 }
    }

    /// The same windows `stride` apart on every axis.
    pub fn stride(mut self, stride: usize) -> Window {
        self.stride.fill(stride);
        self
    }

    /// The same windows over an input padded by `padding` on every side.
    pub fn padding(mut self, padding: usize) -> Window {
        self.padding.fill(padding);
        self
    }

    /// The same windows with `dilation` elements between neighbours.
    pub fn dilation(mut self, dilation: usize) -> Window {
        self.dilation.fill(dilation);
        self
    }

    /// The same windows with channels in `groups` independent groups.
    pub fn groups(mut self, groups: usize) -> Window {
        self.groups = groups;
        self
    }

    /// How many windows of `kernel` fit an axis of `size`, or why none does.
    fn count(&self, axis: usize, size: usize, kernel: usize) -> Result<usize> {
        if self.stride[axis] == 0 || self.dilation[axis] == 0 || kernel == 0 {
            return Err(Error::value(format!("stride {}, dilation {} and window {kernel} must not be 0", self.stride[axis], self.dilation[axis])));
        }
        let reach = self.dilation[axis] * (kernel - 1) + 1;
        let padded = size + 2 * self.padding[axis];
        if reach > padded {
            return Err(Error::shape(format!("a window of {reach} does not fit spatial axis {axis} of {size} padded to {padded}")));
        }
        Ok((padded - reach) / self.stride[axis] + 1)
    }

    fn require_ndim(&self, ndim: usize) -> Result<()> {
        if self.stride.len() == ndim && self.padding.len() == ndim && self.dilation.len() == ndim {
            return Ok(());
        }
        Err(Error::value(format!(
            "the window describes {} axes (stride), {} (padding), {} (dilation), not {ndim}",
            self.stride.len(),
            self.padding.len(),
            self.dilation.len()
        )))
    }
}

/// The shape of a convolution's output.
pub(crate) fn conv_shape(x: &Shape, weight: &Shape, window: &Window) -> Result<Shape> {
    let ndim = weight.ndim().saturating_sub(2);
    if ndim == 0 || x.ndim() != weight.ndim() {
        return Err(Error::shape(format!("input {x} and weight {weight} do not fit: (N, C_in, spatial..) meets (C_out, C_in / groups, kernel..)"))
            .hint("both need the same number of axes, at least 3"));
    }
    window.require_ndim(ndim)?;
    let groups = window.groups;
    if groups == 0 || !x[1].is_multiple_of(groups) || !weight[0].is_multiple_of(groups) || weight[1] != x[1] / groups {
        return Err(Error::shape(format!("input {x} has {} channels; weight {weight} with {groups} groups takes {}", x[1], weight[1] * groups)));
    }
    let mut sizes = vec![x[0], weight[0]];
    for axis in 0..ndim {
        sizes.push(window.count(axis, x[axis + 2], weight[axis + 2])?);
    }
    Shape::new(&sizes)
}

/// The shape of a pooling's output.
pub(crate) fn pool_shape(x: &Shape, size: &[usize], window: &Window) -> Result<Shape> {
    let ndim = size.len();
    if ndim == 0 || x.ndim() < ndim {
        return Err(Error::shape(format!("windows of {size:?} over the last {ndim} axes of {x}")));
    }
    window.require_ndim(ndim)?;
    let lead = x.ndim() - ndim;
    let mut sizes = x[..lead].to_vec();
    for axis in 0..ndim {
        sizes.push(window.count(axis, x[lead + axis], size[axis])?);
    }
    Shape::new(&sizes)
}
