//! Finds the first NaN: every result is checked, and the operation that made NaN or an infinity
//! fails.

use super::{backward, pass_on, pass_through, unwrap};
use crate::device::{Device, DeviceInfo, DeviceRef, ToDevice};
use crate::dtype::DType;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::{Kernel, OpCode};
use crate::op::{Op, Outputs, TensorSpecs};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::StorageRef;
use crate::tensor::{Tensor, map};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// The most findings that are kept if they do not stop the program.
const MAX_FINDINGS: usize = 16;

crate::options! {
    /// The options of [`Checked`]: which values are findings. By default infinities are, inputs are
    /// not, and a finding stops the program.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Checks {
        /// Infinities made of finite numbers, beside NaN: an overflow, a division by zero, the
        /// logarithm of 0.
        infinities: bool = true, with_infinities;
        /// NaN in inputs: in data that is uploaded, and in tensors of the wrapped device.
        inputs: bool = false, with_inputs;
        /// The operation fails. Otherwise [`Checked::findings`] lists the finding, and the program
        /// goes on.
        stop: bool = true, with_stop;
    }
}

/// A device that fails the first operation that makes NaN or an infinity, with its operands in the
/// error.
///
/// Operations that pass on existing values are not findings:
/// - NaN in a result if an operand has NaN; an infinity if an operand has an infinity or NaN. In
///   elementwise operations that means: at the same index. NaN made of infinities (`inf - inf`,
///   `inf * 0`) is a finding.
/// - an infinity, or NaN, that is a constant or parameter of the kernel:
///   `masked_fill(&mask, f64::NEG_INFINITY)` is intended.
/// - moving, sorting and choosing elements, and the logsumexp of a query that attention lets see no
///   key.
///
/// Loss scaling detects overflows later; with it, set `infinities` and `stop` to false. Every
/// result is read by a reduction and the program waits for it: expect a small network on the CPU to
/// take about twice as long, a GPU far more.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Result, Tensor, wrappers::Checked};
/// # fn main() -> Result<()> {
/// let device = Checked::new(Reference::new());
/// let p = Tensor::new([0.5f32, 0.0], &device)?; // (2)
/// let error = p.log().unwrap_err().to_string();
/// assert!(error.starts_with("log at "), "{error}");
/// assert!(error.contains("made -inf: 1 of 2 elements, the first at [1]"), "{error}");
/// # Ok(()) }
/// ```
pub struct Checked {
    inner: DeviceRef,
    checks: Checks,
    findings: Mutex<Vec<Error>>,
}

impl Checked {
    /// Wraps `inner` with the default [`Checks`].
    pub fn new(inner: impl ToDevice) -> Arc<Checked> {
        Checked::with(inner, Checks::default())
    }

    /// Wraps `inner` with `checks`.
    pub fn with(inner: impl ToDevice, checks: Checks) -> Arc<Checked> {
        Arc::new(Checked { inner: inner.to_device(), checks, findings: Mutex::default() })
    }

