//! Devices with one fault each, made from the requests that the suite sends: every one must fail
//! the suite, or the suite has a gap.
//!
//! A recording pass runs each case on the oracle and notes the [`Signature`] of each request that
//! reaches the device. From a signature follow its mutants, by the types of its fields: every
//! change of every attribute, run-time parameter, operand and result, and of each node of its
//! program. A new operation or attribute needs no line here; a new *type* of attribute fails the
//! campaign until `attributes` has changes of it. Each mutant runs the cases that send its request,
//! until one fails.
//!
//! ```text
//! signature   kinds of requests                 attributes   changes of a field, by its type
//! request     a request that can be changed     program      changes of scalar and row programs
//! device      the recorder, the faulty device   values       changes of elements
//! mutant      the mutants of a signature        excused      mutants that no case can notice
//! ```
//!
//! Faults that depend on more than one request, and faults of reads and uploads, are listed by
//! hand in `tests/mutants.rs`.

mod attributes;
mod device;
mod excused;
mod mutant;
mod program;
mod request;
mod signature;
mod values;

use crate::cases::{self, Case};
use crate::{Cell, RANDOM_CASES, RANDOM_SEED, Suite, every, guarded, oneop};
use device::{Faulty, Recorder};
use mutant::Mutant;
use signature::{Noted, Signature};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use teeny_core::clock::Instant;
use teeny_core::random::with_seed;
use teeny_core::{DeviceRef, Reference, Result, Tensor};

/// A case of the suite.
enum Trial {
    Written(Case),
    Random(u64),
}

/// The results of a trial on the oracle, and its time.
struct Record {
    /// Inputs on the oracle, and the results.
    inputs: Vec<Tensor>,
    expected: Option<Result<Vec<Tensor>>>,
    micros: u128,
}

/// The trials that notice a mutant may.
struct Suspect {
    mutant: Arc<Mutant>,
    trials: Vec<u32>,
}

/// The outcome of a mutant.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Noticed,
    /// No case has a request that the mutant changes and that stays valid.
    NeverApplied,
    Missed,
}

/// Calls `work` with each of `0..count`, on all threads of the machine.
fn in_parallel(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, |n| n.get()).min(8) {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        break;
                    }
                    work(i);
                }
            });
        }
    });
}

/// The results of `case` on `device`, which shares the storages of the oracle.
fn ran(case: &Case, inputs: &[Tensor], device: &DeviceRef) -> Result<Vec<Tensor>> {
    let inputs = || inputs.iter().map(|x| request::unwrap(x, device)).collect::<Result<Vec<_>>>();
    guarded(|| with_seed(1, || (case.body)(device, &inputs()?)))
}

struct Campaign {
    suite: Suite,
    oracle: DeviceRef,
    trials: Vec<Trial>,
    records: Vec<OnceLock<Record>>,
}

impl Campaign {
    fn new() -> Campaign {
        let oracle: DeviceRef = Reference::new();
        let mut trials = Vec::new();
        cases::each(&mut |case| trials.push(Trial::Written(case)));
        trials.extend((0..RANDOM_CASES).map(Trial::Random));
        let records = trials.iter().map(|_| OnceLock::new()).collect();
        Campaign { suite: Suite::new(&oracle), oracle, trials, records }
    }

    /// Runs every trial on the oracle: the mutants, each with the trials that send its request.
    fn record(&self) -> Vec<Suspect> {
        let seen: Mutex<HashMap<Signature, (Noted, Vec<u32>)>> = Mutex::default();
        in_parallel(self.trials.len(), |i| {
            let recorder = Arc::new(Recorder::new(self.oracle.clone()));
            let device: DeviceRef = recorder.clone();
            let start = Instant::now();
            let (inputs, expected) = match &self.trials[i] {
                Trial::Written(case) => {
                    let inputs = case.inputs.iter().map(|x| x.on(&self.oracle));
                    let inputs: Vec<Tensor> =
                        inputs.collect::<Result<_>>().expect("the oracle has all dtypes");
                    let expected = ran(case, &inputs, &device);
                    (inputs, Some(expected))
                }
                Trial::Random(number) => {
                    _ = self.random(*number, &device);
                    (Vec::new(), None)
                }
            };
            let micros = start.elapsed().as_micros();
            _ = self.records[i].set(Record { inputs, expected, micros });
            let noted = std::mem::take(&mut *recorder.noted.lock().expect("no holder panics"));
            let mut seen = seen.lock().expect("no holder panics");
            for (signature, noted) in noted {
                seen.entry(signature).or_insert_with(|| (noted, Vec::new())).1.push(i as u32);
            }
        });
        let seen = seen.into_inner().expect("no holder panics");
        let mut signatures: Vec<_> = seen.into_iter().collect();
        signatures.sort_by(|a, b| a.0.cmp(&b.0));
        let mut suspects: BTreeMap<String, Suspect> = BTreeMap::new();
        for (signature, (noted, trials)) in signatures {
            for mutant in mutant::all(&signature, &noted) {
                let suspect = suspects
                    .entry(mutant.text.clone())
                    .or_insert_with(|| Suspect { mutant: Arc::new(mutant), trials: Vec::new() });
                suspect.trials.extend(&trials);
            }
        }
        let mut suspects: Vec<Suspect> = suspects.into_values().collect();
        in_order(&mut suspects, |i| self.records[i as usize].get().map_or(0, |r| r.micros));
        suspects
    }

