//! Row A08: what an index names, read and written, is what NumPy's brackets read and write
//! (`golden/subscripts.json`).

use serde_json::Value;
use std::sync::Arc;
use teeny_core::{DType, Ellipsis, ErrorKind, NewAxis, Reference, Result, Subscript, Tensor, s};

/// The tensors that the expressions name, as in `golden/subscripts.py`.
struct Names {
    x: Tensor,
    v: Tensor,
    e: Tensor,
    m: Tensor,
    rows: Tensor,
    columns: Tensor,
    grid: Tensor,
    none: Tensor,
}

impl Names {
    fn new(d: &Arc<Reference>) -> Result<Names> {
        let x = Tensor::arange(0i64, 120, 1, d)?.reshape((2, 3, 4, 5))?;
        Ok(Names {
            m: x.rem(3)?.eq(0)?,
            x,
            v: Tensor::arange(0i64, 6, 1, d)?,
            e: Tensor::zeros((3, 0), DType::I64, d)?,
            rows: Tensor::new([0i64, 1, 1], d)?,
            columns: Tensor::new([2i32, 0, -1], d)?,
            grid: Tensor::new([[0i64, 1], [1, 0]], d)?,
            none: Tensor::zeros(0, DType::I64, d)?,
        })
    }
}

struct Golden(Value);

impl Golden {
    fn new() -> Golden {
        Golden(serde_json::from_str(include_str!("golden/subscripts.json")).expect("JSON"))
    }

    fn cases(&self) -> &[Value] {
        self.0["cases"].as_array().expect("cases")
    }

    #[track_caller]
    fn hold(&self, expression: &str, got: &Tensor) -> Result<()> {
        let case = self
            .cases()
            .iter()
            .find(|c| c["expression"] == expression)
            .unwrap_or_else(|| panic!("{expression} is not in the golden file"));
        let list = |v: &Value| {
            v.as_array()
                .expect("a list")
                .iter()
                .map(|n| n.as_i64().expect("an integer"))
                .collect::<Vec<_>>()
        };
        let shape: Vec<i64> = got.shape().iter().map(|&n| n as i64).collect();
        assert_eq!(shape, list(&case["shape"]), "shape of {expression}");
        assert_eq!(got.to_vec::<i64>()?, list(&case["data"]), "{expression}");
        Ok(())
    }
}

