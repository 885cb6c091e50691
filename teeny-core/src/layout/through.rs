//! Composing views: a view of a computed value as views of its operands.

use super::Layout;
use crate::shape::MAX_NDIM;

/// Neighbouring axes as one: its size, its step in row-major order and its stride.
#[derive(Clone, Copy, Default)]
struct Joined {
    size: usize,
    step: usize,
    stride: isize,
    /// The range of the view's coordinates on this axis: the first, and how far it goes.
    first: usize,
    below: usize,
    above: usize,
}

impl Layout {
    /// This view of a row-major value of the shape of `x`, as a view of the storage of `x`: the
    /// element at an index of the result is the one of `x` at the row-major position that this view
    /// has there.
    ///
    /// ```text
    /// y = exp(x)   x (3, 4) strides (1, 3)      y.t()  is  exp of  (4, 3) strides (3, 1)  of x
    /// ```
    ///
    /// None where a stride would differ from element to element, as of a reshape across axes that
    /// `x` cannot join, and for views without elements.
    pub(crate) fn through(&self, x: &Layout) -> Option<Layout> {
        if self.numel() == 0 {
            return None;
        }
        if self.offset == 0 && self.shape == x.shape && self.is_contiguous() {
            return Some(*x);
        }
        let mut joined = [Joined::default(); MAX_NDIM];
        let axes = join(x, &mut joined);
        let axes = &mut joined[..axes];
        let mut position = self.offset;
        let mut offset = x.offset as isize;
        for axis in axes.iter_mut() {
            axis.first = position / axis.step;
            position %= axis.step;
            offset += axis.first as isize * axis.stride;
        }
        let mut out = Layout { offset: 0, ..*self };
        for i in 0..self.ndim() {
            let (size, stride) = (self.shape[i], self.strides[i]);
            if size <= 1 || stride == 0 {
                out.strides[i] = 0;
                continue;
            }
            // The outermost axis on which all steps stay: a step of an inner one is shorter.
            let length = stride.unsigned_abs();
            let axis = axes.iter_mut().find(|axis| {
                length.is_multiple_of(axis.step) && length / axis.step * (size - 1) < axis.size
            })?;
            let steps = length / axis.step;
            *(if stride < 0 { &mut axis.below } else { &mut axis.above }) += steps * (size - 1);
            out.strides[i] = stride.signum() * steps as isize * axis.stride;
        }
        let stays = |a: &Joined| a.below <= a.first && a.first + a.above < a.size;
        if !axes.iter().all(stays) {
            return None;
        }
        out.offset = usize::try_from(offset).ok()?;
        Some(out)
    }
}

/// The axes of `x`, neighbours joined where one stride serves both; how many.
fn join(x: &Layout, joined: &mut [Joined; MAX_NDIM]) -> usize {
    let mut n = 0usize;
    let mut step = 1;
    // From the innermost axis outwards, then turned round.
    for (size, stride) in x.shape.iter().copied().zip(x.strides.iter().copied()).rev() {
        if size == 1 {
            continue;
        }
        match n.checked_sub(1).map(|last| &mut joined[last]) {
            Some(inner) if inner.stride * inner.size as isize == stride => inner.size *= size,
            _ => {
                joined[n] = Joined { size, step, stride, ..Joined::default() };
                n += 1;
            }
        }
        step *= size;
    }
    joined[..n].reverse();
    n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    /// A linear congruential generator; the upper bits of its state.
    struct Dice(u64);
    impl Dice {
        fn below(&mut self, n: usize) -> usize {
            self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((self.0 >> 33) % n as u64) as usize
        }
    }

    /// Some view of `layout`.
    fn view(dice: &mut Dice, mut layout: Layout) -> Layout {
        for _ in 0..dice.below(5) {
            let ndim = layout.ndim();
            let axis = if ndim == 0 { 0 } else { dice.below(ndim) };
            layout = match dice.below(7) {
                0 if ndim > 1 => layout.transpose(axis, dice.below(ndim)),
                1 if ndim > 0 => layout.flip(axis),
                2 if ndim > 0 && layout.shape()[axis] > 0 => {
                    let size = layout.shape()[axis];
                    let start = dice.below(size);
                    let step = 1 + dice.below(3);
                    let len = 1 + dice.below((size - start).div_ceil(step));
                    layout.slice(axis, start, len, step as isize)
                }
                3 if ndim < 5 => layout.unsqueeze(axis).unwrap(),
                4 => {
                    let sizes: Vec<_> = layout
                        .shape()
                        .iter()
                        .map(|&n| if n == 1 { 1 + dice.below(3) } else { n })
                        .collect();
                    layout.expand(&Shape::new(&sizes).unwrap()).unwrap()
                }
                5 => {
                    let n = layout.numel();
                    let inner =
                        (1..=n).filter(|d| n.is_multiple_of(*d)).nth(dice.below(3)).unwrap_or(1);
                    let shape = Shape::new(&[n / inner, inner]).unwrap();
                    layout.reshape(&shape).unwrap_or(layout)
                }
                6 if ndim > 0 && ndim < 5 && layout.shape()[axis] > 1 => {
                    layout.unfold(axis, 2, 1 + dice.below(2)).unwrap()
                }
                _ => layout,
            };
        }
        layout
    }

    #[test]
    fn a_composed_view_reads_the_same_elements() {
        let mut dice = Dice(7);
        let (mut composed, cases) = (0, 100_000);
        for case in 0..cases {
            let sizes: Vec<_> = (0..dice.below(4)).map(|_| 1 + dice.below(5)).collect();
            let x = view(&mut dice, Layout::contiguous(Shape::new(&sizes).unwrap()));
            let outer = view(&mut dice, Layout::contiguous(*x.shape()));
            let Some(both) = outer.through(&x) else { continue };
            composed += 1;
            let positions: Vec<_> = x.positions().collect();
            assert!(
                both.shape() == outer.shape()
                    && both.positions().eq(outer.positions().map(|p| positions[p])),
                "case {case}: {outer:?} of {x:?} is not {both:?}"
            );
        }
        assert!(composed > cases * 9 / 10, "{composed} of {cases}");
    }

    #[test]
    fn a_reshape_across_axes_that_do_not_join_is_refused() {
        let shape = |sizes: &[usize]| Shape::new(sizes).unwrap();
        let x = Layout::contiguous(shape(&[3, 4])).transpose(0, 1); // (4, 3)
        let flat = Layout::contiguous(shape(&[12]));
        assert!(flat.through(&x).is_none());
        let rows = Layout::contiguous(shape(&[2, 2, 3])); // splits the outer axis
        assert_eq!(rows.through(&x).unwrap().strides(), [2, 1, 4]);
        assert!(Layout::contiguous(shape(&[0])).through(&x).is_none());
    }
}
