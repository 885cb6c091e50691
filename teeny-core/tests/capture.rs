//! Captured functions: what a replay gives, and what it refuses.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use teeny_core::wrappers::Trace;
use teeny_core::{
    Attention, Capture, DType, Device, Distribution, Error, Lazy, LazyOptions, Reference, Result,
    Tensor,
};
use teeny_core::{manual_seed, random};

fn traced() -> (Arc<Lazy>, Arc<Trace>) {
    let trace = Trace::new(Reference::new());
    (Lazy::new(trace.clone()), trace)
}

fn row(lazy: &Arc<Lazy>, start: f32, n: usize) -> Tensor {
    let values: Vec<f32> = (0..n).map(|i| start + i as f32).collect();
    Tensor::from_vec(values, (n,), lazy).unwrap()
}

/// The error of the second call of a function, whose first one succeeds.
fn refused<'f>(lazy: &Arc<Lazy>, f: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>> + 'f) -> Error {
    let mut capture = Capture::new(lazy, f).unwrap();
    capture.run(vec![row(lazy, 1.0, 3)]).unwrap();
    capture.run(vec![row(lazy, 2.0, 3)]).unwrap_err()
}

#[test]
fn a_replay_has_the_results_of_a_call() {
    let (lazy, trace) = traced();
    let weight = row(&lazy, 0.5, 3);
    let mut calls = 0;
    let mut capture = Capture::new(&lazy, |x| {
        calls += 1;
        let y = x[0].mul(&weight)?.exp()?;
        Ok(vec![y.sum_all()?, y.add(&x[1])?])
    })
    .unwrap();
    for i in 0..6 {
        let (x, z) = (row(&lazy, i as f32 * 0.1, 3), row(&lazy, 1.0, 3));
        let y = x.mul(&weight).unwrap().exp().unwrap();
        let want = [y.sum_all().unwrap(), y.add(&z).unwrap()].map(|t| t.to_vec::<f32>().unwrap());
        trace.clear();
        let got = capture.run(vec![x, z]).unwrap();
        let ran: Vec<_> = trace.spans().iter().map(|span| span.op).collect();
        assert_eq!(ran, ["kernel", "sum", "add"], "call {i}");
        let got: Vec<Vec<f32>> = got.iter().map(|t| t.to_vec().unwrap()).collect();
        assert_eq!(got, want, "call {i}");
    }
    assert!(capture.is_replaying());
    drop(capture);
    assert_eq!(calls, 2);
}

#[test]
fn random_numbers_are_drawn_anew_and_are_those_of_calls() {
    let (lazy, _) = traced();
    let draw = |x: &[Tensor]| {
        let noise = Tensor::rand((3,), DType::F32, x[0].device())?;
        let unused = Tensor::rand((2,), DType::F32, x[0].device())?;
        drop(unused);
        Ok(vec![x[0].add(noise)?, Tensor::randn((2,), DType::F32, x[0].device())?])
    };
    let x = row(&lazy, 0.0, 3);
    let read =
        |all: Vec<Tensor>| -> Vec<Vec<f32>> { all.iter().map(|t| t.to_vec().unwrap()).collect() };
    let (eager, after) = random::with_seed(11, || {
        let call = |_| read(draw(std::slice::from_ref(&x)).unwrap());
        ((0..5).map(call).collect::<Vec<_>>(), random::state())
    });
    let (replayed, after_replays) = random::with_seed(11, || {
        let mut capture = Capture::new(&lazy, draw).unwrap();
        let replay = |_| read(capture.run(vec![x.clone()]).unwrap());
        ((0..5).map(replay).collect::<Vec<_>>(), random::state())
    });
    assert_eq!(replayed, eager);
    assert_eq!(after_replays, after);
    assert_ne!(replayed[3], replayed[4]);
}

