//! A third party's device: the five required methods over vectors of bytes.
//!
//! [`Device::execute`] matches the nine primitives and declines every fused op, so core runs the
//! definitions of those. The device shares with the oracle only the meaning of a kernel
//! ([`Kernel::eval`]) and of a draw ([`Distribution::block`]), and it passes the suite: the trait
//! needs no knowledge that only this workspace has.

use std::sync::Arc;
use teeny_core::storage::{downcast, downcast_mut};
use teeny_core::{
    DType, Device, DeviceInfo, Distribution, Element, Error, Kernel, Key, Layout, Op, Outputs,
    ReduceOp, Result, Scalar, ScanOp, ScatterMode, Shape, SortOrder, Storage, StorageRef, Tensor,
    with_element,
};

/// The device.
#[derive(Debug)]
pub struct Bytewise;

struct Bytes {
    bytes: Vec<u8>,
    dtype: DType,
}

impl Storage for Bytes {
    fn len(&self) -> usize {
        self.bytes.len() / self.dtype.size()
    }
    fn dtype(&self) -> DType {
        self.dtype
    }
}

impl Bytes {
    fn zeros(len: usize, dtype: DType) -> Bytes {
        Bytes { bytes: vec![0; len * dtype.size()], dtype }
    }
    fn get(&self, i: usize) -> Scalar {
        let size = self.dtype.size();
        let bytes = &self.bytes[i * size..(i + 1) * size];
        with_element!(self.dtype, T => T::from_bytes(bytes).expect("one element")[0].to_scalar())
    }
    fn set(&mut self, i: usize, value: Scalar) {
        let size = self.dtype.size();
        let bytes =
            with_element!(self.dtype, T => T::to_bytes(&[T::from_scalar(value)]).into_owned());
        self.bytes[i * size..(i + 1) * size].copy_from_slice(&bytes);
    }
    fn share(self) -> StorageRef {
        Arc::new(self)
    }
}

/// The element of `x` at `index`.
fn at(x: &Tensor, index: &[usize]) -> Result<Scalar> {
    Ok(downcast::<Bytes>(x.storage())?.get(x.layout().position(index)))
}

/// Calls `body` with every index of `shape`, in row-major order.
fn each(shape: &[usize], mut body: impl FnMut(&[usize]) -> Result<()>) -> Result<()> {
    let mut index = vec![0; shape.len()];
    if shape.contains(&0) {
        return Ok(());
    }
    loop {
        body(&index)?;
        let Some(axis) = (0..shape.len()).rev().find(|&a| index[a] + 1 < shape[a]) else {
            return Ok(());
        };
        index[axis] += 1;
        index[axis + 1..].fill(0);
    }
}

/// Row-major elements: `body` of every index of `shape`.
fn fill(
    shape: &[usize],
    dtype: DType,
    mut body: impl FnMut(&[usize]) -> Result<Scalar>,
) -> Result<Bytes> {
    let (mut out, mut i) = (Bytes::zeros(shape.iter().product(), dtype), 0);
    each(shape, |index| {
        out.set(i, body(index)?);
        i += 1;
        Ok(())
    })?;
    Ok(out)
}

/// `index` with another entry at `axis`.
fn moved(index: &[usize], axis: usize, to: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[axis] = to;
    index
}

fn is_nan(v: Scalar) -> bool {
    v.to_f64().is_nan()
}

fn less(a: Scalar, b: Scalar) -> bool {
    match (a, b) {
        (Scalar::Float(a), Scalar::Float(b)) => a < b,
        (Scalar::UInt(a), Scalar::UInt(b)) => a < b,
        (a, b) => a.to_i64_wrapping() < b.to_i64_wrapping(),
    }
}

/// True if `b` replaces `a` as the largest (smallest) element.
fn beats(a: Scalar, b: Scalar, largest: bool) -> bool {
    !is_nan(a) && (is_nan(b) || if largest { less(a, b) } else { less(b, a) })
}

fn plus(a: Scalar, b: Scalar) -> Scalar {
    match a {
        Scalar::Float(x) => Scalar::Float(x + b.to_f64()),
        _ => Scalar::UInt(a.to_u64_wrapping().wrapping_add(b.to_u64_wrapping())),
    }
}

fn times(a: Scalar, b: Scalar) -> Scalar {
    match a {
        Scalar::Float(x) => Scalar::Float(x * b.to_f64()),
        _ => Scalar::UInt(a.to_u64_wrapping().wrapping_mul(b.to_u64_wrapping())),
    }
}

