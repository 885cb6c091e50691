//! Eight f32 or four f64 as arrays: the vector of every processor without a better one. The compiler
//! turns these loops into NEON and its like.

use super::{F32s, F64s, Half, Lanes, Work};
use teeny_core::{bf16, f16};

/// Lanes: two registers, so that one waits for memory while the other computes.
const N: usize = 8;

/// `N` lanes.
#[derive(Clone, Copy)]
#[repr(align(16))]
pub struct V([f32; N]);

/// All lanes, written out: unrolling loops over lanes would take the compiler long.
#[inline(always)]
fn lanes<T>(f: impl Fn(usize) -> T) -> [T; N] {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}

#[inline(always)]
fn zip(a: V, b: V, f: impl Fn(f32, f32) -> f32) -> V {
    V(lanes(|i| f(a.0[i], b.0[i])))
}

#[inline(always)]
fn izip(a: [i32; N], b: [i32; N], f: impl Fn(i32, i32) -> i32) -> [i32; N] {
    lanes(|i| f(a[i], b[i]))
}

#[inline(always)]
fn test(a: V, b: V, f: impl Fn(f32, f32) -> bool) -> [bool; N] {
    lanes(|i| f(a.0[i], b.0[i]))
}

impl Lanes<f32> for V {
    const LANES: usize = N;
    const NATIVE: bool = false;