#[test]
fn inputs_may_be_views_and_results_are_new_every_time() {
    let (lazy, _) = traced();
    let mut capture = Capture::new(&lazy, |x| Ok(vec![x[0].add(1.0)?, x[0].clone()])).unwrap();
    let table = Tensor::arange(0i32, 12, 1, &lazy).unwrap().cast(DType::F32).unwrap();
    let table = table.reshape((4, 3)).unwrap();
    let mut kept = Vec::new();
    for i in 0..4 {
        let part = table.slice(0, i..i + 1).unwrap();
        kept.push(capture.run(vec![part]).unwrap());
    }
    for (i, both) in kept.iter().enumerate() {
        let first = 3.0 * i as f32;
        assert_eq!(both[0].to_vec::<f32>().unwrap(), [first + 1.0, first + 2.0, first + 3.0]);
        assert_eq!(both[1].to_vec::<f32>().unwrap(), [first, first + 1.0, first + 2.0]);
    }
}

/// A buffer that is passed by value is written in place, one that is held is not.
#[test]
fn an_input_is_written_in_place_only_if_nobody_holds_it() {
    let (lazy, trace) = traced();
    let mut capture =
        Capture::new(&lazy, |x| Ok(vec![x[0].clone().slice_assign(0, 1..2, &x[1])?])).unwrap();
    let mut buffer = row(&lazy, 0.0, 3);
    for i in 0..4 {
        let held = buffer.clone();
        let value = Tensor::full((1,), 9.0 + i as f32, DType::F32, &lazy).unwrap();
        buffer = capture.run(vec![buffer, value]).unwrap().remove(0);
        assert_eq!(buffer.to_vec::<f32>().unwrap()[1], 9.0 + i as f32);
        assert_ne!(held.to_vec::<f32>().unwrap()[1], 9.0 + i as f32);
    }
    let live = lazy.stats().live_bytes;
    trace.clear();
    for _ in 0..3 {
        let value = Tensor::full((1,), 1.0, DType::F32, &lazy).unwrap();
        buffer = capture.run(vec![buffer, value]).unwrap().remove(0);
    }
    assert_eq!(buffer.to_vec::<f32>().unwrap(), [0.0, 1.0, 2.0]);
    assert_eq!(lazy.stats().live_bytes, live);
}

#[test]
fn what_a_replay_would_repeat_is_refused() {
    let (lazy, _) = traced();
    let mut rate = 0.02f32;
    let error = refused(&lazy, |x| {
        rate -= 0.01;
        Ok(vec![x[0].mul(rate)?])
    });
    let text = error.to_string();
    assert!(text.contains("of mul at") && text.contains("in the call before"), "{text}");
    assert!(text.contains("capture.rs") && text.contains("shape ()"), "{text}");

    let mut shift = 0.0;
    let error = refused(&lazy, |x| {
        shift += 1.0;
        let other = Tensor::new([1.0f32, 2.0, shift], x[0].device())?;
        Ok(vec![x[0].add(&other)?])
    });
    assert!(error.to_string().contains("a tensor that add at"), "{error}");

    let mut n = 1;
    let error = refused(&lazy, |x| {
        n += 1;
        let mut y = x[0].clone();
        for _ in 0..n {
            y = y.exp()?;
        }
        Ok(vec![y])
    });
    assert!(error.to_string().contains("did different work"), "{error}");
    assert!(error.to_string().contains("exp at"), "{error}");
}

#[test]
fn reads_and_held_results_inside_are_refused() {
    let (lazy, _) = traced();
    let first = |f: &mut dyn FnMut(&[Tensor]) -> Result<Vec<Tensor>>| {
        let mut capture = Capture::new(&lazy, f).unwrap();
        capture.run(vec![row(&lazy, 1.0, 3)]).unwrap_err().to_string()
    };
    let text = first(&mut |x| {
        let sum: f32 = x[0].sum_all()?.item()?;
        Ok(vec![x[0].mul(sum)?])
    });
    assert!(text.contains("item at") && text.contains("reads a result"), "{text}");
    let mut kept = None;
    let text = first(&mut |x| {
        kept = Some(x[0].exp()?);
        Ok(vec![x[0].add(1.0)?])
    });
    assert!(text.contains("made by exp at") && text.contains("return the tensor"), "{text}");
    assert!(kept.unwrap().to_vec::<f32>().is_err(), "it has no elements");
    let text = first(&mut |x| {
        let mut inner = Capture::new(&lazy, |x| Ok(vec![x[0].exp()?]))?;
        inner.run(vec![x[0].clone()])
    });
    assert!(text.contains("another captured function"), "{text}");
    // The device records as before.
    assert_eq!(row(&lazy, 1.0, 2).add(1.0).unwrap().to_vec::<f32>().unwrap(), [2.0, 3.0]);
}

