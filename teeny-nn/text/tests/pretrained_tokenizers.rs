//! `PretrainedTokenizer` computes what Hugging Face's `tokenizers` computes for Python.

use serde_json::Value;
use std::path::{Path, PathBuf};
use teeny_text::{
    DecodeStream, EncodeInput, EncodeOptions, Encoding, PretrainedTokenizer, Side, Tokenizer,
    Truncation,
};

/// The tokenizers in `golden/tokenizers`, made by `golden/make_tokenizers.py`.
pub const NAMES: [&str; 26] = [
    "albert",
    "around",
    "behind",
    "bert",
    "bert_cased",
    "byte_normalizer",
    "clip",
    "gemma",
    "gpt2",
    "letters",
    "llama2",
    "llama3",
    "metaspace",
    "mistral",
    "phi3",
    "pieces",
    "qwen2",
    "roberta",
    "smollm",
    "subwords",
    "suffix",
    "t5",
    "unigram_bytes",
    "whisper",
    "word_level",
    "xlm_roberta",
];

/// The folder of these tokenizers: TEENY_TOKENIZERS, where the script has written others.
pub fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("TEENY_TOKENIZERS") {
        return folder.into();
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers")
}

fn open(name: &str) -> PretrainedTokenizer {
    PretrainedTokenizer::open(folder().join(format!("{name}.json"))).unwrap()
}

/// FNV-1a of 32 bits, as in the script.
fn checksum(encoding: &Encoding, decoded: &str) -> u64 {
    let joined =
        |numbers: Vec<usize>| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let parts = [
        joined(encoding.ids.iter().map(|id| *id as usize).collect()),
        joined(encoding.type_ids.iter().map(|id| *id as usize).collect()),
        joined(encoding.offsets.iter().flat_map(|(a, b)| [*a, *b]).collect()),
        joined(encoding.special_tokens_mask.iter().map(|m| usize::from(*m)).collect()),
        decoded.to_string(),
    ];
    let bytes = parts.join("|").into_bytes();
    let step = |state: u32, byte: &u8| (state ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    u64::from(bytes.iter().fold(0x811c_9dc5, step))
}

fn options_of(case: &Value) -> EncodeOptions {
    let mut options =
        EncodeOptions::default().with_add_special_tokens(case["special"].as_bool().unwrap());
    if let Some(max) = case["max"].as_u64() {
        options = options
            .with_max_length(max as usize)
            .with_truncation_side(match case["side"].as_str() {
                Some("left") => Side::Left,
                _ => Side::Right,
            })
            .with_truncation(match case["strategy"].as_str() {
                Some("only_first") => Truncation::OnlyFirst,
                Some("only_second") => Truncation::OnlySecond,
                _ => Truncation::LongestFirst,
            });
    }
    options
}

#[test]
fn every_kind_of_tokenizer_computes_what_hugging_face_computes() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(folder().join("cases.json")).unwrap()).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert!(cases.len() > 300);
    let mut wrong = Vec::new();
    for name in NAMES {
        let tokenizer = open(name);
        let expected = &golden["expected"][name];
        for (i, case) in cases.iter().enumerate() {
            let input =
                EncodeInput { text: case["text"].as_str().unwrap(), pair: case["pair"].as_str() };
            let sum = expected["checksums"][i].as_u64().unwrap();
            let encoding = match tokenizer.encode_with(input, &options_of(case)) {
                Ok(encoding) => encoding,
                Err(_) if sum == 0 => continue,
                Err(e) => panic!("{name}, case {i}: {e}"),
            };
            let decoded =
                tokenizer.decode_with(&encoding.ids, case["skip"].as_bool().unwrap()).unwrap();
            if checksum(&encoding, &decoded) != sum {
                wrong.push(format!(
                    "{name}, case {i}: {case}\n{encoding:?}\n{decoded:?}\n{}",
                    expected["full"][i]
                ));
            }
        }
    }
    for text in wrong.iter().take(12) {
        println!("{text}");
    }
    assert!(wrong.is_empty(), "{} differ", wrong.len());
}

#[test]
fn streamed_tokens_are_the_decoded_text() {
    let golden: Value =
        serde_json::from_slice(&std::fs::read(folder().join("cases.json")).unwrap()).unwrap();
    for name in NAMES {
        let tokenizer = open(name);
        for case in golden["cases"].as_array().unwrap() {
            let ids = tokenizer.encode(case["text"].as_str().unwrap()).unwrap();
            let mut stream = DecodeStream::new(&tokenizer);
            let mut text: String = ids.iter().map(|id| stream.push(*id).unwrap()).collect();
            text += &stream.finish().unwrap();
            assert_eq!(text, tokenizer.decode(&ids).unwrap(), "{name}: {case}");
        }
    }
}
