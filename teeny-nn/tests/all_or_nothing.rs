//! Every method that changes an object, run on a device that fails its k-th request, for every k.
//! After the error the object is unchanged, and a second call returns the same bits as one without
//! a failure.

use crate::common::{Folder, device};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use teeny_autograd::{Autograd, Grad, Gradients};
use teeny_core::wrappers::{Faulty, Lasting, Request};
use teeny_core::{DType, DeviceRef, ErrorKind, Reference, Result, Tensor, ToDevice, random};
use teeny_formats::{Mapping, SafeTensors, State};
use teeny_nn::attention::KvCache;
use teeny_nn::norm::{GroupNorm, InstanceNorm, InstanceNormOptions};
use teeny_nn::optim::{
    Adagrad, Adam, AdamW, Ema, Lamb, Lars, LossScale, Muon, Optimizer, RmsProp, Sgd,
    clip_grad_norm, clip_grad_value,
};
use teeny_nn::recurrent::RecurrentOptions;
use teeny_nn::state::{Checkpoint, Stateful};
use teeny_nn::train::{Confusion, Losses};
use teeny_nn::transformer::{TransformerConfig, TransformerDecoderLayer};
use teeny_nn::{
    BatchNorm, Embedding, EmbeddingOptions, Gpt, GptConfig, Gru, Init, LayerNorm, Linear,
    LinearOptions, Lstm, Module, MultiheadAttention, Param, Rnn, Store,
};
use teeny_text::{ByteTokenizer, DecodeStream, Tokenizer};

/// A device that fails chosen requests, and an autograd device over it.
fn faulty() -> (Arc<Faulty>, DeviceRef) {
    faulty_over(&device())
}

fn faulty_over(device: &DeviceRef) -> (Arc<Faulty>, DeviceRef) {
    let faulty = Faulty::new(device);
    (faulty.clone(), Autograd::new(faulty))
}

/// The device of the tests, and one on which parameters are updated together.
fn devices() -> [DeviceRef; 2] {
    [device(), Reference::new()]
}

/// Fails every request of `act` in turn. `state` is the whole observable state of the object.
#[track_caller]
fn all_or_nothing<T, R>(
    what: &str,
    make: impl Fn(&DeviceRef) -> T,
    state: impl Fn(&T) -> Vec<u8>,
    act: impl Fn(&mut T) -> Result<R>,
) {
    all_or_nothing_on(&device(), what, make, state, act);
}

#[track_caller]
fn all_or_nothing_on<T, R>(
    device: &DeviceRef,
    what: &str,
    make: impl Fn(&DeviceRef) -> T,
    state: impl Fn(&T) -> Vec<u8>,
    act: impl Fn(&mut T) -> Result<R>,
) {
    // every run draws the same random numbers
    let act = |object: &mut T| random::with_seed(5, || act(object).map(|_| ()));
    let fresh = || {
        let (faulty, device) = faulty_over(device);
        let object = random::with_seed(3, || make(&device));
        (faulty, object)
    };
    let (faulty, mut object) = fresh();
    let before = state(&object);
    faulty.fail(Request::Any, u64::MAX, ErrorKind::OutOfMemory, Lasting::Once);
    act(&mut object).unwrap_or_else(|e| panic!("{what}, undisturbed: {e}"));
    let requests = faulty.requests(Request::Any);
    let after = state(&object);
    assert!(requests > 0, "{what} asks the device for nothing");
    for k in 0..requests {
        let (faulty, mut object) = fresh();
        assert!(state(&object) == before, "{what} begins the same every time");
        faulty.fail(Request::Any, k, ErrorKind::OutOfMemory, Lasting::Once);
        let error = act(&mut object).expect_err(what);
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{what}: {error}");
        assert!(
            state(&object) == before,
            "{what}: request {k} of {requests} failed and left something changed"
        );
        act(&mut object).unwrap_or_else(|e| panic!("{what}, again after request {k}: {e}"));
        assert!(
            state(&object) == after,
            "{what}: a second try after request {k} of {requests} differs from an undisturbed one"
        );
    }
}

