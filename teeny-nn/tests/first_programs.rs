//! Runs the first programs in `examples`, whose `main` prints what these functions return.
#![allow(dead_code)] // their `main`

#[path = "../examples/characters.rs"]
mod characters;
#[cfg(feature = "image")]
#[path = "../examples/images.rs"]
mod images;
#[path = "../examples/mnist.rs"]
mod mnist;
#[path = "../examples/own_device.rs"]
mod own_device;
#[path = "../examples/own_layer.rs"]
mod own_layer;
#[path = "../examples/regression.rs"]
mod regression;
#[path = "../examples/tables.rs"]
mod tables;
#[path = "../examples/timeseries.rs"]
mod timeseries;

use teeny_core::Result;
use teeny_core::random::with_seed;
use teeny_nn::data::{digits, mnist::Mnist, names};

/// The result of `program`, whose seed is not that of the other tests of this process.
fn run<T>(program: impl FnOnce() -> Result<T>) -> T {
    with_seed(1, program).unwrap()
}

#[test]
fn a_line_is_found() {
    let (slope, intercept) = run(regression::train);
    assert!((slope - 3.0).abs() < 0.03 && (intercept + 2.0).abs() < 0.03, "{slope} {intercept}");
}

#[test]
fn digits_are_classified() {
    // 360 built-in digits by writers that are not in the training data, or MNIST's 10,000
    let (data, goal) = match std::env::var_os("TEENY_DATA") {
        Some(folder) => (Mnist::read(folder).unwrap(), 96.0),
        None => (digits::load().unwrap(), 85.0),
    };
    let percent = run(|| mnist::train(&data));
    assert!(percent > goal, "{percent}");
}

#[test]
fn names_are_learned() {
    let loss = run(|| characters::train(names::BUILTIN));
    // that of uniform guesses of 27 characters is 3.3
    assert!(loss < 2.0, "{loss}");
}

#[test]
fn an_own_layer_learns_and_its_fused_operation_has_the_gradients_of_the_operations() {
    let percent = run(own_layer::train);
    assert!(percent > 85.0, "{percent}");
    let difference = run(own_layer::compare);
    assert!(difference < 1e-5, "{difference}");
}

#[test]
fn an_own_device_multiplies_in_both_directions() {
    let (loss, products, others) = run(own_device::train);
    assert!(loss < 0.05, "{loss}");
    // of each step at least two forward and three backward
    assert!(products >= 300 * 5 && others > products, "{products} {others}");
}

#[test]
fn prices_follow_from_a_table() {
    let (error, deviation) = run(tables::train);
    assert!(error < deviation / 3.0, "{error} {deviation}");
}

#[cfg(feature = "image")]
#[test]
fn images_of_a_folder_are_classified() {
    let percent = run(images::train);
    assert!(percent > 85.0, "{percent}");
}

#[test]
fn a_series_is_continued_better_than_by_yesterday() {
    let (error, repeated) = run(timeseries::train);
    assert!(error < 0.8 * repeated && error < 0.02, "{error} {repeated}");
}

/// A program that depends on teeny-nn alone can be made of each.
#[test]
fn first_programs_are_short_and_import_one_crate() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut programs = 0;
    for path in paths.filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() < 80, "{path:?} has {} lines", text.lines().count());
        for path in text.lines().filter_map(|line| line.trim_start().strip_prefix("use ")) {
            assert!(path.starts_with("std::") || path.starts_with("teeny_nn::"), "use {path}");
        }
        programs += 1;
    }
    assert_eq!(programs, 8);
}
