//! The models of the `makemore` example: from counting pairs of characters to a transformer, all of
//! which make up names.
//!
//! ```text
//! count      how often b follows a: nothing to train        (bigrams)
//! window     the next character from a few before it         bigram mlp mlp_bn deep wavenet_small wavenet
//! sequence   all next characters of a name at once           bow mlp16 rnn gru lstm transformer
//! ```
//!
//! Sizes, first values and training follow A. Karpathy's *makemore* (2022): the window models his
//! lectures, the sequence models his program.

pub mod bigrams;
mod data;
mod sequence;
mod window;

pub use data::{Examples, sample};

use teeny_core::{Result, Tensor};
use teeny_nn::loss::{CrossEntropy, Reduction};
use teeny_nn::{Module, Schedule, Store};

/// A kind of model that is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// A table of logits, the network that learns what counting finds.
    Bigram,
    /// Three characters through one hidden layer, with first values as they come.
    Mlp,
    /// The same with careful first values and batch normalisation.
    MlpBn,
    /// Five hidden layers with batch normalisation.
    Deep,
    /// Eight characters, joined two by two: WaveNet's tree, with narrow layers.
    WavenetSmall,
    /// The same with wide layers.
    Wavenet,
    /// The mean of the characters so far, through a perceptron.
    Bow,
    /// All characters so far, up to the context, through one hidden layer.
    Mlp16,
    /// Elman's recurrent network.
    Rnn,
    /// Gated recurrent units.
    Gru,
    /// Long short-term memory.
    Lstm,
    /// A small GPT-2.
    Transformer,
}

impl Arch {
    /// All kinds with the names they have on the command line.
    pub const ALL: [(&'static str, Arch); 12] = [
        ("bigram", Arch::Bigram),
        ("mlp", Arch::Mlp),
        ("mlp_bn", Arch::MlpBn),
        ("deep", Arch::Deep),
        ("wavenet_small", Arch::WavenetSmall),
        ("wavenet", Arch::Wavenet),
        ("bow", Arch::Bow),
        ("mlp16", Arch::Mlp16),
        ("rnn", Arch::Rnn),
        ("gru", Arch::Gru),
        ("lstm", Arch::Lstm),
        ("transformer", Arch::Transformer),
    ];

    /// The length of a window, or `None` for a model of whole sequences.
    pub fn window(self) -> Option<usize> {
        match self {
            Arch::Bigram => Some(1),
            Arch::Mlp | Arch::MlpBn | Arch::Deep => Some(3),
            Arch::WavenetSmall | Arch::Wavenet => Some(8),
            Arch::Bow | Arch::Mlp16 | Arch::Rnn | Arch::Gru | Arch::Lstm | Arch::Transformer => {
                None
            }
        }
    }

    /// How many steps it is trained if nothing else is said.
    pub fn steps(self) -> u64 {
        match self {
            Arch::Bigram => 500,
            Arch::Mlp | Arch::MlpBn | Arch::Deep | Arch::WavenetSmall | Arch::Wavenet => 200_000,
            Arch::Bow | Arch::Mlp16 | Arch::Rnn | Arch::Gru | Arch::Lstm | Arch::Transformer => {
                20_000
            }
        }
    }

    /// The learning rate at every one of `steps` steps, a cosine from the first to almost none: for
    /// plain gradient descent on windows, for AdamW, after a warm-up, on sequences. The table of
    /// bigrams, whose loss has no noise, keeps its first rate.
    pub fn schedule(self, lr: Option<f64>, steps: u64) -> Schedule {
        match self {
            Arch::Bigram => Schedule::constant(lr.unwrap_or(50.0)),
            Arch::Mlp | Arch::MlpBn | Arch::Deep | Arch::WavenetSmall | Arch::Wavenet => {
                let lr = lr.unwrap_or(0.1);
                Schedule::cosine(lr, lr / 100.0, steps)
            }
            Arch::Bow | Arch::Mlp16 | Arch::Rnn | Arch::Gru | Arch::Lstm | Arch::Transformer => {
                let lr = lr.unwrap_or(2e-3);
                Schedule::warmup_cosine(lr, lr / 20.0, steps / 50, steps)
            }
        }
    }
}

/// A network that scores the next character.
pub struct Model {
    /// What it is.
    pub arch: Arch,
    /// How many characters it sees at most.
    pub context: usize,
    net: Box<dyn Module>,
}

impl Model {
    /// A model of `arch` for `vocab` characters; one of sequences has rows of `length`.
    ///
    /// # Errors
    /// If its parameters cannot be made.
    pub fn new(store: &Store, arch: Arch, vocab: usize, length: usize) -> Result<Model> {
        let context = arch.window().unwrap_or(length);
        let path = store.root();
        let net: Box<dyn Module> = match arch {
            Arch::Bigram => window::bigram(&path, vocab)?,
            Arch::Mlp => window::mlp(&path, vocab)?,
            Arch::MlpBn => window::mlp_bn(&path, vocab)?,
            Arch::Deep => window::deep(&path, vocab)?,
            Arch::WavenetSmall => window::wavenet(&path, vocab, 10, 68)?,
            Arch::Wavenet => window::wavenet(&path, vocab, 24, 128)?,
            Arch::Bow => Box::new(sequence::Bow::new(&path, vocab, context)?),
            Arch::Mlp16 => Box::new(sequence::Mlp::new(&path, vocab, context)?),
            Arch::Rnn | Arch::Gru | Arch::Lstm => {
                Box::new(sequence::Recurrent::new(&path, arch, vocab)?)
            }
            Arch::Transformer => Box::new(sequence::transformer(&path, vocab, context)?),
        };
        Ok(Model { arch, context, net })
    }

    /// The scores of what follows: windows (B, context) → (B, V); sequences (B, T) → (B, T, V),
    /// after every character.
    ///
    /// # Errors
    /// If the shape does not fit.
    pub fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.net.forward(x)
    }

    /// The cross-entropy of the characters `y` that follow `x`, as [`Examples`] gives them; those
    /// after the end of a name do not count.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn loss(&self, x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let logits = self.logits(x)?; // (B, V) or (B, T, V)
        let ignore_index = if self.arch.window().is_none() {
            Some(teeny_nn::data::names::PADDING.into())
        } else {
            None
        };
        let loss = CrossEntropy::new().with_reduction(reduction).with_ignore_index(ignore_index);
        loss.loss(&logits.reshape([-1, logits.size(-1)? as isize])?, &y.reshape(-1)?)
    }
}
