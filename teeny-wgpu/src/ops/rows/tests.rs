//! Row programs with every mapping to threads, against the definition.

use super::program::{RowThreads, run};
use crate::codegen::rows;
use crate::codegen::types::LANES;
use crate::ops::indexing::axis_position;
use crate::shader_tests::accept;
use crate::{Options, Wgpu};
use std::sync::Arc;
use teeny_core::kernel::{Extent, Fold};
use teeny_core::{
    Builder, DType, DeviceRef, Expr, Kernel, Op, OpCode, Reference, Result, RowFunction, Scalar,
    Shape, Tensor, map_rows, random,
};

/// A sequence of numbers that look random.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// How the elements of an operand lie in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lie {
    Packed,
    /// Its axes lie in the opposite order.
    Transposed,
    /// A part of a wider tensor that begins at this element of its last axis.
    Part(usize),
    /// One row, or one element, for all along the first axis.
    Repeated,
    /// In steps of two, backwards.
    Reversed,
}

const LIES: [Lie; 6] =
    [Lie::Packed, Lie::Transposed, Lie::Part(4), Lie::Part(1), Lie::Repeated, Lie::Reversed];

/// A tensor of `shape` of whole numbers and some halves, among them special ones.
fn operand(
    seed: u64,
    shape: &Shape,
    dtype: DType,
    lie: Lie,
    special: bool,
    device: &DeviceRef,
) -> Result<Tensor> {
    let mut sizes = shape.to_vec();
    let last = sizes.len() - 1;
    match lie {
        Lie::Packed => {}
        Lie::Transposed => sizes.reverse(),
        Lie::Part(_) => sizes[last] += 8,
        Lie::Repeated => sizes[0] = 1,
        Lie::Reversed => sizes[last] *= 2,
    }
    let mut dice = Dice(seed);
    let count = sizes.iter().product::<usize>();
    let values: Vec<f32> = (0..count)
        .map(|_| match dice.below(400) {
            0 if special => f32::NAN,
            1 if special => f32::INFINITY,
            2 if special => f32::NEG_INFINITY,
            _ => dice.below(9) as f32 / 2.0 - 2.0,
        })
        .collect();
    let x = Tensor::from_vec(values, &sizes[..], device)?;
    let x = x.cast(if dtype.is_float() { DType::F32 } else { DType::I32 })?.cast(dtype)?;
    let ndim = shape.ndim() as isize;
    match lie {
        Lie::Packed => Ok(x),
        Lie::Transposed => x.permute(&(0..ndim).rev().collect::<Vec<_>>()[..]),
        Lie::Part(from) => x.slice(-1, from as isize..(from + shape[last]) as isize),
        Lie::Repeated => x.expand(*shape),
        Lie::Reversed => x.slice_step(-1, .., -2),
    }
}

/// A program with its inputs.
struct Case<'a> {
    program: &'a Arc<Kernel>,
    params: &'a [Scalar],
    shape: Shape,
    axes: &'a [usize],
    /// The tolerance against the definition, relative to its results or to 1.
    tolerance: f64,
}

/// The outputs of the program on the device, by the template, and as defined.
fn check(
    gpu: &Arc<Wgpu>,
    case: &Case<'_>,
    operands: &dyn Fn(&DeviceRef) -> Result<Vec<Tensor>>,
    what: &str,
) -> Result<()> {
    let Case { program, params, shape, axes, tolerance } = *case;
    let device = gpu.clone() as DeviceRef;
    let oracle = Reference::new() as DeviceRef;
    let (ours, theirs) = (operands(&device)?, operands(&oracle)?);
    let inputs: Vec<&Tensor> = theirs.iter().collect();
    let (inputs, shape) = (&inputs[..], &shape);
    let want = Op::Rows { program, inputs, params, shape, axes }.tensor_list(&oracle)?;
    let inputs: Vec<&Tensor> = ours.iter().collect();
    for software in [false, true] {
        let got = run(gpu, software, program, &inputs, params, shape, axes)?;
        let got = got.unwrap_or_else(|| panic!("{what} has no shader"));
        for (o, (got, want)) in got.into_iter().zip(want.iter()).enumerate() {
            let got = gpu.tensor(got, *want.shape(), want.dtype(), inputs[0])?;
            let (got, want) = (got.to_scalars()?, want.to_scalars()?);
            for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                let (x, y) = (a.to_f64(), b.to_f64());
                let same = a == b || x == y || x.is_nan() && y.is_nan();
                let close = (x - y).abs() <= tolerance * y.abs().max(1.0);
                assert!(
                    same || tolerance > 0.0 && close,
                    "{what}, output {o}, element {i}: {a:?}, not {b:?}\n{program:?}"
                );
            }
        }
    }
    Ok(())
}

