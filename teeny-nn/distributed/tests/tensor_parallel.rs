//! Models that are split over ranks, against the same models on one rank.

use crate::ranks::{close, device, on_ranks};
use std::sync::Arc;
use teeny_autograd::{Grad, Gradients};
use teeny_core::random::{self, with_seed};
use teeny_core::{DType, IntoShape, Result, Tensor};
use teeny_distributed::{ColumnParallelLinear, Communicator, RowParallelLinear, TensorParallel};
use teeny_formats::{Mapping, SafeTensors, State};
use teeny_nn::attention::{AttentionOptions, MultiheadAttentionOptions};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::{AdamW, Optimizer, clip_grad_norm};
use teeny_nn::state::{Checkpoint, Stateful};
use teeny_nn::{Gpt, GptConfig, Linear, LinearOptions, Module, MultiheadAttention, Store};

fn same(what: &str, own: &State, expected: &State, tolerance: f64) {
    let (names, expected_names): (Vec<_>, Vec<_>) =
        (own.tensors.keys().collect(), expected.tensors.keys().collect());
    assert_eq!((names, &own.values), (expected_names, &expected.values), "{what}");
    for (name, expected) in &expected.tensors {
        close(&format!("{what} {name}"), &own.tensors[name], expected, tolerance);
    }
}

fn random(shape: impl IntoShape, dtype: DType) -> Tensor {
    Tensor::randn(shape, dtype, device()).unwrap()
}

fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-12 } else { 1e-5 }
}

/// The gradients of all trainable parameters, by name.
fn grads(store: &Store, gradients: &Gradients) -> Result<State> {
    let mut state = State::default();
    for param in store.trainable() {
        state.tensors.insert(param.name().to_string(), gradients.get(&param.value())?.clone());
    }
    Ok(state)
}

#[test]
fn a_pair_of_layers_is_the_pair_of_plain_layers() {
    let cases = [([2, 3], [4, 12, 5]), ([1, 1], [1, 24, 1]), ([5, 0], [3, 12, 2])];
    for ranks in 1..=4 {
        for (seed, (batch, [inputs, hidden, outputs])) in (3..).zip(cases) {
            for (dtype, bias) in [(DType::F32, true), (DType::F64, true), (DType::F32, false)] {
                let options = LinearOptions::new().with_bias(bias);
                let x = with_seed(1, || random([batch[0], batch[1], inputs], dtype));
                let g = with_seed(2, || random([batch[0], batch[1], outputs], dtype));
                let train = |store: &Store, layers: [&dyn Module; 2]| -> Result<_> {
                    let x = x.requires_grad()?;
                    let y = layers[1].forward(&layers[0].forward(&x)?.gelu()?)?;
                    let gradients = y.mul(&g)?.sum_all()?.backward()?;
                    Ok((y.detach()?, gradients.get(&x)?.clone(), grads(store, &gradients)?))
                };
                let (whole, expected) = with_seed(seed, || {
                    let store = Store::with_dtype(device(), dtype);
                    let a = Linear::with_options(&store.at("a"), inputs, hidden, options).unwrap();
                    let b = Linear::with_options(&store.at("b"), hidden, outputs, options).unwrap();
                    (store.state().unwrap(), train(&store, [&a, &b]).unwrap())
                });
                on_ranks(ranks, seed, |_, parallel| {
                    let store = Store::with_dtype(device(), dtype);
                    let (first, second) = (store.at("a"), store.at("b"));
                    let a = ColumnParallelLinear::with_options(
                        &first, parallel, inputs, hidden, options,
                    )?;
                    let b = RowParallelLinear::with_options(
                        &second, parallel, hidden, outputs, options,
                    )?;
                    assert_eq!(a.linear.weight.value().shape()[..], [hidden / ranks, inputs]);
                    assert_eq!(b.linear.weight.value().shape()[..], [outputs, hidden / ranks]);
                    same("initial weights", &parallel.gather(&store)?, &whole, 0.0);
                    let (y, dx, own) = train(&store, [&a, &b])?;
                    close("y", &y, &expected.0, tolerance(dtype));
                    close("dx", &dx, &expected.1, tolerance(dtype));
                    same("gradients", &parallel.gather(&own)?, &expected.2, tolerance(dtype));
                    // the part of the whole is the part
                    same("part", &parallel.scatter(&whole)?, &store.state()?, 0.0);
                    parallel.require_replicas(&store)
                })
                .unwrap();
            }
        }
    }
}

