//! Copies of rows: of neighbours, from every n-th element, and to every n-th element.

use crate::float::Float;
use crate::simd::Lanes;

/// Every `step`-th of `from`, `n` elements. Vectors of a step of two, the usual one, are the even
/// lanes of two, and vectors of a step of four are the even lanes of such vectors.
///
/// # Safety
/// `from` has them, and `to` too.
#[inline(always)]
pub(super) unsafe fn gather<T: Float, V: Lanes<T>>(from: &[T], step: usize, to: *mut T, n: usize) {
    debug_assert!(n == 0 || (n - 1) * step < from.len());
    let (len, from) = (from.len(), from.as_ptr());
    let mut j = 0;
    // SAFETY: by contract; vectors end inside `from`.
    unsafe {
        while step == 2 && j + V::LANES <= n && 2 * (j + V::LANES) <= len {
            let (a, b) = (V::load(from.add(2 * j)), V::load(from.add(2 * j + V::LANES)));
            a.even(b).store(to.add(j));
            j += V::LANES;
        }
        if step == 2 && V::NATIVE && n - j > 2 {
            let rest = (n - j).min(V::LANES);
            let count = 2 * rest - 1;
            let a = V::load_part(from.add(2 * j), count.min(V::LANES));
            let more = count.saturating_sub(V::LANES);
            let b = V::load_part(from.wrapping_add(2 * j + V::LANES), more);
            a.even(b).store_part(to.add(j), rest);
            j += rest;
        }
        while step == 4 && j < n && (V::NATIVE && n - j > 2 || j + V::LANES <= n) {
            let rest = (n - j).min(V::LANES);
            let (first, count) = (from.wrapping_add(4 * j), 4 * rest - 3);
            let mut parts = [V::splat(T::ZERO); 4];
            let mut i = 0;
            while i < 4 {
                let at = first.wrapping_add(i * V::LANES);
                parts[i] = match 4 * (j + V::LANES) <= len {
                    true => V::load(at),
                    false => V::load_part(at, count.saturating_sub(i * V::LANES).min(V::LANES)),
                };
                i += 1;
            }
            let [a, b, c, d] = parts;
            let v = a.even(b).even(c.even(d));
            if rest == V::LANES {
                v.store(to.add(j))
            } else {
                v.store_part(to.add(j), rest)
            }
            j += rest;
        }
        // Rows may be short: an address that moves on needs no multiplications before the loop.
        let mut from = from.wrapping_add(step * j);
        while j < n {
            *to.add(j) = *from;
            from = from.wrapping_add(step);
            j += 1;
        }
    }
}

/// Writes `from` to every `every`-th element of `to`.
///
/// # Safety
/// They are writable.
#[inline(always)]
pub(super) unsafe fn scatter_strided<T: Float, V: Lanes<T>>(from: &[T], to: *mut T, every: usize) {
    // SAFETY: by contract; reads are inside the slice.
    unsafe {
        if every == 1 {
            return copy_row::<T, V>(from.as_ptr(), to, from.len());
        }
        let mut j = 0;
        while j < from.len() {
            *to.add(j * every) = *from.as_ptr().add(j);
            j += 1;
        }
    }
}

/// Copies `n` elements.
///
/// # Safety
/// `from` has them, and they are writable.
#[inline(always)]
pub(super) unsafe fn copy_row<T: Float, V: Lanes<T>>(from: *const T, to: *mut T, n: usize) {
    let mut j = 0;
    // SAFETY: by contract.
    unsafe {
        while j + V::LANES <= n {
            V::load(from.add(j)).store(to.add(j));
            j += V::LANES;
        }
        let rest = n - j;
        if rest > 0 {
            V::load_part(from.add(j), rest).store_part(to.add(j), rest);
        }
    }
}
