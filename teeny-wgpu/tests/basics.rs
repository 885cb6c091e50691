//! The engine's own promises: transfers, caching, batching, memory, failures. Operations are held
//! against the oracle in `conformance.rs`.

use crate::common::gpu;
use teeny_core::{DType, Device, ErrorKind, Reference, SortOrder, Tensor};
use teeny_wgpu::{Choice, Options, Shaders, Wgpu};

#[test]
fn every_type_survives_the_round_trip() {
    let Some(gpu) = gpu() else { return };
    for dtype in DType::ALL {
        for len in [0usize, 1, 3, 4, 5, 1023] {
            let bytes: Vec<u8> = (0..len * dtype.size())
                .map(|i| if dtype == DType::Bool { (i % 2) as u8 } else { (i * 37 % 251) as u8 })
                .collect();
            let x = Tensor::from_bytes(&bytes, len, dtype, &gpu).unwrap();
            assert_eq!(gpu.download(&x).unwrap(), bytes, "{dtype} {len}");
            let part = |at: usize, part: &mut [u8]| {
                part.copy_from_slice(&bytes[at..at + part.len()]);
                Ok(())
            };
            let x = Tensor::from_bytes_with(len, dtype, &gpu, part).unwrap();
            assert_eq!(gpu.download(&x).unwrap(), bytes, "{dtype} {len} in parts");
        }
    }
}

#[test]
fn to_vec_async_gives_what_to_vec_gives() {
    let Some(gpu) = gpu() else { return };
    let x = Tensor::from_slice(&(0..3000).map(|i| i as f32).collect::<Vec<_>>(), (30, 100), &gpu)
        .unwrap();
    let y = x.t().unwrap().mul(2.0).unwrap();
    let row = x.slice(0, 1..2).unwrap();
    let (a, b) = pollster::block_on(async {
        (y.to_vec_async::<f32>().await, row.to_vec_async::<f32>().await)
    });
    assert_eq!(a.unwrap(), y.to_vec::<f32>().unwrap());
    assert_eq!(b.unwrap(), (100..200).map(|i| i as f32).collect::<Vec<_>>());
    let error = pollster::block_on(x.to_vec_async::<i32>()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::DType, "{error}");
    assert!(error.to_string().starts_with("to_vec_async at teeny-wgpu/tests"), "{error}");
}

#[test]
fn a_kernel_runs_over_strided_views_of_packed_types() {
    let Some(gpu) = gpu() else { return };
    let x = Tensor::new([[1u8, 2, 3], [4, 5, 6]], &gpu).unwrap();
    let y = x.t().unwrap().add(x.slice(0, 1..).unwrap().reshape((3, 1)).unwrap()).unwrap();
    assert_eq!(y.to_vec::<u8>().unwrap(), [5, 8, 7, 10, 9, 12]);
    let f = Tensor::new([0.5f32, -1.0, 2.0], &gpu).unwrap();
    assert_eq!(f.flip(0).unwrap().exp().unwrap().to_vec::<f32>().unwrap().len(), 3);
}

#[test]
fn one_compilation_for_a_hundred_calls_and_none_for_a_new_shape() {
    let Some(gpu) = gpu() else { return };
    let x = Tensor::zeros((64, 32), DType::F32, &gpu).unwrap();
    let b = Tensor::zeros(32, DType::F32, &gpu).unwrap();
    let before = gpu.counters();
    for _ in 0..100 {
        let _ = x.add(&b).unwrap();
    }
    let after = gpu.counters();
    assert_eq!(after.compiles - before.compiles, 1);
    assert_eq!(after.dispatches - before.dispatches, 100);
    assert!(after.submissions - before.submissions <= 2);
    let x = Tensor::zeros((7, 128), DType::F32, &gpu).unwrap();
    let b = Tensor::zeros(128, DType::F32, &gpu).unwrap();
    let before = gpu.counters();
    let _ = x.add(&b).unwrap();
    let _ = x.add(2.5).unwrap();
    let _ = x.add(3.5).unwrap();
    assert_eq!(gpu.counters().compiles - before.compiles, 1, "only `add a number` is new");
}

