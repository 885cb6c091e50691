//! Elementwise work: single operations, functions, casts, operators on operands given away, and
//! random programs.
//!
//! A random program is made of operations that IEEE 754 or the vocabulary fixes, so that any number
//! of them in a row is exact, the signs of zeros included; what is not exact may only be an output.

use super::compare::Tolerance;
use super::{Case, FLOATS, Family};
use crate::cases::Domain;
use crate::cases::elementwise::{LARGE, row_of};
use crate::dice::Dice;
use crate::operand::{Operand, Values};
use std::sync::Arc;
use teeny_core::kernel::{MAX_INPUTS, MAX_OUTPUTS};
use teeny_core::{
    Arithmetic, Bitwise, Builder, Comparison, DType, Error, Expr, Kernel, OpCode, Result, Rounding,
    Scalar, Shape, SignFunction, Tensor,
};

pub const FAMILIES: &[Family] = &[
    Family { name: "unary", weight: 8, generate: unary },
    Family { name: "binary", weight: 12, generate: binary },
    Family { name: "where", weight: 2, generate: select },
    Family { name: "cast", weight: 5, generate: cast },
    Family { name: "function", weight: 4, generate: function },
    Family { name: "function of two", weight: 3, generate: function_of_two },
    Family { name: "kernel", weight: 12, generate: program },
    Family { name: "over", weight: 5, generate: over },
];

/// How exact an operation is: functions of floats as their row of the suite says.
fn tolerance(op: OpCode) -> Tolerance {
    match op {
        OpCode::Float(f) => match row_of(f).1.in_ulps() {
            0.0 => Tolerance::Bits,
            ulps => Tolerance::Ulps(ulps, 0.0),
        },
        OpCode::Arithmetic(Arithmetic::Pow) => Tolerance::Ulps(4.0, 0.0),
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => Tolerance::Bits,
        OpCode::Cast | OpCode::Not | OpCode::IsNan | OpCode::Where => Tolerance::Bits,
        OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => Tolerance::Bits,
        OpCode::Round(_) | OpCode::Sign(_) => Tolerance::Bits,
        OpCode::Arithmetic(_) | OpCode::Compare(_) | OpCode::Bitwise(_) => Tolerance::Bits,
    }
}

/// True for functions of angles, whose argument is bounded.
fn takes_angle(op: OpCode) -> bool {
    matches!(op, OpCode::Float(f) if matches!(row_of(f).0, Domain::Angle))
}

/// A type that `op` accepts.
fn dtype_for(dice: &mut Dice, op: OpCode) -> DType {
    let accepted: Vec<DType> = DType::ALL.into_iter().filter(|&t| op.accepts(t)).collect();
    if op.accepts(DType::F32) && dice.one_in(3) { DType::F32 } else { dice.pick(&accepted) }
}

/// A case that runs `kernel` on operands that broadcast to `shape`.
fn run(
    dice: &mut Dice,
    op: &'static str,
    kernel: Kernel,
    params: Vec<Scalar>,
    shape: Shape,
    values: &[Values],
) -> Case {
    let kernel = Arc::new(kernel);
    let operands: Vec<Operand> = kernel
        .inputs()
        .iter()
        .enumerate()
        .map(|(i, &dtype)| {
            let shape = if i > 0 { broadcast_from(dice, shape) } else { shape };
            Operand::new(dice, shape, dtype, values[i % values.len()])
        })
        .collect();
    let detail = format!("{kernel:?} with {params:?}").replace('\n', " | ");
    Case::new(op, operands, detail, move |x| kernel.run(&x.iter().collect::<Vec<_>>(), &params))
}

/// `shape`, or one that broadcasts to it.
fn broadcast_from(dice: &mut Dice, mut shape: Shape) -> Shape {
    if dice.below(4) > 0 {
        return shape;
    }
    for axis in 0..shape.ndim() {
        if dice.one_in(3) {
            shape = shape.with_size(axis, 1);
        }
    }
    let first = if dice.one_in(3) { dice.below(shape.ndim() + 1) } else { 0 };
    Shape::new(&shape[first..]).expect("part of a legal shape")
}

fn shape(dice: &mut Dice) -> Shape {
    let budget = dice.budget();
    dice.shape(budget)
}

fn unary(dice: &mut Dice) -> Result<Case> {
    let op = dice.pick(&OpCode::UNARY);
    let builder = Builder::new();
    let x = builder.input(dtype_for(dice, op));
    let kernel = builder.finish(&[x.unary(op)])?;
    let values = if takes_angle(op) {
        Values::Angle
    } else {
        dice.pick(&[Values::Any, Values::Any, Values::Tame, Values::Wide])
    };
    let shape = shape(dice);
    Ok(run(dice, "unary", kernel, Vec::new(), shape, &[values]).within(tolerance(op)))
}

