//! The outputs of an op: shapes and dtypes before it runs, storages after.

use super::Op;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::validate;

/// Shape and dtype of an output.
pub type TensorSpec = (Shape, DType);

/// The shapes and dtypes of an op's outputs, in order. A single one is stored inline.
#[derive(Default)]
pub struct TensorSpecs {
    // Nearly every op has one output.
    first: Option<TensorSpec>,
    others: Option<Vec<TensorSpec>>,
}

impl TensorSpecs {
    /// The number of outputs.
    #[inline]
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, Vec::len)
    }

    /// True if there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The first output.
    #[inline]
    pub fn first(&self) -> Option<&TensorSpec> {
        self.first.as_ref()
    }

    /// The outputs in order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = &TensorSpec> {
        self.first.iter().chain(self.others.iter().flatten())
    }
}

impl std::ops::Index<usize> for TensorSpecs {
    type Output = TensorSpec;
    /// Output `i`.
    ///
    /// # Panics
    /// If the op has no output of that number.
    fn index(&self, i: usize) -> &TensorSpec {
        let spec = match i {
            0 => self.first.as_ref(),
            _ => self.others.as_ref().and_then(|others| others.get(i - 1)),
        };
        spec.unwrap_or_else(|| panic!("output {i} of an op with {}", self.len()))
    }
}

impl From<TensorSpec> for TensorSpecs {
    #[inline]
    fn from(one: TensorSpec) -> TensorSpecs {
        TensorSpecs { first: Some(one), others: None }
    }
}

impl From<[TensorSpec; 2]> for TensorSpecs {
    fn from([first, second]: [TensorSpec; 2]) -> TensorSpecs {
        TensorSpecs { first: Some(first), others: Some(vec![second]) }
    }
}

impl FromIterator<TensorSpec> for TensorSpecs {
    fn from_iter<I: IntoIterator<Item = TensorSpec>>(specs: I) -> TensorSpecs {
        let mut specs = specs.into_iter();
        TensorSpecs { first: specs.next(), others: some(specs) }
    }
}

impl Op<'_> {
    /// Checks the op and returns shape and dtype of each output. [`Op::CopyInto`]'s and
    /// [`Op::ElementwiseInPlace`]'s is the storage that they are given; the former counts as a
    /// vector, as the op does not know the shape of the whole.
    ///
    /// # Errors
    /// If counts, dtypes, shapes, axes or windows do not fit each other, a size overflows, or the
    /// destination of [`Op::CopyInto`] has been taken.
    pub fn outputs(&self) -> Result<TensorSpecs> {
        Ok(match *self {
            Op::Elementwise { kernel, inputs, params, shape } => {
                validate::elementwise(kernel, inputs, params, shape)?;
                match kernel.outputs().len() {
                    1 => (*shape, kernel.output_dtype(0)).into(),
                    n => (0..n).map(|i| (*shape, kernel.output_dtype(i))).collect(),
                }
            }
            Op::ElementwiseInPlace { kernel, ref storage, input_index, other, params, shape } => {
                let own = (storage.len(), storage.dtype());
                validate::elementwise_in_place(kernel, own, input_index, other, params, shape)?;
                TensorSpecs::default()
            }
            Op::ReduceKernel { kernel, inputs, params, shape, op, axes } => {
                validate::reduce_kernel(kernel, inputs, params, shape, op, axes)?.into()
            }
            Op::Reduce { op, x, axes } => validate::reduce(op, x, axes)?.into(),
            Op::Scan { op, x, axis } => validate::scan(op, x, axis)?.into(),
            Op::Random { distribution, shape, dtype, .. } => {
                validate::random(distribution, shape, dtype)?.into()
            }
            Op::Matmul { lhs, rhs } => validate::matmul(lhs, rhs)?.into(),
            Op::Gather { x, axis, index } => validate::gather(x, axis, index)?.into(),
            Op::Scatter { mode, x, axis, index, src } => {
                validate::scatter(mode, x, axis, index, src)?.into()
            }
            Op::CopyInto { ref dst, view, src } => {
                let dst = dst.as_ref().ok_or_else(taken)?;
                validate::copy_into(dst, view, src)?;
                (Shape::new(&[dst.len()])?, dst.dtype()).into()
            }
            Op::Sort { x, axis, .. } => validate::sort(x, axis)?.into(),
            Op::Contiguous { x } => (*x.shape(), x.dtype()).into(),
            Op::Cat { tensors, axis } => validate::cat(tensors, axis)?.into(),
            Op::Softmax { x, axis } | Op::LogSoftmax { x, axis } => {
                validate::softmax(x, axis)?.into()
            }
            Op::SoftmaxGrad { y, g, axis } | Op::LogSoftmaxGrad { y, g, axis } => {
                validate::softmax_grad(y, g, axis)?.into()
            }
            Op::CrossEntropy { x, targets, .. } => validate::cross_entropy(x, targets)?.into(),
            Op::CrossEntropyGrad { x, targets, g, .. } => {
                validate::cross_entropy_grad(x, targets, g)?.into()
            }
            Op::Norm { x, weight, bias, .. } => validate::norm(x, weight, bias)?.into(),
            Op::NormGrad { x, weight, g, .. } => validate::norm_grad(x, weight, g)?.into(),
            Op::Conv { x, weight, window } => validate::conv(x, weight, window)?.into(),
            Op::ConvInputGrad { g, weight, window, x_shape } => {
                validate::conv_input_grad(g, weight, window, x_shape)?.into()
            }
            Op::ConvWeightGrad { g, x, window, weight_shape } => {
                validate::conv_weight_grad(g, x, window, weight_shape)?.into()
            }
            Op::MaxPool { x, kernel_size, window } => {
                validate::max_pool(x, kernel_size, window)?.into()
            }
            Op::MaxPoolGrad { g, positions, x_shape, spatial } => {
                validate::max_pool_grad(g, positions, x_shape, spatial)?.into()
            }
            Op::AvgPool { x, kernel_size, window } => {
                validate::avg_pool(x, kernel_size, window)?.into()
            }
            Op::Attention { ref inputs } => validate::attention(inputs)?.into(),
            Op::AttentionGrad { ref inputs, y, lse, g, needs } => {
                let all = validate::attention_grad(inputs, y, lse, g)?;
                if needs == [false; 3] {
                    return Err(Error::value("attention_grad computes at least one gradient"));
                }
                let needed = all.into_iter().zip(needs).filter(|(_, need)| *need);
                needed.map(|(spec, _)| spec).collect()
            }
            Op::Linalg { op, inputs } => validate::linalg(op, inputs)?.into_iter().collect(),
        })
    }
}

