//! Shapes and the arguments that name shapes and axes.
//!
//! A [`Shape`] is stored inline (no heap), so that a tensor of a few elements costs one allocation:
//! its storage.

use crate::context::enter;
use crate::error::{Error, Result};
use std::fmt;
use std::ops::Deref;

/// The largest number of axes a tensor can have.
pub const MAX_NDIM: usize = 8;

/// The largest number of elements of a shape, axes of size 0 left out: bytes of the widest type are
/// counted by an `isize`.
pub(crate) const MAX_NUMEL: usize = isize::MAX as usize / 8;

/// `n` as an `I32`, the type of positions.
pub(crate) fn index_end(n: usize) -> Result<i32> {
    i32::try_from(n).map_err(|_| {
        Error::value(format!("{n} positions do not fit i32, the type of positions"))
            .help(format!("work on slices of at most {} elements", i32::MAX))
    })
}

/// A number of a shape or a layout.
#[derive(Clone, Copy)]
pub(crate) enum Integer {
    /// A size, an offset or a position: not negative.
    Size(i64),
    /// A step, of any sign.
    Stride(i64),
}

/// The sizes of a tensor's axes, outermost first. At most [`MAX_NDIM`] axes; `()` is a scalar's
/// shape.
#[derive(Clone, Copy)]
pub struct Shape {
    sizes: [usize; MAX_NDIM],
    ndim: u8,
}

impl Shape {
    /// The shape of a scalar: no axes, one element.
    pub const SCALAR: Shape = Shape { sizes: [0; MAX_NDIM], ndim: 0 };

    /// A shape from its sizes.
    ///
    /// # Errors
    /// More than [`MAX_NDIM`] axes, or a number of elements that overflows `isize`.
    #[track_caller]
    pub fn new(sizes: &[usize]) -> Result<Shape> {
        Shape::checked("Shape::new", sizes)
    }

    /// [`Shape::new`] for `op`, which errors name outside of an operation.
    #[track_caller]
    fn checked(op: &'static str, sizes: &[usize]) -> Result<Shape> {
        if sizes.len() > MAX_NDIM {
            let _op = enter(op);
            return Err(Error::shape(format!(
                "a tensor has at most {MAX_NDIM} axes, not {}: {:?}{}",
                sizes.len(),
                &sizes[..sizes.len().min(2 * MAX_NDIM)],
                if sizes.len() > 2 * MAX_NDIM { ".." } else { "" }
            ))
            .help("x.flatten(start, end)? joins axes, x.squeeze(axis)? removes one of size 1"));
        }
        let shape = Shape::from_checked(sizes);
        if shape.is_addressable() { Ok(shape) } else { Err(too_large(op, &shape)) }
    }

    /// A shape from sizes already known to be legal.
    pub(crate) fn from_checked(sizes: &[usize]) -> Shape {
        let mut shape = Shape::SCALAR;
        shape.sizes[..sizes.len()].copy_from_slice(sizes);
        shape.ndim = sizes.len() as u8;
        shape
    }

