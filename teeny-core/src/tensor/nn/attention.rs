//! `q.attention(&k, &v, mask, &options)`: checks, broadcasting and types; the definition is in
//! [`crate::attention`].

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::op::{Attention, AttentionInputs, Op};
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::one_device::on_one_device;
use std::borrow::Cow;

impl Tensor {
    /// Scaled dot-product attention: `softmax(scale q kᵀ + mask) v`, with self as the queries.
    ///
    /// Shapes: q (.., T, hs), k (.., S, hs), v (.., S, hv) → (.., T, hv). Leading axes broadcast
    /// without copies, there may be none, and any strides do: heads are usually a transposed view,
    /// `x.reshape((b, t, n_head, hs))?.transpose(1, 2)?`. Grouped queries: q as (B, n_kv, G, T, hs)
    /// meets k and v as (B, n_kv, 1, S, hs).
    ///
    /// `mask` broadcasts to (.., T, S): bool (true: may attend) or float (added to the scores, -inf
    /// hides a key). It joins the limits of `options`. A masked position contributes nothing to the
    /// result and to the gradients, even if k or v is NaN or infinite there: `0 NaN` is left out. A
    /// query that sees no key gives zeros and passes no gradient. An additive mask that requires a
    /// gradient gets one, at the price of the whole (T, S) matrix of scores in memory; without,
    /// fused devices need memory for (T + S) rows only.
    ///
    /// Types are promoted; 16-bit floats are computed in f32.
    ///
    /// Accuracy on `Cpu`, of f32: within `(2 (hs + 8) m + 600 + S / 192) 2^-24` of `Σ p |v|`, with
    /// p the weights of a query and m the largest `scale Σ |q k|` of it and a key.
    ///
    /// # Errors
    /// If sizes do not fit each other, the types are not floats, the mask is neither bool nor
    /// float, or a window is 0 or without causality.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Attention, DType, Reference, Tensor};
    /// # fn main() -> teeny_core::Result<()> {
    /// let device = Reference::new();
    /// let q = Tensor::randn((2, 3, 8), DType::F32, &device)?; // (2, 3, 8)
    /// let k = Tensor::randn((2, 3, 8), DType::F32, &device)?; // (2, 3, 8)
    /// let v = Tensor::ones((2, 3, 4), DType::F32, &device)?; // (2, 3, 4)
    /// let y = q.attention(&k, &v, None, &Attention::causal(0))?; // (2, 3, 4)
    /// assert!((y.to_vec::<f32>()?[7] - 1.0).abs() < 1e-6); // a mean of ones
    /// # Ok(()) }
    /// ```
    ///
    /// Source: Vaswani et al. 2017, arXiv:1706.03762; without the matrix of scores: Dao 2023,
    /// arXiv:2307.08691. Equivalent: `torch.nn.functional.scaled_dot_product_attention`, where
    /// `is_causal` is `Attention::causal(0)`.
    #[doc(alias = "scaled_dot_product_attention")]
    #[track_caller]
    pub fn attention(
        &self,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        options: &Attention,
    ) -> Result<Tensor> {
        let _op = enter("attention").on([
            ("x", Some(self)),
            ("k", Some(k)),
            ("v", Some(v)),
            ("mask", mask),
        ]);
        let operands = Operands::new(self, k, v, mask, options)?;
        let (q, inputs) = (&operands.q, operands.inputs(options));
        let [y, _] = Op::Attention { inputs }.tensors(q.device())?;
        Ok(y)
    }

    /// The weights that [`Tensor::attention`] gives to the values: `softmax(scale q kᵀ + mask)`,
    /// with 0 where a query sees no key. For inspection or dropout: `weights.matmul(&v)` is
    /// attention of finite v, with the matrix in memory.
    ///
    /// Shapes: q (.., T, hs), k (.., S, hs) → (.., T, S). Everything else as [`Tensor::attention`].
    ///
    /// # Errors
    /// As [`Tensor::attention`].
    #[track_caller]
    pub fn attention_weights(
        &self,
        k: &Tensor,
        mask: Option<&Tensor>,
        options: &Attention,
    ) -> Result<Tensor> {
        let _op =
            enter("attention_weights").on([("x", Some(self)), ("k", Some(k)), ("mask", mask)]);
        Operands::new(self, k, k, mask, options)?.inputs(options).weights()
    }
}

/// The operands as devices take them: on one device, of one type, with equal leading axes.
struct Operands {
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Option<Tensor>,
}

