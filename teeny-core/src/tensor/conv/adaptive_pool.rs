//! Adaptive pooling: to given sizes, so that the windows of one axis may differ in length. Axes
//! that the sizes divide go through the poolings of `pool`; the others are gathered axis by axis.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::op::Window;
use crate::shape::{Shape, index_end};
use crate::tensor::create::generate;
use crate::tensor::{Tensor, map};

impl Tensor {
    /// The means of windows chosen so that the last axes get the sizes `out`: window i of n
    /// elements goes from `floor(i n / out)` to `ceil((i + 1) n / out)`.
    /// `x.adaptive_avg_pool(&[1, 1])` is the global mean.
    ///
    /// # Errors
    /// If there are not enough axes, one of them or of `out` is 0, or the type is not a float.
    ///
    /// Equivalent: `torch.nn.functional.adaptive_avg_pool2d`, for any number of axes.
    #[doc(
        alias = "adaptive_avg_pool1d",
        alias = "adaptive_avg_pool2d",
        alias = "adaptive_avg_pool3d"
    )]
    #[track_caller]
    pub fn adaptive_avg_pool(&self, out: &[usize]) -> Result<Tensor> {
        let _op = enter("adaptive_avg_pool").on([("x", Some(self))]);
        self.require_float()?;
        let lead = adaptive_lead(self.shape(), out)?;
        if let Some((size, window)) = even(&self.shape()[lead..], out) {
            return self.avg_pool(&size, &window);
        }
        let mut x = self.cast(self.dtype().compute())?;
        for (i, &count) in out.iter().enumerate() {
            let axis = lead + i;
            let windows = Spans { n: x.shape()[axis], count };
            let index = windows.index(&x)?; // (count, longest)
            let along = Shape::new(&[&[count], &vec![1; x.ndim() - axis - 1][..]].concat())?;
            let length = generate(along, &x, |i| windows.get(i).len() as i64)?; // (count, 1..)
            // The first element of every window, then the second of windows that have one, and so
            // on.
            let mut sum = x.index_select(axis as isize, &index.at(1, 0)?)?; // (.., count, ..)
            for k in 1..windows.longest() {
                let (part, inside) = (
                    x.index_select(axis as isize, &index.at(1, k as isize)?)?,
                    length.gt(k as i64)?,
                );
                sum = map([&sum, &part, &inside], |[sum, x, inside]| {
                    inside.where_cond(sum + x, sum)
                })?;
            }
            x = sum.div(&length.cast(x.dtype())?)?;
        }
        x.cast(self.dtype())
    }

    /// The largest elements of the windows of [`Tensor::adaptive_avg_pool`], and their positions
    /// (`I32`) in the flattened last axes of self.
    ///
    /// # Errors
    /// If there are not enough axes, or one of them or of `out` is 0.
    ///
    /// Equivalent: `torch.nn.functional.adaptive_max_pool2d(.., return_indices=True)`, for any
    /// number of axes.
    #[doc(
        alias = "adaptive_max_pool1d",
        alias = "adaptive_max_pool2d",
        alias = "adaptive_max_pool3d"
    )]
    #[track_caller]
    pub fn adaptive_max_pool(&self, out: &[usize]) -> Result<(Tensor, Tensor)> {
        let _op = enter("adaptive_max_pool").on([("x", Some(self))]);
        let lead = adaptive_lead(self.shape(), out)?;
        if let Some((size, window)) = even(&self.shape()[lead..], out) {
            return self.max_pool_indices(&size, &window);
        }
        let plane: usize = self.shape()[lead..].iter().product();
        // Axis by axis from the last: the first of the largest in its row, then the first row that
        // has it.
        let mut x = self.clone();
        let mut positions = Tensor::arange(0i32, index_end(plane)?, 1, self)?
            .reshape(&self.shape()[lead..])?
            .expand(self.shape())?;
        for (i, &count) in out.iter().enumerate().rev() {
            let axis = (lead + i) as isize;
            let index = Spans { n: x.shape()[lead + i], count }.index(&x)?;
            // (.., count, longest, ..)
            let (part, places) =
                (x.index_select(axis, &index)?, positions.index_select(axis, &index)?);
            let best = part.argmax(axis + 1)?.unsqueeze(axis + 1)?; // (.., count, 1, ..)
            x = part.gather(axis + 1, &best)?.squeeze(axis + 1)?;
            positions = places.gather(axis + 1, &best)?.squeeze(axis + 1)?;
        }
        // Read again from self, so that a gradient takes one step.
        let flat = positions.flatten(lead as isize, -1)?;
        Ok((
            self.flatten(lead as isize, -1)?.gather(-1, &flat)?.reshape(positions.shape())?,
            positions,
        ))
    }
}

/// The windows of an adaptive pooling of one axis: `count` of `n` elements.
struct Spans {
    n: usize,
    count: usize,
}

impl Spans {
    /// Window `i`: from `floor(i n / count)` to `ceil((i + 1) n / count)`.
    fn get(&self, i: usize) -> std::ops::Range<usize> {
        let (n, count, i) = (self.n as u128, self.count as u128, i as u128);
        (i * n / count) as usize..((i + 1) * n).div_ceil(count) as usize
    }

    /// The length of the longest window. With `n / count = q + r / c` in lowest terms, a window
    /// meets q elements if r is 0, at most q + 1 if r is 1, and otherwise some window meets q + 2:
    /// windows begin at every multiple of 1 / c between two elements, so one of them ends beyond a
    /// third.
    fn longest(&self) -> usize {
        let rest = self.n % self.count;
        self.n / self.count
            + if rest == 0 { 0 } else { 1 + usize::from(rest > gcd(rest, self.count)) }
    }

    /// The positions in the windows, shorter ones filled up by repeating their last: (count,
    /// longest).
    fn index(&self, like: &Tensor) -> Result<Tensor> {
        let longest = self.longest();
        generate(Shape::new(&[self.count, longest])?, like, |i| {
            let window = self.get(i / longest);
            (window.start + i % longest).min(window.end - 1) as i64
        })
    }
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

fn adaptive_lead(x: &Shape, out: &[usize]) -> Result<usize> {
    match x.ndim().checked_sub(out.len()) {
        Some(lead) if !out.is_empty() && !out.contains(&0) && !x[lead..].contains(&0) => {
            Shape::new(&[&x[..lead], out].concat())?;
            Ok(lead)
        }
        _ => Err(Error::shape(format!("the last axes of {x} cannot be pooled to {out:?}"))
            .help(output_size_help(x))),
    }
}

/// The help of errors about output sizes: how many axes of `x` can be pooled or interpolated.
#[cold]
pub(super) fn output_size_help(x: &Shape) -> String {
    match x.contains(&0) {
        true => "an axis of size 0 has no elements to take: test x.numel() > 0 before".to_string(),
        false => format!(
            "pass up to {} sizes, each of at least 1; x.unsqueeze(0)? adds an axis",
            x.ndim()
        ),
    }
}

/// The pooling with windows side by side that gives the sizes `out`, if they divide the axes.
fn even(axes: &[usize], out: &[usize]) -> Option<(Vec<usize>, Window)> {
    let size: Vec<usize> =
        axes.iter().zip(out).map(|(n, o)| (n % o == 0).then_some(n / o)).collect::<Option<_>>()?;
    let window = Window::new(size.len()).stride(size.as_slice());
    Some((size, window))
}
