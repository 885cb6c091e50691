//! Models that predict the character after each character of a name: (B, T) → (B, T, V).

use super::Arch;
use teeny_core::{DType, Result, Tensor};
use teeny_nn::{Embedding, Gpt, GptConfig, Gru, Init, Linear, Lstm, Module, Param, Path, Rnn};

/// The width of embeddings and hidden layers.
const WIDTH: usize = 64;

/// Adds to each embedding the mean of those up to it, then a perceptron: 12,827 parameters.
pub struct Bow {
    wte: Embedding,
    wpe: Embedding,
    c_fc: Linear,
    c_proj: Linear,
    head: Linear,
}

impl Bow {
    pub fn new(path: &Path, vocab: usize, context: usize) -> Result<Bow> {
        Ok(Bow {
            wte: Embedding::new(&path.at("wte"), vocab, WIDTH)?,
            wpe: Embedding::new(&path.at("wpe"), context, WIDTH)?,
            c_fc: Linear::new(&path.at("c_fc"), WIDTH, WIDTH)?,
            c_proj: Linear::new(&path.at("c_proj"), WIDTH, WIDTH)?,
            head: Linear::new(&path.at("lm_head"), WIDTH, vocab)?,
        })
    }
}

impl Module for Bow {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let t = x.shape()[1];
        let positions = self.wpe.weight.value().slice(0, ..t)?; // (T, 64)
        let x = self.wte.forward(x)?.add(&positions)?; // (B, T, 64)
        // (T, 1)
        let counts = Tensor::arange(1, t as i32 + 1, 1, &x)?.cast(DType::F32)?.unsqueeze(1)?;
        let x = x.cumsum(1)?.div(&counts)?.add(&x)?; // (B, T, 64)
        let h = self.c_proj.forward(&self.c_fc.forward(&x)?.tanh()?)?; // (B, T, 64)
        self.head.forward(&x.add(&h)?)
    }
}

/// Each character with the 15 before it through one hidden layer: 69,147 parameters. An additional
/// token pads the start.
pub struct Mlp {
    wte: Embedding,
    fc1: Linear,
    fc2: Linear,
    context: usize,
}

impl Mlp {
    pub fn new(path: &Path, vocab: usize, context: usize) -> Result<Mlp> {
        Ok(Mlp {
            wte: Embedding::new(&path.at("wte"), vocab + 1, WIDTH)?,
            fc1: Linear::new(&path.at("mlp.0"), context * WIDTH, WIDTH)?,
            fc2: Linear::new(&path.at("mlp.2"), WIDTH, vocab)?,
            context,
        })
    }
}

impl Module for Mlp {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let blank = self.fc2.weight.value().shape()[0] as i32;
        // (B, context - 1 + T)
        let padded = x.pad(&[(0, 0), (self.context as isize - 1, 0)], blank)?;
        let windows = padded.unfold(1, self.context, 1)?; // (B, T, context)
        let x = self.wte.forward(&windows)?.flatten(2, 3)?; // (B, T, context 64)
        self.fc2.forward(&self.fc1.forward(&x)?.tanh()?)
    }
}

/// Rnn, Gru or Lstm with a learned initial state: 11,803, 28,315 and 36,571 parameters. The second
/// bias is frozen at 0, because makemore's cells have one bias.
pub struct Recurrent {
    start: Param,
    wte: Embedding,
    cell: Cell,
    head: Linear,
}

enum Cell {
    Rnn(Rnn),
    Gru(Gru),
    Lstm(Lstm),
}

impl Recurrent {
    pub fn new(path: &Path, arch: Arch, vocab: usize) -> Result<Recurrent> {
        let start = path.param("start", (1, 1, WIDTH), Init::ZEROS)?; // (1, 1, 64)
        let wte = Embedding::new(&path.at("wte"), vocab, WIDTH)?;
        let at = path.at("cell");
        let cell = match arch {
            Arch::Gru => Cell::Gru(Gru::new(&at, WIDTH, WIDTH)?),
            Arch::Lstm => Cell::Lstm(Lstm::new(&at, WIDTH, WIDTH)?),
            _ => Cell::Rnn(Rnn::new(&at, WIDTH, WIDTH)?),
        };
        let second = path.store().get("cell.bias_hh_l0")?;
        second.set_trainable(false)?;
        second.set(&second.value().zeros_like()?)?;
        Ok(Recurrent { start, wte, cell, head: Linear::new(&path.at("lm_head"), WIDTH, vocab)? })
    }
}

impl Module for Recurrent {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let start = self.start.value().expand((1, x.shape()[0], WIDTH))?; // (1, B, 64)
        let x = self.wte.forward(x)?; // (B, T, 64)
        let y = match &self.cell {
            Cell::Rnn(rnn) => rnn.forward_with(&x, Some(&start))?.0,
            Cell::Gru(gru) => gru.forward_with(&x, Some(&start))?.0,
            Cell::Lstm(lstm) => lstm.forward_with(&x, Some((&start, &start.zeros_like()?)))?.0,
        }; // (B, T, 64)
        self.head.forward(&y)
    }
}

/// Four layers of four heads: 204,544 parameters, 1,728 of them in the head. Without dropout it
/// overfits.
pub fn transformer(path: &Path, vocab: usize, context: usize) -> Result<impl Module + use<>> {
    let gpt = Gpt::new(
        path,
        GptConfig::new(vocab, context, 4, 4, WIDTH).with_tied(false).with_dropout(0.1),
    )?;
    Ok(move |x: &Tensor| gpt.logits(x))
}
