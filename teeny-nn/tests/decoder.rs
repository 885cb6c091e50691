//! Cached decoding: the bits of the eager decoder, one recording for all positions.

use std::sync::Arc;
use teeny_autograd::{Autograd, Grad, no_grad};
use teeny_core::{DType, Device, DeviceRef, Lazy, Tensor, random};
use teeny_cpu::Cpu;
use teeny_nn::{CachedLm, Gpt, GptConfig, Store};

const VOCAB: usize = 31;

/// A model with the same weights on every device.
fn model(device: &DeviceRef, config: GptConfig) -> (Store, Gpt) {
    random::with_seed(7, || {
        let store = Store::new(device);
        let gpt = Gpt::new(&store.root(), config).unwrap();
        for param in store.all() {
            // biases and norms that are not constant, the same on every device
            let noise = Tensor::randn(*param.value().shape(), DType::F32, Cpu::new()).unwrap();
            param
                .set(&param.value().add(noise.mul(0.1).unwrap().to(device).unwrap()).unwrap())
                .unwrap();
        }
        store.set_training(false);
        device.synchronize().unwrap();
        (store, gpt)
    })
}

fn config(context: usize) -> GptConfig {
    GptConfig::new(VOCAB, context, 2, 4, 32)
}

fn recording() -> (DeviceRef, Arc<Lazy>) {
    let lazy = Lazy::new(Cpu::new());
    (Autograd::new(lazy.clone()), lazy)
}

fn tokens(rows: &[[i32; 1]], device: &DeviceRef) -> Tensor {
    let values = rows.iter().map(|row| row[0]).collect();
    Tensor::from_vec(values, (rows.len(), 1), device).unwrap()
}

fn bits(x: &Tensor) -> Vec<u32> {
    x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
}

#[test]
fn every_position_has_the_bits_of_the_eager_decoder_and_builds_nothing() {
    let eager: DeviceRef = Autograd::new(Cpu::new());
    let (device, lazy) = recording();
    let ((_eager, reference), (_store, gpt)) =
        (model(&eager, config(128)), model(&device, config(128)));
    let mut caches = reference.caches();
    let mut decoder = CachedLm::new(&gpt);
    let mut built = None;
    for position in 0..128 {
        let token = [[(position * 7 + 3) % VOCAB as i32], [(position * 5) % VOCAB as i32]];
        let want = no_grad(|| reference.next(&tokens(&token, &eager), &mut caches)).unwrap();
        let got = decoder.next(&tokens(&token, &device)).unwrap();
        assert_eq!(bits(&got), bits(&want), "position {position}");
        assert!(!got.is_tracked() && decoder.len() == position as usize + 1);
        let stats = lazy.counters();
        if position >= 3 {
            assert!(decoder.is_replaying(), "position {position}");
            let known = *built.get_or_insert((stats.plans, stats.kernels, stats.recorded));
            assert_eq!((stats.plans, stats.kernels, stats.recorded), known, "position {position}");
        }
    }
    assert_eq!(lazy.counters().unfused, 0);
    let text = decoder.next(&tokens(&[[1], [2]], &device)).unwrap_err().to_string();
    assert!(text.contains("129 tokens are more than the context of 128"), "{text}");
    assert_eq!(decoder.len(), 128);
}

/// A prompt, another text after a reset, and a prompt in the middle of a text.
#[test]
fn prompts_and_resets_continue_the_recording() {
    let eager: DeviceRef = Autograd::new(Cpu::new());
    let (device, lazy) = recording();
    let ((_eager, reference), (_store, gpt)) =
        (model(&eager, config(24)), model(&device, config(24)));
    let mut decoder = CachedLm::new(&gpt);
    let mut built = None;
    for round in 0..3 {
        let mut caches = reference.caches();
        decoder.truncate(0);
        for (i, count) in [5usize, 1, 1, 1, 1, 1, 3, 1, 1, 1].into_iter().enumerate() {
            let values: Vec<i32> = (0..count as i32).map(|j| (round * 3 + j + 2) % 31).collect();
            let of = |device| Tensor::from_vec(values.clone(), (1, count), device).unwrap();
            let want = no_grad(|| reference.next(&of(&eager), &mut caches)).unwrap();
            let got = decoder.next(&of(&device)).unwrap();
            assert_eq!(bits(&got), bits(&want), "round {round}, call {i}");
        }
        assert!(decoder.is_replaying() && decoder.len() == 16);
        // the first round allocates the keys and values, the others write them
        let plans = lazy.counters().plans;
        if round > 0 {
            assert_eq!(*built.get_or_insert(plans), plans, "round {round}");
        }
    }
}