    /// The number of axes.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.ndim as usize
    }

    /// The number of elements: the product of the sizes, 1 for a scalar.
    #[inline]
    pub fn numel(&self) -> usize {
        self.iter().product()
    }

    /// Axis `axis` counted from the front; negative axes count from the back.
    ///
    /// # Errors
    /// If the shape has no such axis.
    #[inline]
    #[track_caller]
    pub fn axis(&self, axis: isize) -> Result<usize> {
        let ndim = self.ndim() as isize;
        let resolved = if axis < 0 { axis + ndim } else { axis };
        if (0..ndim).contains(&resolved) {
            return Ok(resolved as usize);
        }
        Err(no_axis(self, axis))
    }

    /// Like [`Shape::axis`] for a position between axes, as `unsqueeze` and `stack` take it: `-1`
    /// is after the last axis.
    pub(crate) fn gap(&self, axis: isize) -> Result<usize> {
        let places = self.ndim() as isize + 1;
        let resolved = if axis < 0 { axis + places } else { axis };
        if (0..places).contains(&resolved) {
            return Ok(resolved as usize);
        }
        Err(Error::axis(format!("no position {axis} for a new axis in a tensor of shape {self}"))
            .help(format!("positions go from {} to {}", -places, places - 1)))
    }

    /// This shape with `axis` of another size.
    ///
    /// # Panics
    /// If `axis` is out of range, or the result has more elements than memory can address: for
    /// sizes that come from a user, [`Shape::resized`] returns the error.
    #[track_caller]
    pub fn with_size(self, axis: usize, size: usize) -> Shape {
        self.resized(axis, size).unwrap_or_else(|error| panic!("{error}"))
    }

    /// This shape with `axis`, which it has, of another size.
    ///
    /// # Errors
    /// If the result has more elements than memory can address.
    #[track_caller]
    pub fn resized(self, axis: usize, size: usize) -> Result<Shape> {
        let out = self.shortened(axis, size);
        match out.is_addressable() {
            true => Ok(out),
            false => Err(too_large("Shape::resized", &out)),
        }
    }

    /// [`Shape::resized`] to a size that is not larger.
    pub(crate) fn shortened(mut self, axis: usize, size: usize) -> Shape {
        self.sizes[..self.ndim as usize][axis] = size;
        self
    }

    /// Replaces the sizes by `f` of them.
    pub(crate) fn map_integers(&mut self, f: &mut dyn FnMut(Integer) -> i64) {
        for size in &mut self.sizes[..self.ndim as usize] {
            *size = f(Integer::Size(*size as i64)) as usize;
        }
    }

    /// True if the product of the sizes that are not 0 fits, so that neither the number of elements
    /// nor a stride of an empty tensor overflows.
    #[inline]
    fn is_addressable(&self) -> bool {
        let numel = self.iter().filter(|&&n| n != 0).try_fold(1usize, |a, &n| a.checked_mul(n));
        numel.is_some_and(|n| n <= MAX_NUMEL)
    }

    /// This shape without `axis`.
    pub fn without(&self, axis: usize) -> Shape {
        let mut sizes = self.to_vec();
        sizes.remove(axis);
        Shape::from_checked(&sizes)
    }

    /// This shape with a new axis of `size` before position `axis`.
    ///
    /// # Errors
    /// If the result has too many axes or elements.
    #[track_caller]
    pub fn with_axis(&self, axis: usize, size: usize) -> Result<Shape> {
        let mut sizes = self.to_vec();
        sizes.insert(axis, size);
        Shape::checked("Shape::with_axis", &sizes)
    }

    /// This shape with `axes` of size 1, or without them.
    #[inline(always)]
    pub fn reduced(&self, axes: &[usize], keepdim: bool) -> Shape {
        let mut out = Shape::SCALAR;
        for (axis, &size) in self.iter().enumerate() {
            let gone = axes.contains(&axis);
            if gone && !keepdim {
                continue;
            }
            out.sizes[out.ndim as usize] = if gone { 1 } else { size };
            out.ndim += 1;
        }
        out
    }

    /// The shape both broadcast to: aligned from the right, axes of size 1 stretch, missing axes
    /// count as 1. `None` if they do not fit, or the result has more elements than memory can
    /// address.
    pub fn broadcast(&self, other: &Shape) -> Option<Shape> {
        let (long, short) = if self.ndim >= other.ndim { (self, other) } else { (other, self) };
        let mut out = *long;
        let shift = long.ndim() - short.ndim();
        for axis in 0..short.ndim() {
            let (a, b) = (long.sizes[axis + shift], short.sizes[axis]);
            out.sizes[axis + shift] = match (a, b) {
                (a, b) if a == b => a,
                (1, b) => b,
                (a, 1) => a,
                _ => return None,
            };
        }
        out.is_addressable().then_some(out)
    }
}

