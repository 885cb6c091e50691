//! The eight vectors that stay in registers while instructions run, and what each kind of
//! instruction does with them.
//!
//! The naive form is a loop over the vectors in each method. Here vectors are numbered by literals
//! (`each!`) and every method is inlined into `registers::execute`: an array that is indexed by a
//! variable, or passed by its address, would be stored and loaded at every instruction.
//! Independent of programs.

use super::calls::{Exponentials, call};
use super::instructions::{BUFFER, Instruction, VECTOR, VECTORS};
use crate::half;
use crate::loops::Loop;
use crate::simd::loops::{Binary, Quaternary, Real, Unary};
use crate::simd::{F32s, Half, Lanes, Level};
use std::marker::PhantomData;

/// The first vector of an operand, and the bytes from one vector to the next.
#[derive(Clone, Copy, PartialEq)]
pub(super) struct Place {
    first: *mut u8,
    step: usize,
}

impl Place {
    /// The address of vector `j`.
    #[inline(always)]
    fn vector<T>(self, j: usize) -> *mut T {
        self.first.wrapping_add(self.step.wrapping_mul(j)).cast()
    }
}

/// Runs the statement for vectors 0 to `$n`, as literals. Conditions are constants, so that nothing
/// is compiled for the vectors that are not there.
macro_rules! each {
    ($n:ident, |$j:ident| $body:expr) => {
        each!(@ $n $j $body, 0 1 2 3 4 5 6 7)
    };
    (@ $n:ident $j:ident $body:expr, $($index:literal)*) => {{
        $(if const { $index < $n } {
            const $j: usize = $index;
            $body
        })*
    }};
}

/// `N` vectors: consecutive ones of one row, or one of each of `N` rows. With `PARTS`, or if `N` is
/// 1, vector `j` has `counts[j]` elements, otherwise all are whole.
///
/// The operands of all methods have these elements.
pub(super) struct Accumulator<T: Real, V: F32s, const N: usize, const PARTS: bool> {
    acc: [T::Vector<V>; VECTORS],
    row: isize,
    at: usize,
    counts: [usize; VECTORS],
    /// Whether the vectors are of consecutive rows, all with as many elements. Only with `PARTS`.
    rowwise: bool,
    of: PhantomData<V>,
}

impl<T: Real, V: F32s, const N: usize, const PARTS: bool> Accumulator<T, V, N, PARTS> {
    /// Bytes of a whole vector.
    const BYTES: usize = T::Vector::<V>::LANES * size_of::<T>();

    /// Zeros, for the vectors of row `row` from element `at` on.
    #[inline(always)]
    pub(super) fn new(row: isize, at: usize, counts: [usize; VECTORS], rowwise: bool) -> Self {
        let acc = [T::Vector::<V>::splat(T::default()); VECTORS];
        Accumulator { acc, row, at, counts, rowwise, of: PhantomData }
    }

    /// The location of an instruction's operand.
    #[inline(always)]
    pub(super) fn place(&self, of: &Instruction) -> Place {
        let first = of.first.wrapping_offset(self.row * of.row).wrapping_add(self.at * of.step);
        let step = if PARTS && self.rowwise { of.down as usize } else { Self::BYTES & of.moves };
        Place { first, step }
    }

    /// Whether the last vector has fewer elements than lanes.
    #[inline(always)]
    fn has_part(&self) -> bool {
        let last = if N == 1 { 0 } else { VECTORS - 1 };
        (PARTS || N == 1) && self.counts[last] < T::Vector::<V>::LANES
    }

    /// Vector `j` of an operand.
    #[inline(always)]
    unsafe fn vector(&self, x: Place, j: usize) -> T::Vector<V> {
        // SAFETY: by contract of the type.
        unsafe {
            if const { PARTS || N == 1 } {
                T::Vector::<V>::load_part(x.vector(j), self.counts[j])
            } else {
                T::Vector::<V>::load(x.vector(j))
            }
        }
    }

