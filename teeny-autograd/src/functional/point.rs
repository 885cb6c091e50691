//! [`Point`]: the argument of a function that is differentiated, one tensor or several.

use teeny_core::{Error, Result, Tensor};

/// The arguments of a function, or its results: a tensor, an array or a vector of tensors.
pub trait Point: Sized {
    /// A tensor for each pair of tensors: the result of [`crate::hessian`].
    type Square;

    /// The tensors, in order.
    fn tensors(&self) -> &[Tensor];

    /// A point of the same form.
    ///
    /// # Errors
    /// If `tensors` are more or fewer than in `self`.
    fn with(&self, tensors: Vec<Tensor>) -> Result<Self>;

    /// A tensor for each pair, by rows.
    ///
    /// # Errors
    /// If `rows` are more or fewer tensors than pairs.
    fn square(&self, rows: Vec<Vec<Tensor>>) -> Result<Self::Square>;
}

impl Point for Tensor {
    type Square = Tensor;
    fn tensors(&self) -> &[Tensor] {
        std::slice::from_ref(self)
    }
    fn with(&self, tensors: Vec<Tensor>) -> Result<Tensor> {
        array::<Tensor, 1>(tensors).map(|[x]| x)
    }
    fn square(&self, rows: Vec<Vec<Tensor>>) -> Result<Tensor> {
        let [row] = array::<_, 1>(rows)?;
        self.with(row)
    }
}

impl<const N: usize> Point for [Tensor; N] {
    type Square = [[Tensor; N]; N];
    fn tensors(&self) -> &[Tensor] {
        self
    }
    fn with(&self, tensors: Vec<Tensor>) -> Result<[Tensor; N]> {
        array(tensors)
    }
    fn square(&self, rows: Vec<Vec<Tensor>>) -> Result<[[Tensor; N]; N]> {
        array(rows.into_iter().map(array).collect::<Result<_>>()?)
    }
}

impl Point for Vec<Tensor> {
    type Square = Vec<Vec<Tensor>>;
    fn tensors(&self) -> &[Tensor] {
        self
    }
    fn with(&self, tensors: Vec<Tensor>) -> Result<Vec<Tensor>> {
        require(self.len(), tensors.len())?;
        Ok(tensors)
    }
    fn square(&self, rows: Vec<Vec<Tensor>>) -> Result<Vec<Vec<Tensor>>> {
        require(self.len(), rows.len())?;
        Ok(rows)
    }
}

fn array<T, const N: usize>(items: Vec<T>) -> Result<[T; N]> {
    items.try_into().map_err(|items: Vec<T>| wrong_count(N, items.len()))
}

fn require(expected: usize, actual: usize) -> Result<()> {
    if expected == actual { Ok(()) } else { Err(wrong_count(expected, actual)) }
}

fn wrong_count(expected: usize, actual: usize) -> Error {
    Error::value(format!("needs {expected} tensors, not {actual}"))
}

/// An error unless there is a direction for each argument, of its shape and dtype.
pub(super) fn require_direction(x: &[Tensor], v: &[Tensor]) -> Result<()> {
    require(x.len(), v.len())?;
    for (i, (x, v)) in x.iter().zip(v).enumerate() {
        if x.shape() != v.shape() || x.dtype() != v.dtype() {
            let what = format!(
                "direction {i} is {} {}, the argument {} {}",
                v.dtype(),
                v.shape(),
                x.dtype(),
                x.shape()
            );
            return Err(Error::gradient(what).help("they need one shape and one type"));
        }
    }
    Ok(())
}
