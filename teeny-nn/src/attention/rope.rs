//! [`Rope`]: rotary position embedding.
//!
//! Pairs of numbers of a query or key turn by an angle that grows with the position, so that a
//! score depends on how far apart two tokens are:
//!
//! ```text
//! (a, b) at position p  →  (a cos pθᵢ - b sin pθᵢ,  a sin pθᵢ + b cos pθᵢ),   θᵢ = base^(-2i / hs)
//! ```
//!
//! Seen through a view in which the partners of each pair change places, this is
//! `x cos + swapped(x) (∓sin)`: one kernel over tables computed once.

use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor, ToDevice, map, memory};

/// Which numbers of a head turn together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pairs {
    /// `(x[2i], x[2i + 1])`, as in the paper and in Llama's own code.
    Neighbours,
    /// `(x[i], x[i + hs/2])`, as in GPT-NeoX and Hugging Face's Llama.
    #[default]
    Halves,
}

/// Tables of cosines and sines for heads of one size.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::{Rope, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let device = device("cpu")?;
/// let rope = Rope::new(8, 1024, &device)?;
/// let q = Tensor::randn((1, 4, 3, 8), DType::F32, &device)?; // (B, n_head, T, hs)
/// let turned = rope.apply(&q, 0)?; // position 0 stays as it is
/// assert_eq!(turned.at(2, 0)?.to_vec::<f32>()?, q.at(2, 0)?.to_vec::<f32>()?);
/// # Ok(()) }
/// ```
/// Source: Su et al. 2021, arXiv:2104.09864.
#[derive(Clone, Debug)]
pub struct Rope {
    /// (capacity, 2, hs/2) or (capacity, hs/2, 2): each angle's cosine at both partners.
    cos: Tensor,
    /// As `cos`: minus the sine at the first partner, the sine at the second.
    sin: Tensor,
    pairs: Pairs,
}

impl Rope {
    /// Tables for heads of `hs` numbers and positions below `capacity`, with base 10,000 and halves
    /// as pairs.
    ///
    /// # Errors
    /// If `hs` is odd or 0.
    #[track_caller]
    pub fn new(hs: usize, capacity: usize, device: &(impl ToDevice + ?Sized)) -> Result<Rope> {
        let _op = enter("Rope::new");
        Rope::with_base(hs, capacity, 10_000.0, Pairs::default(), device)
    }

    /// Tables with another base or pairing.
    ///
    /// # Errors
    /// If `hs` is odd or 0, or the base is not positive.
    #[track_caller]
    pub fn with_base(
        hs: usize,
        capacity: usize,
        base: f64,
        pairs: Pairs,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Rope> {
        let _op = enter("Rope::with_base");
        if hs == 0 || !hs.is_multiple_of(2) {
            return Err(Error::value(format!("heads of {hs} numbers do not fall into pairs"))
                .help("hs must be even and at least 2"));
        }
        if !(base > 0.0 && base.is_finite()) {
            return Err(Error::value(format!(
                "the base is {base}, but must be positive and finite"
            ))
            .help("10,000 is usual"));
        }
        let half = hs / 2;
        let shape = match pairs {
            Pairs::Neighbours => (capacity, half, 2),
            Pairs::Halves => (capacity, 2, half),
        };
        // The device says whether it has room before the host makes the values.
        let tables =
            [Tensor::zeros(shape, DType::F32, device)?, Tensor::zeros(shape, DType::F32, device)?];
        let mut cos = memory::filled(0f32, capacity * hs)?;
        let mut sin = memory::filled(0f32, capacity * hs)?;
        for position in 0..capacity {
            for i in 0..half {
                let angle = position as f64 * base.powf(-2.0 * i as f64 / hs as f64);
                let (first, second) = match pairs {
                    Pairs::Neighbours => (2 * i, 2 * i + 1),
                    Pairs::Halves => (i, i + half),
                };
                let row = position * hs;
                (cos[row + first], cos[row + second]) = (angle.cos() as f32, angle.cos() as f32);
                (sin[row + first], sin[row + second]) = (-angle.sin() as f32, angle.sin() as f32);
            }
        }
        drop(tables);
        let table = |values: Vec<f32>| Tensor::from_vec(values, shape, device);
        Ok(Rope { cos: table(cos)?, sin: table(sin)?, pairs })
    }

    /// `x` (.., T, hs), whose rows are the positions `start..start + T`, turned. Computed in f32 at
    /// least, in the type of `x`.
    ///
    /// # Errors
    /// If the head size is another than the tables', or they have too few positions.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, start: usize) -> Result<Tensor> {
        let _op = enter("rope");
        let [capacity, hs] = [self.cos.shape()[0], self.cos.shape()[1] * self.cos.shape()[2]];
        let &[.., t, size] = &x.shape()[..] else {
            return Err(Error::shape(format!("needs (.., T, hs), not {}", x.shape()))
                .help("x.unsqueeze(0)? adds an axis"));
        };
        if size != hs {
            return Err(Error::shape(format!(
                "heads are of {size} numbers in {}, the tables for {hs}",
                x.shape()
            ))
            .help("Rope::new with this head size, which is n_embd / n_head"));
        }
        let Some(end) = start.checked_add(t).filter(|&end| end <= capacity) else {
            let text = format!(
                "positions {start}..{} are beyond the tables' {capacity}",
                start.saturating_add(t)
            );
            return Err(Error::value(text).help("Rope::new with a larger capacity"));
        };
        let rows = |table: &Tensor| table.slice(0, start..end);
        let pair = self.cos.shape();
        let split = x.unflatten(-1, (pair[1], pair[2]))?; // (.., T, 2, hs/2) or (.., T, hs/2, 2)
        let swapped = split.flip(match self.pairs {
            Pairs::Neighbours => -1,
            Pairs::Halves => -2,
        })?;
        let dtype = x.dtype();
        let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let turned =
            map([&split, &swapped, &rows(&self.cos)?, &rows(&self.sin)?], |[x, y, cos, sin]| {
                (x.cast(wide) * cos.cast(wide) + y.cast(wide) * sin.cast(wide)).cast(dtype)
            })?;
        turned.flatten(-2, -1) // (.., T, hs)
    }
}
