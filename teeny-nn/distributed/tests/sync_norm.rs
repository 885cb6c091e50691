//! Batch normalisation with the statistics of several ranks, against the joint batch on one.

use std::sync::{Arc, OnceLock};
use teeny_autograd::{Autograd, Forward, Grad};
use teeny_core::random::with_seed;
use teeny_core::{DType, DeviceRef, Reference, Result, Scalar, Tensor};
use teeny_distributed::{Communicator, Reduce, Threads};
use teeny_nn::norm::{BatchNorm, BatchNormOptions};
use teeny_nn::{Module, Store};

fn device() -> DeviceRef {
    static DEVICE: OnceLock<DeviceRef> = OnceLock::new();
    DEVICE.get_or_init(|| Autograd::new(Reference::new())).clone()
}

fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(Scalar::to_f64).collect()
}

fn close(what: &str, own: &Tensor, expected: &Tensor, tolerance: f64) {
    assert_eq!(own.shape(), expected.shape(), "{what}");
    let (own, expected) = (values(own), values(expected));
    let size = expected.iter().fold(1e-3, |size: f64, x| size.max(x.abs()));
    for (a, b) in own.iter().zip(&expected) {
        assert!((a - b).abs() <= tolerance * size, "{what}: {a} {b}\n{own:?}\n{expected:?}");
    }
}

/// The results of a training step for `rows` only.
struct Step {
    y: Tensor,
    dx: Tensor,
    /// Gradients of weight and bias, and the buffers.
    grads: Vec<Tensor>,
    buffers: Vec<Tensor>,
}

fn step(
    x: &Tensor,
    g: &Tensor,
    options: BatchNormOptions,
    comm: Option<Arc<dyn Communicator>>,
) -> Result<Step> {
    let axis = if options.channels_last { x.ndim() - 1 } else { 1 };
    let channels = x.shape()[axis];
    let store =
        Store::with_dtype(device(), if x.dtype().is_half() { DType::F32 } else { x.dtype() });
    let mut norm = BatchNorm::with_options(&store.root(), channels, options)?;
    if let Some(comm) = comm {
        norm = norm.synchronised(comm);
    }
    if options.affine {
        let of_channels = |from: f64| -> Result<Tensor> {
            let x: Vec<f64> = (0..channels).map(|i| from + 0.3 * i as f64).collect();
            Tensor::from_vec(x, (channels,), store.device())
        };
        store.get("weight")?.set(&of_channels(-0.5)?)?;
        store.get("bias")?.set(&of_channels(0.2)?)?;
    }
    let x = x.to(store.device())?.requires_grad()?;
    let mut y = norm.forward(&x)?;
    // a second batch moves the running statistics again
    if options.track_running_stats {
        y = norm.forward(&x)?;
    }
    let gradients = y.cast(DType::F64)?.mul(g)?.sum_all()?.backward()?;
    let mut grads = Vec::new();
    for param in store.trainable() {
        grads.push(gradients.get(&param.value())?.clone());
    }
    let all = store.all().into_iter().filter(|p| !p.is_trainable());
    Ok(Step {
        y: y.detach()?,
        dx: gradients.get(&x)?.clone(),
        grads,
        buffers: all.map(|p| p.value()).collect(),
    })
}

/// A joint batch of `shape`, split over ranks with `rows` rows each.
fn agrees(rows: &[usize], shape: &[usize], options: BatchNormOptions, dtype: DType) {
    let tolerance = match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 2e-5,
        _ => 2e-2,
    };
    let mut shape = shape.to_vec();
    shape[0] = rows.iter().sum();
    let (x, g) = with_seed(shape.iter().sum::<usize>() as u64, || {
        let normal = |mean, dtype| Tensor::normal(mean, 2.0, &shape[..], dtype, device()).unwrap();
        (normal(3.0, dtype), normal(0.0, DType::F64))
    });
    let whole = step(&x, &g, options, None).unwrap();
    Threads::run(rows.len(), |comm| {
        let from: usize = rows[..comm.rank()].iter().sum();
        let own = |t: &Tensor| t.slice(0, from..from + rows[comm.rank()]);
        let part = step(&own(&x)?, &own(&g)?, options, Some(Arc::new(comm.clone())))?;
        close("y", &part.y, &own(&whole.y)?, tolerance);
        close("dx", &part.dx, &own(&whole.dx)?, tolerance);
        for (part, whole) in part.grads.iter().zip(&whole.grads) {
            close("gradients", &comm.all_reduce(part, Reduce::Sum)?, whole, tolerance);
        }
        for (part, whole) in part.buffers.iter().zip(&whole.buffers) {
            close("running statistics", part, whole, tolerance);
            let first = comm.broadcast(part, 0)?;
            assert_eq!(values(part), values(&first), "every rank has the same statistics");
        }
        Ok(())
    })
    .unwrap();
}

