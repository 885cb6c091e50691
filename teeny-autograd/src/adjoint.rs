//! The adjoint of a view: maps the gradient of a view to the gradient of the value.
//!
//! ```text
//! value (row-major) ──layout──▶ view ──op──▶ y            expand      → sum over the repeated axes
//!   ▲                            │                        permute     → the inverse permutation
//!   └────────── adjoint ◀────────┘ g                      flip        → flip
//!                                                         slice, step → written into zeros
//!                                                         overlap     → scatter-add
//! ```
//!
//! This one function stands for the backward rules of all view operations and all their
//! compositions. It uses `Tensor` operations only.
//!
//! Where a value is used through several views that are parts of it, as after a split, [`Parts`]
//! waits for all of them. If together they are the value, one cat of their gradients is its
//! gradient.

use teeny_core::{Error, Layout, Result, Shape, Tensor};

/// The gradient of a row-major value of shape `base`, from the gradient `g` of its view through
/// `view` (whose shape `g` has).
pub(crate) fn adjoint(view: &Layout, base: &Shape, g: &Tensor) -> Result<Tensor> {
    if view.numel() == 0 {
        return Tensor::zeros(base, g.dtype(), g);
    }
    if covers(view, base) {
        return g.reshape(base);
    }
    let (view, g) = seen_once(view, g)?;
    written(view, base, &g)
}

/// The view and its gradient read forwards and without axes that repeat an element, whose gradients
/// are summed.
fn seen_once(view: &Layout, g: &Tensor) -> Result<(Layout, Tensor)> {
    let (view, g) = without_repeats(view, g)?;
    forwards(view, &g)
}

/// The gradient `g` of such a view, in zeros of the value's shape.
fn written(view: Layout, base: &Shape, g: &Tensor) -> Result<Tensor> {
    let (view, g) = outermost_first(view, g)?;
    if covers(&view, base) {
        return g.reshape(base);
    }
    let flat = Tensor::zeros(base.numel(), g.dtype(), &g)?; // (elements of the value)
    if view.is_injective() {
        return flat
            .assign_view(|x| x.as_strided(view.shape(), view.strides(), view.offset()), &g)?
            .reshape(base);
    }
    let positions: Vec<i64> = view.positions().map(|p| p as i64).collect();
    let index = Tensor::from_vec(positions, view.numel(), &g)?; // (elements of the view)
    flat.scatter_add(0, &index, &g.reshape(-1)?)?.reshape(base)
}

/// Adds the gradient `g` of a view to `before`, the accumulated gradient of the row-major value.
/// Where the view is a part of the value, only that part is read and written.
pub(crate) fn add_adjoint(before: Tensor, view: &Layout, g: &Tensor) -> Result<Tensor> {
    let base = *before.shape();
    if view.numel() == 0 || covers(view, &base) {
        return before.add(&adjoint(view, &base, g)?);
    }
    let (part, own) = seen_once(view, g)?;
    if part.numel() == base.numel() || !part.is_injective() {
        return before.add(&written(part, &base, &own)?);
    }
    let whole = before.is_contiguous() && before.layout().offset() == 0;
    // (elements of the value)
    let flat = if whole { before.reshape(-1)? } else { before.copy()?.reshape(-1)? };
    drop(before);
    let seen = |x: &Tensor| x.as_strided(part.shape(), part.strides(), part.offset());
    let sum = seen(&flat)?.add(&own)?;
    flat.assign_view(seen, &sum)?.reshape(base)
}

/// Gradients of parts of a value of `base`, in the order of arrival, none of which has been written
/// yet. A part is the elements `first..first + len` of each of `rows` rows of `size` elements.
pub(crate) struct Parts {
    base: Shape,
    rows: usize,
    size: usize,
    numel: usize,
    list: Vec<Part>,
}

struct Part {
    first: usize,
    len: usize,
    view: Layout,
    g: Tensor,
}

impl Parts {
    /// The gradient `g` of the view `view` of a value of shape `base`, if the view is a part of it.
    pub(crate) fn new(view: &Layout, base: &Shape, g: &Tensor) -> Option<Parts> {
        let (rows, size, first, len) = part_of(view, base.numel())?;
        if g.shape() != view.shape() {
            return None; // an error that is made where it is used
        }
        let list = vec![Part { first, len, view: *view, g: g.clone() }];
        Some(Parts { base: *base, rows, size, numel: rows * len, list })
    }

    /// Adds another part; whether it can be one.
    pub(crate) fn push(&mut self, view: &Layout, g: &Tensor) -> bool {
        let Some(mut other) = Parts::new(view, &self.base, g) else { return false };
        let fits = (other.rows, other.size) == (self.rows, self.size)
            && self.numel + other.numel <= self.base.numel()
            && self.list.first().is_some_and(|part| part.g.dtype() == g.dtype());
        if fits {
            self.numel += other.numel;
            self.list.append(&mut other.list);
        }
        fits
    }

