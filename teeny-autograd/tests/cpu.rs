//! The same rules over a fast device: every gradient as over the oracle, and the figures that need
//! speed.
use crate::common;
use crate::common::cases::all;
use crate::common::{close, device, vec};
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_conformance::{Suite, every};
use teeny_core::{DType, Device, ErrorKind, Lazy, Tensor};
use teeny_cpu::{Cpu, CpuOptions};

fn cpu() -> Arc<Autograd> {
    Autograd::new(Cpu::new())
}

#[test]
fn an_autograd_device_passes_the_suite_of_devices() {
    let n = every(8);
    let report = Suite::new(device()).every(n).run();
    assert!(report.passed() && n * report.cases() > 10_000, "{report}");
}

#[test]
fn gradients_over_the_cpu_equal_those_over_the_oracle() {
    let (oracle, fast) = (device(), cpu());
    for case in all() {
        for transpose in [false, true] {
            let expected = case
                .gradients(&oracle, DType::F64, transpose)
                .unwrap_or_else(|e| panic!("{}: {e}", case.name));
            let got = case
                .gradients(&fast, DType::F64, transpose)
                .unwrap_or_else(|e| panic!("{}: {e}", case.name));
            assert_eq!(expected.len(), got.len(), "{}", case.name);
            expected.iter().zip(&got).for_each(|(a, b)| close(a, b, 1e-9));
        }
    }
}

/// Recorded first and run at the read, every gradient has the bits of an eager device.
#[test]
fn gradients_over_a_recording_device_are_those_of_the_eager_one() {
    let (eager, lazy) = (cpu(), Autograd::new(Lazy::new(Cpu::new())));
    for case in all() {
        for dtype in [DType::F32, DType::F64] {
            let run = |device| {
                let gradients = case.gradients(device, dtype, false);
                gradients.unwrap_or_else(|e| panic!("{}: {e}", case.name))
            };
            let (want, got) = (run(&eager), run(&lazy));
            let bits = |all: &[Vec<f64>]| -> Vec<Vec<u64>> {
                all.iter().map(|g| g.iter().map(|v| v.to_bits()).collect()).collect()
            };
            assert_eq!(bits(&got), bits(&want), "{} {dtype}", case.name);
        }
    }
}

#[test]
fn gradients_that_repeat_one_element_are_copied_when_read() {
    // Two tensors of 4 MB, and scratch memory of as many threads as there may be.
    let options = CpuOptions::new().with_memory_limit(Some(11_000_000));
    let device = Autograd::new(Cpu::with_options(options));
    let x = Tensor::zeros(1_000_000, DType::F32, &device).unwrap().requires_grad().unwrap();
    let mut grads = x.sum_all().unwrap().backward().unwrap();
    let other = Tensor::zeros(1_000_000, DType::F32, &device).unwrap();
    // A third tensor of this size does not fit in memory.
    assert_eq!(grads.get(&x).unwrap_err().kind(), ErrorKind::OutOfMemory);
    let view = grads.iter().next().unwrap();
    assert_eq!(view.sum_all().unwrap().item::<f32>().unwrap(), 1_000_000.0);
    assert!(view.clone().slice_assign(0, ..1, &view.slice(0, 1..2).unwrap()).is_err());

    drop(other);
    let g = grads.get(&x).unwrap();
    assert!(g.is_contiguous() && grads.iter().next().unwrap().same_storage(g));
    assert_eq!(g.slice(0, ..2).unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
    assert!(grads.take(&x).unwrap().is_contiguous());
}

#[test]
fn a_chain_of_a_million_nodes_over_the_cpu() {
    let x = Tensor::new(2.0f32, cpu()).unwrap().requires_grad().unwrap();
    let mut y = x.clone();
    for _ in 0..1_000_000 {
        y = y.add(1.0).unwrap();
    }
    assert_eq!(y.into_backward().unwrap().get(&x).unwrap().item::<f32>().unwrap(), 1.0);
}

#[test]
fn a_deep_network_over_the_cpu_peaks_below_saved_activations_plus_a_fifth() {
    let (layers, batch, width) = (100, 256, 64);
    let d = cpu();
    let weights: Vec<Tensor> = (0..layers)
        .map(|_| {
            Tensor::randn((width, width), DType::F32, &d)
                .unwrap()
                .mul(0.15)
                .unwrap()
                .requires_grad()
                .unwrap()
        })
        .collect();
    let x = Tensor::randn((batch, width), DType::F32, &d).unwrap();
    let before = d.stats().live_bytes;
    let loss = weights
        .iter()
        .fold(x, |h, w| h.matmul(&w.t().unwrap()).unwrap().relu().unwrap())
        .square()
        .unwrap()
        .mean_all()
        .unwrap();
    let saved = (d.stats().live_bytes - before) as f64;
    let grads = loss.into_backward().unwrap();
    let peak = (d.stats().peak_bytes - before) as f64;
    assert!(peak < 1.2 * saved, "peak {peak}, saved {saved}");
    assert_eq!(grads.len(), layers);
}

#[test]
fn untracked_work_on_an_autograd_device_matches_the_plain_device() {
    let d = Cpu::new();
    let wrapped = Autograd::new(d.clone());
    let x = common::values((7, 5), &d);
    let plain = x.softmax(1).unwrap().matmul(&x.t().unwrap()).unwrap().cumsum(0).unwrap();
    let x = x.to(&wrapped).unwrap();
    let y = x.softmax(1).unwrap().matmul(&x.t().unwrap()).unwrap().cumsum(0).unwrap();
    assert_eq!(vec(&plain), vec(&y));
}
