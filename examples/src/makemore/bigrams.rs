//! Counts of character pairs: a model without training, and the exact loss of the network that
//! learns the same probabilities.

use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_text::names::Names;

/// The count of each pair of characters.
pub struct Bigrams {
    /// (V, V) of `F32`: one row per first character.
    pub counts: Tensor,
    table: Vec<f64>,
    vocab: usize,
}

impl Bigrams {
    /// Counts the pairs of all names, with a `.` before and after each name.
    ///
    /// # Errors
    /// If the device fails.
    pub fn of(names: &Names, vocab: usize, device: &DeviceRef) -> Result<Bigrams> {
        let (x, y) = names.windows(1, device)?; // (N, 1), (N)
        let pairs = x.reshape(-1)?.mul(vocab as i32)?.add(&y)?; // (N)
        let counts = Tensor::zeros(vocab * vocab, DType::F32, device)?; // (V V)
        // (V, V)
        let counts = counts
            .scatter_add(0, &pairs, &Tensor::ones(pairs.numel(), DType::F32, device)?)?
            .reshape((vocab, vocab))?;
        let table = counts.to_vec::<f32>()?.into_iter().map(f64::from).collect();
        Ok(Bigrams { counts, table, vocab })
    }

    /// The number of pairs.
    pub fn total(&self) -> f64 {
        self.table.iter().sum()
    }

    /// `log P(b | a)` with `smoothing` added to every count, (V, V) row by row.
    fn log_probabilities(&self, smoothing: f64) -> Vec<f64> {
        let row = |row: &[f64]| -> Vec<f64> {
            let sum: f64 = row.iter().map(|n| n + smoothing).sum();
            row.iter().map(|n| ((n + smoothing) / sum).ln()).collect()
        };
        self.table.chunks(self.vocab).flat_map(row).collect()
    }

    /// The mean negative log-likelihood of the pairs in `data` by these counts with `smoothing` added
    /// to each; infinite if `smoothing` is 0 and the count of a pair is 0.
    pub fn loss(&self, data: &Bigrams, smoothing: f64) -> f64 {
        let log_p = self.log_probabilities(smoothing);
        let pairs = data.table.iter().zip(&log_p).filter(|(n, _)| **n > 0.0);
        -pairs.map(|(n, log_p)| n * log_p).sum::<f64>() / data.total()
    }

    /// The logits of the next character. Shapes: windows (B, 1) → (B, V).
    ///
    /// # Errors
    /// If the device fails.
    pub fn logits(&self, x: &Tensor, smoothing: f64) -> Result<Tensor> {
        let logits: Vec<f32> =
            self.log_probabilities(smoothing).into_iter().map(|v| v as f32).collect();
        Tensor::from_vec(logits, (self.vocab, self.vocab), x)?.index_select(0, &x.reshape(-1)?)
    }

    /// The mean cross-entropy of the logits `w` (V, V) over all pairs: the loss of each pair is
    /// weighted with its count.
    ///
    /// # Errors
    /// If `w` has another shape.
    pub fn loss_of(&self, w: &Tensor) -> Result<Tensor> {
        w.log_softmax(1)?.mul(&self.counts)?.sum_all()?.mul(-1.0 / self.total())
    }
}
