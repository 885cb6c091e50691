//! A row program as instructions: passes over the elements of a row, and the computations once for
//! each row before them.
//!
//! ```text
//! softmax      pass 0   load x ─ fold max
//!              pass 1   load x ─ sub max ─ exp ─ fold sum ─ store kept 0
//!              pass 2   load kept 0 ─ div sum ─ store output 0
//! ```
//! Pass `k` computes the values that need `k` folds one after another. A value that a later pass
//! needs too is computed there again, unless that costs more than a load. Independent of addresses:
//! operands are numbers of arrays, which `bind` finds.

use super::instructions::{Code, code_of, is_read, lower};
use super::values::{Element, Number, RowOperand, Value, ValueId, ValueKind, Values};
use crate::loops::Loop;
use teeny_core::DType;
use teeny_core::kernel::{Extent, Fold, Kernel};

/// The operand or result of an instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Operand {
    /// An operation on the accumulator alone.
    None,
    /// A per-element operand, by its index in [`Program::elements`].
    Element(usize),
    /// A per-row operand, by its index in [`Program::row_operands`] or, after these, among the
    /// computed ones.
    Row(usize),
    Number(usize),
    /// A block of vectors that the next block overwrites.
    Slot(usize),
    /// Values of elements for a later pass.
    Kept(usize),
    /// The output of this number, which has an element at each position.
    Output(usize),
    /// The numbers that the accumulator is combined with for this row value.
    Fold(usize),
    /// Memory of two buffers for a function.
    Buffers,
}

pub(crate) type Instr = (Code, Operand);

/// A reduction: how, and the row value that it becomes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Reduction {
    pub fold: Fold,
    pub row: usize,
}

/// A pass over the elements of rows.
#[derive(Default, Debug)]
pub(crate) struct Pass {
    /// Instructions that run once per row, before the loop.
    pub before: Vec<Instr>,
    pub instrs: Vec<Instr>,
    pub folds: Vec<Reduction>,
}

/// The most values that are kept for a later pass.
const MAX_KEPT_VALUES: usize = 3;
/// The most values of blocks, and of rows.
const MAX_SLOTS: usize = 24;
const MAX_ROWS: usize = 32;
/// The most instructions of a pass.
pub(crate) const MAX_INSTRS: usize = 96;

/// The instructions of a row program.
#[derive(Debug)]
pub(crate) struct Program {
    /// F32 or F64.
    pub dtype: DType,
    pub elements: Vec<Element>,
    pub row_operands: Vec<RowOperand>,
    pub numbers: Vec<Number>,
    pub passes: Vec<Pass>,
    /// How many row values are computed.
    pub computed: usize,
    pub slots: usize,
    pub kept: usize,
    /// The output in whose memory the first kept value may be: its only reader writes there.
    pub kept_in: Option<usize>,
    /// The outputs of one value a row, and their row values.
    pub row_outputs: Vec<(usize, usize)>,
}

/// Whether a value is loaded in less time than it is computed.
fn is_costly(body: Loop) -> bool {
    code_of(body).is_none() || matches!(body, Loop::Sqrt | Loop::Rsqrt | Loop::Recip | Loop::Div)
}

impl Program {
    /// The instructions of `kernel`. None if it has something that the machine does not compute.
    pub(crate) fn of(kernel: &Kernel) -> Option<Program> {
        let Values { values, outputs, dtype } = Values::of(kernel)?;
        let mut compiler = Compiler::new(values, dtype);
        let is_element = |o: usize| kernel.output_extent(o) == Extent::Element;
        compiler.outputs =
            outputs.iter().copied().enumerate().filter(|&(o, _)| is_element(o)).collect();
        let of_rows: Vec<(usize, ValueId)> =
            outputs.iter().copied().enumerate().filter(|&(o, _)| !is_element(o)).collect();
        let is_own = |&&(o, _): &&(usize, ValueId)| kernel.output_dtype(o) == dtype;
        compiler.own_outputs = compiler.outputs.iter().filter(is_own).copied().collect();
        compiler.keep();
        let last = compiler.values.iter().map(|value| value.level).max().unwrap_or(0);
        for level in 0..=last {
            let mut pass = Pass { before: compiler.before(level)?, ..Pass::default() };
            compiler.pass(level, &mut pass)?;
            if pass.instrs.len() > MAX_INSTRS || pass.before.len() > MAX_INSTRS {
                return None;
            }
            compiler.program.passes.push(pass);
        }
        for (o, place) in of_rows {
            let Operand::Row(row) = compiler.operand(place)? else { return None };
            compiler.program.row_outputs.push((o, row));
        }
        let Compiler { program, rows, .. } = compiler;
        let fits = program.slots <= MAX_SLOTS && rows.len() <= MAX_ROWS;
        fits.then_some(program)
    }
}

