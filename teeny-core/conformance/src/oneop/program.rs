//! The fuzzer's command line: batches of cases in fresh processes, so that memory that earlier work
//! left behind hides no fault.
//!
//! ```text
//! parent: for each batch ──► child --batch FROM COUNT      a line per case and finding; totals
//!         a child that dies or hangs: its case is run alone, then after more and more earlier ones
//! ```

use super::{Rules, Site, Verdict, check, generate};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Command, ExitCode, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};
use teeny_core::{Error, Result};

/// Cases per process.
const BATCH: u64 = 100;
/// How long a case may take before it counts as hanging: far above the slowest under a sanitiser.
const PATIENCE: Duration = Duration::from_secs(300);
/// Findings of one operation that are printed; further ones are counted.
const PRINTED: u64 = 5;

/// The variable by which engines guard the blocks of their memory.
const GUARD: &str = "TEENY_POOL_GUARD";

const HELP: &str = "\
Random single operations against the oracle.
  --seed S        the campaign's seed; without it a new one, which is printed
  --cases N       how many cases (default 10000)
  --from N        the number of the first case (default 0)
  --level L       an option of the engine: its instruction set, for instance
  --op NAME       only groups of operations whose name contains NAME
  --batch N       cases per process (default 100)
  --replay S:N    case N under seed S, printed; S:A..B runs several
  --list          the groups of operations";

/// The sites of an engine, given the value of `--level`.
pub type MakeSites = fn(Option<&str>) -> Result<Vec<Box<dyn Site>>>;

/// The options of the command line.
#[derive(Clone, Debug, Default)]
struct Options {
    seed: u64,
    cases: u64,
    from: u64,
    batch: u64,
    level: Option<String>,
    op: Option<String>,
    replay: Option<(u64, Range<u64>)>,
    child: bool,
    list: bool,
}

fn parse(args: impl Iterator<Item = String>) -> Result<Options> {
    let clock = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seed = clock.as_nanos() as u64 % 1_000_000_007;
    let mut options = Options { seed, cases: 10_000, batch: BATCH, ..Options::default() };
    let mut args = args.peekable();
    while let Some(name) = args.next() {
        let mut value =
            || args.next().ok_or_else(|| Error::value(format!("{name} needs a value")).note(HELP));
        match name.as_str() {
            "--seed" => options.seed = number(&value()?)?,
            "--cases" => options.cases = number(&value()?)?,
            "--from" => options.from = number(&value()?)?,
            "--batch" => options.batch = number(&value()?)?.max(1),
            "--level" => options.level = Some(value()?),
            "--op" => options.op = Some(value()?),
            "--replay" => options.replay = Some(replay_range(&value()?)?),
            "--child" => options.child = true,
            "--list" => options.list = true,
            _ => return Err(Error::value(format!("no option is called {name}")).note(HELP)),
        }
    }
    Ok(options)
}

fn number(text: &str) -> Result<u64> {
    text.parse().map_err(|_| Error::value(format!("{text:?} is not a number")))
}

/// `S:N` or `S:A..B`.
fn replay_range(text: &str) -> Result<(u64, Range<u64>)> {
    let (seed, cases) =
        text.split_once(':').ok_or_else(|| Error::value(format!("{text:?} is not SEED:CASE")))?;
    let range = match cases.split_once("..") {
        Some((from, end)) => number(from)?..number(end)?,
        None => number(cases)?..number(cases)? + 1,
    };
    Ok((number(seed)?, range))
}

/// Runs the program for an engine: the process's arguments decide what it does. Fails if there are
/// findings.
pub fn main(make: MakeSites, rules: Rules) -> ExitCode {
    let run = || -> Result<bool> {
        let options = parse(std::env::args().skip(1))?;
        if options.list {
            println!("{}", super::names().join("\n"));
            return Ok(true);
        }
        if let Some((seed, range)) = options.replay.clone() {
            if std::env::var_os(GUARD).is_none() {
                return guarded();
            }
            return replay(&options, seed, range, make, rules);
        }
        if options.child {
            return child(&options, make, rules).map(|()| true);
        }
        Campaign::new(&options)?.run()
    };
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// This command again, in a process with guarded blocks.
fn guarded() -> Result<bool> {
    let failed = |e: std::io::Error| Error::io(format!("a process for the cases: {e}"));
    let mut command = Command::new(std::env::current_exe().map_err(failed)?);
    let status =
        command.args(std::env::args_os().skip(1)).env(GUARD, "1").status().map_err(failed)?;
    if !status.success() {
        println!("{status}");
    }
    Ok(status.success())
}

/// Runs cases in this process and prints each.
fn replay(
    options: &Options,
    seed: u64,
    range: Range<u64>,
    make: MakeSites,
    rules: Rules,
) -> Result<bool> {
    let sites = make(options.level.as_deref())?;
    let sites: Vec<&dyn Site> = sites.iter().map(|s| s.as_ref()).collect();
    let mut sound = true;
    for case_number in range {
        let case = generate(seed, case_number, options.op.as_deref())?.under(rules);
        println!("{seed}:{case_number} {}", case.describe());
        match check(&case, &sites, rules) {
            Ok(verdict) => println!("  {verdict:?}"),
            Err(why) => {
                sound = false;
                println!("  FINDING: {why}");
            }
        }
    }
    Ok(sound)
}

/// The outcomes of the cases of one operation.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    agreed: u64,
    refused: u64,
    unsupported: u64,
    findings: u64,
    micros: u64,
}

