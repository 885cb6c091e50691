//! Memory that runs out, at every request of every operation; and guard bytes that are overwritten.

use crate::pool::{Pool, Use};
use crate::simd::Level;
use crate::{Cpu, FloatMatmul};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use teeny_conformance::{Suite, every};
use teeny_core::{DType, Error, ErrorKind, Result, SortOrder, Tensor};

fn device(level: Level, guarded: bool) -> Arc<Cpu> {
    device_with(level, guarded, FloatMatmul::Own)
}

fn device_with(level: Level, guarded: bool, float_matmul: FloatMatmul) -> Arc<Cpu> {
    let pool = Pool::new(64 << 20, None, guarded);
    Arc::new(Cpu { pool, level, winograd: true, float_matmul })
}

fn text(panic: Box<dyn std::any::Any + Send>) -> String {
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic.downcast_ref::<&str>().unwrap_or(&"").to_string(),
    }
}

/// Runs `run` again and again, its k-th request for memory failing, until it has no k-th one.
/// Returns how many it has.
fn campaign(cpu: &Arc<Cpu>, name: &str, run: impl Fn() -> Result<Vec<Vec<u8>>>) -> usize {
    let want = run();
    let live = cpu.pool_stats().live_bytes;
    for k in 1.. {
        cpu.pool.set_fault(k);
        // Operators panic with the text of the error.
        let got = catch_unwind(AssertUnwindSafe(&run)).unwrap_or_else(|panic| match text(panic) {
            text if text.contains("no memory for") => Err(Error::out_of_memory(text)),
            text => panic!("{name}: panic at request {k}: {text}"),
        });
        let failed = !cpu.pool.has_fault();
        cpu.pool.set_fault(0);
        assert_eq!(cpu.pool_stats().live_bytes, live, "{name}: a leak after request {k} failed");
        match (&got, &want) {
            (Err(error), _) if failed => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{name}: request {k}: {error}")
            }
            (Ok(_), _) if failed => panic!("{name}: a result although request {k} failed"),
            (Ok(got), Ok(want)) if got == want => return k - 1,
            (Err(got), Err(want)) if got.kind() == want.kind() => return k - 1,
            _ => panic!("{name}: another result after {} failures", k - 1),
        }
        let small = Tensor::full(16, 2.0, DType::F32, cpu)
            .and_then(|x| x.add(1.0f32))
            .and_then(|x| x.to_vec::<f32>());
        assert_eq!(small.unwrap(), [3.0; 16], "{name}: a small operation after request {k} failed");
    }
    unreachable!("a number of requests has an end")
}

#[test]
fn every_request_of_even_cases_may_fail() {
    every_request_may_fail(0);
}

#[test]
fn every_request_of_odd_cases_may_fail() {
    every_request_may_fail(1);
}

/// For each second case, from case `first` on: the two halves run side by side.
fn every_request_may_fail(first: usize) {
    for level in Level::available() {
        let cpu = device(level, false);
        let (mut all, mut cases, mut requests) = (0, 0, 0);
        teeny_conformance::each(|trial| {
            all += 1;
            if all % 2 == first {
                return;
            }
            // One level sees all cases, the others those with separate kernels.
            if level != Level::best() && !matches!(trial.dtype(), DType::F32 | DType::F64) {
                return;
            }
            let name = format!("{} {} at {level:?}", trial.op(), trial.dtype());
            cases += 1;
            requests += campaign(&cpu, &name, || {
                trial.run(&cpu, Ok)?.iter().map(|y| y.to_bytes()).collect()
            });
        });
        println!("{level:?}: {cases} cases, {requests} requests failed");
        assert!(requests > cases);
    }
}

