//! Options of models as tables: a row is a field, its default, and its keys in files.

use crate::module::Activation;
use serde_json::{Value, json};
use teeny_core::Result;
use teeny_formats::config::Config;

/// An option of a model that a file of keys has.
pub struct Row<'a> {
    /// The key in `config.json`; empty for what several keys say.
    pub key: &'static str,
    /// The key in the metadata of GGUF, after the name of the architecture; empty for none.
    pub gguf: &'static str,
    /// Its name in the error about two models that differ.
    pub what: &'static str,
    /// The option.
    pub value: &'a mut dyn OptionValue,
}

/// A value of an option.
pub trait OptionValue {
    /// Sets it to the value of `key`, if that is there.
    fn read(&mut self, config: &Config, key: &str) -> Result<()>;

    /// The value.
    fn json(&self) -> Value;
}

/// The types of options: how a value is read, with the one before, and how it is written.
macro_rules! option_values {
    (
        $(
            $type:ty: |$config:ident, $key:ident, $old:ident| $read:expr, |$new:ident| $json:expr;
        )*
    ) => {
        $(
            impl $crate::model_options::OptionValue for $type {
                fn read(
                    &mut self,
                    $config: &teeny_formats::config::Config,
                    $key: &str,
                ) -> teeny_core::Result<()> {
                    let $old = *self;
                    *self = $read;
                    Ok(())
                }

                fn json(&self) -> serde_json::Value {
                    let $new = self;
                    $json
                }
            }
        )*
    };
}
pub(crate) use option_values;

/// Declares the options of a model: fields with defaults. Options of files also have their key in
/// `config.json`; options of a decoder also have their key in GGUF's metadata and their name in
/// errors.
#[doc(hidden)]
#[macro_export]
macro_rules! model_options {
    (
        $(#[$doc:meta])*
        pub struct $name:ident {
            $(
                $(#[$field_doc:meta])*
                $field:ident: $type:ty = $default:expr
                    $(, $key:literal $($gguf:literal $what:literal)?)?;
            )*
        }
    ) => {
        $(#[$doc])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
        }

        impl $name {
            /// The defaults, without sizes.
            pub fn defaults() -> $name {
                $name { $($field: $default,)* }
            }

            /// The options that files have.
            pub fn rows(&mut self) -> Vec<$crate::model_options::Row<'_>> {
                vec![$($($crate::model_options::Row {
                    key: $key,
                    gguf: concat!($($gguf)?),
                    what: concat!($($what)?),
                    value: &mut self.$field,
                },)?)*]
            }

            /// The defaults, but what `file` has.
            pub fn read(file: &teeny_formats::config::Config) -> teeny_core::Result<$name> {
                let mut options = $name::defaults();
                for row in options.rows().into_iter().filter(|row| !row.key.is_empty()) {
                    row.value.read(file, row.key)?;
                }
                Ok(options)
            }
        }
    };
}
pub use model_options;

option_values! {
    usize: |config, key, old| config.size(&[key], old)?, |x| json!(x);
    bool: |config, key, old| config.flag(key, old)?, |x| json!(x);
    // what norms add to the variance, and probabilities
    f64: |config, key, old| match config.number(&[key], old)? {
        x if x >= 0.0 && x.is_finite() => x,
        x => {
            let text = format!("{:?} is {x}, not a number of at least 0", config.shown(key));
            return Err(config.error(text));
        }
    }, |x| json!(x);
    [usize; 2]: |config, key, old| config.sides(key)?.unwrap_or(old), |x| json!(x);
    Activation: |config, key, old| match config.text(key)? {
        None => old,
        Some("gelu") => Activation::Gelu,
        Some("gelu_new" | "gelu_pytorch_tanh" | "gelu_fast") => Activation::GeluTanh,
        Some("quick_gelu") => Activation::QuickGelu,
        Some("silu" | "swish") => Activation::Silu,
        Some("relu") => Activation::Relu,
        Some("tanh") => Activation::Tanh,
        Some(other) => {
            let key = config.shown(key);
            return Err(config.error(format!("{key:?} is {other:?}")).help(
                "known: gelu, gelu_new, gelu_pytorch_tanh, gelu_fast, quick_gelu, silu, swish, \
                 relu, tanh",
            ));
        }
    }, |x| json!(format!("{x:?}"));
    Option<usize>: |config, key, old| match config.has(key) {
        true => Some(config.size(&[key], 0)?),
        false => old,
    }, |x| json!(x);
    // a cap; null means no cap
    Option<f64>: |config, key, old| match config.number_of(&[key])? {
        _ if config.is_null(key) => None,
        Some(c) if !(c > 0.0 && c.is_finite()) => {
            return Err(config.error(format!("{:?} is {c}, not positive", config.shown(key))));
        }
        cap => cap.or(old),
    }, |x| json!(x);
}
