//! Makes batches of a data set, in order or shuffled.
//!
//! The order of an epoch depends only on the seed and the number of the epoch, so a run can be
//! repeated and resumed in any epoch.

use super::dataset::Dataset;
use super::shard::Shard;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use teeny_core::context::enter;
use teeny_core::{Error, Key, Result, permutation};

/// Makes batches of a data set, in the data set's order or shuffled in each epoch.
///
/// # Example
/// ```
/// use teeny_nn::{data::{DataLoader, digits}, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let digits = digits::load()?;
/// let loader = DataLoader::new(digits.train.on(&device("cpu")?), 64)?.shuffle(1);
/// assert_eq!(loader.batches(), 23);                    // 1,437 = 22 x 64 + 29
/// # Ok(()) }
/// ```
pub struct DataLoader<D> {
    dataset: D,
    batch: usize,
    seed: Option<u64>,
    drop_last: bool,
    shard: Shard,
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
        Ok(DataLoader { dataset, batch, seed: None, drop_last: false, shard: Shard::WHOLE })
    }

    /// Shuffles each epoch, with an order drawn from `seed`.
    pub fn shuffle(mut self, seed: u64) -> DataLoader<D> {
        self.seed = Some(seed);
        self
    }

    /// Skips the last batch if it is smaller than the others.
    ///
    /// # Errors
    /// If the data set has fewer items than a batch, so that an epoch would have no batches.
    #[track_caller]
    pub fn drop_last(mut self) -> Result<DataLoader<D>> {
        let _op = enter("DataLoader::drop_last");
        let items = self.dataset.len();
        if items < self.batch {
            let text = format!("{items} items make no batch of {}: epochs are empty", self.batch);
            return Err(Error::value(text).help(format!("batches of at most {items} items")));
        }
        self.drop_last = true;
        Ok(self)
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
    /// If there is no such rank, or a batch or the data set has fewer items than there are ranks.
    #[track_caller]
    pub fn shard(mut self, rank: usize, ranks: usize) -> Result<DataLoader<D>> {
        let _op = enter("DataLoader::shard");
        self.shard = Shard::new(rank, ranks)?;
        let items = self.batch.min(self.dataset.len());
        if items < ranks {
            return Err(Error::value(format!("batches of {items} items for {ranks} ranks"))
                .help("larger batches, or fewer ranks: every rank needs an item"));
        }
        Ok(self)
    }

    /// The data set.
    pub fn dataset(&self) -> &D {
        &self.dataset
    }

    /// The number of batches in an epoch.
    pub fn batches(&self) -> usize {
        let (full, rest) = (self.dataset.len() / self.batch, self.dataset.len() % self.batch);
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

    /// Calls `body` with the batches of [`DataLoader::epoch_from`], which `threads` threads make in
    /// advance: for data sets whose batches take time (decoding, augmentation). The batches and
    /// their order are the same; each thread is at most two batches ahead. With 0 threads, and in a
    /// browser, the calling thread makes them. When `body` returns, the threads end.
    ///
    /// Equivalent: `num_workers` of `torch.utils.data.DataLoader`.
    ///
    /// # Example
    /// ```
    /// use teeny_nn::{data::{DataLoader, digits}, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let digits = digits::load()?;
    /// let loader = DataLoader::new(digits.train.on(&device("cpu")?), 64)?.shuffle(1);
    /// let items = loader.epoch_ahead(0, 0, 2, |batches| {
    ///     let mut items = 0;
    ///     for batch in batches {
    ///         let (_pixels, targets) = batch?; // (B, 64), (B)
    ///         items += targets.numel();
    ///     }
    ///     Ok::<_, teeny_core::Error>(items)
    /// })?;
    /// assert_eq!(items, 1437);
    /// # Ok(()) }
    /// ```
    pub fn epoch_ahead<R>(
        &self,
        epoch: u64,
        batch: usize,
        threads: usize,
        body: impl FnOnce(&mut dyn Iterator<Item = Result<D::Batch>>) -> R,
    ) -> R
    where
        D: Sync,
        D::Batch: Send,
    {
        if threads == 0 || cfg!(all(target_family = "wasm", target_os = "unknown")) {
            return body(&mut self.epoch_from(epoch, batch));
        }
        let order = self.order(epoch);
        let (order, first) = (&order, batch.min(self.batches()));
        thread::scope(|scope| {
            // thread i makes batches i, i + threads, i + 2 threads, ..; they are received in turn
            let made: Vec<Receiver<Result<D::Batch>>> = (0..threads)
                .map(|i| {
                    let (sender, receiver) = sync_channel(1);
                    scope.spawn(move || {
                        let mut numbers = (first + i..self.batches()).step_by(threads);
                        // sending fails after `body` has returned and dropped the receiver
                        numbers.try_for_each(|number| {
                            sender.send(self.make(order, epoch, number)).ok()
                        })
                    });
                    receiver
                })
                .collect();
            body(&mut (0..).map_while(|i: usize| made[i % threads].recv().ok()))
        })
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

    /// The order of items in epoch number `epoch`.
    pub fn order(&self, epoch: u64) -> Vec<usize> {
        match self.seed {
            Some(seed) => permutation(self.dataset.len(), Key { seed, draw: epoch }),
            None => (0..self.dataset.len()).collect(),
        }
    }
}

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
        let loader = DataLoader::new(Numbers(103), 10).unwrap().shuffle(3);
        for threads in [0, 1, 2, 3, 20] {
            for from in [0, 4, 10, 11, usize::MAX] {
                let all: Vec<Vec<usize>> = loader
                    .epoch_ahead(2, from, threads, |batches| batches.collect::<Result<_>>())
                    .unwrap();
                assert_eq!(
                    all,
                    epoch(&loader, 2)[from.min(11)..],
                    "{threads} threads from batch {from}"
                );
            }
            let first =
                loader.epoch_ahead(2, 0, threads, |batches| batches.next().unwrap().unwrap());
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
        let loader = DataLoader::new(Pairs(std::sync::Barrier::new(2)), 1).unwrap();
        let all: Vec<Result<usize>> = loader.epoch_ahead(0, 0, 2, |batches| batches.collect());
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
        let loader = DataLoader::new(Noisy(103), 10).unwrap().shuffle(3);
        let whole = |n| loader.epoch(n).collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(whole(2), whole(2));
        for threads in 0..4 {
            let rest = loader.epoch_ahead(2, 4, threads, |all| all.collect::<Result<Vec<_>>>());
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
