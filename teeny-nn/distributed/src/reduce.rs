//! Reductions on the host: elements as bytes, added rank by rank.

use super::kind::{NotFinite, Reduce};
use half::{bf16, f16};
use teeny_core::DType;

/// Reduces the elements of all ranks, in rank order, into the elements of rank `own`. Returns the
/// first element of the result that is not finite, if any.
pub(super) fn sum(
    reduce: Reduce,
    dtype: DType,
    by_rank: &mut [&mut [u8]],
    own: usize,
) -> Option<NotFinite> {
    match dtype {
        DType::Bool | DType::U8 => fold::<u8, 1>(reduce, by_rank, own),
        DType::U16 => fold::<u16, 2>(reduce, by_rank, own),
        DType::U32 => fold::<u32, 4>(reduce, by_rank, own),
        DType::U64 => fold::<u64, 8>(reduce, by_rank, own),
        DType::I8 => fold::<i8, 1>(reduce, by_rank, own),
        DType::I16 => fold::<i16, 2>(reduce, by_rank, own),
        DType::I32 => fold::<i32, 4>(reduce, by_rank, own),
        DType::I64 => fold::<i64, 8>(reduce, by_rank, own),
        DType::F16 => fold::<f16, 2>(reduce, by_rank, own),
        DType::BF16 => fold::<bf16, 2>(reduce, by_rank, own),
        DType::F32 => fold::<f32, 4>(reduce, by_rank, own),
        DType::F64 => fold::<f64, 8>(reduce, by_rank, own),
    }
}

/// Elements per block: the sums of a block stay in the first-level cache.
const BLOCK: usize = 1024;

fn fold<T: Number<SIZE>, const SIZE: usize>(
    reduce: Reduce,
    by_rank: &mut [&mut [u8]],
    own: usize,
) -> Option<NotFinite> {
    let (ranks, elements) = (by_rank.len(), by_rank[own].len() / SIZE);
    let mut sums = [T::Sum::default(); BLOCK];
    let mut found = None;
    for start in (0..elements).step_by(BLOCK) {
        let n = BLOCK.min(elements - start);
        let bytes = start * SIZE..(start + n) * SIZE;
        for (rank, theirs) in by_rank.iter().enumerate() {
            let pairs = sums[..n].iter_mut().zip(theirs[bytes.clone()].as_chunks::<SIZE>().0);
            match reduce {
                _ if rank == 0 => pairs.for_each(|(sum, x)| *sum = T::read(*x)),
                Reduce::Max => pairs.for_each(|(sum, x)| *sum = T::larger(*sum, T::read(*x))),
                _ => pairs.for_each(|(sum, x)| *sum = T::plus(*sum, T::read(*x))),
            }
        }
        if reduce == Reduce::Mean && ranks > 1 {
            sums[..n].iter_mut().for_each(|sum| *sum = T::over(*sum, ranks));
        }
        let is_finite = |finite, sum: &T::Sum| finite & T::is_finite(*sum);
        if found.is_none() && !sums[..n].iter().fold(true, is_finite) {
            let at = sums.iter().position(|sum| !T::is_finite(*sum)).unwrap_or(0);
            let element = start + at;
            let bad = |theirs: &&mut [u8]| {
                let x = theirs[element * SIZE..].first_chunk::<SIZE>();
                x.is_some_and(|x| !T::is_finite(T::read(*x)))
            };
            found = Some(NotFinite { element, rank: by_rank.iter().position(bad) });
        }
        let out = by_rank[own][bytes].as_chunks_mut::<SIZE>().0;
        out.iter_mut().zip(&sums[..n]).for_each(|(out, sum)| *out = T::write(*sum));
    }
    found
}

/// An element of `SIZE` bytes, and its accumulation type.
trait Number<const SIZE: usize> {
    type Sum: Copy + Default;
    fn read(bytes: [u8; SIZE]) -> Self::Sum;
    fn write(sum: Self::Sum) -> [u8; SIZE];
    fn plus(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn larger(a: Self::Sum, b: Self::Sum) -> Self::Sum;
    fn over(sum: Self::Sum, ranks: usize) -> Self::Sum;
    fn is_finite(sum: Self::Sum) -> bool;
}

macro_rules! ints {
    ($($type:ty, $size:literal;)*) => {$(
        impl Number<$size> for $type {
            type Sum = $type;
            fn read(bytes: [u8; $size]) -> $type {
                <$type>::from_ne_bytes(bytes)
            }
            fn write(sum: $type) -> [u8; $size] {
                sum.to_ne_bytes()
            }
            fn plus(a: $type, b: $type) -> $type {
                a.wrapping_add(b)
            }
            fn larger(a: $type, b: $type) -> $type {
                a.max(b)
            }
            /// Integers have no mean.
            fn over(sum: $type, _ranks: usize) -> $type {
                sum
            }
            fn is_finite(_: $type) -> bool {
                true
            }
        }
    )*};
}
ints!(u8, 1; u16, 2; u32, 4; u64, 8; i8, 1; i16, 2; i32, 4; i64, 8;);

macro_rules! floats {
    ($($type:ty, $sum:ty, $size:literal, $read:expr, $write:expr;)*) => {$(
        impl Number<$size> for $type {
            type Sum = $sum;
            fn read(bytes: [u8; $size]) -> $sum {
                $read(<$type>::from_ne_bytes(bytes))
            }
            fn write(sum: $sum) -> [u8; $size] {
                $write(sum).to_ne_bytes()
            }
            fn plus(a: $sum, b: $sum) -> $sum {
                a + b
            }
            fn larger(a: $sum, b: $sum) -> $sum {
                if a.is_nan() || a > b { a } else { b }
            }
            fn over(sum: $sum, ranks: usize) -> $sum {
                sum / ranks as $sum
            }
            fn is_finite(sum: $sum) -> bool {
                sum.is_finite()
            }
        }
    )*};
}
floats!(
    f16, f32, 2, f16::to_f32, f16::from_f32;
    bf16, f32, 2, bf16::to_f32, bf16::from_f32;
    f32, f32, 4, std::convert::identity, std::convert::identity;
    f64, f64, 8, std::convert::identity, std::convert::identity;
);
