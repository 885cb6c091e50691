//! Requests to a device as it gets them from any code: valid ones of every variant of [`Op`], and
//! all that follow from them by changes of operands, counts, attributes and positions.
//!
//! ```text
//! samples    a valid request of every variant
//! changes    the requests that differ from a sample in one respect or in two
//! values     requests with other elements
//! ```
//!
//! A request that [`Op::outputs`] refuses, or with a position outside its axis, must be an error of
//! the device, and one of another kind than a panic. Others must have the results of the oracle.

mod changes;
mod samples;
mod values;

use super::{Arrangement, Case, Domain, Input, Sink, stepwise};
use teeny_core::op::TensorSpecs;
use teeny_core::op::recorded::{Recorded, RuntimeArgs};
use teeny_core::{DType, DeviceRef, Key, Op, Outputs, Result, Scalar, Tensor};

/// The row of the report.
pub const ROW: &str = "request";

/// The most elements of an output of a valid request that is run.
const MAX_NUMEL: usize = 1 << 16;

/// A request as data: what an [`Op`] borrows.
#[derive(Clone)]
pub(super) struct Request {
    variant: &'static str,
    attributes: Recorded,
    /// The operands; before them the destination of [`Op::CopyInto`].
    inputs: Vec<Input>,
    params: Vec<Scalar>,
    /// [`Op::ElementwiseInPlace`]: the input whose storage is overwritten, and the number that the
    /// request gives for it.
    in_place: Option<(usize, usize)>,
    /// The destination of [`Op::CopyInto`] is missing.
    taken: bool,
    /// A number is so large that a valid request would need much memory: it is not run.
    huge: bool,
    change: String,
}

/// A tensor with values of moderate size.
fn drawn(shape: &[usize], dtype: DType) -> Input {
    let seed = 70 + shape.iter().sum::<usize>() as u64;
    Input::new(shape, dtype, Arrangement::Packed, Domain::Small, seed)
}

impl Request {
    fn new(variant: &'static str, attributes: Recorded, inputs: Vec<Input>) -> Request {
        // Operands of one shape differ.
        let inputs = (0..).zip(inputs).map(|(i, x)| x.reseeded(100 * i)).collect();
        Request {
            variant,
            attributes,
            inputs,
            params: Vec::new(),
            in_place: None,
            taken: false,
            huge: false,
            change: String::new(),
        }
    }

    fn in_place(self, input_index: usize) -> Request {
        Request { in_place: Some((input_index, input_index)), ..self }
    }

    /// Calls `f` with the op on operands that are on `device`, one for each input.
    fn with_op<T>(&self, x: &[Tensor], f: impl FnOnce(Op<'_>) -> Result<T>) -> Result<T> {
        let operands: Vec<&Tensor> = x.iter().collect();
        if let Some((own, input_index)) = self.in_place
            && let Recorded::Elementwise { kernel, shape } = &self.attributes
        {
            let mut storage = x[own].copy()?.storage().clone();
            let other = operands.iter().enumerate().find(|(i, _)| *i != own).map(|(_, x)| *x);
            return f(Op::ElementwiseInPlace {
                kernel,
                storage: &mut storage,
                input_index,
                other,
                params: &self.params,
                shape,
            });
        }
        let owned = usize::from(matches!(self.attributes, Recorded::CopyInto { .. }));
        let dst = operands.first().filter(|_| owned > 0 && !self.taken);
        let dst = dst.map(|x| x.storage().clone());
        let numbers = RuntimeArgs { params: &self.params, key: Some(Key { seed: 3, draw: 1 }) };
        f(self.attributes.op(&operands[owned..], numbers, dst))
    }

    /// The results of the request on `device`; none of a request whose results are not compared.
    fn run(&self, device: &DeviceRef, x: &[Tensor]) -> Result<Vec<Tensor>> {
        self.with_op(x, |mut op| {
            let specs = op.outputs().ok();
            // Whether a matrix can be solved or factored depends on its elements.
            let runs = |specs: &TensorSpecs| {
                !self.huge
                    && !matches!(op, Op::Linalg { .. })
                    && specs.iter().all(|(shape, _)| shape.numel() <= MAX_NUMEL)
            };
            if specs.as_ref().is_some_and(|specs| !runs(specs)) {
                return Ok(Vec::new());
            }
            let mut outputs = op.run(device)?;
            let mut specs: Vec<_> = specs.iter().flat_map(|s| s.iter().copied()).collect();
            if let Op::ElementwiseInPlace { storage, shape, .. } = &op {
                outputs = Outputs::one((*storage).clone());
                specs = vec![(**shape, storage.dtype())];
            }
            let outputs = outputs.into_iter().zip(specs);
            let results = outputs
                .map(|(y, (shape, dtype))| Tensor::from_result(y, shape, dtype, device.clone()))
                .collect::<Result<_>>()?;
            // The gradient needs the results of its forward pass.
            Ok(if matches!(op, Op::AttentionGrad { .. }) { Vec::new() } else { results })
        })
    }

    fn case(self, dtype: DType) -> Case {
        let detail = match &self.change[..] {
            "" => self.variant.to_string(),
            change => format!("{}: {change}", self.variant),
        };
        let half = self.inputs.iter().any(|x| x.dtype().is_half());
        let tolerance = stepwise(if half { DType::BF16 } else { dtype }, 64.0, 64.0);
        let inputs = self.inputs.clone();
        let body = move |device: &DeviceRef, x: &[Tensor]| self.run(device, x);
        Case { op: ROW, dtype, inputs, tolerance, detail, body: Box::new(body) }
    }
}

/// All changes for F32; only changes of positions for the other dtypes.
pub fn each(sink: Sink<'_>) {
    for dtype in DType::ALL {
        for sample in samples::further(dtype) {
            values::of_values(&sample).into_iter().for_each(|r| sink(r.case(dtype)));
        }
        for sample in samples::all(dtype) {
            let mut all = values::of_values(&sample);
            // The rows of a weight have one type.
            if dtype == DType::F32 || sample.variant != "QuantRows" {
                all.extend(values::of_positions(&sample));
            }
            if dtype == DType::F32 {
                all.extend(changes::of_one(&sample));
                all.extend(changes::of_two(&sample));
            }
            all.push(sample);
            all.into_iter().for_each(|request| sink(request.case(dtype)));
        }
    }
}

/// Calls `visit` with the variant's name and a valid op of every variant of [`Op`], with operands on
/// `device`.
///
/// # Errors
/// If the device cannot hold the operands.
pub fn valid_requests(
    device: &DeviceRef,
    mut visit: impl FnMut(&'static str, Op<'_>),
) -> Result<()> {
    for request in samples::all(DType::F32) {
        let x: Vec<Tensor> = request.inputs.iter().map(|x| x.on(device)).collect::<Result<_>>()?;
        request.with_op(&x, |op| {
            visit(request.variant, op);
            Ok(())
        })?;
    }
    Ok(())
}

/// Calls `visit` with the variant's name and an invalid op, of every variant of [`Op`] but
/// `Contiguous`, which is valid for every tensor.
///
/// # Errors
/// If the device cannot hold the operands.
pub fn invalid_requests(
    device: &DeviceRef,
    mut visit: impl FnMut(&'static str, Op<'_>),
) -> Result<()> {
    for sample in samples::all(DType::F32) {
        for request in changes::of_one(&sample) {
            let x = request.inputs.iter().map(|x| x.on(device)).collect::<Result<Vec<_>>>()?;
            request.with_op(&x, |op| {
                if op.outputs().is_err() {
                    visit(request.variant, op);
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}
