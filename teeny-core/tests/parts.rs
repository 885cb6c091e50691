//! Tensors made from parts: `Tensor::from_parts` checks that the storage holds the layout and
//! dtype.

use std::sync::Arc;
use teeny_core::storage::Storage;
use teeny_core::{DType, Device, ErrorKind, Layout, Reference, Result, Shape, StorageRef, Tensor};

/// Twelve f32 in memory.
fn twelve() -> Result<Tensor> {
    Tensor::from_vec((0..12).map(|i| i as f32).collect::<Vec<_>>(), 12, Reference::new())
}

fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().map(|e| e.kind())
}

#[test]
fn a_layout_that_reaches_outside_is_refused() -> Result<()> {
    let x = twelve()?;
    let big = 1usize << 62;
    for shape in [vec![13], vec![3, 5], vec![4, 4, 4]] {
        let layout = Layout::contiguous(Shape::new(&shape)?);
        assert_eq!(kind(x.with_layout(layout)), Some(ErrorKind::Index), "{layout:?}");
        let parts = Tensor::from_parts(x.storage().clone(), layout, DType::F32, x.device().clone());
        assert_eq!(kind(parts), Some(ErrorKind::Index), "{layout:?}");
    }
    // The arithmetic of positions overflows here.
    for (sizes, strides, offset) in [
        (vec![4], vec![4isize], 0usize),
        (vec![4], vec![-1], 2),
        (vec![2], vec![isize::MAX], 0),
        (vec![2, 2, 2], vec![isize::MAX, isize::MAX, 2], 0),
        (vec![3], vec![isize::MIN], 0),
        (vec![1], vec![0], 12),
        (vec![1], vec![0], usize::MAX),
        (vec![0], vec![1], 13),
    ] {
        let layout = Layout::strided(Shape::new(&sizes)?, &strides, offset, 1 << 40);
        let strided = Layout::strided(Shape::new(&sizes)?, &strides, offset, 12);
        assert_eq!(kind(strided), Some(ErrorKind::Index), "{sizes:?} {strides:?} {offset}");
        if let Ok(layout) = layout {
            assert_eq!(kind(x.with_layout(layout)), Some(ErrorKind::Index), "{layout:?}");
        }
    }
    // A shape whose number of elements would wrap around is rejected, and the largest shapes reach
    // outside the storage.
    assert!(Shape::new(&[2, 2])?.resized(0, big).is_err());
    let most = Shape::new(&[1, 8])?.resized(0, 1 << 56)?;
    assert!(!Layout::contiguous(most).fits(12) && !Layout::contiguous(most).fits(1 << 40));
    let repeated = Layout::strided(Shape::new(&[1, 1])?, &[0, 0], 0, 12)?
        .expand(&most)
        .expect("sizes of 1 stretch");
    assert!(x.with_layout(repeated).is_ok(), "one element, repeated");
    Ok(())
}

#[test]
fn a_layout_inside_is_accepted() -> Result<()> {
    let x = twelve()?;
    for (sizes, strides, offset, want) in [
        (vec![3, 4], vec![4isize, 1], 0usize, 12),
        (vec![12], vec![-1], 11, 12),
        (vec![5, 2], vec![0, 11], 0, 10),
        (vec![0, 3], vec![isize::MAX, isize::MAX], 12, 0),
        (vec![], vec![], 11, 1),
    ] {
        let layout = Layout::strided(Shape::new(&sizes)?, &strides, offset, 12)?;
        assert_eq!(x.with_layout(layout)?.to_vec::<f32>()?.len(), want);
    }
    Ok(())
}

#[test]
fn a_storage_of_another_type_is_refused() -> Result<()> {
    let x = twelve()?;
    for dtype in DType::ALL.into_iter().filter(|&d| d != DType::F32) {
        let parts = Tensor::from_parts(x.storage().clone(), *x.layout(), dtype, x.device().clone());
        assert_eq!(kind(parts), Some(ErrorKind::DType), "{dtype}");
    }
    Ok(())
}

/// Storage that says of itself what it likes.
struct Liar(usize, DType);

impl Storage for Liar {
    fn len(&self) -> usize {
        self.0
    }
    fn dtype(&self) -> DType {
        self.1
    }
}

#[test]
fn a_result_of_another_length_or_type_names_the_device() -> Result<()> {
    let device = Reference::new();
    for (len, dtype) in [(5, DType::F32), (7, DType::F32), (6, DType::I32), (0, DType::F32)] {
        let storage: StorageRef = Arc::new(Liar(len, dtype));
        let error = Tensor::from_result(storage, Shape::new(&[2, 3])?, DType::F32, device.clone())
            .expect_err("a lie");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains(&device.info().name), "{error}");
    }
    Ok(())
}
