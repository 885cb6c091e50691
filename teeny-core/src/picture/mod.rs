//! Graphs to be drawn: boxes with text, groups of them, and edges; as Graphviz DOT here, as SVG by
//! `teeny-viz`.
//!
//! A [`Picture`] does not know what its boxes stand for. [`Lazy::graph`](crate::Lazy::graph) makes
//! one of recorded operations, `teeny_autograd::graph` of a graph of gradients.

mod dot;
mod node;

pub(crate) use node::scalar_text;
pub use node::{Kind, Node, bytes_text, source_line};

/// The number of a node of a [`Picture`], from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub usize);

/// The number of a group of a [`Picture`], from 0 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub usize);

/// An arrow from one node to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edge {
    /// The node that is read.
    pub from: NodeId,
    /// The node that reads it.
    pub to: NodeId,
    /// Text about the edge. DOT shows it, SVG shows it below the mouse pointer.
    pub label: String,
}

/// A graph to be drawn: boxes with text, groups of boxes, and edges.
///
/// # Example
/// ```
/// use teeny_core::picture::{Kind, Node, Picture};
/// let mut picture = Picture::new("y = exp(2 x)");
/// let kernel = picture.group("exp(2.0 * x0)");
/// let x = picture.node(Node::new("x").kind(Kind::Input).line("(2, 3) f32"));
/// let mul = picture.node(Node::new("mul").in_group(kernel));
/// let exp = picture.node(Node::new("exp").in_group(kernel).kind(Kind::Output));
/// picture.edge(x, mul, "");
/// picture.edge(mul, exp, "");
/// assert!(picture.dot().starts_with("digraph"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Picture {
    title: String,
    nodes: Vec<Node>,
    groups: Vec<String>,
    edges: Vec<Edge>,
}

impl Picture {
    /// An empty picture.
    pub fn new(title: impl Into<String>) -> Picture {
        Picture { title: title.into(), ..Picture::default() }
    }

    /// Adds a box.
    pub fn node(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        NodeId(self.nodes.len() - 1)
    }

    /// Adds a group, a frame around the nodes that name it by [`Node::in_group`].
    pub fn group(&mut self, label: impl Into<String>) -> GroupId {
        self.groups.push(label.into());
        GroupId(self.groups.len() - 1)
    }

    /// Adds an edge. A second edge between two nodes only adds its label to the first one. An edge
    /// from or to a node that the picture does not have is not drawn.
    pub fn edge(&mut self, from: NodeId, to: NodeId, label: impl Into<String>) {
        if from.0.max(to.0) >= self.nodes.len() {
            return;
        }
        let label = label.into();
        match self.edges.iter_mut().rev().find(|edge| (edge.from, edge.to) == (from, to)) {
            None => self.edges.push(Edge { from, to, label }),
            Some(edge) if label.is_empty() || edge.label == label => {}
            Some(edge) if edge.label.is_empty() => edge.label = label,
            Some(edge) => edge.label = format!("{}, {label}", edge.label),
        }
    }

    /// The title.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The nodes by number.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The labels of the groups by number.
    pub fn groups(&self) -> &[String] {
        &self.groups
    }

    /// The edges in the order in which they were added.
    pub fn edges(&self) -> &[Edge] {
        &self.edges
    }
}
