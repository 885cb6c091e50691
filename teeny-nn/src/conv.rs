//! Convolution layers over one, two and three spatial axes, and the transposed ones, which go back
//! from small to large.

use crate::init::Init;
use crate::module::{Module, helped};
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, Window};

/// What to do about an input that does not fit.
const HELP: &str = "x is (B, C_in, ..) with the layer's channels, and no smaller than the kernel";

/// Convolution (cross-correlation) over N spatial axes with a bias per output channel.
///
/// Shapes: x (B, C_in, in..), weight (C_out, C_in / groups, kernel..), bias (C_out) → (B, C_out,
/// out..) with `out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1`. Checkpoints of
/// PyTorch's layers load.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor, Window};
/// use teeny_nn::{Conv2d, Module, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let window = Window::new(2).stride(2).padding(1);
/// let conv = Conv2d::with_window(&store.at("conv"), 3, 16, [3, 3], window, true)?;
/// let x = Tensor::zeros((1, 3, 32, 32), DType::F32, store.device())?; // (1, 3, 32, 32)
/// assert_eq!(conv.forward(&x)?.shape()[..], [1, 16, 16, 16]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Conv<const N: usize> {
    /// (C_out, C_in / groups, kernel..).
    pub weight: Param,
    /// (C_out), if there is one.
    pub bias: Option<Param>,
    window: Window,
}

/// Over sequences (B, C, L). Equivalent: `torch.nn.Conv1d`.
pub type Conv1d = Conv<1>;
/// Over images (B, C, H, W). Equivalent: `torch.nn.Conv2d`.
pub type Conv2d = Conv<2>;
/// Over volumes (B, C, D, H, W). Equivalent: `torch.nn.Conv3d`.
pub type Conv3d = Conv<3>;

impl<const N: usize> Conv<N> {
    /// A layer at `path` with a `kernel` of the same size along all axes, stride 1 and no padding,
    /// and PyTorch's first values.
    ///
    /// # Errors
    /// If the names are taken.
    #[track_caller]
    pub fn new(path: &Path, inputs: usize, outputs: usize, kernel: usize) -> Result<Conv<N>> {
        let _op = enter("Conv::new");
        Conv::with_window(path, inputs, outputs, [kernel; N], Window::new(N), true)
    }

    /// A layer with any kernel size, stride, padding, dilation and groups, with or without bias.
    ///
    /// # Errors
    /// If `groups` does not divide both numbers of channels, or the names are taken.
    #[track_caller]
    pub fn with_window(
        path: &Path,
        inputs: usize,
        outputs: usize,
        kernel: [usize; N],
        window: Window,
        bias: bool,
    ) -> Result<Conv<N>> {
        path.build("Conv::with_window", || {
            let (weight, bias) =
                parameters(path, (inputs, outputs), (outputs, inputs), &kernel, &window, bias)?;
            Ok(Conv { weight, bias, window })
        })
    }
}

impl<const N: usize> Module for Conv<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter(["conv1d", "conv2d", "conv3d"].get(N - 1).copied().unwrap_or("conv"));
        // (B, C_out, out..)
        let y = x.conv(&self.weight.value(), &self.window).map_err(|e| helped(e, HELP))?;
        add_bias(y, self.bias.as_ref())
    }

    fn describe(&self) -> String {
        let weight = self.weight.value();
        format!(
            "Conv{N}d({} -> {}, {})",
            weight.shape()[1] * self.window.groups,
            weight.shape()[0],
            by(&weight.shape()[2..])
        )
    }
}

/// Transposed convolution over N spatial axes: every input element adds the kernel, scaled by it,
/// to the output, `stride` apart. It undoes the sizes of a [`Conv`] with the same window, not its
/// values.
///
/// Shapes: x (B, C_in, in..), weight (C_in, C_out / groups, kernel..), bias (C_out) → (B, C_out,
/// out..) with `out = (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1`.
/// Several sizes give a convolution with a stride the same output; `output_padding` says which of
/// them is meant. Checkpoints of PyTorch's layers load.
#[derive(Clone, Debug)]
pub struct ConvTranspose<const N: usize> {
    /// (C_in, C_out / groups, kernel..).
    pub weight: Param,
    /// (C_out), if there is one.
    pub bias: Option<Param>,
    window: Window,
    output_padding: [usize; N],
}

/// Over sequences (B, C, L). Equivalent: `torch.nn.ConvTranspose1d`.
pub type ConvTranspose1d = ConvTranspose<1>;
/// Over images (B, C, H, W). Equivalent: `torch.nn.ConvTranspose2d`.
pub type ConvTranspose2d = ConvTranspose<2>;
/// Over volumes (B, C, D, H, W). Equivalent: `torch.nn.ConvTranspose3d`.
pub type ConvTranspose3d = ConvTranspose<3>;

