//! Models that predict the character after a window of characters: (B, context) → (B, V).

use teeny_core::{Result, Tensor};
use teeny_nn::init::{Nonlinearity, calculate_gain};
use teeny_nn::norm::BatchNormOptions;
use teeny_nn::{
    Activation, BatchNorm, Embedding, EmbeddingOptions, Flatten, Init, Linear, LinearOptions,
    Module, Path, Sequential,
};

/// Deviation 1, which is too large: the first lecture starts with it.
const UNSCALED: Init = Init::Normal { mean: 0.0, std: 1.0 };
/// Deviation `1 / sqrt(inputs)`.
const SCALED: Init = Init::KaimingNormal { gain: 1.0 };

/// Logits (27, 27), initially 0: 729 parameters.
pub fn bigram(path: &Path, vocab: usize) -> Result<Box<dyn Module>> {
    let logits = Embedding::with_options(
        &path.at("logits"),
        vocab,
        vocab,
        EmbeddingOptions::new().with_init(Init::ZEROS),
    )?;
    Ok(Box::new(Sequential::new().then(logits).then(Flatten)))
}

/// Bengio's network, 30-200-27: 11,897 parameters.
pub fn mlp(path: &Path, vocab: usize) -> Result<Box<dyn Module>> {
    let net = Sequential::new()
        .then(Embedding::new(&path.at("wte"), vocab, 10)?) // (B, 3, 10)
        .then(Flatten) // (B, 30)
        .then(Linear::with_options(
            &path.at("fc1"),
            30,
            200,
            LinearOptions::new().with_weight_init(UNSCALED).with_bias_init(UNSCALED),
        )?) // (B, 200)
        .then(Activation::Tanh)
        .then(Linear::with_options(
            &path.at("fc2"),
            200,
            vocab,
            LinearOptions::new().with_weight_init(UNSCALED).with_bias_init(UNSCALED),
        )?); // (B, 27)
    Ok(Box::new(net))
}

/// The same with batch normalisation and with initial weights that make the logits small and the
/// hidden values of deviation 1: 12,097 parameters.
pub fn mlp_bn(path: &Path, vocab: usize) -> Result<Box<dyn Module>> {
    let options = BatchNormOptions::new().with_momentum(Some(0.001));
    let hidden = Init::KaimingNormal { gain: calculate_gain(Nonlinearity::Tanh) };
    let small = Init::Normal { mean: 0.0, std: 0.01 };
    let net = Sequential::new()
        .then(Embedding::new(&path.at("wte"), vocab, 10)?) // (B, 3, 10)
        .then(Flatten) // (B, 30)
        .then(Linear::with_options(
            &path.at("fc1"),
            30,
            200,
            LinearOptions::new().with_weight_init(hidden).with_bias(false),
        )?) // (B, 200)
        .then(BatchNorm::with_options(&path.at("bn1"), 200, options)?)
        .then(Activation::Tanh)
        .then(Linear::with_options(
            &path.at("fc2"),
            200,
            vocab,
            LinearOptions::new().with_weight_init(small).with_bias_init(Init::ZEROS),
        )?); // (B, 27)
    Ok(Box::new(net))
}

/// Five hidden layers of 100, batch normalisation after every linear layer, the last one too:
/// 47,024 parameters.
pub fn deep(path: &Path, vocab: usize) -> Result<Box<dyn Module>> {
    let hidden = Init::KaimingNormal { gain: calculate_gain(Nonlinearity::Tanh) };
    // (B, 30)
    let mut net = Sequential::new().then(Embedding::new(&path.at("wte"), vocab, 10)?).then(Flatten);
    for i in 0..5 {
        let inputs = if i == 0 { 30 } else { 100 };
        net = net
            .then(Linear::with_options(
                &path.at("fc").at(i),
                inputs,
                100,
                LinearOptions::new().with_weight_init(hidden).with_bias(false),
            )?) // (B, 100)
            .then(BatchNorm::new(&path.at("bn").at(i), 100)?)
            .then(Activation::Tanh);
    }
    let norm = BatchNorm::new(&path.at("bn").at(5), vocab)?;
    scale(path, "bn.5.weight", 0.1)?;
    // (B, 27)
    Ok(Box::new(
        net.then(Linear::with_options(
            &path.at("fc").at(5),
            100,
            vocab,
            LinearOptions::new().with_weight_init(SCALED).with_bias(false),
        )?)
        .then(norm),
    ))
}

/// Embeddings of eight characters, three times joined two by two and passed through a layer of
/// `hidden`: 76,579 parameters with `n_embd` 24 and `hidden` 128, 22,397 with 10 and 68. Batch
/// statistics are over the batch and the remaining positions.
///
/// Source: van den Oord et al. 2016, arXiv:1609.03499, figure 3, for the tree.
pub fn wavenet(path: &Path, vocab: usize, n_embd: usize, hidden: usize) -> Result<Box<dyn Module>> {
    // (B, 8, C)
    let mut net = Sequential::new().then(Embedding::new(&path.at("wte"), vocab, n_embd)?);
    for (i, inputs) in [n_embd, hidden, hidden].into_iter().enumerate() {
        net = net
            .then(join_neighbours) // (B, 4, 2 C), (B, 2, 2 H), (B, 1, 2 H)
            // (.., H)
            .then(Linear::with_options(
                &path.at("fc").at(i),
                2 * inputs,
                hidden,
                LinearOptions::new().with_weight_init(SCALED).with_bias(false),
            )?)
            .then(BatchNorm::with_options(
                &path.at("bn").at(i),
                hidden,
                BatchNormOptions::new().with_channels_last(true),
            )?)
            .then(Activation::Tanh);
    }
    let head = Linear::with_options(
        &path.at("head"),
        hidden,
        vocab,
        LinearOptions::new().with_weight_init(SCALED).with_bias_init(Init::ZEROS),
    )?;
    scale(path, "head.weight", 0.1)?;
    Ok(Box::new(net.then(Flatten).then(head))) // (B, 27)
}

/// (B, T, C) → (B, T / 2, 2 C).
fn join_neighbours(x: &Tensor) -> Result<Tensor> {
    let &[b, t, c] = &x.shape()[..] else { return x.reshape(-1) };
    x.reshape((b, t / 2, 2 * c))
}

/// Scales the initial weights of the output layer, so that the initial probabilities are nearly
/// uniform.
fn scale(path: &Path, name: &str, factor: f64) -> Result<()> {
    let param = path.store().get(name)?;
    param.set(&param.value().mul(factor)?)
}
