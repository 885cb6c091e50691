//! Frequent instructions over a long row as one loop, without a store and a load between them.
//!
//! ```text
//!   load x ─ sub max ─ exp ─ store y ─ fold sum        one loop of five instructions
//! ```
//! `registers` reads each instruction once for eight vectors, and reduces to memory. Here a value
//! goes from one instruction to the next in a register, and so do the eight vectors that a row is
//! reduced to. The same operations on the same values in the same order, so the same bits.

use super::instructions::{Code, Instruction, VECTORS};
use super::loops::Loop;
use super::loops::float::{Add, Max, Sub};
use crate::simd::loops::{Binary, Real};
use crate::simd::{F32s, F64s, Lanes, Work};
use crate::vecmath::{Exp, Square};
use std::marker::PhantomData;
use std::ops::Range;

/// The instructions of rows from element `from` on; true if they are a chain.
pub(super) struct Chain<'a, T> {
    pub code: &'a [Instruction],
    pub rows: Range<usize>,
    pub from: usize,
    pub n: usize,
    pub of: PhantomData<T>,
}

/// A step from one vector to the next.
trait Link<T: Real, V: F32s>: Copy {
    /// The next vector, of the elements from `at` on, of which there are `count`.
    ///
    /// # Safety
    /// The memory of the link has these elements.
    unsafe fn apply(self, x: T::Vector<V>, at: usize, count: usize) -> T::Vector<V>;
}

