//! All results of one grid by the algorithm that `select` names, and a kernel over them.

use super::columns::ConvTask;
use super::select::{Algorithm, select, select_filter_grad};
use super::{direct, weight_grad};
use crate::Cpu;
use crate::float::Float;
use crate::matmul::{Matrix, batched};
use crate::storage::Shared;
use teeny_core::Result;

impl<T: Float> ConvTask<'_, T> {
    /// Whether columns are multiplied by the filters of one tap after the other as fast as by those
    /// of all taps.
    pub(super) fn is_fast_tap_by_tap(&self) -> bool {
        self.in_channels >= 64 && select(&self.sizes()) == Algorithm::Columns
    }

    /// Computes all results, and the kernel of the epilogue over them: over each part as soon as it is
    /// computed if the algorithm has such parts, over all of them otherwise.
    pub(super) fn run(&self, cpu: &Cpu) -> Result<()> {
        let Some(epilogue) = self.epilogue else { return self.compute(cpu).map(drop) };
        let in_order = self.grid.is_dense() && self.grid.is_whole();
        let parts = ConvTask { epilogue: self.epilogue.filter(|_| in_order), ..*self };
        if !(parts.compute(cpu)? && in_order) {
            // SAFETY: all results are there, and no task runs.
            unsafe { epilogue.run_all()? };
        }
        Ok(())
    }

    /// Computes all results. Whether the algorithm has run the epilogue, if there is one.
    fn compute(&self, cpu: &Cpu) -> Result<bool> {
        match select(&self.sizes()) {
            Algorithm::Matmul => {
                let (m, k, groups) = (self.out_channels, self.rows(), self.groups);
                // SAFETY: an image's inputs and results of a group, and the group's filters, which
                // were sliced to these sizes.
                unsafe {
                    batched(cpu, [self.images, m, k], groups, [T::ZERO, T::ONE], |group| {
                        let w = Matrix::row_major(&self.weight[group * m * k..][..m * k], k);
                        let y = strided(self.y.get().cast_const(), groups, group, m);
                        (y, strided(self.x.as_ptr(), groups, group, k), w.t())
                    })?;
                }
                Ok(false)
            }
            Algorithm::Lattices if self.has_small_lattice() => self.by_lattices(cpu),
            Algorithm::Lattices | Algorithm::Columns => self.by_columns(cpu),
        }
    }

    /// Runs the epilogue over the results `first .. end` of a group, counted through all images.
    ///
    /// # Safety
    /// They are computed, lie in the order of the grid, and no other task reads or writes them.
    ///
    /// # Errors
    /// If there is no scratch memory.
    pub(super) unsafe fn finish_part(&self, group: usize, [first, end]: [usize; 2]) -> Result<()> {
        let Some(epilogue) = self.epilogue else { return Ok(()) };
        let (pixels, mut at) = (self.grid.pixels(), first);
        while at < end {
            let (image, pixel) = (at / pixels, at % pixels);
            let count = (pixels - pixel).min(end - at);
            let row = (image * self.groups + group) * self.out_channels;
            // SAFETY: by contract: these channels of one image.
            unsafe { epilogue.run(row..row + self.out_channels, pixel..pixel + count)? };
            at += count;
        }
        Ok(())
    }
}

/// The elements of one group, `n` of each image, as a matrix with a row for each image.
pub(super) fn strided<T>(ptr: *const T, groups: usize, group: usize, n: usize) -> Matrix<T> {
    let ptr = ptr.wrapping_add(group * n);
    Matrix { ptr, row_stride: (groups * n) as isize, col_stride: 1 }
}

/// The gradient of the filters of `c` for the taps of its grid.
pub(super) fn filter_grad<T: Float>(
    cpu: &Cpu,
    c: &ConvTask<'_, T>,
    g: &[T],
    to: &mut [T],
) -> Result<()> {
    match select_filter_grad(&c.sizes()) {
        Algorithm::Matmul => {
            let (m, k, groups) = (c.out_channels, c.rows(), c.groups);
            let to = Shared(to.as_mut_ptr());
            // SAFETY: an image's inputs and gradients of a group, and the group's filters.
            unsafe {
                batched(cpu, [m, k, c.images], groups, [T::ZERO, T::ONE], |group| {
                    let ptr = to.get().wrapping_add(group * m * k).cast_const();
                    let to = Matrix { ptr, row_stride: k as isize, col_stride: 1 };
                    let x = strided(c.x.as_ptr(), groups, group, k);
                    (to, strided(g.as_ptr(), groups, group, m).t(), x)
                })
            }
        }
        Algorithm::Lattices if c.has_small_lattice() => direct::weight_grad(cpu, c, g, to),
        Algorithm::Lattices | Algorithm::Columns => weight_grad::by_columns(cpu, c, g, to),
    }
}
