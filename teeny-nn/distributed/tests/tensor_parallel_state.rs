//! Seeds, sizes and states of models that are split over ranks, and the errors about them.

use crate::ranks::{close, device, on_ranks, values};
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad, grad, jvp};
use teeny_core::random::with_seed;
use teeny_core::{DType, DeviceRef, Lazy, Reference, Tensor};
use teeny_distributed::{
    ColumnParallelLinear, Communicator, DataParallel, Reduce, RowParallelLinear, TensorParallel,
    Threads, Zero,
};
use teeny_formats::Mapping;
use teeny_nn::attention::{AttentionOptions, MultiheadAttentionOptions};
use teeny_nn::loss::cross_entropy;
use teeny_nn::optim::Sgd;
use teeny_nn::state::Stateful;
use teeny_nn::{
    CachedLm, GptConfig, Init, Linear, LinearOptions, Module, MultiheadAttention, Store,
};

#[test]
fn the_part_of_one_rank_is_not_taken_for_the_whole() {
    on_ranks(2, 1, |_, parallel| {
        let mut store = Store::new(device());
        ColumnParallelLinear::with_options(
            &store.at("fc"),
            parallel,
            3,
            4,
            LinearOptions::default(),
        )?;
        let (own, whole) = (store.state()?, parallel.gather(&store)?);
        for error in [
            parallel.scatter(&own).unwrap_err(),
            parallel.gather(&whole).unwrap_err(),
            parallel.load_from(&store, &own, &Mapping::new()).map(|_| ()).unwrap_err(),
        ] {
            assert!(error.message().contains("\"fc.bias\" is ["), "{error}");
            assert!(error.to_string().contains("gather takes the parts"), "{error}");
        }
        let error = store.set_state(&whole).unwrap_err().to_string();
        assert!(error.contains("fc.weight"), "{error}");
        store.set_state(&parallel.scatter(&whole)?)
    })
    .unwrap();
}

#[test]
fn sizes_that_the_ranks_do_not_divide_are_errors() {
    on_ranks(3, 1, |_, parallel| {
        let store = Store::new(device());
        let errors = [
            ColumnParallelLinear::with_options(
                &store.at("a"),
                parallel,
                6,
                4,
                LinearOptions::default(),
            )
            .map(|_| ())
            .unwrap_err(),
            RowParallelLinear::with_options(
                &store.at("b"),
                parallel,
                4,
                6,
                LinearOptions::default(),
            )
            .map(|_| ())
            .unwrap_err(),
        ];
        let texts =
            ["weight (4, 6) cannot be split along axis 0", "(6, 4) cannot be split along axis 1"];
        for (error, text) in errors.iter().zip(texts) {
            let error = error.to_string();
            assert!(error.contains(text) && error.contains("tensor_parallel_state.rs:"), "{error}");
            assert!(error.contains("4 is not a multiple of the 3 ranks"), "{error}");
            assert!(error.contains("number of tensor-parallel ranks that divides 4"), "{error}");
        }
        let config = GptConfig::new(11, 8, 1, 4, 24);
        let error = parallel.gpt(&store.root(), config).err().unwrap();
        assert!(error.message().contains("4 key heads cannot be split over 3 ranks"), "{error}");
        assert!(store.all().is_empty(), "an error leaves no parameters");
        Ok(())
    })
    .unwrap();
}

#[test]
fn weights_of_different_heads_are_dropped_independently() {
    let n = 64;
    let outputs = on_ranks(2, 3, |_, parallel| {
        let store = Store::new(device());
        let (qkv, out, root) = (store.at("qkv"), store.at("out"), store.root());
        let options = LinearOptions::new().with_weight_init(Init::ZEROS);
        let qkv = ColumnParallelLinear::with_parts(&qkv, parallel, 2, &[2, 2, 2], options)?;
        qkv.linear.weight.set(&Tensor::ones((3, 2), DType::F32, device())?)?;
        let out = RowParallelLinear::with_options(&out, parallel, 2, 2, options)?;
        // each rank's head is one output
        let rank = parallel.rank();
        let column = Tensor::new([[1 - rank as i32], [rank as i32]], device())?; // (2, 1)
        out.linear.weight.set(&column)?;
        let options = MultiheadAttentionOptions::new().with_dropout(0.5);
        let (qkv, out, ranks) = (qkv.linear, out.linear, Arc::new(parallel.clone()));
        let layer = MultiheadAttention::from_ranks(&root, qkv, out, 2, options, ranks)?;
        let x = Tensor::ones((1, n, 2), DType::F32, device())?;
        layer.attend(&x, AttentionOptions::new())?.squeeze(0)?.t()?.to_vec::<f32>()
    })
    .unwrap();
    assert_eq!(outputs[0], outputs[1]);
    assert_ne!(outputs[0][..n], outputs[0][n..]);
}

