//! Convolution over any number of spatial axes, its gradients, and windows as columns.

use crate::context::enter;
use crate::definition;
use crate::error::{Error, Result};
use crate::memory;
use crate::op::{Op, Window};
use crate::shape::{IntoShape, MAX_NUMEL, Shape};
use crate::tensor::{Tensor, pair};
use crate::validate::conv_shape;

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
    /// As [`Tensor::conv`]; if the stride is not 1 or the window has padding of its own.
    ///
    /// Equivalent: `torch.nn.functional.conv2d(.., padding="same")`.
    #[track_caller]
    pub fn conv_same(&self, weight: &Tensor, window: &Window) -> Result<Tensor> {
        let _op = enter("conv_same").on([("x", Some(self)), ("weight", Some(weight))]);
        let kernel = weight.shape().get(2..).unwrap_or_default();
        window.require_ndim(kernel.len())?;
        if window.stride.iter().any(|&s| s != 1) || window.padding.iter().any(|&p| p != 0) {
            return Err(Error::value(format!(
                "stride {:?} and padding {:?} cannot keep the size: the stride must be 1, the padding 0",
                window.stride, window.padding
            ))
            .help("Window::new(ndim).dilation(d) does; x.conv(&weight, &window)? takes any stride and padding"));
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
    /// [`Window::transposed_size`] counts them as PyTorch does:
    /// `x.conv_transpose(&w, &window, &window.transposed_size(x.shape(), w.shape(), output_padding)?)`.
    ///
    /// # Errors
    /// If a convolution of that size with this window would not give self's shape.
    ///
    /// Equivalent: `torch.nn.functional.conv_transpose2d` without bias, and its 1- and
    /// 3-dimensional forms; the weight is laid out alike.
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
            return Err(Error::shape(format!("input {}, weight {} and size {size:?} do not fit each other", g.shape(), w.shape()))
                .help("input (N, C_out, ..), weight (C_out, C_in / groups, kernel..) and one size per spatial axis fit"));
        }
        // too many are refused as a size
        let mut sizes = vec![g.shape()[0], w.shape()[1].saturating_mul(window.groups)];
        sizes.extend_from_slice(size);
        let x_shape = Shape::new(&sizes)?;
        let back = conv_shape(&x_shape, w.shape(), window)?;
        if back == *g.shape() {
            return Op::ConvInputGrad { g: &g, weight: &w, window, x_shape: &x_shape }
                .tensor(g.device());
        }
        // With a dilation above the stride PyTorch allows sizes that no convolution shrinks to
        // self's: cut them out of all that the windows reach.
        let whole = Window { padding: vec![0; size.len()], ..window.clone() };
        let reached = whole.transposed_size(g.shape(), w.shape(), 0)?;
        // All of these are lengths of axes, which `conv_shape` and `transposed_size` have checked.
        let after = |i: usize| (size[i] + window.padding[i]) as isize - reached[i] as isize;
        let legal = |i: usize| {
            (0..window.dilation[i] as isize).contains(&(after(i) + window.padding[i] as isize))
        };
        if back[..2] != g.shape()[..2]
            || !(0..size.len()).all(|i| legal(i) || back[i + 2] == g.shape()[i + 2])
        {
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
    /// If the shapes are not those of such a convolution.
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
            return Err(Error::shape(format!("{} with a weight of {weight_shape} would have given {back}, not {}", x.shape(), g.shape()))
                .help("pass the input and the window of the convolution that gave g, and the shape of its weight"));
        }
        Op::ConvWeightGrad { g: &g, x: &x, window, weight_shape }.tensor(g.device())
    }

    /// All windows of `size` as columns: (N, C, spatial..) → (N, C · window, places), positions in
    /// a window in row-major order behind the channel.
    ///
    /// # Errors
    /// If there are not as many spatial axes as sizes, or a window does not fit.
    ///
    /// Equivalent: `torch.nn.functional.unfold`, for any number of spatial axes.
    #[track_caller]
    pub fn im2col(&self, size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("im2col").on([("x", Some(self))]);
        let counts = windows_of(self.shape(), size, window)?;
        let padded = self.pad(&frame(window), 0)?;
        let positions = Shape::new(size)?.numel();
        let mut parts = memory::reserved(positions)?;
        for position in 0..positions {
            // (N, C, counts..)
            parts.push(definition::place(&padded, position, size, &counts, window)?);
        }
        // (N, C, window, counts..)
        let columns = Tensor::stack(&parts.iter().collect::<Vec<_>>(), 2)?;
        columns.reshape((
            self.shape()[0],
            self.shape()[1] * parts.len(),
            counts.iter().product::<usize>(),
        ))
    }

    /// Columns added back where [`Tensor::im2col`] takes them from: (N, C · window, places) → (N,
    /// C, spatial..). Where windows overlap, elements add up.
    ///
    /// # Errors
    /// If the columns are not those of an input of `spatial` sizes.
    ///
    /// Equivalent: `torch.nn.functional.fold`.
    #[track_caller]
    pub fn col2im(&self, spatial: &[usize], size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("col2im").on([("x", Some(self))]);
        let &[n, rows, places] = &self.shape()[..] else {
            return Err(Error::shape(format!(
                "columns are (N, C · window, places), not {}",
                self.shape()
            ))
            .help("x.unsqueeze(0)? adds an axis in front"));
        };
        let positions = Shape::new(size)?.numel();
        let channels = rows.checked_div(positions).unwrap_or(0);
        let shape = Shape::new(&[&[n, channels], spatial].concat())?;
        let counts = windows_of(&shape, size, window)?;
        if channels * positions != rows || counts.iter().product::<usize>() != places {
            return Err(Error::shape(format!(
                "an input of {shape} has windows {counts:?} of {positions} elements, not the columns of {}",
                self.shape()
            ))
            .help("pass the sizes and the window of the im2col that made the columns"));
        }
        let columns = self.reshape([&[n, channels, positions], &counts[..]].concat())?;
        let wide: Vec<usize> =
            spatial.iter().zip(&window.padding).map(|(n, p)| n + 2 * p).collect();
        let mut image = Tensor::zeros([&[n, channels], &wide[..]].concat(), self.dtype(), self)?;
        for position in 0..positions {
            let target = |x: &Tensor| definition::place(x, position, size, &counts, window);
            let sum = target(&image)?.add(&columns.at(2, position as isize)?)?;
            image = image.assign_view(target, &sum)?;
        }
        (0..spatial.len()).try_fold(image, |x, i| {
            x.slice(i as isize + 2, window.padding[i]..window.padding[i] + spatial[i])
        })
    }
}

