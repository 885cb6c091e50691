//! The `gemm` crate aborts the process where it finds no memory to pack an operand into, so the
//! device copies such operands itself, and allocates gemm's buffer of each thread. Here an
//! allocator measures gemm's remaining allocations, and fails the large ones.

mod common;

use common::{Draw, devices_of_both_matmuls, layouts, same, sample};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use teeny_core::{DType, Device, ErrorKind, Result, Tensor};

thread_local! {
    /// How many more large allocations of this thread succeed.
    static GRANTED: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Bytes above which an allocation is large: less than the L2 cache of any processor.
const LARGE: usize = 100 << 10;

/// False for a large allocation beyond those granted.
fn granted(size: usize) -> bool {
    if size < LARGE || GRANTED.get() == usize::MAX {
        return true;
    }
    let left = GRANTED.get();
    GRANTED.set(left.saturating_sub(1));
    left > 0
}

/// Measures the largest allocation.
struct Largest(AtomicUsize);

// SAFETY: the system's allocator, which the counter does not change.
unsafe impl GlobalAlloc for Largest {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.0.fetch_max(layout.size(), Ordering::Relaxed);
        if !granted(layout.size()) {
            return std::ptr::null_mut();
        }
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

/// Whichever large allocation of a thread's first product fails, it is an error. gemm's own
/// initialisation of its buffer would end the process.
#[test]
fn a_thread_without_memory_for_its_first_product_gets_an_error() {
    let (a, b) = (sample(&[40, 30], DType::F32), sample(&[30, 20], DType::F32));
    for device in devices_of_both_matmuls() {
        let (a, b) = (a.to(&device).unwrap(), b.to(&device).unwrap());
        // A single thread, which has made no product.
        let product = |granted: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
            pool.install(|| {
                GRANTED.set(granted);
                let y = a.matmul(&b);
                GRANTED.set(usize::MAX);
                y
            })
        };
        device.clear_cache();
        let failed = (0..20).take_while(|&granted| match product(granted) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
                true
            }
            Ok(_) => false,
        });
        assert!(failed.count() < 20, "{device:?}");
    }
}
