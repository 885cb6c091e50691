//! Whole models and blocks of models: inference, or a training step of loss, gradients and SGD.
//!
//! `examples/compare/torch_models.py` has the same models. The loss is the mean square of the
//! output.

use super::Run;
use crate::bench::ops::integers;
use std::hint::black_box;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::attention::{AttentionOptions, MultiheadAttentionOptions, Rope};
use teeny_nn::conv::{Conv2dOptions, ConvTranspose2d, ConvTranspose2dOptions};
use teeny_nn::norm::RmsNorm;
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::pool::{AdaptiveAvgPool2d, MaxPool2dOptions};
use teeny_nn::transformer::{TransformerConfig, TransformerEncoderLayer};
use teeny_nn::{
    Activation, BatchNorm, Conv2d, Embedding, Flatten, LayerNorm, Linear, LinearOptions, Lstm,
    MaxPool2d, Module, MultiheadAttention, Path, Sequential, Store,
};

/// A model at a path.
type Build = fn(&Path) -> Result<Box<dyn Module>>;

/// Makes the run of a model on a device.
type Prepare<'a> = dyn Fn(&DeviceRef) -> Result<Box<Run<'static>>> + 'a;

/// Name, shape of the input, model.
const MODELS: &[(&str, &[usize], Build)] = &[
    ("resnet18", &[8, 3, 64, 64], resnet18),
    ("resnet18_224", &[1, 3, 224, 224], resnet18),
    ("resnet50", &[4, 3, 64, 64], resnet50),
    ("mobilenet_v2", &[4, 3, 96, 96], mobilenet_v2),
    ("convnext_block", &[4, 96, 28, 28], convnext_block),
    ("unet_block", &[2, 32, 64, 64], unet_block),
    ("bert_layer", &[4, 128, 768], bert_layer),
    ("vit_layer", &[2, 197, 768], vit_layer),
    ("llama_layer", &[2, 128, 576], llama_layer),
    ("lstm", &[32, 64, 64], lstm),
    ("dlrm", &[256, 13], dlrm),
];

/// Hands the line of JSON of each model and what makes its run to `visit`.
///
/// # Errors
/// If `visit` fails.
pub(super) fn each(
    grad: bool,
    only: &[String],
    mut visit: impl FnMut(usize, &str, &Prepare) -> Result<()>,
) -> Result<()> {
    for (number, &(name, shape, build)) in MODELS.iter().enumerate() {
        if !only.is_empty() && !only.iter().any(|one| one == name) {
            continue;
        }
        let input = format!(r#"{{"shape":{shape:?},"layout":"packed","fill":"normal"}}"#);
        let line = format!(
            r#""op":"model/{name}","dtype":"f32","grad":{grad},"inputs":[{input}],"args":[]"#
        );
        visit(number, &line, &|device| {
            if grad { training(device, shape, build) } else { inference(device, shape, build) }
        })?;
    }
    Ok(())
}

fn inference(device: &DeviceRef, shape: &[usize], build: Build) -> Result<Box<Run<'static>>> {
    let store = Store::new(device);
    let net = build(&store.root())?;
    store.set_training(false);
    let x = Tensor::randn(shape, DType::F32, device)?;
    let device = device.clone();
    Ok(Box::new(move || {
        let y = net.forward(&x)?;
        device.synchronize()?;
        drop(black_box(y));
        Ok(())
    }))
}

fn training(device: &DeviceRef, shape: &[usize], build: Build) -> Result<Box<Run<'static>>> {
    let store = Store::new(Autograd::new(device.clone()));
    let net = build(&store.root())?;
    let x = Tensor::randn(shape, DType::F32, store.device())?;
    let mut sgd = Sgd::new(store.trainable(), 1e-3);
    let device = device.clone();
    Ok(Box::new(move || {
        let loss = net.forward(&x)?.square()?.mean_all()?;
        sgd.step(&loss.into_backward()?)?;
        device.synchronize()
    }))
}