#[test]
fn attention_is_split_by_heads() {
    for ranks in 1..=4 {
        for (n_head, n_kv_head) in [(ranks, ranks), (4 * ranks, 2 * ranks), (2 * ranks, ranks)] {
            let (hs, b, t, s) = (3, 2, 4, 5);
            let n = n_head * hs;
            let kv = n_kv_head * hs;
            let options = MultiheadAttentionOptions::new().with_n_kv_head(n_kv_head);
            let linear = LinearOptions::new();
            let (x, context) =
                with_seed(1, || (random([b, t, n], DType::F64), random([b, s, n], DType::F64)));
            let mask = with_seed(2, || random([b, n_head, t, t], DType::F64));
            let train = |store: &Store, layer: &MultiheadAttention| -> Result<_> {
                let (x, context) = (x.requires_grad()?, context.requires_grad()?);
                assert_eq!((layer.n_head(), layer.n_kv_head()), (n_head, n_kv_head));
                let y = layer.attend(&x, AttentionOptions::causal().with_mask(&mask))?;
                let z = layer.attend_to(&y, &context, AttentionOptions::new())?;
                let gradients = z.square()?.sum_all()?.backward()?;
                let dx = [gradients.get(&x)?.clone(), gradients.get(&context)?.clone()];
                Ok((z.detach()?, dx, grads(store, &gradients)?))
            };
            let expected = with_seed(5, || {
                let store = Store::with_dtype(device(), DType::F64);
                let qkv = Linear::new(&store.at("qkv"), n, n + 2 * kv).unwrap();
                let out = Linear::new(&store.at("out"), n, n).unwrap();
                let layer =
                    MultiheadAttention::from_linear(&store.root(), qkv, out, n_head, options);
                train(&store, &layer.unwrap()).unwrap()
            });
            on_ranks(ranks, 5, |_, parallel| {
                let store = Store::with_dtype(device(), DType::F64);
                let (qkv, out, root) = (store.at("qkv"), store.at("out"), store.root());
                let parts = [n, kv, kv];
                let qkv = ColumnParallelLinear::with_parts(&qkv, parallel, n, &parts, linear)?;
                let out = RowParallelLinear::with_options(
                    &out,
                    parallel,
                    n,
                    n,
                    LinearOptions::default(),
                )?;
                let (qkv, out, ranks) = (qkv.linear, out.linear, Arc::new(parallel.clone()));
                let layer =
                    MultiheadAttention::from_ranks(&root, qkv, out, n_head, options, ranks)?;
                let (z, dx, own) = train(&store, &layer)?;
                close("z", &z, &expected.0, 1e-12);
                for (own, expected) in dx.iter().zip(&expected.1) {
                    close("dx", own, expected, 1e-12);
                }
                same("gradients", &parallel.gather(&own)?, &expected.2, 1e-12);
                Ok(())
            })
            .unwrap();
        }
    }
}

/// Tokens and targets of step `i`.
fn batch(i: u64) -> (Tensor, Tensor) {
    with_seed(100 + i, || {
        let tokens = Tensor::randint(0, 11, (2, 7), DType::I32, device()).unwrap();
        (tokens.slice(1, ..6).unwrap(), tokens.slice(1, 1..).unwrap())
    })
}

fn loss(gpt: &Gpt, i: u64) -> Result<Tensor> {
    let (tokens, targets) = batch(i);
    cross_entropy(&gpt.logits(&tokens)?.flatten(0, 1)?, &targets.flatten(0, 1)?)
}

fn config(tied: bool, bias: bool) -> GptConfig {
    GptConfig::new(11, 8, 2, 12, 24).with_tied(tied).with_bias(bias)
}

/// A model after some steps, and what it generates.
struct Trained {
    initial: State,
    gradients: State,
    losses: Vec<f64>,
    norms: Vec<f64>,
    model: State,
    optimizer: State,
    tokens: Vec<i32>,
}

