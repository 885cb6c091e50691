//! Recurrent layers: a state that is updated along a sequence.
//!
//! ```text
//! Rnn Gru Lstm               stacks of layers, one or two directions    layers
//! RnnCell GruCell LstmCell   one step                                   cells
//!   └─ run                   one layer in one direction: one matmul of the input for all steps,
//!      elman gru lstm        then the steps: one Function each, with backpropagation through time
//! Lengths                    sequences of several lengths               padding
//! ```
//!
//! Recorded step by step, the graph would add the gradient of the recurrent weight once per step, a
//! tensor as large as the weight. The hand-written backward passes collect the gradients of all
//! steps in one tensor, and the gradient of the weight is one matmul. Shapes: B sequences of T
//! steps, C inputs, H hidden values; G is H times the number of gates. Parameters have PyTorch's
//! names and layout.

mod cells;
mod elman;
mod gru;
mod layers;
mod lstm;
mod padding;

pub use cells::{GruCell, LstmCell, RnnCell};
pub use layers::{Gru, Lstm, RecurrentOptions, Rnn, SequenceLayout};
pub use padding::Lengths;

use padding::Padding;
use std::sync::Arc;
use teeny_autograd::apply;
use teeny_core::{DType, Error, Expr, Kernel, Op, Result, Tensor};

/// The nonlinearity of [`Rnn`] and [`RnnCell`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RnnNonlinearity {
    /// Hyperbolic tangent.
    #[default]
    Tanh,
    /// `max(x, 0)`.
    Relu,
}

impl RnnNonlinearity {
    fn kind(self) -> RnnKind {
        match self {
            RnnNonlinearity::Tanh => RnnKind::Tanh,
            RnnNonlinearity::Relu => RnnKind::Relu,
        }
    }
}

/// The kind of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RnnKind {
    Tanh,
    Relu,
    Gru,
    Lstm,
}

impl RnnKind {
    /// The number of gates.
    fn gates(self) -> usize {
        match self {
            RnnKind::Tanh | RnnKind::Relu => 1,
            RnnKind::Gru => 3,
            RnnKind::Lstm => 4,
        }
    }

    fn op(self) -> &'static str {
        match self {
            RnnKind::Tanh | RnnKind::Relu => "rnn",
            RnnKind::Gru => "gru",
            RnnKind::Lstm => "lstm",
        }
    }
}

/// The parameters of one layer in one direction: `w_ih` multiplies x, `w_hh` the state.
struct Weights {
    w_ih: Tensor,
    w_hh: Tensor,
    bias: Option<(Tensor, Tensor)>,
}

/// A state: h (B, H), and c (B, H) for an LSTM.
type HiddenState = (Tensor, Option<Tensor>);

/// One layer in one direction: x (T, B, C) → the states of all steps (T, B, H) and the final one.
/// `state` is the initial state; None is zeros. With `padding`, states after the end of a sequence
/// are zeros, and the final state is the one after its last real step in this direction.
fn run(
    kind: RnnKind,
    backwards: bool,
    x: &Tensor,
    weights: &Weights,
    state: Option<HiddenState>,
    padding: Option<&Padding>,
) -> Result<(Tensor, HiddenState)> {
    let &[steps, batch, inputs] = &x.shape()[..] else {
        return Err(Error::internal(format!("x is {}, not (T, B, C)", x.shape())));
    };
    if steps == 0 {
        return Err(Error::shape("a sequence must have at least one step")
            .help("leave empty sequences out, or pad them to one step"));
    }
    // backwards through padded sequences is forwards through reversed ones
    let reversed = padding.filter(|_| backwards);
    let other = reversed.map(|padding| padding.reversed(x)).transpose()?; // (T, B, C)
    let x = other.as_ref().unwrap_or(x);
    let backwards = backwards && padding.is_none();
    let dtype = x.dtype().promote(weights.w_ih.dtype());
    let hidden = weights.w_hh.shape()[1];
    let rows = x.cast(dtype)?.reshape([steps * batch, inputs])?; // (T B, C)
    let gates = kind.gates() * hidden;
    // (T, B, G)
    let gx = rows.matmul(&weights.w_ih.cast(dtype)?.t()?)?.reshape([steps, batch, gates])?;
    let gx = if let Some(padding) = padding { padding.closed(&gx, kind)? } else { gx };
    let w_hh = weights.w_hh.cast(dtype)?; // (G, H)
    let zeros = |sizes: &[usize]| Tensor::zeros(sizes, dtype, x);
    let (b_ih, b_hh) = match &weights.bias {
        Some((a, b)) => (a.cast(dtype)?, b.cast(dtype)?), // (G), (G)
        None => (zeros(&[gates])?, zeros(&[gates])?),
    };
    let (h, c) = match state {
        Some((h, c)) => (h.cast(dtype)?, c.map(|c| c.cast(dtype)).transpose()?), // (B, H) both
        None => (zeros(&[batch, hidden])?, None),
    };
    let last = if backwards { 0 } else { steps as isize - 1 };
    let (y, (h, c)) = match kind {
        RnnKind::Tanh | RnnKind::Relu => {
            let elman = elman::Elman { backwards, relu: kind == RnnKind::Relu };
            let y = apply(elman, &[&gx, &w_hh, &b_ih.add(&b_hh)?, &h])?; // (T, B, H)
            let h = y.at(0, last)?; // (B, H)
            (y, (h, None))
        }
        RnnKind::Gru => {
            let y = apply(gru::Steps { backwards }, &[&gx, &w_hh, &b_ih, &b_hh, &h])?; // (T, B, H)
            let h = y.at(0, last)?; // (B, H)
            (y, (h, None))
        }
        RnnKind::Lstm => {
            let c = c.map_or_else(|| zeros(&[batch, hidden]), Ok)?; // (B, H)
            // (T + 1, B, H): the last is c
            let all = apply(lstm::Steps { backwards }, &[&gx, &w_hh, &b_ih.add(&b_hh)?, &h, &c])?;
            let y = all.slice(0, ..steps)?; // (T, B, H)
            let (h, c) = (y.at(0, last)?, all.at(0, -1)?); // (B, H), (B, H)
            (y, (h, Some(c)))
        }
    };
    let Some(padding) = padding else { return Ok((y, (h, c))) };
    let h = padding.last(&y)?; // (B, H)
    let y = if let Some(padding) = reversed { padding.reversed(&y)? } else { y }; // (T, B, H)
    Ok((padding.zeroed(&y)?, (h, c)))
}