/// A convolution without bias, batch normalisation, and an optional activation.
fn conv_norm(
    path: &Path,
    channels: [usize; 2],
    size: usize,
    stride: usize,
    groups: usize,
    activation: Option<fn(&Tensor) -> Result<Tensor>>,
) -> Result<Sequential> {
    let options = Conv2dOptions::new()
        .with_stride(stride)
        .with_padding(size / 2)
        .with_groups(groups)
        .with_bias(false);
    let [inputs, outputs] = channels;
    let layers = Sequential::new()
        .then(Conv2d::with_options(&path.at("conv"), inputs, outputs, size, options)?)
        .then(BatchNorm::new(&path.at("norm"), outputs)?);
    Ok(match activation {
        Some(f) => layers.then(f),
        None => layers,
    })
}

/// `relu(f(x) + shortcut(x))`
fn residual_block(f: Sequential, shortcut: Option<Sequential>) -> impl Module {
    move |x: &Tensor| {
        let y = f.forward(x)?;
        match &shortcut {
            Some(shortcut) => y.add(&shortcut.forward(x)?)?.relu(),
            None => y.add(x)?.relu(),
        }
    }
}

/// The first layers of a residual network.
fn stem(path: &Path) -> Result<Sequential> {
    let pool = MaxPool2dOptions::new().with_stride(2).with_padding(1);
    Ok(Sequential::new()
        .then(conv_norm(&path.at("stem"), [3, 64], 7, 2, 1, Some(Tensor::relu))?)
        .then(MaxPool2d::with_options(3, pool)))
}

/// (N, 3, H, W) → (N, 1000). He et al. 2016, arXiv:1512.03385.
fn resnet18(path: &Path) -> Result<Box<dyn Module>> {
    let (mut net, mut inputs) = (stem(path)?, 64);
    for (stage, outputs) in [64, 128, 256, 512].into_iter().enumerate() {
        for block in 0..2 {
            let at = path.at(format!("stage{stage}.{block}"));
            let stride = if stage > 0 && block == 0 { 2 } else { 1 };
            let relu: Option<fn(&Tensor) -> Result<Tensor>> = Some(Tensor::relu);
            let f = conv_norm(&at.at("conv1"), [inputs, outputs], 3, stride, 1, relu)?
                .then(conv_norm(&at.at("conv2"), [outputs, outputs], 3, 1, 1, None)?);
            let shortcut = (inputs != outputs)
                .then(|| conv_norm(&at.at("shortcut"), [inputs, outputs], 1, stride, 1, None))
                .transpose()?;
            net = net.then(residual_block(f, shortcut));
            inputs = outputs;
        }
    }
    classifier(path, net, inputs)
}

/// (N, 3, H, W) → (N, 1000), with bottlenecks.
fn resnet50(path: &Path) -> Result<Box<dyn Module>> {
    let (mut net, mut inputs) = (stem(path)?, 64);
    for (stage, (width, blocks)) in [(64, 3), (128, 4), (256, 6), (512, 3)].into_iter().enumerate()
    {
        for block in 0..blocks {
            let at = path.at(format!("stage{stage}.{block}"));
            let (stride, outputs) = (if stage > 0 && block == 0 { 2 } else { 1 }, 4 * width);
            let relu: Option<fn(&Tensor) -> Result<Tensor>> = Some(Tensor::relu);
            let f = conv_norm(&at.at("conv1"), [inputs, width], 1, 1, 1, relu)?
                .then(conv_norm(&at.at("conv2"), [width, width], 3, stride, 1, relu)?)
                .then(conv_norm(&at.at("conv3"), [width, outputs], 1, 1, 1, None)?);
            let shortcut = (inputs != outputs)
                .then(|| conv_norm(&at.at("shortcut"), [inputs, outputs], 1, stride, 1, None))
                .transpose()?;
            net = net.then(residual_block(f, shortcut));
            inputs = outputs;
        }
    }
    classifier(path, net, inputs)
}

