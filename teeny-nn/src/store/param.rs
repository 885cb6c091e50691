//! [`Param`]: one parameter, a tensor or a quantised weight.

use super::{Store, StoreInner, reads};
use crate::track;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use teeny_autograd::is_recomputing;
use teeny_core::context::enter;
use teeny_core::{Capture, DType, DeviceRef, Error, QuantTensor, QuantType, Result, Shape, Tensor};

/// The role of a parameter in its layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Any other that is trained.
    Trained,
    /// The weight of a linear layer, read by [`Param::linear`].
    Linear,
    /// The weight of an embedding, read by [`Param::rows`], and by [`Param::linear`] if the head is
    /// tied to it.
    Embedding,
    /// Not trained, such as running statistics.
    Buffer,
}

/// How a layer reads a parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// [`Param::linear`].
    Linear,
    /// [`Param::rows`].
    Rows,
    /// [`Param::value`].
    Value,
}

/// A change of a parameter that is kept beside its value, such as LoRA's product of two small
/// matrices.
pub trait Adapter: Send + Sync {
    /// Replaces `value`, which the parameter and earlier adapters give this reader.
    fn value(&self, _: Reader, value: Value) -> Result<Value> {
        Ok(value)
    }

    /// `y = x @ weightᵀ` with what the adapter adds to it.
    fn linear(&self, _: &Tensor, y: Tensor) -> Result<Tensor> {
        Ok(y)
    }

    /// `y = weight[ids]` with what the adapter adds to it.
    fn rows(&self, _: &Tensor, y: Tensor) -> Result<Tensor> {
        Ok(y)
    }
}

/// A named tensor whose value training replaces. Clones are handles of the same parameter.
#[derive(Clone)]
pub struct Param(pub(super) Arc<ParamInner>);

pub(super) struct ParamInner {
    pub name: String,
    pub value: RwLock<Value>,
    /// Counts the values, for captured functions that read one.
    pub version: AtomicU64,
    /// False for buffers (running statistics) and frozen parameters.
    pub trainable: AtomicBool,
    pub role: Role,
    /// Whether the head of the model is this embedding.
    pub tied: AtomicBool,
    /// In the order in which they were attached.
    pub adapters: RwLock<Vec<Arc<dyn Adapter>>>,
    /// Counts changes of `adapters`, for captured functions.
    pub attachments: AtomicU64,
    /// True once an optimizer was made with it.
    pub claimed: AtomicBool,
    /// The store of the parameter.
    pub store: Weak<StoreInner>,
}

/// A parameter that is being made.
pub(crate) struct FirstValue<'a> {
    pub name: &'a str,
    pub shape: Shape,
    pub dtype: DType,
    /// Whether its value may be quantised.
    pub quantized: bool,
}

