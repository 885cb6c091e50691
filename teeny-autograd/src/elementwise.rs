//! Recording a kernel or a row program: forward on the inner device, backward by its symbolic
//! derivative, saving only the operands that it reads.

use crate::detach_points::{DetachPoint, Mask};
use crate::node::{Backward, Handle, Node, Value};
use crate::record::{Operands, Recorder, current_detach_point};
use crate::storage::Tracked;
use crate::symbolic::{Derivative, Slot, Source};
use std::sync::Arc;
use teeny_core::kernel::Extent;
use teeny_core::op::PerOutput;
use teeny_core::{Error, Kernel, Op, Outputs, Result, Scalar, Shape, Tensor, context};

/// The leaves behind the operands in `which` (as bits).
fn leaves(operands: &Operands<'_>, which: u8) -> Mask {
    let chosen = (0..8).filter(|i| which >> i & 1 == 1);
    chosen.fold(0, |mask, i| mask | operands.handle(i).map_or(0, |h| h.node.mask))
}

/// The detach point of an output without a gradient for some operands: the operands in `needs` that
/// are not in `reach`.
fn detach_point(operands: &Operands<'_>, needs: u8, reach: u8) -> Option<DetachPoint> {
    (reach != needs).then(|| {
        let mask = leaves(operands, needs & !reach) & !leaves(operands, reach);
        DetachPoint { mask, ..current_detach_point(0) }
    })
}

/// Where a program and its derivative run: at each index of `shape`, and on the rows along `axes`.
#[derive(Clone)]
pub(crate) struct Over {
    pub shape: Shape,
    pub axes: Box<[usize]>,
}

impl Over {
    /// The shape of a value.
    pub fn shape_of(&self, extent: Extent) -> Shape {
        match extent {
            Extent::Element => self.shape,
            Extent::Row => self.shape.reduced(&self.axes, true),
        }
    }

    /// Calls `f` with the op of `kernel`.
    pub fn with_op<T>(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        f: impl FnOnce(Op<'_>) -> Result<T>,
    ) -> Result<T> {
        let shape = &self.shape;
        f(match kernel.is_pointwise() {
            true => Op::Elementwise { kernel, inputs, params, shape },
            false => Op::Rows { program: kernel, inputs, params, shape, axes: &self.axes },
        })
    }
}

/// Runs the row program on the inner device and records it; `None` where its definition has to be
/// recorded, as the program has no derivative that is one.
pub(crate) fn rows(
    recorder: &Recorder,
    program: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    over: &Over,
) -> Result<Option<Outputs>> {
    let operands = Operands::of(inputs)?;
    if operands.recording && recorder.derivative(program, operands.needs(), true).is_err() {
        return Ok(None);
    }
    record(recorder, program, operands, params, over).map(Some)
}

/// Runs the kernel on the inner device and records it.
pub(crate) fn elementwise(
    recorder: &Recorder,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    let over = Over { shape: *shape, axes: Box::default() };
    record(recorder, kernel, Operands::of(inputs)?, params, &over)
}

fn record(
    recorder: &Recorder,
    kernel: &Arc<Kernel>,
    operands: Operands<'_>,
    params: &[Scalar],
    over: &Over,
) -> Result<Outputs> {
    let inner = operands.inner()?;
    let outputs = over.with_op(kernel, &inner, params, |mut op| op.run(recorder.inner()))?;
    let results = outputs.try_map(|o, storage| {
        let shape = over.shape_of(kernel.output_extent(o));
        recorder.value(storage, shape, kernel.output_dtype(o))
    })?;
    if !operands.recording {
        return operands.untracked(results);
    }
    let needs = operands.needs();
    let derivative = recorder.derivative(kernel, needs, true)?;
    let saved = derivative.save(&inner, &results)?;
    let node = derivative.reach.iter().any(|&reach| reach != 0).then(|| {
        let (params, over, rule) = (params.to_vec(), over.clone(), derivative.clone());
        let backward: Backward = Box::new(move |g| rule.run(&saved, &params, g, &over));
        let (edges, mask) = (operands.edges(), operands.mask);
        let values = results.iter().map(Value::of).collect();
        Arc::new(Node::op(name(kernel), backward, values, edges, mask, context::current()))
    });
    results.try_map(|o, y| {
        let mut detach_points = operands.detach_points.clone();
        if let Some(point) = detach_point(&operands, needs, derivative.reach[o]) {
            detach_points.push(point);
        }
        let handle = node
            .clone()
            .filter(|_| derivative.reach[o] != 0)
            .map(|node| Handle { node, output: o as u8 });
        Ok(Tracked::storage(y, handle, detach_points))
    })
}

/// The name of the operation that a kernel is.
fn name(kernel: &Kernel) -> &'static str {
    match kernel.row_function() {
        Some(function) => function.name(),
        None if kernel.is_pointwise() => kernel.single().map_or("kernel", |node| node.op.name()),
        None => "rows",
    }
}

