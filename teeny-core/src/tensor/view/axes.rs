//! Views with other axes: permuted, flipped, inserted, removed, expanded. No element moves;
//! [`crate::Layout`] computes the strides.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::messages::BROADCAST;
use crate::shape::{IntoAxes, IntoShape, Shape};
use crate::tensor::Tensor;

impl Tensor {
    /// The axes in another order, each named once.
    ///
    /// # Errors
    /// If an axis is missing or named twice.
    #[track_caller]
    pub fn permute(&self, order: impl IntoShape) -> Result<Tensor> {
        let _op = enter("permute").on([("x", Some(self))]);
        let order = order.sizes();
        let axes =
            order.iter().map(|&a| self.shape().axis(a as isize)).collect::<Result<Vec<_>>>()?;
        let mut sorted = axes.clone();
        sorted.sort_unstable();
        if sorted != (0..self.ndim()).collect::<Vec<_>>() {
            return Err(Error::axis(format!(
                "{order:?} does not name each of the {} axes of {} once",
                self.ndim(),
                self.shape()
            ))
            .help(format!(
                "x.permute({:?})? reverses the axes",
                (0..self.ndim()).rev().collect::<Vec<_>>()
            )));
        }
        Ok(self.through(self.layout().permute(&axes)))
    }

    /// Axes `a` and `b` exchanged.
    #[doc(alias("swapaxes", "swapdims"))]
    #[track_caller]
    pub fn transpose(&self, a: isize, b: isize) -> Result<Tensor> {
        let _op = enter("transpose").on([("x", Some(self))]);
        let (a, b) = (self.shape().axis(a)?, self.shape().axis(b)?);
        Ok(self.through(self.layout().transpose(a, b)))
    }

    /// The last two axes exchanged; a vector or scalar stays as it is. Equivalent: `x.mT`.
    #[track_caller]
    pub fn t(&self) -> Result<Tensor> {
        let _op = enter("t").on([("x", Some(self))]);
        match self.ndim() {
            0 | 1 => Ok(self.clone()),
            n => Ok(self.through(self.layout().transpose(n - 2, n - 1))),
        }
    }

    /// The axes `from` moved to the places `to`, the others in their order around them: a view.
    ///
    /// # Errors
    /// If an axis does not exist or is named twice, or the lists differ in length.
    ///
    /// Equivalent: `torch.movedim`, `numpy.moveaxis`.
    #[doc(alias = "moveaxis")]
    #[track_caller]
    pub fn movedim(&self, from: impl IntoShape, to: impl IntoShape) -> Result<Tensor> {
        let _op = enter("movedim").on([("x", Some(self))]);
        let axes = |list: Vec<i64>| {
            list.into_iter()
                .map(|axis| self.shape().axis(axis as isize))
                .collect::<Result<Vec<_>>>()
        };
        let (from, to) = (axes(from.sizes())?, axes(to.sizes())?);
        let twice =
            |list: &[usize]| list.iter().enumerate().any(|(i, axis)| list[..i].contains(axis));
        if from.len() != to.len() || twice(&from) || twice(&to) {
            return Err(Error::axis(format!(
                "axes {from:?} cannot move to {to:?} in {}: each \
                 side names as many axes, each once",
                self.shape()
            ))
            .help("x.movedim((0, 1), (1, 0))? moves axis 0 to 1 and axis 1 to 0"));
        }
        let mut rest = (0..self.ndim()).filter(|axis| !from.contains(axis));
        let place = |axis: usize| to.iter().position(|&t| t == axis).map(|i| from[i]);
        self.permute(
            (0..self.ndim())
                .map(|axis| place(axis).or_else(|| rest.next()).unwrap_or(axis))
                .collect::<Vec<_>>(),
        )
    }

    /// The given axes read backwards.
    #[track_caller]
    pub fn flip(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("flip").on([("x", Some(self))]);
        let axes = axes.axes(self.shape())?;
        Ok(self.through(axes.into_iter().fold(*self.layout(), |layout, axis| layout.flip(axis))))
    }

    /// Rotated by 90 degrees `n` times, from axis `a` towards axis `b`: a view.
    ///
    /// # Errors
    /// If `a` and `b` are not two different axes.
    ///
    /// Equivalent: `torch.rot90(x, n, (a, b))`.
    #[track_caller]
    pub fn rot90(&self, n: isize, a: isize, b: isize) -> Result<Tensor> {
        let _op = enter("rot90").on([("x", Some(self))]);
        let (a, b) = (self.shape().axis(a)? as isize, self.shape().axis(b)? as isize);
        if a == b {
            return Err(Error::axis(format!("expected two different axes, got {a} twice"))
                .help("x.rot90(n, -2, -1)? turns the last two axes"));
        }
        match n.rem_euclid(4) {
            0 => Ok(self.clone()),
            1 => self.flip(b)?.transpose(a, b),
            2 => self.flip([a, b]),
            _ => self.flip(a)?.transpose(a, b),
        }
    }

