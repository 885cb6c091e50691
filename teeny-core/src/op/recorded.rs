//! What an [`Op`] holds beside its operands, owned: an op that runs later than it was asked for.

use super::attention::Attention;
use super::kinds::{ReduceOp, ScanOp, ScatterMode};
use super::linalg::LinalgOp;
use super::window::Window;
use super::{AttentionInputs, Op};
use crate::dtype::DType;
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::{Integer, Shape};
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::sync::Arc;

/// The variant of an [`Op`] and its attributes, without operands, without the storage that it owns
/// and without its [`RuntimeArgs`]. Two that are equal do the same work.
#[derive(Clone, PartialEq)]
pub(crate) enum Recorded {
    Elementwise {
        kernel: Arc<Kernel>,
        shape: Shape,
    },
    ElementwiseMany {
        kernel: Arc<Kernel>,
        shapes: Box<[Shape]>,
    },
    ReduceKernel {
        kernel: Arc<Kernel>,
        shape: Shape,
        op: ReduceOp,
        axes: Box<[usize]>,
    },
    Reduce {
        op: ReduceOp,
        axes: Box<[usize]>,
    },
    Scan {
        op: ScanOp,
        axis: usize,
    },
    CumMax {
        axis: usize,
        largest: bool,
    },
    Rows {
        program: Arc<Kernel>,
        shape: Shape,
        axes: Box<[usize]>,
    },
    Matmul,
    MatmulKernel {
        kernel: Arc<Kernel>,
    },
    Gather {
        axis: usize,
    },
    Scatter {
        mode: ScatterMode,
        axis: usize,
    },
    CopyInto {
        view: Layout,
    },
    Sort {
        axis: usize,
        descending: bool,
    },
    Random {
        distribution: Distribution,
        shape: Shape,
        dtype: DType,
    },
    Contiguous,
    TopK {
        axis: usize,
        k: usize,
        largest: bool,
    },
    Cat {
        axis: usize,
    },
    Pad {
        widths: Box<[(usize, usize)]>,
        value: Scalar,
    },
    Tri {
        diagonal: i32,
        upper: bool,
    },
    Positions {
        sizes: Box<[usize]>,
    },
    Conv {
        window: Box<Window>,
    },
    ConvKernel {
        window: Box<Window>,
        kernel: Arc<Kernel>,
    },
    ConvInputGrad {
        window: Box<Window>,
        x_shape: Shape,
    },
    ConvWeightGrad {
        window: Box<Window>,
        weight_shape: Shape,
    },
    MaxPool {
        kernel_size: Box<[usize]>,
        window: Box<Window>,
    },
    MaxPoolGrad {
        x_shape: Shape,
        spatial: usize,
    },
    AvgPool {
        kernel_size: Box<[usize]>,
        window: Box<Window>,
    },
    /// Whether there is a mask.
    Attention {
        options: Attention,
        mask: bool,
    },
    AttentionGrad {
        options: Attention,
        mask: bool,
        needs: [bool; 3],
    },
    Linalg {
        op: LinalgOp,
    },
}

/// The numbers of an op that may be others when the same work is done again.
#[derive(Clone, Copy, Default)]
pub(crate) struct RuntimeArgs<'a> {
    /// Those of a kernel's run-time parameters.
    pub(crate) params: &'a [Scalar],
    /// That of a draw.
    pub(crate) key: Option<Key>,
}