#[cold]
#[track_caller]
fn too_large(op: &'static str, shape: &Shape) -> Error {
    let _op = enter(op);
    Error::value(format!("shape {shape} has more elements than memory can address"))
        .help(format!("the sizes multiply to {MAX_NUMEL} at most"))
}

#[cold]
#[track_caller]
pub(crate) fn no_axis(shape: &Shape, axis: isize) -> Error {
    let _op = enter("Shape::axis");
    let ndim = shape.ndim() as isize;
    Error::axis(format!("no axis {axis} in a tensor of shape {shape}")).help(match ndim {
        0 => "a scalar has no axes; x.reshape(1)? is a vector of one element".to_string(),
        _ => format!("axes go from {} to {}", -ndim, ndim - 1),
    })
}

impl Deref for Shape {
    type Target = [usize];
    #[inline]
    fn deref(&self) -> &[usize] {
        &self.sizes[..self.ndim as usize]
    }
}

impl PartialEq for Shape {
    #[inline]
    fn eq(&self, other: &Shape) -> bool {
        **self == **other
    }
}
impl Eq for Shape {}
impl std::hash::Hash for Shape {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

/// Shapes compare with slices and arrays, which keeps assertions short.
impl<const N: usize> PartialEq<[usize; N]> for Shape {
    fn eq(&self, other: &[usize; N]) -> bool {
        **self == *other
    }
}

/// As Rust and Python print tuples: `(2, 3)`, `(5,)`, `()`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.iter().map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
        match self.ndim {
            1 => write!(f, "({sizes},)"),
            _ => write!(f, "({sizes})"),
        }
    }
}
impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A number that can be one size in a shape: `usize`, `i32`, `i64`, `isize`. Negative sizes only
/// mean something to `reshape` (-1: infer) and `expand` (-1: keep).
pub trait Size: Copy {
    /// The number; sizes above `i64::MAX` become `i64::MAX`, which every check refuses.
    fn size(self) -> i64;
}
impl Size for usize {
    fn size(self) -> i64 {
        i64::try_from(self).unwrap_or(i64::MAX)
    }
}
impl Size for i32 {
    fn size(self) -> i64 {
        self as i64
    }
}
impl Size for i64 {
    fn size(self) -> i64 {
        self
    }
}
impl Size for isize {
    fn size(self) -> i64 {
        self as i64
    }
}

/// Anything that names a shape: `()`, `5`, `(2, 3)`, `[2, 3]`, a slice, a `Vec`, another [`Shape`].
/// Sizes may be of mixed integer types.
pub trait IntoShape {
    /// The sizes as written, negative ones included.
    fn sizes(&self) -> Vec<i64>;

    /// The shape named.
    ///
    /// # Errors
    /// A negative size, too many axes, or a number of elements that overflows.
    #[track_caller]
    fn shape(&self) -> Result<Shape> {
        named(&self.sizes())
    }
}

#[track_caller]
fn named(sizes: &[i64]) -> Result<Shape> {
    if let Some(bad) = sizes.iter().find(|&&n| n < 0) {
        let _op = enter("IntoShape::shape");
        return Err(Error::shape(format!("a size cannot be negative: {bad} in {sizes:?}")).help(
            "only x.reshape(..)? infers a size written as -1, and only x.expand(..)? keeps one",
        ));
    }
    Shape::checked("IntoShape::shape", &sizes.iter().map(|&n| n as usize).collect::<Vec<_>>())
}

