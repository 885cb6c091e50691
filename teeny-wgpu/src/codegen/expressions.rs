//! One WGSL expression per operation and type. `teeny_core::kernel::eval` defines the operations;
//! the functions that the expressions call are in the prelude.

use crate::codegen::types;
use teeny_core::{DType, OpCode, Scalar};

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
        "f32" => match value.to_f64() as f32 {
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
        (Class::Float, Class::Float) => rounded(to, &format!("{t}({source})")),
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
                // Widening keeps the value; the sign is that of the source.
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

/// The expression of `op` on operands `a`, `b`, `c` (identifiers), whose type (that of the last
/// operand) is `dtype`.
pub(crate) fn expression(op: OpCode, dtype: DType, a: &str, b: &str, c: &str) -> String {
    use OpCode::*;
    let kind = class(dtype);
    let ty = types::value(dtype);
    let zero = types::zero(dtype);
    let call = |name: &str| format!("{name}_{ty}({a})");
    let call2 = |name: &str| format!("{name}_{ty}({a}, {b})");
    let one = if ty == "f64" { "1.0lf" } else { "1.0f" };
    let float = kind == Class::Float;
    match op {
        Input(_) | Param(_) | Const(_) | Cast => {
            unreachable!("leaves and casts are written by the generator")
        }
        Neg if kind == Class::Unsigned => wrap(dtype, format!("{zero} - {a}")),
        Neg => wrap(dtype, format!("-{a}")),
        Abs if kind == Class::Unsigned => a.to_string(),
        Abs if kind == Class::Signed => {
            wrap(dtype, format!("select({a}, {zero} - {a}, {a} < {zero})"))
        }
        Abs => format!("abs({a})"),
        Sign if float => format!("sign_{ty}({a})"),
        Sign if kind == Class::Unsigned => format!("select({zero}, {ty}(1), {a} > {zero})"),
        Sign => format!("select(select({zero}, {ty}(-1), {a} < {zero}), {ty}(1), {a} > {zero})"),
        Recip => format!("{one} / {a}"),
        Sqrt => format!("sqrt({a})"),
        Rsqrt => format!("{one} / sqrt({a})"),
        Exp => call("exp"),
        Exp2 => call("exp2"),
        Expm1 => call("expm1"),
        Log => call("log"),
        Log2 => call("log2"),
        Log1p => call("log1p"),
        Sin => call("sin"),
        Cos => call("cos"),
        Tan => call("tan"),
        Atan => call("atan"),
        Tanh => call("tanh"),
        Erf => call("erf"),
        Floor => format!("floor({a})"),
        Ceil => format!("ceil({a})"),
        Round => format!("round({a})"),
        Trunc => format!("trunc({a})"),
        Not if kind == Class::Bool => format!("!{a}"),
        Not => wrap(dtype, format!("~{a}")),
        IsNan => format!("is_nan_{ty}({a})"),
        Add => wrap(dtype, format!("{a} + {b}")),
        Sub if float && a == b => format!("sub_self_{ty}({a})"),
        Sub => wrap(dtype, format!("{a} - {b}")),
        Mul => wrap(dtype, format!("{a} * {b}")),
        Div => format!("{a} / {b}"),
        Pow if float => call2("pow"),
        Pow => wrap(dtype, format!("pow_{ty}({a}, {b})")),
        Max if float => format!("max_{ty}({a}, {b})"),
        Min if float => format!("min_{ty}({a}, {b})"),
        Max => format!("select({b}, {a}, {a} > {b})"),
        Min => format!("select({b}, {a}, {a} < {b})"),
        Rem if float => call2("rem"),
        FloorDiv if float => call2("floor_div"),
        Rem => wrap(dtype, format!("rem_{ty}({a}, {b})")),
        FloorDiv => wrap(dtype, format!("floor_div_{ty}({a}, {b})")),
        CmpLt if kind == Class::Bool => format!("(!{a} & {b})"),
        CmpLe if kind == Class::Bool => format!("(!{a} | {b})"),
        CmpLt => format!("({a} < {b})"),
        CmpLe => format!("({a} <= {b})"),
        CmpEq => format!("({a} == {b})"),
        // Not `a != b`, which naga makes an ordered comparison: false for NaN.
        CmpNe => format!("!({a} == {b})"),
        And => format!("({a} & {b})"),
        Or => format!("({a} | {b})"),
        Xor if kind == Class::Bool => format!("({a} != {b})"),
        Xor => format!("({a} ^ {b})"),
        Shl => wrap(dtype, format!("shl_{ty}({a}, {b}, {ty}({}))", 8 * dtype.size())),
        Shr => format!("shr_{ty}({a}, {b}, {ty}({}))", 8 * dtype.size()),
        Where => format!("select({c}, {b}, {a})"),
    }
}
