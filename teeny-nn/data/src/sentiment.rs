//! Generated reviews for sentiment classification, in two degrees of difficulty.
//!
//! ```text
//! review  = [ opener ] clause [ "and" clause ] [ closer ]
//! clause  = "the" subject verb [ "not" ] [ degree ] adjective         "not" only in negated()
//! ```
//!
//! Without "not" the adjectives alone decide whether a review is positive, and a linear model of
//! word counts is enough. With "not" each adjective occurs in both classes: no linear model of word
//! counts can separate them.

use super::generated::{Draws, Samples};
use std::collections::BTreeMap;

const OPENERS: [&str; 4] = ["honestly", "we think", "overall", "this time"];
const SUBJECTS: [&str; 8] =
    ["film", "meal", "book", "hotel", "concert", "service", "story", "room"];
const VERBS: [&str; 3] = ["was", "seemed", "felt"];
const DEGREES: [&str; 4] = ["very", "quite", "really", "rather"];
const GOOD: [&str; 10] = [
    "good", "great", "lovely", "charming", "clever", "warm", "superb", "fresh", "bright",
    "pleasant",
];
const BAD: [&str; 10] =
    ["bad", "awful", "boring", "rude", "stale", "dull", "cold", "clumsy", "noisy", "dreadful"];
const CLOSERS: [&str; 3] = ["as always", "in the end", "for the price"];

/// A text and whether it is positive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Review {
    /// Lower-case words with spaces between them.
    pub text: String,
    /// Whether the author liked it.
    pub positive: bool,
}

/// `n` reviews of one or two clauses of one opinion, without "not": linearly separable by their
/// words.
pub fn separable(n: usize, seed: u64) -> Vec<Review> {
    let mut draws = Draws::new(seed);
    (0..n).map(|_| review(&mut draws, false)).collect()
}

/// `n` reviews of one clause that is negated half of the time.
pub fn negated(n: usize, seed: u64) -> Vec<Review> {
    let mut draws = Draws::new(seed);
    (0..n).map(|_| review(&mut draws, true)).collect()
}

fn review(draws: &mut Draws, negation: bool) -> Review {
    let positive = draws.below(2) == 1;
    let mut words: Vec<&str> = Vec::new();
    if draws.below(2) == 1 {
        words.push(one_of(draws, &OPENERS));
    }
    let clauses = if negation { 1 } else { 1 + draws.below(2) };
    for i in 0..clauses {
        if i > 0 {
            words.push("and");
        }
        words.extend(["the", one_of(draws, &SUBJECTS), one_of(draws, &VERBS)]);
        let not = negation && draws.below(2) == 1;
        if not {
            words.push("not");
        }
        if draws.below(2) == 1 {
            words.push(one_of(draws, &DEGREES));
        }
        words.push(one_of(draws, if positive != not { &GOOD } else { &BAD }));
    }
    if draws.below(2) == 1 {
        words.push(one_of(draws, &CLOSERS));
    }
    Review { text: words.join(" "), positive }
}

fn one_of<'a>(draws: &mut Draws, words: &[&'a str]) -> &'a str {
    words[draws.below(words.len())]
}

/// A vocabulary in alphabetical order; a text becomes its counts of each word.
#[derive(Clone, Debug)]
pub struct BagOfWords {
    /// The index of each word.
    columns: BTreeMap<String, usize>,
}

impl BagOfWords {
    /// The words of `reviews`.
    pub fn of(reviews: &[Review]) -> BagOfWords {
        let mut columns: BTreeMap<String, usize> = BTreeMap::new();
        for word in reviews.iter().flat_map(|r| r.text.split_whitespace()) {
            if !columns.contains_key(word) {
                columns.insert(word.to_string(), 0);
            }
        }
        columns.values_mut().zip(0..).for_each(|(column, i)| *column = i);
        BagOfWords { columns }
    }

    /// The words in the order of their columns.
    pub fn words(&self) -> impl Iterator<Item = &str> {
        self.columns.keys().map(String::as_str)
    }

    /// The count of each word in each of `reviews` (N, words), and 1 for positive, 0 for negative;
    /// unknown words are ignored.
    pub fn count(&self, reviews: &[Review]) -> Samples {
        let features = self.columns.len();
        let mut inputs = vec![0.0; reviews.len() * features];
        for (row, review) in inputs.chunks_mut(features.max(1)).zip(reviews) {
            review
                .text
                .split_whitespace()
                .filter_map(|word| self.columns.get(word))
                .for_each(|&column| row[column] += 1.0);
        }
        Samples {
            inputs,
            targets: reviews.iter().map(|r| f64::from(r.positive)).collect(),
            features,
        }
    }
}
