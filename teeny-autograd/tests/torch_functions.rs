//! Functions with PyTorch's values, first and second derivatives (`golden/functions.json`): in f64
//! on the naive device, the CPU and a device that records; values in f32, too.

use serde_json::Value;
use std::collections::BTreeSet;
use teeny_autograd::{allow_unused, grad, vjp};
use teeny_core::{
    BagMode, DType, DeviceRef, Interpolation, Lazy, Outside, QuantileMethod, Reference, Result,
    Sampling, ScatterReduce, Side, Tensor, ToDevice, Triangle,
};
use teeny_cpu::Cpu;

type Function = fn(&[Tensor]) -> Result<Tensor>;

macro_rules! rows {
    ($($name:literal $f:expr;)*) => { &[$(($name, $f)),*] };
}

const ROWS: &[(&str, Function)] = rows! {
    "log10" |x| x[0].log10(); "logit" |x| x[0].logit(); "sinc" |x| x[0].sinc();
    "asinh" |x| x[0].asinh(); "acosh" |x| x[0].acosh(); "atanh" |x| x[0].atanh();
    "erfc" |x| x[0].erfc(); "erfinv" |x| x[0].erfinv(); "lgamma" |x| x[0].lgamma();
    "digamma" |x| x[0].digamma(); "frac" |x| x[0].frac(); "tanhshrink" |x| x[0].tanhshrink();
    "logaddexp" |x| x[0].logaddexp(&x[1]); "logaddexp2" |x| x[0].logaddexp2(&x[1]);
    "xlogy" |x| x[0].xlogy(&x[1]); "atan2" |x| x[0].atan2(&x[1]); "hypot" |x| x[0].hypot(&x[1]);
    "fmod" |x| x[0].fmod(&x[1]); "div_trunc" |x| x[0].add(&x[0].div_trunc(&x[1])?);
    "div_trunc int" |x| x[0].div_trunc(&x[1]); "copysign" |x| x[0].copysign(&x[1]);
    "signbit" |x| x[0].signbit(); "heaviside" |x| x[0].heaviside(&x[1]); "gcd" |x| x[0].gcd(&x[1]);
    "lcm" |x| x[0].lcm(&x[1]); "celu" |x| x[0].celu(0.7); "hardshrink" |x| x[0].hardshrink(0.5);
    "softshrink" |x| x[0].softshrink(0.5);
    "nan_to_num" |x| x[0].nan_to_num(0.0, None, None)?.mul(&x[0]);
    "nan_to_num 1 2 3" |x| x[0].nan_to_num(1.0, Some(2.0), Some(3.0));
    "threshold" |x| x[0].threshold(0.5, 20.0)?.mul(&x[0]); "glu" |x| x[0].glu(1);
    "median" |x| Ok(x[0].median(1)?.0); "median position" |x| Ok(x[0].median(1)?.1);
    "nanmedian" |x| Ok(x[0].nanmedian(2)?.0); "kthvalue 2" |x| Ok(x[0].kthvalue(2, -1)?.0);
    "mode" |x| Ok(x[0].mode(if x[0].ndim() == 3 { 0 } else { 1 })?.0);
    "mode position" |x| Ok(x[0].mode(1)?.1); "nansum" |x| x[0].nansum([0, 2]);
    "nanmean" |x| x[0].nanmean(1);
    "aminmax" |x| { let (low, high) = x[0].aminmax(1)?; Tensor::cat(&[&low, &high], 0) };
    "masked_scatter" |x| x[0].masked_scatter(&x[0].gt(0.2)?, &x[1]);
    "unbind" |x| Tensor::cat(&x[0].unbind(1)?, 0)?.square();
    "tensor_split" |x| x[0].tensor_split(2, 3)?[1].square();
    "hstack" |x| Tensor::hstack(&[&x[0], &x[1]])?.square();
    "vstack" |x| Tensor::vstack(&[&x[0], &x[1].at(0, 0)?])?.square();
    "dstack" |x| Tensor::dstack(&[&x[0], &x[1]])?.square();
    "normalize" |x| x[0].normalize(2.0, 1, 1e-12); "normalize 3" |x| x[0].normalize(3.0, 0, 1e-12);
    "cosine_similarity" |x| x[0].cosine_similarity(&x[1], 1, 1e-8);
    "cross" |x| x[0].cross(&x[1], 0); "tensordot" |x| x[0].tensordot(&x[1], &[2, 1], &[1, 0]);
    "cov" |x| x[0].cov(1, None, None); "corrcoef" |x| x[0].corrcoef();
    "cov weighted" |x| {
        let counts = Tensor::new([1i64, 3, 2, 1], &x[0])?;
        x[0].cov(2, Some(&counts), Some(&Tensor::new([0.5, 1.0, 2.0, 0.25], &x[0])?))
    };
    "var_keepdim" |x| x[0].var_keepdim([0, 2], 1); "prod_keepdim" |x| x[0].prod_keepdim(1);
    "logsumexp_keepdim" |x| x[0].logsumexp_keepdim([0, 1]);
    "vector_norm_keepdim" |x| x[0].vector_norm_keepdim(3.0, 1);
    "argmax_keepdim" |x| x[0].argmax_keepdim(1); "any_keepdim" |x| x[0].gt(1.5)?.any_keepdim(2);
    "logcumsumexp" |x| x[0].logcumsumexp(x[0].ndim().min(2) as isize / 2);
    "assign_add" |x| x[0].assign_add(([2, 0, 2], [1, 1, 1]), x[1].at(1, 0)?)?.square();
    "embedding_bag mean" |x| x[0].embedding_bag(&ids(x)?, None, BagMode::Mean)?.square();
    "embedding_bag sum" |x| {
        bags(x, BagMode::Sum)?.square()
    };
    "embedding_bag max" |x| {
        bags(x, BagMode::Max)
    };
    "quantile linear" |x| quantile(x, QuantileMethod::Linear);
    "quantile lower" |x| quantile(x, QuantileMethod::Lower)?.square();
    "quantile higher" |x| quantile(x, QuantileMethod::Higher)?.square();
    "quantile midpoint" |x| quantile(x, QuantileMethod::Midpoint)?.square();
    "quantile nearest" |x| quantile(x, QuantileMethod::Nearest)?.square();
    "nanquantile" |x| x[0].nanquantile(&[0.0, 0.3, 0.5], 2, QuantileMethod::Linear);
    "bucketize False" |x| x[0].bucketize(&Tensor::new([-1.0, 0.0, 1.0], &x[0])?, Side::Left);
    "bucketize True" |x| x[0].bucketize(&Tensor::new([-1.0, 0.0, 1.0], &x[0])?, Side::Right);
    "isin" |x| x[0].isin(&Tensor::new([2.0, -1.0, f64::NAN, 1.0], &x[0])?);
    "scatter_reduce sum True" |x| scatter(x, ScatterReduce::Sum, true);
    "scatter_reduce sum False" |x| scatter(x, ScatterReduce::Sum, false);
    "scatter_reduce prod True" |x| scatter(x, ScatterReduce::Prod, true);
    "scatter_reduce prod False" |x| scatter(x, ScatterReduce::Prod, false);
    "scatter_reduce mean True" |x| scatter(x, ScatterReduce::Mean, true);
    "scatter_reduce mean False" |x| scatter(x, ScatterReduce::Mean, false);
    "scatter_reduce amax True" |x| scatter(x, ScatterReduce::Amax, true);
    "scatter_reduce amax False" |x| scatter(x, ScatterReduce::Amax, false);
    "scatter_reduce amin True" |x| scatter(x, ScatterReduce::Amin, true);
    "scatter_reduce amin False" |x| scatter(x, ScatterReduce::Amin, false);
    "matrix_power 3" |x| x[0].matrix_power(3); "matrix_power -2" |x| x[0].matrix_power(-2);
    "matrix_exp" |x| x[0].matrix_exp(); "multi_dot" |x| Tensor::multi_dot(&[&x[0], &x[1], &x[2]]);
    "vander" |x| x[0].vander(4);
    "cholesky_solve" |x| {
        let eye = Tensor::eye(3, x[0].dtype(), &x[0])?;
        x[0].cholesky_solve(&x[1].matmul(&x[1].t()?)?.add(&eye)?.cholesky()?, Triangle::Lower)
    };
    "affine_grid False" |x| x[0].affine_grid(&[3, 4], false);
    "affine_grid True" |x| x[0].affine_grid(&[3, 4], true);
    "affine_grid3 False" |x| x[0].affine_grid(&[2, 3, 1], false);
    "affine_grid3 True" |x| x[0].affine_grid(&[2, 3, 1], true);
};

