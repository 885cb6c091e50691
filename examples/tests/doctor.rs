//! Runs the doctor, and programs with `--device auto` and without a GPU. The tests of the programs
//! that train on a GPU run here too, in the build that has one.

mod common;

mod gpt;
mod makemore;

use std::process::{Command, Output, Stdio};

fn run(program: &str, args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    command
        .args(args)
        .env_remove("TEENY_DATA")
        .env_remove("TEENY_DEVICE")
        .env_remove("TEENY_WGPU_ADAPTER")
        .envs(variables.iter().copied());
    command.output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn the_doctor_reports_devices_and_tests_them() {
    let output = run(
        env!("CARGO_BIN_EXE_doctor"),
        &["--seconds", "0.3"],
        &[("TEENY_CPU_LEVEL", "portable")],
    );
    let text = text(&output);
    assert!(output.status.success(), "{text}");
    for part in [
        "teeny 0.",
        "system   ",
        if cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            "at each change"
        } else {
            "report"
        },
        "TEENY_CPU_LEVEL=portable",
        "Portable of [Portable",
        "adapters ",
        "auto     ",
        " cases of ",
        "everything agrees",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    let tested =
        text.lines().find(|line| line.starts_with("  cpu ")).expect("a line about the CPU");
    assert!(tested.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() > 10, "{tested}");
}

#[test]
fn the_doctor_ends_when_its_output_is_closed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_doctor"));
    command.args(["--seconds", "1000"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn the_doctor_fails_when_the_named_adapter_is_missing() {
    if teeny_wgpu::Wgpu::adapters().is_empty() {
        eprintln!("SKIPPED: no GPU");
        return;
    }
    let output = run(
        env!("CARGO_BIN_EXE_doctor"),
        &["--seconds", "0.1"],
        &[("TEENY_WGPU_ADAPTER", "no such card")],
    );
    let text = text(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("FAILED   wgpu cannot be opened: no GPU adapter is called \"no such card\"")
            && text.contains("1 failures"),
        "{text}"
    );
    assert_eq!(run(env!("CARGO_BIN_EXE_doctor"), &["--seconds", "-1"], &[]).status.code(), Some(2));
}

#[test]
fn auto_falls_back_to_the_cpu_and_says_why() {
    let args = ["--data", "builtin", "--epochs", "0", "--device", "auto"];
    let output = run(env!("CARGO_BIN_EXE_mnist"), &args, &[("TEENY_WGPU_ADAPTER", "no such card")]);
    let text = text(&output);
    let line = text.lines().next().unwrap();
    assert!(
        line.starts_with("device  cpu: ")
            && line.contains("because wgpu does not work: no GPU adapter"),
        "{line}"
    );
    // Chosen by name, it is an error.
    let output = run(
        env!("CARGO_BIN_EXE_mnist"),
        &["--data", "builtin", "--epochs", "0", "--device", "wgpu"],
        &[("TEENY_WGPU_ADAPTER", "no such card")],
    );
    assert!(
        !output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("no such card")
    );
}
