//! Every constructor and every forward pass of a layer with bad arguments: the error names this
//! file, the value, the accepted values, and a cure.

use crate::common;
use crate::common::device;
use teeny_core::{DType, Result, Tensor};
use teeny_nn::attention::{
    AttentionOptions, KvCache, MultiheadAttentionOptions, Rope, RopeOptions,
};
use teeny_nn::conv::{Conv2dOptions, ConvTranspose1d, ConvTranspose2d, ConvTranspose2dOptions};
use teeny_nn::data::{Corpus, DataLoader, digits, generated, idx, mnist};
use teeny_nn::norm::{
    BatchNormOptions, GroupNorm, GroupNormOptions, InstanceNorm, InstanceNormOptions,
    LayerNormOptions, RmsNorm,
};
use teeny_nn::optim::{Ema, Muon, Sgd, clip_grad_norm, clip_grad_value};
use teeny_nn::pool::AdaptiveAvgPool2d;
use teeny_nn::recurrent::{GruCell, LstmCell, RecurrentOptions, RnnCell};
use teeny_nn::transformer::{TransformerConfig, TransformerDecoderLayer, TransformerEncoderLayer};
use teeny_nn::*;
use teeny_nn::{Conv1d, Conv2d, MaxPool2d};
use teeny_text::Names;
use teeny_text::{Bpe, CharTokenizer};

/// The error of an expression, which must name this line.
macro_rules! mistakes {
    ($($make:expr => $value:expr, $accepted:expr;)*) => {
        [$({
            let line = line!();
            let error = ($make).map(|_| ()).expect_err(stringify!($make));
            (stringify!($make), format!("{}:{}", file!(), line), error, $value, $accepted)
        }),*]
    };
}

