//! Attention, rotary embedding and transformer layers against PyTorch (`golden/attention.json`,
//! `golden/gpt.json`), and the cache against computation without a cache.

use crate::common::*;
use serde_json::Value;
use teeny_autograd::{Grad, no_grad};
use teeny_core::{DType, Lazy, Result, Tensor, ToDevice, random};
use teeny_nn::attention::{
    self, AttentionOptions, KvCache, MultiheadAttentionOptions, Rope, RopeOptions, RopePairing,
};
use teeny_nn::loss::cross_entropy;
use teeny_nn::transformer::{TransformerConfig, TransformerDecoderLayer, TransformerEncoderLayer};
use teeny_nn::{Activation, Gpt, GptConfig, Linear, MultiheadAttention, Store};

fn golden() -> Value {
    parse(include_str!("golden/attention.json"))
}

fn store() -> Store {
    Store::with_dtype(autograd(), DType::F64)
}

fn fill(store: &Store, case: &Value) {
    let params = case["params"].as_object().unwrap();
    assert_eq!(store.all().len(), params.len(), "{case}");
    for (name, param) in params {
        store.get(name).unwrap().set(&tensor(&param["value"], store.device())).unwrap();
    }
}

/// Output and gradients of `f` on the case's inputs.
fn check(case: &Value, store: &Store, f: impl Fn(&[Tensor]) -> Result<Tensor>) {
    let inputs: Vec<Tensor> = case["inputs"]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| tensor(x, store.device()).requires_grad().unwrap())
        .collect();
    let y = f(&inputs).unwrap();
    assert_eq!(y.shape()[..], sizes(&case["result"]["shape"]), "{case}");
    assert_close(&values(&y), &numbers(&case["result"]["data"]), 1e-12, case);
    let grads = backward(&y);
    for (x, wanted) in inputs.iter().zip(case["grads"].as_array().unwrap()) {
        assert_close(&values(grads.get(x).unwrap()), &numbers(wanted), 1e-12, case);
    }
    for (name, param) in case["params"].as_object().unwrap() {
        let grad = grads.get(&store.get(name).unwrap().value()).unwrap();
        assert_close(&values(grad), &numbers(&param["grad"]), 1e-12, &format!("{name} of {case}"));
    }
}

#[test]
fn attention_forward_and_backward() {
    for case in golden()["attention"].as_array().unwrap() {
        let store = store();
        let real = Tensor::new([[true, true, true], [true, true, false]], store.device()).unwrap();
        let kind = case["kind"].as_str().unwrap();
        if kind == "grouped" {
            let layer = MultiheadAttention::with_options(
                &store.root(),
                4,
                4,
                MultiheadAttentionOptions::new().with_n_kv_head(2).with_bias(false),
            )
            .unwrap();
            check(case, &store, |x| {
                let qkv = x[0].matmul(&x[1].t()?)?.split_sizes(-1, &[4, 2, 2])?;
                let heads = |x: &Tensor, n| x.unflatten(-1, (n, 1))?.transpose(1, 2);
                let (q, k, v) = (
                    heads(&qkv[0], 4)?.unflatten(1, (2, 2))?,
                    heads(&qkv[1], 2)?.unsqueeze(2)?,
                    heads(&qkv[2], 2)?.unsqueeze(2)?,
                );
                let y = q
                    .attention(&k, &v, None, &teeny_core::Attention::causal(0))?
                    .flatten(1, 2)?
                    .transpose(1, 2)?
                    .flatten(2, 3)?;
                y.matmul(&x[2].t()?)
            });
            // the layer agrees too
            store
                .get("in_proj_weight")
                .unwrap()
                .set(&tensor(&case["inputs"][1], store.device()))
                .unwrap();
            store
                .get("out_proj.weight")
                .unwrap()
                .set(&tensor(&case["inputs"][2], store.device()))
                .unwrap();
            let y = layer
                .attend(&tensor(&case["inputs"][0], store.device()), AttentionOptions::causal())
                .unwrap();
            assert_close(&values(&y), &numbers(&case["result"]["data"]), 1e-12, case);
            continue;
        }
        let layer = MultiheadAttention::with_options(
            &store.root(),
            4,
            2,
            MultiheadAttentionOptions::new()
                .with_n_kv_head(2)
                .with_bias(case["bias"].as_bool().unwrap()),
        )
        .unwrap();
        fill(&store, case);
        // PyTorch's script adds this to the scores
        let added: Vec<f64> = (0..9)
            .map(|i| ((i as f64 * 0.71 * 7.0 + 0.13) % 4.1 - 2.0) * 100.0)
            .map(|v: f64| v.round() / 100.0)
            .collect();
        let added = f64s(added, &[3, 3], store.device());
        let attended = |x: &[Tensor]| match kind {
            "self" => layer.attend(&x[0], AttentionOptions::default()),
            "causal" => layer.attend(&x[0], AttentionOptions::causal()),
            "padding" => layer.attend(&x[0], AttentionOptions::default().with_key_mask(&real)),
            "added" => layer.attend(&x[0], AttentionOptions::default().with_mask(&added)),
            "causal padding" => {
                layer.attend(&x[0], AttentionOptions::causal().with_key_mask(&real))
            }
            "cross" => layer.attend_to(&x[0], &x[1], AttentionOptions::default()),
            other => panic!("no such kind: {other}"),
        };
        check(case, &store, attended);
        check(case, &store, |x| attention::with_weights(|| attended(x)).map(|(y, _)| y));
    }
}

