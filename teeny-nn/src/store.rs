//! Parameters by name, and the training mode.
//!
//! ```text
//! Store ── "fc1.weight" → Param ── RwLock<Tensor>   the value, which an optimizer replaces
//!   │      "fc1.bias"   → Param
//!   └─ at("fc1") = Path                             the argument of layers, a prefix of names
//! ```
//!
//! Tensors are immutable, so training replaces the value of a name. Layers hold [`Param`] handles;
//! the store holds the same handles in creation order. It is independent of layers, optimizers or
//! files.

use crate::init::{FirstValues, Init};
use crate::track;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use teeny_autograd::is_recomputing;
use teeny_core::context::enter;
use teeny_core::{Capture, DType, DeviceRef, Error, ErrorKind, Result, Shape, Tensor, ToDevice};

/// A named tensor whose value training replaces. Clones are handles of the same parameter.
#[derive(Clone)]
pub struct Param(Arc<ParamInner>);

struct ParamInner {
    name: String,
    value: RwLock<Tensor>,
    /// Counts the values, for captured functions that read one.
    version: AtomicU64,
    /// False for buffers (running statistics) and frozen parameters.
    trainable: AtomicBool,
    /// True once an optimizer was made with it.
    claimed: AtomicBool,
    /// The store of the parameter.
    store: Weak<StoreInner>,
}

impl Param {
    /// The full name, e.g. `fc1.weight`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The current value. On an autograd device it is tracked while the parameter is trainable.
    pub fn value(&self) -> Tensor {
        let value = self.0.value.read().unwrap_or_else(PoisonError::into_inner).clone();
        self.note("value", Some(&value), |param| param.version.load(Ordering::Relaxed));
        value
    }

    /// Whether optimizers change this parameter.
    pub fn is_trainable(&self) -> bool {
        self.note("trainable", None, |param| param.trainable.load(Ordering::Relaxed).into());
        self.0.trainable.load(Ordering::Relaxed)
    }