/// A number that a type with fewer digits or another range does not hold.
pub fn far(dice: &mut Dice) -> Scalar {
    match dice.below(4) {
        0 => Scalar::UInt(dice.bits()),
        1 => Scalar::Int(dice.bits() as i64 >> dice.below(64)),
        2 => Scalar::Float(0.1),
        _ => Scalar::Float(-1.7),
    }
}

fn binary(dice: &mut Dice) -> Result<Case> {
    let op = dice.pick(&OpCode::BINARY);
    let dtype = dtype_for(dice, op);
    let builder = Builder::new();
    let lhs = builder.input(dtype);
    let mut params = Vec::new();
    let mut number = dice.pick(&[
        Scalar::Int(3),
        Scalar::Int(0),
        Scalar::Float(-0.5),
        Scalar::Float(2.0),
        Scalar::Int(-1),
    ]);
    if op != OpCode::Arithmetic(Arithmetic::Pow) && dice.one_in(3) {
        number = far(dice);
    }
    let number = number.cast(dtype.compute());
    let rhs = match dice.below(5) {
        0 => {
            params.push(number);
            builder.param(dtype)
        }
        1 => builder.constant(number, dtype),
        _ => builder.input(dtype),
    };
    let (lhs, rhs) = if dice.one_in(4) { (rhs, lhs) } else { (lhs, rhs) };
    let kernel = builder.finish(&[lhs.binary(op, rhs)])?;
    let values = match op {
        OpCode::Bitwise(Bitwise::Shl | Bitwise::Shr) => [Values::Any, Values::Shift],
        OpCode::Arithmetic(Arithmetic::Pow) if dice.one_in(2) => [Values::Any, Values::Tame],
        OpCode::Arithmetic(Arithmetic::Pow) => [Values::Tame, Values::Any],
        OpCode::Compare(Comparison::Eq | Comparison::Ne) if dice.one_in(2) => {
            let few = dice.pick(&[Values::Below(3), Values::Few, Values::Few]);
            [few, few]
        }
        _ => [Values::exact(dice), Values::exact(dice)],
    };
    let shape = shape(dice);
    Ok(run(dice, "binary", kernel, params, shape, &values).within(tolerance(op)))
}

fn select(dice: &mut Dice) -> Result<Case> {
    let dtype = dice.pick(&DType::ALL);
    let builder = Builder::new();
    let (condition, a, b) =
        (builder.input(DType::Bool), builder.input(dtype), builder.input(dtype));
    let kernel = builder.finish(&[condition.where_cond(a, b)])?;
    let shape = shape(dice);
    Ok(run(dice, "where", kernel, Vec::new(), shape, &[Values::Any]).within(Tolerance::Bits))
}

fn cast(dice: &mut Dice) -> Result<Case> {
    let (from, to) = (dice.pick(&DType::ALL), dice.pick(&DType::ALL));
    let shape = shape(dice);
    let values = Values::exact(dice);
    let x = Operand::new(dice, shape, from, values);
    let body = move |x: &[Tensor]| Ok(vec![x[0].cast(to)?]);
    Ok(Case::new("cast", vec![x], format!("to {to}"), body).within(Tolerance::Bits))
}

type Function = for<'b> fn(Expr<'b>) -> Expr<'b>;

