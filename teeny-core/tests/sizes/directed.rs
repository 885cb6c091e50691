//! Sizes, positions and numbers at the ends of their types, one by one.

use crate::alone;
use teeny_core::*;

fn refused<T>(result: Result<T>, kind: ErrorKind, words: &str) {
    let error = result.map(|_| ()).expect_err(words);
    assert!(
        error.kind() == kind && error.to_string().contains(words),
        "{:?} {error}",
        error.kind()
    );
    assert!(error.op().is_some() && error.location().is_some(), "{error} names no place");
}

fn ones(shape: impl IntoShape, dtype: DType) -> Result<Tensor> {
    Tensor::ones(shape, dtype, Reference::new())
}

#[test]
fn operands_that_broadcast_to_more_elements_than_memory_are_refused() -> Result<()> {
    // 17 n is 2^64 + 16: as a number of 64 bits, 16.
    let n = (1u128 << 64).div_ceil(17) as usize;
    let device = Reference::new();
    let column = Tensor::zeros((1, 1), DType::F32, &device)?;
    for (rows, columns) in [(17usize, n), (1 << 32, 1 << 32), (1 << 31, 1 << 34)] {
        let row = Tensor::ones(1, DType::F32, &device)?.expand(columns)?; // (columns)
        let sum = column.expand((rows, 1))?.add(&row);
        refused(sum, ErrorKind::Value, "broadcast to more elements than memory can address");
    }
    let wide = Tensor::ones((1, 1), DType::F32, &device)?.expand((1usize << 40, 1))?;
    refused(
        wide.mul(&Tensor::ones(1, DType::F32, &device)?.expand(1usize << 40)?),
        ErrorKind::Value,
        "more elements than memory",
    );
    refused(
        wide.expand((1usize << 40, 1usize << 40)),
        ErrorKind::Value,
        "more elements than memory",
    );
    Ok(())
}

#[test]
fn triangles_far_from_the_diagonal_are_everything_or_nothing() -> Result<()> {
    let x = Tensor::arange(1i32, 7, 1, Reference::new())?.reshape((2, 3))?;
    let (all, nothing) = (x.to_vec::<i32>()?, vec![0; 6]);
    for far in [i32::MAX, i32::MAX - 1, 3] {
        assert_eq!(x.tril(far)?.to_vec::<i32>()?, all, "tril({far})");
        assert_eq!(x.triu(far)?.to_vec::<i32>()?, nothing, "triu({far})");
        assert_eq!(x.tril(-far)?.to_vec::<i32>()?, nothing, "tril({})", -far);
        assert_eq!(x.triu(-far)?.to_vec::<i32>()?, all, "triu({})", -far);
    }
    assert_eq!(x.tril(i32::MIN)?.to_vec::<i32>()?, nothing);
    assert_eq!(x.triu(i32::MIN)?.to_vec::<i32>()?, all);
    Ok(())
}

#[test]
fn sizes_whose_sum_or_product_wraps_are_refused() -> Result<()> {
    let x = ones((2, 3), DType::F32)?;
    refused(x.split_sizes(1, &[usize::MAX, 4]), ErrorKind::Shape, "add up to 18446744073709551619");
    refused(
        ones((1, 0, 2, 2), DType::F32)?.pixel_shuffle(1 << 32),
        ErrorKind::Shape,
        "not divisible by 4294967296²",
    );
    refused(
        ones((1, 4, 2, 2), DType::F32)?.pixel_shuffle(1 << 33),
        ErrorKind::Shape,
        "not divisible by 8589934592²",
    );
    assert_eq!(*x.unfold(0, 1, 1 << 62)?.shape(), [1, 3, 1]);
    assert_eq!(*x.diagonal(isize::MIN, 0, 1)?.shape(), [0]);
    let huge = ones(1, DType::F32)?.expand(1usize << 59)?;
    refused(Tensor::cat(&[&huge; 70], 0), ErrorKind::Value, "more elements than memory");
    let many = Tensor::new([0i64], &huge)?.expand(1usize << 40)?;
    refused(
        huge.unsqueeze(0)?.index_select(0, &many),
        ErrorKind::Value,
        "more elements than memory",
    );
    let twice = [i64::MAX, i64::MAX, 2];
    refused(
        ones(3, DType::F32)?.repeat_each(0, &Tensor::new(twice, &huge)?),
        ErrorKind::Value,
        "the counts add up to 18446744073709551616",
    );
    Ok(())
}

