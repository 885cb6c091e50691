//! The requirements of softmax, cross-entropy, normalisation and attention, and of their gradients.

use super::{axis_of, float, like, spec};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{AttentionInputs, TensorSpec};
use crate::tensor::Tensor;

/// [`Op::Softmax`](crate::Op::Softmax) and
/// [`Op::LogSoftmax`](crate::Op::LogSoftmax).
///
/// # Errors
/// If there is no such axis, or the elements are not floats.
#[inline(always)]
pub fn softmax(x: &Tensor, axis: usize) -> Result<TensorSpec> {
    axis_of(x.shape(), axis)?;
    float(x)?;
    Ok(spec(x))
}

/// [`Op::SoftmaxGrad`](crate::Op::SoftmaxGrad) and
/// [`Op::LogSoftmaxGrad`](crate::Op::LogSoftmaxGrad).
///
/// # Errors
/// As [`softmax`]; if `g` is not like `y`.
pub fn softmax_grad(y: &Tensor, g: &Tensor, axis: usize) -> Result<TensorSpec> {
    softmax(y, axis)?;
    like("g", g, y.shape(), y.dtype())?;
    Ok(spec(y))
}

/// [`Op::CrossEntropy`](crate::Op::CrossEntropy). The targets' values are for the device
/// to check.
///
/// # Errors
/// If the operands are not floats (n, classes) and integers (n), or there are no classes.
pub fn cross_entropy(x: &Tensor, targets: &Tensor) -> Result<TensorSpec> {
    float(x)?;
    if targets.dtype().is_int() && x.ndim() == 2 && targets.shape()[..] == [x.shape()[0]] {
        return match x.shape()[..] {
            [n, 0] if n > 0 => Err(no_classes(x)),
            _ => Ok((*targets.shape(), x.dtype())),
        };
    }
    Err(wrong_targets(x, targets))
}

#[cold]
fn no_classes(x: &Tensor) -> Error {
    Error::shape(format!("scores {} have no classes, so that no target is one", x.shape()))
        .help("scores are (n, classes) with at least one class")
}

#[cold]
fn wrong_targets(x: &Tensor, targets: &Tensor) -> Error {
    if !targets.dtype().is_int() {
        return Error::dtype(format!("targets are classes, so integers, not {}", targets.dtype()))
            .help(match targets.ndim() {
                2 => "targets.argmax(1)? makes classes of rows of zeros and a one",
                _ => "targets.cast(DType::I64)? converts",
            });
    }
    let (n, classes) = (targets.numel(), x.shape().last().copied().unwrap_or(0));
    Error::shape(format!(
        "scores (n, classes) and targets (n) are needed, not {} and \
         {}",
        x.shape(),
        targets.shape()
    ))
    .help(match x.ndim() > 1 && n.checked_mul(classes) == Some(x.numel()) {
        true => format!("x.reshape(({n}, {classes}))? and targets.reshape({n})? fit"),
        false => "one target per row: classes on the last axis of x, all other axes \
                joined by x.reshape((-1, classes))?"
            .to_string(),
    })
}

/// [`Op::CrossEntropyGrad`](crate::Op::CrossEntropyGrad).
///
/// # Errors
/// As [`cross_entropy`]; if `g` is not (n) of the type of `x`.
pub fn cross_entropy_grad(x: &Tensor, targets: &Tensor, g: &Tensor) -> Result<TensorSpec> {
    cross_entropy(x, targets)?;
    like("g", g, targets.shape(), x.dtype())?;
    Ok(spec(x))
}

/// [`Op::Norm`](crate::Op::Norm).
///
/// # Errors
/// If `x` has no axes or is not of floats, or weight and bias are not lines of its last axis and of
/// its type.
pub fn norm(x: &Tensor, weight: Option<&Tensor>, bias: Option<&Tensor>) -> Result<TensorSpec> {
    float(x)?;
    let Some(&length) = x.shape().last() else {
        return Err(
            Error::shape("a scalar has no axis to normalise along").help("x.reshape(1)? has one")
        );
    };
    for (name, line) in [("weight", weight), ("bias", bias)] {
        if let Some(line) = line {
            like(name, line, &[length], x.dtype())?;
        }
    }
    if bias.is_some() && weight.is_none() {
        return Err(Error::value("a bias needs a weight beside it").help(format!(
            "a weight of ones changes nothing: Tensor::ones({length}, dtype, &device)?"
        )));
    }
    Ok(spec(x))
}

/// [`Op::NormGrad`](crate::Op::NormGrad).
///
/// # Errors
/// As [`norm`]; if `g` is not like `x`.
pub fn norm_grad(x: &Tensor, weight: Option<&Tensor>, g: &Tensor) -> Result<TensorSpec> {
    norm(x, weight, None)?;
    like("g", g, x.shape(), x.dtype())?;
    Ok(spec(x))
}

/// [`Op::Attention`](crate::Op::Attention): y and the logsumexp.
///
/// # Errors
/// If the operands are not q (.., T, hs), k (.., S, hs), v (.., S, hv) and a mask (.., T, S) of one
/// float type with equal leading axes, the mask being bool or of that type; or the options
/// contradict each other.
pub fn attention(inputs: &AttentionInputs<'_>) -> Result<[TensorSpec; 2]> {
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
            "a window of {} keys: it has at least one key, and reaches back from a causal query",
            options.window.unwrap_or(0)
        ))
        .help("Attention::causal(offset).window(n) with n of at least 1"));
    }
    let y = q.shape().resized(n - 1, hv)?;
    Ok([(y, q.dtype()), (q.shape().without(n - 1), q.dtype().compute())])
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
    let [(shape, dtype), (rows, wide)] = attention(inputs)?;
    like("y", y, &shape, dtype)?;
    like("lse", lse, &rows, wide)?;
    like("g", g, &shape, dtype)?;
    Ok([spec(inputs.q), spec(inputs.k), spec(inputs.v)])
}
