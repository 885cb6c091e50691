//! Files of tokenizers: folders, GGUF vocabularies, and those that are not supported.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use teeny_core::{Reference, Result};
use teeny_formats::Gguf;
use teeny_text::{
    Bpe, DecodeStream, EncodeOptions, PretrainedTokenizer, Side, Tokenizer, Truncation,
};

/// Text with special tokens of several models.
pub const TEXT: &str =
    "The quick brown fox isn't [MASK] 1234  naïve\n\n 日本語 <|endoftext|> 👩‍👧 lowest";

/// The path of a tokenizer in `golden/tokenizers`.
pub fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/tokenizers/{name}.json"))
}

fn read(name: &str) -> Value {
    serde_json::from_slice(&fs::read(golden(name)).unwrap()).unwrap()
}

fn open(name: &str) -> PretrainedTokenizer {
    PretrainedTokenizer::open(golden(name)).unwrap()
}

/// An empty folder.
fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("teeny-pretrained-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(&path).unwrap();
    path
}

/// The texts of a vocabulary in the order of their numbers.
fn texts(vocab: &Value) -> Vec<String> {
    let vocab = vocab.as_object().unwrap();
    let mut texts: Vec<_> = vocab.iter().map(|(t, id)| (id.as_u64(), t.clone())).collect();
    texts.sort();
    texts.into_iter().map(|(_, text)| text).collect()
}

fn merges(file: &Value) -> Vec<String> {
    let merges = file["model"]["merges"].as_array().unwrap().iter();
    merges.map(|m| format!("{} {}", m[0].as_str().unwrap(), m[1].as_str().unwrap())).collect()
}

fn same(a: &PretrainedTokenizer, b: &PretrainedTokenizer) {
    let options = EncodeOptions::default();
    for text in [TEXT, "", " ", "a  b\u{a0}"] {
        assert_eq!(a.encode_with(text, &options).unwrap(), b.encode_with(text, &options).unwrap());
        let ids = a.encode(text).unwrap();
        assert_eq!(a.decode(&ids).unwrap(), b.decode(&ids).unwrap());
    }
}

#[test]
fn a_folder_names_the_special_tokens() {
    let path = folder("names");
    fs::copy(golden("bert"), path.join("tokenizer.json")).unwrap();
    let map = json!({"cls_token": "[CLS]", "pad_token": "[UNK]"});
    fs::write(path.join("special_tokens_map.json"), map.to_string()).unwrap();
    let config = json!({
        "pad_token": {"content": "[PAD]", "lstrip": false}, "sep_token": "[SEP]", "bos_token": null,
        "mask_token": "[MASK]", "model_max_length": 512, "chat_template": "{{ x }}",
    });
    fs::write(path.join("tokenizer_config.json"), config.to_string()).unwrap();
    let tokenizer = PretrainedTokenizer::open(&path).unwrap();
    same(&tokenizer, &open("bert"));
    let roles = [tokenizer.pad(), tokenizer.unk(), tokenizer.cls(), tokenizer.sep()];
    assert_eq!(roles, ["[PAD]", "[UNK]", "[CLS]", "[SEP]"].map(|name| tokenizer.token(name)));
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.mask()), (None, None, Some(4)));
    assert_eq!((tokenizer.text_of(4), tokenizer.max_length()), (Some("[MASK]"), Some(512)));
    fs::write(path.join("tokenizer_config.json"), "{\"pad_token\": 3}").unwrap();
    let error = PretrainedTokenizer::open(&path).unwrap_err().to_string();
    assert!(error.contains("pad_token: expected a text or an added token, found 3"), "{error}");
    fs::remove_dir_all(path).unwrap();
}

