//! A long sequence of tokens, and examples for next-token prediction from it.
//!
//! ```text
//! tokens  F i r s t   C i t i z e n
//!             └── x ──┘              x is T tokens, y the T tokens one position further: each
//!               └── y ──┘            token of y is the target of the tokens of x before it
//! ```

use super::dataset::{Dataset, require_items};
use super::shard::Shard;
use teeny_core::context::enter;
use teeny_core::random::Key;
use teeny_core::{DType, Distribution, Error, Result, Tensor, ToDevice};

/// Scenes and sonnets of Shakespeare, for training without a file or a network.
pub const BUILTIN: &str = include_str!("../data/shakespeare.txt");

/// Tokens on a device, which makes batches of them. Clones and parts share memory.
///
/// # Example
/// ```
/// use teeny_core::random::Key;
/// use teeny_text::{CharTokenizer, Tokenizer};
/// use teeny_data::Corpus;
/// use teeny_nn::device::device;
/// # fn main() -> teeny_core::Result<()> {
/// let text = "to be, or not to be, that is the question";
/// let tokenizer = CharTokenizer::of(text)?;
/// let (train, _val) = Corpus::new(&tokenizer.encode(text)?, &device("cpu")?)?.split(0.9)?;
/// let (x, y) = train.batch(4, 8, Key { seed: 1, draw: 0 })?;          // (4, 8), (4, 8)
/// assert_eq!(x.slice(1, 1..)?.to_vec::<i32>()?, y.slice(1, ..7)?.to_vec::<i32>()?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Corpus {
    /// (N) of `I32`.
    tokens: Tensor,
    /// The part of each batch.
    shard: Shard,
}

impl Corpus {
    /// A corpus of `tokens` on `device`.
    ///
    /// # Errors
    /// If a token does not fit `I32`.
    #[track_caller]
    pub fn new(tokens: &[u32], device: impl ToDevice) -> Result<Corpus> {
        let _op = enter("Corpus::new");
        let wrong = |token: u32| {
            Error::value(format!("token {token} does not fit i32, whose largest is {}", i32::MAX))
        };
        let fit = |&token| {
            i32::try_from(token)
                .map_err(|_| wrong(token).help("tokens are numbers of a vocabulary, from 0 on"))
        };
        let values: Vec<i32> = tokens.iter().map(fit).collect::<Result<_>>()?;
        let tokens = Tensor::from_vec(values, (tokens.len(),), &device)?; // (N)
        Ok(Corpus { tokens, shard: Shard::WHOLE })
    }

    /// A corpus that makes only part `rank` of each [`Corpus::batch`], for one of `ranks` ranks
    /// that train together; together they make the batch of one rank.
    ///
    /// # Errors
    /// If `rank` is not below `ranks`.
    #[track_caller]
    pub fn shard(&self, rank: usize, ranks: usize) -> Result<Corpus> {
        let _op = enter("corpus.shard");
        Ok(Corpus { tokens: self.tokens.clone(), shard: Shard::new(rank, ranks)? })
    }

    /// The tokens, (N) of `I32`.
    pub fn tokens(&self) -> &Tensor {
        &self.tokens
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.numel()
    }

    /// Whether there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Splits the text into the first `fraction`, for training, and the rest, for validation.
    ///
    /// # Errors
    /// If `fraction` is outside `0..=1`.
    #[track_caller]
    pub fn split(&self, fraction: f64) -> Result<(Corpus, Corpus)> {
        let _op = enter("corpus.split");
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::value(format!("fraction is {fraction}, but must be within 0..=1"))
                .help("0.9 keeps a tenth for validation"));
        }
        let n = (self.len() as f64 * fraction) as usize;
        Ok((
            Corpus { tokens: self.tokens.slice(0, ..n as isize)?, shard: self.shard },
            Corpus { tokens: self.tokens.slice(0, n as isize..)?, shard: self.shard },
        ))
    }

    /// `batch` examples of `context` tokens from uniformly drawn positions: x and y, both (batch,
    /// context) of `I32`. The device draws the positions and gathers the tokens, so the call does
    /// not wait for it. `Key { seed, draw: step }` makes a run reproducible and resumable at any
    /// step.
    ///
    /// # Errors
    /// If the corpus is too short for one example, which takes `context + 1` tokens; if this part
    /// of a batch ([`Corpus::shard`]) has no examples.
    #[track_caller]
    pub fn batch(&self, batch: usize, context: usize, key: Key) -> Result<(Tensor, Tensor)> {
        let _op = enter("corpus.batch");
        let positions = self.starts(context)?;
        let device = self.tokens.device();
        let part = self.shard.of(batch);
        if part.is_empty() && batch > 0 {
            let text = format!("cannot give each rank an example from a batch of {batch}");
            return Err(Error::value(text).help("use larger batches, or fewer ranks"));
        }
        // (B, 1)
        let starts = Tensor::random(
            Distribution::Integer { low: 0, high: positions as i64 },
            (batch, 1),
            DType::I32,
            key,
            device,
        )?;
        self.examples_at(&starts.slice(0, part.start as isize..part.end as isize)?, context)
    }

    /// Consecutive examples of `context` tokens, for a [`super::DataLoader`]: in an epoch every
    /// token is a target once, except the first one and an incomplete example at the end.
    ///
    /// # Errors
    /// As [`Corpus::batch`].
    #[track_caller]
    pub fn windows(&self, context: usize) -> Result<Windows> {
        let _op = enter("corpus.windows");
        self.starts(context)?;
        Ok(Windows { corpus: self.clone(), context })
    }

    /// The number of positions at which an example can begin.
    fn starts(&self, context: usize) -> Result<usize> {
        let n = self.len();
        match n.checked_sub(context) {
            _ if context == 0 => {
                Err(Error::value("a context of 0, but examples need at least one token")
                    .help("a context of 64 or 256, for example"))
            }
            None | Some(0) => Err(Error::value(format!(
                "the corpus has {n} tokens, but one example with a context of {context} takes {}",
                context as u128 + 1
            ))
            .help("take a longer text, or a shorter context")),
            Some(starts) => Ok(starts),
        }
    }

    /// x, the `context` tokens from each position of `starts` (B, 1), and y, those one position
    /// further.
    fn examples_at(&self, starts: &Tensor, context: usize) -> Result<(Tensor, Tensor)> {
        let steps = Tensor::arange(0i32, context as i32 + 1, 1, self.tokens.device())?; // (T + 1)
        let tokens = self.tokens.index_select(0, &starts.add(&steps)?)?; // (B, T + 1)
        Ok((tokens.slice(1, ..context as isize)?, tokens.slice(1, 1..)?)) // (B, T) both
    }
}

/// Consecutive examples of a [`Corpus`]; see [`Corpus::windows`].
pub struct Windows {
    corpus: Corpus,
    context: usize,
}

impl Dataset for Windows {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        (self.corpus.len() - 1) / self.context
    }

    /// x and y, which is x shifted by one token, both (indices.len(), context) of `I32`.
    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<(Tensor, Tensor)> {
        require_items(indices, self.len())?;
        let starts: Vec<i32> = indices.iter().map(|&i| (i * self.context) as i32).collect();
        self.corpus.examples_at(
            &Tensor::from_vec(starts, (indices.len(), 1), self.corpus.tokens.device())?,
            self.context,
        )
    }
}
