//! Convolution without a matrix: for few output channels per group, depthwise ones above all.
//!
//! The naive form is `y[o][p] = Σ_c Σ_t w[o][c][t] x[c][p * step + shift[t]]`. As a product with
//! columns it would copy each element as often as there are taps, and use each copy once or a few
//! times. The steps from the naive form:
//!
//! 1. The rows of input that a task reads are copied once, with zeros around them, to cells in which
//!    the elements that one tap reads for neighbouring lanes are neighbours. Without padding and
//!    strides the input itself has that order.
//! 2. A tap is then one number, its distance in the cells, and the loops over channels and taps are
//!    one loop over a table of distances. `correlate` has it for results, `weight_grad_tile` for
//!    the gradient of the filters.
//! 3. Lanes are neighbouring pixels (`pixels`, with cells in a `phase_split`) or, where each
//!    channel has its own filter and there are enough for a vector, channels (`channels`, with a
//!    vector for each place in `cells`): these need no shuffles for any stride, and short rows
//!    waste no lanes.
//!
//! Only the orders of the cells differ: strides are split to phases where lanes are pixels, and
//! planes are transposed where they are channels. `weight_grad` has the gradient of the filters from
//! either. Knows neither dtypes nor views.

mod cells;
mod channels;
mod correlate;
mod phase_split;
mod pixels;
mod weight_grad;
mod weight_grad_tile;

pub(super) use cells::Cells;
pub(super) use channels::convolve as by_channels;
pub(super) use weight_grad::{
    by_channels as weight_grad_by_channels, by_pixels as weight_grad_by_pixels,
};