/// Trains from step `from`; `parallel` is None for a plain model.
fn train(
    parallel: Option<&TensorParallel>,
    config: GptConfig,
    dtype: DType,
    resume: Option<&Trained>,
) -> Result<Trained> {
    let mut store = Store::with_dtype(device(), dtype);
    let gpt = match parallel {
        Some(parallel) => parallel.gpt(&store.root(), config)?,
        None => Gpt::new(&store.root(), config)?,
    };
    let whole = |part: &dyn Stateful| match parallel {
        Some(parallel) => parallel.gather(part),
        None => part.state(),
    };
    let own = |state: &State| match parallel {
        Some(parallel) => parallel.scatter(state),
        None => Ok(state.clone()),
    };
    let initial = whole(&store)?;
    let mut optimizer = AdamW::new(store.trainable(), 1e-2).weight_decay(0.1);
    if let Some(trained) = resume {
        store.set_state(&own(&trained.model)?)?;
        optimizer.set_state(&own(&trained.optimizer)?)?;
    }
    let (mut losses, mut norms, mut first) = (Vec::new(), Vec::new(), None);
    for i in 0..4 {
        let loss = loss(&gpt, i)?;
        let mut gradients = loss.backward()?;
        if first.is_none() {
            first = Some(whole(&grads(&store, &gradients)?)?);
        }
        norms.push(match parallel {
            Some(parallel) => parallel.clip_grad_norm(&mut gradients, &store.trainable(), 0.5)?,
            None => clip_grad_norm(&mut gradients, &store.trainable(), 0.5)?,
        });
        optimizer.step(&gradients)?;
        losses.push(loss.to_scalars()?[0].to_f64());
    }
    store.set_training(false);
    let prompt = batch(9).0.slice(1, ..2)?;
    // beyond the context of 8
    let tokens = gpt.generate(&prompt, 9, |logits| logits.argmax(-1))?.to_vec::<i32>()?;
    Ok(Trained {
        initial,
        gradients: first.unwrap_or_default(),
        losses,
        norms,
        model: whole(&store)?,
        optimizer: whole(&optimizer)?,
        tokens,
    })
}

fn agrees(own: &Trained, expected: &Trained, tolerance: f64) {
    same("initial weights", &own.initial, &expected.initial, 0.0);
    same("gradients", &own.gradients, &expected.gradients, tolerance);
    for (a, b) in own.losses.iter().zip(&expected.losses) {
        assert!((a - b).abs() < tolerance * b, "{:?} {:?}", own.losses, expected.losses);
    }
    for (a, b) in own.norms.iter().zip(&expected.norms) {
        assert!((a - b).abs() < 10.0 * tolerance * b, "{:?} {:?}", own.norms, expected.norms);
    }
    // Adam divides small gradients by their size, and so magnifies their errors
    same("weights", &own.model, &expected.model, 1e4 * tolerance);
    same("moments", &own.optimizer, &expected.optimizer, 1e4 * tolerance);
    assert_eq!(own.tokens, expected.tokens);
}

#[test]
fn a_gpt_trains_and_generates_as_on_one_rank() {
    for (tied, bias, dtype) in
        [(true, true, DType::F64), (false, false, DType::F64), (true, true, DType::F32)]
    {
        let expected = with_seed(7, || train(None, config(tied, bias), dtype, None)).unwrap();
        for ranks in 1..=4 {
            let all = on_ranks(ranks, 7, |_, parallel| {
                train(Some(parallel), config(tied, bias), dtype, None)
            })
            .unwrap();
            let tolerance = if dtype == DType::F64 { 1e-12 } else { 2e-5 };
            if dtype == DType::F64 {
                agrees(&all[0], &expected, tolerance);
            } else {
                same("gradients", &all[0].gradients, &expected.gradients, tolerance);
            }
            for rank in &all {
                assert_eq!((&rank.losses, &rank.norms), (&all[0].losses, &all[0].norms));
                assert_eq!(rank.tokens, all[0].tokens);
                same("all ranks", &rank.model, &all[0].model, 0.0);
            }
        }
    }
}

