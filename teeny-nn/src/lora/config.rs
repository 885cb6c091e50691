//! `adapter_config.json`, as peft writes and reads it.

use super::options::{LoraBias, LoraOptions, Modules};
use super::tensors::LayerNames;
use crate::json::Json;
use serde_json::{Value, json};
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// Keys of what is not read: an adapter with another value than these computes something else.
const REFUSED: [(&str, &str); 11] = [
    ("use_dora", "DoRA"),
    ("use_qalora", "QALoRA"),
    ("use_bdlora", "BD-LoRA"),
    ("lora_bias", "biases of B"),
    ("velora_config", "VeLoRA"),
    ("monteclora_config", "MonteCLoRA"),
    ("kasa_config", "KaSA"),
    ("arrow_config", "Arrow"),
    ("layer_replication", "repeated layers"),
    ("target_parameters", "adapters of parameters outside linear layers"),
    ("trainable_token_indices", "single trained tokens"),
];

/// The options that the text of a file says.
pub(super) fn parse(bytes: &[u8]) -> Result<LoraOptions> {
    let values: Value =
        serde_json::from_slice(bytes).map_err(|e| Error::format(format!("not JSON: {e}")))?;
    let get = |key: &str| values.get(key).filter(|value| !value.is_null());
    let wrong = |key: &str, wanted: &str| {
        let value = values.get(key).map_or(String::new(), Value::to_string);
        Error::value(format!("{key:?} is {}, not {wanted}", quoted(&value)))
            .help("adapter_config.json is that of peft")
    };
    match get("peft_type").and_then(Value::as_str) {
        Some("LORA") => {}
        Some(other) => {
            let text = format!("an adapter of type {}", quoted(other));
            return Err(Error::unsupported(text).help("adapters of type \"LORA\" are read"));
        }
        None => {
            return Err(Error::value("no \"peft_type\"")
                .help("use the folder of an adapter that peft has saved"));
        }
    }
    let empty = |value: &Value| match value {
        Value::Bool(on) => !on,
        Value::Array(items) => items.is_empty(),
        Value::Object(items) => items.is_empty(),
        _ => false,
    };
    if let Some((key, name)) =
        REFUSED.iter().find(|(key, _)| get(key).is_some_and(|value| !empty(value)))
    {
        let text = format!("an adapter with {name} ({key:?})");
        return Err(Error::unsupported(text).help("merge it in peft, and open the merged model"));
    }
    let flag = |key: &str| match get(key) {
        None => Ok(false),
        Some(value) => value.as_bool().ok_or_else(|| wrong(key, "true or false")),
    };
    let number = |key: &str, default: f64| match get(key) {
        None => Ok(default),
        Some(value) => value.as_f64().ok_or_else(|| wrong(key, "a number")),
    };
    let size =
        |value: &Value| value.as_u64().and_then(|n| u32::try_from(n).ok()).map(|n| n as usize);
    let texts = |key: &str| -> Result<Vec<String>> {
        let Some(value) = get(key) else { return Ok(Vec::new()) };
        if let Some(text) = value.as_str() {
            return Ok(vec![text.to_string()]);
        }
        let text = |value: &Value| value.as_str().map(str::to_string);
        let all = value.as_array().and_then(|items| items.iter().map(text).collect());
        all.ok_or_else(|| wrong(key, "a list of texts"))
    };
    let modules = |key: &str| match get(key).and_then(Value::as_str) {
        Some(text) if text.eq_ignore_ascii_case("all-linear") => Ok(Modules::AllLinear),
        Some(text) => Ok(Modules::Pattern(text.to_string())),
        None => texts(key).map(Modules::Names),
    };
    // in the order of the file, which says which one applies
    let patterns = |key: &str| -> Result<Vec<(String, f64)>> {
        let mut items = Vec::new();
        Json::parse(bytes)?.members(|name, value| {
            if name != key || value.text() == "null" {
                return Ok(());
            }
            value.members(|name, value| {
                let number = value.text().parse().ok().filter(|x: &f64| x.is_finite());
                items.push((name, number.ok_or_else(|| wrong(key, "an object of numbers"))?));
                Ok(())
            })
        })?;
        Ok(items)
    };
    let defaults = LoraOptions::new();
    let rank = get("r").map_or(Some(defaults.rank), size).filter(|rank| *rank > 0);
    let ranks = patterns("rank_pattern")?.into_iter().map(|(name, x)| match x as usize {
        rank if rank as f64 == x => Ok((name, rank)),
        _ => Err(wrong("rank_pattern", "an object of sizes")),
    });
    let numbers = match get("layers_to_transform") {
        None => None,
        Some(value) => {
            let all = value.as_array().map_or_else(
                || size(value).map(|one| vec![one]),
                |items| items.iter().map(size).collect(),
            );
            let all = all.ok_or_else(|| wrong("layers_to_transform", "a list of sizes"))?;
            Some(all).filter(|all| !all.is_empty())
        }
    };
    let bias = match get("bias").map(|value| value.as_str().unwrap_or("")) {
        None | Some("none") => LoraBias::None,
        Some("all") => LoraBias::All,
        Some("lora_only") => LoraBias::LoraOnly,
        Some(_) => return Err(wrong("bias", "\"none\", \"all\" or \"lora_only\"")),
    };
    Ok(LoraOptions {
        rank: rank.ok_or_else(|| wrong("r", "a size above 0"))?,
        alpha: number("lora_alpha", defaults.alpha)?,
        target_modules: modules("target_modules")?,
        exclude_modules: modules("exclude_modules")?,
        dropout: number("lora_dropout", 0.0)?,
        bias,
        use_rslora: flag("use_rslora")?,
        rank_pattern: ranks.collect::<Result<_>>()?,
        alpha_pattern: patterns("alpha_pattern")?,
        layers_to_transform: numbers,
        layers_pattern: texts("layers_pattern")?,
        modules_to_save: texts("modules_to_save")?,
        dtype: None,
    })
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