    /// The first 16 findings.
    pub fn findings(&self) -> Vec<Error> {
        self.findings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Stops at a finding, or records it.
    fn found(&self, finding: Option<Error>) -> Result<()> {
        let Some(finding) = finding else { return Ok(()) };
        let mut findings = self.findings.lock().unwrap_or_else(PoisonError::into_inner);
        if findings.len() < MAX_FINDINGS {
            findings.push(finding.clone());
        }
        if self.checks.stop { Err(finding) } else { Ok(()) }
    }

    /// The finding in the outputs of an op, if there is one.
    fn judge(&self, op: &Op<'_>, specs: &TensorSpecs, outputs: &Outputs) -> Result<Option<Error>> {
        if op.only_moves() {
            return Ok(None);
        }
        // The logsumexp of attention is -inf where a query sees no key.
        let checked = if matches!(op, Op::Attention { .. }) { 1 } else { specs.len() };
        for (&(shape, dtype), storage) in specs.iter().zip(outputs.iter()).take(checked) {
            let Some(y) = self.suspect(storage, shape, dtype)? else { continue };
            let (nan, infinite) = match op {
                Op::Elementwise { kernel, inputs, params, .. } => {
                    self.made_at(kernel, inputs, params, &y)?
                }
                _ => self.made(op, &y)?,
            };
            if let Some(mask) = nan {
                return report(op, &y, &mask, "NaN").map(Some);
            }
            if let Some(mask) = infinite.filter(|_| self.checks.infinities) {
                return report(op, &y, &mask, "inf").map(Some);
            }
        }
        Ok(None)
    }

    /// The storage as a tensor of the wrapped device, if it has NaN or an infinity.
    fn suspect(&self, storage: &StorageRef, shape: Shape, dtype: DType) -> Result<Option<Tensor>> {
        if !dtype.is_float() || shape.numel() == 0 {
            return Ok(None);
        }
        let y = Tensor::from_result(storage.clone(), shape, dtype, self.inner.clone())?;
        Ok(if any(&map([&y], |[y]| y.is_finite().not())?)? { Some(y) } else { None })
    }

    /// The finding in uploaded data.
    fn judge_upload(&self, storage: &StorageRef, dtype: DType) -> Result<Option<Error>> {
        if !self.checks.inputs {
            return Ok(None);
        }
        let Some(y) = self.suspect(storage, Shape::new(&[storage.len()])?, dtype)? else {
            return Ok(None);
        };
        let nan = y.is_nan()?;
        if !any(&nan)? {
            return Ok(None);
        }
        let finding = found_in("there is NaN in the data".into(), &y, &nan)?;
        Ok(Some(finding.note(format!("upload: {}", described(&y)?))))
    }

    /// Records `finding`; a device that cannot run the check is not checked.
    fn conclude(&self, finding: Result<Option<Error>>) -> Result<()> {
        match finding {
            Ok(finding) => self.found(finding),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Masks of the NaN and of the infinities in the result of a kernel that its operands do not
    /// explain; `None` if empty.
    fn made_at(
        &self,
        kernel: &Kernel,
        inputs: &[&Tensor],
        params: &[Scalar],
        y: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (mut nan, mut infinite) = (y.is_nan()?, y.is_inf()?);
        for x in inputs.iter().filter(|x| x.dtype().is_float()) {
            let x = unwrap(x, &self.inner)?;
            nan = map([&nan, &x], |[nan, x]| nan.and(x.is_nan().not()))?;
            infinite = map([&infinite, &x], |[infinite, x]| infinite.and(x.is_finite()))?;
        }
        let (given_nan, given_infinite) = given(kernel, params);
        Ok((some(nan, given_nan)?, some(infinite, given_nan || given_infinite)?))
    }

    /// Masks of the NaN and of the infinities in the result of another operation, if no operand has
    /// any.
    fn made(&self, op: &Op<'_>, y: &Tensor) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let (mut nan, mut infinite) = match op {
            Op::ReduceKernel { kernel, params, .. } => given(kernel, params),
            _ => (false, false),
        };
        for x in op.operands().iter().filter(|x| x.dtype().is_float() && x.numel() > 0) {
            let x = unwrap(x, &self.inner)?;
            nan |= any(&x.is_nan()?)?;
            infinite |= any(&x.is_inf()?)?;
        }
        Ok((some(y.is_nan()?, nan)?, some(y.is_inf()?, nan || infinite)?))
    }
}

/// The mask, unless it is `excused` or false everywhere.
fn some(mask: Tensor, excused: bool) -> Result<Option<Tensor>> {
    Ok(if !excused && any(&mask)? { Some(mask) } else { None })
}

/// Whether a kernel's constants and parameters have NaN, and infinities.
fn given(kernel: &Kernel, params: &[Scalar]) -> (bool, bool) {
    let constants = kernel
        .nodes()
        .iter()
        .filter_map(|node| if let OpCode::Const(value) = node.op { Some(value) } else { None });
    let numbers = constants
        .chain(params.iter().copied())
        .filter(|s| matches!(s, Scalar::Float(_)))
        .map(Scalar::to_f64);
    numbers
        .fold((false, false), |(nan, infinite), x| (nan || x.is_nan(), infinite || x.is_infinite()))
}

/// True if an element of the mask is.
fn any(mask: &Tensor) -> Result<bool> {
    mask.reshape([-1])?.any(0)?.item()
}

/// The finding: `y`, an output of the op, has NaN or an infinity where `mask` is true.
fn report(op: &Op<'_>, y: &Tensor, mask: &Tensor, what: &str) -> Result<Error> {
    let (_, index) = first_of(y, mask)?;
    let value = element(y, &index)?.to_f64();
    let what = if what == "inf" && value < 0.0 { "-inf" } else { what };
    let subject =
        if backward() { format!("its gradient made {what}") } else { format!("made {what}") };
    let mut error = found_in(subject, y, mask)?.note(format!("{}: {}", op.name(), described(y)?));
    for (name, x) in op.named_operands() {
        let here = match op {
            Op::Elementwise { .. } => format!("; at {index:?} {}", element(x, &index)?),
            _ => String::new(),
        };
        error = error.note(format!("{name}: {}{here}", described(x)?));
    }
    Ok(if value.is_infinite() {
        error
            .help("where infinities are meant, Checks::new().with_infinities(false) lets them pass")
    } else {
        error
    })
}

/// An error with `subject`, the number of elements that `mask` marks and the index of the first.
fn found_in(subject: String, y: &Tensor, mask: &Tensor) -> Result<Error> {
    let (count, index) = first_of(y, mask)?;
    let numel = y.numel();
    Ok(Error::value(format!("{subject}: {count} of {numel} elements, the first at {index:?}")))
}

/// The number of elements of `y` that `mask` marks, and the index of the first.
fn first_of(y: &Tensor, mask: &Tensor) -> Result<(usize, Vec<usize>)> {
    let marks = mask.to_vec::<bool>()?;
    let count = marks.iter().filter(|m| **m).count();
    let mut rest = marks.iter().position(|m| *m).unwrap_or(0);
    let mut index: Vec<usize> =
        y.shape().iter().rev().map(|&size| (rest % size, rest /= size).0).collect();
    index.reverse();
    Ok((count, index))
}

/// The element of `x` at `index`.
fn element(x: &Tensor, index: &[usize]) -> Result<Scalar> {
    let at = index.iter().try_fold(x.clone(), |x, &i| x.at(0, i as isize))?;
    Ok(at.to_scalars()?[0])
}

/// Type, shape and statistics of the elements: `f32 (3, 4), min -1.5, max 2, mean 0.25, 3 zeros, 1
/// NaN`.
fn described(x: &Tensor) -> Result<String> {
    let values: Vec<f64> = x.to_scalars()?.into_iter().map(Scalar::to_f64).collect();
    let finite: Vec<f64> = values.iter().copied().filter(|v| v.is_finite()).collect();
    let mut text = format!("{} {}", x.dtype(), x.shape());
    if !finite.is_empty() {
        let (min, max) = finite
            .iter()
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), &v| (low.min(v), high.max(v)));
        let mean = finite.iter().map(|v| v / finite.len() as f64).sum::<f64>();
        text += &format!(", min {}, max {}, mean {}", number(min), number(max), number(mean));
    }
    let count = |is: fn(f64) -> bool| values.iter().filter(|v| is(**v)).count();
    let kinds: [(usize, &str); 4] = [
        (count(|v| v == 0.0), "zeros"),
        (count(f64::is_nan), "NaN"),
        (count(|v| v == f64::INFINITY), "inf"),
        (count(|v| v == -f64::INFINITY), "-inf"),
    ];
    kinds.iter().filter(|(n, _)| *n > 0).for_each(|(n, kind)| text += &format!(", {n} {kind}"));
    Ok(text)
}

