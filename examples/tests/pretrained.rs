//! The programs that run pretrained models, on tiny ones of the tests of teeny-nn.

use crate::common::*;
use std::fs;
use std::io::Write;
use std::process::Stdio;
use teeny_core::{DType, random};
use teeny_formats::Gguf;
use teeny_formats::gguf::{ElementType, Writer};
use teeny_nn::Store;
use teeny_nn::transformer::{CausalLm, CausalLmConfig};

/// A random decoder with the tokenizer of SmolLM and a chat template.
fn decoder(name: &str) -> Folder {
    let folder = Folder::new(name);
    let store = Store::new(teeny_nn::device("cpu").unwrap());
    let config = CausalLmConfig::new(343, 128, 1, 2, 16, 24);
    random::with_seed(3, || CausalLm::new(&store.root(), config)).unwrap();
    store.save(folder.at("model.safetensors")).unwrap();
    let config = r#"{"model_type": "phi3", "vocab_size": 343, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "eos_token_id": 342}"#;
    fs::write(folder.at("config.json"), config).unwrap();
    fs::copy(
        golden("../../../text/tests/golden/tokenizers/smollm.json"),
        folder.at("tokenizer.json"),
    )
    .unwrap();
    let template = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}";
    fs::write(folder.at("chat_template.jinja"), template).unwrap();
    folder
}

/// A golden encoder.
fn encoder(of: &str) -> Folder {
    crate::common::encoder(of, of, ["a", "cat", "dog", "sat", "##s", "the"])
}

#[test]
fn a_text_is_continued_and_refused_options_are_named() {
    let folder = decoder("generate");
    let program = env!("CARGO_BIN_EXE_generate");
    let path = folder.at("");
    let run = |more: &[&str]| {
        let args = [&["--model", &path, "--prompt", "the cat", "--device", "cpu"], more].concat();
        command(program, &args).output().unwrap()
    };
    let text = succeed(run(&["--tokens", "9"]));
    assert!(text.contains("the cat") && text.contains("tokens of the prompt"), "{text}");
    assert!(number_after(&text, "the first new text after ") > 0.0, "{text}");
    let drawn = |seed: &str| {
        let text = succeed(run(&["--tokens", "9", "--temperature", "1.5", "--seed", seed]));
        text.split("\n\n").nth(1).unwrap().to_string()
    };
    assert_eq!(drawn("1"), drawn("1"));
    assert_ne!(drawn("1"), drawn("2"));
    assert!(refuse(command(program, &[]).output().unwrap()).contains("--model PATH"));
    assert!(refuse(run(&["--dtype", "i8"])).contains("f32"));
    assert!(refuse(run(&["--temperature", "-1"])).contains("temperature is -1"));
    assert!(refuse(run(&["--save", "x"])).contains("invalid option '--save'"));
    let encoder = encoder("bert-tokens");
    let error = refuse(command(program, &["--model", &encoder.at("")]).output().unwrap());
    assert!(error.contains("no decoder of model_type \"bert\""), "{error}");
}

#[test]
fn a_conversation_has_a_turn_for_each_line() {
    let folder = decoder("chat");
    let args = ["--model", &folder.at(""), "--tokens", "4", "--device", "cpu"];
    let mut child = command(env!("CARGO_BIN_EXE_chat"), &args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"the cat\n\nagain\n/reset\nthe cat\n/quit\nno\n")
        .unwrap();
    let text = succeed(child.wait_with_output().unwrap());
    let turns: Vec<&str> = text.split("\n> ").skip(1).collect();
    assert_eq!(turns.len(), 6, "{text}");
    assert!(turns[3].contains("a new conversation"), "{text}");
    // without the time of the line in brackets
    let answer = |turn: &str| turn.split('[').next().unwrap().to_string();
    assert_eq!(answer(turns[0]), answer(turns[4]), "as before the other messages");
    assert!(!text.contains("no\n"), "{text}");
}

#[test]
fn lines_are_embedded_ranked_and_classified() {
    let folder = encoder("bert");
    let file = folder.at("lines.txt");
    fs::write(&file, "the cat sat\na dog\n\nthe cats\n").unwrap();
    let (path, out) = (folder.at(""), folder.at("vectors.npy"));
    let args = ["--model", &path, &file, "--device", "cpu", "--query", "the cats", "--top", "2"];
    let args = [&args[..], &["--out", &out]].concat();
    let text = succeed(command(env!("CARGO_BIN_EXE_embed"), &args).output().unwrap());
    assert!(text.contains("4 vectors of 12 numbers"), "{text}");
    assert_eq!(text.matches('\n').count(), 4, "{text}");
    assert!(text.contains("\n1.000  the cats\n"), "{text}");
    assert!(fs::metadata(&out).unwrap().len() > 4 * 12 * 4);
    let classes = encoder("distilbert-texts");
    let args = ["--model", &classes.at(""), &file, "--device", "cpu"];
    let text = succeed(command(env!("CARGO_BIN_EXE_classify"), &args).output().unwrap());
    assert_eq!(text.matches("LABEL_").count(), 4, "{text}");
    assert!(text.contains("4 texts, "), "{text}");
    let args = ["--model", &path, &file];
    let error = refuse(command(env!("CARGO_BIN_EXE_classify"), &args).output().unwrap());
    assert!(error.contains("no head for classes of texts"), "{error}");
}

