//! Pooling layers over one, two and three spatial axes: one number for every window.

use crate::module::{Module, helped};
use teeny_core::{Averaging, Result, Tensor, Window};

/// What to do about an input that does not fit.
const HELP: &str = "windows must be at least 1 long, and fit the last axes of x with its padding";

/// What to do about a size that an input cannot be pooled to.
const ADAPTIVE: &str =
    "output sizes must be at least 1, and x must have as many axes with elements";

macro_rules! aliases {
    ($name:ident $one:ident $two:ident $three:ident) => {
        #[doc = concat!("Over sequences (B, C, L). Equivalent: `torch.nn.", stringify!($one), "`.")]
        pub type $one = $name<1>;
        #[doc = concat!("Over images (B, C, H, W). Equivalent: `torch.nn.", stringify!($two), "`.")]
        pub type $two = $name<2>;
        #[doc = concat!("Over volumes (B, C, D, H, W). Equivalent: `torch.nn.", stringify!($three), "`.")]
        pub type $three = $name<3>;
    };
}

/// The largest element of every window. Shapes: (.., in..) → (.., out..) with
/// `out = (in + 2 padding - dilation (size - 1) - 1) / stride + 1`.
#[derive(Clone, Debug)]
pub struct MaxPool<const N: usize> {
    size: [usize; N],
    window: Window,
    ceil: bool,
}
aliases!(MaxPool MaxPool1d MaxPool2d MaxPool3d);

impl<const N: usize> MaxPool<N> {
    /// Windows of `size` along all axes, side by side.
    pub fn new(size: usize) -> MaxPool<N> {
        MaxPool::with_window([size; N], Window::new(N).stride(size))
    }

    /// Windows of any size, stride, padding and dilation.
    pub fn with_window(size: [usize; N], window: Window) -> MaxPool<N> {
        MaxPool { size, window, ceil: false }
    }

    /// The same with windows that begin inside but reach beyond the end: sizes are rounded up. As
    /// `ceil_mode`.
    pub fn ceil(self) -> MaxPool<N> {
        MaxPool { ceil: true, ..self }
    }
}

impl<const N: usize> Module for MaxPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let y = if self.ceil {
            x.max_pool_ceil(&self.size, &self.window).map(|(y, _)| y)
        } else {
            x.max_pool(&self.size, &self.window)
        };
        y.map_err(|e| helped(e, HELP))
    }

    fn describe(&self) -> String {
        format!("MaxPool{N}d{:?}", self.size)
    }
}

/// The mean of every window. Shapes: (.., in..) → (.., out..) with
/// `out = (in + 2 padding - size) / stride + 1`.
#[derive(Clone, Debug)]
pub struct AvgPool<const N: usize> {
    size: [usize; N],
    window: Window,
    averaging: Averaging,
}
aliases!(AvgPool AvgPool1d AvgPool2d AvgPool3d);

impl<const N: usize> AvgPool<N> {
    /// Windows of `size` along all axes, side by side.
    pub fn new(size: usize) -> AvgPool<N> {
        AvgPool::with_window([size; N], Window::new(N).stride(size))
    }

    /// Windows of any size, stride and padding, which counts as zeros.
    pub fn with_window(size: [usize; N], window: Window) -> AvgPool<N> {
        AvgPool { size, window, averaging: Averaging::default() }
    }

    /// The same with a say in what is counted.
    pub fn averaging(self, averaging: Averaging) -> AvgPool<N> {
        AvgPool { averaging, ..self }
    }
}

impl<const N: usize> Module for AvgPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.avg_pool_with(&self.size, &self.window, self.averaging).map_err(|e| helped(e, HELP))
    }

    fn describe(&self) -> String {
        format!("AvgPool{N}d{:?}", self.size)
    }
}

/// The mean of as many windows as the output has elements, whatever the size of the input: window i
/// of n goes from `i in / n`, rounded down, to `(i + 1) in / n`, rounded up. Shapes: (.., in..) →
/// (.., out..). One window is the mean over all space.
#[derive(Clone, Debug)]
pub struct AdaptiveAvgPool<const N: usize> {
    size: [usize; N],
}
aliases!(AdaptiveAvgPool AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d);

impl<const N: usize> AdaptiveAvgPool<N> {
    /// To this output.
    pub fn new(size: [usize; N]) -> AdaptiveAvgPool<N> {
        AdaptiveAvgPool { size }
    }
}

impl<const N: usize> Module for AdaptiveAvgPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.adaptive_avg_pool(&self.size).map_err(|e| helped(e, ADAPTIVE))
    }

    fn describe(&self) -> String {
        format!("AdaptiveAvgPool{N}d{:?}", self.size)
    }
}

/// The largest element of windows chosen as by [`AdaptiveAvgPool`]. Shapes: (.., in..) → (..,
/// out..).
#[derive(Clone, Debug)]
pub struct AdaptiveMaxPool<const N: usize> {
    size: [usize; N],
}
aliases!(AdaptiveMaxPool AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d);

impl<const N: usize> AdaptiveMaxPool<N> {
    /// To this output.
    pub fn new(size: [usize; N]) -> AdaptiveMaxPool<N> {
        AdaptiveMaxPool { size }
    }
}

impl<const N: usize> Module for AdaptiveMaxPool<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.adaptive_max_pool(&self.size).map(|(y, _)| y).map_err(|e| helped(e, ADAPTIVE))
    }

    fn describe(&self) -> String {
        format!("AdaptiveMaxPool{N}d{:?}", self.size)
    }
}
