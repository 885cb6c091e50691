//! The error of a float in units in the last place of its type; and the numbers
//! that a sweep visits.

use teeny_core::DType;

/// The precision of a float type in numbers.
#[derive(Clone, Copy, Debug)]
pub struct Format {
    pub dtype: DType,
    /// Bits of the mantissa after the point.
    digits: i32,
    /// The exponents of the smallest normal number and of the largest.
    lowest: i32,
    highest: i32,
}

pub const F32: Format = Format { dtype: DType::F32, digits: 23, lowest: -126, highest: 127 };
pub const F64: Format = Format { dtype: DType::F64, digits: 52, lowest: -1022, highest: 1023 };

impl Format {
    /// The distance between neighbouring numbers at `y`, at least that at `floor`.
    pub fn unit(self, y: f64, floor: f64) -> f64 {
        let y = y.abs().max(floor);
        let exponent =
            (((y.to_bits() >> 52) & 0x7ff) as i32 - 1023).clamp(self.lowest, self.highest);
        // In two factors: the unit of small f64 is subnormal.
        2f64.powi(exponent) * 2f64.powi(-self.digits)
    }

    fn is_subnormal(self, x: f64) -> bool {
        x != 0.0 && x.abs() < 2f64.powi(self.lowest)
    }

    /// The error of `got` for the exact value `want`. Infinity stands for any disagreement about
    /// NaN.
    ///
    /// An overflow is measured as if the next power of two were a number. Subnormal results and
    /// intermediate results may be flushed to zero.
    fn distance(self, got: f64, want: f64, floor: f64) -> f64 {
        if got.is_nan() || want.is_nan() {
            return if got.is_nan() && want.is_nan() { 0.0 } else { f64::INFINITY };
        }
        // a half of the argument may be flushed, or a subnormal argument be returned
        let flushed = (got - want).abs() < 2f64.powi(self.lowest + 1);
        if got == want || flushed {
            return 0.0;
        }
        // Near the largest numbers everything by a half, so that the next power of two is one of
        // f64 too.
        let half = if got.abs().max(want.abs()) >= 2f64.powi(self.highest) { 0.5 } else { 1.0 };
        let scaled = |y: f64| {
            if y.is_infinite() || y.abs() * half > 2f64.powi(self.highest) {
                2f64.powi(self.highest).copysign(y)
            } else {
                y * half
            }
        };
        (scaled(got) - scaled(want)).abs()
            / (self.unit(if want.is_infinite() { scaled(want) } else { want }, floor) * half)
    }

    /// The error of `f` at `x`. Subnormal arguments may be taken for zeros, and zeros for zeros of
    /// the other sign, as WGSL permits.
    pub fn error(self, got: f64, x: f64, f: impl Fn(f64) -> f64, floor: f64) -> f64 {
        let error = self.distance(got, f(x), floor);
        if error > 0.5 && (x == 0.0 || self.is_subnormal(x)) {
            return error.min(self.distance(got, f(0.0), floor)).min(self.distance(
                got,
                f(-0.0),
                floor,
            ));
        }
        error
    }

    /// The error of `f` at a pair of arguments, with the same freedoms for each.
    pub fn error2(self, got: f64, x: [f64; 2], f: fn(f64, f64) -> f64) -> f64 {
        let zeros = |x: f64| if x == 0.0 || self.is_subnormal(x) { [x, 0.0, -0.0] } else { [x; 3] };
        let error = self.distance(got, f(x[0], x[1]), 0.0);
        if error <= 0.5 {
            return error;
        }
        zeros(x[0])
            .into_iter()
            .flat_map(|a| zeros(x[1]).map(|b| self.distance(got, f(a, b), 0.0)))
            .fold(error, f64::min)
    }

    /// The number with these bits; the upper 32 bits if the type has only these.
    pub fn number(self, bits: u64) -> f64 {
        if self.digits == 23 {
            f32::from_bits((bits >> 32) as u32) as f64
        } else {
            f64::from_bits(bits)
        }
    }

    /// About `count` numbers evenly spread over all bit patterns, and the special ones.
    pub fn sweep(self, count: u64) -> Vec<f64> {
        let step = u64::MAX / count;
        let multiples = (0..64).flat_map(|i| {
            [1.0, -1.0].map(|sign| sign * f64::from(i) * std::f64::consts::FRAC_PI_4)
        });
        let powers = (self.lowest..=self.highest).map(|e| 2f64.powi(e));
        let near = multiples.chain(powers).chain(EDGES).flat_map(|x| [x, -x]).flat_map(|x| {
            let x = if self.digits == 23 { x as f32 as f64 } else { x };
            let unit = self.unit(x, 0.0);
            [x - unit, x, x + unit]
        });
        let near: Vec<f64> =
            near.map(|x| if self.digits == 23 { x as f32 as f64 } else { x }).collect();
        near.into_iter().chain((0..count).map(|i| self.number(i * step))).collect()
    }
}

/// Where the algorithms of functions change: zeros, infinities, bounds of exponentials, worst cases
/// of the reduction by pi/2.
const EDGES: [f64; 24] = [
    0.0,
    f64::INFINITY,
    f64::NAN,
    f32::MAX as f64,
    1e-45,
    88.722_84,
    -87.336_55,
    -103.972_08,
    709.782_712_893_384,
    -745.133_219_101_941_1,
    9.1,
    16_367_173.0 * 4_722_366_482_869_645e6,
    6_381_956_970_095_103.0 * 1.552_518_092_300_709e239,
    1e5,
    1e22,
    1e30,
    1e300,
    4096.0,
    8192.0,
    33_554_432.0,
    0.346_573_59,
    0.414_213_56,
    0.707_106_77,
    4.0,
];
