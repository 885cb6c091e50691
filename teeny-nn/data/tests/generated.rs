//! Generated data sets have the documented shapes, distances and coefficients.

use std::collections::BTreeSet;
use teeny_core::DType;
use teeny_data::generated::{self, HOUSING, Samples};
use teeny_data::sentiment::{self, BagOfWords};
use teeny_nn::device::device;

fn classes(samples: &Samples) -> Vec<usize> {
    let mut counts = Vec::new();
    for &class in &samples.targets {
        counts.resize(counts.len().max(class as usize + 1), 0);
        counts[class as usize] += 1;
    }
    counts
}

#[test]
fn moons_and_circles_without_noise_lie_on_their_curves() {
    let moons = generated::moons(101, 0.0, 1);
    assert_eq!((moons.len(), moons.features, classes(&moons)), (101, 2, vec![50, 51]));
    for (point, class) in moons.inputs.chunks(2).zip(&moons.targets) {
        let (x, y) = (point[0], point[1]);
        let radius = if *class == 0.0 { x.hypot(y) } else { (x - 1.0).hypot(y - 0.5) };
        assert!(
            (radius - 1.0).abs() < 1e-12 && if *class == 0.0 { y >= 0.0 } else { y <= 0.5 },
            "{point:?}"
        );
    }
    let circles = generated::circles(60, 0.0, 0.5, 1);
    assert_eq!(classes(&circles), [30, 30]);
    for (point, class) in circles.inputs.chunks(2).zip(&circles.targets) {
        assert!((point[0].hypot(point[1]) - if *class == 0.0 { 1.0 } else { 0.5 }).abs() < 1e-12);
    }
}

#[test]
fn noise_and_clouds_have_their_deviation() {
    let blobs = generated::blobs(9000, 3, 0.5, 4);
    assert_eq!(classes(&blobs), [3000; 3]);
    for class in 0..3 {
        let x: Vec<f64> = blobs
            .inputs
            .chunks(2)
            .zip(&blobs.targets)
            .filter(|(_, c)| **c == f64::from(class))
            .map(|(p, _)| p[0])
            .collect();
        let mean = x.iter().sum::<f64>() / 3000.0;
        let std = (x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / 3000.0).sqrt();
        // the standard error of a deviation is std / sqrt(2 n)
        assert!(
            (std - 0.5).abs() < 4.0 * 0.5 / 6000f64.sqrt() && mean.abs() <= 10.1,
            "{mean} {std}"
        );
    }
    let (clean, noisy) = (generated::moons(2000, 0.0, 7), generated::moons(2000, 0.1, 7));
    let moved =
        clean.inputs.iter().zip(&noisy.inputs).map(|(a, b)| (a - b).powi(2)).sum::<f64>() / 4000.0;
    assert!((moved.sqrt() - 0.1).abs() < 4.0 * 0.1 / 8000f64.sqrt(), "{moved}");
}

#[test]
fn the_same_seed_makes_the_same_set_in_mixed_order() {
    let sets = |seed| {
        [
            generated::moons(50, 0.1, seed),
            generated::circles(50, 0.1, 0.5, seed),
            generated::blobs(50, 3, 1.0, seed),
            generated::housing(50, 5.0, seed),
        ]
    };
    assert_eq!(sets(3), sets(3));
    sets(3).iter().zip(&sets(4)).for_each(|(a, b)| assert_ne!(a, b));
    let (first, rest) = generated::moons(100, 0.1, 1).split(50).unwrap();
    assert!(
        classes(&first).iter().chain(&classes(&rest)).all(|&n| n > 10),
        "both classes are in both parts"
    );
    assert!(
        generated::moons(5, 0.1, 1).split(6).is_err() && generated::moons(0, 0.1, 1).is_empty()
    );
}

#[test]
fn houses_without_noise_cost_what_the_coefficients_say() {
    let houses = generated::housing(200, 0.0, 2);
    assert_eq!(houses.features, 4);
    for (row, price) in houses.inputs.chunks(4).zip(&houses.targets) {
        assert!(
            (40.0..240.0).contains(&row[0])
                && (1.0..=8.0).contains(&row[1])
                && (0.0..80.0).contains(&row[2])
                && (0.0..25.0).contains(&row[3])
        );
        let expected: f64 = HOUSING[4] + (0..4).map(|i| HOUSING[i] * row[i]).sum::<f64>();
        assert!((price - expected).abs() < 1e-9);
    }
    let cpu = device("cpu").unwrap();
    // (200, 4), (200)
    let (x, y) = (houses.x(DType::F64, &cpu).unwrap(), houses.y(DType::F32, &cpu).unwrap());
    assert_eq!(
        (x.to_vec::<f64>().unwrap(), y.shape()[..].to_vec()),
        (houses.inputs.clone(), vec![200])
    );
}

#[test]
fn counts_and_classes_follow_their_models() {
    // without weights all rows have the same probability
    let coins = generated::logistic(20_000, &[0.5], 1).unwrap();
    let p = 1.0 / (1.0 + (-0.5f64).exp());
    let share = coins.targets.iter().sum::<f64>() / 20_000.0;
    assert!((share - p).abs() < 4.0 * (p * (1.0 - p) / 20_000.0).sqrt(), "{share}");
    let events = generated::poisson(20_000, &[4f64.ln()], 1).unwrap();
    let mean = events.targets.iter().sum::<f64>() / 20_000.0;
    let variance = events.targets.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / 20_000.0;
    assert!(
        (mean - 4.0).abs() < 4.0 * (4.0 / 20_000f64).sqrt() && (variance - 4.0).abs() < 0.2,
        "{mean} {variance}"
    );
    assert!(generated::poisson(3, &[], 1).is_err());
}

#[test]
fn opinions_follow_their_grammar() {
    let good = |word: &str| {
        [
            "good", "great", "lovely", "charming", "clever", "warm", "superb", "fresh", "bright",
            "pleasant",
        ]
        .contains(&word)
    };
    let bad = |word: &str| {
        ["bad", "awful", "boring", "rude", "stale", "dull", "cold", "clumsy", "noisy", "dreadful"]
            .contains(&word)
    };
    let (plain, negated) = (sentiment::separable(500, 1), sentiment::negated(500, 1));
    for review in &plain {
        let words: Vec<&str> = review.text.split(' ').collect();
        assert!(words.iter().any(|w| if review.positive { good(w) } else { bad(w) }), "{review:?}");
        assert!(
            !words.iter().any(|w| *w == "not" || if review.positive { bad(w) } else { good(w) }),
            "{review:?}"
        );
    }
    for review in &negated {
        let words: Vec<&str> = review.text.split(' ').collect();
        assert_eq!(words.iter().filter(|w| good(w) || bad(w)).count(), 1);
        assert_eq!(
            review.positive,
            words.contains(&"not") != words.iter().any(|w| good(w)),
            "{review:?}"
        );
    }
    assert!((150..350).contains(&negated.iter().filter(|r| r.text.contains(" not ")).count()));

    let bag = BagOfWords::of(&plain);
    let words: Vec<&str> = bag.words().collect();
    assert!(words.is_sorted() && words.iter().collect::<BTreeSet<_>>().len() == words.len());
    let counts = bag.count(&plain[..1]);
    assert_eq!(counts.features, words.len());
    for (word, count) in words.iter().zip(&counts.inputs) {
        assert_eq!(*count, plain[0].text.split(' ').filter(|w| w == word).count() as f64);
    }
    assert_eq!(
        bag.count(&negated).inputs.len(),
        500 * words.len(),
        "a word that is not known, such as not, is left out"
    );
}
