//! Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror & Shaw, "Parallel random
//! numbers: as easy as 1, 2, 3", SC 2011).
//!
//! Element `i` of a draw depends only on the key and `i`, so every device computes the same numbers
//! in any order and with any number of threads. Block `c` of four 32-bit words serves elements
//! `4c .. 4c+4` of 32-bit draws; a 64-bit draw (f64, i64, u64) uses two words: block `c` serves
//! `2c, 2c+1`.

mod draws;

pub(crate) use draws::{Draws, Source, record, source};

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::scalar::Scalar;
use draws::DRAWS;
use half::{bf16, f16};
use std::cell::Cell;
use std::mem;
use std::sync::atomic::{AtomicU64, Ordering};

/// The key of a draw: a seed and the number of the draw under that seed. A generator that continues
/// from a key ([`with_state`]) counts `draw` up by one for each tensor, so its second draw is the
/// first one of the key with the next number. Keys of items, epochs or ranks that share no draws
/// are made by [`Key::fold_in`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    /// The seed: Philox's key.
    pub seed: u64,
    /// The number of the draw: the upper half of Philox's counter.
    pub draw: u64,
}

impl Key {
    /// A key of this key and `number`: `seed` is the first two words of block `number` under this
    /// key, low word first, and `draw` the last two.
    ///
    /// Different numbers give different keys. Draws that continue from them ([`with_state`]) are
    /// independent: some of n keys with m draws each meet with a chance of about n² m / 2^128. A
    /// key from which others are folded should not also draw, as its words are their seeds.
    ///
    /// # Example
    /// ```
    /// use teeny_core::random::{Key, with_state};
    /// use teeny_core::{DType, Reference, Result, Tensor};
    /// # fn main() -> Result<()> {
    /// let noise = |epoch, item| {
    ///     let key = Key { seed: 7, draw: 0 }.fold_in(epoch).fold_in(item);
    ///     with_state(key, || Tensor::randn(3, DType::F32, Reference::new())?.to_vec::<f32>())
    /// };
    /// assert_eq!(noise(1, 5)?, noise(1, 5)?);
    /// assert_ne!(noise(1, 5)?, noise(5, 1)?);
    /// # Ok(()) }
    /// ```
    /// Equivalent: `jax.random.fold_in`, with other bits.
    #[must_use]
    pub fn fold_in(self, number: u64) -> Key {
        let [a, b, c, d] = philox(self, number);
        Key { seed: joined(a, b), draw: joined(c, d) }
    }
}

/// The distribution to draw from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    /// Uniform in `[low, high)`, floats: 24 random bits (53 for f64).
    Uniform {
        /// The smallest value.
        low: f64,
        /// The end, not drawn.
        high: f64,
    },
    /// Normal, floats, by Box and Muller's transform of two uniforms.
    Normal {
        /// The mean.
        mean: f64,
        /// The standard deviation.
        std: f64,
    },
    /// Integers in `low..high`, any integer type.
    Integer {
        /// The smallest value.
        low: i64,
        /// The end, not drawn.
        high: i64,
    },
    /// True with probability `p`; bool only.
    Bernoulli {
        /// The probability of true.
        p: f64,
    },
}

/// The four words of block `counter` under `key`.
#[inline]
pub fn philox(key: Key, counter: u64) -> [u32; 4] {
    // The multipliers and the Weyl increments (golden ratio, sqrt(3) - 1) of the paper.
    const M: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
    const W: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
    let mut x = [counter as u32, (counter >> 32) as u32, key.draw as u32, (key.draw >> 32) as u32];
    let mut k = [key.seed as u32, (key.seed >> 32) as u32];
    for _ in 0..10 {
        let (p0, p1) = (M[0] as u64 * x[0] as u64, M[1] as u64 * x[2] as u64);
        x = [
            (p1 >> 32) as u32 ^ x[1] ^ k[0],
            p1 as u32,
            (p0 >> 32) as u32 ^ x[3] ^ k[1],
            p0 as u32,
        ];
        k = [k[0].wrapping_add(W[0]), k[1].wrapping_add(W[1])];
    }
    x
}

/// Two words as one of 64 bits.
#[inline]
fn joined(low: u32, high: u32) -> u64 {
    (high as u64) << 32 | low as u64
}

/// A random integer from 0 to `range`, which it excludes, by two words; `range` is at most 2^64.
#[inline]
pub(crate) fn integer_below(low: u32, high: u32, range: u128) -> u128 {
    (joined(low, high) as u128 * range) >> 64
}

