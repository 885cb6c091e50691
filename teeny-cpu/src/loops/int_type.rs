//! The arithmetic of integer types as core's `kernel::eval` defines it.

/// An integer type with core's arithmetic.
pub(crate) trait Int: Copy + Ord + Send + Sync + 'static {
    /// One operand: `Neg`, `Abs`, `Sign`.
    fn neg(self) -> Self;
    fn abs(self) -> Self;
    fn sign(self) -> Self;
    fn not(self) -> Self;
    /// Two operands, wrapping.
    fn add(self, o: Self) -> Self;
    fn sub(self, o: Self) -> Self;
    fn mul(self, o: Self) -> Self;
    /// A negative exponent gives the truncated quotient.
    fn pow(self, o: Self) -> Self;
    /// The sign of the divisor; 0 for a zero divisor.
    fn rem(self, o: Self) -> Self;
    /// Towards minus infinity; 0 for a zero divisor.
    fn floor_div(self, o: Self) -> Self;
    fn and(self, o: Self) -> Self;
    fn or(self, o: Self) -> Self;
    fn xor(self, o: Self) -> Self;
    /// 0 for shifts out of range.
    fn shl(self, o: Self) -> Self;
    /// All sign bits for shifts out of range.
    fn shr(self, o: Self) -> Self;
}

macro_rules! int {
    ($($t:ty, $u:ty, $signed:literal, $abs:expr, $sign:expr, $rem:expr, $div:expr;)*) => {$(
        impl Int for $t {
            #[inline(always)]
            fn neg(self) -> Self { self.wrapping_neg() }
            #[inline(always)]
            fn abs(self) -> Self { ($abs)(self) }
            #[inline(always)]
            fn sign(self) -> Self { ($sign)(self) }
            #[inline(always)]
            fn not(self) -> Self { !self }
            #[inline(always)]
            fn add(self, o: Self) -> Self { self.wrapping_add(o) }
            #[inline(always)]
            fn sub(self, o: Self) -> Self { self.wrapping_sub(o) }
            #[inline(always)]
            fn mul(self, o: Self) -> Self { self.wrapping_mul(o) }
            #[inline(always)]
            fn pow(self, o: Self) -> Self {
                if $signed && o < 0 {
                    // 1 / a^|b| truncated: only 1 and -1 leave something.
                    let minus_one = (0 as $t).wrapping_sub(1);
                    return if self == 1 || (self == minus_one && o & 1 == 0) { 1 } else if self == minus_one { self } else { 0 };
                }
                let (mut base, mut exponent, mut power) = (self, o, 1 as $t);
                while exponent > 0 {
                    if exponent & 1 == 1 {
                        power = power.wrapping_mul(base);
                    }
                    base = base.wrapping_mul(base);
                    exponent >>= 1;
                }
                power
            }
            #[inline(always)]
            fn rem(self, o: Self) -> Self { ($rem)(self, o) }
            #[inline(always)]
            fn floor_div(self, o: Self) -> Self {
                // A choice, not a branch: it leaves loops over vectors.
                let q = ($div)(self, o);
                if o == 0 { 0 } else { q }
            }
            #[inline(always)]
            fn and(self, o: Self) -> Self { self & o }
            #[inline(always)]
            fn or(self, o: Self) -> Self { self | o }
            #[inline(always)]
            fn xor(self, o: Self) -> Self { self ^ o }
            #[inline(always)]
            fn shl(self, o: Self) -> Self {
                let shifted = if <$t>::BITS < 32 {
                    (self as i32).wrapping_shl(o as u32) as $t
                } else {
                    self.wrapping_shl(o as u32)
                };
                if (o as $u) < <$t>::BITS as $u { shifted } else { 0 }
            }
            #[inline(always)]
            fn shr(self, o: Self) -> Self {
                // As far as all sign bits at most.
                let most = <$t>::BITS - 1;
                let inside = (o as $u) < <$t>::BITS as $u;
                let by = if inside { o as u32 } else { most };
                // Vectors have shifts of 32 bits by different distances, none of 8.
                let shifted = if <$t>::BITS < 32 {
                    (self as i32).wrapping_shr(by) as $t
                } else {
                    self.wrapping_shr(by)
                };
                if inside || $signed { shifted } else { 0 }
            }
        }
    )*};
}

/// The quotient rounded down, and the remainder, by a division of floats, for which there are
/// vectors. Exact: a quotient that is not whole differs from a whole number by 1 / |b| at least,
/// more than a rounding error of `$float`: |a| / |b| times 2^-24 with |a| <= 2^16, or 2^-53 with
/// |a| <= 2^31. `$b` is neither 0 nor, for 32 bits, -1; of a division by 1 instead of 0 the
/// remainder is right.
macro_rules! divided {
    ($float:ty, $a:expr, $b:expr) => {{
        let (a, b) = ($a as i32, $b as i32);
        // SAFETY: b is not 0, so that the quotient is finite and no larger than |a|; that is 2^31
        // only if a is the least i32 and b is -1, which it is not.
        let q = unsafe { (a as $float / b as $float).to_int_unchecked::<i32>() };
        let r = a.wrapping_sub(q.wrapping_mul(b));
        let above = r != 0 && (r < 0) != (b < 0);
        if above { (q - 1, r + b) } else { (q, r) }
    }};
}

macro_rules! ints {
    (small { $($t:ty, $tu:ty, $signed:literal, $abs:expr, $sign:expr;)* } signed $($s:ty, $v:ty),*; unsigned $($u:ty)*) => {
        int! {
            $($t, $tu, $signed, $abs, $sign,
                |a: $t, b: $t| divided!(f32, a, if b == 0 { 1 } else { b }).1 as $t,
                |a: $t, b: $t| divided!(f32, a, if b == 0 { 1 } else { b }).0 as $t;)*
            i32, u32, true, i32::wrapping_abs, |a: i32| a.clamp(-1, 1),
                |a: i32, b: i32| divided!(f64, a, if b == 0 || b == -1 { 1 } else { b }).1,
                |a: i32, b: i32| {
                    let q = divided!(f64, a, if b == 0 || b == -1 { 1 } else { b }).0;
                    if b == -1 { a.wrapping_neg() } else { q }
                };
            $($s, $v, true, <$s>::wrapping_abs, |a: $s| a.clamp(-1, 1),
                |a: $s, b: $s| {
                    let b = if b == 0 { 1 } else { b };
                    let r = a.wrapping_rem(b);
                    if r != 0 && (r < 0) != (b < 0) { r + b } else { r }
                },
                |a: $s, b: $s| {
                    let b = if b == 0 { 1 } else { b };
                    let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
                    if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
                };)*
            $($u, $u, false, |a: $u| a, |a: $u| (a != 0) as $u,
                |a: $u, b: $u| a % if b == 0 { 1 } else { b },
                |a: $u, b: $u| a / if b == 0 { 1 } else { b };)*
        }
    };
}

#[allow(unused_comparisons, clippy::manual_range_contains)]
mod impls {
    use super::Int;
    ints! {
        small {
            i8, u8, true, i8::wrapping_abs, |a: i8| a.clamp(-1, 1);
            i16, u16, true, i16::wrapping_abs, |a: i16| a.clamp(-1, 1);
            u8, u8, false, |a: u8| a, |a: u8| (a != 0) as u8;
            u16, u16, false, |a: u16| a, |a: u16| (a != 0) as u16;
        }
        signed i64, u64; unsigned u32 u64
    }
}
