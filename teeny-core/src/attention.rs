//! The definition of attention in primitives.
//!
//! ```text
//! s = cap(scale q kᵀ) + mask -inf where a query may not look           (.., T, S)
//! p = softmax(s)             0 in a row that sees no key               (.., T, S)
//! y = p v                    logsumexp = log(Σ exp(s)), -inf there     (.., T, hv) and (.., T)
//! ```
//!
//! `cap(s)` is `c tanh(s / c)` with [`Attention::softcap`], `s` without.
//!
//! [`AttentionInputs::composed`] writes the (T, S) matrix down: it is the definition, the fallback
//! of every device and the reference for a fused kernel. A fused kernel never has that matrix in
//! memory (Dao 2023, arXiv:2307.08691) and recomputes `p` from the logsumexp in the backward pass.
//!
//! A masked position contributes nothing to y and to the gradients, for any q, k, v and g there,
//! NaN and infinities included. `0 NaN` is NaN, so the products leave out terms of weight 0.

pub use crate::op::{Attention, AttentionInputs};

use crate::dtype::DType;
use crate::error::Result;
use crate::kernel::build::Expr;
use crate::scalar::Scalar;
use crate::shape::index_end;
use crate::tensor::{Tensor, map};

/// The scores of a call, and which of them a query sees.
struct Scores {
    /// Scaled and masked, the lowest finite number where nothing is seen; (.., T, S) in the compute
    /// dtype.
    s: Tensor,
    /// The derivative of `softcap` at the scores, (.., T, S), if there is one.
    softcap_grad: Option<Tensor>,
    /// True where a query sees a key.
    seen: Tensor,
    /// Whether limits or a mask may hide a key from a query.
    hides: bool,
}

impl AttentionInputs<'_> {
    /// The lowest finite number of the compute dtype: replaces -inf before further arithmetic.
    fn lowest(&self) -> f64 {
        if self.q.dtype() == DType::F64 { f64::MIN } else { f32::MIN as f64 }
    }

    fn scores(&self) -> Result<Scores> {
        let [queries, keys, hs, _] = self.sizes();
        let (wide, lowest) = (self.q.dtype().compute(), self.lowest());
        let hides = self.mask.is_some()
            || [0, queries.saturating_sub(1)]
                .iter()
                .any(|&i| self.options.keys(i, keys) != (0..keys));
        let scaled = self.q.cast(wide)?.mul(self.options.factor(hs))?;
        let k = self.k.cast(wide)?.t()?; // (.., hs, S)
        let mut s = scaled.matmul(&k)?; // (.., T, S)
        if hides {
            // Only the scores of finite keys get gradients: the gradient of a hidden key is 0, and
            // the NaN of the key would make it NaN.
            let finite = finite_part(&k)?;
            let unfit = map([&k], |[k]| k.is_finite().not())?.any(-2)?.unsqueeze(-2)?; // (.., 1, S)
            s = map([&unfit, &s, &scaled.matmul(&finite)?], |[unfit, s, finite]| {
                let [nan, high, low] =
                    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|x| s.like(x));
                let infinite = s.gt(0).where_cond(high, s.lt(0).where_cond(low, nan));
                unfit.where_cond(infinite, finite)
            })?;
        }
        let mut softcap_grad = None;
        if let Some(c) = self.options.softcap {
            s = map([&s], |[s]| (s / c).tanh() * c)?;
            softcap_grad = Some(map([&s], |[s]| s.like(1.0) - (s / c) * (s / c))?);
        }
        let mut seen = None;
        if self.options.causal.is_some() {
            let (offset, window) = self.options.band(queries, keys);
            let numbers = |n: usize| Tensor::arange(0i32, index_end(n)?, 1, self.q);
            // (T, 1) and (1, S)
            let (i, j) = (numbers(queries)?.unsqueeze(1)?, numbers(keys)?.unsqueeze(0)?);
            index_end(queries.saturating_add(offset))?; // positions are i32
            let (offset, window) = (index_end(offset)?, index_end(window)?);
            seen = Some(map([&i, &j], |[i, j]| {
                let behind = i + offset - j;
                behind.ge(0).and(behind.lt(window))
            })?); // (T, S)
        }
        match self.mask {
            Some(mask) if mask.dtype() == DType::Bool => {
                seen = Some(match seen {
                    Some(seen) => map([&seen, mask], |[a, b]| a.and(b))?,
                    None => mask.clone(),
                });
            }
            Some(mask) => {
                // -inf hides a key with any score; NaN counts as seen, so it propagates to
                // the result.
                let mask = mask.cast(wide)?;
                s = map([&s, &mask], |[s, mask]| {
                    mask.le(lowest).where_cond(s.like(lowest), s + mask)
                })?;
            }
            None => {}
        }
        let seen = match seen {
            Some(seen) => map([&s, &seen], |[s, seen]| seen.and(s.le(lowest).not()))?,
            None => map([&s], |[s]| s.le(lowest).not())?,
        };
        let s = map([&s, &seen], |[s, seen]| seen.where_cond(s, lowest))?;
        Ok(Scores { s, softcap_grad, seen, hides })
    }

    /// The softmax of the scores, 0 where a query sees nothing: (.., T, S) of the operands' type.
    ///
    /// # Errors
    /// If the device fails.
    pub fn weights(&self) -> Result<Tensor> {
        let Scores { s, seen, .. } = self.scores()?;
        weights(&s, &seen)?.cast(self.q.dtype())
    }

    /// Attention in primitives, which record their own gradients on an autograd device: y (.., T,
    /// hv) of the operands' type, and the logsumexp of the scores (.., T) in the compute dtype.
    /// Memory: the scores, (.., T, S).
    ///
    /// # Errors
    /// If the device fails.
    pub fn composed(&self) -> Result<(Tensor, Tensor)> {
        let (dtype, lowest) = (self.q.dtype(), self.lowest());
        let Scores { s, seen, hides, .. } = self.scores()?;
        let p = weights(&s, &seen)?;
        let y = product(&p, &self.v.cast(dtype.compute())?, hides)?.cast(dtype)?;
        let sum = s.logsumexp(-1)?;
        let lse = map([&sum], |[l]| {
            l.le(lowest).where_cond(l.like(Scalar::Float(f64::NEG_INFINITY)), l)
        })?;
        Ok((y, lse))
    }

    /// The gradients of [`AttentionInputs::composed`]'s y for q, k and v in primitives, those that
    /// `needs` requests:
    ///
    /// ```text
    /// dv = pᵀ g    ds = p (g vᵀ - Σ g y)    dq = scale ds k    dk = scale dsᵀ q
    /// ```
    ///
    /// With `forward`, the y and logsumexp of the forward pass, `p` is recomputed from the scores.
    /// Without, everything is computed from q, k and v, so that the gradient can itself be
    /// differentiated.
    ///
    /// # Errors
    /// If the device fails.
    pub fn composed_grad(
        &self,
        forward: Option<(&Tensor, &Tensor)>,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<[Option<Tensor>; 3]> {
        let [.., hs, _] = self.sizes();
        let (dtype, wide) = (self.q.dtype(), self.q.dtype().compute());
        let Scores { s, softcap_grad, seen, hides } = self.scores()?;
        let g = g.cast(wide)?;
        let p = match forward {
            Some((_, lse)) => map([&s, &seen, &lse.unsqueeze(-1)?], |[s, seen, lse]| {
                seen.where_cond((s - lse).exp(), 0)
            })?,
            None => weights(&s, &seen)?,
        };
        let d_v = if needs[2] { Some(product(&p.t()?, &g, hides)?.cast(dtype)?) } else { None };
        if !needs[0] && !needs[1] {
            return Ok([None, None, d_v]);
        }
        let mut d_p = g.matmul(&self.v.cast(wide)?.t()?)?; // (.., T, S)
        if hides {
            d_p = map([&p, &d_p], |[p, d]| p.ne(0).where_cond(d, 0))?;
        }
        let inner = match forward {
            Some((y, _)) => g.mul(&y.cast(wide)?)?.sum_keepdim(-1)?,
            None => p.mul(&d_p)?.sum_keepdim(-1)?,
        }; // (.., T, 1)
        let scale = self.options.factor(hs);
        let mut d_s = map([&p, &d_p, &inner], |[p, d, inner]| {
            p.ne(0).where_cond(p * (d - inner) * scale, 0)
        })?;
        if let Some(grad) = softcap_grad {
            d_s = map([&d_s, &grad], |[d, grad]| d.ne(0).where_cond(d * grad, 0))?;
        }
        let along = |weights: Tensor, x: &Tensor| -> Result<Tensor> {
            product(&weights, &x.cast(wide)?, hides)?.cast(dtype)
        };
        let d_q = if needs[0] { Some(along(d_s.clone(), self.k)?) } else { None };
        let d_k = if needs[1] { Some(along(d_s.t()?, self.q)?) } else { None };
        Ok([d_q, d_k, d_v])
    }
}

