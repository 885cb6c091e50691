//! Vectors for numbered things.

use crate::init::Init;
use crate::module::{Module, helped};
use crate::store::{Param, Path};
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor, map};

/// `y = weight[ids]`: a learnt vector for each of `count` symbols.
///
/// Shapes: ids (..) of integers → (.., size); weight (count, size). Equivalent:
/// `torch.nn.Embedding`.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::{Embedding, Module, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let wte = Embedding::new(&store.at("wte"), 27, 10)?;
/// let ids = Tensor::new([[0i32, 26, 3]], store.device())?; // (1, 3)
/// assert_eq!(wte.forward(&ids)?.shape()[..], [1, 3, 10]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Embedding {
    /// (count, size).
    pub weight: Param,
    padding: Option<usize>,
}

impl Embedding {
    /// A layer at `path` with normal first values of deviation 1, as in PyTorch.
    ///
    /// # Errors
    /// If the name is taken.
    #[track_caller]
    pub fn new(path: &Path, count: usize, size: usize) -> Result<Embedding> {
        let _op = enter("Embedding::new");
        Embedding::with_init(path, count, size, Init::Normal { mean: 0.0, std: 1.0 })
    }

    /// A layer with first values of your choice; GPT-2 draws with deviation 0.02.
    ///
    /// # Errors
    /// As [`Embedding::new`].
    #[track_caller]
    pub fn with_init(path: &Path, count: usize, size: usize, init: Init) -> Result<Embedding> {
        let _op = enter("Embedding::with_init");
        // (count, size)
        Ok(Embedding { weight: path.param("weight", (count, size), init)?, padding: None })
    }

    /// The same layer with `id` for padding: its vector starts as zeros and gets no gradient, so it
    /// stays what it is. As `padding_idx`.
    ///
    /// # Errors
    /// If `id` is none of the symbols.
    #[track_caller]
    pub fn padding(self, id: usize) -> Result<Embedding> {
        let _op = enter("Embedding::padding");
        let weight = self.weight.value(); // (count, size)
        let count = weight.shape()[0];
        if id >= count {
            return Err(Error::index(format!(
                "padding is symbol {id}, but there are {count} (0..{count})"
            ))
            .help("an embedding of one symbol more has room for padding"));
        }
        let row = id as isize..id as isize + 1;
        let zeros = Tensor::zeros((1, weight.shape()[1]), weight.dtype(), &weight)?; // (1, size)
        self.weight.set(&crate::track::below(&weight)?.slice_assign(
            0,
            row,
            &crate::track::below(&zeros)?,
        )?)?;
        Ok(Embedding { padding: Some(id), ..self })
    }
}

impl Module for Embedding {
    #[track_caller]
    fn forward(&self, ids: &Tensor) -> Result<Tensor> {
        let _op = enter("embedding");
        let weight = self.weight.value(); // (count, size)
        let y = weight.index_select(0, ids).map_err(|e| {
            let error = e.note(format!("{} is {}", self.weight.name(), weight.shape()));
            helped(error, "ids are integers below the number of symbols the layer was made for")
        })?; // (.., size)
        let Some(padding) = self.padding else { return Ok(y) };
        // the same values, by a way that no gradient takes
        let constant = crate::track::below(&y)?; // (.., size)
        map([&ids.unsqueeze(-1)?, &y, &constant], |[id, y, constant]| {
            id.eq(padding as i64).select(constant, y)
        })
    }

    fn describe(&self) -> String {
        let weight = self.weight.value();
        format!("Embedding({}, {})", weight.shape()[0], weight.shape()[1])
    }
}
