//! Linear regression: a line in closed form and by gradient descent, polynomials with and without a
//! prior, and the double descent of models with more parameters than data.
#![forbid(unsafe_code)]

use examples::options::at_least_one;
use examples::{Common, Program, opt, println};
use std::process::ExitCode;
use teeny_autograd::Grad;
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::optim::{Optimizer, Sgd};
use teeny_nn::{Init, Store};

const PROGRAM: Program<usize> = Program {
    about: "Fits lines, polynomials and random features, in closed form and by gradient descent.",
    options: &[opt(
        "draws N",
        "random problems that the double descent is averaged over [20]",
        |draws, v| v.with(draws, at_least_one),
    )],
    without: &["data", "load", "save", "resume", "log", "graph", "captured"],
};

/// Sizes of three houses in square feet, and their prices in dollars.
const HOUSES: [(f64, f64); 3] = [(1500.0, 500_000.0), (2100.0, 800_000.0), (800.0, 250_000.0)];

fn main() -> ExitCode {
    PROGRAM.main(20, run)
}

fn run(draws: &usize, common: &Common) -> Result<()> {
    let device = common.device()?;
    houses(&device)?;
    polynomials(&device)?;
    double_descent(*draws, common, &device)
}

/// The weights that minimise `‖x w - y‖² + prior ‖w‖²`, by the normal equations `(xᵀx + prior) w =
/// xᵀy`. With `prior` 0 they are the maximum likelihood estimate under Gaussian noise; otherwise
/// the maximum a posteriori estimate, where `prior` is the ratio of the variances of the noise and
/// of the weights.
///
/// Shapes: x (n, p), y (n) → (p).
fn least_squares(x: &Tensor, y: &Tensor, prior: f64) -> Result<Tensor> {
    let p = x.shape()[1];
    let ridge = Tensor::eye(p, x.dtype(), x)?.mul(prior)?;
    x.t()?.matmul(x)?.add(&ridge)?.solve(&x.t()?.matmul(y)?)
}

/// The mean squared error of `weights`.
fn error(x: &Tensor, y: &Tensor, weights: &Tensor) -> Result<Tensor> {
    x.matmul(weights)?.sub(y)?.square()?.mean_all()
}

/// Fits a line to the houses in closed form and by gradient descent.
fn houses(device: &DeviceRef) -> Result<()> {
    let column = |of: fn(&(f64, f64)) -> f64| {
        Tensor::from_vec(HOUSES.iter().map(of).collect::<Vec<f64>>(), (HOUSES.len(),), device)
    };
    let (size, price) = (column(|h| h.0)?, column(|h| h.1)?); // (3) both
    // (3, 2): a column of ones for the intercept
    let x = Tensor::stack(&[&size.ones_like()?, &size], 1)?;
    let line = least_squares(&x, &price, 0.0)?; // (2)
    let [b, m] = line.to_vec::<f64>()?[..] else { unreachable!("two weights") };
    let closed = error(&x, &price, &line)?.item::<f64>()?;
    println!("houses  price = {b:.10} + {m:.10} size, mean squared error {closed:.6e}");

    // gradient descent on standardised sizes: raw sizes make the problem badly conditioned
    let (mean, std) = (size.mean_all()?, size.std(0, 0)?);
    let scaled = Tensor::stack(&[&size.ones_like()?, &size.sub(&mean)?.div(&std)?], 1)?; // (3, 2)
    let store = Store::with_dtype(device, DType::F64);
    let weights = store.root().param("line", (2,), Init::ZEROS)?;
    let mut sgd = Sgd::new(store.trainable(), 0.4);
    for _ in 0..100 {
        sgd.step(&error(&scaled, &price, &weights.value())?.backward()?)?;
    }
    let found = error(&scaled, &price, &weights.value())?.item::<f64>()?;
    let [b, m] = weights.value().to_vec::<f64>()?[..] else { unreachable!("two weights") };
    let (mean, std) = (mean.item::<f64>()?, std.item::<f64>()?);
    println!(
        "        gradient descent: price = {:.6} + {:.6} size, mean squared error {found:.6e}",
        b - m * mean / std,
        m / std
    );
    println!("        relative distance of the two errors {:.1e}", (found / closed - 1.0).abs());
    Ok(())
}

