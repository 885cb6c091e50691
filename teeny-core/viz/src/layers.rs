//! Placing boxes in layers: every edge goes down, with few crossings and straight lines.
//!
//! 1. The layer of a box is the length of the longest path to it. Boxes that nothing reads move down
//!    from a layer that is too wide. A box that reads nothing moves down to the layer above its
//!    first reader.
//! 2. An edge across several layers gets a *bend* in each of them. Edges from one source share them.
//! 3. Layers are sorted by the mean position of neighbours (barycentres), downwards and upwards in
//!    turn; the order with the fewest crossings is kept.
//! 4. Boxes move towards the mean of their neighbours, bends towards the mean of their line, without
//!    overlap: the least squares of each layer, by pooling adjacent violators.
//!
//! Source: Sugiyama, Tagawa & Toda 1981, "Methods for visual understanding of hierarchical system
//! structures".

use std::collections::HashMap;

/// Sweeps that sort the layers, and sweeps that move boxes.
const SORTS: usize = 24;
const MOVES: usize = 40;

/// The width of a layer from which boxes that nothing reads move down.
const MAX_WIDTH: f64 = 2600.0;

/// Distances in pixels: between boxes, between a line and its neighbour, between layers.
const BOX_GAP: f64 = 22.0;
const LINE_GAP: f64 = 14.0;
pub(super) const LAYER_GAP: f64 = 34.0;

/// A box to be placed.
#[derive(Clone, Copy)]
pub(super) struct Vertex {
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) pin: Pin,
}

/// Where a vertex has to be.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Pin {
    Free,
    /// In the first layer.
    Top,
    /// In the last layer.
    Bottom,
}

/// An edge, from the bottom of one vertex to the top of another.
#[derive(Clone, Copy)]
pub(super) struct Link {
    pub(super) from: usize,
    pub(super) to: usize,
    /// Where it leaves and arrives, from the centre of the vertex.
    pub(super) from_dx: f64,
    pub(super) to_dx: f64,
    /// Links of one source share their bends.
    pub(super) source: usize,
}

/// Where everything is. The top left corner is (0, 0).
pub(super) struct Placed {
    /// The centre of each vertex, and its top.
    pub(super) x: Vec<f64>,
    pub(super) y: Vec<f64>,
    /// The points of each link between its ends.
    pub(super) bends: Vec<Vec<(f64, f64)>>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A vertex or a bend in its layer, with its neighbours in the layers above and below: each with
/// the distance of the line from the centre there and here.
#[derive(Default)]
struct Cell {
    layer: usize,
    width: f64,
    /// The source whose line a bend belongs to.
    chain: Option<usize>,
    up: Vec<(usize, f64, f64)>,
    down: Vec<(usize, f64, f64)>,
}

/// Places `vertices`.
pub(super) fn place(vertices: &[Vertex], links: &[Link]) -> Placed {
    let layer = layers(vertices, links);
    let mut cells: Vec<Cell> = vertices
        .iter()
        .zip(&layer)
        .map(|(v, &layer)| Cell { layer, width: v.width, ..Cell::default() })
        .collect();
    let routes = routes(&mut cells, links);
    let rows = sort(&cells);
    let mut x = arrange(&cells, &rows);

    let edge = |i: usize, side: f64| x[i] + side * cells[i].width / 2.0;
    let left = (0..cells.len()).map(|i| edge(i, -1.0)).fold(f64::INFINITY, f64::min);
    let right = (0..cells.len()).map(|i| edge(i, 1.0)).fold(f64::NEG_INFINITY, f64::max);
    let width = if cells.is_empty() { 0.0 } else { right - left };
    x.iter_mut().for_each(|x| *x -= left);

    let mut tops = Vec::with_capacity(rows.len());
    let mut bottoms = Vec::with_capacity(rows.len());
    let mut y = 0.0;
    for row in &rows {
        let height = row.iter().filter_map(|&i| vertices.get(i)).map(|v| v.height);
        tops.push(y);
        y += height.fold(0.0, f64::max);
        bottoms.push(y);
        y += LAYER_GAP;
    }
    let height = bottoms.last().copied().unwrap_or(0.0);
    let bends = links.iter().zip(&routes).map(|(link, route)| {
        // Down to the end of the layer, then from layer to layer.
        let first = (x[link.from] + link.from_dx, bottoms[layer[link.from]]);
        let through = route.iter().flat_map(|&bend| {
            let at = cells[bend].layer;
            [(x[bend], tops[at]), (x[bend], bottoms[at])]
        });
        std::iter::once(first).chain(through).collect()
    });
    let bends = bends.collect();
    let y = vertices.iter().zip(&layer).map(|(v, &layer)| match v.pin {
        Pin::Bottom => height,
        Pin::Free | Pin::Top => tops[layer],
    });
    let y = y.collect();
    x.truncate(vertices.len());
    Placed { x, y, bends, width, height }
}

/// The layer of each vertex. A link that closes a circle is ignored.
fn layers(vertices: &[Vertex], links: &[Link]) -> Vec<usize> {
    let n = vertices.len();
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); n];
    let mut missing = vec![0usize; n];
    for link in links.iter().filter(|link| link.from != link.to) {
        readers[link.from].push(link.to);
        missing[link.to] += 1;
    }
    let mut layer = vec![0; n];
    let mut done = vec![false; n];
    let mut ready: Vec<usize> = (0..n).rev().filter(|&v| missing[v] == 0).collect();
    let is_source: Vec<bool> = missing.iter().map(|&count| count == 0).collect();
    let mut order = Vec::with_capacity(n);
    let mut next = 0;
    while order.len() < n {
        let v = ready.pop().unwrap_or_else(|| {
            // A circle: it begins with the vertex of the smallest number.
            while done[next] {
                next += 1;
            }
            next
        });
        if std::mem::replace(&mut done[v], true) {
            continue;
        }
        order.push(v);
        for &reader in readers[v].iter().filter(|&&reader| !done[reader]) {
            layer[reader] = layer[reader].max(layer[v] + 1);
            missing[reader] = missing[reader].saturating_sub(1);
            if missing[reader] == 0 {
                ready.push(reader);
            }
        }
    }
    narrow(vertices, links, &readers, &mut layer);
    for &v in order.iter().rev() {
        if is_source[v] && vertices[v].pin == Pin::Free {
            let first = readers[v].iter().map(|&reader| layer[reader]).min();
            layer[v] = first.map_or(layer[v], |first: usize| first.saturating_sub(1));
        }
    }
    let last = layer.iter().copied().max().unwrap_or(0);
    let pinned = (0..n).filter(|&v| vertices[v].pin == Pin::Bottom);
    pinned.for_each(|v| layer[v] = last);
    layer
}

