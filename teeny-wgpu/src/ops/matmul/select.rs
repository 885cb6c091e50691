//! The choice of the kernel for a matrix product, by sizes and strides alone.

use crate::codegen::types::accumulation;
use crate::device::adapter::Capabilities;
use crate::ops::epilogue::Epilogue;
use crate::ops::matmul::product::{Fetch, Product, Staging};
use crate::ops::software::matmul::Subgroups;
use teeny_core::DType;

/// Threads of a workgroup of the tiled kernel, and of the gemv kernel that reads across k.
pub(crate) const TILED_THREADS: usize = 256;
/// Threads of a workgroup of the other kernels.
pub(crate) const NAIVE_THREADS: usize = 64;
/// Columns of a workgroup of the gemv kernel that reads across k.
pub(crate) const GEMV_COLUMNS: usize = 32;
/// Results of a skinny product have at most this many rows or columns.
const SKINNY: usize = 16;
/// The shortest slice of k that is worth a workgroup.
pub(crate) const SLICE: usize = 256;

/// The size of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tile {
    /// 64 x 64 results.
    Small,
    /// 128 x 128.
    Large,
    /// 32 x 128: for few rows.
    Flat,
}

impl Tile {
    /// Rows of results.
    pub(crate) const fn rows(self) -> usize {
        match self {
            Tile::Small => 64,
            Tile::Large => 128,
            Tile::Flat => 32,
        }
    }

    /// Columns of results.
    pub(crate) const fn columns(self) -> usize {
        match self {
            Tile::Small => 64,
            Tile::Large | Tile::Flat => 128,
        }
    }

    /// Steps of k in workgroup memory at a time: 1024 elements of the right operand.
    pub(crate) const fn depth(self) -> usize {
        1024 / self.columns()
    }

    /// Rows, and columns, of results of a thread.
    pub(crate) const fn thread_tile(self) -> usize {
        match self {
            Tile::Small | Tile::Flat => 4,
            Tile::Large => 8,
        }
    }
}

/// The kernel on cooperative matrices of `size` x `size` elements: 4 x 4 of them for each of four
/// subgroups.
///
/// NOTE: beside software adapters one GPU has run this kernel, for `f16` (an NVIDIA H200, driver
/// 580). A driver's mistake is found by the comparison with a known product at the first use of each
/// variant, unless it crashes; it is therefore off by default ([`crate::Options::cooperative_matrices`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cooperative {
    pub size: usize,
    /// The fewest and the most threads of a subgroup.
    pub subgroup_threads: (usize, usize),
    pub lhs: Staging,
    pub rhs: Staging,
}

impl Cooperative {
    /// Steps of k in workgroup memory at a time.
    pub const DEPTH: usize = 32;
    /// Both sides of the result, and k, from which on this kernel is the fastest: smaller ones
    /// would fill less than a quarter of a tile, or of a step.
    const MIN_SIZE: usize = 32;

    /// Rows and columns of results of a workgroup.
    pub const fn tile(&self) -> usize {
        8 * self.size
    }

    /// Threads of a workgroup: at least four subgroups.
    pub const fn threads(&self) -> usize {
        4 * self.subgroup_threads.1
    }

    /// Groups of four elements of each operand that a thread fetches.
    pub const fn groups(&self) -> usize {
        self.tile() * Cooperative::DEPTH / 4 / self.threads()
    }

    /// Bytes of workgroup memory, for elements of `element` bytes.
    const fn bytes(&self, element: usize) -> usize {
        let pad = 16 / element; // as matmul_cooperative.wgsl
        2 * self.tile() * (Cooperative::DEPTH + pad) * element + 5 * self.size * self.size * 4
    }
}

/// The gemv kernel that reads along k.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AlongK {
    /// [`AlongK::TEAM`] threads compute [`AlongK::GROUP`] results, rather than a workgroup one.
    pub teams: bool,
    /// Four neighbours at a time, which begin at multiples of four elements.
    pub quads: bool,
    /// The results of a group are neighbours in a column, rather than in a row.
    pub down: bool,
}

