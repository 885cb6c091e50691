//! Windows over time series.

use crate::common::{Dice, device, values};
use std::collections::BTreeSet;
use teeny_core::Tensor;
use teeny_data::{DataLoader, Dataset, SeriesWindows};

#[test]
fn windows_are_the_steps_of_a_series() {
    let (device, mut dice) = (device(), Dice(8));
    for _ in 0..100 {
        let (length, horizon) = (1 + dice.below(5), 1 + dice.below(4));
        let (stride, channels) = (1 + dice.below(4), 1 + dice.below(3));
        let steps = length + horizon + dice.below(20);
        let all: Vec<f32> = (0..steps * channels).map(|i| i as f32).collect();
        let series = Tensor::from_vec(all, (steps, channels), &device).unwrap();
        let windows = SeriesWindows::new(&series, length, horizon, stride).unwrap();
        let starts: Vec<usize> =
            (0..).map(|i| i * stride).take_while(|s| s + length + horizon <= steps).collect();
        assert_eq!(windows.len(), starts.len());
        let loader = DataLoader::new(&windows, 3).unwrap().shuffle(1);
        let mut seen = BTreeSet::new();
        for (batch, items) in loader.epoch(0).zip(loader.order(0).chunks(3)) {
            let (x, y) = batch.unwrap();
            assert_eq!(x.shape()[..], [items.len(), length, channels]);
            assert_eq!(y.shape()[..], [items.len(), horizon, channels]);
            let (x, y) = (values(&x), values(&y));
            for (i, item) in items.iter().enumerate() {
                let start = starts[*item] * channels;
                let run = |from: usize, n: usize| (from..from + n * channels).map(|v| v as f64);
                assert!(
                    x[i * length * channels..][..length * channels]
                        .iter()
                        .copied()
                        .eq(run(start, length))
                );
                let from = start + length * channels;
                assert!(
                    y[i * horizon * channels..][..horizon * channels]
                        .iter()
                        .copied()
                        .eq(run(from, horizon))
                );
                seen.insert(*item);
            }
        }
        assert_eq!(seen.len(), starts.len());
        assert!(windows.batch(&[starts.len()], 0).is_err());
    }
}

#[test]
fn a_split_by_time_shares_no_step() {
    let device = device();
    let series = Tensor::arange(0f32, 50.0, 1.0, &device).unwrap();
    let windows = SeriesWindows::new(&series, 3, 2, 1).unwrap();
    let (train, test) = windows.split(0.7).unwrap();
    let steps = |windows: &SeriesWindows| -> BTreeSet<i32> {
        let (x, y) = windows.all().unwrap();
        values(&x).into_iter().chain(values(&y)).map(|x| x as i32).collect()
    };
    assert!(steps(&train).into_iter().eq(0..35) && steps(&test).into_iter().eq(35..50));
    let error = windows.split(0.95).unwrap_err().to_string();
    assert!(error.contains("3 steps, but a window takes 3 + 2"), "{error}");
    assert!(error.contains("of the second part, by the fraction 0.95"), "{error}");
    for fraction in [-0.1, 1.1, f64::NAN] {
        assert!(windows.split(fraction).is_err());
    }
    for (length, horizon, stride, says) in [
        (0, 1, 1, "length 0, horizon 1 and stride 1"),
        (1, 0, 1, "horizon 0"),
        (1, 1, 0, "stride 0"),
        (40, 11, 1, "50 steps, but a window takes 40 + 11"),
        (usize::MAX, 2, 1, "50 steps"),
    ] {
        let error = SeriesWindows::new(&series, length, horizon, stride).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("SeriesWindows::new at"), "{error}");
    }
    let cube = series.reshape((5, 5, 2)).unwrap();
    assert!(SeriesWindows::new(&cube, 1, 1, 1).unwrap_err().to_string().contains("(5, 5, 2)"));
}
