//! Random programs, run in every way that teeny can run them, against calls:
//! `cargo run --release -p teeny-nn --example programs -- --seed S --cases N`.
//!
//! A program draws random numbers in every way there is, checkpoints, differentiates, gives up
//! operands, and between its calls changes modes, parameters and the generator. It is called on an
//! eager device, recorded (whole, and in lists of a few operations), and captured, on the CPU
//! engine with one thread and with four, and on the oracle: the results of one engine have the same
//! bits, except for the sign and payload of NaN, and the generator ends in the same state. Sums in
//! another order (`LazyOptions::reassociate`) agree within rounding. Two threads may share a
//! recording device. A function that reads what a replay cannot know must be refused.
//!
//! A finding is made smaller and printed; the program then fails.

mod program;
mod run;

use program::Program;
use rayon::{ThreadPool, ThreadPoolBuilder};
use run::{Outcome, run};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::SystemTime;
use teeny_core::wrappers::Trace;
use teeny_core::{DeviceRef, Lazy, LazyOptions, Reference};
use teeny_cpu::Cpu;

/// A way to run a program: its name, and the outcome.
type Way = (&'static str, fn(&Program, &Machine) -> Outcome);

/// Threads for the CPU engine.
struct Machine {
    one: ThreadPool,
    four: ThreadPool,
}

fn limited(program: &Program, engine: DeviceRef) -> DeviceRef {
    let Program { max_nodes, immediate, .. } = *program;
    Lazy::with_options(
        engine,
        LazyOptions::new().with_max_nodes(max_nodes).with_immediate(immediate),
    )
}

fn cpu() -> DeviceRef {
    Cpu::new()
}

fn oracle() -> DeviceRef {
    Reference::new()
}

fn recorded(engine: DeviceRef) -> DeviceRef {
    Lazy::new(engine)
}

/// Ways whose results have the bits of the first one.
const CPU: [Way; 7] = [
    ("called on one thread", |p, m| m.one.install(|| run(p, &cpu(), false, false))),
    ("called on four threads", |p, m| m.four.install(|| run(p, &cpu(), false, false))),
    ("called through a wrapper", |p, m| {
        let wrapped: DeviceRef = Trace::new(cpu());
        m.one.install(|| run(p, &wrapped, false, true))
    }),
    ("recorded", |p, m| m.four.install(|| run(p, &recorded(cpu()), false, true))),
    ("recorded in short lists", |p, m| {
        m.one.install(|| run(p, &limited(p, cpu()), false, p.rows.is_multiple_of(2)))
    }),
    ("captured on one thread", |p, m| {
        m.one.install(|| run(p, &recorded(cpu()), true, !p.rows.is_multiple_of(2)))
    }),
    ("captured on four threads", |p, m| m.four.install(|| run(p, &recorded(cpu()), true, false))),
];

const REFERENCE: [Way; 3] = [
    ("called on the oracle", |p, _| run(p, &oracle(), false, false)),
    ("recorded on the oracle", |p, _| run(p, &limited(p, oracle()), false, true)),
    ("captured on the oracle", |p, _| run(p, &recorded(oracle()), true, false)),
];

/// The differences that a program shows; the calls of it that ended well are counted.
fn check(program: &Program, machine: &Machine, done: &mut u64) -> Option<String> {
    let try_way = |(name, way): &Way| {
        catch_unwind(AssertUnwindSafe(|| way(program, machine)))
            .map_err(|_| format!("{name}: a panic"))
    };
    for ways in [&CPU[..], &REFERENCE] {
        let want = match try_way(&ways[0]) {
            Ok(want) => want,
            Err(finding) => return Some(finding),
        };
        *done += want.iter().filter(|result| result.is_ok()).count() as u64 / 2;
        for way in &ways[1..] {
            let got = match try_way(way) {
                Ok(got) => got,
                Err(finding) => return Some(finding),
            };
            let captured = way.0.starts_with("captured");
            if let Some(difference) = difference(&want, &got, captured && program.is_impure()) {
                return Some(format!("{} and {}: {difference}", ways[0].0, way.0));
            }
        }
    }
    if program.is_smooth() {
        let options = LazyOptions::new().with_reassociate(true);
        let lazy: DeviceRef = Lazy::with_options(cpu(), options);
        let want = run(program, &cpu(), false, false);
        if let Some(difference) = distance(&want, &run(program, &lazy, false, true)) {
            return Some(format!("called and reassociated: {difference}"));
        }
    }
    if program.columns.is_multiple_of(4) {
        let lazy: DeviceRef = limited(program, cpu());
        let want = run(program, &cpu(), false, false);
        let both = std::thread::scope(|scope| {
            let run = || scope.spawn(|| run(program, &lazy, false, program.rows.is_multiple_of(2)));
            [run(), run()].map(|thread| thread.join())
        });
        for got in both {
            let Ok(got) = got else { return Some("two threads: a panic".into()) };
            if let Some(difference) = difference(&want, &got, false) {
                return Some(format!("one thread and two on one recording device: {difference}"));
            }
        }
    }
    None
}

/// How two outcomes differ. Errors end a program, in whatever words; one that `may_refuse` may end
/// earlier.
fn difference(want: &Outcome, got: &Outcome, may_refuse: bool) -> Option<String> {
    for (i, got) in got.iter().enumerate() {
        match (want.get(i), got) {
            (Some(Ok(want)), Ok(got)) if want == got => {}
            (Some(Ok(want)), Ok(got)) => {
                let place = want.iter().zip(got).position(|(a, b)| a != b);
                let place = place.unwrap_or(want.len().min(got.len()));
                let show = |all: &[Vec<u64>]| -> Option<Vec<f64>> {
                    Some(all.get(place)?.iter().map(|&b| f64::from_bits(b)).take(24).collect())
                };
                let (want, got) = (show(want), show(got));
                return Some(format!("result {place} of step {i}: {want:?}, {got:?}"));
            }
            (Some(Err(_)), Err(_)) => return None,
            (Some(Err(error)), Ok(_)) => return Some(format!("step {i}: {error}; a result")),
            (Some(Ok(_)), Err(_)) if may_refuse => return None,
            (Some(Ok(_)), Err(error)) => return Some(format!("step {i}: a result; {error}")),
            (None, _) => return Some(format!("step {i}: nothing; {got:?}")),
        }
    }
    (got.len() < want.len()).then(|| format!("{} steps, {}", want.len(), got.len()))
}

/// [`difference`] beyond rounding.
fn distance(want: &Outcome, got: &Outcome) -> Option<String> {
    for (i, (want, got)) in want.iter().zip(got).enumerate() {
        let (Ok(want), Ok(got)) = (want, got) else { break };
        for (a, b) in want.iter().flatten().zip(got.iter().flatten()) {
            let (a, b) = (f64::from_bits(*a), f64::from_bits(*b));
            let far = (a - b).abs() > 1e-7 * (1.0 + a.abs().max(b.abs()));
            if far && a.is_finite() && b.is_finite() {
                return Some(format!("step {i}: {a:?} and {b:?}"));
            }
        }
    }
    None
}

/// The smallest program found that shows a difference, and the difference.
fn smallest(mut program: Program, mut finding: String, machine: &Machine) -> (Program, String) {
    while let Some((smaller, found)) = program
        .smaller()
        .into_iter()
        .find_map(|smaller| check(&smaller, machine, &mut 0).map(|found| (smaller, found)))
    {
        (program, finding) = (smaller, found);
    }
    (program, finding)
}

fn main() -> ExitCode {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let (mut seed, mut cases, mut from) = (clock.as_nanos() as u64 % 1_000_000_007, 1000u64, 0u64);
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().and_then(|text| text.parse().ok());
        match (name.as_str(), value) {
            ("--seed", Some(value)) => seed = value,
            ("--cases", Some(value)) => cases = value,
            ("--from", Some(value)) => from = value,
            _ => {
                eprintln!(
                    "--seed S, --cases N (default 1000), --from N: the first case (default 0)"
                );
                return ExitCode::from(2);
            }
        }
    }
    let pool = |threads| ThreadPoolBuilder::new().num_threads(threads).build();
    let (one, four) = match (pool(1), pool(4)) {
        (Ok(one), Ok(four)) => (one, four),
        (Err(error), _) | (_, Err(error)) => {
            eprintln!("the threads: {error}");
            return ExitCode::from(2);
        }
    };
    let machine = Machine { one, four };
    println!("seed {seed}, {cases} cases from {from}");
    std::panic::set_hook(Box::new(|_| {})); // a panic is a finding, printed once
    let (mut findings, mut calls) = (0, 0);
    for case in from..from + cases {
        let program = Program::random(seed, case);
        if let Some(finding) = check(&program, &machine, &mut calls) {
            findings += 1;
            let (program, finding) = smallest(program, finding, &machine);
            println!("case {case}: {finding}\n{program:#?}\n");
            if findings == 10 {
                println!("no more than ten findings are looked for");
                break;
            }
        }
    }
    println!("{calls} calls of programs, {findings} findings");
    if findings == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
