//! The elementwise vocabulary: methods and operators of [`Expr`], and every composite function,
//! defined once.
//!
//! Tensor methods, user kernels (`map`) and derivative rules all call these. A composite is one
//! kernel: one pass over memory on every device.

use super::OpCode;
use super::build::{Expr, ExprOperand};
use crate::dtype::DType;
use std::f64::consts;

macro_rules! float_ops {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl<'b> Expr<'b> {$(
            $(#[$doc])*
            pub fn $name(self) -> Expr<'b> { self.to_float().unary(OpCode::$op) }
        )*}
    };
}

float_ops! {
    /// `1 / x`.
    recip => Recip;
    /// Square root.
    sqrt => Sqrt;
    /// `1 / sqrt(x)`.
    rsqrt => Rsqrt;
    /// e to the x.
    exp => Exp;
    /// 2 to the x.
    exp2 => Exp2;
    /// `exp(x) - 1`.
    expm1 => Expm1;
    /// Natural logarithm.
    log => Log;
    /// Logarithm to base 2.
    log2 => Log2;
    /// `log(1 + x)`.
    log1p => Log1p;
    /// Sine.
    sin => Sin;
    /// Cosine.
    cos => Cos;
    /// Tangent.
    tan => Tan;
    /// Arc tangent.
    atan => Atan;
    /// Hyperbolic tangent.
    tanh => Tanh;
    /// Error function.
    erf => Erf;
}

macro_rules! rounding_ops {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl<'b> Expr<'b> {$(
            $(#[$doc])*
            pub fn $name(self) -> Expr<'b> {
                if self.dtype().is_float() { self.unary(OpCode::$op) } else { self }
            }
        )*}
    };
}

rounding_ops! {
    /// Largest integer not above x; integers stay.
    floor => Floor;
    /// Smallest integer not below x; integers stay.
    ceil => Ceil;
    /// Nearest integer, ties to even; integers stay.
    round => Round;
    /// Toward zero; integers stay.
    trunc => Trunc;
}

