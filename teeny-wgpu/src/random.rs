//! Random numbers: Philox 4x32-10 in the shader, block by block, with the bits that
//! `teeny_core::random` defines.
//!
//! An invocation computes four elements: one block for 32-bit draws, two for 64-bit types. Products
//! whose rounding matters pass through an exclusive-or with a zero parameter, so that no compiler
//! fuses them into the addition that follows.

use crate::device::{Launch, Wgpu};
use crate::elementwise::{GRAIN, THREADS};
use crate::error;
use crate::generator::{self, types};
use crate::params::{MAX_COUNT, Params};
use crate::pipeline::{Key, Program};
use crate::storage::Memory;
use crate::stream::Part;
use teeny_core::storage::downcast;
use teeny_core::{DType, Distribution, Key as Draw, Result, Scalar, Shape, StorageRef};

/// The word that says which group of four comes first.
const FIRST: usize = 12;

/// The cases of [`Distribution`] without their numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Kind {
    Uniform = 0,
    Normal = 1,
    Integer = 2,
    Bernoulli = 3,
}

impl Wgpu {
    pub(crate) fn draw(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Draw,
    ) -> Result<StorageRef> {
        self.require(dtype, "random numbers")?;
        let storage = self.allocate(shape.numel(), dtype)?;
        // Before the first window is drawn: the last one's groups of four must be numbers of a
        // shader.
        if shape.numel() / types::LANES > MAX_COUNT {
            return Err(error::beyond(shape.numel() / types::LANES));
        }
        let mut params = Params::new();
        params.push(0); // the groups of four in a window
        params.push(0); // the zero that keeps products apart from sums
        params.wide(key.seed);
        params.wide(key.draw);
        let kind = match distribution {
            Distribution::Uniform { low, high } => {
                params.scalar(Scalar::Float(low), dtype.compute());
                params.scalar(Scalar::Float(high), dtype.compute());
                Kind::Uniform
            }
            Distribution::Normal { mean, std } => {
                params.scalar(Scalar::Float(mean), dtype.compute());
                params.scalar(Scalar::Float(std), dtype.compute());
                Kind::Normal
            }
            Distribution::Integer { low, high } => {
                params.wide(low as u64);
                // 2^64 does not occur: both ends are i64, and the end is not drawn.
                params.wide((high as i128 - low as i128) as u64);
                Kind::Integer
            }
            Distribution::Bernoulli { p } => {
                params.scalar(Scalar::Float(p), DType::F32);
                Kind::Bernoulli
            }
        };
        // A storage larger than one binding is drawn window by window; a window's first group is a
        // parameter.
        let first = params.pad(FIRST);
        let window =
            (self.capabilities.max_binding as usize / dtype.size() / GRAIN * GRAIN).max(GRAIN);
        for start in (0..shape.numel()).step_by(window) {
            let len = window.min(shape.numel() - start);
            params.set_count(0, len.div_ceil(types::LANES));
            params.set_count(first, start / types::LANES);
            let (buffer, offset) =
                (downcast::<Memory>(&storage)?.buffer(), (start * dtype.size()) as u64);
            let bytes = ((len * dtype.size()) as u64).next_multiple_of(32);
            self.dispatch(&Launch {
                program: Program {
                    key: Key::new("random", [kind as u32, dtype as u32]),
                    wgsl: &|| Ok(wgsl(kind, dtype)),
                },
                inputs: &[],
                outputs: &[Part { buffer, offset, bytes }],
                params: &params,
                groups: self.fold(len.div_ceil(types::LANES * THREADS) as u64)?,
            })?;
        }
        Ok(storage)
    }
}

