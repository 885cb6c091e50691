//! The adapters of one weight, and the values that replace a parameter.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teeny_core::{Capture, Result, Tensor};
use teeny_nn::store::{Adapter, Param, Reader, Value};
use teeny_nn::{Dropout, Module};

/// Whether adapters are active: one for all of a [`super::Lora`].
pub(super) struct Enabled(AtomicBool);

impl Enabled {
    pub fn new(on: bool) -> Arc<Enabled> {
        Arc::new(Enabled(AtomicBool::new(on)))
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }

    /// [`Enabled::is_on`] for a computation: a captured function is recorded again if it changes.
    fn is_read(self: &Arc<Self>) -> bool {
        if Capture::is_recording() {
            let (id, switch) = (Arc::as_ptr(self) as usize, self.clone());
            Capture::depends_on((id, "active"), None, move || switch.is_on().into());
        }
        self.is_on()
    }
}

/// A pair of matrices for some rows of a weight. For an embedding (V, E) they are A (r, V) and B
/// (E, r), and the rows are all.
pub(super) struct Pair {
    pub rows: Range<usize>,
    /// (r, in).
    pub a: Param,
    /// (rows, r).
    pub b: Param,
    pub scale: f64,
}

/// The pairs of one weight, for one kind of reader.
pub(super) struct LowRankAdapter {
    /// By their rows, which do not overlap.
    pub pairs: Vec<Pair>,
    /// The rows of the weight.
    pub rows: usize,
    pub reader: Reader,
    pub dropout: Dropout,
    pub switch: Arc<Enabled>,
}

impl LowRankAdapter {
    /// The summand of `pair` for `h`, an input times A: (.., r) → (.., rows).
    fn product(pair: &Pair, h: &Tensor) -> Result<Tensor> {
        h.mul(pair.scale)?.matmul(&pair.b.value().t()?)
    }

    /// The columns of all rows of the weight: the products of the pairs, and zeros between them.
    fn scatter_rows(&self, products: Vec<Tensor>) -> Result<Tensor> {
        let (mut all, mut end) = (Vec::new(), 0);
        let zeros = |like: &Tensor, count: usize| {
            let outer = like.shape().split_last().map_or(&[][..], |(_, outer)| outer);
            let shape: Vec<usize> = outer.iter().copied().chain([count]).collect();
            Tensor::zeros((), like.dtype(), like)?.expand(shape)
        };
        for (pair, product) in self.pairs.iter().zip(products) {
            if pair.rows.start > end {
                all.push(zeros(&product, pair.rows.start - end)?);
            }
            end = pair.rows.end;
            all.push(product);
        }
        if let Some(last) = all.last().filter(|_| end < self.rows) {
            let gap = zeros(last, self.rows - end)?;
            all.push(gap);
        }
        match &all[..] {
            [one] => Ok(one.clone()),
            all => Tensor::cat(all, -1),
        }
    }
}

/// `y + delta` in the higher of both types, as the type of `y`.
fn added(y: &Tensor, delta: &Tensor) -> Result<Tensor> {
    let dtype = y.dtype().promote(delta.dtype());
    y.cast(dtype)?.add(delta.cast(dtype)?)?.cast(y.dtype())
}

impl Adapter for LowRankAdapter {
    fn linear(&self, x: &Tensor, y: Tensor) -> Result<Tensor> {
        let first = self.pairs.first().filter(|_| self.reader == Reader::Linear);
        let Some(first) = first.filter(|_| self.switch.is_read()) else { return Ok(y) };
        let x = self.dropout.forward(&x.cast(first.a.value().dtype())?)?; // (.., in)
        let delta = match &self.pairs[..] {
            [pair] => {
                self.scatter_rows(vec![Self::product(pair, &x.matmul(&pair.a.value().t()?)?)?])?
            }
            pairs => {
                // one product with the A of all pairs
                let a: Vec<Tensor> = pairs.iter().map(|pair| pair.a.value()).collect();
                let ranks: Vec<usize> = a.iter().map(|a| a.shape()[0]).collect();
                let a = Tensor::cat(&a, 0)?; // (sum of r, in)
                let h = x.matmul(&a.t()?)?.split_sizes(-1, &ranks)?; // (.., r) each
                let products = pairs.iter().zip(&h).map(|(pair, h)| Self::product(pair, h));
                self.scatter_rows(products.collect::<Result<_>>()?)?
            }
        }; // (.., out)
        added(&y, &delta)
    }

    fn rows(&self, ids: &Tensor, y: Tensor) -> Result<Tensor> {
        let first = self.pairs.first().filter(|_| self.reader == Reader::Rows);
        let Some(pair) = first.filter(|_| self.switch.is_read()) else { return Ok(y) };
        let h = pair.a.value().t()?.index_select(0, ids)?; // (.., r)
        added(&y, &Self::product(pair, &h)?) // (.., E)
    }
}

/// `value` with `own` in the place of `rows`, which may be all.
pub(super) fn replaced(value: Value, rows: &Range<usize>, own: &Tensor) -> Result<Tensor> {
    let all = match value {
        Value::Plain(all) => all,
        Value::Quantized(all) if all.shape() == own.shape()[..] => return Ok(own.clone()),
        Value::Quantized(all) => all.dequantize()?.cast(own.dtype())?,
    };
    if all.shape() == own.shape() {
        return Ok(own.clone());
    }
    all.slice_assign(0, rows.start as isize..rows.end as isize, own)
}

/// A value in the place of some rows of a parameter, or of all.
pub(super) struct Replacement {
    pub value: Param,
    pub rows: Range<usize>,
    pub reader: Reader,
    pub switch: Arc<Enabled>,
}

impl Adapter for Replacement {
    fn value(&self, reader: Reader, value: Value) -> Result<Value> {
        if reader != self.reader || !self.switch.is_read() {
            return Ok(value);
        }
        replaced(value, &self.rows, &self.value.value()).map(Value::Plain)
    }
}
