//! Convolution over images, and pooling.

use crate::init::Init;
use crate::module::Module;
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, Window};

/// Two-dimensional convolution (cross-correlation) with a bias per output channel.
///
/// Shapes: x (N, C_in, H, W), weight (C_out, C_in / groups, kh, kw), bias (C_out) → (N, C_out, H', W') with
/// `H' = (H + 2 padding - dilation (kh - 1) - 1) / stride + 1`. Equivalent: `torch.nn.Conv2d`, whose checkpoints load.
#[derive(Clone, Debug)]
pub struct Conv2d {
    /// (C_out, C_in / groups, kh, kw).
    pub weight: Param,
    /// (C_out), if there is one.
    pub bias: Option<Param>,
    window: Window,
}

impl Conv2d {
    /// A layer at `path` with square `kernel`, stride 1 and no padding, and PyTorch's first values.
    ///
    /// # Errors
    /// If the names are taken.
    pub fn new(path: &Path, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv2d> {
        Conv2d::with_window(path, inputs, outputs, [kernel, kernel], Window::new(2), true)
    }

    /// A layer with any kernel size, stride, padding, dilation and groups, with or without bias.
    ///
    /// # Errors
    /// If `groups` does not divide both numbers of channels, or the names are taken.
    pub fn with_window(path: &Path, inputs: usize, outputs: usize, kernel: [usize; 2], window: Window, bias: bool) -> Result<Conv2d> {
        let groups = window.groups;
        if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
            return Err(Error::value(format!("{groups} groups do not divide {inputs} input and {outputs} output channels")).named("conv2d"));
        }
        let per_group = inputs / groups;
        let weight = path.param("weight", (outputs, per_group, kernel[0], kernel[1]), Init::TORCH)?;
        let fan_in = per_group * kernel[0] * kernel[1];
        let bias = if bias { Some(path.param("bias", (outputs,), Init::torch_bias(fan_in))?) } else { None };
        Ok(Conv2d { weight, bias, window })
    }
}

impl Module for Conv2d {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("conv2d");
        let y = x.conv(&self.weight.value(), &self.window)?; // (N, C_out, H', W')
        match &self.bias {
            Some(bias) => y.add(&bias.value().reshape([-1, 1, 1])?),
            None => Ok(y),
        }
    }

    fn describe(&self) -> String {
        let weight = self.weight.value();
        let &[outputs, inputs, kh, kw] = &weight.shape()[..] else { return "Conv2d".to_string() };
        format!("Conv2d({} -> {outputs}, {kh}x{kw})", inputs * self.window.groups)
    }
}

/// The largest element of every window. Shapes: (N, C, H, W) → (N, C, H', W'). Equivalent: `torch.nn.MaxPool2d`.
#[derive(Clone, Debug)]
pub struct MaxPool2d {
    size: [usize; 2],
    window: Window,
}

impl MaxPool2d {
    /// Square windows of `size` side by side.
    pub fn new(size: usize) -> MaxPool2d {
        MaxPool2d { size: [size, size], window: Window::new(2).stride(size) }
    }
}

impl Module for MaxPool2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.max_pool(&self.size, &self.window)
    }
}

/// The mean of every window. Shapes: (N, C, H, W) → (N, C, H', W'). Equivalent: `torch.nn.AvgPool2d`.
#[derive(Clone, Debug)]
pub struct AvgPool2d {
    size: [usize; 2],
    window: Window,
}

impl AvgPool2d {
    /// Square windows of `size` side by side.
    pub fn new(size: usize) -> AvgPool2d {
        AvgPool2d { size: [size, size], window: Window::new(2).stride(size) }
    }
}

impl Module for AvgPool2d {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.avg_pool(&self.size, &self.window)
    }
}
