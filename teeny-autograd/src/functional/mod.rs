//! Derivatives of functions: Jacobian and Hessian products and matrices, without leaves and
//! tangents in sight.
//!
//! Each call puts a fresh level (an [`Autograd`](crate::Autograd) or a [`Forward`](crate::Forward)
//! device) over the device of its arguments, or over the level in progress. Levels do not know each
//! other's derivatives, so calls nest in any way: the function given to one may call another, and
//! may use tensors from outside.
//!
//! | for `f: R^n → R^m` | function | mode | work, in runs of `f` |
//! |---|---|---|---|
//! | `J v` | [`jvp`] | forward | about 2; no graph |
//! | `gᵀ J` | [`vjp`], [`grad`] | reverse | about 3; keeps the graph |
//! | `J` | [`jacobian_rows`] | reverse | 1 forward, m backward |
//! | `J` | [`jacobian_columns`] | forward | n of [`jvp`] |
//! | `J` | [`jacobian`] | | the fewer of the two |
//! | `H v` | [`hvp`] | forward over reverse | twice a gradient |
//! | `H` | [`hessian`] | forward over reverse | n of [`hvp`] |

mod levels;
mod matrix;
mod point;
mod product;

pub use matrix::{hessian, jacobian, jacobian_columns, jacobian_rows};
pub use point::Point;
pub use product::{grad, hvp, jvp, vjp};