/// Moves vertices that nothing reads down from layers that are too wide with those that they read.
fn narrow(vertices: &[Vertex], links: &[Link], readers: &[Vec<usize>], layer: &mut [usize]) {
    // For each vertex: its width plus the widths of the vertices that it alone reads, which are
    // placed beside it.
    let mut widths: Vec<f64> = vertices.iter().map(|v| v.width + BOX_GAP).collect();
    for link in links.iter().filter(|link| readers[link.from].len() == 1) {
        widths[link.to] += vertices[link.from].width + BOX_GAP;
    }
    let mut at = 0;
    while layer.contains(&at) {
        let (ends, others): (Vec<usize>, Vec<usize>) = (0..vertices.len())
            .filter(|&v| layer[v] == at)
            .partition(|&v| at > 0 && readers[v].is_empty() && vertices[v].pin == Pin::Free);
        let mut width: f64 = others.iter().map(|&v| vertices[v].width).sum();
        for (i, v) in ends.into_iter().enumerate() {
            width += widths[v];
            if width > MAX_WIDTH && i > 0 {
                layer[v] += 1;
            }
        }
        at += 1;
    }
}

/// The bends of each link, which become cells, and the neighbours of all cells.
fn routes(cells: &mut Vec<Cell>, links: &[Link]) -> Vec<Vec<usize>> {
    let mut bends: HashMap<(usize, usize), usize> = HashMap::new();
    let mut routes = Vec::with_capacity(links.len());
    for link in links {
        let (first, last) = (cells[link.from].layer, cells[link.to].layer);
        let mut route = Vec::new();
        for layer in first + 1..last {
            let bend = *bends.entry((link.source, layer)).or_insert_with(|| {
                cells.push(Cell { layer, chain: Some(link.source), ..Cell::default() });
                cells.len() - 1
            });
            route.push(bend);
        }
        if first < last {
            let mut above = (link.from, link.from_dx);
            let ends = route.iter().map(|&bend| (bend, 0.0)).chain([(link.to, link.to_dx)]);
            for below in ends {
                if !cells[above.0].down.iter().any(|known| known.0 == below.0) {
                    cells[above.0].down.push((below.0, below.1, above.1));
                    cells[below.0].up.push((above.0, above.1, below.1));
                }
                above = below;
            }
        }
        routes.push(route);
    }
    routes
}

