//! Coalescing the dimensions of several views: axes of size 1 are dropped, and neighbouring axes
//! are merged where all views allow it.
//!
//! ```text
//! x (64, 3, 28, 28) row-major, b (3, 1, 1) expanded to it    (64, 3, 784): 3 axes instead of 4
//! x and y both row-major                                     one axis: the index is the address
//! ```

use teeny_core::{Layout, Result, Shape};

/// Several views of one shape with coalesced dimensions. If all sizes are 1, no axes are left.
#[derive(Clone, Debug)]
pub(crate) struct Coalesced {
    pub sizes: Vec<usize>,
    /// Strides per view.
    pub strides: Vec<Vec<isize>>,
}

impl Coalesced {
    /// The views `layouts`, all of shape `shape`. Row-major order is kept.
    pub fn new(shape: &Shape, layouts: &[&Layout]) -> Coalesced {
        let views: Vec<Vec<isize>> = layouts.iter().map(|l| l.strides().to_vec()).collect();
        Coalesced::merged(shape.iter().copied().zip(0..), &views)
    }

    /// The views `layouts` restricted to `axes` of theirs, in that order.
    pub fn over(shape: &Shape, layouts: &[&Layout], axes: &[usize]) -> Result<Coalesced> {
        let sizes: Vec<usize> = axes.iter().map(|&a| shape[a]).collect();
        let part = Shape::new(&sizes)?;
        let strides = |l: &Layout| axes.iter().map(|&a| l.strides()[a]).collect::<Vec<_>>();
        // Only shape and strides matter here; the bounds were checked for the whole views.
        let parts: Vec<Vec<isize>> = layouts.iter().map(|l| strides(l)).collect();
        Ok(Coalesced::merged(part.iter().copied().zip(0..), &parts))
    }

    fn merged(axes: impl Iterator<Item = (usize, usize)>, views: &[Vec<isize>]) -> Coalesced {
        let mut joint = Coalesced { sizes: Vec::new(), strides: vec![Vec::new(); views.len()] };
        for (size, axis) in axes.filter(|(n, _)| *n != 1) {
            let merges = !joint.sizes.is_empty()
                && views.iter().zip(&joint.strides).all(|(v, s)| {
                    s.last().is_some_and(|&outer| v[axis].checked_mul(size as isize) == Some(outer))
                });
            match (merges, joint.sizes.last_mut()) {
                (true, Some(last)) => {
                    *last *= size;
                    joint.strides.iter_mut().for_each(|s| _ = s.pop());
                }
                _ => joint.sizes.push(size),
            }
            for (view, strides) in views.iter().zip(&mut joint.strides) {
                strides.push(view[axis]);
            }
        }
        joint
    }

    /// The same with axes of size 1 in front, so that there are 0, 1, 2, 4 or 8: fewer numbers of
    /// axes mean fewer shaders.
    pub fn padded(self) -> Coalesced {
        let axes = match self.sizes.len() {
            n @ 0..=2 => n,
            n => n.next_power_of_two(),
        };
        self.padded_to(axes)
    }

    /// The same with axes of size 1 in front, so that there are at least `axes`; 8 if there are
    /// more.
    pub fn padded_to(mut self, axes: usize) -> Coalesced {
        let missing = if self.sizes.len() <= axes { axes } else { 8 } - self.sizes.len();
        self.sizes.splice(0..0, std::iter::repeat_n(1, missing));
        self.strides
            .iter_mut()
            .for_each(|s| _ = s.splice(0..0, std::iter::repeat_n(0, missing)).count());
        self
    }

    /// True if view `v` has the same element everywhere.
    pub fn is_scalar(&self, v: usize) -> bool {
        self.strides[v].iter().all(|&s| s == 0)
    }

    /// True if view `v` is row-major without gaps.
    pub fn is_linear(&self, v: usize) -> bool {
        let mut step = 1;
        self.sizes.iter().zip(&self.strides[v]).rev().all(|(&n, &s)| {
            let fits = s == step || n == 1;
            step *= n as isize;
            fits
        })
    }

    /// True if the last axis is whole groups of `lanes` elements.
    pub fn has_whole_rows(&self, lanes: usize) -> bool {
        self.sizes.last().is_some_and(|n| n.is_multiple_of(lanes))
    }

    /// True if the elements of view `v` along the last axis are neighbours, and other rows begin a
    /// multiple of `lanes` elements later.
    pub fn is_row_groups(&self, v: usize, lanes: usize) -> bool {
        let strides = &self.strides[v];
        let whole = |s: &isize| s % lanes as isize == 0;
        strides.last() == Some(&1) && strides[..strides.len() - 1].iter().all(whole)
    }

    /// The lowest and highest address, relative to the view's offset, of the elements `start..end`
    /// in row-major order; a bound, exact for linear views.
    pub fn reach(&self, v: usize, start: usize, end: usize) -> (isize, isize) {
        let (mut low, mut high) = (0, 0);
        let (mut first, mut last) = (start, end - 1);
        let mut rest: usize = self.sizes.iter().product();
        let mut whole = false;
        for (&n, &s) in self.sizes.iter().zip(&self.strides[v]) {
            rest /= n;
            let (from, to) = if whole { (0, n - 1) } else { (first / rest, last / rest) };
            (first, last) = (first % rest, last % rest);
            // Once two indices differ, the axes inside run over their whole length.
            whole |= from != to;
            let (a, b) = (from as isize * s, to as isize * s);
            low += a.min(b);
            high += a.max(b);
        }
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_views_merge_to_one_axis_and_broadcast_ones_to_as_few_as_possible() {
        let shape = Shape::new(&[4, 3, 5, 2]).unwrap();
        let packed = Layout::contiguous(shape);
        let bias = Layout::contiguous(Shape::new(&[3, 1, 1]).unwrap()).expand(&shape).unwrap();
        assert_eq!(Coalesced::new(&shape, &[&packed, &packed]).sizes, [120]);
        let views = Coalesced::new(&shape, &[&packed, &bias]);
        assert_eq!(views.sizes, [4, 3, 10]);
        assert!(views.is_linear(0) && !views.is_linear(1));
        assert!(Coalesced::new(&shape, &[&packed.flip(0)]).strides[0] == [-30, 1]);
        assert!(!views.has_whole_rows(4));
        let shape = Shape::new(&[3, 8]).unwrap();
        let wider = Layout::contiguous(Shape::new(&[3, 10]).unwrap());
        let (even, row) = (wider.slice(1, 0, 8, 1), wider.slice(0, 0, 1, 1).slice(1, 0, 8, 1));
        let views = Coalesced::new(&shape, &[&even, &row.expand(&shape).unwrap()]);
        assert!(views.has_whole_rows(8) && views.is_row_groups(1, 8));
        assert!(!views.is_row_groups(0, 4) && views.is_row_groups(0, 2));
    }

    #[test]
    fn reach_bounds_every_address_of_a_range() {
        let shape = Shape::new(&[4, 3, 5]).unwrap();
        for layout in [
            Layout::contiguous(shape),
            Layout::contiguous(shape).flip(1),
            Layout::contiguous(Shape::new(&[5, 3, 4]).unwrap()).transpose(0, 2),
        ] {
            let views = Coalesced::new(&shape, &[&layout]);
            let all: Vec<isize> =
                layout.positions().map(|p| p as isize - layout.offset() as isize).collect();
            for start in 0..60 {
                for end in start + 1..=60 {
                    let (low, high) = views.reach(0, start, end);
                    assert!(all[start..end].iter().all(|&a| low <= a && a <= high));
                }
            }
        }
    }
}
