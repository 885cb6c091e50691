//! The named row programs: programs that the library itself runs and for which an engine may have a
//! dedicated kernel. A user's program with the same nodes counts as the named one.

use super::Kernel;
use super::build::{Builder, Expr};
use super::rows::Extent;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::options::named;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

named! {
    /// A named row program. The inputs are listed with their types; `T` is any float, `I` any
    /// integer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum RowFunction {
        /// `exp(x - max) / Σ exp(x - max)`. Inputs: `x` (T).
        Softmax = "softmax",
        /// `x - max - log Σ exp(x - max)`. Inputs: `x` (T).
        LogSoftmax = "log_softmax",
        /// The gradient of the softmax `y`: `y (g - Σ g y)`. Inputs: `y`, `g` (T).
        SoftmaxGrad = "softmax_grad",
        /// The gradient of the log-softmax `y`: `g - exp(y) Σ g`. Inputs: `y`, `g` (T).
        LogSoftmaxGrad = "log_softmax_grad",
        /// `log Σ exp(x) - x[t]`, one value a row. Inputs: `x` (T), `t` (I, one value a row). With
        /// a parameter of type I: rows whose `t` equals it cost 0.
        CrossEntropy = "cross_entropy",
        /// The gradient of the cross-entropy for `x`: `(softmax(x) - one_hot(t)) g`. Inputs: `x`
        /// (T), `t` (I, one value a row), `g` (T, one value a row). With a parameter: 0 in rows
        /// whose `t` equals it.
        CrossEntropyGrad = "cross_entropy_grad",
        /// `(x - mean) / sqrt(variance + p) w + b`. Inputs: `x`; `x`, `w`; or `x`, `w`, `b` (T).
        /// Parameter: `p`, of the compute type of T.
        LayerNorm = "layer_norm",
        /// The gradient of [`RowFunction::LayerNorm`] for `x`. Inputs: `x`, `g`; or `x`, `w`, `g`
        /// (T).
        LayerNormGrad = "layer_norm_grad",
        /// `x / sqrt(mean(x^2) + p) w`. Inputs and parameter as of [`RowFunction::LayerNorm`].
        RmsNorm = "rms_norm",
        /// The gradient of [`RowFunction::RmsNorm`] for `x`. Inputs: `x`, `g`; or `x`, `w`, `g`
        /// (T).
        RmsNormGrad = "rms_norm_grad",
    }
}

use RowFunction::*;

impl RowFunction {
    /// The names of the inputs of a program of `count` inputs.
    pub(crate) const fn input_names(self, count: usize) -> &'static [&'static str] {
        match (self, count) {
            (Softmax | LogSoftmax, _) => &["x"],
            (SoftmaxGrad | LogSoftmaxGrad, _) => &["y", "g"],
            (CrossEntropy, _) => &["x", "targets"],
            (CrossEntropyGrad, _) => &["x", "targets", "g"],
            (LayerNorm | RmsNorm, _) => &["x", "weight", "bias"],
            (LayerNormGrad | RmsNormGrad, 2) => &["x", "g"],
            (LayerNormGrad | RmsNormGrad, _) => &["x", "weight", "g"],
        }
    }

    /// The program on inputs of these types, with this many run-time parameters. Built once.
    ///
    /// # Errors
    /// If the program has no such inputs or parameters.
    pub fn program(self, types: &[DType], params: usize) -> Result<&'static Arc<Kernel>> {
        let variant = Variant::of(self, types, params).ok_or_else(|| {
            Error::value(format!(
                "{} does not take inputs of types {types:?} with {params} parameters",
                self.name()
            ))
            .help("x, weight and bias have one float type, targets are integers")
        })?;
        let cell = &CELLS[variant.place()];
        if let Some(program) = cell.get() {
            return Ok(program);
        }
        let program = Arc::new(variant.build()?);
        Ok(cell.get_or_init(|| program))
    }
}

impl Kernel {
    /// The named row program that this one is.
    pub fn row_function(&self) -> Option<RowFunction> {
        if self.is_pointwise() {
            return None;
        }
        *self.function.get_or_init(|| {
            let known = KNOWN.get(&self.content_hash())?;
            let same = |(_, program): &&(RowFunction, Arc<Kernel>)| **program == *self;
            known.iter().find(same).map(|(function, _)| *function)
        })
    }
}