/// A state as bytes: names, values and elements.
fn bytes(state: &State) -> Vec<u8> {
    let mut all = format!("{:?}", state.values).into_bytes();
    for (name, tensor) in &state.tensors {
        all.extend(name.bytes());
        all.extend(tensor.to_bytes().unwrap());
    }
    all
}

fn of(part: &dyn Stateful) -> Vec<u8> {
    bytes(&part.state().unwrap())
}

fn normal(shape: &[usize], seed: u64, device: impl ToDevice) -> Tensor {
    random::with_seed(seed, || Tensor::randn(shape, DType::F32, device)).unwrap()
}

// optimizers

fn optimizers(params: &[Param]) -> Vec<(&'static str, Box<dyn Optimizer>)> {
    let all = || params.to_vec();
    vec![
        ("sgd", Box::new(Sgd::new(all(), 0.1).weight_decay(0.1))),
        ("momentum", Box::new(Sgd::new(all(), 0.1).momentum(0.9).master_weights(true))),
        ("adam", Box::new(Adam::new(all(), 0.1).master_weights(true).maximize(true))),
        ("amsgrad", Box::new(AdamW::new(all(), 0.1).amsgrad(true))),
        (
            "rmsprop",
            Box::new(RmsProp::new(all(), 0.1).centered(true).momentum(0.9).master_weights(true)),
        ),
        ("adagrad", Box::new(Adagrad::new(all(), 0.1).lr_decay(0.1))),
        ("lamb", Box::new(Lamb::new(all(), 0.1))),
        ("lars", Box::new(Lars::new(all(), 0.1).master_weights(true))),
        ("muon", Box::new(Muon::new(all(), 0.1).unwrap())),
    ]
}

struct Training {
    store: Store,
    layer: [Linear; 2],
    optimizer: Box<dyn Optimizer>,
    x: Tensor,
}

impl Training {
    fn new(device: &DeviceRef, dtype: DType, which: usize) -> Training {
        let store = Store::with_dtype(device, dtype);
        let layer = [
            Linear::with_options(&store.at("a"), 5, 4, LinearOptions::new().with_bias(false))
                .unwrap(),
            Linear::with_options(&store.at("b"), 4, 3, LinearOptions::new().with_bias(false))
                .unwrap(),
        ];
        let optimizer = optimizers(&store.trainable()).swap_remove(which).1;
        let x = normal(&[6, 5], 1, device).cast(dtype).unwrap();
        let mut new = Training { store, layer, optimizer, x };
        new.step().unwrap(); // so that there is a state to lose
        new
    }

    fn loss(&self) -> Result<Tensor> {
        self.layer[1].forward(&self.layer[0].forward(&self.x)?.tanh()?)?.square()?.sum_all()
    }

    fn step(&mut self) -> Result<()> {
        let gradients = self.loss()?.backward()?;
        self.optimizer.step(&gradients)
    }

    fn state(&self) -> Vec<u8> {
        [of(&self.store), of(&self.optimizer)].concat()
    }
}

#[test]
fn a_step_of_every_optimizer() {
    for dtype in [DType::F32, DType::BF16] {
        for (which, name) in optimizers(&[]).into_iter().map(|(name, _)| name).enumerate() {
            for device in devices() {
                all_or_nothing_on(
                    &device,
                    &format!("{name} {dtype} on {}", device.info().name),
                    |d| Training::new(d, dtype, which),
                    Training::state,
                    Training::step,
                );
            }
        }
    }
}

