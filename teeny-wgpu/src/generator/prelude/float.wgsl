// Functions of f32. The hardware's own are fast but differ between drivers and lose accuracy near zeros; these are the same everywhere, to a few units in
// the last place. Polynomials: Cephes (S. Moshier), pow: FreeBSD's e_powf.c (Sun, 1993), erf: N. Juffa's minimax fits.

fn max_f32(a: f32, b: f32) -> f32 {
    if is_nan_f32(a) { return a; }
    if is_nan_f32(b) { return b; }
    return select(b, a, a > b);
}
fn min_f32(a: f32, b: f32) -> f32 {
    if is_nan_f32(a) { return a; }
    if is_nan_f32(b) { return b; }
    return select(b, a, a < b);
}
fn sign_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    return select(select(x, -1.0f, x < 0.0f), 1.0f, x > 0.0f);
}
// x - x: a compiler may take it for 0, which it is not for infinities and NaN.
fn sub_self_f32(x: f32) -> f32 {
    if is_finite_f32(x) { return 0.0f; }
    return nan_f32();
}
// 2^n x in two steps, so that neither factor overflows for n in -252..=254.
fn scale_f32(x: f32, n: i32) -> f32 {
    let a = n / 2;
    let b = n - a;
    return x * bitcast<f32>(u32(a + 127) << 23u) * bitcast<f32>(u32(b + 127) << 23u);
}
// e^r for |r| <= ln 2 / 2. Error below 1 ulp.
fn exp_core_f32(r: f32) -> f32 {
    var p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    return p * (r * r) + r + 1.0f;
}
fn exp_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    if x > 88.8f { return inf_f32(); }
    if x < -104.0f { return 0.0f; }
    let n = round(x * 1.44269504f);
    // ln 2 in two parts: the first product is exact.
    let r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    return scale_f32(exp_core_f32(r), i32(n));
}
fn exp2_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    if x >= 128.0f { return inf_f32(); }
    if x < -150.0f { return 0.0f; }
    let n = round(x);
    let r = x - n;
    var p = 1.535336188319500e-4f;
    p = p * r + 1.339887440266574e-3f;
    p = p * r + 9.618437357674640e-3f;
    p = p * r + 5.550332471162809e-2f;
    p = p * r + 2.402264791363012e-1f;
    p = p * r + 6.931472028550421e-1f;
    return scale_f32(p * r + 1.0f, i32(n));
}
fn expm1_f32(x: f32) -> f32 {
    if abs(x) >= 0.34657359f || is_nan_f32(x) {
        return exp_f32(x) - 1.0f;
    }
    var p = 1.9875691500e-4f;
    p = p * x + 1.3981999507e-3f;
    p = p * x + 8.3334519073e-3f;
    p = p * x + 4.1665795894e-2f;
    p = p * x + 1.6666665459e-1f;
    p = p * x + 5.0000001201e-1f;
    return p * (x * x) + x;
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
    var p = 7.0376836292e-2f;
    p = p * f - 1.1514610310e-1f;
    p = p * f + 1.1676998740e-1f;
    p = p * f - 1.2420140846e-1f;
    p = p * f + 1.4249322787e-1f;
    p = p * f - 1.6668057665e-1f;
    p = p * f + 2.0000714765e-1f;
    p = p * f - 2.4999993993e-1f;
    p = p * f + 3.3333331174e-1f;
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
    let y = log_core_f32(s.x) - 2.12194440e-4f * s.y;
    return (s.x + y) + 0.693359375f * s.y;
}
fn log2_f32(x: f32) -> f32 {
    if is_edge_f32(x) { return log_edge_f32(x); }
    let s = split_f32(x);
    let y = log_core_f32(s.x);
    // log2(e) = 1 + 0.4426…: the sum begins with the small terms.
    return (((y * 0.44269504088896f + s.x * 0.44269504088896f) + y) + s.x) + s.y;
}
fn log1p_f32(x: f32) -> f32 {
    if x > -0.2928932f && x < 0.41421356f {
        return x + log_core_f32(x);
    }
    return log_f32(1.0f + x);
}
fn tanh_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    let a = abs(x);
    if a < 0.625f {
        let z = x * x;
        var p = -5.70498872745e-3f;
        p = p * z + 2.06390887954e-2f;
        p = p * z - 5.37397155531e-2f;
        p = p * z + 1.33314422036e-1f;
        p = p * z - 3.33332819422e-1f;
        return p * z * x + x;
    }
    if a > 9.1f { return copysign_f32(1.0f, x); }
    return copysign_f32(1.0f - 2.0f / (exp_f32(2.0f * a) + 1.0f), x);
}
fn erf_f32(x: f32) -> f32 {
    if is_nan_f32(x) { return x; }
    let t = min(abs(x), 4.0f);
    let s = x * x;
    if t > 0.921875f {
        let q = t * t;
        var r = -1.72853470e-5f * t + 3.83197126e-4f;
        let u = -3.88396438e-3f * t + 2.42546219e-2f;
        r = r * q + u;
        r = r * t - 1.06777877e-1f;
        r = r * t - 6.34846687e-1f;
        r = r * t - 1.28717512e-1f;
        r = r * t - t;
        return copysign_f32(1.0f - exp_f32(r), x);
    }
    var r = -5.96761703e-4f;
    r = r * s + 4.99119423e-3f;
    r = r * s - 2.67681349e-2f;
    r = r * s + 1.12819925e-1f;
    r = r * s - 3.76125336e-1f;
    r = r * s + 1.28379166e-1f;
    return r * x + x;
}
// x minus the nearest multiple of pi/2, and the number of that multiple modulo 4. pi/2 comes in four parts whose first three products are exact for
// |x| < 6400; up to 1e5 the error stays below 1e-7, beyond that the result means little.
fn quadrant_f32(x: f32) -> vec2<f32> {
    let n = round(x * 0.63661977236758134f);
    var r = x - n * 1.5703125f;
    r = r - n * 4.837512969970703e-4f;
    r = r - n * 7.549533620476723e-8f;
    r = r - n * 2.5633440682570896e-12f;
    return vec2<f32>(r, n - 4.0f * floor(n * 0.25f));
}
fn sin_core_f32(r: f32) -> f32 {
    let z = r * r;
    return ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * r + r;
}
fn cos_core_f32(r: f32) -> f32 {
    let z = r * r;
    return ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
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
    return select(s / c, -c / s, (i32(q.y) & 1) == 1);
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
        t = -1.0f / a;
    } else if a > 0.4142135624f {
        base = 0.7853981852531433f;
        low = -2.1855694e-8f;
        t = (a - 1.0f) / (a + 1.0f);
    }
    let z = t * t;
    let p = (((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z - 3.33329491539e-1f) * z * t;
    return copysign_f32(base + (t + (p + low)), x);
}
// The upper 12 bits of the mantissa: products of two such numbers are exact.
fn upper_f32(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) & 0xfffff000u);
}
// a^b for a > 0 finite and b finite, by log2(a) in two floats.
fn pow_core_f32(a: f32, b: f32) -> f32 {
    var bits = bitcast<u32>(a);
    var n = 0i;
    if bits < 0x00800000u {
        bits = bitcast<u32>(f32(bits));
        n = -149;
    }
    n += i32(bits >> 23u) - 127;
    let j = bits & 0x7fffffu;
    bits = j | 0x3f800000u;
    var k = 0u;
    if j > 0x1cc471u {
        if j < 0x5db3d7u {
            k = 1u;
        } else {
            n += 1;
            bits -= 0x00800000u;
        }
    }
    let half = select(1.0f, 1.5f, k == 1u);
    let dp_h = select(0.0f, 5.84960938e-1f, k == 1u);
    let dp_l = select(0.0f, 1.56322085e-6f, k == 1u);
    let x = bitcast<f32>(bits);
    let u = x - half;
    let v = 1.0f / (x + half);
    let s = u * v;
    let s_h = upper_f32(s);
    var t_h = bitcast<f32>((((bits >> 1u) & 0xfffff000u) | 0x20000000u) + 0x00400000u + (k << 21u));
    var t_l = x - (t_h - half);
    let s_l = v * ((u - s_h * t_h) - s_h * t_l);
    var s2 = s * s;
    var r = s2 * s2 * (6.0000002384e-1f + s2 * (4.2857143283e-1f + s2 * (3.3333334327e-1f + s2 * (2.7272811532e-1f
        + s2 * (2.3066075146e-1f + s2 * 2.0697501302e-1f)))));
    r += s_l * (s_h + s);
    s2 = s_h * s_h;
    t_h = upper_f32(3.0f + s2 + r);
    t_l = r - ((t_h - 3.0f) - s2);
    let pu = s_h * t_h;
    let pv = s_l * t_h + t_l * s;
    let p_h = upper_f32(pu + pv);
    let p_l = pv - (p_h - pu);
    let z_h = 9.6191406250e-1f * p_h;
    let z_l = -1.1736857402e-4f * p_h + p_l * 9.6179670095e-1f + dp_l;
    let t = f32(n);
    let t1 = upper_f32(((z_h + z_l) + dp_h) + t);
    let t2 = z_l - (((t1 - t) - dp_h) - z_h);
    // log2(a) = t1 + t2; times b, again in two parts.
    let b1 = upper_f32(b);
    let low = (b - b1) * t1 + b * t2;
    let high = b1 * t1;
    let z = low + high;
    if z >= 128.0f { return inf_f32(); }
    if z < -150.0f { return 0.0f; }
    let m = round(z);
    let rest = (high - m) + low;
    let e = rest * 0.693147182f + rest * -1.9046543e-9f;
    return scale_f32(exp_core_f32(e), i32(m));
}
fn pow_f32(a: f32, b: f32) -> f32 {
    let one = a == 1.0f || (bitcast<u32>(b) & 0x7fffffffu) == 0u;
    if one { return 1.0f; }
    if is_nan_f32(a) || is_nan_f32(b) { return nan_f32(); }
    let x = abs(a);
    // Whole and odd exponents decide the sign of the result for negative a.
    let whole = floor(b) == b;
    let odd = whole && abs(b) < 16777216.0f && floor(b * 0.5f) * 2.0f != b;
    let negative = (bitcast<u32>(a) >> 31u) == 1u;
    var y: f32;
    if !is_finite_f32(b) {
        if x == 1.0f { return 1.0f; }
        y = select(0.0f, inf_f32(), (x > 1.0f) == (b > 0.0f));
        return y;
    }
    if (bitcast<u32>(x)) == 0u || !is_finite_f32(x) {
        y = select(0.0f, inf_f32(), (bitcast<u32>(x) != 0u) == (b > 0.0f));
    } else {
        if negative && !whole { return nan_f32(); }
        y = pow_core_f32(x, clamp(b, -3.0e38f, 3.0e38f));
    }
    return select(y, -y, negative && odd);
}
// |a| / |b| for finite a and b other than 0: the exact remainder, and the whole quotient as `digits 2^scale`, digits cut off being gathered in the last.
struct Division { rest: f32, digits: u32, scale: i32 }
fn divide_f32(a: f32, b: f32) -> Division {
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    if ua < ub { return Division(abs(a), 0u, 0); }
    var ea = i32(ua >> 23u);
    var eb = i32(ub >> 23u);
    var ma = ua & 0x7fffffu;
    var mb = ub & 0x7fffffu;
    if ea == 0 { ea = 1; } else { ma |= 0x800000u; }
    if eb == 0 { eb = 1; } else { mb |= 0x800000u; }
    var digits = 0u;
    var scale = 0;
    loop {
        let digit = ma / mb; // above 1 only at first, for subnormal b
        ma -= digit * mb;
        if digits < 0x20000000u {
            digits = digits * 2u + digit;
        } else {
            scale += 1;
            digits |= u32(digit != 0u);
        }
        if ea <= eb { break; }
        ma = ma << 1u;
        ea -= 1;
    }
    if ma == 0u { return Division(0.0f, digits, scale); }
    if scale > 0 { digits |= 1u; }
    while ma < 0x800000u && eb > 1 {
        ma = ma << 1u;
        eb -= 1;
    }
    if ma < 0x800000u { return Division(bitcast<f32>(ma), digits, scale); }
    return Division(bitcast<f32>((ma & 0x7fffffu) | (u32(eb) << 23u)), digits, scale);
}
// The remainder of a / b with the sign of a.
fn fmod_f32(a: f32, b: f32) -> f32 {
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    if ub == 0u || ua >= 0x7f800000u || ub > 0x7f800000u { return nan_f32(); }
    if ub == 0x7f800000u { return a; }
    return copysign_f32(divide_f32(a, b).rest, a);
}
fn rem_f32(a: f32, b: f32) -> f32 {
    let r = fmod_f32(a, b);
    if is_nan_f32(r) { return r; }
    if (bitcast<u32>(r) & 0x7fffffffu) == 0u { return copysign_f32(0.0f, b); }
    if (r < 0.0f) != (b < 0.0f) { return r + b; }
    return r;
}
fn floor_div_f32(a: f32, b: f32) -> f32 {
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    if ub == 0u { return a / b; }
    if ua >= 0x7f800000u || ub > 0x7f800000u { return nan_f32(); }
    let negative = ((bitcast<u32>(a) ^ bitcast<u32>(b)) >> 31u) == 1u;
    if ub == 0x7f800000u {
        return select(copysign_f32(0.0f, a / b), -1.0f, negative && ua != 0u);
    }
    let d = divide_f32(a, b);
    let below = negative && (bitcast<u32>(d.rest) & 0x7fffffffu) != 0u;
    let digits = select(d.digits, d.digits + 1u, below);
    if digits == 0u { return select(0.0f, -0.0f, negative); }
    let q = scale_f32(f32(digits), d.scale);
    return select(q, -q, negative);
}
