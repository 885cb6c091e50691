//! A graph as SVG: the boxes of each group are placed first, then the groups like boxes.

use super::layers::{LAYER_GAP, Link, Pin, Placed, Vertex, place};
use super::svg::{escape, head, save};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use teeny_core::context::enter;
use teeny_core::picture::{Kind, Node, Picture};
use teeny_core::{Error, Result};

/// The margin of the picture, and the space within boxes and groups.
const MARGIN: f64 = 20.0;
const PADDING: f64 = 8.0;
/// The height of a line of text, and the width of a character of the sizes below: SVG cannot
/// measure text. Monospaced fonts are about 0.6 of their size wide, some renderers round up.
const LINE: f64 = 14.0;
const FONT: f64 = 11.0;
const CHARACTER: f64 = 0.64;
const HEADING: f64 = 12.0;
/// The most characters of a line; the whole text is shown below the mouse pointer.
const MAX_CHARACTERS: usize = 56;

/// A box, or a group of boxes with lines that go in and out.
struct Part {
    /// The nodes in it.
    nodes: Vec<usize>,
    /// The group; None for a box of no group.
    group: Option<usize>,
    inner: Placed,
    /// The links of `inner`.
    links: Vec<Link>,
    width: f64,
    height: f64,
    /// Where `inner` begins.
    dx: f64,
    dy: f64,
    /// The vertices of `inner` where lines from outside enter, and where lines to outside leave.
    ins: HashMap<usize, usize>,
    outs: HashMap<usize, usize>,
}

/// The graph as SVG: layers from top to bottom, so that edges go down. It needs no other program to
/// be drawn.
///
/// # Example
/// ```
/// use teeny_core::picture::{Kind, Node, Picture};
/// let mut graph = Picture::new("y = exp(2 x)");
/// let x = graph.node(Node::new("x").kind(Kind::Input).line("(2, 3) f32"));
/// let exp = graph.node(Node::new("exp").kind(Kind::Output));
/// graph.edge(x, exp, "");
/// assert!(teeny_viz::graph_svg(&graph).starts_with("<svg"));
/// ```
pub fn graph_svg(graph: &Picture) -> String {
    Drawing(graph).svg()
}

/// Writes the graph to `path`: as Graphviz DOT if it ends in `.dot` or `.gv`, as SVG if it ends in
/// `.svg`.
///
/// # Errors
/// If the path ends in none of these, or the file cannot be written.
#[track_caller]
pub fn save_graph(graph: &Picture, path: impl AsRef<Path>) -> Result<()> {
    let _op = enter("save_graph");
    let path = path.as_ref();
    let text = match path.extension().and_then(|extension| extension.to_str()) {
        Some("svg") => graph_svg(graph),
        Some("dot" | "gv") => graph.dot(),
        _ => {
            let text =
                format!("expected a path that ends in .svg, .dot or .gv, got {}", path.display());
            return Err(Error::value(text));
        }
    };
    save(path, text.as_bytes())
}

/// A graph to be drawn.
struct Drawing<'a>(&'a Picture);

