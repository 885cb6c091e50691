//! A matrix by colour: weights, attention, a confusion matrix.

use super::image::{Image, diverging, embedded, range_of, sequential};
use super::numbers;
use super::svg::{CHARACTER, escape, head, save};
use super::ticks::{number, ticks};
use std::fmt::Write as _;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// The largest size of the longer side of the matrix and of a cell, in pixels.
const SIDE: f64 = 480.0;
const CELL: f64 = 48.0;
/// The smallest distance of two labels in pixels, and the most characters of one.
const LABEL_DISTANCE: f64 = 14.0;
const MAX_LABEL: usize = 24;
/// The space above the matrix, and the width of the scale to its right.
const TOP: f64 = 44.0;
const SCALE: f64 = 84.0;
const MARGIN: f64 = 20.0;

/// A matrix by colour, with a scale. Values of both signs are blue below 0 and red above it, others
/// dark for the smallest and bright for the largest. Values that are not finite are grey.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_viz::Heatmap;
/// # fn main() -> teeny_core::Result<()> {
/// # let device = Reference::new();
/// let weights = Tensor::new([[0.9f32, 0.1], [0.4, 0.6]], &device)?; // (queries, keys)
/// let words = ["the", "dog"];
/// let map = Heatmap::new("attention", &weights)?.labels(&words, &words)?.axes("query", "key");
/// assert!(map.svg().contains(">dog</text>"));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Heatmap {
    title: String,
    /// Names of the rows and of the columns; empty ones are numbers.
    labels: [Vec<String>; 2],
    axes: [String; 2],
    rows: usize,
    columns: usize,
    values: Vec<f64>,
    low: f64,
    high: f64,
    /// Texts of the cells, or none.
    texts: Vec<String>,
}

impl Heatmap {
    /// The matrix `values` (rows, columns), such as a weight or the attention of one head.
    ///
    /// # Errors
    /// If `values` is not a matrix, has no finite element, or is too large.
    #[track_caller]
    pub fn new(title: &str, values: &Tensor) -> Result<Heatmap> {
        let _op = enter("Heatmap::new");
        let [rows, columns] = values.shape()[..] else {
            let text = format!("a heatmap shows (rows, columns), not {}", values.shape());
            return Err(Error::shape(text).help("x.select(0, i) is one matrix of many"));
        };
        Image::filled(columns, rows)?; // before the values are read
        let values = numbers(values)?;
        let (mut low, mut high) = range_of(&values)?;
        if low < 0.0 && high > 0.0 {
            (low, high) = (-high.max(-low), high.max(-low));
        }
        Ok(Heatmap {
            title: title.into(),
            labels: [Vec::new(), Vec::new()],
            axes: [String::new(), String::new()],
            rows,
            columns,
            values,
            low,
            high,
            texts: Vec::new(),
        })
    }

    /// The confusion matrix of `n` classes: `count(target, prediction)` items, coloured by their
    /// share of the items of `target`. Without `names`, classes have numbers.
    ///
    /// # Errors
    /// If `n` is 0, or the number of names differs.
    #[track_caller]
    pub fn confusion(
        title: &str,
        n: usize,
        count: impl Fn(usize, usize) -> u64,
        names: &[&str],
    ) -> Result<Heatmap> {
        let _op = enter("Heatmap::confusion");
        if n == 0 {
            return Err(Error::value("expected at least one class, got a matrix without classes"));
        }
        let count = &count;
        let row = |target: usize| (0..n).map(move |guess| count(target, guess));
        let map = Heatmap {
            title: title.into(),
            labels: [Vec::new(), Vec::new()],
            axes: [String::new(), String::new()],
            rows: n,
            columns: n,
            values: (0..n)
                .flat_map(|target| {
                    let all = row(target).sum::<u64>().max(1) as f64;
                    row(target).map(move |count| count as f64 / all)
                })
                .collect(),
            low: 0.0,
            high: 1.0,
            texts: (0..n).flat_map(row).map(|count| count.to_string()).collect(),
        };
        let map = if names.is_empty() { map } else { map.labels(names, names)? };
        Ok(map.axes("target", "prediction"))
    }

    /// The heatmap with names of its rows and columns; an empty list leaves their numbers.
    ///
    /// # Errors
    /// If there are fewer or more names than rows or columns.
    #[track_caller]
    pub fn labels(mut self, rows: &[&str], columns: &[&str]) -> Result<Heatmap> {
        let _op = enter("Heatmap::labels");
        let sizes = [("rows", rows, self.rows), ("columns", columns, self.columns)];
        for (label, (axis, names, size)) in self.labels.iter_mut().zip(sizes) {
            if !names.is_empty() && names.len() != size {
                let text = format!("{} names for {size} {axis}", names.len());
                return Err(Error::value(text).help("one name for each, or none at all"));
            }
            *label = names.iter().map(|name| short(name)).collect();
        }
        Ok(self)
    }

    /// The heatmap with a name of its vertical and one of its horizontal axis.
    pub fn axes(mut self, vertical: &str, horizontal: &str) -> Heatmap {
        self.axes = [vertical.into(), horizontal.into()];
        self
    }

