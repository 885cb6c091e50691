//! Rows that a workgroup keeps in registers: which rows, in how many threads, and the text that
//! softmax and normalisation share. See `shaders/row_quads.wgsl`.

use crate::codegen::shader::{Shader, shader};
use teeny_core::{DType, Tensor};

/// How a workgroup holds a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowQuads {
    pub threads: usize,
    /// Groups of four of a thread.
    pub quads: usize,
    pub subgroups: bool,
}

impl RowQuads {
    /// The smallest workgroup that holds rows of `length` elements; nothing if none does.
    pub fn of(length: usize, subgroups: bool) -> Option<RowQuads> {
        let quads = length / 4;
        let (threads, quads) = match quads {
            _ if !length.is_multiple_of(4) => return None,
            0..=64 => (64, 1),
            65..=128 => (64, 2),
            129..=256 => (64, 4),
            257..=1024 => (256, 4),
            1025..=2048 => (256, 8),
            _ => return None,
        };
        Some(RowQuads { threads, quads, subgroups })
    }

    /// As words of a key; what a device has of subgroups is the same for all its shaders.
    pub fn code(self) -> u32 {
        (self.threads + self.quads) as u32
    }

    /// `shader` with the functions of rows and the reductions `names`, of `max` and `sum`.
    pub fn fill(self, shader: Shader, names: &[&str]) -> Shader {
        let RowQuads { threads, quads, subgroups } = self;
        let rows = shader!("row_quads").number("threads", threads).flag("subgroups", subgroups);
        let shader = shader.include(rows).number("quads", quads);
        names.iter().enumerate().fold(shader, |shader, (i, name)| {
            let hole = format!("workgroup_{name}");
            let combine = if *name == "max" { "max_f32" } else { "add" };
            let reused = i > 0 || names.len() == 1;
            match subgroups {
                true => shader.subgroup_reduce(&hole, &format!("subgroup_{name}"), combine, reused),
                false => shader.workgroup_reduce(&hole, "f32", threads, combine, reused),
            }
        })
    }
}

/// True if each row of `x` is neighbours and begins at a multiple of four, for a type that is
/// computed in f32.
pub(crate) fn has_row_quads(x: &Tensor) -> bool {
    let last = x.ndim() - 1;
    matches!(x.dtype(), DType::F16 | DType::BF16 | DType::F32)
        && x.strides()[last] == 1
        && x.shape()[last].is_multiple_of(4)
        && x.layout().offset().is_multiple_of(4)
        && (0..last).all(|a| x.strides()[a] % 4 == 0 || x.shape()[a] == 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, Wgpu};
    use teeny_core::{DeviceRef, Reference, Result, RowFunction, Scalar, random};

    #[test]
    fn a_workgroup_holds_every_row_that_it_takes() {
        for length in 1..9000 {
            let Some(rows) = RowQuads::of(length, false) else {
                assert!(length % 4 != 0 || length > 8192, "{length}");
                continue;
            };
            assert!(rows.threads * rows.quads * 4 >= length, "{length}");
            assert!(rows.threads <= 256 && rows.quads <= 8);
        }
    }

    #[test]
    fn rows_in_registers_give_the_results_of_the_definition() -> Result<()> {
        let oracle = Reference::new() as DeviceRef;
        // With and without subgroup operations, where the adapter has them.
        for portable in [false, true] {
            let options = Options { portable, ..Options::default() };
            let Ok(gpu) = Wgpu::with_options(&options) else { return Ok(()) };
            let device = gpu as DeviceRef;
            for (rows, length) in [(5, 4), (3, 260), (2, 1000), (2, 4096), (1, 5000)] {
                for dtype in [DType::F32, DType::F16] {
                    let run = |device: &DeviceRef| {
                        let draw = |rows: usize| {
                            Tensor::rand((rows, length), DType::F32, device)?.cast(dtype)
                        };
                        let (x, w) = random::with_seed(9, || {
                            Ok::<_, teeny_core::Error>((draw(rows)?, draw(1)?))
                        })?;
                        let w = w.reshape(length)?;
                        let g = x.sub(0.5f32)?.mul(&w)?;
                        let (softmax, logs) = (x.softmax(-1)?, x.log_softmax(-1)?);
                        let grad = |f: RowFunction, y| f.run(&[y, &g], &[], &[1]);
                        let norm = |f: RowFunction, inputs: &[&Tensor]| {
                            f.run(inputs, &[Scalar::Float(1e-5)], &[1])
                        };
                        let (layer, rms) = (RowFunction::LayerNormGrad, RowFunction::RmsNormGrad);
                        let scale = length as f32 / 8.0;
                        let y = [
                            grad(RowFunction::SoftmaxGrad, &softmax)?.mul(scale)?,
                            softmax.mul(scale)?,
                            grad(RowFunction::LogSoftmaxGrad, &logs)?,
                            logs,
                            x.layer_norm(1, Some(&w), Some(&w), 1e-5)?,
                            x.rms_norm(1, Some(&w), 1e-5)?,
                            norm(layer, &[&x, &w, &g])?,
                            norm(rms, &[&x, &w, &g])?,
                            norm(layer, &[&x, &g])?,
                            norm(rms, &[&x, &g])?,
                            // a weight that differs from row to row
                            norm(RowFunction::LayerNorm, &[&x, &g])?,
                            norm(RowFunction::RmsNormGrad, &[&x, &g, &g])?,
                        ];
                        let y: Vec<&Tensor> = y.iter().collect();
                        Tensor::cat(&y, 0)?.cast(DType::F32)?.to_vec::<f32>()
                    };
                    let (got, want) = (run(&device)?, run(&oracle)?);
                    let tolerance = if dtype == DType::F32 { 4e-6 } else { 8e-3 };
                    for (i, (a, b)) in got.iter().zip(&want).enumerate() {
                        let what = format!("{i} of {rows} rows of {length} {dtype}");
                        assert!(
                            (a - b).abs() <= tolerance * b.abs().max(1.0),
                            "{what}: {a}, not {b}"
                        );
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn a_nan_an_infinity_and_a_row_of_minus_infinity_reach_their_row_only() -> Result<()> {
        for portable in [false, true] {
            let options = Options { portable, ..Options::default() };
            let Ok(gpu) = Wgpu::with_options(&options) else { return Ok(()) };
            let mut x = vec![1.0f32; 5 * 300];
            x[7] = f32::NAN;
            x[300 + 299] = f32::INFINITY;
            x[600..900].fill(f32::NEG_INFINITY);
            x[900] = f32::NEG_INFINITY;
            let x = Tensor::from_vec(x, (5, 300), &gpu)?;
            let y = x.softmax(-1)?.to_vec::<f32>()?;
            assert!(y[..300].iter().all(|y| y.is_nan()), "{portable} NaN");
            assert!(y[599].is_nan(), "{portable} inf: {}", y[599]);
            assert!(y[600..900].iter().all(|y| y.is_nan()), "{portable} -inf");
            assert!(y[900] == 0.0 && (y[901] - 1.0 / 299.0).abs() < 1e-8, "{portable}");
            assert!(y[1200..].iter().all(|y| (y - 1.0 / 300.0).abs() < 1e-8), "{portable}");
        }
        Ok(())
    }
}