#[test]
fn a_folder_of_before_2020_has_a_vocabulary_and_merges() {
    let path = folder("legacy");
    let error = PretrainedTokenizer::open(&path).unwrap_err().to_string();
    assert!(error.contains("the folder has no tokenizer"), "{error}");
    let file = read("gpt2");
    let mut vocab = file["model"]["vocab"].clone();
    vocab["<|endoftext|>"] = json!(vocab.as_object().unwrap().len());
    fs::write(path.join("vocab.json"), vocab.to_string()).unwrap();
    let lines = format!("#version: 0.2\n{}\n", merges(&file).join("\n"));
    fs::write(path.join("merges.txt"), lines).unwrap();
    let gpt2 = PretrainedTokenizer::open(&path).unwrap();
    assert_eq!(gpt2.encode(TEXT).unwrap(), open("gpt2").encode(TEXT).unwrap());
    assert!(gpt2.encode(TEXT).unwrap().contains(&gpt2.token("<|endoftext|>").unwrap()));
    // words of Qwen are others
    let config = "{\"tokenizer_class\": \"Qwen2Tokenizer\"}";
    fs::write(path.join("tokenizer_config.json"), config).unwrap();
    let error = PretrainedTokenizer::open(&path).unwrap_err().to_string();
    assert!(error.contains("vocab.json with merges.txt of a Qwen2Tokenizer"), "{error}");
    fs::remove_file(path.join("tokenizer_config.json")).unwrap();
    // the same text as our own reader of these files, which knows no special tokens in a text
    let bpe = Bpe::load_gpt2(path.join("vocab.json"), path.join("merges.txt")).unwrap();
    let text = TEXT.replace("<|endoftext|>", "");
    assert_eq!(bpe.encode(&text).unwrap(), gpt2.encode(&text).unwrap());

    let path = folder("legacy-bert");
    let lines = texts(&read("bert")["model"]["vocab"]).join("\n");
    fs::write(path.join("vocab.txt"), lines).unwrap();
    same(&PretrainedTokenizer::open(&path).unwrap(), &open("bert"));
    fs::write(path.join("tokenizer_config.json"), "{\"do_lower_case\": false}").unwrap();
    let cased = PretrainedTokenizer::open(&path).unwrap();
    assert_ne!(cased.encode("THE É").unwrap(), open("bert").encode("THE É").unwrap());
    // accents stay if the file says so
    let accents = |config: &str| {
        fs::write(path.join("tokenizer_config.json"), config).unwrap();
        PretrainedTokenizer::open(&path).unwrap().encode("e\u{301}").unwrap()
    };
    assert_eq!(accents("{}"), open("bert").encode("e").unwrap());
    assert_ne!(accents("{\"strip_accents\": false}"), accents("{}"));
    fs::write(path.join("vocab.txt"), "a\nb").unwrap();
    let error = PretrainedTokenizer::open(&path).unwrap_err().to_string();
    assert!(error.contains("vocab.txt") && error.contains("[CLS]"), "{error}");
    fs::remove_dir_all(path).unwrap();
}

/// The bytes of a GGUF file with metadata `tokenizer.ggml.KEY`.
fn gguf(metadata: &[(&str, Value)]) -> Gguf {
    fn text(text: &str) -> Vec<u8> {
        [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat()
    }
    fn value(item: &Value) -> (u32, Vec<u8>) {
        match item {
            Value::String(t) => (8, text(t)),
            Value::Bool(b) => (7, vec![u8::from(*b)]),
            Value::Number(n) if n.is_f64() => {
                (6, (n.as_f64().unwrap() as f32).to_le_bytes().to_vec())
            }
            Value::Number(n) => (4, (n.as_u64().unwrap() as u32).to_le_bytes().to_vec()),
            Value::Array(items) => {
                let items: Vec<_> = items.iter().map(value).collect();
                let mut bytes = items[0].0.to_le_bytes().to_vec();
                bytes.extend((items.len() as u64).to_le_bytes());
                items.iter().for_each(|(_, item)| bytes.extend(item));
                (9, bytes)
            }
            _ => unreachable!(),
        }
    }
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend(0u64.to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, item) in metadata {
        bytes.extend(text(&format!("tokenizer.ggml.{key}")));
        let (kind, item) = value(item);
        bytes.extend(kind.to_le_bytes());
        bytes.extend(item);
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    Gguf::from_bytes(bytes).unwrap()
}

/// The bytes of a text in base 64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let bits = text.trim_end_matches('=').bytes().flat_map(|c| {
        let digit = DIGITS.bytes().position(|own| own == c).unwrap();
        (0..6).rev().map(move |i| digit >> i & 1)
    });
    let bits: Vec<usize> = bits.collect();
    bits.chunks_exact(8).map(|byte| byte.iter().fold(0, |all, bit| all << 1 | *bit as u8)).collect()
}

