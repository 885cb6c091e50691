//! Layer normalisation and root mean square normalisation.

use super::check_options;
use crate::init::Init;
use crate::module::{Module, require_type};
use crate::options::options;
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{DType, Error, IntoShape, Result, Shape, Tensor};

options! {
    /// Options of a [`LayerNorm`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct LayerNormOptions {
        /// Added to the variance; 1e-5.
        eps: f64 = 1e-5, with_eps;
        /// Whether there is a `weight`, and a `bias` if that is on too; true.
        elementwise_affine: bool = true, with_elementwise_affine;
        /// Whether there is a `bias`; true. nanoGPT has none.
        bias: bool = true, with_bias;
    }
}

options! {
    /// Options of an [`RmsNorm`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RmsNormOptions {
        /// Added to the mean of squares; None is the machine epsilon of the dtype of x (1.19e-7 for
        /// `F32`).
        eps: Option<f64> = None, with_eps(f64);
        /// Whether there is a `weight`; true.
        elementwise_affine: bool = true, with_elementwise_affine;
        /// Whether the factor is `1 + weight`, whose initial weight is 0, as in Gemma; false.
        unit_offset: bool = false, with_unit_offset;
    }
}

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance over the last
/// axes, for each position.
///
/// Shapes: x (.., sizes..) → the same; `weight` and `bias` (sizes..), usually one size: C of (B, T,
/// C).
///
/// # Example
/// ```
/// use teeny_nn::norm::{LayerNorm, LayerNormOptions};
/// use teeny_nn::{Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(device("cpu")?);
/// let norm = LayerNorm::new(&store.at("ln_1"), 128)?; // ln_1.weight (128), ln_1.bias (128)
/// let no_bias = LayerNormOptions::new().with_bias(false);
/// let nanogpt = LayerNorm::with_options(&store.at("ln_2"), 128, no_bias)?;
/// # let _ = (norm, nanogpt); Ok(()) }
/// ```
/// Source: Ba, Kiros & Hinton 2016, arXiv:1607.06450. Equivalent: `torch.nn.LayerNorm`.
#[derive(Clone, Debug)]
pub struct LayerNorm {
    /// (sizes..), if there is one.
    pub weight: Option<Param>,
    /// (sizes..), if there is one.
    pub bias: Option<Param>,
    sizes: Shape,
    eps: f64,
}

impl LayerNorm {
    /// A layer at `path` over the last axes, of sizes `sizes`, with PyTorch's defaults: weight 1,
    /// bias 0, eps 1e-5.
    ///
    /// # Errors
    /// If `sizes` is empty, or the names are taken.
    #[track_caller]
    pub fn new(path: &Path, sizes: impl IntoShape) -> Result<LayerNorm> {
        let _op = enter("LayerNorm::new");
        LayerNorm::with_options(path, sizes, LayerNormOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// As [`LayerNorm::new`]; also if an option is out of range.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        sizes: impl IntoShape,
        options: LayerNormOptions,
    ) -> Result<LayerNorm> {
        path.build("LayerNorm::with_options", || {
            let sizes = checked_sizes(sizes)?;
            check_options(options.eps, None)?;
            let param = |name: &str, init: Init, present: bool| {
                if present { path.param(name, sizes, init).map(Some) } else { Ok(None) }
            };
            let affine = options.elementwise_affine;
            Ok(LayerNorm {
                weight: param("weight", Init::ONES, affine)?,
                bias: param("bias", Init::ZEROS, affine && options.bias)?,
                sizes,
                eps: options.eps,
            })
        })
    }
}

fn checked_sizes(sizes: impl IntoShape) -> Result<Shape> {
    let sizes = sizes
        .shape()
        .map_err(|e| e.help("the sizes of the last axes of the input, usually one"))?;
    if sizes.ndim() > 0 {
        return Ok(sizes);
    }
    Err(Error::shape(format!(
        "sizes are {sizes}, but there must be at least one axis to normalise"
    ))
    .help("LayerNorm::new(path, n_embd) normalises the last axis"))
}

/// Returns an error unless the shape of x ends in `sizes`.
fn require_last_sizes(x: &Tensor, sizes: &Shape) -> Result<()> {
    if x.shape().ends_with(sizes) {
        return Ok(());
    }
    let expected: Vec<String> = sizes.iter().map(usize::to_string).collect();
    Err(Error::shape(format!(
        "the layer normalises {sizes}, so its input must be (.., {}), not {}",
        expected.join(", "),
        x.shape()
    ))
    .help("build the layer for the last axes of its input"))
}

impl Module for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("layer_norm");
        require_last_sizes(x, &self.sizes)?;
        self.weight.iter().try_for_each(|weight| require_type(x, weight))?;
        let value = |p: &Option<Param>| p.as_ref().map(Param::value);
        x.layer_norm(
            self.sizes.ndim(),
            value(&self.weight).as_ref(),
            value(&self.bias).as_ref(),
            self.eps,
        )
    }

    fn describe(&self) -> String {
        format!("LayerNorm{}", self.sizes)
    }
}

/// `y = x / sqrt(mean(x²) + eps) * weight` over the last axes, for each position; or `* (1 +
/// weight)`, with [`RmsNormOptions::unit_offset`].
///
/// Shapes: x (.., sizes..) → the same; `weight` (sizes..).
///
/// Source: Zhang & Sennrich 2019, arXiv:1910.07467. Equivalent: `torch.nn.RMSNorm`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// (sizes..), if there is one.
    pub weight: Option<Param>,
    sizes: Shape,
    eps: Option<f64>,
    unit_offset: bool,
}

impl RmsNorm {
    /// A layer at `path` over the last axes, of sizes `sizes`, with PyTorch's defaults: weight 1.
    ///
    /// # Errors
    /// If `sizes` is empty, or the name is taken.
    #[track_caller]
    pub fn new(path: &Path, sizes: impl IntoShape) -> Result<RmsNorm> {
        let _op = enter("RmsNorm::new");
        RmsNorm::with_options(path, sizes, RmsNormOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// As [`RmsNorm::new`]; also if an option is out of range.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        sizes: impl IntoShape,
        options: RmsNormOptions,
    ) -> Result<RmsNorm> {
        path.build("RmsNorm::with_options", || {
            let sizes = checked_sizes(sizes)?;
            check_options(options.eps.unwrap_or(0.0), None)?;
            let weight = if options.elementwise_affine {
                let init = if options.unit_offset { Init::ZEROS } else { Init::ONES };
                Some(path.param("weight", sizes, init)?)
            } else {
                None
            };
            Ok(RmsNorm { weight, sizes, eps: options.eps, unit_offset: options.unit_offset })
        })
    }

    /// The sizes of the axes that are normalised.
    pub(crate) fn sizes(&self) -> &Shape {
        &self.sizes
    }
}

impl Module for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("rms_norm");
        require_last_sizes(x, &self.sizes)?;
        self.weight.iter().try_for_each(|weight| require_type(x, weight))?;
        let epsilon = if x.dtype() == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
        let (axes, eps) = (self.sizes.ndim(), self.eps.unwrap_or(epsilon));
        match self.weight.as_ref().map(Param::value) {
            Some(weight) if self.unit_offset => {
                // 1 + weight needs more digits than weight
                let factor = weight.cast(weight.dtype().compute())?.add(1.0)?; // (sizes..)
                x.rms_norm(axes, Some(&factor), eps)?.cast(x.dtype().promote(weight.dtype()))
            }
            weight => x.rms_norm(axes, weight.as_ref(), eps),
        }
    }

    fn describe(&self) -> String {
        format!("RmsNorm{}", self.sizes)
    }
}
