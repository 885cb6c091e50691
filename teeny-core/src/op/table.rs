//! The table of requests: [`Op`], one row per operation.
//!
//! The fields of a row are in three groups, each of which ends with `;`: the operands, which are
//! the tensors that the op reads; the attributes, which with the name are its recorded form; and
//! what differs from one run to the next: parameters, a key, the storage that the device takes.
//! Then follow its name and its operands' names, where they differ from the fields'; whether it
//! only moves, chooses or draws elements; and the floating-point operations of its definition.
//! These columns are expressions over references to the fields, and `request` is the op itself.

use super::attention::AttentionInputs;
use super::cost::*;
use super::fields::{Attribute, Operand, Rest, RunTime, RuntimeArgs};
use super::kinds::{Extremum, ReduceOp, ScanOp, ScatterMode, SortOrder};
use super::linalg::LinalgOp;
use super::operands::Operands;
use super::requests::requests;
use super::window::Window;
use crate::dtype::DType;
use crate::kernel::{Kernel, MAX_INPUTS, RowFunction};
use crate::layout::Layout;
use crate::quant::Part;
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::any::Any;
use std::sync::Arc;

/// Names of the inputs of a kernel.
const INPUTS: [&str; MAX_INPUTS] =
    ["input 0", "input 1", "input 2", "input 3", "input 4", "input 5", "input 6", "input 7"];

/// Names of the operands of a product with a kernel.
const PRODUCT_INPUTS: [&str; 1 + MAX_INPUTS] = followed_by_inputs("lhs", "rhs");

/// Names of the operands of a convolution with a kernel.
const CONV_INPUTS: [&str; 1 + MAX_INPUTS] = followed_by_inputs("x", "weight");

/// Two operands, and the inputs of a kernel after the first.
const fn followed_by_inputs(a: &'static str, b: &'static str) -> [&'static str; 1 + MAX_INPUTS] {
    let [_, c, d, e, f, g, h, i] = INPUTS;
    [a, b, c, d, e, f, g, h, i]
}

/// The name of the operation if `kernel` has only one.
fn kernel_name(kernel: &Kernel) -> &'static str {
    kernel.single().map_or("kernel", |node| node.op.name())
}

/// Names of the inputs of a row program.
fn row_input_names(program: &Kernel) -> &'static [&'static str] {
    let count = program.inputs().len();
    program.row_function().map_or(&INPUTS, |function| function.input_names(count))
}

