//! The part of a tensor that an index names: reading it, and replacing it.
//!
//! ```text
//! x.index(s![1, .., &rows, ..;2, &columns])
//!            │   │    │     │      └── advanced: integers and masks, broadcast together to one shape B
//!            └───┴── basic ─┘          positions, ranges, new axes: a layout
//! view (a, r, b, c)  ──join──▶  (a, b | r c)  ──gather at B──▶  (B.., a, b)
//! ```
//!
//! Basic items alone are a view of the same storage. Advanced ones read the view they leave through
//! one gather along their axes joined into one; an assignment scatters along it and joins nothing
//! back but the axes.

use super::advanced::{Advanced, Item, Places};
use super::subscript::{IntoIndex, Subscript};
use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::messages::not_integers;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::elementwise::{Either, Operand};
use crate::tensor::view::{place, sliced};

impl Tensor {
    /// The part that `index` names, with NumPy's meaning of every item: `x.index((.., 1, 0..2))`,
    /// `x.index(s![..., ..;2, NewAxis])`, `x.index((&rows, &columns))`, `x.index(&mask)`.
    ///
    /// Integers, ranges, [`NewAxis`](crate::NewAxis) and [`Ellipsis`](crate::Ellipsis) give a view:
    /// no element moves. Lists and tensors of integers (negative ones count from the end) and of
    /// bools are *advanced*: they broadcast together to one shape, whose axes replace theirs where
    /// they stand side by side, and come first otherwise; integers beside them count among them, as
    /// in NumPy. A tensor of bools stands for as many axes as it has. Advanced parts are copies; a
    /// mask waits for the device, because the result's size depends on it.
    ///
    /// # Errors
    /// If there are more items than axes, a position is outside its axis, a mask has not the sizes
    /// of its axes, or the lists do not broadcast.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{Reference, Tensor, s};
    /// # fn main() -> teeny_core::Result<()> {
    /// let x = Tensor::new([[1i64, 2, 3], [4, 5, 6]], &Reference::new())?; // (2, 3)
    /// assert_eq!(x.index((.., 1))?.to_vec::<i64>()?, [2, 5]); // (2)
    /// assert_eq!(x.index(s![-1, 1..])?.to_vec::<i64>()?, [5, 6]); // (2)
    /// assert_eq!(x.index(([0, 1, 1], [0, 0, -1]))?.to_vec::<i64>()?, [1, 4, 6]); // (3)
    /// assert_eq!(x.index(&x.gt(4)?)?.to_vec::<i64>()?, [5, 6]); // (2)
    /// # Ok(()) }
    /// ```
    ///
    /// Equivalent: `x[index]` of NumPy.
    #[track_caller]
    pub fn index(&self, index: impl IntoIndex) -> Result<Tensor> {
        let _op = enter("index").on([("x", Some(self))]);
        let part = Part::new(self, index.subscripts())?;
        let view = self.through(part.view);
        match part.advanced {
            None => Ok(view),
            Some(advanced) => advanced.read(&view),
        }
    }

    /// Self with the part that `index` names (as in [`Tensor::index`]) replaced by `value`, a
    /// number or a tensor that broadcasts to the part and is cast to self's type.
    ///
    /// The handle is consumed. If it is the only one of its storage and the index is basic, the
    /// elements are changed in place, at a cost that does not depend on the size of self: a cache
    /// of keys grows by `cache = cache.assign((.., t..t + 1), &k)?`. Otherwise they are changed in
    /// a copy; no other handle ever changes. Where positions repeat, the last in row-major order
    /// wins. A mask with a scalar value does not wait for the device.
    ///
    /// # Errors
    /// As [`Tensor::index`]; if `value` does not broadcast to the part.
    ///
    /// Equivalent: `x[index] = value` of NumPy.
    #[track_caller]
    pub fn assign(self, index: impl IntoIndex, value: impl Operand) -> Result<Tensor> {
        let op = enter("assign").on([("value", value.operand().tensor())]);
        let part = Part::new(&self, index.subscripts())
            .inspect_err(|_| op.failed_on(&[("x", Some(&self))]))?;
        let new = match value.operand() {
            Either::Tensor(value) => value.cast(self.dtype())?,
            Either::Number(number) => Tensor::full((), number, self.dtype(), &self)?,
        };
        let Some(advanced) = part.advanced else { return self.assign_part(&op, part.view, &new) };
        let new = advanced
            .write(&self.through(part.view), &new)
            .inspect_err(|_| op.failed_on(&[("x", Some(&self))]))?;
        if part.view == *self.layout() { Ok(new) } else { self.assign_part(&op, part.view, &new) }
    }
}

/// An index, resolved for one tensor.
struct Part {
    /// The view after the basic items; axes with an advanced index are still whole.
    view: Layout,
    advanced: Option<Advanced>,
}

