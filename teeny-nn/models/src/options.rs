//! [`OpenOptions`]: how a model is opened.

use std::sync::Arc;
use teeny_core::options;
use teeny_core::{DType, Error, QuantType, Result};
use teeny_formats::gguf::ElementType;
use teeny_formats::{Mapping, Weights};

options! {
    /// How [`super::Encoder`], [`super::Decoder`], [`super::ImageEncoder`] and [`super::Clip`] are
    /// opened.
    #[derive(Clone, Debug)]
    pub struct OpenOptions {
        /// The dtype of parameters; `F32`.
        dtype: Option<DType> = None, with_dtype(DType);
        /// The largest number of tokens of a decoder. The default is the model's context, but at
        /// most 8,192: tables of positions, and caches without a given size, grow with it.
        context: Option<usize> = None, with_context(usize);
        /// Other names of the weights in the file, which precede the family's; none.
        mapping: Option<Mapping> = None, with_mapping(Mapping);
        /// The type to which the weights of linear layers and embeddings are quantised, where rows
        /// are whole blocks of it ([`QuantType::fitting`]); none. Weights that a GGUF file has
        /// quantised keep their type.
        quantize: Option<QuantType> = None, with_quantize(QuantType);
        /// Whether weights that a GGUF file has quantised are made floats; false.
        dequantize: bool = false, with_dequantize;
        /// The type in which a decoder keeps keys and values: a float dtype, or Q8_0
        /// ([`teeny_nn::attention::KvCache::with_type`]); the dtype of the parameters.
        cache: Option<ElementType> = None,
            with_cache(impl Into<ElementType>) => |of| Some(of.into());
        /// The classes of texts that an [`super::Encoder`] is to learn: it gets a new head for
        /// them, with random weights, unless it has one for these classes; none.
        labels: Option<Vec<String>> = None,
            with_labels(impl IntoIterator<Item = impl Into<String>>) =>
                |labels| Some(labels.into_iter().map(Into::into).collect());
        /// Keys of `config.json` that are taken as if they were not there, although another model
        /// of that value computes something else; none.
        ignored: Vec<String> = Vec::new(),
            ignore_keys(impl IntoIterator<Item = impl Into<String>>) =>
                |keys| keys.into_iter().map(Into::into).collect();
    }
}

impl OpenOptions {
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
                SourceFolder::of_folder(&self.origin)?.save(&self.store, path.as_ref())
            }

            /// The keys of the model's files that are not known, and so have no effect.
            pub fn notes(&self) -> &[String] {
                &self.notes
            }
        }
    };
}
pub(crate) use open_functions;
