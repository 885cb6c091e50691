//! The picture of a recorded graph.

use std::collections::BTreeSet;
use teeny_autograd::{Autograd, Grad, graph};
use teeny_core::picture::{Kind, Picture};
use teeny_core::{Reference, Result, Tensor};

/// The lines of the box with this heading.
fn lines<'p>(picture: &'p Picture, heading: &str) -> &'p [String] {
    let node = picture.nodes().iter().find(|node| node.heading() == heading);
    node.unwrap_or_else(|| panic!("{heading}: {:?}", picture.nodes())).lines()
}

#[test]
fn a_small_graph_shows_values_and_gradients() -> Result<()> {
    let device = Autograd::new(Reference::new());
    let a = Tensor::new(2.0f64, &device)?.requires_grad_named("a")?; // ()
    let b = Tensor::new([-3.0f64, 0.5], &device)?.requires_grad()?; // (2)
    let c = a.mul(&b)?.retain_grad()?; // (2)
    let loss = c.square()?.sum_all()?; // (): 36 + 1
    let grads = loss.backward()?;
    let picture = graph(&loss, &[("b", &b), ("c", &c), ("loss", &loss)], Some(&grads))?;

    assert_eq!(picture.title(), "3 recorded operations, 2 leaves");
    assert!(lines(&picture, "a").contains(&"grad 37".to_string()), "{:?}", picture.nodes());
    let shown = lines(&picture, "b");
    assert_eq!(shown[..3], ["(2,) f64, 16 B", "[-3, 0.5]", "grad [-24, 4]"]);
    assert!(shown[3].starts_with("requires_grad at tests/graph.rs:"), "{shown:?}");
    let shown = lines(&picture, "c = mul");
    assert_eq!(shown[1..3], ["[-6, 1]", "grad [-12, 2]"]);
    assert_eq!(lines(&picture, "loss = sum")[..2], ["() f64, 8 B", "37"]);
    let place = |heading: &str| picture.nodes().iter().position(|n| n.heading() == heading);
    let edges: BTreeSet<_> =
        picture.edges().iter().map(|edge| (Some(edge.from.0), Some(edge.to.0))).collect();
    let expected = [("a", "c = mul"), ("b", "c = mul"), ("c = mul", "mul"), ("mul", "loss = sum")];
    assert_eq!(edges, expected.map(|(from, to)| (place(from), place(to))).into());
    assert_eq!(picture.nodes().last().map(|node| node.is()), Some(Kind::Output));
    assert_eq!(picture.nodes().len(), 5);

    // Without names and gradients the graph has shapes alone, and the loss its value.
    let picture = graph(&loss, &[], None)?;
    assert_eq!(lines(&picture, "a").len(), 2);
    assert_eq!(lines(&picture, "sum")[1], "37");
    Ok(())
}

#[test]
fn views_are_labels_of_edges() -> Result<()> {
    let device = Autograd::new(Reference::new());
    let w =
        Tensor::new([[1.0f64, 2.0, 3.0], [4.0, 5.0, 6.0]], &device)?.requires_grad_named("w")?;
    let loss = w.matmul(&w.t()?)?.sum_all()?; // ()
    let picture = graph(&loss, &[], None)?;
    assert_eq!(picture.edges().len(), 2);
    assert_eq!(picture.edges()[0].label, "as (3, 2)");
    assert_eq!(lines(&picture, "w")[0], "(2, 3) f64, 48 B");
    Ok(())
}

#[test]
fn a_tensor_without_a_history_cannot_be_drawn() -> Result<()> {
    let device = Autograd::new(Reference::new());
    let x = Tensor::new(1.0f64, &device)?; // ()
    let error = graph(&x.exp()?, &[], None).unwrap_err().to_string();
    assert!(error.contains("the tensor has no history to draw"), "{error}");
    Ok(())
}

#[test]
fn a_long_chain_is_walked_without_recursion() -> Result<()> {
    let device = Autograd::new(Reference::new());
    let mut x = Tensor::new(1.0f64, &device)?.requires_grad()?; // ()
    for _ in 0..2000 {
        x = x.add(1.0)?;
    }
    let picture = graph(&x, &[], None)?;
    assert_eq!((picture.nodes().len(), picture.edges().len()), (2001, 2000));
    Ok(())
}
