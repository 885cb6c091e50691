//! A small BERT that learns a toy language by predicting masked words from the words on both sides.
//!
//! Sentences join one to three clauses such as `rex the dog chews a bone`. Name, animal, verb and
//! food of a clause belong together, so every masked word follows from the others, if the model
//! learns which words are of the same clause.
#![forbid(unsafe_code)]

use examples::options::{at_least_one, positive};
use examples::{Common, Program, Run, Step, opt, println};
use std::process::ExitCode;
use teeny_autograd::no_grad;
use teeny_core::random::Key;
use teeny_core::{DType, DeviceRef, Distribution, Result, Tensor, permutation};
use teeny_nn::attention::AttentionOptions;
use teeny_nn::loss::CrossEntropy;
use teeny_nn::optim::{AdamW, Optimizer, clip_grad_norm};
use teeny_nn::train::RunOptions;
use teeny_nn::transformer::{TransformerConfig, TransformerEncoderLayer};
use teeny_nn::{
    Activation, Embedding, EmbeddingOptions, Init, LayerNorm, Linear, Module, Schedule, Store,
};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Trains a BERT on a toy language: it predicts masked words.",
    options: &[
        opt("steps N", "updates [400]",
            |o, v| v.with(&mut o.steps, |text| at_least_one(text).map(|n| n as u64))),
        opt("batch N", "sentences per update [64]", |o, v| v.with(&mut o.batch, at_least_one)),
        opt("layers N", "encoder layers [2]", |o, v| v.with(&mut o.layers, at_least_one)),
        opt("width N", "size of the embeddings [64]", |o, v| v.with(&mut o.width, at_least_one)),
        opt("lr X", "highest learning rate, after the warm-up [0.002]",
            |o, v| v.with(&mut o.lr, positive)),
    ],
    without: &["data", "resume"],
};

/// Name, animal, verb and food that belong together.
const CLAUSES: [[&str; 4]; 12] = [
    ["rex", "dog", "chews", "bone"],
    ["tom", "cat", "catches", "mouse"],
    ["lola", "cow", "munches", "grass"],
    ["otto", "owl", "swallows", "vole"],
    ["pip", "hen", "pecks", "corn"],
    ["nina", "rabbit", "nibbles", "carrot"],
    ["bruno", "bear", "licks", "honey"],
    ["max", "monkey", "peels", "banana"],
    ["ida", "frog", "snaps", "fly"],
    ["carl", "squirrel", "cracks", "nut"],
    ["ella", "seal", "gulps", "herring"],
    ["fritz", "panda", "shreds", "bamboo"],
];
const SPECIAL: [&str; 7] = ["<pad>", "<mask>", "<start>", "<end>", "the", "a", "and"];
/// The tokens of the special words.
const PAD: i32 = 0;
const MASK: i32 = 1;
const START: i32 = 2;
const END: i32 = 3;
const THE: i32 = 4;
const A: i32 = 5;
const AND: i32 = 6;
/// The longest sentence: three clauses of six words, two `and`, start and end.
const LENGTH: usize = 22;
/// The target at positions that the loss ignores.
const IGNORE_INDEX: i64 = -100;

struct Options {
    steps: u64,
    batch: usize,
    layers: usize,
    width: usize,
    lr: f64,
}

