//! Parts of the programs that run pretrained models: options of the model, lines of files.

use crate::Common;
use crate::options::one_of;
use std::io::{BufRead, Write, stderr};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;
use teeny_core::{DType, DeviceRef, Error, QuantType, Result};
use teeny_formats::gguf::ElementType;
use teeny_models::lora::Lora;
use teeny_models::{Decoder, Encoder, GenerationConfig, OpenOptions};
use teeny_nn::Store;

/// The common options that these programs do not have.
pub const WITHOUT: &[&str] =
    &["data", "load", "save", "resume", "plot", "log", "lazy", "captured", "graph"];

/// The model of a program.
pub struct Model {
    /// A folder, a GGUF file, or `ORG/NAME` in the local cache of the Hugging Face hub.
    pub path: Option<PathBuf>,
    /// The dtype of its parameters.
    pub dtype: DType,
    /// The type to which its weights are quantised.
    pub quantize: Option<QuantType>,
    /// The type of the keys and values that a decoder keeps.
    pub cache: Option<ElementType>,
    /// The folder of an adapter for a decoder, as peft or `finetune` writes it.
    pub adapter: Option<PathBuf>,
}

impl Default for Model {
    fn default() -> Model {
        Model { path: None, dtype: DType::F32, quantize: None, cache: None, adapter: None }
    }
}

/// A dtype of parameters by its name.
///
/// # Errors
/// If the dtype does not exist.
pub fn dtype(name: &str) -> std::result::Result<DType, String> {
    one_of(name, &[("f32", DType::F32), ("bf16", DType::BF16), ("f16", DType::F16)])
}

/// A type of quantised weights by its name, for an option that may be absent.
///
/// # Errors
/// If the type does not exist, or weights cannot be written in it.
pub fn quant_type(name: &str) -> std::result::Result<Option<QuantType>, String> {
    let kinds: Vec<_> = QuantType::ALL.into_iter().filter(|kind| kind.is_written()).collect();
    let known: Vec<_> = kinds.iter().map(|kind| (kind.name(), Some(*kind))).collect();
    one_of(&name.to_uppercase(), &known)
}

/// A type of elements of GGUF files by its name.
///
/// # Errors
/// If the type does not exist, or weights cannot be written in it.
pub fn element_type(name: &str) -> std::result::Result<ElementType, String> {
    if let Ok(dtype) = dtype(name) {
        return Ok(ElementType::Plain(dtype));
    }
    let kind = quant_type(name).map_err(|e| format!("{e}, f32, bf16, f16"))?;
    kind.map(ElementType::Quantized).ok_or_else(|| "it has no type".to_string())
}

/// A type of kept keys and values by its name.
///
/// # Errors
/// If a cache does not keep it.
pub fn cache_type(name: &str) -> std::result::Result<Option<ElementType>, String> {
    let known = [
        ("f32", DType::F32.into()),
        ("bf16", DType::BF16.into()),
        ("f16", DType::F16.into()),
        ("q8_0", QuantType::Q8_0.into()),
    ];
    one_of(name, &known.map(|(name, of)| (name, Some(of))))
}

/// The number of elements of all parameters and buffers, quantised ones too.
pub fn parameter_count(store: &Store) -> usize {
    store.all().iter().map(|param| param.shape().numel()).sum()
}

/// Prints `notes`, the keys of a model's files that are not known.
pub fn tell(notes: &[String]) {
    if !notes.is_empty() {
        let keys = notes.join(", ");
        let _ =
            writeln!(stderr(), "keys of the files that are not known, and have no effect: {keys}");
    }
}

impl Model {
    fn open<T>(
        &self,
        common: &Common,
        open: impl FnOnce(&Path, &OpenOptions, &DeviceRef) -> Result<T>,
    ) -> Result<T> {
        let path = self.path.as_deref().ok_or_else(|| {
            Error::value("no model").help(
                "--model PATH is a folder of Hugging Face, a GGUF file, or ORG/NAME of a model \
                 that was downloaded before",
            )
        })?;
        let mut options = OpenOptions::new().with_dtype(self.dtype);
        (options.quantize, options.cache) = (self.quantize, self.cache);
        open(path, &options, &common.device()?)
    }