#[test]
fn transformer_layers_forward_and_backward() {
    for case in golden()["layers"].as_array().unwrap() {
        let store = store();
        let config = TransformerConfig::new(4, 2, 6)
            .with_norm_first(case["norm_first"].as_bool().unwrap())
            .with_dropout(0.0);
        if case["kind"] == "encoder" {
            let layer = TransformerEncoderLayer::new(
                &store.root(),
                config.with_activation(Activation::Gelu),
            )
            .unwrap();
            let real =
                Tensor::new([[true, true, true], [true, true, false]], store.device()).unwrap();
            fill(&store, case);
            check(case, &store, |x| {
                layer.attend(&x[0], AttentionOptions::default().with_key_mask(&real))
            });
        } else {
            let layer = TransformerDecoderLayer::new(&store.root(), config).unwrap();
            fill(&store, case);
            check(case, &store, |x| {
                layer.attend(&x[0], &x[1], AttentionOptions::causal(), AttentionOptions::default())
            });
        }
    }
}

#[test]
fn rope_turns_pairs_as_complex_numbers_do() {
    for case in golden()["ropes"].as_array().unwrap() {
        let store = store();
        let pairing =
            if case["kind"] == "halves" { RopePairing::Halves } else { RopePairing::Interleaved };
        let options = RopeOptions::new().with_pairing(pairing);
        let rope = Rope::with_options(6, 16, options, store.device()).unwrap();
        let start = case["start"].as_u64().unwrap() as usize;
        let x = tensor(&case["inputs"][0], store.device()).requires_grad().unwrap();
        let y = rope.apply(&x, start).unwrap();
        // the tables are f32
        assert_close(&values(&y), &numbers(&case["result"]["data"]), 1e-6, case);
        assert_close(
            &values(backward(&y).get(&x).unwrap()),
            &numbers(&case["grads"][0]),
            1e-6,
            case,
        );
    }
}

#[test]
fn scores_under_rope_depend_on_the_distance_only() {
    random::with_seed(1, || {
        let device = device();
        let rope = Rope::new(16, 64, &device).unwrap();
        let (q, k) = (
            Tensor::randn((1, 16), DType::F32, &device).unwrap(),
            Tensor::randn((1, 16), DType::F32, &device).unwrap(),
        );
        let score = |i, j| {
            rope.apply(&q, i)
                .unwrap()
                .matmul(&rope.apply(&k, j).unwrap().t().unwrap())
                .unwrap()
                .to_vec::<f32>()
                .unwrap()[0]
        };
        assert!((score(3, 1) - score(50, 48)).abs() < 1e-4);
        assert!((score(3, 1) - score(50, 40)).abs() > 1e-3);
    });
}

