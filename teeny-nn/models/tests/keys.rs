//! Keys of other people's files: each is read, known not to matter, refused by name, or told.

use crate::common::*;
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::LazyLock;
use teeny_autograd::Autograd;
use teeny_core::{DeviceRef, Error, Result, random};
use teeny_models::lora::Lora;
use teeny_models::{Clip, Decoder, Encoder, GenerationConfig, ImageEncoder, OpenOptions};
use teeny_text::PretrainedTokenizer;

/// The rows of `keys.txt` of these kinds: key, neutral values, effect.
fn rows(kinds: &[&str]) -> Vec<[&'static str; 3]> {
    let lines =
        include_str!("../../formats/src/keys.txt").lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| !line.is_empty())
        .filter_map(|line| {
            let words: Vec<&str> = line.splitn(4, ' ').collect();
            assert_eq!(words.len(), 4, "{line:?}");
            kinds.contains(&words[0]).then(|| [words[1], words[2], words[3]])
        })
        .collect()
}

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// Any value of JSON.
fn any(i: u64) -> Value {
    let all = [
        json!(true),
        json!(false),
        json!(0),
        json!(1),
        json!(7),
        json!(-1),
        json!(2.5),
        json!(1e300),
        json!("x"),
        json!(""),
        json!([]),
        json!([3]),
        json!([[3, 4]]),
        json!({}),
        json!({"a": 1}),
        json!("é\u{0}"),
    ];
    all[(i % all.len() as u64) as usize].clone()
}

fn is_neutral(row: &[&str; 3], value: &Value) -> bool {
    row[1].split('|').any(|text| serde_json::from_str::<Value>(text).is_ok_and(|v| v == *value))
}

/// One device, which no model waits for.
fn cpu() -> &'static DeviceRef {
    static CPU: LazyLock<DeviceRef> = LazyLock::new(device);
    &CPU
}

type Open = fn(&Folder, &OpenOptions) -> Result<Vec<String>>;

