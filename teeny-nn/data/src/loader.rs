//! Makes batches of a data set: in order, shuffled, or drawn by weights.
//!
//! The order of an epoch depends only on the seed and the number of the epoch, so a run can be
//! repeated and resumed in any epoch.

use super::dataset::Dataset;
use super::shard::Shard;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{Builder, JoinHandle};
use teeny_core::context::enter;
use teeny_core::random::{philox, unit_f64};
use teeny_core::{Error, Key, Result, permutation};

/// Makes batches of a data set: in the data set's order, shuffled in each epoch, or of items that
/// are drawn by weights.
///
/// # Example
/// ```
/// use teeny_data::{DataLoader, digits};
/// use teeny_nn::device::device;
/// # fn main() -> teeny_core::Result<()> {
/// let digits = digits::load()?;
/// let loader = DataLoader::new(digits.train.on(&device("cpu")?), 64)?.shuffle(1);
/// assert_eq!(loader.batches(), 23);                    // 1,437 = 22 x 64 + 29
/// # Ok(()) }
/// ```
pub struct DataLoader<D> {
    dataset: D,
    batch: usize,
    sampling: Sampling,
    drop_last: bool,
    shard: Shard,
}

/// The items of an epoch and their order.
enum Sampling {
    InOrder,
    Shuffled {
        seed: u64,
    },
    /// `count` items, drawn with replacement; the weights are summed up.
    Weighted {
        sums: Vec<f64>,
        count: usize,
        seed: u64,
    },
}

impl<D: Dataset> DataLoader<D> {
    /// Batches of `batch` items, the last one possibly smaller, in the data set's order.
    ///
    /// # Errors
    /// If `batch` is 0, there are no items, or [`Dataset::check`] fails.
    #[track_caller]
    pub fn new(dataset: D, batch: usize) -> Result<DataLoader<D>> {
        let _op = enter("DataLoader::new");
        dataset.check()?;
        if batch == 0 || dataset.is_empty() {
            let text = format!("cannot make batches of {batch} from {} items", dataset.len());
            return Err(Error::value(format!("{text}: both must be at least 1")).help(
                match batch {
                    0 => "a batch of 32 or 64 items is usual",
                    _ => "the data set is empty: no epoch would have a batch",
                },
            ));
        }
        let (sampling, shard) = (Sampling::InOrder, Shard::WHOLE);
        Ok(DataLoader { dataset, batch, sampling, drop_last: false, shard })
    }

    /// Shuffles each epoch, with an order drawn from `seed`. After [`DataLoader::weighted`], whose
    /// items are in random order, this only replaces the seed.
    pub fn shuffle(mut self, seed: u64) -> DataLoader<D> {
        self.sampling = match self.sampling {
            Sampling::Weighted { sums, count, .. } => Sampling::Weighted { sums, count, seed },
            _ => Sampling::Shuffled { seed },
        };
        self
    }

    /// Draws the `count` items of each epoch with replacement, item `i` with a probability
    /// proportional to `weights[i]`. Weights of 1 / (items of the same class) balance the classes.
    /// An augmentation treats an item that occurs twice in an epoch in the same way both times.
    ///
    /// Equivalent: `torch.utils.data.WeightedRandomSampler(weights, count)`.
    ///
    /// # Errors
    /// If there is not one weight for each item, one is negative, infinite or NaN, their sum is 0
    /// or infinite, or `count` is too small for a batch with [`DataLoader::drop_last`] or for
    /// [`DataLoader::shard`].
    #[doc(alias = "WeightedRandomSampler")]
    #[track_caller]
    pub fn weighted(mut self, weights: &[f64], count: usize, seed: u64) -> Result<DataLoader<D>> {
        let _op = enter("DataLoader::weighted");
        let items = self.dataset.len();
        if weights.len() != items || count == 0 {
            let text = format!("cannot draw {count} of {items} items by {} weights", weights.len());
            return Err(Error::value(text).help("pass a weight for each item, draw at least one"));
        }
        if let Some(i) = weights.iter().position(|w| !w.is_finite() || *w < 0.0) {
            return Err(Error::value(format!("weights[{i}] is {}", weights[i]))
                .help("weights are finite and not negative"));
        }
        let mut total = 0.0;
        let add = |w: &f64| {
            total += w;
            total
        };
        let sums: Vec<f64> = weights.iter().map(add).collect();
        if total == 0.0 || total.is_infinite() {
            return Err(Error::value(format!("the sum of the weights is {total}"))
                .help("pass at least one weight above 0, and weights with a finite sum"));
        }
        self.sampling = Sampling::Weighted { sums, count, seed };
        if self.drop_last {
            self.require_batch()?
        } // the number of items has changed
        self.require_ranks()?;
        Ok(self)
    }

