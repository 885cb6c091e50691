//! Row programs against the `Reference` device, which runs their definition: the named ones and
//! random ones, on random shapes, axes, views and float types, at every level, and with the same
//! bits on any number of threads.

use crate::common::{self, *};
use std::sync::Arc;
use teeny_core::kernel::build::{Builder, Expr};
use teeny_core::kernel::{Extent, Kernel, RowFunction};
use teeny_core::{DType, DeviceRef, Op, Reference, Result, Scalar, Shape, Tensor};
use teeny_cpu::Cpu;

const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

fn oracle() -> Arc<Reference> {
    static ORACLE: std::sync::OnceLock<Arc<Reference>> = std::sync::OnceLock::new();
    ORACLE.get_or_init(Reference::new).clone()
}

/// A row program with its operands.
struct Case {
    program: Arc<Kernel>,
    inputs: Vec<Tensor>,
    params: Vec<Scalar>,
    shape: Vec<usize>,
    axes: Vec<usize>,
}

impl Case {
    fn run(&self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let shape = Shape::new(&self.shape)?;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let op = Op::Rows {
            program: &self.program,
            inputs: &inputs,
            params: &self.params,
            shape: &shape,
            axes: &self.axes,
        };
        let device = inputs[0].device();
        Ok(match self.program.outputs().len() {
            1 => vec![op.tensor(device)?],
            2 => op.tensors::<2>(device)?.to_vec(),
            _ => op.tensors::<3>(device)?.to_vec(),
        })
    }

    /// Against the reference device, at every level, for views of the inputs.
    fn check(&self, draw: &mut Draw, what: &str) {
        let what = format!(
            "{what}: {} over {:?} along {:?}",
            self.program.expression(),
            self.shape,
            self.axes
        );
        let want = self.run(&self.inputs);
        for device in devices() {
            let inputs: Vec<Tensor> = self.inputs.iter().map(|x| view(draw, x, &device)).collect();
            let Ok(want) = &want else {
                assert!(self.shape.contains(&0), "{what}: {:?}", want.as_ref().err());
                assert!(self.run(&inputs).is_err(), "{what}: no error");
                continue;
            };
            let strides: Vec<_> = inputs.iter().map(|x| x.layout().strides().to_vec()).collect();
            let what = format!("{what}, strides {strides:?} on {device:?}");
            let on = |threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| self.run(&inputs).unwrap())
            };
            let got = on(1);
            for (got, want) in got.iter().zip(want) {
                near(got, want, &what);
            }
            let bytes =
                |all: &[Tensor]| -> Vec<_> { all.iter().map(|x| x.to_bytes().unwrap()).collect() };
            for threads in [2, 4] {
                assert!(bytes(&got) == bytes(&on(threads)), "{what}: {threads} threads");
            }
        }
    }
}

/// The same content on `device` in another layout; sizes of a repeated axis stay repeated.
fn view(draw: &mut Draw, x: &Tensor, device: &Arc<Cpu>) -> Tensor {
    let y = x.to(device).unwrap();
    let repeated = x.strides().iter().zip(x.shape().iter()).any(|(&s, &d)| s == 0 && d > 1);
    if repeated {
        let mut one = x.clone();
        for axis in 0..x.ndim() {
            if x.strides()[axis] == 0 && x.shape()[axis] > 1 {
                one = one.slice(axis as isize, 0..1).unwrap();
            }
        }
        return one.to(device).unwrap().expand(x.shape()).unwrap();
    }
    if y.numel() == 0 {
        return y;
    }
    let all = layouts(&y);
    all[draw.below(all.len())].1.clone()
}

/// Equal up to rounding, relative to the largest value.
fn near(got: &Tensor, want: &Tensor, what: &str) {
    let tolerance = match want.dtype() {
        DType::F64 => 1e-11,
        DType::F32 => 2e-5,
        DType::F16 => 2e-3,
        _ => 1.6e-2,
    };
    common::near(got, want, tolerance, what);
}

/// Numbers from -3 to 3, some of them special.
fn tensor(draw: &mut Draw, shape: &[usize], dtype: DType, special: bool) -> Tensor {
    let n = shape.iter().product();
    let mut values: Vec<f32> = (0..n).map(|_| draw.below(97) as f32 / 16.0 - 3.0).collect();
    for _ in 0..if special && n > 0 { 1 + draw.below(4) } else { 0 } {
        let at = draw.below(n);
        values[at] = draw.one_of(&[f32::NAN, f32::INFINITY, -f32::INFINITY, -0.0, 0.0]);
    }
    Tensor::from_slice(&values, shape, oracle()).unwrap().cast(dtype).unwrap()
}

