//! [`TableEncoder`]: encodes columns of text as numbers, with the statistics and categories of the
//! training rows.

use super::Table;
use crate::Dataset;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use teeny_core::context::enter;
use teeny_core::file::quoted;
use teeny_core::{DType, Element, Error, Result, Tensor, ToDevice};
use teeny_formats::State;
use teeny_formats::names::listed;

/// Cells of numbers that are missing, beside empty ones.
const MISSING: [&str; 8] = ["NA", "N/A", "n/a", "NaN", "nan", "null", "NULL", "None"];

/// A column, with the statistics of the rows that it was fitted on.
#[derive(Clone, Debug, PartialEq)]
struct Column {
    name: String,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
enum Kind {
    /// Numbers of this mean and standard deviation, some of them perhaps missing.
    Number { mean: f64, std: f64, missing: bool },
    /// The values, sorted; an empty one if some are missing.
    Category(Vec<String>),
}

/// Makes tensors of the columns of a [`Table`]. The training rows decide how
/// ([`TableEncoder::fit`]); other rows are encoded in the same way. `teeny_nn` saves it
/// in a checkpoint with the model, and restores it into `TableEncoder::new()`.
///
/// | column | result | missing (empty; of numbers also `NA`, `NaN`, `null`, ..) |
/// |---|---|---|
/// | number | (x - mean) / std | 0; a further column has 1 |
/// | category | its id, or one-hot | a category |
/// | target | the number, or that of the class | an error |
///
/// The further column, and the category, exist if a training row lacks the value. See [`Table`] for
/// an example.
///
/// Equivalent: scikit-learn's `ColumnTransformer` of `SimpleImputer` with an indicator and
/// `StandardScaler`, and of `OneHotEncoder(handle_unknown="ignore")`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TableEncoder {
    columns: Vec<Column>,
    target: Option<Column>,
    fitted: bool,
}

impl TableEncoder {
    /// An encoder without columns.
    pub fn new() -> TableEncoder {
        TableEncoder::default()
    }

