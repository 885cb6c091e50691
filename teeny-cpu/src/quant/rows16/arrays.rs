//! [`Rows`] as arrays: the baseline of processors without other lanes, and the reference that tests
//! compare all lanes with.

use super::{RowWork, Rows};

/// Sixteen lanes.
#[derive(Clone, Copy)]
pub(in crate::quant) struct Arrays([i32; 16]);

impl Arrays {
    #[inline(always)]
    fn map(self, f: impl Fn(i32) -> i32) -> Arrays {
        Arrays(self.0.map(f))
    }

    #[inline(always)]
    fn zip(mut self, o: Arrays, f: impl Fn(i32, i32) -> i32) -> Arrays {
        self.0.iter_mut().zip(o.0).for_each(|(a, b)| *a = f(*a, b));
        self
    }
}

#[inline(always)]
fn zip_floats(mut a: [f32; 16], b: [f32; 16], f: impl Fn(f32, f32) -> f32) -> [f32; 16] {
    a.iter_mut().zip(b).for_each(|(a, b)| *a = f(*a, b));
    a
}

impl Rows for Arrays {
    type Floats = [f32; 16];
    const SHIFT: i32 = 0;
    const PAIRS: bool = false;

    #[inline(never)]
    fn call(work: impl RowWork) {
        work.run::<Arrays>()
    }
    #[inline(always)]
    unsafe fn load(p: *const u8) -> Arrays {
        // SAFETY: by contract.
        Arrays(unsafe { p.cast::<[[u8; 4]; 16]>().read() }.map(i32::from_le_bytes))
    }
    #[inline(always)]
    unsafe fn store(self, p: *mut u8) {
        // SAFETY: by contract.
        unsafe { p.cast::<[[u8; 4]; 16]>().write(self.0.map(i32::to_le_bytes)) }
    }
    #[inline(always)]
    fn splat(x: i32) -> Arrays {
        Arrays([x; 16])
    }
    #[inline(always)]
    fn shr(self, n: u32) -> Arrays {
        self.map(|x| (x as u32 >> n) as i32)
    }
    #[inline(always)]
    fn shl(self, n: u32) -> Arrays {
        self.map(|x| x << n)
    }
    #[inline(always)]
    fn sar(self, n: u32) -> Arrays {
        self.map(|x| x >> n)
    }
    #[inline(always)]
    fn and(self, o: Arrays) -> Arrays {
        self.zip(o, |a, b| a & b)
    }
    #[inline(always)]
    fn or(self, o: Arrays) -> Arrays {
        self.zip(o, |a, b| a | b)
    }
    #[inline(always)]
    fn mul(self, o: Arrays) -> Arrays {
        self.zip(o, i32::wrapping_mul)
    }
    #[inline(always)]
    fn add(self, o: Arrays) -> Arrays {
        self.zip(o, i32::wrapping_add)
    }
    #[inline(always)]
    fn look_up(self, table: &[i8; 16]) -> Arrays {
        let byte = |x: u8| table[usize::from(x & 15)] as u8;
        self.map(|x| i32::from_le_bytes(x.to_le_bytes().map(byte)))
    }
    #[inline(always)]
    fn signed(self) -> Arrays {
        self
    }
    #[inline(always)]
    fn dot(self, x: Arrays, a: i32) -> Arrays {
        // of 0 to 127, a byte is the same with a sign
        self.dot_signed(x, a)
    }
    #[inline(always)]
    fn dot_signed(self, x: Arrays, a: i32) -> Arrays {
        let byte = |x: i32, k: u32| (x << (24 - 8 * k)) >> 24;
        let product =
            |sum: i32, x: i32| (0..4).fold(sum, |sum, k| sum.wrapping_add(byte(x, k) * byte(a, k)));
        self.zip(x, product)
    }
    #[inline(always)]
    fn floats(self) -> [f32; 16] {
        self.0.map(|x| x as f32)
    }
    #[inline(always)]
    unsafe fn halves(p: *const u8) -> [f32; 16] {
        // SAFETY: by contract.
        let halves = unsafe { p.cast::<[[u8; 2]; 16]>().read() };
        halves.map(|half| teeny_core::f16::from_le_bytes(half).to_f32())
    }
    #[inline(always)]
    unsafe fn load_floats(p: *const f32) -> [f32; 16] {
        // SAFETY: by contract.
        unsafe { p.cast::<[f32; 16]>().read() }
    }
    #[inline(always)]
    unsafe fn store_floats(x: [f32; 16], p: *mut f32) {
        // SAFETY: by contract.
        unsafe { p.cast::<[f32; 16]>().write(x) }
    }
    #[inline(always)]
    fn splat_float(x: f32) -> [f32; 16] {
        [x; 16]
    }
    #[inline(always)]
    fn mul_floats(a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip_floats(a, b, |a, b| a * b)
    }
    #[inline(always)]
    fn add_floats(a: [f32; 16], b: [f32; 16]) -> [f32; 16] {
        zip_floats(a, b, |a, b| a + b)
    }
}