#[test]
fn each_family_compiles_once_for_a_hundred_calls_and_not_for_a_new_shape() {
    type Op = fn(&Tensor, &Tensor) -> teeny_core::Result<Tensor>;
    let families: [(&str, Op); 7] = [
        ("elementwise", |x, _| x.exp()),
        ("reduce", |x, _| x.sum(1)),
        ("reduce a kernel", |x, _| x.logsumexp(1)),
        ("matmul", |x, _| x.matmul(&x.t()?)),
        ("softmax", |x, _| x.softmax(1)),
        ("gather", |x, index| x.gather(0, index)),
        ("scan", |x, _| x.cumsum(1)),
    ];
    for (name, op) in families {
        let Some(gpu) = gpu() else { return };
        let tensors = |shape: (usize, usize)| {
            let (rows, columns) = shape;
            let x = Tensor::from_vec(
                (0..rows * columns).map(|i| i as f32 * 0.01).collect::<Vec<_>>(),
                shape,
                &gpu,
            )
            .unwrap();
            (x, Tensor::from_vec(vec![1i32; rows * columns], shape, &gpu).unwrap())
        };
        let (x, index) = tensors((64, 128));
        let (y, other) = tensors((56, 136)); // small enough for the same tiles
        let _ = op(&x, &index).unwrap();
        let once = gpu.counters();
        assert!(once.compiles >= 1, "{name}");
        for _ in 0..100 {
            let _ = op(&x, &index).unwrap();
        }
        let _ = op(&y, &other).unwrap();
        let after = gpu.counters();
        assert_eq!(
            after.compiles, once.compiles,
            "{name}: identical calls and a new shape of the same rank compile nothing"
        );
        assert_eq!(after.dispatches - once.dispatches, 101 * once.dispatches, "{name}");
    }
}

#[test]
fn memory_is_reused_and_counted_exactly() {
    let Some(gpu) = gpu() else { return };
    let step = || {
        let x = Tensor::full((100, 100), 1.5, DType::F32, &gpu).unwrap();
        let y = x.mul(&x).unwrap().exp().unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap().len(), 10_000);
        y.sum_all().unwrap().item::<f32>().unwrap(); // four bytes, in a buffer of many more
    };
    step();
    step();
    let before = gpu.stats();
    for _ in 0..20 {
        step();
    }
    let after = gpu.stats();
    assert_eq!(before.live_bytes, 0);
    assert_eq!(after.live_bytes, 0);
    assert_eq!(after.os_allocations, before.os_allocations, "a repeated step allocates nothing");
    assert!(after.peak_bytes >= 80_000 && after.cached_bytes > 0);
    gpu.clear_cache();
    assert_eq!(gpu.stats().cached_bytes, 0);
}

#[test]
fn an_upload_does_not_overtake_commands_that_still_read_the_recycled_buffer() {
    let Some(gpu) = gpu() else { return };
    for round in 0..20 {
        let x = Tensor::full(1000, round as f32, DType::F32, &gpu).unwrap();
        let x = Tensor::from_slice(&x.to_vec::<f32>().unwrap(), 1000, &gpu).unwrap();
        let y = x.add(1.0).unwrap(); // recorded, not run
        drop(x);
        let z = Tensor::from_slice(&vec![-5.0f32; 1000], 1000, &gpu).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), vec![round as f32 + 1.0; 1000]);
        assert_eq!(z.to_vec::<f32>().unwrap(), vec![-5.0; 1000]);
    }
}