/// The softmax of `s` where `seen`, 0 elsewhere.
fn weights(s: &Tensor, seen: &Tensor) -> Result<Tensor> {
    map([&s.softmax(-1)?, seen], |[p, seen]| seen.where_cond(p, 0))
}

/// `x`, with 0 in place of infinities and NaN.
fn finite_part(x: &Tensor) -> Result<Tensor> {
    map([x], |[x]| x.is_finite().where_cond(x, 0))
}

/// -1, 0 or 1, and 0 for NaN.
fn sign(x: Expr<'_>) -> Expr<'_> {
    let [zero, one, minus] = [0.0, 1.0, -1.0].map(|c| x.like(c));
    x.gt(0).where_cond(one, x.lt(0).where_cond(minus, zero))
}

/// `weights x`. Where keys may be `hidden`, terms of weight 0 are left out, for any `x`.
fn product(weights: &Tensor, x: &Tensor, hidden: bool) -> Result<Tensor> {
    if !hidden {
        return weights.matmul(x);
    }
    let y = weights.matmul(&finite_part(x)?)?;
    // Counts the terms that are not finite, and the +inf terms minus the -inf terms.
    let special = map([x], |[x]| x.is_finite().where_cond(x.like(0.0), 1))?;
    let terms = map([weights], |[w]| sign(w.abs()))?.matmul(&special)?;
    let infinite = map([x], |[x]| x.is_inf().where_cond(sign(x), 0))?;
    let signs = map([weights], |[w]| sign(w))?.matmul(&infinite)?;
    map([&y, &terms, &signs], |[y, terms, signs]| {
        let [nan, high, low] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(|c| y.like(c));
        let infinity = signs.gt(0).where_cond(high, low);
        terms.eq(0).where_cond(y, signs.abs().eq(terms).where_cond(infinity, nan))
    })
}