impl IntoShape for Shape {
    fn sizes(&self) -> Vec<i64> {
        self.iter().map(|&n| n as i64).collect()
    }
    fn shape(&self) -> Result<Shape> {
        Ok(*self)
    }
}
impl IntoShape for () {
    fn sizes(&self) -> Vec<i64> {
        Vec::new()
    }
}
macro_rules! one_size {
    ($($t:ty)*) => {$(
        impl IntoShape for $t {
            fn sizes(&self) -> Vec<i64> { vec![self.size()] }
        }
        impl IntoAxes for $t {
            #[track_caller]
            fn axes(&self, shape: &Shape) -> Result<Vec<usize>> { [*self].as_slice().axes(shape) }
        }
    )*};
}
one_size!(usize i32 i64 isize);
impl<T: Size, const N: usize> IntoShape for [T; N] {
    fn sizes(&self) -> Vec<i64> {
        self.as_slice().sizes()
    }
}
impl<T: Size> IntoShape for [T] {
    fn sizes(&self) -> Vec<i64> {
        self.iter().map(|n| n.size()).collect()
    }
}
impl<T: Size> IntoShape for Vec<T> {
    fn sizes(&self) -> Vec<i64> {
        self.as_slice().sizes()
    }
}
impl<S: IntoShape + ?Sized> IntoShape for &S {
    fn sizes(&self) -> Vec<i64> {
        (**self).sizes()
    }
    #[track_caller]
    fn shape(&self) -> Result<Shape> {
        (**self).shape()
    }
}
macro_rules! tuple_shape {
    ($($t:ident $i:tt),+) => {
        impl<$($t: Size),+> IntoShape for ($($t,)+) {
            fn sizes(&self) -> Vec<i64> { vec![$(self.$i.size()),+] }
        }
    };
}
tuple_shape!(A 0);
tuple_shape!(A 0, B 1);
tuple_shape!(A 0, B 1, C 2);
tuple_shape!(A 0, B 1, C 2, D 3);
tuple_shape!(A 0, B 1, C 2, D 3, E 4);
tuple_shape!(A 0, B 1, C 2, D 3, E 4, F 5);
tuple_shape!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
tuple_shape!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);

/// Anything that names axes: one integer, an array, a slice or a `Vec` of integers; negative axes
/// count from the back. `..` names all of them.
pub trait IntoAxes {
    /// The axes of `shape` that are named, counted from the front, in ascending order.
    ///
    /// # Errors
    /// An axis that does not exist, or is named twice.
    #[track_caller]
    fn axes(&self, shape: &Shape) -> Result<Vec<usize>>;
}
impl IntoAxes for std::ops::RangeFull {
    #[track_caller]
    fn axes(&self, shape: &Shape) -> Result<Vec<usize>> {
        Ok((0..shape.ndim()).collect())
    }
}
impl<T: Size, const N: usize> IntoAxes for [T; N] {
    #[track_caller]
    fn axes(&self, shape: &Shape) -> Result<Vec<usize>> {
        self.as_slice().axes(shape)
    }
}
impl<T: Size> IntoAxes for Vec<T> {
    #[track_caller]
    fn axes(&self, shape: &Shape) -> Result<Vec<usize>> {
        self.as_slice().axes(shape)
    }
}
impl<T: Size> IntoAxes for [T] {
    #[track_caller]
    fn axes(&self, shape: &Shape) -> Result<Vec<usize>> {
        ascending(self.iter().map(|a| a.size() as isize).collect(), shape)
    }
}

/// `named` axes of `shape`, counted from the front, each once.
#[track_caller]
fn ascending(named: Vec<isize>, shape: &Shape) -> Result<Vec<usize>> {
    let mut axes = Vec::with_capacity(named.len());
    for axis in named {
        axes.push(shape.axis(axis)?);
    }
    axes.sort_unstable();
    match axes.windows(2).find(|w| w[0] == w[1]) {
        Some(w) => Err(named_twice(w[0], shape)),
        None => Ok(axes),
    }
}

#[cold]
#[track_caller]
fn named_twice(axis: usize, shape: &Shape) -> Error {
    let _op = enter("IntoAxes::axes");
    Error::axis(format!("axis {axis} of shape {shape} is named twice")).help(format!(
        "name it once: {axis} and {} are the same axis",
        axis as isize - shape.ndim() as isize
    ))
}

impl<A: IntoAxes + ?Sized> IntoAxes for &A {
    #[track_caller]
    fn axes(&self, shape: &Shape) -> Result<Vec<usize>> {
        (**self).axes(shape)
    }
}
