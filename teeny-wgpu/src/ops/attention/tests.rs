//! Attention in every tile, with the keys split as on a large GPU, against the definition.

use super::*;
use crate::Options;
use teeny_core::{Attention, DeviceRef, Reference, Shape, random};

type Sizes = [usize; 4];

fn operands(sizes: Sizes, dtype: DType, device: &DeviceRef) -> Result<[Tensor; 3]> {
    let [queries, keys, hs, hv] = sizes;
    random::with_seed(5, || {
        let draw = |rows: usize, columns: usize| {
            Tensor::rand((2, rows, columns), DType::F32, device)?.sub(0.5)?.cast(dtype)
        };
        Ok([draw(queries, hs)?, draw(keys, hs)?, draw(keys, hv)?])
    })
}

#[track_caller]
fn close(got: &[f32], want: &[f32], tolerance: f32, what: &str) {
    assert_eq!(got.len(), want.len(), "{what}");
    for (i, (a, b)) in got.iter().zip(want).enumerate() {
        let same = (a - b).abs() <= tolerance || a == b || a.is_nan() && b.is_nan();
        assert!(same, "{what}: element {i} is {a}, not {b}");
    }
}

#[test]
fn every_tile_and_every_split_gives_the_attention_of_the_definition() -> Result<()> {
    let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
    let (device, oracle) = (gpu.clone() as DeviceRef, Reference::new() as DeviceRef);
    for (sizes, causal, dtype) in [
        ([3, 300, 64, 64], false, DType::F32),
        ([40, 150, 12, 130], true, DType::F32),
        ([9, 70, 33, 20], true, DType::F16),
    ] {
        let causal_from = Attention::causal(sizes[1] - sizes[0]);
        let options = if causal { causal_from } else { Attention::full() };
        let run = |device: &DeviceRef| -> Result<(Tensor, Tensor)> {
            let [q, k, v] = operands(sizes, dtype, device)?;
            let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options };
            inputs.composed()
        };
        let (y, lse) = run(&oracle)?;
        let want = (y.cast(DType::F32)?.to_vec::<f32>()?, lse.cast(DType::F32)?.to_vec::<f32>()?);
        let [q, k, v] = operands(sizes, dtype, &device)?;
        let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options };
        for tile in [Tile::Tall, Tile::Wide, Tile::Few] {
            for splits in [1, 3] {
                let packed = splits == 1 && sizes[3].is_multiple_of(4);
                let step = AttentionKernel {
                    tile,
                    splits,
                    packed,
                    ..AttentionKernel::new(&gpu, AttentionKind::Forward, &inputs, None)
                };
                let (y, lse) = step.forward()?;
                let y = gpu.tensor(y, Shape::new(&[2, sizes[0], sizes[3]])?, dtype, &q)?;
                let lse = gpu.tensor(lse, Shape::new(&q.shape()[..2])?, DType::F32, &q)?;
                let what = format!("{sizes:?} {dtype} {tile:?} in {splits}");
                let tolerance = if dtype == DType::F32 { 4e-6 } else { 1e-3 };
                close(&y.cast(DType::F32)?.to_vec::<f32>()?, &want.0, tolerance, &what);
                close(&lse.to_vec::<f32>()?, &want.1, 1e-3, &what);
            }
        }
    }
    Ok(())
}

/// Where the elements of an operand of four axes are.
#[derive(Clone, Copy, Debug)]
enum Rows {
    Packed,
    /// Heads next to each other in a row.
    Heads,
    /// One head for all.
    Shared,
    /// Some columns of wider rows.
    Columns,
}

/// (2, 3, `rows`, `columns`).
fn operand(at: Rows, rows: usize, columns: usize, device: &DeviceRef) -> Result<Tensor> {
    let draw = |shape: [usize; 4]| Tensor::rand(shape, DType::F32, device)?.sub(0.5)?.mul(2.0);
    match at {
        Rows::Packed => draw([2, 3, rows, columns]),
        Rows::Heads => draw([2, rows, 3, columns])?.transpose(1, 2),
        Rows::Shared => draw([2, 1, rows, columns])?.expand((2, 3, rows, columns)),
        Rows::Columns => draw([2, 3, rows, columns + 8])?.slice(3, 4..4 + columns),
    }
}