#[test]
fn differences_of_an_axis_more_often_than_it_is_long_are_empty_at_once() -> Result<()> {
    let x = ones((2, 3), DType::Bool)?;
    assert_eq!(*x.diff(1, 1_000_000_000_000)?.shape(), [2, 0]);
    assert_eq!(*x.diff(1, 3)?.shape(), [2, 0]);
    assert_eq!(*x.diff(1, 2)?.shape(), [2, 1]);
    Ok(())
}

#[test]
fn positions_that_i32_does_not_hold_are_refused() -> Result<()> {
    let x = ones(1, DType::U8)?.expand((1usize << 31) + 8)?;
    let words = "2147483656 positions do not fit i32";
    refused(x.argmax(0), ErrorKind::Value, words);
    refused(x.argmin(-1), ErrorKind::Value, words);
    refused(x.sort(0, SortOrder::Descending), ErrorKind::Value, words);
    refused(x.argsort(0, SortOrder::Descending), ErrorKind::Value, words);
    refused(x.topk(3, 0, Extremum::Largest), ErrorKind::Value, words);
    refused(x.nonzero(), ErrorKind::Value, words);
    refused(x.unique(), ErrorKind::Value, words);
    refused(x.cummax(0), ErrorKind::Value, words);
    refused(x.unsqueeze(0)?.max_pool(&[2], &Window::new(1)), ErrorKind::Value, words);
    refused(x.unsqueeze(0)?.adaptive_max_pool(&[3]), ErrorKind::Value, words);
    Ok(())
}

#[test]
fn ranges_count_their_elements_exactly() -> Result<()> {
    let d = Reference::new();
    assert_eq!(
        Tensor::arange(i64::MIN, i64::MAX, 1 << 62, &d)?.to_vec::<i64>()?,
        [i64::MIN, -(1 << 62), 0, 1 << 62]
    );
    // As f64, the distance is 2^62 and the range one element shorter.
    assert_eq!(
        Tensor::arange(0, (1i64 << 62) + 1, 1 << 61, &d)?.to_vec::<i64>()?,
        [0, 1 << 61, 1 << 62]
    );
    refused(Tensor::arange(0i64, -1, 2, &d), ErrorKind::Value, "cannot count from 0 to -1");
    refused(Tensor::arange(0.0, -0.5, 1.0, &d), ErrorKind::Value, "cannot count");
    refused(Tensor::arange(0, 5, 0i64, &d), ErrorKind::Value, "cannot count");
    assert_eq!(Tensor::arange(0u64, u64::MAX, 1 << 63, &d)?.to_vec::<u64>()?, [0, 1 << 63]);
    Ok(())
}

#[test]
fn tensors_made_in_pieces_are_those_made_at_once() -> Result<()> {
    let d = Reference::new();
    let n = (1 << 20) + 3;
    let x = Tensor::arange(5u8, 255, 1, &d)?;
    assert_eq!(x.to_vec::<u8>()?, (5..255).collect::<Vec<u8>>());
    assert_eq!(Tensor::arange(0i32, n, 1, &d)?.to_vec::<i32>()?, (0..n).collect::<Vec<i32>>());
    let line = Tensor::linspace(-1.0, 2.0, n as usize, DType::F32, &d)?.to_vec::<f32>()?;
    let step = 3.0 / (n - 1) as f64;
    assert_eq!((line[0], line[n as usize - 1]), (-1.0, 2.0));
    assert_eq!(line[1 << 20], (2.0 - step * 2.0) as f32);
    assert_eq!(
        Tensor::eye(3, DType::F16, &d)?.cast(DType::I32)?.to_vec::<i32>()?,
        [1, 0, 0, 0, 1, 0, 0, 0, 1]
    );
    assert_eq!(*Tensor::eye(0, DType::Bool, &d)?.shape(), [0, 0]);
    Ok(())
}

#[test]
fn evenly_spaced_numbers_span_all_of_f64() -> Result<()> {
    let d = Reference::new();
    let ends = Tensor::linspace(f64::MIN, f64::MAX, 2, DType::F64, &d)?.to_vec::<f64>()?;
    assert_eq!(ends, [f64::MIN, f64::MAX]);
    let five = Tensor::linspace(f64::MIN, f64::MAX, 5, DType::F64, &d)?.to_vec::<f64>()?;
    assert_eq!(five, [f64::MIN, f64::MIN / 2.0, 0.0, f64::MAX / 2.0, f64::MAX]);
    Ok(())
}