/// The logits, the loss and every gradient of a model with PyTorch's weights.
#[test]
fn gpt_agrees_with_pytorch() {
    let golden = parse(include_str!("golden/gpt.json"));
    let store = store();
    let gpt = Gpt::new(&store.root(), GptConfig::new(7, 5, 2, 2, 4)).unwrap();
    let params = golden["params"].as_array().unwrap();
    assert_eq!(params.len(), store.all().len());
    for param in params {
        store
            .get(param["name"].as_str().unwrap())
            .unwrap()
            .set(&tensor(&param["value"], store.device()))
            .unwrap();
    }
    let ids = |name: &str| {
        ints(
            &Value::Array(
                golden[name]
                    .as_array()
                    .unwrap()
                    .iter()
                    .flat_map(|row| row.as_array().unwrap().clone())
                    .collect(),
            ),
            &[2, 5],
            store.device(),
        )
    };
    let logits = gpt.logits(&ids("tokens")).unwrap();
    assert_close(&values(&logits), &numbers(&golden["logits"]["data"]), 1e-12, &"logits");
    let loss =
        cross_entropy(&logits.flatten(0, 1).unwrap(), &ids("targets").flatten(0, 1).unwrap())
            .unwrap();
    assert_close(&values(&loss), &[number(&golden["loss"])], 1e-12, &"loss");
    let grads = loss.backward().unwrap();
    for param in params {
        let name = param["name"].as_str().unwrap();
        let grad = grads.get(&store.get(name).unwrap().value()).unwrap();
        assert_close(&values(grad), &numbers(&param["grad"]), 1e-12, &name);
    }
}

fn close(a: &Tensor, b: &Tensor, tolerance: f64) {
    assert_eq!(a.shape(), b.shape());
    assert_close(&values(a), &values(b), tolerance, &"two ways to one result");
}

#[test]
fn a_cached_sequence_is_the_sequence() {
    random::with_seed(2, || {
        let store = Store::new(autograd());
        let layer = MultiheadAttention::with_options(
            &store.root(),
            16,
            4,
            MultiheadAttentionOptions::new().with_n_kv_head(2).with_bias(true),
        )
        .unwrap();
        let rope = Rope::new(4, 32, store.device()).unwrap();
        let x = Tensor::randn((2, 9, 16), DType::F32, store.device()).unwrap();
        for window in [None, Some(3)] {
            let options = || {
                let options = AttentionOptions::causal().with_rope(&rope);
                window.map_or(options, |window| {
                    AttentionOptions::causal().with_rope(&rope).with_window(window)
                })
            };
            let whole = layer.attend(&x, options()).unwrap();
            // in pieces of 4, 1, 1 and 3
            let mut cache = KvCache::new(9);
            let pieces = no_grad(|| {
                [0..4, 4..5, 5..6, 6..9].map(|range| {
                    layer
                        .attend(&x.slice(1, range).unwrap(), options().with_cache(&mut cache))
                        .unwrap()
                })
            });
            close(&Tensor::cat(&pieces, 1).unwrap(), &whole, 1e-5);
            assert_eq!((cache.len(), cache.capacity()), (9, 9));
            // another continuation of the same prefix
            cache.truncate(5);
            let again = no_grad(|| {
                layer.attend(&x.slice(1, 5..9).unwrap(), options().with_cache(&mut cache))
            })
            .unwrap();
            close(&again, &whole.slice(1, 5..9).unwrap(), 1e-5);
            let error = layer.attend(&x, options().with_cache(&mut cache)).unwrap_err().to_string();
            assert!(error.contains("9 more positions do not fit: 9 of 9 are used"), "{error}");
        }
    });
}

