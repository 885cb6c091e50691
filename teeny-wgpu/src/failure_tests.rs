//! Failures provoked on wgpu's `noop` backend, which checks commands as every other and then does
//! nothing: these tests need no GPU, and can ask for limits that no GPU here has. Failures of a
//! real adapter are in `tests/basics.rs`.

use crate::device::launch::{Key, Launch, Program};
use crate::device::params::Params;
use crate::device::{Wgpu, adapter};
use crate::{Choice, Options};
use std::sync::Arc;
use teeny_core::{DType, Device, ErrorKind, Result, Tensor};

fn instance(features: wgpu::Features, limits: wgpu::Limits) -> wgpu::Instance {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::NOOP;
    descriptor.backend_options.noop = wgpu::NoopBackendOptions {
        enable: true,
        features: Some(features),
        limits: Some(limits),
        ..Default::default()
    };
    wgpu::Instance::new(descriptor)
}

fn open(features: wgpu::Features, limits: wgpu::Limits, options: &Options) -> Result<Arc<Wgpu>> {
    let options = Options { adapter: Choice::Index(0), ..options.clone() };
    let opened = pollster::block_on(adapter::open_from(
        &instance(features, limits),
        &options,
        options.profile,
    ))?;
    Ok(Wgpu::over(opened, &options, 0))
}

fn noop() -> Arc<Wgpu> {
    open(wgpu::Features::SHADER_INT64, wgpu::Limits::default(), &Options::default()).unwrap()
}

/// That the device still computes: the results are nothing, but nothing is refused.
#[track_caller]
fn works(gpu: &Arc<Wgpu>) {
    let x = Tensor::full((8, 4), 1.5, DType::F32, gpu).unwrap();
    assert_eq!(
        x.matmul(&x.t().unwrap())
            .unwrap()
            .exp()
            .unwrap()
            .sum(1)
            .unwrap()
            .to_vec::<f32>()
            .unwrap()
            .len(),
        8
    );
    gpu.synchronize().unwrap();
}

/// A launch of one workgroup that binds `storage` as its input and as its output.
fn launch(gpu: &Wgpu, storage: &teeny_core::StorageRef, body: &str) -> Result<()> {
    let text = format!(
        "@group(0) @binding(0) var<storage, read> x: array<u32>;\n\
         @group(0) @binding(1) var<storage, read_write> y: array<u32>;\n\
         @compute @workgroup_size(1)\nfn main() {{\n    {body}\n}}\n"
    );
    let program = Program {
        key: Key::new("test", body.bytes().map(u32::from).collect::<Vec<_>>()),
        wgsl: &|| Ok(text.clone()),
    };
    let binding = gpu.bind(storage)?;
    gpu.dispatch(&Launch {
        program,
        inputs: &[binding],
        outputs: &[binding],
        params: &Params::new(),
        grid: [1; 3],
    })
}

#[test]
fn a_backend_that_does_nothing_takes_every_command() {
    works(&noop());
}

#[test]
fn a_command_that_wgpu_refuses_late_is_an_error_of_the_next_call_and_the_device_goes_on() {
    let gpu = noop();
    let storage = gpu.allocate(8, DType::U32).unwrap();
    // One buffer cannot be read and written by one launch.
    let at_once = launch(&gpu, &storage, "y[0] = x[0];");
    gpu.flush();
    let error = at_once.err().or_else(|| gpu.allocate(8, DType::U32).err()).expect("an error");
    assert_eq!(error.kind(), ErrorKind::Internal, "{error}");
    assert!(error.to_string().contains("wgpu refused a command"), "{error}");
    works(&gpu);
}

#[test]
fn a_shader_that_is_refused_is_shown_with_its_label_and_line() {
    let gpu = noop();
    let storage = gpu.allocate(8, DType::U32).unwrap();
    let error = launch(&gpu, &storage, "y[0] = f32(x[0]);").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Internal);
    let text = error.to_string();
    assert!(
        text.contains("the shader \"test\" was rejected")
            && text.contains("   5     y[0] = f32(x[0]);"),
        "{text}"
    );
    works(&gpu);
}

