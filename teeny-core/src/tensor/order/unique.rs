//! Counting and finding elements: different ones, how many of each, and where they belong.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::tensor::{Tensor, index_end, map};

impl Tensor {
    /// The different elements in ascending order, for each element of self its place among them (in
    /// self's shape), and how often each occurs (`I32`). NaN is different from itself. Zeros are
    /// equal whatever their sign, and the first of equal elements stands for them. Waits for the
    /// device.
    ///
    /// Equivalent: `torch.unique(x, return_inverse=True, return_counts=True)`.
    #[track_caller]
    pub fn unique(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("unique").on([("x", Some(self))]);
        let (sorted, order) = self.reshape(-1)?.sort(0, false)?;
        let starts = starts(&sorted.unsqueeze(1)?)?; // (n)
        let (places, inverse, counts) = groups(&starts, Some(&order))?;
        Ok((sorted.index_select(0, &places)?, inverse.reshape(self.shape())?, counts))
    }

    /// The different slices along `axis` in ascending order (compared element by element), for each
    /// slice of self its place among them, and how often each occurs (`I32`). Waits for the device.
    ///
    /// Equivalent: `torch.unique(x, dim=axis, return_inverse=True, return_counts=True)`.
    #[track_caller]
    pub fn unique_slices(&self, axis: isize) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("unique_slices").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let rows = self.movedim(axis, 0)?;
        let sizes = rows.shape().to_vec();
        let width: usize = sizes[1..].iter().product();
        // Its columns are sorted by one after another: a repeated axis must not repeat that for
        // longer than memory allows.
        let rows = rows.reshape((sizes[0], width))?.contiguous()?; // (n, width)
        // Stable sorts from the last element to the first leave the rows in lexicographic order.
        let mut order = Tensor::arange(0i32, index_end(sizes[0])?, 1, self)?; // (n)
        for column in (0..if rows.numel() > 0 { width } else { 0 }).rev() {
            let keys = rows.at(1, column as isize)?.index_select(0, &order)?;
            order = order.index_select(0, &keys.argsort(0, false)?)?;
        }
        let sorted = rows.index_select(0, &order)?;
        let (places, inverse, counts) = groups(&starts(&sorted)?, Some(&order))?;
        let mut shape = sizes;
        shape[0] = places.numel();
        Ok((sorted.index_select(0, &places)?.reshape(shape)?.movedim(0, axis)?, inverse, counts))
    }

    /// [`Tensor::unique`] of a sequence that is not sorted: every run of equal neighbours (of self
    /// flattened) becomes one element.
    ///
    /// Equivalent: `torch.unique_consecutive(x, return_inverse=True, return_counts=True)`.
    #[track_caller]
    pub fn unique_consecutive(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("unique_consecutive").on([("x", Some(self))]);
        let flat = self.reshape(-1)?;
        let (places, inverse, counts) = groups(&starts(&flat.unsqueeze(1)?)?, None)?;
        Ok((flat.index_select(0, &places)?, inverse.reshape(self.shape())?, counts))
    }

    /// The positions (`I32`) where `values` would be inserted into self, ascending along its last
    /// axis, to keep it ascending: before equal elements, or after them if `right`. A vector takes
    /// values of any shape; (.., n) takes (.., m) with the same leading axes. NaN belongs behind
    /// everything.
    ///
    /// # Errors
    /// If the shapes do not fit.
    ///
    /// Equivalent: `torch.searchsorted`.
    #[track_caller]
    pub fn searchsorted(&self, values: &Tensor, right: bool) -> Result<Tensor> {
        let _op = enter("searchsorted").on([("x", Some(self)), ("values", Some(values))]);
        let ndim = self.ndim();
        let fits = ndim == 1
            || ndim > 1
                && values.ndim() == ndim
                && self.shape()[..ndim - 1] == values.shape()[..ndim - 1];
        if !fits {
            return Err(Error::shape(format!(
                "values {} do not fit {}: an ascending vector, or equal leading axes",
                values.shape(),
                self.shape()
            ))
            .help(match self.ndim() {
                0 => "self.reshape(1)? is a vector",
                _ => "a vector takes values of any shape: self.reshape(-1)? if it is ascending",
            }));
        }
        let n = self.shape()[ndim - 1];
        let end = index_end(n)?;
        let rows: usize = self.shape()[..ndim - 1].iter().product();
        let mut place = Tensor::zeros(values.shape(), DType::I32, values)?;
        if n == 0 || values.numel() == 0 {
            return Ok(place);
        }
        let (sorted, wanted) = (self.reshape((rows, n))?, values.reshape((rows, -1))?);
        place = place.reshape((rows, -1))?;
        // Binary search, all at once: a step forward is taken where the last element it would pass
        // belongs before the value.
        let mut step = 1i32 << end.ilog2();
        while step > 0 {
            let after = place.add(step)?;
            let passed = sorted.gather(1, &after.minimum(end)?.sub(1)?)?;
            let inside = after.le(end)?;
            place = map(
                [&place, &after, &inside, &passed, &wanted],
                |[place, after, inside, s, v]| {
                    let before = if right { s.gt(v).not() } else { s.ge(v).not() };
                    inside.and(before).select(after, place)
                },
            )?;
            step /= 2;
        }
        place.reshape(values.shape())
    }

    /// How often each of `0, 1, ..` occurs, or the sums of `weights` (self's shape) by element: a
    /// vector of at least `min_length`, longer if an element is larger; counts are `I64`. Waits for
    /// the device.
    ///
    /// # Errors
    /// If the elements are not integers from 0 on, or the shapes differ.
    ///
    /// Equivalent: `torch.bincount`, for any shape.
    #[track_caller]
    pub fn bincount(&self, weights: Option<&Tensor>, min_length: usize) -> Result<Tensor> {
        let _op = enter("bincount").on([("x", Some(self)), ("weights", weights)]);
        crate::tensor::index::integers("x", self)?;
        let flat = self.reshape(-1)?;
        let len = match flat.numel() {
            0 => 0,
            _ => flat.max_all()?.cast(DType::I64)?.item::<i64>()?.max(0) as usize + 1,
        };
        let (one, dtype) = match weights {
            Some(weights) if weights.shape() != self.shape() => {
                return Err(Error::shape(format!(
                    "weights {} for {}: one for each element is needed",
                    weights.shape(),
                    self.shape()
                ))
                .help(format!("weights.expand({})? repeats axes of size 1", self.shape())));
            }
            Some(weights) => (weights.reshape(-1)?, weights.dtype()),
            None => (Tensor::ones((), DType::I64, self)?, DType::I64),
        };
        Tensor::zeros(len.max(min_length), dtype, self)?.scatter_add(0, &flat, &one).map_err(
            |error| match error.kind() {
                ErrorKind::Index => error.help(
                    "integers from 0 on are counted: x.sub(&x.min_all()?)? moves the smallest to 0",
                ),
                _ => error,
            },
        )
    }

    /// How many elements (flattened) lie in each of `bins` equal intervals of `range`, the last one
    /// closed (`I64`), and their edges (bins + 1). Without a range: from the smallest to the
    /// largest element, which waits for the device. Elements outside, and NaN, are not counted.
    ///
    /// # Errors
    /// If there are no bins, the type is not a float, or the range is empty or not finite.
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
            return Err(Error::value(format!("no {bins} intervals from {low} to {high}"))
                .help("at least one interval, and finite bounds in ascending order: x.histogram(10, Some((0.0, 1.0)))?"));
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
        // The range or its reciprocal overflows: binary search.
        edges.searchsorted(flat, true)?.sub(1)?.clamp(0, last)
    }
}

