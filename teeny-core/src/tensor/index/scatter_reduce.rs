//! Scatters by further reductions, additions at an index, and bags of embeddings.

use crate::context::{Positions, enter, positions_of};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::index_end;
use crate::tensor::elementwise::{Either, Operand};
use crate::tensor::{IntoIndex, Side, Tensor, map, map_rows};

/// How [`Tensor::scatter_reduce`] combines the elements that go to one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScatterReduce {
    /// Their sum.
    Sum,
    /// Their product.
    Prod,
    /// Their mean; of integers rounded down.
    Mean,
    /// The largest.
    Amax,
    /// The smallest.
    Amin,
}

/// How [`Tensor::embedding_bag`] combines the rows of a bag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BagMode {
    /// Their sum.
    Sum,
    /// Their mean, the default.
    #[default]
    Mean,
    /// The largest of each column.
    Max,
}

const OFFSETS: &Positions = &Positions {
    name: "offsets",
    expected: Some([
        "0 at first, then at least the one before, and at most the number of ids",
        "each offset is where a bag begins; equal ones make an empty bag",
    ]),
};

impl Tensor {
    /// A copy of self in which place `index[i][j], j` (for axis 0 of 2, and so on) is the reduction
    /// of all `src[i][j]` that go there, together with the former element if `include_self`. Other
    /// places stay. A product takes time for each pair of an element and a place along the axis.
    ///
    /// # Errors
    /// As [`Tensor::scatter`].
    ///
    /// Equivalent: `torch.scatter_reduce`.
    #[track_caller]
    pub fn scatter_reduce(
        &self,
        axis: isize,
        index: &Tensor,
        src: &Tensor,
        reduce: ScatterReduce,
        include_self: bool,
    ) -> Result<Tensor> {
        let _op = enter("scatter_reduce").on([
            ("x", Some(self)),
            ("index", Some(index)),
            ("src", Some(src)),
        ]);
        let src = src.cast(self.dtype())?.expand(index.shape())?;
        // The former elements, or a start that has no effect where elements go to.
        let with = |start: f64| match include_self {
            true => Ok(self.clone()),
            false => self.scatter(axis, index, &Tensor::full((), start, self.dtype(), self)?),
        };
        match reduce {
            ScatterReduce::Sum => with(0.0)?.scatter_add(axis, index, &src),
            ScatterReduce::Amax => with(f64::NEG_INFINITY)?.scatter_max(axis, index, &src),
            ScatterReduce::Amin => with(f64::INFINITY)?.scatter_min(axis, index, &src),
            ScatterReduce::Mean => {
                let sum = with(0.0)?.scatter_add(axis, index, &src)?;
                let one = Tensor::ones((), DType::I32, self)?;
                let start = Tensor::full(self.shape(), include_self as i32, DType::I32, self)?;
                let count = start.scatter_add(axis, index, &one)?.maximum(1)?;
                if self.dtype().is_float() {
                    sum.div(&count.cast(self.dtype())?)
                } else {
                    sum.floor_div(&count.cast(self.dtype())?)
                }
            }
            ScatterReduce::Prod => {
                let product = product_at(self, axis, index, &src)?;
                with(1.0)?.mul(&product)
            }
        }
    }

    /// A copy of self with `value` added to the part that `index` names, as in [`Tensor::index`];
    /// an element that is named several times is added to as often.
    ///
    /// # Errors
    /// As [`Tensor::assign`].
    ///
    /// Equivalent: `torch.index_put(x, indices, value, accumulate=True)`, `numpy.add.at`.
    #[doc(alias = "at")]
    #[track_caller]
    #[doc(alias = "index_put")]
    pub fn assign_add(&self, index: impl IntoIndex, value: impl Operand) -> Result<Tensor> {
        let _op = enter("assign_add").on([("x", Some(self)), ("value", value.operand().tensor())]);
        let value = match value.operand() {
            Either::Tensor(value) => value.cast(self.dtype())?,
            Either::Number(number) => Tensor::full((), number, self.dtype(), self)?,
        };
        let numbers = Tensor::arange(0i32, index_end(self.numel())?, 1, self)?;
        let places = numbers.reshape(self.shape())?.index(index)?;
        let value = value.expand(places.shape())?.reshape(-1)?;
        self.reshape(-1)?.index_add(0, &places.reshape(-1)?, &value)?.reshape(self.shape())
    }

