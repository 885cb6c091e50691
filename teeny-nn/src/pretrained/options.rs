//! [`OpenOptions`]: how a model is opened.

use crate::state::{Mapping, Weights};
use std::sync::Arc;
use teeny_core::{DType, Error, Result};

/// How [`super::Encoder`] and [`super::Decoder`] are opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The dtype of parameters; `F32`.
    pub dtype: Option<DType>,
    /// The number of tokens that a decoder takes at most. The default is that of the model, but at
    /// most 8,192: tables of positions, and caches that are not told their size, grow with it.
    pub context: Option<usize>,
    /// Other names of the weights in the file, before those of the family; none.
    pub mapping: Option<Mapping>,
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    /// Sets the dtype of parameters.
    pub fn with_dtype(mut self, dtype: DType) -> OpenOptions {
        self.dtype = Some(dtype);
        self
    }

    /// Sets the number of tokens that a decoder takes at most.
    pub fn with_context(mut self, context: usize) -> OpenOptions {
        self.context = Some(context);
        self
    }

    /// Sets the mapping of the file's names to those of the family.
    pub fn with_mapping(mut self, mapping: Mapping) -> OpenOptions {
        self.mapping = Some(mapping);
        self
    }

    pub(super) fn checked_dtype(&self) -> Result<DType> {
        let dtype = self.dtype.unwrap_or(DType::F32);
        if dtype.is_float() {
            return Ok(dtype);
        }
        Err(Error::dtype(format!("parameters of a model are floats, not {dtype}"))
            .help("f32, bf16, f16 or f64"))
    }

    /// `weights` under the names of the family.
    pub(super) fn renamed(&self, weights: Weights) -> Result<Weights> {
        match &self.mapping {
            Some(mapping) => Ok(Arc::new(mapping.apply(weights)?)),
            None => Ok(weights),
        }
    }
}
