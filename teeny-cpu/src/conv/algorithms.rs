//! One grid of a convolution, or the gradient of its filters, by the algorithm that `select` names,
//! and a kernel over the results.

use super::columns::ConvTask;
use super::select::{Algorithm, Sizes, Tiles, select, select_filter_grad};
use super::winograd::Winograd;
use super::winograd::dynamic_range::Finite;
use super::{direct, filters, weight_grad};
use crate::Cpu;
use crate::float::{Float, lanes};
use crate::matmul::{Matrix, batched};
use crate::scratch::Array;
use crate::storage::Shared;
use teeny_core::Result;

impl<T: Float> ConvTask<'_, T> {
    /// True if one product per tap is as fast as one over all taps.
    pub(super) fn is_fast_tap_by_tap(&self) -> bool {
        self.in_channels >= 64 && select(&self.sizes(), |_| true) == Algorithm::Columns
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
        let fits = |algorithm| match algorithm {
            Algorithm::Winograd | Algorithm::Channels => false,
            Algorithm::Pixels => self.has_small_phase_split(),
            Algorithm::Matmul | Algorithm::Columns => true,
        };
        match select(&self.sizes(), fits) {
            Algorithm::Matmul => {
                let (x, weight, y) = (self.x.as_ptr(), self.weight.as_ptr(), self.y.get());
                // SAFETY: the operands have the sizes of the task, which alone writes `y`.
                unsafe { self.by_matmul(cpu, [x, weight, y], MatmulOf::Results)? };
                Ok(false)
            }
            Algorithm::Pixels => self.by_pixels(cpu),
            _ => self.by_columns(cpu),
        }
    }

    /// Runs the epilogue over the results `first .. end` of a group, counted through all images.
    ///
    /// # Safety
    /// They are computed, are in the order of the grid, and no other task reads or writes them.
    ///
    /// # Errors
    /// If allocating scratch memory fails.
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

    /// The gradient of the filters, with all taps, to `to`: the grid's result is `g`.
    pub(super) fn filter_grad(
        &self,
        cpu: &Cpu,
        winograd: Option<(Winograd, Tiles)>,
        g: &[T],
        to: &mut [T],
    ) -> Result<()> {
        let grid = self.grid;
        if grid.taps.is_empty() {
            to.fill(T::ZERO);
            return Ok(());
        }
        let sizes = Sizes { tiles: winograd.map(|(_, tiles)| tiles), ..self.sizes() };
        if select_filter_grad(&sizes, |_| true) == Algorithm::Winograd
            && let (Some((winograd, _)), Some(x), Some(g)) = (winograd, T::f32s(self.x), T::f32s(g))
        {
            let y = Shared(to.as_mut_ptr().cast::<f32>());
            winograd.weight_grad(cpu, x, g, y)?;
            // Other algorithms have infinities and NaN only where they belong.
            if T::f32s(to).is_some_and(|to| cpu.level.run(Finite(to))) {
                return Ok(());
            }
        }
        if grid.has_all_taps() {
            return self.filter_grad_of_taps(cpu, g, to);
        }
        let n = to.len() / grid.all_taps * grid.taps.len();
        let mut some = Array::filled(cpu, n, T::ZERO)?;
        self.filter_grad_of_taps(cpu, g, &mut some)?;
        filters::scatter(&some, grid, to);
        Ok(())
    }

    /// The gradient of the filters for the taps of the grid.
    fn filter_grad_of_taps(&self, cpu: &Cpu, g: &[T], to: &mut [T]) -> Result<()> {
        let mut layout = None;
        let algorithm = select_filter_grad(&self.sizes(), |algorithm| match algorithm {
            Algorithm::Channels => {
                layout = direct::BlockedLayout::new([self.grid].into_iter(), lanes::<T>(cpu.level));
                layout.is_some()
            }
            Algorithm::Pixels => self.has_small_phase_split(),
            _ => true,
        });
        match (algorithm, layout) {
            (_, Some(layout)) => direct::weight_grad_by_channels(cpu, self, &layout, g, to),
            (Algorithm::Matmul, _) => {
                let operands = [self.x.as_ptr(), to.as_mut_ptr(), g.as_ptr()];
                // SAFETY: the operands have the sizes of the task; `to` is borrowed mutably.
                unsafe { self.by_matmul(cpu, operands, MatmulOf::FilterGrad) }
            }
            (Algorithm::Pixels, _) => direct::weight_grad_by_pixels(cpu, self, g, to),
            _ => weight_grad::by_columns(cpu, self, g, to),
        }
    }

    /// Where each image has one result and its window is all of the input: the product of two of
    /// x (images, k), the filters (m, k) and y (images, m) of each group to the third of them.
    ///
    /// # Safety
    /// They have these elements of all groups, and that third one has no other user.
    pub(super) unsafe fn by_matmul(
        &self,
        cpu: &Cpu,
        [x, weight, y]: [*const T; 3],
        product: MatmulOf,
    ) -> Result<()> {
        let (n, m, k, groups) = (self.images, self.out_channels, self.rows(), self.groups);
        let mnk = match product {
            MatmulOf::Results => [n, m, k],
            MatmulOf::InputGrad => [n, k, m],
            MatmulOf::FilterGrad => [m, k, n],
        };
        let [x, weight, y] = [x, weight, y].map(|ptr| Shared(ptr.cast_mut()));
        // The elements of one group, `n` of each image, with a row for each image.
        let of_images = |ptr: &Shared<T>, group: usize, n: usize| {
            let ptr = ptr.get().wrapping_add(group * n).cast_const();
            Matrix { ptr, row_stride: (groups * n) as isize, col_stride: 1 }
        };
        // SAFETY: by contract.
        unsafe {
            batched(cpu, mnk, groups, [T::ZERO, T::ONE], |group| {
                let ptr = weight.get().wrapping_add(group * m * k).cast_const();
                let weight = Matrix { ptr, row_stride: k as isize, col_stride: 1 };
                let (x, y) = (of_images(&x, group, k), of_images(&y, group, m));
                match product {
                    MatmulOf::Results => (y, x, weight.t()),
                    MatmulOf::InputGrad => (x, y, weight),
                    MatmulOf::FilterGrad => (weight, y.t(), x),
                }
            })
        }
    }
}

/// The result of a product of matrices.
#[derive(Clone, Copy)]
pub(super) enum MatmulOf {
    Results,
    InputGrad,
    FilterGrad,
}
