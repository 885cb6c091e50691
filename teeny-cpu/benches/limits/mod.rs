//! The machine's limits, measured beside the kernels: multiply-adds, and bytes from and
//! to memory.

use std::hint::black_box;
use std::time::Instant;

/// Floats that no cache holds.
const BIG: usize = 16 << 20;

/// Rates per second on all threads of the current rayon pool.
pub struct Limits {
    /// Floating-point operations of f32, two for a multiply-add.
    pub flops: f64,
    /// Bytes read.
    pub read: f64,
    /// Bytes read and written by a copy.
    pub copy: f64,
    /// Bytes read and written by the sum of two arrays.
    pub add: f64,
}

impl Limits {
    /// Measures them and prints a line.
    pub fn measure() -> Limits {
        let threads = teeny_cpu::threads();
        let share = BIG / threads;
        let (a, b, mut c) = (vec![1.0f32; BIG], vec![2.0f32; BIG], vec![0.0f32; BIG]);
        let flops = best(|| {
            const STEPS: usize = 1 << 20;
            rayon::broadcast(|_| black_box(multiply_adds(STEPS)));
            (threads * STEPS * FLOPS) as f64
        });
        let read = best(|| {
            rayon::broadcast(|t| black_box(total(&a[t.index() * share..][..share])));
            (4 * threads * share) as f64
        });
        let to = c.as_mut_ptr() as usize;
        let part = |t: usize| {
            // SAFETY: a part of `c` for each thread.
            unsafe { std::slice::from_raw_parts_mut((to as *mut f32).add(t * share), share) }
        };
        let copy = best(|| {
            rayon::broadcast(|t| part(t.index()).copy_from_slice(&a[t.index() * share..][..share]));
            (8 * threads * share) as f64
        });
        let add = best(|| {
            rayon::broadcast(|t| {
                sums(
                    &a[t.index() * share..][..share],
                    &b[t.index() * share..][..share],
                    part(t.index()),
                )
            });
            (12 * threads * share) as f64
        });
        black_box(&mut c);
        let giga = |rate: f64| rate / 1e9;
        println!(
            "limits on {threads} threads: {:.0} GFLOP/s, read {:.1} GB/s, copy {:.1} GB/s, add {:.1} GB/s",
            giga(flops),
            giga(read),
            giga(copy),
            giga(add)
        );
        Limits { flops, read, copy, add }
    }
}

/// The rate of the best of some runs; `run` gives how much it did.
fn best(mut run: impl FnMut() -> f64) -> f64 {
    let mut best = 0.0f64;
    for _ in 0..15 {
        let start = Instant::now();
        let work = run();
        best = best.max(work / start.elapsed().as_secs_f64());
    }
    best
}

/// The sum, in as many chains as hide the latency of an addition.
fn total(x: &[f32]) -> f32 {
    let mut sums = [0.0f32; 64];
    for x in x.chunks_exact(64) {
        sums.iter_mut().zip(x).for_each(|(sum, x)| *sum += x);
    }
    sums.iter().sum()
}

/// `c = a + b`, past the caches where there is an instruction for it.
fn sums(a: &[f32], b: &[f32], c: &mut [f32]) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has SSE; whole vectors of slices of equal length, and the store is
    // aligned.
    unsafe {
        use std::arch::x86_64::*;
        let ahead = c.as_ptr().align_offset(16);
        for i in (ahead..c.len() - 3).step_by(4) {
            let sum = _mm_add_ps(_mm_loadu_ps(a.as_ptr().add(i)), _mm_loadu_ps(b.as_ptr().add(i)));
            _mm_stream_ps(c.as_mut_ptr().add(i), sum);
        }
        _mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    for ((c, a), b) in c.iter_mut().zip(a).zip(b) {
        *c = a + b;
    }
}

/// Operations of one step of [`multiply_adds`].
const FLOPS: usize = 2 * 16 * 16;

/// Steps of sixteen independent multiply-adds of sixteen lanes each, in the widest vectors that
/// there are.
fn multiply_adds(steps: usize) -> f32 {
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: it was detected.
            return unsafe { multiply_adds_avx512(steps) };
        }
        if is_x86_feature_detected!("fma") {
            // SAFETY: it was detected.
            return unsafe { multiply_adds_fma(steps) };
        }
    }
    lanes(steps, |x, y, z| x * y + z)
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
fn multiply_adds_avx512(steps: usize) -> f32 {
    use std::arch::x86_64::*;
    let (x, y) = (_mm512_set1_ps(black_box(0.5)), _mm512_set1_ps(black_box(0.25)));
    let mut sums = [y; 16];
    for _ in 0..steps {
        for sum in &mut sums {
            *sum = _mm512_fmadd_ps(*sum, x, y);
        }
    }
    sums.into_iter().map(|sum| _mm512_reduce_add_ps(sum)).sum()
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "fma")]
fn multiply_adds_fma(steps: usize) -> f32 {
    lanes(2 * steps, f32::mul_add) // half of the lanes at a time
}

/// Multiply-adds that the compiler puts into vectors.
#[inline(always)]
fn lanes(steps: usize, multiply_add: impl Fn(f32, f32, f32) -> f32) -> f32 {
    let (x, y) = (black_box(0.5), black_box(0.25));
    let mut sums = [y; 128];
    for _ in 0..steps {
        sums.iter_mut().for_each(|sum| *sum = multiply_add(*sum, x, y));
    }
    sums.iter().sum()
}
