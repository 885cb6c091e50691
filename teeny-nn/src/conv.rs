//! Convolution and transposed convolution over one, two and three spatial axes.

use crate::init::Init;
use crate::module::{Module, require_type};
use crate::options::{PerAxis, options};
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, Window};
use teeny_formats::names::with_help;

/// Help for an input that does not fit.
const HELP: &str = "x is (B, C_in, ..) with the layer's channels, and no smaller than the kernel";

macro_rules! conv_options {
    (
        $(#[$doc:meta])*
        $name:ident of $layer:ident {
            stride: $stride:literal,
            padding: $padding:literal
            $(, $more:ident: $more_doc:literal, $with:ident)?
        }
    ) => {
        options! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub struct $name [const N: usize] [N] {
                #[doc = $stride]
                stride: [usize; N] = [1; N], with_stride(impl PerAxis<N>) => |n| n.per_axis();
                #[doc = $padding]
                padding: [usize; N] = [0; N], with_padding(impl PerAxis<N>) => |n| n.per_axis();
                $(
                    #[doc = $more_doc]
                    $more: [usize; N] = [0; N], $with(impl PerAxis<N>) => |n| n.per_axis();
                )?
                /// Elements between neighbours inside a window; 1.
                dilation: [usize; N] = [1; N], with_dilation(impl PerAxis<N>) => |n| n.per_axis();
                /// Groups of channels that are convolved separately; 1.
                groups: usize = 1, with_groups;
                /// Whether there is a bias; true.
                bias: bool = true, with_bias;
            }
        }

        impl<const N: usize> $name<N> {
            fn window(&self) -> Window {
                Window {
                    stride: self.stride.to_vec(),
                    padding: self.padding.to_vec(),
                    dilation: self.dilation.to_vec(),
                    groups: self.groups,
                }
            }
        }

        impl<const N: usize> $layer<N> {
            /// A layer at `path` with PyTorch's defaults and initial weights: stride 1, no padding,
            /// a bias.
            ///
            /// # Errors
            /// If the kernel size is 0 or the names are taken.
            #[track_caller]
            pub fn new(
                path: &Path,
                inputs: usize,
                outputs: usize,
                kernel: impl PerAxis<N>,
            ) -> Result<$layer<N>> {
                let _op = enter(concat!(stringify!($layer), "::new"));
                $layer::with_options(path, inputs, outputs, kernel, $name::default())
            }
        }
    };
}

conv_options! {
    /// Options of a [`Conv`], with PyTorch's defaults.
    ConvOptions of Conv {
        stride: "Elements between neighbouring windows; 1.",
        padding: "Zeros added before and after each axis; 0."
    }
}

conv_options! {
    /// Options of a [`ConvTranspose`], with PyTorch's defaults.
    ConvTransposeOptions of ConvTranspose {
        stride: "Elements between the windows of neighbouring input elements; 1.",
        padding: "Elements cut off at both ends of each axis of the output; 0.",
        output_padding: "Elements added at the end of each axis, less than the stride; 0.",
        with_output_padding
    }
}

/// Options of a [`Conv1d`].
pub type Conv1dOptions = ConvOptions<1>;
/// Options of a [`Conv2d`].
pub type Conv2dOptions = ConvOptions<2>;
/// Options of a [`Conv3d`].
pub type Conv3dOptions = ConvOptions<3>;

/// Options of a [`ConvTranspose1d`].
pub type ConvTranspose1dOptions = ConvTransposeOptions<1>;
/// Options of a [`ConvTranspose2d`].
pub type ConvTranspose2dOptions = ConvTransposeOptions<2>;
/// Options of a [`ConvTranspose3d`].
pub type ConvTranspose3dOptions = ConvTransposeOptions<3>;

/// Convolution (cross-correlation) over N spatial axes with a bias per output channel.
///
/// Shapes: x (B, C_in, in..), weight (C_out, C_in / groups, kernel..), bias (C_out) → (B, C_out,
/// out..) with `out = (in + 2 padding - dilation (kernel - 1) - 1) / stride + 1`. Checkpoints of
/// PyTorch's layers load.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::conv::{Conv2d, Conv2dOptions};
/// use teeny_nn::{Module, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(device("cpu")?);
/// let options = Conv2dOptions::new().with_stride(2).with_padding(1);
/// let conv = Conv2d::with_options(&store.at("conv"), 3, 16, 3, options)?;
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
    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If `groups` does not divide both numbers of channels, the kernel size, stride or dilation is
    /// 0, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        inputs: usize,
        outputs: usize,
        kernel: impl PerAxis<N>,
        options: ConvOptions<N>,
    ) -> Result<Conv<N>> {
        path.build("Conv::with_options", || {
            let (kernel, window) = (kernel.per_axis(), options.window());
            check((inputs, outputs), &kernel, &window)?;
            let (weight, bias) =
                params(path, (outputs, inputs), outputs, &kernel, &window, options.bias)?;
            Ok(Conv { weight, bias, window })
        })
    }
}