#[test]
fn every_request_of_products_by_the_gemm_crate_may_fail() {
    let cpu = device_with(Level::best(), false, FloatMatmul::GemmCrate);
    let (mut cases, mut requests) = (0, 0);
    teeny_conformance::each(|trial| {
        let products = ["matmul", "conv", "attention"];
        if trial.dtype() != DType::F32 || !products.iter().any(|name| trial.op().contains(name)) {
            return;
        }
        cases += 1;
        requests += campaign(&cpu, &format!("{} by the gemm crate", trial.op()), || {
            trial.run(&cpu, Ok)?.iter().map(|y| y.to_bytes()).collect()
        });
    });
    println!("{cases} cases, {requests} requests failed");
    assert!(cases > 0 && requests > cases);
}

/// Operations of sizes that are shared by threads and packed in parts.
#[test]
fn every_request_of_large_operations_may_fail() {
    let cpu = device(Level::best(), false);
    let f32s = |shape: &[usize]| Tensor::randn(shape, DType::F32, &cpu).unwrap();
    let bytes = |x: Tensor| Ok(vec![x.to_bytes()?]);
    let (x, w, row) = (f32s(&[700, 300]), f32s(&[300, 200]), f32s(&[300]));
    let halves = x.cast(DType::F16).unwrap();
    let requests = [
        (
            "sort",
            campaign(&cpu, "sort", || {
                x.sort(0, SortOrder::Ascending)
                    .and_then(|(a, b)| Ok(vec![a.to_bytes()?, b.to_bytes()?]))
            }),
        ),
        ("sum of rows", campaign(&cpu, "sum of rows", || bytes(x.sum(1)?))),
        ("sum of columns", campaign(&cpu, "sum of columns", || bytes(x.sum(0)?))),
        ("argmax of columns", campaign(&cpu, "argmax of columns", || bytes(x.argmax(0)?))),
        ("one sum", campaign(&cpu, "one sum", || bytes(x.sum_all()?))),
        (
            "sum of a sum",
            campaign(&cpu, "sum of a sum", || bytes(x.add(&row)?.mul(&x)?.sum_all()?)),
        ),
        ("cumsum", campaign(&cpu, "cumsum", || bytes(x.cumsum(0)?))),
        ("matmul", campaign(&cpu, "matmul", || bytes(x.matmul(&w)?))),
        (
            "transposed matmul",
            campaign(&cpu, "transposed matmul", || bytes(x.matmul(&w.t()?.copy()?.t()?)?)),
        ),
        (
            "few rows",
            campaign(&cpu, "few rows", || bytes(x.slice(0, 0..9)?.matmul(&w.t()?.copy()?.t()?)?)),
        ),
        (
            "transposed sum",
            campaign(&cpu, "transposed sum", || bytes(x.t()?.copy()?.t()?.add(&x)?)),
        ),
        ("broadcast", campaign(&cpu, "broadcast", || bytes(x.add(&row)?.exp()?))),
        ("halves", campaign(&cpu, "halves", || bytes(halves.mul(&halves)?.cast(DType::I32)?))),
        ("softmax", campaign(&cpu, "softmax", || bytes(x.softmax(0)?))),
        ("stepped", campaign(&cpu, "stepped", || bytes(x.slice(1, 0..150)?.t()?.copy()?))),
    ];
    for (name, requests) in requests {
        assert!(requests >= 2, "{name} has {requests} requests");
    }
}

#[test]
fn the_limit_bounds_storages_cache_and_scratch() {
    const MIB: usize = 1 << 20;
    let cpu = device(Level::best(), false);
    cpu.set_memory_limit(Some(8 * MIB));
    let within = |what: &str| {
        let stats = cpu.pool_stats();
        assert!(stats.live_bytes + stats.cached_bytes <= 8 * MIB, "{what}: {stats:?}");
        stats
    };
    drop(Tensor::zeros(3 * MIB, DType::U8, &cpu).unwrap());
    assert!(within("cached").cached_bytes > 3 * MIB, "a storage, and the task's scratch memory");
    let large = Tensor::zeros(6 * MIB, DType::U8, &cpu).unwrap();
    assert_eq!(within("cached blocks are returned").live_bytes, 6 * MIB);
    drop(large);
    // 2^18 elements of four bytes and their positions fit, two lists of 8 bytes for each key do not
    // fit beside them.
    let x = Tensor::randn(1 << 18, DType::F32, &cpu).unwrap();
    assert!(x.sort(0, SortOrder::Ascending).is_ok());
    within("a sort");
    cpu.set_memory_limit(Some(6 * MIB));
    assert!(
        cpu.pool_stats().live_bytes + cpu.pool_stats().cached_bytes <= 6 * MIB,
        "a new limit trims the cache"
    );
    let error = x.sort(0, SortOrder::Ascending).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("2097152 bytes of scratch memory"), "{error}");
    assert_eq!(
        Tensor::ones(100, DType::F32, &cpu).unwrap().sum_all().unwrap().item::<f32>().unwrap(),
        100.0
    );
    drop(x);
    teeny_core::Device::clear_cache(&*cpu);
    let stats = cpu.pool_stats();
    assert_eq!((stats.live_bytes, stats.cached_bytes), (0, 0), "no thread keeps memory");
    assert_eq!(stats.os_allocations, stats.os_frees);
    assert!(stats.scratch_requests > 0);
}

