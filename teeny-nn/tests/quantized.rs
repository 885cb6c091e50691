//! Quantised weights in layers, stores, files and models.

use crate::common::*;
use teeny_autograd::{Autograd, Grad, no_grad};
use teeny_core::wrappers::{Span, Trace};
use teeny_core::{DType, DeviceRef, Lazy, QuantType, Result, Tensor, random};
use teeny_formats::{Mapping, SafeTensors};
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::state::Checkpoint;
use teeny_nn::transformer::{
    Encoder, EncoderConfig, EncoderInputs, Gpt, GptConfig, TransformerConfig,
};
use teeny_nn::{CachedLm, Embedding, LayerNorm, Linear, Module, Store};

fn randn(shape: &[usize], seed: u64, store: &Store) -> Tensor {
    random::with_seed(seed, || Tensor::randn(shape, DType::F32, store.device())).unwrap()
}

#[track_caller]
fn near(got: &Tensor, wanted: &Tensor, most: f32) {
    assert_eq!(got.shape(), wanted.shape());
    let apart = got.sub(wanted).unwrap().abs().unwrap().max_all().unwrap();
    let apart = apart.item::<f32>().unwrap();
    assert!(apart <= most, "{apart}");
}

#[test]
fn layers_compute_with_quantised_weights() -> Result<()> {
    let store = Store::new(device());
    let linear = random::with_seed(1, || Linear::new(&store.at("fc"), 256, 40))?;
    let table = random::with_seed(2, || Embedding::new(&store.at("wte"), 30, 64))?;
    let norm = LayerNorm::new(&store.at("norm"), 256)?;
    let x = randn(&[3, 256], 3, &store);
    let plain = linear.forward(&x)?;
    store.quantize(|param| QuantType::Q8_0.fitting(param.shape()[1]))?;
    assert_eq!(format!("{:?}", linear.weight), "fc.weight (40, 256) Q8_0");
    assert_eq!(format!("{:?}", table.weight), "wte.weight (30, 64) Q8_0");
    assert!(linear.bias.as_ref().unwrap().quantized().is_none());
    assert!(!linear.weight.is_trainable() && linear.bias.as_ref().unwrap().is_trainable());
    assert_eq!(linear.describe(), "Linear(256 -> 40)");
    let rough = linear.forward(&x)?;
    near(&rough, &plain, 0.05);
    assert!(rough.sub(&plain)?.abs()?.max_all()?.item::<f32>()? > 1e-5);
    let ids = Tensor::new([[3i32, 29], [0, 3]], store.device())?;
    let rows = table.forward(&ids)?;
    let wanted = table.weight.quantized().unwrap().dequantize()?.index_select(0, &ids)?;
    near(&rows, &wanted, 0.0);
    let outside = Tensor::new([30i32], store.device())?;
    let text = table.forward(&outside).unwrap_err().to_string();
    assert!(text.contains("wte.weight is (30, 64)"), "{text}");
    let text = linear.forward(&randn(&[3, 255], 3, &store)).unwrap_err().to_string();
    assert!(text.contains("fc.weight is (40, 256), so its input must be (.., 256)"), "{text}");

    store.dequantize()?;
    near(&linear.forward(&x)?, &rough, 0.05);
    assert_eq!(linear.weight.value().shape()[..], [40, 256]);
    assert!(!linear.weight.is_trainable());
    linear.weight.set_trainable(true)?;
    norm.forward(&x).map(drop)
}

#[test]
fn what_cannot_be_quantised_or_trained_is_refused() -> Result<()> {
    let store = Store::new(device());
    let linear = Linear::new(&store.at("fc"), 96, 8)?;
    let text = |result: Result<()>| result.unwrap_err().to_string();
    let bad = text(linear.bias.as_ref().unwrap().quantize(QuantType::Q8_0));
    assert!(bad.contains("\"fc.bias\" is not the weight of a linear layer"), "{bad}");
    let bad = text(linear.weight.quantize(QuantType::Q4K));
    assert!(bad.contains("rows of 96 elements") && bad.contains("fc.weight"), "{bad}");
    let before = linear.weight.value();
    let bad = text(store.quantize(|_| Some(QuantType::Q4K)));
    assert!(bad.contains("fc.weight"), "{bad}");
    assert!(linear.weight.quantized().is_none() && linear.weight.is_trainable());
    near(&linear.weight.value(), &before, 0.0);

    linear.weight.quantize(QuantType::Q4_0)?;
    let bad = text(linear.weight.set_trainable(true));
    assert!(bad.contains("\"fc.weight\" is quantised, and no gradient"), "{bad}");
    let bad = text(linear.weight.set(&before));
    assert!(bad.contains("fc.weight"), "{bad}");
    let bad = text(linear.weight.set(&Tensor::zeros(
        linear.weight.value().shape(),
        DType::F32,
        store.device(),
    )?));
    assert!(bad.contains("is quantised, (8, 96) Q4_0, the new value f32"), "{bad}");
    assert_eq!(format!("{:?}", linear.weight), "fc.weight (8, 96) Q4_0");
    let bad = store.save_as("/nowhere/model.safetensors", &Mapping::new()).unwrap_err().to_string();
    assert!(bad.contains("\"fc.weight\" is quantised"), "{bad}");
    Ok(())
}

