//! A device with one fault: the oracle everywhere else.

use std::any::Any;
use std::sync::Arc;
use teeny_core::device::{Device, DeviceInfo};
use teeny_core::random::{Distribution, Key};
use teeny_core::{
    DType, Error, Kernel, Layout, OpCode, Outputs, ReduceOp, Reference, Result, Scalar, ScanOp,
    ScatterMode, Shape, StorageRef, Tensor,
};

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The last element of a product is half a thousandth too large.
    Matmul,
    /// Kernels with an exponential give 1 + 1/5000 times that.
    Exp,
    /// Of equal elements the last one wins.
    ArgMaxTies,
    /// Equal elements change places.
    SortTies,
    /// The draws of another key.
    Random,
    /// Assignments do nothing.
    Copy,
    /// The last byte of data is lost.
    Upload,
    /// Scans end in an error.
    Fails,
    /// Sums start at the other end, in f32; not wrong at all.
    SumBackwards,
    /// No doubles; nothing wrong with that either.
    NoF64,
}

/// The device.
#[derive(Debug)]
pub struct Broken {
    fault: Fault,
    oracle: Arc<Reference>,
}

impl Broken {
    pub fn new(fault: Fault) -> Arc<Broken> {
        Arc::new(Broken { fault, oracle: Reference::new() })
    }

    /// The storage with element `i` changed by `f`.
    fn changed(
        &self,
        storage: StorageRef,
        shape: Shape,
        i: usize,
        f: impl Fn(f32) -> f32,
    ) -> Result<StorageRef> {
        let y = Tensor::from_result(storage, shape, DType::F32, self.oracle.clone())?;
        let mut values = y.to_vec::<f32>()?;
        values[i] = f(values[i]);
        Ok(Tensor::from_vec(values, shape, &self.oracle)?.storage().clone())
    }

    fn supported(&self, dtypes: &[DType]) -> Result<()> {
        if self.fault == Fault::NoF64 && dtypes.contains(&DType::F64) {
            Err(Error::unsupported("no doubles here"))
        } else {
            Ok(())
        }
    }
}

impl Device for Broken {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "broken".into(), description: format!("{:?}", self.fault) }
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.supported(&[dtype])?;
        let mut bytes = bytes.to_vec();
        if let (Fault::Upload, Some(last)) = (self.fault, bytes.last_mut()) {
            *last = 0;
        }
        self.oracle.upload(&bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.oracle.download(x)
    }
    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        self.supported(kernel.inputs())?;
        let outputs = self.oracle.elementwise(kernel, inputs, params, shape)?;
        if self.fault != Fault::Exp || !kernel.nodes().iter().any(|node| node.op == OpCode::Exp) {
            return Ok(outputs);
        }
        let storage = outputs.into_iter().next().expect("an output");
        Ok(self.changed(storage, *shape, shape.numel() - 1, |y| y * 1.0002)?.into())
    }
    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        let flat = x.ndim() == 1 && x.dtype() == DType::F32;
        match op {
            ReduceOp::ArgMax if self.fault == Fault::ArgMaxTies && flat => {
                let values = self.values(x)?;
                let best = (0..values.len())
                    .max_by(|&i, &j| values[i].total_cmp(&values[j]).then(i.cmp(&j)))
                    .expect("an element");
                Ok(Tensor::new(best as i32, &self.oracle)?.storage().clone())
            }
            ReduceOp::Sum if self.fault == Fault::SumBackwards && flat => {
                let sum = self.values(x)?.into_iter().rev().fold(0.0f32, |sum, v| sum + v);
                Ok(Tensor::new(sum, &self.oracle)?.storage().clone())
            }
            _ => self.oracle.reduce(op, x, axes),
        }
    }
    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        if self.fault == Fault::Fails {
            Err(Error::device("the device was lost"))
        } else {
            self.oracle.scan(op, x, axis)
        }
    }
    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        let product = self.oracle.matmul(lhs, rhs)?;
        if self.fault != Fault::Matmul {
            return Ok(product);
        }
        let shape = Shape::new(&[lhs.shape()[0], rhs.shape()[1]])?;
        self.changed(product, shape, shape.numel() - 1, |y| y * 1.0005)
    }
    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        self.oracle.gather(x, axis, index)
    }
    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        self.oracle.scatter(mode, x, axis, index, src)
    }
    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        if self.fault == Fault::Copy { Ok(dst) } else { self.oracle.copy_into(dst, view, src) }
    }
    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)> {
        let (values, positions) = self.oracle.sort(x, axis, descending)?;
        if self.fault != Fault::SortTies {
            return Ok((values, positions));
        }
        let y = Tensor::from_result(positions, *x.shape(), DType::I32, self.oracle.clone())?;
        let mut positions = y.to_vec::<i32>()?;
        positions.swap(0, 1);
        Ok((values, Tensor::from_vec(positions, *x.shape(), &self.oracle)?.storage().clone()))
    }
    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        mut key: Key,
    ) -> Result<StorageRef> {
        key.seed += u64::from(self.fault == Fault::Random);
        self.oracle.random(distribution, shape, dtype, key)
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

impl Broken {
    fn values(&self, x: &Tensor) -> Result<Vec<f32>> {
        Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), self.oracle.clone())?
            .to_vec()
    }
}