impl<'a> RuntimeArgs<'a> {
    /// Those of `op`.
    pub(crate) fn of(op: &Op<'a>) -> RuntimeArgs<'a> {
        match *op {
            Op::Elementwise { params, .. }
            | Op::ElementwiseMany { params, .. }
            | Op::ReduceKernel { params, .. }
            | Op::Rows { params, .. }
            | Op::MatmulKernel { params, .. }
            | Op::ConvKernel { params, .. } => RuntimeArgs { params, key: None },
            Op::Random { key, .. } => RuntimeArgs { params: &[], key: Some(key) },
            _ => RuntimeArgs::default(),
        }
    }
}

impl Recorded {
    /// The scalar program that it runs.
    pub(crate) fn kernel(&self) -> Option<&Arc<Kernel>> {
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

    /// The attributes of `op`. None for [`Op::ElementwiseInPlace`], which overwrites what the caller
    /// holds.
    pub(crate) fn of(op: &Op<'_>) -> Option<Recorded> {
        Some(match *op {
            Op::ElementwiseInPlace { .. } => return None,
            Op::Elementwise { kernel, shape, .. } => {
                Recorded::Elementwise { kernel: kernel.clone(), shape: *shape }
            }
            Op::ElementwiseMany { kernel, shapes, .. } => {
                Recorded::ElementwiseMany { kernel: kernel.clone(), shapes: shapes.into() }
            }
            Op::ReduceKernel { kernel, shape, op, axes, .. } => Recorded::ReduceKernel {
                kernel: kernel.clone(),
                shape: *shape,
                op,
                axes: axes.into(),
            },
            Op::Rows { program, shape, axes, .. } => {
                Recorded::Rows { program: program.clone(), shape: *shape, axes: axes.into() }
            }
            Op::Reduce { op, axes, .. } => Recorded::Reduce { op, axes: axes.into() },
            Op::Scan { op, axis, .. } => Recorded::Scan { op, axis },
            Op::CumMax { axis, largest, .. } => Recorded::CumMax { axis, largest },
            Op::Matmul { .. } => Recorded::Matmul,
            Op::MatmulKernel { kernel, .. } => Recorded::MatmulKernel { kernel: kernel.clone() },
            Op::Gather { axis, .. } => Recorded::Gather { axis },
            Op::Scatter { mode, axis, .. } => Recorded::Scatter { mode, axis },
            Op::CopyInto { view, .. } => Recorded::CopyInto { view: *view },
            Op::Sort { axis, descending, .. } => Recorded::Sort { axis, descending },
            Op::Random { distribution, shape, dtype, .. } => {
                Recorded::Random { distribution, shape: *shape, dtype }
            }
            Op::Contiguous { .. } => Recorded::Contiguous,
            Op::TopK { axis, k, largest, .. } => Recorded::TopK { axis, k, largest },
            Op::Cat { axis, .. } => Recorded::Cat { axis },
            Op::Pad { widths, value, .. } => Recorded::Pad { widths: widths.into(), value },
            Op::Tri { diagonal, upper, .. } => Recorded::Tri { diagonal, upper },
            Op::Positions { sizes, .. } => Recorded::Positions { sizes: sizes.into() },
            Op::Conv { window, .. } => Recorded::Conv { window: Box::new(window.clone()) },
            Op::ConvKernel { window, kernel, .. } => {
                Recorded::ConvKernel { window: Box::new(window.clone()), kernel: kernel.clone() }
            }
            Op::ConvInputGrad { window, x_shape, .. } => {
                Recorded::ConvInputGrad { window: Box::new(window.clone()), x_shape: *x_shape }
            }
            Op::ConvWeightGrad { window, weight_shape, .. } => Recorded::ConvWeightGrad {
                window: Box::new(window.clone()),
                weight_shape: *weight_shape,
            },
            Op::MaxPool { kernel_size, window, .. } => Recorded::MaxPool {
                kernel_size: kernel_size.into(),
                window: Box::new(window.clone()),
            },
            Op::MaxPoolGrad { x_shape, spatial, .. } => {
                Recorded::MaxPoolGrad { x_shape: *x_shape, spatial }
            }
            Op::AvgPool { kernel_size, window, .. } => Recorded::AvgPool {
                kernel_size: kernel_size.into(),
                window: Box::new(window.clone()),
            },
            Op::Attention { ref inputs } => {
                Recorded::Attention { options: inputs.options, mask: inputs.mask.is_some() }
            }
            Op::AttentionGrad { ref inputs, needs, .. } => {
                let (options, mask) = (inputs.options, inputs.mask.is_some());
                Recorded::AttentionGrad { options, mask, needs }
            }
            Op::Linalg { op, .. } => Recorded::Linalg { op },
        })
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
            Recorded::Pad { widths, .. } => widths.iter_mut().for_each(|(before, behind)| {
                size(before);
                size(behind);
            }),
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

    /// The op on `operands`, which are as many as it was recorded with, in the order of
    /// [`Op::operands`]. `dst` is the destination of [`Op::CopyInto`].
    pub(crate) fn op<'a>(
        &'a self,
        operands: &'a [&'a Tensor],
        numbers: RuntimeArgs<'a>,
        dst: Option<StorageRef>,
    ) -> Op<'a> {
        let RuntimeArgs { params, key } = numbers;
        let t = |i: usize| operands[i];
        let last = operands.len().saturating_sub(1);
        let attention = |options, mask: bool| AttentionInputs {
            q: t(0),
            k: t(1),
            v: t(2),
            mask: mask.then(|| t(3)),
            options,
        };
        match *self {
            Recorded::Elementwise { ref kernel, ref shape } => {
                Op::Elementwise { kernel, inputs: operands, params, shape }
            }
            Recorded::ElementwiseMany { ref kernel, ref shapes } => {
                Op::ElementwiseMany { kernel, inputs: operands, params, shapes }
            }
            Recorded::ReduceKernel { ref kernel, ref shape, op, ref axes } => {
                Op::ReduceKernel { kernel, inputs: operands, params, shape, op, axes }
            }
            Recorded::Rows { ref program, ref shape, ref axes } => {
                Op::Rows { program, inputs: operands, params, shape, axes }
            }
            Recorded::Reduce { op, ref axes } => Op::Reduce { op, x: t(0), axes },
            Recorded::Scan { op, axis } => Op::Scan { op, x: t(0), axis },
            Recorded::CumMax { axis, largest } => Op::CumMax { x: t(0), axis, largest },
            Recorded::Matmul => Op::Matmul { lhs: t(0), rhs: t(1) },
            Recorded::MatmulKernel { ref kernel } => {
                Op::MatmulKernel { lhs: t(0), rhs: t(1), kernel, others: &operands[2..], params }
            }
            Recorded::Gather { axis } => Op::Gather { x: t(0), axis, index: t(1) },
            Recorded::Scatter { mode, axis } => {
                Op::Scatter { mode, x: t(0), axis, index: t(1), src: t(2) }
            }
            Recorded::CopyInto { ref view } => Op::CopyInto { dst, view, src: t(0) },
            Recorded::Sort { axis, descending } => Op::Sort { x: t(0), axis, descending },
            Recorded::Random { distribution, ref shape, dtype } => {
                let key = key.unwrap_or(Key { seed: 0, draw: 0 });
                Op::Random { distribution, shape, dtype, key }
            }
            Recorded::Contiguous => Op::Contiguous { x: t(0) },
            Recorded::TopK { axis, k, largest } => Op::TopK { x: t(0), axis, k, largest },
            Recorded::Cat { axis } => Op::Cat { tensors: operands, axis },
            Recorded::Pad { ref widths, value } => Op::Pad { x: t(0), widths, value },
            Recorded::Tri { diagonal, upper } => Op::Tri { x: t(0), diagonal, upper },
            Recorded::Positions { ref sizes } => Op::Positions { indices: operands, sizes },
            Recorded::Conv { ref window } => Op::Conv { x: t(0), weight: t(1), window },
            Recorded::ConvKernel { ref window, ref kernel } => {
                let (x, weight, others) = (t(0), t(1), &operands[2..]);
                Op::ConvKernel { x, weight, window, kernel, others, params }
            }
            Recorded::ConvInputGrad { ref window, ref x_shape } => {
                Op::ConvInputGrad { g: t(0), weight: t(1), window, x_shape }
            }
            Recorded::ConvWeightGrad { ref window, ref weight_shape } => {
                Op::ConvWeightGrad { g: t(0), x: t(1), window, weight_shape }
            }
            Recorded::MaxPool { ref kernel_size, ref window } => {
                Op::MaxPool { x: t(0), kernel_size, window }
            }
            Recorded::MaxPoolGrad { ref x_shape, spatial } => {
                Op::MaxPoolGrad { g: t(0), positions: t(1), x_shape, spatial }
            }
            Recorded::AvgPool { ref kernel_size, ref window } => {
                Op::AvgPool { x: t(0), kernel_size, window }
            }
            Recorded::Attention { options, mask } => {
                Op::Attention { inputs: attention(options, mask) }
            }
            Recorded::AttentionGrad { options, mask, needs } => Op::AttentionGrad {
                inputs: attention(options, mask),
                y: t(last - 2),
                lse: t(last - 1),
                g: t(last),
                needs,
            },
            Recorded::Linalg { op } => Op::Linalg { op, inputs: operands },
        }
    }
}