/// The gradient of x equals the gradient with the dequantised weight, to second order.
#[test]
fn gradients_reach_the_input_of_a_quantised_layer() -> Result<()> {
    let device = autograd();
    let store = Store::new(&device);
    let linear = random::with_seed(4, || Linear::new(&store.at("fc"), 64, 24))?;
    let norm = LayerNorm::new(&store.at("norm"), 64)?;
    let x = randn(&[5, 64], 5, &store);
    linear.weight.quantize(QuantType::Q5_1)?;
    let grads = backward(&linear.forward(&norm.forward(&x)?)?);
    linear.weight.dequantize()?;
    let exact = backward(&linear.forward(&norm.forward(&x)?)?);
    for param in
        [norm.weight.as_ref(), norm.bias.as_ref(), linear.bias.as_ref()].into_iter().flatten()
    {
        let of = |grads: &teeny_autograd::Gradients| grads.get(&param.value()).unwrap().clone();
        near(&of(&grads), &of(&exact), 1e-4);
    }

    linear.weight.quantize(QuantType::Q8_0)?;
    let mut sgd = Sgd::new(store.trainable(), 0.1);
    let first = linear.forward(&norm.forward(&x)?)?.square()?.mean_all()?;
    sgd.step(&first.backward()?)?;
    let second = linear.forward(&norm.forward(&x)?)?.square()?.mean_all()?;
    assert!(second.item::<f32>()? < first.item::<f32>()?);
    Ok(())
}

/// The gradient of a large weight dequantises a few rows at a time.
#[test]
fn gradients_need_no_memory_for_a_whole_weight() -> Result<()> {
    let trace = Trace::new(device());
    let store = Store::new(Autograd::new(trace.clone()));
    let linear = random::with_seed(4, || Linear::new(&store.at("fc"), 64, 80_000))?;
    let norm = LayerNorm::new(&store.at("norm"), 64)?;
    linear.weight.quantize(QuantType::Q8_0)?;
    let x = randn(&[2, 64], 5, &store);
    let gradient = |largest: &mut u64| -> Result<Tensor> {
        let y = linear.forward(&norm.forward(&x)?)?.sum_all()?;
        trace.clear();
        let grads = y.backward()?;
        // of operands and results, without the blocks of the weight
        let blocks = (80_000 * 64 / 32 * 34) as u64;
        let bytes = |span: &Span| span.bytes - if span.op == "quant_rows" { blocks } else { 0 };
        *largest = trace.spans().iter().map(bytes).max().unwrap_or(0);
        Ok(grads.get(&norm.weight.as_ref().unwrap().value())?.clone())
    };
    let (mut panels, mut whole) = (0, 0);
    let first = gradient(&mut panels)?;
    linear.weight.dequantize()?;
    near(&first, &gradient(&mut whole)?, 1e-3);
    assert!(panels < 18_500_000 && whole > 4 * 5_120_000, "{panels} {whole}");
    Ok(())
}

/// A captured decoder reads the row of its position, also of a quantised table.
#[test]
fn captured_decoders_read_rows_of_quantised_positions() -> Result<()> {
    let device: DeviceRef = Autograd::new(Lazy::new(device()));
    let store = Store::new(&device);
    let gpt = random::with_seed(1, || Gpt::new(&store.root(), GptConfig::new(19, 32, 2, 2, 32)))?;
    store.set_training(false);
    store.get("wpe.weight")?.quantize(QuantType::Q8_0)?;
    let (mut decoder, mut caches) = (CachedLm::new(&gpt), gpt.caches());
    for position in 0..20 {
        let token = Tensor::new([[(position * 7) % 19]], &device)?;
        let wanted = no_grad(|| gpt.next(&token, &mut caches))?;
        near(&decoder.next(&token)?, &wanted, 0.0);
    }
    assert!(decoder.is_replaying());
    Ok(())
}

