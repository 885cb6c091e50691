//! Rows A01 to A07: storage, shapes, element access, views that cost nothing, offsets that survive,
//! reshape, contiguity.

use crate::support::{Dice, indices, random_chain, refused};
use std::time::Instant;
use teeny_core::{
    DType, Device, Element, ErrorKind, Layout, Reference, Result, Scalar, Shape, Tensor, bf16, f16,
};

fn round_trip<T: Element>(values: &[T]) -> Result<()> {
    let device = Reference::new();
    let x = Tensor::from_slice(values, values.len(), &device)?;
    assert_eq!((x.dtype(), x.storage().len(), x.numel()), (T::DTYPE, values.len(), values.len()));
    assert_eq!(x.to_vec::<T>()?, values);
    assert_eq!(x.to_bytes()?.len(), values.len() * T::DTYPE.size());
    assert_eq!(
        Tensor::from_bytes(&x.to_bytes()?, values.len(), T::DTYPE, &device)?.to_vec::<T>()?,
        values
    );
    let scalars: Vec<Scalar> = values.iter().map(|v| v.to_scalar()).collect();
    assert_eq!(x.to_scalars()?, scalars);
    assert_eq!(
        Tensor::from_scalars(&scalars, values.len(), T::DTYPE, &device)?.to_vec::<T>()?,
        values
    );
    let filled = Tensor::full(3, values[1], T::DTYPE, &device)?;
    assert_eq!(filled.to_vec::<T>()?, [values[1]; 3]);
    assert_eq!(x.at(0, 1)?.item::<T>()?, values[1]);
    Ok(())
}

#[test]
fn every_type_survives_the_round_trip() -> Result<()> {
    round_trip(&[false, true, true])?;
    round_trip(&[0u8, 200, 255])?;
    round_trip(&[0u16, 40_000, u16::MAX])?;
    round_trip(&[0u32, 3_000_000_000, u32::MAX])?;
    round_trip(&[0u64, u64::MAX - 1, u64::MAX])?;
    round_trip(&[0i8, i8::MIN, i8::MAX])?;
    round_trip(&[0i16, i16::MIN, i16::MAX])?;
    round_trip(&[0i32, i32::MIN, i32::MAX])?;
    round_trip(&[0i64, i64::MIN, i64::MAX])?;
    round_trip(&[f16::ZERO, f16::from_f32(-1.5), f16::MAX])?;
    round_trip(&[bf16::ZERO, bf16::from_f32(-1.5), bf16::MAX])?;
    round_trip(&[0.0f32, 1e-40, f32::MAX])?;
    round_trip(&[0.0f64, 5e-324, f64::MAX])
}

#[test]
fn scalars_are_rounded_to_the_type_and_must_fill_the_shape() -> Result<()> {
    let device = Reference::new();
    let values = [Scalar::Float(-1.75), Scalar::Int(300), Scalar::Bool(true)];
    let of = |dtype| Tensor::from_scalars(&values, [3, 1], dtype, &device);
    assert_eq!(of(DType::I32)?.to_vec::<i32>()?, [-1, 300, 1]);
    assert_eq!(of(DType::U8)?.to_vec::<u8>()?, [0, 44, 1]);
    assert_eq!(of(DType::F16)?.to_vec::<f16>()?, [-1.75, 300.0, 1.0].map(f16::from_f32));
    let error = refused(Tensor::from_scalars(&values, [2, 2], DType::F32, &device));
    assert_eq!(error.kind(), ErrorKind::Shape);
    assert!(
        error.to_string().contains("3 values do not fill shape (2, 2) of 4 elements"),
        "{error}"
    );
    Ok(())
}

