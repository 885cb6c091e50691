//! The learning rate of each of 100 steps against PyTorch's schedulers and nanoGPT's
//! formula (`golden/schedules.json`).

use crate::common::*;
use teeny_nn::Schedule;
use teeny_nn::schedule::Plateau;
use teeny_nn::state::Stateful;

#[test]
fn every_schedule_gives_the_rates_of_a_hundred_steps() {
    let golden = parse(include_str!("golden/schedules.json"));
    let sequential = Schedule::linear(0.1, 0.5, 10).then(10, Schedule::exponential(0.5, 0.9));
    let schedules = [
        ("step", Schedule::step(0.5, 15, 0.3)),
        ("multi_step", Schedule::multi_step(0.5, &[5, 40, 41], 0.2)),
        ("exponential", Schedule::exponential(0.5, 0.97)),
        ("cosine", Schedule::cosine(0.5, 0.01, 100)),
        ("cosine_restarts", Schedule::cosine_restarts(0.5, 0.01, 9, 2)),
        ("cosine_restarts_even", Schedule::cosine_restarts(0.5, 0.0, 9, 1)),
        ("linear", Schedule::linear(0.05, 0.3, 40)),
        ("polynomial", Schedule::polynomial(0.5, 70, 2.0)),
        ("one_cycle", Schedule::one_cycle(0.5, 100)),
        ("one_cycle_with", Schedule::one_cycle_with(0.5, 60, 0.5, 10.0, 100.0)),
        ("lambda", Schedule::new(|step| 0.5 / (1.0 + step as f64).sqrt())),
        ("chained", Schedule::exponential(0.5, 0.95).with_warmup(0.1, 20)),
        ("sequential", sequential),
        ("nano_gpt", Schedule::warmup_cosine(0.5, 0.05, 10, 80)),
    ];
    for (name, schedule) in schedules {
        let want = numbers(&golden[name]);
        let got: Vec<f64> = (0..want.len() as u64).map(|step| schedule.at(step)).collect();
        assert_close(&got, &want, 1e-12, &name);
        // relative errors too, for rates near 0
        let far = got.iter().zip(&want).position(|(g, w)| (g - w).abs() > 1e-9 * w.abs());
        assert_eq!(far, None, "{name}: {got:?}");
        // a schedule is a function of the step, in any order
        assert_eq!(schedule.clone().at(57 % got.len() as u64), got[57 % got.len()]);
    }
}

#[test]
fn a_plateau_halves_the_rate_where_pytorchs_does() {
    let golden = parse(include_str!("golden/schedules.json"));
    let (losses, rates) = (numbers(&golden["plateau_losses"]), numbers(&golden["plateau"]));
    let mut plateau = Plateau::new(0.5, 0.5, 4).unwrap();
    for (step, loss) in losses.iter().enumerate() {
        assert_close(&[plateau.lr()], &[rates[step]], 1e-12, &step);
        // resuming in the middle changes nothing
        let mut resumed = Plateau::new(0.1, 0.5, 4).unwrap();
        resumed.set_state(&plateau.state().unwrap()).unwrap();
        assert_eq!(resumed, plateau);
        plateau = resumed;
        plateau.observe(*loss);
    }
    let mut plateau = Plateau::new(1.0, 0.1, 0).unwrap().min(0.05).unwrap();
    let rates = [f64::NAN, f64::NAN, 1.0, 1.0].map(|loss| plateau.observe(loss));
    assert_eq!(rates, [0.1, 0.05, 0.05, 0.05], "NaN is no progress, and there is a smallest rate");
}

#[test]
fn nano_gpts_schedule_moves_at_iteration_zero() {
    let schedule = Schedule::warmup_cosine(6e-4, 6e-5, 2000, 600_000);
    assert!(schedule.at(0) > 0.0);
    assert!((1..2001).all(|step| schedule.at(step) > schedule.at(step - 1)));
    assert!((2001..600_000).step_by(997).all(|step| schedule.at(step) < schedule.at(step - 1)));
    assert_eq!(schedule.at(600_000), 6e-5);
}

#[test]
fn degenerate_schedules_are_finite() {
    let degenerate = [
        Schedule::step(0.1, 0, 0.5),
        Schedule::linear(0.1, 0.2, 0),
        Schedule::cosine(0.1, 0.0, 0),
        Schedule::cosine_restarts(0.1, 0.0, 0, 0),
        Schedule::warmup_cosine(0.1, 0.0, 0, 0),
        Schedule::warmup_cosine(0.1, 0.0, 5, 3),
        Schedule::one_cycle(0.1, 0),
        Schedule::one_cycle(0.1, 1),
        Schedule::polynomial(0.1, 0, 1.0),
    ];
    for schedule in degenerate {
        assert!([0, 1, 2, 7, u64::MAX].iter().all(|&step| schedule.at(step).is_finite()));
    }
}
