//! Composite functions whose derivative is not left to the rules of their steps, which would give
//! `0 * inf` or cancel, or take more steps.
//!
//! ```text
//! sinh' = cosh    cosh' = sinh    asin' = 1 / sqrt(1 - x²)    acos' = -asin'
//! hardswish' = 0, x / 3 + 1 / 2, 1    max(log x, -100)' = 1 / max(x, 1e-12)    gelu' = Φ + x φ
//! silu' = s (1 + x (1 - s))    erfc' = -2 / sqrt(π) exp(-x²)    lgamma' = digamma
//! ```
//!
//! A function is recognised by its nodes: the nodes that [`Expr`]'s method makes of one input. A
//! program that computes it in another way is differentiated step by step.

use std::f64::consts::FRAC_2_SQRT_PI;
use std::sync::LazyLock;
use teeny_core::kernel::Id;
use teeny_core::{Arithmetic, DType, Expr, FloatFunction, Kernel, OpCode, OpNode};

/// The types that have derivatives.
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

type Function = for<'b> fn(Expr<'b>) -> Expr<'b>;

/// Each function and its derivative.
const COMPOSITES: &[(Function, Function)] = &[
    (|x| x.sinh(), |x| x.cosh()),
    (|x| x.cosh(), |x| x.sinh()),
    (|x| x.asin(), arc),
    (|x| x.acos(), |x| -arc(x)),
    (|x| x.asinh(), |x| (x.square() + 1.0).rsqrt()),
    (|x| x.acosh(), |x| (x.square() - 1.0).rsqrt()),
    (|x| x.atanh(), |x| (x.like(1.0) - x.square()).recip()),
    (
        |x| x.logit(),
        |x| x.ge(0.0).and(x.le(1.0)).where_cond((x * (x.like(1.0) - x)).recip(), f64::NAN),
    ),
    (|x| x.erfc(), |x| (-x.square()).exp() * -FRAC_2_SQRT_PI),
    (|x| x.erfinv(), |x| x.erfinv().square().exp() / FRAC_2_SQRT_PI),
    (|x| x.lgamma(), |x| x.digamma()),
    (|x| x.tanhshrink(), |x| x.tanh().square()),
    (|x| x.hardswish(), |x| x.lt(3.0).where_cond(x.gt(-3.0).where_cond(x / 3.0 + 0.5, 0.0), 1.0)),
    // These three are here to be one loop of an engine.
    (|x| x.gelu(), |x| x.gelu_derivative()),
    (|x| x.gelu_tanh(), |x| x.gelu_tanh_derivative()),
    (|x| x.silu(), |x| x.silu_derivative()),
    // The logarithm in binary cross-entropy, whose derivative is not 0 below its least value: a
    // saturated wrong output still gets a gradient, as in PyTorch.
    (|x| x.log().maximum(-100.0), |x| x.maximum(1e-12).recip()),
    (|x| x.log1p().maximum(-100.0), |x| (x + 1.0).maximum(1e-12).recip()),
];

/// `1 / sqrt(1 - x²)`: a square, although (1 - x)(1 + x) is more exact near 1, as its derivative
/// there is not inf - inf.
fn arc(x: Expr<'_>) -> Expr<'_> {
    (x.like(1.0) - x.square()).rsqrt()
}

/// The nodes of a composite of the first input.
struct Template {
    derivative: Function,
    kernel: Kernel,
}

static TEMPLATES: LazyLock<Vec<Template>> = LazyLock::new(|| {
    let make = |dtype, (f, derivative): (Function, Function)| {
        Kernel::build([dtype], [], |[x], []| [f(x)]).map(|kernel| Template { derivative, kernel })
    };
    // A composite that cannot be built is one that no program contains.
    FLOATS
        .iter()
        .flat_map(|&dtype| COMPOSITES.iter().filter_map(move |&c| make(dtype, c).ok()))
        .collect()
});

/// The result of a composite function within a program.
pub(crate) struct Application {
    derivative: Function,
    /// The node of its operand.
    pub x: usize,
}

impl Application {
    /// The composite application whose result is node `id`, if it is one.
    pub fn at(nodes: &[OpNode], id: usize) -> Option<Application> {
        TEMPLATES.iter().find_map(|Template { derivative, kernel }| {
            let mut x = None;
            let same = matches(kernel.nodes(), kernel.outputs()[0], nodes, id as Id, &mut x);
            x.filter(|_| same).map(|x| Application { derivative: *derivative, x: x as usize })
        })
    }

    /// The derivative at `x`, the value of the operand.
    pub fn derivative<'b>(&self, x: Expr<'b>) -> Expr<'b> {
        (self.derivative)(x)
    }
}