macro_rules! links {
    ($($(#[$doc:meta])* $name:ident |$own:ident: $Own:ty, $x:ident, $at:ident, $count:ident| $body:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy)]
        struct $name<X>(X);
        impl<T: Real, V: F32s> Link<T, V> for $name<$Own> {
            #[inline(always)]
            unsafe fn apply(self, $x: T::Vector<V>, $at: usize, $count: usize) -> T::Vector<V> {
                let $own = self.0;
                $body
            }
        }
    )*};
}

links! {
    /// Less one number.
    Less |own: Number<T>, x, _at, _count| T::binary::<Sub, V>(x, T::Vector::<V>::splat(own.0));
    /// Times one number.
    Scaled |own: Number<T>, x, _at, _count| x.mul(T::Vector::<V>::splat(own.0));
    /// Divided by one number.
    Shared |own: Number<T>, x, _at, _count| {
        T::binary::<Quotient, V>(x, T::Vector::<V>::splat(own.0))
    };
    /// Times a row.
    TimesRow |own: Memory<T>, x, at, count| {
        // SAFETY: by contract.
        x.mul(unsafe { T::Vector::<V>::load_up_to(own.0.add(at), count) })
    };
    /// Plus a row.
    PlusRow |own: Memory<T>, x, at, count| {
        // SAFETY: by contract.
        x.add(unsafe { T::Vector::<V>::load_up_to(own.0.add(at), count) })
    };
    /// A row less this.
    FromRow |own: Memory<T>, x, at, count| {
        // SAFETY: by contract.
        T::binary::<Sub, V>(unsafe { T::Vector::<V>::load_up_to(own.0.add(at), count) }, x)
    };
    /// Written to a row.
    Stored |own: Memory<T>, x, at, count| {
        // SAFETY: by contract.
        unsafe { x.store_up_to(own.0.add(at), count) };
        x
    };
}

/// One number.
#[derive(Clone, Copy)]
struct Number<T>(T);

/// The first element of a row.
#[derive(Clone, Copy)]
struct Memory<T>(*mut T);

/// A function of the vector alone.
#[derive(Clone, Copy)]
struct Squared;
#[derive(Clone, Copy)]
struct Exponential;
#[derive(Clone, Copy)]
struct Same;

impl<T: Real, V: F32s> Link<T, V> for Squared {
    #[inline(always)]
    unsafe fn apply(self, x: T::Vector<V>, _: usize, _: usize) -> T::Vector<V> {
        T::unary::<Square, V>(x)
    }
}

impl<T: Real, V: F32s> Link<T, V> for Exponential {
    #[inline(always)]
    unsafe fn apply(self, x: T::Vector<V>, _: usize, _: usize) -> T::Vector<V> {
        T::unary::<Exp, V>(x)
    }
}

impl<T: Real, V: F32s> Link<T, V> for Same {
    #[inline(always)]
    unsafe fn apply(self, x: T::Vector<V>, _: usize, _: usize) -> T::Vector<V> {
        x
    }
}

impl<T: Real, V: F32s, A: Link<T, V>, B: Link<T, V>> Link<T, V> for (A, B) {
    #[inline(always)]
    unsafe fn apply(self, x: T::Vector<V>, at: usize, count: usize) -> T::Vector<V> {
        // SAFETY: by contract.
        unsafe {
            let x = self.0.apply(x, at, count);
            self.1.apply(x, at, count)
        }
    }
}

/// `a / b` of f32 by the inverse of `b`, which is the same for a whole row, and a correction by the
/// remainder (Markstein 1990): a third of a division's time. For `b` that [`is_divisor`] accepts.
struct Quotient;

impl Binary for Quotient {
    #[inline(always)]
    fn eval<V: F32s>(a: V, b: V) -> V {
        if !V::FUSED {
            return a.div(b);
        }
        let inverse = V::splat(1.0).div(b);
        let y = a.mul(inverse);
        let rest = y.xor_sign(V::splat(-0.0)).fma(b, a);
        // An infinity has no remainder.
        V::select(rest.eq(rest), rest.fma(inverse, y), y)
    }
    #[inline(always)]
    fn eval64<D: F64s>(a: D, b: D) -> D {
        a.div(b)
    }
}

/// Whether neither `b` nor its inverse is near the limits of f32.
fn is_divisor<T: Real>(b: T) -> bool {
    let bytes = b.to_bytes();
    if size_of::<T>() == 8 {
        return true;
    }
    let b = f32::from_bytes(bytes).abs();
    (1e-18..1e18).contains(&b)
}

/// What becomes of the vectors in the end.
trait End {
    type F: Binary;
    const FOLDS: bool;
}
struct SumOf;
struct MaxOf;
struct Nothing;
impl End for SumOf {
    type F = Add;
    const FOLDS: bool = true;
}
impl End for MaxOf {
    type F = Max;
    const FOLDS: bool = true;
}
impl End for Nothing {
    type F = Add;
    const FOLDS: bool = false;
}

/// The loop over a row.
///
/// # Safety
/// The memory of all links, and `first`, have the elements from `from` to `n`; `fold` has eight
/// vectors if the chain ends in one.
#[inline(always)]
unsafe fn run<T: Real, V: F32s, E: End>(
    first: *const T,
    (from, n): (usize, usize),
    link: impl Link<T, V>,
    fold: *mut T,
) {
    let lanes = <T::Vector<V> as Lanes<T>>::LANES;
    let mut at = from;
    // SAFETY: by contract.
    unsafe {
        if E::FOLDS {
            // Loops and not iterators: what these call may not be inlined.
            let mut all = [T::Vector::<V>::splat(T::default()); VECTORS];
            let mut j = 0;
            while j < VECTORS {
                all[j] = T::Vector::<V>::load(fold.add(j * lanes));
                j += 1;
            }
            while at + VECTORS * lanes <= n {
                let mut j = 0;
                while j < VECTORS {
                    let at = at + j * lanes;
                    let x = link.apply(T::Vector::<V>::load(first.add(at)), at, lanes);
                    all[j] = T::binary::<E::F, V>(all[j], x);
                    j += 1;
                }
                at += VECTORS * lanes;
            }
            let mut j = 0;
            while j < VECTORS {
                all[j].store(fold.add(j * lanes));
                j += 1;
            }
        } else {
            while at + 2 * lanes <= n {
                let (x, y) = (first.add(at), first.add(at + lanes));
                let (x, y) = (T::Vector::<V>::load(x), T::Vector::<V>::load(y));
                link.apply(x, at, lanes);
                link.apply(y, at + lanes, lanes);
                at += 2 * lanes;
            }
        }
        let mut j = 0;
        while at < n {
            let count = lanes.min(n - at);
            let x = link.apply(T::Vector::<V>::load_up_to(first.add(at), count), at, count);
            if E::FOLDS {
                let to = fold.add(j * lanes);
                let all = T::binary::<E::F, V>(T::Vector::<V>::load_part(to, count), x);
                all.store_part(to, count);
                j += 1;
            }
            at += count;
        }
    }
}

impl<T: Real> Chain<'_, T> {
    /// The address of an operand in a row.
    #[inline(always)]
    fn place(&self, k: usize, row: usize) -> *mut T {
        let this = &self.code[k];
        this.first.wrapping_offset(row as isize * this.row).cast()
    }

    /// Whether the operands are rows, or one number each, as `kinds` says by `r`, `c`; `-` for none.
    #[inline(always)]
    fn fits(&self, kinds: &[u8]) -> bool {
        let mut k = 0;
        while k < self.code.len() {
            let this = &self.code[k];
            let fits = match kinds[k] {
                b'r' => this.moves != 0 && this.step == size_of::<T>(),
                b'c' => this.moves == 0,
                _ => true,
            };
            if !fits {
                return false;
            }
            k += 1;
        }
        true
    }
}

