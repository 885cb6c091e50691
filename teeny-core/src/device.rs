//! The backend interface: everything that computes implements [`Device`].
//!
//! `Tensor` methods make an [`Op`]; core checks it, infers its outputs and has the device execute
//! it. A device that declines a fused op leaves it to its definition in primitives.
//!
//! A backend for new hardware writes the five required methods; [`Device::execute`] matches the
//! primitives ([`Op::is_primitive`]) and declines the rest. A *wrapper* (autograd, tracing,
//! checking) holds another device, changes or watches the op, and passes it on; see
//! [`Device::inner`] and [`Device::wrap`].

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::memory;
use crate::op::{Op, Outputs};
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::any::Any;
use std::fmt;
use std::future::ready;
use std::pin::Pin;
use std::sync::Arc;

/// A shared device, as tensors hold it.
pub type DeviceRef = Arc<dyn Device>;

/// A read that [`Device::download_async`] has started. It owns its data: neither the tensor nor the
/// device must outlive the call.
pub type ReadFuture = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send>>;

/// A wait that [`Device::synchronize_async`] or [`Device::ready_async`] has started.
pub type WaitFuture = Pin<Box<dyn Future<Output = Result<()>> + Send>>;

/// The callback of [`Device::upload_with`]: `fill(at, part)` writes the bytes from byte `at` on to
/// `part`. Parts are filled in any order, by several threads at once.
pub type Fill<'a> = dyn Fn(usize, &mut [u8]) -> Result<()> + Sync + 'a;

/// All bytes of `len` elements that `fill` writes.
pub(crate) fn filled(len: usize, dtype: DType, fill: &Fill<'_>) -> Result<Vec<u8>> {
    let mut bytes = memory::filled(0, len.saturating_mul(dtype.size()))?;
    fill(0, &mut bytes)?;
    Ok(bytes)
}

/// The name and description of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The registry name: `cpu`, `wgpu`, `reference`, `autograd(cpu)`.
    pub name: String,
    /// The processor or adapter, with its instruction set or driver.
    pub description: String,
}

/// Counters of a device; all zero on a device that does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Storages allocated since the device was made.
    pub allocations: u64,
    /// How many of these took memory from the operating system or driver.
    pub os_allocations: u64,
    /// Bytes in storages that are alive.
    pub live_bytes: u64,
    /// The peak of `live_bytes`.
    pub peak_bytes: u64,
    /// Bytes kept for reuse.
    pub cached_bytes: u64,
}

/// A backend, or a wrapper around one. Object-safe; shared as [`DeviceRef`].
///
/// # Example
/// A device that multiplies matrices itself and leaves everything else to another one:
///
/// ```
/// use teeny_core::{DType, Device, DeviceInfo, Op, Outputs, Reference, Result, StorageRef, Tensor};
///
/// #[derive(Debug)]
/// struct Fast(std::sync::Arc<Reference>);
///
/// impl Device for Fast {
///     fn info(&self) -> DeviceInfo {
///         DeviceInfo { name: "fast".into(), description: "an example".into() }
///     }
///     fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
///         self.0.upload(bytes, dtype)
///     }
///     fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
///         self.0.download(x)
///     }
///     fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
///         match op {
///             Op::Matmul { .. } => self.0.execute(op), // its own kernel goes here
///             other => self.0.execute(other),
///         }
///     }
///     fn synchronize(&self) -> Result<()> {
///         self.0.synchronize()
///     }
/// }
/// ```
///
/// The crate `teeny-conformance` has the suite and the fuzzers that test a device.
pub trait Device: Any + Send + Sync + fmt::Debug {
    /// Describes this device.
    fn info(&self) -> DeviceInfo;

    /// New storage with the elements whose little-endian bytes are `bytes` (a bool is one byte, 0
    /// or 1).
    ///
    /// # Errors
    /// If `bytes` is not a whole number of elements, or allocation fails.
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef>;

    /// The elements of the view in row-major order, as little-endian bytes.
    ///
    /// # Errors
    /// If the device fails.
    fn download(&self, x: &Tensor) -> Result<Vec<u8>>;

    /// Executes `op` and returns the storages of its outputs, or declines with `None`. A device
    /// that declines changes nothing, and [`Op::run`] runs the definition of the op; a declined
    /// primitive is an error. [`Op`] defines what each operation computes and owns.
    ///
    /// Errors carry no operation name: core adds it.
    ///
    /// # Errors
    /// If the operands do not fit the op, allocation fails, or the device fails.
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>>;

    /// Waits until all submitted work is done; returns its first error.
    ///
    /// # Errors
    /// Errors of earlier ops that the device found late.
    fn synchronize(&self) -> Result<()>;

    // ---- provided ----

    /// [`Device::upload`] of `len` elements whose bytes `fill` writes, so a file need not be in
    /// host memory first. Parts begin at multiples of `step` elements (0 counts as
    /// 1) and end at one or with the last. Provided: one part, in the memory of the host.
    ///
    /// # Errors
    /// As `fill` and [`Device::upload`].
    fn upload_with(
        &self,
        len: usize,
        dtype: DType,
        step: usize,
        fill: &Fill<'_>,
    ) -> Result<StorageRef> {
        let _ = step;
        self.upload(&filled(len, dtype, fill)?, dtype)
    }

