//! Awaited reads and waits, as in a browser, run natively.

use crate::common::gpu;
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, Device, DeviceRef, ErrorKind, Lazy, Tensor};
use teeny_nn::state::Checkpoint;
use teeny_nn::train::{Confusion, accuracy, accuracy_async};
use teeny_nn::{BatchNorm, Module, Store};
use teeny_wgpu::{Options, Wgpu};

#[test]
fn reads_overlap_later_work_and_may_end_in_any_order() {
    let Some(gpu) = gpu() else { return };
    let mut x = Tensor::zeros((1000,), DType::F32, &gpu).unwrap(); // (1000)
    let mut reads = Vec::new();
    for i in 0..20 {
        let part = Tensor::full((10,), i as f32, DType::F32, &gpu).unwrap(); // (10)
        x = x.slice_assign(0, 10 * i..10 * (i + 1), &part).unwrap(); // (1000), written in place
        reads.push(x.to_vec_async::<f32>());
    }
    drop(x);
    for (i, read) in reads.into_iter().enumerate().rev() {
        let values = pollster::block_on(read).unwrap();
        let sum: f32 = values.iter().sum();
        assert_eq!(sum, (0..=i).map(|i| 10.0 * i as f32).sum::<f32>(), "after write {i}");
    }
}

#[test]
fn a_read_that_takes_several_copies_has_the_elements_of_its_call() {
    let Some(gpu) = gpu() else { return };
    let n = 20_000_000; // 76 MiB, two copies
    let mut x = Tensor::ones((n,), DType::F32, &gpu).unwrap(); // (n)
    let reading = x.to_bytes_async();
    let zeros = Tensor::zeros((2,), DType::F32, &gpu).unwrap(); // (2)
    x = x.slice_assign(0, -2.., &zeros).unwrap(); // (n)
    let bytes = pollster::block_on(reading).unwrap();
    assert_eq!(bytes.len(), 4 * n);
    assert!(bytes.chunks_exact(4).all(|b| b == 1f32.to_le_bytes()));
    assert_eq!(x.slice(0, -3..).unwrap().to_vec::<f32>().unwrap(), [1.0, 0.0, 0.0]);
}

#[test]
fn futures_own_the_device_that_they_wait_for() {
    let Some(_) = gpu() else { return };
    let (reading, waiting, ready) = {
        let gpu = Wgpu::with_options(&Options::default()).unwrap();
        let x = Tensor::arange(0.0f32, 10.0, 1.0, &gpu).unwrap().mul(2.0).unwrap(); // (10)
        (x.to_vec_async::<f32>(), gpu.synchronize_async(), gpu.ready_async())
    };
    assert_eq!(pollster::block_on(reading).unwrap()[9], 18.0);
    pollster::block_on(waiting).unwrap();
    pollster::block_on(ready).unwrap();
}

#[test]
fn a_read_that_is_dropped_leaves_the_device_usable() {
    let Some(gpu) = gpu() else { return };
    let x = Tensor::arange(0.0f32, 1000.0, 1.0, &gpu).unwrap(); // (1000)
    for _ in 0..100 {
        drop(x.to_vec_async::<f32>());
        drop(gpu.synchronize_async());
        drop(gpu.ready_async());
    }
    assert_eq!(x.to_vec::<f32>().unwrap()[999], 999.0);
}

#[test]
fn a_wrong_index_is_the_error_of_the_read_or_wait_that_is_awaited() {
    let Some(gpu) = gpu() else { return };
    let x = Tensor::arange(0.0f32, 10.0, 1.0, &gpu).unwrap(); // (10)
    let right = Tensor::new([1i32, 2], &gpu).unwrap(); // (2)
    let wrong = Tensor::new([1i32, 99], &gpu).unwrap(); // (2)
    let trusted = gpu.synchronize().is_ok() && x.index_select(0, &wrong).is_ok();
    if !trusted {
        return; // checked shaders return the error at the call
    }
    let error = pollster::block_on(gpu.synchronize_async()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Index, "{error}");
    pollster::block_on(gpu.synchronize_async()).unwrap();
    // of several reads, those that were begun before the mistake return their elements
    let before = x.index_select(0, &right).unwrap().to_vec_async::<f32>();
    let mistake = x.index_select(0, &wrong).unwrap().to_vec_async::<f32>();
    assert_eq!(pollster::block_on(mistake).unwrap_err().kind(), ErrorKind::Index);
    assert_eq!(pollster::block_on(before).unwrap(), [1.0, 2.0]);
    let after = x.index_select(0, &right).unwrap().to_vec_async::<f32>();
    assert_eq!(pollster::block_on(after).unwrap(), [1.0, 2.0]);
}

