//! [`Rope`]: rotary position embedding.
//!
//! Pairs of elements of a query or key are rotated by an angle that grows with the position, so
//! that a score depends on the distance of two tokens:
//!
//! ```text
//! (a, b) at position p  →  (a cos pθᵢ - b sin pθᵢ,  a sin pθᵢ + b cos pθᵢ),   θᵢ = base^(-2i / hs)
//! ```
//!
//! With a view that swaps the elements of each pair, this is `x cos + swapped(x) (∓sin)`: one
//! kernel over tables that are computed once.

use crate::options::options;
use std::sync::{Arc, OnceLock};
use teeny_core::context::enter;
use teeny_core::{DType, DeviceRef, Element, Error, Result, Tensor, ToDevice, map, memory};

/// The pairs of elements of a head that are rotated together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RopePairing {
    /// `(x[2i], x[2i + 1])`, as in the paper and in Meta's Llama.
    Interleaved,
    /// `(x[i], x[i + hs/2])`, as in GPT-NeoX and Hugging Face's Llama.
    #[default]
    Halves,
}

options! {
    /// Options of a [`Rope`].
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct RopeOptions {
        /// The base of the angles' wavelengths; 10,000.
        base: f64 = 10_000.0, with_base;
        /// The pairs of elements that are rotated together; halves.
        pairing: RopePairing = RopePairing::Halves, with_pairing;
    }
}

/// Tables of cosines and sines for heads of one size.
///
/// [`super::RopeScaling`] has the frequencies of models for long texts.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::{attention::Rope, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let device = device("cpu")?;
/// let rope = Rope::new(8, 1024, &device)?;
/// let q = Tensor::randn((1, 4, 3, 8), DType::F32, &device)?; // (B, n_head, T, hs)
/// let rotated = rope.apply(&q, 0)?; // position 0 is unchanged
/// assert_eq!(rotated.at(2, 0)?.to_vec::<f32>()?, q.at(2, 0)?.to_vec::<f32>()?);
/// # Ok(()) }
/// ```
/// Source: Su et al. 2021, arXiv:2104.09864.
#[derive(Clone, Debug)]
pub struct Rope {
    /// The cosines and sines in f32, (capacity, 2, hs/2) or (capacity, hs/2, 2) each: the cosine of
    /// each angle, for both elements; minus the sine for the first, the sine for the second.
    tables: [Tensor; 2],
    /// As `tables`, in f64, once they are needed.
    wide: Arc<OnceLock<[Tensor; 2]>>,
    angles: Angles,
    /// hs; elements of a head after the pairs are not rotated.
    head_size: usize,
}

impl Rope {
    /// Tables for heads of size `hs` and positions below `capacity`, with the default options.
    ///
    /// # Errors
    /// If `hs` is odd or 0.
    #[track_caller]
    pub fn new(hs: usize, capacity: usize, device: impl ToDevice) -> Result<Rope> {
        let _op = enter("Rope::new");
        Rope::with_options(hs, capacity, RopeOptions::default(), device)
    }

    /// Tables with `options`.
    ///
    /// # Errors
    /// If `hs` is odd or 0, or the base is not positive.
    #[track_caller]
    pub fn with_options(
        hs: usize,
        capacity: usize,
        options: RopeOptions,
        device: impl ToDevice,
    ) -> Result<Rope> {
        let _op = enter("Rope::with_options");
        let (RopeOptions { base, pairing }, device) = (options, device.to_device());
        if hs == 0 || !hs.is_multiple_of(2) {
            return Err(Error::value(format!(
                "the head size is {hs}, but pairs need an even size"
            ))
            .help("hs must be even and at least 2"));
        }
        if !(base > 0.0 && base.is_finite()) {
            return Err(Error::value(format!(
                "the base is {base}, but must be positive and finite"
            ))
            .help("10,000 is usual"));
        }
        let frequency = |i: usize| base.powf(-2.0 * i as f64 / hs as f64);
        let frequencies: Vec<f64> = (0..hs / 2).map(frequency).collect();
        Rope::from_frequencies(&frequencies, 1.0, hs, capacity, pairing, device)
    }

