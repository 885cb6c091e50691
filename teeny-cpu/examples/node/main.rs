//! The conformance suite, the fuzzers and a benchmark on one thread, for WebAssembly in node and
//! natively: `.ci/wasm` builds and runs it as a module without imports.
//!
//! ```text
//!   node run.mjs MODULE.wasm suite | fuzz CASES | oneop CASES | bench [PROGRAM]
//!   cargo run --release -p teeny-cpu --example node -- suite | fuzz CASES | oneop CASES | bench
//! ```
//! A module has neither arguments nor a clock: `exports` has a function for each task, and the
//! caller measures the times. `bench PROGRAM` compares the module with the native program.

#[cfg(target_family = "wasm")]
mod exports;
mod workloads;

use teeny_conformance::Suite;
use teeny_conformance::oneop::{Rules, Site, Verdict, check, generate};
use teeny_core::device::DeviceRef;
use teeny_cpu::{Cpu, CpuOptions};

/// Whether a task has succeeded, and its report.
type Outcome = (bool, String);

/// The conformance suite.
fn suite() -> Outcome {
    let report = Suite::new(Cpu::new()).run();
    (report.passed(), report.to_string())
}

/// Random graphs of operations.
fn fuzz(cases: usize) -> Outcome {
    match teeny_conformance::fuzz(Cpu::new(), cases, 22) {
        Ok(_) => (true, format!("{cases} random graphs agree with the oracle")),
        Err(failure) => (false, failure.to_string()),
    }
}

/// A device on the calling thread.
struct Here(DeviceRef);

impl Site for Here {
    fn device(&self) -> &DeviceRef {
        &self.0
    }

    fn run(&self, f: &mut (dyn FnMut() + Send)) {
        f();
    }
}

/// Random single operations, with fresh memory and with pooled memory.
fn oneop(cases: usize) -> Outcome {
    let cold = Here(Cpu::with_options(CpuOptions::new().with_cache_bytes(0)));
    let warm = Here(Cpu::new());
    let (sites, rules): ([&dyn Site; 2], _) = ([&cold, &warm], Rules::default());
    let (mut agreed, mut findings) = (0, Vec::new());
    for number in 0..cases as u64 {
        let verdict = generate(22, number, None)
            .map_err(|error| error.to_string())
            .and_then(|case| check(&case, &sites, rules));
        match verdict {
            Ok(verdict) => agreed += usize::from(matches!(verdict, Verdict::Agreed)),
            Err(why) => findings.push(format!("case 22:{number}: {why}")),
        }
    }
    findings.push(format!("{agreed} of {cases} single operations agree with the oracle"));
    (findings.len() == 1 && agreed > cases / 2, findings.join("\n"))
}

#[cfg(target_family = "wasm")]
fn main() {}

#[cfg(not(target_family = "wasm"))]
fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (passed, report) = match (args.as_slice(), args.last().map(|n| n.parse())) {
        (["suite"], _) => suite(),
        (["fuzz", _], Some(Ok(cases))) => fuzz(cases),
        (["oneop", _], Some(Ok(cases))) => oneop(cases),
        (["bench"], _) => workloads::bench(),
        _ => (false, "usage: node suite | fuzz CASES | oneop CASES | bench".to_string()),
    };
    println!("{report}");
    if passed { std::process::ExitCode::SUCCESS } else { std::process::ExitCode::FAILURE }
}
