//! nanoGPT's model and training script, line by line: a GPT on the characters of Shakespeare.
//!
//! `cargo run --release --example nanogpt [FILE]`; without a file it learns from scenes that are a
//! part of the library. Source: Karpathy's nanoGPT, after Radford et al. 2019.
#![forbid(unsafe_code)]

use teeny_nn::data::corpus;
use teeny_nn::prelude::*;
use teeny_nn::{Attention, Path};
use teeny_text::{CharTokenizer, Sampler, Tokenizer};

const BATCH: usize = 12; // B
const CONTEXT: usize = 64; // T
const LAYERS: usize = 3;
const HEADS: usize = 4;
const WIDTH: usize = 96; // E

struct Block {
    ln_1: LayerNorm,
    c_attn: Linear,
    c_proj: Linear,
    ln_2: LayerNorm,
    mlp: Sequential,
}

impl Block {
    fn new(path: &Path) -> Result<Block> {
        Ok(Block {
            ln_1: LayerNorm::new(&path.at("ln_1"), WIDTH)?,
            c_attn: Linear::new(&path.at("attn.c_attn"), WIDTH, 3 * WIDTH)?,
            c_proj: Linear::new(&path.at("attn.c_proj"), WIDTH, WIDTH)?,
            ln_2: LayerNorm::new(&path.at("ln_2"), WIDTH)?,
            mlp: Sequential::new()
                .then(Linear::new(&path.at("mlp.c_fc"), WIDTH, 4 * WIDTH)?)
                .then(Activation::Gelu)
                .then(Linear::new(&path.at("mlp.c_proj"), 4 * WIDTH, WIDTH)?),
        })
    }

    fn attention(&self, x: &Tensor) -> Result<Tensor> {
        let (b, t) = (x.shape()[0], x.shape()[1]);
        let qkv = self.c_attn.forward(x)?.reshape((b, t, 3, HEADS, WIDTH / HEADS))?;
        let qkv = qkv.permute([2, 0, 3, 1, 4])?; // (3, B, heads, T, E / heads)
        let (q, k, v) = (qkv.at(0, 0)?, qkv.at(0, 1)?, qkv.at(0, 2)?);
        let y = q.attention(&k, &v, None, &Attention::causal(0))?; // (B, heads, T, E / heads)
        self.c_proj.forward(&y.transpose(1, 2)?.reshape((b, t, WIDTH))?) // (B, T, E)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let x = x.add(&self.attention(&self.ln_1.forward(x)?)?)?; // (B, T, E)
        x.add(&self.mlp.forward(&self.ln_2.forward(&x)?)?)
    }
}

struct NanoGpt {
    wte: Embedding,
    wpe: Embedding,
    h: Vec<Block>,
    ln_f: LayerNorm,
}

impl NanoGpt {
    fn new(path: &Path, vocab: usize) -> Result<NanoGpt> {
        let h = (0..LAYERS).map(|i| Block::new(&path.at(format!("h.{i}"))));
        Ok(NanoGpt {
            wte: Embedding::new(&path.at("wte"), vocab, WIDTH)?,
            wpe: Embedding::new(&path.at("wpe"), CONTEXT, WIDTH)?,
            h: h.collect::<Result<_>>()?,
            ln_f: LayerNorm::new(&path.at("ln_f"), WIDTH)?,
        })
    }

    fn forward(&self, idx: &Tensor) -> Result<Tensor> {
        let pos = Tensor::arange(0, idx.shape()[1] as i32, 1, idx)?; // (T)
        let x = self.wte.forward(idx)?.add(&self.wpe.forward(&pos)?)?; // (B, T, E)
        let x = self.h.iter().try_fold(x, |x, block| block.forward(&x))?; // (B, T, E)
        self.ln_f.forward(&x)?.matmul(&self.wte.weight.value().t()?) // (B, T, V): tied weights
    }
}

fn main() -> Result<()> {
    let text = std::env::args().nth(1).map(std::fs::read_to_string).transpose()?;
    let (loss, sample) = train(text.as_deref().unwrap_or(corpus::BUILTIN), 600)?;
    println!("loss {loss:.2}\n{sample}");
    Ok(())
}

/// Returns the mean loss of the last 50 steps, and 200 characters.
pub fn train(text: &str, steps: u64) -> Result<(f64, String)> {
    manual_seed(1337);
    let device = Autograd::new(device("auto")?);
    let tokenizer = CharTokenizer::of(text)?;
    let data = Corpus::new(&tokenizer.encode(text)?, &device)?;
    let store = Store::new(&device);
    let model = NanoGpt::new(&store.root(), tokenizer.vocab_size())?;
    let mut adam = AdamW::new(store.trainable(), 2e-3).betas(0.9, 0.99).weight_decay(0.1);
    let schedule = Schedule::warmup_cosine(2e-3, 2e-4, 50, steps);
    let mut losses = Losses::new();
    for step in 0..steps {
        let (x, y) = data.batch(BATCH, CONTEXT, Key { seed: 1337, draw: step })?; // (B, T) both
        let logits = model.forward(&x)?.flatten(0, 1)?; // (B T, V)
        let loss = cross_entropy(&logits, &y.flatten(0, 1)?)?; // ()
        let mut gradients = loss.backward()?;
        clip_grad_norm(&mut gradients, &store.trainable(), 1.0)?;
        adam.set_lr(schedule.at(step));
        adam.step(&gradients)?;
        losses.push(&loss)?;
    }
    losses.read()?;
    let mut tokens = tokenizer.encode("\n")?;
    for draw in 0..200 {
        let last = &tokens[tokens.len().saturating_sub(CONTEXT)..];
        let idx = Tensor::from_vec(last.to_vec(), (1, last.len()), &device)?.cast(DType::I32)?;
        let logits = no_grad(|| model.forward(&idx))?.at(1, -1)?; // (1, V)
        tokens.extend(Sampler::new().temperature(0.8).tokens(&logits, Key { seed: 1, draw })?);
    }
    Ok((losses.mean(50), tokenizer.decode(&tokens)?))
}