struct Compiler {
    values: Vec<Value>,
    /// The outputs that have an element at each position.
    outputs: Vec<(usize, ValueId)>,
    /// Those that are stored in the type of the program, from which values can be read again.
    own_outputs: Vec<(usize, ValueId)>,
    /// The values that are kept, and the first pass that computes each.
    kept: Vec<(ValueId, usize)>,
    /// The row values that are computed.
    rows: Vec<ValueId>,
    /// Where the values of the current pass that are read again are: in a slot or an output.
    slots: Vec<(ValueId, Operand)>,
    /// The level of the current pass.
    level: usize,
    program: Program,
}

impl Compiler {
    fn new(values: Vec<Value>, dtype: DType) -> Compiler {
        let program = Program {
            dtype,
            elements: Vec::new(),
            row_operands: Vec::new(),
            numbers: Vec::new(),
            passes: Vec::new(),
            computed: 0,
            slots: 0,
            kept: 0,
            kept_in: None,
            row_outputs: Vec::new(),
        };
        let mut compiler = Compiler {
            values,
            outputs: Vec::new(),
            own_outputs: Vec::new(),
            kept: Vec::new(),
            rows: Vec::new(),
            slots: Vec::new(),
            level: 0,
            program,
        };
        for place in 0..compiler.values.len() {
            match compiler.values[place].kind {
                ValueKind::Element(element) => compiler.program.elements.push(element),
                ValueKind::Row(operand) => compiler.program.row_operands.push(operand),
                ValueKind::Number(number) => compiler.program.numbers.push(number),
                ValueKind::Of(_) if compiler.values[place].extent == Extent::Element => {}
                ValueKind::Of(_) | ValueKind::Fold(_) => compiler.rows.push(place),
            }
        }
        compiler.program.computed = compiler.rows.len();
        compiler
    }

    /// The results of pass `level`: outputs, and values that are folded.
    fn targets(&self, level: usize) -> Vec<ValueId> {
        let outputs = self.outputs.iter().map(|&(_, place)| place);
        let folded = self.values.iter().filter(|value| matches!(value.kind, ValueKind::Fold(_)));
        let folded = folded.map(|value| value.from[0]);
        outputs.chain(folded).filter(|&place| self.values[place].level == level).collect()
    }

    /// The values that pass `level` computes for each element, sources before users.
    fn computed(&self, level: usize) -> Vec<ValueId> {
        let mut needed = vec![false; self.values.len()];
        self.targets(level).into_iter().for_each(|place| needed[place] = true);
        for place in (0..self.values.len()).rev() {
            let value = self.values[place];
            if needed[place] && value.is_of_elements() && !self.is_loaded(place, level) {
                value.sources().iter().for_each(|&source| needed[source] = true);
            }
        }
        let is_computed = |&place: &ValueId| {
            needed[place] && self.values[place].is_of_elements() && !self.is_loaded(place, level)
        };
        (0..self.values.len()).filter(is_computed).collect()
    }

    /// Whether an earlier pass has kept a value.
    fn is_loaded(&self, place: ValueId, level: usize) -> bool {
        self.kept.iter().any(|&(kept, first)| kept == place && first < level)
    }

    /// Chooses the values that are kept: costly ones that more than one pass computes.
    fn keep(&mut self) {
        let last = self.values.iter().map(|value| value.level).max().unwrap_or(0);
        for level in 0..last {
            for place in self.computed(level).into_iter().rev() {
                let ValueKind::Of(body) = self.values[place].kind else { continue };
                let again = (level + 1..=last).any(|later| self.computed(later).contains(&place));
                if is_costly(body) && again && self.kept.len() < MAX_KEPT_VALUES {
                    self.kept.push((place, level));
                }
            }
        }
        self.program.kept = self.kept.len();
        if let [(first, _), ..] = self.kept[..]
            && let [(output, target)] = self.outputs[..]
        {
            let level = self.values[target].level;
            let reads = |later: usize| {
                let computed = self.computed(later);
                let read = computed.iter().any(|&p| self.values[p].sources().contains(&first));
                read || self.targets(later).contains(&first)
            };
            let others = (0..=last).filter(|&later| later > level && reads(later)).count();
            let is_written = level == last && target != first;
            let folds = self.values.iter().any(|v| {
                matches!(v.kind, ValueKind::Fold(_)) && self.values[v.from[0]].level == level
            });
            if others == 0 && is_written && !folds {
                self.program.kept_in = Some(output);
            }
        }
    }

    /// The instructions of the row values of a level that are not folds.
    fn before(&mut self, level: usize) -> Option<Vec<Instr>> {
        let is_now = |&place: &ValueId| {
            let value = self.values[place];
            value.level == level && matches!(value.kind, ValueKind::Of(_))
        };
        let steps: Vec<ValueId> = self.rows.iter().copied().filter(is_now).collect();
        let mut instrs = Vec::new();
        self.level = level;
        for (k, &place) in steps.iter().enumerate() {
            let before = k.checked_sub(1).map(|k| steps[k]);
            self.step(place, before, &mut instrs)?;
            instrs.push((Code::Store, self.operand(place)?));
        }
        Some(instrs)
    }

