//! [`VisionEncoder`]: the encoder of images of ViT and of CLIP.
//!
//! ```text
//! pixels (B, C, H, W) ─ patches ─ class, patch 0, patch 1, … + position ─ layers ─ norm ─ states
//! ```
//!
//! The crate `teeny-models` opens files of such models.

use super::{TransformerConfig, TransformerEncoderLayer};
use crate::conv::{Conv2d, Conv2dOptions};
use crate::dropout::Dropout;
use crate::init::Init;
use crate::linear::{Linear, LinearOptions};
use crate::model_options::model_options;
use crate::module::{Activation, Module};
use crate::norm::{LayerNorm, LayerNormOptions};
use crate::options::setters;
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

model_options! {
    /// Sizes and options of a [`VisionEncoder`].
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct VisionConfig {
        /// H and W, the height and the width of an image in pixels.
        image: [usize; 2] = [0; 2], "image_size";
        /// The height and the width of a patch in pixels.
        patch: [usize; 2] = [0; 2], "patch_size";
        /// C, the number of channels; 3.
        channels: usize = 3;
        /// The number of layers.
        n_layer: usize = 0, "num_hidden_layers";
        /// The layers: their width is E.
        layer: TransformerConfig = TransformerConfig::defaults();
        /// Whether the projection of the patches has a bias; true.
        patch_bias: bool = true, "patch_bias";
        /// Whether there is a norm before the first layer, as in CLIP; false.
        pre_norm: bool = false, "pre_norm";
        /// Whether the class token is (1, 1, E) and the positions are (1, P + 1, E), as in files of
        /// ViT, or (E) and (P + 1, E), as in files of CLIP; true.
        batch_axes: bool = true, "batch_axes";
        /// The pooler, a linear layer and an activation on the state of the class token: its width
        /// and its activation; none.
        pooler: Option<(usize, Activation)> = None;
    }
}

impl VisionConfig {
    /// ViT with these sizes, without a pooler.
    pub fn new(
        image: [usize; 2],
        patch: [usize; 2],
        n_layer: usize,
        layer: TransformerConfig,
    ) -> VisionConfig {
        VisionConfig { image, patch, n_layer, layer, ..VisionConfig::defaults() }
    }

    setters! {
        /// Sets the number of channels.
        with_channels(channels: usize) => channels = channels;
    }

    /// Sets the width and the activation of the pooler.
    pub fn with_pooler(mut self, width: usize, activation: Activation) -> VisionConfig {
        self.pooler = Some((width, activation));
        self
    }

    /// P, the number of patches of an image; pixels at the right and at the bottom that fill no
    /// patch are not used.
    pub fn patches(&self) -> usize {
        let along = |axis: usize| self.image[axis].checked_div(self.patch[axis]).unwrap_or(0);
        along(0).saturating_mul(along(1))
    }
}

/// The encoder of ViT and of CLIP: patches of an image as tokens after a class token.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::transformer::{TransformerConfig, VisionConfig, VisionEncoder};
/// use teeny_nn::{Activation, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let layer = TransformerConfig::new(32, 4, 64)
///     .with_activation(Activation::Gelu)
///     .with_norm_first(true);
/// let config = VisionConfig::new([32, 32], [8, 8], 2, layer);
/// let encoder = VisionEncoder::new(&store.root(), config)?;
/// let pixels = Tensor::zeros((1, 3, 32, 32), DType::F32, store.device())?; // (B, C, H, W)
/// let states = encoder.hidden(&pixels)?; // (B, P + 1, E)
/// assert_eq!(states.shape()[..], [1, 17, 32]);
/// # Ok(()) }
/// ```
/// Source: Dosovitskiy et al. 2020, arXiv:2010.11929; Radford et al. 2021, arXiv:2103.00020.
pub struct VisionEncoder {
    config: VisionConfig,
    patch: Conv2d,
    /// (1, 1, E) or (E).
    class: Param,
    /// (1, P + 1, E) or (P + 1, E).
    position: Param,
    pre_norm: Option<LayerNorm>,
    dropout: Dropout,
    layers: Vec<TransformerEncoderLayer>,
    norm: LayerNorm,
    pooler: Option<Linear>,
}

