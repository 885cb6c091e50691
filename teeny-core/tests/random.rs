//! Row A09: constructors and random numbers: known answers of Philox, moments, Kolmogorov and
//! Smirnov's test, seeds.

use teeny_core::random::{
    Distribution, Generator, Key, next_key, philox, set_state, state, with_seed,
};
use teeny_core::{DType, Element, ErrorKind, Reference, Result, Tensor, f16, permutation};

#[test]
fn philox_gives_the_known_answers_of_random123() {
    // kat_vectors of the Random123 distribution: philox4x32, 10 rounds.
    assert_eq!(
        philox(Key { seed: 0, draw: 0 }, 0),
        [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]
    );
    assert_eq!(
        philox(Key { seed: u64::MAX, draw: u64::MAX }, u64::MAX),
        [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
    );
    let pi = Key { seed: 0x299f_31d0_a409_3822, draw: 0x0370_7344_1319_8a2e };
    assert_eq!(
        philox(pi, 0x85a3_08d3_243f_6a88),
        [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1]
    );
}

/// Mean, variance, skewness and kurtosis.
fn moments(x: &[f64]) -> [f64; 4] {
    let n = x.len() as f64;
    let mean = x.iter().sum::<f64>() / n;
    let central = |p: i32| x.iter().map(|v| (v - mean).powi(p)).sum::<f64>() / n;
    let var = central(2);
    [mean, var, central(3) / var.powf(1.5), central(4) / (var * var)]
}

/// The largest distance between the empirical and the true distribution function.
fn kolmogorov_smirnov(mut x: Vec<f64>, cdf: impl Fn(f64) -> f64) -> f64 {
    x.sort_by(f64::total_cmp);
    let n = x.len() as f64;
    x.iter()
        .enumerate()
        .map(|(i, &v)| (cdf(v) - i as f64 / n).abs().max((cdf(v) - (i + 1) as f64 / n).abs()))
        .fold(0.0, f64::max)
}

const DRAWS: usize = 1_000_000;
/// The distance exceeded once in a million tests: sqrt(ln(2 / 1e-6) / 2 n).
const LIMIT: f64 = 2.7e-3;

fn drawn(distribution: Distribution, dtype: DType) -> Result<Vec<f64>> {
    let x =
        Tensor::random(distribution, DRAWS, dtype, Key { seed: 20, draw: 3 }, Reference::new())?;
    Ok(x.to_scalars()?.into_iter().map(|s| s.to_f64()).collect())
}

#[test]
fn a_million_uniform_draws_are_uniform() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let x = drawn(Distribution::Uniform { low: 2.0, high: 5.0 }, dtype)?;
        assert!(x.iter().all(|&v| (2.0..5.0).contains(&v)));
        let [mean, var, skew, kurtosis] = moments(&x);
        // Five standard errors each.
        assert!(
            (mean - 3.5).abs() < 0.0045
                && (var - 0.75).abs() < 0.004
                && skew.abs() < 0.009
                && (kurtosis - 1.8).abs() < 0.009,
            "{mean} {var} {skew} {kurtosis}"
        );
        assert!(kolmogorov_smirnov(x, |v| (v - 2.0) / 3.0) < LIMIT);
    }
    Ok(())
}

#[test]
fn a_million_normal_draws_are_normal() -> Result<()> {
    for dtype in [DType::F32, DType::F64] {
        let x = drawn(Distribution::Normal { mean: -1.0, std: 2.0 }, dtype)?;
        assert!(x.iter().all(|v| v.is_finite()));
        let [mean, var, skew, kurtosis] = moments(&x);
        assert!(
            (mean + 1.0).abs() < 0.01
                && (var - 4.0).abs() < 0.03
                && skew.abs() < 0.0125
                && (kurtosis - 3.0).abs() < 0.025,
            "{mean} {var} {skew} {kurtosis}"
        );
        let cdf = |v: f64| {
            0.5 * (1.0
                + teeny_core::kernel::eval::erf((v + 1.0) / 2.0 * std::f64::consts::FRAC_1_SQRT_2))
        };
        assert!(kolmogorov_smirnov(x, cdf) < LIMIT);
    }
    Ok(())
}

