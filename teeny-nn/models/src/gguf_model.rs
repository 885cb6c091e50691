//! [`GgufModel`]: a decoder of a folder under the keys, names and layout of GGUF.
//!
//! ```text
//! weights ─ names of the family ─► parameters ─ names of GGUF, reversed ─► tensors
//!                                     Llama: rows of queries and keys in other order; Gemma: 1 + w
//! ```

use super::gguf_keys::{self, GgufHeader, Metadata, SplitProjections};
use super::model_files::{ModelFiles, check_heads, resolve_model};
use super::texts::templates;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::{DType, DeviceRef, Error, Lazy, QuantTensor, Result, Shape, Tensor, ToDevice};
use teeny_formats::gguf::{ElementType, Value};
use teeny_formats::names::{loading, of_file};
use teeny_formats::{KeyMismatch, Mapped, TensorSource, Weights};
use teeny_nn::store::Store;
use teeny_nn::transformer::{CausalLm, CausalLmConfig, NormKind, Positions};

/// A decoder of a folder of Hugging Face as GGUF has it: metadata, and the names and the layout of
/// tensors. Tensors are read from the folder one at a time, by [`teeny_formats::gguf::save`].
///
/// Models of all families of [`super::Decoder`] have a file; Mistral's have the architecture
/// `llama`. The file loses: a normal form of Unicode before a text is split; the white space and
/// the ends of words that added tokens need; that only the first part of a text begins with a
/// space; a dynamic scaling of positions, which begins beyond the context; and the end tokens after
/// the third. llama.cpp ignores windows of the architectures `llama`, `qwen2`, `qwen3` and `phi3`.
///
/// # Example
/// ```no_run
/// use teeny_core::QuantType;
/// use teeny_models::GgufModel;
/// use teeny_formats::gguf::{save, ElementType, WriteOptions};
/// # fn main() -> teeny_core::Result<()> {
/// # let device = teeny_nn::device::device("cpu")?;
/// let model = GgufModel::open("HuggingFaceTB/SmolLM2-135M", &device)?;
/// let options = WriteOptions::new().with_matrices(ElementType::Quantized(QuantType::Q8_0));
/// save("smollm2.gguf", model.metadata(), &model, &options, &device, |_| {})?;
/// # Ok(()) }
/// ```
pub struct GgufModel {
    metadata: Metadata,
    tensors: Mapped<Weights>,
    divisors: BTreeMap<String, Vec<f32>>,
    options: CausalLmConfig,
    has_adjacent_pairs: bool,
}

