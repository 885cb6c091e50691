//! The inputs of a row program as the machine reads them: with one distance each from a row to the
//! next, from a neighbouring row to the next, and along the row.

use super::job::{ElementOperand, Job};
use super::schedule::RowSchedule;
use crate::copy::{self, Packed};
use crate::machine::values::{Element, RowOperand};
use crate::scratch::Array;
use crate::storage::{CpuStorage, Shared, View};
use teeny_core::{DType, Error, Result, Shape, bf16, f16};

/// The single stride by which these axes can be merged; 0 if they have one element, `None` if they
/// cannot be merged.
fn distance(view: &View, axes: std::ops::Range<usize>) -> Option<isize> {
    let (mut first, mut next): (Option<isize>, isize) = (None, 0);
    for axis in axes.rev().filter(|&axis| view.shape[axis] > 1) {
        let stride = view.strides[axis];
        if first.is_some() && stride != next {
            return None;
        }
        first = first.or(Some(stride));
        next = stride * view.shape[axis] as isize;
    }
    Some(first.unwrap_or(0))
}

/// Three distances of `view`, whose row is the axes `split.0 .. split.1`.
fn distances(view: &View, split: (usize, usize)) -> Option<[isize; 3]> {
    let outer = distance(view, 0..split.0)?;
    let along = distance(view, split.0..split.1)?;
    Some([outer, along, distance(view, split.1..view.shape.ndim())?])
}

impl Job<'_> {
    /// An operand whose axes in this order are the outer axes, the row and the inner axes.
    pub(super) fn element_operand(
        &self,
        element: Element,
        order: &[usize],
        split: (usize, usize),
        schedule: RowSchedule,
    ) -> Result<ElementOperand> {
        let Element::Input(i) = element else { return self.positions() };
        let view = View::of(self.inputs[i])?.permuted(order);
        let dtype = view.dtype;
        let size = dtype.size() as isize;
        let fits = |&[outer, along, inner]: &[isize; 3]| match schedule {
            // One number for a whole row is not converted.
            RowSchedule::Along(_) => along == 1 || self.n == 1 || along == 0 && !dtype.is_half(),
            RowSchedule::Blocks(_) if outer == 0 => !dtype.is_half(),
            RowSchedule::Blocks(_) => along == 1 || self.n == 1,
            RowSchedule::Columns(_) => inner == 1 || inner == 0 && !dtype.is_half(),
        };
        let found = distances(&view, split);
        let converts = self.converts && dtype.is_half();
        if let Some([outer, along, inner]) = found.filter(fits).filter(|_| !converts) {
            let first = Shared(view.ptr.cast_mut());
            let [outer, along, inner] = [outer, along, inner].map(|d| d * size);
            return Ok(ElementOperand { first, outer, along, inner, dtype, _copy: None });
        }
        if let Some([0, along, 0]) = found {
            // All rows are one.
            let mut line = View { shape: Shape::new(&[self.n])?, ..view };
            line.strides[0] = along;
            let copy = copy::to_compute_dtype(self.cpu, &line)?;
            let (first, along) = (Shared(copy.ptr()), self.size as isize);
            let (dtype, _copy) = (dtype.compute(), Some(copy));
            return Ok(ElementOperand { first, outer: 0, along, inner: 0, dtype, _copy });
        }
        let copy = match converts {
            true => copy::to_compute_dtype(self.cpu, &view)?,
            false => copy::contiguous(self.cpu, &view)?,
        };
        let dtype = if converts { dtype.compute() } else { dtype };
        let size = dtype.size() as isize;
        let along = self.inner as isize * size;
        let (first, outer) = (Shared(copy.ptr()), along * self.n as isize);
        Ok(ElementOperand { first, outer, along, inner: size, dtype, _copy: Some(copy) })
    }

    /// The positions along the row.
    fn positions(&self) -> Result<ElementOperand> {
        let dtype = self.code.dtype;
        let copy = self.floats(self.n, |i| i as f64)?;
        let (first, along) = (Shared(copy.ptr()), self.size as isize);
        Ok(ElementOperand { first, outer: 0, along, inner: 0, dtype, _copy: Some(copy) })
    }

    /// `n` floats of the type that is computed.
    fn floats(&self, n: usize, f: impl Fn(usize) -> f64) -> Result<CpuStorage> {
        let out = self.cpu.alloc(n, self.code.dtype)?;
        for i in 0..n {
            // SAFETY: the storage is new and has n elements of this type.
            unsafe {
                match self.code.dtype {
                    DType::F64 => out.ptr().cast::<f64>().add(i).write(f(i)),
                    _ => out.ptr().cast::<f32>().add(i).write(f(i) as f32),
                }
            }
        }
        Ok(out)
    }

    /// One value for each row, as floats of the type that is computed.
    pub(super) fn row_operand(
        &self,
        operand: RowOperand,
        order: &[usize],
        split: (usize, usize),
    ) -> Result<Packed> {
        let rows = self.rows();
        let floats = match operand {
            RowOperand::Input(i) => return Packed::of(self.cpu, &View::of(self.inputs[i])?),
            RowOperand::Number(id) => {
                let x = self.exact(id)?;
                match self.size {
                    // One rounding, from 64 bits to 32.
                    4 => self.floats(rows, |r| f64::from(x[r] as f32)),
                    _ => self.floats(rows, |r| x[r] as f64),
                }
            }
            RowOperand::Position(id) => {
                let x = self.exact(id)?;
                // All positions are between.
                let end = self.n as i64;
                self.floats(rows, |r| x[r].clamp(-1, end) as f64)
            }
            RowOperand::At(i, id) => {
                let at = self.exact(id)?;
                self.check(&at)?;
                let view = View::of(self.inputs[i])?.permuted(order);
                let size = view.dtype.size() as isize;
                let (view, _copy) = match distances(&view, split) {
                    Some(_) => (view, None),
                    None => {
                        let copy = copy::contiguous(self.cpu, &view)?;
                        let axes = &[0, 1, 2, 3, 4, 5, 6, 7][..view.shape.ndim()];
                        let view = View::in_order(copy.ptr(), &view.shape, axes, view.dtype);
                        (view, Some(copy))
                    }
                };
                let [outer, along, inner] = distances(&view, split)
                    .ok_or_else(|| Error::internal("a copy that is not contiguous"))?;
                self.floats(rows, |r| {
                    let (o, k) = ((r / self.inner) as isize, (r % self.inner) as isize);
                    let p = o * outer + at[r] as isize * along + k * inner;
                    let p = view.ptr.wrapping_offset(p * size);
                    // SAFETY: the position is one of the row, so the element is one of the view,
                    // which `View::of` has checked.
                    unsafe {
                        match view.dtype {
                            DType::F64 => *p.cast::<f64>(),
                            DType::BF16 => f64::from(bf16::from_bits(*p.cast()).to_f32_const()),
                            DType::F16 => f64::from(f16::from_bits(*p.cast()).to_f32_const()),
                            _ => f64::from(*p.cast::<f32>()),
                        }
                    }
                })
            }
        };
        floats.map(Packed::owned)
    }

    /// Checks positions along the row.
    fn check(&self, at: &Array<i64>) -> Result<()> {
        let inside = |&x: &i64| usize::try_from(x).is_ok_and(|x| x < self.n);
        match at.iter().position(|x| !inside(x)) {
            Some(r) => Err(outside(r, at[r], self.n)),
            None => Ok(()),
        }
    }
}

#[cold]
fn outside(row: usize, at: i64, n: usize) -> Error {
    Error::index(format!("position {at} of row {row} is outside 0..={}", n - 1))
}