    /// Without the given axes, all of which must have size 1.
    ///
    /// # Errors
    /// If one of them has another size.
    #[track_caller]
    pub fn squeeze(&self, axes: impl IntoAxes) -> Result<Tensor> {
        let _op = enter("squeeze").on([("x", Some(self))]);
        let axes = axes.axes(self.shape())?;
        if let Some(axis) = axes.iter().find(|&&a| self.shape()[a] != 1) {
            return Err(Error::shape(format!(
                "axis {axis} of {} has size {}, not 1",
                self.shape(),
                self.shape()[*axis]
            ))
            .help(squeezable(self.shape(), *axis)));
        }
        Ok(self
            .through(axes.iter().rev().fold(*self.layout(), |layout, &axis| layout.remove(axis))))
    }

    /// With a new axis of size 1 at position `axis`; -1 is after the last.
    #[track_caller]
    pub fn unsqueeze(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("unsqueeze").on([("x", Some(self))]);
        Ok(self.through(self.layout().unsqueeze(self.shape().gap(axis)?)?))
    }

    /// Axes of size 1 repeated to `shape`, missing axes added in front; -1 keeps a size. No memory
    /// is used: the stride is 0.
    ///
    /// # Errors
    /// If an axis of another size than 1 would have to change.
    #[track_caller]
    pub fn expand(&self, shape: impl IntoShape) -> Result<Tensor> {
        let _op = enter("expand").on([("x", Some(self))]);
        let sizes = shape.sizes();
        let shift = sizes.len() as isize - self.ndim() as isize;
        let mut target = Vec::with_capacity(sizes.len());
        for (axis, &n) in sizes.iter().enumerate() {
            let own = axis as isize - shift;
            target.push(match n {
                -1 if own >= 0 && shift >= 0 => self.shape()[own as usize],
                n if n >= 0 => n as usize,
                n => {
                    return Err(Error::shape(format!(
                        "cannot expand axis {axis} of {} to size {n}",
                        self.shape()
                    ))
                    .help(
                        "-1 keeps the size of an axis of x; a new axis in front needs its size",
                    ));
                }
            });
        }
        let target = Shape::new(&target)?;
        match self.layout().expand(&target) {
            Some(layout) => Ok(self.through(layout)),
            None => Err(no_expand(self.shape(), &target)),
        }
    }

    /// [`Tensor::expand`] to the shape of `other`.
    #[track_caller]
    pub fn expand_as(&self, other: &Tensor) -> Result<Tensor> {
        let _op = enter("expand_as").on([("x", Some(self)), ("other", Some(other))]);
        self.expand(other.shape())
    }

    /// The view stretched to `shape`, which core has already checked.
    pub(in crate::tensor) fn expand_to(&self, shape: &Shape) -> Result<Tensor> {
        match self.layout.expand(shape) {
            Some(layout) => Ok(self.through(layout)),
            None => Err(no_expand(self.shape(), shape)),
        }
    }
}

/// The help line for removing `axis`, whose size is not 1.
#[cold]
fn squeezable(shape: &Shape, axis: usize) -> String {
    let ones: Vec<usize> = (0..shape.ndim()).filter(|&a| shape[a] == 1).collect();
    match ones.as_slice() {
        [] => format!(
            "x.at({axis}, 0)? takes one position of it, x.flatten(start, end)? joins it with others"
        ),
        ones => format!("x.squeeze({ones:?})? removes the axes of size 1"),
    }
}

#[cold]
fn no_expand(from: &Shape, to: &Shape) -> Error {
    let moved =
        from.with_axis(from.ndim(), 1).ok().filter(|moved| moved.broadcast(to) == Some(*to));
    let shift = to.ndim().saturating_sub(from.ndim());
    let counts: Option<Vec<usize>> = (0..to.ndim())
        .map(|a| {
            a.checked_sub(shift).map_or(Some(to[a]), |own| {
                to[a].checked_div(from[own]).filter(|n| n * from[own] == to[a])
            })
        })
        .collect();
    Error::shape(format!(
        "{from} does not expand to {to}: only axes of size 1 stretch, aligned from the right"
    ))
    .help(match (moved, counts) {
        _ if from.ndim() > to.ndim() => {
            "x.at(axis, index)? and x.squeeze(axis)? remove axes".to_string()
        }
        (Some(_), _) => format!("x.unsqueeze(-1)?.expand({to})? stretches a new last axis"),
        (_, Some(counts)) => format!("x.repeat({counts:?})? repeats axes of other sizes"),
        _ => BROADCAST.to_string(),
    })
}