/// A uniform number in [0, 1) from 24 bits of a word: exact in f32 on every device.
#[inline]
pub fn unit_f32(word: u32) -> f32 {
    (word >> 8) as f32 * (1.0 / 16_777_216.0)
}

/// A uniform number in [0, 1) from 53 bits of two words.
#[inline]
pub fn unit_f64(low: u32, high: u32) -> f64 {
    (joined(low, high) >> 11) as f64 * (1.0 / 9_007_199_254_740_992.0)
}

impl Distribution {
    /// Elements per Philox block when drawn as `dtype`: 2 for 64-bit types, 4 otherwise.
    pub fn per_block(dtype: DType) -> usize {
        if dtype.size() == 8 { 2 } else { 4 }
    }

    /// The elements of one block, as f64/i64/u64 values before rounding to `dtype`; the first
    /// [`Distribution::per_block`] entries count.
    ///
    /// This function defines the draws; devices may compute them differently but not to other bits
    /// (normals: not to more than 2 ulp).
    pub fn block(self, key: Key, counter: u64, dtype: DType) -> [Scalar; 4] {
        let w = philox(key, counter);
        let wide = dtype.size() == 8;
        let mut out = [Scalar::Int(0); 4];
        match self {
            Distribution::Uniform { low, high } if wide => {
                for i in 0..2 {
                    let u = unit_f64(w[2 * i], w[2 * i + 1]);
                    out[i] =
                        Scalar::Float(below(low + u * (high - low), low, high, f64::next_down));
                }
            }
            Distribution::Uniform { low, high } => {
                for i in 0..4 {
                    let value = uniform_f32(w[i], low as f32, high as f32);
                    out[i] = Scalar::Float(if dtype.is_half() {
                        half_below(value, low as f32, high as f32, dtype)
                    } else {
                        value
                    } as f64);
                }
            }
            Distribution::Normal { mean, std } if wide => {
                // 1 - u is in (0, 1]: its logarithm is finite.
                let radius = (-2.0 * (1.0 - unit_f64(w[0], w[1])).ln()).sqrt();
                let angle = std::f64::consts::TAU * unit_f64(w[2], w[3]);
                out[0] = Scalar::Float(mean + std * (radius * angle.cos()));
                out[1] = Scalar::Float(mean + std * (radius * angle.sin()));
            }
            Distribution::Normal { mean, std } => {
                for i in [0, 2] {
                    let [a, b] = normal_pair_f32(w[i], w[i + 1]);
                    out[i] = Scalar::Float((mean as f32 + std as f32 * a) as f64);
                    out[i + 1] = Scalar::Float((mean as f32 + std as f32 * b) as f64);
                }
            }
            Distribution::Integer { low, high } => {
                // Multiply-shift maps 64 (32) random bits to the range; the bias is below range /
                // 2^64 (2^32).
                let range = (high as i128 - low as i128) as u128;
                for (i, value) in out.iter_mut().enumerate().take(Self::per_block(dtype)) {
                    let offset = if wide {
                        integer_below(w[2 * i], w[2 * i + 1], range) as i128
                    } else {
                        ((w[i] as u128 * range) >> 32) as i128
                    };
                    *value = Scalar::Int((low as i128 + offset) as i64);
                }
            }
            Distribution::Bernoulli { p } => {
                for i in 0..4 {
                    out[i] = Scalar::Bool(unit_f32(w[i]) < p as f32);
                }
            }
        }
        out
    }
}

/// `low + u (high - low)` in f32, kept below `high` where rounding would reach it.
#[inline]
pub fn uniform_f32(word: u32, low: f32, high: f32) -> f32 {
    below(low + unit_f32(word) * (high - low), low, high, f32::next_down)
}

/// `value` rounded to the 16-bit type `dtype`, or the number before `high` where that reaches it:
/// one draw in some thousands would.
fn half_below(value: f32, low: f32, high: f32, dtype: DType) -> f32 {
    let round = |v: f32| Scalar::Float(v as f64).cast(dtype).to_f64() as f32;
    let rounded = round(value);
    if rounded < high || low >= high {
        return rounded;
    }
    // Neighbours differ by one in their bits, which count away from zero.
    let before = |bits: u16| match bits {
        0 | 0x8000 => 0x8001,
        bits if bits < 0x8000 => bits - 1,
        bits => bits + 1,
    };
    let lower = match dtype {
        DType::BF16 => bf16::from_bits(before(bf16::from_f32(rounded).to_bits())).to_f32(),
        _ => f16::from_bits(before(f16::from_f32(rounded).to_bits())).to_f32(),
    };
    lower.max(round(low))
}

