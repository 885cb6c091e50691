//! `(.., m, k) @ (.., k, n)` on views.
//!
//! ```text
//!   mod      views to matrices; 16-bit floats to `half`; integers to `integer`
//!   gemm     a batch of products as tiles (`tile`), shared by threads
//!   select   the kernel of a tile and the size of tiles: pure functions of sizes and strides
//!   dots  gemv  microkernel (+ pack, panels)  gemm_crate  half/  integer      the kernels
//! ```
//! Strides go straight to the kernels: no operand is copied as a whole, except 16-bit floats for
//! the `gemm` crate.

mod dots;
pub(crate) mod gemm;
mod gemm_crate;
mod gemv;
mod half;
mod integer;
mod matrix;
mod microkernel;
mod pack;
mod panels;
mod select;
mod tile;

pub(crate) use dots::{Dots, DotsHalf, dot};
pub(crate) use gemm::batched;
pub(crate) use half::{HalfRows, RowsOf, widen};
pub(crate) use matrix::Matrix;
pub(crate) use microkernel::{MAX_CHAIN, Product};
pub(crate) use select::has_microkernel;
pub(crate) use tile::Tile;

use crate::device::FloatMatmul;
use crate::elementwise::{Epilogue, with_epilogue};
use crate::float::Float;
use crate::storage::{CpuStorage, Shared, View};
use crate::threads::threads;
use crate::typed::with_bits;
use crate::{Cpu, copy};
use gemm::batched_then;

use select::{Problem, Strides, runs_by_tiles, tiling};
use std::sync::Arc;
use teeny_core::storage::StorageRef;
use teeny_core::{DType, Kernel, Layout, Outputs, Result, Scalar, Shape, Tensor};

/// The matrices of a product, as large batches of rows as possible: both views, m, n and k, and the
/// number of products.
#[inline(always)]
fn operands(lhs: &Tensor, rhs: &Tensor) -> Result<([View; 2], [usize; 3], usize)> {
    let (mut a, mut b) = (View::of(lhs)?, View::of(rhs)?);
    merge_batch_into_rows(&mut a, &mut b);
    let axes = a.shape.ndim();
    let mnk = [a.shape[axes - 2], b.shape[axes - 1], a.shape[axes - 1]];
    Ok(([a, b], mnk, a.shape[..axes - 2].iter().product()))
}

/// The product.
pub(crate) fn matmul(cpu: &Cpu, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
    let dtype = lhs.dtype();
    let ([mut a, mut b], [m, n, k], batch) = operands(lhs, rhs)?;
    if dtype.is_half() && cpu.float_matmul == FloatMatmul::Own {
        return Ok(Arc::new(half::matmul(cpu, [&a, &b], [m, n, k], batch)?));
    }
    let mut converted: [Option<CpuStorage>; 2] = [None, None];
    if dtype.is_half() {
        for (view, converted) in [&mut a, &mut b].into_iter().zip(&mut converted) {
            let storage = copy::to_compute_dtype(cpu, view)?;
            let strides = Layout::contiguous(view.shape);
            view.strides[..strides.ndim()].copy_from_slice(strides.strides());
            view.ptr = storage.ptr();
            view.dtype = DType::F32;
            *converted = Some(storage);
        }
    }
    let out = cpu.alloc(batch * m * n, dtype.compute())?;
    let to = Shared(out.ptr());
    let request = Request { cpu, a: &a, b: &b, mnk: [m, n, k], batch, out: to, epilogue: None };
    match dtype {
        DType::F16 | DType::BF16 | DType::F32 => request.run_float::<f32>()?,
        DType::F64 => request.run_float::<f64>()?,
        DType::Bool
        | DType::U8
        | DType::U16
        | DType::U32
        | DType::U64
        | DType::I8
        | DType::I16
        | DType::I32
        | DType::I64 => {
            with_bits!(dtype, T => integer::run::<T>(&request))
        }
    }
    drop(converted);
    Ok(Arc::new(copy::cast_to_storage(cpu, out, batch * m * n, dtype)?))
}

/// The product, and `kernel` over each of its tiles while it is in a cache. `None` for products
/// that are left to the definition, the product and then the kernel: products of integers, whose
/// rows are shared by threads, and of 16-bit floats, for which it takes as long; no elements or
/// terms; products of many small tiles; and kernels that [`with_epilogue`] declines.
pub(crate) fn matmul_kernel(
    cpu: &Cpu,
    [lhs, rhs]: [&Tensor; 2],
    kernel: &Arc<Kernel>,
    others: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Option<Outputs>> {
    let dtype = lhs.dtype();
    if !matches!(dtype, DType::F32 | DType::F64) {
        return Ok(None);
    }
    let ([a, b], mnk, batch) = operands(lhs, rhs)?;
    let [m, n, k] = mnk;
    let strides = |view: &View| {
        let axes = view.shape.ndim();
        Strides { row: view.strides[axes - 2], col: view.strides[axes - 1] }
    };
    let problem = Problem {
        m,
        n,
        k,
        lhs: strides(&a),
        rhs: strides(&b),
        c: Strides { row: n as isize, col: 1 },
        element: dtype.size(),
        rhs_numel: n * k,
        beta_is_zero: true,
    };
    let tiling = tiling(&problem, batch, (cpu.level, cpu.float_matmul), threads);
    if shape.numel() * k == 0 || !runs_by_tiles([m, n], batch, (tiling.rows, tiling.columns)) {
        return Ok(None);
    }
    let rows = (shape, shape.ndim() - 1);
    with_epilogue(cpu, (kernel, params), rows, others, |out, epilogue| {
        let request = Request { cpu, a: &a, b: &b, mnk, batch, out, epilogue: Some(epilogue) };
        if dtype == DType::F64 { request.run_float::<f64>() } else { request.run_float::<f32>() }
    })
}

/// Left matrices that follow one another in memory and meet the same right matrix become one: its
/// right operand is packed once, for all their rows.
fn merge_batch_into_rows(a: &mut View, b: &mut View) {
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
struct Request<'a> {
    cpu: &'a Cpu,
    a: &'a View,
    b: &'a View,
    mnk: [usize; 3],
    batch: usize,
    /// All elements of the results.
    out: Shared<u8>,
    /// The kernel that runs on each tile of the results.
    epilogue: Option<&'a Epilogue<'a>>,
}

impl Request<'_> {
    /// Matrix number `i` of `view`.
    fn matrix<T>(view: &View, mut i: usize) -> Matrix<T> {
        let axes = view.shape.ndim();
        let mut offset = 0;
        for axis in (0..axes - 2).rev() {
            offset += (i % view.shape[axis]) as isize * view.strides[axis];
            i /= view.shape[axis];
        }
        let ptr = view.ptr.cast::<T>().wrapping_offset(offset);
        Matrix { ptr, row_stride: view.strides[axes - 2], col_stride: view.strides[axes - 1] }
    }

    fn run_float<T: Float>(&self) -> Result<()> {
        let [m, n, _] = self.mnk;
        let out = Shared(self.out.get().cast::<T>());
        // SAFETY: `View::of` has checked the operands; the results are consecutive (m, n) blocks of
        // the storage, and so are the rows of the epilogue.
        unsafe {
            let at = |i: usize| {
                let ptr = out.get().add(i * m * n).cast_const();
                let c = Matrix { ptr, row_stride: n as isize, col_stride: 1 };
                (c, Self::matrix(self.a, i), Self::matrix(self.b, i))
            };
            let factors = [T::ZERO, T::ONE];
            batched_then(self.cpu, self.mnk, self.batch, factors, at, self.epilogue)
        }
    }
}