    /// Tables with the angles `position * frequencies[i]` and cosines and sines times `factor`. The
    /// first `2 * frequencies.len()` elements of a head are rotated, the rest stays as it is.
    ///
    /// # Errors
    /// If `frequencies` is empty, has more entries than a head has pairs, or a number is not
    /// finite.
    #[track_caller]
    pub fn from_frequencies(
        frequencies: &[f64],
        factor: f64,
        hs: usize,
        capacity: usize,
        pairing: RopePairing,
        device: impl ToDevice,
    ) -> Result<Rope> {
        let _op = enter("Rope::from_frequencies");
        let (device, half) = (device.to_device(), frequencies.len());
        if half == 0 || half > hs / 2 {
            return Err(Error::value(format!(
                "{half} frequencies do not fit the pairs of a head of size {hs}"
            ))
            .help("pass at least one, and at most hs / 2"));
        }
        if let Some(x) = frequencies.iter().chain([&factor]).find(|x| !x.is_finite()) {
            return Err(Error::value(format!("expected finite frequencies and factor, got {x}"))
                .help("a file with such numbers is damaged"));
        }
        let angles = Angles { frequencies: frequencies.to_vec(), factor, capacity, pairing };
        let tables = angles.tables(&device, |x| x as f32)?;
        Ok(Rope { tables, wide: Arc::default(), angles, head_size: hs })
    }

    /// The cosines and sines for inputs of this type.
    fn tables(&self, dtype: DType) -> Result<&[Tensor; 2]> {
        match (dtype, self.wide.get()) {
            (DType::F64, Some(wide)) => Ok(wide),
            (DType::F64, None) => {
                let wide = self.angles.tables(self.tables[0].device(), |x| x)?;
                Ok(self.wide.get_or_init(|| wide))
            }
            _ => Ok(&self.tables),
        }
    }

    /// Rotates `x` (.., T, hs), whose rows are the positions `start..start + T`. Computes in f32 or
    /// f64; the result has the dtype of `x`.
    ///
    /// # Errors
    /// If the tables have another head size or too few positions.
    #[track_caller]
    pub fn apply(&self, x: &Tensor, start: usize) -> Result<Tensor> {
        let _op = enter("rope");
        let capacity = self.angles.capacity;
        let t = self.check(x)?;
        let Some(end) = start.checked_add(t).filter(|&end| end <= capacity) else {
            let text = format!(
                "positions {start}..{} are beyond the tables' {capacity}",
                start.saturating_add(t)
            );
            return Err(Error::value(text).help("Rope::new with a larger capacity"));
        };
        let rows = |table: &Tensor| table.slice(0, start..end); // (T, 2, hs/2)
        let [cos, sin] = self.tables(x.dtype())?;
        self.rotate(x, [rows(cos)?, rows(sin)?])
    }

    /// Rotates `x` (B, n, T, hs), whose rows have the positions `positions` (B, T) of integers.
    /// Everything else as [`Rope::apply`].
    ///
    /// # Errors
    /// As [`Rope::apply`]; if `positions` do not fit `x`.
    #[track_caller]
    pub fn apply_at(&self, x: &Tensor, positions: &Tensor) -> Result<Tensor> {
        let _op = enter("rope");
        let t = self.check(x)?;
        if x.ndim() != 4 || positions.shape()[..] != [x.shape()[0], t] {
            return Err(Error::shape(format!(
                "cannot rotate {} by positions of {}",
                x.shape(),
                positions.shape()
            ))
            .help("(B, T) for x of (B, n, T, hs)"));
        }
        let rows = |table: &Tensor| table.index_select(0, positions)?.unsqueeze(1);
        let named = |error: Error| error.note("the tables have a row for each position");
        let [cos, sin] = self.tables(x.dtype())?;
        let tables = rows(cos).and_then(|cos| Ok([cos, rows(sin)?]));
        self.rotate(x, tables.map_err(named)?) // (B, 1, T, 2, hs/2)
    }

