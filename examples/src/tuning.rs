//! Parts of the program `finetune`: steps over parts of a batch, the memory they take, and when to
//! stop.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use teeny_autograd::{Grad, Gradients, no_grad};
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Result, Tensor};
use teeny_cpu::Cpu;
use teeny_models::{Decoder, Encoder, LabeledBatch, PairBatch};
use teeny_nn::Param;
use teeny_nn::data::Dataset;
use teeny_nn::transformer::CausalBatch;

/// How a step is divided to fit into memory. Each division computes the same gradients, with sums
/// in another order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Division {
    /// Texts whose gradients are computed at a time.
    pub texts: usize,
    /// Tokens whose logits exist at a time.
    pub slice: usize,
    /// Whether blocks are computed again in the backward pass.
    pub checkpoints: bool,
}

impl Division {
    /// The divisions of batches of `batch` texts, from the fastest to the one of the least memory.
    pub fn all(batch: usize) -> Vec<Division> {
        let halves = std::iter::successors(Some(batch), |&n| (n > 1).then(|| n.div_ceil(2)));
        let of = |texts| {
            [(1024, false), (1024, true), (64, true)].map(|(slice, checkpoints)| Division {
                texts,
                slice,
                checkpoints,
            })
        };
        halves.flat_map(of).collect()
    }
}

/// A model with its training data and loss.
pub trait Learner {
    /// A part of a batch.
    type Batch;
    /// Whether the loss of a batch is the sum of the losses of its parts.
    const DIVISIBLE: bool = true;

    /// The number of losses in a batch, of which the mean is taken.
    fn count(batch: &Self::Batch) -> usize;

    /// The sum of the losses of a batch ().
    ///
    /// # Errors
    /// If the batch does not fit to the model, or the device fails.
    fn loss(&self, batch: &Self::Batch, division: Division) -> Result<Tensor>;

    /// The model's answer to `prompt`, for a report; none if it has no answers.
    ///
    /// # Errors
    /// If the model fails.
    fn answer(&self, prompt: &str) -> Result<Option<String>> {
        let _ = prompt;
        Ok(None)
    }
}

/// A decoder that learns next tokens.
pub struct NextTokens<'m> {
    /// The model.
    pub decoder: &'m Decoder,
    /// Whether it is trained on conversations.
    pub chat: bool,
}

impl Learner for NextTokens<'_> {
    type Batch = CausalBatch;

    fn count(batch: &CausalBatch) -> usize {
        batch.targets.numel()
    }

    fn loss(&self, batch: &CausalBatch, division: Division) -> Result<Tensor> {
        self.decoder.model.set_checkpoints(division.checkpoints);
        self.decoder.model.loss(batch, division.slice)
    }

    /// Decodes at most 60 tokens, greedily.
    fn answer(&self, prompt: &str) -> Result<Option<String>> {
        let mut config = self.decoder.generation.clone();
        (config.max_new_tokens, config.do_sample) = (60, false);
        let on = |_: &str| ControlFlow::Continue(());
        let context = self.decoder.model.config().context;
        let completion = match self.chat {
            true => self.decoder.chat(context, Vec::new())?.send(prompt, &config, on),
            false => self.decoder.complete(prompt, &config, on),
        }?;
        Ok(Some(completion.text))
    }
}

/// An encoder that learns the classes of texts.
pub struct Classes<'m>(pub &'m Encoder);

impl Learner for Classes<'_> {
    type Batch = LabeledBatch;

    fn count(batch: &LabeledBatch) -> usize {
        batch.labels.numel()
    }

    fn loss(&self, batch: &LabeledBatch, _: Division) -> Result<Tensor> {
        batch.loss(self.0)?.mul(Self::count(batch) as f64)
    }

    fn answer(&self, prompt: &str) -> Result<Option<String>> {
        let class = self.0.classify_texts(&[prompt])?.argmax(-1)?.cast(DType::I64)?; // (1)
        let class = class.item::<i64>()? as usize;
        Ok(self.0.head.as_ref().and_then(|head| head.labels.get(class).cloned()))
    }
}

/// An encoder that learns which texts belong together, from the other pairs of a batch.
pub struct Pairs<'m>(pub &'m Encoder);

impl Learner for Pairs<'_> {
    type Batch = PairBatch;
    const DIVISIBLE: bool = false;

    fn count(batch: &PairBatch) -> usize {
        batch.anchors.inputs().tokens.shape()[0]
    }

    fn loss(&self, batch: &PairBatch, _: Division) -> Result<Tensor> {
        batch.loss(self.0, 20.0)?.mul(Self::count(batch) as f64)
    }
}

/// The batches of a data set, each in parts of some texts of similar lengths.
pub struct Parts<'d, D> {
    /// All texts.
    pub data: &'d D,
    /// The tokens of each.
    pub lengths: &'d [usize],
    /// Texts of a part.
    pub texts: usize,
}

impl<D: Dataset> Dataset for Parts<'_, D> {
    type Batch = Vec<D::Batch>;

    fn len(&self) -> usize {
        self.data.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Vec<D::Batch>> {
        let mut order = indices.to_vec();
        let length = |&i: &usize| self.lengths.get(i).copied();
        order.sort_by_key(length); // stable: the same order in every run
        order.chunks(self.texts).map(|part| self.data.batch(part, epoch)).collect()
    }
}

/// Steps of a learner whose trained parameters are `params`.
pub struct Tuning<L> {
    /// The learner.
    pub learner: L,
    /// The parameters that are trained.
    pub params: Vec<Param>,
    /// How a step is divided.
    pub division: Division,
}

