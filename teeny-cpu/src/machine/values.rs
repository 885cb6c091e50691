//! The values of a row program as the machine computes them: floats of one type, and nothing else.
//!
//! A bool is 0 or 1, the position along the row a float, as an input is that counts. Integers of
//! one value a row are computed exactly before the rows (`exact`) and reach the machine as floats.
//! Independent of instructions. Next: `program`.

use crate::loops::Loop;
use teeny_core::kernel::{
    Arithmetic, Bitwise, Comparison, Extent, Fold, Id, Kernel, OpCode, OpNode,
};
use teeny_core::{DType, Scalar};

/// The number of a value.
pub(crate) type ValueId = usize;

/// A per-element operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Element {
    Input(usize),
    /// The position along the row.
    Index,
}

/// A per-row operand that is known before the rows are computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum RowOperand {
    /// An input of floats.
    Input(usize),
    /// An integer or bool node as a float.
    Number(Id),
    /// An integer node as a float that compares with every position as the integer does.
    Position(Id),
    /// The element of an input at the position that a node has.
    At(usize, Id),
}

/// A number that all rows share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Number {
    Const(Scalar),
    Param(usize),
    /// The number of positions of a row.
    Length,
}

/// How a value is computed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ValueKind {
    Element(Element),
    Row(RowOperand),
    Number(Number),
    /// A function of other values.
    Of(Loop),
    /// A reduction, of [`Fold::Any`] and [`Fold::All`] as maximum and minimum.
    Fold(Fold),
}

/// A value and its sources.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Value {
    pub kind: ValueKind,
    pub from: [ValueId; 4],
    pub extent: Extent,
    /// The number of folds on the longest way to it.
    pub level: usize,
}

impl Value {
    /// The values that it is computed from.
    pub(crate) fn sources(&self) -> &[ValueId] {
        let count = match self.kind {
            ValueKind::Of(body) => body.operands(),
            ValueKind::Fold(_) => 1,
            ValueKind::Element(_) | ValueKind::Row(_) | ValueKind::Number(_) => 0,
        };
        &self.from[..count]
    }

    /// Whether it is computed for each element.
    pub(crate) fn is_of_elements(&self) -> bool {
        self.extent == Extent::Element && matches!(self.kind, ValueKind::Of(_))
    }
}

/// The translation of a node.
#[derive(Clone, Copy)]
enum Meaning {
    /// A value, of a float or bool node.
    Value(ValueId),
    /// An integer or bool of one value a row that is known exactly before the rows.
    Exact,
    /// The position along the row.
    Index,
}

/// The values of a program.
pub(crate) struct Values {
    pub values: Vec<Value>,
    /// The values of the outputs.
    pub outputs: Vec<ValueId>,
    /// F32 or F64.
    pub dtype: DType,
}

impl Values {
    /// The values of `program`. None if it has something that the machine does not compute.
    pub(crate) fn of(program: &Kernel) -> Option<Values> {
        let nodes = program.nodes();
        let mut floats = nodes.iter().filter(|node| node.dtype.is_float());
        let dtype = floats.next()?.dtype.compute();
        if floats.any(|node| node.dtype.compute() != dtype) {
            return None;
        }
        let extents = program.extents();
        let exact = exact_nodes(program, &extents);
        let values = Values { values: Vec::new(), outputs: Vec::new(), dtype };
        let mut lowering = Lowering { program, extents, exact, values, meanings: Vec::new() };
        for id in 0..nodes.len() {
            let meaning = lowering.node(id)?;
            lowering.meanings.push(meaning);
        }
        for (o, &id) in program.outputs().iter().enumerate() {
            let is_float = program.output_dtype(o).is_float();
            let place = lowering.value(id).filter(|_| is_float)?;
            // Written as stored, which rounds by itself.
            let value = lowering.values.values[place];
            let rounds = match program.output_dtype(o) {
                DType::BF16 => value.kind == ValueKind::Of(Loop::RoundToBf16),
                DType::F16 => value.kind == ValueKind::Of(Loop::RoundToF16),
                _ => false,
            };
            lowering.values.outputs.push(if rounds { value.from[0] } else { place });
        }
        Some(lowering.values)
    }
}

struct Lowering<'a> {
    program: &'a Kernel,
    extents: Vec<Extent>,
    exact: Vec<bool>,
    values: Values,
    meanings: Vec<Meaning>,
}

