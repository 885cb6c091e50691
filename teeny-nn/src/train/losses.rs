//! The losses of a run, read from the device several at a time: a read waits for all earlier
//! operations, after which an asynchronous device would be idle.

use super::require_finite;
use crate::options::setters;
use crate::state::Stateful;
use teeny_autograd::Grad;
use teeny_core::context::{continued, enter};
use teeny_core::{Reference, Result, Tensor};
use teeny_formats::State;

/// The default number of losses per read.
const EVERY: usize = 50;

/// Losses by step. They stay on the device until there are enough for one read; a loss that is NaN
/// or infinite is an error.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_nn::train::Losses;
/// # fn main() -> teeny_core::Result<()> {
/// # let device = Reference::new();
/// let mut losses = Losses::new().every(2);
/// for step in 0..5 {
///     let loss = Tensor::new(1.0f32 / (step + 1) as f32, &device)?; // ()
///     if let [.., (step, loss)] = losses.push(&loss)? {
///         println!("step {step}: loss {loss:.3}");
///     }
/// }
/// losses.read()?; // the remaining ones
/// assert_eq!(losses.values().len(), 5);
/// assert_eq!(losses.values()[3], (3, 0.25));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Losses {
    every: usize,
    /// The step of the first loss that was pushed.
    first: u64,
    unread: Vec<Tensor>,
    values: Vec<(u64, f64)>,
}

impl Default for Losses {
    fn default() -> Losses {
        Losses::new()
    }
}

impl Losses {
    /// An empty list; losses are read 50 at a time, and the first belongs to step 0.
    pub fn new() -> Losses {
        Losses { every: EVERY, first: 0, unread: Vec::new(), values: Vec::new() }
    }

    setters! {
        /// Sets the number of losses per read; 1 reads every loss at once.
        every(n: usize) => every = n.max(1);
        /// Sets the step of the first loss, for a resumed run.
        from_step(step: u64) => first = step;
    }

    /// Adds the loss of the next step, a tensor with one element of any float dtype. Returns the
    /// steps and losses that this call has read, usually none.
    ///
    /// # Errors
    /// If a loss is NaN or infinite: the error names its step, the losses before it are kept, and
    /// every later call is the same error. If the device fails, perhaps in an earlier step: this
    /// loss is then not added.
    #[track_caller]
    pub fn push(&mut self, loss: &Tensor) -> Result<&[(u64, f64)]> {
        let _op = enter("losses.push");
        self.unread.push(loss.detach()?.reshape(())?); // ()
        if self.unread.len() < self.every {
            return Ok(&[]);
        }
        let known = self.values.len();
        let read = self.fetch().inspect_err(|_| drop(self.unread.pop()))?;
        self.keep(read)?;
        Ok(&self.values[known..])
    }

    /// Reads the losses that are still on the device, in one transfer, and returns them.
    ///
    /// # Errors
    /// As [`Losses::push`].
    #[track_caller]
    pub fn read(&mut self) -> Result<&[(u64, f64)]> {
        let _op = enter("losses.read");
        let known = self.values.len();
        if !self.unread.is_empty() {
            let read = self.fetch()?;
            self.keep(read)?;
        }
        Ok(&self.values[known..])
    }