#[test]
fn nested_data_is_flattened_and_ragged_data_refused() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::new([[[1i32, 2], [3, 4]], [[5, 6], [7, 8]]], &device)?;
    assert_eq!(*x.shape(), [2, 2, 2]);
    assert_eq!(x.to_vec::<i32>()?, [1, 2, 3, 4, 5, 6, 7, 8]);
    let error = refused(Tensor::new(vec![vec![1i32, 2], vec![3]], &device));
    assert!(
        error
            .message()
            .contains("ragged data: element [1] has 1 entries, the first one of its level has 2"),
        "{error}"
    );
    assert!(
        refused(Tensor::from_slice(&[1i32, 2, 3], (2, 2), &device))
            .message()
            .contains("3 values do not fill shape (2, 2) of 4 elements")
    );
    Ok(())
}

#[test]
fn handles_share_until_one_is_written() -> Result<()> {
    let x = Tensor::arange(0i32, 5, 1, Reference::new())?;
    let y = x.clone();
    assert!(x.same_storage(&y));
    let z = y.slice_assign(0, 1..2, &x.slice(0, 4..5)?)?;
    assert!(!z.same_storage(&x));
    assert_eq!(
        (x.to_vec::<i32>()?, z.to_vec::<i32>()?),
        (vec![0, 1, 2, 3, 4], vec![0, 4, 2, 3, 4])
    );
    Ok(())
}

#[test]
fn row_major_strides_scalars_and_empty_shapes() -> Result<()> {
    let device = Reference::new();
    assert_eq!(*Layout::contiguous(Shape::new(&[2, 3, 4])?).strides(), [12, 4, 1]);
    let scalar = Tensor::new(7.0f32, &device)?;
    assert_eq!((scalar.ndim(), scalar.numel(), scalar.item::<f32>()?), (0, 1, 7.0));
    let empty = Tensor::zeros((0, 5), DType::F32, &device)?;
    assert_eq!((empty.numel(), empty.is_contiguous(), empty.to_vec::<f32>()?.len()), (0, true, 0));
    assert_eq!((empty.t()?.numel(), empty.sum_all()?.item::<f32>()?), (0, 0.0));
    Ok(())
}

#[test]
fn explicit_strides_and_offsets_are_checked_against_the_storage() -> Result<()> {
    let shape = Shape::new(&[2, 3])?;
    assert!(Layout::strided(shape, &[3, 1], 0, 6).is_ok());
    assert!(Layout::strided(shape, &[3, -1], 2, 6).is_ok());
    assert!(Layout::strided(shape, &[0, 0], 5, 6).is_ok());
    for (strides, offset) in [
        (vec![3isize, 1], 1usize),
        (vec![3, -1], 1),
        (vec![4, 1], 0),
        (vec![isize::MAX, 1], 0),
        (vec![1], 0),
    ] {
        assert!(Layout::strided(shape, &strides, offset, 6).is_err(), "{strides:?} {offset}");
    }
    assert!(
        Shape::new(&[usize::MAX, 2]).is_err()
            && Shape::new(&[1; 9]).is_err()
            && Shape::new(&[usize::MAX / 2, 0, 9]).is_err()
    );
    Ok(())
}

#[test]
fn every_element_of_a_thousand_random_chains_is_the_oracles() -> Result<()> {
    let (device, mut dice) = (Reference::new(), Dice::new(3));
    for _ in 0..1000 {
        let (_, x, n) = random_chain(&mut dice, &device)?;
        for index in indices(&n.shape) {
            // Element by element, with the position counted from the front and from the back in
            // turn.
            let one = index.iter().enumerate().try_fold(x.clone(), |x, (axis, &i)| {
                let i =
                    if axis % 2 == 0 { i as isize } else { i as isize - n.shape[axis] as isize };
                x.at(0, i)
            })?;
            assert_eq!(one.item::<i64>()?, n.at(&index), "{:?} at {index:?}", x.layout());
        }
    }
    Ok(())
}

