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
//! | `quant` | [`QuantTensor`]: a quantised weight |
//!
//! Each method checks shapes and types, infers the result, and runs an op on the device. This file
//! holds the struct and how devices make tensors; `properties` reads its fields, `one_device`
//! brings operands to one device, `elementwise/kernel` runs a kernel.

// A blank line after each: rustdoc lists the methods of `Tensor` in this order.
mod properties;

mod create;

mod io;

pub(crate) mod view;

mod elementwise;

pub(crate) mod reduce;

mod order;

pub(crate) mod index;

pub(crate) mod linalg;

mod conv;

mod nn;

pub(crate) mod quant;

mod one_device;

pub use conv::{Averaging, Interpolation, Outside, Sampling};
pub use create::{Nested, permutation};
pub use elementwise::{Operand, map, map_n, map_rows, map_sum};
pub use index::{BagMode, Ellipsis, IntoIndex, NewAxis, ScatterReduce, Subscript};
pub use linalg::{MatrixNorm, Pca};
pub use order::{QuantileMethod, Side};
pub use quant::QuantTensor;
pub use view::{PadMode, SliceRange};

use crate::calls;
use crate::context::enter;
use crate::device::DeviceRef;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::messages::{not_float, not_integers};
use crate::shape::Shape;
use crate::storage::StorageRef;
use properties::references;

