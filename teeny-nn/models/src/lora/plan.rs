//! [`Plan`]: all adapters to attach, built before the model changes.

use super::adapter::{Enabled, LowRankAdapter, Pair, Replacement};
use super::options::LoraOptions;
use super::select;
use super::tensors::{FileTensor, FileTensors, LayerNames};
use std::sync::Arc;
use teeny_autograd::detached;
use teeny_core::{DType, Error, Result, Shape, Tensor};
use teeny_nn::Dropout;
use teeny_nn::init::Init;
use teeny_nn::store::{Adapter, Param, Reader, Store};

/// A layer with its pair of matrices.
pub(super) struct Layer {
    /// The name of the layer in files.
    pub name: String,
    pub tensor: FileTensor,
    pub a: Param,
    pub b: Param,
    pub scale: f64,
}

/// A tensor of the file that is trained as it is: rows of a parameter, often all.
pub(super) struct Saved {
    pub tensor: FileTensor,
    pub value: Param,
}

/// Which matrix of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Matrix {
    A,
    B,
}

/// Returns the initial value of a matrix of this shape, or of the whole tensor, as files have it.
/// Without one, training begins from the start.
type Values<'a> = dyn Fn(&FileTensor, Option<(Matrix, [usize; 2])>) -> Result<Option<Tensor>> + 'a;

pub(super) struct Plan {
    pub store: Store,
    pub options: LoraOptions,
    pub layers: Vec<Layer>,
    pub saved: Vec<Saved>,
    pub adapters: Vec<(Param, Arc<dyn Adapter>)>,
    pub switch: Arc<Enabled>,
}

/// The suffixes of the names of A and B.
pub(super) fn suffixes(reader: Reader) -> [&'static str; 2] {
    match reader {
        Reader::Rows => ["lora_embedding_A", "lora_embedding_B"],
        _ => ["lora_A.weight", "lora_B.weight"],
    }
}

impl Plan {
    /// New adapters for the layers that `options` choose.
    pub fn by_options(base: &Store, names: &LayerNames, mut options: LoraOptions) -> Result<Plan> {
        for own in &names.modules_to_save {
            if !options.modules_to_save.contains(own) {
                options.modules_to_save.push(own.clone());
            }
        }
        let tensors = FileTensors::of(base, names)?;
        let chosen = select::layers(&tensors, names, &options)?;
        let whole = select::whole(&tensors, &options, &chosen)?;
        Plan::new(base, options, &tensors, [&chosen, &whole], &|_, _| Ok(None))
    }

    /// Adapters for the layers at `chosen`, and the tensors at `whole`.
    pub fn new(
        base: &Store,
        options: LoraOptions,
        tensors: &FileTensors,
        [chosen, whole]: [&[usize]; 2],
        values: &Values<'_>,
    ) -> Result<Plan> {
        let dropout = Dropout::new(&base.root(), options.dropout)?;
        let numbers = options.alpha_pattern.iter().map(|(_, alpha)| *alpha);
        if let Some(alpha) = numbers.chain([options.alpha]).find(|alpha| !alpha.is_finite()) {
            return Err(Error::value(format!("alpha is {alpha}")).help("a finite number"));
        }
        let dtype = match (options.dtype, base.dtype()) {
            (Some(dtype), _) if !dtype.is_float() => {
                let text = format!("adapters are floats, not {dtype}");
                return Err(Error::dtype(text).help("leave out with_dtype"));
            }
            (Some(dtype), _) => dtype,
            (None, DType::F64) => DType::F64,
            (None, _) => DType::F32,
        };
        let (store, switch) = (Store::with_dtype(base.device(), dtype), Enabled::new(true));
        let layer = |i: &usize| Layer::new(&store, &tensors.all[*i], &options, values);
        let layers = chosen.iter().map(layer).collect::<Result<Vec<_>>>()?;
        let saved = |i: &usize| saved(&store, &tensors.all[*i], values);
        let saved = whole.iter().map(saved).collect::<Result<Vec<_>>>()?;
        let mut adapters: Vec<(Param, Arc<dyn Adapter>)> = Vec::new();
        let mut left: Vec<&Layer> = layers.iter().collect();
        while let Some(first) = left.first() {
            let (param, reader) = (first.tensor.param.clone(), first.tensor.reader);
            let same = |layer: &&Layer| layer.tensor.is_of(&param, reader);
            let (own, others): (Vec<&Layer>, _) = left.into_iter().partition(same);
            left = others;
            let mut pairs: Vec<Pair> = own.into_iter().map(Layer::pair).collect();
            pairs.sort_by_key(|pair| pair.rows.start);
            let (rows, dropout, switch) = (param.shape()[0], dropout.clone(), switch.clone());
            adapters
                .push((param, Arc::new(LowRankAdapter { pairs, rows, reader, dropout, switch })));
        }
        for Saved { tensor, value } in &saved {
            let (value, rows, switch) = (value.clone(), tensor.rows.clone(), switch.clone());
            let replacement = Replacement { value, rows, reader: tensor.reader, switch };
            adapters.push((tensor.param.clone(), Arc::new(replacement)));
        }
        Ok(Plan { store, options, layers, saved, adapters, switch })
    }
}

