//! The result of the suite: a table of operations × types, and the first counterexample of each
//! failure.

use std::fmt;
use teeny_core::{DType, DeviceInfo};

/// How one operation did in one type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cell {
    /// The operation is not defined for the type; core returns the error before the device runs.
    #[default]
    Undefined,
    /// The number of cases that agree with the oracle.
    Passed(usize),
    /// The device does not support this; its message.
    Unsupported(String),
    /// The first case that disagrees.
    Failed(String),
}

/// The result of a run. Prints as a table with its counterexamples; [`Report::markdown`] is for
/// documents.
#[derive(Clone, PartialEq, Eq)]
pub struct Report {
    device: DeviceInfo,
    rows: Vec<(&'static str, [Cell; DType::ALL.len()])>,
    notes: Vec<String>,
}

impl Report {
    pub(super) fn new(device: DeviceInfo) -> Report {
        Report { device, rows: Vec::new(), notes: Vec::new() }
    }

    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// Adds the outcome of one case to its cell: the first failure stays, a refusal outweighs what
    /// passed.
    pub(super) fn add(&mut self, op: &'static str, dtype: DType, outcome: Cell) {
        let row = match self.rows.iter().rposition(|(name, _)| *name == op) {
            Some(row) => row,
            None => {
                self.rows.push((op, Default::default()));
                self.rows.len() - 1
            }
        };
        let cell = &mut self.rows[row].1[dtype as usize];
        match (&mut *cell, outcome) {
            (Cell::Failed(_), _) | (_, Cell::Undefined) => {}
            (Cell::Unsupported(_), Cell::Passed(_) | Cell::Unsupported(_)) => {}
            (Cell::Passed(count), Cell::Passed(more)) => *count += more,
            (cell, outcome) => *cell = outcome,
        }
    }

    /// The device that was tested.
    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// The operations, each with a cell for every type in the order of [`DType::ALL`].
    pub fn rows(&self) -> &[(&'static str, [Cell; DType::ALL.len()])] {
        &self.rows
    }

    /// True if nothing failed.
    pub fn passed(&self) -> bool {
        !self.cells().any(|cell| matches!(cell, Cell::Failed(_)))
    }

    /// How many cases agreed with the oracle.
    pub fn cases(&self) -> usize {
        self.cells().map(|cell| if let Cell::Passed(count) = cell { *count } else { 0 }).sum()
    }

    /// The first counterexample of each operation and type that failed.
    pub fn failures(&self) -> Vec<String> {
        let cells = self.rows.iter().flat_map(|(op, cells)| {
            cells.iter().zip(DType::ALL).map(move |(cell, dtype)| (op, dtype, cell))
        });
        cells
            .filter_map(|(op, dtype, cell)| {
                if let Cell::Failed(why) = cell {
                    Some(format!("{op} {dtype}: {why}"))
                } else {
                    None
                }
            })
            .collect()
    }

    fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.rows.iter().flat_map(|(_, cells)| cells)
    }

    /// The support matrix for a document.
    pub fn markdown(&self) -> String {
        let mut text =
            format!("| {} | {} |\n", self.device.name, DType::ALL.map(|t| t.name()).join(" | "));
        text += &format!("|---|{}\n", "---|".repeat(DType::ALL.len()));
        for (op, cells) in &self.rows {
            text += &format!("| {op} | {} |\n", cells.each_ref().map(mark).join(" | "));
        }
        for note in &self.notes {
            text += &format!("\n- {note}");
        }
        text
    }
}

fn mark(cell: &Cell) -> &'static str {
    match cell {
        Cell::Undefined => "–",
        Cell::Passed(_) => "ok",
        Cell::Unsupported(_) => "no",
        Cell::Failed(_) => "FAIL",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} ({}): {} cases agree with the oracle",
            self.device.name,
            self.device.description,
            self.cases()
        )?;
        write!(f, "{:<24}", "")?;
        for dtype in DType::ALL {
            write!(f, "{dtype:>5}")?;
        }
        writeln!(f)?;
        for (op, cells) in &self.rows {
            write!(f, "{op:<24}")?;
            for cell in cells {
                write!(f, "{:>5}", mark(cell))?;
            }
            writeln!(f)?;
        }
        for note in &self.notes {
            writeln!(f, "note: {note}")?;
        }
        self.failures().iter().try_for_each(|failure| writeln!(f, "{failure}"))
    }
}

/// `unwrap` prints through `Debug`; the table is the useful text there too.
impl fmt::Debug for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
