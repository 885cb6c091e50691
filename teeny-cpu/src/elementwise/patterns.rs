//! Peephole fusion: functions that are several nodes of a kernel and one loop here: gelu, its tanh
//! form and silu with their derivatives, and sigmoid.
//!
//! ```text
//!   neg ─► exp ─► add 1 ─► recip     four loops over a tile     becomes     sigmoid: one loop
//! ```
//! The loop (in `loops::float`) computes the operations of the nodes in their order, so that no bit
//! of a result depends on whether the pattern was found.

use crate::loops::Loop;
use std::sync::OnceLock;
use teeny_core::DType;
use teeny_core::kernel::build::{Builder, Expr};
use teeny_core::kernel::{FloatFunction, Id, Kernel, OpCode, OpNode};

/// A function as a kernel of one input.
struct Pattern {
    function: Loop,
    kernel: Kernel,
    /// How many nodes and outputs of this kernel read each node.
    readers: Vec<u32>,
}

/// The function as core's expressions define it.
type Definition = fn(Expr<'_>) -> Expr<'_>;

/// The most nodes of a pattern.
const MAX_NODES: usize = 24;

fn patterns() -> &'static [Pattern] {
    static PATTERNS: OnceLock<Vec<Pattern>> = OnceLock::new();
    PATTERNS.get_or_init(|| {
        // 16-bit floats are computed in f32.
        let compile = |(dtype, (function, definition)): (DType, (Loop, Definition))| {
            let builder = Builder::new();
            let kernel = builder.finish(&[definition(builder.input(dtype))]).ok()?;
            let readers = count_readers(&kernel);
            (kernel.nodes().len() <= MAX_NODES).then_some(Pattern { function, kernel, readers })
        };
        let all: [(Loop, Definition); 7] = [
            (Loop::Gelu, |x| x.gelu()),
            (Loop::GeluGrad, |x| x.gelu_derivative()),
            (Loop::GeluTanh, |x| x.gelu_tanh()),
            (Loop::Sigmoid, |x| x.sigmoid()),
            (Loop::Silu, |x| x.silu()),
            (Loop::GeluTanhGrad, |x| x.gelu_tanh_derivative()),
            (Loop::SiluGrad, |x| x.silu_derivative()),
        ];
        let of = |dtype| all.into_iter().map(move |pattern| (dtype, pattern));
        of(DType::F32).chain(of(DType::F64)).filter_map(compile).collect()
    })
}

/// Counts how many nodes and outputs of a kernel read each node.
pub(super) fn count_readers(kernel: &Kernel) -> Vec<u32> {
    let mut readers = vec![0; kernel.nodes().len()];
    let sources = kernel.nodes().iter().flat_map(|node| node.sources());
    sources.chain(kernel.outputs()).for_each(|&source| readers[source as usize] += 1);
    readers
}

/// A pattern found in a kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    pub pattern: Loop,
    /// The node whose value the function computes.
    pub root: Id,
    /// The node that the function is applied to.
    pub input: Id,
}

/// The node of the kernel that corresponds to each node of a pattern.
type Map = [Option<Id>; MAX_NODES];

/// Finds the patterns of a kernel whose nodes are read by `readers` others each. `inlined` becomes
/// true for the nodes that only their pattern needs.
pub(super) fn find(
    nodes: &[OpNode],
    readers: &[u32],
    found: &mut Vec<Match>,
    inlined: &mut [bool],
) {
    let may_match = |node: &OpNode| {
        use FloatFunction::{Erf, Exp, Tanh};
        matches!(node.op, OpCode::Float(Tanh | Erf | Exp))
    };
    if !nodes.iter().any(may_match) {
        return;
    }
    for root in (0..nodes.len()).rev() {
        if inlined[root] {
            continue;
        }
        for Pattern { function, kernel, readers: expected } in patterns() {
            let (pattern, last) = (kernel.nodes(), kernel.outputs()[0]);
            let mut map = [None; MAX_NODES];
            if !matches(nodes, root as Id, pattern, last, &mut map) {
                continue;
            }
            let inner =
                || (0..pattern.len()).filter(|&i| pattern[i].op.arity() > 0 && i != last as usize);
            let input = (0..pattern.len())
                .find(|&i| matches!(pattern[i].op, OpCode::Input(_)))
                .and_then(|i| map[i]);
            let unshared =
                inner().all(|i| map[i].is_some_and(|id| readers[id as usize] == expected[i]));
            if let (true, Some(input)) = (unshared, input) {
                inner().filter_map(|i| map[i]).for_each(|id| inlined[id as usize] = true);
                found.push(Match { pattern: *function, root: root as Id, input });
                break;
            }
        }
    }
}

