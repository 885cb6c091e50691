//! Devices with one fault each: every one must fail the conformance suite, or the suite has a gap.
//! Mutants of one attribute, operand, result or operation of a program are derived from the
//! requests (`src/mutation`); the faults here cannot be derived.
//!
//! [`Mutant`] is a wrapper around the oracle. A [`Fault`] changes one kind of request: what is
//! passed on, or what the oracle returned for it. The faults occur in real kernels: a forgotten
//! tail, a wrong index, an accumulator that is too narrow, a special value that is treated like a
//! number.

use std::sync::Arc;
use teeny_conformance::{Cell, Suite, every};
use teeny_core::DType::{self, *};
use teeny_core::kernel::eval::eval;
use teeny_core::{
    Arithmetic, Bitwise, Comparison, Device, DeviceInfo, DeviceRef, Extremum, FloatFunction,
    Kernel, Layout, Op, OpCode, Outputs, ReduceOp, Reference, Result, Rounding, RowFunction,
    Scalar, ScanOp, ScatterMode, Shape, SignFunction, SortOrder, StorageRef, Tensor, Window,
};

/// Runs a request with the fault; `None` if the fault does not change it.
type Change = fn(&mut Op<'_>, &Mutant) -> Option<Result<Outputs>>;

/// One deliberate fault, and the row and type of the suite that must notice it.
struct Fault {
    name: &'static str,
    row: &'static str,
    dtype: DType,
    change: Change,
    /// Applies the fault to a tensor that is read.
    read: fn(&Tensor) -> Option<Tensor>,
    /// The change of elements that are uploaded.
    upload: Option<fn(&mut [Scalar])>,
}

struct Mutant {
    oracle: DeviceRef,
    fault: Fault,
}

impl std::fmt::Debug for Mutant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.fault.name)
    }
}

impl Device for Mutant {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "mutant".into(), description: self.fault.name.into() }
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if matches!(op, Op::ElementwiseInPlace { .. }) {
            return Ok(None);
        }
        (self.fault.change)(op, self).unwrap_or_else(|| self.run(op)).map(Some)
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        let storage = self.oracle.upload(bytes, dtype)?;
        let Some(change) = self.fault.upload else { return Ok(storage) };
        let shape = Shape::new(&[storage.len()])?;
        let mut values = self.tensor(storage, shape, dtype).to_scalars()?;
        change(&mut values);
        Ok(self.store(&values, dtype))
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        let x = unwrap(x, &self.oracle)?;
        self.oracle.download(&(self.fault.read)(&x).unwrap_or(x))
    }
    fn synchronize(&self) -> Result<()> {
        self.oracle.synchronize()
    }
}

impl Mutant {
    /// The request as the oracle answers it.
    fn run(&self, call: &mut Op<'_>) -> Result<Outputs> {
        call.run_mapped(&self.oracle, &|x| unwrap(x, &self.oracle))
    }

    /// Another request in place of the one that came.
    fn instead(&self, mut call: Op<'_>) -> Option<Result<Outputs>> {
        Some(self.run(&mut call))
    }

    /// Another row program on expanded inputs.
    fn rows(
        &self,
        function: RowFunction,
        inputs: &[&Tensor],
        params: &[Scalar],
        axes: &[usize],
    ) -> Option<Result<Outputs>> {
        let types: Vec<DType> = inputs.iter().map(|x| x.dtype()).collect();
        let program = function.program(&types, params.len()).ok()?;
        self.instead(Op::Rows { program, inputs, params, shape: inputs[0].shape(), axes })
    }

    fn tensor(&self, storage: StorageRef, shape: Shape, dtype: DType) -> Tensor {
        Tensor::from_parts(storage, Layout::contiguous(shape), dtype, self.oracle.clone()).unwrap()
    }

    fn scalars(&self, x: &Tensor) -> Vec<Scalar> {
        unwrap(x, &self.oracle).and_then(|x| x.to_scalars()).unwrap()
    }

    fn store(&self, values: &[Scalar], dtype: DType) -> StorageRef {
        let made = Tensor::from_scalars(values, values.len(), dtype, &self.oracle).unwrap();
        made.storage().clone()
    }

    /// The oracle's answer with the elements of result `number` changed.
    fn modify(
        &self,
        call: &mut Op<'_>,
        number: usize,
        change: impl Fn(&mut [Scalar], &Shape),
    ) -> Option<Result<Outputs>> {
        let mut run = || {
            let (shape, dtype) = call.outputs()?[number];
            let mut storages: Vec<StorageRef> = self.run(call)?.into_iter().collect();
            let mut values = self.tensor(storages[number].clone(), shape, dtype).to_scalars()?;
            change(&mut values, &shape);
            storages[number] = self.store(&values, dtype);
            Ok(storages.into_iter().collect())
        };
        Some(run())
    }

    /// The oracle's answer with result 0 made of each element of it and of operand 0.
    fn pairwise(
        &self,
        call: &mut Op<'_>,
        change: impl Fn(Scalar, Scalar) -> Scalar,
    ) -> Option<Result<Outputs>> {
        let x = self.scalars(call.operands()[0]);
        self.modify(call, 0, |y, _| y.iter_mut().zip(&x).for_each(|(y, &x)| *y = change(x, *y)))
    }
}

/// The tensor of `oracle` behind `x`: a mutant uses the oracle's storages.
fn unwrap(x: &Tensor, oracle: &DeviceRef) -> Result<Tensor> {
    Tensor::from_parts(x.storage().clone(), *x.layout(), x.dtype(), oracle.clone())
}

/// Whether the request is a kernel of this one operation.
fn is(call: &Op<'_>, op: impl Into<OpCode>) -> bool {
    let op = op.into();
    matches!(call, Op::Elementwise { kernel, .. } if kernel.single().is_some_and(|n| n.op == op))
}

/// The outputs in reverse order.
fn swapped(outputs: Outputs) -> Outputs {
    let mut all: Vec<StorageRef> = outputs.into_iter().collect();
    all.reverse();
    all.into_iter().collect()
}

fn each(values: &mut [Scalar], change: impl Fn(f64) -> f64) {
    values.iter_mut().for_each(|v| *v = Scalar::Float(change(v.to_f64())));
}

