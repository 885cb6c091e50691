//! Inputs of cases: values, and their arrangement in memory.
//!
//! The same bytes and the same layout go to both devices. Elements of the storage that the view
//! does not reach hold a number that would be noticed.

use std::fmt;
use teeny_core::random::philox;
use teeny_core::{DType, DeviceRef, IntoShape, Key, Layout, Result, Scalar, Shape, Tensor};

/// The arrangement of the elements of an input in its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// Row-major from the start.
    Packed,
    /// Axes in reverse order.
    Transposed,
    /// The inside of a larger tensor: an offset and gaps on every axis.
    Sliced,
    /// Every second element of the last axis, from the second on.
    Stepped,
    /// Every axis backwards.
    Flipped,
    /// The first axis repeated with stride 0.
    Expanded,
    /// The last axis repeated with stride 0.
    Repeated,
}

use Arrangement::*;

impl Arrangement {
    /// Every arrangement.
    pub const ALL: [Arrangement; 7] =
        [Packed, Transposed, Sliced, Stepped, Flipped, Expanded, Repeated];

    /// A layout of `shape` arranged this way, and the number of elements its storage needs.
    pub fn layout(self, shape: &Shape) -> Result<(Layout, usize)> {
        let ndim = shape.ndim();
        let backwards: Vec<usize> = (0..ndim).rev().collect();
        let grown = |grow: &dyn Fn(usize, usize) -> usize| {
            Shape::new(&shape.iter().enumerate().map(|(a, &n)| grow(a, n)).collect::<Vec<_>>())
        };
        let last = ndim.wrapping_sub(1);
        let base = match self {
            Packed | Flipped => *shape,
            Transposed => Shape::new(&backwards.iter().map(|&a| shape[a]).collect::<Vec<_>>())?,
            Sliced => grown(&|_, n| n + 2)?,
            Stepped => grown(&|a, n| if a == last { 2 * n + 1 } else { n })?,
            Expanded => grown(&|a, n| if a == 0 { n.min(1) } else { n })?,
            Repeated => grown(&|a, n| if a == last { n.min(1) } else { n })?,
        };
        let whole = Layout::contiguous(base);
        let layout = match self {
            Packed => whole,
            Transposed => whole.permute(&backwards),
            Sliced => (0..ndim).fold(whole, |l, a| l.slice(a, 1, shape[a], 1)),
            Stepped if ndim > 0 => whole.slice(last, 1, shape[last], 2),
            Flipped => (0..ndim).fold(whole, |l, a| l.flip(a)),
            Expanded | Repeated => whole.expand(shape).unwrap_or(whole),
            Stepped => whole,
        };
        Ok((layout, base.numel()))
    }
}

/// The range of values of an input.
#[derive(Clone, Copy, Debug)]
pub enum Domain {
    /// Everything: NaN, infinities, both zeros, subnormals, the largest; integers from the smallest
    /// to the largest.
    Any,
    /// Numbers in -4..4; integers -4..=4, or 0..=8.
    Small,
    /// Numbers in 0.5..1.5; integers 1..=3.
    Positive,
    /// Numbers in -1000..1000 and what precedes them in `Any` below 10,000: angles.
    Angle,
    /// The integers `0..n`, as any type: positions, and ties.
    Below(usize),
    /// Few different ones: ties, among them NaN, infinities and negative numbers.
    Few,
    /// Counts of bits, mostly below the width of the type. Some are negative, and some are beyond
    /// the width with the low bits of a small count.
    Shift,
    /// Neighbours far from 0, which a type with fewer digits cannot tell apart.
    Close,
}

/// Where an operand's values come from. They are made when it is put on a device, as most cases of
/// a filtered run never are.
#[derive(Clone)]
enum Values {
    Drawn(Domain, u64),
    Given(Vec<Scalar>),
}

/// One operand of a case.
#[derive(Clone)]
pub struct Input {
    values: Values,
    shape: Shape,
    dtype: DType,
    arrangement: Arrangement,
    flushed: bool,
}

