//! First values of parameters.
//!
//! A layer whose outputs have about the variance of its inputs neither blows up nor fades through
//! depth; the schemes differ in what they assume of the activation. `fan_in` and `fan_out` count a
//! weight's inputs and outputs per element of the other side: for weight (out, in, kernel..) they
//! are `in * kernel` and `out * kernel`.

use teeny_core::context::enter;
use teeny_core::{DType, DeviceRef, Error, Result, Shape, Tensor};

/// How the first values of a parameter are drawn. Draws come from `teeny_core`'s generator:
/// [`teeny_core::manual_seed`] repeats them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Every element this number.
    Constant(f64),
    /// Uniform in `[low, high)`.
    Uniform {
        /// The smallest value.
        low: f64,
        /// The end, not drawn.
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
        /// What the activation scales a variance by, inverted; see [`gain`].
        gain: f64,
    },
    /// Normal with deviation `gain / sqrt(fan_in)`.
    KaimingNormal {
        /// As for the uniform form.
        gain: f64,
    },
    /// Uniform with bound `gain sqrt(6 / (fan_in + fan_out))`. Source: Glorot & Bengio 2010; gain 1
    /// for linear layers.
    XavierUniform {
        /// As above.
        gain: f64,
    },
    /// Normal with deviation `gain sqrt(2 / (fan_in + fan_out))`.
    XavierNormal {
        /// As above.
        gain: f64,
    },
}

impl Init {
    /// Zeros.
    pub const ZEROS: Init = Init::Constant(0.0);
    /// Ones.
    pub const ONES: Init = Init::Constant(1.0);

    /// What PyTorch's `Linear` and `Conv` draw their weights from: uniform within
    /// `1 / sqrt(fan_in)`.
    pub const TORCH: Init = Init::KaimingUniform { gain: 0.577_350_269_189_625_8 }; // 1/√3

    /// What PyTorch's `Linear` and `Conv` draw their biases from: uniform within `1 / sqrt(fan_in)`
    /// of their weight.
    pub fn torch_bias(fan_in: usize) -> Init {
        let bound = if fan_in == 0 { 0.0 } else { 1.0 / (fan_in as f64).sqrt() };
        Init::Uniform { low: -bound, high: bound }
    }

    /// What GPT-2 draws weights and embeddings from: normal with deviation 0.02.
    pub const GPT2: Init = Init::Normal { mean: 0.0, std: 0.02 };

    /// GPT-2's values for the last layer of each of `branches` residual branches, whose variances
    /// add up: normal with deviation `0.02 / sqrt(branches)`. A transformer of n layers has 2 n of
    /// them.
    ///
    /// Source: Radford et al. 2019, section 2.3.
    pub fn scaled_residual(branches: usize) -> Init {
        Init::Normal { mean: 0.0, std: 0.02 / (branches.max(1) as f64).sqrt() }
    }

    /// A tensor of such values.
    ///
    /// # Errors
    /// If a scheme that needs fans is asked for a shape of fewer than two axes, or numbers are out
    /// of range.
    #[track_caller]
    pub fn tensor(self, shape: Shape, dtype: DType, device: &DeviceRef) -> Result<Tensor> {
        let _op = enter("init");
        let within = |bound: f64| Tensor::uniform(-bound, bound, shape, dtype, device);
        let deviating = |std: f64| Tensor::normal(0.0, std, shape, dtype, device);
        match self {
            Init::Constant(value) => Tensor::full(shape, value, dtype, device),
            Init::Uniform { low, high } => Tensor::uniform(low, high, shape, dtype, device),
            Init::Normal { mean, std } => Tensor::normal(mean, std, shape, dtype, device),
            Init::KaimingUniform { gain } => within(gain * (3.0 / fans(&shape)?.0).sqrt()),
            Init::KaimingNormal { gain } => deviating(gain / fans(&shape)?.0.sqrt()),
            Init::XavierUniform { gain } => {
                fans(&shape).and_then(|(i, o)| within(gain * (6.0 / (i + o)).sqrt()))
            }
            Init::XavierNormal { gain } => {
                fans(&shape).and_then(|(i, o)| deviating(gain * (2.0 / (i + o)).sqrt()))
            }
        }
    }
}

/// Fan-in and fan-out of a weight (out, in, kernel..); at least 1, so that an empty weight has
/// finite bounds.
fn fans(shape: &Shape) -> Result<(f64, f64)> {
    let &[out, input, ref kernel @ ..] = &shape[..] else {
        return Err(Error::shape(format!(
            "Kaiming and Xavier values need a weight (out, in, ..), not {shape}"
        ))
        .help("Init::Normal or Init::Uniform fit any shape"));
    };
    let kernel: usize = kernel.iter().product();
    Ok(((input * kernel).max(1) as f64, (out * kernel).max(1) as f64))
}

/// An activation function, as far as first values are concerned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum After {
    /// Nothing, or a sigmoid.
    Linear,
    /// Tanh.
    Tanh,
    /// ReLU and its kind.
    Relu,
    /// Leaky ReLU with this slope.
    LeakyRelu(f64),
    /// Scaled ELU.
    Selu,
}

/// The gain that makes up for what an activation does to a variance. Equivalent:
/// `torch.nn.init.calculate_gain`.
pub fn gain(after: After) -> f64 {
    match after {
        After::Linear => 1.0,
        After::Tanh => 5.0 / 3.0,
        After::Relu => std::f64::consts::SQRT_2,
        After::LeakyRelu(slope) => (2.0 / (1.0 + slope * slope)).sqrt(),
        After::Selu => 0.75,
    }
}