#[test]
fn gradients_of_before_a_failed_step_are_still_those_of_the_parameters() {
    // Two gradients are negated, and two parameters are updated: each, or both by one request.
    for (device, requests) in devices().iter().zip([4, 3]) {
        let (faulty, device) = faulty_over(device);
        let mut training = Training::new(&device, DType::F32, 2);
        let gradients = training.loss().unwrap().backward().unwrap();
        let before = training.state();
        let mut k = 0;
        loop {
            faulty.fail(Request::Any, k, ErrorKind::OutOfMemory, Lasting::Once);
            let result = training.optimizer.step(&gradients);
            faulty.heal();
            if result.is_ok() {
                break;
            }
            assert!(training.state() == before);
            k += 1;
        }
        assert_eq!(k, requests);
        assert!(training.state() != before);
    }
}

#[test]
fn clipping_scaling_and_averages() {
    let clipped = |clip: fn(&mut Gradients, &[Param]) -> Result<()>| {
        move |(training, gradients): &mut (Training, Gradients)| {
            clip(gradients, &training.store.trainable())
        }
    };
    let make = |d: &DeviceRef| {
        let training = Training::new(d, DType::F32, 0);
        let gradients = training.loss().unwrap().backward().unwrap();
        (training, gradients)
    };
    let state = |(training, gradients): &(Training, Gradients)| -> Vec<u8> {
        training
            .store
            .trainable()
            .iter()
            .flat_map(|p| gradients.get(&p.value()).unwrap().to_bytes().unwrap())
            .collect()
    };
    all_or_nothing(
        "clip_grad_norm",
        make,
        state,
        clipped(|g, p| clip_grad_norm(g, p, 0.01).map(|_| ())),
    );
    all_or_nothing("clip_grad_value", make, state, clipped(|g, p| clip_grad_value(g, p, 0.01)));

    let make = |d: &DeviceRef| {
        (Training::new(d, DType::F16, 2), LossScale::new().initial_factor(8.0).growth_interval(1))
    };
    all_or_nothing(
        "a scaled step",
        make,
        |(t, s)| [t.state(), of(s)].concat(),
        |(training, scale)| {
            let gradients = scale.apply(&training.loss()?)?.backward()?;
            scale.step(&mut training.optimizer, &gradients)
        },
    );

    let make = |d: &DeviceRef| {
        let mut training = Training::new(d, DType::BF16, 0);
        let mut ema = Ema::new(training.store.trainable(), 0.9).unwrap();
        training.step().unwrap();
        ema.update().unwrap();
        (training, ema)
    };
    let state = |(training, ema): &(Training, Ema)| [training.state(), of(ema)].concat();
    all_or_nothing("ema.update", make, state, |(_, ema)| ema.update());
    all_or_nothing("ema.swap", make, state, |(_, ema)| ema.swap());
    all_or_nothing("ema.applied", make, state, |(training, ema)| {
        ema.applied(|| training.loss()?.to_bytes())
    });
}

// stores and files