#[test]
fn a_budget_is_kept_and_the_device_stays_usable() {
    let Some(_) = gpu() else { return };
    let gpu = Wgpu::with_options(&Options::new().with_memory_budget(Some(1 << 20))).unwrap();
    let x = Tensor::zeros(100_000, DType::F32, &gpu).unwrap();
    let error = x.add(1.0).and_then(|y| y.add(&x).map(|z| (y, z))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("budget is 1048576"), "{error}");
    drop(x);
    // Freed memory is used again, in another size class too: the free buffers are dropped
    // first.
    let small = Tensor::full(1000, 2.0, DType::F32, &gpu).unwrap();
    assert_eq!(small.add(1.0).unwrap().to_vec::<f32>().unwrap()[999], 3.0);
    let other = Tensor::full(200_000, 2.0, DType::F32, &gpu).unwrap();
    assert_eq!(other.to_vec::<f32>().unwrap()[199_999], 2.0);
}

#[test]
fn a_tensor_larger_than_any_buffer_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let len = gpu.capabilities().max_buffer as usize / 4 + 1;
    let error =
        Tensor::zeros(1, DType::F32, &gpu).unwrap().expand(len).unwrap().copy().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert!(error.to_string().contains("largest buffer"), "{error}");
}

#[test]
fn a_tensor_larger_than_one_binding_is_covered_by_windows() {
    let Some(gpu) = gpu() else { return };
    let limit = gpu.capabilities().max_binding as usize;
    if limit > 256 << 20 {
        // only a test for adapters with small bindings; elsewhere it would need too much memory
        return;
    }
    let len = limit + 1000; // of u8
    let x = Tensor::full(len, 3, DType::U8, &gpu).unwrap();
    let y = x.add(&x).unwrap();
    for at in [0, limit - 1, limit, len - 1] {
        assert_eq!(y.slice(0, at..at + 1).unwrap().to_vec::<u8>().unwrap(), [6]);
    }
}

#[test]
fn a_lost_device_is_an_error_not_a_panic() {
    let Some(_) = gpu() else { return };
    let gpu = Wgpu::new().unwrap();
    let x = Tensor::zeros(10, DType::F32, &gpu).unwrap();
    gpu.raw().0.destroy();
    let result = (0..3).map(|_| x.add(1.0).and_then(|y| y.to_vec::<f32>())).find_map(|r| r.err());
    let error = result.expect("reading from a destroyed device fails");
    assert!(matches!(error.kind(), ErrorKind::Device | ErrorKind::Internal), "{error}");
}

#[test]
fn a_missing_adapter_is_an_error_that_lists_the_others() {
    let error =
        Wgpu::with_options(&Options::new().with_adapter(Choice::Name("no such card".into())))
            .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(error.to_string().contains("no such card"), "{error}");
}

#[test]
fn types_that_the_adapter_lacks_are_refused_with_an_alternative() {
    let Some(_) = gpu() else { return };
    let gpu = Wgpu::with_options(&Options::new().with_portable(true)).unwrap();
    let x = Tensor::zeros(3, DType::F32, &gpu).unwrap();
    let error = x.cast(DType::I64).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(
        error.to_string().contains("i64") && error.to_string().contains("help: cast to i32"),
        "{error}"
    );
}

#[test]
fn a_position_outside_its_axis_is_reported_at_the_call_or_by_the_next_read() {
    let Some(_) = gpu() else { return };
    for shaders in [Shaders::Checked, Shaders::Trusted] {
        let gpu = Wgpu::with_options(&Options::new().with_shaders(shaders)).unwrap();
        let x = Tensor::new([1.0f32, 2.0, 3.0], &gpu).unwrap();
        let result = x.gather(0, &Tensor::new([0i32, 7], &gpu).unwrap());
        let error = match shaders {
            Shaders::Checked => result.unwrap_err(),
            Shaders::Trusted => {
                let y = result.unwrap();
                let error = y.to_vec::<f32>().unwrap_err();
                assert_eq!(y.to_vec::<f32>().unwrap(), [1.0, 0.0], "nothing outside is read");
                let _ = x.gather(0, &Tensor::new([-1i32], &gpu).unwrap()).unwrap();
                assert_eq!(gpu.synchronize().unwrap_err().kind(), ErrorKind::Index);
                error
            }
        };
        assert_eq!(error.kind(), ErrorKind::Index, "{error}");
        assert!(gpu.synchronize().is_ok(), "an error is reported once");
    }
}

