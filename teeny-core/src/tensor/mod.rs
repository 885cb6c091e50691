//! [`Tensor`]: a view over storage on a device.
//!
//! The methods are in folders by subject:
//!
//! | folder | methods |
//! |---|---|
//! | `create` | from host data, filled, counted, random |
//! | `io` | to host memory, other devices, NumPy files and text |
//! | `view` | views (reshape, permute, slice, expand) and rearrangements (cat, repeat, pad) |
//! | `elementwise` | functions of each element, operators, [`map`] |
//! | `reduce` | reductions and scans along axes |
//! | `order` | sort, top-k, unique elements, counts |
//! | `index` | `x.index(s![..])` and its assignment, gather and scatter |
//! | `linalg` | matrix products, einsum, decompositions, solvers, norms |
//! | `conv` | convolution, pooling, interpolation |
//! | `nn` | softmax, cross-entropy, normalisation, attention |
//!
//! They all go one way: check shapes and types, infer the result, ask the device. This file holds
//! the parts they share: the struct, finding the device of several operands, and running a kernel.

// A blank line after each: rustdoc lists the methods of `Tensor` in this order.
mod create;

mod io;

mod view;

mod elementwise;

mod reduce;

mod order;

mod index;

mod linalg;

mod conv;

mod nn;

pub use conv::{Averaging, Interpolation};
pub(crate) use create::index_end;
pub use create::{Nested, permutation};
pub use elementwise::{Operand, map, map_n, map_sum};
pub use index::{Ellipsis, IntoIndex, NewAxis, Subscript};
pub use linalg::{MatrixNorm, Pca};
pub use view::{PadMode, SliceRange};

use crate::context::enter;
use crate::device::{DeviceRef, common, same};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::op::{Op, Outputs};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::validate::{BROADCAST, counts, not_float, wrong_input};
use std::borrow::Cow;
use std::sync::Arc;

/// An immutable n-dimensional array: storage seen through a [`Layout`], of one [`DType`], on one
/// device.
///
/// `clone` copies the handle, not the elements. Methods borrow, return new tensors and never change
/// what another handle sees.
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference, Tensor};
/// # fn main() -> teeny_core::Result<()> {
/// let device = Reference::new();
/// let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?; // (2, 2)
/// let y = x.t()?.matmul(&x)?; // (2, 2)
/// assert_eq!(y.to_vec::<f32>()?, [10.0, 14.0, 14.0, 20.0]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Tensor {
    storage: StorageRef,
    layout: Layout,
    dtype: DType,
    device: DeviceRef,
}

impl Tensor {
    /// A tensor from its parts, for devices and wrappers. `storage` must belong to `device`.
    ///
    /// # Errors
    /// If the storage does not hold elements of `dtype`, or the layout reaches outside it.
    #[inline]
    #[track_caller]
    pub fn from_parts(
        storage: StorageRef,
        layout: Layout,
        dtype: DType,
        device: DeviceRef,
    ) -> Result<Tensor> {
        if storage.dtype() != dtype || !layout.fits(storage.len()) {
            return Err(misfit("from_parts", None, &storage, &layout, dtype));
        }
        Ok(Tensor { storage, layout, dtype, device })
    }

    /// The result of a device method: new storage that holds `shape` row-major, no more and no
    /// less.
    ///
    /// # Errors
    /// [`ErrorKind::Internal`](crate::ErrorKind::Internal), naming the device, if the storage holds
    /// another number or type of elements.
    #[inline]
    pub fn from_result(
        storage: StorageRef,
        shape: Shape,
        dtype: DType,
        device: DeviceRef,
    ) -> Result<Tensor> {
        if storage.dtype() != dtype || storage.len() != shape.numel() {
            return Err(wrong_result(&storage, &shape, dtype, &device));
        }
        Ok(Tensor { storage, layout: Layout::contiguous(shape), dtype, device })
    }

    /// The memory this tensor looks into.
    #[inline]
    pub fn storage(&self) -> &StorageRef {
        &self.storage
    }

