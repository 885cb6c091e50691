//! Tensors larger than one binding. Elementwise kernels reach them by windows; the other families
//! see pieces: an operation that works line by line is done on halves along another axis, each half
//! in memory of its own, and the results are put behind each other by the copy engine, which knows
//! no bindings.
//!
//! That moves the data twice more, which is the price of a rare case: the bound is 128 MiB in the
//! least capable browser and 2 GiB on most cards.

use crate::device::Wgpu;
use crate::storage::Memory;
use teeny_core::storage::downcast;
use teeny_core::{DType, Error, Layout, Result, StorageRef, Tensor};

impl Wgpu {
    /// True if a kernel cannot see all of `x`.
    pub(crate) fn is_large(&self, x: &Tensor) -> bool {
        self.exceeds(x.storage().len(), x.dtype())
    }

    /// True if a kernel cannot see `len` elements at once.
    pub(crate) fn exceeds(&self, len: usize, dtype: DType) -> bool {
        len.saturating_mul(dtype.size()) as u64 > self.capabilities.max_binding / 32 * 32
    }

    /// A new tensor of this device on `storage`, row-major.
    pub(crate) fn tensor(
        &self,
        storage: StorageRef,
        shape: teeny_core::Shape,
        dtype: DType,
        like: &Tensor,
    ) -> Result<Tensor> {
        Tensor::from_result(storage, shape, dtype, like.device().clone())
    }

    /// The tensor; a copy of its elements where they are a small part of a storage too large for a
    /// kernel. Expanded axes stay expanded.
    pub(crate) fn seen(&self, x: &Tensor) -> Result<Tensor> {
        if !self.is_large(x) {
            return Ok(x.clone());
        }
        let expanded = (0..x.ndim()).filter(|&a| x.strides()[a] == 0 && x.shape()[a] > 1);
        let part = expanded.clone().try_fold(x.clone(), |x, a| x.slice(a as isize, 0..1))?;
        if self.exceeds(part.numel(), x.dtype()) {
            return Ok(x.clone());
        }
        let part = self.tensor(self.packed(&part)?, *part.shape(), x.dtype(), x)?;
        if expanded.count() == 0 { Ok(part) } else { part.expand(*x.shape()) }
    }

    /// True if one of `inputs` is a small part of a storage too large for a kernel: [`Wgpu::seen`]
    /// makes it small.
    pub(crate) fn hides(&self, inputs: &[&Tensor]) -> bool {
        let distinct = |x: &Tensor| {
            (0..x.ndim())
                .filter(|&a| x.strides()[a] != 0)
                .map(|a| x.shape()[a])
                .fold(1, usize::saturating_mul)
        };
        inputs
            .iter()
            .any(|x| self.is_large(x) && !self.exceeds(distinct(x).min(x.numel()), x.dtype()))
    }

    /// [`Wgpu::seen`] for each of `inputs`.
    pub(crate) fn all_seen(&self, inputs: &[&Tensor]) -> Result<Vec<Tensor>> {
        inputs.iter().map(|x| self.seen(x)).collect()
    }

    /// Part of a tensor along an axis; in memory of its own if all of the tensor is too much for a
    /// kernel.
    pub(crate) fn piece(&self, x: &Tensor, axis: usize, low: usize, high: usize) -> Result<Tensor> {
        let part = x.slice(axis as isize, low as isize..high as isize)?;
        if !self.is_large(x) {
            return Ok(part);
        }
        self.tensor(self.packed(&part)?, *part.shape(), x.dtype(), x)
    }

    /// A row-major copy of a view whose neighbours lie far apart: both halves along the axis of its
    /// longest steps, each into its places.
    pub(crate) fn packed_halves(&self, x: &Tensor) -> Result<StorageRef> {
        let out = self.allocate(x.numel(), x.dtype())?;
        let target = Layout::contiguous(*x.shape());
        let axis = (0..x.ndim())
            .filter(|&a| x.shape()[a] > 1)
            .max_by_key(|&a| (x.shape()[a] - 1) * x.strides()[a].unsigned_abs());
        let Some(axis) = axis else {
            return Err(Error::internal("one element is larger than a binding"));
        };
        let (size, mid) = (x.shape()[axis], x.shape()[axis] / 2);
        for (low, high) in [(0, mid), (mid, size)] {
            let half = x.slice(axis as isize, low as isize..high as isize)?;
            let half = self.tensor(self.packed(&half)?, *half.shape(), x.dtype(), x)?;
            self.write_view(&out, &target.slice(axis, low, high - low, 1), &half)?;
        }
        Ok(out)
    }

