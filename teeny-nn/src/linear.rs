//! The fully connected layer.

use crate::init::Init;
use crate::module::{Module, require_type};
use crate::options::options;
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

options! {
    /// Options of a [`Linear`] layer, with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct LinearOptions {
        /// Whether there is a bias; true.
        bias: bool = true, with_bias;
        /// The initial weight; uniform within `1 / sqrt(inputs)`.
        weight_init: Init = Init::TORCH, with_weight_init;
        /// The initial bias; None is uniform within `1 / sqrt(inputs)`.
        bias_init: Option<Init> = None, with_bias_init(Init);
    }
}

/// `y = x @ weightᵀ + bias`.
///
/// Shapes: x (.., in), weight (out, in), bias (out) → (.., out). Parameters are named `weight` and
/// `bias` and laid out as in PyTorch's `nn.Linear`, whose checkpoints load.
#[derive(Clone, Debug)]
pub struct Linear {
    /// (out, in).
    pub weight: Param,
    /// (out), if there is one.
    pub bias: Option<Param>,
}

impl Linear {
    /// A layer at `path` with PyTorch's initial weights: weight and bias uniform within
    /// `1 / sqrt(inputs)`.
    ///
    /// # Errors
    /// If the names are taken.
    #[track_caller]
    pub fn new(path: &Path, inputs: usize, outputs: usize) -> Result<Linear> {
        let _op = enter("Linear::new");
        Linear::with_options(path, inputs, outputs, LinearOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// As [`Linear::new`].
    #[track_caller]
    pub fn with_options(
        path: &Path,
        inputs: usize,
        outputs: usize,
        options: LinearOptions,
    ) -> Result<Linear> {
        path.build("Linear::with_options", || {
            // (out, in)
            let weight = path.matrix("weight", [outputs, inputs], options.weight_init)?;
            let bias = if options.bias {
                let init = options.bias_init.unwrap_or_else(|| Init::torch_bias(inputs));
                Some(path.param("bias", (outputs,), init)?) // (out)
            } else {
                None
            };
            Ok(Linear { weight, bias })
        })
    }
}

impl Linear {
    /// `x @ weightᵀ`, without the bias.
    pub(crate) fn product(&self, x: &Tensor) -> Result<Tensor> {
        let shape = self.weight.shape(); // (out, in)
        if x.shape().last() != shape.last() {
            let text = format!(
                "{} is {shape}, so its input must be (.., {}), not {}",
                self.weight.name(),
                shape[1],
                x.shape()
            );
            return Err(Error::shape(text).help(match x.ndim() {
                0..=2 => "build the layer for this many inputs",
                _ => "x.flatten(1, -1)? makes images vectors; or build it for this many inputs",
            }));
        }
        require_type(x, &self.weight)?;
        self.weight.linear(x) // (.., out)
    }
}

impl Module for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("linear");
        let y = self.product(x)?; // (.., out)
        match &self.bias {
            Some(bias) => y.add(bias.value()),
            None => Ok(y),
        }
    }

    fn describe(&self) -> String {
        let shape = self.weight.shape();
        format!("Linear({} -> {})", shape[1], shape[0])
    }
}
