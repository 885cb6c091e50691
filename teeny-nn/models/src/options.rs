//! [`OpenOptions`]: how a model is opened.

use std::sync::Arc;
use teeny_core::setters;
use teeny_core::{DType, Error, QuantType, Result};
use teeny_formats::gguf::ElementType;
use teeny_formats::{Mapping, Weights};

/// How [`super::Encoder`], [`super::Decoder`], [`super::ImageEncoder`] and [`super::Clip`] are
/// opened.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct OpenOptions {
    /// The dtype of parameters; `F32`.
    pub dtype: Option<DType>,
    /// The largest number of tokens of a decoder. The default is the model's context, but at most
    /// 8,192: tables of positions, and caches without a given size, grow with it.
    pub context: Option<usize>,
    /// Other names of the weights in the file, which precede the family's; none.
    pub mapping: Option<Mapping>,
    /// The type to which the weights of linear layers and embeddings are quantised, where rows are
    /// whole blocks of it ([`QuantType::fitting`]); none. Weights that a GGUF file has quantised
    /// keep their type.
    pub quantize: Option<QuantType>,
    /// Whether weights that a GGUF file has quantised are made floats; false.
    pub dequantize: bool,
    /// The type in which a decoder keeps keys and values: a float dtype, or Q8_0
    /// ([`teeny_nn::attention::KvCache::with_type`]); the dtype of the parameters.
    pub cache: Option<ElementType>,
    /// The classes of texts that an [`super::Encoder`] is to learn: it gets a new head for them,
    /// with random weights, unless it has one for these classes; none.
    pub labels: Option<Vec<String>>,
    /// Keys of `config.json` that are taken as if they were not there, although another model of
    /// that value computes something else; none.
    pub ignored: Vec<String>,
}

impl OpenOptions {
    /// The defaults.
    pub fn new() -> OpenOptions {
        OpenOptions::default()
    }

    setters! {
        /// Sets the dtype of parameters.
        with_dtype(dtype: DType) => dtype = Some(dtype);
        /// Sets the number of tokens that a decoder takes at most.
        with_context(context: usize) => context = Some(context);
        /// Sets the mapping from the file's names to the family's.
        with_mapping(mapping: Mapping) => mapping = Some(mapping);
        /// Sets the type to which weights are quantised.
        with_quantize(kind: QuantType) => quantize = Some(kind);
        /// Sets whether weights that a GGUF file has quantised are made floats.
        with_dequantize(dequantize: bool) => dequantize = dequantize;
        /// Sets the type in which a decoder keeps keys and values.
        with_cache(of: impl Into<ElementType>) => cache = Some(of.into());
        /// Sets the keys of `config.json` that are taken as if they were not there.
        ignore_keys(keys: impl IntoIterator<Item = impl Into<String>>) =>
            ignored = keys.into_iter().map(Into::into).collect();
    }

    /// Sets the classes of texts that an encoder is to learn.
    pub fn with_labels<T: Into<String>>(
        mut self,
        labels: impl IntoIterator<Item = T>,
    ) -> OpenOptions {
        self.labels = Some(labels.into_iter().map(Into::into).collect());
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

    /// Whether quantised weights are kept, and the type to which others are quantised.
    pub(super) fn blocks(&self) -> (bool, Option<QuantType>) {
        (!self.dequantize, self.quantize)
    }

    /// `weights` under the names of the family.
    pub(super) fn renamed(&self, weights: Weights) -> Result<Weights> {
        match &self.mapping {
            Some(mapping) => Ok(Arc::new(mapping.apply(weights)?)),
            None => Ok(weights),
        }
    }
}

/// `open`, `open_with` and `save` of a pretrained model, with its `read` of an empty store.
macro_rules! open_functions {
    ($model:ident, $(#[$doc:meta])*) => {
        impl $model {
            $(#[$doc])*
            ///
            /// # Errors
            /// If a file is missing, damaged or of another kind, the family is not known, sizes in
            /// `config.json` contradict the weights, or tensors are missing.
            #[track_caller]
            pub fn open(path: impl AsRef<Path>, device: impl ToDevice) -> Result<$model> {
                let _op = enter(concat!(stringify!($model), "::open"));
                $model::open_with(path, &OpenOptions::new(), device)
            }

            #[doc = concat!("[`", stringify!($model), "::open`] with options.")]
            ///
            /// # Errors
            #[doc = concat!("As [`", stringify!($model), "::open`].")]
            #[track_caller]
            pub fn open_with(
                path: impl AsRef<Path>,
                options: &OpenOptions,
                device: impl ToDevice,
            ) -> Result<$model> {
                let _op = enter(concat!(stringify!($model), "::open_with"));
                let store = Store::with_dtype(device, options.checked_dtype()?);
                $model::read(path.as_ref(), options, store)
            }

            /// Writes the model into the folder `path`, which transformers opens: weights under
            /// the names of the family, in parts above 5 GB, `config.json`, and the other files of
            /// the folder that it was opened from.
            ///
            /// # Errors
            /// If it was opened from a GGUF file, a file cannot be written, or `path` is the folder
            /// that it was opened from.
            #[track_caller]
            pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
                let _op = enter(concat!(stringify!($model), "::save"));
                Origin::of_folder(&self.origin)?.save(&self.store, path.as_ref())
            }

            /// The keys of the model's files that are not known, and so have no effect.
            pub fn notes(&self) -> &[String] {
                &self.notes
            }
        }
    };
}
pub(crate) use open_functions;
