//! The elementwise vocabulary: methods and operators of [`Expr`], and every composite function,
//! defined once.
//!
//! Tensor methods, user kernels (`map`) and derivative rules all call these. A composite is one
//! kernel: one pass over memory on every device.

use super::build::{Expr, ExprOperand};
use super::ops::ops;
use super::{Arithmetic, Bitwise, Comparison, FloatFunction, OpCode, Rounding, SignFunction};
use crate::dtype::DType;
use std::f64::consts;

macro_rules! methods {
    (
        unary { $($(#[$doc1:meta])* $variant1:ident($class1:ident) {
            $($(#[$op_doc1:meta])* $op1:ident $name1:ident;)*
        })* }
        binary { $($(#[$doc2:meta])* $variant2:ident($class2:ident) {
            $($(#[$op_doc2:meta])* $op2:ident $name2:ident;)*
        })* }
    ) => {
        impl<'b> Expr<'b> {
            $($(
                $(#[$op_doc1])*
                pub fn $name1(self) -> Expr<'b> {
                    self.function(OpCode::$variant1($class1::$op1))
                }
            )*)*
            $($(
                $(#[$op_doc2])*
                pub fn $name2(self, rhs: impl ExprOperand<'b>) -> Expr<'b> {
                    let rhs = rhs.expr(self);
                    self.function_of_two(OpCode::$variant2($class2::$op2), rhs)
                }
            )*)*
        }
    };
}
ops!(methods);

impl<'b> Expr<'b> {
    pub(super) fn to_float(self) -> Expr<'b> {
        self.cast(self.dtype().to_float())
    }

    /// `op` of a value of any type: converts types that a float function does not accept, and
    /// returns values that the op leaves unchanged.
    fn function(self, op: OpCode) -> Expr<'b> {
        match op {
            OpCode::Float(_) => self.to_float().unary(op),
            OpCode::Round(_) if !self.dtype().is_float() => self,
            OpCode::Sign(SignFunction::Abs | SignFunction::Sign) if self.dtype() == DType::Bool => {
                self
            }
            _ => self.unary(op),
        }
    }

    /// `op` of two values of any type: divides as floats, and runs a logical operation on two
    /// bools, as PyTorch does (`true + true` is true).
    fn function_of_two(self, op: OpCode, rhs: Expr<'b>) -> Expr<'b> {
        let bools = self.dtype() == DType::Bool && rhs.dtype() == DType::Bool;
        match op {
            OpCode::Arithmetic(Arithmetic::Div) => {
                // The quotient has the promoted dtype: f16 / i32 is f16.
                let dtype = self.dtype().promote(rhs.dtype()).to_float();
                self.cast(dtype).binary(op, rhs.cast(dtype))
            }
            OpCode::Arithmetic(Arithmetic::Add | Arithmetic::Max) if bools => {
                self.binary(Bitwise::Or, rhs)
            }
            OpCode::Arithmetic(Arithmetic::Mul | Arithmetic::Min) if bools => {
                self.binary(Bitwise::And, rhs)
            }
            _ => self.binary(op, rhs),
        }
    }

    /// Logical or bitwise complement.
    pub fn not(self) -> Expr<'b> {
        self.unary(OpCode::Not)
    }

    /// True where the value is zero: the complement of [`Expr::truth`].
    pub fn not_truth(self) -> Expr<'b> {
        self.truth().not()
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

    /// `min(max(x, low), high)`; NaN stays NaN.
    pub fn clamp(self, low: impl ExprOperand<'b>, high: impl ExprOperand<'b>) -> Expr<'b> {
        self.maximum(low).minimum(high)
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
        // From the far end, a step much larger than the result would lose it to rounding: 1e8 + (1
        // - 1e8) is 0 in f32.
        let near = weight.abs().lt(0.5);
        near.where_cond(self, end) + near.where_cond(weight, weight - 1.0) * (end - self)
    }

    /// `self^p` with the derivative 0 where self is 0, for any p: the power in norms.
    pub fn norm_power(self, p: f64) -> Expr<'b> {
        let zero = self.eq(0);
        // 1 replaces a base of 0: an infinite derivative times the gradient 0 of the other branch
        // is NaN.
        let base = zero.where_cond(self.like(1), self);
        let power = if p == 0.5 { base.sqrt() } else { base.pow(p) };
        zero.where_cond(power.like(0_f64.powf(p)), power)
    }

    /// Hyperbolic sine, `h (h + 2) / 2 (1 + 1 / (h + 1)^2)` with `h = expm1(|x| / 2)`: no
    /// cancellation near 0, finite wherever the result is.
    ///
    /// This and the next three functions are not differentiated step by step: `composite` in
    /// teeny-autograd recognises them.
    pub fn sinh(self) -> Expr<'b> {
        let x = self.to_float();
        let h = (x.abs() * 0.5).expm1();
        let e = h + 1.0;
        let magnitude = h * ((h + 2.0) * 0.5) * ((e * e).recip() + 1.0);
        x.lt(0.0).where_cond(-magnitude, magnitude)
    }

    /// Hyperbolic cosine, `e (e / 2 + 1 / (2 e^3))` with `e = exp(|x| / 2)`: finite wherever the
    /// result is, for any order of the products.
    pub fn cosh(self) -> Expr<'b> {
        let e = (self.to_float().abs() * 0.5).exp();
        let r = e.recip();
        e * (e * 0.5 + r * r * (r * 0.5))
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
        self.maximum(zero)
    }

    /// `min(max(x, 0), 6)`.
    pub fn relu6(self) -> Expr<'b> {
        self.relu().minimum(self.like(6))
    }

    /// x where positive, `slope * x` elsewhere.
    pub fn leaky_relu(self, slope: impl ExprOperand<'b>) -> Expr<'b> {
        let x = self.to_float();
        let slope = slope.expr(x);
        let positive = x.gt(0.0);
        // The gradient of a slope that is a tensor is 0 where x is positive: 0 times x would be NaN
        // for an infinite x.
        let low = if slope.is_number() { x } else { positive.where_cond(x.like(0.0), x) };
        positive.where_cond(x, low * slope)
    }

    /// x where positive, `alpha * (exp(x) - 1)` elsewhere.
    pub fn elu(self, alpha: impl ExprOperand<'b>) -> Expr<'b> {
        let x = self.to_float();
        // NOTE: not `minimum`, which passes no gradient at 0.
        let low = x.gt(0.0).where_cond(x.like(0.0), x).expm1() * alpha.expr(x);
        x.gt(0.0).where_cond(x, low)
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

    /// The derivative of [`Expr::gelu`], `Φ(x) + x φ(x)` with the density φ of the normal
    /// distribution.
    pub fn gelu_derivative(self) -> Expr<'b> {
        let x = self.to_float();
        let share = ((x * consts::FRAC_1_SQRT_2).erf() + 1.0) * 0.5;
        let density = consts::FRAC_2_SQRT_PI * consts::FRAC_1_SQRT_2 * 0.5;
        share + x * (x * x * -0.5).exp() * density
    }

    /// The tanh form of [`Expr::gelu`]: `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
    pub fn gelu_tanh(self) -> Expr<'b> {
        let x = self.to_float();
        let inner = (x + x * x * x * 0.044715) * (consts::FRAC_2_SQRT_PI * consts::FRAC_1_SQRT_2);
        x * 0.5 * (inner.tanh() + 1.0)
    }

    /// The derivative of [`Expr::gelu_tanh`], `(1 + t)/2 + x/2 (1 - t²) u'` with `t = tanh(u)` and
    /// `u = sqrt(2/pi) (x + 0.044715 x^3)`.
    pub fn gelu_tanh_derivative(self) -> Expr<'b> {
        let x = self.to_float();
        let scale = consts::FRAC_2_SQRT_PI * consts::FRAC_1_SQRT_2;
        let t = ((x + x * x * x * 0.044715) * scale).tanh();
        let slope = x * x * (3.0 * 0.044715 * scale) + scale;
        (t + 1.0) * 0.5 + x * 0.5 * (1.0 - t * t) * slope
    }

    /// `x sigmoid(x)`, also called swish.
    pub fn silu(self) -> Expr<'b> {
        let x = self.to_float();
        x / ((-x).exp() + 1.0)
    }

    /// The derivative of [`Expr::silu`], `s (x (1 - s) + 1)` with `s = sigmoid(x)`.
    pub fn silu_derivative(self) -> Expr<'b> {
        let x = self.to_float();
        let s = x.sigmoid();
        s * (x * (1.0 - s) + 1.0)
    }

    /// `log(1 + exp(x))`, as `max(x, 0) + log1p(exp(-|x|))`, which never overflows.
    pub fn softplus(self) -> Expr<'b> {
        let x = self.to_float();
        // NOTE: both terms have a kink at 0. One condition for both makes the derivatives there add
        // up to 1/2; relu and abs would give 0.
        let positive = x.gt(0.0);
        positive.where_cond(x, x.like(0.0)) + positive.where_cond(-x, x).exp().log1p()
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
        (self.to_float() + 3.0).relu6() * (1.0 / 6.0)
    }

    /// `x hardsigmoid(x)` (Howard et al. 2019, arXiv:1905.02244).
    pub fn hardswish(self) -> Expr<'b> {
        // x last: 6 x overflows where x does not.
        let x = self.to_float();
        x * ((x + 3.0).relu6() * (1.0 / 6.0))
    }

    /// `min(max(x, -1), 1)`.
    pub fn hardtanh(self) -> Expr<'b> {
        self.clamp(self.like(-1), self.like(1))
    }
}

macro_rules! operators {
    ($($trait:ident $name:ident)*) => {$(
        impl<'b, T: ExprOperand<'b>> std::ops::$trait<T> for Expr<'b> {
            type Output = Expr<'b>;
            fn $name(self, rhs: T) -> Expr<'b> {
                Expr::$name(self, rhs)
            }
        }
    )*};
}
operators!(Add add Sub sub Mul mul Div div Rem rem);

impl<'b> std::ops::Neg for Expr<'b> {
    type Output = Expr<'b>;
    fn neg(self) -> Expr<'b> {
        Expr::neg(self)
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
