//! Parameters by name, and whether they are being trained.
//!
//! ```text
//! Store ── "fc1.weight" → Param ── RwLock<Tensor>   the value an optimizer replaces
//!   │      "fc1.bias"   → Param
//!   └─ at("fc1") = Path: what a layer is built from; it prefixes names
//! ```
//!
//! A tensor is an immutable value, so training means putting a new value under an old name. Layers hold [`Param`] handles; the store
//! holds the same handles in the order they were made. It knows nothing of layers, optimizers or files.

use crate::init::Init;
use crate::track;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use teeny_core::{DType, DeviceRef, Error, Result, Shape, Tensor, ToDevice};

/// A named tensor that training replaces. A cheap handle: clones are the same parameter.
#[derive(Clone)]
pub struct Param(Arc<ParamInner>);

struct ParamInner {
    name: String,
    value: RwLock<Tensor>,
    /// False for buffers (running statistics) and frozen parameters.
    trainable: AtomicBool,
}

impl Param {
    /// The full name, e.g. `fc1.weight`.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The present value. On an autograd device it is tracked while the parameter is trainable.
    pub fn value(&self) -> Tensor {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether optimizers change this parameter.
    pub fn is_trainable(&self) -> bool {
        self.0.trainable.load(Ordering::Relaxed)
    }

    /// Makes the parameter trainable, or a constant that no gradient is computed for.
    ///
    /// # Errors
    /// If the value cannot be tracked (its type is not a float).
    pub fn set_trainable(&self, trainable: bool) -> Result<()> {
        self.0.trainable.store(trainable, Ordering::Relaxed);
        self.set(&self.value())
    }

    /// Replaces the value. `value` is brought to the parameter's device and type; no history comes along.
    ///
    /// # Errors
    /// If the shape differs: the error names the parameter and both shapes.
    pub fn set(&self, value: &Tensor) -> Result<()> {
        let old = self.value();
        if value.shape() != old.shape() {
            let text = format!("parameter {:?} is {}, the new value {}", self.name(), old.shape(), value.shape());
            return Err(Error::shape(text).named("set"));
        }
        let value = track::below(value)?.cast(old.dtype())?.to(old.device())?;
        let value = if self.is_trainable() { track::leaf(&value, self.name())? } else { value };
        *self.0.value.write().unwrap_or_else(PoisonError::into_inner) = value;
        Ok(())
    }
}

impl fmt::Debug for Param {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value();
        write!(f, "{} {} {}", self.name(), value.shape(), value.dtype())
    }
}

/// The parameters and buffers of one model. A cheap handle: clones are the same store.
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
}

impl Store {
    /// An empty store of `F32` parameters on `device`, in training mode.
    pub fn new(device: &(impl ToDevice + ?Sized)) -> Store {
        Store::with_dtype(device, DType::F32)
    }

    /// An empty store whose new parameters have type `dtype`.
    pub fn with_dtype(device: &(impl ToDevice + ?Sized), dtype: DType) -> Store {
        Store(Arc::new(StoreInner { device: device.to_device(), dtype, training: AtomicBool::new(true), params: Mutex::default() }))
    }

    /// The device parameters are made on.
    pub fn device(&self) -> &DeviceRef {
        &self.0.device
    }

    /// Whether layers behave as in training (dropout drops) or as in use.
    pub fn is_training(&self) -> bool {
        self.0.training.load(Ordering::Relaxed)
    }

    /// Switches every layer built from this store to training (`true`) or use (`false`). As `model.train()` and `model.eval()`.
    pub fn set_training(&self, training: bool) {
        self.0.training.store(training, Ordering::Relaxed);
    }

    /// The place called `name`, to build a layer at: `store.at("fc1")`.
    pub fn at(&self, name: impl fmt::Display) -> Path {
        Path { store: self.clone(), prefix: name.to_string() }
    }

    /// The place without a name, for a model whose parameters are at the top.
    pub fn root(&self) -> Path {
        self.at("")
    }

    /// All parameters and buffers in the order they were made.
    pub fn all(&self) -> Vec<Param> {
        self.params().clone()
    }

    /// The parameters optimizers change, in the order they were made.
    pub fn trainable(&self) -> Vec<Param> {
        self.params().iter().filter(|p| p.is_trainable()).cloned().collect()
    }

    /// The number of trainable values: the sum of the parameters' elements.
    pub fn count(&self) -> usize {
        self.params().iter().filter(|p| p.is_trainable()).map(|p| p.value().numel()).sum()
    }

    /// The parameter or buffer called `name`.
    ///
    /// # Errors
    /// If there is none; the error lists the names there are.
    pub fn get(&self, name: &str) -> Result<Param> {
        let params = self.params();
        params.iter().find(|p| p.name() == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = params.iter().map(Param::name).collect();
            Error::value(format!("no parameter {name:?}; the store has {}", crate::state::listed(&names))).named("store.get")
        })
    }

    fn params(&self) -> MutexGuard<'_, Vec<Param>> {
        // a panic elsewhere cannot leave the list half-changed: it is only pushed to
        self.0.params.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.params().iter()).finish()
    }
}

/// A place in a [`Store`]: the prefix of the names a layer gives its parameters.
#[derive(Clone)]
pub struct Path {
    store: Store,
    prefix: String,
}

impl Path {
    /// The place `name` below this one: `path.at(0)` of `layers` is `layers.0`.
    pub fn at(&self, name: impl fmt::Display) -> Path {
        Path { store: self.store.clone(), prefix: self.full(&name.to_string()) }
    }

    /// The store this place is in.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Makes the parameter `name` here, with first values drawn as `init` says.
    ///
    /// # Errors
    /// If the full name is taken, or the values cannot be drawn.
    pub fn param(&self, name: &str, shape: impl teeny_core::IntoShape, init: Init) -> Result<Param> {
        self.add(name, shape.shape()?, init, true, self.store.0.dtype)
    }

    /// Makes the buffer `name` here: state that is saved but not trained, such as running statistics.
    ///
    /// # Errors
    /// As [`Path::param`].
    pub fn buffer(&self, name: &str, shape: impl teeny_core::IntoShape, init: Init) -> Result<Param> {
        self.add(name, shape.shape()?, init, false, self.store.0.dtype)
    }

    /// [`Path::buffer`] of another type than the store's, such as a count.
    ///
    /// # Errors
    /// As [`Path::param`].
    pub fn buffer_as(&self, name: &str, shape: impl teeny_core::IntoShape, init: Init, dtype: DType) -> Result<Param> {
        self.add(name, shape.shape()?, init, false, dtype)
    }

    fn add(&self, name: &str, shape: Shape, init: Init, trainable: bool, dtype: DType) -> Result<Param> {
        let name = self.full(name);
        let value = init.tensor(shape, dtype, self.store.device())?;
        let value = if trainable { track::leaf(&value, &name)? } else { value };
        let param = Param(Arc::new(ParamInner { name, value: RwLock::new(value), trainable: AtomicBool::new(trainable) }));
        let mut params = self.store.params();
        if params.iter().any(|p| p.name() == param.name()) {
            let text = format!("there is a parameter {:?} already", param.name());
            return Err(Error::value(text).named("new parameter").hint("build each layer at a place of its own: store.at(\"fc2\")"));
        }
        params.push(param.clone());
        Ok(param)
    }

    fn full(&self, name: &str) -> String {
        if self.prefix.is_empty() { name.to_string() } else { format!("{}.{name}", self.prefix) }
    }
}
