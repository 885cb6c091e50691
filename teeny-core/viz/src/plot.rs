//! Curves as an SVG file, for a browser: the loss of a run, and a metric beside it.

use super::image::{Image, embedded};
use super::svg::{CHARACTER, COLOURS, escape, head, save};
use super::ticks::{decades, number, ticks};
use std::fmt::Write as _;
use std::path::Path;
use teeny_core::Result;
use teeny_core::context::enter;

/// The size of the picture in pixels.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
/// The margin beside an axis with numbers, and beside none.
const AXIS_MARGIN: f64 = 64.0;
const MARGIN: f64 = 20.0;
/// The margin below the plot area.
const BOTTOM: f64 = 48.0;
/// The baseline of the first line of the legend, and the height of its lines.
const LEGEND: f64 = 46.0;
const LEGEND_LINE: f64 = 17.0;
/// The length of a sample of the curve in the legend.
const SAMPLE: f64 = 22.0;

/// A curve of more points than this has no dots on them. A curve of one point is only a dot.
const MAX_DOTS: usize = 40;

/// Curves over one pair of axes, or with a second vertical axis for a metric.
///
/// # Example
/// ```no_run
/// # use teeny_viz::Plot;
/// let losses = [(0.0, 2.3), (100.0, 0.4), (200.0, 0.5)];
/// Plot::new("MNIST", "step", "loss")
///     .smoothed_curve("training", &losses, 10)
///     .metric("test accuracy, %", &[(100.0, 91.0), (200.0, 94.0)])
///     .save("loss.svg")?;
/// # Ok::<(), teeny_core::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Plot {
    title: String,
    x_label: String,
    y_label: String,
    log_y: bool,
    curves: Vec<Curve>,
    backdrop: Option<Backdrop>,
}

/// An image behind the curves, at these values of x and y.
#[derive(Clone, Debug)]
struct Backdrop {
    image: Image,
    x: (f64, f64),
    y: (f64, f64),
    opacity: f64,
}

#[derive(Clone, Debug)]
struct Curve {
    name: String,
    points: Vec<(f64, f64)>,
    /// Pale, below the other curves and not in the legend: the values behind a moving average.
    raw: bool,
    /// On the vertical axis to the right.
    metric: bool,
    /// Points without a line.
    dots: bool,
    colour: &'static str,
}

impl Plot {
    /// An empty plot.
    pub fn new(title: &str, x_label: &str, y_label: &str) -> Plot {
        Plot {
            title: title.into(),
            x_label: x_label.into(),
            y_label: y_label.into(),
            log_y: false,
            curves: Vec::new(),
            backdrop: None,
        }
    }

    /// The size of a picture in pixels.
    pub(super) const SIZE: (f64, f64) = (WIDTH, HEIGHT);

    /// The plot with a logarithmic y axis, on which equal ratios are equal distances. Points that
    /// are not above 0 are left out. The axis of a metric stays linear.
    pub fn log_y(mut self) -> Plot {
        self.log_y = true;
        self
    }

    /// The plot with one more curve through `points` (x, y). Points that are not finite are left
    /// out.
    pub fn curve(self, name: &str, points: &[(f64, f64)]) -> Plot {
        let colour = self.next_colour();
        self.with(Curve { colour, ..Curve::new(name, points) })
    }

    /// The plot with one more curve through `points` (x, y), drawn pale, and their exponential
    /// moving average over `span` points, whose weights fall by the factor `1 - 2 / (span + 1)`
    /// from a point to the one before. The average is corrected for its start at zero, so that it
    /// begins at the first point.
    ///
    /// Equivalent: `pandas.Series.ewm(span=span).mean()`.
    pub fn smoothed_curve(self, name: &str, points: &[(f64, f64)], span: usize) -> Plot {
        let colour = self.next_colour();
        let raw = Curve { raw: true, colour, ..Curve::new(name, points) };
        let average = Curve {
            name: format!("{name}, moving average over {span} points"),
            points: moving_average(&raw.points, span),
            colour,
            ..Curve::new("", &[])
        };
        self.with(raw).with(average)
    }

    /// The plot with a curve on the vertical axis to the right, which has the label `name` too.
    /// Several metrics share that axis and its first label.
    pub fn metric(self, name: &str, points: &[(f64, f64)]) -> Plot {
        let colour = self.next_colour();
        self.with(Curve { metric: true, colour, ..Curve::new(name, points) })
    }