impl Operands {
    fn new(
        q: &Tensor,
        k: &Tensor,
        v: &Tensor,
        mask: Option<&Tensor>,
        options: &Attention,
    ) -> Result<Operands> {
        check_options(options)?;
        let (_, operands) = on_one_device(&[&[q, k, v][..], mask.as_slice()].concat())?;
        let shapes = fit(q.shape(), k.shape(), v.shape())?;
        let dtype =
            operands[..3].iter().skip(1).fold(q.dtype(), |dtype, x| dtype.promote(x.dtype()));
        let expanded = |i: usize| -> Result<Tensor> {
            let x: &Cow<'_, Tensor> = &operands[i];
            x.cast(dtype)?.expand_to(&shapes[i])
        };
        let (q, k, v) = (expanded(0)?, expanded(1)?, expanded(2)?);
        q.require_float()?;
        let n = q.ndim();
        let scores = q.shape().resized(n - 1, k.shape()[n - 2])?;
        let mask = operands.get(3).map(|mask| prepared(mask, &scores, dtype)).transpose()?;
        Ok(Operands { q, k, v, mask })
    }

    fn inputs(&self, options: &Attention) -> AttentionInputs<'_> {
        AttentionInputs {
            q: &self.q,
            k: &self.k,
            v: &self.v,
            mask: self.mask.as_ref(),
            options: *options,
        }
    }
}

fn check_options(options: &Attention) -> Result<()> {
    match (options.window, options.causal) {
        (Some(0), _) => Err(Error::value(
            "a window of 0 keys lets no query see \
             anything",
        )
        .help("window(1) lets a query see its own key")),
        (Some(window), None) => Err(Error::value(format!(
            "a window of {window} keys reaches back from a causal \
             query, and this attention is not causal"
        ))
        .help("Attention::causal(offset).window(n)")),
        _ => match options.softcap {
            Some(c) if !(c > 0.0 && c.is_finite()) => {
                Err(Error::value(format!("expected a positive finite cap of scores, got {c}"))
                    .help("Gemma 2 has Attention::softcap(50.0)"))
            }
            _ => Ok(()),
        },
    }
}

/// The shapes of q, k and v with their leading axes broadcast.
fn fit(q: &Shape, k: &Shape, v: &Shape) -> Result<[Shape; 3]> {
    let shape_error = |why: String, help: &str| {
        Error::shape(format!("queries {q}, keys {k} and values {v} do not fit: {why}")).help(help)
    };
    if q.ndim() < 2 || k.ndim() < 2 || v.ndim() < 2 {
        return Err(shape_error(
            "each needs at least two axes".to_string(),
            "(.., T, hs), (.., S, hs) and (.., S, hv) fit",
        ));
    }
    let last = |x: &Shape| (x[x.ndim() - 2], x[x.ndim() - 1]);
    let ((t, hs), (s, k_hs), (v_s, hv)) = (last(q), last(k), last(v));
    if hs != k_hs {
        return Err(shape_error(
            format!("queries have heads of {hs}, keys of {k_hs}"),
            match hs == s {
                true => {
                    "k.t()? exchanges the axes of the keys: they are (.., S, hs), not transposed"
                }
                false => "project queries and keys to one head size",
            },
        ));
    }
    if s != v_s {
        return Err(shape_error(
            format!("{s} keys meet {v_s} values"),
            "each key needs a value: the last axes but one of k and v are equal",
        ));
    }
    let lead = |x: &Shape| Shape::from_checked(&x[..x.ndim() - 2]);
    let all = lead(q).broadcast(&lead(k)).and_then(|both| both.broadcast(&lead(v)));
    let Some(all) = all else {
        return Err(shape_error(
            "the leading axes do not broadcast".to_string(),
            "grouped queries are q (B, n_kv, G, T, hs) with k and v (B, n_kv, 1, S, hs)",
        ));
    };
    let whole = |rows: usize, columns: usize| Shape::new(&[&all[..], &[rows, columns]].concat());
    Ok([whole(t, hs)?, whole(s, hs)?, whole(s, hv)?])
}

/// The mask as devices take it: stretched over the scores, bool or of the operands' type.
fn prepared(mask: &Tensor, scores: &Shape, dtype: DType) -> Result<Tensor> {
    if mask.dtype() != DType::Bool && !mask.dtype().is_float() {
        return Err(Error::dtype(format!(
            "a mask is bool (true: may attend) or float (added to the scores), not {}",
            mask.dtype()
        ))
        .help("mask.cast(DType::Bool)? converts"));
    }
    if mask.shape().broadcast(scores) != Some(*scores) {
        return Err(Error::shape(format!(
            "a mask of {} does not broadcast to the scores {scores}",
            mask.shape()
        ))
        .help("(.., T, S)"));
    }
    let mask = if mask.dtype() == DType::Bool { mask.clone() } else { mask.cast(dtype)? };
    mask.expand_to(scores)
}