/// The composite functions with their tolerances in units in the last place, of the result or of a
/// floor.
const FUNCTIONS: [(&str, Function, f64, f64); 34] = [
    ("square", |x| x.square(), 0.0, 0.0),
    ("is_inf", |x| x.is_inf(), 0.0, 0.0),
    ("is_finite", |x| x.is_finite(), 0.0, 0.0),
    ("sigmoid", |x| x.sigmoid(), 8.0, 0.0),
    ("relu", |x| x.relu(), 0.0, 0.0),
    ("relu6", |x| x.relu6(), 0.0, 0.0),
    ("leaky_relu", |x| x.leaky_relu(0.125), 1.0, 0.0),
    ("elu", |x| x.elu(1.5), 8.0, 0.0),
    ("selu", |x| x.selu(), 8.0, 0.0),
    ("gelu", |x| x.gelu(), 8.0, 8.0),
    ("gelu_tanh", |x| x.gelu_tanh(), 8.0, 8.0),
    ("silu", |x| x.silu(), 8.0, 0.0),
    ("softplus", |x| x.softplus(), 8.0, 0.0),
    ("log_sigmoid", |x| x.log_sigmoid(), 8.0, 0.0),
    ("mish", |x| x.mish(), 16.0, 0.0),
    ("softsign", |x| x.softsign(), 2.0, 0.0),
    ("hardsigmoid", |x| x.hardsigmoid(), 2.0, 1.0),
    ("hardswish", |x| x.hardswish(), 4.0, 1.0),
    ("hardtanh", |x| x.hardtanh(), 0.0, 0.0),
    ("sinh", |x| x.sinh(), 8.0, 0.0),
    ("cosh", |x| x.cosh(), 8.0, 0.0),
    ("asin", |x| x.asin(), 4.0, 1.0),
    ("acos", |x| x.acos(), 4.0, 1.0),
    ("not_truth", |x| x.not_truth(), 0.0, 0.0),
    ("signbit", |x| x.signbit(), 0.0, 0.0),
    ("frac", |x| x.frac(), 0.0, 0.0),
    ("asinh", |x| x.asinh(), 8.0, 0.0),
    ("acosh", |x| x.acosh(), 8.0, 0.0),
    ("atanh", |x| x.atanh(), 8.0, 0.0),
    ("erfc", |x| x.erfc(), 16.0, 0.0),
    ("logit", |x| x.logit(), 8.0, 0.0),
    ("sinc", |x| x.sinc(), 8.0, 1.0),
    ("lgamma", |x| x.lgamma(), 16.0, 8.0),
    ("tanhshrink", |x| x.tanhshrink(), 16.0, 0.0),
];

type FunctionOfTwo = for<'b> fn(Expr<'b>, Expr<'b>) -> Expr<'b>;

/// The composite functions of two operands with their tolerances in units in the last place.
const FUNCTIONS_OF_TWO: [(&str, FunctionOfTwo, f64); 10] = [
    ("fmod", |x, y| x.fmod(y), 0.0),
    ("div_trunc", |x, y| x.div_trunc(y), 0.0),
    ("heaviside", |x, y| x.heaviside(y), 0.0),
    ("copysign", |x, y| x.copysign(y), 0.0),
    ("gcd", |x, y| x.gcd(y), 0.0),
    ("lcm", |x, y| x.lcm(y), 0.0),
    ("atan2", |x, y| x.atan2(y), 8.0),
    ("hypot", |x, y| x.hypot(y), 8.0),
    ("xlogy", |x, y| x.xlogy(y), 8.0),
    ("clamp", |x, y| x.clamp(y, y), 0.0),
];

fn function_of_two(dice: &mut Dice) -> Result<Case> {
    let (name, function, ulps) = dice.pick(&FUNCTIONS_OF_TWO);
    let types: Vec<DType> = DType::ALL
        .into_iter()
        .filter(|dtype| match name {
            "gcd" | "lcm" => dtype.is_int(),
            "atan2" | "hypot" | "xlogy" => dtype.is_float(),
            _ => *dtype != DType::Bool,
        })
        .collect();
    let dtype = dice.pick(&types);
    let builder = Builder::new();
    let (x, y) = (builder.input(dtype), builder.input(dtype));
    let kernel = builder.finish(&[function(x, y)])?;
    let values = [dice.pick(&[Values::Any, Values::Tame]), Values::Any];
    let shape = shape(dice);
    let tolerance = if ulps == 0.0 { Tolerance::Equal } else { Tolerance::Ulps(ulps, 0.0) };
    let mut case =
        run(dice, "function of two", kernel, Vec::new(), shape, &values).within(tolerance);
    case.detail = format!("{name}: {}", case.detail);
    Ok(case)
}

fn function(dice: &mut Dice) -> Result<Case> {
    let (name, function, ulps, floor) = dice.pick(&FUNCTIONS);
    let dtype = if dice.one_in(3) { dice.pick(&DType::ALL[1..]) } else { dice.pick(&FLOATS) };
    let builder = Builder::new();
    let x = builder.input(dtype);
    let kernel = builder.finish(&[function(x)])?;
    let values = dice.pick(&[Values::Any, Values::Tame, Values::Tame, Values::Sprinkled]);
    let shape = shape(dice);
    // x times a factor that becomes subnormal, and so loses digits, before the product does; then
    // |x| < 1024.
    let floor = match (name, dtype.compute()) {
        ("mish" | "silu", DType::F64) => 1024.0 * f64::MIN_POSITIVE,
        ("mish" | "silu", _) => 1024.0 * f64::from(f32::MIN_POSITIVE),
        _ => floor,
    };
    let tolerance = if ulps == 0.0 { Tolerance::Bits } else { Tolerance::Ulps(ulps, floor) };
    let mut case = run(dice, "function", kernel, Vec::new(), shape, &[values]).within(tolerance);
    case.detail = format!("{name}: {}", case.detail);
    Ok(case)
}

