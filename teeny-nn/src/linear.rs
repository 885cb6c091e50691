//! The fully connected layer.

use crate::init::Init;
use crate::module::Module;
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// `y = x @ weightᵀ + bias`.
///
/// Shapes: x (.., in), weight (out, in), bias (out) → (.., out). Parameters are named `weight` and
/// `bias`, as PyTorch's `nn.Linear` names and lays them out, so its checkpoints load.
#[derive(Clone, Debug)]
pub struct Linear {
    /// (out, in).
    pub weight: Param,
    /// (out), if there is one.
    pub bias: Option<Param>,
}

impl Linear {
    /// A layer at `path` with PyTorch's first values: weight and bias uniform within
    /// `1 / sqrt(inputs)`.
    ///
    /// # Errors
    /// If the names are taken.
    #[track_caller]
    pub fn new(path: &Path, inputs: usize, outputs: usize) -> Result<Linear> {
        let _op = enter("Linear::new");
        Linear::with_init(path, inputs, outputs, Init::TORCH, Some(Init::torch_bias(inputs)))
    }

    /// A layer without bias.
    ///
    /// # Errors
    /// As [`Linear::new`].
    #[track_caller]
    pub fn without_bias(path: &Path, inputs: usize, outputs: usize) -> Result<Linear> {
        let _op = enter("Linear::without_bias");
        Linear::with_init(path, inputs, outputs, Init::TORCH, None)
    }

    /// A layer with first values of your choice; `None` for no bias.
    ///
    /// # Errors
    /// As [`Linear::new`].
    #[track_caller]
    pub fn with_init(
        path: &Path,
        inputs: usize,
        outputs: usize,
        weight: Init,
        bias: Option<Init>,
    ) -> Result<Linear> {
        path.build("Linear::with_init", || {
            let weight = path.param("weight", (outputs, inputs), weight)?; // (out, in)
            let bias = bias.map(|init| path.param("bias", (outputs,), init)).transpose()?; // (out)
            Ok(Linear { weight, bias })
        })
    }
}

impl Module for Linear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("linear");
        let weight = self.weight.value(); // (out, in)
        if x.shape().last() != weight.shape().last() {
            let text = format!(
                "{} is {}, so its input must be (.., {}), not {}",
                self.weight.name(),
                weight.shape(),
                weight.shape()[1],
                x.shape()
            );
            return Err(Error::shape(text).help(
                "x.flatten(1, -1)? makes images vectors; or build the layer for this many inputs",
            ));
        }
        let y = x.matmul(&weight.t()?)?; // (.., out)
        match &self.bias {
            Some(bias) => y.add(bias.value()),
            None => Ok(y),
        }
    }

    fn describe(&self) -> String {
        let weight = self.weight.value();
        format!("Linear({} -> {})", weight.shape()[1], weight.shape()[0])
    }
}
