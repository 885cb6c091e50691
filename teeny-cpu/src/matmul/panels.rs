//! A right operand that is packed once for all tiles of a product.
//!
//! The naive form packs a panel in each tile that reads it: a product of many rows then packs its
//! right operand as often as it has rows of tiles, and small tiles, which many threads need, cost
//! more. Here threads pack the panels first, each once.

use super::matrix::Matrix;
use super::pack::pack_rows;
use super::select::panel_columns;
use super::tile::Tile;
use crate::Cpu;
use crate::float::Float;
use crate::storage::{CpuStorage, Shared};
use crate::threads::for_each_chunk;
use std::marker::PhantomData;
use teeny_core::{DType, Result};

/// All columns of a right operand (k, n) as panels of k contiguous rows.
pub(super) struct Panels<T> {
    storage: CpuStorage,
    /// Rows that are multiplied at a time.
    k_block: usize,
    element: PhantomData<T>,
}

impl<T: Float> Panels<T> {
    /// Packs `rhs`.
    ///
    /// # Safety
    /// `rhs` is readable over (k, n).
    ///
    /// # Errors
    /// If allocating the panels fails.
    pub(super) unsafe fn pack(
        cpu: &Cpu,
        rhs: Matrix<T>,
        [n, k]: [usize; 2],
        k_block: usize,
    ) -> Result<Panels<T>> {
        let width = panel_columns(size_of::<T>());
        let count = n.div_ceil(width);
        let dtype = if size_of::<T>() == 4 { DType::F32 } else { DType::F64 };
        let storage = cpu.alloc(count * width * k, dtype)?;
        let to = Shared(storage.ptr().cast::<T>());
        let blocks = k.div_ceil(k_block);
        for_each_chunk(count * blocks, |task| {
            let (j, from) = (task / blocks * width, task % blocks * k_block);
            let size = [k_block.min(k - from), width.min(n - j)];
            // SAFETY: rows of one panel, which no other task writes.
            unsafe {
                let panel = to.get().add(j * k + from * width);
                pack_rows(cpu.level, rhs.at(from, j), size, panel, width);
            }
        });
        Ok(Panels { storage, k_block, element: PhantomData })
    }

    /// Computes `tile`, of the columns from `first`, panel after panel.
    ///
    /// # Safety
    /// As [`Tile::run`]; the panels belong to its product, and `first` is the first column of a
    /// panel.
    pub(super) unsafe fn multiply(&self, cpu: &Cpu, tile: Tile<T>, first: usize) {
        let ([_, n, k], width) = (tile.mnk, panel_columns(size_of::<T>()));
        for j in (0..n).step_by(width) {
            for from in (0..k).step_by(self.k_block) {
                let depth = self.k_block.min(k - from);
                // SAFETY: by contract.
                unsafe {
                    let panel = self.storage.ptr().cast::<T>().add((first + j) * k + from * width);
                    tile.of_panel(j, [from, depth], panel).run(cpu.level);
                }
            }
        }
    }
}