#[test]
fn an_index_reads_what_numpy_reads() -> Result<()> {
    let (d, golden) = (Reference::new(), Golden::new());
    let Names { x, v, e, m, rows, columns, grid, none } = Names::new(&d)?;
    let at = |position: i64| Tensor::new(position, &d);
    let yes = |flag: bool| Tensor::new(flag, &d);
    let mut read = 0;
    macro_rules! read {
        ($($expression:literal: $from:ident [$($items:tt)*];)*) => {$({
            golden.hold($expression, &$from.index(s![$($items)*])?)?;
            read += 1;
        })*};
    }
    #[rustfmt::skip]
    read! {
            "v[2]": v[2];
            "v[-1]": v[-1];
            "v[1:4]": v[1..4];
            "v[-3:]": v[-3..];
            "v[:-2]": v[..-2];
            "v[1:-1]": v[1..-1];
            "v[::2]": v[..;2];
            "v[1::2]": v[1..;2];
            "v[::-1]": v[..;-1];
            "v[::-2]": v[..;-2];
            "v[4:1:-1]": v[2..5;-1];
            "v[7:9]": v[7..9];
            "v[4:2]": v[4..2];
            "v[None]": v[NewAxis];
            "v[:, None]": v[.., NewAxis];
            "v[...]": v[...];
            "v[..., None]": v[..., NewAxis];
            "v[[0, 2, 2, -1]]": v[[0, 2, 2, -1]];
            "v[[True, False, True, False, False, True]]": v[[true, false, true, false, false, true]];
            "v[grid]": v[&grid];
            "v[none]": v[&none];
            "v[v > 2]": v[v.gt(2)?];
            "v[v > 9]": v[v.gt(9)?];
            "v[np.array(3)]": v[at(3)?];
            "v[np.array(True)]": v[yes(true)?];
            "v[np.array(False)]": v[yes(false)?];
            "x[1]": x[1];
            "x[1, 2]": x[1, 2];
            "x[1, 2, 3, 4]": x[1, 2, 3, 4];
            "x[..., 1]": x[..., 1];
            "x[1, ..., 1]": x[1, ..., 1];
            "x[:, 1]": x[.., 1];
            "x[:, :, 1:3]": x[.., .., 1..3];
            "x[0, :, -2:, ::2]": x[0, .., -2.., ..;2];
            "x[::-1, 1:, ::-2, 1:4]": x[..;-1, 1.., ..;-2, 1..4];
            "x[..., None, 0]": x[..., NewAxis, 0];
            "x[None, :, None, 1]": x[NewAxis, .., NewAxis, 1];
            "x[0, ..., None, 1:2, None]": x[0, ..., NewAxis, 1..2, NewAxis];
            "x[:, 1:1]": x[.., 1..1];
            "x[..., :]": x[..., ..];
            "x[-1, -1, -1, -1]": x[-1, -1, -1, -1];
            "x[..., 1, 2, 3, 4 - 5]": x[..., 1, 2, 3, 4 - 5];
            "x[:, -2:, ..., -3:-1]": x[.., -2.., ..., -3..-1];
            "x[1:, ...]": x[1.., ...];
            "x[()]": x[];
            "x[rows]": x[&rows];
            "x[rows, columns]": x[&rows, &columns];
            "x[:, columns]": x[.., &columns];
            "x[..., columns]": x[..., &columns];
            "x[:, :, rows, columns]": x[.., .., &rows, &columns];
            "x[rows, :, columns]": x[&rows, .., &columns];
            "x[rows, ..., columns]": x[&rows, ..., &columns];
            "x[:, rows, :, columns]": x[.., &rows, .., &columns];
            "x[rows, 1]": x[&rows, 1];
            "x[rows, :, 1]": x[&rows, .., 1];
            "x[1, rows]": x[1, &rows];
            "x[1, :, rows]": x[1, .., &rows];
            "x[:, 1, rows]": x[.., 1, &rows];
            "x[0, rows, columns]": x[0, &rows, &columns];
            "x[:, 1, :, rows]": x[.., 1, .., &rows];
            "x[grid]": x[&grid];
            "x[grid, rows[:2]]": x[&grid, rows.slice(0, ..2)?];
            "x[grid, :, rows[:2]]": x[&grid, .., rows.slice(0, ..2)?];
            "x[rows[:, None], columns]": x[rows.unsqueeze(1)?, &columns];
            "x[:, rows[:, None], columns]": x[.., rows.unsqueeze(1)?, &columns];
            "x[rows, None, columns]": x[&rows, NewAxis, &columns];
            "x[None, rows]": x[NewAxis, &rows];
            "x[rows, None]": x[&rows, NewAxis];
            "x[grid, ..., None]": x[&grid, ..., NewAxis];
            "x[grid[:, None], 1:, columns[:2]]": x[grid.unsqueeze(1)?, 1.., columns.slice(0, ..2)?];
            "x[rows, columns, rows]": x[&rows, &columns, &rows];
            "x[rows, columns, rows, columns]": x[&rows, &columns, &rows, &columns];
            "x[none]": x[&none];
            "x[:, none]": x[.., &none];
            "x[rows, 1:, ::2]": x[&rows, 1.., ..;2];
            "x[1:, rows, ..., ::-1]": x[1.., &rows, ..., ..;-1];
            "x[rows, 1, :, columns]": x[&rows, 1, .., &columns];
            "x[rows, ..., 1]": x[&rows, ..., 1];
            "x[m]": x[&m];
            "x[m[0, 0, 0, 0] ^ m]": x[m.not()?];
            "x[m[:, :, :, 0]]": x[m.index(s![.., .., .., 0])?];
            "x[m[:, 0, 0, 0]]": x[m.index(s![.., 0, 0, 0])?];
            "x[:, m[0, :, :, 0]]": x[.., m.index(s![0, .., .., 0])?];
            "x[..., m[0, 0]]": x[..., m.index(s![0, 0])?];
            "x[:, m[0, :, 0, 0], 1]": x[.., m.index(s![0, .., 0, 0])?, 1];
            "x[m[:, :, 0, 0], 1:, ::2]": x[m.index(s![.., .., 0, 0])?, 1.., ..;2];
            "x[:, m[0, :, :, 0], 1]": x[.., m.index(s![0, .., .., 0])?, 1];
            "x[m[:, 0, 0, 0], ..., m[0, 0, 0]]": x[m.index(s![.., 0, 0, 0])?, ..., m.index(s![0, 0, 0])?];
            "x[rows[:2], m[0, :, 0, 0][:3]]": x[rows.slice(0, ..2)?, m.index(s![0, .., 0, 0])?.slice(0, ..3)?];
            "x[0, m[0, :, :, 1]]": x[0, m.index(s![0, .., .., 1])?];
            "x[1, ..., [True, False, True, False, True]]": x[1, ..., [true, false, true, false, true]];
            "x[np.array(True)]": x[yes(true)?];
            "x[np.array(False), 1]": x[yes(false)?, 1];
            "x[:, np.array(1)]": x[.., at(1)?];
            "x[np.array(-1), :, columns]": x[at(-1)?, .., &columns];
            "e[[0, 2]]": e[[0, 2]];
            "e[:, :0]": e[.., ..0];
            "e[none]": e[&none];
            "e[1:2]": e[1..2];
            "x[rows, ..., columns, None]": x[&rows, ..., &columns, NewAxis];
    }
    assert_eq!(
        read,
        golden
            .cases()
            .iter()
            .filter(|c| !c["expression"].as_str().expect("text").contains("] = "))
            .count()
    );
    Ok(())
}

