//! Random programs as data: what a function computes, and what happens between its calls.
//!
//! Every value is a matrix (R, C) of one type, and operands are positions modulo the number of
//! values: each subset of the steps is a program too, so that a finding can be made smaller.

use teeny_core::DType;
use teeny_core::random::{Key, philox};

/// One step: computes a value from those before.
#[derive(Clone, Debug)]
pub enum Step {
    /// Function, operand.
    Unary(usize, usize),
    /// Function, operands.
    Binary(usize, usize, usize),
    /// Function, operand, number.
    Number(usize, usize, f64),
    /// A power with an operand that is one number.
    PowFull(usize, f64),
    /// A kernel of several operations.
    Map(usize, usize, f64),
    Where(usize, usize, usize),
    /// A product with a parameter (C, C).
    Matmul(usize),
    /// Statistics of an axis, subtracted: kind, axis, operand.
    Reduce(usize, bool, usize),
    /// Kind, axis, operand.
    Rows(usize, bool, usize),
    /// A row program: kind, axis, operand, operand.
    MapRows(usize, bool, usize, usize),
    /// A view, or a copy of parts: kind, operand, operand.
    Move(usize, usize, usize),
    /// Rows of the first operand, which is given up, are replaced.
    Assign(usize, usize),
    /// There and back.
    Cast(DType, usize),
    /// A layer of the store.
    Layer(usize, usize),
    /// A product with a parameter that the function does not take as input.
    Param(usize),
    /// A product with a quantised matrix of two types, or some of its rows: kind, operand.
    Quantised(usize, usize),
    /// An operation of several results, which are joined: kind, axis, operand.
    Several(usize, bool, usize),
    /// A draw added to the operand: kind, operand.
    Draw(usize, usize),
    /// Steps on an operand, with a separate generator.
    WithSeed(u64, Vec<Step>, usize),
    /// Steps that run twice from one state of the generator, which is put back or scoped.
    Twice(bool, Vec<Step>, usize),
    Checkpoint(Vec<Step>, usize),
    /// The gradient of steps, checkpointed or not.
    Gradient(bool, Vec<Step>, usize),
    /// The first and second derivative of a row program: kind, axis, operand, operand.
    SecondOrder(usize, bool, usize, usize),
    NoGrad(Vec<Step>, usize),
    /// The end of a list.
    Flush(usize),
    /// Something that differs from call to call, so that a replay must be refused: kind, operand.
    Impure(usize, usize),
}

/// An event between two calls.
#[derive(Clone, Debug)]
pub enum Event {
    Training(bool),
    /// A parameter is replaced.
    Set(usize, u64),
    Trainable(usize, bool),
    /// A draw outside.
    Draw,
    Seed(u64),
    /// The generator continues from where it was before the first call.
    PutBack,
    Flush,
    Synchronize,
    /// The next call runs with a separate generator.
    Scope(u64),
}

/// A function of one matrix and the calls of it.
#[derive(Clone, Debug)]
pub struct Program {
    pub rows: usize,
    pub columns: usize,
    pub dtype: DType,
    /// Whether inputs have NaN, infinities and zeros of both signs.
    pub special: bool,
    /// A training step with a loss scale and an optimizer; otherwise a function of tensors.
    pub trains: bool,
    pub steps: Vec<Step>,
    /// The events before each call.
    pub calls: Vec<Vec<Event>>,
    /// The limits of recording devices.
    pub max_nodes: usize,
    pub immediate: bool,
}

/// Numbers for the choices of one program.
pub struct Dice {
    key: Key,
    rolls: u64,
}

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.rolls += 1;
        philox(self.key, self.rolls)[0] as usize % n.max(1)
    }

    fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

impl Program {
    /// Program number `case` of a campaign.
    pub fn random(seed: u64, case: u64) -> Program {
        let mut dice = Dice { key: Key { seed, draw: case }, rolls: 0 };
        let dice = &mut dice;
        // Larger ones are divided among threads.
        let most = if dice.one_in(24) { 120 } else { 9 };
        let (rows, columns) = (2 + dice.below(most), 1 + dice.below(most));
        let dtype =
            dice.pick(&[DType::F32, DType::F32, DType::F32, DType::F64, DType::F16, DType::BF16]);
        let trains = dice.one_in(3) && dtype == DType::F32;
        let impure = dice.one_in(12);
        let (count, calls) = (1 + dice.below(14), 3 + dice.below(5));
        let mut steps: Vec<Step> = (0..count).map(|_| step(dice, trains, 0)).collect();
        if impure {
            let at = dice.below(steps.len() + 1);
            steps.insert(at, Step::Impure(dice.below(4), dice.below(99)));
        }
        let calls = (0..calls).map(|_| events(dice)).collect();
        let max_nodes = if dice.one_in(2) { 4096 } else { 1 + dice.below(12) };
        let immediate = dice.one_in(12);
        let special = dice.one_in(8) && !trains;
        Program { rows, columns, dtype, special, trains, steps, calls, max_nodes, immediate }
    }

