//! Adapters of layers of a store: training, switching, merging; of random layers against merged
//! weights.

use crate::common::*;
use teeny_autograd::{Check, gradcheck};
use teeny_core::{DType, DeviceRef, Lazy, QuantType, Result, Tensor, random};
use teeny_formats::Mapping;
use teeny_models::lora::{LayerNames, Lora, LoraBias, LoraModel, LoraOptions, Modules};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer};
use teeny_nn::transformer::{CausalLm, CausalLmConfig};
use teeny_nn::{Autograd, CachedLm, Captured, Embedding, Grad, Linear, Module, Param, Store};

/// The bytes of all parameters, with their names and whether they are trainable.
pub fn bits(store: &Store) -> Vec<(String, bool, Vec<u8>)> {
    let one = |param: &Param| {
        let value = param.quantized().map_or_else(|| param.value(), |q| q.blocks().clone());
        (param.name().to_string(), param.is_trainable(), value.to_bytes().unwrap())
    };
    store.all().iter().map(one).collect()
}

/// New adapters with the same values in every run.
fn attach(model: &impl LoraModel, options: LoraOptions) -> Result<Lora> {
    random::with_seed(4, || Lora::attach(model, options))
}

/// The bytes of all parameters.
fn stored(store: &Store) -> Vec<Vec<u8>> {
    bits(store).into_iter().map(|(_, _, bytes)| bytes).collect()
}

/// Random values of this size for all parameters of an adapter.
fn perturb(lora: &Lora, seed: u64, size: f64) -> Result<()> {
    for (i, param) in lora.trainable().iter().enumerate() {
        let noise = random::with_seed(seed + i as u64, || {
            Tensor::randn(param.shape(), DType::F32, param.value().device())
        })?;
        let value = param.value();
        param.set(&value.add(noise.mul(size)?.cast(value.dtype())?)?)?;
    }
    Ok(())
}

#[track_caller]
pub fn near(got: &Tensor, wanted: &Tensor, most: f64, what: &dyn std::fmt::Display) {
    assert_close(&values(got), &values(wanted), most, what);
}

fn far(got: &Tensor, other: &Tensor) -> bool {
    values(got).iter().zip(values(other)).any(|(a, b)| (a - b).abs() > 1e-3)
}

/// A small Llama in a new store, on `device`.
fn small(device: &DeviceRef, dtype: DType, tied: bool) -> Result<(Store, CausalLm)> {
    model(device, dtype, tied, 16)
}

fn model(device: &DeviceRef, dtype: DType, tied: bool, width: usize) -> Result<(Store, CausalLm)> {
    let store = Store::with_dtype(device, dtype);
    let mut config = CausalLmConfig::new(19, 32, 2, 4, width, 24);
    (config.n_kv_head, config.tied) = (2, tied);
    let model = random::with_seed(3, || CausalLm::new(&store.root(), config))?;
    // weights of such a size that each layer matters
    for (param, seed) in store.all().iter().zip(300..) {
        let noise = random::with_seed(seed, || {
            Tensor::randn(param.shape(), DType::F32, crate::common::device())
        })?;
        param.set(&param.value().add(noise.mul(0.2)?.cast(dtype)?.to(device)?)?)?;
    }
    Ok((store, model))
}

/// The store of [`small`] with the names of Llama's files: projections that are joined are layers.
struct Named(Store);

impl LoraModel for Named {
    fn store(&self) -> &Store {
        &self.0
    }

    fn names(&self) -> LayerNames {
        let width = self.0.get("layers.0.self_attn.qkv_proj.weight").unwrap().shape()[1];
        let mapping = Mapping::new()
            .join(
                &["l.*.q_proj.weight", "l.*.k_proj.weight", "l.*.v_proj.weight"],
                "layers.*.self_attn.qkv_proj.weight",
                &[width, width / 2, width / 2],
            )
            .join(
                &["l.*.gate_proj.weight", "l.*.up_proj.weight"],
                "layers.*.mlp.gate_up_proj.weight",
                &[24, 24],
            );
        LayerNames::new().with_mapping(mapping)
    }
}

