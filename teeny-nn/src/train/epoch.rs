//! An epoch of a run: each batch is one step.

use crate::state::Position;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use teeny_core::{Error, Result};

/// An epoch that the program trains on, or the rest of it.
pub(super) struct Epoch {
    /// Where it began.
    start: Position,
    /// The number of batches in a whole one.
    batches: usize,
    taken: Arc<Taken>,
}

/// The batches that the program took.
#[derive(Default)]
struct Taken {
    count: AtomicUsize,
    /// Whether all batches were taken.
    all: AtomicBool,
}

impl Epoch {
    /// An epoch of `batches` batches, which continues at `start`.
    pub fn new(start: &Position, batches: usize) -> Epoch {
        Epoch { start: *start, batches, taken: Arc::default() }
    }

    /// Its number, counted from 1.
    pub fn number(&self) -> u64 {
        self.start.epoch + 1
    }

    /// Moves `position` to the next batch.
    pub fn advance(&self, position: &mut Position) {
        position.batch += 1;
        if position.batch >= self.batches {
            (position.epoch, position.batch) = (position.epoch + 1, 0);
        }
    }

    /// `batches`, counted as they are taken.
    pub fn counted<T, I: Iterator<Item = T>>(
        &self,
        batches: I,
    ) -> impl Iterator<Item = T> + use<T, I> {
        let taken = self.taken.clone();
        batches.map(Some).chain([None]).filter_map(move |batch| {
            match batch {
                Some(_) => _ = taken.count.fetch_add(1, Ordering::Relaxed),
                None => taken.all.store(true, Ordering::Relaxed),
            }
            batch
        })
    }

    /// Returns an error if the program took all batches, and not all of them were steps up to
    /// `position`.
    pub fn require_steps(&self, position: &Position) -> Result<()> {
        let all = self.taken.all.load(Ordering::Relaxed);
        if !all || position.epoch != self.start.epoch {
            return Ok(());
        }
        let text = format!(
            "the program took {} batches of epoch {}, and run.push was called {} times",
            self.taken.count.load(Ordering::Relaxed),
            self.number(),
            position.batch.saturating_sub(self.start.batch)
        );
        Err(Error::value(text).named("Run::next_epoch").help(
            "run.push(&loss, items)? once for each batch, also where gradients of several are \
             added",
        ))
    }
}

/// Returns an error if a run cannot continue at `position` by a loader with other batches,
/// `batches` of them in an epoch. It can at the beginning of an epoch.
pub(super) fn other_batches(position: &Position, batches: usize) -> Result<()> {
    if position.batch == 0 {
        return Ok(());
    }
    let text = format!(
        "the run continues at batch {} of epoch {}, but in the run before, the loader gave other \
         batches than this one, which gives {batches} in an epoch",
        position.batch,
        position.epoch + 1
    );
    Err(Error::value(text).named("Run::next_epoch").help(
        "take the data, batch size and seed of the run that wrote the checkpoint, or another file",
    ))
}
