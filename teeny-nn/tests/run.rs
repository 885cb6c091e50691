//! Training runs: what is kept when they are stopped, resumed, or no longer improve.

use crate::common::{Folder, autograd};
use std::fs;
use teeny_autograd::Grad;
use teeny_core::random::with_seed;
use teeny_core::{DType, Tensor};
use teeny_formats::State;
use teeny_nn::data::DataLoader;
use teeny_nn::optim::{Adam, Optimizer};
use teeny_nn::state::{Checkpoint, Stateful};
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
    assert_eq!(read("parts.svg"), read("whole.svg"));
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

/// The only test that raises the signal: the flag belongs to the process.
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

/// A loader of 24 items in batches of this size.
fn loader(batch: usize, seed: u64) -> DataLoader<(Tensor, Tensor)> {
    let x = Tensor::randn((24, 3), DType::F32, autograd()).unwrap(); // (24, 3)
    let y = x.sum(1).unwrap(); // (24)
    DataLoader::new((x, y), batch).unwrap().shuffle(seed)
}

/// Trains on the batches of epochs until the run is over or after `most` steps, with a report at
/// the end.
fn epochs(
    task: &mut Task,
    run: &mut Run<'_>,
    loader: &DataLoader<(Tensor, Tensor)>,
    most: u64,
) -> teeny_core::Result<()> {
    let last = run.step() + most;
    while let Some(batches) = run.next_epoch(loader) {
        for batch in batches {
            let _ = batch?;
            task.step(run);
            if run.step() == last {
                return run.report(&task.adam, "a report");
            }
        }
    }
    Ok(())
}

#[test]
fn a_run_continues_within_an_epoch_by_the_same_batches_only() {
    let folder = Folder::new("run-batches");
    let path = folder.0.join("run.ckpt");
    let resumed = |batch: usize, seed: u64, most: u64| {
        let mut task = Task::new();
        let options = RunOptions::new().resume(&path);
        let mut run = Run::with_options(&task.store, &mut task.adam, 40, options).unwrap();
        let result = epochs(&mut task, &mut run, &loader(batch, seed), most);
        (run.step(), result.map_err(|error| error.to_string()))
    };
    assert_eq!(resumed(4, 1, 9), (9, Ok(()))); // one epoch of six batches, and three more
    for (batch, seed) in [(8, 1), (12, 1), (4, 2), (3, 1)] {
        let (step, result) = resumed(batch, seed, 1);
        let text = result.unwrap_err();
        assert!(text.contains("continues at batch 3 of epoch 2"), "{text}");
        assert!(text.contains("batch size and seed"), "{text}");
        assert_eq!(step, 9);
    }
    assert_eq!(resumed(4, 1, 3), (12, Ok(()))); // the end of an epoch
    assert_eq!(resumed(8, 2, 1), (13, Ok(()))); // other batches, from an epoch's beginning
}

#[test]
fn an_epoch_whose_batches_were_not_all_steps_is_an_error() {
    for pushes in [0, 1, 3, 5] {
        let mut task = Task::new();
        let mut run = Run::new(&task.store, &mut task.adam, 40).unwrap();
        let loader = loader(4, 1);
        for _ in run.next_epoch(&loader).unwrap().take(7).enumerate().filter(|(i, _)| *i < pushes) {
            task.step(&mut run);
        }
        let first = run.next_epoch(&loader).unwrap().next().unwrap();
        let text = first.err().unwrap().to_string();
        let expected = format!("took 6 batches of epoch 1, and run.push was called {pushes} times");
        assert!(text.contains(&expected) && text.contains("once for each batch"), "{text}");
    }
    // a loop that leaves an epoch early goes on where it was
    let mut task = Task::new();
    let mut run = Run::new(&task.store, &mut task.adam, 40).unwrap();
    let loader = loader(4, 1);
    for batch in run.next_epoch(&loader).unwrap().take(2) {
        let _ = batch.unwrap();
        task.step(&mut run);
    }
    assert_eq!(run.next_epoch(&loader).unwrap().map(Result::unwrap).count(), 4);
}

#[test]
#[should_panic(expected = "step 0 was asked for 1001 times, and did not end")]
fn a_step_without_end_is_told() {
    let mut task = Task::new();
    let mut run = Run::new(&task.store, &mut task.adam, 40).unwrap();
    while run.next_step().is_some() {}
}

#[test]
fn a_schedule_that_is_not_used_is_an_error_of_the_first_step() {
    let mut task = Task::new();
    let options = RunOptions::new().schedule(Schedule::constant(0.5));
    let mut run = Run::with_options(&task.store, &mut task.adam, 40, options).unwrap();
    let loss = Tensor::ones((), DType::F32, task.store.device()).unwrap(); // ()
    let text = run.push(&loss, 1).unwrap_err().to_string();
    assert!(text.contains("optimizer.set_lr(run.lr())"), "{text}");
    assert_eq!(run.step(), 0);
    task.step(&mut run);
    assert_eq!(run.step(), 1);
}

