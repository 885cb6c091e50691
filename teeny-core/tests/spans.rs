//! The spans that a `tracing` subscriber receives. A separate process, because a global subscriber
//! can be set only once.

use std::sync::{Arc, Mutex};
use teeny_core::{Reference, Tensor, wrappers::Trace};
use tracing::field::{Field, Visit};
use tracing::{Metadata, span};

/// Keeps the spans it hears of as text.
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
        metadata.target().starts_with("teeny_core")
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
fn tracing_hears_of_every_operation() {
    let listener = Listener::default();
    tracing::subscriber::set_global_default(listener.clone()).unwrap();
    let device = Trace::new(Reference::new());
    let _ = Tensor::from_slice(&[1.5f32; 8], 8, &device).unwrap().exp().unwrap();
    let heard = listener.0.lock().unwrap();
    let exp = heard
        .iter()
        .find(|h| h.starts_with("op op=\"exp\" called=\"exp at "))
        .unwrap_or_else(|| panic!("{heard:?}"));
    assert!(exp.ends_with("shapes=\"f32 (8,)\" bytes=64 flops=8"), "{exp}");
}
