//! Training runs: what is kept when they are stopped, resumed, or no longer improve.

use crate::common::{Folder, autograd};
use std::fs;
use teeny_autograd::Grad;
use teeny_core::random::with_seed;
use teeny_core::{DType, Tensor};
use teeny_nn::optim::{Adam, Optimizer};
use teeny_nn::train::{Run, RunOptions};
use teeny_nn::{Linear, Module, Schedule, Store};

/// A model of one layer, its optimizer, and steps on random data.
struct Task {
    store: Store,
    model: Linear,
    adam: Adam,
}

impl Task {
    fn new() -> Task {
        let store = Store::new(autograd());
        let model = Linear::new(&store.at("fc"), 3, 2).unwrap();
        let adam = Adam::new(store.trainable(), 0.05);
        Task { store, model, adam }
    }

    fn step(&mut self, run: &mut Run<'_>) {
        let x = Tensor::randn((4, 3), DType::F32, self.store.device()).unwrap(); // (4, 3)
        let loss = self.model.forward(&x).unwrap().square().unwrap().mean_all().unwrap(); // ()
        self.adam.set_lr(run.lr());
        self.adam.step(&loss.backward().unwrap()).unwrap();
        run.push(&loss, 4).unwrap();
    }

    fn weights(&self) -> Vec<f32> {
        self.store.get("fc.weight").unwrap().value().to_vec().unwrap()
    }
}

/// A run of 40 steps with reports every 10, of which at most `steps` are taken; the weights.
fn run_of(folder: &Folder, name: &str, steps: u64) -> Vec<f32> {
    with_seed(7, || seeded_run(folder, name, steps))
}

fn seeded_run(folder: &Folder, name: &str, steps: u64) -> Vec<f32> {
    let mut task = Task::new();
    let options = RunOptions::new()
        .resume(folder.0.join(format!("{name}.ckpt")))
        .log(folder.0.join(format!("{name}.csv")))
        .plot(folder.0.join(format!("{name}.svg")))
        .schedule(Schedule::cosine(0.05, 0.001, 40));
    let mut run = Run::with_options(&task.store, &mut task.adam, 40, options).unwrap();
    let first = run.step();
    while let Some(step) = run.next_step().filter(|step| *step < first + steps) {
        assert_eq!(step, run.step());
        task.step(&mut run);
        if run.is_due(10) {
            run.record_validation_loss(1.0 / step as f64).unwrap();
            run.report(&task.adam, "a report").unwrap();
        }
    }
    if run.next_step().is_none() {
        run.finish("t", "training loss").unwrap();
    }
    task.weights()
}

#[test]
fn a_run_that_was_killed_continues_with_the_bits_of_a_whole_one() {
    let folder = Folder::new("run-resumed");
    let whole = run_of(&folder, "whole", 40);
    run_of(&folder, "parts", 26); // six steps after the last report are lost
    assert!(!folder.0.join("parts.svg").exists());
    assert_eq!(run_of(&folder, "parts", 40), whole);
    let read = |name: &str| fs::read_to_string(folder.0.join(name)).unwrap();
    assert_eq!(read("parts.csv"), read("whole.csv"));
    assert_eq!(read("whole.csv").lines().count(), 41);
    assert!(read("whole.csv").starts_with("step,loss,lr\n0,"));
    assert!(read("whole.svg").contains(">validation loss</text>"));
    // a run that is over changes nothing
    assert_eq!(run_of(&folder, "parts", 40), whole);
    assert_eq!(read("parts.csv"), read("whole.csv"));
}