impl GgufModel {
    /// Opens the folder `path`, or `ORG/NAME` in the local cache of the Hugging Face hub. The
    /// tensors stay in the files.
    ///
    /// # Errors
    /// As [`super::Decoder::open`]; if `path` is a GGUF file, the model has options or a tokenizer
    /// that GGUF does not have.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, device: impl ToDevice) -> Result<GgufModel> {
        let _op = enter("GgufModel::open");
        let path = resolve_model(path.as_ref())?;
        if teeny_formats::is_gguf(&path) {
            let error = Error::value("this is a GGUF file already").named(loading(&path));
            return Err(error.help("gguf::save writes it with other types"));
        }
        let device = device.to_device();
        let opened = ModelFiles::folder(&path, &[], &device)?;
        let weights: Weights = Arc::new(opened.mapping.apply(opened.weights.clone())?);
        check_heads(&opened.sizes, &opened.config, &opened.mapping, &opened.weights)?;
        GgufModel::of(&path, &opened, weights, &device)
    }

    /// The model of the folder `path`, whose parameters are in `store`.
    pub(super) fn of_store(path: &Path, store: &Store) -> Result<GgufModel> {
        let opened = ModelFiles::folder(path, &[], store.device())?;
        GgufModel::of(path, &opened, Arc::new(Params(store.clone())), store.device())
    }

    /// The model with these parameters, under the names of this crate.
    fn of(
        path: &Path,
        opened: &ModelFiles,
        params: Weights,
        device: &DeviceRef,
    ) -> Result<GgufModel> {
        let (options, config) = (&opened.sizes, &opened.config);
        config.check_layers(options.n_layer, params.shapes().len())?;
        check_params(options, &params, device).map_err(|e| config.noted(e))?;
        let name = match config.text("model_type")?.unwrap_or_default() {
            "mistral" => "llama",
            name => name.trim_end_matches("_text"),
        };
        let GgufHeader { mut metadata, divisors } = gguf_keys::to_metadata(name, options);
        // these have them joined
        let qkv = !["phi3", "gpt2"].contains(&name);
        let apart = SplitProjections { qkv, gate: qkv && options.gated };
        let mapping = gguf_keys::mapping(options, apart).inverse();
        let mut model = GgufModel {
            metadata: Metadata::new(),
            tensors: mapping.apply(params)?,
            divisors: divisors.into_iter().map(|(name, x)| (name.to_string(), x)).collect(),
            options: options.clone(),
            has_adjacent_pairs: gguf_keys::has_adjacent_pairs(name),
        };
        let (_, read) = gguf_keys::options(path, &metadata, &model, device)?;
        let differing = gguf_keys::config_diff(options, &read);
        if !differing.is_empty() {
            let text =
                format!("GGUF does not say how this model differs: {}", differing.join(", "));
            let help = "Decoder::save writes a folder; a GGUF file would be another model";
            return Err(config.error(text).help(help));
        }
        if let Some(name) = name_of(path) {
            metadata.insert("general.name".to_string(), Value::Text(name));
        }
        add_tokenizer(path, opened, &mut metadata)?;
        model.metadata = metadata;
        Ok(model)
    }

    /// The metadata: sizes and options, the tokenizer, and the chat template.
    pub fn metadata(&self) -> &BTreeMap<String, Value> {
        &self.metadata
    }

    /// The rows of tensor `name` of `rows` rows in the order of the file, if it is another.
    fn order(&self, name: &str, rows: usize) -> Option<Vec<usize>> {
        let rotated = [".attn_q.", ".attn_k."].iter().any(|part| name.contains(part));
        let Positions::Rotary { full, .. } = &self.options.positions else { return None };
        let (size, dims) = (self.options.head_size, full.dims.unwrap_or(self.options.head_size));
        let from = |row: usize| match row % size {
            i if i < dims => row - i + i / 2 + i % 2 * (dims / 2),
            _ => row,
        };
        (self.has_adjacent_pairs && rotated).then(|| (0..rows).map(from).collect())
    }

    /// Whether tensor `name` is read as floats of 32 bits.
    fn is_single(&self, name: &str) -> bool {
        let is_vector = self.tensors.shape(name).is_some_and(|shape| shape.len() < 2);
        is_vector || name.starts_with("position_embd")
    }
}

impl TensorSource for GgufModel {
    fn label(&self) -> String {
        self.tensors.label()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let mut shapes = self.tensors.shapes();
        // a copy of the embedding
        shapes.retain(|(name, _)| !self.options.tied || name != "output.weight");
        shapes.extend(self.divisors.iter().map(|(name, x)| (name.clone(), vec![x.len()])));
        shapes
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        if let Some(divisors) = self.divisors.get(name) {
            return Tensor::from_vec(divisors.clone(), divisors.len(), device);
        }
        let x = self.tensors.read(name, device)?;
        let rows = x.shape().first().copied().unwrap_or(0);
        let x = match self.order(name, rows) {
            Some(order) => {
                let order: Vec<i64> = order.into_iter().map(|row| row as i64).collect();
                x.index_select(0, &Tensor::from_vec(order, rows, device)?)?
            }
            None => x,
        };
        let x = if self.is_single(name) { x.cast(DType::F32)? } else { x };
        match self.options.norm {
            NormKind::RmsUnitOffset if name.ends_with("norm.weight") => x.add(1.0),
            _ => Ok(x),
        }
    }

    fn read_quantized(&self, name: &str, device: &DeviceRef) -> Result<Option<QuantTensor>> {
        if self.divisors.contains_key(name) || self.is_single(name) {
            return Ok(None);
        }
        let weight = self.tensors.read_quantized(name, device)?;
        match weight.as_ref().and_then(|weight| self.order(name, weight.shape()[0])) {
            Some(order) => weight.map(|weight| weight.select_rows(&order)).transpose(),
            None => Ok(weight),
        }
    }

