//! Loops of 16-bit floats that are converted in registers: one operation of two operands, short ones
//! of one operand, and casts.
//!
//! The naive form converts both operands into blocks of f32, computes, and converts the result: each
//! value is stored and loaded twice more than it need be. For arithmetic that takes as long as the
//! rest. Here operands are widened as they are loaded and results rounded as they are stored. Other
//! operations take longer than the conversions: `blocks` runs them.

use super::loops::Loop;
use super::loops::float::{
    Add, Ceil, Div, Floor, Max, Min, Mul, Recip, Round, Rsqrt, Sqrt, Sub, Trunc,
};
use super::step::{Format, Place, Step};
use crate::simd::loops::{Binary, Operand, Real, Unary};
use crate::simd::{F32s, Half, Level, Work};
use crate::vecmath::Square;
use std::marker::PhantomData;
use teeny_core::{bf16, f16};

/// Runs a step of one or two operands over 16-bit elements of one type, or a cast from or to f32.
/// False if it is another step.
///
/// # Safety
/// As `groups::run`.
pub(super) unsafe fn run(level: Level, step: &Step, rows: usize, n: usize) -> bool {
    let Place::Rows(y, y_pitch, format) = step.to else { return false };
    if let Place::Rows(x, x_pitch, from) = step.from[0] {
        let (half, widen) = match (step.body, from, format) {
            (Loop::Copy, Format::Bf16 | Format::F16, Format::Own) => (from, true),
            (Loop::RoundToBf16, Format::Own, Format::Bf16)
            | (Loop::RoundToF16, Format::Own, Format::F16) => (format, false),
            _ => (Format::Own, false),
        };
        if half != Format::Own {
            let (x_bytes, y_bytes) = if widen { (2, 4) } else { (4, 2) };
            for row in 0..rows as isize {
                let x = x.wrapping_offset(row * x_pitch * x_bytes);
                let y = y.wrapping_offset(row * y_pitch * y_bytes);
                let bf16 = half == Format::Bf16;
                level.run(convert::Convert { x, y, n, bf16, widen });
            }
            return true;
        }
        if from == format && format != Format::Own && step.body.operands() == 1 {
            for row in 0..rows as isize {
                let x = x.cast_const().cast::<u16>().wrapping_offset(row * x_pitch);
                let y = y.cast::<u16>().wrapping_offset(row * y_pitch);
                if !single(level, step.body, format, x, y, n) {
                    return false;
                }
            }
            return true;
        }
    }
    if format == Format::Own || step.body.operands() != 2 {
        return false;
    }
    let mut operands = [(Operand::Splat(0.0f32), 0, false); 2];
    for (operand, place) in operands.iter_mut().zip(step.from) {
        *operand = match place {
            Place::Rows(p, pitch, own) if own == format => {
                (Operand::Slice(p.cast_const().cast()), pitch, false)
            }
            Place::Column(p, pitch, own) if own == format => {
                (Operand::Slice(p.cast()), pitch, true)
            }
            Place::Splat(bytes) => (Operand::Splat(f32::from_bytes(bytes)), 0, false),
            Place::Rows(..) | Place::Block(_) | Place::Column(..) => return false,
        };
    }
    // A product of one operand by itself converts it once.
    if let (Loop::Mul, [Place::Rows(x, x_pitch, _), Place::Rows(other, pitch, _), ..]) =
        (step.body, step.from)
        && x == other
        && x_pitch == pitch
    {
        let square = Step { body: Loop::Square, ..*step };
        // SAFETY: passed on.
        return unsafe { run(level, &square, rows, n) };
    }
    macro_rules! run {
        ($f:ty) => {
            match format {
                Format::Bf16 => {
                    level.run(Pairs::<$f, bf16>(operands, y.cast(), y_pitch, rows, n, PhantomData))
                }
                _ => level.run(Pairs::<$f, f16>(operands, y.cast(), y_pitch, rows, n, PhantomData)),
            }
        };
    }
    match step.body {
        Loop::Add => run!(Add),
        Loop::Sub => run!(Sub),
        Loop::Mul => run!(Mul),
        Loop::Div => run!(Div),
        Loop::Max => run!(Max),
        Loop::Min => run!(Min),
        _ => return false,
    }
    true
}

