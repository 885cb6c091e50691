//! [`Store::summary`]: the layers of a model with shapes, parameters and costs.

use crate::common::device;
use teeny_core::context::enter;
use teeny_core::wrappers::Trace;
use teeny_core::{DType, DeviceRef, Lazy, QuantType, Result, Tensor};
use teeny_nn::conv::{Conv1d, Conv2d, Conv2dOptions, ConvTranspose2d, ConvTranspose2dOptions};
use teeny_nn::norm::{BatchNorm, GroupNorm, RmsNorm};
use teeny_nn::pool::MaxPool2d;
use teeny_nn::recurrent::{RecurrentOptions, SequenceLayout};
use teeny_nn::{
    Activation, Autograd, Dropout, Embedding, Flatten, Gpt, GptConfig, Gru, LayerNorm, Linear,
    Lstm, Module, MultiheadAttention, PRelu, Param, Path, Rnn, Sequential, Store,
};

/// A layer, the shape of its input, and the shape of its output.
type Case = (Box<dyn Module>, Vec<usize>, Vec<usize>);

fn layers(store: &Store) -> Result<Vec<Case>> {
    let options = RecurrentOptions::new().with_num_layers(2).with_bidirectional(true);
    let time_first = options.with_layout(SequenceLayout::TimeFirst);
    let at = |name: &str| store.at(name);
    Ok(vec![
        (Box::new(Linear::new(&at("linear"), 8, 5)?), vec![2, 3, 8], vec![2, 3, 5]),
        (Box::new(Conv1d::new(&at("conv1d"), 4, 6, 3)?), vec![2, 4, 9], vec![2, 6, 7]),
        (Box::new(Conv2d::new(&at("conv2d"), 3, 6, 3)?), vec![2, 3, 9, 8], vec![2, 6, 7, 6]),
        (Box::new(BatchNorm::new(&at("batch"), 3)?), vec![2, 3, 5, 4], vec![2, 3, 5, 4]),
        (Box::new(GroupNorm::new(&at("group"), 2, 4)?), vec![2, 4, 5], vec![2, 4, 5]),
        (Box::new(LayerNorm::new(&at("layer"), 8)?), vec![2, 3, 8], vec![2, 3, 8]),
        (Box::new(RmsNorm::new(&at("rms"), 8)?), vec![2, 3, 8], vec![2, 3, 8]),
        (Box::new(PRelu::new(&at("prelu"))?), vec![2, 3], vec![2, 3]),
        (Box::new(Rnn::new(&at("rnn"), 4, 6)?), vec![2, 5, 4], vec![2, 5, 6]),
        (Box::new(Gru::with_options(&at("gru"), 4, 6, options)?), vec![2, 5, 4], vec![2, 5, 12]),
        (Box::new(Lstm::with_options(&at("lstm"), 4, 6, options)?), vec![2, 5, 4], vec![2, 5, 12]),
        (
            Box::new(Lstm::with_options(&at("lstm_t"), 4, 6, time_first)?),
            vec![5, 2, 4],
            vec![5, 2, 12],
        ),
        (Box::new(MultiheadAttention::new(&at("mha"), 8, 2)?), vec![2, 5, 8], vec![2, 5, 8]),
    ])
}

#[test]
fn each_layer_is_a_row_with_its_shape_parameters_and_cost() -> Result<()> {
    let store = Store::new(device());
    for (layer, input, output) in layers(&store)? {
        let name = layer.describe();
        let x = Tensor::randn(&input, DType::F32, store.device())?;
        let summary = store.summary(|| layer.forward(&x))?;
        let row = &summary.layers[0];
        assert_eq!(row.depth, 0, "{name}");
        assert_eq!(row.output.unwrap()[..], output, "{name}");
        let own = store.at(&row.path).all();
        let trained = own.iter().filter(|param| param.is_trainable());
        let size: usize = trained.map(|param| param.shape().numel()).sum();
        assert!(size > 0, "{name}");
        assert_eq!((row.params, summary.params, summary.trainable), (size, size, size), "{name}");
        let calls = summary.layers.iter().filter(|row| row.depth == 0);
        assert_eq!((calls.count(), row.flops), (1, summary.flops), "{name}: {summary}");
        assert!(!row.is_shared && row.flops > 0, "{name}");
    }
    Ok(())
}

#[test]
fn costs_are_those_of_a_trace() -> Result<()> {
    let trace = Trace::new(device());
    let store = Store::new(&trace);
    for (layer, input, _) in layers(&store)? {
        let x = Tensor::randn(&input, DType::F32, store.device())?;
        trace.clear();
        let _ = store.evaluate(|| layer.forward(&x))?;
        let traced: u64 = trace.spans().iter().map(|span| span.flops).sum();
        let summary = store.summary(|| layer.forward(&x))?;
        assert_eq!(summary.flops, traced, "{}", layer.describe());
    }
    Ok(())
}

