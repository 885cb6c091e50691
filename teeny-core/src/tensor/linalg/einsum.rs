//! Einstein summation: any product and sum over named axes, as a chain of matrix products, from
//! left to right.

use crate::context::enter;
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::{Tensor, references};

/// An operand with a letter for each of its axes.
struct Labelled {
    x: Tensor,
    axes: Vec<char>,
}

impl Tensor {
    /// Products summed over the axes whose letter is missing from the output:
    /// `einsum("bij,bjk->bik", &[&a, &b])`.
    ///
    /// A letter that occurs twice in one operand takes its diagonal. `...` stands for leading axes
    /// that broadcast. Without `->` the output has the letters that occur once, in alphabetical
    /// order. Operands are contracted from left to right, each pair as one batched matrix product.
    ///
    /// # Errors
    /// If the subscripts cannot be read, do not fit the operands' axes, or give one letter two
    /// sizes.
    ///
    /// Equivalent: `torch.einsum`.
    #[track_caller]
    pub fn einsum<T: AsRef<Tensor>>(subscripts: &str, operands: &[T]) -> Result<Tensor> {
        einsum(subscripts, &references(operands))
    }
}

#[track_caller]
fn einsum(subscripts: &str, operands: &[&Tensor]) -> Result<Tensor> {
    let _op = enter("einsum").on_all("operands", operands);
    let text: String = subscripts.chars().filter(|c| !c.is_whitespace()).collect();
    let (inputs, output) = match text.split_once("->") {
        Some((inputs, output)) => (inputs.to_string(), Some(output.to_string())),
        None => (text.clone(), None),
    };
    let terms: Vec<&str> = inputs.split(',').collect();
    if terms.len() != operands.len() || operands.is_empty() {
        return Err(Error::value(format!(
            "{subscripts:?} describes {} operands, {} are given",
            terms.len(),
            operands.len()
        ))
        .help("write one term per operand, separated by commas: \"ij,jk->ik\" takes two"));
    }
    let mut dots = 0;
    let mut parts = terms
        .iter()
        .zip(operands)
        .map(|(term, x)| label(term, x, &mut dots))
        .collect::<Result<Vec<_>>>()?;
    check_sizes(&parts)?;
    let output = output_axes(output.as_deref(), &inputs, dots, &parts)?;

    for part in &mut parts {
        take_diagonals(part)?;
    }
    let mut parts = parts.into_iter();
    let mut left = parts.next().ok_or_else(|| Error::internal("no operand"))?;
    let mut rest: Vec<Labelled> = parts.collect();
    while !rest.is_empty() {
        let right = rest.remove(0);
        let needed = |c: char| output.contains(&c) || rest.iter().any(|p| p.axes.contains(&c));
        left = contract(left, right, &needed)?;
    }
    left = sum_out(left, &|c| output.contains(&c))?;
    left.x.permute(places(&output, &left.axes))
}

/// The axes after `...` get private letters, counted from the right so that they align.
fn dot_letter(from_right: usize) -> char {
    char::from_u32(0xE000 + from_right as u32).expect("a private-use character")
}

fn label(term: &str, x: &Tensor, dots: &mut usize) -> Result<Labelled> {
    let bad = |why: String, help: String| {
        Err(Error::value(format!("subscripts {term:?}: {why}")).help(help))
    };
    let (before, after, hidden) = match term.split_once("...") {
        Some((before, after)) => (before, after, true),
        None => (term, "", false),
    };
    let letters = before.chars().count() + after.chars().count();
    if let Some(c) = before.chars().chain(after.chars()).find(|c| !c.is_ascii_alphabetic()) {
        return bad(
            format!("{c:?} is not a letter"),
            "axes are named by letters from a to z and A to Z, leading ones together by ..."
                .to_string(),
        );
    }
    if letters > x.ndim() || (!hidden && letters < x.ndim()) {
        let all: String = ('i'..).take(x.ndim()).collect();
        return bad(
            format!("{letters} letters for the {} axes of {}", x.ndim(), x.shape()),
            format!("name each axis, e.g. {all:?}, or leading ones by ..."),
        );
    }
    let spare = x.ndim() - letters;
    *dots = (*dots).max(spare);
    let axes =
        before.chars().chain((0..spare).rev().map(dot_letter)).chain(after.chars()).collect();
    Ok(Labelled { x: x.clone(), axes })
}

fn check_sizes(parts: &[Labelled]) -> Result<()> {
    let all: Vec<(char, usize)> = parts
        .iter()
        .flat_map(|p| p.axes.iter().copied().zip(p.x.shape().iter().copied()))
        .collect();
    for (i, &(c, n)) in all.iter().enumerate() {
        if let Some(&(_, m)) = all[..i].iter().find(|&&(d, m)| d == c && m != n && m != 1 && n != 1)
        {
            return Err(Error::shape(format!(
                "letter {c:?} has size {m} in one place and {n} in another"
            ))
            .help("use another letter for one of the axes, or transpose one of the operands"));
        }
    }
    Ok(())
}