impl Input {
    /// `shape` filled from `domain`; `seed` makes operands differ.
    pub fn new(
        shape: impl IntoShape,
        dtype: DType,
        arrangement: Arrangement,
        domain: Domain,
        seed: u64,
    ) -> Input {
        let shape = shape.shape().expect("the suite's shapes are legal");
        Input { values: Values::Drawn(domain, seed), shape, dtype, arrangement, flushed: false }
    }

    /// `shape` with the given values.
    pub fn of(
        values: impl IntoIterator<Item = impl Into<Scalar>>,
        shape: impl IntoShape,
        dtype: DType,
        arrangement: Arrangement,
    ) -> Input {
        let shape = shape.shape().expect("the suite's shapes are legal");
        Input {
            values: Values::Given(values.into_iter().map(Into::into).collect()),
            shape,
            dtype,
            arrangement,
            flushed: false,
        }
    }

    /// The input with `value` in place of the last `n` elements.
    pub fn with_last(&self, n: usize, value: f64) -> Input {
        let len = self.shape.numel();
        let values = (0..len).map(|i| match i + n < len {
            true => self.value(i),
            false => Scalar::Float(value),
        });
        Input { values: Values::Given(values.collect()), ..self.clone() }
    }

    fn value(&self, i: usize) -> Scalar {
        match &self.values {
            &Values::Drawn(domain, seed) => sample(domain, self.dtype, i, seed),
            Values::Given(values) => values[i],
        }
    }

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The type of the elements.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The input with other sizes.
    pub fn with_shape(&self, shape: Shape) -> Input {
        Input { shape, ..self.clone() }
    }

    /// The input with other draws.
    pub fn reseeded(self, by: u64) -> Input {
        match self.values {
            Values::Drawn(domain, seed) => {
                Input { values: Values::Drawn(domain, seed + by), ..self }
            }
            Values::Given(_) => self,
        }
    }

    /// The input in another arrangement.
    pub fn with_arrangement(&self, arrangement: Arrangement) -> Input {
        Input { arrangement, ..self.clone() }
    }

    /// True if the values are drawn from [`Domain::Small`]: another domain can replace it.
    pub fn is_small(&self) -> bool {
        matches!(self.values, Values::Drawn(Domain::Small, _))
    }

    /// The input with the same draws from `domain`.
    pub fn redrawn(&self, domain: Domain) -> Input {
        let Values::Drawn(_, seed) = self.values else { return self.clone() };
        Input { values: Values::Drawn(domain, seed), ..self.clone() }
    }

    /// The input in another type.
    pub fn with_dtype(&self, dtype: DType) -> Input {
        Input { dtype, ..self.clone() }
    }

    /// The input with values from `domain`.
    pub fn with_domain(mut self, domain: Domain) -> Input {
        self.values = Values::Drawn(domain, 70);
        self
    }

    /// The input with zeros in place of subnormal numbers.
    pub fn flushed(&self) -> Input {
        Input { flushed: true, ..self.clone() }
    }

    /// The tensor on `device`.
    pub fn on(&self, device: &DeviceRef) -> Result<Tensor> {
        let (layout, len) = self.arrangement.layout(&self.shape)?;
        let unseen = if self.dtype.is_float() { Scalar::Float(321.0) } else { Scalar::Int(101) };
        let mut storage = vec![unseen; len];
        for (i, place) in layout.positions().enumerate() {
            storage[place] = self.value(i);
            if self.flushed {
                storage[place] = flushed(storage[place], self.dtype);
            }
        }
        Tensor::from_scalars(&storage, len, self.dtype, device)?.with_layout(layout)
    }
}

/// A zero of the same sign for a subnormal number of the type that `dtype` is computed in.
fn flushed(value: Scalar, dtype: DType) -> Scalar {
    let normal = match dtype.compute() {
        DType::F64 => f64::MIN_POSITIVE,
        _ => f32::MIN_POSITIVE as f64,
    };
    match value {
        Scalar::Float(x) if x.abs() < normal => Scalar::Float(0f64.copysign(x)),
        _ => value,
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.dtype, self.shape, self.arrangement)
    }
}