#[test]
fn losses_and_names_of_a_whole_run_are_in_the_plot_of_a_resumed_one() {
    let folder = Folder::new("run-plot");
    let (path, plot) = (folder.0.join("run.ckpt"), folder.0.join("run.svg"));
    for (steps, first) in [(6, 0), (12, 6)] {
        let mut task = Task::new();
        let options = RunOptions::new().resume(&path).plot(&plot).maximize().metric("return");
        let mut run = Run::with_options(&task.store, &mut task.adam, steps, options).unwrap();
        assert_eq!(run.losses().unwrap().values().len(), first);
        while let Some(step) = run.next_step() {
            task.step(&mut run);
            run.record_accuracy(step as f64 / 7.0).unwrap();
        }
        run.report(&task.adam, "a report").unwrap();
        let values = run.losses().unwrap().values();
        assert!(values.iter().map(|(step, _)| *step).eq(0..steps));
        run.finish("t", "loss").unwrap();
    }
    let svg = fs::read_to_string(plot).unwrap();
    assert!(svg.contains(">return</text>") && !svg.contains("accuracy"));
    // damaged points are an error, not a panic
    let device = teeny_nn::device("cpu").unwrap();
    let mut checkpoint = Checkpoint::load(&path, &device).unwrap();
    checkpoint
        .put("recorded", &State::default().with("losses", "1:2 x:3").with("accuracies", ""))
        .unwrap();
    checkpoint.save(&path).unwrap();
    let mut task = Task::new();
    let options = RunOptions::new().resume(&path);
    let error = Run::with_options(&task.store, &mut task.adam, 20, options).err().unwrap();
    assert!(error.to_string().contains("is not a list of points"), "{error}");
}

#[test]
fn a_part_beside_the_optimizer_continues_too() {
    let folder = Folder::new("run-pair");
    let path = folder.0.join("run.ckpt");
    let run = |steps: u64, average: &mut State| {
        let mut task = Task::new();
        let options = RunOptions::new().resume(&path);
        let mut parts = (&mut task.adam, &mut *average);
        let mut run = Run::with_options(&task.store, &mut parts, steps, options).unwrap();
        assert_eq!(run.lr(), 0.05);
        while run.next_step().is_some() {
            task.step(&mut run);
            let value: f64 = average.get("average").unwrap();
            average.set("average", 0.9 * value + 1.0);
        }
        run.report(&(&mut task.adam, &mut *average), "a report").unwrap();
        (task.weights(), average.get::<f64>("average").unwrap())
    };
    let fresh = || State::default().with("average", 0.0);
    let whole = with_seed(3, || run(12, &mut fresh()));
    fs::remove_file(&path).unwrap();
    with_seed(3, || run(5, &mut fresh()));
    assert_eq!(with_seed(9, || run(12, &mut fresh())), whole);
    // a second part that does not fit leaves the first as it was
    let (mut task, mut store) = (Task::new(), Task::new().store);
    let pair = (&mut task.adam, &mut fresh()).state().unwrap();
    let before = task.adam.lr();
    task.adam.set_lr(0.5);
    assert!((&mut task.adam, &mut store).set_state(&pair).is_err());
    assert_eq!((before, task.adam.lr()), (0.05, 0.5));
    assert!((&mut task.adam, &mut fresh()).set_state(&pair).is_ok());
    assert_eq!(task.adam.lr(), 0.05);
}

/// Another value than the one that the run follows does not keep weights of an earlier run.
#[test]
fn a_run_that_follows_what_is_not_recorded_says_so() {
    let folder = Folder::new("run-follows");
    for (maximize, record) in [(false, true), (true, false), (false, false), (true, true)] {
        for is_early in [false, true] {
            let options = match is_early {
                true => RunOptions::new().stop_early(2),
                false => RunOptions::new().best(folder.0.join("best.safetensors")),
            };
            let options = if maximize { options.maximize() } else { options };
            let mut task = Task::new();
            let mut run = Run::with_options(&task.store, &mut task.adam, 1, options).unwrap();
            assert!(run.next_step().is_some());
            task.step(&mut run);
            let error = run.finish("a", "b").unwrap_err().to_string();
            assert!(error.contains("but nothing was recorded"), "{error}");
            let better = match record {
                true => run.record_accuracy(50.0).unwrap(),
                false => run.record_validation_loss(0.5).unwrap(),
            };
            assert_eq!(better, maximize == record);
            let results = [run.report(&task.adam, ""), run.finish("a", "b")];
            for result in results {
                let Err(error) = result else {
                    assert!(maximize == record);
                    continue;
                };
                let (error, known) = (error.to_string(), ["validation_loss", "accuracy"]);
                let known = format!("by the values of run.record_{}", known[maximize as usize]);
                assert!(maximize != record && error.contains(&known), "{error}");
                assert!(error.contains("RunOptions::maximize"), "{error}");
            }
        }
    }
}
