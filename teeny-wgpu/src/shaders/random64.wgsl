// Random numbers of 64-bit types, as in random.wgsl: four elements from two Philox blocks.
{{params}}
@group(0) @binding(0) var<storage, read_write> out: array<{{quad}}>;

const THREADS = {{threads}}u;

{{accessors}}

fn word64(low: u32, high: u32) -> u64 { return u64(low) | (u64(high) << 32u); }

#if integer
fn draw(a: u32, b: u32) -> {{value}} {
    // The upper half of the 128-bit product of the random bits and the range.
    let range = word64(params.range_low, params.range_high);
    let rl = range & 0xfffffffflu;
    let rh = range >> 32u;
    let low = u64(a) * rl;
    let mid = u64(b) * rl + (low >> 32u);
    let other = u64(a) * rh + (mid & 0xfffffffflu);
    let upper = u64(b) * rh + (mid >> 32u) + (other >> 32u);
    let bits = word64(params.low_low, params.low_high) + upper;
    return {{from_bits}};
}
#else
fn unit(low: u32, high: u32) -> f64 {
    return f64(word64(low, high) >> 11u) * 1.1102230246251565e-16lf; // 2^-53
}

fn rounded(x: f64) -> f64 { return bitcast<f64>(bitcast<u64>(x) ^ u64(params.zero)); }
#endif
#if uniform
fn draw(a: u32, b: u32) -> f64 {
    let value = low() + rounded(unit(a, b) * (high() - low()));
    if value >= high() && low() < high() {
        let bits = bitcast<u64>(high());
        if (bits & 0x7ffffffffffffffflu) == 0lu {
            return bitcast<f64>(0x8000000000000001lu + u64(params.zero));
        }
        return bitcast<f64>(select(bits - 1lu, bits + 1lu, (bits >> 63u) == 1lu));
    }
    return value;
}
#endif
#if normal
struct Pair {
    first: f64,
    second: f64,
}
fn draw_pair(w: vec4<u32>) -> Pair {
    let radius = sqrt(-2.0lf * log_f64(1.0lf - unit(w.x, w.y)));
    // Here the definition rounds the angle, so quarters of a turn would be more exact than it.
    let angle = rounded(6.283185307179586lf * unit(w.z, w.w));
    let first = mean() + rounded(deviation() * (radius * cos_f64(angle)));
    return Pair(first, mean() + rounded(deviation() * (radius * sin_f64(angle))));
}
#endif

@compute @workgroup_size(THREADS)
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) thread: u32,
) {
    let t = (group.y * groups.x + group.x) * THREADS + thread;
    if t >= params.quads { return; }
    let c = t + params.first_quad;
    let w = philox(2u * c);
    let v = philox(2u * c + 1u);
#if normal
    let ab = draw_pair(w);
    let cd = draw_pair(v);
    let y0 = ab.first;
    let y1 = ab.second;
    let y2 = cd.first;
    let y3 = cd.second;
#else
    let y0 = draw(w.x, w.y);
    let y1 = draw(w.z, w.w);
    let y2 = draw(v.x, v.y);
    let y3 = draw(v.z, v.w);
#endif
    {{store}}
}
