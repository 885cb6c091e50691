//! Parts of the program `finetune`: steps over parts of a batch, the memory they take, and when to
//! stop.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};
use teeny_autograd::{Grad, Gradients, no_grad};
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Result, Tensor};
use teeny_cpu::Cpu;
use teeny_nn::Param;
use teeny_nn::data::Dataset;
use teeny_nn::pretrained::{Decoder, TextSamples};
use teeny_nn::transformer::CausalBatch;

/// How a step is divided to fit into memory. No number of it changes what is learned, but for the
/// order of sums.
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

/// The batches of a data set, each in parts of some texts of similar lengths.
pub struct Parts<'d> {
    /// All texts.
    pub samples: &'d TextSamples,
    /// Texts of a part.
    pub texts: usize,
}

impl Dataset for Parts<'_> {
    type Batch = Vec<CausalBatch>;

    fn len(&self) -> usize {
        self.samples.len()
    }

    fn batch(&self, indices: &[usize], epoch: u64) -> Result<Vec<CausalBatch>> {
        let mut order = indices.to_vec();
        let length = |&i: &usize| self.samples.samples().get(i).map_or(0, |s| s.tokens.len());
        order.sort_by_key(length); // stable: the same order in every run
        order.chunks(self.texts).map(|part| self.samples.batch(part, epoch)).collect()
    }
}

/// Steps of a decoder whose trained parameters are `params`.
pub struct Tuning<'m> {
    /// The model.
    pub decoder: &'m Decoder,
    /// What is trained.
    pub params: Vec<Param>,
    /// How a step is divided.
    pub division: Division,
    /// Whether it is trained on conversations.
    pub chat: bool,
}

impl Tuning<'_> {
    /// The mean loss () of the tokens that count in all parts, and its gradients.
    ///
    /// # Errors
    /// As [`teeny_nn::transformer::CausalLm::loss`].
    pub fn gradients(&self, parts: &[CausalBatch]) -> Result<(Tensor, Gradients)> {
        let model = &self.decoder.model;
        model.set_checkpoints(self.division.checkpoints);
        let count: usize = parts.iter().map(|part| part.targets.numel()).sum();
        let (mut sum, mut gradients) = (None, Gradients::new());
        for part in parts {
            let loss = model.loss(part, self.division.slice)?.div(count as f64)?; // ()
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

    /// The mean loss of the tokens that count in all of `samples`.
    ///
    /// # Errors
    /// As [`Tuning::gradients`].
    pub fn evaluate(&self, samples: &TextSamples) -> Result<f64> {
        let all: Vec<usize> = (0..samples.len()).collect();
        let parts = Parts { samples, texts: self.division.texts }.batch(&all, 0)?;
        let (mut sum, mut count) = (0.0, 0);
        for part in &parts {
            let loss = no_grad(|| self.decoder.model.loss(part, self.division.slice))?; // ()
            sum += f64::from(loss.cast(DType::F32)?.item::<f32>()?);
            count += part.targets.numel();
        }
        Ok(sum / count as f64)
    }

    /// Chooses the fastest division of batches of `batch` texts that fits into the memory limit of
    /// the device, by steps of the longest texts, beside the state of an optimizer. Returns the time
    /// of a step.
    ///
    /// # Errors
    /// If no division fits, or a step fails.
    pub fn fit(&mut self, samples: &TextSamples, batch: usize) -> Result<Duration> {
        let mut longest: Vec<usize> = (0..samples.len()).collect();
        longest.sort_by_key(|&i| std::cmp::Reverse(samples.samples()[i].tokens.len()));
        longest.truncate(batch);
        let mut last = None;
        for division in Division::all(longest.len()) {
            self.division = division;
            match self.step_time(samples, &longest) {
                Err(error) if error.kind() == ErrorKind::OutOfMemory => last = Some(error),
                other => return other,
            }
        }
        let error = last.unwrap_or_else(|| Error::value("no texts"));
        Err(error.note("for one text at a time, with blocks computed again"))
    }

    fn step_time(&self, samples: &TextSamples, indices: &[usize]) -> Result<Duration> {
        let zeros = |p: &Param| {
            let value = p.value();
            Tensor::zeros(value.shape(), value.dtype(), &value)
        };
        // Adam keeps two numbers for each parameter
        let state = (0..2).map(|_| self.params.iter().map(zeros).collect::<Result<Vec<_>>>());
        let state = state.collect::<Result<Vec<_>>>()?;
        let start = Instant::now();
        let (loss, gradients) =
            self.gradients(&Parts { samples, texts: self.division.texts }.batch(indices, 0)?)?;
        loss.device().synchronize()?;
        let time = start.elapsed();
        drop((state, gradients));
        Ok(time)
    }

    /// The model's answer to `prompt`, as the first message of a conversation if it is trained on
    /// those; of at most `tokens` tokens, the most likely ones.
    ///
    /// # Errors
    /// If the model has no tokenizer, or the prompt is too long.
    pub fn answer(&self, prompt: &str, tokens: usize) -> Result<String> {
        let mut config = self.decoder.generation.clone();
        (config.max_new_tokens, config.do_sample) = (tokens, false);
        let on = |_: &str| ControlFlow::Continue(());
        let context = self.decoder.model.config().context;
        let completion = no_grad(|| match self.chat {
            true => self.decoder.chat(context, Vec::new())?.send(prompt, &config, on),
            false => self.decoder.complete(prompt, &config, on),
        })?;
        Ok(completion.text)
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
/// If it is none.
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
        _ => Err(format!("{text}: a size such as 4GB or 512MB")),
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
