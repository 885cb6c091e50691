//! Reading golden files, and comparing with them.
#![allow(dead_code)] // each test file uses a part

use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use teeny_autograd::{Autograd, Grad, Gradients};
use teeny_core::{DType, DeviceRef, Tensor};

/// A folder that disappears with the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("teeny-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn files(&self) -> Vec<String> {
        fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The device the tests run on: the CPU, or what TEENY_DEVICE names.
pub fn device() -> DeviceRef {
    teeny_nn::device("auto").expect("a device")
}

/// The same device with automatic differentiation around it.
pub fn autograd() -> DeviceRef {
    Autograd::new(device())
}

/// The gradients of `Σ y w` with `w = 1, 2, 3, .. / numel`, as the golden scripts take them.
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
    let values: Vec<i64> = v.as_array().expect("a list").iter().map(|n| n.as_i64().expect("an integer")).collect();
    Tensor::from_vec(values, shape, device).unwrap()
}

pub fn values(x: &Tensor) -> Vec<f64> {
    x.to_scalars().unwrap().into_iter().map(|s| s.to_f64()).collect()
}

/// Every element within `tolerance` of what is wanted, relative to the larger of 1 and its size; NaN meets NaN.
#[track_caller]
pub fn assert_close(got: &[f64], want: &[f64], tolerance: f64, what: &dyn std::fmt::Display) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (g, w)) in got.iter().zip(want).enumerate() {
        let close = (g - w).abs() <= tolerance * w.abs().max(1.0) || g == w || (g.is_nan() && w.is_nan());
        assert!(close, "element {i} is {g}, wanted {w}: {what}");
    }
}
