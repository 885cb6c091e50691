//! Runs every operation on two devices; the first whose results differ by more than rounding fails.

use super::{backward, pass_through};
use crate::device::{Device, DeviceInfo, DeviceRef, ReadFuture, Stats, ToDevice, WaitFuture};
use crate::dtype::DType;
use crate::element::decode;
use crate::error::{Error, ErrorKind, Result};
use crate::kernel::build::Expr;
use crate::layout::Layout;
use crate::op::{Cost, Op, Outputs, TensorSpec};
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::{Storage, StorageRef, downcast, downcast_mut};
use crate::tensor::{Tensor, map};
use std::cell::Cell;
use std::fmt;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest difference of results by element type, relative to the larger of the two. Integers
/// and bools must be equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerance {
    /// Of `F64`.
    pub f64: f64,
    /// Of `F32`.
    pub f32: f64,
    /// Of `F16`.
    pub f16: f64,
    /// Of `BF16`.
    pub bf16: f64,
}

impl Default for Tolerance {
    /// About a hundred units in the last place, two for the 16-bit types.
    fn default() -> Tolerance {
        Tolerance { f64: 1e-13, f32: 1e-5, f16: 2e-3, bf16: 1.6e-2 }
    }
}

impl Tolerance {
    fn of(&self, dtype: DType) -> f64 {
        match dtype {
            DType::F64 => self.f64,
            DType::F32 => self.f32,
            DType::F16 => self.f16,
            DType::BF16 => self.bf16,
            _ => 0.0,
        }
    }
}

/// A device that runs every operation on two devices and stops where they disagree. Its results are
/// the first device's.
///
/// After each operation the second device gets the first one's results, so that both always start
/// from the same bits: small differences do not accumulate, and an operation that selects
/// (`argmax`, `sort`) has the same elements on both. Where results differ by more than
/// [`Tolerance`] allows, the operation is repeated on operands with some elements off by a unit in
/// the last place; the change of the result is added to the tolerance. That covers sums that
/// cancel, and kernels with a comparison inside.
///
/// Operations that either device does not support are not compared ([`Compare::skipped`] counts the
/// operations that the second lacks). Every result is read from both: use it for debugging.
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference, Result, Tensor, wrappers::Compare};
/// # fn main() -> Result<()> {
/// let device = Compare::new(Reference::new(), Reference::new());
/// let x = Tensor::randn((4, 4), DType::F32, &device)?; // (4, 4)
/// x.matmul(&x)?.softmax(-1)?;
/// assert_eq!((device.compared(), device.skipped()), (3, 0)); // the drawing of x too
/// # Ok(()) }
/// ```
pub struct Compare {
    first: DeviceRef,
    second: DeviceRef,
    tolerance: Tolerance,
    compared: AtomicU64,
    skipped: AtomicU64,
}

/// The same elements on both devices; none on the second if it cannot hold them. Removed only by an
/// assignment whose destination has no other owner.
struct Both {
    first: Option<StorageRef>,
    second: Option<StorageRef>,
    len: usize,
    dtype: DType,
}

impl Both {
    /// The storage of both devices as one.
    fn storage(first: StorageRef, second: Option<StorageRef>) -> StorageRef {
        let (len, dtype) = (first.len(), first.dtype());
        Arc::new(Both { first: Some(first), second, len, dtype })
    }
}

impl Storage for Both {
    fn len(&self) -> usize {
        self.len
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
}

/// One result of both devices, downloaded.
struct Results {
    first: Vec<Scalar>,
    second: Vec<Scalar>,
}

impl Compare {
    /// A device that compares `second` with `first`.
    pub fn new(first: impl ToDevice, second: impl ToDevice) -> Arc<Compare> {
        Compare::with(first, second, Tolerance::default())
    }

    /// A device that compares `second` with `first` by another tolerance.
    pub fn with(first: impl ToDevice, second: impl ToDevice, tolerance: Tolerance) -> Arc<Compare> {
        let (first, second) = (first.to_device(), second.to_device());
        Arc::new(Compare {
            first,
            second,
            tolerance,
            compared: AtomicU64::new(0),
            skipped: AtomicU64::new(0),
        })
    }

