//! The threads that own the models: each takes the requests that wait as a batch, computes it, and
//! sends each its results.
//!
//! ```text
//! handlers ─ Queue ─ Embedder: all texts at once ────────────── oneshot ─► handler
//!          ─ Queue ─ Writer:   prompts that fit the context ─── events ──► handler, or its stream
//! ```

use crate::metrics::{Metrics, Usage, WorkKind};
use crate::queue::{Job, Queue};
use crate::requests::{Prompt, Refusal, TextRequest};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;
use teeny_core::{DType, Error};
use teeny_models::{Decoder, Encoder, Finish, GenerationConfig};
use teeny_text::{EncodeOptions, Tokenizer};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// Embeddings of the texts of a request.
#[derive(Debug)]
pub struct Embeddings {
    /// A vector for each.
    pub rows: Vec<Vec<f32>>,
    /// The number of tokens of all.
    pub tokens: usize,
}

/// A request for embeddings.
pub struct EmbeddingJob {
    /// The texts.
    pub texts: Vec<String>,
    /// Takes the result.
    pub reply: oneshot::Sender<Result<Embeddings, Refusal>>,
    /// When the request came.
    pub since: Instant,
}

impl Job for EmbeddingJob {
    fn texts(&self) -> usize {
        self.texts.len()
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }
}

/// A part of the answer to a request for a text, the last of which is `Finished` or `Failed`.
#[derive(Debug)]
pub enum Event {
    /// More of the text.
    Text(String),
    /// The end: OpenAI's name of the reason, and the tokens.
    Finished(&'static str, Usage),
    /// The text ended with an error.
    Failed(Refusal),
}

/// A request for a text. An answer that is not read takes as much memory as its tokens.
pub struct TextJob {
    /// The prompt and its options.
    pub request: TextRequest,
    /// The seed of the draws.
    pub seed: u64,
    /// Takes the text. Generation stops when its other end is dropped.
    pub events: UnboundedSender<Event>,
    /// When the request came.
    pub since: Instant,
}

impl Job for TextJob {
    fn texts(&self) -> usize {
        1
    }

    fn is_abandoned(&self) -> bool {
        self.events.is_closed()
    }
}

/// Computes the batches of `queue` until it is closed and empty. A batch that panics is dropped,
/// which closes the channels of its requests.
pub fn work<J: Job>(queue: &Queue<J>, texts: usize, compute: impl Fn(Vec<J>)) {
    while let Some(jobs) = queue.take(texts) {
        let _ = catch_unwind(AssertUnwindSafe(|| compute(jobs)));
    }
}

/// The refusal of a request after a failure of the model or the device.
fn failed(error: &Error) -> Refusal {
    Refusal::new(500, error.message())
}

/// The worker of an encoder.
pub struct Embedder {
    /// The model.
    pub encoder: Encoder,
    /// The largest number of texts of a batch.
    pub batch: usize,
    /// Requests.
    pub queue: Arc<Queue<EmbeddingJob>>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

impl Embedder {
    /// Works until the queue is closed and empty.
    pub fn run(&self) {
        work(&self.queue, self.batch, |jobs| self.compute(jobs));
    }

    fn compute(&self, jobs: Vec<EmbeddingJob>) {
        let computed = self.embed(&jobs);
        let (mut rows, failure) = match computed {
            Ok(rows) => (rows.into_iter(), None),
            Err(error) => (Vec::new().into_iter(), Some(failed(&error))),
        };
        for job in jobs {
            let rows: Vec<_> = rows.by_ref().take(job.texts.len()).collect();
            let result = match &failure {
                Some(refusal) => Err(refusal.clone()),
                None if job.is_abandoned() => continue,
                None => self.embeddings(&job, rows),
            };
            let _ = job.reply.send(result); // the client may be gone
        }
    }

    /// A vector for each text of `jobs`; none, if all are abandoned.
    fn embed(&self, jobs: &[EmbeddingJob]) -> teeny_core::Result<Vec<Vec<f32>>> {
        let texts: Vec<&str> = jobs.iter().flat_map(|job| &job.texts).map(String::as_str).collect();
        let mut rows = Vec::with_capacity(texts.len());
        // a request may have more texts than a batch
        for texts in texts.chunks(self.batch) {
            if jobs.iter().all(Job::is_abandoned) {
                return Ok(Vec::new());
            }
            let vectors = self.encoder.embed_texts(texts)?.cast(DType::F32)?; // (N, E)
            let width = vectors.shape()[1].max(1);
            rows.extend(vectors.to_vec::<f32>()?.chunks(width).map(<[f32]>::to_vec));
            self.metrics.computed(WorkKind::Embeddings);
        }
        Ok(rows)
    }

