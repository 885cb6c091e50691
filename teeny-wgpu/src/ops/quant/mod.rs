//! Products with quantised weights and their rows, whose elements are decoded from the packed bytes
//! in registers. See `shaders/quant_matmul.wgsl` and `quant_rows.wgsl`; both include
//! `quant_weight.wgsl`, and [`weight`] has the differences between types.
//!
//! A weight of several types has a launch for each. One that is larger than a binding has a launch
//! for each range of its groups. Other operands of this size are left to the definition.

mod weight;

use crate::codegen::params::{Sizes, View, shader_params};
use crate::codegen::shader::{Start, shader};
use crate::device::Wgpu;
use crate::device::launch::{Binding, Key, Launch, Program};
use crate::ops::binding::{WINDOW_ALIGNMENT, bind_window};
use crate::ops::copy::{compact, contiguous};
use crate::ops::indexing::{AxisRange, THREADS, axis_position, check_indices};
use crate::ops::matmul::target_workgroups;
use crate::ops::software::multiplies_by_subgroups;
use std::ops::Range;
use teeny_core::quant::{GROUP, Part, packed_parts};
use teeny_core::{DType, QuantType, Result, Shape, StorageRef, Tensor};
use weight::{SUB, functions};

shader_params! {
    /// Parameters of `quant_matmul.wgsl`.
    struct ProductParams() {
        m: usize,
        /// The group of four where x begins.
        x_start: usize,
        /// The columns of y.
        n: usize,
        /// Sub-blocks of a row.
        sub_blocks: usize,
        /// The word where the groups of this launch begin, and their number.
        start: usize,
        groups: usize,
        /// Tiles of rows of x.
        tiles: usize,
        /// The first column of y of this launch, and their number.
        column0: usize,
        columns: usize,
    }
}

shader_params! {
    /// Parameters of `quant_rows.wgsl`.
    struct RowParams(axes: usize) {
        /// Groups of four elements of y.
        quads: usize,
        sub_blocks: usize,
        start: usize,
        is_first: u32,
        axis_size: usize,
        range_low: usize,
        range_length: usize,
        error_record: u32,
        sizes: Sizes[axes],
        index: View[axes],
    }
}

/// The part of the product that a workgroup computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tile {
    /// Rows of x.
    pub rows: usize,
    /// Groups of 16 rows of the weight.
    pub groups: usize,
    /// Teams of 16 threads, which share k.
    pub teams: usize,
    /// Groups of four elements of a sub-block, 1 or 8, whose loads a thread begins together.
    pub unrolled: usize,
    /// Whether the 8 threads of a subgroup load different rows of x for each other.
    pub broadcasts: bool,
}

impl Tile {
    /// The tile for `m` rows of x and `groups` groups, where `busy` workgroups keep the GPU busy.
    /// On llvmpipe (2 threads, 2048 x 2048 weights of Q4_0) 64 rows of x take 12.4 ms by 8 of them
    /// with broadcasts, 9.3 by 16, and 29.7 by 8 without; one takes 0.8 ms by 2 groups, 1.2 by 4.
    /// On an H200 a row times Q4_0 of 32,768 x 4096 takes 171 us by 8 teams, 154 by 16 and 97 by 16
    /// that unroll; of 2048 x 4096 44, 25 and 29.
    fn of(m: usize, groups: usize, busy: usize, broadcasts: bool) -> Tile {
        let rows = m.next_power_of_two().min(if broadcasts { 16 } else { 8 });
        let workgroups = |each: usize| groups.div_ceil(each) * m.div_ceil(rows);
        let most = groups.min(2 * rows);
        let fits = |each: &usize| *each <= most && workgroups(*each) >= 4 * busy;
        let each = [4, 2].into_iter().find(fits).unwrap_or(1);
        let teams = match rows * each {
            // one processor takes a workgroup of a software adapter: its teams would take turns
            _ if busy == 1 => 1,
            ..=16 => 16,
            _ => 8,
        };
        let unrolled = if busy > 1 && (rows, each) == (1, 2) { 8 } else { 1 };
        Tile { rows, groups: each, teams, unrolled, broadcasts }
    }
}

/// The shader of the product with rows of type `kind`.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn product_wgsl(kind: QuantType, tile: Tile) -> Result<String> {
    shader!("quant_matmul")
        .params(&ProductParams::declaration())
        .include(functions(kind))
        .number("rows", tile.rows)
        .number("groups", tile.groups)
        .number("teams", tile.teams)
        .number("loads", if tile.broadcasts { tile.rows.div_ceil(8) } else { tile.rows })
        .number("unrolled", tile.unrolled)
        .flag("broadcasts", tile.broadcasts)
        .flag("joins", tile.teams > 1)
        .render()
}

