//! Long short-term memory: with gates i, f, g, o in this order, as PyTorch lays them out,
//!
//! ```text
//! [i f g o] = x W_ihᵀ + b_ih + h W_hhᵀ + b_hh
//! c' = σ(f) c + σ(i) tanh(g)      h' = σ(o) tanh(c')
//! ```
//!
//! Kept for the backward pass are the gates before their functions and the cells. Source: Hochreiter & Schmidhuber 1997; Gers et al. 2000.

use super::{at, gate, kernel, order, put, weight_grad};
use teeny_autograd::{Function, Saved};
use teeny_core::{Error, Result, Tensor};

/// All steps. Inputs: the input's products (T, B, 4H), w_hh (4H, H), the sum of both biases (4H), h (B, H), c (B, H) → (T + 1, B, H): the states
/// after each step, and c after the last.
pub(super) struct Steps {
    pub backwards: bool,
}

impl Function for Steps {
    fn name(&self) -> &'static str {
        "lstm"
    }

    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        let &[gx, w, b, h0, c0] = inputs else { return Err(Error::internal("an lstm takes five tensors")) };
        let (steps, hidden, dtype) = (gx.shape()[0], w.shape()[1], gx.dtype());
        let sum = kernel(dtype, |[h, x, b]| [h + x + b])?;
        let cell = kernel(dtype, |[i, f, g, o, c]| {
            let c = f.sigmoid() * c + i.sigmoid() * g.tanh();
            [o.sigmoid() * c.tanh(), c]
        })?;
        let wt = w.t()?.contiguous()?; // (H, 4H): turned once, not by every product
        let (mut h, mut c) = (h0.clone(), c0.clone()); // (B, H), (B, H)
        let (mut states, mut kept) = (vec![None; steps], vec![None; 2 * steps]);
        for t in order(steps, self.backwards) {
            let gates = sum.run(&[&h.matmul(&wt)?, &at(gx, t)?, b], &[])?.swap_remove(0); // (B, 4H)
            let [i, f, g, o] = [gate(&gates, 0, hidden)?, gate(&gates, 1, hidden)?, gate(&gates, 2, hidden)?, gate(&gates, 3, hidden)?];
            let mut next = cell.run(&[&i, &f, &g, &o, &c], &[])?; // (B, H), (B, H)
            (h, c) = (next.swap_remove(0), next.swap_remove(0));
            states[t] = Some(h.clone());
            (kept[t], kept[steps + t]) = (Some(gates), Some(c.clone()));
        }
        let all: Vec<&Tensor> = states.iter().flatten().chain([&c]).collect();
        let y = Tensor::stack(&all, 0)?; // (T + 1, B, H)
        [w, h0, c0, &y].into_iter().chain(kept.iter().flatten()).for_each(|x| saved.save_for_backward(x));
        Ok(y)
    }

    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [w, h0, c0, y, kept @ ..] = saved.tensors() else { return Err(Error::internal("an lstm saves more tensors")) };
        let (steps, hidden, dtype) = (kept.len() / 2, w.shape()[1], y.dtype());
        let (gates, cells) = kept.split_at(steps);
        // what goes through the new cell: its gradient, that of o, and that of the old cell
        let outer = kernel(dtype, |[later, g, d_c, f, o, c]| {
            let (d_h, o, c) = (later + g, o.sigmoid(), c.tanh());
            let d_c = d_c + d_h * o * (1.0 - c * c);
            [d_c, d_h * c * o * (1.0 - o), d_c * f.sigmoid()]
        })?;
        let inner = kernel(dtype, |[d_c, i, f, g, c]| {
            let (i, f, g) = (i.sigmoid(), f.sigmoid(), g.tanh());
            [d_c * g * i * (1.0 - i), d_c * c * f * (1.0 - f), d_c * i * (1.0 - g * g)]
        })?;
        let (mut d_h, mut d_c) = (h0.zeros_like()?, at(g, steps)?); // (B, H), (B, H)
        let mut all = Tensor::zeros([steps, h0.shape()[0], 4 * hidden], dtype, y)?; // (T, B, 4H)
        let order = order(steps, !self.backwards);
        for (n, &t) in order.iter().enumerate() {
            let before = order.get(n + 1).map_or(c0, |&t| &cells[t]); // (B, H)
            let [i, f, c, o] = [gate(&gates[t], 0, hidden)?, gate(&gates[t], 1, hidden)?, gate(&gates[t], 2, hidden)?, gate(&gates[t], 3, hidden)?];
            let through = outer.run(&[&d_h, &at(g, t)?, &d_c, &f, &o, &cells[t]], &[])?; // 3 x (B, H)
            let [d_cell, d_o, d_before] = &through[..] else { return Err(Error::internal("a kernel gave too few outputs")) };
            let inside = inner.run(&[d_cell, &i, &f, &c, before], &[])?; // 3 x (B, H)
            for (k, part) in inside.iter().chain([d_o]).enumerate() {
                all = put(all, t, k, part)?; // (T, B, 4H)
            }
            d_h = at(&all, t)?.matmul(w)?; // (B, H)
            d_c = d_before.clone();
        }
        let d_w = weight_grad(&all, &y.slice(0, ..steps)?, h0, self.backwards)?; // (4H, H)
        let d_b = all.sum([0, 1])?; // (4H)
        Ok(vec![Some(all), Some(d_w), Some(d_b), Some(d_h), Some(d_c)])
    }
}
