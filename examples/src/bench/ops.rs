//! Single operations: products, elementwise kernels, reductions, copies, convolution, attention,
//! and the overhead of a call.

use super::{Bench, Work};
use std::sync::Arc;
use teeny_autograd::{Autograd, Grad};
use teeny_core::{
    Attention, Capture, DType, DeviceRef, Error, Kernel, Result, Tensor, Window, map,
};

/// Elements of the long tensors: 2^24.
const LONG: usize = 1 << 24;
/// The bytes of a long tensor of f32.
const BYTES: f64 = 4.0 * LONG as f64;
/// A square matrix with as many elements.
const SQUARE: [usize; 2] = [4096, 4096];

/// The name of a function of one tensor, and the function.
type Unary = (&'static str, fn(&Tensor) -> Result<Tensor>);

pub(super) fn normal(shape: &[usize], device: &DeviceRef) -> Result<Tensor> {
    Tensor::randn(shape, DType::F32, device)
}

/// Random integers in `0..end`.
pub(super) fn integers(shape: &[usize], end: i64, device: &DeviceRef) -> Result<Tensor> {
    Tensor::randint(0, end, shape, DType::I32, device)
}

/// `matmul/..` and `matvec/..`.
///
/// # Errors
/// If the device fails.
pub fn products(b: &Bench) -> Result<()> {
    for n in [64, 128, 256, 512, 1024, 2048] {
        product(b, &format!("matmul/{n}"), &[n, n], &[n, n], |x, y| x.matmul(y))?;
    }
    product(b, "matmul/mlp", &[64, 784], &[784, 128], |x, y| x.matmul(y))?;
    product(b, "matmul/nt", &[256, 768], &[3072, 768], |x, y| x.matmul(&y.t()?))?;
    product(b, "matmul/tn", &[768, 256], &[768, 3072], |x, y| x.t()?.matmul(y))?;
    product(b, "matmul/batched", &[96, 256, 64], &[96, 64, 256], |x, y| x.matmul(y))?;
    b.time("matvec/4096", Work::Bytes(BYTES), |device| {
        let (a, x) = (normal(&SQUARE, device)?, normal(&[4096, 1], device)?);
        Ok(move || a.matmul(&x))
    })
}

fn product(
    b: &Bench,
    name: &str,
    x: &[usize],
    y: &[usize],
    f: fn(&Tensor, &Tensor) -> Result<Tensor>,
) -> Result<()> {
    // each element of the result takes a multiplication and an addition per element of the summed
    // axis
    let lhs: usize = x.iter().product();
    let columns = if name == "matmul/nt" { y[0] } else { y[y.len() - 1] };
    b.time(name, Work::Flops(2.0 * (lhs * columns) as f64), |device| {
        let (x, y) = (normal(x, device)?, normal(y, device)?);
        Ok(move || f(&x, &y))
    })
}

/// Ten operations in a row, each a method: eager, recorded and captured.
///
/// # Errors
/// If the device fails.
pub fn chains(b: &Bench) -> Result<()> {
    let chain: fn(&[Tensor]) -> Result<Tensor> = |t| {
        let [x, a, c] = t else { return Err(Error::internal("a chain has three operands")) };
        let y = x.mul(a)?.add(c)?.abs()?.mul(0.5)?.sub(a)?;
        y.maximum(c)?.mul(x)?.add(1.0)?.neg()?.minimum(a)
    };
    for (name, n) in [("chain10/1K", 1 << 10), ("chain10/16K", 1 << 14), ("chain10/1M", 1 << 20)] {
        let operands = |device: &DeviceRef| {
            Ok(vec![normal(&[n], device)?, normal(&[n], device)?, normal(&[n], device)?])
        };
        function(b, name, Work::Bytes(16.0 * n as f64), operands, chain)?;
    }
    Ok(())
}

/// The time of a function of tensors: eager, recorded and captured.
fn function(
    b: &Bench,
    name: &str,
    work: Work,
    operands: impl Fn(&DeviceRef) -> Result<Vec<Tensor>>,
    f: fn(&[Tensor]) -> Result<Tensor>,
) -> Result<()> {
    b.time_recorded(name, work, |device, is_captured| {
        let operands = operands(device)?;
        let mut captured = None;
        if is_captured {
            captured = Some(Capture::new(device, move |t| Ok(vec![f(t)?]))?);
        }
        Ok(move || match &mut captured {
            Some(capture) => capture.run(operands.clone()),
            None => Ok(vec![f(&operands)?]),
        })
    })
}

/// `fused/..`: a kernel of ten operations on three inputs, and one of an Adam update: 14 nodes,
/// four inputs, three results.
///
/// # Errors
/// If the device fails.
pub fn fused(b: &Bench) -> Result<()> {
    let ten = Arc::new(Kernel::build([DType::F32; 3], [], |[x, a, c], []| {
        let y = ((x * a + c).abs() * 0.5 - a).maximum(c);
        [(-(y * x + 1.0)).minimum(a)]
    })?);
    let adam = Arc::new(Kernel::build([DType::F32; 4], [], |[w, g, m, v], []| {
        let m = m * 0.9 + g * 0.1;
        let v = v * 0.999 + g * g * 0.001;
        [w * 0.9999 - m * 0.001 / (v.sqrt() * 1.1 + 1e-8), m, v]
    })?);
    let rows = [
        ("fused/1K", &ten, 1 << 10),
        ("fused/16K", &ten, 1 << 14),
        ("fused/1M", &ten, 1 << 20),
        ("fused/adam16K", &adam, 1 << 14),
    ];
    for (name, kernel, n) in rows {
        b.time(name, Work::Elements(n as f64), |device| {
            let inputs = kernel.inputs().iter().map(|_| normal(&[n], device)?.abs());
            let inputs = inputs.collect::<Result<Vec<_>>>()?;
            Ok(move || kernel.run(&inputs.iter().collect::<Vec<_>>(), &[]))
        })?;
    }
    Ok(())
}

/// `add/..`, `copy/..`, unary functions, and chains that a device may fuse.
///
/// # Errors
/// If the device fails.
pub fn elementwise(b: &Bench) -> Result<()> {
    let sums: [(&str, Work, &[usize], &[usize]); 4] = [
        ("add/16M", Work::Bytes(3.0 * BYTES), &[LONG], &[LONG]),
        ("add/1K", Work::Ops(1.0), &[1024], &[1024]),
        ("add/bcast_row", Work::Bytes(2.0 * BYTES), &SQUARE, &[4096]),
        ("add/bcast_col", Work::Bytes(2.0 * BYTES), &SQUARE, &[4096, 1]),
    ];
    for (name, work, x, y) in sums {
        b.time(name, work, |device| {
            let (x, y) = (normal(x, device)?, normal(y, device)?);
            Ok(move || x.add(&y))
        })?;
    }
    b.time("add/transposed", Work::Bytes(3.0 * BYTES), |device| {
        let (x, y) = (normal(&SQUARE, device)?, normal(&SQUARE, device)?.t()?);
        Ok(move || x.add(&y))
    })?;
    b.time("copy/transposed", Work::Bytes(2.0 * BYTES), |device| {
        let x = normal(&SQUARE, device)?.t()?;
        Ok(move || x.copy())
    })?;
    b.time("copy/permute_nchw", Work::Bytes(2.0 * 4.0 * (32 * 64 * 56 * 56) as f64), |device| {
        let x = normal(&[32, 64, 56, 56], device)?.permute([0, 2, 3, 1])?; // (32, 56, 56, 64)
        Ok(move || x.copy())
    })?;
    let unary: [Unary; 3] =
        [("exp/16M", Tensor::exp), ("tanh/16M", Tensor::tanh), ("gelu/16M", Tensor::gelu_tanh)];
    for (name, f) in unary {
        b.time(name, Work::Bytes(2.0 * BYTES), |device| {
            let x = normal(&[LONG], device)?;
            Ok(move || f(&x))
        })?;
    }
    b.time("chain/16M", Work::Bytes(6.0 * BYTES), |device| {
        let [a, x, b, c, d] = [(); 5].map(|()| normal(&[LONG], device));
        let all = [a?, x?, b?, c?, d?];
        Ok(move || map(all.each_ref(), |[a, x, b, c, d]| (a * x + b).relu() * c - d))
    })?;
    b.time("chain_bcast", Work::Bytes(2.0 * BYTES), |device| {
        let (x, bias) = (normal(&SQUARE, device)?, normal(&[4096], device)?);
        Ok(move || map([&x, &bias], |[x, bias]| (x + bias).gelu_tanh() * 1.5))
    })
}

/// Reductions, normalisation of rows, gathered rows.
///
/// # Errors
/// If the device fails.
pub fn rows(b: &Bench) -> Result<()> {
    let reductions: [Unary; 5] = [
        ("sum/all", |x| x.sum_all()),
        ("sum/axis0", |x| x.sum(0)),
        ("sum/axis1", |x| x.sum(1)),
        ("max/axis1", |x| x.max(1)),
        ("argmax/axis1", |x| x.argmax(1)),
    ];
    for (name, f) in reductions {
        b.time(name, Work::Bytes(BYTES), |device| {
            let x = normal(&SQUARE, device)?;
            Ok(move || f(&x))
        })?;
    }
    let bytes = Work::Bytes(2.0 * 4.0 * (4096 * 1024) as f64);
    b.time("softmax/4096x1024", bytes, |device| {
        let x = normal(&[4096, 1024], device)?;
        Ok(move || x.softmax(1))
    })?;
    b.time("layernorm/4096x1024", bytes, |device| {
        let (x, w, bias) =
            (normal(&[4096, 1024], device)?, normal(&[1024], device)?, normal(&[1024], device)?);
        Ok(move || x.layer_norm(1, Some(&w), Some(&bias), 1e-5))
    })?;
    b.time("gather/emb", Work::Bytes(2.0 * 4.0 * (16 * 256 * 768) as f64), |device| {
        let (weight, ids) = (normal(&[50257, 768], device)?, integers(&[16, 256], 50257, device)?);
        Ok(move || weight.index_select(0, &ids))
    })
}

/// Convolutions with 3 x 3 filters, pooling, causal attention.
///
/// # Errors
/// If the device fails.
pub fn windows(b: &Bench) -> Result<()> {
    let window = Window::new(2).padding(1);
    let (first, mid): ([usize; 4], [usize; 4]) = ([32, 3, 32, 32], [16, 64, 56, 56]);
    let flops = |x: [usize; 4]| 2.0 * 9.0 * 64.0 * x.iter().product::<usize>() as f64;
    for (name, x) in [("conv/first", first), ("conv/mid", mid)] {
        let window = window.clone();
        b.time(name, Work::Flops(flops(x)), |device| {
            let (x, w) = (normal(&x, device)?, normal(&[64, x[1], 3, 3], device)?);
            Ok(move || x.conv(&w, &window))
        })?;
    }
    b.time("conv/mid_fwdbwd", Work::Flops(3.0 * flops(mid)), |device| {
        let device: DeviceRef = Autograd::new(device.clone());
        let (x, w) = (
            normal(&mid, &device)?.requires_grad()?,
            normal(&[64, 64, 3, 3], &device)?.requires_grad()?,
        );
        Ok(move || x.conv(&w, &window)?.square()?.sum_all()?.mul(0.5)?.backward())
    })?;
    b.time("maxpool/2x2", Work::Bytes(1.25 * 4.0 * (32 * 64 * 56 * 56) as f64), |device| {
        let x = normal(&[32, 64, 56, 56], device)?;
        Ok(move || x.max_pool(&[2, 2], &Window::new(2).stride(2)))
    })?;
    b.time("attention/causal", Work::Flops(4.0 * (8 * 12 * 256 * 256 * 64) as f64), |device| {
        let [q, k, v] = [(); 3].map(|()| normal(&[8, 12, 256, 64], device));
        let (q, k, v) = (q?, k?, v?);
        Ok(move || q.attention(&k, &v, None, &Attention::causal(0)))
    })
}

/// A thousand operations on 16 elements, each on the result of the one before: eager, recorded and
/// captured.
///
/// # Errors
/// If the device fails.
pub fn dispatch(b: &Bench) -> Result<()> {
    let operand = |device: &DeviceRef| Ok(vec![Tensor::zeros([16], DType::F32, device)?]);
    function(b, "dispatch/chain1000", Work::Ops(1000.0), operand, |t| {
        Ok((0..1000).fold(t[0].clone(), |x, _| x + 1.0))
    })
}