    /// Where an axis of `size` is cut: near the middle, and so that each piece of `below` elements
    /// a step begins at a whole word if that is possible.
    pub(crate) fn cut(size: usize, below: usize, dtype: DType) -> usize {
        let half = size / 2;
        let aligned = half / 4 * 4;
        if aligned > 0 && !half.wrapping_mul(below).wrapping_mul(dtype.size()).is_multiple_of(4) {
            aligned
        } else {
            half
        }
    }

    /// The elements of all pieces behind each other.
    pub(crate) fn join(
        &self,
        pieces: &[StorageRef],
        dtype: DType,
        like: &Tensor,
    ) -> Result<StorageRef> {
        let out = self.allocate(pieces.iter().map(|p| p.len()).sum(), dtype)?;
        let all = Layout::contiguous(teeny_core::Shape::new(&[out.len()])?);
        let mut at = 0;
        for piece in pieces {
            let (start, bytes) = ((at * dtype.size()) as u64, (piece.len() * dtype.size()) as u64);
            if start.is_multiple_of(4) {
                self.stream.copy(
                    downcast::<Memory>(piece)?.buffer(),
                    0,
                    downcast::<Memory>(&out)?.buffer(),
                    start,
                    bytes.next_multiple_of(4),
                );
            } else {
                // This piece begins within a word of the one before.
                let piece = self.tensor(
                    piece.clone(),
                    teeny_core::Shape::new(&[piece.len()])?,
                    dtype,
                    like,
                )?;
                self.write_view(&out, &all.slice(0, at, piece.numel(), 1), &piece)?;
            }
            at += piece.len();
        }
        Ok(out)
    }

    /// An operation along `axis` on tensors of one shape, some too large for a kernel: done on
    /// halves along another axis. `run` gets the halves, and the axis where it is now; it gives
    /// row-major results of their shape with `length` elements along the axis.
    ///
    /// # Errors
    /// If there is no other axis to cut.
    pub(crate) fn by_halves<const N: usize>(
        &self,
        inputs: &[&Tensor],
        axis: usize,
        types: [DType; N],
        length: usize,
        run: impl Fn(&[&Tensor], usize) -> Result<[StorageRef; N]>,
    ) -> Result<[StorageRef; N]> {
        if self.hides(inputs) {
            return run(&self.all_seen(inputs)?.iter().collect::<Vec<_>>(), axis);
        }
        let x = inputs[0];
        for dtype in types {
            self.room((x.numel() / x.shape()[axis].max(1)).saturating_mul(length), dtype)?;
        }
        let longest = (0..x.ndim()).filter(|&a| a != axis).max_by_key(|&a| x.shape()[a]);
        let Some(cut) = longest.filter(|&a| x.shape()[a] > 1) else {
            let limit = self.capabilities.max_binding;
            return Err(Error::unsupported(format!(
                "one line of {} {} elements; a kernel reaches {limit} bytes on this GPU",
                x.shape()[axis],
                x.dtype()
            ))
            .help("split the tensor along the axis, or use the CPU device"));
        };
        // The axis that is cut comes first, so that the results of the halves lie behind each
        // other.
        let order: Vec<usize> =
            std::iter::once(cut).chain((0..x.ndim()).filter(|&a| a != cut)).collect();
        let now = order.iter().position(|&a| a == axis).unwrap_or_default();
        let turned = inputs.iter().map(|x| x.permute(&order[..])).collect::<Result<Vec<_>>>()?;
        let size = x.shape()[cut];
        let below = x.numel() / size / x.shape()[axis].max(1) * length;
        let mid = types.iter().fold(size / 2, |mid, &dtype| mid.min(Self::cut(size, below, dtype)));
        let mut halves = Vec::with_capacity(2);
        for (low, high) in [(0, mid), (mid, size)] {
            let parts =
                turned.iter().map(|x| self.piece(x, 0, low, high)).collect::<Result<Vec<_>>>()?;
            halves.push(run(&parts.iter().collect::<Vec<_>>(), now)?);
        }
        let shape = turned[0].shape().with_size(now, length);
        let back: Vec<usize> =
            (0..x.ndim()).map(|a| order.iter().position(|&b| b == a).unwrap_or_default()).collect();
        let mut results = Vec::with_capacity(N);
        for (i, &dtype) in types.iter().enumerate() {
            let joined = self.join(&[halves[0][i].clone(), halves[1][i].clone()], dtype, x)?;
            let view = Tensor::from_parts(
                joined.clone(),
                Layout::contiguous(shape).permute(&back),
                dtype,
                x.device().clone(),
            )?;
            results.push(if view.is_contiguous() { joined } else { self.packed(&view)? });
        }
        results.try_into().map_err(|_| Error::internal("a piece gave too few results"))
    }
}
