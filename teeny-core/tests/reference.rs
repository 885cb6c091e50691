//! The oracle against truths written by hand. Everything else is held against the oracle, so these
//! are the roots of trust.

use teeny_core::{DType, ErrorKind, Reference, Result, Tensor, Window, manual_seed, random};

#[test]
fn sums_and_products_over_every_axis_set() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::arange(0i32, 6, 1, &device)?.reshape((2, 3))?;
    assert_eq!(x.sum(0)?.to_vec::<i64>()?, [3, 5, 7]);
    assert_eq!(x.sum(1)?.to_vec::<i64>()?, [3, 12]);
    assert_eq!(x.sum_all()?.item::<i64>()?, 15);
    assert_eq!(x.t()?.prod(1)?.to_vec::<i64>()?, [0, 4, 10]);
    assert_eq!(x.cast(DType::F32)?.mean(0)?.to_vec::<f32>()?, [1.5, 2.5, 3.5]);
    Ok(())
}

#[test]
fn the_first_nan_is_the_largest_and_the_smallest() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::new([[1.0f32, f32::NAN, 3.0, f32::NAN], [2.0, 5.0, 5.0, 2.0]], &device)?;
    assert_eq!(x.argmax(1)?.to_vec::<i32>()?, [1, 1]);
    assert_eq!(x.argmin(1)?.to_vec::<i32>()?, [1, 0]);
    let max = x.max(1)?.to_vec::<f32>()?;
    assert!(max[0].is_nan() && max[1] == 5.0);
    Ok(())
}

#[test]
fn matmul_of_the_classic_matrices() -> Result<()> {
    let device = Reference::new();
    let a = Tensor::arange(0i64, 12, 1, &device)?.reshape((3, 4))?;
    let b = Tensor::arange(0i64, 20, 1, &device)?.reshape((4, 5))?;
    let expected = [70i64, 76, 82, 88, 94, 190, 212, 234, 256, 278, 310, 348, 386, 424, 462];
    assert_eq!(a.matmul(&b)?.to_vec::<i64>()?, expected);
    assert_eq!(b.t()?.matmul(&a.t()?)?.t()?.to_vec::<i64>()?, expected);
    Ok(())
}

#[test]
fn scans_run_along_their_axis_only() -> Result<()> {
    let x = Tensor::new([[1i32, 2, 3], [4, 5, 6]], Reference::new())?;
    assert_eq!(x.cumsum(0)?.to_vec::<i64>()?, [1, 2, 3, 5, 7, 9]);
    assert_eq!(x.cumsum(1)?.to_vec::<i64>()?, [1, 3, 6, 4, 9, 15]);
    assert_eq!(x.t()?.cumprod(0)?.to_vec::<i64>()?, [1, 4, 2, 20, 6, 120]);
    Ok(())
}

#[test]
fn the_last_of_several_arrivals_wins_and_all_are_added() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::zeros(4, DType::F32, &device)?;
    let index = Tensor::new([1i64, 3, 1, 1], &device)?;
    let src = Tensor::new([1.0f32, 2.0, 5.0, 3.0], &device)?;
    assert_eq!(x.scatter(0, &index, &src)?.to_vec::<f32>()?, [0.0, 3.0, 0.0, 2.0]);
    assert_eq!(x.scatter_add(0, &index, &src)?.to_vec::<f32>()?, [0.0, 9.0, 0.0, 2.0]);
    assert_eq!(x.scatter_max(0, &index, &src)?.to_vec::<f32>()?, [0.0, 5.0, 0.0, 2.0]);
    assert_eq!(x.scatter_min(0, &index, &src)?.to_vec::<f32>()?, [0.0; 4]);
    Ok(())
}

#[test]
fn an_index_outside_names_the_first_offender() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::zeros((2, 3), DType::F32, &device)?;
    let index = Tensor::new([[0i64, 2], [3, -1]], &device)?;
    let error = x.gather(1, &index).expect_err("3 is outside");
    assert_eq!(error.kind(), ErrorKind::Index);
    assert_eq!(error.message(), "index[1, 0] is 3, but axis 1 of (2, 3) has size 3");
    // of an index that repeats along the other axes, the place in what was repeated
    for (axis, size) in [(0, 2), (1, 3)] {
        let index = Tensor::new([0i64, 5, 9], &device)?; // (3)
        let error = x.index_select(axis, &index).expect_err("5 is outside");
        let words = format!("index[1] is 5, but axis {axis} of (2, 3) has size {size}");
        assert_eq!(error.message(), words);
    }
    Ok(())
}

#[test]
fn copies_happen_only_when_another_handle_looks() -> Result<()> {
    let device = Reference::new();
    let (x, y) = (Tensor::zeros(4, DType::I32, &device)?, Tensor::new([1i32, 2], &device)?);
    let before = teeny_core::Device::stats(&*device).allocations;
    let other = x.clone();
    let x = x.slice_assign(0, 1..3, &y)?;
    assert_eq!(teeny_core::Device::stats(&*device).allocations, before + 1);
    let x = x.slice_assign(0, 0..2, &y)?;
    assert_eq!(teeny_core::Device::stats(&*device).allocations, before + 1);
    assert_eq!(x.to_vec::<i32>()?, [1, 2, 2, 0]);
    assert_eq!(other.to_vec::<i32>()?, [0; 4]);
    Ok(())
}