#[test]
fn generated_tokens_are_those_of_the_model_also_beyond_the_context() {
    let eager: DeviceRef = Autograd::new(Cpu::new());
    let (device, lazy) = recording();
    let ((_eager, reference), (_store, gpt)) =
        (model(&eager, config(12)), model(&device, config(12)));
    let mut decoder = CachedLm::new(&gpt);
    for prompt in [vec![1i64, 2, 3], (0..15).collect()] {
        let of = |device| Tensor::from_vec(prompt.clone(), (1, prompt.len()), device).unwrap();
        let pick = |logits: &Tensor| logits.argmax(-1);
        let want = no_grad(|| reference.generate(&of(&eager), 25, pick)).unwrap();
        let got = decoder.generate(&of(&device), 25, pick).unwrap();
        assert_eq!(got.to_vec::<i64>().unwrap(), want.to_vec::<i64>().unwrap());
        assert_eq!(got.shape()[..], [1, prompt.len() + 25]);
    }
    // Most steps recorded the pick alone.
    let recorded = lazy.counters().recorded;
    let _ = decoder
        .generate(&Tensor::new([[1i64, 2, 3]], &device).unwrap(), 25, |l| l.argmax(-1))
        .unwrap();
    assert!(lazy.counters().recorded - recorded < 200, "{}", lazy.counters().recorded - recorded);
}

/// New weights and another mode are seen: the step is recorded again.
#[test]
fn changed_weights_are_recorded_again() {
    let eager: DeviceRef = Autograd::new(Cpu::new());
    let (device, _) = recording();
    let ((other, reference), (store, gpt)) =
        (model(&eager, config(16)), model(&device, config(16)));
    let (mut caches, mut decoder) = (reference.caches(), CachedLm::new(&gpt));
    for position in 0..16 {
        if position == 7 {
            assert!(decoder.is_replaying());
            for store in [&store, &other] {
                let weight = store.get("h.1.attn.c_attn.weight").unwrap();
                weight.set(&weight.value().mul(0.5).unwrap()).unwrap();
            }
        }
        let token = [[position * 2 % 31]];
        let want = no_grad(|| reference.next(&tokens(&token, &eager), &mut caches)).unwrap();
        let got = decoder.next(&tokens(&token, &device)).unwrap();
        assert_eq!(bits(&got), bits(&want), "position {position}");
        // three recordings from position 1 on, and again from position 7 on
        let recorded = (0..3).contains(&position) || (7..9).contains(&position);
        assert_eq!(decoder.is_replaying(), !recorded, "position {position}");
    }
}

/// A token writes its own row of keys and values, however long the context is: a copy of a cache
/// would leave the old one behind in the pool.
#[test]
fn keys_and_values_are_written_in_place() {
    let cpu = Cpu::new();
    let device: DeviceRef = Autograd::new(Lazy::new(cpu.clone()));
    let (_store, gpt) = model(&device, config(4096));
    let mut decoder = CachedLm::new(&gpt);
    let cache = 4096 * 32 * 4; // bytes of keys or values of one layer
    for position in 0..10 {
        cpu.clear_cache();
        let live = device.stats().live_bytes;
        decoder.next(&tokens(&[[position]], &device)).unwrap().to_vec::<f32>().unwrap();
        let stats = device.stats();
        if position == 0 {
            assert!(stats.live_bytes - live >= 4 * cache, "keys and values of two layers");
            continue;
        }
        assert_eq!(stats.live_bytes, live, "position {position}");
        assert!(stats.cached_bytes < cache, "position {position}: {stats:?}");
    }
}

