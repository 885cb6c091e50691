//! A member of a batch of matrices has the results and the gradient that it has alone, whatever the
//! others are: NaN, infinite, zero, singular, huge or tiny.
use teeny_autograd::{Autograd, Grad};
use teeny_core::{
    DType, DeviceRef, Lazy, MatrixNorm, Reference, Result, Tensor, ToDevice, Triangle, map,
};
use teeny_cpu::Cpu;

/// Knuth's MMIX generator: the same numbers in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }

    /// A number in -1 to 1.
    fn signed(&mut self) -> f64 {
        self.below(1 << 24) as f64 / f64::from(1 << 23) - 1.0
    }
}

type Function = fn(&Tensor) -> Result<Vec<Tensor>>;

/// Whether the result has a gradient.
#[derive(Clone, Copy, PartialEq)]
enum Has {
    Gradient,
    NoGradient,
}
use Has::{Gradient, NoGradient};

/// A right-hand side that all members share.
fn side(x: &Tensor, columns: usize) -> Result<Tensor> {
    let rows = x.shape()[x.ndim() - 2];
    Tensor::linspace(-1.0, 2.0, rows * columns, x.dtype(), x)?.reshape((rows, columns))
}

/// A symmetric matrix, positive definite for ordinary x.
fn definite(x: &Tensor) -> Result<Tensor> {
    let n = x.shape()[x.ndim() - 1];
    x.matmul(&x.transpose(-2, -1)?)?.add(&Tensor::eye(n, x.dtype(), x)?)
}

fn parts<const N: usize>(parts: [Tensor; N]) -> Result<Vec<Tensor>> {
    Ok(parts.into())
}

const SQUARE: &[(&str, Has, Function)] = &[
    ("matrix_exp", Gradient, |x| parts([x.matrix_exp()?])),
    ("matrix_power 5", Gradient, |x| parts([x.matrix_power(5)?])),
    ("matrix_power -2", Gradient, |x| parts([x.matrix_power(-2)?])),
    ("matrix_power 0", NoGradient, |x| parts([x.matrix_power(0)?])),
    ("inv", Gradient, |x| parts([x.inv()?])),
    ("det", Gradient, |x| parts([x.det()?])),
    ("slogdet", Gradient, |x| x.slogdet().map(|(sign, log)| vec![sign, log])),
    ("solve", Gradient, |x| parts([x.solve(&side(x, 2)?)?])),
    ("solve for x", Gradient, |x| {
        let n = x.shape()[x.ndim() - 1];
        parts([Tensor::eye(n, x.dtype(), x)?.mul(3.0)?.add(0.5)?.solve(x)?])
    }),
    ("lower", Gradient, |x| parts([x.solve_triangular(&side(x, 2)?, Triangle::Lower)?])),
    ("upper", Gradient, |x| parts([x.solve_triangular(&side(x, 1)?, Triangle::Upper)?])),
    ("unit lower", Gradient, |x| parts([x.solve_triangular(&side(x, 2)?, Triangle::UnitLower)?])),
    ("cholesky", Gradient, |x| parts([definite(x)?.cholesky()?])),
    ("cholesky_solve", Gradient, |x| parts([side(x, 2)?.cholesky_solve(x, Triangle::Lower)?])),
    ("eigh", Gradient, |x| definite(x)?.eigh().map(|(w, v)| vec![w, v])),
    ("eigvalsh", Gradient, |x| parts([x.eigvalsh()?])),
    ("eig", NoGradient, |x| definite(x)?.eig().map(|(w, v)| vec![w, v])),
    ("eigvals", NoGradient, |x| x.eigvals().map(|(re, im)| vec![re, im])),
    ("trace", Gradient, |x| parts([x.trace()?])),
];

