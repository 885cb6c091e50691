//! Random graphs of operations, run on a device and on the oracle.
//!
//! A graph is made while it runs on the oracle, so that every step is legal and its values stay in
//! range. Steps that could turn a difference in the last place into a different answer
//! (comparisons, rounding, casts to integers) read only values that must be exact. A disagreement
//! is reported with the steps that lead to it and nothing else.

use super::dice::Dice;
use super::operand::{Operand, Values};
use teeny_core::{
    DType, DeviceRef, ErrorKind, Extremum, QuantTensor, QuantType, Reference, Result, Scalar,
    Shape, SortOrder, Tensor, ToDevice, Window, map, map_n,
};

type Run = Box<dyn Fn(&[Tensor]) -> Result<Vec<Tensor>>>;

/// One step: what it reads, what it does, in words.
struct FuzzStep {
    text: String,
    sources: Vec<usize>,
    run: Run,
    /// The same bits on every device.
    exact: bool,
}

/// A value on the oracle, and what its rounding errors are measured against: the largest number and
/// the coarsest type on the way to it.
struct Value {
    tensor: Tensor,
    exact: bool,
    size: f64,
    relative: f64,
}

/// How far results of a type may be apart, relative to the largest number on the way.
fn relative(dtype: DType) -> f64 {
    match dtype {
        DType::F16 => 4e-3,
        DType::BF16 => 3e-2,
        DType::F64 => 1e-12,
        _ => 1e-5,
    }
}

/// Runs `graphs` random graphs of about a dozen steps on `device` and on the oracle.
///
/// Floats may differ by 1e-5 of the largest number on the way (1e-12 for f64, two places of a
/// 16-bit float); all else must be equal. Types that the device refuses as unsupported are left
/// out.
///
/// # Errors
/// The first disagreement: the steps that lead to it, the element, both values.
pub fn fuzz(device: impl ToDevice, graphs: usize, seed: u64) -> std::result::Result<(), String> {
    let (device, reference): (DeviceRef, DeviceRef) = (device.to_device(), Reference::new());
    let supported: Vec<DType> = DType::ALL
        .into_iter()
        .filter(|&t| !matches!(Tensor::zeros(2, t, &device).and_then(|x| x.to_bytes()), Err(e) if e.kind() == ErrorKind::Unsupported))
        .collect();
    (0..graphs as u64).try_for_each(|number| {
        one_graph(&device, &reference, &palette(number, &supported), &supported, (seed, number))
    })
}

/// The types that a graph begins with and casts to: mostly f32 and one other, so that all types
/// occur and a device that compiles kernels meets few pairs of them; in one of sixteen all of them,
/// in any mixture.
fn palette(number: u64, supported: &[DType]) -> Vec<DType> {
    let other = supported[(number % supported.len() as u64) as usize];
    if number % 16 == 5 {
        supported.to_vec()
    } else {
        supported.iter().copied().filter(|&t| t == other || t == DType::F32).collect()
    }
}

