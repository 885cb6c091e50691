// Integers: division by Python's rule with x / 0 = 0, powers, shifts by the width of the type, and
// saturating casts from floats. Unchecked shaders may not divide by zero nor the smallest number by
// -1, so neither happens here.

fn floor_div_i32(a: i32, b: i32) -> i32 {
    if b == 0 { return 0; }
    if b == -1 { return -a; }
    let q = a / b;
    return select(q, q - 1, (a - q * b != 0) && ((a < 0) != (b < 0)));
}
fn rem_i32(a: i32, b: i32) -> i32 {
    if b == 0 || b == -1 { return 0; }
    let r = a - (a / b) * b;
    return select(r, r + b, r != 0 && ((r < 0) != (b < 0)));
}
fn floor_div_u32(a: u32, b: u32) -> u32 {
    return select(a / max(b, 1u), 0u, b == 0u);
}
fn rem_u32(a: u32, b: u32) -> u32 {
    return select(a % max(b, 1u), 0u, b == 0u);
}
// Quotient and rest of numbers that a launch counts, d > 0. Vectors of a CPU divide integers one by
// one; here twice by the reciprocal, which is too small by 2^-19 while the errors of f32 are below
// 2^-21, so that neither quotient is too large. The first rest is at most n 2^-18 + d, the second
// less than 2 d.
fn divide_u32(n: u32, d: u32) -> vec2<u32> {
    let inverse = 0.999998f / f32(d);
    let first = u32(f32(n) * inverse);
    var rest = n - first * d;
    let second = u32(f32(rest) * inverse);
    rest -= second * d;
    let more = rest >= d;
    return vec2<u32>(first + second + select(0u, 1u, more), select(rest, rest - d, more));
}
fn floor_div_i64(a: i64, b: i64) -> i64 {
    if b == 0li { return 0li; }
    if b == -1li { return 0li - a; }
    let q = a / b;
    return select(q, q - 1li, (a - q * b != 0li) && ((a < 0li) != (b < 0li)));
}
fn rem_i64(a: i64, b: i64) -> i64 {
    if b == 0li || b == -1li { return 0li; }
    let r = a - (a / b) * b;
    return select(r, r + b, r != 0li && ((r < 0li) != (b < 0li)));
}
fn floor_div_u64(a: u64, b: u64) -> u64 {
    if b == 0lu { return 0lu; }
    return a / b;
}
fn rem_u64(a: u64, b: u64) -> u64 {
    if b == 0lu { return 0lu; }
    return a % b;
}
fn pow_u32(a: u32, b: u32) -> u32 {
    var base = a;
    var y = 1u;
    for (var e = b; e != 0u; e = e >> 1u) {
        if (e & 1u) == 1u { y *= base; }
        base *= base;
    }
    return y;
}
fn pow_i32(a: i32, b: i32) -> i32 {
    if b < 0 {
        if a == 1 { return 1; }
        if a == -1 { return select(-1, 1, (b & 1) == 0); }
        return 0;
    }
    return bitcast<i32>(pow_u32(bitcast<u32>(a), bitcast<u32>(b)));
}
fn pow_u64(a: u64, b: u64) -> u64 {
    var base = a;
    var y = 1lu;
    for (var e = b; e != 0lu; e = e >> 1u) {
        if (e & 1lu) == 1lu { y *= base; }
        base *= base;
    }
    return y;
}
fn pow_i64(a: i64, b: i64) -> i64 {
    if b < 0li {
        if a == 1li { return 1li; }
        if a == -1li { return select(-1li, 1li, (b & 1li) == 0li); }
        return 0li;
    }
    return bitcast<i64>(pow_u64(bitcast<u64>(a), bitcast<u64>(b)));
}
// `width` is the number of bits of the storage type of the value.
fn shl_i32(a: i32, b: i32, width: i32) -> i32 {
    return bitcast<i32>(shl_u32(bitcast<u32>(a), bitcast<u32>(b), u32(width)));
}
fn shr_i32(a: i32, b: i32, width: i32) -> i32 {
    return a >> select(31u, u32(b), b >= 0 && b < width);
}
fn shl_u32(a: u32, b: u32, width: u32) -> u32 {
    return select(a << (b & 31u), 0u, b >= width);
}
fn shr_u32(a: u32, b: u32, width: u32) -> u32 {
    return select(a >> (b & 31u), 0u, b >= width);
}
fn shl_i64(a: i64, b: i64, width: i64) -> i64 {
    return bitcast<i64>(shl_u64(bitcast<u64>(a), bitcast<u64>(b), bitcast<u64>(width)));
}
fn shr_i64(a: i64, b: i64, width: i64) -> i64 {
    return a >> select(63u, u32(b), b >= 0li && b < width);
}
fn shl_u64(a: u64, b: u64, width: u64) -> u64 {
    return select(a << (u32(b) & 63u), 0lu, b >= width);
}
fn shr_u64(a: u64, b: u64, width: u64) -> u64 {
    return select(a >> (u32(b) & 63u), 0lu, b >= width);
}
fn f32_to_i32(x: f32) -> i32 {
    if is_nan_f32(x) { return 0; }
    if x >= 2147483648.0f { return 2147483647; }
    if x <= -2147483648.0f { return bitcast<i32>(0x80000000u); }
    return i32(x);
}
fn f32_to_u32(x: f32) -> u32 {
    if is_nan_f32(x) || x <= 0.0f { return 0u; }
    if x >= 4294967296.0f { return 0xffffffffu; }
    return u32(x);
}
fn f32_to_i64(x: f32) -> i64 {
    if is_nan_f32(x) { return 0li; }
    if x >= 9223372036854775808.0f { return 9223372036854775807li; }
    if x <= -9223372036854775808.0f { return -9223372036854775807li - 1li; }
    return i64(x);
}
fn f32_to_u64(x: f32) -> u64 {
    if is_nan_f32(x) || x <= 0.0f { return 0lu; }
    if x >= 18446744073709551616.0f { return 18446744073709551615lu; }
    return u64(x);
}
// The upper word of a product.
fn mul_high_u32(a: u32, b: u32) -> u32 {
    let al = a & 0xffffu;
    let ah = a >> 16u;
    let bl = b & 0xffffu;
    let bh = b >> 16u;
    let low = al * bl;
    let mid = ah * bl + (low >> 16u);
    let other = al * bh + (mid & 0xffffu);
    return ah * bh + (mid >> 16u) + (other >> 16u);
}
// Sign extension by words: Mesa 22.3 takes `i64(x) < 0` for false.
fn i64_of_i32(x: i32) -> i64 {
    let high = select(0u, 0xffffffffu, x < 0);
    return bitcast<i64>(u64(bitcast<u32>(x)) | (u64(high) << 32u));
}
// Integers to floats that are rounded once more, to 16 bits: all bits lost here are gathered in the
// last one, so that the second rounding is the only one.
fn odd_f32_of_u32(x: u32) -> f32 {
    if x < 0x1000000u { return f32(x); }
    let lost = x & 0xffu;
    return f32((x >> 8u) | u32(lost != 0u)) * 256.0f;
}
fn odd_f32_of_i32(x: i32) -> f32 {
    if x < 0 { return -odd_f32_of_u32(0u - bitcast<u32>(x)); }
    return odd_f32_of_u32(bitcast<u32>(x));
}
fn odd_f32_of_u64(x: u64) -> f32 {
    let high = u32(x >> 32u);
    let low = u32(x & 0xfffffffflu);
    if high == 0u { return odd_f32_of_u32(low); }
    // The upper 32 significant bits; the bits below them only matter if they are not zero.
    let shift = countLeadingZeros(high);
    let top = u32((x << shift) >> 32u);
    let rest = u32((x << shift) & 0xfffffffflu);
    return odd_f32_of_u32(top | u32(rest != 0u)) * f32(1u << (31u - shift)) * 2.0f;
}
fn odd_f32_of_i64(x: i64) -> f32 {
    if x < 0li { return -odd_f32_of_u64(0lu - bitcast<u64>(x)); }
    return odd_f32_of_u64(bitcast<u64>(x));
}