/// Fits polynomials of increasing degree to ten noisy points of a sine, with and without a Gaussian
/// prior on the weights.
fn polynomials(device: &DeviceRef) -> Result<()> {
    let truth = |x: &Tensor| x.mul(std::f64::consts::PI)?.sin();
    let powers = |x: &Tensor, degree: usize| {
        let columns = (0..=degree).map(|k| x.pow(k as f64)).collect::<Result<Vec<_>>>()?;
        Tensor::stack(&columns, 1) // (n, degree + 1)
    };
    let x = Tensor::linspace(-1.0, 1.0, 10, DType::F64, device)?; // (10)
    let noise = 0.2;
    let y = truth(&x)?.add(&Tensor::randn((10,), DType::F64, device)?.mul(noise)?)?;
    let unseen = Tensor::linspace(-1.0, 1.0, 200, DType::F64, device)?; // (200)
    let target = truth(&unseen)?;
    let (mut best, mut plain, mut regularised) = ((0, f64::INFINITY), 0.0, 0.0);
    for degree in 0..10 {
        let (train, test) = (powers(&x, degree)?, powers(&unseen, degree)?);
        let weights = least_squares(&train, &y, 0.0)?; // (degree + 1)
        plain = error(&test, &target, &weights)?.item::<f64>()?;
        let weights_with_prior = least_squares(&train, &y, noise * noise / 4.0)?;
        regularised = error(&test, &target, &weights_with_prior)?.item::<f64>()?;
        println!(
            "degree {degree}  error on the points {:.4}, between them {plain:.4}, \
             with a prior {regularised:.4}",
            error(&train, &y, &weights)?.item::<f64>()?
        );
        if plain < best.1 {
            best = (degree, plain);
        }
    }
    println!(
        "polynomials: degree {} is best; at degree 9 a prior divides the error by {:.1}",
        best.0,
        plain / regularised
    );
    Ok(())
}

/// Prints the test error of least squares with p random features of 40 points. It rises as p
/// approaches 40, where exactly one fit interpolates the points, and falls again beyond, where the
/// fit of least norm is one of many. Source: Belkin et al. 2019, arXiv:1812.11118.
fn double_descent(draws: usize, common: &Common, device: &DeviceRef) -> Result<()> {
    let (n, inputs) = (40, 20);
    let counts = [4, 8, 16, 24, 32, 36, 40, 44, 50, 60, 80, 120, 200, 400];
    let mut errors = [0.0; 14];
    for _ in 0..draws {
        let randn = |shape: &[usize]| Tensor::randn(shape, DType::F64, device);
        let teacher = randn(&[inputs])?;
        let sample = |n: usize, noise: f64| -> Result<(Tensor, Tensor)> {
            let x = randn(&[n, inputs])?;
            let y =
                x.matmul(&teacher)?.div((inputs as f64).sqrt())?.add(&randn(&[n])?.mul(noise)?)?;
            Ok((x, y)) // (n, inputs), (n)
        };
        let ((x, y), (unseen, target)) = (sample(n, 0.5)?, sample(500, 0.0)?);
        let directions = randn(&[inputs, 400])?.div((inputs as f64).sqrt())?;
        for (p, total) in counts.iter().zip(&mut errors) {
            let features = |x: &Tensor| x.matmul(&directions.slice(1, 0..*p as isize)?)?.relu();
            let weights = features(&x)?.pinv(None)?.matmul(&y)?; // (p), of least norm
            *total += error(&features(&unseen)?, &target, &weights)?.item::<f64>()? / draws as f64;
        }
    }
    for (p, error) in counts.iter().zip(errors) {
        println!("{p:4} features of {n} points  test error {error:9.4}");
    }
    let points: Vec<(f64, f64)> =
        counts.iter().zip(errors).map(|(&p, error)| (p as f64 / n as f64, error.ln())).collect();
    common.plot(
        "Double descent",
        "log of the test error",
        &[("by features per point", &points)],
    )?;
    let peak = errors.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i);
    println!(
        "double descent: the peak is at p/n = {:.2}; \
         from there to p/n = 10 the error falls to 1/{:.0}",
        counts[peak] as f64 / n as f64,
        errors[peak] / errors[13]
    );
    Ok(())
}
