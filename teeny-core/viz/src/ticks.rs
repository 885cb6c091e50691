//! The numbers at the axes of a [`super::Plot`].

/// Logarithms of round numbers that enclose the logarithms `values`: powers of ten if they span
/// more than two, their doubles and fivefolds too if not.
pub(super) fn decades(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let multiples: &[f64] = if high - low > 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all: Vec<f64> = (low.floor() as i32..=high.ceil() as i32 + 1)
        .flat_map(|power| multiples.iter().map(move |m| f64::from(power) + m.log10()))
        .collect();
    let first = all.iter().rposition(|&tick| tick <= low).unwrap_or(0);
    let last =
        all.iter().position(|&tick| tick >= high && tick > all[first]).unwrap_or(all.len() - 1);
    all[first..=last].to_vec()
}

/// Round numbers from below the smallest value to above the largest: steps of 1, 2 or 5 times a
/// power of ten, about six of them.
pub(super) fn ticks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    // the distance of the ends is finite, and not so small that it has no sixth
    let (low, high) = (low.max(-1e300), high.min(1e300));
    let (low, high) = if (high - low) / 6.0 >= f64::MIN_POSITIVE {
        (low, high)
    } else if low <= high {
        (low - 1.0, high + 1.0)
    } else {
        (0.0, 1.0)
    };
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// A tick without the digits that binary fractions add.
pub(super) fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-5 {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".into() } else { text.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(ticks([0.13, 2.31].into_iter()), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(ticks([0.0, 4690.0].into_iter()), [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0]);
        assert!(ticks([3.0].into_iter()).len() > 1);
        for ends in [[0.0, 5e-324], [f64::MIN, f64::MAX], [1.0, 1.0 + f64::EPSILON]] {
            let ticks = ticks(ends.into_iter());
            assert!((2..12).contains(&ticks.len()), "{ticks:?}");
            assert!(ticks.iter().all(|tick| tick.is_finite()), "{ticks:?}");
        }
        assert_eq!(ticks(std::iter::empty()).first(), Some(&0.0));
    }

    #[test]
    fn logarithmic_ticks_are_round_and_enclose_the_values() {
        let round =
            |ticks: Vec<f64>| ticks.into_iter().map(|t| number(10f64.powf(t))).collect::<Vec<_>>();
        assert_eq!(
            round(decades([0.3f64, 4.0].map(f64::log10).into_iter())),
            ["0.2", "0.5", "1", "2", "5"]
        );
        assert_eq!(
            round(decades([0.003f64, 40.0].map(f64::log10).into_iter())),
            ["0.001", "0.01", "0.1", "1", "10", "100"]
        );
        assert_eq!(round(decades([1.0f64].map(f64::log10).into_iter())), ["1", "2"]);
        assert!(decades(std::iter::empty()).len() > 1);
    }
}
