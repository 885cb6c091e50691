//! Windows over spatial axes: convolution, pooling, interpolation.

mod convolution;
mod interpolate;
mod pool;

pub use interpolate::Interpolation;
pub use pool::Averaging;
