//! im2col and col2im: the windows of a convolution as columns of a matrix, and columns added back.
//! One strided view per position of the kernel; no device has a kernel for them.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::memory;
use crate::op::{Window, pool_shape};
use crate::shape::Shape;
use crate::tensor::Tensor;

impl Tensor {
    /// All windows of `size` as columns: (N, C, spatial..) → (N, C · window, places), positions in
    /// a window in row-major order after the channel.
    ///
    /// # Errors
    /// If there are not as many spatial axes as sizes, or a window does not fit.
    ///
    /// Equivalent: `torch.nn.functional.unfold`, for any number of spatial axes.
    #[doc(alias = "unfold")]
    #[track_caller]
    pub fn im2col(&self, size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("im2col").on([("x", Some(self))]);
        let counts = windows_of(self.shape(), size, window)?;
        let padded = self.pad(&frame(window), 0)?;
        let positions = Shape::new(size)?.numel();
        let mut parts = memory::reserved(positions)?;
        for position in 0..positions {
            // (N, C, counts..)
            parts.push(padded.at_kernel_position(position, size, &counts, window)?);
        }
        // (N, C, window, counts..)
        let columns = Tensor::stack(&parts, 2)?;
        columns.reshape((
            self.shape()[0],
            self.shape()[1] * parts.len(),
            counts.iter().product::<usize>(),
        ))
    }

    /// Columns added back where [`Tensor::im2col`] takes them from: (N, C · window, places) → (N,
    /// C, spatial..). Where windows overlap, elements add up.
    ///
    /// # Errors
    /// If the columns do not fit an input of `spatial` sizes.
    ///
    /// Equivalent: `torch.nn.functional.fold`.
    #[doc(alias = "fold")]
    #[track_caller]
    pub fn col2im(&self, spatial: &[usize], size: &[usize], window: &Window) -> Result<Tensor> {
        let _op = enter("col2im").on([("x", Some(self))]);
        let &[n, rows, places] = &self.shape()[..] else {
            return Err(Error::shape(format!(
                "columns are (N, C · window, places), not {}",
                self.shape()
            ))
            .help("x.unsqueeze(0)? adds an axis in front"));
        };
        let positions = Shape::new(size)?.numel();
        let channels = rows.checked_div(positions).unwrap_or(0);
        let shape = Shape::new(&[&[n, channels], spatial].concat())?;
        let counts = windows_of(&shape, size, window)?;
        if channels * positions != rows || counts.iter().product::<usize>() != places {
            return Err(Error::shape(format!(
                "an input of {shape} has windows {counts:?} of {positions} elements, not the \
                 columns of {}",
                self.shape()
            ))
            .help("pass the sizes and the window of the im2col that made the columns"));
        }
        let dtype = self.dtype().compute();
        let columns =
            self.cast(dtype)?.reshape([&[n, channels, positions], &counts[..]].concat())?;
        let wide: Vec<usize> =
            spatial.iter().zip(&window.padding).map(|(n, p)| n + 2 * p).collect();
        let mut image = Tensor::zeros([&[n, channels], &wide[..]].concat(), dtype, self)?;
        for position in 0..positions {
            let target = |x: &Tensor| x.at_kernel_position(position, size, &counts, window);
            let sum = target(&image)?.add(&columns.at(2, position as isize)?)?;
            image = image.assign_view(target, &sum)?;
        }
        (0..spatial.len()).try_fold(image.cast(self.dtype())?, |x, i| {
            x.slice(i as isize + 2, window.padding[i]..window.padding[i] + spatial[i])
        })
    }

    /// The elements of this padded image (lead.., spatial..) that kernel position `position` meets,
    /// one per window: a strided view (lead.., counts..).
    pub(crate) fn at_kernel_position(
        &self,
        position: usize,
        kernel: &[usize],
        counts: &[usize],
        window: &Window,
    ) -> Result<Tensor> {
        let (mut view, mut rest) = (self.clone(), position);
        let lead = (self.ndim() - kernel.len()) as isize;
        for i in (0..kernel.len()).rev() {
            let start = (rest % kernel[i]) * window.dilation[i];
            rest /= kernel[i];
            let end = start + (counts[i] - 1) * window.stride[i] + 1;
            view = view.slice_step(lead + i as isize, start..end, window.stride[i] as isize)?;
        }
        Ok(view)
    }
}

/// The padding of a window as widths of a frame.
fn frame(window: &Window) -> Vec<(isize, isize)> {
    window.padding.iter().map(|&p| (p as isize, p as isize)).collect()
}

/// How many windows of `size` an input (N, C, spatial..) has along each axis.
fn windows_of(x: &Shape, size: &[usize], window: &Window) -> Result<Vec<usize>> {
    if x.ndim() != size.len() + 2 {
        return Err(Error::shape(format!(
            "windows of {size:?} need an input (N, C, spatial..), not {x}"
        ))
        .help(format!(
            "one size for each axis behind N and C; an input of {} axes fits",
            size.len() + 2
        )));
    }
    Ok(pool_shape(x, size, window)?[2..].to_vec())
}
