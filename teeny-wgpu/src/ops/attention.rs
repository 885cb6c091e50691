//! Attention without the matrix of scores: a workgroup takes 16 rows of one side past tiles of 16
//! rows of the other. See `shaders/attention.wgsl` and `attention_grad.wgsl`.
//!
//! Each result is summed by one thread in a fixed order. Heads wider than 256, f64, very few
//! queries and tensors larger than a binding take the definition.

use crate::codegen::params::{Declaration, Field, Sizes, View, shader_params};
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types;
use crate::device::Wgpu;
use crate::device::launch::{Key, Launch, Program};
use crate::device::params::Params;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use teeny_core::{AttentionInputs, DType, Layout, Result, StorageRef, Tensor};

/// Rows of a tile.
const ROWS: usize = 16;
/// Columns of an operand in workgroup memory at a time.
const WIDTH: usize = 64;
/// Fewer queries than this leave most of a tile empty.
const FEW: usize = 4;
/// Farther than every key: limits of the band end here, so that sums of them and positions stay
/// signed numbers.
const FAR: usize = i32::MAX as usize / 4;

/// A batch of matrices: `name_row_stride`, `name_column_stride` and the members of a [`View`].
#[derive(Clone, Copy)]
struct MatrixView {
    row_stride: isize,
    column_stride: isize,
    batch: View,
}

impl Field for MatrixView {
    type Extent = usize;
    fn declare(name: &str, axes: usize, declaration: &mut Declaration) {
        isize::declare(&format!("{name}_row_stride"), (), declaration);
        isize::declare(&format!("{name}_column_stride"), (), declaration);
        View::declare(name, axes, declaration);
    }
    fn push(&self, params: &mut Params) {
        self.row_stride.push(params);
        self.column_stride.push(params);
        self.batch.push(params);
    }
}

shader_params! {
    /// Parameters of `attention.wgsl` and `attention_grad.wgsl`.
    struct AttentionParams(axes: usize) {
        batches: usize,
        queries: usize,
        keys: usize,
        /// Columns of q and k.
        key_size: usize,
        /// Columns of v, g and y.
        value_size: usize,
        /// Tiles of the own side.
        tiles: usize,
        scale: f32,
        /// Query t sees key s exactly if 0 <= t + offset - s < window.
        offset: usize,
        window: usize,
        /// See [`Mask`].
        mask_kind: u32,
        sizes: Sizes[axes],
        q: MatrixView[axes],
        k: MatrixView[axes],
        v: MatrixView[axes],
        g: MatrixView[axes],
        mask: MatrixView[axes],
    }
}

/// The result of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// y and the logsumexp.
    Forward,
    /// The gradient for the queries.
    Queries,
    /// The gradients for keys and values.
    Keys,
}

/// The limit of the scores besides the band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    None = 0,
    Bool = 1,
    Added = 2,
}

/// Everything that the text depends on. These shaders are long, so whatever can be data is: the
/// mask, the sizes, and all but the magnitude of the widths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub kind: Kind,
    pub dtype: DType,
    /// Joint axes of the batch: 4, or 8.
    pub axes: usize,
    /// Groups of 64 columns: 1, 2 or 4.
    pub column_groups: usize,
}

impl Plan {
    fn variant(self) -> Vec<u32> {
        [self.kind as u32, self.dtype as u32, self.axes as u32, self.column_groups as u32].to_vec()
    }

