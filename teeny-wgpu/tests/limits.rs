//! Sizes beyond 32 bits, beyond a buffer and beyond the cache; many readers at once.

use crate::common::gpu;
use std::sync::Arc;
use teeny_core::{DType, Device, DeviceRef, ErrorKind, Result, SortOrder, Tensor};
use teeny_wgpu::{Options, Wgpu};

/// A view of one element, `n` times.
fn repeated(value: f64, n: usize, dtype: DType, gpu: &Arc<Wgpu>) -> Tensor {
    Tensor::full(1, value, dtype, gpu).unwrap().expand(n).unwrap()
}

#[test]
fn five_thousand_million_ones_sum_to_five_thousand_million() {
    let Some(gpu) = gpu() else { return };
    let ones = repeated(1.0, 5_000_000_000, DType::F32, &gpu);
    assert_eq!(ones.sum_all().unwrap().item::<f32>().unwrap(), 5e9);
}

#[test]
fn threads_that_read_at_once_all_get_their_numbers() {
    let Some(gpu) = gpu() else { return };
    let x = Tensor::arange(0.0f32, 64.0, 1.0, &gpu).unwrap();
    let failures: Vec<String> = std::thread::scope(|scope| {
        let reader = |seed: usize| {
            let x = x.clone();
            scope.spawn(move || {
                let read = |i: usize| {
                    let at = (seed * 31 + i) % 64;
                    match x.slice(0, at as isize..at as isize + 1).and_then(|y| y.item::<f32>()) {
                        Ok(value) if value == at as f32 => None,
                        Ok(value) => Some(format!("{value} is not {at}")),
                        Err(error) => Some(error.to_string()),
                    }
                };
                (0..5000).filter_map(read).collect::<Vec<_>>()
            })
        };
        let readers: Vec<_> = (0..4).map(reader).collect();
        readers.into_iter().flat_map(|reader| reader.join().unwrap()).collect()
    });
    assert!(failures.is_empty(), "{} of 20000 reads failed: {}", failures.len(), failures[0]);
}

#[test]
fn uploads_in_a_loop_use_the_same_memory_again() {
    let Some(gpu) = gpu() else { return };
    let values = vec![1.0f32; 64 << 10];
    for _ in 0..2000 {
        let _ = Tensor::from_slice(&values, values.len(), &gpu).unwrap();
    }
    let stats = gpu.stats();
    assert!(stats.os_allocations <= 4, "{stats:?}");
    assert!(stats.cached_bytes <= 1 << 20, "{stats:?}");
}

#[test]
fn uploads_in_parts_arrive_whole() {
    let Some(gpu) = gpu() else { return };
    let len = (65 << 20) + 3;
    let numbers = |at: usize, part: &mut [u8]| {
        part.iter_mut().enumerate().for_each(|(i, to)| *to = ((at + i) % 251) as u8);
        Ok(())
    };
    let x = Tensor::from_bytes_with(len, DType::U8, &gpu, numbers).unwrap();
    let back = x.to_bytes().unwrap();
    assert!(back.iter().enumerate().all(|(i, byte)| *byte == (i % 251) as u8));
}

#[test]
fn sizes_whose_bytes_overflow_are_out_of_memory_and_name_the_operation() {
    let Some(gpu) = gpu() else { return };
    type Op = fn(&Tensor) -> Result<Tensor>;
    let ops: [(&str, Op); 9] = [
        ("add", |x| x.add(1.0)),
        ("copy", |x| x.copy()),
        ("cumsum", |x| x.cumsum(0)),
        ("sort", |x| Ok(x.sort(0, SortOrder::Ascending)?.0)),
        ("softmax", |x| x.softmax(0)),
        ("gather", |x| x.gather(0, &Tensor::zeros(1, DType::I32, x.device())?.expand(x.numel())?)),
        ("sum", |x| x.unsqueeze(0)?.expand((2, x.numel()))?.sum(0)),
        ("matmul", |x| x.unsqueeze(1)?.matmul(&Tensor::zeros((1, 2), DType::F32, x.device())?)),
        ("layer_norm", |x| x.unsqueeze(1)?.layer_norm(1, None, None, 1e-5)),
    ];
    for numel in [1usize << 40, 1 << 58] {
        for (name, op) in ops {
            let x = repeated(1.0, numel, DType::F32, &gpu);
            let error = op(&x).unwrap_err();
            let refused = matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Unsupported)
                || name == "sort";
            assert!(refused, "{name}: {error}");
            assert!(error.to_string().contains("limits.rs"), "{name}: {error}");
            assert_eq!(
                repeated(1.0, 8, DType::F32, &gpu).sum_all().unwrap().item::<f32>().unwrap(),
                8.0,
                "after {name}"
            );
        }
        let error = repeated(1.0, numel, DType::F32, &gpu).to_vec::<f32>().unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::OutOfMemory | ErrorKind::Value), "{error}");
    }
}

#[test]
fn a_budget_that_is_met_names_the_operation_and_the_bytes() {
    let Some(_) = gpu() else { return };
    let gpu = Wgpu::with_options(&Options::new().with_memory_budget(Some(1 << 20))).unwrap();
    let x = Tensor::zeros((300, 300), DType::F32, &gpu).unwrap();
    let y = x.add(1.0).unwrap();
    let error = x.matmul(&y).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    let text = error.to_string();
    assert!(text.starts_with("matmul at ") && text.contains("360000 more bytes"), "{text}");
    let small = Tensor::full(10, 2.0, DType::F32, &gpu).unwrap();
    assert_eq!(small.mul(3.0).unwrap().to_vec::<f32>().unwrap(), [6.0; 10]);
}

#[test]
fn a_lost_device_says_so_and_how_to_go_on_at_every_call() {
    let Some(_) = gpu() else { return };
    let gpu = Wgpu::new().unwrap();
    let x = Tensor::zeros(10, DType::F32, &gpu).unwrap();
    gpu.raw().0.destroy();
    let device = gpu.clone() as DeviceRef;
    let calls: [(&str, &dyn Fn() -> Result<()>); 5] = [
        ("compute and read", &|| x.add(1.0)?.to_vec::<f32>().map(|_| ())),
        ("read", &|| x.to_vec::<f32>().map(|_| ())),
        ("compile and read", &|| x.sin()?.cumsum(0)?.to_vec::<f32>().map(|_| ())),
        ("upload and read", &|| Tensor::new([1.0f32, 2.0], &device)?.to_vec::<f32>().map(|_| ())),
        ("wait", &|| gpu.synchronize()),
    ];
    for (name, call) in calls {
        let error = call().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{name}: {error}");
        assert!(error.to_string().contains("make a new Wgpu"), "{name}: {error}");
    }
}