#[inline]
fn below<T: PartialOrd + Copy>(value: T, low: T, high: T, down: impl Fn(T) -> T) -> T {
    if value >= high && low < high { down(high) } else { value }
}

/// Two standard normal numbers from two words (Box & Muller 1958), computed in f64 and rounded, so
/// that devices can match it.
#[inline]
pub fn normal_pair_f32(a: u32, b: u32) -> [f32; 2] {
    let radius = (-2.0 * (1.0 - unit_f32(a) as f64).ln()).sqrt();
    let angle = std::f64::consts::TAU * unit_f32(b) as f64;
    [(radius * angle.cos()) as f32, (radius * angle.sin()) as f32]
}

/// A source of keys: a seed and a count of draws. Cheap; every draw takes the next key.
#[derive(Debug)]
pub struct Generator {
    seed: AtomicU64,
    draws: AtomicU64,
}

impl Generator {
    /// A generator that starts at `seed`.
    pub const fn new(seed: u64) -> Generator {
        Generator { seed: AtomicU64::new(seed), draws: AtomicU64::new(0) }
    }

    /// The key of the next draw.
    pub fn next_key(&self) -> Key {
        Key {
            seed: self.seed.load(Ordering::Relaxed),
            draw: self.draws.fetch_add(1, Ordering::Relaxed),
        }
    }

    /// The seed and the number of draws: the complete state of the generator.
    pub fn state(&self) -> Key {
        Key { seed: self.seed.load(Ordering::Relaxed), draw: self.draws.load(Ordering::Relaxed) }
    }

    /// A uniform number in [0, 1), of the next draw. Equivalent: `random.random` of Python.
    ///
    /// # Example
    /// ```
    /// use teeny_core::random::Generator;
    /// # fn main() -> teeny_core::Result<()> {
    /// let generator = Generator::new(7);
    /// let explores = generator.uniform() < 0.1;
    /// let action = if explores { generator.below(4)? } else { 0 };
    /// assert!(action < 4);
    /// # Ok(()) }
    /// ```
    pub fn uniform(&self) -> f64 {
        let [low, high, ..] = philox(self.next_key(), 0);
        unit_f64(low, high)
    }

    /// An integer in `0..n` of the next draw; none is likelier than another by more than n / 2^64.
    /// Equivalent: `random.randrange` of Python.
    ///
    /// # Errors
    /// If `n` is 0.
    #[track_caller]
    pub fn below(&self, n: usize) -> Result<usize> {
        let _op = enter("generator.below");
        if n == 0 {
            return Err(Error::value("expected n of at least 1, got 0").help("it draws from 0..n"));
        }
        let [low, high, ..] = philox(self.next_key(), 0);
        Ok(integer_below(low, high, n as u128) as usize)
    }

    /// Continues from `state`.
    pub fn set_state(&self, state: Key) {
        self.seed.store(state.seed, Ordering::Relaxed);
        self.draws.store(state.draw, Ordering::Relaxed);
    }
}

static GLOBAL: Generator = Generator::new(0);

thread_local! {
    static LOCAL: Cell<Option<Key>> = const { Cell::new(None) };
}

/// Seeds the process-wide generator and starts it over. Without it the seed is 0: programs are
/// reproducible by default.
pub fn manual_seed(seed: u64) {
    set(Key { seed, draw: 0 }, |_| None);
}

/// The key of the next draw of this thread's scope, or of the process.
pub fn next_key() -> Key {
    let key = match LOCAL.get() {
        Some(key) => {
            LOCAL.set(Some(Key { draw: key.draw.wrapping_add(1), ..key }));
            key
        }
        None => GLOBAL.next_key(),
    };
    DRAWS.with_borrow_mut(|draws| draws.iter_mut().for_each(|draws| draws.issue(key)));
    key
}

/// The state of this thread's (or the process's) generator; for checkpoints.
pub fn state() -> Key {
    let state = LOCAL.get().unwrap_or_else(|| GLOBAL.state());
    DRAWS.with_borrow_mut(|draws| draws.iter_mut().for_each(|draws| draws.read(state)));
    state
}

/// Continues from `state`.
pub fn set_state(state: Key) {
    set(state, |draws| draws.position_of(state));
}