/// A fault of one kernel: each result is made of the first operand's element and the right result.
macro_rules! kernel {
    ($name:expr, $row:expr, $dtype:expr, $op:expr, $change:expr) => {
        Fault {
            name: $name,
            row: $row,
            dtype: $dtype,
            change: |call, m| if is(call, $op) { m.pairwise(call, $change) } else { None },
            read: |_| None,
            upload: None,
        }
    };
}

/// A fault of the requests that match a pattern.
macro_rules! fault {
    ($name:expr, $row:expr, $dtype:expr, $pattern:pat $(if $guard:expr)? => |$m:ident, $call:ident| $change:expr) => {
        Fault {
            name: $name,
            row: $row,
            dtype: $dtype,
            change: |$call, $m| match *$call {
                $pattern $(if $guard)? => $change,
                _ => None,
            },
            read: |_| None,
            upload: None,
        }
    };
}

/// A fault of a named row program.
macro_rules! rows {
    ($name:expr, $row:expr, $dtype:expr, $function:ident =>
        |$m:ident, $call:ident, $inputs:ident, $params:ident, $axes:ident| $change:expr) => {
        fault!($name, $row, $dtype,
            Op::Rows { program, inputs: $inputs, params: $params, axes: $axes, .. }
                if program.row_function() == Some(RowFunction::$function) => |$m, $call| $change)
    };
}

/// A fault of reading.
macro_rules! read {
    ($name:expr, $dtype:expr, $change:expr) => {
        Fault {
            name: $name,
            row: "upload, download",
            dtype: $dtype,
            change: |_, _| None,
            read: $change,
            upload: None,
        }
    };
}

/// A fault of uploading.
macro_rules! upload {
    ($name:expr, $dtype:expr, $change:expr) => {
        Fault {
            name: $name,
            row: "upload, download",
            dtype: $dtype,
            change: |_, _| None,
            read: |_| None,
            upload: Some($change),
        }
    };
}

fn float(x: f64) -> Scalar {
    Scalar::Float(x)
}

fn faults() -> Vec<Fault> {
    let mut all = memory();
    all.extend(elementwise());
    all.extend(reductions());
    all.extend(products());
    all.extend(positions());
    all.extend(fused());
    all.extend(windows());
    all.extend(attention());
    all.extend(requests());
    all.extend(matrices());
    all
}

fn memory() -> Vec<Fault> {
    vec![
        upload!("upload flushes subnormals", F32, |v| {
            each(v, |x| if x.abs() < f32::MIN_POSITIVE.into() { 0.0 } else { x })
        }),
        upload!("upload keeps 32 bits of an integer", I64, |v| {
            v.iter_mut().for_each(|x| *x = Scalar::Int(x.to_i64_wrapping() as i32 as i64))
        }),
        read!("reading ignores the offset", F32, |x| {
            let start = Layout::strided(*x.shape(), x.strides(), 0, x.storage().len()).ok()?;
            x.with_layout(start).ok()
        }),
        read!("reading takes strides for positive", I64, |x| {
            let strides: Vec<isize> = x.strides().iter().map(|s| s.abs()).collect();
            let layout = Layout::strided(*x.shape(), &strides, 0, x.storage().len()).ok()?;
            x.with_layout(layout).ok()
        }),
        fault!("the generator repeats after 2^18 draws", "uniform", F32, Op::Random { .. } => |m, call| {
            m.modify(call, 0, |v, _| (1 << 18..v.len()).for_each(|i| v[i] = v[i - (1 << 18)]))
        }),
        fault!("integers are drawn up to the end", "random integers", I32,
            Op::Random { .. } => |m, call| m.modify(call, 0, |v, _| v.iter_mut().for_each(|x| {
                *x = Scalar::Int(x.to_i64_wrapping() + 1);
            }))
        ),
        fault!("bernoulli draws the complement", "bernoulli", Bool, Op::Random { .. } => |m, call| {
            m.modify(call, 0, |v, _| v.iter_mut().for_each(|x| *x = Scalar::Bool(!x.to_bool())))
        }),
        fault!("a copy is its input's storage", "new storage", F32, Op::Contiguous { x }
            if x.is_contiguous() && x.storage().len() == x.numel() => |_m, _call| {
                Some(Ok(x.storage().clone().into()))
        }),
        fault!("a copy starts at the storage's start", "copy", I16, Op::Contiguous { x } => |m, _call| {
            let start = Layout::strided(*x.shape(), x.strides(), 0, x.storage().len());
            m.instead(Op::Contiguous { x: &x.with_layout(start.ok()?).ok()? })
        }),
        fault!("an assignment forgets its last element", "assign", U8, Op::CopyInto { ref mut dst, view, src } => |m, _call| {
            let len = src.numel().checked_sub(1)?;
            let rows = src.reshape(-1).and_then(|x| x.slice(0, ..len)).unwrap();
            let view = view.reshape(&Shape::new(&[len + 1]).unwrap())?.slice(0, 0, len, 1);
            m.instead(Op::CopyInto { dst: dst.take(), view: &view, src: &rows })
        }),
        fault!("an assignment writes at the start", "assign", F64, Op::CopyInto { ref mut dst, view, src } => |m, _call| {
            let view = Layout::strided(*view.shape(), view.strides(), 0, usize::MAX >> 8).ok()?;
            m.instead(Op::CopyInto { dst: dst.take(), view: &view, src })
        }),
    ]
}

