//! Mistakes others made, each with the test that would have caught it. Gradients have theirs in
//! teeny-autograd.

use teeny_core::{DType, Op, Reference, Result, Tensor, Window, f16};

#[test]
fn reshape_of_a_transposed_tensor_reads_its_strides() -> Result<()> {
    let x = Tensor::arange(0i32, 6, 1, Reference::new())?.reshape((2, 3))?;
    assert_eq!(x.t()?.reshape((2, 3))?.to_vec::<i32>()?, [0, 3, 1, 4, 2, 5]);
    Ok(())
}

#[test]
fn reshape_and_flip_and_expand_of_a_slice_keep_its_offset() -> Result<()> {
    let t = Tensor::arange(0i32, 8, 1, Reference::new())?;
    let s = t.slice(0, 2..6)?;
    assert_eq!(s.reshape((2, 2))?.t()?.to_vec::<i32>()?, [2, 4, 3, 5]);
    assert_eq!(s.flip(0)?.slice(0, 1..3)?.to_vec::<i32>()?, [4, 3]);
    assert_eq!(s.unsqueeze(0)?.expand((2, 4))?.slice(1, 3..)?.to_vec::<i32>()?, [5, 5]);
    Ok(())
}

#[test]
fn operations_read_strides_and_offsets_not_the_raw_buffer() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::arange(0i32, 12, 1, &device)?.reshape((3, 4))?.cast(DType::F32)?;
    for view in [
        x.t()?,
        x.slice(0, 1..)?,
        x.slice_step(1, .., 2)?,
        x.flip(1)?,
        x.at(0, 1)?.unsqueeze(0)?.expand((3, 4))?,
    ] {
        let copy = Tensor::from_vec(view.to_vec::<f32>()?, view.shape(), &device)?;
        assert_eq!(view.neg()?.to_vec::<f32>()?, copy.neg()?.to_vec::<f32>()?);
        assert_eq!(view.add(&view)?.to_vec::<f32>()?, copy.add(&copy)?.to_vec::<f32>()?);
        assert_eq!(
            view.t()?.matmul(&view)?.to_vec::<f32>()?,
            copy.t()?.matmul(&copy)?.to_vec::<f32>()?
        );
    }
    Ok(())
}

#[test]
fn shapes_are_aligned_from_the_right_in_broadcasting() -> Result<()> {
    let device = Reference::new();
    let (column, row) =
        (Tensor::new([[1i32], [2], [3]], &device)?, Tensor::new([10i32, 20, 30], &device)?);
    assert_eq!(column.add(&row)?.to_vec::<i32>()?, [11, 21, 31, 12, 22, 32, 13, 23, 33]);
    assert_eq!(
        *Tensor::zeros((2, 1, 4), DType::F32, &device)?
            .add(&Tensor::zeros((3, 1), DType::F32, &device)?)?
            .shape(),
        [2, 3, 4]
    );
    Ok(())
}

#[test]
fn promotion_is_a_lattice_not_a_priority_list() {
    assert_eq!(DType::I8.promote(DType::U8), DType::I16);
    assert_eq!(DType::I64.promote(DType::F16), DType::F16);
    assert_eq!(DType::F16.promote(DType::BF16), DType::F32);
    for (a, b) in DType::ALL.into_iter().flat_map(|a| DType::ALL.map(|b| (a, b))) {
        assert_eq!(a.promote(b), b.promote(a), "{a} {b}");
        assert_eq!(a.promote(a.promote(b)), a.promote(b), "{a} {b}");
    }
}

#[test]
fn sigmoid_has_the_right_sign_and_known_values_hold() -> Result<()> {
    let device = Reference::new();
    let at = |v: f64| Tensor::new(v, &device);
    assert!((at(2.0)?.sigmoid()?.item::<f64>()? - 0.880797).abs() < 1e-6);
    assert!((at(1.0)?.gelu()?.item::<f64>()? - 0.8413447461).abs() < 1e-9);
    assert!((at(1.0)?.gelu_tanh()?.item::<f64>()? - 0.8411919906).abs() < 1e-9);
    Ok(())
}

#[test]
fn powers_of_zero_and_of_negative_numbers() -> Result<()> {
    let device = Reference::new();
    let base = Tensor::new([0.0f32, 0.0, -2.0, -2.0, -2.0], &device)?;
    let power = base.pow(&Tensor::new([0.0f32, 2.0, 3.0, 2.0, 0.5], &device)?)?.to_vec::<f32>()?;
    assert_eq!(power[..4], [1.0, 0.0, -8.0, 4.0]);
    assert!(power[4].is_nan());
    Ok(())
}

#[test]
fn scalars_and_empty_shapes_work_everywhere() -> Result<()> {
    let device = Reference::new();
    let (scalar, empty) =
        (Tensor::new(2.0f32, &device)?, Tensor::zeros((0, 3), DType::F32, &device)?);
    assert!(scalar.is_contiguous() && empty.is_contiguous());
    assert_eq!(scalar.exp()?.log()?.add(&scalar)?.sum_all()?.item::<f32>()?, 4.0);
    assert_eq!(empty.exp()?.add(&scalar)?.sum(0)?.to_vec::<f32>()?, [0.0; 3]);
    assert_eq!(empty.matmul(&Tensor::zeros((3, 2), DType::F32, &device)?)?.numel(), 0);
    assert_eq!(empty.t()?.matmul(&empty)?.to_vec::<f32>()?, [0.0; 9]);
    assert_eq!(empty.softmax(0)?.numel(), 0);
    assert!(empty.mean(0)?.to_vec::<f32>()?.iter().all(|v| v.is_nan()));
    Ok(())
}