/// A program of `levels` folds one after another on inputs of type `dtype`, each beside others.
fn program(dice: &mut Dice, dtype: DType, levels: usize) -> Result<Kernel> {
    let builder = Builder::new();
    let x = builder.input(dtype);
    let mut nodes: Vec<Expr<'_>> = vec![x];
    for _ in 0..dice.below(3) {
        nodes.push(builder.input_of(dtype, dice.pick(&[Extent::Element, Extent::Row])));
    }
    let mut rows = Vec::new();
    let mut y = x;
    for _ in 0..levels {
        let other = dice.pick(&nodes);
        y = match dice.below(5) {
            0 => y + other,
            1 => y - other,
            2 => x.index().lt(dice.below(40) as i32).where_cond(y, other),
            3 => y.maximum(other),
            _ => other - y,
        };
        nodes.push(y);
        for _ in 0..1 + dice.below(2) {
            let row = match dice.below(4) {
                0 => y.fold(Fold::Max),
                1 => y.fold(Fold::Min),
                2 if dtype.is_int() => y.fold(Fold::Sum),
                3 if dtype.is_int() => y.fold(Fold::Prod),
                2 => y.gt(other).any().cast(dtype),
                _ => y.le(other).all().maximum(y.eq(y).any()).cast(dtype),
            };
            rows.push(row);
            nodes.push(row);
            y = if dice.below(2) == 0 { y - row } else { y.minimum(row) };
        }
        nodes.push(y);
    }
    let mut outputs = vec![y, rows[rows.len() - 1]];
    match dice.below(3) {
        0 => outputs.push(rows[0].gt(y)),
        1 => outputs.push(y.cast(DType::F32).length() + rows[0].cast(DType::F32)),
        _ => {}
    }
    builder.finish(&outputs)
}

fn gpus() -> Vec<Arc<Wgpu>> {
    let open = |portable| Wgpu::with_options(&Options { portable, ..Options::default() }).ok();
    [false, true].into_iter().filter_map(open).collect()
}

#[test]
fn random_programs_give_the_results_of_the_definition() -> Result<()> {
    let lengths = [1, 2, 31, 32, 33, 64, 300, 1024, 5000];
    for (portable, gpu) in gpus().iter().enumerate() {
        for case in 0..if portable == 1 { 30 } else { 110 } {
            let mut dice = Dice(case as u64 * 77 + 5);
            let length = lengths[case % lengths.len()];
            let types = [DType::F32, DType::I32, DType::F16, DType::U8, DType::F32, DType::BF16];
            let wide = [DType::F64, DType::I64, DType::U64, DType::I16];
            let dtype = match case % 3 {
                0 if portable == 0 => dice.pick(&wide),
                _ => dice.pick(&types),
            };
            if !gpu.capabilities().supports(dtype) {
                continue;
            }
            let levels = 1 + dice.below(4);
            let program = Arc::new(program(&mut dice, dtype, levels)?);
            let others = dice.pick(&[1, 3, 40]);
            let (sizes, axes): (&[usize], &[usize]) = match dice.below(6) {
                0..=2 => (&[others, length], &[1]),
                3 => (&[length, others], &[0]),
                4 => (&[others, 3, length], &[1, 2]),
                _ => (&[4, others, length], &[0, 2]),
            };
            let shape = Shape::new(sizes)?;
            let one = shape.reduced(axes, true);
            let lies: Vec<Lie> = program.inputs().iter().map(|_| dice.pick(&LIES)).collect();
            let special = dtype.is_float() && dice.below(2) == 0;
            let operands = |device: &DeviceRef| {
                let operand = |i: usize| {
                    let is_element = program.input_extent(i) == Extent::Element;
                    let shape = if is_element { &shape } else { &one };
                    operand((case + i) as u64, shape, dtype, lies[i], special, device)
                };
                (0..program.inputs().len()).map(operand).collect()
            };
            let what = format!("case {case}: {dtype} {shape} along {axes:?}, {lies:?}");
            let program = &program;
            let case = Case { program, params: &[], shape, axes, tolerance: 0.0 };
            check(gpu, &case, &operands, &what)?;
        }
    }
    Ok(())
}

