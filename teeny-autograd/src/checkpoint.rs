//! Checkpointing: less memory for more time.

use crate::backward::run_until;
use crate::detach_points::DetachPoints;
use crate::device::Autograd;
use crate::grad::{Grad, untracked};
use crate::mode::{Off, enable_grad, recompute, watch};
use crate::node::{Backward, Edge};
use crate::record::Operands;
use crate::storage::{own, tracked, unwrap};
use std::panic::Location;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, random};

/// `body(inputs)`, which saves nothing but its inputs: the backward pass runs `body` again,
/// recorded this time, and differentiates that.
///
/// Tracked tensors that `body` captures (weights) get their gradients too. Random numbers drawn
/// inside are drawn again the same. `body` must compute the same both times; what it changes
/// otherwise, such as running statistics, it must not change again: see [`crate::is_recomputing`]. On
/// a device that is not an [`Autograd`] it only runs.
///
/// # Errors
/// If `inputs` is empty, or `body` fails.
///
/// # Example
/// ```
/// use teeny_autograd::{Autograd, Grad, checkpoint};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(Reference::new());
/// let w = Tensor::new([[0.5f64, -1.0], [2.0, 1.5]], &device)?.requires_grad()?; // (2, 2)
/// let x = Tensor::new([1.0f64, 2.0], &device)?; // (2)
/// let weight = w.clone();
/// let y = checkpoint(move |x| weight.matmul(&x[0])?.tanh()?.exp(), &[&x])?; // (2)
/// assert!(y.sum_all()?.backward()?.contains(&w));
/// # Ok(()) }
/// ```
///
/// Source: Chen, Xu, Zhang & Guestrin 2016, arXiv:1604.06174. Equivalent:
/// `torch.utils.checkpoint.checkpoint`.
#[track_caller]
pub fn checkpoint(
    body: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
    inputs: &[&Tensor],
) -> Result<Tensor> {
    let location = Location::caller();
    let Some(first) = inputs.first() else {
        return Err(Error::value("checkpoint needs at least one tensor"));
    };
    let device = first.device().clone();
    let state = random::state();
    if device.downcast_ref::<Autograd>().is_none() {
        // Nothing is recorded here; outer and inner devices see the operations themselves.
        return body(&inputs.iter().map(|x| (*x).clone()).collect::<Vec<_>>());
    }
    let detached: Vec<Tensor> = {
        let _op = enter("detach");
        inputs.iter().map(|x| untracked(x)).collect::<Result<_>>()?
    };
    let (y, captured) = watch(Off { op: "checkpoint", location }, || body(&detached));
    let y = y?;

    let _op = enter("checkpoint");
    let mut operands = Operands::of(inputs)?;
    let reads_tracked = !captured.is_empty() && crate::mode::off().is_none();
    if !(operands.recording || reads_tracked) {
        return Ok(y);
    }
    captured.iter().for_each(|h| operands.mask |= h.node.mask);
    operands.detach_points = tracked(&y)?.detach_points.clone();
    operands.detach_points.forget(location);
    let value = own(unwrap(&y)?)?;
    let mut all = operands.edges();
    all.extend(captured.iter().map(|from| Some(Edge { from: from.clone(), view: None })));
    let (inner, outer) = (detached.iter().map(unwrap).collect::<Result<Vec<_>>>()?, device.clone());
    let needs: Vec<bool> = all[..inner.len()].iter().map(Option::is_some).collect();
    let backward: Backward = Box::new(move |g| {
        let Some(g) = &g[0] else { return Ok(vec![None; needs.len() + captured.len()]) };
        let again = |x: &Tensor| x.to(&outer);
        let leaves = inner
            .iter()
            .zip(&needs)
            .map(|(x, need)| if *need { again(x)?.requires_grad() } else { again(x) })
            .collect::<Result<Vec<_>>>()?;
        let y = recompute(|| random::with_state(state, || enable_grad(|| body(&leaves))))?;
        let y = y.retain_grad()?;
        let root = tracked(&y)?
            .handle
            .clone()
            .ok_or_else(|| Error::internal("a checkpointed function lost its history"))?;
        let kept = run_until(root, g.reshape(y.shape())?, &captured, &mut DetachPoints::default())?;
        let kept_at = |key| Some(kept.get(&key)?.view().clone());
        let leaf = |x: &Tensor| kept_at(tracked(x).ok()?.handle.as_ref()?.key());
        Ok(leaves.iter().map(leaf).chain(captured.iter().map(|h| kept_at(h.key()))).collect())
    });
    let (shape, dtype) = (*value.shape(), value.dtype());
    if !dtype.is_float() {
        return Ok(y);
    }
    let storage = operands.store("checkpoint", value, all, backward);
    Tensor::from_result(storage, shape, dtype, device)
}
