//! Graphs as SVG: a box for each node, inside the picture and beside each other.

use crate::xml::read_xml;
use teeny_core::picture::{Node, Picture};
use teeny_core::{Lazy, Reference, Tensor};
use teeny_viz::{graph_svg, save_graph};

/// The number of an attribute of a tag.
fn attribute(tag: &str, name: &str) -> f64 {
    let (_, rest) = tag.split_once(&format!(" {name}=\"")).unwrap();
    rest[..rest.find('"').unwrap()].parse().unwrap()
}

/// The rectangles of the boxes of a picture, without the groups.
fn boxes(tags: &[String]) -> Vec<[f64; 4]> {
    let pairs = tags.iter().zip(tags.iter().skip(2));
    pairs
        .filter(|(tag, _)| tag.starts_with("g class=\"node\""))
        .map(|(_, rect)| ["x", "y", "width", "height"].map(|name| attribute(rect, name)))
        .collect()
}

fn overlap(a: &[f64; 4], b: &[f64; 4]) -> bool {
    a[0] < b[0] + b[2] && b[0] < a[0] + a[2] && a[1] < b[1] + b[3] && b[1] < a[1] + a[3]
}

#[test]
fn an_svg_has_a_box_for_each_node_and_none_overlap() {
    let lazy = Lazy::new(Reference::new());
    let bias = Tensor::new([0.5f32, -0.5], &lazy).unwrap(); // (2)
    let h = bias.exp().unwrap().add(&bias).unwrap().relu().unwrap(); // (2)
    let loss = h.mul(2.0).unwrap().sum_all().unwrap(); // ()
    let picture = lazy.graph(&[("a < \"b\" & c", &bias), ("loss", &loss)]).unwrap();
    let mut large = Picture::new("random");
    let mut state = 1u32;
    let mut random = |n: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % n
    };
    let groups = [0; 12].map(|_| large.group("a kernel"));
    let mut nodes = Vec::new();
    for i in 0..150 {
        let node = Node::new(format!("node {i}")).line("x".repeat(random(30)));
        let node = if i % 3 == 0 { node } else { node.in_group(groups[i / 13]) };
        nodes.push(large.node(node));
        for _ in 0..i.min(2) {
            large.edge(nodes[random(i)], nodes[i], "");
        }
    }
    for picture in [picture, large, Picture::new("empty")] {
        let svg = graph_svg(&picture);
        let tags = read_xml(&svg);
        let boxes = boxes(&tags);
        assert_eq!(boxes.len(), picture.nodes().len());
        let (width, height) = (attribute(&tags[0], "width"), attribute(&tags[0], "height"));
        for (i, a) in boxes.iter().enumerate() {
            assert!(a[0] >= 0.0 && a[0] + a[2] <= width && a[1] + a[3] <= height, "{a:?}");
            assert!(boxes[..i].iter().all(|b| !overlap(a, b)), "box {i} of {}", picture.title());
        }
    }
}

#[test]
fn edges_in_a_circle_are_drawn_too() {
    let mut picture = Picture::new("circle");
    let nodes = ["a", "b", "c"].map(|name| picture.node(Node::new(name)));
    for i in 0..3 {
        picture.edge(nodes[i], nodes[(i + 1) % 3], "");
        picture.edge(nodes[i], nodes[i], "");
    }
    let tags = read_xml(&graph_svg(&picture));
    assert_eq!(boxes(&tags).len(), 3);
    assert_eq!(picture.dot().matches(" -> ").count(), 6);
}

#[test]
fn a_picture_is_saved_in_the_format_of_its_name() {
    let folder = std::env::temp_dir().join(format!("teeny-graph-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut picture = Picture::new("one");
    picture.node(Node::new("x"));
    save_graph(&picture, folder.join("a.svg")).unwrap();
    save_graph(&picture, folder.join("a.dot")).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!((read("a.svg"), read("a.dot")), (graph_svg(&picture), picture.dot()));
    let error = save_graph(&picture, folder.join("a.png")).unwrap_err().to_string();
    assert!(error.contains("a path that ends in .svg, .dot or .gv"), "{error}");
    std::fs::remove_dir_all(folder).unwrap();
}