pub fn tokens(device: &DeviceRef) -> Result<Tensor> {
    Tensor::new([[3i32, 7, 0, 18, 3], [1, 1, 12, 9, 4]], device)
}

/// The loss of the next tokens.
fn loss(model: &CausalLm, tokens: &Tensor) -> Result<Tensor> {
    let logits = model.logits(tokens)?;
    cross_entropy(&logits.slice(1, ..-1)?.flatten(0, 1)?, &tokens.slice(1, 1..)?.flatten(0, 1)?)
}

#[test]
fn adapters_alone_are_trained_and_detached_without_a_trace() -> Result<()> {
    let (store, model) = small(&autograd(), DType::F32, false)?;
    let tokens = tokens(store.device())?;
    store.get("norm.weight")?.set_trainable(false)?;
    let (before, logits) = (bits(&store), values(&model.logits(&tokens)?));
    let stored_before = stored(&store);
    let named = Named(store.clone());
    let targets = Modules::names(["q_proj", "v_proj", "up_proj", "embed_tokens"]);
    let options = LoraOptions::new().with_rank(2).with_target_modules(targets);
    let lora = attach(&named, options)?;
    // 2 blocks of (16 + 16) 2, (16 + 8) 2 and (16 + 24) 2, and (19 + 16) 2
    assert_eq!(lora.summary(), "trainable 454 of 4,982 parameters (9.11 %), 7 adapters of rank 2");
    assert_eq!(lora.layers()[..3], ["embed_tokens", "l.0.q_proj", "l.0.v_proj"]);
    assert!(store.trainable().is_empty());
    assert_eq!(lora.trainable().len(), 14);
    assert_eq!(values(&model.logits(&tokens)?), logits, "B is 0 at first");
    let mut optimizer = AdamW::new(lora.trainable(), 0.05);
    let (mut first, mut last) = (None, 0.0);
    for _ in 0..40 {
        let loss = loss(&model, &tokens)?;
        last = loss.item::<f32>()?;
        first.get_or_insert(last);
        optimizer.step(&loss.backward()?)?;
    }
    assert!(last < first.unwrap_or(0.0) - 0.3, "{first:?} {last}");
    assert!(stored(&store) == stored_before);
    // a model that is saved has no adapters
    let other = Store::new(device());
    random::with_seed(5, || CausalLm::new(&other.root(), model.config().clone()))?;
    other.load_bytes(store.to_bytes()?)?;
    assert!(stored(&other) == stored_before);
    lora.detach()?;
    assert!(bits(&store) == before);
    assert_eq!(values(&model.logits(&tokens)?), logits);
    Ok(())
}

#[test]
fn several_adapters_add_up_and_switch_without_loading() -> Result<()> {
    let (store, model) = small(&autograd(), DType::F32, true)?;
    let (tokens, before) = (tokens(store.device())?, bits(&store));
    let none = values(&model.logits(&tokens)?);
    let named = Named(store.clone());
    let with = |seed: u64, names: &[&str]| {
        let targets = Modules::names(names.iter().copied());
        let saved = vec!["norm".to_string()];
        let options = LoraOptions::new().with_rank(2).with_target_modules(targets);
        let lora = attach(&named, options.with_modules_to_save(saved))?;
        perturb(&lora, seed, 0.5).map(|()| lora)
    };
    let first = with(1, &["k_proj", "down_proj", "lm_head"])?;
    let one = values(&model.logits(&tokens)?);
    first.set_active(false)?;
    assert_eq!(values(&model.logits(&tokens)?), none);
    let second = with(100, &["q_proj", "embed_tokens"])?;
    let two = values(&model.logits(&tokens)?);
    first.set_active(true)?;
    let both = values(&model.logits(&tokens)?);
    assert!(one != none && two != none && both != one && both != two);
    second.set_active(false)?;
    assert_eq!(values(&model.logits(&tokens)?), one);
    // the last one to go makes the base trainable again
    first.detach()?;
    assert!(store.trainable().is_empty());
    second.set_active(true)?;
    assert_eq!(values(&model.logits(&tokens)?), two);
    second.detach()?;
    assert!(bits(&store) == before);

    let layer = random::with_seed(1, || Linear::new(&store.at("one"), 6, 4))?;
    let x = random::with_seed(2, || Tensor::randn((3, 6), DType::F32, store.device()))?;
    let y = layer.forward(&x)?;
    let options = || LoraOptions::new().with_target_modules(Modules::names(["one"]));
    let (a, b) = (attach(&store, options())?, attach(&store, options())?);
    perturb(&a, 1, 0.5)?;
    perturb(&b, 2, 0.5)?;
    let sum = layer.forward(&x)?.sub(&y)?;
    a.set_active(false)?;
    let only_b = layer.forward(&x)?.sub(&y)?;
    a.set_active(true)?;
    b.set_active(false)?;
    near(&sum, &layer.forward(&x)?.sub(&y)?.add(&only_b)?, 1e-5, &"sum");
    Ok(())
}

