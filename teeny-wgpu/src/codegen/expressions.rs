//! One WGSL expression per operation and type. `teeny_core::kernel::eval` defines the operations;
//! the functions that the expressions call are in the prelude.

use crate::codegen::types;
use teeny_core::{
    Arithmetic, Bitwise, Comparison, DType, Element, FloatFunction, OpCode, Rounding, Scalar,
    SignFunction,
};

/// The classes of types that share their expressions.
#[derive(Clone, Copy, PartialEq)]
enum Class {
    Bool,
    Signed,
    Unsigned,
    Float,
}

fn class(dtype: DType) -> Class {
    match dtype {
        DType::Bool => Class::Bool,
        t if t.is_float() => Class::Float,
        t if t.is_signed_int() => Class::Signed,
        _ => Class::Unsigned,
    }
}

/// Brings a result of 32-bit arithmetic back into a narrower integer type.
fn wrap(dtype: DType, e: String) -> String {
    match dtype {
        DType::I8 => format!("i8_of(bitcast<u32>({e}))"),
        DType::I16 => format!("i16_of(bitcast<u32>({e}))"),
        DType::U8 => format!("(({e}) & 0xffu)"),
        DType::U16 => format!("(({e}) & 0xffffu)"),
        _ => e,
    }
}

/// The rounding that a value of a 16-bit float undergoes where it is stored or cast.
pub(crate) fn rounded(dtype: DType, e: &str) -> String {
    match dtype {
        DType::F16 => format!("round_f16({e})"),
        DType::BF16 => format!("round_bf16({e})"),
        _ => e.to_string(),
    }
}

/// A literal of the computing type, or `None` for values that WGSL has no portable literal for:
/// those become parameters.
pub(crate) fn literal(value: Scalar, dtype: DType) -> Option<String> {
    Some(match types::value(dtype) {
        "bool" => value.to_bool().to_string(),
        "u32" => format!("{}u", value.to_u64_wrapping() as u32),
        "i32" => match value.to_i64_wrapping() as i32 {
            i32::MIN => return None,
            v => format!("{v}i"),
        },
        "u64" => format!("{}lu", value.to_u64_wrapping()),
        "i64" => match value.to_i64_wrapping() {
            i64::MIN => return None,
            v => format!("{v}li"),
        },
        "f32" => match f32::from_scalar(value) {
            v if v.is_normal() || v.to_bits() == 0 => format!("{v:e}f"),
            _ => return None,
        },
        _ => match value.to_f64() {
            v if v.is_normal() || v.to_bits() == 0 => format!("{v:e}lf"),
            _ => return None,
        },
    })
}

/// `x` of type `from` as type `to`.
pub(crate) fn cast(from: DType, to: DType, x: &str) -> String {
    let source = rounded(from, x);
    let (f, t) = (types::value(from), types::value(to));
    match (class(from), class(to)) {
        _ if from == to => source,
        (Class::Bool, Class::Bool) => source,
        (Class::Float, Class::Bool) => format!("!({source} == {})", types::zero(from)),
        (_, Class::Bool) => format!("({source} != {})", types::zero(from)),
        (Class::Bool, _) => format!("{t}({source})"),
        (Class::Float, Class::Float) if f == t => rounded(to, &source),
        (Class::Float, Class::Float) if to.is_half() => {
            rounded(to, &format!("odd_f32_of_{f}({source})"))
        }
        (Class::Float, Class::Float) => format!("{t}({source})"),
        (Class::Signed | Class::Unsigned, Class::Float) if to.is_half() => {
            rounded(to, &format!("odd_f32_of_{f}({source})"))
        }
        (Class::Signed | Class::Unsigned, Class::Float) => format!("{t}({source})"),
        (Class::Float, Class::Signed | Class::Unsigned) => {
            let (low, high) = match to {
                DType::I8 => (-128i32, 127u32),
                DType::I16 => (-32768, 32767),
                DType::U8 => (0, 255),
                DType::U16 => (0, 65535),
                _ => return format!("{f}_to_{t}({source})"),
            };
            if class(to) == Class::Signed {
                format!("clamp({f}_to_i32({source}), {low}i, {high}i)")
            } else {
                format!("min({f}_to_u32({source}), {high}u)")
            }
        }
        (Class::Signed | Class::Unsigned, Class::Signed | Class::Unsigned) => {
            let converted = match (f, t) {
                (f, t) if f == t => source,
                ("i32", "u32") | ("u32", "i32") | ("i64", "u64") | ("u64", "i64") => {
                    format!("bitcast<{t}>({source})")
                }
                // Widening keeps the value and the sign of the source.
                ("i32", "i64") => format!("i64_of_i32({source})"),
                ("i32", "u64") => format!("bitcast<u64>(i64_of_i32({source}))"),
                ("u32", "i64") => format!("bitcast<i64>(u64({source}))"),
                ("i64", "u32") => format!("u32(bitcast<u64>({source}) & 0xfffffffflu)"),
                ("u64", "u32") => format!("u32({source} & 0xfffffffflu)"),
                ("i64", "i32") => {
                    format!("bitcast<i32>(u32(bitcast<u64>({source}) & 0xfffffffflu))")
                }
                ("u64", "i32") => format!("bitcast<i32>(u32({source} & 0xfffffffflu))"),
                _ => format!("{t}({source})"),
            };
            wrap(to, converted)
        }
    }
}

