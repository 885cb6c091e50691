//! Sampling: draws have the expected frequencies, options keep the documented tokens, invalid
//! options are errors.

use teeny_core::random::Key;
use teeny_core::{DType, DeviceRef, Tensor};
use teeny_nn::device::device;
use teeny_text::{Replacement, Sampler, multinomial, repetition_penalty};

const KEY: Key = Key { seed: 7, draw: 3 };

fn cpu() -> DeviceRef {
    device("cpu").unwrap()
}

/// `rows` times the row of logarithms of `p`: (rows, V).
fn logits(p: &[f64], rows: usize) -> Tensor {
    let row: Vec<f32> = p.iter().map(|p| p.ln() as f32).collect();
    Tensor::from_slice(&row, (1, p.len()), cpu()).unwrap().expand((rows, p.len())).unwrap()
}

fn counts(tokens: &[i32], size: usize) -> Vec<u64> {
    let mut counts = vec![0; size];
    tokens.iter().for_each(|&token| counts[token as usize] += 1);
    counts
}

/// The largest distance of a frequency from its probability, in standard errors.
fn standard_errors(counts: &[u64], p: &[f64]) -> f64 {
    let n = counts.iter().sum::<u64>() as f64;
    counts
        .iter()
        .zip(p)
        .map(|(&count, &p)| {
            if p == 0.0 {
                count as f64 * 1e9
            } else {
                (count as f64 - n * p).abs() / (n * p * (1.0 - p)).sqrt()
            }
        })
        .fold(0.0, f64::max)
}

/// The tokens that `sampler` keeps of logits `x`.
fn kept(sampler: Sampler, x: &[f32]) -> Vec<usize> {
    let filtered = sampler
        .filter(&Tensor::from_slice(x, (x.len(),), cpu()).unwrap())
        .unwrap()
        .to_vec::<f32>()
        .unwrap();
    (0..x.len()).filter(|&i| filtered[i] > f32::NEG_INFINITY).collect()
}

#[test]
fn a_million_draws_have_the_right_frequencies() {
    let p = [0.5, 0.25, 0.125, 0.0, 0.1, 0.02, 0.004, 0.0009, 0.0001];
    // (1000000)
    let many =
        multinomial(&logits(&p, 1).reshape(9).unwrap(), 1_000_000, Replacement::With, KEY).unwrap();
    let worst = standard_errors(&counts(&many.to_vec().unwrap(), 9), &p);
    assert!(worst < 4.0, "{worst}");
    let rows = Sampler::new().draw(&logits(&p, 1_000_000), KEY).unwrap(); // (1000000)
    let worst = standard_errors(&counts(&rows.to_vec().unwrap(), 9), &p);
    assert!(worst < 4.0, "{worst}");
}

#[test]
fn draws_from_a_large_vocabulary_have_no_favourites() {
    let tokens = multinomial(
        &Tensor::zeros(50_000, DType::F32, cpu()).unwrap(),
        400,
        Replacement::With,
        KEY,
    )
    .unwrap()
    .to_vec::<i32>()
    .unwrap();
    let parts = counts(&tokens.iter().map(|t| t / 5000).collect::<Vec<_>>(), 10);
    assert!(standard_errors(&parts, &[0.1; 10]) < 4.0, "{parts:?}");
}

#[test]
fn temperature_sharpens_and_almost_none_takes_the_likeliest() {
    let p = [0.1, 0.3, 0.6];
    // p^(1 / T), normalised
    let squares: Vec<f64> = p.iter().map(|p| p * p / 0.46).collect();
    let tokens = Sampler::new().temperature(0.5).draw(&logits(&p, 100_000), KEY).unwrap();
    assert!(standard_errors(&counts(&tokens.to_vec().unwrap(), 3), &squares) < 4.0);
    let x = Tensor::randn((500, 40), DType::F32, cpu()).unwrap();
    let best: Vec<u32> =
        x.argmax(1).unwrap().to_vec::<i32>().unwrap().iter().map(|&t| t as u32).collect();
    for sampler in [
        Sampler::greedy(),
        Sampler::new().temperature(9e-7),
        Sampler::new().top_k(1),
        Sampler::new().top_p(1e-9),
        Sampler::new().min_p(1.0),
    ] {
        assert_eq!(sampler.tokens(&x, KEY).unwrap(), best, "{sampler:?}");
    }
    let equal = Tensor::new([[1.0f32, 3.0, 3.0]], cpu()).unwrap();
    assert_eq!(Sampler::greedy().tokens(&equal, KEY).unwrap(), [1], "the first of equals");
}

