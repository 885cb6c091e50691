//! The oracle: every operation by plain loops, one element at a time, in row-major order.
//!
//! Elements are kept as [`Scalar`]s; floats accumulate in f64 with compensated rounding errors,
//! integers in 64 bits that wrap, and results are rounded once to their dtype. It uses no blocking,
//! SIMD, threads or memory reuse, so that this file can be read as the definition of a [`Device`].
//! It is not fast.
//! It declines the fused ops: softmax, convolution and others run as their definitions in
//! [`crate::definition`], on the primitives here.

use crate::device::{Device, DeviceInfo, Stats};
use crate::dtype::DType;
use crate::element::{decode, encode};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::layout::Layout;
use crate::memory;
use crate::op::{Op, Outputs, ReduceOp, ScanOp, ScatterMode, SortOrder, taken};
use crate::random::{Distribution, Key};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::storage::{Storage, StorageRef, downcast, downcast_mut};
use crate::tensor::Tensor;
use crate::validate;
use std::cmp::Ordering as Order;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The naive device that defines every operation.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// let x = Tensor::new([3.0f32, 1.0, 2.0], &Reference::new()).unwrap();
/// assert_eq!(x.sum_all().unwrap().item::<f32>().unwrap(), 6.0);
/// ```
#[derive(Debug, Default)]
pub struct Reference {
    memory: Arc<Memory>,
}

/// The counters of [`Stats`]. Bytes count the element dtypes, not the stored scalars.
#[derive(Debug, Default)]
struct Memory {
    allocations: AtomicU64,
    live: AtomicU64,
    peak: AtomicU64,
}

/// The storage of this device.
struct Values {
    values: Vec<Scalar>,
    dtype: DType,
    memory: Arc<Memory>,
}

impl Storage for Values {
    fn len(&self) -> usize {
        self.values.len()
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        self.memory
            .live
            .fetch_sub((self.values.len() * self.dtype.size()) as u64, Ordering::Relaxed);
    }
}

impl Reference {
    /// A new reference device.
    pub fn new() -> Arc<Reference> {
        Arc::new(Reference::default())
    }

    /// New storage with `values` rounded to `dtype`.
    fn store(&self, mut values: Vec<Scalar>, dtype: DType) -> StorageRef {
        for value in &mut values {
            *value = value.cast(dtype);
        }
        let bytes = (values.len() * dtype.size()) as u64;
        self.memory.allocations.fetch_add(1, Ordering::Relaxed);
        let live = self.memory.live.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.memory.peak.fetch_max(live, Ordering::Relaxed);
        Arc::new(Values { values, dtype, memory: self.memory.clone() })
    }
}

/// The elements of `x` in row-major order of `layout`, a layout over the storage of `x`.
fn read_as(x: &Tensor, layout: &Layout) -> Result<Vec<Scalar>> {
    let values = &downcast::<Values>(x.storage())?.values;
    let mut out = memory::reserved(layout.numel())?;
    out.extend(layout.positions().map(|p| values[p]));
    Ok(out)
}

/// The elements of `x` in row-major order.
fn read(x: &Tensor) -> Result<Vec<Scalar>> {
    read_as(x, x.layout())
}

/// The axes `0..ndim` without `last`, then `last`.
fn with_last(ndim: usize, last: &[usize]) -> Vec<usize> {
    (0..ndim).filter(|a| !last.contains(a)).chain(last.iter().copied()).collect()
}

/// Runs `line` on every line of `x` along `axis`; the results, as long as the axis, are assembled
/// in the shape of `x`.
fn along<T: Copy>(x: &Tensor, axis: usize, line: impl Fn(&[Scalar]) -> Vec<T>) -> Result<Vec<T>> {
    let order = with_last(x.ndim(), &[axis]);
    let values = read_as(x, &x.layout().permute(&order))?;
    let mut places = Layout::contiguous(*x.shape()).permute(&order).positions();
    let mut out = memory::filled(None, values.len())?;
    for part in values.chunks(x.shape()[axis].max(1)) {
        for (value, place) in line(part).into_iter().zip(&mut places) {
            out[place] = Some(value);
        }
    }
    let mut lines = memory::reserved(out.len())?;
    lines.extend(out.into_iter().flatten());
    Ok(lines)
}

/// The index of the element number `flat` in row-major order.
fn unravel(mut flat: usize, shape: &Shape) -> Vec<usize> {
    let mut index = vec![0; shape.ndim()];
    for axis in (0..shape.ndim()).rev() {
        index[axis] = flat % shape[axis];
        flat /= shape[axis];
    }
    index
}

