//! Numbers inside lists that name places: offsets of bags, counts, classes. One that is wrong is
//! refused with the name of its argument, also where a device knows it only later.

use crate::support::Dice;
use teeny_core::{
    BagMode, Capture, DType, DeviceRef, ErrorKind, Lazy, Reference, Result, Tensor, ToDevice,
};

const INTEGERS: [DType; 8] =
    [DType::I8, DType::I16, DType::I32, DType::I64, DType::U8, DType::U16, DType::U32, DType::U64];

fn devices() -> [DeviceRef; 2] {
    [Reference::new().to_device(), Lazy::new(Reference::new()).to_device()]
}

/// The error of a result, at the latest when it is read.
#[track_caller]
fn refused(result: Result<Tensor>, parts: &[&str]) {
    let error = match result.and_then(|y| y.to_bytes()) {
        Ok(_) => panic!("a result, not an error with {parts:?}"),
        Err(error) => error,
    };
    let text = error.to_string();
    assert!(parts.iter().all(|part| text.contains(part)), "{text}\nhas not all of {parts:?}");
    assert!(text.contains("help: "), "{text}");
}

fn weight(device: &DeviceRef) -> Result<Tensor> {
    Tensor::new([[1.0f32, 10.0], [2.0, 20.0], [3.0, -30.0], [4.0, 40.0]], device)
}

#[test]
fn offsets_of_bags_begin_with_zero_and_do_not_decrease() -> Result<()> {
    for device in devices() {
        let weight = weight(&device)?;
        let ids = Tensor::new([0i64, 1, 2, 3], &device)?;
        for mode in [BagMode::Sum, BagMode::Mean, BagMode::Max] {
            for (offsets, wrong) in [
                ([0i64, 9, 9], "offsets[1] is 9, expected"),
                ([0, 3, 1], "offsets[2] is 1, expected"),
                ([1, 2, 2], "offsets[0] is 1, expected"),
                ([0, -1, 2], "offsets[1] is -1, expected"),
                ([0, -2, 2], "offsets[1] is -2, expected"),
                ([0, 1 << 32, 1 << 33], "offsets[1] is 4294967296, expected"),
                ([i64::MIN + 1, 0, 0], "offsets[0] is -9223372036854775807, expected"),
            ] {
                let offsets = Tensor::new(offsets, &device)?;
                let bags = weight.embedding_bag(&ids, Some(&offsets), mode);
                refused(bags, &["embedding_bag at ", "lists.rs", wrong]);
            }
        }
        let none = Tensor::zeros(0, DType::I64, &device)?;
        refused(weight.embedding_bag(&ids, Some(&none), BagMode::Sum), &["offsets", "4 ids"]);
        assert_eq!(weight.embedding_bag(&none, Some(&none), BagMode::Sum)?.shape()[..], [0, 2]);
        let outside = Tensor::new([0i64, 1, 4, 3], &device)?;
        let offsets = Tensor::new([0i64, 2], &device)?;
        let bags = weight.embedding_bag(&outside, Some(&offsets), BagMode::Sum);
        refused(bags, &["embedding_bag at ", "ids[2] is 4", "has size 4"]);
        let outside = Tensor::new([[0i64, 1], [-1, 3]], &device)?;
        refused(weight.embedding_bag(&outside, None, BagMode::Sum), &["ids[", "is -1"]);
    }
    Ok(())
}