/// Runs an operation of one operand over n elements; false if it takes longer than the conversions.
/// The caller promises the elements.
fn single(level: Level, body: Loop, format: Format, x: *const u16, y: *mut u16, n: usize) -> bool {
    macro_rules! run {
        ($f:ty) => {
            match format {
                Format::Bf16 => level.run(Single::<$f, bf16>(x, y, n, PhantomData)),
                _ => level.run(Single::<$f, f16>(x, y, n, PhantomData)),
            }
        };
    }
    match body {
        // The sign is a bit, which takes no conversion.
        Loop::Neg => level.run(SignBit { x, y, n, kept: 0xffff, flipped: 0x8000 }),
        Loop::Abs => level.run(SignBit { x, y, n, kept: 0x7fff, flipped: 0 }),
        Loop::Square => run!(Square),
        Loop::Sqrt => run!(Sqrt),
        Loop::Recip => run!(Recip),
        Loop::Rsqrt => run!(Rsqrt),
        Loop::Floor => run!(Floor),
        Loop::Ceil => run!(Ceil),
        Loop::Round => run!(Round),
        Loop::Trunc => run!(Trunc),
        _ => return false,
    }
    true
}

/// `y = x & kept ^ flipped` for n elements of 16 bits, which the maker promises.
struct SignBit {
    x: *const u16,
    y: *mut u16,
    n: usize,
    kept: u16,
    flipped: u16,
}

impl Work for SignBit {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let SignBit { x, y, n, kept, flipped } = self;
        let mut i = 0;
        while i < n {
            // SAFETY: by contract of the struct.
            unsafe { *y.add(i) = *x.add(i) & kept ^ flipped };
            i += 1;
        }
    }
}

/// `y = F(x)` for n elements of 16 bits, which the maker promises.
struct Single<F, H>(*const u16, *mut u16, usize, PhantomData<(F, H)>);

impl<F: Unary, H: Half> Work for Single<F, H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Single(x, y, n, _) = self;
        let mut i = 0;
        // SAFETY: by contract of the struct; a part goes through arrays of the widest vector.
        unsafe {
            while i + V::LANES <= n {
                F::eval(V::load_half::<H>(x.add(i))).store_half::<H>(y.add(i));
                i += V::LANES;
            }
            if i < n {
                let (mut part, mut rest) = ([0u16; 16], [0u16; 16]);
                std::ptr::copy_nonoverlapping(x.add(i), part.as_mut_ptr(), n - i);
                F::eval(V::load_half::<H>(part.as_ptr())).store_half::<H>(rest.as_mut_ptr());
                std::ptr::copy_nonoverlapping(rest.as_ptr(), y.add(i), n - i);
            }
        }
    }
}

/// `y = F(a, b)` for rows of 16-bit elements: the operands with their pitches and whether they are one
/// element for each row (a slice's pointer is one to 16-bit elements), the result with its pitch,
/// rows and their length.
struct Pairs<F, H>([(Operand, isize, bool); 2], *mut u16, isize, usize, usize, PhantomData<(F, H)>);

impl<F: Binary, H: Half> Work for Pairs<F, H> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Pairs([a, b], y, y_pitch, rows, n, _) = self;
        for row in 0..rows as isize {
            // A vector of one number and null, or any vector and where the row begins.
            macro_rules! start {
                ($operand:expr) => {
                    match $operand {
                        (Operand::Splat(x), ..) => (V::splat(x), std::ptr::null::<u16>()),
                        (Operand::Slice(p), pitch, column) => {
                            let p = p.cast::<u16>().wrapping_offset(row * pitch);
                            if column {
                                let mut one = [0u16; 16];
                                // SAFETY: `run` was promised an element for each row.
                                one.fill(unsafe { *p });
                                // SAFETY: the array has the lanes of the widest vector.
                                (unsafe { V::load_half::<H>(one.as_ptr()) }, std::ptr::null())
                            } else {
                                (V::splat(0.0), p)
                            }
                        }
                    }
                };
            }
            let ((u, a), (v, b)) = (start!(a), start!(b));
            let y = y.wrapping_offset(row * y_pitch);
            // Whether an operand is a number is known before the loop.
            macro_rules! at {
                ($a:expr, $b:expr) => {
                    F::eval(
                        if a.is_null() { u } else { V::load_half::<H>($a) },
                        if b.is_null() { v } else { V::load_half::<H>($b) },
                    )
                };
            }
            let mut i = 0;
            // SAFETY: `run` was promised n elements in each row; parts go through arrays of the
            // widest vector.
            unsafe {
                while i + V::LANES <= n {
                    at!(a.add(i), b.add(i)).store_half::<H>(y.add(i));
                    i += V::LANES;
                }
                if i < n {
                    let mut part = [[0u16; 16]; 2];
                    for (part, p) in part.iter_mut().zip([a, b]) {
                        if !p.is_null() {
                            std::ptr::copy_nonoverlapping(p.add(i), part.as_mut_ptr(), n - i);
                        }
                    }
                    let mut rest = [0u16; 16];
                    at!(part[0].as_ptr(), part[1].as_ptr()).store_half::<H>(rest.as_mut_ptr());
                    std::ptr::copy_nonoverlapping(rest.as_ptr(), y.add(i), n - i);
                }
            }
        }
    }
}