/// The flat position, in a row-major tensor of shape `x`, of every element of `index` along `axis`.
fn targets(x: &Shape, axis: usize, index: &Tensor) -> Result<Vec<usize>> {
    let layout = Layout::contiguous(*x);
    let mut out = memory::reserved(index.numel())?;
    for (flat, position) in read(index)?.into_iter().enumerate() {
        let mut place = unravel(flat, index.shape());
        let inside = usize::try_from(position.to_i128()).ok().filter(|&p| p < x[axis]);
        let Some(position) = inside else {
            let place = index.layout().distinct_coordinates(flat);
            let outside = format!("axis {axis} of {x} has size {}", x[axis]);
            return Err(Error::position(&place, position.to_i128(), x[axis], outside));
        };
        place[axis] = position;
        out.push(layout.position(&place));
    }
    Ok(out)
}

/// The number `value` (0 or 1) to start a sum or product of `dtype` with.
fn neutral(value: u64, dtype: DType) -> Scalar {
    Scalar::UInt(value).cast(if dtype.is_float() { DType::F64 } else { dtype })
}

/// A running sum or product: integers modulo 2^64, floats in f64 with the sum of the rounding
/// errors, so that the result is off by about one rounding for any number of terms.
///
/// Source: Ogita, Rump & Oishi 2005, "Accurate sum and dot product"; Graillat 2009, "Accurate
/// floating-point product".
#[derive(Clone, Copy)]
struct Running {
    value: Scalar,
    error: f64,
}

impl Running {
    fn new(value: Scalar) -> Running {
        Running { value, error: 0.0 }
    }

    fn add(self, x: Scalar) -> Running {
        match self.value {
            Scalar::Float(a) => {
                let (b, sum) = (x.to_f64(), a + x.to_f64());
                let (large, small) = if a.abs() >= b.abs() { (a, b) } else { (b, a) };
                let error = self.error + ((large - sum) + small);
                Running { value: Scalar::Float(sum), error }
            }
            Scalar::UInt(a) => Running::new(Scalar::UInt(a.wrapping_add(x.to_u64_wrapping()))),
            a => Running::new(Scalar::Int(a.to_i64_wrapping().wrapping_add(x.to_i64_wrapping()))),
        }
    }

    fn mul(self, x: Scalar) -> Running {
        match self.value {
            Scalar::Float(a) => {
                let (b, product) = (x.to_f64(), a * x.to_f64());
                let error = self.error * b + a.mul_add(b, -product);
                Running { value: Scalar::Float(product), error }
            }
            Scalar::UInt(a) => Running::new(Scalar::UInt(a.wrapping_mul(x.to_u64_wrapping()))),
            a => Running::new(Scalar::Int(a.to_i64_wrapping().wrapping_mul(x.to_i64_wrapping()))),
        }
    }

    fn add_product(self, a: Scalar, b: Scalar) -> Running {
        let product = Running::new(a).mul(b);
        let sum = self.add(product.value);
        Running { error: sum.error + product.error, ..sum }
    }

    /// The value with its error; without where an infinity or NaN has none.
    fn rounded(self) -> Scalar {
        match self.value {
            Scalar::Float(value) if (value + self.error).is_finite() && self.error != 0.0 => {
                Scalar::Float(value + self.error)
            }
            value => value,
        }
    }
}

fn is_nan(value: Scalar) -> bool {
    matches!(value, Scalar::Float(v) if v.is_nan())
}

/// The order of sorting: numbers by size, NaN above all and equal to itself.
fn order(a: Scalar, b: Scalar) -> Order {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => {
            a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
        }
        (a, b) => a.to_i128().cmp(&b.to_i128()),
    }
}

/// The position of the first NaN, otherwise of the first extremum.
fn extremum(values: &[Scalar], wanted: Order) -> usize {
    let better = |best: usize, i: usize| {
        if !is_nan(values[best]) && (is_nan(values[i]) || order(values[i], values[best]) == wanted)
        {
            i
        } else {
            best
        }
    };
    (1..values.len()).fold(0, better)
}

/// `x`, with -0 as 0.
fn unsigned_zero(x: Scalar) -> Scalar {
    match x {
        Scalar::Float(x) => Scalar::Float(x + 0.0),
        Scalar::Bool(_) | Scalar::Int(_) | Scalar::UInt(_) => x,
    }
}

