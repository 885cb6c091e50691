//! [`ImageProcessor`]: how images become the pixels that a model reads.
//!
//! ```text
//! u8 (H, W, 3) ─ resize ─ centre crop ─ * factor ─ (x - mean) / std ─ f32 (N, 3, h, w)
//! ```
//!
//! Every step equals transformers' processors with Pillow, to the bit. Only the pixels of a crop
//! are resized. `teeny_data::images` decodes files.

use std::ops::Range;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor, ToDevice, memory};
use teeny_data::images::{ImageSize, MAX_PIXELS, Pixels, Resample};
use teeny_formats::config::Config;

/// How images become the pixels that a model reads: `preprocessor_config.json`.
///
/// An image is a tensor of u8: (H, W, 3) of RGB, (H, W) or (H, W, 1) of grey, which becomes the
/// three channels, or (H, W, 4) of RGB and alpha, which is laid over white. Of PNG and JPEG files,
/// `teeny_data::images::read_image(path, &device)?.permute([1, 2, 0])?` is one (feature `image` of
/// teeny-data).
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::device::device;
/// use teeny_models::ImageProcessor;
/// # fn main() -> teeny_core::Result<()> {
/// let device = device("cpu")?;
/// let image = Tensor::from_vec(vec![128u8; 30 * 40 * 3], (30, 40, 3), &device)?; // (H, W, 3)
/// let pixels = ImageProcessor::clip().process(&[image], &device)?; // (N, 3, h, w)
/// assert_eq!(pixels.shape()[..], [1, 3, 224, 224]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ImageProcessor {
    /// The size to which an image is resized, and the filter; none if it stays as it is.
    pub resize: Option<(ImageSize, Resample)>,
    /// The height and the width that are kept around the centre, with zeros where the image is
    /// smaller; none if all is kept.
    pub crop: Option<[usize; 2]>,
    /// The factor of the bytes; none for 1.
    pub rescale: Option<f64>,
    /// The mean and the standard deviation of each channel after that; none for 0 and 1.
    pub normalize: Option<[[f64; 3]; 2]>,
}

impl ImageProcessor {
    /// The default of ViT: 224 x 224, bilinear, means and standard deviations 0.5.
    pub fn vit() -> ImageProcessor {
        ImageProcessor {
            resize: Some((ImageSize::Exact([224; 2]), Resample::Bilinear)),
            crop: None,
            rescale: Some(1.0 / 255.0),
            normalize: Some([[0.5; 3]; 2]),
        }
    }

    /// The default of CLIP: the shorter side 224, bicubic, and 224 x 224 around the centre.
    pub fn clip() -> ImageProcessor {
        let mean = [0.48145466, 0.4578275, 0.40821073];
        let std = [0.26862954, 0.26130258, 0.27577711];
        ImageProcessor {
            resize: Some((ImageSize::ShortestEdge(224), Resample::Bicubic)),
            crop: Some([224; 2]),
            rescale: Some(1.0 / 255.0),
            normalize: Some([mean, std]),
        }
    }

