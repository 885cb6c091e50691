//! Operations of the user: a closure over scalars becomes one kernel, which may be summed in the
//! same pass (`map_sum`), or may itself reduce along rows (`map_rows`).

use super::kernel::{at_least_one, broadcast_shape, results, run, run_one};
use crate::context::enter;
use crate::error::{Error, Result};
use crate::kernel::Extent;
use crate::kernel::build::{Builder, Expr};
use crate::op::{Op, ReduceOp};
use crate::shape::{IntoAxes, Shape};
use crate::tensor::Tensor;
use crate::tensor::one_device::on_one_device;
use std::sync::Arc;

/// Your own elementwise operation: one kernel, one pass over memory, on every device, forward and
/// backward.
///
/// The inputs broadcast to one shape. The kernel is built at each call (about a microsecond); a
/// loop that runs the same one many times can keep it: [`crate::Kernel::build`].
///
/// # Errors
/// If the shapes do not broadcast or an operation does not accept its types.
///
/// # Example
/// ```
/// use teeny_core::{map, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let x = Tensor::new([[1.0f32, -2.0]], &device)?; // (1, 2)
/// let b = Tensor::new([0.5f32, 0.5], &device)?; // (2)
/// let y = map([&x, &b], |[x, b]| (x + b).relu() * 2.0)?; // (1, 2)
/// assert_eq!(y.to_vec::<f32>()?, [3.0, 0.0]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn map<const N: usize>(
    inputs: [&Tensor; N],
    body: impl for<'b> FnOnce([Expr<'b>; N]) -> Expr<'b>,
) -> Result<Tensor> {
    let _op = enter("map").on_all("inputs", &inputs);
    let builder = Builder::new();
    let output = body(arguments(&builder, &inputs));
    mapped(&builder, output, &inputs)
}

/// The names of `inputs` in the program.
fn arguments<'b, const N: usize>(builder: &'b Builder, inputs: &[&Tensor; N]) -> [Expr<'b>; N] {
    inputs.map(|t| builder.input(t.dtype()))
}

/// The part of [`map`] that is not generic, and so compiled once.
fn mapped(builder: &Builder, output: Expr<'_>, inputs: &[&Tensor]) -> Result<Tensor> {
    let kernel = Arc::new(builder.finish(&[output])?);
    at_least_one(inputs.len())?;
    run_one(&kernel, inputs, &[])
}

/// [`map`] with several outputs, computed in the same pass.
#[track_caller]
pub fn map_n<const N: usize, const M: usize>(
    inputs: [&Tensor; N],
    body: impl for<'b> FnOnce([Expr<'b>; N]) -> [Expr<'b>; M],
) -> Result<[Tensor; M]> {
    let _op = enter("map_n").on_all("inputs", &inputs);
    let builder = Builder::new();
    let outputs = body(arguments(&builder, &inputs));
    mapped_n(&builder, &outputs, &inputs)?
        .try_into()
        .map_err(|_| Error::internal("a kernel returned too few outputs"))
}

fn mapped_n(builder: &Builder, outputs: &[Expr<'_>], inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
    let kernel = Arc::new(builder.finish(outputs)?);
    at_least_one(inputs.len())?;
    let (storages, shape, device) = run(&kernel, inputs, &[])?;
    results(&kernel, storages, shape, &device)
}

/// The sum of a [`map`] over `axes`, in one pass that never stores the terms. Types as in
/// [`Tensor::sum`].
///
/// # Errors
/// As [`map`]; or if an axis of the common shape does not exist or is named twice.
///
/// # Example
/// ```
/// use teeny_core::{map_sum, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?; // (2, 2)
/// let mean = x.mean_keepdim(1)?; // (2, 1)
/// let squares = map_sum([&x, &mean], 1, |[x, mean]| (x - mean).square())?; // (2)
/// assert_eq!(squares.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn map_sum<const N: usize>(
    inputs: [&Tensor; N],
    axes: impl IntoAxes,
    body: impl for<'b> FnOnce([Expr<'b>; N]) -> Expr<'b>,
) -> Result<Tensor> {
    let _op = enter("map_sum").on_all("inputs", &inputs);
    let builder = Builder::new();
    let output = body(arguments(&builder, &inputs));
    mapped_sum(&builder, output, &inputs, &|shape| axes.axes(shape))
}

