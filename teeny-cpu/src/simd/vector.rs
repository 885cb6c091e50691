//! The operations of vectors of f32 and f64: traits that every level implements. Independent of
//! instructions.

use super::Work;
use teeny_core::{bf16, f16};

/// A vector of lanes that are multiplied and added: the operations of a matrix product. Methods
/// are safe to call because a vector type is only named by the entry function of its level. Public,
/// as [`F32s`] is, only because the public `Float` names it; this module is private.
pub trait Lanes<T>: Copy {
    /// Number of lanes.
    const LANES: usize;
    /// Whether loops are unrolled by hand for it, and stream. Not on SSE2 and arrays: few machines
    /// run those, and the loops would take longer to compile.
    const NATIVE: bool;
    /// Whether `fma` is one instruction with one rounding.
    const FUSED: bool = Self::NATIVE;
    /// Number of vector registers.
    const REGISTERS: usize =
        if cfg!(target_arch = "aarch64") || size_of::<Self>() == 64 { 32 } else { 16 };

    /// All lanes `x`.
    fn splat(x: T) -> Self;
    /// Reads `LANES` values at `p`, at any alignment.
    ///
    /// # Safety
    /// They must be readable.
    unsafe fn load(p: *const T) -> Self;
    /// Writes `LANES` values at `p`, at any alignment.
    ///
    /// # Safety
    /// They must be writable.
    unsafe fn store(self, p: *mut T);
    /// Reads `n <= LANES` values at `p`; the other lanes are 0.
    ///
    /// # Safety
    /// They must be readable.
    unsafe fn load_part(p: *const T, n: usize) -> Self;
    /// Writes the first `n <= LANES` lanes at `p`.
    ///
    /// # Safety
    /// `n` values must be writable.
    unsafe fn store_part(self, p: *mut T, n: usize);
    /// Reads the next `LANES` of the `n` values at `p`, or all if they are fewer; the other lanes
    /// are 0.
    ///
    /// # Safety
    /// They must be readable.
    #[inline(always)]
    unsafe fn load_up_to(p: *const T, n: usize) -> Self {
        // SAFETY: by contract.
        unsafe { if n >= Self::LANES { Self::load(p) } else { Self::load_part(p, n) } }
    }
    /// Writes all lanes, or the first `n` if `p` has only these places.
    ///
    /// # Safety
    /// They must be writable.
    #[inline(always)]
    unsafe fn store_up_to(self, p: *mut T, n: usize) {
        // SAFETY: by contract.
        unsafe { if n >= Self::LANES { self.store(p) } else { self.store_part(p, n) } }
    }
    /// `self + o`
    fn add(self, o: Self) -> Self;
    /// `self * o`
    fn mul(self, o: Self) -> Self;
    /// `self * a + b` with one rounding (two on the baseline, for f32 both in f64: within 0.5000001
    /// ulp).
    fn fma(self, a: Self, b: Self) -> Self;
    /// `self * a + b` in sums of products, with one rounding or two: the fastest way.
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        self.fma(a, b)
    }
    /// The sum of all lanes, halves first.
    fn total(self) -> T;
    /// The lanes 0, 2, 4, … of `self`, then of `next`.
    fn even(self, next: Self) -> Self;
    /// As `store`, past the caches where the level can.
    ///
    /// # Safety
    /// They must be writable and `p` aligned to 64 bytes.
    unsafe fn stream(self, p: *mut T);
    /// The sums of all lanes of each of four vectors.
    #[inline(always)]
    fn totals([a, b, c, d]: [Self; 4]) -> [T; 4] {
        [a.total(), b.total(), c.total(), d.total()]
    }
}

/// A 16-bit float type that vectors are read from and written as.
pub trait Half: 'static {
    /// Whether it is bf16, the upper half of an f32; otherwise f16.
    const IS_BF16: bool;
}

impl Half for bf16 {
    const IS_BF16: bool = true;
}

impl Half for f16 {
    const IS_BF16: bool = false;
}

/// A vector of f64 with its bits and its mask: the operations of functions.
pub trait F64s: Lanes<f64> {
    /// As many i64 lanes.
    type I: Copy;
    /// One truth value per lane.
    type M: Copy;
    /// Whether [`F64s::lookup`], [`F64s::scale`] and [`F64s::split`] take an instruction or two.
    const TABLES: bool = false;