#[test]
fn padding_changes_nothing_for_real_tokens() {
    random::with_seed(3, || {
        let store = Store::new(device());
        let layer = TransformerEncoderLayer::new(
            &store.root(),
            TransformerConfig::new(16, 4, 32).with_dropout(0.0),
        )
        .unwrap();
        let short = Tensor::randn((1, 5, 16), DType::F32, store.device()).unwrap();
        let junk = Tensor::full((1, 3, 16), 1e3, DType::F32, store.device()).unwrap();
        let long = Tensor::cat(&[&short, &junk], 1).unwrap();
        // (1, 8)
        let real = Tensor::arange(0i32, 8, 1, store.device())
            .unwrap()
            .lt(5)
            .unwrap()
            .unsqueeze(0)
            .unwrap();
        let y = layer.attend(&long, AttentionOptions::default().with_key_mask(&real)).unwrap();
        close(
            &y.slice(1, 0..5).unwrap(),
            &layer.attend(&short, AttentionOptions::default()).unwrap(),
            1e-6,
        );
    });
}

#[test]
fn dropped_weights_keep_their_mean() {
    random::with_seed(4, || {
        let store = Store::new(device());
        let layer = MultiheadAttention::new(&store.root(), 8, 2).unwrap();
        let dropping = {
            let options = MultiheadAttentionOptions::new().with_dropout(0.5);
            let (qkv, out) = (layer.qkv.clone(), layer.out.clone());
            MultiheadAttention::from_linear(&store.root(), qkv, out, 2, options).unwrap()
        };
        let x = Tensor::randn((1, 6, 8), DType::F32, store.device()).unwrap();
        let plain = layer.attend(&x, AttentionOptions::causal()).unwrap();
        let mean = (0..2000)
            .map(|_| dropping.attend(&x, AttentionOptions::causal()).unwrap())
            .reduce(|a, b| a.add(&b).unwrap())
            .unwrap()
            .div(2000.0)
            .unwrap();
        assert_ne!(
            values(&dropping.attend(&x, AttentionOptions::causal()).unwrap()),
            values(&plain)
        );
        close(&mean, &plain, 0.1);
        store.set_training(false);
        assert_eq!(
            values(&dropping.attend(&x, AttentionOptions::causal()).unwrap()),
            values(&plain)
        );
    });
}

#[test]
fn attention_says_what_does_not_fit() {
    let store = Store::new(device());
    let layer = MultiheadAttention::new(&store.at("attn"), 8, 2).unwrap();
    let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::F32, store.device()).unwrap();
    let said = |result: Result<Tensor>, text: &str| {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("attention.rs"), "{error}");
    };
    said(
        layer.attend(&zeros(&[2, 3, 7]), AttentionOptions::default()),
        "x must be (B, T, 8), not (2, 3, 7)",
    );
    said(
        layer.attend_to(&zeros(&[2, 3, 8]), &zeros(&[2, 3, 9]), AttentionOptions::default()),
        "context must be (B, T, 8), not (2, 3, 9)",
    );
    said(
        layer
            .attend(&zeros(&[2, 3, 8]), AttentionOptions::default().with_key_mask(&zeros(&[2, 3]))),
        "key_mask must be (B, S) of bool",
    );
    said(
        layer.attend(&zeros(&[2, 3, 8]), AttentionOptions::default().with_window(2)),
        "this attention is not causal",
    );
    said(
        Rope::new(4, 8, store.device()).unwrap().apply(&zeros(&[2, 3, 4]), 6),
        "positions 6..9 are beyond the tables' 8",
    );
    said(
        Rope::new(4, 8, store.device()).unwrap().apply(&zeros(&[2, 3, 4]), usize::MAX),
        "positions 18446744073709551615..18446744073709551615 are beyond the tables' 8",
    );
    let error = Rope::new(8, 1 << 60, store.device()).unwrap_err();
    assert!(error.message().contains("more elements than memory can address"), "{error}");
    assert!(
        Rope::new(3, 8, store.device())
            .unwrap_err()
            .to_string()
            .contains("the head size is 3, but pairs need an even size")
    );
    let error = MultiheadAttention::new(&store.at("other"), 10, 4).unwrap_err().to_string();
    assert!(
        error.contains("n_embd is 10, n_head 4, n_kv_head 4: each must be a multiple of the next"),
        "{error}"
    );
    let mut cache = KvCache::new(8);
    let _ = layer
        .attend(&zeros(&[2, 3, 8]), AttentionOptions::causal().with_cache(&mut cache))
        .unwrap();
    said(
        layer.attend(&zeros(&[1, 3, 8]), AttentionOptions::causal().with_cache(&mut cache)),
        "do not continue the (2, 2, 8, 4) kept",
    );
    let gpt = Gpt::new(&store.root(), GptConfig::new(7, 5, 1, 2, 8)).unwrap();
    said(
        gpt.logits(&Tensor::zeros((1, 6), DType::I32, store.device()).unwrap()),
        "6 tokens are more than the context of 5",
    );
    said(gpt.logits(&Tensor::full((1, 2), 7, DType::I32, store.device()).unwrap()), "7");
}

