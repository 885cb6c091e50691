//! Random single operations on the CPU engine against the oracle:
//! `cargo run --release -p teeny-cpu --example fuzz`.
//!
//! Each case runs on a new thread with fresh memory, where nothing that earlier work left behind
//! hides a write past its end, and on sixteen threads with pooled memory: both must give the same
//! bits, or a result depends on threads or on the old content of a block. `--level` is an
//! instruction set: `portable`, `avx2` or `avx512`. See `teeny_conformance::oneop`.

use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};
use std::process::ExitCode;
use teeny_conformance::oneop::{Rules, Site, program};
use teeny_core::device::DeviceRef;
use teeny_core::{Error, Result};
use teeny_cpu::{Cpu, CpuOptions, Level};

/// A device and its threads: a given pool, or a new pool for each case.
struct Threads {
    device: DeviceRef,
    pool: Option<ThreadPool>,
}

impl Site for Threads {
    fn device(&self) -> &DeviceRef {
        &self.device
    }

    fn run(&self, f: &mut (dyn FnMut() + Send)) {
        match &self.pool {
            Some(pool) => pool.install(f),
            None => std::thread::scope(|scope| _ = scope.spawn(f)),
        }
    }
}

fn sites(level: Option<&str>) -> Result<Vec<Box<dyn Site>>> {
    let level = match level {
        None => Level::best(),
        Some("portable") => Level::Portable,
        Some("avx2") => Level::Avx2,
        Some("avx512") => Level::Avx512,
        Some(other) => {
            return Err(Error::value(format!(
                "no level is called {other}: portable, avx2 or avx512"
            )));
        }
    };
    if level.supported() != level {
        return Err(Error::unsupported(format!("this processor has no {level:?}")));
    }
    let pool = |threads: usize| ThreadPoolBuilder::new().num_threads(threads);
    let failed = |e: ThreadPoolBuildError| Error::internal(format!("the threads: {e}"));
    // A thread outside of all pools counts as one of the global pool.
    pool(1).build_global().map_err(failed)?;
    let device = |cache_bytes: usize| {
        Cpu::with_options(CpuOptions::new().with_level(level).with_cache_bytes(cache_bytes))
    };
    let cold = Threads { device: device(0), pool: None };
    let warm = Threads {
        device: device(CpuOptions::default().cache_bytes),
        pool: Some(pool(16).build().map_err(failed)?),
    };
    Ok(vec![Box::new(cold), Box::new(warm)])
}

fn main() -> ExitCode {
    program::main(sites, Rules::default())
}