/// The use of a random program.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Mix {
    /// Everything exact, several outputs.
    Full,
    /// One output of about the size of its inputs.
    Tame,
    /// One output that is one of its inputs, perhaps with another sign: no rounding.
    Choice,
    /// One output that is a bool.
    Predicate,
}

/// A random program and the values of its parameters.
pub struct Random {
    pub kernel: Kernel,
    pub params: Vec<Scalar>,
    pub tolerances: Vec<Tolerance>,
}

/// A random program whose first input has type `dtype`.
pub fn random_kernel(dice: &mut Dice, dtype: DType, mix: Mix) -> Result<Random> {
    let builder = Builder::new();
    let others = [dtype, dice.pick(&DType::ALL)];
    let mut nodes: Vec<Expr<'_>> = Vec::new();
    let most = if dice.one_in(6) { MAX_INPUTS } else { 3 };
    let inputs = dice.between(1, most);
    for i in 0..inputs {
        let own = i == 0 || mix != Mix::Full || dice.below(3) > 0;
        let expr = builder.input(if own { dtype } else { dice.pick(&others) });
        nodes.push(expr);
    }
    let mut params = Vec::new();
    if matches!(mix, Mix::Full | Mix::Tame) {
        for _ in 0..dice.below(3) {
            let mut number = dice.pick(&[
                Scalar::Float(0.75),
                Scalar::Int(-2),
                Scalar::Int(1),
                Scalar::Float(3.0),
            ]);
            if dice.one_in(2) {
                number = if dtype.is_int() { far(dice) } else { Scalar::Float(-1.7) };
            }
            if dice.one_in(2) {
                params.push(number.cast(dtype.compute()));
                nodes.push(builder.param(dtype));
            } else {
                nodes.push(builder.constant(number, dtype));
            }
        }
    }
    let steps = if mix == Mix::Tame { dice.between(1, 5) } else { dice.between(1, 12) };
    for _ in 0..steps {
        if let Some(node) = step(dice, &nodes, mix) {
            nodes.push(node);
        }
    }
    let last = nodes[nodes.len() - 1];
    let (mut outputs, mut tolerances) = (Vec::new(), Vec::new());
    match mix {
        Mix::Predicate => {
            outputs.push(if last.dtype() == DType::Bool { last } else { last.truth() })
        }
        Mix::Tame | Mix::Choice => {
            let of_type: Vec<Expr<'_>> =
                nodes.iter().copied().filter(|n| n.dtype() == dtype).collect();
            outputs.push(of_type[of_type.len() - 1]);
        }
        Mix::Full => {
            for i in 0..dice.between(1, MAX_OUTPUTS) {
                let node = if i == 0 { last } else { dice.pick(&nodes) };
                let op = dice.pick(&OpCode::UNARY);
                let smooth = matches!(tolerance(op), Tolerance::Ulps(..)) && !takes_angle(op);
                if smooth && node.dtype().is_float() && dice.one_in(3) {
                    outputs.push(node.unary(op));
                    tolerances.push(tolerance(op));
                } else {
                    outputs.push(node);
                    tolerances.push(Tolerance::Bits);
                }
            }
        }
    }
    let kernel = builder.finish(&outputs)?;
    Ok(Random { kernel, params, tolerances })
}

