//! Copies of the elements to host memory and to other devices. A device that wraps the tensor's, or
//! that it wraps, shares the storage instead.

use crate::context::enter;
use crate::device::{ToDevice, same};
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
        if self.numel() != 1 {
            return Err(Error::shape(format!(
                "a tensor of shape {} has {} elements, not one",
                self.shape(),
                self.numel()
            ))
            .help(format!(
                "x.to_vec::<{}>()? reads all of them, x.at(0, 0)? takes a part",
                self.dtype()
            )));
        }
        let values = T::from_bytes(&self.device().download(self)?)?;
        values.first().copied().ok_or_else(|| Error::internal("the device returned no element"))
    }

    /// The elements in row-major order, whatever their type.
    #[track_caller]
    pub fn to_scalars(&self) -> Result<Vec<Scalar>> {
        let _op = enter("to_scalars").on([("x", Some(self))]);
        decode(&self.device().download(self)?, self.dtype())
    }

    /// This tensor on `device`: itself if it is there already, lifted without a copy if `device`
    /// wraps its device, unwrapped without a copy (and without its gradient history) if its device
    /// wraps `device`, copied through host memory otherwise.
    #[track_caller]
    pub fn to(&self, device: &(impl ToDevice + ?Sized)) -> Result<Tensor> {
        let _op = enter("to").on([("x", Some(self))]);
        let device = device.to_device();
        let mut inner = self.clone();
        loop {
            if same(inner.device(), &device) {
                return Ok(inner);
            }
            if wraps(&device, inner.device()) {
                return Ok(lift(&inner, &device)?.into_owned());
            }
            if inner.device().inner().is_none() {
                break;
            }
            inner = inner.device().unwrap(&inner)?;
        }
        let storage = device.upload(&self.device().download(self)?, self.dtype())?;
        Tensor::from_result(storage, *self.shape(), self.dtype(), device)
    }

    fn require<T: Element>(&self) -> Result<()> {
        if T::DTYPE == self.dtype() {
            return Ok(());
        }
        Err(Error::dtype(format!("the tensor holds {}, not {}", self.dtype(), T::DTYPE))
            .help(format!("x.cast(DType::{})? converts", T::DTYPE.variant())))
    }
}

fn wraps(outer: &crate::device::DeviceRef, inner: &crate::device::DeviceRef) -> bool {
    let mut device = outer.inner();
    while let Some(d) = device {
        if same(d, inner) {
            return true;
        }
        device = d.inner();
    }
    false
}
