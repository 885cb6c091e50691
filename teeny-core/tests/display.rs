//! Row A09: what tensors look like when printed.

use teeny_core::{DType, Reference, Result, Tensor};

#[test]
fn prints_are_readable() -> Result<()> {
    let device = Reference::new();
    let text = |t: Tensor| t.to_string();
    assert_eq!(text(Tensor::new(2.5f32, &device)?), "2.5000 () f32 on reference");
    assert_eq!(text(Tensor::new([1.0f32, 2.0], &device)?), "[1., 2.] (2,) f32 on reference");
    assert_eq!(
        text(Tensor::new([[1.0f32, -2.5], [0.1, 3.0]], &device)?),
        "[[ 1.0000, -2.5000],\n [ 0.1000,  3.0000]] (2, 2) f32 on reference"
    );
    assert_eq!(text(Tensor::new([true, false], &device)?), "[ true, false] (2,) bool on reference");
    assert_eq!(
        text(Tensor::new([[10i64], [-3]], &device)?),
        "[[10],\n [-3]] (2, 1) i64 on reference"
    );
    assert_eq!(
        text(Tensor::new([f32::NAN, f32::INFINITY, 1.5], &device)?),
        "[   nan,    inf, 1.5000] (3,) f32 on reference"
    );
    assert_eq!(
        text(Tensor::new([1e-7f32, 1.0], &device)?),
        "[1.0000e-7,  1.0000e0] (2,) f32 on reference"
    );
    assert_eq!(text(Tensor::zeros((0, 3), DType::F32, &device)?), "[] (0, 3) f32 on reference");
    assert_eq!(
        text(Tensor::arange(0i32, 8, 1, &device)?.reshape((2, 2, 2))?),
        "[[[0, 1],\n  [2, 3]],\n\n [[4, 5],\n  [6, 7]]] (2, 2, 2) i32 on reference"
    );
    Ok(())
}

#[test]
fn long_axes_show_their_ends() -> Result<()> {
    let device = Reference::new();
    let long = Tensor::arange(0i32, 2000, 1, &device)?;
    assert_eq!(
        long.to_string(),
        "[   0,    1,    2, ..., 1997, 1998, 1999] (2000,) i32 on reference"
    );
    let wide = Tensor::arange(0i32, 4000, 1, &device)?.reshape((1000, 4))?;
    let text = wide.to_string();
    assert_eq!(text.lines().count(), 7, "{text}");
    assert!(text.contains("[   8,    9,   10,   11],\n ...,\n [3988"), "{text}");
    Ok(())
}
