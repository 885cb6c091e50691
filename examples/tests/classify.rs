//! Runs the small models: moons, xor, glm, sentiment.

use crate::common::*;

#[test]
fn moons_are_separated_with_every_seed() {
    let text = succeed(
        command(env!("CARGO_BIN_EXE_moons"), &["--runs", "20", "--device", "cpu"])
            .output()
            .unwrap(),
    );
    assert!(
        number_after(&text, "accuracy at least ") >= 98.0
            && number_after(&text, "final loss at most ") < 0.02,
        "{text}"
    );
    assert!(number_after(&text, "ms; ") > 15.0, "most runs are perfect: {text}");
}

#[test]
fn xor_is_learned_with_every_seed() {
    let text = succeed(
        command(env!("CARGO_BIN_EXE_xor"), &["--runs", "20", "--device", "cpu"]).output().unwrap(),
    );
    assert!(text.ends_with("4/4 right in 20 of 20 runs\n"), "{text}");
}

#[test]
fn xor_needs_its_steps_and_moons_theirs() {
    let text = succeed(
        command(env!("CARGO_BIN_EXE_xor"), &["--steps", "1", "--runs", "3"]).output().unwrap(),
    );
    assert!(!text.contains("4/4 right in 3 of 3"), "{text}");
    let text = succeed(command(env!("CARGO_BIN_EXE_moons"), &["--steps", "1"]).output().unwrap());
    assert!(number_after(&text, "accuracy at least ") < 98.0, "{text}");
    assert!(
        refuse(command(env!("CARGO_BIN_EXE_moons"), &["--save", "x"]).output().unwrap())
            .contains("invalid option '--save'")
    );
}

#[test]
fn coefficients_are_estimated_and_digits_classified_by_one_layer() {
    let mut program = command(env!("CARGO_BIN_EXE_glm"), &["--device", "cpu"]);
    let real = std::env::var_os("TEENY_DATA");
    match &real {
        Some(folder) => program.env("TEENY_DATA", folder),
        None => program.args(["--data", "builtin"]),
    };
    let text = succeed(program.output().unwrap());
    for model in ["logistic", "poisson"] {
        assert!(number_after(&text, &format!("{model} coefficients within ")) < 3.0, "{text}");
    }
    // the test has 360 built-in digits, by writers that are not in the training data
    let goal = if real.is_some() { 91.5 } else { 85.0 };
    assert!(number_after(&text, "softmax test accuracy ") >= goal, "{text}");
    assert!(
        refuse(command(env!("CARGO_BIN_EXE_glm"), &["--rows", "3"]).output().unwrap())
            .contains("at least 100 rows")
    );
}

#[test]
fn a_linear_model_is_enough_until_words_are_negated() {
    let folder = Folder::new("sentiment");
    let plot = folder.at("loss.svg");
    let text = succeed(
        command(env!("CARGO_BIN_EXE_sentiment"), &["--device", "cpu", "--plot", &plot])
            .output()
            .unwrap(),
    );
    let accuracy = |model: &str| number_after(&text, &format!("{model}: test accuracy "));
    assert!(accuracy("separable linear") > 90.0, "{text}");
    assert!(accuracy("negated hidden") > accuracy("negated linear") + 10.0, "{text}");
    assert!(accuracy("negated hidden") > 90.0, "{text}");
    assert_eq!(std::fs::read_to_string(plot).unwrap().matches("<polyline").count(), 4);
}
