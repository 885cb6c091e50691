//! Long short-term memory, with gates i, f, g, o in PyTorch's order:
//!
//! ```text
//! [i f g o] = x W_ihᵀ + b_ih + h W_hhᵀ + b_hh
//! c' = σ(f) c + σ(i) tanh(g)      h' = σ(o) tanh(c')
//! ```
//!
//! The forward pass saves i, f, g, o, tanh(c') and c', so that the backward pass evaluates no
//! sigmoid or tanh again; without a backward pass it makes c' and h' alone. Source: Hochreiter &
//! Schmidhuber 1997; Gers et al. 2000.

use super::{at, gate, kernel, order, outputs, product, put, weight_grad};
use teeny_autograd::{Function, Saved};
use teeny_core::{Error, Expr, Result, Shape, Tensor};

/// Tensors saved per step: c' i f g o tanh(c'), (B, H) each.
const VALUES_PER_STEP: usize = 6;

/// The new c, and the gates i, f, g.
fn cell<'b>([i, f, g, c]: [Expr<'b>; 4]) -> [Expr<'b>; 4] {
    let (i, f, g) = (i.sigmoid(), f.sigmoid(), g.tanh());
    [f * c + i * g, i, f, g]
}

/// The new h, the gate o, and tanh(c).
fn state<'b>([o, c]: [Expr<'b>; 2]) -> [Expr<'b>; 3] {
    let (o, c) = (o.sigmoid(), c.tanh());
    [o * c, o, c]
}

/// All steps. Inputs: the input's products (T, B, 4H), w_hh (4H, H), the sum of both biases (4H), h
/// (B, H), c (B, H) → (T + 1, B, H): the states after each step, and c after the last.
pub(super) struct Steps {
    pub backwards: bool,
}

impl Function for Steps {
    fn name(&self) -> &'static str {
        "lstm"
    }

    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        let &[gx, w, b, h0, c0] = inputs else {
            return Err(Error::internal("an lstm takes five tensors"));
        };
        let (steps, hidden, dtype) = (gx.shape()[0], w.shape()[1], gx.dtype());
        let sum = kernel(dtype, |[h, x, b]| [x + (h + b)])?;
        let (cell_kernel, state_kernel) = (kernel(dtype, cell)?, kernel(dtype, state)?);
        let both = kernel(dtype, |[i, f, g, o, c]| {
            let [c, ..] = cell([i, f, g, c]);
            [state([o, c])[0], c]
        })?;
        let wt = w.t()?.contiguous()?; // (H, 4H): transposed once, not in every product
        let b = b.expand(Shape::new(&gx.shape()[1..])?)?; // (B, 4H), of stride 0
        let (mut h, mut c) = (h0.clone(), c0.clone()); // (B, H), (B, H)
        let (mut states, mut kept) = (vec![None; steps], vec![None; VALUES_PER_STEP * steps]);
        for t in order(steps, self.backwards) {
            let [sums] = product([&h, &wt], &sum, &[&at(gx, t)?, &b])?; // (B, 4H)
            let of = |k| gate(&sums, k, hidden);
            let (i, f, g, o) = (of(0)?, of(1)?, of(2)?, of(3)?); // (B, H) each
            if saved.is_needed() {
                let inner = cell_kernel.run(&[&i, &f, &g, &c], &[])?; // 4 x (B, H): c i f g
                let outer = state_kernel.run(&[&o, &inner[0]], &[])?; // 3 x (B, H): h o tanh(c)
                (h, c) = (outer[0].clone(), inner[0].clone());
                for (k, x) in inner.into_iter().chain(outer.into_iter().skip(1)).enumerate() {
                    kept[VALUES_PER_STEP * t + k] = Some(x);
                }
            } else {
                [h, c] = outputs(both.run(&[&i, &f, &g, &o, &c], &[])?)?; // (B, H), (B, H)
            }
            states[t] = Some(h.clone());
        }
        let all: Vec<&Tensor> = states.iter().flatten().chain([&c]).collect();
        let y = Tensor::stack(&all, 0)?; // (T + 1, B, H)
        [w, h0, c0, &y]
            .into_iter()
            .chain(kept.iter().flatten())
            .for_each(|x| saved.save_for_backward(x));
        Ok(y)
    }

    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [w, h0, c0, y, kept @ ..] = saved.tensors() else {
            return Err(Error::internal("an lstm saves more tensors"));
        };
        let (steps, hidden, dtype) = (kept.len() / VALUES_PER_STEP, w.shape()[1], y.dtype());
        // gradients of the new cell, of o, and of the previous cell; `tc` is tanh(c')
        let outer = kernel(dtype, |[later, g, d_c, f, o, tc]| {
            let d_h = later + g;
            let d_c = d_c + d_h * o * (1.0 - tc * tc);
            [d_c, d_h * tc * o * (1.0 - o), d_c * f]
        })?;
        let inner = kernel(dtype, |[d_c, i, f, g, c]| {
            [d_c * g * i * (1.0 - i), d_c * c * f * (1.0 - f), d_c * i * (1.0 - g * g)]
        })?;
        let (mut d_h, mut d_c) = (h0.zeros_like()?, at(g, steps)?); // (B, H), (B, H)
        let mut all = Tensor::zeros([steps, h0.shape()[0], 4 * hidden], dtype, y)?; // (T, B, 4H)
        let order = order(steps, !self.backwards);
        for (n, &t) in order.iter().enumerate() {
            let before = order.get(n + 1).map_or(c0, |&t| &kept[VALUES_PER_STEP * t]); // (B, H)
            let [_, i, f, c, o, tc] = &kept[VALUES_PER_STEP * t..VALUES_PER_STEP * (t + 1)] else {
                return Err(Error::internal("an lstm keeps six tensors a step"));
            };
            let through = outer.run(&[&d_h, &at(g, t)?, &d_c, f, o, tc], &[])?; // 3 x (B, H)
            let [d_cell, d_o, d_before] = &through[..] else {
                return Err(Error::internal("a kernel has too few outputs"));
            };
            let inside = inner.run(&[d_cell, i, f, c, before], &[])?; // 3 x (B, H)
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