impl<L: Learner> Tuning<L> {
    /// The mean loss () of all parts, and its gradients.
    ///
    /// # Errors
    /// As [`Learner::loss`].
    pub fn gradients(&self, parts: &[L::Batch]) -> Result<(Tensor, Gradients)> {
        let count: usize = parts.iter().map(L::count).sum();
        let (mut sum, mut gradients) = (None, Gradients::new());
        for part in parts {
            let loss = self.learner.loss(part, self.division)?.div(count as f64)?; // ()
            gradients.accumulate(&loss.backward()?)?;
            let loss = loss.detach()?;
            sum = Some(match sum {
                Some(sum) => loss.add(&sum)?,
                None => loss,
            });
        }
        let sum = sum.ok_or_else(|| Error::value("a batch without texts"))?;
        Ok((sum, gradients))
    }

    /// The mean loss of all of `data`, in parts of the same size as in a step.
    ///
    /// # Errors
    /// As [`Tuning::gradients`].
    pub fn evaluate<D: Dataset<Batch = L::Batch>>(
        &self,
        data: &D,
        lengths: &[usize],
    ) -> Result<f64> {
        let parts = Parts { data, lengths, texts: self.division.texts }.all()?;
        let (mut sum, mut count) = (0.0, 0);
        for part in &parts {
            let loss = no_grad(|| self.learner.loss(part, self.division))?; // ()
            sum += f64::from(loss.cast(DType::F32)?.item::<f32>()?);
            count += L::count(part);
        }
        Ok(sum / count as f64)
    }

    /// Chooses the fastest division of batches of `batch` texts that fits into the memory limit of
    /// the device, by steps of the longest texts, beside the state of an optimizer. Returns the
    /// time of a step.
    ///
    /// # Errors
    /// If no division fits, or a step fails.
    pub fn fit<D: Dataset<Batch = L::Batch>>(
        &mut self,
        data: &D,
        lengths: &[usize],
        batch: usize,
    ) -> Result<Duration> {
        let mut longest: Vec<usize> = (0..data.len()).collect();
        longest.sort_by_key(|&i| std::cmp::Reverse(lengths.get(i)));
        longest.truncate(batch);
        let mut last = None;
        let whole = longest.len();
        let divisions = Division::all(whole).into_iter();
        for division in divisions.filter(|division| L::DIVISIBLE || division.texts == whole) {
            self.division = division;
            match self.step_time(data, lengths, &longest) {
                Err(error) if error.kind() == ErrorKind::OutOfMemory => last = Some(error),
                other => return other,
            }
        }
        let error = last.unwrap_or_else(|| Error::value("no texts"));
        Err(error.note(format!("for {} texts at a time", self.division.texts)))
    }

    fn step_time<D: Dataset<Batch = L::Batch>>(
        &self,
        data: &D,
        lengths: &[usize],
        indices: &[usize],
    ) -> Result<Duration> {
        let zeros = |p: &Param| {
            let value = p.value();
            Tensor::zeros(value.shape(), value.dtype(), &value)
        };
        // Adam keeps two numbers for each parameter
        let state = (0..2).map(|_| self.params.iter().map(zeros).collect::<Result<Vec<_>>>());
        let state = state.collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        let parts = Parts { data, lengths, texts: self.division.texts }.batch(indices, 0)?;
        let (loss, gradients) = self.gradients(&parts)?;
        loss.device().synchronize()?;
        let time = start.elapsed();
        drop((state, gradients));
        Ok(time)
    }
}

/// The CPU engine of a device, if it has one.
pub fn cpu_of(device: &DeviceRef) -> Option<&Cpu> {
    let mut device = device;
    loop {
        if let Some(cpu) = device.downcast_ref::<Cpu>() {
            return Some(cpu);
        }
        device = device.inner()?;
    }
}

/// A number of bytes: `4GB`, `512MB`, `1.5GiB`.
///
/// # Errors
/// If `text` is not a number of bytes.
pub fn bytes(text: &str) -> std::result::Result<Option<usize>, String> {
    let upper = text.to_uppercase();
    let units: [(&str, f64); 6] = [
        ("GIB", (1u64 << 30) as f64),
        ("MIB", (1u64 << 20) as f64),
        ("GB", 1e9),
        ("MB", 1e6),
        ("G", 1e9),
        ("M", 1e6),
    ];
    let of = |(end, unit): &(&str, f64)| {
        Some(upper.strip_suffix(end)?.trim().parse::<f64>().ok()? * unit)
    };
    match units.iter().find_map(of) {
        Some(bytes) if bytes.is_finite() && bytes >= 1.0 => Ok(Some(bytes as usize)),
        _ => Err(format!("expected a size such as 4GB or 512MB, got {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn divisions_become_smaller_and_end_at_one_text() {
        let all = Division::all(5);
        let texts: Vec<usize> = all.iter().map(|division| division.texts).collect();
        assert_eq!(texts, [5, 5, 5, 3, 3, 3, 2, 2, 2, 1, 1, 1]);
        assert_eq!(all[0], Division { texts: 5, slice: 1024, checkpoints: false });
        assert_eq!(all[11], Division { texts: 1, slice: 64, checkpoints: true });
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(bytes("4GB"), Ok(Some(4_000_000_000)));
        assert_eq!(bytes("1.5 GiB"), Ok(Some(3 << 29)));
        assert_eq!(bytes("512m"), Ok(Some(512_000_000)));
        for bad in ["4", "GB", "-1GB", "nanGB", "infGB", "0MB", "4TB"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
    }
}
