//! The functions, their definitions in f64, and the bounds that the engine guarantees. The only
//! place where the bounds are written.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};
use teeny_core::Expr;
use teeny_core::kernel::eval::{erf, floor_div, remainder};

/// One function of one number.
pub struct Unary {
    pub name: &'static str,
    pub kernel: for<'b> fn(Expr<'b>) -> Expr<'b>,
    pub truth: fn(f64) -> f64,
    /// The largest error in units in the last place, in f32 and in f64.
    pub bounds: [f64; 2],
    /// Errors of results smaller than this are counted in units of this: functions that subtract on
    /// their way.
    pub floor: f64,
    /// The largest argument that is tried.
    pub reach: f64,
}

const fn row(
    name: &'static str,
    bounds: [f64; 2],
    kernel: for<'b> fn(Expr<'b>) -> Expr<'b>,
    truth: fn(f64) -> f64,
) -> Unary {
    Unary { name, kernel, truth, bounds, floor: 0.0, reach: f64::INFINITY }
}

impl Unary {
    const fn floor(self, floor: f64) -> Unary {
        Unary { floor, ..self }
    }

    const fn reach(self, reach: f64) -> Unary {
        Unary { reach, ..self }
    }
}

fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

pub const UNARY: [Unary; 39] = [
    row("floor", [0.0, 0.0], |x| x.floor(), f64::floor),
    row("ceil", [0.0, 0.0], |x| x.ceil(), f64::ceil),
    row("round", [0.0, 0.0], |x| x.round(), f64::round_ties_even),
    row("trunc", [0.0, 0.0], |x| x.trunc(), f64::trunc),
    row("recip", [0.5, 0.5], |x| x.recip(), f64::recip),
    row("sqrt", [0.5, 0.5], |x| x.sqrt(), f64::sqrt),
    row("rsqrt", [1.5, 1.5], |x| x.rsqrt(), |x| 1.0 / x.sqrt()),
    row("cbrt", [1.5, 1.5], |x| x.cbrt(), f64::cbrt),
    row("exp", [2.0, 2.0], |x| x.exp(), f64::exp),
    row("exp2", [2.0, 2.0], |x| x.exp2(), f64::exp2),
    row("expm1", [2.0, 2.0], |x| x.expm1(), f64::exp_m1),
    row("log", [2.0, 2.0], |x| x.log(), f64::ln),
    row("log2", [2.0, 2.0], |x| x.log2(), f64::log2),
    row("log10", [1.0, 2.0], |x| x.log10(), f64::log10),
    row("log1p", [2.0, 2.0], |x| x.log1p(), f64::ln_1p),
    row("sin", [2.0, 2.0], |x| x.sin(), f64::sin),
    row("cos", [2.0, 2.0], |x| x.cos(), f64::cos),
    row("tan", [4.0, 4.0], |x| x.tan(), f64::tan),
    row("asin", [4.0, 4.0], |x| x.asin(), f64::asin),
    row("acos", [4.0, 4.0], |x| x.acos(), f64::acos),
    row("atan", [2.0, 2.0], |x| x.atan(), f64::atan),
    row("sinh", [4.0, 4.0], |x| x.sinh(), f64::sinh).reach(88.0),
    row("cosh", [4.0, 5.0], |x| x.cosh(), f64::cosh).reach(88.0),
    row("tanh", [2.0, 3.0], |x| x.tanh(), f64::tanh),
    row("erf", [2.0, 4.0], |x| x.erf(), erf),
    row("sigmoid", [3.0, 3.0], |x| x.sigmoid(), |x| 1.0 / (1.0 + (-x).exp())),
    row(
        "silu",
        [3.0, 3.0],
        |x| x.silu(),
        |x| if x == f64::NEG_INFINITY { f64::NAN } else { x / (1.0 + (-x).exp()) },
    )
    .floor(1e-29),
    row("softplus", [3.0, 3.0], |x| x.softplus(), softplus),
    row("log_sigmoid", [3.0, 3.0], |x| x.log_sigmoid(), |x| -softplus(-x)),
    row("mish", [4.0, 6.0], |x| x.mish(), |x| x * softplus(x).tanh()).floor(1e-29),
    row("elu", [2.0, 2.0], |x| x.elu(1.0), |x| if x > 0.0 { x } else { x.exp_m1() }),
    row(
        "selu",
        [4.0, 4.0],
        |x| x.selu(),
        |x| 1.0507009873554805 * if x > 0.0 { x } else { 1.6732632423543772 * x.exp_m1() },
    ),
    row("gelu", [4.0, 4.0], |x| x.gelu(), |x| x * 0.5 * (1.0 + erf(x * FRAC_1_SQRT_2)))
        .floor(1.0)
        .reach(1e30),
    row(
        "gelu_tanh",
        [4.0, 4.0],
        |x| x.gelu_tanh(),
        |x| 0.5 * x * (1.0 + (FRAC_2_SQRT_PI * FRAC_1_SQRT_2 * (x + 0.044715 * x * x * x)).tanh()),
    )
    .floor(1.0)
    .reach(1e10),
    row("softsign", [2.0, 2.0], |x| x.softsign(), |x| x / (1.0 + x.abs())).reach(1e37),
    row("hardsigmoid", [2.0, 2.0], |x| x.hardsigmoid(), |x| (x + 3.0).clamp(0.0, 6.0) / 6.0)
        .floor(1.0),
    row("hardswish", [3.0, 3.0], |x| x.hardswish(), |x| x * ((x + 3.0).clamp(0.0, 6.0) / 6.0))
        .floor(1.0)
        .reach(1e37),
    row("leaky_relu", [1.0, 1.0], |x| x.leaky_relu(0.01), |x| if x > 0.0 { x } else { x * 0.01 }),
    row("square", [0.5, 0.5], |x| x.square(), |x| x * x),
];

/// One function of two numbers.
pub struct Binary {
    pub name: &'static str,
    pub kernel: for<'b> fn(Expr<'b>, Expr<'b>) -> Expr<'b>,
    pub truth: fn(f64, f64) -> f64,
    /// The largest error in units in the last place, in f32 and in f64.
    pub bounds: [f64; 2],
}

pub const BINARY: [Binary; 4] = [
    Binary { name: "div", kernel: |a, b| a.div(b), truth: |a, b| a / b, bounds: [0.5, 0.5] },
    Binary { name: "pow", kernel: |a, b| a.pow(b), truth: f64::powf, bounds: [2.0, 2.0] },
    Binary { name: "rem", kernel: |a, b| a.rem(b), truth: remainder, bounds: [0.5, 0.5] },
    Binary {
        name: "floor_div",
        kernel: |a, b| a.floor_div(b),
        truth: floor_div,
        bounds: [0.5, 0.0],
    },
];