#[test]
fn histograms_of_the_widest_and_the_narrowest_ranges_count_every_element() -> Result<()> {
    let d = Reference::new();
    let counts = |x: &Tensor, bins: usize| -> Result<Vec<i64>> {
        x.histogram(bins, None)?.0.to_vec::<i64>()
    };
    let x = Tensor::new([f64::MIN, -1.0, 0.0, 1.0, f64::MAX], &d)?;
    assert_eq!(counts(&x, 2)?, [2, 3]);
    assert_eq!(counts(&x, 4)?, [1, 1, 2, 1]);
    let x = Tensor::new([f32::MIN, -1e38, 1e38, 2e38, f32::MAX], &d)?;
    assert_eq!(counts(&x, 2)?, [2, 3]);
    assert_eq!(counts(&x, 8)?, [1, 0, 1, 0, 0, 1, 1, 1]);
    let x = Tensor::new([0, 100, 200, 300, 400].map(f32::from_bits), &d)?;
    assert_eq!(counts(&x, 4)?, [1, 1, 1, 2]);
    Ok(())
}

#[test]
fn a_target_is_ignored_only_if_it_is_the_number_that_is() -> Result<()> {
    let d = Reference::new();
    let x = Tensor::arange(0i32, 400, 1, &d)?.cast(DType::F32)?.mul(0.01)?.reshape((2, 200))?;
    let wide = Tensor::new([156i64, 3], &d)?;
    let expected = x.cross_entropy(&wide, Some(-100))?.to_vec::<f32>()?;
    assert!(expected[0] > 0.0);
    for dtype in [DType::U8, DType::U16, DType::I16, DType::U64] {
        let losses = x.cross_entropy(&wide.cast(dtype)?, Some(-100))?;
        assert_eq!(losses.to_vec::<f32>()?, expected, "{dtype}");
    }
    let ignored = x.cross_entropy(&wide.cast(DType::U8)?, Some(156))?.to_vec::<f32>()?;
    assert_eq!(ignored, [0.0, expected[1]]);
    assert!(
        Scalar::Int(-100).fits(DType::I8)
            && !Scalar::Int(-100).fits(DType::U64)
            && !Scalar::Int(300).fits(DType::I8)
    );
    assert!(Scalar::UInt(u64::MAX).fits(DType::U64) && !Scalar::UInt(u64::MAX).fits(DType::I64));
    Ok(())
}

#[test]
fn a_bool_from_outside_is_true_if_its_byte_is_not_0() -> Result<()> {
    let d = Reference::new();
    let x = Tensor::from_bytes(&[0, 1, 2, 255], 4, DType::Bool, &d)?;
    assert_eq!(x.to_bytes()?, [0, 1, 1, 1]);
    assert_eq!(x.sum_all()?.item::<i64>()?, 3);
    let mut file = Vec::new();
    x.write_npy(&mut file)?;
    let n = file.len();
    file[n - 1] = 7;
    let read = Tensor::from_npy(&file, &d)?;
    assert_eq!((read.to_bytes()?, read.eq(&x)?.all(0)?.item::<bool>()?), (vec![0, 1, 1, 1], true));
    Ok(())
}

#[test]
fn a_kernel_of_too_many_parameters_is_refused() {
    let builder = Builder::new();
    let sum = (0..257).map(|_| builder.param(DType::F32)).reduce(|a, b| a + b).expect("a sum");
    let error = builder.finish(&[sum]).expect_err("257 parameters");
    assert_eq!(error.message(), "a kernel has at most 256 run-time parameters");
    let builder = Builder::new();
    let sum = (0..256).map(|_| builder.param(DType::F32)).reduce(|a, b| a + b).expect("a sum");
    assert_eq!(builder.finish(&[sum]).expect("256 parameters").params().len(), 256);
}

#[test]
fn values_of_two_builders_do_not_meet_in_one_kernel() {
    let words = "a kernel cannot mix values of two builders";
    let (here, there) = (Builder::new(), Builder::new());
    let x = here.input(DType::F32);
    let y = (0..9).map(|i| there.input(DType::F32) * i).last().expect("a value");
    let flag = there.input(DType::Bool);
    for build in [0, 1, 2, 3, 4] {
        let here = Builder::new();
        let x = here.input(DType::F32);
        let output = match build {
            0 => x + y,
            1 => x.where_cond(y, 1),
            2 => x.where_cond(x, y),
            3 => y,
            _ => flag.where_cond(x, 1),
        };
        let finished = if build == 4 { there.finish(&[output]) } else { here.finish(&[output]) };
        assert_eq!(finished.expect_err("two builders").message(), words, "{build}");
    }
    assert_eq!(here.finish_pruned(&[y]).expect_err("two builders").message(), words);
    let kernel = Kernel::build([DType::F32; 2], [], |[a, b], []| [a - b]).expect("a kernel");
    assert_eq!(here.embed(&kernel, &[x, x], &[]).len(), 1);
    for inputs in [vec![x], vec![x, y]] {
        let builder = Builder::new();
        let outputs = builder.embed(&kernel, &inputs, &[]);
        assert!(
            builder
                .finish(&outputs)
                .expect_err("inputs")
                .message()
                .starts_with("an embedded kernel takes 2 inputs")
        );
    }
}

