//! Differentiable all_reduce: a sum over the ranks in the forward pass, the backward pass, or both.
//!
//! ```text
//!                        forward      backward
//! copy_to_ranks          identity     sum          input of a column-parallel layer
//! sum_over_ranks         sum          identity     output of a row-parallel layer
//! ```
//!
//! Each is the other's backward pass. Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3: the
//! functions f and g.

use super::communicator::Communicator;
use super::kind::Reduce;
use std::sync::Arc;
use teeny_autograd::{Autograd, Forward, Function, Saved, apply};
use teeny_core::{Error, Result, Tensor};

/// `x`, the same on all ranks; the gradient is the sum of the ranks' gradients.
///
/// # Errors
/// As [`Communicator::all_reduce`], in the backward pass.
pub(super) fn copy_to_ranks(comm: &Arc<dyn Communicator>, x: &Tensor) -> Result<Tensor> {
    exchange(comm, x, Pass::Identity)
}

/// The sum of the ranks' `x`; each rank gets the gradient of the sum.
///
/// # Errors
/// As [`Communicator::all_reduce`].
pub(super) fn sum_over_ranks(comm: &Arc<dyn Communicator>, x: &Tensor) -> Result<Tensor> {
    exchange(comm, x, Pass::Sum)
}

fn exchange(comm: &Arc<dyn Communicator>, x: &Tensor, forward: Pass) -> Result<Tensor> {
    if comm.size() == 1 {
        Ok(x.clone())
    } else {
        apply(Exchange { comm: comm.clone(), forward }, &[x])
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Identity,
    Sum,
}

/// `forward` in the forward pass, the other one in the backward pass.
struct Exchange {
    comm: Arc<dyn Communicator>,
    forward: Pass,
}

impl Function for Exchange {
    fn name(&self) -> &'static str {
        match self.forward {
            Pass::Identity => "copy_to_ranks",
            Pass::Sum => "sum_over_ranks",
        }
    }

    fn forward(&self, inputs: &[&Tensor], _saved: &mut Saved) -> Result<Tensor> {
        let x = inputs[0];
        if x.device().downcast_ref::<Autograd>().is_some() {
            // a derivative of higher order: the inner device must record this operation, too
            return exchange(&self.comm, x, self.forward);
        }
        no_forward_mode(x)?;
        match self.forward {
            Pass::Identity => Ok(x.clone()),
            Pass::Sum => self.comm.all_reduce(x, Reduce::Sum),
        }
    }

    fn backward(&self, _saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let backward = match self.forward {
            Pass::Identity => Pass::Sum,
            Pass::Sum => Pass::Identity,
        };
        Ok(vec![Some(exchange(&self.comm, g, backward)?)])
    }
}

/// Returns an error if `x` has a directional derivative, which messages between ranks would drop.
pub(super) fn no_forward_mode(x: &Tensor) -> Result<()> {
    if x.device().downcast_ref::<Forward>().is_none() {
        return Ok(());
    }
    Err(Error::gradient("messages between ranks have no directional derivative")
        .help("use Autograd and backward(), or one rank"))
}
