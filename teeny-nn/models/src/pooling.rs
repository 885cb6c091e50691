//! [`Pooling`]: pools the states of tokens to the embedding of a text, as sentence-transformers
//! does.

use serde_json::Value;
use std::path::{Component, Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor};
use teeny_formats::config::{Config, read};
use teeny_formats::names::loading;
use teeny_nn::norm::normalized;

/// Which states make the embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolingMode {
    /// The mean of the states of all tokens.
    Mean,
    /// The state of the first token.
    Cls,
    /// The largest value of each feature.
    Max,
    /// The state of the last token.
    LastToken,
}

/// How an embedding is made of the states of the tokens of a text.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Pooling {
    /// Which states.
    pub mode: PoolingMode,
    /// Whether the embedding is divided by its length.
    pub normalize: bool,
    /// Whether the tokens of an instruction before a text are pooled too.
    pub include_prompt: bool,
}

/// Names of `pooling_mode`, and the keys that older files have instead.
const MODES: [(&str, &str, PoolingMode); 4] = [
    ("mean", "pooling_mode_mean_tokens", PoolingMode::Mean),
    ("cls", "pooling_mode_cls_token", PoolingMode::Cls),
    ("max", "pooling_mode_max_tokens", PoolingMode::Max),
    ("lasttoken", "pooling_mode_lasttoken", PoolingMode::LastToken),
];

impl Pooling {
    /// The pooling of `modules.json` in `folder`, and the folder of the model; without that file,
    /// the mean, not normalised, and `folder`.
    pub(super) fn open(folder: &Path) -> Result<(Pooling, PathBuf)> {
        let mut pooling =
            Pooling { mode: PoolingMode::Mean, normalize: false, include_prompt: true };
        let (path, mut model) = (folder.join("modules.json"), folder.to_path_buf());
        if !path.exists() {
            return Ok((pooling, model));
        }
        let (path, modules) = read(path)?;
        let wrong = |text: String| Error::format(text).named(loading(&path));
        let Some(modules) = modules.as_array() else {
            return Err(wrong("it is not a list of modules".to_string()));
        };
        for module in modules {
            let [kind, name] = ["type", "path"].map(|key| module[key].as_str().unwrap_or_default());
            let inside = |part| matches!(part, Component::Normal(_));
            if !Path::new(name).components().all(inside) {
                return Err(wrong(format!("{name:?} is outside the folder")));
            }
            if !["null", "[]", "{}"].contains(&module["kwargs"].to_string().as_str()) {
                let text = format!("module {name:?} takes {}", module["kwargs"]);
                return Err(wrong(text).help("modules with such arguments are not supported"));
            }
            match kind.rsplit('.').next().unwrap_or_default() {
                "Transformer" => model.extend(Some(name).filter(|name| !name.is_empty())),
                "Normalize" => pooling.normalize = true,
                "Pooling" => pooling.read(&folder.join(name))?,
                _ => {
                    return Err(wrong(format!("cannot read a module of type {kind:?}"))
                        .help("Transformer, Pooling and Normalize are supported"));
                }
            }
        }
        Ok((pooling, model))
    }

    /// Reads the `config.json` of `folder`.
    fn read(&mut self, folder: &Path) -> Result<()> {
        let config = Config::open(folder)?;
        let known = || {
            let names: Vec<&str> = MODES.iter().map(|(name, ..)| *name).collect();
            format!("{} are known", names.join(", "))
        };
        self.include_prompt = config.flag("include_prompt", true)?;
        if let Some(value) = config.get(&["pooling_mode"]) {
            let name = value.as_array().filter(|all| all.len() == 1).map_or(value, |all| &all[0]);
            let found = MODES.iter().find(|(mode, ..)| name.as_str() == Some(mode));
            let wrong = || config.error(format!("pooling_mode is {name}")).help(known());
            self.mode = found.ok_or_else(wrong)?.2;
        }
        let mut set = Vec::new();
        for (_, key, mode) in MODES.iter().filter(|_| !config.has("pooling_mode")) {
            if config.flag(key, false)? {
                set.push(*mode);
            }
        }
        let unknown = config.check(&["pooling"], &[])?;
        let other = unknown.iter().find(|key| config.get(&[key]) == Some(&Value::Bool(true)));
        match (&set[..], other) {
            (_, Some(key)) => Err(config.error(format!("{key} is true")).help(known())),
            ([], _) => Ok(()),
            ([mode], _) => {
                self.mode = *mode;
                Ok(())
            }
            _ => Err(config.error(format!("expected one pooling to be true, got {}", set.len()))),
        }
    }

    /// The embeddings of texts with `states` (B, T, E), whose tokens are where `mask` (B, T) is
    /// true → (B, E). Computed in f32 at least. The mean of no tokens is zero.
    ///
    /// # Errors
    /// If shapes do not fit.
    #[track_caller]
    pub fn apply(&self, states: &Tensor, mask: Option<&Tensor>) -> Result<Tensor> {
        let _op = enter("pooling");
        let dtype = states.dtype();
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let states = &states.cast(wide)?;
        let [batch, tokens, _] = states.shape()[..] else {
            return Err(Error::shape(format!("states are (B, T, E), not {}", states.shape()))
                .help("Encoder::hidden returns them"));
        };
        let mask = match mask {
            Some(mask) if mask.shape()[..] != [batch, tokens] => {
                let text = format!("states are {}, the mask is {}", states.shape(), mask.shape());
                return Err(Error::shape(text).help("a mask has one value for each token: (B, T)"));
            }
            Some(mask) => mask.cast(DType::Bool)?,
            None => Tensor::ones((batch, tokens), DType::Bool, states)?,
        }; // (B, T)
        // chosen, not multiplied: the states of padding may be anything
        let chosen = |mask: &Tensor, other: f64| mask.unsqueeze(-1)?.where_cond(states, other);
        let pooled = match self.mode {
            PoolingMode::Mean => {
                let count = mask.cast(wide)?.sum_keepdim(1)?.clamp(1e-9, f64::INFINITY)?; // (B, 1)
                chosen(&mask, 0.0)?.sum(1)?.div(&count)?
            }
            PoolingMode::Cls => states.at(1, 0)?,
            PoolingMode::Max => chosen(&mask, f64::NEG_INFINITY)?.max(1)?,
            PoolingMode::LastToken => {
                let positions = Tensor::arange(0, tokens as i32, 1, states)?; // (T)
                let last = mask.where_cond(&positions, -1)?.max(1)?.unsqueeze(1)?; // (B, 1)
                chosen(&positions.eq(&last)?, 0.0)?.sum(1)?
            }
        }; // (B, E)
        let pooled = match self.normalize {
            true => normalized(&pooled)?,
            false => pooled,
        };
        pooled.cast(dtype)
    }
}