#[test]
fn inputs_of_another_shape_and_other_devices_are_refused() {
    let (lazy, _) = traced();
    let mut capture = Capture::new(&lazy, |x| Ok(vec![x[0].exp()?])).unwrap();
    for i in 0..3 {
        capture.run(vec![row(&lazy, i as f32, 3)]).unwrap();
    }
    let text = capture.run(vec![row(&lazy, 0.0, 4)]).unwrap_err().to_string();
    assert!(text.contains("input 0") && text.contains("(4,)") && text.contains("(3,)"), "{text}");
    assert!(capture.run(vec![]).is_err());
    assert!(capture.run_at(vec![row(&lazy, 0.0, 3)], 1).is_err());
    let x = Tensor::zeros((3,), DType::F32, Reference::new()).unwrap();
    assert_eq!(capture.run(vec![x]).unwrap()[0].to_vec::<f32>().unwrap(), [1.0; 3]);
    let error = Capture::new(Reference::new(), |_| Ok(vec![])).unwrap_err();
    assert!(error.to_string().contains("does not record"), "{error}");
    let small = LazyOptions::new().with_max_nodes(3);
    let lazy = Lazy::with_options(Reference::new(), small);
    let mut capture = Capture::new(&lazy, |x| Ok(vec![x[0].exp()?.sin()?.exp()?.sin()?])).unwrap();
    let text = capture.run(vec![row(&lazy, 0.0, 3)]).unwrap_err().to_string();
    assert!(text.contains("4 operations, more than 3"), "{text}");
}

/// A cache that grows by one row a call: one capture serves all lengths.
#[test]
fn sizes_that_follow_an_integer_are_one_capture() {
    let (lazy, _) = traced();
    let step = |x: &[Tensor], n: usize| {
        // (16, 2), (1, 2)
        let cache = x[0].clone().slice_assign(0, n..n + 1, &x[1])?;
        let seen = cache.slice(0, 0..n + 1)?; // (n + 1, 2)
        let scores = seen.mul(&x[1])?.sum(1)?; // (n + 1)
        Ok(vec![cache, scores.exp()?.sum_all()?])
    };
    let mut calls = 0;
    let mut capture = Capture::with_symbol(&lazy, 0..=15, |x, n| {
        calls += 1;
        step(x, n)
    })
    .unwrap();
    let zeros = || Tensor::zeros((16, 2), DType::F32, &lazy).unwrap();
    let (mut cache, mut eager) = (zeros(), zeros());
    for n in 0..16 {
        let new = row(&lazy, 0.1 * n as f32, 2).reshape((1, 2)).unwrap();
        let want = step(&[eager, new.clone()], n).unwrap();
        let got = capture.run_at(vec![cache, new], n).unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap(), "{n}");
        }
        cache = got[0].clone();
        eager = want[0].clone();
    }
    assert!(capture.is_replaying());
    let text = capture.run_at(vec![cache], 16).unwrap_err().to_string();
    assert!(text.contains("the integer 16 is not in 0 to 15"), "{text}");
    drop(capture);
    assert!(calls <= 5, "{calls} calls");
}

