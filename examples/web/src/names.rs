//! A generator of names: Bengio's network over a window of characters, trained for some
//! milliseconds at a time. The model is from A. Karpathy's *makemore* (2022), with fewer hidden
//! values.

use std::time::Duration;
use teeny_core::Key;
use teeny_core::clock::Instant;
use teeny_nn::LinearOptions;
use teeny_nn::init::{Nonlinearity, calculate_gain};
use teeny_nn::prelude::*;
use teeny_text::names::{BUILTIN, Names};
use teeny_text::{Sampler, Tokenizer};

const CONTEXT: usize = 3;
const EMBEDDING: usize = 10;
const HIDDEN: usize = 100;
const BATCH: usize = 64;
const LR: f64 = 0.005;
/// The most characters of a sampled name.
const MAX_LENGTH: usize = 12;

/// A run: network, optimizer and data.
pub struct Generator {
    names: Names,
    store: Store,
    model: Sequential,
    optimizer: Adam,
    losses: Losses,
    step: u64,
    /// Windows (N, 3) and the characters after them (N).
    examples: (Tensor, Tensor),
}

impl Generator {
    /// A run from its first step.
    ///
    /// # Errors
    /// If the device fails.
    pub fn new(device: &DeviceRef) -> Result<Generator> {
        let names = Names::parse(BUILTIN)?;
        let vocab = names.tokenizer().vocab_size();
        let store = Store::new(device);
        let hidden = LinearOptions::new()
            .with_weight_init(Init::KaimingNormal { gain: calculate_gain(Nonlinearity::Tanh) });
        let small = LinearOptions::new()
            .with_weight_init(Init::Normal { mean: 0.0, std: 0.01 })
            .with_bias_init(Init::ZEROS);
        let inputs = CONTEXT * EMBEDDING;
        let model = Sequential::new()
            .then(Embedding::new(&store.at("wte"), vocab, EMBEDDING)?) // (B, 3, 10)
            .then(Flatten) // (B, 30)
            .then(Linear::with_options(&store.at("fc1"), inputs, HIDDEN, hidden)?) // (B, 100)
            .then(Activation::Tanh)
            .then(Linear::with_options(&store.at("fc2"), HIDDEN, vocab, small)?); // (B, 27)
        let optimizer = Adam::new(store.trainable(), LR);
        let examples = names.windows(CONTEXT, device)?; // (N, 3), (N)
        let losses = Losses::new().every(usize::MAX);
        Ok(Generator { names, store, model, optimizer, losses, step: 0, examples })
    }

    /// The number of names that it learns from.
    pub fn count(&self) -> usize {
        self.names.len()
    }

    /// Steps taken.
    pub fn step(&self) -> u64 {
        self.step
    }

    /// Trains until `budget` has passed, one step at least, and returns the losses.
    ///
    /// # Errors
    /// If the device fails or a loss is not finite.
    pub async fn train(&mut self, budget: Duration) -> Result<Vec<f32>> {
        let start = Instant::now();
        let (x, y) = &self.examples;
        let device = self.store.device().clone();
        loop {
            let n = y.numel() as i64;
            let rows = Tensor::randint(0, n, (BATCH,), DType::I32, &device)?; // (64)
            let logits = self.model.forward(&x.index_select(0, &rows)?)?; // (64, 27)
            let loss = cross_entropy(&logits, &y.index_select(0, &rows)?)?; // ()
            self.optimizer.step(&loss.backward()?)?;
            self.losses.push(&loss)?;
            self.step += 1;
            device.ready_async().await?;
            if start.elapsed() >= budget {
                break;
            }
        }
        let losses = self.losses.read_async().await?.iter().map(|(_, loss)| *loss as f32).collect();
        self.losses = Losses::new().every(usize::MAX).from_step(self.step);
        Ok(losses)
    }

    /// `count` generated names; a `*` follows a name that is in the list.
    ///
    /// # Errors
    /// If the device fails.
    pub async fn sample(&self, count: usize) -> Result<Vec<String>> {
        let device = self.store.device();
        let tokens = no_grad(|| {
            // only `.`
            let mut tokens = Tensor::zeros((count, CONTEXT), DType::I32, device)?; // (N, 3)
            for i in 0..MAX_LENGTH {
                let window = tokens.slice(1, -(CONTEXT as isize)..)?; // (N, 3)
                let logits = self.model.forward(&window)?; // (N, 27)
                let key = Key { seed: self.step, draw: i as u64 };
                let next = Sampler::new().draw(&logits, key)?; // (N)
                tokens = Tensor::cat(&[&tokens, &next.unsqueeze(1)?], 1)?; // (N, 4 + i)
            }
            tokens.slice(1, CONTEXT as isize..)?.reshape(-1) // (12 N)
        })?;
        let read = tokens.to_vec_async::<i32>().await?;
        let spell = |row: &[i32]| {
            let name = self.names.spell(&row.iter().map(|&t| t as u32).collect::<Vec<_>>())?;
            let known = self.names.names().contains(&name);
            Ok(if known { name + "*" } else { name })
        };
        read.chunks(MAX_LENGTH).map(spell).collect()
    }
}