    /// T of `x` (.., T, hs).
    fn check(&self, x: &Tensor) -> Result<usize> {
        let &[.., t, size] = &x.shape()[..] else {
            return Err(Error::shape(format!("needs (.., T, hs), not {}", x.shape()))
                .help("x.unsqueeze(0)? adds an axis"));
        };
        if size == self.head_size {
            return Ok(t);
        }
        Err(Error::shape(format!(
            "the head size is {size} in {}, but {} in the tables",
            x.shape(),
            self.head_size
        ))
        .help("Rope::new with this head size, which is n_embd / n_head"))
    }

    /// `x` (.., T, hs) rotated by cosines and sines of its rows.
    fn rotate(&self, x: &Tensor, [cos, sin]: [Tensor; 2]) -> Result<Tensor> {
        let pair = [self.tables[0].shape()[1], self.tables[0].shape()[2]];
        let rotated = pair[0] * pair[1];
        if rotated < self.head_size {
            let size = rotated as isize;
            let pairs = self.rotate_pairs(&x.slice(-1, ..size)?, pair, [cos, sin])?;
            return Tensor::cat(&[&pairs, &x.slice(-1, size..)?], -1);
        }
        self.rotate_pairs(x, pair, [cos, sin])
    }

    fn rotate_pairs(&self, x: &Tensor, pair: [usize; 2], tables: [Tensor; 2]) -> Result<Tensor> {
        // (.., T, 2, hs/2) or (.., T, hs/2, 2)
        let split = x.unflatten(-1, (pair[0], pair[1]))?;
        let swapped = split.flip(match self.angles.pairing {
            RopePairing::Interleaved => -1,
            RopePairing::Halves => -2,
        })?;
        let dtype = x.dtype();
        let compute = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        let [cos, sin] = &tables;
        let rotated = map([&split, &swapped, cos, sin], |[x, y, cos, sin]| {
            (x.cast(compute) * cos.cast(compute) + y.cast(compute) * sin.cast(compute)).cast(dtype)
        })?;
        rotated.flatten(-2, -1) // (.., T, hs)
    }
}

/// The angles `position * frequencies[i]`, whose cosines and sines are multiplied by `factor`.
#[derive(Clone, Debug)]
struct Angles {
    frequencies: Vec<f64>,
    factor: f64,
    capacity: usize,
    pairing: RopePairing,
}

impl Angles {
    /// The tables of a [`Rope`], rounded by `to`.
    fn tables<T: Element>(&self, device: &DeviceRef, to: fn(f64) -> T) -> Result<[Tensor; 2]> {
        let half = self.frequencies.len();
        let shape = match self.pairing {
            RopePairing::Interleaved => (self.capacity, half, 2),
            RopePairing::Halves => (self.capacity, 2, half),
        };
        // a device that is out of memory fails here, before the host computes the values
        let zeros = || Tensor::zeros(shape, T::DTYPE, device);
        let tables = [zeros()?, zeros()?];
        let mut cos = memory::filled(to(0.0), self.capacity * half * 2)?;
        let mut sin = memory::filled(to(0.0), self.capacity * half * 2)?;
        for position in 0..self.capacity {
            for (i, frequency) in self.frequencies.iter().enumerate() {
                let (s, c) = (position as f64 * frequency).sin_cos();
                let (s, c) = (self.factor * s, self.factor * c);
                let (first, second) = match self.pairing {
                    RopePairing::Interleaved => (2 * i, 2 * i + 1),
                    RopePairing::Halves => (i, i + half),
                };
                let row = position * half * 2;
                (cos[row + first], cos[row + second]) = (to(c), to(c));
                (sin[row + first], sin[row + second]) = (to(-s), to(s));
            }
        }
        drop(tables);
        Ok([Tensor::from_vec(cos, shape, device)?, Tensor::from_vec(sin, shape, device)?])
    }
}
