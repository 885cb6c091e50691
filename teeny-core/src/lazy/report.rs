//! The text log of the lists that run: `TEENY_DEBUG`.
//!
//! Level 1 is a line a list, 2 also a line an item, 3 also the listing of each kernel that is new.
//! At level 0 a list costs one branch on a static: nothing is formatted, nothing is timed.

use super::describe::{Facts, Listed};
use super::plan::ExecutionPlan;
use crate::clock::Instant;
use crate::context::OpContext;
use crate::op::TensorSpec;
use crate::picture::bytes_text;
use std::fmt::Write as _;
use std::sync::OnceLock;
use std::time::Duration;

/// Why a list runs.
#[derive(Clone, Copy)]
pub(super) enum Reason {
    Read,
    Boundary,
    Limit,
    Synchronize,
}

/// Where the text goes, and how much of it.
pub(super) struct Log {
    pub(super) level: u8,
    pub(super) sink: Box<dyn Fn(&str) + Send + Sync>,
}

impl Log {
    /// The log of a device: `own`, or the one that `TEENY_DEBUG` (read once) turns on.
    pub(super) fn of(own: &OnceLock<Log>) -> Option<&Log> {
        static STDERR: OnceLock<Option<Log>> = OnceLock::new();
        let from_environment = || {
            let level: u8 = std::env::var("TEENY_DEBUG").ok()?.trim().parse().ok()?;
            (level > 0).then(|| Log { level, sink: Box::new(|text| eprint!("{text}")) })
        };
        match own.get() {
            Some(log) => (log.level > 0).then_some(log),
            None => STDERR.get_or_init(from_environment).as_ref(),
        }
    }
}

/// The text about a list, begun before it runs.
pub(super) struct Report<'a> {
    log: &'a Log,
    head: String,
    tail: String,
    items: Vec<Line>,
    kernels: String,
    started: Instant,
}

/// An item: its operation and the user's lines.
struct Line {
    text: String,
    bytes: u64,
    place: String,
}

impl<'a> Report<'a> {
    /// A report about `list`, which runs by `plan` now.
    pub(super) fn new(
        log: &'a Log,
        list: Listed<'_>,
        plan: &ExecutionPlan,
        is_new: bool,
        reason: Reason,
        reader: Option<OpContext>,
    ) -> Report<'a> {
        let found = if is_new { "new" } else { "hit" };
        let head = head(list, plan, &format!("plan {}, {found}", plan.number));
        let mut report = Report {
            log,
            head,
            tail: cause(reason, reader),
            items: Vec::new(),
            kernels: String::new(),
            started: Instant::now(),
        };
        if log.level >= 2 {
            report.items = items(list, plan);
        }
        if log.level >= 3 && is_new {
            report.kernels = kernels(plan);
        }
        report.started = Instant::now();
        report
    }

    /// Whether each item is timed.
    pub(super) fn is_timed(&self) -> bool {
        self.log.level >= 2
    }

    /// Writes the report about the list, whose items took these times.
    pub(super) fn finish(self, times: &[Duration]) {
        let time = self.started.elapsed();
        let mut text =
            format!("{}, {:.1} ms, {}\n", self.head, time.as_secs_f64() * 1e3, self.tail);
        for (i, item) in self.items.iter().enumerate() {
            item.write(&mut text, i, times.get(i).copied());
        }
        text += &self.kernels;
        (self.log.sink)(&text);
    }
}

/// The schedule of a list that has not run, and the listings of its kernels.
pub(super) fn schedule(list: Listed<'_>, plan: &ExecutionPlan) -> String {
    let mut text = head(list, plan, "not run yet") + "\n";
    for (i, item) in items(list, plan).iter().enumerate() {
        item.write(&mut text, i, None);
    }
    text + &kernels(plan)
}

fn head(list: Listed<'_>, plan: &ExecutionPlan, found: &str) -> String {
    let outputs = list.nodes.iter().flat_map(|node| node.outputs.clone());
    let held = outputs.filter(|&slot| plan.is_held(slot)).count();
    format!(
        "lazy: {} requests, {} dead, {held} results held → {} items ({found})",
        list.nodes.len(),
        plan.dropped,
        plan.items.len()
    )
}

/// Why the list runs, and for which line.
fn cause(reason: Reason, reader: Option<OpContext>) -> String {
    let by = reader.map(|OpContext { op, location, .. }| {
        format!("{op} at {}:{}", location.file(), location.line())
    });
    let by = |word: &str| by.as_ref().map_or(String::new(), |by| format!(" {word} {by}"));
    match reason {
        Reason::Read => format!("read{}", by("by")),
        Reason::Boundary => format!("boundary{}", by("before")),
        Reason::Limit => format!("limit reached{}", by("by")),
        Reason::Synchronize => format!("synchronize{}", by("by")),
    }
}

fn items(list: Listed<'_>, plan: &ExecutionPlan) -> Vec<Line> {
    let line = |item| match list.item(item) {
        Ok(Facts { program, inputs, outputs, cost }) => {
            let flops = match cost.flops {
                0 => String::new(),
                flops => format!("  {}FLOP", scaled(flops as f64)),
            };
            let text = format!(
                "{program:<40}  {} → {}  {}{flops}",
                specs(&inputs),
                specs(&outputs),
                bytes_text(cost.bytes)
            );
            (text, cost.bytes)
        }
        Err(error) => (format!("<{error}>"), 0),
    };
    let all = plan.items.iter().map(|item| {
        let (text, bytes) = line(item);
        let merged = match item.nodes.len() {
            1 => String::new(),
            n => format!("{n} nodes: "),
        };
        Line { text, bytes, place: format!("{merged}{}", list.lines(&item.nodes)) }
    });
    all.collect()
}

/// The listings of the fused kernels.
fn kernels(plan: &ExecutionPlan) -> String {
    let mut text = String::new();
    for (i, item) in plan.items.iter().enumerate() {
        if let Some(kernel) = item.kernel.as_ref().and_then(|call| call.op.kernel()) {
            // writing to a String cannot fail, here and below
            let _ = writeln!(text, "kernel of item {i}:");
            format!("{kernel:?}").lines().for_each(|line| _ = writeln!(text, "    {line}"));
        }
    }
    text
}

impl Line {
    fn write(&self, text: &mut String, number: usize, time: Option<Duration>) {
        let _ = write!(text, "{number:>5}  ");
        if let Some(time) = time {
            let seconds = time.as_secs_f64().max(1e-9);
            let speed = self.bytes as f64 / seconds / 1e9;
            let _ = write!(text, "{:>9.1} us {speed:>8.2} GB/s  ", seconds * 1e6);
        }
        let _ = writeln!(text, "{}  {}", self.text, self.place);
    }
}

fn specs(specs: &[TensorSpec]) -> String {
    let all: Vec<String> = specs.iter().map(|(shape, dtype)| format!("{shape} {dtype}")).collect();
    if all.is_empty() { "nothing".into() } else { all.join(", ") }
}

/// A number and the prefix of its unit: `12.8 M`.
fn scaled(value: f64) -> String {
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let mut at = 0;
    let mut value = value;
    while value >= 1000.0 && at + 1 < prefixes.len() {
        (value, at) = (value / 1000.0, at + 1);
    }
    if at == 0 { format!("{value} ") } else { format!("{value:.1} {}", prefixes[at]) }
}
