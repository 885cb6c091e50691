//! [`LoraOptions`]: which layers get adapters, and of which size.

use teeny_core::DType;
use teeny_core::options;

/// A choice of layers by their names.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Modules {
    /// All linear layers except the head of a language model.
    AllLinear,
    /// Layers whose name is one of these, or ends with a dot and one of these: `q_proj` selects the
    /// layer in every block.
    Names(Vec<String>),
    /// Layers whose whole name this regular expression matches, such as
    /// `model\.layers\.[01]\..*_proj`.
    Pattern(String),
}

impl Modules {
    /// Layers with these names or endings of names.
    pub fn names<T: Into<String>>(names: impl IntoIterator<Item = T>) -> Modules {
        Modules::Names(names.into_iter().map(Into::into).collect())
    }
}

/// Which biases are trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LoraBias {
    /// None.
    None,
    /// The biases of the whole model.
    All,
    /// The biases of layers with adapters.
    LoraOnly,
}

options! {
    /// Options of [`super::Lora`], with peft's names and defaults, except for the layers: all
    /// linear ones.
    ///
    /// # Example
    /// ```
    /// use teeny_models::lora::{LoraOptions, Modules};
    /// let options = LoraOptions::new()
    ///     .with_rank(16)
    ///     .with_alpha(32.0)
    ///     .with_target_modules(Modules::names(["q_proj", "v_proj"]))
    ///     .with_rank_pattern(vec![("layers.0.self_attn.q_proj".to_string(), 4)]);
    /// # assert_eq!(options.dropout, 0.0);
    /// ```
    #[derive(Clone, Debug, PartialEq)]
    pub struct LoraOptions {
        /// The rank r of the adapters; 8.
        rank: usize = 8, with_rank;
        /// The numerator of the scale `alpha / r`; 8.
        alpha: f64 = 8.0, with_alpha;
        /// The layers that get adapters: linear layers and embeddings; all linear layers.
        target_modules: Modules = Modules::AllLinear, with_target_modules;
        /// Layers that get none; none.
        exclude_modules: Modules = Modules::Names(Vec::new()), with_exclude_modules;
        /// The probability with which inputs of linear adapters are dropped in training mode; 0.
        /// Projections that are one weight share a mask.
        dropout: f64 = 0.0, with_dropout;
        /// Which biases are trained; none.
        bias: LoraBias = LoraBias::None, with_bias;
        /// Whether the scale is `alpha / √r` (Kalajdzievski 2023, arXiv:2312.03732); false.
        use_rslora: bool = false, with_use_rslora;
        /// Other ranks for layers whose name ends with a regular expression, the first that fits;
        /// none.
        rank_pattern: Vec<(String, usize)> = Vec::new(), with_rank_pattern;
        /// Other values of alpha, selected in the same way; none.
        alpha_pattern: Vec<(String, f64)> = Vec::new(), with_alpha_pattern;
        /// The numbers of the blocks whose layers get adapters; all.
        layers_to_transform: Option<Vec<usize>> = None, with_layers_to_transform;
        /// The names before these numbers, such as `layers`; any.
        layers_pattern: Vec<String> = Vec::new(), with_layers_pattern;
        /// Modules that are trained and saved as a whole, by the ends of their names, such as a new
        /// head; none, and the head of a model for classes of texts or tokens.
        modules_to_save: Vec<String> = Vec::new(), with_modules_to_save;
        /// The dtype of adapters; None is f64 for a model of f64, otherwise f32.
        dtype: Option<DType> = None, with_dtype;
    }
}