#[test]
fn an_assignment_writes_what_numpy_writes() -> Result<()> {
    let (d, golden) = (Reference::new(), Golden::new());
    let Names { x, v, m, rows, columns, grid, none, .. } = Names::new(&d)?;
    let count = |n: i64| Tensor::arange(0i64, n, 1, &d);
    let yes = |flag: bool| Tensor::new(flag, &d);
    let mut written = 0;
    macro_rules! write {
        ($($expression:literal: $to:ident [$($items:tt)*] = $value:expr;)*) => {$({
            let before = $to.to_vec::<i64>()?;
            golden.hold($expression, &$to.clone().assign(s![$($items)*], $value)?)?;
            golden.hold($expression, &$to.copy()?.assign(s![$($items)*], $value)?)?;
            golden.hold($expression, &$to.transpose(0, -1)?.copy()?.transpose(0, -1)?.assign(s![$($items)*], $value)?)?;
            assert_eq!($to.to_vec::<i64>()?, before, "another handle changed: {}", $expression);
            written += 1;
        })*};
    }
    #[rustfmt::skip]
    write! {
            "v[2] = 70": v[2] = 70;
            "v[1:4] = 71": v[1..4] = 71;
            "v[::-2] = np.arange(3)": v[..;-2] = count(3)?;
            "v[[0, 2, 2]] = np.array([7, 8, 9])": v[[0, 2, 2]] = Tensor::new([7i64, 8, 9], &d)?;
            "v[v > 2] = -1": v[v.gt(2)?] = -1;
            "v[v > 2] = np.array([5, 6, 7])": v[v.gt(2)?] = count(3)?.add(5)?;
            "v[none] = 3": v[&none] = 3;
            "v[...] = 4": v[...] = 4;
            "x[1] = 0": x[1] = 0;
            "x[..., 1] = 7": x[..., 1] = 7;
            "x[:, 1, ::2] = np.arange(5)": x[.., 1, ..;2] = count(5)?;
            "x[0, :, -2:, ::2] = np.arange(3)": x[0, .., -2.., ..;2] = count(3)?;
            "x[1:1] = 9": x[1..1] = 9;
            "x[1, 2, 3, 4] = -1": x[1, 2, 3, 4] = -1;
            "x[0, 0] = np.ones((1, 1, 5), np.int64)": x[0, 0] = Tensor::ones((1, 1, 5), DType::I64, &d)?;
            "x[rows, columns] = np.arange(3).reshape(3, 1, 1)": x[&rows, &columns] = count(3)?.reshape((3, 1, 1))?;
            "x[:, columns] = np.arange(3).reshape(3, 1, 1)": x[.., &columns] = count(3)?.reshape((3, 1, 1))?;
            "x[rows, :, columns] = np.arange(5)": x[&rows, .., &columns] = count(5)?;
            "x[rows, 1] = 6": x[&rows, 1] = 6;
            "x[1, rows] = np.arange(4)[:, None]": x[1, &rows] = count(4)?.unsqueeze(1)?;
            "x[m] = 0": x[&m] = 0;
            "x[m] = np.arange(40)": x[&m] = count(40)?;
            "x[m[:, :, 0, 0]] = np.arange(5)": x[m.index(s![.., .., 0, 0])?] = count(5)?;
            "x[:, m[0, :, :, 0]] = np.arange(5)": x[.., m.index(s![0, .., .., 0])?] = count(5)?;
            "x[:, m[0, :, :, 0], 1] = np.arange(4)": x[.., m.index(s![0, .., .., 0])?, 1] = count(4)?;
            "x[1, ..., columns] = np.arange(4)": x[1, ..., &columns] = count(4)?;
            "x[..., ::-1, columns] = np.arange(3)": x[..., ..;-1, &columns] = count(3)?;
            "x[m[:, :, :, 0]] = np.arange(8)[:, None]": x[m.index(s![.., .., .., 0])?] = count(8)?.unsqueeze(1)?;
            "x[grid, rows[:2]] = -grid[..., None, None]": x[&grid, rows.slice(0, ..2)?] = grid.index(s![..., NewAxis, NewAxis])?.neg()?;
            "x[0, 1:, 2, [0, 0, 4]] = np.arange(3)[:, None]": x[0, 1.., 2, [0, 0, 4]] = count(3)?.unsqueeze(1)?;
            "x[:, -1, [3, 1]] = np.arange(10).reshape(2, 5)": x[.., -1, [3, 1]] = count(10)?.reshape((2, 5))?;
            "x[np.array(True)] = 1": x[yes(true)?] = 1;
            "x[np.array(False)] = 1": x[yes(false)?] = 1;
            "x[1, m[0, :, 0, 0]] = 3": x[1, m.index(s![0, .., 0, 0])?] = 3;
    }
    assert_eq!(
        written,
        golden
            .cases()
            .iter()
            .filter(|c| c["expression"].as_str().expect("text").contains("] = "))
            .count()
    );
    Ok(())
}

