//! An HTTP server for embeddings and chat with pretrained models, with OpenAI's JSON.
//!
//! ```text
//! client ─ routes ─ requests ─► queue ─► worker (a thread that owns a model) ─► answers ─ client
//! ```
//!
//! HTTP runs on one thread, each model on its own. Requests that wait are computed together.
//! `routes` is HTTP, `requests` and `answers` are JSON, and `worker` runs the models. See the README
//! for routes and fields.
#![forbid(unsafe_code)]

pub mod answers;
pub mod metrics;
pub mod queue;
pub mod requests;
pub mod routes;
pub mod worker;

use axum::serve::ListenerExt;
use metrics::Metrics;
use queue::Queue;
use routes::{App, Served, now, router};
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::thread;
use std::time::Duration;
use teeny_core::{Error, Result};
use teeny_models::{Decoder, Encoder};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use worker::{Embedder, Writer};

/// The time that clients have to read their last answers when the server shuts down.
const GRACE: Duration = Duration::from_secs(5);

/// The models of a server with their names, at least one.
#[derive(Default)]
pub struct Models {
    /// For embeddings.
    pub encoder: Option<(String, Encoder)>,
    /// For chat and completions.
    pub decoder: Option<(String, Decoder)>,
}

/// The limits of a server.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The requests that wait for a model at most.
    pub queue: usize,
    /// The texts that are computed together at most.
    pub batch: usize,
    /// The tokens of a prompt with its answer at most.
    pub context: usize,
    /// The seed of the first request that gives none; the next one has the next seed.
    pub seed: u64,
}

/// A server whose models run.
pub struct Server {
    app: Arc<App>,
    /// Closed when all workers have ended.
    workers: mpsc::Receiver<()>,
}

impl Server {
    /// Starts a thread for each model.
    ///
    /// # Errors
    /// If `models` is empty, a model has no tokenizer, or a thread cannot be started.
    pub fn start(models: Models, limits: &Limits) -> Result<Server> {
        let Limits { batch, seed, .. } = *limits;
        let metrics = Arc::new(Metrics::default());
        let (alive, workers) = mpsc::channel(1);
        let run = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let alive = alive.clone();
            let spawned = thread::Builder::new().name(name.to_string()).spawn(move || {
                work();
                drop(alive);
            });
            spawned.map(drop).map_err(|e| Error::io(format!("cannot start a thread: {e}")))
        };
        let (mut embeddings, mut texts) = (None, None);
        if let Some((name, encoder)) = models.encoder {
            encoder.tokenizer()?;
            let (queue, metrics) = (Arc::new(Queue::new(limits.queue)), metrics.clone());
            let worker = Embedder { encoder, batch, queue: queue.clone(), metrics };
            run("embeddings", Box::new(move || worker.run()))?;
            embeddings = Some(Served { name, queue });
        }
        if let Some((name, decoder)) = models.decoder {
            decoder.tokenizer()?;
            let context = limits.context.min(decoder.model.config().context);
            let (queue, metrics) = (Arc::new(Queue::new(limits.queue)), metrics.clone());
            let worker = Writer { decoder, batch, context, queue: queue.clone(), metrics };
            run("texts", Box::new(move || worker.run()))?;
            texts = Some(Served { name, queue });
        }
        if embeddings.is_none() && texts.is_none() {
            return Err(Error::value("no model"));
        }
        let (seeds, answers, closing) = (seed.into(), AtomicU64::new(0), AtomicBool::new(false));
        let app = App { embeddings, texts, metrics, seeds, answers, started: now(), closing };
        Ok(Server { app: Arc::new(app), workers })
    }

    /// Answers requests until `stop` is ready. Those that were accepted before are answered, new
    /// ones get the status 503 meanwhile.
    pub async fn serve(mut self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let (close, closed) = oneshot::channel::<()>();
        let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
        let served = axum::serve(listener, router(self.app.clone()));
        let served = served.with_graceful_shutdown(async { drop(closed.await) }).into_future();
        let served = tokio::spawn(served);
        stop.await;
        self.app.close();
        let _ = self.workers.recv().await; // none: all have ended
        drop(close);
        let _ = tokio::time::timeout(GRACE, served).await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.app.close(); // the workers end
    }
}
