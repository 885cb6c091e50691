//! The distributions of weights or gradients over the steps of a run.

use super::Plot;
use super::image::{Image, range_of, sequential};
use super::numbers;
use super::svg::save;
use std::fmt::Write as _;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{Result, Tensor};

/// Bins of a recorded histogram, rows of a picture, and its columns at most.
const FINE: usize = 8 * BINS;
const BINS: usize = 48;
const COLUMNS: usize = 240;
/// The largest value, so that distances of two are finite.
const MAX_VALUE: f64 = 1e300;

/// Histograms of tensors by name, such as the weights or the gradients of each layer, recorded now
/// and then during a run.
///
/// # Example
/// ```
/// use teeny_core::{DType, Reference, Result, Tensor};
/// use teeny_viz::Histograms;
/// # fn main() -> Result<()> {
/// let mut weights = Histograms::new();
/// for step in 0..3 {
///     let w = Tensor::randn((4, 3), DType::F32, &Reference::new())?; // (4, 3)
///     // with teeny-nn, for each p of store.trainable(): record(step, p.name(), &p.value())
///     weights.record(step, "fc.weight", &w)?;
/// }
/// assert_eq!(weights.plots()?.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Histograms {
    layers: Vec<(String, Vec<Histogram>)>,
}

/// Shares of values in bins of equal width.
#[derive(Clone, Debug)]
struct Histogram {
    step: u64,
    low: f64,
    high: f64,
    shares: Vec<f64>,
}

impl Histograms {
    /// No histograms.
    pub fn new() -> Histograms {
        Histograms::default()
    }

    /// Adds the values of `x`, of any shape, at `step`. Values that are not finite or exceed 1e300
    /// are left out; a tensor without others adds nothing. Reads the tensor from the device.
    ///
    /// # Errors
    /// If the device fails.
    #[track_caller]
    pub fn record(&mut self, step: u64, name: &str, x: &Tensor) -> Result<()> {
        let _op = enter("histograms.record");
        let mut values = numbers(x)?;
        values.retain(|value| value.abs() <= MAX_VALUE);
        let Ok((low, high)) = range_of(&values) else { return Ok(()) };
        let mut shares = counts(&values, low, high, FINE);
        shares.iter_mut().for_each(|share| *share /= values.len() as f64);
        let new = Histogram { step, low, high, shares };
        match self.layers.iter_mut().find(|(known, _)| known == name) {
            Some((_, all)) => all.push(new),
            None => self.layers.push((name.into(), vec![new])),
        }
        Ok(())
    }

    /// A plot for each name, in the order in which they were first recorded: values by step, bright
    /// where many are.
    ///
    /// # Errors
    /// If allocation fails.
    pub fn plots(&self) -> Result<Vec<Plot>> {
        self.layers.iter().map(|(name, all)| plot(name, all)).collect()
    }

    /// Writes all plots to `path`, one below the other.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("histograms.save");
        let plots = self.plots()?;
        let (width, height) = Plot::SIZE;
        let all = height * plots.len() as f64;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {all}\" \
             width=\"{width}\" height=\"{all}\">\n"
        );
        for (i, plot) in plots.iter().enumerate() {
            let _ = write!(svg, "<g transform=\"translate(0 {})\">", height * i as f64);
            svg += &(plot.svg() + "</g>\n");
        }
        save(path.as_ref(), (svg + "</svg>\n").as_bytes())
    }
}

/// The numbers of `values`, from `low` to `high`, in bins of equal width.
pub(super) fn counts(values: &[f64], low: f64, high: f64, bins: usize) -> Vec<f64> {
    let mut counts = vec![0.0; bins];
    for value in values {
        let part = (value - low) / (high - low); // NaN, of one value, is bin 0
        counts[((part * bins as f64) as usize).min(bins - 1)] += 1.0;
    }
    counts
}

/// The histograms of one tensor, by step.
fn plot(name: &str, all: &[Histogram]) -> Result<Plot> {
    let fold = |f: fn(f64, f64) -> f64, of: fn(&Histogram) -> f64, first: f64| {
        all.iter().map(of).fold(first, f)
    };
    let (first, last) = (
        fold(f64::min, |h| h.step as f64, f64::INFINITY),
        fold(f64::max, |h| h.step as f64, f64::NEG_INFINITY),
    );
    let low = fold(f64::min, |h| h.low, f64::INFINITY);
    let high = fold(f64::max, |h| h.high, f64::NEG_INFINITY);
    let (last, high) = (last.max(first + 1.0), if high > low { high } else { low + 1.0 });
    // each histogram in bins of the range of all
    let bins = |h: &Histogram| {
        let mut shares = vec![0.0; BINS];
        for (i, share) in h.shares.iter().enumerate() {
            let value = h.low + (h.high - h.low) * (i as f64 + 0.5) / FINE as f64;
            let part = (value - low) / (high - low);
            shares[((part * BINS as f64) as usize).min(BINS - 1)] += share;
        }
        shares
    };
    let columns: Vec<(f64, Vec<f64>)> = all.iter().map(|h| (h.step as f64, bins(h))).collect();
    let most = columns.iter().flat_map(|c| &c.1).copied().fold(f64::MIN_POSITIVE, f64::max);
    let width = COLUMNS.min(columns.len() * 8);
    let image = Image::from_fn(width, BINS, |x, y| {
        let step = first + (last - first) * (x as f64 + 0.5) / width as f64;
        let near = columns.iter().min_by(|a, b| (a.0 - step).abs().total_cmp(&(b.0 - step).abs()));
        // the root shows the tails
        near.map(|(_, shares)| sequential((shares[BINS - 1 - y] / most).sqrt()))
    })?;
    Ok(Plot::new(name, "step", "value").image(image, (first, last), (low, high), 1.0))
}