impl<const N: usize> ConvTranspose<N> {
    /// A layer at `path` with a `kernel` of the same size along all axes, side by side (stride =
    /// kernel), and PyTorch's first values: every size becomes `kernel` times itself.
    ///
    /// # Errors
    /// If the names are taken.
    #[track_caller]
    pub fn new(
        path: &Path,
        inputs: usize,
        outputs: usize,
        kernel: usize,
    ) -> Result<ConvTranspose<N>> {
        let _op = enter("ConvTranspose::new");
        ConvTranspose::with_window(
            path,
            inputs,
            outputs,
            [kernel; N],
            Window::new(N).stride(kernel),
            true,
        )
    }

    /// A layer with any kernel size, stride, padding, dilation and groups, with or without bias.
    ///
    /// # Errors
    /// If `groups` does not divide both numbers of channels, or the names are taken.
    #[track_caller]
    pub fn with_window(
        path: &Path,
        inputs: usize,
        outputs: usize,
        kernel: [usize; N],
        window: Window,
        bias: bool,
    ) -> Result<ConvTranspose<N>> {
        path.build("ConvTranspose::with_window", || {
            let (weight, bias) =
                parameters(path, (inputs, outputs), (inputs, outputs), &kernel, &window, bias)?;
            Ok(ConvTranspose { weight, bias, window, output_padding: [0; N] })
        })
    }

    /// The same layer with outputs larger by `output_padding` at the end of every axis, less than
    /// the stride.
    pub fn output_padding(self, output_padding: [usize; N]) -> ConvTranspose<N> {
        ConvTranspose { output_padding, ..self }
    }
}

impl<const N: usize> Module for ConvTranspose<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter(
            ["conv_transpose1d", "conv_transpose2d", "conv_transpose3d"]
                .get(N - 1)
                .copied()
                .unwrap_or("conv_transpose"),
        );
        let weight = self.weight.value(); // (C_in, C_out / groups, kernel..)
        let size = self
            .window
            .transposed_size(x.shape(), weight.shape(), &self.output_padding[..])
            .map_err(|e| helped(e, HELP))?;
        // (B, C_out, out..)
        let y = x.conv_transpose(&weight, &self.window, &size).map_err(|e| helped(e, HELP))?;
        add_bias(y, self.bias.as_ref())
    }

    fn describe(&self) -> String {
        let weight = self.weight.value();
        format!(
            "ConvTranspose{N}d({} -> {}, {})",
            weight.shape()[0],
            weight.shape()[1] * self.window.groups,
            by(&weight.shape()[2..])
        )
    }
}

/// A weight (first, second / groups, kernel..) and a bias (outputs) with PyTorch's first values,
/// whose fan-in is `second / groups * kernel` for both kinds.
fn parameters(
    path: &Path,
    (inputs, outputs): (usize, usize),
    (first, second): (usize, usize),
    kernel: &[usize],
    window: &Window,
    bias: bool,
) -> Result<(Param, Option<Param>)> {
    let groups = window.groups;
    if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        return Err(Error::value(format!(
            "{groups} groups do not divide {inputs} input and {outputs} output channels"
        ))
        .help("groups must be at least 1 and divide both numbers of channels"));
    }
    let axes = kernel.len();
    for (what, sizes) in
        [("stride", &window.stride), ("padding", &window.padding), ("dilation", &window.dilation)]
    {
        if sizes.len() != axes {
            return Err(Error::shape(format!(
                "the window's {what} {sizes:?} has {} entries for {axes} spatial axes",
                sizes.len()
            ))
            .help(format!("Window::new({axes}) has an entry for each axis")));
        }
    }
    if let Some(what) =
        [("kernel", kernel), ("stride", &window.stride), ("dilation", &window.dilation)]
            .iter()
            .find(|(_, s)| s.contains(&0))
    {
        return Err(Error::value(format!("the {} is {:?}", what.0, what.1))
            .help("kernel, stride and dilation must be at least 1"));
    }
    let sizes: Vec<usize> = [first, second / groups].iter().chain(kernel).copied().collect();
    // (first, second / groups, kernel..)
    let weight = path.param("weight", &sizes[..], Init::TORCH)?;
    let fan_in = sizes[1..].iter().product(); // fits, as the weight was made
    // (outputs)
    let bias =
        if bias { Some(path.param("bias", (outputs,), Init::torch_bias(fan_in))?) } else { None };
    Ok((weight, bias))
}

fn add_bias(y: Tensor, bias: Option<&Param>) -> Result<Tensor> {
    let Some(bias) = bias else { return Ok(y) };
    let mut shape = vec![1; y.ndim() - 1];
    shape[0] = bias.value().numel();
    y.add(&bias.value().reshape(shape)?)
}

/// `3x3`.
fn by(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