    /// The parts, e.g. to change the storage in place if this was its last handle.
    pub fn into_parts(self) -> (StorageRef, Layout, DType, DeviceRef) {
        (self.storage, self.layout, self.dtype, self.device)
    }

    /// True if both tensors look into the same memory.
    pub fn same_storage(&self, other: &Tensor) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.storage), Arc::as_ptr(&other.storage))
    }

    /// Where the elements lie in the storage.
    #[inline]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The sizes of the axes.
    #[inline]
    pub fn shape(&self) -> &Shape {
        self.layout.shape()
    }

    /// The number of axes.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.layout.ndim()
    }

    /// The number of elements.
    #[inline]
    pub fn numel(&self) -> usize {
        self.layout.numel()
    }

    /// The size of `axis`; negative axes count from the back.
    ///
    /// # Errors
    /// If there is no such axis.
    #[track_caller]
    pub fn size(&self, axis: isize) -> Result<usize> {
        let _op = enter("size").on([("x", Some(self))]);
        Ok(self.shape()[self.shape().axis(axis)?])
    }

    /// Elements between neighbours along each axis.
    #[inline]
    pub fn strides(&self) -> &[isize] {
        self.layout.strides()
    }

    /// The type of the elements.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The device that holds the elements and computes with them.
    #[inline]
    pub fn device(&self) -> &DeviceRef {
        &self.device
    }

    /// True if the elements lie row-major without gaps.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.layout.is_contiguous()
    }

    /// The same storage seen through another layout.
    ///
    /// # Errors
    /// If the layout reaches outside the storage.
    #[inline]
    #[track_caller]
    pub fn with_layout(&self, layout: Layout) -> Result<Tensor> {
        if !layout.fits(self.storage.len()) {
            return Err(misfit("with_layout", Some(self), &self.storage, &layout, self.dtype));
        }
        Ok(self.through(layout))
    }

    /// The same storage seen through a layout that a method of [`Layout`] made from this tensor's
    /// own, and that is inside the storage for this reason.
    #[inline]
    pub(crate) fn through(&self, layout: Layout) -> Tensor {
        Tensor {
            storage: self.storage.clone(),
            layout,
            dtype: self.dtype,
            device: self.device.clone(),
        }
    }

    /// A result of this tensor's device: see [`Tensor::from_result`].
    #[inline]
    pub(crate) fn result(&self, storage: StorageRef, shape: Shape, dtype: DType) -> Result<Tensor> {
        Tensor::from_result(storage, shape, dtype, self.device.clone())
    }

    /// The view stretched to `shape`, which core has already found to fit.
    pub(crate) fn expand_to(&self, shape: &Shape) -> Result<Tensor> {
        match self.layout.expand(shape) {
            Some(layout) => Ok(self.through(layout)),
            None => Err(view::no_expand(self.shape(), shape)),
        }
    }

    /// An error unless the type is a float.
    pub(crate) fn require_float(&self) -> Result<()> {
        if self.dtype.is_float() {
            return Ok(());
        }
        Err(not_float(self.dtype))
    }
}

#[cold]
#[track_caller]
fn misfit(
    op: &'static str,
    x: Option<&Tensor>,
    storage: &StorageRef,
    layout: &Layout,
    dtype: DType,
) -> Error {
    let _op = enter(op).on([("x", x)]);
    if storage.dtype() != dtype {
        return Error::dtype(format!("the storage holds {}, not {dtype}", storage.dtype()))
            .help("pass storage.dtype(); x.cast(dtype)? converts");
    }
    Error::index(format!("{layout:?} reaches outside a storage of {} elements", storage.len()))
        .help(
            "Layout::strided(shape, strides, offset, storage.len())? makes a layout that does not",
        )
}

