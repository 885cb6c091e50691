//! Row A16: joining, splitting, sorting and indexing against PyTorch's answers
//! (`golden/index.json`), and einsum (row A15).

use serde_json::Value;
use std::sync::Arc;
use teeny_core::{DType, Extremum, Reference, Result, Side, SortOrder, Tensor};

fn golden() -> Value {
    serde_json::from_str(include_str!("golden/index.json")).expect("golden/index.json is JSON")
}

fn number(v: &Value) -> f64 {
    match v {
        Value::String(s) => s.parse().expect("nan or inf"),
        Value::Bool(b) => *b as u8 as f64,
        other => other.as_f64().expect("a number"),
    }
}

fn numbers(v: &Value) -> Vec<f64> {
    v.as_array().expect("a list").iter().map(number).collect()
}

fn dtype(name: &str) -> DType {
    DType::ALL.into_iter().find(|t| t.name() == name).expect("a type")
}

fn tensor(v: &Value, device: &Arc<Reference>) -> Result<Tensor> {
    let shape: Vec<usize> = numbers(&v["shape"]).iter().map(|&n| n as usize).collect();
    Tensor::from_vec(numbers(&v["data"]), shape, device)?
        .cast(dtype(v["dtype"].as_str().expect("a name")))
}

fn flat(x: &Tensor) -> Vec<f64> {
    x.to_scalars().expect("readable").into_iter().map(|s| s.to_f64()).collect()
}

/// Compares values and shape; positions are I32 here and i64 there, so types of integers are not
/// compared.
#[track_caller]
fn assert_is(case: &Value, got: &Tensor, want: &Value) {
    let shape: Vec<usize> = numbers(&want["shape"]).iter().map(|&n| n as usize).collect();
    assert_eq!(**got.shape(), shape, "shape of {case}");
    for (g, w) in flat(got).into_iter().zip(numbers(&want["data"])) {
        assert!(g == w || (g - w).abs() < 1e-12 || g.is_nan() && w.is_nan(), "{case}\n got {got}");
    }
}

#[track_caller]
fn assert_positions(case: &Value, got: &Tensor, want: &Value) {
    assert_eq!(got.dtype(), DType::I32);
    assert_eq!(flat(got), numbers(want), "positions of {case}");
}