#[test]
fn integers_and_trials_come_as_often_as_they_should() -> Result<()> {
    let x = drawn(Distribution::Integer { low: -2, high: 5 }, DType::I32)?;
    for value in -2..5 {
        let share = x.iter().filter(|&&v| v == value as f64).count() as f64 / DRAWS as f64;
        assert!((share - 1.0 / 7.0).abs() < 0.0018, "{value} {share}");
    }
    let share =
        drawn(Distribution::Bernoulli { p: 0.3 }, DType::Bool)?.iter().sum::<f64>() / DRAWS as f64;
    assert!((share - 0.3).abs() < 0.0023);
    Ok(())
}

#[test]
fn a_generator_draws_plain_numbers_and_continues_from_its_state() {
    let generator = Generator::new(11);
    let x: Vec<f64> = (0..DRAWS).map(|_| generator.uniform()).collect();
    assert!(x.iter().all(|v| (0.0..1.0).contains(v)));
    assert!(kolmogorov_smirnov(x, |v| v) < LIMIT);
    let mut counts = [0; 7];
    (0..DRAWS).for_each(|_| counts[generator.below(7).unwrap()] += 1);
    for count in counts {
        assert!((count as f64 / DRAWS as f64 - 1.0 / 7.0).abs() < 0.0018, "{counts:?}");
    }
    assert_eq!(generator.below(1).unwrap(), 0);
    assert!(generator.below(usize::MAX).unwrap() > usize::MAX / 1000);
    let state = generator.state();
    let again = Generator::new(0);
    again.set_state(state);
    assert_eq!([generator.uniform(), generator.uniform()], [again.uniform(), again.uniform()]);
    let error = generator.below(0).unwrap_err();
    assert_eq!(generator.state(), again.state(), "nothing was drawn");
    assert!(error.has_help() && error.to_string().contains(file!()), "{error}");
}

#[test]
fn the_end_of_a_uniform_range_is_never_drawn_in_any_type() -> Result<()> {
    for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
        for (low, high) in [(0.0, 1.0), (-1.0, 0.0), (-3.0, -1.0), (1.0, 1.5)] {
            let x = drawn(Distribution::Uniform { low, high }, dtype)?;
            assert!(x.iter().all(|&v| low <= v && v < high), "{dtype} {low} {high}");
        }
    }
    Ok(())
}

#[test]
fn a_seed_fixes_every_draw_and_streams_are_independent() -> Result<()> {
    let device = Reference::new();
    let draw = || -> Result<_> {
        Ok((
            Tensor::rand(9, DType::F32, &device)?.to_vec::<f32>()?,
            Tensor::randn(9, DType::F64, &device)?.to_vec::<f64>()?,
        ))
    };
    let (a, b) = (with_seed(5, draw)?, with_seed(5, draw)?);
    assert_eq!(a, b);
    assert_ne!(with_seed(6, draw)?, a);
    with_seed(7, || {
        let here = state();
        let first = next_key();
        set_state(here);
        assert_eq!(next_key(), first);
    });
    // An element depends on its number alone: a longer draw begins like a shorter one.
    let key = Key { seed: 1, draw: 2 };
    let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
    let (short, long) = (
        Tensor::random(uniform, 3, DType::F32, key, &device)?,
        Tensor::random(uniform, 100, DType::F32, key, &device)?,
    );
    assert_eq!(short.to_vec::<f32>()?, long.to_vec::<f32>()?[..3]);
    Ok(())
}

#[test]
fn permutations_hold_every_number_once() -> Result<()> {
    let mut order = with_seed(3, || Tensor::randperm(1000, Reference::new()))?.to_vec::<i32>()?;
    assert_ne!(order, (0..1000).collect::<Vec<_>>());
    order.sort_unstable();
    assert_eq!(order, (0..1000).collect::<Vec<_>>());
    // The six orders of three come equally often.
    let mut counts = std::collections::BTreeMap::new();
    (0..6000u64)
        .for_each(|draw| *counts.entry(permutation(3, Key { seed: 8, draw })).or_insert(0) += 1);
    assert!(counts.len() == 6 && counts.values().all(|&c| (850..1150).contains(&c)), "{counts:?}");
    Ok(())
}