/// Whether node `id` corresponds to node `like` of a pattern; the operands of commutative
/// operations may be exchanged.
fn matches(nodes: &[OpNode], id: Id, pattern: &[OpNode], like: Id, map: &mut Map) -> bool {
    if let Some(known) = map[like as usize] {
        return known == id;
    }
    let (node, model) = (&nodes[id as usize], &pattern[like as usize]);
    map[like as usize] = Some(id);
    let same = match model.op {
        OpCode::Input(_) => true,
        op => node.op == op,
    };
    if !same || node.dtype.compute() != model.dtype {
        return false;
    }
    let sources = model.sources();
    let before = *map;
    if sources.iter().zip(node.sources()).all(|(&like, &id)| matches(nodes, id, pattern, like, map))
    {
        return true;
    }
    *map = before;
    model.op.is_commutative()
        && sources
            .iter()
            .zip(node.sources().iter().rev())
            .all(|(&like, &id)| matches(nodes, id, pattern, like, map))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(build: impl for<'b> Fn(Expr<'b>) -> Vec<Expr<'b>>) -> Vec<Loop> {
        let found = found_in(DType::F32, &build);
        for dtype in [DType::F64, DType::BF16, DType::F16] {
            assert_eq!(found_in(dtype, &build), found, "{dtype}");
        }
        found
    }

    fn found_in(dtype: DType, build: &impl for<'b> Fn(Expr<'b>) -> Vec<Expr<'b>>) -> Vec<Loop> {
        let builder = Builder::new();
        let kernel = builder.finish(&build(builder.input(dtype))).unwrap();
        let (mut found, mut inlined) = (Vec::new(), vec![false; kernel.nodes().len()]);
        find(kernel.nodes(), &count_readers(&kernel), &mut found, &mut inlined);
        assert!(found.iter().all(|f| !inlined[f.root as usize] && !inlined[f.input as usize]));
        found.iter().map(|found| found.pattern).collect()
    }

    #[test]
    fn patterns_are_found_anywhere_and_only_whole() {
        assert_eq!(found(|x| vec![x.gelu()]), [Loop::Gelu]);
        assert_eq!(found(|x| vec![x * x.gelu_derivative()]), [Loop::GeluGrad]);
        assert_eq!(found(|x| vec![(x + 1.5).gelu_tanh() * 0.25]), [Loop::GeluTanh]);
        assert_eq!(found(|x| vec![x * x.gelu_tanh_derivative()]), [Loop::GeluTanhGrad]);
        assert_eq!(found(|x| vec![(x * 2.0).silu_derivative() * x]), [Loop::SiluGrad]);
        assert_eq!(found(|x| vec![(x + 1.0).sigmoid() * x.silu()]), [Loop::Silu, Loop::Sigmoid]);
        assert_eq!(found(|x| vec![x.sigmoid().gelu()]), [Loop::Gelu, Loop::Sigmoid]);
        // a part that is read by another node too
        fn shared(x: Expr<'_>) -> Expr<'_> {
            (-x).exp() + 1.0
        }
        assert_eq!(found(|x| vec![shared(x).recip(), shared(x)]), []);
        assert_eq!(found(|x| vec![x.sigmoid() * x.silu()]), []);
        assert_eq!(found(|x| vec![((-x).exp() + 2.0).recip()]), []);
    }
}