    /// The number of vector `j` in every lane.
    #[inline(always)]
    unsafe fn number(x: Place, j: usize) -> T::Vector<V> {
        // SAFETY: by contract of the type.
        T::Vector::<V>::splat(unsafe { *x.vector(j) })
    }

    /// The operand becomes the accumulator.
    #[inline(always)]
    pub(super) unsafe fn load(&mut self, x: Place, is_column: bool) {
        // SAFETY: by contract of the type.
        unsafe {
            if is_column {
                each!(N, |J| self.acc[J] = Self::number(x, J));
            } else if PARTS && !self.has_part() {
                // A part of a vector takes longer than a whole one at some levels.
                each!(N, |J| self.acc[J] = T::Vector::<V>::load(x.vector(J)));
            } else {
                each!(N, |J| self.acc[J] = self.vector(x, J));
            }
        }
    }

    /// Stores the accumulator, past the caches with `stream`.
    #[inline(always)]
    pub(super) unsafe fn store(&self, x: Place, stream: bool) {
        // SAFETY: by contract of the type. The first element of each row that is streamed is at a
        // 64-byte boundary, and so is each of these.
        unsafe {
            if self.has_part() {
                each!(N, |J| self.acc[J].store_part(x.vector(J), self.counts[J]));
            } else if stream && N == VECTORS && !PARTS {
                each!(N, |J| self.acc[J].stream(x.vector(J)));
            } else {
                each!(N, |J| self.acc[J].store(x.vector(J)));
            }
        }
    }

    /// `acc = F(acc)`.
    #[inline(always)]
    pub(super) fn unary<F: Unary>(&mut self) {
        each!(N, |J| self.acc[J] = T::unary::<F, V>(self.acc[J]));
    }

    /// `acc = F(acc, x)`, or `F(x, acc)` if it is `REVERSED`.
    #[inline(always)]
    pub(super) unsafe fn binary<F: Binary, const REVERSED: bool>(
        &mut self,
        x: Place,
        is_column: bool,
    ) {
        macro_rules! apply {
            ($j:ident, $x:expr) => {{
                let (x, acc) = ($x, self.acc[$j]);
                let (a, b) = if REVERSED { (x, acc) } else { (acc, x) };
                self.acc[$j] = T::binary::<F, V>(a, b);
            }};
        }
        // SAFETY: by contract of the type.
        unsafe {
            if const { PARTS || N == 1 } {
                if is_column {
                    each!(N, |J| apply!(J, Self::number(x, J)));
                } else {
                    each!(N, |J| apply!(J, self.vector(x, J)));
                }
            } else if x.step == 0 {
                // A number is loaded once.
                let number = match is_column {
                    true => Self::number(x, 0),
                    false => T::Vector::<V>::load(x.vector(0)),
                };
                each!(N, |J| apply!(J, number));
            } else {
                // Vectors of one row are a literal apart.
                let x = Place { step: Self::BYTES, ..x };
                each!(N, |J| apply!(J, T::Vector::<V>::load(x.vector(J))));
            }
        }
    }

    /// `acc = F(u, v, a, acc)`: the accumulator where a comparison of `u` and `v` is false.
    #[inline(always)]
    pub(super) unsafe fn choice<F: Quaternary>(&mut self, u: Place, v: Place, a: Place) {
        // SAFETY: by contract of the type.
        unsafe {
            // A number is compared with the chosen value, as in most activations.
            if const { N > 1 && !PARTS } && u.step == 0 && v == a && v.step != 0 {
                let u = T::Vector::<V>::load(u.vector(0));
                let v = Place { step: Self::BYTES, ..v };
                each!(N, |J| {
                    let x = T::Vector::<V>::load(v.vector(J));
                    self.acc[J] = T::quaternary::<F, V>([u, x, x, self.acc[J]]);
                })
            } else {
                each!(N, |J| self.acc[J] = T::quaternary::<F, V>([
                    self.vector(u, J),
                    self.vector(v, J),
                    self.vector(a, J),
                    self.acc[J],
                ]))
            }
        }
    }