/// Rows of `length` along some axes.
fn shape(draw: &mut Draw, length: usize) -> (Vec<usize>, Vec<usize>) {
    let most = if length > 5000 { 2 } else { 40 };
    let mut other = || 1 + draw.below(most);
    let (a, b) = (other(), other());
    match draw.below(7) {
        0 => (vec![length], vec![0]),
        1 => (vec![a * 5, length], vec![1]),
        2 => (vec![length, b * 4], vec![0]),
        3 => (vec![2, length, b], vec![1]),
        4 => (vec![3, a.min(7), length], vec![1, 2]),
        5 => (vec![2, length, 3], vec![0, 1]),
        _ => (vec![2, b, length], vec![0, 2]),
    }
}

fn reduced(shape: &[usize], axes: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|a| if axes.contains(&a) { 1 } else { shape[a] }).collect()
}

/// A named program on random operands.
fn named(draw: &mut Draw, function: RowFunction, dtype: DType, length: usize) -> Case {
    let (shape, axes) = shape(draw, length);
    let one = reduced(&shape, &axes);
    let n: usize = axes.iter().map(|&a| shape[a]).product();
    let special = draw.below(4) == 0;
    let mut inputs = vec![tensor(draw, &shape, dtype, special)];
    let mut params = Vec::new();
    let ignored = Scalar::Int(-100);
    let targets = |draw: &mut Draw, dtype: DType| {
        let count = one.iter().product();
        let values: Vec<i64> = (0..count)
            .map(|_| if draw.below(5) == 0 { -100 } else { draw.below(n.clamp(1, 100)) as i64 })
            .collect();
        Tensor::from_slice(&values, &one[..], oracle()).unwrap().cast(dtype).unwrap()
    };
    match function {
        RowFunction::Softmax | RowFunction::LogSoftmax => {}
        RowFunction::SoftmaxGrad | RowFunction::LogSoftmaxGrad => {
            inputs.push(tensor(draw, &shape, dtype, false));
        }
        RowFunction::CrossEntropy | RowFunction::CrossEntropyGrad => {
            let integers = draw.one_of(&[DType::I64, DType::I32, DType::I8]);
            inputs.push(targets(draw, integers));
            params.push(ignored);
            if function == RowFunction::CrossEntropyGrad {
                inputs.push(tensor(draw, &one, dtype, false));
            }
        }
        _ => {
            // A line for all rows.
            let line: Vec<usize> =
                (0..shape.len()).map(|a| if axes.contains(&a) { shape[a] } else { 1 }).collect();
            let is_gradient =
                matches!(function, RowFunction::LayerNormGrad | RowFunction::RmsNormGrad);
            let lines = draw.below(if is_gradient { 2 } else { 4 });
            for _ in 0..lines % 3 {
                inputs.push(tensor(draw, &line, dtype, false).expand(&shape[..]).unwrap());
            }
            // The gradient, or a weight for each element.
            if is_gradient || lines == 3 {
                inputs.push(tensor(draw, &shape, dtype, false));
            }
            params.push(Scalar::Float(1e-2));
        }
    }
    let types: Vec<DType> = inputs.iter().map(|x| x.dtype()).collect();
    let program = function.program(&types, params.len()).unwrap().clone();
    Case { program, inputs, params, shape, axes }
}

#[test]
fn named_programs_on_every_layout() {
    let mut draw = Draw(21);
    for function in RowFunction::ALL {
        for dtype in FLOATS {
            for length in [0, 1, 2, 3, 7, 16, 17, 31, 100, 260, 1000] {
                // No target is inside an empty row: the kernel checks it, the definition need not.
                if length == 0 && function.name().starts_with("cross_entropy") {
                    continue;
                }
                let case = named(&mut draw, function, dtype, length);
                case.check(&mut draw, &format!("{} of {dtype}", function.name()));
            }
        }
        let length = if cfg!(debug_assertions) { 9000 } else { 100_000 };
        let case = named(&mut draw, function, DType::F32, length);
        case.check(&mut draw, function.name());
    }
}