impl Lowering<'_> {
    /// The value with this content: one that is there, or a new one.
    fn add(&mut self, kind: ValueKind, sources: &[ValueId], extent: Extent) -> ValueId {
        let mut from = [sources.first().copied().unwrap_or(0); 4];
        from[..sources.len()].copy_from_slice(sources);
        let values = &mut self.values.values;
        let below = sources.iter().map(|&s| values[s].level).max().unwrap_or(0);
        let level = below + usize::from(matches!(kind, ValueKind::Fold(_)));
        let value = Value { kind, from, extent, level };
        values.iter().position(|known| *known == value).unwrap_or_else(|| {
            values.push(value);
            values.len() - 1
        })
    }

    fn number(&mut self, x: f64) -> ValueId {
        self.add(ValueKind::Number(Number::Const(Scalar::Float(x))), &[], Extent::Row)
    }

    fn of(&mut self, body: Loop, sources: &[ValueId]) -> ValueId {
        let is_element = |&s: &ValueId| self.values.values[s].extent == Extent::Element;
        let extent = if sources.iter().any(is_element) { Extent::Element } else { Extent::Row };
        if body == Loop::Mul && sources[0] == sources[1] {
            return self.add(ValueKind::Of(Loop::Square), &sources[..1], extent);
        }
        let exponent = sources.get(1).map(|&s| self.values.values[s].kind);
        if let (Loop::Pow, Some(ValueKind::Number(Number::Const(exponent)))) = (body, exponent)
            && let Some(body) = Loop::of_power(exponent.to_f64())
        {
            return match body {
                Loop::Copy => sources[0],
                _ => self.add(ValueKind::Of(body), &sources[..1], extent),
            };
        }
        self.add(ValueKind::Of(body), sources, extent)
    }

    /// The value of a node as a float.
    fn value(&mut self, id: Id) -> Option<ValueId> {
        Some(match self.meanings[id as usize] {
            Meaning::Value(place) => place,
            Meaning::Exact => self.add(ValueKind::Row(RowOperand::Number(id)), &[], Extent::Row),
            Meaning::Index => self.add(ValueKind::Element(Element::Index), &[], Extent::Element),
        })
    }

    fn node(&mut self, id: usize) -> Option<Meaning> {
        let program = self.program;
        let node = program.nodes()[id];
        if self.exact[id] {
            return Some(Meaning::Exact);
        }
        let extent = self.extents[id];
        let is_number = node.dtype.is_float() || node.dtype == DType::Bool;
        let leaf = |this: &mut Self, kind| Some(Meaning::Value(this.add(kind, &[], extent)));
        match node.op {
            OpCode::Index => return Some(Meaning::Index),
            OpCode::Cast => return self.cast(&node),
            OpCode::Length if node.dtype.is_float() => {
                return leaf(self, ValueKind::Number(Number::Length));
            }
            OpCode::Input(_) | OpCode::Param(_) | OpCode::Const(_) if !node.dtype.is_float() => {
                return None;
            }
            OpCode::Input(i) if extent == Extent::Element => {
                return leaf(self, ValueKind::Element(Element::Input(i.into())));
            }
            OpCode::Input(i) => return leaf(self, ValueKind::Row(RowOperand::Input(i.into()))),
            OpCode::Param(i) => return leaf(self, ValueKind::Number(Number::Param(i.into()))),
            OpCode::Const(x) => return leaf(self, ValueKind::Number(Number::Const(x))),
            OpCode::At => {
                let OpCode::Input(i) = program.nodes()[node.src[0] as usize].op else {
                    return None;
                };
                let known = matches!(self.meanings[node.src[1] as usize], Meaning::Exact);
                if !known || !node.dtype.is_float() {
                    return None;
                }
                return leaf(self, ValueKind::Row(RowOperand::At(i.into(), node.src[1])));
            }
            OpCode::Compare(comparison) => return self.compare(comparison, &node),
            _ if !is_number => return None,
            _ => {}
        }
        let mut from = [0; 3];
        for (to, &source) in from.iter_mut().zip(node.sources()) {
            *to = self.value(source)?;
        }
        let from = &from[..node.sources().len()];
        // Other integers than the position have no value.
        let is_float = |&id: &Id| {
            let dtype = program.nodes()[id as usize].dtype;
            dtype.is_float() || dtype == DType::Bool
        };
        if !node.sources().iter().all(is_float) {
            return None;
        }
        let place = match node.op {
            OpCode::Where => return Some(Meaning::Value(self.choice(from))),
            OpCode::IsNan => {
                let (zero, one) = (self.number(0.0), self.number(1.0));
                self.of(Loop::SelectNe, &[from[0], from[0], one, zero])
            }
            OpCode::Not if node.dtype == DType::Bool => {
                let one = self.number(1.0);
                self.of(Loop::Sub, &[one, from[0]])
            }
            OpCode::Bitwise(op) if node.dtype == DType::Bool => match op {
                Bitwise::And => self.of(Loop::Mul, from),
                Bitwise::Or => self.of(Loop::Max, from),
                Bitwise::Xor => {
                    let (zero, one) = (self.number(0.0), self.number(1.0));
                    self.of(Loop::SelectNe, &[from[0], from[1], one, zero])
                }
                Bitwise::Shl | Bitwise::Shr => return None,
            },
            OpCode::Fold(fold) => {
                let fold = match fold {
                    Fold::Any => Fold::Max,
                    Fold::All => Fold::Min,
                    fold => fold,
                };
                self.add(ValueKind::Fold(fold), from, Extent::Row)
            }
            op if node.dtype.is_float() => self.of(Loop::of_op(op)?, from),
            _ => return None,
        };
        Some(Meaning::Value(place))
    }

    fn cast(&mut self, node: &OpNode) -> Option<Meaning> {
        let id = node.src[0];
        let source = self.program.nodes()[id as usize];
        if let Meaning::Index = self.meanings[id as usize] {
            let holds = matches!(node.dtype, DType::I32 | DType::I64 | DType::U32 | DType::U64);
            return match holds {
                true => Some(Meaning::Index),
                false if node.dtype.is_float() && !node.dtype.is_half() => {
                    self.value(id).map(Meaning::Value)
                }
                false => None,
            };
        }
        // A 16-bit float is rounded before it is converted, and after.
        let is_rounded = matches!(source.op, OpCode::Input(_) | OpCode::At | OpCode::Cast);
        let from = if is_rounded { DType::F32 } else { source.dtype };
        let x = self.value(id)?;
        let x = self.rounded(x, from);
        let place = match node.dtype {
            DType::Bool if source.dtype.is_float() => {
                let (zero, one) = (self.number(0.0), self.number(1.0));
                self.of(Loop::SelectNe, &[x, zero, one, zero])
            }
            dtype if dtype == source.dtype => x,
            dtype if dtype.is_float() => self.rounded(x, dtype),
            _ => return None,
        };
        Some(Meaning::Value(place))
    }

    fn rounded(&mut self, x: ValueId, dtype: DType) -> ValueId {
        match dtype {
            DType::BF16 => self.of(Loop::RoundToBf16, &[x]),
            DType::F16 => self.of(Loop::RoundToF16, &[x]),
            _ => x,
        }
    }

    fn compare(&mut self, comparison: Comparison, node: &OpNode) -> Option<Meaning> {
        let [a, b, _] = node.src;
        let meanings = [a, b].map(|id| self.meanings[id as usize]);
        let is_index = meanings.iter().any(|m| matches!(m, Meaning::Index));
        let mut side = |id: Id| match self.meanings[id as usize] {
            Meaning::Exact if is_index => {
                Some(self.add(ValueKind::Row(RowOperand::Position(id)), &[], Extent::Row))
            }
            Meaning::Value(_) if is_index => None,
            // Two integers that are known are compared exactly; with a bool, both are 0 or 1.
            _ => self.value(id),
        };
        let (a, b) = (side(a)?, side(b)?);
        let (zero, one) = (self.number(0.0), self.number(1.0));
        Some(Meaning::Value(self.of(Loop::select_by(comparison), &[a, b, one, zero])))
    }

    /// `from[1]` where `from[0]` is true, else `from[2]`.
    fn choice(&mut self, from: &[ValueId]) -> ValueId {
        let (zero, one) = (self.number(0.0), self.number(1.0));
        let condition = self.values.values[from[0]];
        let [u, v, yes, no] = condition.from;
        match condition.kind {
            ValueKind::Of(
                body @ (Loop::SelectLt | Loop::SelectLe | Loop::SelectEq | Loop::SelectNe),
            ) if (yes, no) == (one, zero) => self.of(body, &[u, v, from[1], from[2]]),
            _ => self.of(Loop::SelectNe, &[from[0], zero, from[1], from[2]]),
        }
    }
}

/// For each node: true if it is a per-row integer or bool that depends on no float.
fn exact_nodes(program: &Kernel, extents: &[Extent]) -> Vec<bool> {
    let mut exact: Vec<bool> = Vec::with_capacity(extents.len());
    for (node, &extent) in program.nodes().iter().zip(extents) {
        // 64 bits without a sign do not fit.
        let fits = !node.dtype.is_float() && node.dtype != DType::U64;
        let is_known = match node.op {
            OpCode::Input(_) | OpCode::Param(_) => node.dtype != DType::Bool,
            OpCode::Const(_) | OpCode::Cast | OpCode::Compare(_) | OpCode::Where => true,
            OpCode::Not | OpCode::Bitwise(Bitwise::And | Bitwise::Or | Bitwise::Xor) => {
                node.dtype == DType::Bool
            }
            OpCode::Arithmetic(op) => matches!(
                op,
                Arithmetic::Add
                    | Arithmetic::Sub
                    | Arithmetic::Mul
                    | Arithmetic::Max
                    | Arithmetic::Min
            ),
            _ => false,
        };
        let sources = node.sources().iter().all(|&id| exact[id as usize]);
        exact.push(fits && extent == Extent::Row && is_known && sources);
    }
    exact
}
