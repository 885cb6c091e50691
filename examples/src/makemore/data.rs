//! Training examples on the device, and names sampled from a model.

use super::Model;
use teeny_autograd::no_grad;
use teeny_core::{DType, DeviceRef, Key, Result, Tensor};
use teeny_nn::Store;
use teeny_nn::loss::Reduction;
use teeny_text::Sampler;
use teeny_text::names::{Names, PADDING};

/// Inputs and targets in one tensor, so that a batch is one gather.
pub struct Examples {
    /// (N, inputs + targets) of `I32`.
    rows: Tensor,
    inputs: usize,
}

impl Examples {
    /// The examples of `model` from `names`: a window and the character after it, or a name and the
    /// character after each of its characters.
    ///
    /// # Errors
    /// If a name is longer than the model's context, or the device fails.
    pub fn of(names: &Names, model: &Model, device: &DeviceRef) -> Result<Examples> {
        let (x, y) = match model.arch.window() {
            Some(context) => names.windows(context, device)?, // (N, context), (N)
            None => names.sequences(model.context, device)?,  // (N, T), (N, T)
        };
        let y = y.reshape((x.shape()[0], y.numel() / x.shape()[0].max(1)))?; // (N, 1) or (N, T)
        Ok(Examples { rows: Tensor::cat(&[&x, &y], 1)?, inputs: x.shape()[1] })
    }

    /// The number of examples.
    pub fn len(&self) -> usize {
        self.rows.shape()[0]
    }

    /// Whether it has no examples.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inputs and targets of `rows`.
    fn parts(&self, rows: &Tensor) -> Result<(Tensor, Tensor)> {
        Ok((rows.slice(1, ..self.inputs)?, rows.slice(1, self.inputs..)?))
    }

    /// Samples `batch` examples with replacement: x (B, inputs), y (B, targets). The random numbers
    /// are drawn on the device, so nothing waits for it.
    ///
    /// # Errors
    /// If it has no examples.
    pub fn draw(&self, batch: usize) -> Result<(Tensor, Tensor)> {
        let index = Tensor::randint(0, self.len() as i64, (batch,), DType::I32, &self.rows)?; // (B)
        self.parts(&self.rows.index_select(0, &index)?)
    }

    /// The mean loss of all examples; NaN without examples.
    ///
    /// # Errors
    /// If the device fails.
    pub fn loss(&self, model: &Model, store: &Store) -> Result<f64> {
        store.set_training(false);
        let loss = no_grad(|| {
            // sequences take more memory than windows
            let step = if model.arch.window().is_some() { 8192 } else { 1024 };
            let (mut sum, mut count) = (0.0, 0);
            for from in (0..self.len()).step_by(step) {
                let (x, y) =
                    self.parts(&self.rows.slice(0, from..(from + step).min(self.len()))?)?;
                sum += model.loss(&x, &y, Reduction::Sum)?.item::<f32>()? as f64;
                count += y.ne(PADDING)?.sum_all()?.item::<i64>()?;
            }
            Ok(sum / count as f64)
        });
        store.set_training(true);
        loss
    }
}

/// Generates `count` names one character at a time from `logits`: (B, context) → (B, V) or
/// (B, T, V). A name has at most `limit` characters; the context of a window model is `window`.
///
/// # Errors
/// If the device fails, or the logits are not finite.
pub fn sample(
    logits: impl Fn(&Tensor) -> Result<Tensor>,
    window: Option<usize>,
    names: &Names,
    sampler: &Sampler,
    (count, limit, seed): (usize, usize, u64),
    device: &DeviceRef,
) -> Result<Vec<String>> {
    no_grad(|| {
        let before = window.unwrap_or(1);
        // (B, before): only `.`
        let mut tokens = Tensor::zeros((count, before), DType::I32, device)?;
        for i in 0..limit {
            // (B, context)
            let x = tokens.slice(1, -(window.unwrap_or(tokens.shape()[1]) as isize)..)?;
            let scores = logits(&x)?;
            let scores = if window.is_some() { scores } else { scores.at(1, -1)? }; // (B, V)
            let next = sampler.draw(&scores, Key { seed, draw: i as u64 })?; // (B)
            tokens = Tensor::cat(&[&tokens, &next.unsqueeze(1)?], 1)?;
        }
        let generated = tokens.slice(1, before..)?.to_vec::<i32>()?; // (B, limit)
        generated
            .chunks(limit.max(1))
            .map(|row| names.spell(&row.iter().map(|&token| token as u32).collect::<Vec<_>>()))
            .collect()
    })
}
