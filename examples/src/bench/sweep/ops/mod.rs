//! The operations of the sweep, a row each: types, whether it has a gradient, how a case is drawn,
//! and the call. `weight` is how often a row is drawn.

mod elementwise;
mod memory;
mod products;
mod rows;
mod windows;

use super::case::{Call, Case, Fill, Input, Layout};
use super::draw::{Draw, MAX_ELEMENTS};
use teeny_core::{DType, Result, Tensor};

pub(super) const FLOATS: &[DType] = &[DType::F32, DType::F64, DType::BF16, DType::F16];
const INTEGERS: &[DType] = &[DType::U8, DType::I8, DType::I16, DType::I32, DType::I64];
const ALL: &[DType] = &[
    DType::F32,
    DType::F64,
    DType::BF16,
    DType::F16,
    DType::U8,
    DType::I8,
    DType::I16,
    DType::I32,
    DType::I64,
    DType::Bool,
];
const NUMBERS: &[DType] = ALL.split_at(9).0;
/// The types that other libraries have linear algebra in.
const DECOMPOSED: &[DType] = &[DType::F32, DType::F64];

/// The random parts of a row: operands, parameters, call.
struct Drawn {
    inputs: Vec<(Vec<usize>, Fill)>,
    args: Vec<String>,
    call: Call,
}

impl Drawn {
    /// A call of one operand.
    fn one(
        shape: Vec<usize>,
        fill: Fill,
        call: impl Fn(&Tensor) -> Result<Tensor> + 'static,
    ) -> Drawn {
        Drawn { inputs: vec![(shape, fill)], args: vec![], call: Box::new(move |_, x| call(&x[0])) }
    }

    /// A call of several operands.
    fn of(
        inputs: Vec<(Vec<usize>, Fill)>,
        call: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
    ) -> Drawn {
        Drawn { inputs, args: vec![], call: Box::new(move |_, x| call(x)) }
    }

    /// With a parameter.
    fn arg(mut self, value: impl std::fmt::Debug) -> Drawn {
        self.args.push(format!("{value:?}"));
        self
    }
}

/// Draws the operands and parameters of a case of a type.
type DrawOf = dyn Fn(&mut Draw, DType) -> Drawn;

/// An operation.
pub(super) struct SweepOp {
    /// Its name.
    pub(super) name: &'static str,
    /// How often it is drawn.
    pub(super) weight: usize,
    /// Its types.
    types: &'static [DType],
    /// Whether it has a gradient.
    grad: bool,
    /// The share of operands that are not row-major.
    strided: f64,
    draw: Box<DrawOf>,
}

impl SweepOp {
    fn new(
        name: &'static str,
        weight: usize,
        types: &'static [DType],
        draw: impl Fn(&mut Draw, DType) -> Drawn + 'static,
    ) -> SweepOp {
        SweepOp { name, weight, types, grad: true, strided: 0.0, draw: Box::new(draw) }
    }

    fn without_grad(mut self) -> SweepOp {
        self.grad = false;
        self
    }

    fn strided(mut self) -> SweepOp {
        self.strided = 0.3;
        self
    }

    /// The subset of `dtypes` that it supports, with a gradient if `grad`.
    pub(super) fn types_of(&self, dtypes: &[DType], grad: bool) -> Vec<DType> {
        if grad && !self.grad {
            return vec![];
        }
        let fits = |d: &DType| self.types.contains(d) && (!grad || d.is_float());
        dtypes.iter().copied().filter(fits).collect()
    }

    /// A case of one of `dtypes`.
    pub(super) fn draw(&self, draw: &mut Draw, dtypes: &[DType], grad: bool) -> Case {
        let dtype = draw.pick(dtypes);
        let Drawn { inputs, args, call } = (self.draw)(draw, dtype);
        let inputs = inputs
            .into_iter()
            .map(|(shape, fill)| {
                let layout = self.layout(draw, &shape, grad);
                let dtype = match fill {
                    Fill::Index(_) => DType::I32,
                    Fill::Mask => DType::Bool,
                    _ => dtype,
                };
                Input { shape, layout, fill, dtype }
            })
            .collect();
        Case { op: self.name, dtype, grad, inputs, args, call }
    }

    fn layout(&self, draw: &mut Draw, shape: &[usize], grad: bool) -> Layout {
        let numel: usize = shape.iter().product();
        if !draw.chance(self.strided) || shape.len() < 2 {
            return Layout::Packed;
        }
        match draw.below(5) {
            0..2 => Layout::Transposed,
            2..4 if 2 * numel <= 2 * MAX_ELEMENTS => Layout::Sliced,
            4 if !grad => Layout::Expanded,
            _ => Layout::Packed,
        }
    }
}

/// The rows with one of `dtypes`, with a gradient if `grad`, whose names are in `only`.
pub(super) fn rows(dtypes: &[DType], grad: bool, only: &[String]) -> Vec<SweepOp> {
    let mut rows = Vec::new();
    elementwise::rows(&mut rows);
    memory::rows(&mut rows);
    products::rows(&mut rows);
    rows::rows(&mut rows);
    windows::rows(&mut rows);
    rows.retain(|row| {
        !row.types_of(dtypes, grad).is_empty()
            && (only.is_empty() || only.iter().any(|name| name == row.name))
    });
    rows
}

/// An axis of a tensor.
fn axis(draw: &mut Draw, shape: &[usize]) -> isize {
    draw.below(shape.len()) as isize
}