/// The kinds of tokens: 3 for special ones, 1 for others.
fn kinds(texts: &[String], special: &[&str]) -> Vec<u32> {
    texts.iter().map(|t| if special.contains(&t.as_str()) { 3 } else { 1 }).collect()
}

#[test]
fn a_gguf_vocabulary_has_the_tokens_of_its_tokenizer_json() {
    for (name, pre) in [("gpt2", "gpt-2"), ("smollm", "smollm"), ("llama3", "llama-bpe")] {
        let file = read(name);
        let mut tokens = texts(&file["model"]["vocab"]);
        let added: Vec<&str> = file["added_tokens"]
            .as_array()
            .unwrap()
            .iter()
            .map(|token| token["content"].as_str().unwrap())
            .collect();
        tokens.extend(added.iter().map(|t| t.to_string()));
        let bos = tokens.iter().position(|t| *t == "<s>").unwrap_or(0);
        let own = PretrainedTokenizer::from_gguf(&gguf(&[
            ("model", json!("gpt2")),
            ("pre", json!(pre)),
            ("token_type", json!(kinds(&tokens, &added))),
            ("tokens", json!(tokens)),
            ("merges", json!(merges(&file))),
            ("bos_token_id", json!(bos)),
        ]))
        .unwrap();
        let expected = open(name);
        let encoded = |t: &PretrainedTokenizer| {
            t.encode_with((TEXT, "pair"), &EncodeOptions::default()).unwrap().ids
        };
        match name {
            "llama3" => assert_eq!(encoded(&own), encoded(&expected)),
            _ => assert_eq!(own.encode(TEXT).unwrap(), expected.encode(TEXT).unwrap()),
        }
        let ids = own.encode(TEXT).unwrap();
        assert_eq!(own.decode(&ids).unwrap(), expected.decode(&ids).unwrap());
    }
    let file = read("bert");
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"];
    let tokens: Vec<String> = texts(&file["model"]["vocab"])
        .iter()
        .map(|text| match text.strip_prefix("##") {
            Some(rest) => rest.to_string(),
            None if special.contains(&text.as_str()) => text.clone(),
            None => format!("▁{text}"),
        })
        .collect();
    let bert = gguf(&[("model", json!("bert")), ("tokens", json!(tokens))]);
    same(&PretrainedTokenizer::from_gguf(&bert).unwrap(), &open("bert"));

    let file = read("t5");
    let vocab = file["model"]["vocab"].as_array().unwrap();
    let column = |i: usize| vocab.iter().map(|item| item[i].clone()).collect::<Vec<_>>();
    let tokens: Vec<String> =
        column(0).iter().map(|text| text.as_str().unwrap().to_string()).collect();
    let charsmap = decoded(file["normalizer"]["precompiled_charsmap"].as_str().unwrap());
    let t5 = PretrainedTokenizer::from_gguf(&gguf(&[
        ("model", json!("t5")),
        ("token_type", json!(kinds(&tokens, &["</s>"]))),
        ("tokens", json!(tokens)),
        ("scores", json!(column(1))),
        ("precompiled_charsmap", json!(charsmap)),
        ("remove_extra_whitespaces", json!(true)),
        ("unknown_token_id", file["model"]["unk_id"].clone()),
        ("eos_token_id", json!(1)),
    ]));
    same(&t5.unwrap(), &open("t5"));

    let error = |metadata: &[(&str, Value)]| {
        PretrainedTokenizer::from_gguf(&gguf(metadata)).unwrap_err().to_string()
    };
    let tokens = ("tokens", json!(["a", "b", "ab"]));
    let merges = ("merges", json!(["a b"]));
    let of = |model: &str| ("model", json!(model));
    for (metadata, expected) in [
        (vec![], "tokenizer.ggml.model is missing"),
        (vec![of("rwkv")], "is \"rwkv\"; this reader knows gpt2, llama, bert and t5"),
        (vec![of("t5"), tokens.clone()], "tokenizer.ggml.scores is missing"),
        (vec![of("gpt2")], "tokenizer.ggml.tokens is missing"),
        (vec![of("gpt2"), tokens.clone()], "tokenizer.ggml.merges is missing"),
        (
            vec![of("gpt2"), tokens.clone(), merges, ("pre", json!("new"))],
            "pre is \"new\", whose pattern",
        ),
        (vec![of("llama"), tokens.clone(), ("scores", json!([0.5]))], "scores is something else"),
        (vec![of("bert"), tokens.clone()], "no token \"[CLS]\""),
        (vec![of("gpt2"), tokens, ("merges", json!(["b a"]))], "needs token \"ba\""),
    ] {
        let error = error(&metadata);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

/// SentencePiece's merges by the definition: of all neighbours, the pair that makes the token of
/// the best score, the leftmost of equals.
fn merged(word: &str, tokens: &[String], scores: &[f64]) -> Vec<String> {
    let mut parts: Vec<String> = word.chars().map(String::from).collect();
    loop {
        let score = |i: usize| {
            let whole = format!("{}{}", parts[i], parts[i + 1]);
            Some((scores[tokens.iter().position(|token| *token == whole)?], i))
        };
        let pairs = (0..parts.len().saturating_sub(1)).filter_map(score);
        let best = pairs.reduce(|a, b| if b.0 > a.0 { b } else { a });
        let Some((_, i)) = best else { return parts };
        let right = parts.remove(i + 1);
        parts[i] += &right;
    }
}

#[test]
fn a_sentencepiece_vocabulary_merges_the_best_scores() {
    let mut tokens: Vec<String> = vec!["<unk>".into(), "<s>".into(), "</s>".into()];
    tokens.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend("▁ a b c aa ab ba bab ca ▁a ▁ab abc é".split(' ').map(String::from));
    let n = tokens.len();
    let scores: Vec<f64> =
        (0..n).map(|i| if i < 259 { 0.0 } else { -((i * 7 % 5) as f64) - 0.5 }).collect();
    let mut kinds = kinds(&tokens, &["<s>", "</s>"]);
    kinds[0] = 2;
    kinds[3..259].fill(6);
    let metadata = [
        ("model", json!("llama")),
        ("tokens", json!(tokens)),
        ("scores", json!(scores)),
        ("token_type", json!(kinds)),
        ("bos_token_id", json!(1)),
        ("eos_token_id", json!(2)),
        ("unknown_token_id", json!(0)),
    ];
    let tokenizer = PretrainedTokenizer::from_gguf(&gguf(&metadata)).unwrap();
    let mut state = 7u64;
    for _ in 0..500 {
        let mut word = String::new();
        for _ in 0..state % 23 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            word.push(['a', 'b', 'c', ' ', 'a', 'é', '日'][(state >> 33) as usize % 7]);
        }
        state = state.wrapping_add(1);
        let spelled = format!("▁{}", word.replace(' ', "▁"));
        let mut expected = Vec::new();
        for part in if word.is_empty() { vec![] } else { merged(&spelled, &tokens, &scores) } {
            match tokens.iter().position(|token| *token == part) {
                Some(id) => expected.push(id as u32),
                None => expected.extend(part.bytes().map(|byte| 3 + u32::from(byte))),
            }
        }
        let ids = tokenizer.encode(&word).unwrap();
        assert_eq!(ids, expected, "{word:?}");
        assert_eq!(tokenizer.decode(&ids).unwrap(), word);
        let mut stream = DecodeStream::new(&tokenizer);
        let pieces: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
        assert_eq!(pieces + &stream.finish().unwrap(), word);
    }
    let encoded = tokenizer.encode_with("a</s>b", &EncodeOptions::default()).unwrap();
    assert_eq!(encoded.special_tokens_mask, [true, false, false, false, false]);
    assert_eq!(tokenizer.decode_with(&encoded.ids, true).unwrap(), "a b");
    assert_eq!((tokenizer.bos(), tokenizer.eos(), tokenizer.unk()), (Some(1), Some(2), Some(0)));
}

#[test]
fn a_batch_is_padded_to_its_longest_text() {
    let tokenizer = open("bert");
    let device = Reference::new();
    let options = EncodeOptions::default().with_pad_to_multiple_of(4).with_pad(0);
    let batch = tokenizer.encode_batch(&[("a", "b"), ("a a a a", "b")], &options).unwrap();
    assert_eq!(batch.ids.iter().map(Vec::len).collect::<Vec<_>>(), [8, 8]);
    assert_eq!(batch.mask[0], [true, true, true, true, true, false, false, false]);
    assert_eq!(batch.type_ids[0], [0, 0, 0, 1, 1, 0, 0, 0]);
    assert_eq!(batch.tokens(&device).unwrap().shape()[..], [2, 8]);
    assert_eq!(batch.mask(&device).unwrap().to_vec::<bool>().unwrap()[5..8], [false; 3]);
    assert_eq!(batch.types(&device).unwrap().to_vec::<i32>().unwrap()[..5], [0, 0, 0, 1, 1]);
    let left = options.clone().with_padding_side(Side::Left);
    let batch = tokenizer.encode_batch(&["a", "a a a a"], &left).unwrap();
    assert_eq!((batch.ids[0][..5].to_vec(), batch.mask[0][5]), (vec![0; 5], true));
    let error = tokenizer.encode_batch(&["a", "a a"], &EncodeOptions::default()).unwrap_err();
    assert!(error.to_string().contains("help: EncodeOptions::with_pad"), "{error}");
    let empty: [&str; 0] = [];
    assert_eq!(tokenizer.encode_batch(&empty, &options).unwrap().ids.len(), 0);

    let options = EncodeOptions::default().with_max_length(2);
    let error = tokenizer.encode_with(("a", "b"), &options).unwrap_err().to_string();
    assert!(error.contains("max_length is 2, but 3 special tokens are added"), "{error}");
    let options = options.with_truncation(Truncation::OnlySecond);
    assert!(tokenizer.encode_with("a", &options).is_err());
    let options = options.with_max_length(4);
    let error = tokenizer.encode_with(("a a a", "b"), &options).unwrap_err().to_string();
    assert!(error.contains("with OnlySecond there are 1 to remove from"), "{error}");
    assert!(tokenizer.decode(&[9_999]).unwrap_err().to_string().contains("tokens[0] is 9999"));
}

#[test]
fn what_is_not_supported_is_named() {
    let error = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut file = read(name);
        change(&mut file);
        PretrainedTokenizer::from_bytes(file.to_string().as_bytes()).unwrap_err().to_string()
    };
    type Change = dyn Fn(&mut Value);
    let cases: [(&str, &str, &Change); 20] = [
        ("t5", "\"model.vocab\": expected a text and its score, found \"[3]\"", &|f| {
            f["model"]["vocab"][7] = json!([3])
        }),
        ("t5", "expected a text and its score", &|f| f["model"]["vocab"][7] = json!(["a", "b"])),
        ("t5", "model.unk_id: expected below", &|f| f["model"]["unk_id"] = json!(100_000)),
        ("t5", "is not a base64 digit", &|f| {
            f["normalizer"]["precompiled_charsmap"] = json!("AA_A")
        }),
        ("word_level", "pretokenizers[1].length: expected at least 1", &|f| {
            f["pre_tokenizer"]["pretokenizers"][1]["length"] = json!(0)
        }),
        ("word_level", "decoder.word_delimiter_token: expected a text", &|f| {
            f["decoder"]["word_delimiter_token"] = json!("")
        }),
        ("llama3", "classes such as [:alpha:] are not supported", &|f| {
            f["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": "[[:alpha:]]+"})
        }),
        ("bert", "model.type is \"Other\", which is not supported", &|f| {
            f["model"]["type"] = json!("Other")
        }),
        ("bert", "a table of characters is damaged", &|f| {
            f["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": "AA=="})
        }),
        ("bert", "normalizer.lowercase: expected true or false, found 3", &|f| {
            f["normalizer"]["lowercase"] = json!(3)
        }),
        ("llama3", "cannot read a regular expression", &|f| {
            f["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": "a(?=b"})
        }),
        ("llama3", "at pre_tokenizer.pretokenizers[0].pattern", &|f| {
            f["pre_tokenizer"]["pretokenizers"][0]["pattern"] = json!({"Regex": "(a"})
        }),
        ("llama3", "pre_tokenizer.pretokenizers[0].behavior: expected Removed, Isolated", &|f| {
            f["pre_tokenizer"]["pretokenizers"][0]["behavior"] = json!("Split")
        }),
        ("llama3", "nested more than", &|f| {
            for _ in 0..100 {
                let inner = f["pre_tokenizer"].take();
                f["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [inner]});
            }
        }),
        ("gpt2", "model.vocab is missing", &|f| f["model"]["vocab"] = Value::Null),
        ("gpt2", "the number of token \"a\" is -1", &|f| f["model"]["vocab"]["a"] = json!(-1)),
        ("gpt2", "needs token \"zz\", which is not in the vocabulary", &|f| {
            f["model"]["merges"] = json!(["z z"])
        }),
        ("gpt2", "model.merges: expected two tokens, found", &|f| {
            f["model"]["merges"] = json!(["z"])
        }),
        ("bert_cased", "post_processor.special_tokens has no token \"[CLS]\"", &|f| {
            f["post_processor"]["special_tokens"] = json!({})
        }),
        ("gpt2", "added_tokens[0].id: expected a whole number, found -3", &|f| {
            f["added_tokens"][0]["id"] = json!(-3)
        }),
    ];
    for (name, expected, change) in cases {
        let error = error(name, change);
        assert!(error.starts_with("load bytes") && error.contains(expected), "{expected}: {error}");
    }
    let growing = |f: &mut Value| {
        let step =
            json!({"type": "Replace", "pattern": {"String": "a"}, "content": "aaaaaaaaaaaaaaaa"});
        f["normalizer"] = json!({"type": "Sequence", "normalizers": vec![step; 12]});
    };
    let mut file = read("bert");
    growing(&mut file);
    let tokenizer = PretrainedTokenizer::from_bytes(file.to_string().as_bytes()).unwrap();
    let error = tokenizer.encode("aaa").unwrap_err().to_string();
    assert!(error.contains("longer than"), "{error}");
    let path = folder("pointer").join("tokenizer.json");
    fs::write(&path, "version https://git-lfs.github.com/spec/v1\noid sha256:0\n").unwrap();
    let error = PretrainedTokenizer::open(&path).unwrap_err().to_string();
    assert!(error.contains("tokenizer.json") && error.contains("git lfs pull"), "{error}");
    fs::remove_dir_all(path.parent().unwrap()).unwrap();
}

