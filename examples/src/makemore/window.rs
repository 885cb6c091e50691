//! Models that see a window of characters (B, context) and score the next one (B, V).

use teeny_core::{Result, Tensor};
use teeny_nn::init::{Nonlinearity, calculate_gain};
use teeny_nn::norm::BatchNormOptions;
use teeny_nn::{
    Activation, BatchNorm, Embedding, EmbeddingOptions, Flatten, Init, Linear, LinearOptions,
    Module, Path, Sequential,
};

/// Deviation 1, as drawn by a beginner.
const PLAIN: Init = Init::Normal { mean: 0.0, std: 1.0 };
/// Deviation `1 / sqrt(inputs)`.
const EVEN: Init = Init::KaimingNormal { gain: 1.0 };

/// 27 x 27 logits, all 0: 729 parameters.
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
            LinearOptions::new().with_weight_init(PLAIN).with_bias_init(PLAIN),
        )?) // (B, 200)
        .then(Activation::Tanh)
        .then(Linear::with_options(
            &path.at("fc2"),
            200,
            vocab,
            LinearOptions::new().with_weight_init(PLAIN).with_bias_init(PLAIN),
        )?); // (B, 27)
    Ok(Box::new(net))
}

/// The same with outputs that start small and hidden values that start with deviation 1 and are
/// kept there: 12,097 parameters.
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
            LinearOptions::new().with_weight_init(EVEN).with_bias(false),
        )?)
        .then(norm),
    ))
}

/// Eight characters of `n_embd` numbers joined two by two, three times, each time through `hidden`:
/// 76,579 parameters with 24 and 128, 22,397 with 10 and 68. Statistics go over the batch and the
/// places that are left.
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
                LinearOptions::new().with_weight_init(EVEN).with_bias(false),
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
        LinearOptions::new().with_weight_init(EVEN).with_bias_init(Init::ZEROS),
    )?;
    scale(path, "head.weight", 0.1)?;
    Ok(Box::new(net.then(Flatten).then(head))) // (B, 27)
}

/// (B, T, C) → (B, T / 2, 2 C).
fn join_neighbours(x: &Tensor) -> Result<Tensor> {
    let &[b, t, c] = &x.shape()[..] else { return x.reshape(-1) };
    x.reshape((b, t / 2, 2 * c))
}

/// Makes the first values of the output layer small, so that no character is thought certain before
/// anything is learnt.
fn scale(path: &Path, name: &str, factor: f64) -> Result<()> {
    let param = path.store().get(name)?;
    param.set(&param.value().mul(factor)?)
}
