//! Whole Jacobians and Hessians: products with every unit vector.

use super::point::Point;
use super::product::{Recorded, caller, grad_at, push_forward};
use teeny_core::context::{OpContext, resume_as};
use teeny_core::{Result, Shape, Tensor};

/// The Jacobian `∂y_i/∂x_j` of `y = f(x)`, in the mode that needs fewer passes: by rows if `y` has
/// no more elements than `x`, by columns otherwise. `f` runs once recorded, which shows the size of
/// `y`.
///
/// Shapes: `(y.., x..)`, one for each tensor of `x`; more than 8 axes in all are an error.
///
/// # Errors
/// As [`jacobian_rows`].
///
/// # Example
/// ```
/// use teeny_autograd::jacobian;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([2.0f64, 3.0], &Reference::new())?; // (2)
/// let j = jacobian(|x| x.prod(0), &x)?; // (2)
/// assert_eq!(j.to_vec::<f64>()?, [3.0, 2.0]);
/// # Ok(()) }
/// ```
#[track_caller]
pub fn jacobian<P: Point>(f: impl Fn(&P) -> Result<Tensor>, x: &P) -> Result<P> {
    let at = caller("jacobian");
    let recorded = Recorded::of(&f, x, at)?;
    if recorded.y.numel() <= x.tensors().iter().map(Tensor::numel).sum() {
        return by_rows(&recorded, x, at);
    }
    drop(recorded);
    by_columns(f, x, at)
}

/// The Jacobian by rows, reverse mode: `f` runs once, then there is one backward pass for each
/// element of its result.
///
/// Shapes: as [`jacobian`].
///
/// # Errors
/// As [`crate::vjp`]; if the Jacobian would have more than 8 axes.
///
/// # Example
/// ```
/// use teeny_autograd::{jacobian_columns, jacobian_rows};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([1.0f64, 2.0, 4.0], &Reference::new())?; // (3)
/// let f = |x: &Tensor| x.cumsum(0)?.slice(0, 1..); // (2)
/// let j = jacobian_rows(f, &x)?; // (2, 3)
/// assert_eq!(j.to_vec::<f64>()?, [1.0, 1.0, 0.0, 1.0, 1.0, 1.0]);
/// assert_eq!(jacobian_columns(f, &x)?.to_vec::<f64>()?, j.to_vec::<f64>()?);
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.func.jacrev`.
#[doc(alias = "jacrev")]
#[track_caller]
pub fn jacobian_rows<P: Point>(f: impl FnOnce(&P) -> Result<Tensor>, x: &P) -> Result<P> {
    let at = caller("jacobian");
    by_rows(&Recorded::of(f, x, at)?, x, at)
}

fn by_rows<P: Point>(recorded: &Recorded, x: &P, at: OpContext) -> Result<P> {
    let _op = resume_as(Some(at));
    let y = recorded.value()?;
    // for each argument (x..) of each row
    let mut rows: Vec<Vec<Tensor>> = vec![Vec::new(); x.tensors().len()];
    for e in 0..y.numel() {
        let grads = recorded.gradients(&unit(&y, e)?)?;
        rows.iter_mut().zip(grads).for_each(|(rows, g)| rows.push(g));
    }
    x.with(
        rows.iter()
            .zip(x.tensors())
            .map(|(rows, x)| stacked(rows, y.shape(), x))
            .collect::<Result<_>>()?,
    )
}

/// The Jacobian by columns, forward mode: `f` runs once for each element of `x`, and nothing is
/// recorded.
///
/// Shapes: as [`jacobian`].
///
/// # Errors
/// As [`crate::jvp`]; if the Jacobian would have more than 8 axes.
///
/// # Example
/// ```
/// use teeny_autograd::jacobian_columns;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let angle = Tensor::new(0.0f64, &Reference::new())?; // ()
/// let circle = |a: &Tensor| Tensor::stack(&[&a.cos()?, &a.sin()?], 0); // (2)
/// assert_eq!(jacobian_columns(circle, &angle)?.to_vec::<f64>()?, [-0.0, 1.0]);
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.func.jacfwd`.
#[doc(alias = "jacfwd")]
#[track_caller]
pub fn jacobian_columns<P: Point>(f: impl Fn(&P) -> Result<Tensor>, x: &P) -> Result<P> {
    by_columns(f, x, caller("jacobian"))
}

fn by_columns<P: Point>(f: impl Fn(&P) -> Result<Tensor>, x: &P, at: OpContext) -> Result<P> {
    let (y, columns) = columns(f, x, at)?;
    let _op = resume_as(Some(at));
    let jacobian = |(columns, x): (Vec<Vec<Tensor>>, &Tensor)| -> Result<Tensor> {
        let columns: Vec<Tensor> = columns.into_iter().flatten().collect(); // (y..) of each column
        let whole = stacked(&columns, x.shape(), &y)?; // (x.., y..)
        let order: Vec<usize> = (x.ndim()..whole.ndim()).chain(0..x.ndim()).collect();
        whole.permute(order)?.contiguous()
    };
    x.with(columns.into_iter().zip(x.tensors()).map(jacobian).collect::<Result<_>>()?)
}

/// The Hessian `∂²f/∂x_i∂x_j` of `f`, which returns one number: forward over reverse, one gradient
/// with its tangent for each element of `x`.
///
/// Shapes: `(x.., x..)`; for several tensors one `(x_a.., x_b..)` for each pair. More than 8 axes
/// in all are an error.
///
/// # Errors
/// As [`crate::hvp`]; if the Hessian would have more than 8 axes.
///
/// # Example
/// ```
/// use teeny_autograd::hessian;
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let x = Tensor::new([1.0f64, 2.0], &Reference::new())?; // (2)
/// let h = hessian(|x| x.prod(0)?.square(), &x)?; // (2, 2), of x0² x1²
/// assert_eq!(h.to_vec::<f64>()?, [8.0, 8.0, 8.0, 2.0]);
/// # Ok(()) }
/// ```
///
/// Equivalent: `torch.func.hessian`.
#[track_caller]
pub fn hessian<P: Point>(f: impl Fn(&P) -> Result<Tensor>, x: &P) -> Result<P::Square> {
    let at = caller("hessian");
    let (_, columns) = columns(|x| grad_at(&f, x, at), x, at)?;
    let _op = resume_as(Some(at));
    let all = x.tensors();
    let block = |a: usize, b: usize| {
        // (x_b..) of each element of x_a
        let rows: Vec<Tensor> = columns[a].iter().map(|gradients| gradients[b].clone()).collect();
        stacked(&rows, all[a].shape(), &all[b])
    };
    x.square(
        (0..all.len())
            .map(|a| (0..all.len()).map(|b| block(a, b)).collect())
            .collect::<Result<_>>()?,
    )
}