/// Weights of random sizes, of one tensor of the file or joined of several, with adapters for some:
/// the product equals the product with `W + s B A`, which merging computes.
#[test]
fn products_with_adapters_are_those_of_merged_weights() -> Result<()> {
    let mut dice = Dice(7);
    for round in 0..60 {
        let dtype = [DType::F32, DType::F64, DType::BF16][dice.below(3)];
        let quantized = dtype == DType::F32 && dice.below(2) == 0;
        let inputs = if quantized { 32 * (1 + dice.below(3)) } else { 1 + dice.below(40) };
        let parts: Vec<usize> = (0..1 + dice.below(4)).map(|_| 1 + dice.below(20)).collect();
        let outputs: usize = parts.iter().sum();
        let store = Store::with_dtype(autograd(), dtype);
        let layer = random::with_seed(round, || Linear::new(&store.at("fc"), inputs, outputs))?;
        if quantized {
            store.quantize(|_| Some(QuantType::Q8_0))?;
        }
        struct Parts(Store, Vec<usize>);
        impl LoraModel for Parts {
            fn store(&self) -> &Store {
                &self.0
            }
            fn names(&self) -> LayerNames {
                let names: Vec<String> =
                    (0..self.1.len()).map(|i| format!("p{i}.weight")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                LayerNames::new().with_mapping(Mapping::new().join(&names, "fc.weight", &self.1))
            }
        }
        let model = Parts(store.clone(), parts.clone());
        let chosen: Vec<usize> = (0..parts.len()).filter(|_| dice.below(2) == 0).collect();
        let chosen = if chosen.is_empty() { vec![parts.len() - 1] } else { chosen };
        let names = Modules::names(chosen.iter().map(|i| format!("p{i}")));
        let ranks: Vec<(String, usize)> =
            (0..parts.len()).map(|i| (format!("p{i}"), 1 + dice.below(5))).collect();
        let mut lora = attach(
            &model,
            LoraOptions::new()
                .with_target_modules(names)
                .with_rank_pattern(ranks)
                .with_alpha(3.0)
                .with_use_rslora(dice.below(2) == 0),
        )?;
        perturb(&lora, 1000 * round, 0.3)?;
        let x = random::with_seed(round + 1, || {
            Tensor::randn((1 + dice.below(4), 2, inputs), DType::F64, store.device())
        })?;
        let x = x.cast(dtype)?;
        let y = layer.forward(&x)?;
        let what = format!("round {round}: {dtype} {quantized} {inputs} {parts:?} {chosen:?}");
        assert_eq!((y.dtype(), y.shape()[2]), (dtype, outputs), "{what}");
        let before = bits(&store);
        let tolerance = if dtype == DType::BF16 { 0.05 } else { 2e-5 };
        if quantized {
            let error = lora.merge().unwrap_err().to_string();
            assert!(error.contains("quantised") && error.contains("dequantize"), "{error}");
            assert!(bits(&store) == before && lora.is_active(), "{what}");
            lora.set_active(false)?;
            let plain = layer.forward(&x)?;
            lora.set_active(true)?;
            store.dequantize()?;
            let with = layer.forward(&x)?;
            lora.set_active(false)?;
            let difference = with.sub(&layer.forward(&x)?)?;
            near(&y.sub(&plain)?, &difference, 1e-4, &what);
            continue;
        }
        lora.merge()?;
        assert!(!lora.is_active() && bits(&store) != before, "{what}");
        near(&layer.forward(&x)?, &y, tolerance, &what);
        assert!(lora.merge().is_err() && lora.set_active(true).is_err(), "{what}");
        lora.unmerge()?;
        assert!(bits(&store) == before && lora.is_active(), "{what}");
        assert_eq!(values(&layer.forward(&x)?), values(&y), "{what}");
        assert!(lora.unmerge().is_err(), "{what}");
        lora.merge_into_base()?;
        near(&layer.forward(&x)?, &y, tolerance, &what);
        assert!(store.trainable().len() == 2, "{what}");
    }
    Ok(())
}

#[test]
fn embeddings_have_adapters_that_a_tied_head_does_not_read() -> Result<()> {
    let store = Store::new(autograd());
    let table = random::with_seed(1, || Embedding::new(&store.at("wte"), 9, 5))?;
    let ids = Tensor::new([[0i32, 8], [3, 3]], store.device())?;
    let before = (bits(&store), table.forward(&ids)?);
    let options = LoraOptions::new().with_target_modules(Modules::names(["wte"])).with_rank(3);
    let mut lora = attach(&store, options.clone())?;
    assert_eq!(values(&table.forward(&ids)?), values(&before.1), "A is 0 at first");
    perturb(&lora, 5, 1.0)?;
    let y = table.forward(&ids)?;
    assert!(far(&y, &before.1));
    lora.merge()?;
    near(&table.forward(&ids)?, &y, 1e-5, &"merged");
    lora.detach()?;
    assert!(bits(&store) == before.0);

    let (store, model) = small(&autograd(), DType::F32, true)?;
    let tokens = tokens(store.device())?;
    let (hidden, logits) = (model.hidden(&tokens)?, model.logits(&tokens)?);
    let on_embedding = options.clone().with_target_modules(Modules::names(["embed_tokens"]));
    let mut lora = attach(&store, on_embedding)?;
    perturb(&lora, 5, 1.0)?;
    let changed = model.hidden(&tokens)?;
    assert!(far(&changed, &hidden));
    let weight = store.get("embed_tokens.weight")?.value();
    near(&model.logits(&tokens)?, &changed.matmul(&weight.t()?)?, 1e-5, &"the head");
    // merged, they are one weight, as in peft 0.21.2: `base_layer.weight.data += delta`
    let stored_before = stored(&store);
    lora.merge()?;
    let merged = store.get("embed_tokens.weight")?.value();
    assert!(far(&merged, &weight));
    let hidden_merged = model.hidden(&tokens)?;
    near(&hidden_merged, &changed, 1e-5, &"merged states");
    near(&model.logits(&tokens)?, &hidden_merged.matmul(&merged.t()?)?, 1e-5, &"merged head");
    lora.unmerge()?;
    assert!(stored(&store) == stored_before);
    near(&model.logits(&tokens)?, &changed.matmul(&weight.t()?)?, 1e-5, &"unmerged");
    lora.detach()?;
    // adapters of both add up in it
    let on_both = options.clone().with_target_modules(Modules::names(["embed_tokens", "lm_head"]));
    let mut lora = attach(&store, on_both)?;
    perturb(&lora, 5, 1.0)?;
    lora.merge()?;
    let merged = store.get("embed_tokens.weight")?.value();
    near(
        &model.logits(&tokens)?,
        &model.hidden(&tokens)?.matmul(&merged.t()?)?,
        1e-5,
        &"both merged",
    );
    lora.detach()?;
    assert!(stored(&store) == stored_before);
    let on_head = options.clone().with_target_modules(Modules::names(["lm_head"]));
    let lora = attach(&store, on_head)?;
    perturb(&lora, 5, 1.0)?;
    near(&model.hidden(&tokens)?, &hidden, 0.0, &"the head alone");
    assert!(far(&model.logits(&tokens)?, &logits));
    Ok(())
}

#[test]
fn gradients_of_adapters_are_those_of_finite_differences() -> Result<()> {
    let (store, model) = small(&device(), DType::F64, false)?;
    let tokens = tokens(store.device())?;
    let names = ["q_proj", "v_proj", "gate_proj", "o_proj", "embed_tokens", "lm_head"];
    let options = LoraOptions::new().with_rank(1).with_target_modules(Modules::names(names));
    let options = options.with_layers_to_transform(Some(vec![0]));
    let all = attach(&Named(store.clone()), options.clone());
    // the embedding and the head have no number
    let lora = all?;
    assert_eq!(
        lora.layers(),
        ["l.0.q_proj", "l.0.v_proj", "layers.0.self_attn.o_proj", "l.0.gate_proj"]
    );
    lora.detach()?;
    let options = options.with_layers_to_transform(None);
    let lora = attach(&Named(store.clone()), options)?;
    perturb(&lora, 9, 0.3)?;
    let params = lora.trainable();
    let inputs: Vec<Tensor> = params.iter().map(Param::value).collect();
    let f = |v: &[Tensor]| {
        let values = params.iter().map(Param::name).zip(v);
        lora.store().with_values(values, || model.hidden(&tokens)?.square()?.sum_all())
    };
    let check = Check::default().with_tolerance(1e-5);
    let report = gradcheck(f, &inputs, &check)?;
    assert_eq!(report.checked, lora.store().count());
    Ok(())
}

/// Steps on a quantised base, and on the same numbers as floats.
#[test]
fn a_quantised_base_trains_like_its_floats() -> Result<()> {
    for kind in [QuantType::Q8_0, QuantType::Q4K] {
        let width = if kind == QuantType::Q4K { 256 } else { 32 };
        let make = || {
            let store = Store::new(autograd());
            let mut config = CausalLmConfig::new(23, 32, 2, 4, width, 2 * width);
            config.tied = true;
            let model = random::with_seed(3, || CausalLm::new(&store.root(), config))?;
            store.quantize(|param| kind.fitting(param.shape()[1]))?;
            Result::Ok((store, model))
        };
        let ((quantized, first), (floats, second)) = (make()?, make()?);
        floats.dequantize()?;
        let bytes = stored(&quantized);
        let mut losses = Vec::new();
        for (store, model) in [(&quantized, &first), (&floats, &second)] {
            let tokens = tokens(store.device())?;
            let lora = attach(store, LoraOptions::new())?;
            assert!(lora.summary().contains("8 adapters of rank 8"), "{}", lora.summary());
            let mut optimizer = AdamW::new(lora.trainable(), 0.32 / width as f64);
            let mut all = Vec::new();
            for _ in 0..15 {
                let loss = loss(model, &tokens)?;
                optimizer.step(&loss.backward()?)?;
                all.push(f64::from(loss.item::<f32>()?));
            }
            assert!(all[14] < all[0] - 0.3, "{all:?}");
            losses.push(all);
        }
        assert_close(&losses[0], &losses[1], 0.02, &kind);
        assert!(stored(&quantized) == bytes);
    }
    Ok(())
}

#[test]
fn adapters_of_a_16_bit_model_have_32_bits() -> Result<()> {
    for dtype in [DType::BF16, DType::F16] {
        let (store, model) = small(&autograd(), dtype, false)?;
        let tokens = tokens(store.device())?;
        let lora = attach(&Named(store.clone()), LoraOptions::new().with_rank(2))?;
        perturb(&lora, 3, 0.2)?;
        assert!(lora.trainable().iter().all(|param| param.value().dtype() == DType::F32));
        let logits = model.logits(&tokens)?;
        assert_eq!(logits.dtype(), dtype);
        // the same numbers with 64 bits
        let (wide, reference) = small(&autograd(), DType::F64, false)?;
        for param in wide.all() {
            param.set(&store.get(param.name())?.value())?;
        }
        let copy = attach(&Named(wide.clone()), LoraOptions::new().with_rank(2))?;
        for (param, own) in copy.trainable().iter().zip(lora.trainable()) {
            param.set(&own.value())?;
        }
        let same = super::lora::tokens(wide.device())?;
        let tolerance = if dtype == DType::BF16 { 0.06 } else { 0.01 };
        near(&logits, &reference.logits(&same)?, tolerance, &dtype);
        let gradients = loss(&model, &tokens)?.backward()?;
        for param in lora.trainable() {
            assert_eq!(gradients.get(&param.value())?.dtype(), DType::F32);
        }
    }
    Ok(())
}

#[test]
fn dropout_drops_inputs_of_adapters_in_training_mode_alone() -> Result<()> {
    let store = Store::new(autograd());
    let layer = random::with_seed(1, || Linear::new(&store.at("fc"), 400, 3))?;
    let x = Tensor::ones((1, 400), DType::F32, store.device())?;
    let base = layer.forward(&x)?;
    let lora = attach(&store, LoraOptions::new().with_rank(1).with_dropout(0.5))?;
    for param in lora.trainable() {
        param.set(&Tensor::ones(param.shape(), DType::F32, &x)?)?;
    }
    // alpha / r = 8 times the sum of 400 ones, half of them 2 and half 0
    let added = |y: &Tensor| Result::Ok(values(&y.sub(&base)?)[0] / 8.0);
    let dropped = added(&random::with_seed(6, || layer.forward(&x))?)?;
    assert!((dropped - 400.0).abs() > 0.5 && (dropped - 400.0).abs() < 120.0, "{dropped}");
    store.set_training(false);
    assert!((added(&layer.forward(&x)?)? - 400.0).abs() < 0.01);
    lora.detach()
}

/// A captured decoder runs what the model runs, whatever happens to adapters between the texts.
#[test]
fn captured_decoders_notice_adapters() -> Result<()> {
    let device: DeviceRef = Autograd::new(Lazy::new(device()));
    let (store, model) = small(&device, DType::F32, false)?;
    store.set_training(false);
    let prompt = tokens(&device)?;
    let mut decoder = CachedLm::new(&model);
    let mut check = |what: &str| -> Result<Vec<f64>> {
        let pick = |logits: &Tensor| logits.argmax(-1);
        let mut caches = model.caches();
        let mut last = model.next(&prompt, &mut caches)?;
        decoder.truncate(0);
        let mut own = decoder.next(&prompt)?;
        for step in 0..12 {
            assert_eq!(values(&own), values(&last), "{what}, step {step}");
            let token = pick(&last)?.unsqueeze(1)?;
            last = model.next(&token, &mut caches)?;
            own = decoder.next(&token)?;
        }
        assert!(decoder.is_replaying(), "{what}");
        Ok(values(&last))
    };
    let none = check("no adapter")?;
    let named = Named(store.clone());
    let options = LoraOptions::new().with_rank(2).with_bias(LoraBias::All);
    let mut lora = attach(&named, options)?;
    perturb(&lora, 1, 0.5)?;
    let first = check("attached")?;
    assert!(first != none);
    perturb(&lora, 50, 0.5)?;
    let second = check("other values")?;
    assert!(second != first);
    lora.set_active(false)?;
    assert_eq!(check("switched off")?, none);
    let targets = Modules::names(["embed_tokens", "lm_head"]);
    let saved = vec!["norm".to_string()];
    let options = LoraOptions::new().with_target_modules(targets).with_modules_to_save(saved);
    let other = attach(&named, options)?;
    perturb(&other, 90, 0.5)?;
    assert!(check("another")? != none);
    other.set_active(false)?;
    assert_eq!(check("none again")?, none);
    lora.set_active(true)?;
    assert_eq!(check("the first again")?, second);
    lora.merge()?;
    check("merged")?;
    lora.unmerge()?;
    assert_eq!(check("unmerged")?, second);
    other.detach()?;
    lora.detach()?;
    assert_eq!(check("detached")?, none);
    Ok(())
}

/// A recorded step of training with adapters: the losses of the step as it is.
#[test]
fn captured_steps_train_adapters() -> Result<()> {
    let mut losses = Vec::new();
    for is_captured in [false, true] {
        let device: DeviceRef = Autograd::new(Lazy::new(device()));
        let (store, model) = small(&device, DType::F32, false)?;
        let options = LoraOptions::new().with_rank(2).with_bias(LoraBias::All);
        let lora = attach(&Named(store), options)?;
        let mut optimizer = AdamW::new(lora.trainable(), 0.02);
        let mut step = Captured::new(lora.store(), |x| loss(&model, &x[0]))?;
        let mut all = Vec::new();
        for _ in 0..8 {
            let tokens = tokens(&device)?;
            let (loss, gradients) = match is_captured {
                true => step.run(vec![tokens])?,
                false => {
                    let loss = loss(&model, &tokens)?;
                    let gradients = loss.backward()?;
                    (loss, gradients)
                }
            };
            all.push(f64::from(loss.item::<f32>()?));
            optimizer.step(&gradients)?;
        }
        assert_eq!(step.is_replaying(), is_captured);
        losses.push(all);
    }
    assert_eq!(losses[0], losses[1]);
    Ok(())
}

#[test]
fn positions_of_a_captured_decoder_have_adapters_too() -> Result<()> {
    let device: DeviceRef = Autograd::new(Lazy::new(device()));
    let store = Store::new(&device);
    let config = teeny_nn::GptConfig::new(19, 32, 2, 2, 32);
    let gpt = random::with_seed(1, || teeny_nn::Gpt::new(&store.root(), config))?;
    store.set_training(false);
    // rows of a quantised table are read by their numbers too
    store.get("wpe.weight")?.quantize(QuantType::Q8_0)?;
    let targets = Modules::names(["wpe", "c_attn"]);
    let lora = attach(&store, LoraOptions::new().with_target_modules(targets))?;
    perturb(&lora, 1, 0.5)?;
    let (mut decoder, mut caches) = (CachedLm::new(&gpt), gpt.caches());
    for position in 0..20 {
        let token = Tensor::new([[(position * 7) % 19]], &device)?;
        let wanted = gpt.next(&token, &mut caches)?;
        assert_eq!(values(&decoder.next(&token)?), values(&wanted), "position {position}");
    }
    assert!(decoder.is_replaying());
    Ok(())
}

/// The weight of k is a part of the weight of q, k and v, which may be quantised.
#[test]
fn a_part_of_joined_projections_is_trained_as_a_whole() -> Result<()> {
    for quantized in [false, true] {
        let (store, model) = model(&autograd(), DType::F32, false, 32)?;
        if quantized {
            store.get("layers.0.self_attn.qkv_proj.weight")?.quantize(QuantType::Q8_0)?;
        }
        let ids = Tensor::new([[3i32, 1, 4, 1, 5]], store.device())?;
        let before = model.logits(&ids)?;
        let options = LoraOptions::new().with_target_modules(Modules::names(["o_proj"]));
        let options = options.with_modules_to_save(vec!["l.0.k_proj".to_string()]);
        let lora = attach(&Named(store.clone()), options)?;
        // products with quantised weights round x too
        let most = if quantized { 0.02 } else { 1e-5 };
        near(&model.logits(&ids)?, &before, most, &"values of the weight itself");
        let part = lora.store().get("l.0.k_proj.weight")?;
        assert_eq!(part.shape()[..], [16, 32]);
        assert!(model.logits(&ids)?.sum_all()?.backward()?.get(&part.value()).is_ok());
        part.set(&part.value().mul(2.0)?)?;
        assert!(values(&model.logits(&ids)?) != values(&before));
        lora.set_active(false)?;
        assert_eq!(values(&model.logits(&ids)?), values(&before));
    }
    Ok(())
}

/// Merged, embedding and head would both be the one that was trained.
#[test]
fn a_tied_weight_that_is_trained_as_a_whole_is_not_merged() -> Result<()> {
    let device = autograd();
    let (store, model) = small(&device, DType::F32, true)?;
    let options = LoraOptions::new().with_modules_to_save(vec!["lm_head".to_string()]);
    let mut lora = attach(&store, options)?;
    perturb(&lora, 3, 0.5)?;
    let (before, tokens) = (stored(&store), tokens(&device)?);
    let logits = model.logits(&tokens)?.to_vec::<f32>()?;
    let error = lora.merge().unwrap_err().to_string();
    assert!(error.contains("\"lm_head.weight\", trained as a whole"), "{error}");
    assert_eq!(stored(&store), before);
    assert_eq!(model.logits(&tokens)?.to_vec::<f32>()?, logits);
    lora.detach()
}

#[test]
fn names_that_choose_nothing_are_errors_and_change_nothing() -> Result<()> {
    let (store, _model) = small(&autograd(), DType::F32, false)?;
    let (named, before) = (Named(store.clone()), bits(&store));
    let names =
        |list: &[&str]| LoraOptions::new().with_target_modules(Modules::names(list.to_vec()));
    let texts = |list: &[&str]| list.iter().map(|text| text.to_string()).collect::<Vec<_>>();
    let cases: Vec<(LoraOptions, &[&str])> = vec![
        (names(&["q_proj", "v_pro"]), &["\"v_pro\"", "\"v_proj\" is the nearest", "o_proj"]),
        (names(&["norm"]), &["\"norm\"", "the layers are embed_tokens, q_proj"]),
        (names(&[]), &["no layer is chosen"]),
        (LoraOptions::new().with_rank(0), &["the rank of \"l.0.q_proj\" is 0"]),
        (LoraOptions::new().with_alpha(f64::NAN), &["alpha is NaN"]),
        (LoraOptions::new().with_dropout(1.5), &["p is 1.5"]),
        (LoraOptions::new().with_dtype(Some(DType::I32)), &["adapters are floats, not i32"]),
        (
            LoraOptions::new().with_layers_to_transform(Some(vec![0, 2])),
            &["layers_to_transform has 2"],
        ),
        (LoraOptions::new().with_exclude_modules(Modules::AllLinear), &["no layer is chosen"]),
        (
            names(&["o_proj"]).with_modules_to_save(texts(&["lm_hed"])),
            &["modules_to_save has \"lm_hed\"", "\"lm_head\" is the nearest"],
        ),
    ];
    for (options, wanted) in cases {
        let error = attach(&named, options.clone()).err().unwrap().to_string();
        for text in wanted {
            assert!(error.contains(text), "no {text:?} in {error}");
        }
        assert!(bits(&store) == before, "{options:?}");
    }
    let broken = LoraOptions::new().with_target_modules(Modules::Pattern("(q_proj".to_string()));
    let error = attach(&named, broken).err().unwrap().to_string();
    assert!(error.contains("regular expression"), "{error}");
    assert!(bits(&store) == before);
    Ok(())
}

/// Pairs beside frozen weights belong to the layer whose weight they adapt.
#[test]
fn adapters_are_trained_in_place_of_their_weights() -> Result<()> {
    let store = Store::new(Autograd::new(device()));
    let model = CausalLm::new(&store.root(), CausalLmConfig::new(65, 32, 2, 4, 16, 40))?;
    let tokens = Tensor::new([[1i32, 2, 3]], store.device())?; // (B, T)
    let plain = store.summary(|| model.logits(&tokens))?;
    let targets = Modules::names(["qkv_proj", "o_proj"]);
    let lora = Lora::attach(&store, LoraOptions::new().with_rank(4).with_target_modules(targets))?;
    let adapted = store.summary(|| model.logits(&tokens))?;
    let pairs: usize = lora.trainable().iter().map(|param| param.shape().numel()).sum();
    assert_eq!((adapted.params, adapted.trainable), (plain.params + pairs, pairs), "{adapted}");
    assert!(adapted.flops > plain.flops && adapted.unused.is_empty(), "{adapted}");
    lora.detach()
}
