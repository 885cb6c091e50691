//! BPE training: repeatedly, the most frequent pair of neighbours becomes a token.

use super::words::words;
use super::{Bpe, Pair, alphabet};
use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, HashMap, HashSet};
use teeny_core::context::enter;
use teeny_core::{Error, Result};

impl Bpe {
    /// Learns a vocabulary of `vocab_size` tokens from `text`: the 256 bytes and one token per
    /// merge, or fewer if no pair is left that occurs twice. Ties between equally frequent pairs go
    /// to the smaller tokens, so the result is deterministic and equals Hugging Face's trainer for
    /// byte-level BPE.
    ///
    /// # Errors
    /// If `vocab_size` is less than 256.
    #[track_caller]
    pub fn train(text: &str, vocab_size: usize) -> Result<Bpe> {
        let _op = enter("Bpe::train");
        if vocab_size < 256 {
            return Err(Error::value(format!(
                "a vocabulary has at least the 256 bytes, not {vocab_size} tokens"
            ))
            .help("256 and the number of merges to learn"));
        }
        let mut bpe = Bpe::of_bytes();
        let mut known: HashMap<Vec<u8>, u32> = bpe.tokens.iter().cloned().zip(0..).collect();
        let mut counted: HashMap<&str, u64> = HashMap::new();
        words(text).for_each(|word| *counted.entry(word).or_default() += 1);
        let mut corpus = Corpus::default();
        for (word, count) in counted {
            corpus.add(word.bytes().map(|byte| bpe.bytes[usize::from(byte)]).collect(), count);
        }
        let mut candidates: BinaryHeap<(u64, Reverse<Pair>)> =
            corpus.counts.iter().map(|(pair, count)| (*count, Reverse(*pair))).collect();
        while bpe.tokens.len() < vocab_size {
            let Some((count, Reverse(pair))) = candidates.pop() else { break };
            match corpus.counts.get(&pair) {
                Some(&now) if now == count => {}
                // a merge has changed the count
                Some(&now) => {
                    candidates.push((now, Reverse(pair)));
                    continue;
                }
                None => continue,
            }
            if count < 2 {
                break;
            }
            let bytes =
                [bpe.tokens[pair.0 as usize].as_slice(), &bpe.tokens[pair.1 as usize]].concat();
            // two merges with the same bytes are one token
            let token = *known.entry(bytes.clone()).or_insert(bpe.tokens.len() as u32);
            if token as usize == bpe.tokens.len() {
                bpe.tokens.push(bytes);
            }
            bpe.ranks.insert(pair, (bpe.merges.len() as u32, token));
            bpe.merges.push(pair);
            let new_pairs = corpus.merge(pair, token);
            candidates.extend(
                new_pairs
                    .into_iter()
                    .filter_map(|pair| Some((*corpus.counts.get(&pair)?, Reverse(pair)))),
            );
        }
        Ok(bpe)
    }

    /// The 256 bytes in the order of GPT-2's characters for them, and no merges.
    fn of_bytes() -> Bpe {
        let chars = alphabet();
        let mut order: Vec<u8> = (0..=255).collect();
        order.sort_unstable_by_key(|&byte| chars[usize::from(byte)]);
        let mut bytes = [0; 256];
        order.iter().zip(0..).for_each(|(&byte, token)| bytes[usize::from(byte)] = token);
        Bpe {
            tokens: order.iter().map(|&byte| vec![byte]).collect(),
            bytes,
            merges: Vec::new(),
            ranks: HashMap::new(),
            specials: Vec::new(),
        }
    }
}

/// The distinct words of a text as tokens, and the pairs in them.
#[derive(Default)]
struct Corpus {
    words: Vec<(Vec<u32>, u64)>,
    /// The number of occurrences of each pair, if above 0.
    counts: HashMap<Pair, u64>,
    /// The words that contain each pair, or did before a merge.
    places: HashMap<Pair, HashSet<usize>>,
}

impl Corpus {
    fn add(&mut self, word: Vec<u32>, count: u64) {
        self.words.push((word, count));
        self.count(self.words.len() - 1);
    }

    /// Counts the pairs of word number `place`.
    fn count(&mut self, place: usize) {
        let (word, count) = &self.words[place];
        for pair in word.windows(2) {
            let pair = (pair[0], pair[1]);
            *self.counts.entry(pair).or_default() += count;
            self.places.entry(pair).or_default().insert(place);
        }
    }

    /// Reverts [`Corpus::count`].
    fn discount(&mut self, place: usize) {
        let (word, count) = &self.words[place];
        for pair in word.windows(2) {
            let pair = (pair[0], pair[1]);
            if let Some(total) = self.counts.get_mut(&pair) {
                *total -= count;
                if *total == 0 {
                    self.counts.remove(&pair);
                }
            }
        }
    }

    /// Replaces `pair` by `token` everywhere; returns the new pairs that contain `token`.
    fn merge(&mut self, pair: Pair, token: u32) -> BTreeSet<Pair> {
        let mut new_pairs = BTreeSet::new();
        for place in self.places.remove(&pair).unwrap_or_default() {
            self.discount(place);
            let word = &mut self.words[place].0;
            let mut merged = Vec::with_capacity(word.len());
            let mut rest = word.as_slice();
            while let [first, after @ ..] = rest {
                let found = after.first().is_some_and(|second| (*first, *second) == pair);
                merged.push(if found { token } else { *first });
                rest = &after[usize::from(found)..];
            }
            new_pairs.extend(
                merged.windows(2).map(|p| (p[0], p[1])).filter(|p| p.0 == token || p.1 == token),
            );
            *word = merged;
            self.count(place);
        }
        new_pairs
    }
}
