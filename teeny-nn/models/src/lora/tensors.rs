//! [`FileTensors`]: the tensors of a model as its files have them.
//!
//! ```text
//! parameter (ours)             tensors of the file
//! layers.0.qkv_proj.weight     model.layers.0.self_attn.q_proj.weight    rows 0..q
//!                              model.layers.0.self_attn.k_proj.weight    rows q..q + kv
//!                              model.layers.0.self_attn.v_proj.weight    the others
//! embed_tokens.weight          model.embed_tokens.weight                 read by rows
//!                              lm_head.weight                            read by linear, if tied
//! ```

use std::ops::Range;
use teeny_core::options;
use teeny_core::{Error, Result, Tensor};
use teeny_formats::Mapping;
use teeny_nn::store::{Param, Reader, Role, Store};

options! {
    /// The names of a model's layers in its files.
    #[derive(Clone, Debug)]
    pub struct LayerNames {
        /// The mapping from the file's names and layout to the store's; the identity.
        mapping: Mapping = Mapping::new(), with_mapping;
        /// The name of the head of a language model, which is not among all linear layers. If the
        /// head is the embedding, it is a separate layer with the embedding's weight.
        head: Option<String> = Some("lm_head".to_string()), with_head;
        /// peft's name of the task, such as `CAUSAL_LM`; none.
        task: Option<String> = None, with_task;
        /// The name or the folder of the model; none.
        base_model: Option<String> = None, with_base_model;
        /// Modules that are always trained and saved, such as a head for classes; none.
        modules_to_save: Vec<String> = Vec::new(), with_modules_to_save;
        /// Layers that no output depends on, which are not among all linear layers; none.
        unread: Vec<String> = Vec::new(), with_unread;
        /// The size of a head, if the model rotates neighbouring elements where the file rotates
        /// halves: rows of q_proj and k_proj are in another order then, as in GGUF files of Llama.
        adjacent_pairs: Option<usize> = None, with_adjacent_pairs;
    }
}

/// A model to which adapters can be attached: a [`Store`] with its own names, or a pretrained model
/// with the names of its files.
pub trait LoraModel {
    /// The parameters.
    fn store(&self) -> &Store;

    /// The names of the layers; the store's names by default.
    fn names(&self) -> LayerNames {
        LayerNames::new()
    }
}

impl LoraModel for Store {
    fn store(&self) -> &Store {
        self
    }
}

/// A tensor of the file: some rows of a parameter.
#[derive(Clone)]
pub(super) struct FileTensor {
    /// Where it is in [`FileTensors::all`].
    pub place: usize,
    pub name: String,
    pub param: Param,
    pub reader: Reader,
    pub rows: Range<usize>,
    /// Its place among the tensors of the parameter.
    pub part: usize,
    /// Whether the file has the transpose.
    pub transposed: bool,
    /// The size of a head, if the file has the rows of each head in another order.
    pub adjacent_pairs: Option<usize>,
}

impl FileTensor {
    /// The name of the layer, if this is the weight of a linear layer or an embedding.
    pub fn layer(&self) -> Option<&str> {
        let name = self.name.strip_suffix("weight")?;
        let name = name.strip_suffix(['.', '_'])?;
        (self.reader != Reader::Value).then_some(name)
    }

    pub fn is_bias(&self) -> bool {
        self.name.ends_with(".bias") || self.name.ends_with("_bias") || self.name == "bias"
    }

    /// The rows of the parameter.
    pub fn all(&self) -> usize {
        self.param.shape().first().copied().unwrap_or(1)
    }

    /// The shape in the file.
    pub fn shape(&self) -> Vec<usize> {
        let mut shape = self.param.shape().to_vec();
        if let Some(rows) = shape.first_mut() {
            *rows = self.rows.len();
        }
        if self.transposed {
            shape.reverse();
        }
        shape
    }

    /// Rows of the file in the order of the parameter.
    pub fn to_model(&self, rows: &Tensor) -> Result<Tensor> {
        self.reordered(rows, |half, i| i / 2 + half * (i % 2))
    }

