//! Inspection of recorded operations: schedules, reports of lists that run, and pictures.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::{Arc, Mutex};
use teeny_core::picture::{Kind, Node};
use teeny_core::{DType, Device, Lazy, LazyOptions, Reference, Result, Tensor};

/// A list of two kernels and a matmul, with one operation that is not needed.
fn example(lazy: &Arc<Lazy>) -> Result<(Tensor, Tensor)> {
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], lazy)?; // (2, 2)
    let bias = Tensor::new([0.5f32, -0.5], lazy)?; // (2)
    let _ = x.log()?;
    let h = x.exp()?.matmul(&x.t()?)?.add(&bias)?.relu()?; // (2, 2)
    let loss = h.mul(2.0)?.sum_all()?; // ()
    Ok((bias, loss))
}

/// The nodes of a text in DOT with the labels and their clusters, and the edges.
#[derive(Debug, Default, PartialEq)]
struct Dot {
    nodes: BTreeMap<usize, (String, Option<usize>)>,
    edges: BTreeSet<(usize, usize)>,
}

/// Reads what `Picture::dot` writes: one statement a line.
fn read_dot(text: &str) -> Dot {
    let mut dot = Dot::default();
    let mut cluster = None;
    let mut lines = text.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("digraph ") && line.ends_with('{')));
    let number = |text: &str| text.trim().strip_prefix('n').and_then(|n| n.parse::<usize>().ok());
    for line in lines.map(str::trim) {
        let (head, attributes) = line.split_once(" [").unwrap_or((line, ""));
        if let Some(rest) = line.strip_prefix("subgraph cluster_") {
            assert_eq!(cluster, None, "clusters are not nested");
            cluster = rest.trim_end_matches(" {").parse().ok();
        } else if line == "}" {
            cluster = None;
        } else if let Some((from, to)) = head.trim_end_matches(';').split_once(" -> ") {
            let (from, to) = (number(from).unwrap(), number(to).unwrap());
            assert!(dot.edges.insert((from, to)), "an edge occurs twice: {line}");
        } else if let Some(id) = number(head) {
            let label = attributes.strip_prefix("label=\"").unwrap();
            let mut end = label.char_indices().scan(false, |escaped, (at, c)| {
                let closes = c == '"' && !*escaped;
                *escaped = c == '\\' && !*escaped;
                Some((at, closes))
            });
            let end = end.find(|(_, closes)| *closes).unwrap().0;
            let known = dot.nodes.insert(id, (label[..end].into(), cluster));
            assert_eq!(known, None, "a node occurs twice: {line}");
        } else {
            let setting = line.split('=').next().is_some_and(|name| !name.contains("->"));
            assert!(setting && line.ends_with(';'), "{line}");
        }
    }
    dot
}

#[test]
fn a_kernel_of_two_operations_loads_and_stores_once() {
    let lazy = Lazy::new(Reference::new());
    let x = Tensor::ones((2, 3), DType::F32, &lazy).unwrap();
    x.to_vec::<f32>().unwrap();
    let y = x.mul(3.0).unwrap().exp().unwrap();
    let before = lazy.counters();
    let text = lazy.schedule();
    assert_eq!(lazy.counters(), before, "a schedule runs nothing");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[0], "lazy: 2 requests, 0 dead, 1 results held → 1 items (not run yet)");
    assert!(
        lines[1].trim().starts_with("0  exp(3 * x0)")
            && lines[1].contains("(2, 3) f32 → (2, 3) f32  48 B  12 FLOP  2 nodes: tests/show.rs:"),
        "{text}"
    );
    assert_eq!(lines[2], "kernel of item 0:");
    assert_eq!((text.matches("= input").count(), text.matches("outputs %3").count()), (1, 1));
    drop(y);
}

#[test]
fn a_report_has_a_line_for_the_list_and_each_item() {
    let text = |level| {
        let lines = Arc::new(Mutex::new(String::new()));
        let lazy = Lazy::new(Reference::new());
        let sink = lines.clone();
        lazy.log_to(level, move |text| sink.lock().unwrap().push_str(text));
        let run = || example(&lazy).unwrap().1.item::<f32>().unwrap();
        assert_eq!(run(), run());
        let text = lines.lock().unwrap().clone();
        (text, lazy.counters().reports)
    };
    assert_eq!(text(0), (String::new(), 0), "level 0 makes no text");

    let (one, reports) = text(1);
    let lines: Vec<&str> = one.lines().collect();
    assert_eq!((lines.len(), reports), (2, 2), "{one}");
    for (line, plan) in lines.iter().zip(["(plan 1, new)", "(plan 1, hit)"]) {
        assert!(line.starts_with("lazy: 7 requests, 1 dead, 1 results held → 3 items"), "{line}");
        assert!(line.contains(plan) && line.contains(" ms, read by item at "), "{line}");
        assert!(line.contains("tests/show.rs:"), "{line}");
    }

    let (two, _) = text(2);
    assert_eq!(two.lines().count(), 2 * (1 + 3), "{two}");
    let product = two.lines().find(|line| line.contains(" matmul, then ")).unwrap();
    for part in ["(2, 2) f32, (2, 2) f32, (2, 2) f32 → (2, 2) f32", "56 B", "28 FLOP", " us "] {
        assert!(product.contains(part), "{part}: {product}");
    }

    let (three, _) = text(3);
    assert_eq!(three.matches("kernel of item 1:").count(), 1, "only of the new plan: {three}");
    assert!(three.contains(": f32 = input 0"), "{three}");
}