/// The expression of `op` on operands `a`, `b`, `c` (identifiers), where `dtype` is the type of the
/// last operand.
pub(crate) fn expression(op: OpCode, dtype: DType, a: &str, b: &str, c: &str) -> String {
    match op {
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) | OpCode::Cast => {
            unreachable!("leaves and casts are written by the generator")
        }
        OpCode::Fold(_) | OpCode::At | OpCode::Index | OpCode::Length => {
            unreachable!("a kernel that runs at each element has no operation of rows")
        }
        OpCode::Float(f) => float_function(f, dtype, a),
        // NOTE: drivers' own functions of f64 are wrong, see `round_f64`
        OpCode::Round(Rounding::Round) if dtype == DType::F64 => format!("round_f64({a})"),
        OpCode::Round(Rounding::Trunc) if dtype == DType::F64 => {
            format!("select(ceil({a}), floor({a}), {a} > 0.0lf)")
        }
        OpCode::Round(rounding) => format!("{}({a})", rounding.name()),
        OpCode::Sign(f) => sign_function(f, dtype, a),
        OpCode::Not if class(dtype) == Class::Bool => format!("!{a}"),
        OpCode::Not => wrap(dtype, format!("~{a}")),
        OpCode::IsNan => format!("is_nan_{}({a})", types::value(dtype)),
        OpCode::Arithmetic(op) => arithmetic(op, dtype, a, b),
        OpCode::Compare(op) => compare(op, dtype, a, b),
        OpCode::Bitwise(op) => bitwise(op, dtype, a, b),
        OpCode::Where => format!("select({c}, {b}, {a})"),
    }
}

/// The expression of `op` on four f32 each, `a` and `b`; nothing for most operations.
pub(crate) fn quad_expression(op: OpCode, a: &str, b: &str) -> Option<String> {
    use FloatFunction::{Exp, Recip, Rsqrt, Sqrt};
    match op {
        OpCode::Float(Recip) => Some(format!("div4_f32(vec4<f32>(1.0f), {a})")),
        OpCode::Float(Sqrt) => Some(format!("sqrt4_f32({a})")),
        OpCode::Float(Rsqrt) => Some(float_function(Rsqrt, DType::F32, a)),
        OpCode::Float(Exp) => Some(format!("exp4_f32({a})")),
        OpCode::Sign(f @ (SignFunction::Neg | SignFunction::Abs)) => {
            Some(sign_function(f, DType::F32, a))
        }
        OpCode::Arithmetic(Arithmetic::Sub) if a == b => None,
        OpCode::Arithmetic(Arithmetic::Max) => Some(format!("max4_f32({a}, {b})")),
        OpCode::Arithmetic(Arithmetic::Min) => Some(format!("min4_f32({a}, {b})")),
        OpCode::Arithmetic(Arithmetic::Div) => Some(format!("div4_f32({a}, {b})")),
        OpCode::Arithmetic(op @ (Arithmetic::Add | Arithmetic::Sub | Arithmetic::Mul)) => {
            Some(arithmetic(op, DType::F32, a, b))
        }
        _ => None,
    }
}