/// The result of a case that has one tensor as its result.
fn one(case: &Value, x: &Tensor, device: &Arc<Reference>) -> Result<Option<Tensor>> {
    let axis = || case["axis"].as_i64().expect("an axis") as isize;
    let count = |name: &str| case[name].as_u64().expect("a size") as usize;
    let list = |name: &str| numbers(&case[name]).iter().map(|&n| n as isize).collect::<Vec<_>>();
    let index = || tensor(&case["index"], device);
    let mask = || -> Result<Tensor> {
        let flags: Vec<bool> = case["mask"]
            .as_array()
            .expect("flags")
            .iter()
            .map(|b| b.as_bool().expect("a flag"))
            .collect();
        Tensor::from_vec(flags, x.shape(), device)
    };
    Ok(Some(match case["op"].as_str().expect("an operation") {
        "gather" => x.gather(axis(), &index()?)?,
        "index_select" => x.index_select(axis(), &index()?)?,
        "scatter" => x.scatter(axis(), &index()?, &tensor(&case["src"], device)?)?,
        "scatter_add" => x.scatter_add(axis(), &index()?, &tensor(&case["src"], device)?)?,
        "scatter_amax" => x.scatter_max(axis(), &index()?, &tensor(&case["src"], device)?)?,
        "scatter_amin" => x.scatter_min(axis(), &index()?, &tensor(&case["src"], device)?)?,
        "one_hot" => x.one_hot(count("classes"), DType::I64)?,
        "tril" => x.tril(case["k"].as_i64().expect("k") as i32)?,
        "triu" => x.triu(case["k"].as_i64().expect("k") as i32)?,
        "diagonal" => x.diagonal(case["k"].as_i64().expect("k") as isize, 0, 1)?,
        "roll" if case["axes"].is_null() => {
            x.reshape(-1)?.roll(0, list("shifts")[0])?.reshape(x.shape())?
        }
        "roll" => list("shifts")
            .into_iter()
            .zip(list("axes"))
            .try_fold(x.clone(), |x, (shift, axis)| x.roll(axis, shift))?,
        "flip" => x.flip(list("axes"))?,
        "repeat" => x.repeat(list("repeats"))?,
        "repeat_interleave" => x.repeat_interleave(axis(), count("repeats"))?,
        // torch lists the pairs from the last axis on.
        "pad" => {
            let mut pairs: Vec<(isize, isize)> =
                list("pads").chunks(2).map(|p| (p[0], p[1])).collect();
            pairs.reverse();
            x.pad(&pairs, number(&case["value"]))?
        }
        "cat" => Tensor::cat(&[x, &x.add(10.0)?], axis())?,
        "stack" => Tensor::stack(&[x, &x.add(10.0)?], axis())?,
        "unfold" => x.unfold(axis(), count("size"), count("step"))?,
        "nonzero" => x.nonzero()?,
        "masked_fill" => x.masked_fill(&mask()?, number(&case["value"]))?,
        "masked_select" => x.masked_select(&mask()?)?,
        "searchsorted" => Tensor::from_vec(numbers(&case["sorted"]), 4, device)?.searchsorted(
            x,
            match case["right"].as_bool().expect("a flag") {
                true => Side::Right,
                false => Side::Left,
            },
        )?,
        "einsum" => {
            let equation = case["equation"].as_str().expect("an equation");
            match case.get("rhs") {
                Some(rhs) if !rhs.is_null() => {
                    Tensor::einsum(equation, &[x, &tensor(rhs, device)?])?
                }
                _ => Tensor::einsum(equation, &[x])?,
            }
        }
        _ => return Ok(None),
    }))
}

#[test]
fn structural_operations_equal_torch() -> Result<()> {
    let device = Reference::new();
    let golden = golden();
    let mut checked = 0;
    for case in golden["cases"].as_array().expect("cases") {
        let x = tensor(&case["x"], &device)?;
        let axis = || case["axis"].as_i64().expect("an axis") as isize;
        let result = &case["result"];
        checked += 1;
        if let Some(got) = one(case, &x, &device)? {
            assert_is(case, &got, result);
            continue;
        }
        match case["op"].as_str().expect("an operation") {
            "sort" => {
                let order = match case["descending"].as_bool().expect("a flag") {
                    true => SortOrder::Descending,
                    false => SortOrder::Ascending,
                };
                let (values, positions) = x.sort(axis(), order)?;
                assert_is(case, &values, result);
                assert_positions(case, &positions, &case["indices"]);
            }
            "topk" => {
                let k = case["k"].as_u64().expect("k") as usize;
                let extremum = match case["largest"].as_bool().expect("a flag") {
                    true => Extremum::Largest,
                    false => Extremum::Smallest,
                };
                let (values, positions) = x.topk(k, axis(), extremum)?;
                assert_is(case, &values, result);
                assert_positions(case, &positions, &case["indices"]);
            }
            "unique" => {
                let (values, inverse, counts) = x.unique()?;
                assert_is(case, &values, result);
                assert_positions(case, &inverse, &case["inverse"]);
                assert_positions(case, &counts, &case["counts"]);
            }
            "chunk" | "split" | "meshgrid" => {
                let got = match case["op"].as_str() {
                    Some("chunk") => {
                        x.chunk(axis(), case["chunks"].as_u64().expect("chunks") as usize)?
                    }
                    Some("split") => match &case["size"] {
                        Value::Array(_) => x.split_sizes(
                            axis(),
                            &numbers(&case["size"]).iter().map(|&n| n as usize).collect::<Vec<_>>(),
                        )?,
                        size => x.split(axis(), size.as_u64().expect("a size") as usize)?,
                    },
                    _ if case["indexing"] == "ij" => {
                        Tensor::meshgrid(&[&x, &tensor(&case["y"], &device)?])?
                    }
                    // indexing="xy" is the transpose of "ij".
                    _ => Tensor::meshgrid(&[&x, &tensor(&case["y"], &device)?])?
                        .iter()
                        .map(|t| t.t())
                        .collect::<Result<_>>()?,
                };
                let want = result.as_array().expect("parts");
                assert_eq!(got.len(), want.len(), "{case}");
                for (g, w) in got.iter().zip(want) {
                    assert_is(case, g, w);
                }
            }
            other => panic!("golden case {other} has no runner"),
        }
    }
    assert!(checked >= 86, "only {checked} cases were checked");
    Ok(())
}

