//! Element types in WGSL: the type a value is computed in, the type of an array of them, and the
//! expressions that read and write single elements and groups of four or eight.
//!
//! Two threads cannot write into one 32-bit word. An elementwise thread therefore writes four or
//! eight neighbouring elements, which are whole words of every type. Row programs and tiled
//! products whose rows are whole groups of four write four. Other kernels write one element at a
//! time in the accumulation type, and a second launch casts the result to the storage type.

use teeny_core::DType;

/// Elements per invocation.
pub(crate) const LANES: usize = 4;

/// Elements per invocation where `ops::software::reads_octets` and none has more than 32
/// bits.
pub(crate) const OCTET: usize = 8;

/// The WGSL type in which values of `dtype` are computed.
pub(crate) const fn value(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 | DType::U16 | DType::U32 => "u32",
        DType::I8 | DType::I16 | DType::I32 => "i32",
        DType::F16 | DType::BF16 | DType::F32 => "f32",
        DType::U64 => "u64",
        DType::I64 => "i64",
        DType::F64 => "f64",
    }
}

/// The element type of an array in memory from which single elements are read.
pub(crate) const fn word(dtype: DType) -> &'static str {
    match dtype.size() {
        1 | 2 => "u32",
        _ => value(dtype),
    }
}

/// The element type of an array in memory whose entries hold four elements (one element for 64-bit
/// types).
pub(crate) const fn quad(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool | DType::U8 | DType::I8 => "u32",
        DType::U16 | DType::I16 | DType::F16 | DType::BF16 => "vec2<u32>",
        DType::U32 => "vec4<u32>",
        DType::I32 => "vec4<i32>",
        DType::F32 => "vec4<f32>",
        DType::U64 | DType::I64 | DType::F64 => value(dtype),
    }
}

/// The element type of an array in memory whose entries hold eight elements, of 32 bits at most.
pub(crate) const fn octet(dtype: DType) -> &'static str {
    match dtype.size() {
        1 => "vec2<u32>",
        2 => "vec4<u32>",
        _ => "vec4<u64>",
    }
}

/// The element type of an array in memory whose entries hold `lanes` elements: [`quad`] or
/// [`octet`].
pub(crate) const fn group(dtype: DType, lanes: usize) -> &'static str {
    if lanes == OCTET { octet(dtype) } else { quad(dtype) }
}

/// The element type of an array in memory whose entries hold two elements of a type that is
/// computed in f32.
pub(crate) const fn pair(dtype: DType) -> &'static str {
    if dtype.size() == 2 { "u32" } else { "vec2<f32>" }
}

/// A zero of the computing type.
pub(crate) const fn zero(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "false",
        DType::U8 | DType::U16 | DType::U32 => "0u",
        DType::I8 | DType::I16 | DType::I32 => "0i",
        DType::F16 | DType::BF16 | DType::F32 => "0.0f",
        DType::U64 => "0lu",
        DType::I64 => "0li",
        DType::F64 => "0.0lf",
    }
}

/// The value whose bits are the lower ones of the word `w`.
fn unpacked(dtype: DType, w: &str) -> String {
    match dtype {
        DType::Bool => format!("(({w}) & 0xffu) != 0u"),
        DType::U8 => format!("(({w}) & 0xffu)"),
        DType::I8 => format!("i8_of({w})"),
        DType::U16 => format!("(({w}) & 0xffffu)"),
        DType::I16 => format!("i16_of({w})"),
        DType::F16 => format!("f16_of({w})"),
        DType::BF16 => format!("bf16_of({w})"),
        DType::U32 | DType::I32 | DType::F32 | DType::U64 | DType::I64 | DType::F64 => {
            w.to_string()
        }
    }
}

/// The element number `i` (an identifier or literal) of `array`, which is declared as
/// `array<word(dtype)>`.
pub(crate) fn load(dtype: DType, array: &str, i: &str) -> String {
    match dtype.size() {
        1 => unpacked(dtype, &format!("{array}[{i} >> 2u] >> (({i} & 3u) * 8u)")),
        2 => unpacked(dtype, &format!("{array}[{i} >> 1u] >> (({i} & 1u) * 16u)")),
        _ => format!("{array}[{i}]"),
    }
}