fn ids(x: &[Tensor]) -> Result<Tensor> {
    Tensor::new([[0i64, 2, 2, 1], [2, 2, 0, 0]], &x[0])
}

fn bags(x: &[Tensor], mode: BagMode) -> Result<Tensor> {
    let offsets = Tensor::new([0i64, 3, 3, 6], &x[0])?;
    x[0].embedding_bag(&ids(x)?.reshape(-1)?, Some(&offsets), mode)
}

fn quantile(x: &[Tensor], method: QuantileMethod) -> Result<Tensor> {
    x[0].quantile(&[0.1, 0.5, 1.0], 1, method)
}

fn scatter(x: &[Tensor], reduce: ScatterReduce, include_self: bool) -> Result<Tensor> {
    let part = |x: &Tensor| x.slice(0, ..2)?.slice(1, ..3);
    x[0].scatter_reduce(0, &part(&ids(x)?)?, &part(&x[1])?, reduce, include_self)?.square()
}

/// The function of a row of the file.
fn function(name: &str, x: &[Tensor]) -> Result<Tensor> {
    if let [what, mode, outside, corners] = name.split(' ').collect::<Vec<_>>()[..]
        && what.starts_with("grid_sample")
    {
        let mode = match mode {
            "nearest" => Sampling::Nearest,
            "bilinear" => Sampling::Linear,
            _ => Sampling::Cubic,
        };
        let outside = match outside {
            "zeros" => Outside::Zeros,
            "border" => Outside::Border,
            _ => Outside::Reflection,
        };
        return x[0].grid_sample(&x[1], mode, outside, corners == "True");
    }
    if let ["antialias", mode, height, width] = name.split(' ').collect::<Vec<_>>()[..] {
        let mode = match mode {
            "bilinear" => Interpolation::AntialiasLinear,
            _ => Interpolation::AntialiasCubic,
        };
        return x[0].interpolate(&[height.parse().unwrap(), width.parse().unwrap()], mode);
    }
    let row = ROWS.iter().find(|row| row.0 == name);
    row.unwrap_or_else(|| panic!("no row is called {name}")).1(x)
}

