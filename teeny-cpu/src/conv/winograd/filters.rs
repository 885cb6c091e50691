//! Filters at the 36 points: U = G w Gᵀ.

use super::tiles::Tiles;
use super::transforms::{Transform, TransformFilter};
use super::{IN, POINTS, TAPS, Winograd, padded};
use crate::Cpu;
use crate::storage::{CpuStorage, Shared};
use crate::threads::for_each_chunk;
use crate::transpose::transpose;
use teeny_core::{DType, Result};

impl Winograd {
    /// The filters of each group at all points: (36, from, to), rows of `to` padded. `by_tap`
    /// writes a group's filters as (from, 9, padded to).
    fn transform_filters(
        &self,
        cpu: &Cpu,
        [from, to]: [usize; 2],
        by_tap: impl Fn(usize, *mut f32) + Sync,
    ) -> Result<CpuStorage> {
        let to = padded(to);
        let taps = cpu.zeros(self.groups * from * TAPS * to, DType::F32)?;
        let out = cpu.alloc(self.groups * POINTS * from * to, DType::F32)?;
        let (taps, u) = (Shared(taps.ptr().cast::<f32>()), Shared(out.ptr().cast::<f32>()));
        for_each_chunk(self.groups, |group| {
            // SAFETY: both hold a part for each group.
            unsafe {
                let (taps, u) = (
                    taps.get().add(group * from * TAPS * to),
                    u.get().add(group * POINTS * from * to),
                );
                by_tap(group, taps);
                let filters =
                    Tiles { first: taps.cast_const(), next: TAPS * to, row: 3 * to, column: to };
                let points = Tiles { first: u, next: to, row: IN * from * to, column: from * to };
                Transform::<TransformFilter, _, _>::run(self.level, from, to, filters, points);
            }
        });
        Ok(out)
    }

    /// Writes a group's filters `w` (out_channels, in_channels, 9) as (in_channels, 9, padded
    /// out_channels).
    ///
    /// # Safety
    /// `to` has all of these elements.
    unsafe fn by_tap(&self, w: &[f32], to: *mut f32) {
        let taps = self.in_channels * TAPS;
        // SAFETY: by contract; `w` has a row of taps for each output.
        unsafe {
            transpose(
                self.level,
                w.as_ptr(),
                taps as isize,
                to,
                padded(self.out_channels) as isize,
                (taps, self.out_channels),
                false,
            )
        };
    }

    /// The filters of the convolution at all points, from w (groups · out_channels, in_channels, 3,
    /// 3).
    pub(in crate::conv) fn filters(&self, cpu: &Cpu, w: &[f32]) -> Result<CpuStorage> {
        let group = self.out_channels * self.in_channels * TAPS;
        // SAFETY: `transform_filters` passes memory for a group.
        self.transform_filters(cpu, [self.in_channels, self.out_channels], |g, to| unsafe {
            self.by_tap(&w[g * group..][..group], to)
        })
    }

    /// The filters of the convolution that is the gradient of the input at all points: rotated by
    /// 180 degrees, from `in_channels` (the output channels of w) to `out_channels`.
    pub(in crate::conv) fn rotated_filters(&self, cpu: &Cpu, w: &[f32]) -> Result<CpuStorage> {
        let (group, to_stride) =
            (self.out_channels * self.in_channels * TAPS, padded(self.out_channels));
        self.transform_filters(cpu, [self.in_channels, self.out_channels], |g, to| {
            for (i, w) in w[g * group..][..group].chunks_exact(TAPS).enumerate() {
                let (from, output) = (i / self.out_channels, i % self.out_channels);
                for (tap, &w) in w.iter().rev().enumerate() {
                    // SAFETY: `transform_filters` passes memory for (from, 9, to_stride).
                    unsafe { *to.add((from * TAPS + tap) * to_stride + output) = w };
                }
            }
        })
    }
}
