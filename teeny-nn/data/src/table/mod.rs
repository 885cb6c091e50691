//! [`Table`]: rows of named columns from CSV and TSV files, and [`TableEncoder`], which encodes
//! them as numbers.

mod encoder;

use crate::csv;
use crate::dataset::{Dataset, require_items};
pub use encoder::TableEncoder;
use std::path::Path;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{Error, Result};
use teeny_formats::names::{listed, nearest};

/// Rows of named columns, as text. A data set whose batches are tables.
///
/// # Example
/// ```
/// use teeny_data::{Table, TableEncoder};
/// use teeny_nn::prelude::*;
/// # fn main() -> Result<()> {
/// let device = device("cpu")?;
/// let text = "area,city,price\n50,Rome,120\n80,Oslo,310\n,Rome,150\n65,Rome,170\n";
/// let table = Table::parse("flats", text, ',')?; // or Table::read("flats.csv")?
/// let [train, test] = table.random_split([3, 1], 1)?;
/// let encoder = TableEncoder::new()
///     .with_numbers(["area"])
///     .with_categories(["city"])
///     .with_target_number("price")
///     .fit(&train.all()?)?;
/// let train = (encoder.inputs(&train.all()?, &device)?, encoder.targets(&train.all()?, &device)?);
/// let loader = DataLoader::new(train, 2)?.shuffle(1); // (B, width) and (B)
/// let x = encoder.inputs(&test.all()?, &device)?; // (1, width)
/// # assert_eq!((loader.batches(), x.shape()[1]), (2, encoder.width()));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    name: String,
    columns: Arc<[String]>,
    /// The line and the cells of each row.
    rows: Vec<(usize, Vec<String>)>,
}

impl Table {
    /// Reads a `.csv` or `.tsv` file whose first line has the names of the columns. Cells may be
    /// quoted, as RFC 4180 says; empty lines are left out.
    ///
    /// # Errors
    /// If the file cannot be read, has another ending or is not UTF-8; as [`Table::parse`].
    #[track_caller]
    pub fn read(path: impl AsRef<Path>) -> Result<Table> {
        let _op = enter("Table::read");
        let path = path.as_ref();
        let delimiter = match path.extension().and_then(|end| end.to_str()) {
            Some("csv") => ',',
            Some("tsv") => '\t',
            _ => {
                let text = format!("{} is not a .csv or .tsv file", path.display());
                return Err(Error::format(text).help("Table::parse takes text of any delimiter"));
            }
        };
        Table::parsed(path.display().to_string(), &csv::text(path)?, delimiter)
    }

    /// The table of a text, which errors call `name`, as [`Table::read`].
    ///
    /// # Errors
    /// If there is no line, two columns have one name, a row has more or fewer cells than the first
    /// line, or a quote is not closed; the error has the line.
    #[track_caller]
    pub fn parse(name: &str, text: &str, delimiter: char) -> Result<Table> {
        let _op = enter("Table::parse");
        Table::parsed(name.to_string(), text, delimiter)
    }

    fn parsed(name: String, text: &str, delimiter: char) -> Result<Table> {
        let rows = csv::records(text, delimiter)
            .map_err(|(line, e)| e.named(format!("{name}, line {line}")))?;
        let mut rows = rows.into_iter();
        let Some((line, header)) = rows.next() else {
            return Err(Error::format(format!("{name} is empty"))
                .help("the first line has the names of the columns"));
        };
        let columns: Arc<[String]> = header.iter().map(|cell| cell.trim().to_string()).collect();
        if let Some(i) = (1..columns.len()).find(|&i| columns[..i].contains(&columns[i])) {
            return Err(Error::format(format!("two columns are called {:?}", columns[i]))
                .named(format!("{name}, line {line}"))
                .help("the first line has one name for each column"));
        }
        Ok(Table { name, columns, rows: rows.collect() })
    }

    /// The names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The cells of a column, without spaces at their ends.
    ///
    /// # Errors
    /// If the column does not exist.
    #[track_caller]
    pub fn column(&self, name: &str) -> Result<impl ExactSizeIterator<Item = &str>> {
        let _op = enter("table.column");
        let i = self.place(name)?;
        Ok(self.rows.iter().map(move |(_, cells)| cells[i].trim()))
    }

    fn place(&self, name: &str) -> Result<usize> {
        self.columns.iter().position(|column| column == name).ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(String::as_str).collect();
            let text = format!("{} has no column {name:?}; it has {}", self.name, listed(&names));
            match nearest(name, names) {
                Some(near) => Error::value(text).help(format!("{near:?}?")),
                None => Error::value(text).help("table.columns() lists them"),
            }
        })
    }

    /// `e` with the place of a cell: the file, the line and the column.
    fn at(&self, row: usize, column: &str, e: Error) -> Error {
        let line = self.rows.get(row).map_or(0, |(line, _)| *line);
        e.named(format!("{}, line {line}, column {column:?}", self.name))
    }
}

impl Dataset for Table {
    type Batch = Table;

    fn len(&self) -> usize {
        self.rows.len()
    }

    fn batch(&self, indices: &[usize], _epoch: u64) -> Result<Table> {
        require_items(indices, self.len())?;
        let rows = indices.iter().map(|i| self.rows[*i].clone()).collect();
        Ok(Table { name: self.name.clone(), columns: self.columns.clone(), rows })
    }
}
