//! Functions that kernels spell out in several nodes and that have one loop here: gelu, sigmoid and
//! silu.
//!
//! ```text
//!   neg ─► exp ─► add 1 ─► recip        four loops over a tile        is found in a program and becomes        sigmoid: one loop
//! ```
//! A loop (in `float`) does the very operations of the nodes, in their order, so that no bit of a
//! result depends on its having been found.

use super::strips::Loop;
use std::sync::OnceLock;
use teeny_core::DType;
use teeny_core::kernel::build::{Builder, Expr};
use teeny_core::kernel::{Id, Kernel, OpCode, OpNode};

/// An idiom as a program of one input spells it.
struct Spelling {
    idiom: Loop,
    kernel: Kernel,
    /// How many nodes of the program read each.
    readers: Vec<u32>,
}

/// What core's expressions call it.
type Function = fn(Expr<'_>) -> Expr<'_>;

/// Nodes of the longest spelling, and then some.
const NODES: usize = 16;

fn spellings() -> &'static [Spelling] {
    static SPELLINGS: OnceLock<Vec<Spelling>> = OnceLock::new();
    SPELLINGS.get_or_init(|| {
        let spell = |(idiom, function): (Loop, Function)| {
            let builder = Builder::new();
            let kernel = builder.finish(&[function(builder.input(DType::F32))]).ok()?;
            let mut readers = Vec::new();
            count_readers(&kernel, &mut readers);
            (kernel.nodes().len() <= NODES).then_some(Spelling { idiom, kernel, readers })
        };
        let all: [(Loop, Function); 4] = [
            (Loop::Gelu, |x| x.gelu()),
            (Loop::GeluTanh, |x| x.gelu_tanh()),
            (Loop::Sigmoid, |x| x.sigmoid()),
            (Loop::Silu, |x| x.silu()),
        ];
        all.into_iter().filter_map(spell).collect()
    })
}

/// How many nodes and outputs of a program read each node.
pub(super) fn count_readers(kernel: &Kernel, readers: &mut Vec<u32>) {
    readers.clear();
    readers.resize(kernel.nodes().len(), 0);
    let sources = kernel.nodes().iter().flat_map(|node| node.sources());
    sources.chain(kernel.outputs()).for_each(|&source| readers[source as usize] += 1);
}

/// An idiom found in a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub idiom: Loop,
    /// The node whose value it is.
    pub root: Id,
    /// The node that it is a function of.
    pub of: Id,
}

/// Which node stands for each node of a spelling.
type Map = [Option<Id>; NODES];

/// The idioms of a program, of which each node is read by as many as `readers` says. `inside`
/// becomes true for the nodes that nobody else needs.
pub(super) fn find(nodes: &[OpNode], readers: &[u32], found: &mut Vec<Found>, inside: &mut [bool]) {
    let worth = |node: &OpNode| {
        matches!(node.op, OpCode::Tanh | OpCode::Erf | OpCode::Exp) && node.dtype == DType::F32
    };
    if !nodes.iter().any(worth) {
        return;
    }
    for root in (0..nodes.len()).rev() {
        if inside[root] {
            continue;
        }
        for Spelling { idiom, kernel, readers: within } in spellings() {
            let (spelt, last) = (kernel.nodes(), kernel.outputs()[0]);
            let mut map = [None; NODES];
            if !fits(nodes, root as Id, spelt, last, &mut map) {
                continue;
            }
            let parts =
                || (0..spelt.len()).filter(|&i| spelt[i].op.arity() > 0 && i != last as usize);
            let of = (0..spelt.len())
                .find(|&i| matches!(spelt[i].op, OpCode::Input(_)))
                .and_then(|i| map[i]);
            let alone = parts().all(|i| map[i].is_some_and(|id| readers[id as usize] == within[i]));
            if let (true, Some(of)) = (alone, of) {
                parts().filter_map(|i| map[i]).for_each(|id| inside[id as usize] = true);
                found.push(Found { idiom: *idiom, root: root as Id, of });
                break;
            }
        }
    }
}

/// Whether node `id` is spelt like node `like`; operands of what commutes may be exchanged.
fn fits(nodes: &[OpNode], id: Id, spelt: &[OpNode], like: Id, map: &mut Map) -> bool {
    if let Some(known) = map[like as usize] {
        return known == id;
    }
    let (node, model) = (&nodes[id as usize], &spelt[like as usize]);
    map[like as usize] = Some(id);
    let same = match model.op {
        OpCode::Input(_) => true,
        op => node.op == op,
    };
    if !same || node.dtype != DType::F32 {
        return false;
    }
    let sources = model.sources();
    let before = *map;
    if sources.iter().zip(node.sources()).all(|(&like, &id)| fits(nodes, id, spelt, like, map)) {
        return true;
    }
    *map = before;
    model.op.is_commutative()
        && sources
            .iter()
            .zip(node.sources().iter().rev())
            .all(|(&like, &id)| fits(nodes, id, spelt, like, map))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(build: impl for<'b> Fn(Expr<'b>) -> Vec<Expr<'b>>) -> Vec<Loop> {
        let builder = Builder::new();
        let kernel = builder.finish(&build(builder.input(DType::F32))).unwrap();
        let (mut readers, mut found, mut inside) =
            (Vec::new(), Vec::new(), vec![false; kernel.nodes().len()]);
        count_readers(&kernel, &mut readers);
        find(kernel.nodes(), &readers, &mut found, &mut inside);
        assert!(found.iter().all(|f| !inside[f.root as usize] && !inside[f.of as usize]));
        found.iter().map(|found| found.idiom).collect()
    }

    #[test]
    fn idioms_are_found_wherever_they_stand_and_only_whole() {
        assert_eq!(found(|x| vec![x.gelu()]), [Loop::Gelu]);
        assert_eq!(found(|x| vec![(x + 1.5).gelu_tanh() * 0.25]), [Loop::GeluTanh]);
        assert_eq!(found(|x| vec![(x + 1.0).sigmoid() * x.silu()]), [Loop::Silu, Loop::Sigmoid]);
        assert_eq!(found(|x| vec![x.sigmoid().gelu()]), [Loop::Gelu, Loop::Sigmoid]);
        // a part that is wanted for itself
        fn shared(x: Expr<'_>) -> Expr<'_> {
            (-x).exp() + 1.0
        }
        assert_eq!(found(|x| vec![shared(x).recip(), shared(x)]), []);
        assert_eq!(found(|x| vec![x.sigmoid() * x.silu()]), []);
        assert_eq!(found(|x| vec![((-x).exp() + 2.0).recip()]), []);
    }
}