#[cold]
fn wrong_result(storage: &StorageRef, shape: &Shape, dtype: DType, device: &DeviceRef) -> Error {
    let name = device.info().name;
    let (len, held) = (storage.len(), storage.dtype());
    Error::internal(format!(
        "the device {name} returned {len} elements of {held} for a result of {shape} of {dtype}"
    ))
    .help("this is a bug in the device, not in the calling program")
}

/// The tensors on one device: unchanged if they agree, otherwise those of wrapped devices are
/// lifted to the outermost wrapper among them.
pub(crate) fn on_one_device<'t>(
    tensors: &[&'t Tensor],
) -> Result<(DeviceRef, Vec<Cow<'t, Tensor>>)> {
    let mut device = tensors[0].device.clone();
    for tensor in &tensors[1..] {
        device = common(&device, &tensor.device)?;
    }
    let lifted = tensors.iter().map(|t| lift(t, &device)).collect::<Result<Vec<_>>>()?;
    Ok((device, lifted))
}

/// `tensor` as seen by `device`, which is its device or wraps it.
pub(crate) fn lift<'t>(tensor: &'t Tensor, device: &DeviceRef) -> Result<Cow<'t, Tensor>> {
    if same(&tensor.device, device) {
        return Ok(Cow::Borrowed(tensor));
    }
    let inner =
        device.inner().ok_or_else(|| Error::internal("lifting to a device that wraps nothing"))?;
    let below = lift(tensor, inner)?;
    let storage = device.wrap(&below)?;
    Ok(Cow::Owned(Tensor {
        storage,
        layout: tensor.layout,
        dtype: tensor.dtype,
        device: device.clone(),
    }))
}

/// Two tensors on one device, for operations that take two.
pub(crate) fn pair<'t>(
    lhs: &'t Tensor,
    rhs: &'t Tensor,
) -> Result<(Cow<'t, Tensor>, Cow<'t, Tensor>)> {
    if same(&lhs.device, &rhs.device) {
        return Ok((Cow::Borrowed(lhs), Cow::Borrowed(rhs)));
    }
    let device = common(&lhs.device, &rhs.device)?;
    Ok((lift(lhs, &device)?, lift(rhs, &device)?))
}

/// The shape all tensors broadcast to.
pub(crate) fn broadcast_shape(tensors: &[&Tensor]) -> Result<Shape> {
    let mut shape = *tensors[0].shape();
    for tensor in &tensors[1..] {
        if shape != *tensor.shape() {
            shape = shape
                .broadcast(tensor.shape())
                .ok_or_else(|| no_broadcast(&shape, tensor.shape()))?;
        }
    }
    Ok(shape)
}

#[cold]
fn no_broadcast(a: &Shape, b: &Shape) -> Error {
    let ndim = a.ndim().max(b.ndim());
    let from_right = |s: &Shape, i: usize| if i < s.ndim() { s[s.ndim() - 1 - i] } else { 1 };
    let clash = (0..ndim).find(|&i| {
        let (m, n) = (from_right(a, i), from_right(b, i));
        m != n && m != 1 && n != 1
    });
    let Some(i) = clash else {
        return Error::value(format!(
            "{a} and {b} broadcast to more elements than memory can address"
        ))
        .help("reduce before broadcasting, or work on the parts of x.split(axis, size)?");
    };
    let axis = ndim - 1 - i;
    let (m, n) = (from_right(a, i), from_right(b, i));
    // A vector that would fit one axis further left is the commonest case: (32, 10) + (32,).
    let help = |name: &str, vector: &Shape, other: &Shape| {
        (vector.ndim() == 1 && other.ndim() == 2 && other[0] == vector[0]).then(|| {
            format!("{name}.unsqueeze(1) is ({}, 1) and would broadcast over columns", vector[0])
        })
    };
    let turned = || {
        (a.ndim() == 2 && b.ndim() == 2 && (a[0], a[1]) == (b[1], b[0]))
            .then(|| format!("rhs.t()? is {a} and would fit"))
    };
    Error::shape(format!(
        "{a} and {b} do not broadcast: aligned from the right, axis {axis} has {m} and {n}"
    ))
    .help(
        help("rhs", b, a)
            .or_else(|| help("lhs", a, b))
            .or_else(turned)
            .unwrap_or_else(|| BROADCAST.to_string()),
    )
}