impl Derivative {
    /// The tensors a backward pass will read, in the order of `saved`.
    pub fn save(&self, inputs: &[&Tensor], outputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let mut saved = Vec::with_capacity(self.saved.len());
        for slot in &self.saved {
            let tensor = match slot {
                Slot::Input(i) => inputs.get(*i).copied(),
                Slot::Output(o) => outputs.get(*o),
                Slot::Grad(_) => None,
            };
            saved.push(tensor.cloned().ok_or_else(|| {
                Error::internal("a derivative reads a value that the forward pass does not have")
            })?);
        }
        Ok(saved)
    }

    /// The gradients of the operands, in their shapes, from the output gradients `g`; a missing one
    /// of several outputs counts as zero.
    pub fn run(
        &self,
        saved: &[Tensor],
        params: &[Scalar],
        g: &[Option<Tensor>],
        over: &Over,
    ) -> Result<Vec<Option<Tensor>>> {
        let Some(given) = g.iter().flatten().next() else {
            return Ok(vec![None; self.grads.len()]);
        };
        let zeros = |dtype, extent| -> Result<Tensor> {
            Tensor::zeros((), dtype, given)?.expand(over.shape_of(extent))
        };
        let zero = |i: usize| zeros(self.dtypes[i], self.extents[i]);
        let mut computed: Vec<PerOutput<Tensor>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let read = |(i, slot): (usize, &Slot)| -> Result<Tensor> {
                match slot {
                    Slot::Grad(o) => {
                        let kernel = &part.kernel;
                        let zeros = || zeros(kernel.inputs()[i], kernel.input_extent(i));
                        g[*o].clone().map_or_else(zeros, Ok)
                    }
                    Slot::Input(_) | Slot::Output(_) => {
                        let place = self.saved.iter().position(|s| s == slot);
                        place.map(|p| saved[p].clone()).ok_or_else(|| {
                            Error::internal("a derivative reads a value that was not saved")
                        })
                    }
                }
            };
            let inputs = part.reads.iter().enumerate().map(read).collect::<Result<Vec<_>>>()?;
            let inputs: Vec<&Tensor> = inputs.iter().collect();
            // It may read no tensor at all: a constant slope.
            let run = |op: Op<'_>| { op }.tensor_list(given.device());
            computed.push(over.with_op(&part.kernel, &inputs, params, run)?);
        }
        let grad = |(i, source): (usize, &Source)| -> Result<Option<Tensor>> {
            Ok(match source {
                Source::None => None,
                Source::Zero => Some(zero(i)?),
                Source::Pass(o) => Some(g[*o].clone().map_or_else(|| zero(i), Ok)?),
                Source::Part(part, place) => Some(computed[*part][*place].clone()),
                Source::Factors(factors) => {
                    let mut sum: Option<Tensor> = None;
                    for (o, part) in factors {
                        let Some(g) = &g[*o] else { continue };
                        let term = computed[*part][0].mul(g)?.cast(self.dtypes[i])?;
                        sum = Some(sum.map_or(Ok(term.clone()), |s| s.add(&term))?);
                    }
                    Some(sum.map_or_else(|| zero(i), Ok)?)
                }
            })
        };
        self.grads.iter().enumerate().map(grad).collect()
    }
}
