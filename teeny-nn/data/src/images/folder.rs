//! [`ImageFolder`]: a folder of PNG and JPEG files with a subfolder for each class.

use super::transforms::{ImageBatch, ImageTransforms};
use super::{Pixels, resample::MAX_PIXELS};
use crate::Dataset;
use crate::dataset::require_items;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};
use teeny_core::context::enter;
use teeny_core::file::{Budget, read, reason, replace};
use teeny_core::{DType, DeviceRef, Error, Result, Tensor, ToDevice, memory};
use teeny_formats::names::of_file;
use zune_jpeg::JpegDecoder;
use zune_jpeg::zune_core::bytestream::ZCursor;
use zune_jpeg::zune_core::{colorspace::ColorSpace, options::DecoderOptions};

/// A folder of images, `CLASS/NAME.png` or `.jpg`, which are decoded when a batch is made.
///
/// Classes are the subfolders in the order of their names, items the files of each class in the
/// order of theirs, before those of folders in it. Files directly in the root, files with other
/// endings, names that begin with a dot and links to folders within a class are left out. Images
/// become RGB as [`read_image`] says.
///
/// A batch is pixels f32 (B, 3, H, W) and labels i32 (B). [`DataLoader::prefetch`] decodes on
/// several threads.
///
/// # Example
/// Half of the files for training, with augmentation, the others without.
/// ```no_run
/// use std::sync::Arc;
/// use teeny_data::images::{ImageFolder, ImageSize, ImageTransform, ImageTransforms, Resample};
/// use teeny_data::DataLoader;
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// let filter = Resample::Bilinear;
/// let augment = ImageTransforms::new(1, [
///     ImageTransform::RandomResizedCrop {
///         size: [64, 64], scale: [0.5, 1.0], ratio: [0.75, 1.333], filter,
///     },
///     ImageTransform::FlipHorizontal { p: 0.5 },
/// ])?;
/// let plain = ImageTransforms::new(0, [
///     ImageTransform::Resize { size: ImageSize::Exact([64, 64]), filter },
/// ])?;
/// let folder = ImageFolder::open("flowers", &device("cpu")?)?;
/// println!("{} images of {:?}", folder.len(), folder.classes());
/// // the same seed gives the same parts
/// let [train, _] = folder.clone().with_transforms(augment).random_split([0.5, 0.5], 1)?;
/// let [_, test] = folder.with_transforms(plain).random_split([0.5, 0.5], 1)?;
/// let train = Arc::new(DataLoader::new(train, 32)?.shuffle(1));
/// for batch in train.prefetch(0, 0, 4) {
///     let (pixels, labels) = batch?; // (32, 3, 64, 64), (32)
/// }
/// # drop(test);
/// # Ok(()) }
/// ```
///
/// Equivalent: `torchvision.datasets.ImageFolder`.
///
/// [`DataLoader::prefetch`]: crate::DataLoader::prefetch
#[derive(Clone, Debug)]
pub struct ImageFolder {
    classes: Vec<String>,
    files: Vec<(PathBuf, usize)>,
    transforms: ImageTransforms,
    device: DeviceRef,
}

impl ImageFolder {
    /// Lists the files of the folder `path`, for batches on `device`. No image is read.
    ///
    /// # Errors
    /// If it is not a folder, or cannot be read; if there is no subfolder, or one without images.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, device: impl ToDevice) -> Result<ImageFolder> {
        let _op = enter("ImageFolder::open");
        let root = path.as_ref();
        let (mut classes, mut files) = (Vec::new(), Vec::new());
        for folder in entries(root)?.into_iter().filter(|path| path.is_dir()) {
            let before = files.len();
            append_images(&folder, classes.len(), &mut files)?;
            if files.len() == before {
                let text = format!("{} has no image", folder.display());
                return Err(Error::value(text).help("each class has .png, .jpg or .jpeg files"));
            }
            classes.push(name(&folder));
        }
        if classes.is_empty() {
            let text = format!("{} has no subfolders", root.display());
            return Err(Error::value(text).help("one subfolder of images for each class"));
        }
        let (transforms, device) = (ImageTransforms::default(), device.to_device());
        Ok(ImageFolder { classes, files, transforms, device })
    }

    /// This folder with transforms, which give all images of a batch one size.
    pub fn with_transforms(mut self, transforms: ImageTransforms) -> ImageFolder {
        self.transforms = transforms;
        self
    }

    /// The names of the classes, by label.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// The path and the label of each item.
    pub fn files(&self) -> &[(PathBuf, usize)] {
        &self.files
    }
}

