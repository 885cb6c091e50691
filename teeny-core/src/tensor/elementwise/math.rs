//! Elementwise operations. Each is a kernel found in a table. The methods of single operations are
//! made from the table in `kernel/ops.rs`; [`crate::kernel::functions`] defines the others.

use crate::calls;
use crate::context::enter;
use crate::device::same;
use crate::dtype::DType;
use crate::element::Element;
use crate::error::{Error, Result};
use crate::kernel::ops::ops;
use crate::kernel::table::{Binary, BinaryTable, UnaryTable};
use crate::op::Op;
use crate::scalar::Scalar;
use crate::tensor::Tensor;
use crate::tensor::elementwise::run_one;
use crate::with_element;
use std::borrow::Cow;

/// The second operand of a binary operation: `&Tensor`, or a Rust number.
pub trait Operand {
    /// The operand, as a tensor or a number.
    fn operand(&self) -> Either<'_>;
}

/// A tensor or a number.
#[derive(Clone, Copy)]
pub enum Either<'t> {
    /// A tensor.
    Tensor(&'t Tensor),
    /// A number; it takes its type from the other operand.
    Number(Scalar),
}

impl<'t> Either<'t> {
    /// The tensor, if it is one.
    #[inline]
    pub(in crate::tensor) fn tensor(self) -> Option<&'t Tensor> {
        match self {
            Either::Tensor(x) => Some(x),
            Either::Number(_) => None,
        }
    }
}

impl Operand for Tensor {
    fn operand(&self) -> Either<'_> {
        Either::Tensor(self)
    }
}
impl Operand for &Tensor {
    fn operand(&self) -> Either<'_> {
        Either::Tensor(self)
    }
}
impl<T: Element> Operand for T {
    fn operand(&self) -> Either<'_> {
        Either::Number(self.to_scalar())
    }
}
impl Operand for Scalar {
    fn operand(&self) -> Either<'_> {
        Either::Number(*self)
    }
}

pub(super) fn binary(
    table: &'static BinaryTable,
    lhs: &Tensor,
    rhs: Either<'_>,
    build: Binary,
) -> Result<Tensor> {
    match rhs {
        Either::Tensor(rhs) if lhs.dtype() == rhs.dtype() => {
            run_one(table.tensors(lhs.dtype(), rhs.dtype(), build)?, &[lhs, rhs], &[])
        }
        Either::Tensor(rhs) => {
            let (lhs, rhs) = (promote_scalar_operand(lhs, rhs)?, promote_scalar_operand(rhs, lhs)?);
            run_one(table.tensors(lhs.dtype(), rhs.dtype(), build)?, &[&lhs, &rhs], &[])
        }
        Either::Number(scalar) => {
            run_one(table.scalar_right(lhs.dtype(), scalar, build)?, &[lhs], &[scalar])
        }
    }
}

/// `x`, or if it is a scalar that meets a tensor with axes: cast to that tensor's type, unless it
/// is of a higher kind. A scalar tensor promotes like a Rust number, as in PyTorch, so that an f64
/// loss weight does not turn an f32 model into f64.
fn promote_scalar_operand<'t>(x: &'t Tensor, partner: &Tensor) -> Result<Cow<'t, Tensor>> {
    let dtype = partner.dtype();
    let yields = x.dtype() != dtype
        && x.ndim() == 0
        && partner.ndim() > 0
        && dtype.promote_scalar(x.dtype()) == dtype;
    if yields { Ok(Cow::Owned(x.cast(dtype)?)) } else { Ok(Cow::Borrowed(x)) }
}

pub(super) fn scalar_left(
    table: &'static BinaryTable,
    scalar: Scalar,
    rhs: &Tensor,
    build: Binary,
) -> Result<Tensor> {
    run_one(table.scalar_left(scalar, rhs.dtype(), build)?, &[rhs], &[scalar])
}

/// Makes `x` the result of `x op other`, or of `other op x` if `operand_index` is 1: in place where
/// possible. By reference, as moving a tensor takes half as long as sixteen additions.
pub(super) fn binary_in_place(
    x: &mut Tensor,
    operand_index: usize,
    other: Either<'_>,
    table: &'static BinaryTable,
    build: Binary,
) -> Result<()> {
    if try_in_place(x, operand_index, &other, table, build)? {
        return Ok(());
    }
    *x = match other {
        _ if operand_index == 0 => binary(table, x, other, build)?,
        Either::Tensor(other) => binary(table, other, Either::Tensor(x), build)?,
        Either::Number(scalar) => scalar_left(table, scalar, x, build)?,
    };
    Ok(())
}