#[test]
fn a_not_a_number_stays_one_in_relu_max_and_clamp() -> Result<()> {
    let x = Tensor::new([f32::NAN, 1.0], Reference::new())?;
    for y in [
        x.relu()?,
        x.maximum(0)?,
        x.minimum(0)?,
        x.clamp(-1, 1)?,
        x.hardtanh()?,
        x.sign()?,
        x.max(0)?.reshape(1)?,
    ] {
        assert!(y.to_vec::<f32>()?[0].is_nan());
    }
    Ok(())
}

#[test]
fn sixteen_bit_means_do_not_overflow_on_the_way() -> Result<()> {
    let x = Tensor::full(4000, 100, DType::F16, Reference::new())?;
    assert_eq!(x.mean_all()?.item::<f16>()?, f16::from_f32(100.0));
    assert_eq!(x.var(0, 0)?.item::<f16>()?, f16::ZERO);
    Ok(())
}

#[test]
fn lerp_between_integers_by_a_fraction_is_a_fraction() -> Result<()> {
    let device = Reference::new();
    let (a, b) = (Tensor::new([0i32, 10], &device)?, Tensor::new([10i32, 20], &device)?);
    assert_eq!(a.lerp(&b, 0.25)?.to_vec::<f32>()?, [2.5, 12.5]);
    Ok(())
}

/// A pooling over several axes is one over each of them; a convolution by ones is a sum of windows.
#[test]
fn windows_over_as_many_axes_as_a_tensor_has() -> Result<()> {
    let device = Reference::new();
    for d in 1..=8 {
        let shape = [&vec![1; 8 - d][..], &vec![3; d]].concat();
        let numel = shape.iter().product::<usize>() as i32;
        let x = Tensor::arange(0i32, numel, 1, &device)?.mul(7)?.rem(11)?.cast(DType::F64)?;
        let x = x.reshape(shape)?; // (1.., 3..)
        let (mut max, mut mean) = (x.clone(), x.clone());
        for axis in 8 - d..8 {
            let last = |x: &Tensor| x.transpose(axis as isize, -1);
            max = last(&last(&max)?.max_pool(&[2], &Window::new(1))?)?;
            mean = last(&last(&mean)?.avg_pool(&[2], &Window::new(1))?)?;
        }
        let (size, window) = (vec![2; d], Window::new(d));
        let pooled = x.max_pool(&size, &window)?;
        assert_eq!(pooled.to_vec::<f64>()?, max.to_vec::<f64>()?, "{d} axes");
        let kernel_size = &size;
        let [values, positions] =
            Op::MaxPool { x: &x, kernel_size, window: &window }.tensors(x.device())?;
        let at = positions.reshape(-1)?;
        let found = x.reshape(-1)?.index_select(0, &at)?;
        assert_eq!(found.to_vec::<f64>()?, values.to_vec::<f64>()?, "{d} axes");
        let averaged = x.avg_pool(&size, &window)?;
        let near = averaged.sub(&mean)?.abs()?.max_all()?.item::<f64>()?;
        assert!(near < 1e-12, "{d} axes: {near}");
        if d <= 6 {
            let image = x.reshape([&[1, 1][..], &vec![3; d]].concat())?; // (1, 1, 3..)
            let weight = Tensor::ones([&[1, 1][..], &size].concat(), DType::F64, &device)?;
            let y = image.conv(&weight, &window)?;
            let sums = y.div(f64::from(1 << d))?.reshape(*mean.shape())?.sub(&mean)?;
            assert!(sums.abs()?.max_all()?.item::<f64>()? < 1e-12, "{d} axes");
            let (x_shape, weight_shape) = (image.shape(), weight.shape());
            let window = &window;
            let g_x = Op::ConvInputGrad { g: &y, weight: &weight, window, x_shape };
            let g_w = Op::ConvWeightGrad { g: &y, x: &image, window, weight_shape };
            // <y, y> = <x, the gradient for x> = <w, the gradient for w>
            let dot = |a: &Tensor, b: &Tensor| a.mul(b)?.sum_all()?.item::<f64>();
            let norm = dot(&y, &y)?;
            let device = image.device();
            assert!((dot(&image, &g_x.tensor(device)?)? - norm).abs() < 1e-9 * norm, "{d} axes");
            assert!((dot(&weight, &g_w.tensor(device)?)? - norm).abs() < 1e-9 * norm, "{d} axes");
        }
    }
    Ok(())
}

#[test]
fn a_negative_number_of_a_window_is_shown_as_it_was_written() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::ones((1, 1, 4, 4), DType::F32, &device)?;
    let plain = Window::new(2);
    for (window, words) in [
        (plain.clone().padding(-1), "the padding of spatial axis 0 is -1, less than 0"),
        (plain.clone().padding((1, -3)), "the padding of spatial axis 1 is -3, less than 0"),
        (plain.clone().stride(-2), "stride -2, dilation 1 and window 2 must be at least 1"),
        (plain.dilation((1, -1)), "stride 1, dilation -1 and window 2 must be at least 1"),
    ] {
        let weight = x.slice(2, ..2)?.slice(3, ..2)?; // (1, 1, 2, 2)
        for error in [x.conv(&weight, &window).err(), x.max_pool(&[2, 2], &window).err()] {
            assert_eq!(error.expect("a wrong window").message(), words);
        }
    }
    Ok(())
}

#[test]
fn scores_without_classes_have_no_target() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::zeros((2, 0), DType::F32, &device)?;
    let targets = Tensor::zeros(2, DType::I64, &device)?;
    for ignore_index in [None, Some(0), Some(-100)] {
        let error = x.cross_entropy(&targets, ignore_index).expect_err("there is no class 0");
        assert!(error.message().contains("at least one class, got scores (2, 0)"), "{error}");
    }
    Ok(())
}