    fn element_type(&self, name: &str) -> Option<ElementType> {
        let of = self.tensors.element_type(name).filter(|_| !self.is_single(name));
        of.filter(|of| *of != ElementType::Plain(DType::F64))
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        self.tensors.unreadable()
    }
}

/// The name of the model in the folder `path`, or in `models--ORG--NAME/snapshots/..` of the cache.
fn name_of(path: &Path) -> Option<String> {
    let path = path.canonicalize().ok()?;
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).map(str::to_string);
    match path.parent().filter(|parent| name(parent).as_deref() == Some("snapshots")) {
        Some(snapshots) => Some(name(snapshots.parent()?)?.rsplit("--").next()?.to_string()),
        None => name(&path),
    }
}

/// The parameters of a store, quantised ones too.
struct Params(Store);

impl TensorSource for Params {
    fn label(&self) -> String {
        "save".to_string()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let shape =
            |param: &teeny_nn::store::Param| (param.name().to_string(), param.shape().to_vec());
        self.0.all().iter().map(shape).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        let param = self.0.get(name)?;
        match param.quantized() {
            Some(weight) => weight.dequantize()?.to(device),
            None => param.floats()?.to(device),
        }
    }

    fn read_quantized(&self, name: &str, _: &DeviceRef) -> Result<Option<QuantTensor>> {
        Ok(self.0.get(name)?.quantized())
    }

    fn element_type(&self, name: &str) -> Option<ElementType> {
        let param = self.0.get(name).ok()?;
        Some(match param.quantized() {
            Some(weight) => ElementType::Quantized(weight.parts()[0].kind),
            None => ElementType::Plain(param.value().dtype()),
        })
    }
}

/// Returns an error unless `params` belong to a model with these options.
fn check_params(options: &CausalLmConfig, params: &Weights, device: &DeviceRef) -> Result<()> {
    // nothing computes their values
    let store = Store::new(Lazy::new(device.clone()));
    let mut small = options.clone();
    small.context = if small.learned_positions() { small.context } else { 1 };
    CausalLm::new(&store.root(), small)?;
    let mut found: BTreeMap<String, Vec<usize>> = params.shapes().into_iter().collect();
    let mut keys = KeyMismatch::default();
    for param in store.all() {
        let shape: Shape = param.shape();
        match found.remove(param.name()) {
            None => keys.missing(param.name(), &shape),
            Some(other) if other[..] != shape[..] => keys.shape(param.name(), &other, &shape),
            Some(_) => {}
        }
    }
    if options.tied {
        found.remove("lm_head.weight");
    }
    found.keys().for_each(|name| keys.unexpected(name));
    keys.check("the model").map_err(|e| e.named(params.label()))
}

/// Adds the keys of the tokenizer in the folder `path` and of its chat template.
fn add_tokenizer(path: &Path, opened: &ModelFiles, metadata: &mut Metadata) -> Result<()> {
    let mut set = |key: &str, value: Value| {
        metadata.insert(format!("tokenizer.{key}"), value);
    };
    for (template, key) in templates(path)?.into_iter().zip(["", ".tool_use"]) {
        if let Some((_, source)) = template {
            set(&format!("chat_template{key}"), Value::Text(source));
        }
    }
    match &opened.tokenizer {
        Ok(tokenizer) => {
            let added = tokenizer.to_gguf(opened.sizes.vocab, metadata);
            added.map_err(|e| of_file(e, loading(path)))?;
        }
        Err(error) if FILES.iter().any(|name| path.join(name).exists()) => {
            return Err(error.clone());
        }
        // weights without a tokenizer
        Err(_) => set("ggml.model", Value::Text("none".to_string())),
    }
    // the tokens that end an answer, as many as there are keys
    for id in &opened.generation.eos_tokens {
        let key = |name: &str| format!("tokenizer.ggml.{name}_token_id");
        let keys = ["eos", "eot", "eom"].map(key);
        let own = |key: &String| metadata.get(key).and_then(Value::as_u64);
        if !keys.iter().any(|key| own(key) == Some((*id).into()))
            && let Some(free) = keys.into_iter().find(|key| own(key).is_none())
        {
            metadata.insert(free, Value::Unsigned((*id).into()));
        }
    }
    Ok(())
}

/// Files of tokenizers.
const FILES: [&str; 4] = ["tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt"];