    #[inline(always)]
    fn splat(x: f32) -> Self {
        V([x; N])
    }
    #[inline(always)]
    unsafe fn load(p: *const f32) -> Self {
        // SAFETY: the caller promises N readable values.
        V(unsafe { p.cast::<[f32; N]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f32) {
        // SAFETY: the caller promises N writable values.
        unsafe { p.cast::<[f32; N]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f32, n: usize) -> Self {
        let mut lanes = [0.0; N];
        // SAFETY: the caller promises n readable values.
        lanes.iter_mut().take(n).enumerate().for_each(|(i, lane)| *lane = unsafe { *p.add(i) });
        V(lanes)
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f32, n: usize) {
        // SAFETY: the caller promises n writable values.
        self.0.iter().take(n).enumerate().for_each(|(i, lane)| unsafe { *p.add(i) = *lane });
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        zip(self, o, |a, b| a + b)
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        zip(self, o, |a, b| a * b)
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        // Without an FMA instruction `f32::mul_add` is a slow call; the product of two f32 is exact
        // in f64.
        V(lanes(|i| {
            if cfg!(any(target_feature = "fma", target_arch = "aarch64")) {
                self.0[i].mul_add(a.0[i], b.0[i])
            } else {
                (f64::from(self.0[i]) * f64::from(a.0[i]) + f64::from(b.0[i])) as f32
            }
        }))
    }
    #[inline(always)]
    fn total(mut self) -> f32 {
        let mut width = N / 2;
        while width > 0 {
            for i in 0..width {
                self.0[i] += self.0[i + width];
            }
            width /= 2;
        }
        self.0[0]
    }
    #[inline(always)]
    fn even(self, next: Self) -> Self {
        V(lanes(|i| if i < N / 2 { self.0[2 * i] } else { next.0[2 * i - N] }))
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f32) {
        // SAFETY: the caller promises N writable values.
        unsafe { self.store(p) }
    }
}

impl F32s for V {
    type F64s = D;
    type I = [i32; N];
    type M = [bool; N];

    #[inline(never)]
    fn call<W: Work>(work: W) -> W::Out {
        work.run::<V>()
    }
    #[inline(always)]
    fn part(self, n: usize) -> Self {
        V(lanes(|i| if i < n { self.0[i] } else { 0.0 }))
    }
    #[inline(always)]
    fn widen(self) -> (D, D) {
        (D(four(|i| f64::from(self.0[i]))), D(four(|i| f64::from(self.0[M + i]))))
    }
    #[inline(always)]
    fn narrow(low: D, high: D) -> Self {
        V(lanes(|i| if i < M { low.0[i] } else { high.0[i - M] } as f32))
    }
    #[inline(always)]
    unsafe fn load_half<H: Half>(p: *const u16) -> Self {
        // SAFETY: the caller promises N readable values.
        let bits = unsafe { p.cast::<[u16; N]>().read_unaligned() };
        V(lanes(|i| match H::IS_BF16 {
            true => bf16::from_bits(bits[i]).to_f32_const(),
            false => f16::from_bits(bits[i]).to_f32_const(),
        }))
    }
    #[inline(always)]
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        let bits = lanes(|i| match H::IS_BF16 {
            true => bf16::from_f32_const(self.0[i]).to_bits(),
            false => f16::from_f32_const(self.0[i]).to_bits(),
        });
        // SAFETY: the caller promises N writable values.
        unsafe { p.cast::<[u16; N]>().write_unaligned(bits) }
    }
    #[inline(always)]
    fn any(m: Self::M) -> bool {
        m.contains(&true)
    }

    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        zip(self, o, |a, b| a - b)
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        zip(self, o, |a, b| a / b)
    }
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        zip(self, o, |a, b| if a < b { a } else { b })
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        zip(self, o, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        V(lanes(|i| self.0[i].sqrt()))
    }
    #[inline(always)]
    fn round(self) -> Self {
        // Adding 1.5 * 2^23 rounds to the nearest even in the last place; larger values are whole
        // already.
        const BIG: f32 = 12_582_912.0;
        V(lanes(|i| {
            let x = self.0[i];
            if x.abs() < 4_194_304.0 { ((x + BIG) - BIG).copysign(x) } else { x.round_ties_even() }
        }))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        V(lanes(|i| self.0[i].floor()))
    }

    #[inline(always)]
    fn lt(self, o: Self) -> Self::M {
        test(self, o, |a, b| a < b)
    }
    #[inline(always)]
    fn eq(self, o: Self) -> Self::M {
        test(self, o, |a, b| a == b)
    }
    #[inline(always)]
    fn select(m: Self::M, a: Self, b: Self) -> Self {
        V(lanes(|i| if m[i] { a.0[i] } else { b.0[i] }))
    }

    #[inline(always)]
    fn bits(self) -> Self::I {
        lanes(|i| self.0[i].to_bits() as i32)
    }
    #[inline(always)]
    fn from_bits(i: Self::I) -> Self {
        V(lanes(|k| f32::from_bits(i[k] as u32)))
    }
    #[inline(always)]
    fn to_i32(self) -> Self::I {
        lanes(|i| self.0[i] as i32)
    }
    #[inline(always)]
    fn from_i32(i: Self::I) -> Self {
        V(lanes(|k| i[k] as f32))
    }
    #[inline(always)]
    fn i_splat(x: i32) -> Self::I {
        [x; N]
    }
    #[inline(always)]
    fn i_add(a: Self::I, b: Self::I) -> Self::I {
        izip(a, b, i32::wrapping_add)
    }
    #[inline(always)]
    fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        izip(a, b, i32::wrapping_sub)
    }
    #[inline(always)]
    fn i_and(a: Self::I, b: Self::I) -> Self::I {
        izip(a, b, |x, y| x & y)
    }
    #[inline(always)]
    fn i_xor(a: Self::I, b: Self::I) -> Self::I {
        izip(a, b, |x, y| x ^ y)
    }
    #[inline(always)]
    fn i_shl<const N: u32>(a: Self::I) -> Self::I {
        lanes(|i| a[i] << N)
    }
    #[inline(always)]
    fn i_sra<const N: u32>(a: Self::I) -> Self::I {
        lanes(|i| a[i] >> N)
    }
}

/// Lanes of f64: half of a vector of f32.
const M: usize = 4;

/// `M` lanes of f64.
#[derive(Clone, Copy)]
pub struct D([f64; M]);

#[inline(always)]
fn four<T>(f: impl Fn(usize) -> T) -> [T; M] {
    [f(0), f(1), f(2), f(3)]
}

impl Lanes<f64> for D {
    const LANES: usize = M;
    const NATIVE: bool = false;