/// [`binary_in_place`] over the elements of `x`. False if that is not possible; operands are then
/// checked by the caller.
#[inline(always)]
fn try_in_place(
    x: &mut Tensor,
    operand_index: usize,
    other: &Either<'_>,
    table: &'static BinaryTable,
    build: Binary,
) -> Result<bool> {
    let dtype = x.dtype;
    // The number stays where it is: copies of a few bytes stall the loads that follow them.
    let (kernel, other, params) = match other {
        Either::Tensor(other)
            if other.dtype != dtype
                || other.shape() != x.shape()
                || !same(&other.device, &x.device) =>
        {
            return Ok(false);
        }
        Either::Tensor(other) => (table.tensors(dtype, dtype, build), Some(*other), &[][..]),
        Either::Number(scalar) => {
            let kernel = match operand_index {
                0 => table.scalar_right(dtype, *scalar, build),
                _ => table.scalar_left(*scalar, dtype, build),
            };
            (kernel, None, std::slice::from_ref(scalar))
        }
    };
    let input_index = if other.is_some() { operand_index } else { 0 };
    let whole = x.layout.is_contiguous() && x.layout.numel() == x.storage.len();
    match kernel {
        Ok(kernel) if whole && kernel.output_dtype(0) == dtype && !calls::is_recording() => {
            let mut op = Op::ElementwiseInPlace {
                kernel,
                storage: &mut x.storage,
                input_index,
                other,
                params,
                shape: x.layout.shape(),
            };
            let result = x.device.execute(&mut op);
            // By reference: moving the outputs out would take a tenth of a small operation.
            match &result {
                Ok(outputs) => Ok(outputs.is_some()),
                Err(_) => result.map(|_| false),
            }
        }
        _ => Ok(false),
    }
}

macro_rules! unary {
    ($($(#[$doc:meta])* $name:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self) -> Result<Tensor> {
                static TABLE: UnaryTable = UnaryTable::new();
                let _op = enter(stringify!($name)).on([("x", Some(self))]);
                run_one(TABLE.get(self.dtype(), |x| x.$name())?, &[self], &[])
            }
        )*}
    };
}

