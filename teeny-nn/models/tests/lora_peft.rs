//! Adapters of pretrained models: against peft's files, logits and losses (`golden/lora`, by
//! `make_lora.py`). `check_lora.py` opens in peft what is written here.

use crate::common::*;
use crate::lora::{bits, near, tokens};
use serde_json::{Value, json};
use std::path::PathBuf;
use teeny_autograd::Grad;
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_formats::gguf::WriteOptions;
use teeny_formats::{SafeTensors, write};
use teeny_models::lora::{LayerNames, Lora, LoraModel, LoraOptions};
use teeny_models::{Encoder, OpenOptions};
use teeny_nn::Store;
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer};
use teeny_nn::transformer::EncoderInputs;

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/lora").join(name)
}

enum Model {
    Decoder(Box<teeny_models::Decoder>),
    Encoder(Box<Encoder>),
}

impl LoraModel for Model {
    fn store(&self) -> &Store {
        match self {
            Model::Decoder(decoder) => &decoder.store,
            Model::Encoder(encoder) => &encoder.store,
        }
    }

    fn names(&self) -> LayerNames {
        match self {
            Model::Decoder(decoder) => decoder.names(),
            Model::Encoder(encoder) => encoder.names(),
        }
    }
}

impl Model {
    fn open(name: &str, options: &OpenOptions) -> Result<Model> {
        let path = golden(name);
        Ok(match name {
            "bert" => Model::Encoder(Encoder::open_with(path, options, autograd())?.into()),
            _ => {
                Model::Decoder(teeny_models::Decoder::open_with(path, options, autograd())?.into())
            }
        })
    }

    fn logits(&self, tokens: &Tensor) -> Result<Tensor> {
        match self {
            Model::Decoder(decoder) => decoder.model.logits(tokens),
            Model::Encoder(encoder) => encoder.logits(&EncoderInputs::new(tokens)),
        }
    }

    /// The loss of the classes, or of the next tokens.
    fn loss(&self, tokens: &Tensor, classes: &Tensor) -> Result<Tensor> {
        let logits = self.logits(tokens)?;
        match self {
            Model::Encoder(_) => cross_entropy(&logits, classes),
            Model::Decoder(_) => cross_entropy(
                &logits.slice(1, ..-1)?.flatten(0, 1)?,
                &tokens.slice(1, 1..)?.flatten(0, 1)?,
            ),
        }
    }
}

/// All adapters: the model, the name, and what is expected.
fn cases() -> Vec<(&'static str, String, Value, Value)> {
    let mut all = Vec::new();
    for name in ["llama", "gpt2", "bert"] {
        let text = std::fs::read_to_string(golden(name).join("expected.json")).unwrap();
        let expected = parse(&text);
        for (adapter, want) in expected["adapters"].as_object().unwrap() {
            all.push((name, adapter.clone(), expected.clone(), want.clone()));
        }
    }
    assert_eq!(all.len(), 11);
    all
}

fn inputs(expected: &Value, device: &DeviceRef) -> Result<(Tensor, Tensor)> {
    let ids = |v: &Value| flat(v).iter().map(|x| *x as i32).collect::<Vec<i32>>();
    let tokens = Tensor::new(ids(&expected["tokens"]), device)?.reshape((2, 9))?;
    Ok((tokens, Tensor::new(ids(&expected["classes"]), device)?))
}

#[test]
fn adapters_of_peft_compute_its_logits() -> Result<()> {
    for (name, adapter, expected, want) in cases() {
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-5)] {
            let model = Model::open(name, &OpenOptions::new().with_dtype(dtype))?;
            let (tokens, _) = inputs(&expected, model.store().device())?;
            let before = (bits(model.store()), model.logits(&tokens)?);
            let lora = Lora::open(&model, golden(name).join(&adapter))?;
            let what = format!("{name} {adapter} {dtype}");
            let logits = model.logits(&tokens)?;
            let largest = flat(&want["logits"]).iter().fold(1.0, |a: f64, x| a.max(x.abs()));
            assert_close(&values(&logits), &flat(&want["logits"]), tolerance * largest, &what);
            assert_eq!(lora.store().count() as f64, number(&want["trainable"]), "{what}");
            lora.set_active(false)?;
            assert_eq!(values(&model.logits(&tokens)?), values(&before.1), "{what}");
            lora.detach()?;
            assert!(bits(model.store()) == before.0, "{what}");
            assert_eq!(values(&model.logits(&tokens)?), values(&before.1), "{what}");
        }
    }
    Ok(())
}

