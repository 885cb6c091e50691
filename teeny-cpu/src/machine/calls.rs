//! Functions that the register machine calls: those whose constants leave no registers for others.

use super::blocks;
use super::instructions::BUFFER;
use super::step::{Place, Step};
use crate::loops::Loop;
use crate::simd::loops::Real;
use crate::simd::{F32s, Lanes, Level, Work};
use crate::vecmath::Exp;

/// `exp` of whole vectors, in place.
pub(super) struct Exponentials<T> {
    pub block: *mut T,
    pub vectors: usize,
}

impl<T: Real> Work for Exponentials<T> {
    type Out = ();
    #[inline(always)]
    fn run<V: F32s>(self) {
        for i in 0..self.vectors {
            // SAFETY: made of a buffer with this many vectors, which the caller borrows.
            unsafe {
                let p = self.block.add(i * T::Vector::<V>::LANES);
                T::unary::<Exp, V>(T::Vector::<V>::load(p)).store(p);
            }
        }
    }
}

/// The function `body` of the `n` elements at `block`, in place; a second operand is one buffer
/// after the first.
///
/// # Safety
/// There are as many elements, in memory for two buffers.
#[inline(never)]
pub(super) unsafe fn call(level: Level, wide: bool, body: Loop, block: *mut u8, n: usize) {
    let (first, second) = (Place::Block(block), Place::Block(block.wrapping_add(BUFFER)));
    let from = [first, second, second, second];
    let step = Step { body, wide, from, to: first, stream: false };
    // SAFETY: by contract; a block is never longer than in `blocks`.
    unsafe { blocks::run_one(level, &step, n) };
}