/// The larger or smaller of two; NaN if either is.
fn pick(a: Scalar, b: Scalar, wanted: Order) -> Scalar {
    [a, b][extremum(&[a, b], wanted)]
}

fn fold(op: ReduceOp, values: &[Scalar], dtype: DType) -> Scalar {
    let all = || values.iter().copied();
    match op {
        ReduceOp::Sum => all().fold(Running::new(neutral(0, dtype)), Running::add).rounded(),
        ReduceOp::Prod => all().fold(Running::new(neutral(1, dtype)), Running::mul).rounded(),
        ReduceOp::Max => unsigned_zero(values[extremum(values, Order::Greater)]),
        ReduceOp::Min => unsigned_zero(values[extremum(values, Order::Less)]),
        ReduceOp::ArgMax => Scalar::Int(extremum(values, Order::Greater) as i64),
        ReduceOp::ArgMin => Scalar::Int(extremum(values, Order::Less) as i64),
        ReduceOp::Any => Scalar::Bool(all().any(Scalar::to_bool)),
        ReduceOp::All => Scalar::Bool(all().all(Scalar::to_bool)),
    }
}

impl Device for Reference {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "reference".to_string(),
            description: "plain loops over scalars".to_string(),
        }
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        validate::upload(bytes, dtype)?;
        Ok(self.store(decode(bytes, dtype)?, dtype))
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        encode(&read(x)?, x.dtype())
    }

    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        op.outputs()?; // checks the operands
        Ok(Some(match *op {
            Op::Elementwise { kernel, inputs, params, shape } => {
                self.elementwise(kernel, inputs, params, shape)?
            }
            Op::Reduce { op, x, axes } => self.reduce(op, x, axes)?.into(),
            Op::Scan { op, x, axis } => self.scan(op, x, axis)?.into(),
            Op::Matmul { lhs, rhs } => self.matmul(lhs, rhs)?.into(),
            Op::Gather { x, axis, index } => self.gather(x, axis, index)?.into(),
            Op::Scatter { mode, x, axis, index, src } => {
                self.scatter(mode, x, axis, index, src)?.into()
            }
            Op::CopyInto { ref mut dst, view, src } => {
                self.copy_into(dst.take().ok_or_else(taken)?, view, src)?.into()
            }
            Op::Sort { x, axis, order } => self.sort(x, axis, order)?.into(),
            Op::Random { distribution, shape, dtype, key } => {
                self.random(distribution, shape, dtype, key)?.into()
            }
            // The others are fused: they run as their definitions in primitives.
            _ => return Ok(None),
        }))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }

    /// Batches kernels as a GPU does, so that batched kernels are tested here.
    fn prefers_batched_kernels(&self) -> bool {
        true
    }

    fn stats(&self) -> Stats {
        let allocations = self.memory.allocations.load(Ordering::Relaxed);
        Stats {
            allocations,
            os_allocations: allocations,
            live_bytes: self.memory.live.load(Ordering::Relaxed),
            peak_bytes: self.memory.peak.load(Ordering::Relaxed),
            cached_bytes: 0,
        }
    }
}

/// The primitives, on operands that [`Op::outputs`] has checked.
impl Reference {
    fn elementwise(
        &self,
        kernel: &Arc<Kernel>,
        inputs: &[&Tensor],
        params: &[Scalar],
        shape: &Shape,
    ) -> Result<Outputs> {
        let inputs = inputs.iter().map(|x| read(x)).collect::<Result<Vec<_>>>()?;
        let mut columns = kernel
            .outputs()
            .iter()
            .map(|_| memory::reserved(shape.numel()))
            .collect::<Result<Vec<_>>>()?;
        let mut row = vec![Scalar::Bool(false); inputs.len()];
        for i in 0..shape.numel() {
            for (value, input) in row.iter_mut().zip(&inputs) {
                *value = input[i];
            }
            for (column, value) in columns.iter_mut().zip(kernel.eval(&row, params)) {
                column.push(value);
            }
        }
        let mut outputs = Outputs::new();
        for (i, column) in columns.into_iter().enumerate() {
            outputs.push(self.store(column, kernel.output_dtype(i)));
        }
        Ok(outputs)
    }

    fn reduce(&self, op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
        let count: usize = axes.iter().map(|&a| x.shape()[a]).product();
        let values = read_as(x, &x.layout().permute(&with_last(x.ndim(), axes)))?;
        let numel = x.shape().reduced(axes, false).numel();
        let out = memory::collected(
            (0..numel).map(|i| fold(op, &values[i * count..(i + 1) * count], x.dtype())),
        )?;
        Ok(self.store(out, op.output(x.dtype())))
    }

