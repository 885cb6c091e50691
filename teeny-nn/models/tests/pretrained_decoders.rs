//! Decoders of every family (`golden/decoders`, by `make_decoders.py`) against transformers.

use crate::common::*;
use crate::pretrained_gguf::change;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use teeny_autograd::Autograd;
use teeny_core::{DType, DeviceRef, Lazy, Result, Tensor};
use teeny_formats::gguf::{WriteOptions, save};
use teeny_formats::{SafeTensors, write};
use teeny_models::{Decoder, GgufModel, OpenOptions};
use teeny_nn::attention::RopeScaling;
use teeny_nn::transformer::{CachedLm, CausalInputs, CausalLmConfig, Positions, Rotary};

pub const FOLDERS: [&str; 17] = [
    "llama",
    "llama-tied",
    "llama3",
    "llama-linear",
    "llama-dynamic",
    "llama-yarn",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "phi3-long",
    "gpt2",
    "gemma",
    "granite",
    "starcoder2",
];

pub fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/decoders").join(name)
}

pub fn open(name: &str, dtype: DType) -> Decoder {
    Decoder::open_with(golden(name), &OpenOptions::new().with_dtype(dtype), device()).unwrap()
}

pub fn expected(name: &str) -> Value {
    parse(&fs::read_to_string(golden(name).join("expected.json")).unwrap())
}

pub fn tokens(v: &Value) -> Vec<i32> {
    v.as_array().unwrap().iter().map(|x| x.as_i64().unwrap() as i32).collect()
}

/// The tokens that follow a text, each the most likely one.
fn greedy(decoder: &Decoder, text: &Tensor, count: usize) -> Result<Vec<i32>> {
    let all = decoder.model.generate(text, count, |logits| logits.argmax(-1))?;
    Ok(all.slice(1, text.shape()[1] as isize..)?.to_vec::<i32>()?.to_vec())
}

#[test]
fn decoders_of_every_family_compute_the_logits_and_tokens_of_transformers() -> Result<()> {
    for name in FOLDERS {
        let want = expected(name);
        for (dtype, tolerance) in [(DType::F32, 1e-4), (DType::F64, 1e-4), (DType::BF16, 0.15)] {
            let decoder = open(name, dtype);
            let like = decoder.store.all()[0].value();
            let text = Tensor::new([tokens(&want["tokens"])], like.device())?;
            let logits = decoder.model.logits(&text)?;
            let key = if dtype == DType::BF16 { "logits_bf16" } else { "logits" };
            let largest = flat(&want[key]).iter().fold(0.0, |a: f64, x| a.max(x.abs()));
            assert_close(
                &values(&logits),
                &flat(&want[key]),
                tolerance * largest.max(1.0),
                &format!("{name} {dtype}"),
            );
            if dtype != DType::F32 {
                continue;
            }
            assert_eq!(greedy(&decoder, &text, 32)?, tokens(&want["greedy"]), "{name}");
            // without a cache
            let mut all = text.clone();
            for _ in 0..32 {
                let next = decoder.model.logits(&all)?.at(1, -1)?.argmax(-1)?.unsqueeze(1)?;
                all = Tensor::cat(&[&all, &next], 1)?;
            }
            let new = all.slice(1, 12..)?.to_vec::<i32>()?;
            assert_eq!(new, tokens(&want["greedy"]), "{name} without a cache");
        }
    }
    Ok(())
}

