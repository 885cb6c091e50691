//! Kernels of single operations, built once per process: the fast path finds them by array index,
//! without hashing or locking.

use super::Kernel;
use super::build::{Builder, Expr};
use crate::dtype::DType;
use crate::error::Result;
use crate::scalar::Scalar;
use std::sync::{Arc, OnceLock};

const TYPES: usize = DType::ALL.len();
/// Bool, integer, float: the kinds of a Rust number.
const KINDS: usize = 3;

type Cell = OnceLock<Arc<Kernel>>;

/// Builds the expression of a kernel of one operand.
pub type Unary = for<'b> fn(Expr<'b>) -> Expr<'b>;
/// As [`Unary`], of two operands.
pub type Binary = for<'b> fn(Expr<'b>, Expr<'b>) -> Expr<'b>;
/// Builds the expression of a kernel whose operands' types follow from one.
pub type OfType = for<'b> fn(&'b Builder, DType) -> Expr<'b>;

fn get(
    cell: &'static Cell,
    build: impl FnOnce() -> Result<Kernel>,
) -> Result<&'static Arc<Kernel>> {
    match cell.get() {
        Some(kernel) => Ok(kernel),
        None => {
            let kernel = Arc::new(build()?);
            Ok(cell.get_or_init(|| kernel))
        }
    }
}

/// The kernels of one function of one operand, or of operands whose types follow from one, per
/// type.
pub struct UnaryTable([Cell; TYPES]);

impl UnaryTable {
    /// An empty table, for a `static`.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> UnaryTable {
        UnaryTable([const { Cell::new() }; TYPES])
    }

    /// The kernel for an operand of type `dtype`.
    ///
    /// # Errors
    /// If the function does not accept the type.
    pub fn get(&'static self, dtype: DType, build: Unary) -> Result<&'static Arc<Kernel>> {
        get(&self.0[dtype as usize], || {
            let builder = Builder::new();
            let x = builder.input(dtype);
            builder.finish(&[build(x)])
        })
    }

    /// The kernel of a function whose operands' types follow from `dtype`.
    ///
    /// # Errors
    /// If the function does not accept the type.
    pub fn of_type(&'static self, dtype: DType, build: OfType) -> Result<&'static Arc<Kernel>> {
        get(&self.0[dtype as usize], || {
            let builder = Builder::new();
            builder.finish(&[build(&builder, dtype)])
        })
    }
}

/// The kernels of one function of two operands: two tensors, tensor and number, number and tensor.
pub struct BinaryTable {
    tensors: [[Cell; TYPES]; TYPES],
    scalar_right: [[Cell; KINDS]; TYPES],
    scalar_left: [[Cell; KINDS]; TYPES],
}

impl BinaryTable {
    /// An empty table, for a `static`.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> BinaryTable {
        BinaryTable {
            tensors: [const { [const { Cell::new() }; TYPES] }; TYPES],
            scalar_right: [const { [const { Cell::new() }; KINDS] }; TYPES],
            scalar_left: [const { [const { Cell::new() }; KINDS] }; TYPES],
        }
    }

    /// The kernel for tensors of types `lhs` and `rhs`.
    ///
    /// # Errors
    /// If the function does not accept the promoted type.
    pub fn tensors(
        &'static self,
        lhs: DType,
        rhs: DType,
        build: Binary,
    ) -> Result<&'static Arc<Kernel>> {
        get(&self.tensors[lhs as usize][rhs as usize], || {
            let builder = Builder::new();
            let (a, b) = (builder.input(lhs), builder.input(rhs));
            builder.finish(&[build(a, b)])
        })
    }

    /// The kernel for a tensor of type `lhs` and a number on the right, given as parameter 0.
    ///
    /// # Errors
    /// If the function does not accept the promoted type.
    pub fn scalar_right(
        &'static self,
        lhs: DType,
        scalar: Scalar,
        build: Binary,
    ) -> Result<&'static Arc<Kernel>> {
        get(&self.scalar_right[lhs as usize][kind(scalar)], || with_param(lhs, scalar, build))
    }

    /// The kernel for a number on the left, given as parameter 0, and a tensor of type `rhs`.
    ///
    /// # Errors
    /// If the function does not accept the promoted type.
    pub fn scalar_left(
        &'static self,
        scalar: Scalar,
        rhs: DType,
        build: Binary,
    ) -> Result<&'static Arc<Kernel>> {
        get(&self.scalar_left[rhs as usize][kind(scalar)], || {
            with_param(rhs, scalar, |x, p| build(p, x))
        })
    }
}

fn with_param(
    dtype: DType,
    scalar: Scalar,
    build: impl for<'b> Fn(Expr<'b>, Expr<'b>) -> Expr<'b>,
) -> Result<Kernel> {
    let builder = Builder::new();
    let x = builder.input(dtype);
    let p = builder.param(dtype.promote_scalar(scalar.kind()));
    builder.finish(&[build(x, p)])
}

fn kind(scalar: Scalar) -> usize {
    match scalar {
        Scalar::Bool(_) => 0,
        Scalar::Int(_) | Scalar::UInt(_) => 1,
        Scalar::Float(_) => 2,
    }
}
