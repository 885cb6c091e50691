//! Row A16: arranging, padding, counting and pairing against PyTorch's answers
//! (`golden/structure.json`).

use serde_json::Value;
use teeny_core::{DType, ErrorKind, PadMode, Reference, Result, Side, SortOrder, Tensor};

fn numbers(v: &Value) -> Vec<f64> {
    let number = |v: &Value| match v {
        Value::String(s) => s.parse().expect("nan or inf"),
        Value::Bool(b) => *b as u8 as f64,
        other => other.as_f64().expect("a number"),
    };
    v.as_array().expect("a list").iter().map(number).collect()
}

fn sizes(v: &Value) -> Vec<usize> {
    numbers(&v["shape"]).iter().map(|&n| n as usize).collect()
}

#[track_caller]
fn hold(golden: &Value, expression: &str, got: &[&Tensor]) -> Result<()> {
    let case =
        golden["cases"].as_array().expect("cases").iter().find(|c| c["expression"] == expression);
    let results =
        case.unwrap_or_else(|| panic!("{expression} is not in the golden file"))["results"]
            .as_array()
            .expect("results");
    assert_eq!(got.len(), results.len(), "{expression}");
    for (got, wanted) in got.iter().zip(results) {
        assert_eq!(got.shape().to_vec(), sizes(wanted), "shape of {expression}");
        let values: Vec<f64> = got.to_scalars()?.into_iter().map(|s| s.to_f64()).collect();
        for (g, w) in values.iter().zip(numbers(&wanted["data"])) {
            assert!(
                (g - w).abs() < 1e-12 || *g == w || g.is_nan() && w.is_nan(),
                "{expression}: {values:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn arrangements_equal_torch() -> Result<()> {
    let d = Reference::new();
    let golden: Value = serde_json::from_str(include_str!("golden/structure.json")).expect("JSON");
    let input = |name: &str| {
        Tensor::from_vec(
            numbers(&golden["inputs"][name]["data"]),
            sizes(&golden["inputs"][name]),
            &d,
        )
    };
    let (x, y, z, v, w) = (input("x")?, input("y")?, input("z")?, input("v")?, input("w")?);
    let (k, rows) = (input("k")?.cast(DType::I64)?, input("rows")?.cast(DType::I64)?);
    let (edges, points) = (input("edges")?, input("points")?);
    let (batch, line) = (x.unsqueeze(0)?, edges.at(0, 0)?);
    let ints = |values: &[i64]| Tensor::from_slice(values, values.len(), &d);
    let head = |x: &Tensor, n: usize| x.slice(0, ..n);
    let three = |(a, b, c): (Tensor, Tensor, Tensor)| [a, b, c];
    let mut held = 0;
    macro_rules! table {
        ($($expression:literal: $got:expr;)*) => {$({
            let got: Vec<Tensor> = Vec::from($got);
            hold(&golden, $expression, &got.iter().collect::<Vec<_>>())?;
            held += 1;
        })*};
    }
    #[rustfmt::skip]
    table! {
        "F.pad(x, (1, 2), mode=\"reflect\")": [x.pad_mode(&[(1, 2)], PadMode::Reflect)?];
        "F.pad(x, (3, 0), mode=\"reflect\")": [x.pad_mode(&[(3, 0)], PadMode::Reflect)?];
        "F.pad(x[None], (1, 2, 2, 1), mode=\"reflect\")": [batch.pad_mode(&[(2, 1), (1, 2)], PadMode::Reflect)?];
        "F.pad(x, (2, 5), mode=\"replicate\")": [x.pad_mode(&[(2, 5)], PadMode::Replicate)?];
        "F.pad(x[None], (0, 2, 4, 1), mode=\"replicate\")": [batch.pad_mode(&[(4, 1), (0, 2)], PadMode::Replicate)?];
        "F.pad(x, (4, 1), mode=\"circular\")": [x.pad_mode(&[(4, 1)], PadMode::Circular)?];
        "F.pad(x[None], (1, 2, 3, 0), mode=\"circular\")": [batch.pad_mode(&[(3, 0), (1, 2)], PadMode::Circular)?];
        "F.pad(x, (-1, 2), mode=\"replicate\")": [x.pad_mode(&[(-1, 2)], PadMode::Replicate)?];
        "torch.tile(y, (2,))": [y.tile(2)?];
        "torch.tile(y, (2, 1, 3))": [y.tile((2, 1, 3))?];
        "torch.repeat_interleave(y, torch.tensor([2, 0, 3]), 0)": [y.repeat_each(0, &ints(&[2, 0, 3])?)?];
        "torch.repeat_interleave(y, torch.tensor([1, 0, 2, 1]), 1)": [y.repeat_each(-1, &ints(&[1, 0, 2, 1])?)?];
        "torch.movedim(x, 0, 2)": [x.movedim(0, 2)?];
        "torch.movedim(x, (0, 1), (-1, 0))": [x.movedim((0, 1), (-1, 0))?];
        "torch.movedim(x, 2, 0)": [x.movedim(2, 0)?];
        "torch.movedim(x, (2, 0), (0, 1))": [x.movedim((2, 0), (0, 1))?];
        "torch.rot90(y, 1, (0, 1))": [y.rot90(1, 0, 1)?];
        "torch.rot90(y, 2, (0, 1))": [y.rot90(2, 0, 1)?];
        "torch.rot90(y, -1, (0, 1))": [y.rot90(-1, 0, 1)?];
        "torch.rot90(x, 1, (2, 0))": [x.rot90(1, 2, 0)?];
        "torch.rot90(y, 4, (0, 1))": [y.rot90(4, 0, 1)?];
        "torch.diff(y, dim=0)": [y.diff(0, 1)?];
        "torch.diff(y, n=2, dim=1)": [y.diff(1, 2)?];
        "torch.diff(k > 1)": [k.gt(1)?.diff(-1, 1)?];
        "torch.diff(y, n=5, dim=1)": [y.diff(1, 5)?];
        "torch.diag(v[:3])": [head(&v, 3)?.diag(0)?];
        "torch.diag(v[:2], 1)": [head(&v, 2)?.diag(1)?];
        "torch.diag(v[:2], -2)": [head(&v, 2)?.diag(-2)?];
        "torch.diag(y, 1)": [y.diag(1)?];
        "torch.diag_embed(y)": [y.diag_embed(0)?];
        "torch.diag_embed(y, -1)": [y.diag_embed(-1)?];
        "torch.trace(y)": [y.trace()?];
        "torch.trace(rows)": [rows.trace()?];
        "torch.kron(y, z)": [y.kron(&z)?];
        "torch.kron(v[:3], y)": [head(&v, 3)?.kron(&y)?];
        "torch.kron(x, torch.tensor(2.0, dtype=F64))": [x.kron(&Tensor::new(2.0f64, &d)?)?];
        "torch.outer(v[:3], w[:2])": [head(&v, 3)?.outer(&head(&w, 2)?)?];
        "torch.cdist(y, z, 2.0)": [y.cdist(&z, 2.0)?];
        "torch.cdist(y, z, 1.0)": [y.cdist(&z, 1.0)?];
        "torch.cdist(y, z, math.inf)": [y.cdist(&z, f64::INFINITY)?];
        "torch.cdist(y, z, 3.0)": [y.cdist(&z, 3.0)?];
        "torch.cdist(y, z, 0.0)": [y.cdist(&z, 0.0)?];
        "torch.cdist(x, y[None], 2.0)": [x.cdist(&y, 2.0)?];
        "torch.cdist(y, y, 2.0)": [y.cdist(&y, 2.0)?];
        "torch.cummax(v, 0)": <[Tensor; 2]>::from(v.cummax(0)?);
        "torch.cummin(v, 0)": <[Tensor; 2]>::from(v.cummin(0)?);
        "torch.cummax(x, 1)": <[Tensor; 2]>::from(x.cummax(1)?);
        "torch.cummin(k, 0)": <[Tensor; 2]>::from(k.cummin(0)?);
        "torch.cummax(x, 0)": <[Tensor; 2]>::from(x.cummax(0)?);
        "torch.cummax(k > 1, 0)": <[Tensor; 2]>::from(k.gt(1)?.cummax(0)?);
        "torch.take_along_dim(x, torch.argsort(x, dim=1, stable=True), 1)": [x.take_along(1, &x.argsort(1, SortOrder::Ascending)?)?];
        "torch.take_along_dim(x, torch.tensor([[[0], [2]]]), 1)": [x.take_along(1, &Tensor::new([[[0i64], [2]]], &d)?)?];
        "torch.take(x, torch.tensor([[0, 23], [5, 5]]))": [x.take(&Tensor::new([[0i64, -1], [5, 5]], &d)?)?];
        "torch.from_numpy(np.take_along_axis(y.numpy(), np.array([[-1, 0, 0, -3]]), 0))": [y.take_along(0, &ints(&[-1, 0, 0, -3])?.unsqueeze(0)?)?];
        "torch.index_add(y, 0, torch.tensor([2, 0, 2]), y * 10)": [y.index_add(0, &ints(&[2, 0, 2])?, &y.mul(10)?)?];
        "torch.index_add(x, 1, torch.tensor([1, 1]), x[:, 1:])": [x.index_add(1, &ints(&[1, 1])?, &x.slice(1, 1..)?)?];
        "torch.unique(rows, dim=0, return_inverse=True, return_counts=True)": three(rows.unique_slices(0)?);
        "torch.unique(rows, dim=1, return_inverse=True, return_counts=True)": three(rows.unique_slices(1)?);
        "torch.unique_consecutive(w, return_inverse=True, return_counts=True)": three(w.unique_consecutive()?);
        "torch.unique_consecutive(k, return_inverse=True, return_counts=True)": three(k.unique_consecutive()?);
        "torch.searchsorted(edges, points)": [edges.searchsorted(&points, Side::Left)?];
        "torch.searchsorted(edges, points, right=True)": [edges.searchsorted(&points, Side::Right)?];
        "torch.searchsorted(edges[0], points)": [line.searchsorted(&points, Side::Left)?];
        "torch.searchsorted(edges[0], points, right=True)": [line.searchsorted(&points, Side::Right)?];
        "torch.bincount(k)": [k.bincount(None, 0)?];
        "torch.bincount(k, minlength=7)": [k.bincount(None, 7)?];
        "torch.bincount(k[:7], weights=w)": [head(&k, 7)?.bincount(Some(&w), 0)?];
        "torch.bincount(k[:0], minlength=2)": [head(&k, 0)?.bincount(None, 2)?];
        "torch.histogram(w, 4)": <[Tensor; 2]>::from(w.histogram(4, None)?);
        "torch.histogram(x.reshape(-1), 5, range=(-1.5, 1.0))": <[Tensor; 2]>::from(x.histogram(5, Some((-1.5, 1.0)))?);
        "torch.histogram(w[1:3], 2)": <[Tensor; 2]>::from(w.slice(0, 1..3)?.histogram(2, None)?);
    }
    assert_eq!(held, golden["cases"].as_array().expect("cases").len());
    Ok(())
}

#[test]
fn nothing_is_arranged_into_nothing() -> Result<()> {
    let d = Reference::new();
    let e = Tensor::zeros((0, 3), DType::F32, &d)?;
    assert_eq!(e.cummax(0)?.0.shape(), &[0, 3]);
    assert_eq!(e.unique_slices(0)?.0.shape(), &[0, 3]);
    assert_eq!(e.unique_slices(1)?.2.to_vec::<i32>()?, [3], "columns without elements are equal");
    assert_eq!(e.unique_consecutive()?.0.numel(), 0);
    assert_eq!(e.diff(0, 2)?.shape(), &[0, 3]);
    assert_eq!(e.cdist(&Tensor::ones((2, 3), DType::F32, &d)?, 2.0)?.shape(), &[0, 2]);
    assert_eq!(
        Tensor::zeros((2, 0), DType::F32, &d)?
            .cdist(&Tensor::ones((3, 0), DType::F32, &d)?, f64::INFINITY)?
            .to_vec::<f32>()?,
        [0.0; 6]
    );
    assert_eq!(
        e.reshape(-1)?.searchsorted(&Tensor::new([1.0f32], &d)?, Side::Left)?.to_vec::<i32>()?,
        [0]
    );
    assert_eq!(e.histogram(2, None)?.0.to_vec::<i64>()?, [0, 0]);
    assert_eq!(e.reshape(-1)?.diag(1)?.shape(), &[1, 1]);
    Ok(())
}

#[test]
fn mistakes_in_arrangements_are_named() -> Result<()> {
    let d = Reference::new();
    let x = Tensor::arange(0.0f32, 6.0, 1.0, &d)?.reshape((2, 3))?;
    let refused = |result: Result<Tensor>, kind: ErrorKind, text: &str| {
        let error = result.expect_err(text);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(text), "{error}\nwanted: {text}");
    };
    refused(x.pad_mode(&[(0, 3)], PadMode::Reflect), ErrorKind::Value, "pad_mode");
    refused(x.pad_mode(&[(4, 0)], PadMode::Circular), ErrorKind::Value, "at most 3");
    refused(
        x.slice(1, ..0)?.pad_mode(&[(1, 0)], PadMode::Replicate),
        ErrorKind::Value,
        "0 elements",
    );
    refused(x.pad_mode(&[(0, 0); 3], PadMode::Circular), ErrorKind::Axis, "3 pairs");
    refused(x.pad(&[(isize::MAX, isize::MAX)], 0.0), ErrorKind::Value, "pad");
    refused(x.pad(&[(isize::MIN, isize::MIN)], 0.0), ErrorKind::Value, "cut more");
    refused(x.movedim((0, 0), (0, 1)), ErrorKind::Axis, "each once");
    refused(x.rot90(1, 0, 0), ErrorKind::Axis, "two different axes");
    refused(
        x.repeat_each(0, &Tensor::new([1i64, -1], &d)?),
        ErrorKind::Value,
        "counts[1] is -1, expected 0 or more",
    );
    refused(x.repeat_each(0, &Tensor::new([1i64], &d)?), ErrorKind::Shape, "counts of (1,)");
    refused(x.take_along(0, &Tensor::new([0i64], &d)?), ErrorKind::Shape, "do not broadcast");
    refused(x.take(&Tensor::new([6i64], &d)?), ErrorKind::Index, "take");
    refused(x.index_add(0, &Tensor::new([2i64], &d)?, &x.at(0, 0)?), ErrorKind::Index, "index_add");
    refused(x.index_add(0, &Tensor::new([[0i64]], &d)?, &x), ErrorKind::Shape, "a vector");
    refused(x.searchsorted(&x.at(0, 0)?, Side::Left), ErrorKind::Shape, "equal leading axes");
    refused(x.bincount(None, 0), ErrorKind::DType, "integers");
    refused(Tensor::new([-1i64], &d)?.bincount(None, 0), ErrorKind::Index, "bincount");
    refused(x.histogram(0, None).map(|h| h.0), ErrorKind::Value, "make 0 intervals");
    refused(x.histogram(3, Some((1.0, 1.0))).map(|h| h.0), ErrorKind::Value, "from 1 to 1");
    refused(x.cdist(&x, -1.0), ErrorKind::Value, "-1");
    refused(x.cdist(&x.t()?, 2.0), ErrorKind::Shape, "(.., n, d)");
    refused(x.unsqueeze(0)?.diag(0), ErrorKind::Shape, "a vector or a matrix");
    Ok(())
}