fn elementwise() -> Vec<Fault> {
    vec![
        kernel!("neg loses the sign of zero", "neg", F32, SignFunction::Neg, |_, y| if y.is(0.0) {
            float(0.0)
        } else {
            y
        }),
        kernel!("abs of the smallest integer saturates", "abs", I8, SignFunction::Abs, |x, y| {
            if x == Scalar::Int(-128) { Scalar::Int(127) } else { y }
        }),
        kernel!(
            "sign of NaN is 0",
            "sign",
            F32,
            SignFunction::Sign,
            |x, y| if x.to_f64().is_nan() { float(0.0) } else { y }
        ),
        kernel!("exp is good to six digits", "exp", F32, FloatFunction::Exp, |_, y| float(
            y.to_f64() * (1.0 + 1e-6)
        )),
        kernel!("exp of f64 is computed in f32", "exp", F64, FloatFunction::Exp, |_, y| float(
            y.to_f64() as f32 as f64
        )),
        kernel!("expm1 cancels near 0", "expm1", F32, FloatFunction::Expm1, |x, y| {
            if x.to_f64().abs() < 1e-3 {
                float(((x.to_f64() as f32).exp() - 1.0).into())
            } else {
                y
            }
        }),
        kernel!("log of a negative number is -inf", "log", F32, FloatFunction::Log, |x, y| {
            if x.to_f64() < 0.0 { float(f64::NEG_INFINITY) } else { y }
        }),
        kernel!("sin of large angles is 0", "sin", F32, FloatFunction::Sin, |x, y| if x
            .to_f64()
            .abs()
            > 500.0
        {
            float(0.0)
        } else {
            y
        }),
        kernel!("tanh overflows", "tanh", F32, FloatFunction::Tanh, |x, y| if x.to_f64().abs()
            > 80.0
        {
            float(f64::NAN)
        } else {
            y
        }),
        kernel!("round takes ties away from zero", "round", F32, Rounding::Round, |x, _| float(
            x.to_f64().round()
        )),
        kernel!(
            "is_nan compares with itself after fast maths",
            "is_nan",
            F32,
            OpCode::IsNan,
            |_, _| Scalar::Bool(false)
        ),
        kernel!("add saturates", "add", I32, Arithmetic::Add, |x, y| {
            let (x, y) = (x.to_i64_wrapping(), y.to_i64_wrapping());
            Scalar::Int(if x > 1 << 30 && y < 0 { i32::MAX.into() } else { y })
        }),
        kernel!(
            "max of NaN and a number is the number",
            "maximum",
            F32,
            Arithmetic::Max,
            |x, y| { if y.to_f64().is_nan() && !x.to_f64().is_nan() { x } else { y } }
        ),
        kernel!("NaN is less than every number", "lt", F32, Comparison::Lt, |x, y| {
            if x.to_f64().is_nan() { Scalar::Bool(true) } else { y }
        }),
        kernel!("NaN equals NaN", "ne", F16, Comparison::Ne, |x, y| if x.to_f64().is_nan() {
            Scalar::Bool(false)
        } else {
            y
        }),
        kernel!("a remainder has the sign of the dividend", "rem", I32, Arithmetic::Rem, |x, y| {
            let (x, y) = (x.to_i64_wrapping(), y.to_i64_wrapping());
            Scalar::Int(if x < 0 && y > 0 { -y } else { y })
        }),
        kernel!("an integer divided by 0 is -1", "floor_div", I32, Arithmetic::FloorDiv, |x, y| {
            if y.is(0.0) && !x.is(0.0) { Scalar::Int(-1) } else { y }
        }),
        kernel!(
            "shifts use five bits of the count",
            "shl",
            I32,
            Bitwise::Shl,
            |x, y| if y.is(0.0) { x } else { y }
        ),
        kernel!("casts to integers wrap", "cast", F32, OpCode::Cast, |x, y| match y {
            Scalar::Int(v) if x.to_f64().is_finite() && x.to_f64().abs() > 1e18 =>
                Scalar::Int(v.wrapping_neg()),
            y => y,
        }),
        kernel!("a cast to bool truncates first", "cast", F64, OpCode::Cast, |x, y| match y {
            Scalar::Bool(_) if x.to_f64().abs() < 1.0 => Scalar::Bool(false),
            y => y,
        }),
        kernel!("a cast to f32 is rounded twice", "cast", I64, OpCode::Cast, |x, y| match (x, y) {
            (Scalar::Int(x), Scalar::Float(y)) if y.abs() > 1e15 =>
                float(((x >> 12 << 12) as f32).into()),
            (_, y) => y,
        }),
        kernel!("16-bit results are truncated", "mul", BF16, Arithmetic::Mul, |_, y| match y {
            Scalar::Float(y) =>
                float(f32::from_bits((y as f32).to_bits().wrapping_sub(1 << 16)).into()),
            y => y,
        }),
        fault!("a selection multiplies by its condition", "where_cond", F32, Op::Elementwise { kernel, .. }
            if kernel.nodes().iter().any(|node| node.op == OpCode::Where) => |m, call| {
                m.modify(call, 0, |v, _| each(v, |x| if x.is_infinite() { f64::NAN } else { x }))
        }),
        fault!("elements after the 1,024th are not computed", "exp", F32, Op::Elementwise { .. } => |m, call| {
            m.modify(call, 0, |v, _| v.iter_mut().skip(1024).for_each(|x| *x = float(0.0)))
        }),
        fault!("a broadcast row is read on", "add", F64, Op::Elementwise { kernel, inputs, params, shape }
            if inputs.len() == 2 && inputs[1].strides().first() == Some(&0) => |m, _call| {
                let moved = inputs[1].roll(1, -1).ok()?;
                m.instead(Op::Elementwise { kernel, inputs: &[inputs[0], &moved], params, shape })
        }),
        fault!("the eighth input is the seventh", "kernel of eight inputs", F32,
            Op::Elementwise { kernel, inputs, params, shape } if inputs.len() == 8 => |m, _call| {
                let mut inputs = inputs.to_vec();
                inputs[7] = inputs[6];
                m.instead(Op::Elementwise { kernel, inputs: &inputs, params, shape })
        }),
    ]
}