    /// The processor of the folder `path`, or of `ORG/NAME` in the local cache of the Hugging Face
    /// hub.
    ///
    /// # Errors
    /// If `preprocessor_config.json` and `processor_config.json` are missing, or the file is
    /// malformed, belongs to another processor class, or contains an invalid value.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<ImageProcessor> {
        let _op = enter("ImageProcessor::open");
        ImageProcessor::open_folder(&teeny_formats::resolve_path(path.as_ref())?, &mut Vec::new())
    }

    /// The processor of a folder; `notes` gets the keys that are not known.
    pub(super) fn open_folder(folder: &Path, notes: &mut Vec<String>) -> Result<ImageProcessor> {
        let file = folder.join("preprocessor_config.json");
        let joined = folder.join("processor_config.json");
        if !file.exists() && joined.exists() {
            let config = Config::open_file(joined)?;
            let missing = || config.error("\"image_processor\" is missing".to_string());
            let section = config.section("image_processor").ok_or_else(missing)?;
            return ImageProcessor::of(&section, notes);
        }
        ImageProcessor::of(&Config::open_file(file)?, notes)
    }

    fn of(config: &Config, notes: &mut Vec<String>) -> Result<ImageProcessor> {
        let class = match config.text("image_processor_type")? {
            Some(class) => class,
            None => config.text("feature_extractor_type")?.unwrap_or("ViTImageProcessor"),
        };
        let suffixes =
            ["ImageProcessor", "ImageProcessorFast", "ImageProcessorPil", "FeatureExtractor"];
        let family = suffixes.iter().find_map(|suffix| class.strip_suffix(suffix));
        let (default, square) = match family {
            Some("ViT") => (ImageProcessor::vit(), true),
            Some("CLIP") => (ImageProcessor::clip(), false),
            _ => {
                return Err(config
                    .error(format!("images are processed by {class:?}"))
                    .help("ViTImageProcessor and CLIPImageProcessor are known"));
            }
        };
        let square = config.flag("default_to_square", square)?;
        let size = match image_size(config, "size", square)? {
            Some(size) => size,
            None => default.resize.map_or(ImageSize::Exact([224; 2]), |(size, _)| size),
        };
        let number = default.resize.map_or(2, |(_, own)| own as usize);
        let number = config.size(&["resample"], number)?;
        let filter = *Resample::ALL.get(number).ok_or_else(|| {
            config
                .error(format!("\"resample\" is {number}"))
                .help("0 nearest, 1 Lanczos, 2 bilinear, 3 bicubic")
        })?;
        let crop = match image_size(config, "crop_size", true)? {
            None => [224; 2],
            Some(ImageSize::Exact(sizes)) => sizes,
            Some(_) => {
                let text = "\"crop_size\" has no \"height\" and \"width\"".to_string();
                return Err(config.error(text));
            }
        };
        let channels = |key: &str, default: [f64; 3]| {
            let Some(values) = config.numbers(key)? else { return Ok(default) };
            let count = values.len();
            let is_of_all = config.values()[key].is_number();
            let values = if is_of_all { values.repeat(3) } else { values };
            <[f64; 3]>::try_from(values).map_err(|_| {
                config.error(format!("{key:?} has {count} numbers, not one for each of 3 channels"))
            })
        };
        let [mean, std] = default.normalize.unwrap_or_default();
        let normalize = [channels("image_mean", mean)?, channels("image_std", std)?];
        if normalize[1].contains(&0.0) {
            return Err(config.error("\"image_std\" has a 0".to_string()));
        }
        let factor = config.number(&["rescale_factor"], 1.0 / 255.0)?;
        let processor = ImageProcessor {
            resize: config.flag("do_resize", true)?.then_some((size, filter)),
            crop: config.flag("do_center_crop", default.crop.is_some())?.then_some(crop),
            rescale: config.flag("do_rescale", true)?.then_some(factor),
            normalize: config.flag("do_normalize", true)?.then_some(normalize),
        };
        notes.extend(config.check(&["processor"], &[])?);
        Ok(processor)
    }

    /// The pixels of `images`, u8 of (H, W, 3), (H, W), (H, W, 1) or (H, W, 4) → f32 (N, 3, h, w).
    ///
    /// # Errors
    /// If `images` is empty, an item is not an image or is too small or too large, or the results
    /// have different sizes.
    #[track_caller]
    pub fn process(&self, images: &[Tensor], device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("ImageProcessor::process");
        let table = self.table();
        let (mut all, mut first) = (Vec::new(), None);
        for (i, image) in images.iter().enumerate() {
            let (pixels, [height, width]) = self.pixels(&rgb(image, i)?, &table)?;
            let [h, w] = *first.get_or_insert([height, width]);
            if [h, w] != [height, width] {
                let text = format!("image 0 becomes {h} x {w}, but image {i} {height} x {width}");
                return Err(Error::shape(text).help("process them one by one, or set a crop"));
            }
            all.push(Tensor::from_vec(pixels, (1, 3, h, w), device.to_device())?);
        }
        if all.is_empty() {
            return Err(Error::value("expected at least one image, got none")
                .help("one tensor (H, W, 3) for each"));
        }
        Tensor::cat(&all, 0) // (N, 3, h, w)
    }

    /// The value of each byte of each channel.
    fn table(&self) -> [[f32; 256]; 3] {
        let [mean, std] = self.normalize.unwrap_or([[0.0; 3], [1.0; 3]]);
        std::array::from_fn(|c| {
            std::array::from_fn(|byte| {
                let scaled = (byte as f64 * self.rescale.unwrap_or(1.0)) as f32;
                (scaled - mean[c] as f32) / std[c] as f32
            })
        })
    }

    /// The values (3, h, w) of an image, and h and w.
    fn pixels(&self, image: &Pixels, table: &[[f32; 256]; 3]) -> Result<(Vec<f32>, [usize; 2])> {
        let own = image.sides();
        let (size, filter) = match self.resize {
            None => (own, Resample::Nearest),
            Some((size, filter)) => (size.of(own), filter),
        };
        let crop = self.crop.unwrap_or(size);
        let [(rows, top), (columns, left)] = [0, 1].map(|axis| cropped(size[axis], crop[axis]));
        let kept = filter.resized(image, size, [rows, columns])?;
        let [height, width] = crop;
        let area = height.saturating_mul(width);
        if area > MAX_PIXELS {
            return Err(Error::value(format!("a crop to {height} x {width} is too large"))
                .help(format!("at most {MAX_PIXELS} pixels")));
        }
        let mut values = memory::reserved(area * 3)?;
        for channel in table {
            values.resize(values.len() + area, channel[0]);
        }
        for (y, row) in kept.bytes().chunks_exact((kept.sides()[1] * 3).max(1)).enumerate() {
            let start = (top + y) * width + left;
            for (x, pixel) in row.chunks_exact(3).enumerate() {
                for c in 0..3 {
                    values[c * area + start + x] = table[c][usize::from(pixel[c])];
                }
            }
        }
        Ok((values, crop))
    }
}

