//! The recorded operations behind a tensor as a picture.

use crate::gradients::Gradients;
use crate::node::{Handle, Node as GraphNode, NodeKind};
use crate::storage::{try_tracked, unwrap};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::picture::{Kind, Node, NodeId, Picture};
use teeny_core::{DType, Error, Result, Tensor};

/// A picture of the operations that `loss` was computed by, as far as they were recorded: leaves
/// and operations with shape, dtype, bytes and the user's line, and an edge for each operand that
/// requires a gradient. `tensors` are shown by name; they and `loss` are shown with their elements
/// if these are at most eight, as the graph keeps no values itself. With `grads`, the gradients of
/// leaves and retained results, or their norms, are shown below the values.
///
/// # Errors
/// If `loss` has no history, or a device fails to read a small tensor.
///
/// # Example
/// ```
/// use teeny_autograd::{Autograd, Grad, graph};
/// use teeny_core::{Reference, Result, Tensor};
/// # fn main() -> Result<()> {
/// let device = Autograd::new(Reference::new());
/// let w = Tensor::new(3.0f64, &device)?.requires_grad_named("w")?; // ()
/// let loss = w.mul(&w)?.exp()?; // ()
/// let picture = graph(&loss, &[("w", &w)], Some(&loss.backward()?))?;
/// assert_eq!(picture.nodes().len(), 3);
/// assert!(picture.dot().starts_with("digraph"));
/// # Ok(()) }
/// ```
#[track_caller]
pub fn graph(
    loss: &Tensor,
    tensors: &[(&str, &Tensor)],
    grads: Option<&Gradients>,
) -> Result<Picture> {
    let _op = enter("graph");
    let Some(root) = try_tracked(loss).and_then(|storage| storage.handle.as_ref()) else {
        let error = Error::gradient("the tensor has no history to draw");
        return Err(error.help("draw the loss before `detach` or `into_backward` takes its graph"));
    };
    let nodes = history(root);
    let count = nodes.values().filter(|node| !node.is_leaf()).count();
    let title = format!("{count} recorded operations, {} leaves", nodes.len() - count);
    let mut picture = Picture::new(title);
    let known: Vec<(&str, &Tensor)> = tensors.iter().copied().chain([("", loss)]).collect();
    let mut boxes: HashMap<u64, NodeId> = HashMap::new();
    // Ids rise from operands to results.
    for node in nodes.values() {
        let drawn = picture.node(draw(node, root, &known, grads)?);
        boxes.insert(node.id, drawn);
        for edge in node.edges.iter().flatten() {
            let from = boxes.get(&edge.from.node.id).copied();
            let label = edge.view.as_ref().map(|view| format!("as {}", view.shape()));
            if let Some(from) = from {
                picture.edge(from, drawn, label.unwrap_or_default());
            }
        }
    }
    Ok(picture)
}

/// The nodes that `root` depends on, by id. A long chain is walked without recursion.
fn history(root: &Handle) -> BTreeMap<u64, Arc<GraphNode>> {
    let mut found = BTreeMap::new();
    let mut open = vec![root.node.clone()];
    while let Some(node) = open.pop() {
        if found.insert(node.id, node.clone()).is_none() {
            open.extend(node.edges.iter().flatten().map(|edge| edge.from.node.clone()));
        }
    }
    found
}

fn draw(
    node: &GraphNode,
    root: &Handle,
    known: &[(&str, &Tensor)],
    grads: Option<&Gradients>,
) -> Result<Node> {
    // The tensors that are this node's values, whole.
    let mine = known.iter().filter_map(|&(name, x)| {
        let handle = try_tracked(x)?.handle.as_ref()?;
        let whole = handle.node.id == node.id && *x.shape() == handle.value().shape;
        whole.then_some((name, x, handle.output))
    });
    let mine: Vec<(&str, &Tensor, u8)> = mine.collect();
    let name = mine.iter().map(|(name, ..)| *name).find(|name| !name.is_empty());
    let (heading, kind) = match &node.kind {
        NodeKind::Leaf { name: own } => {
            let name = name.map(String::from).or_else(|| own.as_deref().map(String::from));
            (name.unwrap_or_else(|| "leaf".into()), Kind::Input)
        }
        NodeKind::Op { name: op, .. } => {
            // A kernel of several operations has the name of the method that made it.
            let op = match (*op, node.context) {
                ("kernel", Some(context)) => context.op,
                (op, _) => op,
            };
            let heading = name.map_or(op.to_string(), |name| format!("{name} = {op}"));
            let is_root = node.id == root.node.id;
            (heading, if is_root { Kind::Output } else { Kind::Operation })
        }
    };
    let mut drawn = Node::new(heading).kind(kind);
    for (output, value) in node.values.iter().enumerate() {
        drawn = drawn.tensor(&value.shape, value.dtype);
        let seen = mine.iter().find(|(.., of)| *of as usize == output);
        if let Some((_, x, _)) = seen {
            // Read on the inner device, so that the picture adds no detach point.
            drawn = drawn.values("", &unwrap(x)?)?;
        }
        if let Some(kept) = grads.and_then(|grads| grads.kept.get(&(node.id, output as u8))) {
            let g = kept.view();
            drawn = match g.numel() {
                0..=8 => drawn.values("grad ", g)?,
                _ => {
                    let norm = g.cast(DType::F32)?.square()?.sum_all()?.sqrt()?;
                    drawn.values("norm of grad ", &norm)?
                }
            };
        }
    }
    Ok(drawn.called(node.context))
}
