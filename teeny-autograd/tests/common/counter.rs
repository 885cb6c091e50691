//! A device that counts what another does.

use std::any::Any;
use std::sync::{Arc, Mutex};
use teeny_core::{
    DType, Device, DeviceInfo, DeviceRef, Distribution, Kernel, Key, Layout, Outputs, ReduceOp,
    Result, Scalar, ScanOp, ScatterMode, Shape, StorageRef, Tensor, ToDevice,
};

/// How often what was called.
#[derive(Default)]
pub struct Counts {
    pub elementwise: usize,
    pub matmul: usize,
    /// The kernels run, in order.
    pub kernels: Vec<Arc<Kernel>>,
}

/// The operations of `inner`, counted. Fused operations are carried out by their definitions, so
/// that everything is one of a dozen operations.
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

    /// What was counted since the last call.
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
    /// The tensor of the inner device: storages are its own.
    fn below(&self, x: &Tensor) -> Result<Tensor> {
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
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.inner.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.inner.download(&self.below(x)?)
    }
    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        let mut counts = self.counts.lock().unwrap();
        counts.elementwise += 1;
        counts.kernels.push(kernel.clone());
        let inputs = inputs.iter().map(|x| self.below(x)).collect::<Result<Vec<_>>>()?;
        self.inner.elementwise(kernel, &inputs.iter().collect::<Vec<_>>(), params, shape)
    }
    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        self.inner.reduce(op, &self.below(x)?, axes)
    }
    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        self.inner.scan(op, &self.below(x)?, axis)
    }
    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        self.counts.lock().unwrap().matmul += 1;
        self.inner.matmul(&self.below(lhs)?, &self.below(rhs)?)
    }
    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        self.inner.gather(&self.below(x)?, axis, &self.below(index)?)
    }
    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        self.inner.scatter(mode, &self.below(x)?, axis, &self.below(index)?, &self.below(src)?)
    }
    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        self.inner.copy_into(dst, view, &self.below(src)?)
    }
    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        self.inner.sort(&self.below(x)?, axis, descending)
    }
    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef> {
        self.inner.random(distribution, shape, dtype, key)
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
}
