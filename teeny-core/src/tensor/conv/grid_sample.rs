//! Images read at given places: `grid_sample`, and the places of an affine map, `affine_grid`.
//!
//! Along each axis a place is a few elements and their weights, as for interpolation; here both
//! are computed on the device. Each combination of one element per axis is one gather.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::build::Expr;
use crate::shape::{Shape, index_end};
use crate::tensor::create::generate;
use crate::tensor::{Tensor, map, map_n};

/// How [`Tensor::grid_sample`] finds values between elements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sampling {
    /// The nearest element, of two the one at the even position.
    Nearest,
    /// Linear between the two neighbours on each axis: PyTorch's `bilinear`, the default.
    #[default]
    Linear,
    /// Cubic convolution of four neighbours on each axis with a = -0.75, of images of two axes.
    Cubic,
}

/// The value that [`Tensor::grid_sample`] reads outside the image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Outside {
    /// Zeros, the default.
    #[default]
    Zeros,
    /// The nearest element of the image.
    Border,
    /// The image reflected at its edges, as often as needed.
    Reflection,
}

impl Tensor {
    /// The values of images at the places in `grid`.
    ///
    /// Shapes: self (N, C, H, W), grid (N, H', W', 2) → (N, C, H', W'); of volumes (N, C, D, H, W),
    /// (N, D', H', W', 3) → (N, C, D', H', W'). A place is (x, y) or (x, y, z), x along W; -1 and 1
    /// are the centres of the first and last elements with `align_corners`, otherwise their outer
    /// edges. A place that is NaN reads like one outside, at the first element.
    ///
    /// # Errors
    /// If the shapes do not fit, the image is empty, the types are not floats, or
    /// [`Sampling::Cubic`] is used for volumes.
    ///
    /// Equivalent: `torch.nn.functional.grid_sample`.
    #[track_caller]
    pub fn grid_sample(
        &self,
        grid: &Tensor,
        mode: Sampling,
        outside: Outside,
        align_corners: bool,
    ) -> Result<Tensor> {
        let _op = enter("grid_sample").on([("x", Some(self)), ("grid", Some(grid))]);
        self.require_float()?;
        grid.require_float()?;
        let axes = self.ndim().saturating_sub(2);
        let fits = matches!(axes, 2 | 3)
            && grid.ndim() == self.ndim()
            && grid.shape()[0] == self.shape()[0]
            && grid.shape()[axes + 1] == axes;
        if !fits || self.shape()[2..].contains(&0) {
            return Err(Error::shape(format!(
                "images {} cannot be read at the places {}",
                self.shape(),
                grid.shape()
            ))
            .help("(N, C, H, W) takes (N, H', W', 2), (N, C, D, H, W) takes (N, D', H', W', 3)"));
        }
        if mode == Sampling::Cubic && axes == 3 {
            return Err(Error::value("cubic sampling supports two spatial axes, not three")
                .help("Sampling::Linear has three axes"));
        }
        let [n, c] = [self.shape()[0], self.shape()[1]];
        // Places outside read the zeros around the image.
        let border = usize::from(outside == Outside::Zeros);
        let width = border as isize;
        let image = self.pad(&vec![(width, width); axes], 0.0)?;
        let sizes = &image.shape()[2..];
        let elements: usize = sizes.iter().product();
        index_end(elements)?;
        let wide = self.dtype().promote(grid.dtype()).compute();
        let mut result = vec![n, c];
        result.extend_from_slice(&grid.shape()[1..=axes]);
        let places = grid.shape()[1..=axes].iter().product::<usize>();
        let (x, grid) = (image.reshape((n, c, elements))?, grid.cast(wide)?);
        // The row-major position of each combination of one element per axis, and its weight.
        let mut all: Vec<(Tensor, Tensor)> = Vec::new(); // (N, 1, P) each
        for (i, &size) in sizes.iter().enumerate() {
            let place = grid.at(-1, (axes - 1 - i) as isize)?.reshape((n, 1, places))?;
            let taps = taps(&place, size - 2 * border, mode, outside, align_corners)?;
            if all.is_empty() {
                all = taps;
                continue;
            }
            let mut next = Vec::with_capacity(all.len() * taps.len());
            for (position, weight) in &all {
                for (tap, share) in &taps {
                    next.push((position.mul(size as i32)?.add(tap)?, weight.mul(share)?));
                }
            }
            all = next;
        }
        let mut sum = Tensor::zeros((n, c, places), wide, self)?;
        for (position, weight) in &all {
            let value = x.gather(2, &position.expand((n, c, places))?)?;
            sum = map([&sum, &value, weight], |[sum, x, w]| sum + x.cast(wide) * w)?;
        }
        sum.cast(self.dtype())?.reshape(result)
    }

