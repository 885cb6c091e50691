//! A wrapper of the required methods: it counts the ops and passes them on.

use std::collections::BTreeMap;
use std::sync::Mutex;
use teeny_core::{DType, Device, DeviceInfo, DeviceRef, Op, Outputs, Result, StorageRef, Tensor};

/// Counts the ops that `inner` runs, by name.
#[derive(Debug)]
pub struct Counter {
    pub inner: DeviceRef,
    /// Fused ops are declined, so that their definitions are counted in primitives.
    pub primitives_only: bool,
    pub counts: Mutex<BTreeMap<&'static str, usize>>,
}

impl Counter {
    pub fn new(inner: DeviceRef, primitives_only: bool) -> Counter {
        Counter { inner, primitives_only, counts: Mutex::default() }
    }

    /// The counts, from 0 again.
    pub fn take(&self) -> Vec<(&'static str, usize)> {
        std::mem::take(&mut *self.counts.lock().unwrap()).into_iter().collect()
    }

    /// The tensor of the wrapped device behind `x`: this wrapper uses its storages.
    fn inner_tensor(&self, x: &Tensor) -> Result<Tensor> {
        Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), self.inner.clone())
    }
}

impl Device for Counter {
    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, description } = self.inner.info();
        DeviceInfo { name: format!("counter({name})"), description }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.inner.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.inner.download(&self.inner_tensor(x)?)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if self.primitives_only && !op.is_primitive() {
            return Ok(None);
        }
        *self.counts.lock().unwrap().entry(op.name()).or_default() += 1;
        op.run_mapped(&self.inner, &|x| self.inner_tensor(x)).map(Some)
    }
    fn synchronize(&self) -> Result<()> {
        self.inner.synchronize()
    }
}