macro_rules! binary_ops {
    ($($(#[$doc:meta])* $name:ident => $op:ident;)*) => {
        impl<'b> Expr<'b> {$(
            $(#[$doc])*
            pub fn $name(self, rhs: impl ExprOperand<'b>) -> Expr<'b> { self.binary(OpCode::$op, rhs) }
        )*}
    };
}

binary_ops! {
    /// This value to the power `rhs`.
    pow => Pow;
    /// The remainder with the sign of `rhs`.
    rem => Rem;
    /// `floor(x / rhs)`.
    floor_div => FloorDiv;
    /// `x < rhs`.
    lt => CmpLt;
    /// `x <= rhs`.
    le => CmpLe;
    /// `x == rhs`.
    eq => CmpEq;
    /// `x != rhs`.
    ne => CmpNe;
    /// Bitwise or logical and.
    and => And;
    /// Bitwise or logical or.
    or => Or;
    /// Exclusive or.
    xor => Xor;
    /// Shift left.
    shl => Shl;
    /// Shift right.
    shr => Shr;
}

impl<'b> Expr<'b> {
    fn to_float(self) -> Expr<'b> {
        self.cast(self.dtype().to_float())
    }

    /// Logical or bitwise complement.
    pub fn not(self) -> Expr<'b> {
        self.unary(OpCode::Not)
    }

    /// True where the value is zero: the complement of [`Expr::truth`].
    pub fn not_truth(self) -> Expr<'b> {
        self.truth().not()
    }

    /// `|x|`; of a bool: itself.
    pub fn abs(self) -> Expr<'b> {
        if self.dtype() == DType::Bool { self } else { self.unary(OpCode::Abs) }
    }

    /// -1, 0 or 1; of a bool: itself.
    pub fn sign(self) -> Expr<'b> {
        if self.dtype() == DType::Bool { self } else { self.unary(OpCode::Sign) }
    }

    /// True where the value is NaN; never for integers.
    pub fn is_nan(self) -> Expr<'b> {
        if self.dtype().is_float() {
            self.unary(OpCode::IsNan)
        } else {
            self.builder().constant(false, DType::Bool)
        }
    }

    /// True where the value is an infinity.
    pub fn is_inf(self) -> Expr<'b> {
        if self.dtype().is_float() {
            self.abs().eq(f64::INFINITY)
        } else {
            self.builder().constant(false, DType::Bool)
        }
    }

    /// True where the value is neither NaN nor an infinity.
    pub fn is_finite(self) -> Expr<'b> {
        if self.dtype().is_float() {
            self.abs().lt(f64::INFINITY)
        } else {
            self.builder().constant(true, DType::Bool)
        }
    }

    /// The larger of two values; NaN if either is.
    pub fn max(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let rhs = rhs.expr(self);
        self.logic_or(rhs, OpCode::Or, OpCode::Max)
    }

    /// The smaller of two values; NaN if either is.
    pub fn min(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let rhs = rhs.expr(self);
        self.logic_or(rhs, OpCode::And, OpCode::Min)
    }

    /// `x > rhs`.
    pub fn gt(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let rhs = rhs.expr(self);
        rhs.lt(self)
    }

    /// `x >= rhs`.
    pub fn ge(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let rhs = rhs.expr(self);
        rhs.le(self)
    }

    /// True division: integers are divided as floats.
    pub fn div(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
        let rhs = rhs.expr(self);
        self.to_float().binary(OpCode::Div, rhs.to_float())
    }

    /// `op` on bools means the logical operation `logic`, as in PyTorch (`true + true` is true).
    fn logic_or(self, rhs: Expr<'b>, logic: OpCode, op: OpCode) -> Expr<'b> {
        let both_bool = self.dtype() == DType::Bool && rhs.dtype() == DType::Bool;
        self.binary(if both_bool { logic } else { op }, rhs)
    }

    /// `min(max(x, low), high)`; NaN stays NaN.
    pub fn clamp(self, low: impl ExprOperand<'b>, high: impl ExprOperand<'b>) -> Expr<'b> {
        self.max(low).min(high)
    }

    /// `x * x`.
    pub fn square(self) -> Expr<'b> {
        self * self
    }

    /// `self + weight * (end - self)`, from the nearer end: weight 0 gives exactly `self`, 1
    /// exactly `end`.
    pub fn lerp(self, end: impl ExprOperand<'b>, weight: impl ExprOperand<'b>) -> Expr<'b> {
        let end = end.expr(self);
        let weight = weight.expr(self);
        // From the far end, a step that is large beside the result would round it away: 1e8 + (1 -
        // 1e8) is 0 in f32.
        let near = weight.abs().lt(0.5);
        near.select(self, end) + near.select(weight, weight - 1.0) * (end - self)
    }

    /// `self^p` with the slope 0 where self is 0, for any p: the power of norms.
    pub fn norm_power(self, p: f64) -> Expr<'b> {
        let zero = self.eq(0);
        // The power of 1 in place of that of 0: an infinite slope times the 0 that comes back from
        // the other branch is NaN.
        let base = zero.select(self.like(1), self);
        let power = if p == 0.5 { base.sqrt() } else { base.pow(p) };
        zero.select(power.like(0_f64.powf(p)), power)
    }

    /// Hyperbolic sine, `h (h + 2) / 2 (1 + 1 / (h + 1)^2)` with `h = expm1(|x| / 2)`: no
    /// cancellation near 0, finite wherever the result is.
    ///
    /// The derivative of this and of the next three functions is not that of their steps:
    /// `composite` in teeny-autograd recognises them.
    pub fn sinh(self) -> Expr<'b> {
        let x = self.to_float();
        let h = (x.abs() * 0.5).expm1();
        let e = h + 1.0;
        let magnitude = h * 0.5 * (h + 2.0) * ((e * e).recip() + 1.0);
        x.lt(0.0).select(-magnitude, magnitude)
    }

    /// Hyperbolic cosine, `(e^2 + 1 / e^2) / 2` with `e = exp(|x| / 2)`: finite wherever the result
    /// is.
    pub fn cosh(self) -> Expr<'b> {
        let e = (self.to_float().abs() * 0.5).exp();
        let r = e.recip();
        e * 0.5 * e + r * 0.5 * r
    }

    /// Arc sine, `atan(x / sqrt((1 - x)(1 + x)))`.
    pub fn asin(self) -> Expr<'b> {
        let x = self.to_float();
        (x / ((x.like(1.0) - x) * (x + 1.0)).sqrt()).atan()
    }

    /// Arc cosine, `2 atan(sqrt((1 - x) / (1 + x)))`.
    pub fn acos(self) -> Expr<'b> {
        let x = self.to_float();
        ((x.like(1.0) - x) / (x + 1.0)).sqrt().atan() * 2.0
    }

    /// `1 / (1 + exp(-x))`.
    pub fn sigmoid(self) -> Expr<'b> {
        let x = self.to_float();
        ((-x).exp() + 1.0).recip()
    }

    /// `max(x, 0)`; NaN stays NaN.
    pub fn relu(self) -> Expr<'b> {
        let zero = self.like(0);
        self.max(zero)
    }

    /// `min(max(x, 0), 6)`.
    pub fn relu6(self) -> Expr<'b> {
        self.relu().min(self.like(6))
    }

    /// x where positive, `slope * x` elsewhere.
    pub fn leaky_relu(self, slope: impl ExprOperand<'b>) -> Expr<'b> {
        let x = self.to_float();
        let low = x * slope.expr(x);
        x.gt(0.0).select(x, low)
    }

    /// x where positive, `alpha * (exp(x) - 1)` elsewhere.
    pub fn elu(self, alpha: impl ExprOperand<'b>) -> Expr<'b> {
        let x = self.to_float();
        // NOTE: not `min`, which passes no gradient at 0.
        let low = x.gt(0.0).select(x.like(0.0), x).expm1() * alpha.expr(x);
        x.gt(0.0).select(x, low)
    }

    /// Scaled ELU (Klambauer et al. 2017, arXiv:1706.02515).
    pub fn selu(self) -> Expr<'b> {
        self.elu(1.6732632423543772) * 1.0507009873554805
    }

    /// `x Φ(x)` with the normal distribution's Φ, by erf (Hendrycks & Gimpel 2016,
    /// arXiv:1606.08415).
    pub fn gelu(self) -> Expr<'b> {
        let x = self.to_float();
        x * 0.5 * ((x * consts::FRAC_1_SQRT_2).erf() + 1.0)
    }

    /// The tanh form of [`Expr::gelu`]: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
    pub fn gelu_tanh(self) -> Expr<'b> {
        let x = self.to_float();
        let inner = (x + x * x * x * 0.044715) * (consts::FRAC_2_SQRT_PI * consts::FRAC_1_SQRT_2);
        x * 0.5 * (inner.tanh() + 1.0)
    }

    /// `x sigmoid(x)`, also called swish.
    pub fn silu(self) -> Expr<'b> {
        let x = self.to_float();
        x / ((-x).exp() + 1.0)
    }

    /// `log(1 + exp(x))`, as `max(x, 0) + log1p(exp(-|x|))`, which never overflows.
    pub fn softplus(self) -> Expr<'b> {
        let x = self.to_float();
        // NOTE: both terms have a kink at 0. One condition for both makes the slopes there add up
        // to 1/2; relu and abs would give 0.
        let positive = x.gt(0.0);
        positive.select(x, x.like(0.0)) + positive.select(-x, x).exp().log1p()
    }

    /// `log(sigmoid(x))` without underflow.
    pub fn log_sigmoid(self) -> Expr<'b> {
        -(-self.to_float()).softplus()
    }

    /// `x tanh(softplus(x))` (Misra 2019, arXiv:1908.08681).
    pub fn mish(self) -> Expr<'b> {
        let x = self.to_float();
        x * x.softplus().tanh()
    }

    /// `x / (1 + |x|)`.
    pub fn softsign(self) -> Expr<'b> {
        let x = self.to_float();
        x / (x.abs() + 1.0)
    }

    /// `min(max(x + 3, 0), 6) / 6`.
    pub fn hardsigmoid(self) -> Expr<'b> {
        (self.to_float() + 3.0).relu6() / 6.0
    }

    /// `x hardsigmoid(x)` (Howard et al. 2019, arXiv:1905.02244).
    pub fn hardswish(self) -> Expr<'b> {
        // Divided first: 6 x overflows where x does not.
        let x = self.to_float();
        x * ((x + 3.0).relu6() / 6.0)
    }

    /// `min(max(x, -1), 1)`.
    pub fn hardtanh(self) -> Expr<'b> {
        self.clamp(self.like(-1), self.like(1))
    }
}

