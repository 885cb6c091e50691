//! The shaders of attention: which tiles a kernel has, and its text. Independent of tensors.

use crate::codegen::params::{Declaration, Field, Sizes, View, shader_params};
use crate::codegen::shader::{Shader, Start, shader};
use crate::codegen::types;
use crate::device::params::Params;
use crate::ops::software;
use teeny_core::{DType, Result};

/// Columns of both sides in workgroup memory at a time.
const DEPTH: usize = 16;
/// Threads of the kernel that joins the results of parts.
pub(super) const COMBINE_THREADS: usize = 128;

/// A batch of matrices: `name_row_stride`, `name_column_stride` and the members of a [`View`].
#[derive(Clone, Copy)]
pub(super) struct MatrixView {
    pub row_stride: isize,
    pub column_stride: isize,
    pub batch: View,
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
    pub(super) struct AttentionParams(axes: usize) {
        batches: usize,
        queries: usize,
        keys: usize,
        /// Columns of q and k.
        key_size: usize,
        /// Columns of v, g and y.
        value_size: usize,
        /// Tiles of the own side.
        tiles: usize,
        /// Workgroups that share the keys of a tile.
        splits: usize,
        scale: f32,
        /// Query t sees key s exactly if 0 <= t + offset - s < window.
        offset: usize,
        window: usize,
        /// 0: none, 1: bool, 2: added to the scores.
        mask_kind: u32,
        sizes: Sizes[axes],
        q: MatrixView[axes],
        k: MatrixView[axes],
        v: MatrixView[axes],
        g: MatrixView[axes],
        mask: MatrixView[axes],
    }
}

shader_params! {
    /// Parameters of `attention_combine.wgsl`.
    pub(super) struct CombineParams() {
        rows: usize,
        columns: usize,
        splits: usize,
    }
}

/// The limit of the scores besides the band.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mask {
    None = 0,
    Bool = 1,
    Added = 2,
}

/// The result of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AttentionKind {
    /// y and the logsumexp.
    Forward,
    /// The gradient for the queries.
    Queries,
    /// The gradients for keys and values.
    Keys,
}

/// How the threads of a workgroup share the tile; see `attention_tiles.wgsl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tile {
    /// 64 own and 32 other rows.
    Tall,
    /// 32 own and 64 other rows: half as many accumulators for the same columns.
    Wide,
    /// 8 own and 128 other rows.
    Few,
    /// 32 own and 32 other rows, by a subgroup of 8 threads; see `software_attention.wgsl`.
    Subgroup,
}

impl Tile {
    /// The tile for `rows` own rows and results of `columns` columns.
    pub(super) fn select(kind: AttentionKind, rows: usize, columns: usize) -> Tile {
        // At most 64 accumulators a thread in the tall tile, which has eight lanes of columns.
        let most = if kind == AttentionKind::Keys { 64 } else { 128 };
        match rows {
            0..=8 => Tile::Few,
            9..=32 => Tile::Wide,
            _ if columns > most => Tile::Wide,
            _ => Tile::Tall,
        }
    }

    /// Groups of four own rows.
    const fn own(self) -> usize {
        match self {
            Tile::Tall => 16,
            Tile::Wide | Tile::Subgroup => 8,
            Tile::Few => 2,
        }
    }

    /// Groups of four other rows.
    const fn lanes(self) -> usize {
        match self {
            Tile::Tall | Tile::Subgroup => 8,
            Tile::Wide => 16,
            Tile::Few => 32,
        }
    }

    pub(super) const fn own_rows(self) -> usize {
        4 * self.own()
    }

    pub(super) const fn other_rows(self) -> usize {
        4 * self.lanes()
    }

    /// Groups of four elements of the rows for results in workgroup memory at a time.
    const fn row_quads(self) -> usize {
        match self {
            Tile::Tall | Tile::Wide | Tile::Subgroup => 256,
            Tile::Few => 512,
        }
    }
}

/// Everything that the text depends on. These shaders are long, so whatever can be data is: the
/// mask, the sizes, and all but the magnitude of the widths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AttentionPlan {
    pub kind: AttentionKind,
    pub dtype: DType,
    /// Joint axes of the batch: 4, or 8.
    pub axes: usize,
    pub tile: Tile,
    /// Groups of four columns of a result: 8, 16, 32 or 64.
    pub column_quads: usize,
    /// Rows of all operands are groups of four neighbours.
    pub quads: bool,
    /// Results are written in their storage type, four neighbours at once.
    pub packed: bool,
    /// The mask, where the text depends on it: in the kernel by subgroups.
    pub mask: Mask,
}

impl AttentionPlan {
    pub(super) fn variant(self) -> Vec<u32> {
        let flags = self.quads as u32 | (self.packed as u32) << 1 | (self.mask as u32) << 2;
        let AttentionPlan { kind, dtype, axes, tile, column_quads, .. } = self;
        vec![kind as u32, dtype as u32, axes as u32, tile as u32, column_quads as u32, flags]
    }

    /// Lanes that share the columns of a result.
    fn column_lanes(self) -> usize {
        self.column_quads.min(self.tile.lanes())
    }

