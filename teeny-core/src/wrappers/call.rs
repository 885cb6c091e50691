//! One request to a device as plain data: what a wrapper looks at before it passes it on.
//!
//! Every method of [`Device`] that computes has a variant here, and every `match` on [`Call`] is
//! complete: a new method is a new variant, and the compiler lists what it still needs.

use crate::attention::AttentionInputs;
use crate::device::{Device, Norm, ReduceOp, ScanOp, ScatterMode, Window};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::linalg::LinalgOp;
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use crate::validate::{self, Form};
use std::cell::Cell;
use std::sync::Arc;

/// The storages a call gives, in the order of [`Call::results`]; `None` where nothing was asked
/// for.
pub(super) type Storages = Vec<Option<StorageRef>>;

/// A method of [`Device`] with its arguments.
pub(super) enum Call<'a> {
    Upload {
        bytes: &'a [u8],
        dtype: DType,
    },
    Random {
        distribution: Distribution,
        shape: &'a Shape,
        dtype: DType,
        key: Key,
    },
    Elementwise {
        kernel: &'a Arc<Kernel>,
        inputs: &'a [&'a Tensor],
        params: &'a [Scalar],
        shape: &'a Shape,
    },
    ReduceKernel {
        kernel: &'a Arc<Kernel>,
        inputs: &'a [&'a Tensor],
        params: &'a [Scalar],
        shape: &'a Shape,
        op: ReduceOp,
        axes: &'a [usize],
    },
    Reduce {
        op: ReduceOp,
        x: &'a Tensor,
        axes: &'a [usize],
    },
    Scan {
        op: ScanOp,
        x: &'a Tensor,
        axis: usize,
    },
    Matmul {
        lhs: &'a Tensor,
        rhs: &'a Tensor,
    },
    Gather {
        x: &'a Tensor,
        axis: usize,
        index: &'a Tensor,
    },
    Scatter {
        mode: ScatterMode,
        x: &'a Tensor,
        axis: usize,
        index: &'a Tensor,
        src: &'a Tensor,
    },
    /// The destination is handed on once, so that nobody else holds it.
    CopyInto {
        dst: Cell<Option<StorageRef>>,
        view: &'a Layout,
        src: &'a Tensor,
    },
    Sort {
        x: &'a Tensor,
        axis: usize,
        descending: bool,
    },
    Contiguous {
        x: &'a Tensor,
    },
    Cat {
        tensors: &'a [&'a Tensor],
        axis: usize,
        shape: &'a Shape,
    },
    Softmax {
        x: &'a Tensor,
        axis: usize,
    },
    LogSoftmax {
        x: &'a Tensor,
        axis: usize,
    },
    SoftmaxGrad {
        y: &'a Tensor,
        g: &'a Tensor,
        axis: usize,
    },
    LogSoftmaxGrad {
        y: &'a Tensor,
        g: &'a Tensor,
        axis: usize,
    },
    CrossEntropy {
        x: &'a Tensor,
        targets: &'a Tensor,
        ignored: Option<i64>,
    },
    CrossEntropyGrad {
        x: &'a Tensor,
        targets: &'a Tensor,
        ignored: Option<i64>,
        g: &'a Tensor,
    },
    Norm {
        norm: Norm,
        x: &'a Tensor,
        weight: Option<&'a Tensor>,
        bias: Option<&'a Tensor>,
        eps: f64,
    },
    NormGrad {
        norm: Norm,
        x: &'a Tensor,
        weight: Option<&'a Tensor>,
        g: &'a Tensor,
        eps: f64,
    },
    Conv {
        x: &'a Tensor,
        weight: &'a Tensor,
        window: &'a Window,
    },
    ConvInputGrad {
        g: &'a Tensor,
        weight: &'a Tensor,
        window: &'a Window,
        x_shape: &'a Shape,
    },
    ConvWeightGrad {
        g: &'a Tensor,
        x: &'a Tensor,
        window: &'a Window,
        weight_shape: &'a Shape,
    },
    MaxPool {
        x: &'a Tensor,
        size: &'a [usize],
        window: &'a Window,
    },
    MaxPoolGrad {
        g: &'a Tensor,
        positions: &'a Tensor,
        x_shape: &'a Shape,
        spatial: usize,
    },
    AvgPool {
        x: &'a Tensor,
        size: &'a [usize],
        window: &'a Window,
    },
    Attention {
        inputs: &'a AttentionInputs<'a>,
    },
    AttentionGrad {
        inputs: &'a AttentionInputs<'a>,
        y: &'a Tensor,
        lse: &'a Tensor,
        g: &'a Tensor,
        needs: [bool; 3],
    },
    Linalg {
        op: LinalgOp,
        inputs: &'a [&'a Tensor],
    },
}

