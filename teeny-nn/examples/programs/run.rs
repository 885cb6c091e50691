//! Runs a program on a device: call by call, recorded, or captured.

use crate::program::{Event, Program, Step};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use teeny_autograd::{Autograd, Grad, checkpoint, no_grad};
use teeny_core::random::{self, Key, next_key};
use teeny_core::{
    Attention, Capture, DType, DeviceRef, Distribution, Error, Extremum, QuantTensor, QuantType,
    Result, SortOrder, Tensor, map, map_n, map_rows,
};
use teeny_nn::optim::{LossScale, Sgd};
use teeny_nn::{BatchNorm, Captured, Dropout, LayerNorm, Linear, Module, Param, Store};

/// The bits of the results of each call, NaN as one number; an error ends a program.
pub type Outcome = Vec<std::result::Result<Vec<Vec<u64>>, String>>;

/// The state that the steps of a program share.
struct Env {
    device: DeviceRef,
    store: Store,
    linear: Linear,
    layer_norm: LayerNorm,
    batch_norm: BatchNorm,
    dropout: Dropout,
    square: Param,
    /// Of another store: no input of a captured step.
    other: Param,
    /// (C, columns) with rows of two types, the columns behind C unused.
    quantised: QuantTensor,
    /// The number of the call: what a pure function does not read.
    call: AtomicU64,
}

impl Env {
    fn new(program: &Program, device: &DeviceRef) -> Result<Env> {
        let store = Store::with_dtype(device, program.dtype);
        let other = Store::with_dtype(device, program.dtype);
        let c = program.columns;
        let linear = Linear::new(&store.at("linear"), c, c)?;
        let square = store.at("square").param("weight", (c, c), teeny_nn::Init::ONES)?;
        let other = other.at("other").param("weight", (c,), teeny_nn::Init::ONES)?;
        let columns = c.next_multiple_of(32);
        let key = Key { seed: 41, draw: 7 };
        let matrix = fixed(key, &Tensor::zeros((c, columns), DType::F32, device)?)?;
        let half = matrix.shape()[0] / 2;
        let parts = [
            QuantTensor::quantize(&matrix.slice(0, ..half)?, QuantType::Q8_0)?,
            QuantTensor::quantize(&matrix.slice(0, half..)?, QuantType::Q4_1)?,
        ];
        Ok(Env {
            quantised: QuantTensor::join(&[&parts[0], &parts[1]])?,
            linear,
            layer_norm: LayerNorm::new(&store.at("ln"), c)?,
            batch_norm: BatchNorm::new(&store.at("bn"), c)?,
            dropout: Dropout::new(&store.at("drop"), 0.4)?,
            square,
            other,
            call: AtomicU64::new(0),
            device: device.clone(),
            store,
        })
    }

    fn params(&self) -> Result<[Param; 3]> {
        Ok([self.square.clone(), self.other.clone(), self.store.get("linear.weight")?])
    }
}

/// Uniform numbers of a key that the program chose.
fn fixed(key: Key, like: &Tensor) -> Result<Tensor> {
    let uniform = Distribution::Uniform { low: -1.0, high: 1.0 };
    Tensor::random(uniform, *like.shape(), like.dtype(), key, like)
}

fn rand(like: &Tensor) -> Result<Tensor> {
    Tensor::rand(*like.shape(), like.dtype(), like)
}

/// `steps` on `x`: the last value.
fn body(env: &Arc<Env>, steps: &[Step], x: &Tensor) -> Result<Tensor> {
    let mut pool = vec![x.clone()];
    for step in steps {
        let y = value(env, step, &mut pool)?;
        pool.push(y);
    }
    pool.pop().ok_or_else(|| Error::internal("a program without values"))
}