/// The spellings of published files: the language model of Gemma 3 beside what sees images, the
/// partly rotated heads of Phi 4 mini, and keys that a family does not use.
#[test]
fn other_spellings_are_the_same_model() -> Result<()> {
    let folder = Folder::copy("spelling-gemma3", &golden("gemma3"));
    let path = folder.0.join("model.safetensors");
    let file = SafeTensors::open(&path)?;
    let read = |name: &String| {
        let own = name.replacen("model.", "language_model.model.", 1);
        Ok((own, file.tensor(name, device())?))
    };
    let mut all = file.entries().keys().map(read).collect::<Result<Vec<_>>>()?;
    for name in ["multi_modal_projector.mm_soft_emb_norm.weight", "vision_tower.a.weight"] {
        all.push((name.to_string(), all[0].1.clone()));
    }
    let mut bytes = Vec::new();
    write(&mut bytes, &all, &Default::default())?;
    fs::write(&path, bytes).unwrap();
    let text = Tensor::new([tokens(&expected("gemma3")["tokens"])], device())?;
    let of = |decoder: &Decoder| -> Result<Vec<f64>> {
        Ok(values(&decoder.model.logits(&text.to(decoder.store.device())?)?))
    };
    let wanted = of(&open("gemma3", DType::F32))?;
    assert_eq!(of(&Decoder::open(&folder.0, device())?)?, wanted);
    // transformers' Gemma 3 has no softcap of the scores
    change(&folder.0, |config| config["attn_logit_softcapping"] = json!(1.0));
    let decoder = Decoder::open(&folder.0, device())?;
    assert_eq!(of(&decoder)?, wanted);
    assert_eq!(decoder.notes(), ["attn_logit_softcapping"]);

    let folder = Folder::copy("spelling-phi3", &golden("phi3-long"));
    change(&folder.0, |config| {
        let mut rope = config["rope_parameters"].take();
        config["partial_rotary_factor"] = rope["partial_rotary_factor"].take();
        config["rope_theta"] = rope["rope_theta"].take();
        rope["type"] = json!("longrope");
        config["rope_scaling"] = rope;
    });
    let text = Tensor::new([tokens(&expected("phi3-long")["tokens"])], device())?;
    let logits = |decoder: &Decoder| decoder.model.logits(&text.to(decoder.store.device())?);
    let opened = Decoder::open(&folder.0, device())?;
    assert_eq!(values(&logits(&opened)?), values(&logits(&open("phi3-long", DType::F32))?));
    assert_eq!(opened.notes(), [""; 0]);
    Ok(())
}

#[test]
fn texts_padded_on_the_left_continue_as_alone() -> Result<()> {
    for name in FOLDERS {
        let (want, decoder) = (expected(name), open(name, DType::F32));
        let like = decoder.store.all()[0].value();
        let text = tokens(&want["tokens"]);
        let mut short = vec![0; 9];
        short[5..].copy_from_slice(&text[8..]);
        let batch = Tensor::new([short, text[3..].to_vec()], like.device())?;
        let mut mask: Vec<Vec<bool>> = vec![(0..9).map(|i| i >= 5).collect(), vec![true; 9]];
        let mut caches = decoder.model.caches();
        let (mut new, mut got) = (batch.clone(), vec![Vec::new(), Vec::new()]);
        for step in 0..32 {
            let seen = Tensor::new([mask[0].clone(), mask[1].clone()], like.device())?;
            let inputs = CausalInputs::new(&new).with_mask(&seen);
            let next = decoder.model.next(inputs, &mut caches)?.argmax(-1)?;
            let both = next.to_vec::<i32>()?;
            got.iter_mut().zip(both.iter()).for_each(|(row, id)| row.push(*id));
            new = next.unsqueeze(1)?;
            mask.iter_mut().for_each(|row| row.push(true));
            if name == "phi3-long" && step == 6 {
                break; // transformers computes longer texts with other rotations of the padding
            }
        }
        for (i, row) in want["greedy_padded"].as_array().unwrap().iter().enumerate() {
            let want = &tokens(row)[..got[i].len()];
            assert_eq!(got[i], want, "{name}, text {i} of the batch");
        }
    }
    Ok(())
}