    fn column_groups(self) -> usize {
        self.column_quads / self.column_lanes()
    }

    /// The names of the results, their weights, the operand that they weigh, its rows and columns.
    fn results(self) -> &'static [[&'static str; 5]] {
        match self.kind {
            AttentionKind::Forward => &[["y", "w", "v", "queries", "value_size"]],
            AttentionKind::Queries => &[["dq", "slope", "k", "queries", "key_size"]],
            AttentionKind::Keys => &[
                ["dk", "slope", "q", "keys", "key_size"],
                ["dv", "weight", "g", "keys", "value_size"],
            ],
        }
    }

    /// The shader.
    ///
    /// # Errors
    /// As [`Shader::render`].
    pub fn wgsl(self) -> Result<String> {
        let (template, operands): (Shader, &[&str]) = match self.kind {
            AttentionKind::Forward if self.tile == Tile::Subgroup => {
                (software::attention::template(), &["q", "k", "v"])
            }
            AttentionKind::Forward => (shader!("attention"), &["q", "k", "v"]),
            AttentionKind::Queries | AttentionKind::Keys => {
                (shader!("attention_grad"), &["q", "k", "v", "g"])
            }
        };
        let shader = operands
            .iter()
            .fold(template, |shader, name| match self.quads {
                true => shader.input_quads(name, self.dtype),
                false => shader.input(name, self.dtype),
            })
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
            .function(&format!("fn mask_value(p: u32) -> f32 {{ return {added}; }}\n"));
        if self.tile == Tile::Subgroup {
            let sizes = [self.tile.other_rows(), 4 * self.column_quads];
            let masks = [self.mask != Mask::None, self.mask == Mask::Added];
            return software::attention::with_tile(shader, self.dtype, sizes, masks).render();
        }
        let mut shader = shader
            .include(self.tiles())
            .number("column_groups", self.column_groups())
            .flag("packed", self.packed)
            .flag("parts", self.column_lanes() < self.tile.lanes());
        let word = if self.packed { types::quad(self.dtype) } else { "f32" };
        if self.packed {
            for [name, ..] in self.results() {
                let store = types::store_quad(self.dtype, name, "i", ["v.x", "v.y", "v.z", "v.w"]);
                shader = shader
                    .function(&format!("fn store_{name}(i: u32, v: vec4<f32>) {{ {store} }}\n"));
            }
        }
        if self.kind == AttentionKind::Forward {
            return shader.text("y_word", word).render();
        }
        let column = |i: usize| self.results().iter().map(move |r| r[i].to_string());
        shader
            .text("result_word", word)
            .flag("keys", self.kind == AttentionKind::Keys)
            .number("results", self.results().len())
            .list("result_names", column(0))
            .list("result_weights", column(1))
            .list("result_others", column(2))
            .list("result_rows", column(3))
            .list("result_columns", column(4))
            .render()
    }

    /// The functions that fetch tiles and multiply them.
    fn tiles(self) -> Shader {
        // Own and other operand of each product of rows.
        let (dots, operands): (&[[&str; 2]], &[&str]) = match self.kind {
            AttentionKind::Forward => (&[["q", "k"]], &["q", "k", "v"]),
            AttentionKind::Queries => (&[["q", "k"], ["g", "v"]], &["q", "k", "v", "g"]),
            AttentionKind::Keys => (&[["k", "q"], ["v", "g"]], &["q", "k", "v", "g"]),
        };
        let rows = |operand: &str| if matches!(operand, "q" | "g") { "queries" } else { "keys" };
        let columns =
            |operand: &str| if matches!(operand, "q" | "k") { "key_size" } else { "value_size" };
        let (own, lanes, rows_quads) = (self.tile.own(), self.tile.lanes(), self.tile.row_quads());
        let step = (rows_quads / self.column_quads).min(self.tile.other_rows());
        let pool = (DEPTH * (own + lanes + 2)).max(step * self.column_quads).max(own * lanes);
        shader!("attention_tiles")
            .number("own", own)
            .number("lanes", lanes)
            .number("depth", DEPTH)
            .number("column_lanes", self.column_lanes())
            .number("column_groups", self.column_groups())
            .number("step", step)
            .number("pool", pool)
            .flag("quads", self.quads)
            .number("operands", operands.len())
            .list("operand", operands.iter().map(|o| o.to_string()))
            .list("row_counts", operands.iter().map(|o| rows(o).to_string()))
            .list("column_counts", operands.iter().map(|o| columns(o).to_string()))
            .number("sources", self.results().len())
            .list("source", self.results().iter().map(|r| r[2].to_string()))
            .number("dots", dots.len())
            .list("dot_own", dots.iter().map(|d| d[0].to_string()))
            .list("dot_other", dots.iter().map(|d| d[1].to_string()))
            .list("dot_columns", dots.iter().map(|d| columns(d[0]).to_string()))
    }
}

/// The shader that joins the results of parts of the keys.
///
/// # Errors
/// As [`Shader::render`].
pub(crate) fn combine_wgsl() -> Result<String> {
    shader!("attention_combine")
        .params(&CombineParams::declaration())
        .number("threads", COMBINE_THREADS)
        .render()
}