impl Dataset for ImageFolder {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        self.files.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<(Tensor, Tensor)> {
        require_items(indices, self.len())?;
        let (mut batch, mut labels) = (ImageBatch::default(), Vec::new());
        for &i in indices {
            let (path, label) = &self.files[i];
            let name = || path.display().to_string();
            let image = decode(path).and_then(|image| self.transforms.applied(image, i, epoch));
            batch.push(&image.map_err(|e| of_file(e, name()))?, name)?;
            labels.push(*label as i32);
        }
        let labels = Tensor::from_vec(labels, indices.len(), &self.device)?; // (B)
        Ok((self.transforms.tensor(batch, &self.device)?, labels)) // (B, 3, H, W)
    }
}

/// The files and folders in a folder, by name, without those that begin with a dot.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let error = |e| Error::io(format!("cannot read {}: {e}", folder.display()));
    let all = fs::read_dir(folder).map_err(|e| {
        error(match folder.is_dir() {
            true => e.to_string(),
            false => format!("not a folder, or {}", reason(folder, &e)),
        })
    })?;
    let all: std::io::Result<Vec<PathBuf>> = all.map(|entry| Ok(entry?.path())).collect();
    let mut all = all.map_err(|e| error(e.to_string()))?;
    all.retain(|path| !name(path).starts_with('.'));
    all.sort();
    Ok(all)
}

/// Appends the images in a folder, and after them those in the folders in it. Links are not
/// followed, since they may lead back to a folder above.
fn append_images(folder: &Path, label: usize, files: &mut Vec<(PathBuf, usize)>) -> Result<()> {
    let (folders, others): (Vec<_>, Vec<_>) =
        entries(folder)?.into_iter().partition(|p| p.is_dir());
    files.extend(others.into_iter().filter(|path| is_image(path)).map(|path| (path, label)));
    let mut folders = folders.iter().filter(|path| !path.is_symlink());
    folders.try_for_each(|folder| append_images(folder, label, files))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn is_image(path: &Path) -> bool {
    let end = path.extension().unwrap_or_default().to_ascii_lowercase();
    ["png", "jpg", "jpeg"].iter().any(|known| end == *known)
}

/// Reads a PNG or JPEG file as u8 (3, H, W) of RGB. Grey becomes three equal channels, transparent
/// pixels are laid over white, 16 bits become 8. The first bytes of the file decide its format.
/// Orientation (EXIF) and colour profiles are ignored.
///
/// Equivalent: `torchvision.io.decode_image(path, "RGB")`, which drops the transparency.
///
/// # Errors
/// If the file cannot be read, is neither PNG nor JPEG, is damaged, or claims more pixels than its
/// length can hold.
#[track_caller]
pub fn read_image(path: impl AsRef<Path>, device: impl ToDevice) -> Result<Tensor> {
    let _op = enter("read_image");
    let path = path.as_ref();
    let image = decode(path).map_err(|e| of_file(e, format!("read {}", path.display())))?;
    let mut planes = Vec::new();
    image.append_planes(&mut planes)?;
    Tensor::from_vec(planes, (3, image.height, image.width), device.to_device())
}

/// Writes `image`, u8 (3, H, W) of RGB, as a PNG file.
///
/// Equivalent: `torchvision.io.write_png`.
///
/// # Errors
/// If the image is something else or empty, or the file cannot be written.
#[track_caller]
pub fn write_png(path: impl AsRef<Path>, image: &Tensor) -> Result<()> {
    let _op = enter("write_png");
    let shape = *image.shape();
    let sides = shape.iter().map(|side| u32::try_from(*side).unwrap_or_default());
    let &[3, height @ (1..), width @ (1..)] = &sides.collect::<Vec<_>>()[..] else {
        return Err(Error::shape(format!("expected (3, H, W), got {shape}")).help("H, W above 0"));
    };
    if image.dtype() != DType::U8 {
        let help = match image.dtype().is_float() {
            true => "bytes (u8) are x.mul(255.0)?.round()?.cast(DType::U8)? of values of 0 to 1",
            false => "bytes (u8) are x.cast(DType::U8)? of values of 0 to 255",
        };
        return Err(Error::dtype(format!("expected u8, got {}", image.dtype())).help(help));
    }
    let pixels = Pixels::from_planes([shape[1], shape[2]], &image.to_vec::<u8>()?)?;
    replace(path.as_ref(), |file| {
        let mut encoder = png::Encoder::new(file, width, height);
        encoder.set_color(png::ColorType::Rgb);
        let written = encoder.write_header().and_then(|mut writer| {
            writer.write_image_data(&pixels.bytes)?;
            writer.finish()
        });
        written.map_err(|e| Error::io(e.to_string()))
    })
}

/// The pixels of a file.
fn decode(path: &Path) -> Result<Pixels> {
    let bytes = read(path)?;
    if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        return decode_png(&bytes);
    }
    if bytes.starts_with(b"\xff\xd8") {
        return decode_jpeg(&bytes);
    }
    Err(Error::format("neither PNG nor JPEG, by its first bytes").help("convert it to one of them"))
}

