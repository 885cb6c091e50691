//! The geometry of the windows of a convolution or a pooling: stride, padding, dilation, groups.
//! The shapes of results are in `conv_shape`.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::shape::{IntoShape, MAX_NUMEL, Shape};

/// Geometry of a convolution or a pooling over the last `ndim` axes: one entry per spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Elements between neighbouring windows.
    pub stride: Vec<usize>,
    /// Zeros (for max-pooling: ignored places) added before and after each axis.
    pub padding: Vec<usize>,
    /// Elements between neighbours inside a window.
    pub dilation: Vec<usize>,
    /// Channel groups of a convolution; 1 for pooling.
    pub groups: usize,
}

/// The length of the longest axis that [`Shape::new`] allows.
const MAX_LENGTH: usize = MAX_NUMEL;

/// One number for every axis, or one per axis. A negative one wraps, which every check rejects and
/// [`signed`] shows.
fn per_axis(old: &[usize], new: &[i64]) -> Vec<usize> {
    let new: Vec<usize> = new.iter().map(|&n| n as usize).collect();
    if let [one] = new[..] { vec![one; old.len()] } else { new }
}

/// A number of a window as it was written.
pub(crate) fn signed(n: usize) -> isize {
    n as isize
}

impl Window {
    /// Windows over `ndim` spatial axes: stride 1, no padding, dilation 1, one group.
    pub fn new(ndim: usize) -> Window {
        Window { stride: vec![1; ndim], padding: vec![0; ndim], dilation: vec![1; ndim], groups: 1 }
    }

    /// The same windows `stride` apart: one number for every axis, or one per axis.
    pub fn stride(mut self, stride: impl IntoShape) -> Window {
        self.stride = per_axis(&self.stride, &stride.sizes());
        self
    }

    /// The same windows over an input with `padding` elements added before and after: one number
    /// for every axis, or one per axis.
    pub fn padding(mut self, padding: impl IntoShape) -> Window {
        self.padding = per_axis(&self.padding, &padding.sizes());
        self
    }

    /// The same windows with `dilation` elements between neighbours: one number for every axis, or
    /// one per axis.
    pub fn dilation(mut self, dilation: impl IntoShape) -> Window {
        self.dilation = per_axis(&self.dilation, &dilation.sizes());
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
    /// If the numbers of axes differ, or a size would be less than 1.
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
        let extra = per_axis(&vec![0; ndim], &output_padding.sizes());
        if ndim == 0 || input.ndim() != weight.ndim() || extra.len() != ndim {
            return Err(Error::shape(format!(
                "input {input}, weight {weight} and output padding {:?} do not fit each other",
                output_padding.sizes()
            ))
            .help(
                "input (N, C, in..), weight (C, C_out / groups, kernel..) and a \
                 padding per spatial axis fit",
            ));
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
                .filter(|&n| n <= MAX_LENGTH)
        };
        let none = |axis: usize| {
            let padding = signed(self.padding[axis]);
            Error::shape(format!(
                "input {input}, weight {weight} and padding {padding} give \
                 no size for spatial axis {axis}"
            ))
            .help(
                "2 padding must be less than (in - 1) stride + dilation (kernel - 1) + \
                 output_padding + 1",
            )
        };
        (0..ndim).map(|axis| size(axis).filter(|&n| n > 0).ok_or_else(|| none(axis))).collect()
    }

    /// The extent of a window of `kernel` elements, at least 1, from its first to its last.
    pub(crate) fn reach(&self, axis: usize, kernel: usize) -> Result<usize> {
        let reach =
            self.dilation[axis].checked_mul(kernel - 1).and_then(|last| last.checked_add(1));
        let too_long = || {
            Error::shape(format!(
                "a window of {kernel} with dilation {} does not fit any axis",
                signed(self.dilation[axis])
            ))
            .help("a dilation of 1 puts the elements of a window side by side")
        };
        reach.filter(|&n| n <= MAX_LENGTH).ok_or_else(too_long)
    }

    /// The length of an axis of `size` with its padding.
    pub(crate) fn padded(&self, axis: usize, size: usize) -> Result<usize> {
        let padded = self.padding[axis].checked_mul(2).and_then(|more| more.checked_add(size));
        let too_long = || {
            let padding = signed(self.padding[axis]);
            Error::value(match padding {
                ..0 => format!("the padding of spatial axis {axis} is {padding}, less than 0"),
                _ => format!(
                    "spatial axis {axis} of {size} with padding {padding} is longer than any axis"
                ),
            })
            .help("(kernel - 1) / 2 keeps the size; x.slice(axis, range)? removes elements")
        };
        padded.filter(|&n| n <= MAX_LENGTH).ok_or_else(too_long)
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
        .help(format!(
            "Window::new({ndim}) describes {ndim} axes; .stride(s), .padding(p) \
             and .dilation(d) take one number for all"
        )))
    }
}