#[test]
fn tuples_lists_and_single_items_say_the_same() -> Result<()> {
    let d = Reference::new();
    let Names { x, v, rows, columns, .. } = Names::new(&d)?;
    let same = |a: Tensor, b: Tensor| -> Result<()> {
        assert_eq!(a.shape(), b.shape());
        assert_eq!(a.to_vec::<i64>()?, b.to_vec::<i64>()?);
        Ok(())
    };
    same(x.index((.., 1, 0..2))?, x.index(s![.., 1, 0..2])?)?;
    same(x.index((1, Ellipsis, NewAxis, -1))?, x.index(s![1, ..., NewAxis, -1])?)?;
    same(x.index((&rows, .., columns.clone()))?, x.index(s![&rows, .., &columns])?)?;
    same(x.index((1usize, 2i64, ..=1, -2..))?, x.index(s![1, 2, 0..2, 3..])?)?;
    same(v.index([2, 0])?, v.index(vec![2i64, 0])?)?;
    same(v.index(&[2usize, 0][..])?, v.index(([2, 0],))?)?;
    same(v.index([true, false, true, false, false, false])?, v.index((0..3,))?.index(s![..;2])?)?;
    same(v.index(3)?, v.index(-3)?)?;
    same(v.index(..)?, v.index(())?)?;
    same(v.index(1..=2)?, v.index(Subscript::from(1..3))?)?;
    same(v.index(NewAxis)?, v.unsqueeze(0)?)?;
    same(v.index(Ellipsis)?, v.clone())
}

#[test]
fn a_basic_index_is_a_view_and_an_advanced_one_is_not() -> Result<()> {
    let d = Reference::new();
    let Names { x, rows, .. } = Names::new(&d)?;
    let view = x.index(s![1, .., NewAxis, ..;-2, 1..4])?;
    assert!(view.same_storage(&x));
    assert_eq!((view.shape().to_vec(), view.strides()), (vec![3, 1, 2, 3], &[20, 20, -10, 1][..]));
    assert!(!x.index(&rows)?.same_storage(&x));
    Ok(())
}

#[test]
fn positions_of_every_integer_type_and_of_views() -> Result<()> {
    let d = Reference::new();
    let Names { x, .. } = Names::new(&d)?;
    let wanted = x.index(s![1, [2, 0], .., [4, 1]])?.to_vec::<i64>()?;
    let (a, b) =
        (Tensor::new([[2i64, 9], [0, 9]], &d)?.at(1, 0)?, Tensor::new([1i64, 4], &d)?.flip(0)?);
    for dtype in DType::ALL.into_iter().filter(|t| t.is_int()) {
        assert_eq!(
            x.index(s![1, a.cast(dtype)?, .., b.cast(dtype)?])?.to_vec::<i64>()?,
            wanted,
            "{dtype}"
        );
    }
    // A small type cannot hold the size of its axis.
    let long = Tensor::arange(0i64, 1000, 1, &d)?;
    assert_eq!(long.index(Tensor::new([-1i8, 5], &d)?)?.to_vec::<i64>()?, [999, 5]);
    assert_eq!(
        long.reshape((2, 500))?.index((1, Tensor::new([200u8, 5], &d)?))?.to_vec::<i64>()?,
        [700, 505]
    );
    Ok(())
}

