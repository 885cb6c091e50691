//! Options structs of layers, and [`PerAxis`] for the sizes in them.
//!
//! A layer has two constructors: `new` with PyTorch's defaults, and `with_options` with an options
//! struct. Options structs are `#[non_exhaustive]`: make one with `new()` or `default()` and chain
//! `with_…` methods.

pub(crate) use teeny_core::{options, setters};

/// One number for each of N spatial axes: an array, or a single number for all axes.
pub trait PerAxis<const N: usize> {
    /// The numbers.
    fn per_axis(self) -> [usize; N];
}

impl<const N: usize> PerAxis<N> for usize {
    fn per_axis(self) -> [usize; N] {
        [self; N]
    }
}

impl<const N: usize> PerAxis<N> for [usize; N] {
    fn per_axis(self) -> [usize; N] {
        self
    }
}
