//! Rows copied in reverse: the last axis of a flip.
//!
//! The naive form is `to[i] = from[-i]`, of which the compiler's loop leaves much of a short row to
//! a loop over elements. Here pieces of one vector are reversed in registers. Independent of views:
//! `copy` finds the rows.

use crate::simd::{F32s, Work};

/// Copies `height` rows of `len` elements in reverse; `from` is the last element of the first row
/// in memory. Steps are row strides in elements. The constructor promises the elements, and that
/// both sides do not overlap.
pub(crate) struct Reverse<T> {
    pub from: *const T,
    pub to: *mut T,
    pub steps: [isize; 2],
    pub height: usize,
    pub len: usize,
}

impl<T: Copy> Work for Reverse<T> {
    type Out = ();
    const FOR_AVX512: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let Reverse { mut from, mut to, steps, height, len } = self;
        // Pieces of one size, of which the last may overlap the one before.
        macro_rules! by {
            ($size:literal) => {{
                let mut at = 0;
                while at < len {
                    let here = at.min(len - $size);
                    // SAFETY: by contract; the elements of a piece are in the row.
                    unsafe {
                        let first = from.sub(here + $size - 1).cast::<[T; $size]>();
                        let mut piece = first.read();
                        piece.reverse();
                        to.add(here).cast::<[T; $size]>().write(piece);
                    }
                    at += $size;
                }
            }};
        }
        for _ in 0..height {
            match len {
                32.. if size_of::<T>() == 1 => by!(32),
                16.. if size_of::<T>() <= 2 => by!(16),
                8.. => by!(8),
                4.. => by!(4),
                _ => by!(1),
            }
            from = from.wrapping_offset(steps[0]);
            to = to.wrapping_offset(steps[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simd::Level;

    fn check<T: Copy + PartialEq + std::fmt::Debug>(of: impl Fn(usize) -> T) {
        for level in Level::available() {
            for len in 1..70 {
                let (height, row_stride) = (3, len + 2);
                let x: Vec<T> = (0..height * row_stride).map(&of).collect();
                let mut y = vec![of(0); height * len + 1];
                let (from, to) = (x.as_ptr().wrapping_add(len - 1), y.as_mut_ptr());
                let steps = [row_stride as isize, len as isize];
                level.run(Reverse { from, to, steps, height, len });
                for row in 0..height {
                    for i in 0..len {
                        assert_eq!(
                            y[row * len + i],
                            x[row * row_stride + len - 1 - i],
                            "{level:?} {len}"
                        );
                    }
                }
                assert_eq!(y[height * len], of(0), "nothing behind the last row");
            }
        }
    }

    #[test]
    fn rows_of_all_sizes_are_reversed() {
        check(|i| i as u8);
        check(|i| i as u16);
        check(|i| i as u32);
        check(|i| i as u64);
    }
}
