//! An address space that is nearly full: operations fail with an error and the next small one
//! works. Each case is a separate process, because the limit applies to a process.
#![cfg(target_os = "linux")]

mod common;

use common::alone;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use teeny_core::{Attention, DType, Device, ErrorKind, Result, SortOrder, Tensor, Window};
use teeny_cpu::Cpu;

const MIB: u64 = 1 << 20;

/// Bytes of this process's address space.
fn address_space() -> u64 {
    let pages: u64 = std::fs::read_to_string("/proc/self/statm")
        .unwrap()
        .split(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap();
    pages * 4096
}

/// Lets the process have at most `bytes` of address space, or all that there is.
fn limit(bytes: Option<u64>) {
    let limit = libc::rlimit {
        rlim_cur: bytes.unwrap_or(libc::RLIM_INFINITY),
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: the limit is a value of this function.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
}

/// Runs `run` under larger and larger limits, 2 MiB at first, until it succeeds: before that it
/// fails with the right error each time, and a small operation works.
fn starve(cpu: &Arc<Cpu>, run: &dyn Fn() -> Result<()>) {
    rayon::current_num_threads(); // starts the threads, but nothing that would leave memory behind
    let small = Tensor::full(16, 2.0, DType::F32, cpu).unwrap();
    let live = cpu.pool_stats().live_bytes;
    let mut failures = 0;
    for step in 1.. {
        cpu.clear_cache();
        limit(Some(address_space() + step * 2 * MIB));
        let got = catch_unwind(AssertUnwindSafe(run));
        let after = small.add(1.0f32).and_then(|x| x.to_vec::<f32>());
        limit(None);
        assert_eq!(after.unwrap(), [3.0; 16], "after step {step}");
        assert_eq!(cpu.pool_stats().live_bytes, live, "a leak at step {step}");
        match got.unwrap_or_else(|_| panic!("a panic at step {step}")) {
            Ok(()) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::OutOfMemory, "step {step}: {error}"),
        }
        failures += 1;
        assert!(step < 1000, "no limit is enough");
    }
    assert!(failures > 0, "the operation is too small for this test");
}

fn floats(cpu: &Arc<Cpu>, shape: &[usize]) -> Tensor {
    Tensor::randn(shape, DType::F32, cpu).unwrap()
}

macro_rules! starved {
    ($($name:ident |$cpu:ident| { $($made:stmt;)* } $run:expr;)*) => {$(
        #[test]
        fn $name() {
            alone(stringify!($name), || {
                let $cpu = &Cpu::new();
                $($made)*
                starve($cpu, &|| {
                    let _ = $run?;
                    Ok(())
                });
            });
        }
    )*};
}

starved! {
    sort |cpu| { let x = floats(cpu, &[1 << 20]); } x.sort(0, SortOrder::Ascending);
    sort_of_columns |cpu| { let x = floats(cpu, &[1 << 18, 4]); } x.sort(0, SortOrder::Descending);
    to_bytes |cpu| { let x = floats(cpu, &[2048, 2048]); } x.t()?.to_bytes();
    gather |cpu| {
        let x = floats(cpu, &[1000, 1000]);
        let index = Tensor::full((1000, 1000), 7i64, DType::I64, cpu).unwrap();
    } x.gather(0, &index);
    scatter |cpu| {
        let x = floats(cpu, &[1000, 1000]);
        let index = Tensor::full((1000, 1000), 7i64, DType::I64, cpu).unwrap();
    } x.scatter_add(0, &index, &x);
    sum_of_columns |cpu| { let x = floats(cpu, &[8, 1 << 20]); } x.sum(0);
    argmax_of_columns |cpu| { let x = floats(cpu, &[8, 1 << 20]); } x.argmax(0);
    cumsum_of_columns |cpu| { let x = floats(cpu, &[16, 1 << 16]); } x.cumsum(0);
    matmul |cpu| { let x = floats(cpu, &[1024, 1024]); } x.matmul(&x.t()?);
    matmul_without_runs |cpu| {
        let x = floats(cpu, &[512, 1024]).slice_step(1, .., 2).unwrap();
        let y = floats(cpu, &[1024, 1024]).slice_step(0, .., 2).unwrap().slice_step(1, .., 2).unwrap();
    } x.matmul(&y);
    nonzero |cpu| { let x = floats(cpu, &[1000, 1000]); } x.nonzero();
    randperm |cpu| {} Tensor::randperm(1 << 20, cpu);
    conv |cpu| {
        let x = floats(cpu, &[2, 8, 200, 200]);
        let w = floats(cpu, &[8, 8, 5, 5]);
    } x.conv(&w, &Window::new(2));
    winograd |cpu| {
        let x = floats(cpu, &[2, 16, 200, 200]);
        let w = floats(cpu, &[16, 16, 3, 3]);
    } x.conv(&w, &Window::new(2).padding(1));
    attention |cpu| { let x = floats(cpu, &[8, 1024, 64]); } x.attention(&x, &x, None, &Attention::causal(0));
    softmax |cpu| { let x = floats(cpu, &[1000, 1000]); } x.softmax(0);
    cat |cpu| { let x = floats(cpu, &[1000, 1000]); } Tensor::cat(&[&x, &x], 1);
    elementwise |cpu| {
        let x = floats(cpu, &[1024, 1024]);
        let y = floats(cpu, &[1024, 1024]).t().unwrap();
    } x.add(&y);
    random |cpu| {} Tensor::rand((1000, 1000), DType::F32, cpu);
}

#[test]
fn without_room_for_threads_everything_runs_on_one() {
    alone("without_room_for_threads_everything_runs_on_one", || {
        limit(Some(address_space() + MIB));
        let cpu = Cpu::new();
        let x = Tensor::ones(100_000, DType::F32, &cpu).unwrap();
        let sum = x.add(1.0f32).unwrap().sum_all().unwrap().item::<f32>();
        limit(None);
        assert_eq!(sum.unwrap(), 200_000.0);
    });
}