/// The offset of causal attention and the diagonal of a triangle are integers as sizes are.
#[test]
fn attributes_that_follow_an_integer_are_one_capture() {
    let (lazy, _) = traced();
    let step = |x: &[Tensor], n: usize| {
        // (8, 2): the keys up to position n + 1 are seen, and query i sees those up to n + i
        let keys = x[0].slice(0, 0..n as isize + 2)?; // (n + 2, 2)
        let queries = x[0].slice(0, n as isize..n as isize + 2)?; // (2, 2)
        let y = queries.attention(&keys, &keys, None, &Attention::causal(n))?; // (2, 2)
        Ok(vec![y, x[0].tril(n as i32 - 5)?])
    };
    let mut calls = 0;
    let mut capture = Capture::with_symbol(&lazy, 0..=6, |x, n| {
        calls += 1;
        step(x, n)
    })
    .unwrap();
    let x = Tensor::arange(0i32, 16, 1, &lazy).unwrap().cast(DType::F32).unwrap();
    let x = x.mul(0.1).unwrap().reshape((8, 2)).unwrap();
    for n in 0..7 {
        let want = step(std::slice::from_ref(&x), n).unwrap();
        let got = capture.run_at(vec![x.clone()], n).unwrap();
        for (got, want) in got.iter().zip(&want) {
            assert_eq!(got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap(), "{n}");
        }
    }
    drop(capture);
    assert_eq!(calls, 3);
}

/// Elements that the function uploads are part of what is replayed, if they are the same.
#[test]
fn uploads_of_equal_elements_are_constants() {
    let (lazy, _) = traced();
    let mut capture = Capture::new(&lazy, |x| {
        let other = Tensor::new([1.0f32, 2.0, 3.0], x[0].device())?;
        Ok(vec![x[0].add(&other)?])
    })
    .unwrap();
    for i in 0..4 {
        let y = capture.run(vec![row(&lazy, i as f32, 3)]).unwrap();
        let i = i as f32;
        assert_eq!(y[0].to_vec::<f32>().unwrap(), [i + 1.0, i + 3.0, i + 5.0]);
    }
    assert!(capture.is_replaying());
}

/// A constant that was recorded before the function ran, and that nothing has read.
#[test]
fn constants_that_did_not_run_yet_run_before_the_function() {
    let (lazy, _) = traced();
    let weight = row(&lazy, 1.0, 3).mul(2.0).unwrap();
    let mut capture = Capture::new(&lazy, |x| Ok(vec![x[0].mul(&weight)?])).unwrap();
    for i in 0..4 {
        let i = i as f32;
        let y = capture.run(vec![row(&lazy, i, 3)]).unwrap();
        assert_eq!(y[0].to_vec::<f32>().unwrap(), [2.0 * i, 4.0 * (i + 1.0), 6.0 * (i + 2.0)]);
    }
    assert!(capture.is_replaying());
    // A function that fails does not make a tensor fail that it read.
    let other = row(&lazy, 1.0, 3).mul(3.0).unwrap();
    let mut failing = Capture::new(&lazy, |x| x[0].mul(&other)?.reshape((7,)).map(|y| vec![y]));
    assert!(failing.as_mut().unwrap().run(vec![row(&lazy, 1.0, 3)]).is_err());
    assert_eq!(other.to_vec::<f32>().unwrap(), [3.0, 6.0, 9.0]);
}

/// The list of a call that is recorded is drawn as other lists are.
#[test]
fn a_recorded_call_is_drawn() {
    let (lazy, _) = traced();
    let mut capture = Capture::new(&lazy, |x| Ok(vec![x[0].add(1.0)?.exp()?])).unwrap();
    let x = row(&lazy, 1.0, 3);
    lazy.draw_lists(&[("the input", &x)]).unwrap();
    capture.run(vec![x]).unwrap();
    let picture = lazy.take_drawing().unwrap().expect("a picture").dot();
    assert!(picture.contains("2 recorded") || picture.contains("2 operations"), "{picture}");
    assert!(picture.contains("the input"), "{picture}");
}