/// The mean of each channel, and a linear layer to 1000 classes.
fn classifier(path: &Path, net: Sequential, inputs: usize) -> Result<Box<dyn Module>> {
    Ok(Box::new(net.then(AdaptiveAvgPool2d::new(1)).then(Flatten).then(Linear::new(
        &path.at("fc"),
        inputs,
        1000,
    )?)))
}

/// (N, 3, H, W) → (N, 1000). Sandler et al. 2018, arXiv:1801.04381.
fn mobilenet_v2(path: &Path) -> Result<Box<dyn Module>> {
    let relu6: Option<fn(&Tensor) -> Result<Tensor>> = Some(Tensor::relu6);
    let mut net = Sequential::new().then(conv_norm(&path.at("stem"), [3, 32], 3, 2, 1, relu6)?);
    let mut inputs = 32;
    // expansion, channels, blocks, stride of the first
    let stages = [
        (1, 16, 1, 1),
        (6, 24, 2, 2),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    ];
    for (stage, (expansion, outputs, blocks, first)) in stages.into_iter().enumerate() {
        for block in 0..blocks {
            let at = path.at(format!("stage{stage}.{block}"));
            let (stride, wide) = (if block == 0 { first } else { 1 }, expansion * inputs);
            let mut f = Sequential::new();
            if expansion > 1 {
                f = f.then(conv_norm(&at.at("expand"), [inputs, wide], 1, 1, 1, relu6)?);
            }
            let f = f
                .then(conv_norm(&at.at("depthwise"), [wide, wide], 3, stride, wide, relu6)?)
                .then(conv_norm(&at.at("project"), [wide, outputs], 1, 1, 1, None)?);
            let add = stride == 1 && inputs == outputs;
            net = net.then(move |x: &Tensor| {
                let y = f.forward(x)?;
                if add { y.add(x) } else { Ok(y) }
            });
            inputs = outputs;
        }
    }
    let net = net.then(conv_norm(&path.at("head"), [inputs, 1280], 1, 1, 1, relu6)?);
    classifier(path, net, 1280)
}

/// (N, 96, H, W) → the same. Liu et al. 2022, arXiv:2201.03545.
fn convnext_block(path: &Path) -> Result<Box<dyn Module>> {
    let options = Conv2dOptions::new().with_padding(3).with_groups(96);
    let depthwise = Conv2d::with_options(&path.at("depthwise"), 96, 96, 7, options)?;
    let f = Sequential::new()
        .then(LayerNorm::new(&path.at("norm"), 96)?)
        .then(Linear::new(&path.at("fc1"), 96, 384)?)
        .then(Activation::Gelu)
        .then(Linear::new(&path.at("fc2"), 384, 96)?);
    Ok(Box::new(move |x: &Tensor| {
        let h = depthwise.forward(x)?.permute([0, 2, 3, 1])?; // (N, H, W, C)
        x.add(&f.forward(&h)?.permute([0, 3, 1, 2])?)
    }))
}

/// (N, 32, H, W) → the same: two convolutions down, two up, and a join. Ronneberger et al. 2015,
/// arXiv:1505.04597.
fn unet_block(path: &Path) -> Result<Box<dyn Module>> {
    let double = |name: &str, inputs, outputs| -> Result<Sequential> {
        let (at, relu) = (path.at(name), Some(Tensor::relu as fn(&Tensor) -> Result<Tensor>));
        Ok(conv_norm(&at.at("0"), [inputs, outputs], 3, 1, 1, relu)?.then(conv_norm(
            &at.at("1"),
            [outputs, outputs],
            3,
            1,
            1,
            relu,
        )?))
    };
    let (first, down, up) =
        (double("first", 32, 32)?, double("down", 32, 64)?, double("up", 64, 32)?);
    let pool = MaxPool2d::new(2);
    let options = ConvTranspose2dOptions::new().with_stride(2);
    let transposed = ConvTranspose2d::with_options(&path.at("transposed"), 64, 32, 2, options)?;
    Ok(Box::new(move |x: &Tensor| {
        let left = first.forward(x)?; // (N, 32, H, W)
        let below = down.forward(&pool.forward(&left)?)?; // (N, 64, H/2, W/2)
        up.forward(&Tensor::cat(&[&left, &transposed.forward(&below)?], 1)?)
    }))
}