    /// Adds columns of numbers.
    pub fn with_numbers<'a>(self, names: impl IntoIterator<Item = &'a str>) -> TableEncoder {
        self.with(names, || Kind::Number { mean: 0.0, std: 1.0, missing: false })
    }

    /// Adds columns of categories.
    pub fn with_categories<'a>(self, names: impl IntoIterator<Item = &'a str>) -> TableEncoder {
        self.with(names, || Kind::Category(Vec::new()))
    }

    fn with<'a>(
        mut self,
        names: impl IntoIterator<Item = &'a str>,
        kind: impl Fn() -> Kind,
    ) -> TableEncoder {
        let column = |name: &str| Column { name: name.to_string(), kind: kind() };
        self.columns.extend(names.into_iter().map(column));
        self
    }

    /// Sets the column of the targets of a regression.
    pub fn with_target_number(mut self, name: &str) -> TableEncoder {
        let kind = Kind::Number { mean: 0.0, std: 1.0, missing: false };
        self.target = Some(Column { name: name.to_string(), kind });
        self
    }

    /// Sets the column of the classes.
    pub fn with_target_class(mut self, name: &str) -> TableEncoder {
        self.target = Some(Column { name: name.to_string(), kind: Kind::Category(Vec::new()) });
        self
    }

    /// Finds means, deviations, categories and classes in `table`, the training rows.
    ///
    /// # Errors
    /// If there are no columns, two of one name, or one that the table lacks; if a cell is not a
    /// finite number, a column of numbers has none, or a target is missing. The error has the file,
    /// the line, the column and the cell.
    #[track_caller]
    pub fn fit(mut self, table: &Table) -> Result<TableEncoder> {
        let _op = enter("TableEncoder::fit");
        let mut names = BTreeSet::new();
        let all = self.columns.iter().chain(&self.target);
        if let Some(column) = all.clone().find(|column| !names.insert(column.name.clone())) {
            return Err(Error::value(format!("column {:?} is used twice", column.name))
                .help("each column is a number, a category or the target"));
        }
        if self.columns.is_empty() || table.is_empty() {
            let text = format!("got {} columns and {} rows", self.columns.len(), table.len());
            return Err(Error::value(text).help("pass at least one of each: with_numbers([..])"));
        }
        for column in &mut self.columns {
            match &mut column.kind {
                Kind::Category(values) => *values = categories(table, &column.name)?,
                Kind::Number { mean, std, missing } => {
                    let cells = numbers(table, &column.name)?;
                    let known: Vec<f64> = cells.iter().copied().flatten().collect();
                    if known.is_empty() {
                        let text = format!("column {:?} of {} rows", column.name, cells.len());
                        return Err(Error::value(format!("{text} has no number"))
                            .help("use with_categories, or leave the column out"));
                    }
                    let count = known.len() as f64;
                    *missing = known.len() < cells.len();
                    *mean = known.iter().map(|x| x / count).sum();
                    let squares = known.iter().map(|x| (x - *mean).powi(2) / count);
                    *std = squares.sum::<f64>().sqrt();
                    // a column of equal numbers becomes zeros
                    if *std == 0.0 || !std.is_finite() {
                        *std = 1.0;
                    }
                }
            }
        }
        if let Some(Column { name, kind: Kind::Category(values) }) = &mut self.target {
            *values = categories(table, name)?.into_iter().filter(|v| !v.is_empty()).collect();
        }
        self.fitted = true;
        if self.target.is_some() {
            self.target_values(table)?;
        }
        Ok(self)
    }

    /// The number of columns of [`TableEncoder::inputs`].
    pub fn width(&self) -> usize {
        let width = |column: &Column| match &column.kind {
            Kind::Number { missing, .. } => 1 + usize::from(*missing),
            Kind::Category(values) => values.len(),
        };
        self.columns.iter().map(width).sum()
    }

    /// The names of the classes, in the order of their numbers; none for other targets.
    pub fn classes(&self) -> &[String] {
        match &self.target {
            Some(Column { kind: Kind::Category(values), .. }) => values,
            _ => &[],
        }
    }

    /// The categories of a column, in the order of their ids from 1; id 0 is unknown. An embedding
    /// of the ids has one row more than there are categories.
    ///
    /// # Errors
    /// If the column does not exist or does not have categories.
    #[track_caller]
    pub fn categories_of(&self, name: &str) -> Result<&[String]> {
        let _op = enter("TableEncoder::categories_of");
        let found = self.columns.iter().find_map(|column| match &column.kind {
            Kind::Category(values) if column.name == name => Some(values),
            _ => None,
        });
        found.map(Vec::as_slice).ok_or_else(|| {
            let all = self.columns.iter().filter(|column| matches!(column.kind, Kind::Category(_)));
            let names: Vec<&str> = all.map(|column| column.name.as_str()).collect();
            let text = format!("no column {name:?} of categories; there are {}", listed(&names));
            Error::value(text).help("with_categories([..]) before fit adds a column")
        })
    }

    /// All inputs: numbers scaled, categories one-hot → (N, width) of F32, columns in the order in
    /// which they were added. An unknown category has zeros.
    ///
    /// # Errors
    /// If the encoder is not fitted, the table lacks a column, or a cell is not a finite number.
    #[track_caller]
    pub fn inputs(&self, table: &Table, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("TableEncoder::inputs");
        self.features(table, device, |_| true)
    }

    /// The columns of numbers alone, as in [`TableEncoder::inputs`] → (N, F) of F32.
    ///
    /// # Errors
    /// As [`TableEncoder::inputs`].
    #[track_caller]
    pub fn numbers(&self, table: &Table, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("TableEncoder::numbers");
        self.features(table, device, |kind| matches!(kind, Kind::Number { .. }))
    }

    fn features(
        &self,
        table: &Table,
        device: impl ToDevice,
        takes: impl Fn(&Kind) -> bool,
    ) -> Result<Tensor> {
        self.require_fit()?;
        let mut columns: Vec<Vec<f32>> = Vec::new();
        for Column { name, kind } in self.columns.iter().filter(|column| takes(&column.kind)) {
            match kind {
                Kind::Number { mean, std, missing } => {
                    let cells = numbers(table, name)?;
                    let scaled = |x: &Option<f64>| x.map_or(0.0, |x| ((x - mean) / std) as f32);
                    columns.push(cells.iter().map(scaled).collect());
                    if *missing {
                        columns.push(cells.iter().map(|x| f32::from(x.is_none())).collect());
                    }
                }
                Kind::Category(values) => {
                    let ids = ids(table, name, values)?;
                    let one_hot = |id: usize| ids.iter().map(|own| f32::from(*own == id)).collect();
                    columns.extend((1..=values.len()).map(one_hot));
                }
            }
        }
        matrix(&columns, table.len(), device)
    }

    /// The ids of the columns of categories, for embeddings → (N, K) of I32.
    ///
    /// # Errors
    /// As [`TableEncoder::inputs`].
    #[track_caller]
    pub fn categories(&self, table: &Table, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("TableEncoder::categories");
        self.require_fit()?;
        let mut columns = Vec::new();
        for column in &self.columns {
            if let Kind::Category(values) = &column.kind {
                let ids = ids(table, &column.name, values)?;
                columns.push(ids.into_iter().map(|id| id as i32).collect());
            }
        }
        matrix(&columns, table.len(), device)
    }

    /// The targets (N): numbers of F32, or classes of I32.
    ///
    /// # Errors
    /// If there is no target column, or a cell is missing, no finite number or another class than
    /// those of the training rows.
    #[track_caller]
    pub fn targets(&self, table: &Table, device: impl ToDevice) -> Result<Tensor> {
        let _op = enter("TableEncoder::targets");
        self.require_fit()?;
        let values = self.target_values(table)?;
        let x = Tensor::from_vec(values, table.len(), device)?;
        if self.classes().is_empty() { x.cast(DType::F32) } else { x.cast(DType::I32) }
    }

    fn target_values(&self, table: &Table) -> Result<Vec<f64>> {
        let Some(Column { name, kind }) = &self.target else {
            return Err(Error::value("the encoder has no target column")
                .help("with_target_number(name) or with_target_class(name)"));
        };
        let values: Vec<Option<f64>> = match kind {
            Kind::Number { .. } => numbers(table, name)?,
            Kind::Category(values) => {
                let ids = ids(table, name, values)?;
                ids.iter().map(|id| id.checked_sub(1).map(|id| id as f64)).collect()
            }
        };
        let names: Vec<&str> = self.classes().iter().map(String::as_str).collect();
        let value = |(row, (value, cell)): (usize, (Option<f64>, &str))| {
            value.ok_or_else(|| {
                let error = if cell.is_empty() || names.is_empty() {
                    Error::value("the target is missing").help("leave the row out")
                } else {
                    Error::value(format!("{} is not a class", quoted(cell)))
                        .help("fit the encoder on rows that have it, or leave the row out")
                        .note(format!("the training rows have {}", listed(&names)))
                };
                table.at(row, name, error)
            })
        };
        values.into_iter().zip(table.column(name)?).enumerate().map(value).collect()
    }

    fn require_fit(&self) -> Result<()> {
        if self.fitted {
            return Ok(());
        }
        Err(Error::value("the encoder is not fitted").help("encoder.fit(&training_rows)?"))
    }
}

