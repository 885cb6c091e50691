// Transcendental functions of f64, which WGSL has none of. After FreeBSD's msun (Sun, 1993),
// shortened: one code path a function where the original has special cases for speed. Their
// errors are listed in PRECISION.md and held by `tests/precision`; about assumptions see
// `float.wgsl`.

// Chosen, not joined from two masked words, as `copysign_f32` is.
fn copysign_f64(magnitude: f64, sign: f64) -> f64 {
    let bits = bitcast<u64>(magnitude) & 0x7ffffffffffffffflu;
    return bitcast<f64>(select(bits, bits + 0x8000000000000000lu, bitcast<i64>(sign) < 0li));
}
// 2^n x in two steps, so that neither factor overflows for n in -2044..=2046.
fn scale_f64(x: f64, n: i32) -> f64 {
    let a = n / 2;
    let b = n - a;
    return x * bitcast<f64>(u64(u32(a + 1023)) << 52u) * bitcast<f64>(u64(u32(b + 1023)) << 52u);
}
// e^(high - low) - 1 for |high - low| <= ln 2 / 2.
fn expm1_core_f64(high: f64, low: f64) -> f64 {
    let r = high - low;
    let t = r * r;
    let c = r - t * (1.66666666666666019037e-01lf + t * (-2.77777777770155933842e-03lf + t
        * (6.61375632143793436117e-05lf
        + t * (-1.65339022054652515390e-06lf + t * 4.13813679705723846039e-08lf))));
    return (r * c / (2.0lf - c) - low) + high;
}
// The nearest whole number, of two the even one. Drivers' own function gives 1 for 1.5 where vectors
// have 256 bits (llvmpipe of Mesa 22).
fn round_f64(x: f64) -> f64 {
    let part = x - floor(x);
    return select(floor(x), ceil(x), part > 0.5lf || (part == 0.5lf && 0.5lf * x - floor(0.5lf * x) == 0.75lf));
}
// x - n ln 2 with ln 2 in two parts, the product with the first exact.
fn within_octave_f64(x: f64, n: f64) -> f64 {
    return expm1_core_f64(x - n * 6.93147180369123816490e-01lf, n * 1.90821492927058770002e-10lf);
}
fn exp_f64(x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    if x > 709.9lf { return inf_f64(); }
    if x < -746.0lf { return 0.0lf; }
    let n = round(x * 1.4426950408889634lf);
    return scale_f64(within_octave_f64(x, n) + 1.0lf, i32(n));
}
fn exp2_f64(x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    if x >= 1024.0lf { return inf_f64(); }
    if x < -1076.0lf { return 0.0lf; }
    let n = round(x);
    return scale_f64(expm1_core_f64((x - n) * 0.6931471805599453lf, 0.0lf) + 1.0lf, i32(n));
}
fn expm1_f64(x: f64) -> f64 {
    if abs(x) < 0.34657359lf { return expm1_core_f64(x, 0.0lf); }
    if is_nan_f64(x) || abs(x) > 36.0lf { return exp_f64(x) - 1.0lf; }
    let n = round(x * 1.4426950408889634lf);
    let power = scale_f64(1.0lf, i32(n));
    return power * within_octave_f64(x, n) + (power - 1.0lf);
}
// x = (1 + f) 2^e with 1 + f in sqrt(1/2)..sqrt(2), and the rest of log(1 + f) = f - half + rest,
// half = f^2 / 2.
struct Logarithm64 { e: f64, f: f64, half: f64, rest: f64 }
fn logarithm_f64(x: f64) -> Logarithm64 {
    var bits = bitcast<u64>(x);
    var e = -1023;
    if bits < 0x0010000000000000lu {
        bits = bitcast<u64>(f64(bits));
        e = -2097;
    }
    let shifted = bits + 0x00095f619980c433lu; // so that the exponent steps at sqrt(2)
    e += i32(u32(shifted >> 52u));
    let f = bitcast<f64>((shifted & 0x000ffffffffffffflu) + 0x3fe6a09e667f3bcdlu) - 1.0lf;
    let s = f / (2.0lf + f);
    let z = s * s;
    let r = z * (6.666666666666735130e-01lf + z * (3.999999999940941908e-01lf + z
        * (2.857142874366239149e-01lf + z * (2.222219843214978396e-01lf
        + z * (1.818357216161805012e-01lf + z * (1.531383769920937332e-01lf + z
        * 1.479819860511658591e-01lf))))));
    let half = 0.5lf * f * f;
    return Logarithm64(f64(e), f, half, s * (half + r));
}
fn is_edge_f64(x: f64) -> bool {
    let bits = bitcast<u64>(x);
    return bits == 0lu || bits >= 0x7ff0000000000000lu;
}
// NaN below zero, -inf at zero, otherwise not special.
fn log_edge_f64(x: f64) -> f64 {
    let bits = bitcast<u64>(x);
    if (bits & 0x7ffffffffffffffflu) == 0lu { return -inf_f64(); }
    if bits == 0x7ff0000000000000lu { return x; }
    return nan_f64();
}
fn log_f64(x: f64) -> f64 {
    if is_edge_f64(x) { return log_edge_f64(x); }
    let l = logarithm_f64(x);
    return l.e * 6.93147180369123816490e-01lf - ((l.half - (l.rest + l.e
        * 1.90821492927058770002e-10lf)) - l.f);
}
// The upper 21 bits of the mantissa: products of two such numbers are exact.
fn upper_f64(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) & 0xffffffff00000000lu);
}
// e times one constant and log(1 + f) times another, both in two parts.
fn scaled_log_f64(x: f64, of_e: f64, of_e_low: f64, scale: f64, scale_low: f64) -> f64 {
    if is_edge_f64(x) { return log_edge_f64(x); }
    let l = logarithm_f64(x);
    let high = upper_f64(l.f - l.half);
    let low = ((l.f - high) - l.half) + l.rest;
    let e = l.e * of_e;
    let y = high * scale;
    let z = (low + high) * scale_low + low * scale + l.e * of_e_low;
    let sum = e + y;
    return (z + ((e - sum) + y)) + sum;
}
fn log2_f64(x: f64) -> f64 {
    return scaled_log_f64(x, 1.0lf, 0.0lf, 1.4426950407214463lf, 1.6751713164886512e-10lf);
}
fn log10_f64(x: f64) -> f64 {
    return scaled_log_f64(x, 0.30102992057800293lf, 7.508597826552624e-8lf, 0.4342944622039795lf,
        1.9699272335463627e-8lf);
}
fn log1p_f64(x: f64) -> f64 {
    if abs(x) < 1.0e-9lf { return x - 0.5lf * x * x; }
    let u = bitcast<f64>(bitcast<u64>(1.0lf + x) & 0xfffffffffffffffelu);
    if is_edge_f64(u) { return log_edge_f64(u); }
    return log_f64(u) + (x - (u - 1.0lf)) / u;
}
fn tanh_f64(x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    let a = min(abs(x), 22.0lf);
    if a < 0.5lf {
        let t = expm1_f64(2.0lf * x);
        return t / (t + 2.0lf);
    }
    return copysign_f64(1.0lf - 2.0lf / (exp_f64(2.0lf * a) + 1.0lf), x);
}
// As `cbrt_f32`, with four steps.
fn cbrt_f64(x: f64) -> f64 {
    let bits = bitcast<u64>(x) & 0x7ffffffffffffffflu;
    if bits == 0lu || !is_finite_f64(x) { return x; }
    // The bits of a subnormal number are its multiple of 2^-1074.
    let small = bits < 0x10000000000000lu;
    let multiple = f64(u32(bits >> 32u)) * 4294967296.0lf + f64(u32(bits & 0xfffffffflu));
    let a = select(abs(x), multiple, small);
    var t = bitcast<f64>(bitcast<u64>(a) / 3lu + 0x2a9f789300000000lu);
    for (var i = 0; i < 4; i++) {
        t = t - (t - a / (t * t)) / 3.0lf;
    }
    return copysign_f64(select(t, t * 1.7031839360032603e-108lf, small), x);
}
// The series 2/sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (1*3*...*(2n+1)) below 2, the continued
// fraction of erfc above (Abramowitz & Stegun 7.1.6, 7.1.14).
fn erf_f64(x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    let a = min(abs(x), 6.0lf);
    // e^(-a^2) by two factors, the first of an exact square.
    let high = upper_f64(a);
    let density = exp_f64(-high * high) * exp_f64((high - a) * (high + a)) * 1.1283791670955126lf;
    if a < 2.0lf {
        var term = a;
        var sum = a;
        for (var n = 1; n < 60; n++) {
            term *= 2.0lf * a * a / f64(2 * n + 1);
            sum += term;
        }
        return copysign_f64(density * sum, x);
    }
    var fraction = a;
    for (var n = 60; n > 0; n--) { fraction = a + 0.5lf * f64(n) / fraction; }
    return copysign_f64(1.0lf - 0.5lf * density / fraction, x);
}
fn mul_high_u64(a: u64, b: u64) -> u64 {
    let al = a & 0xfffffffflu;
    let ah = a >> 32u;
    let bl = b & 0xfffffffflu;
    let bh = b >> 32u;
    let mid = ah * bl + ((al * bl) >> 32u);
    let other = al * bh + (mid & 0xfffffffflu);
    return ah * bh + (mid >> 32u) + (other >> 32u);
}
struct Quadrant64 { r: f64, q: i32 }
// As `large_quadrant_f32`, in words of 64 bits.
fn large_quadrant_f64(x: f64) -> Quadrant64 {
    // 1/(2 pi) in words, beginning with the two before the point.
    var inverse = array<u32, 40>(0x00000000u, 0x00000000u, 0x28be60dbu, 0x9391054au, 0x7f09d5f4u,
        0x7d4d3770u, 0x36d8a566u, 0x4f10e410u,
        0x7f9458eau, 0xf7aef158u, 0x6dc91b8eu, 0x909374b8u, 0x01924bbau, 0x82746487u, 0x3f877ac7u,
        0x2c4a69cfu,
        0xba208d7du, 0x4baed121u, 0x3a671c09u, 0xad17df90u, 0x4e64758eu, 0x60d4ce7du, 0x272117e2u,
        0xef7e4a0eu,
        0xc7fe25ffu, 0xf7816603u, 0xfbcbc462u, 0xd6829b47u, 0xdb4d9fb3u, 0xc9f2c26du, 0xd3d18fd9u,
        0xa797fa8bu,
        0x5d49eeb1u, 0xfaf97c5eu, 0xcf41ce7du, 0xe294a4bau, 0x9afed7ecu, 0x47e35742u, 0x1580cc11u,
        0xbf1edaeau);
    let bits = bitcast<u64>(x);
    let m = (bits << 11u) | 0x8000000000000000lu;
    let e = (u32(bits >> 52u) & 0x7ffu) - 1022u;
    let s = e & 31u;
    var words: array<u64, 6>;
    for (var k = 0u; k < 6u; k++) {
        let at = (e >> 5u) + k;
        words[k] = u64((inverse[at] << s) | ((inverse[at + 1u] >> 1u) >> (31u - s)));
    }
    let high = (words[0] << 32u) | words[1];
    let mid = (words[2] << 32u) | words[3];
    let low = (words[4] << 32u) | words[5];
    let below = m * mid + mul_high_u64(m, low);
    let above = m * high + mul_high_u64(m, mid) + select(0lu, 1lu, below < m * mid);
    var q = i32(u32(above >> 62u));
    var top = (above << 2u) | (below >> 62u);
    var rest = below << 2u;
    let negative = (top >> 63u) == 1lu;
    if negative {
        q += 1;
        top = ~top + select(0lu, 1lu, rest == 0lu);
        rest = 0lu - rest;
    }
    let r = (f64(top) + f64(rest) * 5.421010862427522e-20lf)
        * 8.515303950216386e-20lf; // pi/2 2^-64
    let backwards = (bits >> 63u) == 1lu;
    return Quadrant64(select(r, -r, negative != backwards), select(q, -q, backwards));
}
// The products are exact or small: in this order nothing is lost. A compiler that adds them first loses
// the last digits of r (NVIDIA 580.159 did). It cannot do so here: it does not know that `zero` is 0.
fn quadrant_f64(x: f64) -> Quadrant64 {
    if abs(x) > 1.0e6lf { return large_quadrant_f64(x); }
    let bits = bitcast<u64>(x);
    let zero = bits & (bits >> 1u) & 0x2000000000000000lu; // the exponent is at most 0x413
    let n = round(x * 0.63661977236758134lf);
    let r = x - n * 1.57079632673412561417e+00lf;
    let s = bitcast<f64>(bitcast<u64>(r) ^ zero) - n * 6.07710050630396597660e-11lf;
    let t = bitcast<f64>(bitcast<u64>(s) ^ zero) - n * 2.02226624871116645580e-21lf;
    return Quadrant64(bitcast<f64>(bitcast<u64>(t) ^ zero) - n * 8.47842766036889956997e-32lf, i32(n));
}
fn sin_core_f64(r: f64) -> f64 {
    let z = r * r;
    return z * r * (-1.66666666666666324348e-01lf + z * (8.33333333332248946124e-03lf + z
        * (-1.98412698298579493134e-04lf
        + z * (2.75573137070700676789e-06lf + z * (-2.50507602534068634195e-08lf + z
        * 1.58969099521155010221e-10lf))))) + r;
}
fn cos_core_f64(r: f64) -> f64 {
    let z = r * r;
    return z * z * (4.16666666666666019037e-02lf + z * (-1.38888888888741095749e-03lf + z
        * (2.48015872894767294178e-05lf
        + z * (-2.75573143513906633035e-07lf + z * (2.08757232129817482790e-09lf + z
        * -1.13596475577881948265e-11lf))))) + (1.0lf - 0.5lf * z);
}
fn sin_quadrant_f64(r: f64, q: i32) -> f64 {
    let y = select(sin_core_f64(r), cos_core_f64(r), (q & 1) == 1);
    return select(y, -y, (q & 2) == 2);
}
fn sin_f64(x: f64) -> f64 {
    if !is_finite_f64(x) { return nan_f64(); }
    let q = quadrant_f64(x);
    return sin_quadrant_f64(q.r, q.q);
}
fn cos_f64(x: f64) -> f64 {
    if !is_finite_f64(x) { return nan_f64(); }
    let q = quadrant_f64(x);
    return sin_quadrant_f64(q.r, q.q + 1);
}
fn tan_f64(x: f64) -> f64 {
    if !is_finite_f64(x) { return nan_f64(); }
    let q = quadrant_f64(x);
    let s = sin_core_f64(q.r);
    let c = cos_core_f64(q.r);
    return select(s / c, -c / s, (q.q & 1) == 1);
}
fn atan_f64(x: f64) -> f64 {
    if is_nan_f64(x) { return x; }
    let a = abs(x);
    var t = a;
    var high = 0.0lf;
    var low = 0.0lf;
    if a >= 2.4375lf {
        t = -1.0lf / a;
        high = 1.57079632679489655800e+00lf;
        low = 6.12323399573676603587e-17lf;
    } else if a >= 1.1875lf {
        t = (a - 1.5lf) / (1.0lf + 1.5lf * a);
        high = 9.82793723247329054082e-01lf;
        low = 1.39033110312309984516e-17lf;
    } else if a >= 0.6875lf {
        t = (a - 1.0lf) / (a + 1.0lf);
        high = 7.85398163397448278999e-01lf;
        low = 3.06161699786838301793e-17lf;
    } else if a >= 0.4375lf {
        t = (2.0lf * a - 1.0lf) / (2.0lf + a);
        high = 4.63647609000806093515e-01lf;
        low = 2.26987774529616870924e-17lf;
    }
    let z = t * t;
    let p = z * (3.33333333333329318027e-01lf + z * (-1.99999999998764832476e-01lf + z
        * (1.42857142725034663711e-01lf
        + z * (-1.11111104054623557880e-01lf + z * (9.09088713343650656196e-02lf + z
        * (-7.69187620504482999495e-02lf
        + z * (6.66107313738753120669e-02lf + z * (-5.83357013379057348645e-02lf + z
        * (4.97687799461593236017e-02lf
        + z * (-3.65315727442169155270e-02lf + z * 1.62858201153657823623e-02lf))))))))));
    return copysign_f64(high - ((t * p - low) - t), x);
}
