//! Counts of elements: by value (`bincount`), and by interval (`histogram`). Both scatter ones into
//! zeros.

use crate::context::{Positions, enter, positions_of};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::shape::index_end;
use crate::tensor::{Side, Tensor, map};

impl Tensor {
    /// The number of occurrences of each of `0, 1, ..`, or the sums of `weights` (self's shape) by
    /// element: a vector of at least `min_length`, longer if an element is larger; counts are
    /// `I64`. Waits for the device.
    ///
    /// # Errors
    /// If the elements are not integers from 0 on, or the shapes differ.
    ///
    /// Equivalent: `torch.bincount`, for any shape.
    #[track_caller]
    pub fn bincount(&self, weights: Option<&Tensor>, min_length: usize) -> Result<Tensor> {
        let _op = enter("bincount").on([("x", Some(self)), ("weights", weights)]);
        self.require_int("x")?;
        let flat = self.reshape(-1)?;
        let len = match flat.numel() {
            0 => 0,
            _ => flat.max_all()?.cast(DType::I64)?.item::<i64>()?.max(0) as usize + 1,
        };
        let (one, dtype) = match weights {
            Some(weights) if weights.shape() != self.shape() => {
                return Err(Error::shape(format!(
                    "weights {} do not fit {}: one for each element is needed",
                    weights.shape(),
                    self.shape()
                ))
                .help(format!("weights.expand({})? repeats axes of size 1", self.shape())));
            }
            Some(weights) => (weights.reshape(-1)?, weights.dtype()),
            None => (Tensor::ones((), DType::I64, self)?, DType::I64),
        };
        let _named = positions_of(const { &Positions::of("x") });
        Tensor::zeros(len.max(min_length), dtype, self)?.scatter_add(0, &flat, &one).map_err(
            |error| match error.kind() {
                ErrorKind::Index => error.help(
                    "integers from 0 on are counted: x.sub(&x.min_all()?)? moves the smallest to 0",
                ),
                _ => error,
            },
        )
    }

    /// The number of elements (flattened) in each of `bins` equal intervals of `range`, the last
    /// one closed (`I64`), and their edges (bins + 1). Without a range: from the smallest to the
    /// largest element, which waits for the device. Elements outside, and NaN, are not counted.
    ///
    /// # Errors
    /// If `bins` is 0, the type is not a float, or the range is empty or not finite.
    ///
    /// Equivalent: `torch.histogram(x, bins, range=..)`, `numpy.histogram`.
    #[track_caller]
    pub fn histogram(&self, bins: usize, range: Option<(f64, f64)>) -> Result<(Tensor, Tensor)> {
        let _op = enter("histogram").on([("x", Some(self))]);
        self.require_float()?;
        let flat = self.reshape(-1)?;
        let (low, high) = match range {
            Some(range) => range,
            None if flat.numel() == 0 => (0.0, 1.0),
            None => {
                let read = |x: Tensor| x.cast(DType::F32)?.item::<f32>().map(f64::from);
                let (low, high) = match self.dtype() {
                    DType::F64 => (flat.min_all()?.item()?, flat.max_all()?.item()?),
                    _ => (read(flat.min_all()?)?, read(flat.max_all()?)?),
                };
                if low == high { (low - 0.5, high + 0.5) } else { (low, high) }
            }
        };
        if bins == 0 || !low.is_finite() || !high.is_finite() || low >= high {
            return Err(Error::value(format!("cannot make {bins} intervals from {low} to {high}"))
                .help(
                    "use at least one interval, and finite bounds in ascending order: \
                 x.histogram(10, Some((0.0, 1.0)))?",
                ));
        }
        let last = index_end(bins)? - 1;
        let edges = Tensor::linspace(low, high, bins + 1, self.dtype(), self)?;
        let guess = self.guess_bins(&flat, &edges, (low, high), last)?; // (n)
        let (below, above) = (edges.gather(0, &guess)?, edges.gather(0, &guess.add(1)?)?);
        let inner = guess.lt(last)?;
        let place = map([&flat, &guess, &below, &above, &inner], |[x, i, below, above, inner]| {
            i - x.lt(below).cast(DType::I32) + x.ge(above).and(inner).cast(DType::I32)
        })?;
        let (first, end) = (edges.at(0, 0)?, edges.at(0, -1)?);
        let outside = map([&flat, &first, &end], |[x, low, high]| x.ge(low).and(x.le(high)).not())?;
        let place = place.masked_fill(&outside, bins as i64)?;
        let counts = Tensor::zeros(bins + 1, DType::I64, self)?.scatter_add(
            0,
            &place,
            &Tensor::ones((), DType::I64, self)?,
        )?;
        Ok((counts.slice(0, ..bins)?, edges))
    }

    /// For each element of `flat` the number of its interval, from 0 to `last`, or one next to it.
    /// An element outside may get any.
    fn guess_bins(
        &self,
        flat: &Tensor,
        edges: &Tensor,
        (low, high): (f64, f64),
        last: i32,
    ) -> Result<Tensor> {
        let wide = self.dtype().compute();
        let (range, factor) = (high - low, (last as f64 + 1.0) / (high - low));
        let ordinary = if wide == DType::F64 {
            f64::MIN_POSITIVE..f64::MAX
        } else {
            f32::MIN_POSITIVE as f64..f32::MAX as f64
        };
        if ordinary.contains(&range) && ordinary.contains(&factor) {
            return flat.cast(wide)?.sub(low)?.mul(factor)?.clamp(0, last)?.cast(DType::I32);
        }
        // Binary search, because the range or its reciprocal overflows.
        edges.searchsorted(flat, Side::Right)?.sub(1)?.clamp(0, last)
    }
}