    /// Skips the last batch if it is smaller than the others.
    ///
    /// # Errors
    /// If the data set has fewer items than a batch, so that an epoch would have no batches.
    #[track_caller]
    pub fn drop_last(mut self) -> Result<DataLoader<D>> {
        let _op = enter("DataLoader::drop_last");
        self.require_batch()?;
        self.drop_last = true;
        Ok(self)
    }

    fn require_batch(&self) -> Result<()> {
        let items = self.items();
        if items < self.batch {
            let text = format!("{items} items make no batch of {}: epochs are empty", self.batch);
            return Err(Error::value(text).help(format!("use batches of at most {items} items")));
        }
        Ok(())
    }

    /// Makes only part `rank` of each batch, for one of `ranks` ranks that train together: together
    /// they see every item once per epoch. `batch` remains the number of items of all ranks; the
    /// parts of a batch differ by one item at most.
    ///
    /// A last batch with fewer items than ranks is joined to the one before it, so that no rank is
    /// without items.
    ///
    /// Equivalent: `torch.utils.data.DistributedSampler`, which repeats items instead.
    ///
    /// # Errors
    /// If `rank` is not below `ranks`, or a batch or the data set has fewer items than ranks.
    #[doc(alias = "DistributedSampler")]
    #[track_caller]
    pub fn shard(mut self, rank: usize, ranks: usize) -> Result<DataLoader<D>> {
        let _op = enter("DataLoader::shard");
        self.shard = Shard::new(rank, ranks)?;
        self.require_ranks()?;
        Ok(self)
    }

    fn require_ranks(&self) -> Result<()> {
        let (items, ranks) = (self.batch.min(self.items()), self.shard.ranks);
        if items < ranks {
            return Err(Error::value(format!("batches of {items} items for {ranks} ranks"))
                .help("use larger batches, or fewer ranks: every rank needs an item"));
        }
        Ok(())
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The number of items in an epoch.
    fn items(&self) -> usize {
        match self.sampling {
            Sampling::Weighted { count, .. } => count,
            _ => self.dataset.len(),
        }
    }

    /// The number of batches in an epoch.
    pub fn batches(&self) -> usize {
        let (full, rest) = (self.items() / self.batch, self.items() % self.batch);
        let joined = full > 0 && rest < self.shard.ranks;
        if self.drop_last || rest == 0 || joined { full } else { full + 1 }
    }

    /// The batches of epoch number `epoch`, made one at a time.
    pub fn epoch(&self, epoch: u64) -> impl ExactSizeIterator<Item = Result<D::Batch>> + '_ {
        self.epoch_from(epoch, 0)
    }

