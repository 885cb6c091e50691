//! Data sets that wrap other data sets. They pass on the epoch, and translate indices into indices
//! of the inner data set.

use super::{Collate, Dataset, require_items};
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Error, Key, Result, permutation};

/// Some items of a data set; see [`Dataset::subset`].
#[derive(Clone, Debug)]
pub struct Subset<D> {
    dataset: D,
    indices: Vec<usize>,
}

impl<D: Dataset> Subset<D> {
    #[track_caller]
    pub(super) fn new(dataset: D, indices: Vec<usize>) -> Result<Subset<D>> {
        let _op = enter("subset");
        dataset.check()?;
        let count = dataset.len();
        if let Some((i, index)) = indices.iter().enumerate().find(|(_, index)| **index >= count) {
            return Err(Error::index(format!("indices[{i}] is {index}; there are {count} items"))
                .help("indices are below the length of the set that is divided"));
        }
        Ok(Subset { dataset, indices })
    }

    /// The data set that the items are from.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The index of each item in [`Subset::dataset`].
    pub fn indices(&self) -> &[usize] {
        &self.indices
    }
}

impl<D: Dataset> Dataset for Subset<D> {
    type Batch = D::Batch;

    fn len(&self) -> usize {
        self.indices.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<D::Batch> {
        require_items(indices, self.len())?;
        let indices: Vec<usize> = indices.iter().map(|i| self.indices[*i]).collect();
        self.dataset.batch(&indices, epoch)
    }
}

/// Two data sets as one; see [`Dataset::concat`].
#[derive(Clone, Debug)]
pub struct Concat<D, E> {
    pub(super) first: D,
    pub(super) second: E,
}

impl<D: Dataset, E: Dataset<Batch = D::Batch>> Dataset for Concat<D, E>
where
    D::Batch: Collate,
{
    type Batch = D::Batch;

    fn len(&self) -> usize {
        self.first.len().saturating_add(self.second.len())
    }

    fn check(&self) -> Result<()> {
        self.first.check()?;
        self.second.check()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<D::Batch> {
        let border = self.first.len();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        for &i in indices {
            if i < border { first.push(i) } else { second.push(i - border) }
        }
        if second.is_empty() {
            return self.first.batch(&first, epoch);
        }
        if first.is_empty() {
            return self.second.batch(&second, epoch);
        }
        // items of the first data set are rows from 0, those of the second from first.len()
        let mut next = [0, first.len()];
        let row = |i: &usize| {
            let next = &mut next[usize::from(*i >= border)];
            *next += 1;
            *next - 1
        };
        let order: Vec<usize> = indices.iter().map(row).collect();
        let other = self.second.batch(&second, epoch)?;
        self.first.batch(&first, epoch)?.collate(other, &order)
    }
}

/// A data set with a function of its batches; see [`Dataset::map`].
#[derive(Clone, Debug)]
pub struct Map<D, F> {
    pub(super) dataset: D,
    pub(super) f: F,
}

impl<D: Dataset, T, F: Fn(D::Batch, &[usize], u64) -> Result<T>> Dataset for Map<D, F> {
    type Batch = T;

    fn len(&self) -> usize {
        self.dataset.len()
    }

    fn check(&self) -> Result<()> {
        self.dataset.check()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<T> {
        (self.f)(self.dataset.batch(indices, epoch)?, indices, epoch)
    }
}

/// The size of a part of a data set: a fraction (`f64`) or a number of items (`usize`).
pub trait Portion: Copy {
    /// The number of items of each part of `items`.
    ///
    /// # Errors
    /// If the parts are not the whole.
    fn counts(parts: &[Self], items: usize) -> Result<Vec<usize>>;
}

impl Portion for f64 {
    fn counts(parts: &[f64], items: usize) -> Result<Vec<usize>> {
        let sum: f64 = parts.iter().sum();
        // fractions with few digits, such as 0.1, are not exact
        if parts.iter().any(|part| !(0.0..=1.0).contains(part)) || (sum - 1.0).abs() > 1e-6 {
            return Err(Error::value(format!("the fractions {parts:?} have the sum {sum}"))
                .help("fractions are at least 0 and have the sum 1: [0.8, 0.2]"));
        }
        let mut counts: Vec<usize> =
            parts.iter().map(|part| (items as f64 * part) as usize).collect();
        let rest = items.saturating_sub(counts.iter().sum());
        counts.iter_mut().take(rest).for_each(|count| *count += 1);
        Ok(counts)
    }
}

impl Portion for usize {
    fn counts(parts: &[usize], items: usize) -> Result<Vec<usize>> {
        if parts.iter().try_fold(0, |sum: usize, part| sum.checked_add(*part)) != Some(items) {
            return Err(Error::value(format!("parts have {parts:?} items, but there are {items}"))
                .help("the sizes must add up to all items; subset(indices) selects some"));
        }
        Ok(parts.to_vec())
    }
}

#[track_caller]
pub(super) fn random_split<D: Dataset, P: Portion, const N: usize>(
    dataset: D,
    parts: [P; N],
    seed: u64,
) -> Result<[Subset<Arc<D>>; N]> {
    let _op = enter("random_split");
    dataset.check()?;
    let counts = P::counts(&parts, dataset.len())?;
    let mut order = permutation(dataset.len(), Key { seed, draw: 0 }).into_iter();
    let dataset = Arc::new(dataset);
    Ok(std::array::from_fn(|part| {
        let indices = order.by_ref().take(counts[part]).collect();
        Subset { dataset: dataset.clone(), indices }
    }))
}