fn reductions() -> Vec<Fault> {
    let mut all = vec![
        fault!("a sum of f16 accumulates in f16", "sum", F16, Op::Reduce { op: ReduceOp::Sum, x, axes: &[axis] } => |m, call| {
            let lines = m.scalars(&x.transpose(axis as isize, -1).unwrap());
            let n = x.shape()[axis].max(1);
            let narrow = |sum: Scalar, x: &Scalar| float(sum.to_f64() + x.to_f64()).cast(F16);
            let sums: Vec<Scalar> = lines.chunks(n).map(|line| line.iter().fold(float(0.0), narrow)).collect();
            let ndim = x.ndim();
            m.modify(call, 0, |v, _| if ndim == 1 && n <= lines.len() { v.copy_from_slice(&sums) })
        }),
        fault!("a sum of integers saturates", "sum", I64, Op::Reduce { op: ReduceOp::Sum, .. } => |m, call| {
            m.modify(call, 0, |v, _| v.iter_mut().for_each(|x| if x.to_i64_wrapping() < -100 { *x = Scalar::Int(i64::MAX) }))
        }),
        fault!("a sum of nothing is not written", "sum", F32, Op::Reduce { op: ReduceOp::Sum, x, .. } if x.numel() == 0 => |m, call| {
            m.modify(call, 0, |v, _| each(v, |_| 321.0))
        }),
        fault!("a maximum ignores NaN", "max", F32, Op::Reduce { op: ReduceOp::Max, .. } => |m, call| {
            m.modify(call, 0, |v, _| each(v, |x| if x.is_nan() { f64::INFINITY } else { x }))
        }),
        fault!("a maximum begins at 0", "max", BF16, Op::Reduce { op: ReduceOp::Max, .. } => |m, call| {
            m.modify(call, 0, |v, _| each(v, |x| if x < 0.0 { 0.0 } else { x }))
        }),
        fault!("a maximum of unsigned numbers compares signed ones", "max", U32, Op::Reduce { op: ReduceOp::Max, x, axes } => |m, call| {
            let signed = x.cast(I32).ok()?;
            let most = m.run(&mut Op::Reduce { op: ReduceOp::Max, x: &signed, axes }).ok()?;
            let shape = call.outputs().ok()?[0].0;
            let most = m.tensor(most.into_first()?, shape, I32).cast(U32).ok()?;
            Some(Ok(most.storage().clone().into()))
        }),
        fault!("argmax takes the last of ties", "argmax", I32, Op::Reduce { op: ReduceOp::ArgMax, x, axes } => |m, call| {
            let n = x.shape()[axes[0]] as i64;
            let flipped = x.flip(axes[0]).ok()?;
            m.modify(&mut Op::Reduce { op: ReduceOp::ArgMax, x: &flipped, axes }, 0, |v, _| {
                v.iter_mut().for_each(|x| *x = Scalar::Int(n - 1 - x.to_i64_wrapping()));
            }).filter(|_| call.operands().len() == 1)
        }),
        fault!("any looks at the first 2,048 elements", "any", Bool, Op::Reduce { op: ReduceOp::Any, x, axes: &[axis] }
            if x.shape()[axis] > 2048 => |m, _call| {
                m.instead(Op::Reduce { op: ReduceOp::All, x, axes: &[axis] })
        }),
        fault!("a product of nothing is 0", "prod", F32, Op::Reduce { op: ReduceOp::Prod, x, .. } if x.numel() == 0 => |m, call| {
            m.modify(call, 0, |v, _| each(v, |_| 0.0))
        }),
        fault!("a reduced kernel takes the maximum for the sum", "reduce of a kernel", F32,
            Op::ReduceKernel { kernel, inputs, params, shape, op: ReduceOp::Sum, axes } if axes.len() > 1 => |m, _call| {
                m.instead(Op::ReduceKernel { kernel, inputs, params, shape, op: ReduceOp::Max, axes })
        }),
        fault!("a cumulative sum leaves its own element out", "cumsum", I32, Op::Scan { op: ScanOp::Sum, .. } => |m, call| {
            let x = m.scalars(call.operands()[0]);
            m.modify(call, 0, |v, _| v.iter_mut().zip(&x).for_each(|(y, x)| *y = Scalar::Int(y.to_i64_wrapping() - x.to_i64_wrapping())))
        }),
        fault!("a cumulative sum begins anew at element 2,048", "cumsum", F32, Op::Scan { op: ScanOp::Sum, x, axis: 0 }
            if x.ndim() == 1 && x.numel() > 2048 => |m, call| {
                let carried = m.scalars(x)[..2048].iter().map(|x| x.to_f64()).sum::<f64>();
                m.modify(call, 0, |v, _| each(&mut v[2048..], |x| x - carried))
        }),
        fault!("a running maximum keeps the first of equal ones", "cummax, positions", I32, Op::CumMax { x, extremum: Extremum::Largest, .. } if x.ndim() == 1 => |m, call| {
            m.modify(call, 1, |v, _| each(v, |x| x.min(1.0)))
        }),
    ];
    all.push(fault!("a reduction over the middle axis takes the last", "sum", F64,
        Op::Reduce { op: ReduceOp::Sum, x, axes: &[1] } if x.ndim() == 3 => |m, _call| {
            let moved = x.transpose(1, 2).ok()?;
            let (a, c) = (x.shape()[0], x.shape()[2]);
            let out = m.run(&mut Op::Reduce { op: ReduceOp::Sum, x: &moved, axes: &[1] }).ok()?;
            let out = m.tensor(out.into_first()?, Shape::new(&[a, x.shape()[1]]).ok()?, x.dtype());
            let column = out.slice(1, ..1).and_then(|x| x.expand((a, c))?.copy()).ok()?;
            Some(Ok(column.storage().clone().into()))
    }));
    all
}

