//! Tensors larger than one binding, and launches of more workgroups than an axis has: every family
//! of kernels, on a device that pretends to bind 8 KiB and to launch 64 workgroups a row, against
//! the oracle.

use crate::common;
use teeny_core::{DType, DeviceRef, Reference, Result, SortOrder, Tensor, Window, random};
use teeny_wgpu::{Options, Wgpu};

fn small() -> Option<DeviceRef> {
    common::gpu()?;
    let options = Options::new().with_max_binding(Some(8192)).with_max_workgroups(Some(64));
    Some(Wgpu::with_options(&options).expect("the device that was there a moment ago"))
}

/// Numbers of every size that stay exact in sums of thousands, different ones for every `seed`.
fn numbers(shape: &[usize], dtype: DType, seed: u64, device: &DeviceRef) -> Result<Tensor> {
    random::with_seed(seed, || {
        Tensor::randint(
            if dtype.is_signed_int() || dtype.is_float() { -4 } else { 0 },
            5,
            shape,
            DType::I32,
            device,
        )?
        .cast(dtype)
    })
}

/// Runs `body` on the small device and on the oracle, in several types and shapes of some 20,000
/// elements.
fn agree(
    name: &str,
    shapes: &[&[usize]],
    types: &[DType],
    body: impl Fn(&Tensor) -> Result<Tensor>,
) -> Result<()> {
    let Some(device) = small() else { return Ok(()) };
    let oracle = Reference::new() as DeviceRef;
    for &dtype in types {
        for &shape in shapes {
            let run = |device: &DeviceRef| {
                numbers(shape, dtype, 5, device).and_then(|x| body(&x)).and_then(|y| y.to_scalars())
            };
            let got = run(&device).map_err(|e| e.note(format!("{name} of {dtype} {shape:?}")))?;
            assert!(got == run(&oracle)?, "{name} of {dtype} {shape:?}");
        }
    }
    Ok(())
}

const SHAPES: &[&[usize]] = &[&[20_000], &[100, 200], &[8, 2500], &[6, 50, 70]];
const MATRICES: &[&[usize]] = &[&[100, 200], &[8, 2500], &[2500, 8], &[6, 50, 70]];
const TYPES: &[DType] = &[DType::F32, DType::I8, DType::F16, DType::I64];

#[test]
fn elementwise_kernels_copies_and_joins() -> Result<()> {
    agree("add", SHAPES, TYPES, |x| x.add(x))?;
    agree("copy of a transpose", MATRICES, TYPES, |x| x.transpose(0, -1)?.contiguous())?;
    agree("cat", MATRICES, TYPES, |x| Tensor::cat(&[x, &x.flip(0)?], 1))?;
    agree("assignment", MATRICES, TYPES, |x| x.add(0)?.slice_assign(1, 2..7, &x.slice(1, 1..6)?))
}

#[test]
fn reductions_of_all_of_rows_and_of_columns() -> Result<()> {
    agree("sum", SHAPES, &[DType::F32, DType::I32, DType::I64], |x| x.sum_all())?;
    agree("max", SHAPES, TYPES, |x| x.max_all())?;
    agree("sum of columns", MATRICES, &[DType::F32, DType::I32], |x| x.sum(0))?;
    agree("sum of rows", MATRICES, &[DType::F32, DType::I32], |x| x.sum(-1))?;
    agree("argmax", SHAPES, TYPES, |x| x.argmax(0))?;
    agree("argmin", SHAPES, TYPES, |x| x.argmin(-1))?;
    agree("any", SHAPES, TYPES, |x| x.eq(4)?.any(0))?;
    agree("mean of squares", SHAPES, &[DType::F32], |x| x.mul(x)?.mean_all())
}

