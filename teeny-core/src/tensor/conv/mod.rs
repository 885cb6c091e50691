//! Windows over spatial axes: convolution, pooling, interpolation.

mod convolution;

mod im2col;

mod pool;

mod adaptive_pool;

mod interpolate;

mod pixel_shuffle;

pub use interpolate::Interpolation;
pub use pool::Averaging;