fn digits(store: &Store) -> Result<Sequential> {
    Ok(Sequential::new()
        .then(Conv2d::new(&store.at("conv"), 1, 4, 3)?)
        .then(BatchNorm::new(&store.at("norm"), 4)?)
        .then(Activation::Relu)
        .then(MaxPool2d::new(2))
        .then(Flatten)
        .then(Dropout::new(&store.root(), 0.5)?)
        .then(Linear::new(&store.at("head"), 4 * 3 * 3, 10)?))
}

#[test]
fn a_chain_shows_all_of_its_modules_on_each_device() -> Result<()> {
    let cpu = device();
    let devices: [DeviceRef; 3] = [cpu.clone(), Autograd::new(&cpu), Lazy::new(&cpu)];
    for device in devices {
        let store = Store::new(&device);
        let model = digits(&store)?;
        let x = Tensor::randn((2, 1, 8, 8), DType::F32, &device)?;
        let summary = store.summary(|| model.forward(&x))?;
        let ops: Vec<&str> = summary.layers.iter().map(|row| row.op).collect();
        let expected = [
            "sequential",
            "conv2d",
            "batch_norm",
            "relu",
            "max_pool",
            "flatten",
            "dropout",
            "linear",
        ];
        assert_eq!(ops, expected, "{summary}");
        let paths: Vec<&str> = summary.layers.iter().map(|row| &row.path[..]).collect();
        assert_eq!(paths, ["", "conv", "norm", "", "", "", "", "head"]);
        let shapes = [5, 6].map(|i: usize| summary.layers[i].output.unwrap());
        assert_eq!([&shapes[0][..], &shapes[1][..]], [[2, 36], [2, 36]]);
        assert_eq!(summary.params, store.count());
        assert_eq!(summary.bytes, 4 * store.count());
        assert!(store.is_training() && summary.unused.is_empty());
    }
    Ok(())
}

#[test]
fn running_statistics_and_random_numbers_stay() -> Result<()> {
    let store = Store::new(device());
    let model = digits(&store)?;
    let x = Tensor::randn((2, 1, 8, 8), DType::F32, store.device())?;
    let values = || -> Result<Vec<Vec<f32>>> {
        store.all().iter().map(|p| p.value().cast(DType::F32)?.to_vec::<f32>()).collect()
    };
    let before = values()?;
    store.summary(|| model.forward(&x))?;
    assert_eq!(values()?, before);
    Ok(())
}

/// Two linear layers of one weight, and operations between them.
struct Tied {
    table: Embedding,
    scale: Param,
    own: Linear,
}

impl Tied {
    fn new(store: &Store) -> Result<Tied> {
        Ok(Tied {
            table: Embedding::new(&store.at("table"), 11, 8)?,
            scale: store.root().param("scale", 8, teeny_nn::Init::ONES)?,
            own: Linear::new(&store.at("block").at("own"), 8, 8)?,
        })
    }

    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let x = self.table.forward(ids)?; // (B, T, 8)
        let x = x.mul(self.scale.value())?.transpose(0, 1)?.transpose(0, 1)?;
        let x = self.own.forward(&x)?.add(&self.own.forward(&x)?)?.gelu()?;
        x.matmul(&self.table.weight.value().t()?) // (B, T, 11)
    }
}

#[test]
fn a_model_of_ones_own_shows_its_calls_shared_and_unused_parameters() -> Result<()> {
    let store = Store::new(Autograd::new(device()));
    let model = Tied::new(&store)?;
    Linear::new(&store.at("forgotten"), 3, 2)?;
    model.own.weight.set_trainable(false)?;
    let ids = Tensor::new([[1i64, 2, 3], [4, 5, 6]], store.device())?; // (2, 3)
    let summary = store.summary(|| model.forward(&ids))?;
    let rows: Vec<_> = summary
        .layers
        .iter()
        .map(|row| (&row.path[..], row.op, row.params, row.is_shared))
        .collect();
    let expected = [
        ("table", "embedding", 88, false),
        ("scale", "mul", 8, false),
        ("block.own", "linear", 72, false),
        ("block.own", "linear", 0, true),
        ("", "add", 0, false),
        ("", "gelu", 0, false),
        ("table", "matmul", 0, true),
    ];
    assert_eq!(rows, expected, "{summary}");
    assert_eq!((summary.params, summary.trainable), (88 + 8 + 72, 88 + 8 + 8));
    assert_eq!(summary.unused, ["forgotten.weight", "forgotten.bias"]);
    let text = summary.to_string();
    assert!(
        text.contains("104 trainable") && text.contains("not read: forgotten.weight"),
        "{text}"
    );
    assert!(text.contains("shared"), "{text}");
    Ok(())
}