fn mapped_sum(
    builder: &Builder,
    output: Expr<'_>,
    inputs: &[&Tensor],
    axes: &dyn Fn(&Shape) -> Result<Vec<usize>>,
) -> Result<Tensor> {
    let kernel = Arc::new(builder.finish(&[output.cast(output.dtype().sum_type())])?);
    at_least_one(inputs.len())?;
    let shape = broadcast_shape(inputs)?;
    let axes = axes(&shape)?;
    if axes.is_empty() {
        return run_one(&kernel, inputs, &[]);
    }
    let (device, lifted) = on_one_device(inputs)?;
    let expanded = lifted.iter().map(|t| t.expand_to(&shape)).collect::<Result<Vec<_>>>()?;
    let views: Vec<&Tensor> = expanded.iter().collect();
    Op::ReduceKernel {
        kernel: &kernel,
        inputs: &views,
        params: &[],
        shape: &shape,
        op: ReduceOp::Sum,
        axes: &axes,
    }
    .tensor(&device)
}

/// Your own operation along `axes`, forward and backward: values of a row can be reduced (`sum`,
/// `max`, `mean`, ..) and used again at each element of it, in one pass over memory.
///
/// The inputs broadcast to one shape, whose elements along `axes` are the rows. An input of size 1
/// along all of them has one value a row, and so has a result that was reduced: it has size 1 along
/// `axes`.
///
/// # Errors
/// As [`map`]; if an axis does not exist or is named twice; if a position that is read with
/// [`Expr::at`] is outside its row.
///
/// # Example
/// ```
/// use teeny_core::{map_rows, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let x = Tensor::new([[3.0f32, 4.0], [0.0, 5.0]], &device)?; // (2, 2)
/// let unit = map_rows([&x], -1, |[x]| x / x.square().sum().sqrt())?; // (2, 2)
/// assert_eq!(unit.to_vec::<f32>()?, [0.6, 0.8, 0.0, 1.0]);
///
/// let classes = Tensor::new([[1i64], [0]], &device)?; // (2, 1)
/// let loss = map_rows([&x, &classes], -1, |[x, t]| x.logsumexp() - x.at(t))?; // (2, 1)
/// assert_eq!(loss.mul(1000.0)?.round()?.to_vec::<f32>()?, [313.0, 5007.0]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn map_rows<const N: usize>(
    inputs: [&Tensor; N],
    axes: impl IntoAxes,
    body: impl for<'b> FnOnce([Expr<'b>; N]) -> Expr<'b>,
) -> Result<Tensor> {
    let _op = enter("map_rows").on_all("inputs", &inputs);
    at_least_one(inputs.len())?;
    let rows = Rows::of(&inputs, &|shape| axes.axes(shape))?;
    let builder = Builder::new();
    let mut extents = rows.extents.iter();
    let of = |t: &Tensor| {
        let extent = extents.next().copied().unwrap_or(Extent::Element);
        builder.input_of(t.dtype(), extent)
    };
    let output = body(inputs.map(of));
    rows.run(&builder, output, &inputs)
}

/// The rows of tensors that broadcast to one shape.
struct Rows {
    shape: Shape,
    axes: Vec<usize>,
    /// For each tensor: one value per row or per element.
    extents: Vec<Extent>,
}

impl Rows {
    fn of(inputs: &[&Tensor], axes: &dyn Fn(&Shape) -> Result<Vec<usize>>) -> Result<Rows> {
        let shape = broadcast_shape(inputs)?;
        let mut axes = axes(&shape)?;
        axes.sort_unstable();
        // Axes of an input count from the right.
        let size = |x: &Tensor, axis: usize| {
            let own = (axis + x.ndim()).checked_sub(shape.ndim());
            own.map_or(1, |own| x.shape()[own])
        };
        let extent = |x: &&Tensor| match axes.iter().all(|&axis| size(x, axis) == 1) {
            true => Extent::Row,
            false => Extent::Element,
        };
        let extents = inputs.iter().map(extent).collect();
        Ok(Rows { shape, axes, extents })
    }

    fn run(&self, builder: &Builder, output: Expr<'_>, inputs: &[&Tensor]) -> Result<Tensor> {
        let program = Arc::new(builder.finish(&[output])?);
        let Rows { shape, axes, .. } = self;
        if axes.is_empty() || !builder.is_of_rows() {
            return Err(Error::value(format!(
                "{} does not reduce rows of axes {axes:?}",
                program.expression()
            ))
            .help("map(inputs, |..| ..) computes each element by itself"));
        }
        if program.is_pointwise() {
            return run_one(&program, inputs, &[]); // its reductions do not matter: `x.max() * 0`
        }
        let (device, lifted) = on_one_device(inputs)?;
        let one = shape.reduced(axes, true);
        let of = |i| if program.input_extent(i) == Extent::Element { shape } else { &one };
        let expanded = lifted
            .iter()
            .enumerate()
            .map(|(i, t)| t.expand_to(of(i)))
            .collect::<Result<Vec<_>>>()?;
        let inputs: Vec<&Tensor> = expanded.iter().collect();
        let (inputs, axes) = (&inputs[..], &axes[..]);
        Op::Rows { program: &program, inputs, params: &[], shape, axes }.tensor(&device)
    }
}
