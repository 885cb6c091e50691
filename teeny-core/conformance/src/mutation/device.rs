//! The devices of the campaign: one that notes the requests it gets, and one with a fault.

use super::mutant::{Change, Mutant};
use super::request::{Request, stored, unwrap};
use super::signature::{Noted, Signature};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use teeny_core::{DType, Device, DeviceInfo, DeviceRef, Op, Outputs, Result, StorageRef, Tensor};

/// The request as the oracle answers it.
fn plain(op: &mut Op<'_>, oracle: &DeviceRef) -> Result<Option<Outputs>> {
    op.run_mapped(oracle, &|x| unwrap(x, oracle)).map(Some)
}

/// The oracle, with a note of every kind of valid request that reaches it.
#[derive(Debug)]
pub struct Recorder {
    oracle: DeviceRef,
    pub noted: Mutex<HashMap<Signature, Noted>>,
}

impl Recorder {
    pub fn new(oracle: DeviceRef) -> Recorder {
        Recorder { oracle, noted: Mutex::default() }
    }
}

impl Device for Recorder {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "recorder".into(), description: "notes requests".into() }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if let Ok(request) = Request::of(op, &self.oracle) {
            let mut noted = self.noted.lock().expect("no holder panics");
            noted.entry(Signature::of(&request)).or_insert_with(|| Noted::of(&request));
        }
        match op {
            Op::ElementwiseInPlace { .. } => Ok(None),
            op => plain(op, &self.oracle),
        }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.oracle.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.oracle.download(&unwrap(x, &self.oracle)?)
    }
    fn synchronize(&self) -> Result<()> {
        self.oracle.synchronize()
    }
}

/// The oracle with one fault in one kind of request.
#[derive(Debug)]
pub struct Faulty {
    oracle: DeviceRef,
    mutant: Arc<Mutant>,
    /// Whether the fault changed a request that stayed valid, or a result.
    pub applied: AtomicBool,
}

impl Faulty {
    pub fn new(oracle: DeviceRef, mutant: Arc<Mutant>) -> Faulty {
        Faulty { oracle, mutant, applied: AtomicBool::new(false) }
    }

    /// The faulty answer; `None` where the fault changes nothing.
    fn answer(&self, op: &Op<'_>) -> Option<(Request, Result<Vec<Tensor>>)> {
        let mutant = &*self.mutant;
        if op.name() != mutant.name {
            return None;
        }
        let mut request = Request::of(op, &self.oracle).ok()?;
        if request.variant != mutant.variant {
            return None;
        }
        let answer = match &mutant.change {
            Change::Request(change) => {
                change(&mut request, &self.oracle)?;
                request.run(&self.oracle)?
            }
            Change::Results(change) => {
                let mut answer = request.run(&self.oracle)?.ok()?;
                change(&mut answer, &self.oracle)?;
                Ok(answer)
            }
        };
        self.applied.store(true, Ordering::Relaxed);
        Some((request, answer))
    }
}

impl Device for Faulty {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "faulty".into(), description: self.mutant.text.clone() }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        let answer = self.answer(op);
        let faulty = match &answer {
            Some((request, Ok(answer))) => Some(request.fitted(answer, &self.oracle)?),
            Some((_, Err(error))) => return Err(error.clone()),
            None => None,
        };
        // The request holds clones of the storages, which the op may overwrite.
        drop(answer);
        match (op, faulty) {
            (Op::ElementwiseInPlace { storage, .. }, Some(outputs)) => {
                let y = outputs.into_first().expect("a kernel of one output");
                **storage = stored_copy(y, &self.oracle)?;
                Ok(Some(Outputs::new()))
            }
            (Op::ElementwiseInPlace { .. }, None) => Ok(None),
            (Op::CopyInto { dst, .. }, Some(outputs)) => {
                drop(dst.take());
                Ok(Some(outputs))
            }
            (_, Some(outputs)) => Ok(Some(outputs)),
            (op, None) => plain(op, &self.oracle),
        }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.oracle.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.oracle.download(&unwrap(x, &self.oracle)?)
    }
    fn synchronize(&self) -> Result<()> {
        self.oracle.synchronize()
    }
}

/// The elements of a storage in new storage.
fn stored_copy(y: StorageRef, oracle: &DeviceRef) -> Result<StorageRef> {
    let (len, dtype) = (y.len(), y.dtype());
    let shape = teeny_core::Shape::new(&[len])?;
    stored(&Tensor::from_result(y, shape, dtype, oracle.clone())?.to_scalars()?, dtype, oracle)
}
