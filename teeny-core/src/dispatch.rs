//! Running an [`Op`]: the device executes it, or core runs its definition. Implements methods of
//! `Op`, so no file imports this one.

use crate::calls;
use crate::definition;
use crate::device::DeviceRef;
use crate::error::{Error, Result};
use crate::op::{Op, Outputs, PerOutput};
use crate::storage::StorageRef;
use crate::tensor::Tensor;

impl Op<'_> {
    /// The op's outputs: `device` executes it, and if it declines a fused op, the definition in
    /// primitives runs there.
    ///
    /// # Errors
    /// As [`Device::execute`](crate::Device::execute); if the device declines a primitive.
    #[inline]
    pub fn run(&mut self, device: &DeviceRef) -> Result<Outputs> {
        if calls::is_recording() {
            return self.run_recorded(device);
        }
        match device.execute(self)? {
            Some(outputs) => Ok(outputs),
            None => self.run_definition(device),
        }
    }

    /// [`Op::run`] for the first output alone. Its result is moved once: to a small operation that
    /// makes a difference.
    #[inline]
    pub(crate) fn first(&mut self, device: &DeviceRef) -> Result<StorageRef> {
        if calls::is_recording() {
            return match self.run_recorded(device)?.into_first() {
                Some(storage) => Ok(storage),
                None => Err(miscounted(self, device, 0, 1)),
            };
        }
        let outputs = match device.execute(self) {
            Ok(Some(outputs)) => outputs,
            Ok(None) => self.run_definition(device)?,
            Err(error) => return Err(error),
        };
        match outputs.into_first() {
            Some(storage) => Ok(storage),
            None => Err(miscounted(self, device, 0, 1)),
        }
    }

    /// [`Op::run`] on the tensors that `map` makes of the operands: for a wrapper that passes an op
    /// on to the device it wraps.
    ///
    /// # Errors
    /// As `map` and [`Op::run`].
    pub fn run_mapped(
        &mut self,
        device: &DeviceRef,
        map: &dyn Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Outputs> {
        let mapped = self.operands().iter().map(|x| map(x)).collect::<Result<Vec<_>>>()?;
        self.with_operands(&mapped.iter().collect::<Vec<_>>()).run(device)
    }

    /// [`Op::run`], with its cost added to the call that is recorded. The call gets no operations
    /// of the op's definition or of a wrapped device.
    #[cold]
    #[inline(never)]
    fn run_recorded(&mut self, device: &DeviceRef) -> Result<Outputs> {
        let (flops, specs) = (self.cost()?.flops, self.outputs()?);
        let outputs = calls::pause(|| self.run(device))?;
        if let Some((shape, _)) = specs.first() {
            calls::made(shape, flops);
        }
        Ok(outputs)
    }

    /// The op's definition in primitives.
    #[cold]
    fn run_definition(&mut self, device: &DeviceRef) -> Result<Outputs> {
        if self.is_primitive() {
            return Err(declined(self, device));
        }
        definition::run(self, device)
    }

    /// Runs the op on `device`; its only output as a tensor.
    ///
    /// # Errors
    /// As [`Op::outputs`] and [`Op::run`]; if the op does not have one output.
    pub fn tensor(mut self, device: &DeviceRef) -> Result<Tensor> {
        if calls::is_recording() {
            let [tensor] = self.tensors(device)?;
            return Ok(tensor);
        }
        // By reference: moving the shapes takes longer than a small copy.
        let specs = self.outputs();
        let specs = match &specs {
            Ok(specs) => specs,
            Err(error) => return Err(error.clone()),
        };
        let outputs = match device.execute(&mut self) {
            Ok(Some(outputs)) => outputs,
            Ok(None) => self.run_definition(device)?,
            Err(error) => return Err(error),
        };
        let (Some((shape, dtype)), 1, 1) = (specs.first(), specs.len(), outputs.len()) else {
            return Err(miscounted(&self, device, outputs.len(), 1));
        };
        let Some(storage) = outputs.into_first() else {
            return Err(miscounted(&self, device, 0, 1));
        };
        Tensor::from_result(storage, *shape, *dtype, device.clone())
    }

    /// Runs the op on `device`; its `N` outputs as tensors.
    ///
    /// # Errors
    /// As [`Op::outputs`] and [`Op::run`]; if the op does not have `N` outputs.
    pub fn tensors<const N: usize>(self, device: &DeviceRef) -> Result<[Tensor; N]> {
        let name = self.name();
        let all = Vec::from(self.tensor_list(device)?);
        let count = all.len();
        all.try_into().map_err(|_| Error::internal(format!("{name} has {count} outputs, not {N}")))
    }

    /// Runs the op on `device`; its outputs as tensors.
    ///
    /// # Errors
    /// As [`Op::outputs`] and [`Op::run`].
    pub fn tensor_list(mut self, device: &DeviceRef) -> Result<PerOutput<Tensor>> {
        // By reference: moving the shapes takes longer than a small copy.
        let specs = self.outputs();
        let specs = specs.as_ref().map_err(Error::clone)?;
        let outputs = self.run(device)?;
        if outputs.len() != specs.len() {
            return Err(miscounted(&self, device, outputs.len(), specs.len()));
        }
        outputs.try_map(|o, storage| {
            let (shape, dtype) = specs[o];
            Tensor::from_result(storage, shape, dtype, device.clone())
        })
    }
}

#[cold]
fn declined(op: &Op<'_>, device: &DeviceRef) -> Error {
    let (name, device) = (op.name(), device.info().name);
    // An op without operands, like a draw, has the dtype of its output.
    let operand = op.operands().first().map(|x| x.dtype());
    let dtype = operand.or_else(|| Some(op.outputs().ok()?.first()?.1));
    let dtype = dtype.map(|dtype| format!(" of {dtype}")).unwrap_or_default();
    Error::unsupported(format!("the device {device} does not execute the primitive {name}{dtype}"))
        .help("move the operands to a device that does: x.to(&device)?")
}

#[cold]
fn miscounted(op: &Op<'_>, device: &DeviceRef, got: usize, wanted: usize) -> Error {
    let (name, device) = (op.name(), device.info().name);
    Error::internal(format!("the device {device} returned {got} outputs of {name}, not {wanted}"))
}
