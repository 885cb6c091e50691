//! Four f32 or two f64: simd128 of WebAssembly, if the module is compiled for it.
//!
//! simd128 has no `fma` instruction (relaxed SIMD's may round once or twice), so functions go
//! through f64 as at SSE2, and products round twice ([`Lanes::mul_add`]).

use super::{F32s, F64s, Half, Lanes, Work};
use std::arch::wasm32::*;

/// 4 lanes.
#[derive(Clone, Copy)]
pub struct V(v128);

/// 2 lanes of f64.
#[derive(Clone, Copy)]
pub struct D(v128);

/// The upper half of `x`, twice.
#[inline(always)]
fn upper(x: v128) -> v128 {
    i64x2_shuffle::<1, 1>(x, x)
}

/// `a * b + c` of the lower halves, in f64.
#[inline(always)]
fn fma_low(a: v128, b: v128, c: v128) -> v128 {
    let product = f64x2_mul(f64x2_promote_low_f32x4(a), f64x2_promote_low_f32x4(b));
    f32x4_demote_f64x2_zero(f64x2_add(product, f64x2_promote_low_f32x4(c)))
}

impl Lanes<f32> for V {
    const LANES: usize = 4;
    const NATIVE: bool = true;
    const FUSED: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        V(f32x4_splat(x))
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller promises 4 readable values; any alignment will do.
        V(unsafe { v128_load(p.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises 4 writable values; any alignment will do.
        unsafe { v128_store(p.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        // SAFETY: the caller promises n readable values.
        V(unsafe {
            match n {
                0 => f32x4_splat(0.0),
                1 => v128_load32_zero(p.cast()),
                2 => v128_load64_zero(p.cast()),
                3 => v128_load32_lane::<2>(v128_load64_zero(p.cast()), p.add(2).cast()),
                _ => v128_load(p.cast()),
            }
        })
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        // SAFETY: the caller promises n writable values.
        unsafe {
            match n {
                0 => {}
                1 => v128_store32_lane::<0>(self.0, p.cast()),
                2 => v128_store64_lane::<0>(self.0, p.cast()),
                3 => {
                    v128_store64_lane::<0>(self.0, p.cast());
                    v128_store32_lane::<2>(self.0, p.add(2).cast());
                }
                _ => v128_store(p.cast(), self.0),
            }
        }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        V(f32x4_add(self.0, o.0))
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        V(f32x4_mul(self.0, o.0))
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        let low = fma_low(self.0, a.0, b.0);
        let high = fma_low(upper(self.0), upper(a.0), upper(b.0));
        V(i64x2_shuffle::<0, 2>(low, high))
    }
    #[inline(always)]
    fn mul_add(self, a: Self, b: Self) -> Self {
        V(f32x4_add(f32x4_mul(self.0, a.0), b.0))
    }
    #[inline(always)]
    fn total(self) -> f32 {
        let two = f32x4_add(self.0, upper(self.0));
        f32x4_extract_lane::<0>(two) + f32x4_extract_lane::<1>(two)
    }
    #[inline(always)]
    fn even(self, next: Self) -> Self {
        V(i32x4_shuffle::<0, 2, 4, 6>(self.0, next.0))
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the caller promises 4 writable values.
        unsafe { self.store(p) }
    }
    #[inline(always)]
    fn totals([a, b, c, d]: [Self; 4]) -> [f32; 4] {
        // Halves of two vectors at a time, then the two lanes of each.
        let halves = |x: V, y: V| {
            f32x4_add(i64x2_shuffle::<0, 2>(x.0, y.0), i64x2_shuffle::<1, 3>(x.0, y.0))
        };
        let (ab, cd) = (halves(a, b), halves(c, d));
        let sums =
            f32x4_add(i32x4_shuffle::<0, 2, 4, 6>(ab, cd), i32x4_shuffle::<1, 3, 5, 7>(ab, cd));
        let mut out = [0.0; 4];
        // SAFETY: the array has four values.
        unsafe { V(sums).store(out.as_mut_ptr()) };
        out
    }
}

impl F32s for V {
    type F64s = D;
    type I = v128;
    type M = v128;

    #[inline(never)]
    fn call<W: Work>(work: W) -> W::Out {
        work.run::<V>()
    }
    #[inline(always)]
    fn part(self, n: usize) -> Self {
        let place = i32x4(0, 1, 2, 3);
        V(v128_and(self.0, i32x4_lt(place, i32x4_splat(n as i32))))
    }
    #[inline(always)]
    fn widen(self) -> (D, D) {
        (D(f64x2_promote_low_f32x4(self.0)), D(f64x2_promote_low_f32x4(upper(self.0))))
    }
    #[inline(always)]
    fn narrow(low: D, high: D) -> Self {
        let (low, high) = (f32x4_demote_f64x2_zero(low.0), f32x4_demote_f64x2_zero(high.0));
        V(i64x2_shuffle::<0, 2>(low, high))
    }
    #[inline(always)]
    unsafe fn load_half<H: Half>(p: *const u16) -> Self {
        // SAFETY: the caller promises 4 readable values; any alignment will do.
        let x = u32x4_extend_low_u16x8(unsafe { v128_load64_zero(p.cast()) });
        if H::IS_BF16 {
            return V(i32x4_shl(x, 16));
        }
        // Exponent and fraction at the places of f32 are a number 2^112 times too small, subnormal
        // ones included. The largest exponent belongs to infinity and NaN.
        let size = v128_and(x, i32x4_splat(0x7fff));
        let special = i32x4_gt(size, i32x4_splat(0x7bff));
        let scaled = f32x4_mul(i32x4_shl(size, 13), f32x4_splat(f32::from_bits(0x7780_0000)));
        let quiet = v128_and(i32x4_gt(size, i32x4_splat(0x7c00)), i32x4_splat(0x40_0000));
        let all_ones = v128_or(v128_and(special, i32x4_splat(0x7f80_0000)), quiet);
        let sign = i32x4_shl(v128_and(x, i32x4_splat(0x8000)), 16);
        V(v128_or(v128_or(scaled, all_ones), sign))
    }
    #[inline(always)]
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        if H::IS_BF16 {
            let x = self.0;
            let odd = v128_and(u32x4_shr(x, 16), i32x4_splat(1));
            let up = i32x4_add(i32x4_add(x, i32x4_splat(0x7fff)), odd);
            let quiet = v128_or(x, i32x4_splat(0x40_0000));
            let y = i32x4_shr(v128_bitselect(quiet, up, f32x4_ne(x, x)), 16);
            // SAFETY: the caller promises 4 writable values.
            unsafe { v128_store64_lane::<0>(i16x8_narrow_i32x4(y, y), p.cast()) };
            return;
        }
        let x = self.0;
        let size = v128_and(x, i32x4_splat(0x7fff_ffff));
        let places = u32x4_shr(size, 13);
        let up = i32x4_add(v128_and(places, i32x4_splat(1)), i32x4_splat(0xfff - (112 << 23)));
        let normal = u32x4_shr(i32x4_add(size, up), 13);
        // The sum of 1/2 and a subnormal f16 has the last place of the f16.
        let half = f32x4_splat(0.5);
        let small = i32x4_sub(f32x4_add(size, half), half);
        let y = v128_bitselect(small, normal, i32x4_lt(size, i32x4_splat(113 << 23)));
        // From 65520 on the nearest f16 is infinity.
        let large = i32x4_gt(size, i32x4_splat(0x477f_efff));
        let y = v128_bitselect(i32x4_splat(0x7c00), y, large);
        let quiet = v128_or(v128_and(places, i32x4_splat(0x3ff)), i32x4_splat(0x7e00));
        let y = v128_bitselect(quiet, y, i32x4_gt(size, i32x4_splat(0x7f80_0000)));
        let y = v128_or(y, v128_and(u32x4_shr(x, 16), i32x4_splat(0x8000)));
        // SAFETY: the caller promises 4 writable values.
        unsafe { v128_store64_lane::<0>(u16x8_narrow_i32x4(y, y), p.cast()) };
    }
    #[inline(always)]
    fn any(m: v128) -> bool {
        v128_any_true(m)
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        let two = f32x4_pmax(self.0, upper(self.0));
        f32x4_extract_lane::<0>(f32x4_pmax(two, i32x4_shuffle::<1, 1, 1, 1>(two, two)))
    }
    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        V(f32x4_sub(self.0, o.0))
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        V(f32x4_div(self.0, o.0))
    }
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        // `pmin(x, y)` is `y < x ? y : x`.
        V(f32x4_pmin(o.0, self.0))
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        V(f32x4_pmax(o.0, self.0))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        V(f32x4_sqrt(self.0))
    }
    #[inline(always)]
    fn round(self) -> Self {
        V(f32x4_nearest(self.0))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        V(f32x4_floor(self.0))
    }
    #[inline(always)]
    fn lt(self, o: Self) -> v128 {
        f32x4_lt(self.0, o.0)
    }
    #[inline(always)]
    fn eq(self, o: Self) -> v128 {
        f32x4_eq(self.0, o.0)
    }
    #[inline(always)]
    fn select(m: v128, a: Self, b: Self) -> Self {
        V(v128_bitselect(a.0, b.0, m))
    }
    #[inline(always)]
    fn bits(self) -> v128 {
        self.0
    }
    #[inline(always)]
    fn from_bits(i: v128) -> Self {
        V(i)
    }
    #[inline(always)]
    fn to_i32(self) -> v128 {
        i32x4_trunc_sat_f32x4(self.0)
    }
    #[inline(always)]
    fn from_i32(i: v128) -> Self {
        V(f32x4_convert_i32x4(i))
    }
    #[inline(always)]
    fn i_splat(x: i32) -> v128 {
        i32x4_splat(x)
    }
    #[inline(always)]
    fn i_add(a: v128, b: v128) -> v128 {
        i32x4_add(a, b)
    }
    #[inline(always)]
    fn i_sub(a: v128, b: v128) -> v128 {
        i32x4_sub(a, b)
    }
    #[inline(always)]
    fn i_and(a: v128, b: v128) -> v128 {
        v128_and(a, b)
    }
    #[inline(always)]
    fn i_xor(a: v128, b: v128) -> v128 {
        v128_xor(a, b)
    }
    #[inline(always)]
    fn i_shl<const N: u32>(a: v128) -> v128 {
        i32x4_shl(a, N)
    }
    #[inline(always)]
    fn i_sra<const N: u32>(a: v128) -> v128 {
        i32x4_shr(a, N)
    }
}

impl Lanes<f64> for D {
    const LANES: usize = 2;
    const NATIVE: bool = true;
    const FUSED: bool = false;