/// (2, 3, `queries`, `keys`): a query that sees nothing is among them.
fn masks(mask: Mask, queries: usize, keys: usize, device: &DeviceRef) -> Result<Option<Tensor>> {
    let allowed = Tensor::rand((3, queries, keys), DType::F32, device)?.gt(0.3)?;
    let row = Tensor::arange(0i32, queries as i32, 1, device)?.unsqueeze(1)?;
    let allowed = allowed.cast(DType::F32)?.mul(&row.ne(1)?.cast(DType::F32)?)?;
    let mask = match mask {
        Mask::None => return Ok(None),
        Mask::Bool => allowed.cast(DType::Bool)?,
        Mask::Added => allowed.log()?.add(0.25)?, // -inf, or 0.25
    };
    mask.expand((2, 3, queries, keys)).map(Some)
}

/// The kernel by subgroups, which must be the selected one, against the definition.
#[track_caller]
fn by_subgroups_as_defined(
    gpu: &std::sync::Arc<Wgpu>,
    options: Attention,
    what: &str,
    make: impl Fn(&DeviceRef) -> Result<([Tensor; 3], Option<Tensor>)>,
) -> Result<()> {
    let (device, oracle) = (gpu.clone() as DeviceRef, Reference::new() as DeviceRef);
    let ([q, k, v], mask) = random::with_seed(7, || make(&oracle))?;
    let (y, lse) =
        AttentionInputs { q: &q, k: &k, v: &v, mask: mask.as_ref(), options }.composed()?;
    let want = (y.to_vec::<f32>()?, lse.to_vec::<f32>()?);
    let ([q, k, v], mask) = random::with_seed(7, || make(&device))?;
    let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: mask.as_ref(), options };
    let step = AttentionKernel::new(gpu, AttentionKind::Forward, &inputs, None);
    assert_eq!((step.tile, step.splits, step.packed), (Tile::Subgroup, 1, true), "{what}");
    let (got, logs) = step.forward()?;
    let got = gpu.tensor(got, Shape::new(y.shape())?, DType::F32, &q)?;
    let logs = gpu.tensor(logs, Shape::new(lse.shape())?, DType::F32, &q)?;
    close(&got.to_vec::<f32>()?, &want.0, 8e-6, what);
    close(&logs.to_vec::<f32>()?, &want.1, 2e-5, what);
    Ok(())
}

#[test]
fn tiles_of_subgroups_give_the_attention_of_the_definition() -> Result<()> {
    let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
    if !software::multiplies_by_subgroups(&gpu.capabilities, DType::F32) {
        return Ok(());
    }
    let limits = |queries: usize, keys: usize| {
        [
            Attention::full().scale(0.7),
            Attention::causal(keys.saturating_sub(queries)),
            Attention::causal(0).window(5),
            Attention::causal(3).window(40),
        ]
    };
    let masked = [Mask::None, Mask::Bool, Mask::Added];
    let layouts = [Rows::Packed, Rows::Heads, Rows::Shared, Rows::Columns];
    for (case, sizes) in [
        [4, 1, 4, 4],
        [5, 31, 20, 12],
        [31, 32, 64, 64],
        [33, 65, 4, 36],
        [64, 64, 32, 32],
        [65, 33, 20, 64],
        [96, 100, 132, 20],
    ]
    .into_iter()
    .enumerate()
    {
        let [queries, keys, hs, hv] = sizes;
        for (i, options) in limits(queries, keys).into_iter().enumerate() {
            for (j, mask) in masked.into_iter().enumerate() {
                let [q_at, k_at, v_at] = [case + i, i + j, case + 2 * j].map(|n| layouts[n % 4]);
                let what = format!("{sizes:?} {options:?} {mask:?} {q_at:?} {k_at:?} {v_at:?}");
                by_subgroups_as_defined(&gpu, options, &what, |device| {
                    let q = operand(q_at, queries, hs, device)?;
                    let k = operand(k_at, keys, hs, device)?;
                    let v = operand(v_at, keys, hv, device)?;
                    Ok(([q, k, v], masks(mask, queries, keys, device)?))
                })?;
            }
        }
    }
    Ok(())
}