/// Rows whose squares leave the range of f32 are computed in f64, one by one: their neighbours, in
/// lanes beside them, keep their bits.
#[test]
fn norms_of_rows_outside_the_range_leave_their_neighbours() {
    let mut draw = Draw(57);
    for device in common::devices() {
        for (function, length) in [RowFunction::LayerNorm, RowFunction::RmsNorm]
            .into_iter()
            .flat_map(|function| [3, 17, 40, 200].map(|length| (function, length)))
        {
            let gradient = match function {
                RowFunction::LayerNorm => RowFunction::LayerNormGrad,
                _ => RowFunction::RmsNormGrad,
            };
            let plain = tensor(&mut draw, &[40, length], DType::F32, false);
            let g = tensor(&mut draw, &[40, length], DType::F32, false);
            let mut values = plain.to_vec::<f32>().unwrap();
            for (row, scale) in [(7, 1e25), (11, 1e-22), (30, 1e30)] {
                values[row * length..][..length].iter_mut().for_each(|x| *x *= scale);
            }
            let far = Tensor::from_slice(&values, [40, length], oracle()).unwrap();
            let run = |x: &Tensor, dtype: DType, axis: usize, device: &DeviceRef| {
                let [x, g] = [x, &g].map(|x| {
                    let x = x.to(device).unwrap().cast(dtype).unwrap();
                    if axis == 0 { x.t().unwrap().contiguous().unwrap() } else { x }
                });
                let params = [Scalar::Float(1e-30)];
                let results = [
                    function.run(&[&x], &params, &[axis]).unwrap(),
                    gradient.run(&[&x, &g], &params, &[axis]).unwrap(),
                    function.run(&[&x, &g], &params, &[axis]).unwrap(),
                ];
                results.map(|y| if axis == 0 { y.t().unwrap() } else { y })
            };
            let reference: DeviceRef = oracle();
            let want = run(&far, DType::F64, 1, &reference).map(|y| y.cast(DType::F32).unwrap());
            let cpu: DeviceRef = device.clone();
            for axis in [0, 1] {
                let [got, alone] = [&far, &plain].map(|x| run(x, DType::F32, axis, &cpu));
                for k in 0..3 {
                    let what = format!("{} {length} axis {axis} output {k}", function.name());
                    for row in 0..40 {
                        let of = |y: &Tensor| y.slice(0, row..row + 1).unwrap();
                        near(&of(&got[k]), &of(&want[k]), &format!("{what} row {row}"));
                        if ![7, 11, 30].contains(&row) {
                            let bits = |y: &Tensor| of(y).to_vec::<f32>().unwrap();
                            assert_eq!(bits(&got[k]), bits(&alone[k]), "{what} row {row}");
                        }
                    }
                }
            }
        }
    }
}

/// A program of random operations, none of which makes errors much larger. Comparisons read values
/// without a rounding error, since rounding would decide between two results.
fn random(draw: &mut Draw, dtype: DType) -> (Kernel, Vec<Extent>) {
    let builder = Builder::new();
    let extents: Vec<Extent> = (0..1 + draw.below(3))
        .map(|i| if i > 0 && draw.below(3) == 0 { Extent::Row } else { Extent::Element })
        .collect();
    let mut all: Vec<Expr<'_>> =
        extents.iter().map(|&extent| builder.input_of(dtype, extent)).collect();
    let mut exact = all.clone();
    for _ in 0..1 + draw.below(16) {
        let (a, b, c) = (draw.below(all.len()), draw.below(all.len()), draw.below(all.len()));
        let (a, b, c) = (all[all.len() - 1 - a / 2], all[b], all[c]);
        let [p, q, r] = [0; 3].map(|_| exact[draw.below(exact.len())]);
        let length = a.length();
        let next = match draw.below(26) {
            0 => a.max(),
            1 => b.min(),
            2 => a.mean(),
            3 => (a.tanh().exp()).sum() / length,
            4 => a.tanh().square().sum() / length,
            5 => (a - b) * 0.5,
            6 => (a + b) * 0.5,
            7 => a.tanh() * b.tanh(),
            8 => a.maximum(b),
            9 => a.minimum(b),
            10 => a.tanh().exp() * 0.4,
            11 => (a.abs() + 1.0).log(),
            12 => p.lt(q).where_cond(b, c),
            13 => p.le(0.0).where_cond(a, c * 0.5),
            14 => (a.abs() + 1.0).rsqrt(),
            15 => b / (a.abs() + 1.0),
            16 => a.sigmoid(),
            17 => (a.index().cast(dtype.compute()) / (a.length().cast(dtype.compute()) + 1.0))
                .cast(dtype),
            18 => a.is_nan().where_cond(b.like(0.25), a),
            // The definition does not read inputs of one value a row at a position.
            19 if !extents.contains(&Extent::Row) => a.at(0),
            20 => p.gt(q).any().where_cond(a, b),
            21 => p.lt(q).and(q.lt(r)).where_cond(a, c),
            22 => a.tanh().erf(),
            23 | 24 => {
                let value = match draw.below(5) {
                    0 => p.max(),
                    1 => p.min(),
                    2 => p.maximum(q),
                    3 => p.lt(q).where_cond(q, r),
                    _ => p.abs().minimum(r),
                };
                exact.push(value);
                value
            }
            _ => (a.abs() + 0.5).pow(0.5),
        };
        all.push(next);
    }
    let mut outputs = vec![all[all.len() - 1]];
    (0..draw.below(3)).for_each(|_| outputs.push(all[draw.below(all.len())]));
    (builder.finish(&outputs).unwrap(), extents)
}

