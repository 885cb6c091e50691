//! Row-major copies of transposed and permuted views: through workgroup memory on GPUs, in
//! registers on software adapters. See `shaders/transpose.wgsl` and `software_transpose.wgsl`.

use crate::codegen::params::{Sizes, Strides, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::storage::Memory;
use crate::ops::coalesce::Coalesced;
use crate::ops::software;
use std::sync::Arc;
use teeny_core::storage::downcast;
use teeny_core::{Layout, Result, Shape, StorageRef, Tensor};

/// Threads of a workgroup.
const THREADS: usize = 256;
/// Rows, and columns, of a tile.
const TILE: usize = 32;
/// Shorter axes leave half of a tile empty.
const SHORT: usize = TILE / 2;
/// Fewer elements are copied as fast by a thread each.
const SMALL: usize = 4096;

shader_params! {
    /// Parameters of `transpose.wgsl`.
    struct TransposeParams(axes: usize) {
        matrices: usize,
        /// The size of the axis along which elements are neighbours in the source, and the stride
        /// of the result along it.
        rows: usize,
        row_stride: usize,
        /// The size of the last axis, and the stride of the source along it.
        columns: usize,
        column_stride: isize,
        sizes: Sizes[axes],
        src: View[axes],
        dst_strides: Strides[axes],
    }
}

/// The shader for elements of `size` bytes of matrices that are counted along `axes` merged axes.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
fn wgsl(axes: usize, size: usize) -> Result<String> {
    let (element, load) = match size {
        1 => ("u32", "(src[i >> 2u] >> ((i & 3u) * 8u)) & 0xffu"),
        2 => ("u32", "(src[i >> 1u] >> ((i & 1u) * 16u)) & 0xffffu"),
        4 => ("u32", "src[i]"),
        _ => ("vec2<u32>", "src[i]"),
    };
    shader!("transpose")
        .params(&TransposeParams::declaration(axes))
        .addresses("matrix", "", axes, &[("src", Start::Offset), ("dst", Start::Zero)])
        .function(&format!("fn load_src(i: u32) -> Element {{ return {load}; }}\n"))
        .text("element", element)
        .text("src_word", element)
        .number("threads", THREADS)
        .number("tile", TILE)
        .number("per_word", (4 / size).max(1))
        .render()
}

/// The shader of this way.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl_of(through: Through, axes: usize, size: usize) -> Result<String> {
    match through {
        Through::WorkgroupMemory => wgsl(axes, size),
        Through::Registers => software::transpose::template(TILE)
            .params(&TransposeParams::declaration(axes))
            .addresses("matrix", "", axes, &[("src", Start::Offset), ("dst", Start::Zero)])
            .render(),
    }
}

/// Where a matrix is transposed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Through {
    WorkgroupMemory,
    Registers,
}

impl Through {
    /// The faster way on `gpu`.
    pub fn fastest(gpu: &Wgpu) -> Through {
        match software::is_software(&gpu.capabilities) {
            true => Through::Registers,
            false => Through::WorkgroupMemory,
        }
    }
}

