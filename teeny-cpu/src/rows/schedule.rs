//! The mapping of rows to vectors: along the lanes, or with a row in each lane.

/// The layout of a row program's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RowSchedule {
    /// Vectors are along a row, this number of rows at a time.
    Along(usize),
    /// Transposes this number of rows at a time, so that each vector has one element of each row.
    Blocks(usize),
    /// Neighbouring rows are neighbours in memory, and vectors are across this number of them.
    Columns(usize),
}

/// Elements of rows that are computed at a time: operands and values of them stay in L1.
const ELEMENTS: usize = 2 << 10;
/// Elements of a block of transposed rows, and its fewest and most rows.
const BLOCK: usize = 4 << 10;
const MIN_BLOCK_ROWS: usize = 128;
const MAX_BLOCK_ROWS: usize = 512;
/// Elements up to which rows are transposed, in general and with 16-bit floats, for which parts of
/// vectors are slow.
const NARROW: usize = 48;
const NARROW_HALVES: usize = 128;
/// Rows from which short ones are transposed.
const MIN_ROWS: usize = 8;
/// Bytes of neighbouring rows from which these are computed where they are.
const MIN_COLUMNS: usize = 32;

/// The schedule for rows of `n` elements of `size` bytes; `inner` neighbouring rows are neighbours
/// in memory at each position, and vectors have `lanes` lanes. With `halves`, operands or results
/// are 16-bit floats.
pub(super) fn select_schedule(
    rows: usize,
    n: usize,
    inner: usize,
    size: usize,
    lanes: usize,
    halves: bool,
) -> RowSchedule {
    if inner > 1 && inner * size >= MIN_COLUMNS {
        let wide = 8 * lanes;
        let fits = 4 * BLOCK / size / n.max(1);
        // Operands that exceed L1 are read in longer lines.
        let fits =
            if fits < wide / 4 { 2 * wide } else { fits.clamp(wide, 8 * wide) / wide * wide };
        return RowSchedule::Columns(fits.min(inner));
    }
    if n <= if halves { NARROW_HALVES } else { NARROW } && rows >= MIN_ROWS {
        let fits = (BLOCK / n.max(1)).clamp(MIN_BLOCK_ROWS, MAX_BLOCK_ROWS) / MIN_BLOCK_ROWS
            * MIN_BLOCK_ROWS;
        return RowSchedule::Blocks(fits.min(rows));
    }
    let rows_at_once = (ELEMENTS / n.max(1)).clamp(1, 64);
    RowSchedule::Along(if rows_at_once > 8 { rows_at_once / 8 * 8 } else { rows_at_once })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_laid_out_by_their_length_and_neighbours() {
        let table = [
            // rows, n, inner, size, lanes, halves
            ((4096, 1024, 1, 4, 16, false), RowSchedule::Along(2)),
            ((4096, 3000, 1, 4, 16, true), RowSchedule::Along(1)),
            ((4096, 100, 1, 4, 16, false), RowSchedule::Along(16)),
            ((4096, 100, 1, 4, 16, true), RowSchedule::Blocks(128)),
            ((1, 100_000, 1, 4, 16, false), RowSchedule::Along(1)),
            ((1_000_000, 3, 1, 4, 16, false), RowSchedule::Blocks(512)),
            ((1000, 16, 1, 8, 8, false), RowSchedule::Blocks(256)),
            ((20, 3, 1, 4, 16, false), RowSchedule::Blocks(20)),
            ((5, 3, 1, 4, 16, false), RowSchedule::Along(64)),
            ((5000, 100, 50, 4, 16, false), RowSchedule::Columns(50)),
            ((5000, 100, 5000, 4, 16, false), RowSchedule::Columns(128)),
            ((5000, 3, 5000, 4, 16, false), RowSchedule::Columns(1024)),
            ((1024, 1024, 1024, 4, 16, false), RowSchedule::Columns(256)),
            ((5000, 100, 4, 4, 16, false), RowSchedule::Along(16)),
            ((5000, 100, 4, 8, 8, false), RowSchedule::Columns(4)),
            ((0, 0, 1, 4, 16, false), RowSchedule::Along(64)),
        ];
        for ((rows, n, inner, size, lanes, halves), want) in table {
            let got = select_schedule(rows, n, inner, size, lanes, halves);
            assert_eq!(got, want, "{rows} {n} {inner} {size} {lanes} {halves}");
        }
    }
}