fn number(v: f64, dtype: DType) -> Scalar {
    if dtype.is_float() { Scalar::Float(v) } else { Scalar::UInt(v as u64) }
}

/// The position that `index` holds at `place`, checked against the axis.
fn target(x: &Shape, axis: usize, index: &Tensor, place: &[usize]) -> Result<Vec<usize>> {
    let position = at(index, place)?;
    let inside = match position {
        Scalar::UInt(p) => p < x[axis] as u64,
        p => (0..x[axis] as i64).contains(&p.to_i64_wrapping()),
    };
    if !inside {
        return Err(Error::index(format!(
            "index{place:?} is {position}, outside axis {axis} of {x}"
        )));
    }
    Ok(moved(place, axis, position.to_u64_wrapping() as usize))
}

impl Device for Bytewise {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "bytewise".into(), description: "loops over bytes".into() }
    }

    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        Ok(Bytes { bytes: bytes.to_vec(), dtype }.share())
    }

    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        Ok(fill(x.shape(), x.dtype(), |index| at(x, index))?.bytes)
    }

    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        op.outputs()?; // checks the operands
        Ok(Some(match *op {
            Op::Elementwise { kernel, inputs, params, shape } => {
                elementwise(kernel, inputs, params, shape)?
            }
            Op::Reduce { op, x, axes } => reduce(op, x, axes)?.into(),
            Op::Scan { op, x, axis } => scan(op, x, axis)?.into(),
            Op::Matmul { lhs, rhs } => matmul(lhs, rhs)?.into(),
            Op::Gather { x, axis, index } => gather(x, axis, index)?.into(),
            Op::Scatter { mode, x, axis, index, src } => scatter(mode, x, axis, index, src)?.into(),
            Op::CopyInto { ref mut dst, view, src } => {
                let dst = dst.take().ok_or_else(|| Error::internal("no destination"))?;
                copy_into(dst, view, src)?.into()
            }
            Op::Sort { x, axis, order } => sort(x, axis, order)?.into(),
            Op::Random { distribution, shape, dtype, key } => {
                random(distribution, shape, dtype, key)?.into()
            }
            _ => return Ok(None), // fused: core runs the definition
        }))
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

fn elementwise(
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    let mut all = Outputs::new();
    for o in 0..kernel.outputs().len() {
        let value = |index: &[usize]| {
            let values = inputs.iter().map(|x| at(x, index)).collect::<Result<Vec<_>>>()?;
            Ok(kernel.eval(&values, params)[o])
        };
        all.push(fill(shape, kernel.output_dtype(o), value)?.share());
    }
    Ok(all)
}

fn reduce(op: ReduceOp, x: &Tensor, axes: &[usize]) -> Result<StorageRef> {
    let shape = x.shape().reduced(axes, true);
    let best = |values: &[Scalar], largest| {
        (1..values.len())
            .fold(0, |best, i| if beats(values[best], values[i], largest) { i } else { best })
    };
    let value = |index: &[usize]| {
        let window: Vec<usize> =
            (0..x.ndim()).map(|a| if axes.contains(&a) { x.shape()[a] } else { 1 }).collect();
        let mut values = Vec::new();
        each(&window, |inside| {
            values.push(at(x, &index.iter().zip(inside).map(|(a, b)| a + b).collect::<Vec<_>>())?);
            Ok(())
        })?;
        Ok(match op {
            ReduceOp::Sum => values.into_iter().fold(number(0.0, x.dtype()), plus),
            ReduceOp::Prod => values.into_iter().fold(number(1.0, x.dtype()), times),
            ReduceOp::Max => values[best(&values, true)],
            ReduceOp::Min => values[best(&values, false)],
            ReduceOp::ArgMax => Scalar::from(best(&values, true)),
            ReduceOp::ArgMin => Scalar::from(best(&values, false)),
            ReduceOp::Any => Scalar::Bool(values.into_iter().any(Scalar::to_bool)),
            ReduceOp::All => Scalar::Bool(values.into_iter().all(Scalar::to_bool)),
        })
    };
    Ok(fill(&shape, op.output(x.dtype()), value)?.share())
}