/// The size of `key`; a number is the height and the width if `square`, otherwise the shorter side.
fn image_size(config: &Config, key: &str, square: bool) -> Result<Option<ImageSize>> {
    let edge = match config.section(key).filter(|section| section.has("shortest_edge")) {
        Some(section) if section.has("longest_edge") => {
            return Err(section
                .error("\"shortest_edge\" and \"longest_edge\"".to_string())
                .help("sizes of processors have one of them, or a height and a width"));
        }
        Some(section) => Some(section.size(&["shortest_edge"], 0)?),
        None if !square && config.values()[key].is_number() => Some(config.size(&[key], 0)?),
        None => None,
    };
    match edge {
        Some(edge) => Ok(Some(ImageSize::ShortestEdge(edge))),
        None => Ok(config.sides(key)?.map(ImageSize::Exact)),
    }
}

/// The part of an axis of `size` pixels that a crop to `crop` keeps, and where it is in the crop.
fn cropped(size: usize, crop: usize) -> (Range<usize>, usize) {
    match size.checked_sub(crop) {
        Some(rest) => (rest / 2..rest / 2 + crop, 0),
        None => (0..size, (crop - size).div_ceil(2)),
    }
}

/// Image `i` as RGB.
fn rgb(image: &Tensor, i: usize) -> Result<Pixels> {
    let shape = *image.shape();
    let (height, width, channels) = match shape[..] {
        [height, width] => (height, width, 1),
        [height, width, channels @ (1 | 3 | 4)] => (height, width, channels),
        _ => (0, 0, 0),
    };
    if height * width == 0 || image.dtype() != DType::U8 {
        let text = format!("image {i} is {} of {shape}", image.dtype());
        return Err(Error::shape(text)
            .help("images are u8 of (H, W, 3), (H, W), (H, W, 1) or (H, W, 4), and not empty"));
    }
    Pixels::new([height, width], channels, image.to_vec::<u8>()?)
}
