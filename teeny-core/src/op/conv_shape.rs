//! The shapes of the results of convolutions and poolings, in checked arithmetic.

use super::Window;
use super::window::signed;
use crate::error::{Error, Result};
use crate::shape::{MAX_NUMEL, Shape};

/// The number of windows of `kernel` elements along `axis`, of `size`.
fn windows(window: &Window, axis: usize, size: usize, kernel: usize) -> Result<usize> {
    let (stride, dilation) = (window.stride[axis], window.dilation[axis]);
    at_least_one(stride, dilation, kernel)?;
    let (reach, padded) = (window.reach(axis, kernel)?, window.padded(axis, size)?);
    if reach > padded {
        return Err(window_too_large(axis, size, (reach, padded), (kernel, dilation)));
    }
    Ok((padded - reach) / stride + 1)
}

/// Checks that none of the numbers of a window is 0 or negative.
pub(crate) fn at_least_one(stride: usize, dilation: usize, kernel: usize) -> Result<()> {
    let [stride, dilation, kernel] = [stride, dilation, kernel].map(signed);
    if stride.min(dilation).min(kernel) >= 1 {
        return Ok(());
    }
    Err(Error::value(format!(
        "stride {stride}, dilation {dilation} and window {kernel} must be at least 1"
    ))
    .help("1 is what Window::new(ndim) has as stride and dilation"))
}

/// A window of `kernel` elements, `dilation` apart, that is longer than the padded axis.
#[cold]
fn window_too_large(
    axis: usize,
    size: usize,
    (reach, padded): (usize, usize),
    (kernel, dilation): (usize, usize),
) -> Error {
    let padding = (reach - size).div_ceil(2);
    let most = padded.checked_sub(1).map_or(0, |rest| rest / dilation + 1);
    let text = format!(
        "a window of {reach} does not fit spatial axis {axis} of {size} padded to {padded}"
    );
    Error::shape(text).help(match most {
        0 => format!("use a padding of at least {padding} on this axis"),
        most if kernel > most && dilation > 1 => format!(
            "at this dilation a window of at most {most} fits, or a padding of at least {padding}"
        ),
        most => format!(
            "use a window of at most {most} on this axis, or a padding of at least {padding}"
        ),
    })
}

/// The numbers of windows along the last axes of `x`.
fn counts_of(x: &[usize], kernel: &[usize], window: &Window) -> Result<Vec<usize>> {
    window.require_ndim(kernel.len())?;
    (0..kernel.len()).map(|axis| windows(window, axis, x[axis], kernel[axis])).collect()
}

/// The shape of a convolution's result, from the shapes of its operands.
///
/// # Errors
/// If numbers of axes or channels do not fit, or a window does not fit the padded input.
pub fn conv_shape(x: &Shape, weight: &Shape, window: &Window) -> Result<Shape> {
    if weight.ndim() < 3 || x.ndim() != weight.ndim() {
        return Err(Error::shape(format!(
            "input {x} and weight {weight} do not fit: (N, C_in, \
             spatial..) meets (C_out, C_in / groups, kernel..)"
        ))
        .help("both need the same number of axes, at least 3"));
    }
    let groups = window.groups;
    if groups == 0
        || !x[1].is_multiple_of(groups)
        || !weight[0].is_multiple_of(groups)
        || weight[1] != x[1] / groups
    {
        return Err(wrong_channels(x, weight, groups));
    }
    Shape::new(&[&[x[0], weight[0]], &counts_of(&x[2..], &weight[2..], window)?[..]].concat())
}

#[cold]
fn wrong_channels(x: &Shape, weight: &Shape, groups: usize) -> Error {
    let (inner, out) = (x[1], weight[0]);
    let takes = weight[1].saturating_mul(groups);
    let help = if let Some(help) = channels_last(x, takes) {
        help
    } else if groups > 0 && inner.is_multiple_of(groups) && out.is_multiple_of(groups) {
        format!("a weight of ({out}, {}, kernel..) fits", inner / groups)
    } else {
        format!(
            "the groups must divide the {inner} channels of the input and the {out} of the \
             output; 1 always does"
        )
    };
    Error::shape(format!(
        "input {x} has {inner} channels; weight {weight} with {groups} groups takes {takes}"
    ))
    .help(help)
}

/// The call that makes images (N, H, W, C), as NumPy and TensorFlow have them, fit a weight that
/// takes `takes` channels.
fn channels_last(x: &Shape, takes: usize) -> Option<String> {
    let last = x.ndim() - 1;
    let axes: Vec<usize> = [0, last].into_iter().chain(1..last).collect();
    let permuted = format!("x.permute({axes:?})?");
    (x[last] == takes)
        .then(|| format!("{permuted} moves the last axis, of size {takes}, to the channels"))
}

/// The error of a transposed convolution of `x` by a weight of other channels.
#[cold]
pub(crate) fn transposed_channels_error(x: &Shape, weight: &Shape) -> Error {
    let (inner, takes) = (x[1], weight[0]);
    let fits = format!("a weight of ({inner}, {}, kernel..) fits", weight[1]);
    Error::shape(format!("input {x} has {inner} channels; weight {weight} takes {takes}"))
        .help(channels_last(x, takes).unwrap_or(fits))
}

#[cold]
pub(crate) fn pool_window_error(size: &[usize], x: &Shape) -> Error {
    let ndim = size.len();
    Error::shape(format!(
        "windows of {size:?} over the last {ndim} axes of {x}, which has {}",
        x.ndim()
    ))
    .help(match ndim {
        0 => "name the size of a window on each of the last axes, e.g. &[2, 2]".to_string(),
        _ => format!("pass at most {} sizes, or add an axis in front: x.unsqueeze(0)?", x.ndim()),
    })
}

/// The shape of a pooling's result: windows of `size` over the last axes of `x`.
///
/// # Errors
/// If there are not as many axes, the window has groups, or it does not fit the padded input.
pub fn pool_shape(x: &Shape, size: &[usize], window: &Window) -> Result<Shape> {
    let ndim = size.len();
    if ndim == 0 || x.ndim() < ndim {
        return Err(pool_window_error(size, x));
    }
    if window.groups != 1 {
        return Err(Error::value(format!("expected 1 group for pooling, got {}", window.groups))
            .help("each channel is pooled by itself; Window::new(ndim) has one group"));
    }
    let (lead, spatial) = x.split_at(x.ndim() - ndim);
    // A mean divides by the number of elements of a window.
    if size.iter().try_fold(1usize, |a, &n| a.checked_mul(n)).is_none_or(|n| n > MAX_NUMEL) {
        return Err(Error::shape(format!("windows of {size:?} do not fit {x}"))
            .help("no size needs to be larger than its padded axis"));
    }
    Shape::new(&[lead, &counts_of(spatial, size, window)?[..]].concat())
}
