//! The embedding: a learnt vector per token.

use crate::init::Init;
use crate::module::Module;
use crate::options::options;
use crate::store::{Param, Path};
use crate::track;
use teeny_core::context::enter;
use teeny_core::{DType, Error, Result, Tensor, map};
use teeny_formats::names::with_help;

options! {
    /// Options of an [`Embedding`], with PyTorch's defaults.
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub struct EmbeddingOptions {
        /// The initial weight; normal with standard deviation 1. GPT-2 has [`Init::GPT2`].
        init: Init = Init::Normal { mean: 0.0, std: 1.0 }, with_init;
        /// The id of padding: its vector starts as zeros and gets no gradient; none.
        padding_idx: Option<usize> = None, with_padding_idx(usize);
    }
}

/// `y = weight[ids]`: a learnt vector for each of `count` ids.
///
/// Shapes: ids (..) of integers → (.., size); weight (count, size). Equivalent:
/// `torch.nn.Embedding`.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::{Embedding, Module, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(device("cpu")?);
/// let wte = Embedding::new(&store.at("wte"), 27, 10)?;
/// let ids = Tensor::new([[0i32, 26, 3]], store.device())?; // (1, 3)
/// assert_eq!(wte.forward(&ids)?.shape()[..], [1, 3, 10]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Embedding {
    /// (count, size).
    pub weight: Param,
    padding_idx: Option<usize>,
}

impl Embedding {
    /// A layer at `path` with PyTorch's initial weight: normal with standard deviation 1.
    ///
    /// # Errors
    /// If the name is taken.
    #[track_caller]
    pub fn new(path: &Path, count: usize, size: usize) -> Result<Embedding> {
        let _op = enter("Embedding::new");
        Embedding::with_options(path, count, size, EmbeddingOptions::default())
    }

    /// A layer at `path` with `options`.
    ///
    /// # Errors
    /// If the name is taken, or `padding_idx` is not below `count`.
    #[track_caller]
    pub fn with_options(
        path: &Path,
        count: usize,
        size: usize,
        options: EmbeddingOptions,
    ) -> Result<Embedding> {
        path.build("Embedding::with_options", || {
            if let Some(id) = options.padding_idx.filter(|&id| id >= count) {
                return Err(Error::index(format!(
                    "padding_idx is {id}, but there are {count} ids (0..{count})"
                ))
                .help("an embedding with one more id has one for padding"));
            }
            let weight = path.table("weight", [count, size], &|shape, dtype, device| {
                let value = options.init.tensor(shape, dtype, device)?; // (count, size)
                let Some(id) = options.padding_idx else { return Ok(value) };
                let zeros = Tensor::zeros((1, size), value.dtype(), &value)?; // (1, size)
                value.slice_assign(0, id as isize..id as isize + 1, &zeros)
            })?; // (count, size)
            Ok(Embedding { weight, padding_idx: options.padding_idx })
        })
    }
}

impl Embedding {
    /// The rows `from..to`: (to - from, size).
    pub(crate) fn range(&self, from: usize, to: usize) -> Result<Tensor> {
        let weight = self.weight.value();
        let range = from as isize..to as isize;
        if !self.weight.is_indirect() {
            return weight.slice(0, range);
        }
        // operations compute the indices, so that they follow the position of a captured function
        let ones = Tensor::ones(self.weight.shape()[0], DType::I32, &weight)?; // (count)
        let ids = ones.cumsum(0)?.cast(DType::I32)?.sub(1)?; // (count)
        self.weight.rows(&ids.slice(0, range)?)
    }
}

impl Module for Embedding {
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let _op = enter("embedding");
        let y = self.weight.rows(ids).map_err(|e| {
            let error = e.note(format!("{} is {}", self.weight.name(), self.weight.shape()));
            with_help(error, "ids are integers from 0 to one less than the number of rows")
        })?; // (.., size)
        let Some(padding) = self.padding_idx else { return Ok(y) };
        // the same values, detached: no gradient reaches the row of padding
        let constant = track::detached(&y)?; // (.., size)
        map([&ids.unsqueeze(-1)?, &y, &constant], |[id, y, constant]| {
            id.eq(padding as i64).where_cond(constant, y)
        })
    }

    fn describe(&self) -> String {
        let shape = self.weight.shape();
        format!("Embedding({}, {})", shape[0], shape[1])
    }
}
