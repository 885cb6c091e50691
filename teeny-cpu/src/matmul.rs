//! `(.., m, k) @ (.., k, n)` on views: strides go straight to the tiles of `gemm`, nothing is
//! copied. 16-bit floats are widened first, but for a vector's sake (`half`); integers wrap in a
//! plain loop.

use crate::elementwise::cast::with_bits;
use crate::elementwise::int::Int;
use crate::gemm::{self, Float, Matrix};
use crate::simd::{F32s, Work, for_pairs};
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::for_each_range;
use crate::{Cpu, copy, half};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Layout, Result, Tensor};

/// The product.
pub(crate) fn matmul(cpu: &Cpu, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
    let dtype = lhs.dtype();
    let (mut a, mut b) = (View::of(lhs)?, View::of(rhs)?);
    stack(&mut a, &mut b);
    let mut wide: [Option<CpuStorage>; 2] = [None, None];
    if dtype.is_half() {
        if let Some(out) = half::product(cpu, &a, &b)? {
            let n = lhs.numel() / lhs.shape()[lhs.ndim() - 1] * rhs.shape()[rhs.ndim() - 1];
            return Ok(Arc::new(copy::stored(cpu, out, n, dtype)?));
        }
        for (view, wide) in [&mut a, &mut b].into_iter().zip(&mut wide) {
            let storage = copy::computed(cpu, view)?;
            let strides = Layout::contiguous(view.shape);
            view.strides[..strides.ndim()].copy_from_slice(strides.strides());
            view.ptr = storage.ptr();
            view.dtype = DType::F32;
            *wide = Some(storage);
        }
    }
    let axes = a.shape.ndim();
    let (m, k, n) = (a.shape[axes - 2], a.shape[axes - 1], b.shape[axes - 1]);
    let batch: usize = a.shape[..axes - 2].iter().product();
    let out = cpu.alloc(batch * m * n, dtype.compute())?;
    let product = Product { cpu, a: &a, b: &b, mnk: [m, n, k], batch, out: &out };
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => product.floats::<f32>()?,
        DType::F64 => product.floats::<f64>()?,
        DType::Bool
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64 => {
            with_bits!(dtype, T => product.wrapping::<T>())
        }
    }
    drop(wide);
    Ok(Arc::new(copy::stored(cpu, out, batch * m * n, dtype)?))
}

/// Matrices on the left that lie below one another and meet the same matrix on the right become
/// one: that is laid out once, and for all their rows.
fn stack(a: &mut View, b: &mut View) {
    let rows = a.shape.ndim() - 2;
    for axis in (0..rows).rev() {
        let (size, m) = (a.shape[axis], a.shape[rows]);
        if size == 1 {
            continue;
        }
        if b.strides[axis] != 0 || (m > 1 && a.strides[axis] != a.strides[rows] * m as isize) {
            return;
        }
        if m == 1 {
            a.strides[rows] = a.strides[axis];
        }
        a.shape = a.shape.with_size(axis, 1).with_size(rows, m * size);
        b.shape = b.shape.with_size(axis, 1);
    }
}

/// A batch of products with its operands.
struct Product<'a> {
    cpu: &'a Cpu,
    a: &'a View,
    b: &'a View,
    mnk: [usize; 3],
    batch: usize,
    out: &'a CpuStorage,
}

impl Product<'_> {
    /// Matrix number `i` of `view`.
    fn matrix<T>(view: &View, mut i: usize) -> Matrix<T> {
        let axes = view.shape.ndim();
        let mut offset = 0;
        for axis in (0..axes - 2).rev() {
            offset += (i % view.shape[axis]) as isize * view.strides[axis];
            i /= view.shape[axis];
        }
        let ptr = view.ptr.cast::<T>().wrapping_offset(offset);
        Matrix { ptr, rows: view.strides[axes - 2], cols: view.strides[axes - 1] }
    }

    fn floats<T: Float>(&self) -> Result<()> {
        let [m, n, _] = self.mnk;
        let out = Shared(self.out.ptr().cast::<T>());
        // SAFETY: `View::of` has checked the operands; the results are consecutive (m, n) blocks of
        // the new storage.
        unsafe {
            gemm::batched(self.cpu, self.mnk, self.batch, [T::ZERO, T::ONE], |i| {
                let c = Matrix {
                    ptr: out.get().add(i * m * n).cast_const(),
                    rows: n as isize,
                    cols: 1,
                };
                (c, Self::matrix(self.a, i), Self::matrix(self.b, i))
            })
        }
    }

    fn wrapping<T: Int + Default>(&self) {
        let [m, n, k] = self.mnk;
        let out = Shared(self.out.ptr().cast::<T>());
        for_each_range(self.batch * m, gemm::THREAD / 4 / (n * k).max(1), |rows| {
            for row in rows {
                let (a, b) = (
                    Self::matrix::<T>(self.a, row / m).at(row % m, 0),
                    Self::matrix::<T>(self.b, row / m),
                );
                // SAFETY: each row of the result belongs to one range.
                let y = unsafe { std::slice::from_raw_parts_mut(out.get().add(row * n), n) };
                self.cpu.level.run(IntRow { y, k, a, b });
            }
        });
    }
}

/// One row of an integer product.
struct IntRow<'a, T> {
    y: &'a mut [T],
    k: usize,
    a: Matrix<T>,
    b: Matrix<T>,
}

impl<T: Int + Default> Work for IntRow<'_, T> {
    type Out = ();
    const WIDE: bool = false;
    #[inline(always)]
    fn run<V: F32s>(self) {
        let IntRow { y, k, a, b } = self;
        y.fill(T::default());
        for i in 0..k {
            // SAFETY: i < k and j < n, inside views that `View::of` has checked.
            unsafe {
                let (x, row) = (*a.at(0, i).ptr, b.at(i, 0).ptr);
                if b.cols == 1 {
                    let row = std::slice::from_raw_parts(row, y.len());
                    for_pairs(y, row, |y, b| *y = y.add(x.mul(b)));
                } else {
                    for (j, y) in y.iter_mut().enumerate() {
                        *y = y.add(x.mul(*row.offset(j as isize * b.cols)));
                    }
                }
            }
        }
    }
}