/// The numbers of a column.
fn numbers(table: &Table, name: &str) -> Result<Vec<Option<f64>>> {
    let number = |(row, cell): (usize, &str)| {
        if cell.is_empty() || MISSING.contains(&cell) {
            return Ok(None);
        }
        let finite = cell.parse().ok().filter(|x: &f64| x.is_finite());
        finite.map(Some).ok_or_else(|| {
            let error = Error::value(format!("{} is not a finite number", quoted(cell)));
            table.at(row, name, error.help("missing numbers are empty cells or NA"))
        })
    };
    table.column(name)?.enumerate().map(number).collect()
}

/// The categories of a column, sorted; missing ones are empty.
fn categories(table: &Table, name: &str) -> Result<Vec<String>> {
    let all: BTreeSet<&str> = table.column(name)?.collect();
    Ok(all.into_iter().map(str::to_string).collect())
}

/// The matrix of `columns`, of `rows` cells each → (rows, columns).
fn matrix<T: Element>(columns: &[Vec<T>], rows: usize, device: impl ToDevice) -> Result<Tensor> {
    let row = |i: usize| columns.iter().map(move |column| column[i]);
    let all: Vec<T> = (0..rows).flat_map(row).collect();
    Tensor::from_vec(all, (rows, columns.len()), device)
}