/// Random offsets of every type: legal ones give the sums of their bags, the first wrong one is
/// named.
#[test]
fn random_offsets_give_their_bags_or_name_the_first_wrong_one() -> Result<()> {
    let mut dice = Dice::new(31);
    for case in 0..400 {
        let device = devices()[case % 2].clone();
        let table = weight(&device)?;
        let (n, count) = (dice.below(7), 1 + dice.below(5));
        let ids: Vec<i64> = (0..n).map(|_| dice.below(4) as i64).collect();
        let mut offsets: Vec<i64> = (0..count).map(|_| dice.below(n + 1) as i64).collect();
        offsets.sort_unstable();
        offsets[0] = 0;
        let dtype = INTEGERS[dice.below(8)];
        if dice.below(2) == 0 {
            let low = if dtype.is_signed_int() { -2 } else { 0 };
            offsets[dice.below(count)] = dice.below(n + 4) as i64 + low;
        }
        let wrong = (0..count).find(|&i| {
            let before = if i == 0 { 0 } else { offsets[i - 1] };
            i == 0 && offsets[0] != 0 || offsets[i] < before.max(0) || offsets[i] > n as i64
        });
        let given = Tensor::from_slice(&offsets, count, &device)?.cast(dtype)?;
        let ids_given = Tensor::from_slice(&ids, n, &device)?.cast(INTEGERS[dice.below(8)])?;
        let got = table.embedding_bag(&ids_given, Some(&given), BagMode::Sum);
        match wrong {
            Some(i) => refused(got, &[&format!("offsets[{i}] is {}, expected", offsets[i])]),
            None => {
                let values = weight(&device)?.to_vec::<f32>()?;
                let mut want = vec![0.0f32; 2 * count];
                for bag in 0..count {
                    let end = offsets.get(bag + 1).map_or(n, |&end| end as usize);
                    for &id in &ids[offsets[bag] as usize..end] {
                        (0..2).for_each(|c| want[2 * bag + c] += values[2 * id as usize + c]);
                    }
                }
                assert_eq!(got?.to_vec::<f32>()?, want, "case {case}: {ids:?} {offsets:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_replay_refuses_offsets_that_it_gets_later() -> Result<()> {
    let lazy = Lazy::new(Reference::new());
    let table = weight(&lazy.to_device())?;
    let ids = Tensor::new([0i64, 1, 2, 3], &lazy)?;
    let mut capture = Capture::new(&lazy, |x: &[Tensor]| {
        Ok(vec![table.embedding_bag(&ids, Some(&x[0]), BagMode::Sum)?])
    })?;
    for offsets in [[0i64, 2], [0, 1], [0, 4], [0, 3]] {
        capture.run(vec![Tensor::new(offsets, &lazy)?])?[0].to_vec::<f32>()?;
    }
    assert!(capture.is_replaying());
    for (offsets, wrong) in
        [([0i64, 5], "offsets[1] is 5, expected"), ([2, 3], "offsets[0] is 2, expected")]
    {
        let result = capture.run(vec![Tensor::new(offsets, &lazy)?]).map(|y| y[0].clone());
        refused(result, &["embedding_bag at ", "lists.rs", wrong]);
    }
    Ok(())
}

#[test]
fn counts_and_classes_are_named_as_the_caller_names_them() -> Result<()> {
    for device in devices() {
        let x = Tensor::new([5.0f32, 6.0, 7.0], &device)?;
        for dtype in INTEGERS {
            let counts = Tensor::new([2u8, 0, 1], &device)?.cast(dtype)?;
            assert_eq!(x.repeat_each(0, &counts)?.to_vec::<f32>()?, [5.0, 5.0, 7.0]);
        }
        let counts = Tensor::new([1i32, -1, -2], &device)?;
        refused(x.repeat_each(0, &counts), &["repeat_each at ", "counts[1] is -1, expected"]);
        let counts = Tensor::new([0u64, u64::MAX, 0], &device)?;
        let error = x.repeat_each(0, &counts).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Value);
        assert!(error.to_string().contains("18446744073709551615"), "{error}");
        let classes = Tensor::new([0i64, 3, 1], &device)?;
        refused(classes.one_hot(3, DType::F32), &["one_hot at ", "x[1", "is 3", "size 3"]);
        let numbers = Tensor::new([0i64, -3, 1], &device)?;
        refused(numbers.bincount(None, 0), &["bincount at ", "x[1] is -3"]);
        let places = Tensor::new([[0i64, 4]], &device)?;
        let x = Tensor::new([[1.0f32, 2.0]], &device)?;
        refused(x.max_unpool(&places, &[4]), &["max_unpool at ", "positions[0, 1] is 4"]);
    }
    Ok(())
}

/// Every method that takes positions takes them in every integer type, with the same result.
#[test]
fn positions_of_every_integer_type_are_taken() -> Result<()> {
    type Method = fn(&Tensor, &Tensor) -> Result<Tensor>;
    let methods: [(&str, Method); 15] = [
        ("gather", |x, i| x.gather(0, &i.unsqueeze(1)?)),
        ("index_select", |x, i| x.index_select(0, i)),
        ("take", |x, i| x.take(i)),
        ("take_along", |x, i| x.take_along(0, &i.unsqueeze(1)?)),
        ("index", |x, i| x.index(i)),
        ("index of pairs", |x, i| x.index((i, &i.fmod(2)?))),
        ("assign", |x, i| x.clone().assign(i, 7.0)),
        ("assign_add", |x, i| x.assign_add(i, 7.0)),
        ("index_add", |x, i| x.index_add(0, i, &Tensor::ones((), DType::F32, x)?)),
        ("scatter", |x, i| x.scatter(0, &i.unsqueeze(1)?, &Tensor::ones((), DType::F32, x)?)),
        ("one_hot", |_, i| i.one_hot(4, DType::F32)),
        ("bincount", |_, i| i.bincount(None, 0)),
        ("embedding_bag", |x, i| x.embedding_bag(i, Some(&i.sub(i)?.slice(0, ..2)?), BagMode::Sum)),
        ("embedding_bag of rows", |x, i| {
            x.embedding_bag(&i.slice(0, ..2)?.unsqueeze(0)?, None, BagMode::Mean)
        }),
        ("repeat_each", |x, i| x.slice(0, ..3)?.repeat_each(0, i)),
    ];
    for device in devices() {
        let x = weight(&device)?;
        for (name, method) in methods {
            let positions = Tensor::new([1i64, 3, 0], &device)?;
            let want = method(&x, &positions)?.to_bytes()?;
            for dtype in INTEGERS {
                let got = method(&x, &positions.cast(dtype)?).and_then(|y| y.to_bytes());
                let got = got.unwrap_or_else(|error| panic!("{name} by {dtype}: {error}"));
                assert_eq!(got, want, "{name} by {dtype}");
            }
        }
    }
    Ok(())
}
