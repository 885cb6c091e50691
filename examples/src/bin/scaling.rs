//! Computes how many ranks data-parallel training is worth: step time, efficiency and memory of
//! three models by the number of ranks, from the cost model [`examples::cost`].
#![forbid(unsafe_code)]

use examples::cost::{
    Cluster, Link, Processor, Scaling, ScalingRow, Strategy, TrainingPlan, Workload, limit, sweep,
};
#[cfg(feature = "mpi")]
use examples::cost::{Measured, SUM_RATE};
use examples::options::{at_least_one, positive};
#[cfg(feature = "mpi")]
use examples::ranks::Distributed;
use examples::{Common, Program, opt, print, println};
use std::process::ExitCode;
#[cfg(feature = "mpi")]
use std::time::Instant;
#[cfg(not(feature = "mpi"))]
use teeny_core::Error;
use teeny_core::Result;
#[cfg(feature = "mpi")]
use teeny_core::{DType, Tensor};
#[cfg(feature = "mpi")]
use teeny_distributed::Reduce;

#[rustfmt::skip]
const PROGRAM: Program<Options> = Program {
    about: "Computes how far data-parallel training scales.",
    options: &[
        opt("model NAME", "gpt_char, gpt2 or llama7b [all]",
            |o, v| v.with(&mut o.model, |s| one_of(s, &MODELS))),
        opt("link NAME", "ethernet1, ethernet10, infiniband100, or shared: all ranks on one machine
[ethernet10]",
            |o, v| v.with(&mut o.link, |s| one_of(s, &LINKS))),
        opt("latency S", "seconds per message [the link's]",
            |o, v| v.with(&mut o.latency, positive)),
        opt("bandwidth B", "bytes per second [the link's]",
            |o, v| v.with(&mut o.bandwidth, positive)),
        opt("per-node N", "ranks of a machine, which share its link to the others [1]",
            |o, v| v.with(&mut o.per_node, at_least_one)),
        opt("processor NAME", "cpu or a100: one per rank [cpu for gpt_char, else a100]",
            |o, v| v.with(&mut o.processor, |s| one_of(s, &PROCESSORS))),
        opt("flops X",
            "floating-point operations per second of a rank in training [the processor's]",
            |o, v| v.with(&mut o.flops, positive)),
        opt("sums B", "bytes per second of arriving elements that a rank adds on the host [5e9]",
            |o, v| v.with(&mut o.sums, positive)),
        opt("items N", "sequences of a rank per step [12; llama7b 1]",
            |o, v| v.with(&mut o.items, |s| at_least_one(s).map(|n| n as f64))),
        opt("bucket B", "bytes of gradients that are sent together [1048576]",
            |o, v| v.with(&mut o.bucket, positive)),
        opt("strong", "keep the sequences of all ranks constant [those of each rank]",
            |o, v| v.flag(&mut o.strong)),
        opt("limits", "only say where scaling ends, for every processor and link",
            |o, v| v.flag(&mut o.limits)),
        opt("measure",
            "with mpirun: measure all_reduces between the ranks, and compute with a link that
is fitted to them",
            |o, v| v.flag(&mut o.measure)),
    ],
    without: &[
        "device", "threads", "seed", "data", "load", "save", "resume", "plot", "log", "trace",
        "check", "compare", "lazy", "captured", "graph",
    ],
};

const MODELS: [&str; 3] = ["gpt_char", "gpt2", "llama7b"];
const LINKS: [&str; 4] = ["ethernet1", "ethernet10", "infiniband100", "shared"];
const PROCESSORS: [&str; 2] = ["cpu", "a100"];

#[derive(Clone, Default)]
struct Options {
    model: Option<&'static str>,
    link: Option<&'static str>,
    latency: Option<f64>,
    bandwidth: Option<f64>,
    per_node: Option<usize>,
    processor: Option<&'static str>,
    flops: Option<f64>,
    sums: Option<f64>,
    items: Option<f64>,
    bucket: Option<f64>,
    strong: bool,
    limits: bool,
    measure: bool,
}

fn main() -> ExitCode {
    PROGRAM.main(Options::default(), run)
}

