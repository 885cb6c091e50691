//! A device that counts the operations of another.

use std::sync::{Arc, Mutex};
use teeny_core::{
    DType, Device, DeviceInfo, DeviceRef, Kernel, Op, Outputs, Result, StorageRef, Tensor, ToDevice,
};

/// The number of calls of each operation that is counted.
#[derive(Default)]
pub struct Counts {
    pub elementwise: usize,
    pub matmul: usize,
    /// The kernels run, in order.
    pub kernels: Vec<Arc<Kernel>>,
}

/// The operations of `inner`, counted. It declines fused operations, so that everything is a
/// primitive.
#[derive(Clone)]
pub struct Counter(Arc<State>);

struct State {
    inner: DeviceRef,
    counts: Mutex<Counts>,
}

impl Counter {
    pub fn new(inner: impl ToDevice) -> Counter {
        Counter(Arc::new(State { inner: inner.to_device(), counts: Mutex::default() }))
    }

    /// The counts since the last call.
    pub fn take(&self) -> Counts {
        std::mem::take(&mut self.0.counts.lock().unwrap())
    }
}

impl ToDevice for Counter {
    fn to_device(&self) -> DeviceRef {
        self.0.clone()
    }
}

impl State {
    /// `x` on the inner device, whose storages this device uses.
    fn inner_tensor(&self, x: &Tensor) -> Result<Tensor> {
        Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), self.inner.clone())
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Counter")
    }
}

impl Device for State {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "counter".into(), description: "counts".into() }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.inner.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.inner.download(&self.inner_tensor(x)?)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if !op.is_primitive() {
            return Ok(None);
        }
        {
            let mut counts = self.counts.lock().unwrap();
            match op {
                Op::Elementwise { kernel, .. } => {
                    counts.elementwise += 1;
                    counts.kernels.push(kernel.clone());
                }
                Op::Matmul { .. } => counts.matmul += 1,
                _ => {}
            }
        }
        op.run_mapped(&self.inner, &|x| self.inner_tensor(x)).map(Some)
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
}
