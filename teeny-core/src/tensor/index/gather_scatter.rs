//! Reading and writing by index tensors: gather, scatter and operations made of them. The device
//! checks the positions.

use super::advanced::from_front;
use crate::context::{Positions, enter, positions_of};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::messages::{BROADCAST, index_fits, only_set};
use crate::op::{Op, ScatterMode};
use crate::tensor::one_device::on_one_device;
use crate::tensor::{Tensor, map};

impl Tensor {
    /// `out[i][j] = x[index[i][j]][j]` for axis 0 of 2, and so on. `index` holds positions of any
    /// integer type, has as many axes as self, and is not longer than self on the other axes; the
    /// result has its shape.
    ///
    /// # Errors
    /// If the shapes do not fit, `index` is not of integers, or a position is outside the axis (the
    /// first offender is named).
    ///
    /// Equivalent: `torch.gather`.
    #[track_caller]
    pub fn gather(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        let _op = enter("gather").on([("x", Some(self)), ("index", Some(index))]);
        let axis = self.shape().axis(axis)?;
        let (_, operands) = on_one_device(&[self, index])?;
        let (x, index) = (&operands[0], &operands[1]);
        index.require_int("index")?;
        index_fits(x.shape(), index.shape(), axis)?;
        Op::Gather { x, axis, index }.tensor(x.device())
    }

    /// Whole slices along `axis`, in the order of the positions in `index`, a tensor of any shape,
    /// whose axes replace `axis`.
    ///
    /// `embedding.index_select(0, &ids)` with ids (B, T) gives (B, T, C).
    ///
    /// # Errors
    /// If `index` is not of integers, or a position is outside the axis.
    ///
    /// Equivalent: `torch.index_select`, for more than one index axis `x[.., index, ..]`.
    #[track_caller]
    pub fn index_select(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        let _op = enter("index_select").on([("x", Some(self)), ("index", Some(index))]);
        let axis = self.shape().axis(axis)?;
        index.require_int("index")?;
        let flat = index.reshape(-1)?; // (n)
        let mut stretched = vec![1; self.ndim()];
        stretched[axis] = flat.numel();
        let full = self.shape().resized(axis, flat.numel())?;
        let rows = self.gather(axis as isize, &flat.reshape(stretched)?.expand(full)?)?;
        let mut sizes = self.shape()[..axis].to_vec();
        sizes.extend_from_slice(index.shape());
        sizes.extend_from_slice(&self.shape()[axis + 1..]);
        rows.reshape(sizes)
    }

    /// [`Tensor::gather`] whose positions may be negative (counted from the end), and where axes of
    /// size 1 of self and `index` broadcast, except `axis`.
    ///
    /// # Errors
    /// As [`Tensor::gather`].
    ///
    /// Equivalent: `torch.take_along_dim`, `numpy.take_along_axis`;
    /// `x.take_along(axis, &x.argsort(axis, SortOrder::Ascending)?)` sorts.
    #[doc(alias = "take_along_dim", alias = "take_along_axis")]
    #[track_caller]
    pub fn take_along(&self, axis: isize, index: &Tensor) -> Result<Tensor> {
        let _op = enter("take_along").on([("x", Some(self)), ("index", Some(index))]);
        let axis = self.shape().axis(axis)?;
        index.require_int("index")?;
        let others = |x: &Tensor| x.shape().with_size(axis, 1);
        let common =
            (index.ndim() == self.ndim()).then(|| others(self).broadcast(&others(index))).flatten();
        let Some(common) = common else {
            return Err(Error::shape(format!(
                "{} and index {} do not broadcast on the axes other than {axis}",
                self.shape(),
                index.shape()
            ))
            .help(format!(
                "index needs {} axes, each of the size in x or 1, except axis {axis}",
                self.ndim()
            )));
        };
        let size = self.shape()[axis];
        let places = from_front(index, size)?.expand(common.resized(axis, index.shape()[axis])?)?;
        self.expand(common.resized(axis, size)?)?.gather(axis as isize, &places)
    }

    /// Self, a vector of integers, as `I64`, or the error that `of` describes where `legal` is
    /// false: at the latest when a result is read, as of a position outside its axis.
    #[doc(hidden)]
    #[track_caller]
    pub fn checked(&self, legal: &Tensor, of: &'static Positions) -> Result<Tensor> {
        let _op = enter("checked");
        let _named = positions_of(of);
        let x = self.cast(DType::I64)?;
        // 0 is the only position; `Positions::value` is the inverse of the others.
        let position = map([&x, legal], |[x, legal]| {
            legal.where_cond(x.like(0), x.ge(0).where_cond(-x - 1, -x))
        })?;
        x.add(&Tensor::zeros(1, DType::I64, self)?.gather(0, &position)?)
    }

