//! The `gemm` crate aborts the process where it finds no memory to pack an operand into, so the
//! device copies such operands itself. Here an allocator measures what gemm still asks for.

mod common;

use common::{Draw, devices_of_both_matmuls, layouts, same, sample};
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use teeny_core::{DType, Result, Tensor};

/// Measures the largest allocation.
struct Largest(AtomicUsize);

// SAFETY: the system's allocator, which the counter does not change.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: by contract of the trait, as the others.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_max(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        self.0.fetch_max(size, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Largest = Largest(AtomicUsize::new(0));

/// The largest allocation of `run`, in bytes.
fn largest(run: impl FnOnce() -> Result<Tensor>) -> (usize, Tensor) {
    ALLOCATOR.0.store(0, Ordering::Relaxed);
    let result = run().unwrap();
    (ALLOCATOR.0.load(Ordering::Relaxed), result)
}

#[test]
fn products_of_the_gemm_crate_allocate_from_the_pool() {
    // One thread: which blocks are cached does not depend on the order of tiles then.
    let thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let mut rng = Draw(41);
    let mut checked = 0;
    for device in devices_of_both_matmuls() {
        for _ in 0..12 {
            let dtype = rng.one_of(&[DType::F32, DType::F64]);
            let mut size = || match rng.below(3) {
                0 => 1 + rng.below(20),
                1 => 16 * (1 + rng.below(40)),
                _ => 1 + rng.below(700),
            };
            let (m, n, k) = (size(), size(), size());
            let (a, b) = (sample(&[m, k], dtype), sample(&[k, n], dtype));
            let exact = a.cast(DType::I64).unwrap().matmul(&b.cast(DType::I64).unwrap()).unwrap();
            let exact = exact.cast(dtype).unwrap().to(&device).unwrap();
            let (a, b) = (a.to(&device).unwrap(), b.to(&device).unwrap());
            for (of_a, x) in layouts(&a) {
                for (of_b, y) in layouts(&b) {
                    let what = format!("{m}x{k}x{n} {dtype} {of_a} {of_b} {device:?}");
                    thread.install(|| {
                        // The first product fills the pool and allocates gemm's buffer.
                        drop(x.matmul(&y).unwrap());
                        let (bytes, got) = largest(|| x.matmul(&y));
                        assert!(bytes <= 16 << 10, "{bytes} bytes for {what}");
                        same(&got, &exact, 0.0, &what);
                    });
                    checked += 1;
                }
            }
        }
    }
    assert!(checked > 500, "{checked}");
}
