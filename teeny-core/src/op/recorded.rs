//! The recorded form of an [`Op`](super::Op): an op that runs later. Public for the suite of
//! devices alone, which changes valid requests in every way.

pub use super::fields::RuntimeArgs;
pub use super::table::RecordedOp;
use crate::kernel::Kernel;
use crate::shape::Integer;
use std::sync::Arc;

/// An op without operands and without its [`RuntimeArgs`].
pub type Recorded = RecordedOp<'static>;

impl Recorded {
    /// The scalar program that it runs.
    pub fn kernel(&self) -> Option<&Arc<Kernel>> {
        match self {
            Recorded::Elementwise { kernel, .. }
            | Recorded::ElementwiseMany { kernel, .. }
            | Recorded::ReduceKernel { kernel, .. }
            | Recorded::Rows { program: kernel, .. }
            | Recorded::MatmulKernel { kernel }
            | Recorded::ConvKernel { kernel, .. } => Some(kernel),
            _ => None,
        }
    }

    /// Replaces the sizes and positions among the attributes by `f` of them: those that follow the
    /// shapes of operands, among them the offset of causal attention. Axes and windows stay.
    pub(crate) fn map_integers(&mut self, f: &mut dyn FnMut(Integer) -> i64) {
        let mut size = |n: &mut usize| *n = f(Integer::Size(*n as i64)) as usize;
        match self {
            Recorded::Elementwise { shape, .. }
            | Recorded::ReduceKernel { shape, .. }
            | Recorded::Rows { shape, .. }
            | Recorded::Random { shape, .. }
            | Recorded::ConvInputGrad { x_shape: shape, .. }
            | Recorded::ConvWeightGrad { weight_shape: shape, .. }
            | Recorded::MaxPoolGrad { x_shape: shape, .. } => shape.map_integers(f),
            Recorded::ElementwiseMany { shapes, .. } => {
                shapes.iter_mut().for_each(|shape| shape.map_integers(f));
            }
            Recorded::CopyInto { view } => view.map_integers(f),
            Recorded::Pad { widths, .. } => {
                widths.iter_mut().flat_map(|(before, behind)| [before, behind]).for_each(size);
            }
            Recorded::Positions { sizes } => sizes.iter_mut().for_each(size),
            Recorded::TopK { k, .. } => size(k),
            Recorded::Attention { options, .. } | Recorded::AttentionGrad { options, .. } => {
                options.causal.iter_mut().for_each(size); // the keys before the first query
            }
            Recorded::Tri { diagonal, .. } => {
                let new = f(Integer::Stride(i64::from(*diagonal)));
                *diagonal = new.clamp(i32::MIN.into(), i32::MAX.into()) as i32;
            }
            _ => {}
        }
    }
}
