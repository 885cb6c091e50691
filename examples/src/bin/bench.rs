//! Times single operations and whole models and prints a line of JSON for each, for comparison with
//! other libraries.
#![forbid(unsafe_code)]

use examples::bench::sweep::Sweep;
use examples::bench::{Bench, models, ops, overhead, roofline};
use examples::options::{any, one_of};
use examples::{Common, Program, opt};
use std::process::ExitCode;
use teeny_core::{DType, Error, Result};
use teeny_cpu::{Cpu, CpuOptions, FloatMatmul};

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Times operations and models; prints one line of JSON for each.",
    options: &[
        opt("only PREFIX",
            "workloads whose names start with PREFIX, or with one of a comma-separated
list [all]",
            |o, v| { o.only.extend(v.get(any::<String>)?.split(',').map(str::to_string)); Ok(()) }),
        opt("quick", "0.3 s for each workload instead of 1 s", |o, v| v.flag(&mut o.quick)),
        opt("matmul PATH", "products of floats on the CPU: own, or gemm for the gemm crate [own]",
            |o, v| v.with(&mut o.matmul, |path| one_of(path, &PATHS))),
        opt("sweep", "random operations, shapes, layouts and types instead of the list; --seed has
the seed, --only names operations",
            |o, v| v.flag(&mut o.sweep)),
        opt("models", "with --sweep: models instead of operations", |o, v| v.flag(&mut o.models)),
        opt("cases N", "how many random operations [100]",
            |o, v| v.with(&mut o.cases, any::<usize>)),
        opt("grad", "with the gradients of the operands; of models, a training step",
            |o, v| v.flag(&mut o.grad)),
        opt("dtype NAMES", "types of random operations, comma-separated, or all [f32]",
            |o, v| v.with(&mut o.dtypes, dtypes)),
        opt("turns", "time a case again for each line `again` of standard input",
            |o, v| v.flag(&mut o.turns)),
        opt("simulate THREADS",
            "numbers of threads, comma-separated: their times, computed from a run on one (needs
--features simulate)",
            |o, v| v.with(&mut o.simulate, thread_counts)),
        opt("roofline",
            "operations beside the peaks of the device, which are measured: GFLOP/s, GB/s,
FLOP per byte, the GFLOP/s that the peaks allow, and the share reached",
            |o, v| v.flag(&mut o.roofline)),
    ],
    without: &[
        "data", "load", "save", "resume", "plot", "log", "trace", "check", "compare", "graph",
        "lazy", "captured",
    ],
};

const PATHS: [(&str, FloatMatmul); 2] =
    [("own", FloatMatmul::Own), ("gemm", FloatMatmul::GemmCrate)];

struct Options {
    only: Vec<String>,
    quick: bool,
    matmul: FloatMatmul,
    sweep: bool,
    roofline: bool,
    models: bool,
    cases: usize,
    grad: bool,
    dtypes: Vec<DType>,
    turns: bool,
    simulate: Vec<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            only: Vec::new(),
            quick: false,
            matmul: FloatMatmul::default(),
            sweep: false,
            roofline: false,
            models: false,
            cases: 100,
            grad: false,
            dtypes: vec![DType::F32],
            turns: false,
            simulate: Vec::new(),
        }
    }
}

fn main() -> ExitCode {
    PROGRAM.main(Options::default(), run)
}

fn dtypes(names: &str) -> std::result::Result<Vec<DType>, String> {
    if names == "all" {
        return Ok(DType::ALL.to_vec());
    }
    let find = |name: &str| DType::ALL.into_iter().find(|dtype| dtype.name() == name);
    names
        .split(',')
        .map(|name| find(name).ok_or_else(|| format!("--dtype {name}: no such type")))
        .collect()
}

fn thread_counts(counts: &str) -> std::result::Result<Vec<usize>, String> {
    if !cfg!(feature = "simulate") {
        return Err("--simulate: build with --features simulate".to_string());
    }
    let count = |text: &str| match text.parse() {
        Ok(count @ 1..=4096) => Ok(count),
        _ => Err(format!("--simulate {text}: a number of threads from 1 to 4096")),
    };
    counts.split(',').map(count).collect()
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let mut choice = common.engine()?;
    if options.matmul != FloatMatmul::Own {
        if choice.device.downcast_ref::<Cpu>().is_none() {
            return Err(Error::value("--matmul is an option of the device cpu"));
        }
        choice.device = Cpu::with_options(CpuOptions::new().with_float_matmul(options.matmul));
    }
    eprintln!("# {}", choice.note);
    if options.sweep {
        return Sweep {
            device: choice.device,
            seed: common.seed,
            cases: options.cases,
            grad: options.grad,
            dtypes: options.dtypes.clone(),
            only: options.only.clone(),
            models: options.models,
            turns: options.turns,
        }
        .run();
    }
    let threads = teeny_cpu::threads();
    let name = choice.device.info().name.to_string();
    let bench = Bench {
        device: choice.device,
        name,
        threads,
        only: options.only.clone(),
        quick: options.quick,
        simulate: options.simulate.clone(),
    };
    if options.roofline {
        return roofline::run(&bench);
    }
    ops::products(&bench)?;
    ops::elementwise(&bench)?;
    ops::fused(&bench)?;
    ops::chains(&bench)?;
    overhead::recording(&bench)?;
    ops::rows(&bench)?;
    ops::windows(&bench)?;
    models::training(&bench)?;
    models::gpt2(&bench)?;
    ops::dispatch(&bench)
}