    /// The elements at the positions in `index` of self flattened; negative ones count from the
    /// end. The result has the shape of `index`.
    ///
    /// # Errors
    /// If `index` is not of integers, or a position is outside.
    ///
    /// Equivalent: `torch.take`.
    #[track_caller]
    pub fn take(&self, index: &Tensor) -> Result<Tensor> {
        let _op = enter("take").on([("x", Some(self)), ("index", Some(index))]);
        index.require_int("index")?;
        self.reshape(-1)?.index(index)
    }

    /// A copy of self with slice i of `src` along `axis` added at position `index[i]`; positions
    /// may repeat. `src` broadcasts to the slices.
    ///
    /// # Errors
    /// If `index` is not a vector of integers, a position is outside the axis, or `src` does not
    /// fit.
    ///
    /// Equivalent: `torch.index_add`.
    #[track_caller]
    pub fn index_add(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        let _op =
            enter("index_add").on([("x", Some(self)), ("index", Some(index)), ("src", Some(src))]);
        let axis = self.shape().axis(axis)?;
        index.require_int("index")?;
        if index.ndim() != 1 {
            return Err(Error::shape(format!("positions must be a vector, not {}", index.shape()))
                .help("index.reshape(-1)? is a vector"));
        }
        let mut along = vec![1; self.ndim()];
        along[axis] = index.numel();
        let full = self.shape().resized(axis, index.numel())?;
        let index = index.reshape(along)?.expand(full)?;
        self.scatter_by("index_add", ScatterMode::Add, axis as isize, &index, src)
    }

    /// A copy of self with `x[index[i][j]][j] = src[i][j]` for axis 0 of 2, and so on; where
    /// positions repeat, the last in row-major order wins.
    ///
    /// # Errors
    /// As [`Tensor::gather`]; `src` must have the shape of `index` (or broadcast to it).
    ///
    /// Equivalent: `torch.scatter`.
    #[track_caller]
    pub fn scatter(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scatter_by("scatter", ScatterMode::Set, axis, index, src)
    }

    /// [`Tensor::scatter`] that adds; positions may repeat. Deterministic. Equivalent:
    /// `torch.scatter_add`.
    #[track_caller]
    pub fn scatter_add(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scatter_by("scatter_add", ScatterMode::Add, axis, index, src)
    }

    /// [`Tensor::scatter`] that keeps the larger. Equivalent: `torch.scatter_reduce(.., "amax")`.
    #[doc(alias = "scatter_reduce")]
    #[track_caller]
    pub fn scatter_max(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scatter_by("scatter_max", ScatterMode::Max, axis, index, src)
    }

    /// [`Tensor::scatter`] that keeps the smaller. Equivalent: `torch.scatter_reduce(.., "amin")`.
    #[doc(alias = "scatter_reduce")]
    #[track_caller]
    pub fn scatter_min(&self, axis: isize, index: &Tensor, src: &Tensor) -> Result<Tensor> {
        self.scatter_by("scatter_min", ScatterMode::Min, axis, index, src)
    }

    /// The scatter `name`.
    #[track_caller]
    fn scatter_by(
        &self,
        name: &'static str,
        mode: ScatterMode,
        axis: isize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<Tensor> {
        let _op = enter(name).on([("x", Some(self)), ("index", Some(index)), ("src", Some(src))]);
        let axis = self.shape().axis(axis)?;
        let src = src.cast(self.dtype())?;
        let (_, operands) = on_one_device(&[self, index, &src])?;
        let (x, index, src) = (&operands[0], &operands[1], &operands[2]);
        index.require_int("index")?;
        index_fits(x.shape(), index.shape(), axis)?;
        if mode != ScatterMode::Set && x.dtype() == crate::DType::Bool {
            return Err(only_set());
        }
        let Some(layout) = src.layout().expand(index.shape()) else {
            return Err(Error::shape(format!(
                "src {} does not broadcast to index {}",
                src.shape(),
                index.shape()
            ))
            .help(BROADCAST));
        };
        let src = src.through(layout);
        Op::Scatter { mode, x, axis, index, src: &src }.tensor(x.device())
    }
}
