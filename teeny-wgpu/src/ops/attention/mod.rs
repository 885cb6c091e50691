//! Attention without the matrix of scores: a workgroup takes some rows of one side past tiles of
//! the other. See `shaders/attention.wgsl`, `attention_grad.wgsl` and `attention_tiles.wgsl`; on
//! software adapters, for f32 and values of up to 64 columns, `software_attention.wgsl` computes
//! the result.
//!
//! Each result is summed in a fixed order. Heads wider than 256, f64 and tensors larger than a
//! binding take the definition.
//!
//! ```text
//! mod     the launches          plan    tiles, parameters and texts          tests
//! ```

pub(crate) mod plan;
#[cfg(test)]
mod tests;

use crate::codegen::params::View;
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::options::AdapterKind;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::matmul::target_workgroups;
use crate::ops::software;
use plan::combine_wgsl;
use plan::{
    AttentionKind, AttentionParams, AttentionPlan, COMBINE_THREADS, CombineParams, Mask,
    MatrixView, Tile,
};
use teeny_core::{AttentionInputs, DType, Layout, Result, StorageRef, Tensor};

/// The widest rows.
const MAX_COLUMNS: usize = 256;
/// Farther than every key: limits of the band end here, so that sums of them and positions stay
/// signed numbers.
const FAR: usize = i32::MAX as usize / 4;

/// Fewer queries than this leave most of the smallest tile empty. A GPU, which is bound by reading
/// the keys, does not notice; a software adapter multiplies zeros.
const MIN_QUERIES: usize = 4;

/// True if the fused kernels take these operands.
fn can_fuse(gpu: &Wgpu, inputs: &AttentionInputs<'_>) -> bool {
    let [queries, keys, hs, hv] = inputs.sizes();
    let all = [Some(inputs.q), Some(inputs.k), Some(inputs.v), inputs.mask];
    let empty = inputs.q.numel() == 0 || inputs.v.numel() == 0 || keys == 0;
    let widest = inputs
        .q
        .numel()
        .max(inputs.k.numel())
        .max(inputs.v.numel())
        .max(inputs.q.numel() / hs.max(1) * hv);
    inputs.q.dtype() != DType::F64
        && inputs.options.softcap.is_none()
        && !empty
        && (queries >= MIN_QUERIES || gpu.capabilities.kind != AdapterKind::Cpu)
        && queries.saturating_add(keys) < FAR
        && hs.max(hv) <= MAX_COLUMNS
        && !all.into_iter().flatten().any(|x| gpu.exceeds_binding(x))
        && !gpu.len_exceeds_binding(widest, DType::F32)
}

/// True if every row of `x` consists of aligned groups of four neighbours.
fn is_quads(x: &Tensor) -> bool {
    let (columns, axes) = (x.ndim() - 1, x.ndim());
    let whole = |a: usize| x.strides()[a] % 4 == 0 || x.shape()[a] == 1;
    x.strides()[columns] == 1
        && x.shape()[columns].is_multiple_of(4)
        && x.layout().offset().is_multiple_of(4)
        && (0..axes - 1).all(whole)
}

/// True if the kernel whose tiles are computed by subgroups takes these operands.
fn by_subgroups(gpu: &Wgpu, kind: AttentionKind, inputs: &AttentionInputs<'_>) -> bool {
    let [.., hv] = inputs.sizes();
    kind == AttentionKind::Forward
        && software::attention::suits(&gpu.capabilities, inputs.q.dtype(), hv)
        && [inputs.q, inputs.k, inputs.v].into_iter().all(is_quads)
}

/// Workgroups that share the keys of a tile: more than one where there are few tiles and many keys.
fn splits_of(gpu: &Wgpu, tiles: usize, tile: Tile, keys: usize) -> usize {
    // Reads of keys and values wait for memory: several workgroups a core.
    let busy = match target_workgroups(gpu) {
        1 => 1,
        busy => 4 * busy,
    };
    (busy / tiles.max(1)).min(keys.div_ceil(tile.other_rows())).clamp(1, 64)
}

/// One kernel of an attention.
struct AttentionKernel<'a> {
    gpu: &'a Wgpu,
    kind: AttentionKind,
    inputs: &'a AttentionInputs<'a>,
    /// g and the statistics of a backward pass.
    rest: Option<(&'a Tensor, &'a Tensor)>,
    tile: Tile,
    splits: usize,
    /// Whether results are written in their storage type.
    packed: bool,
}

