// Powers, remainders and floor divisions of f64: the functions of the same names in
// `float_pow.wgsl` with wider words and FreeBSD's e_pow.c.

// a^b for a > 0 finite and b finite, by log2(a) in two parts.
fn pow_core_f64(a: f64, b: f64) -> f64 {
    var bits = bitcast<u64>(a);
    var n = 0;
    if bits < 0x0010000000000000lu {
        bits = bitcast<u64>(f64(bits));
        n = -1074;
    }
    n += i32(u32(bits >> 52u)) - 1023;
    let j = u32(bits >> 32u) & 0xfffffu;
    bits = (bits & 0x000ffffffffffffflu) | 0x3ff0000000000000lu;
    var k = 0u;
    if j > 0x3988eu {
        if j < 0xbb67au {
            k = 1u;
        } else {
            n += 1;
            bits -= 0x0010000000000000lu;
        }
    }
    let center = select(1.0lf, 1.5lf, k == 1u);
    let dp_h = select(0.0lf, 5.84962487220764160156e-01lf, k == 1u);
    let dp_l = select(0.0lf, 1.35003920212974897128e-08lf, k == 1u);
    let x = bitcast<f64>(bits);
    let u = x - center;
    let v = 1.0lf / (x + center);
    let s = u * v;
    let s_h = upper_f64(s);
    var t_h = bitcast<f64>(u64(((u32(bits >> 32u) >> 1u) | 0x20000000u) + 0x00080000u
        + (k << 18u)) << 32u);
    var t_l = x - (t_h - center);
    let s_l = v * ((u - s_h * t_h) - s_h * t_l);
    var s2 = s * s;
    var r = s2 * s2 * (5.99999999999994648725e-01lf + s2 * (4.28571428578550184252e-01lf + s2
        * (3.33333329818377432918e-01lf
        + s2 * (2.72728123808534006489e-01lf + s2 * (2.30660745775561754067e-01lf + s2
        * 2.06975017800338417784e-01lf)))));
    r += s_l * (s_h + s);
    s2 = s_h * s_h;
    t_h = upper_f64(3.0lf + s2 + r);
    t_l = r - ((t_h - 3.0lf) - s2);
    let pu = s_h * t_h;
    let pv = s_l * t_h + t_l * s;
    let p_h = upper_f64(pu + pv);
    let p_l = pv - (p_h - pu);
    let z_h = 9.61796700954437255859e-01lf * p_h;
    let z_l = -7.02846165095275826516e-09lf * p_h + p_l * 9.61796693925975554329e-01lf + dp_l;
    let t = f64(n);
    let t1 = upper_f64(((z_h + z_l) + dp_h) + t);
    let t2 = z_l - (((t1 - t) - dp_h) - z_h);
    // log2(a) = t1 + t2; times b, again in two parts.
    let b1 = upper_f64(b);
    let low = (b - b1) * t1 + b * t2;
    let high = b1 * t1;
    let z = low + high;
    if z > 1024.0lf { return inf_f64(); }
    if z < -1076.0lf { return 0.0lf; }
    let m = round(z);
    let rest = high - m;
    let e = upper_f64(low + rest);
    let e_l = (low - (e - rest)) * 0.6931471805599453lf + e * -1.90465429995776804525e-09lf;
    return scale_f64(expm1_core_f64(e * 6.93147182464599609375e-01lf, -e_l) + 1.0lf, i32(m));
}
fn pow_f64(a: f64, b: f64) -> f64 {
    if a == 1.0lf || (bitcast<u64>(b) & 0x7ffffffffffffffflu) == 0lu { return 1.0lf; }
    if is_nan_f64(a) || is_nan_f64(b) { return nan_f64(); }
    let x = abs(a);
    // Whole and odd exponents decide the sign of the result for negative a.
    let whole = floor(b) == b;
    let odd = whole && abs(b) < 9007199254740992.0lf && floor(b * 0.5lf) * 2.0lf != b;
    let negative = (bitcast<u64>(a) >> 63u) == 1lu;
    let rises = bitcast<i64>(b) >= 0li; // by bits: b may be subnormal
    if !is_finite_f64(b) {
        if x == 1.0lf { return 1.0lf; }
        return select(0.0lf, inf_f64(), (x > 1.0lf) == rises);
    }
    var y: f64;
    if (bitcast<u64>(x)) == 0lu || !is_finite_f64(x) {
        y = select(0.0lf, inf_f64(), (bitcast<u64>(x) != 0lu) == rises);
    } else {
        if negative && !whole { return nan_f64(); }
        // Beyond 1e25 every power of a number other than 1 overflows or vanishes.
        y = pow_core_f64(x, max(min(b, 1.0e25lf), -1.0e25lf));
    }
    return select(y, -y, negative && odd);
}
// |a| / |b| for finite a and b other than 0: the exact remainder, and the whole quotient as `digits
// 2^scale`. The last kept digit is 1 if a dropped one is; `ones` tells whether it and all dropped
// digits were 1, so that adding 1 carries.
struct Division64 { rest: f64, digits: u64, scale: i32, ones: bool }
fn divide_f64(a: f64, b: f64) -> Division64 {
    let ua = bitcast<u64>(a) & 0x7ffffffffffffffflu;
    let ub = bitcast<u64>(b) & 0x7ffffffffffffffflu;
    if ua < ub { return Division64(abs(a), 0lu, 0, false); }
    var ea = i32(u32(ua >> 52u));
    var eb = i32(u32(ub >> 52u));
    var ma = ua & 0xffffffffffffflu;
    var mb = ub & 0xffffffffffffflu;
    if ea == 0 { ea = 1; } else { ma |= 0x10000000000000lu; }
    if eb == 0 { eb = 1; } else { mb |= 0x10000000000000lu; }
    var digits = 0lu;
    var scale = 0;
    var ones = false;
    loop {
        let digit = ma / mb; // above 1 only at first, for subnormal b
        ma -= digit * mb;
        if digits < 0x0800000000000000lu {
            digits = digits * 2lu + digit;
        } else {
            scale += 1;
            digits |= digit;
        }
        ones = (ones || scale == 0) && (digit & 1lu) == 1lu;
        if ea <= eb { break; }
        ma = ma << 1u;
        ea -= 1;
    }
    if ma == 0lu { return Division64(0.0lf, digits, scale, ones); }
    while ma < 0x10000000000000lu && eb > 1 {
        ma = ma << 1u;
        eb -= 1;
    }
    if ma < 0x10000000000000lu { return Division64(bitcast<f64>(ma), digits, scale, ones); }
    return Division64(bitcast<f64>((ma & 0xffffffffffffflu) | (u64(u32(eb)) << 52u)), digits,
        scale, ones);
}
// The remainder of a / b with the sign of a.
fn fmod_f64(a: f64, b: f64) -> f64 {
    let ua = bitcast<u64>(a) & 0x7ffffffffffffffflu;
    let ub = bitcast<u64>(b) & 0x7ffffffffffffffflu;
    if ub == 0lu || ua >= 0x7ff0000000000000lu || ub > 0x7ff0000000000000lu { return nan_f64(); }
    if ub == 0x7ff0000000000000lu { return a; }
    return copysign_f64(divide_f64(a, b).rest, a);
}
fn rem_f64(a: f64, b: f64) -> f64 {
    let r = fmod_f64(a, b);
    if is_nan_f64(r) { return r; }
    if (bitcast<u64>(r) & 0x7ffffffffffffffflu) == 0lu { return copysign_f64(0.0lf, b); }
    // signs by their bits: a comparison may take a subnormal r for zero
    if ((bitcast<u64>(r) ^ bitcast<u64>(b)) >> 63u) == 1lu { return r + b; }
    return r;
}
fn floor_div_f64(a: f64, b: f64) -> f64 {
    let ua = bitcast<u64>(a) & 0x7ffffffffffffffflu;
    let ub = bitcast<u64>(b) & 0x7ffffffffffffffflu;
    if ub == 0lu { return a / b; }
    if ua >= 0x7ff0000000000000lu || ub > 0x7ff0000000000000lu { return nan_f64(); }
    let negative = ((bitcast<u64>(a) ^ bitcast<u64>(b)) >> 63u) == 1lu;
    if ub == 0x7ff0000000000000lu {
        return select(copysign_f64(0.0lf, a / b), -1.0lf, negative && ua != 0lu);
    }
    let d = divide_f64(a, b);
    // away from zero; beyond the digits a one carries only through ones
    let below = negative && bitcast<u64>(d.rest) != 0lu;
    let next = select(d.digits | 1lu, d.digits + 1lu, d.scale == 0 || d.ones);
    let size = scale_f64(f64(select(d.digits, next, below)), d.scale);
    return copysign_f64(size, select(1.0lf, -1.0lf, negative));
}
