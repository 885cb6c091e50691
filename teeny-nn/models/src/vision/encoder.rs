//! [`ImageEncoder`]: an image encoder opened from a folder, for embeddings and classes.

use super::processor::ImageProcessor;
use super::{in_batches, vision};
use crate::family::{family_of, with_names};
use crate::head::{self, Head, HeadFamily};
use crate::options::{OpenOptions, open_functions};
use crate::source_folder::SourceFolder;
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, ToDevice};
use teeny_formats::config::Config;
use teeny_formats::{Mapping, open_weights};
use teeny_nn::Activation;
use teeny_nn::model_options::OptionValue;
use teeny_nn::store::{self, Store};
use teeny_nn::transformer::{VisionConfig, VisionEncoder};

/// A pretrained encoder of images: ViT, with a head for classes or without.
///
/// In training mode the layers drop as PyTorch's `TransformerEncoderLayer` does, with
/// `hidden_dropout_prob` for attention weights as well.
///
/// # Example
/// ```no_run
/// use teeny_core::Tensor;
/// use teeny_nn::device::device;
/// use teeny_models::ImageEncoder;
/// # fn main() -> teeny_core::Result<()> {
/// let device = device("cpu")?;
/// let encoder = ImageEncoder::open("google/vit-base-patch16-224", &device)?;
/// let image = Tensor::from_vec(vec![0u8; 480 * 640 * 3], (480, 640, 3), &device)?; // (H, W, 3)
/// let logits = encoder.classify_images(&[image])?; // (1, 1000)
/// # Ok(()) }
/// ```
/// [`ImageProcessor`] says what an image is and how files are decoded.
pub struct ImageEncoder {
    /// The parameters, in evaluation mode.
    pub store: Store,
    /// The model.
    pub model: VisionEncoder,
    /// The head, if the model predicts classes.
    pub head: Option<Head>,
    /// The processor, or why it could not be opened.
    processor: Result<ImageProcessor>,
    pub(crate) origin: SourceFolder,
    notes: Vec<String>,
}

open_functions! {
    ImageEncoder,
    /// Opens the folder `path`, or `ORG/NAME` in the local cache of the Hugging Face hub, as f32.
}

impl ImageEncoder {
    fn read(path: &Path, options: &OpenOptions, store: Store) -> Result<ImageEncoder> {
        let folder = teeny_formats::resolve_path(path)?;
        let config = Config::open(&folder)?;
        config.family("image encoder", &["vit"]).map_err(|error| {
            let clip = config.text("model_type").is_ok_and(|name| name == Some("clip"));
            if clip { error.help("Clip::open opens it") } else { error }
        })?;
        let weights = options.renamed(open_weights(&folder, store.device())?)?;
        let tensors = weights.shapes();
        let config = family_of(config, "vit");
        let mut sizes = vision(&config)?;
        if tensors.iter().any(|(name, _)| name.ends_with("pooler.dense.weight")) {
            let width = config.size(&["pooler_output_size"], sizes.layer.n_embd)?;
            let mut activation = Activation::Tanh;
            activation.read(&config, "pooler_act")?;
            sizes = sizes.with_pooler(width, activation);
        }
        let mut notes = config.check(&["config", "vision"], &options.ignored)?;
        config.check_layers(sizes.n_layer, tensors.len())?;
        let head = head::task(&config).and_then(|task| HeadFamily::of(&head::VIT, task));
        let mapping = mapping(&sizes, head);
        let make = |root: &store::Path| {
            let model = VisionEncoder::new(root, sizes)?;
            let head = head.map(|head| head.build(root, &config, (&sizes.layer, 0)));
            Ok((model, head.transpose()?))
        };
        let built = store.build_quantized(weights, &mapping, options.blocks(), make);
        let ((model, head), _) = built.map_err(|e| config.noted(e))?;
        store.set_training(false);
        let processor = ImageProcessor::open_folder(&folder, &mut notes);
        // a head that is not read is not written either
        let class = head.is_none().then(|| "ViTModel".to_string());
        let origin = SourceFolder { folder, inside: PathBuf::new(), config, mapping, class };
        Ok(ImageEncoder { store, model, head, processor, origin, notes })
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

    /// The embeddings of images with `pixels` (B, 3, H, W): the states of the class tokens →
    /// (B, E). [`VisionEncoder::pooled`] has the pooler of models with one.
    ///
    /// # Errors
    /// As [`VisionEncoder::hidden`].
    #[track_caller]
    pub fn embed(&self, pixels: &Tensor) -> Result<Tensor> {
        let _op = enter("embed");
        self.model.hidden(pixels)?.at(1, 0)
    }

    /// The logits of the classes of images with `pixels` (B, 3, H, W) → (B, L).
    ///
    /// # Errors
    /// If the model has no head; as [`VisionEncoder::hidden`].
    #[track_caller]
    pub fn logits(&self, pixels: &Tensor) -> Result<Tensor> {
        let _op = enter("logits");
        self.classes()?.image_logits(&self.model.hidden(pixels)?)
    }

    /// The embeddings of `images`, each as [`ImageProcessor`] takes it → (N, E).
    ///
    /// # Errors
    /// As [`ImageProcessor::process`]; if the folder has no processor, or its image size differs
    /// from the model's.
    #[track_caller]
    pub fn embed_images(&self, images: &[Tensor]) -> Result<Tensor> {
        let _op = enter("embed_images");
        let width = self.model.config().layer.n_embd;
        self.in_batches(images, width, &|pixels| self.embed(pixels))
    }

    /// The logits of the classes of `images` → (N, L).
    ///
    /// # Errors
    /// If the model has no head; as [`ImageEncoder::embed_images`].
    #[track_caller]
    pub fn classify_images(&self, images: &[Tensor]) -> Result<Tensor> {
        let _op = enter("classify_images");
        let labels = self.classes()?.labels.len();
        self.in_batches(images, labels, &|pixels| self.logits(pixels))
    }

    fn classes(&self) -> Result<&Head> {
        self.head.as_ref().ok_or_else(|| {
            Error::value("the model has no head for classes of images")
                .help("see \"architectures\" in its config.json; embed_images is for embeddings")
        })
    }

    fn in_batches(
        &self,
        images: &[Tensor],
        width: usize,
        compute: &dyn Fn(&Tensor) -> Result<Tensor>,
    ) -> Result<Tensor> {
        let like = self.store.empty()?;
        in_batches(images, self.processor()?, (width, &like), compute)
    }
}

/// The names and the layout of files of ViT with this head. Other heads are skipped, and the mask
/// token of a model that was trained with masked patches.
fn mapping(sizes: &VisionConfig, head: Option<&HeadFamily>) -> Mapping {
    let mut mapping = Mapping::new();
    // files are written with the first prefix: models with a head have one
    let prefixes = if head.is_some() { ["vit.", ""] } else { ["", "vit."] };
    for prefix in prefixes {
        mapping = mapping.skip(&format!("{prefix}embeddings.mask_token"));
        let rows = [&[sizes.layer.n_embd; 3][..], &[]];
        mapping = with_names(mapping, "vit", [prefix, ""], rows);
    }
    if let Some(head) = head {
        mapping = head.mapping(mapping);
    }
    let kept = ["vit.*", "embeddings.*", "encoder.*", "layers.*"];
    kept.iter().fold(mapping, |mapping, names| mapping.rename(names, names)).skip("*")
}