#[test]
fn ranks_with_other_seeds_or_weights_are_reported() {
    let error = Threads::run(2, |comm| {
        let seed = 5 + comm.rank() as u64;
        with_seed(seed, || TensorParallel::new(Arc::new(comm.clone()))).map(|_| ())
    })
    .unwrap_err();
    let text = "seed of the random generator is 5 after 0 draws on rank 0, but 6 after 0";
    assert!(error.message().contains(text), "{error}");
    let error = on_ranks(3, 1, |_, parallel| {
        let store = Store::new(device());
        let layer = RowParallelLinear::with_options(
            &store.at("fc"),
            parallel,
            3,
            2,
            LinearOptions::default(),
        )?;
        let bias = layer.linear.bias.as_ref().unwrap();
        bias.set(&Tensor::full((2,), parallel.rank() as f64, DType::F32, device())?)?;
        parallel.require_replicas(&store)
    })
    .unwrap_err();
    let text = "\"fc.bias\" is replicated, but 2 of 3 ranks have another value than rank 0";
    assert!(error.message().contains(text), "{error}");
}

#[test]
fn gradients_that_are_not_finite_are_named_on_every_rank() {
    let errors = on_ranks(2, 1, |_, parallel| {
        let store = Store::new(device());
        let layer = ColumnParallelLinear::with_options(
            &store.at("fc"),
            parallel,
            3,
            4,
            LinearOptions::default(),
        )?;
        let x = Tensor::ones((1, 3), DType::F32, device())?;
        let factor = if parallel.rank() == 1 { f64::INFINITY } else { 1.0 };
        let mut gradients = layer.forward(&x)?.mul(factor)?.sum_all()?.backward()?;
        Ok(parallel.clip_grad_norm(&mut gradients, &store.trainable(), 1.0).unwrap_err())
    })
    .unwrap();
    for error in errors {
        assert!(error.message().contains("not finite: \"fc.weight\""), "{error}");
    }
}

#[test]
fn second_derivatives_pass_the_ranks() {
    let device: DeviceRef = Reference::new();
    let x = Tensor::new([[0.3f64, -0.7]], &device).unwrap(); // (1, 2)
    // the gradient of the squared norm of a gradient
    let second = |layers: [&dyn Module; 2]| {
        let y = |x: &Tensor| layers[1].forward(&layers[0].forward(x)?.tanh()?)?.sum_all();
        grad(|x| grad(y, x)?.square()?.sum_all(), &x)
    };
    let plain = with_seed(1, || {
        let store = Store::with_dtype(&device, DType::F64);
        let a = Linear::new(&store.at("a"), 2, 4).unwrap();
        let b = Linear::new(&store.at("b"), 4, 1).unwrap();
        second([&a, &b]).unwrap()
    });
    assert!(values(&plain).iter().all(|x| x.abs() > 1e-6), "{plain:?}");
    on_ranks(2, 1, |_, parallel| {
        let store = Store::with_dtype(&device, DType::F64);
        let a = ColumnParallelLinear::with_options(
            &store.at("a"),
            parallel,
            2,
            4,
            LinearOptions::default(),
        )?;
        let b = RowParallelLinear::with_options(
            &store.at("b"),
            parallel,
            4,
            1,
            LinearOptions::default(),
        )?;
        close("gradient", &second([&a, &b])?, &plain, 1e-12);
        let error = jvp(|x| parallel.sum(x), &x, &x).unwrap_err();
        assert!(error.message().contains("no directional derivative"), "{error}");
        Ok(())
    })
    .unwrap();
}

