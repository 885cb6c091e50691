//! Models that are saved as folders of Hugging Face and read back. `golden/check_saved.py` reads
//! them with transformers.

use crate::common::*;
use std::fs;
use std::path::{Path, PathBuf};
use teeny_core::{DType, QuantType, Result};
use teeny_models::{Clip, Decoder, Encoder, ImageEncoder, OpenOptions};
use teeny_nn::Store;

fn golden(kind: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(kind)
}

/// The folder for saved models: one that stays, if `TEENY_SAVED` names it.
fn folder(kind: &str) -> (Option<Folder>, PathBuf) {
    if let Some(path) = std::env::var_os("TEENY_SAVED") {
        return (None, Path::new(&path).join(kind));
    }
    let folder = Folder::new(&format!("saved-{kind}"));
    let path = folder.0.clone();
    (Some(folder), path)
}

fn assert_same(a: &Store, b: &Store, name: &str) {
    assert_eq!(a.all().len(), b.all().len(), "{name}");
    for (a, b) in a.all().iter().zip(b.all()) {
        assert_eq!(a.name(), b.name(), "{name}");
        assert_eq!(values(&a.value()), values(&b.value()), "{name}: {}", a.name());
    }
}

/// Opens, saves and opens each golden folder of this kind.
fn there_and_back<T>(
    kind: &str,
    open: impl Fn(&Path, &OpenOptions) -> Result<T>,
    save: impl Fn(&T, &Path) -> Result<()>,
    store: impl Fn(&T) -> &Store,
) {
    let (_kept, to) = folder(kind);
    let mut count = 0;
    for entry in golden(kind).read_dir().unwrap() {
        let from = entry.unwrap().path();
        for (dtype, end) in [(DType::F32, "f32"), (DType::BF16, "bf16")] {
            let name = format!("{}-{end}", from.file_name().unwrap().to_str().unwrap());
            let options = OpenOptions::new().with_dtype(dtype);
            let model = open(&from, &options).unwrap();
            save(&model, &to.join(&name)).unwrap();
            let again = open(&to.join(&name), &options).unwrap();
            assert_same(store(&model), store(&again), &name);
            let config = fs::read_to_string(to.join(&name).join("config.json")).unwrap();
            let dtype = if end == "f32" { "float32" } else { "bfloat16" };
            assert_eq!(parse(&config)["dtype"], dtype, "{name}");
            count += 1;
        }
    }
    assert!(count >= 4, "{count}");
}

#[test]
fn saved_models_are_read_back() {
    there_and_back(
        "decoders",
        |path, options| Decoder::open_with(path, options, device()),
        |model, path| model.save(path),
        |model| &model.store,
    );
    there_and_back(
        "pretrained",
        |path, options| Encoder::open_with(path, options, device()),
        |model, path| model.save(path),
        |model| &model.store,
    );
    there_and_back(
        "vision",
        |path, options| ImageEncoder::open_with(path, options, device()),
        |model, path| model.save(path),
        |model| &model.store,
    );
    there_and_back(
        "clip",
        |path, options| Clip::open_with(path, options, device()),
        |model, path| model.save(path),
        |model| &model.store,
    );
}

#[test]
fn weights_above_a_size_are_saved_in_parts() -> Result<()> {
    let path = golden("decoders").join("qwen3");
    let model = Decoder::open(&path, device())?;
    let to = Folder::new("saved-parts");
    model.save(&to.0)?;
    let whole = fs::metadata(to.0.join("model.safetensors")).unwrap().len();
    fs::remove_file(to.0.join("model.safetensors")).unwrap();
    // the names of this crate, read by the family's mapping, which knows them too
    let mapping = teeny_formats::Mapping::new();
    model.store.save_parts(&to.0, &mapping, whole / 4)?;
    let parts = to.0.read_dir().unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name().into_string().unwrap();
        name.starts_with("model-0000") && name.contains("-of-0000")
    });
    let parts = parts.count();
    assert!((4..=8).contains(&parts), "{parts} parts");
    let index = fs::read_to_string(to.0.join("model.safetensors.index.json")).unwrap();
    let index = parse(&index);
    assert_eq!(index["weight_map"].as_object().unwrap().len(), model.store.all().len());
    assert_eq!(index["metadata"]["total_size"], 4 * model.store.count());
    assert_same(&model.store, &Decoder::open(&to.0, device())?.store, "parts");
    // one file again: the parts are not read in its place
    model.store.save_parts(&to.0, &mapping, u64::MAX)?;
    assert!(!to.0.join("model.safetensors.index.json").exists());
    assert_same(&model.store, &Decoder::open(&to.0, device())?.store, "one file");
    model.store.save_parts(&to.0, &mapping, whole / 4)?;
    assert!(!to.0.join("model.safetensors").exists());
    // a part for each tensor
    let each = Folder::new("saved-tensors");
    model.store.save_parts(&each.0, &mapping, 1)?;
    assert_eq!(each.0.read_dir().unwrap().count(), model.store.all().len() + 1);
    Ok(())
}

#[test]
fn places_where_no_model_can_be_saved_say_why() {
    let to = Folder::new("saved-refused");
    let gguf = Decoder::open(golden("decoders_gguf").join("llama.gguf"), device()).unwrap();
    let error = gguf.save(&to.0).unwrap_err().to_string();
    assert!(error.contains("GGUF"), "{error}");
    let model = Decoder::open(golden("decoders").join("llama"), device()).unwrap();
    model.save(&to.0).unwrap();
    let again = Decoder::open(&to.0, device()).unwrap();
    let error = again.save(&to.0).unwrap_err().to_string();
    assert!(error.contains("opened from"), "{error}");
    let file = to.0.join("config.json");
    let error = model.save(&file).unwrap_err().to_string();
    assert!(error.contains("config.json"), "{error}");
}

/// Opening a model quantised takes the memory of the quantised weights and of one tensor.
#[test]
fn weights_are_quantised_as_they_are_read() -> Result<()> {
    use teeny_nn::transformer::{CausalLm, CausalLmConfig};
    let folder = Folder::new("quantised-open");
    let store = Store::new(teeny_nn::device("cpu")?);
    CausalLm::new(&store.root(), CausalLmConfig::new(2048, 32, 8, 2, 64, 256))?;
    store.save(folder.0.join("model.safetensors"))?;
    let floats = 4 * store.count();
    let config = r#"{"model_type": "phi3", "vocab_size": 2048, "hidden_size": 64,
        "intermediate_size": 256, "num_hidden_layers": 8, "num_attention_heads": 2,
        "max_position_embeddings": 32, "rms_norm_eps": 1e-6}"#;
    std::fs::write(folder.0.join("config.json"), config).unwrap();
    let cpu = teeny_cpu::Cpu::new();
    let options = OpenOptions::new().with_quantize(QuantType::Q8_0);
    let opened = Decoder::open_with(&folder.0, &options, &cpu)?;
    let peak = cpu.pool_stats().peak_live_bytes;
    assert!(peak < floats * 2 / 3, "{peak} bytes, where the weights as floats have {floats}");
    // the blocks of weights that are quantised after they were read
    let whole = Decoder::open(&folder.0, teeny_nn::device("cpu")?)?;
    whole.store.quantize(|param| QuantType::Q8_0.fitting(param.shape()[1]))?;
    for (a, b) in opened.store.all().iter().zip(whole.store.all()) {
        assert_eq!(a.value().to_bytes()?, b.value().to_bytes()?, "{}", a.name());
        assert_eq!(a.quantized().is_some(), b.quantized().is_some(), "{}", a.name());
    }
    Ok(())
}