impl Part {
    fn new(x: &Tensor, mut items: Vec<Subscript>) -> Result<Part> {
        let shape = x.shape();
        let taken: usize = items.iter().map(axes_of).sum();
        let Some(spare) = shape.ndim().checked_sub(taken) else {
            return Err(Error::index(format!(
                "expected an index of at most {} axes for {shape}, got {taken}",
                shape.ndim()
            ))
            .help(format!(
                "at most {} items besides NewAxis and Ellipsis; x.unsqueeze(axis)? adds axes",
                shape.ndim()
            )));
        };
        match items.iter().filter(|i| matches!(i, Subscript::Ellipsis)).count() {
            0 => items.push(Subscript::Ellipsis),
            1 => {}
            n => {
                return Err(Error::index(format!(
                    "{n} times \"...\" in one index: which axes \
                     each takes would be a guess"
                ))
                .help(
                    "write one ... for all axes that the other items leave over, and \
                     .. for a single whole axis",
                ));
            }
        }
        let is_list = |item: &Subscript| {
            matches!(item, Subscript::Positions(_) | Subscript::Flags(_) | Subscript::Tensor(_))
        };
        let advanced = items.iter().any(is_list);
        // Numbers (items) of the advanced ones, integers beside them included, and where in the
        // view the first of them stands.
        let mut numbers = Vec::new();
        let mut front = 0;
        let mut lists = Vec::new();
        // `axis` counts in the view, `named` in the tensor.
        let (mut view, mut axis, mut named) = (*x.layout(), 0, 0);
        for (number, item) in items.iter().enumerate() {
            if advanced && (is_list(item) || matches!(item, Subscript::At(_))) {
                if numbers.is_empty() {
                    front = axis;
                }
                numbers.push(number);
            }
            match item {
                Subscript::At(position) => {
                    let place = place(*position, shape, named)?;
                    view = view.slice(axis, place, 1, 1).remove(axis);
                    named += 1;
                }
                Subscript::Slice { range, step } => {
                    view = sliced(&view, axis, range, *step as isize)?;
                    (axis, named) = (axis + 1, named + 1);
                }
                Subscript::NewAxis => {
                    view = view.unsqueeze(axis)?;
                    axis += 1;
                }
                Subscript::Ellipsis => (axis, named) = (axis + spare, named + spare),
                Subscript::Positions(positions) => {
                    let places = positions
                        .iter()
                        .map(|&p| Ok(place(p, shape, named)? as i64))
                        .collect::<Result<Vec<_>>>()?;
                    lists.push(Item::new(
                        axis,
                        named,
                        &view,
                        Places::Positions(Tensor::from_vec(places, positions.len(), x)?),
                    ));
                    (axis, named) = (axis + 1, named + 1);
                }
                Subscript::Flags(flags) => {
                    fits(&Shape::new(&[flags.len()])?, shape, named)?;
                    let places: Vec<i64> = (0i64..)
                        .zip(flags)
                        .filter(|(_, flag)| **flag)
                        .map(|(place, _)| place)
                        .collect();
                    let count = places.len();
                    lists.push(Item::new(
                        axis,
                        named,
                        &view,
                        Places::Positions(Tensor::from_vec(places, count, x)?),
                    ));
                    (axis, named) = (axis + 1, named + 1);
                }
                Subscript::Tensor(mask) if mask.dtype() == DType::Bool && mask.ndim() == 0 => {
                    // As in NumPy: a single bool stands for a new axis of one element, taken or
                    // not.
                    view = view.unsqueeze(axis)?;
                    lists.push(Item::new(axis, named, &view, Places::Mask(mask.reshape(1)?)));
                    axis += 1;
                }
                Subscript::Tensor(mask) if mask.dtype() == DType::Bool => {
                    fits(mask.shape(), shape, named)?;
                    lists.push(Item::new(axis, named, &view, Places::Mask(mask.clone())));
                    (axis, named) = (axis + mask.ndim(), named + mask.ndim());
                }
                Subscript::Tensor(positions) => {
                    if !positions.dtype().is_int() {
                        return Err(not_integers("index", positions.dtype()));
                    }
                    lists.push(Item::new(axis, named, &view, Places::Positions(positions.clone())));
                    (axis, named) = (axis + 1, named + 1);
                }
            }
        }
        if !advanced {
            return Ok(Part { view, advanced: None });
        }
        let side_by_side = numbers.windows(2).all(|n| n[1] == n[0] + 1);
        Ok(Part {
            view,
            advanced: Some(Advanced { items: lists, front: if side_by_side { front } else { 0 } }),
        })
    }
}

/// The number of axes of the tensor that an item takes.
fn axes_of(item: &Subscript) -> usize {
    match item {
        Subscript::At(_)
        | Subscript::Slice { .. }
        | Subscript::Positions(_)
        | Subscript::Flags(_) => 1,
        Subscript::NewAxis | Subscript::Ellipsis => 0,
        Subscript::Tensor(x) if x.dtype() == DType::Bool => x.ndim(),
        Subscript::Tensor(_) => 1,
    }
}

/// An error unless the mask has the sizes of the axes from `axis` on.
fn fits(mask: &Shape, shape: &Shape, axis: usize) -> Result<()> {
    if shape[axis..axis + mask.ndim()] == **mask {
        return Ok(());
    }
    Err(Error::index(format!(
        "a mask of {mask} does not fit {shape}, whose axes from {axis} on are {:?}",
        &shape[axis..axis + mask.ndim()]
    ))
    .help(fitting_axes(mask, shape)))
}

/// The help line with the axes of `shape` that `mask` fits.
#[cold]
fn fitting_axes(mask: &Shape, shape: &Shape) -> String {
    let found = (0..=shape.ndim().saturating_sub(mask.ndim()))
        .find(|&a| shape.get(a..a + mask.ndim()) == Some(&**mask));
    match found {
        Some(axis) => {
            format!("it fits from axis {axis} on: write .. in front of it for each axis before")
        }
        None => "a comparison makes a mask of the right shape: x.gt(0)?".to_string(),
    }
}
