//! Advanced items of an index: integers and masks, read by one gather and written by one scatter
//! along the axes that they index, joined into one. `indexing` finds the items.

use super::assign::broadcasts;
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::layout::Layout;
use crate::messages::indices_to;
use crate::op::Op;
use crate::shape::{Shape, index_end};
use crate::tensor::elementwise::broadcast_shape;
use crate::tensor::one_device::on_one_device;
use crate::tensor::{Tensor, map};

/// The advanced items of an index.
pub(super) struct Advanced {
    pub(super) items: Vec<Item>,
    /// Axes of the result before the axes that the items broadcast to.
    pub(super) front: usize,
}

/// An advanced index of consecutive axes of the view.
pub(super) struct Item {
    axes: std::ops::Range<usize>,
    /// The axis of the tensor, for messages.
    named: usize,
    /// Elements of these axes.
    size: usize,
    places: Places,
}

/// The positions that an advanced index selects.
pub(super) enum Places {
    /// Integers; negative ones count from the end.
    Positions(Tensor),
    /// Bools in the shape of the axes.
    Mask(Tensor),
}

impl Item {
    pub(super) fn new(axis: usize, named: usize, view: &Layout, places: Places) -> Item {
        let count = if let Places::Mask(mask) = &places { mask.ndim() } else { 1 };
        let axes = axis..axis + count;
        Item { size: view.shape()[axes.clone()].iter().product(), axes, named, places }
    }

    /// The positions as the user gives them.
    fn positions(&self) -> Result<Tensor> {
        match &self.places {
            Places::Mask(mask) => mask.true_positions(),
            Places::Positions(x) => Ok(x.clone()),
        }
    }

    /// The first position outside the axis, in words.
    fn outside(&self) -> Result<Option<Error>> {
        let Places::Positions(x) = &self.places else { return Ok(None) };
        let size = self.size as i128;
        let values = x.to_scalars()?;
        let bad = values.iter().position(|&v| !(-size..size).contains(&v.to_i128()));
        Ok(bad.map(|at| {
            Error::index(format!(
                "position {} (number {at} of {}) is outside axis {}, which has size {size}",
                values[at],
                x.shape(),
                self.named
            ))
            .help(indices_to(self.size))
        }))
    }
}

impl Advanced {
    /// The part of the view.
    pub(super) fn read(&self, view: &Tensor) -> Result<Tensor> {
        let positions = self.positions()?;
        self.explained(self.join(view)?.index_select(self.front as isize, &positions))
    }

    /// The view with the part replaced.
    pub(super) fn write(&self, view: &Tensor, value: &Tensor) -> Result<Tensor> {
        let order = self.order(view.ndim());
        let behind = view.ndim() - self.front - self.axes().len();
        // A mask alone, and nothing that runs along its true elements: a choice at every element,
        // whatever their number.
        if let ([Item { places: Places::Mask(mask), axes, .. }], true) =
            (self.items.as_slice(), value.ndim() <= behind)
        {
            let mut sizes = view.shape().to_vec();
            (0..sizes.len()).filter(|axis| !axes.contains(axis)).for_each(|axis| sizes[axis] = 1);
            let _ = broadcasts(value, &Shape::new(&view.shape()[view.ndim() - behind..])?)?;
            return mask.reshape(sizes)?.where_cond(value, view);
        }
        let positions = self.positions()?;
        let joined = self.join(view)?; // (front.., n, behind..)
        let mut part = joined.shape()[..self.front].to_vec();
        part.extend_from_slice(positions.shape());
        part.extend_from_slice(&joined.shape()[self.front + 1..]);
        let value = broadcasts(value, &Shape::new(&part)?)?;
        let flat = joined.shape().resized(self.front, positions.numel())?;
        let mut along = vec![1; joined.ndim()];
        along[self.front] = positions.numel();
        let index = positions.reshape(along)?.expand(flat)?;
        let new =
            self.explained(joined.scatter(self.front as isize, &index, &value.reshape(flat)?))?;
        let turned: Vec<usize> = order.iter().map(|&axis| view.shape()[axis]).collect();
        let mut back = vec![0; order.len()];
        order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
        new.reshape(turned)?.permute(back)
    }

