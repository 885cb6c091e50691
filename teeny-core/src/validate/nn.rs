//! The requirements of attention and of its gradients.

use super::{float, like, spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{AttentionInputs, TensorSpec};
use crate::tensor::Tensor;

/// [`Op::Attention`](crate::Op::Attention): y and the logsumexp.
///
/// # Errors
/// If the operands are not q (.., T, hs), k (.., S, hs), v (.., S, hv) and a mask (.., T, S) of one
/// float type with equal leading axes, the mask being bool or of that type; or the options
/// contradict each other.
pub fn attention(inputs: &AttentionInputs<'_>) -> Result<(TensorSpec, TensorSpec)> {
    let AttentionInputs { q, k, v, mask, options } = *inputs;
    let n = q.ndim();
    let shape_error = || {
        Error::shape(format!(
            "queries {}, keys {} and values {} do not fit each other",
            q.shape(),
            k.shape(),
            v.shape()
        ))
        .help("(.., T, hs), (.., S, hs) and (.., S, hv) with equal leading axes")
    };
    if n < 2 || k.ndim() != n || v.ndim() != n {
        return Err(shape_error());
    }
    let ([t, hs], [s, hv]) =
        ([q.shape()[n - 2], q.shape()[n - 1]], [v.shape()[n - 2], v.shape()[n - 1]]);
    let lead = &q.shape()[..n - 2];
    if k.shape()[..n - 2] != *lead || v.shape()[..n - 2] != *lead || k.shape()[n - 2..] != [s, hs] {
        return Err(shape_error());
    }
    float(q)?;
    if k.dtype() != q.dtype() || v.dtype() != q.dtype() {
        return Err(Error::dtype(format!(
            "queries, keys and values are {}, {} and {}, not of one type",
            q.dtype(),
            k.dtype(),
            v.dtype()
        ))
        .help("q.attention(&k, &v, mask, &options)? promotes types"));
    }
    if let Some(mask) = mask {
        let dtype = if mask.dtype() == DType::Bool { DType::Bool } else { q.dtype() };
        like("the mask", mask, &[lead, &[t, s]].concat(), dtype)?;
    }
    if options.window == Some(0) || options.window.is_some() && options.causal.is_none() {
        return Err(Error::value(format!(
            "a window of {} keys needs at least one key and a causal query",
            options.window.unwrap_or(0)
        ))
        .help("Attention::causal(offset).window(n) with n of at least 1"));
    }
    if let Some(c) = options.softcap.filter(|c| !(*c > 0.0 && c.is_finite())) {
        return Err(Error::value(format!("expected a positive finite cap of scores, got {c}"))
            .help("Attention::softcap(c) with a finite c above 0"));
    }
    let y = q.shape().resized(n - 1, hv)?;
    Ok(((y, q.dtype()), (q.shape().without(n - 1), q.dtype().compute())))
}

/// [`Op::AttentionGrad`](crate::Op::AttentionGrad): the gradients for q, k and v.
///
/// # Errors
/// As [`attention`]; if `y`, `lse` and `g` are not like its results.
pub fn attention_grad(
    inputs: &AttentionInputs<'_>,
    y: &Tensor,
    lse: &Tensor,
    g: &Tensor,
) -> Result<[TensorSpec; 3]> {
    let ((shape, dtype), (rows, wide)) = attention(inputs)?;
    like("y", y, &shape, dtype)?;
    like("lse", lse, &rows, wide)?;
    like("g", g, &shape, dtype)?;
    Ok([spec(inputs.q), spec(inputs.k), spec(inputs.v)])
}