/// Numbers at which floating-point code goes wrong.
const SPECIAL: [f64; 32] = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.0,
    -2.5,
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    1e-40,
    -1e-40,
    1.2e-38,
    3.4e38,
    -3.4e38,
    88.0,
    -88.0,
    1e-7,
    -1e-7,
    100.0,
    -103.5,
    10.5,
    65504.0,
    // The ends of f16, f32 and f64: the least, the greatest.
    6e-8,
    1.4e-45,
    f32::MAX as f64,
    5e-324,
    f64::MIN_POSITIVE,
    f64::MAX,
    // Points with exact logarithms and roots.
    1000.0,
    64.0,
];

/// The floats of [`Domain::Few`].
const FEW: [f64; 8] = [0.0, -0.0, 1.0, -1.0, 2.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

/// Number `i` from the last power of two below the largest number of `dtype` on.
fn neighbour(dtype: DType, i: u64) -> Scalar {
    match dtype {
        DType::F16 => Scalar::Float(1024.0 + i as f64),
        DType::BF16 => Scalar::Float(128.0 + i as f64),
        DType::F32 => Scalar::Float((1 << 23) as f64 + i as f64),
        DType::F64 => Scalar::Float((1u64 << 52) as f64 + i as f64),
        dtype => {
            let bits = 8 * dtype.size() as u32 - 1 - u32::from(dtype.is_signed_int());
            Scalar::UInt((1 << bits.min(63)) + i)
        }
    }
}

fn sample(domain: Domain, dtype: DType, i: usize, seed: u64) -> Scalar {
    let words = philox(Key { seed, draw: 0xC0F0 }, i as u64);
    let unit = words[0] as f64 / 4_294_967_296.0;
    let value = match domain {
        Domain::Any if dtype.is_float() && !words[1].is_multiple_of(3) => {
            Scalar::Float(SPECIAL[(i + seed as usize) % SPECIAL.len()])
        }
        Domain::Any if dtype.is_float() => Scalar::Float(16.0 * unit - 8.0),
        Domain::Any => match words[1] % 4 {
            0 => Scalar::UInt(1 << (8 * dtype.size() - 1)), // the smallest signed integer
            1 => Scalar::UInt((words[2] as u64) << 32 | words[3] as u64),
            2 => Scalar::UInt(u64::MAX >> (words[2] % 2)),
            _ => Scalar::Int((words[2] % 9) as i64 - 4),
        },
        Domain::Angle if dtype.is_float() && words[1].is_multiple_of(3) => {
            Scalar::Float(2000.0 * unit - 1000.0)
        }
        Domain::Angle if dtype.is_float() => {
            let special = SPECIAL[(i + seed as usize) % SPECIAL.len()];
            Scalar::Float(if special.is_nan() || special.abs() < 1e4 { special } else { unit })
        }
        Domain::Small | Domain::Angle if dtype.is_float() => Scalar::Float(8.0 * unit - 4.0),
        Domain::Small | Domain::Angle if dtype.is_unsigned_int() => {
            Scalar::UInt((words[0] % 9) as u64)
        }
        Domain::Small | Domain::Angle => Scalar::Int((words[0] % 9) as i64 - 4),
        Domain::Positive if dtype.is_float() => Scalar::Float(0.573 + 0.927 * unit),
        Domain::Positive => Scalar::Int((words[0] % 3) as i64 + 1),
        Domain::Few if dtype.is_float() => Scalar::Float(FEW[words[0] as usize % FEW.len()]),
        Domain::Few => match words[0] % 5 {
            0 => Scalar::UInt(1 << (8 * dtype.size() - 1)), // the smallest signed integer
            1 => Scalar::UInt(u64::MAX),
            n => Scalar::UInt(u64::from(n) - 2),
        },
        Domain::Shift => match words[1] % 8 {
            0 => Scalar::Int(-1 - i64::from(words[0] % 5)),
            1 => Scalar::UInt((1 << (4 * dtype.size())) + u64::from(words[0] % 8)),
            _ => Scalar::UInt(u64::from(words[0]) % (8 * dtype.size() as u64 + 3)),
        },
        Domain::Close => neighbour(dtype, u64::from(words[0] % 5)),
        Domain::Below(n) => Scalar::UInt((words[0] as usize % n.max(1)) as u64),
    };
    match dtype {
        DType::Bool => Scalar::Bool(words[0] % 2 == 1),
        dtype => value.cast(dtype),
    }
}
