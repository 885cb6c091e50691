//! Macros that make a vector of one register from its intrinsics.

/// Wraps one intrinsic.
macro_rules! op {
    ($e:expr) => {
        // SAFETY: SSE2 is in every x86-64 and NEON in every aarch64; a larger register's type only
        // exists inside `enter`, whose caller has checked the features. The caller promises the
        // memory that is read or written; masked lanes are neither.
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

/// The methods of a vector of floats that are one expression of its register, of masks and of
/// integers, with the types of the last two and of an integer lane.
macro_rules! functions {
    ($V:ident, $I:ty, $M:ty, $int:ty:
     lanes { $($lane:ident($a:ident $(, $b:ident)?) $e:expr;)* }
     tests { $($test:ident($ta:ident, $tb:ident) $te:expr;)* }
     select($m:ident, $sa:ident, $sb:ident) $select:expr;
     any($am:ident) $any:expr;
     bits($bx:ident) $bits:expr;
     from_bits($fx:ident) $from_bits:expr;
     i_splat($ix:ident) $i_splat:expr;
     integers { $($of:ident($x:ident, $y:ident) $ie:expr;)* }
     shifts by $N:ident { $($shift:ident($sx:ident) $se:expr;)* }) => {
        type I = $I;
        type M = $M;
        $(
            #[inline(always)]
            fn $lane(self $(, $b: Self)?) -> Self {
                let $a = self.0;
                $(let $b = $b.0;)?
                $V(op!($e))
            }
        )*
        $(
            #[inline(always)]
            fn $test(self, $tb: Self) -> $M {
                let ($ta, $tb) = (self.0, $tb.0);
                op!($te)
            }
        )*
        #[inline(always)]
        fn select($m: $M, $sa: Self, $sb: Self) -> Self {
            let ($sa, $sb) = ($sa.0, $sb.0);
            $V(op!($select))
        }
        // Some masks are integers.
        #[allow(unused_unsafe)]
        #[inline(always)]
        fn any($am: $M) -> bool {
            op!($any)
        }
        #[inline(always)]
        fn bits(self) -> $I {
            let $bx = self.0;
            op!($bits)
        }
        #[inline(always)]
        fn from_bits($fx: $I) -> Self {
            $V(op!($from_bits))
        }
        #[inline(always)]
        fn i_splat($ix: $int) -> $I {
            op!($i_splat)
        }
        $(
            #[inline(always)]
            fn $of($x: $I, $y: $I) -> $I {
                op!($ie)
            }
        )*
        $(
            #[inline(always)]
            fn $shift<const $N: u32>($sx: $I) -> $I {
                op!($se)
            }
        )*
    };
}

/// The conversions of whole numbers between a vector of f32 and its integers.
macro_rules! conversions {
    ($V:ident, $I:ty: to_i32($x:ident) $to:expr; from_i32($i:ident) $from:expr;) => {
        #[inline(always)]
        fn to_i32(self) -> $I {
            let $x = self.0;
            op!($to)
        }
        #[inline(always)]
        fn from_i32($i: $I) -> Self {
            $V(op!($from))
        }
    };
}