/// The value of a step.
fn value(env: &Arc<Env>, step: &Step, pool: &mut Vec<Tensor>) -> Result<Tensor> {
    let of = |pool: &[Tensor], i: usize| pool[i % pool.len()].clone();
    let get = |i: usize| of(pool, i);
    Ok(match *step {
        Step::Unary(f, x) => unary(f, &get(x))?,
        Step::Binary(f, x, y) => binary(f, &get(x), &get(y))?,
        Step::Number(f, x, number) => {
            let x = get(x);
            match f {
                0 => x.add(number)?,
                1 => x.mul(number)?,
                2 => x.sub(number)?,
                3 => x.div(number)?,
                4 => x.maximum(number)?,
                5 => x.abs()?.pow(number)?,
                6 => x.clamp(-number.abs(), number.abs())?,
                _ => x.full_like(number)?.sub(&x)?,
            }
        }
        Step::PowFull(x, number) => get(x).abs()?.pow(&get(x).full_like(number)?)?,
        Step::Map(x, y, number) => map([&get(x), &get(y)], |[x, y]| {
            let z = x.tanh() * number + y;
            z.gt(0.0).where_cond(z, x * y - z)
        })?,
        Step::Where(x, y, z) => get(x).gt(get(y))?.where_cond(get(x), get(z))?,
        Step::Matmul(x) => get(x).matmul(&env.square.value().mul(0.3)?)?,
        Step::Reduce(kind, first, x) => {
            let (x, axis) = (get(x), if first { 0 } else { 1 });
            let y = match kind {
                0 => x.sum_keepdim(axis)?,
                1 => x.mean_keepdim(axis)?,
                2 => x.max_keepdim(axis)?,
                3 => x.sum_all()?,
                4 => x.square()?.mean_keepdim(axis)?,
                5 => x.logsumexp(axis)?.unsqueeze(axis)?,
                _ => x.var(axis, 0)?.unsqueeze(axis)?,
            };
            x.sub(&y)?
        }
        Step::Rows(kind, first, x) => {
            let (x, axis) = (get(x), if first { 0 } else { 1 });
            match kind {
                0 => x.softmax(axis)?,
                1 => x.log_softmax(axis)?,
                2 => x.cumsum(axis)?,
                3 => x.sort(axis, SortOrder::Descending)?.0,
                4 => x.mul(&x.argmax(axis)?.unsqueeze(axis)?.cast(x.dtype())?)?,
                5 => {
                    let order = x.sort(axis, SortOrder::Ascending)?.1;
                    x.take_along(axis, &order)?
                }
                6 => {
                    let h = x.unsqueeze(0)?; // (1, R, C)
                    h.attention(&h, &h, None, &Attention::causal(0))?.squeeze(0)?
                }
                _ => x.sub(&x.max_keepdim(axis)?)?.exp()?,
            }
        }
        Step::MapRows(kind, first, x, y) => row_program(kind, first, &get(x), &get(y))?,
        Step::Move(kind, x, y) => {
            let (x, y) = (get(x), get(y));
            let shape = *x.shape();
            match kind {
                0 => x.flip([0])?,
                1 => x.t()?.contiguous()?.reshape(shape)?,
                2 => Tensor::cat(&[&x.slice(0, 1..)?, &y.slice(0, ..1)?], 0)?,
                3 => x.roll(1, 1)?,
                4 => x.slice(0, 1..)?.pad(&[(1, 0), (0, 0)], 0.5)?,
                5 => x.slice(0, ..1)?.expand(shape)?,
                6 => x.tril(0)?,
                7 => x.reshape((shape.numel(),))?.flip([0])?.reshape(shape)?,
                _ => x.copy()?.add(&y.slice(1, ..1)?)?,
            }
        }
        Step::Assign(x, y) => {
            let src = get(y).slice(0, ..1)?;
            let x = if pool.len() > 1 { pool.swap_remove(x % pool.len()) } else { of(pool, x) };
            x.slice_assign(0, 1..2, &src)?
        }
        Step::Cast(dtype, x) => get(x).cast(dtype)?.cast(get(x).dtype())?,
        Step::Layer(layer, x) => match layer {
            0 => env.linear.forward(&get(x))?,
            1 => env.layer_norm.forward(&get(x))?,
            2 | 3 => env.dropout.forward(&get(x))?,
            _ => env.batch_norm.forward(&get(x))?,
        },
        Step::Param(x) => get(x).mul(env.other.value())?,
        Step::Quantised(kind, x) => {
            let (x, [rows, columns]) = (get(x), env.quantised.shape());
            let c = x.shape()[1];
            if kind == 0 {
                let index = x.argmax(1)?.rem(rows as i64)?; // (R)
                return env.quantised.index_select(&index)?.slice(1, ..c)?.cast(x.dtype());
            }
            let weight = env.quantised.clone().with_exact(kind == 1);
            weight.linear(&x.pad(&[(0, 0), (0, (columns - c) as isize)], 0)?)?
        }
        Step::Several(kind, first, x) => {
            let (x, axis) = (get(x), if first { 0 } else { 1 });
            let (y, places) = match kind {
                0 => x.cummax(axis)?,
                1 => x.sort(axis, SortOrder::Ascending)?,
                2 => x.topk(x.shape()[axis as usize], axis, Extremum::Largest)?,
                _ => {
                    let [y, z] = map_n([&x], |[x]| [x.tanh(), x * 0.5 + 1.0])?;
                    (y, z)
                }
            };
            y.add(&places.cast(x.dtype())?.mul(0.125)?)?
        }
        Step::Draw(kind, x) => {
            let x = get(x);
            match kind {
                0 => x.add(rand(&x)?)?,
                1 => x.add(Tensor::randn(*x.shape(), x.dtype(), &x)?)?,
                2 => x.mul(Tensor::bernoulli(0.5, *x.shape(), &x)?.cast(x.dtype())?)?,
                // a seed that no generator has: a key that both give in one call is refused
                3 => x.add(fixed(Key { seed: 7_000_007, draw: 3 }, &x)?)?,
                4 => {
                    let key = next_key();
                    fixed(key, &x)?.sub(&fixed(key, &x)?.mul(&x)?)?
                }
                5 => {
                    drop(rand(&x)?); // nothing reads it
                    x.add(rand(&x)?)?
                }
                _ => x.add(Tensor::randint(0, 9, *x.shape(), DType::I32, &x)?.cast(x.dtype())?)?,
            }
        }
        Step::WithSeed(seed, ref steps, x) => {
            random::with_seed(seed, || body(env, steps, &get(x)))?
        }
        Step::Twice(scoped, ref steps, x) => {
            let state = random::state();
            let first = body(env, steps, &get(x))?;
            let second = if scoped {
                random::with_state(state, || body(env, steps, &get(x)))?
            } else {
                random::set_state(state);
                body(env, steps, &get(x))?
            };
            first.sub(second.mul(0.5)?)?
        }
        Step::Checkpoint(ref steps, x) => saved(env, steps, &get(x))?,
        Step::Gradient(saves, ref steps, x) => {
            let x = get(x).detach()?.requires_grad()?;
            let y = if saves { saved(env, steps, &x)? } else { body(env, steps, &x)? };
            let weights = fixed(Key { seed: 9, draw: 9 }, &y)?;
            let mut gradients = x.mul(0.25)?.add(&y)?.mul(&weights)?.sum_all()?.backward()?;
            y.detach()?.add(&gradients.take(&x)?)?
        }
        Step::SecondOrder(kind, first, x, y) => {
            let (x, y) = (get(x).detach()?.requires_grad()?, get(y).detach()?);
            let second = Autograd::new(x.device());
            let lifted = x.to(&second)?.requires_grad()?;
            let z = row_program(kind, first, &lifted, &y)?.mul(&lifted)?;
            let gradient = z.sum_all()?.backward()?.take(&lifted)?;
            let twice = gradient.square()?.sum_all()?.backward()?.take(&x)?;
            gradient.detach()?.add(&twice)?
        }
        Step::NoGrad(ref steps, x) => no_grad(|| body(env, steps, &get(x)))?,
        Step::Flush(x) => {
            env.device.flush();
            get(x)
        }
        Step::Impure(kind, x) => {
            let (x, call) = (get(x), env.call.load(Ordering::Relaxed));
            match kind {
                0 => x.mul(call as f64)?,
                1 => x.add(fixed(Key { seed: 1, draw: call }, &x)?)?,
                2 => x.add(random::with_seed(call, || rand(&x))?)?,
                _ => x.add(Tensor::from_vec(vec![call as f32], (), &x)?.cast(x.dtype())?)?,
            }
        }
    })
}