macro_rules! operators {
    ($($trait:ident $name:ident => $body:expr;)*) => {$(
        impl<'b, T: ExprOperand<'b>> std::ops::$trait<T> for Expr<'b> {
            type Output = Expr<'b>;
            fn $name(self, rhs: T) -> Expr<'b> {
                let rhs = rhs.expr(self);
                let body: fn(Expr<'b>, Expr<'b>) -> Expr<'b> = $body;
                body(self, rhs)
            }
        }
    )*};
}

operators! {
    Add add => |a, b| a.logic_or(b, OpCode::Or, OpCode::Add);
    Sub sub => |a, b| a.binary(OpCode::Sub, b);
    Mul mul => |a, b| a.logic_or(b, OpCode::And, OpCode::Mul);
    Div div => |a, b| a.div(b);
    Rem rem => |a, b| a.rem(b);
}

impl<'b> std::ops::Neg for Expr<'b> {
    type Output = Expr<'b>;
    fn neg(self) -> Expr<'b> {
        self.unary(OpCode::Neg)
    }
}

macro_rules! number_first {
    ($($number:ty)*) => {$(
        impl<'b> std::ops::Add<Expr<'b>> for $number {
            type Output = Expr<'b>;
            fn add(self, rhs: Expr<'b>) -> Expr<'b> { ExprOperand::expr(self, rhs) + rhs }
        }
        impl<'b> std::ops::Sub<Expr<'b>> for $number {
            type Output = Expr<'b>;
            fn sub(self, rhs: Expr<'b>) -> Expr<'b> { ExprOperand::expr(self, rhs) - rhs }
        }
        impl<'b> std::ops::Mul<Expr<'b>> for $number {
            type Output = Expr<'b>;
            fn mul(self, rhs: Expr<'b>) -> Expr<'b> { ExprOperand::expr(self, rhs) * rhs }
        }
        impl<'b> std::ops::Div<Expr<'b>> for $number {
            type Output = Expr<'b>;
            fn div(self, rhs: Expr<'b>) -> Expr<'b> { ExprOperand::expr(self, rhs).div(rhs) }
        }
    )*};
}
number_first!(f32 f64 i32 i64);