fn products() -> Vec<Fault> {
    vec![
        fault!("products of u32 go through f32", "matmul", U32, Op::Matmul { lhs, rhs } => |m, _call| {
            let (a, b) = (lhs.cast(F32).ok()?, rhs.cast(F32).ok()?);
            through(m, &a, &b, U32)
        }),
        fault!("products of i64 go through f64", "matmul", I64, Op::Matmul { lhs, rhs } => |m, _call| {
            let (a, b) = (lhs.cast(F64).ok()?, rhs.cast(F64).ok()?);
            through(m, &a, &b, I64)
        }),
        fault!("products of f16 accumulate in f16", "matmul", F16, Op::Matmul { .. } => |m, call| {
            m.modify(call, 0, |v, _| each(v, |x| x * (1.0 + 1.0 / 256.0)))
        }),
        fault!("a product over nothing is not written", "matmul", F32, Op::Matmul { lhs, .. }
            if lhs.shape().last() == Some(&0) => |m, call| m.modify(call, 0, |v, _| each(v, |_| 321.0))),
        fault!("every matrix of a batch is the first", "matmul", F64, Op::Matmul { lhs, rhs } if rhs.ndim() > 2 => |m, _call| {
            let first = (0..rhs.ndim() - 2).fold(rhs.clone(), |x, a| x.slice(a as isize, ..1).unwrap_or(x));
            m.instead(Op::Matmul { lhs, rhs: &first.expand(rhs.shape()).ok()? })
        }),
        fault!("a product leaves out terms that are zero", "matmul", F32, Op::Matmul { .. } => |m, call| {
            m.modify(call, 0, |v, _| each(v, |x| if x.is_nan() { 0.0 } else { x }))
        }),
        fault!("the last row of an odd product is 0", "matmul", BF16, Op::Matmul { lhs, .. }
            if lhs.shape()[lhs.ndim() - 2] % 2 == 1 => |m, call| m.modify(call, 0, |v, shape| {
                let n = shape[shape.ndim() - 1];
                let from = v.len().saturating_sub(n);
                each(&mut v[from..], |_| 0.0);
            })
        ),
        fault!("matmul forgets the transpose of its right side", "matmul", F32, Op::Matmul { lhs, rhs }
            if rhs.shape()[rhs.ndim() - 1] == rhs.shape()[rhs.ndim() - 2] || rhs.numel() > 6 => |m, _call| {
                let plain = Layout::contiguous(*rhs.shape());
                (rhs.storage().len() >= rhs.numel() && plain.numel() > 0).then_some(())?;
                m.instead(Op::Matmul { lhs, rhs: &rhs.with_layout(plain).ok()? })
        }),
    ]
}

/// The product computed in another type.
fn through(m: &Mutant, lhs: &Tensor, rhs: &Tensor, dtype: DType) -> Option<Result<Outputs>> {
    let mut call = Op::Matmul { lhs, rhs };
    let out = m.run(&mut call).ok()?;
    let (shape, computed) = call.outputs().ok()?[0];
    let back = m.tensor(out.into_first()?, shape, computed).cast(dtype).ok()?;
    Some(Ok(back.storage().clone().into()))
}

fn positions() -> Vec<Fault> {
    vec![
        fault!("gather takes negative positions from the end", "index outside", F32, Op::Gather { x, axis, index } => |m, _call| {
            let n = x.shape()[axis] as i64;
            let wrapped = unwrap(index, &m.oracle).and_then(|i| i.lt(0)?.where_cond(i.add(n)?, &i)?.cast(I64)).ok()?;
            m.instead(Op::Gather { x, axis, index: &wrapped })
        }),
        fault!("gather reads u8 positions as signed", "gather", F32, Op::Gather { x, axis, index } if index.dtype() == U8 => |m, _call| {
            let low = unwrap(index, &m.oracle).and_then(|i| i.cast(I8)?.maximum(0)).ok()?;
            m.instead(Op::Gather { x, axis, index: &low })
        }),
        fault!("gather goes along the other axis", "gather", I32, Op::Gather { x, axis, index } if x.ndim() == 2 && index.shape()[axis] <= x.shape()[axis] => |m, _call| {
            let clamped = unwrap(index, &m.oracle).and_then(|i| i.cast(I64)?.minimum(x.shape()[1 - axis] as i64 - 1)).ok()?;
            m.instead(Op::Gather { x, axis: 1 - axis, index: &clamped })
        }),
        fault!("scatter_add begins at 0", "scatter_add", F32, Op::Scatter { mode: ScatterMode::Add, x, axis, index, src } => |m, _call| {
            let zeros = unwrap(x, &m.oracle).and_then(|x| x.zeros_like()).ok()?;
            m.instead(Op::Scatter { mode: ScatterMode::Add, x: &zeros, axis, index, src })
        }),
        fault!("scatter writes into its input", "scatter", F32, Op::Scatter { mode: ScatterMode::Set, x, axis, index, src }
            if x.is_contiguous() => |m, call| {
                let out = m.run(&mut Op::Scatter { mode: ScatterMode::Set, x, axis, index, src });
                call.operands().len().checked_sub(3)?;
                Some(out.map(|_| x.storage().clone().into()))
        }),
        fault!("sort puts NaN first", "sort", F32, Op::Sort { order: SortOrder::Ascending, .. } => |m, call| {
            m.modify(call, 0, |v, shape| {
                let n = shape.last().copied().unwrap_or(1).max(1);
                for line in v.chunks_mut(n) {
                    let nans = line.iter().filter(|x| x.to_f64().is_nan()).count();
                    line.rotate_right(nans);
                }
            })
        }),
        fault!("sort compares i64 as f64", "sort", I64, Op::Sort { x, axis, order } => |m, _call| {
            let floats = unwrap(x, &m.oracle).and_then(|x| x.cast(F64)).ok()?;
            let (values, places) = floats.sort(axis as isize, order).ok()?;
            let values = unwrap(x, &m.oracle).and_then(|x| x.gather(axis as isize, &places)).ok().filter(|_| values.ndim() > 0)?;
            Some(Ok((values.storage().clone(), places.storage().clone()).into()))
        }),
        fault!("a descending sort reverses an ascending one", "sort", U8, Op::Sort { x, axis, order: SortOrder::Descending } => |m, _call| {
            let (values, places) = unwrap(x, &m.oracle).and_then(|x| x.sort(axis as isize, SortOrder::Ascending)).ok()?;
            let back = |x: Tensor| Some(x.flip(axis).and_then(|x| x.copy()).ok()?.storage().clone());
            Some(Ok((back(values)?, back(places)?).into()))
        }),
    ]
}