/// A row program along an axis, of both extents: its result broadcasts to the shape of `x`.
fn row_program(kind: usize, first: bool, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let axis = if first { 0 } else { 1 };
    let y = if kind.is_multiple_of(2) { y.clone() } else { y.slice(axis, ..1)? };
    let rows = map_rows([x, &y], axis, |[x, y]| match kind {
        0 => x * y / (x.square().sum() + 1.0).sqrt(),
        1 => x.sum().tanh().square() * y,
        2 => (x - x.mean()) * (x.var(0) + 0.5).rsqrt() + y.max(),
        3 => (x.tanh() - y).logsumexp(),
        4 => (x.sin() + x.index()).sum() * y.tanh().mean(),
        5 => x.softmax() * (x.index() + 1) + y,
        6 => x.at(0) * y.min() - x,
        7 => (x.tanh() + y).prod(),
        _ => x.gt(y).any().where_cond(x.sum() * y, x.max()),
    })?;
    rows.expand(*x.shape())
}

/// [`body`] in a checkpoint.
fn saved(env: &Arc<Env>, steps: &[Step], x: &Tensor) -> Result<Tensor> {
    let (env, steps) = (env.clone(), steps.to_vec());
    checkpoint(move |x| body(&env, &steps, &x[0]), &[x])
}

