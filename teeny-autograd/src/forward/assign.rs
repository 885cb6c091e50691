//! Assignment into a view: writes the tangent of the source into the tangent of the destination.

use crate::dual::{Dual, flat};
use crate::duals::Duals;
use teeny_core::storage::{downcast, downcast_mut};
use teeny_core::{DeviceRef, Error, Layout, Op, Result, StorageRef, Tensor};

/// Executes [`Op::CopyInto`] with `dst` and `src` of a forward-mode device over `inner`.
pub(super) fn copy_into(
    inner: &DeviceRef,
    mut dst: StorageRef,
    view: &Layout,
    src: &Tensor,
) -> Result<StorageRef> {
    let operands = Duals::of(&[src])?;
    let src = &operands.values[0];
    // If the outer storage has no other owner, the inner ones are handed on, so that the inner
    // device can write in place.
    let (value, tangent) = match downcast_mut::<Dual>(&mut dst) {
        Some(dual) => (std::mem::replace(&mut dual.value, src.clone()), dual.tangent.take()),
        None => {
            let dual = downcast::<Dual>(&dst)?;
            dual.mark_used();
            (dual.value.clone(), dual.tangent.clone())
        }
    };
    drop(dst);
    let write = |dst: Tensor, src: &Tensor| -> Result<Tensor> {
        let (storage, ..) = dst.into_parts();
        let written = Op::CopyInto { dst: Some(storage), view, src }.run(inner)?.into_first();
        let missing = || Error::internal("an assignment returned no storage");
        flat(written.ok_or_else(missing)?, inner)
    };
    let tangent = if tangent.is_some() || operands.any_tangent() {
        let zeros = || Tensor::zeros(value.storage().len(), value.dtype(), src); // (all elements)
        let tangent = tangent.map_or_else(zeros, Ok)?;
        Some(write(tangent, &operands.tangent_or_zeros(0)?)?)
    } else {
        None
    };
    Dual::storage(write(value, src)?, tangent)
}
