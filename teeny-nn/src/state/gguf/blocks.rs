//! The element types of GGUF files: plain ones, and blocks of quantised numbers.
//!
//! A block is a scale, sometimes a minimum, and small integers q, each row of a matrix by itself:
//!
//! ```text
//! Q8_0  w = d q                       Q4_0 Q5_0  w = d (q - 8), d (q - 16)
//! Q4_1 Q5_1  w = d q + m              IQ4_NL  w = d T[q]
//! Q2_K Q4_K Q5_K  w = d s q - e t     of 256 elements in sub-blocks with small integers s and t
//! Q3_K Q6_K  w = d s (q - 4 or 32)    MXFP4  w = 2^(e - 127) F[q]
//! ```
//!
//! Source: the layouts of <https://github.com/ggml-org/ggml>; results are those of the Python
//! package `gguf`, bit for bit.

use teeny_core::{DType, f16};

/// An element type that is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub name: &'static str,
    /// Elements and bytes of a block; one element for plain types.
    pub elements: usize,
    pub bytes: usize,
    pub kind: Kind,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    /// Elements of a dtype.
    Plain(DType),
    /// Writes the values of one block.
    Blocks(fn(&[u8], &mut [f32])),
}

/// The type with the number `id` in files.
pub(super) fn by_id(id: u32) -> Option<Type> {
    let plain = |name, dtype: DType| Type {
        name,
        elements: 1,
        bytes: dtype.size(),
        kind: Kind::Plain(dtype),
    };
    let blocks =
        |name, elements, bytes, decode| Type { name, elements, bytes, kind: Kind::Blocks(decode) };
    Some(match id {
        0 => plain("F32", DType::F32),
        1 => plain("F16", DType::F16),
        30 => plain("BF16", DType::BF16),
        24 => plain("I8", DType::I8),
        25 => plain("I16", DType::I16),
        26 => plain("I32", DType::I32),
        27 => plain("I64", DType::I64),
        28 => plain("F64", DType::F64),
        2 => blocks("Q4_0", 32, 18, q4_0),
        3 => blocks("Q4_1", 32, 20, q4_1),
        6 => blocks("Q5_0", 32, 22, q5_0),
        7 => blocks("Q5_1", 32, 24, q5_1),
        8 => blocks("Q8_0", 32, 34, q8_0),
        10 => blocks("Q2_K", 256, 84, q2_k),
        11 => blocks("Q3_K", 256, 110, q3_k),
        12 => blocks("Q4_K", 256, 144, q4_k),
        13 => blocks("Q5_K", 256, 176, q5_k),
        14 => blocks("Q6_K", 256, 210, q6_k),
        20 => blocks("IQ4_NL", 32, 18, iq4_nl),
        39 => blocks("MXFP4", 32, 17, mxfp4),
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

/// The 4-bit number of element `j` of 32: the low halves of 16 bytes, then the high ones.
fn nibble(bytes: &[u8], j: usize) -> u8 {
    if j < 16 { bytes[j] & 15 } else { bytes[j - 16] >> 4 }
}

/// [`nibble`] with bit `j` of the four bytes `high` above it.
fn five_bits(high: &[u8], bytes: &[u8], j: usize) -> u8 {
    nibble(bytes, j) | (high[j / 8] >> (j % 8) & 1) << 4
}

/// Writes `value(j)` to element j.
fn fill(to: &mut [f32], value: impl Fn(usize) -> f32) {
    to.iter_mut().enumerate().for_each(|(j, to)| *to = value(j));
}

fn q4_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    fill(to, |j| d * (f32::from(nibble(&block[2..], j)) - 8.0));
}

fn q4_1(block: &[u8], to: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    fill(to, |j| d * f32::from(nibble(&block[4..], j)) + m);
}

fn q5_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    fill(to, |j| d * (f32::from(five_bits(&block[2..6], &block[6..], j)) - 16.0));
}

fn q5_1(block: &[u8], to: &mut [f32]) {
    let (d, m) = (half(block, 0), half(block, 2));
    fill(to, |j| d * f32::from(five_bits(&block[4..8], &block[8..], j)) + m);
}

fn q8_0(block: &[u8], to: &mut [f32]) {
    let d = half(block, 0);
    fill(to, |j| d * f32::from(block[2 + j] as i8));
}

fn iq4_nl(block: &[u8], to: &mut [f32]) {
    const VALUES: [i8; 16] =
        [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let d = half(block, 0);
    fill(to, |j| d * f32::from(VALUES[usize::from(nibble(&block[2..], j))]));
}

fn mxfp4(block: &[u8], to: &mut [f32]) {
    // Twice the values of the format, by half of the scale: 2^(e - 128), subnormal for e < 2.
    const TWICE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
    let e = u32::from(block[0]);
    let d = f32::from_bits(if e < 2 { 0x0020_0000 << e } else { (e - 1) << 23 });
    fill(to, |j| d * f32::from(TWICE[usize::from(nibble(&block[1..], j))]));
}

/// The scale and the minimum of sub-block `i` of 8, each of 6 bits, packed in 12 bytes.
fn six_bits(s: &[u8], i: usize) -> [u8; 2] {
    match i {
        0..4 => [s[i] & 63, s[i + 4] & 63],
        _ => [(s[i + 4] & 15) | s[i - 4] >> 6 << 4, s[i + 4] >> 4 | s[i] >> 6 << 4],
    }
}

/// Q4_K and Q5_K: eight sub-blocks of 32, `q(g, l)` being the number of element l of sub-block g.
fn with_minima(block: &[u8], to: &mut [f32], q: impl Fn(usize, usize) -> u8) {
    let (d, minimum) = (half(block, 0), half(block, 2));
    for (i, to) in to.chunks_exact_mut(32).enumerate() {
        let [scale, least] = six_bits(&block[4..16], i).map(f32::from);
        let (d, least) = (d * scale, minimum * least);
        fill(to, |l| d * f32::from(q(i, l)) - least);
    }
}

/// The number of element l of sub-block `i`: sub-blocks 2g and 2g + 1 are the low and high halves
/// of 32 bytes.
fn paired_nibble(bytes: &[u8], i: usize, l: usize) -> u8 {
    bytes[32 * (i / 2) + l] >> (4 * (i % 2)) & 15
}

fn q4_k(block: &[u8], to: &mut [f32]) {
    with_minima(block, to, |i, l| paired_nibble(&block[16..], i, l));
}

fn q5_k(block: &[u8], to: &mut [f32]) {
    with_minima(block, to, |i, l| {
        paired_nibble(&block[48..], i, l) | (block[16 + l] >> i & 1) << 4
    });
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

fn q6_k(block: &[u8], to: &mut [f32]) {
    let (low, high, scales, d) =
        (&block[..128], &block[128..192], &block[192..208], half(block, 208));
    for (k, to) in to.chunks_exact_mut(32).enumerate() {
        let (n, j) = (k / 4, k % 4);
        fill(to, |l| {
            let q = low[64 * n + 32 * (j % 2) + l] >> (4 * (j / 2)) & 15
                | (high[32 * n + l] >> (2 * j) & 3) << 4;
            let scale = f32::from(scales[8 * n + 2 * j + l / 16] as i8);
            d * scale * (f32::from(q) - 32.0)
        });
    }
}