const ANY: &[(&str, Has, Function)] = &[
    ("matmul", Gradient, |x| parts([x.matmul(&x.transpose(-2, -1)?)?])),
    ("qr", Gradient, |x| x.qr().map(|(q, r)| vec![q, r])),
    ("qr_complete", NoGradient, |x| x.qr_complete().map(|(q, r)| vec![q, r])),
    ("svd", Gradient, |x| x.svd().map(|(u, s, v)| vec![u, s, v])),
    ("svd_full", NoGradient, |x| x.svd_full().map(|(u, s, v)| vec![u, s, v])),
    ("svdvals", Gradient, |x| parts([x.svdvals()?])),
    ("pinv", Gradient, |x| parts([x.pinv(None)?])),
    ("pinv 0.3", Gradient, |x| parts([x.pinv(Some(0.3))?])),
    ("lstsq", Gradient, |x| parts([x.lstsq(&side(x, 2)?)?])),
    ("lstsq of a vector", Gradient, |x| parts([x.lstsq(&side(x, 1)?.squeeze(-1)?)?])),
    ("matrix_rank", NoGradient, |x| parts([x.matrix_rank(None)?])),
    ("cond", Gradient, |x| parts([x.cond()?])),
    ("frobenius", Gradient, |x| parts([x.matrix_norm(MatrixNorm::Frobenius)?])),
    ("nuclear", Gradient, |x| parts([x.matrix_norm(MatrixNorm::Nuclear)?])),
    ("spectral", Gradient, |x| parts([x.matrix_norm(MatrixNorm::Spectral)?])),
    ("columns", Gradient, |x| parts([x.matrix_norm(MatrixNorm::Columns)?])),
    ("rows", Gradient, |x| parts([x.matrix_norm(MatrixNorm::Rows)?])),
    ("vector_norm 2.5", Gradient, |x| parts([x.vector_norm(2.5, -1)?])),
    ("vector_norm -1", Gradient, |x| parts([x.vector_norm(-1.0, [-2, -1])?])),
    ("normalize", Gradient, |x| parts([x.normalize(2.0, -1, 1e-12)?])),
    ("cdist", Gradient, |x| parts([x.cdist(&side(x, x.shape()[x.ndim() - 1])?, 2.0)?])),
    ("tril", Gradient, |x| parts([x.tril(0)?])),
];

/// Members of a batch (m, n).
const KINDS: [&str; 10] = [
    "ordinary",
    "nan",
    "infinite",
    "zero",
    "deficient",
    "huge",
    "large",
    "tiny",
    "one",
    "negative",
];

fn member(kind: &str, m: usize, n: usize, dtype: DType, dice: &mut Dice) -> Vec<f64> {
    let huge = if dtype == DType::F64 { 1e300 } else { 1e37 };
    let mut x: Vec<f64> =
        (0..m * n).map(|i| dice.signed() + 2.0 * f64::from(u8::from(i % (n + 1) == 0))).collect();
    let at = n * (m - 1); // in the lower triangle
    match kind {
        "nan" => x[at] = f64::NAN,
        "infinite" => x[at] = f64::INFINITY,
        "zero" => x.fill(0.0),
        "deficient" => (0..m * n).for_each(|i| x[i] = if i % n == 0 { 0.0 } else { x[i] }),
        "huge" => x.iter_mut().for_each(|x| *x *= huge),
        "large" => x.iter_mut().for_each(|x| *x *= 30.0),
        "tiny" => x.iter_mut().for_each(|x| *x /= huge),
        "one" => (0..m * n).for_each(|i| x[i] = f64::from(u8::from(i % (n + 1) == 0))),
        "negative" => (0..m * n).for_each(|i| x[i] = -20.0 * f64::from(u8::from(i % (n + 1) == 0))),
        _ => {}
    }
    x
}

/// Results, and the gradient of their weighted sum if there is one.
type Answer = Result<(Vec<Tensor>, Option<Tensor>)>;

fn answer(f: Function, has: Has, x: &Tensor, batch: usize) -> Answer {
    if has == NoGradient {
        let results = f(&x.detach()?)?;
        results.iter().try_for_each(|y| y.to_bytes().map(|_| ()))?;
        return Ok((results, None));
    }
    let x = x.requires_grad()?;
    let results = f(&x)?;
    let mut sum = Tensor::zeros((), x.dtype(), &x)?;
    for y in &results {
        let each = &y.shape()[batch..];
        let n: usize = each.iter().product();
        let weights = Tensor::linspace(0.5, 1.5, n, x.dtype(), &x)?.reshape(each)?;
        sum = sum.add(&y.mul(&weights)?.sum_all()?)?;
    }
    let gradient = sum.backward()?.get(&x)?.clone();
    gradient.to_bytes()?;
    Ok((results, Some(gradient)))
}

/// The elements as f64, NaN as one value and -0 as 0.
fn bits(x: &Tensor) -> Vec<u64> {
    let plain = |x: f64| if x.is_nan() { f64::NAN } else { x + 0.0 };
    x.to_scalars().unwrap().iter().map(|x| plain(x.to_f64()).to_bits()).collect()
}

/// Whether the NaN of a member is not read: it is at the end of the first column.
fn reads_a_part(name: &str, n: usize) -> bool {
    matches!(name, "matrix_power 0" | "upper" | "trace") && n > 1
        || matches!(name, "matrix_power 0" | "unit lower") && n == 1
}

