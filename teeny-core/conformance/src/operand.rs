//! Operands of a random case or graph: random values in a storage, seen through a random view.
//!
//! The storage is filled whole, so elements that the view does not select hold other random values,
//! and a device that reads them computes something else.

use crate::dice::Dice;
use std::fmt;
use teeny_core::{
    DType, DeviceRef, Element, Layout, Result, Scalar, Shape, Tensor, bf16, f16, with_element,
};

/// The values of an operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Values {
    /// Everything: NaN, infinities, zeros of both signs, subnormals, the largest, random bits,
    /// ties.
    Any,
    /// Numbers in -4..4; integers -4..=4, or 0..=8.
    Tame,
    /// Tame with up to three special values among them.
    Sprinkled,
    /// Tame with up to three NaN among them.
    Gapped,
    /// Numbers of both signs and magnitudes 2^-30 to 2^30, where the type has them.
    Wide,
    /// The integers -4..=4, or 0..=8: ties, and sums without rounding.
    Whole,
    /// One number everywhere, which rounds.
    Same(f64),
    /// Numbers in 0.5..1.5; integers 1..=3.
    Positive,
    /// The integers `0..n`.
    Below(usize),
    /// The integers `0..n`, and one outside.
    Around(usize),
    /// Angles: -1000..1000 and special values.
    Angle,
    /// Mostly 1 and -1: products that stay in range.
    Signs,
    /// Few different ones: ties, among them NaN, infinities and negative numbers.
    Few,
    /// Counts of bits, mostly below the width of the type. Some are negative, and some are beyond
    /// the width with the low bits of a small count.
    Shift,
}

/// Numbers at which floating-point code goes wrong.
const SPECIAL: [f64; 38] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    2.0,
    -2.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e-40,
    -1e-40,
    1.4e-45,
    1.2e-38,
    3.4e38,
    -3.4e38,
    88.0,
    -88.0,
    1e-7,
    -1e-7,
    -103.5,
    65504.0,
    2147483648.0,
    -2147483649.0,
    9.3e18,
    16777217.0,
    // The ends of f16, f32 and f64: the least, the least normal, the greatest.
    6e-8,
    6.103515625e-5,
    f32::MIN_POSITIVE as f64,
    f32::MAX as f64,
    5e-324,
    -5e-324,
    f64::MIN_POSITIVE,
    f64::MAX,
    // Points with exact logarithms and roots.
    1000.0,
    64.0,
];

/// The values that a tame operand is sprinkled with.
const STRONG: [f64; 7] = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1e-40, -3e-39];

/// The floats of [`Values::Few`].
const FEW: [f64; 8] = [0.0, -0.0, 1.0, -1.0, 2.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

/// A float of type `dtype` with random bits.
fn random_float(bits: u64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => f16::from_bits(bits as u16).to_f64(),
        DType::BF16 => bf16::from_bits(bits as u16).to_f64(),
        DType::F32 => f32::from_bits(bits as u32) as f64,
        _ => f64::from_bits(bits),
    }
}

impl Values {
    /// Values for sums and products of floats, whose error bounds need terms that do not overflow
    /// together.
    pub fn linear(dice: &mut Dice) -> Values {
        match dice.below(20) {
            0..8 => Values::Tame,
            8..11 => Values::Wide,
            11..14 => Values::Whole,
            14..17 => Values::Sprinkled,
            17 => Values::Same(0.1),
            18 => Values::Same(-1.7),
            _ => Values::Positive,
        }
    }

    /// Values for sums and products. Integers may be any, since their sums and products wrap.
    pub fn terms(dice: &mut Dice, dtype: DType) -> Values {
        if dtype.is_float() { Values::linear(dice) } else { Values::whole_range(dice) }
    }

    /// Mostly any integer of the type.
    pub fn whole_range(dice: &mut Dice) -> Values {
        if dice.one_in(4) { Values::Whole } else { Values::Any }
    }

    /// Values for whatever compares, copies and selects.
    pub fn exact(dice: &mut Dice) -> Values {
        dice.pick(&[Values::Any, Values::Any, Values::Any, Values::Whole, Values::Tame])
    }