/// Faults that accept an invalid request, or reject it too late.
fn requests() -> Vec<Fault> {
    vec![
        fault!("invalid requests are executed", "request", F32, _ if call.outputs().is_err() => |m, call| {
            Some(Ok(m.store(&[float(0.0); 6], F32).into()))
        }),
        fault!("invalid requests panic", "request", F32, _ if call.outputs().is_err() => |_m, call| {
            panic!("{:?}", call.outputs().err())
        }),
        fault!("axes are not checked", "request", F32,
            Op::Rows { program, inputs, params, shape, axes } if axes.iter().any(|&a| a >= shape.ndim()) => |m, _call| {
                m.instead(Op::Rows { program, inputs, params, shape, axes: &[shape.ndim().checked_sub(1)?] })
        }),
        fault!("gather wraps position -1 of a vector", "request", F32, Op::Gather { x, axis, index } if x.ndim() == 1 => |m, _call| {
            let last = x.shape()[axis] as i64 - 1;
            let wrapped = unwrap(index, &m.oracle).and_then(|i| i.cast(I64)?.eq(-1)?.where_cond(last, &i.cast(I64)?)).ok()?;
            m.instead(Op::Gather { x, axis, index: &wrapped })
        }),
        rows!("a class below 0 counts from the last one", "request", F32, CrossEntropy => |m, call, inputs, _params, _axes| {
            let (classes, targets) = (*inputs[0].shape().last()? as i64, inputs[1]);
            let wrapped = unwrap(targets, &m.oracle)
                .and_then(|t| t.cast(I64)?.lt(0)?.where_cond(t.cast(I64)?.add(classes)?, &t.cast(I64)?)?.cast(t.dtype()));
            m.instead(call.with_operands(&[inputs[0], &wrapped.ok()?]))
        }),
    ]
}

fn fused() -> Vec<Fault> {
    vec![
        fault!("all tensors of one kernel get the parameters of the first", "elementwise_many", F32,
            Op::ElementwiseMany { kernel, inputs, params, shapes } if shapes.len() > 2 => |m, _call| {
                let params = vec![params[0]; params.len()];
                m.instead(Op::ElementwiseMany { kernel, inputs, params: &params, shapes })
        }),
        fault!("the first operand of a product's kernel is reversed", "matmul_kernel", F32,
            Op::MatmulKernel { lhs, rhs, kernel, others, params } => |m, _call| {
                let first = others[0].flip(-1).ok()?;
                let others = [&[&first], &others[1..]].concat();
                m.instead(Op::MatmulKernel { lhs, rhs, kernel, others: &others, params })
        }),
        fault!("a product's kernel takes the product for both operands", "matmul_kernel", BF16,
            Op::MatmulKernel { lhs, rhs, kernel, params, .. } if kernel.inputs().len() == 2 => |m, _call| {
                let mut product = Op::Matmul { lhs, rhs };
                let (shape, dtype) = product.outputs().ok()?[0];
                let y = m.tensor(m.run(&mut product).ok()?.into_first()?, shape, dtype);
                m.instead(Op::Elementwise { kernel, inputs: &[&y, &y], params, shape: &shape })
        }),
        fault!("a product is not rounded before its kernel", "matmul_kernel", BF16,
            Op::MatmulKernel { lhs, rhs, kernel, others, params } => |m, call| unrounded(m, call, Op::Matmul {
                lhs: &unwrap(lhs, &m.oracle).ok()?.cast(F32).ok()?,
                rhs: &unwrap(rhs, &m.oracle).ok()?.cast(F32).ok()?,
            }, kernel, others, params)),
        fault!("a convolution is not rounded before its kernel", "conv_kernel", F16,
            Op::ConvKernel { x, weight, window, kernel, others, params } => |m, call| unrounded(m, call, Op::Conv {
                x: &unwrap(x, &m.oracle).ok()?.cast(F32).ok()?,
                weight: &unwrap(weight, &m.oracle).ok()?.cast(F32).ok()?,
                window,
            }, kernel, others, params)),
        fault!("the outputs of a product's kernel are exchanged", "matmul_kernel", I32,
            Op::MatmulKernel { kernel, .. } if kernel.outputs().len() == 2 => |m, call| {
                Some(m.run(call).map(swapped))
        }),
        fault!("every channel of a convolution gets the first bias", "conv_kernel", F32,
            Op::ConvKernel { x, weight, window, kernel, others, params } => |m, _call| {
                let first = others[0].slice(1, ..1).and_then(|b| b.expand(others[0].shape())).ok()?;
                let others = [&[&first], &others[1..]].concat();
                m.instead(Op::ConvKernel { x, weight, window, kernel, others: &others, params })
        }),
        fault!("topk takes the elements from the other end", "topk", F32, Op::TopK { x, axis, k, extremum } => |m, _call| {
            let extremum = match extremum {
                Extremum::Largest => Extremum::Smallest,
                Extremum::Smallest => Extremum::Largest,
            };
            m.instead(Op::TopK { x, axis, k, extremum })
        }),
        rows!("softmax does not subtract the maximum", "softmax", F32, Softmax => |m, call, inputs, _params, _axes| {
            let wide = m.scalars(inputs[0]).iter().any(|x| x.to_f64() > 88.8);
            m.modify(call, 0, |v, _| if wide { each(v, |_| f64::NAN) })
        }),
        rows!("softmax goes along the last axis", "softmax", F64, Softmax => |m, _call, inputs, params, _axes| {
            m.rows(RowFunction::Softmax, inputs, params, &[inputs[0].ndim() - 1])
        }),
        rows!("log_softmax is the logarithm of softmax", "log_softmax", F32, LogSoftmax => |m, call, _inputs, _params, _axes| {
            m.modify(call, 0, |v, _| each(v, |x| if x < -103.0 { f64::NEG_INFINITY } else { x }))
        }),
        rows!("softmax's gradient lacks the factor y", "softmax_grad", F32, SoftmaxGrad => |m, _call, inputs, params, axes| {
            m.rows(RowFunction::LogSoftmaxGrad, inputs, params, axes)
        }),
        rows!("log_softmax's gradient sums the last axis", "log_softmax_grad", F64, LogSoftmaxGrad => |m, _call, inputs, params, _axes| {
            m.rows(RowFunction::LogSoftmaxGrad, inputs, params, &[inputs[0].ndim() - 1])
        }),
        rows!("cross entropy charges ignored targets", "cross_entropy", F32, CrossEntropy => |m, call, _inputs, params, _axes| {
            params.first()?;
            m.modify(call, 0, |v, _| each(v, |x| if x == 0.0 { 1.0 } else { x }))
        }),
        rows!("ignored targets have a gradient", "cross_entropy_grad", F32, CrossEntropyGrad => |m, call, _inputs, params, _axes| {
            params.first()?;
            m.modify(call, 0, |v, _| each(v, |x| if x == 0.0 { 0.25 } else { x }))
        }),
        rows!("cross entropy reads the class behind its target", "cross_entropy", F64, CrossEntropy => |m, call, inputs, _params, _axes| {
            let classes = inputs[0].shape()[1] as i64;
            let next = unwrap(inputs[1], &m.oracle).and_then(|t| t.cast(I64)?.add(1)?.rem(classes)?.cast(t.dtype())).ok()?;
            m.instead(call.with_operands(&[inputs[0], &next]))
        }),
        rows!("layer norm adds eps to the deviation", "layer_norm", F32, LayerNorm => |m, _call, inputs, params, axes| {
            let eps = params[0].to_f64();
            m.rows(RowFunction::LayerNorm, inputs, &[Scalar::Float(eps * eps)], axes)
        }),
        rows!("layer norm forgets its bias", "layer_norm", F64, LayerNorm => |m, _call, inputs, params, axes| {
            m.rows(RowFunction::LayerNorm, &inputs[..inputs.len().min(2)], params, axes)
        }),
        rows!("rms norm subtracts the mean", "rms_norm", F32, RmsNorm => |m, _call, inputs, params, axes| {
            m.rows(RowFunction::LayerNorm, inputs, params, axes)
        }),
        rows!("layer norm's gradient forgets the weight", "layer_norm_grad", F32, LayerNormGrad => |m, _call, inputs, params, axes| {
            m.rows(RowFunction::LayerNormGrad, &[inputs[0], inputs[inputs.len() - 1]], params, axes)
        }),
        rows!("rms norm's gradient is layer norm's", "rms_norm_grad", F64, RmsNormGrad => |m, _call, inputs, params, axes| {
            m.rows(RowFunction::LayerNormGrad, inputs, params, axes)
        }),
    ]
}