/// Returns the value that a new parameter begins with; none if its layer draws it.
pub(crate) type FirstValues =
    dyn Fn(&FirstValue<'_>, &DeviceRef) -> Result<Option<Value>> + Send + Sync;

/// The value of a parameter.
#[derive(Clone, Debug)]
pub enum Value {
    /// A tensor.
    Plain(Tensor),
    /// A quantised matrix.
    Quantized(QuantTensor),
}

impl Value {
    /// The elements, or the blocks.
    fn tensor(&self) -> &Tensor {
        match self {
            Value::Plain(tensor) => tensor,
            Value::Quantized(matrix) => matrix.blocks(),
        }
    }
}

impl Param {
    /// The full name, e.g. `fc1.weight`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The current value, as replaced by an active [`Adapter`]. On an autograd device it
    /// is tracked while the parameter is trainable. For a quantised weight it holds the bytes of
    /// its blocks; see [`Param::quantized`].
    ///
    /// # Panics
    /// If an adapter replaces a part of it, and the device cannot join the parts.
    pub fn value(&self) -> Tensor {
        let value = self.read_as(&self.adapters(), Reader::Value);
        value.unwrap_or_else(|e| panic!("{e}")).tensor().clone()
    }

    /// The value without adapters.
    pub fn stored(&self) -> Tensor {
        self.read().tensor().clone()
    }

    /// The weight, if it is quantised: `dequantize()` makes it a tensor.
    pub fn quantized(&self) -> Option<QuantTensor> {
        match self.read() {
            Value::Quantized(matrix) => Some(matrix),
            Value::Plain(_) => None,
        }
    }

    /// The shape of the value; for a quantised weight the shape of the matrix.
    pub fn shape(&self) -> Shape {
        let value = self.0.value.read().unwrap_or_else(PoisonError::into_inner);
        match &*value {
            Value::Plain(tensor) => *tensor.shape(),
            // two sizes of a matrix that exists
            Value::Quantized(matrix) => Shape::new(&matrix.shape()).unwrap_or(Shape::SCALAR),
        }
    }

    fn read(&self) -> Value {
        let value = self.0.value.read().unwrap_or_else(PoisonError::into_inner).clone();
        let version = |param: &ParamInner| param.version.load(Ordering::Relaxed);
        self.note("value", Some(value.tensor()), version);
        reads::note(self);
        value
    }

    /// A number that identifies the parameter.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// The bytes of its value.
    pub(crate) fn bytes(&self) -> usize {
        let value = self.0.value.read().unwrap_or_else(PoisonError::into_inner);
        value.tensor().numel() * value.tensor().dtype().size()
    }

    /// The value that `reader` gets.
    fn read_as(&self, adapters: &[Arc<dyn Adapter>], reader: Reader) -> Result<Value> {
        adapters.iter().try_fold(self.read(), |value, adapter| adapter.value(reader, value))
    }

    /// `x @ weightᵀ`, of a quantised weight too, with adapters: (.., in) → (.., out).
    ///
    /// # Errors
    /// If the shapes or types do not fit.
    pub fn linear(&self, x: &Tensor) -> Result<Tensor> {
        let adapters = self.adapters();
        let y = match self.read_as(&adapters, Reader::Linear)? {
            Value::Plain(weight) => x.matmul(&weight.t()?)?,
            Value::Quantized(weight) => weight.linear(x)?,
        }; // (.., out)
        adapters.iter().try_fold(y, |y, adapter| adapter.linear(x, y))
    }

    /// The rows `ids`, of a quantised weight too, with adapters: (.., columns) of the store's type.
    ///
    /// # Errors
    /// If an index is out of range.
    pub fn rows(&self, ids: &Tensor) -> Result<Tensor> {
        let adapters = self.adapters();
        let y = match self.read_as(&adapters, Reader::Rows)? {
            Value::Plain(weight) => weight.index_select(0, ids)?,
            Value::Quantized(weight) => {
                let rows = weight.index_select(ids)?;
                self.store().map_or(Ok(rows.clone()), |store| rows.cast(store.0.dtype))?
            }
        }; // (.., columns)
        adapters.iter().try_fold(y, |y, adapter| adapter.rows(ids, y))
    }

    /// Whether the weight is read by [`Param::linear`] and [`Param::rows`] alone: it is quantised
    /// or has adapters.
    pub(crate) fn is_indirect(&self) -> bool {
        self.quantized().is_some() || !self.adapters().is_empty()
    }

    fn adapters(&self) -> Vec<Arc<dyn Adapter>> {
        self.note("adapters", None, |param| param.attachments.load(Ordering::Relaxed));
        self.0.adapters.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds an adapter.
    pub fn attach(&self, adapter: Arc<dyn Adapter>) {
        self.0.adapters.write().unwrap_or_else(PoisonError::into_inner).push(adapter);
        self.0.attachments.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes an adapter.
    pub fn detach(&self, adapter: &Arc<dyn Adapter>) {
        let mut adapters = self.0.adapters.write().unwrap_or_else(PoisonError::into_inner);
        adapters.retain(|other| !Arc::ptr_eq(other, adapter));
        self.0.attachments.fetch_add(1, Ordering::Relaxed);
    }

    /// The role in the layer.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// Whether the head of the model is this embedding.
    pub fn is_tied(&self) -> bool {
        self.0.tied.load(Ordering::Relaxed)
    }

    /// Records that the head of the model is this embedding.
    pub fn tie(&self) {
        self.0.tied.store(true, Ordering::Relaxed);
    }

    /// The value without adapters as floats, untracked: of a quantised weight, of the store's type.
    ///
    /// # Errors
    /// If the device fails.
    pub fn floats(&self) -> Result<Tensor> {
        match (self.read(), self.store()) {
            (Value::Plain(value), _) => track::detached(&value),
            (Value::Quantized(weight), None) => weight.dequantize(),
            (Value::Quantized(weight), Some(store)) => weight.dequantize()?.cast(store.0.dtype),
        }
    }

    /// The number of values that the parameter has had.
    pub fn version(&self) -> u64 {
        self.0.version.load(Ordering::Relaxed)
    }

    /// Quantises the weight. It is frozen then: no gradient is computed for it.
    ///
    /// # Errors
    /// If it is not the weight of a linear layer or an embedding, its rows are not whole blocks of
    /// `kind`, or an element is not finite. Nothing has changed then.
    #[track_caller]
    pub fn quantize(&self, kind: QuantType) -> Result<()> {
        let _op = enter("quantize");
        if !self.is_quantizable() {
            let name = self.name();
            let text = format!("{name:?} is not the weight of a linear layer or an embedding");
            return Err(Error::value(text).help("param.is_quantizable() tells which are"));
        }
        self.set_value(Value::Quantized(self.made_quantized(kind)?));
        Ok(())
    }

    /// The weight quantised.
    pub(super) fn made_quantized(&self, kind: QuantType) -> Result<QuantTensor> {
        let weight = match self.read() {
            Value::Plain(weight) => track::detached(&weight)?,
            Value::Quantized(weight) => weight.dequantize()?,
        };
        let named = |error: Error| error.note(format!("for {:?}", self.name()));
        QuantTensor::quantize(&weight, kind).map_err(named)
    }

    /// Makes a quantised weight one of floats of the store's type; others stay.
    ///
    /// # Errors
    /// If an allocation fails. Nothing has changed then.
    #[track_caller]
    pub fn dequantize(&self) -> Result<()> {
        let _op = enter("dequantize");
        if self.quantized().is_some() {
            self.set_value(Value::Plain(self.floats()?));
        }
        Ok(())
    }

    /// Whether it can be quantised: it is the weight of a linear layer or of an embedding.
    pub fn is_quantizable(&self) -> bool {
        matches!(self.0.role, Role::Linear | Role::Embedding)
    }

    /// Stores a value of another kind, frozen.
    pub(super) fn set_value(&self, value: Value) {
        self.0.trainable.store(false, Ordering::Relaxed);
        *self.0.value.write().unwrap_or_else(PoisonError::into_inner) = value;
        self.0.version.fetch_add(1, Ordering::Relaxed);
        if let Some(store) = self.0.store.upgrade() {
            store.changes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether optimizers change this parameter.
    pub fn is_trainable(&self) -> bool {
        self.note("trainable", None, |param| param.trainable.load(Ordering::Relaxed).into());
        self.0.trainable.load(Ordering::Relaxed)
    }

    /// Tells a captured function that is being recorded that it reads this parameter.
    fn note(&self, what: &'static str, value: Option<&Tensor>, version: fn(&ParamInner) -> u64) {
        if Capture::is_recording() {
            let (id, param) = (self.id(), self.0.clone());
            Capture::depends_on((id, what), value, move || version(&param));
        }
    }

    /// Makes the parameter trainable, or freezes it: no gradient is then computed for it.
    ///
    /// # Errors
    /// If the value cannot be tracked (its dtype is not a float). Nothing has changed then.
    #[track_caller]
    pub fn set_trainable(&self, trainable: bool) -> Result<()> {
        let _op = enter("set_trainable");
        if trainable && self.quantized().is_some() {
            let text =
                format!("{:?} is quantised, and no gradient is computed for it", self.name());
            return Err(Error::value(text).help("param.dequantize()? first, or train an adapter"));
        }
        let value = self.prepared(&self.stored(), trainable)?;
        self.0.trainable.store(trainable, Ordering::Relaxed);
        self.put(value);
        if let Some(store) = self.0.store.upgrade() {
            store.changes.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Replaces the value. `value` is detached, cast to the parameter's dtype and moved to its
    /// device. A buffer keeps its value while a checkpoint computes again what changed it before.
    ///
    /// # Errors
    /// If the shape differs: the error names the parameter and both shapes. The value has not
    /// changed then.
    #[track_caller]
    pub fn set(&self, value: &Tensor) -> Result<()> {
        let _op = enter("set");
        self.replace(self.prepare(value)?);
        Ok(())
    }

    /// [`Param::set`] for several parameters: all of them, or none after an error.
    ///
    /// # Errors
    /// As [`Param::set`].
    #[track_caller]
    pub fn set_all<'a>(pairs: impl IntoIterator<Item = (&'a Param, &'a Tensor)>) -> Result<()> {
        let _op = enter("set");
        let pairs = pairs.into_iter();
        let prepared = pairs
            .map(|(param, value)| Ok((param, param.prepare(value)?)))
            .collect::<Result<Vec<_>>>()?;
        prepared.into_iter().for_each(|(param, value)| param.replace(value));
        Ok(())
    }

    /// The tensor that [`Param::set`] stores: the part of it that can fail.
    pub(crate) fn prepare(&self, value: &Tensor) -> Result<Tensor> {
        self.prepared(value, self.is_trainable())
    }

    fn prepared(&self, value: &Tensor, trainable: bool) -> Result<Tensor> {
        self.require_shape(value)?;
        let old = self.stored();
        if let (Some(own), true) = (self.quantized(), value.dtype() != DType::U8) {
            let (name, own) = (self.name(), own.describe());
            let text = format!("{name:?} is quantised, {own}, the new value {}", value.dtype());
            return Err(
                Error::dtype(text).help("param.dequantize()? first, then param.quantize(kind)?")
            );
        }
        let value = track::detached(value)?.cast(old.dtype())?.to(old.device())?;
        // row-major from the start of a storage, as captured functions pass their inputs
        let value = if value.layout().offset() > 0 { value.copy()? } else { value.contiguous()? };
        if trainable { track::leaf(&value, self.name()) } else { Ok(value) }
    }

    /// Returns an error unless `value` has the shape of the parameter.
    pub(crate) fn require_shape(&self, value: &Tensor) -> Result<()> {
        let old = self.stored();
        if value.shape() != old.shape() {
            let text = format!(
                "parameter {:?} is {}, but the new value is {}",
                self.name(),
                old.shape(),
                value.shape()
            );
            return Err(Error::shape(text).help(format!(
                "a parameter keeps its shape: set it to a tensor of {}",
                old.shape()
            )));
        }
        Ok(())
    }

    /// [`Param::put`], unless a checkpoint computes again what has changed this buffer before.
    fn replace(&self, prepared: Tensor) {
        if !is_recomputing() || self.is_trainable() {
            self.put(prepared);
        }
    }

    /// Stores a result of [`Param::prepare`] or [`Param::stored`]. Cannot fail, so that several
    /// parameters change together or not at all.
    pub(crate) fn put(&self, prepared: Tensor) {
        self.replace_elements(prepared);
        self.0.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Stores a temporary value of the same shape and dtype as it is, unchecked: on any device,
    /// tracked or not. For a time there is [`Store::with_values`], which checks it. A captured
    /// function restores the previous value, so it does not depend on it.
    pub fn lend(&self, value: Tensor) {
        self.replace_elements(value);
        self.0.version.fetch_add(u64::from(!Capture::is_recording()), Ordering::Relaxed);
    }

    /// Other elements, or other blocks of the same types.
    fn replace_elements(&self, tensor: Tensor) {
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        *value = match &*value {
            // as many bytes: `prepared` has compared them
            Value::Quantized(matrix) if tensor.dtype() == DType::U8 => {
                matrix.with_blocks(&tensor).map_or(Value::Plain(tensor), Value::Quantized)
            }
            _ => Value::Plain(tensor),
        };
    }

    /// The store of the parameter, if it still exists.
    pub(crate) fn store(&self) -> Option<Store> {
        self.0.store.upgrade().map(Store)
    }

    /// Records that an optimizer was made with this parameter.
    pub(crate) fn claim(&self) {
        self.0.claimed.store(true, Ordering::Relaxed);
    }

    /// Whether [`Param::claim`] was called.
    pub(crate) fn is_claimed(&self) -> bool {
        self.0.claimed.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.read() {
            Value::Plain(value) => write!(f, "{} {} {}", self.name(), value.shape(), value.dtype()),
            Value::Quantized(value) => write!(f, "{} {}", self.name(), value.describe()),
        }
    }
}
