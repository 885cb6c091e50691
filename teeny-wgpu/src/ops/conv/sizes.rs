//! The sizes of a convolution as a product.

use crate::codegen::types::accumulation;
use crate::device::limits::MAX_COUNT;
use crate::ops::conv::shader::{ConvKernel, ConvKind};
use crate::ops::epilogue::Epilogue;
use crate::ops::window::countable;
use teeny_core::{DType, Shape, Window};

/// The sizes of one convolution.
pub(crate) struct ConvSizes<'a> {
    pub kind: ConvKind,
    pub dtype: DType,
    /// (N, C_in, spatial..), (C_out, C_in / G, kernel..), (N, C_out, places..).
    pub x: &'a Shape,
    pub weight: &'a Shape,
    pub y: &'a Shape,
    pub window: &'a Window,
}

impl ConvSizes<'_> {
    pub fn spatial(shape: &Shape) -> usize {
        shape[2..].iter().product()
    }

    /// Rows, columns and k of each group's product.
    pub fn product(&self) -> (usize, usize, usize) {
        let (inputs, outputs) = (self.weight[1], self.weight[0] / self.window.groups);
        let (kernel, n) = (Self::spatial(self.weight), self.x[0]);
        match self.kind {
            ConvKind::Forward => (outputs, n * Self::spatial(self.y), inputs * kernel),
            ConvKind::InputGrad => (inputs, n * Self::spatial(self.x), outputs * kernel),
            ConvKind::WeightGrad => (outputs, inputs * kernel, n * Self::spatial(self.y)),
        }
    }

    /// Adjacent columns of the result: the columns of an image, or of a weight.
    pub fn neighbours(&self) -> usize {
        match self.kind {
            ConvKind::Forward | ConvKind::InputGrad => Self::spatial(self.result()),
            ConvKind::WeightGrad => self.product().1,
        }
    }

    /// Whether `kernel` writes its results, of less than 32 bits, in their type: it has groups of
    /// four neighbours.
    pub fn packs(&self, kernel: ConvKernel, splits: usize) -> bool {
        matches!(kernel, ConvKernel::Tiled(_))
            && splits == 1
            && accumulation(self.dtype) != self.dtype
            && self.neighbours().is_multiple_of(4)
    }

    /// Whether `kernel` stores what a kernel after it computes in pairs.
    pub fn pairs(&self, kernel: ConvKernel, epilogue: &Epilogue<'_>) -> bool {
        matches!(kernel, ConvKernel::Tiled(_)) && epilogue.pairs(self.neighbours())
    }

    /// True if shaders can count to k, and reach every pixel of the padded images by signed
    /// coordinates.
    pub fn are_countable(&self, k: usize) -> bool {
        let window = self.window;
        k <= MAX_COUNT
            && (2..self.x.ndim())
                .all(|axis| countable(self.x[axis], self.weight[axis], window, axis - 2))
    }

    pub fn result(&self) -> &Shape {
        match self.kind {
            ConvKind::Forward => self.y,
            ConvKind::InputGrad => self.x,
            ConvKind::WeightGrad => self.weight,
        }
    }
}
