//! [`Dataset`]: items that are gathered into batches, and data sets that wrap other data sets.
//!
//! ```text
//! data set ─ subset, random_split, concat, map ─ data set ─ DataLoader ─ batches
//! ```
//!
//! An adapter passes the epoch on, and translates each index into an index of the data set that it
//! wraps.

mod adapters;
mod tensors;

pub use adapters::{Concat, Map, Portion, Subset};
use std::sync::Arc;
use teeny_core::{Error, Result};
pub use tensors::Collate;
pub(crate) use tensors::rows;

/// Items that can be gathered into batches.
///
/// Tensors with a common first axis are data sets whose items are rows: `(x, y)`, `(x, y, weights)`
/// and `Vec<Tensor>`. So are references to data sets, `Box` and `Arc` of one.
pub trait Dataset {
    /// The type of a batch: usually inputs and targets.
    type Batch;

    /// The number of items.
    fn len(&self) -> usize;

    /// Whether there are no items.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks what [`Dataset::len`] assumes, for [`DataLoader::new`](super::DataLoader::new).
    ///
    /// # Errors
    /// If the parts of the data set do not fit together.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The items at `indices`, in that order, as epoch number `epoch` sees them.
    ///
    /// An augmentation draws its random numbers with a key of the epoch and the item's index
    /// ([`teeny_core::Key::fold_in`]). Then every epoch has other numbers, and a resumed run,
    /// another batch size and any number of threads or ranks have the same ones. Numbers from the
    /// generator of the process would depend on the order in which threads make the batches. A data
    /// set without augmentation ignores `epoch`.
    ///
    /// # Errors
    /// If an index is out of range, or the batch cannot be made.
    ///
    /// # Example
    /// Rows of which half are reversed, other ones in each epoch.
    /// ```
    /// use teeny_core::{Key, Result, random::{philox, unit_f32}};
    /// use teeny_data::{DataLoader, Dataset};
    /// struct Flipped(Vec<[u8; 3]>);
    /// impl Dataset for Flipped {
    ///     type Batch = Vec<[u8; 3]>;
    ///     fn len(&self) -> usize {
    ///         self.0.len()
    ///     }
    ///     fn batch(&self, indices: &[usize], epoch: u64) -> Result<Vec<[u8; 3]>> {
    ///         let row = |&i: &usize| {
    ///             let key = Key { seed: 7, draw: 0 }.fold_in(epoch).fold_in(i as u64);
    ///             let [a, b, c] = self.0[i];
    ///             if unit_f32(philox(key, 0)[0]) < 0.5 { [c, b, a] } else { [a, b, c] }
    ///         };
    ///         Ok(indices.iter().map(row).collect())
    ///     }
    /// }
    /// # fn main() -> Result<()> {
    /// let loader = DataLoader::new(Flipped(vec![[1, 2, 3]; 32]), 32)?;
    /// let batch = |epoch| loader.epoch(epoch).next().unwrap();
    /// assert_eq!(batch(0)?, batch(0)?);
    /// assert_ne!(batch(0)?, batch(1)?);
    /// # Ok(()) }
    /// ```
    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Self::Batch>;
    /// All items in one batch, as epoch 0 sees them.
    ///
    /// # Errors
    /// As [`Dataset::batch`].
    fn all(&self) -> Result<Self::Batch> {
        self.check()?;
        self.batch(&(0..self.len()).collect::<Vec<_>>(), 0)
    }

    /// The items at `indices` as a data set; items may occur more than once.
    ///
    /// Equivalent: `torch.utils.data.Subset`.
    ///
    /// # Errors
    /// If there is no item at one of them.
    #[track_caller]
    fn subset(self, indices: Vec<usize>) -> Result<Subset<Self>>
    where
        Self: Sized,
    {
        Subset::new(self, indices)
    }

    /// The items of this data set, then those of `other`. A batch may have items of both, which
    /// [`Collate`] joins.
    ///
    /// Equivalent: `torch.utils.data.ConcatDataset`.
    fn concat<E: Dataset<Batch = Self::Batch>>(self, other: E) -> Concat<Self, E>
    where
        Self: Sized,
        Self::Batch: Collate,
    {
        Concat { first: self, second: other }
    }

    /// This data set with `f(batch, indices, epoch)` as its batches: where transforms are applied.
    ///
    /// Equivalent: the argument `transform` of torchvision's data sets.
    ///
    /// # Example
    /// ```
    /// use teeny_data::DataLoader;
    /// use teeny_nn::prelude::*;
    /// # fn main() -> Result<()> {
    /// let device = device("cpu")?;
    /// let x = Tensor::arange(0f32, 10.0, 1.0, &device)?.reshape((10, 1))?; // (10, 1)
    /// let y = Tensor::arange(0i32, 10, 1, &device)?; // (10)
    /// let data = (x, y).map(|(x, y), _indices, _epoch| Ok((x.mul(2.0)?, y)));
    /// let [train, test] = data.random_split([0.8, 0.2], 1)?;
    /// let train = DataLoader::new(train, 4)?.shuffle(2);
    /// assert_eq!((train.batches(), test.len()), (2, 2));
    /// # Ok(()) }
    /// ```
    fn map<F, T>(self, f: F) -> Map<Self, F>
    where
        Self: Sized,
        F: Fn(Self::Batch, &[usize], u64) -> Result<T>,
    {
        Map { dataset: self, f }
    }

    /// Random parts without common items, chosen by `seed`: fractions (`[0.8, 0.2]`) or numbers of
    /// items (`[1000, 437]`). The parts share this data set. Fractions are rounded down; the items
    /// that remain go to the first parts, one to each.
    ///
    /// Equivalent: `torch.utils.data.random_split`.
    ///
    /// # Errors
    /// If the parts are not the whole: fractions of sum 1, or numbers with the sum
    /// [`Dataset::len`].
    #[track_caller]
    fn random_split<P: Portion, const N: usize>(
        self,
        parts: [P; N],
        seed: u64,
    ) -> Result<[Subset<Arc<Self>>; N]>
    where
        Self: Sized,
    {
        adapters::random_split(self, parts, seed)
    }
}

/// Returns an error if an index is not below `items`; for a [`Dataset`]'s own `batch`.
///
/// # Errors
/// It names the index and the number of items.
pub fn require_items(indices: &[usize], items: usize) -> Result<()> {
    match indices.iter().find(|i| **i >= items) {
        None => Ok(()),
        Some(i) => Err(Error::index(format!("no item {i}; there are {items}"))
            .help("indices are below dataset.len()")
            .named("batch")),
    }
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<D: Dataset + ?Sized> Dataset for $pointer {
            type Batch = D::Batch;

            fn len(&self) -> usize {
                (**self).len()
            }

            fn check(&self) -> Result<()> {
                (**self).check()
            }

            fn batch(&self, indices: &[usize], epoch: u64) -> Result<D::Batch> {
                (**self).batch(indices, epoch)
            }
        }
    )*};
}
pointers!(&D, Box<D>, Arc<D>);