#[test]
fn loading_restoring_and_setting() {
    let folder = Folder::new("all-or-nothing");
    let (weights, run) = (folder.0.join("weights"), folder.0.join("run"));
    let saved = Training::new(&Autograd::new(device()).to_device(), DType::F32, 2);
    saved.store.save(&weights).unwrap();
    let mut checkpoint = Checkpoint::new();
    checkpoint.put("model", &saved.store).unwrap().put("optimizer", &saved.optimizer).unwrap();
    checkpoint.save(&run).unwrap();

    let other = |d: &DeviceRef| {
        let mut training = Training::new(d, DType::BF16, 2);
        training.step().unwrap();
        training
    };
    all_or_nothing("store.load", other, Training::state, |t| t.store.load(&weights));
    let mapping = || Mapping::new().transpose("*").strict(false);
    let transposed = |source: &Store| {
        let mut state = source.state().unwrap();
        state.tensors.values_mut().for_each(|t| *t = t.t().unwrap());
        state
    };
    all_or_nothing("store.load_from", other, Training::state, |t| {
        t.store.load_from(&transposed(&saved.store), &mapping())
    });
    all_or_nothing("SafeTensors::tensor", other, Training::state, |t| {
        SafeTensors::open(&weights)?.tensor("a.weight", t.store.device())
    });
    for part in ["model", "optimizer"] {
        all_or_nothing("checkpoint.restore", other, Training::state, |t| {
            let checkpoint = Checkpoint::load(&run, t.store.device())?;
            match part {
                "model" => checkpoint.restore(part, &mut t.store).map(|_| ()),
                _ => checkpoint.restore(part, &mut t.optimizer).map(|_| ()),
            }
        });
    }
    all_or_nothing("param.set", other, Training::state, |t| {
        let value =
            Tensor::from_vec((0..20).map(f64::from).collect(), (5, 4), t.store.device())?.t()?;
        t.store.get("a.weight")?.set(&value)
    });
    // a view of a larger tensor has to be copied to become a leaf
    let frozen = |d: &DeviceRef| {
        let training = other(d);
        let param = training.store.get("a.weight").unwrap();
        param.set_trainable(false).unwrap();
        let larger = normal(&[5, 5], 8, d).cast(DType::BF16).unwrap(); // (5, 5)
        param.set(&larger.slice(0, ..4).unwrap()).unwrap(); // (4, 5)
        training
    };
    let state = |t: &Training| {
        [t.state(), vec![u8::from(t.store.get("a.weight").unwrap().is_trainable())]].concat()
    };
    all_or_nothing("param.set_trainable", frozen, state, |t| {
        t.store.get("a.weight")?.set_trainable(true)
    });
}

#[test]
fn a_failed_save_leaves_the_former_file() {
    let folder = Folder::new("failed-save");
    let file = |path: &std::path::Path| std::fs::read(path).unwrap();
    let path = folder.0.join("run");
    let (faulty, device) = faulty();
    let mut training = Training::new(&device, DType::F32, 2);
    let save = |training: &Training| {
        let mut checkpoint = Checkpoint::new();
        checkpoint.put("model", &training.store)?.put("optimizer", &training.optimizer)?;
        checkpoint.save(&path)
    };
    save(&training).unwrap();
    let former = file(&path);
    training.step().unwrap();
    for k in 0.. {
        faulty.fail(Request::Any, k, ErrorKind::OutOfMemory, Lasting::Once);
        let result = save(&training);
        faulty.heal();
        assert_eq!(folder.files(), ["run"], "no unfinished file stays");
        if result.is_ok() {
            assert!(k > 3 && file(&path) != former);
            return;
        }
        assert!(file(&path) == former);
    }
}