    /// The gradient of the value: the parts joined if they are all of it, otherwise written into
    /// zeros one after another.
    pub(crate) fn whole(self) -> Result<Tensor> {
        let mut order: Vec<&Part> = self.list.iter().collect();
        order.sort_by_key(|part| part.first);
        let mut end = 0;
        let joins = order.iter().all(|part| {
            let follows = part.first == end;
            end += part.len;
            follows
        });
        if joins && end == self.size {
            return self.joined(&order);
        }
        let mut list = self.list.into_iter();
        let Some(Part { view, g, .. }) = list.next() else { return Err(no_parts()) };
        let first = adjoint(&view, &self.base, &g)?;
        list.try_fold(first, |sum, part| add_adjoint(sum, &part.view, &part.g))
    }

    fn joined(&self, order: &[&Part]) -> Result<Tensor> {
        let ordered = |part: &&Part| {
            let (view, g) = seen_once(&part.view, &part.g)?;
            Ok(outermost_first(view, &g)?.1)
        };
        let parts = order.iter().map(ordered).collect::<Result<Vec<Tensor>>>()?;
        // The axes before this one count the rows.
        let (mut axis, mut rows) = (0, 1);
        let sizes = parts[0].shape();
        while rows < self.rows && axis < sizes.ndim() {
            rows *= sizes[axis];
            axis += 1;
        }
        let alike = |part: &Tensor| {
            let shape = part.shape();
            shape.ndim() == sizes.ndim()
                && axis < shape.ndim()
                && (0..shape.ndim()).all(|a| a == axis || shape[a] == sizes[a])
        };
        if rows == self.rows && parts.iter().all(alike) {
            return Tensor::cat(&parts, axis as isize)?.reshape(self.base);
        }
        let as_rows = |(part, g): (&&Part, &Tensor)| g.reshape((self.rows, part.len));
        let parts = order.iter().zip(&parts).map(as_rows).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts, 1)?.reshape(self.base)
    }
}

#[cold]
fn no_parts() -> Error {
    Error::internal("a gradient of no parts")
}

/// Rows, their size, and the first element and number of elements in each row that `view` of a
/// row-major value of `numel` elements has, each once and in any order. None if it has all, or
/// others.
fn part_of(view: &Layout, numel: usize) -> Option<(usize, usize, usize, usize)> {
    if view.numel() == 0 {
        return None;
    }
    let mut axes: Vec<(usize, isize)> =
        view.shape().iter().copied().zip(view.strides().iter().copied()).collect();
    axes.retain(|&(size, _)| size != 1);
    axes.sort_by_key(|&(_, stride)| std::cmp::Reverse(stride));
    // Axes that are one after the other in memory are one axis.
    let mut joined: Vec<(usize, isize)> = Vec::with_capacity(axes.len());
    for (size, stride) in axes {
        match joined.last_mut() {
            Some(last) if last.1 == stride.checked_mul(size as isize)? => {
                *last = (last.0 * size, stride);
            }
            _ => joined.push((size, stride)),
        }
    }
    let (rows, size, len) = match joined[..] {
        [] => (1, numel, 1),
        [(len, 1)] => (1, numel, len),
        [(rows, size)] => (rows, usize::try_from(size).ok()?, 1),
        [(rows, size), (len, 1)] => (rows, usize::try_from(size).ok()?, len),
        _ => return None,
    };
    let first = view.offset();
    let is_part = rows.checked_mul(size)? == numel && first.checked_add(len)? <= size && len < size;
    is_part.then_some((rows, size, first, len))
}

/// True if the view is the whole value in its own order.
fn covers(view: &Layout, base: &Shape) -> bool {
    view.offset() == 0 && view.numel() == base.numel() && view.is_contiguous()
}

/// Axes of stride 0 summed, and these and axes of size 1 removed from both.
fn without_repeats(view: &Layout, g: &Tensor) -> Result<(Layout, Tensor)> {
    let repeated: Vec<usize> =
        (0..view.ndim()).filter(|&a| view.shape()[a] > 1 && view.strides()[a] == 0).collect();
    let single: Vec<usize> =
        (0..view.ndim()).filter(|&a| view.shape()[a] == 1 || repeated.contains(&a)).collect();
    let sum = if repeated.is_empty() { g.clone() } else { g.sum_keepdim(&repeated)? };
    let view = single.iter().rev().fold(*view, |view, &axis| view.remove(axis));
    Ok((view, sum.squeeze(single)?))
}

/// Negative strides made positive by reading both backwards.
fn forwards(view: Layout, g: &Tensor) -> Result<(Layout, Tensor)> {
    let backwards: Vec<usize> = (0..view.ndim()).filter(|&a| view.strides()[a] < 0).collect();
    let view = backwards.iter().fold(view, |view, &axis| view.flip(axis));
    Ok((view, g.flip(backwards)?))
}

/// Axes in the order of falling strides: the order of the value's own axes.
fn outermost_first(view: Layout, g: &Tensor) -> Result<(Layout, Tensor)> {
    let mut order: Vec<usize> = (0..view.ndim()).collect();
    order.sort_by_key(|&a| std::cmp::Reverse(view.strides()[a]));
    Ok((view.permute(&order), g.permute(order)?))
}
