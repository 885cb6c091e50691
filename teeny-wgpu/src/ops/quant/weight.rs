//! How the bits of each quantised type become numbers, as two expressions of WGSL. See
//! `shaders/quant_weight.wgsl`, which has the functions that they call.

use crate::codegen::shader::{Shader, shader};
use teeny_core::QuantType::{self, *};
use teeny_core::quant::{GROUP, IQ4_NL, MXFP4};

/// The elements of a sub-block, which share a scale; a multiple of them is a block.
pub(super) const SUB: usize = 32;

/// The scale and the minimum of sub-block `sub`, and the integers of its elements 4 i to 4 i + 3.
fn expressions(kind: QuantType) -> [&'static str; 2] {
    const SCALE: &str = "vec2<f32>(half_at(at + F0, lane), 0.0f)";
    const MINIMUM: &str = "vec2<f32>(half_at(at + F0, lane), half_at(at + F1, lane))";
    const SIX_BITS: &str = "vec2<f32>(half_at(at + F0, lane), -half_at(at + F1, lane)) \
        * six_bits(at + F2, sub, lane)";
    match kind {
        Q8_0 => [SCALE, "bytes(unit(at + F1, i, lane) ^ 0x80808080u) - 128.0f"],
        Q4_0 => [SCALE, "bytes(nibbles(at + F1, i % 4u, i / 4u, lane)) - 8.0f"],
        Q4_1 => [MINIMUM, "bytes(nibbles(at + F2, i % 4u, i / 4u, lane))"],
        Q5_0 => [
            SCALE,
            "bytes(nibbles(at + F2, i % 4u, i / 4u, lane) | fifth_bits(at + F1, i, lane)) - 16.0f",
        ],
        Q5_1 => [
            MINIMUM,
            "bytes(nibbles(at + F3, i % 4u, i / 4u, lane) | fifth_bits(at + F2, i, lane))",
        ],
        Iq4Nl => [SCALE, "entries(nibbles(at + F1, i % 4u, i / 4u, lane))"],
        Mxfp4 => [
            "vec2<f32>(half_of_power(blocks[at + F0 + lane / 4u] >> (lane % 4u * 8u)), 0.0f)",
            "entries(nibbles(at + F1, i % 4u, i / 4u, lane))",
        ],
        Q4K => [SIX_BITS, "bytes(nibbles(at + F3, sub / 2u * 8u + i, sub % 2u, lane))"],
        Q5K => [
            SIX_BITS,
            "bytes(nibbles(at + F4, sub / 2u * 8u + i, sub % 2u, lane) \
             | high_bits(at + F3, i, sub, 1u, lane))",
        ],
        // a scale for 16 elements is a factor of the integers
        Q6K => [
            "vec2<f32>(half_at(at + F3, lane), 0.0f)",
            "(bytes(nibbles(at + F0, sub / 4u * 16u + sub % 2u * 8u + i, sub / 2u % 2u, lane) \
             | high_bits(at + F1, sub / 4u * 8u + i, sub % 4u * 2u, 3u, lane)) - 32.0f) \
             * signed_byte(at + F2, 2u * sub + i / 4u, lane)",
        ],
    }
}

/// The functions `scale` and `integers` of a type, and the sizes of its blocks.
pub(super) fn functions(kind: QuantType) -> Shader {
    let [scale, integers] = expressions(kind);
    let words = |bytes: usize| GROUP * bytes / 4;
    let fields = kind.fields().iter().enumerate();
    let fields = fields.map(|(i, field)| format!("const F{i} = {}u;\n", words(field.at)));
    let shader = shader!("quant_weight")
        .number("subs", kind.block_elements() / SUB)
        .number("block", words(kind.block_bytes()))
        .text("fields", fields.collect::<String>())
        .text("scale", scale)
        .text("integers", integers);
    let table = match kind {
        Iq4Nl => IQ4_NL,
        Mxfp4 => MXFP4,
        _ => return shader.flag("has_table", false).text("table", ""),
    };
    let word = |four: &[i8]| {
        let bytes = four.iter().rev().map(|&value| format!("{:02x}", i16::from(value) + 128));
        format!("0x{}u", bytes.collect::<String>())
    };
    let words: Vec<String> = table.chunks(4).map(word).collect();
    shader.flag("has_table", true).text("table", words.join(", "))
}