/// An immutable n-dimensional array: storage seen through a [`Layout`], of one [`DType`], on one
/// device.
///
/// `clone` copies the handle, not the elements. Methods borrow, return new tensors and never change
/// the elements of another handle.
///
/// By subject, the methods that most programs use:
/// - create: [`new`](Self::new) [`from_vec`](Self::from_vec) [`from_slice`](Self::from_slice)
///   [`zeros`](Self::zeros) [`ones`](Self::ones) [`full`](Self::full)
///   [`zeros_like`](Self::zeros_like) [`arange`](Self::arange) [`linspace`](Self::linspace)
///   [`eye`](Self::eye) [`one_hot`](Self::one_hot) [`meshgrid`](Self::meshgrid)
/// - random numbers: [`rand`](Self::rand) [`randn`](Self::randn) [`randn_like`](Self::randn_like)
///   [`uniform`](Self::uniform) [`normal`](Self::normal) [`randint`](Self::randint)
///   [`bernoulli`](Self::bernoulli) [`randperm`](Self::randperm)
/// - read, write: [`to_vec`](Self::to_vec) [`item`](Self::item) [`to_scalars`](Self::to_scalars)
///   [`to_bytes`](Self::to_bytes) [`save_npy`](Self::save_npy) [`load_npy`](Self::load_npy)
///   [`to`](Self::to)
/// - shape, without a copy: [`reshape`](Self::reshape) [`view`](Self::view)
///   [`flatten`](Self::flatten) [`squeeze`](Self::squeeze) [`unsqueeze`](Self::unsqueeze)
///   [`permute`](Self::permute) [`transpose`](Self::transpose) [`t`](Self::t)
///   [`movedim`](Self::movedim) [`expand`](Self::expand) [`slice`](Self::slice) [`at`](Self::at)
///   [`split`](Self::split) [`chunk`](Self::chunk) [`diagonal`](Self::diagonal)
///   [`unfold`](Self::unfold) [`as_strided`](Self::as_strided)
/// - joined, repeated: [`cat`](Self::cat) [`stack`](Self::stack) [`repeat`](Self::repeat)
///   [`repeat_interleave`](Self::repeat_interleave) [`tile`](Self::tile) [`pad`](Self::pad)
///   [`roll`](Self::roll) [`flip`](Self::flip) [`rot90`](Self::rot90)
/// - elementwise: [`cast`](Self::cast) [`clamp`](Self::clamp) [`where_cond`](Self::where_cond)
///   [`lerp`](Self::lerp) [`masked_fill`](Self::masked_fill) [`nan_to_num`](Self::nan_to_num)
///   [`add`](Self::add) [`sub`](Self::sub) [`mul`](Self::mul) [`div`](Self::div)
///   [`pow`](Self::pow) [`maximum`](Self::maximum) [`exp`](Self::exp) [`log`](Self::log)
///   [`sqrt`](Self::sqrt) [`tanh`](Self::tanh) [`sigmoid`](Self::sigmoid) [`relu`](Self::relu)
///   [`gelu`](Self::gelu) [`silu`](Self::silu) [`eq`](Self::eq) [`lt`](Self::lt)
/// - own scalar and row programs: [`map`](crate::map()) [`map_n`](crate::map_n)
///   [`map_rows`](crate::map_rows)
/// - reduce: [`sum`](Self::sum) [`mean`](Self::mean) [`max`](Self::max) [`min`](Self::min)
///   [`prod`](Self::prod) [`var`](Self::var) [`std`](Self::std) [`argmax`](Self::argmax)
///   [`all`](Self::all) [`any`](Self::any) [`logsumexp`](Self::logsumexp)
///   [`cumsum`](Self::cumsum) [`cumprod`](Self::cumprod) [`diff`](Self::diff)
/// - order: [`sort`](Self::sort) [`argsort`](Self::argsort) [`topk`](Self::topk)
///   [`median`](Self::median) [`quantile`](Self::quantile) [`unique`](Self::unique)
///   [`bincount`](Self::bincount) [`histogram`](Self::histogram)
///   [`searchsorted`](Self::searchsorted)
/// - index: [`index_select`](Self::index_select) [`gather`](Self::gather)
///   [`take_along`](Self::take_along) [`index`](Self::index)
///   [`masked_select`](Self::masked_select) [`nonzero`](Self::nonzero)
///   [`scatter_add`](Self::scatter_add) [`index_add`](Self::index_add)
///   [`slice_assign`](Self::slice_assign) [`assign`](Self::assign)
/// - matrices: [`matmul`](Self::matmul) [`dot`](Self::dot) [`outer`](Self::outer)
///   [`einsum`](Self::einsum) [`tensordot`](Self::tensordot) [`tril`](Self::tril)
///   [`triu`](Self::triu) [`trace`](Self::trace) [`vector_norm`](Self::vector_norm)
///   [`kron`](Self::kron) [`cdist`](Self::cdist)
/// - linear algebra: [`solve`](Self::solve) [`inv`](Self::inv) [`det`](Self::det)
///   [`lstsq`](Self::lstsq) [`qr`](Self::qr) [`svd`](Self::svd) [`eigh`](Self::eigh)
///   [`cholesky`](Self::cholesky) [`pinv`](Self::pinv) [`matrix_exp`](Self::matrix_exp)
///   [`matrix_rank`](Self::matrix_rank)
/// - networks: [`softmax`](Self::softmax) [`log_softmax`](Self::log_softmax)
///   [`cross_entropy`](Self::cross_entropy) [`layer_norm`](Self::layer_norm)
///   [`rms_norm`](Self::rms_norm) [`attention`](Self::attention) [`conv`](Self::conv)
///   [`conv_transpose`](Self::conv_transpose) [`max_pool`](Self::max_pool)
///   [`avg_pool`](Self::avg_pool) [`interpolate`](Self::interpolate)
///   [`grid_sample`](Self::grid_sample)
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
#[must_use = "tensors are immutable, so the result is a new one: `let w = w.requires_grad()?`"]
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
            return Err(layout_error("from_parts", None, &storage, &layout, dtype));
        }
        Ok(Tensor { storage, layout, dtype, device })
    }

    /// Appends [`Tensor::from_parts`] to `list`. It is made in place: in lists of operands that are
    /// made again and again, moving it takes longer than the rest.
    ///
    /// # Errors
    /// As [`Tensor::from_parts`].
    #[inline(always)]
    pub(crate) fn push_parts(
        list: &mut Vec<Tensor>,
        storage: StorageRef,
        layout: &Layout,
        dtype: DType,
        device: &DeviceRef,
    ) -> Result<()> {
        if storage.dtype() != dtype || !layout.fits(storage.len()) {
            return Err(layout_error("from_parts", None, &storage, layout, dtype));
        }
        list.push(Tensor { storage, layout: *layout, dtype, device: device.clone() });
        Ok(())
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

    /// The parts, e.g. to change the storage in place if this was its last handle.
    pub fn into_parts(self) -> (StorageRef, Layout, DType, DeviceRef) {
        (self.storage, self.layout, self.dtype, self.device)
    }

    /// The same storage seen through another layout.
    ///
    /// # Errors
    /// If the layout reaches outside the storage.
    #[inline]
    #[track_caller]
    pub fn with_layout(&self, layout: Layout) -> Result<Tensor> {
        if !layout.fits(self.storage.len()) {
            return Err(layout_error(
                "with_layout",
                Some(self),
                &self.storage,
                &layout,
                self.dtype,
            ));
        }
        Ok(self.through(layout))
    }

    /// The same storage seen through a layout that a method of [`Layout`] made from this tensor's
    /// own, and that is inside the storage for this reason.
    #[inline]
    fn through(&self, layout: Layout) -> Tensor {
        if calls::is_recording() {
            calls::made(layout.shape(), 0);
        }
        Tensor {
            storage: self.storage.clone(),
            layout,
            dtype: self.dtype,
            device: self.device.clone(),
        }
    }

    /// A result of this tensor's device: see [`Tensor::from_result`].
    #[inline]
    fn result(&self, storage: StorageRef, shape: Shape, dtype: DType) -> Result<Tensor> {
        Tensor::from_result(storage, shape, dtype, self.device.clone())
    }

    /// An error unless the type is a float.
    fn require_float(&self) -> Result<()> {
        if self.dtype.is_float() {
            return Ok(());
        }
        Err(not_float(self.dtype))
    }

    /// An error unless this tensor, the operand called `name`, holds integers.
    fn require_int(&self, name: &str) -> Result<()> {
        if self.dtype.is_int() { Ok(()) } else { Err(not_integers(name, self.dtype)) }
    }
}

#[cold]
#[track_caller]
fn layout_error(
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