#[test]
fn the_best_weights_are_kept_and_a_run_without_improvement_stops() {
    let folder = Folder::new("run-best");
    let best = folder.0.join("best.safetensors");
    let mut task = Task::new();
    let options = || RunOptions::new().best(&best).stop_early(2).resume(folder.0.join("run.ckpt"));
    let mut run = Run::with_options(&task.store, &mut task.adam, 100, options()).unwrap();
    let mut kept = Vec::new();
    let mut losses = [3.0, 2.0, 2.5, f64::NAN, 0.0].into_iter();
    while run.next_step().is_some() {
        task.step(&mut run);
        if run.is_due(10) {
            if run.record_validation_loss(losses.next().unwrap()).unwrap() {
                kept = task.weights();
            }
            assert!(!run.record_accuracy(50.0).unwrap(), "the loss is followed");
            run.report(&task.adam, "a report").unwrap();
        }
    }
    assert_eq!((run.step(), run.best()), (40, Some((20, 2.0))));
    assert!(!run.is_interrupted() && run.is_due(7));
    assert_ne!(task.weights(), kept);
    // a resumed run knows that it is over, and by which value
    let mut again = Task::new();
    let mut run = Run::with_options(&again.store, &mut again.adam, 100, options()).unwrap();
    assert_eq!((run.next_step(), run.best()), (None, Some((20, 2.0))));
    task.store.load(&best).unwrap();
    assert_eq!(task.weights(), kept);
}

#[test]
fn accuracies_are_followed_on_request() {
    let mut task = Task::new();
    let options = RunOptions::new().maximize().stop_early(1);
    let mut run = Run::with_options(&task.store, &mut task.adam, 9, options).unwrap();
    let better = [50.0, 60.0, 55.0].map(|percent| {
        run.next_step().unwrap();
        task.step(&mut run);
        assert!(!run.record_validation_loss(0.0).unwrap());
        run.record_accuracy(percent).unwrap()
    });
    assert_eq!((better, run.next_step()), ([true, true, false], None));
}

#[test]
fn an_evaluation_is_without_dropout_and_off_the_clock() {
    let mut task = Task::new();
    let mut run = Run::new(&task.store, &mut task.adam, 2).unwrap();
    assert_eq!(run.lr(), 0.05, "that of the optimizer");
    let training = run.evaluate(|| Ok(task.store.is_training())).unwrap();
    assert!(!training && task.store.is_training());
    let wait = || {
        std::thread::sleep(std::time::Duration::from_millis(300));
        Ok(())
    };
    run.evaluate(wait).unwrap();
    assert!(run.seconds() < 0.25, "{}", run.seconds());
}

#[test]
fn a_checkpoint_of_something_else_is_refused() {
    let folder = Folder::new("run-refused");
    let path = folder.0.join("run.ckpt");
    fs::write(&path, b"no checkpoint").unwrap();
    let mut task = Task::new();
    let refused = |task: &mut Task| {
        let options = RunOptions::new().resume(&path);
        Run::with_options(&task.store, &mut task.adam, 2, options).map(drop).unwrap_err()
    };
    assert!(refused(&mut task).to_string().contains("run.ckpt"));
    let other = Store::new(autograd());
    Linear::new(&other.at("fc"), 5, 2).unwrap();
    let mut checkpoint = teeny_nn::state::Checkpoint::new();
    checkpoint.put("model", &other).unwrap();
    checkpoint.save(&path).unwrap();
    assert!(refused(&mut task).to_string().contains("fc.weight"));
}

/// The only test that raises the signal: the flag is that of the process.
#[cfg(all(unix, feature = "interrupt"))]
#[test]
fn ctrl_c_ends_a_run_after_its_step_with_a_report() {
    let folder = Folder::new("run-interrupted");
    let mut task = Task::new();
    let options = || RunOptions::new().resume(folder.0.join("run.ckpt")).interrupt();
    let mut run = Run::with_options(&task.store, &mut task.adam, 50, options()).unwrap();
    let mut reports = 0;
    while let Some(step) = run.next_step() {
        task.step(&mut run);
        if step == 4 {
            signal_hook::low_level::raise(signal_hook::consts::SIGINT).unwrap();
        }
        if run.is_due(20) {
            reports += 1;
            run.report(&task.adam, "stopped").unwrap();
        }
    }
    assert!(run.is_interrupted());
    assert_eq!((run.step(), reports), (5, 1));
    drop(run);
    // the next run is not interrupted, and continues
    let mut run = Run::with_options(&task.store, &mut task.adam, 50, options()).unwrap();
    assert_eq!((run.is_interrupted(), run.next_step()), (false, Some(5)));
}
