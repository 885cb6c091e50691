//! One operation at a time on random operands, held against the oracle: the second fuzzer, beside
//! [`super::fuzz`](mod@super::fuzz).
//!
//! A case is one call: an operation, sizes around vector widths and blocks, views of any strides,
//! values at which floating-point code goes wrong. It depends on a seed and a number only.
//! [`check`] runs it on the oracle and on the device, in every way that the device can run it
//! ([`Site`]): all must agree with the oracle, and have the same bits among themselves. [`program`]
//! is the command line around it, which runs batches in fresh processes.
//!
//! ```text
//! generate(seed, number) ──► Case { operands, body, tolerance }
//!                              │            body(operands on Reference)      expected, perhaps in f64
//!                              └─► check ─► body(operands on the device)     got, per site
//!                                           scale(operands on Reference)     only where they differ
//! ```

mod attention;
mod compare;
mod elementwise;
mod fused;
mod index;
mod many;
mod memory;
mod product_kernels;
mod products;
pub mod program;
mod quant;
mod reductions;
mod rows;
mod windows;

pub use compare::Rules;

use crate::dice::Dice;
use crate::operand::Operand;
use compare::Tolerance;
use std::panic::{AssertUnwindSafe, catch_unwind};
use teeny_core::random::with_seed;
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Reference, Result, Shape, Tensor};

/// The types of floating-point numbers.
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// An operation on operands that are on a device; all its results.
type Body = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync>;

/// The source of the expected results.
enum Truth {
    /// The oracle on the same operands: it accumulates in f64 and rounds once.
    Own,
    /// The oracle on operands cast to f64: for operations of several steps, whose definition rounds
    /// after each.
    Wide,
}

/// One operation on given operands.
pub struct Case {
    op: &'static str,
    operands: Vec<Operand>,
    detail: String,
    body: Body,
    truth: Truth,
    /// One per result; the last one also applies to all further results.
    tolerances: Vec<Tolerance>,
    /// For [`Tolerance::Scaled`]: the magnitude that errors are relative to, one tensor per result,
    /// from operands cast to f64.
    scale: Option<Body>,
}

impl Case {
    /// An operation whose results must be equal; see the other constructors for what is not exact.
    fn new(
        op: &'static str,
        operands: Vec<Operand>,
        detail: String,
        body: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Case {
        let tolerances = vec![Tolerance::Equal];
        Case {
            op,
            operands,
            detail,
            body: Box::new(body),
            truth: Truth::Own,
            tolerances,
            scale: None,
        }
    }

    /// The case with this tolerance.
    fn within(mut self, tolerance: Tolerance) -> Case {
        self.tolerances = vec![tolerance];
        self
    }

    /// The case with a tolerance per result.
    fn each_within(mut self, tolerances: Vec<Tolerance>) -> Case {
        self.tolerances = tolerances;
        self
    }

    /// The case with errors up to `factor` unit roundoffs of what `scale` gives for operands in
    /// f64.
    fn scaled(
        mut self,
        factor: f64,
        scale: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + Send + Sync + 'static,
    ) -> Case {
        self.tolerances = vec![Tolerance::Scaled(factor)];
        self.scale = Some(Box::new(scale));
        self
    }

    /// The case compared with the operation on operands cast to f64.
    fn wide(mut self) -> Case {
        self.truth = Truth::Wide;
        self
    }

    /// The case for a device under `rules`: one that flushes subnormal numbers gets no operands so
    /// small that comparisons and quotients depend on it.
    pub(super) fn under(mut self, rules: Rules) -> Case {
        if rules.flushes_subnormals {
            self.operands = self.operands.into_iter().map(Operand::without_tiny).collect();
        }
        self
    }

    fn is_convolution_of_infinities(&self) -> bool {
        self.op.starts_with("conv") && self.operands.iter().any(Operand::may_be_infinite)
    }

    pub(super) fn is_program(&self) -> bool {
        matches!(self.op, "kernel" | "reduce_kernel" | "rows")
    }

    /// The operation's name.
    pub fn op(&self) -> &'static str {
        self.op
    }

    /// The type of its first operand.
    pub(super) fn dtype(&self) -> DType {
        self.operands.first().map_or(DType::F32, Operand::dtype)
    }

    /// The case in words.
    pub fn describe(&self) -> String {
        let operands: Vec<String> = self.operands.iter().map(|o| o.to_string()).collect();
        format!("{} ({}) [{}]", self.op, operands.join("; "), self.detail)
    }
}

