//! Cycles per vector of each elementary function at each level, beside the vector operations of its
//! loop.
//!
//! The loops are the library's, compiled again here, over 4096 elements in L1. The time is the
//! least of many; a chain of dependent additions, timed next to it, gives the length of a cycle.
//! Operations are counted by a vector that counts ([`counted`]): without loads, stores and
//! constants, which registers hold. The least number of cycles is the larger of operations / 4 and
//! multiplications / 2, as AMD Zen 5 has four vector units of which two multiply; Intel's
//! processors have two units for 512 bits and three for 256. Divisions and roots block their unit
//! for several cycles and are shown apart. `cargo bench -p teeny-cpu --bench functions -- NAME`
//! selects functions.

#[path = "../../src/simd/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros)]
mod simd;

#[path = "../../src/vecmath/mod.rs"]
#[allow(dead_code, unused_imports)]
mod vecmath;

#[path = "../../src/loops/float.rs"]
#[allow(dead_code, unused_imports)]
mod float;

mod counted;

use counted::{Counted, Counts};
use float::*;
use simd::loops::{Binary, Map1, Map2, Operand, Real, Unary};
use simd::{F32s, F64s, Lanes, Level, Work};
use std::hint::black_box;
use std::marker::PhantomData;
use std::time::Instant;
use vecmath::*;

/// Elements of a loop.
const N: usize = 4096;

/// Seconds of one of `repeats` runs, the least of `tries` times.
fn least(tries: usize, repeats: usize, mut run: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..tries {
        let start = Instant::now();
        (0..repeats).for_each(|_| run());
        least = least.min(start.elapsed().as_secs_f64() / repeats as f64);
    }
    least
}

/// Additions of [`additions`], each of which waits for the one before.
const CHAIN: usize = 20_000;

/// A chain of dependent additions, one per cycle.
fn additions(mut x: usize) -> usize {
    for _ in 0..CHAIN / 10 {
        for _ in 0..10 {
            // SAFETY: an addition of registers.
            #[cfg(target_arch = "x86_64")]
            unsafe {
                std::arch::asm!("add {x}, {x}", x = inout(reg) x, options(pure, nomem, nostack));
            }
            // SAFETY: an addition of registers.
            #[cfg(target_arch = "aarch64")]
            unsafe {
                std::arch::asm!("add {x}, {x}, {x}", x = inout(reg) x,
                    options(pure, nomem, nostack));
            }
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            {
                x = black_box(x);
            }
        }
    }
    x
}

/// The cycles of `run`, the least of some times. The clock may change, so that both are timed in
/// turn.
fn cycles(tries: usize, mut run: impl FnMut()) -> f64 {
    let mut least_cycles = f64::INFINITY;
    for _ in 0..tries {
        let cycle = least(6, 1, || _ = black_box(additions(black_box(1)))) / CHAIN as f64;
        least_cycles = least_cycles.min(least(12, 4, &mut run) / cycle);
    }
    least_cycles
}

/// The operations of one vector, and its lanes.
struct Count<F, T>(PhantomData<(F, T)>);

impl<F: Unary, T: Real> Work for Count<F, T> {
    type Out = (Counts, usize);
    #[inline(always)]
    fn run<V: F32s>(self) -> Self::Out {
        let x = T::from_f32s(Counted::<V>::splat(0.5));
        let counts = counted::during(|| _ = black_box(T::unary::<F, Counted<V>>(black_box(x))));
        (counts, T::Vector::<V>::LANES)
    }
}

/// As [`Count`], of two operands.
struct Count2<F, T>(PhantomData<(F, T)>);

impl<F: Binary, T: Real> Work for Count2<F, T> {
    type Out = (Counts, usize);
    #[inline(always)]
    fn run<V: F32s>(self) -> Self::Out {
        let x = T::from_f32s(Counted::<V>::splat(0.3));
        let run = || _ = black_box(T::binary::<F, Counted<V>>(black_box(x), black_box(x)));
        (counted::during(run), T::Vector::<V>::LANES)
    }
}

/// Prints a row: a function of a type at a level.
fn row(name: &str, dtype: &str, level: Level, (counts, lanes): (Counts, usize), cycles: f64) {
    let Counts { all, multiplications, divisions } = counts;
    let least = (all as f64 / 4.0).max(multiplications as f64 / 2.0);
    println!(
        "{name:14} {dtype} {:8} {:9.1} {:9.2} {all:10} {multiplications:15} {divisions:9} \
         {least:6.1}",
        format!("{level:?}").to_lowercase(),
        cycles / (N / lanes) as f64,
        cycles / N as f64,
    );
}