/// One batch, on the far side of a pipe.
fn child(options: &Options, make: MakeSites, rules: Rules) -> Result<()> {
    std::panic::set_hook(Box::new(|_| {}));
    let sites = make(options.level.as_deref())?;
    let sites: Vec<&dyn Site> = sites.iter().map(|s| s.as_ref()).collect();
    let mut totals: BTreeMap<&'static str, Totals> = BTreeMap::new();
    let say = |line: String| {
        let mut out = std::io::stdout().lock();
        out.write_all(format!("{line}\n").as_bytes())
            .and_then(|()| out.flush())
            .map_err(|e| Error::io(e.to_string()))
    };
    for number in options.from..options.from + options.cases {
        let start = Instant::now();
        say(format!("@{number}"))?;
        let case = match generate(options.seed, number, options.op.as_deref()) {
            Ok(case) => case.under(rules),
            Err(error) => {
                say(format!(
                    "!{number} generator the case cannot be made: {}",
                    escaped(&error.to_string())
                ))?;
                continue;
            }
        };
        let total = totals.entry(case.op()).or_default();
        match check(&case, &sites, rules) {
            Ok(Verdict::Agreed) => total.agreed += 1,
            Ok(Verdict::Refused) => total.refused += 1,
            Ok(Verdict::Unsupported) => total.unsupported += 1,
            Err(why) => {
                total.findings += 1;
                let text = escaped(&format!("{why}\n    {}", case.describe()));
                say(format!("!{number} {} {text}", case.op()))?;
            }
        }
        total.micros += start.elapsed().as_micros() as u64;
    }
    for (op, t) in totals {
        say(format!(
            "={op} {} {} {} {} {}",
            t.agreed, t.refused, t.unsupported, t.findings, t.micros
        ))?;
    }
    say(".".to_string())
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n")
}

fn unescaped(text: &str) -> String {
    text.replace("\\n", "\n").replace("\\\\", "\\")
}

/// How a child ended.
enum End {
    Finished,
    /// In the case of this number, with these words.
    Died(u64, String),
}

/// All batches, seen from the parent.
struct Campaign {
    options: Options,
    totals: BTreeMap<String, Totals>,
    findings: u64,
}

impl Campaign {
    fn new(options: &Options) -> Result<Campaign> {
        // A wrong name is better noticed before a thousand processes are.
        generate(options.seed, options.from, options.op.as_deref())?;
        Ok(Campaign { options: options.clone(), totals: BTreeMap::new(), findings: 0 })
    }

    fn run(mut self) -> Result<bool> {
        let start = Instant::now();
        let (seed, from, end) =
            (self.options.seed, self.options.from, self.options.from + self.options.cases);
        println!("seed {seed}, cases {from}..{end}{}", self.flags());
        let mut next = from;
        let mut reported = Instant::now();
        while next < end {
            let count = self.options.batch.min(end - next);
            next = match self.batch(next, count, true)? {
                End::Finished => next + count,
                End::Died(number, how) => {
                    let place = self.locate(next, number)?;
                    self.finding("a dead process", &format!("case {number}: {how}"), &place);
                    number + 1
                }
            };
            if reported.elapsed() > Duration::from_secs(30) {
                reported = Instant::now();
                println!(
                    "  {} cases, {} findings, {:.0} s",
                    next - from,
                    self.findings,
                    start.elapsed().as_secs_f64()
                );
            }
        }
        self.print(start.elapsed());
        Ok(self.findings == 0)
    }

    /// The options that a replay needs too.
    fn flags(&self) -> String {
        let mut text = String::new();
        for (name, value) in [("--level", &self.options.level), ("--op", &self.options.op)] {
            if let Some(value) = value {
                text += &format!(" {name} {value}");
            }
        }
        text
    }