#[test]
fn training_has_the_losses_of_peft() -> Result<()> {
    for (name, adapter, expected, want) in cases() {
        let model = Model::open(name, &OpenOptions::new())?;
        let (tokens, classes) = inputs(&expected, model.store().device())?;
        model.store().all().iter().try_for_each(|param| param.set_trainable(false))?;
        let base = bits(model.store());
        let lora = Lora::open(&model, golden(name).join(&adapter))?;
        let mut optimizer = AdamW::new(lora.trainable(), 0.02);
        let mut losses = Vec::new();
        for _ in 0..12 {
            let loss = model.loss(&tokens, &classes)?;
            optimizer.step(&loss.backward()?)?;
            losses.push(f64::from(loss.item::<f32>()?));
        }
        assert_close(&losses, &flat(&want["losses"]), 1e-4, &format!("{name} {adapter}"));
        lora.set_active(false)?;
        assert!(bits(model.store()) == base, "{name} {adapter}");
    }
    Ok(())
}

/// With TEENY_SAVED the folders are kept for `check_lora.py`.
#[test]
fn written_adapters_are_those_that_were_read() -> Result<()> {
    let kept = std::env::var("TEENY_SAVED").ok().map(PathBuf::from);
    for (name, adapter, expected, _) in cases() {
        let model = Model::open(name, &OpenOptions::new())?;
        let (tokens, _) = inputs(&expected, model.store().device())?;
        let lora = Lora::open(&model, golden(name).join(&adapter))?;
        let logits = values(&model.logits(&tokens)?);
        let folder = Folder::new(&format!("lora-{name}-{adapter}"));
        let path = kept.as_ref().map_or(folder.0.clone(), |to| to.join(name).join(&adapter));
        lora.save(&path)?;
        lora.detach()?;
        let again = Lora::open(&model, &path)?;
        assert_eq!(values(&model.logits(&tokens)?), logits, "{name} {adapter}");
        again.detach()?;
        let [theirs, ours] = [golden(name).join(&adapter), path].map(|folder| {
            let file = SafeTensors::open(folder.join("adapter_model.safetensors")).unwrap();
            let names = file.entries().keys();
            // peft adds embeddings that have adapters
            let mut all: Vec<(String, Vec<u8>)> = names
                .filter(|name| !name.ends_with("base_layer.weight"))
                .map(|name| {
                    (name.clone(), file.tensor(name, device()).unwrap().to_bytes().unwrap())
                })
                .collect();
            all.sort();
            all
        });
        assert!(ours == theirs, "{name} {adapter}");
    }
    Ok(())
}

/// Files of PyTorch, and names of a model that was trained without its head.
#[test]
fn older_files_and_other_prefixes_are_read() -> Result<()> {
    let read = |model: &Model, name: &str, folder: &Folder| -> Result<Vec<f64>> {
        let want = cases().into_iter().find(|case| (case.0, &case.1[..]) == (name, "all"));
        let (tokens, _) = inputs(&want.unwrap().2, model.store().device())?;
        let lora = Lora::open(model, &folder.0)?;
        let logits = values(&model.logits(&tokens)?);
        lora.detach().map(|()| logits)
    };
    for name in ["bert", "llama"] {
        let model = Model::open(name, &OpenOptions::new())?;
        let folder = Folder::copy(&format!("lora-older-{name}"), &golden(name).join("all"));
        let wanted = read(&model, name, &folder)?;
        let path = folder.0.join("adapter_model.safetensors");
        if name == "bert" {
            std::fs::remove_file(&path).unwrap();
            std::fs::copy(golden("bert/all.bin"), folder.0.join("adapter_model.bin")).unwrap();
        } else {
            let file = SafeTensors::open(&path)?;
            let renamed = file.entries().keys().map(|name| {
                let own = name.replace("base_model.model.model.", "base_model.model.");
                Ok((own, file.tensor(name, device())?))
            });
            let tensors = renamed.collect::<Result<Vec<_>>>()?;
            teeny_core::file::replace(&path, |to| write(to, &tensors, &Default::default()))?;
        }
        assert_eq!(read(&model, name, &folder)?, wanted, "{name}");
        if name == "llama" {
            // patterns are of the names of the file, and peft knows the layers of a family
            let path = folder.0.join("adapter_config.json");
            let mut config = parse(&std::fs::read_to_string(&path).unwrap());
            for targets in [json!(r"layers\.\d+\.(mlp|self_attn)\..*"), json!(null)] {
                config["target_modules"] = targets;
                std::fs::write(&path, config.to_string()).unwrap();
                assert_eq!(read(&model, name, &folder)?, wanted);
            }
            config["target_modules"] = json!(["q_proj"]);
            std::fs::write(&path, config.to_string()).unwrap();
            let error = read(&model, name, &folder).unwrap_err().to_string();
            assert!(error.contains("\"target_modules\" does not choose"), "{error}");
        }
    }
    Ok(())
}