    fn axes(&self) -> Vec<usize> {
        self.items.iter().flat_map(|item| item.axes.clone()).collect()
    }

    /// The axes of the view with the indexed ones together at the front's place.
    fn order(&self, ndim: usize) -> Vec<usize> {
        let own = self.axes();
        let mut order: Vec<usize> = (0..ndim).filter(|axis| !own.contains(axis)).collect();
        order.splice(self.front..self.front, own);
        order
    }

    /// The view with the indexed axes joined into one: (front.., n, behind..).
    fn join(&self, view: &Tensor) -> Result<Tensor> {
        let turned = view.permute(self.order(view.ndim()))?;
        let end = self.front + self.axes().len();
        let mut sizes = turned.shape()[..self.front].to_vec();
        sizes.push(turned.shape()[self.front..end].iter().product());
        sizes.extend_from_slice(&turned.shape()[end..]);
        turned.reshape(sizes)
    }

    /// The positions in the joined axis, in the shape that the items broadcast to.
    fn positions(&self) -> Result<Tensor> {
        let parts = self.items.iter().map(Item::positions).collect::<Result<Vec<_>>>()?;
        if let [part] = parts.as_slice() {
            return from_front(part, self.items[0].size);
        }
        let parts: Vec<&Tensor> = parts.iter().collect();
        let shape = broadcast_shape(&parts)
            .map_err(|error| error.note("the integers and masks of an index broadcast together"))?;
        let (device, parts) = on_one_device(&parts)?;
        let parts = parts.iter().map(|x| x.expand(shape)).collect::<Result<Vec<_>>>()?;
        let indices: Vec<&Tensor> = parts.iter().collect();
        let sizes: Vec<usize> = self.items.iter().map(|item| item.size).collect();
        Op::Positions { indices: &indices, sizes: &sizes }.tensor(&device)
    }

    /// Rewrites an error about a position of the merged axis in terms of the user's axes.
    fn explained(&self, result: Result<Tensor>) -> Result<Tensor> {
        match result {
            Err(error) if error.kind() == ErrorKind::Index => {
                for item in &self.items {
                    if let Some(better) = item.outside()? {
                        return Err(better);
                    }
                }
                Err(error)
            }
            other => other,
        }
    }
}

/// Positions along an axis of `size` with negative ones counted from its end; those outside stay
/// outside.
pub(super) fn from_front(positions: &Tensor, size: usize) -> Result<Tensor> {
    if !positions.dtype().is_signed_int() {
        return Ok(positions.clone());
    }
    // Small types cannot hold the size of every axis. The size is data of a launch, so that no new
    // one compiles anything.
    let x = positions.cast(if positions.dtype() == DType::I64 || index_end(size).is_err() {
        DType::I64
    } else {
        DType::I32
    })?;
    let raised = x.add(size as i64)?;
    map([&x, &raised], |[x, raised]| x.lt(0).and(raised.ge(0)).where_cond(raised, x))
}

/// The definition of [`Op::Positions`]: a position outside its own axis must not become a legal one
/// of another, so it makes the number -1.
pub(crate) fn flat_positions(indices: &[&Tensor], sizes: &[usize]) -> Result<Tensor> {
    let legal = |x: &Tensor, size: usize| {
        let x = from_front(x, size)?;
        let x = if x.dtype() == DType::U64 { x.minimum(i64::MAX)? } else { x }.cast(DType::I64)?;
        let inside = x.lt(size as i64)?;
        map([&x, &inside], |[i, inside]| i.ge(0).and(inside).where_cond(i, i.like(-1)))
    };
    let start = legal(indices[0], sizes[0])?;
    indices[1..].iter().zip(&sizes[1..]).try_fold(start, |sum, (x, &size)| {
        let scaled = sum.mul(size as i64)?;
        map([&sum, &scaled, &legal(x, size)?], |[sum, scaled, i]| {
            sum.ge(0).and(i.ge(0)).where_cond(scaled + i, i.like(-1))
        })
    })
}
