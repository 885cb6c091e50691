//! Elementwise kernels on tensors of any size.

pub(crate) mod direct;
pub(crate) mod many;

use crate::device::Wgpu;
use crate::ops::copy::{compact_all, contiguous};
use crate::ops::elementwise::direct::try_elementwise;
use std::sync::Arc;
use teeny_core::{Error, Kernel, Outputs, Result, Scalar, Shape, Tensor};

/// The outputs of `kernel` at every index of `shape`.
pub(crate) fn elementwise(
    gpu: &Wgpu,
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
) -> Result<Outputs> {
    if let Some(outputs) = try_elementwise(gpu, kernel, inputs, params, shape)? {
        return Ok(outputs);
    }
    // Neighbours of the result are further apart in some large input than a kernel reaches; in a
    // row-major copy they are within reach.
    let packed = compact_all(gpu, inputs)?;
    let packed = packed
        .iter()
        .map(|x| {
            if gpu.exceeds_binding(x) {
                gpu.tensor(contiguous(gpu, x)?, *x.shape(), x.dtype(), x)
            } else {
                Ok(x.clone())
            }
        })
        .collect::<Result<Vec<_>>>()?;
    let outputs = try_elementwise(gpu, kernel, &packed.iter().collect::<Vec<_>>(), params, shape)?;
    outputs.ok_or_else(|| {
        Error::unsupported(format!(
            "bindings of {} bytes are too small for this kernel",
            gpu.capabilities.max_binding
        ))
    })
}

#[cfg(test)]
mod tests {
    use crate::Wgpu;
    use crate::codegen::prelude::complete;
    use crate::device::launch::{Key, Launch, Program};
    use crate::device::limits::MAX_COUNT;
    use crate::device::params::Params;
    use teeny_core::{DType, DeviceRef, Result, Shape, Tensor, random};

    const DIVISIONS: &str = "
@group(0) @binding(0) var<storage, read> n: array<u32>;
@group(0) @binding(1) var<storage, read> d: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<vec2<u32>>;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    if i < arrayLength(&n) { out[i] = divide_u32(n[i], d[i]); }
}
";

    #[test]
    fn counts_are_divided_exactly() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        let most = MAX_COUNT as u32;
        // Sizes of every magnitude, and counts at and beside their multiples.
        let words = random::with_seed(17, || {
            Tensor::randint(0, i32::MAX.into(), 60_000, DType::I32, &device)?.to_vec::<i32>()
        })?;
        let mut pairs = vec![(most, 1), (most, most), (most - 1, most), (0, 1), (0, most)];
        for (i, word) in words.chunks_exact(2).enumerate() {
            let d = ((word[0] as u32) >> (i % 31)).max(1);
            let multiple = (word[1] as u32 % (most / d)).max(1) * d;
            let n = [multiple - 1, multiple, multiple.saturating_add(1), word[1] as u32][i % 4];
            pairs.push((n.min(most), d));
        }
        let column = |f: &dyn Fn(&(u32, u32)) -> u32| {
            Tensor::from_vec(pairs.iter().map(f).collect(), pairs.len(), &device)
        };
        let (n, d) = (column(&|p| p.0)?, column(&|p| p.1)?);
        let out = gpu.allocate(2 * pairs.len(), DType::U32)?;
        gpu.dispatch(&Launch {
            program: Program { key: Key::new("divisions", []), wgsl: &|| Ok(complete(DIVISIONS)) },
            inputs: &[gpu.bind_tensor(&n)?, gpu.bind_tensor(&d)?],
            outputs: &[gpu.bind(&out)?],
            params: &Params::new(),
            grid: gpu.dispatch_grid(pairs.len().div_ceil(64) as u64)?,
        })?;
        let got =
            gpu.tensor(out, Shape::new(&[pairs.len(), 2])?, DType::U32, &n)?.to_vec::<u32>()?;
        for (&(n, d), got) in pairs.iter().zip(got.chunks_exact(2)) {
            assert_eq!(got, [n / d, n % d], "{n} / {d}");
        }
        Ok(())
    }
}