/// The element number `i` (an identifier or literal) of `array`, which is declared as
/// `array<quad(dtype)>`.
pub(crate) fn load_of_quads(dtype: DType, array: &str, i: &str) -> String {
    match dtype.size() {
        1 => load(dtype, array, i),
        2 => {
            let word = format!("{array}[{i} >> 2u][({i} >> 1u) & 1u]");
            unpacked(dtype, &format!("{word} >> (({i} & 1u) * 16u)"))
        }
        4 => format!("{array}[{i} >> 2u][{i} & 3u]"),
        _ => format!("{array}[{i}]"),
    }
}

/// Four elements of `array`, declared as `array<quad(dtype)>`, beginning at element `4 * q`:
/// statements, and the four values.
pub(crate) fn load_quad(
    dtype: DType,
    array: &str,
    q: &str,
    name: &str,
) -> (String, [String; LANES]) {
    match dtype.size() {
        1 => (
            format!("let {name} = {array}[{q}];"),
            ["", " >> 8u", " >> 16u", " >> 24u"]
                .map(|shift| unpacked(dtype, &format!("{name}{shift}"))),
        ),
        2 => (
            format!("let {name} = {array}[{q}];"),
            [".x", ".x >> 16u", ".y", ".y >> 16u"]
                .map(|part| unpacked(dtype, &format!("{name}{part}"))),
        ),
        4 => (
            format!("let {name} = {array}[{q}];"),
            ["x", "y", "z", "w"].map(|lane| format!("{name}.{lane}")),
        ),
        _ => (
            String::new(),
            ["0u", "1u", "2u", "3u"].map(|lane| format!("{array}[4u * ({q}) + {lane}]")),
        ),
    }
}

/// `lanes` elements of `array`, declared as `array<group(dtype, lanes)>`, beginning at element
/// `lanes * g`: statements, and the values.
pub(crate) fn load_group(
    dtype: DType,
    lanes: usize,
    array: &str,
    g: &str,
    name: &str,
) -> (String, Vec<String>) {
    if lanes == LANES {
        let (statement, values) = load_quad(dtype, array, g, name);
        return (statement, values.into());
    }
    let lane_of = |lane: usize| {
        let part = |each: usize| ["x", "y", "z", "w"][lane / each];
        match dtype.size() {
            1 => unpacked(dtype, &format!("{name}.{} >> {}u", part(4), lane % 4 * 8)),
            2 => unpacked(dtype, &format!("{name}.{} >> {}u", part(2), lane % 2 * 16)),
            _ => {
                let word = format!("u32({name}.{} >> {}u)", part(2), lane % 2 * 32);
                if dtype == DType::U32 {
                    word
                } else {
                    format!("bitcast<{}>({word})", value(dtype))
                }
            }
        }
    };
    (format!("let {name} = {array}[{g}];"), (0..OCTET).map(lane_of).collect())
}

/// The bits of a value as the lower ones of a word.
pub(crate) fn bits(dtype: DType, v: &str) -> String {
    match dtype {
        DType::Bool => format!("u32({v})"),
        DType::U8 => format!("({v} & 0xffu)"),
        DType::U16 => format!("({v} & 0xffffu)"),
        DType::I8 => format!("(bitcast<u32>({v}) & 0xffu)"),
        DType::I16 => format!("(bitcast<u32>({v}) & 0xffffu)"),
        DType::F16 => format!("f16_bits({v})"),
        DType::BF16 => format!("bf16_bits({v})"),
        DType::U32 => v.to_string(),
        DType::I32 | DType::F32 => format!("bitcast<u32>({v})"),
        DType::U64 | DType::I64 | DType::F64 => v.to_string(),
    }
}

/// The value `v` as it would be read after it was stored in `dtype`.
pub(crate) fn stored(dtype: DType, v: &str) -> String {
    if dtype.size() < 4 { unpacked(dtype, &bits(dtype, v)) } else { v.to_string() }
}