    fn one(self, dice: &mut Dice, dtype: DType) -> Scalar {
        let bits = dice.bits();
        let unit = (bits >> 11) as f64 / 9_007_199_254_740_992.0;
        if dtype == DType::Bool {
            return Scalar::Bool(bits & 1 == 1);
        }
        if !dtype.is_float() {
            return self.integer(bits, dtype).cast(dtype);
        }
        Scalar::Float(match self {
            Values::Any => match bits >> 60 {
                0..6 => SPECIAL[bits as usize % SPECIAL.len()],
                6..10 => 16.0 * dice.unit() - 8.0,
                10..12 => (bits % 9) as f64 - 4.0,
                _ => random_float(bits, dtype),
            },
            Values::Tame | Values::Sprinkled | Values::Gapped => 8.0 * unit - 4.0,
            Values::Wide if dtype == DType::F16 => {
                (4.0 + 4.0 * unit) * power(bits % 13, 6) * sign(bits >> 8)
            }
            Values::Wide => (1.0 + unit) * power(bits % 61, 30) * sign(bits >> 8),
            Values::Whole => (bits % 9) as f64 - 4.0,
            Values::Same(value) => value,
            Values::Positive => 0.5 + unit,
            Values::Below(n) | Values::Around(n) => (bits % n.max(1) as u64) as f64,
            Values::Angle => match bits % 4 {
                0 => {
                    let special = SPECIAL[(bits >> 32) as usize % SPECIAL.len()];
                    if special.abs() < 1e4 || !special.is_finite() { special } else { unit }
                }
                _ => 2000.0 * unit - 1000.0,
            },
            Values::Signs => match bits % 97 {
                0 => 2.0,
                1 => 0.5,
                n => sign(n),
            },
            Values::Few => FEW[bits as usize % FEW.len()],
            Values::Shift => (bits % 70) as f64,
        })
    }

    fn integer(self, bits: u64, dtype: DType) -> Scalar {
        match self {
            Values::Any | Values::Wide | Values::Sprinkled => match bits >> 61 {
                0 => Scalar::UInt(1 << (8 * dtype.size() - 1)), // the smallest signed integer
                1 => Scalar::UInt(u64::MAX >> (bits & 1)),
                2..5 => Scalar::UInt(bits),
                5 => Scalar::Int((bits % 9) as i64 - 4),
                _ => Scalar::Int((bits % 80) as i64),
            },
            Values::Few => match bits % 5 {
                0 => Scalar::UInt(1 << (8 * dtype.size() - 1)),
                1 => Scalar::UInt(u64::MAX),
                n => Scalar::UInt(n - 2),
            },
            Values::Shift => match bits >> 61 {
                0 => Scalar::Int(-1 - (bits % 5) as i64),
                1 => Scalar::UInt((1 << (4 * dtype.size())) + bits % 8),
                _ => Scalar::UInt(bits % (8 * dtype.size() as u64 + 3)),
            },
            Values::Tame | Values::Gapped | Values::Whole | Values::Angle
                if dtype.is_unsigned_int() =>
            {
                Scalar::UInt(bits % 9)
            }
            Values::Tame | Values::Gapped | Values::Whole | Values::Angle => {
                Scalar::Int((bits % 9) as i64 - 4)
            }
            Values::Same(value) => Scalar::Float(value * 10.0),
            Values::Positive | Values::Signs => Scalar::Int((bits % 3) as i64 + 1),
            Values::Below(n) | Values::Around(n) => Scalar::UInt(bits % n.max(1) as u64),
        }
    }
}

fn power(steps: u64, middle: i32) -> f64 {
    2f64.powi(steps as i32 - middle)
}

fn sign(bits: u64) -> f64 {
    if bits & 1 == 1 { -1.0 } else { 1.0 }
}

/// The little-endian bytes of `scalars` as elements of type `dtype`.
fn encode(scalars: &[Scalar], dtype: DType) -> Vec<u8> {
    fn of<T: Element>(scalars: &[Scalar]) -> Vec<u8> {
        T::to_bytes(&scalars.iter().map(|&x| T::from_scalar(x)).collect::<Vec<T>>()).into_owned()
    }
    with_element!(dtype, T => of::<T>(scalars))
}

/// One operand of a case: the bytes of a storage and the view of it.
pub struct Operand {
    bytes: Vec<u8>,
    len: usize,
    layout: Layout,
    dtype: DType,
    values: Values,
}

