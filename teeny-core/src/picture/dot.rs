//! A picture as Graphviz DOT: <https://graphviz.org/doc/info/lang.html>.

use super::{GroupId, Kind, Node, Picture};
use std::fmt::Write as _;

impl Picture {
    /// The picture as Graphviz DOT, one statement a line: nodes `n0`, `n1`, … by number, groups as
    /// clusters. `dot -Tsvg` draws it.
    pub fn dot(&self) -> String {
        let mut text = format!(
            "digraph {} {{\n  rankdir=TB;\n  node [shape=box, fontname=\"monospace\", fontsize=10];\n  \
             edge [fontname=\"monospace\", fontsize=8];\n",
            quoted(&self.title)
        );
        // writing to a String cannot fail, here and below
        for (i, label) in self.groups.iter().enumerate() {
            let _ = writeln!(text, "  subgraph cluster_{i} {{\n    label={};", quoted(label));
            self.boxes(&mut text, Some(GroupId(i)), "    ");
            text += "  }\n";
        }
        self.boxes(&mut text, None, "  ");
        for edge in &self.edges {
            let _ = write!(text, "  n{} -> n{}", edge.from.0, edge.to.0);
            if !edge.label.is_empty() {
                let _ = write!(text, " [label={}]", quoted(&edge.label));
            }
            text += ";\n";
        }
        text + "}\n"
    }

    /// Writes the nodes of a group, or the nodes outside groups.
    fn boxes(&self, text: &mut String, group: Option<GroupId>, indent: &str) {
        let known = |node: &Node| node.group.filter(|group| group.0 < self.groups.len());
        let inside = self.nodes.iter().enumerate().filter(|(_, node)| known(node) == group);
        for (i, node) in inside {
            let mut label = node.heading.clone();
            node.lines.iter().for_each(|line| label = format!("{label}\n{line}"));
            let style = match node.kind {
                Kind::Operation => "",
                Kind::Input => ", style=\"rounded,filled\", fillcolor=\"#e8eef8\"",
                Kind::Output => ", style=filled, fillcolor=\"#e4f3e4\"",
                Kind::Repeated => ", style=dashed",
                Kind::Unused => ", style=dashed, color=\"#999999\", fontcolor=\"#999999\"",
            };
            let _ = write!(text, "{indent}n{i} [label={}{style}", quoted(&label));
            if !node.details.is_empty() {
                let _ = write!(text, ", tooltip={}", quoted(&node.details));
            }
            text.push_str("];\n");
        }
    }
}

/// A quoted string of DOT.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out + "\""
}