impl Drawing<'_> {
    fn svg(&self) -> String {
        let (parts, part_of) = self.parts();
        let vertices: Vec<Vertex> = parts
            .iter()
            .map(|part| Vertex { width: part.width, height: part.height, pin: Pin::Free })
            .collect();
        // One line for each value and part that reads it.
        let mut links: Vec<Link> = Vec::new();
        let mut crossing: Vec<(usize, usize, usize, String)> = Vec::new();
        for edge in self.0.edges() {
            let (from, to) = (part_of[edge.from.0], part_of[edge.to.0]);
            if from == to {
                continue;
            }
            // A box without a group has lines to it for each source; of a group it is the port.
            let known = crossing.iter_mut().find(|line| (line.0, line.2) == (edge.from.0, to));
            if let Some(line) = known {
                if !edge.label.is_empty() && !line.3.contains(&edge.label) {
                    line.3 = format!("{} {}", line.3, edge.label);
                }
                continue;
            }
            links.push(Link {
                from,
                to,
                from_dx: parts[from].out_dx(edge.from.0),
                to_dx: parts[to].in_dx(edge.from.0),
                source: edge.from.0,
            });
            crossing.push((edge.from.0, from, to, edge.label.clone()));
        }
        let placed = place(&vertices, &links);
        let legend = self.legend();
        let top = if legend.is_empty() { 34.0 } else { 52.0 };
        let title = clipped(self.0.title(), 120);
        let least = text_width(&title, 15.0).max(text_width(&legend, FONT));
        let width = placed.width.max(least) + 2.0 * MARGIN;
        let left = (width - placed.width) / 2.0;
        let height = top + placed.height + MARGIN;
        let mut svg = head(width.round(), height.round(), &title);
        // writing to a String cannot fail, here and below
        let _ = write!(
            svg,
            "<defs><marker id=\"head\" viewBox=\"0 0 8 8\" refX=\"7\" refY=\"4\" markerWidth=\"7\" \
             markerHeight=\"7\" orient=\"auto\"><path d=\"M0 0L8 4L0 8z\" fill=\"#666\"/></marker></defs>\n\
             <g font-family=\"DejaVu Sans Mono, Menlo, Consolas,monospace\" font-size=\"{FONT}\">\n\
             <text x=\"{:.1}\" y=\"42\" text-anchor=\"middle\">{legend}</text>\n",
            width / 2.0,
        );
        let at = |part: usize| (left + placed.x[part], top + placed.y[part]);
        // Frames of groups, then lines, then boxes.
        for (i, part) in parts.iter().enumerate() {
            if let Some(group) = part.group {
                let (x, y) = at(i);
                self.frame(&mut svg, part, group, x - part.width / 2.0, y);
            }
        }
        let arrivals = arrivals(&placed, &links, &parts);
        for (i, (link, (_, _, _, label))) in links.iter().zip(&crossing).enumerate() {
            let (from, to) = (at(link.from), at(link.to));
            let start = (from.0 + link.from_dx, from.1 + parts[link.from].height);
            let end = (to.0 + arrivals[i], to.1);
            let bends = placed.bends[i].iter().map(|&(x, y)| (left + x, top + y));
            let has_head = parts[link.to].group.is_none();
            line(&mut svg, start, bends.collect(), end, label, has_head);
        }
        for (i, part) in parts.iter().enumerate() {
            let (x, y) = at(i);
            let (x, y) = (x - part.width / 2.0 + part.dx, y + part.dy);
            self.inner_lines(&mut svg, part, x, y);
            for (k, &node) in part.nodes.iter().enumerate() {
                let (cx, top) = (x + part.inner.x[k], y + part.inner.y[k]);
                draw(&mut svg, &self.0.nodes()[node], cx, top);
            }
        }
        svg + "</g>\n</svg>\n"
    }

    /// The groups and the boxes of no group, and which of them each node is in.
    fn parts(&self) -> (Vec<Part>, Vec<usize>) {
        let mut members: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
        let mut place_of = vec![usize::MAX; self.0.groups().len()];
        let mut part_of = Vec::with_capacity(self.0.nodes().len());
        for (i, node) in self.0.nodes().iter().enumerate() {
            let group =
                node.group().map(|group| group.0).filter(|&group| group < self.0.groups().len());
            let known = group.map_or(usize::MAX, |group| place_of[group]);
            let part = if known == usize::MAX { members.len() } else { known };
            if part == members.len() {
                members.push((group, Vec::new()));
                if let Some(group) = group {
                    place_of[group] = part;
                }
            }
            members[part].1.push(i);
            part_of.push(part);
        }
        let parts = members
            .into_iter()
            .enumerate()
            .map(|(part, (group, nodes))| self.part(part, group, nodes, &part_of))
            .collect();
        (parts, part_of)
    }

    fn part(
        &self,
        number: usize,
        group: Option<usize>,
        nodes: Vec<usize>,
        part_of: &[usize],
    ) -> Part {
        let mut vertices: Vec<Vertex> = nodes.iter().map(|&i| vertex(&self.0.nodes()[i])).collect();
        let at: HashMap<usize, usize> =
            nodes.iter().enumerate().map(|(k, &node)| (node, k)).collect();
        let (mut ins, mut outs) = (HashMap::new(), HashMap::new());
        let mut links: Vec<Link> = Vec::new();
        let port = |pin| Vertex { width: 4.0, height: 0.0, pin };
        for edge in self.0.edges().iter().filter(|_| group.is_some()) {
            let (from, to) = (edge.from.0, edge.to.0);
            let (source, target) = match (part_of[from] == number, part_of[to] == number) {
                (true, true) => (at[&from], at[&to]),
                (false, true) => {
                    let port = *ins.entry(from).or_insert_with(|| {
                        vertices.push(port(Pin::Top));
                        vertices.len() - 1
                    });
                    (port, at[&to])
                }
                (true, false) => {
                    let known = outs.len();
                    let port = *outs.entry(from).or_insert_with(|| {
                        vertices.push(port(Pin::Bottom));
                        vertices.len() - 1
                    });
                    if outs.len() == known {
                        continue;
                    }
                    (at[&from], port)
                }
                (false, false) => continue,
            };
            links.push(Link { from: source, to: target, from_dx: 0.0, to_dx: 0.0, source });
        }
        let inner = place(&vertices, &links);
        let (mut width, mut height, mut dx, mut dy) = (inner.width, inner.height, 0.0, 0.0);
        if let Some(group) = group {
            let label = clipped(&self.0.groups()[group], MAX_CHARACTERS);
            width = width.max(text_width(&label, FONT)) + 2.0 * PADDING;
            dx = (width - inner.width) / 2.0;
            // Lines come in below the label.
            let space = if ins.is_empty() { PADDING } else { 0.0 };
            dy = LINE + PADDING + space;
            height += dy + if outs.is_empty() { PADDING } else { 0.0 };
        }
        Part { nodes, group, inner, links, width, height, dx, dy, ins, outs }
    }

    fn frame(&self, svg: &mut String, part: &Part, group: usize, x: f64, y: f64) {
        let label = &self.0.groups()[group];
        let _ = writeln!(
            svg,
            "<g class=\"group\"><title>{}</title><rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" \
             height=\"{:.1}\" rx=\"6\" fill=\"#faf6ec\" stroke=\"#c9b88a\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" fill=\"#7a6a35\">{}</text></g>",
            escape(label),
            part.width,
            part.height,
            x + PADDING,
            y + LINE,
            escape(&clipped(label, MAX_CHARACTERS))
        );
    }

    /// The lines within a group.
    fn inner_lines(&self, svg: &mut String, part: &Part, x: f64, y: f64) {
        let ends = |v: usize| match part.nodes.get(v) {
            Some(&node) => vertex(&self.0.nodes()[node]).height,
            None => 0.0,
        };
        let arrivals = spread_arrivals(&part.inner, &part.links, |v| {
            part.nodes.get(v).map_or(0.0, |&node| vertex(&self.0.nodes()[node]).width)
        });
        for (i, link) in part.links.iter().enumerate() {
            let Placed { x: xs, y: ys, bends, height, .. } = &part.inner;
            let start = (x + xs[link.from], y + ys[link.from] + ends(link.from));
            let mut end = (x + xs[link.to] + arrivals[i], y + ys[link.to]);
            let mut points: Vec<(f64, f64)> =
                bends[i].iter().map(|&(bx, by)| (x + bx, y + by)).collect();
            let is_port = link.to >= part.nodes.len();
            if is_port {
                // From the last layer of bends straight to the frame.
                end.1 = y + height;
                points.retain(|point| point.1 <= end.1);
            }
            line(svg, start, points, end, "", !is_port);
        }
    }

    /// A legend of the colours that occur.
    fn legend(&self) -> String {
        let has = |kind| self.0.nodes().iter().any(|node| node.is() == kind);
        let mut parts = Vec::new();
        if has(Kind::Input) {
            parts.push("blue: tensors that are read");
        }
        if has(Kind::Output) {
            parts.push("green: results that a tensor holds");
        }
        if !self.0.groups().is_empty() {
            parts.push("frames: one kernel each");
        }
        if has(Kind::Repeated) {
            parts.push("dashed: computed again");
        }
        if has(Kind::Unused) {
            parts.push("grey: not needed");
        }
        parts.join(" · ")
    }
}

