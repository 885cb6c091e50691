//! Copies of the elements to host memory and to other devices. A device that wraps the tensor's, or
//! that it wraps, shares the storage instead.
//!
//! Each copy has a form that waits and one that is awaited. The second starts the copy when it is
//! called: later operations overlap it, and their writes are not read.

use crate::context::{continued, enter};
use crate::device::{DeviceRef, ToDevice, same};
use crate::element::{Element, decode};
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::one_device::lift;

impl Tensor {
    /// The elements in row-major order. Waits for the device.
    ///
    /// # Errors
    /// If `T` is not the tensor's type.
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let _op = enter("to_vec").on([("x", Some(self))]);
        self.require::<T>()?;
        T::from_bytes(&self.device().download(self)?)
    }

    /// The elements in row-major order as little-endian bytes, as files hold them.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let _op = enter("to_bytes").on([("x", Some(self))]);
        self.device().download(self)
    }

    /// The only element of a tensor of one element, of any shape.
    ///
    /// # Errors
    /// If there are more or fewer elements, or `T` is not the tensor's type.
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let _op = enter("item").on([("x", Some(self))]);
        self.require::<T>()?;
        self.require_one()?;
        first(&T::from_bytes(&self.device().download(self)?)?)
    }

    /// The elements in row-major order, for any dtype.
    #[track_caller]
    pub fn to_scalars(&self) -> Result<Vec<Scalar>> {
        let _op = enter("to_scalars").on([("x", Some(self))]);
        decode(&self.device().download(self)?, self.dtype())
    }

    /// This tensor on `device`: itself if it is there already, lifted without a copy if `device`
    /// wraps its device, unwrapped without a copy (and without its gradient history) if its device
    /// wraps `device`, copied through host memory otherwise.
    #[track_caller]
    pub fn to(&self, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("to").on([("x", Some(self))]);
        let device = device.to_device();
        match self.shared_with(&device)? {
            Some(x) => Ok(x),
            None => {
                let storage = device.upload(&self.device().download(self)?, self.dtype())?;
                Tensor::from_result(storage, *self.shape(), self.dtype(), device)
            }
        }
    }

    /// [`Tensor::to_vec`] as a future. Waiting blocks no thread in a browser, where the form that
    /// waits is an error on a GPU.
    ///
    /// # Errors
    /// As [`Tensor::to_vec`].
    ///
    /// # Example
    /// ```
    /// # use teeny_core::{Reference, Result, Tensor};
    /// # async fn f() -> Result<()> {
    /// let x = Tensor::new([1.0f32, 2.0], &Reference::new())?; // (2)
    /// let before = x.to_vec_async::<f32>(); // the copy is submitted here
    /// let y = x.exp()?; // (2), overlaps the read
    /// assert_eq!(before.await?, [1.0, 2.0]);
    /// # let _ = y; Ok(()) }
    /// ```
    #[track_caller]
    pub fn to_vec_async<T: Element>(&self) -> impl Future<Output = Result<Vec<T>>> + Send + use<T> {
        let _op = enter("to_vec_async").on([("x", Some(self))]);
        let reading = self.require::<T>().map(|()| self.device().download_async(self));
        continued(async { T::from_bytes(&reading?.await?) })
    }

    /// [`Tensor::to_bytes`] as a future.
    ///
    /// # Errors
    /// As [`Tensor::to_bytes`].
    #[track_caller]
    pub fn to_bytes_async(&self) -> impl Future<Output = Result<Vec<u8>>> + Send + use<> {
        let _op = enter("to_bytes_async").on([("x", Some(self))]);
        continued(self.device().download_async(self))
    }

    /// [`Tensor::item`] as a future.
    ///
    /// # Errors
    /// As [`Tensor::item`].
    #[track_caller]
    pub fn item_async<T: Element>(&self) -> impl Future<Output = Result<T>> + Send + use<T> {
        let _op = enter("item_async").on([("x", Some(self))]);
        let checked = self.require::<T>().and_then(|()| self.require_one());
        let reading = checked.map(|()| self.device().download_async(self));
        continued(async { first(&T::from_bytes(&reading?.await?)?) })
    }

    /// [`Tensor::to_scalars`] as a future.
    ///
    /// # Errors
    /// As [`Tensor::to_scalars`].
    #[track_caller]
    pub fn to_scalars_async(&self) -> impl Future<Output = Result<Vec<Scalar>>> + Send + use<> {
        let _op = enter("to_scalars_async").on([("x", Some(self))]);
        let (reading, dtype) = (self.device().download_async(self), self.dtype());
        continued(async move { decode(&reading.await?, dtype) })
    }

    /// [`Tensor::to`] as a future.
    ///
    /// # Errors
    /// As [`Tensor::to`].
    // NOTE: the future captures `D`. A `D` that is a reference would bound its lifetime, therefore
    // the device is not `impl ToDevice` by value as elsewhere.
    #[track_caller]
    pub fn to_async<D: ToDevice + ?Sized>(
        &self,
        device: &D,
    ) -> impl Future<Output = Result<Tensor>> + Send + use<D> {
        let _op = enter("to_async").on([("x", Some(self))]);
        let device = device.to_device();
        let shared = self.shared_with(&device);
        let reading = matches!(shared, Ok(None)).then(|| self.device().download_async(self));
        let (shape, dtype) = (*self.shape(), self.dtype());
        continued(async move {
            match (shared?, reading) {
                (None, Some(reading)) => {
                    let storage = device.upload(&reading.await?, dtype)?;
                    Tensor::from_result(storage, shape, dtype, device)
                }
                (shared, _) => shared.ok_or_else(|| Error::internal("neither shared nor read")),
            }
        })
    }

    /// This tensor on `device`, if their storage is the same.
    fn shared_with(&self, device: &DeviceRef) -> Result<Option<Tensor>> {
        let mut inner = self.clone();
        loop {
            if same(inner.device(), device) {
                return Ok(Some(inner));
            }
            if wraps(device, inner.device()) {
                return Ok(Some(lift(&inner, device)?.into_owned()));
            }
            if inner.device().inner().is_none() {
                return Ok(None);
            }
            inner = inner.device().unwrap(&inner)?;
        }
    }

    fn require_one(&self) -> Result<()> {
        if self.numel() == 1 {
            return Ok(());
        }
        let (shape, numel) = (self.shape(), self.numel());
        Err(Error::shape(format!("a tensor of shape {shape} has {numel} elements, not one")).help(
            format!("x.to_vec::<{}>()? reads all of them, x.at(0, 0)? takes a part", self.dtype()),
        ))
    }

    fn require<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.dtype() {
            return Ok(());
        }
        Err(Error::dtype(format!("the tensor holds {}, not {}", self.dtype(), T::DTYPE))
            .help(format!("x.cast(DType::{})? converts", T::DTYPE.variant())))
    }
}

/// The element of a tensor of one element.
fn first<T: Element>(values: &[T]) -> Result<T> {
    values.first().copied().ok_or_else(|| Error::internal("the device returned no element"))
}

fn wraps(outer: &DeviceRef, inner: &DeviceRef) -> bool {
    let mut device = outer.inner();
    while let Some(d) = device {
        if same(d, inner) {
            return true;
        }
        device = d.inner();
    }
    false
}