    #[inline(always)]
    fn splat(x: f64) -> Self {
        D([x; M])
    }
    #[inline(always)]
    unsafe fn load(p: *const f64) -> Self {
        // SAFETY: the caller promises M readable values.
        D(unsafe { p.cast::<[f64; M]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut f64) {
        // SAFETY: the caller promises M writable values.
        unsafe { p.cast::<[f64; M]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn load_part(p: *const f64, n: usize) -> Self {
        let mut lanes = [0.0; M];
        // SAFETY: the caller promises n readable values.
        lanes.iter_mut().take(n).enumerate().for_each(|(i, lane)| *lane = unsafe { *p.add(i) });
        D(lanes)
    }
    #[inline(always)]
    unsafe fn store_part(self, p: *mut f64, n: usize) {
        // SAFETY: the caller promises n writable values.
        self.0.iter().take(n).enumerate().for_each(|(i, lane)| unsafe { *p.add(i) = *lane });
    }
    #[inline(always)]
    fn add(self, o: Self) -> Self {
        D(four(|i| self.0[i] + o.0[i]))
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        D(four(|i| self.0[i] * o.0[i]))
    }
    #[inline(always)]
    fn fma(self, a: Self, b: Self) -> Self {
        self.mul(a).add(b)
    }
    #[inline(always)]
    fn total(self) -> f64 {
        (self.0[0] + self.0[2]) + (self.0[1] + self.0[3])
    }
    #[inline(always)]
    fn even(self, next: Self) -> Self {
        D([self.0[0], self.0[2], next.0[0], next.0[2]])
    }
    #[inline(always)]
    unsafe fn stream(self, p: *mut f64) {
        // SAFETY: the caller promises M writable values.
        unsafe { self.store(p) }
    }
}

impl F64s for D {
    type I = [i64; M];
    type M = [bool; M];

    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        D(four(|i| self.0[i] - o.0[i]))
    }
    #[inline(always)]
    fn div(self, o: Self) -> Self {
        D(four(|i| self.0[i] / o.0[i]))
    }
    #[inline(always)]
    fn min(self, o: Self) -> Self {
        D(four(|i| if self.0[i] < o.0[i] { self.0[i] } else { o.0[i] }))
    }
    #[inline(always)]
    fn max(self, o: Self) -> Self {
        D(four(|i| if self.0[i] > o.0[i] { self.0[i] } else { o.0[i] }))
    }
    #[inline(always)]
    fn sqrt(self) -> Self {
        D(four(|i| self.0[i].sqrt()))
    }
    #[inline(always)]
    fn round(self) -> Self {
        D(four(|i| self.0[i].round_ties_even()))
    }
    #[inline(always)]
    fn floor(self) -> Self {
        D(four(|i| self.0[i].floor()))
    }
    #[inline(always)]
    fn lt(self, o: Self) -> Self::M {
        four(|i| self.0[i] < o.0[i])
    }
    #[inline(always)]
    fn eq(self, o: Self) -> Self::M {
        four(|i| self.0[i] == o.0[i])
    }
    #[inline(always)]
    fn select(m: Self::M, a: Self, b: Self) -> Self {
        D(four(|i| if m[i] { a.0[i] } else { b.0[i] }))
    }
    #[inline(always)]
    fn any(m: Self::M) -> bool {
        m.contains(&true)
    }
    #[inline(always)]
    fn bits(self) -> Self::I {
        four(|i| self.0[i].to_bits() as i64)
    }
    #[inline(always)]
    fn from_bits(i: Self::I) -> Self {
        D(four(|k| f64::from_bits(i[k] as u64)))
    }
    #[inline(always)]
    fn i_splat(x: i64) -> Self::I {
        [x; M]
    }
    #[inline(always)]
    fn i_add(a: Self::I, b: Self::I) -> Self::I {
        four(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(always)]
    fn i_sub(a: Self::I, b: Self::I) -> Self::I {
        four(|i| a[i].wrapping_sub(b[i]))
    }
    #[inline(always)]
    fn i_and(a: Self::I, b: Self::I) -> Self::I {
        four(|i| a[i] & b[i])
    }
    #[inline(always)]
    fn i_xor(a: Self::I, b: Self::I) -> Self::I {
        four(|i| a[i] ^ b[i])
    }
    #[inline(always)]
    fn i_shl<const N: u32>(a: Self::I) -> Self::I {
        four(|i| a[i] << N)
    }
    #[inline(always)]
    fn i_shr<const N: u32>(a: Self::I) -> Self::I {
        four(|i| ((a[i] as u64) >> N) as i64)
    }
}