fn number(v: &Value) -> f64 {
    match v {
        Value::String(s) => s.parse().unwrap(),
        Value::Bool(b) => f64::from(u8::from(*b)),
        v => v.as_f64().unwrap(),
    }
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().unwrap().iter().map(number).collect()
}

fn shape(v: &Value) -> Vec<usize> {
    numbers(&v["shape"]).iter().map(|&n| n as usize).collect()
}

fn tensor(v: &Value, float: DType, device: &DeviceRef) -> Tensor {
    let own = DType::ALL.into_iter().find(|t| v["dtype"] == t.name()).unwrap();
    let dtype = if own.is_float() { float } else { own };
    let x = Tensor::from_vec(numbers(&v["data"]), shape(v), Reference::new()).unwrap();
    x.cast(dtype).unwrap().to(device).unwrap()
}

fn read(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(|v| v.to_f64()).collect()
}

/// A difference of the elements beyond `tolerance` of their size (at least `floor`), as text.
fn difference(got: &[f64], want: &[f64], tolerance: f64, floor: f64) -> Option<String> {
    let far = |(&g, &w): (&f64, &f64)| {
        let close = (g - w).abs() <= tolerance * w.abs().max(floor);
        !(close || g == w || g.is_nan() && w.is_nan())
    };
    let at = got.iter().zip(want).position(far);
    let text = |i: usize| format!("element {i} is {:e}, not {:e}", got[i], want[i]);
    at.map(text).or_else(|| (got.len() != want.len()).then(|| "another count".to_string()))
}