    /// `self - o`
    fn sub(self, o: Self) -> Self;
    /// `self / o`
    fn div(self, o: Self) -> Self;
    /// `self < o ? self : o`: the second operand if either is NaN.
    fn min(self, o: Self) -> Self;
    /// `self > o ? self : o`: the second operand if either is NaN.
    fn max(self, o: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `1 / √self` within 1 ulp.
    #[inline(always)]
    fn rsqrt(self) -> Self {
        Self::splat(1.0).div(self.sqrt())
    }
    /// To the nearest whole number, ties to even.
    fn round(self) -> Self;
    /// Towards minus infinity.
    fn floor(self) -> Self;
    /// `self < o`, false for NaN.
    fn lt(self, o: Self) -> Self::M;
    /// `self == o`, false for NaN.
    fn eq(self, o: Self) -> Self::M;
    /// Lane by lane `m ? a : b`.
    fn select(m: Self::M, a: Self, b: Self) -> Self;
    /// Whether any lane is true.
    fn any(m: Self::M) -> bool;
    /// The bit patterns.
    fn bits(self) -> Self::I;
    /// The values with these bit patterns.
    fn from_bits(i: Self::I) -> Self;
    /// All lanes `x`.
    fn i_splat(x: i64) -> Self::I;
    /// `a + b`, wrapping.
    fn i_add(a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, wrapping.
    fn i_sub(a: Self::I, b: Self::I) -> Self::I;
    /// `a & b`
    fn i_and(a: Self::I, b: Self::I) -> Self::I;
    /// `a ^ b`
    fn i_xor(a: Self::I, b: Self::I) -> Self::I;
    /// `a << N`
    fn i_shl<const N: u32>(a: Self::I) -> Self::I;
    /// `a >> N`, zeros coming in.
    fn i_shr<const N: u32>(a: Self::I) -> Self::I;

    /// `self * 2^n` for whole |n| <= 1500 and a self next to 1, rounded once. Where
    /// [`F64s::TABLES`], n is rounded down to a whole number.
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        // Whole numbers plus this have their low bits in its low bits.
        let low = n.add(Self::splat(6_755_399_441_055_744.0)).bits();
        // Two factors, so that overflow and gradual underflow round once.
        let half = Self::i_shl::<52>(Self::i_shr::<1>(low));
        let rest = Self::i_sub(Self::i_shl::<52>(low), half);
        let power = |n| Self::from_bits(Self::i_add(n, Self::splat(1.0).bits()));
        self.mul(power(half)).mul(power(rest))
    }

    /// The numbers of a table at the places that the low four bits of the lanes of `index` name.
    /// Only where [`F64s::TABLES`].
    #[inline(always)]
    fn lookup(_table: &[f64; 16], _index: Self::I) -> Self {
        unreachable!("no tables in registers")
    }

    /// As [`F32s::split`]. Only where [`F64s::TABLES`].
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        unreachable!("no instructions for it")
    }

    /// `|self|`
    #[inline(always)]
    fn abs(self) -> Self {
        Self::from_bits(Self::i_and(self.bits(), Self::i_splat(i64::MAX)))
    }

    /// `self` with the sign bit of `s` flipped into it.
    #[inline(always)]
    fn xor_sign(self, s: Self) -> Self {
        let sign = Self::i_and(s.bits(), Self::i_splat(i64::MIN));
        Self::from_bits(Self::i_xor(self.bits(), sign))
    }
}

/// A vector of f32 with its integers and its mask, and its conversions to other floats.
pub trait F32s: Lanes<f32> {
    /// The level's vector of f64.
    type F64s: F64s;
    /// As many i32 lanes.
    type I: Copy;
    /// One truth value per lane.
    type M: Copy;

    /// Runs `work` with this vector, compiled as a separate function: a long loop that is inlined
    /// into a function of many loops takes the compiler much longer.
    fn call<W: Work>(work: W) -> W::Out;
    /// The first `n <= LANES` lanes; the others are 0.
    fn part(self, n: usize) -> Self;
    /// The lower and the upper half of the lanes as f64.
    fn widen(self) -> (Self::F64s, Self::F64s);
    /// The two halves, rounded to f32.
    fn narrow(low: Self::F64s, high: Self::F64s) -> Self;
    /// Reads `LANES` values of the 16-bit type `H` at `p`, at any alignment.
    ///
    /// # Safety
    /// They must be readable.
    unsafe fn load_half<H: Half>(p: *const u16) -> Self;
    /// Rounds the lanes to `H`, ties to even, and writes them at `p`, at any alignment.
    ///
    /// # Safety
    /// `LANES` values must be writable.
    unsafe fn store_half<H: Half>(self, p: *mut u16);

    /// `self - o`
    fn sub(self, o: Self) -> Self;
    /// `self / o`
    fn div(self, o: Self) -> Self;
    /// `self < o ? self : o`: the second operand if either is NaN.
    fn min(self, o: Self) -> Self;
    /// `self > o ? self : o`: the second operand if either is NaN.
    fn max(self, o: Self) -> Self;
    /// Square root.
    fn sqrt(self) -> Self;
    /// `1 / √self` within 1 ulp.
    #[inline(always)]
    fn rsqrt(self) -> Self {
        Self::splat(1.0).div(self.sqrt())
    }
    /// To the nearest whole number, ties to even.
    fn round(self) -> Self;
    /// Towards minus infinity.
    fn floor(self) -> Self;

