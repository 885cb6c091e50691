//! [`Clip`]: embeds images and texts as vectors, which are compared by cosine similarity.
//!
//! ```text
//! tokens ─ causal encoder ─ state of the end token ─ projection ─ / length ─┐
//! pixels ─ encoder of images ─ state of the class ── projection ─ / length ─┴─ cosine * scale
//! ```

use super::processor::ImageProcessor;
use super::{in_batches, vision};
use crate::encoder_family;
use crate::family::{family_of, with_names};
use crate::options::{OpenOptions, open_functions};
use crate::source_folder::SourceFolder;
use crate::texts::Texts;
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor, ToDevice};
use teeny_formats::config::Config;
use teeny_formats::{Mapping, open_weights};
use teeny_nn::init::Init;
use teeny_nn::norm::normalized;
use teeny_nn::store::{self, Param, Store};
use teeny_nn::transformer::{Encoder, EncoderInputs, VisionEncoder};
use teeny_nn::{Linear, LinearOptions, Module};
use teeny_text::{EncodeInput, PretrainedTokenizer};

/// The end token in configurations of before 2023, which differs from the vocabulary: the end is
/// then the token with the largest number.
const OLD_EOS: usize = 2;

/// A pretrained CLIP: an encoder of images and an encoder of texts, whose embeddings are near each
/// other if the text describes the image.
///
/// # Example
/// ```no_run
/// use teeny_core::Tensor;
/// use teeny_nn::device::device;
/// use teeny_models::Clip;
/// # fn main() -> teeny_core::Result<()> {
/// let device = device("cpu")?;
/// let clip = Clip::open("openai/clip-vit-base-patch32", &device)?;
/// let image = Tensor::from_vec(vec![0u8; 480 * 640 * 3], (480, 640, 3), &device)?; // (H, W, 3)
/// let images = clip.embed_images(&[image])?; // (1, 512), of length 1
/// let texts = clip.embed_texts(&["a photo of a cat", "a photo of a dog"])?; // (2, 512)
/// let probabilities = clip.logits_per_image(&images, &texts)?.softmax(-1)?; // (1, 2)
/// # Ok(()) }
/// ```
/// [`ImageProcessor`] says what an image is and how files are decoded.
///
/// Source: Radford et al. 2021, arXiv:2103.00020.
pub struct Clip {
    /// The parameters, in evaluation mode.
    pub store: Store,
    /// The encoder of texts.
    pub text: Encoder,
    /// The encoder of images.
    pub vision: VisionEncoder,
    text_projection: Linear,
    visual_projection: Linear,
    logit_scale: Param,
    eos: usize,
    texts: Texts,
    /// The processor, or why it could not be opened.
    processor: Result<ImageProcessor>,
    pub(crate) origin: SourceFolder,
    notes: Vec<String>,
}

open_functions! {
    Clip,
    /// Opens the folder `path`, or `ORG/NAME` in the local cache of the Hugging Face hub, as f32.
}

impl Clip {
    fn read(path: &Path, options: &OpenOptions, store: Store) -> Result<Clip> {
        let folder = teeny_formats::resolve_path(path)?;
        let config = Config::open(&folder)?;
        config.family("model of images and texts", &["clip"])?;
        let (texts, images) = (part(&config, "text_config")?, part(&config, "vision_config")?);
        let texts = family_of(texts, "clip_text_model");
        let images = family_of(images, "clip_vision_model");
        let (text_sizes, sizes) = (encoder_family::options(&texts)?, vision(&images)?);
        let eos = texts.size(&["eos_token_id"], 0)?;
        let projected = config.size(&["projection_dim"], 512)?;
        let scale = config.number(&["logit_scale_init_value"], 2.6592)?;
        let check = |part: &Config| part.check(&["config", "vision", "clip"], &options.ignored);
        [&texts, &images].map(check).into_iter().try_for_each(|part| part.map(drop))?;
        let mut notes = check(&config)?;
        let weights = options.renamed(open_weights(&folder, store.device())?)?;
        config.check_layers(sizes.n_layer.max(text_sizes.n_layer), weights.shapes().len())?;
        let (text_width, width) = (text_sizes.layer.n_embd, sizes.layer.n_embd);
        let mut mapping = Mapping::new().skip("*position_ids");
        for (part, width) in [("text", text_width), ("vision", width)] {
            let (theirs, ours, rows) = (format!("{part}_model."), format!("{part}."), [width; 3]);
            for names in ["clip", &format!("clip {part}")] {
                mapping = with_names(mapping, names, [&theirs, &ours], [&rows, &[]]);
            }
        }
        let make = |root: &store::Path| {
            let projection = |name: &str, width: usize| {
                Linear::with_options(
                    &root.at(name),
                    width,
                    projected,
                    LinearOptions::new().with_bias(false),
                )
            };
            let text = Encoder::new(&root.at("text"), text_sizes)?;
            let vision = VisionEncoder::new(&root.at("vision"), sizes)?;
            let projections = [
                projection("text_projection", text_width)?,
                projection("visual_projection", width)?,
            ];
            Ok((text, vision, projections, root.param("logit_scale", (), Init::Constant(scale))?))
        };
        let built = store.build_quantized(weights, &mapping, options.blocks(), make);
        let ((text, vision, projections, logit_scale), _) = built.map_err(|e| config.noted(e))?;
        store.set_training(false);
        let texts = Texts::open([&folder; 2], text.context())?;
        notes.extend(texts.tokenizer().iter().flat_map(|tokenizer| tokenizer.notes().to_vec()));
        let processor = ImageProcessor::open_folder(&folder, &mut notes);
        let origin = SourceFolder { folder, inside: PathBuf::new(), config, mapping, class: None };
        let [text_projection, visual_projection] = projections;
        Ok(Clip {
            store,
            text,
            vision,
            text_projection,
            visual_projection,
            logit_scale,
            eos,
            texts,
            processor,
            origin,
            notes,
        })
    }

