//! The cost of recording and replaying alone: on a device that computes nothing.

use super::{Bench, Work};
use std::sync::Arc;
use teeny_core::{
    Capture, DType, Device, DeviceInfo, DeviceRef, Lazy, Op, Outputs, Reference, Result,
    StorageRef, Tensor,
};

/// Requests of `lazy/record`, and operations of `lazy/replay500`.
const REQUESTS: usize = 100;
const ITEMS: usize = 500;

/// `lazy/record`: operations that are recorded, dropped, and matched with the list of the plan.
/// `lazy/replay500`: a captured function of operations that do not fuse.
///
/// # Errors
/// None that is known.
pub fn recording(b: &Bench) -> Result<()> {
    let lazy: DeviceRef = Lazy::new(Arc::new(Nothing(Reference::new())) as DeviceRef);
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

/// A device that computes nothing: storages come from the naive device, and the result of an
/// operation is its first operand.
#[derive(Debug)]
struct Nothing(Arc<Reference>);

impl Device for Nothing {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "nothing".into(), description: "computes nothing".into() }
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.0.upload(bytes, dtype)
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.0.download(x)
    }

    /// The first operand: all that is timed has one output of its shape.
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        match op.operands().first() {
            Some(x) => Ok(Some(x.storage().clone().into())),
            None => self.0.execute(op),
        }
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
