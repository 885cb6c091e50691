// Powers, remainders and floor divisions of f32. pow: FreeBSD's e_powf.c (Sun, 1993); about
// assumptions see `float.wgsl`.

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
    var r = s2 * s2 * (6.0000002384e-1f + s2 * (4.2857143283e-1f + s2 * (3.3333334327e-1f + s2
        * (2.7272811532e-1f
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
    if z > 128.0f { return inf_f32(); } // 128 itself may be rounded: the sum below decides
    if z < -150.0f { return 0.0f; }
    let m = round(z);
    let rest = (high - m) + low;
    let e = rest * 0.693147182f + rest * -1.9046543e-9f;
    return scale_f32(expm1_core_f32(e) + 1.0f, i32(m));
}
fn pow_f32(a: f32, b: f32) -> f32 {
    let one = a == 1.0f || (bitcast<u32>(b) & 0x7fffffffu) == 0u;
    if one { return 1.0f; }
    if is_nan_f32(a) || is_nan_f32(b) { return nan_f32(); }
    let x = abs(a);
    // Whole and odd exponents decide the sign of the result for negative a.
    // A subnormal b is not whole, though a comparison may take it for zero.
    let whole = abs(b) >= 1.0f && floor(b) == b;
    let odd = whole && abs(b) < 16777216.0f && floor(b * 0.5f) * 2.0f != b;
    let negative = (bitcast<u32>(a) >> 31u) == 1u;
    let rises = bitcast<i32>(b) >= 0; // by bits: b may be subnormal
    var y: f32;
    if !is_finite_f32(b) {
        if x == 1.0f { return 1.0f; }
        y = select(0.0f, inf_f32(), (x > 1.0f) == rises);
        return y;
    }
    if (bitcast<u32>(x)) == 0u || !is_finite_f32(x) {
        y = select(0.0f, inf_f32(), (bitcast<u32>(x) != 0u) == rises);
    } else {
        if negative && !whole { return nan_f32(); }
        y = pow_core_f32(x, clamp(b, -3.0e38f, 3.0e38f));
    }
    return select(y, -y, negative && odd);
}
// |a| / |b| for finite a and b other than 0: the exact remainder, and the whole quotient as `digits
// 2^scale`. The last kept digit is 1 if a dropped one is; `ones` tells whether it and all dropped
// digits were 1, so that adding 1 carries.
struct Division { rest: f32, digits: u32, scale: i32, ones: bool }
fn divide_f32(a: f32, b: f32) -> Division {
    let ua = bitcast<u32>(a) & 0x7fffffffu;
    let ub = bitcast<u32>(b) & 0x7fffffffu;
    // by bits: a may be subnormal
    if ua < ub { return Division(bitcast<f32>(ua), 0u, 0, false); }
    var ea = i32(ua >> 23u);
    var eb = i32(ub >> 23u);
    var ma = ua & 0x7fffffu;
    var mb = ub & 0x7fffffu;
    if ea == 0 { ea = 1; } else { ma |= 0x800000u; }
    if eb == 0 { eb = 1; } else { mb |= 0x800000u; }
    var digits = 0u;
    var scale = 0;
    var ones = false;
    loop {
        let digit = ma / mb; // above 1 only at first, for subnormal b
        ma -= digit * mb;
        if digits < 0x20000000u {
            digits = digits * 2u + digit;
        } else {
            scale += 1;
            digits |= digit;
        }
        ones = (ones || scale == 0) && (digit & 1u) == 1u;
        if ea <= eb { break; }
        ma = ma << 1u;
        ea -= 1;
    }
    if ma == 0u { return Division(0.0f, digits, scale, ones); }
    while ma < 0x800000u && eb > 1 {
        ma = ma << 1u;
        eb -= 1;
    }
    if ma < 0x800000u { return Division(bitcast<f32>(ma), digits, scale, ones); }
    return Division(bitcast<f32>((ma & 0x7fffffu) | (u32(eb) << 23u)), digits, scale, ones);
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
    // signs by their bits: a comparison may take a subnormal r for zero
    if ((bitcast<u32>(r) ^ bitcast<u32>(b)) >> 31u) == 1u { return r + b; }
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
    // away from zero; beyond the digits a one carries only through ones
    let below = negative && bitcast<u32>(d.rest) != 0u;
    let next = select(d.digits | 1u, d.digits + 1u, d.scale == 0 || d.ones);
    let size = f32(select(d.digits, next, below));
    return copysign_f32(scale_f32(size, d.scale), select(1.0f, -1.0f, negative));
}
