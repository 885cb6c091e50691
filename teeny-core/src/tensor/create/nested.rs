//! Host data as written in a program: numbers, arrays, `Vec`s and nestings of them, flattened for
//! [`Tensor::new`](crate::Tensor::new).

use crate::element::Element;
use crate::error::{Error, Result};

/// A number, or a nesting of arrays, slices and `Vec`s of numbers.
pub trait Nested<T: Element> {
    /// Appends the sizes, outermost first, as the first element of each level suggests them.
    fn sizes(&self, sizes: &mut Vec<usize>);

    /// Appends the numbers in row-major order.
    ///
    /// # Errors
    /// If a level has another size than in `sizes`: ragged data.
    fn flatten(&self, sizes: &[usize], path: &mut Vec<usize>, out: &mut Vec<T>) -> Result<()>;
}

macro_rules! number {
    ($($t:ty)*) => {$(
        impl Nested<$t> for $t {
            fn sizes(&self, _: &mut Vec<usize>) {}
            fn flatten(&self, _: &[usize], _: &mut Vec<usize>, out: &mut Vec<$t>) -> Result<()> {
                out.push(*self);
                Ok(())
            }
        }
    )*};
}
number!(bool u8 u16 u32 u64 i8 i16 i32 i64 crate::f16 crate::bf16 f32 f64);

impl<T: Element, N: Nested<T>> Nested<T> for [N] {
    fn sizes(&self, sizes: &mut Vec<usize>) {
        sizes.push(self.len());
        if let Some(first) = self.first() {
            first.sizes(sizes);
        }
    }
    fn flatten(&self, sizes: &[usize], path: &mut Vec<usize>, out: &mut Vec<T>) -> Result<()> {
        let want = sizes.get(path.len()).copied().unwrap_or(0);
        if self.len() != want {
            let place: String = path.iter().map(|i| format!("[{i}]")).collect();
            return Err(Error::shape(format!(
                "ragged data: element {place} has {} entries, \
                 the first one of its level has {want}",
                self.len()
            ))
            .help("fill short entries up, or make one tensor of each"));
        }
        for (i, part) in self.iter().enumerate() {
            path.push(i);
            part.flatten(sizes, path, out)?;
            path.pop();
        }
        Ok(())
    }
}

impl<T: Element, N: Nested<T>, const L: usize> Nested<T> for [N; L] {
    fn sizes(&self, sizes: &mut Vec<usize>) {
        self.as_slice().sizes(sizes);
    }
    fn flatten(&self, sizes: &[usize], path: &mut Vec<usize>, out: &mut Vec<T>) -> Result<()> {
        self.as_slice().flatten(sizes, path, out)
    }
}

impl<T: Element, N: Nested<T>> Nested<T> for Vec<N> {
    fn sizes(&self, sizes: &mut Vec<usize>) {
        self.as_slice().sizes(sizes);
    }
    fn flatten(&self, sizes: &[usize], path: &mut Vec<usize>, out: &mut Vec<T>) -> Result<()> {
        self.as_slice().flatten(sizes, path, out)
    }
}

impl<T: Element, N: Nested<T> + ?Sized> Nested<T> for &N {
    fn sizes(&self, sizes: &mut Vec<usize>) {
        (**self).sizes(sizes);
    }
    fn flatten(&self, sizes: &[usize], path: &mut Vec<usize>, out: &mut Vec<T>) -> Result<()> {
        (**self).flatten(sizes, path, out)
    }
}
