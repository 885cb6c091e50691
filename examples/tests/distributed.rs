//! The programs that train on several ranks, started by `mpirun`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

const MNIST: &str = env!("CARGO_BIN_EXE_mnist");
const GPT: &str = env!("CARGO_BIN_EXE_gpt_char");

fn mpirun(ranks: usize) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]);
    command
}

fn job(ranks: usize, program: &str, args: &str) -> Command {
    let mut command = mpirun(ranks);
    command.args([program, "--distributed"]).args(args.split_whitespace());
    command
}

fn text(output: &Output) -> String {
    let errors = String::from_utf8_lossy(&output.stderr);
    format!("{}{errors}", String::from_utf8_lossy(&output.stdout))
}

fn succeeds(mut command: Command) -> String {
    let output = command.output().expect("mpirun starts: Debian's openmpi-bin");
    assert!(output.status.success(), "{}", text(&output));
    text(&output)
}

/// The number after `name` in `text`.
fn number(text: &str, name: &str) -> f64 {
    let (_, rest) = text.split_once(name).unwrap_or_else(|| panic!("no {name:?}: {text}"));
    let number = rest.split_whitespace().next().unwrap();
    number.trim_end_matches(',').parse().unwrap_or_else(|_| panic!("{name:?}: {text}"))
}

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("teeny-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const SMALL: &str = "--data builtin --layers 2 --heads 4 --width 32 --context 16 --eval-batches 4";

#[test]
fn every_number_of_ranks_trains_the_same_classifier() {
    let arguments = "--data builtin --epochs 4";
    let one = Command::new(MNIST).args(arguments.split_whitespace()).output().unwrap();
    let one = text(&one);
    for ranks in 1..=4 {
        let all = succeeds(job(ranks, MNIST, arguments));
        assert_eq!(all.matches("test accuracy").count(), one.matches("test accuracy").count());
        assert_eq!(number(&all, "first loss "), number(&one, "first loss "), "{all}");
        let (a, b) = (number(&all, "test accuracy "), number(&one, "test accuracy "));
        assert!((a - b).abs() < 2.0, "{a} {b}");
    }
}

#[test]
fn a_gpt_is_the_same_with_divided_data_state_and_model() {
    let folder = Folder::new("ranks");
    let arguments = format!("{SMALL} --steps 12 --eval-every 6 --sample 10");
    let one = Command::new(GPT).args(arguments.split_whitespace()).output().unwrap();
    let one = text(&one);
    for (ranks, how) in [
        (2, ""),
        (3, "--zero"),
        (2, "--captured"),
        (2, "--tensor-parallel 2"),
        (4, "--tensor-parallel 2"),
        (4, "--tensor-parallel 4"),
        (4, "--tensor-parallel 2 --zero"),
    ] {
        let weights = folder.file("weights.safetensors");
        let all = succeeds(job(ranks, GPT, &format!("{arguments} {how} --save {weights}")));
        for name in ["first loss ", "val loss "] {
            let difference = (number(&all, name) - number(&one, name)).abs();
            assert!(difference < 2e-3, "{ranks} {how}: {all}\n{one}");
        }
        // the file equals the plain model's
        let plain = Command::new(GPT)
            .args(arguments.replace("--steps 12", "--steps 0").split_whitespace())
            .args(["--load", &weights])
            .output()
            .unwrap();
        assert!(plain.status.success(), "{how}: {}", text(&plain));
    }
}

#[test]
fn a_trace_has_a_track_for_each_rank_and_a_table_of_the_traffic() {
    let folder = Folder::new("trace");
    let file = folder.file("trace.json");
    let arguments = format!("{SMALL} --steps 4 --eval-every 4 --sample 1 --trace {file}");
    let output = succeeds(job(3, GPT, &arguments));
    assert!(output.contains("KB / step") && output.contains("wte.weight"), "{output}");
    let trace = std::fs::read_to_string(&file).unwrap();
    for rank in 0..3 {
        assert!(trace.contains(&format!("\"name\": \"rank {rank}\"")));
        assert!(trace.contains(&format!("\"ph\": \"X\", \"pid\": {}, \"tid\": 0", rank + 1)));
    }
    // a line per event between the first and the last
    let lines = trace.lines().count();
    let events = trace.lines().filter(|line| line.starts_with("{\"name\"")).count();
    assert_eq!(events + 2, lines);
}

/// The processes of a job.
fn ranks_of(job: &Child) -> Vec<u32> {
    let pid = job.id();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    children.unwrap_or_default().split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

fn wait(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_rank_that_dies_or_stops_ends_the_job_and_another_number_of_ranks_resumes() {
    let folder = Folder::new("faults");
    let arguments = format!("{SMALL} --eval-every 5 --sample 10 --rank-timeout 2");
    for (signal, how, next) in [("-KILL", "--zero", 2), ("-STOP", "", 4)] {
        let file = folder.file(&format!("run{signal}.ckpt"));
        let resume = format!("{arguments} {how} --resume {file}");
        let child = job(3, GPT, &format!("{resume} --steps 100000 --decay-steps 200"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        wait("a checkpoint is written", || Path::new(&file).exists());
        let pids = ranks_of(&child);
        assert_eq!(pids.len(), 3);
        Command::new("kill").args([signal, &pids[1].to_string()]).status().unwrap();
        let start = Instant::now();
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success());
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        let said = text(&output);
        let expected = match signal {
            "-STOP" => "gave no sign of life for 2.0 s",
            _ => "signal 9",
        };
        assert!(said.contains("rank 1") && said.contains(expected), "{said}");
        // some more steps, with the state divided among another number of ranks
        let known = said.lines().filter_map(|line| line.strip_prefix("step ")).next_back();
        let known: u64 = known.unwrap().split_whitespace().next().unwrap().parse().unwrap();
        let more = format!("{resume} --steps {} --decay-steps 200", known + 10);
        let done = succeeds(job(next, GPT, &more));
        assert!(done.contains("resumed ") && done.contains("val loss"), "{done}");
    }
}

#[test]
fn ranks_with_other_options_are_told_before_the_first_step() {
    let folder = Folder::new("options");
    let other = folder.0.join("text.txt");
    std::fs::write(&other, "A text of other characters than the built-in one. ".repeat(200))
        .unwrap();
    for (own, other, error) in [
        ("--seed 1", "--seed 2", "--seed 2 on rank 1"),
        ("--steps 3", "--steps 4", "--steps 3 on rank 0"),
        ("--lr 0.1", "--lr 0.2", "--lr 0.1 on rank 0"),
        ("--zero", "", "--zero on rank 0"),
        ("--threads 1 --resume A", "--resume B", "--resume B on rank 1"),
        ("", &format!("--data {}", other.display()), "the hash of the text is"),
    ] {
        let mut command = mpirun(1);
        command.args([GPT, "--distributed"]).args(SMALL.split_whitespace());
        command.args(own.split_whitespace());
        command.args([":", "-n", "1", GPT, "--distributed"]).args(SMALL.split_whitespace());
        command.args(other.split_whitespace());
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{own} {other}");
        assert!(text(&output).contains(error), "{own} {other}: {}", text(&output));
    }
    for (ranks, arguments, error) in [
        (3, "--tensor-parallel 2", "3 ranks cannot share models by 2"),
        (2, "--batch 1", "cannot give each rank an example"),
        (2, "--zero --captured", "--captured replays whole steps"),
        (2, "--graph step.svg", "--graph draws the step of one rank"),
    ] {
        let output = job(ranks, GPT, &format!("{SMALL} {arguments}")).output().unwrap();
        assert!(!output.status.success(), "{arguments}");
        assert!(text(&output).contains(error), "{arguments}: {}", text(&output));
    }
    let alone = Command::new(GPT).args(["--tensor-parallel", "2"]).output().unwrap();
    assert!(text(&alone).contains("start with mpirun and --distributed"), "{}", text(&alone));
}