#[test]
fn mistakes_name_the_axis_and_the_first_offender() -> Result<()> {
    let d = Reference::new();
    let Names { x, v, m, rows, .. } = Names::new(&d)?;
    let refused = |result: Result<Tensor>, kind: ErrorKind, text: &str| {
        let error = result.expect_err(text);
        assert_eq!(error.kind(), kind, "{error}");
        assert!(
            error.to_string().contains(text) && error.to_string().contains("index.rs"),
            "{error}\nwanted: {text}"
        );
    };
    let bad = |positions: [i64; 3]| Tensor::new(positions, &d);
    refused(
        x.index((0, 3)),
        ErrorKind::Index,
        "index 3 is outside axis 1 of (2, 3, 4, 5), which has size 3",
    );
    refused(x.index(s![.., [0, -4]]), ErrorKind::Index, "index -4 is outside axis 1");
    refused(
        x.index(s![.., .., bad([0, 7, -9])?]),
        ErrorKind::Index,
        "position 7 (number 1 of (3,)) is outside axis 2, which has size 4",
    );
    refused(
        x.index(s![&rows, .., bad([0, 1, -5])?]),
        ErrorKind::Index,
        "position -5 (number 2 of (3,)) is outside axis 2",
    );
    refused(
        x.index(s![&rows, bad([0, 1, 5])?]),
        ErrorKind::Index,
        "position 5 (number 2 of (3,)) is outside axis 1",
    );
    refused(
        x.clone().assign(s![&rows, bad([3, 1, 5])?], 1),
        ErrorKind::Index,
        "position 3 (number 0 of (3,)) is outside axis 1",
    );
    refused(v.index(Tensor::new([u64::MAX], &d)?), ErrorKind::Index, "outside axis 0");
    refused(x.index(s![0, Tensor::new([u64::MAX], &d)?, [0]]), ErrorKind::Index, "outside axis 1");
    refused(v.index((0, 0)), ErrorKind::Index, "at most 1 axes for (6,), got 2");
    refused(x.index((Ellipsis, 0, Ellipsis)), ErrorKind::Index, "2 times \"...\"");
    refused(x.index(s![..;0]), ErrorKind::Value, "step");
    refused(x.index(s![.., m.clone()]), ErrorKind::Index, "expected an index of at most 4 axes");
    refused(
        x.index(m.slice(0, ..1)?),
        ErrorKind::Index,
        "a mask of (1, 3, 4, 5) does not fit (2, 3, 4, 5)",
    );
    refused(x.index([true]), ErrorKind::Index, "a mask of (1,) does not fit");
    refused(
        x.index(Tensor::new([0.5f64], &d)?),
        ErrorKind::DType,
        "positions must be integers, not f64",
    );
    refused(x.index((&rows, [0, 1])), ErrorKind::Shape, "do not broadcast");
    refused(
        v.clone().assign(1..3, &rows),
        ErrorKind::Shape,
        "(3,) does not fit the part of shape (2,)",
    );
    refused(
        v.clone().assign([0, 1], &rows),
        ErrorKind::Shape,
        "(3,) does not fit the part of shape (2,)",
    );
    refused(
        v.clone().assign(v.gt(3)?, &rows),
        ErrorKind::Shape,
        "(3,) does not fit the part of shape (2,)",
    );
    refused(
        x.clone().assign(&m.at(3, 0)?, &rows),
        ErrorKind::Shape,
        "(3,) does not fit the part of shape (5,)",
    );
    refused(v.expand((2, 6))?.assign((0, 1), 1), ErrorKind::Value, "occur twice");
    refused(v.clone().assign(9, 1), ErrorKind::Index, "index 9 is outside");
    Ok(())
}

#[test]
fn an_assignment_casts_to_the_type_of_the_tensor() -> Result<()> {
    let d = Reference::new();
    let v = Tensor::arange(0i64, 4, 1, &d)?;
    let changed = v.clone().assign(1, 2.9)?.assign([0, 3], Tensor::new([-1.5f32, 7.0], &d)?)?;
    assert_eq!((changed.dtype(), changed.to_vec::<i64>()?), (DType::I64, vec![-1, 2, 2, 7]));
    let flags = v.gt(9)?.assign(s![..;2], true)?;
    assert_eq!(flags.to_vec::<bool>()?, [true, false, true, false]);
    Ok(())
}