fn scan(op: ScanOp, x: &Tensor, axis: usize) -> Result<StorageRef> {
    let mut out = Bytes::zeros(x.numel(), x.dtype());
    let layout = Layout::contiguous(*x.shape());
    let lines = x.shape().with_size(axis, x.shape()[axis].min(1));
    each(&lines, |line| {
        let mut running = number(if op == ScanOp::Sum { 0.0 } else { 1.0 }, x.dtype());
        for i in 0..x.shape()[axis] {
            let value = at(x, &moved(line, axis, i))?;
            running = if op == ScanOp::Sum { plus(running, value) } else { times(running, value) };
            out.set(layout.position(&moved(line, axis, i)), running);
        }
        Ok(())
    })?;
    Ok(out.share())
}

fn matmul(lhs: &Tensor, rhs: &Tensor) -> Result<StorageRef> {
    let last = lhs.ndim() - 1;
    let dot = |index: &[usize]| {
        let terms = (0..lhs.shape()[last]).map(|l| {
            Ok(times(at(lhs, &moved(index, last, l))?, at(rhs, &moved(index, last - 1, l))?))
        });
        terms
            .into_iter()
            .try_fold(number(0.0, lhs.dtype()), |sum, term: Result<Scalar>| Ok(plus(sum, term?)))
    };
    Ok(fill(&lhs.shape().with_size(last, rhs.shape()[last]), lhs.dtype(), dot)?.share())
}

fn gather(x: &Tensor, axis: usize, index: &Tensor) -> Result<StorageRef> {
    Ok(fill(index.shape(), x.dtype(), |place| at(x, &target(x.shape(), axis, index, place)?))?
        .share())
}

fn scatter(
    mode: ScatterMode,
    x: &Tensor,
    axis: usize,
    index: &Tensor,
    src: &Tensor,
) -> Result<StorageRef> {
    let layout = Layout::contiguous(*x.shape());
    let mut out = fill(x.shape(), x.dtype(), |index| at(x, index))?;
    each(index.shape(), |place| {
        let to = layout.position(&target(x.shape(), axis, index, place)?);
        let (old, new) = (out.get(to), at(src, place)?);
        let keep = |largest| if beats(old, new, largest) { new } else { old };
        let value = match mode {
            ScatterMode::Set => new,
            ScatterMode::Add => plus(old, new),
            ScatterMode::Max => keep(true),
            ScatterMode::Min => keep(false),
        };
        out.set(to, value);
        Ok(())
    })?;
    Ok(out.share())
}

fn copy_into(mut dst: StorageRef, view: &Layout, src: &Tensor) -> Result<StorageRef> {
    if downcast_mut::<Bytes>(&mut dst).is_none() {
        let old = downcast::<Bytes>(&dst)?;
        dst = Bytes { bytes: old.bytes.clone(), dtype: old.dtype }.share();
    }
    let own =
        downcast_mut::<Bytes>(&mut dst).ok_or_else(|| Error::internal("a new copy is shared"))?;
    each(src.shape(), |index| {
        own.set(view.position(index), at(src, index)?);
        Ok(())
    })?;
    Ok(dst)
}

fn sort(x: &Tensor, axis: usize, order: SortOrder) -> Result<(StorageRef, StorageRef)> {
    let layout = Layout::contiguous(*x.shape());
    let (mut values, mut places) =
        (Bytes::zeros(x.numel(), x.dtype()), Bytes::zeros(x.numel(), DType::I32));
    each(&x.shape().with_size(axis, x.shape()[axis].min(1)), |line| {
        // Insertion: an element moves before the elements it must precede, so equal ones keep
        // their order.
        let mut sorted: Vec<(Scalar, usize)> = Vec::new();
        for i in 0..x.shape()[axis] {
            let value = at(x, &moved(line, axis, i))?;
            let above = |a: Scalar, b: Scalar| (is_nan(a) && !is_nan(b)) || less(b, a);
            let before = |other: Scalar| match order {
                SortOrder::Descending => above(value, other),
                SortOrder::Ascending => above(other, value),
            };
            let to = sorted.iter().position(|&(other, _)| before(other)).unwrap_or(sorted.len());
            sorted.insert(to, (value, i));
        }
        for (i, (value, place)) in sorted.into_iter().enumerate() {
            let to = layout.position(&moved(line, axis, i));
            values.set(to, value);
            places.set(to, Scalar::from(place));
        }
        Ok(())
    })?;
    Ok((values.share(), places.share()))
}

fn random(distribution: Distribution, shape: &Shape, dtype: DType, key: Key) -> Result<StorageRef> {
    let mut out = Bytes::zeros(shape.numel(), dtype);
    let per = Distribution::per_block(dtype);
    (0..shape.numel())
        .for_each(|i| out.set(i, distribution.block(key, (i / per) as u64, dtype)[i % per]));
    Ok(out.share())
}
