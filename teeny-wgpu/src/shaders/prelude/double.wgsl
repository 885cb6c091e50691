// Functions of f64, for adapters that have it, and 64-bit integers for its bits. The transcendental
// ones are in `double_math.wgsl`.

fn is_nan_f64(x: f64) -> bool {
    return (bitcast<u64>(x) & 0x7ffffffffffffffflu) > 0x7ff0000000000000lu;
}
fn is_finite_f64(x: f64) -> bool {
    return (bitcast<u64>(x) & 0x7ff0000000000000lu) != 0x7ff0000000000000lu;
}
fn nan_f64() -> f64 {
    var bits = 0x7ff8000000000000lu;
    return bitcast<f64>(bits);
}
// The hardware rounds quotients and roots of f64 correctly.
fn div_f64(a: f64, b: f64) -> f64 { return a / b; }
fn sqrt_f64(x: f64) -> f64 { return sqrt(x); }
fn max_f64(a: f64, b: f64) -> f64 {
    return select(b, a, (a > b) | is_nan_f64(a));
}
fn min_f64(a: f64, b: f64) -> f64 {
    return select(b, a, (a < b) | is_nan_f64(a));
}
fn sign_f64(x: f64) -> f64 {
    // by bits: x may be subnormal
    if is_nan_f64(x) || (bitcast<u64>(x) & 0x7ffffffffffffffflu) == 0lu { return x; }
    return select(1.0lf, -1.0lf, bitcast<i64>(x) < 0li);
}
fn sub_self_f64(x: f64) -> f64 {
    if is_finite_f64(x) { return 0.0lf; }
    return nan_f64();
}
fn f64_to_i32(x: f64) -> i32 {
    if is_nan_f64(x) { return 0; }
    return i32(max(min(x, 2147483647.0lf), -2147483648.0lf));
}
fn f64_to_u32(x: f64) -> u32 {
    if is_nan_f64(x) { return 0u; }
    return u32(max(min(x, 4294967295.0lf), 0.0lf));
}
fn f64_to_i64(x: f64) -> i64 {
    if is_nan_f64(x) { return 0li; }
    if x >= 9223372036854775808.0lf { return 9223372036854775807li; }
    if x <= -9223372036854775808.0lf { return -9223372036854775807li - 1li; }
    return i64(x);
}
fn f64_to_u64(x: f64) -> u64 {
    if is_nan_f64(x) || x <= 0.0lf { return 0lu; }
    if x >= 18446744073709551616.0lf { return 18446744073709551615lu; }
    return u64(x);
}
// A float that is rounded once more, to 16 bits: what is lost here is gathered in the last bit.
fn odd_f32_of_f64(x: f64) -> f32 {
    let nearest = f32(x);
    let bits = bitcast<u32>(nearest);
    let back = bitcast<u64>(f64(nearest)) & 0x7ffffffffffffffflu;
    let exact = bitcast<u64>(x) & 0x7ffffffffffffffflu;
    if back == exact { return nearest; }
    return bitcast<f32>(select(bits, bits - 1u, back > exact) | 1u);
}
fn inf_f64() -> f64 {
    var bits = 0x7ff0000000000000lu;
    return bitcast<f64>(bits);
}
