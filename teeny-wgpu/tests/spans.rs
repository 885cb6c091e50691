//! The spans that a program with `tracing` receives. A separate process, since a listener for all
//! threads can be set only once.

mod common;

use std::sync::{Arc, Mutex};
use teeny_core::Tensor;
use tracing::field::{Field, Visit};
use tracing::{Metadata, span};

/// Keeps the spans it receives as text.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<String>>>);

/// The fields of a span.
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl tracing::Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("teeny_wgpu")
    }
    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut fields = Fields(span.metadata().name().to_string());
        span.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn event(&self, _: &tracing::Event<'_>) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

#[test]
fn tracing_hears_of_compilations_launches_and_batches() {
    let Some(gpu) = common::gpu() else { return };
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let x = Tensor::from_slice(&[1.5f32; 8], 8, &gpu).unwrap();
    x.add(1.0).unwrap().to_vec::<f32>().unwrap();
    let heard = listener.0.lock().unwrap();
    let starts = [
        "compile family=\"elementwise\" variant=[",
        "dispatch op=\"add\" family=\"elementwise\" groups=[1, 1, 1] bytes=",
        "batch commands=2",
    ];
    for span in starts {
        assert_eq!(heard.iter().filter(|h| h.starts_with(span)).count(), 1, "{span} in {heard:?}");
    }
}