#[test]
fn a_run_goes_on_with_any_number_of_ranks() {
    let config = config(true, true);
    let run = |ranks: usize, resume: Option<&Trained>| -> Trained {
        if ranks == 0 {
            return with_seed(7, || train(None, config, DType::F64, resume)).unwrap();
        }
        let all =
            on_ranks(ranks, 7, |_, parallel| train(Some(parallel), config, DType::F64, resume));
        all.unwrap().remove(0)
    };
    // 0 is the plain model
    let expected = run(0, Some(&run(0, None)));
    for (first, second) in [(0, 3), (3, 0), (2, 4), (4, 2), (1, 3)] {
        agrees(&run(second, Some(&run(first, None))), &expected, 1e-12);
    }
}

#[test]
fn files_have_whole_parameters() {
    let folder = std::env::temp_dir().join(format!("teeny-parallel-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (plain, gathered) = (folder.join("plain.safetensors"), folder.join("gathered.ckpt"));
    let config = config(true, true);
    let store = Store::with_dtype(device(), DType::F64);
    let logits = with_seed(1, || {
        let gpt = Gpt::new(&store.root(), config).unwrap();
        store.save(&plain).unwrap();
        gpt.logits(&batch(0).0).unwrap()
    });
    // Hugging Face's layout: other names, and transposed matrices
    let theirs: Vec<(String, Tensor)> = store
        .all()
        .iter()
        .map(|p| {
            let conv1d = ["c_attn.weight", "c_proj.weight", "c_fc.weight"];
            let (name, value) = (p.name(), p.value().detach().unwrap());
            let transposed = conv1d.iter().any(|end| name.ends_with(end));
            let value = if transposed { value.t().unwrap().contiguous().unwrap() } else { value };
            (format!("transformer.{name}"), value)
        })
        .collect();
    let theirs = State { tensors: theirs.into_iter().collect(), ..State::default() };
    for ranks in [1, 2, 3] {
        on_ranks(ranks, 2, |comm, parallel| {
            let own = Store::with_dtype(device(), DType::F64);
            let gpt = parallel.gpt(&own.root(), config)?;
            let file = SafeTensors::open(&plain)?;
            for i in 0..2 {
                own.all().iter().try_for_each(|p| p.set(&p.value().mul(0.0)?))?;
                let report = match i {
                    0 => parallel.load_from(&own, &file, &Mapping::new())?,
                    _ => parallel.load_from(&own, &theirs, &Mapping::gpt2())?,
                };
                assert_eq!(report.loaded.len(), own.all().len());
                close("logits", &gpt.logits(&batch(0).0)?, &logits, 1e-12);
            }
            // a model of this rank's own file draws no weights either
            let part = Arc::new(SafeTensors::from_bytes(own.to_bytes()?)?);
            let again = Store::with_dtype(device(), DType::F64);
            let (gpt, _) =
                again.build_from(part, &Mapping::new(), |root| parallel.gpt(root, config))?;
            close("logits of the rank's file", &gpt.logits(&batch(0).0)?, &logits, 1e-12);
            let mut checkpoint = Checkpoint::new();
            checkpoint.put("model", &parallel.gather(&own)?)?;
            if comm.rank() == 0 {
                checkpoint.save(&gathered)?;
            }
            comm.barrier()
        })
        .unwrap();
        let checkpoint = Checkpoint::load(&gathered, device()).unwrap();
        same("checkpoint", checkpoint.part("model").unwrap(), &store.state().unwrap(), 0.0);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn dropout_is_the_same_where_activations_are_replicated() {
    for ranks in [1, 2, 3] {
        let config = config(true, true).with_dropout(0.3);
        on_ranks(ranks, 3, |comm, parallel| {
            let store = Store::new(device());
            let gpt = parallel.gpt(&store.root(), config)?;
            let mut optimizer = AdamW::new(store.trainable(), 1e-3);
            for i in 0..3 {
                let loss = loss(&gpt, i)?;
                comm.require_same("the loss", &loss.item::<f32>()?)?;
                optimizer.step(&loss.backward()?)?;
                parallel.require_replicas(&store)?;
                comm.require_same("the generator", &format!("{:?}", random::state()))?;
            }
            Ok(())
        })
        .unwrap();
    }
    // one rank draws what the plain model draws
    let plain =
        with_seed(3, || train(None, config(true, true).with_dropout(0.3), DType::F64, None));
    let one = on_ranks(1, 3, |_, parallel| {
        train(Some(parallel), config(true, true).with_dropout(0.3), DType::F64, None)
    });
    agrees(&one.unwrap()[0], &plain.unwrap(), 1e-15);
}
