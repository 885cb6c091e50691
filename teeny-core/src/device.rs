//! The one door: everything that computes implements [`Device`].
//!
//! `Tensor` methods check shapes and types, infer the result and broadcast; then they ask the
//! device. An engine calls [`crate::validate`] at its door, as anybody may call a method directly,
//! and computes. It receives views with any strides (0 and negative included) and gives back new
//! storage, row-major in the shape that core expects.
//!
//! A third-party backend writes the required methods (about a dozen); the provided ones are made of
//! them and may be overridden by faster ones. A *wrapper* (autograd, tracing, checking) is a device
//! that holds a device; see [`Device::inner`] and [`Device::wrap`].

use crate::attention::AttentionInputs;
use crate::context::enter;
use crate::definition;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::linalg::{self, LinalgOp};
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A shared device, as tensors hold it.
pub type DeviceRef = Arc<dyn Device>;

/// What a device is, for messages and choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceInfo {
    /// The registry name: `cpu`, `wgpu`, `reference`, `autograd(cpu)`.
    pub name: String,
    /// What does the work: the processor or the adapter, with its instruction set or driver.
    pub description: String,
}

/// Counters of a device; all zero on a device that does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Storages handed out since the device was made.
    pub allocations: u64,
    /// Of these, how many had to ask the operating system or driver for memory.
    pub os_allocations: u64,
    /// Bytes in storages that are alive.
    pub live_bytes: u64,
    /// The largest `live_bytes` so far.
    pub peak_bytes: u64,
    /// Bytes kept for reuse.
    pub cached_bytes: u64,
}

/// How the elements along the reduced axes become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReduceOp {
    /// The sum, accumulated more widely or in blocks; 0 of nothing. Types: all but bool.
    Sum,
    /// The product; 1 of nothing. Types: all but bool.
    Prod,
    /// The largest; NaN if any is. Not of nothing.
    Max,
    /// The smallest; NaN if any is. Not of nothing.
    Min,
    /// The position (`I32`) of the first largest along the one axis; the first NaN wins. Not of
    /// nothing.
    ArgMax,
    /// The position (`I32`) of the first smallest along the one axis; the first NaN wins. Not of
    /// nothing.
    ArgMin,
    /// True if any bool is; false of nothing. Bool only.
    Any,
    /// True if all bools are; true of nothing. Bool only.
    All,
}

impl ReduceOp {
    /// Every reduction.
    pub const ALL: [ReduceOp; 8] = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Max,
        ReduceOp::Min,
        ReduceOp::ArgMax,
        ReduceOp::ArgMin,
        ReduceOp::Any,
        ReduceOp::All,
    ];

    /// The type of the result for elements of type `dtype`.
    pub const fn output(self, dtype: DType) -> DType {
        match self {
            ReduceOp::Sum | ReduceOp::Prod | ReduceOp::Max | ReduceOp::Min => dtype,
            ReduceOp::ArgMax | ReduceOp::ArgMin => DType::I32,
            ReduceOp::Any | ReduceOp::All => DType::Bool,
        }
    }

    /// True for the positions, which reduce exactly one axis.
    pub const fn is_arg(self) -> bool {
        matches!(self, ReduceOp::ArgMax | ReduceOp::ArgMin)
    }
}

/// What a scan accumulates along its axis. Types: all but bool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScanOp {
    /// Running sum, the present element included.
    Sum,
    /// Running product, the present element included.
    Prod,
}

/// What `scatter` does where an element arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ScatterMode {
    /// Replaces; where several arrive at one place, the last in row-major order wins.
    Set,
    /// Adds, in row-major order of the source: deterministic.
    Add,
    /// Keeps the larger; NaN wins.
    Max,
    /// Keeps the smaller; NaN wins.
    Min,
}

/// What a normalisation divides by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Norm {
    /// `(x - mean) / sqrt(variance + eps)`: layer normalisation.
    Layer,
    /// `x / sqrt(mean(x^2) + eps)`: root mean square normalisation.
    Rms,
}

/// Geometry of a convolution or a pooling over the last `ndim` axes: one entry per spatial axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// Elements between neighbouring windows.
    pub stride: Vec<usize>,
    /// Zeros (for max-pooling: ignored places) added before and after each axis.
    pub padding: Vec<usize>,
    /// Elements between neighbours inside a window.
    pub dilation: Vec<usize>,
    /// Channel groups of a convolution; 1 for pooling.
    pub groups: usize,
}

