//! The loss of a decoder in slices, and blocks that are checkpoints: the values and gradients of
//! the plain form, with less memory.

use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_cpu::Cpu;
use teeny_nn::Store;
use teeny_nn::loss::cross_entropy;
use teeny_nn::transformer::{CausalBatch, CausalLm, CausalLmConfig};

/// The loss and the gradients of all parameters, as bytes.
fn results(store: &Store, loss: &Tensor) -> Result<Vec<Vec<f32>>> {
    let gradients = loss.backward()?;
    let mut all = vec![loss.to_vec::<f32>()?];
    for param in store.trainable() {
        all.push(gradients.get(&param.value())?.to_vec::<f32>()?);
    }
    Ok(all)
}

fn batch(rows: usize, width: usize, vocab: i32, device: &DeviceRef) -> Result<CausalBatch> {
    let count = (rows * width) as i32;
    let tokens: Vec<i32> = (0..count).map(|i| (i * 7 + i / 3) % vocab).collect();
    let positions: Vec<i32> = (0..count).filter(|i| i % 4 != 1).collect();
    let targets: Vec<i32> = positions.iter().map(|i| (i * 5 + 2) % vocab).collect();
    let n = positions.len();
    Ok(CausalBatch::new(
        Tensor::from_vec(tokens, (rows, width), device)?,
        Tensor::from_vec(positions, n, device)?,
        Tensor::from_vec(targets, n, device)?,
    ))
}

#[test]
fn slices_and_checkpoints_change_nothing_but_memory() -> Result<()> {
    let device: DeviceRef = Autograd::new(Cpu::new());
    for (tied, softcap) in [(false, None), (true, None), (false, Some(3.0))] {
        let store = Store::new(&device);
        let mut config = CausalLmConfig::new(29, 16, 3, 2, 8, 12);
        (config.tied, config.logits_softcap) = (tied, softcap);
        let model = CausalLm::new(&store.root(), config)?;
        let batch = batch(3, 11, 29, &device)?;
        let plain = {
            let logits = model.logits(&batch.tokens)?.flatten(0, 1)?;
            let logits = logits.index_select(0, &batch.positions)?;
            let count = batch.targets.numel() as f64;
            results(&store, &cross_entropy(&logits, &batch.targets)?.mul(count)?)?
        };
        for slice in [1, 7, 1000] {
            model.set_checkpoints(false);
            let sliced = results(&store, &model.loss(&batch, slice)?)?;
            for (got, want) in sliced.iter().flatten().zip(plain.iter().flatten()) {
                assert!((got - want).abs() <= 2e-5 * want.abs().max(1.0), "{slice}: {got} {want}");
            }
            model.set_checkpoints(true);
            assert_eq!(sliced, results(&store, &model.loss(&batch, slice)?)?, "the same bits");
        }
    }
    Ok(())
}

#[test]
fn the_logits_of_all_tokens_never_exist() -> Result<()> {
    let cpu = Cpu::new();
    let device: DeviceRef = Autograd::new(cpu.clone());
    let store = Store::new(&device);
    let (vocab, tokens) = (8192, 1024);
    let model = CausalLm::new(&store.root(), CausalLmConfig::new(vocab, 256, 4, 2, 16, 32))?;
    store.all().iter().try_for_each(|p| p.set_trainable(p.name().contains("norm")))?;
    let batch = batch(4, 256, vocab as i32, &device)?;
    let peak = |slice: usize, checkpoints: bool| -> Result<usize> {
        model.set_checkpoints(checkpoints);
        model.loss(&batch, slice)?.backward()?;
        Ok(cpu.pool_stats().peak_live_bytes)
    };
    let logits = tokens * vocab * 4;
    // from the least to the most, as the device never resets its peak
    let least = peak(64, true)?;
    assert!(least < logits / 2, "{least} bytes, where logits have {logits}");
    let blocks = peak(64, false)?;
    assert!(blocks > least, "checkpoints keep the inputs of blocks alone: {least}, {blocks}");
    let whole = peak(tokens, false)?;
    assert!(whole > blocks + logits / 2, "{blocks}, {whole}");
    Ok(())
}

#[test]
fn a_batch_without_targets_or_with_others_is_refused() -> Result<()> {
    let device = teeny_nn::device("cpu")?;
    let store = Store::new(&device);
    let model = CausalLm::new(&store.root(), CausalLmConfig::new(29, 16, 1, 2, 8, 12))?;
    let good = batch(2, 5, 29, &device)?;
    let none = Tensor::zeros(0, DType::I32, &device)?;
    let empty = CausalBatch::new(good.tokens.clone(), none.clone(), none);
    let error = model.loss(&empty, 8).unwrap_err().to_string();
    assert!(error.contains("causal_lm loss") && error.contains("at least one"), "{error}");
    assert!(model.loss(&good, 0).is_err());
    let far = Tensor::full(3, 10, DType::I32, &device)?;
    let outside = CausalBatch::new(good.tokens.clone(), far.clone(), far);
    assert!(model.loss(&outside, 8).is_err(), "position 10 of 10 tokens");
    let other = CausalBatch::new(good.tokens, good.positions.slice(0, ..3)?, good.targets);
    assert!(model.loss(&other, 8).is_err(), "3 positions for more targets");
    Ok(())
}
