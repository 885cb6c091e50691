//! The routes: HTTP to requests, requests to the queues, results to HTTP.

use crate::answers::{Answer, EventStream, Form, embeddings_json, lost};
use crate::metrics::{Metrics, WorkKind};
use crate::queue::{Job, Queue, Refused};
use crate::requests::{Refusal, TextRequest, chat_request, completion_request, embedding_request};
use crate::worker::{EmbeddingJob, Event, TextJob};
use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{DefaultBodyLimit, FromRequest, Request, State};
use axum::http::{HeaderName, Method, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// The bytes of a body at most: 2,048 texts of 2,000 characters.
const MAX_BODY: usize = 4 << 20;

/// The time within which a body arrives.
const BODY_TIME: Duration = Duration::from_secs(30);

/// The routes, which are labels of metrics.
const ROUTES: [&str; 6] = [
    "/v1/embeddings",
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/models",
    "/health",
    "/metrics",
];

/// A model that is served: its name, and the requests that wait for it.
pub struct Served<J> {
    /// The name that requests may give.
    pub name: String,
    /// Requests.
    pub queue: Arc<Queue<J>>,
}

impl<J: Job> Served<J> {
    /// Returns an error if a request is for another model.
    fn check(&self, model: Option<&str>) -> Result<(), Refusal> {
        match model.filter(|model| *model != self.name) {
            None => Ok(()),
            Some(other) => {
                let text = format!("model {other:?} does not exist; this is {:?}", self.name);
                let refusal = Refusal { status: 404, ..Refusal::field("model", text) };
                Err(refusal.with_code("model_not_found"))
            }
        }
    }

    fn push(&self, job: J) -> Result<(), Refusal> {
        self.queue.push(job).map_err(|refused| match refused {
            Refused::Full => {
                let text = "the queue of requests is full; try again later";
                Refusal::new(429, text).with_code("queue_full")
            }
            Refused::Closed => Refusal::new(503, "the server shuts down"),
        })
    }
}

/// The state that all requests share.
pub struct App {
    /// The encoder, if there is one.
    pub embeddings: Option<Served<EmbeddingJob>>,
    /// The decoder, if there is one.
    pub texts: Option<Served<TextJob>>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// The seed of the next request that gives none.
    pub seeds: AtomicU64,
    /// The number of the next answer.
    pub answers: AtomicU64,
    /// When the server started.
    pub started: u64,
    /// Whether the server shuts down.
    pub closing: AtomicBool,
}

impl App {
    /// Takes no more requests.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.embeddings.iter().for_each(|served| served.queue.close());
        self.texts.iter().for_each(|served| served.queue.close());
    }
}

/// The seconds since 1970.
pub fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

/// All routes.
pub fn router(app: Arc<App>) -> Router {
    Router::new()
        .route("/v1/embeddings", post(embeddings))
        .route("/v1/chat/completions", post(chat))
        .route("/v1/completions", post(completions))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(not_found)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(app.clone(), count))
        .with_state(app)
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::BAD_REQUEST);
        let mut response = (status, json_text(self.body().to_string())).into_response();
        if self.status == 429 {
            response.headers_mut().insert(header::RETRY_AFTER, 1.into());
        }
        response
    }
}

fn json_text(text: String) -> ([(HeaderName, &'static str); 1], String) {
    ([(header::CONTENT_TYPE, "application/json")], text)
}

async fn count(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let route = ROUTES.into_iter().find(|route| *route == path).unwrap_or("other");
    let response = next.run(request).await;
    app.metrics.answered(route, response.status().as_u16());
    response
}

async fn not_found(uri: Uri) -> Refusal {
    Refusal::new(404, format!("{} does not exist; routes are {}", uri.path(), ROUTES.join(", ")))
}

async fn not_allowed(method: Method, uri: Uri) -> Refusal {
    let wanted = if method == Method::POST { Method::GET } else { Method::POST };
    Refusal::new(405, format!("{} takes {wanted}, not {method}", uri.path()))
}

async fn health(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    match app.closing.load(Ordering::SeqCst) {
        true => Err(Refusal::new(503, "the server shuts down")),
        false => Ok(json_text(json!({"status": "ok"}).to_string()).into_response()),
    }
}

async fn models(State(app): State<Arc<App>>) -> Response {
    let texts = app.texts.iter().map(|served| &served.name);
    let names = texts.chain(app.embeddings.iter().map(|served| &served.name));
    let object =
        |name| json!({"id": name, "object": "model", "created": app.started, "owned_by": "local"});
    let data: Vec<_> = names.map(object).collect();
    json_text(json!({"object": "list", "data": data}).to_string()).into_response()
}

async fn metrics(State(app): State<Arc<App>>) -> Response {
    let embeddings =
        app.embeddings.iter().map(|served| (WorkKind::Embeddings, served.queue.waiting()));
    let texts = app.texts.iter().map(|served| (WorkKind::Texts, served.queue.waiting()));
    let text = app.metrics.text(&embeddings.chain(texts).collect::<Vec<_>>());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], text).into_response()
}