#[test]
fn cached_and_uncached_tokens_are_the_same() {
    random::with_seed(5, || {
        let store = Store::new(autograd());
        let gpt = Gpt::new(&store.root(), GptConfig::new(50, 48, 3, 4, 32)).unwrap();
        let prompt = Tensor::randint(0, 50, (2, 7), DType::I32, store.device()).unwrap();
        let greedy = |logits: &Tensor| logits.argmax(-1);
        no_grad(|| {
            // 7 + 60 tokens: more than the context
            let cached = gpt.generate(&prompt, 60, greedy).unwrap();
            let mut all = prompt.clone();
            for _ in 0..60 {
                let seen = all.slice(1, -(all.shape()[1].min(48) as isize)..).unwrap();
                let new = greedy(&gpt.logits(&seen).unwrap().at(1, -1).unwrap())
                    .unwrap()
                    .cast(DType::I32)
                    .unwrap()
                    .unsqueeze(1)
                    .unwrap();
                all = Tensor::cat(&[&all, &new], 1).unwrap();
            }
            assert_eq!(cached.to_vec::<i32>().unwrap(), all.to_vec::<i32>().unwrap());
        });
    });
}

#[test]
fn counts_of_parameters_and_operations() {
    let count = |config: GptConfig| {
        let store = Store::new(teeny_core::Reference::new());
        Gpt::new(&store.root(), config).unwrap();
        store.count()
    };
    assert_eq!(GptConfig::gpt2().flops(1024), 874_944_921_600.0);
    let nano = GptConfig::new(65, 64, 4, 4, 128).with_bias(false);
    assert_eq!(count(nano), 804_096);
    assert_eq!(804_096 - 64 * 128, 795_904); // without positions, as nanoGPT prints
    assert_eq!(count(GptConfig::new(65, 256, 6, 6, 384).with_bias(false)), 10_745_088);
    assert_eq!(count(GptConfig::new(27, 16, 4, 4, 64).with_tied(false)), 204_544);
}

