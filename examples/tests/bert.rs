//! Runs the BERT example.

use crate::common::*;

fn bert(args: &[&str]) -> std::process::Output {
    command(env!("CARGO_BIN_EXE_bert"), args).output().unwrap()
}

#[test]
fn masked_words_are_predicted_and_padding_changes_nothing() {
    let text = succeed(bert(&["--device", "cpu"]));
    assert!(number_after(&text, "masked accuracy ") > 90.0, "{text}");
    assert!(number_after(&text, "by at most ") < 1e-6, "{text}");
    // the loss of a uniform prediction of 55 words is ln 55
    assert!((number_after(&text, "first loss ") - 55f64.ln()).abs() < 0.3, "{text}");
}

#[test]
fn invalid_options_are_errors() {
    assert!(refuse(bert(&["--width", "0"])).contains("at least one is needed"));
    assert!(refuse(bert(&["--width", "30"])).contains("n_embd is 30, n_head 4"));
}
