//! Constructors: from host data, filled, counted, random.

use super::Nested;
use crate::context::enter;
use crate::device::{DeviceRef, ToDevice};
use crate::dtype::DType;
use crate::element::{Element, encode};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::kernel::build::Builder;
use crate::memory;
use crate::op::Op;
use crate::random::{self, Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::{IntoShape, Shape};
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

impl Tensor {
    /// A tensor from a number, an array, or nested arrays or `Vec`s:
    /// `Tensor::new([[1.0, 2.0], [3.0, 4.0]], &device)`.
    ///
    /// # Errors
    /// If the nesting is ragged or too deep.
    #[track_caller]
    pub fn new<T: Element>(
        data: impl Nested<T>,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("new");
        let mut sizes = Vec::new();
        data.sizes(&mut sizes);
        let shape = Shape::new(&sizes)?;
        // Ragged data promise more than they have: room for all of it only saves growing.
        let mut values = memory::reserved(shape.numel()).unwrap_or_default();
        data.flatten(&sizes, &mut Vec::new(), &mut values)?;
        upload(&values, shape, device)
    }

    /// A tensor of `shape` with the values of `data` in row-major order.
    ///
    /// # Errors
    /// If the number of values is not that of the shape's elements.
    #[track_caller]
    pub fn from_slice<T: Element>(
        data: &[T],
        shape: impl IntoShape,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("from_slice");
        upload(data, filled_by(data.len(), shape.shape()?)?, device)
    }

    /// [`Tensor::from_slice`] of a `Vec`.
    #[track_caller]
    pub fn from_vec<T: Element>(
        data: Vec<T>,
        shape: impl IntoShape,
        device: &(impl ToDevice + ?Sized),
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
        device: &(impl ToDevice + ?Sized),
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

    /// A tensor of `shape` and `dtype` from numbers of any kind in row-major order, each rounded by
    /// the rules of [`Scalar::cast`]; the way back is [`Tensor::to_scalars`].
    ///
    /// # Errors
    /// If the number of values is not that of the shape's elements.
    #[track_caller]
    pub fn from_scalars(
        values: &[Scalar],
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("from_scalars");
        let shape = filled_by(values.len(), shape.shape()?)?;
        place(&encode(values, dtype)?, dtype, shape, device.to_device())
    }

    /// A tensor filled with `value` as `dtype` holds it.
    #[track_caller]
    pub fn full(
        shape: impl IntoShape,
        value: impl Into<Scalar>,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
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
        let (inputs, params) = (&[], &[value]);
        Op::Elementwise { kernel, inputs, params, shape: &shape }.tensor(&device)
    }

    /// A tensor of zeros.
    #[track_caller]
    pub fn zeros(
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("zeros");
        Tensor::full(shape, 0, dtype, device)
    }

    /// A tensor of ones.
    #[track_caller]
    pub fn ones(
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
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
    pub fn arange<T: Element>(
        start: T,
        end: T,
        step: T,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("arange");
        let (from, to, by) = (start.to_scalar(), end.to_scalar(), step.to_scalar());
        let whole = T::DTYPE.is_int();
        let shape = Shape::new(&[steps(from, to, by, whole)?])?;
        let value = |i: usize| {
            if whole {
                Scalar::Int((wide(from) + i as i128 * wide(by)) as i64)
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
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("linspace");
        if !dtype.is_float() {
            return Err(Error::dtype(format!("needs floats, not {dtype}")).help(format!(
                "Tensor::linspace(.., DType::F32, &device)?.cast(DType::{})? rounds toward zero",
                dtype.variant()
            )));
        }
        // The distance of finite ends may be infinite; that of their halves is not.
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
    pub fn eye(n: usize, dtype: DType, device: &(impl ToDevice + ?Sized)) -> Result<Tensor> {
        let _op = enter("eye");
        let one = Tensor::ones((), dtype, device)?;
        Tensor::zeros((n, n), dtype, device)?.assign_view(|x| x.diagonal(0, 0, 1), &one)
    }

    /// Uniform in [0, 1). Equivalent: `torch.rand`.
    #[track_caller]
    pub fn rand(
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("rand");
        Tensor::random(
            Distribution::Uniform { low: 0.0, high: 1.0 },
            shape,
            dtype,
            random::next_key(),
            device,
        )
    }

    /// Normal with mean 0 and standard deviation 1. Equivalent: `torch.randn`.
    #[track_caller]
    pub fn randn(
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("randn");
        Tensor::random(
            Distribution::Normal { mean: 0.0, std: 1.0 },
            shape,
            dtype,
            random::next_key(),
            device,
        )
    }

    /// Uniform in `[low, high)`.
    #[track_caller]
    pub fn uniform(
        low: f64,
        high: f64,
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("uniform");
        Tensor::random(
            Distribution::Uniform { low, high },
            shape,
            dtype,
            random::next_key(),
            device,
        )
    }

    /// Normal with the given mean and standard deviation.
    #[track_caller]
    pub fn normal(
        mean: f64,
        std: f64,
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("normal");
        Tensor::random(Distribution::Normal { mean, std }, shape, dtype, random::next_key(), device)
    }

    /// Integers in `low..high`. Equivalent: `torch.randint`.
    #[track_caller]
    pub fn randint(
        low: i64,
        high: i64,
        shape: impl IntoShape,
        dtype: DType,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("randint");
        Tensor::random(
            Distribution::Integer { low, high },
            shape,
            dtype,
            random::next_key(),
            device,
        )
    }

    /// True with probability `p`, a bool tensor.
    #[track_caller]
    pub fn bernoulli(
        p: f64,
        shape: impl IntoShape,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("bernoulli");
        Tensor::random(
            Distribution::Bernoulli { p },
            shape,
            DType::Bool,
            random::next_key(),
            device,
        )
    }

    /// The numbers `0..n` in random order, `I32`. Equivalent: `torch.randperm`.
    #[track_caller]
    pub fn randperm(n: usize, device: &(impl ToDevice + ?Sized)) -> Result<Tensor> {
        let _op = enter("randperm");
        let shape = Shape::new(&[n])?;
        let mut order = memory::collected(0..index_end(n)?)?;
        if n > PIECE {
            // The device says whether it has room before the shuffle, which takes longer.
            Tensor::zeros(shape, DType::I32, device)?;
        }
        shuffle(&mut order, random::next_key());
        upload(&order, shape, device)
    }

    /// A draw from `distribution` under an explicit key; the other random constructors take the
    /// next key of [`crate::random`].
    #[track_caller]
    pub fn random(
        distribution: Distribution,
        shape: impl IntoShape,
        dtype: DType,
        key: Key,
        device: &(impl ToDevice + ?Sized),
    ) -> Result<Tensor> {
        let _op = enter("random");
        let shape = shape.shape()?;
        random::check(distribution, dtype)?;
        let device = device.to_device();
        Op::Random { distribution, shape: &shape, dtype, key }.tensor(&device)
    }
}

/// The numbers `0..n` in the random order of `key`: Fisher and Yates' shuffle. `n` is the length of
/// something the host holds; [`Tensor::randperm`] takes any.
pub fn permutation(n: usize, key: Key) -> Vec<usize> {
    let mut order: Vec<usize> = (0..n).collect();
    shuffle(&mut order, key);
    order
}

fn shuffle<T>(order: &mut [T], key: Key) {
    for i in (1..order.len()).rev() {
        let w = random::philox(key, i as u64);
        let bits = (w[1] as u128) << 32 | w[0] as u128;
        order.swap(i, ((bits * (i as u128 + 1)) >> 64) as usize);
    }
}

/// How many steps `by` lead from `from` up to but not to `to`.
fn steps(from: Scalar, to: Scalar, by: Scalar, whole: bool) -> Result<usize> {
    if whole {
        let (distance, by) = (wide(to) - wide(from), wide(by));
        if by != 0 && distance.signum() * by.signum() >= 0 {
            // Below 2^65: what an `usize` does not hold is refused as a shape.
            let count = distance.unsigned_abs().div_ceil(by.unsigned_abs());
            return Ok(usize::try_from(count).unwrap_or(usize::MAX));
        }
    } else {
        let length = (to.to_f64() - from.to_f64()) / by.to_f64();
        if length.is_finite() && length >= 0.0 {
            return Ok(length.ceil() as usize);
        }
    }
    Err(Error::value(format!("no numbers from {from} to {to} by steps of {by}"))
        .help("step must be non-zero and point from start to end"))
}

/// An integer of any type.
pub(in crate::tensor) fn wide(s: Scalar) -> i128 {
    match s {
        Scalar::UInt(v) => v as i128,
        other => other.to_i64_wrapping() as i128,
    }
}

/// `n` as an `I32`, the type of positions.
pub(crate) fn index_end(n: usize) -> Result<i32> {
    i32::try_from(n).map_err(|_| {
        Error::value(format!("{n} positions do not fit i32, the type of positions"))
            .help(format!("work on slices of at most {} elements", i32::MAX))
    })
}

/// How many elements of a generated tensor the host holds at a time.
const PIECE: usize = 1 << 20;

/// A tensor whose element `i`, counted in row-major order, is `value(i)`.
///
/// The device says first whether it has room for all of them; the host holds a piece at a time.
pub(in crate::tensor) fn generate<T: Element>(
    shape: Shape,
    device: &(impl ToDevice + ?Sized),
    value: impl Fn(usize) -> T,
) -> Result<Tensor> {
    let n = shape.numel();
    let mut values = memory::reserved(n.min(PIECE))?;
    if n <= PIECE {
        values.extend((0..n).map(value));
        return upload(&values, shape, device);
    }
    let mut x = Tensor::zeros(n, T::DTYPE, device)?;
    for start in (0..n).step_by(PIECE) {
        let len = PIECE.min(n - start);
        values.clear();
        values.extend((start..start + len).map(&value));
        let piece = upload(&values, Shape::new(&[len])?, device)?;
        x = x.slice_assign(0, start..start + len, &piece)?;
    }
    x.reshape(shape)
}

fn upload<T: Element>(
    values: &[T],
    shape: Shape,
    device: &(impl ToDevice + ?Sized),
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
fn filled_by(count: usize, shape: Shape) -> Result<Shape> {
    if count != shape.numel() {
        return Err(Error::shape(format!(
            "{count} values do not fill shape {shape} of {} elements",
            shape.numel()
        ))
        .help(format!("({count},) fits, or another shape of {count} elements")));
    }
    Ok(shape)
}
