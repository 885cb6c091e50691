//! Running a kernel and its tangents.

use super::symbolic::{Part, Read, Source, Tangents, tangents};
use crate::cache::Cache;
use crate::duals::Duals;
use crate::elementwise::Over;
use std::sync::{Arc, LazyLock};
use teeny_core::op::PerOutput;
use teeny_core::{DType, DeviceRef, Error, Kernel, Op, ReduceOp, Result, Scalar, Shape, Tensor};

/// A forward-mode device often lives for one call only, so all share the tangents of kernels.
static CACHE: LazyLock<Cache<Tangents>> = LazyLock::new(Cache::default);

/// The arguments that all kernels of one op share.
struct Launch<'a> {
    device: &'a DeviceRef,
    operands: &'a Duals,
    params: &'a [Scalar],
    over: &'a Over,
}

impl Launch<'_> {
    /// The tensors that `part` reads.
    fn inputs(&self, part: &Part) -> Result<Vec<&Tensor>> {
        let input = |read: &Read| match *read {
            Read::Value(i) => self.operands.values.get(i),
            Read::Tangent(i) => self.operands.tangent(i),
        };
        part.reads
            .iter()
            .map(|r| input(r).ok_or_else(|| Error::internal("a tangent reads a missing tensor")))
            .collect()
    }

    fn run(&self, kernel: &Arc<Kernel>, inputs: &[&Tensor]) -> Result<PerOutput<Tensor>> {
        let run = |op: Op<'_>| { op }.tensor_list(self.device);
        self.over.with_op(kernel, inputs, self.params, run)
    }

    fn sum(&self, kernel: &Arc<Kernel>, inputs: &[&Tensor], axes: &[usize]) -> Result<Tensor> {
        let (params, shape) = (self.params, &self.over.shape);
        let op = ReduceOp::Sum;
        Op::ReduceKernel { kernel, inputs, params, shape, op, axes }.tensor(self.device)
    }

    /// The one output of `part`.
    fn output(&self, part: &Part) -> Result<Tensor> {
        let run = |op: Op<'_>| { op }.tensor(self.device);
        self.over.with_op(&part.kernel, &self.inputs(part)?, self.params, run)
    }

    /// The tangent from `source` by kernels that compute nothing else.
    fn tangent(&self, source: &Source, dtype: DType) -> Result<Option<Tensor>> {
        Ok(match source {
            Source::None => None,
            Source::Pass(i) => self.operands.tangent(*i).cloned(),
            Source::Part(part) => Some(self.output(part)?),
            Source::Partials(partials) => {
                let mut sum: Option<Tensor> = None;
                for (i, part) in partials {
                    let Some(t) = self.operands.tangent(*i) else { continue };
                    let term = self.output(part)?.mul(t)?.cast(dtype)?;
                    sum = Some(sum.map_or(Ok(term.clone()), |s| s.add(&term))?);
                }
                sum
            }
        })
    }
}

/// Whether the tangents of `kernel` are kernels, or row programs.
pub(super) fn has_tangents(kernel: &Arc<Kernel>, operands: &Duals) -> bool {
    let bits = operands.tangent_bits();
    CACHE.get(kernel, bits, false, || tangents(kernel, bits)).is_ok()
}

/// The outputs of `kernel` on operands of which some have a tangent, each with its tangent.
pub(super) fn elementwise(
    device: &DeviceRef,
    operands: &Duals,
    kernel: &Arc<Kernel>,
    params: &[Scalar],
    over: &Over,
) -> Result<Vec<(Tensor, Option<Tensor>)>> {
    let launch = Launch { device, operands, params, over };
    let bits = operands.tangent_bits();
    let rule = CACHE.get(kernel, bits, false, || tangents(kernel, bits))?;
    let (values, mut computed) = match &rule.together {
        Some(part) => {
            let mut all = launch.run(&part.kernel, &launch.inputs(part)?)?.into_iter();
            let values: Vec<Tensor> = all.by_ref().take(kernel.outputs().len()).collect();
            (values, Some(all))
        }
        None => (launch.run(kernel, &operands.inner())?.into_iter().collect(), None),
    };
    values
        .into_iter()
        .zip(&rule.sources)
        .map(|(y, source)| {
            let tangent = match (source, &mut computed) {
                (Source::Part(_), Some(computed)) => computed.next(),
                _ => launch.tangent(source, y.dtype())?,
            };
            Ok((y, tangent))
        })
        .collect()
}

/// The sum over `axes` of `kernel` on operands of which some have a tangent, with its tangent.
pub(super) fn sum_kernel(
    device: &DeviceRef,
    operands: &Duals,
    kernel: &Arc<Kernel>,
    params: &[Scalar],
    shape: &Shape,
    axes: &[usize],
) -> Result<(Tensor, Option<Tensor>)> {
    let over = Over { shape: *shape, axes: Box::default() };
    let launch = Launch { device, operands, params, over: &over };
    let bits = operands.tangent_bits();
    let y = launch.sum(kernel, &operands.inner(), axes)?;
    let rule = CACHE.get(kernel, bits, false, || tangents(kernel, bits))?;
    let tangent = match &rule.sources[0] {
        Source::Part(part) => Some(launch.sum(&part.kernel, &launch.inputs(part)?, axes)?),
        source => launch.tangent(source, y.dtype())?.map(|t| t.sum(axes)).transpose()?,
    };
    Ok((y, tangent))
}
