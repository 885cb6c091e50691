//! The table of elementwise operations. One row makes the variant of its class, its name, its place
//! in `ALL`, the method of [`Expr`](super::build::Expr) and the method of
//! [`Tensor`](crate::Tensor).
//!
//! `ops!(m)` passes the table to the macro `m`. A row is its documentation, the variant and the
//! name of the methods, which is also the name in errors. Operations without a row (`Cast`, `Not`,
//! `IsNan`, `Where` and the leaves) have a variant of [`OpCode`](super::OpCode) each.
//! CONTRIBUTING.md has the other places of a new row, one for each crate that computes it.

macro_rules! ops {
    ($with:ident) => {
        $with! {
            unary {
                /// A smooth function of a float. As a method it converts integers and bools to
                /// `F32` first.
                Float(FloatFunction) {
                    /// `1 / x`; integers become `F32`, here and for every function that returns
                    /// floats.
                    Recip recip;
                    /// Square root; NaN below zero.
                    Sqrt sqrt;
                    /// `1 / sqrt(x)`.
                    Rsqrt rsqrt;
                    /// Cube root, of negative numbers too.
                    Cbrt cbrt;
                    /// e to the x.
                    Exp exp;
                    /// 2 to the x.
                    Exp2 exp2;
                    /// `exp(x) - 1` without cancellation near 0.
                    Expm1 expm1;
                    /// Natural logarithm.
                    Log log;
                    /// Logarithm to base 2.
                    Log2 log2;
                    /// Logarithm to base 10, exactly of powers of 10.
                    Log10 log10;
                    /// `log(1 + x)` without cancellation near 0.
                    Log1p log1p;
                    /// Sine of radians.
                    Sin sin;
                    /// Cosine of radians.
                    Cos cos;
                    /// Tangent of radians.
                    Tan tan;
                    /// Arc tangent in radians.
                    Atan atan;
                    /// Hyperbolic tangent.
                    Tanh tanh;
                    /// The error function `2/sqrt(pi) * integral of exp(-t^2) from 0 to x`.
                    Erf erf;
                }
                /// Rounding of a float to an integer. As a method it returns integers and bools
                /// unchanged.
                Round(Rounding) {
                    /// Largest integer not above x.
                    Floor floor;
                    /// Smallest integer not below x.
                    Ceil ceil;
                    /// Nearest integer, ties to even.
                    Round round;
                    /// Toward zero.
                    Trunc trunc;
                }
                /// A function of the sign of a number. As methods, `abs` and `sign` return bools
                /// unchanged.
                Sign(SignFunction) {
                    /// `-x`; integers wrap, bools are an error.
                    Neg neg;
                    /// `|x|`; the smallest integer wraps to itself. Equivalent: `torch.abs`.
                    Abs abs;
                    /// -1, 0 or 1; NaN stays NaN.
                    Sign sign;
                }
            }
            binary {
                /// Arithmetic of numbers. As methods, `add` and `maximum` of bools are `or`, `mul`
                /// and `minimum` are `and`.
                Arithmetic(Arithmetic) {
                    /// `self + rhs` with broadcasting and promotion; integers wrap, here and below.
                    /// Equivalent: `torch.add`.
                    Add add;
                    /// `self - rhs`.
                    Sub sub;
                    /// `self * rhs`.
                    Mul mul;
                    /// `self / rhs` of floats; as a method it divides integers as `F32`, as in
                    /// PyTorch.
                    Div div;
                    /// `self` to the power `rhs`; an integer to a negative power is the truncated
                    /// true quotient.
                    Pow pow;
                    /// The larger; NaN if either is NaN. Zeros of either sign are equal, and of
                    /// equal operands the result is the second: of `-0` and `0` it is `0`, of `0`
                    /// and `-0` it is `-0`. Equivalent: `torch.maximum`.
                    #[doc(alias = "clamp_min")]
                    Max maximum;
                    /// The smaller; NaN if either is NaN. Of equal operands the second, as for
                    /// `maximum`. Equivalent: `torch.minimum`.
                    #[doc(alias = "clamp_max")]
                    Min minimum;
                    /// The remainder with the sign of `rhs`, as Python's `%`. An integer modulo 0
                    /// is 0. Equivalent: `torch.remainder`.
                    #[doc(alias = "remainder")]
                    Rem rem;
                    /// `floor(self / rhs)`. An integer divided by 0 is 0.
                    #[doc(alias = "floor_divide")]
                    FloorDiv floor_div;
                }
                /// A comparison, which returns a bool.
                Compare(Comparison) {
                    /// `self < rhs`; false for NaN.
                    Lt lt;
                    /// `self <= rhs`; false for NaN.
                    Le le;
                    /// `self == rhs`; false for NaN.
                    Eq eq;
                    /// `self != rhs`; true for NaN.
                    Ne ne;
                }
                /// An operation on the bits of an integer; the first three are logical operations
                /// of bools.
                Bitwise(Bitwise) {
                    /// Logical and of bools, bitwise and of integers.
                    And and;
                    /// Logical or of bools, bitwise or of integers.
                    Or or;
                    /// Exclusive or.
                    Xor xor;
                    /// `self << rhs`; 0 if `rhs` is negative or not below the width.
                    Shl shl;
                    /// `self >> rhs`, keeping the sign; all sign bits if `rhs` is negative or not
                    /// below the width.
                    Shr shr;
                }
            }
        }
    };
}
pub(crate) use ops;