fn output_axes(
    output: Option<&str>,
    inputs: &str,
    dots: usize,
    parts: &[Labelled],
) -> Result<Vec<char>> {
    let hidden = (0..dots).rev().map(dot_letter);
    let axes: Vec<char> = match output {
        Some(text) => {
            let (before, after) = text.split_once("...").unwrap_or((text, ""));
            let hidden: Vec<char> =
                if text.contains("...") { hidden.collect() } else { Vec::new() };
            before.chars().chain(hidden).chain(after.chars()).collect()
        }
        None => {
            let mut once: Vec<char> = inputs
                .chars()
                .filter(|c| c.is_ascii_alphabetic() && inputs.matches(*c).count() == 1)
                .collect();
            once.sort_unstable();
            hidden.chain(once).collect()
        }
    };
    for (i, c) in axes.iter().enumerate() {
        if axes[..i].contains(c) {
            return Err(Error::value(format!("output letter {c:?} is named twice"))
                .help("name each letter of the output once; Tensor::diag_embed makes diagonals"));
        }
        if !parts.iter().any(|p| p.axes.contains(c)) {
            return Err(Error::value(format!("output letter {c:?} occurs in no operand")).help(
                "output letters are letters of the operands; x.unsqueeze(axis)? adds \
                 axes afterwards",
            ));
        }
    }
    Ok(axes)
}

/// An axis named twice in one operand becomes its diagonal.
fn take_diagonals(part: &mut Labelled) -> Result<()> {
    while let Some((i, j)) = (0..part.axes.len()).find_map(|i| {
        (i + 1..part.axes.len()).find(|&j| part.axes[i] == part.axes[j]).map(|j| (i, j))
    }) {
        part.x = part.x.diagonal(0, i as isize, j as isize)?;
        let c = part.axes.remove(j);
        part.axes.remove(i);
        part.axes.push(c);
    }
    Ok(())
}

/// The `letters` that `keep` accepts, in order.
fn those(letters: &[char], keep: &dyn Fn(char) -> bool) -> Vec<char> {
    letters.iter().copied().filter(|&c| keep(c)).collect()
}

/// Where `letters` stand in `axes`, which has them all.
fn places(letters: &[char], axes: &[char]) -> Vec<usize> {
    letters
        .iter()
        .map(|c| axes.iter().position(|a| a == c).expect("a letter of this operand"))
        .collect()
}

/// The sum over all axes that are not `needed`.
fn sum_out(part: Labelled, needed: &dyn Fn(char) -> bool) -> Result<Labelled> {
    let gone = those(&part.axes, &|c| !needed(c));
    if gone.is_empty() {
        return Ok(part);
    }
    let (axes, gone) = (those(&part.axes, needed), places(&gone, &part.axes));
    let dtype = part.x.dtype();
    Ok(Labelled { x: part.x.sum(gone)?.cast(dtype)?, axes })
}

/// One batched matrix product: shared and needed axes are the batch, shared and no longer needed
/// ones are summed.
fn contract(left: Labelled, right: Labelled, needed: &dyn Fn(char) -> bool) -> Result<Labelled> {
    let left = sum_out(left, &|c| needed(c) || right.axes.contains(&c))?;
    let right = sum_out(right, &|c| needed(c) || left.axes.contains(&c))?;
    let shared = those(&left.axes, &|c| right.axes.contains(&c));
    let (batch, inner) = (those(&shared, needed), those(&shared, &|c| !needed(c)));
    let (rows, columns) = (
        those(&left.axes, &|c| !shared.contains(&c)),
        those(&right.axes, &|c| !shared.contains(&c)),
    );
    let size = |c: char| {
        let of = |p: &Labelled| p.axes.iter().position(|&a| a == c).map_or(1, |i| p.x.shape()[i]);
        of(&left).max(of(&right)) * usize::from(of(&left) != 0 && of(&right) != 0)
    };
    let shape_of =
        |letters: &[char]| Shape::new(&letters.iter().map(|&c| size(c)).collect::<Vec<_>>());
    let product = |letters: &[char]| letters.iter().map(|&c| size(c)).product::<usize>();
    let arrange = |part: &Labelled, groups: [&[char]; 3]| -> Result<Tensor> {
        let order: Vec<char> = groups.concat();
        part.x
            .permute(places(&order, &part.axes))?
            .expand(shape_of(&order)?)?
            .reshape(groups.map(product).as_slice())
    };
    let a = arrange(&left, [&batch, &rows, &inner])?;
    let b = arrange(&right, [&batch, &inner, &columns])?;
    let axes: Vec<char> = [batch, rows, columns].concat();
    Ok(Labelled { x: a.matmul(&b)?.reshape(shape_of(&axes)?)?, axes })
}
