//! Running a kernel and its tangents.

use super::Forward;
use super::storage::{Dual, flat, tangent, value};
use super::symbolic::{Part, Read, Source, Tangents, tangents};
use crate::elementwise::Cache;
use std::sync::{Arc, LazyLock};
use teeny_core::{
    DType, Device, DeviceRef, Error, Kernel, Outputs, ReduceOp, Result, Scalar, Shape, StorageRef,
    Tensor,
};

/// A forward-mode device often lives for one call only, so all share what they derived.
static CACHE: LazyLock<Cache<Tangents>> = LazyLock::new(Cache::default);

/// One launch: the operands and what goes with them.
struct Launch<'a> {
    device: &'a DeviceRef,
    values: Vec<Tensor>,
    tangents: Vec<Option<Tensor>>,
    params: &'a [Scalar],
    shape: &'a Shape,
}

impl<'a> Launch<'a> {
    fn new(
        device: &'a Forward,
        inputs: &[&Tensor],
        params: &'a [Scalar],
        shape: &'a Shape,
    ) -> Result<Launch<'a>> {
        let values = inputs.iter().map(|x| value(x)).collect::<Result<_>>()?;
        let tangents = inputs.iter().map(|x| tangent(x)).collect::<Result<_>>()?;
        Ok(Launch { device: device.inner_device(), values, tangents, params, shape })
    }

    /// The operands that move, as bits.
    fn moving(&self) -> u8 {
        self.tangents
            .iter()
            .enumerate()
            .fold(0, |bits, (i, t)| if t.is_some() { bits | 1 << i } else { bits })
    }

    fn read(&self, part: &Part) -> Result<Vec<&Tensor>> {
        let one = |read: &Read| match *read {
            Read::Value(i) => self.values.get(i),
            Read::Tangent(i) => self.tangents.get(i).and_then(Option::as_ref),
        };
        part.reads
            .iter()
            .map(|r| one(r).ok_or_else(|| Error::internal("a tangent reads what is not there")))
            .collect()
    }

    fn plain(&self, kernel: &Arc<Kernel>) -> Result<Vec<StorageRef>> {
        let inputs: Vec<&Tensor> = self.values.iter().collect();
        Ok(self.device.elementwise(kernel, &inputs, self.params, self.shape)?.into_iter().collect())
    }

    fn run(&self, part: &Part) -> Result<Vec<StorageRef>> {
        Ok(self
            .device
            .elementwise(&part.kernel, &self.read(part)?, self.params, self.shape)?
            .into_iter()
            .collect())
    }

    fn tensor(&self, storage: StorageRef, dtype: DType) -> Result<Tensor> {
        Tensor::from_result(storage, *self.shape, dtype, self.device.clone())
    }

    /// The one output of a part.
    fn output(&self, part: &Part) -> Result<Tensor> {
        let storage =
            self.run(part)?.pop().ok_or_else(|| Error::internal("a kernel gave no output"))?;
        self.tensor(storage, part.kernel.output_dtype(0))
    }

    /// The tangent from `source`, on its own.
    fn tangent(&self, source: &Source, dtype: DType) -> Result<Option<Tensor>> {
        Ok(match source {
            Source::None => None,
            Source::Pass(i) => self.tangents[*i].clone(),
            Source::Part(part) => Some(self.output(part)?),
            Source::Slopes(slopes) => {
                let mut sum: Option<Tensor> = None;
                for (i, part) in slopes {
                    let Some(t) = &self.tangents[*i] else { continue };
                    let term = self.output(part)?.mul(t)?.cast(dtype)?;
                    sum = Some(sum.map_or(Ok(term.clone()), |s| s.add(&term))?);
                }
                sum
            }
        })
    }
}

pub(crate) fn elementwise(
    device: &Forward,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    let launch = Launch::new(device, inputs, params, shape)?;
    let mut outputs = Outputs::new();
    let moving = launch.moving();
    if moving == 0 {
        for (o, y) in launch.plain(kernel)?.into_iter().enumerate() {
            outputs.push(Dual::storage(launch.tensor(y, kernel.output_dtype(o))?, None)?);
        }
        return Ok(outputs);
    }
    let rule = CACHE.get(kernel, moving, false, || tangents(kernel, moving))?;
    let (values, mut computed) = match &rule.together {
        Some(part) => {
            let mut values = launch.run(part)?;
            let computed = values.split_off(kernel.outputs().len());
            (values, Some(computed.into_iter()))
        }
        None => (launch.plain(kernel)?, None),
    };
    for (o, (y, source)) in values.into_iter().zip(&rule.sources).enumerate() {
        let dtype = kernel.output_dtype(o);
        let tangent = match (source, &mut computed) {
            (Source::Part(_), Some(computed)) => {
                computed.next().map(|t| launch.tensor(t, dtype)).transpose()?
            }
            _ => launch.tangent(source, dtype)?,
        };
        outputs.push(Dual::storage(launch.tensor(y, dtype)?, tangent)?);
    }
    Ok(outputs)
}

pub(crate) fn reduce_kernel(
    device: &Forward,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    op: ReduceOp,
    axes: &[usize],
) -> Result<StorageRef> {
    let launch = Launch::new(device, inputs, params, shape)?;
    let moving = launch.moving();
    if moving != 0 && op != ReduceOp::Sum {
        // The rules of products and extrema read the mapped elements, so these are stored after
        // all.
        let mapped = elementwise(device, kernel, inputs, params, shape)?.into_iter().next();
        let mapped = mapped.ok_or_else(|| Error::internal("a kernel gave no output"))?;
        let mapped = Tensor::from_result(
            mapped,
            *shape,
            kernel.output_dtype(0),
            inputs[0].device().clone(),
        )?;
        return device.reduce(op, &mapped, axes);
    }
    let sum = |kernel: &Arc<Kernel>, inputs: &[&Tensor]| -> Result<Tensor> {
        let storage = launch.device.reduce_kernel(kernel, inputs, params, shape, op, axes)?;
        let shape = shape.reduced(axes, false);
        Tensor::from_result(
            storage,
            shape,
            op.output(kernel.output_dtype(0)),
            launch.device.clone(),
        )
    };
    let y = sum(kernel, &launch.values.iter().collect::<Vec<_>>())?;
    if moving == 0 {
        return Dual::storage(y, None);
    }
    let rule = CACHE.get(kernel, moving, false, || tangents(kernel, moving))?;
    let tangent = match &rule.sources[0] {
        Source::Part(part) => Some(sum(&part.kernel, &launch.read(part)?)?),
        source => {
            launch.tangent(source, kernel.output_dtype(0))?.map(|t| t.sum(axes)).transpose()?
        }
    };
    Dual::storage(flat(y.storage().clone(), &y)?, tangent)
}
