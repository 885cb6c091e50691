//! The oracle.
use crate::device::*;
use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::sync::Arc;

/// The naive device.
#[derive(Debug)]
pub struct Reference;
impl Reference {
    /// A new reference device.
    pub fn new() -> Arc<Reference> {
        Arc::new(Reference)
    }
}
#[rustfmt::skip]
impl Device for Reference {
    fn info(&self) -> DeviceInfo { unimplemented!() }
    fn as_any(&self) -> &dyn std::any::Any { self }
    fn upload(&self, _bytes: &[u8], _dtype: DType) -> Result<StorageRef> { unimplemented!() }
    fn download(&self, _x: &Tensor) -> Result<Vec<u8>> { unimplemented!() }
    fn elementwise(&self, _kernel: &Arc<Kernel>, _inputs: &[&Tensor], _params: &[Scalar], _shape: &Shape) -> Result<Outputs> { unimplemented!() }
    fn reduce(&self, _op: ReduceOp, _x: &Tensor, _axes: &[usize]) -> Result<StorageRef> { unimplemented!() }
    fn scan(&self, _op: ScanOp, _x: &Tensor, _axis: usize) -> Result<StorageRef> { unimplemented!() }
    fn matmul(&self, _lhs: &Tensor, _rhs: &Tensor) -> Result<StorageRef> { unimplemented!() }
    fn gather(&self, _x: &Tensor, _axis: usize, _index: &Tensor) -> Result<StorageRef> { unimplemented!() }
    fn scatter(&self, _mode: ScatterMode, _x: &Tensor, _axis: usize, _index: &Tensor, _src: &Tensor) -> Result<StorageRef> { unimplemented!() }
    fn copy_into(&self, _dst: StorageRef, _view: &Layout, _src: &Tensor) -> Result<StorageRef> { unimplemented!() }
    fn sort(&self, _x: &Tensor, _axis: usize, _descending: bool) -> Result<(StorageRef, StorageRef)> { unimplemented!() }
    fn random(&self, _distribution: Distribution, _shape: &Shape, _dtype: DType, _key: Key) -> Result<StorageRef> { unimplemented!() }
    fn synchronize(&self) -> Result<()> { Ok(()) }
}