/// A named program of some types.
#[derive(Clone, Copy)]
struct Variant {
    function: RowFunction,
    dtype: DType,
    /// The type of the targets of cross-entropy.
    targets: DType,
    /// The number of inputs.
    inputs: usize,
    /// The number of parameters.
    params: usize,
}

const TYPES: usize = DType::ALL.len();
/// Numbers of inputs (1 to 3) and of parameters (0 or 1).
const COUNTS: usize = 6;

static CELLS: [OnceLock<Arc<Kernel>>; RowFunction::ALL.len() * COUNTS * TYPES * TYPES] =
    [const { OnceLock::new() }; RowFunction::ALL.len() * COUNTS * TYPES * TYPES];

/// Named programs by their hashes.
type Known = HashMap<u64, Vec<(RowFunction, Arc<Kernel>)>>;

/// All named programs.
static KNOWN: LazyLock<Known> = LazyLock::new(|| {
    let mut known = Known::new();
    for function in RowFunction::ALL {
        for variant in Variant::all(function) {
            let program = variant.types();
            if let Ok(program) = function.program(&program[..variant.inputs], variant.params) {
                let of_hash = known.entry(program.content_hash()).or_default();
                of_hash.push((function, program.clone()));
            }
        }
    }
    known
});

impl Variant {
    /// The variant of these inputs and parameters.
    fn of(function: RowFunction, types: &[DType], params: usize) -> Option<Variant> {
        let (&dtype, inputs) = (types.first()?, types.len());
        let targets = match function {
            CrossEntropy | CrossEntropyGrad => *types.get(1)?,
            _ => dtype,
        };
        let variant = Variant { function, dtype, targets, inputs, params };
        let counts = match function {
            Softmax | LogSoftmax => inputs == 1 && params == 0,
            SoftmaxGrad | LogSoftmaxGrad => inputs == 2 && params == 0,
            CrossEntropy => inputs == 2 && params < 2 && targets.is_int(),
            CrossEntropyGrad => inputs == 3 && params < 2 && targets.is_int(),
            LayerNorm | RmsNorm => inputs <= 3 && params == 1,
            LayerNormGrad | RmsNormGrad => (2..=3).contains(&inputs) && params == 1,
        };
        let fits = counts && dtype.is_float() && variant.types()[..inputs] == *types;
        fits.then_some(variant)
    }

    /// The dtypes of the inputs; entries after the last input are ignored.
    fn types(&self) -> [DType; 3] {
        match self.function {
            CrossEntropy | CrossEntropyGrad => [self.dtype, self.targets, self.dtype],
            _ => [self.dtype; 3],
        }
    }

    /// Every variant of `function`.
    fn all(function: RowFunction) -> impl Iterator<Item = Variant> {
        let floats = DType::ALL.into_iter().filter(|t| t.is_float());
        floats.flat_map(move |dtype| {
            let of_targets = move |targets| {
                let types = match function {
                    CrossEntropy | CrossEntropyGrad => [dtype, targets, dtype],
                    _ => [dtype; 3],
                };
                let counts = (1..=3).flat_map(|inputs| [(inputs, 0), (inputs, 1)]);
                counts.filter_map(move |(inputs, params)| {
                    Variant::of(function, &types[..inputs], params)
                })
            };
            let is_of_targets = matches!(function, CrossEntropy | CrossEntropyGrad);
            let targets = DType::ALL.into_iter().filter(move |t| match is_of_targets {
                true => t.is_int(),
                false => *t == dtype,
            });
            targets.flat_map(of_targets)
        })
    }

    /// The place in [`CELLS`].
    fn place(&self) -> usize {
        let counts = (self.inputs - 1) * 2 + self.params;
        let types = self.dtype as usize * TYPES + self.targets as usize;
        (self.function as usize * COUNTS + counts) * TYPES * TYPES + types
    }

    fn build(&self) -> Result<Kernel> {
        let builder = Builder::new();
        let output = self.body(&builder);
        let kernel = builder.finish(&[output])?;
        // a cell that has just been made is empty
        let _ = kernel.function.set(Some(self.function));
        Ok(kernel)
    }