    /// The rows of self (n, C), an embedding, that the `ids` name, reduced bag by bag: ids (B, L)
    /// are B bags; ids (L) with `offsets` (B) are bags that begin there, the first of which is 0.
    /// Gives (B, C); an empty bag gives 0.
    ///
    /// # Errors
    /// If the shapes do not fit, ids or offsets are not integers, an id is outside the rows, or
    /// offsets do not begin with 0, decrease, or are larger than L.
    ///
    /// Equivalent: `torch.nn.functional.embedding_bag(ids, self, offsets, mode=..)`.
    #[track_caller]
    pub fn embedding_bag(
        &self,
        ids: &Tensor,
        offsets: Option<&Tensor>,
        mode: BagMode,
    ) -> Result<Tensor> {
        let _op = enter("embedding_bag").on([
            ("x", Some(self)),
            ("ids", Some(ids)),
            ("offsets", offsets),
        ]);
        let (zeros, bags) = match (ids.ndim(), offsets) {
            (2, None) => {
                let [b, l] = [ids.shape()[0], ids.shape()[1]];
                let bags = Tensor::arange(0i32, index_end(b)?, 1, self)?.unsqueeze(1)?;
                let zeros = Tensor::zeros((b, self.size(1)?), self.dtype(), self)?;
                (zeros, bags.expand((b, l))?.reshape(-1)?)
            }
            (1, Some(offsets)) if offsets.ndim() == 1 => {
                offsets.require_int("offsets")?;
                let (count, end) = (offsets.numel(), index_end(ids.numel())?);
                if count == 0 && end > 0 {
                    return Err(Error::value(format!("no offsets for {end} ids"))
                        .help("the first bag begins at 0: Tensor::new([0], device)? is one bag"));
                }
                let wide = offsets.cast(DType::I64)?; // (B)
                let before = wide.roll(0, 1)?;
                let first = Tensor::arange(0i32, index_end(count)?, 1, self)?.eq(0)?;
                let legal = map([&wide, &before, &first], |[x, before, first]| {
                    first.where_cond(x.eq(0), x.ge(before)).and(x.le(end))
                })?;
                let starts = offsets.checked(&legal, OFFSETS)?; // (B)
                let places = Tensor::arange(0i32, end, 1, self)?;
                // the result of no ids depends on the offsets, too
                let zeros = starts.lt(0)?.cast(self.dtype())?.unsqueeze(1)?;
                let bags = starts.searchsorted(&places, Side::Right)?.sub(1)?;
                (zeros.expand((count, self.size(1)?))?, bags)
            }
            _ => {
                return Err(Error::shape(format!(
                    "ids {} {} offsets are not bags",
                    ids.shape(),
                    if offsets.is_some() { "with" } else { "without" }
                ))
                .help("pass ids (B, L), or ids (L) and a vector of offsets"));
            }
        };
        let named = positions_of(const { &Positions::of("ids") });
        let rows = self.index_select(0, &ids.reshape(-1)?)?; // (L, C)
        drop(named);
        let bags = bags.unsqueeze(1)?.expand(rows.shape())?; // (L, C)
        let reduce = match mode {
            BagMode::Sum => ScatterReduce::Sum,
            BagMode::Mean => ScatterReduce::Mean,
            BagMode::Max => ScatterReduce::Amax,
        };
        zeros.scatter_reduce(0, &bags, &rows, reduce, false)
    }
}

/// In the shape of `x` the product of all elements of `src` that go to each place, 1 of none.
fn product_at(x: &Tensor, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
    // Checks the shapes and positions, as every scatter does.
    let ones = x.ones_like()?.scatter(axis, index, &Tensor::ones((), x.dtype(), x)?)?;
    let axis = x.shape().axis(axis)? as isize;
    let size = x.size(axis)?;
    let places = Tensor::arange(0i32, index_end(size)?, 1, x)?.unsqueeze(1)?; // (D, 1)
    let last = |t: &Tensor| t.movedim(axis, -1)?.unsqueeze(-2); // (.., 1, S)
    let (index, src) = (last(index)?, last(src)?);
    let product = map_rows([&index, &places, &src], -1, |[index, place, src]| {
        index.eq(place).where_cond(src, src.like(1)).prod().cast(src.dtype())
    })?; // (.., D, 1)
    let product = product.squeeze(-1)?.movedim(-1, axis)?;
    // `index` may be shorter than `x` along other axes.
    let part = |x: &Tensor| {
        (0..x.ndim()).try_fold(x.clone(), |x, a| x.slice(a as isize, ..product.shape()[a]))
    };
    ones.assign_view(part, &product)
}