/// NaN reaches the queries that see it; scores of -inf and large scores agree with the definition.
#[test]
fn special_numbers_pass_through_tiles_of_subgroups() -> Result<()> {
    let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
    if !software::multiplies_by_subgroups(&gpu.capabilities, DType::F32) {
        return Ok(());
    }
    for special in [f32::NAN, f32::NEG_INFINITY, 3e38, -3e38, 300.0, -300.0] {
        for options in [Attention::causal(0), Attention::full(), Attention::causal(0).window(9)] {
            by_subgroups_as_defined(&gpu, options, &format!("{special} {options:?}"), |device| {
                let k = operand(Rows::Packed, 70, 8, device)?;
                let key = Tensor::arange(0i32, 70, 1, device)?.unsqueeze(1)?;
                let number = Tensor::full((70, 1), special, DType::F32, device)?;
                // Key 40 of q @ k' = special, as the first column of q is 1.
                let column = Tensor::arange(0i32, 8, 1, device)?.eq(0)?;
                let there = key.eq(40)?.expand((70, 8))?;
                let row = column.where_cond(&number.expand((70, 8))?, &k.mul(0.0)?)?;
                let k = there.where_cond(&row, &k)?;
                let q = operand(Rows::Packed, 70, 8, device)?;
                let q = column.where_cond(&q.mul(0.0)?.add(1.0)?, &q)?;
                Ok(([q, k, operand(Rows::Packed, 70, 8, device)?], None))
            })?;
        }
    }
    Ok(())
}

#[test]
fn a_nan_reaches_the_logsumexp_in_every_tile() -> Result<()> {
    let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
    let device = gpu.clone() as DeviceRef;
    let [q, k, v] = operands([3, 300, 16, 16], DType::F32, &device)?;
    let row = Tensor::arange(0i32, 3, 1, &device)?.eq(1)?.unsqueeze(1)?;
    let q = row.expand((2, 3, 16))?.where_cond(&q.mul(f64::NAN)?, &q)?;
    let options = Attention::full();
    let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options };
    for tile in [Tile::Tall, Tile::Wide, Tile::Few] {
        for splits in [1, 3] {
            let packed = splits == 1;
            let step = AttentionKernel {
                tile,
                splits,
                packed,
                ..AttentionKernel::new(&gpu, AttentionKind::Forward, &inputs, None)
            };
            let (_, lse) = step.forward()?;
            let lse = gpu.tensor(lse, Shape::new(&[2, 3])?, DType::F32, &q)?.to_vec::<f32>()?;
            let nan: Vec<bool> = lse.iter().map(|x| x.is_nan()).collect();
            assert_eq!(nan, [false, true, false, false, true, false], "{tile:?} in {splits}");
        }
    }
    Ok(())
}

#[test]
fn operands_that_are_not_groups_of_four_keep_the_other_tiles() -> Result<()> {
    let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
    let device = gpu.clone() as DeviceRef;
    let tile = |hs: usize, hv: usize, part: bool, dtype: DType| -> Result<Tile> {
        let draw = |columns: usize| -> Result<Tensor> {
            let x = Tensor::rand((2, 40, columns + usize::from(part)), dtype, &device)?;
            x.slice(2, usize::from(part)..)
        };
        let (q, k, v) = (draw(hs)?, draw(hs)?, draw(hv)?);
        let options = Attention::full();
        let inputs = AttentionInputs { q: &q, k: &k, v: &v, mask: None, options };
        Ok(AttentionKernel::new(&gpu, AttentionKind::Forward, &inputs, None).tile)
    };
    assert_eq!(tile(32, 68, false, DType::F32)?, Tile::Tall);
    assert_eq!(tile(30, 64, false, DType::F32)?, Tile::Tall);
    assert_eq!(tile(32, 64, true, DType::F32)?, Tile::Tall);
    assert_eq!(tile(32, 64, false, DType::F16)?, Tile::Tall);
    Ok(())
}

#[test]
fn few_queries_share_their_keys_on_a_large_gpu_only() -> Result<()> {
    let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
    let software = target_workgroups(&gpu) == 1;
    for (tiles, keys, want) in [(1, 64, 1), (16, 4096, 32), (1, 100_000, 64), (4096, 4096, 1)] {
        let want = if software { 1 } else { want };
        assert_eq!(splits_of(&gpu, tiles, Tile::Few, keys), want, "{tiles} tiles, {keys} keys");
    }
    Ok(())
}
