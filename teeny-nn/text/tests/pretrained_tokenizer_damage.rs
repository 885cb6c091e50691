//! Of thousands of damaged tokenizer files, none makes the reader or the tokenizer panic. The
//! variable TEENY_FUZZ multiplies their number.

use crate::common::{Dice, fuzz_times};
use crate::pretrained_tokenizer_files::{TEXT, golden};
use serde_json::{Value, json};
use std::fs;
use std::time::Instant;
use teeny_text::{EncodeOptions, PretrainedTokenizer, Tokenizer};

/// Replaces one value somewhere in `value`.
fn replace(value: &mut Value, dice: &mut Dice, depth: usize) {
    let stop = depth > 0 && dice.below(3) == 0;
    match value {
        Value::Object(members) if !stop && !members.is_empty() => {
            let at = dice.below(members.len());
            if dice.below(12) == 0 {
                let name = members.keys().nth(at).unwrap().clone();
                members.remove(&name);
            } else {
                replace(members.values_mut().nth(at).unwrap(), dice, depth + 1);
            }
        }
        Value::Array(items) if !stop && !items.is_empty() => {
            let at = dice.below(items.len());
            replace(&mut items[at], dice, depth + 1);
        }
        _ => {
            let long = "a ".repeat(3000);
            let values = [
                Value::Null,
                json!(true),
                json!(0),
                json!(-1),
                json!(4_294_967_295u64),
                json!(1e300),
                json!(""),
                json!("a"),
                json!("\u{0}é"),
                json!(long),
                json!([]),
                json!({}),
                json!({"String": ""}),
                json!({"Regex": "x*"}),
                json!({"Regex": "\\s+(?!\\S)|a|"}),
                json!("Removed"),
                json!("MergedWithNext"),
                json!(false),
                json!([["a", "b"]]),
                json!("first"),
                json!("Ġ"),
                json!({"type": "Fuse"}),
                json!("$A"),
                json!(1000),
            ];
            *value = values[dice.below(values.len())].clone();
        }
    }
}

#[test]
fn damaged_files_never_panic() {
    let mut dice = Dice(0x2545_f491_4f6c_dd1d);
    let names = [
        "bert",
        "bert_cased",
        "byte_normalizer",
        "clip",
        "gpt2",
        "llama3",
        "metaspace",
        "pieces",
        "roberta",
        "subwords",
        "suffix",
        "whisper",
        "llama2",
        "phi3",
    ];
    let (mut read_count, start) = (0, Instant::now());
    let times = fuzz_times();
    let rounds = 200 * times;
    for name in names {
        let good = fs::read(golden(name)).unwrap();
        let file: Value = serde_json::from_slice(&good).unwrap();
        for round in 0..rounds {
            let bytes = if round % 2 == 0 {
                let mut bytes = good.clone();
                let at = dice.below(bytes.len());
                match dice.below(4) {
                    0 => bytes[at] = dice.below(256) as u8,
                    1 => bytes[at] ^= 1 << dice.below(8),
                    2 => drop(bytes.drain(at..(at + dice.below(40)).min(good.len()))),
                    _ => bytes.truncate(at),
                }
                bytes
            } else {
                let mut file = file.clone();
                for _ in 0..=dice.below(3) {
                    replace(&mut file, &mut dice, 0);
                }
                file.to_string().into_bytes()
            };
            let Ok(tokenizer) = PretrainedTokenizer::from_bytes(&bytes) else { continue };
            read_count += 1;
            let options = EncodeOptions::default().with_max_length(1 + dice.below(20));
            for text in [TEXT, "", "Ġ▁##", "Yesterday word <mask>  </s> \n"] {
                let _ = tokenizer.encode_with((text, "pair"), &options);
                let _ = tokenizer.encode_with(text, &EncodeOptions::default());
                if let Ok(ids) = tokenizer.encode(text) {
                    tokenizer.decode(&ids).unwrap_or_default();
                }
            }
            let _ = tokenizer.decode_with(&[dice.below(300) as u32, 0, 5], true);
        }
    }
    println!(
        "{read_count} of {} damaged files were read, {:.2?}",
        names.len() * rounds,
        start.elapsed()
    );
    assert!(read_count > 100);
    assert!(start.elapsed().as_secs() < 120 * times as u64);
}

#[test]
fn long_texts_without_words_take_linear_time() {
    let parts = ["a", " ", "\u{301}", "<", "</s>", "\n ", "é", "Yesterday", "1", "  x", "日", "▁"];
    let start = Instant::now();
    for name in ["bert_cased", "clip", "gemma", "llama3", "phi3", "qwen2", "roberta", "subwords"] {
        let tokenizer = PretrainedTokenizer::open(golden(name)).unwrap();
        for part in parts {
            let text = part.repeat(100_000 / part.len());
            let now = Instant::now();
            let encoded = tokenizer.encode_with(&text, &EncodeOptions::default()).unwrap();
            tokenizer.decode(&encoded.ids).unwrap();
            assert!(now.elapsed().as_secs() < 5, "{name}, {part:?}: {:?}", now.elapsed());
        }
    }
    println!("{:.2?}", start.elapsed());
}
