//! One operation of one or two operands over 16-bit floats that are converted in registers, and
//! casts.
//!
//! The naive form converts both operands into blocks of f32, computes, and converts the result: each
//! value is stored and loaded twice more than it need be. For arithmetic that takes as long as the
//! rest. Here operands are widened as they are loaded and results rounded as they are stored. Other
//! operations take longer than the conversions: `blocks` runs them.

use super::step::{Format, Place, Step};
use crate::half;
use crate::loops::Loop;
use crate::loops::float::{
    Add, Ceil, Div, Floor, Max, Min, Mul, Recip, Round, Rsqrt, Sqrt, Sub, Trunc,
};
use crate::simd::loops::{Binary, Real, Unary};
use crate::simd::{F32s, F64s, Half, Level, Work};
use crate::vecmath::Square;
use std::{marker::PhantomData, ptr::null};
use teeny_core::{DType, bf16, f16};

/// Runs a step of one or two operands over 16-bit elements of one type, or a cast from or to f32.
/// False if it is another step.
///
/// # Safety
/// As `groups::run`.
pub(super) unsafe fn run(level: Level, step: &Step, rows: usize, n: usize) -> bool {
    let Place::Rows(y, y_stride, format) = step.to else { return false };
    let operands = step.body.operands();
    if let (Place::Rows(x, x_stride, from), 1) = (step.from[0], operands) {
        let (half, widens) = match (step.body, from.half(), format.half()) {
            (Loop::Copy, Some(half), None) => (half, true),
            (Loop::RoundToBf16, None, Some(half @ DType::BF16))
            | (Loop::RoundToF16, None, Some(half @ DType::F16)) => (half, false),
            (_, Some(_), Some(_)) => return half_operation(level, step, format, rows, n),
            _ => return false,
        };
        for row in 0..rows as isize {
            let x = x.wrapping_offset(row * x_stride * if widens { 2 } else { 4 });
            let y = y.wrapping_offset(row * y_stride * if widens { 4 } else { 2 });
            // SAFETY: by contract.
            unsafe {
                match widens {
                    true => half::to_f32(level, half, x, y, n),
                    false => half::from_f32(level, half, x, y, n),
                }
            }
        }
        return true;
    }
    format != Format::Own && operands == 2 && half_operation(level, step, format, rows, n)
}

/// Runs an operation over elements that are all of `format`, with numbers; false if it takes longer
/// than the conversions. The caller promises the elements.
fn half_operation(level: Level, step: &Step, format: Format, rows: usize, n: usize) -> bool {
    let Place::Rows(y, y_stride, _) = step.to else { return false };
    let mut from = [Source { first: null(), stride: 0, is_column: false, number: 0.0 }; 2];
    for (operand, place) in from.iter_mut().zip(&step.from[..step.body.operands()]) {
        (operand.first, operand.stride) = match *place {
            Place::Rows(p, stride, own) if own == format => (p.cast_const().cast(), stride),
            Place::Column(p, stride, own) if own == format => (p.cast(), stride),
            Place::Splat(bytes) => {
                operand.number = f32::from_bytes(bytes);
                continue;
            }
            Place::Rows(..) | Place::Block(_) | Place::Column(..) => return false,
        };
        operand.is_column = matches!(place, Place::Column(..));
    }
    let [a, b] = from;
    // A product of one operand by itself converts it once. A column of it may begin where it does.
    let whole = |x: &Source| (x.first, x.stride, x.is_column);
    let is_square = !a.first.is_null() && whole(&a) == whole(&b);
    let y = y.cast();
    macro_rules! run {
        ($f:ty) => {
            match format {
                Format::Bf16 => {
                    level.run(Halves::<$f, bf16> { from, y, y_stride, rows, n, of: PhantomData })
                }
                _ => level.run(Halves::<$f, f16> { from, y, y_stride, rows, n, of: PhantomData }),
            }
        };
    }
    // The sign is a bit, which takes no conversion.
    let sign = |kept, flipped| level.run(SignBit { a, y, y_stride, rows, n, kept, flipped });
    match step.body {
        Loop::Mul if is_square => run!(One<Square>),
        Loop::Add => run!(Add),
        Loop::Sub => run!(Sub),
        Loop::Mul => run!(Mul),
        Loop::Div => run!(Div),
        Loop::Max => run!(Max),
        Loop::Min => run!(Min),
        Loop::Neg => sign(0xffff, 0x8000),
        Loop::Abs => sign(0x7fff, 0),
        Loop::Square => run!(One<Square>),
        Loop::Sqrt => run!(One<Sqrt>),
        Loop::Recip => run!(One<Recip>),
        Loop::Rsqrt => run!(One<Rsqrt>),
        Loop::Floor => run!(One<Floor>),
        Loop::Ceil => run!(One<Ceil>),
        Loop::Round => run!(One<Round>),
        Loop::Trunc => run!(One<Trunc>),
        _ => return false,
    }
    true
}

