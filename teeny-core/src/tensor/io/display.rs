//! Printing tensors as nested lists, numbers aligned, long axes shortened to their ends.
//!
//! ```text
//! [[ 1.0000, -2.5000],
//!  [ 0.1000,  3.0000]] (2, 2) f32 on cpu
//! ```

use crate::scalar::Scalar;
use crate::tensor::Tensor;
use std::fmt;

/// Above this many elements an axis longer than `2 * EDGE` shows only its ends, as in NumPy and
/// PyTorch.
const THRESHOLD: usize = 1000;
const EDGE: usize = 3;
/// Digits after the point, as in PyTorch.
const DIGITS: usize = 4;

/// The elements as nested lists, then shape, type and device. A device that cannot be read prints
/// its error instead of the elements.
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.elements_shown() {
            Ok((values, shape, cut)) => {
                let style = Style::of(&values);
                let texts: Vec<String> = values.iter().map(|&v| style.text(v)).collect();
                let width = texts.iter().map(String::len).max().unwrap_or(0);
                Printer { texts: &texts, shape: &shape, cut: &cut, width }.block(f, 0, 0)?;
            }
            Err(error) => write!(f, "<{error}>")?,
        }
        write!(f, " {} {} on {}", self.shape(), self.dtype(), self.device().info().name)
    }
}

/// The same as `Display`, so that a failed assertion is readable.
impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Tensor {
    /// The elements to print, their shape, and for each axis whether its middle is left out.
    fn elements_shown(&self) -> crate::Result<(Vec<Scalar>, Vec<usize>, Vec<bool>)> {
        let mut x = self.clone();
        let mut cut = vec![false; x.ndim()];
        if self.numel() > THRESHOLD {
            for (axis, cut) in cut.iter_mut().enumerate() {
                let n = x.shape()[axis];
                if n > 2 * EDGE {
                    *cut = true;
                    let axis = axis as isize;
                    x = Tensor::cat(
                        &[&x.slice(axis, 0..EDGE)?, &x.slice(axis, n - EDGE..n)?],
                        axis,
                    )?;
                }
            }
        }
        Ok((x.to_scalars()?, x.shape().to_vec(), cut))
    }
}

/// How all numbers of one tensor are written.
enum Style {
    Plain,
    /// Only whole numbers: `1.`
    Whole,
    Fixed,
    Scientific,
}

impl Style {
    fn of(values: &[Scalar]) -> Style {
        let floats: Vec<f64> = values
            .iter()
            .filter_map(|v| if let Scalar::Float(x) = v { Some(x.abs()) } else { None })
            .collect();
        if floats.is_empty() {
            return Style::Plain;
        }
        let finite = || floats.iter().copied().filter(|x| x.is_finite());
        let (smallest, largest) = finite()
            .filter(|x| *x != 0.0)
            .fold((f64::INFINITY, 0.0f64), |(lo, hi), x| (lo.min(x), hi.max(x)));
        // The limits of PyTorch's printer: beyond them four digits would hide everything.
        if largest >= 1e8
            || (largest > 0.0 && (smallest < 1e-4 || largest / smallest > 1e5 && smallest < 1e-3))
        {
            Style::Scientific
        } else if finite().all(|x| x.fract() == 0.0) {
            Style::Whole
        } else {
            Style::Fixed
        }
    }

    fn text(&self, value: Scalar) -> String {
        match (self, value) {
            (_, Scalar::Float(x)) if x.is_nan() => "nan".into(),
            (_, Scalar::Float(x)) if x.is_infinite() => if x > 0.0 { "inf" } else { "-inf" }.into(),
            (Style::Whole, Scalar::Float(x)) => format!("{x:.0}."),
            (Style::Fixed, Scalar::Float(x)) => format!("{x:.DIGITS$}"),
            (Style::Scientific, Scalar::Float(x)) => format!("{x:.DIGITS$e}"),
            (_, value) => value.to_string(),
        }
    }
}

struct Printer<'p> {
    texts: &'p [String],
    shape: &'p [usize],
    cut: &'p [bool],
    width: usize,
}

impl Printer<'_> {
    /// Prints the block of axes `axis..` whose first element is number `start`.
    fn block(&self, f: &mut fmt::Formatter<'_>, axis: usize, start: usize) -> fmt::Result {
        if axis == self.shape.len() {
            return write!(
                f,
                "{:>width$}",
                self.texts[start],
                width = if self.shape.is_empty() { 0 } else { self.width }
            );
        }
        let step: usize = self.shape[axis + 1..].iter().product();
        let innermost = axis + 1 == self.shape.len();
        let separator = if innermost {
            ", ".to_string()
        } else {
            format!(",{}{}", "\n".repeat(self.shape.len() - axis - 1), " ".repeat(axis + 1))
        };
        write!(f, "[")?;
        for i in 0..self.shape[axis] {
            if i > 0 {
                write!(f, "{separator}")?;
            }
            if self.cut[axis] && i == EDGE {
                write!(f, "...{separator}")?;
            }
            self.block(f, axis + 1, start + i * step)?;
        }
        write!(f, "]")
    }
}
