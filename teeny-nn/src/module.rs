//! The trait [`Module`], and the modules without parameters: chains, activations, flattening.
//!
//! A module has handles of its parameters ([`crate::Param`]); the [`crate::Store`] that made them
//! lists, counts, saves and loads them. So a module need not list its parameters, and a closure is
//! a module too.

use crate::store::Param;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor};

/// A function of tensors that may have parameters.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::{Module, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let double = |x: &Tensor| x.mul(2.0);
/// let x = Tensor::new([1.0f32, 2.0], &device("cpu")?)?; // (2)
/// assert_eq!(double.forward(&x)?.to_vec::<f32>()?, [2.0, 4.0]);
/// # Ok(()) }
/// ```
pub trait Module: Send + Sync {
    /// The output for `x`; each implementor documents its shapes.
    ///
    /// # Errors
    /// If the shape or dtype of `x` does not fit.
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor>;

    /// A short description for error messages: `Linear(784 -> 128)`.
    fn describe(&self) -> String {
        let name = std::any::type_name::<Self>();
        name.rsplit("::").next().unwrap_or(name).to_string()
    }
}

impl<F: Fn(&Tensor) -> Result<Tensor> + Send + Sync> Module for F {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self(x)
    }

    fn describe(&self) -> String {
        "a function".to_string()
    }
}

/// Returns an error if `x` has a higher float type than `param`: it would turn the rest of the
/// network into that type. Lower types are mixed precision.
pub(crate) fn require_type(x: &Tensor, param: &Param) -> Result<()> {
    let (own, other) = (param.value().dtype(), x.dtype());
    if !is_higher(other, own) {
        return Ok(());
    }
    let text = format!(
        "{} is {own}, but its input {other}: the network would go on in {other}",
        param.name()
    );
    Err(Error::dtype(text).help(format!("x.cast(DType::{})? converts", own.name().to_uppercase())))
}

/// Whether `dtype` is a float type to which values of type `own` are promoted.
pub(crate) fn is_higher(dtype: DType, own: DType) -> bool {
    dtype != own && dtype.is_float() && own.is_float() && own.promote(dtype) == dtype
}

/// The operation of a [`Sequential`].
pub(crate) const SEQUENTIAL: &str = "sequential";

/// A chain of modules: the output of each is the input of the next.
///
/// # Example
/// ```
/// use teeny_nn::{Activation, Linear, Sequential, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let model = Sequential::new()
///     .then(Linear::new(&store.at("fc1"), 784, 128)?)
///     .then(Activation::Relu)
///     .then(Linear::new(&store.at("fc2"), 128, 10)?);
/// # let _ = model; Ok(()) }
/// ```
#[derive(Default)]
pub struct Sequential {
    modules: Vec<Box<dyn Module>>,
}

impl Sequential {
    /// An empty chain: the identity.
    pub fn new() -> Sequential {
        Sequential::default()
    }

    /// Appends `module`.
    pub fn then(mut self, module: impl Module + 'static) -> Sequential {
        self.modules.push(Box::new(module));
        self
    }
}

impl Module for Sequential {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter(SEQUENTIAL);
        let mut x = x.clone();
        for (i, module) in self.modules.iter().enumerate() {
            x = module.forward(&x).map_err(|e| {
                e.note(format!(
                    "in module {i} of the chain: {}, given {}",
                    module.describe(),
                    x.shape()
                ))
            })?;
        }
        Ok(x)
    }

    fn describe(&self) -> String {
        format!("Sequential of {}", self.modules.len())
    }
}

/// An activation function as a module. Shapes: any → the same.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// x where positive, the field (negative slope) times x elsewhere.
    LeakyRelu(f64),
    /// x where positive, the field (alpha) times `exp(x) - 1` elsewhere.
    Elu(f64),
    /// `x Φ(x)`, exact.
    Gelu,
    /// GELU by the tanh approximation, as in GPT-2.
    GeluTanh,
    /// `x sigmoid(1.702 x)`, an approximation of GELU, as in CLIP.
    QuickGelu,
    /// `x sigmoid(x)`.
    Silu,
    /// `x tanh(softplus(x))`.
    Mish,
    /// Hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `log(1 + exp(x))`.
    Softplus,
    /// `x relu6(x + 3) / 6`.
    Hardswish,
}

impl Module for Activation {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        match *self {
            Activation::Relu => x.relu(),
            Activation::LeakyRelu(slope) => x.leaky_relu(slope),
            Activation::Elu(alpha) => x.elu(alpha),
            Activation::Gelu => x.gelu(),
            Activation::GeluTanh => x.gelu_tanh(),
            Activation::QuickGelu => x.mul(&x.mul(1.702)?.sigmoid()?),
            Activation::Silu => x.silu(),
            Activation::Mish => x.mish(),
            Activation::Tanh => x.tanh(),
            Activation::Sigmoid => x.sigmoid(),
            Activation::Softplus => x.softplus(),
            Activation::Hardswish => x.hardswish(),
        }
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }
}

/// Merges all axes except the first: (N, a, b, ..) → (N, a b ..). Equivalent: `torch.nn.Flatten`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Flatten;

impl Module for Flatten {
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        x.flatten(1, -1)
    }
}
