// Random numbers of types up to 32 bits: a thread computes four neighbouring elements from the four
// words of one Philox block.
//     uniform    low + unit (high - low); the number before high where rounding reaches it
//     normal     mean + deviation sqrt(-2 log(1 - u)) (cos, sin)(2 pi v), two from two words
//                (Box and Muller 1958)
//     integer    low + the upper word of word * range
//     Bernoulli  unit < p
// Element 4 q + i comes from word i of block q. The bits equal
// teeny_core::random::Distribution::block (normal: within some units in the last place), the same
// on every device: both change together.
//
// Products whose rounding matters pass through an exclusive-or with a zero parameter, so that no
// compiler fuses them into the addition that follows.
{{params}}
@group(0) @binding(0) var<storage, read_write> out: array<{{quad}}>;

const THREADS = {{threads}}u;

{{accessors}}

fn unit(word: u32) -> f32 { return f32(word >> 8u) * 5.9604644775390625e-8f; } // 2^-24

fn rounded(x: f32) -> f32 { return bitcast<f32>(bitcast<u32>(x) ^ params.zero); }

#if uniform
// The number before one with these bits: they count away from zero, and `sign` is the first bit.
fn before(bits: u32, sign: u32) -> u32 {
    if (bits & (sign - 1u)) == 0u { return (sign | 1u) + params.zero; }
    return select(bits - 1u, bits + 1u, bits >= sign);
}

fn draw(word: u32) -> f32 {
    var value = low() + rounded(unit(word) * (high() - low()));
    if low() >= high() { return value; }
    // The sum may be rounded up to high, and so may its nearest 16-bit float.
    if value >= high() { value = bitcast<f32>(before(bitcast<u32>(high()), 0x80000000u)); }
#if half
    let nearest = round_{{dtype}}(value);
    if nearest >= high() {
        value = max({{dtype}}_of(before({{dtype}}_bits(nearest), 0x8000u)), round_{{dtype}}(low()));
    }
#endif
    return value;
}
#endif
#if normal
fn draw_pair(a: u32, b: u32) -> vec2<f32> {
    let radius = sqrt(-2.0f * log_f32(1.0f - unit(a)));
    // The angle in quarters of a turn: whole ones choose the quadrant, the rest, in -1/2..1/2, is
    // exact.
    let quarters = unit(b) * 4.0f;
    let whole = round(quarters);
    let rest = (quarters - whole) * 1.57079632679f;
    return vec2<f32>(
        mean() + rounded(deviation() * (radius * sin_quadrant_f32(rest, i32(whole) + 1))),
        mean() + rounded(deviation() * (radius * sin_quadrant_f32(rest, i32(whole)))),
    );
}
#endif
#if integer
fn draw(word: u32) -> {{value}} {
    // For a range of 2^32 the offset is the word itself.
    let offset = select(mul_high_u32(word, params.range_low), word, params.range_high != 0u);
    return bitcast<{{value}}>(params.low_low + offset);
}
#endif
#if bernoulli
fn draw(word: u32) -> bool { return unit(word) < p(); }
#endif

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let t = (group.y * groups.x + group.x) * THREADS + thread;
    if t >= params.quads { return; }
    let w = philox(t + params.first_quad);
#if normal
    let ab = draw_pair(w.x, w.y);
    let cd = draw_pair(w.z, w.w);
    let y0 = ab.x;
    let y1 = ab.y;
    let y2 = cd.x;
    let y3 = cd.y;
#else
    let y0 = draw(w.x);
    let y1 = draw(w.y);
    let y2 = draw(w.z);
    let y3 = draw(w.w);
#endif
    {{store}}
}