/// One tensor as two inputs: which of them an operation reads is not known from such calls.
#[test]
fn inputs_that_were_one_tensor_stay_one() {
    let (lazy, _) = traced();
    let x = row(&lazy, 1.0, 2);
    let make = || Capture::new(&lazy, |x| Ok(vec![x[0].sub(x[1].mul(2.0)?)?])).unwrap();
    let mut capture = make();
    for _ in 0..4 {
        capture.run(vec![x.clone(), x.clone()]).unwrap();
    }
    let text = capture.run(vec![x.clone(), row(&lazy, 5.0, 2)]).unwrap_err().to_string();
    assert!(text.contains("inputs 0 and 1") && text.contains("one tensor"), "{text}");
    let mut capture = make();
    capture.run(vec![x.clone(), x.clone()]).unwrap();
    for i in 0..3 {
        let y = capture.run(vec![x.clone(), row(&lazy, i as f32, 2)]).unwrap();
        let (a, b) = (1.0 - 2.0 * i as f32, 2.0 - 2.0 * (i as f32 + 1.0));
        assert_eq!(y[0].to_vec::<f32>().unwrap(), [a, b]);
    }
}

/// The bits of results of calls, and of calls of a capture, from the same state of the generator.
fn called_and_captured(
    calls: usize,
    mut f: impl FnMut(&[Tensor]) -> Result<Vec<Tensor>> + Copy,
) -> [(Vec<Vec<f32>>, random::Key); 2] {
    let lazy = Lazy::new(Reference::new());
    let input = || Tensor::full((3,), 0.5, DType::F32, &lazy).unwrap();
    let read = |all: Vec<Tensor>| all.iter().flat_map(|t| t.to_vec::<f32>().unwrap()).collect();
    [false, true].map(|captured| {
        random::with_seed(11, || {
            let mut capture = Capture::new(&lazy, f).unwrap();
            let results = (0..calls).map(|_| {
                let _between = Tensor::rand((3,), DType::F32, &lazy).unwrap();
                read(match captured {
                    true => capture.run(vec![input()]).unwrap(),
                    false => f(&[input()]).unwrap(),
                })
            });
            (results.collect(), random::state())
        })
    })
}

#[test]
fn a_key_of_the_program_is_a_constant_and_takes_none_from_the_generator() {
    let [called, captured] = called_and_captured(5, |x| {
        let key = random::Key { seed: 7, draw: 3 };
        let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
        let mine = Tensor::random(uniform, (3,), DType::F32, key, x[0].device())?;
        Ok(vec![x[0].add(mine)?])
    });
    assert_eq!(called, captured);
    assert_eq!(called.0[0], called.0[4]);
}

#[test]
fn a_key_that_is_used_twice_stays_one_key() {
    let [called, captured] = called_and_captured(5, |x| {
        let (key, device) = (random::next_key(), x[0].device());
        let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
        let draw = || Tensor::random(uniform, (3,), DType::F32, key, device);
        Ok(vec![draw()?, Tensor::rand((2,), DType::F32, device)?, draw()?])
    });
    assert_eq!(called, captured);
    assert_ne!(called.0[3], called.0[4]);
}

#[test]
fn a_state_that_is_put_back_draws_the_same_keys_again() {
    for forget in [false, true] {
        let [called, captured] = called_and_captured(5, move |x| {
            let draw = || Tensor::rand((3,), DType::F32, x[0].device());
            let first = draw()?;
            let state = random::state();
            let second = draw()?;
            random::set_state(state);
            let again = draw()?;
            let scoped = random::with_state(state, || Ok::<_, Error>([draw()?, draw()?]))?;
            if forget {
                random::set_state(state);
            }
            let [a, b] = scoped;
            Ok(vec![first, second, again, a, b])
        });
        assert_eq!(called, captured);
    }
}

#[test]
fn seeds_of_the_program_draw_the_same_in_each_call() {
    let [called, captured] = called_and_captured(5, |x| {
        let draw = || Tensor::rand((3,), DType::F32, x[0].device());
        let scoped = random::with_seed(3, draw)?;
        let outside = draw()?;
        manual_seed(4);
        Ok(vec![scoped, outside, draw()?, draw()?])
    });
    assert_eq!(called, captured);
}