impl<'a> Call<'a> {
    /// The method's name; of an elementwise kernel of one operation, that operation's.
    pub fn name(&self) -> &'static str {
        match self {
            Call::Upload { .. } => "upload",
            Call::Random { .. } => "random",
            Call::Elementwise { kernel, .. } => {
                kernel.single().map_or("kernel", |node| node.op.name())
            }
            Call::ReduceKernel { .. } => "reduce_kernel",
            Call::Reduce { op, .. } => match op {
                ReduceOp::Sum => "sum",
                ReduceOp::Prod => "prod",
                ReduceOp::Max => "max",
                ReduceOp::Min => "min",
                ReduceOp::ArgMax => "argmax",
                ReduceOp::ArgMin => "argmin",
                ReduceOp::Any => "any",
                ReduceOp::All => "all",
            },
            Call::Scan { op, .. } => match op {
                ScanOp::Sum => "cumsum",
                ScanOp::Prod => "cumprod",
            },
            Call::Matmul { .. } => "matmul",
            Call::Gather { .. } => "gather",
            Call::Scatter { .. } => "scatter",
            Call::CopyInto { .. } => "copy_into",
            Call::Sort { .. } => "sort",
            Call::Contiguous { .. } => "contiguous",
            Call::Cat { .. } => "cat",
            Call::Softmax { .. } => "softmax",
            Call::LogSoftmax { .. } => "log_softmax",
            Call::SoftmaxGrad { .. } => "softmax_grad",
            Call::LogSoftmaxGrad { .. } => "log_softmax_grad",
            Call::CrossEntropy { .. } => "cross_entropy",
            Call::CrossEntropyGrad { .. } => "cross_entropy_grad",
            Call::Norm { .. } => "norm",
            Call::NormGrad { .. } => "norm_grad",
            Call::Conv { .. } => "conv",
            Call::ConvInputGrad { .. } => "conv_input_grad",
            Call::ConvWeightGrad { .. } => "conv_weight_grad",
            Call::MaxPool { .. } => "max_pool",
            Call::MaxPoolGrad { .. } => "max_pool_grad",
            Call::AvgPool { .. } => "avg_pool",
            Call::Attention { .. } => "attention",
            Call::AttentionGrad { .. } => "attention_grad",
            Call::Linalg { op, .. } => op.name(),
        }
    }

    /// The tensors that are read, with names for messages.
    pub fn operands(&self) -> Vec<(&'static str, &'a Tensor)> {
        const INPUTS: [&str; crate::kernel::MAX_INPUTS] = [
            "input 0", "input 1", "input 2", "input 3", "input 4", "input 5", "input 6", "input 7",
        ];
        let attention = |inputs: &'a AttentionInputs<'a>| {
            let mut all = vec![("q", inputs.q), ("k", inputs.k), ("v", inputs.v)];
            all.extend(inputs.mask.map(|mask| ("mask", mask)));
            all
        };
        match *self {
            Call::Upload { .. } | Call::Random { .. } => Vec::new(),
            Call::Elementwise { inputs, .. } | Call::ReduceKernel { inputs, .. } => {
                INPUTS.into_iter().zip(inputs.iter().copied()).collect()
            }
            Call::Reduce { x, .. }
            | Call::Scan { x, .. }
            | Call::Sort { x, .. }
            | Call::Contiguous { x }
            | Call::Softmax { x, .. }
            | Call::LogSoftmax { x, .. } => vec![("x", x)],
            Call::MaxPool { x, .. } | Call::AvgPool { x, .. } => vec![("x", x)],
            Call::Matmul { lhs, rhs } => vec![("lhs", lhs), ("rhs", rhs)],
            Call::Gather { x, index, .. } => vec![("x", x), ("index", index)],
            Call::Scatter { x, index, src, .. } => vec![("x", x), ("index", index), ("src", src)],
            Call::CopyInto { src, .. } => vec![("src", src)],
            Call::Cat { tensors, .. } => tensors.iter().map(|t| ("part", *t)).collect(),
            Call::SoftmaxGrad { y, g, .. } | Call::LogSoftmaxGrad { y, g, .. } => {
                vec![("y", y), ("g", g)]
            }
            Call::CrossEntropy { x, targets, .. } => vec![("x", x), ("targets", targets)],
            Call::CrossEntropyGrad { x, targets, g, .. } => {
                vec![("x", x), ("targets", targets), ("g", g)]
            }
            Call::Norm { x, weight, bias, .. } => {
                [("x", Some(x)), ("weight", weight), ("bias", bias)]
                    .into_iter()
                    .filter_map(|(n, t)| Some((n, t?)))
                    .collect()
            }
            Call::NormGrad { x, weight, g, .. } => {
                [("x", Some(x)), ("weight", weight), ("g", Some(g))]
                    .into_iter()
                    .filter_map(|(n, t)| Some((n, t?)))
                    .collect()
            }
            Call::Conv { x, weight, .. } => vec![("x", x), ("weight", weight)],
            Call::ConvInputGrad { g, weight, .. } => vec![("g", g), ("weight", weight)],
            Call::ConvWeightGrad { g, x, .. } => vec![("g", g), ("x", x)],
            Call::MaxPoolGrad { g, positions, .. } => vec![("g", g), ("positions", positions)],
            Call::Linalg { inputs, .. } => {
                ["a", "b"].into_iter().zip(inputs.iter().copied()).collect()
            }
            Call::Attention { inputs } => attention(inputs),
            Call::AttentionGrad { inputs, y, lse, g, .. } => {
                let mut all = attention(inputs);
                all.extend([("y", y), ("lse", lse), ("g", g)]);
                all
            }
        }
    }

    /// Shape and type of each result. Of an assignment, those of the part that is written: the
    /// destination's own shape is nobody's business.
    ///
    /// # Errors
    /// If the arguments do not fit each other; none for calls that core has checked.
    pub fn results(&self) -> Result<Vec<Option<(Shape, DType)>>> {
        let one = |form: Form| vec![Some(form)];
        let all = |forms: &[Form]| forms.iter().copied().map(Some).collect();
        Ok(match *self {
            Call::Upload { bytes, dtype } => one(validate::upload(bytes, dtype)?),
            Call::Random { distribution, shape, dtype, .. } => {
                one(validate::random(distribution, shape, dtype)?)
            }
            Call::Elementwise { kernel, inputs, params, shape } => {
                validate::elementwise(kernel, inputs, params, shape)?;
                (0..kernel.outputs().len())
                    .map(|i| Some((*shape, kernel.output_dtype(i))))
                    .collect()
            }
            Call::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
                one(validate::reduce_kernel(kernel, inputs, params, shape, op, axes)?)
            }
            Call::Reduce { op, x, axes } => one(validate::reduce(op, x, axes)?),
            Call::Scan { op, x, axis } => one(validate::scan(op, x, axis)?),
            Call::Contiguous { x } => one((*x.shape(), x.dtype())),
            Call::Softmax { x, axis } | Call::LogSoftmax { x, axis } => {
                one(validate::softmax(x, axis)?)
            }
            Call::SoftmaxGrad { y, g, axis } | Call::LogSoftmaxGrad { y, g, axis } => {
                one(validate::softmax_grad(y, g, axis)?)
            }
            Call::CrossEntropy { x, targets, .. } => one(validate::cross_entropy(x, targets)?),
            Call::CrossEntropyGrad { x, targets, g, .. } => {
                one(validate::cross_entropy_grad(x, targets, g)?)
            }
            Call::Norm { x, weight, bias, .. } => one(validate::norm(x, weight, bias)?),
            Call::NormGrad { x, weight, g, .. } => one(validate::norm_grad(x, weight, g)?),
            Call::CopyInto { src, .. } => one((*src.shape(), src.dtype())),
            Call::Matmul { lhs, rhs } => one(validate::matmul(lhs, rhs)?),
            Call::Gather { x, axis, index } => one(validate::gather(x, axis, index)?),
            Call::Scatter { mode, x, axis, index, src } => {
                one(validate::scatter(mode, x, axis, index, src)?)
            }
            Call::Sort { x, axis, .. } => all(&validate::sort(x, axis)?),
            Call::Cat { tensors, axis, shape } => one(validate::cat(tensors, axis, shape)?),
            Call::Conv { x, weight, window } => one(validate::conv(x, weight, window)?),
            Call::ConvInputGrad { g, weight, window, x_shape } => {
                one(validate::conv_input_grad(g, weight, window, x_shape)?)
            }
            Call::ConvWeightGrad { g, x, window, weight_shape } => {
                one(validate::conv_weight_grad(g, x, window, weight_shape)?)
            }
            Call::MaxPool { x, size, window } => all(&validate::max_pool(x, size, window)?),
            Call::MaxPoolGrad { g, positions, x_shape, spatial } => {
                one(validate::max_pool_grad(g, positions, x_shape, spatial)?)
            }
            Call::AvgPool { x, size, window } => one(validate::avg_pool(x, size, window)?),
            Call::Linalg { op, inputs } => all(&validate::linalg(op, inputs)?),
            Call::Attention { inputs } => all(&validate::attention(inputs)?),
            Call::AttentionGrad { inputs, y, lse, g, needs } => {
                validate::attention_grad(inputs, y, lse, g)?
                    .into_iter()
                    .zip(needs)
                    .map(|(form, need)| need.then_some(form))
                    .collect()
            }
        })
    }

    /// Has `device` carry the call out, on what `below` makes of the operands.
    ///
    /// # Errors
    /// Those of the device and of `below`.
    pub fn run(
        &self,
        device: &dyn Device,
        below: &dyn Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Storages> {
        let all =
            |tensors: &[&Tensor]| tensors.iter().map(|t| below(t)).collect::<Result<Vec<_>>>();
        let maybe = |x: Option<&Tensor>| x.map(below).transpose();
        let one = |storage: StorageRef| vec![Some(storage)];
        let two = |(a, b): (StorageRef, StorageRef)| vec![Some(a), Some(b)];
        Ok(match *self {
            Call::Upload { bytes, dtype } => one(device.upload(bytes, dtype)?),
            Call::Random { distribution, shape, dtype, key } => {
                one(device.random(distribution, shape, dtype, key)?)
            }
            Call::Elementwise { kernel, inputs, params, shape } => {
                let inputs = all(inputs)?;
                device
                    .elementwise(kernel, &inputs.iter().collect::<Vec<_>>(), params, shape)?
                    .into_iter()
                    .map(Some)
                    .collect()
            }
            Call::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
                let inputs = all(inputs)?;
                one(device.reduce_kernel(
                    kernel,
                    &inputs.iter().collect::<Vec<_>>(),
                    params,
                    shape,
                    op,
                    axes,
                )?)
            }
            Call::Reduce { op, x, axes } => one(device.reduce(op, &below(x)?, axes)?),
            Call::Scan { op, x, axis } => one(device.scan(op, &below(x)?, axis)?),
            Call::Matmul { lhs, rhs } => one(device.matmul(&below(lhs)?, &below(rhs)?)?),
            Call::Gather { x, axis, index } => {
                one(device.gather(&below(x)?, axis, &below(index)?)?)
            }
            Call::Scatter { mode, x, axis, index, src } => {
                one(device.scatter(mode, &below(x)?, axis, &below(index)?, &below(src)?)?)
            }
            Call::CopyInto { ref dst, view, src } => {
                let dst = dst
                    .take()
                    .ok_or_else(|| Error::internal("a destination was written to twice"))?;
                one(device.copy_into(dst, view, &below(src)?)?)
            }
            Call::Sort { x, axis, descending } => two(device.sort(&below(x)?, axis, descending)?),
            Call::Contiguous { x } => one(device.contiguous(&below(x)?)?),
            Call::Cat { tensors, axis, shape } => {
                let tensors = all(tensors)?;
                one(device.cat(&tensors.iter().collect::<Vec<_>>(), axis, shape)?)
            }
            Call::Softmax { x, axis } => one(device.softmax(&below(x)?, axis)?),
            Call::LogSoftmax { x, axis } => one(device.log_softmax(&below(x)?, axis)?),
            Call::SoftmaxGrad { y, g, axis } => {
                one(device.softmax_grad(&below(y)?, &below(g)?, axis)?)
            }
            Call::LogSoftmaxGrad { y, g, axis } => {
                one(device.log_softmax_grad(&below(y)?, &below(g)?, axis)?)
            }
            Call::Norm { norm, x, weight, bias, eps } => one(device.norm(
                norm,
                &below(x)?,
                maybe(weight)?.as_ref(),
                maybe(bias)?.as_ref(),
                eps,
            )?),
            Call::NormGrad { norm, x, weight, g, eps } => {
                one(device.norm_grad(norm, &below(x)?, maybe(weight)?.as_ref(), &below(g)?, eps)?)
            }
            Call::CrossEntropy { x, targets, ignored } => {
                one(device.cross_entropy(&below(x)?, &below(targets)?, ignored)?)
            }
            Call::CrossEntropyGrad { x, targets, ignored, g } => {
                one(device.cross_entropy_grad(&below(x)?, &below(targets)?, ignored, &below(g)?)?)
            }
            Call::Conv { x, weight, window } => {
                one(device.conv(&below(x)?, &below(weight)?, window)?)
            }
            Call::ConvInputGrad { g, weight, window, x_shape } => {
                one(device.conv_input_grad(&below(g)?, &below(weight)?, window, x_shape)?)
            }
            Call::ConvWeightGrad { g, x, window, weight_shape } => {
                one(device.conv_weight_grad(&below(g)?, &below(x)?, window, weight_shape)?)
            }
            Call::MaxPool { x, size, window } => two(device.max_pool(&below(x)?, size, window)?),
            Call::MaxPoolGrad { g, positions, x_shape, spatial } => {
                one(device.max_pool_grad(&below(g)?, &below(positions)?, x_shape, spatial)?)
            }
            Call::AvgPool { x, size, window } => one(device.avg_pool(&below(x)?, size, window)?),
            Call::Linalg { op, inputs } => {
                let inputs = all(inputs)?;
                device
                    .linalg(op, &inputs.iter().collect::<Vec<_>>())?
                    .into_iter()
                    .map(Some)
                    .collect()
            }
            Call::Attention { inputs } => {
                two(with_attention(inputs, below, |inputs| device.attention(inputs))?)
            }
            Call::AttentionGrad { inputs, y, lse, g, needs } => {
                let (y, lse, g) = (below(y)?, below(lse)?, below(g)?);
                with_attention(inputs, below, |inputs| {
                    device.attention_grad(inputs, &y, &lse, &g, needs)
                })?
                .into()
            }
        })
    }
}

/// `run` with the operands that `below` makes of `inputs`.
fn with_attention<T>(
    inputs: &AttentionInputs<'_>,
    below: &dyn Fn(&Tensor) -> Result<Tensor>,
    run: impl FnOnce(&AttentionInputs<'_>) -> Result<T>,
) -> Result<T> {
    let (q, k, v) = (below(inputs.q)?, below(inputs.k)?, below(inputs.v)?);
    let mask = inputs.mask.map(below).transpose()?;
    run(&AttentionInputs { q: &q, k: &k, v: &v, mask: mask.as_ref(), options: inputs.options })
}
