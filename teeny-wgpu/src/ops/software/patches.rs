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

use crate::device::Wgpu;
use crate::ops::conv::shader::ConvKind;
use crate::ops::conv::sizes::ConvSizes;
use crate::ops::copy::{contiguous, copy_into};
use crate::ops::matmul::matmul;
use crate::ops::pieces::concat;
use crate::ops::reduce::sum_slices;
use crate::ops::software::multiplies_by_subgroups;
use teeny_core::{Layout, Result, Scalar, Shape, StorageRef, Tensor};

/// The bytes of patches that are stored at a time, unless one image has more.
const BYTES: usize = 32 << 20;

/// The fewest rows of a product that are worth storing its patches.
const ROWS: usize = 8;

/// The geometry of patches. Each vector has one entry for each spatial axis.
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
        let of_gradient = sizes.kind == ConvKind::InputGrad;
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
pub(crate) fn conv(
    gpu: &Wgpu,
    sizes: &ConvSizes<'_>,
    left: &Tensor,
    right: &Tensor,
) -> Result<Option<StorageRef>> {
    conv_by(gpu, sizes, left, right, BYTES)
}

/// [`conv`] with at most `bytes` of patches at a time.
fn conv_by(
    gpu: &Wgpu,
    sizes: &ConvSizes<'_>,
    left: &Tensor,
    right: &Tensor,
    bytes: usize,
) -> Result<Option<StorageRef>> {
    let (dtype, images) = (sizes.dtype, sizes.x[0]);
    let (m, _, k) = sizes.product();
    let is_small = m < ROWS || k == 0 || sizes.result().numel() == 0;
    let suits = multiplies_by_subgroups(&gpu.capabilities, dtype) && sizes.are_countable(k);
    if is_small || !suits {
        return Ok(None);
    }
    let Some(patches) = Patches::of(sizes) else { return Ok(None) };
    let groups = patches.groups;
    let places = patches.places.iter().product();
    // Sizes of the product of a group of an image.
    let (k, n) = match sizes.kind {
        ConvKind::Forward | ConvKind::InputGrad => (k, places),
        ConvKind::WeightGrad => (places, sizes.product().1),
    };
    let product = |sizes: &[usize]| sizes.iter().fold(1, |n: usize, &m| n.saturating_mul(m));
    let padded = product(&patches.padded).saturating_mul(right.shape()[1]);
    let largest = padded.max(product(&[groups, n, k.max(m)]));
    if gpu.len_exceeds_binding(largest, dtype) {
        return Ok(None);
    }
    let at_once = (bytes / dtype.size() / largest).clamp(1, images);
    let weight = match sizes.kind {
        ConvKind::Forward => Some(rows(gpu, left, [1, groups, m, k])?),
        ConvKind::InputGrad => Some(rows(gpu, &flipped(left, groups)?, [1, groups, m, k])?),
        ConvKind::WeightGrad => None,
    };
    let mut pieces = Vec::with_capacity(images.div_ceil(at_once));
    for first in (0..images).step_by(at_once) {
        let count = at_once.min(images - first);
        let part = first as isize..(first + count) as isize;
        let read = patches.read(gpu, &right.slice(0, part.clone())?)?;
        let piece = match &weight {
            Some(weight) => matmul(gpu, &weight.expand([count, groups, m, k])?, &read)?,
            None => {
                let g = rows(gpu, &left.slice(0, part)?, [count, groups, m, k])?;
                sum_slices(gpu, matmul(gpu, &g, &read.transpose(2, 3)?)?, count, left)?
            }
        };
        pieces.push(piece);
    }
    if let [all] = &pieces[..] {
        return Ok(Some(all.clone()));
    }
    let all = concat(gpu, &pieces, dtype, right)?;
    match sizes.kind {
        ConvKind::Forward | ConvKind::InputGrad => Ok(Some(all)),
        ConvKind::WeightGrad => sum_slices(gpu, all, pieces.len(), left).map(Some),
    }
}

/// `weight` (G C_out/G, C_in/G, kernel) as its transpose, (G, C_in/G, C_out/G, kernel backwards).
fn flipped(weight: &Tensor, groups: usize) -> Result<Tensor> {
    let split = [&[groups, weight.shape()[0] / groups], &weight.shape()[1..]].concat();
    let kernel: Vec<isize> = (3..split.len() as isize).collect();
    weight.reshape(&split[..])?.transpose(1, 2)?.flip(&kernel[..])
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::{DType, DeviceRef, Error, Reference, Window, random, validate};

    #[test]
    fn batches_of_patches_give_the_convolution_of_the_definition() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        if !multiplies_by_subgroups(&gpu.capabilities, DType::F32) {
            return Ok(());
        }
        let windows = [
            Window::new(2).padding(1),
            Window::new(2).stride(2).padding(1).groups(2),
            Window::new(2).dilation(2).groups(2),
            Window::new(2).stride(3).padding(2).dilation(2),
        ];
        let operands = |window: &Window, device: &DeviceRef| {
            let draw = |shape: [usize; 4]| {
                Tensor::randint(-3, 4, shape, DType::I32, device)?.cast(DType::F32)
            };
            random::with_seed(5, || {
                let x = draw([5, 16, 9, 10])?;
                let weight = draw([24, 16 / window.groups, 3, 3])?;
                let y = validate::conv_shape(x.shape(), weight.shape(), window)?;
                Ok::<_, Error>((x, weight, draw([y[0], y[1], y[2], y[3]])?))
            })
        };
        let (device, oracle) = (gpu.clone() as DeviceRef, Reference::new() as DeviceRef);
        for window in &windows {
            let (x, weight, g) = operands(window, &oracle)?;
            let expected = [
                x.conv(&weight, window)?,
                g.conv_transpose(&weight, window, &x.shape()[2..])?,
                g.conv_weight_grad(&x, window, weight.shape())?,
            ];
            let (x, weight, g) = operands(window, &device)?;
            let kinds = [
                (ConvKind::Forward, &weight, &x),
                (ConvKind::InputGrad, &weight, &g),
                (ConvKind::WeightGrad, &g, &x),
            ];
            for ((kind, left, right), expected) in kinds.into_iter().zip(&expected) {
                // an image at a time, two, all
                for bytes in [1, 2 << 16, BYTES] {
                    let sizes = ConvSizes {
                        kind,
                        dtype: DType::F32,
                        x: x.shape(),
                        weight: weight.shape(),
                        y: g.shape(),
                        window,
                    };
                    let got = conv_by(&gpu, &sizes, left, right, bytes)?;
                    let got = got.ok_or_else(|| Error::internal("not by patches"))?;
                    let got = gpu.tensor(got, *expected.shape(), DType::F32, &x)?;
                    assert_eq!(
                        got.to_vec::<f32>()?,
                        expected.to_vec::<f32>()?,
                        "{kind:?} {window:?} {bytes}"
                    );
                }
            }
        }
        Ok(())
    }
}
