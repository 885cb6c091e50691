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
use teeny_core::{DType, DeviceRef, Result, Tensor};

/// An operation as users call it, on inputs already on the device.
pub type Body = Box<dyn Fn(&DeviceRef, &[Tensor]) -> Result<Vec<Tensor>>>;

/// One operation on given inputs.
pub struct Case {
    /// The row of the report.
    pub op: &'static str,
    /// The column of the report.
    pub dtype: DType,
    pub inputs: Vec<Input>,
    pub tolerance: Tolerance,
    pub body: Body,
    /// What the inputs do not say: axes, sizes.
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
    body: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
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

/// Every set of axes of a tensor of `ndim` axes but the empty one.
fn axis_sets(ndim: usize) -> impl Iterator<Item = Vec<usize>> {
    (1..1usize << ndim).map(move |bits| (0..ndim).filter(|a| bits >> a & 1 == 1).collect())
}