impl Operand {
    /// `shape` in a random view, filled from `values`.
    pub fn new(dice: &mut Dice, shape: Shape, dtype: DType, values: Values) -> Operand {
        let (layout, len) = view(dice, shape);
        Operand::seen(dice, layout, len, dtype, values)
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// `shape` packed, filled from `values`.
    pub fn packed(dice: &mut Dice, shape: Shape, dtype: DType, values: Values) -> Operand {
        Operand::seen(dice, Layout::contiguous(shape), shape.numel(), dtype, values)
    }

    /// The given view of a storage of `len` elements.
    pub fn seen(
        dice: &mut Dice,
        layout: Layout,
        len: usize,
        dtype: DType,
        values: Values,
    ) -> Operand {
        let mut all: Vec<Scalar> = (0..len).map(|_| values.one(dice, dtype)).collect();
        // Values that decide the result are at places that the view shows.
        let mut put = |dice: &mut Dice, value: Scalar| {
            let place = dice.below(layout.numel());
            if let Some(place) = layout.positions().nth(place) {
                all[place] = value.cast(dtype);
            }
        };
        match values {
            Values::Sprinkled | Values::Gapped if dtype.is_float() => {
                for _ in 0..dice.between(1, 3) {
                    let strong = dice.pick(&STRONG);
                    let is_nan = values == Values::Gapped || dice.one_in(3);
                    put(dice, Scalar::Float(if is_nan { f64::NAN } else { strong }));
                }
            }
            Values::Around(n) => {
                let outside = [Scalar::UInt(n as u64), Scalar::Int(-1), Scalar::Int(-2)];
                let outside = dice.pick(&outside);
                put(dice, outside);
            }
            _ => {}
        }
        Operand { bytes: encode(&all, dtype), len, layout, dtype, values }
    }

    /// `shape` in a random view of a storage filled from `all`, over and over.
    pub fn of(dice: &mut Dice, shape: Shape, dtype: DType, all: &[Scalar]) -> Operand {
        let (layout, len) = view(dice, shape);
        let storage: Vec<Scalar> = all.iter().copied().cycle().take(len).collect();
        Operand {
            bytes: encode(&storage, dtype),
            len: storage.len(),
            layout,
            dtype,
            values: Values::Any,
        }
    }

    /// The operand with zeros in place of floats below 2^-30, whose products and quotients leave
    /// subnormal numbers out.
    pub fn without_tiny(mut self) -> Operand {
        fn flush<const N: usize>(bytes: &mut [u8], value: impl Fn([u8; N]) -> f64) {
            for number in bytes.as_chunks_mut::<N>().0 {
                if value(*number).abs() < 2f64.powi(-30) {
                    *number = [0; N];
                }
            }
        }
        match self.dtype {
            DType::BF16 => flush::<2>(&mut self.bytes, |b| bf16::from_le_bytes(b).to_f64()),
            DType::F32 => flush::<4>(&mut self.bytes, |b| f32::from_le_bytes(b) as f64),
            DType::F64 => flush::<8>(&mut self.bytes, f64::from_le_bytes),
            // The smallest f16 is a normal f32, in which it is computed.
            _ => {}
        }
        self
    }

    /// True if the values may be infinite or NaN.
    pub fn may_be_infinite(&self) -> bool {
        self.dtype.is_float()
            && matches!(
                self.values,
                Values::Any | Values::Sprinkled | Values::Gapped | Values::Few | Values::Angle
            )
    }

    /// The tensor on `device`.
    pub fn on(&self, device: &DeviceRef) -> Result<Tensor> {
        Tensor::from_bytes(&self.bytes, self.len, self.dtype, device)?.with_layout(self.layout)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Operand { len, layout, dtype, values, .. } = self;
        write!(f, "{dtype} {layout:?} in {len} {values:?}")
    }
}

/// How the elements along an axis follow each other.
#[derive(Clone, Copy)]
enum StrideStep {
    /// As in a row-major tensor whose axes are in some order.
    Near,
    /// With gaps.
    Far(usize),
    /// All the same element.
    Repeat,
    /// Windows that overlap.
    Overlap,
}

/// A random view of `shape`, and the length of its storage: packed, with axes in any order, gaps,
/// strides that are 0, negative, or overlapping, and gaps before and after.
pub fn view(dice: &mut Dice, shape: Shape) -> (Layout, usize) {
    if dice.below(100) < 30 || shape.numel() == 0 {
        return (Layout::contiguous(shape), shape.numel());
    }
    let ndim = shape.ndim();
    if dice.one_in(8) {
        // As tensors are stretched: some axes repeat, the others are row-major.
        let own: Vec<usize> = shape.iter().map(|&n| if dice.one_in(2) { 1 } else { n }).collect();
        let own = Layout::contiguous(Shape::new(&own).expect("smaller than a legal shape"));
        return (own.expand(&shape).expect("axes of size 1 stretch"), own.numel());
    }
    let order = if dice.one_in(2) { (0..ndim).collect() } else { dice.order(ndim) };
    let mut strides = vec![0isize; ndim];
    // From the innermost axis in `order` outwards: the axes before reach `span` elements.
    let (mut span, mut low) = (1usize, 0usize);
    for &axis in order.iter().rev() {
        let n = shape[axis];
        let step = match dice.below(20) {
            0 | 1 if span * n < 40_000 => StrideStep::Far(dice.between(2, 3)),
            2 | 3 if span * n < 200_000 => StrideStep::Far(1 + dice.below(2)),
            4 | 5 => StrideStep::Repeat,
            6 => StrideStep::Overlap,
            _ => StrideStep::Near,
        };
        let stride = match step {
            StrideStep::Near => span,
            StrideStep::Far(times) => span * times + dice.below(2),
            StrideStep::Repeat => 0,
            StrideStep::Overlap => dice.between(1, span),
        };
        let reach = stride * n.saturating_sub(1);
        let backwards = dice.one_in(8);
        strides[axis] = if backwards { -(stride as isize) } else { stride as isize };
        low += if backwards { reach } else { 0 };
        span += reach;
    }
    let before = if dice.one_in(2) { dice.below(9) } else { 0 };
    let behind = dice.below(3);
    let (offset, len) = (before + low, before + span + behind);
    let layout =
        Layout::strided(shape, &strides, offset, len).expect("the storage was made for the view");
    (layout, len)
}