/// The name in `names` that `text` is.
fn one_of(text: &str, names: &[&'static str]) -> std::result::Result<&'static str, String> {
    let found = names.iter().find(|name| **name == text);
    found.copied().ok_or_else(|| format!("one of {} is needed", names.join(", ")))
}

impl Options {
    fn workload(&self, model: &str) -> Workload {
        let mut workload = match model {
            "gpt_char" => Workload::gpt_char(),
            "gpt2" => Workload::gpt2(),
            _ => Workload::llama7b(),
        };
        if let Some(items) = self.items {
            workload.items_per_rank = items;
        }
        workload
    }

    fn cluster(&self, link: &str, processor: &str) -> Cluster {
        let mut processor = match processor {
            "a100" => Processor::a100(),
            _ => Processor::cpu(),
        };
        processor.flops = self.flops.unwrap_or(processor.flops);
        let adjust = |link: Link| Link {
            latency: self.latency.unwrap_or(link.latency),
            bandwidth: self.bandwidth.unwrap_or(link.bandwidth),
        };
        let machines = |between| {
            let cluster = Cluster::new(1, adjust(between), processor);
            cluster.with_ranks_per_node(self.per_node.unwrap_or(1))
        };
        let mut cluster = match link {
            "ethernet1" => machines(Link::ethernet1()),
            "ethernet10" => machines(Link::ethernet10()),
            "infiniband100" => machines(Link::infiniband100()),
            _ => {
                let node = Cluster::one_node(1, processor);
                Cluster { within: adjust(node.within), ..node }
            }
        };
        cluster.sum_rate = self.sums.unwrap_or(cluster.sum_rate);
        cluster
    }

    /// The processor of each rank that trains `model`.
    fn processor(&self, model: &str) -> &'static str {
        self.processor.unwrap_or(if model == "gpt_char" { "cpu" } else { "a100" })
    }

    fn plan(&self, strategy: Strategy) -> TrainingPlan {
        let plan = TrainingPlan::new(strategy);
        plan.with_bucket(self.bucket.unwrap_or(plan.bucket))
    }

    fn scaling(&self) -> Scaling {
        if self.strong { Scaling::Strong } else { Scaling::Weak }
    }
}

fn run(options: &Options, common: &Common) -> Result<()> {
    let mut options = options.clone();
    if options.measure {
        let link = measure(&options, common)?;
        options.link.get_or_insert("shared");
        options.latency.get_or_insert(link.latency);
        options.bandwidth.get_or_insert(link.bandwidth);
    }
    if !common.is_first() {
        return Ok(());
    }
    let options = &options;
    let chosen = |model: &&&str| options.model.is_none_or(|name| name == **model);
    if options.limits {
        return limits(options, MODELS.iter().filter(chosen));
    }
    for model in MODELS.iter().filter(chosen) {
        table(options, model)?;
    }
    Ok(())
}

/// Measures all_reduces between the ranks of this job; the link that explains them.
#[cfg(feature = "mpi")]
fn measure(options: &Options, common: &Common) -> Result<Link> {
    let joined = Distributed { distributed: true, ..Distributed::default() };
    let comm = common.join(&joined)?.data();
    let device = teeny_nn::device("cpu")?;
    let mut measured = Vec::new();
    common.print(format_args!("all_reduce of f32 by {} ranks, the fastest of 30", comm.size()));
    for elements in [1usize, 1 << 12, 1 << 16, 1 << 18, 1 << 20, 1 << 22] {
        let x = Tensor::ones((elements,), DType::F32, &device)?;
        let mut seconds = f64::INFINITY;
        for _ in 0..30 {
            comm.barrier()?;
            let start = Instant::now();
            let _ = comm.all_reduce(&x, Reduce::Sum)?;
            seconds = seconds.min(start.elapsed().as_secs_f64());
        }
        // the slowest rank has the result last
        let slowest = Tensor::new([seconds], &device)?;
        let seconds = comm.all_reduce(&slowest, Reduce::Max)?.to_vec::<f64>()?[0];
        let bytes = 4.0 * elements as f64;
        common.print(format_args!("{bytes:>10} bytes {:>10.1} us", seconds * 1e6));
        measured.push(Measured { ranks: comm.size(), bytes, seconds });
    }
    let link = Link::fit(&measured, options.sums.unwrap_or(SUM_RATE))?;
    let Link { latency, bandwidth } = link;
    common.print(format_args!(
        "fitted: {:.1} us per message, {:.2} GB/s\n",
        latency * 1e6,
        bandwidth / 1e9
    ));
    Ok(link)
}

#[cfg(not(feature = "mpi"))]
fn measure(_: &Options, _: &Common) -> Result<Link> {
    Err(Error::unsupported("this program was built without MPI")
        .help("mpirun -n 2 cargo run --release --features mpi --bin scaling -- --measure"))
}

/// Prints the steps of `model` by the number of ranks, for each strategy, and where they end.
fn table(options: &Options, model: &str) -> Result<()> {
    let workload = options.workload(model);
    let (link, processor) = (options.link.unwrap_or("ethernet10"), options.processor(model));
    let cluster = options.cluster(link, processor);
    let shown = if link == "shared" { cluster.within } else { cluster.between };
    let items = match options.scaling() {
        Scaling::Weak => format!("sequences per rank: {}", workload.items_per_rank),
        Scaling::Strong => format!("sequences of all ranks: {}", workload.joint_items),
    };
    println!(
        "{model}: {:.4} million parameters, {items}, {:.3} Gflop each\n\
         {processor} with {:.2e} flop/s; {link}, {:.1} us and {:.2} GB/s, {}",
        workload.parameters() / 1e6,
        workload.flops() / 1e9,
        cluster.processor.flops,
        shown.latency * 1e6,
        shown.bandwidth / 1e9,
        if link == "shared" {
            "all ranks on one machine".to_string()
        } else {
            format!("ranks per machine: {}", cluster.ranks_per_node)
        }
    );
    let sweep = |s| sweep(&workload, &cluster, &options.plan(s), options.scaling());
    let sweeps = Strategy::ALL.map(sweep).into_iter().collect::<Result<Vec<Vec<ScalingRow>>>>()?;
    print!("{:>5}", "");
    Strategy::ALL.iter().for_each(|strategy| print!(" | {strategy:^34}"));
    print!("\n{:>5}", "ranks");
    Strategy::ALL
        .iter()
        .for_each(|_| print!(" | {:>8} {:>8} {:>8} {:>7}", "step", "exposed", "memory", "eff."));
    println!();
    for i in 0..sweeps[0].len() {
        print!("{:>5}", sweeps[0][i].ranks);
        for ScalingRow { step, efficiency, .. } in sweeps.iter().map(|rows| &rows[i]) {
            print!(
                " | {:>8} {:>8} {:>8} {:>6.1}%",
                seconds(step.seconds),
                seconds(step.exposed),
                bytes(step.memory.total()),
                100.0 * efficiency
            );
        }
        println!();
    }
    for strategy in Strategy::ALL {
        let limit = |e| limit(&workload, &cluster, &options.plan(strategy), options.scaling(), e);
        let (high, half) = (limit(0.8)?, limit(0.5)?);
        println!("{strategy}: 80 % of linear up to {}, 50 % up to {}", ranks(high), ranks(half));
    }
    println!();
    Ok(())
}

/// Prints where each model stops scaling, for every processor, link and strategy.
fn limits<'a>(options: &Options, models: impl Iterator<Item = &'a &'a str>) -> Result<()> {
    print!("{:<9} {:<9} {:<13}", "model", "processor", "link");
    Strategy::ALL.iter().for_each(|s| print!(" | {:>8} 80% {:>5}", s.to_string(), "50%"));
    println!();
    for model in models {
        let workload = options.workload(model);
        for processor in PROCESSORS.iter().filter(|p| options.processor.is_none_or(|o| o == **p)) {
            for link in LINKS.iter().filter(|l| options.link.is_none_or(|o| o == **l)) {
                let cluster = options.cluster(link, processor);
                print!("{model:<9} {processor:<9} {link:<13}");
                for strategy in Strategy::ALL {
                    let plan = options.plan(strategy);
                    let limit = |e| limit(&workload, &cluster, &plan, options.scaling(), e);
                    print!(" | {:>12} {:>5}", limit(0.8)?, limit(0.5)?);
                }
                println!();
            }
        }
    }
    println!("the most ranks, of powers of 2 up to 4096, with 80 % and 50 % of linear scaling");
    Ok(())
}

fn ranks(n: usize) -> String {
    if n == 1 { "1 rank".into() } else { format!("{n} ranks") }
}

/// `x` with a unit, in at most 8 characters.
fn seconds(x: f64) -> String {
    match x {
        0.0 => "0".into(),
        _ if x < 1e-3 => format!("{:.1} us", x * 1e6),
        _ if x < 1.0 => format!("{:.1} ms", x * 1e3),
        _ if x < 1e3 => format!("{x:.2} s"),
        _ => format!("{x:.0} s"),
    }
}

fn bytes(x: f64) -> String {
    if x < 1e9 { format!("{:.1} MB", x / 1e6) } else { format!("{:.1} GB", x / 1e9) }
}
