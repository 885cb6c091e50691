//! Generated data sets: the same seed makes the same set on every device.
//!
//! Classes of points in the plane (moons, circles, blobs) are those of scikit-learn's `make_moons`,
//! `make_circles` and `make_blobs`; tables for regression are drawn from a model with known
//! coefficients, to which a fit can be compared.

use teeny_core::context::enter;
use teeny_core::random::{Key, normal_pair_f32, philox, unit_f64};
use teeny_core::{DType, Error, Result, Scalar, Tensor, ToDevice, permutation};

/// Rows of features, each with a target: a class (0, 1, ..) or a quantity.
///
/// # Example
/// ```
/// use teeny_core::DType;
/// use teeny_data::generated;
/// use teeny_nn::device::device;
/// # fn main() -> teeny_core::Result<()> {
/// let moons = generated::moons(100, 0.1, 42);
/// let x = moons.x(DType::F32, &device("cpu")?)?;         // (100, 2)
/// let y = moons.y(DType::I32, &device("cpu")?)?;         // (100)
/// # assert_eq!((x.shape()[..].to_vec(), y.shape()[..].to_vec()), (vec![100, 2], vec![100]));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    /// (N, features), row-major.
    pub inputs: Vec<f64>,
    /// (N).
    pub targets: Vec<f64>,
    /// The number of features of a row.
    pub features: usize,
}

impl Samples {
    /// The number of rows.
    pub fn len(&self) -> usize {
        self.targets.len()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.targets.is_empty()
    }

    /// The inputs (N, features).
    ///
    /// # Errors
    /// If the device is out of memory or does not have this dtype.
    pub fn x(&self, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        upload(&self.inputs, &[self.len(), self.features], dtype, device)
    }

    /// The targets (N); for classes the usual dtype is `I32`.
    ///
    /// # Errors
    /// If the device is out of memory or does not have this dtype.
    pub fn y(&self, dtype: DType, device: impl ToDevice) -> Result<Tensor> {
        upload(&self.targets, &[self.len()], dtype, device)
    }

    /// Splits into the first `n` rows and the others, for training and testing: the rows are in
    /// random order.
    ///
    /// # Errors
    /// If there are fewer than `n`.
    #[track_caller]
    pub fn split(&self, n: usize) -> Result<(Samples, Samples)> {
        let _op = enter("samples.split");
        if n > self.len() {
            return Err(Error::value(format!("cannot take {n} of {} rows", self.len()))
                .help(format!("a number within 0..={}", self.len())));
        }
        let ((a, b), (c, d)) = (self.inputs.split_at(n * self.features), self.targets.split_at(n));
        let part = |x: &[f64], y: &[f64]| Samples {
            inputs: x.to_vec(),
            targets: y.to_vec(),
            features: self.features,
        };
        Ok((part(a, c), part(b, d)))
    }

    /// The rows in an order drawn from `seed`.
    fn shuffled(rows: &[(Vec<f64>, f64)], features: usize, seed: u64) -> Samples {
        let order = permutation(rows.len(), Key { seed, draw: 1 });
        Samples {
            inputs: order.iter().flat_map(|&i| rows[i].0.iter().copied()).collect(),
            targets: order.iter().map(|&i| rows[i].1).collect(),
            features,
        }
    }
}

/// `values` rounded to `dtype` on the host, for devices without f64.
fn upload(values: &[f64], shape: &[usize], dtype: DType, device: impl ToDevice) -> Result<Tensor> {
    let values: Vec<Scalar> = values.iter().map(|&value| Scalar::Float(value)).collect();
    Tensor::from_scalars(&values, shape, dtype, &device)
}

/// A sequence of random numbers.
pub(super) struct Draws {
    key: Key,
    counter: u64,
}

impl Draws {
    pub(super) fn new(seed: u64) -> Draws {
        Draws { key: Key { seed, draw: 0 }, counter: 0 }
    }

    fn words(&mut self) -> [u32; 4] {
        self.counter += 1;
        philox(self.key, self.counter)
    }

    /// In [0, 1).
    pub(super) fn uniform(&mut self) -> f64 {
        let [a, b, ..] = self.words();
        unit_f64(a, b)
    }

    /// With mean 0 and standard deviation 1.
    fn normal(&mut self) -> f64 {
        let [a, b, ..] = self.words();
        normal_pair_f32(a, b)[0].into()
    }

    /// Below `n`.
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.uniform() * n as f64) as usize
    }

    /// A Poisson-distributed count with this mean, by Knuth's algorithm, for means up to some
    /// hundreds.
    fn poisson(&mut self, mean: f64) -> f64 {
        let (mut product, mut count) = (self.uniform(), 0.0);
        while product > (-mean).exp() {
            product *= self.uniform();
            count += 1.0;
        }
        count
    }
}