impl<const N: usize> Module for Conv<N> {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter(["conv1d", "conv2d", "conv3d"].get(N - 1).copied().unwrap_or("conv"));
        require_type(x, &self.weight)?;
        // (B, C_out, out..)
        let y = x.conv(&self.weight.value(), &self.window).map_err(|e| with_help(e, HELP))?;
        add_bias(y, self.bias.as_ref())
    }

    fn describe(&self) -> String {
        let weight = self.weight.value();
        format!(
            "Conv{N}d({} -> {}, {})",
            weight.shape()[1] * self.window.groups,
            weight.shape()[0],
            joined_by_x(&weight.shape()[2..])
        )
    }
}

/// Transposed convolution over N spatial axes: every input element adds the kernel times its value
/// to the output, at windows `stride` apart. Its output has the size that the input of a [`Conv`]
/// with the same options has; it is not the inverse of its values.
///
/// Shapes: x (B, C_in, in..), weight (C_in, C_out / groups, kernel..), bias (C_out) → (B, C_out,
/// out..) with `out = (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1`.
/// Inputs of several sizes give a convolution with a stride the same output size; `output_padding`
/// selects one of them. Checkpoints of PyTorch's layers load.
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
    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If `groups` does not divide both numbers of channels, the kernel size, stride or dilation is
    /// 0, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        inputs: usize,
        outputs: usize,
        kernel: impl PerAxis<N>,
        options: ConvTransposeOptions<N>,
    ) -> Result<ConvTranspose<N>> {
        path.build("ConvTranspose::with_options", || {
            let (kernel, window) = (kernel.per_axis(), options.window());
            check((inputs, outputs), &kernel, &window)?;
            let (weight, bias) =
                params(path, (inputs, outputs), outputs, &kernel, &window, options.bias)?;
            Ok(ConvTranspose { weight, bias, window, output_padding: options.output_padding })
        })
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
        require_type(x, &self.weight)?;
        let weight = self.weight.value(); // (C_in, C_out / groups, kernel..)
        let size = self
            .window
            .transposed_size(x.shape(), weight.shape(), &self.output_padding[..])
            .map_err(|e| with_help(e, HELP))?;
        // (B, C_out, out..)
        let y = x.conv_transpose(&weight, &self.window, &size).map_err(|e| with_help(e, HELP))?;
        add_bias(y, self.bias.as_ref())
    }

    fn describe(&self) -> String {
        let weight = self.weight.value();
        format!(
            "ConvTranspose{N}d({} -> {}, {})",
            weight.shape()[0],
            weight.shape()[1] * self.window.groups,
            joined_by_x(&weight.shape()[2..])
        )
    }
}

/// Returns an error unless the groups divide the channels (inputs, outputs) and no size is 0.
fn check((inputs, outputs): (usize, usize), kernel: &[usize], window: &Window) -> Result<()> {
    let groups = window.groups;
    if groups == 0 || !inputs.is_multiple_of(groups) || !outputs.is_multiple_of(groups) {
        return Err(Error::value(format!(
            "{groups} groups do not divide {inputs} input and {outputs} output channels"
        ))
        .help("groups must be at least 1 and divide both numbers of channels"));
    }
    let sizes = [("kernel", kernel), ("stride", &window.stride), ("dilation", &window.dilation)];
    match sizes.iter().find(|(_, sizes)| sizes.contains(&0)) {
        Some((name, sizes)) => Err(Error::value(format!("the {name} is {sizes:?}"))
            .help("kernel, stride and dilation must be at least 1")),
        None => Ok(()),
    }
}

/// A weight (first, second / groups, kernel..) and a bias (outputs) with PyTorch's initial weights,
/// whose fan-in is `second / groups * kernel` for both kinds of layer.
fn params(
    path: &Path,
    (first, second): (usize, usize),
    outputs: usize,
    kernel: &[usize],
    window: &Window,
    bias: bool,
) -> Result<(Param, Option<Param>)> {
    let sizes: Vec<usize> = [first, second / window.groups].iter().chain(kernel).copied().collect();
    // (first, second / groups, kernel..)
    let weight = path.param("weight", &sizes[..], Init::TORCH)?;
    let fan_in = sizes[1..].iter().product(); // no overflow: the weight was allocated
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
fn joined_by_x(sizes: &[usize]) -> String {
    sizes.iter().map(usize::to_string).collect::<Vec<_>>().join("x")
}
