//! A GGUF file as an encoder: BERT's layers, and how hidden states are pooled to the embedding of a
//! text.

use super::config;
use crate::family::with_names;
use crate::pooling::{Pooling, PoolingMode};
use std::path::Path;
use teeny_core::Result;
use teeny_formats::config::Config;
use teeny_formats::{Gguf, Mapping, TensorSource};

/// The configuration of the encoder `file` at `path`.
///
/// # Errors
/// If the metadata does not name an architecture.
pub(crate) fn encoder_config(path: &Path, file: &Gguf) -> Result<Config> {
    config(path, file.metadata(), &file.shapes().into_iter().collect())
}

/// How states become an embedding, which llama.cpp divides by its length.
///
/// # Errors
/// If the kind of the file is not known, such as the kind of rerankers.
pub(crate) fn pooling(config: &Config) -> Result<Pooling> {
    let mode = match config.size(&["pooling_type"], 1)? {
        0 | 1 => PoolingMode::Mean,
        2 => PoolingMode::Cls,
        3 => PoolingMode::LastToken,
        other => {
            let help = "0 and 1 are the mean, 2 is the first token and 3 the last";
            return Err(config.error(format!("\"pooling_type\" is {other}")).help(help));
        }
    };
    Ok(Pooling { mode, normalize: true, include_prompt: true })
}

/// The names and the layout of a file of an encoder of this width. Heads are not read.
pub(crate) fn encoder_mapping(width: usize) -> Mapping {
    with_names(Mapping::new().skip("cls*"), "gguf bert", [""; 2], [&[width; 3], &[]])
}
