//! Elman's network: `h' = tanh(x W_ihᵀ + b_ih + h W_hhᵀ + b_hh)`, or with ReLU in place of tanh.
//! Source: Elman 1990, "Finding structure in time".

use super::{at, kernel, order, product, weight_grad};
use teeny_autograd::{Function, Saved};
use teeny_core::{Error, Result, Tensor};

/// All steps. Inputs: the input's products (T, B, H), w_hh (H, H), the sum of both biases (H), h
/// (B, H) → (T, B, H).
pub(super) struct Elman {
    pub backwards: bool,
    pub relu: bool,
}

impl Function for Elman {
    fn name(&self) -> &'static str {
        "rnn"
    }

    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        let &[gx, w, b, start] = inputs else {
            return Err(Error::internal("an rnn takes four tensors"));
        };
        let step = kernel(gx.dtype(), |[h, x, b]| {
            let sum = h + x + b;
            [if self.relu { sum.relu() } else { sum.tanh() }]
        })?;
        let wt = w.t()?.contiguous()?; // (H, H): transposed once, not in every product
        let b = b.expand(*start.shape())?; // (B, H), of stride 0
        let mut h = start.clone(); // (B, H)
        let mut states = vec![None; gx.shape()[0]];
        for t in order(states.len(), self.backwards) {
            [h] = product([&h, &wt], &step, &[&at(gx, t)?, &b])?; // (B, H)
            states[t] = Some(h.clone());
        }
        let y = Tensor::stack(&states.iter().flatten().collect::<Vec<_>>(), 0)?; // (T, B, H)
        [w, start, &y].into_iter().for_each(|x| saved.save_for_backward(x));
        Ok(y)
    }

    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [w, start, y] = saved.tensors() else {
            return Err(Error::internal("an rnn saves three tensors"));
        };
        let step = kernel(y.dtype(), |[later, g, y]| {
            let slope = if self.relu { y.gt(0.0).cast(y.dtype()) } else { 1.0 - y * y };
            [(later + g) * slope]
        })?;
        let mut d_h = start.zeros_like()?; // (B, H)
        let mut rows = vec![None; y.shape()[0]];
        for t in order(rows.len(), !self.backwards) {
            let d = step.run(&[&d_h, &at(g, t)?, &at(y, t)?], &[])?.swap_remove(0); // (B, H)
            d_h = d.matmul(w)?; // (B, H)
            rows[t] = Some(d);
        }
        let d_gx = Tensor::stack(&rows.iter().flatten().collect::<Vec<_>>(), 0)?; // (T, B, H)
        let d_w = weight_grad(&d_gx, y, start, self.backwards)?; // (H, H)
        let d_b = d_gx.sum([0, 1])?; // (H)
        Ok(vec![Some(d_gx), Some(d_w), Some(d_b), Some(d_h)])
    }
}
