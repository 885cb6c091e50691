//! Rows of a file, and the same bytes as devices keep them: 16 rows interleaved.
//!
//! A vector then holds the same few elements of 16 rows, and their scales. A group of 16 rows has
//! its blocks one after another; in a block, each field ([`QuantType::fields`]) has its bytes in
//! units, of 16 rows one after another:
//!
//! ```text
//! rows (n, blocks, fields, units, unit) ↔ groups (n / 16, blocks, fields, units, 16, unit)
//! ```
//!
//! Rows of zeros pad the last group. Packing does not change the size of a row.

use super::QuantType;
use crate::error::{Error, Result};
use crate::memory;

/// The rows that are interleaved.
pub const GROUP: usize = 16;

/// Rows of one type in a quantised matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Part {
    /// The type of the rows.
    pub kind: QuantType,
    /// How many rows.
    pub rows: usize,
}

impl Part {
    /// The bytes of the part, with `columns` elements a row, as devices keep them.
    ///
    /// # Errors
    /// If rows are not whole blocks, or the bytes overflow.
    pub fn bytes(&self, columns: usize) -> Result<usize> {
        let rows = self.rows.checked_next_multiple_of(GROUP);
        let bytes = rows.and_then(|n| n.checked_mul(self.kind.row_bytes(columns).ok()?));
        match bytes {
            Some(bytes) if bytes <= isize::MAX as usize => Ok(bytes),
            _ => {
                self.kind.row_bytes(columns)?;
                let text = format!("the bytes of {} rows of {columns} overflow", self.rows);
                Err(Error::value(text).help("divide the matrix"))
            }
        }
    }
}

/// The rows and the bytes of all parts.
///
/// # Errors
/// As [`Part::bytes`]; if `parts` is empty.
pub fn packed_parts(parts: &[Part], columns: usize) -> Result<[usize; 2]> {
    if parts.is_empty() {
        return Err(Error::value("a quantised matrix has at least one part")
            .help("pass the type and the number of its rows"));
    }
    let overflow =
        || Error::value("the rows of a quantised matrix overflow").help("divide the matrix");
    parts.iter().try_fold([0, 0], |[rows, bytes]: [usize; 2], part| {
        let sum = |a: usize, b| a.checked_add(b).filter(|n| *n <= isize::MAX as usize);
        let rows = sum(rows, part.rows).ok_or_else(overflow)?;
        Ok([rows, sum(bytes, part.bytes(columns)?).ok_or_else(overflow)?])
    })
}

/// Calls `f` with the place of each unit in the rows, its place in the groups, and its length.
fn units(part: &Part, columns: usize, mut f: impl FnMut(usize, usize, usize)) -> Result<()> {
    let (row, block) = (part.kind.row_bytes(columns)?, part.kind.block_bytes());
    for first in (0..part.rows).step_by(GROUP) {
        let lanes = GROUP.min(part.rows - first);
        for b in 0..row / block {
            let (from, to) = (first * row + b * block, first * row + b * block * GROUP);
            for field in part.kind.fields() {
                for unit in (field.at..field.at + field.len).step_by(field.unit) {
                    for lane in 0..lanes {
                        let to = to + unit * GROUP + lane * field.unit;
                        let from = from + lane * row + unit;
                        // lengths that the compiler knows become one move
                        match field.unit {
                            4 => f(from, to, 4),
                            2 => f(from, to, 2),
                            n => f(from, to, n),
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

impl Part {
    /// Interleaves up to 16 rows, which follow each other in blocks, to their group in `to`.
    ///
    /// # Errors
    /// If `to` is not as long as 16 rows, or `rows` are more or not whole.
    pub(crate) fn pack_group(&self, rows: &[u8], columns: usize, to: &mut [u8]) -> Result<()> {
        let row = self.kind.row_bytes(columns)?;
        let lanes = rows.len() / row;
        if lanes > GROUP || rows.len() != lanes * row || to.len() != GROUP * row {
            return Err(Error::internal("the rows of a group have other bytes"));
        }
        if lanes < GROUP {
            to.fill(0);
        }
        units(&Part { rows: lanes, ..*self }, columns, |from, at, n| {
            to[at..at + n].copy_from_slice(&rows[from..from + n]);
        })
    }

    /// Copies block `b` of row `row` from `groups` to `to`.
    ///
    /// # Errors
    /// If `groups` do not have it, or `to` is shorter than a block.
    pub fn block(
        &self,
        groups: &[u8],
        columns: usize,
        row: usize,
        b: usize,
        to: &mut [u8],
    ) -> Result<()> {
        let (bytes, lane) = (self.kind.block_bytes(), row % GROUP);
        let all = (row - lane).checked_mul(self.kind.row_bytes(columns)?);
        let first = all.and_then(|all| all.checked_add(b.checked_mul(GROUP * bytes)?));
        let from = first.and_then(|first| groups.get(first..)?.get(..GROUP * bytes));
        let (Some(from), Some(to)) = (from, to.get_mut(..bytes)) else {
            return Err(Error::internal(format!("no block {b} of row {row} in these groups")));
        };
        for field in self.kind.fields() {
            for unit in (field.at..field.at + field.len).step_by(field.unit) {
                let from = &from[unit * GROUP + lane * field.unit..][..field.unit];
                to[unit..unit + field.unit].copy_from_slice(from);
            }
        }
        Ok(())
    }

    /// The rows of `groups`, in blocks that follow each other.
    ///
    /// # Errors
    /// If `groups` has another number of bytes, or allocation fails.
    pub fn unpack(&self, groups: &[u8], columns: usize) -> Result<Vec<u8>> {
        if groups.len() != self.bytes(columns)? {
            return Err(Error::internal("the groups of a quantised weight have other bytes"));
        }
        let bytes = self.kind.row_bytes(columns)?.saturating_mul(self.rows);
        let mut rows = memory::filled(0, bytes)?;
        units(self, columns, |to, from, n| {
            rows[to..to + n].copy_from_slice(&groups[from..from + n]);
        })?;
        Ok(rows)
    }
}
