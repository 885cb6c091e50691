//! `--captured`: training steps that are recorded and replayed.

use crate::Common;
#[cfg(feature = "mpi")]
use std::sync::Arc;
use teeny_autograd::{Grad, Gradients};
use teeny_core::{DType, Result, Shape, Tensor};
#[cfg(feature = "mpi")]
use teeny_distributed::DataParallel;
use teeny_nn::{Captured, Store};

/// Loss and gradients of a batch. They are computed, or with `--captured` replayed from the third
/// batch of the same shapes on.
///
/// The optimizer runs outside. Each shape of a batch is recorded separately: a loader whose last
/// batch is short has two.
///
/// # Example
/// ```
/// use examples::{Common, Step};
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// # let common = Common::default();
/// let store = Store::new(&common.device()?);
/// let model = Linear::new(&store.root(), 2, 1)?;
/// let mut sgd = Sgd::new(store.trainable(), 0.1);
/// let mut step = Step::new(&common, &store, |x| model.forward(&x[0])?.square()?.mean_all())?;
/// for _ in 0..5 {
///     let x = Tensor::randn((8, 2), DType::F32, store.device())?; // (8, 2)
///     let (loss, gradients) = step.run(vec![x])?; // ()
///     sgd.step(&gradients)?;
///     println!("{loss}");
/// }
/// # Ok(()) }
/// ```
pub struct Step<'m, F> {
    store: &'m Store,
    loss: F,
    is_captured: bool,
    /// The recordings by the shapes of their inputs.
    recordings: Vec<(Vec<(Shape, DType)>, Captured<'m>)>,
    #[cfg(feature = "mpi")]
    data: Option<Arc<DataParallel>>,
}

impl<'m, F: Fn(&[Tensor]) -> Result<Tensor> + Clone + 'm> Step<'m, F> {
    /// Steps whose loss is `loss` of the inputs and of the parameters in `store`. On several ranks
    /// `loss` is the mean over the items of a rank, which are the first axis of its first input.
    ///
    /// # Errors
    /// If the ranks have other parameters, or one fails.
    pub fn new(common: &Common, store: &'m Store, loss: F) -> Result<Step<'m, F>> {
        Ok(Step {
            store,
            loss,
            is_captured: common.captured,
            recordings: Vec::new(),
            #[cfg(feature = "mpi")]
            data: match common.ranks().part() {
                (_, 1) => None,
                _ => Some(common.data_parallel(store)?),
            },
        })
    }

    /// The loss () of these inputs, and the gradients of the parameters; on several ranks over the
    /// inputs of all.
    ///
    /// # Errors
    /// If the loss, its derivative or a rank fails; with `--captured` as [`Captured::run`].
    #[track_caller]
    pub fn run(&mut self, inputs: Vec<Tensor>) -> Result<(Tensor, Gradients)> {
        #[cfg(feature = "mpi")]
        if let Some(data) = self.data.clone() {
            let items = inputs.first().map_or(1, |x| x.size(0).unwrap_or(1));
            let share = data.share(items);
            if !self.is_captured {
                return data.backward_of(&(self.loss)(&inputs)?, share);
            }
            let (mut loss, mut gradients) = self.local(inputs)?;
            let weight = share.weight()?;
            if weight != 1.0 {
                loss = loss.mul(weight)?;
                gradients = gradients.map(|g| g.mul(weight))?;
            }
            loss = data.average(&loss, &mut gradients)?;
            return Ok((loss, gradients));
        }
        self.local(inputs)
    }

    /// Loss and gradients of this rank.
    fn local(&mut self, inputs: Vec<Tensor>) -> Result<(Tensor, Gradients)> {
        if !self.is_captured {
            let loss = (self.loss)(&inputs)?;
            let gradients = loss.backward()?;
            return Ok((loss, gradients));
        }
        let shapes: Vec<_> = inputs.iter().map(|x| (*x.shape(), x.dtype())).collect();
        let known = self.recordings.iter().position(|(known, _)| *known == shapes);
        let i = match known {
            Some(i) => i,
            None => {
                self.recordings.push((shapes, Captured::new(self.store, self.loss.clone())?));
                self.recordings.len() - 1
            }
        };
        self.recordings[i].1.run(inputs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Common;
    use std::cell::Cell;

    #[test]
    fn captured_steps_run_the_loss_for_each_shape_until_it_is_replayed() {
        for (captured, calls) in [(true, 4), (false, 12)] {
            let mut common = Common::default();
            (common.captured, common.device) = (captured, "cpu".into());
            common.lazy = captured.then(Default::default);
            let store = Store::new(common.device().unwrap());
            let start = teeny_nn::Init::Uniform { low: 1.0, high: 2.0 };
            let w = store.root().param("w", (2,), start).unwrap();
            let count = Cell::new(0);
            let mut step = Step::new(&common, &store, |x| {
                count.set(count.get() + 1);
                x[0].mul(w.value())?.sum_all()
            })
            .unwrap();
            for i in 0..12 {
                let n = if i % 3 == 2 { 1 } else { 4 };
                let x = Tensor::full((n, 2), i as f32, DType::F32, store.device()).unwrap();
                let (loss, gradients) = step.run(vec![x]).unwrap();
                let want = (n * i) as f32;
                assert_eq!(gradients.get(&w.value()).unwrap().to_vec::<f32>().unwrap(), [want; 2]);
                let sum: f32 = w.value().to_vec::<f32>().unwrap().iter().sum();
                assert!((loss.item::<f32>().unwrap() - want * sum).abs() < 1e-3 * want.max(1.0));
            }
            assert_eq!(count.get(), calls, "{captured:?}");
        }
    }
}