    /// The plot with a point at each of `points` (x, y), without a line through them. Points that
    /// are not finite are left out.
    pub fn points(self, name: &str, points: &[(f64, f64)]) -> Plot {
        let colour = self.next_colour();
        self.with(Curve { dots: true, colour, ..Curve::new(name, points) })
    }

    /// The plot with `image` behind the curves, over these values of x and y, of which the second
    /// is larger. The y axis must be linear.
    pub(super) fn image(
        mut self,
        image: Image,
        x: (f64, f64),
        y: (f64, f64),
        opacity: f64,
    ) -> Plot {
        self.backdrop = Some(Backdrop { image, x, y, opacity });
        self
    }

    fn with(mut self, curve: Curve) -> Plot {
        self.curves.push(curve);
        self
    }

    /// The colour of the next curve; the values behind a moving average share the colour of it.
    fn next_colour(&self) -> &'static str {
        COLOURS[self.curves.iter().filter(|curve| !curve.raw).count() % COLOURS.len()]
    }

    /// Writes the picture to `path`.
    ///
    /// # Errors
    /// If the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("plot.save");
        save(path.as_ref(), self.svg().as_bytes())
    }

    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let (legend, baseline) = self.legend();
        let frame = Frame::new(self, baseline + 12.0);
        let mut svg = head(WIDTH, HEIGHT, &self.title);
        svg += &legend;
        if let Some(Backdrop { image, x, y, opacity }) = &self.backdrop {
            let (left, top) = (frame.x(x.0), frame.y(y.1));
            let rectangle = [left, top, frame.x(x.1) - left, frame.y(y.0) - top];
            svg += &embedded(image, rectangle, *opacity);
        }
        svg += &self.axes(&frame);
        // averages and metrics are drawn over the values behind them
        let (raw, others): (Vec<&Curve>, Vec<&Curve>) = self.curves.iter().partition(|c| c.raw);
        for curve in raw.into_iter().chain(others) {
            svg += &self.polyline(curve, &frame);
        }
        svg + "</svg>\n"
    }

    /// A sample of each curve with its name, and the baseline of the last line of them.
    fn legend(&self) -> (String, f64) {
        let (mut svg, mut x, mut y) = (String::new(), MARGIN, LEGEND);
        for curve in self.curves.iter().filter(|curve| !curve.raw) {
            let sample = if curve.dots { 8.0 } else { SAMPLE };
            let width = sample + 6.0 + CHARACTER * curve.name.chars().count() as f64;
            if x > MARGIN && x + width > WIDTH - MARGIN {
                (x, y) = (MARGIN, y + LEGEND_LINE);
            }
            // writing to a String cannot fail, here and below
            let _ = writeln!(
                svg,
                "<path d=\"M{x:.1} {0:.1}h{sample}\" stroke=\"{2}\" stroke-width=\"{4}\"/>\
                 <text x=\"{1:.1}\" y=\"{y:.1}\">{3}</text>",
                y - 4.0,
                x + sample + 6.0,
                curve.colour,
                escape(&curve.name),
                if curve.dots { 8 } else { 2 }
            );
            x += width + 16.0;
        }
        (svg, y)
    }

    /// Grid, numbers and labels.
    fn axes(&self, frame: &Frame) -> String {
        let mut svg = String::new();
        let Frame { left, right, top, bottom, .. } = *frame;
        for &tick in &frame.x_ticks {
            let _ = writeln!(
                svg,
                "<path d=\"M{0:.1} {top}V{bottom}\" class=\"grid\"/>\
                 <text x=\"{0:.1}\" y=\"{1}\" text-anchor=\"middle\">{2}</text>",
                frame.x(tick),
                bottom + 16.0,
                number(tick)
            );
        }
        for &tick in &frame.y_ticks {
            let text = number(if self.log_y { 10f64.powf(tick) } else { tick });
            let _ = writeln!(
                svg,
                "<path d=\"M{left} {0:.1}H{right}\" class=\"grid\"/>\
                 <text x=\"{1}\" y=\"{2:.1}\" text-anchor=\"end\">{text}</text>",
                frame.y(tick),
                left - 6.0,
                frame.y(tick) + 4.0,
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            (left + right) / 2.0,
            HEIGHT - 12.0,
            escape(&self.x_label)
        );
        let middle = (top + bottom) / 2.0;
        let mut label = |x: f64, text: &str, colour: &str| {
            let _ = writeln!(
                svg,
                "<text x=\"{x}\" y=\"{middle}\" text-anchor=\"middle\" fill=\"{colour}\" \
                 transform=\"rotate(-90 {x} {middle})\">{}</text>",
                escape(text)
            );
        };
        label(16.0, &self.y_label, "inherit");
        let Some(metric) = self.curves.iter().find(|curve| curve.metric) else { return svg };
        label(WIDTH - 8.0, &metric.name, metric.colour);
        for &tick in &frame.metric_ticks {
            let _ = writeln!(
                svg,
                "<path d=\"M{right} {0:.1}h4\" stroke=\"{1}\"/>\
                 <text x=\"{2}\" y=\"{3:.1}\" fill=\"{1}\">{4}</text>",
                frame.metric(tick),
                metric.colour,
                right + 7.0,
                frame.metric(tick) + 4.0,
                number(tick)
            );
        }
        svg
    }

    fn polyline(&self, curve: &Curve, frame: &Frame) -> String {
        let points: Vec<(f64, f64)> = self
            .drawn(curve)
            .into_iter()
            .map(|(x, y)| (frame.x(x), if curve.metric { frame.metric(y) } else { frame.y(y) }))
            .collect();
        let mut svg = String::new();
        let mut line = String::new();
        for (x, y) in points.iter().filter(|_| !curve.dots) {
            let _ = write!(line, "{x:.1},{y:.1} ");
        }
        if !curve.dots {
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" \
             stroke-opacity=\"{}\" stroke-linejoin=\"round\"/>",
                line.trim_end(),
                curve.colour,
                if curve.raw { 1.0 } else { 1.8 },
                if curve.raw { 0.35 } else { 1.0 }
            );
        }
        let has_dots = curve.dots || !curve.raw && points.len() <= MAX_DOTS;
        let edge = if curve.dots { " stroke=\"#fff\" stroke-width=\"0.5\"" } else { "" };
        for (x, y) in points.iter().filter(|_| has_dots) {
            let at = format!("cx=\"{x:.1}\" cy=\"{y:.1}\"");
            let _ = writeln!(svg, "<circle {at} r=\"3\" fill=\"{}\"{edge}/>", curve.colour);
        }
        svg
    }

    /// The points as they are drawn: with the logarithm of y if the curve's axis is logarithmic.
    fn drawn(&self, curve: &Curve) -> Vec<(f64, f64)> {
        if !self.log_y || curve.metric {
            return curve.points.clone();
        }
        curve.points.iter().filter(|(_, y)| *y > 0.0).map(|&(x, y)| (x, y.log10())).collect()
    }
}