fn one_graph(
    device: &DeviceRef,
    reference: &DeviceRef,
    dtypes: &[DType],
    supported: &[DType],
    (seed, number): (u64, u64),
) -> std::result::Result<(), String> {
    let mut dice = Dice::new(seed, number);
    let (mut steps, mut values, mut mirror): (Vec<FuzzStep>, Vec<Value>, Vec<Tensor>) =
        (Vec::new(), Vec::new(), Vec::new());
    let want = 6 + dice.below(10);
    for _ in 0..4 * want {
        if steps.len() >= want {
            break;
        }
        let Some(step) = (if steps.len() < 2 {
            leaf(&mut dice, dtypes)
        } else {
            next(&mut dice, dtypes, &values)
        }) else {
            continue;
        };
        let on = |tensors: &[Tensor], home: &DeviceRef| -> Result<Vec<Tensor>> {
            if step.sources.is_empty() {
                return (step.run)(&[Tensor::zeros((), DType::F32, home)?]);
            }
            (step.run)(&step.sources.iter().map(|&s| tensors[s].clone()).collect::<Vec<_>>())
        };
        let oracle: Vec<Tensor> = values.iter().map(|v| v.tensor.clone()).collect();
        let Ok(tensors) = on(&oracle, reference) else { continue };
        let sizes: Option<Vec<f64>> = tensors.iter().map(|y| usable(y, supported)).collect();
        let Some(sizes) = sizes else { continue };
        let sources = || step.sources.iter().map(|&s| &values[s]);
        let size = sources().map(|v| v.size).chain(sizes).fold(1.0, f64::max);
        let exact = step.exact && sources().all(|v| v.exact);
        let got = on(&mirror, device);
        // A step may compute in the type of an operand before it promotes: tanh of an f32 times an
        // f64.
        let rough = sources().filter(|v| !step.exact || !v.exact);
        let own = rough.map(|v| if v.exact { relative(v.tensor.dtype()) } else { v.relative });
        let coarsest = own.fold(0.0, f64::max);
        let first = steps.len();
        steps.push(step);
        let story = |steps: &[FuzzStep], why: &str| {
            format!("graph {number} of seed {seed}: {why}\n{}", story(steps, steps.len() - 1))
        };
        let got = match got {
            Err(error) if error.kind() == ErrorKind::Unsupported => {
                steps.pop();
                continue;
            }
            Err(error) => return Err(story(&steps, &error.to_string())),
            Ok(got) if got.len() == tensors.len() => got,
            Ok(got) => return Err(story(&steps, &format!("{} results", got.len()))),
        };
        for (i, (tensor, got)) in tensors.into_iter().zip(got).enumerate() {
            if i > 0 {
                steps.push(FuzzStep {
                    text: format!("result {i}"),
                    sources: vec![first],
                    run: Box::new(|x| Ok(x.to_vec())),
                    exact,
                });
            }
            let relative = relative(tensor.dtype()).max(coarsest);
            let value = Value { tensor, exact, size, relative };
            compare(&value, &got).map_err(|why| story(&steps, &why))?;
            values.push(value);
            mirror.push(got);
        }
    }
    Ok(())
}

/// The steps that lead to step `last`, one a line.
fn story(steps: &[FuzzStep], last: usize) -> String {
    let mut needed = vec![false; steps.len()];
    needed[last] = true;
    // Sources come before users, so one backward sweep finds them all.
    for i in (0..=last).rev() {
        if needed[i] {
            steps[i].sources.iter().for_each(|&s| needed[s] = true);
        }
    }
    let lines = (0..=last)
        .filter(|&i| needed[i])
        .map(|i| format!("  %{i} = {} {:?}", steps[i].text, steps[i].sources));
    lines.collect::<Vec<_>>().join("\n")
}

/// The largest magnitude, if the tensor is small enough to go on with and its numbers are tame.
fn usable(x: &Tensor, supported: &[DType]) -> Option<f64> {
    if x.numel() > 600 || !supported.contains(&x.dtype()) {
        return None;
    }
    let sizes: Vec<f64> = x.to_scalars().ok()?.into_iter().map(|v| v.to_f64().abs()).collect();
    let largest = sizes.iter().copied().fold(1.0, f64::max);
    // Below 1e2, so that a rounding error times a value stays small. NaN is not tame.
    let tame = !x.dtype().is_float() || sizes.iter().all(|&size| size < 1e2);
    tame.then_some(largest)
}

fn compare(expected: &Value, got: &Tensor) -> std::result::Result<(), String> {
    let (x, dtype) = (&expected.tensor, expected.tensor.dtype());
    if (x.shape(), dtype) != (got.shape(), got.dtype()) {
        return Err(format!("{} {}, expected {dtype} {}", got.dtype(), got.shape(), x.shape()));
    }
    let (want, have) =
        (x.to_scalars().map_err(|e| e.to_string())?, got.to_scalars().map_err(|e| e.to_string())?);
    for (i, (w, h)) in want.into_iter().zip(have).enumerate() {
        let (a, b) = (w.to_f64(), h.to_f64());
        let agree = match w {
            Scalar::Float(_) if !expected.exact => {
                (a - b).abs() <= expected.relative * expected.size
            }
            Scalar::Float(_) => a == b,
            _ => w == h,
        };
        if !agree {
            return Err(format!("element {i} is {h}, expected {w}"));
        }
    }
    Ok(())
}

fn step(
    text: impl Into<String>,
    sources: Vec<usize>,
    exact: bool,
    run: impl Fn(&[Tensor]) -> Result<Tensor> + 'static,
) -> Option<FuzzStep> {
    several(text, sources, exact, move |x| Ok(vec![run(x)?]))
}