#[test]
fn filters_keep_what_they_say() {
    let p: Vec<f32> = [0.05f32, 0.5, 0.15, 0.3].map(f32::ln).to_vec();
    assert_eq!(kept(Sampler::new(), &p), [0, 1, 2, 3]);
    assert_eq!(kept(Sampler::new().top_k(2), &p), [1, 3]);
    assert_eq!(kept(Sampler::new().top_k(9), &p), [0, 1, 2, 3]);
    assert_eq!(kept(Sampler::new().top_p(0.49), &p), [1]);
    assert_eq!(kept(Sampler::new().top_p(0.51), &p), [1, 3]);
    assert_eq!(kept(Sampler::new().top_p(0.81), &p), [1, 2, 3]);
    assert_eq!(kept(Sampler::new().min_p(0.2), &p), [1, 2, 3]);
    // in sequence: of the two tokens that top-k keeps, the first has 0.5 / 0.8, more than 0.6
    assert_eq!(kept(Sampler::new().top_k(2).top_p(0.6), &p), [1]);
    assert_eq!(
        kept(Sampler::new().top_k(2), &[1.0, 2.0, 1.0, 0.0]),
        [0, 1, 2],
        "equals of the last stay"
    );
    assert_eq!(kept(Sampler::new().top_p(0.9), &[f32::NEG_INFINITY, 0.0, 0.0]), [1, 2]);
    // each row is filtered separately, in views as well as copies
    // (2, 3)
    let x = Tensor::new([[1.0f32, 3.0], [2.0, 2.5], [3.0, 0.0]], cpu()).unwrap().t().unwrap();
    assert_eq!(Sampler::new().top_k(1).tokens(&x, KEY).unwrap(), [2, 0]);
}

#[test]
fn draws_without_replacement_differ_and_the_first_is_a_plain_draw() {
    let p = [0.4, 0.3, 0.2, 0.1];
    let tokens = multinomial(&logits(&p, 50_000), 3, Replacement::Without, KEY).unwrap(); // (50000, 3)
    let rows = tokens.to_vec::<i32>().unwrap();
    assert!(rows.chunks(3).all(|row| row[0] != row[1] && row[1] != row[2] && row[0] != row[2]));
    let first: Vec<i32> = rows.chunks(3).map(|row| row[0]).collect();
    assert!(standard_errors(&counts(&first, 4), &p) < 4.0);
    // the second given that the first was 0: 0.3, 0.2, 0.1 of 0.6
    let second: Vec<i32> = rows.chunks(3).filter(|row| row[0] == 0).map(|row| row[1] - 1).collect();
    assert!(standard_errors(&counts(&second, 3), &[0.5, 1.0 / 3.0, 1.0 / 6.0]) < 4.0);
    let text = multinomial(&logits(&p, 1), 5, Replacement::Without, KEY).unwrap_err().to_string();
    assert!(text.contains("cannot draw 5 distinct tokens from 4"), "{text}");
    let two = multinomial(&logits(&[0.0, 1.0, 0.0], 1), 2, Replacement::Without, KEY).unwrap();
    assert_eq!(two.to_vec::<i32>().unwrap(), [1, -1], "what has no probability is not drawn");
}

