//! Runs the MNIST programs with the options of users.

use crate::common::*;
use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Instant;

fn mnist(args: &[&str]) -> Output {
    command(env!("CARGO_BIN_EXE_mnist"), args).output().unwrap()
}

/// The percentage in the last line with the test accuracy.
fn accuracy(text: &str) -> f64 {
    let line = text
        .lines()
        .rfind(|line| line.starts_with("test accuracy"))
        .expect("a last line with the accuracy");
    line.split_whitespace().nth(2).unwrap().parse().unwrap()
}

#[test]
fn the_program_trains_saves_plots_and_continues() {
    let folder = Folder::new("run");
    let (weights, plot) = (folder.at("mlp.safetensors"), folder.at("loss.svg"));
    let first = succeed(mnist(&[
        "--data", "builtin", "--epochs", "8", "--save", &weights, "--plot", &plot,
    ]));
    assert!(
        first.contains("101770 parameters") && first.contains("1,797 built-in digits"),
        "{first}"
    );
    let loss: f64 =
        first.lines().find_map(|l| l.strip_prefix("first loss ")).unwrap().parse().unwrap();
    assert!((loss - 2.30).abs() < 0.02, "{loss}");
    let plot = std::fs::read_to_string(plot).unwrap();
    assert_eq!(plot.matches("<polyline").count(), 3, "losses, their average, accuracies");
    assert_eq!(plot.matches("<circle").count(), 8, "an accuracy per epoch");
    assert!(
        plot.contains(">cross-entropy of a batch, moving average over 5 points</text>")
            && plot.contains(">test accuracy, %</text>"),
        "{plot}"
    );

    let second = succeed(mnist(&["--data", "builtin", "--epochs", "0", "--load", &weights]));
    assert_eq!(
        accuracy(&first),
        accuracy(&second),
        "loaded weights have the accuracy of the saved ones"
    );
    assert!(accuracy(&first) > 75.0, "{first}");
}

#[test]
fn bf16_trains_to_the_accuracy_of_f32() {
    let of = |dtype: &str| {
        let args = ["--device", "cpu", "--data", "builtin", "--epochs", "8", "--dtype", dtype];
        accuracy(&succeed(mnist(&args)))
    };
    let [full, half] = [of("f32"), of("bf16")];
    assert!(full > 75.0 && (full - half).abs() < 2.0, "{full} {half}");
    assert!(refuse(mnist(&["--dtype", "f16"])).contains("bf16"));
}

#[test]
fn a_resumed_run_equals_the_unbroken_one() {
    let folder = Folder::new("resume");
    let run = |name: &str, epochs: &str, more: &[&str]| {
        let (weights, log) =
            (folder.at(&format!("{name}.safetensors")), folder.at(&format!("{name}.csv")));
        succeed(mnist(
            &[&["--data", "builtin", "--epochs", epochs, "--save", &weights, "--log", &log], more]
                .concat(),
        ));
        (std::fs::read(weights).unwrap(), std::fs::read_to_string(log).unwrap())
    };
    let whole = run("whole", "3", &[]);
    let checkpoint = folder.at("run.checkpoint");
    let first = run("parts", "1", &["--resume", &checkpoint]);
    assert_eq!(first.1.lines().count(), 1 + 23, "a line per step");
    assert!(whole.1.starts_with(&first.1) && whole.1.starts_with("step,loss,lr\n0,"));
    assert_eq!(run("parts", "3", &["--resume", &checkpoint]), whole);
}

#[test]
fn device_wrappers_change_nothing_and_report() {
    let folder = Folder::new("watch");
    let trace = folder.at("trace.json");
    let run = |more: &[&str]| {
        succeed(mnist(&[&["--data", "builtin", "--epochs", "1", "--batch", "256"], more].concat()))
    };
    let plain = run(&[]);
    let watched = run(&["--check", "--compare", "reference", "--trace", &trace]);
    assert_eq!(accuracy(&plain), accuracy(&watched));
    let compared =
        watched.lines().find(|l| l.starts_with("compared ")).expect("a line about the comparison");
    assert!(compared.ends_with("operations; 0 were skipped"), "{compared}");
    assert!(watched.contains("backward of sequential") && watched.contains("GFLOP/s"), "{watched}");
    assert!(std::fs::read_to_string(trace).unwrap().contains("\"cat\": \"backward\""));
    // with a learning rate that is too high, the error names the operation that overflowed
    let text = refuse(mnist(&["--data", "builtin", "--epochs", "1", "--lr", "1e20", "--check"]));
    assert!(
        text.starts_with("error: ")
            && text.contains(" at examples/src/bin/mnist.rs:")
            && text.contains("made "),
        "{text}"
    );
}

