//! Linear algebra: products, decompositions, systems of equations, norms.

mod decompositions;
mod diagonal;
mod einsum;
mod norms;
mod pca;
mod products;
mod solve;

pub use norms::MatrixNorm;
pub use pca::Pca;
