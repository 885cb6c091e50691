//! Pooling over one, two and three spatial axes: one number per window.

use crate::module::Module;
use crate::options::{PerAxis, options};
use teeny_core::{Averaging, Result, Tensor, Window};
use teeny_formats::names::with_help;

/// Help for an input that does not fit.
const HELP: &str = "windows must be at least 1 long, and fit the last axes of x with its padding";

/// Help for an output size that does not fit.
const ADAPTIVE_HELP: &str =
    "output sizes must be at least 1, and x needs that many axes, none of size 0";

macro_rules! aliases {
    ($name:ident $one:ident $two:ident $three:ident) => {
        #[doc = concat!("Over sequences (B, C, L). Equivalent: `torch.nn.", stringify!($one), "`.")]
        pub type $one = $name<1>;
        #[doc = concat!("Over images (B, C, H, W). Equivalent: `torch.nn.", stringify!($two), "`.")]
        pub type $two = $name<2>;
        #[doc = concat!(
                                            "Over volumes (B, C, D, H, W). Equivalent: `torch.nn.",
                                            stringify!($three),
                                            "`."
                                        )]
        pub type $three = $name<3>;
    };
}

options! {
    /// Options of a [`MaxPool`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct MaxPoolOptions [const N: usize] [N] {
        /// Elements between neighbouring windows; None is the kernel size.
        stride: Option<[usize; N]> = None,
            with_stride(impl PerAxis<N>) => |stride| Some(stride.per_axis());
        /// Places added before and after each axis, which never win; 0.
        padding: [usize; N] = [0; N], with_padding(impl PerAxis<N>) => |n| n.per_axis();
        /// Elements between neighbours inside a window; 1.
        dilation: [usize; N] = [1; N], with_dilation(impl PerAxis<N>) => |n| n.per_axis();
        /// Whether output sizes are rounded up instead of down, so that windows that begin inside x
        /// may reach beyond its end; false.
        ceil_mode: bool = false, with_ceil_mode;
    }
}

options! {
    /// Options of an [`AvgPool`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct AvgPoolOptions [const N: usize] [N] {
        /// Elements between neighbouring windows; None is the kernel size.
        stride: Option<[usize; N]> = None,
            with_stride(impl PerAxis<N>) => |stride| Some(stride.per_axis());
        /// Zeros added before and after each axis; 0.
        padding: [usize; N] = [0; N], with_padding(impl PerAxis<N>) => |n| n.per_axis();
        /// Whether output sizes are rounded up instead of down; false.
        ceil_mode: bool = false, with_ceil_mode;
        /// Whether padding counts as elements of the mean; true.
        count_include_pad: bool = true, with_count_include_pad;
        /// The divisor of the sums; None is the number of elements.
        divisor_override: Option<usize> = None, with_divisor_override(usize);
    }
}

/// Options of a [`MaxPool1d`].
pub type MaxPool1dOptions = MaxPoolOptions<1>;
/// Options of a [`MaxPool2d`].
pub type MaxPool2dOptions = MaxPoolOptions<2>;
/// Options of a [`MaxPool3d`].
pub type MaxPool3dOptions = MaxPoolOptions<3>;
/// Options of an [`AvgPool1d`].
pub type AvgPool1dOptions = AvgPoolOptions<1>;
/// Options of an [`AvgPool2d`].
pub type AvgPool2dOptions = AvgPoolOptions<2>;
/// Options of an [`AvgPool3d`].
pub type AvgPool3dOptions = AvgPoolOptions<3>;

/// The largest element of every window. Shapes: (.., in..) → (.., out..) with
/// `out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1`.
#[derive(Clone, Debug)]
pub struct MaxPool<const N: usize> {
    kernel: [usize; N],
    window: Window,
    ceil_mode: bool,
}
aliases!(MaxPool MaxPool1d MaxPool2d MaxPool3d);

impl<const N: usize> MaxPool<N> {
    /// A layer with windows of size `kernel` and the same stride.
    pub fn new(kernel: impl PerAxis<N>) -> MaxPool<N> {
        MaxPool::with_options(kernel, MaxPoolOptions::default())
    }

