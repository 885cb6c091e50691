//! Macros that make a vector of one register from its intrinsics.

/// Wraps one intrinsic.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: SSE2 is in every x86-64, and a larger register's type only exists inside `enter`,
        // whose caller has checked the features. The caller promises the memory that is read or
        // written; masked lanes are neither.
        unsafe { $e }
    };
}

/// [`Lanes`](crate::simd::Lanes) of one register by its intrinsics. Those for parts differ in their
/// arguments and are written out.
macro_rules! register {
    ($V:ident of $lanes:literal $T:ty: $splat:ident, $load:ident, $store:ident, $stream:ident, $add:ident, $mul:ident, $fma:ident,
     |$p:ident, $n:ident| $load_part:expr, |$q:ident, $m:ident, $v:ident| $store_part:expr,
     |$t:ident| $total:expr, |$lo:ident, $hi:ident| $even:expr, $native:literal) => {
        impl crate::simd::Lanes<$T> for $V {
            const LANES: usize = $lanes;
            const NATIVE: bool = $native;
            #[inline(always)]
            fn splat(x: $T) -> Self {
                $V(op!($splat(x)))
            }
            #[inline(always)]
            unsafe fn load(p: *const $T) -> Self {
                $V(op!($load(p)))
            }
            #[inline(always)]
            unsafe fn store(self, p: *mut $T) {
                op!($store(p, self.0))
            }
            #[inline(always)]
            unsafe fn load_part($p: *const $T, $n: usize) -> Self {
                $V(op!($load_part))
            }
            #[inline(always)]
            unsafe fn store_part(self, $q: *mut $T, $m: usize) {
                let $v = self.0;
                op!($store_part)
            }
            #[inline(always)]
            fn add(self, o: Self) -> Self {
                $V(op!($add(self.0, o.0)))
            }
            #[inline(always)]
            fn mul(self, o: Self) -> Self {
                $V(op!($mul(self.0, o.0)))
            }
            #[inline(always)]
            fn fma(self, a: Self, b: Self) -> Self {
                $V(op!($fma(self.0, a.0, b.0)))
            }
            #[inline(always)]
            fn total(self) -> $T {
                let $t = self.0;
                op!($total)
            }
            #[inline(always)]
            fn even(self, next: Self) -> Self {
                let ($lo, $hi) = (self.0, next.0);
                $V(op!($even))
            }
            #[inline(always)]
            unsafe fn stream(self, p: *mut $T) {
                op!($stream(p.cast(), self.0))
            }
            #[inline(always)]
            fn totals(x: [Self; 4]) -> [$T; 4] {
                $V::sums(x)
            }
        }
    };
}

/// Methods of vectors that are one expression of the registers of their operands.
macro_rules! lanewise {
    ($V:ident: $($name:ident($x:ident $(, $y:ident)?) $e:expr;)*) => {$(
        #[inline(always)]
        fn $name(self $(, $y: Self)?) -> Self {
            let $x = self.0;
            $(let $y = $y.0;)?
            $V(op!($e))
        }
    )*};
}

/// Methods of vectors of integers of type `$I`.
macro_rules! integers {
    ($I:ty: $($name:ident($($x:ident),*) $e:expr;)*) => {$(
        #[inline(always)]
        fn $name($($x: $I),*) -> $I {
            op!($e)
        }
    )*};
}
