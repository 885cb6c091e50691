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
        assert!((a - b).abs() <= tolerance || a == b, "{what}: element {i} is {a}, not {b}");
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
                let step =
                    Step { tile, splits, packed, ..Step::new(&gpu, Kind::Forward, &inputs, None) };
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