fn main() -> ExitCode {
    PROGRAM.main(Options { steps: 400, batch: 64, layers: 2, width: 64, lr: 2e-3 }, run)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let device = common.device()?;
    let words: Vec<&str> =
        SPECIAL.into_iter().chain(CLAUSES.as_flattened().iter().copied()).collect();
    // each ordered choice of up to three clauses once, a tenth of them for the test
    let sentences = sentences();
    let order = permutation(sentences.len(), Key { seed: common.seed, draw: 0 });
    let (test, training) = order.split_at(sentences.len() / 10);
    println!(
        "data    {} training and {} test sentences, {} words",
        training.len(),
        test.len(),
        words.len()
    );

    let store = Store::new(&device);
    let bert = Bert::new(&store, options, words.len())?;
    common.load(&store)?;
    println!("model   {} parameters", store.count());
    let cross_entropy = CrossEntropy::new().with_ignore_index(IGNORE_INDEX);
    let loss = |x: &[Tensor]| {
        let logits = bert.forward(&x[0], &x[1])?; // (B, T, V)
        cross_entropy.loss(&logits.flatten(0, 1)?, &x[2].flatten(0, 1)?) // ()
    };
    let mut replayed = Step::new(common, &store, loss)?;
    let schedule = Schedule::warmup_cosine(options.lr, 0.0, options.steps / 10, options.steps);
    let mut adam = AdamW::new(store.trainable(), options.lr).weight_decay(0.01);
    let with = RunOptions::new().schedule(schedule).bar("sentences");
    let mut run = Run::start(common, &store, &mut adam, options.steps, with)?;
    while let Some(step) = run.next_step() {
        let chosen =
            draw(options.batch, training.len(), Key { seed: common.seed, draw: 1 + 4 * step })?;
        let batch = Batch::new(
            chosen.into_iter().map(|i| &sentences[training[i]]),
            Key { seed: common.seed, draw: 2 + 4 * step },
            &device,
        )?;
        // ()
        let (loss, mut grads) = replayed.run(vec![batch.tokens, batch.real, batch.targets])?;
        clip_grad_norm(&mut grads, &store.trainable(), 1.0)?;
        adam.set_lr(run.lr());
        adam.step(&grads)?;
        run.push(&loss, options.batch)?;
    }
    let (seconds, losses) = (run.seconds(), run.losses()?);
    let (first, last) = (losses.values()[0].1, losses.mean(20));
    println!("first loss {first:.4}, last {last:.4} after {seconds:.1} s");
    run.finish("A BERT on a toy language", "cross-entropy of masked words")?;

    store.set_training(false);
    let batch = Batch::new(
        test.iter().map(|&i| &sentences[i]),
        Key { seed: common.seed, draw: 3 },
        &device,
    )?;
    let (predicted, change) = no_grad(|| -> Result<_> {
        Ok((
            bert.forward(&batch.tokens, &batch.real)?.argmax(-1)?,
            padding_effect(&bert, &sentences[test[0]], &device)?,
        ))
    })?;
    show(&words, &batch, &predicted)?;
    println!("padding changes the probabilities of real words by at most {change:.1e}");
    let masked = batch.targets.ne(IGNORE_INDEX)?;
    let right = predicted.eq(&batch.targets)?.and(&masked)?.sum_all()?.item::<i64>()?;
    let all = masked.sum_all()?.item::<i64>()?;
    println!(
        "masked accuracy {:.2} % ({right} of {all} masked words)",
        100.0 * right as f64 / all as f64
    );
    Ok(())
}

/// Token and position embeddings, encoder layers, and the embedding again as the output layer.
struct Bert {
    words: Embedding,
    positions: Embedding,
    norm: LayerNorm,
    layers: Vec<TransformerEncoderLayer>,
    head: Linear,
    head_norm: LayerNorm,
}

impl Bert {
    fn new(store: &Store, options: &Options, vocab: usize) -> Result<Bert> {
        let n = options.width;
        let small = Init::Normal { mean: 0.0, std: 0.02 };
        let config =
            TransformerConfig::new(n, 4, 4 * n).with_activation(Activation::Gelu).with_dropout(0.0);
        Ok(Bert {
            words: Embedding::with_options(
                &store.at("words"),
                vocab,
                n,
                EmbeddingOptions::new().with_init(small),
            )?,
            positions: Embedding::with_options(
                &store.at("positions"),
                LENGTH,
                n,
                EmbeddingOptions::new().with_init(small),
            )?,
            norm: LayerNorm::new(&store.at("norm"), n)?,
            layers: (0..options.layers)
                .map(|i| TransformerEncoderLayer::new(&store.at("layers").at(i), config))
                .collect::<Result<_>>()?,
            head: Linear::new(&store.at("head"), n, n)?,
            head_norm: LayerNorm::new(&store.at("head_norm"), n)?,
        })
    }

    /// The logits of every word at every position.
    ///
    /// Shapes: tokens (B, T), real (B, T), false at padding → (B, T, V).
    fn forward(&self, tokens: &Tensor, real: &Tensor) -> Result<Tensor> {
        // (T, E)
        let positions = self.positions.weight.value().slice(0, 0..tokens.shape()[1] as isize)?;
        let mut x = self.norm.forward(&self.words.forward(tokens)?.add(&positions)?)?; // (B, T, E)
        for layer in &self.layers {
            x = layer.attend(&x, AttentionOptions::default().with_key_mask(real))?;
        }
        let x = self.head_norm.forward(&self.head.forward(&x)?.gelu()?)?;
        x.matmul(&self.words.weight.value().t()?) // (B, T, V)
    }
}

/// Sentences padded to equal length, with masked words.
struct Batch {
    /// (B, T), some of them replaced by the mask.
    tokens: Tensor,
    /// (B, T): false at padding.
    real: Tensor,
    /// (B, T): the masked words, [`IGNORE_INDEX`] elsewhere.
    targets: Tensor,
}