    /// The batches of epoch number `epoch` from number `batch` on, for a resumed run. There are
    /// none if `batch` is [`DataLoader::batches`] or more.
    pub fn epoch_from(
        &self,
        epoch: u64,
        batch: usize,
    ) -> impl ExactSizeIterator<Item = Result<D::Batch>> + '_ {
        let order = self.order(epoch);
        (batch.min(self.batches())..self.batches()).map(move |i| self.make(&order, epoch, i))
    }

    /// This rank's part of batch number `i` of `order`, the order of epoch number `epoch`.
    fn make(&self, order: &[usize], epoch: u64, i: usize) -> Result<D::Batch> {
        let from = i * self.batch; // below the number of items
        let is_last = !self.drop_last && i + 1 == self.batches();
        let to = if is_last { order.len() } else { from.saturating_add(self.batch) };
        let items = &order[from..to.min(order.len())];
        self.dataset.batch(&items[self.shard.of(items.len())], epoch)
    }

    /// The batches of [`DataLoader::epoch_from`], which `threads` threads make in advance: for data
    /// sets whose batches take time (decoding, augmentation). The batches and their order are the
    /// same; each thread is at most two batches ahead. With 0 threads, and where the system starts
    /// none (in a browser), the calling thread makes them. The threads share the loader, and end
    /// when the iterator is dropped.
    ///
    /// Equivalent: `num_workers` of `torch.utils.data.DataLoader`.
    ///
    /// # Example
    /// ```
    /// use std::sync::Arc;
    /// use teeny_data::{DataLoader, digits};
    /// use teeny_nn::device::device;
    /// # fn main() -> teeny_core::Result<()> {
    /// let images = digits::load()?.train.into_batches(&device("cpu")?);
    /// let loader = Arc::new(DataLoader::new(images, 64)?.shuffle(1));
    /// let mut items = 0;
    /// for batch in loader.prefetch(0, 0, 2) {
    ///     let (_pixels, targets) = batch?; // (B, 64), (B)
    ///     items += targets.numel();
    /// }
    /// assert_eq!(items, 1437);
    /// # Ok(()) }
    /// ```
    pub fn prefetch(self: &Arc<Self>, epoch: u64, batch: usize, threads: usize) -> Prefetch<D>
    where
        D: Send + Sync + 'static,
        D::Batch: Send,
    {
        let (order, next) = (Arc::new(self.order(epoch)), batch.min(self.batches()));
        // thread i makes batches i, i + threads, i + 2 threads, ..; they are received in turn
        let threads = threads.min(self.batches() - next);
        let start = |i: usize| {
            let (sender, receiver) = sync_channel(1);
            let (loader, order) = (self.clone(), order.clone());
            let work = move || {
                let mut numbers = (next + i..loader.batches()).step_by(threads);
                // sending fails after the iterator is dropped
                numbers.try_for_each(|i| sender.send(loader.make(&order, epoch, i)).ok());
            };
            Ok((receiver, Some(Builder::new().spawn(work)?)))
        };
        let workers = (0..threads).map(start).collect::<std::io::Result<_>>().unwrap_or_default();
        Prefetch { loader: self.clone(), epoch, order, next, workers }
    }

    /// A number that depends on the order of the items in all epochs: ranks that train together
    /// compare it before they start.
    pub fn order_hash(&self) -> u64 {
        // FNV-1a of the first two epochs and the sizes
        let sizes = [self.dataset.len(), self.batch, usize::from(self.drop_last)];
        let orders = (0..2).flat_map(|epoch| self.order(epoch));
        sizes
            .into_iter()
            .chain(orders)
            .fold(0xcbf2_9ce4_8422_2325, |hash, n| (hash ^ n as u64).wrapping_mul(0x0100_0000_01b3))
    }

    /// The items of epoch number `epoch`, in their order.
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        match &self.sampling {
            Sampling::InOrder => (0..self.dataset.len()).collect(),
            &Sampling::Shuffled { seed } => {
                permutation(self.dataset.len(), Key { seed, draw: epoch })
            }
            Sampling::Weighted { sums, count, seed } => {
                let total = sums.last().copied().unwrap_or_default();
                let draw = |i: u64| {
                    let [low, high, ..] = philox(Key { seed: *seed, draw: epoch }, i);
                    // rounding may reach the total
                    let drawn = (unit_f64(low, high) * total).min(total.next_down());
                    sums.partition_point(|sum| *sum <= drawn)
                };
                (0..*count as u64).map(draw).collect()
            }
        }
    }
}

/// The batches that a thread makes, and the thread until its end is waited for.
type Worker<B> = (Receiver<Result<B>>, Option<JoinHandle<()>>);

/// The batches of [`DataLoader::prefetch`].
pub struct Prefetch<D: Dataset> {
    loader: Arc<DataLoader<D>>,
    epoch: u64,
    order: Arc<Vec<usize>>,
    next: usize,
    workers: Vec<Worker<D::Batch>>,
}

impl<D: Dataset> Iterator for Prefetch<D> {
    type Item = Result<D::Batch>;

