//! [`WordTokenizer`]: a vocabulary of the words of given texts.

use super::Tokenizer;
use super::tokenizer::no_such_token;
use std::cmp::Reverse;
use std::collections::HashMap;
use teeny_core::context::enter;
use teeny_core::file::quoted;
use teeny_core::options;
use teeny_core::{Error, Result, Tensor, ToDevice};
use teeny_formats::State;
use unicode_general_category::{GeneralCategory as G, get_general_category};

options! {
    /// Options of [`WordTokenizer`].
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct WordOptions {
        /// Words that occur less often are unknown; 1.
        min_count: usize = 1, with_min_count;
        /// The most tokens of the vocabulary, with those for padding and unknown words; no limit.
        max_size: usize = usize::MAX, with_max_size;
        /// Whether texts become lower case; true.
        lowercase: bool = true, with_lowercase;
        /// Whether each mark of punctuation, or other symbol, is a token; else they only separate
        /// words; true.
        punctuation: bool = true, with_punctuation;
    }
}

/// The spellings of [`WordTokenizer::PADDING`] and [`WordTokenizer::UNKNOWN`].
const SPECIAL: [&str; 2] = ["<pad>", "<unk>"];

/// One token per word, for the words of given texts: the more frequent, the smaller its token; of
/// equally frequent ones the first to occur comes first. Token 0 is padding, 1 all other words.
///
/// A word is a run of letters, digits and `_` of any script with their combining marks; an
/// apostrophe or a joiner between two of them belongs to it (`don't`). White space separates.
///
/// Its [`WordTokenizer::state`] is a part of a checkpoint, which keeps the vocabulary with the
/// model. [`WordTokenizer::tokens`] is the text of a `vocab.txt`.
///
/// # Example
/// A classifier of sentences.
/// ```
/// use teeny_nn::prelude::*;
/// use teeny_text::{Tokenizer, WordTokenizer};
/// # fn main() -> Result<()> {
/// manual_seed(1);
/// let device = Autograd::new(device("cpu")?);
/// let texts = ["A lovely film!", "Dull.", "Lovely, truly lovely", "A dull, dull film"];
/// let targets = Tensor::new([1, 0, 1, 0], &device)?; // (4)
/// let tokenizer = WordTokenizer::of(texts)?;
/// assert_eq!(tokenizer.decode(&tokenizer.encode("A dull book!")?)?, "a dull <unk> !");
///
/// let store = Store::new(&device);
/// let padding = EmbeddingOptions::default().with_padding_idx(WordTokenizer::PADDING as usize);
/// let embedding =
///     Embedding::with_options(&store.at("words"), tokenizer.vocab_size(), 8, padding)?;
/// let options = RecurrentOptions::new().with_bidirectional(true);
/// let lstm = Lstm::with_options(&store.at("lstm"), 8, 8, options)?;
/// let classes = Linear::new(&store.at("classes"), 16, 2)?;
/// let logits = |texts: &[&str]| {
///     let (ids, lengths) = tokenizer.encode_batch(texts, &device)?; // (B, T)
///     let x = embedding.forward(&ids)?; // (B, T, 8)
///     let (_, (h, _)) = lstm.forward_lengths(&x, &lengths, None)?; // (2, B, 8)
///     classes.forward(&Tensor::cat(&[&h.at(0, 0)?, &h.at(0, 1)?], 1)?) // (B, 2)
/// };
/// let mut adam = Adam::new(store.trainable(), 0.03);
/// for _ in 0..40 {
///     let loss = cross_entropy(&logits(&texts)?, &targets)?; // ()
///     adam.step(&loss.backward()?)?;
/// }
/// let new = logits(&["Truly a lovely book", "a dull story"])?; // (2, 2)
/// assert_eq!(new.argmax(1)?.to_vec::<i32>()?, [1, 0]);
/// # Ok(()) }
/// ```
/// Equivalent: Keras' `TextVectorization`, torchtext's `build_vocab_from_iterator`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WordTokenizer {
    tokens: Vec<String>,
    ids: HashMap<String, u32>,
    lowercase: bool,
    punctuation: bool,
}

/// Without words: all are unknown.
impl Default for WordTokenizer {
    fn default() -> WordTokenizer {
        WordTokenizer::new([], true, true)
    }
}

impl WordTokenizer {
    /// The token of padding.
    pub const PADDING: u32 = 0;
    /// The token of words that are not in the vocabulary.
    pub const UNKNOWN: u32 = 1;

    /// All words of `texts`, with the default options.
    ///
    /// # Errors
    /// If they have no word.
    #[track_caller]
    pub fn of<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<WordTokenizer> {
        let _op = enter("WordTokenizer::of");
        WordTokenizer::with_options(texts, WordOptions::default())
    }

