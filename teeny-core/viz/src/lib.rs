//! Pictures for teeny, as SVG and PNG files in one look on light and dark pages, and event files
//! for TensorBoard.
//!
//! ```text
//! Plot                         curves, points, images over axes          plot, ticks
//! scatter, decision_boundary   classes of points in a plane              classes
//! Heatmap                      weights, attention, a confusion matrix    heatmap
//! Histograms                   weights or gradients over time            histograms
//! Image                        grids of pictures and filters, as PNG     image
//! graph_svg, save_graph        graphs of operations                      graph, layers
//! TensorBoard                  event files                               tensorboard
//! ```
//! Independent of layers and training: it draws tensors and numbers.

mod classes;
mod graph;
mod heatmap;
mod histograms;
mod image;
mod layers;
mod plot;
mod svg;
mod tensorboard;
mod ticks;

pub use classes::{decision_boundary, scatter};
pub use graph::{graph_svg, save_graph};
pub use heatmap::Heatmap;
pub use histograms::Histograms;
pub use image::Image;
pub use plot::Plot;
pub use tensorboard::TensorBoard;

use teeny_core::{DType, Result, Tensor};

/// The elements of `x` in row-major order.
fn numbers(x: &Tensor) -> Result<Vec<f64>> {
    x.cast(DType::F64)?.reshape(-1)?.to_vec()
}