impl Batch {
    /// Selects 15 % of the words of each sentence, at least one, as targets. Of these, 8 in 10 are
    /// replaced by the mask, 1 in 10 by a random word, and 1 in 10 stays, so that the model cannot
    /// rely on the mask. Source: Devlin et al. 2018, arXiv:1810.04805.
    fn new<'a>(
        sentences: impl Iterator<Item = &'a Vec<i32>>,
        key: Key,
        device: &DeviceRef,
    ) -> Result<Batch> {
        let (mut tokens, mut real, mut targets) = (Vec::new(), Vec::new(), Vec::new());
        for (i, sentence) in sentences.enumerate() {
            let key = Key { seed: key.seed ^ (i as u64) << 32, ..key };
            let order = permutation(sentence.len() - 2, key);
            let masked = &order[..(sentence.len() * 15).div_ceil(100)];
            let (chances, others) = (
                draw(masked.len(), 10, key)?,
                draw(masked.len(), 4 * CLAUSES.len(), Key { draw: key.draw + 1, ..key })?,
            );
            let start = tokens.len();
            let padding = LENGTH - sentence.len();
            tokens.extend(sentence.iter().copied().chain(std::iter::repeat_n(PAD, padding)));
            real.extend((0..LENGTH).map(|t| t < sentence.len()));
            targets.extend(std::iter::repeat_n(IGNORE_INDEX, LENGTH));
            for ((place, chance), other) in
                masked.iter().map(|place| start + 1 + place).zip(chances).zip(others)
            {
                targets[place] = i64::from(tokens[place]);
                tokens[place] = match chance {
                    0 => tokens[place],
                    1 => (SPECIAL.len() + other) as i32,
                    _ => MASK,
                };
            }
        }
        let shape = (tokens.len() / LENGTH, LENGTH);
        Ok(Batch {
            tokens: Tensor::from_vec(tokens, shape, device)?,
            real: Tensor::from_vec(real, shape, device)?,
            targets: Tensor::from_vec(targets, shape, device)?,
        })
    }
}

/// Every sentence of one to three different clauses, as tokens.
fn sentences() -> Vec<Vec<i32>> {
    let word = |clause: usize, part: usize| (SPECIAL.len() + 4 * clause + part) as i32;
    let sentence = |clauses: &[usize]| {
        let mut tokens = vec![START];
        for (i, &c) in clauses.iter().enumerate() {
            if i > 0 {
                tokens.push(AND);
            }
            tokens.extend([word(c, 0), THE, word(c, 1), word(c, 2), A, word(c, 3)]);
        }
        tokens.push(END);
        tokens
    };
    let n = CLAUSES.len();
    let mut all: Vec<Vec<i32>> = (0..n).map(|a| sentence(&[a])).collect();
    for a in 0..n {
        for b in (0..n).filter(|&b| b != a) {
            all.push(sentence(&[a, b]));
            all.extend((0..n).filter(|&c| c != a && c != b).map(|c| sentence(&[a, b, c])));
        }
    }
    all
}

/// `count` random integers in `0..end`.
fn draw(count: usize, end: usize, key: Key) -> Result<Vec<usize>> {
    let cpu = teeny_core::Reference::new();
    let drawn = Tensor::random(
        Distribution::Integer { low: 0, high: end as i64 },
        (count,),
        DType::I64,
        key,
        &cpu,
    )?;
    Ok(drawn.to_vec::<i64>()?.into_iter().map(|i| i as usize).collect())
}

/// The largest change of a probability when `sentence` is padded.
fn padding_effect(bert: &Bert, sentence: &[i32], device: &DeviceRef) -> Result<f64> {
    let probabilities = |length: usize| -> Result<Tensor> {
        let tokens: Vec<i32> =
            sentence.iter().copied().chain(std::iter::repeat(PAD)).take(length).collect();
        let real: Vec<bool> = (0..length).map(|t| t < sentence.len()).collect();
        bert.forward(
            &Tensor::from_vec(tokens, (1, length), device)?,
            &Tensor::from_vec(real, (1, length), device)?,
        )?
        .softmax(-1)
    };
    let padded = probabilities(LENGTH)?.slice(1, 0..sentence.len() as isize)?;
    Ok(padded.sub(&probabilities(sentence.len())?)?.abs()?.max_all()?.item::<f32>()?.into())
}

/// Prints a few sentences, with predictions in place of the masked words.
fn show(words: &[&str], batch: &Batch, predicted: &Tensor) -> Result<()> {
    let rows = |t: &Tensor| t.slice(0, 0..3)?.cast(DType::I64)?.to_vec::<i64>();
    let (tokens, targets, predicted) =
        (rows(&batch.tokens)?, rows(&batch.targets)?, rows(predicted)?);
    for row in 0..3 {
        let places = (row * LENGTH..(row + 1) * LENGTH).filter(|&i| tokens[i] != i64::from(PAD));
        let text: Vec<String> = places
            .filter(|&i| tokens[i] != i64::from(START) && tokens[i] != i64::from(END))
            .map(|i| {
                if targets[i] == IGNORE_INDEX {
                    words[tokens[i] as usize].to_string()
                } else {
                    format!("[{}]", words[predicted[i] as usize])
                }
            })
            .collect();
        println!("  {}", text.join(" "));
    }
    Ok(())
}