#[test]
fn the_matrices_of_a_file_are_quantised() {
    let folder = Folder::new("quantize");
    let mut writer = Writer::new([].into());
    let f32s = ElementType::Plain(DType::F32);
    let tensors = [("norm.weight", vec![64]), ("a.weight", vec![8, 64]), ("b.weight", vec![8, 64])];
    tensors.iter().for_each(|(name, shape)| writer.add(name, shape, f32s).unwrap());
    let values = |shape: &[usize]| -> Vec<u8> {
        let numbers = 0..shape.iter().product();
        numbers.flat_map(|i: usize| ((i * 37 % 101) as f32 - 50.0).to_le_bytes()).collect()
    };
    let of = |name: &str| tensors.iter().find(|(own, _)| *own == name).unwrap();
    writer.write(folder.at("in.gguf"), |name| Ok(values(&of(name).1))).unwrap();
    let run = |more: &[&str]| {
        let files = [&folder.at("in.gguf"), "--out", &folder.at("out.gguf"), "--device", "cpu"];
        command(env!("CARGO_BIN_EXE_quantize"), &[&files[..], more].concat()).output().unwrap()
    };
    let text = succeed(run(&["--type", "q4_k", "--tensor", "b.=q8_0", "--tensor", "norm=q8_0"]));
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    // rows of 64 are not whole blocks of 256, a vector has no rows
    assert!(line("a.weight").contains("Q5_0") && line("b.weight").contains("Q8_0"), "{text}");
    assert!(line("norm.weight").contains("0.00e0"), "{text}");
    let error = |name: &str| line(name).split_whitespace().last().unwrap().parse::<f64>().unwrap();
    assert!(error("b.weight") > 0.0 && error("b.weight") < 0.01, "{text}");
    assert!(error("a.weight") > error("b.weight") && error("a.weight") < 0.1, "{text}");
    let file = Gguf::open(folder.at("out.gguf")).unwrap();
    let types: Vec<&str> = file.entries().values().map(|entry| entry.type_name()).collect();
    assert_eq!(types, ["Q5_0", "Q8_0", "F32"]);
    assert_eq!(file.metadata()["general.file_type"].as_u64(), Some(14));
    assert!(refuse(run(&["--type", "q9"])).contains("q9"));
    assert!(refuse(run(&["--tensor", "a"])).contains("PART=TYPE"));
    let nothing = command(env!("CARGO_BIN_EXE_quantize"), &[]).output().unwrap();
    assert!(refuse(nothing).contains("--out"));
}

#[test]
fn a_folder_becomes_a_file_that_continues_texts_alike() {
    let (folder, out) = (decoder("to-gguf"), Folder::new("to-gguf-out"));
    let file = out.at("model.gguf");
    let args = [&folder.at(""), "--out", &file, "--tensor", "ffn_down=bf16", "--device", "cpu"];
    let text = succeed(command(env!("CARGO_BIN_EXE_quantize"), &args).output().unwrap());
    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap();
    // rows of 16 are not whole blocks
    assert!(line("blk.0.attn_qkv.weight").ends_with("0.00e0"), "{text}");
    assert!(line("blk.0.ffn_down.weight").contains("BF16"), "{text}");
    assert!(text.lines().last().unwrap().contains("MB to"), "{text}");
    let args = [&folder.at(""), "--out", &file, "--type", "f32", "--device", "cpu"];
    succeed(command(env!("CARGO_BIN_EXE_quantize"), &args).output().unwrap());
    let continued = |model: &str| {
        let args = ["--model", model, "--prompt", "the cat", "--tokens", "9", "--device", "cpu"];
        let text = succeed(command(env!("CARGO_BIN_EXE_generate"), &args).output().unwrap());
        text.split("\n\n").nth(1).unwrap().to_string()
    };
    assert_eq!(continued(&file), continued(&folder.at("")));
    let args = [&out.at("none"), "--out", &file];
    let nothing = command(env!("CARGO_BIN_EXE_quantize"), &args).output().unwrap();
    assert!(refuse(nothing).contains("does not exist"));
}
