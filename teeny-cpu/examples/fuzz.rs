//! Random single operations on the CPU engine against the oracle: `cargo run --release -p teeny-cpu --example fuzz`.
//!
//! Each case runs on one thread with fresh memory and on four with pooled memory: both must give the same bits, or a
//! result depends on threads or on what a block held before. `--level` is an instruction set: `portable`, `avx2` or
//! `avx512`. See `teeny_core::conformance::oneop`.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::process::ExitCode;
use teeny_core::conformance::oneop::{Rules, Site, program};
use teeny_core::device::DeviceRef;
use teeny_core::{Error, Result};
use teeny_cpu::{Cpu, CpuOptions, Level};

/// A device and the threads that it runs on.
struct Threads {
    device: DeviceRef,
    pool: ThreadPool,
}

impl Site for Threads {
    fn device(&self) -> &DeviceRef {
        &self.device
    }

    fn run(&self, f: &mut (dyn FnMut() + Send)) {
        self.pool.install(f);
    }
}

fn sites(level: Option<&str>) -> Result<Vec<Box<dyn Site>>> {
    let level = match level {
        None => Level::best(),
        Some("portable") => Level::Portable,
        Some("avx2") => Level::Avx2,
        Some("avx512") => Level::Avx512,
        Some(other) => return Err(Error::value(format!("no level is called {other}: portable, avx2 or avx512"))),
    };
    if level.supported() != level {
        return Err(Error::unsupported(format!("this processor has no {level:?}")));
    }
    let site = |threads: usize, cache_bytes: usize| -> Result<Box<dyn Site>> {
        let device: DeviceRef = Cpu::with(CpuOptions { level, cache_bytes, ..CpuOptions::default() });
        let pool = ThreadPoolBuilder::new().num_threads(threads).build();
        let pool = pool.map_err(|e| Error::internal(format!("{threads} threads: {e}")))?;
        Ok(Box::new(Threads { device, pool }))
    };
    Ok(vec![site(1, 0)?, site(4, CpuOptions::default().cache_bytes)?])
}

fn main() -> ExitCode {
    program::main(sites, Rules::default())
}
