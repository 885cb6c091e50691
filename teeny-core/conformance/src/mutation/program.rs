//! Changes of scalar and row programs: each operation becomes another one of its class, each cast
//! goes through another dtype, each constant and position is another one.

use std::any::Any;
use std::sync::Arc;
use teeny_core::kernel::{Extent, Fold};
use teeny_core::{
    Arithmetic, Bitwise, Builder, Comparison, DType, Expr, FloatFunction, Kernel, OpCode, Rounding,
    Scalar, SignFunction,
};

/// One change, of every node that it fits.
#[derive(Clone, Copy, PartialEq)]
pub enum ProgramEdit {
    /// One operation in place of another one.
    Replace(OpCode, OpCode),
    /// The operation has its operands in reverse order; of a choice, the last two.
    Exchange(OpCode),
    /// A cast from one dtype to another one goes through a third.
    Through(DType, DType, DType),
    /// A cast of a float to an integer is rounded to the nearest, or down.
    Rounded(Rounding),
    /// A constant goes through a dtype.
    Constant(DType),
    ConstantIsNegative,
    /// The position along the row begins at 1.
    IndexFromOne,
    LengthIsMore,
    /// The result of an operation is rounded to bf16.
    ResultThrough(OpCode, DType),
}

use ProgramEdit::*;

/// The operations of the class of `op`.
fn class(op: OpCode) -> Vec<OpCode> {
    fn all<T: Into<OpCode> + Copy>(ops: &[T]) -> Vec<OpCode> {
        ops.iter().map(|&op| op.into()).collect()
    }
    match op {
        OpCode::Float(_) => all(&FloatFunction::ALL),
        OpCode::Round(_) => all(&Rounding::ALL),
        OpCode::Sign(_) => all(&SignFunction::ALL),
        OpCode::Arithmetic(_) => all(&Arithmetic::ALL),
        OpCode::Compare(_) => all(&Comparison::ALL),
        OpCode::Bitwise(_) => all(&Bitwise::ALL),
        OpCode::Fold(_) => Fold::ALL.into_iter().map(OpCode::Fold).collect(),
        OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) => vec![],
        OpCode::Cast | OpCode::Not | OpCode::IsNan | OpCode::Where => vec![],
        OpCode::At | OpCode::Index | OpCode::Length => vec![],
    }
}

/// The changes of `kernel`; of its casts only if it `is_alone` in its request.
pub fn edits(kernel: &Kernel, is_alone: bool) -> Vec<ProgramEdit> {
    let mut all: Vec<ProgramEdit> = Vec::new();
    // The dtypes of the casts of a program of several operations follow from its operands.
    let is_cast = is_alone && kernel.single().is_some();
    for node in kernel.nodes() {
        let from = node.sources().last().map_or(node.dtype, |&s| kernel.nodes()[s as usize].dtype);
        let fits = |new: &OpCode| *new != node.op && new.accepts(from);
        all.extend(class(node.op).into_iter().filter(fits).map(|new| Replace(node.op, new)));
        if node.op.arity() > 1 && !node.op.is_commutative() && node.op != OpCode::At {
            all.push(Exchange(node.op));
        }
        match node.op {
            OpCode::Cast => {
                let differs = |via: &DType| is_cast && cast_differs(from, node.dtype, *via);
                let all_via = DType::ALL.into_iter().filter(differs);
                all.extend(all_via.map(|via| Through(from, node.dtype, via)));
                if from.is_float() && node.dtype.is_int() {
                    all.extend([Rounding::Round, Rounding::Floor, Rounding::Ceil].map(Rounded));
                }
            }
            OpCode::Const(value) => {
                let differs = |via: &DType| value.cast(*via).cast(node.dtype.compute()) != value;
                let all_via = [DType::BF16, DType::I32, DType::F32].into_iter().filter(differs);
                all.extend(all_via.map(Constant));
                if value.to_f64() != 0.0 {
                    all.push(ConstantIsNegative);
                }
            }
            OpCode::Index => all.push(IndexFromOne),
            OpCode::Length => all.push(LengthIsMore),
            OpCode::Input(_) | OpCode::Param(_) => {}
            op if node.dtype.is_float() => all.push(ResultThrough(op, DType::BF16)),
            _ => {}
        }
    }
    let mut distinct: Vec<ProgramEdit> = Vec::new();
    for edit in all {
        if !distinct.contains(&edit) {
            distinct.push(edit);
        }
    }
    distinct
}

/// Whether a cast of `from` to `to` differs from one by way of `via`, for a number at which casts
/// go wrong.
fn cast_differs(from: DType, to: DType, via: DType) -> bool {
    let powers = (0..64).flat_map(|n| {
        let power = 1u64 << n;
        [-1i64, 0, 1].map(|by| Scalar::UInt(power.wrapping_add(by as u64)))
    });
    let fractions = [0.1, 0.5, 1.5, 2.5, -1.5, -0.0, 300.7, -300.7, 1e-40, 1e39, 1e300, 7e4, 3e9];
    let limits = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 5e-324, 1e-7];
    let floats = fractions.into_iter().chain(limits).map(Scalar::Float);
    let middles = [1.0 + 2f64.powi(-11) + 2f64.powi(-40), 1.0 + 2f64.powi(-24) + 2f64.powi(-50)];
    powers.chain(floats).chain(middles.map(Scalar::Float)).any(|value| {
        let value = value.cast(from);
        value.cast(to) != value.cast(via).cast(to)
    })
}

