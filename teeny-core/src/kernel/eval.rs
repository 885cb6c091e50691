//! The semantics of every operation of a scalar program: the evaluator used by constant folding and
//! by the `Reference` device.
//!
//! Floats are computed in f64 and rounded to the node's compute type; integers in 128 bits and
//! wrapped. Devices differ from this only in the last places of transcendental functions.

use super::{
    Arithmetic, Bitwise, Comparison, FloatFunction, Kernel, OpCode, OpNode, Rounding, SignFunction,
};
use crate::dtype::DType;
use crate::scalar::Scalar;

/// The value of `node` for the given source values. `src_dtype` is the type of the (last) source:
/// predicates and casts need it.
///
/// `Input`, `Param` and the operations of rows return `args[0]`.
pub fn eval(node: &OpNode, src_dtype: DType, args: [Scalar; 3]) -> Scalar {
    let value = match node.op {
        OpCode::Input(_) | OpCode::Param(_) => args[0],
        // Per-row values, which the caller passes.
        OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => args[0],
        OpCode::Const(value) => value,
        OpCode::Cast => return args[0].cast(src_dtype).cast(node.dtype),
        OpCode::Where => args[if args[0].to_bool() { 1 } else { 2 }],
        OpCode::Float(f) => Scalar::Float(float_function(f, args[0].to_f64())),
        OpCode::Round(rounding) => Scalar::Float(round(rounding, args[0].to_f64())),
        OpCode::Sign(f) if src_dtype.is_float() => Scalar::Float(sign(f, args[0].to_f64())),
        OpCode::Sign(f) => wrapped(sign_of_integer(f, int(args[0])), src_dtype),
        OpCode::Not if src_dtype == DType::Bool => Scalar::Bool(!args[0].to_bool()),
        OpCode::Not => wrapped(!int(args[0]), src_dtype),
        OpCode::IsNan => Scalar::Bool(args[0].to_f64().is_nan()),
        OpCode::Arithmetic(op) if src_dtype.is_float() => {
            Scalar::Float(arithmetic(op, args[0].to_f64(), args[1].to_f64()))
        }
        OpCode::Arithmetic(op) => {
            wrapped(arithmetic_of_integers(op, int(args[0]), int(args[1])), src_dtype)
        }
        OpCode::Compare(op) if src_dtype.is_float() => {
            Scalar::Bool(compare(op, args[0].to_f64(), args[1].to_f64()))
        }
        OpCode::Compare(op) => Scalar::Bool(compare(op, int(args[0]), int(args[1]))),
        OpCode::Bitwise(op) => wrapped(
            bitwise(op, 8 * src_dtype.size() as i128, int(args[0]), int(args[1])),
            src_dtype,
        ),
    };
    value.cast(node.dtype.compute())
}

impl Kernel {
    /// The outputs for one index: the program run on single values. Inputs and outputs are rounded
    /// to their types.
    pub fn eval(&self, inputs: &[Scalar], params: &[Scalar]) -> Vec<Scalar> {
        let mut values: Vec<Scalar> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            let mut args = [Scalar::Bool(false); 3];
            let mut src_dtype = node.dtype;
            match node.op {
                OpCode::Input(i) => args[0] = inputs[i as usize].cast(node.dtype),
                OpCode::Param(i) => args[0] = params[i as usize],
                _ => {
                    for (arg, &source) in args.iter_mut().zip(node.sources()) {
                        *arg = values[source as usize];
                        src_dtype = self.nodes[source as usize].dtype;
                    }
                }
            }
            values.push(eval(node, src_dtype, args));
        }
        self.outputs
            .iter()
            .enumerate()
            .map(|(i, &o)| values[o as usize].cast(self.output_dtype(i)))
            .collect()
    }
}

fn int(s: Scalar) -> i128 {
    match s {
        Scalar::Bool(v) => v as i128,
        Scalar::Int(v) => v as i128,
        Scalar::UInt(v) => v as i128,
        Scalar::Float(v) => v as i128,
    }
}

/// The low bits of `value` as an integer of type `dtype`; for a bool, the lowest bit.
fn wrapped(value: i128, dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(value & 1 == 1),
        _ if dtype.is_unsigned_int() => Scalar::UInt(value as u64).cast(dtype),
        _ => Scalar::Int(value as i64).cast(dtype),
    }
}

/// A function of f64 by the system's library; by the crate `libm` where that is MinGW's, whose
/// powers and sines are off by up to 25 units in the last place.
macro_rules! of_system {
    ($std:ident, $libm:ident, $x:expr $(, $y:expr)?) => {{
        #[cfg(not(all(windows, target_env = "gnu")))]
        let value = f64::$std($x $(, $y)?);
        #[cfg(all(windows, target_env = "gnu"))]
        let value = libm::$libm($x $(, $y)?);
        value
    }};
}