    /// Rows of the parameter in the order of the file.
    pub fn to_file(&self, rows: &Tensor) -> Result<Tensor> {
        self.reordered(rows, |half, i| 2 * (i % half) + i / half)
    }

    /// `from(half, i)` is the row of a head that becomes its row i.
    fn reordered(&self, rows: &Tensor, from: impl Fn(usize, usize) -> usize) -> Result<Tensor> {
        let Some(size) = self.adjacent_pairs else { return Ok(rows.clone()) };
        let row = |i: usize| (i - i % size + from(size / 2, i % size)) as i32;
        let order: Vec<i32> = (0..rows.size(0)?).map(row).collect();
        rows.index_select(0, &Tensor::new(order, rows)?)
    }
}

/// All tensors of a model's files.
pub(super) struct FileTensors {
    pub all: Vec<FileTensor>,
    mapping: Mapping,
}

impl FileTensors {
    pub fn of(store: &Store, names: &LayerNames) -> Result<FileTensors> {
        let (inverse, params) = (names.mapping.inverse(), store.all());
        let mut all = Vec::new();
        for param in &params {
            let rows = param.shape().first().copied().unwrap_or(1);
            let targets = inverse.targets(param.name());
            // one that is joined of several parameters has no name here
            for (part, target) in targets.into_iter().enumerate().filter(|(_, t)| t.parts == 1) {
                let taken = target.taken.unwrap_or(0..rows);
                if taken.end > rows {
                    let text = format!("{} has {rows} rows, its rule {taken:?}", param.name());
                    return Err(Error::shape(text).help("the mapping belongs to another model"));
                }
                let reader = match param.role() {
                    Role::Linear => Reader::Linear,
                    Role::Embedding if taken.len() == rows => Reader::Rows,
                    _ => Reader::Value,
                };
                let (layer, _) = target.ours.rsplit_once('.').unwrap_or_default();
                let rotated = layer.ends_with("q_proj") || layer.ends_with("k_proj");
                let size = names.adjacent_pairs.filter(|size| {
                    rotated && size.is_multiple_of(2) && taken.len().is_multiple_of(*size)
                });
                all.push(FileTensor {
                    place: all.len(),
                    transposed: inverse.transposes_last(&target.ours),
                    name: target.ours,
                    param: param.clone(),
                    reader,
                    rows: taken,
                    part,
                    adjacent_pairs: size,
                });
            }
        }
        let tied = params.iter().find(|param| param.is_tied());
        if let (Some(head), Some(param)) = (&names.head, tied) {
            all.push(FileTensor {
                place: all.len(),
                name: format!("{head}.weight"),
                param: param.clone(),
                reader: Reader::Linear,
                rows: 0..param.shape()[0],
                part: 0,
                transposed: false,
                adjacent_pairs: None,
            });
        }
        Ok(FileTensors { all, mapping: names.mapping.clone() })
    }

    /// The layers: their names and where they are in `all`.
    pub fn layers(&self) -> impl Iterator<Item = (usize, &str)> {
        self.all.iter().enumerate().filter_map(|(i, tensor)| Some((i, tensor.layer()?)))
    }

    /// The tensor `name` of a file, also under other names that files of the family have.
    pub fn find(&self, name: &str) -> Found {
        if let Some(i) = self.all.iter().position(|tensor| tensor.name == name) {
            return Found::At(i);
        }
        let targets = self.mapping.targets(name);
        if targets.is_empty() {
            return Found::Skipped;
        }
        let same = |target: &teeny_formats::Target| {
            let is = |own: &FileTensor| own.param.name() == target.ours && own.part == target.part;
            self.all.iter().position(is)
        };
        targets.iter().find_map(same).map_or(Found::Nothing, Found::At)
    }
}

/// Where the tensor of a file is.
pub(super) enum Found {
    At(usize),
    /// It is of a part of the model that is not read.
    Skipped,
    Nothing,
}
