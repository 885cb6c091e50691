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
    use crate::ops::elementwise::direct::MANY;
    use teeny_core::{DType, DeviceRef, Reference, Result, Shape, Tensor, random};

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

    /// Views of one shape that shaders read in different ways: rows of a wider array that begin at
    /// whole groups of eight, of four and of neither, a row for all, a column, a transposed array.
    fn views(dtype: DType, rows: usize, columns: usize, device: &DeviceRef) -> Result<Vec<Tensor>> {
        let small = |shape: [usize; 2]| {
            Tensor::randint(0, 5, shape, DType::I32, device)?.cast(dtype) // exact in every type
        };
        let wider = small([rows, columns + 16])?; // (rows, columns + 16)
        let parts = [0, 8, 4, 3].map(|begin| wider.slice(1, begin..begin + columns));
        let mut all = parts.into_iter().collect::<Result<Vec<_>>>()?;
        let longer = small([rows + 2, columns])?;
        all.extend([longer.slice(0, 0..rows)?, longer.slice(0, 1..rows + 1)?]);
        all.extend([small([1, columns])?, small([rows, 1])?, small([1, 1])?]);
        all.push(small([columns, rows])?.t()?);
        all.iter().map(|x| x.expand([rows, columns])).collect()
    }

    #[test]
    fn groups_of_eight_give_the_results_of_the_definition() -> Result<()> {
        let Ok(gpu) = Wgpu::new() else { return Ok(()) };
        let (device, oracle) = (gpu as DeviceRef, Reference::new() as DeviceRef);
        let types: Vec<DType> = DType::ALL.into_iter().filter(|t| t.size() <= 4).collect();
        for (case, &dtype) in types.iter().enumerate() {
            // whole groups of eight, of four, and rows of neither
            let columns = [72, 76, 71][case % 3];
            let rows = MANY / columns + 1;
            let seed = 40 + case as u64;
            let [ours, theirs] = [&device, &oracle]
                .map(|device| random::with_seed(seed, || views(dtype, rows, columns, device)));
            let (ours, theirs) = (ours?, theirs?);
            for (i, x) in ours.iter().enumerate() {
                let to = types[(case + i) % types.len()];
                let label = format!("{dtype} view {i} of {rows} x {columns}");
                let cast = |x: &Tensor| x.cast(to)?.cast(DType::F32)?.to_vec::<f32>();
                assert_eq!(cast(x)?, cast(&theirs[i])?, "{label} cast to {to}");
                let other = (i + 1 + case) % ours.len();
                let both = |x: &Tensor, y: &Tensor| x.maximum(y)?.cast(DType::F32)?.to_vec::<f32>();
                assert_eq!(
                    both(x, &ours[other])?,
                    both(&theirs[i], &theirs[other])?,
                    "{label} and view {other}"
                );
            }
        }
        Ok(())
    }
}
