//! Convolution over any number of spatial axes, its transpose, and the gradient of its weight.
//! Devices have the kernels; the definition in primitives is in [`crate::definition`].

use crate::context::enter;
use crate::error::{Error, Result};
use crate::op::{Op, Window, conv_shape, transposed_channels_error};
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::one_device::pair;

impl Tensor {
    /// Convolution (cross-correlation, as in all deep learning): self (N, C_in, spatial..),
    /// `weight` (C_out, C_in / groups, kernel..) → (N, C_out, out..) with
    /// `out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1`.
    ///
    /// Accuracy on `Cpu`: as of [`Tensor::matmul`] with a k of `C_in / groups` times the positions
    /// of a window. Windows of 3 x 3 with stride 1 in f32 go through Winograd's transforms where
    /// that is faster: their results are within 6e-4 of the output channel's largest weight times
    /// the largest `Σ |x|` over the channels of a place that the window sees; elements that a
    /// window does not see have no part in the bound. `CpuOptions::winograd` switches them off.
    ///
    /// # Errors
    /// If numbers of axes or channels do not fit, a window is larger than the padded input, or the
    /// types are not one float type.
    ///
    /// Equivalent: `torch.nn.functional.conv2d` without bias, and its 1- and 3-dimensional forms.
    #[doc(alias = "conv1d", alias = "conv2d", alias = "conv3d")]
    #[track_caller]
    pub fn conv(&self, weight: &Tensor, window: &Window) -> Result<Tensor> {
        let _op = enter("conv").on([("x", Some(self)), ("weight", Some(weight))]);
        let (x, w) = pair(self, weight)?;
        let dtype = x.dtype().promote(w.dtype());
        let (x, w) = (x.cast(dtype)?, w.cast(dtype)?);
        Op::Conv { x: &x, weight: &w, window }.tensor(x.device())
    }

    /// [`Tensor::conv`] of an input padded with zeros so that the result has its spatial size; an
    /// odd element of padding comes after.
    ///
    /// # Errors
    /// As [`Tensor::conv`]; if the stride is not 1 or the window has padding.
    ///
    /// Equivalent: `torch.nn.functional.conv2d(.., padding="same")`.
    #[doc(alias = "conv1d", alias = "conv2d", alias = "conv3d")]
    #[track_caller]
    pub fn conv_same(&self, weight: &Tensor, window: &Window) -> Result<Tensor> {
        let _op = enter("conv_same").on([("x", Some(self)), ("weight", Some(weight))]);
        let kernel = weight.shape().get(2..).unwrap_or_default();
        window.require_ndim(kernel.len())?;
        if window.stride.iter().any(|&s| s != 1) || window.padding.iter().any(|&p| p != 0) {
            return Err(Error::value(format!(
                "stride {:?} and padding {:?} cannot keep the size: the stride must be 1, \
                 the padding 0",
                window.stride, window.padding
            ))
            .help(
                "Window::new(ndim).dilation(d) does; x.conv(&weight, &window)? takes any \
                 stride and padding",
            ));
        }
        let totals: Vec<usize> = kernel
            .iter()
            .zip(&window.dilation)
            .map(|(&k, d)| d.saturating_mul(k.saturating_sub(1)))
            .collect();
        if totals.iter().all(|n| n % 2 == 0) {
            return self.conv(
                weight,
                &window.clone().padding(totals.iter().map(|n| n / 2).collect::<Vec<_>>()),
            );
        }
        let widths: Vec<(isize, isize)> =
            totals.iter().map(|&n| ((n / 2) as isize, (n - n / 2) as isize)).collect();
        self.pad(&widths, 0.0)?.conv(weight, window)
    }

