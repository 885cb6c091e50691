//! A vector that counts its operations.

use crate::simd::{F32s, F64s, Half, Lanes, Work};
use std::cell::Cell;

/// Operations that were run.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    /// All operations except loads, stores, constants and no-ops.
    pub all: usize,
    /// Of these, products with or without an addition.
    pub multiplications: usize,
    /// Of these, divisions and square roots.
    pub divisions: usize,
}

thread_local! {
    static COUNTS: Cell<Counts> = const {
        Cell::new(Counts { all: 0, multiplications: 0, divisions: 0 })
    };
}

/// The operations that `run` runs.
pub fn during(run: impl FnOnce()) -> Counts {
    COUNTS.set(Counts::default());
    run();
    COUNTS.get()
}

fn count(multiplications: usize, divisions: usize) {
    let Counts { all, multiplications: products, divisions: quotients } = COUNTS.get();
    COUNTS.set(Counts {
        all: all + 1,
        multiplications: products + multiplications,
        divisions: quotients + divisions,
    });
}

/// A vector that runs and counts the operations of `V`.
#[derive(Clone, Copy)]
pub struct Counted<V>(V);

macro_rules! counted {
    (loads for $T:ty, $Trait:ident) => {
        impl<V: $Trait> Lanes<$T> for Counted<V> {
            const LANES: usize = V::LANES;
            const NATIVE: bool = V::NATIVE;
            const FUSED: bool = V::FUSED;
            fn splat(x: $T) -> Self {
                Counted(V::splat(x))
            }
            unsafe fn load(p: *const $T) -> Self {
                // SAFETY: by contract.
                Counted(unsafe { V::load(p) })
            }
            unsafe fn store(self, p: *mut $T) {
                // SAFETY: by contract.
                unsafe { self.0.store(p) }
            }
            unsafe fn load_part(p: *const $T, n: usize) -> Self {
                // SAFETY: by contract.
                Counted(unsafe { V::load_part(p, n) })
            }
            unsafe fn store_part(self, p: *mut $T, n: usize) {
                // SAFETY: by contract.
                unsafe { self.0.store_part(p, n) }
            }
            unsafe fn stream(self, p: *mut $T) {
                // SAFETY: by contract.
                unsafe { self.0.stream(p) }
            }
            fn total(self) -> $T {
                self.0.total()
            }
            fn even(self, next: Self) -> Self {
                Counted(self.0.even(next.0))
            }
            counted! { values: add(o) 0 0; mul(o) 1 0; fma(a, b) 1 0; }
        }
    };
    (values: $($name:ident($($x:ident),*) $products:literal $quotients:literal;)*) => {$(
        fn $name(self $(, $x: Self)*) -> Self {
            count($products, $quotients);
            Counted(self.0.$name($($x.0),*))
        }
    )*};
    (tests: $($name:ident)*) => {$(
        fn $name(self, o: Self) -> Self::M {
            count(0, 0);
            self.0.$name(o.0)
        }
    )*};
    (integers: $($name:ident)*) => {$(
        fn $name(a: Self::I, b: Self::I) -> Self::I {
            count(0, 0);
            V::$name(a, b)
        }
    )*};
    (shifts: $($name:ident)*) => {$(
        fn $name<const N: u32>(a: Self::I) -> Self::I {
            count(0, 0);
            V::$name::<N>(a)
        }
    )*};
    (methods for $T:ty: $short:expr, $scale:literal, $split:literal, $rsqrt:literal) => {
        // The counts match the methods of the levels; AVX2 takes two permutations and a choice for
        // a lookup.
        fn scale(self, n: Self) -> Self {
            (0..if $short { 1 } else { $scale }).for_each(|_| count(0, 0));
            Counted(self.0.scale(n.0))
        }
        fn rsqrt(self) -> Self {
            if $short {
                (0..2).for_each(|_| count(0, 0));
                (0..$rsqrt).for_each(|_| count(1, 0));
            } else {
                (0..2).for_each(|_| count(0, 1));
            }
            Counted(self.0.rsqrt())
        }
        fn lookup(table: &[$T; 16], index: V::I) -> Self {
            (0..if $short { 1 } else { 3 }).for_each(|_| count(0, 0));
            Counted(V::lookup(table, index))
        }
        fn split(self) -> (Self, Self) {
            (0..if $short { 4 } else { $split }).for_each(|_| count(0, 0));
            let (e, m) = self.0.split();
            (Counted(e), Counted(m))
        }
    };
    (functions of $int:ty) => {
        type I = V::I;
        type M = V::M;
        counted! {
            values: sub(o) 0 0; div(o) 0 1; min(o) 0 0; max(o) 0 0; sqrt() 0 1; round() 0 0;
            floor() 0 0;
        }
        counted! { tests: lt eq }
        counted! { integers: i_add i_sub i_and i_xor }
        fn select(m: V::M, a: Self, b: Self) -> Self {
            count(0, 0);
            Counted(V::select(m, a.0, b.0))
        }
        fn any(m: V::M) -> bool {
            count(0, 0);
            V::any(m)
        }
        fn bits(self) -> V::I {
            self.0.bits()
        }
        fn from_bits(i: V::I) -> Self {
            Counted(V::from_bits(i))
        }
        fn i_splat(x: $int) -> V::I {
            V::i_splat(x)
        }
        // One ternary operation where there is one.
        fn xor_sign(self, s: Self) -> Self {
            count(0, 0);
            Counted(self.0.xor_sign(s.0))
        }
    };
}

counted! { loads for f32, F32s }
counted! { loads for f64, F64s }

impl<V: F64s> F64s for Counted<V> {
    const TABLES: bool = V::TABLES;
    counted! { methods for f64: V::TABLES, 9, 0, 11 }
    counted! { functions of i64 }
    counted! { shifts: i_shl i_shr }
}

impl<V: F32s> F32s for Counted<V> {
    counted! { methods for f32: V::F64s::TABLES, 8, 14, 7 }
    type F64s = Counted<V::F64s>;
    counted! { functions of i32 }
    counted! { shifts: i_shl i_sra }
    fn call<W: Work>(work: W) -> W::Out {
        work.run::<Self>()
    }
    fn part(self, n: usize) -> Self {
        Counted(self.0.part(n))
    }
    fn widen(self) -> (Self::F64s, Self::F64s) {
        count(0, 0);
        count(0, 0);
        let (low, high) = self.0.widen();
        (Counted(low), Counted(high))
    }
    fn narrow(low: Self::F64s, high: Self::F64s) -> Self {
        count(0, 0);
        count(0, 0);
        Counted(V::narrow(low.0, high.0))
    }
    unsafe fn load_half<H: Half>(p: *const u16) -> Self {
        // SAFETY: by contract.
        Counted(unsafe { V::load_half::<H>(p) })
    }
    unsafe fn store_half<H: Half>(self, p: *mut u16) {
        // SAFETY: by contract.
        unsafe { self.0.store_half::<H>(p) }
    }
    fn to_i32(self) -> V::I {
        count(0, 0);
        self.0.to_i32()
    }
    fn from_i32(i: V::I) -> Self {
        count(0, 0);
        Counted(V::from_i32(i))
    }
}
