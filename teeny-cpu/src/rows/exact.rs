//! The per-row integers of a row program, computed before the rows.

use super::job::Job;
use crate::index::integers;
use crate::scratch::Array;
use teeny_core::kernel::{Arithmetic, Bitwise, Comparison, Id, OpCode};
use teeny_core::{DType, Error, Result, Scalar};

/// `x` as the number of its type that has its lowest bits.
fn wrapped(x: i64, dtype: DType) -> i64 {
    match dtype {
        DType::Bool => i64::from(x != 0),
        DType::I8 => i64::from(x as i8),
        DType::I16 => i64::from(x as i16),
        DType::I32 => i64::from(x as i32),
        DType::U8 => i64::from(x as u8),
        DType::U16 => i64::from(x as u16),
        DType::U32 => i64::from(x as u32),
        _ => x,
    }
}

impl Job<'_> {
    /// The value of node `id`, one of [`nodes`], in each row.
    ///
    /// # Errors
    /// If allocation fails.
    pub(super) fn exact(&self, id: Id) -> Result<Array<i64>> {
        let (cpu, rows) = (self.cpu, self.rows());
        let node = self.program.nodes()[id as usize];
        let of = |i: usize| self.exact(node.src[i]);
        let scalar = |x: Scalar| x.cast(node.dtype).to_i64_wrapping();
        let binary = |f: fn(i64, i64) -> i64| {
            let (a, b) = (of(0)?, of(1)?);
            Array::from_fn(cpu, rows, |r| wrapped(f(a[r], b[r]), node.dtype))
        };
        match node.op {
            OpCode::Input(i) => {
                let x = integers(cpu, self.inputs[usize::from(i)])?;
                Array::from_fn(cpu, rows, |r| x[r])
            }
            OpCode::Param(i) => Array::filled(cpu, rows, scalar(self.params[usize::from(i)])),
            OpCode::Const(x) => Array::filled(cpu, rows, scalar(x)),
            OpCode::Cast => {
                let x = of(0)?;
                Array::from_fn(cpu, rows, |r| wrapped(x[r], node.dtype))
            }
            OpCode::Not => {
                let x = of(0)?;
                Array::from_fn(cpu, rows, |r| 1 - x[r])
            }
            OpCode::Where => {
                let (condition, a, b) = (of(0)?, of(1)?, of(2)?);
                Array::from_fn(cpu, rows, |r| if condition[r] != 0 { a[r] } else { b[r] })
            }
            OpCode::Compare(op) => binary(match op {
                Comparison::Lt => |a, b| i64::from(a < b),
                Comparison::Le => |a, b| i64::from(a <= b),
                Comparison::Eq => |a, b| i64::from(a == b),
                Comparison::Ne => |a, b| i64::from(a != b),
            }),
            OpCode::Bitwise(op) => binary(match op {
                Bitwise::And => |a, b| a & b,
                Bitwise::Or => |a, b| a | b,
                _ => |a, b| a ^ b,
            }),
            OpCode::Arithmetic(op) => binary(match op {
                Arithmetic::Add => i64::wrapping_add,
                Arithmetic::Sub => i64::wrapping_sub,
                Arithmetic::Mul => i64::wrapping_mul,
                Arithmetic::Max => i64::max,
                _ => i64::min,
            }),
            _ => Err(Error::internal("a node that is not known before the rows")),
        }
    }
}