/// A step of several results.
fn several(
    text: impl Into<String>,
    sources: Vec<usize>,
    exact: bool,
    run: impl Fn(&[Tensor]) -> Result<Vec<Tensor>> + 'static,
) -> Option<FuzzStep> {
    Some(FuzzStep { text: text.into(), sources, run: Box::new(run), exact })
}

fn leaf(dice: &mut Dice, dtypes: &[DType]) -> Option<FuzzStep> {
    let shape: Vec<usize> = (0..dice.below(4))
        .map(|_| if dice.below(12) == 0 { 0 } else { 1 + dice.below(5) })
        .collect();
    let favourites: Vec<DType> =
        dtypes.iter().copied().filter(|t| matches!(t, DType::F32 | DType::F64)).collect();
    let dtype = if dice.below(2) == 0 && !favourites.is_empty() {
        dice.pick(&favourites)
    } else {
        dice.pick(dtypes)
    };
    let shape = Shape::new(&shape).expect("a small shape");
    let operand = Operand::new(dice, shape, dtype, Values::Tame);
    step(operand.to_string(), Vec::new(), true, move |home| operand.on(home[0].device()))
}

fn next(dice: &mut Dice, dtypes: &[DType], values: &[Value]) -> Option<FuzzStep> {
    let a = dice.below(values.len());
    let x = &values[a];
    let ndim = x.tensor.ndim();
    match dice.below(14) {
        0 | 1 => view(dice, a, &x.tensor),
        2 | 3 => unary(dice, a, x),
        4..=6 => {
            // A partner that broadcasts is rare by chance: look for one.
            let fits: Vec<usize> = (0..values.len())
                .filter(|&b| x.tensor.shape().broadcast(values[b].tensor.shape()).is_some())
                .collect();
            let b = dice.pick(&fits);
            binary(dice, a, b, x.exact && values[b].exact)
        }
        7 if ndim > 0 => reduce(dice, a, &x.tensor),
        8 if ndim > 0 => {
            let fits: Vec<(usize, bool)> = (0..values.len())
                .filter_map(|b| {
                    let (k, y) = (x.tensor.shape()[ndim - 1], values[b].tensor.shape());
                    match y.ndim() {
                        0 => None,
                        n if y[n.max(2) - 2] == k => Some((b, false)),
                        n if y[n - 1] == k => Some((b, true)),
                        _ => None,
                    }
                })
                .collect();
            let (b, transposed) = if fits.is_empty() { return None } else { dice.pick(&fits) };
            step(if transposed { "matmul with t" } else { "matmul" }, vec![a, b], false, move |x| {
                x[0].matmul(&if transposed { x[1].t()? } else { x[1].clone() })
            })
        }
        9 if x.exact => {
            let to = dice.pick(dtypes);
            step(format!("cast {to}"), vec![a], true, move |x| x[0].cast(to))
        }
        10 if ndim > 0 => {
            let axis = dice.below(ndim) as isize;
            match dice.below(3) {
                0 => step(format!("softmax {axis}"), vec![a], false, move |x| x[0].softmax(axis)),
                1 => step(format!("cumsum {axis}"), vec![a], false, move |x| x[0].cumsum(axis)),
                _ if x.exact => step(format!("sort {axis}"), vec![a], true, move |x| {
                    Ok(x[0].sort(axis, SortOrder::Descending)?.0)
                }),
                _ => step(format!("cat {axis}"), vec![a, a], true, move |x| {
                    Tensor::cat(&[&x[0], &x[1]], axis)
                }),
            }
        }
        11 if ndim > 0 => of_several(dice, a, x),
        12 if ndim > 0 && x.tensor.dtype().is_float() => quantised(dice, a, &x.tensor),
        _ => {
            let b = dice.below(values.len());
            step("map: tanh(a) * 0.5 + b * a", vec![a, b], false, |x| {
                map([&x[0], &x[1]], |[a, b]| a.tanh() * 0.5 + b * a)
            })
        }
    }
}