/// The function `f` of f64, at `x`.
pub fn float_function(f: FloatFunction, x: f64) -> f64 {
    use FloatFunction::*;
    match f {
        Recip => 1.0 / x,
        Sqrt => x.sqrt(),
        Rsqrt => 1.0 / x.sqrt(),
        Cbrt => of_system!(cbrt, cbrt, x),
        Exp => of_system!(exp, exp, x),
        Exp2 => of_system!(exp2, exp2, x),
        Expm1 => of_system!(exp_m1, expm1, x),
        Log => of_system!(ln, log, x),
        Log2 => of_system!(log2, log2, x),
        Log10 => of_system!(log10, log10, x),
        Log1p => of_system!(ln_1p, log1p, x),
        Sin => of_system!(sin, sin, x),
        Cos => of_system!(cos, cos, x),
        Tan => of_system!(tan, tan, x),
        Atan => of_system!(atan, atan, x),
        Tanh => of_system!(tanh, tanh, x),
        Erf => erf(x),
    }
}

fn round(rounding: Rounding, x: f64) -> f64 {
    match rounding {
        Rounding::Floor => x.floor(),
        Rounding::Ceil => x.ceil(),
        Rounding::Round => x.round_ties_even(),
        Rounding::Trunc => x.trunc(),
    }
}

fn sign(f: SignFunction, x: f64) -> f64 {
    match f {
        SignFunction::Neg => -x,
        SignFunction::Abs => x.abs(),
        SignFunction::Sign if x == 0.0 || x.is_nan() => x,
        SignFunction::Sign => x.signum(),
    }
}

fn sign_of_integer(f: SignFunction, x: i128) -> i128 {
    match f {
        SignFunction::Neg => -x,
        SignFunction::Abs => x.abs(),
        SignFunction::Sign => x.signum(),
    }
}

fn arithmetic(op: Arithmetic, a: f64, b: f64) -> f64 {
    use Arithmetic::*;
    match op {
        Add => a + b,
        Sub => a - b,
        Mul => a * b,
        Div => a / b,
        Pow => pow(a, b),
        // Of equal operands the second, so that +0 and -0 have the same result on every device.
        Max if a > b || a.is_nan() => a,
        Min if a < b || a.is_nan() => a,
        Max | Min => b,
        Rem => remainder(a, b),
        FloorDiv => floor_div(a, b),
    }
}

/// `a` to the power `b`. The crate `libm` is off by up to 600 units in the last place where `a` is
/// near 1 and `|b|` above 2^31, else by one.
pub fn pow(a: f64, b: f64) -> f64 {
    of_system!(powf, pow, a, b)
}

fn arithmetic_of_integers(op: Arithmetic, a: i128, b: i128) -> i128 {
    use Arithmetic::*;
    match op {
        Add => a + b,
        Sub => a - b,
        Mul => a.wrapping_mul(b),
        Pow => int_pow(a, b),
        Max => a.max(b),
        Min => a.min(b),
        Rem | FloorDiv if b == 0 => 0,
        Rem => a - floor_quotient(a, b) * b,
        FloorDiv => floor_quotient(a, b),
        Div => unreachable!("the kernel builder let div of integers through"),
    }
}

fn compare<T: PartialOrd>(op: Comparison, a: T, b: T) -> bool {
    match op {
        Comparison::Lt => a < b,
        Comparison::Le => a <= b,
        Comparison::Eq => a == b,
        Comparison::Ne => a != b,
    }
}

fn bitwise(op: Bitwise, bits: i128, a: i128, b: i128) -> i128 {
    let in_width = (0..bits).contains(&b);
    match op {
        Bitwise::And => a & b,
        Bitwise::Or => a | b,
        Bitwise::Xor => a ^ b,
        Bitwise::Shl if in_width => a << b,
        Bitwise::Shl => 0,
        Bitwise::Shr if in_width => a >> b,
        Bitwise::Shr => -i128::from(a < 0),
    }
}

/// The remainder with the sign of the divisor; exact, as C's `fmod` is.
pub fn remainder(a: f64, b: f64) -> f64 {
    let r = a % b;
    if r != 0.0 && (r < 0.0) != (b < 0.0) {
        r + b
    } else if r == 0.0 {
        0.0_f64.copysign(b)
    } else {
        r
    }
}