#[test]
fn scans_and_sorts() -> Result<()> {
    agree("running sum", SHAPES, &[DType::F32, DType::I64], |x| x.cumsum(0))?;
    agree("running sum of rows", MATRICES, TYPES, |x| x.cumsum(-1))?;
    agree("sort", &[&[100, 200], &[12, 900]], TYPES, |x| Ok(x.sort(-1, SortOrder::Ascending)?.0))?;
    agree("argsort", &[&[100, 200], &[900, 12]], TYPES, |x| x.argsort(0, SortOrder::Descending))
}

#[test]
fn gather_and_scatter() -> Result<()> {
    let index = |x: &Tensor, size: i64| {
        numbers(x.shape(), DType::I32, 9, x.device())?.abs()?.mul(7)?.rem(size as i32)
    };
    // One line has to fit: a gather selects from it.
    let matrices: &[&[usize]] = &[&[100, 200], &[12, 900], &[900, 12], &[6, 50, 70]];
    agree("gather", matrices, TYPES, |x| x.gather(0, &index(x, x.shape()[0] as i64)?))?;
    agree("gather of part", matrices, TYPES, |x| x.gather(-1, &index(x, 8)?.slice(0, 0..5)?))?;
    agree("scatter", matrices, TYPES, |x| x.scatter_add(-1, &index(x, 8)?, x))?;
    // Few rows of many: halves of the rows begin where a binding may, or do not.
    let tables: &[&[usize]] = &[&[1024, 16], &[900, 12], &[2, 2048], &[1, 20_000]];
    agree("rows of a table", tables, TYPES, |x| {
        let few = index(&x.slice(0, 0..x.shape()[0].min(3) as isize)?, x.shape()[0] as i64)?;
        x.gather(0, &few)
    })
}

#[test]
fn rows_times_a_transposed_table() -> Result<()> {
    // The output layer of a model: one row for a token, and some.
    let tables: &[&[usize]] = &[&[1024, 16], &[900, 12], &[2, 5000], &[1, 20_000]];
    for rows in [1, 2] {
        agree("logits", tables, TYPES, |x| {
            let row = x.slice(0, 0..1)?.contiguous()?.expand((rows, x.shape()[1] as isize))?;
            row.matmul(&x.t()?)
        })?;
    }
    Ok(())
}

#[test]
fn softmax_of_rows_in_pieces_equals_softmax_of_rows() -> Result<()> {
    let Some(device) = small() else { return Ok(()) };
    let oracle = Reference::new() as DeviceRef;
    for axis in [0, 1] {
        let run = |device: &DeviceRef| {
            numbers(&[90, 100], DType::F32, 3, device)?.softmax(axis)?.to_vec::<f32>()
        };
        assert!(run(&device)?.iter().zip(run(&oracle)?).all(|(a, b)| (a - b).abs() <= 1e-6));
    }
    Ok(())
}

#[test]
fn small_parts_of_a_large_tensor_need_no_other_axis() -> Result<()> {
    let part = |x: &Tensor| x.reshape(x.numel())?.slice(0, 9000..9700);
    agree("sort", SHAPES, TYPES, |x| Ok(part(x)?.sort(0, SortOrder::Descending)?.0))?;
    agree("one element", SHAPES, TYPES, |x| x.reshape(x.numel())?.slice(0, 777..778)?.max_all())?;
    agree("argmax", SHAPES, TYPES, |x| part(x)?.argmax(0))?;
    agree("running product", SHAPES, &[DType::F32], |x| part(x)?.slice(0, 0..5)?.cumprod(0))
}

#[test]
fn random_numbers_do_not_depend_on_the_windows_they_are_drawn_in() -> Result<()> {
    let Some(device) = small() else { return Ok(()) };
    let oracle = Reference::new() as DeviceRef;
    for dtype in [DType::I8, DType::I32, DType::I64] {
        let run = |device: &DeviceRef| {
            random::with_seed(1, || Tensor::randint(-100, 100, 20_000, dtype, device)?.to_scalars())
        };
        assert!(run(&device)? == run(&oracle)?, "{dtype}");
    }
    Ok(())
}

