//! Layer normalisation and its form without the mean.

use crate::init::Init;
use crate::module::Module;
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{DType, Error, IntoShape, Result, Shape, Tensor};

/// `y = (x - mean) / sqrt(variance + eps) * weight + bias` with mean and variance over the last
/// axes, for each position.
///
/// Shapes: x (.., sizes..) → the same; `weight` and `bias` (sizes..), usually one size, as in (B,
/// T, C) and C.
///
/// # Example
/// ```
/// use teeny_nn::{LayerNorm, Module, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let norm = LayerNorm::new(&store.at("ln_1"), 128)?; // ln_1.weight (128), ln_1.bias (128)
/// let nanogpt = LayerNorm::without_bias(&store.at("ln_2"), 128)?;
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
    /// A layer at `path` over the last axes, which have these `sizes`: weight 1, bias 0, eps 1e-5.
    ///
    /// # Errors
    /// If there are no sizes, or the names are taken.
    #[track_caller]
    pub fn new(path: &Path, sizes: impl IntoShape) -> Result<LayerNorm> {
        path.build("LayerNorm::new", || {
            let layer = LayerNorm::without_bias(path, sizes)?;
            Ok(LayerNorm { bias: Some(path.param("bias", layer.sizes, Init::ZEROS)?), ..layer })
        })
    }

    /// A layer with a weight only, as in nanoGPT.
    ///
    /// # Errors
    /// As [`LayerNorm::new`].
    #[track_caller]
    pub fn without_bias(path: &Path, sizes: impl IntoShape) -> Result<LayerNorm> {
        let _op = enter("LayerNorm::without_bias");
        let layer = LayerNorm::without_affine(sizes)?;
        Ok(LayerNorm { weight: Some(path.param("weight", layer.sizes, Init::ONES)?), ..layer })
    }

    /// A layer without parameters.
    ///
    /// # Errors
    /// If there are no sizes.
    #[track_caller]
    pub fn without_affine(sizes: impl IntoShape) -> Result<LayerNorm> {
        let _op = enter("LayerNorm::without_affine");
        Ok(LayerNorm { weight: None, bias: None, sizes: some_sizes(sizes)?, eps: 1e-5 })
    }

    /// The same layer with another `eps`.
    pub fn eps(self, eps: f64) -> LayerNorm {
        LayerNorm { eps, ..self }
    }
}

fn some_sizes(sizes: impl IntoShape) -> Result<Shape> {
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

/// An error unless x ends in `sizes`.
fn require_end(x: &Tensor, sizes: &Shape) -> Result<()> {
    if x.shape().ends_with(sizes) {
        return Ok(());
    }
    let wanted: Vec<String> = sizes.iter().map(usize::to_string).collect();
    Err(Error::shape(format!(
        "the layer normalises {sizes}, so its input must be (.., {}), not {}",
        wanted.join(", "),
        x.shape()
    ))
    .help("build the layer for the last axes of its input"))
}

impl Module for LayerNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("layer_norm");
        require_end(x, &self.sizes)?;
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

/// `y = x / sqrt(mean(x²) + eps) * weight` over the last axes, for each position.
///
/// Shapes: x (.., sizes..) → the same; `weight` (sizes..). Without [`RmsNorm::eps`] it is the
/// rounding step of x's type (1.19e-7 for `F32`), as in PyTorch.
///
/// Source: Zhang & Sennrich 2019, arXiv:1910.07467. Equivalent: `torch.nn.RMSNorm`.
#[derive(Clone, Debug)]
pub struct RmsNorm {
    /// (sizes..), if there is one.
    pub weight: Option<Param>,
    sizes: Shape,
    eps: Option<f64>,
}

impl RmsNorm {
    /// A layer at `path` over the last axes, which have these `sizes`, with weight 1.
    ///
    /// # Errors
    /// If there are no sizes, or the name is taken.
    #[track_caller]
    pub fn new(path: &Path, sizes: impl IntoShape) -> Result<RmsNorm> {
        let _op = enter("RmsNorm::new");
        let layer = RmsNorm::without_affine(sizes)?;
        Ok(RmsNorm { weight: Some(path.param("weight", layer.sizes, Init::ONES)?), ..layer })
    }

    /// A layer without parameters.
    ///
    /// # Errors
    /// If there are no sizes.
    #[track_caller]
    pub fn without_affine(sizes: impl IntoShape) -> Result<RmsNorm> {
        let _op = enter("RmsNorm::without_affine");
        Ok(RmsNorm { weight: None, sizes: some_sizes(sizes)?, eps: None })
    }

    /// The same layer with another `eps`.
    pub fn eps(self, eps: f64) -> RmsNorm {
        RmsNorm { eps: Some(eps), ..self }
    }
}

impl Module for RmsNorm {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("rms_norm");
        require_end(x, &self.sizes)?;
        let step = if x.dtype() == DType::F64 { f64::EPSILON } else { f32::EPSILON.into() };
        x.rms_norm(
            self.sizes.ndim(),
            self.weight.as_ref().map(Param::value).as_ref(),
            self.eps.unwrap_or(step),
        )
    }

    fn describe(&self) -> String {
        format!("RmsNorm{}", self.sizes)
    }
}