/// A function of the first of two operands.
struct One<F>(PhantomData<F>);

impl<F: Unary> Binary for One<F> {
    #[inline(always)]
    fn eval<V: F32s>(a: V, _: V) -> V {
        F::eval(a)
    }
    #[inline(always)]
    fn eval64<D: F64s>(a: D, _: D) -> D {
        F::eval64(a)
    }
}

/// An operand: the element or elements of its first row and the elements to the next, or a number
/// if that is null.
#[derive(Clone, Copy)]
struct Source {
    first: *const u16,
    stride: isize,
    /// Whether there is one element for each row.
    is_column: bool,
    number: f32,
}

impl Source {
    /// A vector of a number and null, or any vector and where the row begins.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn row<V: F32s, H: Half>(&self, row: isize) -> (V, *const u16) {
        if self.first.is_null() {
            return (V::splat(self.number), self.first);
        }
        let p = self.first.wrapping_offset(row * self.stride);
        if !self.is_column {
            return (V::splat(0.0), p);
        }
        // SAFETY: by contract; the array has the lanes of the widest vector.
        unsafe { (V::load_half::<H>([*p; 16].as_ptr()), null()) }
    }
}

/// `y = x & kept ^ flipped` for rows of elements of 16 bits, which the maker promises.
struct SignBit {
    a: Source,
    y: *mut u16,
    y_stride: isize,
    rows: usize,
    n: usize,
    kept: u16,
    flipped: u16,
}

impl Work for SignBit {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let SignBit { a, y, y_stride, rows, n, kept, flipped } = self;
        for r in 0..rows as isize {
            let (x, y) = (a.first.wrapping_offset(r * a.stride), y.wrapping_offset(r * y_stride));
            let mut i = 0;
            while i < n {
                // SAFETY: by contract of the struct.
                unsafe { *y.add(i) = *x.add(i) & kept ^ flipped };
                i += 1;
            }
        }
    }
}

/// `y = F(a, b)` for rows of 16-bit elements, which the maker promises.
struct Halves<F, H> {
    from: [Source; 2],
    y: *mut u16,
    y_stride: isize,
    rows: usize,
    n: usize,
    of: PhantomData<(F, H)>,
}

impl<F: Binary, H: Half> Work for Halves<F, H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Halves { from: [a, b], y, y_stride, rows, n, .. } = self;
        for row in 0..rows as isize {
            let y = y.wrapping_offset(row * y_stride);
            // SAFETY: the maker promises n elements in each row, or one of a column.
            unsafe {
                let ((u, a), (v, b)) = (a.row::<V, H>(row), b.row::<V, H>(row));
                // Whether an operand is a number is known before the loop.
                macro_rules! at {
                    ($i:expr, $count:expr) => {
                        F::eval(
                            if a.is_null() { u } else { half::load::<V, H>(a.add($i), $count) },
                            if b.is_null() { v } else { half::load::<V, H>(b.add($i), $count) },
                        )
                    };
                }
                let mut i = 0;
                while i + V::LANES <= n {
                    at!(i, V::LANES).store_half::<H>(y.add(i));
                    i += V::LANES;
                }
                if i < n {
                    half::store::<V, H>(at!(i, n - i), y.add(i), n - i);
                }
            }
        }
    }
}