#[test]
fn reasons_are_named() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let options = LazyOptions::new().with_max_nodes(3);
    let lazy = Lazy::with_options(Reference::new(), options);
    let sink = lines.clone();
    lazy.log_to(1, move |text| sink.lock().unwrap().push(text.to_string()));
    let x = Tensor::new([1.0f32], &lazy).unwrap();
    let y = x.exp().unwrap();
    lazy.flush();
    let z = x.log().unwrap();
    lazy.synchronize().unwrap();
    let all = [x.sin().unwrap(), x.cos().unwrap(), x.tan().unwrap()];
    drop((y, z, all));
    let lines = lines.lock().unwrap();
    for (line, reason) in
        lines.iter().zip(["boundary before log at", "synchronize\n", "limit reached by tan at"])
    {
        assert!(line.contains(reason), "{reason}: {line}");
    }
    assert_eq!(lines.len(), 3);
}

#[test]
fn teeny_debug_prints_to_stderr() {
    if std::env::var_os("SHOW_INNER").is_some() {
        let lazy = Lazy::new(Reference::new());
        let (_, loss) = example(&lazy).unwrap();
        loss.item::<f32>().unwrap();
        return;
    }
    let inner = |level: &str| {
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "teeny_debug_prints_to_stderr", "--nocapture"])
            .env("SHOW_INNER", "1")
            .env("TEENY_DEBUG", level)
            .output()
            .unwrap();
        assert!(output.status.success());
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().filter(|line| line.contains("lazy: 7 requests")).count()
    };
    assert_eq!((inner("0"), inner("1")), (0, 1));
}

#[test]
fn a_graph_has_every_operation_and_its_edges() {
    let lazy = Lazy::new(Reference::new());
    let (bias, loss) = example(&lazy).unwrap();
    let before = lazy.counters();
    let picture = lazy.graph(&[("bias", &bias), ("loss", &loss)]).unwrap();
    assert_eq!(lazy.counters(), before, "a picture runs nothing");
    let heading = |node: &Node| node.heading().split(" over").next().unwrap().to_string();
    let headings: Vec<String> = picture.nodes().iter().map(heading).collect();
    assert_eq!(
        headings,
        [
            "exp(x0)",
            "input",
            "matmul",
            "x0 + x1",
            "bias",
            "maximum(x0, 0)",
            "x0 * 2",
            "loss = sum",
            "log(x0)"
        ]
    );
    let node = |name: &str| headings.iter().position(|heading| heading == name).unwrap();
    let lines = |name: &str| picture.nodes()[node(name)].lines();
    assert_eq!(lines("bias"), ["(2,) f32, 8 B", "[0.5, -0.5]"]);
    assert_eq!(lines("matmul")[0], "(2, 2) f32, 16 B");
    assert!(lines("matmul")[1].starts_with("matmul at tests/show.rs:"), "{:?}", lines("matmul"));
    assert_eq!(picture.nodes()[node("loss = sum")].is(), Kind::Output);
    assert_eq!(picture.nodes()[node("log(x0)")].is(), Kind::Unused);
    let edges: BTreeSet<_> = picture.edges().iter().map(|edge| (edge.from.0, edge.to.0)).collect();
    let expected = [
        ("input", "exp(x0)"),
        ("exp(x0)", "matmul"),
        ("input", "matmul"),
        ("matmul", "x0 + x1"),
        ("bias", "x0 + x1"),
        ("x0 + x1", "maximum(x0, 0)"),
        ("maximum(x0, 0)", "x0 * 2"),
        ("x0 * 2", "loss = sum"),
        ("input", "log(x0)"),
    ];
    assert_eq!(edges, expected.map(|(from, to)| (node(from), node(to))).into());

    let dot = read_dot(&picture.dot());
    assert_eq!(dot.edges, edges);
    assert_eq!(dot.nodes.keys().copied().collect::<Vec<_>>(), (0..9).collect::<Vec<_>>());
    for (i, node) in picture.nodes().iter().enumerate() {
        let (label, cluster) = &dot.nodes[&i];
        let text = [&[node.heading().to_string()], node.lines()].concat().join("\\n");
        assert_eq!((label, *cluster), (&text, node.group().map(|group| group.0)));
    }
}

#[test]
fn a_drawing_is_of_the_largest_list_that_runs() {
    let lazy = Lazy::new(Reference::new());
    let (bias, loss) = example(&lazy).unwrap();
    lazy.draw_lists(&[("bias", &bias)]).unwrap();
    lazy.draw_lists(&[("loss", &loss)]).unwrap();
    let expected = lazy.graph(&[("bias", &bias), ("loss", &loss)]).unwrap();
    loss.item::<f32>().unwrap();
    bias.sum_all().unwrap().item::<f32>().unwrap();
    assert_eq!(lazy.take_drawing().unwrap().unwrap().dot(), expected.dot());
    bias.exp().unwrap().item::<f32>().unwrap_err();
    assert!(lazy.take_drawing().unwrap().is_none(), "taking it ends it");
    let other = Lazy::new(Reference::new());
    let error = other.graph(&[("bias", &bias)]).unwrap_err().to_string();
    assert!(error.contains("a tensor of lazy(reference) is not on this device"), "{error}");
}
