//! Random row programs to the second order, of every extent and fold: gradients against finite
//! differences, and the ways to a second derivative against each other, on every device.
use crate::common::vec;
use teeny_autograd::{
    Autograd, Check, Grad, allow_unused, gradcheck, gradgradcheck, hvp, jvp, vjp,
};
use teeny_conformance::Dice;
use teeny_core::{DType, DeviceRef, Expr, Lazy, Reference, Result, Tensor, map_rows};
use teeny_cpu::Cpu;

/// One node of a program; operands are numbers of earlier nodes.
#[derive(Clone, Copy, Debug)]
enum Step {
    Unary(usize, usize),
    Binary(usize, usize, usize),
    Fold(usize, usize),
    Where(usize, usize, usize),
    At(usize, usize),
    Index(usize),
}

/// A random program on three operands, and the shapes of these.
#[derive(Debug)]
struct Program {
    steps: Vec<Step>,
    shapes: [Vec<usize>; 3],
    axes: Vec<usize>,
}

impl Program {
    fn draw(dice: &mut Dice) -> Program {
        let ndim = dice.between(1, 3);
        let shape: Vec<usize> = (0..ndim).map(|_| dice.between(1, 4)).collect();
        let axes = if dice.one_in(3) { dice.axes(ndim) } else { vec![dice.below(ndim)] };
        let axes = if axes.is_empty() { vec![0] } else { axes };
        // The rows, a weight that rows may share, one value a row.
        let weight = |(i, &n): (usize, &usize)| if axes.contains(&i) { n } else { 1 };
        let shared = shape.iter().enumerate().map(weight).collect();
        let one = |(i, &n): (usize, &usize)| if axes.contains(&i) { 1 } else { n };
        let row = shape.iter().enumerate().map(one).collect();
        let shapes = [shape.clone(), if dice.one_in(2) { shape } else { shared }, row];
        let mut steps = Vec::new();
        let mut folds = 0;
        for known in 3..3 + dice.between(2, 9) {
            let mut node = || known - 1 - dice.below(known.min(5));
            let (a, b, c) = (node(), node(), node());
            steps.push(match dice.below(if folds < 4 { 12 } else { 7 }) {
                0..=2 => Step::Unary(dice.below(UNARY.len()), a),
                3..=5 => Step::Binary(dice.below(BINARY.len()), a, b),
                6 => Step::Where(a, b, c),
                7 => Step::At(a, dice.below(2)),
                8 => Step::Index(a),
                _ => {
                    folds += 1;
                    Step::Fold(dice.below(FOLDS.len()), a)
                }
            });
        }
        steps.push(Step::Fold(0, 0));
        steps.push(Step::Binary(dice.below(2), steps.len() + 1, steps.len() + 2));
        Program { steps, shapes, axes }
    }

    fn body<'b>(&self, [x, w, t]: [Expr<'b>; 3]) -> Expr<'b> {
        let mut nodes = vec![x, w, t];
        for &step in &self.steps {
            let value = match step {
                Step::Unary(f, a) => UNARY[f](nodes[a]),
                Step::Binary(f, a, b) => BINARY[f](nodes[a], nodes[b]),
                Step::Fold(f, a) => FOLDS[f](nodes[a]),
                Step::Where(a, b, c) => nodes[a].gt(0.123).where_cond(nodes[b], nodes[c]),
                // Position 1 is outside a row of one element.
                Step::At(a, position) => {
                    nodes[a].at(x.length().gt(1.5).cast(DType::I64) * position as i64)
                }
                Step::Index(a) => nodes[a] * x.index() * 0.1,
            };
            nodes.push(value);
        }
        nodes[nodes.len() - 1]
    }

    fn run(&self, x: &[Tensor]) -> Result<Tensor> {
        map_rows([&x[0], &x[1], &x[2]], self.axes.clone(), |inputs| self.body(inputs))
    }

    /// Numbers between -1.5 and 1.5, none of them equal.
    fn inputs(&self, dice: &mut Dice, device: &DeviceRef) -> Result<Vec<Tensor>> {
        let tensor = |shape: &Vec<usize>| {
            let n: usize = shape.iter().product();
            let values: Vec<f64> = (0..n).map(|_| dice.unit() * 3.0 - 1.5).collect();
            Tensor::from_vec(values, &shape[..], device)
        };
        self.shapes.iter().map(tensor).collect()
    }
}

/// Functions whose values and derivatives are of the size of their operands or smaller.
const UNARY: [for<'b> fn(Expr<'b>) -> Expr<'b>; 8] = [
    |x| x.sin(),
    |x| x.tanh(),
    |x| x.sigmoid(),
    |x| (x.tanh() * 0.5).exp(),
    |x| x.tanh().square(),
    |x| (x.square() + 0.5).sqrt(),
    |x| -x,
    |x| (x.square() + 1.0).log(),
];

const BINARY: [for<'b> fn(Expr<'b>, Expr<'b>) -> Expr<'b>; 6] = [
    |a, b| a + b,
    |a, b| a.tanh() * b,
    |a, b| a - b,
    |a, b| a / (b.square() + 1.0),
    |a, b| a.maximum(b),
    |a, b| a.minimum(b * 0.9),
];