impl AlongK {
    /// Threads of a team.
    const TEAM: usize = 8;
    /// Results of a team.
    const GROUP: usize = 4;
    /// So many results have teams.
    const MANY: usize = 2048;

    /// Threads that share results.
    pub const fn team(self) -> usize {
        if self.teams { AlongK::TEAM } else { NAIVE_THREADS }
    }

    /// The results that threads share.
    pub const fn group(self) -> usize {
        if self.teams { AlongK::GROUP } else { 1 }
    }
}

/// A kernel that computes products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MatmulKernel {
    /// One workgroup per tile of results.
    Tiled { tile: Tile, lhs: Fetch, rhs: Fetch },
    /// One workgroup per tile of results, by cooperative matrices.
    Cooperative(Cooperative),
    /// One subgroup of 8 threads per tile of results.
    Subgroups(Subgroups),
    /// A workgroup or a team per group of results, threads along k.
    GemvAlongK(AlongK),
    /// One workgroup per 32 neighbouring results, threads across and along k.
    GemvAcrossK,
    /// One thread per result.
    Naive,
}

impl MatmulKernel {
    pub(crate) fn code(self) -> u32 {
        match self {
            MatmulKernel::Tiled { tile, lhs, rhs } => {
                tile as u32 | (lhs as u32) << 2 | (rhs as u32) << 4
            }
            MatmulKernel::Cooperative(Cooperative { size, subgroup_threads, lhs, rhs }) => {
                let (fewest, most) = subgroup_threads;
                [fewest == most, size == 16, lhs.along, lhs.quads, rhs.along, rhs.quads]
                    .into_iter()
                    .fold(2 * most as u32 + 1, |code, bit| code << 1 | u32::from(bit))
            }
            MatmulKernel::GemvAlongK(AlongK { teams, quads, down }) => {
                64 | u32::from(teams) | u32::from(quads) << 1 | u32::from(down) << 2
            }
            MatmulKernel::GemvAcrossK => 72,
            MatmulKernel::Naive => 73,
            MatmulKernel::Subgroups(Subgroups { rows, columns, lhs, rhs }) => {
                [lhs.along, lhs.quads, rhs.along, rhs.quads]
                    .into_iter()
                    .fold((rows + columns) as u32, |code, bit| code << 1 | u32::from(bit))
            }
        }
    }

    /// The rows and columns of results of a workgroup, if those are tiles.
    pub(crate) fn tile(self) -> Option<(usize, usize)> {
        match self {
            MatmulKernel::Tiled { tile, .. } => Some((tile.rows(), tile.columns())),
            MatmulKernel::Cooperative(kernel) => Some((kernel.tile(), kernel.tile())),
            MatmulKernel::Subgroups(kernel) => Some((kernel.rows, 8 * kernel.columns)),
            MatmulKernel::GemvAlongK(_) | MatmulKernel::GemvAcrossK | MatmulKernel::Naive => None,
        }
    }
}

