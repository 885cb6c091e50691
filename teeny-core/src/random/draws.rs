//! The draws of a captured function. A replay repeats them with new keys.

use super::{Key, next_key, set_state, state};
use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    /// The draws of the captured function that this thread records.
    pub(super) static DRAWS: RefCell<Option<Draws>> = const { RefCell::new(None) };
}

/// The keys that a captured function took from the generator, in order: the stream, whose keys
/// are others in each call. All other keys are constants of the program.
#[derive(Clone, Debug, Default)]
pub(crate) struct Draws {
    /// The keys of the stream.
    issued: Vec<Key>,
    /// Maps each generated key to its source, the last one if there are several.
    sources: HashMap<Key, Source>,
    /// The states that the function read, with their positions in the stream.
    states: Vec<(Key, usize)>,
    /// The position of the generator in the stream; None while it is in a state that the program
    /// chose.
    pub(super) position: Option<usize>,
    /// The state that the program chose last and left; None if the generator is in the stream.
    chosen: Option<Key>,
}

/// Where a key comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Source {
    /// The generator: a position in its stream.
    Stream(usize),
    /// The program.
    Program(Key),
}

/// Runs `body`, and records its draws from the generator.
pub(crate) fn record<T>(body: impl FnOnce() -> T) -> (T, Draws) {
    struct Stop;
    impl Drop for Stop {
        fn drop(&mut self) {
            DRAWS.take();
        }
    }
    DRAWS.set(Some(Draws { position: Some(0), ..Draws::default() }));
    let stop = Stop;
    let result = body();
    let mut draws = DRAWS.take().unwrap_or_default();
    drop(stop);
    draws.chosen = draws.position.is_none().then(state);
    (result, draws)
}

/// Where `key` comes from, in the captured function that this thread records.
pub(crate) fn source(key: Key) -> Source {
    DRAWS
        .with_borrow(|draws| draws.as_ref().and_then(|draws| draws.sources.get(&key).copied()))
        .unwrap_or(Source::Program(key))
}

impl Draws {
    pub(super) fn issue(&mut self, key: Key) {
        let Some(position) = &mut self.position else {
            self.sources.insert(key, Source::Program(key));
            return;
        };
        self.sources.insert(key, Source::Stream(*position));
        // A state that was put back issues keys of the stream again.
        match self.issued.get_mut(*position) {
            Some(issued) => *issued = key,
            None => self.issued.push(key),
        }
        *position += 1;
    }

    pub(super) fn read(&mut self, state: Key) {
        if let Some(position) = self.position {
            self.states.push((state, position));
        }
    }

    /// The position of a state that the function has read; None if the program chose it.
    pub(super) fn position_of(&self, state: Key) -> Option<usize> {
        let known = self.states.iter().rev().find(|(read, _)| *read == state);
        known.map(|(_, position)| *position)
    }

    /// Whether a call draws as many keys and leaves the generator at the same place.
    pub(crate) fn is_alike(&self, other: &Draws) -> bool {
        self.issued.len() == other.issued.len()
            && (self.position, self.chosen) == (other.position, other.chosen)
    }

    /// Takes the keys of the stream from the generator, and leaves it as a call does.
    pub(crate) fn renew(&self) -> Vec<Key> {
        let keys: Vec<Key> = self.issued.iter().map(|_| next_key()).collect();
        let put_back = self.position.and_then(|position| keys.get(position));
        if let Some(state) = self.chosen.or(put_back.copied()) {
            set_state(state);
        }
        keys
    }
}