#[test]
fn the_same_seed_draws_the_same_numbers() -> Result<()> {
    let device = Reference::new();
    // The process has one generator; other tests do not disturb the generator of a scope.
    random::with_seed(0, || {
        manual_seed(7);
        let first = Tensor::randn(5, DType::F32, &device)?.to_vec::<f32>()?;
        manual_seed(7);
        assert_eq!(Tensor::randn(5, DType::F32, &device)?.to_vec::<f32>()?, first);
        Ok(())
    })
}

#[test]
fn softmax_of_large_logits_stays_finite() -> Result<()> {
    let x = Tensor::new([1e4f32, 1e4, -1e4], Reference::new())?;
    assert_eq!(x.softmax(0)?.to_vec::<f32>()?, [0.5, 0.5, 0.0]);
    Ok(())
}

#[test]
fn sixteen_bit_floats_are_rounded_once() {
    use teeny_core::{Element, Scalar, bf16, f16};
    let bf = |v: f64| bf16::from_scalar(Scalar::Float(v)).to_f64();
    let hf = |v: f64| f16::from_scalar(Scalar::Float(v)).to_f64();
    // A tie, and what lies a little above and below it: bits that f32 does not have decide.
    let (tie_bf, tie_hf) = (1.0 + 2f64.powi(-8), 1.0 + 2f64.powi(-11));
    for little in [2f64.powi(-30), 2f64.powi(-40), 2f64.powi(-50)] {
        assert_eq!(
            [bf(tie_bf - little), bf(tie_bf), bf(tie_bf + little)],
            [1.0, 1.0, 1.0 + 2f64.powi(-7)]
        );
        assert_eq!(
            [hf(tie_hf - little), hf(tie_hf), hf(tie_hf + little)],
            [1.0, 1.0, 1.0 + 2f64.powi(-10)]
        );
    }
    assert!(bf(f64::NAN).is_nan() && hf(f64::from_bits(0x7ff0_0000_0000_0001)).is_nan());
    assert_eq!([bf(f64::INFINITY), hf(-1e300)], [f64::INFINITY, f64::NEG_INFINITY]);
}

/// The exact sum of equal numbers is a product: sums of f64 are off by less than a rounding of it,
/// whatever their number and order.
#[test]
fn sums_of_f64_are_exact_to_a_rounding() -> Result<()> {
    let device = Reference::new();
    let n = 70_001;
    let near = |got: f64, want: f64, name: &str| {
        let off = ((got - want) / want).abs();
        assert!(off <= 2.3e-16, "{name}: {got} is not {want}, off by {off:e}");
    };
    let x = Tensor::full(n, 0.1f64, DType::F64, &device)?; // (n)
    let (sum, square) = (n as f64 * 0.1, n as f64 * (0.1 * 0.1));
    near(x.sum_all()?.item()?, sum, "sum");
    near(x.mean_all()?.item()?, 0.1, "mean");
    near(x.cumsum(0)?.at(0, -1)?.item()?, sum, "cumsum");
    near(x.unsqueeze(0)?.matmul(&x.unsqueeze(1)?)?.item()?, square, "matmul");
    near(x.square()?.sum_all()?.item()?, square, "sum of squares");
    let zero = Tensor::zeros(1, DType::F64, &device)?;
    let index = Tensor::zeros(n, DType::I32, &device)?;
    near(zero.index_add(0, &index, &x)?.item()?, sum, "index_add");
    let kernel = Tensor::ones((1, 1, n), DType::F64, &device)?;
    let signal = x.reshape((1, 1, n))?;
    near(signal.conv(&kernel, &Window::new(1))?.item()?, sum, "conv");
    // large numbers that cancel, beside small ones
    let parts = Tensor::new([1e100f64, 1.0, -1e100, 1e-30], &device)?;
    near(parts.sum_all()?.item()?, 1.0, "sum that cancels");
    // (1 + eps)^n by its logarithm
    let factor = Tensor::full(n, 1.0 + 2f64.powi(-30), DType::F64, &device)?;
    near(factor.prod(0)?.item()?, (n as f64 * 2f64.powi(-30).ln_1p()).exp(), "prod");
    near(
        factor.cumprod(0)?.at(0, -1)?.item()?,
        (n as f64 * 2f64.powi(-30).ln_1p()).exp(),
        "cumprod",
    );
    // infinities and overflow stay what they are
    for (values, want) in [
        ([f64::INFINITY, 1.0, -1.0], f64::INFINITY),
        ([1.0, f64::NEG_INFINITY, 3.0], f64::NEG_INFINITY),
        ([1e308, 1e308, 1.0], f64::INFINITY),
    ] {
        let x = Tensor::new(values, &device)?;
        assert_eq!(x.sum_all()?.item::<f64>()?, want);
        assert_eq!(x.cumsum(0)?.at(0, -1)?.item::<f64>()?, want);
        assert_eq!(x.abs()?.prod(0)?.item::<f64>()?, f64::INFINITY);
    }
    let x = Tensor::new([f64::INFINITY, f64::NEG_INFINITY], &device)?;
    assert!(x.sum_all()?.item::<f64>()?.is_nan());
    assert_eq!(Tensor::new([1e-200f64, 1e-200], &device)?.prod(0)?.item::<f64>()?, 0.0);
    Ok(())
}