#[test]
fn a_gpt_shows_its_blocks() -> Result<()> {
    let store = Store::new(device());
    let config = GptConfig::new(13, 8, 2, 2, 16);
    let gpt = Gpt::new(&store.root(), config)?;
    let ids = Tensor::new([[1i64, 2, 3]], store.device())?; // (1, 3)
    let summary = store.summary(|| gpt.logits(&ids))?;
    assert_eq!(summary.params, store.count(), "{summary}");
    assert!(summary.unused.is_empty(), "{summary}");
    let row = |path: &str| summary.layers.iter().find(|row| row.path == path).unwrap();
    assert!(row("h.1.attn").is_group, "{summary}");
    assert_eq!(row("h.1.attn.c_attn").op, "linear");
    assert_eq!(row("h.1.mlp.c_fc").output.unwrap()[..], [1, 3, 64]);
    let inner: usize =
        summary.layers.iter().filter(|row| !row.is_group).map(|row| row.params).sum();
    assert_eq!(inner, summary.params, "{summary}");
    Ok(())
}

#[test]
fn a_quantised_weight_counts_its_elements_and_its_bytes() -> Result<()> {
    let store = Store::new(device());
    let layer = Linear::new(&store.at("fc"), 64, 16)?;
    layer.weight.quantize(QuantType::Q8_0)?;
    let x = Tensor::randn((2, 64), DType::F32, store.device())?;
    let summary = store.summary(|| layer.forward(&x))?;
    assert_eq!((summary.params, summary.trainable), (64 * 16 + 16, 16));
    assert_eq!(summary.bytes, 16 * 2 * 34 + 16 * 4); // blocks of 32 in 34 bytes
    assert_eq!(summary.layers[0].op, "linear");
    Ok(())
}

#[test]
fn an_error_or_a_panic_leaves_the_mode_and_nothing_recorded() -> Result<()> {
    let store = Store::new(device());
    let model = digits(&store)?;
    let x = Tensor::randn((2, 3, 8, 8), DType::F32, store.device())?;
    let error = store.summary(|| model.forward(&x)).unwrap_err().to_string();
    assert!(error.contains("Conv2d(1 -> 4, 3x3)"), "{error}");
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        store.summary(|| -> Result<()> { panic!("in the model") })
    }));
    assert!(caught.is_err() && store.is_training());
    let x = Tensor::randn((2, 1, 8, 8), DType::F32, store.device())?;
    let inner = store.summary(|| store.summary(|| model.forward(&x)))?;
    assert_eq!(inner.params, store.count());
    assert_eq!(store.summary(|| model.forward(&x))?.layers.len(), 8);
    Ok(())
}

/// A convolution with normalisation and relu of the same size.
fn level(path: &Path, inputs: usize, outputs: usize) -> Result<Sequential> {
    let same = Conv2dOptions::new().with_padding(1);
    Ok(Sequential::new()
        .then(Conv2d::with_options(&path.at("conv"), inputs, outputs, 3, same)?)
        .then(BatchNorm::new(&path.at("norm"), outputs)?)
        .then(Activation::Relu))
}

#[test]
fn operations_show_what_they_are_inside_of() -> Result<()> {
    let store = Store::new(device());
    let down = [level(&store.at("down0"), 3, 4)?, level(&store.at("down1"), 4, 8)?];
    let two = ConvTranspose2dOptions::new().with_stride(2);
    let up = ConvTranspose2d::with_options(&store.at("up"), 8, 4, 2, two)?;
    let join = level(&store.at("join"), 8, 4)?;
    let head = Conv2d::new(&store.at("head"), 4, 2, 1)?;
    let x = Tensor::zeros((1, 3, 8, 8), DType::F32, store.device())?; // (1, 3, 8, 8)
    let summary = store.summary(|| {
        let _op = enter("unet");
        let high = down[0].forward(&x)?; // (1, 4, 8, 8)
        let low = down[1].forward(&MaxPool2d::new(2).forward(&high)?)?; // (1, 8, 4, 4)
        head.forward(&join.forward(&Tensor::cat(&[&high, &up.forward(&low)?], 1)?)?)
    })?;
    let text = summary.to_string();
    let lines: Vec<&str> =
        text.lines().skip(2).map(|line| line.split("  (").next().unwrap().trim_end()).collect();
    let expected = [
        "unet",
        "  sequential        down0",
        "    conv2d          down0.conv",
        "    batch_norm      down0.norm",
        "    relu",
        "  max_pool",
        "  sequential        down1",
        "    conv2d          down1.conv",
        "    batch_norm      down1.norm",
        "    relu",
        "  conv_transpose2d  up",
        "  sequential        join",
        "    conv2d          join.conv",
        "    batch_norm      join.norm",
        "    relu",
        "  conv2d            head",
    ];
    assert_eq!(lines[..16], expected, "{text}");
    Ok(())
}
