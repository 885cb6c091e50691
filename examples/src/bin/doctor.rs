//! Examines the machine and prints a report for bug reports.
//!
//! Lists the CPU and the GPU adapters, says which device `auto` takes and why, and compares the CPU
//! and the GPU with the oracle for two seconds each, with a sample of the conformance suite. The
//! exit code is 1 if something disagrees or cannot be opened.
#![forbid(unsafe_code)]

use examples::options::positive;
use examples::{Program, opt, println};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use teeny_conformance::{Cell, Suite};
use teeny_core::{Error, Result};
use teeny_cpu::{Cpu, Level};
use teeny_wgpu::{Capabilities, Wgpu};

#[rustfmt::skip]
const PROGRAM: Program<f64> = Program {
    about: "Examines this machine and prints a report for bug reports.",
    options: &[opt("seconds X", "how long each device is tested [2]", |o, v| v.with(o, positive))],
    without: &[
        "device", "threads", "seed", "data", "load", "save", "resume", "plot", "log", "trace",
        "check", "compare", "lazy", "captured", "graph",
    ],
};

/// Environment variables that change which device is chosen or how it computes.
const VARIABLES: [&str; 14] = [
    "TEENY_DEVICE",
    "TEENY_WGPU_ADAPTER",
    "TEENY_WGPU_CHECKED",
    "TEENY_DEBUG",
    "TEENY_CPU_LEVEL",
    "RAYON_NUM_THREADS",
    "WGPU_BACKEND",
    "VK_ICD_FILENAMES",
    "VK_DRIVER_FILES",
    "VK_INSTANCE_LAYERS",
    "VK_LOADER_DEBUG",
    "LP_NUM_THREADS",
    "MESA_SHADER_CACHE_DIR",
    "MESA_SHADER_CACHE_DISABLE",
];

fn main() -> ExitCode {
    PROGRAM.main(2.0, |seconds, _| examine(seconds.min(1e6)))
}

fn examine(seconds: f64) -> Result<()> {
    let build = if cfg!(debug_assertions) { "debug" } else { "release" };
    println!("teeny {} ({build} build)", env!("CARGO_PKG_VERSION"));
    println!("system   {}", system());
    println!("         {}", support());
    for name in VARIABLES {
        if let Some(value) = std::env::var_os(name) {
            println!("         {name}={}", value.to_string_lossy());
        }
    }
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    println!(
        "cpu      {}, {:?} of {:?}, {} threads of {threads}",
        std::env::consts::ARCH,
        Level::best(),
        Level::available(),
        teeny_cpu::threads()
    );

    let adapters = Wgpu::adapters();
    println!("adapters {}", if adapters.is_empty() { "none" } else { "" });
    adapters.iter().enumerate().for_each(|(i, adapter)| describe(i, adapter));
    match teeny_nn::device::choose("auto") {
        Ok(choice) => println!("auto     {}", choice.note),
        Err(error) => println!("auto     {error}"),
    }

    println!("tests    a sample of the conformance suite, {seconds} s each, against the oracle");
    let mut failures = test(Suite::new(Cpu::new()), seconds);
    match Wgpu::new() {
        Ok(gpu) => failures.extend(test(
            Suite::new(&gpu)
                .flushes_subnormals()
                .loses_zero_signs()
                .multiplies_padding()
                .simplifies_programs()
                .trusts_indices(),
            seconds,
        )),
        // A machine without a GPU is healthy.
        Err(error) if adapters.is_empty() => println!("  wgpu   not tested: {}", error.message()),
        Err(error) => failures.push(format!("wgpu cannot be opened: {error}")),
    }
    for failure in &failures {
        println!("FAILED   {failure}");
    }
    if failures.is_empty() {
        println!("result   everything agrees");
        return Ok(());
    }
    println!("result   {} failures", failures.len());
    Err(Error::internal("a device disagrees or cannot be opened").help("report it with this text"))
}

/// How teeny is tested on this platform, as the table in the README says, and what to report.
#[rustfmt::skip]
fn support() -> &'static str {
    match (std::env::consts::OS, std::env::consts::ARCH) {
        ("linux", "x86_64") => "built and tested at each change",
        ("linux", "aarch64" | "arm" | "x86") | ("windows", "x86_64") =>
            "tested under emulation before a release: please report what this prints",
        ("macos", _) => "compiled, but not run by the project: please report what this prints",
        _ => "not known to the project: please report what this prints, and how it was built",
    }
}

/// The operating system, with its version where that is known.
fn system() -> String {
    let target = if cfg!(target_env = "musl") { " (musl)" } else { "" };
    let mut text = format!("{} {}{target}", std::env::consts::OS, std::env::consts::ARCH);
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    if let Some(name) = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME=")) {
        text += &format!(", {}", name.trim_matches('"'));
    }
    if let Ok(kernel) = std::fs::read_to_string("/proc/sys/kernel/osrelease") {
        text += &format!(", kernel {}", kernel.trim());
    }
    text
}

fn describe(i: usize, adapter: &Capabilities) {
    let has = [
        ("i64", adapter.int64),
        ("f64", adapter.float64),
        ("f16", adapter.float16),
        ("subgroups", adapter.subgroups),
    ];
    let named = |wanted: bool| {
        let named = has.iter().filter(|(_, has)| *has == wanted).map(|(name, _)| *name);
        let all: Vec<&str> = named.collect();
        if all.is_empty() { "nothing".to_string() } else { all.join(" ") }
    };
    println!("  {i}: {adapter}");
    println!("     has {}; lacks {}", named(true), named(false));
    println!(
        "     buffers of {} MiB, bindings of {} MiB at multiples of {} B; \
         parameters at multiples of {} B",
        adapter.max_buffer >> 20,
        adapter.max_binding >> 20,
        adapter.binding_alignment,
        adapter.uniform_alignment
    );
    println!(
        "     workgroups of {} threads with {} KiB, {} along an axis",
        adapter.workgroup_threads,
        adapter.workgroup_memory >> 10,
        adapter.max_workgroups
    );
}

/// Runs a sample of the suite, prints a summary and returns the failures.
fn test(suite: Suite, seconds: f64) -> Vec<String> {
    let start = Instant::now();
    let report = suite.within(Duration::from_secs_f64(seconds)).run();
    let refused = report
        .rows()
        .iter()
        .flat_map(|(_, cells)| cells)
        .filter(|cell| matches!(cell, Cell::Unsupported(_)))
        .count();
    let (name, failures) = (&report.device().name, report.failures());
    println!(
        "  {name:6} {} cases of {} operations agree, {} fail, {refused} refused ({:.1} s)",
        report.cases(),
        report.rows().len(),
        failures.len(),
        start.elapsed().as_secs_f64()
    );
    failures.into_iter().map(|failure| format!("{name} {failure}")).collect()
}