/// The number nearest to the floor of the exact `a / b`, so that
/// `a == floor_div(a, b) * b + remainder(a, b)` as nearly as possible.
pub fn floor_div(a: f64, b: f64) -> f64 {
    if b == 0.0 {
        return a / b;
    }
    let r = a % b;
    let multiple = a - r;
    let mut quotient = (multiple / b).round();
    let mut missing = 0.0;
    // From here on the loss of the two roundings can be a whole number.
    if (2251799813685248.0..1e40).contains(&quotient.abs()) {
        let lost = (a - multiple) - r;
        missing = ((-quotient).mul_add(b, multiple) + lost) / b;
    }
    if r != 0.0 && (r < 0.0) != (b < 0.0) {
        missing -= 1.0;
    }
    quotient += missing.round();
    if quotient == 0.0 {
        return 0.0_f64.copysign(a / b);
    }
    quotient
}

fn floor_quotient(a: i128, b: i128) -> i128 {
    if b < 0 { (-a).div_euclid(-b) } else { a.div_euclid(b) }
}

/// `a^b` modulo 2^64 (enough for every type); a negative exponent gives the truncated quotient: 0
/// unless `|a| == 1`.
fn int_pow(a: i128, b: i128) -> i128 {
    if b < 0 {
        return match a {
            1 => 1,
            -1 if b % 2 == 0 => 1,
            -1 => -1,
            _ => 0,
        };
    }
    let (mut base, mut exponent, mut power) = (a as u64, b as u64, 1u64);
    while exponent > 0 {
        if exponent & 1 == 1 {
            power = power.wrapping_mul(base);
        }
        base = base.wrapping_mul(base);
        exponent >>= 1;
    }
    power as i64 as i128
}

/// The error function in f64, to 4 units in the last place.
///
/// Below 2 the series `erf x = 2/sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (1*3*…*(2n+1))`, whose terms
/// are all positive; above, one minus the continued fraction of erfc (Abramowitz & Stegun 7.1.6 and
/// 7.1.14).
pub fn erf(x: f64) -> f64 {
    let a = x.abs();
    if a.is_nan() {
        return x;
    }
    if a > 6.0 {
        return 1.0_f64.copysign(x); // erfc(6) = 2e-17 is below half an ulp of 1
    }
    // e^(-a^2) by two factors, the first of an exact square: rounding a^2 would cost 5 places.
    let high = f64::from_bits(a.to_bits() & !0xffff_ffff);
    let scale =
        std::f64::consts::FRAC_2_SQRT_PI * (-high * high).exp() * ((high - a) * (high + a)).exp();
    let value = if a < 2.0 {
        let (mut term, mut sum, mut n) = (a, a, 1.0);
        while term > sum * 1e-17 {
            term *= 2.0 * a * a / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        scale * sum
    } else {
        let fraction = (1..=60).rev().fold(a, |tail, n| a + n as f64 / 2.0 / tail);
        1.0 - scale / 2.0 / fraction
    };
    value.copysign(x)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_error_function_agrees_with_forty_digits() {
        // mpmath 1.3, rounded to f64.
        let truth = [
            (1e-5, 1.1283791670579e-05),
            (0.1, 0.1124629160182849),
            (0.5, 0.5204998778130465),
            (1.0, 0.8427007929497149),
            (1.5, 0.9661051464753108),
            (1.9990234375, 0.9953020429519791),
            (2.0, 0.9953222650189527),
            (2.5, 0.999593047982555),
            (2.90625, 0.9999604440533668),
            (3.0, 0.9999779095030014),
            (4.0, 0.9999999845827421),
            (5.5, 0.9999999999999927),
        ];
        for (x, y) in truth {
            let error = (super::erf(x) - y).abs() / (y * f64::EPSILON);
            assert!(error <= 2.0, "erf({x}) is {error} epsilon off");
            assert_eq!(super::erf(-x), -super::erf(x));
        }
    }

    /// Against whole numbers of any size: b of up to 60 bits, a of up to 120, quotients of any.
    #[test]
    fn floored_quotients_are_the_nearest_to_the_exact_ones() {
        let mut state = 1u64;
        let mut whole = |bits: u32| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let size = (((state >> 11) as i128) << 70 >> (123 - bits)).max(1);
            if state & 1 == 0 { -size } else { size }
        };
        for i in 0..300_000 {
            let b = whole(1 + i % 60) as f64;
            let a = whole(1 + (i / 60) % 120) as f64;
            let exact = super::floor_quotient(a as i128, b as i128) as f64;
            assert_eq!(super::floor_div(a, b), exact, "{a:e} / {b:e}");
        }
    }
}