fn view(dice: &mut Dice, a: usize, x: &Tensor) -> Option<FuzzStep> {
    let ndim = x.ndim();
    let axis = dice.below(ndim) as isize;
    let size = if ndim == 0 { 0 } else { x.shape()[axis as usize] };
    let (start, other) = (dice.below(size + 1), dice.below(ndim) as isize);
    match dice.below(9) {
        0 => step(format!("unsqueeze {axis}"), vec![a], true, move |x| x[0].unsqueeze(axis)),
        1 => step("reshape -1", vec![a], true, |x| x[0].reshape(-1)),
        2 => step("copy", vec![a], true, |x| x[0].copy()),
        3 => {
            let n = 1 + dice.below(3);
            step(format!("expand front {n}"), vec![a], true, move |x| {
                let shape: Vec<usize> =
                    std::iter::once(n).chain(x[0].shape().iter().copied()).collect();
                x[0].expand(shape)
            })
        }
        _ if ndim == 0 => None,
        4 => step(format!("flip {axis}"), vec![a], true, move |x| x[0].flip(axis)),
        5 => step(format!("transpose {axis} {other}"), vec![a], true, move |x| {
            x[0].transpose(axis, other)
        }),
        6 => step(format!("slice {axis} from {start}"), vec![a], true, move |x| {
            x[0].slice(axis, start..)
        }),
        7 => {
            let by = dice.pick(&[-2isize, -1, 2, 3]);
            step(format!("slice_step {axis} by {by}"), vec![a], true, move |x| {
                x[0].slice_step(axis, .., by)
            })
        }
        _ if size > 0 => {
            let window = 1 + dice.below(size);
            step(format!("unfold {axis} {window}"), vec![a], true, move |x| {
                x[0].unfold(axis, window, 1)
            })
        }
        _ => None,
    }
}

