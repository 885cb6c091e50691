//! The items of an index: positions, ranges, new axes, lists and masks, written as a tuple or with
//! [`s!`](crate::s).
//!
//! This file only turns Rust's ways of writing them into a list of [`Subscript`]s; `indexing`
//! resolves them for a shape.

use crate::shape::Size;
use crate::tensor::Tensor;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

/// One item of an index, as [`Tensor::index`] and [`Tensor::assign`] take it.
#[derive(Clone, Debug)]
pub enum Subscript {
    /// The elements at one position; the axis disappears. Negative positions count from the end.
    At(i64),
    /// A range of an axis, every `step`-th element of it; with a negative step the same range read
    /// from its end. Bounds are clamped to the axis.
    Slice {
        /// First and last position; negative ones count from the end.
        range: (Bound<i64>, Bound<i64>),
        /// Not 0.
        step: i64,
    },
    /// A new axis of size 1; takes none of the tensor's.
    NewAxis,
    /// As many whole axes as the other items leave over.
    Ellipsis,
    /// Elements at these positions of one axis, in this order, repeated as often as they are named.
    Positions(Vec<i64>),
    /// Elements at the true places of one axis.
    Flags(Vec<bool>),
    /// Integers of any shape: positions along one axis. Bools: the true places of as many axes as
    /// the tensor has.
    Tensor(Tensor),
}

/// A new axis of size 1, as an item of an index. Equivalent: `numpy.newaxis`.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;

/// All axes that the other items of an index leave over. Equivalent: Python's `...`.
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

impl Subscript {
    /// A range with a step: [`s!`](crate::s) makes one of `2..9;3`. Of anything else the step is
    /// ignored.
    pub fn stepped(item: impl Into<Subscript>, step: impl Size) -> Subscript {
        match item.into() {
            Subscript::Slice { range, .. } => Subscript::Slice { range, step: step.size() },
            other => other,
        }
    }
}

impl From<NewAxis> for Subscript {
    fn from(_: NewAxis) -> Subscript {
        Subscript::NewAxis
    }
}
impl From<Ellipsis> for Subscript {
    fn from(_: Ellipsis) -> Subscript {
        Subscript::Ellipsis
    }
}
impl From<RangeFull> for Subscript {
    fn from(_: RangeFull) -> Subscript {
        Subscript::Slice { range: (Bound::Unbounded, Bound::Unbounded), step: 1 }
    }
}
impl From<Tensor> for Subscript {
    fn from(x: Tensor) -> Subscript {
        Subscript::Tensor(x)
    }
}
impl From<&Tensor> for Subscript {
    fn from(x: &Tensor) -> Subscript {
        Subscript::Tensor(x.clone())
    }
}

macro_rules! ranges {
    ($($range:ident)*) => {$(
        impl<T: Size> From<$range<T>> for Subscript {
            fn from(range: $range<T>) -> Subscript {
                use std::ops::RangeBounds;
                let wide = |bound: Bound<&T>| bound.map(|p| p.size());
                let range = (wide(range.start_bound()), wide(range.end_bound()));
                Subscript::Slice { range, step: 1 }
            }
        }
        impl<T: Size> IntoIndex for $range<T> {
            fn subscripts(self) -> Vec<Subscript> { vec![self.into()] }
        }
    )*};
}
ranges!(Range RangeFrom RangeTo RangeInclusive RangeToInclusive);

macro_rules! positions {
    ($($t:ty)*) => {$(
        impl From<$t> for Subscript {
            fn from(position: $t) -> Subscript { Subscript::At(position.size()) }
        }
        impl<const N: usize> From<[$t; N]> for Subscript {
            fn from(positions: [$t; N]) -> Subscript { positions.as_slice().into() }
        }
        impl From<Vec<$t>> for Subscript {
            fn from(positions: Vec<$t>) -> Subscript { positions.as_slice().into() }
        }
        impl From<&[$t]> for Subscript {
            fn from(positions: &[$t]) -> Subscript {
                Subscript::Positions(positions.iter().map(|p| p.size()).collect())
            }
        }
        single!($t, Vec<$t>, &[$t]);
        impl<const N: usize> IntoIndex for [$t; N] {
            fn subscripts(self) -> Vec<Subscript> { vec![self.into()] }
        }
    )*};
}

