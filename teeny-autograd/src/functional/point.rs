//! [`Point`]: what a function is differentiated at, one tensor or several.

use teeny_core::{Error, Result, Tensor};

/// The arguments of a function, or its results: a tensor, an array or a vector of tensors.
pub trait Point: Sized {
    /// A tensor for each pair of tensors: what [`crate::hessian`] gives.
    type Square;

    /// The tensors, in order.
    fn tensors(&self) -> &[Tensor];

    /// A point of the same form.
    ///
    /// # Errors
    /// If there are more or fewer tensors than here.
    fn with(&self, tensors: Vec<Tensor>) -> Result<Self>;

    /// A tensor for each pair, by rows.
    ///
    /// # Errors
    /// If there are more or fewer than pairs.
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
    items.try_into().map_err(|items: Vec<T>| wrong_number(N, items.len()))
}

fn require(expected: usize, given: usize) -> Result<()> {
    if expected == given { Ok(()) } else { Err(wrong_number(expected, given)) }
}

fn wrong_number(expected: usize, given: usize) -> Error {
    Error::value(format!("needs {expected} tensors, not {given}"))
}

/// An error unless there is a direction for each argument, of its shape and type.
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