    /// How many operations have been compared.
    pub fn compared(&self) -> u64 {
        self.compared.load(Ordering::Relaxed)
    }

    /// How many operations have not been, because the second device does not support them or the
    /// type of an operand.
    pub fn skipped(&self) -> u64 {
        self.skipped.load(Ordering::Relaxed)
    }

    /// [`Op::CopyInto`] on both devices. Each gets its own destination, and writes in place if that
    /// has no other owner.
    fn copy_into(
        &self,
        dst: &mut Option<StorageRef>,
        view: &Layout,
        src: &Tensor,
    ) -> Result<(Outputs, Result<Outputs>)> {
        let mut both = dst.take().ok_or_else(crate::op::taken)?;
        let (first, second) = match downcast_mut::<Both>(&mut both) {
            Some(own) => (own.first.take(), own.second.take()),
            None => {
                let shared = downcast::<Both>(&both)?;
                (shared.first.clone(), shared.second.clone())
            }
        };
        let given = Op::CopyInto { dst: first, view, src: &self.unwrap(src)? }.run(&self.first)?;
        let theirs = match second {
            Some(_) => self
                .unwrap_second(src)
                .and_then(|src| Op::CopyInto { dst: second, view, src: &src }.run(&self.second)),
            None => Err(Error::unsupported("the second device has no destination")),
        };
        Ok((given, theirs))
    }

    /// All elements of a storage of the first device.
    fn read_first(&self, storage: &StorageRef) -> Result<Vec<u8>> {
        let layout = Layout::contiguous(Shape::new(&[storage.len()])?);
        let (storage, dtype) = (storage.clone(), storage.dtype());
        self.first.download(&Tensor::from_parts(storage, layout, dtype, self.first.clone())?)
    }

    /// The tensor of the second device that `x` stands for.
    fn unwrap_second(&self, x: &Tensor) -> Result<Tensor> {
        let storage = downcast::<Both>(x.storage())?.second.clone();
        let storage = storage.ok_or_else(|| {
            Error::unsupported(format!("{} does not hold {}", self.second.info().name, x.dtype()))
        })?;
        Tensor::from_parts(storage, *x.layout(), x.dtype(), self.second.clone())
    }

