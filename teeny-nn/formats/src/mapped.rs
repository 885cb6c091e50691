//! A source of tensors under the names that a [`Mapping`] gives them.
//!
//! ```text
//! shapes of the source ─ rules of the mapping ─► recipes: pieces of the source's tensors
//!   read("h.0.qkv")  =  read h.0.q, h.0.k, h.0.v ─ transpose each ─ take rows ─ join
//! ```
//! The recipes are computed once, from shapes alone. Each `read` reads the tensors of its recipe.

use super::element_type::ElementType;
use super::{Mapping, TensorSource};
use std::collections::BTreeMap;
use std::ops::Range;
use teeny_core::{DeviceRef, Error, QuantTensor, Result, Tensor};

/// A source with other names and another layout: see [`Mapping::apply`].
pub struct Mapped<S> {
    source: S,
    index: Index,
}

impl Mapping {
    /// `source` with the names and the layout of the model.
    ///
    /// # Errors
    /// If a rule has patterns with different numbers of `*`; if two tensors get one name, a
    /// transposed tensor is not a matrix, or the sizes of joined or split tensors differ from the
    /// rule.
    pub fn apply<S: TensorSource>(&self, source: S) -> Result<Mapped<S>> {
        let index = Index::new(&source, self)?;
        Ok(Mapped { source, index })
    }
}

impl<S> Mapped<S> {
    /// The shape of tensor `name`, if there is one.
    pub fn shape(&self, name: &str) -> Option<&[usize]> {
        Some(&self.index.recipes.get(name)?.shape)
    }

    /// The names in the source that the mapping skips.
    pub fn skipped(&self) -> &[String] {
        &self.index.skipped
    }
}

impl<S: TensorSource> TensorSource for Mapped<S> {
    fn label(&self) -> String {
        self.source.label()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let recipes = self.index.recipes.iter();
        recipes.map(|(name, recipe)| (name.clone(), recipe.shape.clone())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        self.index.read(&self.source, name, device)
    }

    fn read_quantized(&self, name: &str, device: &DeviceRef) -> Result<Option<QuantTensor>> {
        self.index.read_quantized(&self.source, name, device)
    }

    fn element_type(&self, name: &str) -> Option<ElementType> {
        let mut types = self.index.recipes.get(name)?.theirs();
        let first = self.source.element_type(types.next()?)?;
        types.all(|theirs| self.source.element_type(theirs) == Some(first)).then_some(first)
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        let errors = self.index.unreadable.iter();
        errors.map(|(name, (_, error))| (name.clone(), error.clone())).collect()
    }
}

/// How the model's tensors are made of a source's.
pub struct Index {
    /// The recipe of each tensor, by its name in the model.
    pub recipes: BTreeMap<String, Recipe>,
    /// The names in the source that the mapping skips.
    pub skipped: Vec<String>,
    /// Names in the model of tensors that cannot be read: the name in the source, and why.
    pub unreadable: BTreeMap<String, (String, Error)>,
}

/// How one tensor is made.
pub struct Recipe {
    /// Joined along the first axis.
    pieces: Vec<Piece>,
    /// Whether the result is transposed.
    transposes: bool,
    /// The shape of the result.
    pub shape: Vec<usize>,
}

/// A tensor of the source, or some rows of it.
struct Piece {
    theirs: String,
    transposes: bool,
    taken: Option<Range<usize>>,
    shape: Vec<usize>,
}

impl Recipe {
    /// The names in the source.
    pub fn theirs(&self) -> impl Iterator<Item = &String> {
        self.pieces.iter().map(|piece| &piece.theirs)
    }
}

impl Index {
    /// The recipes that the shapes of `source` and the rules of `mapping` make.
    ///
    /// # Errors
    /// As [`Mapping::apply`].
    pub fn new(source: &dyn TensorSource, mapping: &Mapping) -> Result<Index> {
        mapping.check()?;
        let mut skipped = Vec::new();
        let mut unreadable = BTreeMap::new();
        for (theirs, error) in source.unreadable() {
            let targets = mapping.targets(&theirs);
            if targets.is_empty() {
                skipped.push(theirs.clone());
            }
            for target in targets {
                unreadable.insert(target.ours, (theirs.clone(), error.clone()));
            }
        }
        let mut found: BTreeMap<String, Vec<Option<Piece>>> = BTreeMap::new();
        for (theirs, shape) in source.shapes() {
            let targets = mapping.targets(&theirs);
            if targets.is_empty() {
                skipped.push(theirs);
                continue;
            }
            for target in targets {
                let transposes = mapping.transposes_first(&theirs);
                let mut shape =
                    if transposes { transposed(&theirs, &shape)? } else { shape.clone() };
                if let Some(rows) = target.rows.filter(|rows| shape.first() != Some(rows)) {
                    let text = format!("{theirs:?} is {shape:?}, but its rule is for {rows} rows");
                    return Err(Error::shape(text)
                        .help("give join or split the rows of each part, in their order"));
                }
                if let Some(taken) = &target.taken {
                    shape[0] = taken.len();
                }
                let pieces = found.entry(target.ours.clone()).or_default();
                if pieces.is_empty() {
                    pieces.resize_with(target.parts, || None);
                }
                let fits = pieces.len() == target.parts;
                let place = pieces.get_mut(target.part).filter(|place| fits && place.is_none());
                let piece =
                    Piece { theirs: theirs.clone(), transposes, taken: target.taken, shape };
                match place {
                    Some(place) => *place = Some(piece),
                    None => {
                        let other = pieces.iter().flatten().next();
                        return Err(Error::value(format!(
                            "{:?} and {theirs:?} are both renamed to {:?}",
                            other.map_or("", |other| &other.theirs),
                            target.ours
                        )));
                    }
                }
            }
        }
        let mut recipes = BTreeMap::new();
        for (ours, pieces) in found {
            let (all, present) = (pieces.len(), pieces.into_iter().flatten().collect::<Vec<_>>());
            if present.len() < all {
                if unreadable.contains_key(&ours) {
                    continue;
                }
                let names: Vec<&str> = present.iter().map(|piece| &piece.theirs[..]).collect();
                return Err(Error::value(format!(
                    "{ours:?} is joined from {all} tensors, of which there are only {}",
                    names.join(", ")
                )));
            }
            recipes.insert(ours.clone(), Recipe::new(&ours, present, mapping)?);
        }
        Ok(Index { recipes, skipped, unreadable })
    }