/// `N` numbers spread over a range.
fn numbers<T: From<f32>>([from, to]: [f32; 2]) -> Vec<T> {
    // Not in order, as a loop's branches would be predicted.
    (0..N).map(|i| (from + (to - from) * (i * 1283 % N) as f32 / N as f32).into()).collect()
}

/// The rows of a function of one operand.
fn unary<F: Unary, T: Real + From<f32>>(name: &str, dtype: &str, range: [f32; 2], tries: usize) {
    let (x, mut y) = (numbers::<T>(range), vec![T::default(); N]);
    for level in Level::available() {
        let counts = level.run(Count::<F, T>(PhantomData));
        let cycles = cycles(tries, || {
            // SAFETY: both have N values.
            level.run(unsafe { Map1::<F, T>::new(x.as_ptr(), y.as_mut_ptr(), N, false) });
            black_box(&mut y);
        });
        row(name, dtype, level, counts, cycles);
    }
}

/// The rows of a function of two operands.
fn binary<F: Binary, T: Real + From<f32>>(name: &str, dtype: &str, range: [f32; 2], tries: usize) {
    let (x, mut y) = (numbers::<T>(range), vec![T::default(); N]);
    let operand = Operand::Slice(x.as_ptr());
    for level in Level::available() {
        let counts = level.run(Count2::<F, T>(PhantomData));
        let cycles = cycles(tries, || {
            // SAFETY: all have N values.
            let work = unsafe { Map2::<F, T>::new(operand, operand, y.as_mut_ptr(), N, false) };
            level.run(work);
            black_box(&mut y);
        });
        row(name, dtype, level, counts, cycles);
    }
}

/// Functions that core defines by several operations, in their order.
macro_rules! composed {
    ($($name:ident |$x:ident, $one:ident| $operand:expr;)*) => {$(
        struct $name;
        impl Unary for $name {
            const LONG: bool = true;
            #[inline(always)]
            fn eval<V: F32s>($x: V) -> V {
                let $one = V::splat(1.0);
                Atan::eval($operand)
            }
            #[inline(always)]
            fn eval64<V: F64s>($x: V) -> V {
                let $one = V::splat(1.0);
                Atan::eval64($operand)
            }
        }
    )*};
}

composed! {
    Asin |x, one| x.div(one.sub(x).mul(x.add(one)).sqrt());
    // But for a factor of 2.
    Acos |x, one| one.sub(x).div(x.add(one)).sqrt();
}

fn main() {
    // Without it (`cargo test --benches`) each loop runs only a few times.
    let is_bench = std::env::args().any(|arg| arg == "--bench");
    let names: Vec<String> =
        std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let tries = if is_bench { 60 } else { 1 };
    println!(
        "function       type level    cycles/vector  /element operations multiplications divisions  \
         least"
    );
    macro_rules! rows {
        ($($rows:ident $name:literal $f:ty, $range:expr;)*) => {$(
            if names.is_empty() || names.iter().any(|name| name == $name) {
                $rows::<$f, f32>($name, "f32", $range, tries);
                $rows::<$f, f64>($name, "f64", $range, tries);
            }
        )*};
    }
    rows! {
        unary "exp" Exp, [-10.0, 10.0];
        unary "exp2" Exp2, [-10.0, 10.0];
        unary "expm1" Expm1, [-10.0, 10.0];
        unary "log" Log, [0.01, 20.0];
        unary "log2" Log2, [0.01, 20.0];
        unary "log1p" Log1p, [-0.9, 20.0];
        unary "tanh" Tanh, [-4.0, 4.0];
        unary "sigmoid" Sigmoid, [-6.0, 6.0];
        unary "silu" Silu, [-6.0, 6.0];
        unary "erf" Erf, [-3.0, 3.0];
        unary "gelu" Gelu, [-4.0, 4.0];
        unary "gelu_grad" GeluGrad, [-4.0, 4.0];
        unary "gelu_tanh" GeluTanh, [-4.0, 4.0];
        unary "sin" Sin, [-20.0, 20.0];
        unary "cos" Cos, [-20.0, 20.0];
        unary "tan" Tan, [-20.0, 20.0];
        unary "atan" Atan, [-5.0, 5.0];
        unary "asin" Asin, [-1.0, 1.0];
        unary "acos" Acos, [-1.0, 1.0];
        unary "rsqrt" Rsqrt, [0.01, 20.0];
        unary "sqrt" Sqrt, [0.01, 20.0];
        unary "recip" Recip, [0.01, 20.0];
        binary "pow" Pow, [0.01, 3.9];
    }
}
