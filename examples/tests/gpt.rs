//! Runs the GPT examples.

use crate::common::*;
use std::process::Output;

fn gpt_char(args: &[&str]) -> Output {
    command(env!("CARGO_BIN_EXE_gpt_char"), args).output().unwrap()
}

fn gpt2(args: &[&str]) -> Output {
    command(env!("CARGO_BIN_EXE_gpt2"), args).output().unwrap()
}

#[test]
fn a_few_steps_lower_the_loss_and_the_model_generates_text() {
    let text = succeed(gpt_char(&[
        "--device",
        "cpu",
        "--data",
        "builtin",
        "--steps",
        "60",
        "--eval-every",
        "30",
        "--sample",
        "40",
        "--prompt",
        "ROMEO:",
    ]));
    let first = number_after(&text, "first loss ");
    // the initial prediction is nearly uniform
    let chars = number_after(&text.replace(" characters,", ""), "for positions, ");
    assert!((first - chars.ln()).abs() < 0.1, "{text}");
    assert!(number_after(&text, "val loss ") < 3.0, "{text}");
    let written = text.rsplit_once("ROMEO:").expect("the prompt").1;
    assert_eq!(
        written.trim_end_matches('\n').chars().count().max(35),
        written.trim_end_matches('\n').chars().count(),
        "{text}"
    );
}

#[test]
fn bf16_has_the_losses_of_f32() {
    let of = |dtype: &str| {
        let args = [
            "--device",
            "cpu",
            "--data",
            "builtin",
            "--steps",
            "40",
            "--eval-every",
            "40",
            "--sample",
            "0",
            "--dtype",
            dtype,
        ];
        number_after(&succeed(gpt_char(&args)), "val loss ")
    };
    let [full, half] = [of("f32"), of("bf16")];
    assert!((full - half).abs() < 0.03, "{full} {half}");
}

/// Compares the losses of a short run on two devices.
#[cfg(feature = "wgpu")]
#[test]
fn the_gpu_gives_the_losses_of_the_cpu() {
    let folder = Folder::new("gpt-devices");
    let losses = |device: &str| -> Vec<f64> {
        let log = folder.at(&format!("{device}.csv"));
        let size =
            ["--layers", "2", "--width", "32", "--batch", "4", "--context", "32", "--sample", "0"];
        succeed(gpt_char(
            &[&["--device", device, "--data", "builtin", "--steps", "5", "--log", &log][..], &size]
                .concat(),
        ));
        std::fs::read_to_string(log)
            .unwrap()
            .lines()
            .skip(1)
            .map(|line| line.split(',').nth(1).unwrap().parse().unwrap())
            .collect()
    };
    let (cpu, gpu) = (losses("cpu"), losses("wgpu"));
    assert_eq!(cpu.len(), 5);
    assert!(cpu.iter().zip(&gpu).all(|(a, b)| (a - b).abs() < 1e-3), "{cpu:?} {gpu:?}");
}

#[test]
fn a_resumed_run_equals_the_unbroken_one() {
    let folder = Folder::new("gpt-resume");
    let run = |name: &str, steps: &str, more: &[&str]| {
        let weights = folder.at(&format!("{name}.safetensors"));
        let size = [
            "--layers",
            "1",
            "--width",
            "16",
            "--batch",
            "2",
            "--context",
            "16",
            "--sample",
            "0",
            "--eval-every",
            "6",
            "--dropout",
            "0.1",
        ];
        succeed(gpt_char(
            &[
                &["--device", "cpu", "--data", "builtin", "--steps", steps, "--save", &weights][..],
                &size,
                more,
            ]
            .concat(),
        ));
        std::fs::read(weights).unwrap()
    };
    let checkpoint = folder.at("run.safetensors");
    let (lr, end) = (["--lr", "0.01"], ["--decay-steps", "12"]);
    let whole = run("whole", "12", &lr);
    run("half", "6", &[&lr[..], &end, &["--resume", &checkpoint]].concat());
    assert!(
        run("rest", "12", &[&lr[..], &["--resume", &checkpoint]].concat()) == whole,
        "the weights differ"
    );
}

/// Losses, weights and the generated text, more of it than the context holds.
#[test]
fn captured_steps_and_tokens_are_those_of_an_eager_run() {
    let folder = Folder::new("gpt-captured");
    let run = |name: &str, more: &[&str]| {
        let (weights, log) =
            (folder.at(&format!("{name}.safetensors")), folder.at(&format!("{name}.csv")));
        let size =
            ["--layers", "2", "--width", "16", "--batch", "2", "--context", "16", "--sample", "50"];
        let training = ["--steps", "8", "--eval-every", "4", "--dropout", "0.1"];
        let files = ["--save", &weights, "--log", &log];
        let text = succeed(gpt_char(
            &[&["--device", "cpu", "--data", "builtin"][..], &size, &training, &files, more]
                .concat(),
        ));
        let lines: Vec<String> = text
            .lines()
            .filter(|line| !line.contains("tokens/s") && !line.starts_with("saved "))
            .map(str::to_string)
            .collect();
        ([weights, log].map(|path| std::fs::read(path).unwrap()), lines)
    };
    let eager = run("eager", &[]);
    assert!(eager.1.iter().any(|line| line.starts_with("step     8  loss ")), "{:?}", eager.1);
    for more in ["--lazy", "--captured"] {
        let other = run("other", &[more]);
        assert_eq!(other.1, eager.1, "{more}");
        assert!(other.0 == eager.0, "{more}: weights or log differ");
    }
}

#[test]
fn text_that_is_too_short_and_unknown_characters_are_named() {
    let folder = Folder::new("gpt-errors");
    let file = folder.at("short.txt");
    std::fs::write(&file, "to be").unwrap();
    assert!(
        refuse(gpt_char(&["--data", &file])).contains("one example with a context of 64 takes 65")
    );
    let text = refuse(gpt_char(&["--data", "builtin", "--steps", "0", "--prompt", "€"]));
    assert!(text.contains('€'), "{text}");
}

#[test]
fn cached_and_uncached_tokens_are_the_same_in_the_program() {
    for sampling in
        [&["--temperature", "0"][..], &["--temperature", "0.9", "--top-k", "20"], &["--half"]]
    {
        let text = succeed(gpt2(
            &[&["--device", "cpu", "--size", "tiny", "--tokens", "128", "--verify"][..], sampling]
                .concat(),
        ));
        assert!(
            text.contains("weights random")
                && text.contains("the same 128 tokens without the cache"),
            "{text}"
        );
    }
    let captured =
        ["--device", "cpu", "--size", "tiny", "--tokens", "64", "--captured", "--verify"];
    assert!(succeed(gpt2(&captured)).contains("the same 64 tokens without the cache"));
    let text = refuse(gpt2(&["--size", "tiny", "--tokens", "250"]));
    assert!(
        text.contains("16 tokens of prompt and 250 to generate do not fit the context of 256"),
        "{text}"
    );
}