fn unary(f: usize, x: &Tensor) -> Result<Tensor> {
    match f {
        0 => x.neg(),
        1 => x.abs(),
        2 => x.sin(),
        3 => x.cos(),
        4 => x.tanh(),
        5 => x.abs()?.neg()?.exp(),
        6 => x.abs()?.sqrt(),
        7 => x.abs()?.add(1.0)?.log(),
        8 => x.relu(),
        9 => x.gelu(),
        10 => x.sigmoid(),
        11 => x.erf(),
        12 => x.square(),
        13 => x.recip(),
        14 => x.floor(),
        15 => x.round(),
        16 => x.sign(),
        17 => x.abs()?.rsqrt(),
        18 => x.silu(),
        19 => x.softplus(),
        20 => x.log(),
        _ => x.sqrt(),
    }
}

fn binary(f: usize, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    match f {
        0 => x.add(y),
        1 => x.sub(y),
        2 => x.mul(y),
        3 => x.maximum(y),
        4 => x.minimum(y),
        5 => x.div(&y.abs()?.add(1.0)?),
        6 => x.abs()?.pow(y),
        _ => x.div(y),
    }
}

/// The input of a call, the same on every device.
fn input(program: &Program, call: usize, device: &DeviceRef) -> Result<Tensor> {
    let (shape, key) = ((program.rows, program.columns), Key { seed: 1, draw: call as u64 });
    let normal = Distribution::Normal { mean: 0.0, std: 1.0 };
    let x = Tensor::random(normal, shape, DType::F64, key, device)?;
    let x = if program.special {
        let special = [f64::NAN, f64::INFINITY, -0.0, 0.0, f64::NEG_INFINITY, -f64::NAN];
        let column = special[call % special.len()];
        let first = Tensor::full((1, program.columns), column, DType::F64, device)?;
        x.slice_assign(0, ..1, &first)?
    } else {
        x
    };
    x.cast(program.dtype)
}

/// The outcome of `program` on `engine`, which records where `captured` says so, from the same
/// state of the generator. Results are read at the end of each call or of all.
pub fn run(program: &Program, engine: &DeviceRef, captured: bool, deferred: bool) -> Outcome {
    random::with_seed(17, || {
        let device: DeviceRef = Autograd::new(engine.clone());
        let mut results = Vec::new();
        let error = calls(program, &device, captured, &mut |tensors| {
            results.push(if deferred { Err(tensors) } else { Ok(read(&tensors)?) });
            Ok(())
        });
        let mut outcome: Outcome = Vec::new();
        for result in results {
            let bits = result.or_else(|tensors| read(&tensors));
            let is_error = bits.is_err();
            outcome.push(bits.map_err(|e| e.to_string()));
            if is_error {
                return outcome;
            }
        }
        if let Err(error) = error {
            outcome.push(Err(error.to_string()));
        }
        outcome
    })
}