requests! {
    request;

    /// Runs `kernel` at every index of `shape`. Inputs have this shape (stride 0 where broadcast);
    /// one output per output of the kernel.
    primitive Elementwise {
        /// Its inputs, each of `shape`.
        inputs: &'a [&'a Tensor];
        /// The scalar program.
        kernel: &'a Arc<Kernel>,
        /// The shape of the outputs.
        shape: &'a Shape;
        /// Values of its run-time parameters.
        params: &'a [Scalar];
        name kernel_name(kernel), operand_names &INPUTS, moves false,
        flops arithmetic(kernel) * shape.numel() as u64
    }

    /// Reduces `axes` of `x`. The output has the other axes and the dtype [`ReduceOp::output`].
    /// 16-bit floats accumulate in f32.
    primitive Reduce {
        /// The operand.
        x: &'a Tensor;
        /// The reduction.
        op: ReduceOp,
        /// At least one axis, ascending.
        axes: &'a [usize]; ;
        name op.name(), moves false, flops numel(x)
    }

    /// Accumulates along `axis`; shape and dtype of `x`.
    primitive Scan {
        /// The operand.
        x: &'a Tensor;
        /// Sum or product.
        op: ScanOp,
        /// The axis.
        axis: usize; ;
        name op.name(), moves false, flops numel(x)
    }

    /// The running extremum along `axis`: from the first NaN on, NaN. Outputs: the values, and
    /// their positions (`I32`), of equal ones the latest.
    fused CumMax {
        /// The operand.
        x: &'a Tensor;
        /// The axis.
        axis: usize,
        /// The running maximum or minimum.
        extremum: Extremum; ;
        name match extremum { Extremum::Largest => "cummax", Extremum::Smallest => "cummin" },
        moves true, flops numel(x)
    }

    /// `(.., m, k) @ (.., k, n) -> (.., m, n)`: equal leading sizes, equal dtypes, not bool. `k`
    /// may be 0: zeros. 16-bit floats accumulate in f32; integers wrap.
    primitive Matmul {
        /// `(.., m, k)`.
        lhs: &'a Tensor,
        /// `(.., k, n)`.
        rhs: &'a Tensor; ; ;
        name "matmul", moves false, flops product(lhs, rhs)
    }

    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for axis 1 of 3, as `torch.gather`: the shape of
    /// `index`, the dtype of `x`. An index outside `0..size` is an
    /// [`ErrorKind::Index`](crate::ErrorKind::Index) error that names the first offender; a device
    /// that cannot check at once reports it with a later read.
    primitive Gather {
        /// The elements.
        x: &'a Tensor,
        /// Positions of any integer dtype; on every other axis at most as long as `x`.
        index: &'a Tensor;
        /// The axis that is indexed.
        axis: usize; ;
        name "gather", moves true, flops 0
    }

    /// A copy of `x` with `src` written into it by `mode`:
    /// `out[i][index[i][j][k]][k] ← src[i][j][k]` for axis 1 of 3. Indices are checked as in
    /// [`Op::Gather`].
    primitive Scatter {
        /// The elements that are copied first.
        x: &'a Tensor,
        /// Positions, of the shape of `src`.
        index: &'a Tensor,
        /// The elements that are written, of the dtype of `x`.
        src: &'a Tensor;
        /// How an element is combined with the destination's.
        mode: ScatterMode,
        /// The axis that is indexed.
        axis: usize; ;
        name "scatter", moves *mode == ScatterMode::Set, flops numel(src)
    }

    /// Overwrites the elements of `dst` that `view` selects with `src`, in place if `dst` has no
    /// other owner, in a copy otherwise. The output is the whole storage.
    primitive CopyInto {
        /// The new elements, of the view's shape and the storage's dtype.
        src: &'a Tensor;
        /// An injective view of `dst`.
        view: &'a Layout;
        /// The storage. The device takes it; `None` afterwards.
        dst: Option<StorageRef>;
        name "copy_into", moves true, flops 0
    }

    /// Sorts along `axis`, stably; NaN counts as the largest. Outputs: the values, and their former
    /// positions (`I32`).
    primitive Sort {
        /// The operand.
        x: &'a Tensor;
        /// The axis.
        axis: usize,
        /// Smallest or largest first.
        order: SortOrder; ;
        name "sort", moves true, flops 0
    }

    /// Draws `shape.numel()` numbers from the counter-based generator of [`crate::random`]: the
    /// same on every device.
    primitive Random {
        ;
        /// The distribution of the numbers.
        distribution: Distribution,
        /// The shape of the output.
        shape: &'a Shape,
        /// The dtype of the output.
        dtype: DType;
        /// The generator's key.
        key: Key;
        name "random", moves true, flops 0
    }

    /// [`Op::Elementwise`] of one kernel for each of `shapes`: many small tensors in one request,
    /// such as the updates of an optimizer. Inputs, parameters and outputs of the shapes follow each
    /// other; each output has a separate storage.
    fused ElementwiseMany {
        /// For each shape the inputs of the kernel, each of that shape.
        inputs: &'a [&'a Tensor];
        /// The scalar program.
        kernel: &'a Arc<Kernel>,
        /// The shapes of the outputs.
        shapes: &'a [Shape];
        /// For each shape the values of the kernel's run-time parameters.
        params: &'a [Scalar];
        name "elementwise_many", operand_names &["input"], moves false,
        flops arithmetic(kernel) * shapes.iter().map(|shape| shape.numel() as u64).sum::<u64>()
    }

    /// [`Op::Elementwise`] of one output and [`Op::Reduce`] of it, without storing the elements in
    /// between.
    fused ReduceKernel {
        /// Its inputs, each of `shape`.
        inputs: &'a [&'a Tensor];
        /// The scalar program, of at least one input and one output.
        kernel: &'a Arc<Kernel>,
        /// The shape before the reduction.
        shape: &'a Shape,
        /// The reduction.
        op: ReduceOp,
        /// At least one axis, ascending.
        axes: &'a [usize];
        /// Values of its run-time parameters.
        params: &'a [Scalar];
        name "reduce_kernel", operand_names &INPUTS, moves false,
        flops (arithmetic(kernel) + 1) * shape.numel() as u64
    }

    /// Runs a row program ([`crate::kernel::rows`]) on each row of `shape`: the elements along
    /// `axes`. Outputs: of `shape`, or with size 1 along `axes` for one value a row
    /// ([`Kernel::output_extent`]).
    fused Rows {
        /// Its inputs, each of `shape`, or with size 1 along `axes` for one value a row
        /// ([`Kernel::input_extent`]).
        inputs: &'a [&'a Tensor];
        /// The row program, of at least one input.
        program: &'a Arc<Kernel>,
        /// The shape of all rows.
        shape: &'a Shape,
        /// At least one axis, ascending.
        axes: &'a [usize];
        /// Values of its run-time parameters.
        params: &'a [Scalar];
        name program.row_function().map_or("rows", RowFunction::name),
        operand_names row_input_names(program), moves false,
        flops of_rows(program, shape, axes)
    }

    /// [`Op::Matmul`] and [`Op::Elementwise`] at every index of the product, which is the kernel's
    /// first input. Each output has the product's shape. A product of 16-bit floats is rounded to
    /// its dtype before the kernel reads it.
    fused MatmulKernel {
        /// `(.., m, k)`.
        lhs: &'a Tensor,
        /// `(.., k, n)`.
        rhs: &'a Tensor,
        /// The kernel's further inputs, each of the product's shape.
        others: &'a [&'a Tensor];
        /// The scalar program; its first input has the dtype of the product.
        kernel: &'a Arc<Kernel>;
        /// Values of its run-time parameters.
        params: &'a [Scalar];
        name "matmul_kernel", operand_names &PRODUCT_INPUTS, moves false,
        flops product(lhs, rhs) + arithmetic(kernel) * results(request)
    }

    /// A row-major copy.
    fused Contiguous {
        /// The operand.
        x: &'a Tensor; ; ;
        name "contiguous", moves true, flops 0
    }

    /// The first `k` outputs of [`Op::Sort`]: the largest or the smallest elements along `axis`, in
    /// order, and their positions (`I32`).
    fused TopK {
        /// The operand.
        x: &'a Tensor;
        /// The axis.
        axis: usize,
        /// How many, at most the size of the axis.
        k: usize,
        /// The largest, in descending order, or the smallest, ascending.
        extremum: Extremum; ;
        name "topk", moves true, flops 0
    }

    /// The tensors one after another along `axis`.
    fused Cat {
        /// At least one; equal in dtype and in all sizes except on `axis`.
        tensors: &'a [&'a Tensor];
        /// The axis.
        axis: usize; ;
        name "cat", operand_names &["tensor"], moves true, flops 0
    }

    /// `x` with elements of one value around it.
    fused Pad {
        /// The operand.
        x: &'a Tensor;
        /// How many in front of each axis and after it.
        widths: &'a [(usize, usize)],
        /// The value, as the dtype of `x` holds it.
        value: Scalar; ;
        name "pad", moves true, flops 0
    }

    /// The matrices of the last two axes with zeros on one side of a diagonal.
    fused Tri {
        /// At least two axes.
        x: &'a Tensor;
        /// Columns from the main diagonal to the right.
        diagonal: i32,
        /// Keeps the elements on and above the diagonal; otherwise on and below it.
        upper: bool; ;
        name if *upper { "triu" } else { "tril" }, moves true, flops 0
    }

    /// Positions in several axes as positions in these axes joined into one (`I64`):
    /// `Σ indices[i] * Π sizes[i + 1..]`. Negative ones count from the end of their axis; -1 where
    /// one is outside it.
    fused Positions {
        /// Integers of one shape, one tensor for each axis.
        indices: &'a [&'a Tensor];
        /// The sizes of the axes.
        sizes: &'a [usize]; ;
        name "positions", operand_names &["index"], moves false,
        flops indices.iter().skip(1).map(|index| 2 * numel(index)).sum()
    }

    /// Convolution (cross-correlation): output (N, C_out, ..). One float dtype.
    fused Conv {
        /// (N, C_in, ..).
        x: &'a Tensor,
        /// (C_out, C_in / groups, ..).
        weight: &'a Tensor;
        /// Stride, padding, dilation, groups.
        window: &'a Window; ;
        name "conv", moves false, flops filters(results(request), weight.shape())
    }

    /// [`Op::Conv`] and [`Op::Elementwise`] at every index of its output, as [`Op::MatmulKernel`].
    fused ConvKernel {
        /// (N, C_in, ..).
        x: &'a Tensor,
        /// (C_out, C_in / groups, ..).
        weight: &'a Tensor,
        /// The kernel's further inputs, each of the convolution's shape.
        others: &'a [&'a Tensor];
        /// Stride, padding, dilation, groups.
        window: &'a Window,
        /// The scalar program; its first input has the dtype of the convolution.
        kernel: &'a Arc<Kernel>;
        /// Values of its run-time parameters.
        params: &'a [Scalar];
        name "conv_kernel", operand_names &CONV_INPUTS, moves false,
        flops filters(results(request), weight.shape()) + arithmetic(kernel) * results(request)
    }

    /// The gradient of [`Op::Conv`] for `x`; also the transposed convolution of `g`.
    fused ConvInputGrad {
        /// The gradient of the output (N, C_out, ..).
        g: &'a Tensor,
        /// (C_out, C_in / groups, ..).
        weight: &'a Tensor;
        /// Stride, padding, dilation, groups.
        window: &'a Window,
        /// The shape of `x` and of the output of this op.
        x_shape: &'a Shape; ;
        name "conv_input_grad", moves false, flops filters(numel(g), weight.shape())
    }

    /// The gradient of [`Op::Conv`] for `weight`.
    fused ConvWeightGrad {
        /// The gradient of the output (N, C_out, ..).
        g: &'a Tensor,
        /// (N, C_in, ..).
        x: &'a Tensor;
        /// Stride, padding, dilation, groups.
        window: &'a Window,
        /// The shape of `weight` and of the output of this op.
        weight_shape: &'a Shape; ;
        name "conv_weight_grad", moves false, flops filters(numel(g), weight_shape)
    }

    /// The largest element of every window over the last `kernel_size.len()` axes. Outputs: the
    /// values, and their positions (`I32`) in the flattened spatial axes of `x`. The first largest
    /// and the first NaN win. A window that sees only padding has the lowest value of the dtype
    /// ([`crate::definition::lowest`]) and position -1.
    fused MaxPool {
        /// `(.., spatial)`.
        x: &'a Tensor;
        /// The window's size on each spatial axis.
        kernel_size: &'a [usize],
        /// Stride, padding, dilation.
        window: &'a Window; ;
        name "max_pool", moves true, flops results(request) * kernel_size.iter().product::<usize>() as u64
    }

    /// The gradient of [`Op::MaxPool`] for `x`: `g` added at `positions`, nowhere for -1.
    fused MaxPoolGrad {
        /// The gradient of the values.
        g: &'a Tensor,
        /// The positions that [`Op::MaxPool`] returned.
        positions: &'a Tensor;
        /// The shape of `x` and of the output of this op.
        x_shape: &'a Shape,
        /// The number of spatial axes.
        spatial: usize; ;
        name "max_pool_grad", moves false, flops numel(g)
    }

    /// The mean of every window over the last `kernel_size.len()` axes; padding counts as zeros.
    fused AvgPool {
        /// `(.., spatial)`.
        x: &'a Tensor;
        /// The window's size on each spatial axis.
        kernel_size: &'a [usize],
        /// Stride, padding, dilation.
        window: &'a Window; ;
        name "avg_pool", moves false, flops results(request) * kernel_size.iter().product::<usize>() as u64
    }

    /// Scaled dot-product attention. Outputs: y (.., T, hv) of the operands' dtype, and the
    /// logsumexp of each query's scores (.., T) in the accumulation dtype, -inf for a query that
    /// sees no key; its y is 0. A position that the causal limit, the window, `false` or -inf in the
    /// mask hides contributes nothing, whatever k and v are there. See [`crate::attention`].
    fused Attention {
        /// Queries, keys, values, mask and options.
        inputs: AttentionInputs<'a> as options; ; ;
        name "attention", operand_names &["q", "k", "v", "mask"], moves false,
        flops attention(inputs)
    }

    /// The gradients of [`Op::Attention`]'s y for q, k and v: one output for each that `needs`
    /// requests, in this order. A hidden position contributes nothing, whatever q, k, v and g are
    /// there.
    fused AttentionGrad {
        /// The operands of the forward pass.
        inputs: AttentionInputs<'a> as options,
        /// Its first output.
        y: &'a Tensor,
        /// Its second output.
        lse: &'a Tensor,
        /// The gradient of y.
        g: &'a Tensor;
        /// Which of the gradients for q, k and v are computed; at least one.
        needs: [bool; 3]; ;
        name "attention_grad", operand_names match inputs.mask {
            None => &["q", "k", "v", "y", "lse", "g"],
            Some(_) => &["q", "k", "v", "mask", "y", "lse", "g"],
        }, moves false,
        flops attention_grad(inputs, *needs)
    }

    /// `x @ weightᵀ` by a quantised weight of [`crate::quant`]: (.., columns) to (.., rows). A
    /// device may quantise x to 8 bits, unless `exact`.
    fused QuantMatmul {
        /// (.., columns), f32.
        x: &'a Tensor,
        /// The bytes of the parts, one after another, as [`crate::quant`] interleaves rows.
        blocks: &'a Tensor;
        /// The types of the rows, in their order.
        parts: &'a [Part],
        /// Whether the elements of x are multiplied as they are.
        exact: bool; ;
        name "quant_matmul", moves false, flops 2 * numel(x) * rows_of(parts)
    }

    /// The rows `index` of a quantised weight, as f32: the shape of `index`, and the columns.
    fused QuantRows {
        /// As in [`Op::QuantMatmul`].
        blocks: &'a Tensor,
        /// Integers, checked as in [`Op::Gather`].
        index: &'a Tensor;
        /// The types of the rows, in their order.
        parts: &'a [Part],
        /// The elements of a row.
        columns: usize; ;
        name "quant_rows", moves false, flops results(request)
    }

    /// Solves or factors matrices; outputs as [`LinalgOp::results`] describes. A matrix without a
    /// result is an error that names its place in the batch.
    fused Linalg {
        /// Matrices (.., m, n) of one dtype, f32 or f64, with equal leading axes.
        inputs: &'a [&'a Tensor];
        /// The solver or decomposition.
        op: LinalgOp; ;
        name op.name(), operand_names &["a", "b"], moves false, flops op.flops(inputs)
    }
}