impl<T: Real> Work for Chain<'_, T> {
    type Out = bool;
    #[inline(always)]
    fn run<V: F32s>(self) -> bool {
        if !V::NATIVE {
            return false; // see `run_rows`
        }
        use Code::{
            Add as Plus, Div, FoldMax, FoldSum, Load, Mul, Operand, RSub, Store, Sub as Minus,
        };
        const EXP: Code = Code::Call(Loop::Exp);
        if self.code.len() < 2 || self.code.len() > 8 {
            return false;
        }
        let mut codes = [Operand; 8];
        let mut k = 0;
        while k < self.code.len() {
            codes[k] = self.code[k].code;
            k += 1;
        }
        let (range, last) = ((self.from, self.n), self.code.len().saturating_sub(1));
        // Operands of the current row by their instruction: the loop over rows is in each chain.
        macro_rules! chain {
            ($kinds:literal, $end:ty, $($link:ident $(($k:literal))?),*) => {{
                if !self.fits($kinds) {
                    return false;
                }
                let mut row = self.rows.start;
                while row < self.rows.end {
                    let x = self.place(0, row).cast_const();
                    // SAFETY: made of instructions of this row, whose operands are what `fits`
                    // says.
                    unsafe {
                        let links = chain!(@ row, $($link $(($k))?),*);
                        run::<T, V, $end>(x, range, links, self.place(last, row));
                    }
                    row += 1;
                }
                true
            }};
            (@ $row:ident, $a:ident $(($k:literal))?) => { chain!(= $row, $a $(($k))?) };
            (@ $row:ident, $a:ident $(($k:literal))?, $($rest:tt)*) => {
                (chain!(= $row, $a $(($k))?), chain!(@ $row, $($rest)*))
            };
            (= $row:ident, Less($k:literal)) => { Less(Number(*self.place($k, $row))) };
            (= $row:ident, Scaled($k:literal)) => { Scaled(Number(*self.place($k, $row))) };
            (= $row:ident, Shared($k:literal)) => { Shared(Number(*self.place($k, $row))) };
            (= $row:ident, $a:ident($k:literal)) => { $a(Memory(self.place($k, $row))) };
            (= $row:ident, $a:ident) => { $a };
        }
        match &codes[..self.code.len()] {
            [Load, FoldSum] => chain!(b"r-", SumOf, Same),
            [Load, FoldMax] => chain!(b"r-", MaxOf, Same),
            [Load, Code::Square, FoldSum] => chain!(b"r--", SumOf, Squared),
            [Load, Mul, FoldSum] => chain!(b"rr-", SumOf, TimesRow(1)),
            [Load, Minus, FoldSum] => chain!(b"rc-", SumOf, Less(1)),
            [Load, Minus, Code::Square, FoldSum] => chain!(b"rc--", SumOf, Less(1), Squared),
            [Load, Minus, Minus, Code::Square, FoldSum] => {
                chain!(b"rcc--", SumOf, Less(1), Less(2), Squared)
            }
            [Load, Minus, Minus, Mul, Code::Square, FoldSum] => {
                chain!(b"rccc--", SumOf, Less(1), Less(2), Scaled(3), Squared)
            }
            [Load, Minus, EXP, Operand, FoldSum] => chain!(b"rc---", SumOf, Less(1), Exponential),
            [Load, Minus, EXP, Operand, Store, FoldSum] => {
                chain!(b"rc--r-", SumOf, Less(1), Exponential, Stored(4))
            }
            [Load, Div, Store] => {
                let mut row = self.rows.start;
                while row < self.rows.end {
                    // SAFETY: the operand of a division is readable.
                    if !self.fits(b"rcr") || !is_divisor(unsafe { *self.place(1, row) }) {
                        return false;
                    }
                    row += 1;
                }
                chain!(b"rcr", Nothing, Shared(1), Stored(2))
            }
            [Load, Minus, Minus, Store] => chain!(b"rccr", Nothing, Less(1), Less(2), Stored(3)),
            [Load, Minus, Mul, Store] => chain!(b"rcrr", Nothing, Less(1), TimesRow(2), Stored(3)),
            [Load, EXP, Operand, Mul, RSub, Store] => {
                chain!(b"r--crr", Nothing, Exponential, Scaled(3), FromRow(4), Stored(5))
            }
            [Load, Mul, Mul, Store] => chain!(b"rcrr", Nothing, Scaled(1), TimesRow(2), Stored(3)),
            [Load, Mul, Mul, Plus, Store] => {
                chain!(b"rcrrr", Nothing, Scaled(1), TimesRow(2), PlusRow(3), Stored(4))
            }
            [Load, Minus, Minus, Mul, Store] => {
                chain!(b"rcccr", Nothing, Less(1), Less(2), Scaled(3), Stored(4))
            }
            [Load, Minus, Minus, Mul, Mul, Store] => {
                chain!(b"rcccrr", Nothing, Less(1), Less(2), Scaled(3), TimesRow(4), Stored(5))
            }
            [Load, Minus, Minus, Mul, Mul, Plus, Store] => {
                chain!(
                    b"rcccrrr",
                    Nothing,
                    Less(1),
                    Less(2),
                    Scaled(3),
                    TimesRow(4),
                    PlusRow(5),
                    Stored(6)
                )
            }
            _ => false,
        }
    }
}