    fn next(&mut self) -> Option<Result<D::Batch>> {
        let number = self.next;
        if number == self.loader.batches() {
            return None;
        }
        self.next += 1;
        let Some((receiver, thread)) = self.workers.first_mut() else {
            return Some(self.loader.make(&self.order, self.epoch, number));
        };
        let batch = receiver.recv().unwrap_or_else(|_| {
            // only a panic ends a thread before its last batch
            match thread.take().map(JoinHandle::join) {
                Some(Err(panic)) => resume_unwind(panic),
                _ => Err(Error::internal(format!("the thread of batch {number} has ended"))),
            }
        });
        self.workers.rotate_left(1);
        Some(batch)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.loader.batches() - self.next;
        (left, Some(left))
    }
}

impl<D: Dataset> ExactSizeIterator for Prefetch<D> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use teeny_core::random::philox;

    /// Items that are their own batch.
    struct Numbers(usize);
    impl Dataset for Numbers {
        type Batch = Vec<usize>;
        fn len(&self) -> usize {
            self.0
        }
        fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Vec<usize>> {
            Ok(indices.to_vec())
        }
    }

    fn epoch(loader: &DataLoader<Numbers>, n: u64) -> Vec<Vec<usize>> {
        loader.epoch(n).collect::<Result<_>>().unwrap()
    }

    #[test]
    fn an_epoch_visits_every_item_once() {
        let loader = DataLoader::new(Numbers(103), 10).unwrap().shuffle(7);
        for n in 0..5 {
            let batches = epoch(&loader, n);
            assert_eq!(batches.len(), loader.batches());
            assert_eq!(
                batches.iter().map(Vec::len).collect::<Vec<_>>(),
                [10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 3]
            );
            let mut items = batches.concat();
            items.sort_unstable();
            assert!(items.into_iter().eq(0..103));
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_order_and_epochs_differ() {
        let loader = |seed| DataLoader::new(Numbers(50), 8).unwrap().shuffle(seed);
        assert_eq!(epoch(&loader(3), 4), epoch(&loader(3), 4));
        assert_ne!(epoch(&loader(3), 4), epoch(&loader(3), 5));
        assert_ne!(epoch(&loader(3), 4), epoch(&loader(4), 4));
        assert!(DataLoader::new(Numbers(50), 8).unwrap().order(9).into_iter().eq(0..50));
    }

    #[test]
    fn an_epoch_continues_at_any_batch() {
        let loader = DataLoader::new(Numbers(50), 8).unwrap().shuffle(3);
        for batch in [0, 1, 6, 7, 100] {
            let rest: Vec<_> = loader.epoch_from(2, batch).collect::<Result<_>>().unwrap();
            assert_eq!(rest, epoch(&loader, 2)[batch.min(7)..]);
        }
    }

    #[test]
    fn threads_change_neither_the_batches_nor_their_order() {
        let loader = Arc::new(DataLoader::new(Numbers(103), 10).unwrap().shuffle(3));
        for threads in [0, 1, 2, 3, 20] {
            for from in [0, 4, 10, 11, usize::MAX] {
                let batches = loader.prefetch(2, from, threads);
                assert_eq!(batches.len(), 11 - from.min(11));
                let all: Vec<Vec<usize>> = batches.collect::<Result<_>>().unwrap();
                assert_eq!(
                    all,
                    epoch(&loader, 2)[from.min(11)..],
                    "{threads} threads from batch {from}"
                );
            }
            let first = loader.prefetch(2, 0, threads).next().unwrap().unwrap();
            assert_eq!(first, epoch(&loader, 2)[0], "stopping early ends the threads");
        }
    }

    #[test]
    fn threads_work_at_the_same_time_and_bring_errors_in_their_place() {
        /// Batches that wait until another is being made too, and fail for item 7.
        struct Pairs(std::sync::Barrier);
        impl Dataset for Pairs {
            type Batch = usize;
            fn len(&self) -> usize {
                10
            }
            fn batch(&self, indices: &[usize], _epoch: u64) -> Result<usize> {
                self.0.wait();
                if indices == [7] { Err(Error::value("item 7")) } else { Ok(indices[0]) }
            }
        }
        let loader = Arc::new(DataLoader::new(Pairs(std::sync::Barrier::new(2)), 1).unwrap());
        let all: Vec<Result<usize>> = loader.prefetch(0, 0, 2).collect();
        assert_eq!(all.len(), 10);
        for (i, batch) in all.iter().enumerate() {
            assert_eq!(batch.as_ref().ok(), (i != 7).then_some(&i));
        }
    }

    #[test]
    fn an_augmentation_draws_other_numbers_in_each_epoch_and_the_same_when_repeated() {
        /// Items with a number drawn for item and epoch.
        struct Noisy(u64);
        impl Dataset for Noisy {
            type Batch = Vec<(usize, u32)>;
            fn len(&self) -> usize {
                self.0 as usize
            }
            fn batch(&self, indices: &[usize], epoch: u64) -> Result<Vec<(usize, u32)>> {
                let key = |i| Key { seed: 1, draw: epoch * self.0 + i as u64 };
                Ok(indices.iter().map(|&i| (i, philox(key(i), 0)[0])).collect())
            }
        }
        let loader = Arc::new(DataLoader::new(Noisy(103), 10).unwrap().shuffle(3));
        let whole = |n| loader.epoch(n).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(whole(2), whole(2));
        for threads in 0..4 {
            let rest = loader.prefetch(2, 4, threads).collect::<Result<Vec<_>>>();
            assert_eq!(rest.unwrap(), whole(2)[4..], "{threads} threads from batch 4");
        }
        let of_epoch = |n| whole(n).concat().into_iter().collect::<BTreeMap<_, _>>();
        let (first, second) = (of_epoch(0), of_epoch(1));
        assert!(first.iter().all(|(i, drawn)| second[i] != *drawn));
        let smaller = DataLoader::new(Noisy(103), 7).unwrap().shuffle(3);
        assert!(smaller.epoch(1).flat_map(Result::unwrap).all(|(i, drawn)| second[&i] == drawn));
    }

    #[test]
    fn ranks_see_every_item_once_in_batches_of_the_whole() {
        for ranks in 1..=7 {
            for n in [7, 20, 50, 99, 100, 101, 103] {
                for batch in [7, 8, 10, 33, 200] {
                    let whole = DataLoader::new(Numbers(n), batch).unwrap().shuffle(5);
                    let loaders: Vec<_> = (0..ranks)
                        .map(|rank| {
                            let loader = DataLoader::new(Numbers(n), batch).unwrap().shuffle(5);
                            loader.shard(rank, ranks).unwrap()
                        })
                        .collect();
                    let parts: Vec<_> = loaders.iter().map(|loader| epoch(loader, 3)).collect();
                    assert!(parts.iter().all(|part| part.len() == loaders[0].batches()));
                    let mut all = Vec::new();
                    for i in 0..loaders[0].batches() {
                        let sizes = parts.iter().map(|part| part[i].len());
                        let (least, most) = (sizes.clone().min().unwrap(), sizes.max().unwrap());
                        assert!(least >= 1 && most - least <= 1, "{ranks} {n} {batch}");
                        all.extend(parts.iter().flat_map(|part| part[i].clone()));
                    }
                    assert_eq!(all, whole.order(3), "{ranks} ranks, {n} items, batches of {batch}");
                }
            }
        }
        let error = DataLoader::new(Numbers(3), 8).unwrap().shard(0, 4).err().unwrap();
        assert!(error.message().contains("batches of 3 items for 4 ranks"), "{error}");
        assert!(DataLoader::new(Numbers(30), 8).unwrap().shard(4, 4).is_err());
    }

    #[test]
    fn drop_last_leaves_out_the_short_batch_only() {
        let sizes = |n, batch| {
            epoch(&DataLoader::new(Numbers(n), batch).unwrap().drop_last().unwrap(), 0)
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>()
        };
        assert_eq!(sizes(25, 10), [10, 10]);
        assert_eq!(sizes(20, 10), [10, 10]);
        let error = DataLoader::new(Numbers(5), 10).unwrap().drop_last().err().unwrap();
        assert!(error.to_string().contains("5 items make no batch of 10"), "{error}");
        assert!(
            DataLoader::new(Numbers(0), 10).is_err() && DataLoader::new(Numbers(5), 0).is_err()
        );
    }
}
