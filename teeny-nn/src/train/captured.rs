//! [`Captured`]: loss and gradients of a model, recorded and replayed.

use crate::store::{Param, Store};
use std::sync::{Arc, Mutex, PoisonError};
use teeny_autograd::{Grad, Gradients, is_grad_enabled};
use teeny_core::context::enter;
use teeny_core::{Capture, Error, Result, Tensor};

/// Loss and gradients of a model as a captured function ([`Capture`]): the first two calls run the
/// model, later ones replay what they recorded on new inputs and the present parameters.
///
/// The optimizer runs outside, as without capture: learning rates, clipping, averages and
/// checkpoints are the same. Buffers that the model changes, such as the running statistics of a
/// batch norm, are changed by each call. The model is recorded again when the training mode
/// changes, a parameter is frozen, or one that is not of this store is set; a
/// [`crate::optim::LossScale`] is read by each replay. Other numbers must not change between calls:
/// [`Captured::check_every`] finds those that do. The store's device must record:
/// `Autograd::new(Lazy::new(device))`.
///
/// # Example
/// ```
/// use teeny_autograd::Autograd;
/// use teeny_core::{DType, DeviceRef, Lazy, Result, Tensor};
/// use teeny_cpu::Cpu;
/// use teeny_nn::{Captured, Linear, Module, Store, optim::{Optimizer, Sgd}};
/// # fn main() -> Result<()> {
/// let device: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
/// let store = Store::new(&device);
/// let model = Linear::new(&store.root(), 4, 1)?;
/// let mut sgd = Sgd::new(store.trainable(), 0.1);
/// let mut step = Captured::new(&store, |x| {
///     model.forward(&x[0])?.sub(&x[1])?.square()?.mean_all()
/// })?;
/// let mut last = f32::INFINITY;
/// for _ in 0..20 {
///     let (x, y) = (
///         Tensor::ones((8, 4), DType::F32, &device)?, // (8, 4)
///         Tensor::full((8, 1), 3.0, DType::F32, &device)?, // (8, 1)
///     );
///     let (loss, gradients) = step.run(vec![x, y])?;
///     sgd.step(&gradients)?;
///     last = loss.item()?;
/// }
/// assert!(last < 1e-3 && step.is_replaying());
/// # Ok(()) }
/// ```
pub struct Captured<'f> {
    capture: Capture<'f>,
    params: Vec<Param>,
    /// The parameters whose gradients and buffers are results after the loss.
    results: Arc<Mutex<Results>>,
}

/// Places in the list of parameters.
#[derive(Default)]
struct Results {
    gradients: Vec<usize>,
    buffers: Vec<usize>,
}

impl<'f> Captured<'f> {
    /// A capture of `loss`, which computes a scalar from the inputs and the parameters of `store`.
    ///
    /// # Errors
    /// If the device of `store` does not record.
    #[track_caller]
    pub fn new(
        store: &Store,
        mut loss: impl FnMut(&[Tensor]) -> Result<Tensor> + 'f,
    ) -> Result<Captured<'f>> {
        let params = store.all();
        let results = Arc::new(Mutex::new(Results::default()));
        let (inside, found) = (params.clone(), results.clone());
        let capture = Capture::new(store.device(), move |inputs| {
            Capture::depends_on((0, "gradients"), None, || is_grad_enabled().into());
            let before: Vec<Tensor> = inside.iter().map(Param::value).collect();
            let loss = loss(&inputs[..inputs.len() - inside.len()])?;
            let mut gradients = loss.backward()?;
            let mut all = vec![loss.detach()?];
            let mut results = Results::default();
            for (i, param) in inside.iter().enumerate().filter(|(_, param)| param.is_trainable()) {
                if gradients.contains(&param.value()) {
                    all.push(gradients.take(&param.value())?);
                    results.gradients.push(i);
                }
            }
            for (i, (param, before)) in inside.iter().zip(&before).enumerate() {
                if !param.value().same_storage(before) {
                    all.push(param.value());
                    results.buffers.push(i);
                }
            }
            *found.lock().unwrap_or_else(PoisonError::into_inner) = results;
            Ok(all)
        })?;
        Ok(Captured { capture, params, results })
    }

    /// Whether calls are replayed: the model is not run any more.
    pub fn is_replaying(&self) -> bool {
        self.capture.is_replaying()
    }

    /// Compares one replay in `calls` with a call of the model: see [`Capture::check_every`].
    pub fn check_every(&mut self, calls: usize) {
        self.capture.check_every(calls);
    }

    /// The loss (), untracked, and the gradients of the trainable parameters.
    ///
    /// # Errors
    /// If the model or [`Capture::run`] fails: among others, if a batch has another shape than the
    /// first one. If a replay fails, buffers are as before.
    #[track_caller]
    pub fn run(&mut self, mut inputs: Vec<Tensor>) -> Result<(Tensor, Gradients)> {
        inputs.extend(self.params.iter().map(Param::value));
        let mut results = self.capture.run(inputs)?.into_iter();
        let _op = enter("Captured::run");
        let missing = || Error::internal("a captured step returned too few tensors");
        let loss = results.next().ok_or_else(missing)?;
        let known = self.results.lock().unwrap_or_else(PoisonError::into_inner);
        let mut gradients = Gradients::new();
        for &i in &known.gradients {
            gradients.set(&self.params[i].value(), results.next().ok_or_else(missing)?)?;
        }
        for &i in &known.buffers {
            self.params[i].put(results.next().ok_or_else(missing)?);
        }
        Ok((loss, gradients))
    }
}

impl std::fmt::Debug for Captured<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Captured")
            .field("parameters", &self.params.len())
            .field("replays", &self.is_replaying())
            .finish_non_exhaustive()
    }
}