    /// The elements of a first device's storage on the second; `None` if it cannot hold them.
    fn copy(&self, bytes: &[u8], dtype: DType) -> Result<Option<StorageRef>> {
        match self.second.upload(bytes, dtype) {
            Ok(storage) => Ok(Some(storage)),
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Compares an output of the second device, `b`, with the first's, `a`. Returns the storage
    /// that the second device continues with. The storages are outputs of `op`, or uploaded if `op`
    /// is `None`.
    fn settle(
        &self,
        mut op: Option<&mut Op<'_>>,
        number: usize,
        (shape, dtype): TensorSpec,
        a: &StorageRef,
        b: StorageRef,
    ) -> Result<Option<StorageRef>> {
        let tensor = |storage: &StorageRef, device: &DeviceRef| {
            Tensor::from_result(storage.clone(), shape, dtype, device.clone())
        };
        let bytes = self.first.download(&tensor(a, &self.first)?)?;
        let other = self
            .second
            .download(&tensor(&b, &self.second)?)
            .map_err(|error| self.refused(op.as_deref(), &error))?;
        if bytes == other {
            return Ok(Some(b));
        }
        let results = Results { first: decode(&bytes, dtype)?, second: decode(&other, dtype)? };
        if results.first.len() != results.second.len() {
            return Err(self.disagreement(
                op.as_deref(),
                format!(
                    "{} and {} elements in result {number}",
                    results.first.len(),
                    results.second.len()
                ),
            ));
        }
        let mut allowed = self.allowed(&results, dtype);
        if let Some(op) = op.as_deref_mut()
            && !results.agree(&allowed, dtype)
            && sensitive(op)
        {
            self.shake(op, number, shape, dtype, &results, &mut allowed)?;
        }
        if results.agree(&allowed, dtype) {
            self.copy(&bytes, dtype)
        } else {
            Err(self.worst(op.as_deref(), number, shape, dtype, &results, &allowed))
        }
    }

    /// The tolerance of each element: relative to its magnitude, and a little to the largest.
    fn allowed(&self, results: &Results, dtype: DType) -> Vec<f64> {
        let tolerance = self.tolerance.of(dtype);
        let finite = |values: &[Scalar]| {
            values.iter().map(|v| v.to_f64().abs()).filter(|v| v.is_finite()).fold(0.0, f64::max)
        };
        let largest = finite(&results.first).max(finite(&results.second));
        let size = |(a, b): (&Scalar, &Scalar)| a.to_f64().abs().max(b.to_f64().abs());
        results
            .first
            .iter()
            .zip(&results.second)
            .map(|pair| tolerance * (size(pair) + 0.01 * largest))
            .collect()
    }

    /// Adds to `allowed` the change of the result when operands are off by a unit in the last
    /// place.
    fn shake(
        &self,
        op: &mut Op<'_>,
        number: usize,
        shape: Shape,
        dtype: DType,
        results: &Results,
        allowed: &mut [f64],
    ) -> Result<()> {
        let Cost { flops, .. } = op.cost()?;
        let mut changes = vec![0.0f64; allowed.len()];
        for draw in 0..SHAKES {
            let mut changed = |device: &DeviceRef,
                               lower: &dyn Fn(&Tensor) -> Result<Tensor>,
                               values: &[Scalar]|
             -> Result<Vec<f64>> {
                // a different key per operand: equal elements must become different
                let operand = Cell::new(0);
                let outputs = op.run_mapped(device, &|x| {
                    shaken(&lower(x)?, Key { seed: operand.replace(operand.get() + 1), draw })
                })?;
                let storage = outputs
                    .into_iter()
                    .nth(number)
                    .ok_or_else(|| Error::internal("a device returned too few results"))?;
                let again =
                    Tensor::from_result(storage, shape, dtype, device.clone())?.to_scalars()?;
                Ok(values.iter().zip(&again).map(|(v, w)| change(*v, *w)).collect())
            };
            let first = changed(&self.first, &|x| self.unwrap(x), &results.first)?;
            let second = changed(&self.second, &|x| self.unwrap_second(x), &results.second)?;
            // a faulty device may be the one that changes too much
            changes
                .iter_mut()
                .zip(first.iter().zip(&second))
                .for_each(|(c, (a, b))| *c = c.max(a.min(*b)));
        }
        let finite = changes.iter().filter(|c| c.is_finite());
        let mean = finite.clone().sum::<f64>() / finite.count().max(1) as f64;
        // a sum of n terms, in another order, rounds differently some sqrt(n) times
        let share = MIN_FACTOR.max(2.0 * (flops as f64 / allowed.len().max(1) as f64).sqrt());
        allowed.iter_mut().zip(&changes).for_each(|(a, c)| *a += share * c + mean);
        Ok(())
    }

    /// The error that shows the element furthest beyond the tolerance.
    fn worst(
        &self,
        op: Option<&Op<'_>>,
        number: usize,
        shape: Shape,
        dtype: DType,
        results: &Results,
        allowed: &[f64],
    ) -> Error {
        let pairs = results.first.iter().zip(&results.second).zip(allowed);
        let excess: Vec<f64> = pairs
            .map(
                |((a, b), allowed)| {
                    if fits(*a, *b, *allowed, dtype) { 0.0 } else { difference(*a, *b) / allowed }
                },
            )
            .collect();
        let wrong = excess.iter().filter(|e| **e != 0.0).count();
        // a difference of NaN counts as the largest
        let place = (0..excess.len()).max_by(|&i, &j| excess[i].total_cmp(&excess[j])).unwrap_or(0);
        let mut rest = place;
        let mut index: Vec<usize> =
            shape.iter().rev().map(|&size| (rest % size, rest /= size).0).collect();
        index.reverse();
        let (a, b) = (self.first.info().name, self.second.info().name);
        let what = if number == 0 { "the result".to_string() } else { format!("result {number}") };
        let message = format!(
            "element {index:?} of {what} is {} on {a} and {} on {b}",
            results.first[place], results.second[place]
        );
        let fact = format!(
            "{wrong} of {} elements differ; there by {:.3e}, where {:.3e} would be rounding",
            excess.len(),
            difference(results.first[place], results.second[place]),
            allowed[place]
        );
        self.disagreement(op, message).note(fact)
    }

    /// The error that stops the program: of `op`, or of an upload if `op` is `None`.
    fn disagreement(&self, op: Option<&Op<'_>>, what: String) -> Error {
        let (a, b) = (self.first.info().name, self.second.info().name);
        let part = if backward() { "in its gradient " } else { "" };
        let error = Error::device(format!("{part}{a} and {b} disagree: {what}"));
        let operands: Vec<String> = op
            .into_iter()
            .flat_map(Op::named_operands)
            .map(|(name, x)| format!("{name} {} {}", x.dtype(), x.shape()))
            .collect();
        error.note(format!(
            "{}: {}",
            op.map_or("upload", Op::name),
            if operands.is_empty() { "no operands".into() } else { operands.join(", ") }
        ))
    }

    fn refused(&self, op: Option<&Op<'_>>, error: &Error) -> Error {
        self.disagreement(
            op,
            format!("the first has a result, the second fails: {}", error.message()),
        )
    }
}

/// Repetitions of an operation on operands that are a little off.
const SHAKES: u64 = 4;
/// The least factor by which such a change is allowed: operations of several steps round more than
/// their operands.
const MIN_FACTOR: f64 = 16.0;

/// `x` with its elements off by up to two units in the last place, as `key` decides.
fn shaken(x: &Tensor, key: Key) -> Result<Tensor> {
    let digits = match x.dtype() {
        DType::F64 => 52,
        DType::F32 => 23,
        DType::F16 => 10,
        DType::BF16 => 7,
        _ => return Ok(x.clone()),
    };
    let unit = 2f64.powi(-digits);
    let noise = Tensor::random(
        Distribution::Uniform { low: -1.0, high: 1.0 },
        x.shape(),
        x.dtype(),
        key,
        x,
    )?;
    map([x, &noise], |[x, noise]: [Expr<'_>; 2]| x + x * noise * (2.0 * unit))
}

/// True if rounding inside the operation may change its choice, or lose digits by cancellation. A
/// single comparison, a sort or a move is exact.
fn sensitive(op: &Op<'_>) -> bool {
    match op {
        Op::Elementwise { kernel, .. } | Op::ElementwiseInPlace { kernel, .. } => {
            kernel.single().is_none()
        }
        Op::Reduce { op, .. } => !op.is_arg(),
        // Several elements may meet in one place.
        Op::Scatter { .. } => true,
        op => !op.only_moves(),
    }
}

/// The change of an element: the difference of floats; infinite for integers and bools that differ,
/// and for NaN on one side.
fn change(a: Scalar, b: Scalar) -> f64 {
    let difference = difference(a, b);
    if a == b || difference == 0.0 || (a.to_f64().is_nan() && b.to_f64().is_nan()) {
        0.0
    } else if matches!(a, Scalar::Float(_)) && difference.is_finite() {
        difference
    } else {
        f64::INFINITY
    }
}

fn difference(a: Scalar, b: Scalar) -> f64 {
    let (a, b) = (a.to_f64(), b.to_f64());
    if a == b { 0.0 } else { (a - b).abs() }
}

/// True if the two agree as far as `allowed`. Zeros of either sign are equal, and numbers too small
/// to be normal are zeros to a GPU.
fn fits(a: Scalar, b: Scalar, allowed: f64, dtype: DType) -> bool {
    let (Scalar::Float(x), Scalar::Float(y)) = (a, b) else {
        return a == b || allowed == f64::INFINITY;
    };
    let normal = if dtype == DType::F16 { 2f64.powi(-14) } else { f64::from(f32::MIN_POSITIVE) };
    let both_tiny = x.abs() <= normal && y.abs() <= normal && dtype != DType::F64;
    x == y
        || (x.is_nan() && y.is_nan())
        || both_tiny
        || (x - y).abs() <= allowed
        || allowed == f64::INFINITY
}

impl Results {
    fn agree(&self, allowed: &[f64], dtype: DType) -> bool {
        self.first
            .iter()
            .zip(&self.second)
            .zip(allowed)
            .all(|((a, b), allowed)| fits(*a, *b, *allowed, dtype))
    }
}

// A method that is not passed on would act on this wrapper alone.
#[deny(clippy::missing_trait_methods)]
impl Device for Compare {
    fn info(&self) -> DeviceInfo {
        let (first, second) = (self.first.info(), self.second.info());
        DeviceInfo {
            name: format!("compare({}, {})", first.name, second.name),
            description: first.description,
        }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if matches!(op, Op::ElementwiseInPlace { .. }) {
            return Ok(None); // a disagreement is found by repeating the op on its operands
        }
        let specs = op.outputs()?;
        let (given, theirs) = match *op {
            Op::CopyInto { ref mut dst, view, src } => self.copy_into(dst, view, src)?,
            _ => (
                op.run_mapped(&self.first, &|x| self.unwrap(x))?,
                op.run_mapped(&self.second, &|x| self.unwrap_second(x)),
            ),
        };
        let mut theirs = match theirs {
            Ok(storages) => {
                self.compared.fetch_add(1, Ordering::Relaxed);
                storages.into_iter()
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                Outputs::new().into_iter()
            }
            Err(error) => return Err(self.refused(Some(op), &error)),
        };
        let mut outputs = Outputs::new();
        for (number, (a, &spec)) in given.into_iter().zip(specs.iter()).enumerate() {
            let second = match theirs.next() {
                Some(b) => self.settle(Some(op), number, spec, &a, b)?,
                None => self.copy(&self.read_first(&a)?, spec.1)?,
            };
            outputs.push(Both::storage(a, second));
        }
        Ok(Some(outputs))
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        let first = self.first.upload(bytes, dtype)?;
        let second = match self.second.upload(bytes, dtype) {
            Ok(second) => {
                self.compared.fetch_add(1, Ordering::Relaxed);
                self.settle(None, 0, (Shape::new(&[first.len()])?, dtype), &first, second)?
            }
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                self.skipped.fetch_add(1, Ordering::Relaxed);
                None
            }
            Err(error) => return Err(self.refused(None, &error)),
        };
        Ok(Both::storage(first, second))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.first.download(&self.unwrap(x)?)
    }
    fn synchronize(&self) -> Result<()> {
        self.first.synchronize()?;
        self.second.synchronize()
    }
    fn download_async(&self, x: &Tensor) -> ReadFuture {
        match self.unwrap(x) {
            Ok(x) => self.first.download_async(&x),
            Err(error) => Box::pin(ready(Err(error))),
        }
    }
    fn synchronize_async(&self) -> WaitFuture {
        both(self.first.synchronize_async(), self.second.synchronize_async())
    }
    fn ready_async(&self) -> WaitFuture {
        both(self.first.ready_async(), self.second.ready_async())
    }
    fn wrap(&self, x: &Tensor) -> Result<StorageRef> {
        let second = self.copy(&self.read_first(x.storage())?, x.dtype())?;
        Ok(Both::storage(x.storage().clone(), second))
    }
    fn unwrap(&self, x: &Tensor) -> Result<Tensor> {
        let storage = downcast::<Both>(x.storage())?.first.clone();
        let storage =
            storage.ok_or_else(|| Error::internal("an assignment has taken this storage"))?;
        Tensor::from_parts(storage, *x.layout(), x.dtype(), self.first.clone())
    }
    fn stats(&self) -> Stats {
        self.first.stats()
    }
    fn flush(&self) {
        self.first.flush();
        self.second.flush();
    }
    fn clear_cache(&self) {
        self.first.clear_cache();
        self.second.clear_cache();
    }
    pass_through!(first: inner, upload_filled, prefers_batched_kernels);
}

/// Two waits that have been started, as one.
fn both(first: WaitFuture, second: WaitFuture) -> WaitFuture {
    Box::pin(async {
        first.await?;
        second.await
    })
}

impl fmt::Debug for Compare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compare")
            .field("first", &self.first)
            .field("second", &self.second)
            .finish_non_exhaustive()
    }
}