/// The statement that writes four values to `array`, declared as `array<quad(dtype)>`, from element
/// `4 * q` on.
pub(crate) fn store_quad(dtype: DType, array: &str, q: &str, v: [&str; LANES]) -> String {
    let b = v.map(|v| bits(dtype, v));
    match dtype.size() {
        1 => format!(
            "{array}[{q}] = {} | ({} << 8u) | ({} << 16u) | ({} << 24u);",
            b[0], b[1], b[2], b[3]
        ),
        2 => format!(
            "{array}[{q}] = vec2<u32>({} | ({} << 16u), {} | ({} << 16u));",
            b[0], b[1], b[2], b[3]
        ),
        4 => format!("{array}[{q}] = {}({}, {}, {}, {});", quad(dtype), v[0], v[1], v[2], v[3]),
        _ => (0..LANES)
            .map(|i| format!("{array}[4u * ({q}) + {i}u] = {};", v[i]))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

/// The statement that writes `v`, [`LANES`] or [`OCTET`] values, to `array`, declared as
/// `array<group(dtype, v.len())>`, from element `v.len() * g` on.
pub(crate) fn store_group(dtype: DType, array: &str, g: &str, v: &[String]) -> String {
    if let [a, b, c, d] = v {
        return store_quad(dtype, array, g, [a, b, c, d]);
    }
    let bits: Vec<String> = v.iter().map(|v| bits(dtype, v)).collect();
    let word = |b: &[String]| match b {
        [a, b] if dtype.size() == 4 => format!("u64({a}) | (u64({b}) << 32u)"),
        [a, b] => format!("{a} | ({b} << 16u)"),
        [a, b, c, d] => format!("{a} | ({b} << 8u) | ({c} << 16u) | ({d} << 24u)"),
        _ => String::new(),
    };
    let each = if dtype.size() == 1 { 4 } else { 2 };
    let words: Vec<String> = bits.chunks(each).map(word).collect();
    format!("{array}[{g}] = {}({});", octet(dtype), words.join(", "))
}

/// The statement that writes the vector `v` of two values to `array`, declared as
/// `array<pair(dtype)>`, from element `2 * p` on.
pub(crate) fn store_pair(dtype: DType, array: &str, p: &str, v: &str) -> String {
    if dtype.size() == 4 {
        return format!("{array}[{p}] = {v};");
    }
    let [low, high] = ["x", "y"].map(|lane| bits(dtype, &format!("{v}.{lane}")));
    format!("{array}[{p}] = {low} | ({high} << 16u);")
}

/// The accumulation type of `dtype`: the one it is computed in, of which single elements can be
/// written.
pub(crate) const fn accumulation(dtype: DType) -> DType {
    match dtype {
        DType::Bool | DType::U8 | DType::U16 => DType::U32,
        DType::I8 | DType::I16 => DType::I32,
        DType::F16 | DType::BF16 => DType::F32,
        DType::U32 | DType::U64 | DType::I32 | DType::I64 | DType::F32 | DType::F64 => dtype,
    }
}

/// The WGSL type of the accumulation type of `dtype`.
pub(crate) const fn accumulator(dtype: DType) -> &'static str {
    value(accumulation(dtype))
}

/// The value `v` of type `dtype`, as computed, in its accumulation type.
pub(crate) fn accumulated(dtype: DType, v: &str) -> String {
    if dtype == DType::Bool { format!("u32({v})") } else { v.to_string() }
}

/// The lowest value of the accumulation type of `dtype`; infinite for floats.
pub(crate) const fn lowest(dtype: DType) -> &'static str {
    match accumulation(dtype) {
        DType::I32 => "bitcast<i32>(0x80000000u)",
        DType::U64 => "0lu",
        DType::I64 => "(-9223372036854775807li - 1li)",
        DType::F64 => "(-inf_f64())",
        DType::F32 => "(-inf_f32())",
        _ => "0u",
    }
}

/// The highest value of the accumulation type of `dtype`; infinite for floats.
pub(crate) const fn highest(dtype: DType) -> &'static str {
    match accumulation(dtype) {
        DType::I32 => "2147483647i",
        DType::U64 => "18446744073709551615lu",
        DType::I64 => "9223372036854775807li",
        DType::F64 => "inf_f64()",
        DType::F32 => "inf_f32()",
        _ => "0xffffffffu",
    }
}

/// The expression of the larger of `a` and `b`, of the accumulation type of `dtype`; NaN wins.
pub(crate) fn larger(dtype: DType, a: &str, b: &str) -> String {
    match accumulation(dtype).is_float() {
        true => format!("max_{}({a}, {b})", accumulator(dtype)),
        false => format!("select({b}, {a}, {a} > {b})"),
    }
}

/// The expression of the smaller of `a` and `b`, of the accumulation type of `dtype`; NaN wins.
pub(crate) fn smaller(dtype: DType, a: &str, b: &str) -> String {
    match accumulation(dtype).is_float() {
        true => format!("min_{}({a}, {b})", accumulator(dtype)),
        false => format!("select({b}, {a}, {a} < {b})"),
    }
}