/// Runs `kernel` on tensors that broadcast to one shape.
pub(crate) fn run(
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
) -> Result<(Outputs, Shape, DeviceRef)> {
    let first = inputs[0];
    if alike(inputs) {
        let shape = first.shape();
        let outputs = Op::Elementwise { kernel, inputs, params, shape }.run(&first.device)?;
        return Ok((outputs, *shape, first.device.clone()));
    }
    let (device, lifted) = on_one_device(inputs)?;
    let shape = broadcast_shape(inputs)?;
    let expanded = lifted
        .iter()
        .map(|t| if *t.shape() == shape { Ok(t.as_ref().clone()) } else { t.expand_to(&shape) })
        .collect::<Result<Vec<_>>>()?;
    let views: Vec<&Tensor> = expanded.iter().collect();
    let mut op = Op::Elementwise { kernel, inputs: &views, params, shape: &shape };
    Ok((op.run(&device)?, shape, device))
}

/// The outputs of `kernel`, one tensor for each.
fn results(
    kernel: &Kernel,
    outputs: Outputs,
    shape: Shape,
    device: &DeviceRef,
) -> Result<Vec<Tensor>> {
    if outputs.len() != kernel.outputs().len() {
        let (name, len, wanted) = (device.info().name, outputs.len(), kernel.outputs().len());
        return Err(Error::internal(format!(
            "the device {name} returned {len} outputs of a kernel of {wanted}"
        )));
    }
    let tensor =
        |(i, storage)| Tensor::from_result(storage, shape, kernel.output_dtype(i), device.clone());
    outputs.into_iter().enumerate().map(tensor).collect()
}

/// Whether all have one shape and one device.
#[inline]
fn alike(inputs: &[&Tensor]) -> bool {
    let first = inputs[0];
    inputs[1..].iter().all(|t| t.shape() == first.shape() && same(&t.device, &first.device))
}

/// [`run`] for a kernel of one output.
pub(crate) fn run_one(
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
) -> Result<Tensor> {
    let first = inputs[0];
    if alike(inputs) {
        // As `run`, without moving its results: a small operation takes hardly longer than that.
        let shape = first.shape();
        let mut op = Op::Elementwise { kernel, inputs, params, shape };
        let storage = op.run(&first.device)?.into_first().ok_or_else(no_output)?;
        return first.result(storage, *shape, kernel.output_dtype(0));
    }
    let (outputs, shape, device) = run(kernel, inputs, params)?;
    let storage = outputs.into_first().ok_or_else(no_output)?;
    Tensor::from_result(storage, shape, kernel.output_dtype(0), device)
}

/// The error of a device that returned no storage.
#[cold]
fn no_output() -> Error {
    Error::internal("the device returned no output")
}

impl Kernel {
    /// Runs the kernel on tensors that broadcast to one shape, with the values of its run-time
    /// parameters.
    ///
    /// # Errors
    /// If the number or types of tensors or parameters are not the kernel's, or the shapes do not
    /// broadcast.
    #[track_caller]
    pub fn run(self: &Arc<Kernel>, inputs: &[&Tensor], params: &[Scalar]) -> Result<Vec<Tensor>> {
        let _op = enter("Kernel::run").on_all("inputs", inputs);
        elementwise::at_least_one(inputs.len())?;
        if inputs.len() != self.inputs().len() || params.len() != self.params().len() {
            return Err(counts(self, inputs.len(), params.len()));
        }
        if let Some(i) = (0..inputs.len()).find(|&i| inputs[i].dtype != self.inputs()[i]) {
            return Err(wrong_input(i, inputs[i], self.inputs()[i], inputs[i].shape()));
        }
        let (outputs, shape, device) = run(self, inputs, params)?;
        results(self, outputs, shape, &device)
    }
}
