//! A request to a device as data: [`Op`] names an operation and borrows its operands.
//!
//! `Tensor` methods make an `Op` and run it; a [`Device`](crate::Device) executes it or declines; a
//! wrapper reads it and passes it on with other operands.
//!
//! ```text
//! mod       Op: its variants, names and operands     kinds      ReduceOp, ScanOp, ScatterMode
//! outputs   shapes and dtypes, storages              linalg     solvers and decompositions
//! window    strides, padding, dilation; conv_shape   attention  options and operands of attention
//! cost      bytes, floating-point operations         group      what an op does with elements
//! ```
//!
//! This folder is data. `Op::outputs` is implemented in `validate`, `Op::run` in `dispatch`: both
//! import this folder, which imports neither them nor a device.
//!
//! To add a fused operation: a variant here, an arm in each `match` of this folder (they have no
//! wildcard, so the compiler lists them), its requirements in [`crate::validate`], its definition
//! in [`crate::definition`], a derivative rule in teeny-autograd and a case of the conformance
//! suite. A device that has no kernel for it needs no change.

mod attention;
mod conv_shape;
mod cost;
mod group;
mod kinds;
mod linalg;
mod outputs;
mod recorded;
mod window;

pub use attention::{Attention, AttentionInputs};
pub(crate) use conv_shape::{at_least_one, pool_window_error};
pub use conv_shape::{conv_shape, pool_shape};
pub use cost::Cost;
pub(crate) use group::OpGroup;
pub use kinds::{ReduceOp, ScanOp, ScatterMode};
#[cfg(feature = "linalg")]
pub(crate) use linalg::matrix_parts;
pub use linalg::{LinalgOp, Triangle};
pub(crate) use outputs::taken;
pub use outputs::{Outputs, TensorSpec, TensorSpecs};
pub(crate) use recorded::{Recorded, RuntimeArgs};
pub use window::Window;

use crate::dtype::DType;
use crate::kernel::{Kernel, MAX_INPUTS, RowFunction};
use crate::layout::Layout;
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::ops::Deref;
use std::sync::Arc;