/// Four digits, or all digits of a whole number.
fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-3..1e6).contains(&size) {
        format!("{value:.3e}")
    } else {
        format!("{}", (value * 1e4).round() / 1e4)
    }
}

// A method that is not passed on would act on this wrapper alone.
#[deny(clippy::missing_trait_methods)]
impl Device for Checked {
    fn info(&self) -> DeviceInfo {
        let DeviceInfo { name, description } = self.inner.info();
        DeviceInfo { name: format!("checked({name})"), description }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if matches!(op, Op::ElementwiseInPlace { .. }) {
            return Ok(None); // a finding shows the operand, which would be overwritten
        }
        let specs = op.outputs()?;
        let outputs = pass_on(op, &self.inner)?;
        self.conclude(self.judge(op, &specs, &outputs))?;
        Ok(Some(outputs))
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        let storage = self.inner.upload(bytes, dtype)?;
        self.conclude(self.judge_upload(&storage, dtype))?;
        Ok(storage)
    }
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        if self.checks.inputs && x.dtype().is_float() && any(&x.is_nan()?)? {
            self.found(Some(Error::value("an input tensor contains NaN").note(described(x)?)))?;
        }
        Ok(x.storage().clone())
    }
    pass_through!(
        inner: inner, upload_filled, flush, prefers_batched_kernels, stats, clear_cache,
        synchronize, synchronize_async, ready_async, download, download_async, unwrap
    );
}

impl fmt::Debug for Checked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checked")
            .field("inner", &self.inner)
            .field("checks", &self.checks)
            .finish_non_exhaustive()
    }
}
