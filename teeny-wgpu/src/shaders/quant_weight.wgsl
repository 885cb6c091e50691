// The elements of a quantised weight, 16 rows interleaved: a block begins at word `at` of `blocks`,
// and `lane` is the row in its group. Elements 4 i to 4 i + 3 of sub-block `sub` of 32 elements are
//     scale(at, sub, lane).x * integers(at, sub, i, lane) + scale(at, sub, lane).y
// Both functions are expressions of the type; F0, F1, … are the words where its fields begin.
const SUBS = {{subs}}u; // sub-blocks of a block
const BLOCK = {{block}}u; // words of a block of 16 rows
{{fields}}

// The 16-bit float of a field with one for each row.
fn half_at(field: u32, lane: u32) -> f32 {
    return f16_of(blocks[field + lane / 2u] >> (lane % 2u * 16u));
}
// The four bytes of unit `i` of a field.
fn unit(field: u32, i: u32, lane: u32) -> u32 {
    return blocks[field + 16u * i + lane];
}
fn bytes(word: u32) -> vec4<f32> {
    return vec4<f32>((vec4<u32>(word) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(0xffu));
}
// The low four bits of the bytes of a unit, or the high ones.
fn nibbles(field: u32, i: u32, high: u32, lane: u32) -> u32 {
    return (unit(field, i, lane) >> (4u * high)) & 0x0f0f0f0fu;
}
// The bits of `mask` of each byte of a unit, from bit `shift` on, as bits 4 and 5 of four bytes.
fn high_bits(field: u32, i: u32, shift: u32, mask: u32, lane: u32) -> u32 {
    return ((unit(field, i, lane) >> shift) & (mask * 0x01010101u)) << 4u;
}
// Byte `i` of a field.
fn signed_byte(field: u32, i: u32, lane: u32) -> f32 {
    return f32(i8_of(unit(field, i / 4u, lane) >> (i % 4u * 8u)));
}
// Bits 4 i to 4 i + 3 of a field of 32, as bit 4 of four bytes.
fn fifth_bits(field: u32, i: u32, lane: u32) -> u32 {
    let four = (unit(field, 0u, lane) >> (4u * i)) & 15u;
    return ((four * 0x204081u) & 0x01010101u) << 4u;
}
// The numbers of six bits of sub-block `sub`, one of the scale and one of the minimum.
fn six_bits(field: u32, sub: u32, lane: u32) -> vec2<f32> {
    let shift = sub % 4u * 8u;
    let a = unit(field, 0u, lane) >> shift;
    let b = unit(field, 1u, lane) >> shift;
    let c = unit(field, 2u, lane) >> shift;
    if sub < 4u { return vec2<f32>(f32(a & 63u), f32(b & 63u)); }
    let scale = (c & 15u) | ((a >> 2u) & 48u);
    let least = ((c >> 4u) & 15u) | ((b >> 2u) & 48u);
    return vec2<f32>(f32(scale), f32(least));
}
// 2^(e - 128) by the lowest byte of a word; subnormal, and 0 on GPUs that flush, for e below 2.
fn half_of_power(word: u32) -> f32 {
    let e = word & 255u;
    return bitcast<f32>(select((e - 1u) << 23u, 0x00200000u << e, e < 2u));
}
#if has_table
// The entries of a table of 16 bytes, with 128 added, by four numbers of four bits.
const TABLE = vec4<u32>({{table}});
fn entry(q: u32) -> f32 {
    return f32((TABLE[q >> 2u] >> ((q & 3u) * 8u)) & 255u) - 128.0f;
}
fn entries(q: u32) -> vec4<f32> {
    return vec4<f32>(
        entry(q & 15u), entry((q >> 8u) & 15u), entry((q >> 16u) & 15u), entry(q >> 24u));
}
#endif

fn scale(at: u32, sub: u32, lane: u32) -> vec2<f32> {
    return {{scale}};
}
fn integers(at: u32, sub: u32, i: u32, lane: u32) -> vec4<f32> {
    return {{integers}};
}