/// The padding of a window as widths of a frame.
fn frame(window: &Window) -> Vec<(isize, isize)> {
    window.padding.iter().map(|&p| (p as isize, p as isize)).collect()
}

/// How many windows of `size` an input (N, C, spatial..) has along each axis.
fn windows_of(x: &Shape, size: &[usize], window: &Window) -> Result<Vec<usize>> {
    if x.ndim() != size.len() + 2 {
        return Err(Error::shape(format!(
            "windows of {size:?} need an input (N, C, spatial..), not {x}"
        ))
        .help(format!(
            "one size for each axis behind N and C; an input of {} axes fits",
            size.len() + 2
        )));
    }
    Ok(crate::validate::pool_shape(x, size, window)?[2..].to_vec())
}

/// More padding than any tensor has room for.
const TOO_MUCH: usize = usize::MAX;

/// No axis is longer: [`Shape::new`] allows no more elements.
const LONGEST: usize = MAX_NUMEL;

/// One number for every axis, or one per axis; a negative one becomes `refused`, which every check
/// refuses.
fn per_axis(old: &[usize], new: &[i64], refused: usize) -> Vec<usize> {
    let new: Vec<usize> = new.iter().map(|&n| usize::try_from(n).unwrap_or(refused)).collect();
    if let [one] = new[..] { vec![one; old.len()] } else { new }
}

impl Window {
    /// Windows over `ndim` spatial axes: stride 1, no padding, dilation 1, one group.
    pub fn new(ndim: usize) -> Window {
        Window { stride: vec![1; ndim], padding: vec![0; ndim], dilation: vec![1; ndim], groups: 1 }
    }

    /// The same windows `stride` apart: one number for every axis, or one per axis.
    pub fn stride(mut self, stride: impl IntoShape) -> Window {
        self.stride = per_axis(&self.stride, &stride.sizes(), 0);
        self
    }