#[test]
fn gguf_files_of_every_layout_are_the_same_models() -> Result<()> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/decoders_gguf");
    let mut count = 0;
    for file in folder.read_dir().unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_string();
        // what the file does not say: scores have the usual scale
        let copy = copy(&format!("gguf-{name}"), &name);
        let config = fs::read_to_string(golden(&name).join("config.json")).unwrap();
        let config = config
            .replace("\"query_pre_attn_scalar\": 10", "\"query_pre_attn_scalar\": 8")
            .replace("_layer_idx\": true", "_layer_idx\": false");
        fs::write(copy.0.join("config.json"), config).unwrap();
        let (decoder, folder) =
            (Decoder::open(&path, device())?, Decoder::open(&copy.0, device())?);
        let text = Tensor::new([tokens(&expected(&name)["tokens"])], decoder.store.device())?;
        let want = folder.model.logits(&text.to(folder.store.device())?)?;
        let largest = values(&want).iter().fold(1.0, |a: f64, x| a.max(x.abs()));
        let logits = decoder.model.logits(&text)?;
        assert_close(&values(&logits), &values(&want), 4e-6 * largest, &name);
        assert_eq!(decoder.generation.eos_tokens, [2], "{name}");
        count += 1;
    }
    assert_eq!(count, 7);
    Ok(())
}

/// A copy of a golden folder, to be changed.
fn copy(name: &str, of: &str) -> Folder {
    Folder::copy(name, &golden(of))
}

#[test]
fn folders_that_are_damaged_say_what_is_wrong() {
    let folder = copy("damaged-decoder", "qwen3");
    let path = folder.0.join("config.json");
    let text = fs::read_to_string(&path).unwrap();
    for (key, value, part) in [
        ("model_type", "\"mamba\"", "no decoder of model_type \"mamba\""),
        ("model_type", "", "\"model_type\" is missing"),
        ("num_attention_heads", "3", "2 key heads do not divide 3 heads"),
        ("num_key_value_heads", "0", "0 key heads do not divide 4 heads"),
        ("num_attention_heads", "8", "self_attn"),
        ("head_dim", "12", "its rule is for 24 rows"),
        ("head_dim", "4000000000", "\"head_dim\""),
        ("head_dim", "7", "7 of 7 elements of a head are rotated, not an even number"),
        ("hidden_size", "1e30", "\"hidden_size\" is 1e+30, not a size"),
        ("hidden_size", "25", "but should be"),
        ("intermediate_size", "33", "its rule is for 33 rows"),
        ("num_hidden_layers", "4", "missing keys: layers.3."),
        ("num_hidden_layers", "2", "unexpected keys: model.layers.2."),
        ("num_hidden_layers", "4000000000", "4000000000 layers, but the weights are"),
        ("vocab_size", "4000000000", "but should be (4000000000, 24)"),
        ("hidden_act", "\"snake\"", "\"hidden_act\" is \"snake\""),
        ("rms_norm_eps", "\"small\"", "not a number"),
        ("rope_parameters", "{\"rope_type\": \"spiral\"}", "\"rope_type\" is \"spiral\""),
        ("rope_parameters", "{\"rope_theta\": 0}", "\"rope_theta\" is 0, not positive"),
        ("rope_parameters", "{\"rope_type\": \"linear\", \"factor\": 0}", "\"factor\""),
        ("rope_parameters", "{\"rope_type\": \"longrope\"}", "\"short_factor\" is not 5 numbers"),
        ("tie_word_embeddings", "1", "\"tie_word_embeddings\" is 1, not true or false"),
        ("quantization_config", "{\"quant_method\": \"gptq\"}", "quantization_config"),
        ("use_bidirectional_attention", "true", "\"use_bidirectional_attention\" is true"),
        ("rope_scaling", "{\"type\": \"linear\"}", "has no \"factor\""),
        ("head_dim", "0", "\"head_dim\" is 0"),
        ("tie_word_embeddings", "true", ""),
    ] {
        let mut values = parse(&text);
        match value {
            "" => drop(values.as_object_mut().unwrap().remove(key)),
            _ => values[key] = parse(value),
        }
        fs::write(&path, values.to_string()).unwrap();
        let opened = Decoder::open(&folder.0, device()).err().map(|e| e.to_string());
        match (opened, part) {
            // the file has a head, which a tied model does not read
            (None, "") => {}
            (Some(said), part) => {
                assert!(!part.is_empty() && said.contains(part), "{part}: {said}")
            }
            (None, part) => panic!("{key} = {value} is opened, not {part}"),
        }
    }
    fs::write(&path, &text).unwrap();
    let generation = folder.0.join("generation_config.json");
    for (config, part) in [
        ("{\"temperature\": -1}", "\"temperature\" is -1"),
        ("[]", "not a JSON object"),
        ("{\"eos_token_id\": [1, \"x\"]}", "\"eos_token_id\""),
        ("[", "not JSON"),
    ] {
        fs::write(&generation, config).unwrap();
        let said = Decoder::open(&folder.0, device()).err().unwrap().to_string();
        assert!(said.contains(part) && said.contains("generation_config"), "{part}: {said}");
    }
}