/// True if node `id` is computed as node `t` of a template is from its input, which stands for node
/// `x` from its first occurrence on.
fn matches(template: &[OpNode], t: Id, nodes: &[OpNode], id: Id, x: &mut Option<Id>) -> bool {
    let (pattern, node) = (&template[t as usize], &nodes[id as usize]);
    if pattern.dtype != node.dtype {
        return false;
    }
    if let OpCode::Input(_) = pattern.op {
        return *x.get_or_insert(id) == id;
    }
    if pattern.op != node.op {
        return false;
    }
    let before = *x;
    let in_order = |x: &mut Option<Id>, exchanged: bool| {
        let sources = node.sources();
        pattern.sources().iter().enumerate().all(|(i, &t)| {
            let place = if exchanged { 1 - i } else { i };
            matches(template, t, nodes, sources[place], x)
        })
    };
    if in_order(x, false) {
        return true;
    }
    // The operands of a sum or a product are in the order in which the program came to them.
    *x = before;
    pattern.op.is_commutative() && in_order(x, true)
}

/// `1 / (exp(z) + 1)` (sigmoid) or `a / (exp(z) + 1)`, differentiated as one step:
/// `-s (1 - s)` with `s = 1 / (exp(z) + 1)` is right where `exp(z)` overflows, the chain of single
/// rules gives `0 * inf` there.
pub(crate) struct Quotient {
    /// The node of `a`.
    pub top: Option<usize>,
    /// The node of `exp(z) + 1`.
    pub bottom: usize,
    /// The node of `z`.
    pub z: usize,
}

impl Quotient {
    /// The quotient that node `id` is.
    pub fn at(nodes: &[OpNode], id: usize) -> Option<Quotient> {
        let node = &nodes[id];
        let (top, bottom) = if node.op == OpCode::Float(FloatFunction::Recip) {
            (None, node.src[0] as usize)
        } else if node.op == OpCode::Arithmetic(Arithmetic::Div) {
            (Some(node.src[0] as usize), node.src[1] as usize)
        } else {
            return None;
        };
        let sum = &nodes[bottom];
        let exp = &nodes[sum.src[0] as usize];
        let one = matches!(nodes[sum.src[1] as usize].op, OpCode::Const(k) if k.is(1.0));
        let of_exp = sum.op == OpCode::Arithmetic(Arithmetic::Add)
            && exp.op == OpCode::Float(FloatFunction::Exp);
        (of_exp && one).then_some(Quotient { top, bottom, z: exp.src[0] as usize })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use teeny_core::Builder;

    /// How many nodes of the program are recognised.
    fn recognised(f: impl for<'b> Fn(&'b Builder, Expr<'b>) -> Vec<Expr<'b>>) -> usize {
        let builder = Builder::new();
        let x = builder.input(DType::F32);
        let kernel = builder.finish(&f(&builder, x)).unwrap();
        (0..kernel.nodes().len())
            .filter(|&id| Application::at(kernel.nodes(), id).is_some())
            .count()
    }

    #[test]
    fn a_composite_is_recognised_wherever_it_stands() {
        for (f, _) in COMPOSITES {
            assert_eq!(recognised(|_, x| vec![f(x)]), 1);
            assert_eq!(recognised(|_, x| vec![f(x.floor())]), 1);
            // The two negations of a silu cancel. `Quotient` differentiates what is left. A square
            // has lost a negation, too.
            let negated = recognised(|_, x| vec![f(-x)]);
            assert!(negated <= 1);
            assert_eq!(recognised(|_, x| vec![f(x.exp() + 1.0) * 2.0 - x]), 1);
            // with some of its steps already there
            assert_eq!(
                recognised(|_, x| vec![
                    (x.abs() * 0.5).exp().recip(),
                    x.like(1.0) - x,
                    x + 1.0,
                    f(x)
                ]),
                1
            );
        }
        assert_eq!(recognised(|_, x| vec![x.sinh(), x.cosh(), x.asin().acos()]), 4);
        assert_eq!(
            recognised(|_, x| vec![x.atan(), x.atan() * 2.0, (x.exp() + x.exp().recip()) * 0.5]),
            0
        );
    }
}