#[test]
fn layers_that_cannot_be_made_leave_no_parameters() {
    type Make = fn(&Store) -> Result<()>;
    let layers: &[(&str, Make)] = &[
        ("linear", |s| Linear::new(&s.at("x"), 3, 2).map(drop)),
        ("conv", |s| teeny_nn::Conv2d::new(&s.at("x"), 3, 2, 3).map(drop)),
        ("conv_transpose", |s| teeny_nn::conv::ConvTranspose2d::new(&s.at("x"), 3, 2, 3).map(drop)),
        ("embedding", |s| Embedding::new(&s.at("x"), 3, 2).map(drop)),
        ("prelu", |s| teeny_nn::PRelu::new(&s.at("x")).map(drop)),
        ("batch_norm", |s| BatchNorm::new(&s.at("x"), 3).map(drop)),
        ("instance_norm", |s| {
            InstanceNorm::with_options(
                &s.at("x"),
                3,
                InstanceNormOptions::new().with_affine(true).with_track_running_stats(true),
            )
            .map(drop)
        }),
        ("group_norm", |s| GroupNorm::new(&s.at("x"), 3, 3).map(drop)),
        ("layer_norm", |s| LayerNorm::new(&s.at("x"), 3).map(drop)),
        ("rnn", |s| Rnn::new(&s.at("x"), 3, 2).map(drop)),
        ("gru", |s| {
            Gru::with_options(
                &s.at("x"),
                3,
                2,
                RecurrentOptions::new().with_num_layers(2).with_bidirectional(true),
            )
            .map(drop)
        }),
        ("lstm", |s| Lstm::new(&s.at("x"), 3, 2).map(drop)),
        ("lstm cell", |s| teeny_nn::recurrent::LstmCell::new(&s.at("x"), 3, 2).map(drop)),
        ("attention", |s| MultiheadAttention::new(&s.at("x"), 4, 2).map(drop)),
        ("encoder", |s| {
            teeny_nn::transformer::TransformerEncoderLayer::new(
                &s.at("x"),
                TransformerConfig::new(4, 2, 4),
            )
            .map(drop)
        }),
        ("decoder", |s| {
            TransformerDecoderLayer::new(&s.at("x"), TransformerConfig::new(4, 2, 4)).map(drop)
        }),
        ("gpt", |s| Gpt::new(&s.root(), GptConfig::new(5, 4, 2, 2, 4).with_tied(false)).map(drop)),
    ];
    for &(name, make) in layers {
        all_or_nothing(
            name,
            |d| {
                let store = Store::new(d);
                // a parameter outside the path whose name has the same prefix
                store.at("xx").param("weight", 2, Init::ONES).unwrap();
                store
            },
            |s| of(s),
            |s| make(s),
        );
    }
    let make = |d: &DeviceRef| {
        let store = Store::new(d);
        store.at("xx").param("weight", 2, Init::ONES).unwrap();
        store
    };
    let options = EmbeddingOptions::new().with_padding_idx(2);
    let layer = |s: &mut Store| Embedding::with_options(&s.at("x"), 4, 3, options);
    all_or_nothing("embedding with padding", make, |s| of(s), layer);
}

// layers with a state

#[test]
fn running_statistics() {
    let make = |d: &DeviceRef| {
        let store = Store::new(d);
        let norm = BatchNorm::new(&store.at("bn"), 3).unwrap();
        let x = normal(&[4, 3, 2, 2], 2, d);
        let _ = norm.forward(&x).unwrap();
        (store, norm, x)
    };
    all_or_nothing("batch_norm", make, |(s, ..)| of(s), |(_, norm, x)| norm.forward(x));
    let make = |d: &DeviceRef| {
        let store = Store::new(d);
        let options = InstanceNormOptions::new()
            .with_affine(true)
            .with_track_running_stats(true)
            .with_momentum(None);
        let norm = InstanceNorm::with_options(&store.at("in"), 3, options).unwrap();
        (store, norm, normal(&[4, 3, 2, 2], 2, d))
    };
    all_or_nothing("instance_norm", make, |(s, ..)| of(s), |(_, norm, x)| norm.forward(x));
}

#[test]
fn rows_of_a_cache_survive_an_append_from_another_device() {
    // the reported defect: append, failed append, append
    let [a, b] = [device(), teeny_core::Reference::new().to_device()];
    let rows = |seed: u64, device: &DeviceRef| normal(&[1, 2, 3, 4], seed, device);
    let mut cache = KvCache::new(16);
    let _ = cache.append(&rows(1, &a), &rows(2, &a)).unwrap();
    for (k, v) in
        [(rows(3, &b), rows(4, &a)), (rows(3, &a), rows(4, &b)), (rows(3, &b), rows(4, &b))]
    {
        let error = cache.append(&k, &v).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert!(error.to_string().contains(file!()), "{error}");
    }
    assert!(cache.append(&rows(3, &a), &normal(&[1, 2, 2, 4], 4, &a)).is_err());
    let (keys, values) = cache.append(&rows(3, &a), &rows(4, &a)).unwrap();
    let both = |i, j| Tensor::cat(&[&rows(i, &a), &rows(j, &a)], 2).unwrap().to_bytes().unwrap();
    assert_eq!((keys.to_bytes().unwrap(), values.to_bytes().unwrap()), (both(1, 3), both(2, 4)));
}