macro_rules! binary {
    ($tables:ident; $($(#[$doc:meta])* $name:ident;)*) => {
        impl Tensor {$(
            $(#[$doc])*
            #[track_caller]
            pub fn $name(&self, rhs: impl Operand) -> Result<Tensor> {
                let rhs = rhs.operand();
                let _op = enter(stringify!($name)).on([("lhs", Some(self)), ("rhs", rhs.tensor())]);
                binary(&$tables::$name, self, rhs, |a, b| a.$name(b))
            }
        )*}
        /// One table per operation, shared with the operators that take a number on the left.
        #[allow(non_upper_case_globals)]
        pub(super) mod $tables {
            use super::BinaryTable;
            $(pub static $name: BinaryTable = BinaryTable::new();)*
        }
    };
}

pub(super) use {binary as binary_methods, unary as unary_methods};

macro_rules! methods {
    (
        unary { $($(#[$doc1:meta])* $variant1:ident($class1:ident) {
            $($(#[$op_doc1:meta])* $op1:ident $name1:ident;)*
        })* }
        binary { $($(#[$doc2:meta])* $variant2:ident($class2:ident) {
            $($(#[$op_doc2:meta])* $op2:ident $name2:ident;)*
        })* }
    ) => {
        unary! { $($($(#[$op_doc1])* $name1;)*)* }
        binary! { tables; $($($(#[$op_doc2])* $name2;)*)* }
    };
}
ops!(methods);

// Functions that are kernels of several operations, or one operation with its operands exchanged.

unary! {
    /// `x * x`.
    square;
    /// Arc sine.
    asin;
    /// Arc cosine.
    acos;
    /// Hyperbolic sine.
    sinh;
    /// Hyperbolic cosine.
    cosh;
    /// Logical not of bools, bitwise not of integers.
    not;
    /// True where NaN.
    is_nan;
    /// True where infinite.
    is_inf;
    /// True where neither NaN nor infinite.
    is_finite;
    /// `1 / (1 + exp(-x))`.
    sigmoid;
    /// `max(x, 0)`.
    relu;
    /// `min(max(x, 0), 6)`.
    relu6;
    /// Scaled ELU. Equivalent: `torch.nn.functional.selu`.
    selu;
    /// `x Φ(x)` by erf. Equivalent: `torch.nn.functional.gelu(x)`.
    gelu;
    /// The tanh form of gelu. Equivalent: `gelu(x, approximate="tanh")`.
    gelu_tanh;
    /// `x sigmoid(x)`.
    silu;
    /// `log(1 + exp(x))` without overflow.
    softplus;
    /// `log(sigmoid(x))` without underflow.
    #[doc(alias = "logsigmoid")]
    log_sigmoid;
    /// `x tanh(softplus(x))`.
    mish;
    /// `x / (1 + |x|)`.
    softsign;
    /// `min(max(x + 3, 0), 6) / 6`.
    hardsigmoid;
    /// `x hardsigmoid(x)`.
    hardswish;
    /// `min(max(x, -1), 1)`.
    hardtanh;
}

binary! {
    composite_tables;
    /// `self > rhs`.
    gt;
    /// `self >= rhs`.
    ge;
    /// x where positive, `rhs * x` elsewhere. Equivalent: `torch.nn.functional.leaky_relu`.
    leaky_relu;
    /// x where positive, `rhs * (exp(x) - 1)` elsewhere. Equivalent: `torch.nn.functional.elu`.
    elu;
}

impl Tensor {
    /// The elements as `dtype`, by the rules of [`Scalar::cast`]; the same tensor if that is their
    /// type.
    #[track_caller]
    pub fn cast(&self, dtype: DType) -> Result<Tensor> {
        static TABLES: [UnaryTable; 13] = [const { UnaryTable::new() }; 13];
        let _op = enter("cast").on([("x", Some(self))]);
        if dtype == self.dtype() {
            return Ok(self.clone());
        }
        // One table per target; the closure cannot capture it, so the target picks the builder.
        let build: crate::kernel::table::Unary =
            with_element!(dtype, T => |x| x.cast(<T as Element>::DTYPE));
        run_one(TABLES[dtype as usize].get(self.dtype(), build)?, &[self], &[])
    }

    /// `min(max(x, low), high)`; NaN stays NaN. The bounds are numbers. The gradient is 0 at a
    /// bound and beyond, as in PyTorch 2.15. One bound alone, or tensors as bounds:
    /// `x.maximum(low)?`, `x.minimum(high)?`.
    ///
    /// # Errors
    /// If `low > high`, or the type is bool.
    #[track_caller]
    pub fn clamp(&self, low: impl Into<Scalar>, high: impl Into<Scalar>) -> Result<Tensor> {
        let _op = enter("clamp").on([("x", Some(self))]);
        let (low, high) = (low.into(), high.into());
        if low.to_f64() > high.to_f64() {
            return Err(Error::value(format!("low is {low}, above high, {high}"))
                .help(format!("x.clamp({high}, {low})? has them in order")));
        }
        let dtype = self.dtype();
        if [low, high].iter().any(|scalar| dtype.promote_scalar(scalar.kind()) != dtype) {
            return self.maximum(low)?.minimum(high);
        }
        static TABLE: UnaryTable = UnaryTable::new();
        let kernel = TABLE.of_type(dtype, |b, dtype| {
            let (x, low, high) = (b.input(dtype), b.param(dtype), b.param(dtype));
            x.clamp(low, high)
        })?;
        run_one(kernel, &[self], &[low, high])
    }

    /// `self + weight * (end - self)`: weight 0 gives exactly self, 1 exactly `end`. Equivalent:
    /// `torch.lerp`.
    #[track_caller]
    pub fn lerp(&self, end: &Tensor, weight: impl Operand) -> Result<Tensor> {
        let _op = enter("lerp").on([
            ("x", Some(self)),
            ("end", Some(end)),
            ("weight", weight.operand().tensor()),
        ]);
        match weight.operand() {
            Either::Tensor(weight) => {
                crate::tensor::map([self, end, weight], |[a, b, w]| a.lerp(b, w))
            }
            Either::Number(scalar) => match (self.dtype(), end.dtype(), scalar.to_f64()) {
                (DType::F32, DType::F32, weight) => {
                    // As the kernel computes it: in f32, which subtracts exactly rounded.
                    let weight = weight as f32;
                    self.lerp_by(end, f64::from(weight), f64::from(weight - 1.0))
                }
                (DType::F64, DType::F64, weight) => self.lerp_by(end, weight, weight - 1.0),
                _ => crate::tensor::map([self, end], |[a, b]| a.lerp(b, scalar)),
            },
        }
    }

    /// [`Tensor::lerp`] by a number of the tensors' type, and that number less 1: by kernels that are
    /// built once.
    fn lerp_by(&self, end: &Tensor, weight: f64, less_one: f64) -> Result<Tensor> {
        static NEAR: UnaryTable = UnaryTable::new();
        static FAR: UnaryTable = UnaryTable::new();
        let (kernel, weight) = if weight.abs() < 0.5 {
            let near = NEAR.of_type(self.dtype(), |b, dtype| {
                let (start, end, weight) = (b.input(dtype), b.input(dtype), b.param(dtype));
                start + weight * (end - start)
            })?;
            (near, weight)
        } else {
            let far = FAR.of_type(self.dtype(), |b, dtype| {
                let (start, end, less_one) = (b.input(dtype), b.input(dtype), b.param(dtype));
                end + less_one * (end - start)
            })?;
            (far, less_one)
        };
        run_one(kernel, &[self, end], &[Scalar::Float(weight)])
    }

    /// `a` where this tensor is true (not 0), `b` elsewhere; all three broadcast, `a` and `b` are
    /// promoted. Equivalent: `torch.where(self, a, b)`.
    #[doc(alias = "where")]
    #[track_caller]
    pub fn where_cond(&self, a: impl Operand, b: impl Operand) -> Result<Tensor> {
        let _op = enter("where_cond").on([
            ("x", Some(self)),
            ("a", a.operand().tensor()),
            ("b", b.operand().tensor()),
        ]);
        match (a.operand(), b.operand()) {
            (Either::Tensor(a), Either::Tensor(b))
                if self.dtype() == DType::Bool && a.dtype() == b.dtype() =>
            {
                static TABLE: UnaryTable = UnaryTable::new();
                let kernel = TABLE.of_type(a.dtype(), |b, dtype| {
                    b.input(DType::Bool).where_cond(b.input(dtype), b.input(dtype))
                })?;
                run_one(kernel, &[self, a, b], &[])
            }
            (Either::Tensor(a), Either::Tensor(b)) => {
                crate::tensor::map([self, a, b], |[c, a, b]| c.where_cond(a, b))
            }
            (Either::Tensor(a), Either::Number(n)) => {
                crate::tensor::map([self, a], |[c, a]| c.where_cond(a, n))
            }
            (Either::Number(n), Either::Tensor(b)) => {
                crate::tensor::map([self, b], |[c, b]| c.not_truth().where_cond(b, n))
            }
            (Either::Number(m), Either::Number(n)) => {
                let dtype = DType::Bool
                    .promote_scalar(m.kind())
                    .promote(DType::Bool.promote_scalar(n.kind()));
                crate::tensor::map([self], |[c]| {
                    c.where_cond(c.builder().constant(m, dtype), c.builder().constant(n, dtype))
                })
            }
        }
    }

    /// `value` where `mask` is true, self elsewhere. Equivalent: `torch.masked_fill`.
    #[track_caller]
    pub fn masked_fill(&self, mask: &Tensor, value: impl Into<Scalar>) -> Result<Tensor> {
        let _op = enter("masked_fill").on([("x", Some(self)), ("mask", Some(mask))]);
        let value = value.into();
        let dtype = self.dtype();
        if mask.dtype() == DType::Bool && dtype.promote_scalar(value.kind()) == dtype {
            static TABLE: UnaryTable = UnaryTable::new();
            let kernel = TABLE.of_type(dtype, |b, dtype| {
                let (x, mask) = (b.input(dtype), b.input(DType::Bool));
                mask.not().where_cond(x, b.param(dtype))
            })?;
            return run_one(kernel, &[self, mask], &[value]);
        }
        crate::tensor::map([self, mask], |[x, m]| {
            m.not_truth().where_cond(x, x.like(value)).cast(dtype)
        })
    }
}