    /// Whether a step must be refused by a capture.
    pub fn is_impure(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Impure(..)))
    }

    /// Whether a change in the last place cannot become a large one.
    pub fn is_smooth(&self) -> bool {
        let smooth = |step: &Step| {
            matches!(
                step,
                Step::Unary(..)
                    | Step::Number(..)
                    | Step::Matmul(_)
                    | Step::Reduce(..)
                    | Step::Assign(..)
                    | Step::Layer(0..=2, _)
                    | Step::Flush(_)
                    | Step::Draw(..)
            )
        };
        self.dtype == DType::F64 && !self.special && self.steps.iter().all(smooth)
    }

    /// Programs with something left out.
    pub fn smaller(&self) -> Vec<Program> {
        let mut all = Vec::new();
        for i in 0..self.steps.len() {
            all.push(Program { steps: without(&self.steps, i), ..self.clone() });
            if let Step::WithSeed(_, inner, _)
            | Step::Twice(_, inner, _)
            | Step::Checkpoint(inner, _)
            | Step::Gradient(_, inner, _)
            | Step::NoGrad(inner, _) = &self.steps[i]
            {
                let mut steps = without(&self.steps, i);
                steps.splice(i..i, inner.iter().cloned());
                all.push(Program { steps, ..self.clone() });
                for j in 0..inner.len() {
                    let mut steps = self.steps.clone();
                    if let Step::WithSeed(_, inner, _)
                    | Step::Twice(_, inner, _)
                    | Step::Checkpoint(inner, _)
                    | Step::Gradient(_, inner, _)
                    | Step::NoGrad(inner, _) = &mut steps[i]
                    {
                        inner.remove(j);
                    }
                    all.push(Program { steps, ..self.clone() });
                }
            }
        }
        for i in 0..self.calls.len() {
            all.push(Program { calls: without(&self.calls, i), ..self.clone() });
            for j in 0..self.calls[i].len() {
                let mut calls = self.calls.clone();
                calls[i].remove(j);
                all.push(Program { calls, ..self.clone() });
            }
        }
        all
    }
}

fn without<T: Clone>(items: &[T], i: usize) -> Vec<T> {
    let mut items = items.to_vec();
    items.remove(i);
    items
}

fn step(dice: &mut Dice, trains: bool, depth: usize) -> Step {
    let number = |dice: &mut Dice| dice.pick(&[0.5, -1.25, 2.0, 3.0, -0.5, 1.0, 0.1, -2.0]);
    let at = dice.below(99);
    let inner = |dice: &mut Dice| -> Vec<Step> {
        (0..1 + dice.below(3)).map(|_| step(dice, trains, depth + 1)).collect()
    };
    let kinds = if depth > 2 { 22 } else { 28 };
    match dice.below(kinds) {
        0..=2 => Step::Unary(dice.below(22), at),
        3..=4 => Step::Binary(dice.below(8), at, dice.below(99)),
        5 => Step::Number(dice.below(8), at, number(dice)),
        6 => Step::PowFull(at, number(dice)),
        7 => Step::Map(at, dice.below(99), number(dice)),
        8 => Step::Where(at, dice.below(99), dice.below(99)),
        9 => Step::Matmul(at),
        10 => Step::Reduce(dice.below(7), dice.one_in(2), at),
        11 if dice.one_in(2) => Step::Rows(dice.below(8), dice.one_in(2), at),
        11 => Step::MapRows(dice.below(9), dice.one_in(2), at, dice.below(99)),
        12 => Step::Move(dice.below(9), at, dice.below(99)),
        13 | 14 => Step::Assign(at, dice.below(99)),
        15 => Step::Cast(dice.pick(&[DType::F16, DType::BF16, DType::F64, DType::I32]), at),
        16 => Step::Layer(dice.below(if trains { 5 } else { 4 }), at),
        17 if depth == 0 => Step::Flush(at),
        17 | 18 => Step::Draw(dice.below(7), at),
        19 => Step::Param(at),
        20 => Step::Quantised(dice.below(3), at),
        21 => Step::Several(dice.below(4), dice.one_in(2), at),
        22 => Step::WithSeed(dice.below(5) as u64, inner(dice), at),
        23 => Step::Twice(dice.one_in(2), inner(dice), at),
        24 | 25 => Step::Checkpoint(inner(dice), at),
        26 if dice.one_in(3) => {
            Step::SecondOrder(dice.below(9), dice.one_in(2), at, dice.below(99))
        }
        26 => Step::Gradient(dice.one_in(2), inner(dice), at),
        _ => Step::NoGrad(inner(dice), at),
    }
}

fn events(dice: &mut Dice) -> Vec<Event> {
    let mut all = Vec::new();
    while dice.one_in(2) {
        all.push(match dice.below(10) {
            0 | 1 => Event::Training(dice.one_in(2)),
            2 => Event::Set(dice.below(3), dice.below(1000) as u64),
            3 => Event::Trainable(dice.below(3), dice.one_in(2)),
            4 => Event::Draw,
            5 => Event::Seed(dice.below(1000) as u64),
            6 => Event::PutBack,
            7 => Event::Flush,
            8 => Event::Synchronize,
            _ => Event::Scope(dice.below(1000) as u64),
        });
    }
    all
}