/// AutoTokenizer of transformers reads the files beside `tokenizer.json` in the same way
/// (`golden/make_tokenizer_configs.py`). TEENY_TOKENIZER_CONFIGS names another file of cases.
#[test]
fn files_beside_a_tokenizer_are_applied() {
    let golden = match std::env::var("TEENY_TOKENIZER_CONFIGS") {
        Ok(path) => fs::read_to_string(path).unwrap(),
        Err(_) => include_str!("golden/tokenizer_configs.json").to_string(),
    };
    let golden: Value = serde_json::from_str(&golden).unwrap();
    let mut differing = Vec::new();
    for (i, case) in golden["cases"].as_array().unwrap().iter().enumerate() {
        let folder = folder(&format!("beside-{i}"));
        for (name, content) in case["files"].as_object().unwrap() {
            fs::write(folder.join(name), content.to_string()).unwrap();
        }
        let tokenizer = PretrainedTokenizer::open(&folder).unwrap();
        let texts = golden["texts"].as_array().unwrap().iter();
        for (text, want) in texts.zip(case["tokens"].as_array().unwrap()) {
            let text = text.as_str().unwrap();
            let got = tokenizer.encode_with(text, &EncodeOptions::default());
            let got = got.map(|encoding| json!(encoding.ids)).map_err(|e| e.to_string());
            if got.as_ref() != Ok(want) {
                differing.push(format!("case {i}, {text:?}: {got:?}, not {want}"));
            }
        }
        fs::remove_dir_all(&folder).unwrap();
    }
    assert!(differing.is_empty(), "{} differ: {differing:#?}", differing.len());
}