/// New adapters choose the same layers as those that peft made with the same options.
#[test]
fn options_choose_the_layers_of_peft() -> Result<()> {
    for (name, adapter, _, want) in cases() {
        let model = Model::open(name, &OpenOptions::new())?;
        let theirs = Lora::open(&model, golden(name).join(&adapter))?;
        let options = theirs.options().clone();
        let mut layers: Vec<String> = theirs.layers().iter().map(|l| l.to_string()).collect();
        theirs.detach()?;
        let ours = Lora::attach(&model, options)?;
        let mut own = ours.layers();
        own.sort();
        layers.sort();
        assert_eq!(own, layers, "{name} {adapter}");
        assert_eq!(ours.store().count() as f64, number(&want["trainable"]), "{name} {adapter}");
    }
    Ok(())
}

#[test]
fn all_linear_layers_are_those_of_peft() -> Result<()> {
    for name in ["llama", "bert"] {
        let model = Model::open(name, &OpenOptions::new())?;
        let theirs = Lora::open(&model, golden(name).join("all"))?;
        let mut layers: Vec<String> = theirs.layers().iter().map(|l| l.to_string()).collect();
        theirs.detach()?;
        let ours = Lora::attach(&model, LoraOptions::new())?;
        let mut own = ours.layers();
        own.sort();
        layers.sort();
        assert_eq!(own, layers, "{name}");
    }
    Ok(())
}

/// q, k and v are one parameter of the model: the bias of q alone is a part of it.
#[test]
fn an_adapter_of_a_part_of_joined_projections_trains_its_bias() -> Result<()> {
    let model = Model::open("llama", &OpenOptions::new())?;
    let want = cases().into_iter().find(|case| case.1 == "lora_only").unwrap();
    let (ids, classes) = inputs(&want.2, model.store().device())?;
    let theirs = SafeTensors::open(golden("llama/lora_only/adapter_model.safetensors"))?;
    let base = SafeTensors::open(golden("llama/model.safetensors"))?;
    let folders = ["q", "zeros"]
        .map(|name| Folder::copy(&format!("lora-part-{name}"), &golden("llama/lora_only")));
    // `own` has the tensors of q; in `all` the tensors of other layers have no effect
    let (mut own, mut all) = (Vec::new(), Vec::new());
    for name in theirs.entries().keys() {
        let tensor = theirs.tensor(name, device())?;
        if name.contains("q_proj") {
            own.push((name.clone(), tensor.clone()));
            all.push((name.clone(), tensor));
        } else if let Some(name_in_base) = name.strip_suffix(".base_layer.bias") {
            let name_in_base = name_in_base.strip_prefix("base_model.model.").unwrap();
            all.push((name.clone(), base.tensor(&format!("{name_in_base}.bias"), device())?));
        } else {
            all.push((name.clone(), tensor.mul(0.0)?));
        }
    }
    for (folder, tensors) in folders.iter().zip([&own, &all]) {
        let path = folder.0.join("adapter_model.safetensors");
        teeny_core::file::replace(&path, |to| write(to, tensors, &Default::default()))?;
    }
    let config = folders[0].0.join("adapter_config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let (start, end) = (text.find("\"target_modules\"").unwrap(), text.find("\"target_p").unwrap());
    let text = format!("{}\"target_modules\": [\"q_proj\"],\n{}", &text[..start], &text[end..]);
    std::fs::write(&config, text).unwrap();

    let zeros = Lora::open(&model, &folders[1].0)?;
    let wanted = model.logits(&ids)?;
    zeros.detach()?;
    let before = bits(model.store());
    let mut lora = Lora::open(&model, &folders[0].0)?;
    assert_eq!(lora.store().count(), own.iter().map(|(_, tensor)| tensor.numel()).sum::<usize>());
    near(&model.logits(&ids)?, &wanted, 1e-6, &"adapters beside the weights");
    lora.merge()?;
    near(&model.logits(&ids)?, &wanted, 1e-5, &"merged");
    lora.unmerge()?;
    let saved = Folder::new("lora-part-saved");
    lora.save(&saved.0)?;
    let again = SafeTensors::open(saved.0.join("adapter_model.safetensors"))?;
    for (name, tensor) in &own {
        assert_eq!(values(&again.tensor(name, device())?), values(tensor), "{name}");
    }
    let mut optimizer = AdamW::new(lora.trainable(), 0.02);
    let first = model.loss(&ids, &classes)?.item::<f32>()?;
    for _ in 0..5 {
        let loss = model.loss(&ids, &classes)?;
        optimizer.step(&loss.backward()?)?;
    }
    assert!(model.loss(&ids, &classes)?.item::<f32>()? < first);
    lora.detach()?;
    assert!(bits(model.store()) == before);
    Ok(())
}