impl Part {
    /// Where the line of a node inside leaves, from the centre.
    fn out_dx(&self, node: usize) -> f64 {
        self.outs.get(&node).map_or(0.0, |&v| self.dx + self.inner.x[v] - self.width / 2.0)
    }

    /// Where the line of a node outside arrives, from the centre.
    fn in_dx(&self, node: usize) -> f64 {
        self.ins.get(&node).map_or(0.0, |&v| self.dx + self.inner.x[v] - self.width / 2.0)
    }
}

/// Where each link arrives, from the centre of its target: a port of a group, or side by side on a
/// box.
fn arrivals(placed: &Placed, links: &[Link], parts: &[Part]) -> Vec<f64> {
    let mut all =
        spread_arrivals(
            placed,
            links,
            |v| if parts[v].group.is_none() { parts[v].width } else { 0.0 },
        );
    for (to_dx, link) in all.iter_mut().zip(links) {
        if parts[link.to].group.is_some() {
            *to_dx = link.to_dx;
        }
    }
    all
}

/// Arrivals side by side on targets of these widths, in the order in which the lines come.
fn spread_arrivals(placed: &Placed, links: &[Link], width: impl Fn(usize) -> f64) -> Vec<f64> {
    let mut by_target: HashMap<usize, Vec<(f64, usize)>> = HashMap::new();
    for (i, link) in links.iter().enumerate() {
        let from = placed.bends[i].last().map_or(0.0, |bend| bend.0);
        by_target.entry(link.to).or_default().push((from, i));
    }
    let mut all = vec![0.0; links.len()];
    for (target, mut lines) in by_target {
        lines.sort_by(|a, b| a.0.total_cmp(&b.0));
        let step = (width(target) / (lines.len() + 1) as f64).min(24.0);
        let middle = (lines.len() as f64 - 1.0) / 2.0;
        for (at, (_, i)) in lines.into_iter().enumerate() {
            all[i] = (at as f64 - middle) * step;
        }
    }
    all
}

