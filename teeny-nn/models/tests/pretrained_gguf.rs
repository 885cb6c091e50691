//! Folders of decoders that are written as GGUF files: the same model, tokenizer and template.
//! `golden/check_gguf.py` reads them with llama.cpp.

use crate::common::*;
use crate::pretrained_decoders::{FOLDERS, expected, golden, tokens};
use crate::pretrained_texts::encoder_folder;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::Path;
use teeny_core::{DType, QuantType, Result, Tensor};
use teeny_formats::gguf::{ElementType, Gguf, Value as Key, WriteOptions, save};
use teeny_formats::{Mapping, TensorSource, open_weights, write};
use teeny_models::{Decoder, Encoder, GgufModel, OpenOptions, PoolingMode};
use teeny_text::{EncodeOptions, PretrainedTokenizer, Tokenizer};

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
pub fn change(folder: &Path, f: impl FnOnce(&mut Value)) {
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
        // sums over a head have another order in Llama's files; numbers of the rotary embedding
        // have 32 bits
        let inexact =
            ["llama", "mistral", "granite", "phi3-long"].iter().any(|own| name.starts_with(own));
        let largest = wanted.iter().fold(1.0, |a: f64, x| a.max(x.abs()));
        let tolerance = if inexact { 4e-6 * largest } else { 0.0 };
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
        // Mistral's files have Llama's architecture
        let family = name.split('-').next().unwrap_or(name);
        let is_llama = family.starts_with("llama") || family == "mistral";
        let wanted = if is_llama { "llama" } else { family };
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
    // rows of 24 are not whole blocks, rows of 32 are
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
        let x = Tensor::randn(shape, DType::F32, device())?.mul(0.2)?;
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

/// The folder of made-up tokenizers.
fn tokenizers() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../text/tests/golden/tokenizers")
}

/// The tokenizer of a folder, by the file in `golden/tokenizers`.
const TOKENIZERS: [(&str, &str); 8] = [
    ("gpt2", "gpt2"),
    ("llama-tied", "smollm"),
    ("llama3", "llama3"),
    ("qwen3", "qwen2"),
    ("llama", "llama2"),
    ("mistral", "mistral"),
    ("gemma3", "gemma"),
    ("phi3", "phi3"),
];

/// The tokenizer `name`, which has all merges of two tokens that make a token, as converted ones
/// of SentencePiece have.
fn tokenizer(name: &str) -> Value {
    let path = tokenizers().join(format!("{name}.json"));
    let mut file = parse(&fs::read_to_string(path).unwrap());
    if file["model"]["byte_fallback"] != json!(true) {
        return file;
    }
    let pair = |merge: &Value| match merge.as_str() {
        Some(line) => line.split_once(' ').map(|(a, b)| (a.to_string(), b.to_string())).unwrap(),
        None => (merge[0].as_str().unwrap().into(), merge[1].as_str().unwrap().into()),
    };
    let added = file["added_tokens"].as_array().unwrap();
    let added: Vec<String> =
        added.iter().map(|token| token["content"].as_str().unwrap().to_string()).collect();
    let is_plain = |text: &str| {
        let known = file["model"]["vocab"].get(text).is_some();
        known && !added.iter().any(|own| own == text) && !text.starts_with("<0x")
    };
    let mut order: Vec<String> = Vec::new();
    for merge in file["model"]["merges"].as_array().unwrap() {
        let (a, b) = pair(merge);
        order.push(format!("{a}{b}"));
    }
    let vocab = file["model"]["vocab"].as_object().unwrap();
    order.extend(vocab.keys().filter(|text| is_plain(text)).cloned());
    let mut merges: Vec<Value> = Vec::new();
    for (i, text) in order.iter().enumerate().filter(|(_, text)| is_plain(text)) {
        for (at, _) in text.char_indices().skip(1).filter(|_| !order[..i].contains(text)) {
            let (a, b) = text.split_at(at);
            merges.extend((is_plain(a) && is_plain(b)).then(|| json!([a, b])));
        }
    }
    file["model"]["merges"] = json!(merges);
    file
}

/// The tokenizer with what GGUF has instead: no normal form, a space before each text between
/// added tokens, which are found in the text as it is, inside words too, without white space.
fn without_differences(mut file: Value) -> Value {
    if file["normalizer"]["type"] == "NFC" {
        file["normalizer"] = json!(null);
    }
    if file["pre_tokenizer"]["type"] == "Metaspace" {
        file["pre_tokenizer"] = json!(null);
        file["normalizer"] = tokenizer("llama2")["normalizer"].clone();
    }
    for token in file["added_tokens"].as_array_mut().unwrap() {
        for key in ["lstrip", "rstrip", "single_word", "normalized"] {
            token[key] = json!(false);
        }
    }
    file
}

