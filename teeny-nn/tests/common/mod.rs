//! Reads golden files and compares results with them.
#![allow(dead_code)] // each test file uses a part

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use teeny_autograd::{Autograd, Check, Grad, Gradients, gradcheck, gradgradcheck};
use teeny_core::{DType, DeviceRef, Distribution, Error, Key, Result, Tensor};
use teeny_nn::{Module, Store};

/// A folder that is removed at the end of the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("teeny-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A folder with the files of the folder `from`.
    pub fn copy(name: &str, from: &std::path::Path) -> Folder {
        let folder = Folder::new(name);
        for entry in from.read_dir().unwrap() {
            let from = entry.unwrap().path();
            std::fs::copy(&from, folder.0.join(from.file_name().unwrap())).unwrap();
        }
        folder
    }

    pub fn files(&self) -> Vec<String> {
        fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The device of the tests: the CPU, or the one that TEENY_DEVICE names.
pub fn device() -> DeviceRef {
    teeny_nn::device("auto").expect("a device")
}

/// An autograd device over [`device`].
pub fn autograd() -> DeviceRef {
    Autograd::new(device())
}

/// The gradients of `Σ y w` with `w = 1, 2, 3, .. / numel`, as in the golden scripts.
pub fn backward(y: &Tensor) -> Gradients {
    let n = y.numel();
    let w: Vec<f64> = (1..=n).map(|i| i as f64 / n as f64).collect();
    let w = f64s(w, y.shape(), &device_below(y)).cast(y.dtype()).unwrap();
    y.backward_with(&w).unwrap()
}

fn device_below(x: &Tensor) -> DeviceRef {
    x.device().inner().expect("an autograd device").clone()
}

pub fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("golden files are JSON")
}

/// The numbers of nested lists.
pub fn flat(v: &Value) -> Vec<f64> {
    match v.as_array() {
        Some(items) => items.iter().flat_map(flat).collect(),
        None => vec![v.as_f64().unwrap()],
    }
}

pub fn number(v: &Value) -> f64 {
    match v {
        Value::String(s) => s.parse().expect("nan or inf"),
        other => other.as_f64().expect("a number"),
    }
}

pub fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(number).collect()
}

pub fn sizes(v: &Value) -> Vec<usize> {
    numbers(v).into_iter().map(|n| n as usize).collect()
}

/// The tensor `{"dtype": .., "shape": .., "data": ..}`.
pub fn tensor(v: &Value, device: &DeviceRef) -> Tensor {
    let dtype = DType::ALL.into_iter().find(|t| v["dtype"] == t.name()).expect("a type");
    f64s(numbers(&v["data"]), &sizes(&v["shape"]), device).cast(dtype).unwrap()
}

pub fn f64s(values: Vec<f64>, shape: &[usize], device: &DeviceRef) -> Tensor {
    Tensor::from_vec(values, shape, device).unwrap()
}

pub fn ints(v: &Value, shape: &[usize], device: &DeviceRef) -> Tensor {
    let values: Vec<i64> =
        v.as_array().expect("a list").iter().map(|n| n.as_i64().expect("an integer")).collect();
    Tensor::from_vec(values, shape, device).unwrap()
}

pub fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(|s| s.to_f64()).collect()
}

/// Checks first and second derivatives of a layer with respect to its input, and first derivatives
/// with respect to its parameters, by central differences.
pub fn check_module(make: impl Fn(&Store) -> Result<Box<dyn Module>>, shape: &[usize]) {
    let distribution = Distribution::Uniform { low: -1.0, high: 1.0 };
    let draw = |shape: &[usize], draw: u64, device: &DeviceRef| {
        Tensor::random(distribution, shape, DType::F64, Key { seed: 3, draw }, device).unwrap()
    };
    let built = |device: &DeviceRef| -> Result<(Store, Box<dyn Module>)> {
        let store = Store::with_dtype(device, DType::F64);
        let layer = make(&store)?;
        store
            .trainable()
            .iter()
            .zip(1..)
            .try_for_each(|(p, i)| p.set(&draw(p.value().shape(), i, device)))?;
        Ok((store, layer))
    };
    let x = draw(shape, 0, &device());
    let of_x = |x: &[Tensor]| built(x[0].device())?.1.forward(&x[0]);
    gradcheck(of_x, std::slice::from_ref(&x), &Check::default()).unwrap();
    gradgradcheck(of_x, std::slice::from_ref(&x), &Check::default()).unwrap();

    let around: DeviceRef = Autograd::new(x.device().clone());
    let (store, layer) = built(&around).unwrap();
    if store.trainable().is_empty() {
        return;
    }
    let loss = || layer.forward(&x).unwrap().square().unwrap().sum_all().unwrap();
    let grads = loss().backward().unwrap();
    for param in store.trainable() {
        let (value, wanted) = (param.value(), values(grads.get(&param.value()).unwrap()));
        for (i, wanted) in wanted.iter().enumerate() {
            let shifted = |step: f64| {
                let mut moved = values(&value);
                moved[i] += step;
                param.set(&f64s(moved, value.shape(), x.device())).unwrap();
                loss().item::<f64>().unwrap()
            };
            let slope = (shifted(1e-5) - shifted(-1e-5)) / 2e-5;
            assert!(
                (slope - wanted).abs() < 1e-6 * wanted.abs().max(1.0),
                "{} {i}: {slope} {wanted}",
                param.name()
            );
        }
        param.set(&value).unwrap();
    }
}

/// Every element is within `tolerance` of the expected one, relative to the larger of 1 and its
/// magnitude; NaN equals NaN.
#[track_caller]
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64, what: &dyn std::fmt::Display) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let close =
            (g - w).abs() <= tolerance * w.abs().max(1.0) || g == w || (g.is_nan() && w.is_nan());
        assert!(close, "element {i} is {g}, wanted {w}: {what}");
    }
}

/// How many times as many damaged files as usual readers get, by the variable TEENY_FUZZ.
pub fn fuzz_times() -> usize {
    std::env::var("TEENY_FUZZ").ok().and_then(|n| n.parse().ok()).unwrap_or(1)
}

/// Marsaglia's xorshift: the same numbers in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

/// The text of an error without the line of the test that it names.
#[track_caller]
pub fn without_line(error: &Error) -> String {
    let line = error.location().expect("an error names the line of the caller");
    error.to_string().replacen(&format!(" at {}:{}", line.file(), line.line()), "", 1)
}