    /// The places, for [`Tensor::grid_sample`], of an image of spatial sizes `size` under the
    /// affine maps self: (N, 2, 3) with `[h, w]` → (N, h, w, 2); (N, 3, 4) with `[d, h, w]` → (N,
    /// d, h, w, 3).
    ///
    /// # Errors
    /// If the shape does not fit the number of sizes.
    ///
    /// Equivalent: `torch.nn.functional.affine_grid(theta, (N, C, *size))`.
    #[track_caller]
    pub fn affine_grid(&self, size: &[usize], align_corners: bool) -> Result<Tensor> {
        let _op = enter("affine_grid").on([("x", Some(self))]);
        self.require_float()?;
        let axes = size.len();
        if self.ndim() != 3 || self.shape()[1..] != [axes, axes + 1] || !matches!(axes, 2 | 3) {
            return Err(Error::shape(format!("maps {} do not fit sizes {size:?}", self.shape()))
                .help("two sizes need (N, 2, 3), three sizes (N, 3, 4)"));
        }
        let places = Shape::new(size)?.numel();
        // Column j of row i is coordinate j of place i, x first; the last column is 1.
        let value = |i: usize| {
            let (row, j) = (i / (axes + 1), i % (axes + 1));
            let Some(axis) = (axes - 1).checked_sub(j) else { return 1.0 };
            let n = size[axis];
            let place = row / size[axis + 1..].iter().product::<usize>() % n;
            match align_corners {
                true if n == 1 => 0.0,
                true => 2.0 * place as f64 / (n - 1) as f64 - 1.0,
                false => (2 * place + 1) as f64 / n as f64 - 1.0,
            }
        };
        let base = generate(Shape::new(&[places, axes + 1])?, self, |i| value(i) as f32);
        let base = match self.dtype() {
            DType::F64 => generate(Shape::new(&[places, axes + 1])?, self, value)?,
            _ => base?.cast(self.dtype())?,
        }; // (P, axes + 1)
        let mut shape = vec![self.shape()[0]];
        shape.extend_from_slice(size);
        shape.push(axes);
        base.matmul(&self.transpose(1, 2)?)?.reshape(shape)
    }
}

/// The elements along an axis of `n` that each place in `place` is made of: positions (`I32`), from
/// the zero before the first element if there is one, and weights.
fn taps(
    place: &Tensor,
    n: usize,
    mode: Sampling,
    outside: Outside,
    align_corners: bool,
) -> Result<Vec<(Tensor, Tensor)>> {
    let size = n as f64;
    let place = map([place], |[u]| {
        let p = match align_corners {
            true => (u + 1.0) * ((size - 1.0) / 2.0),
            false => ((u + 1.0) * size - 1.0) * 0.5,
        };
        match mode {
            Sampling::Cubic if outside != Outside::Zeros => p,
            _ => moved_inside(p, size, outside, align_corners),
        }
    })?;
    let offsets = match mode {
        Sampling::Nearest => 0..=0,
        Sampling::Linear => 0..=1,
        Sampling::Cubic => -1..=2,
    };
    let tap = |k: i32| {
        let [position, weight] = map_n([&place], |[p]| {
            let base = if mode == Sampling::Nearest { p.round() } else { p.floor() };
            let (t, at) = (p - base, base + f64::from(k));
            let weight = match mode {
                Sampling::Nearest => p.like(1.0),
                Sampling::Linear => [1.0 - t, t][k as usize],
                Sampling::Cubic => cubic(t - f64::from(k), k),
            };
            let at = match outside {
                Outside::Zeros => at.clamp(-1.0, size) + 1.0,
                _ => moved_inside(at, size, outside, align_corners),
            };
            [at.cast(DType::I32), weight]
        })?;
        Ok((position, weight))
    };
    offsets.map(tap).collect()
}

/// The position `p` on an axis of `n` elements, moved inside as `outside` says.
fn moved_inside<'b>(p: Expr<'b>, n: f64, outside: Outside, align_corners: bool) -> Expr<'b> {
    let p = match outside {
        // Farther than the window of any mode, which reads nothing but zeros there.
        Outside::Zeros => return p.is_nan().where_cond(p.like(-4.0), p).clamp(-4.0, n + 3.0),
        Outside::Border => p,
        Outside::Reflection => {
            let (low, span) = if align_corners { (0.0, n - 1.0) } else { (-0.5, n) };
            if span == 0.0 {
                return p.like(0.0);
            }
            let d = p - low;
            let d = d.lt(0.0).where_cond(-d, d);
            let (rest, flips) = (d.rem(span), d.floor_div(span));
            flips.rem(2.0).eq(0.0).where_cond(rest + low, span + low - rest)
        }
    };
    // NaN is read at the first element.
    p.is_nan().where_cond(p.like(0.0), p).clamp(0.0, n - 1.0)
}

/// The cubic convolution kernel with a = -0.75 at `x`, within `|k|` steps of 0. Source: Keys 1981,
/// doi:10.1109/TASSP.1981.1163711.
fn cubic<'b>(x: Expr<'b>, k: i32) -> Expr<'b> {
    const A: f64 = -0.75;
    let x = if k > 0 { -x } else { x };
    match k {
        0 | 1 => ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0,
        _ => ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A,
    }
}