    /// The same windows over an input with `padding` elements added before and after: one number
    /// for every axis, or one per axis.
    pub fn padding(mut self, padding: impl IntoShape) -> Window {
        self.padding = per_axis(&self.padding, &padding.sizes(), TOO_MUCH);
        self
    }

    /// The same windows with `dilation` elements between neighbours: one number for every axis, or
    /// one per axis.
    pub fn dilation(mut self, dilation: impl IntoShape) -> Window {
        self.dilation = per_axis(&self.dilation, &dilation.sizes(), 0);
        self
    }

    /// The same windows with channels in `groups` independent groups.
    pub fn groups(mut self, groups: usize) -> Window {
        self.groups = groups;
        self
    }

    /// The spatial size of a transposed convolution's result:
    /// `(in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1`, for an input (N,
    /// C, in..) and a weight (C, C_out / groups, kernel..); `output_padding` is one number for
    /// every axis, or one per axis.
    ///
    /// # Errors
    /// If the numbers of axes differ, or nothing would be left.
    #[track_caller]
    pub fn transposed_size(
        &self,
        input: &Shape,
        weight: &Shape,
        output_padding: impl IntoShape,
    ) -> Result<Vec<usize>> {
        let _op = enter("Window::transposed_size");
        let ndim = weight.ndim().saturating_sub(2);
        self.require_ndim(ndim)?;
        let extra = per_axis(&vec![0; ndim], &output_padding.sizes(), TOO_MUCH);
        if ndim == 0 || input.ndim() != weight.ndim() || extra.len() != ndim {
            return Err(Error::shape(format!("input {input}, weight {weight} and output padding {extra:?} do not fit each other"))
                .help("input (N, C, in..), weight (C, C_out / groups, kernel..) and a padding per spatial axis fit"));
        }
        let size = |axis: usize| {
            let (n, kernel) = (input[axis + 2], weight[axis + 2]);
            let full = n
                .checked_sub(1)?
                .checked_mul(self.stride[axis])?
                .checked_add(self.dilation[axis].checked_mul(kernel.checked_sub(1)?)?)?;
            full.checked_add(extra[axis])?
                .checked_add(1)?
                .checked_sub(self.padding[axis].checked_mul(2)?)
                .filter(|&n| n <= LONGEST)
        };
        let none = |axis: usize| {
            let padding = self.padding[axis];
            Error::shape(format!("input {input}, weight {weight} and padding {padding} give no size for spatial axis {axis}"))
                .help("2 padding must be less than (in - 1) stride + dilation (kernel - 1) + output_padding + 1")
        };
        (0..ndim).map(|axis| size(axis).filter(|&n| n > 0).ok_or_else(|| none(axis))).collect()
    }

    /// The elements from the first to the last that a window of `kernel`, which is not 0, meets.
    pub(crate) fn reach(&self, axis: usize, kernel: usize) -> Result<usize> {
        let reach =
            self.dilation[axis].checked_mul(kernel - 1).and_then(|last| last.checked_add(1));
        let too_long = || {
            Error::shape(format!(
                "a window of {kernel} with dilation {} does not fit any axis",
                self.dilation[axis]
            ))
            .help("a dilation of 1 puts the elements of a window side by side")
        };
        reach.filter(|&n| n <= LONGEST).ok_or_else(too_long)
    }

    /// The length of an axis of `size` with its padding.
    pub(crate) fn padded(&self, axis: usize, size: usize) -> Result<usize> {
        let padded = self.padding[axis].checked_mul(2).and_then(|more| more.checked_add(size));
        let too_long = || {
            Error::value(format!(
                "spatial axis {axis} of {size} with padding {} is longer than any axis",
                self.padding[axis]
            ))
            .help("paddings are not negative, and small: (kernel - 1) / 2 keeps the size")
        };
        padded.filter(|&n| n <= LONGEST).ok_or_else(too_long)
    }

    pub(crate) fn require_ndim(&self, ndim: usize) -> Result<()> {
        if self.stride.len() == ndim && self.padding.len() == ndim && self.dilation.len() == ndim {
            return Ok(());
        }
        Err(Error::value(format!(
            "the window describes {} axes (stride), {} (padding), {} (dilation), not {ndim}",
            self.stride.len(),
            self.padding.len(),
            self.dilation.len()
        ))
        .help(format!("Window::new({ndim}) describes {ndim} axes; .stride(s), .padding(p) and .dilation(d) take one number for all")))
    }
}