/// Two interleaved half circles: class 0 above, class 1 below, `n / 2` points each, with normal
/// `noise` added.
///
/// Equivalent: `sklearn.datasets.make_moons`.
pub fn moons(n: usize, noise: f64, seed: u64) -> Samples {
    let mut draws = Draws::new(seed);
    let above = n / 2;
    let row = |i: usize| {
        let (class, place, count) =
            if i < above { (0.0, i, above) } else { (1.0, i - above, n - above) };
        let angle = std::f64::consts::PI * place as f64 / (count.max(2) - 1) as f64;
        let (x, y) = if i < above {
            (angle.cos(), angle.sin())
        } else {
            (1.0 - angle.cos(), 0.5 - angle.sin())
        };
        (vec![x + noise * draws.normal(), y + noise * draws.normal()], class)
    };
    Samples::shuffled(&(0..n).map(row).collect::<Vec<_>>(), 2, seed)
}

/// A circle of radius 1 (class 0) and one of radius `factor` inside it (class 1), `n / 2` points
/// each, with normal `noise` added.
///
/// Equivalent: `sklearn.datasets.make_circles`.
pub fn circles(n: usize, noise: f64, factor: f64, seed: u64) -> Samples {
    let mut draws = Draws::new(seed);
    let outer = n / 2;
    let row = |i: usize| {
        let (class, place, count, radius) =
            if i < outer { (0.0, i, outer, 1.0) } else { (1.0, i - outer, n - outer, factor) };
        let (sin, cos) = (std::f64::consts::TAU * place as f64 / count as f64).sin_cos();
        (vec![radius * cos + noise * draws.normal(), radius * sin + noise * draws.normal()], class)
    };
    Samples::shuffled(&(0..n).map(row).collect::<Vec<_>>(), 2, seed)
}

/// `classes` clusters (at least one) in the plane with standard deviation `std` around centres
/// within -10..10; their numbers of points differ by at most one.
///
/// Equivalent: `sklearn.datasets.make_blobs`.
pub fn blobs(n: usize, classes: usize, std: f64, seed: u64) -> Samples {
    let (mut draws, classes) = (Draws::new(seed), classes.max(1));
    let centres: Vec<[f64; 2]> =
        (0..classes).map(|_| [(); 2].map(|()| 20.0 * draws.uniform() - 10.0)).collect();
    let row = |i: usize| {
        let class = i % classes;
        (centres[class].map(|c| c + std * draws.normal()).to_vec(), class as f64)
    };
    Samples::shuffled(&(0..n).map(row).collect::<Vec<_>>(), 2, seed)
}

/// The coefficients of [`housing`]: thousands per square metre, per room, per year of age, per
/// kilometre from the centre, and the constant.
pub const HOUSING: [f64; 5] = [3.2, 12.0, -0.8, -6.5, 40.0];

/// Houses: living area (40..240 square metres), rooms (1..8, more in larger houses), age (0..80
/// years) and distance from the centre (0..25 km). The price in thousands is the linear model of
/// [`HOUSING`] with normal `noise` added.
pub fn housing(n: usize, noise: f64, seed: u64) -> Samples {
    let mut draws = Draws::new(seed);
    let row = |_| {
        let area = 40.0 + 200.0 * draws.uniform();
        let rooms = (1.0 + area / 40.0 + 2.0 * draws.uniform()).floor().min(8.0);
        let row = vec![area, rooms, (80.0 * draws.uniform()).floor(), 25.0 * draws.uniform()];
        let price = HOUSING[4]
            + row.iter().zip(HOUSING).map(|(x, w)| x * w).sum::<f64>()
            + noise * draws.normal();
        (row, price)
    };
    Samples::shuffled(&(0..n).map(row).collect::<Vec<_>>(), 4, seed)
}

/// Rows of independent normal numbers; class 1 with probability `σ(b + w · x)`, where
/// `coefficients` are w and then b.
///
/// # Errors
/// If there are no coefficients.
#[track_caller]
pub fn logistic(n: usize, coefficients: &[f64], seed: u64) -> Result<Samples> {
    let _op = enter("generated::logistic");
    from_model(n, coefficients, seed, |draws, score| {
        f64::from(draws.uniform() < 1.0 / (1.0 + (-score).exp()))
    })
}

/// Rows of independent normal numbers; a count of events with mean `exp(b + w · x)`, where
/// `coefficients` are w and then b.
///
/// # Errors
/// If there are no coefficients.
#[track_caller]
pub fn poisson(n: usize, coefficients: &[f64], seed: u64) -> Result<Samples> {
    let _op = enter("generated::poisson");
    from_model(n, coefficients, seed, |draws, score| draws.poisson(score.exp()))
}

fn from_model(
    n: usize,
    coefficients: &[f64],
    seed: u64,
    answer: impl Fn(&mut Draws, f64) -> f64,
) -> Result<Samples> {
    let [weights @ .., bias] = coefficients else {
        return Err(Error::value("expected at least one coefficient, the constant, got none")
            .help("pass the weights, then the constant: &[2.0, -1.0, 0.5]"));
    };
    let mut draws = Draws::new(seed);
    let row = |_| {
        let row: Vec<f64> = weights.iter().map(|_| draws.normal()).collect();
        let score = bias + row.iter().zip(weights).map(|(x, w)| x * w).sum::<f64>();
        let target = answer(&mut draws, score);
        (row, target)
    };
    Ok(Samples::shuffled(&(0..n).map(row).collect::<Vec<_>>(), weights.len(), seed))
}
