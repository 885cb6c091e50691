//! Folders of Hugging Face (`golden/pretrained`, by `make_pretrained.py`) as models.

use crate::common::*;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use teeny_core::{DType, Result, Tensor};
use teeny_formats::{SafeTensors, write};
use teeny_models::lora::{Lora, LoraOptions};
use teeny_models::{Encoder, OpenOptions, PoolingMode, Task};
use teeny_nn::Grad;
use teeny_nn::optim::{AdamW, Optimizer};
use teeny_nn::transformer::EncoderInputs;

const FOLDERS: [&str; 9] = [
    "bert",
    "bert-parts",
    "roberta",
    "xlm-roberta",
    "distilbert",
    "bert-masked",
    "bert-tokens",
    "roberta-pairs",
    "distilbert-texts",
];

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/pretrained").join(name)
}

/// A copy of a golden folder, to be changed.
fn copy(name: &str, of: &str) -> Folder {
    Folder::copy(name, &golden(of))
}

fn integers(v: &Value, like: &Tensor) -> Tensor {
    let rows = v.as_array().unwrap().len();
    let numbers: Vec<i32> = flat(v).iter().map(|&x| x as i32).collect();
    let columns = numbers.len() / rows;
    Tensor::from_vec(numbers, (rows, columns), like.device()).unwrap()
}

struct Case {
    encoder: Encoder,
    tokens: Tensor,
    mask: Tensor,
    types: Option<Tensor>,
    want: Value,
}

impl Case {
    fn open(name: &str, dtype: DType) -> Case {
        let encoder =
            Encoder::open_with(golden(name), &OpenOptions::new().with_dtype(dtype), device())
                .unwrap();
        let want = parse(&fs::read_to_string(golden(name).join("expected.json")).unwrap());
        let like = encoder.store.all()[0].value();
        let tokens = integers(&want["input_ids"], &like);
        let mask = integers(&want["attention_mask"], &like).cast(DType::Bool).unwrap();
        let types = want.get("token_type_ids").map(|types| integers(types, &like));
        Case { encoder, tokens, mask, types, want }
    }

    fn inputs(&self) -> EncoderInputs<'_> {
        let inputs = EncoderInputs::new(&self.tokens).with_mask(&self.mask);
        self.types.iter().fold(inputs, |inputs, types| inputs.with_types(types))
    }
}

#[test]
fn encoders_of_every_family_compute_the_states_of_transformers() {
    for name in FOLDERS {
        for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 2e-5), (DType::BF16, 0.15)] {
            let case = Case::open(name, dtype);
            let states = case.encoder.model.hidden(&case.inputs()).unwrap();
            // the states of padding mean nothing
            let real = flat(&case.want["attention_mask"]);
            let width = states.shape()[2];
            let kept = |all: Vec<f64>| -> Vec<f64> {
                let rows = all.chunks(width).zip(&real).filter(|(_, real)| **real > 0.0);
                rows.flat_map(|(row, _)| row.to_vec()).collect()
            };
            let (got, want) = (kept(values(&states)), kept(flat(&case.want["states"])));
            assert_eq!(got.len(), (7 + 5 + 4) * width);
            assert_close(&got, &want, tolerance, &format!("{name} {dtype}"));
            if !case.want["pooled"].is_null() {
                let pooled = values(&case.encoder.model.pooled(&states).unwrap());
                // the first token of the second text is padding
                let want = flat(&case.want["pooled"]);
                assert_close(&pooled[..width], &want[..width], tolerance, &name);
                assert_close(&pooled[2 * width..], &want[2 * width..], tolerance, &name);
            }
            let Some(head) = &case.encoder.head else {
                assert!(case.want["logits"].is_null(), "{name}");
                continue;
            };
            let logits = case.encoder.logits(&case.inputs()).unwrap();
            let want = flat(&case.want["logits"]);
            let classes = *logits.shape().last().unwrap();
            let all = values(&logits);
            match head.task() {
                // the first token of the second text is padding
                Task::Sequence => {
                    assert_eq!(logits.shape()[..], [3, classes]);
                    for text in [0, 2] {
                        let row = |all: &[f64]| all[text * classes..][..classes].to_vec();
                        assert_close(&row(&all), &row(&want), 2.0 * tolerance, &name);
                    }
                }
                _ => {
                    let rows = |all: Vec<f64>| -> Vec<f64> {
                        let rows = all.chunks(classes).zip(&real).filter(|(_, real)| **real > 0.0);
                        rows.flat_map(|(row, _)| row.to_vec()).collect()
                    };
                    let limit = tolerance * if dtype == DType::BF16 { 3.0 } else { 2.0 };
                    assert_close(&rows(all), &rows(want), limit, &name);
                }
            }
        }
    }
}