/// An index: one item ([`Subscript`] or a type that converts to it), a tuple of items, or the
/// result of [`s!`](crate::s).
///
/// Items are integers, ranges, `..` (one whole axis), [`Ellipsis`], [`NewAxis`], lists of integers
/// or bools, and tensors of integers or bools.
pub trait IntoIndex {
    /// The items in order.
    fn subscripts(self) -> Vec<Subscript>;
}

macro_rules! single {
    ($($t:ty),*) => {$(
        impl IntoIndex for $t {
            fn subscripts(self) -> Vec<Subscript> { vec![self.into()] }
        }
    )*};
}
positions!(i32 i64 isize usize);
single!(Subscript, NewAxis, Ellipsis, RangeFull, Tensor, &Tensor, Vec<bool>, &[bool]);

impl From<Vec<bool>> for Subscript {
    fn from(flags: Vec<bool>) -> Subscript {
        Subscript::Flags(flags)
    }
}
impl From<&[bool]> for Subscript {
    fn from(flags: &[bool]) -> Subscript {
        Subscript::Flags(flags.to_vec())
    }
}
impl<const N: usize> From<[bool; N]> for Subscript {
    fn from(flags: [bool; N]) -> Subscript {
        Subscript::Flags(flags.to_vec())
    }
}
impl<const N: usize> IntoIndex for [bool; N] {
    fn subscripts(self) -> Vec<Subscript> {
        vec![self.into()]
    }
}
impl<const N: usize> IntoIndex for [Subscript; N] {
    fn subscripts(self) -> Vec<Subscript> {
        self.into()
    }
}
impl IntoIndex for Vec<Subscript> {
    fn subscripts(self) -> Vec<Subscript> {
        self
    }
}
impl IntoIndex for () {
    fn subscripts(self) -> Vec<Subscript> {
        Vec::new()
    }
}

macro_rules! tuple_index {
    ($($t:ident $i:tt),+) => {
        impl<$($t: Into<Subscript>),+> IntoIndex for ($($t,)+) {
            fn subscripts(self) -> Vec<Subscript> { vec![$(self.$i.into()),+] }
        }
    };
}
tuple_index!(A 0);
tuple_index!(A 0, B 1);
tuple_index!(A 0, B 1, C 2);
tuple_index!(A 0, B 1, C 2, D 3);
tuple_index!(A 0, B 1, C 2, D 3, E 4);
tuple_index!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple_index!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple_index!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// An index with all the syntax of Python's brackets: `s![.., 1, 0..9;2, -3.., ..., NewAxis, [0,
/// 2], &mask]`.
///
/// `..` is one whole axis, `...` all that are left over, `range;step` a range with a step. A
/// negative step reads the same range from its end, so that `..;-1` is the whole axis backwards and
/// `2..9;-3` is Python's `8:1:-3`. Without steps and `...`, a tuple says the same:
/// `x.index((.., 1, 0..2))`.
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference, Tensor, s};
/// # fn main() -> teeny_core::Result<()> {
/// let x = Tensor::arange(0i64, 24, 1, &Reference::new())?.reshape((2, 3, 4))?; // (2, 3, 4)
/// assert_eq!(x.index(s![1, ..., -1])?.to_vec::<i64>()?, [15, 19, 23]); // (3)
/// assert_eq!(x.index(s![0, 0, ..;-2])?.to_vec::<i64>()?, [3, 1]); // (2)
/// # Ok(()) }
/// ```
#[macro_export]
macro_rules! s {
    (@ [$($done:expr,)*]) => {{
        // 1..-1 is a range here: negative positions count from the end
        #[allow(clippy::reversed_empty_ranges)]
        let items: ::std::vec::Vec<$crate::Subscript> = ::std::vec![$($done),*];
        items
    }};
    (@ [$($done:expr,)*] ... $(, $($rest:tt)*)?) => {
        $crate::s!(@ [$($done,)* $crate::Subscript::Ellipsis,] $($($rest)*)?)
    };
    (@ [$($done:expr,)*] $range:expr ; $step:expr $(, $($rest:tt)*)?) => {
        $crate::s!(@ [$($done,)* $crate::Subscript::stepped($range, $step),] $($($rest)*)?)
    };
    (@ [$($done:expr,)*] $item:expr $(, $($rest:tt)*)?) => {
        $crate::s!(@ [$($done,)* $crate::Subscript::from($item),] $($($rest)*)?)
    };
    ($($items:tt)*) => { $crate::s!(@ [] $($items)*) };
}
