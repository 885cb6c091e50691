//! The attention weights of a layer and of a model.

use crate::common::*;
use teeny_autograd::Autograd;
use teeny_core::{DType, DeviceRef, Error, Lazy, Result, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::attention::{AttentionOptions, MultiheadAttentionOptions, with_weights};
use teeny_nn::train::Captured;
use teeny_nn::{Gpt, GptConfig, MultiheadAttention, Store};

/// A layer of width 8 with this number of heads and of key heads.
fn layer(store: &Store, n_head: usize, n_kv_head: usize, dropout: f64) -> MultiheadAttention {
    let options = MultiheadAttentionOptions::new().with_n_kv_head(n_kv_head).with_dropout(dropout);
    MultiheadAttention::with_options(&store.root(), 8, n_head, options).unwrap()
}

/// The weights by their definition, of one head after another: softmax of q kᵀ / √hs.
fn defined(
    store: &Store,
    layer: &MultiheadAttention,
    x: &Tensor,
    allowed: &Tensor,
) -> Result<Tensor> {
    let (n_head, n_kv_head, size) = (layer.n_head(), layer.n_kv_head(), layer.head_size());
    let (q_width, kv_width) = (n_head * size, n_kv_head * size);
    let [weight, bias] = ["in_proj_weight", "in_proj_bias"].map(|name| store.get(name));
    let qkv = x.matmul(&weight?.value().t()?)?.add(bias?.value())?; // (B, T, Q + 2 KV)
    let qkv = qkv.split_sizes(-1, &[q_width, kv_width, kv_width])?;
    let (q, k) = (&qkv[0], &qkv[1]);
    let heads = (0..n_head).map(|head| {
        let key_head = head / (n_head / n_kv_head);
        let q = q.slice(-1, head * size..(head + 1) * size)?; // (B, T, hs)
        let k = k.slice(-1, key_head * size..(key_head + 1) * size)?; // (B, S, hs)
        let scores = q.matmul(&k.transpose(1, 2)?)?.div((size as f64).sqrt())?; // (B, T, S)
        allowed.where_cond(&scores, f64::NEG_INFINITY)?.softmax(-1)
    });
    Tensor::stack(&heads.collect::<Result<Vec<_>>>()?, 1) // (B, n_head, T, S)
}

#[test]
fn weights_are_those_of_the_definition() -> Result<()> {
    random::with_seed(3, || {
        let device = device();
        for (n_head, n_kv_head) in [(4, 4), (4, 2), (4, 1), (2, 2), (1, 1)] {
            for dropout in [0.0, 0.5] {
                let store = Store::with_dtype(&device, DType::F64);
                let layer = layer(&store, n_head, n_kv_head, dropout);
                let x = Tensor::randn((2, 5, 8), DType::F64, &device)?; // (B, T, E)
                let causal = Tensor::ones((5, 5), DType::Bool, &device)?.tril(0)?; // (T, S)
                let wanted = defined(&store, &layer, &x, &causal)?;
                let options = || AttentionOptions::causal();
                let (y, weights) = with_weights(|| layer.attend(&x, options()))?;
                assert_eq!(weights.len(), 1);
                assert_eq!(weights[0].shape()[..], [2, n_head, 5, 5]);
                assert_close(&values(&weights[0]), &values(&wanted), 1e-12, &"causal");
                if dropout == 0.0 {
                    assert_close(&values(&y), &values(&layer.attend(&x, options())?), 1e-12, &"y");
                }
                // one sequence without a batch, and the keys of a mask
                let real = Tensor::new([[true, true, false, true, false]], &device)?; // (1, S)
                let one = x.at(0, 1)?; // (T, E)
                let wanted = defined(&store, &layer, &one.unsqueeze(0)?, &real)?;
                let options = AttentionOptions::default().with_key_mask(&real);
                let (_, weights) = with_weights(|| layer.attend(&one, options))?;
                assert_close(&values(&weights[0]), &values(&wanted), 1e-12, &"a key mask");
            }
        }
        Ok(())
    })
}

#[test]
fn a_model_has_the_weights_of_each_layer() -> Result<()> {
    let store = Store::new(device());
    let gpt = Gpt::new(&store.root(), GptConfig::new(11, 6, 3, 2, 8))?;
    let tokens = Tensor::new([[1, 2, 3, 4], [5, 6, 7, 8]], store.device())?; // (B, T)
    let (logits, weights) = with_weights(|| gpt.logits(&tokens))?;
    assert_close(&values(&logits), &values(&gpt.logits(&tokens)?), 1e-5, &"logits");
    assert_eq!(weights.len(), 3);
    for weights in &weights {
        assert_eq!(weights.shape()[..], [2, 2, 4, 4]); // (B, n_head, T, S)
        assert_close(&values(&weights.sum([-1])?), &[1.0; 16], 1e-6, &"rows");
        assert!(values(&weights.triu(1)?).iter().all(|weight| *weight == 0.0));
    }
    Ok(())
}

#[test]
fn collecting_is_nested_and_ends_with_the_call() -> Result<()> {
    let store = Store::new(device());
    let layer = layer(&store, 2, 2, 0.0);
    let x = Tensor::ones((1, 3, 8), DType::F32, store.device())?; // (B, T, E)
    let attend = || layer.attend(&x, AttentionOptions::default());
    let ((_, inner), outer) = with_weights(|| {
        let _ = attend()?;
        let inner = with_weights(attend)?;
        let _ = attend()?;
        Ok(inner)
    })?;
    assert_eq!((inner.len(), outer.len()), (1, 2));
    let failed = with_weights(|| attend().and(Err::<(), Error>(Error::value("mine"))));
    assert_eq!(failed.unwrap_err().message(), "mine");
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        with_weights(|| -> Result<()> { attend().map(|_| panic!("mine")) })
    }));
    assert!(panicked.is_err());
    let error = with_weights(|| Ok(())).unwrap_err();
    assert!(error.message().contains("no attention layer ran") && error.has_help(), "{error}");
    assert!(error.to_string().contains(file!()), "{error}");
    Ok(())
}

#[test]
fn a_captured_call_has_none_and_says_so() -> Result<()> {
    let device: DeviceRef = Autograd::new(Lazy::new(Cpu::new()));
    let store = Store::new(&device);
    let layer = layer(&store, 2, 2, 0.0);
    let x = Tensor::ones((1, 3, 8), DType::F32, &device)?; // (B, T, E)
    let mut step =
        Captured::new(&store, |x| layer.attend(&x[0], AttentionOptions::default())?.mean_all())?;
    let mut failed = 0;
    for _ in 0..3 {
        match with_weights(|| step.run(vec![x.clone()])) {
            Ok((_, weights)) => assert!(weights[0].to_vec::<f32>().is_ok()),
            Err(error) => {
                assert!(error.to_string().contains("captured"), "{error}");
                failed += 1;
            }
        }
    }
    assert!(failed >= 2, "a replay calls no layer");
    Ok(())
}