    /// `self < o`, false for NaN.
    fn lt(self, o: Self) -> Self::M;
    /// `self == o`, false for NaN.
    fn eq(self, o: Self) -> Self::M;
    /// Lane by lane `m ? a : b`.
    fn select(m: Self::M, a: Self, b: Self) -> Self;
    /// Whether any lane is true.
    fn any(m: Self::M) -> bool;

    /// The bit patterns.
    fn bits(self) -> Self::I;
    /// The values with these bit patterns.
    fn from_bits(i: Self::I) -> Self;
    /// Whole numbers to i32; anything out of range gives some number.
    fn to_i32(self) -> Self::I;
    /// i32 to f32.
    fn from_i32(i: Self::I) -> Self;
    /// All lanes `x`.
    fn i_splat(x: i32) -> Self::I;
    /// `a + b`, wrapping.
    fn i_add(a: Self::I, b: Self::I) -> Self::I;
    /// `a - b`, wrapping.
    fn i_sub(a: Self::I, b: Self::I) -> Self::I;
    /// `a & b`
    fn i_and(a: Self::I, b: Self::I) -> Self::I;
    /// `a ^ b`
    fn i_xor(a: Self::I, b: Self::I) -> Self::I;
    /// `a << N`
    fn i_shl<const N: u32>(a: Self::I) -> Self::I;
    /// `a >> N`, keeping the sign.
    fn i_sra<const N: u32>(a: Self::I) -> Self::I;

    /// `self * 2^n` for whole |n| <= 252 and a self next to 1, rounded once.
    #[inline(always)]
    fn scale(self, n: Self) -> Self {
        let n = n.to_i32();
        // Two factors, so that overflow and gradual underflow round once.
        let half = Self::i_sra::<1>(n);
        let rest = Self::i_add(Self::i_sub(n, half), Self::i_splat(127));
        let first = Self::i_add(self.bits(), Self::i_shl::<23>(half));
        Self::from_bits(first).mul(Self::from_bits(Self::i_shl::<23>(rest)))
    }

    /// The numbers of a table at the places that the low four bits of the lanes of `index` name.
    #[inline(always)]
    fn lookup(table: &[f32; 16], index: Self::I) -> Self {
        let mut lanes = [0.0f32; 16];
        // SAFETY: the array has the lanes of the widest vector.
        unsafe {
            Self::from_bits(index).store(lanes.as_mut_ptr());
            let mut i = 0;
            while i < Self::LANES {
                lanes[i] = table[(lanes[i].to_bits() & 15) as usize];
                i += 1;
            }
            Self::load(lanes.as_ptr())
        }
    }

    /// e and m of `self = 2^e m` with m in [3/4, 3/2). The logarithm of zero, a negative number,
    /// infinity or NaN is e, and m is any number or NaN.
    #[inline(always)]
    fn split(self) -> (Self, Self) {
        let zero = Self::splat(0.0);
        // Subnormal numbers are lifted into the normal ones by 2^23.
        let tiny = self.lt(Self::splat(f32::MIN_POSITIVE));
        let up = Self::select(tiny, self.mul(Self::splat(8_388_608.0)), self);
        let shifted = Self::i_sub(up.bits(), Self::splat(0.75).bits());
        let exponent = Self::i_sra::<23>(shifted);
        let m = Self::from_bits(Self::i_sub(up.bits(), Self::i_shl::<23>(exponent)));
        let e = Self::from_i32(exponent);
        let e = Self::select(tiny, e.sub(Self::splat(23.0)), e);
        let e = Self::select(self.lt(Self::splat(f32::INFINITY)), e, self);
        let e = Self::select(self.lt(zero), Self::splat(f32::NAN), e);
        (Self::select(self.eq(zero), Self::splat(f32::NEG_INFINITY), e), m)
    }

    /// The largest of all lanes, none of which is NaN.
    #[inline(always)]
    fn largest(self) -> f32 {
        let mut lanes = [f32::NEG_INFINITY; 16];
        // SAFETY: the array has the lanes of the widest vector.
        unsafe { self.store(lanes.as_mut_ptr()) };
        for width in [8, 4, 2, 1] {
            for i in 0..width {
                lanes[i] = if lanes[i + width] > lanes[i] { lanes[i + width] } else { lanes[i] };
            }
        }
        lanes[0]
    }

    /// `|self|`
    #[inline(always)]
    fn abs(self) -> Self {
        Self::from_bits(Self::i_and(self.bits(), Self::i_splat(0x7fff_ffff)))
    }

    /// `self` with the sign bit of `s` flipped into it.
    #[inline(always)]
    fn xor_sign(self, s: Self) -> Self {
        let sign = Self::i_and(s.bits(), Self::i_splat(i32::MIN));
        Self::from_bits(Self::i_xor(self.bits(), sign))
    }
}