/// The tokenizer of these parts of a file.
fn of_parts(parts: Value) -> Result<PretrainedTokenizer> {
    PretrainedTokenizer::from_bytes(parts.to_string().as_bytes())
}

#[test]
fn unigrams_of_bytes_may_end_within_a_character() {
    let model = json!({"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], ["Ã", -1]]});
    let words = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true});
    let trim = json!({"type": "ByteLevel", "trim_offsets": true, "add_prefix_space": false});
    let parts = json!({"model": model, "pre_tokenizer": words, "post_processor": trim});
    let tokenizer = of_parts(parts).unwrap();
    assert_eq!(
        tokenizer.encode_with("é é", &EncodeOptions::default()).unwrap().ids,
        [1, 0, 0, 1, 0]
    );
}

#[test]
fn a_character_without_a_token_needs_one_for_unknown_text() {
    let model = json!({"type": "Unigram", "vocab": [["a", 0.0], ["ab", 0.0]]});
    let tokenizer = of_parts(json!({"model": model})).unwrap();
    assert_eq!(tokenizer.encode("ab").unwrap(), [1]);
    let error = tokenizer.encode("ac").unwrap_err().to_string();
    assert!(error.contains("\"c\" has no token"), "{error}");
}

#[test]
fn texts_of_patterns_are_plain() {
    let model = json!({"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0, "axb": 1}});
    for text in ["<", ">", "$", "^", "#", "&", "~", "-", "{", "/", "\"", "'", "@", "%"] {
        let step = json!({"type": "Replace", "pattern": {"String": text}, "content": "x"});
        let tokenizer = of_parts(json!({"model": model, "normalizer": step})).unwrap();
        assert_eq!(tokenizer.encode(&format!("a{text}b")).unwrap(), [1], "{text}");
    }
    let step = json!({"type": "Replace", "pattern": {"Regex": r"\<"}, "content": "x"});
    let tokenizer = of_parts(json!({"model": model, "normalizer": step})).unwrap();
    assert_eq!(tokenizer.encode("a<b").unwrap(), [1]);
}

#[test]
fn tables_that_make_texts_long_are_refused() {
    // `a` becomes a million letters
    let mut units = vec![0u32; 0x62];
    (units[0x61], units[0x60]) = (0x61 | 0x100 | 1 << 10, 0);
    let trie: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let mut bytes = (trie.len() as u32).to_le_bytes().to_vec();
    bytes.extend(trie);
    bytes.extend(vec![b'x'; 1_000_000]);
    let step = json!({"type": "Precompiled", "precompiled_charsmap": encoded(&bytes)});
    let model = json!({"type": "WordLevel", "unk_token": "a", "vocab": {"a": 0}});
    let tokenizer = of_parts(json!({"model": model, "normalizer": step})).unwrap();
    let error = tokenizer.encode(&"a".repeat(1000)).unwrap_err().to_string();
    assert!(error.contains("the normalizer makes"), "{error}");
    let added: Vec<Value> = (0..1000)
        .map(|i| json!({"id": i + 1, "content": format!("a{i}"), "normalized": true}))
        .collect();
    let step = json!({"type": "Prepend", "prepend": "x".repeat(1 << 20)});
    let parts = json!({"model": model, "normalizer": step, "added_tokens": added});
    let error = of_parts(parts).unwrap_err().to_string();
    assert!(error.contains("when normalised") || error.contains("the normalizer makes"), "{error}");
}

/// `bytes` in base 64.
fn encoded(bytes: &[u8]) -> String {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let group = |part: &[u8]| {
        let all =
            part.iter().chain(&[0; 2]).take(3).fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        let digit = move |i: usize| DIGITS[(all >> (18 - 6 * i) & 63) as usize] as char;
        (0..=part.len()).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(group).collect()
}
