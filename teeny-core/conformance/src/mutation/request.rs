//! A request to a device as data that a mutation changes: what an [`Op`] borrows.

use teeny_core::op::recorded::{Recorded, RecordedOp, RuntimeArgs};
use teeny_core::{
    DType, DeviceRef, Error, Key, Layout, Op, Outputs, Result, Scalar, Shape, StorageRef, Tensor,
};

/// The variant of requests whose attributes are not recorded.
pub const IN_PLACE: &str = "ElementwiseInPlace";

/// A valid request with operands on the oracle.
pub struct Request {
    /// The variant of [`Op`].
    pub variant: &'static str,
    /// [`Op::name`].
    pub name: &'static str,
    pub attributes: Recorded,
    pub operands: Vec<Tensor>,
    pub params: Vec<Scalar>,
    pub key: Option<Key>,
    /// The destination of [`Op::CopyInto`].
    dst: Option<StorageRef>,
    /// Shape and dtype of each result.
    pub specs: Vec<(Shape, DType)>,
}

/// The tensor of `oracle` behind `x`: all devices here have the storages of the oracle.
pub fn unwrap(x: &Tensor, oracle: &DeviceRef) -> Result<Tensor> {
    Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), oracle.clone())
}

impl Request {
    /// The valid request `op`, which keeps its destination. [`Op::ElementwiseInPlace`] is the
    /// request of the same kernel that overwrites nothing.
    pub fn of(op: &Op<'_>, oracle: &DeviceRef) -> Result<Request> {
        let specs: Vec<_> = op.outputs()?.iter().copied().collect();
        if let Op::ElementwiseInPlace { kernel, storage, input_index, other, params, shape } = op {
            let layout = Layout::contiguous(**shape);
            let own = Tensor::from_parts(
                (*storage).clone(),
                layout,
                kernel.inputs()[*input_index],
                oracle.clone(),
            )?;
            let other = other.map(|x| unwrap(x, oracle)).transpose()?;
            let operands: Vec<Tensor> = match (other, input_index) {
                (None, _) => vec![own],
                (Some(other), 0) => vec![own, other],
                (Some(other), _) => vec![other, own],
            };
            let specs = vec![(**shape, storage.dtype())];
            let attributes = Recorded::Elementwise { kernel: (*kernel).clone(), shape: **shape };
            let (name, params) = (op.name(), params.to_vec());
            return Ok(Request {
                variant: IN_PLACE,
                name,
                attributes,
                operands,
                params,
                key: None,
                dst: None,
                specs,
            });
        }
        let mut attributes =
            RecordedOp::of(op).ok_or_else(|| Error::internal("a request without a record"))?;
        let args = RuntimeArgs::of(op);
        let operands =
            op.operands().iter().map(|x| unwrap(x, oracle)).collect::<Result<Vec<_>>>()?;
        let dst = if let Op::CopyInto { dst, .. } = op { dst.clone() } else { None };
        Ok(Request {
            variant: attributes.fields().0,
            name: op.name(),
            attributes,
            operands,
            params: args.params.to_vec(),
            key: args.key,
            dst,
            specs,
        })
    }

    /// Runs the request on the oracle. An `Err` inside comes from the elements, such as a position
    /// outside or a matrix without an inverse. `None` if the request is not valid.
    pub fn run(&self, oracle: &DeviceRef) -> Option<Result<Vec<Tensor>>> {
        let operands: Vec<&Tensor> = self.operands.iter().collect();
        let args = RuntimeArgs { params: &self.params, key: self.key };
        let mut op = self.attributes.op(&operands, args, self.dst.clone());
        let specs: Vec<_> = op.outputs().ok()?.iter().copied().collect();
        let outputs = match op.run(oracle) {
            Ok(outputs) => outputs.into_iter().zip(specs),
            Err(error) => return Some(Err(error)),
        };
        let tensors =
            outputs.map(|(y, (shape, dtype))| Tensor::from_result(y, shape, dtype, oracle.clone()));
        Some(tensors.collect())
    }

    /// Storages with the sizes and dtypes of the request's results and the elements of `answer`,
    /// which may answer another request.
    pub fn fitted(&self, answer: &[Tensor], oracle: &DeviceRef) -> Result<Outputs> {
        let mut outputs = Outputs::new();
        for (i, &(shape, dtype)) in self.specs.iter().enumerate() {
            let y = &answer[i.min(answer.len() - 1)];
            outputs.push(if (y.shape().numel(), y.dtype()) == (shape.numel(), dtype) {
                y.storage().clone()
            } else {
                let all = y.to_scalars()?;
                let stale = [Scalar::UInt(77)];
                let all = if all.is_empty() { &stale[..] } else { &all };
                let all: Vec<Scalar> = all.iter().copied().cycle().take(shape.numel()).collect();
                stored(&all, dtype, oracle)?
            });
        }
        Ok(outputs)
    }
}

/// New storage of the oracle.
pub fn stored(values: &[Scalar], dtype: DType, oracle: &DeviceRef) -> Result<StorageRef> {
    Ok(Tensor::from_scalars(values, values.len(), dtype, oracle)?.storage().clone())
}