/// A row-major copy of `x`, or nothing where its last axis is the one of its neighbours in memory, it
/// is too small to profit, or registers do not hold its elements in blocks of 4 x 4.
pub(crate) fn transposed(gpu: &Wgpu, x: &Tensor, through: Through) -> Result<Option<StorageRef>> {
    let size = x.dtype().size();
    if x.numel() < SMALL || gpu.exceeds_binding(x) || gpu.len_exceeds_binding(x.numel(), x.dtype())
    {
        return Ok(None);
    }
    let joint = Coalesced::new(x.shape(), &[x.layout()]);
    let (sizes, strides) = (&joint.sizes, &joint.strides[0]);
    let last = sizes.len() - 1;
    let Some(inner) = (0..last).find(|&a| strides[a] == 1) else { return Ok(None) };
    let (rows, columns) = (sizes[inner], sizes[last]);
    let packed = columns.is_multiple_of((4 / size).max(1));
    if rows < SHORT || columns < SHORT || !packed || strides[last].unsigned_abs() == 0 {
        return Ok(None);
    }
    let target = Layout::contiguous(Shape::new(sizes)?);
    let others: Vec<usize> = (0..last).filter(|&a| a != inner).collect();
    let source = Layout::strided(*target.shape(), strides, x.layout().offset(), x.storage().len())?;
    let batch = Coalesced::over(target.shape(), &[&source, &target], &others)?.padded();
    let axes = batch.sizes.len();
    let whole = size == 4
        && [rows, columns, x.layout().offset()].iter().all(|n| n.is_multiple_of(4))
        && (batch.strides[0].iter().chain([&strides[last]])).all(|s| s % 4 == 0);
    if through == Through::Registers && !whole {
        return Ok(None);
    }
    let out = gpu.allocate(x.numel(), x.dtype())?;
    let matrices = x.numel() / (rows * columns);
    let params = TransposeParams {
        matrices,
        rows,
        row_stride: target.strides()[inner] as usize,
        columns,
        column_stride: strides[last],
        sizes: (&batch.sizes).into(),
        src: View::new(x.layout().offset(), &batch.strides[0]),
        dst_strides: (&batch.strides[1]).into(),
    };
    let workgroups = matrices * rows.div_ceil(TILE) * columns.div_ceil(TILE);
    gpu.dispatch(&Launch {
        program: Program {
            key: Key::new("transpose", [axes as u32, size as u32, through as u32]),
            wgsl: &|| wgsl_of(through, axes, size),
        },
        inputs: &[gpu.bind_tensor(x)?],
        outputs: &[gpu.bind(&out)?],
        params: &params.words(),
        grid: gpu.dispatch_grid(workgroups as u64)?,
    })?;
    Ok(Some(Arc::new(downcast::<Memory>(&out)?.reinterpreted(x.dtype())?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use teeny_core::{DType, DeviceRef, Reference};

    #[test]
    fn permuted_views_are_copied_in_every_width() -> Result<()> {
        let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
        let (device, oracle) = (gpu.clone() as DeviceRef, Reference::new() as DeviceRef);
        type ViewOf = fn(&Tensor) -> Result<Tensor>;
        let views: [(&str, &[usize], ViewOf); 6] = [
            ("transposed", &[72, 132], |x| x.t()),
            ("heads", &[3, 40, 2, 36], |x| x.permute([0, 2, 3, 1])),
            ("channels last", &[2, 20, 9, 16], |x| x.permute([0, 2, 3, 1])),
            ("sliced", &[80, 80], |x| x.slice(0, 4..70)?.slice(1, 3..70)?.t()),
            ("flipped", &[64, 100], |x| x.flip([0])?.t()),
            ("reversed axes", &[32, 5, 48], |x| x.permute([2, 1, 0])),
        ];
        for (name, shape, view) in views {
            for dtype in [DType::U8, DType::F16, DType::F32, DType::I64] {
                if !gpu.capabilities.supports(dtype) {
                    continue;
                }
                let run = |device: &DeviceRef| {
                    let n = shape.iter().product::<usize>() as i32;
                    let x = Tensor::arange(0i32, n, 1, device)?.cast(dtype)?.reshape(shape)?;
                    view(&x)
                };
                let x = run(&device)?;
                for through in [Through::WorkgroupMemory, Through::Registers] {
                    let copy = transposed(&gpu, &x, through)?;
                    let expected = match through {
                        Through::WorkgroupMemory => name != "sliced" || dtype.size() >= 2,
                        Through::Registers => name != "sliced" && dtype.size() == 4,
                    };
                    assert_eq!(copy.is_some(), expected, "{name} {dtype} {through:?}");
                    let Some(copy) = copy else { continue };
                    let copy = gpu.tensor(copy, *x.shape(), dtype, &x)?;
                    let expected = run(&oracle)?.to_scalars()?;
                    assert!(copy.to_scalars()? == expected, "{name} of {dtype} {through:?}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn rows_that_are_neighbours_already_are_not_transposed() -> Result<()> {
        let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        let x = Tensor::zeros((4, 64, 64), DType::F32, &device)?;
        let through = Through::fastest(&gpu);
        assert!(transposed(&gpu, &x.permute([1, 0, 2])?, through)?.is_none());
        assert!(transposed(&gpu, &x.slice(0, 0..1)?, through)?.is_none());
        assert!(transposed(&gpu, &x.slice(2, 0..1)?.expand((4, 64, 64))?, through)?.is_none());
        Ok(())
    }
}