/// Makes cases of one operation.
type Generator = fn(&mut Dice) -> Result<Case>;

/// A group of operations: how often it is drawn, and how it makes a case.
struct Family {
    name: &'static str,
    weight: usize,
    generate: Generator,
}

/// Every group of operations.
fn families() -> impl Iterator<Item = &'static Family> {
    let all: [&'static [Family]; 12] = [
        elementwise::FAMILIES,
        reductions::FAMILIES,
        rows::FAMILIES,
        products::FAMILIES,
        product_kernels::FAMILIES,
        many::FAMILIES,
        index::FAMILIES,
        memory::FAMILIES,
        windows::FAMILIES,
        fused::FAMILIES,
        attention::FAMILIES,
        quant::FAMILIES,
    ];
    all.into_iter().flatten()
}

/// The names of the groups of operations, which [`generate`] can be restricted to.
pub fn names() -> Vec<&'static str> {
    families().map(|family| family.name).collect()
}

/// Case `number` under `seed`, of the groups whose name contains `only`, or of all.
///
/// # Errors
/// If no group has such a name.
pub fn generate(seed: u64, number: u64, only: Option<&str>) -> Result<Case> {
    let mut dice = Dice::new(seed, number);
    let wanted: Vec<&Family> =
        families().filter(|f| only.is_none_or(|only| f.name.contains(only))).collect();
    let total: usize = wanted.iter().map(|f| f.weight).sum();
    if total == 0 {
        let known = names().join(" ");
        return Err(Error::value(format!(
            "no group of operations is called {}",
            only.unwrap_or("")
        ))
        .note(known));
    }
    let mut ticket = dice.below(total);
    for family in wanted {
        if ticket < family.weight {
            return (family.generate)(&mut dice);
        }
        ticket -= family.weight;
    }
    Err(Error::internal("a ticket beyond the last group"))
}

/// One way to run an operation: a device, and the threads that it runs on.
pub trait Site {
    /// The device.
    fn device(&self) -> &DeviceRef;

    /// Calls `f`, on this site's threads.
    fn run(&self, f: &mut (dyn FnMut() + Send)) {
        f();
    }
}

/// A device on the threads of the caller.
pub(super) struct Alone<'a>(pub(super) &'a DeviceRef);

impl Site for Alone<'_> {
    fn device(&self) -> &DeviceRef {
        self.0
    }
}

/// The outcome of a case without a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The results agree.
    Agreed,
    /// The oracle and the device both return an error.
    Refused,
    /// The device does not do this.
    Unsupported,
}

/// Runs `case` on the oracle and at every site.
///
/// # Errors
/// The first disagreement, in words.
pub fn check(
    case: &Case,
    sites: &[&dyn Site],
    rules: Rules,
) -> std::result::Result<Verdict, String> {
    let reference: DeviceRef = Reference::new();
    let expected = outcome(case, &reference, matches!(case.truth, Truth::Wide));
    // A case whose own expectation fails would compare nothing.
    if let Err(error) = &expected
        && error.kind() == ErrorKind::Internal
    {
        return Err(format!("the oracle has {error}"));
    }
    let mut first: Option<Vec<Vec<u8>>> = None;
    let mut verdict = Verdict::Agreed;
    for (number, site) in sites.iter().enumerate() {
        let mut got = Err(Error::internal("the site ran nothing"));
        // Every site sees the case alone; only the first is compared with the oracle, as the others
        // have its bits.
        let device = site.device();
        site.run(&mut || got = outcome(case, device, false));
        // A device that finds a wrong index late reports it when its results are read.
        let read = |got: Vec<Tensor>| {
            let bytes = caught(|| got.iter().map(|y| y.to_bytes()).collect::<Result<Vec<_>>>())?;
            Ok((got, bytes))
        };
        let got = got.and_then(read);
        verdict = match (&expected, got) {
            (_, Err(error)) if error.kind() == ErrorKind::Unsupported => Verdict::Unsupported,
            (Err(expected), Err(error)) if expected.kind() == error.kind() => Verdict::Refused,
            (Err(expected), Ok(_)) => {
                return Err(format!("expected the error {expected}, got a result"));
            }
            (Err(expected), Err(error)) => return Err(format!("expected {expected}, got {error}")),
            (Ok(_), Err(error)) => return Err(format!("expected a result, got {error}")),
            (Ok(expected), Ok((got, bytes))) => {
                match &first {
                    None => {
                        compare(case, expected, &got, &reference, rules)?;
                        first = Some(bytes);
                    }
                    Some(first) if *first == bytes => {}
                    Some(_) => {
                        return Err(format!("other bits at site {number} than at the first"));
                    }
                }
                Verdict::Agreed
            }
        };
    }
    Ok(verdict)
}