/// The indices of the steps in the order of the direction.
fn order(steps: usize, backwards: bool) -> Vec<usize> {
    if backwards { (0..steps).rev().collect() } else { (0..steps).collect() }
}

/// Step `t` of x (T, ..).
fn at(x: &Tensor, t: usize) -> Result<Tensor> {
    x.at(0, t as isize)
}

/// Gate `k` of a row of gates (B, G), each `hidden` wide.
fn gate(x: &Tensor, k: usize, hidden: usize) -> Result<Tensor> {
    x.slice(1, k * hidden..(k + 1) * hidden)
}

/// `all` (T, B, G) with gate `k` of step `t` replaced by `part` (B, H), in place.
fn put(all: Tensor, t: usize, k: usize, part: &Tensor) -> Result<Tensor> {
    let hidden = part.shape()[1];
    all.assign_view(|all| gate(&at(all, t)?, k, hidden), part)
}

/// `kernel` of the product `h @ w` and of `others`, in parts of the product as soon as they are
/// computed.
fn product<const O: usize>(
    [h, w]: [&Tensor; 2],
    kernel: &Arc<Kernel>,
    others: &[&Tensor],
) -> Result<[Tensor; O]> {
    let op = Op::MatmulKernel { lhs: h, rhs: w, kernel, others, params: &[] };
    op.tensors(h.device())
}

/// The outputs of a kernel that has `O` of them.
fn outputs<const O: usize>(outputs: Vec<Tensor>) -> Result<[Tensor; O]> {
    outputs.try_into().map_err(|_| Error::internal(format!("a kernel has {O} outputs")))
}

/// A kernel that all steps of a sequence use.
fn kernel<const I: usize, const O: usize>(
    dtype: DType,
    body: impl for<'b> FnOnce([Expr<'b>; I]) -> [Expr<'b>; O],
) -> Result<Arc<Kernel>> {
    Ok(Arc::new(Kernel::build([dtype; I], [], |inputs, []| body(inputs))?))
}

/// The gradient (G, H) of the recurrent weight: `Σ gᵀ h` over the steps, with the gradients of the
/// gates `g` (T, B, G), the states `y` after each step (T, B, H) and the initial state `h`.
fn weight_grad(g: &Tensor, y: &Tensor, h: &Tensor, backwards: bool) -> Result<Tensor> {
    let steps = y.shape()[0];
    let rows = |x: Tensor| x.reshape([-1, x.shape()[2] as isize]); // (T B, ..)
    let (first, later, before) = match backwards {
        false => (at(g, 0)?, g.slice(0, 1..)?, y.slice(0, ..steps - 1)?),
        true => (at(g, steps - 1)?, g.slice(0, ..steps - 1)?, y.slice(0, 1..)?),
    };
    let start = first.t()?.matmul(h)?; // (G, H)
    if steps == 1 { Ok(start) } else { rows(later)?.t()?.matmul(&rows(before)?)?.add(&start) }
}