const PHILOX: &str = "
fn philox(counter: u32) -> vec4<u32> {
    var x = vec4<u32>(counter, 0u, params[1].x, params[1].y);
    var k = vec2<u32>(params[0].z, params[0].w);
    for (var i = 0; i < 10; i++) {
        x = vec4<u32>(mul_high_u32(0xCD9E8D57u, x.z) ^ x.y ^ k.x, 0xCD9E8D57u * x.z, mul_high_u32(0xD2511F53u, x.x) ^ x.w ^ k.y, 0xD2511F53u * x.x);
        k += vec2<u32>(0x9E3779B9u, 0xBB67AE85u);
    }
    return x;
}
fn unit(word: u32) -> f32 {
    return f32(word >> 8u) * 5.9604644775390625e-8f;
}
fn apart(x: f32) -> f32 {
    return bitcast<f32>(bitcast<u32>(x) ^ params[0].y);
}
";

const UNIFORM: &str = "
fn draw(word: u32) -> f32 {
    let low = bitcast<f32>(params[1].z);
    let high = bitcast<f32>(params[1].w);
    let value = low + apart(unit(word) * (high - low));
    if value >= high && low < high {
        // The next number below: one unit of the bits, toward zero for positive numbers.
        let bits = bitcast<u32>(high);
        if (bits & 0x7fffffffu) == 0u { return bitcast<f32>(0x80000001u + params[0].y); }
        return bitcast<f32>(select(bits - 1u, bits + 1u, (bits >> 31u) == 1u));
    }
    return value;
}
";

const NORMAL: &str = "
fn pair(a: u32, b: u32) -> vec2<f32> {
    let radius = sqrt(-2.0f * log_f32(1.0f - unit(a)));
    // The angle in quarters of a turn: whole ones choose the quadrant, the rest, in -1/2..1/2, is
    // exact.
    let quarters = unit(b) * 4.0f;
    let whole = round(quarters);
    let rest = (quarters - whole) * 1.57079632679f;
    let mean = bitcast<f32>(params[1].z);
    let spread = bitcast<f32>(params[1].w);
    return vec2<f32>(mean + apart(spread * (radius * sin_quadrant_f32(rest, i32(whole) + 1))), mean + apart(spread * (radius * sin_quadrant_f32(rest, i32(whole)))));
}
";

const WIDE: &str = "
fn wide(low: u32, high: u32) -> u64 {
    return u64(low) | (u64(high) << 32u);
}
";

const WIDE_FLOAT: &str = "
fn wide_unit(low: u32, high: u32) -> f64 {
    return f64(wide(low, high) >> 11u) * 1.1102230246251565e-16lf;
}
fn wide_apart(x: f64) -> f64 {
    return bitcast<f64>(bitcast<u64>(x) ^ u64(params[0].y));
}
";

const WIDE_UNIFORM: &str = "
fn draw_wide(a: u32, b: u32) -> f64 {
    let low = bitcast<f64>(wide(params[1].z, params[1].w));
    let high = bitcast<f64>(wide(params[2].x, params[2].y));
    let value = low + wide_apart(wide_unit(a, b) * (high - low));
    if value >= high && low < high {
        let bits = bitcast<u64>(high);
        if (bits & 0x7ffffffffffffffflu) == 0lu { return bitcast<f64>(0x8000000000000001lu + u64(params[0].y)); }
        return bitcast<f64>(select(bits - 1lu, bits + 1lu, (bits >> 63u) == 1lu));
    }
    return value;
}
";

const WIDE_NORMAL: &str = "
struct Pair { first: f64, second: f64 }
fn wide_pair(w: vec4<u32>) -> Pair {
    let radius = sqrt(-2.0lf * log_f64(1.0lf - wide_unit(w.x, w.y)));
    // Here the definition rounds the angle, so that quarters of a turn would be more exact than it.
    let angle = wide_apart(6.283185307179586lf * wide_unit(w.z, w.w));
    let mean = bitcast<f64>(wide(params[1].z, params[1].w));
    let spread = bitcast<f64>(wide(params[2].x, params[2].y));
    let first = mean + wide_apart(spread * (radius * cos_f64(angle)));
    return Pair(first, mean + wide_apart(spread * (radius * sin_f64(angle))));
}
";