    /// The 16-bit elements of vector `j`, and how many there are.
    #[inline(always)]
    fn half(&self, x: Place, j: usize) -> (*mut u16, usize) {
        let step = if PARTS && self.rowwise { x.step } else { Self::BYTES / 2 };
        let count = if PARTS || N == 1 { self.counts[j] } else { V::LANES };
        (Place { step, ..x }.vector(j), count)
    }

    /// As `load`, of elements of 16 bits. These three do nothing unless `T` is f32.
    #[inline(always)]
    pub(super) unsafe fn load_half<H: Half>(&mut self, x: Place) {
        if const { size_of::<T>() == 4 } {
            each!(N, |J| {
                let (p, n) = self.half(x, J);
                // SAFETY: by contract of the type.
                self.acc[J] = T::from_f32s::<V>(unsafe { half::load::<V, H>(p, n) });
            })
        }
    }

    /// As `store`, rounded to 16 bits.
    #[inline(always)]
    pub(super) unsafe fn store_half<H: Half>(&self, x: Place) {
        if const { size_of::<T>() == 4 } {
            each!(N, |J| {
                let (p, n) = self.half(x, J);
                // SAFETY: by contract of the type.
                unsafe { half::store::<V, H>(T::to_f32s::<V>(self.acc[J]), p, n) };
            })
        }
    }

    /// Writes elements of 16 bits to `buffer` as f32; the accumulator stays as it is.
    #[inline(always)]
    pub(super) unsafe fn widen<H: Half>(&self, x: Place, buffer: *mut u8) {
        let step = if PARTS && self.rowwise { VECTOR } else { Self::BYTES };
        let buffer = Place { first: buffer, step };
        if const { size_of::<T>() == 4 } {
            each!(N, |J| {
                let (p, n) = self.half(x, J);
                // SAFETY: by contract of the type; a buffer has memory for eight vectors.
                unsafe { half::load::<V, H>(p, n).store(buffer.vector(J)) };
            })
        }
    }

    /// Combines the numbers at `x` with the accumulator, which stays as it is.
    #[inline(always)]
    pub(super) unsafe fn fold<F: Binary>(&self, x: Place) {
        // SAFETY: by contract of the type.
        unsafe {
            if PARTS && x.step == 0 {
                // Vectors of one number for all rows are combined with each other first.
                let mut all = self.acc[0];
                each!(N, |J| if const { J != 0 } {
                    all = T::binary::<F, V>(all, self.acc[J])
                });
                let all = T::binary::<F, V>(self.vector(x, 0), all);
                all.store_part(x.vector(0), self.counts[0]);
            } else {
                each!(N, |J| {
                    let all = T::binary::<F, V>(self.vector(x, J), self.acc[J]);
                    if const { PARTS || N == 1 } {
                        all.store_part(x.vector(J), self.counts[J])
                    } else {
                        all.store(x.vector(J))
                    }
                })
            }
        }
    }

    /// The function `body` of the accumulator and, if it has two operands, `x`, by way of `block`,
    /// memory for two buffers.
    #[inline(always)]
    pub(super) unsafe fn call(&mut self, level: Level, body: Loop, x: Place, block: *mut u8) {
        let own = Place { first: block, step: Self::BYTES };
        let second = Place { first: block.wrapping_add(BUFFER), ..own };
        // SAFETY: by contract of the type.
        unsafe {
            each!(N, |J| self.acc[J].store(own.vector(J)));
            if body.operands() == 2 {
                each!(N, |J| self.vector(x, J).store(second.vector(J)));
            }
            if matches!(body, Loop::Exp) {
                V::call(Exponentials::<T> { block: block.cast(), vectors: N });
            } else {
                let n = N * Self::BYTES / size_of::<T>();
                call(level, size_of::<T>() == 8, body, block, n);
            }
            each!(N, |J| self.acc[J] = T::Vector::<V>::load(own.vector(J)));
        }
    }
}