#[test]
fn files_keep_blocks_and_know_their_types() -> Result<()> {
    let make = |kind: Option<QuantType>, seed| -> Result<(Store, Linear)> {
        let store = Store::new(device());
        let linear = random::with_seed(seed, || Linear::new(&store.at("fc"), 64, 10))?;
        if let Some(kind) = kind {
            linear.weight.quantize(kind)?;
        }
        Ok((store, linear))
    };
    let x = randn(&[2, 64], 8, &Store::new(device()));
    let (store, linear) = make(Some(QuantType::Q4_0), 6)?;
    let on = |linear: &Linear| linear.forward(&x.to(linear.weight.value().device())?);
    let bytes = store.to_bytes()?;
    let file = SafeTensors::from_bytes(bytes.clone())?;
    assert_eq!(file.metadata()["quantized.fc.weight"], "(10, 64) Q4_0");
    let (same, other) = make(Some(QuantType::Q4_0), 7)?;
    same.load_bytes(bytes.clone())?;
    assert_eq!(on(&linear)?.to_vec::<f32>()?, on(&other)?.to_vec::<f32>()?);
    // of another type, with blocks of as many bytes; of floats; a store of other blocks
    for kind in [Some(QuantType::Q8_0), Some(QuantType::Q5_0), None] {
        let (store, linear) = make(kind, 9)?;
        let before = on(&linear)?.to_vec::<f32>()?;
        let text = store.load_bytes(bytes.clone()).unwrap_err().to_string();
        assert!(text.contains("fc.weight"), "{text}");
        assert_eq!(on(&linear)?.to_vec::<f32>()?, before);
    }
    let mut checkpoint = Checkpoint::new();
    checkpoint.put("model", &store)?;
    let checkpoint = Checkpoint::from_bytes(checkpoint.to_bytes()?, store.device())?;
    let (mut again, linear2) = make(Some(QuantType::Q4_0), 10)?;
    checkpoint.restore("model", &mut again)?;
    assert_eq!(on(&linear)?.to_vec::<f32>()?, on(&linear2)?.to_vec::<f32>()?);
    let (mut floats, _) = make(None, 11)?;
    assert!(checkpoint.restore("model", &mut floats).is_err());
    Ok(())
}

/// An encoder whose tables, joined projections and linear layers are quantised.
#[test]
fn an_encoder_runs_quantised() -> Result<()> {
    let store = Store::new(device());
    let config =
        EncoderConfig::new(40, 16, 2, TransformerConfig::new(64, 4, 128)).with_pooler(true);
    let encoder = random::with_seed(13, || Encoder::new(&store.root(), config))?;
    store.set_training(false);
    let tokens = Tensor::new([[1i32, 5, 39, 2], [0, 3, 3, 9]], store.device())?;
    let run = || encoder.pooled(&encoder.hidden(&EncoderInputs::new(&tokens))?);
    let plain = run()?;
    store.quantize(|param| QuantType::Q8_0.fitting(param.shape()[1]))?;
    let matrices = store.all().into_iter().filter(|param| param.quantized().is_some());
    // of each layer joined and last projections, and two linear layers; three tables, the pooler
    assert_eq!(matrices.count(), 2 * 4 + 3 + 1);
    near(&run()?, &plain, 0.05);
    Ok(())
}

/// A model whose embedding, joined projections and tied head are quantised: cached and uncached
/// tokens agree, and logits are near the dequantised model's.
#[test]
fn a_language_model_runs_quantised() -> Result<()> {
    let store = Store::new(device());
    let config = GptConfig::new(61, 24, 2, 4, 64);
    let model = random::with_seed(12, || Gpt::new(&store.root(), config))?;
    store.set_training(false);
    store.quantize(|param| QuantType::Q8_0.fitting(param.shape()[1]))?;
    let tokens = Tensor::new([[1i32, 5, 60, 2, 33, 7]], store.device())?;
    let quantized = model.logits(&tokens)?;
    let greedy = |logits: &Tensor| logits.argmax(-1);
    let out = model.generate(&tokens, 8, greedy)?.to_vec::<i32>()?;
    store.dequantize()?;
    near(&quantized, &model.logits(&tokens)?, 0.05);
    assert_eq!(out[..6], [1, 5, 60, 2, 33, 7]);
    Ok(())
}
