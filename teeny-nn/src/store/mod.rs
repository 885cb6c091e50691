//! Parameters by name, and the training mode.
//!
//! ```text
//! Store ── "fc1.weight" → Param ── RwLock<Tensor>   the value, which an optimizer replaces
//!   │      "fc1.bias"   → Param
//!   └─ at("fc1") = Path                             the argument of layers, a prefix of names
//! ```
//!
//! Tensors are immutable, so training replaces the value of a name. Layers hold [`Param`] handles;
//! the store holds the same handles in creation order. `save` and `load` write and read the values.
//! It is independent of layers and optimizers.

mod load;
mod param;
pub(crate) mod reads;
mod save;

use crate::init::Init;
use crate::track;
pub use load::LoadReport;
use param::ParamInner;
pub use param::{Adapter, Param, Reader, Role, Value};
pub(crate) use param::{FirstValue, FirstValues};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use teeny_core::context::enter;
use teeny_core::{
    Capture, DType, DeviceRef, Error, ErrorKind, QuantType, Result, Shape, Tensor, ToDevice,
};
use teeny_formats::names::listed;

/// The parameters and buffers of a model. Clones are handles of the same store.
///
/// A layer that is called twice shares its weights. A weight is tied to another layer by a clone of
/// its [`Param`]: `Linear { weight: embedding.weight.clone(), bias: None }` computes logits from
/// the rows of an embedding. It is one parameter, which gets the sum of both gradients, and a file
/// has it once.
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
    /// The number of freezes, and the parameters that were trainable before the first.
    frozen: Mutex<(usize, Vec<Param>)>,
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
            frozen: Mutex::default(),
        }))
    }

    /// The device of the parameters.
    pub fn device(&self) -> &DeviceRef {
        &self.0.device
    }

    /// The dtype of new parameters.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// A tensor without elements, of this dtype on this device.
    ///
    /// # Errors
    /// If the device fails.
    pub fn empty(&self) -> Result<Tensor> {
        Tensor::zeros(0, self.0.dtype, &self.0.device)
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
        self.params().iter().filter(|p| p.is_trainable()).map(|p| p.shape().numel()).sum()
    }

    /// The parameter or buffer called `name`.
    ///
    /// # Errors
    /// If the parameter does not exist; the error lists the names.
    #[track_caller]
    pub fn get(&self, name: &str) -> Result<Param> {
        let _op = enter("store.get");
        let params = self.params();
        params.iter().find(|p| p.name() == name).cloned().ok_or_else(|| {
            let names: Vec<&str> = params.iter().map(Param::name).collect();
            let text = format!("no parameter {name:?}; the store has {}", listed(&names));
            Error::value(text).help("store.all() lists every parameter and buffer")
        })
    }

    /// Quantises and freezes the weights of linear layers and embeddings
    /// ([`Param::is_quantizable`]) for which `choose` returns a type.
    ///
    /// # Errors
    /// If rows are not whole blocks of their type ([`QuantType::fitting`] chooses one that fits),
    /// or an element is not finite. Nothing has changed then.
    ///
    /// # Example
    /// ```
    /// use teeny_core::{DType, QuantType, Tensor};
    /// use teeny_nn::{Linear, Module, Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let store = Store::new(&device("cpu")?);
    /// let layer = Linear::new(&store.at("fc1"), 768, 128)?;
    /// store.quantize(|param| QuantType::Q4K.fitting(param.shape()[1]))?;
    /// let y = layer.forward(&Tensor::ones((3, 768), DType::F32, store.device())?)?;
    /// assert_eq!(y.shape()[..], [3, 128]);
    /// assert_eq!(format!("{:?}", layer.weight), "fc1.weight (128, 768) Q4_K");
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn quantize(&self, choose: impl Fn(&Param) -> Option<QuantType>) -> Result<()> {
        let _op = enter("quantize");
        let chosen = |param: Param| {
            let kind = Some(&param).filter(|param| param.is_quantizable()).and_then(&choose)?;
            Some(param.made_quantized(kind).map(|weight| (param, weight)))
        };
        let all = self.all().into_iter().filter_map(chosen).collect::<Result<Vec<_>>>()?;
        all.into_iter().for_each(|(param, weight)| param.set_value(Value::Quantized(weight)));
        Ok(())
    }

    /// Makes every quantised weight one of floats of the store's type. They stay frozen.
    ///
    /// # Errors
    /// If an allocation fails: weights before the one that failed are floats then.
    #[track_caller]
    pub fn dequantize(&self) -> Result<()> {
        let _op = enter("dequantize");
        self.all().iter().try_for_each(Param::dequantize)
    }

    /// A version number that changes when a parameter is added, frozen or made trainable.
    pub fn changes(&self) -> u64 {
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

    /// Freezes all parameters until [`Store::thaw`] is called as often.
    ///
    /// # Errors
    /// If the device fails. Nothing has changed then.
    pub fn freeze(&self) -> Result<()> {
        let mut frozen = self.0.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        if frozen.0 == 0 {
            let all = self.trainable();
            let done = all.iter().try_for_each(|param| param.set_trainable(false));
            done.inspect_err(|_| {
                let _ = all.iter().try_for_each(|param| param.set_trainable(true));
            })?;
            frozen.1 = all;
        }
        frozen.0 += 1;
        Ok(())
    }

    /// Reverses one [`Store::freeze`]; the last call makes the parameters that were trainable so
    /// again, except weights that are quantised now.
    ///
    /// # Errors
    /// If the device fails.
    pub fn thaw(&self) -> Result<()> {
        let mut frozen = self.0.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        frozen.0 = frozen.0.saturating_sub(1);
        if frozen.0 > 0 {
            return Ok(());
        }
        let all = std::mem::take(&mut frozen.1);
        let floats = all.iter().filter(|param| param.quantized().is_none());
        floats.map(|param| param.set_trainable(true)).fold(Ok(()), Result::and)
    }

    /// The function that returns initial values in place of draws, if there is one.
    pub(crate) fn first_values(&self) -> MutexGuard<'_, Option<Arc<FirstValues>>> {
        // a poisoned lock is safe to use: the value is only ever replaced as a whole
        self.0.first_values.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_param(&self, name: String, value: Value, trainable: bool, role: Role) -> Param {
        Param(Arc::new(ParamInner {
            name,
            value: RwLock::new(value),
            version: AtomicU64::new(0),
            trainable: AtomicBool::new(trainable),
            role,
            tied: AtomicBool::new(false),
            adapters: RwLock::default(),
            attachments: AtomicU64::new(0),
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

    /// The parameters and buffers below this path, in creation order: of a layer and its inner
    /// layers. Equivalent: `module.named_parameters()` and `named_buffers()`.
    ///
    /// # Example
    /// ```
    /// use teeny_nn::{Linear, Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let store = Store::new(&device("cpu")?);
    /// Linear::new(&store.at("encoder").at(0), 4, 3)?;
    /// Linear::new(&store.at("head"), 3, 2)?;
    /// // freezes a part of the model
    /// store.at("encoder").all().iter().try_for_each(|param| param.set_trainable(false))?;
    /// assert_eq!(store.trainable().len(), 2); // head.weight, head.bias
    /// # Ok(()) }
    /// ```
    pub fn all(&self) -> Vec<Param> {
        self.store.params().iter().filter(|param| self.contains(param)).cloned().collect()
    }

    /// Whether the name of `param` is below this path.
    fn contains(&self, param: &Param) -> bool {
        let rest = param.name().strip_prefix(&self.prefix);
        self.prefix.is_empty() || rest.is_some_and(|rest| rest.starts_with('.'))
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
            let new = |p: &Param| !before.iter().any(|b| Arc::ptr_eq(&b.0, &p.0));
            self.store.params().retain(|p| !(self.contains(p) && new(p)));
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
        let make = |shape, dtype, device: &DeviceRef| init.tensor(shape, dtype, device);
        self.param_with(name, shape, &make)
    }

    /// [`Path::param`] with the initial values that `make` returns for this shape, the store's dtype
    /// and its device.
    ///
    /// # Errors
    /// As [`Path::param`].
    #[track_caller]
    pub fn param_with(
        &self,
        name: &str,
        shape: impl teeny_core::IntoShape,
        make: &dyn Fn(Shape, DType, &DeviceRef) -> Result<Tensor>,
    ) -> Result<Param> {
        let _op = enter("new parameter");
        self.add(name, checked_shape(shape)?, make, Role::Trained, self.store.0.dtype)
    }

    /// [`Path::param`] for a matrix that is read by [`Param::linear`] and [`Param::rows`] alone, so
    /// that it can be quantised.
    pub(crate) fn matrix(&self, name: &str, shape: [usize; 2], init: Init) -> Result<Param> {
        let make = |shape, dtype, device: &DeviceRef| init.tensor(shape, dtype, device);
        self.add(name, checked_shape(shape)?, &make, Role::Linear, self.store.0.dtype)
    }

    /// [`Path::matrix`] of an embedding, with the initial values that `make` returns.
    pub(crate) fn table(
        &self,
        name: &str,
        shape: [usize; 2],
        make: &dyn Fn(Shape, DType, &DeviceRef) -> Result<Tensor>,
    ) -> Result<Param> {
        self.add(name, checked_shape(shape)?, make, Role::Embedding, self.store.0.dtype)
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
        self.add(name, checked_shape(shape)?, &make, Role::Buffer, dtype)
    }

    fn add(
        &self,
        name: &str,
        shape: Shape,
        make: &dyn Fn(Shape, DType, &DeviceRef) -> Result<Tensor>,
        role: Role,
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
        let quantized = matches!(role, Role::Linear | Role::Embedding);
        let wanted = FirstValue { name: &name, shape, dtype, quantized };
        let read = values.map_or(Ok(None), |values| values(&wanted, device));
        let made = || make(shape, dtype, device).map(Value::Plain);
        let value = read.and_then(|value| value.map_or_else(made, Ok));
        let value = value.map_err(|error| {
            let error = error.note(format!("for {name:?}, {dtype} of {shape}"));
            match error.kind() {
                ErrorKind::OutOfMemory => error.help("smaller sizes, or a device with more memory"),
                _ => error,
            }
        })?;
        // an expanded number stands for a value that is refused when the model is made
        let (value, trainable) = match value {
            Value::Plain(value) if role != Role::Buffer && value.layout().is_contiguous() => {
                (Value::Plain(track::leaf(&value, &name)?), true)
            }
            Value::Plain(value) => (Value::Plain(value), role != Role::Buffer),
            Value::Quantized(value) => (Value::Quantized(value), false),
        };
        let mut params = self.store.params();
        taken(&params)?; // by another thread, while the values were made
        let param = self.store.new_param(name, value, trainable, role);
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