    /// The shader.
    ///
    /// # Errors
    /// As [`Shader::render`].
    pub fn wgsl(self) -> Result<String> {
        let (template, operands): (Shader, &[&str]) = match self.kind {
            Kind::Forward => (shader!("attention"), &["q", "k", "v"]),
            Kind::Queries | Kind::Keys => (shader!("attention_grad"), &["q", "k", "v", "g"]),
        };
        let shader = operands
            .iter()
            .fold(template, |shader, name| shader.input(name, self.dtype))
            .params(&AttentionParams::declaration(self.axes));
        // A mask is bytes or numbers, so it is declared as words.
        let added = match self.dtype {
            DType::F32 => "bitcast<f32>(mask[p])".to_string(),
            half => types::load(half, "mask", "p"),
        };
        let allows = types::load(DType::Bool, "mask", "p");
        let views: Vec<(&str, Start)> =
            operands.iter().chain(&["mask"]).map(|name| (*name, Start::Offset)).collect();
        let shader = shader
            .addresses("batch", "", self.axes, &views)
            .function(&format!("fn mask_allows(p: u32) -> bool {{ return {allows}; }}\n"))
            .function(&format!("fn mask_value(p: u32) -> f32 {{ return {added}; }}\n"))
            .include(self.tiles())
            .number("column_groups", self.column_groups)
            .number("width", WIDTH)
            .number("rows", ROWS);
        // Result, its weights, the operand that they weigh, its rows and columns.
        let results: &[[&str; 5]] = match self.kind {
            Kind::Forward => return shader.render(),
            Kind::Queries => &[["dq", "slopes", "k", "queries", "key_size"]],
            Kind::Keys => &[
                ["dk", "slopes", "q", "keys", "key_size"],
                ["dv", "weights", "g", "keys", "value_size"],
            ],
        };
        let column = |i: usize| results.iter().map(move |r| r[i].to_string());
        shader
            .flag("keys", self.kind == Kind::Keys)
            .number("results", results.len())
            .list("result_names", column(0))
            .list("result_weights", column(1))
            .list("result_others", column(2))
            .list("result_rows", column(3))
            .list("result_columns", column(4))
            .render()
    }

    /// The functions that fetch tiles and multiply them.
    fn tiles(self) -> Shader {
        // Own and other operand of each product of rows, and the operands that are fetched besides.
        let (dots, others): (&[[&str; 2]], &[&str]) = match self.kind {
            Kind::Forward => (&[["q", "k"]], &["v"]),
            Kind::Queries => (&[["q", "k"], ["g", "v"]], &[]),
            Kind::Keys => (&[["k", "q"], ["v", "g"]], &[]),
        };
        let fetches: Vec<(&str, &str)> = dots
            .iter()
            .flat_map(|[own, other]| [("own", *own), ("other", *other)])
            .chain(others.iter().map(|other| ("other", *other)))
            .collect();
        let rows = |operand: &str| if matches!(operand, "q" | "g") { "queries" } else { "keys" };
        let columns =
            |operand: &str| if matches!(operand, "q" | "k") { "key_size" } else { "value_size" };
        shader!("attention_tiles")
            .number("rows", ROWS)
            .number("width", WIDTH)
            .number("fetches", fetches.len())
            .list("tiles", fetches.iter().map(|f| f.0.to_string()))
            .list("operands", fetches.iter().map(|f| f.1.to_string()))
            .list("row_counts", fetches.iter().map(|f| rows(f.1).to_string()))
            .list("column_counts", fetches.iter().map(|f| columns(f.1).to_string()))
            .number("dots", dots.len())
            .list("dot_own", dots.iter().map(|d| d[0].to_string()))
            .list("dot_other", dots.iter().map(|d| d[1].to_string()))
            .list("dot_columns", dots.iter().map(|d| columns(d[0]).to_string()))
    }
}

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
        && !empty
        && queries >= FEW
        && queries.saturating_add(keys) < FAR
        && hs.max(hv) <= 4 * WIDTH
        && !all.into_iter().flatten().any(|x| gpu.exceeds_binding(x))
        && !gpu.len_exceeds_binding(widest, DType::F32)
}

