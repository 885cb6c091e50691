//! Convolution by columns (im2col), a tile of pixels at a time.
//!
//! The naive form has loops over output channels, pixels, input channels and taps. With the windows
//! of some pixels copied to the columns of a matrix, it is a matrix product:
//!
//! ```text
//!   y (out_channels, pixels) = weight (out_channels, rows) @ columns (rows, pixels)
//!   rows = in_channels * taps
//! ```
//! A tile of columns stays in L2; the matrix of all columns is never built. Columns are copied by
//! spans (`window`), of which only the ends test for padding.

use super::winograd::Winograd;
use crate::Cpu;
use crate::float::Float;
use crate::matmul::{Matrix, Tile};
use crate::scratch::{Array, with_scratch};
use crate::storage::Shared;
use crate::window::{Geometry, Span};
use teeny_core::{DType, Result, Window};

/// Elements of a tile of columns: 512 KiB of f32, half of an L2.
const TILE_ELEMENTS: usize = 128 << 10;

/// The sizes of one convolution.
pub(super) struct Conv {
    pub geometry: Geometry,
    pub groups: usize,
    /// Channels per group.
    pub in_channels: usize,
    pub out_channels: usize,
}

impl Conv {
    pub(super) fn new(x: &[usize], weight: &[usize], y: &[usize], window: &Window) -> Conv {
        let geometry = Geometry::new(&x[2..], &weight[2..], &y[2..], window);
        Conv {
            geometry,
            groups: window.groups,
            in_channels: weight[1],
            out_channels: weight[0] / window.groups,
        }
    }

    /// The pixels `first .. end` of image and group `i`: y = w @ columns, where w (out_channels,
    /// rows) is the group's weight.
    ///
    /// # Safety
    /// `y` has all results; no other task touches these pixels of this image's planes.
    pub(super) unsafe fn by_columns<T: Float>(
        &self,
        cpu: &Cpu,
        x: &[T],
        w: &[T],
        i: usize,
        [first, end]: [usize; 2],
        y: Shared<T>,
    ) -> Result<()> {
        let (rows, pixels, image) =
            (self.rows(), self.geometry.pixels(), self.in_channels * self.geometry.plane());
        let x = &x[i * image..][..image];
        let group = i % self.groups * self.out_channels * rows;
        let w = Matrix::row_major(&w[group..][..self.out_channels * rows], rows);
        let to = y.get().wrapping_add(i * self.out_channels * pixels);
        with_scratch(cpu, [rows * (end - first)], |[columns]: [&mut [T]; 1]| {
            self.columns(cpu, x, first, end, columns)?;
            let size = end - first;
            let ptr = to.wrapping_add(first).cast_const();
            let c = Matrix { ptr, row_stride: pixels as isize, col_stride: 1 };
            let product = Tile {
                mnk: [self.out_channels, size, rows],
                lhs: w,
                rhs: Matrix::row_major(columns, size),
                c,
                beta: T::ZERO,
                alpha: T::ONE,
                rhs_numel: rows * size,
            };
            // SAFETY: by contract; the operands were sliced to their sizes.
            unsafe { product.run(cpu) }
        })?
    }

    /// As `by_columns`, where `w` is the weight of the convolution whose input gradient this is,
    /// (groups · in_channels, out_channels, taps): filters are rotated by 180 degrees, one tap
    /// after the other.
    ///
    /// # Safety
    /// As `by_columns`.
    pub(super) unsafe fn by_columns_rotated(
        &self,
        cpu: &Cpu,
        g: &[f32],
        w: &[f32],
        i: usize,
        [first, end]: [usize; 2],
        y: Shared<f32>,
    ) -> Result<()> {
        let (rows, pixels, image) =
            (self.rows(), self.geometry.pixels(), self.in_channels * self.geometry.plane());
        let (taps, g) = (self.geometry.taps(), &g[i * image..][..image]);
        let w = &w[i % self.groups * self.out_channels * rows..][..self.out_channels * rows];
        let to = y.get().wrapping_add(i * self.out_channels * pixels);
        with_scratch(cpu, [rows * (end - first)], |[columns]: [&mut [f32]; 1]| {
            self.columns(cpu, g, first, end, columns)?;
            let size = end - first;
            let ptr = to.wrapping_add(first).cast_const();
            let c = Matrix { ptr, row_stride: pixels as isize, col_stride: 1 };
            for tap in 0..taps {
                let product = Tile {
                    mnk: [self.out_channels, size, self.in_channels],
                    lhs: Matrix {
                        ptr: w[taps - 1 - tap..].as_ptr(),
                        row_stride: taps as isize,
                        col_stride: (taps * self.out_channels) as isize,
                    },
                    rhs: Matrix {
                        ptr: columns[tap * size..].as_ptr(),
                        row_stride: (taps * size) as isize,
                        col_stride: 1,
                    },
                    c,
                    beta: if tap == 0 { 0.0 } else { 1.0 },
                    alpha: 1.0,
                    rhs_numel: rows * size,
                };
                // SAFETY: by contract; tap `tap` of each input channel's columns, and the opposite
                // tap of each filter.
                unsafe { product.run(cpu)? };
            }
            Ok(())
        })?
    }