    #[inline(always)]
    fn splat(x: f64) -> Self {
        D(f64x2_splat(x))
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        // SAFETY: the caller promises 2 readable values; any alignment will do.
        D(unsafe { v128_load(p.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: the caller promises 2 writable values; any alignment will do.
        unsafe { v128_store(p.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f64, n: usize) -> Self {
        // SAFETY: the caller promises n readable values.
        D(unsafe {
            match n {
                0 => f64x2_splat(0.0),
                1 => v128_load64_zero(p.cast()),
                _ => v128_load(p.cast()),
            }
        })
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f64, n: usize) {
        // SAFETY: the caller promises n writable values.
        unsafe {
            match n {
                0 => {}
                1 => v128_store64_lane::<0>(self.0, p.cast()),
                _ => v128_store(p.cast(), self.0),
            }
        }
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        D(f64x2_add(self.0, o.0))
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        D(f64x2_mul(self.0, o.0))
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.mul(a).add(b)
    }
    #[inline(always)]
    fn total(self) -> f64 {
        f64x2_extract_lane::<0>(self.0) + f64x2_extract_lane::<1>(self.0)
    }
    #[inline(always)]
    fn even(self, next: Self) -> Self {
        D(i64x2_shuffle::<0, 2>(self.0, next.0))
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f64) {
        // SAFETY: the caller promises 2 writable values.
        unsafe { self.store(p) }
    }
}

impl F64s for D {
    type I = v128;
    type M = v128;

    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        D(f64x2_sub(self.0, o.0))
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        D(f64x2_div(self.0, o.0))
    }
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        D(f64x2_pmin(o.0, self.0))
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        D(f64x2_pmax(o.0, self.0))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        D(f64x2_sqrt(self.0))
    }
    #[inline(always)]
    fn round(self) -> Self {
        D(f64x2_nearest(self.0))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        D(f64x2_floor(self.0))
    }
    #[inline(always)]
    fn lt(self, o: Self) -> v128 {
        f64x2_lt(self.0, o.0)
    }
    #[inline(always)]
    fn eq(self, o: Self) -> v128 {
        f64x2_eq(self.0, o.0)
    }
    #[inline(always)]
    fn select(m: v128, a: Self, b: Self) -> Self {
        D(v128_bitselect(a.0, b.0, m))
    }
    #[inline(always)]
    fn any(m: v128) -> bool {
        v128_any_true(m)
    }
    #[inline(always)]
    fn bits(self) -> v128 {
        self.0
    }
    #[inline(always)]
    fn from_bits(i: v128) -> Self {
        D(i)
    }
    #[inline(always)]
    fn i_splat(x: i64) -> v128 {
        i64x2_splat(x)
    }
    #[inline(always)]
    fn i_add(a: v128, b: v128) -> v128 {
        i64x2_add(a, b)
    }
    #[inline(always)]
    fn i_sub(a: v128, b: v128) -> v128 {
        i64x2_sub(a, b)
    }
    #[inline(always)]
    fn i_and(a: v128, b: v128) -> v128 {
        v128_and(a, b)
    }
    #[inline(always)]
    fn i_xor(a: v128, b: v128) -> v128 {
        v128_xor(a, b)
    }
    #[inline(always)]
    fn i_shl<const N: u32>(a: v128) -> v128 {
        i64x2_shl(a, N)
    }
    #[inline(always)]
    fn i_shr<const N: u32>(a: v128) -> v128 {
        u64x2_shr(a, N)
    }
}
