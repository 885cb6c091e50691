//! Programs whose output is closed, as `program | head -n 1` closes it.

use crate::common::*;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs `command` with a pipe for its output that nothing reads. It must succeed without a word.
#[track_caller]
fn unread(mut command: Command) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {errors}", output.status);
    assert!(!errors.contains("panicked") && !errors.contains("error"), "{command:?}: {errors}");
}

#[test]
fn training_goes_on_when_its_output_is_closed() {
    let folder = Folder::new("closed-training");
    let (weights, plot) = (folder.at("mlp.safetensors"), folder.at("loss.svg"));
    let (log, run) = (folder.at("loss.csv"), folder.at("run.ckpt"));
    let args = ["--data", "builtin", "--epochs", "2", "--device", "cpu", "--threads", "1"];
    let files = ["--save", &weights, "--plot", &plot, "--log", &log, "--resume", &run];
    let wanted = succeed(command(env!("CARGO_BIN_EXE_mnist"), &args).output().unwrap());
    for again in [false, true] {
        // the second time, the run is resumed where it ended
        unread(command(env!("CARGO_BIN_EXE_mnist"), &[&args[..], &files].concat()));
        for file in [&weights, &plot, &log, &run] {
            assert!(Path::new(file).exists(), "{file}, {again}");
        }
    }
    let args = ["--data", "builtin", "--epochs", "0", "--device", "cpu", "--load", &weights];
    let loaded = succeed(command(env!("CARGO_BIN_EXE_mnist"), &args).output().unwrap());
    assert_eq!(number_after(&loaded, "test accuracy "), number_after(&wanted, "test accuracy "));
    unread(command(env!("CARGO_BIN_EXE_xor"), &["--runs", "2"]));
}

#[test]
fn reports_end_when_their_output_is_closed() {
    // without an end it would take minutes
    unread(command(env!("CARGO_BIN_EXE_bench"), &["--only", "matmul"]));
    for program in [env!("CARGO_BIN_EXE_bench"), env!("CARGO_BIN_EXE_mnist")] {
        unread(command(program, &["--help"]));
    }
}