#[test]
fn statistics_of_ranks_are_those_of_the_joint_batch() {
    let options = BatchNormOptions::new();
    for dtype in [DType::F32, DType::F64] {
        for rows in [&[3][..], &[2, 2], &[1, 4], &[0, 3], &[1, 1, 1], &[2, 0, 5], &[4, 1, 2, 3]] {
            agrees(rows, &[0, 3], options, dtype);
            agrees(rows, &[0, 2, 3, 4], options, dtype);
            agrees(rows, &[0, 5, 3], options.with_channels_last(true), dtype);
        }
    }
    for options in [
        options.with_affine(false),
        options.with_momentum(None),
        options.with_track_running_stats(false),
        options.with_eps(1e-2),
    ] {
        agrees(&[3, 1, 2], &[0, 4, 2], options, DType::F64);
    }
    agrees(&[3, 5], &[0, 4, 2], options, DType::BF16);
    agrees(&[3, 5], &[0, 4, 2], options, DType::F16);
}

#[test]
fn means_far_from_zero_keep_their_variance() {
    // in f32 a sum of squares would lose the variance: it is taken about the joint mean
    let y = Threads::run(2, |comm| {
        let store = Store::new(device());
        let norm = BatchNorm::new(&store.root(), 1)?.synchronised(Arc::new(comm.clone()));
        let x = Tensor::new([[4096.0f32 + comm.rank() as f32], [4096.0]], device())?;
        norm.forward(&x)?.to_vec::<f32>()
    })
    .unwrap();
    for (y, expected) in y.concat().iter().zip([-0.57735, -0.57735, 1.73205, -0.57735]) {
        assert!((y - expected).abs() < 1e-3, "{y} {expected}");
    }
}

#[test]
fn nothing_is_sent_outside_of_training() {
    // the other rank does not call the layer
    Threads::run(2, |comm| {
        let store = Store::new(device());
        let options = BatchNormOptions::new().with_track_running_stats(comm.rank() == 1);
        let norm = BatchNorm::with_options(&store.root(), 3, options)?;
        let norm = norm.synchronised(Arc::new(comm.clone()));
        store.set_training(false);
        if comm.rank() == 1 {
            let x = Tensor::ones((4, 3), DType::F32, device())?.requires_grad()?;
            norm.forward(&x)?.sum_all()?.backward()?.get(&x)?;
        }
        comm.barrier()
    })
    .unwrap();
}

#[test]
fn one_value_on_all_ranks_together_is_an_error_on_each() {
    for rows in [[1, 0], [0, 0]] {
        let errors = Threads::run(2, |comm| {
            let store = Store::new(device());
            let norm = BatchNorm::new(&store.root(), 3)?.synchronised(Arc::new(comm.clone()));
            let x = Tensor::ones((rows[comm.rank()], 3), DType::F32, device())?;
            let error = norm.forward(&x).unwrap_err();
            // the running statistics have not changed
            assert_eq!(store.get("num_batches_tracked")?.value().item::<i32>()?, 0);
            Ok(error)
        })
        .unwrap();
        for error in errors {
            let text = error.message();
            assert!(text.contains("training needs more than one value per channel"), "{error}");
        }
    }
    let errors = Threads::run(2, |comm| {
        let store = Store::new(device());
        let channels = 3 + comm.rank();
        let norm = BatchNorm::new(&store.root(), channels)?.synchronised(Arc::new(comm.clone()));
        Ok(norm.forward(&Tensor::ones((2, channels), DType::F32, device())?).unwrap_err())
    })
    .unwrap();
    assert!(errors.iter().any(|e| e.message().contains("all_reduce(sum) of 4 f32")), "{errors:?}");
}

#[test]
fn derivatives_that_would_leave_out_other_ranks_are_errors() {
    let nested: DeviceRef = Autograd::new(Autograd::new(Reference::new()));
    let forward: DeviceRef = Forward::new(Reference::new());
    for device in [nested, forward] {
        let errors = Threads::run(2, |comm| {
            let store = Store::new(&device);
            let norm = BatchNorm::new(&store.root(), 3)?.synchronised(Arc::new(comm));
            Ok(norm.forward(&Tensor::ones((2, 3), DType::F32, &device)?).unwrap_err())
        })
        .unwrap();
        assert!(errors[0].message().contains("derivative"), "{errors:?}");
    }
}