/// A request to a [`Device`](crate::Device): one operation and its operands.
///
/// Operands are views with any strides (0 and negative included), all on the device that executes
/// the op. Axes count from 0. Each output is new storage, row-major and without gaps; only
/// [`Op::CopyInto`] and [`Op::ElementwiseInPlace`] write to storage that they are given.
///
/// Nine variants are primitives, which every device must execute: `Elementwise`, `Reduce`, `Scan`,
/// `Matmul`, `Gather`, `Scatter`, `CopyInto`, `Sort` and `Random` ([`Op::is_primitive`]). The others
/// are fused: each is defined by primitives ([`crate::definition`]), and a device may decline it.
///
/// An `Op` is plain data that any code may construct, so it may be invalid. [`Op::outputs`] checks
/// it: counts, dtypes, shapes, axes and windows fit each other and no size overflows. A device with
/// `unsafe` kernels calls it before it computes.
///
/// # Example
/// ```
/// use teeny_core::{Op, Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Reference::new();
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?; // (2, 2)
/// let op = Op::Matmul { lhs: &x, rhs: &x };
/// assert_eq!((op.name(), op.cost()?.flops), ("matmul", 16));
/// let y = op.tensor(x.device())?; // (2, 2)
/// assert_eq!(y.to_vec::<f32>()?, [7.0, 10.0, 15.0, 22.0]);
/// # Ok(()) }
/// ```
#[non_exhaustive]
pub enum Op<'a> {
    // ---- primitives ----
    /// Runs `kernel` at every index of `shape`. Inputs have this shape (stride 0 where broadcast);
    /// one output per output of the kernel.
    Elementwise {
        /// The scalar program.
        kernel: &'a Arc<Kernel>,
        /// Its inputs, each of `shape`.
        inputs: &'a [&'a Tensor],
        /// Values of its run-time parameters.
        params: &'a [Scalar],
        /// The shape of the outputs.
        shape: &'a Shape,
    },
    /// Reduces `axes` of `x`. The output has the other axes and the dtype [`ReduceOp::output`].
    /// 16-bit floats accumulate in f32.
    Reduce {
        /// The reduction.
        op: ReduceOp,
        /// The operand.
        x: &'a Tensor,
        /// At least one axis, ascending.
        axes: &'a [usize],
    },
    /// Accumulates along `axis`; shape and dtype of `x`.
    Scan {
        /// Sum or product.
        op: ScanOp,
        /// The operand.
        x: &'a Tensor,
        /// The axis.
        axis: usize,
    },
    /// The running extremum along `axis`: from the first NaN on, NaN. Outputs: the values, and
    /// their positions (`I32`), of equal ones the latest.
    CumMax {
        /// The operand.
        x: &'a Tensor,
        /// The axis.
        axis: usize,
        /// The running maximum, otherwise the minimum.
        largest: bool,
    },
    /// `(.., m, k) @ (.., k, n) -> (.., m, n)`: equal leading sizes, equal dtypes, not bool. `k`
    /// may be 0: zeros. 16-bit floats accumulate in f32; integers wrap.
    Matmul {
        /// `(.., m, k)`.
        lhs: &'a Tensor,
        /// `(.., k, n)`.
        rhs: &'a Tensor,
    },
    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for axis 1 of 3, as `torch.gather`: the shape of
    /// `index`, the dtype of `x`. An index outside `0..size` is an
    /// [`ErrorKind::Index`](crate::ErrorKind::Index) error that names the first offender; a device
    /// that cannot check at once reports it with a later read.
    Gather {
        /// The elements.
        x: &'a Tensor,
        /// The axis that is indexed.
        axis: usize,
        /// Positions of any integer dtype; on every other axis at most as long as `x`.
        index: &'a Tensor,
    },
    /// A copy of `x` with `src` written into it by `mode`:
    /// `out[i][index[i][j][k]][k] ← src[i][j][k]` for axis 1 of 3. Indices are checked as in
    /// [`Op::Gather`].
    Scatter {
        /// How an element is combined with that of the destination.
        mode: ScatterMode,
        /// The elements that are copied first.
        x: &'a Tensor,
        /// The axis that is indexed.
        axis: usize,
        /// Positions, of the shape of `src`.
        index: &'a Tensor,
        /// The elements that are written, of the dtype of `x`.
        src: &'a Tensor,
    },
    /// Overwrites the elements of `dst` that `view` selects by those of `src`, in place if `dst`
    /// has no other owner, in a copy otherwise. The output is the whole storage.
    CopyInto {
        /// The storage. The device takes it; `None` afterwards.
        dst: Option<StorageRef>,
        /// An injective view of `dst`.
        view: &'a Layout,
        /// The new elements, of the view's shape and the storage's dtype.
        src: &'a Tensor,
    },
    /// Sorts along `axis`, stably; NaN counts as the largest. Outputs: the values, and their former
    /// positions (`I32`).
    Sort {
        /// The operand.
        x: &'a Tensor,
        /// The axis.
        axis: usize,
        /// Largest first.
        descending: bool,
    },
    /// Draws `shape.numel()` numbers from the counter-based generator of [`crate::random`]: the
    /// same on every device.
    Random {
        /// The distribution of the numbers.
        distribution: Distribution,
        /// The shape of the output.
        shape: &'a Shape,
        /// The dtype of the output.
        dtype: DType,
        /// The generator's key.
        key: Key,
    },

    // ---- fused: a device may decline ----
    /// [`Op::Elementwise`] of one or two inputs, written over the elements of one of them. Its one
    /// output is `storage` itself, so [`Op::run`] returns no storage. A device declines if the
    /// storage has another owner, or if new storage is no slower.
    ElementwiseInPlace {
        /// The scalar program, of one output.
        kernel: &'a Arc<Kernel>,
        /// All elements of the overwritten input: row-major, of `shape`, of the output's dtype.
        storage: &'a mut StorageRef,
        /// Which input of the kernel `storage` is: 0 or 1.
        input_index: usize,
        /// The other input, of `shape`.
        other: Option<&'a Tensor>,
        /// Values of the kernel's run-time parameters.
        params: &'a [Scalar],
        /// The shape of both.
        shape: &'a Shape,
    },
    /// [`Op::Elementwise`] of one kernel for each of `shapes`: many small tensors in one request,
    /// such as the updates of an optimizer. Inputs, parameters and outputs of the shapes follow each
    /// other; each output has a separate storage.
    ElementwiseMany {
        /// The scalar program.
        kernel: &'a Arc<Kernel>,
        /// For each shape the inputs of the kernel, each of that shape.
        inputs: &'a [&'a Tensor],
        /// For each shape the values of the kernel's run-time parameters.
        params: &'a [Scalar],
        /// The shapes of the outputs.
        shapes: &'a [Shape],
    },
    /// [`Op::Elementwise`] of one output and [`Op::Reduce`] of it, without storing the elements in
    /// between.
    ReduceKernel {
        /// The scalar program, of at least one input and one output.
        kernel: &'a Arc<Kernel>,
        /// Its inputs, each of `shape`.
        inputs: &'a [&'a Tensor],
        /// Values of its run-time parameters.
        params: &'a [Scalar],
        /// The shape before the reduction.
        shape: &'a Shape,
        /// The reduction.
        op: ReduceOp,
        /// At least one axis, ascending.
        axes: &'a [usize],
    },
    /// Runs a row program ([`crate::kernel::rows`]) on each row of `shape`: the elements along
    /// `axes`. Outputs: of `shape`, or with size 1 along `axes` for one value a row
    /// ([`Kernel::output_extent`]).
    Rows {
        /// The row program, of at least one input.
        program: &'a Arc<Kernel>,
        /// Its inputs, each of `shape`, or with size 1 along `axes` for one value a row
        /// ([`Kernel::input_extent`]).
        inputs: &'a [&'a Tensor],
        /// Values of its run-time parameters.
        params: &'a [Scalar],
        /// The shape of all rows.
        shape: &'a Shape,
        /// At least one axis, ascending.
        axes: &'a [usize],
    },
    /// [`Op::Matmul`] and [`Op::Elementwise`] at every index of the product, which is the kernel's
    /// first input. Each output has the product's shape. A product of 16-bit floats is rounded to
    /// its dtype before the kernel reads it.
    MatmulKernel {
        /// `(.., m, k)`.
        lhs: &'a Tensor,
        /// `(.., k, n)`.
        rhs: &'a Tensor,
        /// The scalar program; its first input has the dtype of the product.
        kernel: &'a Arc<Kernel>,
        /// The kernel's further inputs, each of the product's shape.
        others: &'a [&'a Tensor],
        /// Values of its run-time parameters.
        params: &'a [Scalar],
    },
    /// A row-major copy.
    Contiguous {
        /// The operand.
        x: &'a Tensor,
    },
    /// The first `k` outputs of [`Op::Sort`]: the largest or the smallest elements along `axis`, in
    /// order, and their positions (`I32`).
    TopK {
        /// The operand.
        x: &'a Tensor,
        /// The axis.
        axis: usize,
        /// How many, at most the size of the axis.
        k: usize,
        /// The largest, in descending order; otherwise the smallest, ascending.
        largest: bool,
    },
    /// The tensors one after another along `axis`.
    Cat {
        /// At least one; equal in dtype and in all sizes but that of `axis`.
        tensors: &'a [&'a Tensor],
        /// The axis.
        axis: usize,
    },
    /// `x` with elements of one value around it.
    Pad {
        /// The operand.
        x: &'a Tensor,
        /// How many in front of each axis and behind it.
        widths: &'a [(usize, usize)],
        /// The value, as the dtype of `x` holds it.
        value: Scalar,
    },
    /// The matrices of the last two axes with zeros on one side of a diagonal.
    Tri {
        /// At least two axes.
        x: &'a Tensor,
        /// Columns from the main diagonal to the right.
        diagonal: i32,
        /// The elements on the diagonal and above it are kept; otherwise those on it and below.
        upper: bool,
    },
    /// Positions in several axes as positions in these axes joined into one (`I64`):
    /// `Σ indices[i] * Π sizes[i + 1..]`. Negative ones count from the end of their axis; -1 where
    /// one is outside it.
    Positions {
        /// Integers of one shape, one tensor for each axis.
        indices: &'a [&'a Tensor],
        /// The sizes of the axes.
        sizes: &'a [usize],
    },
    /// Convolution (cross-correlation): output (N, C_out, ..). One float dtype.
    Conv {
        /// (N, C_in, ..).
        x: &'a Tensor,
        /// (C_out, C_in / groups, ..).
        weight: &'a Tensor,
        /// Stride, padding, dilation, groups.
        window: &'a Window,
    },
    /// [`Op::Conv`] and [`Op::Elementwise`] at every index of its output, as [`Op::MatmulKernel`].
    ConvKernel {
        /// (N, C_in, ..).
        x: &'a Tensor,
        /// (C_out, C_in / groups, ..).
        weight: &'a Tensor,
        /// Stride, padding, dilation, groups.
        window: &'a Window,
        /// The scalar program; its first input has the dtype of the convolution.
        kernel: &'a Arc<Kernel>,
        /// The kernel's further inputs, each of the convolution's shape.
        others: &'a [&'a Tensor],
        /// Values of its run-time parameters.
        params: &'a [Scalar],
    },
    /// The gradient of [`Op::Conv`] for `x`; also the transposed convolution of `g`.
    ConvInputGrad {
        /// The gradient of the output (N, C_out, ..).
        g: &'a Tensor,
        /// (C_out, C_in / groups, ..).
        weight: &'a Tensor,
        /// Stride, padding, dilation, groups.
        window: &'a Window,
        /// The shape of `x` and of the output of this op.
        x_shape: &'a Shape,
    },
    /// The gradient of [`Op::Conv`] for `weight`.
    ConvWeightGrad {
        /// The gradient of the output (N, C_out, ..).
        g: &'a Tensor,
        /// (N, C_in, ..).
        x: &'a Tensor,
        /// Stride, padding, dilation, groups.
        window: &'a Window,
        /// The shape of `weight` and of the output of this op.
        weight_shape: &'a Shape,
    },
    /// The largest element of every window over the last `kernel_size.len()` axes. Outputs: the
    /// values, and their positions (`I32`) in the flattened spatial axes of `x`. The first largest
    /// and the first NaN win. A window that sees only padding has the lowest value of the dtype
    /// ([`crate::definition::lowest`]) and position -1.
    MaxPool {
        /// `(.., spatial)`.
        x: &'a Tensor,
        /// The window's size on each spatial axis.
        kernel_size: &'a [usize],
        /// Stride, padding, dilation.
        window: &'a Window,
    },
    /// The gradient of [`Op::MaxPool`] for `x`: `g` added at `positions`, nowhere for -1.
    MaxPoolGrad {
        /// The gradient of the values.
        g: &'a Tensor,
        /// The positions that [`Op::MaxPool`] returned.
        positions: &'a Tensor,
        /// The shape of `x` and of the output of this op.
        x_shape: &'a Shape,
        /// The number of spatial axes.
        spatial: usize,
    },
    /// The mean of every window over the last `kernel_size.len()` axes; padding counts as zeros.
    AvgPool {
        /// `(.., spatial)`.
        x: &'a Tensor,
        /// The window's size on each spatial axis.
        kernel_size: &'a [usize],
        /// Stride, padding, dilation.
        window: &'a Window,
    },
    /// Scaled dot-product attention. Outputs: y (.., T, hv) of the operands' dtype, and the
    /// logsumexp of each query's scores (.., T) in the accumulation dtype, -inf for a query that
    /// sees no key; its y is 0. A position that the causal limit, the window, `false` or -inf in the
    /// mask hides contributes nothing, whatever k and v are there. See [`crate::attention`].
    Attention {
        /// Queries, keys, values, mask and options.
        inputs: AttentionInputs<'a>,
    },
    /// The gradients of [`Op::Attention`]'s y for q, k and v: one output for each that `needs`
    /// requests, in this order. A hidden position contributes nothing, whatever q, k, v and g are
    /// there.
    AttentionGrad {
        /// The operands of the forward pass.
        inputs: AttentionInputs<'a>,
        /// Its first output.
        y: &'a Tensor,
        /// Its second output.
        lse: &'a Tensor,
        /// The gradient of y.
        g: &'a Tensor,
        /// Which of the gradients for q, k and v are computed; at least one.
        needs: [bool; 3],
    },
    /// Solves or factors matrices; outputs as [`LinalgOp::results`] describes. A matrix without a
    /// result is an error that names its place in the batch.
    Linalg {
        /// The solver or decomposition.
        op: LinalgOp,
        /// Matrices (.., m, n) of one dtype, f32 or f64, with equal leading axes.
        inputs: &'a [&'a Tensor],
    },
}