impl<'a> AttentionKernel<'a> {
    fn new(
        gpu: &'a Wgpu,
        kind: AttentionKind,
        inputs: &'a AttentionInputs<'a>,
        rest: Option<(&'a Tensor, &'a Tensor)>,
    ) -> AttentionKernel<'a> {
        let [queries, keys, hs, hv] = inputs.sizes();
        let columns = match kind {
            AttentionKind::Forward => hv,
            AttentionKind::Queries => hs,
            AttentionKind::Keys => hs.max(hv),
        };
        let own = if kind == AttentionKind::Keys { keys } else { queries };
        let tile = match by_subgroups(gpu, kind, inputs) {
            true => Tile::Subgroup,
            false => Tile::select(kind, own, columns),
        };
        let tiles = inputs.q.numel() / (queries * hs) * own.div_ceil(tile.own_rows());
        let splits =
            if kind == AttentionKind::Forward { splits_of(gpu, tiles, tile, keys) } else { 1 };
        let whole = match kind {
            AttentionKind::Forward => hv.is_multiple_of(4),
            AttentionKind::Queries => hs.is_multiple_of(4),
            AttentionKind::Keys => hs.is_multiple_of(4) && hv.is_multiple_of(4),
        };
        AttentionKernel { gpu, kind, inputs, rest, tile, splits, packed: whole && splits == 1 }
    }

    /// The type in which the kernel writes its results.
    fn written(&self) -> DType {
        if self.packed { self.inputs.q.dtype() } else { DType::F32 }
    }

    /// A result of `len` elements as the kernel writes it.
    fn result(&self, len: usize) -> Result<StorageRef> {
        self.gpu.allocate(len, self.written())
    }

    /// A result in the type of the operands.
    fn stored(&self, storage: StorageRef) -> Result<StorageRef> {
        let q = self.inputs.q;
        cast_to_storage(self.gpu, storage, q.dtype(), q)
    }

    /// Records the kernel.
    fn launch(&self, outputs: &[StorageRef]) -> Result<()> {
        let AttentionKernel { gpu, kind, inputs, tile, splits, packed, .. } = *self;
        let [queries, keys, hs, hv] = inputs.sizes();
        let q = inputs.q;
        let lead = q.ndim() - 2;
        let g = self.rest.map(|r| r.0);
        let operands = [Some(inputs.q), Some(inputs.k), Some(inputs.v), g, inputs.mask];
        let layouts: Vec<&Layout> = operands.iter().map(|x| x.unwrap_or(q).layout()).collect();
        let leading: Vec<usize> = (0..lead).collect();
        let joint = Coalesced::over(q.shape(), &layouts, &leading)?.padded_to(4);
        let batches: usize = q.shape()[..lead].iter().product();
        let own = if kind == AttentionKind::Keys { keys } else { queries };
        let tiles = own.div_ceil(tile.own_rows());
        // Without a causal limit every key is in the band: the offset is the last key, the window
        // has no end.
        let (offset, window) = match inputs.options.causal {
            Some(_) => inputs.options.band(queries, keys),
            None => (keys, queries + keys + 1),
        };
        let mask = match inputs.mask {
            None => Mask::None,
            Some(mask) if mask.dtype() == DType::Bool => Mask::Bool,
            Some(_) => Mask::Added,
        };
        let operand = |i: usize| {
            let x = operands[i].unwrap_or(q);
            MatrixView {
                row_stride: x.strides()[lead],
                column_stride: x.strides()[lead + 1],
                batch: View::new(x.layout().offset(), &joint.strides[i]),
            }
        };
        let params = AttentionParams {
            batches,
            queries,
            keys,
            key_size: hs,
            value_size: hv,
            tiles,
            splits,
            scale: inputs.options.factor(hs) as f32,
            offset: offset.min(FAR),
            window: window.min(FAR),
            mask_kind: mask as u32,
            sizes: (&joint.sizes).into(),
            q: operand(0),
            k: operand(1),
            v: operand(2),
            g: operand(3),
            mask: operand(4),
        };
        let columns = match kind {
            AttentionKind::Forward => hv,
            AttentionKind::Queries => hs,
            AttentionKind::Keys => hs.max(hv),
        };
        let plan = AttentionPlan {
            kind,
            dtype: q.dtype(),
            axes: joint.sizes.len(),
            tile,
            column_quads: columns.div_ceil(4).next_power_of_two().max(8),
            quads: operands[..4].iter().flatten().all(|x| is_quads(x)),
            packed,
            mask: if tile == Tile::Subgroup { mask } else { Mask::None },
        };
        // Without a mask the queries are bound in its place and not read.
        let bound = [operands[0], operands[1], operands[2], operands[3], inputs.mask.or(Some(q))];
        let mut bindings =
            bound.into_iter().flatten().map(|x| gpu.bind_tensor(x)).collect::<Result<Vec<_>>>()?;
        if let Some((_, stats)) = self.rest {
            bindings.push(gpu.bind_tensor(stats)?);
        }
        let written = outputs.iter().map(|out| gpu.bind(out)).collect::<Result<Vec<_>>>()?;
        gpu.dispatch(&Launch {
            program: Program { key: Key::new("attention", plan.variant()), wgsl: &|| plan.wgsl() },
            inputs: &bindings,
            outputs: &written,
            params: &params.words(),
            grid: gpu.dispatch_grid((batches * tiles * splits) as u64)?,
        })
    }

    /// y and the logsumexp.
    fn forward(&self) -> Result<(StorageRef, StorageRef)> {
        let AttentionKernel { gpu, inputs, splits, .. } = *self;
        let [_, _, hs, hv] = inputs.sizes();
        let rows = inputs.q.numel() / hs;
        let y = self.result(splits * rows * hv)?;
        let lse = gpu.allocate(splits * rows, DType::F32)?;
        self.launch(&[y.clone(), lse.clone()])?;
        if splits == 1 {
            return Ok((self.stored(y)?, lse));
        }
        let joined = (gpu.allocate(rows * hv, DType::F32)?, gpu.allocate(rows, DType::F32)?);
        gpu.dispatch(&Launch {
            program: Program { key: Key::new("attention_combine", []), wgsl: &combine_wgsl },
            inputs: &[gpu.bind(&y)?, gpu.bind(&lse)?],
            outputs: &[gpu.bind(&joined.0)?, gpu.bind(&joined.1)?],
            params: &CombineParams { rows, columns: hv, splits }.words(),
            grid: gpu.dispatch_grid((rows * hv).div_ceil(COMBINE_THREADS) as u64)?,
        })?;
        Ok((self.stored(joined.0)?, joined.1))
    }
}