/// The cells of each layer from left to right.
fn sort(cells: &[Cell]) -> Vec<Vec<usize>> {
    let count = cells.iter().map(|cell| cell.layer + 1).max().unwrap_or(0);
    let mut rows: Vec<Vec<usize>> = vec![Vec::new(); count];
    for (i, cell) in cells.iter().enumerate() {
        rows[cell.layer].push(i);
    }
    let mut place = vec![0.0; cells.len()];
    let number = |row: &[usize], place: &mut Vec<f64>| {
        row.iter().enumerate().for_each(|(at, &i)| place[i] = at as f64);
    };
    rows.iter().for_each(|row| number(row, &mut place));
    let mut best = (crossings(cells, &rows, &place), rows.clone());
    for sweep in 0..SORTS {
        let downwards = sweep % 2 == 0;
        let order: Vec<usize> =
            if downwards { (0..count).collect() } else { (0..count).rev().collect() };
        for layer in order {
            let mean = |i: usize| {
                let near = if downwards { &cells[i].up } else { &cells[i].down };
                if near.is_empty() {
                    return place[i];
                }
                // Where a line meets a wide box tells lines to it apart.
                let at = |&(j, dx, _): &(usize, f64, f64)| place[j] + dx / (cells[j].width + 1.0);
                near.iter().map(at).sum::<f64>() / near.len() as f64
            };
            let mut keyed: Vec<(f64, usize)> = rows[layer].iter().map(|&i| (mean(i), i)).collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            rows[layer] = keyed.into_iter().map(|(_, i)| i).collect();
            number(&rows[layer], &mut place);
        }
        let found = crossings(cells, &rows, &place);
        if found < best.0 {
            best = (found, rows.clone());
        }
    }
    best.1
}

/// How many pairs of lines between neighbouring layers cross.
fn crossings(cells: &[Cell], rows: &[Vec<usize>], place: &[f64]) -> usize {
    let mut count = 0;
    for row in rows {
        let mut ends: Vec<f64> = Vec::new();
        for &i in row {
            let mut below: Vec<f64> = cells[i].down.iter().map(|&(j, ..)| place[j]).collect();
            below.sort_by(f64::total_cmp);
            count += below
                .iter()
                .map(|at| ends.len() - ends.partition_point(|x| x <= at))
                .sum::<usize>();
            for at in below {
                ends.insert(ends.partition_point(|x| *x <= at), at);
            }
        }
    }
    count
}

/// The centres of all cells.
fn arrange(cells: &[Cell], rows: &[Vec<usize>]) -> Vec<f64> {
    let mut x = vec![0.0; cells.len()];
    for row in rows {
        place_row(cells, row, &vec![(0.0, 1.0); row.len()], &mut x);
    }
    for sweep in 0..MOVES {
        let downwards = sweep % 2 == 0;
        // The last sweeps balance both sides.
        let both = sweep + 8 >= MOVES;
        let straight = sweep >= 8;
        let mut lines: HashMap<usize, (f64, f64)> = HashMap::new();
        for (cell, x) in cells.iter().zip(&x) {
            if let Some(chain) = cell.chain {
                let line = lines.entry(chain).or_default();
                *line = (line.0 + x, line.1 + 1.0);
            }
        }
        for at in 0..rows.len() {
            let row = &rows[if downwards { at } else { rows.len() - 1 - at }];
            let wanted: Vec<(f64, f64)> = row
                .iter()
                .map(|&i| {
                    let Cell { up, down, chain, .. } = &cells[i];
                    let line = chain.and_then(|chain| lines.get(&chain));
                    if let Some(&(sum, count)) = line.filter(|_| straight) {
                        return (sum / count, 8.0);
                    }
                    let (near, other) = if downwards { (up, down) } else { (down, up) };
                    let other = other.iter().filter(|_| both || near.is_empty());
                    let all: Vec<f64> = near
                        .iter()
                        .chain(other)
                        .map(|&(j, there, here)| x[j] + there - here)
                        .collect();
                    match all.len() {
                        0 => (x[i], 0.1),
                        n => (
                            all.iter().sum::<f64>() / n as f64,
                            if chain.is_some() { 4.0 } else { 1.0 },
                        ),
                    }
                })
                .collect();
            place_row(cells, row, &wanted, &mut x);
        }
    }
    x
}

/// Centres of a row as near as possible to the wanted ones, each with a weight, without overlap.
fn place_row(cells: &[Cell], row: &[usize], wanted: &[(f64, f64)], x: &mut [f64]) {
    let mut offsets = Vec::with_capacity(row.len());
    let mut offset = 0.0;
    for (at, &i) in row.iter().enumerate() {
        if at > 0 {
            let before = &cells[row[at - 1]];
            let boxes = before.chain.is_none() && cells[i].chain.is_none();
            let gap = if boxes { BOX_GAP } else { LINE_GAP };
            offset += (before.width + cells[i].width) / 2.0 + gap;
        }
        offsets.push(offset);
    }
    // Blocks of cells that touch: the weighted mean, the weight, how many.
    let mut blocks: Vec<(f64, f64, usize)> = Vec::new();
    for (&(wanted, weight), offset) in wanted.iter().zip(&offsets) {
        let mut block = (wanted - offset, weight, 1);
        while let Some(&(mean, weight, count)) = blocks.last()
            && mean > block.0
        {
            let sum = weight + block.1;
            block = ((mean * weight + block.0 * block.1) / sum, sum, count + block.2);
            blocks.pop();
        }
        blocks.push(block);
    }
    let means = blocks.iter().flat_map(|&(mean, _, count)| std::iter::repeat_n(mean, count));
    for ((&i, mean), offset) in row.iter().zip(means).zip(&offsets) {
        x[i] = mean + offset;
    }
}