#[test]
fn a_cache_whose_rows_were_lost_says_so_until_it_is_emptied() {
    let (faulty, device) = faulty();
    let rows = |seed: u64| normal(&[1, 2, 3, 4], seed, &device);
    let (first, second) = (rows(1), rows(2));
    for k in 0.. {
        let mut cache = KvCache::new(16);
        let _ = cache.append(&first, &first).unwrap();
        faulty.fail(Request::Any, k, ErrorKind::OutOfMemory, Lasting::Once);
        let Err(error) = cache.append(&second, &second) else {
            assert!(k > 1, "both writes were failed");
            break;
        };
        assert_eq!((error.kind(), cache.len()), (ErrorKind::OutOfMemory, 3), "{error}");
        let error = cache.append(&second, &second).unwrap_err().to_string();
        assert!(
            error.contains("the 3 positions kept were lost") && error.contains("cache.truncate(0)"),
            "{error}"
        );
        cache.truncate(0);
        let (keys, _) = cache.append(&second, &first).unwrap();
        assert_eq!(keys.to_bytes().unwrap(), second.to_bytes().unwrap());
    }
    // a first append has no kept rows to lose
    for k in 0.. {
        let mut cache = KvCache::new(16);
        faulty.fail(Request::Any, k, ErrorKind::OutOfMemory, Lasting::Once);
        if cache.append(&first, &first).is_ok() {
            break;
        }
        let other = normal(&[2, 1, 5, 2], 3, &device);
        assert_eq!(
            cache.append(&other, &other).unwrap().0.to_bytes().unwrap(),
            other.to_bytes().unwrap(),
            "of any shape"
        );
    }
}

/// The logits of the token after `tokens`, with caches.
fn next(gpt: &Gpt, tokens: &[i32], caches: &mut [KvCache], device: &DeviceRef) -> Result<Tensor> {
    let tokens = Tensor::from_slice(tokens, (1, tokens.len()), device)?;
    teeny_autograd::no_grad(|| gpt.next(&tokens, caches))
}

#[test]
fn caches_of_a_model_stay_in_step_with_one_another() {
    let (faulty, device) = faulty();
    let store = Store::new(&device);
    let gpt =
        random::with_seed(1, || Gpt::new(&store.root(), GptConfig::new(7, 12, 3, 2, 8))).unwrap();
    let wanted =
        next(&gpt, &[1, 2, 3, 4, 5], &mut gpt.caches(), &device).unwrap().to_bytes().unwrap();
    let mut lost = 0;
    for k in 0.. {
        let mut caches = gpt.caches();
        let _ = next(&gpt, &[1, 2, 3], &mut caches, &device).unwrap();
        faulty.fail(Request::Any, k, ErrorKind::OutOfMemory, Lasting::Once);
        let result = next(&gpt, &[4, 5], &mut caches, &device);
        faulty.heal();
        if result.is_ok() {
            assert!(lost > 0 && k > 20 && lost < k / 2, "{lost} of {k} requests cost the rows");
            break;
        }
        assert!(caches.iter().all(|cache| cache.len() == 3), "request {k}");
        match next(&gpt, &[4, 5], &mut caches, &device) {
            // one token at a time or all at once: the same products, summed in another order
            Ok(scores) => close(&scores.to_bytes().unwrap(), &wanted),
            Err(error) => {
                assert!(error.to_string().contains("positions kept were lost"), "{error}");
                caches.iter_mut().for_each(|cache| cache.truncate(0));
                assert!(
                    next(&gpt, &[1, 2, 3, 4, 5], &mut caches, &device).unwrap().to_bytes().unwrap()
                        == wanted
                );
                lost += 1;
            }
        }
    }
}

