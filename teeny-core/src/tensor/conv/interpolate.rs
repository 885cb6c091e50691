//! Images of other sizes: interpolation axis by axis.
//!
//! Every mode is, along one axis, a few elements and their weights per result: a gather for each,
//! and one pass that multiplies and adds.

use super::adaptive_pool::output_size_help;
use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory;
use crate::shape::Shape;
use crate::tensor::create::generate;
use crate::tensor::{Tensor, map};

/// How [`Tensor::interpolate`] finds values between elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interpolation {
    /// The element at `floor(i n / out)`, as PyTorch's `nearest` and OpenCV.
    Nearest,
    /// The element at `floor((i + 1/2) n / out)`, the true nearest, as `nearest-exact` and Pillow.
    NearestExact,
    /// Linear between the two neighbours on each axis: bilinear of two axes, trilinear of three.
    Linear {
        /// The first and last elements stay where they are; otherwise elements are cells, whose
        /// outer edges do.
        align_corners: bool,
    },
    /// Cubic convolution of four neighbours on each axis with a = -0.75: bicubic of two axes.
    Cubic {
        /// As for linear.
        align_corners: bool,
    },
    /// The mean of the elements a result covers: [`Tensor::adaptive_avg_pool`].
    Area,
    /// The mean of the elements around a result, weighted by a triangle that is as wide as two
    /// results (two elements of an image that becomes larger): `bilinear` with PyTorch's
    /// `antialias`.
    AntialiasLinear,
    /// The same by cubic convolution with a = -0.5, as wide as four results: `bicubic` with
    /// PyTorch's `antialias`.
    AntialiasCubic,
}

impl Tensor {
    /// Self with its last axes of the sizes `size`, values in between interpolated.
    ///
    /// Shapes: (.., spatial..) → (.., size..). 16-bit floats are computed in f32; integers support
    /// only the nearest modes.
    ///
    /// # Errors
    /// If there are not enough axes, one is empty, or the mode does not support the type.
    ///
    /// Equivalent: `torch.nn.functional.interpolate(x, size, mode=..)` with `linear`, `bilinear`,
    /// `trilinear` all `Linear`.
    #[track_caller]
    pub fn interpolate(&self, size: &[usize], mode: Interpolation) -> Result<Tensor> {
        let _op = enter("interpolate").on([("x", Some(self))]);
        let lead = self.resampled(size)?;
        let ratios: Vec<f64> = size
            .iter()
            .enumerate()
            .map(|(i, &n)| self.shape()[lead + i] as f64 / n as f64)
            .collect();
        self.resample(size, &ratios, mode)
    }

    /// [`Tensor::interpolate`] to `floor(n scale)` on each of the last axes, where elements are
    /// exactly `1 / scale` apart.
    ///
    /// # Errors
    /// As [`Tensor::interpolate`]; if a scale makes a size 0.
    ///
    /// Equivalent: `torch.nn.functional.interpolate(x, scale_factor=scale, mode=..)`.
    #[doc(alias = "interpolate")]
    #[track_caller]
    pub fn interpolate_by(&self, scale: &[f64], mode: Interpolation) -> Result<Tensor> {
        let _op = enter("interpolate_by").on([("x", Some(self))]);
        let Some(lead) = self.ndim().checked_sub(scale.len()) else {
            return Err(Error::shape(format!("scales {scale:?} for the axes of {}", self.shape()))
                .help(format!(
                    "pass at most {} scales, or add axes: x.unsqueeze(0)?",
                    self.ndim()
                )));
        };
        let size: Vec<usize> = scale
            .iter()
            .enumerate()
            .map(|(i, s)| (self.shape()[lead + i] as f64 * s).floor() as usize)
            .collect();
        self.resampled(&size)?;
        self.resample(&size, &scale.iter().map(|s| 1.0 / s).collect::<Vec<_>>(), mode)
    }

    /// The number of axes before the axes that get the sizes `size`.
    fn resampled(&self, size: &[usize]) -> Result<usize> {
        match self.ndim().checked_sub(size.len()) {
            Some(lead)
                if !size.is_empty() && !size.contains(&0) && !self.shape()[lead..].contains(&0) =>
            {
                Shape::new(&[&self.shape()[..lead], size].concat())?;
                Ok(lead)
            }
            _ => Err(Error::shape(format!(
                "the last axes of {} cannot be resized to {size:?}",
                self.shape()
            ))
            .help(output_size_help(self.shape()))),
        }
    }