/// y and the logsumexp, or nothing where the definition is used.
pub(crate) fn attention(
    gpu: &Wgpu,
    inputs: &AttentionInputs<'_>,
) -> Result<Option<(StorageRef, StorageRef)>> {
    if !can_fuse(gpu, inputs) {
        return Ok(None);
    }
    let mut step = AttentionKernel::new(gpu, AttentionKind::Forward, inputs, None);
    let [_, _, hs, hv] = inputs.sizes();
    // The results of the parts are one buffer.
    if gpu.len_exceeds_binding(step.splits * inputs.q.numel() / hs * hv, DType::F32) {
        step = AttentionKernel { splits: 1, packed: hv.is_multiple_of(4), ..step };
    }
    step.forward().map(Some)
}

/// The gradients that `needs` requests, or `None` where the definition is used.
pub(crate) fn attention_grad(
    gpu: &Wgpu,
    inputs: &AttentionInputs<'_>,
    y: &Tensor,
    lse: &Tensor,
    g: &Tensor,
    needs: [bool; 3],
) -> Result<Option<[Option<StorageRef>; 3]>> {
    if !can_fuse(gpu, inputs) || gpu.exceeds_binding(g) {
        return Ok(None);
    }
    // Both kernels need the logsumexp and sum(g y) of each query.
    let along = g.cast(DType::F32)?.mul(&y.cast(DType::F32)?)?.sum(-1)?;
    let stats = Tensor::stack(&[&lse.cast(DType::F32)?, &along], 0)?;
    let mut grads = [None, None, None];
    if needs[0] {
        let step = AttentionKernel::new(gpu, AttentionKind::Queries, inputs, Some((g, &stats)));
        let d_q = step.result(inputs.q.numel())?;
        step.launch(std::slice::from_ref(&d_q))?;
        grads[0] = Some(step.stored(d_q)?);
    }
    if needs[1] || needs[2] {
        let step = AttentionKernel::new(gpu, AttentionKind::Keys, inputs, Some((g, &stats)));
        let (d_k, d_v) = (step.result(inputs.k.numel())?, step.result(inputs.v.numel())?);
        step.launch(&[d_k.clone(), d_v.clone()])?;
        grads[1] = if needs[1] { Some(step.stored(d_k)?) } else { None };
        grads[2] = if needs[2] { Some(step.stored(d_v)?) } else { None };
    }
    Ok(Some(grads))
}