fn unary(dice: &mut Dice, a: usize, x: &Value) -> Option<FuzzStep> {
    type Unary = (&'static str, fn(&Tensor) -> Result<Tensor>);
    const EXACT: [Unary; 5] = [
        ("neg", |x| x.neg()),
        ("abs", |x| x.abs()),
        ("relu", |x| x.relu()),
        ("sign", |x| x.sign()),
        ("not", |x| x.not()),
    ];
    const SMOOTH: [Unary; 9] = [
        ("tanh", |x| x.tanh()),
        ("sigmoid", |x| x.sigmoid()),
        ("sin", |x| x.sin()),
        ("exp of -abs", |x| map([x], |[x]| (-x.abs()).exp())),
        ("gelu", |x| x.gelu()),
        ("silu", |x| x.silu()),
        ("softplus", |x| x.softplus()),
        ("sqrt of 1 + square", |x| map([x], |[x]| (x.square() + 1.0).sqrt())),
        ("div by 3", |x| x.div(3)),
    ];
    let smooth = x.tensor.dtype().is_float() && dice.below(3) > 0;
    let (text, f) = if smooth { dice.pick(&SMOOTH) } else { dice.pick(&EXACT) };
    // A sign is exact only of exact values: a tiny difference around 0 would jump.
    if text == "sign" && !x.exact {
        return None;
    }
    step(text, vec![a], !smooth, move |x| f(&x[0]))
}

fn binary(dice: &mut Dice, a: usize, b: usize, exact: bool) -> Option<FuzzStep> {
    type Binary = (&'static str, fn(&Tensor, &Tensor) -> Result<Tensor>);
    const ARITHMETIC: [Binary; 3] =
        [("add", |a, b| a.add(b)), ("sub", |a, b| a.sub(b)), ("mul", |a, b| a.mul(b))];
    const CONTINUOUS: [Binary; 2] =
        [("maximum", |a, b| a.maximum(b)), ("minimum", |a, b| a.minimum(b))];
    const JUMPING: [Binary; 6] = [
        ("lt", |a, b| a.lt(b)),
        ("eq", |a, b| a.eq(b)),
        ("floor_div", |a, b| a.floor_div(b)),
        ("rem", |a, b| a.rem(b)),
        ("xor", |a, b| a.xor(b)),
        ("where_cond", |a, b| a.where_cond(a, b)),
    ];
    let (text, f, bits) = match dice.below(if exact { 3 } else { 2 }) {
        0 => dice.pick(&ARITHMETIC.map(|(t, f)| (t, f, false))),
        1 => dice.pick(&CONTINUOUS.map(|(t, f)| (t, f, true))),
        _ => dice.pick(&JUMPING.map(|(t, f)| (t, f, true))),
    };
    step(text, vec![a, b], bits, move |x| f(&x[0], &x[1]))
}

/// An operation of several results. Positions depend on equal and nearly equal values, so inexact
/// values have no positions.
fn of_several(dice: &mut Dice, a: usize, x: &Value) -> Option<FuzzStep> {
    let (ndim, exact) = (x.tensor.ndim(), x.exact);
    let axis = dice.below(ndim);
    let (size, along) = (x.tensor.shape()[axis], axis as isize);
    match dice.below(if exact { 5 } else { 1 }) {
        0 => several("map_n: a + a, a > 1, a * 0.5", vec![a], false, |x| {
            let [sum, large, half] = map_n([&x[0]], |[a]| [a + a, a.gt(1), a * 0.5])?;
            Ok(vec![sum, large, half])
        })
        .filter(|_| exact),
        1 => {
            let order = dice.pick(&[SortOrder::Ascending, SortOrder::Descending]);
            several(format!("sort {axis} {order:?}"), vec![a], true, move |x| {
                x[0].sort(along, order).map(|(values, places)| vec![values, places])
            })
        }
        2 => {
            let k = dice.below(size + 1);
            let extremum = dice.pick(&[Extremum::Largest, Extremum::Smallest]);
            several(format!("topk {k} of {axis} {extremum:?}"), vec![a], true, move |x| {
                x[0].topk(k, along, extremum).map(|(values, places)| vec![values, places])
            })
        }
        3 => several(format!("cummax {axis}"), vec![a], true, move |x| {
            x[0].cummax(along).map(|(values, places)| vec![values, places])
        }),
        _ => {
            let kernel = dice.between(1, size.max(1));
            several(format!("max_pool {kernel}"), vec![a], true, move |x| {
                let (values, places) = x[0].max_pool_indices(&[kernel], &Window::new(1))?;
                Ok(vec![values, places])
            })
        }
    }
}

/// A product with a quantised matrix of two types, which takes the elements as they are, or some of
/// its rows.
fn quantised(dice: &mut Dice, a: usize, x: &Tensor) -> Option<FuzzStep> {
    let ndim = x.ndim();
    let kinds = [dice.pick(&QuantType::ALL), dice.pick(&QuantType::ALL)];
    let width = kinds.iter().map(|kind| kind.block_elements()).max()?.max(32);
    let rows = [dice.between(1, 20), dice.between(1, 20)];
    let shape = Shape::new(&[rows[0] + rows[1], width]).ok()?;
    let weight = Operand::packed(dice, shape, DType::F32, Values::Positive);
    let columns = x.shape()[ndim - 1];
    let made = move |device: &DeviceRef| {
        let weight = weight.on(device)?;
        let parts = [weight.slice(0, ..rows[0])?, weight.slice(0, rows[0]..)?];
        let [first, second] = [0, 1].map(|i| QuantTensor::quantize(&parts[i], kinds[i]));
        QuantTensor::join(&[&first?, &second?]).map(|weight| weight.with_exact(true))
    };
    if dice.one_in(3) {
        let positions = [0, rows[0] - 1, rows[0], rows[0] + rows[1] - 1].map(|i| i as i64);
        let position = dice.pick(&positions);
        return step(format!("row {position} of {kinds:?} {rows:?}"), vec![a], false, move |x| {
            let index = Tensor::full((), position, DType::I64, x[0].device())?;
            made(x[0].device())?.index_select(&index)?.slice(0, ..3)
        });
    }
    step(format!("linear by {kinds:?} {rows:?}"), vec![a], false, move |x| {
        let mut widths = vec![(0, 0); ndim];
        widths[ndim - 1] = (0, (width - columns) as isize);
        made(x[0].device())?.linear(&x[0].cast(DType::F32)?.pad(&widths, 0)?)
    })
}

fn reduce(dice: &mut Dice, a: usize, x: &Tensor) -> Option<FuzzStep> {
    type Reduce = (&'static str, fn(&Tensor, &[i64]) -> Result<Tensor>, bool);
    const REDUCTIONS: [Reduce; 5] = [
        ("sum", |x, a| x.sum(a), false),
        ("mean", |x, a| x.mean(a), false),
        ("max_keepdim", |x, a| x.max_keepdim(a), true),
        ("min", |x, a| x.min(a), true),
        ("logsumexp", |x, a| x.logsumexp(a), false),
    ];
    let (text, f, exact) = dice.pick(&REDUCTIONS);
    let axes: Vec<i64> = dice.axes(x.ndim()).into_iter().map(|axis| axis as i64).collect();
    step(format!("{text} {axes:?}"), vec![a], exact, move |x| f(&x[0], &axes))
}
