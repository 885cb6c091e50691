//! A list and its plan as a picture: a box for each node, a frame around nodes that are one kernel.

use super::describe::{Facts, Listed};
use super::list::Operand;
use super::plan::ExecutionPlan;
use super::value::{Value, ValueState};
use crate::error::Result;
use crate::layout::Layout;
use crate::picture::{Kind, Node, NodeId, Picture, bytes_text};
use crate::tensor::Tensor;
use std::collections::HashMap;
use std::sync::Arc;

/// A tensor by name: the value that it is a view of, and that view.
#[derive(Clone)]
pub(super) struct Named {
    pub(super) name: String,
    pub(super) value: Arc<Value>,
    pub(super) layout: Layout,
}

/// The state of [`super::Lazy::draw_lists`]: names while lists are drawn, and the picture of the
/// largest one, with the number of its nodes.
#[derive(Default)]
pub(super) struct Drawing {
    pub(super) asked: Option<Vec<Named>>,
    pub(super) largest: Option<(usize, Result<Picture>)>,
}

impl Drawing {
    /// Draws `list` if that was asked for and no larger one was drawn.
    pub(super) fn draw(&mut self, list: Listed<'_>, plan: &ExecutionPlan) {
        let Some(names) = &self.asked else { return };
        let before = self.largest.as_ref().map_or(0, |(nodes, _)| *nodes);
        if list.nodes.len() > before {
            let in_list =
                |named: &&Named| list.slots.iter().any(|value| Arc::ptr_eq(value, &named.value));
            let names: Vec<Named> = names.iter().filter(in_list).cloned().collect();
            self.largest = Some((list.nodes.len(), picture(list, plan, &names)));
        }
    }
}

/// The picture of `list`, which runs by `plan`.
pub(super) fn picture(list: Listed<'_>, plan: &ExecutionPlan, names: &[Named]) -> Result<Picture> {
    let title = format!(
        "{} operations, {} of them not needed, in {} kernels and calls",
        list.nodes.len(),
        plan.dropped,
        plan.items.len()
    );
    let picture = Picture::new(title);
    let mut drawn =
        Drawn { list, plan, names, picture, made: HashMap::new(), leaves: HashMap::new() };
    let mut in_item = vec![false; list.nodes.len()];
    for (number, item) in plan.items.iter().enumerate() {
        let group = match item.nodes.len() {
            0 | 1 => None,
            _ => Some(drawn.picture.group(format!("{number}: {}", list.item(item)?.program))),
        };
        let mut boxes = HashMap::new();
        for &id in &item.nodes {
            let repeated = std::mem::replace(&mut in_item[id as usize], true);
            let mut node = drawn.node(id)?;
            if let Some(group) = group {
                node = node.in_group(group);
            }
            let node = drawn.picture.node(if repeated { node.kind(Kind::Repeated) } else { node });
            boxes.insert(id, node);
            drawn.operands(id, node, &boxes)?;
        }
        drawn.made.extend(boxes);
    }
    for id in (0..list.nodes.len() as u32).filter(|&id| !in_item[id as usize]) {
        let node = drawn.node(id)?.kind(Kind::Unused);
        let node = drawn.picture.node(node);
        drawn.made.insert(id, node);
        drawn.operands(id, node, &HashMap::new())?;
    }
    let is_known = |named: &&Named| list.slots.iter().any(|value| Arc::ptr_eq(value, &named.value));
    for named in names.iter().filter(|named| !is_known(named)) {
        // Computed, and read by nothing that is recorded.
        let elements = Node::new(&named.name).kind(Kind::Input);
        let node = elements.tensor(named.layout.shape(), named.value.elements().1);
        let node = values(node, list, &named.value, named.layout)?;
        drawn.picture.node(node);
    }
    Ok(drawn.picture)
}

/// A picture that is being drawn.
struct Drawn<'a> {
    list: Listed<'a>,
    plan: &'a ExecutionPlan,
    names: &'a [Named],
    picture: Picture,
    /// The box that each node was drawn in; of a node that several kernels compute, the last one.
    made: HashMap<u32, NodeId>,
    /// The box of each leaf, by slot.
    leaves: HashMap<u32, NodeId>,
}