/// Conversions of 16-bit floats, for other loops.
pub(super) mod convert {
    use crate::simd::{F32s, Half, Work};
    use teeny_core::{bf16, f16};

    /// A conversion of n elements from 16-bit floats to f32 if `widen`, otherwise from f32. Its maker
    /// promises n elements of these types at `x` and `y`, which do not overlap.
    pub(in crate::elementwise) struct Convert {
        pub x: *const u8,
        pub y: *mut u8,
        pub n: usize,
        pub bf16: bool,
        pub widen: bool,
    }

    impl Work for Convert {
        type Out = ();
        #[inline(always)]
        fn run<V: F32s>(self) {
            let Convert { x, y, n, bf16, widen } = self;
            // SAFETY: by contract of the struct.
            unsafe {
                match (widen, bf16) {
                    (true, true) => self::widen::<V, bf16>(x.cast(), y.cast(), n),
                    (true, false) => self::widen::<V, f16>(x.cast(), y.cast(), n),
                    (false, true) => narrow::<V, bf16>(x.cast(), y.cast(), n),
                    (false, false) => narrow::<V, f16>(x.cast(), y.cast(), n),
                }
            }
        }
    }

    /// `to[i] = from[i]`
    ///
    /// # Safety
    /// Both have n elements and do not overlap.
    #[inline(always)]
    pub(in crate::elementwise) unsafe fn widen<V: F32s, H: Half>(
        from: *const u16,
        to: *mut f32,
        n: usize,
    ) {
        let mut i = 0;
        // SAFETY: by contract; a part goes through an array of the widest vector.
        unsafe {
            while i + V::LANES <= n {
                V::load_half::<H>(from.add(i)).store(to.add(i));
                i += V::LANES;
            }
            if i < n {
                let mut part = [0u16; 16];
                std::ptr::copy_nonoverlapping(from.add(i), part.as_mut_ptr(), n - i);
                V::load_half::<H>(part.as_ptr()).store_part(to.add(i), n - i);
            }
        }
    }

    /// The first `n <= LANES` elements at `p`; the other lanes are 0.
    ///
    /// # Safety
    /// They are readable.
    #[inline(always)]
    pub(in crate::elementwise) unsafe fn load<V: F32s, H: Half>(p: *const u16, n: usize) -> V {
        // SAFETY: by contract; a part goes through an array of the widest vector.
        unsafe {
            if n == V::LANES {
                return V::load_half::<H>(p);
            }
            let mut part = [0u16; 16];
            copy_part(p, part.as_mut_ptr(), n);
            V::load_half::<H>(part.as_ptr())
        }
    }

    /// Rounds the first `n <= LANES` lanes and writes them at `p`.
    ///
    /// # Safety
    /// `n` elements are writable.
    #[inline(always)]
    pub(in crate::elementwise) unsafe fn store<V: F32s, H: Half>(x: V, p: *mut u16, n: usize) {
        // SAFETY: as above.
        unsafe {
            if n == V::LANES {
                return x.store_half::<H>(p);
            }
            let mut part = [0u16; 16];
            x.store_half::<H>(part.as_mut_ptr());
            copy_part(part.as_ptr(), p, n);
        }
    }

    /// Copies `n < 16` elements by two moves, which may overlap.
    ///
    /// # Safety
    /// They are readable and writable, and do not overlap.
    #[inline(never)]
    unsafe fn copy_part(from: *const u16, to: *mut u16, n: usize) {
        macro_rules! by {
            ($size:literal) => {{
                let last = n - $size;
                let ends = [from, from.add(last)].map(|p| p.cast::<[u16; $size]>().read());
                to.cast::<[u16; $size]>().write(ends[0]);
                to.add(last).cast::<[u16; $size]>().write(ends[1]);
            }};
        }
        // SAFETY: by contract.
        unsafe {
            match n {
                8.. => by!(8),
                4.. => by!(4),
                2.. => by!(2),
                1 => to.write(*from),
                _ => {}
            }
        }
    }

    /// `to[i] = from[i]`, rounded.
    ///
    /// # Safety
    /// As [`widen`].
    #[inline(always)]
    pub(in crate::elementwise) unsafe fn narrow<V: F32s, H: Half>(
        from: *const f32,
        to: *mut u16,
        n: usize,
    ) {
        let mut i = 0;
        // SAFETY: as above.
        unsafe {
            while i + V::LANES <= n {
                V::load(from.add(i)).store_half::<H>(to.add(i));
                i += V::LANES;
            }
            if i < n {
                let mut part = [0u16; 16];
                V::load_part(from.add(i), n - i).store_half::<H>(part.as_mut_ptr());
                std::ptr::copy_nonoverlapping(part.as_ptr(), to.add(i), n - i);
            }
        }
    }
}
