//! The reads of a captured function beside its inputs: modes, parameters and numbers of the library
//! that uses [`super::Capture`].
//!
//! A library tells the capture of each read while a function is recorded. A [`Version`] that is
//! another one at a later call means that the function would do other work: it is recorded again.
//! A [`Number`] is an input of each replay.

use super::value::{Value, value};
use crate::dtype::DType;
use crate::element::encode;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

thread_local! {
    /// The reads of the captured function that this thread records.
    static READS: RefCell<Option<Reads>> = const { RefCell::new(None) };
}

/// The reads of one call.
#[derive(Clone, Default)]
pub(super) struct Reads {
    versions: Vec<Version>,
    numbers: Vec<Number>,
}

/// Something that has a version.
#[derive(Clone)]
struct Version {
    /// The address of the object, and a name.
    id: (usize, &'static str),
    /// Where the tensor is that it was.
    tensor: Option<usize>,
    /// Its version when it was first read.
    then: u64,
    now: Rc<dyn Fn() -> u64>,
}

/// A number, as a tensor of shape ().
#[derive(Clone)]
pub(super) struct Number {
    value: Arc<Value>,
    dtype: DType,
    id: usize,
    now: Rc<dyn Fn() -> f64>,
}

/// Whether this thread records a captured function.
pub(super) fn is_recording() -> bool {
    READS.with_borrow(Option::is_some)
}

/// Runs `body`, and records its reads.
pub(super) fn record<T>(body: impl FnOnce() -> T) -> (T, Reads) {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            READS.take();
        }
    }
    READS.set(Some(Reads::default()));
    let stop = Stop;
    let result = body();
    let reads = READS.take().unwrap_or_default();
    drop(stop);
    (result, reads)
}

/// Records that `tensor`, or something else, was read in its present version.
pub(super) fn note(
    id: (usize, &'static str),
    tensor: Option<&Tensor>,
    now: impl Fn() -> u64 + 'static,
) {
    // A function that changes a value it has read reads its own results afterwards.
    let is_new = |reads: &Reads| reads.versions.iter().all(|read| read.id != id);
    if READS.with_borrow(|reads| reads.as_ref().is_some_and(is_new)) {
        let read = Version { id, tensor: tensor.map(address), then: now(), now: Rc::new(now) };
        READS.with_borrow_mut(|reads| {
            reads.iter_mut().for_each(|reads| reads.versions.push(read.clone()));
        });
    }
}

/// Records that `x`, a tensor of the recording device, is the present number.
pub(super) fn note_number(id: usize, x: &Tensor, now: impl Fn() -> f64 + 'static) -> Result<()> {
    let (value, dtype) = (value(x)?.clone(), x.dtype());
    let number = Number { value, dtype, id, now: Rc::new(now) };
    READS.with_borrow_mut(|reads| {
        reads.iter_mut().for_each(|reads| reads.numbers.push(number.clone()));
    });
    Ok(())
}

fn address(x: &Tensor) -> usize {
    Arc::as_ptr(x.storage()).cast::<()>() as usize
}

impl Reads {
    /// Leaves out the tensors that are inputs.
    pub(super) fn without(mut self, inputs: &[Tensor]) -> Reads {
        let inputs: Vec<usize> = inputs.iter().map(address).collect();
        self.versions.retain(|read| !read.tensor.is_some_and(|at| inputs.contains(&at)));
        self
    }

    /// Whether everything has the version that was read.
    pub(super) fn are_current(&self) -> bool {
        self.versions.iter().all(|read| (read.now)() == read.then)
    }

    /// The number that `value` was.
    pub(super) fn number(&self, value: &Arc<Value>) -> Option<&Number> {
        self.numbers.iter().find(|number| Arc::ptr_eq(&number.value, value))
    }
}

impl Number {
    pub(super) fn is_same(&self, other: &Number) -> bool {
        (self.id, self.dtype) == (other.id, other.dtype)
    }

    /// The bytes of the present number, and their type.
    pub(super) fn bytes(&self) -> Result<(Vec<u8>, DType)> {
        Ok((encode(&[Scalar::Float((self.now)())], self.dtype)?, self.dtype))
    }
}