#[test]
fn types_that_an_adapter_lacks_are_refused_with_another() {
    let gpu = open(wgpu::Features::empty(), wgpu::Limits::default(), &Options::default()).unwrap();
    for (dtype, other) in [(DType::I64, "i32"), (DType::U64, "u32"), (DType::F64, "f32")] {
        let x = Tensor::zeros(4, DType::F32, &gpu).unwrap();
        let error = x.cast(dtype).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(
            error.to_string().contains(&format!("help: cast to {other}, or use the CPU device")),
            "{error}"
        );
    }
    let doubles = Tensor::from_slice(&[1.0f64, 2.0], 2, &gpu).unwrap();
    assert_eq!(doubles.softmax(0).unwrap_err().kind(), ErrorKind::Unsupported);
    works(&gpu);
}

#[test]
fn a_budget_is_tried_again_without_the_free_buffers_and_then_refused() {
    let options = Options { memory_budget: Some(1 << 20), ..Options::default() };
    let gpu = open(wgpu::Features::empty(), wgpu::Limits::default(), &options).unwrap();
    // Two free buffers of 400 kB exhaust the budget for one of 800 kB until they are dropped.
    drop([gpu.allocate(100_000, DType::F32).unwrap(), gpu.allocate(100_001, DType::F32).unwrap()]);
    assert!(gpu.stats().cached_bytes > 800_000);
    let large = gpu.allocate(200_000, DType::F32).unwrap();
    assert_eq!(gpu.stats().cached_bytes, 0);
    let error = gpu.allocate(100_000, DType::F32).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(
        error.to_string().contains("cannot allocate 400000 more bytes")
            && error.to_string().contains("budget is 1048576"),
        "{error}"
    );
    drop(large);
    gpu.clear_cache();
    works(&gpu);
}

#[test]
fn memory_that_the_driver_lacks_is_reported_once_by_the_next_call() {
    let gpu = noop();
    // As the listener to wgpu's errors does.
    gpu.sticky.raise(ErrorKind::OutOfMemory, "the driver has no memory left".to_string());
    gpu.sticky.raise(ErrorKind::Internal, "a consequence".to_string());
    let error = Tensor::full(8, 1.5, DType::F32, &gpu).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{error}");
    assert_eq!(gpu.stats().live_bytes, 0);
    works(&gpu);
}

#[test]
fn a_tensor_larger_than_a_buffer_or_a_grid_is_an_error() {
    let gpu = noop();
    let error = gpu.allocate(1 << 30, DType::F64).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("larger than the largest buffer of this GPU"), "{error}");
    assert_eq!(gpu.dispatch_grid(1 << 40).unwrap_err().kind(), ErrorKind::Unsupported);
    works(&gpu);
}