#[test]
fn random_programs_on_every_layout() {
    let mut draw = Draw(22);
    let rounds = if cfg!(debug_assertions) { 60 } else { 400 };
    for round in 0..rounds {
        let dtype = draw.one_of(&FLOATS);
        let (program, extents) = random(&mut draw, dtype);
        if program.is_pointwise() {
            continue;
        }
        let length = draw.one_of(&[1, 2, 3, 7, 16, 17, 33, 100, 129, 270, 1000, 3000]);
        let (shape, axes) = shape(&mut draw, length);
        let one = reduced(&shape, &axes);
        let special = draw.below(4) == 0;
        let inputs = extents
            .iter()
            .map(|&extent| match (extent, draw.below(4)) {
                (Extent::Row, _) => tensor(&mut draw, &one, dtype, special),
                (_, 0) => {
                    let repeated: Vec<usize> =
                        shape.iter().map(|&d| if draw.below(2) == 0 { 1 } else { d }).collect();
                    tensor(&mut draw, &repeated, dtype, false).expand(&shape[..]).unwrap()
                }
                _ => tensor(&mut draw, &shape, dtype, special),
            })
            .collect();
        let case = Case { program: Arc::new(program), inputs, params: vec![], shape, axes };
        case.check(&mut draw, &format!("round {round}, {dtype}"));
    }
}

#[test]
fn sums_that_leave_the_range_of_f32_come_back() {
    for device in devices() {
        for n in [4usize, 40, 400, 4000] {
            let values: Vec<f32> = (0..n).map(|i| if i % 4 < 2 { 3e38 } else { -3e38 }).collect();
            let x = Tensor::from_slice(&values, (1, n), &device).unwrap();
            let y = teeny_core::map_rows([&x], -1, |[x]| x.sum() + 1.0).unwrap();
            assert_eq!(y.to_vec::<f32>().unwrap(), [1.0], "{n} on {device:?}");
            let y = teeny_core::map_rows([&x.t().unwrap()], 0, |[x]| x.sum() + 1.0).unwrap();
            assert_eq!(y.to_vec::<f32>().unwrap(), [1.0], "{n} on {device:?}");
            let x = Tensor::from_slice(&vec![0.5f32; n], (1, n), &device).unwrap();
            let y = teeny_core::map_rows([&x], -1, |[x]| x.prod()).unwrap();
            assert_eq!(y.to_vec::<f32>().unwrap(), [0.5f32.powi(n as i32)]);
        }
    }
}

#[test]
fn positions_outside_a_row_are_errors() {
    for device in devices() {
        let x = Tensor::from_slice(&[1.0f32; 6], (2, 3), &device).unwrap();
        for t in [3i64, -1, i64::MIN] {
            let t = Tensor::new([[0i64], [t]], &device).unwrap();
            let error = teeny_core::map_rows([&x, &t], -1, |[x, t]| x.max() - x.at(t));
            assert!(error.is_err(), "{t:?}");
        }
    }
}