#[test]
fn the_key_decides_and_every_device_draws_the_same() {
    let x = Tensor::randn((64, 30), DType::F32, cpu()).unwrap();
    let sampler = Sampler::new().temperature(1.3).top_k(20).top_p(0.95).min_p(0.01);
    let draw = |x: &Tensor, draw: u64| sampler.tokens(x, Key { seed: 5, draw }).unwrap();
    assert_eq!(draw(&x, 1), draw(&x, 1));
    assert_ne!(draw(&x, 1), draw(&x, 2));
    assert_eq!(draw(&x.to(device("reference").unwrap()).unwrap(), 1), draw(&x, 1));
    // 16-bit logits are computed in f32; any number of axes; a tracked tensor
    assert_eq!(draw(&x.cast(DType::F16).unwrap(), 1).len(), 64);
    // (8, 8)
    let deep = sampler.draw(&x.reshape((8, 8, 30)).unwrap(), Key { seed: 5, draw: 1 }).unwrap();
    assert_eq!((deep.shape()[..].to_vec(), deep.dtype()), (vec![8, 8], DType::I32));
    let tracked =
        teeny_autograd::Grad::requires_grad(&x.to(teeny_autograd::Autograd::new(cpu())).unwrap())
            .unwrap();
    assert_eq!(draw(&tracked, 1), draw(&x, 1));
}

#[test]
fn rows_that_cannot_be_drawn_from_are_errors_that_name_them() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for (bad, good) in [
        ([nan, 1.0, 0.5], [0.0, 1.0, 2.0]),
        ([-inf, -inf, -inf], [-inf, 0.0, -inf]),
        ([inf, 0.0, 0.0], [0.0; 3]),
    ] {
        let x = Tensor::new([good, bad], cpu()).unwrap(); // (2, 3)
        for sampler in [
            Sampler::greedy(),
            Sampler::new(),
            Sampler::new().top_k(2),
            Sampler::new().top_p(0.9),
            Sampler::new().min_p(0.1),
        ] {
            let text = sampler.tokens(&x, KEY).unwrap_err().to_string();
            assert!(
                text.starts_with("sample at ") && text.contains("row 1 of the logits has NaN"),
                "{text}"
            );
            assert_eq!(sampler.draw(&x, KEY).unwrap().to_vec::<i32>().unwrap()[1], -1);
            assert!(sampler.tokens(&x.slice(0, ..1).unwrap(), KEY).is_ok());
        }
        assert_eq!(
            multinomial(&x, 2, Replacement::With, KEY).unwrap().to_vec::<i32>().unwrap()[2..],
            [-1, -1]
        );
    }
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let x = logits(&[0.5, 0.5], 1);
    let refused = |sampler: Sampler, expected: &str| {
        let text = sampler.draw(&x, KEY).unwrap_err().to_string();
        assert!(text.contains(expected) && text.contains("sampling.rs"), "{text}");
    };
    refused(Sampler::new().top_k(0), "top_k is 0, but must be at least 1");
    refused(Sampler::new().top_p(0.0), "top_p is a probability above 0, at most 1, not 0");
    refused(Sampler::new().top_p(1.5), "not 1.5");
    refused(Sampler::new().top_p(f64::NAN), "not NaN");
    refused(Sampler::new().min_p(-0.1), "min_p is a probability, at most 1, not -0.1");
    refused(
        Sampler::new().temperature(-1.0),
        "the temperature must be a finite number of at least 0, not -1",
    );
    refused(Sampler::new().temperature(f64::INFINITY), "not inf");
    let ints = Tensor::new([1i32, 2], cpu()).unwrap();
    assert!(
        Sampler::new()
            .draw(&ints, KEY)
            .unwrap_err()
            .to_string()
            .contains("logits are floats of shape (.., V) with V above 0, not i32")
    );
    assert!(Sampler::new().draw(&Tensor::zeros((2, 0), DType::F32, cpu()).unwrap(), KEY).is_err());
}

#[test]
fn a_penalty_makes_what_was_said_less_likely() {
    let x = Tensor::new([[2.0f32, -1.0, 4.0], [1.0, 1.0, 1.0]], cpu()).unwrap(); // (2, 3)
    let said = Tensor::new([[0i32, 1, 0], [2, 2, 2]], x.device()).unwrap(); // (2, 3)
    let less = repetition_penalty(&x, &said, 2.0).unwrap().to_vec::<f32>().unwrap();
    assert_eq!(less, [1.0, -2.0, 4.0, 1.0, 1.0, 0.5]);
    assert!(repetition_penalty(&x, &said, 0.0).is_err());
}
