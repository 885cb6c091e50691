//! Composite functions whose derivative is not left to the rules of their steps, which would give
//! `0 * inf` or cancel, or take more steps.
//!
//! ```text
//! sinh' = cosh    cosh' = sinh    asin' = 1 / sqrt(1 - x²)    acos' = -asin'
//! hardswish' = 0, x / 3 + 1 / 2, 1    max(log x, -100)' = 1 / max(x, 1e-12)    gelu' = Φ + x φ
//! silu' = s (1 + x (1 - s))
//! ```
//!
//! A function is recognised by its nodes: those that [`Expr`]'s method makes of one input. A
//! program that computes it in another way is differentiated step by step.

use std::sync::LazyLock;
use teeny_core::kernel::Id;
use teeny_core::{Arithmetic, DType, Expr, FloatFunction, Kernel, OpCode, OpNode};

/// The types that have derivatives.
const FLOATS: [DType; 4] = [DType::F16, DType::BF16, DType::F32, DType::F64];

/// A recognised composite and its derivative.
#[derive(Clone, Copy)]
enum Composite {
    Sinh,
    Cosh,
    Asin,
    Acos,
    Hardswish,
    /// These three are here to be one loop of an engine.
    Gelu,
    GeluTanh,
    Silu,
    /// The logarithm in binary cross-entropy, whose derivative is not 0 below its least value: a
    /// saturated wrong output still gets a gradient, as in PyTorch.
    BoundedLog,
    BoundedLog1p,
}

impl Composite {
    const ALL: [Composite; 10] = {
        use Composite::*;
        [Sinh, Cosh, Asin, Acos, Hardswish, Gelu, GeluTanh, Silu, BoundedLog, BoundedLog1p]
    };

    fn of(self, x: Expr<'_>) -> Expr<'_> {
        match self {
            Composite::Sinh => x.sinh(),
            Composite::Cosh => x.cosh(),
            Composite::Asin => x.asin(),
            Composite::Acos => x.acos(),
            Composite::Hardswish => x.hardswish(),
            Composite::Gelu => x.gelu(),
            Composite::GeluTanh => x.gelu_tanh(),
            Composite::Silu => x.silu(),
            Composite::BoundedLog => x.log().maximum(-100.0),
            Composite::BoundedLog1p => x.log1p().maximum(-100.0),
        }
    }

    fn derivative(self, x: Expr<'_>) -> Expr<'_> {
        // A square, although (1 - x)(1 + x) is more exact near 1: its derivative there is not inf -
        // inf.
        let arc = (x.like(1.0) - x.square()).rsqrt();
        match self {
            Composite::Sinh => x.cosh(),
            Composite::Cosh => x.sinh(),
            Composite::Asin => arc,
            Composite::Acos => -arc,
            Composite::Hardswish => {
                x.lt(3.0).where_cond(x.gt(-3.0).where_cond(x / 3.0 + 0.5, 0.0), 1.0)
            }
            Composite::Gelu => x.gelu_derivative(),
            Composite::GeluTanh => x.gelu_tanh_derivative(),
            Composite::Silu => x.silu_derivative(),
            Composite::BoundedLog => x.maximum(1e-12).recip(),
            Composite::BoundedLog1p => (x + 1.0).maximum(1e-12).recip(),
        }
    }
}

/// The nodes of a composite of the first input.
struct Template {
    composite: Composite,
    kernel: Kernel,
}

static TEMPLATES: LazyLock<Vec<Template>> = LazyLock::new(|| {
    let make = |dtype, composite: Composite| {
        Kernel::build([dtype], [], |[x], []| [composite.of(x)])
            .map(|kernel| Template { composite, kernel })
    };
    // A composite that cannot be built is one that no program contains.
    FLOATS
        .iter()
        .flat_map(|&dtype| Composite::ALL.iter().filter_map(move |&c| make(dtype, c).ok()))
        .collect()
});

/// The result of a composite function within a program.
pub(crate) struct Application {
    composite: Composite,
    /// The node of its operand.
    pub x: usize,
}

impl Application {
    /// The composite application whose result is node `id`, if it is one.
    pub fn at(nodes: &[OpNode], id: usize) -> Option<Application> {
        TEMPLATES.iter().find_map(|Template { composite, kernel }| {
            let mut x = None;
            let same = matches(kernel.nodes(), kernel.outputs()[0], nodes, id as Id, &mut x);
            x.filter(|_| same).map(|x| Application { composite: *composite, x: x as usize })
        })
    }

    /// The derivative at `x`, the value of the operand.
    pub fn derivative<'b>(&self, x: Expr<'b>) -> Expr<'b> {
        self.composite.derivative(x)
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
        for c in Composite::ALL {
            assert_eq!(recognised(|_, x| vec![c.of(x)]), 1);
            assert_eq!(recognised(|_, x| vec![c.of(x.floor())]), 1);
            // The two negations of a silu cancel. `Quotient` differentiates what is left.
            let count = usize::from(!matches!(c, Composite::Silu));
            assert_eq!(recognised(|_, x| vec![c.of(-x)]), count);
            assert_eq!(recognised(|_, x| vec![c.of(x.exp() + 1.0) * 2.0 - x]), 1);
            // with some of its steps already there
            assert_eq!(
                recognised(|_, x| vec![
                    (x.abs() * 0.5).exp().recip(),
                    x.like(1.0) - x,
                    x + 1.0,
                    c.of(x)
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