/// The tensors that an [`Op`] reads, in the order of [`Op::operand_names`].
pub enum Operands<'a> {
    /// Operands that the op holds as a list.
    List(&'a [&'a Tensor]),
    /// A fixed number of operands; the first `len` of the array count.
    Fixed {
        /// The operands; the last one fills the rest of the array.
        tensors: [&'a Tensor; MAX_FIXED],
        /// How many there are.
        len: usize,
    },
}

/// The most operands of an op that does not hold all of them as one list: both of a product and the
/// other inputs of its kernel.
const MAX_FIXED: usize = 1 + MAX_INPUTS;

impl<'a> Operands<'a> {
    fn fixed(tensors: &[Option<&'a Tensor>]) -> Operands<'a> {
        let mut present = tensors.iter().copied().flatten();
        let Some(first) = present.next() else { return Operands::List(&[]) };
        let (mut all, mut len) = ([first; MAX_FIXED], 1);
        for x in present {
            all[len] = x;
            len += 1;
        }
        Operands::Fixed { tensors: all, len }
    }

    /// The operands of a product and the other inputs of its kernel. More than a kernel has are no
    /// valid op, and those beyond are left out.
    fn of_product(a: &'a Tensor, b: &'a Tensor, others: &[&'a Tensor]) -> Operands<'a> {
        let (mut tensors, len) = ([b; MAX_FIXED], 2 + others.len().min(MAX_FIXED - 2));
        tensors[0] = a;
        tensors[2..len].copy_from_slice(&others[..len - 2]);
        Operands::Fixed { tensors, len }
    }
}

impl<'a> Deref for Operands<'a> {
    type Target = [&'a Tensor];
    fn deref(&self) -> &[&'a Tensor] {
        match self {
            Operands::List(list) => list,
            Operands::Fixed { tensors, len } => &tensors[..*len],
        }
    }
}

impl<'a> Op<'a> {
    /// The op's name. For a kernel of one operation, the name of that operation, otherwise
    /// `kernel`.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Elementwise { kernel, .. } | Op::ElementwiseInPlace { kernel, .. } => {
                kernel.single().map_or("kernel", |node| node.op.name())
            }
            Op::ElementwiseMany { .. } => "elementwise_many",
            Op::ReduceKernel { .. } => "reduce_kernel",
            Op::Rows { program, .. } => program.row_function().map_or("rows", RowFunction::name),
            Op::Reduce { op, .. } => op.name(),
            Op::Scan { op, .. } => op.name(),
            Op::CumMax { largest: true, .. } => "cummax",
            Op::CumMax { .. } => "cummin",
            Op::Random { .. } => "random",
            Op::Matmul { .. } => "matmul",
            Op::Gather { .. } => "gather",
            Op::Scatter { .. } => "scatter",
            Op::CopyInto { .. } => "copy_into",
            Op::Sort { .. } => "sort",
            Op::MatmulKernel { .. } => "matmul_kernel",
            Op::ConvKernel { .. } => "conv_kernel",
            Op::Contiguous { .. } => "contiguous",
            Op::TopK { .. } => "topk",
            Op::Cat { .. } => "cat",
            Op::Pad { .. } => "pad",
            Op::Tri { upper: false, .. } => "tril",
            Op::Tri { .. } => "triu",
            Op::Positions { .. } => "positions",
            Op::Conv { .. } => "conv",
            Op::ConvInputGrad { .. } => "conv_input_grad",
            Op::ConvWeightGrad { .. } => "conv_weight_grad",
            Op::MaxPool { .. } => "max_pool",
            Op::MaxPoolGrad { .. } => "max_pool_grad",
            Op::AvgPool { .. } => "avg_pool",
            Op::Attention { .. } => "attention",
            Op::AttentionGrad { .. } => "attention_grad",
            Op::Linalg { op, .. } => op.name(),
        }
    }

    /// True for the ops that every device must execute.
    pub fn is_primitive(&self) -> bool {
        match self {
            Op::Elementwise { .. }
            | Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::Matmul { .. }
            | Op::Gather { .. }
            | Op::Scatter { .. }
            | Op::CopyInto { .. }
            | Op::Sort { .. }
            | Op::Random { .. } => true,
            Op::ElementwiseInPlace { .. }
            | Op::ElementwiseMany { .. }
            | Op::ReduceKernel { .. }
            | Op::Rows { .. }
            | Op::MatmulKernel { .. }
            | Op::ConvKernel { .. }
            | Op::CumMax { .. }
            | Op::Contiguous { .. }
            | Op::TopK { .. }
            | Op::Cat { .. }
            | Op::Pad { .. }
            | Op::Tri { .. }
            | Op::Positions { .. }
            | Op::Conv { .. }
            | Op::ConvInputGrad { .. }
            | Op::ConvWeightGrad { .. }
            | Op::MaxPool { .. }
            | Op::MaxPoolGrad { .. }
            | Op::AvgPool { .. }
            | Op::Attention { .. }
            | Op::AttentionGrad { .. }
            | Op::Linalg { .. } => false,
        }
    }

    /// The tensors that the op reads, without the storage it owns (a destination or an overwritten
    /// input).
    pub fn operands(&self) -> Operands<'a> {
        let attention = |i: &AttentionInputs<'a>, rest: [Option<&'a Tensor>; 3]| {
            let [y, lse, g] = rest;
            Operands::fixed(&[Some(i.q), Some(i.k), Some(i.v), i.mask, y, lse, g])
        };
        match *self {
            Op::Elementwise { inputs, .. }
            | Op::ElementwiseMany { inputs, .. }
            | Op::ReduceKernel { inputs, .. }
            | Op::Rows { inputs, .. }
            | Op::Linalg { inputs, .. } => Operands::List(inputs),
            Op::Cat { tensors, .. } => Operands::List(tensors),
            Op::Positions { indices, .. } => Operands::List(indices),
            Op::Random { .. } => Operands::List(&[]),
            Op::ElementwiseInPlace { other, .. } => Operands::fixed(&[other]),
            Op::Reduce { x, .. }
            | Op::Scan { x, .. }
            | Op::CumMax { x, .. }
            | Op::Sort { x, .. }
            | Op::Contiguous { x }
            | Op::TopK { x, .. }
            | Op::Pad { x, .. }
            | Op::Tri { x, .. }
            | Op::MaxPool { x, .. }
            | Op::AvgPool { x, .. } => Operands::fixed(&[Some(x)]),
            Op::CopyInto { src, .. } => Operands::fixed(&[Some(src)]),
            Op::Matmul { lhs, rhs } => Operands::fixed(&[Some(lhs), Some(rhs)]),
            Op::MatmulKernel { lhs, rhs, others, .. } => Operands::of_product(lhs, rhs, others),
            Op::ConvKernel { x, weight, others, .. } => Operands::of_product(x, weight, others),
            Op::Gather { x, index, .. } => Operands::fixed(&[Some(x), Some(index)]),
            Op::Scatter { x, index, src, .. } => {
                Operands::fixed(&[Some(x), Some(index), Some(src)])
            }
            Op::Conv { x, weight, .. } => Operands::fixed(&[Some(x), Some(weight)]),
            Op::ConvInputGrad { g, weight, .. } => Operands::fixed(&[Some(g), Some(weight)]),
            Op::ConvWeightGrad { g, x, .. } => Operands::fixed(&[Some(g), Some(x)]),
            Op::MaxPoolGrad { g, positions, .. } => Operands::fixed(&[Some(g), Some(positions)]),
            Op::Attention { ref inputs } => attention(inputs, [None; 3]),
            Op::AttentionGrad { ref inputs, y, lse, g, .. } => {
                attention(inputs, [Some(y), Some(lse), Some(g)])
            }
        }
    }