#[test]
fn mistakes_are_named() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::new([[1.0f32, 2.0], [3.0, 4.0]], &device)?;
    let text = |r: Result<Tensor>| r.unwrap_err().to_string();
    let error = text(Tensor::cat(&[&x, &Tensor::zeros((2, 3), DType::F32, &device)?], 0));
    assert!(
        error.contains(
            "tensor 1 is (2, 3), tensor 0 is (2, 2): all sizes except on axis 0 must agree"
        ),
        "{error}"
    );
    let error = text(x.index_select(0, &Tensor::new([0i64, 2], &device)?));
    assert!(error.starts_with("index_select at ") && error.contains('2'), "{error}");
    let error = text(x.gather(0, &x));
    assert!(error.contains("positions must be integers, not f32"), "{error}");
    let error = text(Tensor::einsum("ij,jk->iz", &[&x, &x]));
    assert!(error.contains("output letter 'z' occurs in no operand"), "{error}");
    let error = text(Tensor::einsum("ij,jk", &[&x]));
    assert!(error.contains("describes 2 operands, 1 are given"), "{error}");
    let error = text(Tensor::new([3i32], &device)?.one_hot(3, DType::F32));
    assert!(error.starts_with("one_hot at "), "{error}");
    Ok(())
}

#[test]
fn einsum_takes_diagonals_batches_and_dots() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::arange(0.0f64, 24.0, 1.0, &device)?.reshape((2, 3, 4))?;
    let y = Tensor::arange(0.0f64, 24.0, 1.0, &device)?.reshape((2, 4, 3))?;
    let same =
        |a: Tensor, b: Tensor| assert_eq!((flat(&a), **a.shape() == **b.shape()), (flat(&b), true));
    same(Tensor::einsum("bij,bjk->bik", &[&x, &y])?, x.matmul(&y)?);
    same(Tensor::einsum("...ij,...jk->...ik", &[&x, &y])?, x.matmul(&y)?);
    same(Tensor::einsum("bij,bjk", &[&x, &y])?, x.matmul(&y)?.sum(0)?);
    same(Tensor::einsum("bij->jb", &[&x])?, x.sum(1)?.t()?);
    let square = x.slice(1, 0..2)?.slice(2, 0..2)?;
    same(Tensor::einsum("bii->b", &[&square])?, square.diagonal(0, 1, 2)?.sum(-1)?);
    let (u, v) = (x.at(0, 0)?.at(0, 1)?, x.at(0, 1)?.at(0, 2)?);
    same(Tensor::einsum("i,j->ij", &[&u, &v])?, u.outer(&v)?);
    same(Tensor::einsum("i,i->", &[&u, &v])?, u.dot(&v)?);
    same(Tensor::einsum("bij,bjk,bkl->bil", &[&x, &y, &x])?, x.matmul(&y)?.matmul(&x)?);
    Ok(())
}

#[test]
fn unique_and_nonzero_of_nothing() -> Result<()> {
    let device = Reference::new();
    let empty = Tensor::zeros((0, 3), DType::F32, &device)?;
    assert_eq!(*empty.unique()?.0.shape(), [0]);
    assert_eq!(*empty.nonzero()?.shape(), [0, 2]);
    assert_eq!(*Tensor::cat(&[&empty, &empty], 0)?.shape(), [0, 3]);
    assert_eq!(*Tensor::new(1.0f32, &device)?.nonzero()?.shape(), [1, 0]);
    Ok(())
}