#[test]
fn adaptive_windows_are_as_long_as_their_longest() -> Result<()> {
    let d = Reference::new();
    for n in 1..14 {
        let x = Tensor::arange(0i32, n as i32, 1, &d)?.cast(DType::F64)?;
        for out in 1..20 {
            let means = x.adaptive_avg_pool(&[out])?.to_vec::<f64>()?;
            let (largest, _) = x.adaptive_max_pool(&[out])?;
            for (i, (&mean, max)) in means.iter().zip(largest.to_vec::<f64>()?).enumerate() {
                let (start, end) = (i * n / out, ((i + 1) * n).div_ceil(out));
                let sum: usize = (start..end).sum();
                assert!(
                    (mean - sum as f64 / (end - start) as f64).abs() < 1e-12
                        && max == (end - 1) as f64,
                    "{n} to {out}, window {i}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn values_that_the_host_or_the_device_has_no_room_for_are_an_error() -> Result<()> {
    if alone("directed::values_that_the_host_or_the_device_has_no_room_for_are_an_error", 1_000_000)
    {
        return Ok(());
    }
    let d = Reference::new();
    let x = Tensor::ones((1, 1, 2, 2), DType::F32, &d)?;
    let counts = Tensor::new([1i64 << 40], &d)?;
    let long = Tensor::ones(1, DType::F32, &d)?.expand(1usize << 31)?;
    let calls: [(&str, Result<()>); 18] = [
        ("arange", Tensor::arange(0i64, 1 << 40, 1, &d).map(drop)),
        ("arange of floats", Tensor::arange(0.0, 1.0, 1e-12, &d).map(drop)),
        ("linspace", Tensor::linspace(0.0, 1.0, 1 << 29, DType::F32, &d).map(drop)),
        ("randperm", Tensor::randperm(i32::MAX as usize, &d).map(drop)),
        ("eye", Tensor::eye(1 << 28, DType::U8, &d).map(drop)),
        ("histogram", x.histogram(1_000_000_000, Some((0.0, 1.0))).map(drop)),
        (
            "interpolate",
            x.interpolate(&[1 << 40, 3], Interpolation::Linear { align_corners: false }).map(drop),
        ),
        ("adaptive_avg_pool", x.adaptive_avg_pool(&[1 << 40, 3]).map(drop)),
        ("adaptive_max_pool", x.adaptive_max_pool(&[3, 1 << 40]).map(drop)),
        ("repeat_each", Tensor::ones(1, DType::F32, &d)?.repeat_each(0, &counts).map(drop)),
        ("split", long.split(0, 1).map(drop)),
        ("to_scalars", long.to_scalars().map(drop)),
        ("to_vec", long.to_vec::<f32>().map(drop)),
        ("to_bytes", long.to_bytes().map(drop)),
        ("zeros", Tensor::zeros(1usize << 40, DType::F32, &d).map(drop)),
        (
            "sum of nothing",
            Tensor::ones((0, 1), DType::F32, &d)?.expand((0, 1usize << 50))?.sum(0).map(drop),
        ),
        ("randn", Tensor::randn(1usize << 40, DType::F32, &d).map(drop)),
        ("sort", long.slice(0, 1..)?.sort(0, SortOrder::Ascending).map(drop)),
    ];
    for (name, result) in calls {
        let error = result.expect_err(name);
        assert_eq!(error.kind(), ErrorKind::OutOfMemory, "{name}: {error}");
        assert!(error.message().contains("bytes)") && error.op().is_some(), "{name}: {error}");
    }
    refused(Tensor::randperm(1 << 40, &d), ErrorKind::Value, "do not fit i32");
    refused(
        Tensor::eye(i32::MAX as usize, DType::F32, &d),
        ErrorKind::Value,
        "more elements than memory can address",
    );
    refused(
        Tensor::linspace(0.0, 1.0, usize::MAX, DType::F32, &d),
        ErrorKind::Value,
        "more elements than memory can address",
    );
    refused(
        Tensor::arange(0.0, 1.0, 1e-300, &d),
        ErrorKind::Value,
        "more elements than memory can address",
    );
    assert_eq!(x.sum_all()?.item::<f32>()?, 4.0);
    Ok(())
}