impl Drawn<'_> {
    /// `loss = ` for the slots of these names.
    fn name(&self, slots: std::ops::Range<u32>) -> Option<String> {
        let names: Vec<&str> = self
            .names
            .iter()
            .filter(|named| {
                self.list.slots[slots.start as usize..slots.end as usize]
                    .iter()
                    .any(|value| Arc::ptr_eq(value, &named.value))
            })
            .map(|named| named.name.as_str())
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// The box of a node.
    fn node(&self, id: u32) -> Result<Node> {
        let Facts { program, outputs, .. } = self.list.node(id)?;
        let slots = self.list.nodes[id as usize].outputs.clone();
        let heading = match self.name(slots.clone()) {
            Some(name) => format!("{name} = {program}"),
            None => program,
        };
        let held = slots.clone().any(|slot| self.plan.is_held(slot));
        let mut node = Node::new(heading).kind(if held { Kind::Output } else { Kind::Operation });
        for (shape, dtype) in &outputs {
            node = node.tensor(shape, *dtype);
        }
        Ok(node.called(self.list.context(id)))
    }

    /// The edges into a node; `inside` are the boxes of its kernel.
    fn operands(&mut self, id: u32, to: NodeId, inside: &HashMap<u32, NodeId>) -> Result<()> {
        let node = &self.list.nodes[id as usize];
        for Operand { slot, layout, .. } in &node.operands {
            let (len, _) = self.list.slots[*slot as usize].elements();
            let whole = layout.is_contiguous() && layout.offset() == 0 && layout.numel() == len;
            let label = if whole { String::new() } else { format!("as {}", layout.shape()) };
            self.edge(*slot, to, inside, label)?;
        }
        if let Some(slot) = node.destination {
            self.edge(slot, to, inside, "destination".into())?;
        }
        Ok(())
    }

    fn edge(
        &mut self,
        slot: u32,
        to: NodeId,
        inside: &HashMap<u32, NodeId>,
        label: String,
    ) -> Result<()> {
        // Nodes are few between a value and its first reader: the list is searched from the end.
        let makes = |id: &u32| self.list.nodes[*id as usize].outputs.contains(&slot);
        let maker = (0..self.list.nodes.len() as u32).rev().find(makes);
        let from = match maker {
            Some(id) => inside.get(&id).or_else(|| self.made.get(&id)).copied(),
            None => Some(self.leaf(slot)?),
        };
        if let Some(from) = from {
            self.picture.edge(from, to, label);
        }
        Ok(())
    }

    /// The box of a value that the list only reads.
    fn leaf(&mut self, slot: u32) -> Result<NodeId> {
        if let Some(&known) = self.leaves.get(&slot) {
            return Ok(known);
        }
        let value = &self.list.slots[slot as usize];
        let named = self.names.iter().find(|named| Arc::ptr_eq(value, &named.value));
        let (whole, len, dtype) = self.list.leaf(slot);
        let name = named.map_or("input", |named| named.name.as_str());
        let layout = named.map(|named| named.layout).filter(|layout| layout.numel() == len);
        let node = Node::new(name).kind(Kind::Input);
        let node = match layout.or(whole) {
            Some(layout) => {
                let node = node.tensor(layout.shape(), dtype);
                values(node, self.list, value, layout)?
            }
            None => {
                let bytes = len.saturating_mul(dtype.size());
                node.line(format!("{len} elements {dtype}, {}", bytes_text(bytes as u64)))
            }
        };
        let node = self.picture.node(node);
        self.leaves.insert(slot, node);
        Ok(node)
    }
}

/// The box with the elements of a value that is computed and small.
fn values(node: Node, list: Listed<'_>, value: &Value, layout: Layout) -> Result<Node> {
    let ValueState::Ready(storage) = value.look() else { return Ok(node) };
    let dtype = storage.dtype();
    let x = Tensor::from_parts(storage, layout, dtype, list.device.clone())?;
    node.values("", &x)
}
