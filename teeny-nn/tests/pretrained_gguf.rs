//! Folders of decoders that are written as GGUF files: the same model.
//! `golden/check_gguf.py` reads them with llama.cpp.

use crate::common::*;
use crate::pretrained_decoders::{FOLDERS, expected, golden, tokens};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::path::Path;
use teeny_core::{DType, QuantType, Result, Tensor};
use teeny_nn::pretrained::{Decoder, GgufModel, OpenOptions};
use teeny_nn::state::gguf::{ElementType, Gguf, WriteOptions, save};
use teeny_nn::state::write;

/// A copy at `path` of a golden folder without what GGUF does not say.
fn folder(path: &str, name: &str) -> Folder {
    let folder = Folder::copy(path, &golden(name));
    change(&folder.0, |config| {
        if config.get("query_pre_attn_scalar").is_some() {
            config["query_pre_attn_scalar"] = json!(8);
        }
        config["scale_attn_by_inverse_layer_idx"] = json!(false);
    });
    folder
}

/// Changes the configuration of a folder.
fn change(folder: &Path, f: impl FnOnce(&mut Value)) {
    let path = folder.join("config.json");
    let mut values = parse(&fs::read_to_string(&path).unwrap());
    f(&mut values);
    fs::write(&path, values.to_string()).unwrap();
}

fn write_gguf(from: &Path, to: &Path, options: &WriteOptions) -> Result<()> {
    let model = GgufModel::open(from, device())?;
    save(to, model.metadata(), &model, options, device(), |_| {})
}

fn logits(decoder: &Decoder, name: &str) -> Result<Vec<f64>> {
    let text = Tensor::new([tokens(&expected(name)["tokens"])], decoder.store.device())?;
    Ok(values(&decoder.model.logits(&text)?))
}

/// Keeps a file and what it computes in the folder that `TEENY_SAVED` names, if it is set.
fn keep(file: &Path, name: &str, computed: &Value) {
    if let Some(folder) = std::env::var_os("TEENY_SAVED") {
        let folder = Path::new(&folder).join("gguf");
        fs::create_dir_all(&folder).unwrap();
        fs::copy(file, folder.join(format!("{name}.gguf"))).unwrap();
        fs::write(folder.join(format!("{name}.json")), computed.to_string()).unwrap();
    }
}

#[test]
fn folders_of_every_family_become_files_of_the_same_model() -> Result<()> {
    for name in FOLDERS {
        let folder = folder(&format!("gguf-family-{name}"), name);
        let to = folder.0.join("out.gguf");
        write_gguf(&folder.0, &to, &WriteOptions::new())?;
        let (own, read) = (Decoder::open(&folder.0, device())?, Decoder::open(&to, device())?);
        let (wanted, got) = (logits(&own, name)?, logits(&read, name)?);
        // sums over a head have another order in Llama's files; numbers of the rotary embedding have
        // 32 bits
        let inexact = ["llama", "mistral", "phi3-long"].iter().any(|own| name.starts_with(own));
        let largest = wanted.iter().fold(1.0, |a: f64, x| a.max(x.abs()));
        let tolerance = if inexact { 2e-6 * largest } else { 0.0 };
        assert_close(&got, &wanted, tolerance, &name);
        assert_eq!(read.generation.eos_tokens, own.generation.eos_tokens, "{name}");
        // from the parameters in memory the same bytes
        let again = folder.0.join("again.gguf");
        own.save_gguf(&again, &WriteOptions::new())?;
        assert!(fs::read(&to).unwrap() == fs::read(&again).unwrap(), "{name}");
        let kept = match name {
            // llama.cpp divides by the factors of texts beyond 16 tokens
            "phi3-long" => {
                change(&folder.0, |config| {
                    let rope = &mut config["rope_parameters"];
                    rope["short_factor"] = rope["long_factor"].clone();
                });
                logits(&Decoder::open(&folder.0, device())?, name)?
            }
            _ => wanted,
        };
        keep(&to, name, &json!({"tokens": expected(name)["tokens"], "logits": kept}));
        let file = Gguf::open(&to)?;
        let architecture = file.metadata()["general.architecture"].as_str();
        let names = ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2"];
        let wanted = names.into_iter().rev().find(|own| name.starts_with(own)).unwrap_or("llama");
        assert_eq!(architecture, Some(wanted), "{name}");
        assert_eq!(file.metadata()["general.file_type"].as_u64(), Some(0));
    }
    Ok(())
}