    /// [`Losses::push`] as a future, which waits where that reads. Dropped before its end, it has
    /// added the loss and read nothing.
    ///
    /// # Errors
    /// As [`Losses::push`].
    #[track_caller]
    pub fn push_async<'a>(
        &'a mut self,
        loss: &Tensor,
    ) -> impl Future<Output = Result<&'a [(u64, f64)]>> + use<'a> {
        let _op = enter("losses.push_async");
        let added = loss.detach().and_then(|loss| loss.reshape(())).map(|loss| {
            self.unread.push(loss); // ()
            self.unread.len() >= self.every
        });
        let reading = added.as_ref().is_ok_and(|full| *full).then(|| self.fetch_async());
        continued(async move {
            added?;
            let known = self.values.len();
            if let Some(reading) = reading {
                let read = reading.await.inspect_err(|_| drop(self.unread.pop()))?;
                self.keep(read)?;
            }
            Ok(&self.values[known..])
        })
    }

    /// [`Losses::read`] as a future. It returns the losses at the time of the call.
    ///
    /// # Errors
    /// As [`Losses::push`].
    ///
    /// # Example
    /// ```
    /// # use teeny_core::{Reference, Result, Tensor};
    /// # use teeny_nn::train::Losses;
    /// # async fn train() -> Result<()> {
    /// # let device = Reference::new();
    /// let mut losses = Losses::new();
    /// for step in 0..100 {
    ///     losses.push_async(&Tensor::new(0.5f32, &device)?).await?; // reads every 50th time
    /// }
    /// losses.read_async().await?;
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn read_async(&mut self) -> impl Future<Output = Result<&[(u64, f64)]>> {
        let _op = enter("losses.read_async");
        let reading = (!self.unread.is_empty()).then(|| self.fetch_async());
        continued(async move {
            let known = self.values.len();
            if let Some(reading) = reading {
                let read = reading.await?;
                self.keep(read)?;
            }
            Ok(&self.values[known..])
        })
    }

    /// [`Losses::fetch`], begun.
    fn fetch_async(&self) -> impl Future<Output = Result<Vec<f64>>> + use<> {
        let losses = Tensor::stack(&self.unread, 0); // (unread)
        let reading = losses.map(|losses| losses.to_scalars_async());
        async { Ok(reading?.await?.into_iter().map(|loss| loss.to_f64()).collect()) }
    }

    /// The losses that are still on the device.
    fn fetch(&self) -> Result<Vec<f64>> {
        // (unread)
        let losses = Tensor::stack(&self.unread, 0)?.to_scalars()?;
        Ok(losses.into_iter().map(|loss| loss.to_f64()).collect())
    }

    /// Stores the losses up to the first that is not finite; that one and those after it stay
    /// unread.
    fn keep(&mut self, read: Vec<f64>) -> Result<()> {
        let good = read.iter().take_while(|loss| loss.is_finite()).count();
        let first = self.first + self.values.len() as u64;
        self.values.extend((first..).zip(read[..good].iter().copied()));
        self.unread.drain(..good);
        match read.get(good) {
            Some(bad) => require_finite("loss", *bad, (first + good as u64) as usize).map(|_| ()),
            None => Ok(()),
        }
    }

    /// The losses that have been read, by step.
    pub fn values(&self) -> &[(u64, f64)] {
        &self.values
    }

    /// The latest loss that has been read; NaN before the first.
    pub fn last(&self) -> f64 {
        self.values.last().map_or(f64::NAN, |(_, loss)| *loss)
    }

    /// The mean of the last `n` losses that have been read, or of all if there are fewer; NaN if
    /// none has been read.
    pub fn mean(&self, n: usize) -> f64 {
        let last = &self.values[self.values.len().saturating_sub(n)..];
        last.iter().map(|(_, loss)| loss).sum::<f64>() / last.len() as f64
    }

    /// The losses that have been read, as points of a [`teeny_viz::Plot`].
    pub fn curve(&self) -> Vec<(f64, f64)> {
        self.values.iter().map(|&(step, loss)| (step as f64, loss)).collect()
    }
}

/// The losses that have been read.
impl Stateful for Losses {
    fn state(&self) -> Result<State> {
        let mut state = State::default().with("first", self.values.first().map_or(0, |x| x.0));
        let exact = |&(_, loss): &(u64, f64)| f64::from(loss as f32) == loss;
        let (len, device) = (self.values.len(), Reference::new());
        let values = self.values.iter().map(|(_, loss)| *loss);
        // of the type that devices have, unless a loss needs more
        let values = match self.values.iter().all(exact) {
            true => Tensor::from_vec(values.map(|loss| loss as f32).collect(), len, device)?,
            false => Tensor::from_vec(values.collect(), len, device)?,
        };
        state.tensors.insert("values".to_string(), values);
        Ok(state)
    }