#[test]
fn embeddings_are_pooled_as_the_folder_says() -> Result<()> {
    let folder = copy("pooling", "bert");
    let modules = |kinds: &[(&str, &str)]| {
        let text: Vec<String> = kinds
            .iter()
            .map(|(kind, path)| format!("{{\"type\": \"st.models.{kind}\", \"path\": {path:?}}}"))
            .collect();
        fs::write(folder.0.join("modules.json"), format!("[{}]", text.join(","))).unwrap();
    };
    let pooled = |config: &str| {
        fs::create_dir_all(folder.0.join("1_Pooling")).unwrap();
        fs::write(folder.0.join("1_Pooling/config.json"), config).unwrap();
        Encoder::open(&folder.0, device())
    };
    let encoder = Encoder::open(&folder.0, device())?;
    assert_eq!(encoder.pooling.mode, PoolingMode::Mean, "without modules.json");
    assert!(!encoder.pooling.normalize);
    let case = Case::open("bert", DType::F32);
    let states = flat(&case.want["states"]);
    let (width, texts) = (12, [(0, 0..7), (1, 2..7), (2, 0..4)]);
    let column = |text: usize, at: usize, j: usize| states[(7 * text + at) * width + j];
    modules(&[("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]);
    for (config, mode) in [
        (r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false}"#, "mean"),
        (r#"{"pooling_mode": "cls"}"#, "cls"),
        (r#"{"pooling_mode_max_tokens": true}"#, "max"),
        (r#"{"pooling_mode": "lasttoken"}"#, "last"),
        (r#"{"pooling_mode": ["mean"]}"#, "mean"),
        (r#"{"pooling_mode": ["max"]}"#, "max"),
    ] {
        let encoder = pooled(config)?;
        let like = encoder.store.all()[0].value();
        let on = |x: &Tensor| x.to(like.device()).unwrap();
        let (tokens, mask, types) =
            (on(&case.tokens), on(&case.mask), on(case.types.as_ref().unwrap()));
        let inputs = EncoderInputs::new(&tokens).with_mask(&mask).with_types(&types);
        let got = values(&encoder.embed(&inputs)?);
        for (text, range) in texts.clone() {
            if mode == "cls" && text == 1 {
                continue; // its first token is padding
            }
            let all = |j: usize| range.clone().map(move |at| column(text, at, j));
            let mut want: Vec<f64> = (0..width)
                .map(|j| match mode {
                    "mean" => all(j).sum::<f64>() / range.len() as f64,
                    "cls" => column(text, range.start, j),
                    "max" => all(j).fold(f64::NEG_INFINITY, f64::max),
                    _ => column(text, range.end - 1, j),
                })
                .collect();
            let length = want.iter().map(|x| x * x).sum::<f64>().sqrt();
            want.iter_mut().for_each(|x| *x /= length);
            assert_close(&got[width * text..][..width], &want, 1e-5, &mode);
        }
    }
    for (config, part) in [
        (r#"{"pooling_mode": "weightedmean"}"#, "weightedmean"),
        (r#"{"pooling_mode": ["mean", "max"]}"#, "[\"mean\",\"max\"]"),
        (r#"{"pooling_mode": []}"#, "pooling_mode is []"),
        (
            r#"{"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": true}"#,
            "to be true, got 2",
        ),
        ("[", "not JSON"),
    ] {
        let said = pooled(config).err().unwrap().to_string();
        assert!(said.contains(part), "{part}: {said}");
    }
    let states = Tensor::ones((2, 3, 4), DType::F32, device())?;
    let narrow = Tensor::ones((2, 1), DType::Bool, &states)?;
    let said = encoder.pooling.apply(&states, Some(&narrow)).unwrap_err().to_string();
    assert!(said.contains("states are (2, 3, 4), the mask is (2, 1)"), "{said}");
    let said = Encoder::open_with(&folder.0, &OpenOptions::new().with_dtype(DType::I32), device())
        .err()
        .unwrap()
        .to_string();
    assert!(said.contains("floats, not i32"), "{said}");
    for (kind, path, part) in
        [("Dense", "2_Dense", "st.models.Dense"), ("Pooling", "../..", "outside the folder")]
    {
        modules(&[(kind, path)]);
        let said = Encoder::open(&folder.0, device()).err().unwrap().to_string();
        assert!(said.contains(part), "{part}: {said}");
    }
    Ok(())
}

/// Older folders of sentence-transformers have the model in a separate folder.
#[test]
fn a_module_of_sentence_transformers_may_be_the_model() -> Result<()> {
    let folder = copy("module", "bert");
    let at = |path: &str| folder.0.join(path);
    let modules = |path: &str| {
        let module =
            |kind: &str, path: &str| format!(r#"{{"type": "m.{kind}", "path": "{path}"}}"#);
        let all = [module("Transformer", path), module("Pooling", "1_Pooling")].join(",");
        fs::write(at("modules.json"), format!("[{all}]")).unwrap();
    };
    fs::create_dir_all(at("1_Pooling")).unwrap();
    fs::write(at("1_Pooling/config.json"), r#"{"pooling_mode": "cls"}"#).unwrap();
    let length = |name: &str| fs::write(at(name), r#"{"max_seq_length": 5}"#).unwrap();
    length("sentence_bert_config.json");
    let prompts = r#"{"prompts": {"query": "q: "}, "default_prompt_name": "query"}"#;
    fs::write(at("config_sentence_transformers.json"), prompts).unwrap();
    modules("");
    let (wanted, case) = (Encoder::open(&folder.0, device())?, Case::open("bert", DType::F32));
    for name in ["0_Transformer", "transformer"] {
        let inside = |file: &str| at(&format!("{name}/{file}"));
        fs::create_dir_all(at(name)).unwrap();
        for file in ["config.json", "model.safetensors", "sentence_bert_config.json"] {
            fs::rename(at(file), inside(file)).unwrap();
        }
        modules(name);
        assert!(Encoder::knows(&folder.0), "{name}");
        let encoder = Encoder::open(&folder.0, device())?;
        let saved = Folder::new("module-saved");
        encoder.save(&saved.0)?;
        assert!(saved.0.join(name).join("sentence_bert_config.json").exists());
        assert!(!saved.0.join("config.json").exists());
        for encoder in [encoder, Encoder::open(&saved.0, device())?] {
            assert_eq!(encoder.pooling.mode, PoolingMode::Cls, "{name}");
            assert_eq!((encoder.max_length(), encoder.prompt("query")), (5, Some("q: ")));
            let [got, want] = [&encoder, &wanted].map(|encoder| {
                let like = encoder.store.all()[0].value();
                let [tokens, mask] = [&case.tokens, &case.mask].map(|x| x.to(&like).unwrap());
                let inputs = EncoderInputs::new(&tokens).with_mask(&mask);
                values(&encoder.embed(&inputs).unwrap())
            });
            assert_eq!(got, want, "{name}");
        }
        for file in ["config.json", "model.safetensors", "sentence_bert_config.json"] {
            fs::rename(inside(file), at(file)).unwrap();
        }
    }
    modules("../elsewhere");
    let said = Encoder::open(&folder.0, device()).err().unwrap().to_string();
    assert!(said.contains("outside the folder"), "{said}");
    Ok(())
}

#[test]
fn folders_that_are_damaged_say_what_is_wrong() {
    let folder = copy("damaged-model", "bert");
    let config = folder.0.join("config.json");
    let text = fs::read_to_string(&config).unwrap();
    let says = |part: &str| {
        for device in [device(), autograd()] {
            let said = Encoder::open(&folder.0, device).err().unwrap().to_string();
            assert!(said.contains(part), "{part}: {said}");
        }
    };
    let with = |key: &str, value: &str| {
        let mut values: Value = parse(&text);
        match value {
            "" => drop(values.as_object_mut().unwrap().remove(key)),
            _ => values[key] = parse(value),
        }
        fs::write(&config, values.to_string()).unwrap();
    };
    for (key, value, part) in [
        ("model_type", "\"mamba\"", "no encoder of model_type \"mamba\""),
        ("model_type", "", "\"model_type\" is missing"),
        ("model_type", "7", "\"model_type\" is 7, not a text"),
        ("hidden_size", "13", "3 heads do not divide a width of 13"),
        ("num_attention_heads", "0", "0 heads do not divide"),
        ("hidden_size", "-12", "\"hidden_size\" is -12, not a size"),
        ("hidden_size", "24", "its rule is for 24 rows"),
        ("hidden_size", "1e30", "not a size"),
        ("intermediate_size", "21", "linear1.weight is (20, 12), but should be (21, 12)"),
        ("num_hidden_layers", "3", "missing keys: layers.2."),
        ("num_hidden_layers", "4000000000", "4000000000 layers, but the weights are"),
        ("vocab_size", "4000000000", "but should be (4000000000, 12)"),
        ("num_hidden_layers", "1", "unexpected keys: encoder.layer.1."),
        ("vocab_size", "31", "embeddings.word.weight is (30, 12), but should be (31, 12)"),
        ("hidden_act", "\"snake\"", "\"hidden_act\" is \"snake\""),
        ("layer_norm_eps", "\"small\"", "not a number"),
        ("is_decoder", "true", "\"is_decoder\" is true"),
        ("position_embedding_type", "\"relative_key\"", "relative_key"),
        ("quantization_config", "{\"quant_method\": \"gptq\"}", "quantization_config"),
    ] {
        with(key, value);
        says(part);
    }
    fs::write(&config, "{").unwrap();
    says("not JSON");
    fs::remove_file(&config).unwrap();
    says("config.json");
    fs::write(&config, &text).unwrap();
    fs::remove_file(folder.0.join("model.safetensors")).unwrap();
    says("no weights in the folder");
    let said = Encoder::open(&config, device()).err().unwrap().to_string();
    assert!(said.contains("this is a file, not the folder of a model"), "{said}");
    let said = Encoder::open(Path::new("no-one/no-model"), device()).err().unwrap().to_string();
    assert!(said.contains("does not exist"), "{said}");
}

/// transformers 5 computes with such a weight, and here the head is the embedding.
#[test]
fn a_head_for_masked_tokens_with_a_weight_of_its_own_is_not_read() -> Result<()> {
    let folder = copy("masked-weight", "bert-masked");
    let path = folder.0.join("model.safetensors");
    let file = SafeTensors::open(&path)?;
    let read = |name: &String| Ok((name.clone(), file.tensor(name, device())?));
    let tensors = file.entries().keys().map(read).collect::<Result<Vec<_>>>()?;
    let word = tensors.iter().find(|(name, _)| name.ends_with("word_embeddings.weight")).unwrap();
    for (factor, fits) in [(1.0, true), (2.0, false)] {
        let mut all = tensors.clone();
        all.push(("cls.predictions.decoder.weight".to_string(), word.1.mul(factor)?));
        let mut bytes = Vec::new();
        write(&mut bytes, &all, &Default::default())?;
        fs::write(&path, bytes).unwrap();
        let encoder = Encoder::open(&folder.0, device())?;
        assert_eq!(encoder.head.is_some(), fits);
        let notes = encoder.notes();
        assert!(fits == notes.is_empty() && (fits || notes == ["cls.predictions.decoder.weight"]));
    }
    Ok(())
}

/// A tensor of an encoder that the family does not have may change every state.
#[test]
fn tensors_of_other_encoders_are_refused_and_heads_are_skipped() -> Result<()> {
    let folder = copy("other-tensors", "bert");
    let path = folder.0.join("model.safetensors");
    let file = SafeTensors::open(&path)?;
    let read = |name: &String| Ok((name.clone(), file.tensor(name, device())?));
    let tensors = file.entries().keys().map(read).collect::<Result<Vec<_>>>()?;
    for (name, is_head) in [
        ("score.weight", true),
        ("cls.predictions.bias", true),
        ("embeddings.position_ids", true),
        ("encoder.layer.0.attention.self.distance_embedding.weight", false),
        ("encoder.relative_attention_bias.weight", false),
        ("bert.encoder.rel_embeddings.weight", false),
        ("embeddings.factor.weight", false),
    ] {
        let mut all = tensors.clone();
        all.push((name.to_string(), tensors[0].1.clone()));
        let mut bytes = Vec::new();
        write(&mut bytes, &all, &Default::default())?;
        fs::write(&path, bytes).unwrap();
        match Encoder::open(&folder.0, device()) {
            Ok(_) => assert!(is_head, "{name}"),
            Err(error) => {
                let said = error.to_string();
                assert!(!is_head && said.contains(&format!("unexpected keys: {name}")), "{said}");
            }
        }
    }
    Ok(())
}

#[test]
fn inputs_that_do_not_fit_are_errors() {
    let Case { encoder, .. } = Case::open("distilbert", DType::F32);
    let like = encoder.store.all()[0].value();
    let tokens = |rows: usize, n: usize| Tensor::full((rows, n), 5, DType::I32, &like).unwrap();
    let says = |inputs: &EncoderInputs<'_>, part: &str| {
        let said = encoder.model.hidden(inputs).unwrap_err().to_string();
        assert!(said.contains(part), "{part}: {said}");
    };
    assert_eq!(encoder.model.context(), 9);
    says(&EncoderInputs::new(&tokens(1, 10)), "10 tokens are more than the context of 9");
    says(&EncoderInputs::new(&tokens(1, 0)), "tokens are (B, T) with T > 0");
    says(&EncoderInputs::new(&tokens(1, 3).squeeze(0).unwrap()), "tokens are (B, T)");
    let (three, mask) = (tokens(1, 3), tokens(1, 2).cast(DType::Bool).unwrap());
    says(&EncoderInputs::new(&three).with_mask(&mask), "the mask");
    says(&EncoderInputs::new(&three).with_types(&three), "no token types");
    says(&EncoderInputs::new(&three.mul(10).unwrap()), "embeddings.word.weight is (30, 12)");
    let states = encoder.model.hidden(&EncoderInputs::new(&three)).unwrap();
    assert!(encoder.model.pooled(&states).unwrap_err().to_string().contains("no pooler"));
    let roberta = Case::open("roberta", DType::F32).encoder.model;
    assert_eq!(roberta.context(), 10, "positions begin at 2 of 12");
}

#[test]
fn heads_have_the_classes_of_their_model() -> Result<()> {
    let head = |name: &str| Encoder::open(golden(name), device()).unwrap().head;
    assert!(head("bert").is_none());
    assert_eq!(head("bert-tokens").unwrap().labels, ["O", "B-PER", "I-PER", "B-LOC"]);
    assert_eq!(head("bert-parts").unwrap().labels, ["LABEL_0", "LABEL_1", "LABEL_2"]);
    assert_eq!(head("distilbert").unwrap().task(), Task::MaskedLm);
    let case = Case::open("roberta-pairs", DType::F32);
    let (logits, head) = (case.encoder.logits(&case.inputs())?, case.encoder.head.unwrap());
    let (scores, one) = (values(&head.probabilities(&logits)?), values(&logits));
    for (p, x) in scores.iter().zip(one) {
        assert!((p - 1.0 / (1.0 + (-x).exp())).abs() < 1e-6, "one class is yes or no");
    }
    let case = Case::open("bert", DType::F32);
    let error = case.encoder.logits(&case.inputs()).unwrap_err().to_string();
    assert!(error.contains("no head") && error.contains("architectures"), "{error}");
    // a class without a name
    let folder = copy("labels", "bert-tokens");
    let path = folder.0.join("config.json");
    let config = fs::read_to_string(&path).unwrap();
    fs::write(&path, config.replace("\"3\":", "\"4\":")).unwrap();
    let error = Encoder::open(&folder.0, device()).err().unwrap().to_string();
    assert!(error.contains("id2label"), "{error}");
    let mut values = parse(&config);
    values.as_object_mut().unwrap().remove("id2label");
    values["num_labels"] = 4_000_000_000_u64.into();
    fs::write(&path, values.to_string()).unwrap();
    let error = Encoder::open(&folder.0, device()).err().unwrap().to_string();
    assert!(error.contains("\"num_labels\" is 4000000000"), "{error}");
    let folder = copy("untied", "bert-masked");
    let path = folder.0.join("config.json");
    let mut values = parse(&fs::read_to_string(&path).unwrap());
    values["tie_word_embeddings"] = false.into();
    fs::write(&path, values.to_string()).unwrap();
    let error = Encoder::open(&folder.0, device()).err().unwrap().to_string();
    assert!(error.contains("\"tie_word_embeddings\" is false"), "{error}");
    Ok(())
}

#[test]
fn every_family_gets_a_new_head_for_classes() -> Result<()> {
    let options = OpenOptions::new().with_labels(["a", "b", "c", "d", "e"]);
    for (name, class) in [
        ("bert", "Bert"),
        ("bert-masked", "Bert"),
        ("bert-tokens", "Bert"),
        ("distilbert", "DistilBert"),
        ("roberta", "Roberta"),
        ("roberta-pairs", "Roberta"),
        ("xlm-roberta", "XLMRoberta"),
    ] {
        let encoder = Encoder::open_with(golden(name), &options, autograd())?;
        let tokens = Tensor::new([[2i32, 5, 6, 3]], device())?;
        let on = |encoder: &Encoder| tokens.to(encoder.store.device());
        let logits = encoder.logits(&EncoderInputs::new(&on(&encoder)?))?;
        assert_eq!(logits.shape()[..], [1, 5], "{name}");
        // the states equal the model without a head
        let plain = Encoder::open(golden(name), device())?;
        let states = plain.model.hidden(&EncoderInputs::new(&on(&plain)?))?;
        let own = encoder.model.hidden(&EncoderInputs::new(&on(&encoder)?))?;
        assert_close(&values(&own), &values(&states), 1e-6, &name);
        // saved and opened again, also with adapters
        let lora = Lora::attach(&encoder, LoraOptions::new())?;
        lora.detach()?;
        let folder = Folder::new(&format!("new-head-{name}"));
        encoder.save(&folder.0)?;
        let again = Encoder::open(&folder.0, device())?;
        assert_close(
            &values(&again.logits(&EncoderInputs::new(&on(&again)?))?),
            &values(&logits),
            1e-6,
            &name,
        );
        let config = fs::read_to_string(folder.0.join("config.json")).unwrap();
        assert!(config.contains(&format!("\"{class}ForSequenceClassification\"")), "{config}");
    }
    for labels in [vec![], vec!["a", "a"]] {
        let options = OpenOptions::new().with_labels(labels);
        let error = Encoder::open_with(golden("bert"), &options, device()).err().unwrap();
        assert!(error.to_string().contains("the name of each class once"), "{error}");
    }
    Ok(())
}

#[test]
fn a_pooler_that_nothing_reads_is_frozen() -> Result<()> {
    let pooler = |encoder: &Encoder| encoder.store.get("pooler.weight").unwrap().is_trainable();
    let encoder = Encoder::open(golden("bert"), autograd())?;
    assert!(!pooler(&encoder) && encoder.store.get("embeddings.word.weight")?.is_trainable());
    let tokens = Tensor::new([[2i32, 5, 6, 3]], encoder.store.device())?;
    let loss = encoder.embed(&EncoderInputs::new(&tokens))?.square()?.sum_all()?;
    AdamW::new(encoder.store.trainable(), 1e-3).step(&loss.backward()?)?;
    let lora = Lora::attach(&encoder, LoraOptions::new())?;
    let loss = encoder.embed(&EncoderInputs::new(&tokens))?.square()?.sum_all()?;
    AdamW::new(lora.trainable(), 1e-3).step(&loss.backward()?)?;
    assert!(lora.layers().iter().all(|name| !name.contains("pooler")), "{:?}", lora.layers());
    let options = OpenOptions::new().with_labels(["a", "b"]);
    let encoder = Encoder::open_with(golden("bert"), &options, autograd())?;
    let lora = Lora::attach(&encoder, LoraOptions::new())?;
    assert!(lora.layers().contains(&"bert.pooler.dense"), "{:?}", lora.layers());
    lora.detach()?;
    assert!(pooler(&encoder));
    Ok(())
}

#[test]
fn a_module_that_takes_arguments_is_refused() {
    let folder = copy("module-arguments", "bert");
    let modules = r#"[{"type": "m.Transformer", "path": "", "kwargs": ["task"]}]"#;
    fs::write(folder.0.join("modules.json"), modules).unwrap();
    let error = Encoder::open(&folder.0, device()).err().unwrap().to_string();
    assert!(error.contains("modules.json") && error.contains("task"), "{error}");
}
