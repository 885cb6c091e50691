// Functions of f32. The hardware's own are fast but differ between drivers and lose accuracy near
// zeros; these are the same everywhere. Their errors are listed in PRECISION.md and held by
// `tests/precision`.
//
// Only + - * / and conversions are used, bits, and `fma` where quotients are corrected. A driver may
// fuse a product into a sum: products whose exactness matters are exact in f32, so fusing them
// changes nothing. It may not reorder sums, but some do where this looks exact, (x + y) - x for
// instance: bits are cleared in between.
//
// Polynomials: exp, log, tanh, erf, sin and cos as in teeny-cpu's `vecmath`; atan from Cephes (S.
// Moshier).

fn max_f32(a: f32, b: f32) -> f32 {
    return select(b, a, (a > b) | is_nan_f32(a));
}
fn is_nan4_f32(x: vec4<f32>) -> vec4<bool> {
    return (bitcast<vec4<u32>>(x) & vec4<u32>(0x7fffffffu)) > vec4<u32>(0x7f800000u);
}
// max_f32 of each.
fn max4_f32(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return select(select(b, a, a > b), a, is_nan4_f32(a));
}
fn min_f32(a: f32, b: f32) -> f32 {
    return select(b, a, (a < b) | is_nan_f32(a));
}
// min_f32 of each.
fn min4_f32(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    return select(select(b, a, a < b), a, is_nan4_f32(a));
}
fn sign_f32(x: f32) -> f32 {
    // by bits: x may be subnormal
    if is_nan_f32(x) || (bitcast<u32>(x) & 0x7fffffffu) == 0u { return x; }
    return select(1.0f, -1.0f, bitcast<i32>(x) < 0);
}
// x - x: a compiler may take it for 0, which it is not for infinities and NaN.
fn sub_self_f32(x: f32) -> f32 {
    if is_finite_f32(x) { return 0.0f; }
    return nan_f32();
}
// Whether this adapter rounds quotients and roots correctly. WGSL asks for 2.5 ulp where the divisor
// is between 2^-126 and 2^126, and for nothing beyond. `pipeline` sets this for the adapter.
const ROUNDS_QUOTIENTS: bool = true;
// a / b, rounded to nearest: of the significands by a reciprocal and two steps that add the remainder
// (Markstein 1990, "Computation of elementary functions on the IBM RISC System/6000"), then scaled.
// Divisors that are zero, subnormal, infinite or NaN, and subnormal dividends, are left to the
// hardware.
fn div_f32(a: f32, b: f32) -> f32 {
    if ROUNDS_QUOTIENTS { return a / b; }
    let ua = bitcast<u32>(a);
    let ub = bitcast<u32>(b);
    let ea = (ua >> 23u) & 255u;
    let eb = (ub >> 23u) & 255u;
    if eb - 1u >= 254u { return a / b; }
    let n = bitcast<f32>((ub & 0x807fffffu) | 0x3f800000u);
    if ea == 255u || (ua & 0x7fffffffu) == 0u { return a * n; }
    if ea == 0u { return a / b; }
    let m = bitcast<f32>((ua & 0x807fffffu) | 0x3f800000u);
    let guess = 1.0f / n;
    let r = fma(fma(-n, guess, 1.0f), guess, guess);
    let q = m * r;
    let near = fma(fma(-n, q, m), r, q);
    return scale_f32(fma(fma(-n, near, m), r, near), i32(ea) - i32(eb));
}
fn div4_f32(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    if ROUNDS_QUOTIENTS { return a / b; }
    return vec4<f32>(div_f32(a.x, b.x), div_f32(a.y, b.y), div_f32(a.z, b.z), div_f32(a.w, b.w));
}
// The root of x, rounded to nearest: the same steps. The lowest bit of the guess is cleared, since a
// compiler that knows the guess for a root takes its square for m, and the remainder for 0.
fn sqrt_f32(x: f32) -> f32 {
    if ROUNDS_QUOTIENTS { return sqrt(x); }
    let bits = bitcast<u32>(x);
    if bits - 0x00800000u >= 0x7f000000u { return sqrt(x); }
    let e = i32(bits >> 23u) - 127;
    let odd = e & 1;
    let m = bitcast<f32>((bits & 0x7fffffu) | 0x3f800000u) * f32(1 + odd); // 1 to 4
    let r = inverseSqrt(m);
    let s = bitcast<f32>(bitcast<u32>(m * r) & 0xfffffffeu);
    let near = fma(fma(-s, s, m), 0.5f * r, s);
    return scale_f32(fma(fma(-near, near, m), 0.5f * r, near), (e - odd) / 2);
}
fn sqrt4_f32(x: vec4<f32>) -> vec4<f32> {
    if ROUNDS_QUOTIENTS { return sqrt(x); }
    return vec4<f32>(sqrt_f32(x.x), sqrt_f32(x.y), sqrt_f32(x.z), sqrt_f32(x.w));
}
// 2^n x in two steps, so that neither factor overflows for n in -252..=254.
fn scale_f32(x: f32, n: i32) -> f32 {
    let a = n / 2;
    let b = n - a;
    return x * bitcast<f32>(u32(a + 127) << 23u) * bitcast<f32>(u32(b + 127) << 23u);
}
// e^r - 1 for |r| <= ln 2 / 2. Error below 1 ulp.
fn expm1_core_f32(r: f32) -> f32 {
    var p = 1.381435e-3f;
    p = p * r + 8.368851e-3f;
    p = p * r + 4.16684e-2f;
    p = p * r + 1.666652e-1f;
    p = p * r + 4.9999994e-1f;
    return (r * r) * p + r;
}
// The whole number n next to x / ln 2, and x - n ln 2. ln 2 comes in two parts: the product with
// the first, of 15 bits, is exact.
fn octave_f32(x: f32) -> vec2<f32> {
    let n = round(x * 1.44269504f);
    return vec2<f32>(n, (x - n * 0.693145751953125f) - n * 1.4286068e-6f);
}
fn exp_f32(x: f32) -> f32 {
    // Beyond these the result is 0 or inf; without branches, which vectors of a CPU take both.
    let o = octave_f32(clamp(x, -104.0f, 89.0f));
    let y = scale_f32(expm1_core_f32(o.y) + 1.0f, i32(o.x));
    return select(y, x, is_nan_f32(x));
}
// exp_f32 of each.
fn exp4_f32(x: vec4<f32>) -> vec4<f32> {
    let within = clamp(x, vec4<f32>(-104.0f), vec4<f32>(89.0f));
    let n = round(within * 1.44269504f);
    let r = (within - n * 0.693145751953125f) - n * 1.4286068e-6f;
    var p = r * 1.381435e-3f + 8.368851e-3f;
    p = p * r + 4.16684e-2f;
    p = p * r + 1.666652e-1f;
    p = p * r + 4.9999994e-1f;
    let e = ((r * r) * p + r) + 1.0f;
    let a = vec4<i32>(n) / 2;
    let b = vec4<i32>(n) - a;
    let y = e * bitcast<vec4<f32>>(vec4<u32>(a + 127) << vec4<u32>(23u))
        * bitcast<vec4<f32>>(vec4<u32>(b + 127) << vec4<u32>(23u));
    return select(y, x, is_nan4_f32(x));
}
fn exp2_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    if x >= 128.0f { return inf_f32(); }
    if x < -150.0f { return 0.0f; }
    let n = round(x);
    return scale_f32(expm1_core_f32((x - n) * 0.693147181f) + 1.0f, i32(n));
}
// 2^n (e^r - 1) + (2^n - 1): the second term is exact.
fn expm1_f32(x: f32) -> f32 {
    if abs(x) < 0.34657359f { return expm1_core_f32(x); }
    if is_nan_f32(x) || abs(x) > 16.0f { return exp_f32(x) - 1.0f; }
    let o = octave_f32(x);
    let power = scale_f32(1.0f, i32(o.x));
    return power * expm1_core_f32(o.y) + (power - 1.0f);
}
// x = m 2^e with m in sqrt(1/2)..sqrt(2); subnormals by their integer bits. Gives (m - 1, e).
fn split_f32(x: f32) -> vec2<f32> {
    var bits = bitcast<u32>(x);
    var e = 0.0f;
    if bits < 0x00800000u {
        bits = bitcast<u32>(f32(bits));
        e = -149.0f;
    }
    let shifted = bits + 0x004afb0du; // so that the exponent steps at sqrt(2)
    e += f32(i32(shifted >> 23u) - 127);
    let m = bitcast<f32>((shifted & 0x7fffffu) + 0x3f3504f3u);
    return vec2<f32>(m - 1.0f, e);
}
// log(1 + f) - f for f in sqrt(1/2)-1..sqrt(2)-1.
fn log_core_f32(f: f32) -> f32 {
    var p = -7.634222e-2f;
    p = p * f + 1.2765265e-1f;
    p = p * f - 1.316199e-1f;
    p = p * f + 1.4201392e-1f;
    p = p * f - 1.6623148e-1f;
    p = p * f + 2.0001236e-1f;
    p = p * f - 2.5000826e-1f;
    p = p * f + 3.333333e-1f;
    let z = f * f;
    return p * f * z - 0.5f * z;
}
// NaN below zero, -inf at zero, otherwise not special.
fn log_edge_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    if (bits & 0x7fffffffu) == 0u { return -inf_f32(); }
    if bits == 0x7f800000u { return x; }
    return nan_f32();
}
fn is_edge_f32(x: f32) -> bool {
    let bits = bitcast<u32>(x);
    return bits == 0u || bits >= 0x7f800000u;
}
fn log_f32(x: f32) -> f32 {
    if is_edge_f32(x) { return log_edge_f32(x); }
    let s = split_f32(x);
    return (s.x + (log_core_f32(s.x) + 1.4286068e-6f * s.y)) + 0.693145751953125f * s.y;
}
fn log2_f32(x: f32) -> f32 {
    if is_edge_f32(x) { return log_edge_f32(x); }
    let s = split_f32(x);
    let y = log_core_f32(s.x);
    // log2(e) = 1 + 0.4426…: the sum begins with the small terms.
    return (((y * 0.44269504088896f + s.x * 0.44269504088896f) + y) + s.x) + s.y;
}
// Products with the upper parts of the constants and of log(m) are exact, and the sum is rounded
// once at the end, so that powers of ten have whole logarithms (FreeBSD's e_log10f.c).
fn log10_f32(x: f32) -> f32 {
    if is_edge_f32(x) { return log_edge_f32(x); }
    let s = split_f32(x);
    let tail = log_core_f32(s.x);
    let high = upper_f32(s.x + tail);
    let low = (s.x - high) + tail;
    let large = s.y * 3.0102920532e-1f;
    let part = high * 4.3432617188e-1f;
    let y = upper_f32(large + part);
    let rest = s.y * 7.9034151668e-7f + low * 4.3432617188e-1f - (low + high) * 3.1689971365e-5f;
    return y + ((part - (y - large)) + rest);
}
fn log1p_f32(x: f32) -> f32 {
    if x > -0.2928932f && x < 0.41421356f {
        return x + log_core_f32(x);
    }
    // The cleared bit keeps compilers from taking x - (u - 1) for 0.
    let u = bitcast<f32>(bitcast<u32>(1.0f + x) & 0xfffffffeu);
    if is_edge_f32(u) { return log_edge_f32(u); }
    // The rounding error of u, to first order.
    return log_f32(u) + (x - (u - 1.0f)) / u;
}
fn tanh_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    let a = abs(x);
    if a < 0.6f {
        let z = x * x;
        var p = -5.9058727e-3f;
        p = p * z + 2.0805389e-2f;
        p = p * z - 5.3786684e-2f;
        p = p * z + 1.3331959e-1f;
        p = p * z - 3.33333e-1f;
        return z * x * p + x;
    }
    // Beyond 10 the result rounds to one; drivers' own functions give NaN there.
    return copysign_f32(1.0f - 2.0f / (exp_f32(2.0f * min(a, 10.0f)) + 1.0f), x);
}
// A third of the exponent by integer division of the bits, 3% off at most, then three steps of
// Newton's method on t^3 = a: each squares the error. The bits of a subnormal number are its
// multiple of 2^-149.
fn cbrt_f32(x: f32) -> f32 {
    let bits = bitcast<u32>(x) & 0x7fffffffu;
    if bits == 0u || !is_finite_f32(x) { return x; }
    let small = bits < 0x800000u;
    let a = select(abs(x), f32(bits * 2u), small);
    var t = bitcast<f32>(bitcast<u32>(a) / 3u + 709958130u);
    t = t - (t - a / (t * t)) * 0.333333333f;
    t = t - (t - a / (t * t)) * 0.333333333f;
    t = t - (t - a / (t * t)) * 0.333333333f;
    return copysign_f32(select(t, t * 8.8817841970012523e-16f, small), x);
}
fn erf_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    let a = abs(x);
    if a < 0.9f {
        let z = x * x;
        var p = 8.215379e-5f;
        p = p * z - 8.105952e-4f;
        p = p * z + 5.197796e-3f;
        p = p * z - 2.6858104e-2f;
        p = p * z + 1.1283673e-1f;
        p = p * z - 3.7612632e-1f;
        p = p * z + 1.2837917e-1f;
        return x * p + x;
    }
    let t = min(a, 4.0f);
    var p = 2.0828616e-5f;
    p = p * t - 4.313935e-4f;
    p = p * t + 4.1562547e-3f;
    p = p * t - 2.5080616e-2f;
    p = p * t + 1.0822038e-1f;
    p = p * t + 6.3340086e-1f;
    p = p * t + 1.1294883f;
    p = p * t - 1.6920474e-4f;
    return copysign_f32(1.0f - exp_f32(-p), x);
}
// The nearest multiple of pi/2 for large finite x, after Payne and Hanek (1983): x is a whole
// number of 24 bits times 2^e, and of the product with 1/(2 pi) only the 64 bits after the point
// matter. Integers alone, so the same on every GPU.
fn large_quadrant_f32(x: f32) -> vec2<f32> {
    // 1/(2 pi) in words, beginning with the one before the point.
    var inverse = array<u32, 8>(0x00000000u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u, 0x7d4d3770u,
        0x36d8a566u, 0x4f10e410u, 0x7f9458eau);
    let bits = bitcast<u32>(x);
    let m = (bits << 8u) | 0x80000000u;
    let e = ((bits >> 23u) & 0xffu) - 126u;
    let i = e >> 5u;
    let s = e & 31u;
    // Shifts by 32 are undefined: first by one, then by 31 - s.
    let high = (inverse[i] << s) | ((inverse[i + 1u] >> 1u) >> (31u - s));
    let mid = (inverse[i + 1u] << s) | ((inverse[i + 2u] >> 1u) >> (31u - s));
    let low = (inverse[i + 2u] << s) | ((inverse[i + 3u] >> 1u) >> (31u - s));
    let below = m * mid + mul_high_u32(m, low);
    let above = m * high + mul_high_u32(m, mid) + u32(below < m * mid);
    // Two bits of quadrant, then the fraction of a quadrant, taken as signed: -1/2..1/2.
    var q = above >> 30u;
    var top = (above << 2u) | (below >> 30u);
    var rest = below << 2u;
    let negative = (top >> 31u) == 1u;
    if negative {
        q += 1u;
        top = ~top + u32(rest == 0u);
        rest = 0u - rest;
    }
    var zeros = countLeadingZeros(top);
    if top == 0u {
        top = rest;
        rest = 0u;
        zeros = 32u + countLeadingZeros(top);
    }
    top = (top << (zeros & 31u)) | ((rest >> 1u) >> (31u - (zeros & 31u)));
    // Times pi/4 as a fraction of 2^32, rounded once by the conversion.
    let r = f32(mul_high_u32(top, 0xc90fdaa2u)) * bitcast<f32>((96u - zeros) << 23u);
    let backwards = (bits >> 31u) == 1u;
    return vec2<f32>(select(r, -r, negative != backwards), f32(select(q, 4u - q, backwards) & 3u));
}
// x minus the nearest multiple of pi/2, and the number of that multiple modulo 4. pi/2 comes in
// four parts (Cody and Waite 1980) whose first three products are exact here.
fn quadrant_f32(x: f32) -> vec2<f32> {
    if abs(x) > 6400.0f { return large_quadrant_f32(x); }
    let n = round(x * 0.63661977236758134f);
    var r = x - n * 1.5703125f;
    r = r - n * 4.837512969970703e-4f;
    r = r - n * 7.549533620476723e-8f;
    r = r - n * 2.5633440682570896e-12f;
    return vec2<f32>(r, n - 4.0f * floor(n * 0.25f));
}
fn sin_core_f32(r: f32) -> f32 {
    let z = r * r;
    return z * r * ((-1.9515367e-4f * z + 8.332164e-3f) * z - 1.6666655e-1f) + r;
}
fn cos_core_f32(r: f32) -> f32 {
    let z = r * r;
    return z * z * ((2.4436285e-5f * z - 1.3887349e-3f) * z + 4.1666646e-2f) + (1.0f - 0.5f * z);
}
// sin(r + q pi/2).
fn sin_quadrant_f32(r: f32, q: i32) -> f32 {
    let y = select(sin_core_f32(r), cos_core_f32(r), (q & 1) == 1);
    return select(y, -y, (q & 2) == 2);
}
fn sin_f32(x: f32) -> f32 {
    if !is_finite_f32(x) { return nan_f32(); }
    let q = quadrant_f32(x);
    return sin_quadrant_f32(q.x, i32(q.y));
}
fn cos_f32(x: f32) -> f32 {
    if !is_finite_f32(x) { return nan_f32(); }
    let q = quadrant_f32(x);
    return sin_quadrant_f32(q.x, i32(q.y) + 1);
}
fn tan_f32(x: f32) -> f32 {
    if !is_finite_f32(x) { return nan_f32(); }
    let q = quadrant_f32(x);
    let s = sin_core_f32(q.x);
    let c = cos_core_f32(q.x);
    let odd = (i32(q.y) & 1) == 1;
    return div_f32(select(s, -c, odd), select(c, s, odd));
}
fn atan_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    let a = abs(x);
    var base = 0.0f;
    var low = 0.0f;
    var t = a;
    if a > 2.414213562f {
        base = 1.5707963705062866f;
        low = -4.371139e-8f;
        t = div_f32(-1.0f, a);
    } else if a > 0.4142135624f {
        base = 0.7853981852531433f;
        low = -2.1855694e-8f;
        t = div_f32(a - 1.0f, a + 1.0f);
    }
    let z = t * t;
    let p = (((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z
        - 3.33329491539e-1f) * z * t;
    return copysign_f32(base + (t + (p + low)), x);
}