/// The derivatives of `f` along every unit vector, `[argument][element][result]`, and the first
/// result of one run, which has their shape.
fn columns<P: Point, Q: Point>(
    f: impl Fn(&P) -> Result<Q>,
    x: &P,
    at: OpContext,
) -> Result<(Tensor, Vec<Vec<Vec<Tensor>>>)> {
    let all = x.tensors();
    let mut form = None;
    let mut columns = Vec::new();
    for (i, argument) in all.iter().enumerate() {
        let mut of_argument = Vec::new();
        for e in 0..argument.numel() {
            let v = unit(argument, e)?;
            let tangents: Vec<Option<&Tensor>> =
                (0..all.len()).map(|j| (i == j).then_some(&v)).collect();
            let (_, values, along) = push_forward(&f, x, &tangents, at)?;
            of_argument.push(
                values
                    .iter()
                    .zip(along)
                    .map(|(y, t)| t.map_or_else(|| y.zeros_like(), Ok))
                    .collect::<Result<Vec<_>>>()?,
            );
            form = values.into_iter().next();
        }
        columns.push(of_argument);
    }
    let form = match form {
        Some(form) => form,
        // The arguments have no elements: only the shape of the result is needed.
        None => push_forward(&f, x, &vec![None; all.len()], at)?.1.swap_remove(0),
    };
    Ok((form, columns))
}

/// The unit vector of element `e`, in row-major order, in the shape of `x`.
fn unit(x: &Tensor, e: usize) -> Result<Tensor> {
    let one = Tensor::ones(1, x.dtype(), x)?;
    Tensor::zeros(x.numel(), x.dtype(), x)?.slice_assign(0, e..e + 1, &one)?.reshape(x.shape())
}

/// Tensors in the shape of `each`, one for every element of `lead`, as one: (lead.., each..).
fn stacked(parts: &[Tensor], lead: &Shape, each: &Tensor) -> Result<Tensor> {
    let shape = Shape::new(&[&lead[..], &each.shape()[..]].concat())?;
    if parts.is_empty() {
        return Tensor::zeros(shape, each.dtype(), each);
    }
    Tensor::stack(parts, 0)?.reshape(shape)
}