/// The shader of rows of type `kind` at indices of type `index`.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn rows_wgsl(kind: QuantType, axes: usize, index: DType) -> Result<String> {
    shader!("quant_rows")
        .params(&RowParams::declaration(axes))
        .include(functions(kind))
        .input("index", index)
        .include(axis_position(3, index))
        .addresses("element", "", axes, &[("index", Start::Offset)])
        .number("threads", THREADS)
        .render()
}

/// Rows of one type that a launch reaches.
struct Piece<'a> {
    kind: QuantType,
    /// Their numbers in the weight.
    rows: Range<usize>,
    blocks: Binding<'a>,
    /// The word of the binding where they begin.
    start: usize,
}

/// The pieces of a weight whose bytes begin at a whole word.
fn pieces<'a>(
    gpu: &Wgpu,
    blocks: &'a Tensor,
    parts: &[Part],
    columns: usize,
) -> Result<Option<Vec<Piece<'a>>>> {
    let limit = gpu.capabilities.max_binding;
    let within = (limit as usize / 32 * 32).saturating_sub(WINDOW_ALIGNMENT + 32);
    let (mut all, mut row, mut byte) = (Vec::new(), 0, 0);
    for part in parts {
        let group = GROUP * part.kind.row_bytes(columns)?;
        let most = if gpu.exceeds_binding(blocks) { within / group } else { usize::MAX / GROUP };
        let end = row + part.rows;
        while row < end {
            let rows = row..end.min(row.saturating_add(most * GROUP));
            if rows.is_empty() {
                return Ok(None); // one group is larger than a binding
            }
            let bytes = rows.len().div_ceil(GROUP) * group;
            let (low, high) = (byte as isize, (byte + bytes - 1) as isize);
            let offset = blocks.layout().offset() as isize;
            let Some((binding, at)) = bind_window(blocks.storage(), offset, 1, low, high, limit)?
            else {
                return Ok(None);
            };
            let start = ((at + low) / 4) as usize;
            (row, byte) = (rows.end, byte + bytes);
            all.push(Piece { kind: part.kind, rows, blocks: binding, start });
        }
    }
    Ok(Some(all))
}

/// `x` itself if it is row-major and begins at a multiple of four elements, else a copy.
fn aligned(gpu: &Wgpu, x: &Tensor) -> Result<Tensor> {
    if x.is_contiguous() && x.layout().offset().is_multiple_of(4) {
        return Ok(x.clone());
    }
    gpu.tensor(contiguous(gpu, x)?, *x.shape(), x.dtype(), x)
}

/// `x @ weightᵀ`; nothing if a launch does not reach x, the result, or a group of the weight.
pub(crate) fn product(
    gpu: &Wgpu,
    x: &Tensor,
    blocks: &Tensor,
    parts: &[Part],
) -> Result<Option<StorageRef>> {
    let broadcasts = multiplies_by_subgroups(&gpu.capabilities, DType::F32);
    product_by(gpu, x, blocks, parts, target_workgroups(gpu), broadcasts)
}

/// [`product`] by the tiles of [`Tile::of`].
fn product_by(
    gpu: &Wgpu,
    x: &Tensor,
    blocks: &Tensor,
    parts: &[Part],
    busy: usize,
    broadcasts: bool,
) -> Result<Option<StorageRef>> {
    let columns = x.shape().last().copied().unwrap_or(0);
    let [n, _] = packed_parts(parts, columns)?;
    let m = x.numel().checked_div(columns).unwrap_or(0);
    let count = m.saturating_mul(n);
    if count == 0 {
        return gpu.allocate(0, DType::F32).map(Some);
    }
    let (x, blocks) = (&aligned(gpu, &compact(gpu, x)?)?, &aligned(gpu, blocks)?);
    if gpu.exceeds_binding(x) || gpu.len_exceeds_binding(count, DType::F32) {
        return Ok(None);
    }
    let Some(pieces) = pieces(gpu, blocks, parts, columns)? else { return Ok(None) };
    let y = gpu.allocate(count, DType::F32)?;
    for Piece { kind, rows, blocks, start } in pieces {
        let groups = rows.len().div_ceil(GROUP);
        let tile = Tile::of(m, groups, busy, broadcasts);
        let tiles = m.div_ceil(tile.rows);
        let params = ProductParams {
            m,
            x_start: x.layout().offset() / 4,
            n,
            sub_blocks: columns / SUB,
            start,
            groups,
            tiles,
            column0: rows.start,
            columns: rows.len(),
        };
        let Tile { rows: of_x, groups: each, teams, unrolled, .. } = tile;
        let variant = [kind as usize, of_x, each, teams, unrolled, broadcasts.into()];
        let variant = variant.map(|n| n as u32);
        gpu.dispatch(&Launch {
            program: Program {
                key: Key::new("quant_matmul", variant),
                wgsl: &|| product_wgsl(kind, tile),
            },
            inputs: &[gpu.bind_tensor(x)?, blocks],
            outputs: &[gpu.bind(&y)?],
            params: &params.words(),
            grid: gpu.dispatch_grid((tiles * groups.div_ceil(each)) as u64)?,
        })?;
    }
    Ok(Some(y))
}

