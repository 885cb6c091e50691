//! Initial weights.
//!
//! The schemes keep the variances of a layer's inputs and outputs close, so that values neither
//! explode nor vanish in deep networks; they assume different activations. For a weight (out, in,
//! kernel..) `fan_in` is `in * kernel` and `fan_out` is `out * kernel`.

use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Shape, Tensor, ToDevice};

/// The distribution of the initial values of a parameter. They are drawn from the generator of
/// `teeny_core`: [`teeny_core::manual_seed`] makes them reproducible.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Init {
    /// Every element is this number.
    Constant(f64),
    /// Uniform in `[low, high)`.
    Uniform {
        /// The smallest value.
        low: f64,
        /// The end of the range, exclusive.
        high: f64,
    },
    /// Normal.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Uniform with bound `gain sqrt(3 / fan_in)`. Source: He et al. 2015, arXiv:1502.01852; gain
    /// √2 for ReLU.
    KaimingUniform {
        /// The gain of the activation; see [`calculate_gain`].
        gain: f64,
    },
    /// Normal with standard deviation `gain / sqrt(fan_in)`.
    KaimingNormal {
        /// The gain of the activation; see [`calculate_gain`].
        gain: f64,
    },
    /// Uniform with bound `gain sqrt(6 / (fan_in + fan_out))`. Source: Glorot & Bengio 2010; gain 1
    /// for linear layers.
    XavierUniform {
        /// The gain of the activation; see [`calculate_gain`].
        gain: f64,
    },
    /// Normal with standard deviation `gain sqrt(2 / (fan_in + fan_out))`.
    XavierNormal {
        /// The gain of the activation; see [`calculate_gain`].
        gain: f64,
    },
}

impl Init {
    /// Zeros.
    pub const ZEROS: Init = Init::Constant(0.0);
    /// Ones.
    pub const ONES: Init = Init::Constant(1.0);

    /// The weights of PyTorch's `Linear` and `Conv`: uniform within `1 / sqrt(fan_in)`.
    pub const TORCH: Init = Init::KaimingUniform { gain: 0.577_350_269_189_625_8 }; // 1/√3

    /// The biases of PyTorch's `Linear` and `Conv`: uniform within `1 / sqrt(fan_in)`, with the
    /// fan-in of the weight.
    pub fn torch_bias(fan_in: usize) -> Init {
        let bound = if fan_in == 0 { 0.0 } else { 1.0 / (fan_in as f64).sqrt() };
        Init::Uniform { low: -bound, high: bound }
    }

    /// The weights and embeddings of GPT-2: normal with standard deviation 0.02.
    pub const GPT2: Init = Init::Normal { mean: 0.0, std: 0.02 };

    /// The last layer of each of `branches` residual branches in GPT-2, whose variances add up:
    /// normal with standard deviation `0.02 / sqrt(branches)`. A transformer with n layers has 2 n
    /// residual branches.
    ///
    /// Source: Radford et al. 2019, section 2.3.
    pub fn scaled_residual(branches: usize) -> Init {
        Init::Normal { mean: 0.0, std: 0.02 / (branches.max(1) as f64).sqrt() }
    }

    /// A tensor of values drawn from this distribution.
    ///
    /// # Errors
    /// If Kaiming or Xavier is used for a shape with fewer than two axes, or a number is out of
    /// range.
    #[track_caller]
    pub fn tensor(self, shape: Shape, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("init");
        let device = &device.to_device();
        let uniform = |bound: f64| Tensor::uniform(-bound, bound, shape, dtype, device);
        let normal = |std: f64| Tensor::normal(0.0, std, shape, dtype, device);
        match self {
            Init::Constant(value) => Tensor::full(shape, value, dtype, device),
            Init::Uniform { low, high } => Tensor::uniform(low, high, shape, dtype, device),
            Init::Normal { mean, std } => Tensor::normal(mean, std, shape, dtype, device),
            Init::KaimingUniform { gain } => uniform(gain * (3.0 / fans(&shape)?.0).sqrt()),
            Init::KaimingNormal { gain } => normal(gain / fans(&shape)?.0.sqrt()),
            Init::XavierUniform { gain } => {
                fans(&shape).and_then(|(i, o)| uniform(gain * (6.0 / (i + o)).sqrt()))
            }
            Init::XavierNormal { gain } => {
                fans(&shape).and_then(|(i, o)| normal(gain * (2.0 / (i + o)).sqrt()))
            }
        }
    }
}

/// Fan-in and fan-out of a weight (out, in, kernel..), at least 1, which keeps the bounds of an
/// empty weight finite.
fn fans(shape: &Shape) -> Result<(f64, f64)> {
    let &[out, input, ref kernel @ ..] = &shape[..] else {
        return Err(Error::shape(format!(
            "Kaiming and Xavier initialisation need a weight (out, in, ..), not {shape}"
        ))
        .help("Init::Normal or Init::Uniform fit any shape"));
    };
    let kernel: usize = kernel.iter().product();
    Ok(((input * kernel).max(1) as f64, (out * kernel).max(1) as f64))
}

/// The nonlinearity after a layer, for [`calculate_gain`].
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Nonlinearity {
    /// None, or a sigmoid.
    Linear,
    /// Tanh.
    Tanh,
    /// ReLU.
    Relu,
    /// Leaky ReLU with this negative slope.
    LeakyRelu(f64),
    /// Scaled ELU.
    Selu,
}

/// The gain that compensates the change of the variance by a nonlinearity. Equivalent:
/// `torch.nn.init.calculate_gain`.
pub fn calculate_gain(nonlinearity: Nonlinearity) -> f64 {
    match nonlinearity {
        Nonlinearity::Linear => 1.0,
        Nonlinearity::Tanh => 5.0 / 3.0,
        Nonlinearity::Relu => std::f64::consts::SQRT_2,
        Nonlinearity::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        Nonlinearity::Selu => 0.75,
    }
}
