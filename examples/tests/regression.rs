//! Runs the regression example.

use crate::common::*;

#[test]
fn the_lines_the_priors_and_the_double_descent() {
    let text = succeed(
        command(env!("CARGO_BIN_EXE_regression"), &["--device", "cpu", "--draws", "8"])
            .output()
            .unwrap(),
    );
    // the exact coefficients are -12,850,000/127 and 53,500/127
    let house = text.lines().find(|line| line.starts_with("houses")).unwrap();
    assert!(
        (number_after(house, "price = ") / (-12_850_000.0 / 127.0) - 1.0).abs() < 1e-9,
        "{text}"
    );
    assert!((number_after(house, " + ") / (53_500.0 / 127.0) - 1.0).abs() < 1e-9, "{text}");
    assert!(number_after(&text, "distance of the two errors ") < 1e-9, "{text}");
    let degree = number_after(&text, "polynomials: degree ");
    assert!((3.0..=7.0).contains(&degree), "{text}");
    assert!(number_after(&text, "divides the error by ") > 1.5, "{text}");
    let peak = number_after(&text, "the peak is at p/n = ");
    assert!((0.9..=1.1).contains(&peak), "{text}");
    assert!(number_after(&text, "falls to 1/") > 10.0, "{text}");
}