/// Configurations with values of other kinds and sizes are errors, or models that run.
#[test]
fn no_configuration_panics_or_fills_the_memory() {
    let mut dice = Dice(12_345);
    let mut dice = |n: usize| dice.below(n);
    let values = [
        "0",
        "1",
        "2",
        "-1",
        "3.5",
        "1e30",
        "1e-30",
        "4294967295",
        "18446744073709551615",
        "null",
        "true",
        "false",
        "\"\"",
        "\"linear\"",
        "\"yarn\"",
        "\"longrope\"",
        "\"llama3\"",
        "[]",
        "[1, 2]",
        "[\"sliding_attention\", 1]",
        "{}",
        "{\"rope_type\": \"yarn\", \"factor\": 1e300}",
    ];
    let (mut opened, mut refused, mut written) = (0, 0, 0);
    for name in ["llama-yarn", "gemma3", "phi3-long", "gpt2"] {
        let folder = copy(&format!("config-{name}"), name);
        let path = folder.0.join("config.json");
        let whole = parse(&fs::read_to_string(&path).unwrap());
        let text = Tensor::new([[3i32, 4, 5]], device()).unwrap();
        for _ in 0..400 {
            let mut changed = whole.clone();
            for _ in 0..1 + dice(2) {
                let root = changed.as_object_mut().unwrap();
                let keys: Vec<String> = root.keys().cloned().collect();
                let key = &keys[dice(keys.len())];
                let value = parse(values[dice(values.len())]);
                // a member of a member, half of the time
                match root[key].as_object_mut().filter(|inner| !inner.is_empty() && dice(2) == 0) {
                    Some(inner) => {
                        let keys: Vec<String> = inner.keys().cloned().collect();
                        inner[&keys[dice(keys.len())]] = value;
                    }
                    None => root[key] = value,
                }
            }
            fs::write(&path, changed.to_string()).unwrap();
            match Decoder::open(&folder.0, text.device()) {
                Ok(decoder) => {
                    opened += 1;
                    let logits = decoder.model.logits(&text);
                    // a GGUF file has the same model, or cannot be written
                    let Ok(model) = GgufModel::open(&folder.0, text.device()) else { continue };
                    let (to, types) = (folder.0.join("out.gguf"), WriteOptions::new());
                    save(&to, model.metadata(), &model, &types, text.device(), |_| {}).unwrap();
                    let read = Decoder::open(&to, text.device()).unwrap();
                    written += 1;
                    if let (Ok(a), Ok(b)) = (logits, read.model.logits(&text)) {
                        let (a, b) = (crate::common::values(&a), crate::common::values(&b));
                        let largest = a.iter().fold(1.0, |n: f64, x| n.max(x.abs()));
                        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-4 * largest;
                        let finite = a.iter().all(|x| x.is_finite());
                        assert!(!finite || a.iter().zip(&b).all(close), "{name}: {changed}");
                    }
                }
                Err(error) => {
                    refused += 1;
                    let error = error.to_string();
                    assert!(error.contains("config") || error.contains("model"), "{error}");
                }
            }
        }
    }
    assert!(opened > 200 && refused > 200, "{opened} opened, {refused} refused");
    assert!(written > 100, "{written}");
}