    /// The names of [`Op::operands`], for messages; the last one repeats for further operands.
    pub fn operand_names(&self) -> &'static [&'static str] {
        const INPUTS: [&str; MAX_INPUTS] = [
            "input 0", "input 1", "input 2", "input 3", "input 4", "input 5", "input 6", "input 7",
        ];
        match self {
            Op::Elementwise { .. } | Op::ReduceKernel { .. } => &INPUTS,
            Op::Rows { program, .. } => {
                let count = program.inputs().len();
                program.row_function().map_or(&INPUTS, |function| function.input_names(count))
            }
            Op::Random { .. } => &[],
            Op::ElementwiseMany { .. } => &["input"],
            Op::ElementwiseInPlace { .. } => &["other"],
            Op::Cat { .. } => &["tensor"],
            Op::Positions { .. } => &["index"],
            Op::Linalg { .. } => &["a", "b"],
            Op::Reduce { .. }
            | Op::Scan { .. }
            | Op::CumMax { .. }
            | Op::Sort { .. }
            | Op::Contiguous { .. }
            | Op::TopK { .. }
            | Op::Pad { .. }
            | Op::Tri { .. }
            | Op::MaxPool { .. }
            | Op::AvgPool { .. } => &["x"],
            Op::CopyInto { .. } => &["src"],
            Op::Matmul { .. } => &["lhs", "rhs"],
            Op::MatmulKernel { .. } => &[
                "lhs", "rhs", "input 1", "input 2", "input 3", "input 4", "input 5", "input 6",
                "input 7",
            ],
            Op::ConvKernel { .. } => &[
                "x", "weight", "input 1", "input 2", "input 3", "input 4", "input 5", "input 6",
                "input 7",
            ],
            Op::Gather { .. } => &["x", "index"],
            Op::Scatter { .. } => &["x", "index", "src"],
            Op::Conv { .. } => &["x", "weight"],
            Op::ConvInputGrad { .. } => &["g", "weight"],
            Op::ConvWeightGrad { .. } => &["g", "x"],
            Op::MaxPoolGrad { .. } => &["g", "positions"],
            Op::Attention { .. } => &["q", "k", "v", "mask"],
            Op::AttentionGrad { inputs, .. } if inputs.mask.is_none() => {
                &["q", "k", "v", "y", "lse", "g"]
            }
            Op::AttentionGrad { .. } => &["q", "k", "v", "mask", "y", "lse", "g"],
        }
    }

    /// [`Op::operands`] with their names.
    pub fn named_operands(&self) -> impl Iterator<Item = (&'static str, &'a Tensor)> + use<'a> {
        let (names, operands) = (self.operand_names(), self.operands());
        let count = operands.len();
        (0..count)
            .map(move |i| (names.get(i).or(names.last()).copied().unwrap_or("x"), operands[i]))
    }

    /// The same op on other operands, one for each of [`Op::operands`] and in their order: how a
    /// wrapper passes an op on. Storage that the op owns moves to the new op: the destination of
    /// [`Op::CopyInto`] is taken.
    ///
    /// # Panics
    /// If `operands` has another length than [`Op::operands`].
    pub fn with_operands<'b>(&'b mut self, operands: &'b [&'b Tensor]) -> Op<'b> {
        let count = self.operands().len();
        assert_eq!(operands.len(), count, "an op on {count} operands");
        let t = |i: usize| operands[i];
        match *self {
            Op::Elementwise { kernel, params, shape, .. } => {
                Op::Elementwise { kernel, inputs: operands, params, shape }
            }
            Op::ElementwiseInPlace {
                kernel,
                ref mut storage,
                input_index,
                other,
                params,
                shape,
            } => {
                let other = other.map(|_| t(0));
                Op::ElementwiseInPlace { kernel, storage, input_index, other, params, shape }
            }
            Op::ElementwiseMany { kernel, params, shapes, .. } => {
                Op::ElementwiseMany { kernel, inputs: operands, params, shapes }
            }
            Op::ReduceKernel { kernel, params, shape, op, axes, .. } => {
                Op::ReduceKernel { kernel, inputs: operands, params, shape, op, axes }
            }
            Op::Rows { program, params, shape, axes, .. } => {
                Op::Rows { program, inputs: operands, params, shape, axes }
            }
            Op::Reduce { op, axes, .. } => Op::Reduce { op, x: t(0), axes },
            Op::Scan { op, axis, .. } => Op::Scan { op, x: t(0), axis },
            Op::CumMax { axis, largest, .. } => Op::CumMax { x: t(0), axis, largest },
            Op::Matmul { .. } => Op::Matmul { lhs: t(0), rhs: t(1) },
            Op::MatmulKernel { kernel, params, .. } => {
                Op::MatmulKernel { lhs: t(0), rhs: t(1), kernel, others: &operands[2..], params }
            }
            Op::ConvKernel { window, kernel, params, .. } => {
                let (x, weight, others) = (t(0), t(1), &operands[2..]);
                Op::ConvKernel { x, weight, window, kernel, others, params }
            }
            Op::Gather { axis, .. } => Op::Gather { x: t(0), axis, index: t(1) },
            Op::Scatter { mode, axis, .. } => {
                Op::Scatter { mode, x: t(0), axis, index: t(1), src: t(2) }
            }
            Op::CopyInto { ref mut dst, view, .. } => {
                Op::CopyInto { dst: dst.take(), view, src: t(0) }
            }
            Op::Sort { axis, descending, .. } => Op::Sort { x: t(0), axis, descending },
            Op::Random { distribution, shape, dtype, key } => {
                Op::Random { distribution, shape, dtype, key }
            }
            Op::Contiguous { .. } => Op::Contiguous { x: t(0) },
            Op::TopK { axis, k, largest, .. } => Op::TopK { x: t(0), axis, k, largest },
            Op::Cat { axis, .. } => Op::Cat { tensors: operands, axis },
            Op::Pad { widths, value, .. } => Op::Pad { x: t(0), widths, value },
            Op::Tri { diagonal, upper, .. } => Op::Tri { x: t(0), diagonal, upper },
            Op::Positions { sizes, .. } => Op::Positions { indices: operands, sizes },
            Op::Conv { window, .. } => Op::Conv { x: t(0), weight: t(1), window },
            Op::ConvInputGrad { window, x_shape, .. } => {
                Op::ConvInputGrad { g: t(0), weight: t(1), window, x_shape }
            }
            Op::ConvWeightGrad { window, weight_shape, .. } => {
                Op::ConvWeightGrad { g: t(0), x: t(1), window, weight_shape }
            }
            Op::MaxPool { kernel_size, window, .. } => Op::MaxPool { x: t(0), kernel_size, window },
            Op::MaxPoolGrad { x_shape, spatial, .. } => {
                Op::MaxPoolGrad { g: t(0), positions: t(1), x_shape, spatial }
            }
            Op::AvgPool { kernel_size, window, .. } => Op::AvgPool { x: t(0), kernel_size, window },
            Op::Attention { ref inputs } => {
                Op::Attention { inputs: inputs.with_operands(operands) }
            }
            Op::AttentionGrad { ref inputs, needs, .. } => Op::AttentionGrad {
                inputs: inputs.with_operands(operands),
                y: t(count - 3),
                lse: t(count - 2),
                g: t(count - 1),
                needs,
            },
            Op::Linalg { op, .. } => Op::Linalg { op, inputs: operands },
        }
    }
}

impl std::fmt::Debug for Op<'_> {
    /// The name with the dtypes and shapes of the operands.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut call = f.debug_struct(self.name());
        for (name, x) in self.named_operands() {
            call.field(name, &format_args!("{} {}", x.dtype(), x.shape()));
        }
        call.finish()
    }
}
