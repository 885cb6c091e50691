//! The outputs of an op: shapes and dtypes before it runs, storages after. [`Op::outputs`] is in
//! `validate`.
//!
//! [`Op::outputs`]: super::Op::outputs

use crate::dtype::DType;
use crate::error::Error;
use crate::shape::Shape;
use crate::storage::StorageRef;

/// Shape and dtype of an output.
pub type TensorSpec = (Shape, DType);

/// The shapes and dtypes of an op's outputs, in order. A single one is stored inline.
#[derive(Default)]
pub struct TensorSpecs {
    // Nearly every op has one output.
    first: Option<TensorSpec>,
    others: Option<Vec<TensorSpec>>,
}

impl TensorSpecs {
    /// The number of outputs.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, Vec::len)
    }

    /// True if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The first output.
    #[inline]
    pub fn first(&self) -> Option<&TensorSpec> {
        self.first.as_ref()
    }

    /// The outputs in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &TensorSpec> {
        self.first.iter().chain(self.others.iter().flatten())
    }
}

impl std::ops::Index<usize> for TensorSpecs {
    type Output = TensorSpec;
    /// Output `i`.
    ///
    /// # Panics
    /// If the op has no output of that number.
    fn index(&self, i: usize) -> &TensorSpec {
        self.iter().nth(i).unwrap_or_else(|| panic!("output {i} of an op with {}", self.len()))
    }
}

impl From<TensorSpec> for TensorSpecs {
    #[inline]
    fn from(one: TensorSpec) -> TensorSpecs {
        TensorSpecs { first: Some(one), others: None }
    }
}

impl From<[TensorSpec; 2]> for TensorSpecs {
    fn from([first, second]: [TensorSpec; 2]) -> TensorSpecs {
        TensorSpecs { first: Some(first), others: Some(vec![second]) }
    }
}

impl FromIterator<TensorSpec> for TensorSpecs {
    fn from_iter<I: IntoIterator<Item = TensorSpec>>(specs: I) -> TensorSpecs {
        let mut specs = specs.into_iter();
        TensorSpecs { first: specs.next(), others: some(specs) }
    }
}

/// The rest of an iterator; `None`, without an allocation, if it is empty.
fn some<T>(rest: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let rest: Vec<T> = rest.collect();
    (!rest.is_empty()).then_some(rest)
}

/// The error of an op whose destination has been taken.
#[cold]
pub(crate) fn taken() -> Error {
    Error::internal("the destination of copy_into has been taken: an op runs once")
}

/// The storages of an op's outputs, in order. A single one is stored inline.
#[derive(Default)]
pub struct Outputs {
    // Nearly every op has one output.
    first: Option<StorageRef>,
    others: Option<Vec<StorageRef>>,
}

impl Outputs {
    /// No outputs yet.
    pub fn new() -> Outputs {
        Outputs::default()
    }

    /// A single output.
    #[inline]
    pub fn one(storage: StorageRef) -> Outputs {
        Outputs { first: Some(storage), others: None }
    }

    /// Adds an output.
    pub fn push(&mut self, storage: StorageRef) {
        match self.first {
            None => self.first = Some(storage),
            Some(_) => self.others.get_or_insert_default().push(storage),
        }
    }

    /// The number of outputs.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, Vec::len)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The storages in order.
    pub fn iter(&self) -> impl Iterator<Item = &StorageRef> {
        self.first.iter().chain(self.others.iter().flatten())
    }

    /// The first output alone.
    #[inline]
    pub fn into_first(self) -> Option<StorageRef> {
        self.first
    }
}

impl From<StorageRef> for Outputs {
    #[inline]
    fn from(storage: StorageRef) -> Outputs {
        Outputs::one(storage)
    }
}

impl From<(StorageRef, StorageRef)> for Outputs {
    fn from((first, second): (StorageRef, StorageRef)) -> Outputs {
        Outputs { first: Some(first), others: Some(vec![second]) }
    }
}

impl FromIterator<StorageRef> for Outputs {
    fn from_iter<I: IntoIterator<Item = StorageRef>>(storages: I) -> Outputs {
        let mut storages = storages.into_iter();
        Outputs { first: storages.next(), others: some(storages) }
    }
}

impl IntoIterator for Outputs {
    type Item = StorageRef;
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<StorageRef>, std::vec::IntoIter<StorageRef>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others.unwrap_or_default())
    }
}
