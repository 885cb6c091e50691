//! Times single operations and whole models and prints a line of JSON for each, for comparison with
//! other libraries.
#![forbid(unsafe_code)]

use examples::bench::sweep::Sweep;
use examples::bench::{Bench, models, ops, overhead, roofline};
use examples::{Common, Parsed, Program};
use lexopt::{Parser, ValueExt};
use std::process::ExitCode;
use teeny_core::{DType, Error, Result};
use teeny_cpu::{Cpu, CpuOptions, FloatMatmul};

const PROGRAM: Program = Program {
    about: "Times operations and models; prints one line of JSON for each.",
    options:
        "  --only PREFIX    workloads whose names start with PREFIX, or with one of a comma-separated
                   list [all]
  --quick          0.3 s for each workload instead of 1 s
  --matmul PATH    products of floats on the CPU: own, or gemm for the gemm crate [own]
  --sweep          random operations, shapes, layouts and types instead of the list; --seed has
                   the seed, --only names operations
  --models         with --sweep: models instead of operations
  --cases N        how many random operations [100]
  --grad           with the gradients of the operands; of models, a training step
  --dtype NAMES    types of random operations, comma-separated, or all [f32]
  --turns          time a case again for each line `again` of standard input
  --roofline       operations beside the peaks of the device, which are measured: GFLOP/s, GB/s,
                   FLOP per byte, the GFLOP/s that the peaks allow, and the share reached
",
    without: &[
        "data", "load", "save", "resume", "plot", "log", "trace", "check", "compare", "graph", "lazy",
        "captured",
    ],
};

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
        }
    }
}

fn main() -> ExitCode {
    PROGRAM.main(Options::default(), option, run)
}

fn option(options: &mut Options, name: &str, parser: &mut Parser) -> Parsed<bool> {
    match name {
        "only" => options.only.extend(parser.value()?.string()?.split(',').map(str::to_string)),
        "quick" => options.quick = true,
        "sweep" => options.sweep = true,
        "roofline" => options.roofline = true,
        "models" => options.models = true,
        "cases" => options.cases = parser.value()?.parse()?,
        "grad" => options.grad = true,
        "dtype" => options.dtypes = dtypes(&parser.value()?.string()?)?,
        "turns" => options.turns = true,
        "matmul" => {
            options.matmul = match parser.value()?.string()?.as_str() {
                "own" => FloatMatmul::Own,
                "gemm" => FloatMatmul::GemmCrate,
                other => return Err(format!("--matmul {other}: own or gemm").into()),
            }
        }
        _ => return Ok(false),
    }
    Ok(true)
}

fn dtypes(names: &str) -> Parsed<Vec<DType>> {
    if names == "all" {
        return Ok(DType::ALL.to_vec());
    }
    let find = |name: &str| DType::ALL.into_iter().find(|dtype| dtype.name() == name);
    names
        .split(',')
        .map(|name| find(name).ok_or_else(|| format!("--dtype {name}: no such type").into()))
        .collect()
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let mut choice = common.engine()?;
    if options.matmul != FloatMatmul::Own {
        if choice.device.downcast_ref::<Cpu>().is_none() {
            return Err(Error::value("--matmul is an option of the device cpu"));
        }
        choice.device =
            Cpu::with_options(CpuOptions { float_matmul: options.matmul, ..CpuOptions::default() });
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
    let threads = rayon::current_num_threads();
    let name = choice.device.info().name.to_string();
    let bench = Bench {
        device: choice.device,
        name,
        threads,
        only: options.only.clone(),
        quick: options.quick,
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