/// The options of the golden folder `of` with other keys, without its own rotary keys.
fn options_with(of: &str, keys: &str) -> CausalLmConfig {
    let folder = copy(&format!("options-{of}"), of);
    let path = folder.0.join("config.json");
    let mut values = parse(&fs::read_to_string(&path).unwrap());
    for key in ["rope_parameters", "original_max_position_embeddings", "layer_types"] {
        values.as_object_mut().unwrap().remove(key);
    }
    for (key, value) in parse(keys).as_object().unwrap() {
        values[key] = value.clone();
    }
    fs::write(&path, values.to_string()).unwrap();
    Decoder::open(&folder.0, device()).unwrap().model.config().clone()
}

fn rotary(options: CausalLmConfig) -> (Rotary, Option<Rotary>) {
    match options.positions {
        Positions::Rotary { full, windowed } => (full, windowed),
        other => panic!("{other:?}"),
    }
}

/// As transformers 5.24 reads these keys (`AutoConfig.from_pretrained(..).rope_parameters`).
#[test]
fn rotary_embeddings_are_read_in_every_spelling() {
    let full = |of: &str, keys: &str| rotary(options_with(of, keys)).0;
    let plain = full("llama", "{}");
    assert_eq!((plain.base, &plain.scaling), (1e4, &RopeScaling::None));
    let old =
        full("llama", r#"{"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2}}"#);
    assert_eq!((old.base, old.scaling), (5e5, RopeScaling::Linear { factor: 2.0 }));
    // the key that users add wins, with the base beside it
    let both = r#"{"rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
        "rope_scaling": {"rope_type": "linear", "factor": 4}, "rope_theta": 2e4}"#;
    let both = full("qwen2", both);
    assert_eq!((both.base, both.scaling), (2e4, RopeScaling::Linear { factor: 4.0 }));
    // the base beside a section that has none
    let beside = r#"{"rope_parameters": {"rope_type": "linear", "factor": 2}, "rope_theta": 5e5}"#;
    assert_eq!(full("llama", beside).base, 5e5);
    let (full_layers, windowed) = rotary(options_with(
        "gemma3",
        r#"{"rope_theta": 5e5, "rope_local_base_freq": 2e4,
            "rope_scaling": {"rope_type": "linear", "factor": 8}}"#,
    ));
    assert_eq!((full_layers.base, full_layers.scaling), (5e5, RopeScaling::Linear { factor: 8.0 }));
    let windowed = windowed.unwrap();
    assert_eq!((windowed.base, windowed.scaling), (2e4, RopeScaling::None));
    let (full_layers, windowed) = rotary(options_with("gemma3", "{}"));
    assert_eq!((full_layers.base, windowed.unwrap().base), (1e6, 1e4));
    // the length of texts in pretraining: of the file, of the section, of the family
    let original = |of: &str, keys: &str| match full(of, keys).scaling {
        RopeScaling::LongRope { original, .. } => original,
        RopeScaling::Yarn { original, .. } => original,
        other => panic!("{other:?}"),
    };
    let section = r#""rope_parameters": {"rope_type": "yarn", "factor": 2,
        "original_max_position_embeddings": 16}"#;
    assert_eq!(original("llama", &format!("{{{section}}}")), 16);
    let top = format!(r#"{{{section}, "original_max_position_embeddings": 8}}"#);
    assert_eq!(original("llama", &top), 8);
    let long = r#"{"rope_scaling":
        {"type": "KIND", "short_factor": [1, 1, 1], "long_factor": [2, 2, 2]}}"#;
    for kind in ["longrope", "su", "yarn"] {
        assert_eq!(original("phi3", &long.replace("KIND", kind)), 4096, "{kind}");
    }
    match full(
        "llama",
        r#"{"rope_parameters": {"rope_type": "yarn", "factor": null,
        "original_max_position_embeddings": 16}}"#,
    )
    .scaling
    {
        RopeScaling::Yarn { factor, .. } => assert_eq!(factor, 4.0),
        other => panic!("{other:?}"),
    }
}