impl Product<'_> {
    /// The kernel on cooperative matrices, where it is used: the GPU has matrices that multiply
    /// elements of this type and add in its accumulation type, a workgroup fits, and no size is
    /// small, unless `all_sizes`. No hardware has run it: see [`Cooperative`].
    pub fn cooperative(&self, gpu: &Capabilities, all_sizes: bool) -> Option<Cooperative> {
        let sums = accumulation(self.dtype);
        let suits = self.m.min(self.n).min(self.k) >= Cooperative::MIN_SIZE;
        let (fewest, most) = gpu.subgroup_threads;
        let (lhs, rhs) = (self.lhs.staging(self.k, self.m), self.rhs.staging(self.k, self.n));
        let kernel = |size: u32| Cooperative {
            size: size as usize,
            subgroup_threads: (fewest as usize, most as usize),
            lhs,
            rhs,
        };
        let fits = |kernel: &Cooperative| {
            let groups = kernel.tile() * Cooperative::DEPTH / 4;
            kernel.threads() <= gpu.workgroup_threads as usize
                && groups.is_multiple_of(kernel.threads())
                && kernel.bytes(self.dtype.size()) <= gpu.workgroup_memory as usize
        };
        gpu.cooperative_matrices
            .iter()
            .filter(|c| c.input == self.dtype && c.accumulator == sums && (suits || all_sizes))
            .map(|c| kernel(c.size))
            .filter(fits)
            .max_by_key(|kernel| kernel.size)
    }

    pub fn tiled(&self, tile: Tile) -> MatmulKernel {
        MatmulKernel::Tiled {
            tile,
            lhs: self.lhs.fetch(self.m, self.dtype),
            rhs: self.rhs.fetch(self.n, self.dtype),
        }
    }

    /// The kernel for these sizes. `busy` is the number of workgroups that the GPU needs.
    pub fn select_kernel(&self, busy: usize) -> MatmulKernel {
        let size = accumulation(self.dtype).size();
        if self.m >= SKINNY && self.n >= SKINNY {
            let (down, across) = self.tiles((Tile::Large.rows(), Tile::Large.columns()));
            let large =
                size == 4 && self.m > 64 && self.n > 64 && self.batch * down * across >= busy;
            return self.tiled(if large {
                Tile::Large
            } else if self.m <= 32 && self.n > 64 && size == 4 {
                Tile::Flat
            } else {
                Tile::Small
            });
        }
        if self.k < 2 * NAIVE_THREADS {
            return MatmulKernel::Naive;
        }
        // Neighbouring threads should read neighbouring elements of the larger matrix.
        let larger = if self.m >= self.n { &self.lhs } else { &self.rhs };
        match larger.along.unsigned_abs() <= larger.across.unsigned_abs() {
            true => MatmulKernel::GemvAlongK(self.along_k()),
            false if self.n >= GEMV_COLUMNS => MatmulKernel::GemvAcrossK,
            false if self.m * self.n < 1024 => MatmulKernel::GemvAlongK(self.along_k()),
            false => MatmulKernel::Naive,
        }
    }

    /// The gemv kernel that reads along k, for these operands.
    fn along_k(&self) -> AlongK {
        let quads = self.dtype.size() <= 4
            && self.k.is_multiple_of(4)
            && self.lhs.quads_along(self.m)
            && self.rhs.quads_along(self.n);
        let teams = self.batch * self.m * self.n >= AlongK::MANY;
        AlongK { teams, quads, down: self.m >= self.n }
    }

    /// Workgroups of the gemv kernel that reads along k.
    pub fn along_k_workgroups(&self, kernel: AlongK) -> usize {
        let (length, lines) = if kernel.down { (self.m, self.n) } else { (self.n, self.m) };
        let units = self.batch * lines * length.div_ceil(kernel.group());
        units.div_ceil(NAIVE_THREADS / kernel.team())
    }

    /// Whether `kernel` writes its results, of less than 32 bits, in their type: rows are whole
    /// groups of four, and a thread of the tiled kernel has groups of four neighbours.
    pub fn packs(&self, kernel: MatmulKernel, splits: usize) -> bool {
        matches!(kernel, MatmulKernel::Tiled { .. })
            && splits == 1
            && accumulation(self.dtype) != self.dtype
            && self.dtype != DType::Bool
            && self.n.is_multiple_of(4)
    }

    /// Whether `kernel` stores what a kernel after it computes in pairs.
    pub fn pairs(&self, kernel: MatmulKernel, epilogue: &Epilogue<'_>) -> bool {
        matches!(kernel, MatmulKernel::Tiled { .. }) && epilogue.pairs(self.n)
    }

    /// Slices of k: more than one where there are few tiles and long sums.
    pub fn splits(&self, kernel: MatmulKernel, busy: usize) -> usize {
        let Some(tile) = kernel.tile() else { return 1 };
        let (down, across) = self.tiles(tile);
        (busy / (self.batch * down * across)).min(self.k / SLICE).clamp(1, 64)
    }

    /// The length of each of `splits` slices of k: whole steps, so that groups of four stay whole.
    pub fn split_length(&self, kernel: MatmulKernel, splits: usize) -> usize {
        match kernel {
            MatmulKernel::Cooperative(_) => {
                self.k.div_ceil(splits).next_multiple_of(Cooperative::DEPTH)
            }
            _ => self.k.div_ceil(splits),
        }
    }
}