    /// Runs `count` cases from `from` on in a fresh process; `counted` cases enter the totals.
    fn batch(&mut self, from: u64, count: u64, counted: bool) -> Result<End> {
        let failed = |e: std::io::Error| Error::io(format!("a process for the batch: {e}"));
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.args([
            "--child",
            "--seed",
            &self.options.seed.to_string(),
            "--from",
            &from.to_string(),
            "--cases",
            &count.to_string(),
        ]);
        for (name, value) in [("--level", &self.options.level), ("--op", &self.options.op)] {
            if let Some(value) = value {
                command.args([name, value]);
            }
        }
        command.env(GUARD, "1").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut process = command.spawn().map_err(failed)?;
        let out = process.stdout.take().ok_or_else(|| Error::internal("a child without a pipe"))?;
        let (sender, lines) = channel();
        let reader = std::thread::spawn(move || {
            BufReader::new(out)
                .lines()
                .map_while(std::result::Result::ok)
                .for_each(|line| _ = sender.send(line));
        });
        let (mut current, mut finished, mut hangs) = (from, false, false);
        loop {
            match lines.recv_timeout(PATIENCE) {
                Ok(line) => match (line.get(..1), line.get(1..)) {
                    (Some("@"), Some(rest)) => current = number(rest)?,
                    (Some("!"), Some(rest)) if counted => self.reported(rest),
                    (Some("="), Some(rest)) if counted => self.add(rest),
                    (Some("."), _) => finished = true,
                    _ => {}
                },
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    hangs = true;
                    process.kill().map_err(failed)?;
                    break;
                }
            }
        }
        let status = process.wait().map_err(failed)?;
        _ = reader.join();
        Ok(match finished && status.success() {
            true => End::Finished,
            false if hangs => End::Died(current, format!("no end after {} s", PATIENCE.as_secs())),
            false => End::Died(current, format!("the process died: {status}")),
        })
    }

    /// The shortest run of cases up to `number`, in a batch that began at `first`, that still kills
    /// a fresh process.
    fn locate(&mut self, first: u64, number: u64) -> Result<String> {
        let seed = self.options.seed;
        let mut before = 0;
        loop {
            let from = number.saturating_sub(before).max(first);
            if let End::Died(..) = self.batch(from, number + 1 - from, false)? {
                let range = if before == 0 {
                    number.to_string()
                } else {
                    format!("{from}..{}", number + 1)
                };
                return Ok(format!("{seed}:{range}"));
            }
            if from == first {
                return Ok(format!("{seed}:{first}..{} (not every time)", number + 1));
            }
            before = 2 * before + 1;
        }
    }

    /// A finding as a child writes it: number, operation, text.
    fn reported(&mut self, line: &str) {
        let mut parts = line.splitn(3, ' ');
        let (number, op, text) =
            (parts.next().unwrap_or(""), parts.next().unwrap_or(""), parts.next().unwrap_or(""));
        let place = format!("{}:{number}", self.options.seed);
        self.finding(op, &unescaped(text), &place);
    }

    fn finding(&mut self, op: &str, text: &str, place: &str) {
        self.findings += 1;
        let total = self.totals.entry(op.to_string()).or_default();
        total.findings += 1;
        if total.findings <= PRINTED {
            println!("FINDING {op}: {text}\n    --replay {place}{}", self.flags());
        }
    }

    /// A total as a child writes it. Its findings have been counted as they came.
    fn add(&mut self, line: &str) {
        let mut parts = line.split(' ');
        let total = self.totals.entry(parts.next().unwrap_or("").to_string()).or_default();
        let mut next = || parts.next().and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        total.agreed += next();
        total.refused += next();
        total.unsupported += next();
        next();
        total.micros += next();
    }

    fn print(&self, time: Duration) {
        println!(
            "{:<18}{:>10}{:>10}{:>12}{:>10}{:>10}",
            "operation", "agreed", "refused", "unsupported", "findings", "us/case"
        );
        for (op, t) in &self.totals {
            let cases = t.agreed + t.refused + t.unsupported + t.findings;
            println!(
                "{op:<18}{:>10}{:>10}{:>12}{:>10}{:>10}",
                t.agreed,
                t.refused,
                t.unsupported,
                t.findings,
                t.micros / cases.max(1)
            );
        }
        let rate = self.options.cases as f64 / time.as_secs_f64();
        println!(
            "seed {}: {} cases, {} findings, {:.0} s, {rate:.0} cases/s{}",
            self.options.seed,
            self.options.cases,
            self.findings,
            time.as_secs_f64(),
            self.flags()
        );
    }
}