async fn body(request: Request) -> Result<Bytes, Refusal> {
    let too_large = || Refusal::new(413, format!("a body has {MAX_BODY} bytes at most"));
    if request.body().size_hint().lower() > MAX_BODY as u64 {
        return Err(too_large());
    }
    match tokio::time::timeout(BODY_TIME, Bytes::from_request(request, &())).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => Err(too_large()),
        Ok(Err(error)) => Err(Refusal::new(400, error.body_text())),
        Err(_) => Err(Refusal::new(408, "the body did not arrive in time")),
    }
}

fn not_served(what: &str, option: &str) -> Refusal {
    let text = format!("this server has no model for {what}; it starts with {option}");
    Refusal::new(404, text).with_code("model_not_found")
}

async fn embeddings(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let since = Instant::now();
    let request = embedding_request(&body(request).await?)?;
    let served = app.embeddings.as_ref();
    let served = served.ok_or_else(|| not_served("embeddings", "--embeddings"))?;
    served.check(request.model.as_deref())?;
    let (reply, result) = oneshot::channel();
    served.push(EmbeddingJob { texts: request.texts, reply, since })?;
    let embeddings = result.await.map_err(|_| lost())??;
    Ok(json_text(embeddings_json(&embeddings, &served.name, request.base64)).into_response())
}

async fn chat(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let since = Instant::now();
    let request = chat_request(&body(request).await?)?;
    answer(&app, Form::Chat, request, since).await
}

async fn completions(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let since = Instant::now();
    let request = completion_request(&body(request).await?)?;
    answer(&app, Form::Text, request, since).await
}

async fn answer(
    app: &App,
    form: Form,
    request: TextRequest,
    since: Instant,
) -> Result<Response, Refusal> {
    let served = app.texts.as_ref().ok_or_else(|| not_served("texts", "--model"))?;
    served.check(request.model.as_deref())?;
    let prefix = if form == Form::Chat { "chatcmpl" } else { "cmpl" };
    let number = app.answers.fetch_add(1, Ordering::Relaxed);
    let answer = Answer {
        form,
        id: format!("{prefix}-{:x}-{number}", app.started),
        created: now(),
        model: served.name.clone(),
        include_usage: request.include_usage,
    };
    let seed = request.seed.unwrap_or_else(|| app.seeds.fetch_add(1, Ordering::Relaxed));
    let stream = request.stream;
    let (events, mut received) = mpsc::unbounded_channel();
    served.push(TextJob { request, seed, events, since })?;
    // a failure before the first piece of text has its own status
    let mut event = received.recv().await.ok_or_else(lost)?;
    if let Event::Failed(refusal) = event {
        return Err(refusal);
    }
    if stream {
        let body = Body::from_stream(EventStream::new(answer, event, received));
        let headers =
            [(header::CONTENT_TYPE, "text/event-stream"), (header::CACHE_CONTROL, "no-cache")];
        return Ok((headers, body).into_response());
    }
    let mut text = String::new();
    loop {
        match event {
            Event::Text(piece) => text += &piece,
            Event::Failed(refusal) => return Err(refusal),
            Event::Finished(reason, usage) => {
                return Ok(json_text(answer.whole(&text, reason, usage)).into_response());
            }
        }
        event = received.recv().await.ok_or_else(lost)?;
    }
}
