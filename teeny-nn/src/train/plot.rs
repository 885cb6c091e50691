//! Curves as an SVG file: the loss of a run, to be looked at in a browser.

use std::fmt::Write as _;
use std::path::Path;
use teeny_core::Result;
use teeny_core::file::replace;

/// Size of the picture, and of the margins left, right, top and bottom, in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 420.0;
const MARGIN: [f64; 4] = [64.0, 20.0, 40.0, 48.0];

/// One colour per curve, told apart by most kinds of colour blindness. Source: Okabe & Ito 2008.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];

/// Curves over one pair of axes.
///
/// # Example
/// ```no_run
/// # use teeny_nn::train::Plot;
/// Plot::new("MNIST", "step", "loss").curve("training", &[(0.0, 2.3), (100.0, 0.4)]).save("loss.svg")?;
/// # Ok::<(), teeny_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    x_label: String,
    y_label: String,
    logarithmic: bool,
    curves: Vec<(String, Vec<(f64, f64)>)>,
}

impl Plot {
    /// An empty plot.
    pub fn new(title: &str, x_label: &str, y_label: &str) -> Plot {
        Plot {
            title: title.into(),
            x_label: x_label.into(),
            y_label: y_label.into(),
            logarithmic: false,
            curves: Vec::new(),
        }
    }

    /// The plot with a logarithmic y axis, on which equal ratios are equal distances. Points that
    /// are not above 0 are left out.
    pub fn log_y(mut self) -> Plot {
        self.logarithmic = true;
        self
    }

    /// The plot with one more curve through `points` (x, y). Points that are not finite are left
    /// out.
    pub fn curve(mut self, name: &str, points: &[(f64, f64)]) -> Plot {
        let finite =
            points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        self.curves.push((name.into(), finite));
        self
    }

    /// Writes the picture to `path`.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let svg = self.svg();
        replace(path.as_ref(), |writer| {
            writer.write_all(svg.as_bytes()).map_err(|e| teeny_core::Error::io(e.to_string()))
        })
    }

    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let scaled: Vec<(&str, Vec<(f64, f64)>)> =
            self.curves.iter().map(|(name, points)| (name.as_str(), self.scaled(points))).collect();
        let points = || scaled.iter().flat_map(|(_, points)| points.iter());
        let y_values = points().map(|p| p.1);
        let (x_ticks, y_ticks) = (
            ticks(points().map(|p| p.0)),
            if self.logarithmic { decades(y_values) } else { ticks(y_values) },
        );
        let y_number =
            |tick: f64| if self.logarithmic { number(10f64.powf(tick)) } else { number(tick) };
        let [left, right, top, bottom] = MARGIN;
        let place = |ticks: &[f64], value: f64, from: f64, to: f64| {
            from + (value - ticks[0]) / (ticks[ticks.len() - 1] - ticks[0]) * (to - from)
        };
        let x = |value: f64| place(&x_ticks, value, left, WIDTH - right);
        let y = |value: f64| place(&y_ticks, value, HEIGHT - bottom, top);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
             <text x=\"{}\" y=\"22\" font-size=\"15\" text-anchor=\"middle\">{}</text>\n",
            WIDTH / 2.0,
            escape(&self.title)
        );
        // writing to a String cannot fail
        for &tick in &x_ticks {
            let _ = writeln!(
                svg,
                "<path d=\"M{0:.1} {top}V{1}\" stroke=\"#ddd\"/><text x=\"{0:.1}\" y=\"{2}\" text-anchor=\"middle\">{3}</text>",
                x(tick),
                HEIGHT - bottom,
                HEIGHT - bottom + 16.0,
                number(tick)
            );
        }
        for &tick in &y_ticks {
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {0:.1}H{1}\" stroke=\"#ddd\"/><text x=\"{2}\" y=\"{3:.1}\" text-anchor=\"end\">{4}</text>",
                y(tick),
                WIDTH - right,
                left - 6.0,
                y(tick) + 4.0,
                y_number(tick)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            WIDTH / 2.0,
            HEIGHT - 12.0,
            escape(&self.x_label)
        );
        let middle = HEIGHT / 2.0;
        let _ = writeln!(
            svg,
            "<text x=\"16\" y=\"{middle}\" text-anchor=\"middle\" transform=\"rotate(-90 16 {middle})\">{}</text>",
            escape(&self.y_label)
        );
        for (i, (name, points)) in scaled.iter().enumerate() {
            let colour = COLOURS[i % COLOURS.len()];
            let mut line = String::new();
            for &(px, py) in points {
                let _ = write!(line, "{:.1},{:.1} ", x(px), y(py));
            }
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>",
                line.trim_end()
            );
            let _ = writeln!(
                svg,
                "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" fill=\"{colour}\">{}</text>",
                WIDTH - right - 6.0,
                top + 16.0 * (i + 1) as f64,
                escape(name)
            );
        }
        svg + "</svg>\n"
    }
}

