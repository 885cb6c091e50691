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
            fn rem(self, o: Self) -> Self { if o == 0 { 0 } else { ($rem)(self, o) } }
            #[inline(always)]
            fn floor_div(self, o: Self) -> Self { if o == 0 { 0 } else { ($div)(self, o) } }
            #[inline(always)]
            fn and(self, o: Self) -> Self { self & o }
            #[inline(always)]
            fn or(self, o: Self) -> Self { self | o }
            #[inline(always)]
            fn xor(self, o: Self) -> Self { self ^ o }
            #[inline(always)]
            fn shl(self, o: Self) -> Self {
                if (o as $u) < <$t>::BITS as $u { self.wrapping_shl(o as u32) } else { 0 }
            }
            #[inline(always)]
            fn shr(self, o: Self) -> Self {
                // As far as all sign bits at most.
                let most = <$t>::BITS - 1;
                let inside = (o as $u) < <$t>::BITS as $u;
                let shifted = self.wrapping_shr(if inside { o as u32 } else { most });
                if inside || $signed { shifted } else { 0 }
            }
        }
    )*};
}

macro_rules! ints {
    (signed $($s:ty, $v:ty),*; unsigned $($u:ty)*) => {
        int! {
            $($s, $v, true, <$s>::wrapping_abs, <$s>::signum,
                |a: $s, b: $s| { let r = a.wrapping_rem(b); if r != 0 && (r < 0) != (b < 0) { r + b } else { r } },
                |a: $s, b: $s| {
                    let (q, r) = (a.wrapping_div(b), a.wrapping_rem(b));
                    if r != 0 && (r < 0) != (b < 0) { q - 1 } else { q }
                };)*
            $($u, $u, false, |a: $u| a, |a: $u| (a != 0) as $u, |a: $u, b: $u| a % b, |a: $u, b: $u| a / b;)*
        }
    };
}

#[allow(unused_comparisons, clippy::manual_range_contains)]
mod impls {
    use super::Int;
    ints! { signed i8, u8, i16, u16, i32, u32, i64, u64; unsigned u8 u16 u32 u64 }
}
