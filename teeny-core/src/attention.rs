//! The definition of attention in primitives.
//!
//! ```text
//! s = scale q kᵀ + mask      -inf where a query may not look           (.., T, S)
//! p = softmax(s)             0 in a row that sees no key               (.., T, S)
//! y = p v                    logsumexp = log(Σ exp(s)), -inf there     (.., T, hv) and (.., T)
//! ```
//!
//! [`AttentionInputs::composed`] writes the (T, S) matrix down: it is the definition, the fallback
//! of every device and what a fused kernel must agree with. A fused kernel never has that matrix in
//! memory (Dao 2023, arXiv:2307.08691) and recomputes `p` from the logsumexp in the backward pass.

pub use crate::op::{Attention, AttentionInputs};

use crate::dtype::DType;
use crate::error::Result;
use crate::scalar::Scalar;
use crate::shape::index_end;
use crate::tensor::{Tensor, map};

/// The scores of a call, and which of them a query sees.
struct Scores {
    /// Scaled and masked, the lowest finite number where nothing is seen; (.., T, S) in the compute
    /// dtype.
    s: Tensor,
    /// True where a query sees a key.
    seen: Tensor,
}

impl AttentionInputs<'_> {
    /// The lowest finite number of the compute dtype: replaces -inf before further arithmetic.
    fn lowest(&self) -> f64 {
        if self.q.dtype() == DType::F64 { f64::MIN } else { f32::MIN as f64 }
    }

    fn scores(&self) -> Result<Scores> {
        let [queries, keys, hs, _] = self.sizes();
        let (wide, lowest) = (self.q.dtype().compute(), self.lowest());
        let scaled = self.q.cast(wide)?.mul(self.options.factor(hs))?;
        let mut s = scaled.matmul(&self.k.cast(wide)?.t()?)?; // (.., T, S)
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
            Some(mask) => s = s.add(&mask.cast(wide)?)?,
            None => {}
        }
        // An additive mask may also hide keys, by -inf. NaN counts as seen, so it propagates to the
        // result.
        let seen = match seen {
            Some(seen) => map([&s, &seen], |[s, seen]| seen.and(s.le(lowest).not()))?,
            None => map([&s], |[s]| s.le(lowest).not())?,
        };
        let s = map([&s, &seen], |[s, seen]| seen.where_cond(s, lowest))?;
        Ok(Scores { s, seen })
    }

    /// The softmax of the scores, 0 where a query sees nothing: (.., T, S) of the operands' type.
    ///
    /// # Errors
    /// Those of the device.
    pub fn weights(&self) -> Result<Tensor> {
        let Scores { s, seen } = self.scores()?;
        weights(&s, &seen)?.cast(self.q.dtype())
    }

    /// Attention in primitives, which record their own gradients on an autograd device: y (.., T,
    /// hv) of the operands' type, and the logsumexp of the scores (.., T) in the compute dtype.
    /// Memory: the scores, (.., T, S).
    ///
    /// # Errors
    /// Those of the device.
    pub fn composed(&self) -> Result<(Tensor, Tensor)> {
        let (dtype, lowest) = (self.q.dtype(), self.lowest());
        let Scores { s, seen } = self.scores()?;
        let p = weights(&s, &seen)?;
        let y = p.matmul(&self.v.cast(dtype.compute())?)?.cast(dtype)?;
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
    /// Those of the device.
    pub fn composed_grad(
        &self,
        forward: Option<(&Tensor, &Tensor)>,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<[Option<Tensor>; 3]> {
        let [.., hs, _] = self.sizes();
        let (dtype, wide) = (self.q.dtype(), self.q.dtype().compute());
        let Scores { s, seen } = self.scores()?;
        let g = g.cast(wide)?;
        let p = match forward {
            Some((_, lse)) => map([&s, &seen, &lse.unsqueeze(-1)?], |[s, seen, lse]| {
                seen.where_cond((s - lse).exp(), 0)
            })?,
            None => weights(&s, &seen)?,
        };
        let d_v = if needs[2] { Some(p.t()?.matmul(&g)?.cast(dtype)?) } else { None };
        if !needs[0] && !needs[1] {
            return Ok([None, None, d_v]);
        }
        let d_p = g.matmul(&self.v.cast(wide)?.t()?)?; // (.., T, S)
        let inner = match forward {
            Some((y, _)) => g.mul(&y.cast(wide)?)?.sum_keepdim(-1)?,
            None => p.mul(&d_p)?.sum_keepdim(-1)?,
        }; // (.., T, 1)
        let scale = self.options.factor(hs);
        let d_s = map([&p, &d_p, &inner], |[p, d, inner]| p * (d - inner) * scale)?;
        let d_q = if needs[0] { Some(d_s.matmul(&self.k.cast(wide)?)?.cast(dtype)?) } else { None };
        let d_k =
            if needs[1] { Some(d_s.t()?.matmul(&self.q.cast(wide)?)?.cast(dtype)?) } else { None };
        Ok([d_q, d_k, d_v])
    }
}

/// The softmax of `s` where `seen`, 0 elsewhere.
fn weights(s: &Tensor, seen: &Tensor) -> Result<Tensor> {
    map([&s.softmax(-1)?, seen], |[p, seen]| seen.where_cond(p, 0))
}