    /// [`Device::download`] as a future. The call itself submits the copy, so the bytes are a
    /// snapshot at the call and later operations overlap the read; only the wait is awaited.
    /// Provided: a device that computes synchronously downloads at once.
    fn download_async(&self, x: &Tensor) -> ReadFuture {
        Box::pin(ready(self.download(x)))
    }

    /// [`Device::synchronize`] as a future, for work that is submitted before this call.
    fn synchronize_async(&self) -> WaitFuture {
        Box::pin(ready(self.synchronize()))
    }

    /// Back-pressure: resolves when few enough batches wait for the device that another step should
    /// be submitted. A program that awaits it once a step keeps the memory of waiting batches
    /// bounded, also in a browser, where no operation can wait. Unlike
    /// [`Device::synchronize_async`] it leaves the device some batches to work on.
    fn ready_async(&self) -> WaitFuture {
        Box::pin(ready(Ok(())))
    }

    /// Ends a list of operations that belong together, such as a training step: a device that
    /// collects work may begin it when the next operation arrives. Waits for nothing.
    fn flush(&self) {}

    /// Whether many small kernels run better as one [`Op::ElementwiseMany`] here. Where they do not,
    /// an optimizer updates one parameter after another and frees each gradient on the way.
    fn prefers_batched_kernels(&self) -> bool {
        false
    }

    /// The memory counters.
    fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Returns cached memory to the system.
    fn clear_cache(&self) {}

    /// The device this one wraps, if it is a wrapper.
    fn inner(&self) -> Option<&DeviceRef> {
        None
    }

    /// Storage of this wrapper that stands for `x`, a tensor of the device it wraps, addressed by
    /// the same layout.
    ///
    /// # Errors
    /// If this device is not a wrapper.
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        Err(Error::internal(format!(
            "{} wraps no device, so it cannot take a tensor of {}",
            self.info().name,
            x.device().info().name
        )))
    }

    /// The tensor of the wrapped device that `x` stands for.
    ///
    /// # Errors
    /// If this device is not a wrapper.
    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        Err(Error::internal(format!(
            "{} wraps no device, so it cannot unwrap {}",
            self.info().name,
            x.shape()
        )))
    }
}

impl dyn Device {
    /// The device as `Any`, which its crate downcasts.
    pub fn downcast_ref<D: Device>(&self) -> Option<&D> {
        (self as &dyn Any).downcast_ref()
    }
}

/// A value that names a device: an `Arc` of one, a [`DeviceRef`], or a tensor, which stands for the
/// device it is on. Functions take `impl ToDevice`, which references to these are too.
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let x = Tensor::zeros(3, DType::F32, &device)?; // (3)
/// let y = Tensor::ones(3, DType::F32, &x)?; // (3), on the device of x
/// let z = Tensor::ones(3, DType::F32, device)?; // (3)
/// assert_eq!(x.add(&y)?.sub(&z)?.to_vec::<f32>()?, [0.0; 3]);
/// # Ok(()) }
/// ```
pub trait ToDevice {
    /// Returns the device: of a tensor, the one it is on. Nothing is copied.
    fn to_device(&self) -> DeviceRef;
}
impl ToDevice for DeviceRef {
    fn to_device(&self) -> DeviceRef {
        self.clone()
    }
}
impl<D: Device> ToDevice for Arc<D> {
    fn to_device(&self) -> DeviceRef {
        self.clone()
    }
}
impl ToDevice for Tensor {
    fn to_device(&self) -> DeviceRef {
        self.device().clone()
    }
}
impl<T: ToDevice + ?Sized> ToDevice for &T {
    fn to_device(&self) -> DeviceRef {
        (**self).to_device()
    }
}

/// True if both handles are the same device, not two devices of the same kind.
#[inline]
pub fn same(a: &DeviceRef, b: &DeviceRef) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// The device that runs an operation on tensors of both: the outer one if it wraps the
/// other, directly or through further wrappers.
///
/// # Errors
/// If the devices are unrelated.
#[track_caller]
pub fn common(a: &DeviceRef, b: &DeviceRef) -> Result<DeviceRef> {
    let wraps = |outer: &DeviceRef, inner: &DeviceRef| {
        let mut device = Some(outer);
        while let Some(d) = device {
            if same(d, inner) {
                return true;
            }
            device = d.inner();
        }
        false
    };
    if wraps(a, b) {
        Ok(a.clone())
    } else if wraps(b, a) {
        Ok(b.clone())
    } else {
        let _op = enter("device::common");
        let (a, b) = (a.info(), b.info());
        let error = Error::device(format!(
            "the operands are on different devices: {} and {}",
            a.name, b.name
        ))
        .help("move one of them: x.to(&device)?");
        Err(if a.name == b.name {
            error.note("two devices of one name are still two devices, each with its own memory")
        } else {
            error
        })
    }
}