#[test]
fn threads_and_repetition_change_nothing() {
    let run = |threads: &str| {
        let text = succeed(mnist(&[
            "--data",
            "builtin",
            "--epochs",
            "2",
            "--threads",
            threads,
            "--seed",
            "3",
        ]));
        // without the times
        text.lines()
            .filter_map(|l| l.split("  test accuracy").next().map(str::to_string))
            .filter(|l| l.starts_with("epoch"))
            .collect::<Vec<_>>()
    };
    let once = run("1");
    assert_eq!(once.len(), 2);
    assert_eq!(once, run("1"));
    assert_eq!(once, run("2"));
}

#[test]
fn the_convolutional_networks_train() {
    for (arch, more, parameters) in [
        ("cnn", ["--steps", "12", "--batch", "48"], "87850 parameters"),
        ("small", ["--steps", "40", "--batch", "64"], "5258 parameters"),
        ("small-bn", ["--steps", "20", "--batch", "64"], "5306 parameters"),
        ("keras", ["--steps", "25", "--batch", "64"], "34826 parameters"),
    ] {
        let folder = Folder::new(arch);
        let log = folder.at("log.csv");
        let text = succeed(mnist(
            &[&["--data", "builtin", "--arch", arch, "--log", &log], more.as_slice()].concat(),
        ));
        assert!(text.contains(parameters), "{text}");
        let log = std::fs::read_to_string(log).unwrap();
        let losses: Vec<f64> = log
            .lines()
            .skip(1)
            .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
            .collect();
        assert_eq!(losses.len().to_string(), more[1]);
        assert!(losses[losses.len() - 1] < 0.75 * losses[0], "{arch}: {losses:?}");
        // running statistics are far from the data's after these few steps, so the test only
        // requires more than chance
        assert!(accuracy(&text) > 25.0, "{text}");
    }
}