    fn resample(&self, size: &[usize], ratios: &[f64], mode: Interpolation) -> Result<Tensor> {
        let nearest = matches!(mode, Interpolation::Nearest | Interpolation::NearestExact);
        if !nearest {
            self.require_float()?;
        }
        if mode == Interpolation::Area {
            return self.adaptive_avg_pool(size);
        }
        let lead = self.ndim() - size.len();
        let mut x = if nearest { self.clone() } else { self.cast(self.dtype().compute())? };
        for (i, (&out, &ratio)) in size.iter().zip(ratios).enumerate() {
            let (axis, n) = (lead + i, x.shape()[lead + i]);
            if out == n && ratio == 1.0 {
                continue;
            }
            if let Some(radius) = filter_radius(mode) {
                let shape = Shape::new(&[out, n])?;
                let weights = filter_weights(&shape, ratio, radius)?;
                let weights = match x.dtype() {
                    DType::F64 => generate(shape, &x, |i| weights[i])?,
                    _ => generate(shape, &x, |i| weights[i] as f32)?,
                }; // (out, n)
                x = x.movedim(axis, -1)?.matmul(&weights.t()?)?.movedim(-1, axis)?;
                continue;
            }
            let along = [&[out], &vec![1; x.ndim() - axis - 1][..]].concat();
            let along = Shape::new(&along)?;
            let taps = (0..count(mode)).map(|k| {
                // (out)
                let index =
                    generate(Shape::new(&[out])?, &x, |i| tap(i, k, n, out, ratio, mode).0)?;
                // (out, 1..)
                let weight = generate(along, &x, |i| tap(i, k, n, out, ratio, mode).1)?;
                // (.., out, ..)
                Ok((x.index_select(axis as isize, &index)?, weight.cast(x.dtype().to_float())?))
            });
            let taps = taps.collect::<Result<Vec<_>>>()?;
            x = match taps.as_slice() {
                [(a, _)] => a.clone(),
                [(a, u), (b, v)] => map([a, u, b, v], |[a, u, b, v]| a * u + b * v)?,
                [(a, p), (b, q), (c, r), (d, s)] => {
                    map([a, p, b, q, c, r, d, s], |[a, p, b, q, c, r, d, s]| {
                        a * p + b * q + c * r + d * s
                    })?
                }
                more => return Err(Error::internal(format!("{} elements for one", more.len()))),
            };
        }
        x.cast(self.dtype())
    }
}

/// The number of input elements per result along one axis.
fn count(mode: Interpolation) -> usize {
    match mode {
        Interpolation::Nearest | Interpolation::NearestExact | Interpolation::Area => 1,
        Interpolation::AntialiasLinear | Interpolation::AntialiasCubic => 1, // use filters
        Interpolation::Linear { .. } => 2,
        Interpolation::Cubic { .. } => 4,
    }
}

/// The position and the weight of the `k`-th element that result `i` of `out` is made of, along an
/// axis of `n` elements, of which results are `ratio` apart.
fn tap(i: usize, k: usize, n: usize, out: usize, ratio: f64, mode: Interpolation) -> (i64, f64) {
    let last = n as f64 - 1.0;
    let corners = |i: usize| if out > 1 { i as f64 * last / (out - 1) as f64 } else { 0.0 };
    let cells = |i: usize| (i as f64 + 0.5) * ratio - 0.5;
    let (x, weight) = match mode {
        // NOTE: i n / out may be an integer that rounding puts just below itself.
        Interpolation::Nearest => ((i as f64 * ratio + 1e-9).floor(), 1.0),
        Interpolation::NearestExact
        | Interpolation::Area
        | Interpolation::AntialiasLinear
        | Interpolation::AntialiasCubic => (((i as f64 + 0.5) * ratio).floor(), 1.0),
        Interpolation::Linear { align_corners } => {
            let x = if align_corners { corners(i) } else { cells(i).max(0.0) };
            let t = x - x.floor();
            (x.floor() + k as f64, if k == 0 { 1.0 - t } else { t })
        }
        Interpolation::Cubic { align_corners } => {
            let x = if align_corners { corners(i) } else { cells(i) };
            let from = k as f64 - 1.0;
            (x.floor() + from, cubic(from - (x - x.floor()), -0.75))
        }
    };
    (x.clamp(0.0, last) as i64, weight)
}

/// Half the width of a filter in results, if `mode` is a filter.
fn filter_radius(mode: Interpolation) -> Option<f64> {
    match mode {
        Interpolation::AntialiasLinear => Some(1.0),
        Interpolation::AntialiasCubic => Some(2.0),
        _ => None,
    }
}

/// The weights (out, n) of n elements for each of `out` results, whose sum is 1.
fn filter_weights(shape: &Shape, ratio: f64, radius: f64) -> Result<Vec<f64>> {
    let n = shape[1];
    let scale = ratio.max(1.0);
    let mut all = memory::reserved(shape.numel())?;
    for i in 0..shape[0] {
        let center = (i as f64 + 0.5) * ratio;
        // As PyTorch rounds the ends of the window.
        let start = (center - radius * scale + 0.5).max(0.0) as usize;
        let end = (center + radius * scale + 0.5) as usize;
        let weight = |j: usize| match (j as f64 - center + 0.5) / scale {
            _ if !(start..end).contains(&j) => 0.0,
            x if radius == 1.0 => (1.0 - x.abs()).max(0.0),
            x => cubic(x, -0.5),
        };
        all.extend((0..n).map(weight));
        let row = &mut all[i * n..];
        let sum: f64 = row.iter().sum();
        row.iter_mut().for_each(|w| *w /= sum);
    }
    Ok(all)
}

/// The cubic convolution kernel. Source: Keys 1981, doi:10.1109/TASSP.1981.1163711.
fn cubic(x: f64, a: f64) -> f64 {
    match x.abs() {
        x if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        x if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}
