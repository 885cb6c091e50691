//! Sequences of several lengths in one batch, padded at the end.
//!
//! The recurrence runs over all T steps and does not know the lengths. The code around it handles
//! padding in three ways. The gates of padding are closed ([`Padding::closed`]): a state stays
//! finite, the cell of an LSTM is the one after the last real step, and no gradient passes. The
//! second direction runs the first one on sequences that are reversed within their lengths. States
//! of padding are replaced by zeros.

use super::RnnKind;
use teeny_core::{DType, Error, Result, Tensor};

/// The numbers of real steps of padded sequences, one per sequence, each `1..=T`, in any order.
///
/// `&[3, 5]`, a slice or a `&Vec<usize>` become [`Lengths::Numbers`]. In a captured function
/// ([`crate::Captured`]) they are constants, and others are refused; a tensor can be an input.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::{Store, device::device, recurrent::{Gru, Lengths}};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let gru = Gru::new(&store.at("gru"), 10, 20)?;
/// let x = Tensor::randn((2, 5, 10), DType::F32, store.device())?; // (2, 5, 10)
/// let (_, h) = gru.forward_lengths(&x, &[3, 5], None)?; // (1, 2, 20)
/// let lengths = Tensor::new([3i32, 5], store.device())?; // (2)
/// let (_, same) = gru.forward_lengths(&x, Lengths::Tensor(&lengths), None)?; // (1, 2, 20)
/// assert_eq!(h.to_vec::<f32>()?, same.to_vec::<f32>()?);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Lengths<'a> {
    /// Numbers of the program, which are checked.
    Numbers(&'a [usize]),
    /// A tensor (B) of integers. A wrong one is an error of the device, which checks indices.
    Tensor(&'a Tensor),
}

impl<'a, T: AsRef<[usize]> + ?Sized> From<&'a T> for Lengths<'a> {
    fn from(lengths: &'a T) -> Lengths<'a> {
        Lengths::Numbers(lengths.as_ref())
    }
}

impl Lengths<'_> {
    /// The lengths as a tensor (B) on the device of x (T, B, C), checked.
    fn tensor(self, x: &Tensor) -> Result<Tensor> {
        let (steps, batch) = (x.shape()[0], x.shape()[1]);
        let lengths = match self {
            Lengths::Tensor(lengths) => lengths.clone(),
            Lengths::Numbers(numbers) => {
                let outside = |(_, n): &(usize, &usize)| !(1..=steps).contains(*n);
                if let Some((i, n)) = numbers.iter().enumerate().find(outside) {
                    let text =
                        format!("lengths[{i}] is {n}, but x has {steps} steps (1..={steps})");
                    return Err(Error::value(text).help(
                        "pad to the longest sequence; an empty one can be one step of padding",
                    ));
                }
                let numbers: Vec<i32> = numbers.iter().map(|&n| n as i32).collect();
                Tensor::from_slice(&numbers, numbers.len(), x)?
            }
        };
        let (shape, dtype) = (lengths.shape(), lengths.dtype());
        if shape[..] != [batch] || !dtype.is_int() {
            let text = format!("lengths {shape} of {dtype} do not fit {batch} sequences");
            return Err(Error::shape(text)
                .help("pass an integer for each sequence, its number of real steps"));
        }
        lengths.cast(DType::I32)
    }
}

/// Where the real steps of a batch are.
pub(super) struct Padding {
    /// Whether a step is real: (T, B, 1).
    real: Tensor,
    /// The step at each place of the sequences reversed within their lengths: (T, B, 1) of I32.
    reversed: Tensor,
    /// The last real step: (1, B, 1) of I32.
    last: Tensor,
}

impl Padding {
    /// The padding of x (T, B, C).
    pub fn new(lengths: Lengths<'_>, x: &Tensor) -> Result<Padding> {
        let lengths = lengths.tensor(x)?.reshape((1, x.shape()[1], 1))?; // (1, B, 1)
        let t = Tensor::arange(0i32, x.shape()[0] as i32, 1, x)?.reshape((-1, 1, 1))?; // (T, 1, 1)
        let (real, last) = (t.lt(&lengths)?, lengths.sub(1)?); // (T, B, 1), (1, B, 1)
        let reversed = real.where_cond(&last.sub(&t)?, &t)?; // (T, B, 1)
        Ok(Padding { real, reversed, last })
    }

    /// x (T, B, ..) with zeros for padding.
    pub fn zeroed(&self, x: &Tensor) -> Result<Tensor> {
        self.real.where_cond(x, 0.0)
    }

    /// x (T, B, ..) with each sequence reversed within its length.
    pub fn reversed(&self, x: &Tensor) -> Result<Tensor> {
        x.gather(0, &self.reversed.expand(*x.shape())?)
    }

    /// The last real step of each sequence of x (T, B, H) → (B, H).
    pub fn last(&self, x: &Tensor) -> Result<Tensor> {
        x.gather(0, &self.last.expand((1, x.shape()[1], x.shape()[2]))?)
            .map_err(|error| error.note("the index is lengths - 1, and lengths are 1 to T"))?
            .at(0, 0)
    }

    /// The input's products (T, B, G), replaced at padding by values that close the gates: sigmoids
    /// are exactly 0 or 1 there, so gradients are exactly 0.
    pub fn closed(&self, gx: &Tensor, kind: RnnKind) -> Result<Tensor> {
        const INF: f32 = f32::INFINITY;
        let gates = match kind {
            RnnKind::Tanh | RnnKind::Relu => vec![-INF], // h' = -1 or 0
            RnnKind::Gru => vec![0.0, INF, 0.0],         // h' = h
            RnnKind::Lstm => vec![-INF, INF, 0.0, 0.0],  // c' = c
        };
        let (n, width) = (gates.len(), gx.shape()[2]);
        let row = Tensor::from_vec(gates, (n, 1), gx)?.cast(gx.dtype())?; // (gates, 1)
        self.real.where_cond(gx, &row.expand((n, width / n))?.reshape(width)?)
    }
}
