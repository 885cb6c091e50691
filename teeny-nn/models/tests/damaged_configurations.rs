//! Random configurations: each is a model or an error with a help line.

use crate::common::*;
use crate::files::*;
use std::fs;
use teeny_core::Reference;
use teeny_models::{Decoder, Encoder};

/// Numbers and other values for the keys of a configuration.
fn wrong_values() -> Vec<serde_json::Value> {
    use serde_json::{Value, json};
    let long = u64::from(u32::MAX);
    vec![
        Value::Null,
        json!(true),
        json!(0),
        json!(1),
        json!(3),
        json!(-1),
        json!(long),
        json!(u64::MAX),
        json!(1e18),
        json!(1e-300),
        json!(0.5),
        json!("a"),
        json!("gelu"),
        json!([]),
        json!([1, 2]),
        json!({"rope_type": "yarn", "factor": 0.0}),
        json!({"type": "linear"}),
    ]
}

/// Models whose configurations contradict their weights, or name what there is not.
#[test]
fn damaged_configurations_are_errors_or_models() {
    let (device, mut dice, values) = (Reference::new(), Dice(0x1234_5678_9abc), wrong_values());
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let models = ["decoders/gpt2", "decoders/llama-yarn", "decoders/gemma3", "decoders/phi3-long"];
    let models = models.into_iter().chain(["pretrained/bert", "pretrained/distilbert"]);
    for model in models {
        let (folder, from) = (Folder::new("fuzz-config"), golden.join(model));
        let mut bytes = 0;
        for entry in fs::read_dir(&from).unwrap_or_else(|e| panic!("{model}: {e}")).flatten() {
            if entry.path().is_file() {
                bytes += fs::copy(entry.path(), folder.0.join(entry.file_name())).unwrap() as usize;
            }
        }
        let open = || match model.starts_with("decoders") {
            true => Decoder::open(&folder.0, &device).map(drop),
            false => Encoder::open(&folder.0, &device).map(drop),
        };
        open().unwrap_or_else(|e| panic!("{model}: {e}"));
        let path = folder.0.join("config.json");
        let good: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let keys: Vec<&String> = good.as_object().unwrap().keys().collect();
        let (count, mut refused) = (150 * fuzz_times(), 0);
        for _ in 0..count {
            let mut config = good.clone();
            for _ in 0..=dice.below(2) {
                let key = keys[dice.below(keys.len())];
                config[key] = values[dice.below(values.len())].clone();
            }
            fs::write(&path, config.to_string()).unwrap();
            let read = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(&open));
            let (result, peak) = peak_of(read);
            let Ok(result) = result else { panic!("{model}: panicked with {config}") };
            refused += usize::from(result.is_err());
            if let Err(error) = result {
                assert!(error.has_help(), "{model}: no help with {config}: {error}");
                let place = error.location().map(|line| line.file());
                assert_eq!(place, Some(file!()), "{model}: no line with {config}: {error}");
            }
            // tables of positions beside the weights
            let most = (64 << 20) + 8 * bytes;
            assert!(peak <= most, "{model}: {peak} bytes with {config}");
        }
        assert!(refused > count / 5, "{model}: only {refused} of {count} were refused");
    }
}