fn float_function(f: FloatFunction, dtype: DType, a: &str) -> String {
    use FloatFunction::*;
    let ty = types::value(dtype);
    let one = if ty == "f64" { "1.0lf" } else { "1.0f" };
    match f {
        Recip => format!("div_{ty}({one}, {a})"),
        Sqrt => format!("sqrt_{ty}({a})"),
        Rsqrt => format!("{one} / sqrt({a})"),
        // Functions of the prelude: WGSL's have wide error bounds, or do not exist.
        Cbrt | Exp | Exp2 | Expm1 | Log | Log2 | Log10 | Log1p | Sin | Cos | Tan | Atan | Tanh
        | Erf => format!("{}_{ty}({a})", f.name()),
    }
}

fn sign_function(f: SignFunction, dtype: DType, a: &str) -> String {
    use SignFunction::*;
    let (ty, zero) = (types::value(dtype), types::zero(dtype));
    match (f, class(dtype)) {
        (Neg, Class::Unsigned) => wrap(dtype, format!("{zero} - {a}")),
        (Neg, _) => wrap(dtype, format!("-{a}")),
        (Abs, Class::Unsigned) => a.to_string(),
        (Abs, Class::Signed) => wrap(dtype, format!("select({a}, {zero} - {a}, {a} < {zero})")),
        (Abs, _) => format!("abs({a})"),
        (Sign, Class::Float) => format!("sign_{ty}({a})"),
        (Sign, Class::Unsigned) => format!("select({zero}, {ty}(1), {a} > {zero})"),
        (Sign, _) => {
            format!("select(select({zero}, {ty}(-1), {a} < {zero}), {ty}(1), {a} > {zero})")
        }
    }
}

fn arithmetic(op: Arithmetic, dtype: DType, a: &str, b: &str) -> String {
    use Arithmetic::*;
    let float = class(dtype) == Class::Float;
    let ty = types::value(dtype);
    match op {
        Add => wrap(dtype, format!("{a} + {b}")),
        Sub if float && a == b => format!("sub_self_{ty}({a})"),
        Sub => wrap(dtype, format!("{a} - {b}")),
        Mul => wrap(dtype, format!("{a} * {b}")),
        Div => format!("div_{ty}({a}, {b})"),
        Max if float => format!("max_{ty}({a}, {b})"),
        Min if float => format!("min_{ty}({a}, {b})"),
        Max => format!("select({b}, {a}, {a} > {b})"),
        Min => format!("select({b}, {a}, {a} < {b})"),
        Pow | Rem | FloorDiv => wrap(dtype, format!("{}_{ty}({a}, {b})", op.name())),
    }
}

fn compare(op: Comparison, dtype: DType, a: &str, b: &str) -> String {
    use Comparison::*;
    match op {
        Lt if class(dtype) == Class::Bool => format!("(!{a} & {b})"),
        Le if class(dtype) == Class::Bool => format!("(!{a} | {b})"),
        Lt => format!("({a} < {b})"),
        Le => format!("({a} <= {b})"),
        Eq => format!("({a} == {b})"),
        // Not `a != b`, which naga makes an ordered comparison: false for NaN.
        Ne => format!("!({a} == {b})"),
    }
}

fn bitwise(op: Bitwise, dtype: DType, a: &str, b: &str) -> String {
    use Bitwise::*;
    let ty = types::value(dtype);
    let bits = 8 * dtype.size();
    match op {
        And => format!("({a} & {b})"),
        Or => format!("({a} | {b})"),
        Xor if class(dtype) == Class::Bool => format!("({a} != {b})"),
        Xor => format!("({a} ^ {b})"),
        Shl => wrap(dtype, format!("shl_{ty}({a}, {b}, {ty}({bits}))")),
        Shr => format!("shr_{ty}({a}, {b}, {ty}({bits}))"),
    }
}
