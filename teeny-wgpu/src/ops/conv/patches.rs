//! Convolutions as products with patches that are stored, for software adapters: there products of
//! subgroups take a tenth of the time of tiles through workgroup memory, which read patches out of
//! the images for every tile.
//!
//! ```text
//! padded       (n, C, pixels between zeros)      of n images at a time
//! patches      (n, G, C/G kernel, places)        a row-major copy of a view of `padded`
//! forward      weight (G, C_out/G, C_in/G kernel) @ patches of x
//! of x         weight flipped, (G, C_in/G, C_out/G kernel) @ patches of g, a pixel a place
//! of weight    the sum over images of g (n, G, C_out/G, places) @ patches of x'
//! ```

use super::{ConvSizes, Kind};
use crate::device::Wgpu;
use crate::ops::copy::{contiguous, copy_into};
use crate::ops::matmul::matmul;
use crate::ops::matmul::select::Subgroups;
use crate::ops::pieces::concat;
use crate::ops::reduce::reduce;
use teeny_core::{Layout, ReduceOp, Result, Scalar, Shape, StorageRef, Tensor};

/// The bytes of patches that are stored at a time, unless one image has more.
const BYTES: usize = 32 << 20;

/// The fewest rows of a product that are worth storing its patches.
const ROWS: usize = 8;

/// How patches lie in images. The vectors have a number for each spatial axis.
struct Patches {
    groups: usize,
    /// Zeros before the first pixel.
    low: Vec<usize>,
    /// From one pixel to the next one; zeros are in between.
    step: Vec<usize>,
    /// Pixels and zeros.
    padded: Vec<usize>,
    kernel: Vec<usize>,
    dilation: Vec<usize>,
    /// From one patch to the next one.
    stride: Vec<usize>,
    places: Vec<usize>,
}

impl Patches {
    /// Nothing if the gradient of x takes less than no zeros before the first pixel.
    fn of(sizes: &ConvSizes<'_>) -> Option<Patches> {
        let window = sizes.window;
        let (pixels, places) = (sizes.x[2..].to_vec(), sizes.y[2..].to_vec());
        let (kernel, axes) = (sizes.weight[2..].to_vec(), 0..pixels.len());
        let reach = |a: usize| window.dilation[a] * (kernel[a] - 1);
        let of_gradient = sizes.kind == Kind::InputGrad;
        let (low, padded) = match of_gradient {
            false => {
                let padded = axes.map(|a| pixels[a] + 2 * window.padding[a]).collect();
                (window.padding.to_vec(), padded)
            }
            true => {
                let low = axes.clone().map(|a| reach(a).checked_sub(window.padding[a]));
                (low.collect::<Option<_>>()?, axes.map(|a| pixels[a] + reach(a)).collect())
            }
        };
        let (one, stride) = (vec![1; pixels.len()], window.stride.to_vec());
        Some(Patches {
            groups: window.groups,
            low,
            step: if of_gradient { stride.clone() } else { one.clone() },
            padded,
            kernel,
            dilation: window.dilation.to_vec(),
            stride: if of_gradient { one } else { stride },
            places: if of_gradient { pixels } else { places },
        })
    }

    /// `images` (n, C, pixels) between zeros: (n, C, padded).
    fn pad(&self, gpu: &Wgpu, images: &Tensor) -> Result<Tensor> {
        if self.step.iter().all(|&s| s == 1) && self.padded == images.shape()[2..] {
            return Ok(images.clone());
        }
        let shape = Shape::new(&[&images.shape()[..2], &self.padded].concat())?;
        let zeros = Tensor::full(shape, Scalar::Int(0), images.dtype(), images)?;
        let inside = (0..self.low.len()).fold(Layout::contiguous(shape), |layout, a| {
            layout.slice(a + 2, self.low[a], images.shape()[a + 2], self.step[a] as isize)
        });
        let storage = zeros.storage().clone();
        drop(zeros); // so that the storage has one owner, and is written in place
        gpu.tensor(copy_into(gpu, storage, &inside, images)?, shape, images.dtype(), images)
    }