fn close(a: &[u8], b: &[u8]) {
    let numbers = |x: &[u8]| {
        x.chunks(4).map(|c| f32::from_le_bytes(c.try_into().unwrap())).collect::<Vec<_>>()
    };
    let (a, b) = (numbers(a), numbers(b));
    assert!(
        a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-5),
        "{a:?} {b:?}"
    );
}

// counters

#[test]
fn losses_and_metrics() {
    let make = |d: &DeviceRef| {
        let mut losses = Losses::new().every(3);
        losses.push(&Tensor::new(1.0f32, d).unwrap()).unwrap();
        losses.push(&Tensor::new(2.0f32, d).unwrap()).unwrap();
        (losses, Tensor::new(3.0f32, d).unwrap())
    };
    let state = |(losses, _): &(Losses, Tensor)| {
        let mut all = losses.clone();
        all.read().unwrap();
        format!("{:?}", all.values()).into_bytes()
    };
    all_or_nothing("losses.push", make, state, |(losses, loss)| losses.push(loss).map(|_| ()));
    all_or_nothing(
        "losses.read",
        make,
        |(losses, _)| format!("{:?}", losses.values()).into_bytes(),
        |(losses, _)| losses.read().map(|_| ()),
    );

    let make = |d: &DeviceRef| {
        (Confusion::new(3), normal(&[5, 3], 4, d), Tensor::new([0i32, 1, 2, 0, 1], d).unwrap())
    };
    all_or_nothing(
        "confusion.add",
        make,
        |(c, ..)| format!("{c:?}").into_bytes(),
        |(c, logits, targets)| c.add(logits, targets),
    );
}

#[test]
fn a_loss_that_is_not_finite_stays_the_error_of_its_step() {
    let device = device();
    let push = |losses: &mut Losses, loss: f32| {
        losses.push(&Tensor::new(loss, &device).unwrap()).map(<[_]>::to_vec)
    };
    let mut losses = Losses::new().every(2).from_step(10);
    push(&mut losses, 1.0).unwrap();
    for loss in [f32::NAN, 3.0, 4.0] {
        let error = push(&mut losses, loss).unwrap_err().to_string();
        assert!(error.contains("loss is NaN at step 11"), "{error}");
        assert_eq!(losses.values(), [(10, 1.0)]);
    }
    assert!(losses.read().unwrap_err().to_string().contains("at step 11"));
}

#[test]
fn a_stream_of_tokens_that_meets_an_error_goes_on() {
    /// Fails the requests while it is set.
    struct Moody(ByteTokenizer, AtomicBool);
    impl Tokenizer for Moody {
        fn vocab_size(&self) -> usize {
            self.0.vocab_size()
        }
        fn encode(&self, text: &str) -> Result<Vec<u32>> {
            self.0.encode(text)
        }
        fn decode(&self, tokens: &[u32]) -> Result<String> {
            // only the second look, at the shortened window, fails
            if self.1.load(Ordering::Relaxed) && tokens.len() < 32 {
                Err(teeny_core::Error::value("not now"))
            } else {
                self.0.decode(tokens)
            }
        }
    }
    let moody = Moody(ByteTokenizer, AtomicBool::new(false));
    let mut stream = DecodeStream::new(&moody);
    let mut text = String::new();
    for i in 0..40u32 {
        moody.1.store(i == 31, Ordering::Relaxed);
        let token = u32::from(b'a') + i % 26;
        match stream.push(token) {
            Ok(piece) => text += &piece,
            Err(_) => {
                assert_eq!(i, 31);
                moody.1.store(false, Ordering::Relaxed);
                text += &stream.push(token).unwrap();
            }
        }
    }
    moody.1.store(true, Ordering::Relaxed);
    assert!(stream.finish().is_err());
    moody.1.store(false, Ordering::Relaxed);
    text += &stream.finish().unwrap();
    let wanted: String = (0..40u8).map(|i| char::from(b'a' + i % 26)).collect();
    assert_eq!(text, wanted);
}
