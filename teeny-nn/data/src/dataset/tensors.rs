//! Tensors as data sets: the items are the rows along the first axis.

use super::{Dataset, require_items};
use teeny_core::{Error, Result, Tensor};

/// The rows of `x` (N, ..) at `indices` → (B, ..), on its device.
pub(crate) fn rows(x: &Tensor, indices: &[usize]) -> Result<Tensor> {
    let count = x.shape().first().copied().unwrap_or_default();
    require_items(indices, count)?;
    // consecutive rows are a view
    if let Some(&first) = indices.first()
        && indices.iter().enumerate().all(|(i, index)| *index == first + i)
    {
        return x.slice(0, first as isize..(first + indices.len()) as isize);
    }
    // 32 bits, as shaders may have no other integers
    let index: std::result::Result<Vec<i32>, _> = indices.iter().map(|i| (*i).try_into()).collect();
    let index = index.map_err(|_| Error::index(format!("{count} items are too many for i32")))?;
    x.index_select(0, &Tensor::from_vec(index, indices.len(), x.device())?)
}

/// Checks that all tensors have a first axis, of one length.
fn check(tensors: &[&Tensor]) -> Result<()> {
    let count = |x: &Tensor| x.shape().first().copied();
    let Some(first) = tensors.first() else {
        return Err(Error::value("expected a tensor, got none").help("pass at least one: vec![x]"));
    };
    for (i, x) in tensors.iter().enumerate() {
        match (count(first), count(x)) {
            (_, None) => {
                let text = format!("tensor {i} of the data set is a scalar, which has no rows");
                return Err(Error::shape(text).help("x.unsqueeze(0) is one row"));
            }
            (Some(n), Some(m)) if n != m => {
                let shapes = format!("{} and {}", first.shape(), x.shape());
                let text = format!("tensor 0 has {n} items, tensor {i} has {m}: {shapes}");
                return Err(Error::shape(text).help("items are rows along the first axis"));
            }
            _ => {}
        }
    }
    Ok(())
}

impl Dataset for Vec<Tensor> {
    type Batch = Vec<Tensor>;

    fn len(&self) -> usize {
        self.first().and_then(|x| x.shape().first().copied()).unwrap_or_default()
    }

    fn check(&self) -> Result<()> {
        check(&self.iter().collect::<Vec<_>>())
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Vec<Tensor>> {
        self.iter().map(|x| rows(x, indices)).collect()
    }
}

/// Batches of one type that can be joined, for [`Dataset::concat`].
pub trait Collate: Sized {
    /// The rows of `self`, then those of `other`, in another order: row `i` of the result is row
    /// `order[i]` of both together.
    ///
    /// # Errors
    /// If the shapes or dtypes do not fit.
    fn collate(self, other: Self, order: &[usize]) -> Result<Self>;
}

impl Collate for Tensor {
    fn collate(self, other: Tensor, order: &[usize]) -> Result<Tensor> {
        rows(&Tensor::cat(&[&self, &other], 0)?, order)
    }
}

impl<T: Collate> Collate for Vec<T> {
    fn collate(self, other: Vec<T>, order: &[usize]) -> Result<Vec<T>> {
        if self.len() != other.len() {
            let text = format!("expected a batch of {} parts, got {}", self.len(), other.len());
            return Err(Error::value(text).help("joined data sets must have as many parts"));
        }
        self.into_iter().zip(other).map(|(a, b)| a.collate(b, order)).collect()
    }
}

macro_rules! tuples {
    ($(($($T:ident $tensor:ident $i:tt),*))*) => {$(
        impl Dataset for ($($tensor,)*) {
            type Batch = ($($tensor,)*);

            fn len(&self) -> usize {
                self.0.shape().first().copied().unwrap_or_default()
            }

            fn check(&self) -> Result<()> {
                check(&[$(&self.$i),*])
            }

            fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Self::Batch> {
                Ok(($(rows(&self.$i, indices)?,)*))
            }
        }

        impl<$($T: Collate),*> Collate for ($($T,)*) {
            fn collate(self, other: Self, order: &[usize]) -> Result<Self> {
                Ok(($(self.$i.collate(other.$i, order)?,)*))
            }
        }
    )*};
}
tuples! { (A Tensor 0, B Tensor 1) (A Tensor 0, B Tensor 1, C Tensor 2) }
