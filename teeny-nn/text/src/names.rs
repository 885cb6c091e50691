//! A list of names, for models that generate new names.
//!
//! ```text
//! emma   windows of 3, a character at a time            sequences, a name at a time
//!        . . . → e    . . e → m    . e m → m  ..        x  . e m m a . .     y  e m m a . -1 -1
//! ```
//!
//! `.` is token 0 and marks the beginning and the end of every name. Source of the task: A.
//! Karpathy, *makemore*, 2022.

use crate::tokenizer::{CharTokenizer, Tokenizer, in_order};
use std::collections::HashSet;
use teeny_core::context::enter;
use teeny_core::random::Key;
use teeny_core::{Error, Result, Tensor, ToDevice, permutation};

/// Some hundreds of common first names, for training without a file or a network.
pub const BUILTIN: &str = include_str!("../data/names.txt");

/// The character before and after every name.
pub const BOUNDARY: char = '.';

/// The target that fills up rows of [`Names::sequences`]: the `ignore_index` for
/// `CrossEntropy` of `teeny-nn`.
pub const PADDING: i32 = -1;

/// Names, and the vocabulary of their characters.
///
/// # Example
/// ```
/// use teeny_text::names::{self, Names};
/// use teeny_nn::device::device;
/// use teeny_text::Tokenizer;
/// # fn main() -> teeny_core::Result<()> {
/// let names = Names::parse(names::BUILTIN)?;
/// assert_eq!(names.tokenizer().vocab_size(), 27);             // . a b .. z
/// let (train, _dev, _test) = names.split(42);                 // 80, 10, 10 %
/// let (x, y) = train.windows(3, &device("cpu")?)?;            // (N, 3), (N)
/// assert_eq!(x.shape()[..], [y.numel(), 3]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Names {
    names: Vec<String>,
    tokenizer: CharTokenizer,
}

impl Names {
    /// The names in `text`, one per line; empty lines and spaces around names are ignored.
    ///
    /// # Errors
    /// If `text` has no names, or a name contains `.`.
    #[track_caller]
    pub fn parse(text: &str) -> Result<Names> {
        let _op = enter("Names::parse");
        let lines = text
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line.trim()))
            .filter(|(_, name)| !name.is_empty());
        if let Some((line, name)) = lines.clone().find(|(_, name)| name.contains(BOUNDARY)) {
            let text = format!(
                "line {line} is {name:?}, but {BOUNDARY:?} marks where names begin and end"
            );
            return Err(Error::format(text).help("one name on each line, without full stops"));
        }
        let names: Vec<String> = lines.map(|(_, name)| name.to_string()).collect();
        if names.is_empty() {
            return Err(Error::format("there are 0 names; a list of names has one on each line")
                .help("is the file empty?"));
        }
        let chars = in_order(names.iter().flat_map(|name| name.chars()));
        let tokenizer = CharTokenizer::new(std::iter::once(BOUNDARY).chain(chars))?;
        Ok(Names { names, tokenizer })
    }

    /// The vocabulary: `.`, then the characters in the order of their code points. The parts of a
    /// split have the vocabulary of the whole.
    pub fn tokenizer(&self) -> &CharTokenizer {
        &self.tokenizer
    }

    /// The names in their order.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The number of names.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there are no names, as in a part of a split of few names.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The number of characters of the longest name.
    pub fn longest(&self) -> usize {
        self.names.iter().map(|name| name.chars().count()).max().unwrap_or(0)
    }

    /// Splits the names, in an order drawn from `seed`: 80 % for training, 10 % for validation,
    /// 10 % for testing.
    pub fn split(&self, seed: u64) -> (Names, Names, Names) {
        let n = self.len();
        let order = permutation(n, Key { seed, draw: 0 });
        let part = |range: std::ops::Range<usize>| Names {
            names: order[range].iter().map(|&i| self.names[i].clone()).collect(),
            tokenizer: self.tokenizer.clone(),
        };
        let (a, b) = (n * 8 / 10, n * 9 / 10);
        (part(0..a), part(a..b), part(b..n))
    }

    /// Every character of every name, and the `.` after the name, as a target with the `context`
    /// characters before it as input: x (N, context), y (N), `I32`.
    ///
    /// # Errors
    /// If `context` is 0.
    #[track_caller]
    pub fn windows(&self, context: usize, device: impl ToDevice) -> Result<(Tensor, Tensor)> {
        let _op = enter("names.windows");
        if context == 0 {
            return Err(Error::value("a context of 0, but a window needs at least one character")
                .help("a context of 3, for example"));
        }
        let (mut x, mut y) = (Vec::new(), Vec::new());
        for name in &self.names {
            let tokens = self.tokens(name);
            let padded: Vec<i32> =
                std::iter::repeat_n(0, context).chain(tokens).chain([0]).collect();
            for window in padded.windows(context + 1) {
                x.extend_from_slice(&window[..context]);
                y.push(window[context]);
            }
        }
        let n = y.len();
        // (N, context), (N)
        Ok((Tensor::from_vec(x, (n, context), &device)?, Tensor::from_vec(y, (n,), &device)?))
    }

    /// Every name as one row: x is `.`, the name, and `.` up to `length`; y is x shifted left by
    /// one, with [`PADDING`] after the end of the name. x (N, length), y (N, length), `I32`;
    /// `length` is at least [`Names::longest`] of the whole list + 1.
    ///
    /// # Errors
    /// If a name is longer than `length - 1`.
    #[track_caller]
    pub fn sequences(&self, length: usize, device: impl ToDevice) -> Result<(Tensor, Tensor)> {
        let _op = enter("names.sequences");
        let (mut x, mut y) =
            (Vec::with_capacity(self.len() * length), Vec::with_capacity(self.len() * length));
        for name in &self.names {
            let tokens: Vec<i32> = self.tokens(name).collect();
            if tokens.len() >= length {
                let text = format!(
                    "{name:?} has {} characters and needs a row of {}, not {length}",
                    tokens.len(),
                    tokens.len() + 1
                );
                return Err(Error::value(text).help("names.longest() + 1 is long enough for all"));
            }
            let rest = length - tokens.len() - 1;
            x.extend(
                std::iter::once(0)
                    .chain(tokens.iter().copied())
                    .chain(std::iter::repeat_n(0, rest)),
            );
            y.extend(tokens.iter().copied().chain([0]).chain(std::iter::repeat_n(PADDING, rest)));
        }
        let shape = (self.len(), length);
        // (N, length) both
        Ok((Tensor::from_vec(x, shape, &device)?, Tensor::from_vec(y, shape, &device)?))
    }

    fn tokens<'a>(&'a self, name: &'a str) -> impl Iterator<Item = i32> + 'a {
        name.chars()
            .map(|c| self.tokenizer.token(c).expect("the vocabulary was made of the names") as i32)
    }

    /// The names among `made` that are not in this list: those a model did not memorise.
    pub fn new_ones<'a>(&self, made: &'a [String]) -> Vec<&'a str> {
        let known: HashSet<&str> = self.names.iter().map(String::as_str).collect();
        made.iter().map(String::as_str).filter(|name| !known.contains(name)).collect()
    }

    /// The name that `tokens` spell, up to the first `.`.
    ///
    /// # Errors
    /// If a token is not in the vocabulary.
    #[track_caller]
    pub fn spell(&self, tokens: &[u32]) -> Result<String> {
        let _op = enter("names.spell");
        let end = tokens.iter().position(|&token| token == 0).unwrap_or(tokens.len());
        self.tokenizer.decode(&tokens[..end])
    }
}