/// Runs that are killed at random moments and resumed end with the weights and the log of a run
/// that was not killed. `TEENY_KILLS` is the number of kills.
#[test]
fn runs_that_are_killed_anywhere_resume_bit_for_bit() {
    let kills: u32 = std::env::var("TEENY_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(4);
    let folder = Folder::new("kills");
    let start = |name: &str| {
        let [weights, log, checkpoint] =
            ["weights", "csv", "checkpoint"].map(|end| folder.at(&format!("{name}.{end}")));
        let args = [
            "--data",
            "builtin",
            "--arch",
            "small-bn",
            "--batch",
            "128",
            "--epochs",
            "6",
            "--save",
            &weights,
            "--log",
            &log,
            "--resume",
            &checkpoint,
        ];
        command(env!("CARGO_BIN_EXE_mnist"), &args)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let files = |name: &str| {
        ["weights", "csv", "checkpoint"]
            .map(|end| std::fs::read(folder.at(&format!("{name}.{end}"))).ok())
    };
    let start_time = Instant::now();
    succeed(start("whole").wait_with_output().unwrap());
    let (whole, taken) = (files("whole"), start_time.elapsed());
    assert_eq!(
        std::str::from_utf8(whole[1].as_ref().unwrap()).unwrap().lines().count(),
        1 + 6 * 12,
        "a line per step"
    );

    let mut draw = 0x9e37_79b9u32 ^ std::process::id();
    let (mut killed, mut halfway) = (0, 0);
    while killed < kills {
        let mut child = start("parts");
        draw = draw.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(taken.mul_f64(f64::from(draw >> 8) / f64::from(1u32 << 24) * 0.8));
        if child.try_wait().unwrap().is_some() {
            // the run had already ended
            assert!(files("parts") == whole);
            ["weights", "csv", "checkpoint"]
                .iter()
                .for_each(|end| std::fs::remove_file(folder.at(&format!("parts.{end}"))).unwrap());
            continue;
        }
        child.kill().unwrap(); // SIGKILL: nothing of the child runs after this
        child.wait().unwrap();
        killed += 1;
        halfway += u32::from(files("parts")[2].is_some());
    }
    succeed(start("parts").wait_with_output().unwrap());
    let parts = files("parts");
    assert!(parts[0] == whole[0], "the weights differ");
    assert_eq!(
        String::from_utf8(parts[1].clone().unwrap()),
        String::from_utf8(whole[1].clone().unwrap()),
        "every step once"
    );
    assert!(parts[2] == whole[2], "the checkpoints differ");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 6, "no unfinished file stays");
    println!("{killed} kills, {halfway} of them after a checkpoint");
}

#[test]
fn a_run_of_steps_continues_in_the_middle_of_an_epoch() {
    let folder = Folder::new("steps");
    let run = |steps: &str, weights: &str, more: &[&str]| {
        let weights = folder.at(weights);
        succeed(mnist(
            &[
                &[
                    "--data", "builtin", "--arch", "small-bn", "--batch", "32", "--steps", steps,
                    "--save", &weights,
                ],
                more,
            ]
            .concat(),
        ));
        std::fs::read(weights).unwrap()
    };
    let checkpoint = folder.at("run.checkpoint");
    let whole = run("7", "whole", &[]);
    assert_ne!(run("3", "part", &["--resume", &checkpoint]), whole);
    assert_eq!(run("7", "parts", &["--resume", &checkpoint]), whole);
}

#[test]
fn the_single_file_variant_trains_and_is_short() {
    let text = succeed(command(env!("CARGO_BIN_EXE_mnist_tiny"), &[]).output().unwrap());
    assert!(accuracy(&text) > 85.0, "{text}");
    let source = include_str!("../src/bin/mnist_tiny.rs");
    assert!(source.lines().count() < 250);
    let training = source
        .lines()
        .skip_while(|l| !l.contains("for epoch in"))
        .take_while(|l| !l.contains("test accuracy"));
    assert!(training.count() < 40);
}

#[test]
fn the_program_to_read_first_is_short() {
    assert!(include_str!("../src/bin/mnist.rs").lines().count() < 80);
}

#[test]
fn epochs_and_steps_together_are_an_error() {
    let text = refuse(mnist(&["--steps", "70", "--epochs", "3"]));
    assert!(
        text.starts_with("--epochs 3 and --steps 70 both set the length of the run\n")
            && text.contains("\n  help: leave one of them out"),
        "{text}"
    );
}

#[test]
fn a_training_step_is_drawn_and_recorded_ones_give_the_same_losses() {
    let folder = Folder::new("graph");
    let run = |name: &str, more: &[&str]| {
        let (picture, log) = (folder.at(name), folder.at(&format!("{name}.csv")));
        let options = ["--data", "builtin", "--steps", "3", "--graph", &picture, "--log", &log];
        let text = succeed(mnist(&[&options[..], more].concat()));
        assert!(text.contains(&format!("drawn   {picture}")), "{text}");
        [picture, log].map(|path| std::fs::read_to_string(path).unwrap())
    };
    let [eager, losses] = run("eager.svg", &[]);
    assert_eq!(eager.matches("class=\"node\"").count(), 12, "{eager}");
    assert!(eager.contains(">fc1.weight</text>") && eager.contains(">loss = div</text>"));

    let [lazy, recorded] = run("lazy.svg", &["--lazy"]);
    assert_eq!(recorded, losses);
    assert!(lazy.contains("frames: one kernel each") && lazy.contains(">fc1.weight</text>"));
    assert!(lazy.contains("new fc1.weight = x0 - (x1 * 0.4)</text>"), "{lazy}");
    let [dot, immediate] = run("one.dot", &["--lazy=immediate"]);
    assert_eq!(immediate, losses);
    assert!(dot.starts_with("digraph \"8 recorded operations"), "{dot}");

    let [captured, replayed] = run("captured.svg", &["--captured"]);
    assert_eq!(replayed, losses);
    assert!(
        captured.contains("frames: one kernel each") && captured.contains(">fc1.weight</text>")
    );
    assert!(captured.contains("at examples/src/bin/mnist.rs:"), "{captured}");

    let text = refuse(mnist(&["--data", "builtin", "--steps", "1", "--lazy", "--graph", "a.svg"]));
    assert!(text.contains("the step to be drawn did not run"), "{text}");
    assert!(refuse(mnist(&["--graph", "a.png"])).contains("ends in .svg or .dot"));
    assert!(refuse(mnist(&["--lazy=later"])).contains("--lazy takes no value, or =immediate"));
}

/// An epoch of 23 batches ends with a short one, which is recorded by itself.
#[test]
fn captured_steps_print_and_log_the_losses_of_eager_ones() {
    let folder = Folder::new("captured");
    for arch in ["mlp", "small-bn"] {
        let run = |name: &str, more: &[&str]| {
            let (weights, log) =
                (folder.at(&format!("{name}.safetensors")), folder.at(&format!("{name}.csv")));
            let options = ["--data", "builtin", "--arch", arch, "--epochs", "4", "--batch", "64"];
            let files = ["--save", &weights, "--log", &log];
            let text = succeed(mnist(&[&options[..], &files, more].concat()));
            let files = [weights, log].map(|path| std::fs::read(path).unwrap());
            let epochs: Vec<String> = text
                .lines()
                .filter(|line| line.starts_with("epoch ") || line.starts_with("first loss"))
                .map(|line| line.split(" %").next().unwrap().to_string())
                .collect();
            (files, epochs)
        };
        let eager = run("eager", &[]);
        assert_eq!(eager.1.len(), 5, "{:?}", eager.1);
        for more in [&["--lazy"][..], &["--captured"], &["--captured", "--check"]] {
            let other = run("other", more);
            assert_eq!(other.1, eager.1, "{arch} {more:?}");
            assert!(other.0 == eager.0, "{arch} {more:?}: weights or log differ");
        }
    }
    let trace = folder.at("trace.json");
    let text = succeed(mnist(&[
        "--data",
        "builtin",
        "--steps",
        "6",
        "--captured",
        "--compare",
        "reference",
        "--trace",
        &trace,
    ]));
    assert!(text.contains("operations; 0 were skipped") && text.contains("GFLOP/s"), "{text}");
}

#[test]
fn mistakes_on_the_command_line_are_explained() {
    let text = refuse(mnist(&["--epoch", "3"]));
    assert!(text.contains("invalid option '--epoch'") && text.contains("--epochs N"), "{text}");
    assert!(
        refuse(mnist(&["--arch", "rnn"]))
            .contains("--arch is one of mlp, cnn, small, small-bn, keras, not rnn")
    );
    assert!(String::from_utf8(mnist(&["--help"]).stdout).unwrap().contains("--plot FILE"));
    let text = refuse(mnist(&["--data", "/no/such/folder"]));
    assert!(
        text.contains(
            "no train-images-idx3-ubyte or train-images-idx3-ubyte.gz in \"/no/such/folder\""
        ),
        "{text}"
    );
    let text = refuse(mnist(&["--data", "builtin", "--load", "/no/such/file"]));
    assert!(text.starts_with("error: load \"/no/such/file\" at "), "{text}");
    let text = refuse(mnist(&["--data", "builtin", "--epochs", "1", "--lr", "1e20"]));
    assert!(text.contains("training at ") && text.contains(": loss is"), "{text}");
    assert!(text.contains("learning rate"), "{text}");
}

#[test]
fn a_damaged_folder_of_data_is_not_replaced_by_something_else() {
    let folder = Folder::new("damaged");
    for name in teeny_nn::data::mnist::FILES {
        std::fs::write(Path::new(&folder.at(name)), b"<html>404</html>").unwrap();
    }
    let output = command(env!("CARGO_BIN_EXE_mnist"), &["--epochs", "1"])
        .env("TEENY_DATA", &folder.0)
        .output()
        .unwrap();
    let text = refuse(output);
    assert!(
        text.contains("train-images-idx3-ubyte\" at ")
            && text.contains(": an IDX file begins with 00 00 08, this one with 3c 68 74"),
        "{text}"
    );
}

#[test]
fn the_device_is_chosen_by_option_then_environment() {
    let run = |args: &[&str], variable: &str| {
        let all = [&["--data", "builtin", "--epochs", "0"], args].concat();
        command(env!("CARGO_BIN_EXE_mnist"), &all).env("TEENY_DEVICE", variable).output().unwrap()
    };
    let first_line = |output: Output| succeed(output).lines().next().unwrap().to_string();
    assert!(first_line(run(&[], "")).contains("cpu: "));
    let line = first_line(run(&[], "cpu"));
    assert!(line.contains("cpu: ") && line.ends_with("(TEENY_DEVICE=cpu)"), "{line}");
    let line = first_line(run(&["--device", "cpu"], "nonsense"));
    assert!(line.ends_with("(asked for by name)"), "{line}");
    let text = refuse(run(&[], "nonsense"));
    assert!(text.contains("no device is called \"nonsense\"; known: cpu, reference"), "{text}");
}