/// The rest of an iterator; `None` if there is none, without an allocation.
fn some<T>(rest: impl Iterator<Item = T>) -> Option<Vec<T>> {
    let rest: Vec<T> = rest.collect();
    (!rest.is_empty()).then_some(rest)
}

/// The error of an op whose destination is gone.
#[cold]
pub(crate) fn taken() -> Error {
    Error::internal("the destination of copy_into has been taken: an op runs once")
}

/// The storages of an op's outputs, in order. A single one is stored inline.
#[derive(Default)]
pub struct Outputs {
    // Nearly every op has one output.
    first: Option<StorageRef>,
    others: Option<Vec<StorageRef>>,
}

impl Outputs {
    /// No outputs yet.
    pub fn new() -> Outputs {
        Outputs::default()
    }

    /// A single output.
    #[inline]
    pub fn one(storage: StorageRef) -> Outputs {
        Outputs { first: Some(storage), others: None }
    }

    /// Adds an output.
    pub fn push(&mut self, storage: StorageRef) {
        match self.first {
            None => self.first = Some(storage),
            Some(_) => self.others.get_or_insert_default().push(storage),
        }
    }

    /// The number of outputs.
    pub fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.as_ref().map_or(0, Vec::len)
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// The storages in order.
    pub fn iter(&self) -> impl Iterator<Item = &StorageRef> {
        self.first.iter().chain(self.others.iter().flatten())
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

impl From<(StorageRef, StorageRef)> for Outputs {
    fn from((first, second): (StorageRef, StorageRef)) -> Outputs {
        Outputs { first: Some(first), others: Some(vec![second]) }
    }
}

impl FromIterator<StorageRef> for Outputs {
    fn from_iter<I: IntoIterator<Item = StorageRef>>(storages: I) -> Outputs {
        let mut storages = storages.into_iter();
        Outputs { first: storages.next(), others: some(storages) }
    }
}

impl IntoIterator for Outputs {
    type Item = StorageRef;
    type IntoIter =
        std::iter::Chain<std::option::IntoIter<StorageRef>, std::vec::IntoIter<StorageRef>>;
    fn into_iter(self) -> Self::IntoIter {
        self.first.into_iter().chain(self.others.unwrap_or_default())
    }
}