const FOLDS: [for<'b> fn(Expr<'b>) -> Expr<'b>; 9] = [
    |x| x.sum(),
    |x| x.mean(),
    |x| x.max(),
    |x| x.min(),
    |x| x.var(0),
    |x| x.logsumexp(),
    |x| x.softmax(),
    |x| x.log_softmax(),
    |x| (x.tanh() + 1.5).prod(),
];

/// The largest difference of two lists relative to their largest number, or to 1.
fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let scale = a.iter().chain(b).fold(1.0f64, |most, x| most.max(x.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

/// Gradients of `Σ y²`, and the gradients of the sum of these.
fn gradients_twice(program: &Program, x: &[Tensor], device: &DeviceRef) -> Result<[Vec<f64>; 2]> {
    let first = Autograd::new(device);
    let second = Autograd::new(first.clone());
    let leaf = |x: &Tensor| x.to(&first)?.requires_grad();
    let leaves = x.iter().map(leaf).collect::<Result<Vec<_>>>()?;
    let lift = |x: &Tensor| x.to(&second)?.requires_grad();
    let lifted = leaves.iter().map(lift).collect::<Result<Vec<_>>>()?;
    let once = program.run(&lifted)?.square()?.sum_all()?.backward()?;
    let mut gradients = Vec::new();
    let mut sum = Tensor::zeros((), DType::F64, &first)?;
    for x in lifted.iter().filter(|x| once.contains(x)) {
        gradients.extend(vec(once.get(x)?));
        sum = sum.add(&once.get(x)?.sin()?.sum_all()?)?;
    }
    let mut curvatures = Vec::new();
    if sum.is_tracked() {
        let twice = sum.backward()?;
        for x in leaves.iter().filter(|x| twice.contains(x)) {
            curvatures.extend(vec(twice.get(x)?));
        }
    }
    Ok([gradients, curvatures])
}

#[test]
fn random_programs_have_the_gradients_of_finite_differences_to_second_order() -> Result<()> {
    let reference: DeviceRef = Reference::new();
    let loose = Check::new().with_tolerance(1e-4);
    for number in 0..rounds() {
        let mut dice = Dice::new(SEED, number);
        let program = Program::draw(&mut dice);
        let x = program.inputs(&mut dice, &reference)?;
        let fail = |order: &str, error| panic!("{order} of {number}: {program:?}: {error}");
        if let Err(error) = gradcheck(|x| program.run(x), &x, &loose) {
            fail("gradient", error)
        }
        if let Err(error) = gradgradcheck(|x| program.run(x), &x, &loose) {
            fail("second derivative", error)
        }
    }
    Ok(())
}

#[test]
fn forward_and_reverse_mode_agree_on_random_programs_to_second_order() -> Result<()> {
    let reference: DeviceRef = Reference::new();
    for number in 0..rounds() {
        let mut dice = Dice::new(SEED, number);
        let program = Program::draw(&mut dice);
        let x = program.inputs(&mut dice, &reference)?;
        let v = program.inputs(&mut dice, &reference)?;
        let one = Tensor::ones((), DType::F64, &reference)?;
        let loss = |x: &Vec<Tensor>| program.run(x)?.square()?.sum_all();
        let along = |g: &[Tensor]| {
            let zero = Tensor::zeros((), DType::F64, &reference)?;
            g.iter().zip(&v).try_fold(zero, |sum, (g, v)| sum.add(&g.mul(v)?.sum_all()?))
        };
        let tangent = |x: &Vec<Tensor>| Ok(jvp(loss, x, &v)?.1);
        let slope = |x: &Vec<Tensor>| along(&vjp(loss, x, &one)?.1);
        let (_, forward_over_reverse) = allow_unused(|| hvp(loss, &x, &v))?;
        let (_, reverse_over_forward) = allow_unused(|| vjp(tangent, &x, &one))?;
        let (_, reverse_over_reverse) = allow_unused(|| vjp(slope, &x, &one))?;
        let all = |x: &[Tensor]| x.iter().flat_map(vec).collect::<Vec<f64>>();
        let want = all(&forward_over_reverse);
        for (order, got) in [
            ("reverse over forward", all(&reverse_over_forward)),
            ("reverse over reverse", all(&reverse_over_reverse)),
        ] {
            let error = distance(&got, &want);
            assert!(error < 1e-9, "{order} of {number}: {program:?}: {got:?}\n{want:?}");
        }
    }
    Ok(())
}

#[test]
fn every_device_has_the_same_second_derivatives_of_random_programs() -> Result<()> {
    let reference: DeviceRef = Reference::new();
    let devices: [(&str, DeviceRef); 2] =
        [("cpu", Cpu::new()), ("lazy cpu", Lazy::new(Cpu::new()))];
    for number in 0..rounds() {
        let mut dice = Dice::new(SEED, number);
        let program = Program::draw(&mut dice);
        let x = program.inputs(&mut dice, &reference)?;
        let want = gradients_twice(&program, &x, &reference)?;
        for (name, device) in &devices {
            let got = gradients_twice(&program, &x, device)?;
            for (got, want) in got.iter().zip(&want) {
                assert!(
                    distance(got, want) < 1e-9,
                    "{name}, {number}: {program:?}: {got:?}\n{want:?}"
                );
            }
        }
    }
    Ok(())
}

const SEED: u64 = 3;

fn rounds() -> u64 {
    400 / teeny_conformance::every(4) as u64
}
