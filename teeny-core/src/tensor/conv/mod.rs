//! Windows over spatial axes: convolution, pooling, interpolation. Batch and channels (N, C) come
//! first. The geometry is [`Window`](crate::Window), in `op/window`.

mod convolution;

mod im2col;

mod pool;

mod adaptive_pool;

mod interpolate;

mod grid_sample;

mod pixel_shuffle;

pub use grid_sample::{Outside, Sampling};
pub use interpolate::Interpolation;
pub use pool::Averaging;