/// Records one of the kernels; `rest` are g and the statistics of a backward pass.
fn launch_attention(
    gpu: &Wgpu,
    kind: Kind,
    inputs: &AttentionInputs<'_>,
    rest: Option<(&Tensor, &Tensor)>,
    outputs: &[StorageRef],
) -> Result<()> {
    let [queries, keys, hs, hv] = inputs.sizes();
    let q = inputs.q;
    let lead = q.ndim() - 2;
    let operands = [Some(inputs.q), Some(inputs.k), Some(inputs.v), rest.map(|r| r.0), inputs.mask];
    let layouts: Vec<&Layout> = operands.iter().map(|x| x.unwrap_or(q).layout()).collect();
    let leading: Vec<usize> = (0..lead).collect();
    let joint = Coalesced::over(q.shape(), &layouts, &leading)?.padded_to(4);
    let batches: usize = q.shape()[..lead].iter().product();
    let own = if kind == Kind::Keys { keys } else { queries };
    let tiles = own.div_ceil(ROWS);
    // Without a causal limit every key is in the band: the offset is that of the last key, the
    // window has no end.
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
    let column_groups = hs.max(hv).div_ceil(WIDTH).next_power_of_two();
    let plan = Plan { kind, dtype: q.dtype(), axes: joint.sizes.len(), column_groups };
    // Without a mask the queries are bound in its place and not read.
    let bound = [operands[0], operands[1], operands[2], operands[3], inputs.mask.or(Some(q))];
    let mut bindings =
        bound.into_iter().flatten().map(|x| gpu.bind_tensor(x)).collect::<Result<Vec<_>>>()?;
    if let Some((_, stats)) = rest {
        bindings.push(gpu.bind_tensor(stats)?);
    }
    let written = outputs.iter().map(|out| gpu.bind(out)).collect::<Result<Vec<_>>>()?;
    gpu.dispatch(&Launch {
        program: Program { key: Key::new("attention", plan.variant()), wgsl: &|| plan.wgsl() },
        inputs: &bindings,
        outputs: &written,
        params: &params.words(),
        grid: gpu.dispatch_grid((batches * tiles) as u64)?,
    })
}

/// y and the logsumexp, or nothing where the definition is used.
pub(crate) fn attention(
    gpu: &Wgpu,
    inputs: &AttentionInputs<'_>,
) -> Result<Option<(StorageRef, StorageRef)>> {
    if !can_fuse(gpu, inputs) {
        return Ok(None);
    }
    let [_, _, hs, hv] = inputs.sizes();
    let rows = inputs.q.numel() / hs;
    let (y, lse) = (gpu.allocate(rows * hv, DType::F32)?, gpu.allocate(rows, DType::F32)?);
    launch_attention(gpu, Kind::Forward, inputs, None, &[y.clone(), lse.clone()])?;
    Ok(Some((cast_to_storage(gpu, y, inputs.q.dtype(), inputs.q)?, lse)))
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
    let dtype = inputs.q.dtype();
    // Both kernels need the logsumexp and sum(g y) of each query.
    let along = g.cast(DType::F32)?.mul(&y.cast(DType::F32)?)?.sum(-1)?;
    let stats = Tensor::stack(&[&lse.cast(DType::F32)?, &along], 0)?;
    let mut grads = [None, None, None];
    if needs[0] {
        let d_q = gpu.allocate(inputs.q.numel(), DType::F32)?;
        launch_attention(
            gpu,
            Kind::Queries,
            inputs,
            Some((g, &stats)),
            std::slice::from_ref(&d_q),
        )?;
        grads[0] = Some(cast_to_storage(gpu, d_q, dtype, inputs.q)?);
    }
    if needs[1] || needs[2] {
        let (d_k, d_v) = (
            gpu.allocate(inputs.k.numel(), DType::F32)?,
            gpu.allocate(inputs.v.numel(), DType::F32)?,
        );
        launch_attention(gpu, Kind::Keys, inputs, Some((g, &stats)), &[d_k.clone(), d_v.clone()])?;
        grads[1] = if needs[1] { Some(cast_to_storage(gpu, d_k, dtype, inputs.q)?) } else { None };
        grads[2] = if needs[2] { Some(cast_to_storage(gpu, d_v, dtype, inputs.q)?) } else { None };
    }
    Ok(Some(grads))
}