    /// A layer with `options`.
    pub fn with_options(kernel: impl PerAxis<N>, options: MaxPoolOptions<N>) -> MaxPool<N> {
        let kernel = kernel.per_axis();
        let window = Window {
            stride: options.stride.unwrap_or(kernel).to_vec(),
            padding: options.padding.to_vec(),
            dilation: options.dilation.to_vec(),
            groups: 1,
        };
        MaxPool { kernel, window, ceil_mode: options.ceil_mode }
    }
}

impl<const N: usize> Module for MaxPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = if self.ceil_mode {
            x.max_pool_ceil(&self.kernel, &self.window).map(|(y, _)| y)
        } else {
            x.max_pool(&self.kernel, &self.window)
        };
        y.map_err(|e| with_help(e, HELP))
    }

    fn describe(&self) -> String {
        format!("MaxPool{N}d{:?}", self.kernel)
    }
}

/// The mean of every window. Shapes: (.., in..) → (.., out..) with
/// `out = (in + 2 padding - kernel) / stride + 1`.
#[derive(Clone, Debug)]
pub struct AvgPool<const N: usize> {
    kernel: [usize; N],
    window: Window,
    averaging: Averaging,
}
aliases!(AvgPool AvgPool1d AvgPool2d AvgPool3d);

impl<const N: usize> AvgPool<N> {
    /// A layer with windows of size `kernel` and the same stride.
    pub fn new(kernel: impl PerAxis<N>) -> AvgPool<N> {
        AvgPool::with_options(kernel, AvgPoolOptions::default())
    }

    /// A layer with `options`.
    pub fn with_options(kernel: impl PerAxis<N>, options: AvgPoolOptions<N>) -> AvgPool<N> {
        let kernel = kernel.per_axis();
        let window = Window {
            stride: options.stride.unwrap_or(kernel).to_vec(),
            padding: options.padding.to_vec(),
            dilation: vec![1; N],
            groups: 1,
        };
        let averaging = Averaging::new()
            .with_ceil(options.ceil_mode)
            .with_count_padding(options.count_include_pad)
            .with_divisor(options.divisor_override);
        AvgPool { kernel, window, averaging }
    }
}

impl<const N: usize> Module for AvgPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.avg_pool_with(&self.kernel, &self.window, self.averaging);
        y.map_err(|e| with_help(e, HELP))
    }

    fn describe(&self) -> String {
        format!("AvgPool{N}d{:?}", self.kernel)
    }
}

/// The means of as many windows as the output has elements, for inputs of any size: window i of n
/// is `i in / n`, rounded down, up to `(i + 1) in / n`, rounded up. Shapes: (.., in..) → (..,
/// out..). Output size 1 is global average pooling.
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool<const N: usize> {
    output: [usize; N],
}
aliases!(AdaptiveAvgPool AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d);

impl<const N: usize> AdaptiveAvgPool<N> {
    /// A layer with this output size.
    pub fn new(output: impl PerAxis<N>) -> AdaptiveAvgPool<N> {
        AdaptiveAvgPool { output: output.per_axis() }
    }
}

impl<const N: usize> Module for AdaptiveAvgPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.adaptive_avg_pool(&self.output).map_err(|e| with_help(e, ADAPTIVE_HELP))
    }

    fn describe(&self) -> String {
        format!("AdaptiveAvgPool{N}d{:?}", self.output)
    }
}

/// The largest elements of the windows of an [`AdaptiveAvgPool`]. Shapes: (.., in..) → (.., out..).
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool<const N: usize> {
    output: [usize; N],
}
aliases!(AdaptiveMaxPool AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d);

impl<const N: usize> AdaptiveMaxPool<N> {
    /// A layer with this output size.
    pub fn new(output: impl PerAxis<N>) -> AdaptiveMaxPool<N> {
        AdaptiveMaxPool { output: output.per_axis() }
    }
}

impl<const N: usize> Module for AdaptiveMaxPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = x.adaptive_max_pool(&self.output).map(|(y, _)| y);
        y.map_err(|e| with_help(e, ADAPTIVE_HELP))
    }

    fn describe(&self) -> String {
        format!("AdaptiveMaxPool{N}d{:?}", self.output)
    }
}
