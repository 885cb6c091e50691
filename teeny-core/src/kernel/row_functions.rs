//! The vocabulary of row programs: methods of [`Expr`] that know the row.

use super::build::{Builder, Expr, ExprOperand};
use super::errors::{mixed, not_accepted};
use super::{Extent, Fold, Id, OpCode};
use crate::dtype::DType;
use crate::error::Error;

/// Values of rows: for the programs of [`map_rows`](crate::map_rows).
impl<'b> Expr<'b> {
    /// The sum along the row, of the type that [`Tensor::sum`](crate::Tensor::sum) has.
    pub fn sum(self) -> Expr<'b> {
        self.cast(self.dtype().sum_type()).fold(Fold::Sum)
    }

    /// The product along the row, of the type that [`Tensor::prod`](crate::Tensor::prod) has.
    pub fn prod(self) -> Expr<'b> {
        self.cast(self.dtype().sum_type()).fold(Fold::Prod)
    }

    /// The largest value of the row; NaN if any is. `maximum` is the larger of two values.
    pub fn max(self) -> Expr<'b> {
        self.fold(Fold::Max)
    }

    /// The smallest value of the row; NaN if any is. `minimum` is the smaller of two values.
    pub fn min(self) -> Expr<'b> {
        self.fold(Fold::Min)
    }

    /// True if a value of the row is not 0.
    pub fn any(self) -> Expr<'b> {
        self.truth().fold(Fold::Any)
    }

    /// True if no value of the row is 0.
    pub fn all(self) -> Expr<'b> {
        self.truth().fold(Fold::All)
    }

    /// The mean of the row; integers become `F32`.
    pub fn mean(self) -> Expr<'b> {
        let x = self.cast(self.dtype().to_float());
        x.sum() / x.length()
    }

    /// The variance of the row, in two passes: the sum of the squared differences from the mean,
    /// divided by the number of elements less `correction`, or by 0 if that is negative.
    pub fn var(self, correction: usize) -> Expr<'b> {
        self.scaled_var(correction, None)
    }

    /// The variance of the row's values times `scale`.
    pub(crate) fn scaled_var(self, correction: usize, scale: Option<Expr<'b>>) -> Expr<'b> {
        let x = self.cast(self.dtype().to_float());
        let centred = x - x.mean();
        // the mean's rounding error
        let centred = centred - centred.mean();
        let centred = scale.map_or(centred, |scale| centred * scale);
        let count = x.length() - correction as f64;
        centred.square().sum() / count.maximum(0.0)
    }

    /// `log Σ exp(x)` of the row without overflow.
    pub fn logsumexp(self) -> Expr<'b> {
        let max = self.max();
        // of a row of only -inf, and one with +inf: the maximum itself
        let shift = max.is_finite().where_cond(max, max.like(0));
        (self - shift).exp().sum().log() + shift
    }

    /// `exp(x - max) / Σ exp(x - max)`, as [`Tensor::softmax`](crate::Tensor::softmax).
    pub fn softmax(self) -> Expr<'b> {
        let exp = (self - self.max()).exp();
        exp / exp.sum()
    }

    /// `x - max - log Σ exp(x - max)`, as [`Tensor::log_softmax`](crate::Tensor::log_softmax).
    pub fn log_softmax(self) -> Expr<'b> {
        let shifted = self - self.max();
        shifted - shifted.exp().sum().log()
    }

    /// The number of positions of the row: of this value's type if it is a float, otherwise of the
    /// type of its [`Expr::sum`], because 8 bits do not hold the length of most rows.
    pub fn length(self) -> Expr<'b> {
        self.builder.length(self.dtype().sum_type())
    }

    /// The position along the row, from 0 (`I32`).
    pub fn index(self) -> Expr<'b> {
        self.builder.index()
    }

    /// `fold` of the values of the row. A value of the row itself counts once for each position.
    pub fn fold(self, fold: Fold) -> Expr<'b> {
        let dtype = self.dtype();
        let op = OpCode::Fold(match fold {
            Fold::Max if dtype == DType::Bool => Fold::Any,
            Fold::Min if dtype == DType::Bool => Fold::All,
            fold => fold,
        });
        if !op.accepts(dtype) {
            self.builder.fail(not_accepted(op, dtype));
            return self;
        }
        match self.node().op {
            OpCode::Const(value) if fold == Fold::Sum => {
                self.builder.length(dtype) * self.builder.constant(value, dtype)
            }
            _ => self.builder.add(op, [self.id, 0, 0], dtype),
        }
    }

    /// The value at `position` of the row: an integer of one value a row, or a Rust number. A
    /// position outside the row is an error when the program runs.
    pub fn at(self, position: impl ExprOperand<'b>) -> Expr<'b> {
        let position = match self.dtype().is_int() {
            true => position.expr(self),
            false => position.expr(self.index()),
        };
        let builder = self.builder;
        if !builder.owns(position) {
            builder.fail(mixed());
            return self;
        }
        if !position.dtype().is_int() || position.extent() == Extent::Element {
            builder.fail(
                Error::value(format!(
                    "at(position) takes a per-row integer, not {}",
                    match position.extent() {
                        Extent::Element => "one that differs along the row".to_string(),
                        Extent::Row => position.dtype().to_string(),
                    }
                ))
                .help("x.gather(axis, &index)? reads an element for each element"),
            );
            return self;
        }
        // Per-element nodes are computed at this position alone.
        let mut at: Vec<Option<Expr<'b>>> = vec![None; self.id as usize + 1];
        let reads = builder.reads_of(self);
        for id in reads {
            let node = builder.node(id);
            let source = |i: usize| {
                let known = at.get(node.src[i] as usize).copied().flatten();
                known.map_or(node.src[i], |e| e.id)
            };
            let value = match node.op {
                OpCode::Input(_) => builder.add(OpCode::At, [id, position.id, 0], node.dtype),
                _ if builder.extent(id) == Extent::Row => continue,
                OpCode::Index => position.cast(DType::I32),
                op => {
                    let mut src = [0; 3];
                    (0..op.arity()).for_each(|i| src[i] = source(i));
                    builder.add(op, src, node.dtype)
                }
            };
            at[id as usize] = Some(value);
        }
        at[self.id as usize].unwrap_or(self)
    }
}

impl Builder {
    /// The position along the row, from 0 (`I32`).
    pub fn index(&self) -> Expr<'_> {
        self.add(OpCode::Index, [0; 3], DType::I32)
    }

    /// The length of the row as `dtype`, which must not be bool.
    pub fn length(&self, dtype: DType) -> Expr<'_> {
        if !OpCode::Length.accepts(dtype) {
            self.fail(not_accepted(OpCode::Length, dtype));
        }
        self.add(OpCode::Length, [0; 3], dtype)
    }

    /// The nodes that `x` is computed from, and its own, sources before users.
    fn reads_of(&self, x: Expr<'_>) -> Vec<Id> {
        let mut needed = vec![false; x.id as usize + 1];
        needed[x.id as usize] = true;
        for id in (0..=x.id).rev() {
            if needed[id as usize] {
                let node = self.node(id);
                node.sources().iter().for_each(|&source| needed[source as usize] = true);
            }
        }
        (0..=x.id).filter(|&id| needed[id as usize]).collect()
    }
}