    /// Winograd's filtering, if it applies and is faster: 3 x 3 filters of stride 1 in f32.
    pub(super) fn winograd(
        &self,
        cpu: &Cpu,
        dtype: DType,
        images: usize,
        window: &Window,
    ) -> Option<Winograd> {
        let g = &self.geometry;
        let fits = g.kernel == [3, 3]
            && window.stride[..2] == [1, 1]
            && window.dilation[..2] == [1, 1]
            && images * g.pixels() > 0;
        if !fits
            || dtype.compute() != DType::F32
            || !cpu.winograd
            || !Winograd::is_faster(cpu.level, self.in_channels, self.out_channels)
        {
            return None;
        }
        Some(Winograd {
            level: cpu.level,
            images,
            groups: self.groups,
            in_channels: self.in_channels,
            out_channels: self.out_channels,
            input: [g.input[0], g.input[1]],
            output: [g.output[0], g.output[1]],
            padding: [window.padding[0], window.padding[1]],
        })
    }

    /// Rows of the matrix of columns.
    pub(super) fn rows(&self) -> usize {
        self.in_channels * self.geometry.taps()
    }

    /// Pixels per tile.
    pub(super) fn tile(&self) -> usize {
        (TILE_ELEMENTS / self.rows().max(1)).clamp(32, 2048).min(self.geometry.pixels()).max(1)
    }

    /// The spans of a tile for every tap, and how many each tap has.
    fn spans(&self, cpu: &Cpu, first: usize, end: usize) -> Result<(Array<Span>, usize)> {
        Ok((self.geometry.all_spans(cpu, first, end)?, self.geometry.rows(first, end)))
    }

    /// The windows of the pixels `first .. end` of one group's image as columns, (rows, end -
    /// first): im2col.
    pub(super) fn columns<T: Float>(
        &self,
        cpu: &Cpu,
        image: &[T],
        first: usize,
        end: usize,
        columns: &mut [T],
    ) -> Result<()> {
        let (width, step) = (end - first, self.geometry.step());
        let (spans, each) = self.spans(cpu, first, end)?;
        for (plane, block) in image
            .chunks_exact(self.geometry.plane())
            .zip(columns.chunks_exact_mut(spans.len() / each * width))
        {
            for (spans, row) in spans.chunks_exact(each).zip(block.chunks_exact_mut(width)) {
                for s in spans {
                    let row = &mut row[s.at..s.at + s.before + s.inside + s.after];
                    row[..s.before].fill(T::ZERO);
                    let inside = &mut row[s.before..s.before + s.inside];
                    if step == 1 {
                        inside.copy_from_slice(&plane[s.from..s.from + s.inside]);
                    } else {
                        for (to, from) in
                            inside.iter_mut().zip(plane[s.from..].iter().step_by(step))
                        {
                            *to = *from;
                        }
                    }
                    row[s.before + s.inside..].fill(T::ZERO);
                }
            }
        }
        Ok(())
    }

    /// Adds columns to the image that they are windows of: col2im.
    pub(super) fn add_columns<T: Float>(
        &self,
        cpu: &Cpu,
        columns: &[T],
        first: usize,
        end: usize,
        image: &mut [T],
    ) -> Result<()> {
        let (width, step) = (end - first, self.geometry.step());
        let (spans, each) = self.spans(cpu, first, end)?;
        for (plane, block) in image
            .chunks_exact_mut(self.geometry.plane())
            .zip(columns.chunks_exact(spans.len() / each * width))
        {
            for (spans, row) in spans.chunks_exact(each).zip(block.chunks_exact(width)) {
                for s in spans.iter().filter(|s| s.inside > 0) {
                    let from = &row[s.at + s.before..s.at + s.before + s.inside];
                    for (to, &from) in plane[s.from..].iter_mut().step_by(step).zip(from) {
                        *to += from;
                    }
                }
            }
        }
        Ok(())
    }
}
