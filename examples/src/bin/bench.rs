//! Times single operations and whole models and prints a line of JSON for each, for comparison with
//! other libraries.
#![forbid(unsafe_code)]

use examples::bench::{Bench, models, ops};
use examples::{Common, Parsed, Program};
use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use teeny_core::Result;

const PROGRAM: Program = Program {
    about: "Times operations and models; prints one line of JSON for each.",
    options:
        "  --only PREFIX    workloads whose names start with PREFIX, or with one of a comma-separated
                   list [all]
  --quick          0.3 s for each workload instead of 1 s
",
    without: &["data", "load", "save", "resume", "plot", "log", "trace", "check", "compare"],
};

#[derive(Default)]
struct Options {
    only: Vec<String>,
    quick: bool,
}

fn main() -> ExitCode {
    PROGRAM.main(Options::default(), option, run)
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
    match name {
        "only" => options.only.extend(parser.value()?.string()?.split(',').map(str::to_string)),
        "quick" => options.quick = true,
        _ => return Ok(false),
    }
    Ok(true)
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let choice = common.engine()?;
    eprintln!("# {}", choice.note);
    let threads = rayon::current_num_threads();
    let name = choice.device.info().name.to_string();
    let bench = Bench {
        device: choice.device,
        name,
        threads,
        only: options.only.clone(),
        quick: options.quick,
    };
    ops::products(&bench)?;
    ops::elementwise(&bench)?;
    ops::rows(&bench)?;
    ops::windows(&bench)?;
    models::training(&bench)?;
    models::gpt2(&bench)?;
    ops::dispatch(&bench)
}