impl Curve {
    fn new(name: &str, points: &[(f64, f64)]) -> Curve {
        let finite =
            points.iter().copied().filter(|(x, y)| x.is_finite() && y.is_finite()).collect();
        Curve {
            name: name.into(),
            points: finite,
            raw: false,
            metric: false,
            dots: false,
            colour: "",
        }
    }
}

/// The plot area in pixels, and the numbers at its edges.
struct Frame {
    left: f64,
    right: f64,
    top: f64,
    bottom: f64,
    x_ticks: Vec<f64>,
    y_ticks: Vec<f64>,
    metric_ticks: Vec<f64>,
}

impl Frame {
    fn new(plot: &Plot, top: f64) -> Frame {
        let points = |metric: bool| {
            plot.curves
                .iter()
                .filter(move |curve| curve.metric == metric)
                .flat_map(|curve| plot.drawn(curve))
        };
        let behind = |range: fn(&Backdrop) -> (f64, f64)| {
            plot.backdrop.iter().map(range).flat_map(|(low, high)| [low, high])
        };
        let y = points(false).map(|p| p.1).chain(behind(|b| b.y));
        let has_metric = plot.curves.iter().any(|curve| curve.metric);
        Frame {
            left: AXIS_MARGIN,
            right: WIDTH - if has_metric { AXIS_MARGIN } else { MARGIN },
            top,
            bottom: HEIGHT - BOTTOM,
            x_ticks: ticks(points(false).chain(points(true)).map(|p| p.0).chain(behind(|b| b.x))),
            y_ticks: if plot.log_y { decades(y) } else { ticks(y) },
            metric_ticks: ticks(points(true).map(|p| p.1)),
        }
    }