#[test]
fn training_reads_its_losses_through_all_wrappers_without_waiting() {
    let Some(gpu) = gpu() else { return };
    let devices: [DeviceRef; 2] =
        [Autograd::new(gpu.clone()), Autograd::new(Lazy::new(gpu.clone()))];
    for device in devices {
        let mut w = Tensor::full((4, 4), 0.5, DType::F32, &device).unwrap(); // (4, 4)
        let (mut awaited, mut waited) = (Vec::new(), Vec::new());
        for _ in 0..50 {
            let p = w.detach().unwrap().requires_grad().unwrap(); // (4, 4)
            let loss = p.matmul(&p).unwrap().sub(1.0).unwrap(); // (4, 4)
            let loss = loss.mul(&loss).unwrap().mean_all().unwrap(); // ()
            let g = loss.backward().unwrap().take(&p).unwrap(); // (4, 4)
            w = w.sub(g.mul(0.1).unwrap()).unwrap(); // (4, 4)
            awaited.push(loss.item_async::<f32>());
            waited.push(loss);
            pollster::block_on(device.ready_async()).unwrap();
        }
        pollster::block_on(device.synchronize_async()).unwrap();
        for (read, loss) in awaited.into_iter().zip(waited) {
            assert_eq!(pollster::block_on(read).unwrap(), loss.item::<f32>().unwrap());
        }
    }
}

#[test]
fn adapters_are_listed_without_blocking() {
    let Some(gpu) = gpu() else { return };
    let adapters = pollster::block_on(Wgpu::adapters_async());
    assert_eq!(adapters, Wgpu::adapters());
    assert!(adapters.iter().any(|adapter| adapter.name == gpu.capabilities().name));
    let opened = pollster::block_on(Wgpu::new_async(&Options::default())).unwrap();
    assert!(Arc::strong_count(&opened) == 1, "no cycle keeps a device alive");
}

#[test]
fn a_batch_norm_its_metrics_and_its_checkpoint_need_no_64_bit_integers() {
    let Some(_) = gpu() else { return };
    let gpu = Wgpu::with_options(&Options::new().with_portable(true)).unwrap();
    assert!(!gpu.capabilities().int64);
    let device = Autograd::new(gpu);
    let (store, mut other) = (Store::new(&device), Store::new(&device));
    let norm = BatchNorm::new(&store.at("bn"), 3).unwrap();
    BatchNorm::new(&other.at("bn"), 3).unwrap();
    let x = [[1.0f32, 2.0, 0.0], [3.0, -1.0, 5.0], [0.5, 0.0, 1.0]];
    let x = Tensor::new(x, &device).unwrap(); // (3, 3)
    for _ in 0..3 {
        let _ = norm.forward(&x).unwrap();
    }
    let targets = Tensor::new([1i32, 2, 0], &device).unwrap(); // (3)
    assert_eq!(accuracy(&x, &targets).unwrap(), 2);
    assert_eq!(pollster::block_on(accuracy_async(&x, &targets)).unwrap(), 2);
    let mut confusion = Confusion::new(3);
    confusion.add(&x, &targets).unwrap();
    assert_eq!(confusion.count(0, 2), 1);
    let mut checkpoint = Checkpoint::new();
    checkpoint.put("model", &store).unwrap();
    let bytes = pollster::block_on(checkpoint.to_bytes_async()).unwrap();
    let loaded = Checkpoint::from_bytes(bytes, &device).unwrap();
    loaded.restore("model", &mut other).unwrap();
    let counter = other.get("bn.num_batches_tracked").unwrap().value(); // ()
    assert_eq!(counter.item::<i32>().unwrap(), 3);
    assert_eq!(other.to_bytes().unwrap(), store.to_bytes().unwrap());
}
