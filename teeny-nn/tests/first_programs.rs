//! Runs the first programs in `examples`, whose `main` prints what these functions return.
#![allow(dead_code)] // their `main`

#[path = "../examples/characters.rs"]
mod characters;
#[path = "../examples/images.rs"]
mod images;
#[path = "../examples/mnist.rs"]
mod mnist;
#[path = "../examples/nanogpt.rs"]
mod nanogpt;
#[path = "../examples/own_device.rs"]
mod own_device;
#[path = "../examples/own_layer.rs"]
mod own_layer;
#[path = "../examples/regression.rs"]
mod regression;
#[path = "../examples/research.rs"]
mod research;
#[path = "../examples/server.rs"]
mod server;
#[path = "../examples/tables.rs"]
mod tables;
#[path = "../examples/timeseries.rs"]
mod timeseries;

use teeny_core::Result;
use teeny_core::random::with_seed;
use teeny_nn::data::{digits, mnist::Mnist};
use teeny_text::names;

/// The result of `program`, with another seed than the other tests of this process.
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
    // uniform guesses of 27 characters have a loss of 3.3
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

/// A program that depends on teeny-nn, and on packages of its folder, can be made of each.
#[test]
fn first_programs_are_short_and_import_one_crate() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let paths = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut programs = 0;
    for path in paths.filter(|path| path.is_file()) {
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.lines().count() <= 120, "{path:?} has {} lines", text.lines().count());
        for path in text.lines().filter_map(|line| line.trim_start().strip_prefix("use ")) {
            let known = ["std::", "teeny_nn::", "teeny_text::"];
            assert!(known.iter().any(|start| path.starts_with(start)), "use {path}");
        }
        programs += 1;
    }
    assert_eq!(programs, 11);
}

#[test]
fn a_gpt_in_nano_gpts_lines_learns_the_characters_of_a_text() {
    let text = &teeny_nn::data::corpus::BUILTIN[..4000];
    let (loss, sample) = run(|| nanogpt::train(text, 150));
    // the uniform guess of some 50 characters is 3.9, their frequencies give 3.1
    assert!(loss < 2.8, "{loss}");
    assert_eq!(sample.chars().count(), 201);
}

#[test]
fn measurements_for_a_paper_are_repeated_to_the_bit() {
    let (stable, edge) = (run(|| research::measure(0.05, 1)), run(|| research::measure(0.5, 1)));
    assert!(stable.sharpness < 2.0 / stable.lr, "{}", stable.sharpness);
    assert!((edge.sharpness * edge.lr / 2.0 - 1.0).abs() < 0.3, "{}", edge.sharpness);
    assert!(stable.loss < 0.05 && edge.loss < 0.05 && stable.noise > 1.0 && edge.noise > 1.0);
    let again = run(|| research::measure(0.5, 1));
    assert_eq!(
        [again.loss, again.sharpness, again.noise].map(f64::to_bits),
        [edge.loss, edge.sharpness, edge.noise].map(f64::to_bits)
    );
}

#[test]
fn a_server_answers_many_connections_and_names_what_is_wrong() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let model = std::sync::Arc::new(run(server::train));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let digits = digits::load().unwrap().test;
    let area = digits.area();
    let body = |i: usize| {
        let pixels = &digits.pixels[i * area..(i + 1) * area];
        pixels.iter().map(|&p| format!("{} ", f32::from(p) / 255.0)).collect::<String>()
    };
    let ask = |path: &str, body: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let shared = model.clone();
    std::thread::spawn(move || server::serve(listener, shared, 42).unwrap());
    std::thread::scope(|scope| {
        let answers: Vec<_> = (0..40)
            .map(|i| (i, body(i)))
            .map(|(i, text)| (i, scope.spawn(move || ask("/predict", &text))))
            .collect();
        let right = answers.into_iter().filter_map(|(i, answer)| {
            let answer = answer.join().unwrap();
            assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
            answer.contains(&format!("\"digit\": {},", digits.labels[i])).then_some(i)
        });
        assert!(right.count() > 30);
        assert!(ask("/predict", "1 2 x").contains("400 Bad Request"));
        let answer = ask("/predict", "1 2 3");
        assert!(answer.contains("400 Bad Request") && answer.contains("784"), "{answer}");
    });
}