    fn body<'b>(&self, builder: &'b Builder) -> Expr<'b> {
        let x = builder.input(self.dtype);
        match self.function {
            Softmax => x.softmax(),
            LogSoftmax => x.log_softmax(),
            SoftmaxGrad => softmax_grad(x, builder.input(self.dtype)),
            LogSoftmaxGrad => log_softmax_grad(x, builder.input(self.dtype)),
            CrossEntropy | CrossEntropyGrad => {
                let t = builder.input_of(self.targets, Extent::Row);
                let ignored = (self.params == 1).then(|| t.eq(builder.param(self.targets)));
                if self.function == CrossEntropy {
                    return cross_entropy(x, t, ignored);
                }
                cross_entropy_grad(x, t, builder.input_of(self.dtype, Extent::Row), ignored)
            }
            LayerNorm | RmsNorm => {
                let wide = self.dtype.compute();
                let rest = (1..self.inputs).map(|_| builder.input(self.dtype).cast(wide));
                let rest: Vec<Expr<'b>> = rest.collect();
                let (x, scale) = self.standard(x.cast(wide), builder);
                let scaled = rest.first().map_or(x * scale, |w| x * scale * *w);
                rest.get(1).map_or(scaled, |b| scaled + *b).cast(self.dtype)
            }
            LayerNormGrad | RmsNormGrad => {
                let wide = self.dtype.compute();
                let w = (self.inputs == 3).then(|| builder.input(self.dtype).cast(wide));
                let g = builder.input(self.dtype).cast(wide);
                let u = w.map_or(g, |w| g * w);
                let (x, scale) = self.standard(x.cast(wide), builder);
                let h = x * scale;
                let along = (u * h).mean();
                let u = if self.function == LayerNormGrad { u - u.mean() } else { u };
                (scale * (u - h * along)).cast(self.dtype)
            }
        }
    }

    /// `x` minus its mean, or unchanged, and the reciprocal of its standard deviation, or root mean
    /// square.
    fn standard<'b>(&self, x: Expr<'b>, builder: &'b Builder) -> (Expr<'b>, Expr<'b>) {
        let x = match self.function {
            LayerNorm | LayerNormGrad => {
                let centred = x - x.mean();
                centred - centred.mean() // the mean's rounding error
            }
            _ => x,
        };
        let eps = builder.param(self.dtype.compute());
        (x, (x.square().mean() + eps).rsqrt())
    }
}

/// `y (g - Σ g y)`.
fn softmax_grad<'b>(y: Expr<'b>, g: Expr<'b>) -> Expr<'b> {
    y * (g - (g * y).sum())
}

/// `g - exp(y) Σ g`.
fn log_softmax_grad<'b>(y: Expr<'b>, g: Expr<'b>) -> Expr<'b> {
    g - y.exp() * g.sum()
}

/// The loss of scores `x` and a class `t`; 0 where `ignored`.
fn cross_entropy<'b>(x: Expr<'b>, t: Expr<'b>, ignored: Option<Expr<'b>>) -> Expr<'b> {
    // An ignored target may be outside the classes.
    let class = ignored.map_or(t, |ignored| ignored.where_cond(t.like(0), t));
    let max = x.max();
    let loss = (x - max).exp().sum().log() - (x.at(class) - max);
    ignored.map_or(loss, |ignored| ignored.where_cond(loss.like(0), loss))
}

/// `(softmax(x) - one_hot(t)) g`; 0 where `ignored`.
fn cross_entropy_grad<'b>(
    x: Expr<'b>,
    t: Expr<'b>,
    g: Expr<'b>,
    ignored: Option<Expr<'b>>,
) -> Expr<'b> {
    // In 32 bits where they hold all classes: browsers have no wider integers.
    let wide = if t.dtype().size() == 8 { DType::I64 } else { DType::I32 };
    let is_class = x.index().cast(wide).eq(t.cast(wide));
    let along = x.softmax() - is_class.where_cond(x.like(1), 0);
    let Some(ignored) = ignored else { return along * g };
    // Selected twice: once against a NaN of an ignored row, once against its gradient, which is
    // infinite for a mean of no elements.
    let g = ignored.where_cond(g.like(0), g);
    ignored.where_cond(x.like(0), along * g)
}