#[test]
fn mistakes_are_explained() {
    let eager: DeviceRef = Autograd::new(Cpu::new());
    let (_eager, gpt) = model(&eager, config(8));
    let mut decoder = CachedLm::new(&gpt);
    for i in 0..8 {
        let _ = decoder.next(&tokens(&[[i]], &eager)).unwrap();
    }
    assert!(!decoder.is_replaying(), "this device does not record");

    let (device, _) = recording();
    let (_store, gpt) = model(&device, config(8));
    let mut decoder = CachedLm::new(&gpt);
    let text = decoder.next(&Tensor::new([1i32], &device).unwrap()).unwrap_err().to_string();
    assert!(text.contains("tokens are (B, T) with T > 0, not (1,)"), "{text}");
    for i in 0..5 {
        let _ = decoder.next(&tokens(&[[i]], &device)).unwrap();
    }
    let text = decoder.next(&tokens(&[[1], [2]], &device)).unwrap_err().to_string();
    assert!(text.contains("(2, 4, 1, 8) do not continue the (1, 4, 8, 8) kept"), "{text}");
    // a wrong type is found before anything is given up
    let floats = Tensor::zeros((1, 1), DType::F32, &device).unwrap();
    assert!(decoder.next(&floats).is_err());
    assert!(decoder.len() == 5 && decoder.is_replaying());
    // A token outside of the vocabulary fails on the device: keys and values are lost.
    let text = decoder.next(&tokens(&[[99]], &device)).unwrap_err().to_string();
    assert!(text.contains("99") && text.contains("31"), "{text}");
    let text = decoder.next(&tokens(&[[1]], &device)).unwrap_err().to_string();
    assert!(
        text.contains("the 5 positions kept were lost") && text.contains("truncate(0)"),
        "{text}"
    );
    decoder.truncate(0);
    for i in 0..8 {
        let _ = decoder.next(&tokens(&[[i]], &device)).unwrap();
    }
    assert!(decoder.next(&tokens(&[[1]], &device)).is_err());
}

/// Other texts need no other memory, or get theirs.
#[test]
fn another_batch_follows_after_all_tokens_are_forgotten() {
    let eager: DeviceRef = Autograd::new(Cpu::new());
    for device in [recording().0, eager] {
        let (_store, gpt) = model(&device, config(16));
        let mut text = CachedLm::with_capacity(&gpt, 8);
        for rows in [vec![[1], [2], [3]], vec![[4]], vec![[5], [6]]] {
            text.truncate(0);
            let mut caches = gpt.caches();
            for i in 0..6 {
                let new: Vec<[i32; 1]> = rows.iter().map(|row| [row[0] + i]).collect();
                let want = no_grad(|| gpt.next(&tokens(&new, &device), &mut caches)).unwrap();
                let got = text.next(&tokens(&new, &device)).unwrap();
                assert_eq!(bits(&got), bits(&want), "{rows:?}, token {i}");
            }
        }
        // the window has the size of the capacity, or of a smaller context
        for capacity in [0, 1, 5, 16, 1000] {
            let mut text = CachedLm::with_capacity(&gpt, capacity);
            let prompt = Tensor::new([[1i32, 2, 3]], &device).unwrap();
            let all = text.generate(&prompt, 20, |logits| logits.argmax(-1)).unwrap();
            let all = all.to_vec::<i32>().unwrap();
            let last = &all[..22][22usize.saturating_sub(capacity.clamp(1, 16))..];
            let last = Tensor::from_vec(last.to_vec(), (1, last.len()), &device).unwrap();
            let logits = no_grad(|| gpt.logits(&last)).unwrap().at(1, -1).unwrap();
            let want = logits.argmax(-1).unwrap().to_vec::<i32>().unwrap()[0];
            assert_eq!(all[22], want, "capacity {capacity}");
        }
    }
}
