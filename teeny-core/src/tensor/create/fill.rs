//! Filled and counted tensors: constants, ranges, identity, one-hot, grids. Constants are computed
//! by the device; ranges are made on the host by `host_data::generate`.

use super::host_data::generate;
use crate::context::{Positions, enter, positions_of};
use crate::device::{DeviceRef, ToDevice};
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::kernel::build::Builder;
use crate::op::Op;
use crate::scalar::Scalar;
use crate::shape::{IntoShape, Shape};
use crate::tensor::{Tensor, references};
use std::sync::{Arc, OnceLock};

impl Tensor {
    /// A tensor filled with `value` as `dtype` holds it.
    #[track_caller]
    pub fn full(
        shape: impl IntoShape,
        value: impl Into<Scalar>,
        dtype: DType,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("full");
        Tensor::filled(shape.shape()?, value.into(), dtype, device.to_device())
    }

    fn filled(shape: Shape, value: Scalar, dtype: DType, device: DeviceRef) -> Result<Tensor> {
        static FILL: [OnceLock<Arc<Kernel>>; 13] = [const { OnceLock::new() }; 13];
        let kernel = FILL[dtype as usize].get_or_init(|| {
            let builder = Builder::new();
            let fill = builder.param(dtype);
            Arc::new(builder.finish(&[fill]).expect("a parameter is a legal program"))
        });
        let (inputs, params) = (&[], &[value.cast(dtype)]);
        Op::Elementwise { kernel, inputs, params, shape: &shape }.tensor(&device)
    }

    /// A tensor of zeros.
    #[track_caller]
    pub fn zeros(shape: impl IntoShape, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("zeros");
        Tensor::full(shape, 0, dtype, device)
    }

    /// A tensor of ones.
    #[track_caller]
    pub fn ones(shape: impl IntoShape, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("ones");
        Tensor::full(shape, 1, dtype, device)
    }

    /// Zeros in the shape and type of self, on its device.
    #[track_caller]
    pub fn zeros_like(&self) -> Result<Tensor> {
        let _op = enter("zeros_like").on([("x", Some(self))]);
        Tensor::full(self.shape(), 0, self.dtype(), self)
    }

    /// Ones in the shape and type of self, on its device.
    #[track_caller]
    pub fn ones_like(&self) -> Result<Tensor> {
        let _op = enter("ones_like").on([("x", Some(self))]);
        Tensor::full(self.shape(), 1, self.dtype(), self)
    }

    /// `value` in the shape and type of self, on its device.
    #[track_caller]
    pub fn full_like(&self, value: impl Into<Scalar>) -> Result<Tensor> {
        let _op = enter("full_like").on([("x", Some(self))]);
        Tensor::full(self.shape(), value, self.dtype(), self)
    }

    /// `start, start + step, …` up to but not including `end`: shape
    /// `(ceil((end - start) / step),)`, the type of the numbers given.
    ///
    /// # Errors
    /// If `step` is 0 or points away from `end`, or a bound is not finite.
    #[track_caller]
    pub fn arange<T: Element>(start: T, end: T, step: T, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("arange");
        let (from, to, by) = (start.to_scalar(), end.to_scalar(), step.to_scalar());
        let whole = T::DTYPE.is_int();
        let shape = Shape::new(&[steps(from, to, by, whole)?])?;
        let value = |i: usize| {
            if whole {
                Scalar::Int((from.to_i128() + i as i128 * by.to_i128()) as i64)
            } else {
                Scalar::Float(from.to_f64() + i as f64 * by.to_f64())
            }
        };
        generate(shape, device, |i| T::from_scalar(value(i)))
    }

