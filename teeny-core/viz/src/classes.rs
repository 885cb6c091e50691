//! Points of classes in a plane, and the predictions of a model around them.

use super::svg::COLOURS;
use super::{Image, Plot, numbers, ticks};
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor};

/// Columns and rows of the grid of a decision boundary.
const GRID: (usize, usize) = (180, 120);

/// Points in a plane, coloured by class: an embedding of two dimensions, a data set.
///
/// Shapes: points (N, 2), classes (N) of integers from 0. `names` are the names of the classes, by
/// default their numbers. Points that are not finite are left out.
///
/// # Errors
/// If the shapes do not fit, `points` is empty, or a class is negative, lacks a name or is 1,000 or
/// more.
///
/// # Example
/// ```
/// use teeny_core::{Reference, Tensor};
/// use teeny_viz::{decision_boundary, scatter};
/// # fn main() -> teeny_core::Result<()> {
/// # let device = Reference::new();
/// let points = Tensor::new([[0.0f32, 1.0], [2.0, 0.5]], &device)?; // (2, 2)
/// let classes = Tensor::new([0i32, 1], &device)?; // (2)
/// let svg = scatter("points", &points, &classes, &["cat", "dog"])?.svg();
/// assert!(svg.contains(">cat</text>"));
/// // class 1 where x > 1: one logit for each point (M, 2) of a grid
/// let logits = |grid: &Tensor| grid.slice(1, 0..1)?.sub(1.0); // (M, 1)
/// decision_boundary("x > 1", &points, &classes, &[], logits)?;
/// # Ok(()) }
/// ```
#[track_caller]
pub fn scatter(title: &str, points: &Tensor, classes: &Tensor, names: &[&str]) -> Result<Plot> {
    let _op = enter("scatter");
    let (groups, _) = by_class(points, classes, names)?;
    Ok(groups
        .iter()
        .fold(Plot::new(title, "", ""), |plot, (name, points)| plot.points(name, points)))
}

/// [`scatter`] over the classes that a model predicts at every place. `logits` receives points
/// (M, 2) in the type of `points`, and returns logits (M, C), or one of class 1 for each: (M) or
/// (M, 1).
///
/// # Errors
/// As [`scatter`] and `logits`; if `logits` returns another shape.
#[track_caller]
pub fn decision_boundary(
    title: &str,
    points: &Tensor,
    classes: &Tensor,
    names: &[&str],
    logits: impl FnOnce(&Tensor) -> Result<Tensor>,
) -> Result<Plot> {
    let _op = enter("decision_boundary");
    let (groups, ranges) = by_class(points, classes, names)?;
    let [xs, ys] = ranges;
    let (width, height) = GRID;
    let places: Vec<f64> = (0..width * height)
        .flat_map(|i| {
            let (x, y) = ((i % width) as f64 + 0.5, (height - i / width) as f64 - 0.5);
            let at = |range: (f64, f64), part: f64| range.0 + (range.1 - range.0) * part;
            [at(xs, x / width as f64), at(ys, y / height as f64)]
        })
        .collect();
    let grid = Tensor::from_vec(places, (width * height, 2), points)?.cast(points.dtype())?; // (M, 2)
    let y = logits(&grid)?;
    let predicted = match y.shape()[..] {
        [m] | [m, 1] if m == width * height => y.gt(0)?.cast(DType::I64)?.reshape(-1)?, // (M)
        [m, _] if m == width * height => y.argmax(-1)?.cast(DType::I64)?,               // (M)
        _ => {
            let text = format!("logits of points {} are {}", grid.shape(), y.shape());
            return Err(Error::shape(text).help("(M, C), or (M) for two classes"));
        }
    };
    let predicted: Vec<i64> = predicted.to_vec()?;
    let image = Image::from_fn(width, height, |x, y| {
        let colour = COLOURS[predicted[y * width + x] as usize % COLOURS.len()];
        u32::from_str_radix(&colour[1..], 16).ok().map(|rgb| {
            let [_, r, g, b] = rgb.to_be_bytes();
            [r, g, b]
        })
    })?;
    let plot = Plot::new(title, "", "").image(image, xs, ys, 0.35);
    Ok(groups.iter().fold(plot, |plot, (name, points)| plot.points(name, points)))
}

/// Points by class with its name, and the ranges of the axes.
type Groups = (Vec<(String, Vec<(f64, f64)>)>, [(f64, f64); 2]);

fn by_class(points: &Tensor, classes: &Tensor, names: &[&str]) -> Result<Groups> {
    let n = points.shape().first().copied().unwrap_or(0);
    if points.shape()[..] != [n, 2] || classes.shape()[..] != [n] || n == 0 {
        let text = format!("points are {}, classes {}", points.shape(), classes.shape());
        return Err(Error::shape(text).help("(N, 2) and (N), with N of at least 1"));
    }
    let values = numbers(points)?;
    let numbers: Vec<i64> = classes.to_scalars()?.iter().map(|c| c.to_i64_wrapping()).collect();
    let limit = if names.is_empty() { 1000 } else { names.len() };
    let is_class = |class: &i64| usize::try_from(*class).is_ok_and(|class| class < limit);
    if let Some(i) = numbers.iter().position(|class| !is_class(class)) {
        let text = format!("classes[{i}] is {}, but must be within 0..{limit}", numbers[i]);
        return Err(Error::index(text).help("classes count from 0; names are one for each"));
    }
    let count = numbers.iter().max().map_or(0, |most| *most as usize + 1).max(names.len());
    let mut groups: Vec<(String, Vec<(f64, f64)>)> = (0..count)
        .map(|i| (names.get(i).map_or_else(|| i.to_string(), |name| name.to_string()), vec![]))
        .collect();
    for (point, class) in values.chunks(2).zip(&numbers) {
        groups[*class as usize].1.push((point[0], point[1]));
    }
    let range = |axis: usize| {
        let all = values.iter().copied().skip(axis).step_by(2).filter(|v| v.is_finite());
        let ticks = ticks::ticks(all);
        (ticks[0], ticks[ticks.len() - 1])
    };
    Ok((groups, [range(0), range(1)]))
}
