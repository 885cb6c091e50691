//! Tensors of host data: numbers and nested arrays, slices, bytes, and values computed per index.
//! The only file that decodes elements from external bytes (`place`).

use super::Nested;
use crate::context::enter;
use crate::device::{DeviceRef, ToDevice};
use crate::dtype::DType;
use crate::element::{Element, encode};
use crate::error::{Error, Result};
use crate::memory;
use crate::scalar::Scalar;
use crate::shape::{IntoShape, Shape};
use crate::tensor::Tensor;
use std::borrow::Cow;

impl Tensor {
    /// A tensor from a number, an array, or nested arrays or `Vec`s:
    /// `Tensor::new([[1.0, 2.0], [3.0, 4.0]], &device)`.
    ///
    /// # Errors
    /// If the nesting is ragged or too deep.
    #[track_caller]
    pub fn new<T: Element>(data: impl Nested<T>, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("new");
        let mut sizes = Vec::new();
        data.sizes(&mut sizes);
        let shape = Shape::new(&sizes)?;
        // The sizes of ragged data are an upper bound: the capacity only avoids reallocation.
        let mut values = memory::reserved(shape.numel()).unwrap_or_default();
        data.flatten(&sizes, &mut Vec::new(), &mut values)?;
        upload(&values, shape, device)
    }

    /// A tensor of `shape` with the values of `data` in row-major order.
    ///
    /// # Errors
    /// If the number of values is not the shape's number of elements.
    #[track_caller]
    pub fn from_slice<T: Element>(
        data: &[T],
        shape: impl IntoShape,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("from_slice");
        upload(data, require_numel(data.len(), shape.shape()?)?, device)
    }

    /// [`Tensor::from_slice`] of a `Vec`.
    #[track_caller]
    pub fn from_vec<T: Element>(
        data: Vec<T>,
        shape: impl IntoShape,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("from_vec");
        Tensor::from_slice(&data, shape, device)
    }

    /// A tensor of `shape` and `dtype` from little-endian bytes in row-major order, as files hold
    /// them. A bool is true if its byte is not 0.
    ///
    /// # Errors
    /// If the number of bytes does not fit.
    #[track_caller]
    pub fn from_bytes(
        bytes: &[u8],
        shape: impl IntoShape,
        dtype: DType,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("from_bytes");
        let shape = shape.shape()?;
        if bytes.len() != shape.numel() * dtype.size() {
            return Err(Error::shape(format!(
                "{} bytes do not fill shape {shape} of {dtype} ({} bytes)",
                bytes.len(),
                shape.numel() * dtype.size()
            ))
            .help(match bytes.len().is_multiple_of(dtype.size()) {
                true => format!("({},) would fit", bytes.len() / dtype.size()),
                false => format!("one {dtype} takes {} bytes", dtype.size()),
            }));
        }
        place(bytes, dtype, shape, device.to_device())
    }

    /// [`Tensor::from_bytes`] of bytes that `fill(at, part)` writes: the bytes from `at` on to
    /// `part`. Several threads fill parts at once, in any order; a device such as the CPU has them
    /// in place, without a copy in the memory of the host.
    ///
    /// # Errors
    /// As `fill`.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{DType, Reference, Tensor};
    /// # fn main() -> teeny_core::Result<()> {
    /// let file = [0u8, 0, 128, 63, 0, 0, 0, 64];
    /// let fill = |at: usize, part: &mut [u8]| {
    ///     part.copy_from_slice(&file[at..at + part.len()]);
    ///     Ok(())
    /// };
    /// let x = Tensor::from_bytes_with(2, DType::F32, &Reference::new(), fill)?;
    /// assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn from_bytes_with(
        shape: impl IntoShape,
        dtype: DType,
        device: impl ToDevice,
        fill: impl Fn(usize, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<Tensor> {
        let _op = enter("from_bytes_with");
        let (shape, device) = (shape.shape()?, device.to_device());
        let fill = |at: usize, part: &mut [u8]| {
            fill(at, part)?;
            if dtype == DType::Bool {
                part.iter_mut().for_each(|byte| *byte = u8::from(*byte != 0));
            }
            Ok(())
        };
        let storage = device.upload_with(shape.numel(), dtype, 1, &fill).map_err(Error::placed)?;
        Tensor::from_result(storage, shape, dtype, device)
    }

    /// A tensor of `shape` and `dtype` from numbers of any kind in row-major order, each rounded by
    /// the rules of [`Scalar::cast`]; the inverse is [`Tensor::to_scalars`].
    ///
    /// # Errors
    /// If the number of values is not the shape's number of elements.
    #[track_caller]
    pub fn from_scalars(
        values: &[Scalar],
        shape: impl IntoShape,
        dtype: DType,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("from_scalars");
        let shape = require_numel(values.len(), shape.shape()?)?;
        place(&encode(values, dtype)?, dtype, shape, device.to_device())
    }
}

/// How many elements of a generated tensor the host holds at a time.
pub(super) const PIECE: usize = 1 << 20;

/// A tensor whose element `i`, counted in row-major order, is `value(i)`.
///
/// The device allocates memory for all of them first; the host holds one piece at a time.
pub(in crate::tensor) fn generate<T: Element>(
    shape: Shape,
    device: impl ToDevice,
    value: impl Fn(usize) -> T,
) -> Result<Tensor> {
    let n = shape.numel();
    let mut values = memory::reserved(n.min(PIECE))?;
    if n <= PIECE {
        values.extend((0..n).map(value));
        return upload(&values, shape, device);
    }
    let mut x = Tensor::zeros(n, T::DTYPE, &device)?;
    for start in (0..n).step_by(PIECE) {
        let len = PIECE.min(n - start);
        values.clear();
        values.extend((start..start + len).map(&value));
        let piece = upload(&values, Shape::new(&[len])?, &device)?;
        x = x.slice_assign(0, start..start + len, &piece)?;
    }
    x.reshape(shape)
}

pub(super) fn upload<T: Element>(
    values: &[T],
    shape: Shape,
    device: impl ToDevice,
) -> Result<Tensor> {
    place(&T::to_bytes(values), T::DTYPE, shape, device.to_device())
}

/// A tensor of the elements whose little-endian bytes are `bytes`, as many as `shape` has. The one
/// place where bytes from outside become elements.
fn place(bytes: &[u8], dtype: DType, shape: Shape, device: DeviceRef) -> Result<Tensor> {
    // Devices compute with bools that are 0 or 1; a file may hold others, which mean true, as in
    // NumPy.
    let foreign = dtype == DType::Bool && bytes.iter().any(|&byte| byte > 1);
    let bytes = if foreign {
        Cow::Owned(memory::collected(bytes.iter().map(|&byte| u8::from(byte != 0)))?)
    } else {
        Cow::Borrowed(bytes)
    };
    let storage = device.upload(&bytes, dtype)?;
    Tensor::from_result(storage, shape, dtype, device)
}

/// `shape`, if it has `count` elements.
fn require_numel(count: usize, shape: Shape) -> Result<Shape> {
    if count != shape.numel() {
        return Err(Error::shape(format!(
            "{count} values do not fill shape {shape} of {} elements",
            shape.numel()
        ))
        .help(format!("({count},) fits, or another shape of {count} elements")));
    }
    Ok(shape)
}