    /// The words of `texts` that `options` select.
    ///
    /// # Errors
    /// If no word is left.
    #[track_caller]
    pub fn with_options<T: AsRef<str>>(
        texts: impl IntoIterator<Item = T>,
        options: WordOptions,
    ) -> Result<WordTokenizer> {
        let _op = enter("WordTokenizer::with_options");
        let WordOptions { min_count, max_size, lowercase, punctuation } = options;
        let tokenizer = WordTokenizer::new([], lowercase, punctuation);
        // of each word: how often it occurs, and how many others occur before it
        let mut counts: HashMap<String, (usize, usize)> = HashMap::new();
        for word in texts.into_iter().flat_map(|text| tokenizer.split(text.as_ref())) {
            let before = counts.len();
            counts.entry(word).or_insert((0, before)).0 += 1;
        }
        let all = counts.len();
        let mut words: Vec<_> = counts.into_iter().filter(|(_, (n, _))| *n >= min_count).collect();
        words.sort_unstable_by_key(|(_, (count, before))| (Reverse(*count), *before));
        words.truncate(max_size.saturating_sub(2));
        if words.is_empty() {
            let text = format!("the vocabulary has 0 of the {all} words of the texts");
            return Err(Error::value(text)
                .help("give texts with words, a min_count that words reach, a max_size above 2"));
        }
        let words = words.into_iter().map(|(word, _)| word);
        Ok(WordTokenizer::new(words, lowercase, punctuation))
    }

    fn new(
        words: impl IntoIterator<Item = String>,
        lowercase: bool,
        punctuation: bool,
    ) -> WordTokenizer {
        let tokens: Vec<String> = SPECIAL.map(String::from).into_iter().chain(words).collect();
        let ids = tokens.iter().cloned().zip(0..).collect();
        WordTokenizer { tokens, ids, lowercase, punctuation }
    }

    /// The words in the order of their tokens, after `<pad>` and `<unk>`.
    pub fn tokens(&self) -> &[String] {
        &self.tokens
    }

    /// Encodes texts, and pads them to the length of the longest → tokens (B, T) of `I32` and the
    /// number of tokens of each text, as `Lstm::forward_lengths` takes it. A text without
    /// words is one unknown word, since a sequence has at least one step.
    ///
    /// # Errors
    /// If the device fails.
    #[track_caller]
    pub fn encode_batch<T: AsRef<str>>(
        &self,
        texts: &[T],
        device: impl ToDevice,
    ) -> Result<(Tensor, Vec<usize>)> {
        let _op = enter("WordTokenizer::encode_batch");
        let row = |text: &T| self.encode(text.as_ref());
        let mut rows = texts.iter().map(row).collect::<Result<Vec<_>>>()?;
        let empty = rows.iter_mut().filter(|row| row.is_empty());
        empty.for_each(|row| row.push(WordTokenizer::UNKNOWN));
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        let longest = lengths.iter().copied().max().unwrap_or(0);
        rows.iter_mut().for_each(|row| row.resize(longest, WordTokenizer::PADDING));
        let tokens: Vec<i32> = rows.into_iter().flatten().map(|token| token as i32).collect();
        Ok((Tensor::from_vec(tokens, (texts.len(), longest), device)?, lengths))
    }

    /// The words and marks of `text`, in order.
    fn split(&self, text: &str) -> Vec<String> {
        let text = if self.lowercase { &text.to_lowercase() } else { text };
        let letter = |c: char| c.is_alphanumeric() || c == '_';
        let (mut words, mut in_word) = (Vec::<String>::new(), false);
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            let joins = match get_general_category(c) {
                G::NonspacingMark | G::SpacingMark | G::EnclosingMark => true,
                _ => "'’\u{200c}\u{200d}".contains(c) && chars.peek().is_some_and(|&c| letter(c)),
            };
            let continues = in_word && (letter(c) || joins);
            in_word = continues || letter(c);
            match words.last_mut() {
                Some(word) if continues => word.push(c),
                _ if in_word || self.punctuation && !c.is_whitespace() => words.push(c.into()),
                _ => {}
            }
        }
        words
    }
}

impl Tokenizer for WordTokenizer {
    fn vocab_size(&self) -> usize {
        self.tokens.len()
    }

    /// Words that are not in the vocabulary are [`WordTokenizer::UNKNOWN`].
    fn encode(&self, text: &str) -> Result<Vec<u32>> {
        let id = |word: String| self.ids.get(&word).copied().unwrap_or(WordTokenizer::UNKNOWN);
        Ok(self.split(text).into_iter().map(id).collect())
    }

    /// The words with spaces between them, without padding; `<unk>` for unknown ones.
    fn decode(&self, tokens: &[u32]) -> Result<String> {
        let word = |(i, &token): (usize, &u32)| {
            let word = self.tokens.get(token as usize).map(String::as_str);
            word.ok_or_else(|| no_such_token(i, token, self.tokens.len()))
        };
        let real = tokens.iter().enumerate().filter(|(_, token)| **token != WordTokenizer::PADDING);
        Ok(real.map(word).collect::<Result<Vec<_>>>()?.join(" "))
    }
}

impl WordTokenizer {
    /// The vocabulary, for a checkpoint.
    pub fn state(&self) -> State {
        let state = State::default().with("tokens", self.tokens.join(" "));
        state.with("lowercase", self.lowercase).with("punctuation", self.punctuation)
    }

    /// Restores the vocabulary.
    ///
    /// # Errors
    /// If `state` was not saved by a `WordTokenizer`; the vocabulary stays as it was.
    pub fn set_state(&mut self, state: &State) -> Result<()> {
        let text: String = state.get("tokens")?;
        let words = text.split(' ').skip(2).map(String::from);
        let loaded = WordTokenizer::new(words, state.get("lowercase")?, state.get("punctuation")?);
        if loaded.tokens.join(" ") != text || loaded.ids.len() != loaded.tokens.len() {
            let text = format!("{} is not a vocabulary of different words", quoted(&text));
            return Err(Error::format(text).help("restore the state of a WordTokenizer"));
        }
        *self = loaded;
        Ok(())
    }
}
