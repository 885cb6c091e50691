//! The element types of GGUF files: plain types, [`QuantType`]s, and two that are only decoded.
//!
//! ```text
//! Q2_K  w = d s q - e t     of 256 elements in sub-blocks of 16 with small integers s and t
//! Q3_K  w = d s (q - 4)
//! ```
//!
//! Source: the layouts of <https://github.com/ggml-org/ggml>; results equal the Python package
//! `gguf`, bit for bit.

use teeny_core::{DType, QuantType, f16};

/// An element type that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub name: &'static str,
    /// Elements and bytes of a block; one element for plain types.
    pub elements: usize,
    pub bytes: usize,
    pub kind: TypeKind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum TypeKind {
    /// Elements of a dtype.
    Plain(DType),
    /// Blocks that a quantised matrix keeps.
    Quantized(QuantType),
    /// Writes the values of one block.
    Blocks(fn(&[u8], &mut [f32])),
}

/// The type with the number `id` in files.
pub(super) fn by_id(id: u32) -> Option<Type> {
    if let Some(kind) = QuantType::ALL.into_iter().find(|kind| kind.gguf_id() == id) {
        let (elements, bytes) = (kind.block_elements(), kind.block_bytes());
        return Some(Type { name: kind.name(), elements, bytes, kind: TypeKind::Quantized(kind) });
    }
    let plain = |name, dtype: DType| Type {
        name,
        elements: 1,
        bytes: dtype.size(),
        kind: TypeKind::Plain(dtype),
    };
    let blocks =
        |name, bytes, decode| Type { name, elements: 256, bytes, kind: TypeKind::Blocks(decode) };
    Some(match id {
        0 => plain("F32", DType::F32),
        1 => plain("F16", DType::F16),
        30 => plain("BF16", DType::BF16),
        24 => plain("I8", DType::I8),
        25 => plain("I16", DType::I16),
        26 => plain("I32", DType::I32),
        27 => plain("I64", DType::I64),
        28 => plain("F64", DType::F64),
        10 => blocks("Q2_K", 84, q2_k),
        11 => blocks("Q3_K", 110, q3_k),
        _ => return None,
    })
}

/// The name of a type that is not read.
pub(super) fn unread_name(id: u32) -> Option<&'static str> {
    const NAMES: [(u32, &str); 16] = [
        (9, "Q8_1"),
        (15, "Q8_K"),
        (16, "IQ2_XXS"),
        (17, "IQ2_XS"),
        (18, "IQ3_XXS"),
        (19, "IQ1_S"),
        (21, "IQ3_S"),
        (22, "IQ2_S"),
        (23, "IQ4_XS"),
        (29, "IQ1_M"),
        (34, "TQ1_0"),
        (35, "TQ2_0"),
        (36, "IQ4_NL_4_4"),
        (37, "IQ4_NL_4_8"),
        (38, "IQ4_NL_8_8"),
        (40, "NVFP4"),
    ];
    NAMES.iter().find(|(known, _)| *known == id).map(|(_, name)| *name)
}

/// The 16-bit float at byte `at`.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Writes `value(j)` to element j.
fn fill(to: &mut [f32], value: impl Fn(usize) -> f32) {
    to.iter_mut().enumerate().for_each(|(j, to)| *to = value(j));
}

/// The 2-bit number of element l of group j of half n.
fn two_bits(bytes: &[u8], n: usize, j: usize, l: usize) -> u8 {
    bytes[32 * n + l] >> (2 * j) & 3
}

fn q2_k(block: &[u8], to: &mut [f32]) {
    let (scales, d, minimum) = (&block[..16], half(block, 80), half(block, 82));
    for (k, to) in to.chunks_exact_mut(32).enumerate() {
        let (n, j) = (k / 4, k % 4);
        fill(to, |l| {
            let scale = scales[8 * n + 2 * j + l / 16];
            let (d, least) = (d * f32::from(scale & 15), minimum * f32::from(scale >> 4));
            d * f32::from(two_bits(&block[16..80], n, j, l)) - least
        });
    }
}

fn q3_k(block: &[u8], to: &mut [f32]) {
    let (high, scales, d) = (&block[..32], &block[96..108], half(block, 108));
    let scale = |t: usize| {
        let low = if t < 8 { scales[t] & 15 } else { scales[t - 8] >> 4 };
        f32::from(low | (scales[8 + t % 4] >> (2 * (t / 4)) & 3) << 4) - 32.0
    };
    for (k, to) in to.chunks_exact_mut(32).enumerate() {
        let (n, j) = (k / 4, k % 4);
        fill(to, |l| {
            let less = if high[l] >> k & 1 == 0 { 4.0 } else { 0.0 };
            let q = f32::from(two_bits(&block[32..96], n, j, l)) - less;
            d * scale(8 * n + 2 * j + l / 16) * q
        });
    }
}
