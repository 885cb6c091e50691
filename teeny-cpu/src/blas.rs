//! BLAS-style entry points on plain slices, row-major: [`axpy`], [`gemv`] and [`gemm()`] for f32
//! and f64. No tensors, no device.
//!
//! As in BLAS, `beta = 0` means that the result is not read: NaN in it does not survive.

use crate::Cpu;
use crate::float::Float;
use crate::matmul::{self, Matrix};
use std::sync::{Arc, OnceLock};
use teeny_core::{Error, Result};

mod sealed {
    pub trait Sealed: crate::float::Float {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// f32 or f64.
pub trait BlasFloat: sealed::Sealed {}
impl BlasFloat for f32 {}
impl BlasFloat for f64 {}

/// Whether a matrix is used as it is stored or transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trans {
    /// As stored.
    No,
    /// Transposed.
    Yes,
}

/// `y = alpha x + y`.
///
/// # Errors
/// If the lengths differ.
///
/// # Example
/// ```
/// let mut y = [1.0f32, 1.0];
/// teeny_cpu::blas::axpy(2.0, &[1.0, 3.0], &mut y)?;
/// assert_eq!(y, [3.0, 7.0]);
/// # Ok::<(), teeny_core::Error>(())
/// ```
pub fn axpy<T: BlasFloat>(alpha: T, x: &[T], y: &mut [T]) -> Result<()> {
    if x.len() != y.len() {
        return Err(
            Error::shape(format!("x has {} elements, y has {}", x.len(), y.len())).named("axpy")
        );
    }
    for (y, &x) in y.iter_mut().zip(x) {
        *y = alpha * x + *y;
    }
    Ok(())
}

/// `y = alpha op(a) x + beta y` for `a` of `m` rows and `n` columns; from a row to the next are
/// `lda` elements.
///
/// # Errors
/// If `lda < n`, or a slice is too short: x needs the columns of `op(a)`, y its rows; out of memory
/// as [`gemm()`].
#[allow(clippy::too_many_arguments)]
pub fn gemv<T: BlasFloat>(
    trans: Trans,
    m: usize,
    n: usize,
    alpha: T,
    a: &[T],
    lda: usize,
    x: &[T],
    beta: T,
    y: &mut [T],
) -> Result<()> {
    let a = matrix("gemv", "a", a, m, n, lda)?;
    let (a, rows, columns) = match trans {
        Trans::No => (a, m, n),
        Trans::Yes => (a.t(), n, m),
    };
    if x.len() < columns || y.len() < rows {
        let text = format!(
            "op(a) is ({rows}, {columns}), but x has {} elements and y has {}",
            x.len(),
            y.len()
        );
        return Err(Error::shape(text).named("gemv"));
    }
    let x = Matrix { ptr: x.as_ptr(), row_stride: 1, col_stride: 1 };
    let y = Matrix { ptr: y.as_mut_ptr().cast_const(), row_stride: 1, col_stride: 1 };
    // SAFETY: the sizes were checked; y is borrowed mutably, so it overlaps nothing.
    unsafe { matmul::batched(cpu(), [rows, 1, columns], 1, [beta, alpha], |_| (y, a, x)) }
}

/// `c = alpha op(a) op(b) + beta c`, where `op(a)` is (m, k), `op(b)` (k, n) and `c` (m, n). From a
/// row to the next are `lda`, `ldb`, `ldc` elements.
///
/// # Errors
/// If a leading dimension is shorter than a stored row, or a slice is too short; if allocating
/// packed operands fails, in which case `c` may be partly written.
///
/// # Example
/// ```
/// use teeny_cpu::blas::{Trans, gemm};
/// let (a, mut c) = ([1.0f64, 2.0, 3.0, 4.0], [f64::NAN; 4]);
/// gemm(Trans::No, Trans::Yes, 2, 2, 2, 1.0, &a, 2, &a, 2, 0.0, &mut c, 2)?;
/// assert_eq!(c, [5.0, 11.0, 11.0, 25.0]);
/// # Ok::<(), teeny_core::Error>(())
/// ```
#[allow(clippy::too_many_arguments)]
pub fn gemm<T: BlasFloat>(
    trans_a: Trans,
    trans_b: Trans,
    m: usize,
    n: usize,
    k: usize,
    alpha: T,
    a: &[T],
    lda: usize,
    b: &[T],
    ldb: usize,
    beta: T,
    c: &mut [T],
    ldc: usize,
) -> Result<()> {
    let a = match trans_a {
        Trans::No => matrix("gemm", "a", a, m, k, lda)?,
        Trans::Yes => matrix("gemm", "a", a, k, m, lda)?.t(),
    };
    let b = match trans_b {
        Trans::No => matrix("gemm", "b", b, k, n, ldb)?,
        Trans::Yes => matrix("gemm", "b", b, n, k, ldb)?.t(),
    };
    let c = Matrix { ptr: c.as_mut_ptr().cast_const(), ..matrix("gemm", "c", c, m, n, ldc)? };
    if m == 0 || n == 0 {
        return Ok(());
    }
    // SAFETY: the sizes were checked; c is borrowed mutably, so it overlaps nothing.
    unsafe { matmul::batched(cpu(), [m, n, k], 1, [beta, alpha], |_| (c, a, b)) }
}

/// The device whose pool provides the memory that operands are packed into.
fn cpu() -> &'static Cpu {
    static CPU: OnceLock<Arc<Cpu>> = OnceLock::new();
    CPU.get_or_init(Cpu::new)
}

/// A stored matrix, if the slice has all of it.
fn matrix<T: Float>(
    op: &str,
    name: &str,
    data: &[T],
    rows: usize,
    columns: usize,
    ld: usize,
) -> Result<Matrix<T>> {
    if ld < columns {
        return Err(Error::shape(format!(
            "{name} has rows of {columns} elements, but its leading dimension is {ld}"
        ))
        .named(op));
    }
    let last = rows.saturating_sub(1).checked_mul(ld).and_then(|n| n.checked_add(columns));
    let need = if rows == 0 || columns == 0 { Some(0) } else { last };
    if need.is_none_or(|need| need > data.len()) {
        let text = format!(
            "{name} is ({rows}, {columns}) with leading dimension {ld}, but has only {} elements",
            data.len()
        );
        return Err(Error::shape(text).named(op));
    }
    // A stride that is never used may be larger than any slice.
    let stride = if rows > 1 && columns > 0 { ld } else { columns };
    Ok(Matrix { ptr: data.as_ptr(), row_stride: stride as isize, col_stride: 1 })
}