#[test]
fn counting_filling_and_spacing() -> Result<()> {
    let device = Reference::new();
    assert_eq!(Tensor::arange(2i32, 11, 3, &device)?.to_vec::<i32>()?, [2, 5, 8]);
    assert_eq!(Tensor::arange(5u8, 5, 1, &device)?.numel(), 0);
    assert_eq!(
        Tensor::arange(1.0f32, 0.0, -0.25, &device)?.to_vec::<f32>()?,
        [1.0, 0.75, 0.5, 0.25]
    );
    assert_eq!(
        Tensor::arange(u64::MAX - 2, u64::MAX, 1, &device)?.to_vec::<u64>()?,
        [u64::MAX - 2, u64::MAX - 1]
    );
    for (start, end, step) in [(0, 5, 0), (0, 5, -1), (5, 0, 1)] {
        assert_eq!(
            Tensor::arange(start, end, step, &device).map(drop).expect_err("never arrives").kind(),
            ErrorKind::Value
        );
    }
    assert_eq!(
        Tensor::linspace(0.0, 1.0, 5, DType::F32, &device)?.to_vec::<f32>()?,
        [0.0, 0.25, 0.5, 0.75, 1.0]
    );
    assert_eq!(Tensor::linspace(3.0, 9.0, 1, DType::F64, &device)?.to_vec::<f64>()?, [3.0]);
    assert_eq!(Tensor::eye(2, DType::U8, &device)?.to_vec::<u8>()?, [1, 0, 0, 1]);
    let like = Tensor::zeros((2, 3), DType::F16, &device)?.full_like(2.5)?;
    assert_eq!((like.dtype(), like.to_vec::<f16>()?[5]), (DType::F16, f16::from_f64(2.5)));
    assert_eq!(Tensor::full(2, 300, DType::U8, &device)?.to_vec::<u8>()?, [44, 44]);
    assert_eq!(Tensor::full(1, f64::NAN, DType::I32, &device)?.item::<i32>()?, 0);
    assert_eq!(<f16 as Element>::DTYPE, DType::F16);
    Ok(())
}

#[test]
fn folded_keys_are_blocks_of_philox() {
    // the known answers of `philox_gives_the_known_answers_of_random123`, as seeds and draws
    let zero = Key { seed: 0, draw: 0 }.fold_in(0);
    assert_eq!(zero, Key { seed: 0xe169_c58d_6627_e8d5, draw: 0x9b00_dbd8_bc57_ac4c });
    let ones = Key { seed: u64::MAX, draw: u64::MAX }.fold_in(u64::MAX);
    assert_eq!(ones, Key { seed: 0x41c8_3b0e_408f_276d, draw: 0x6d54_51fd_a20b_c7c6 });
    let key = Key { seed: 7, draw: 0 };
    assert_ne!(key.fold_in(1).fold_in(5), key.fold_in(5).fold_in(1));
}

#[test]
fn draws_of_neighbouring_folds_share_nothing() {
    let key = Key { seed: 7, draw: 0 };
    // 64 epochs of 256 items, 16 draws of 4 words each: a million words
    let words = |epoch: u64, item: u64| {
        let Key { seed, draw } = key.fold_in(epoch).fold_in(item);
        (0..16).flat_map(move |i| philox(Key { seed, draw: draw.wrapping_add(i) }, 0))
    };
    let all: Vec<u32> =
        (0..64).flat_map(|epoch| (0..256).flat_map(move |item| words(epoch, item))).collect();
    let n = all.len();
    // Shared draws have equal pairs of words. By chance two of 2^19 pairs are equal once in 2^27
    // tests.
    let mut pairs: Vec<[u32; 2]> = all.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
    pairs.sort_unstable();
    assert!(pairs.windows(2).all(|two| two[0] != two[1]), "two folds share a draw");
    // Neighbouring draws, items and epochs are uncorrelated: five standard errors.
    let unit: Vec<f64> = all.iter().map(|&word| word as f64 / 2f64.powi(32) - 0.5).collect();
    for lag in [1, 4, 64, 64 * 256] {
        let sum: f64 = unit.iter().zip(&unit[lag..]).map(|(a, b)| a * b).sum();
        let correlation = 12.0 * sum / (n - lag) as f64;
        assert!(correlation.abs() < 5.0 / (n as f64).sqrt(), "lag {lag}: {correlation}");
    }
    assert!(kolmogorov_smirnov(unit, |v| v + 0.5) < LIMIT);
}
