//! Gated recurrent unit, with gates r, z, n in PyTorch's order; `x_r` and `h_r` are the products of
//! x and h with the weights of gate r, plus its bias:
//!
//! ```text
//! r = σ(x_r + h_r)      z = σ(x_z + h_z)      n = tanh(x_n + r h_n)      h' = (1 - z) n + z h
//! ```
//!
//! Source: Cho et al. 2014, arXiv:1406.1078, with the reset after the product, as in cuDNN and
//! PyTorch.

use super::{at, gate, kernel, order, product, put, weight_grad};
use teeny_autograd::{Function, Saved};
use teeny_core::{Error, Result, Shape, Tensor};

/// The parts (B, H) of the gates r, z, n in `x` (B, 3H).
fn gates(x: &Tensor, hidden: usize) -> Result<[Tensor; 3]> {
    Ok([gate(x, 0, hidden)?, gate(x, 1, hidden)?, gate(x, 2, hidden)?])
}

/// All steps. Inputs: the input's products (T, B, 3H), w_hh (3H, H), b_ih (3H), b_hh (3H), h (B, H)
/// → (T, B, H).
pub(super) struct Steps {
    pub backwards: bool,
}

impl Function for Steps {
    fn name(&self) -> &'static str {
        "gru"
    }

    fn forward(&self, inputs: &[&Tensor], saved: &mut Saved) -> Result<Tensor> {
        let &[gx, w, b_ih, b_hh, start] = inputs else {
            return Err(Error::internal("a gru takes five tensors"));
        };
        let (steps, hidden, dtype) = (gx.shape()[0], w.shape()[1], gx.dtype());
        let sums = kernel(dtype, |[h, x, b_ih, b_hh]| [x + b_ih, h + b_hh])?;
        let unit = kernel(dtype, |[x_r, x_z, x_n, h_r, h_z, h_n, h]| {
            let (r, z) = ((x_r + h_r).sigmoid(), (x_z + h_z).sigmoid());
            let n = (x_n + r * h_n).tanh();
            [n + z * (h - n), r, z, n]
        })?;
        let wt = w.t()?.contiguous()?; // (H, 3H): transposed once, not in every product
        let sizes = Shape::new(&gx.shape()[1..])?;
        let (b_ih, b_hh) = (b_ih.expand(sizes)?, b_hh.expand(sizes)?); // (B, 3H), of stride 0
        let mut h = start.clone(); // (B, H)
        let (mut states, mut kept) = (vec![None; steps], vec![None; 4 * steps]);
        for t in order(steps, self.backwards) {
            let [x, s] = product([&h, &wt], &sums, &[&at(gx, t)?, &b_ih, &b_hh])?; // (B, 3H) both
            let [x, [h_r, h_z, h_n]] = [gates(&x, hidden)?, gates(&s, hidden)?]; // (B, H) each
            // 4 x (B, H)
            let mut results = unit.run(&[&x[0], &x[1], &x[2], &h_r, &h_z, &h_n, &h], &[])?;
            h = results.swap_remove(0); // the last output moves to the front: n r z
            states[t] = Some(h.clone());
            if saved.is_needed() {
                for (k, x) in results.into_iter().chain([h_n]).enumerate() {
                    kept[4 * t + k] = Some(x);
                }
            }
        }
        let y = Tensor::stack(&states.iter().flatten().collect::<Vec<_>>(), 0)?; // (T, B, H)
        [w, start, &y]
            .into_iter()
            .chain(kept.iter().flatten())
            .for_each(|x| saved.save_for_backward(x));
        Ok(y)
    }

    fn backward(&self, saved: &Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
        let [w, start, y, kept @ ..] = saved.tensors() else {
            return Err(Error::internal("a gru saves more tensors"));
        };
        let (steps, hidden, dtype) = (y.shape()[0], w.shape()[1], y.dtype());
        // the gradients of the gates, and the part of the state's gradient that goes to the
        // previous state directly
        let back = kernel(dtype, |[later, direct, g, n, r, z, h_n, h]| {
            let d_h = later + direct + g;
            let d_n = d_h * (1.0 - z) * (1.0 - n * n);
            [d_n * h_n * r * (1.0 - r), d_h * (h - n) * z * (1.0 - z), d_n, d_h * z]
        })?;
        let (mut later, mut direct) = (start.zeros_like()?, start.zeros_like()?); // (B, H), (B, H)
        let zeros = || Tensor::zeros([steps, start.shape()[0], 3 * hidden], dtype, y);
        let (mut by_x, mut by_h) = (zeros()?, zeros()?); // (T, B, 3H), (T, B, 3H)
        let order = order(steps, !self.backwards);
        for (i, &t) in order.iter().enumerate() {
            let before = order.get(i + 1).map_or(Ok(start.clone()), |&t| at(y, t))?; // (B, H)
            let [n, r, z, h_n] = &kept[4 * t..4 * t + 4] else {
                return Err(Error::internal("a gru keeps four tensors a step"));
            };
            // 4 x (B, H)
            let parts = back.run(&[&later, &direct, &at(g, t)?, n, r, z, h_n, &before], &[])?;
            for (k, part) in parts[..3].iter().enumerate() {
                by_x = put(by_x, t, k, part)?; // (T, B, 3H)
                // (T, B, 3H)
                by_h = put(by_h, t, k, &if k < 2 { part.clone() } else { part.mul(r)? })?;
            }
            later = at(&by_h, t)?.matmul(w)?; // (B, H)
            direct = parts[3].clone();
        }
        let d_w = weight_grad(&by_h, y, start, self.backwards)?; // (3H, H)
        let (d_b_ih, d_b_hh) = (by_x.sum([0, 1])?, by_h.sum([0, 1])?); // (3H), (3H)
        Ok(vec![Some(by_x), Some(d_w), Some(d_b_ih), Some(d_b_hh), Some(later.add(&direct)?)])
    }
}