    fn pass(&mut self, level: usize, pass: &mut Pass) -> Option<()> {
        self.level = level;
        self.slots.clear();
        let steps = self.computed(level);
        let targets = self.targets(level);
        // Leaves that are written or folded as they are.
        let mut all: Vec<ValueId> =
            targets.iter().copied().filter(|p| !steps.contains(p)).collect();
        all.sort_unstable();
        all.dedup();
        let mut free: Vec<usize> = Vec::new();
        let mut before = None;
        for place in all {
            pass.instrs.push((Code::Load, self.operand(place)?));
            self.finish(place, pass)?;
            before = Some(place);
        }
        for (k, &place) in steps.iter().enumerate() {
            self.step(place, before, &mut pass.instrs)?;
            before = Some(place);
            let next = steps[k + 1..].iter().filter_map(|&p| {
                let ValueKind::Of(body) = self.values[p].kind else { return None };
                Some((body, self.values[p].from))
            });
            let own = |&&(_, target): &&(usize, ValueId)| target == place;
            if is_read(place, next) {
                let slot = match self.own_outputs.iter().find(own) {
                    // `finish` stores it.
                    Some(&(o, _)) if self.values[place].level == level => Operand::Output(o),
                    _ => {
                        let slot = free.pop().unwrap_or_else(|| {
                            self.program.slots += 1;
                            self.program.slots - 1
                        });
                        pass.instrs.push((Code::Store, Operand::Slot(slot)));
                        Operand::Slot(slot)
                    }
                };
                self.slots.push((place, slot));
            }
            self.finish(place, pass)?;
            // Slots whose last reader has run.
            let rest = &steps[k + 1..];
            let values = &self.values;
            self.slots.retain(|&(place, slot)| {
                let is_read = rest.iter().any(|&p| values[p].sources().contains(&place));
                if let (false, Operand::Slot(slot)) = (is_read, slot) {
                    free.push(slot);
                }
                is_read
            });
        }
        Some(())
    }

    /// Writes and folds the value in the accumulator.
    fn finish(&mut self, place: ValueId, pass: &mut Pass) -> Option<()> {
        let is_first = self.values[place].level == self.level;
        if let Some(k) = self.kept.iter().position(|&kept| kept == (place, self.level)) {
            pass.instrs.push((Code::Store, Operand::Kept(k)));
        }
        // A value that a later pass recomputes was already written and folded.
        if !is_first {
            return Some(());
        }
        for &(o, _) in self.outputs.iter().filter(|&&(_, target)| target == place) {
            pass.instrs.push((Code::Store, Operand::Output(o)));
        }
        for (row, &p) in self.rows.iter().enumerate() {
            let value = self.values[p];
            let ValueKind::Fold(fold) = value.kind else { continue };
            if value.from[0] == place {
                let code = match fold {
                    Fold::Sum => Code::FoldSum,
                    Fold::Prod => Code::FoldProd,
                    Fold::Max => Code::FoldMax,
                    Fold::Min => Code::FoldMin,
                    Fold::Any | Fold::All => return None,
                };
                pass.instrs.push((code, Operand::Fold(row)));
                pass.folds.push(Reduction { fold, row });
            }
        }
        Some(())
    }

    /// The instructions that compute a value into the accumulator; `before` is the value there.
    fn step(&self, place: ValueId, before: Option<ValueId>, instrs: &mut Vec<Instr>) -> Option<()> {
        let value = self.values[place];
        let ValueKind::Of(body) = value.kind else { return None };
        if code_of(body).is_none() {
            let [a, b, ..] = value.from;
            if before != Some(a) {
                instrs.push((Code::Load, self.operand(a)?));
            }
            let second = if body.operands() == 2 { self.operand(b)? } else { Operand::None };
            instrs.extend([(Code::Call(body), second), (Code::Operand, Operand::Buffers)]);
            return Some(());
        }
        lower(body, value.from, before, |code, place| {
            instrs.push((code, place.map_or(Some(Operand::None), |place| self.operand(place))?));
            Some(())
        })
    }

    /// Where a value is read. None if it is only in the accumulator.
    fn operand(&self, place: ValueId) -> Option<Operand> {
        let nth = |is: fn(&ValueKind) -> bool| {
            self.values[..place].iter().filter(|value| is(&value.kind)).count()
        };
        let value = self.values[place];
        Some(match value.kind {
            ValueKind::Element(_) => Operand::Element(nth(|k| matches!(k, ValueKind::Element(_)))),
            ValueKind::Row(_) => Operand::Row(nth(|k| matches!(k, ValueKind::Row(_)))),
            ValueKind::Number(_) => Operand::Number(nth(|k| matches!(k, ValueKind::Number(_)))),
            ValueKind::Of(_) if value.extent == Extent::Element => {
                if let Some(&(_, slot)) = self.slots.iter().find(|&&(p, _)| p == place) {
                    return Some(slot);
                }
                let kept = |&(p, first): &(ValueId, usize)| p == place && first < self.level;
                Operand::Kept(self.kept.iter().position(kept)?)
            }
            ValueKind::Of(_) | ValueKind::Fold(_) => {
                let row = self.rows.iter().position(|&p| p == place)?;
                Operand::Row(self.program.row_operands.len() + row)
            }
        })
    }
}
