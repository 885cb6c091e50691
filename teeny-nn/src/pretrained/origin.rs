//! [`Origin`]: the folder that a model was opened from, to write one like it.

use super::config::Config;
use crate::names::loading;
use crate::state::Mapping;
use crate::store::Store;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use teeny_core::file::{reason, replace, write_error};
use teeny_core::{DType, Error, Result};

/// The bytes of a part of the weights at most.
const PART: u64 = 5_000_000_000;

/// The files of a model, its names, and what its configuration says.
pub(super) struct Origin {
    pub folder: PathBuf,
    pub config: Config,
    pub mapping: Mapping,
    /// The class of the model if its head is not read, for `architectures`.
    pub class: Option<String>,
}

/// Files beside the weights: tokenizers, templates, processors of images, and the modules of
/// sentence-transformers.
const COPIED: [&str; 15] = [
    "added_tokens.json",
    "chat_template.jinja",
    "config_sentence_transformers.json",
    "generation_config.json",
    "merges.txt",
    "modules.json",
    "preprocessor_config.json",
    "processor_config.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "vocab.json",
    "vocab.txt",
];

impl Origin {
    /// `origin`, which a model that was opened from a GGUF file does not have.
    pub fn of_folder(origin: &Option<Origin>) -> Result<&Origin> {
        origin.as_ref().ok_or_else(|| {
            Error::value("the model was opened from a GGUF file, which has another layout")
                .help("store.save keeps its parameters under the names of this crate")
        })
    }

    /// Writes `store` and the other files of the model into the folder `path`.
    pub fn save(&self, store: &Store, path: &Path) -> Result<()> {
        let named = |error: Error| error.named(format!("save {}", path.display()));
        let io = |path: &Path, e: &std::io::Error| {
            named(Error::io(format!("cannot write: {}", reason(path, e))))
        };
        fs::create_dir_all(path).map_err(|e| io(path, &e))?;
        if path.canonicalize().is_ok_and(|path| self.folder.canonicalize().ok() == Some(path)) {
            let text = "this is the folder that the model was opened from";
            return Err(named(Error::value(text).help("save into another one")));
        }
        store.save_parts(path, &self.mapping, PART).map_err(named)?;
        let dtype = match store.all().first().map(|param| param.value().dtype()) {
            Some(DType::BF16) => "bfloat16",
            Some(DType::F16) => "float16",
            Some(DType::F64) => "float64",
            _ => "float32",
        };
        let mut values = self.config.values().clone();
        values["dtype"] = json!(dtype);
        if let Some(class) = &self.class {
            values["architectures"] = json!([class]);
        }
        // older readers know this key alone
        if values.get("torch_dtype").is_some() {
            values["torch_dtype"] = json!(dtype);
        }
        replace(&path.join("config.json"), |writer| {
            serde_json::to_writer_pretty(writer, &values).map_err(write_error)
        })
        .map_err(named)?;
        let copy = |name: &Path| {
            let (from, to) = (self.folder.join(name), path.join(name));
            if !from.exists() {
                return Ok(());
            }
            to.parent().map_or(Ok(()), fs::create_dir_all).map_err(|e| io(&to, &e))?;
            let copied = fs::copy(&from, &to);
            copied.map(drop).map_err(|e| Error::from(e).named(loading(&from)))
        };
        COPIED.iter().try_for_each(|name| copy(Path::new(name)))?;
        // the modules of sentence-transformers have folders, such as 1_Pooling
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let folders = entries.filter(|entry| entry.path().is_dir());
        folders
            .map(|entry| entry.file_name())
            .try_for_each(|name| copy(&Path::new(&name).join("config.json")))?;
        Ok(())
    }
}
