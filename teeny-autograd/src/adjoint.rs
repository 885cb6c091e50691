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

use teeny_core::{Layout, Result, Shape, Tensor};

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

/// `before`, the accumulated gradient of a row-major value, plus that from the gradient `g` of its
/// view through `view`. Where the view is a part of the value, only that part is read and written.
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
