//! `adapter_config.json`, as peft writes and reads it.

use super::options::{LoraBias, LoraOptions, Modules};
use super::tensors::LayerNames;
use serde_json::{Value, json};
use std::path::Path;
use teeny_core::file::{quoted, read};
use teeny_core::{Error, Result};
use teeny_formats::config::Config;
use teeny_formats::json::Json;
use teeny_formats::keys;

/// The options that the file `path` says, and the keys that are not known.
pub(super) fn parse(path: &Path) -> Result<(LoraOptions, Vec<String>)> {
    let file = Config::open_file(path.to_path_buf())?;
    match file.text("peft_type")? {
        Some("LORA") => {}
        Some(other) => {
            let text = format!("cannot read an adapter of type {}", quoted(other));
            return Err(Error::unsupported(text).help("only adapters of type \"LORA\" are read"));
        }
        None => {
            return Err(Error::value("no \"peft_type\"")
                .help("use the folder of an adapter that peft has saved"));
        }
    }
    if let Some(text) = keys::refused(&["adapter"], &[], |key| file.value(key).cloned()) {
        return Err(Error::unsupported(text).help("merge it in peft, and open the merged model"));
    }
    let size = |value: &Value| u32::try_from(value.as_u64()?).ok().map(|n| n as usize);
    let text = |value: &Value| value.as_str().map(str::to_string);
    let texts = |key: &str| file.list(key, "a list of texts", text).map(Option::unwrap_or_default);
    let modules = |key: &str| match file.value(key).and_then(Value::as_str) {
        Some(text) if text.eq_ignore_ascii_case("all-linear") => Ok(Modules::AllLinear),
        Some(text) => Ok(Modules::Pattern(text.to_string())),
        None => texts(key).map(Modules::Names),
    };
    // in the order of the file, which says which one applies
    let bytes = read(path)?;
    let patterns = |key: &str| -> Result<Vec<(String, f64)>> {
        let mut items = Vec::new();
        let Some(all) = file.get(&[key]) else { return Ok(items) };
        let wrong = || file.wrong(&[key], all, "an object of numbers");
        Json::parse(&bytes)?.members(|name, value| match name == key {
            true => value.members(|name, value| {
                let number = value.text().parse().ok().filter(|x: &f64| x.is_finite());
                items.push((name, number.ok_or_else(wrong)?));
                Ok(())
            }),
            false => Ok(()),
        })?;
        Ok(items)
    };
    let defaults = LoraOptions::new();
    let ranks = patterns("rank_pattern")?.into_iter().map(|(name, x)| match x as usize {
        rank if rank as f64 == x => Ok((name, rank)),
        _ => Err(file.error(format!("\"rank_pattern\" has {x} for {name:?}, not a size"))),
    });
    let numbers = file.list("layers_to_transform", "a list of sizes", size)?;
    let bias = match file.text("bias")? {
        None | Some("none") => LoraBias::None,
        Some("all") => LoraBias::All,
        Some("lora_only") => LoraBias::LoraOnly,
        Some(other) => {
            let text = format!("\"bias\" is {}", quoted(other));
            return Err(file.error(text).help("\"none\", \"all\" or \"lora_only\""));
        }
    };
    let options = LoraOptions {
        rank: file.size(&["r"], defaults.rank)?,
        alpha: file.number(&["lora_alpha"], defaults.alpha)?,
        target_modules: modules("target_modules")?,
        exclude_modules: modules("exclude_modules")?,
        dropout: file.probability(&["lora_dropout"], 0.0)?,
        bias,
        use_rslora: file.flag("use_rslora", false)?,
        rank_pattern: ranks.collect::<Result<_>>()?,
        alpha_pattern: patterns("alpha_pattern")?,
        layers_to_transform: numbers.filter(|all| !all.is_empty()),
        layers_pattern: texts("layers_pattern")?,
        modules_to_save: texts("modules_to_save")?,
        dtype: None,
    };
    if options.rank == 0 {
        return Err(file.error("\"r\" is 0".to_string()).help("a rank of 1 or more"));
    }
    Ok((options, file.unread()))
}

/// The text of a file: the layers are named by `targets`, which choose no others.
pub(super) fn text(
    options: &LoraOptions,
    names: &LayerNames,
    targets: &[String],
    transposed: bool,
) -> String {
    let number = |x: f64| match x as i64 {
        whole if whole as f64 == x => json!(whole),
        _ => json!(x),
    };
    // their order says which one applies
    let object = |items: Vec<(&String, Value)>| {
        let items = items.into_iter().map(|(name, value)| format!("{}: {value}", json!(name)));
        format!("{{{}}}", items.collect::<Vec<_>>().join(", "))
    };
    let ranks = options.rank_pattern.iter().map(|(name, rank)| (name, json!(rank))).collect();
    let alphas = options.alpha_pattern.iter().map(|(name, x)| (name, number(*x))).collect();
    let saved = &options.modules_to_save;
    let saved = if saved.is_empty() { Value::Null } else { json!(saved) };
    let bias = match options.bias {
        LoraBias::None => "none",
        LoraBias::All => "all",
        LoraBias::LoraOnly => "lora_only",
    };
    let members = [
        ("peft_type", json!("LORA").to_string()),
        ("task_type", json!(names.task).to_string()),
        ("base_model_name_or_path", json!(names.base_model).to_string()),
        ("auto_mapping", Value::Null.to_string()),
        ("revision", Value::Null.to_string()),
        ("inference_mode", json!(true).to_string()),
        ("init_lora_weights", json!(true).to_string()),
        ("r", json!(options.rank).to_string()),
        ("lora_alpha", number(options.alpha).to_string()),
        ("rank_pattern", object(ranks)),
        ("alpha_pattern", object(alphas)),
        ("lora_dropout", json!(options.dropout).to_string()),
        ("target_modules", json!(targets).to_string()),
        ("exclude_modules", Value::Null.to_string()),
        ("layers_to_transform", Value::Null.to_string()),
        ("layers_pattern", Value::Null.to_string()),
        ("modules_to_save", saved.to_string()),
        ("bias", json!(bias).to_string()),
        ("fan_in_fan_out", json!(transposed).to_string()),
        ("lora_bias", json!(false).to_string()),
        ("use_dora", json!(false).to_string()),
        ("use_rslora", json!(options.use_rslora).to_string()),
    ];
    let lines = members.map(|(key, value)| format!("  \"{key}\": {value}"));
    format!("{{\n{}\n}}\n", lines.join(",\n"))
}