/// A folder of each family, the kinds of its keys, and the folder of that folder.
fn models() -> Vec<(&'static str, &'static [&'static str], &'static str, Open)> {
    let decoder: Open =
        |folder, options| Ok(Decoder::open_with(&folder.0, options, cpu())?.notes().to_vec());
    let encoder: Open =
        |folder, options| Ok(Encoder::open_with(&folder.0, options, cpu())?.notes().to_vec());
    let image: Open =
        |folder, options| Ok(ImageEncoder::open_with(&folder.0, options, cpu())?.notes().to_vec());
    let clip: Open =
        |folder, options| Ok(Clip::open_with(&folder.0, options, cpu())?.notes().to_vec());
    let decoders = [
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "gemma",
        "gemma2",
        "gemma3",
        "phi3",
        "gpt2",
        "granite",
        "starcoder2",
    ];
    let mut all: Vec<_> =
        decoders.map(|name| (name, &["config", "decoder"][..], "decoders", decoder)).to_vec();
    let encoders = ["bert", "roberta", "xlm-roberta", "distilbert"];
    all.extend(encoders.map(|name| (name, &["config", "encoder"][..], "pretrained", encoder)));
    all.push(("vit", &["config", "vision"], "vision", image));
    all.push(("clip", &["config", "vision", "clip"], "clip", clip));
    all
}

/// The families by the root that they are made from.
fn families() -> [(&'static str, Vec<String>); 3] {
    let table = parse(include_str!("../src/families.json"));
    let table = table.as_object().unwrap();
    let root = |name: &String| {
        let mut name = name;
        while let Some(Value::String(like)) = table[name].get("like") {
            name = like;
        }
        name.clone()
    };
    ["llama", "bert", "vit"].map(|of| {
        let mut names: Vec<_> = table.keys().filter(|name| root(name) == of).cloned().collect();
        names.sort();
        (of, names)
    })
}

#[test]
fn the_families_of_the_readme_are_those_of_the_table() {
    let rows = families().map(|(root, names)| {
        let what = match root {
            "llama" => "language models, of GGUF files too",
            "bert" => "encoders, of GGUF files too where they are BERT's",
            _ => "images, and images and texts",
        };
        // the two halves of CLIP have separate families
        let mut names: Vec<_> = names.iter().map(|x| x.split('_').next().unwrap_or(x)).collect();
        names.dedup();
        let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
        format!("| {what} | {} |\n", names.join(", "))
    });
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let readme = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = readme.split_once("in `config.json` |\n|---|---|\n").unwrap();
    let (own, after) = rest.split_once("<!-- end -->").unwrap();
    let wanted = rows.concat();
    if std::env::var_os("TEENY_BLESS").is_some() {
        let text = [before, "in `config.json` |\n|---|---|\n", &wanted, "<!-- end -->", after];
        std::fs::write(path, text.concat()).unwrap();
    } else {
        assert_eq!(own, wanted, "TEENY_BLESS=1 writes them");
    }
}

/// A folder that transformers has saved for each family, at least.
#[test]
fn every_family_has_a_golden_folder() {
    let folders = |of: &str| -> Vec<String> {
        let names = golden(of).read_dir().unwrap().map(|entry| entry.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    };
    for ((_, names), of) in families().into_iter().zip(["decoders", "pretrained", "vision"]) {
        let all = folders(of);
        for name in names.iter().filter(|name| !name.starts_with("clip_")) {
            // one class, whose files differ in this name alone
            let name = match &name[..] {
                "gemma3_text" => "gemma3",
                "camembert" => "xlm-roberta",
                name => name,
            };
            assert!(all.iter().any(|own| own.starts_with(name)), "{name}: {all:?}");
        }
    }
}

#[test]
fn files_of_transformers_have_no_key_that_is_not_known() {
    let mut told = Vec::new();
    for (name, _, of, open) in models() {
        for entry in golden(of).read_dir().unwrap() {
            let (folder, other) = (entry.as_ref().unwrap().path(), entry.unwrap().file_name());
            let other = other.into_string().unwrap();
            if other.split('-').next() == name.split('-').next()
                && folder.join("config.json").exists()
            {
                let folder = Folder::copy(&format!("keys-of-{other}"), &folder);
                match open(&folder, &OpenOptions::new()) {
                    Ok(notes) => {
                        told.extend(notes.into_iter().map(|key| format!("{other}: {key}")))
                    }
                    Err(error) => told.push(error.to_string()),
                }
            }
        }
    }
    assert!(told.is_empty(), "{told:#?}");
}

#[test]
fn every_key_of_a_configuration_is_read_known_refused_or_told() {
    for (seed, (name, kinds, of, open)) in (0..).zip(models()) {
        let folder = Folder::copy(&format!("keys-{name}"), &golden(of).join(name));
        let path = folder.0.join("config.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let usual = open(&folder, &OpenOptions::new()).unwrap();
        assert!(usual.is_empty(), "{name}: {usual:?}");
        let mut values = parse(&text);
        values["a_key_of_tomorrow"] = json!(true);
        std::fs::write(&path, values.to_string()).unwrap();
        assert_eq!(open(&folder, &OpenOptions::new()).unwrap(), ["a_key_of_tomorrow"], "{name}");
        let draws = random::Generator::new(seed);
        for row in rows(kinds) {
            let value = any(draws.below(1 << 20).unwrap() as u64);
            let mut values = parse(&text);
            values[row[0]] = value.clone();
            std::fs::write(&path, values.to_string()).unwrap();
            let case = format!("{name}: {} is {value}", row[0]);
            let said = |error: &Error| error.to_string();
            match open(&folder, &OpenOptions::new()) {
                Ok(notes) => {
                    assert!(row[1] == "*" || is_neutral(&row, &value), "{case} is passed over");
                    // a section that is read tells its members
                    let told = notes.iter().all(|note| note.starts_with("rope_"));
                    assert!(told, "{case}: {notes:?}");
                }
                // an error about sizes that contradict the weights names the whole file
                Err(error) => {
                    let names = [row[0], "sizes and options come from"];
                    assert!(names.iter().any(|x| said(&error).contains(*x)), "{case}: {error}");
                }
            }
            if row[1] != "*" {
                let options = OpenOptions::new().ignore_keys([row[0]]);
                let notes = open(&folder, &options).map_err(|e| said(&e));
                assert_eq!(notes, Ok(Vec::new()), "{case}");
            }
        }
    }
}

#[test]
fn every_key_of_generation_is_read_known_or_refused_when_it_is_used() -> Result<()> {
    let folder = Folder::copy("keys-generation", &golden("decoders/qwen3"));
    let path = folder.0.join("generation_config.json");
    let draws = random::Generator::new(7);
    for row in rows(&["generation"]) {
        let value = any(draws.below(1 << 20)? as u64);
        std::fs::write(&path, json!({row[0]: value}).to_string()).unwrap();
        let decoder = Decoder::open(&folder.0, device())?;
        assert!(decoder.notes().is_empty());
        let run = |config: &GenerationConfig| {
            let config = config.clone().with_max_new_tokens(1);
            decoder.generate(&[vec![3]], &config, |_, _| ControlFlow::Continue(()))
        };
        let is_refused = row[1] != "*" && !is_neutral(&row, &value);
        match run(&decoder.generation) {
            Ok(_) => assert!(!is_refused, "{} = {value} is passed over", row[0]),
            Err(error) => {
                let text = error.to_string();
                assert!(is_refused && text.contains(row[0]) && text.contains(row[2]), "{text}");
            }
        }
        run(&GenerationConfig::new())?;
    }
    std::fs::write(&path, r#"{"a_key_of_tomorrow": 3, "another": null}"#).unwrap();
    assert_eq!(Decoder::open(&folder.0, device())?.notes(), ["a_key_of_tomorrow"]);
    Ok(())
}

#[test]
fn every_key_of_an_adapter_is_read_known_or_refused() -> Result<()> {
    let model = Decoder::open(golden("lora/llama"), autograd())?;
    let folder = Folder::copy("keys-adapter", &golden("lora/llama/all"));
    let path = folder.0.join("adapter_config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let draws = random::Generator::new(11);
    let lora = Lora::open(&model, &folder.0)?;
    assert!(lora.notes().is_empty(), "{:?}", lora.notes());
    lora.detach()?;
    for row in rows(&["adapter"]).into_iter().filter(|row| row[0] != "peft_type") {
        let value = any(draws.below(1 << 20)? as u64);
        let mut values = parse(&text);
        values[row[0]] = value.clone();
        std::fs::write(&path, values.to_string()).unwrap();
        let is_refused = row[1] != "*" && !is_neutral(&row, &value);
        match Lora::open(&model, &folder.0) {
            Ok(lora) => {
                assert!(!is_refused, "{} = {value} is passed over", row[0]);
                assert!(lora.notes().is_empty(), "{:?}", lora.notes());
                lora.detach()?;
            }
            Err(error) => {
                let text = error.to_string();
                assert!(is_refused && text.contains(row[0]) && text.contains(row[2]), "{text}");
            }
        }
    }
    let mut values = parse(&text);
    values["a_key_of_tomorrow"] = json!(true);
    std::fs::write(&path, values.to_string()).unwrap();
    let lora = Lora::open(&model, &folder.0)?;
    assert_eq!(lora.notes(), ["a_key_of_tomorrow"]);
    lora.detach()
}

#[test]
fn every_key_of_a_tokenizer_is_read_known_refused_or_told() -> Result<()> {
    let folder = Folder::new("keys-tokenizer");
    let write = |name: &str, values: &Value| {
        std::fs::write(folder.0.join(name), values.to_string()).unwrap();
    };
    let open = || PretrainedTokenizer::open(&folder.0);
    let draws = random::Generator::new(9);
    for entry in golden("../../../text/tests/golden/tokenizers").read_dir().unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        if path.ends_with("cases.json") {
            continue;
        }
        write("tokenizer_config.json", &json!({}));
        write("tokenizer.json", &parse(&text));
        assert!(open()?.notes().is_empty(), "{path:?}: {:?}", open()?.notes());
        let sections = ["", "model", "normalizer", "pre_tokenizer", "post_processor", "decoder"];
        for section in sections {
            let mut values = parse(&text);
            let part = if section.is_empty() { &mut values } else { &mut values[section] };
            let Some(part) = part.as_object_mut() else { continue };
            part.insert("a_key_of_tomorrow".to_string(), json!(3));
            write("tokenizer.json", &values);
            let told = format!("{section}.a_key_of_tomorrow");
            assert_eq!(open()?.notes(), [told.trim_start_matches('.')], "{path:?}");
        }
        write("tokenizer.json", &parse(&text));
        for row in rows(&["tokenizer-config"]) {
            let value = any(draws.below(1 << 20)? as u64);
            write("tokenizer_config.json", &json!({row[0]: value}));
            let case = format!("{path:?}: {} is {value}", row[0]);
            match open() {
                Ok(tokenizer) => {
                    assert!(row[1] == "*" || is_neutral(&row, &value), "{case} is passed over");
                    assert!(tokenizer.notes().is_empty(), "{case}: {:?}", tokenizer.notes());
                }
                Err(error) => {
                    let text = error.to_string();
                    assert!(row[1] != "*" && text.contains(row[0]), "{case}: {text}");
                }
            }
        }
        let token = json!({"content": "<q>", "lstrip": false, "rstrip": false, "special": true,
            "normalized": false, "single_word": false, "__type": "AddedToken"});
        write("special_tokens_map.json", &json!({"bos_token": token, "pad_token": "<q>"}));
        write("tokenizer_config.json", &json!({"a_key_of_tomorrow": true}));
        assert_eq!(open()?.notes(), ["a_key_of_tomorrow"]);
        std::fs::remove_file(folder.0.join("special_tokens_map.json")).unwrap();
    }
    Ok(())
}

#[test]
fn every_key_of_a_processor_is_read_known_refused_or_told() -> Result<()> {
    let folder = Folder::copy("keys-processor", &golden("vision/vit"));
    let path = folder.0.join("preprocessor_config.json");
    let text = std::fs::read_to_string(&path).unwrap();
    let draws = random::Generator::new(11);
    for _ in 0..8 {
        for row in rows(&["processor"]).into_iter().filter(|row| !row[0].ends_with("_type")) {
            let value = any(draws.below(1 << 20)? as u64);
            let mut values = parse(&text);
            values[row[0]] = value.clone();
            std::fs::write(&path, values.to_string()).unwrap();
            let encoder = ImageEncoder::open(&folder.0, device())?;
            let case = format!("{} is {value}: {:?}", row[0], encoder.notes());
            assert!(encoder.notes().is_empty(), "{case}");
            match encoder.processor() {
                Ok(_) => assert!(row[1] == "*" || is_neutral(&row, &value), "{case}"),
                Err(error) => {
                    assert!(row[1] != "*" && error.to_string().contains(row[0]), "{case}: {error}");
                }
            }
        }
    }
    let mut values = parse(&text);
    values["a_key_of_tomorrow"] = json!(true);
    std::fs::write(&path, values.to_string()).unwrap();
    assert_eq!(ImageEncoder::open(&folder.0, device())?.notes(), ["a_key_of_tomorrow"]);
    Ok(())
}

/// Values of other kinds than `usual`, and numbers that no model has.
fn wrong_kinds(usual: &Value) -> impl Iterator<Item = Value> {
    let all = [
        json!("x"),
        json!(true),
        json!(7),
        json!(-7),
        json!(1e30),
        json!([]),
        json!(["x"]),
        json!([[7]]),
        json!({}),
        json!({"a": 1}),
    ];
    let usual = usual.clone();
    let of_a_kind = |a: &Value, b: &Value| std::mem::discriminant(a) == std::mem::discriminant(b);
    all.into_iter().filter(move |value| !of_a_kind(value, &usual) || *value == json!(-7))
}

/// A file of a model: its folder, its name, the kinds of its keys, and what opens the model.
type File = (PathBuf, &'static str, &'static [&'static str], Open);

/// Files of all kinds, with values that another kind of value is to replace.
fn files() -> Vec<(File, Value)> {
    let read = |(folder, name, kinds, open): File| {
        let text = std::fs::read_to_string(folder.join(name)).unwrap();
        ((folder, name, kinds, open), parse(&text))
    };
    let models = models().into_iter();
    let mut all: Vec<_> = models
        .map(|(name, kinds, of, open)| read((golden(of).join(name), "config.json", kinds, open)))
        .collect();
    let decoder: Open = |folder, _| {
        let decoder = Decoder::open(&folder.0, cpu())?;
        decoder.generate(&[vec![3]], &decoder.generation, |_, _| ControlFlow::Break(()))?;
        Ok(decoder.notes().to_vec())
    };
    let file = (golden("decoders/qwen3"), "generation_config.json", &["generation"][..], decoder);
    let values = json!({
        "max_new_tokens": 20, "min_new_tokens": 1, "do_sample": true, "temperature": 0.5,
        "top_k": 5, "top_p": 0.5, "min_p": 0.1, "repetition_penalty": 1.1,
        "no_repeat_ngram_size": 2, "suppress_tokens": [3], "eos_token_id": 2,
    });
    all.push((file, values));
    let adapter: Open = |folder, _| {
        let model = Decoder::open(golden("lora/llama"), Autograd::new(cpu()))?;
        let lora = Lora::open(&model, &folder.0)?;
        let notes = lora.notes().to_vec();
        lora.detach()?;
        Ok(notes)
    };
    let folder = golden("lora/llama/patterns");
    all.push(read((folder, "adapter_config.json", &["adapter"], adapter)));
    let image: Open = |folder, _| {
        let encoder = ImageEncoder::open(&folder.0, cpu())?;
        encoder.processor()?;
        Ok(encoder.notes().to_vec())
    };
    all.push(read((golden("vision/vit"), "preprocessor_config.json", &["processor"], image)));
    all
}

#[test]
fn a_value_of_another_kind_is_an_error_or_told() {
    let families = parse(include_str!("../src/families.json"));
    let families = families.as_object().unwrap().values().flat_map(|f| f.as_object().unwrap());
    let (mut silent, mut count) = (Vec::new(), 0);
    for (i, ((from, name, kinds, open), values)) in files().into_iter().enumerate() {
        let folder = Folder::copy(&format!("wrong-{i}"), &from);
        let path = folder.0.join(name);
        let members = |of: &Value| of.as_object().cloned().unwrap_or_default();
        let mut places: Vec<(Vec<String>, Value)> = Vec::new();
        for (key, value) in members(&values) {
            let inside = members(&value).into_iter();
            places.extend(inside.map(|(own, value)| (vec![key.clone(), own], value)));
            places.push((vec![key], value));
        }
        if name == "config.json" {
            let others = families.clone().filter(|(key, _)| !key.starts_with(['=', '@']));
            places.extend(others.map(|(key, value)| (vec![key.clone()], value.clone())));
        }
        let of_kinds = rows(kinds);
        let matters = |key: &String| !of_kinds.iter().any(|row| row[0] == key && row[1] == "*");
        for (place, usual) in places.into_iter().filter(|(place, _)| place.iter().all(matters)) {
            for value in wrong_kinds(&usual).filter(|_| !usual.is_null()) {
                let (mut changed, key) = (values.clone(), &place[place.len() - 1]);
                *place.iter().fold(&mut changed, |part, key| &mut part[key]) = value.clone();
                std::fs::write(&path, changed.to_string()).unwrap();
                count += 1;
                let fits = match open(&folder, &OpenOptions::new()) {
                    Ok(notes) => notes.iter().any(|note| note.contains(key)),
                    Err(error) => {
                        [key, "config.json"].iter().any(|x| error.to_string().contains(*x))
                    }
                };
                // one value for all, or numbers that every function takes
                let allowed = [
                    "eos_token_id",
                    "suppress_tokens",
                    "alpha_pattern",
                    "lora_alpha",
                    "image_mean",
                    "image_std",
                    "rescale_factor",
                    "size",
                ];
                let known = name != "config.json" && allowed.contains(&&place[0][..]);
                if !fits && !known {
                    let of = from.file_name().unwrap_or_default();
                    silent.push(format!("{of:?} {}: {value}, not {usual}", place.join(".")));
                }
            }
        }
    }
    assert!(count > 3000 && silent.is_empty(), "{} of {count}: {silent:#?}", silent.len());
}
