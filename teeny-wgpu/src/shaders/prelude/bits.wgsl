// Floats by their bits, and the storage formats below 32 bits.
//
// NaN is tested by bits: naga writes `x != x` as an ordered comparison, which is false for NaN, and
// Metal may assume that NaN does not occur. Infinity and NaN come from variables, since WGSL
// forbids constants that are not finite.

fn is_nan_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u;
}
fn is_finite_f32(x: f32) -> bool {
    return (bitcast<u32>(x) & 0x7f800000u) != 0x7f800000u;
}
fn inf_f32() -> f32 {
    var bits = 0x7f800000u;
    return bitcast<f32>(bits);
}
fn nan_f32() -> f32 {
    var bits = 0x7fc00000u;
    return bitcast<f32>(bits);
}
// Chosen, not joined from two masked words: Mesa 26.1 returns `sign` without bits of `magnitude`
// for `(a & 0x7fffffff) | (b & 0x80000000)`.
fn copysign_f32(magnitude: f32, sign: f32) -> f32 {
    let bits = bitcast<u32>(magnitude) & 0x7fffffffu;
    return bitcast<f32>(select(bits, bits + 0x80000000u, bitcast<i32>(sign) < 0));
}
// The lower part of the word, sign-extended. Not by two shifts: Mesa 22.3 loses the sign of `i64((x
// << 16) >> 16)` in comparisons.
fn i8_of(word: u32) -> i32 {
    return bitcast<i32>((word & 0xffu) ^ 0x80u) - 0x80;
}
fn i16_of(word: u32) -> i32 {
    return bitcast<i32>((word & 0xffffu) ^ 0x8000u) - 0x8000;
}
// IEEE half to float: subnormals too, which the hardware's conversion may flush.
fn f16_of(word: u32) -> f32 {
    let sign = (word & 0x8000u) << 16u;
    let rest = word & 0x7fffu;
    let normal = (rest << 13u) + 0x38000000u;
    let subnormal = bitcast<u32>(f32(rest) * 5.9604644775390625e-8f);
    let special = 0x7f800000u | ((rest & 0x3ffu) << 13u);
    let finite = select(normal, subnormal, rest < 0x400u);
    return bitcast<f32>(sign | select(finite, special, rest >= 0x7c00u));
}
// Float to half, to nearest even.
fn f16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    let sign = (bits >> 16u) & 0x8000u;
    let rest = bits & 0x7fffffffu;
    let normal = (rest - 0x38000000u + 0xfffu + ((rest >> 13u) & 1u)) >> 13u;
    // A subnormal half is a multiple of 2^-24. Adding 1/2 to it leaves the multiple, rounded to
    // nearest even, in the lowest bits of the sum.
    let subnormal = bitcast<u32>(bitcast<f32>(rest) + 0.5f) - 0x3f000000u;
    let finite = select(normal, subnormal, rest < 0x38800000u);
    let special = select(0x7c00u, 0x7e00u, rest > 0x7f800000u);
    return sign | select(finite, special, rest >= 0x477ff000u);
}
fn round_f16(x: f32) -> f32 {
    return f16_of(f16_bits(x));
}
fn bf16_of(word: u32) -> f32 {
    return bitcast<f32>(word << 16u);
}
fn bf16_bits(x: f32) -> u32 {
    let bits = bitcast<u32>(x);
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return (bits >> 16u) | 0x40u;
    }
    return (bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u;
}
fn round_bf16(x: f32) -> f32 {
    return bitcast<f32>(bf16_bits(x) << 16u);
}
// Integers in the order of the floats, -0 below 0, with the key `nan` for NaN.
fn order_of(x: f32, nan: u32) -> u32 {
    let bits = bitcast<u32>(x);
    let key = select(bits | 0x80000000u, ~bits, (bits & 0x80000000u) != 0u);
    return select(key, nan, is_nan_f32(x));
}
fn float_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, (key & 0x80000000u) != 0u));
}