    fn random(&self, number: u64, device: &DeviceRef) -> std::result::Result<(), String> {
        let rules = oneop::Rules { rounds_each_step: true, factor: 16.0, ..Default::default() };
        let case = oneop::generate(RANDOM_SEED, number, None).map_err(|e| e.to_string())?;
        oneop::check(&case, &[&oneop::Alone(device)], rules).map(|_| ())
    }

    /// Whether trial `i` notices that `device` is not the oracle.
    fn notices(&self, i: u32, device: &DeviceRef) -> bool {
        match &self.trials[i as usize] {
            Trial::Random(number) => self.random(*number, device).is_err(),
            Trial::Written(case) => {
                let record = self.records[i as usize].get().expect("every trial is recorded");
                let got = ran(case, &record.inputs, device);
                let expected = record.expected.as_ref().expect("a written case has results");
                matches!(self.suite.compare(case, expected, &got), Cell::Failed(_))
            }
        }
    }

    /// The outcome of `suspect`; `likely` are trials that noticed mutants of the same request.
    fn fate(&self, suspect: &Suspect, likely: &Mutex<Vec<u32>>) -> Fate {
        let mut applied = false;
        let first: Vec<u32> = likely.lock().expect("no holder panics").clone();
        let own: HashSet<u32> = suspect.trials.iter().copied().collect();
        let first = first.into_iter().filter(|i| own.contains(i));
        let all = first.chain(suspect.trials.iter().copied());
        // A mutant with an excuse is still noticed where the excuse does not hold.
        let is_excused = excused::reason(&suspect.mutant.text).is_some();
        for i in all.take(if is_excused { FEW } else { usize::MAX }) {
            let faulty = Arc::new(Faulty::new(self.oracle.clone(), suspect.mutant.clone()));
            let device: DeviceRef = faulty.clone();
            if self.notices(i, &device) {
                let mut likely = likely.lock().expect("no holder panics");
                likely.retain(|&other| other != i);
                likely.insert(0, i);
                likely.truncate(LIKELY);
                return Fate::Noticed;
            }
            applied |= faulty.applied.load(Ordering::Relaxed);
        }
        if applied { Fate::Missed } else { Fate::NeverApplied }
    }
}

/// How many trials a mutant with an excuse runs.
const FEW: usize = 16;
/// How many trials are remembered for each kind of request.
const LIKELY: usize = 6;

/// Trials that take little time come first, in an order that mixes cases of one row.
fn in_order(suspects: &mut [Suspect], micros: impl Fn(u32) -> u128) {
    for suspect in suspects {
        let mixed = |i: u32| {
            let mut hasher = DefaultHasher::new();
            i.hash(&mut hasher);
            hasher.finish()
        };
        suspect.trials.sort_unstable();
        suspect.trials.dedup();
        suspect.trials.sort_by_cached_key(|&i| (micros(i) / 2_000 > 0, mixed(i)));
    }
}

/// The mutants that no case notices and that have no excuse in `excused`: gaps of the suite. The
/// test writes it with `TEENY_BLESS=1`; a mutant that is not in it must be noticed.
const UNNOTICED: &str = include_str!("unnoticed.txt");

#[test]
fn every_mutant_fails_the_suite() {
    let start = Instant::now();
    let campaign = Campaign::new();
    let mut suspects = campaign.record();
    println!("{} trials, {} mutants, {:?}", campaign.trials.len(), suspects.len(), start.elapsed());
    let blesses = std::env::var("TEENY_BLESS").is_ok();
    let known: HashSet<&str> = if blesses { HashSet::new() } else { UNNOTICED.lines().collect() };
    let all = suspects.len();
    suspects.retain(|suspect| !known.contains(&*suspect.mutant.text));
    let (mut number, step) = (0, if blesses { 1 } else { every(8) });
    suspects.retain(|_| {
        number += 1;
        number % step == 0
    });
    let mut likely: HashMap<(&str, &str), Mutex<Vec<u32>>> = HashMap::new();
    for Suspect { mutant, .. } in &suspects {
        likely.entry((mutant.variant, mutant.name)).or_default();
    }
    let fates: Vec<OnceLock<Fate>> = suspects.iter().map(|_| OnceLock::new()).collect();
    // Some mutants make core panic, which is a failure that is not printed.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    in_parallel(suspects.len(), |i| {
        let mutant = &suspects[i].mutant;
        let fate = campaign.fate(&suspects[i], &likely[&(mutant.variant, mutant.name)]);
        _ = fates[i].set(fate);
    });
    std::panic::set_hook(hook);
    let (mut missed, mut counts) = (Vec::new(), [0; 3]);
    for (suspect, fate) in suspects.iter().zip(&fates) {
        let &fate = fate.get().expect("every mutant has a fate");
        counts[fate as usize] += 1;
        if fate != Fate::Noticed && excused::reason(&suspect.mutant.text).is_none() {
            missed.push(suspect.mutant.text.clone());
        }
    }
    println!("{counts:?} noticed, never applied, missed; {:?}", start.elapsed());
    if blesses {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/mutation/unnoticed.txt");
        return std::fs::write(path, missed.join("\n") + "\n").expect("the file can be written");
    }
    assert!(all > 5_000 && counts[0] * 2 > suspects.len(), "{counts:?} of {all} mutants");
    assert!(missed.is_empty(), "{} mutants pass the suite:\n{}", missed.len(), missed.join("\n"));
}