    fn x(&self, value: f64) -> f64 {
        between(&self.x_ticks, value, self.left, self.right)
    }

    fn y(&self, value: f64) -> f64 {
        between(&self.y_ticks, value, self.bottom, self.top)
    }

    fn metric(&self, value: f64) -> f64 {
        between(&self.metric_ticks, value, self.bottom, self.top)
    }
}

/// The pixel of `value` on an axis whose first tick is at `from` and whose last is at `to`.
fn between(ticks: &[f64], value: f64, from: f64, to: f64) -> f64 {
    from + (value - ticks[0]) / (ticks[ticks.len() - 1] - ticks[0]) * (to - from)
}

/// The exponential moving average `m ← d m + (1 - d) y` with `d = 1 - 2 / (span + 1)`, divided by
/// `1 - dᵗ` after t points, as `m` starts at 0. Source: Kingma & Ba 2014, arXiv:1412.6980.
fn moving_average(points: &[(f64, f64)], span: usize) -> Vec<(f64, f64)> {
    let decay = 1.0 - 2.0 / (span.max(1) as f64 + 1.0);
    let (mut mean, mut weight) = (0.0, 1.0);
    points
        .iter()
        .map(|&(x, y)| {
            mean = decay * mean + (1.0 - decay) * y;
            weight *= decay;
            (x, mean / (1.0 - weight))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_has_equal_ratios_at_equal_distances() {
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
    fn a_moving_average_is_corrected_for_its_start() {
        // pandas.Series([4, 1, 7]).ewm(span=3).mean()
        let points = [(0.0, 4.0), (1.0, 1.0), (2.0, 7.0)];
        let average: Vec<f64> = moving_average(&points, 3).into_iter().map(|p| p.1).collect();
        let expected = [4.0, 2.0, 34.0 / 7.0];
        average
            .iter()
            .zip(expected)
            .for_each(|(a, e)| assert!((a - e).abs() < 1e-12, "{average:?}"));
        assert_eq!(moving_average(&points, 1), points, "an average over one point is the point");
    }

    #[test]
    fn a_smoothed_curve_and_a_metric_have_their_own_lines_labels_and_axis() {
        let losses: Vec<(f64, f64)> =
            (0..50).map(|i| (f64::from(i), 2.0 / f64::from(i + 1))).collect();
        let svg = Plot::new("t", "step", "loss")
            .smoothed_curve("training", &losses, 10)
            .metric("test accuracy, %", &[(20.0, 91.0), (49.0, 97.0)])
            .svg();
        assert_eq!(svg.matches("<polyline").count(), 3);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert_eq!(svg.matches(">test accuracy, %</text>").count(), 2, "legend and axis");
        assert!(svg.contains(">training, moving average over 10 points</text>"));
        assert!(!svg.contains(">training</text>"), "the values behind an average are not named");
        assert!(svg.contains(">97</text>") && svg.contains(">0.5</text>"), "both axes: {svg}");
        // the highest value of either axis is at the top, far from the lowest
        let lines: Vec<&str> = svg.lines().filter(|l| l.starts_with("<polyline")).collect();
        let heights = |line: &str| -> Vec<f64> {
            let points = line.split('"').nth(1).unwrap().split(' ');
            points.map(|p| p.split(',').nth(1).unwrap().parse().unwrap()).collect()
        };
        assert!(heights(lines[0])[49] - heights(lines[0])[0] > 200.0);
        assert!(heights(lines[2])[0] - heights(lines[2])[1] > 200.0);
    }

    #[test]
    fn a_long_legend_takes_several_lines() {
        let name = "a name of forty characters, more or less";
        let svg = (0..5).fold(Plot::new("t", "x", "y"), |plot, _| plot.curve(name, &[])).svg();
        let heights: std::collections::BTreeSet<&str> = svg
            .lines()
            .filter(|l| l.contains(name))
            .map(|l| l.split(" y=\"").nth(1).unwrap().split('"').next().unwrap())
            .collect();
        assert_eq!(heights.len(), 3, "two in a line");
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
