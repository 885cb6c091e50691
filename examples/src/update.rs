//! A step of training with its update: on one rank, on several with parts of each batch, with a
//! divided optimizer state, or with a divided model.

use crate::{Common, Step};
#[cfg(feature = "mpi")]
use std::sync::Arc;
use teeny_core::{Error, Result, Tensor};
#[cfg(feature = "mpi")]
use teeny_distributed::{DataParallel, Zero};
use teeny_formats::State;
use teeny_nn::Store;
use teeny_nn::optim::{Optimizer, clip_grad_norm};
use teeny_nn::state::Stateful;

/// Loss, gradients, clipping and update of a model.
///
/// # Example
/// ```
/// use examples::{Common, Update};
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// # let common = Common::default();
/// let store = Store::new(&common.device()?);
/// let model = Linear::new(&store.root(), 2, 1)?;
/// let mut update = Update::new(&common, false, &store, |params| Sgd::new(params, 0.1), |x| {
///     model.forward(&x[0])?.square()?.mean_all()
/// })?;
/// for _ in 0..5 {
///     let x = Tensor::randn((8, 2), DType::F32, store.device())?; // (8, 2)
///     println!("{}", update.step(vec![x], 0.1)?);
/// }
/// # Ok(()) }
/// ```
pub struct Update<'m, F, O> {
    common: &'m Common,
    store: &'m Store,
    how: How<'m, F, O>,
}

enum How<'m, F, O> {
    Whole(Step<'m, F>, O),
    /// The optimizer's state is divided among the ranks.
    #[cfg(feature = "mpi")]
    Zero(Arc<DataParallel>, Zero<O>, F),
}

/// The largest norm of the gradients of all parameters.
const MAX_NORM: f64 = 1.0;

impl<'m, F, O> Update<'m, F, O>
where
    F: Fn(&[Tensor]) -> Result<Tensor> + Clone + 'm,
    O: Optimizer,
{
    /// Updates of the parameters in `store` by the optimizer that `make` returns; with `zero` each
    /// rank keeps a part of its state. `loss` is as for [`Step::new`].
    ///
    /// # Errors
    /// If the ranks have other parameters, or one fails; if `zero` is combined with options that it
    /// excludes.
    pub fn new(
        common: &'m Common,
        zero: bool,
        store: &'m Store,
        make: impl Fn(Vec<teeny_nn::Param>) -> O,
        loss: F,
    ) -> Result<Update<'m, F, O>> {
        if common.captured && (zero || common.ranks().is_split()) {
            let text = "--captured replays whole steps, --zero and --tensor-parallel do not";
            return Err(Error::value(text).help("leave one of them out"));
        }
        #[cfg(feature = "mpi")]
        if zero {
            let data = common.data_parallel(store)?;
            let mut zero = Zero::new(data.clone(), make)?;
            if let Some(model) = common.ranks().model() {
                zero = zero.tensor_parallel(model);
            }
            return Ok(Update { common, store, how: How::Zero(data, zero, loss) });
        }
        if zero {
            return Err(Error::value("--zero divides the state of the optimizer among ranks")
                .help("build with --features mpi, and start with mpirun and --distributed"));
        }
        let step = Step::new(common, store, loss)?;
        Ok(Update { common, store, how: How::Whole(step, make(store.trainable())) })
    }

    /// The loss () of these inputs; the parameters are updated at learning rate `lr`, with
    /// gradients of norm 1 at most.
    ///
    /// # Errors
    /// If the loss, its derivative, the update or a rank fails.
    pub fn step(&mut self, inputs: Vec<Tensor>, lr: f64) -> Result<Tensor> {
        match &mut self.how {
            How::Whole(step, optimizer) => {
                let (loss, mut gradients) = step.run(inputs)?; // ()
                let params = self.store.trainable();
                match self.common.ranks() {
                    #[cfg(feature = "mpi")]
                    ranks if ranks.is_split() => {
                        ranks.clip_grad_norm(&mut gradients, &params, MAX_NORM)?
                    }
                    _ => clip_grad_norm(&mut gradients, &params, MAX_NORM)?,
                };
                optimizer.set_lr(lr);
                optimizer.step(&gradients)?;
                Ok(loss)
            }
            #[cfg(feature = "mpi")]
            How::Zero(data, zero, loss) => {
                let share = data.share(inputs.first().map_or(1, |x| x.size(0).unwrap_or(1)));
                let (loss, mut gradients) = zero.backward_of(&loss(&inputs)?, share)?; // ()
                zero.clip_grad_norm(&mut gradients, MAX_NORM)?;
                zero.set_lr(lr);
                zero.step(&gradients)?;
                Ok(loss)
            }
        }
    }
}

/// The state of the optimizer; on several ranks all of them take part.
impl<F, O: Optimizer> Stateful for Update<'_, F, O> {
    fn state(&self) -> Result<State> {
        match &self.how {
            How::Whole(_, optimizer) => optimizer.state(),
            #[cfg(feature = "mpi")]
            How::Zero(_, zero, _) => zero.state(),
        }
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        match &mut self.how {
            How::Whole(_, optimizer) => optimizer.set_state(state),
            #[cfg(feature = "mpi")]
            How::Zero(_, zero, _) => zero.set_state(state),
        }
    }
}