/// The results of a case on `device`.
fn outcome(case: &Case, device: &DeviceRef, wide: bool) -> Result<Vec<Tensor>> {
    caught(|| with_seed(1, || (case.body)(&operands(case, device, wide)?)))
}

/// The result of `f`. A panic is a failure of the device and does not end the campaign.
fn caught<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .cloned()
            .or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string()));
        Err(Error::internal(format!("a panic: {}", text.unwrap_or_default())))
    })
}

/// The operands on `device`, floats cast to f64 if `wide`.
fn operands(case: &Case, device: &DeviceRef, wide: bool) -> Result<Vec<Tensor>> {
    let one = |operand: &Operand| {
        let x = operand.on(device)?;
        if wide && x.dtype().is_float() { x.cast(DType::F64) } else { Ok(x) }
    };
    case.operands.iter().map(one).collect()
}

fn compare(
    case: &Case,
    expected: &[Tensor],
    got: &[Tensor],
    reference: &DeviceRef,
    rules: Rules,
) -> std::result::Result<(), String> {
    if expected.len() != got.len() {
        return Err(format!("{} results, expected {}", got.len(), expected.len()));
    }
    let mut scales: Option<Vec<Tensor>> = None;
    for (number, (want, have)) in expected.iter().zip(got).enumerate() {
        let same_type = want.dtype() == have.dtype()
            || matches!(case.truth, Truth::Wide) && have.dtype().is_float();
        if want.shape() != have.shape() || !same_type {
            return Err(format!(
                "result {number} is {} {}, expected {} {}",
                have.dtype(),
                have.shape(),
                want.dtype(),
                want.shape()
            ));
        }
        let last = case.tolerances.len() - 1;
        let tolerance = case.tolerances[number.min(last)];
        let (wants, haves) = (
            want.to_scalars().map_err(|e| e.to_string())?,
            have.to_scalars().map_err(|e| e.to_string())?,
        );
        let mut scale: Option<Vec<f64>> = None;
        for (i, (&w, &h)) in wants.iter().zip(&haves).enumerate() {
            if tolerance.agrees(w, h, have.dtype(), None, rules) {
                continue;
            }
            if let Some(body) = &case.scale
                && matches!(tolerance, Tolerance::Scaled(_))
                && scale.is_none()
            {
                if scales.is_none() {
                    let all = operands(case, reference, true).and_then(|x| body(&x));
                    scales = Some(all.map_err(|e| format!("the scale of errors: {e}"))?);
                }
                let tensors = scales.as_deref().unwrap_or_default();
                scale = tensors
                    .get(number)
                    .and_then(|s| s.to_scalars().ok())
                    .map(|s| s.into_iter().map(|v| v.to_f64()).collect());
            }
            let here = scale.as_ref().and_then(|s| s.get(i).copied());
            let padding = rules.multiplies_padding
                && case.is_convolution_of_infinities()
                && h.to_f64().is_nan();
            if padding || rules.simplifies_programs && case.is_program() && w.to_f64().is_nan() {
                continue;
            }
            if !tolerance.agrees(w, h, have.dtype(), here, rules) {
                let relative_to =
                    here.map_or(String::new(), |s| format!(", errors relative to {s:e}"));
                return Err(format!(
                    "result {number}, element {i} of {}: {h}, expected {w} \
                     ({tolerance:?}{relative_to})",
                    have.shape()
                ));
            }
        }
    }
    Ok(())
}

/// `y`, if it has the shape that the case expects.
fn of_shape(y: Tensor, shape: Shape) -> Result<Vec<Tensor>> {
    match *y.shape() == shape {
        true => Ok(vec![y]),
        false => Err(Error::internal(format!("the shape is {}, not {shape}", y.shape()))),
    }
}

/// An upper bound of the roundings in a blocked sum of `n` terms.
fn roundings(n: usize) -> f64 {
    n.min(512) as f64 + 24.0
}

/// As [`roundings`], where the oracle's f64 may be as coarse as the device.
fn roundings_of(n: usize, dtype: DType) -> f64 {
    if dtype == DType::F64 { n as f64 + 24.0 } else { roundings(n) }
}