    /// The patches of `images` (n, C, pixels): (n, G, C/G kernel, places).
    fn read(&self, gpu: &Wgpu, images: &Tensor) -> Result<Tensor> {
        let padded = self.pad(gpu, images)?;
        let (n, channels) = (images.shape()[0], images.shape()[1]);
        let sizes = [&[n, channels][..], &self.kernel, &self.places].concat();
        let pixel = &padded.strides()[2..];
        let apart = |by: &[usize]| {
            by.iter().zip(pixel).map(|(&by, &s)| by as isize * s).collect::<Vec<_>>()
        };
        let strides =
            [&padded.strides()[..2], &apart(&self.dilation), &apart(&self.stride)].concat();
        let layout = Layout::strided(
            Shape::new(&sizes)?,
            &strides,
            padded.layout().offset(),
            padded.storage().len(),
        )?;
        let (dtype, device) = (padded.dtype(), padded.device().clone());
        let patches = Tensor::from_parts(padded.storage().clone(), layout, dtype, device)?;
        let kernel: usize = self.kernel.iter().product();
        let places = self.places.iter().product();
        rows(gpu, &patches, [n, self.groups, channels / self.groups * kernel, places])
    }
}

/// The elements of `x` in row-major order, as `shape`.
fn rows(gpu: &Wgpu, x: &Tensor, shape: [usize; 4]) -> Result<Tensor> {
    if x.is_contiguous() {
        return x.reshape(shape);
    }
    gpu.tensor(contiguous(gpu, x)?, Shape::new(&shape)?, x.dtype(), x)
}

/// The convolution of `sizes`, whose operands are `left` and `right`; nothing where patches are not
/// stored.
pub(super) fn conv(
    gpu: &Wgpu,
    sizes: &ConvSizes<'_>,
    left: &Tensor,
    right: &Tensor,
) -> Result<Option<StorageRef>> {
    let (m, _, k) = sizes.product();
    let images = sizes.x[0];
    if !Subgroups::suits(&gpu.capabilities, sizes.dtype)
        || m < ROWS
        || k == 0
        || sizes.result().numel() == 0
    {
        return Ok(None);
    }
    let Some(patches) = Patches::of(sizes) else { return Ok(None) };
    let groups = patches.groups;
    let weighs = sizes.kind == Kind::WeightGrad;
    let places: usize = patches.places.iter().product();
    let (k, n) = if weighs { (places, sizes.product().1) } else { (k, places) };
    // Elements of an image: patches, zeros and results.
    let each = [
        groups * k * n,
        groups * m * n,
        right.shape()[1] * patches.padded.iter().product::<usize>(),
    ]
    .into_iter()
    .max()
    .unwrap_or(1);
    if gpu.len_exceeds_binding(each, sizes.dtype) {
        return Ok(None);
    }
    let at_once = (BYTES / sizes.dtype.size() / each).clamp(1, images);
    let weight = if weighs {
        None
    } else {
        let flipped = match sizes.kind {
            Kind::InputGrad => {
                let outputs = left.shape()[0] / groups;
                let split = [&[groups, outputs], &left.shape()[1..]].concat();
                let axes: Vec<isize> = (3..split.len() as isize).collect();
                left.reshape(&split[..])?.transpose(1, 2)?.flip(&axes[..])?
            }
            Kind::Forward | Kind::WeightGrad => left.clone(),
        };
        Some(rows(gpu, &flipped, [1, groups, m, k])?)
    };
    let mut pieces = Vec::with_capacity(images.div_ceil(at_once));
    for first in (0..images).step_by(at_once) {
        let count = at_once.min(images - first);
        let part = first as isize..(first + count) as isize;
        let read = patches.read(gpu, &right.slice(0, part.clone())?)?;
        pieces.push(match &weight {
            Some(weight) => matmul(gpu, &weight.expand([count, groups, m, k])?, &read)?,
            None => {
                let g = rows(gpu, &left.slice(0, part)?, [count, groups, m, k])?;
                let each = matmul(gpu, &g, &read.transpose(2, 3)?)?;
                let each =
                    gpu.tensor(each, Shape::new(&[count, groups * m * n])?, sizes.dtype, left)?;
                reduce(gpu, ReduceOp::Sum, &each, &[0])?
            }
        });
    }
    if let [all] = &pieces[..] {
        return Ok(Some(all.clone()));
    }
    let parts = concat(gpu, &pieces, sizes.dtype, right)?;
    if !weighs {
        return Ok(Some(parts));
    }
    let shape = Shape::new(&[pieces.len(), groups * m * n])?;
    reduce(gpu, ReduceOp::Sum, &gpu.tensor(parts, shape, sizes.dtype, right)?, &[0]).map(Some)
}
