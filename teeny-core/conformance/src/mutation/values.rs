//! Changes of the elements of an operand or a result.

use teeny_core::{DType, Scalar};

/// One change of elements.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ValueEdit {
    /// Of this dtype: each element is cast to another one and back.
    Through(DType, DType),
    NanIsZero,
    InfinityIsLargest,
    ZeroIsPositive,
    SubnormalIsZero,
    NegativeIsPositive,
    /// Each element is the first.
    First,
    /// The last element is not written.
    LastIsStale,
    /// The elements after the 1,024th are not written.
    TailIsStale,
}

use ValueEdit::*;

/// The dtypes that lose digits or range of `dtype`, and no other such dtype of the same class does
/// without losing more.
fn narrower(dtype: DType) -> &'static [DType] {
    use DType::*;
    match dtype {
        Bool | U8 | I8 => &[], // a cast to the other one of 8 bits wraps
        U16 => &[U8, F16],
        I16 => &[I8, F16],
        U32 => &[U16, F32],
        I32 => &[I16, F32],
        U64 => &[U32, F64],
        I64 => &[I32, F64],
        F16 => &[BF16],
        BF16 => &[F16],
        F32 => &[F16, BF16],
        F64 => &[F32],
    }
}

/// The changes of elements of `dtype`.
pub fn edits(dtype: DType) -> Vec<ValueEdit> {
    let mut all: Vec<ValueEdit> = narrower(dtype).iter().map(|&via| Through(dtype, via)).collect();
    if dtype.is_float() {
        all.extend([NanIsZero, InfinityIsLargest, ZeroIsPositive, SubnormalIsZero]);
    }
    if dtype.is_float() || dtype.is_signed_int() {
        all.push(NegativeIsPositive);
    }
    all.push(First);
    all
}

/// The further changes of results.
pub fn of_results() -> [ValueEdit; 2] {
    [LastIsStale, TailIsStale]
}

impl ValueEdit {
    pub fn text(self, dtype: DType) -> String {
        match self {
            Through(_, via) => format!("{dtype} goes through {via}"),
            NanIsZero => "NaN is 0".into(),
            InfinityIsLargest => "an infinity is the largest number".into(),
            ZeroIsPositive => "-0 is 0".into(),
            SubnormalIsZero => "a subnormal number is 0".into(),
            NegativeIsPositive => "a negative number is positive".into(),
            First => "each element is the first".into(),
            LastIsStale => "the last element is not written".into(),
            TailIsStale => "the elements after the 1,024th are not written".into(),
        }
    }

    /// True if the change is of one dtype alone.
    pub fn is_of_type(self) -> bool {
        matches!(self, Through(..))
    }

    pub fn apply(self, values: &mut [Scalar], dtype: DType) {
        let stale = Scalar::UInt(77).cast(dtype);
        let normal = if dtype == DType::F16 { 6.103515625e-5 } else { f32::MIN_POSITIVE.into() };
        let normal = if dtype == DType::F64 { f64::MIN_POSITIVE } else { normal };
        let each = |values: &mut [Scalar], f: &dyn Fn(f64) -> f64| {
            for value in values {
                if let Scalar::Float(x) = value {
                    *x = f(*x);
                }
            }
        };
        match self {
            Through(_, via) => values.iter_mut().for_each(|x| *x = x.cast(via).cast(dtype)),
            NanIsZero => each(values, &|x| if x.is_nan() { 0.0 } else { x }),
            InfinityIsLargest => each(values, &|x| match dtype {
                _ if !x.is_infinite() => x,
                DType::F16 => 65504f64.copysign(x),
                DType::BF16 => 3.3895e38f64.copysign(x),
                DType::F32 => f64::from(f32::MAX).copysign(x),
                _ => f64::MAX.copysign(x),
            }),
            ZeroIsPositive => each(values, &|x| if x == 0.0 { 0.0 } else { x }),
            SubnormalIsZero => {
                each(values, &|x| if x.abs() < normal { 0f64.copysign(x) } else { x })
            }
            NegativeIsPositive => values.iter_mut().for_each(|x| match x {
                Scalar::Int(x) => *x = x.saturating_abs(),
                Scalar::Float(x) => *x = if *x < 0.0 { -*x } else { *x },
                _ => {}
            }),
            First => {
                if let Some(&first) = values.first() {
                    values.fill(first);
                }
            }
            LastIsStale => values.iter_mut().rev().take(1).for_each(|x| *x = stale),
            TailIsStale => values.iter_mut().skip(1024).for_each(|x| *x = stale),
        }
    }
}