/// The position of each cell of a column in `values`, from 1; 0 if it is not there.
fn ids(table: &Table, name: &str, values: &[String]) -> Result<Vec<usize>> {
    let id =
        |cell: &str| values.binary_search_by(|value| value.as_str().cmp(cell)).map_or(0, |i| i + 1);
    Ok(table.column(name)?.map(id).collect())
}

impl Column {
    fn to_json(&self) -> Value {
        match &self.kind {
            // numbers as text, which std reads to the bit
            Kind::Number { mean, std, missing } => json!({"number": self.name,
                "mean": mean.to_string(), "std": std.to_string(), "missing": missing}),
            Kind::Category(values) => json!({"category": self.name, "values": values}),
        }
    }

    fn of_json(value: &Value) -> Option<Column> {
        let text = |key: &str| value[key].as_str();
        if let Some(name) = text("number") {
            let [mean, std] = [text("mean")?.parse().ok()?, text("std")?.parse().ok()?];
            let kind = Kind::Number { mean, std, missing: value["missing"].as_bool()? };
            return Some(Column { name: name.to_string(), kind });
        }
        let values = value["values"].as_array()?;
        let values = values.iter().map(|value| value.as_str().map(str::to_string));
        let values: Vec<String> = values.collect::<Option<_>>()?;
        // ids are found by binary search
        let kind = Kind::Category(values.is_sorted().then_some(values)?);
        Some(Column { name: text("category")?.to_string(), kind })
    }

    /// Whether both are the same column, fitted or not.
    fn is_like(&self, other: &Column) -> bool {
        self.name == other.name
            && matches!(self.kind, Kind::Category(_)) == matches!(other.kind, Kind::Category(_))
    }
}

impl TableEncoder {
    /// The columns with their statistics, for a checkpoint.
    ///
    /// # Errors
    /// If the encoder is not fitted.
    #[track_caller]
    pub fn state(&self) -> Result<State> {
        self.require_fit()?;
        let columns: Vec<Value> = self.columns.iter().map(Column::to_json).collect();
        let target = self.target.as_ref().map(Column::to_json);
        Ok(State::default().with("columns", json!({"columns": columns, "target": target})))
    }

    /// Restores the columns of `state`.
    ///
    /// # Errors
    /// If `state` is not of an encoder, or this encoder has columns and they differ.
    #[track_caller]
    pub fn set_state(&mut self, state: &State) -> Result<()> {
        let text: String = state.get("columns")?;
        let wrong = || Error::format(format!("{} is not a table encoder", quoted(&text)));
        let value: Value = serde_json::from_str(&text).map_err(|_| wrong())?;
        let columns = value["columns"].as_array().ok_or_else(wrong)?;
        let columns: Option<Vec<Column>> = columns.iter().map(Column::of_json).collect();
        let target = match &value["target"] {
            Value::Null => None,
            target => Some(Column::of_json(target).ok_or_else(wrong)?),
        };
        let loaded = TableEncoder { columns: columns.ok_or_else(wrong)?, target, fitted: true };
        let all = |encoder: &TableEncoder| -> Vec<Column> {
            encoder.columns.iter().chain(&encoder.target).cloned().collect()
        };
        let (own, new) = (all(self), all(&loaded));
        let same = own.len() == new.len() && own.iter().zip(&new).all(|(a, b)| a.is_like(b));
        if !own.is_empty() && !same {
            let names = |columns: &[Column]| {
                listed(&columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>())
            };
            let text =
                format!("the state has columns {}, the encoder {}", names(&new), names(&own));
            return Err(Error::value(text).help("use the same columns, or TableEncoder::new()"));
        }
        *self = loaded;
        Ok(())
    }
}