#[test]
fn a_lost_device_says_so_at_every_call() {
    let gpu = noop();
    let x = Tensor::full(8, 1.5, DType::F32, &gpu).unwrap();
    gpu.raw().0.destroy();
    let _ = gpu.raw().0.poll(wgpu::PollType::Poll);
    for _ in 0..3 {
        let error = x.add(1.0).and_then(|y| y.to_vec::<f32>()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert!(error.to_string().contains("help: make a new Wgpu"), "{error}");
    }
    assert_eq!(gpu.synchronize().unwrap_err().kind(), ErrorKind::Device);
    works(&noop());
}

#[test]
fn a_loss_takes_precedence_over_the_errors_that_follow_from_it() {
    let gpu = noop();
    let x = Tensor::full(8, 1.5, DType::F32, &gpu).unwrap();
    gpu.sticky
        .raise(ErrorKind::Internal, "wgpu refused a command: the device is not valid".to_string());
    gpu.raw().0.destroy(); // wgpu reports the loss while waiting only, which nothing here does
    for _ in 0..2 {
        let error = x.add(1.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Device, "{error}");
        assert!(
            error.to_string().contains("the GPU was lost: it was destroyed\n")
                && error.to_string().contains("help: make a new Wgpu"),
            "{error}"
        );
    }
    gpu.sticky.raise(ErrorKind::OutOfMemory, "a consequence".to_string());
    assert_eq!(x.to_vec::<f32>().unwrap_err().kind(), ErrorKind::Device);
}

#[test]
fn a_cache_drops_what_was_returned_first_beyond_its_cap() {
    let options = Options { cache_bytes: Some(1 << 20), ..Options::default() };
    let gpu = open(wgpu::Features::empty(), wgpu::Limits::default(), &options).unwrap();
    for len in (1..200).map(|i| i * 1000) {
        let storage = gpu.allocate(len, DType::F32).unwrap();
        drop(storage);
        assert!(gpu.stats().cached_bytes <= 1 << 20, "{:?}", gpu.stats());
    }
    // The last one returned is still there, the first one is not.
    let before = gpu.stats().os_allocations;
    drop(gpu.allocate(199_000, DType::F32).unwrap());
    assert_eq!(gpu.stats().os_allocations, before);
    drop(gpu.allocate(1000, DType::F32).unwrap());
    assert_eq!(gpu.stats().os_allocations, before + 1);
    let none = Options { cache_bytes: Some(0), ..Options::default() };
    let gpu = open(wgpu::Features::empty(), wgpu::Limits::default(), &none).unwrap();
    works(&gpu);
    assert_eq!(gpu.stats().cached_bytes, 0);
}

#[test]
fn buffers_for_reading_back_are_cached_bytes_too() {
    let gpu = noop();
    let x = Tensor::full(100_000, 1.5, DType::F32, &gpu).unwrap();
    let before = gpu.stats().cached_bytes;
    for _ in 0..3 {
        x.to_vec::<f32>().unwrap();
        assert_eq!(gpu.stats().cached_bytes, before + (1 << 19));
    }
    gpu.clear_cache();
    assert_eq!(gpu.stats().cached_bytes, 0);
    assert_eq!(gpu.stats().live_bytes, 400_000);
}

#[test]
fn uploads_without_commands_use_the_same_buffers_again() {
    let gpu = noop();
    for _ in 0..100 {
        let _ = Tensor::from_slice(&[1.0f32; 5000], 5000, &gpu).unwrap();
    }
    assert_eq!(gpu.stats().os_allocations, 1);
    // A buffer that a recorded command reads is not overwritten before that command runs.
    let x = Tensor::from_slice(&[1.0f32; 5000], 5000, &gpu).unwrap();
    let y = x.add(1.0).unwrap();
    drop(x);
    let _ = Tensor::from_slice(&[2.0f32; 5000], 5000, &gpu).unwrap();
    assert_eq!(gpu.stats().os_allocations, 3);
    drop(y);
}

#[test]
fn no_adapter_is_an_error_that_says_what_to_install() {
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::empty();
    let error = pollster::block_on(adapter::open_from(
        &wgpu::Instance::new(descriptor),
        &Options::default(),
        false,
    ))
    .err()
    .expect("an error");
    assert_eq!(error.kind(), ErrorKind::Device);
    assert!(
        error.to_string().contains("help: install a Vulkan driver")
            || error.to_string().contains("GPU adapter"),
        "{error}"
    );
}

#[test]
fn launches_are_timed_by_the_host_where_the_gpu_has_no_clock() {
    let options = Options { profile: true, ..Options::default() };
    for (features, by_gpu) in
        [(wgpu::Features::empty(), false), (wgpu::Features::TIMESTAMP_QUERY, true)]
    {
        let gpu = open(features, wgpu::Limits::default(), &options).unwrap();
        works(&gpu);
        let profile = gpu.profile();
        assert_eq!(profile.by_gpu, by_gpu);
        let launches: u64 = profile.families.iter().map(|f| f.launches).sum();
        assert_eq!(launches, gpu.counters().dispatches, "{profile}");
        let flops: u64 = profile.families.iter().map(|f| f.flops).sum();
        assert_eq!(flops, 2 * 8 * 8 * 4 + 8 * 8 + 8 * 8); // matmul, exp, sum
    }
}