/// The storages of a kernel's outputs, in order; at most
/// [`MAX_OUTPUTS`](crate::kernel::MAX_OUTPUTS); a single one is stored inline.
#[derive(Default)]
pub struct Outputs {
    /// Nearly always there is one.
    first: Option<StorageRef>,
    others: Vec<StorageRef>,
}

impl Outputs {
    /// No outputs yet.
    pub fn new() -> Outputs {
        Outputs::default()
    }

    /// A single output.
    #[inline]
    pub fn one(storage: StorageRef) -> Outputs {
        Outputs { first: Some(storage), others: Vec::new() }
    }

    /// The next output.
    pub fn push(&mut self, storage: StorageRef) {
        match self.first {
            None => self.first = Some(storage),
            Some(_) => self.others.push(storage),
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The first output alone.
    #[inline]
    pub fn into_first(self) -> Option<StorageRef> {
        self.first
    }
}

impl From<StorageRef> for Outputs {
    fn from(storage: StorageRef) -> Outputs {
        Outputs::one(storage)
    }
}

impl IntoIterator for Outputs {
    type Item = StorageRef;
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<StorageRef>, std::vec::IntoIter<StorageRef>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others)
    }
}

/// A backend, or a wrapper around one. Object-safe; shared as [`DeviceRef`].
///
/// Contract of every method: inputs are on this device, have the shapes and types described, and
/// are views with arbitrary strides; the storage given back is new (never an input's) and holds the
/// result row-major without gaps. Axes are counted from the front. Errors carry no operation name:
/// core adds it.
pub trait Device: Any + Send + Sync + fmt::Debug {
    /// What this device is.
    fn info(&self) -> DeviceInfo;

    /// The device as itself, for its own crate to recognise.
    fn as_any(&self) -> &dyn Any;

    /// New storage with the elements whose little-endian bytes are `bytes` (a bool is one byte, 0
    /// or 1).
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef>;

    /// The elements of the view in row-major order, as little-endian bytes.
    fn download(&self, x: &Tensor) -> Result<Vec<u8>>;

    /// Runs `kernel` at every index of `shape`. All inputs have this shape (stride 0 where
    /// broadcast); one storage per output.
    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs>;

    /// Reduces `axes` (ascending, at least one) of `x`; the result's type is [`ReduceOp::output`],
    /// its shape `x` without them. 16-bit floats accumulate in f32.
    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef>;

    /// Running `op` along `axis`; shape and type of `x`.
    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef>;

    /// `(.., m, k) @ (.., k, n) -> (.., m, n)`: equal numbers of axes (at least 2), equal leading
    /// sizes, equal types, not bool. k may be 0: zeros. 16-bit floats accumulate in f32; integers
    /// wrap.
    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef>;

    /// `out[i][j][k] = x[i][index[i][j][k]][k]` for axis 1 of 3, and so on: the shape of `index`
    /// (any integer type), the type of `x`. `index` is as long as `x` on every other axis, or
    /// shorter.
    ///
    /// An index outside `0..size` is an [`crate::ErrorKind::Index`] error that names the first
    /// offender; a device that cannot check cheaply says so in its docs.
    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef>;

    /// A copy of `x` with `src` put in by `mode`: `out[i][index[i][j][k]][k] ← src[i][j][k]` for
    /// axis 1 of 3. `index` and `src` have one shape, `x` and `src` one type. Indices are checked
    /// as in [`Device::gather`].
    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef>;

