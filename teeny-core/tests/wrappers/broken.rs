//! A device with one fault: the oracle everywhere else.

use std::sync::Arc;
use teeny_core::{
    DType, Device, DeviceInfo, Error, FloatFunction, Op, OpCode, Outputs, ReduceOp, Reference,
    Result, Shape, StorageRef, Tensor,
};

/// The fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The last element of a product is half a thousandth too large.
    Matmul,
    /// The last element of a kernel with an exponential is 1/5000 too large.
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
    /// No f64; nothing wrong with that either.
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

    /// Elements of `x`, which the oracle holds.
    fn values(&self, x: &Tensor) -> Result<Vec<f32>> {
        Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), self.oracle.clone())?
            .to_vec()
    }

    fn require(&self, dtypes: &[DType]) -> Result<()> {
        if self.fault == Fault::NoF64 && dtypes.contains(&DType::F64) {
            Err(Error::unsupported("no f64 here"))
        } else {
            Ok(())
        }
    }
}

/// True for vectors of f32.
fn flat(x: &Tensor) -> bool {
    x.ndim() == 1 && x.dtype() == DType::F32
}

impl Device for Broken {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "broken".into(), description: format!("{:?}", self.fault) }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.require(&[dtype])?;
        let mut bytes = bytes.to_vec();
        if let (Fault::Upload, Some(last)) = (self.fault, bytes.last_mut()) {
            *last = 0;
        }
        self.oracle.upload(&bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.oracle.download(x)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        match (self.fault, &mut *op) {
            (Fault::NoF64, Op::Elementwise { kernel, .. }) => self.require(kernel.inputs())?,
            (Fault::Fails, Op::Scan { .. }) => return Err(Error::device("the device was lost")),
            (Fault::Copy, Op::CopyInto { dst, .. }) => return Ok(dst.take().map(Outputs::one)),
            (Fault::Random, Op::Random { key, .. }) => key.seed += 1,
            (Fault::ArgMaxTies, Op::Reduce { op: ReduceOp::ArgMax, x, .. }) if flat(x) => {
                let values = self.values(x)?;
                let best = (0..values.len())
                    .max_by(|&i, &j| values[i].total_cmp(&values[j]).then(i.cmp(&j)))
                    .expect("an element");
                let y = Tensor::new(best as i32, &self.oracle)?; // ()
                return Ok(Some(y.storage().clone().into()));
            }
            (Fault::SumBackwards, Op::Reduce { op: ReduceOp::Sum, x, .. }) if flat(x) => {
                let sum = self.values(x)?.into_iter().rev().fold(0.0f32, |sum, v| sum + v);
                let y = Tensor::new(sum, &self.oracle)?; // ()
                return Ok(Some(y.storage().clone().into()));
            }
            _ => {}
        }
        let Some(outputs) = self.oracle.execute(op)? else { return Ok(None) };
        let mut storages: Vec<StorageRef> = outputs.into_iter().collect();
        match (self.fault, &*op) {
            (Fault::Exp, Op::Elementwise { kernel, shape, .. })
                if kernel
                    .nodes()
                    .iter()
                    .any(|node| node.op == OpCode::Float(FloatFunction::Exp)) =>
            {
                let (y, last) = (storages.remove(0), shape.numel() - 1);
                storages.insert(0, self.changed(y, **shape, last, |y| y * 1.0002)?);
            }
            (Fault::Matmul, Op::Matmul { .. }) => {
                let (shape, _) = op.outputs()?[0];
                let (y, last) = (storages.remove(0), shape.numel() - 1);
                storages.push(self.changed(y, shape, last, |y| y * 1.0005)?);
            }
            (Fault::SortTies, Op::Sort { x, .. }) => {
                let places = storages.remove(1);
                let oracle = self.oracle.clone();
                let mut places =
                    Tensor::from_result(places, *x.shape(), DType::I32, oracle)?.to_vec::<i32>()?;
                places.swap(0, 1);
                let places = Tensor::from_vec(places, *x.shape(), &self.oracle)?;
                storages.push(places.storage().clone());
            }
            _ => {}
        }
        Ok(Some(storages.into_iter().collect()))
    }
    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}
