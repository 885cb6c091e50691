//! Fused attention: against the definition on the same device, in a memory of rows, and with the
//! same bits on any number of threads.

use crate::common::devices;
use std::sync::Arc;
use teeny_core::{Attention, AttentionInputs, DType, DeviceRef, Op, Reference, Tensor};
use teeny_cpu::Cpu;

fn randn(shape: &[usize], dtype: DType, device: &Arc<Cpu>) -> Tensor {
    Tensor::randn(shape, DType::F32, device).unwrap().mul(0.5).unwrap().cast(dtype).unwrap()
}

/// y, the logsumexp and the three gradients as the device computes them; g is drawn like y.
fn fused(inputs: &AttentionInputs<'_>, g: &Tensor) -> Vec<Tensor> {
    let device = g.device();
    let [y, lse] = Op::Attention { inputs: *inputs }.tensors(device).unwrap();
    let op = Op::AttentionGrad { inputs: *inputs, y: &y, lse: &lse, g, needs: [true; 3] };
    let [q, k, v] = op.tensors(device).unwrap();
    vec![y, lse, q, k, v]
}

/// Largest difference, relative to the largest value or 1.
fn distance(a: &Tensor, b: &Tensor) -> f64 {
    let values = |x: &Tensor| x.cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
    let (a, b) = (values(a), values(b));
    let scale = b.iter().fold(1.0, |m: f64, v| m.max(v.abs()));
    a.iter().zip(&b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

#[test]
fn tiles_agree_with_the_definition_at_every_level() {
    for device in devices() {
        for dtype in [DType::F32, DType::F64, DType::F16] {
            for (heads, [t, s, hs, hv]) in
                [(2, [257, 257, 64, 64]), (17, [100, 130, 32, 48]), (3, [5, 300, 20, 7])]
            {
                for options in [
                    Attention::full(),
                    Attention::causal(s - t),
                    Attention::causal(s - t).window(70),
                ] {
                    let x = |rows, columns| randn(&[heads, rows, columns], dtype, &device);
                    let (q, k, v, g) = (x(t, hs), x(s, hs), x(s, hv), x(t, hv));
                    let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options };
                    let got = fused(&inputs, &g);
                    let (y, lse) = inputs.composed().unwrap();
                    let gradients = inputs
                        .composed_grad(Some((&y, &lse)), &g, [true; 3])
                        .unwrap()
                        .map(|x| x.unwrap());
                    let tolerance = if dtype == DType::F64 {
                        1e-12
                    } else if dtype == DType::F16 {
                        2e-3
                    } else {
                        1e-5
                    };
                    for (i, (got, want)) in
                        got.iter().zip([y, lse].iter().chain(&gradients)).enumerate()
                    {
                        let off = distance(got, want);
                        assert!(
                            off <= tolerance,
                            "{dtype} {heads} heads {t} {s} {hs} {hv} {options:?} result {i}: {off:e} {device:?}"
                        );
                    }
                }
            }
        }
    }
}

/// Keys and values are read where they are, in their own type; heads are split into parts.
#[test]
fn few_queries_agree_with_the_definition_at_every_level() {
    for device in devices() {
        for (dtype, tolerance) in
            [(DType::F32, 1e-5), (DType::F64, 1e-12), (DType::F16, 2e-3), (DType::BF16, 1.6e-2)]
        {
            for (heads, [t, s, hs, hv]) in [
                (1, [1, 1, 1, 1]),
                (2, [1, 2100, 64, 40]),
                (17, [1, 77, 33, 48]),
                (3, [2, 600, 20, 7]),
                (1, [3, 1025, 5, 64]),
                (9, [4, 513, 16, 80]),
            ] {
                for options in [
                    Attention::full(),
                    Attention::causal(s - t),
                    Attention::causal(s - t).window(70),
                ] {
                    let x = |rows, columns| randn(&[heads, rows, columns], dtype, &device);
                    let (q, k, v) = (x(t, hs), x(s, hs), x(s, hv));
                    let columns = |x: &Tensor| x.t().unwrap().copy().unwrap().t().unwrap();
                    let steps = |x: &Tensor| {
                        let twice = Tensor::cat(&[x, x], 2).unwrap();
                        twice.slice(2, ..x.shape()[2] as isize).unwrap()
                    };
                    let shared = |x: &Tensor| x.slice(0, ..1).unwrap().expand(x.shape()).unwrap();
                    let hidden = Tensor::rand((1, t, s), DType::F32, &device).unwrap();
                    let bools = hidden.gt(0.5).unwrap().expand((heads, t, s)).unwrap();
                    let added = hidden.cast(dtype).unwrap().expand((heads, t, s)).unwrap();
                    for (i, (k, v, mask)) in [
                        (k.clone(), v.clone(), None),
                        (steps(&k), steps(&v), Some(&bools)),
                        (shared(&k), columns(&v), Some(&added)),
                        (columns(&k), shared(&v), None),
                    ]
                    .into_iter()
                    .enumerate()
                    {
                        let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask, options };
                        let g = x(t, hv);
                        let [y, lse, gradients @ ..] = &fused(&inputs, &g)[..] else {
                            panic!("five results")
                        };
                        let (want_y, want_lse) = inputs.composed().unwrap();
                        let forward = Some((&want_y, &want_lse));
                        let wanted = inputs.composed_grad(forward, &g, [true; 3]).unwrap();
                        for (got, want) in gradients.iter().zip(wanted.into_iter().flatten()) {
                            let off = distance(got, &want);
                            assert!(
                                off <= tolerance,
                                "gradient {dtype} {heads} {t} {s} {hs} {hv} {i}: {off:e}"
                            );
                        }
                        let finite = |x: &Tensor| x.maximum(-1e30).unwrap();
                        let off =
                            distance(y, &want_y).max(distance(&finite(lse), &finite(&want_lse)));
                        assert!(
                            off <= tolerance,
                            "{dtype} {heads} heads {t} {s} {hs} {hv} {options:?} {i}: {off:e} {device:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn eight_thousand_positions_need_memory_for_rows_only() {
    let (t, hs) = (8192, 16);
    for causal in [true, false] {
        let device = Cpu::new();
        let x = || randn(&[1, t, hs], DType::F32, &device);
        let (q, k, v, g) = (x(), x(), x(), x());
        let options = if causal { Attention::causal(0) } else { Attention::full() };
        let before = device.pool_stats().live_bytes;
        let results = fused(&AttentionInputs { q: &q, k: &k, v: &v, mask: None, options }, &g);
        let extra = device.pool_stats().peak_live_bytes - before;
        println!(
            "causal {causal}: {:.1} MiB beyond the operands at the peak",
            extra as f64 / (1 << 20) as f64
        );
        assert!(extra < 64 << 20, "{extra} bytes");
        // A few queries again, each against all keys at once.
        for i in [0, 47, 4095, 8191] {
            let rows = |x: &Tensor| x.slice(1, i..i + 1).unwrap();
            let last = if causal { i as isize + 1 } else { t as isize };
            let (k, v) = (k.slice(1, 0..last).unwrap(), v.slice(1, 0..last).unwrap());
            let row = AttentionInputs {
                q: &rows(&q),
                k: &k,
                v: &v,
                mask: None,
                options: Attention::full(),
            };
            let (y, lse) = row.composed().unwrap();
            let [d_q, ..] =
                row.composed_grad(Some((&y, &lse)), &rows(&g), [true, false, false]).unwrap();
            assert!(distance(&rows(&results[0]), &y) < 1e-5);
            assert!(distance(&rows(&results[2]), &d_q.unwrap()) < 1e-5);
        }
    }
}

#[test]
fn the_bits_do_not_depend_on_the_threads() {
    let device = Cpu::new();
    for (heads, queries) in [(3, 150), (20, 150), (2, 1)] {
        let (x, q) = (
            || randn(&[heads, if queries == 1 { 4000 } else { 150 }, 24], DType::F32, &device),
            || randn(&[heads, queries, 24], DType::F32, &device),
        );
        let (q, k, v, g) = (q(), x(), x(), q());
        let options = if queries == 1 { Attention::full() } else { Attention::causal(0) };
        let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options };
        let bits = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                fused(&inputs, &g).iter().map(|x| x.to_vec::<f32>().unwrap()).collect::<Vec<_>>()
            })
        };
        let one = bits(1);
        assert_eq!(one, bits(2));
        assert_eq!(one, bits(5));
    }
}

#[test]
fn nan_reaches_the_rows_that_see_it_and_no_others() {
    let device = Cpu::new();
    let x = randn(&[70, 8], DType::F32, &device);
    let k = x
        .slice_assign(0, 66..67, &Tensor::full((1, 8), f32::NAN, DType::F32, &device).unwrap())
        .unwrap();
    let x = randn(&[70, 8], DType::F32, &device);
    let y = x.attention(&k, &x, None, &Attention::causal(0)).unwrap().to_vec::<f32>().unwrap();
    assert!(y[..66 * 8].iter().all(|v| v.is_finite()) && y[66 * 8..].iter().all(|v| v.is_nan()));
}

/// All rows of y and of the gradient of q, except the last, are finite.
fn earlier_rows_are_finite(k: &Tensor, v: &Tensor, name: &str) {
    let (t, hs) = (k.shape()[1], k.shape()[2]);
    let q = Tensor::ones((1, t, hs), DType::F32, k).unwrap();
    let inputs = AttentionInputs { q: &q, k, v, mask: None, options: Attention::causal(0) };
    let [y, lse] = Op::Attention { inputs }.tensors(k.device()).unwrap();
    let needs = [true, false, false];
    let op = Op::AttentionGrad { inputs, y: &y, lse: &lse, g: &q, needs };
    let [grad] = op.tensors(k.device()).unwrap();
    for (x, what) in [(y, "y"), (grad, "gradient of q")] {
        let x = x.to_vec::<f32>().unwrap();
        let finite = x[..(t - 1) * hs].iter().all(|x| x.is_finite());
        assert!(finite, "{what} on {} with {name}", k.device().info().name);
    }
}

#[test]
fn nan_behind_a_causal_mask_reaches_no_earlier_row() {
    let mut all: Vec<DeviceRef> = vec![Reference::new()];
    all.extend(devices().into_iter().map(|device| device as DeviceRef));
    for device in all {
        for t in [3, 64, 130] {
            let ones = Tensor::ones((1, t, 8), DType::F32, &device).unwrap();
            let last = Tensor::full((1, 1, 8), f32::NAN, DType::F32, &device).unwrap();
            let last_is_nan = ones.clone().slice_assign(1, t as i64 - 1.., &last).unwrap();
            earlier_rows_are_finite(&ones, &last_is_nan, "NaN in v");
            earlier_rows_are_finite(&last_is_nan, &ones, "NaN in k");
        }
    }
}