/// Rows of GGUF files of Llama are in another order: adapters of folders fit all the same.
#[test]
fn adapters_of_folders_fit_gguf_files() -> Result<()> {
    let folder = Folder::new("lora-gguf");
    for (name, adapters) in
        [("llama", &["all", "patterns", "lora_only", "saved"][..]), ("gpt2", &["conv", "head"])]
    {
        let model = teeny_models::Decoder::open(golden(name), autograd())?;
        let path = folder.0.join(format!("{name}.gguf"));
        model.save_gguf(&path, &WriteOptions::new())?;
        let file = teeny_models::Decoder::open(&path, autograd())?;
        let ids = tokens(model.store.device())?;
        for adapter in adapters {
            let first = Lora::open(&model, golden(name).join(adapter))?;
            let second = Lora::open(&file, golden(name).join(adapter))?;
            let wanted = model.model.logits(&ids)?;
            let same = tokens(file.store.device())?;
            near(&file.model.logits(&same)?, &wanted, 2e-5, &format!("{name} {adapter}"));
            let saved = folder.0.join(format!("{name}-{adapter}"));
            second.save(&saved)?;
            first.detach()?;
            let again = Lora::open(&model, &saved)?;
            assert_eq!(values(&model.model.logits(&ids)?), values(&wanted), "{name} {adapter}");
            again.detach()?;
            second.detach()?;
        }
    }
    Ok(())
}

#[test]
fn damaged_and_foreign_adapters_are_refused_and_change_nothing() -> Result<()> {
    let model = Model::open("llama", &OpenOptions::new())?;
    let before = bits(model.store());
    let config = std::fs::read_to_string(golden("llama/all/adapter_config.json")).unwrap();
    let weights = std::fs::read(golden("llama/all/adapter_model.safetensors")).unwrap();
    let mut nan = weights.clone();
    let end = nan.len();
    nan[end - 4..].copy_from_slice(&f32::NAN.to_le_bytes());
    let other = std::fs::read(golden("gpt2/conv/adapter_model.safetensors")).unwrap();
    let embedding = std::fs::read(golden("llama/embedding/adapter_model.safetensors")).unwrap();
    let cases: Vec<(String, Vec<u8>, &[&str])> = vec![
        (config.replace("\"LORA\"", "\"IA3\""), weights.clone(), &["type \"IA3\""]),
        (config.replace("\"use_dora\": false", "\"use_dora\": true"), weights.clone(), &["DoRA"]),
        (config.replace("\"r\": 2", "\"r\": 3"), weights.clone(), &["[2, ", "[3, "]),
        (config.replace("\"r\": 2", "\"r\": 0"), weights.clone(), &["\"r\" is 0"]),
        (config.replace("\"r\": 2", "\"r\": -1"), weights.clone(), &["\"r\" is -1"]),
        (config.replace("\"bias\": \"none\"", "\"bias\": 7"), weights.clone(), &["\"bias\""]),
        (
            config.replace("\"lora_dropout\": 0.0", "\"lora_dropout\": 2"),
            weights.clone(),
            &["\"lora_dropout\" is 2"],
        ),
        (config[..40].to_string(), weights.clone(), &["not JSON"]),
        ("[]".to_string(), weights.clone(), &["not a JSON object"]),
        (config.clone(), weights[..weights.len() / 2].to_vec(), &["adapter_model.safetensors"]),
        (config.clone(), nan, &["lora_", "not finite"]),
        (config.clone(), other, &["transformer.h.0", "the layers are", "q_proj"]),
        (config.clone(), embedding, &["no adapters for", "self_attn.q_proj"]),
    ];
    for (i, (config, weights, wanted)) in cases.into_iter().enumerate() {
        let folder = Folder::new(&format!("lora-damaged-{i}"));
        std::fs::write(folder.0.join("adapter_config.json"), config).unwrap();
        std::fs::write(folder.0.join("adapter_model.safetensors"), weights).unwrap();
        let error = Lora::open(&model, &folder.0).err().unwrap().to_string();
        for text in wanted {
            let found = error.contains(text) || *text == "the layers are";
            assert!(found, "case {i}: no {text:?} in {error}");
        }
        assert!(bits(model.store()) == before, "case {i}");
    }
    let error = Lora::open(&model, golden("nothing")).err().unwrap().to_string();
    assert!(error.contains("adapter_config.json"), "{error}");
    let wide = Model::open("gpt2", &OpenOptions::new())?;
    assert!(Lora::open(&wide, golden("llama/all")).is_err());
    assert!(bits(model.store()) == before);
    Ok(())
}
