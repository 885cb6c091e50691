//! [`SeriesWindows`]: windows of a time series, each with the steps after it.

use super::dataset::{Dataset, require_items, rows};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// Windows over a time series: `length` steps, and the `horizon` steps after them as targets, every
/// `stride` steps.
///
/// ```text
/// series  ─────[ length ][ horizon ]──────────
///         ──────── stride ─▶[ length ][ horizon ]
/// ```
///
/// A batch is inputs (B, length, C) and targets (B, horizon, C), of the type of the series.
///
/// # Example
/// ```
/// use teeny_data::{DataLoader, SeriesWindows};
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// let series = Tensor::arange(0f32, 100.0, 1.0, &device("cpu")?)?; // (T)
/// // the test windows are later than all steps of the training windows
/// let (train, test) = SeriesWindows::new(&series, 8, 2, 1)?.split(0.8)?;
/// assert_eq!((train.len(), test.len()), (71, 11)); // 80 - 10 + 1, 20 - 10 + 1
/// let (x, y) = DataLoader::new(train, 4)?.epoch(0).next().unwrap()?; // (4, 8, 1), (4, 2, 1)
/// assert_eq!(x.slice(0, ..1)?.to_vec::<f32>()?, [0., 1., 2., 3., 4., 5., 6., 7.]);
/// assert_eq!(y.slice(0, ..1)?.to_vec::<f32>()?, [8., 9.]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SeriesWindows {
    series: Tensor, // (T, C)
    length: usize,
    horizon: usize,
    stride: usize,
}

impl SeriesWindows {
    /// Windows over `series` (T) or (T, C).
    ///
    /// # Errors
    /// If the series has another shape, `length`, `horizon` or `stride` is 0, or the series is
    /// shorter than one window.
    #[track_caller]
    pub fn new(
        series: &Tensor,
        length: usize,
        horizon: usize,
        stride: usize,
    ) -> Result<SeriesWindows> {
        let _op = enter("SeriesWindows::new");
        let series = match series.ndim() {
            1 => series.unsqueeze(1)?, // (T, 1)
            2 => series.clone(),
            _ => {
                let text = format!("expected one or two axes, got {}", series.shape());
                return Err(Error::shape(text).help("(T), or (T, C) for C channels"));
            }
        };
        SeriesWindows { series, length, horizon, stride }.checked()
    }

    fn checked(self) -> Result<SeriesWindows> {
        let SeriesWindows { length, horizon, stride, .. } = self;
        if [length, horizon, stride].contains(&0) {
            let text = format!("got length {length}, horizon {horizon} and stride {stride}");
            return Err(Error::value(text).help("each must be at least 1"));
        }
        let steps = self.series.shape()[0];
        if length.checked_add(horizon).is_none_or(|window| window > steps) {
            let text = format!("got {steps} steps, but a window takes {length} + {horizon}");
            return Err(Error::value(text).help("pass a longer series, or make shorter windows"));
        }
        Ok(self)
    }

    /// The windows within the first `fraction` of the steps, for training, and the windows within
    /// the rest: no step is in both, so training sees nothing of the later part.
    ///
    /// Fit what scales the values, such as mean and deviation, on the first part, too. Equivalent:
    /// one split of scikit-learn's `TimeSeriesSplit`.
    ///
    /// # Errors
    /// If `fraction` is outside `0..=1`, or a part is shorter than one window.
    #[track_caller]
    pub fn split(&self, fraction: f64) -> Result<(SeriesWindows, SeriesWindows)> {
        let _op = enter("SeriesWindows::split");
        if !(0.0..=1.0).contains(&fraction) {
            return Err(Error::value(format!("fraction is {fraction}, but must be within 0..=1"))
                .help("0.8 keeps a fifth for the test"));
        }
        let border = (self.series.shape()[0] as f64 * fraction) as isize;
        let part = |series, name| {
            let windows = SeriesWindows { series, ..*self }.checked();
            windows.map_err(|e| e.note(format!("of the {name} part, by the fraction {fraction}")))
        };
        let [first, rest] = [self.series.slice(0, ..border)?, self.series.slice(0, border..)?];
        Ok((part(first, "first")?, part(rest, "second")?))
    }

    /// The series (T, C).
    pub fn series(&self) -> &Tensor {
        &self.series
    }
}

impl Dataset for SeriesWindows {
    type Batch = (Tensor, Tensor);

    fn len(&self) -> usize {
        (self.series.shape()[0] - self.length - self.horizon) / self.stride + 1
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<(Tensor, Tensor)> {
        require_items(indices, self.len())?;
        let (length, window) = (self.length as isize, self.length + self.horizon);
        let starts = indices.iter().map(|i| i * self.stride);
        let steps: Vec<usize> = starts.flat_map(|start| start..start + window).collect();
        let channels = self.series.shape()[1];
        let all = rows(&self.series, &steps)?.reshape((indices.len(), window, channels))?;
        Ok((all.slice(1, ..length)?, all.slice(1, length..)?)) // (B, length, C), (B, horizon, C)
    }
}