    /// The colour of a value; `None` if it is not finite.
    fn colour(&self, value: f64) -> Option<[u8; 3]> {
        let part =
            if self.high > self.low { (value - self.low) / (self.high - self.low) } else { 0.5 };
        let is_signed = self.low < 0.0 && self.high > 0.0;
        value.is_finite().then(|| if is_signed { diverging(part) } else { sequential(part) })
    }

    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let name = |axis: usize, i: usize| match self.labels[axis].get(i) {
            Some(name) => name.clone(),
            None => i.to_string(),
        };
        let longest = |axis: usize, n: usize| {
            (0..n).map(|i| name(axis, i).chars().count()).max().unwrap_or(0) as f64 * CHARACTER
        };
        let cell = (SIDE / self.rows.max(self.columns) as f64).min(CELL);
        let (width, height) = (cell * self.columns as f64, cell * self.rows as f64);
        let (row_names, column_names) = (longest(0, self.rows), longest(1, self.columns));
        // names of columns that are wider than a cell are upright
        let is_upright = column_names > cell.max(LABEL_DISTANCE) - 4.0;
        let left = MARGIN + if self.axes[0].is_empty() { 0.0 } else { 20.0 } + row_names + 6.0;
        let below = if is_upright { column_names + 10.0 } else { 20.0 };
        let bottom = TOP + height;
        let axis_height = if self.axes[1].is_empty() { 0.0 } else { 20.0 };
        let title = self.title.chars().count() as f64 * CHARACTER * 1.25 + 2.0 * MARGIN;
        let mut svg = head(
            (left + width + SCALE).max(title).round(),
            (bottom.max(TOP + 120.0) + below + axis_height + 8.0).round(),
            &self.title,
        );
        let image = Image::from_fn(self.columns, self.rows, |x, y| {
            self.colour(self.values[y * self.columns + x])
        });
        // its size was checked when the heatmap was made
        svg +=
            &image.map_or(String::new(), |image| embedded(&image, [left, TOP, width, height], 1.0));
        let round = (0..).map(|i| [1, 2, 5][i % 3] * 10usize.saturating_pow(i as u32 / 3));
        let every =
            round.take(60).find(|n| *n as f64 * cell >= LABEL_DISTANCE).unwrap_or(usize::MAX);
        // writing to a String cannot fail, here and below
        for i in (0..self.rows).step_by(every) {
            let (x, y) = (left - 6.0, TOP + (i as f64 + 0.5) * cell + 4.0);
            let name = escape(&name(0, i));
            let _ =
                writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{name}</text>");
        }
        for i in (0..self.columns).step_by(every) {
            let (x, name) = (left + (i as f64 + 0.5) * cell, escape(&name(1, i)));
            let _ = match is_upright {
                true => {
                    let (x, y) = (x + 4.0, bottom + 8.0);
                    let turn = format!("transform=\"rotate(-90 {x:.1} {y:.1})\"");
                    let at = format!("x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"end\" {turn}");
                    writeln!(svg, "<text {at}>{name}</text>")
                }
                false => {
                    let at =
                        format!("x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\"", bottom + 16.0);
                    writeln!(svg, "<text {at}>{name}</text>")
                }
            };
        }
        let (middle, y) = (TOP + height / 2.0, bottom + below + 14.0);
        let _ = writeln!(
            svg,
            "<text x=\"{MARGIN}\" y=\"{middle:.1}\" text-anchor=\"middle\" \
             transform=\"rotate(-90 {MARGIN} {middle:.1})\">{}</text>\n\
             <text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            escape(&self.axes[0]),
            left + width / 2.0,
            escape(&self.axes[1])
        );
        self.write_texts(&mut svg, left, cell);
        self.write_scale(&mut svg, left + width + 16.0, height.max(120.0));
        svg + "</svg>\n"
    }

    /// The texts of the cells, as far as they fit.
    fn write_texts(&self, svg: &mut String, left: f64, cell: f64) {
        for (i, text) in self.texts.iter().enumerate() {
            let size = (cell * 1.5 / text.len().max(2) as f64).min(13.0);
            let [r, g, b] = self.colour(self.values[i]).unwrap_or_default().map(f64::from);
            let colour = if 0.3 * r + 0.6 * g + 0.1 * b > 130.0 { "#000" } else { "#fff" };
            let (x, y) = ((i % self.columns) as f64 + 0.5, (i / self.columns) as f64 + 0.5);
            if size >= 7.0 {
                let _ = writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size:.1}\" fill=\"{colour}\" \
                     text-anchor=\"middle\">{text}</text>",
                    left + x * cell,
                    TOP + y * cell + size * 0.35
                );
            }
        }
    }

    /// The colours of the values, from the largest at the top, with numbers.
    fn write_scale(&self, svg: &mut String, x: f64, height: f64) {
        let (low, high) = (self.low, self.high);
        let value = |part: f64| low + (high - low) * part;
        let bar = Image::from_fn(1, 64, |_, y| self.colour(value(1.0 - y as f64 / 63.0)));
        *svg += &bar.map_or(String::new(), |bar| embedded(&bar, [x, TOP, 14.0, height], 1.0));
        let inner = ticks([low, high].into_iter()).into_iter().filter(|t| *t >= low && *t <= high);
        for tick in if high > low { inner.collect() } else { vec![low] } {
            let part = if high > low { (tick - low) / (high - low) } else { 0.5 };
            let y = TOP + (1.0 - part) * height + 4.0;
            let (x, tick) = (x + 20.0, number(tick));
            let _ = writeln!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\">{tick}</text>");
        }
    }

    /// Writes the picture to `path`.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("heatmap.save");
        save(path.as_ref(), self.svg().as_bytes())
    }
}

/// A label that is not too long, such as a token; spaces at its ends are seen as dots.
fn short(name: &str) -> String {
    let name = if name.trim() == name { name.into() } else { name.replace(' ', "\u{b7}") };
    match name.chars().count() > MAX_LABEL {
        true => name.chars().take(MAX_LABEL - 1).chain(['\u{2026}']).collect(),
        false => name,
    }
}
