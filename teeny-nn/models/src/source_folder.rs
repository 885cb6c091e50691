//! [`SourceFolder`]: the folder that a model was opened from, used to save a folder in the same
//! format.

use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use teeny_core::file::{reason, replace, write_error};
use teeny_core::{DType, Error, Result};
use teeny_formats::Mapping;
use teeny_formats::config::Config;
use teeny_formats::names::loading;
use teeny_nn::store::Store;

/// The bytes of a part of the weights at most.
const PART: u64 = 5_000_000_000;

/// The files of a model, its names, and its configuration.
pub(super) struct SourceFolder {
    pub folder: PathBuf,
    /// The folder in it that has the model; empty, if it is the same.
    pub inside: PathBuf,
    pub config: Config,
    pub mapping: Mapping,
    /// The class of the model if its head is not read, for `architectures`.
    pub class: Option<String>,
}

/// Endings of the files beside the weights: of tokenizers, templates, options and processors of
/// images, and of the modules of sentence-transformers, which have folders, such as 1_Pooling.
const COPIED: [&str; 4] = ["jinja", "json", "model", "txt"];

impl SourceFolder {
    /// `origin`, which a model that was opened from a GGUF file does not have.
    pub fn of_folder<'a>(origin: impl Into<Option<&'a SourceFolder>>) -> Result<&'a SourceFolder> {
        origin.into().ok_or_else(|| {
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
        let model = path.join(&self.inside);
        fs::create_dir_all(&model).map_err(|e| io(&model, &e))?;
        if path.canonicalize().is_ok_and(|path| self.folder.canonicalize().ok() == Some(path)) {
            let text = "this is the folder that the model was opened from";
            return Err(named(Error::value(text).help("save into another one")));
        }
        store.save_parts(&model, &self.mapping, PART).map_err(named)?;
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
        replace(&model.join("config.json"), |writer| {
            serde_json::to_writer_pretty(writer, &values).map_err(write_error)
        })
        .map_err(named)?;
        let mut folders = vec![PathBuf::new()];
        while let Some(folder) = folders.pop() {
            let entries = fs::read_dir(self.folder.join(&folder)).into_iter().flatten().flatten();
            for (from, name) in entries.map(|e| (e.path(), folder.join(e.file_name()))) {
                if from.is_dir() && folder.as_os_str().is_empty() {
                    folders.push(name);
                    continue;
                }
                let is_own = name == self.inside.join("config.json");
                let is_index = name.to_string_lossy().ends_with(".index.json");
                let end = name.extension().and_then(|end| end.to_str());
                if from.is_file()
                    && !is_own
                    && !is_index
                    && end.is_some_and(|e| COPIED.contains(&e))
                {
                    let to = path.join(&folder);
                    fs::create_dir_all(&to).map_err(|e| io(&to, &e))?;
                    let copied = fs::copy(&from, path.join(&name));
                    copied.map_err(|e| Error::from(e).named(loading(&from)))?;
                }
            }
        }
        Ok(())
    }
}