    fn embeddings(&self, job: &EmbeddingJob, rows: Vec<Vec<f32>>) -> Result<Embeddings, Refusal> {
        let counts = job.texts.iter().map(|text| self.encoder.token_count(text));
        let tokens = counts.sum::<teeny_core::Result<usize>>().map_err(|error| failed(&error))?;
        let usage = Usage { prompt_tokens: tokens, new_tokens: 0 };
        self.metrics.finished(WorkKind::Embeddings, job.since.elapsed(), rows.len(), usage);
        Ok(Embeddings { rows, tokens })
    }
}

/// The worker of a decoder.
pub struct Writer {
    /// The model.
    pub decoder: Decoder,
    /// The largest number of texts of a batch.
    pub batch: usize,
    /// The largest number of tokens of a text, including its prompt.
    pub context: usize,
    /// Requests.
    pub queue: Arc<Queue<TextJob>>,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// A request whose prompt was accepted.
struct Ready {
    job: TextJob,
    prompt: Vec<u32>,
    config: GenerationConfig,
}

impl Writer {
    /// Works until the queue is closed and empty.
    pub fn run(&self) {
        work(&self.queue, self.batch, |jobs| self.compute(jobs));
    }

    fn compute(&self, jobs: Vec<TextJob>) {
        let context = self.decoder.model.config().context;
        let mut group: Vec<Ready> = Vec::new();
        let (mut longest, mut most) = (0, 0);
        for job in jobs {
            let (prompt, config) = match self.prepare(&job) {
                Ok(ready) => ready,
                Err(refusal) => {
                    let _ = job.events.send(Event::Failed(refusal));
                    continue;
                }
            };
            // shorter prompts are padded: those that would be cut otherwise than alone wait
            longest = prompt.len().max(longest);
            most = config.max_new_tokens.max(most);
            if longest + most > context {
                self.generate(std::mem::take(&mut group));
                (longest, most) = (prompt.len(), config.max_new_tokens);
            }
            group.push(Ready { job, prompt, config });
        }
        self.generate(group);
    }

    /// The tokens of the prompt, and how they are continued.
    fn prepare(&self, job: &TextJob) -> Result<(Vec<u32>, GenerationConfig), Refusal> {
        let request = &job.request;
        let tokenizer = self.decoder.tokenizer().map_err(|error| failed(&error))?;
        let (param, tokens) = match &request.prompt {
            Prompt::Messages(messages, options) => ("messages", {
                let template = self.decoder.template();
                // the template writes the special tokens
                let text = template.and_then(|t| t.render(messages, options));
                text.and_then(|text| tokenizer.encode(&text))
            }),
            Prompt::Text(text) => {
                let encoded = tokenizer.encode_with(text.as_str(), &EncodeOptions::default());
                ("prompt", encoded.map(|encoded| encoded.ids))
            }
        };
        let prompt = tokens.map_err(|error| Refusal::field(param, error.message()))?;
        let (count, context) = (prompt.len(), self.context);
        if count == 0 {
            return Err(Refusal::field(param, format!("{param:?} has no tokens")));
        }
        if count >= context {
            let text = format!("{param:?} has {count} tokens, the context {context}");
            return Err(Refusal::field(param, text).with_code("context_length_exceeded"));
        }
        let mut config = self.decoder.generation.clone();
        config.seed = job.seed;
        config.stop_strings.extend(request.stop.iter().cloned());
        config.max_new_tokens =
            request.max_tokens.unwrap_or(config.max_new_tokens).min(context - count);
        if let Some(temperature) = request.temperature {
            (config.temperature, config.do_sample) = (temperature, temperature > 0.0);
        }
        if let Some(top_p) = request.top_p {
            config.do_sample |= request.temperature.is_none();
            config.top_p = top_p.max(1e-9); // of 0, the most likely token is left
        }
        Ok((prompt, config))
    }

    /// Generates the texts of `group` together.
    fn generate(&self, mut group: Vec<Ready>) {
        group.retain(|ready| !ready.job.is_abandoned());
        if group.is_empty() {
            return;
        }
        let take = |ready: &mut Ready| (std::mem::take(&mut ready.prompt), ready.config.clone());
        let (prompts, configs): (Vec<_>, Vec<_>) = group.iter_mut().map(take).unzip();
        let completions = self.decoder.complete_each(&prompts, &configs, |i, piece| {
            let job = &group[i].job;
            if !piece.is_empty() {
                let _ = job.events.send(Event::Text(piece.to_string()));
            }
            match job.is_abandoned() {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        });
        self.metrics.computed(WorkKind::Texts);
        let completions = match completions {
            Ok(completions) => completions,
            Err(error) => {
                let fail = |ready: Ready| ready.job.events.send(Event::Failed(failed(&error)));
                return group.into_iter().for_each(|ready| drop(fail(ready)));
            }
        };
        for (Ready { job, .. }, done) in group.into_iter().zip(completions) {
            let usage = Usage { prompt_tokens: done.prompt_tokens, new_tokens: done.new_tokens };
            self.metrics.finished(WorkKind::Texts, job.since.elapsed(), 1, usage);
            let is_cut = matches!(done.finish, Finish::Length | Finish::Context);
            let reason = if is_cut { "length" } else { "stop" };
            let _ = job.events.send(Event::Finished(reason, usage)); // the client may be gone
        }
    }
}
