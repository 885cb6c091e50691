//! What recording and replaying cost by themselves: on a device that computes nothing.

use super::{Bench, Work};
use std::any::Any;
use std::sync::Arc;
use teeny_core::{
    Capture, DType, Device, DeviceInfo, DeviceRef, Lazy, Op, Outputs, Result, Storage, StorageRef,
    Tensor,
};

/// Requests of `lazy/record`, and operations of `lazy/replay500`.
const REQUESTS: usize = 100;
const ITEMS: usize = 500;

/// `lazy/record`: operations that are recorded, let go of, and found to be the list of the plan.
/// `lazy/replay500`: a captured function of operations that do not fuse.
///
/// # Errors
/// None that is known.
pub fn recording(b: &Bench) -> Result<()> {
    let lazy: DeviceRef = Lazy::new(Arc::new(Nothing) as DeviceRef);
    b.time_on(&lazy, "lazy/record", Work::Ops(REQUESTS as f64), |device| {
        let x = Tensor::zeros((1024,), DType::F32, device)?;
        Ok(move || (0..REQUESTS).try_for_each(|_| x.add(&x).map(drop)))
    })?;
    b.time_on(&lazy, "lazy/replay500", Work::Ops(ITEMS as f64), |device| {
        let x = Tensor::zeros((32, 32), DType::F32, device)?;
        let products = |t: &[Tensor]| {
            let mut y = t[0].clone();
            for _ in 0..ITEMS {
                y = y.matmul(&t[0])?; // (32, 32)
            }
            Ok(vec![y])
        };
        let mut capture = Capture::new(device, products)?;
        Ok(move || capture.run(vec![x.clone()]))
    })
}

/// A device that computes nothing; what is read from it is zero.
#[derive(Debug)]
struct Nothing;

/// Elements that are not there.
struct NoElements {
    len: usize,
    dtype: DType,
}

fn storage(len: usize, dtype: DType) -> StorageRef {
    Arc::new(NoElements { len, dtype })
}

impl Storage for NoElements {
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

impl Device for Nothing {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "nothing".into(), description: "computes nothing".into() }
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        Ok(storage(bytes.len() / dtype.size(), dtype))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        Ok(vec![0; x.numel() * x.dtype().size()])
    }

    /// The first operand: all that is timed has one output of its shape.
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if let Some(x) = op.operands().first() {
            return Ok(Some(x.storage().clone().into()));
        }
        let outputs = op.outputs()?;
        Ok(Some(outputs.iter().map(|&(shape, dtype)| storage(shape.numel(), dtype)).collect()))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