/// True where a row of (n, width) differs from the one above, and for the first.
fn starts(rows: &Tensor) -> Result<Tensor> {
    let n = rows.shape()[0];
    let first = Tensor::ones(n.min(1), DType::Bool, rows)?;
    let changes = rows.slice(0, n.min(1)..)?.ne(&rows.slice(0, ..n.saturating_sub(1))?)?.any(1)?;
    Tensor::cat(&[&first, &changes], 0)
}

/// Where the groups of a sequence begin, the group of each element (of the sequence in the `order`
/// it came from), and the sizes of the groups.
fn groups(starts: &Tensor, order: Option<&Tensor>) -> Result<(Tensor, Tensor, Tensor)> {
    let places = starts.true_positions()?; // (groups)
    let rank = starts.cast(DType::I32)?.cumsum(0)?.sub(1)?.cast(DType::I32)?; // (n)
    let inverse = match order {
        Some(order) => rank.zeros_like()?.scatter(0, order, &rank)?,
        None => rank,
    };
    let end = Tensor::new([index_end(starts.numel())?], starts)?;
    let ends = Tensor::cat(
        &[&places.slice(0, places.numel().min(1)..)?, &end.slice(0, ..places.numel().min(1))?],
        0,
    )?;
    Ok((places.clone(), inverse, ends.sub(&places)?))
}