/// Checks that the text of each error has its file, the wrong value, the accepted values, and a
/// line of help.
fn check(
    all: impl IntoIterator<Item = (&'static str, String, teeny_core::Error, &'static str, &'static str)>,
) {
    let mut wrong = Vec::new();
    for (made, place, error, value, accepted) in all {
        let text = error.to_string();
        // all lines of a macro call are reported as its first one, so only the file is checked
        let here = place.rsplit_once(':').map_or(place.as_str(), |(file, _)| file);
        let missing: Vec<&str> = [
            (text.lines().next().unwrap_or_default().contains(here), "this file in the first line"),
            (text.contains(value), value),
            (text.contains(accepted), accepted),
            (error.has_help(), "a line of help"),
        ]
        .into_iter()
        .filter_map(|(there, what)| (!there).then_some(what))
        .collect();
        if !missing.is_empty() {
            wrong.push(format!("{made}\n  lacks {missing:?}\n  {text}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

const HUGE: usize = 1 << 40;
const TOO_MANY: usize = 1 << 62;

#[test]
fn constructors_of_layers() {
    let store = Store::new(device());
    let at = |name: &str| store.at(name);
    for name in ["taken", "x"] {
        store.at(name).param("weight", 2, Init::ZEROS).unwrap();
    }
    let taken = at("taken");
    let conv = Conv2dOptions::new;
    let batch = |eps, momentum| BatchNormOptions::new().with_eps(eps).with_momentum(Some(momentum));
    let instance = InstanceNormOptions::new().with_affine(true);
    let group = GroupNormOptions::new().with_affine(false);
    let heads = MultiheadAttentionOptions::new;
    let config =
        |n_embd, n_head, dropout| TransformerConfig::new(n_embd, n_head, 4).with_dropout(dropout);
    let gpt =
        |n_head, n_embd, dropout| GptConfig::new(5, 4, 1, n_head, n_embd).with_dropout(dropout);
    let recurrent =
        |layers, dropout| RecurrentOptions::new().with_num_layers(layers).with_dropout(dropout);
    let (qkv, out) =
        (Linear::new(&at("qkv"), 4, 11).unwrap(), Linear::new(&at("out"), 4, 4).unwrap());
    check(mistakes! {
        Linear::new(&taken, 3, 2) => "\"taken.weight\"", "its own path";
        Linear::with_options(&taken, 3, 2, LinearOptions::new().with_bias(false)) => "\"taken.weight\"", "its own path";
        Linear::with_options(&taken, 3, 2, LinearOptions::new().with_weight_init(Init::ZEROS).with_bias(false)) => "\"taken.weight\"", "its own path";
        Linear::new(&at("l"), TOO_MANY, 2) => "4611686018427387904", "memory can hold";
        Linear::new(&at("l"), HUGE, 2) => "1099511627776", "";
        Conv1d::new(&taken, 3, 2, 3) => "\"taken.weight\"", "its own path";
        Conv2d::new(&at("c"), 3, 2, 0) => "[0, 0]", "at least 1";
        Conv2d::with_options(&at("c"), 3, 2, 3, conv().with_groups(2)) => "2 groups", "divide both";
        Conv2d::with_options(&at("c"), 3, 2, 3, conv().with_groups(0)) => "0 groups", "at least 1";
        Conv2d::with_options(&at("c"), 3, 2, 3, conv().with_dilation([1, 0])) => "[1, 0]", "at least 1";
        Conv2d::with_options(&at("c"), 3, 2, 3, conv().with_stride(0)) => "[0, 0]", "at least 1";
        Conv2d::with_options(&at("c"), HUGE, HUGE, 3, conv()) => "1099511627776", "memory can hold";
        ConvTranspose2d::new(&taken, 3, 2, 3) => "\"taken.weight\"", "its own path";
        ConvTranspose1d::new(&at("c"), 3, 2, 0) => "[0]", "at least 1";
        ConvTranspose2d::with_options(&at("c"), 3, 2, 3, ConvTranspose2dOptions::new().with_groups(3)) => "3 groups", "divide both";
        Dropout::new(&store.root(), 1.5) => "1.5", "0..=1";
        Dropout::new(&store.root(), f64::NAN) => "NaN", "0..=1";
        Embedding::new(&taken, 3, 2) => "\"taken.weight\"", "its own path";
        Embedding::new(&at("e"), HUGE, 1024) => "1099511627776", "";
        Embedding::with_options(&at("e"), TOO_MANY, 2, EmbeddingOptions::new().with_init(Init::GPT2)) => "4611686018427387904", "memory can hold";
        Embedding::with_options(&at("p"), 3, 2, EmbeddingOptions::new().with_padding_idx(3)) => "padding_idx is 3", "0..3";
        PRelu::new(&taken) => "\"taken.weight\"", "its own path";
        PRelu::with_options(&at("a"), PReluOptions::new().with_num_parameters(0)) => "num_parameters is 0", "at least 1";
        PRelu::with_options(&at("a"), PReluOptions::new().with_num_parameters(TOO_MANY)) => "4611686018427387904", "memory can hold";
        PRelu::with_options(&at("a"), PReluOptions::new().with_init(Init::TORCH)) => "(1,)", "(out, in, ..)";
        BatchNorm::new(&taken, 2) => "\"taken.weight\"", "its own path";
        BatchNorm::with_options(&taken, 2, BatchNormOptions::new().with_channels_last(true)) => "\"taken.weight\"", "its own path";
        BatchNorm::with_options(&at("b"), 2, batch(-1.0, 0.1)) => "-1", "0 or more";
        BatchNorm::with_options(&at("b"), 2, batch(1e-5, 2.0)) => "2", "0..=1";
        InstanceNorm::with_options(&taken, 2, instance) => "\"taken.weight\"", "its own path";
        InstanceNorm::with_options(&at("i"), 2, instance.with_eps(f64::NAN)) => "NaN", "0 or more";
        GroupNorm::new(&at("g"), 3, 8) => "3 groups", "divide the number of channels";
        GroupNorm::with_options(&at("g"), 0, 8, group) => "0 groups", "at least 1";
        GroupNorm::new(&taken, 2, 8) => "\"taken.weight\"", "its own path";
        LayerNorm::new(&taken, 2) => "\"taken.weight\"", "its own path";
        LayerNorm::with_options(&taken, 2, LayerNormOptions::new().with_bias(false)) => "\"taken.weight\"", "its own path";
        LayerNorm::with_options(&at("n"), 2, LayerNormOptions::new().with_eps(-1.0)) => "-1", "0 or more";
        LayerNorm::new(&at("n"), ()) => "()", "at least one axis";
        RmsNorm::new(&taken, 2) => "\"taken.weight\"", "its own path";
        RmsNorm::new(&at("n"), ()) => "()", "at least one axis";
        MultiheadAttention::new(&at("m"), 10, 3) => "n_embd is 10, n_head 3", "multiple";
        MultiheadAttention::with_options(&at("m"), 8, 4, heads().with_n_kv_head(3)) => "n_kv_head 3", "multiple";
        MultiheadAttention::with_options(&at("m"), 8, 0, heads().with_n_kv_head(1)) => "n_head 0", "none is 0";
        MultiheadAttention::from_linear(&store.root(), qkv, out, 2, heads()) => "(11, 4)", "(12, 4)";
        MultiheadAttention::with_options(&at("m"), 4, 2, heads().with_dropout(-0.5)) => "-0.5", "0..=1";
        Rope::new(7, 16, store.device()) => "head size is 7", "even";
        Rope::with_options(8, 16, RopeOptions::new().with_base(0.0), store.device()) => "the base is 0", "positive";
        Rnn::new(&at("r"), 3, 0) => "0 hidden", "at least 1";
        Gru::with_options(&at("r"), 3, 2, recurrent(0, 0.0)) => "0 layers", "at least 1";
        Lstm::with_options(&at("r"), 3, 2, recurrent(2, 7.0)) => "7", "0..=1";
        Lstm::new(&at("r"), 3, TOO_MANY) => "shape (9223372036854775807, 3)", "memory can hold";
        RnnCell::new(&at("r"), 3, 0) => "hidden is 0", "at least 1";
        GruCell::new(&at("r"), 3, 0) => "hidden is 0", "at least 1";
        LstmCell::new(&at("r"), 3, 0) => "hidden is 0", "at least 1";
        TransformerEncoderLayer::new(&at("t"), config(10, 3, 0.0)) => "n_embd is 10, n_head 3", "multiple";
        TransformerEncoderLayer::new(&at("t"), config(4, 2, 1.1)) => "1.1", "0..=1";
        TransformerDecoderLayer::new(&at("t"), config(10, 3, 0.0)) => "n_embd is 10, n_head 3", "multiple";
        Gpt::new(&at("gpt"), gpt(3, 8, 0.0)) => "n_head = 3 does not divide n_embd = 8", "multiple";
        Gpt::new(&at("gpt"), gpt(2, 8, -1.0)) => "-1", "0..=1";
        taken.param("weight", 2, Init::ZEROS) => "\"taken.weight\"", "its own path";
        taken.buffer("weight", 2, Init::ZEROS) => "\"taken.weight\"", "its own path";
        taken.buffer_as("weight", 2, Init::ZEROS, DType::I64) => "\"taken.weight\"", "its own path";
        at("n").param("w", 2, Init::TORCH) => "(2,)", "(out, in, ..)";
        store.get("nobody") => "\"nobody\"", "store.all()";
        store.get("x.weight").and_then(|p| p.set(&Tensor::zeros(3, DType::F32, store.device())?)) => "(3,)", "(2,)";
    });
    // failed constructors have left no parameters
    let left: Vec<String> = store
        .all()
        .iter()
        .map(|p| p.name().to_string())
        .filter(|n| {
            !["taken.", "x.", "qkv.", "out.", "heads.", "p."]
                .iter()
                .any(|known| n.starts_with(known))
        })
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn constructors_of_everything_else() {
    let store = Store::new(device());
    let bias = store.root().param("bias", 3, Init::ZEROS).unwrap();
    let all = || store.trainable();
    let data = digits::load().unwrap();
    let images = |sizes: &[usize], n: usize| idx::Idx { sizes: sizes.to_vec(), values: vec![0; n] };
    let corpus = Corpus::new(&[1, 2, 3], store.device()).unwrap();
    let names = Names::parse("emma\nolivia").unwrap();
    let gradients = |f: &dyn Fn(&mut teeny_autograd::Gradients) -> Result<()>| {
        let store = Store::new(common::autograd());
        let loss = store.root().param("w", 2, Init::ONES)?.value().sum_all()?;
        f(&mut teeny_autograd::Grad::backward(&loss)?)
    };
    check(mistakes! {
        DataLoader::new(data.train.on(store.device()), 0) => "batches of 0", "at least 1";
        DataLoader::new(mnist::Images::new(images(&[0, 2, 2], 0), images(&[0], 0)).unwrap().on(store.device()), 4) => "0 items", "at least 1";
        mnist::Images::new(images(&[4], 4), images(&[4], 4)) => "[4]", "[count, height, width]";
        mnist::Images::new(images(&[2, 1, 1], 2), images(&[3], 3)) => "[3]", "[2]";
        Corpus::new(&[u32::MAX], store.device()) => "4294967295", "2147483647";
        corpus.split(1.5) => "1.5", "0..=1";
        corpus.batch(2, 3, teeny_core::Key { seed: 1, draw: 0 }) => "3 tokens", "4";
        corpus.windows(0) => "0", "at least one";
        Names::parse("\n\n") => "0 names", "one on each line";
        Names::parse("a.b") => "\"a.b\"", "without full stops";
        names.windows(0, store.device()) => "0", "at least one";
        names.sequences(3, store.device()) => "3", "longest";
        generated::logistic(5, &[], 1) => "got none", "at least one";
        generated::poisson(5, &[], 1) => "got none", "at least one";
        generated::moons(5, 0.1, 1).split(6) => "6", "0..=5";
        CharTokenizer::new([]) => "0 characters", "at least one";
        CharTokenizer::new(['a', 'a']) => "'a'", "each character once";
        CharTokenizer::of("") => "0 characters", "at least one";
        Bpe::train("text", 255) => "255", "256";
        Bpe::train("text", 256).and_then(|b| b.with_specials(&[""])) => "\"\"", "once";
        Ema::new(all(), 1.5) => "1.5", "0..=1";
        Muon::new(vec![bias], 0.1) => "bias", "p.value().ndim() == 2";
        gradients(&|g| clip_grad_norm(g, &[], 0.0).map(|_| ())) => "0", "above 0";
        gradients(&|g| clip_grad_value(g, &[], -1.0)) => "-1", "0 or more";
        optim::Optimizer::step_by(&mut Sgd::new(all(), 0.1).nesterov(true), &mut |p| Ok(p.value())) => "0 and 0", ".momentum(0.9)";
        optim::Optimizer::step_by(&mut Sgd::new(all(), 0.1), &mut |p| p.value().reshape((1, 3))) => "(1, 3)", "(3,)";
    });
}

#[test]
fn forward_passes() {
    let store = Store::new(device());
    let at = |name: &str| store.at(name);
    let x = |sizes: &[usize]| Tensor::ones(sizes, DType::F32, store.device()).unwrap();
    let ids = Tensor::new([[0i32, 5]], store.device()).unwrap(); // (1, 2)
    let linear = Linear::new(&at("linear"), 3, 2).unwrap();
    let conv = Conv2d::new(&at("conv"), 3, 2, 3).unwrap();
    let back = ConvTranspose2d::new(&at("back"), 3, 2, 3).unwrap();
    let batch = BatchNorm::new(&at("batch"), 3).unwrap();
    let instance = InstanceNorm::new(&at("instance"), 3).unwrap();
    let group = GroupNorm::new(&at("group"), 3, 3).unwrap();
    let layer = LayerNorm::new(&at("layer"), 3).unwrap();
    let rms = RmsNorm::new(&at("rms"), 3).unwrap();
    let embedding = Embedding::new(&at("embedding"), 4, 3).unwrap();
    let attention = MultiheadAttention::new(&at("attention"), 4, 2).unwrap();
    let rope = Rope::new(4, 3, store.device()).unwrap();
    let prelu =
        PRelu::with_options(&at("prelu"), PReluOptions::new().with_num_parameters(3)).unwrap();
    let rnn = Rnn::new(&at("rnn"), 3, 2).unwrap();
    let cell = LstmCell::new(&at("cell"), 3, 2).unwrap();
    let gpt = Gpt::new(&at("gpt"), GptConfig::new(6, 2, 1, 2, 4)).unwrap();
    let chain =
        Sequential::new().then(Activation::Relu).then(Linear::new(&at("chain"), 3, 2).unwrap());
    let mut cache = KvCache::new(3);
    check(mistakes! {
        linear.forward(&x(&[2, 4])) => "(2, 4)", "(.., 3)";
        conv.forward(&x(&[1, 4, 8, 8])) => "4", "3";
        back.forward(&x(&[1, 4, 8, 8])) => "4", "3";
        batch.forward(&x(&[2, 4])) => "(2, 4)", "(N, 3)";
        batch.forward(&x(&[1, 3])) => "(1, 3)", "more than one value";
        instance.forward(&x(&[2, 4, 5])) => "(2, 4, 5)", "(N, 3, ..)";
        group.forward(&x(&[2, 4])) => "(2, 4)", "(N, 3)";
        layer.forward(&x(&[2, 4])) => "(2, 4)", "(.., 3)";
        rms.forward(&x(&[2, 4])) => "(2, 4)", "(.., 3)";
        embedding.forward(&ids) => "5", "4";
        prelu.forward(&x(&[2, 4])) => "(2, 4)", "prelu.weight is (3,), so its input must be (N, 3)";
        prelu.forward(&x(&[3])) => "(3,)", "(N, 3, ..)";
        attention.forward(&x(&[1, 2, 5])) => "(1, 2, 5)", "(B, T, 4)";
        attention.attend_to(&x(&[1, 2, 4]), &x(&[1, 2, 4]), AttentionOptions::default().with_cache(&mut cache)) => "", "AttentionOptions::cache";
        rope.apply(&x(&[2, 6]), 0) => "head size is 6", "4";
        rope.apply(&x(&[2, 4]), 2) => "2..4", "larger capacity";
        rnn.forward(&x(&[2, 5, 4])) => "(2, 5, 4)", "3)";
        rnn.forward_with(&x(&[2, 5, 3]), Some(&x(&[1, 2, 9]))) => "(1, 2, 9)", "[1, 2, 2]";
        cell.step(&x(&[2, 3]), &x(&[2, 2]), &x(&[1, 2])) => "(1, 2)", "(2, 2)";
        gpt.logits(&ids.squeeze(0).unwrap()) => "(2,)", "(B, T)";
        gpt.logits(&Tensor::zeros((1, 3), DType::I32, store.device()).unwrap()) => "3 tokens", "2";
        gpt.next(&ids, &mut []) => "0 caches", "1 blocks";
        chain.forward(&x(&[2, 4])) => "(2, 4)", "(.., 3)";
        cache.append(&x(&[1, 2, 4, 4]), &x(&[1, 2, 4, 4])) => "4 more positions", "KvCache::new(capacity)";
        cache.append(&x(&[1, 2, 2, 4]), &x(&[1, 2, 1, 4])) => "(1, 2, 1, 4)", "the same B";
        MaxPool2d::new(9).forward(&x(&[1, 1, 4, 4])) => "4", "9";
        AdaptiveAvgPool2d::new([0, 2]).forward(&x(&[1, 1, 4, 4])) => "0", "";
    });
}