const WIDE_INTEGER: &str = "
fn draw_bits(a: u32, b: u32) -> u64 {
    // The upper half of the 128-bit product of the random bits and the range.
    let range = wide(params[2].x, params[2].y);
    let rl = range & 0xfffffffflu;
    let rh = range >> 32u;
    let low = u64(a) * rl;
    let mid = u64(b) * rl + (low >> 32u);
    let other = u64(a) * rh + (mid & 0xfffffffflu);
    return wide(params[1].z, params[1].w) + u64(b) * rh + (mid >> 32u) + (other >> 32u);
}
";

/// The shader that draws `kind` in type `dtype`.
pub(crate) fn wgsl(kind: Kind, dtype: DType) -> String {
    let wide = dtype.size() == 8;
    let helper = match kind {
        Kind::Uniform if wide => [WIDE, WIDE_FLOAT, WIDE_UNIFORM].concat(),
        Kind::Uniform => UNIFORM.to_string(),
        Kind::Normal if wide => [WIDE, WIDE_FLOAT, WIDE_NORMAL].concat(),
        Kind::Normal => NORMAL.to_string(),
        Kind::Integer if wide => {
            let (ty, number) = if dtype == DType::I64 {
                ("i64", "bitcast<i64>(draw_bits(a, b))")
            } else {
                ("u64", "draw_bits(a, b)")
            };
            format!(
                "{WIDE}{WIDE_INTEGER}fn draw_wide(a: u32, b: u32) -> {ty} {{\n    return {number};\n}}\n"
            )
        }
        Kind::Integer => {
            let ty = types::value(dtype);
            // A range of 2^32 has no lower word: every word is its own draw.
            format!(
                "fn draw(word: u32) -> {ty} {{\n    let offset = select(mul_high_u32(word, params[2].x), word, params[2].y != 0u);\n    \
                 return bitcast<{ty}>(params[1].z + offset);\n}}\n"
            )
        }
        Kind::Bernoulli => {
            "fn draw(word: u32) -> bool {\n    return unit(word) < bitcast<f32>(params[1].z);\n}\n"
                .to_string()
        }
    };
    let lanes = match kind {
        Kind::Normal if wide => {
            "let ab = wide_pair(philox(2u * c)); let cd = wide_pair(philox(2u * c + 1u)); let y0 = ab.first; let y1 = ab.second; let y2 = cd.first; \
             let y3 = cd.second;"
        }
        Kind::Normal => {
            "let w = philox(c); let ab = pair(w.x, w.y); let cd = pair(w.z, w.w); let y0 = ab.x; let y1 = ab.y; let y2 = cd.x; let y3 = cd.y;"
        }
        _ if wide => {
            "let w = philox(2u * c); let v = philox(2u * c + 1u); let y0 = draw_wide(w.x, w.y); let y1 = draw_wide(w.z, w.w); \
             let y2 = draw_wide(v.x, v.y); let y3 = draw_wide(v.z, v.w);"
        }
        _ => {
            "let w = philox(c); let y0 = draw(w.x); let y1 = draw(w.y); let y2 = draw(w.z); let y3 = draw(w.w);"
        }
    };
    format!(
        "{}@group(0) @binding(0) var<storage, read_write> out: array<{}>;\n{PHILOX}{helper}@compute @workgroup_size({THREADS})\n\
         fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>, @builtin(local_invocation_index) thread: u32) {{\n    \
         let t = (group.y * groups.x + group.x) * {THREADS}u + thread;\n    if t >= params[0].x {{ return; }}\n    let c = t + params[3].x;\n    {lanes}\n    {}\n}}\n",
        generator::params_declaration(),
        types::quad(dtype),
        types::store_quad(dtype, "out", "t", ["y0", "y1", "y2", "y3"]),
    )
}
