//! Attention without the matrix of scores: tiles of queries meet tiles of keys in L1, forward and
//! backward, with memory for the rows alone.
//!
//! The naive form stores S = Q Kᵀ, P = softmax(S) and y = P V, of which S and P have a row for each
//! query and a column for each key. The steps from there:
//!
//! 1. A task has one head and 48 queries, and goes over their keys 64 at a time. S and P are one
//!    tile in L1.
//! 2. Softmax is online: the running maximum and sum of each row rescale the earlier sums.
//! 3. The backward pass recomputes P from S and the logsumexp of each row, which forward keeps.
//!
//! ```text
//! forward    S = Q Kᵀ → running max and sum → acc = acc α + P V        y = acc / sum
//! backward   S = Q Kᵀ, P = exp(S - lse), dP = G Vᵀ, dS = P (dP - Σ g y)
//!            dV += Pᵀ G    dK += dSᵀ Q    dQ += dS K
//! ```
//! Tiles that no query sees are left out. Up to four queries go without tiles ([`decode`]). Source:
//! Dao 2023, arXiv:2307.08691.

mod backward;
mod decode;
mod finish;
mod forward;
mod hidden;
mod operands;
mod softmax;
mod tile;

use crate::Cpu;
use crate::device::FloatMatmul;
use teeny_core::storage::StorageRef;
use teeny_core::{AttentionInputs, DType, Result, Tensor};

/// Queries per tile: a multiple of the six rows of a register tile.
const QUERIES: usize = 48;
/// Heads from which a backward task is a whole head.
const WHOLE_HEADS: usize = 16;

/// Whether there is a kernel for these operands: not if one is empty, or scores are capped.
pub(crate) fn can_fuse(inputs: &AttentionInputs<'_>) -> bool {
    inputs.options.softcap.is_none() && [inputs.q, inputs.k, inputs.v].iter().all(|x| x.numel() > 0)
}

/// y and the logsumexp.
pub(crate) fn forward(cpu: &Cpu, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
    let reads = decode::reads(inputs) && cpu.float_matmul == FloatMatmul::Own;
    match inputs.q.dtype() {
        DType::F64 if reads => decode::run::<f64>(cpu, inputs, DType::F64),
        _ if reads => decode::run::<f32>(cpu, inputs, DType::F32),
        DType::F64 => forward::run::<f64>(cpu, inputs, DType::F64),
        _ => forward::run::<f32>(cpu, inputs, DType::F32),
    }
}

/// The gradients that are needed.
pub(crate) fn backward(
    cpu: &Cpu,
    inputs: &AttentionInputs<'_>,
    y: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    needs: [bool; 3],
) -> Result<[Option<StorageRef>; 3]> {
    match inputs.q.dtype() {
        DType::F64 => backward::run::<f64>(cpu, inputs, [y, lse, g], needs, DType::F64),
        _ => backward::run::<f32>(cpu, inputs, [y, lse, g], needs, DType::F32),
    }
}