#[test]
fn absent_and_null_keys_are_those_of_the_family() {
    let windows = |of: &str, keys: &str| options_with(of, keys).windows;
    assert_eq!(windows("qwen2", r#"{"sliding_window": null}"#), []);
    assert_eq!(windows("mistral", r#"{"sliding_window": null}"#), []);
    assert_eq!(windows("mistral", "{}"), [Some(5); 3]);
    assert_eq!(windows("qwen2", "{}"), [None, Some(4), Some(4)]);
    assert_eq!(windows("gemma2", "{}"), [Some(4), None, Some(4)]);
    let gpt2 = r#"{"scale_attn_weights": false, "scale_attn_by_inverse_layer_idx": false}"#;
    assert_eq!(options_with("gpt2", gpt2).scale, Some(1.0));
    // the end tokens
    for (name, end) in [("llama", 2), ("gemma2", 1), ("phi3", 32_000), ("gpt2", 50_256)] {
        let folder = copy(&format!("ends-{name}"), name);
        let _ = fs::remove_file(folder.0.join("generation_config.json"));
        let path = folder.0.join("config.json");
        let mut values = parse(&fs::read_to_string(&path).unwrap());
        values.as_object_mut().unwrap().remove("eos_token_id");
        fs::write(&path, values.to_string()).unwrap();
        assert_eq!(Decoder::open(&folder.0, device()).unwrap().generation.eos_tokens, [end]);
    }
}

#[test]
fn keys_of_short_texts_do_not_continue_with_other_rotations() -> Result<()> {
    let decoder = open("phi3-long", DType::F32);
    let mut caches = decoder.model.caches();
    let like = decoder.store.all()[0].value();
    let ids: Vec<i32> = (0..16).map(|i| 3 + i % 30).collect();
    let _ = decoder.model.next(&Tensor::new([ids], &like)?, &mut caches)?;
    let next = decoder.model.next(&Tensor::new([[3i32]], &like)?, &mut caches);
    let error = next.unwrap_err().to_string();
    assert!(error.contains("keys of 16 tokens beyond position 16"), "{error}");
    Ok(())
}

/// The logits of `model` with these keys at all of `ids`.
fn logits_with(name: &str, keys: &Value, context: usize, ids: &[i32]) -> Result<Vec<f64>> {
    let folder = copy(&format!("logits-{name}"), "llama");
    let path = folder.0.join("config.json");
    let mut values = parse(&fs::read_to_string(&path).unwrap());
    for (key, value) in keys.as_object().unwrap() {
        values[key] = value.clone();
    }
    fs::write(&path, values.to_string()).unwrap();
    let options = OpenOptions::new().with_dtype(DType::F64).with_context(context);
    let decoder = Decoder::open_with(&folder.0, &options, device())?;
    let like = decoder.store.all()[0].value();
    let whole = decoder.model.logits(&Tensor::new([ids.to_vec()], &like)?)?;
    // the same text, a part after another, as keys of the first part stay rotated
    if name == "dynamic" {
        let mut caches = decoder.model.caches();
        for part in [&ids[..10], &ids[10..]] {
            let _ = decoder.model.next(&Tensor::new([part.to_vec()], &like)?, &mut caches)?;
        }
    }
    whole.to_vec::<f64>().map(|all| all.to_vec())
}

/// The base of transformers' `_compute_dynamic_ntk_parameters`, for the length of the text.
#[test]
fn dynamic_scaling_follows_the_length_of_the_text() -> Result<()> {
    let factor = 1.5;
    let scaled = serde_json::json!({"rope_parameters":
        {"rope_type": "dynamic", "factor": factor, "rope_theta": 1e4}});
    for (length, context) in [(11, 128), (64, 128), (65, 96), (70, 128), (90, 128)] {
        let ids: Vec<i32> = (0..length).map(|i| (i * 7 + 3) % 40).collect();
        let ratio = (length as f64 / 64.0).max(1.0);
        let base = 1e4 * (factor * ratio - (factor - 1.0)).powf(6.0 / 4.0);
        let plain = serde_json::json!({"rope_parameters":
            {"rope_type": "default", "rope_theta": base}});
        let got = logits_with("dynamic", &scaled, context, &ids)?;
        let want = logits_with("plain", &plain, context, &ids)?;
        assert_close(&got, &want, 1e-9, &format!("{length} of {context}"));
    }
    // the length that the factor is for
    let decoder = open("llama-dynamic", DType::F32);
    assert!(decoder.model.config().context > 64, "{}", decoder.model.config().context);
    Ok(())
}

/// A file's own head is used, though its configuration says that the embedding is the head.
#[test]
fn a_head_in_the_file_is_used() -> Result<()> {
    let ids: Vec<i32> = (3..20).collect();
    let (tied, untied) = (serde_json::json!({"tie_word_embeddings": true}), serde_json::json!({}));
    let [got, want] =
        [("tied", tied), ("untied", untied)].map(|(name, keys)| logits_with(name, &keys, 64, &ids));
    assert_eq!(got?, want?);
    assert!(open("llama-tied", DType::F32).model.config().tied);
    Ok(())
}

/// A key that the family does not have is not read, and is told or refused.
#[test]
fn keys_of_other_families_are_not_read() -> Result<()> {
    let rotated = serde_json::json!({"partial_rotary_factor": 0.5});
    let refused = logits_with("foreign", &rotated, 64, &[3, 4]).unwrap_err().to_string();
    assert!(refused.contains("partial_rotary_factor"), "{refused}");
    let folder = copy("foreign-keys", "llama");
    let path = folder.0.join("config.json");
    let mut values = parse(&fs::read_to_string(&path).unwrap());
    let foreign = [
        ("query_pre_attn_scalar", serde_json::json!(7)),
        ("attn_logit_softcapping", serde_json::json!(2.0)),
        ("n_embd", serde_json::json!(48)),
    ];
    for (key, value) in &foreign {
        values[key] = value.clone();
    }
    fs::write(&path, values.to_string()).unwrap();
    let decoder = Decoder::open(&folder.0, device())?;
    assert_eq!(decoder.notes(), ["attn_logit_softcapping", "n_embd", "query_pre_attn_scalar"]);
    assert_eq!(decoder.model.config(), open("llama", DType::F32).model.config());
    Ok(())
}

#[test]
fn captured_steps_of_every_family_choose_the_same_tokens() -> Result<()> {
    for name in FOLDERS {
        let device: DeviceRef = Autograd::new(Lazy::new(device()));
        let decoder = Decoder::open(golden(name), &device)?;
        let mut captured = CachedLm::new(&decoder.model);
        let text = Tensor::new([tokens(&expected(name)["tokens"])], &device)?;
        let all = captured.generate(&text, 32, |logits| logits.argmax(-1))?;
        let new = all.slice(1, 12..)?.to_vec::<i32>()?;
        assert_eq!(new, tokens(&expected(name)["greedy"]), "{name}");
        let changes = name == "phi3-long" || name == "llama-dynamic";
        assert_eq!(captured.is_replaying(), !changes, "{name}: rotations change with the length");
    }
    Ok(())
}
