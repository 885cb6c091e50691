//! Joining: each part's gradient is its place in the whole's, a view.

use crate::device::Autograd;
use crate::node::Backward;
use crate::record::{Operands, edges};
use crate::storage::{Tracked, unwrap};
use teeny_core::{Result, Shape, StorageRef, Tensor};

pub(crate) fn cat(
    device: &Autograd,
    tensors: &[&Tensor],
    axis: usize,
    shape: &Shape,
) -> Result<StorageRef> {
    let inner = tensors.iter().map(|x| unwrap(x)).collect::<Result<Vec<_>>>()?;
    let storage = device.inner_device().cat(&inner.iter().collect::<Vec<_>>(), axis, shape)?;
    let value = device.value(storage, *shape, tensors[0].dtype())?;
    let operands = Operands::of(tensors)?;
    if !operands.recording {
        return Ok(Tracked::storage(value, None, operands.cuts));
    }
    let edges = edges(tensors)?;
    let parts: Vec<(bool, usize)> =
        edges.iter().zip(tensors).map(|(edge, x)| (edge.is_some(), x.shape()[axis])).collect();
    let backward: Backward = Box::new(move |g| {
        let Some(g) = &g[0] else { return Ok(vec![None; parts.len()]) };
        let mut start = 0;
        let part = |&(needed, size): &(bool, usize)| {
            start += size;
            needed.then(|| g.slice(axis as isize, start - size..start)).transpose()
        };
        parts.iter().map(part).collect()
    });
    Ok(operands.store(value, edges, backward))
}