fn check(device: &DeviceRef, functions: &[(&str, Has, Function)], m: usize, n: usize, seed: u64) {
    let mut dice = Dice(100 * seed + (10 * m + n) as u64);
    let mut wrong: Vec<String> = Vec::new();
    for dtype in [DType::F32, DType::F64] {
        for (kind, (name, has, f)) in
            KINDS.iter().flat_map(|kind| functions.iter().map(move |f| (kind, f)))
        {
            let place = dice.below(3);
            let kinds: Vec<&str> = (0..3)
                .map(|i| match i == place {
                    true => kind,
                    false if dice.below(4) == 0 => KINDS[dice.below(KINDS.len())],
                    false => "ordinary",
                })
                .collect();
            let values =
                kinds.iter().flat_map(|kind| member(kind, m, n, dtype, &mut dice)).collect();
            let x = Tensor::from_vec::<f64>(values, (3, m, n), device).unwrap();
            let x = x.cast(dtype).unwrap();
            let label = format!("{name} of {dtype} ({m}, {n}) {kinds:?}");
            let alone: Vec<Answer> =
                (0..3).map(|i| answer(*f, *has, &x.at(0, i).unwrap(), 0)).collect();
            let both = answer(*f, *has, &x, 1);
            let (results, gradient) = match (both, alone.iter().all(Result::is_ok)) {
                (Ok(both), true) => both,
                (Err(_), false) => continue,
                (Ok(_), false) => {
                    let failed = alone.iter().find_map(|a| a.as_ref().err()).unwrap();
                    wrong.push(format!("{label}: numbers, alone {}", failed.message()));
                    continue;
                }
                (Err(error), true) => {
                    wrong.push(format!("{label}: {}", error.message()));
                    continue;
                }
            };
            for (i, alone) in alone.iter().enumerate() {
                let (own, own_gradient) = alone.as_ref().unwrap();
                let all = results.iter().chain(&gradient).zip(own.iter().chain(own_gradient));
                for (o, (both, own)) in all.enumerate() {
                    let both = both.at(0, i as isize).unwrap();
                    if bits(&both) != bits(own) {
                        let [both, own] = [&both, own].map(|x| x.to_scalars().unwrap());
                        wrong.push(format!("{label}: member {i}, {o}: {both:?}, alone {own:?}"));
                    }
                }
                if kinds[i] == "nan" && !reads_a_part(name, n) {
                    let nan = own.iter().any(|y| bits(y).contains(&f64::NAN.to_bits()));
                    if !nan {
                        wrong.push(format!("{label}: NaN becomes numbers"));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn a_member_of_a_batch_has_the_answer_that_it_has_alone() {
    let devices: [DeviceRef; 3] = [
        Autograd::new(Cpu::new()).to_device(),
        Autograd::new(Reference::new()).to_device(),
        Autograd::new(Lazy::new(Cpu::new())).to_device(),
    ];
    for (seed, device) in devices.iter().enumerate() {
        check(device, SQUARE, 3, 3, seed as u64);
        check(device, SQUARE, 1, 1, seed as u64);
        for (m, n) in [(3, 3), (4, 2), (2, 4)] {
            check(device, ANY, m, n, seed as u64);
        }
    }
}

/// The exponential of diagonal matrices whose norms are far apart, in one batch.
#[test]
fn the_exponential_is_that_of_each_matrix_at_every_size() {
    for (dtype, tolerance) in [(DType::F32, 2e-5), (DType::F64, 1e-12)] {
        let d = Cpu::new();
        let x = [-20.0f64, f64::NAN, 3.0, -1e-30, 0.0, f64::NEG_INFINITY, 1e30, -1e30, 700.0];
        let x = Tensor::new(x, &d).unwrap().cast(dtype).unwrap(); // (9)
        let y = x.unsqueeze(-1).unwrap().diag_embed(0).unwrap().matrix_exp().unwrap();
        let want = x.exp().unwrap();
        let off = map([&y.reshape(-1).unwrap(), &want], |[y, w]| {
            y.eq(w).or(w.is_nan()).where_cond(y.like(0.0), ((y - w) / w).abs())
        });
        let off = off.unwrap().cast(DType::F64).unwrap().to_vec::<f64>().unwrap();
        for (i, off) in off.iter().enumerate() {
            // A power of an error of rounding: the largest relative error grows with the number.
            assert!(
                i == 5 || *off < tolerance * if i == 8 { 40.0 } else { 1.0 },
                "{dtype}: {off:?}"
            );
        }
    }
}
