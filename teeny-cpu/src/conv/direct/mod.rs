//! Convolution without a matrix: for few output channels per group, depthwise ones above all.
//!
//! The naive form is `y[o][p] = Σ_c Σ_t w[o][c][t] x[c][p * step + shift[t]]`. As a product with
//! columns it would copy each element as often as there are taps, and use each copy once or a few
//! times. The steps from the naive form:
//!
//! 1. The rows of input that a task reads are packed once, with zeros around them, so that the
//!    elements that one tap reads for neighbouring lanes are neighbours. Without padding and
//!    strides the input itself has that order.
//! 2. A tap is then one number, its distance in the packed input, and the loops over channels and
//!    taps are one loop over a table of distances. `correlate` has it for results,
//!    `weight_grad_tile` for the gradient of the filters.
//! 3. Lanes are neighbouring pixels (`pixels`, packed by `phase_split`) or, for depthwise
//!    convolutions with enough channels for a vector, channels (`channels`, packed as
//!    `channel_blocked`): these need no shuffles for any stride, and short rows waste no lanes.
//!
//! Only the packed layouts differ: strides are split to phases where lanes are pixels, and planes
//! are transposed where they are channels. `weight_grad` has the gradient of the filters from
//! either. Independent of dtypes and views.

mod channel_blocked;
mod channels;
mod correlate;
mod phase_split;
mod pixels;
mod weight_grad;
mod weight_grad_tile;

pub(super) use channel_blocked::BlockedLayout;
pub(super) use channels::convolve as by_channels;
pub(super) use weight_grad::{
    by_channels as weight_grad_by_channels, by_pixels as weight_grad_by_pixels,
};