    /// `count` numbers from `start` to `end`, both included, evenly spaced.
    ///
    /// # Errors
    /// If `dtype` is not a float.
    #[track_caller]
    pub fn linspace(
        start: f64,
        end: f64,
        count: usize,
        dtype: DType,
        device: impl ToDevice,
    ) -> Result<Tensor> {
        let _op = enter("linspace");
        if !dtype.is_float() {
            return Err(Error::dtype(format!("needs floats, not {dtype}")).help(format!(
                "Tensor::linspace(.., DType::F32, &device)?.cast(DType::{})? rounds toward zero",
                dtype.variant()
            )));
        }
        // The difference of finite ends may overflow; the difference of their halves does not.
        let scale = if (end - start).is_finite() { 1.0 } else { 0.5 };
        let (first, last) = (start * scale, end * scale);
        let step = if count > 1 { (last - first) / (count - 1) as f64 } else { 0.0 };
        // The second half counts back from the end, so that both ends are exact.
        let value = |i| {
            (if i < count.div_ceil(2) {
                first + step * i as f64
            } else {
                last - step * (count - 1 - i) as f64
            }) / scale
        };
        let shape = Shape::new(&[count])?;
        crate::with_element!(dtype, T => generate(shape, device, |i| T::from_scalar(Scalar::Float(value(i)))))
    }

    /// The identity matrix `(n, n)`.
    #[track_caller]
    pub fn eye(n: usize, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("eye");
        let one = Tensor::ones((), dtype, &device)?;
        Tensor::zeros((n, n), dtype, device)?.assign_view(|x| x.diagonal(0, 0, 1), &one)
    }

    /// A new last axis of `classes` with 1 at the position each element names, 0 elsewhere, of type
    /// `dtype`.
    ///
    /// # Errors
    /// If the elements are not integers in `0..classes`.
    ///
    /// Equivalent: `torch.nn.functional.one_hot`.
    #[track_caller]
    pub fn one_hot(&self, classes: usize, dtype: DType) -> Result<Tensor> {
        let _op = enter("one_hot").on([("x", Some(self))]);
        let shape = self.shape().with_axis(self.ndim(), classes)?;
        let zeros = Tensor::zeros(shape, dtype, self)?;
        let one = Tensor::ones((), dtype, self)?;
        let _named = positions_of(const { &Positions::of("x") });
        zeros.scatter(-1, &self.unsqueeze(-1)?, &one)
    }

    /// Vectors (a), (b), … as tensors (a, b, …) that each vary along one axis. Equivalent:
    /// `torch.meshgrid(.., indexing="ij")`.
    ///
    /// # Errors
    /// If one is not a vector.
    #[track_caller]
    pub fn meshgrid<T: AsRef<Tensor>>(vectors: &[T]) -> Result<Vec<Tensor>> {
        let vectors = &references(vectors)[..];
        let _op = enter("meshgrid").on_all("vectors", vectors);
        if let Some(bad) = vectors.iter().find(|v| v.ndim() != 1) {
            return Err(Error::shape(format!("needs vectors, not {}", bad.shape()))
                .help("v.reshape(-1)? is a vector"));
        }
        let shape = Shape::new(&vectors.iter().map(|v| v.numel()).collect::<Vec<_>>())?;
        let along = |(axis, v): (usize, &&Tensor)| {
            let mut own = vec![1; vectors.len()];
            own[axis] = v.numel();
            v.reshape(own)?.expand(shape)
        };
        vectors.iter().enumerate().map(along).collect()
    }
}

/// The number of steps `by` from `from` up to, not including, `to`.
fn steps(from: Scalar, to: Scalar, by: Scalar, whole: bool) -> Result<usize> {
    if whole {
        let (distance, by) = (to.to_i128() - from.to_i128(), by.to_i128());
        if by != 0 && distance.signum() * by.signum() >= 0 {
            // Below 2^65: a value above `usize::MAX` is an error of the shape.
            let count = distance.unsigned_abs().div_ceil(by.unsigned_abs());
            return Ok(usize::try_from(count).unwrap_or(usize::MAX));
        }
    } else {
        let length = (to.to_f64() - from.to_f64()) / by.to_f64();
        if length.is_finite() && length >= 0.0 {
            return Ok(length.ceil() as usize);
        }
    }
    Err(Error::value(format!("cannot count from {from} to {to} by steps of {by}"))
        .help("step must be non-zero and point from start to end"))
}
