//! The bytes and times of exchanges, and the part of the time that the backward pass hid.

use super::collective::Reply;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The exchange of one bucket of gradients, or of the values of its parameters.
#[derive(Clone, Debug)]
pub struct Span {
    /// The names of its first and last parameter.
    pub name: Arc<str>,
    /// When its gradients were complete.
    pub ready: Instant,
    /// When the exchange began.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// Bytes that this rank sent.
    pub bytes: usize,
}

/// The exchanges of a run.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    totals: Vec<Total>,
    spans: Vec<Span>,
}

#[derive(Clone, Debug)]
struct Total {
    name: Arc<str>,
    steps: u32,
    bytes: usize,
    time: Duration,
    /// The part of the time before the backward pass ended.
    hidden: Duration,
}

impl Total {
    fn new(name: &str) -> Total {
        let (time, hidden) = (Duration::ZERO, Duration::ZERO);
        Total { name: name.into(), steps: 0, bytes: 0, time, hidden }
    }
}

/// Spans that are kept.
const MAX_SPANS: usize = 1 << 16;

impl Traffic {
    /// The bucket `name` was exchanged; the backward pass ended at `end`.
    pub fn add(&mut self, name: &str, ready: Instant, end: Instant, reply: &Reply) {
        let (start, stop) = (reply.time.start, reply.time.end);
        let known = self.totals.iter().position(|total| *total.name == *name);
        let i = known.unwrap_or_else(|| {
            self.totals.push(Total::new(name));
            self.totals.len() - 1
        });
        let total = &mut self.totals[i];
        total.steps += 1;
        total.bytes += reply.sent;
        total.time += stop - start;
        total.hidden += stop.min(end).saturating_duration_since(start);
        if self.spans.len() < MAX_SPANS {
            let name = total.name.clone();
            self.spans.push(Span { name, ready, start, end: stop, bytes: reply.sent });
        }
    }

    pub fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// A table by bucket.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{:<48} {:>10} {:>9} {:>8}\n",
            "gradients", "KB / step", "ms / step", "hidden %"
        );
        let mut all = Total::new("all");
        let mut row = |total: &Total| {
            let name = &*total.name;
            let steps = f64::from(total.steps.max(1));
            let hidden = total.hidden.as_secs_f64() / total.time.as_secs_f64().max(1e-12);
            // writing to a String cannot fail
            let _ = writeln!(
                text,
                "{name:<48} {:>10.1} {:>9.3} {:>8.1}",
                total.bytes as f64 / steps / 1e3,
                total.time.as_secs_f64() / steps * 1e3,
                100.0 * hidden
            );
        };
        for total in &self.totals {
            row(total);
            all.steps = all.steps.max(total.steps);
            all.bytes += total.bytes;
            all.time += total.time;
            all.hidden += total.hidden;
        }
        row(&all);
        text
    }
}