/// Memory for the `bytes` that an image in a file of `length` bytes takes.
fn output(height: usize, width: usize, bytes: Option<usize>, length: usize) -> Result<Vec<u8>> {
    match bytes.filter(|_| height.checked_mul(width).is_some_and(|area| area <= MAX_PIXELS)) {
        None => Err(Error::format(format!("an image of {height} x {width} is too large"))),
        Some(bytes) => {
            Budget::new(length).with_deflated(length).charge(bytes)?;
            memory::filled(0, bytes)
        }
    }
}

fn decode_png(bytes: &[u8]) -> Result<Pixels> {
    let damaged = |e: png::DecodingError| Error::format(format!("damaged PNG: {e}"));
    let mut decoder = png::Decoder::new(Cursor::new(bytes));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info().map_err(damaged)?;
    let [height, width] = [reader.info().height, reader.info().width].map(|side| side as usize);
    let mut pixels = output(height, width, reader.output_buffer_size(), bytes.len())?;
    let channels = reader.output_color_type().0.samples();
    let rows = match reader.info().interlaced {
        false => height,
        true => PASSES
            .iter()
            .filter(|[x, y, _]| *x < width && *y < height)
            .map(|[_, y, step]| (height - y).div_ceil(*step))
            .sum(),
    };
    // row by row, as Pillow: the end of the file behind the last one is not read
    for at in 0..rows {
        let Some(row) = reader.next_interlaced_row().map_err(damaged)? else { break };
        let (data, stride) = (row.data(), width * channels);
        match row.interlace() {
            png::InterlaceInfo::Adam7(info) => {
                png::expand_interlaced_row(&mut pixels, stride, data, info, 8 * channels as u8);
            }
            _ => pixels[stride * at..][..stride].copy_from_slice(data),
        }
    }
    Pixels::new([height, width], channels, pixels)
}

/// The first column and row of each pass of an interlaced PNG, and the distance of its rows.
const PASSES: [[usize; 3]; 7] =
    [[0, 0, 8], [4, 0, 8], [0, 4, 8], [2, 0, 4], [0, 2, 4], [1, 0, 2], [0, 1, 2]];

fn decode_jpeg(bytes: &[u8]) -> Result<Pixels> {
    let damaged = |e| Error::format(format!("damaged JPEG: {e:?}"));
    let options = DecoderOptions::default()
        .set_strict_mode(true) // a file that ends too early is an error
        .jpeg_set_out_colorspace(ColorSpace::RGB);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(damaged)?;
    let (width, height) = decoder.dimensions().unwrap_or_default();
    let mut pixels = output(height, width, decoder.output_buffer_size(), bytes.len())?;
    decoder.decode_into(&mut pixels).map_err(damaged)?;
    Pixels::new([height, width], 3, pixels)
}