impl VisionEncoder {
    /// A model at `path`.
    ///
    /// # Errors
    /// If an image has no patch, the number of heads does not divide the width, `dropout` is
    /// outside `0..=1`, or names are taken.
    #[track_caller]
    pub fn new(path: &Path, config: VisionConfig) -> Result<VisionEncoder> {
        path.build("VisionEncoder::new", || {
            let VisionConfig { image, patch, channels, layer, .. } = config;
            let e = layer.n_embd;
            if config.patches() == 0 || channels == 0 || e == 0 {
                return Err(Error::value(format!(
                    "images of {image:?} with {channels} channels have no patch of {patch:?} and \
                     width {e}"
                ))
                .help("an image is at least as large as a patch, and no size is 0"));
            }
            let embeddings = path.at("embeddings");
            let options = Conv2dOptions::new().with_stride(patch).with_bias(config.patch_bias);
            let patch = Conv2d::with_options(&embeddings.at("patch"), channels, e, patch, options)?;
            let tokens = config.patches().saturating_add(1);
            let (class, positions) = match config.batch_axes {
                true => (vec![1, 1, e], vec![1, tokens, e]),
                false => (vec![e], vec![tokens, e]),
            };
            let init = Init::GPT2; // of BERT and ViT too
            let class = embeddings.param("class", &class[..], init)?;
            let position = embeddings.param("position", &positions[..], init)?;
            let options = LayerNormOptions::new().with_eps(layer.norm_eps);
            let norm = |path: Path| LayerNorm::with_options(&path, e, options);
            let pre_norm = config.pre_norm.then(|| norm(embeddings.at("norm"))).transpose()?;
            let layers = (0..config.n_layer)
                .map(|i| TransformerEncoderLayer::new(&path.at("layers").at(i), layer))
                .collect::<Result<_>>()?;
            let norm = norm(path.at("norm"))?;
            let options = LinearOptions::new().with_weight_init(init);
            let pooler = config
                .pooler
                .map(|(width, _)| Linear::with_options(&path.at("pooler"), e, width, options));
            let (pooler, dropout) = (pooler.transpose()?, Dropout::new(path, layer.dropout)?);
            let model = VisionEncoder {
                config,
                patch,
                class,
                position,
                pre_norm,
                dropout,
                layers,
                norm,
                pooler,
            };
            Ok(model)
        })
    }

    /// Sizes and options.
    pub fn config(&self) -> &VisionConfig {
        &self.config
    }

    /// The states of the last norm: pixels (B, C, H, W) of floats, which are cast to the dtype of
    /// the parameters → (B, P + 1, E), the class token first.
    ///
    /// # Errors
    /// If the pixels are not floats or do not have these sizes.
    #[track_caller]
    pub fn hidden(&self, pixels: &Tensor) -> Result<Tensor> {
        let _op = enter("vision_encoder");
        let VisionConfig { image: [height, width], channels, layer, .. } = self.config;
        let shape = *pixels.shape();
        if shape.len() != 4 || shape[1..] != [channels, height, width] {
            let text = format!("pixels must be (B, {channels}, {height}, {width}), not {shape}");
            return Err(
                Error::shape(text).help("teeny_models::ImageProcessor makes them of images")
            );
        }
        if !pixels.dtype().is_float() {
            return Err(Error::dtype(format!("pixels are floats, not {}", pixels.dtype()))
                .help("teeny_models::ImageProcessor scales and normalises images of u8"));
        }
        let pixels = pixels.cast(self.patch.weight.value().dtype())?;
        let patches = self.patch.forward(&pixels)?.flatten(2, 3)?.transpose(1, 2)?; // (B, P, E)
        let class = self.class.value().reshape((1, 1, layer.n_embd))?;
        let class = class.expand((shape[0], 1, layer.n_embd))?;
        let x = Tensor::cat(&[&class, &patches], 1)?.add(self.position.value())?; // (B, P + 1, E)
        let x = self.dropout.forward(&x)?;
        let mut x = match &self.pre_norm {
            Some(norm) => norm.forward(&x)?,
            None => x,
        };
        for layer in &self.layers {
            x = layer.forward(&x)?;
        }
        self.norm.forward(&x)
    }

    /// The activation of the pooler's linear layer on the states (B, P + 1, E) of class tokens →
    /// (B, width of the pooler).
    ///
    /// # Errors
    /// If the model has no pooler, or shapes do not fit.
    #[track_caller]
    pub fn pooled(&self, states: &Tensor) -> Result<Tensor> {
        let _op = enter("pooler");
        let pooler = self.pooler.as_ref().zip(self.config.pooler).ok_or_else(|| {
            Error::value("the model has no pooler").help("VisionConfig::with_pooler makes one")
        })?;
        let (linear, (_, activation)) = pooler;
        activation.forward(&linear.forward(&states.at(1, 0)?)?)
    }
}