/// A generator of the program may give the keys that the outer one gives in one of the calls.
#[test]
fn a_seed_of_the_program_that_is_the_seed_of_a_call_stays_one_of_the_program() {
    let lazy = Lazy::new(Reference::new());
    let f = |x: &[Tensor]| {
        let draw = || Tensor::rand((3,), DType::F32, x[0].device());
        let state = random::state();
        let outside = draw()?;
        let inside = random::with_seed(3, draw)?;
        Ok(vec![outside, inside, random::with_state(state, draw)?])
    };
    let read =
        |all: Vec<Tensor>| -> Vec<Vec<f32>> { all.iter().map(|t| t.to_vec().unwrap()).collect() };
    let mut capture = Capture::new(&lazy, f).unwrap();
    for seed in [3, 4, 3, 5, 6] {
        let x = row(&lazy, 0.0, 3);
        let want = random::with_seed(seed, || read(f(std::slice::from_ref(&x)).unwrap()));
        let got = random::with_seed(seed, || read(capture.run(vec![x]).unwrap()));
        assert_eq!(got, want, "seed {seed}");
    }
    assert!(capture.is_replaying());
}

#[test]
fn keys_that_a_replay_would_repeat_are_refused() {
    let uniform = Distribution::Uniform { low: 0.0, high: 1.0 };
    let lazy = Lazy::new(Reference::new());
    let mut draw = 0;
    let error = refused(&lazy, |x| {
        draw += 1;
        let key = random::Key { seed: 7, draw };
        Ok(vec![Tensor::random(uniform, (3,), DType::F32, key, x[0].device())?])
    });
    assert!(error.to_string().contains("the key of random at"), "{error}");
    let mut draws = 0;
    let error = refused(&lazy, |x| {
        draws += 1;
        (0..draws).for_each(|_| _ = random::next_key());
        Ok(vec![Tensor::rand((3,), DType::F32, x[0].device())?])
    });
    assert!(error.to_string().contains("drew a different number of keys"), "{error}");
}

#[test]
fn what_the_function_depends_on_is_recorded_again_when_it_changes() {
    let lazy = Lazy::new(Reference::new());
    let (mode, scale) = (Rc::new(Cell::new(1u64)), Rc::new(Cell::new(2.0)));
    let calls = Cell::new(0);
    let mut capture = Capture::new(&lazy, |x| {
        calls.set(calls.get() + 1);
        let (now, id) = (mode.clone(), Rc::as_ptr(&mode) as usize);
        Capture::depends_on((id, "mode"), None, move || now.get());
        let (now, id) = (scale.clone(), Rc::as_ptr(&scale) as usize);
        let scale = Capture::number(id, DType::F32, x[0].device(), move || now.get())?.unwrap();
        Ok(vec![if mode.get() == 1 { x[0].mul(&scale)? } else { x[0].add(&scale)? }])
    })
    .unwrap();
    let mut run = || capture.run(vec![row(&lazy, 3.0, 1)]).unwrap()[0].item::<f32>().unwrap();
    let mut seen = Vec::new();
    for i in 0..4 {
        scale.set(f64::from(i));
        seen.push(run());
    }
    mode.set(2);
    (0..3).for_each(|_| seen.push(run()));
    mode.set(1);
    seen.push(run());
    assert_eq!(seen, [0.0, 3.0, 6.0, 9.0, 6.0, 6.0, 6.0, 9.0]);
    drop(capture);
    assert_eq!(calls.get(), 2 + 2 + 1);
    assert!(!Capture::is_recording());
}

#[test]
fn replays_that_are_checked_find_what_changed() {
    let lazy = Lazy::new(Reference::new());
    let step = Cell::new(0.0f64);
    let mut capture = Capture::new(&lazy, |x| Ok(vec![x[0].mul(step.get())?])).unwrap();
    capture.check_every(3);
    for _ in 0..20 {
        let y = capture.run(vec![row(&lazy, 1.0, 2)]).unwrap();
        assert_eq!(y[0].to_vec::<f32>().unwrap(), [0.0, 0.0]);
    }
    step.set(2.0);
    let error = (0..40).find_map(|_| capture.run(vec![row(&lazy, 1.0, 2)]).err()).unwrap();
    assert!(error.to_string().contains("the number 2"), "{error}");
    let y = capture.run(vec![row(&lazy, 1.0, 2)]).unwrap();
    assert_eq!(y[0].to_vec::<f32>().unwrap(), [2.0, 4.0]);
}