impl Layer {
    fn new(
        store: &Store,
        tensor: &FileTensor,
        options: &LoraOptions,
        values: &Values<'_>,
    ) -> Result<Layer> {
        let name = tensor.layer().unwrap_or(&tensor.name).to_string();
        let (rank, alpha) = select::size(options, &name)?;
        let (columns, dtype, device) = (tensor.param.shape()[1], store.dtype(), store.device());
        // the layer of an embedding (V, E) is one from V features to E
        let (inputs, outputs, init) = match tensor.reader {
            Reader::Rows => {
                (tensor.rows.len(), columns, [Init::ZEROS, Init::Normal { mean: 0.0, std: 1.0 }])
            }
            _ => (columns, tensor.rows.len(), [Init::TORCH, Init::ZEROS]),
        };
        let [a, b] = suffixes(tensor.reader).map(|suffix| format!("{name}.{suffix}"));
        let matrix = |which: Matrix, own: String, shape: [usize; 2]| {
            let value = match values(tensor, Some((which, shape)))? {
                Some(value) if which == Matrix::B && tensor.reader == Reader::Linear => {
                    tensor.to_model(&value)?
                }
                Some(value) => value,
                None => init[which as usize].tensor(Shape::new(&shape)?, dtype, device)?,
            };
            let noted = |e: Error| e.note(format!("for {own:?}"));
            adopted(store, &own, &value.cast(dtype)?).map_err(noted)
        };
        let a = matrix(Matrix::A, a, [rank, inputs])?;
        let b = matrix(Matrix::B, b, [outputs, rank])?;
        let divisor = if options.use_rslora { (rank as f64).sqrt() } else { rank as f64 };
        Ok(Layer { name, tensor: tensor.clone(), a, b, scale: alpha / divisor })
    }

    fn pair(&self) -> Pair {
        let Layer { tensor, a, b, scale, .. } = self;
        Pair { rows: tensor.rows.clone(), a: a.clone(), b: b.clone(), scale: *scale }
    }
}

impl FileTensor {
    /// Whether it is of `param`, for the same reader.
    fn is_of(&self, param: &Param, reader: Reader) -> bool {
        self.param.name() == param.name() && self.reader == reader
    }
}

/// A trainable parameter with this value.
fn adopted(store: &Store, name: &str, value: &Tensor) -> Result<Param> {
    let value = detached(value)?.to(store.device())?;
    // row-major from the start of a storage, as all parameters are
    let value = if value.layout().offset() > 0 { value.copy()? } else { value.contiguous()? };
    store.root().param_with(name, *value.shape(), &|_, _, _| Ok(value.clone()))
}

/// `tensor` as a separate parameter.
fn saved(store: &Store, tensor: &FileTensor, values: &Values<'_>) -> Result<Saved> {
    let base = tensor.param.floats()?;
    let value = match values(tensor, None)? {
        None if tensor.rows.len() == tensor.all() => base.clone(),
        None => base.slice(0, tensor.rows.start as isize..tensor.rows.end as isize)?,
        Some(value) if tensor.transposed => tensor.to_model(&value.t()?)?,
        Some(value) => tensor.to_model(&value)?,
    };
    let value = adopted(store, &tensor.name, &value.cast(base.dtype())?)?;
    Ok(Saved { value, tensor: tensor.clone() })
}
