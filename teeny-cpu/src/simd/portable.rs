//! Eight f32 or four f64 as arrays: the vector of every processor without a better one. The
//! compiler turns these loops into the registers that there are.

use super::{F32s, F64s, Half, Lanes, Work};

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

/// The least normal f16 as f32: its exponent is the least.
const MIN_NORMAL: u32 = 113 << 23;

/// The bits of a 16-bit float as f32.
#[inline(always)]
fn widened<H: Half>(x: u16) -> u32 {
    if H::IS_BF16 {
        return u32::from(x) << 16;
    }
    let (sign, rest) = (u32::from(x & 0x8000) << 16, u32::from(x & 0x7fff) << 13);
    let normal = rest + (112 << 23);
    // 2^-14 plus the fraction, less 2^-14: the exponent follows.
    let subnormal = f32::from_bits(rest + MIN_NORMAL) - f32::from_bits(MIN_NORMAL);
    let finite = if rest < 1 << 23 { subnormal.to_bits() } else { normal };
    let nan = if rest > 31 << 23 { 1 << 22 } else { 0 };
    sign | if rest >= 31 << 23 { rest | 0xff << 23 | nan } else { finite }
}

/// The bits of an f32 as 16-bit float.
#[inline(always)]
fn rounded<H: Half>(x: u32) -> u16 {
    /// 1/2: its sum with a subnormal f16 has the last place of the f16.
    const HALF: u32 = 126 << 23;
    if H::IS_BF16 {
        let nearest = x.wrapping_add(0x7fff + (x >> 16 & 1)) >> 16;
        let is_nan = x & 0x7fff_ffff > 0x7f80_0000;
        return if is_nan { (x >> 16) | 0x40 } else { nearest } as u16;
    }
    let (sign, rest) = (x >> 16 & 0x8000, x & 0x7fff_ffff);
    let odd = rest >> 13 & 1;
    let normal = rest.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let subnormal = (f32::from_bits(rest) + f32::from_bits(HALF)).to_bits();
    let finite = if rest < MIN_NORMAL { subnormal.wrapping_sub(HALF) } else { normal };
    let nan = 0x7e00 | (rest >> 13 & 0x3ff);
    let huge = if rest > 255 << 23 { nan } else { 0x7c00 };
    (sign | if rest >= 143 << 23 { huge } else { finite }) as u16
}

/// Arrays need no unsafe code.
macro_rules! op {
    ($e:expr) => {
        $e
    };
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
        V(lanes(|i| self.0[i] + o.0[i]))
    }
    #[inline(always)]
    fn mul(self, o: Self) -> Self {
        V(lanes(|i| self.0[i] * o.0[i]))
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
        V(lanes(|i| f32::from_bits(widened::<H>(bits[i]))))
    }
    #[inline(always)]
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        let bits = lanes(|i| rounded::<H>(self.0[i].to_bits()));
        // SAFETY: the caller promises N writable values.
        unsafe { p.cast::<[u16; N]>().write_unaligned(bits) }
    }

    functions! { V, [i32; N], [bool; N], i32:
        lanes {
            sub(a, o) lanes(|i| a[i] - o[i]);
            div(a, o) lanes(|i| a[i] / o[i]);
            min(a, o) lanes(|i| if a[i] < o[i] { a[i] } else { o[i] });
            max(a, o) lanes(|i| if a[i] > o[i] { a[i] } else { o[i] });
            sqrt(a) lanes(|i| a[i].sqrt());
            // Adding 1.5 * 2^23 rounds to the nearest even in the last place; larger values are
            // whole already.
            round(a) lanes(|i| match a[i].abs() < 4_194_304.0 {
                true => ((a[i] + 12_582_912.0) - 12_582_912.0).copysign(a[i]),
                false => a[i].round_ties_even(),
            });
            floor(a) lanes(|i| a[i].floor());
        }
        tests {
            lt(a, o) lanes(|i| a[i] < o[i]);
            eq(a, o) lanes(|i| a[i] == o[i]);
        }
        select(m, a, b) lanes(|i| if m[i] { a[i] } else { b[i] });
        any(m) m.contains(&true);
        bits(x) lanes(|i| x[i].to_bits() as i32);
        from_bits(k) lanes(|i| f32::from_bits(k[i] as u32));
        i_splat(x) lanes(|_| x);
        integers {
            i_add(a, b) lanes(|i| a[i].wrapping_add(b[i]));
            i_sub(a, b) lanes(|i| a[i].wrapping_sub(b[i]));
            i_and(a, b) lanes(|i| a[i] & b[i]);
            i_xor(a, b) lanes(|i| a[i] ^ b[i]);
        }
        shifts by COUNT {
            i_shl(a) lanes(|i| a[i] << COUNT);
            i_sra(a) lanes(|i| a[i] >> COUNT);
        }
    }
    conversions! { V, [i32; N]:
        to_i32(x) lanes(|i| x[i] as i32);
        from_i32(k) lanes(|i| k[i] as f32);
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
    functions! { D, [i64; M], [bool; M], i64:
        lanes {
            sub(a, o) four(|i| a[i] - o[i]);
            div(a, o) four(|i| a[i] / o[i]);
            min(a, o) four(|i| if a[i] < o[i] { a[i] } else { o[i] });
            max(a, o) four(|i| if a[i] > o[i] { a[i] } else { o[i] });
            sqrt(a) four(|i| a[i].sqrt());
            round(a) four(|i| a[i].round_ties_even());
            floor(a) four(|i| a[i].floor());
        }
        tests {
            lt(a, o) four(|i| a[i] < o[i]);
            eq(a, o) four(|i| a[i] == o[i]);
        }
        select(m, a, b) four(|i| if m[i] { a[i] } else { b[i] });
        any(m) m.contains(&true);
        bits(x) four(|i| x[i].to_bits() as i64);
        from_bits(k) four(|i| f64::from_bits(k[i] as u64));
        i_splat(x) four(|_| x);
        integers {
            i_add(a, b) four(|i| a[i].wrapping_add(b[i]));
            i_sub(a, b) four(|i| a[i].wrapping_sub(b[i]));
            i_and(a, b) four(|i| a[i] & b[i]);
            i_xor(a, b) four(|i| a[i] ^ b[i]);
        }
        shifts by COUNT {
            i_shl(a) four(|i| a[i] << COUNT);
            i_shr(a) four(|i| ((a[i] as u64) >> COUNT) as i64);
        }
    }
}