/// Gives the model of a folder the vocabulary of a tokenizer, and rows that no token has.
fn add_tokenizer(folder: &Path, file: &Value) -> Result<()> {
    fs::write(folder.join("tokenizer.json"), file.to_string()).unwrap();
    let names: Vec<&str> = file["added_tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|token| token["content"].as_str().unwrap())
        .collect();
    let first = |options: &[&'static str]| {
        options.iter().copied().find(|option| names.contains(option)).unwrap_or_default()
    };
    let config = json!({
        "bos_token": first(&["<bos>", "<s>", "<|endoftext|>"]),
        "eos_token": first(&["</s>", "<|im_end|>", "<|endoftext|>"]),
        "chat_template": "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}\
                          {{ eos_token }}{% endfor %}",
    });
    fs::write(folder.join("tokenizer_config.json"), config.to_string()).unwrap();
    let tokenizer = PretrainedTokenizer::open(folder)?;
    let vocab = tokenizer.vocab_size() + 3;
    change(folder, |config| {
        config["vocab_size"] = json!(vocab);
        config["eos_token_id"] = json!([tokenizer.eos().unwrap(), 5]);
    });
    fs::remove_file(folder.join("generation_config.json")).unwrap();
    let device = device();
    let weights = open_weights(folder, &device)?;
    let mut tensors = Vec::new();
    for (name, _) in weights.shapes() {
        let mut x = weights.read(&name, &device)?;
        if ["embed_tokens.weight", "wte.weight", "lm_head.weight"].iter().any(|e| name.ends_with(e))
        {
            let rows: Vec<i64> = (0..vocab as i64).map(|i| i * 7 % 40).collect();
            x = x.index_select(0, &Tensor::from_vec(rows, vocab, &device)?)?;
        }
        tensors.push((name, x));
    }
    let _ = fs::remove_file(folder.join("model.safetensors.index.json"));
    let mut file = fs::File::create(folder.join("model.safetensors")).unwrap();
    write(&mut file, &tensors, &Default::default())
}

#[test]
fn tokenizers_and_templates_are_in_the_file() -> Result<()> {
    let cases = tokenizers().join("cases.json");
    let cases = parse(&fs::read_to_string(cases).unwrap());
    for (model, name) in TOKENIZERS {
        // llama.cpp looks for tokens of the published Phi 3 in a model of its name
        let folder = folder("gguf-tokens", model);
        let file = tokenizer(name);
        add_tokenizer(&folder.0, &file)?;
        let to = folder.0.join("out.gguf");
        write_gguf(&folder.0, &to, &WriteOptions::new())?;
        let (own, read) = (Decoder::open(&folder.0, device())?, Decoder::open(&to, device())?);
        let wanted = without_differences(file).to_string();
        let wanted = PretrainedTokenizer::from_bytes(wanted.as_bytes())?;
        let (known, got) = (own.tokenizer()?, read.tokenizer()?);
        assert_eq!((got.bos(), got.eos()), (known.bos(), known.eos()), "{name}");
        assert_eq!(got.unk(), known.unk(), "{name}");
        let (mut count, mut kept) = (0, Vec::new());
        for case in cases["cases"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let options = EncodeOptions::default().with_add_special_tokens(case["special"] == true);
            let ids = got.encode_with(text, &options)?.ids;
            assert_eq!(ids, wanted.encode_with(text, &options)?.ids, "{name}: {text:?}");
            for skip in [false, true] {
                let decoded = got.decode_with(&ids, skip)?;
                assert_eq!(decoded, wanted.decode_with(&ids, skip)?, "{name}: {text:?}");
            }
            count += ids.len();
            kept.push(json!({"text": text, "special": case["special"], "ids": ids}));
        }
        keep(&to, &format!("tokens-{name}"), &json!({"texts": kept}));
        assert!(count > 1000, "{count}");
        let ends = &read.generation.eos_tokens;
        assert!(own.generation.eos_tokens.iter().all(|id| ends.contains(id)), "{name}: {ends:?}");
        assert_eq!(read.model.config().vocab, own.model.config().vocab, "{name}");
        #[cfg(feature = "chat")]
        {
            use teeny_models::{ChatOptions, Message};
            let messages = [Message::user("Hello"), Message::assistant("Good day")];
            let text = |decoder: &Decoder| {
                decoder.template().unwrap().render(&messages, &ChatOptions::new())
            };
            assert_eq!(text(&read)?, text(&own)?, "{name}");
            assert!(text(&own)?.contains("<|user|>Hello"));
        }
    }
    Ok(())
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
    // tokenizers
    let text = |name: &str| {
        let path = tokenizers().join(format!("{name}.json"));
        fs::read_to_string(path).unwrap()
    };
    let folder = folder("gguf-refused", "llama");
    add_tokenizer(&folder.0, &parse(&text("llama2")))?;
    refused(&folder.0, "have no merge");
    for (name, part) in [
        ("roberta", "words are split in another way"),
        ("clip", "prefixes or suffixes"),
        ("suffix", "no tokens of bytes"),
        ("bert", "WordPiece"),
        ("byte_normalizer", "texts are normalised"),
        ("metaspace", "no tokens of bytes"),
    ] {
        fs::write(folder.0.join("tokenizer.json"), text(name)).unwrap();
        refused(&folder.0, part);
    }
    let lines = text("qwen2").replace(r"|\\p{N}|", r"|\\p{N}{1,2}|");
    fs::write(folder.0.join("tokenizer.json"), lines).unwrap();
    refused(&folder.0, "the patterns of words are");
    fs::write(folder.0.join("tokenizer.json"), "{").unwrap();
    refused(&folder.0, "tokenizer.json");
    // files of GGUF
    fs::remove_file(folder.0.join("tokenizer.json")).unwrap();
    let to = folder.0.join("out.gguf");
    write_gguf(&folder.0, &to, &WriteOptions::new())?;
    let decoder = Decoder::open(&to, device())?;
    let error = decoder.save_gguf(folder.0.join("a"), &WriteOptions::new()).unwrap_err();
    assert!(error.to_string().contains("was opened from a GGUF file"), "{error}");
    let error = GgufModel::open(&to, device()).err().unwrap().to_string();
    assert!(error.contains("a GGUF file already"), "{error}");
    Ok(())
}

/// llama.cpp takes a number, or a list of one for each layer.
#[test]
fn numbers_of_heads_may_be_lists_of_equal_numbers() -> Result<()> {
    let folder = folder("gguf-head-lists", "llama");
    let to = folder.0.join("out.gguf");
    write_gguf(&folder.0, &to, &WriteOptions::new())?;
    let (file, wanted) = (Gguf::open(&to)?, logits(&Decoder::open(&to, device())?, "llama")?);
    let other = folder.0.join("other.gguf");
    let open = |key: &str, value: Key| {
        let mut keys = file.metadata().clone();
        assert!(keys.insert(key.to_string(), value).is_some(), "{key}");
        save(&other, &keys, &file, &WriteOptions::new(), device(), |_| {})?;
        Decoder::open(&other, device())
    };
    let layers = file.metadata()["llama.block_count"].as_u64().unwrap() as usize;
    for own in ["attention.head_count", "attention.head_count_kv", "feed_forward_length"] {
        let key = format!("llama.{own}");
        let number = file.metadata()[&key].as_u64().unwrap();
        for one in [Key::Unsigned(number), Key::Signed(number as i64)] {
            let decoder = open(&key, Key::List(vec![one; layers]))?;
            assert_eq!(logits(&decoder, "llama")?, wanted, "{key}");
        }
        let mut numbers = vec![Key::Unsigned(number); layers];
        let short = numbers[1..].to_vec();
        numbers[0] = Key::Unsigned(2 * number);
        let texts = vec![Key::Text("4".to_string()); layers];
        for list in [numbers, short, texts, Vec::new()] {
            let error = open(&key, Key::List(list)).err().unwrap().to_string();
            assert!(error.contains(own) && error.contains("each layer"), "{error}");
        }
    }
    // other numbers are single ones
    for own in ["embedding_length", "block_count", "context_length"] {
        let key = format!("llama.{own}");
        let list = Key::List(vec![file.metadata()[&key].clone(); layers]);
        let error = open(&key, list).err().unwrap().to_string();
        assert!(error.contains(own) && error.contains("not a size"), "{error}");
    }
    Ok(())
}

/// Every key of the metadata with every kind of value is the model, or an error that names the key.
#[test]
fn no_key_of_the_metadata_is_passed_over() -> Result<()> {
    let mut opened = 0;
    for name in ["llama", "qwen3", "gemma2", "phi3", "gpt2"] {
        let folder = folder(&format!("gguf-keys-{name}"), name);
        let to = folder.0.join("out.gguf");
        write_gguf(&folder.0, &to, &WriteOptions::new())?;
        let (file, usual) = (Gguf::open(&to)?, Decoder::open(&to, device())?);
        assert!(usual.notes().is_empty(), "{name}: {:?}", usual.notes());
        let other = folder.0.join("other.gguf");
        let open = |key: &str, value: Option<Key>| {
            let mut keys = file.metadata().clone();
            keys.remove(key);
            keys.extend(value.map(|value| (key.to_string(), value)));
            save(&other, &keys, &file, &WriteOptions::new(), device(), |_| {})?;
            Decoder::open(&other, device())
        };
        let arch = file.metadata()["general.architecture"].as_str().unwrap();
        let prefix = format!("{arch}.");
        let is_layer_norm = name == "gpt2";
        let eps = if is_layer_norm { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        let eps = format!("{prefix}attention.{eps}");
        for (key, value) in file.metadata().iter().filter(|(key, _)| key.starts_with(&prefix)) {
            let own = key.strip_prefix(&prefix).unwrap();
            // what llama.cpp needs, this needs too
            let needed = ["context_length", "embedding_length", "block_count"].contains(&own);
            match open(key, None) {
                Ok(_) => assert!(!needed && *key != eps, "{name}: without {key}"),
                Err(error) => {
                    let text = error.to_string();
                    // or that the weights are of another size, or keys of another than values
                    let said = [own, "rows", "heads", "attention.value_length", "shape mismatch"];
                    assert!(said.iter().any(|part| text.contains(part)), "{name}, {key}: {text}");
                }
            }
            let text = Key::Text("several".to_string());
            let other = Key::Bytes(b"caf\xe9".to_vec()); // Latin 1
            let values = [text, other, Key::Signed(-3), Key::Float(f64::NAN), Key::List(vec![])];
            for wrong in values.into_iter().filter(|wrong| wrong != value) {
                match open(key, Some(wrong.clone())) {
                    // what no line of this family reads
                    Ok(decoder) => {
                        opened += 1;
                        assert_eq!(decoder.model.config(), usual.model.config(), "{name}: {key}");
                    }
                    Err(error) => {
                        let text = error.to_string();
                        let is_named = text.contains(own) || text.contains("layer_types");
                        assert!(is_named, "{name}: {key} = {wrong:?}: {text}");
                    }
                }
            }
        }
        let license = open("general.license", Some(Key::Bytes(b"\xa9 caf\xe9".to_vec())))?;
        assert!(license.notes().is_empty());
        let read = Gguf::open(&other)?.metadata()["general.license"].clone();
        assert_eq!(read, Key::Bytes(b"\xa9 caf\xe9".to_vec()));
        let refused = open(&format!("{prefix}rope.scaling.yarn_ext_factor"), Some(Key::Float(0.5)));
        let error = refused.err().unwrap().to_string();
        assert!(error.contains("yarn_ext_factor") && error.contains("0.5"), "{error}");
        let told = open(&format!("{prefix}a_key_of_tomorrow"), Some(Key::Bool(true)))?;
        assert_eq!(told.notes(), [format!("{prefix}a_key_of_tomorrow")]);
    }
    assert!(opened < 36, "{opened} keys are not read");
    Ok(())
}

/// The metadata of the encoder of `encoder_folder`, whose tokenizer is `tokenizer`.
fn encoder_keys(tokenizer: &PretrainedTokenizer) -> BTreeMap<String, Key> {
    let mut keys = BTreeMap::new();
    for (key, number) in [
        ("bert.context_length", 24),
        ("bert.embedding_length", 16),
        ("bert.feed_forward_length", 24),
        ("bert.attention.head_count", 2),
        ("bert.block_count", 2),
        ("bert.pooling_type", 1),
        ("tokenizer.ggml.token_type_count", 2),
    ] {
        keys.insert(key.to_string(), Key::Unsigned(number));
    }
    keys.insert("bert.attention.causal".to_string(), Key::Bool(false));
    keys.insert("bert.attention.layer_norm_epsilon".to_string(), Key::Float(1e-12f32.into()));
    keys.insert("general.architecture".to_string(), Key::Text("bert".to_string()));
    keys.insert("tokenizer.ggml.model".to_string(), Key::Text("bert".to_string()));
    let specials = ["[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"];
    let (mut tokens, mut kinds) = (Vec::new(), Vec::new());
    for id in 0..260 {
        let text = tokenizer.text_of(id).map_or_else(|| format!("[PAD{id}]"), str::to_string);
        let special = specials.contains(&text.as_str());
        kinds.push(Key::Signed(if special { 3 } else { 1 }));
        // the spelling of files: words begin with a mark, the insides of words do not
        tokens.push(Key::Text(match text.strip_prefix("##") {
            Some(inside) => inside.to_string(),
            None if special => text.clone(),
            None => format!("\u{2581}{text}"),
        }));
        let roles = ["unknown", "seperator", "padding", "cls", "mask"];
        if let Some(at) = specials.iter().position(|own| *own == text) {
            let key = format!("tokenizer.ggml.{}_token_id", roles[at]);
            keys.insert(key, Key::Unsigned(id.into()));
        }
        // llama.cpp's name for the first token
        if text == "[CLS]" {
            keys.insert("tokenizer.ggml.bos_token_id".to_string(), Key::Unsigned(id.into()));
        }
    }
    keys.insert("tokenizer.ggml.tokens".to_string(), Key::List(tokens));
    keys.insert("tokenizer.ggml.token_type".to_string(), Key::List(kinds));
    keys
}

#[test]
fn encoders_of_files_embed_as_those_of_folders() -> Result<()> {
    let (folder, own, store, _) = encoder_folder("gguf-encoder");
    let whole = Encoder::open_with(&folder.0, &OpenOptions::new().with_mapping(own), device())?;
    let mut mapping = Mapping::new();
    for end in ["weight", "bias"] {
        let parts = ["q", "k", "v"].map(|part| format!("blk.*.attn_{part}.{end}"));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        let joined = format!("layers.*.self_attn.in_proj_{end}");
        mapping = mapping.split(&joined, &parts, &[16; 3]);
        for (ours, theirs) in [
            ("embeddings.word", "token_embd"),
            ("embeddings.position", "position_embd"),
            ("embeddings.type", "token_types"),
            ("embeddings.norm", "token_embd_norm"),
            ("layers.*.self_attn.out_proj", "blk.*.attn_output"),
            ("layers.*.norm1", "blk.*.attn_output_norm"),
            ("layers.*.linear1", "blk.*.ffn_up"),
            ("layers.*.linear2", "blk.*.ffn_down"),
            ("layers.*.norm2", "blk.*.layer_output_norm"),
        ] {
            mapping = mapping.rename(&format!("{ours}.{end}"), &format!("{theirs}.{end}"));
        }
    }
    let weights = folder.0.join("ours.safetensors");
    store.save(&weights)?;
    let source = mapping.apply(open_weights(&weights, device())?)?;
    let texts = ["The quick brown fox", "caf\u{e9} (42)", "words, w\u{f6}rds and unwordly", "a"];
    let tokens = |of: &Encoder| -> Result<Vec<Vec<u32>>> {
        texts.iter().map(|text| of.tokenizer()?.encode(text)).collect()
    };
    let wanted = tokens(&whole)?;
    let path = folder.0.join("encoder.gguf");
    let mut keys = encoder_keys(whole.tokenizer()?);
    // a capital letter without a small one, as vocabularies of small letters have
    let used = |id: u32| wanted.iter().any(|ids| ids.contains(&id));
    let unused = (5..260).find(|id| !used(*id)).unwrap() as usize;
    if let Some(Key::List(all)) = keys.get_mut("tokenizer.ggml.tokens") {
        all[unused] = Key::Text("\u{2581}\u{211d}".to_string());
    }
    save(&path, &keys, &source, &WriteOptions::new(), device(), |_| {})?;

    assert!(Encoder::knows(&path));
    let encoder = Encoder::open(&path, device())?;
    assert_eq!((encoder.pooling.mode, encoder.pooling.normalize), (PoolingMode::Mean, true));
    assert_eq!(tokens(&encoder)?, wanted);
    let vectors = encoder.embed_texts(&texts)?;
    let wanted = whole.embed_texts(&texts)?.to(vectors.device())?;
    let wanted = wanted.div(&wanted.vector_norm(2.0, -1)?.unsqueeze(-1)?)?;
    let difference = vectors.sub(&wanted)?.abs()?.max(..)?.item::<f32>()?;
    assert!(difference < 1e-6, "{difference}");
    let computed = json!({ "embeddings": values(&vectors), "texts": texts });
    keep(&path, "encoder", &computed);

    let error = encoder.save(folder.0.join("again")).unwrap_err().to_string();
    assert!(error.contains("opened from a GGUF file"), "{error}");
    let error = Decoder::open(&path, device()).err().unwrap().to_string();
    assert!(error.contains("bert"), "{error}");
    keys.insert("bert.pooling_type".to_string(), Key::Unsigned(4));
    save(&path, &keys, &source, &WriteOptions::new(), device(), |_| {})?;
    let error = Encoder::open(&path, device()).err().unwrap().to_string();
    assert!(error.contains("\"pooling_type\" is 4"), "{error}");
    Ok(())
}