    /// Opens a decoder, with its adapter.
    ///
    /// # Errors
    /// As [`Decoder::open`] and [`Lora::open`]; if the option is missing.
    pub fn decoder(&self, common: &Common) -> Result<Decoder> {
        let decoder =
            self.open(common, |path, options, device| Decoder::open_with(path, options, device))?;
        tell(decoder.notes());
        if let Some(path) = &self.adapter {
            tell(Lora::open(&decoder, path)?.notes()); // stays attached
        }
        Ok(decoder)
    }

    /// Opens an encoder.
    ///
    /// # Errors
    /// As [`Encoder::open`]; if the option is missing.
    pub fn encoder(&self, common: &Common) -> Result<Encoder> {
        self.encoder_with(common, None)
    }

    /// Opens an encoder, with a head for the classes `labels`.
    ///
    /// # Errors
    /// As [`Model::encoder`].
    pub fn encoder_with(&self, common: &Common, labels: Option<Vec<String>>) -> Result<Encoder> {
        let encoder = self.open(common, |path, options, device| match labels {
            Some(labels) => Encoder::open_with(path, &options.clone().with_labels(labels), device),
            None => Encoder::open_with(path, options, device),
        })?;
        tell(encoder.notes());
        Ok(encoder)
    }
}

/// Options of a program that override the model's [`GenerationConfig`].
#[derive(Default)]
pub struct Choice {
    /// The number of new tokens at most.
    pub tokens: Option<usize>,
    /// The temperature: 0 takes the most likely token.
    pub temperature: Option<f64>,
    /// Draw from the most likely tokens that together have this probability.
    pub top_p: Option<f64>,
    /// Texts after which the text ends.
    pub stops: Vec<String>,
}

impl Choice {
    /// The model's [`GenerationConfig`] with these options.
    pub fn of(&self, decoder: &Decoder, common: &Common) -> GenerationConfig {
        let mut config = decoder.generation.clone();
        config.seed = common.seed;
        config.max_new_tokens = self.tokens.unwrap_or(config.max_new_tokens);
        config.stop_strings.extend(self.stops.iter().cloned());
        if let Some(temperature) = self.temperature {
            (config.temperature, config.do_sample) = (temperature, temperature > 0.0);
        }
        if let Some(top_p) = self.top_p {
            (config.top_p, config.do_sample) = (top_p, true);
        }
        config
    }
}

/// Prints a piece of text at once.
pub fn show(piece: &str) -> ControlFlow<()> {
    use std::io::Write;
    print!("{piece}");
    // a reader that is gone has seen enough
    match std::io::stdout().flush() {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    }
}

/// The lines of `file`, or of the standard input.
///
/// # Errors
/// If it cannot be read or is not UTF-8.
pub fn lines(file: Option<&Path>) -> Result<Vec<String>> {
    let named = |e: std::io::Error| {
        let name = file.map_or("the standard input".to_string(), |path| path.display().to_string());
        Error::io(format!("cannot read {name}: {e}")).with_source(e)
    };
    let reader: Box<dyn BufRead> = match file {
        Some(path) => Box::new(std::io::BufReader::new(std::fs::File::open(path).map_err(named)?)),
        None => Box::new(std::io::stdin().lock()),
    };
    reader.lines().collect::<std::io::Result<_>>().map_err(named)
}

/// `count` per second.
pub fn rate(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_nn::Linear;

    #[test]
    fn quantised_parameters_are_counted() -> Result<()> {
        let store = Store::new(&teeny_nn::device("cpu")?);
        Linear::new(&store.root(), 64, 8)?;
        let count = parameter_count(&store);
        store.quantize(|param| QuantType::Q8_0.fitting(*param.shape().last()?))?;
        assert_eq!([count, parameter_count(&store)], [64 * 8 + 8; 2]);
        Ok(())
    }
}