#[test]
fn three_projections_are_one_divided_by_rows() -> Result<()> {
    let store = store();
    let options = MultiheadAttentionOptions::new().with_n_kv_head(2).with_head_size(3);
    // 4 heads of size 3 of 8 features: queries of 12, keys and values of 6
    let joined =
        random::with_seed(1, || MultiheadAttention::with_options(&store.at("a"), 8, 4, options))?;
    let linear = |name: &str, rows: std::ops::Range<isize>| -> Result<Linear> {
        let layer = Linear::new(&store.at(name), 8, (rows.end - rows.start) as usize)?;
        let of = |name: &str| store.get(name)?.value().detach()?.slice(0, rows.clone());
        layer.weight.set(&of("a.in_proj_weight")?)?;
        layer.bias.as_ref().unwrap().set(&of("a.in_proj_bias")?)?;
        Ok(layer)
    };
    let parts = [linear("q", 0..12)?, linear("k", 12..18)?, linear("v", 18..24)?];
    let out = joined.out.clone();
    let separate = MultiheadAttention::from_linear(&store.root(), parts, out, 4, options)?;
    let normal = |t: usize| Tensor::randn((2, t, 8), DType::F64, store.device());
    let (x, context) = random::with_seed(2, || (normal(5).unwrap(), normal(3).unwrap()));
    let both = |f: &dyn Fn(&MultiheadAttention) -> Result<Tensor>| -> Result<()> {
        let (a, b) = (f(&joined)?, f(&separate)?);
        assert_close(&values(&b), &values(&a), 1e-12, &"results");
        let (a, b) = (a.square()?.sum_all()?.backward()?, b.square()?.sum_all()?.backward()?);
        let grad = |gradients: &teeny_autograd::Gradients, name: &str| {
            values(gradients.get(&store.get(name).unwrap().value()).unwrap())
        };
        let whole = grad(&a, "a.in_proj_weight");
        let parts = ["q.weight", "k.weight", "v.weight"].map(|name| grad(&b, name)).concat();
        assert_close(&parts, &whole, 1e-11, &"gradients");
        Ok(())
    };
    both(&|layer| layer.attend(&x, AttentionOptions::causal()))?;
    both(&|layer| layer.attend_to(&x, &context, AttentionOptions::new()))?;
    // a projection of another size
    let (q, k) = (Linear::new(&store.at("q2"), 8, 12)?, Linear::new(&store.at("k2"), 8, 5)?);
    let wrong = [q, k.clone(), k];
    let wrong =
        MultiheadAttention::from_linear(&store.root(), wrong, joined.out.clone(), 4, options);
    let error = wrong.unwrap_err().to_string();
    assert!(error.contains("k2.weight is (5, 8)"), "{error}");
    Ok(())
}

#[test]
fn rope_of_f64_has_the_accuracy_of_f64() {
    for pairing in [RopePairing::Halves, RopePairing::Interleaved] {
        for device in [device(), autograd(), Lazy::new(device()).to_device()] {
            let options = RopeOptions::new().with_pairing(pairing);
            let rope = Rope::with_options(6, 50, options, &device).unwrap();
            let x: Vec<f64> = (0..48).map(|i| f64::from(i * 7 % 11) - 4.5).collect();
            let want = |start: usize| -> Vec<f64> {
                let mut want = x.clone();
                for (row, i) in (0..8).flat_map(|row| (0..3).map(move |i| (row, i))) {
                    let angle = (start + row) as f64 * 10_000f64.powf(-2.0 * i as f64 / 6.0);
                    let [a, b] = match pairing {
                        RopePairing::Halves => [row * 6 + i, row * 6 + i + 3],
                        RopePairing::Interleaved => [row * 6 + 2 * i, row * 6 + 2 * i + 1],
                    };
                    (want[a], want[b]) = (
                        x[a] * angle.cos() - x[b] * angle.sin(),
                        x[a] * angle.sin() + x[b] * angle.cos(),
                    );
                }
                want
            };
            let q = f64s(x.clone(), &[1, 1, 8, 6], &device);
            let y = rope.apply(&q, 30).unwrap();
            assert_close(&values(&y), &want(30), 1e-14, &"apply");
            let positions = Tensor::arange(5i32, 13, 1, &device).unwrap().unsqueeze(0).unwrap();
            let y = rope.apply_at(&q, &positions).unwrap();
            assert_close(&values(&y), &want(5), 1e-14, &"apply_at");
            // f32 afterwards is as before
            let half = rope.apply(&q.cast(DType::F32).unwrap(), 5).unwrap();
            assert_eq!(half.dtype(), DType::F32);
            assert_close(&values(&half), &want(5), 1e-6, &"f32");
        }
    }
}