#[test]
fn an_index_error_names_axis_index_and_size() -> Result<()> {
    let x = Tensor::zeros((2, 3), DType::F32, Reference::new())?;
    let error = refused(x.at(1, 3));
    assert_eq!(error.kind(), ErrorKind::Index);
    assert_eq!(error.message(), "index 3 is outside axis 1 of (2, 3), which has size 3");
    assert_eq!(
        refused(x.at(-1, -4)).message(),
        "index -4 is outside axis 1 of (2, 3), which has size 3"
    );
    let error = refused(x.sum(2));
    assert_eq!(
        error.to_string().lines().skip(1).collect::<Vec<_>>(),
        ["  x: f32 on reference", "  help: axes go from -2 to 1"]
    );
    assert!(error.message().contains("no axis 2 in a tensor of shape (2, 3)"));
    Ok(())
}

#[test]
fn views_share_the_storage_and_allocate_nothing() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::arange(0i64, 120, 1, &device)?.reshape((4, 5, 6))?;
    let before = device.stats();
    let views = [
        x.t()?,
        x.permute([2, 0, 1])?,
        x.slice_step(1, 1.., 2)?,
        x.flip([0, 2])?,
        x.unsqueeze(0)?.expand((7, 4, 5, 6))?,
        x.slice(0, 1..2)?.squeeze(0)?,
        x.diagonal(0, 0, 1)?,
        x.unfold(2, 3, 1)?,
        x.reshape((2, 2, 30))?,
        x.view(-1)?,
    ];
    assert!(views.iter().all(|v| v.same_storage(&x)));
    assert_eq!(device.stats(), before);
    Ok(())
}

#[test]
fn transposing_a_hundred_million_elements_takes_under_a_microsecond() -> Result<()> {
    let x = Tensor::zeros((1, 1), DType::F32, Reference::new())?.expand((10_000, 10_000))?;
    // The best of many: the test machine is busy.
    let best = (0..2000).map(|_| {
        let start = Instant::now();
        let y = std::hint::black_box(&x).t();
        let time = start.elapsed();
        drop(y);
        time
    });
    let best = best.min().expect("2000 times");
    assert!(best.as_nanos() < 1000, "{best:?}");
    Ok(())
}

#[test]
fn offsets_survive_ten_thousand_random_chains() -> Result<()> {
    let (device, mut dice) = (Reference::new(), Dice::new(5));
    for round in 0..10_000 {
        let (_, x, n) = random_chain(&mut dice, &device)?;
        assert_eq!(**x.shape(), n.shape, "chain {round}");
        assert_eq!(x.to_vec::<i64>()?, n.values, "chain {round}: {:?}", x.layout());
    }
    Ok(())
}

#[test]
fn operations_read_random_chains_like_their_copies() -> Result<()> {
    let (device, mut dice) = (Reference::new(), Dice::new(55));
    for _ in 0..500 {
        let (_, x, n) = random_chain(&mut dice, &device)?;
        assert_eq!(x.add(1)?.to_vec::<i64>()?, n.values.iter().map(|v| v + 1).collect::<Vec<_>>());
        assert_eq!(x.sum_all()?.item::<i64>()?, n.values.iter().sum::<i64>());
        assert_eq!(x.reshape(-1)?.to_vec::<i64>()?, n.values);
    }
    Ok(())
}

#[test]
fn a_slice_changes_nothing_but_offset_and_size() -> Result<()> {
    let x = Tensor::zeros((8, 3), DType::F32, Reference::new())?;
    let y = x.slice(0, 2..5)?;
    assert_eq!((y.strides(), y.layout().offset(), **y.shape() == [3, 3]), (x.strides(), 6, true));
    Ok(())
}