/// `kernel` on a product in F32, which is not rounded to the dtype of the kernel's first input.
fn unrounded(
    m: &Mutant,
    call: &Op<'_>,
    mut product: Op<'_>,
    kernel: &Kernel,
    others: &[&Tensor],
    params: &[Scalar],
) -> Option<Result<Outputs>> {
    let specs = call.outputs().ok()?;
    let (shape, dtype) = product.outputs().ok()?[0];
    let y = m.tensor(m.run(&mut product).ok()?.into_first()?, shape, dtype).to_scalars().ok()?;
    let others: Vec<Vec<Scalar>> = others.iter().map(|x| m.scalars(x)).collect();
    let mut outputs = vec![Vec::new(); kernel.outputs().len()];
    for (i, &y) in y.iter().enumerate() {
        let mut values: Vec<Scalar> = Vec::new();
        for node in kernel.nodes() {
            let arg = |k: usize| values[node.sources()[k] as usize];
            values.push(match node.op {
                OpCode::Input(0) => y,
                OpCode::Input(k) => others[k as usize - 1][i],
                OpCode::Param(k) => params[k as usize],
                OpCode::Cast => arg(0).cast(node.dtype),
                _ => {
                    let mut args = [Scalar::Bool(false); 3];
                    (0..node.sources().len()).for_each(|k| args[k] = arg(k));
                    eval(node, F32, args)
                }
            });
        }
        let all = outputs.iter_mut().zip(kernel.outputs());
        all.for_each(|(output, &id)| output.push(values[id as usize]));
    }
    let stored = outputs.iter().zip(specs.iter()).map(|(y, (_, dtype))| m.store(y, *dtype));
    Some(Ok(stored.collect()))
}

fn windows() -> Vec<Fault> {
    /// The weight rotated by 180 degrees.
    fn rotated(weight: &Tensor) -> Option<Tensor> {
        weight.flip((2..weight.ndim() as i64).collect::<Vec<_>>()).ok()
    }
    vec![
        fault!("a convolution rotates its weight", "conv", F32, Op::Conv { x, weight, window } => |m, _call| {
            m.instead(Op::Conv { x, weight: &rotated(weight)?, window })
        }),
        fault!("a convolution's groups all read the first channels", "conv", F64, Op::Conv { x, weight, window } if window.groups > 1 => |m, _call| {
            let per_group = x.shape()[1] / window.groups;
            let all: Vec<_> = (0..window.groups).map(|_| x.slice(1, ..per_group)).collect::<Result<_>>().ok()?;
            let all: Vec<Tensor> = all.iter().map(|x| unwrap(x, &m.oracle)).collect::<Result<_>>().ok()?;
            let x = Tensor::cat(&all, 1).ok()?;
            m.instead(Op::Conv { x: &x, weight, window })
        }),
        fault!("padding repeats the border", "conv", F32, Op::Conv { window, .. } if window.padding.iter().any(|&p| p > 0) => |m, call| {
            m.modify(call, 0, |v, _| each(&mut v[..1], |x| x + 1.0))
        }),
        fault!("the gradient for a convolution's input rotates its weight", "conv_transpose", F32,
            Op::ConvInputGrad { g, weight, window, x_shape } => |m, _call| {
                m.instead(Op::ConvInputGrad { g, weight: &rotated(weight)?, window, x_shape })
        }),
        fault!("the gradient for a convolution's weight sums the first image only", "conv_weight_grad", F32,
            Op::ConvWeightGrad { g, x, window, weight_shape } if x.shape()[0] > 1 => |m, _call| {
                let (g, x) = (g.slice(0, ..1).ok()?, x.slice(0, ..1).ok()?);
                m.instead(Op::ConvWeightGrad { g: &g, x: &x, window, weight_shape })
        }),
        fault!("max pooling counts padding as zeros", "max_pool", F32, Op::MaxPool { window, .. }
            if window.padding.iter().any(|&p| p > 0) => |m, call| m.modify(call, 0, |v, _| each(v, |x| x.max(0.0)))),
        fault!("max pooling takes the last of ties", "max_pool", I32, Op::MaxPool { kernel_size, .. } => |m, call| {
            let last = kernel_size.iter().product::<usize>() > 1;
            m.modify(call, 1, |v, _| if last { v.iter_mut().for_each(|p| *p = Scalar::Int(p.to_i64_wrapping() + 1)) })
        }),
        fault!("the gradient of max pooling keeps one of several windows", "max_pool", F32,
            Op::MaxPoolGrad { .. } => |m, call| m.modify(call, 0, |v, _| each(v, |x| x.min(1.0)))),
        fault!("average pooling leaves padding out of the count", "avg_pool", F32, Op::AvgPool { x, kernel_size, window }
            if window.padding.iter().any(|&p| p > 0) => |m, call| {
                let ones = unwrap(x, &m.oracle).and_then(|x| x.ones_like()).ok()?;
                let share = m.run(&mut Op::AvgPool { x: &ones, kernel_size, window }).ok()?;
                let shape = call.outputs().ok()?[0].0;
                let share = m.tensor(share.into_first()?, shape, x.dtype()).to_scalars().ok()?;
                m.modify(call, 0, |v, _| v.iter_mut().zip(&share).for_each(|(v, s)| *v = float(v.to_f64() / s.to_f64())))
        }),
        fault!("average pooling ignores the dilation's offset", "avg_pool", F64, Op::AvgPool { x, kernel_size, window }
            if window.dilation.iter().any(|&d| d > 1) => |m, call| {
                let plain = Window { dilation: vec![1; kernel_size.len()], ..window.clone() };
                let len = call.outputs().ok()?[0].0.numel();
                let mut undilated = Op::AvgPool { x, kernel_size, window: &plain };
                let (shape, dtype) = undilated.outputs().ok()?[0];
                let out = m.run(&mut undilated).ok()?.into_first()?;
                let all = m.tensor(out, shape, dtype).to_scalars().ok()?;
                Some(Ok(m.store(&all[..len], dtype).into()))
        }),
    ]
}

