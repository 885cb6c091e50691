//! A model of characters that invents first names: from three characters it predicts the next one.
//!
//! `cargo run --release --example characters [FILE]`, where the file has a name on each line.
//! Without it the model learns from 748 names, a part of the library. The network is from Bengio et
//! al. 2003, "A neural probabilistic language model".
#![forbid(unsafe_code)]

use teeny_nn::prelude::*;
use teeny_text::names::{self, Names};
use teeny_text::{Sampler, Tokenizer};

/// How many characters the model sees.
const CONTEXT: usize = 3;

fn main() -> Result<()> {
    let text = match std::env::args().nth(1) {
        Some(file) => std::fs::read_to_string(&file)
            .map_err(|error| Error::io(format!("cannot read {file}: {error}")))?,
        None => names::BUILTIN.to_string(),
    };
    train(&text)?;
    Ok(())
}

/// Trains, prints invented names, and returns the mean loss of the last steps.
pub fn train(text: &str) -> Result<f64> {
    manual_seed(1);
    let device = Autograd::new(device("auto")?); // the CPU or a GPU, with gradients
    let names = Names::parse(text)?;
    let vocab = names.tokenizer().vocab_size(); // V: `.`, which ends a name, and the letters
    let (x, y) = names.windows(CONTEXT, &device)?; // (N, 3), (N)
    println!("{} names, {} characters to predict", names.len(), y.numel());

    let store = Store::new(&device);
    let model = Sequential::new()
        .then(Embedding::new(&store.at("wte"), vocab, 16)?) // (B, 3) → (B, 3, 16)
        .then(Flatten) // (B, 48)
        .then(Linear::new(&store.at("fc1"), CONTEXT * 16, 128)?) // (B, 128)
        .then(Activation::Tanh)
        .then(Linear::new(&store.at("fc2"), 128, vocab)?); // (B, V)
    let mut adam = AdamW::new(store.trainable(), 3e-3);
    let mut losses = Losses::new();
    for step in 1..=1500 {
        let rows = Tensor::randint(0, y.numel() as i64, (128,), DType::I32, &device)?; // (128)
        let logits = model.forward(&x.index_select(0, &rows)?)?; // (128, V)
        let loss = cross_entropy(&logits, &y.index_select(0, &rows)?)?; // ()
        adam.step(&loss.backward()?)?;
        losses.push(&loss)?;
        if step % 300 == 0 {
            losses.read()?;
            println!("step {step:4}  loss {:.3}", losses.mean(300));
        }
    }
    println!("chance  loss {:.3}", (vocab as f64).ln());

    let mut draws = 0;
    let mut invent = || {
        let mut tokens = vec![0; CONTEXT]; // `...`: the beginning of a name
        while tokens.len() < CONTEXT + 20 && (tokens.len() == CONTEXT || tokens.last() != Some(&0))
        {
            let last: Vec<i32> =
                tokens[tokens.len() - CONTEXT..].iter().map(|&t| t as i32).collect();
            let window = Tensor::from_vec(last, (1, CONTEXT), &device)?; // (1, 3)
            draws += 1;
            let logits = model.forward(&window)?; // (1, V)
            tokens.extend(Sampler::new().tokens(&logits, Key { seed: 1, draw: draws })?);
        }
        names.spell(&tokens[CONTEXT..])
    };
    let invented: Result<Vec<String>> = no_grad(|| (0..10).map(|_| invent()).collect());
    println!("invented: {}", invented?.join(", "));
    Ok(losses.mean(300))
}