#[test]
fn assigning_to_random_views_never_alters_another_handle() -> Result<()> {
    let (device, mut dice) = (Reference::new(), Dice::new(6));
    let mut assigned = 0;
    for _ in 0..2000 {
        let (base, view, n) = random_chain(&mut dice, &device)?;
        if !view.same_storage(&base) || !view.layout().is_injective() {
            continue;
        }
        let part = *view.layout();
        drop(view);
        let before = base.to_vec::<i64>()?;
        let new = Tensor::full(part.shape(), -1, DType::I64, &device)?;
        let other = base.clone();
        let changed = base.assign_view(|b| b.with_layout(part), &new)?;
        assert_eq!(other.to_vec::<i64>()?, before);
        let expected: Vec<i64> =
            before.iter().map(|v| if n.values.contains(v) { -1 } else { *v }).collect();
        assert_eq!(changed.to_vec::<i64>()?, expected);
        assigned += 1;
    }
    assert!(assigned > 500, "{assigned}");
    Ok(())
}

#[test]
fn reshape_infers_and_names_both_shapes_when_it_cannot() -> Result<()> {
    let x = Tensor::arange(0i32, 12, 1, Reference::new())?.reshape((3, 4))?;
    assert_eq!(*x.reshape((2, -1, 3))?.shape(), [2, 2, 3]);
    assert_eq!(
        refused(x.reshape((5, -1))).message(),
        "(3, 4) cannot become (5, -1): 12 elements do not divide by 5"
    );
    assert_eq!(
        refused(x.reshape((5, 2))).message(),
        "(3, 4) cannot become (5, 2): 12 elements are not 10"
    );
    assert!(
        refused(x.t()?.view(12)).to_string().contains("help: x.reshape(..)? copies where needed")
    );
    assert_eq!(x.t()?.reshape(12)?.to_vec::<i32>()?, [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]);
    Ok(())
}

#[test]
fn contiguity_is_a_property_of_the_layout_alone() -> Result<()> {
    let x = Tensor::arange(0i32, 24, 1, Reference::new())?.reshape((2, 3, 4))?;
    assert!(x.is_contiguous() && x.t()?.t()?.is_contiguous() && x.slice(0, 1..2)?.is_contiguous());
    assert!(
        !x.t()?.is_contiguous()
            && !x.slice(1, 0..2)?.is_contiguous()
            && !x.flip(0)?.is_contiguous()
    );
    assert!(
        x.at(0, 1)?.is_contiguous()
            && x.sum_all()?.is_contiguous()
            && x.slice(1, 0..0)?.is_contiguous()
    );
    assert!(x.contiguous()?.same_storage(&x));
    let copy = x.t()?.contiguous()?;
    assert!(copy.is_contiguous() && !copy.same_storage(&x));
    assert_eq!(copy.to_vec::<i32>()?, x.t()?.to_vec::<i32>()?);
    Ok(())
}

#[test]
fn appending_to_a_cache_costs_only_the_new_rows() -> Result<()> {
    let device = Reference::new();
    let mut cache = Tensor::zeros((1000, 4), DType::F32, &device)?;
    let row = Tensor::ones((1, 4), DType::F32, &device)?;
    let before = device.stats().allocations;
    for i in 0..1000usize {
        cache = cache.slice_assign(0, i..i + 1, &row)?;
    }
    assert_eq!(device.stats().allocations, before);
    assert_eq!(cache.sum_all()?.item::<f32>()?, 4000.0);
    Ok(())
}

#[test]
fn slices_at_the_ends_of_the_number_range_are_cut_not_overflowed() -> Result<()> {
    let x = Tensor::arange(0i32, 5, 1, Reference::new())?;
    assert_eq!(x.slice(0, 1..=i64::MAX)?.numel(), 4);
    assert_eq!(x.slice(0, 1..usize::MAX)?.numel(), 4);
    assert_eq!(x.slice(0, i64::MIN..2)?.numel(), 2);
    let y = x.reshape((5, 1))?.expand((5, 3))?.copy()?;
    assert_eq!(y.slice_step(0, .., isize::MAX)?.to_vec::<i32>()?, [0, 0, 0]);
    assert_eq!(y.slice_step(0, .., isize::MIN)?.to_vec::<i32>()?, [4, 4, 4]);
    Ok(())
}
