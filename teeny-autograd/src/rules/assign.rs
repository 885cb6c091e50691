//! Assignment into a view: the overwritten elements get the gradient 0, and the source gets the
//! gradient of the view.

use crate::node::{Backward, Edge, Handle, Node, Value};
use crate::record::{Operands, Recorder};
use crate::storage::{Tracked, unwrap};
use std::sync::Arc;
use teeny_core::op::PerOutput;
use teeny_core::storage::{downcast, downcast_mut};
use teeny_core::{Error, Layout, Op, Result, Shape, StorageRef, Tensor, context};

pub(crate) fn copy_into(
    recorder: &Recorder,
    mut dst: StorageRef,
    view: &Layout,
    src: &Tensor,
) -> Result<StorageRef> {
    let inner_src = unwrap(src)?;
    let (handle, detach_points, len) = {
        let Tracked { inner, handle, detach_points } = downcast::<Tracked>(&dst)?;
        (handle.clone(), detach_points.clone(), inner.storage().len())
    };
    let outer = [src];
    let mut operands = Operands::of_with(&outer, handle.as_ref(), &detach_points)?;

    // If the outer storage has one owner, its inner one is passed on, so that the inner device
    // can write in place (unless it was saved).
    let below = match downcast_mut::<Tracked>(&mut dst) {
        Some(mine) => std::mem::replace(&mut mine.inner, inner_src.clone()),
        None => downcast::<Tracked>(&dst)?.inner.clone(),
    };
    drop(dst);
    let (storage, layout, dtype, _) = below.into_parts();
    let mut op = Op::CopyInto { dst: Some(storage), view, src: &inner_src };
    let storage = op.run(recorder.inner())?.into_first();
    let storage = storage.ok_or_else(|| Error::internal("an assignment returned no storage"))?;
    let value = Tensor::from_parts(storage, layout, dtype, recorder.inner().clone())?;
    if !operands.recording {
        return Ok(Tracked::storage(value, None, operands.detach_points));
    }

    let base = match &handle {
        Some(handle) => handle.value().shape,
        None => Shape::new(&[len])?,
    };
    let mut all = operands.edges();
    all.insert(0, handle.map(|from| Edge { from, view: None }));
    let (need_dst, need_src, view) = (all[0].is_some(), all[1].is_some(), *view);
    let backward: Backward = Box::new(move |g| {
        let Some(g) = &g[0] else { return Ok(vec![None, None]) };
        let part = |g: &Tensor| g.as_strided(view.shape(), view.strides(), view.offset());
        // The gradient may come as a view of something else; positions in the value are positions
        // in a row-major copy of it.
        let g = if g.layout().offset() == 0 && g.storage().len() == g.numel() {
            g.contiguous()?
        } else {
            g.copy()?
        };
        let d_src = if need_src { Some(part(&g)?) } else { None };
        let d_dst = if need_dst {
            Some(g.copy()?.assign_view(part, &Tensor::zeros((), g.dtype(), &g)?)?)
        } else {
            None
        };
        Ok(vec![d_dst, d_src])
    });
    let node = Node::op(
        "copy_into",
        backward,
        PerOutput::one(Value { shape: base, dtype }),
        all,
        operands.mask,
        context::current(),
    );
    Ok(Tracked::storage(
        value,
        Some(Handle { node: Arc::new(node), output: 0 }),
        std::mem::take(&mut operands.detach_points),
    ))
}