    /// Overwrites the elements of `dst` that `view` (injective) selects by those of `src` (same
    /// shape and type), in place if nobody else holds `dst`, in a copy otherwise; the storage with
    /// the new elements is given back.
    fn copy_into(&self, dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef>;

    /// Sorts along `axis`, stably; NaN counts as the largest. The values (type of `x`) and their
    /// former positions (`I32`).
    fn sort(&self, x: &Tensor, axis: usize, descending: bool) -> Result<(StorageRef, StorageRef)>;

    /// `shape.numel()` draws of type `dtype` from the counter-based generator of [`crate::random`]:
    /// the same on every device.
    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef>;

    /// Returns when all work asked for so far is done; reports what went wrong in it.
    fn synchronize(&self) -> Result<()>;

    // ---- provided: made of the above, overridden for speed or by wrappers
    // -----------------------------------------------------------------------

    /// The memory counters.
    fn stats(&self) -> Stats {
        Stats::default()
    }

    /// Gives cached memory back to the system.
    fn clear_cache(&self) {}

    /// The device this one wraps, if it is a wrapper.
    fn inner(&self) -> Option<&DeviceRef> {
        None
    }

    /// Storage of this wrapper that stands for `x`, a tensor of the device it wraps, addressed by
    /// the same layout.
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        Err(Error::internal(format!(
            "{} wraps no device, so it cannot take a tensor of {}",
            self.info().name,
            x.device().info().name
        )))
    }

