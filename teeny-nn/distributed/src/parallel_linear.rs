//! The pair of linear layers of Megatron-LM: between them no message is sent.
//!
//! ```text
//! x (.., in) ─ copy ─ x @ W0ᵀ + b0 ─ activation ─ h @ V0ᵀ ─┐
//!            (rank 0) (.., hidden / ranks)                 sum over ranks + c ─ y (.., out)
//! x (.., in) ─ copy ─ x @ W1ᵀ + b1 ─ activation ─ h @ V1ᵀ ─┘
//!            (rank 1)   column-parallel             row-parallel
//! ```
//!
//! One all_reduce in the forward pass (sum), one in the backward pass (copy).
//!
//! Source: Shoeybi et al. 2019, arXiv:1909.08053, section 3.

use super::tensor_parallel::{Shard, TensorParallel};
use teeny_core::context::enter;
use teeny_core::{Result, Tensor};
use teeny_nn::{Init, Linear, LinearOptions, Module, Path};

/// A [`Linear`] layer whose outputs are split over the ranks: each has some rows of the weight.
///
/// Shapes: x (.., in), the same on all ranks → (.., out / ranks). Parameters have the names of
/// [`Linear`]: `weight` (out / ranks, in) and `bias` (out / ranks). The initial weights of all
/// ranks together equal one [`Linear`] with the same random key.
///
/// Source: Shoeybi et al. 2019, arXiv:1909.08053. Equivalent:
/// `torch.distributed.tensor.parallel.ColwiseParallel`.
#[doc(alias = "ColwiseParallel")]
#[derive(Clone, Debug)]
pub struct ColumnParallelLinear {
    /// The rows of this rank.
    pub linear: Linear,
    parallel: TensorParallel,
}

impl ColumnParallelLinear {
    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If `outputs` is not a multiple of the number of ranks, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        parallel: &TensorParallel,
        inputs: usize,
        outputs: usize,
        options: LinearOptions,
    ) -> Result<ColumnParallelLinear> {
        ColumnParallelLinear::with_parts(path, parallel, inputs, &[outputs], options)
    }

    /// A layer whose outputs are several `parts`, such as queries, keys and values: every rank has
    /// an equal share of each part.
    ///
    /// # Errors
    /// If a part is not a multiple of the number of ranks, or the names are taken.
    #[track_caller]
    pub fn with_parts(
        path: &Path,
        parallel: &TensorParallel,
        inputs: usize,
        parts: &[usize],
        options: LinearOptions,
    ) -> Result<ColumnParallelLinear> {
        path.build("ColumnParallelLinear::with_options", || {
            let outputs = parts.iter().fold(0, |sum: usize, &part| sum.saturating_add(part));
            let shard = Shard { axis: 0, parts: parts.to_vec() };
            let param = |name: &str, shape: &[usize], init| {
                parallel.param(path, name, shape, shard.clone(), init)
            };
            let weight = param("weight", &[outputs, inputs], options.weight_init)?;
            let bias_init = options.bias_init.unwrap_or_else(|| Init::torch_bias(inputs));
            let bias = options.bias.then(|| param("bias", &[outputs], bias_init)).transpose()?;
            Ok(ColumnParallelLinear { linear: Linear { weight, bias }, parallel: parallel.clone() })
        })
    }

    /// The ranks of the layer.
    pub fn parallel(&self) -> &TensorParallel {
        &self.parallel
    }
}

impl Module for ColumnParallelLinear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("column_parallel_linear");
        self.linear.forward(&self.parallel.copy(x)?) // (.., out / ranks)
    }

    fn describe(&self) -> String {
        format!("ColumnParallelLinear({}, {} ranks)", sizes(&self.linear), self.parallel.size())
    }
}

/// A [`Linear`] layer whose inputs are split over the ranks: each has some columns of the weight.
///
/// Shapes: x (.., in / ranks), the part of each rank → (.., out), the same on all ranks. Parameters
/// have the names of [`Linear`]: `weight` (out, in / ranks), and `bias` (out), which is replicated
/// and added once. The initial weights of all ranks together equal one [`Linear`] with the same
/// random key. Products in 16 bits are rounded before their sum, as on every rank alone.
///
/// Source: Shoeybi et al. 2019, arXiv:1909.08053. Equivalent:
/// `torch.distributed.tensor.parallel.RowwiseParallel`.
#[doc(alias = "RowwiseParallel")]
#[derive(Clone, Debug)]
pub struct RowParallelLinear {
    /// The columns of this rank, and the whole bias.
    pub linear: Linear,
    parallel: TensorParallel,
}

impl RowParallelLinear {
    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If `inputs` is not a multiple of the number of ranks, or the names are taken.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        parallel: &TensorParallel,
        inputs: usize,
        outputs: usize,
        options: LinearOptions,
    ) -> Result<RowParallelLinear> {
        path.build("RowParallelLinear::with_options", || {
            let (shape, shard) = ([outputs, inputs], Shard { axis: 1, parts: vec![inputs] });
            let weight = parallel.param(path, "weight", &shape, shard, options.weight_init)?;
            let init = options.bias_init.unwrap_or_else(|| Init::torch_bias(inputs));
            let bias = options.bias.then(|| path.param("bias", outputs, init)).transpose()?;
            Ok(RowParallelLinear { linear: Linear { weight, bias }, parallel: parallel.clone() })
        })
    }

    /// The ranks of the layer.
    pub fn parallel(&self) -> &TensorParallel {
        &self.parallel
    }
}

impl Module for RowParallelLinear {
    #[track_caller]
    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let _op = enter("row_parallel_linear");
        row_parallel(&self.linear, &self.parallel, x)
    }

    fn describe(&self) -> String {
        format!("RowParallelLinear({}, {} ranks)", sizes(&self.linear), self.parallel.size())
    }
}

/// [`RowParallelLinear::forward`] of the layer with the columns and the bias of `linear`.
pub(crate) fn row_parallel(
    linear: &Linear,
    parallel: &TensorParallel,
    x: &Tensor,
) -> Result<Tensor> {
    let product = Linear { weight: linear.weight.clone(), bias: None };
    let y = parallel.sum(&product.forward(x)?)?; // (.., out)
    match &linear.bias {
        Some(bias) => y.add(bias.value()),
        None => Ok(y),
    }
}

/// Inputs and outputs of one rank.
fn sizes(linear: &Linear) -> String {
    let shape = linear.weight.shape();
    format!("{} -> {}", shape[1], shape[0])
}