    fn set_state(&mut self, state: &State) -> Result<()> {
        let (first, values) = (state.get("first")?, state.tensor("values")?.to_scalars()?);
        self.values = (first..).zip(values.into_iter().map(|loss| loss.to_f64())).collect();
        (self.first, self.unread) = (first, Vec::new());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_autograd::Autograd;
    use teeny_core::{DType, Reference};

    /// Runs a future whose reads are ready at once.
    fn run<T>(future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        loop {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(&mut context) {
                return value;
            }
        }
    }

    #[test]
    fn losses_are_read_several_at_a_time_and_keep_their_steps() {
        let device = Autograd::new(Reference::new());
        let w = Tensor::new(2.0f64, &device).unwrap().requires_grad().unwrap();
        let mut losses = Losses::new().every(3).from_step(10);
        assert!(losses.last().is_nan() && losses.mean(5).is_nan());
        let sizes: Vec<usize> =
            (0..7).map(|i| losses.push(&w.mul(i as f64).unwrap()).unwrap().len()).collect();
        assert_eq!(sizes, [0, 0, 3, 0, 0, 3, 0]);
        assert_eq!(losses.read().unwrap(), [(16, 12.0)]);
        assert!(losses.read().unwrap().is_empty());
        assert_eq!(losses.values()[0], (10, 0.0));
        assert_eq!((losses.last(), losses.mean(2), losses.mean(100)), (12.0, 11.0, 6.0));
        assert_eq!(losses.curve()[6], (16.0, 12.0));
    }

    #[test]
    fn losses_that_are_awaited_are_those_that_are_waited_for() {
        let device = Autograd::new(Reference::new());
        let w = Tensor::new(2.0f64, &device).unwrap().requires_grad().unwrap();
        let mut losses = Losses::new().every(3).from_step(10);
        let sizes: Vec<usize> = (0..7)
            .map(|i| run(losses.push_async(&w.mul(i as f64).unwrap())).unwrap().len())
            .collect();
        assert_eq!(sizes, [0, 0, 3, 0, 0, 3, 0]);
        assert_eq!(run(losses.read_async()).unwrap(), [(16, 12.0)]);
        assert!(run(losses.read_async()).unwrap().is_empty());
        drop(losses.push_async(&w)); // never polled: added, not read
        assert_eq!(run(losses.read_async()).unwrap(), [(17, 2.0)]);
        losses.push(&w.div(0.0).unwrap()).unwrap();
        let error = run(losses.read_async()).unwrap_err().to_string();
        assert!(error.contains(": loss is inf at step 18"), "{error}");
        let pair = Tensor::zeros((2,), DType::F32, &device).unwrap(); // (2)
        let error = run(losses.push_async(&pair)).unwrap_err().to_string();
        assert!(error.starts_with("losses.push_async at "), "{error}");
    }

    #[test]
    fn losses_of_any_float_type_and_one_element_are_read() {
        let device = Reference::new();
        let mut losses = Losses::new();
        for loss in [Tensor::new(0.5f32, &device), Tensor::full((1, 1), 0.5, DType::F32, &device)] {
            losses.push(&loss.unwrap()).unwrap();
        }
        assert_eq!(losses.read().unwrap(), [(0, 0.5), (1, 0.5)]);
        let mut losses = Losses::new().every(1);
        assert_eq!(
            losses.push(&Tensor::full((), 0.5, DType::BF16, &device).unwrap()).unwrap(),
            [(0, 0.5)]
        );
        assert!(
            losses.push(&Tensor::zeros((2,), DType::F32, &device).unwrap()).is_err(),
            "a loss has one element"
        );
    }

    #[test]
    fn a_loss_that_is_no_number_names_its_step() {
        let device = Reference::new();
        let mut losses = Losses::new().every(3).from_step(100);
        losses.push(&Tensor::new(1.0f32, &device).unwrap()).unwrap();
        losses.push(&Tensor::new(f32::NAN, &device).unwrap()).unwrap();
        let error = losses.push(&Tensor::new(2.0f32, &device).unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("training at ") && error.contains(file!()), "{error}");
        assert!(error.contains(": loss is NaN at step 101"), "{error}");
        assert_eq!(losses.values(), [(100, 1.0)]);
    }
}