    fn scan(&self, op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
        let (start, step): (_, fn(Running, Scalar) -> Running) = match op {
            ScanOp::Sum => (0, Running::add),
            ScanOp::Prod => (1, Running::mul),
        };
        let line = |values: &[Scalar]| {
            let start = Running::new(neutral(start, x.dtype()));
            let running = values.iter().scan(start, |so_far, &value| {
                *so_far = step(*so_far, value);
                Some(so_far.rounded())
            });
            running.collect()
        };
        Ok(self.store(along(x, axis, line)?, x.dtype()))
    }

    fn matmul(&self, lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
        let last = lhs.ndim() - 1;
        let (m, k, n) = (lhs.shape()[last - 1], lhs.shape()[last], rhs.shape()[last]);
        let batches: usize = lhs.shape()[..last - 1].iter().product();
        let (a, b) = (read(lhs)?, read(rhs)?);
        let mut out = memory::reserved(batches * m * n)?;
        for batch in 0..batches {
            for i in 0..m {
                for j in 0..n {
                    let sum = (0..k).fold(Running::new(neutral(0, lhs.dtype())), |sum, l| {
                        sum.add_product(a[(batch * m + i) * k + l], b[(batch * k + l) * n + j])
                    });
                    out.push(sum.rounded());
                }
            }
        }
        Ok(self.store(out, lhs.dtype()))
    }

    fn gather(&self, x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
        let values = read(x)?;
        let out = memory::collected(
            targets(x.shape(), axis, index)?.into_iter().map(|place| values[place]),
        )?;
        Ok(self.store(out, x.dtype()))
    }

    fn scatter(
        &self,
        mode: ScatterMode,
        x: &Tensor,
        axis: usize,
        index: &Tensor,
        src: &Tensor,
    ) -> Result<StorageRef> {
        let mut out = memory::collected(read(x)?.into_iter().map(Running::new))?;
        for (place, value) in targets(x.shape(), axis, index)?.into_iter().zip(read(src)?) {
            let old = out[place];
            out[place] = match mode {
                ScatterMode::Set => Running::new(value),
                ScatterMode::Add => old.add(value),
                ScatterMode::Max => Running::new(pick(old.value, value, Order::Greater)),
                ScatterMode::Min => Running::new(pick(old.value, value, Order::Less)),
            };
        }
        Ok(self.store(memory::collected(out.into_iter().map(Running::rounded))?, x.dtype()))
    }

    fn copy_into(&self, mut dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
        let values = read(src)?;
        if downcast_mut::<Values>(&mut dst).is_none() {
            dst = self.store(
                memory::collected(downcast::<Values>(&dst)?.values.iter().copied())?,
                src.dtype(),
            );
        }
        let own = downcast_mut::<Values>(&mut dst)
            .ok_or_else(|| Error::internal("new storage is not unique"))?;
        for (place, value) in view.positions().zip(values) {
            own.values[place] = value;
        }
        Ok(dst)
    }

    fn sort(&self, x: &Tensor, axis: usize, by: SortOrder) -> Result<(StorageRef, StorageRef)> {
        let sorted = |values: &[Scalar]| {
            let mut places: Vec<usize> = (0..values.len()).collect();
            // `sort_by` is stable, so equal elements keep their order in both directions.
            places.sort_by(|&a, &b| match by {
                SortOrder::Ascending => order(values[a], values[b]),
                SortOrder::Descending => order(values[b], values[a]),
            });
            places.into_iter().map(|p| (values[p], Scalar::from(p))).collect()
        };
        let pairs = along(x, axis, sorted)?;
        let values = memory::collected(pairs.iter().map(|pair| pair.0))?;
        let places = memory::collected(pairs.iter().map(|pair| pair.1))?;
        Ok((self.store(values, x.dtype()), self.store(places, DType::I32)))
    }

    fn random(
        &self,
        distribution: Distribution,
        shape: &Shape,
        dtype: DType,
        key: Key,
    ) -> Result<StorageRef> {
        let per_block = Distribution::per_block(dtype);
        let out = memory::collected(
            (0..shape.numel())
                .map(|i| distribution.block(key, (i / per_block) as u64, dtype)[i % per_block]),
        )?;
        Ok(self.store(out, dtype))
    }
}