#[test]
fn more_elements_than_bytes_can_be_counted_are_an_error() {
    let cpu = device(Level::best(), false);
    for len in [usize::MAX, usize::MAX / 4, usize::MAX / 8 + 1, 1 << 61] {
        let error = cpu.alloc(len, DType::F64).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{len}");
    }
}

#[test]
fn the_suite_leaves_guards_whole() {
    let cpu = device(Level::best(), true);
    let before = cpu.pool_stats().live_bytes;
    let report = Suite::new(&cpu).every(every(8)).run();
    assert!(report.passed(), "{report}");
    assert_eq!(cpu.pool_stats().live_bytes, before);
}

#[test]
fn an_overwritten_guard_names_the_operation() {
    let cpu = device(Level::best(), true);
    let x = Tensor::ones((3, 3), DType::F32, &cpu).unwrap();
    let overrun = || cpu.pool.guard().unwrap().overrun.store(true, SeqCst);
    let caught = |run: &dyn Fn() -> Result<Tensor>| {
        text(catch_unwind(AssertUnwindSafe(|| run().map(|_| ()))).unwrap_err())
    };
    for (name, run) in [
        ("matmul", &(|| x.matmul(&x)) as &dyn Fn() -> Result<Tensor>),
        ("elementwise [exp]", &|| x.exp()),
        ("softmax", &|| x.softmax(0)),
        ("sum", &|| x.sum(0)),
        ("sort", &|| Ok(x.sort(0, SortOrder::Ascending)?.0)),
    ] {
        overrun();
        let message = caught(run);
        assert!(message.contains("memory was overwritten around a block of"), "{message}");
        assert!(
            message.contains("0 bytes before it, 1 behind it")
                && message.ends_with(&format!("in progress: {name}")),
            "{message}"
        );
        assert!(run().is_ok(), "reported once");
    }
    // Before a block, outside of any operation: the next operation that ends reports it.
    let buffer = cpu.pool.alloc(40, Use::Storage).unwrap();
    // SAFETY: the margin before the buffer belongs to its block.
    unsafe { buffer.ptr().sub(1).write(1) };
    drop(buffer);
    let message = caught(&|| x.exp());
    assert!(message.contains("a block of 40 bytes: 1 bytes before it, 0 behind it"), "{message}");
}

#[test]
fn guarded_blocks_are_new_and_aligned() {
    let pool = Pool::new(1 << 20, None, true);
    for bytes in [0, 1, 63, 64, 65, 1000, 3 << 20] {
        for _ in 0..2 {
            let buffer = pool.alloc(bytes, Use::Storage).unwrap();
            assert_eq!(buffer.ptr().addr() % 64, 0);
            // SAFETY: the buffer has these bytes.
            let all = unsafe { std::slice::from_raw_parts(buffer.ptr(), bytes) };
            assert!(all.iter().all(|&byte| byte == 0xff), "{bytes} bytes are not new");
            // SAFETY: as above, and no other thread reads them.
            unsafe { buffer.ptr().write_bytes(3, bytes) };
        }
    }
}