#[test]
fn ranks_that_share_a_model_run_each_step() {
    let device: DeviceRef = Autograd::new(Lazy::new(teeny_nn::device("cpu").unwrap()));
    let config = GptConfig::new(11, 8, 1, 2, 4);
    let make = |_: &Threads, parallel: &TensorParallel| {
        let store = Store::new(&device);
        let gpt = parallel.gpt(&store.root(), config)?;
        store.set_training(false);
        let tokens = Tensor::new([[1i32, 2]], &device)?;
        let (mut text, mut logits) = (CachedLm::new(&gpt), Vec::new());
        for _ in 0..6 {
            let last = if text.is_empty() { tokens.clone() } else { tokens.slice(1, 1..)? };
            logits.extend(text.next(&last)?.to_vec::<f32>()?);
        }
        Ok((text.is_replaying(), logits))
    };
    let one = on_ranks(1, 1, make).unwrap();
    let two = on_ranks(2, 1, make).unwrap();
    assert!(one[0].0);
    for ((replays, logits), (_, expected)) in two.iter().zip(one.iter().cycle()) {
        assert!(!replays, "a recorded step would wait for messages of other ranks");
        assert_eq!(logits.len(), expected.len());
        assert!(logits.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

#[test]
fn sums_of_gradients_in_16_bits_are_rounded_once() {
    on_ranks(3, 1, |_, parallel| {
        let x = Tensor::new([1.0f32], device())?.cast(DType::BF16)?.requires_grad()?;
        let factors = [256.0, 1.0, 1.0];
        let y = parallel.copy(&x)?.mul(factors[parallel.rank()])?;
        let g = y.sum_all()?.backward()?.get(&x)?.clone();
        assert_eq!((g.dtype(), values(&g)), (DType::BF16, vec![258.0]));
        let comm = parallel.comm();
        assert_eq!(values(&comm.all_reduce(&g, Reduce::Max)?), [258.0]);
        Ok(())
    })
    .unwrap();
}

#[test]
fn divided_state_of_divided_models_is_clipped_by_the_norm_of_the_whole_model() {
    let config = GptConfig::new(11, 8, 2, 2, 16);
    let run = |comm: Threads, split: bool| {
        with_seed(5, || {
            let comm: Arc<dyn Communicator> = Arc::new(comm);
            let model = comm.split(if split { comm.rank() / 2 } else { comm.rank() })?;
            let data = comm.split(if split { comm.rank() % 2 } else { 0 })?;
            let parallel = TensorParallel::new(model)?;
            let store = Store::new(device());
            let gpt = parallel.gpt(&store.root(), config)?;
            let data = DataParallel::new(&store, &data)?;
            let mut zero = Zero::new(data, |params| Sgd::new(params, 0.1))?;
            zero = zero.tensor_parallel(&parallel);
            let mut norms = Vec::new();
            for step in 0..3 {
                let tokens: Vec<i32> = (0..8).map(|i| (i * 5 + step) % 11).collect();
                let tokens = Tensor::from_vec(tokens, (1, 8), store.device())?; // (B, T)
                let targets = tokens.flatten(0, 1)?.add(1)?.rem(11)?; // (B T)
                let loss = cross_entropy(&gpt.logits(&tokens)?.flatten(0, 1)?, &targets)?;
                let (_, mut gradients) = zero.backward(&loss)?;
                norms.push(zero.clip_grad_norm(&mut gradients, 0.01)?);
                zero.step(&gradients)?;
            }
            parallel.require_replicas(&store)?;
            Ok(norms)
        })
    };
    let whole = Threads::run(1, |comm| run(comm, false)).unwrap().remove(0);
    assert!(whole.iter().all(|norm| *norm > 0.1), "{whole:?} are clipped");
    for norms in Threads::run(4, |comm| run(comm, true)).unwrap() {
        for (a, b) in norms.iter().zip(&whole) {
            assert!((a - b).abs() < 1e-5 * b, "{norms:?} {whole:?}");
        }
    }
}