    /// Reads the tensor that the model calls `ours`.
    ///
    /// # Errors
    /// If the tensor does not exist or cannot be read.
    pub fn read(
        &self,
        source: &dyn TensorSource,
        ours: &str,
        device: &DeviceRef,
    ) -> Result<Tensor> {
        let Some(recipe) = self.recipes.get(ours) else {
            let missing = || Error::value(format!("no tensor {ours:?}"));
            return Err(self.unreadable.get(ours).map_or_else(missing, |(_, e)| e.clone()));
        };
        let read = |piece: &Piece| {
            let whole = source.read(&piece.theirs, device)?;
            let whole = if piece.transposes { whole.t()?.contiguous()? } else { whole };
            match &piece.taken {
                // a copy, so that the rest is not kept
                Some(rows) => whole.slice(0, rows.start as isize..rows.end as isize)?.copy(),
                None => Ok(whole),
            }
        };
        let mut pieces = recipe.pieces.iter().map(read).collect::<Result<Vec<Tensor>>>()?;
        let joined = match pieces.len() {
            1 => pieces.swap_remove(0),
            _ => Tensor::cat(&pieces, 0)?,
        };
        if recipe.transposes { joined.t()?.contiguous() } else { Ok(joined) }
    }
}

impl Index {
    /// Reads the tensor that the model calls `ours` as a quantised matrix, if all tensors of its
    /// recipe are quantised in the source: whole rows are taken and joined as they are.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read_quantized(
        &self,
        source: &dyn TensorSource,
        ours: &str,
        device: &DeviceRef,
    ) -> Result<Option<QuantTensor>> {
        let Some(recipe) = self.recipes.get(ours).filter(|recipe| !recipe.transposes) else {
            return Ok(None);
        };
        let mut all = Vec::new();
        for piece in &recipe.pieces {
            if piece.transposes {
                return Ok(None);
            }
            let Some(matrix) = source.read_quantized(&piece.theirs, device)? else {
                return Ok(None);
            };
            all.push(match &piece.taken {
                Some(rows) => matrix.select_rows(&rows.clone().collect::<Vec<_>>())?,
                None => matrix,
            });
        }
        match all.len() {
            1 => Ok(all.pop()),
            _ => QuantTensor::join(&all.iter().collect::<Vec<_>>()).map(Some),
        }
    }
}

impl Recipe {
    fn new(ours: &str, pieces: Vec<Piece>, mapping: &Mapping) -> Result<Recipe> {
        let mut shape = pieces[0].shape.clone();
        for piece in &pieces[1..] {
            if piece.shape.is_empty() || piece.shape.get(1..) != shape.get(1..) {
                return Err(Error::shape(format!(
                    "{:?} {:?} and {:?} {:?} cannot be joined to {ours:?}",
                    pieces[0].theirs, pieces[0].shape, piece.theirs, piece.shape
                )));
            }
            shape[0] = shape[0].saturating_add(piece.shape[0]);
        }
        let transposes = mapping.transposes_last(ours);
        let shape = if transposes { transposed(ours, &shape)? } else { shape };
        Ok(Recipe { pieces, transposes, shape })
    }
}

fn transposed(name: &str, shape: &[usize]) -> Result<Vec<usize>> {
    match shape {
        &[rows, columns] => Ok(vec![columns, rows]),
        _ => Err(Error::shape(format!("cannot transpose {name:?}: {shape:?} is not a matrix"))
            .help("Mapping::transpose is for weights of two axes")),
    }
}
