//! The cases: one row per operation, types and layouts as dimensions.

mod attention;
pub(super) mod elementwise;
pub(super) mod fused;
mod index;
mod many;
#[cfg(feature = "linalg")]
mod matrices;
mod memory;
mod product_kernels;
mod products;
mod reductions;
pub(super) mod requests;

pub(super) use super::layouts::{Arrangement, Domain, Input};
pub(super) use super::tolerance::{BITS, EQUAL, Tolerance, near, stepwise, ulps};
use crate::dice::Dice;
use teeny_core::{DType, DeviceRef, Result, Scalar, Tensor};

/// An operation as users call it, on inputs already on the device.
pub type Body = Box<dyn Fn(&DeviceRef, &[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;

/// One operation on given inputs.
pub struct Case {
    /// The row of the report.
    pub op: &'static str,
    /// The column of the report.
    pub dtype: DType,
    pub inputs: Vec<Input>,
    pub tolerance: Tolerance,
    pub body: Body,
    /// Axes, sizes and other attributes that the inputs do not show.
    pub detail: String,
}

impl Case {
    /// The case in words, with what was expected and what came.
    pub fn counterexample(&self, expected: &str, got: &str) -> String {
        let inputs = self.inputs.iter().map(|i| i.to_string()).collect::<Vec<_>>().join(", ");
        let detail =
            if self.detail.is_empty() { String::new() } else { format!(" [{}]", self.detail) };
        let expected =
            if expected.is_empty() { String::new() } else { format!("expected {expected}, got ") };
        format!("({inputs}){detail}: {expected}{got}")
    }
}

/// Where cases go as they are made: none is kept.
type Sink<'s> = &'s mut dyn FnMut(Case);

/// Makes every case, in the order of the report.
pub fn each(sink: Sink<'_>) {
    memory::each(sink);
    elementwise::each(sink);
    reductions::each(sink);
    products::each(sink);
    index::each(sink);
    fused::each(sink);
    product_kernels::each(sink);
    many::each(sink);
    attention::each(sink);
    requests::each(sink);
    #[cfg(feature = "linalg")]
    matrices::each(sink);
}

/// A case whose result is one tensor.
fn one(
    op: &'static str,
    dtype: DType,
    tolerance: Tolerance,
    inputs: Vec<Input>,
    detail: String,
    body: impl Fn(&[Tensor]) -> Result<Tensor> + Send + Sync + 'static,
) -> Case {
    Case { op, dtype, inputs, tolerance, detail, body: Box::new(move |_, x| Ok(vec![body(x)?])) }
}

/// The arrangements of a first operand, each with another one for a second.
fn pairs() -> impl Iterator<Item = (Arrangement, Arrangement)> {
    let all = Arrangement::ALL;
    let same = all.into_iter().map(|a| (a, a));
    same.chain((0..all.len()).map(move |i| (all[i], all[(i + 1) % all.len()])))
        .chain((0..all.len()).map(move |i| (all[(3 * i + 2) % all.len()], all[i])))
}

/// Numbers for the fields and parameters of `dtype` that hold one: those that a cast rounds, wraps
/// or saturates, at fixed places and at random.
fn numbers(dtype: DType) -> Vec<Scalar> {
    let fixed = [
        Scalar::Int(7),
        Scalar::Int(-1),
        Scalar::Int(-3),
        Scalar::Int(300),
        Scalar::Int((1 << 53) + 1),
        Scalar::Int(i64::MIN + 1),
        Scalar::UInt(u64::MAX - 1),
        Scalar::Float(1.5),
        Scalar::Float(-1.5),
        Scalar::Float(2.75),
        Scalar::Float(0.1),
        Scalar::Float(-0.0),
        Scalar::Float(3e9),
        Scalar::Float(1e39),
        Scalar::Float(-1e300),
        Scalar::Float(f64::NAN),
        Scalar::Float(f64::INFINITY),
        Scalar::Bool(true),
    ];
    let mut dice = Dice::new(0x9ad, dtype as u64);
    let random = (0..6).map(move |i| match i % 3 {
        0 => Scalar::Int(dice.bits() as i64 >> dice.below(64)),
        1 => Scalar::UInt(dice.bits() >> dice.below(64)),
        _ => Scalar::Float((dice.unit() - 0.5) * 2f64.powi(dice.below(70) as i32 - 4)),
    });
    fixed.into_iter().chain(random).collect()
}

/// A factor of products whose digits a narrower type does not hold: `i` is 0 or 1.
fn factor(dtype: DType, i: u64) -> Scalar {
    match dtype.is_float() {
        true => Scalar::Float(1.7 + i as f64).cast(dtype.compute()),
        false => Scalar::UInt((1 << (8 * dtype.size() - 2)) + 3 + i).cast(dtype.compute()),
    }
}

/// Every set of axes of a tensor of `ndim` axes but the empty one.
fn axis_sets(ndim: usize) -> impl Iterator<Item = Vec<usize>> {
    (1..1usize << ndim).map(move |bits| (0..ndim).filter(|a| bits >> a & 1 == 1).collect())
}