#[test]
fn named_programs_give_the_results_of_the_definition() -> Result<()> {
    for gpu in gpus() {
        for (case, length) in [1, 3, 16, 31, 64, 260, 1000, 4096, 5001].into_iter().enumerate() {
            for dtype in [DType::F32, DType::BF16, DType::F64] {
                if !gpu.capabilities().supports(dtype) {
                    continue;
                }
                for function in RowFunction::ALL {
                    if function.name().contains("cross") && !gpu.capabilities().supports(DType::I64)
                    {
                        continue;
                    }
                    let (program, params) = named(function, dtype, DType::I64);
                    for axis in [0, 1] {
                        let rows = [5, 70][axis];
                        let shape = if axis == 0 { [length, rows] } else { [rows, length] };
                        let shape = Shape::new(&shape)?;
                        let one = shape.reduced(&[axis], true);
                        let operands = |device: &DeviceRef| -> Result<Vec<Tensor>> {
                            let operand = |i: usize| {
                                let is_element = program.input_extent(i) == Extent::Element;
                                let shape = if is_element { &shape } else { &one };
                                let lie = if i == 1 { Lie::Repeated } else { Lie::Packed };
                                let dtype = program.inputs()[i];
                                if dtype == DType::I64 {
                                    let target = (length / 2) as i64;
                                    return Tensor::full(*shape, target, dtype, device);
                                }
                                let seed = (case + 10 * i) as u64;
                                operand(seed, shape, dtype, lie, false, device)
                            };
                            (0..program.inputs().len()).map(operand).collect()
                        };
                        let tolerance = match dtype {
                            DType::F64 => 1e-10,
                            DType::F32 => 2e-4,
                            _ => 2e-2,
                        };
                        let what = format!("{} of {dtype} {shape} along {axis}", function.name());
                        let case = Case { program, params, shape, axes: &[axis], tolerance };
                        check(&gpu, &case, &operands, &what)?;
                    }
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_position_outside_the_row_is_an_error_and_inside_reads_its_element() -> Result<()> {
    let Ok(gpu) = Wgpu::new() else { return Ok(()) };
    let device = gpu as DeviceRef;
    for (rows, length) in [(3, 5), (2, 64), (40, 260), (2, 5000)] {
        for step in [1, 2i32] {
            let x = Tensor::arange(0i32, rows * length, 1, &device)?;
            let x = x.reshape((rows, length))?.slice_step(1, .., step as isize)?;
            let last = x.shape()[1] as i32 - 1;
            let read = |position: i32| {
                let position = Tensor::full((rows, 1), position, DType::I32, &device)?;
                map_rows([&x, &position], 1, |[x, p]| x.at(p) * 2 + x.max())?.to_vec::<i32>()
            };
            let want: Vec<i32> = (0..rows)
                .map(|row| (row * length + last * step) * 2)
                .zip(1..)
                .map(|(at, row)| at + (row - 1) * length + last * step)
                .collect();
            assert_eq!(read(last)?, want, "{rows} {length} {step}");
            for wrong in [-1, last + 1, i32::MIN, i32::MAX] {
                let error = read(wrong).unwrap_err();
                assert_eq!(error.kind(), teeny_core::ErrorKind::Index, "{error}");
            }
        }
    }
    Ok(())
}

/// A variant of `function` for `dtype` with the most inputs, targets of type `targets`, and its
/// parameters.
fn named(
    function: RowFunction,
    dtype: DType,
    targets: DType,
) -> (&'static Arc<Kernel>, &'static [Scalar]) {
    let types = match function {
        RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad => [dtype, targets, dtype],
        _ => [dtype; 3],
    };
    let params = &[Scalar::Float(1e-5)][..usize::from(function.name().contains("norm"))];
    let found = (1..=3).rev().find_map(|n| function.program(&types[..n], params.len()).ok());
    (found.unwrap_or_else(|| panic!("{}", function.name())), params)
}

#[test]
fn fifty_lengths_take_at_most_six_shaders() -> Result<()> {
    let mut dice = Dice(41);
    let mut lengths: Vec<usize> = (0..46).map(|i| 1 + dice.below(8 << (i / 4))).collect();
    lengths.extend([1, 1024, 8192, 20_000]);
    for software in [false, true] {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        let compiled = || {
            let all = gpu.profile().families.into_iter().find(|family| family.name == "rows");
            all.map_or(0, |family| family.compiles)
        };
        for function in RowFunction::ALL {
            let (program, params) = named(function, DType::F32, DType::I32);
            let before = compiled();
            for (&length, rows) in lengths.iter().flat_map(|n| [(n, 1), (n, 40)]) {
                let (shape, one) = (Shape::new(&[rows, length])?, Shape::new(&[rows, 1])?);
                let operand = |i: usize| {
                    let is_element = program.input_extent(i) == Extent::Element;
                    let shape = if is_element { shape } else { one };
                    Tensor::zeros(shape, program.inputs()[i], &device)
                };
                let operands = (0..program.inputs().len()).map(operand);
                let operands = operands.collect::<Result<Vec<_>>>()?;
                let inputs: Vec<&Tensor> = operands.iter().collect();
                let done = run(&gpu, software, program, &inputs, params, &shape, &[1])?;
                assert!(done.is_some(), "{} of {shape}", function.name());
            }
            let more = compiled() - before;
            assert!(more <= 6, "{} compiled {more} shaders", function.name());
        }
    }
    Ok(())
}

#[test]
fn every_length_has_one_of_six_plans() {
    for software in [false, true] {
        let mut plans = std::collections::BTreeSet::new();
        for length in 1..100_000 {
            for rows in [1, 5, 70, 4096] {
                let lanes = if length % LANES == 0 { LANES } else { 1 };
                let way = RowThreads::of(length, lanes, software, rows);
                assert!(way.held == 0 || way.held * way.team * lanes >= length, "{length}");
                plans.insert((way.threads, way.team, way.held, lanes));
            }
        }
        assert!(plans.len() <= 6, "{plans:?}");
    }
}

#[test]
fn rows_in_registers_give_the_results_of_the_definition() -> Result<()> {
    let oracle = Reference::new() as DeviceRef;
    // With and without subgroup operations, where the adapter has them.
    for portable in [false, true] {
        let options = Options { portable, ..Options::default() };
        let Ok(gpu) = Wgpu::with_options(&options) else { return Ok(()) };
        let device = gpu as DeviceRef;
        for (rows, length) in [(5, 4), (3, 260), (2, 1000), (2, 4096), (1, 5000)] {
            for dtype in [DType::F32, DType::F16] {
                let run = |device: &DeviceRef| {
                    let draw =
                        |rows: usize| Tensor::rand((rows, length), DType::F32, device)?.cast(dtype);
                    let (x, w) = random::with_seed(9, || {
                        Ok::<_, teeny_core::Error>((draw(rows)?, draw(1)?))
                    })?;
                    let w = w.reshape(length)?;
                    let g = x.sub(0.5f32)?.mul(&w)?;
                    let (softmax, logs) = (x.softmax(-1)?, x.log_softmax(-1)?);
                    let grad = |f: RowFunction, y| f.run(&[y, &g], &[], &[1]);
                    let norm = |f: RowFunction, inputs: &[&Tensor]| {
                        f.run(inputs, &[Scalar::Float(1e-5)], &[1])
                    };
                    let (layer, rms) = (RowFunction::LayerNormGrad, RowFunction::RmsNormGrad);
                    let scale = length as f32 / 8.0;
                    let y = [
                        grad(RowFunction::SoftmaxGrad, &softmax)?.mul(scale)?,
                        softmax.mul(scale)?,
                        grad(RowFunction::LogSoftmaxGrad, &logs)?,
                        logs,
                        x.layer_norm(1, Some(&w), Some(&w), 1e-5)?,
                        x.rms_norm(1, Some(&w), 1e-5)?,
                        norm(layer, &[&x, &w, &g])?,
                        norm(rms, &[&x, &w, &g])?,
                        norm(layer, &[&x, &g])?,
                        norm(rms, &[&x, &g])?,
                        // a weight that differs from row to row
                        norm(RowFunction::LayerNorm, &[&x, &g])?,
                        norm(RowFunction::RmsNormGrad, &[&x, &g, &g])?,
                    ];
                    let y: Vec<&Tensor> = y.iter().collect();
                    Tensor::cat(&y, 0)?.cast(DType::F32)?.to_vec::<f32>()
                };
                let (got, want) = (run(&device)?, run(&oracle)?);
                let tolerance = if dtype == DType::F32 { 4e-6 } else { 8e-3 };
                for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                    let what = format!("{i} of {rows} rows of {length} {dtype}");
                    assert!((a - b).abs() <= tolerance * b.abs().max(1.0), "{what}: {a}, not {b}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn a_nan_an_infinity_and_a_row_of_minus_infinity_reach_their_row_only() -> Result<()> {
    for portable in [false, true] {
        let options = Options { portable, ..Options::default() };
        let Ok(gpu) = Wgpu::with_options(&options) else { return Ok(()) };
        let mut x = vec![1.0f32; 5 * 300];
        x[7] = f32::NAN;
        x[300 + 299] = f32::INFINITY;
        x[600..900].fill(f32::NEG_INFINITY);
        x[900] = f32::NEG_INFINITY;
        let x = Tensor::from_vec(x, (5, 300), &gpu)?;
        let y = x.softmax(-1)?.to_vec::<f32>()?;
        assert!(y[..300].iter().all(|y| y.is_nan()), "{portable} NaN");
        assert!(y[599].is_nan(), "{portable} inf: {}", y[599]);
        assert!(y[600..900].iter().all(|y| y.is_nan()), "{portable} -inf");
        assert!(y[900] == 0.0 && (y[901] - 1.0 / 299.0).abs() < 1e-8, "{portable}");
        assert!(y[1200..].iter().all(|y| (y - 1.0 / 300.0).abs() < 1e-8), "{portable}");
    }
    Ok(())
}

/// A program of all folds that `dtype` has, on two levels, of a position and a length.
fn row_program(dtype: DType) -> Kernel {
    let builder = Builder::new();
    let x = builder.input(dtype);
    let [w, t] = [dtype, DType::I32].map(|t| builder.input_of(t, Extent::Row));
    let first: Vec<Expr<'_>> = Fold::ALL
        .into_iter()
        .filter(|&fold| OpCode::Fold(fold).accepts(dtype))
        .map(|fold| x.fold(fold))
        .collect();
    let chosen = x.index().eq(t).where_cond(x, w);
    let second = first.iter().fold(chosen, |y, &row| y.ne(row).where_cond(y, row));
    let count = x.length().cast(DType::F32) + x.index().cast(DType::F32);
    let deepest = if dtype == DType::Bool { second.all() } else { second.max() };
    builder.finish(&[second, deepest, x.at(t), count.sum()]).unwrap()
}

#[test]
fn row_programs() {
    let functions = RowFunction::ALL.into_iter().filter(|f| !f.name().contains("softmax"));
    let floats = [DType::F16, DType::BF16, DType::F32, DType::F64];
    let named = functions.flat_map(|f| floats.map(|t| (t, named(f, t, DType::I32).0.clone())));
    let all = DType::ALL.into_iter().map(|t| (t, Arc::new(row_program(t))));
    for (dtype, program) in all.chain(named) {
        // Threads of a workgroup and of a row, elements at once, groups in registers.
        for (threads, team, lanes, held) in [
            (128, 1, 1, 0),
            (128, 1, LANES, 2),
            (64, 64, LANES, 3),
            (256, 256, 1, 4),
            (256, 256, LANES, 0),
        ] {
            for subgroups in [false, true] {
                let plan = rows::RowsPlan {
                    kept: 2,
                    along: 1 + held % 2,
                    threads,
                    team,
                    lanes,
                    held,
                    subgroups: subgroups && team == threads && dtype.size() <= 4,
                    inputs: (0..program.inputs().len())
                        .map(|i| match program.input_extent(i) {
                            Extent::Row => rows::Access::Row,
                            Extent::Element if lanes > 1 => rows::Access::Quads,
                            Extent::Element => rows::Access::Strided,
                        })
                        .collect(),
                };
                let text = plan.wgsl(&program, axis_position).unwrap();
                accept(&format!("rows {dtype} {plan:?}"), &text, &[dtype]);
            }
        }
    }
}