/// A line from point to point: straight through layers, an S between them.
fn line(
    svg: &mut String,
    start: (f64, f64),
    bends: Vec<(f64, f64)>,
    end: (f64, f64),
    label: &str,
    has_head: bool,
) {
    let mut path = format!("M{:.1} {:.1}", start.0, start.1);
    let mut last = start;
    for (x, y) in bends.into_iter().chain([end]) {
        if (x - last.0).abs() < 0.05 {
            let _ = write!(path, "L{x:.1} {y:.1}");
        } else {
            let bow = ((y - last.1) / 2.0).max(LAYER_GAP / 2.0);
            let (y1, y2) = (last.1 + bow, y - bow);
            let _ = write!(path, "C{:.1} {y1:.1} {x:.1} {y2:.1} {x:.1} {y:.1}", last.0);
        }
        last = (x, y);
    }
    let head = if has_head { " marker-end=\"url(#head)\"" } else { "" };
    let _ = write!(svg, "<path d=\"{path}\" fill=\"none\" stroke=\"#888\"{head}");
    let _ = match label {
        "" => writeln!(svg, "/>"),
        label => writeln!(svg, "><title>{}</title></path>", escape(label)),
    };
}

/// The size of a box.
fn vertex(node: &Node) -> Vertex {
    let lines = node.lines().iter().map(|line| text_width(&clipped(line, MAX_CHARACTERS), FONT));
    let heading = text_width(&clipped(node.heading(), MAX_CHARACTERS), HEADING);
    Vertex {
        width: lines.fold(heading, f64::max) + 2.0 * PADDING,
        height: LINE * (1 + node.lines().len()) as f64 + 10.0,
        pin: Pin::Free,
    }
}

/// A box whose centre is at `cx`.
fn draw(svg: &mut String, node: &Node, cx: f64, top: f64) {
    let Vertex { width, height, .. } = vertex(node);
    let (fill, stroke, text, more) = match node.is() {
        Kind::Input => ("#e8eef8", "#4a6fa5", "black", " rx=\"9\""),
        Kind::Output => ("#e4f3e4", "#3c8c3c", "black", ""),
        Kind::Repeated => ("white", "#666", "#444", " stroke-dasharray=\"4 3\""),
        Kind::Unused => ("white", "#bbb", "#999", " stroke-dasharray=\"2 3\""),
        _ => ("white", "#666", "black", ""),
    };
    let title = match node.details() {
        "" => node.heading().to_string(),
        details => format!("{}\n{details}", node.heading()),
    };
    let _ = writeln!(
        svg,
        "<g class=\"node\" fill=\"{text}\" text-anchor=\"middle\"><title>{}</title>\
         <rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         fill=\"{fill}\" stroke=\"{stroke}\"{more}/>",
        escape(&title),
        cx - width / 2.0,
    );
    let mut y = top + LINE + 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{cx:.1}\" y=\"{y:.1}\" font-size=\"{HEADING}\" font-weight=\"bold\">{}</text>",
        escape(&clipped(node.heading(), MAX_CHARACTERS))
    );
    for text in node.lines() {
        y += LINE;
        let text = escape(&clipped(text, MAX_CHARACTERS));
        let _ = writeln!(svg, "<text x=\"{cx:.1}\" y=\"{y:.1}\">{text}</text>");
    }
    svg.push_str("</g>\n");
}

/// The width of a line of text.
fn text_width(text: &str, size: f64) -> f64 {
    // Characters of East Asian scripts are twice as wide.
    let columns: usize = text.chars().map(|c| if c < '\u{1100}' { 1 } else { 2 }).sum();
    columns as f64 * CHARACTER * size
}

/// The text, or its beginning with `…`.
fn clipped(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_string();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}