fn bert_layer(path: &Path) -> Result<Box<dyn Module>> {
    let config = TransformerConfig::new(768, 12, 3072)
        .with_activation(Activation::Gelu)
        .with_dropout(0.0)
        .with_norm_first(false);
    Ok(Box::new(TransformerEncoderLayer::new(path, config)?))
}

fn vit_layer(path: &Path) -> Result<Box<dyn Module>> {
    let config = TransformerConfig::new(768, 12, 3072)
        .with_activation(Activation::Gelu)
        .with_dropout(0.0)
        .with_norm_first(true);
    Ok(Box::new(TransformerEncoderLayer::new(path, config)?))
}

/// (B, T, 576) → the same: 9 heads, 3 of keys and values, rotary positions, SwiGLU.
fn llama_layer(path: &Path) -> Result<Box<dyn Module>> {
    let plain = || LinearOptions::new().with_bias(false);
    let options =
        MultiheadAttentionOptions::new().with_n_kv_head(3).with_bias(false).with_dropout(0.0);
    let attention = MultiheadAttention::with_options(&path.at("attn"), 576, 9, options)?;
    let rope = Rope::new(64, 2048, path.store().device())?;
    let norms = [RmsNorm::new(&path.at("norm1"), 576)?, RmsNorm::new(&path.at("norm2"), 576)?];
    let gate = Linear::with_options(&path.at("gate"), 576, 1536, plain())?;
    let up = Linear::with_options(&path.at("up"), 576, 1536, plain())?;
    let down = Linear::with_options(&path.at("down"), 1536, 576, plain())?;
    Ok(Box::new(move |x: &Tensor| {
        let options = AttentionOptions::causal().with_rope(&rope);
        let x = x.add(&attention.attend(&norms[0].forward(x)?, options)?)?;
        let h = norms[1].forward(&x)?;
        x.add(&down.forward(&gate.forward(&h)?.silu()?.mul(&up.forward(&h)?)?)?)
    }))
}

/// (B, T, 64) → (B, T, 256).
fn lstm(path: &Path) -> Result<Box<dyn Module>> {
    Ok(Box::new(Lstm::new(path, 64, 256)?))
}

/// Click prediction from 13 numbers and 8 categories, (B, 13) → (B, 1): embeddings, inner products
/// of all pairs. Naumov et al. 2019, arXiv:1906.00091.
fn dlrm(path: &Path) -> Result<Box<dyn Module>> {
    const TABLES: usize = 8;
    let tables = (0..TABLES)
        .map(|i| Embedding::new(&path.at(format!("table{i}")), 10_000, 32))
        .collect::<Result<Vec<_>>>()?;
    let perceptron = |name: &str, sizes: &[usize]| -> Result<Sequential> {
        let mut net = Sequential::new();
        for (i, pair) in sizes.windows(2).enumerate() {
            let layer = Linear::new(&path.at(format!("{name}{i}")), pair[0], pair[1])?;
            net = net.then(layer);
            if i + 2 < sizes.len() {
                net = net.then(Activation::Relu);
            }
        }
        Ok(net)
    };
    let bottom = perceptron("bottom", &[13, 128, 32])?;
    let n = TABLES + 1;
    let top = perceptron("top", &[32 + n * n, 128, 64, 1])?;
    let ids = integers(&[TABLES, 256], 10_000, path.store().device())?;
    Ok(Box::new(move |x: &Tensor| {
        let dense = bottom.forward(x)?; // (B, 32)
        let mut features = vec![dense.clone()];
        for (i, table) in tables.iter().enumerate() {
            features.push(table.forward(&ids.at(0, i as isize)?)?); // (B, 32)
        }
        let all = Tensor::stack(&features, 1)?; // (B, 9, 32)
        let products = all.matmul(&all.t()?)?.flatten(1, 2)?; // (B, 81)
        top.forward(&Tensor::cat(&[&dense, &products], 1)?)
    }))
}
