//! The integers of a captured function as functions of one of them: `a + b * symbol`.

use super::list::Node;
use super::plan::{Call, Item};
use crate::device::DeviceRef;
use crate::dtype::DType;
use crate::layout::Layout;
use crate::shape::{Integer, Shape};

/// The part of a recording that depends on the symbol: layouts and shapes are in here.
#[derive(Clone, PartialEq)]
pub(super) struct Work {
    pub(super) items: Vec<Item>,
    pub(super) nodes: Vec<Node>,
    pub(super) inputs: Vec<(Shape, DType)>,
    pub(super) outputs: Vec<Output>,
}

/// A result of the function.
#[derive(Clone)]
pub(super) struct Output {
    pub(super) slot: u32,
    pub(super) layout: Layout,
    pub(super) dtype: DType,
    /// Its device: a wrapper of the recording one, or that.
    pub(super) device: DeviceRef,
}

impl PartialEq for Output {
    fn eq(&self, other: &Output) -> bool {
        (self.slot, self.layout, self.dtype) == (other.slot, other.layout, other.dtype)
    }
}

/// How each size, stride and offset of some work changes when the symbol grows by 1.
pub(super) struct Integers(Vec<i64>);

impl Integers {
    /// The integers by which `second`, recorded where the symbol is `b`, differs from `first`, where
    /// it is `a`. None if they do other work, or an integer is not of that form.
    pub(super) fn slopes(first: &Work, second: &Work, a: usize, b: usize) -> Option<Integers> {
        let (one, two) = (integers(first), integers(second));
        let distance = b as i64 - a as i64;
        if one.len() != two.len() || distance == 0 {
            return None;
        }
        let slope = |(one, two): (&i64, &i64)| {
            let difference = two.checked_sub(*one)?;
            (difference % distance == 0).then(|| difference / distance)
        };
        let slopes = Integers(one.iter().zip(&two).map(slope).collect::<Option<_>>()?);
        (slopes.work(first, a, b)? == *second).then_some(slopes)
    }

    /// The work where the symbol is `at`, from `base`, where it is `from`. None if an integer would
    /// be out of range.
    pub(super) fn work(&self, base: &Work, from: usize, at: usize) -> Option<Work> {
        let mut work = base.clone();
        let distance = at as i64 - from as i64;
        let (mut i, mut fits) = (0, true);
        visit(&mut work, &mut |integer| {
            let slope = self.0.get(i).copied().unwrap_or(0);
            i += 1;
            let (Integer::Size(n) | Integer::Stride(n)) = integer;
            let new = slope.checked_mul(distance).and_then(|change| n.checked_add(change));
            match new.filter(|&new| matches!(integer, Integer::Stride(_)) || new >= 0) {
                Some(new) => new,
                None => {
                    fits = false;
                    n
                }
            }
        });
        fits.then_some(work)
    }
}

fn integers(work: &Work) -> Vec<i64> {
    let mut all = Vec::new();
    visit(&mut work.clone(), &mut |integer| {
        let (Integer::Size(n) | Integer::Stride(n)) = integer;
        all.push(n);
        n
    });
    all
}

/// Replaces all sizes, strides and offsets by `f` of them, in one order.
fn visit(work: &mut Work, f: &mut dyn FnMut(Integer) -> i64) {
    let Work { items, nodes, inputs, outputs } = work;
    for Node { op, operands, shape, .. } in nodes {
        op.map_integers(f);
        shape.map_integers(f);
        operands.iter_mut().for_each(|x| x.layout.map_integers(f));
    }
    for Call { op, operands, .. } in items.iter_mut().filter_map(|item| item.kernel.as_mut()) {
        op.map_integers(f);
        operands.iter_mut().for_each(|x| x.layout.map_integers(f));
    }
    inputs.iter_mut().for_each(|(shape, _)| shape.map_integers(f));
    outputs.iter_mut().for_each(|output| output.layout.map_integers(f));
}