#[test]
fn weights_keep_their_types_or_get_others_by_name() -> Result<()> {
    let folder = folder("gguf-types", "llama-tied");
    let to = folder.0.join("out.gguf");
    let types = |options: &WriteOptions| -> Result<HashMap<String, &str>> {
        write_gguf(&folder.0, &to, options)?;
        let file = Gguf::open(&to)?;
        Ok(file.entries().iter().map(|(name, of)| (name.clone(), of.type_name())).collect())
    };
    // rows of 24 are no blocks, those of 32 are
    let q4 = ElementType::Quantized(QuantType::Q4_0);
    let bf16 = ElementType::Plain(DType::BF16);
    let found = types(&WriteOptions::new().with_matrices(q4).with_tensor("attn_q", bf16))?;
    assert_eq!(found["blk.0.ffn_down.weight"], "Q4_0");
    assert_eq!(found["blk.0.attn_q.weight"], "BF16");
    assert_eq!(found["blk.0.attn_k.bias"], "F32");
    assert_eq!(found["token_embd.weight"], "F32");
    assert!(!found.contains_key("output.weight"));

    // what was quantised in memory stays as it is, in rows of another order
    let wide = wide_llama("quantised")?;
    let options = OpenOptions::new().with_quantize(QuantType::Q8_0);
    let own = Decoder::open_with(&wide.0, &options, device())?;
    own.save_gguf(&to, &WriteOptions::new())?;
    let read = Decoder::open(&to, device())?;
    let file = Gguf::open(&to)?;
    let joined =
        own.store.all().into_iter().find(|p| p.name().ends_with("1.self_attn.qkv_proj.weight"));
    let joined = joined.unwrap().quantized().unwrap();
    // 4 heads of 16 rows of queries, 2 of keys, 2 of values
    let rotated = |first: usize, count: usize| -> Vec<usize> {
        (0..count).map(|i| first + i / 16 * 16 + i % 16 / 2 + i % 2 * 8).collect()
    };
    for (name, rows) in [
        ("blk.1.attn_q.weight", rotated(0, 64)),
        ("blk.1.attn_k.weight", rotated(64, 32)),
        ("blk.1.attn_v.weight", (96..128).collect()),
    ] {
        let kept = file.quantized(name, device())?.unwrap().to_blocks()?;
        assert_eq!(kept, joined.select_rows(&rows)?.to_blocks()?, "{name}");
    }
    let (got, wanted) = (logits(&read, "llama")?, logits(&own, "llama")?);
    assert_close(&got, &wanted, 0.05, &"quantised");
    Ok(())
}

/// A folder of a Llama with rows of whole blocks.
fn wide_llama(name: &str) -> Result<Folder> {
    let folder = Folder::new(&format!("wide-{name}"));
    let config = json!({
        "model_type": "llama", "vocab_size": 40, "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
        "max_position_embeddings": 64,
    });
    fs::write(folder.0.join("config.json"), config.to_string()).unwrap();
    let mut tensors = Vec::new();
    let mut add = |name: &str, shape: &[usize]| -> Result<()> {
        let x = Tensor::randn(shape, DType::F32, &device())?.mul(0.2)?;
        tensors.push((name.to_string(), x));
        Ok(())
    };
    add("model.embed_tokens.weight", &[40, 64])?;
    add("lm_head.weight", &[40, 64])?;
    add("model.norm.weight", &[64])?;
    for i in 0..2 {
        for (name, shape) in [
            ("input_layernorm", &[64][..]),
            ("post_attention_layernorm", &[64]),
            ("self_attn.q_proj", &[64, 64]),
            ("self_attn.k_proj", &[32, 64]),
            ("self_attn.v_proj", &[32, 64]),
            ("self_attn.o_proj", &[64, 64]),
            ("mlp.gate_proj", &[96, 64]),
            ("mlp.up_proj", &[96, 64]),
            ("mlp.down_proj", &[64, 96]),
        ] {
            add(&format!("model.layers.{i}.{name}.weight"), shape)?;
        }
    }
    let mut file = fs::File::create(folder.0.join("model.safetensors")).unwrap();
    write(&mut file, &tensors, &Default::default())?;
    Ok(folder)
}

#[test]
fn models_that_gguf_does_not_have_are_refused() -> Result<()> {
    let refused = |folder: &Path, part: &str| {
        let to = folder.join("out.gguf");
        let error = write_gguf(folder, &to, &WriteOptions::new()).unwrap_err().to_string();
        assert!(error.contains(part), "{part}: {error}");
        assert!(!to.exists());
    };
    // options
    for (name, key, value, part) in [
        ("gemma2", "query_pre_attn_scalar", json!(10), "factor of the scores"),
        ("gemma2", "attn_logit_softcapping", json!(null), "softcap of the scores"),
        ("gpt2", "scale_attn_by_inverse_layer_idx", json!(true), "scores by layer"),
        ("gpt2", "activation_function", json!("relu"), "activation"),
        ("llama", "hidden_act", json!("gelu"), "activation"),
        ("llama", "num_hidden_layers", json!(2), "unexpected keys: layers.2."),
        ("llama", "intermediate_size", json!(64), "its rule is for 64 rows"),
        (
            "llama",
            "vocab_size",
            json!(41),
            "embed_tokens.weight is (40, 24), but should be (41, 24)",
        ),
        ("llama", "tie_word_embeddings", json!("no"), "\"tie_word_embeddings\""),
    ] {
        let folder = folder(&format!("gguf-refused-{name}"), name);
        change(&folder.0, |config| config[key] = value);
        refused(&folder.0, part);
    }
    // files of GGUF
    let folder = folder("gguf-refused", "llama");
    let to = folder.0.join("out.gguf");
    write_gguf(&folder.0, &to, &WriteOptions::new())?;
    let decoder = Decoder::open(&to, device())?;
    let error = decoder.save_gguf(folder.0.join("a"), &WriteOptions::new()).unwrap_err();
    assert!(error.to_string().contains("was opened from a GGUF file"), "{error}");
    let error = GgufModel::open(&to, device()).err().unwrap().to_string();
    assert!(error.contains("a GGUF file already"), "{error}");
    Ok(())
}