    /// The tensor of the wrapped device that `x` stands for.
    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        Err(Error::internal(format!(
            "{} wraps no device, so it cannot unwrap {}",
            self.info().name,
            x.shape()
        )))
    }

    /// Runs a kernel of one output at every index of `shape` and reduces `axes` of the result,
    /// without storing what lies between.
    fn reduce_kernel(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
        op: ReduceOp,
        axes: &[usize],
    ) -> Result<StorageRef> {
        definition::reduce_kernel(self, kernel, inputs, params, shape, op, axes)
    }

    /// [`Device::elementwise`] for one or two inputs and one output of their type, written over the
    /// elements of the input of that number: `storage`, row-major of `shape` without gaps, which
    /// the caller gives up. `other` is the other input, of this shape. False, and nothing has
    /// happened, if the device does not do that here: somebody else holds `storage`, or new memory
    /// is no slower.
    fn elementwise_over(
        &self,
        _kernel: &Arc<Kernel>,
        _storage: &mut StorageRef,
        _number: usize,
        _other: Option<&Tensor>,
        _params: &[Scalar],
        _shape: &Shape,
    ) -> Result<bool> {
        Ok(false)
    }

    /// A row-major copy of `x`.
    fn contiguous(&self, x: &Tensor) -> Result<StorageRef> {
        definition::contiguous(self, x)
    }

    /// The tensors (one type) one after another along `axis`, together of shape `shape`.
    fn cat(&self, tensors: &[&Tensor], axis: usize, shape: &Shape) -> Result<StorageRef> {
        definition::cat(tensors, axis, shape)
    }

    /// `exp(x - max) / sum` along `axis`; floats.
    fn softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        definition::softmax(x, axis)
    }

    /// `x - max - log(sum(exp(x - max)))` along `axis`; floats.
    fn log_softmax(&self, x: &Tensor, axis: usize) -> Result<StorageRef> {
        definition::log_softmax(x, axis)
    }

    /// The gradient for softmax's input, from its output `y` and the output's gradient:
    /// `y (g - sum(g y))`.
    fn softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        definition::softmax_grad(y, g, axis)
    }

    /// The gradient for log_softmax's input, from its output `y` and the output's gradient:
    /// `g - exp(y) sum(g)`.
    fn log_softmax_grad(&self, y: &Tensor, g: &Tensor, axis: usize) -> Result<StorageRef> {
        definition::log_softmax_grad(y, g, axis)
    }

    /// `log(sum(exp(x_i))) - x_i[target_i]` of every row of `x` (n, classes), floats, with
    /// `targets` (n) of integers: losses (n). A target must be a class or `ignored`, which costs 0.
    fn cross_entropy(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
    ) -> Result<StorageRef> {
        definition::cross_entropy(x, targets, ignored)
    }

    /// The gradient of [`Device::cross_entropy`] for `x`, from that of the losses, `g` (n):
    /// `(softmax(x_i) - one_hot(target_i)) g_i`.
    fn cross_entropy_grad(
        &self,
        x: &Tensor,
        targets: &Tensor,
        ignored: Option<i64>,
        g: &Tensor,
    ) -> Result<StorageRef> {
        definition::cross_entropy_grad(x, targets, ignored, g)
    }

    /// Normalises `x` along its last axis, then multiplies by `weight` and adds `bias` (both of
    /// that axis' length; a bias only beside a weight). One float type. The variance is that of all
    /// elements, without correction.
    fn norm(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        bias: Option<&Tensor>,
        eps: f64,
    ) -> Result<StorageRef> {
        definition::norm(norm, x, weight, bias, eps)
    }

    /// The gradient of [`Device::norm`] for `x`.
    fn norm_grad(
        &self,
        norm: Norm,
        x: &Tensor,
        weight: Option<&Tensor>,
        g: &Tensor,
        eps: f64,
    ) -> Result<StorageRef> {
        definition::norm_grad(norm, x, weight, g, eps)
    }

    /// Convolution (cross-correlation): x (N, C_in, ..), weight (C_out, C_in / groups, ..) → (N,
    /// C_out, ..); both of one float type.
    fn conv(&self, x: &Tensor, weight: &Tensor, window: &Window) -> Result<StorageRef> {
        definition::conv(x, weight, window)
    }

    /// The gradient of [`Device::conv`] for `x`, of shape `x_shape`; also the transposed
    /// convolution of `g`.
    fn conv_input_grad(
        &self,
        g: &Tensor,
        weight: &Tensor,
        window: &Window,
        x_shape: &Shape,
    ) -> Result<StorageRef> {
        definition::conv_input_grad(g, weight, window, x_shape)
    }

    /// The gradient of [`Device::conv`] for `weight`, of shape `weight_shape`.
    fn conv_weight_grad(
        &self,
        g: &Tensor,
        x: &Tensor,
        window: &Window,
        weight_shape: &Shape,
    ) -> Result<StorageRef> {
        definition::conv_weight_grad(g, x, window, weight_shape)
    }

    /// The largest element of every window of `size` over the last `size.len()` axes of `x` (..,
    /// spatial): values, and positions (`I32`) in the flattened spatial axes of `x`. The first
    /// largest and the first NaN win; padding never does: a window that sees only padding has the
    /// lowest value of the type ([`definition::lowest`]) and position -1.
    fn max_pool(
        &self,
        x: &Tensor,
        size: &[usize],
        window: &Window,
    ) -> Result<(StorageRef, StorageRef)> {
        definition::max_pool(x, size, window)
    }

    /// The gradient of [`Device::max_pool`] for `x`: `g` added at `positions`, nowhere for -1.
    fn max_pool_grad(
        &self,
        g: &Tensor,
        positions: &Tensor,
        x_shape: &Shape,
        spatial: usize,
    ) -> Result<StorageRef> {
        definition::max_pool_grad(g, positions, x_shape, spatial)
    }

    /// The mean of every window of `size`, padding counted as zeros, over the last `size.len()`
    /// axes.
    fn avg_pool(&self, x: &Tensor, size: &[usize], window: &Window) -> Result<StorageRef> {
        definition::avg_pool(x, size, window)
    }

    /// Scaled dot-product attention: y (.., T, hv) of the operands' type, and the logsumexp of each
    /// query's scores (.., T) in the type they are computed in (f32, or f64 for f64), -inf for a
    /// query that sees no key; its y is 0. See [`crate::attention`].
    fn attention(&self, inputs: &AttentionInputs<'_>) -> Result<(StorageRef, StorageRef)> {
        inputs.composed_storages()
    }

    /// The gradients of [`Device::attention`]'s y for q, k and v, from that of y, `g`, and from
    /// what the forward pass gave: `None` where `needs` asks for none.
    fn attention_grad(
        &self,
        inputs: &AttentionInputs<'_>,
        y: &Tensor,
        lse: &Tensor,
        g: &Tensor,
        needs: [bool; 3],
    ) -> Result<[Option<StorageRef>; 3]> {
        inputs.composed_grad_storages(y, lse, g, needs)
    }

    /// Solves or factors matrices: `inputs` (.., m, n) of one type, f32 or f64, with equal leading
    /// axes; results as [`LinalgOp::results`] says. A matrix that has no such result is an error
    /// that names the element of the batch.
    fn linalg(&self, op: LinalgOp, inputs: &[&Tensor]) -> Result<Outputs> {
        linalg::on_host(self, op, inputs)
    }
}

/// Anything that names a device: an `Arc` of one, a [`DeviceRef`], or a tensor, which stands for
/// the device it is on.
pub trait ToDevice {
    /// The device.
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

/// True if both handles are the same device, not merely two of a kind.
#[inline]
pub fn same(a: &DeviceRef, b: &DeviceRef) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// The device that carries out an operation on tensors of both: the outer one if it wraps the
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