    /// The transposed convolution: the gradient of [`Tensor::conv`] for its input. Self (N, C_out,
    /// ..), `weight` (C_out, C_in / groups, ..) → (N, C_in, ..) of the given spatial `size`.
    ///
    /// The sizes a convolution would shrink to self's are several where the stride is;
    /// [`Window::transposed_size`] counts them as PyTorch does: `x.conv_transpose(&w, &window,
    /// &window.transposed_size(x.shape(), w.shape(), output_padding)?)`.
    ///
    /// # Errors
    /// If a convolution of that size with this window would not give self's shape.
    ///
    /// Equivalent: `torch.nn.functional.conv_transpose2d` without bias, and its 1- and
    /// 3-dimensional forms; with the same layout of the weight.
    #[doc(alias = "conv_transpose1d", alias = "conv_transpose2d", alias = "conv_transpose3d")]
    #[track_caller]
    pub fn conv_transpose(
        &self,
        weight: &Tensor,
        window: &Window,
        size: &[usize],
    ) -> Result<Tensor> {
        let _op = enter("conv_transpose").on([("x", Some(self)), ("weight", Some(weight))]);
        let (g, w) = pair(self, weight)?;
        let dtype = g.dtype().promote(w.dtype());
        let (g, w) = (g.cast(dtype)?, w.cast(dtype)?);
        g.require_float()?;
        if w.ndim() < 3 || g.ndim() != w.ndim() || size.len() + 2 != w.ndim() {
            return Err(Error::shape(format!(
                "input {}, weight {} and size {size:?} do not \
                 fit each other",
                g.shape(),
                w.shape()
            ))
            .help(
                "input (N, C_out, ..), weight (C_out, C_in / groups, kernel..) and one \
                 size per spatial axis fit",
            ));
        }
        if g.shape()[1] != w.shape()[0] {
            return Err(transposed_channels_error(g.shape(), w.shape()));
        }
        // a size that is too large is an error of the shape
        let mut sizes = vec![g.shape()[0], w.shape()[1].saturating_mul(window.groups)];
        sizes.extend_from_slice(size);
        let x_shape = Shape::new(&sizes)?;
        let back = conv_shape(&x_shape, w.shape(), window)?;
        if back == *g.shape() {
            return Op::ConvInputGrad { g: &g, weight: &w, window, x_shape: &x_shape }
                .tensor(g.device());
        }
        // With a dilation above the stride PyTorch allows sizes that no convolution shrinks to
        // self's: slice them from the range that the windows cover.
        let whole = Window { padding: vec![0; size.len()], ..window.clone() };
        let reached = whole.transposed_size(g.shape(), w.shape(), 0)?;
        // All of these are lengths of axes, which `conv_shape` and `transposed_size` have checked.
        let after = |i: usize| (size[i] + window.padding[i]) as isize - reached[i] as isize;
        let legal = |i: usize| {
            (0..window.dilation[i] as isize).contains(&(after(i) + window.padding[i] as isize))
        };
        if !(0..size.len()).all(|i| legal(i) || back[i + 2] == g.shape()[i + 2]) {
            return Err(Error::shape(format!(
                "an input of {x_shape} would have given {back}, not {}",
                g.shape()
            ))
            .help("window.transposed_size(x.shape(), weight.shape(), 0)? gives a size that fits"));
        }
        let widths: Vec<(isize, isize)> =
            (0..size.len()).map(|i| (-(window.padding[i] as isize), after(i))).collect();
        g.conv_transpose(&w, &whole, &reached)?.pad(&widths, 0.0)
    }

    /// The gradient of [`Tensor::conv`] for its weight, from the input `x` and the output's
    /// gradient self.
    ///
    /// Accuracy on `Cpu`: as of [`Tensor::matmul`] with a k of all places of all images; where
    /// Winograd's transforms are used, another 4e-5 of the largest `Σ |g x|` among the weights of
    /// the same window.
    ///
    /// # Errors
    /// If the shapes do not fit such a convolution.
    #[track_caller]
    pub fn conv_weight_grad(
        &self,
        x: &Tensor,
        window: &Window,
        weight_shape: &Shape,
    ) -> Result<Tensor> {
        let _op = enter("conv_weight_grad").on([("g", Some(self)), ("x", Some(x))]);
        let (g, x) = pair(self, x)?;
        let dtype = g.dtype().promote(x.dtype());
        let (g, x) = (g.cast(dtype)?, x.cast(dtype)?);
        let back = conv_shape(x.shape(), weight_shape, window)?;
        if back != *g.shape() {
            return Err(Error::shape(format!(
                "{} with a weight of {weight_shape} would have \
                 given {back}, not {}",
                x.shape(),
                g.shape()
            ))
            .help(
                "pass the input and the window of the convolution that gave g, and the \
                 shape of its weight",
            ));
        }
        Op::ConvWeightGrad { g: &g, x: &x, window, weight_shape }.tensor(g.device())
    }
}
