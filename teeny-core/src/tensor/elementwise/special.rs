//! The methods of [`crate::kernel`]'s special functions, and functions with options.

use super::math::{Operand, binary, binary_methods, unary_methods};
use super::run_one;
use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::table::{BinaryTable, UnaryTable};
use crate::tensor::{Tensor, map};

unary_methods! {
    /// `log(x / (1 - x))`, the inverse of `sigmoid`; NaN outside `0..=1`. With PyTorch's `eps`:
    /// `x.clamp(eps, 1.0 - eps)?.logit()?`.
    logit;
    /// `sin(πx) / (πx)`, 1 at 0. Equivalent: `torch.sinc`.
    sinc;
    /// Inverse hyperbolic sine.
    #[doc(alias = "arcsinh")]
    asinh;
    /// Inverse hyperbolic cosine; NaN below 1.
    #[doc(alias = "arccosh")]
    acosh;
    /// Inverse hyperbolic tangent; NaN outside `-1..=1`.
    #[doc(alias = "arctanh")]
    atanh;
    /// `1 - erf(x)` without cancellation: exact to a few last places for large x too.
    erfc;
    /// The inverse of `erf`; infinite at -1 and 1, NaN beyond. Equivalent: `torch.erfinv`.
    erfinv;
    /// `log|Γ(x)|`, the logarithm of the gamma function. Equivalent: `torch.lgamma`.
    #[doc(alias = "gammaln")]
    lgamma;
    /// The derivative of [`Tensor::lgamma`]; NaN at negative integers. Equivalent: `torch.digamma`.
    digamma;
    /// True where the sign is negative, of a zero too; of NaN false. Equivalent: `torch.signbit`.
    signbit;
    /// `x - trunc(x)`, with the sign of x.
    frac;
    /// `x - tanh(x)` without cancellation near 0. Equivalent: `torch.nn.functional.tanhshrink`.
    tanhshrink;
}

binary_methods! {
    special_tables;
    /// `log(exp(self) + exp(rhs))` without overflow. Equivalent: `torch.logaddexp`.
    logaddexp;
    /// `log2(2^self + 2^rhs)` without overflow. Equivalent: `torch.logaddexp2`.
    logaddexp2;
    /// `self * log(rhs)`; 0 where self is 0 unless `rhs` is NaN. Equivalent: `torch.xlogy`.
    xlogy;
    /// The angle in radians of the point with the second coordinate self and the first `rhs`, from
    /// -π to π. Equivalent: `torch.atan2`.
    #[doc(alias = "arctan2")]
    atan2;
    /// `sqrt(self² + rhs²)`: finite wherever the result is. Equivalent: `torch.hypot`.
    hypot;
    /// The exact remainder of the division, with the sign of self; `rem` has the sign of `rhs`.
    /// Equivalent: `torch.fmod`.
    fmod;
    /// The quotient without its fraction. An integer divided by 0 is 0; `floor_div` rounds down.
    /// Equivalent: `torch.div(x, y, rounding_mode="trunc")`.
    div_trunc;
    /// `|self|` with the sign of `rhs`. Equivalent: `torch.copysign`.
    copysign;
    /// The greatest common divisor of integers, not negative.
    gcd;
    /// The least common multiple of integers, not negative; 0 if either is 0.
    lcm;
    /// 0 where self is negative, 1 where positive, `rhs` at 0. Equivalent: `torch.heaviside`.
    heaviside;
    /// x where positive, `rhs * (exp(x / rhs) - 1)` elsewhere (PyTorch's `alpha` is 1). Equivalent:
    /// `torch.nn.functional.celu`.
    celu;
    /// 0 where `|x| <= rhs`, x elsewhere (PyTorch's `lambd` is 0.5). Equivalent:
    /// `torch.nn.functional.hardshrink`.
    hardshrink;
    /// 0 where `|x| <= rhs`, nearer to 0 by `rhs` elsewhere (PyTorch's `lambd` is 0.5). Equivalent:
    /// `torch.nn.functional.softshrink`.
    softshrink;
}

impl Tensor {
    /// NaN replaced by `nan`, infinities by `posinf` and `neginf`, or by the largest and the
    /// smallest number of the type. Integers stay as they are. PyTorch's defaults are 0 and none.
    ///
    /// Equivalent: `torch.nan_to_num`.
    #[track_caller]
    pub fn nan_to_num(&self, nan: f64, posinf: Option<f64>, neginf: Option<f64>) -> Result<Tensor> {
        let _op = enter("nan_to_num").on([("x", Some(self))]);
        let largest = match self.dtype() {
            DType::F16 => f64::from(half::f16::MAX),
            DType::BF16 => f64::from(half::bf16::MAX),
            DType::F32 => f64::from(f32::MAX),
            DType::F64 => f64::MAX,
            _ => return Ok(self.clone()),
        };
        map([self], |[x]| {
            let high = x.like(posinf.unwrap_or(largest));
            let y = x.eq(f64::INFINITY).where_cond(high, x);
            let low = x.like(neginf.unwrap_or(-largest));
            let y = x.eq(f64::NEG_INFINITY).where_cond(low, y);
            x.is_nan().where_cond(x.like(nan), y)
        })
    }

    /// x where above `threshold`, `value` elsewhere; NaN stays NaN. Equivalent:
    /// `torch.nn.functional.threshold`.
    #[track_caller]
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        let _op = enter("threshold").on([("x", Some(self))]);
        map([self], |[x]| x.le(threshold).where_cond(x.like(value), x))
    }

    /// The first half along `axis` times the sigmoid of the second: (.., 2n, ..) → (.., n, ..).
    /// Source: Dauphin et al. 2017, arXiv:1612.08083. Equivalent: `torch.nn.functional.glu`.
    ///
    /// # Errors
    /// If the axis does not exist or its size is odd.
    #[track_caller]
    pub fn glu(&self, axis: isize) -> Result<Tensor> {
        let _op = enter("glu").on([("x", Some(self))]);
        let n = self.size(axis)?;
        if n % 2 == 1 {
            return Err(Error::shape(format!(
                "axis {axis} of {} has the odd size {n}: it cannot be halved",
                self.shape()
            ))
            .help("a layer before a gate has twice as many outputs"));
        }
        map([&self.slice(axis, ..n / 2)?, &self.slice(axis, n / 2..)?], |[x, gate]| {
            x * gate.sigmoid()
        })
    }
}
