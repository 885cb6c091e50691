//! [`Metrics`]: counters of the server, as text for Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::time::Duration;

/// The upper bounds of the histograms' buckets, in seconds.
const BOUNDS: [f64; 14] =
    [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0];

/// The work of a model: the label `kind` of its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WorkKind {
    /// Embeddings of texts.
    Embeddings,
    /// Texts that are continued.
    Texts,
}

impl WorkKind {
    fn name(self) -> &'static str {
        match self {
            WorkKind::Embeddings => "embeddings",
            WorkKind::Texts => "texts",
        }
    }
}

/// Counters that only grow. Their number does not depend on what clients send.
#[derive(Default)]
pub struct Metrics(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// Answers by route and status.
    answers: BTreeMap<(&'static str, u16), u64>,
    kinds: BTreeMap<WorkKind, Work>,
}

/// The work of one kind.
#[derive(Default)]
struct Work {
    /// Times from the arrival of a request to its last result: the number in each of [`BOUNDS`],
    /// and their sum.
    buckets: [u64; BOUNDS.len()],
    finished: u64,
    seconds: f64,
    batches: u64,
    sentences: u64,
    prompt_tokens: u64,
    new_tokens: u64,
}

/// The tokens of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The tokens of the prompt, or of the texts that are embedded.
    pub prompt_tokens: usize,
    /// The new ones.
    pub new_tokens: usize,
}

impl Metrics {
    fn change(&self, change: impl FnOnce(&mut Counts)) {
        // counters are valid after a panic elsewhere
        change(&mut self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
    }

    /// Counts an answer.
    pub fn answered(&self, route: &'static str, status: u16) {
        self.change(|counts| *counts.answers.entry((route, status)).or_default() += 1);
    }

    /// Counts a batch.
    pub fn computed(&self, kind: WorkKind) {
        self.change(|counts| counts.kinds.entry(kind).or_default().batches += 1);
    }

    /// Counts a request that was computed within `time`, of `sentences` texts.
    pub fn finished(&self, kind: WorkKind, time: Duration, sentences: usize, usage: Usage) {
        self.change(|counts| {
            let (work, seconds) = (counts.kinds.entry(kind).or_default(), time.as_secs_f64());
            if let Some(at) = BOUNDS.iter().position(|bound| seconds <= *bound) {
                work.buckets[at] += 1;
            }
            work.finished += 1;
            work.seconds += seconds;
            work.sentences += sentences as u64;
            work.prompt_tokens += usage.prompt_tokens as u64;
            work.new_tokens += usage.new_tokens as u64;
        });
    }

    /// All metrics in the text format of Prometheus, with the lengths of the queues.
    pub fn text(&self, queues: &[(WorkKind, usize)]) -> String {
        let mut out = String::new();
        self.change(|counts| write(&mut out, counts, queues));
        out
    }
}

/// A counter of each kind: its name, its help and its value.
type Counter = (&'static str, &'static str, fn(&Work) -> u64);

fn write(out: &mut String, counts: &Counts, queues: &[(WorkKind, usize)]) {
    let header = |out: &mut String, name: &str, kind: &str, help: &str| {
        let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    };
    let name = "serve_requests_total";
    header(out, name, "counter", "Answers by route and status.");
    for ((route, status), count) in &counts.answers {
        let _ = writeln!(out, "{name}{{route=\"{route}\",status=\"{status}\"}} {count}");
    }
    let name = "serve_queue_length";
    header(out, name, "gauge", "Requests that wait for the model.");
    for (kind, length) in queues {
        let _ = writeln!(out, "{name}{{kind=\"{}\"}} {length}", kind.name());
    }
    let counters: [Counter; 4] = [
        ("serve_batches_total", "Batches that were computed.", |work| work.batches),
        ("serve_sentences_total", "Texts that were embedded or continued.", |w| w.sentences),
        ("serve_prompt_tokens_total", "Tokens of prompts and embedded texts.", |w| w.prompt_tokens),
        ("serve_new_tokens_total", "Tokens that were generated.", |w| w.new_tokens),
    ];
    for (name, help, value) in counters {
        header(out, name, "counter", help);
        for (kind, work) in &counts.kinds {
            let _ = writeln!(out, "{name}{{kind=\"{}\"}} {}", kind.name(), value(work));
        }
    }
    let name = "serve_request_seconds";
    header(out, name, "histogram", "Times from the arrival of a request to its last result.");
    for (kind, work) in &counts.kinds {
        let kind = kind.name();
        let mut below = 0;
        for (bound, count) in BOUNDS.iter().zip(work.buckets) {
            below += count;
            let _ = writeln!(out, "{name}_bucket{{kind=\"{kind}\",le=\"{bound}\"}} {below}");
        }
        let _ = writeln!(out, "{name}_bucket{{kind=\"{kind}\",le=\"+Inf\"}} {}", work.finished);
        let _ = writeln!(out, "{name}_sum{{kind=\"{kind}\"}} {}", work.seconds);
        let _ = writeln!(out, "{name}_count{{kind=\"{kind}\"}} {}", work.finished);
    }
}
