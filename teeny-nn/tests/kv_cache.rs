//! Types of keys and values in caches: the blocks of files, texts in pieces, bad input.

use std::sync::Arc;
use teeny_autograd::{Autograd, no_grad};
use teeny_core::{DType, DeviceRef, Lazy, QuantTensor, QuantType, Reference, Result, Tensor};
use teeny_core::{ToDevice, random};
use teeny_cpu::Cpu;
use teeny_formats::gguf::ElementType;
use teeny_nn::attention::KvCache;
use teeny_nn::transformer::{CausalLm, CausalLmConfig};
use teeny_nn::{CachedLm, Store};

/// `x` (B, H, T, hs), quantised to Q8_0 and dequantised.
fn blocks(x: &Tensor) -> Result<Tensor> {
    let rows = x.flatten(0, 2)?;
    QuantTensor::quantize(&rows, QuantType::Q8_0)?.dequantize()?.reshape(*x.shape())
}

#[test]
fn keys_and_values_of_q8_0_are_the_blocks_of_files() -> Result<()> {
    let devices: [DeviceRef; 3] = [Reference::new().to_device(), Cpu::new(), Lazy::new(Cpu::new())];
    for (seed, device) in devices.into_iter().enumerate() {
        let random = |size, t: usize| -> Result<Tensor> {
            // rows of very different sizes, some of zeros
            let factors = Tensor::randint(-3, 4, (2, 3, t, 1), DType::I64, &device)?;
            let factors = factors.cast(DType::F32)?.exp()?.sub(1.0)?;
            Tensor::randn((2, 3, t, size), DType::F32, &device)?.mul(factors)
        };
        random::with_seed(seed as u64, || -> Result<()> {
            for (hs, hv) in [(32, 64), (96, 32)] {
                let mut cache = KvCache::new(12).with_type(QuantType::Q8_0);
                let mut all: Option<[Tensor; 2]> = None;
                for t in [3, 1, 1, 5, 2] {
                    let new = [random(hs, t)?, random(hv, t)?];
                    let joined = match &all {
                        None => new.clone(),
                        Some([k, v]) => {
                            [Tensor::cat(&[k, &new[0]], 2)?, Tensor::cat(&[v, &new[1]], 2)?]
                        }
                    };
                    let (k, v) = cache.append(&new[0], &new[1])?;
                    assert_eq!(k.to_vec::<f32>()?, blocks(&joined[0])?.to_vec::<f32>()?);
                    assert_eq!(v.to_vec::<f32>()?, blocks(&joined[1])?.to_vec::<f32>()?);
                    all = Some(joined);
                }
                cache.truncate(4);
                let (k, v) = (random(hs, 2)?, random(hv, 2)?);
                let (keys, _) = cache.append(&k, &v)?;
                let [all, _] = all.expect("there are keys");
                let want = Tensor::cat(&[&all.slice(2, 0..4)?, &k], 2)?;
                assert_eq!(keys.to_vec::<f32>()?, blocks(&want)?.to_vec::<f32>()?);
            }
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn what_is_not_finite_stays_visible() -> Result<()> {
    let device = Cpu::new();
    for value in [f32::NAN, f32::INFINITY, 1e30] {
        let mut x = vec![1.0f32; 64];
        x[3] = value;
        let x = Tensor::from_vec(x, (1, 1, 1, 64), &device)?;
        let mut cache = KvCache::new(2).with_type(QuantType::Q8_0);
        let (k, _) = cache.append(&x, &x)?;
        let k = k.to_vec::<f32>()?;
        assert!(!k[3].is_finite(), "{value}: {:?}", &k[..4]);
        assert_eq!(k[32..], [1.0; 32].map(|x: f32| x * k[32]));
    }
    Ok(())
}

#[test]
fn a_cache_says_which_types_it_keeps() -> Result<()> {
    let device = Reference::new();
    let x = |size| Tensor::zeros((1, 2, 3, size), DType::F32, &device);
    let refused = |of: ElementType, size| {
        let mut cache = KvCache::new(4).with_type(of);
        let error = x(size).and_then(|x| cache.append(&x, &x).map(drop)).unwrap_err().to_string();
        assert!(cache.is_empty());
        error
    };
    let error = refused(QuantType::Q4K.into(), 256);
    assert!(error.contains("a cache keeps no Q4_K") && error.contains("or Q8_0"), "{error}");
    let error = refused(DType::I32.into(), 32);
    assert!(error.contains("a cache keeps no I32"), "{error}");
    let error = refused(QuantType::Q8_0.into(), 40);
    assert!(error.contains("heads of 40 are not whole blocks of 32"), "{error}");
    // rows of other sizes, and no more than fit
    let mut cache = KvCache::new(6).with_type(QuantType::Q8_0);
    let _ = cache.append(&x(32)?, &x(64)?)?;
    let error = cache.append(&x(64)?, &x(64)?).unwrap_err().to_string();
    assert!(error.contains("do not continue the (1, 2, 6, 32) kept"), "{error}");
    let _ = cache.append(&x(32)?, &x(64)?)?;
    let error = cache.append(&x(32)?, &x(64)?).unwrap_err().to_string();
    assert!(error.contains("3 more positions do not fit: 6 of 6"), "{error}");
    assert_eq!(cache.len(), 6);
    Ok(())
}

/// A model whose caches have the type `of`, with the same weights for each.
fn model(device: &DeviceRef, of: Option<ElementType>) -> Result<(Store, CausalLm)> {
    random::with_seed(11, || {
        let store = Store::new(device);
        let mut config = CausalLmConfig::new(61, 48, 2, 4, 128, 96);
        config.n_kv_head = 2;
        config.cache = of;
        let model = CausalLm::new(&store.root(), config)?;
        for param in store.all().into_iter().filter(|param| param.shape().ndim() == 2) {
            // logits that differ from one another
            let noise = Tensor::randn(param.shape(), DType::F32, Cpu::new())?.mul(0.1)?;
            param.set(&param.value().add(noise.to(device)?)?)?;
        }
        store.set_training(false);
        Ok((store, model))
    })
}

#[test]
fn models_with_smaller_caches_give_nearly_the_same_logits() -> Result<()> {
    let device: DeviceRef = Autograd::new(Cpu::new());
    let ids: Vec<i32> = (0..40).map(|i| (i * i + 3 * i) % 61).collect();
    let logits = |of: Option<ElementType>| -> Result<Tensor> {
        let (_store, model) = model(&device, of)?;
        let mut caches = model.caches();
        let step = |i: usize, end: usize, caches: &mut [KvCache]| {
            let tokens = Tensor::from_slice(&ids[i..end], (1, end - i), &device)?;
            no_grad(|| model.next(&tokens, caches))
        };
        let mut last = step(0, 20, &mut caches)?;
        for i in 20..40 {
            last = step(i, i + 1, &mut caches)?;
        }
        Ok(last)
    };
    let exact = logits(None)?;
    let scale = exact.std(.., 0)?.item::<f32>()?;
    for (of, limit) in [
        (DType::F32.into(), 0.0),
        (DType::F16.into(), 2e-3),
        (DType::BF16.into(), 5e-2),
        (QuantType::Q8_0.into(), 5e-2),
    ] {
        let error = logits(Some(of))?.sub(&exact)?.abs()?.max_all()?.item::<f32>()? / scale;
        assert!(error <= limit, "{of}: {error}");
        assert!((error > 0.0) == (limit > 0.0), "{of}: {error}");
    }
    Ok(())
}

#[test]
fn a_captured_decoder_keeps_the_same_blocks() -> Result<()> {
    let (eager, lazy): (DeviceRef, Arc<Lazy>) = (Autograd::new(Cpu::new()), Lazy::new(Cpu::new()));
    let recording: DeviceRef = Autograd::new(lazy);
    let of = Some(QuantType::Q8_0.into());
    let (a, b) = (model(&eager, of)?, model(&recording, of)?);
    let prompt = |device: &DeviceRef| Tensor::new([[1i32, 7, 30]], device);
    let greedy = |logits: &Tensor| logits.argmax(-1);
    let want = no_grad(|| a.1.generate(&prompt(&eager)?, 30, greedy))?.to_vec::<i32>()?;
    let mut decoder = CachedLm::new(&b.1);
    let got = no_grad(|| decoder.generate(&prompt(&recording)?, 30, greedy))?.to_vec::<i32>()?;
    assert!(decoder.is_replaying());
    assert_eq!(got, want);
    Ok(())
}
