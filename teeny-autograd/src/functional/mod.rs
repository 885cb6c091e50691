//! Derivatives of functions: Jacobian and Hessian products and matrices. The caller sees neither
//! leaves nor tangents.
//!
//! Each call wraps the device of its arguments, or the level in progress, in a new level: an
//! [`Autograd`](crate::Autograd) or a [`Forward`](crate::Forward) device. Levels do not know each
//! other's derivatives, so calls nest in any way: a function that is differentiated may call
//! another of these functions, and may capture tensors. An argument that the function does not use
//! is an error; [`allow_unused`] makes its derivatives zeros.
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
mod unused;

pub use matrix::{hessian, jacobian, jacobian_columns, jacobian_rows};
pub use point::Point;
pub use product::{grad, hvp, jvp, vjp};
pub use unused::allow_unused;