    /// Tells a captured function that is being recorded that it reads this parameter.
    fn note(&self, what: &'static str, value: Option<&Tensor>, version: fn(&ParamInner) -> u64) {
        if Capture::is_recording() {
            let (id, param) = (Arc::as_ptr(&self.0) as usize, self.0.clone());
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
        let value = self.prepared(&self.value(), trainable)?;
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

    /// The tensor that [`Param::set`] stores: the part of it that can fail.
    pub(crate) fn prepare(&self, value: &Tensor) -> Result<Tensor> {
        self.prepared(value, self.is_trainable())
    }

    fn prepared(&self, value: &Tensor, trainable: bool) -> Result<Tensor> {
        self.require_shape(value)?;
        let old = self.value();
        let value = track::detached(value)?.cast(old.dtype())?.to(old.device())?;
        // row-major from the start of a storage, as captured functions pass their inputs
        let value = if value.layout().offset() > 0 { value.copy()? } else { value.contiguous()? };
        if trainable { track::leaf(&value, self.name()) } else { Ok(value) }
    }

    /// An error unless `value` has the shape of the parameter.
    pub(crate) fn require_shape(&self, value: &Tensor) -> Result<()> {
        let old = self.value();
        if value.shape() != old.shape() {
            let text = format!(
                "parameter {:?} is {}, the new value {}",
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

    /// Stores a result of [`Param::prepare`] or [`Param::value`]. Cannot fail, so that several
    /// parameters change together or not at all.
    pub(crate) fn put(&self, prepared: Tensor) {
        *self.0.value.write().unwrap_or_else(PoisonError::into_inner) = prepared;
        self.0.version.fetch_add(1, Ordering::Relaxed);
    }

    /// Stores a value for a while. A captured function that does so puts back what it found, so it
    /// does not depend on it.
    pub(crate) fn lend(&self, value: Tensor) {
        *self.0.value.write().unwrap_or_else(PoisonError::into_inner) = value;
        self.0.version.fetch_add(u64::from(!Capture::is_recording()), Ordering::Relaxed);
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

/// Replaces the values of several parameters: all of them, or none after an error.
pub(crate) fn set_all<'a>(pairs: impl Iterator<Item = (&'a Param, &'a Tensor)>) -> Result<()> {
    let prepared = pairs
        .map(|(param, value)| Ok((param, param.prepare(value)?)))
        .collect::<Result<Vec<_>>>()?;
    prepared.into_iter().for_each(|(param, value)| param.replace(value));
    Ok(())
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        write!(f, "{} {} {}", self.name(), value.shape(), value.dtype())
    }
}

/// The parameters and buffers of a model. Clones are handles of the same store.
///
/// # Example
/// ```
/// use teeny_nn::{Linear, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let _layer = Linear::new(&store.at("fc1"), 784, 128)?;
/// assert_eq!(store.count(), 784 * 128 + 128);
/// assert_eq!(store.get("fc1.weight")?.value().shape()[..], [128, 784]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Store(Arc<StoreInner>);

struct StoreInner {
    device: DeviceRef,
    dtype: DType,
    training: AtomicBool,
    params: Mutex<Vec<Param>>,
    /// Counts additions of parameters and calls of `set_trainable`.
    changes: AtomicU64,
    /// Asked before initial values are drawn.
    first_values: Mutex<Option<Arc<FirstValues>>>,
}

impl Store {
    /// An empty store of `F32` parameters on `device`, in training mode.
    pub fn new(device: impl ToDevice) -> Store {
        Store::with_dtype(device, DType::F32)
    }

    /// An empty store of `dtype` parameters on `device`, in training mode.
    pub fn with_dtype(device: impl ToDevice, dtype: DType) -> Store {
        Store(Arc::new(StoreInner {
            device: device.to_device(),
            dtype,
            training: AtomicBool::new(true),
            params: Mutex::default(),
            changes: AtomicU64::new(0),
            first_values: Mutex::default(),
        }))
    }

    /// The device of the parameters.
    pub fn device(&self) -> &DeviceRef {
        &self.0.device
    }

    /// Whether layers are in training mode (dropout drops) or in evaluation mode.
    pub fn is_training(&self) -> bool {
        if Capture::is_recording() {
            let store = self.0.clone();
            let version = move || store.training.load(Ordering::Relaxed).into();
            Capture::depends_on((self.id(), "training"), None, version);
        }
        self.0.training.load(Ordering::Relaxed)
    }

    /// Switches every layer of this store to training mode (`true`) or evaluation mode (`false`).
    /// Equivalent: `model.train()` and `model.eval()`.
    pub fn set_training(&self, training: bool) {
        self.0.training.store(training, Ordering::Relaxed);
    }

    /// The path `name`, for a layer: `store.at("fc1")`.
    pub fn at(&self, name: impl fmt::Display) -> Path {
        Path { store: self.clone(), prefix: name.to_string() }
    }

    /// The empty path, for a model whose parameters have no prefix.
    pub fn root(&self) -> Path {
        self.at("")
    }

    /// All parameters and buffers in creation order.
    pub fn all(&self) -> Vec<Param> {
        self.params().clone()
    }

    /// The trainable parameters in creation order.
    pub fn trainable(&self) -> Vec<Param> {
        self.params().iter().filter(|p| p.is_trainable()).cloned().collect()
    }

    /// The number of elements of all trainable parameters.
    pub fn count(&self) -> usize {
        self.params().iter().filter(|p| p.is_trainable()).map(|p| p.value().numel()).sum()
    }

    /// The parameter or buffer called `name`.
    ///
    /// # Errors
    /// If there is none; the error lists the names.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<Param> {
        let _op = enter("store.get");
        let params = self.params();
        params.iter().find(|p| p.name() == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = params.iter().map(Param::name).collect();
            let text =
                format!("no parameter {name:?}; the store has {}", crate::names::listed(&names));
            Error::value(text).help("store.all() lists every parameter and buffer")
        })
    }

    /// A version number that changes when a parameter is added, frozen or made trainable.
    pub(crate) fn changes(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// A number that identifies the store.
    pub(crate) fn id(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }

    /// The names of the trainable parameters without an optimizer.
    pub(crate) fn unclaimed(&self) -> Vec<String> {
        self.params()
            .iter()
            .filter(|p| p.is_trainable() && !p.is_claimed())
            .map(|p| p.name().to_string())
            .collect()
    }

    /// A trainable parameter that is a tensor which exists, for an optimizer of parts of parameters.
    /// The caller keeps names apart.
    #[cfg(feature = "distributed")]
    pub(crate) fn adopt(&self, name: &str, value: Tensor) -> Param {
        let param = self.new_param(name.to_string(), value, true);
        self.params().push(param.clone());
        self.0.changes.fetch_add(1, Ordering::Relaxed);
        param
    }

    /// The function that returns initial values in place of draws, if there is one.
    pub(crate) fn first_values(&self) -> MutexGuard<'_, Option<Arc<FirstValues>>> {
        // a panic elsewhere leaves it as it was: it is only replaced
        self.0.first_values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_param(&self, name: String, value: Tensor, trainable: bool) -> Param {
        Param(Arc::new(ParamInner {
            name,
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            trainable: AtomicBool::new(trainable),
            claimed: AtomicBool::new(false),
            store: Arc::downgrade(&self.0),
        }))
    }

    fn params(&self) -> MutexGuard<'_, Vec<Param>> {
        // after a panic in another thread the list is still whole: threads only push to it
        self.0.params.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.params().iter()).finish()
    }
}

/// A path in a [`Store`]: the prefix of the names of a layer's parameters.
#[derive(Clone)]
pub struct Path {
    store: Store,
    prefix: String,
}

impl Path {
    /// The path `name` inside this one: `path.at(0)` of `layers` is `layers.0`.
    pub fn at(&self, name: impl fmt::Display) -> Path {
        Path { store: self.store.clone(), prefix: self.full(&name.to_string()) }
    }

    /// The store of this path.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Runs the constructor `op` of a layer: its errors name `op` and the caller's line, and an
    /// error removes the parameters it has made, so that a second try can use their names.
    ///
    /// # Errors
    /// The error of `make`.
    ///
    /// # Example
    /// ```
    /// use teeny_core::Result;
    /// use teeny_nn::{Linear, Path, Store, device::device};
    /// struct Pair(Linear, Linear);
    /// impl Pair {
    ///     #[track_caller]
    ///     fn new(path: &Path, width: usize) -> Result<Pair> {
    ///         path.build("Pair::new", || {
    ///             let a = Linear::new(&path.at("a"), width, 2)?;
    ///             Ok(Pair(a, Linear::new(&path.at("b"), 2, width)?))
    ///         })
    ///     }
    /// }
    /// # fn main() -> Result<()> {
    /// let store = Store::new(&device("cpu")?);
    /// store.at("b").param("bias", 3, teeny_nn::Init::ZEROS)?;
    /// let error = Pair::new(&store.root(), 3).err().unwrap().to_string();
    /// assert!(error.starts_with("Pair::new at "), "{error}");
    /// assert!(error.contains("there is a parameter \"b.bias\" already"), "{error}");
    /// assert_eq!(store.all().len(), 1);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn build<T>(&self, op: &'static str, make: impl FnOnce() -> Result<T>) -> Result<T> {
        let _op = enter(op);
        let before = self.store.params().clone();
        make().inspect_err(|_| {
            // another thread may build elsewhere in the same store: remove only parameters inside
            // this path
            let ours = |p: &Param| {
                self.prefix.is_empty()
                    || p.name().strip_prefix(&self.prefix).is_some_and(|rest| rest.starts_with('.'))
            };
            let new = |p: &Param| !before.iter().any(|b| Arc::ptr_eq(&b.0, &p.0));
            self.store.params().retain(|p| !(ours(p) && new(p)));
        })
    }

    /// Makes the parameter `name` with initial values `init`.
    ///
    /// # Errors
    /// If the full name is taken, or the values cannot be made.
    #[track_caller]
    pub fn param(
        &self,
        name: &str,
        shape: impl teeny_core::IntoShape,
        init: Init,
    ) -> Result<Param> {
        let _op = enter("new parameter");
        let make = |shape, dtype, device: &DeviceRef| init.tensor(shape, dtype, device);
        self.param_of(name, shape, &make)
    }

    /// [`Path::param`] with the initial values that `make` returns.
    pub(crate) fn param_of(
        &self,
        name: &str,
        shape: impl teeny_core::IntoShape,
        make: &dyn Fn(Shape, DType, &DeviceRef) -> Result<Tensor>,
    ) -> Result<Param> {
        self.add(name, checked_shape(shape)?, make, true, self.store.0.dtype)
    }

    /// Makes the buffer `name`: state that is saved but not trained, such as running statistics.
    ///
    /// # Errors
    /// As [`Path::param`].
    #[track_caller]
    pub fn buffer(
        &self,
        name: &str,
        shape: impl teeny_core::IntoShape,
        init: Init,
    ) -> Result<Param> {
        self.buffer_as(name, shape, init, self.store.0.dtype)
    }

    /// [`Path::buffer`] with another dtype than the store's, such as a count.
    ///
    /// # Errors
    /// As [`Path::param`].
    #[track_caller]
    pub fn buffer_as(
        &self,
        name: &str,
        shape: impl teeny_core::IntoShape,
        init: Init,
        dtype: DType,
    ) -> Result<Param> {
        let _op = enter("new buffer");
        let make = |shape, dtype, device: &DeviceRef| init.tensor(shape, dtype, device);
        self.add(name, checked_shape(shape)?, &make, false, dtype)
    }

    fn add(
        &self,
        name: &str,
        shape: Shape,
        make: &dyn Fn(Shape, DType, &DeviceRef) -> Result<Tensor>,
        trainable: bool,
        dtype: DType,
    ) -> Result<Param> {
        let name = self.full(name);
        let taken = |params: &[Param]| {
            let text = format!("there is a parameter {name:?} already");
            let error =
                || Error::value(text).help("build each layer at its own path: store.at(\"fc2\")");
            if params.iter().any(|p| p.name() == name) { Err(error()) } else { Ok(()) }
        };
        taken(&self.store.params())?;
        let (device, values) = (self.store.device(), self.store.first_values().clone());
        let read = values.map_or(Ok(None), |values| values(&name, &shape, dtype, device));
        let value = read.and_then(|value| value.map_or_else(|| make(shape, dtype, device), Ok));
        let value = value.map_err(|error| {
            let error = error.note(format!("for {name:?}, {dtype} of {shape}"));
            match error.kind() {
                ErrorKind::OutOfMemory => error.help("smaller sizes, or a device with more memory"),
                _ => error,
            }
        })?;
        // an expanded number stands for a value that is refused when the model is made
        let tracks = trainable && value.layout().is_contiguous();
        let value = if tracks { track::leaf(&value, &name)? } else { value };
        let mut params = self.store.params();
        taken(&params)?; // by another thread, while the values were made
        let param = self.store.new_param(name, value, trainable);
        params.push(param.clone());
        drop(params);
        self.store.0.changes.fetch_add(1, Ordering::Relaxed);
        Ok(param)
    }

    fn full(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_string() } else { format!("{}.{name}", self.prefix) }
    }
}

fn checked_shape(shape: impl teeny_core::IntoShape) -> Result<Shape> {
    shape.shape().map_err(|error| {
        error.help(
            "at most 8 axes, and sizes whose product is a number of elements that memory can hold",
        )
    })
}
