//! PyTorch's answers, for any device: the files of `golden`, compared with `Tensor` methods.
//!
//! The suite compares devices with the oracle; these files keep the oracle honest. Each function
//! runs one file in one float type (the files hold f64) and returns how many cases agree. Where
//! this library means something else than PyTorch, the runner says so beside the exception.

mod elementwise;
mod structure;

pub use elementwise::{binary, cast, promotion, unary};
pub use structure::{conv, matmul, reduce, softmax, views};

use serde_json::Value;
use teeny_core::{DType, DeviceRef, Result, Scalar, Tensor};

/// The number of cases that agreed, or the failed ones, one per line.
pub type Verdict = std::result::Result<usize, String>;

/// Collects the cases of a file.
#[derive(Default)]
pub(crate) struct Findings {
    agreed: usize,
    failures: Vec<String>,
}

impl Findings {
    /// Counts a case; `outcome` says what is wrong with it.
    pub(crate) fn add(
        &mut self,
        name: impl std::fmt::Display,
        outcome: std::result::Result<(), String>,
    ) {
        match outcome {
            Ok(()) => self.agreed += 1,
            Err(why) => self.failures.push(format!("{name}: {why}")),
        }
    }

    pub(crate) fn verdict(self) -> Verdict {
        if self.failures.is_empty() { Ok(self.agreed) } else { Err(self.failures.join("\n")) }
    }
}

fn parse(text: &str) -> Value {
    serde_json::from_str(text).expect("the golden files are JSON")
}

fn list(v: &Value) -> &[Value] {
    v.as_array().expect("a list")
}

fn name(v: &Value) -> &str {
    v.as_str().expect("a name")
}

/// A JSON number, a bool, or the names of what JSON cannot say.
fn scalar(v: &Value) -> Scalar {
    match v {
        Value::String(s) => Scalar::Float(s.parse().expect("nan or inf")),
        Value::Bool(b) => Scalar::Bool(*b),
        v if v.is_u64() => Scalar::UInt(v.as_u64().expect("unsigned")),
        v if v.is_i64() => Scalar::Int(v.as_i64().expect("signed")),
        v => Scalar::Float(v.as_f64().expect("a number")),
    }
}

fn scalars(v: &Value) -> Vec<Scalar> {
    list(v).iter().map(scalar).collect()
}

fn sizes(v: &Value) -> Vec<usize> {
    list(v).iter().map(|n| n.as_u64().expect("a size") as usize).collect()
}

fn dtype(v: &Value) -> DType {
    DType::ALL.into_iter().find(|t| t.name() == name(v)).expect("a type")
}

/// The tensor written as `{"dtype", "shape", "data"}`; floats as `float`, the type under test.
fn tensor(v: &Value, float: DType, device: &DeviceRef) -> Result<Tensor> {
    let own = dtype(&v["dtype"]);
    Tensor::from_scalars(
        &scalars(&v["data"]),
        sizes(&v["shape"]),
        if own.is_float() { float } else { own },
        device,
    )
}

/// Checks the values of `got`: exactly, or within `places` last places of the larger of the value
/// and `floor`.
fn agree(
    got: Result<Tensor>,
    want: &[Scalar],
    places: f64,
    floor: f64,
) -> std::result::Result<(), String> {
    let got = got.map_err(|e| e.to_string())?;
    let place = match got.dtype() {
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        DType::F64 => 2f64.powi(-52),
        _ => 2f64.powi(-23),
    };
    let values = got.to_scalars().map_err(|e| e.to_string())?;
    if values.len() != want.len() {
        return Err(format!("{} elements, not {}", values.len(), want.len()));
    }
    for (i, (&have, &want)) in values.iter().zip(want).enumerate() {
        let (h, w) = (have.to_f64(), want.cast(got.dtype()).to_f64());
        // The last term is a step between subnormal numbers.
        let allowed = if places == 0.0 {
            0.0
        } else {
            places * place * w.abs().max(floor)
                + if got.dtype() == DType::F16 { 1.2e-7 } else { 3e-45 }
        };
        if !(h == w || h.is_nan() && w.is_nan() || (h - w).abs() <= allowed) {
            return Err(format!("element {i} is {have}, not {want}"));
        }
    }
    Ok(())
}

/// [`agree`], and the shape is `shape`.
fn agree_in(
    got: Result<Tensor>,
    shape: &Value,
    want: &Value,
    places: f64,
    floor: f64,
) -> std::result::Result<(), String> {
    let got = got.map_err(|e| e.to_string())?;
    if **got.shape() != *sizes(shape) {
        return Err(format!("shape {}, not {shape}", got.shape()));
    }
    agree(Ok(got), &scalars(want), places, floor)
}
