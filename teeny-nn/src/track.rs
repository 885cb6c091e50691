//! The crate's use of automatic differentiation: tracked leaves and detached values.

use teeny_autograd::{Autograd, Grad};
pub(crate) use teeny_autograd::{detached, inner_device};
use teeny_core::{Result, Tensor};

/// `x` as a leaf that requires a gradient and that messages call `name`; `x` itself on a device
/// without autograd.
pub(crate) fn leaf(x: &Tensor, name: &str) -> Result<Tensor> {
    if x.dtype().is_float() && x.device().downcast_ref::<Autograd>().is_some() {
        x.requires_grad_named(name)
    } else {
        Ok(x.clone())
    }
}