impl Plot {
    /// The points as they are drawn: with the logarithm of y if the axis is logarithmic.
    fn scaled(&self, points: &[(f64, f64)]) -> Vec<(f64, f64)> {
        if !self.logarithmic {
            return points.to_vec();
        }
        points.iter().filter(|(_, y)| *y > 0.0).map(|&(x, y)| (x, y.log10())).collect()
    }
}

/// Logarithms of round numbers that enclose the logarithms `values`: powers of ten if they span
/// more than two, their doubles and fivefolds too if not.
fn decades(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low <= high { (low, high) } else { (0.0, 1.0) };
    let multiples: &[f64] = if high - low > 2.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let all: Vec<f64> = (low.floor() as i32..=high.ceil() as i32 + 1)
        .flat_map(|power| multiples.iter().map(move |m| f64::from(power) + m.log10()))
        .collect();
    let first = all.iter().rposition(|&tick| tick <= low).unwrap_or(0);
    let last =
        all.iter().position(|&tick| tick >= high && tick > all[first]).unwrap_or(all.len() - 1);
    all[first..=last].to_vec()
}

/// Round numbers from below the smallest value to above the largest: steps of 1, 2 or 5 times a
/// power of ten, about six of them.
fn ticks(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let (low, high) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    let (low, high) = if low < high {
        (low, high)
    } else if low == high {
        (low - 1.0, high + 1.0)
    } else {
        (0.0, 1.0)
    };
    let rough = (high - low) / 6.0;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|step| *step >= rough)
        .unwrap_or(10.0 * power);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

/// A tick without the digits that binary fractions add.
fn number(value: f64) -> String {
    if value != 0.0 && value.abs() < 1e-5 {
        return format!("{value:.0e}");
    }
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text.is_empty() || text == "-0" { "0".into() } else { text.into() }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_enclose_the_values() {
        assert_eq!(ticks([0.13, 2.31].into_iter()), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5]);
        assert_eq!(ticks([0.0, 4690.0].into_iter()), [0.0, 1000.0, 2000.0, 3000.0, 4000.0, 5000.0]);
        assert!(ticks([3.0].into_iter()).len() > 1);
        assert_eq!(ticks(std::iter::empty()).first(), Some(&0.0));
    }

    #[test]
    fn a_logarithmic_axis_has_equal_ratios_at_equal_distances() {
        let round =
            |ticks: Vec<f64>| ticks.into_iter().map(|t| number(10f64.powf(t))).collect::<Vec<_>>();
        assert_eq!(
            round(decades([0.3f64, 4.0].map(f64::log10).into_iter())),
            ["0.2", "0.5", "1", "2", "5"]
        );
        assert_eq!(
            round(decades([0.003f64, 40.0].map(f64::log10).into_iter())),
            ["0.001", "0.01", "0.1", "1", "10", "100"]
        );
        assert_eq!(round(decades([1.0f64].map(f64::log10).into_iter())), ["1", "2"]);
        assert!(decades(std::iter::empty()).len() > 1);
        let curves = [
            ("a", [(0.0, 1.0), (1.0, 10.0), (2.0, 100.0)]),
            ("b", [(0.0, 0.0), (1.0, 2.0), (2.0, -1.0)]),
        ];
        let svg = curves
            .iter()
            .fold(Plot::new("t", "x", "y").log_y(), |plot, (name, points)| plot.curve(name, points))
            .svg();
        let lines: Vec<Vec<f64>> = svg
            .lines()
            .filter_map(|l| l.strip_prefix("<polyline points=\"")?.split('"').next())
            .map(|l| l.split(' ').map(|p| p.split(',').nth(1).unwrap().parse().unwrap()).collect())
            .collect();
        assert_eq!(
            (lines[0].len(), lines[1].len()),
            (3, 1),
            "points that are not above 0 are left out"
        );
        assert!((lines[0][0] - 2.0 * lines[0][1] + lines[0][2]).abs() < 0.2, "{lines:?}");
        assert!(svg.contains(">100</text>"));
    }

    #[test]
    fn a_plot_is_svg_with_every_finite_point() {
        let svg = Plot::new("a < b", "step", "loss")
            .curve("train", &[(0.0, 2.3), (1.0, f64::NAN), (2.0, 0.5)])
            .svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n") && svg.contains("a &lt; b"));
        let line = svg.lines().find(|l| l.starts_with("<polyline")).unwrap();
        assert_eq!(line.matches(',').count(), 2, "{line}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
    }
}