#[test]
fn an_index_into_an_empty_axis_is_an_error_of_the_call() {
    let Some(gpu) = gpu() else { return };
    let x = Tensor::zeros((2, 0, 3), DType::F32, &gpu).unwrap();
    let index = Tensor::zeros((2, 1, 3), DType::I32, &gpu).unwrap();
    let error = x.scatter_add(1, &index, &index.cast(DType::F32).unwrap()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Index, "{error}");
    assert!(
        error.to_string().contains("index[0, 0, 0] is 0, but axis 1 of (2, 0, 3) has size 0"),
        "{error}"
    );
    // An empty scatter is not an error.
    let none = Tensor::zeros((2, 0, 3), DType::I32, &gpu).unwrap();
    assert_eq!(x.scatter_add(1, &none, &x).unwrap().numel(), 0);
}

#[test]
fn long_lines_are_sorted_and_summed() {
    let Some(gpu) = gpu() else { return };
    let values: Vec<f32> = (0..5000).map(|i| ((i * 7919) % 5003) as f32).collect();
    let x = Tensor::from_slice(&values, 5000, &gpu).unwrap();
    let (sorted, _) = x.sort(0, SortOrder::Ascending).unwrap();
    let mut expected = values.clone();
    expected.sort_by(f32::total_cmp);
    assert_eq!(sorted.to_vec::<f32>().unwrap(), expected);
    let ones = Tensor::full(3_000_000, 1.0, DType::F32, &gpu).unwrap();
    assert_eq!(ones.sum_all().unwrap().item::<f32>().unwrap(), 3e6);
    // Scans by chunks: whole numbers below 2^24 are exact.
    let running = ones.reshape((3, 1_000_000)).unwrap().cumsum(1).unwrap();
    for (line, at) in [(0, 0), (1, 2047), (1, 2048), (2, 999_999)] {
        assert_eq!(
            running
                .slice(0, line..line + 1)
                .unwrap()
                .slice(1, at..at + 1)
                .unwrap()
                .item::<f32>()
                .unwrap(),
            (at + 1) as f32
        );
    }
}

#[test]
fn the_mean_of_ten_million_tenths_is_a_tenth() {
    let Some(gpu) = gpu() else { return };
    let tenths = Tensor::full(10_000_000, 0.1, DType::F32, &gpu).unwrap();
    for mean in [
        tenths.mean_all().unwrap(),
        tenths.reshape((1000, 10_000)).unwrap().mean(1).unwrap().mean_all().unwrap(),
    ] {
        let mean = mean.item::<f32>().unwrap() as f64;
        assert!((mean / 0.1 - 1.0).abs() < 1e-6, "{mean}");
    }
}

#[test]
fn rows_and_columns_of_every_length_are_reduced_and_scanned() {
    let Some(gpu) = gpu() else { return };
    // Either side of the bounds between a thread, a team and a workgroup a row, short and long
    // scans.
    for (rows, columns) in
        [(200, 63), (127, 64), (131, 65), (200, 300), (128, 512), (129, 513), (5000, 70), (3, 9000)]
    {
        let values: Vec<f32> =
            (0..rows * columns).map(|i| ((i * 7919) % 17) as f32 - 8.0).collect();
        let x = Tensor::from_slice(&values, (rows, columns), &gpu).unwrap();
        let oracle = Tensor::from_slice(&values, (rows, columns), Reference::new()).unwrap();
        for axis in [0, 1] {
            let run = |x: &Tensor| {
                let all = [
                    x.sum(axis)?,
                    x.max(axis)?,
                    x.argmin(axis)?,
                    x.cumsum(axis)?,
                    x.mul(x)?.sum(axis)?,
                ];
                all.iter().map(|y| y.to_scalars()).collect::<teeny_core::Result<Vec<_>>>()
            };
            assert!(run(&x).unwrap() == run(&oracle).unwrap(), "{rows} {columns} axis {axis}");
        }
    }
}