impl ProgramEdit {
    pub fn text(self) -> String {
        match self {
            Replace(old, new) => format!("{} is {}", old.name(), new.name()),
            Exchange(op) => format!("{} has its operands exchanged", op.name()),
            Through(from, to, via) => format!("a cast of {from} to {to} goes through {via}"),
            Rounded(how) => format!("a cast to an integer takes {}", how.name()),
            Constant(via) => format!("a constant goes through {via}"),
            ConstantIsNegative => "a constant is negated".into(),
            IndexFromOne => "the position begins at 1".into(),
            LengthIsMore => "the length is one more".into(),
            ResultThrough(op, via) => format!("{} is rounded to {via}", op.name()),
        }
    }

    /// Changes the program in `field`, if another program follows that keeps inputs and results.
    pub fn apply(self, field: &mut dyn Any) {
        let Some(kernel) = field.downcast_mut::<Arc<Kernel>>() else { return };
        if let Some(new) = self.rebuilt(kernel) {
            *kernel = Arc::new(new);
        }
    }

    fn rebuilt(self, kernel: &Kernel) -> Option<Kernel> {
        let builder = Builder::new();
        let inputs: Vec<Expr<'_>> = (kernel.inputs().iter().enumerate())
            .map(|(i, &dtype)| builder.input_of(dtype, kernel.input_extent(i)))
            .collect();
        let params: Vec<Expr<'_>> = kernel.params().iter().map(|&t| builder.param(t)).collect();
        let any = inputs.iter().chain(&params).next().copied();
        let mut values: Vec<Expr<'_>> = Vec::new();
        for node in kernel.nodes() {
            let src: Vec<Expr<'_>> = node.sources().iter().map(|&s| values[s as usize]).collect();
            let mut op = node.op;
            let mut args = src.clone();
            match self {
                Replace(old, new) if old == op => op = new,
                Exchange(old) if old == op => {
                    let first = usize::from(op == OpCode::Where);
                    args[first..].reverse();
                }
                _ => {}
            }
            let first = args.first().copied();
            let value = match op {
                OpCode::Input(i) => inputs[i as usize],
                OpCode::Param(i) => params[i as usize],
                OpCode::Const(value) => builder.constant(self.constant(value), node.dtype),
                OpCode::Cast => self.cast(first?, node.dtype),
                OpCode::Where => first?.where_cond(args[1], args[2]),
                OpCode::Fold(fold) => first?.fold(fold),
                OpCode::At => first?.at(args[1]),
                OpCode::Index if self == IndexFromOne => any?.index() + 1,
                OpCode::Index => any?.index(),
                OpCode::Length => {
                    let typed = inputs.iter().find(|x| x.dtype() == node.dtype);
                    let length = match typed {
                        Some(x) => x.length(),
                        None => any?.cast(node.dtype).length(),
                    };
                    if self == LengthIsMore { length + length.like(1) } else { length }
                }
                op if op.arity() == 1 => first?.unary(op),
                op => first?.binary(op, args[1]),
            };
            let value = match self {
                ResultThrough(old, via) if old == node.op && node.dtype.is_float() => {
                    value.cast(via).cast(node.dtype)
                }
                _ => value,
            };
            if value.dtype() != node.dtype {
                return None;
            }
            values.push(value);
        }
        let outputs: Vec<Expr<'_>> = kernel.outputs().iter().map(|&o| values[o as usize]).collect();
        if kernel.is_pointwise() {
            return builder.finish(&outputs).ok();
        }
        let extents: Vec<Extent> = (0..outputs.len()).map(|i| kernel.output_extent(i)).collect();
        let (new, read) = builder.finish_rows(&outputs, &extents).ok()?;
        (read.len() == inputs.len()).then_some(new)
    }

    fn constant(self, value: Scalar) -> Scalar {
        match (self, value) {
            (Constant(via), value) => value.cast(via),
            (ConstantIsNegative, Scalar::Float(x)) => Scalar::Float(-x),
            (ConstantIsNegative, Scalar::Int(x)) => Scalar::Int(x.wrapping_neg()),
            (ConstantIsNegative, Scalar::UInt(x)) => Scalar::UInt(x.wrapping_neg()),
            (ConstantIsNegative, Scalar::Bool(x)) => Scalar::Bool(!x),
            (_, value) => value,
        }
    }

    fn cast<'b>(self, x: Expr<'b>, to: DType) -> Expr<'b> {
        match self {
            Through(from, target, via) if (from, target) == (x.dtype(), to) => x.cast(via).cast(to),
            Rounded(how) if x.dtype().is_float() && to.is_int() => x.unary(how).cast(to),
            _ => x.cast(to),
        }
    }
}