    /// How images become pixels.
    ///
    /// # Errors
    /// If the folder does not say it, or for processors of a class that is not known.
    #[track_caller]
    pub fn processor(&self) -> Result<&ImageProcessor> {
        let _op = enter("processor");
        self.processor.as_ref().map_err(Error::clone)
    }

    /// The tokenizer of the model.
    ///
    /// # Errors
    /// If the folder has none, or one of a kind that is not known.
    #[track_caller]
    pub fn tokenizer(&self) -> Result<&PretrainedTokenizer> {
        let _op = enter("tokenizer");
        self.texts.tokenizer()
    }

    /// The number of tokens of a text at most; longer texts are truncated before the end token.
    pub fn max_length(&self) -> usize {
        self.texts.max_length
    }

    /// The embeddings of texts with these tokens → (B, P), of length 1. A text ends at its first
    /// end token; the tokens after it, such as padding, change nothing. The end of a text without
    /// one is its first token.
    ///
    /// # Errors
    /// As [`Encoder::hidden`].
    #[track_caller]
    pub fn embed_tokens(&self, inputs: &EncoderInputs<'_>) -> Result<Tensor> {
        let _op = enter("embed_tokens");
        let states = self.text.hidden(inputs)?; // (B, T, E)
        let tokens = inputs.tokens;
        let at_end = match self.eos {
            OLD_EOS => match inputs.mask {
                Some(mask) => mask.cast(DType::Bool)?.where_cond(tokens, -1)?,
                None => tokens.clone(),
            },
            eos => tokens.eq(eos as i64)?.cast(DType::I32)?,
        }; // (B, T), largest at the end
        let end = at_end.argmax(1)?.unsqueeze(1)?; // (B, 1)
        let positions = Tensor::arange(0, tokens.shape()[1] as i32, 1, tokens)?; // (T)
        let chosen = positions.eq(&end)?.unsqueeze(-1)?; // (B, T, 1)
        let ends = chosen.where_cond(&states, 0.0)?.sum(1)?; // (B, E)
        normalized(&self.text_projection.forward(&ends)?)
    }

    /// The embeddings of images with `pixels` (B, 3, H, W) → (B, P), of length 1.
    ///
    /// # Errors
    /// As [`VisionEncoder::hidden`].
    #[track_caller]
    pub fn embed_pixels(&self, pixels: &Tensor) -> Result<Tensor> {
        let _op = enter("embed_pixels");
        let class = self.vision.hidden(pixels)?.at(1, 0)?; // (B, E)
        normalized(&self.visual_projection.forward(&class)?)
    }

    /// The embeddings of `texts` → (N, P), of length 1.
    ///
    /// # Errors
    /// If the model has no tokenizer, or the device fails.
    #[track_caller]
    pub fn embed_texts(&self, texts: &[&str]) -> Result<Tensor> {
        let _op = enter("embed_texts");
        let inputs: Vec<EncodeInput<'_>> = texts.iter().map(|&text| text.into()).collect();
        let (like, width) = (self.store.empty()?, self.width());
        self.texts.in_batches(&inputs, width, (&like, false), &|inputs| self.embed_tokens(inputs))
    }

    /// The embeddings of `images`, each as [`ImageProcessor`] takes it → (N, P), of length 1.
    ///
    /// # Errors
    /// As [`ImageProcessor::process`]; if the folder has no processor, or its image size differs
    /// from the model's.
    #[track_caller]
    pub fn embed_images(&self, images: &[Tensor]) -> Result<Tensor> {
        let _op = enter("embed_images");
        let (like, width) = (self.store.empty()?, self.width());
        in_batches(images, self.processor()?, (width, &like), &|pixels| self.embed_pixels(pixels))
    }

    /// The logits of each text for each image: the cosines of the embeddings `images` (N, P) and
    /// `texts` (M, P), times the exponential of the learnt scale → (N, M). Their softmax along the
    /// last axis is the probability of each text.
    ///
    /// # Errors
    /// If shapes do not fit.
    #[track_caller]
    pub fn logits_per_image(&self, images: &Tensor, texts: &Tensor) -> Result<Tensor> {
        let _op = enter("logits_per_image");
        images.matmul(&texts.t()?)?.mul(&self.logit_scale.value().exp()?)
    }

    /// P, the width of the embeddings.
    fn width(&self) -> usize {
        self.text_projection.weight.shape()[0]
    }
}

/// The values of `key` in `config`, or of `key` with `_dict`, which replaces it in files of 2022.
fn part(config: &Config, key: &str) -> Result<Config> {
    let replaced = format!("{key}_dict");
    config.part(if config.has(&replaced) { &replaced } else { key })
}
