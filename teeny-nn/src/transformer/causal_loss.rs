//! The loss of a [`CausalLm`] on next tokens, without the logits of all tokens at a time.
//!
//! The naive form is `cross_entropy(model.logits(tokens), targets)`: logits and their gradient are
//! (tokens, vocabulary) each, for a small model more memory than everything else. Here only states
//! whose next token counts go to the head, in slices, and the backward pass recomputes their
//! logits.

use super::causal_lm::CausalLm;
use crate::loss::{CrossEntropy, Reduction};
use teeny_autograd::checkpoint;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// The tokens of a batch of texts, and those that count in the loss.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CausalBatch {
    /// (B, T) of integers; shorter texts are padded at the end with any token.
    pub tokens: Tensor,
    /// (N) of integers: the places `b T + t` whose next token counts.
    pub positions: Tensor,
    /// (N) of integers: those next tokens.
    pub targets: Tensor,
}

impl CausalBatch {
    /// A batch of these tensors.
    pub fn new(tokens: Tensor, positions: Tensor, targets: Tensor) -> CausalBatch {
        CausalBatch { tokens, positions, targets }
    }
}

impl CausalLm {
    /// The sum of the losses `-log p(target)` of a batch, for which the logits of at most `slice`
    /// tokens exist at a time → (). Divided by the number of targets, of one batch or of several
    /// whose gradients add up, it is the mean.
    ///
    /// # Errors
    /// As [`CausalLm::logits`]; if `slice` is 0, `positions` and `targets` are not (N) with N > 0,
    /// or a position or target is out of range.
    ///
    /// # Example
    /// ```
    /// use teeny_core::Tensor;
    /// use teeny_nn::transformer::{CausalBatch, CausalLm, CausalLmConfig};
    /// use teeny_nn::{Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let store = Store::new(&device("cpu")?);
    /// let model = CausalLm::new(&store.root(), CausalLmConfig::new(65, 32, 2, 4, 16, 40))?;
    /// let tokens = Tensor::new([[1i32, 2, 3]], store.device())?; // (B, T)
    /// let positions = Tensor::new([0i32, 1], store.device())?; // (N)
    /// let targets = Tensor::new([2i32, 3], store.device())?; // (N)
    /// let batch = CausalBatch::new(tokens, positions, targets);
    /// let loss = model.loss(&batch, 1024)?.div(2.0)?; // ()
    /// assert!(loss.item::<f32>()? > 0.0);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn loss(&self, batch: &CausalBatch, slice: usize) -> Result<Tensor> {
        let _op = enter("causal_lm loss");
        let (positions, targets) = (&batch.positions, &batch.targets);
        let count = positions.numel();
        if slice == 0 || count == 0 || positions.ndim() != 1 || targets.shape() != positions.shape()
        {
            let text = format!(
                "cannot compute a loss at positions {} with targets {}, {slice} at a time",
                positions.shape(),
                targets.shape()
            );
            return Err(Error::shape(text).help("positions and targets are (N); N is at least one"));
        }
        let x = self.hidden(&batch.tokens)?.flatten(0, 1)?; // (B T, E)
        let x = x.index_select(0, positions)?; // (N, E)
        let parts = count.div_ceil(slice);
        let sizes: Vec<usize> = (0..parts).map(|i| slice.min(count - i * slice)).collect();
        let mut sum: Option<Tensor> = None;
        let (xs, all) = (x.split_sizes(0, &sizes)?, targets.split_sizes(0, &sizes)?);
        for (x, targets) in xs.iter().zip(all) {
            let head = self.head_of();
            let body = move |x: &[Tensor]| {
                let loss = CrossEntropy::new().with_reduction(Reduction::Sum);
                loss.loss(&head.logits(&x[0])?, &targets) // ()
            };
            let part = checkpoint(body, &[x])?;
            sum = Some(match sum {
                Some(sum) => sum.add(&part)?,
                None => part,
            });
        }
        sum.ok_or_else(|| Error::internal("a loss of no parts"))
    }
}
