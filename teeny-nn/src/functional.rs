//! Two ways to call a model: as a function of its parameters ([`Store::with_values`]), and for
//! inference ([`Store::evaluate`]).

use crate::store::{Param, Store};
use teeny_autograd::no_grad;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

impl Store {
    /// Runs `body` with the layers in evaluation mode and without recording for gradients. It
    /// restores the former mode afterwards, also after a panic. All threads see the mode.
    ///
    /// # Example
    /// ```
    /// use teeny_nn::{Dropout, Module, Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// # use teeny_core::Tensor;
    /// let store = Store::new(&device("cpu")?); // in training mode
    /// let dropout = Dropout::new(&store.root(), 0.5)?;
    /// let x = Tensor::new([1.0f32, 2.0], store.device())?; // (2)
    /// let y = store.evaluate(|| dropout.forward(&x))?; // (2)
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    /// assert!(store.is_training());
    /// # Ok(()) }
    /// ```
    /// Equivalent: `model.eval()` with `torch.no_grad()`.
    #[doc(alias = "eval")]
    #[track_caller]
    pub fn evaluate<T>(&self, body: impl FnOnce() -> T) -> T {
        /// Puts the former mode back when dropped.
        struct Restore<'a>(&'a Store, bool);
        impl Drop for Restore<'_> {
            fn drop(&mut self) {
                self.0.set_training(self.1);
            }
        }
        let _former = Restore(self, self.is_training());
        self.set_training(false);
        no_grad(body)
    }

    /// Runs `body` with `values` as the values of the parameters and buffers of these names, as
    /// they are: tracked tensors stay tracked, and may be on a device that wraps the store's. The
    /// former values are back afterwards, also after an error or a panic. This makes a model a
    /// function of its parameters, for [`grad`](teeny_autograd::grad()),
    /// [`hvp`](teeny_autograd::hvp), [`jvp`](teeny_autograd::jvp) and Jacobians. All threads see
    /// the values.
    ///
    /// # Errors
    /// If a name is unknown or occurs twice, or a value has another shape or dtype than the
    /// parameter; if `body` fails.
    ///
    /// # Example
    /// The gradient of a model's loss as a function, and the product of its Hessian with `v`.
    /// ```
    /// use teeny_autograd::hvp;
    /// use teeny_nn::{Linear, Module, Param, Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// # use teeny_core::{DType, Tensor};
    /// let store = Store::new(&device("cpu")?);
    /// let model = Linear::new(&store.at("fc"), 3, 1)?;
    /// let x = Tensor::ones((2, 3), DType::F32, store.device())?; // (2, 3)
    /// let params = store.trainable();
    /// let w: Vec<Tensor> = params.iter().map(Param::value).collect(); // (1, 3), (1)
    /// let loss = |w: &Vec<Tensor>| {
    ///     let values = params.iter().map(Param::name).zip(w);
    ///     store.with_values(values, || model.forward(&x)?.square()?.sum_all())
    /// };
    /// let v = w.iter().map(Tensor::ones_like).collect::<teeny_core::Result<_>>()?;
    /// let (gradient, product) = hvp(loss, &w, &v)?;
    /// assert_eq!(gradient[0].shape()[..], [1, 3]);
    /// assert_eq!(product[1].to_vec::<f32>()?, [16.0]); // 2 rows, 2 (3 + 1)
    /// # Ok(()) }
    /// ```
    /// Equivalent: `torch.func.functional_call`.
    #[doc(alias = "functional_call")]
    #[track_caller]
    pub fn with_values<'a, T>(
        &self,
        values: impl IntoIterator<Item = (&'a str, &'a Tensor)>,
        body: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        /// Puts the former values back when dropped, also while a panic unwinds.
        struct Restore(Vec<(Param, Tensor)>);
        impl Drop for Restore {
            fn drop(&mut self) {
                self.0.drain(..).for_each(|(param, value)| param.lend(value));
            }
        }
        let mut former = Restore(Vec::new());
        {
            let _op = enter("store.with_values");
            let mut new = Vec::new();
            for (name, value) in values {
                let param = self.get(name)?;
                if new.iter().any(|(other, _): &(Param, _)| other.name() == name) {
                    return Err(Error::value(format!("there are two values of {name:?}"))
                        .help("pass one value for each parameter"));
                }
                param.require_shape(value)?;
                let own = param.value().dtype();
                if value.dtype() != own {
                    let text = format!("expected {own} for {name:?}, got {}", value.dtype());
                    return Err(Error::dtype(text).help(format!(
                        "value.cast(DType::{})? converts",
                        own.name().to_uppercase()
                    )));
                }
                new.push((param, value.clone()));
            }
            for (param, value) in new {
                former.0.push((param.clone(), param.stored()));
                param.lend(value);
            }
        }
        body()
    }
}