fn read(tensors: &[Tensor]) -> Result<Vec<Vec<u64>>> {
    let bits = |x: &f64| if x.is_nan() { u64::MAX } else { x.to_bits() };
    let of = |x: &Tensor| Ok(x.cast(DType::F64)?.to_vec::<f64>()?.iter().map(bits).collect());
    tensors.iter().map(of).collect()
}

/// Runs all calls, and passes the results of each to `done`.
fn calls(
    program: &Program,
    device: &DeviceRef,
    captured: bool,
    done: &mut dyn FnMut(Vec<Tensor>) -> Result<()>,
) -> Result<()> {
    let env = Arc::new(Env::new(program, device)?);
    let scale = RefCell::new(LossScale::new().initial_factor(8.0).growth_interval(2));
    let loss_of = |x: &Tensor| {
        let y = body(&env, &program.steps, x)?;
        // A path to each parameter, so that there is always a gradient.
        let loss = env.linear.forward(&y)?.tanh()?.mean_all()?;
        scale.borrow().apply(&loss)
    };
    let function = |x: &Tensor| -> Result<Vec<Tensor>> {
        let y = body(&env, &program.steps, x)?;
        Ok(vec![y.add(x)?.detach()?, y.detach()?])
    };
    let mut step = (captured && program.trains)
        .then(|| Captured::new(&env.store, |x| loss_of(&x[0])))
        .transpose()?;
    let mut capture = (captured && !program.trains)
        .then(|| Capture::new(device, |x| function(&x[0])))
        .transpose()?;
    let mut sgd = Sgd::new(env.store.trainable(), 0.01).skip_missing(true);
    let start = random::state();
    for (i, events) in program.calls.iter().enumerate() {
        env.call.store(i as u64, Ordering::Relaxed);
        let scope = Cell::new(None);
        for event in events {
            apply(event, &env, start, &scope)?;
        }
        let x = input(program, i, device)?;
        let call = || -> Result<Vec<Tensor>> {
            if let Some(capture) = &mut capture {
                return capture.run(vec![x]);
            }
            if !program.trains {
                return function(&x);
            }
            let (loss, gradients) = match &mut step {
                Some(step) => step.run(vec![x])?,
                None => {
                    let loss = loss_of(&x)?;
                    (loss.detach()?, loss.backward()?)
                }
            };
            let mut results = vec![loss];
            for param in env.store.trainable() {
                if gradients.contains(&param.value()) {
                    results.push(gradients.get(&param.value())?.clone());
                }
            }
            scale.borrow_mut().step(&mut sgd, &gradients)?;
            results.extend(env.store.all().iter().map(|p| p.value()));
            Ok(results)
        };
        let results = match scope.get() {
            Some(seed) => random::with_seed(seed, call),
            None => call(),
        }?;
        done(results)?;
        // The generator must be where a call leaves it.
        done(vec![rand(&Tensor::zeros((2,), DType::F64, device)?)?])?;
    }
    Ok(())
}

fn apply(event: &Event, env: &Env, start: Key, scope: &Cell<Option<u64>>) -> Result<()> {
    match *event {
        Event::Training(training) => env.store.set_training(training),
        Event::Set(i, key) => {
            let param = &env.params()?[i];
            param.set(&fixed(Key { seed: 3, draw: key }, &param.value().detach()?)?)?;
        }
        Event::Trainable(i, trainable) => env.params()?[i].set_trainable(trainable)?,
        Event::Draw => drop(rand(&Tensor::zeros((3,), DType::F32, &env.device)?)?),
        Event::Seed(seed) => random::manual_seed(seed),
        Event::PutBack => random::set_state(start),
        Event::Flush => env.device.flush(),
        Event::Synchronize => env.device.synchronize()?,
        Event::Scope(seed) => scope.set(Some(seed)),
    }
    Ok(())
}