/// `body` on a small part of a storage larger than a binding, on the small device and on the
/// oracle; at most `tolerance` apart.
fn agree_on_parts(
    name: &str,
    tolerance: f64,
    body: impl Fn(&dyn Fn(&[usize], u64) -> Result<Tensor>) -> Result<Tensor>,
) -> Result<()> {
    let Some(device) = small() else { return Ok(()) };
    let oracle = Reference::new() as DeviceRef;
    let run = |device: &DeviceRef| -> Result<Vec<f32>> {
        // 70 elements into a storage of 20,000, so that a part begins within a binding's alignment.
        let part = |shape: &[usize], seed: u64| {
            let numel = shape.iter().product::<usize>();
            numbers(&[20_000], DType::F32, seed, device)?
                .slice(0, 9070..9070 + numel as isize)?
                .reshape(shape)
        };
        body(&part)?.to_vec::<f32>()
    };
    let (got, want) = (run(&device).map_err(|e| e.note(name.to_string()))?, run(&oracle)?);
    assert!(
        got.len() == want.len()
            && got.iter().zip(&want).all(|(a, b)| ((a - b) as f64).abs() <= tolerance),
        "{name}: {got:?} is not {want:?}"
    );
    Ok(())
}

#[test]
fn small_parts_of_large_storages_serve_every_family() -> Result<()> {
    agree_on_parts("copy", 0.0, |part| {
        part(&[30, 40], 1)?.add(0)?.slice_assign(1, 2..7, &part(&[30, 5], 2)?)
    })?;
    agree_on_parts("layer norm", 1e-5, |part| {
        part(&[6, 50], 1)?.layer_norm(1, Some(&part(&[50], 2)?), Some(&part(&[50], 3)?), 1e-5)
    })?;
    agree_on_parts("rms norm", 1e-5, |part| {
        part(&[6, 50], 1)?.rms_norm(1, Some(&part(&[50], 2)?), 1e-5)
    })?;
    agree_on_parts("matmul", 0.0, |part| part(&[6, 50], 1)?.matmul(&part(&[50, 4], 2)?))?;
    agree_on_parts("product of one element", 0.0, |part| {
        part(&[1, 1], 1)?.matmul(&part(&[1, 1], 2)?)
    })?;
    agree_on_parts("conv2d", 0.0, |part| {
        part(&[2, 3, 8, 8], 1)?.conv(&part(&[4, 3, 3, 3], 2)?, &Window::new(2))
    })?;
    agree_on_parts("max pool", 0.0, |part| {
        part(&[2, 3, 8, 8], 1)?.max_pool(&[2, 2], &Window::new(2))
    })?;
    agree_on_parts("softmax", 1e-6, |part| part(&[6, 50], 1)?.softmax(0))?;
    agree_on_parts("gather", 0.0, |part| {
        part(&[50], 1)?.gather(0, &part(&[20], 2)?.abs()?.cast(DType::I32)?)
    })?;
    agree_on_parts("scatter", 0.0, |part| {
        part(&[50], 1)?.scatter_add(0, &part(&[20], 2)?.abs()?.cast(DType::I32)?, &part(&[20], 3)?)
    })?;
    agree_on_parts("sum of an expanded part", 0.0, |part| {
        part(&[1, 10], 1)?.expand((1000, 10))?.sum(0)
    })?;
    agree_on_parts("scan of an expanded part", 0.0, |part| part(&[1], 1)?.expand(3000)?.cumsum(0))
}

#[test]
fn reductions_whose_results_are_wider_than_their_inputs_are_made_in_pieces() -> Result<()> {
    let shapes: &[&[usize]] = &[&[3500, 2], &[2, 3500], &[7000, 1]];
    agree("max of rows", shapes, &[DType::U8, DType::I8, DType::F16], |x| x.max(-1))?;
    agree("min of columns", shapes, &[DType::U8, DType::I16], |x| x.min(0))?;
    agree("position in columns", &[&[2, 3500]], &[DType::U8], |x| x.argmax(0))
}
