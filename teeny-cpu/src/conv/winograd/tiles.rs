//! Tiles and filters as strided memory: the operands of the transforms.

use super::{IN, OUT, POINTS};

/// Tiles or filters in memory: the first, and the strides from one to the next, from row to row and
/// from column to column.
#[derive(Clone, Copy)]
pub(super) struct Tiles<P> {
    pub first: P,
    pub next: usize,
    pub row: usize,
    pub column: usize,
}

/// The tiles of a band at all points: (tiles, 36, channels).
pub(super) fn point_tiles<P>(first: P, channels: usize) -> Tiles<P> {
    Tiles { first, next: POINTS * channels, row: IN * channels, column: channels }
}

/// The tiles of a band of pixels: (4, 4 tiles_across, channels).
pub(super) fn pixel_tiles<P>(first: P, tiles_across: usize, channels: usize) -> Tiles<P> {
    Tiles { first, next: OUT * channels, row: OUT * tiles_across * channels, column: channels }
}