/// One more node, if the drawn operation accepts the drawn operands.
pub fn step<'b>(dice: &mut Dice, nodes: &[Expr<'b>], mix: Mix) -> Option<Expr<'b>> {
    use Arithmetic::{Add, Max, Min, Mul, Sub};
    use Bitwise::{And, Or, Xor};
    use Comparison::{Lt, Ne};
    use Rounding::{Floor, Trunc};
    use SignFunction::{Abs, Neg, Sign};
    // Late nodes are likelier, so that programs become deep.
    let recent = &nodes[nodes.len().saturating_sub(4)..];
    let pick = |dice: &mut Dice| if dice.one_in(3) { dice.pick(nodes) } else { dice.pick(recent) };
    let a = pick(dice);
    let exact = |op: &OpCode| tolerance(*op) == Tolerance::Bits;
    let one: Vec<OpCode> = match mix {
        Mix::Full => {
            OpCode::UNARY.into_iter().filter(exact).chain([OpCode::Cast, OpCode::Cast]).collect()
        }
        Mix::Tame => vec![Neg.into(), Abs.into(), Sign.into(), Floor.into(), Trunc.into()],
        Mix::Choice => vec![Neg.into(), Abs.into()],
        Mix::Predicate => vec![OpCode::Not, OpCode::IsNan, Abs.into()],
    };
    let two: Vec<OpCode> = match mix {
        Mix::Full => {
            OpCode::BINARY.into_iter().filter(exact).chain([Add.into(), Mul.into()]).collect()
        }
        Mix::Tame => {
            [Add, Sub, Mul, Max, Min].map(OpCode::from).into_iter().chain([Lt.into()]).collect()
        }
        Mix::Choice => vec![Max.into(), Min.into(), Lt.into(), Ne.into()],
        Mix::Predicate => Comparison::ALL
            .map(OpCode::from)
            .into_iter()
            .chain([And.into(), Or.into(), Xor.into(), Max.into()])
            .collect(),
    };
    let expr = match dice.below(8) {
        0 | 1 => {
            let op = dice.pick(&one);
            if op == OpCode::Cast {
                let to = dice.pick(&DType::ALL);
                a.cast(to)
            } else {
                if !op.accepts(a.dtype()) {
                    return None;
                }
                a.unary(op)
            }
        }
        2 => {
            let b = pick(dice);
            let conditions: Vec<Expr<'b>> =
                nodes.iter().copied().filter(|n| n.dtype() == DType::Bool).collect();
            let same = mix == Mix::Full || a.dtype() == b.dtype();
            if conditions.is_empty() || !same {
                return None;
            }
            dice.pick(&conditions).where_cond(a, b)
        }
        _ => {
            let op = dice.pick(&two);
            let b = pick(dice);
            let dtype = a.dtype().promote(b.dtype());
            if !op.accepts(dtype) || mix != Mix::Full && a.dtype() != b.dtype() {
                return None;
            }
            a.binary(op, b)
        }
    };
    Some(expr)
}

fn program(dice: &mut Dice) -> Result<Case> {
    let dtype = if dice.one_in(3) { DType::F32 } else { dice.pick(&DType::ALL) };
    let Random { kernel, params, tolerances } = random_kernel(dice, dtype, Mix::Full)?;
    let third = if dice.one_in(2) { Values::Tame } else { Values::exact(dice) };
    let values = [Values::exact(dice), Values::exact(dice), third];
    let shape = shape(dice);
    Ok(run(dice, "kernel", kernel, params, shape, &values).each_within(tolerances))
}

type Operator = fn(Tensor, &Tensor) -> Tensor;
type Method = fn(&Tensor, &Tensor) -> Result<Tensor>;

/// Operators on an operand that is given away, whose memory a device may take, and the methods that
/// never do.
const OVER: [(&str, Operator, Method); 13] = [
    ("a + b over a", |a, b| a + b, |a, b| a.add(b)),
    ("a - b over a", |a, b| a - b, |a, b| a.sub(b)),
    ("a * b over a", |a, b| a * b, |a, b| a.mul(b)),
    ("a / b over a", |a, b| a / b, |a, b| a.div(b)),
    ("b - a over a", |a, b| b - a, |a, b| b.sub(a)),
    ("b / a over a", |a, b| b / a, |a, b| b.div(a)),
    ("b + a over a", |a, b| b + a, |a, b| b.add(a)),
    ("b * a over a", |a, b| b * a, |a, b| b.mul(a)),
    ("a - 0.3 over a", |a, _| a - 0.3, |a, _| a.sub(0.3)),
    ("a + n over a", |a, _| a + LARGE, |a, _| a.add(LARGE)),
    ("a * n over a", |a, _| a * LARGE, |a, _| a.mul(LARGE)),
    ("a * 0.5 over a", |a, _| a * 0.5, |a, _| a.mul(0.5)),
    ("2 - a over a", |a, _| 2 - a, |_, _| Err(Error::internal("not a method"))),
];

fn over(dice: &mut Dice) -> Result<Case> {
    let (name, operator, method) = dice.pick(&OVER);
    // Floats mostly; bools have no difference.
    let dtype = if dice.one_in(3) { dice.pick(&DType::ALL[1..]) } else { dice.pick(&FLOATS) };
    let shape = shape(dice);
    let values = Values::exact(dice);
    let a = Operand::new(dice, shape, dtype, values);
    let b = Operand::new(dice, shape, dtype, values);
    let packed = dice.below(4) > 0;
    let body = move |x: &[Tensor]| {
        let given = if packed { x[0].copy()? } else { x[0].clone() };
        let mut results = vec![operator(given, &x[1])];
        // The method's result must be the same on the same device.
        results.extend(method(&x[0], &x[1]).ok());
        Ok(results)
    };
    Ok(Case::new("over", vec![a, b], format!("{name}, packed {packed}"), body)
        .within(Tolerance::Bits))
}