/// The rows `index` of a weight; nothing if it has no rows, or a launch does not reach the index,
/// the result, or a group of the weight.
pub(crate) fn rows(
    gpu: &Wgpu,
    blocks: &Tensor,
    index: &Tensor,
    parts: &[Part],
    columns: usize,
) -> Result<Option<StorageRef>> {
    gpu.require(index.dtype(), "quant_rows")?;
    let [all_rows, _] = packed_parts(parts, columns)?;
    let count = index.numel().saturating_mul(columns);
    let too_large = gpu.exceeds_binding(index) || gpu.len_exceeds_binding(count, DType::F32);
    if all_rows == 0 || too_large {
        return Ok(None);
    }
    let blocks = &aligned(gpu, blocks)?;
    let Some(pieces) = pieces(gpu, blocks, parts, columns)? else { return Ok(None) };
    let (y, axes, dtype) = (gpu.allocate(count, DType::F32)?, index.ndim(), index.dtype());
    for (i, Piece { kind, rows, blocks, start }) in pieces.into_iter().enumerate() {
        let range =
            AxisRange { size: all_rows, low: rows.start, length: rows.len(), whole_index: true };
        let (records, error_record) = range.record(gpu, index);
        let params = RowParams {
            quads: count / 4,
            sub_blocks: columns / SUB,
            start,
            is_first: (i == 0).into(),
            axis_size: range.size,
            range_low: range.low,
            range_length: range.length,
            error_record,
            sizes: index.shape()[..].into(),
            index: View::new(index.layout().offset(), index.strides()),
        };
        let key = Key::new("quant_rows", [kind as u32, axes as u32, dtype as u32]);
        gpu.dispatch(&Launch {
            program: Program { key, wgsl: &|| rows_wgsl(kind, axes, dtype) },
            inputs: &[blocks, gpu.bind_tensor(index)?],
            outputs: &[gpu.bind(&y)?, records],
            params: &params.words(),
            grid: gpu.dispatch_grid((count / 4).div_ceil(THREADS) as u64)?,
        })?;
    }
    check_indices(gpu, index, 0, &Shape::new(&[all_rows, columns])?)?;
    Ok(Some(y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use teeny_core::DeviceRef;

    #[test]
    fn tiles_keep_within_workgroup_memory_and_the_groups() {
        for (m, groups) in (1..70).flat_map(|m| (1..600).map(move |groups| (m, groups))) {
            for (busy, broadcasts) in [(1, false), (1, true), (128, false)] {
                let tile = Tile::of(m, groups, busy, broadcasts);
                assert!(tile.rows < 2 * m && tile.groups <= groups, "{m} {groups} {tile:?}");
                let bytes = 64 * tile.teams * tile.rows * tile.groups;
                assert!(tile.teams == 1 || bytes <= 16384, "{m} {groups} {tile:?}");
            }
        }
    }

    #[test]
    fn every_tile_makes_the_same_product() -> Result<()> {
        let Ok(gpu) = Wgpu::with_options(&Options::default()) else { return Ok(()) };
        let device = gpu.clone() as DeviceRef;
        let parts = [(QuantType::Q4K, 50), (QuantType::Q5_1, 65), (QuantType::Mxfp4, 3)];
        let parts = parts.map(|(kind, rows)| Part { kind, rows });
        for m in [1, 2, 3, 8, 21] {
            let columns = 768;
            let [n, bytes] = packed_parts(&parts, columns)?;
            let bytes: Vec<u8> = (0..bytes).map(|i| (i * i % 0x3b) as u8).collect();
            let blocks = Tensor::from_bytes(&bytes, bytes.len(), DType::U8, &device)?;
            let x = Tensor::arange(0i32, (m * columns) as i32, 1, &device)?.rem(5)?;
            let x = x.cast(DType::F32)?.reshape((m, columns))?;
            let run = |busy, broadcasts| {
                let y = product_by(&gpu, &x, &blocks, &parts, busy, broadcasts)?;
                let y = y.ok_or_else(|| teeny_core::Error::internal("no kernel"))?;
                gpu.tensor(y, Shape::new(&[m, n])?, DType::F32, &x)?.to_vec::<f32>()
            };
            let want = run(1, false)?;
            let mut others = vec![run(3, false)?, run(128, false)?];
            if multiplies_by_subgroups(&gpu.capabilities, DType::F32) {
                others.push(run(1, true)?);
            }
            let largest = want.iter().fold(0f32, |most, y| most.max(y.abs()));
            for (a, b) in others.iter().flat_map(|y| y.iter().zip(&want)) {
                assert!((a - b).abs() <= 1e-5 * largest, "{m}: {a}, not {b}");
            }
        }
        Ok(())
    }
}
