//! An HTTP server for embeddings and chat with pretrained models, with OpenAI's JSON.
//!
//! ```text
//! client ─ routes ─ requests ─► queue ─► worker (a thread that owns a model) ─► answers ─ client
//! ```
//!
//! HTTP runs on one thread, each model on its own. Requests that wait are computed together.
#![forbid(unsafe_code)]

pub mod answers;
pub mod metrics;
pub mod queue;
pub mod requests;
pub mod worker;