/// Continues from `state`, which is at this position of a recorded stream.
fn set(state: Key, position: impl Fn(&Draws) -> Option<usize>) {
    match LOCAL.get() {
        Some(_) => LOCAL.set(Some(state)),
        None => GLOBAL.set_state(state),
    }
    DRAWS.with_borrow_mut(|draws| {
        draws.iter_mut().for_each(|draws| draws.position = position(draws));
    });
}

/// Runs `body` with a separate generator on this thread: draws inside depend on `seed` alone, draws
/// outside are not disturbed.
pub fn with_seed<T>(seed: u64, body: impl FnOnce() -> T) -> T {
    scoped(Key { seed, draw: 0 }, |_| None, body)
}

/// Runs `body` with a separate generator on this thread that continues from `state`: `body` draws
/// again what followed [`state`]. Draws outside are not affected.
pub fn with_state<T>(state: Key, body: impl FnOnce() -> T) -> T {
    scoped(state, |draws| draws.position_of(state), body)
}

/// Runs `body` with a generator that is in `state`, at this position of a recorded stream.
fn scoped<T>(
    state: Key,
    position: impl Fn(&Draws) -> Option<usize>,
    body: impl FnOnce() -> T,
) -> T {
    struct Restore(Option<Key>, Option<usize>);
    impl Drop for Restore {
        fn drop(&mut self) {
            LOCAL.set(self.0);
            DRAWS.with_borrow_mut(|draws| {
                draws.iter_mut().for_each(|draws| draws.position = self.1);
            });
        }
    }
    let before = DRAWS.with_borrow_mut(|draws| {
        let draws = draws.as_mut()?;
        let position = position(draws);
        mem::replace(&mut draws.position, position)
    });
    let _restore = Restore(LOCAL.replace(Some(state)), before);
    body()
}

/// Checks that `distribution` is valid for `dtype`.
pub(crate) fn check(distribution: Distribution, dtype: DType) -> Result<()> {
    let need = |ok: bool, what: &str, help: &dyn Fn() -> String| {
        if ok {
            Ok(())
        } else {
            Err(Error::dtype(format!("{what} cannot be drawn as {dtype}")).help(help()))
        }
    };
    let rounded = || match dtype {
        DType::Bool => "Tensor::bernoulli(p, shape, &device)? draws bools".to_string(),
        _ => format!(
            "Tensor::randint(low, high, shape, DType::{}, &device)? draws integers",
            dtype.variant()
        ),
    };
    let cast =
        |from: &str| format!("draw as DType::{from}, then x.cast(DType::{})?", dtype.variant());
    match distribution {
        Distribution::Uniform { low, high } => {
            need(dtype.is_float(), "uniform numbers", &rounded)?;
            if !(low <= high && (high - low).is_finite()) {
                return Err(Error::value(format!(
                    "uniform needs finite low <= high, not {low} and {high}"
                ))
                .help(if low > high {
                    format!("uniform({high}, {low}, ..) has them in order")
                } else {
                    "pass finite bounds".into()
                }));
            }
        }
        Distribution::Normal { mean, std } => {
            need(dtype.is_float(), "normal numbers", &|| {
                format!("draw as DType::F32, then x.round()?.cast(DType::{})?", dtype.variant())
            })?;
            if !(std >= 0.0 && std.is_finite() && mean.is_finite()) {
                return Err(Error::value(format!(
                    "normal needs a finite mean and std >= 0, not {mean} and {std}"
                ))
                .help("the standard deviation of a variance v is v.sqrt()"));
            }
        }
        Distribution::Integer { low, high } => {
            need(dtype.is_int(), "integers", &|| cast("I64"))?;
            let fits = |v: i64| Scalar::Int(v).cast(dtype).to_f64() == v as f64;
            if low >= high || !fits(low) || !fits(high - 1) {
                let bits = 8 * dtype.size();
                let (first, last) = if dtype.is_signed_int() {
                    (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
                } else {
                    (0, (1 << bits) - 1)
                };
                return Err(Error::value(format!(
                    "random integers of {dtype} need low < high within the type, not {low}..{high}"
                ))
                .help(format!(
                    "{dtype} holds {first} to {last}; high is not drawn, so it is at least low + 1"
                )));
            }
        }
        Distribution::Bernoulli { p } => {
            need(dtype == DType::Bool, "bernoulli trials", &|| cast("Bool"))?;
            if !(0.0..=1.0).contains(&p) {
                return Err(Error::value(format!("expected a probability in 0..=1, got {p}"))
                    .help("divide a percentage by 100.0"));
            }
        }
    }
    Ok(())
}