fn attention() -> Vec<Fault> {
    vec![
        fault!("a query that sees no key gives NaN", "attention", F32, Op::Attention { inputs } => |m, call| {
            let blind = inputs.options.keys(0, inputs.k.shape()[inputs.k.ndim() - 2]).is_empty();
            m.modify(call, 0, |v, _| if blind { each(v, |_| f64::NAN) })
        }),
        fault!("the gradient for the keys lacks the scale", "attention_grad", F32, Op::AttentionGrad { inputs, .. } => |m, call| {
            let scale = inputs.options.factor(inputs.q.shape()[inputs.q.ndim() - 1]);
            m.modify(call, 1, |v, _| each(v, |x| x / scale))
        }),
    ]
}

fn matrices() -> Vec<Fault> {
    use teeny_core::LinalgOp;
    vec![
        fault!("solving transposes its matrix", "solve", F64, Op::Linalg { op: LinalgOp::Solve, inputs } => |m, _call| {
            m.instead(Op::Linalg { op: LinalgOp::Solve, inputs: &[&inputs[0].transpose(-2, -1).ok()?, inputs[1]] })
        }),
        fault!("a determinant loses its sign", "slogdet", F32, Op::Linalg { op: LinalgOp::SlogDet, .. } => |m, call| {
            m.modify(call, 0, |v, _| each(v, |x| -x))
        }),
        fault!("a determinant is that of the first matrix", "det", F64, Op::Linalg { op: LinalgOp::Det, .. } => |m, call| {
            m.modify(call, 0, |v, _| v[1] = v[0])
        }),
        fault!("a Cholesky factor keeps what is above its diagonal", "cholesky", F32, Op::Linalg { op: LinalgOp::Cholesky, .. } => |m, call| {
            m.modify(call, 0, |v, _| v[1] = v[4])
        }),
        fault!("r is not upper triangular's r", "qr", F64, Op::Linalg { op: LinalgOp::Qr { .. }, .. } => |m, call| {
            m.modify(call, 1, |v, _| v[0] = float(-v[0].to_f64()))
        }),
        fault!("eigenvalues descend", "eigh", F32, Op::Linalg { op: LinalgOp::Eigh, .. } => |m, call| {
            m.modify(call, 0, |v, _| v.chunks_mut(4).for_each(|v| v.reverse()))
        }),
        fault!("singular values are squared", "svd", F64, Op::Linalg { op: LinalgOp::Svd { .. }, .. } => |m, call| {
            m.modify(call, 1, |v, _| each(v, |x| x * x))
        }),
        fault!("a pseudoinverse is transposed", "pinv", F32, Op::Linalg { op: LinalgOp::Pinv { .. }, .. } => |m, call| {
            m.modify(call, 0, |v, _| v.swap(1, 3))
        }),
    ]
}

/// The rows of the suite in which `fault` is noticed.
fn noticed(fault: Fault) -> Vec<&'static str> {
    let (row, dtype) = (fault.row, fault.dtype);
    let device: DeviceRef = Arc::new(Mutant { oracle: Reference::new(), fault });
    let report = Suite::new(&device).only(row).dtypes(&[dtype]).run();
    let failed = |cells: &[Cell]| cells.iter().any(|c| matches!(c, Cell::Failed(_)));
    report.rows().iter().filter(|(_, cells)| failed(cells)).map(|(op, _)| *op).collect()
}

#[test]
fn each_of_many_faults_fails_the_row_of_its_operation() {
    let all = faults();
    assert!(all.len() >= 40, "{}", all.len());
    let missed: Vec<_> = all
        .into_iter()
        .step_by(every(4))
        .map(|fault| (fault.name, fault.row, noticed(fault)))
        .filter(|(_, row, found)| !found.contains(row))
        .map(|(name, row, found)| format!("{name}: {row} passed, {found:?} failed"))
        .collect();
    assert!(missed.is_empty(), "{} faults pass the suite:\n{}", missed.len(), missed.join("\n"));
}

#[test]
fn a_mutant_without_a_fault_passes() {
    let none = Fault {
        name: "none",
        row: "",
        dtype: F32,
        change: |_, _| None,
        read: |_| None,
        upload: None,
    };
    assert_eq!(noticed(none), [""; 0]);
}
