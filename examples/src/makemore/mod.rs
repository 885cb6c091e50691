//! The models of the `makemore` example, which generate names.
//!
//! ```text
//! bigrams    counts of pairs, no training      count
//! window     the character after a window      bigram mlp mlp_bn deep wavenet_small wavenet
//! sequence   the character after each prefix   bow mlp16 rnn gru lstm transformer
//! ```
//!
//! Sizes, initial weights and training follow A. Karpathy's *makemore* (2022): the window models
//! his lectures, the sequence models his program.

pub mod bigrams;
mod data;
mod sequence;
mod window;

pub use data::{Examples, sample};

use teeny_core::{Result, Tensor};
use teeny_nn::loss::{CrossEntropy, Reduction};
use teeny_nn::{Module, Schedule, Store};

/// An architecture of a model that is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    /// A table of logits: the network that learns the probabilities of `count`.
    Bigram,
    /// A window of three characters and one hidden layer, with initial weights of deviation 1.
    Mlp,
    /// `Mlp` with scaled initial weights and batch normalisation.
    MlpBn,
    /// Five hidden layers with batch normalisation.
    Deep,
    /// A window of eight characters, joined two by two as in WaveNet, with narrow layers.
    WavenetSmall,
    /// `WavenetSmall` with wide layers.
    Wavenet,
    /// The mean of the embeddings up to each character, and a perceptron.
    Bow,
    /// The last 16 characters and one hidden layer.
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
    /// All architectures with their names on the command line.
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

    /// The default number of steps.
    pub fn steps(self) -> u64 {
        match self {
            Arch::Bigram => 500,
            Arch::Mlp | Arch::MlpBn | Arch::Deep | Arch::WavenetSmall | Arch::Wavenet => 200_000,
            Arch::Bow | Arch::Mlp16 | Arch::Rnn | Arch::Gru | Arch::Lstm | Arch::Transformer => {
                20_000
            }
        }
    }

    /// The learning rates of `steps` steps, from `lr` along a cosine to nearly 0: for SGD on
    /// windows; for AdamW on sequences, after a warm-up. The bigram network, whose loss has no
    /// noise, has a constant rate.
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

/// A network that predicts the next character.
pub struct Model {
    /// The architecture.
    pub arch: Arch,
    /// The largest number of characters that a prediction depends on.
    pub context: usize,
    net: Box<dyn Module>,
}

impl Model {
    /// A model of `arch` for `vocab` characters; `length` is the context of a sequence model.
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

    /// The logits of the next character. Shapes: windows (B, context) → (B, V); sequences (B, T) →
    /// (B, T, V), after each character.
    ///
    /// # Errors
    /// If the shape does not fit.
    pub fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.net.forward(x)
    }

    /// The cross-entropy of the characters `y` after `x`, both from [`Examples`]. Padding after the
    /// end of a name is ignored.
    ///
    /// # Errors
    /// If the shapes do not fit.
    pub fn loss(&self, x: &Tensor, y: &Tensor, reduction: Reduction) -> Result<Tensor> {
        let logits = self.logits(x)?; // (B, V) or (B, T, V)
        let ignore_index = if self.arch.window().is_none() {
            Some(teeny_text::names::PADDING.into())
        } else {
            None
        };
        let loss = CrossEntropy::new().with_reduction(reduction).with_ignore_index(ignore_index);
        loss.loss(&logits.reshape([-1, logits.size(-1)? as isize])?, &y.reshape(-1)?)
    }
}