/// The gradients of `sum(y * w)` by the floats, and the gradients of their weighted sum, as in the
/// script.
fn derivatives(name: &str, x: &[Tensor], numel: &[usize]) -> Result<[Vec<Vec<f64>>; 2]> {
    let count = |shape: &[usize]| {
        let n = shape.iter().product::<usize>();
        Tensor::arange(1.0f64, n as f64 + 1.0, 1.0, x[0].device())?.reshape(shape)
    };
    let w = count(numel)?.div(numel.iter().product::<usize>().max(1) as f64)?;
    let floats: Vec<Tensor> = x.iter().filter(|t| t.dtype().is_float()).cloned().collect();
    let f = |floats: &Vec<Tensor>| {
        let mut floats = floats.iter();
        let mut own = |t: &Tensor| match t.dtype().is_float() {
            true => floats.next().unwrap().clone(),
            false => t.clone(),
        };
        function(name, &x.iter().map(&mut own).collect::<Vec<_>>())
    };
    let first = |x: &Vec<Tensor>| Ok::<_, teeny_core::Error>(vjp(f, x, &w)?.1);
    let sum = |x: &Vec<Tensor>| {
        let mut loss = Tensor::new(0.0f64, &x[0])?;
        for g in first(x)? {
            loss = loss.add(&g.div(&count(g.shape())?)?.sum_all()?)?;
        }
        Ok(loss)
    };
    let both = [first(&floats)?, grad(sum, &floats)?];
    Ok(both.map(|grads| grads.iter().map(read).collect()))
}

/// Runs every row on `device` and reports what differs.
fn compare(inner: &str, device: &DeviceRef, float: DType) {
    let file: Value = serde_json::from_str(include_str!("golden/functions.json")).unwrap();
    let mut known: BTreeSet<&str> = ROWS.iter().map(|row| row.0).collect();
    let mut found = Vec::new();
    for case in file["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        known.remove(name);
        let positions = case["inputs"].as_array().unwrap().iter();
        let x: Vec<Tensor> = positions
            .map(|i| tensor(&file["inputs"][i.as_u64().unwrap() as usize], float, device))
            .collect();
        let mut report = |what: &str, difference: Option<String>| {
            found.extend(difference.map(|text| format!("{name} on {inner}: {what}: {text}")));
        };
        let y = match function(name, &x) {
            Ok(y) => y,
            Err(error) => {
                report("value", Some(error.to_string()));
                continue;
            }
        };
        if y.shape()[..] != shape(&case["result"]) {
            report("shape", Some(y.shape().to_string()));
        }
        let (tolerance, floor) = if float == DType::F64 { (2e-11, 1e-3) } else { (3e-5, 0.1) };
        report("value", difference(&read(&y), &numbers(&case["result"]["data"]), tolerance, floor));
        if case["grads"].is_null() || float != DType::F64 {
            continue;
        }
        match allow_unused(|| derivatives(name, &x, y.shape())) {
            Ok(got) => {
                for (what, got) in ["grads", "second"].iter().zip(got) {
                    if case[*what].is_null() {
                        continue;
                    }
                    for (got, want) in got.iter().zip(case[*what].as_array().unwrap()) {
                        report(what, difference(got, &numbers(want), 1e-8, 1.0));
                    }
                }
            }
            Err(error) => report("derivatives", Some(error.to_string())),
        }
    }
    found.extend(known.iter().map(|name| format!("{name} is in no row of the file")));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

#[test]
fn on_the_naive_device() {
    compare("reference", &Reference::new().to_device(), DType::F64);
}

#[test]
fn on_the_cpu() {
    compare("cpu", &Cpu::new().to_device(), DType::F64);
}

#[test]
fn on_a_device_that_records() {
    compare("lazy", &Lazy::new(Cpu::new()).to_device(), DType::F64);
}

#[test]
fn values_in_f32() {
    compare("cpu in f32", &Cpu::new().to_device(), DType::F32);
}
