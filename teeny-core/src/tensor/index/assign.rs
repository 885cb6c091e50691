//! Replacing a part of a tensor, in place where its storage has no other owner. The part is a
//! layout: from a slice, a view, or the basic items of an index.

use crate::context::{Guard, enter};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::messages::BROADCAST;
use crate::op::Op;
use crate::shape::Shape;
use crate::tensor::elementwise::no_output;
use crate::tensor::one_device::lift;
use crate::tensor::{SliceRange, Tensor};

impl Tensor {
    /// Self with the part of `axis` in `range` replaced by `src`, which must have the part's shape
    /// or broadcast to it, and is cast to self's type.
    ///
    /// The handle is consumed: if it is the only one of its storage, the elements are changed in
    /// place, else in a copy. No other handle ever changes.
    #[track_caller]
    pub fn slice_assign(self, axis: isize, range: impl SliceRange, src: &Tensor) -> Result<Tensor> {
        let op = enter("slice_assign").on([("src", Some(src))]);
        let part =
            self.sliced(axis, &range, 1).inspect_err(|_| op.failed_on(&[("x", Some(&self))]))?;
        self.assign_part(&op, part, src)
    }

    /// [`Tensor::assign`] to a part that no index can express: `part` returns a view of the tensor
    /// it is passed, e.g. `x.assign_view(|x| x.diagonal(0, 0, 1), &y)`.
    ///
    /// # Errors
    /// If `part` gives something other than a view of self, or one in which elements occur twice.
    #[track_caller]
    pub fn assign_view(
        self,
        part: impl FnOnce(&Tensor) -> Result<Tensor>,
        src: &Tensor,
    ) -> Result<Tensor> {
        let op = enter("assign_view").on([("src", Some(src))]);
        let view = part(&self)?;
        if !view.same_storage(&self) {
            let error = Err(Error::value("the part to assign to is not a view of the tensor")
                .help(
                    "return a view of the argument, e.g. |x| x.slice(0, 1..), not the \
                     result of a computation",
                ));
            op.failed_on(&[("x", Some(&self))]);
            return error;
        }
        let layout = *view.layout();
        drop(view);
        self.assign_part(&op, layout, src)
    }

    /// Self with `part` replaced by `src`, for the operation `op`.
    pub(super) fn assign_part<const N: usize>(
        self,
        op: &Guard<'_, Tensor, N>,
        part: Layout,
        src: &Tensor,
    ) -> Result<Tensor> {
        let (target, src) =
            self.assignable(&part, src).inspect_err(|_| op.failed_on(&[("x", Some(&self))]))?;
        drop(self);
        let (storage, layout, dtype, device) = target.into_parts();
        let mut op = Op::CopyInto { dst: Some(storage), view: &part, src: &src };
        let storage = op.run(&device)?.into_first().ok_or_else(no_output)?;
        Tensor::from_parts(storage, layout, dtype, device)
    }

    /// Self and `src` on one device, `src` in the type of self and the shape of `part`.
    fn assignable(&self, part: &Layout, src: &Tensor) -> Result<(Tensor, Tensor)> {
        if let Some(bad) = [self.layout(), part].into_iter().find(|layout| !layout.is_injective()) {
            return Err(Error::value(format!(
                "cannot assign to a view in which elements occur twice ({bad:?})"
            ))
            .help("assign to x.copy()?"));
        }
        let device = crate::device::common(self.device(), src.device())?;
        let target = lift(self, &device)?.into_owned();
        let src = lift(src, &device)?.cast(target.dtype())?;
        Ok((target, broadcasts(&src, part.shape())?))
    }
}

/// `value` in the shape of the part it is assigned to; axes of size 1 too many in front fall away,
/// as in NumPy.
pub(super) fn broadcasts(value: &Tensor, part: &Shape) -> Result<Tensor> {
    let mut layout = *value.layout();
    while layout.ndim() > part.ndim() && layout.shape()[0] == 1 {
        layout = layout.remove(0);
    }
    match layout.expand(part) {
        Some(layout) => Ok(value.through(layout)),
        None => Err(Error::shape(format!(
            "{} does not fit the part of shape {part} it is assigned to",
            value.shape()
        ))
        .help(match value.numel() == part.numel() {
            true => format!("value.reshape({part})? has this shape"),
            false => BROADCAST.to_string(),
        })),
    }
}
