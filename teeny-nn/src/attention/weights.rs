//! Collects the attention weights of a forward pass, for a caller outside the model.

use std::cell::RefCell;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

thread_local! {
    /// The weights that [`with_weights`] collects on this thread.
    static COLLECTED: RefCell<Option<Vec<Tensor>>> = const { RefCell::new(None) };
}

/// Runs `forward` and returns its result with the attention weights of each call of a
/// [`super::MultiheadAttention`] on this thread, in the order of the calls. A forward pass of a
/// model, also of a pretrained one, calls each layer once.
///
/// Weights are (B, n_head, T, S), of T queries and S keys: each row sums to 1, masked keys have 0.
/// They are taken before dropout; if heads are split over ranks, only this rank's heads are
/// returned. Attention does not store weights outside this call.
///
/// # Errors
/// If `forward` fails, or no layer ran, as in a call of a captured function after the first one.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::attention::{self, AttentionOptions, MultiheadAttention};
/// use teeny_nn::{Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let layer = MultiheadAttention::new(&store.at("attn"), 32, 4)?;
/// let x = Tensor::randn((2, 5, 32), DType::F32, store.device())?; // (B, T, E)
/// let (y, weights) = attention::with_weights(|| layer.attend(&x, AttentionOptions::causal()))?;
/// assert_eq!(y.shape(), x.shape());
/// assert_eq!(weights[0].shape()[..], [2, 4, 5, 5]); // (B, n_head, T, S)
/// # Ok(()) }
/// ```
/// Equivalent: `need_weights` of `torch.nn.MultiheadAttention` with `average_attn_weights=False`;
/// `output_attentions` of the models of transformers.
#[doc(alias = "need_weights")]
#[doc(alias = "output_attentions")]
#[track_caller]
pub fn with_weights<T>(forward: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Tensor>)> {
    struct Restore(Option<Vec<Tensor>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            COLLECTED.set(self.0.take());
        }
    }
    let restore = Restore(COLLECTED.replace(Some(Vec::new())));
    let result = forward()?;
    let weights = COLLECTED.take().unwrap_or_default();
    drop(restore);
    if weights.is_empty() {
        let _op = enter("with_weights");
        return Err(Error::value("no attention layer ran on this thread")
            .help("call the layers themselves: a captured function does not call them again"));
    }
    Ok((result, weights))
}

/// Whether weights are collected on this thread.
pub(crate) fn is_collecting() -> bool {
    COLLECTED.with_borrow(Option::is_some)
}

/// Adds `weights` (B, n_head, T, S) to those that are collected.
pub(super) fn collect(weights: Tensor) {
    COLLECTED.with_borrow_mut(|collected| {
        if let Some(collected) = collected {
            collected.push(weights);
        }
    });
}
