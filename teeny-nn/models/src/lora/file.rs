//! The folder of an adapter in the format of peft: `adapter_config.json`,
//! `adapter_model.safetensors`.
//!
//! ```text
//! base_model.model. + layer + .lora_A.weight (r, in), .lora_B.weight (out, r)
//!                           + .lora_embedding_A (r, V), .lora_embedding_B (E, r)
//!                           + .base_layer.bias       a bias that is trained with its layer
//! base_model.model. + tensor                         others that are trained as a whole
//! ```

use super::config;
use super::options::{LoraOptions, Modules};
use super::plan::{Matrix, Plan, Saved, suffixes};
use super::tensors::{FileTensor, FileTensors, Found, LayerNames, LoraModel};
use super::{Lora, pattern, select};
use std::collections::BTreeMap;
use std::path::Path;
use teeny_autograd::detached;
use teeny_core::context::enter;
use teeny_core::file::{reason, replace, write_error};
use teeny_core::{DType, Error, Result, Tensor};
use teeny_formats::names::{listed, loading, nearest, of_file};
use teeny_formats::{TensorSource, Weights, open_weights, write};
use teeny_nn::store::Reader;

/// The prefix of names in the file.
const PREFIX: &str = "base_model.model.";

impl Lora {
    /// Opens the adapter in the folder `path`, which peft or [`Lora::save`] has written, and
    /// attaches it to `model`.
    ///
    /// # Errors
    /// If a file is missing, damaged or of another kind of adapter (DoRA and others are refused by
    /// name), a tensor is not finite, or the adapter belongs to another model: names or shapes
    /// differ. Nothing has changed then.
    #[track_caller]
    pub fn open(model: &impl LoraModel, path: impl AsRef<Path>) -> Result<Lora> {
        let _op = enter("Lora::open");
        let path = path.as_ref();
        let (names, base) = (model.names(), model.store().clone());
        let file = path.join("adapter_config.json");
        let parsed = config::parse(&file);
        let (mut options, notes) = parsed.map_err(|e| of_file(e, loading(&file)))?;
        let weights = path.join("adapter_model.safetensors");
        let old = path.join("adapter_model.bin");
        let weights = if !weights.exists() && old.exists() { old } else { weights };
        let source = open_weights(&weights, base.device())?;
        let tensors = FileTensors::of(&base, &names)?;
        // peft lists the names that heads of all families have
        options.modules_to_save.retain(|own| select::names_module(&tensors, own));
        let plan = AdapterFile::new(source, &tensors).and_then(|file| {
            file.check_targets(&tensors, &names, &options)?;
            let mut chosen: Vec<usize> = file.pairs.keys().map(|(i, _)| *i).collect();
            chosen.dedup();
            let whole: Vec<usize> = file.whole.keys().copied().collect();
            Plan::new(&base, options, &tensors, [&chosen, &whole], &|of, which| {
                file.value(of, which)
            })
        });
        let plan = plan.map_err(|e| of_file(e, loading(&weights)))?;
        Ok(Lora { notes, ..Lora::attached(base, names, plan)? })
    }

    /// Writes the adapters into the folder `path` as peft does, which it opens by
    /// `PeftModel.from_pretrained`. Each file is replaced as a whole.
    ///
    /// # Errors
    /// If a file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let _op = enter("Lora::save");
        let path = path.as_ref();
        let mut tensors = Vec::new();
        for layer in &self.layers {
            let [a, b] = suffixes(layer.tensor.reader);
            let value = detached(&layer.b.value())?;
            let value = match layer.tensor.reader {
                Reader::Linear => layer.tensor.to_file(&value)?,
                _ => value,
            };
            let name = |suffix: &str| format!("{PREFIX}{}.{suffix}", layer.name);
            tensors.push((name(a), detached(&layer.a.value())?));
            tensors.push((name(b), value));
        }
        for Saved { tensor, value } in &self.saved {
            let whole = tensor.to_file(&detached(&value.value())?)?;
            let whole = if tensor.transposed { whole.t()? } else { whole };
            tensors.push((self.saved_name(tensor), whole.contiguous()?));
        }
        let transposed = self.layers.iter().any(|layer| layer.tensor.transposed);
        let config = config::text(&self.options, &self.names, &self.targets()?, transposed);
        std::fs::create_dir_all(path).map_err(|e| {
            let text = format!("cannot make the folder {}: {}", path.display(), reason(path, &e));
            Error::io(text)
        })?;
        let metadata = BTreeMap::from([("format".to_string(), "pt".to_string())]);
        replace(&path.join("adapter_model.safetensors"), |to| write(to, &tensors, &metadata))?;
        replace(&path.join("adapter_config.json"), |to| {
            to.write_all(config.as_bytes()).map_err(write_error)
        })
    }

    /// The name of a tensor that is trained as a whole: peft has the bias of a layer with an
    /// adapter inside of it.
    fn saved_name(&self, tensor: &FileTensor) -> String {
        let inside = tensor
            .name
            .strip_suffix(".bias")
            .filter(|layer| tensor.is_bias() && self.layers.iter().any(|own| own.name == *layer));
        match inside {
            Some(layer) => format!("{PREFIX}{layer}.base_layer.bias"),
            None => format!("{PREFIX}{}", tensor.name),
        }
    }

    /// Names that select exactly the layers with adapters: the last components if these are enough,
    /// otherwise the full names.
    fn targets(&self) -> Result<Vec<String>> {
        let names = self.layers();
        let mut last: Vec<String> =
            names.iter().map(|name| name.rsplit('.').next().unwrap_or(name).to_string()).collect();
        last.sort();
        last.dedup();
        let tensors = FileTensors::of(&self.base, &self.names)?;
        let chosen = |name: &str| last.iter().any(|own| own == name || pattern::ends(name, own));
        let others = tensors.layers().any(|(_, name)| chosen(name) && !names.contains(&name));
        Ok(if others { names.into_iter().map(String::from).collect() } else { last })
    }
}

/// The tensors of an adapter's file, by the places of the tensors of the model that they are for.
struct AdapterFile {
    source: Weights,
    shapes: BTreeMap<String, Vec<usize>>,
    pairs: BTreeMap<(usize, Matrix), String>,
    whole: BTreeMap<usize, String>,
}

impl AdapterFile {
    fn new(source: Weights, tensors: &FileTensors) -> Result<AdapterFile> {
        let shapes = source.shapes().into_iter().collect();
        let mut file =
            AdapterFile { source, shapes, pairs: BTreeMap::new(), whole: BTreeMap::new() };
        for name in file.shapes.keys().cloned().collect::<Vec<_>>() {
            file.place(name, tensors)?;
        }
        if let Some((name, error)) = file.source.unreadable().into_iter().next() {
            return Err(error.note(format!("for {name:?}")));
        }
        let halves = |(i, which): &(usize, Matrix)| {
            let other = if *which == Matrix::A { Matrix::B } else { Matrix::A };
            (!file.pairs.contains_key(&(*i, other))).then_some(*i)
        };
        if let Some(i) = file.pairs.keys().find_map(halves) {
            let text = format!("{:?} has only one of its two matrices", tensors.all[i].name);
            return Err(Error::value(text).help("the file is incomplete; save it again"));
        }
        Ok(file)
    }

    /// Finds the purpose of the tensor `name` of the file.
    fn place(&mut self, name: String, tensors: &FileTensors) -> Result<()> {
        let own = name.strip_prefix(PREFIX).unwrap_or(&name);
        if own.contains("lora_magnitude_vector") {
            return Err(Error::unsupported(format!("cannot read an adapter with DoRA ({name:?})"))
                .help("merge it in peft, and open the merged model"));
        }
        // the module of which peft trains a copy
        if own.contains(".original_module.") {
            return Ok(());
        }
        let unknown = || {
            let layers: Vec<&str> = tensors.layers().map(|(_, layer)| layer).collect();
            let error = Error::value(format!("the model has nothing for {name:?}"))
                .note(format!("its layers are {}", select::kinds(&layers)));
            let layer = own.split(".lora_").next().unwrap_or(own);
            match nearest(layer, layers) {
                Some(near) => error.help(format!(
                    "open the model that the adapter was trained for; the nearest layer is {near:?}"
                )),
                None => error.help("open the model that the adapter was trained for"),
            }
        };
        for (reader, which) in [Reader::Linear, Reader::Rows]
            .into_iter()
            .flat_map(|reader| [(reader, Matrix::A), (reader, Matrix::B)])
        {
            let suffix = suffixes(reader)[which as usize];
            let Some(layer) = own.strip_suffix(suffix).and_then(|own| own.strip_suffix('.')) else {
                continue;
            };
            let is = |found: &Found| match found {
                Found::At(i) => tensors.all[*i].reader == reader,
                Found::Skipped => true,
                Found::Nothing => false,
            };
            let found = [".weight", "_weight"].map(|end| tensors.find(&format!("{layer}{end}")));
            return match found.into_iter().find(is) {
                Some(Found::At(i)) => {
                    self.pairs.insert((i, which), name.clone());
                    Ok(())
                }
                Some(Found::Skipped) => Ok(()),
                _ => Err(unknown()),
            };
        }
        let layer = own.replacen(".base_layer.", ".", 1).replacen(".modules_to_save.", ".", 1);
        match tensors.find(&layer) {
            Found::At(i) if own.ends_with(".base_layer.weight") => {
                self.check_base(&name, &tensors.all[i])
            }
            Found::At(i) => {
                self.whole.insert(i, name);
                Ok(())
            }
            Found::Skipped => Ok(()),
            Found::Nothing => Err(unknown()),
        }
    }

    /// Returns an error unless `tensor` of the model equals the tensor of the file: peft writes
    /// embeddings with adapters, which may have been resized or trained.
    fn check_base(&self, name: &str, tensor: &FileTensor) -> Result<()> {
        let shape = self.shapes.get(name).cloned().unwrap_or_default();
        if shape != tensor.shape() {
            return Err(differs(name, &shape, &tensor.shape()));
        }
        let (param, device) = (&tensor.param, tensor.param.stored());
        if param.quantized().is_some() {
            return Ok(());
        }
        // of the model in one type, and of the file in another
        let theirs = self.source.read(name, device.device())?;
        let (a, b) = (theirs.dtype(), device.dtype());
        let narrow = if a.size() < b.size() { a } else { b };
        let same = detached(&theirs)?.cast(narrow)?.eq(&param.floats()?.cast(narrow)?)?;
        if same.all(..)?.item::<bool>()? {
            return Ok(());
        }
        let text = format!("{name:?} is not the embedding of this model");
        Err(Error::value(text).help("open the model that the adapter was trained for"))
    }

    /// Returns an error unless the file has adapters for the layers that `options` choose.
    fn check_targets(
        &self,
        tensors: &FileTensors,
        names: &LayerNames,
        options: &LoraOptions,
    ) -> Result<()> {
        let chosen = select::chosen(tensors, names, options)?;
        let has = |i: &&usize| self.pairs.contains_key(&(**i, Matrix::A));
        let without: Vec<&str> =
            chosen.iter().filter(|i| !has(i)).filter_map(|i| tensors.all[*i].layer()).collect();
        if !without.is_empty() {
            let text = format!("the file has no adapters for {}", listed(&without));
            return Err(Error::value(text)
                .note("its target_modules choose these layers")
                .help("the adapter is of another model, or its file is not whole"));
        }
        if options.target_modules == Modules::Names(Vec::new()) {
            return Ok(()); // those that peft has for the family
        }
        // by the names of the model, or of the file, which may have another prefix
        let is_chosen = select::chooser(&options.target_modules, &|_, _| true)?;
        let other = |((i, _), name): (&(usize, Matrix), &String)| {
            let layer = name.split(".lora_").next()?.replacen(PREFIX, "", 1);
            // a head that is the embedding may have the embedding's
            let is_known = chosen.contains(i) || tensors.all[*i].param.is_tied();
            (!is_known && !is_chosen(*i, &layer)).then_some(layer)
        };
        let Some(layer) = self.pairs.iter().find_map(other) else { return Ok(()) };
        Err(Error::value(format!("\"target_modules\" does not choose {layer:?}"))
            .help("adapter_config.json is of another adapter"))
    }

    /// A matrix of the layer of `tensor`, or all of `tensor`; none, if the file has none.
    fn value(
        &self,
        tensor: &FileTensor,
        matrix: Option<(Matrix, [usize; 2])>,
    ) -> Result<Option<Tensor>> {
        let (name, shape) = match matrix {
            Some((which, shape)) => (self.pairs.get(&(tensor.place, which)), shape.to_vec()),
            None => (self.whole.get(&tensor.place), tensor.shape()),
        };
        name.map(|name| self.tensor(name, &shape, tensor)).transpose()
    }

    /// The tensor `name`, which must be finite and of this shape.
    fn tensor(&self, name: &str, wanted: &[usize], of: &FileTensor) -> Result<Tensor> {
        let shape = self.shapes.get(name).map_or(&[][..], |shape| shape);
        if shape != wanted {
            return Err(differs(name, shape, wanted));
        }
        let value = detached(&self.source.read(name, of.param.stored().device())?)?;
        let wide = if value.dtype() == DType::F64 { DType::F64 } else { DType::F32 };
        let finite = match wide {
            DType::F64 => value.to_vec::<f64>()?.iter().all(|x| x.is_finite()),
            _ => value.cast(wide)?.to_vec::<f32>()?.iter().all(|x| x.is_finite()),
        };
        if finite {
            return Ok(value);
        }
        Err(Error::value(format!("{name:?} has elements that are not finite"))
            .help("the training of the adapter diverged, or its file is damaged"))
    }
}

/// An error about a tensor of another shape than the model needs.
fn differs(name: &str, theirs: &[usize], ours: &[usize]) -> Error {
    Error::shape(format!("{name:?} is {theirs:?}, but this model needs {ours:?}"))
        .help("open the model that the adapter was trained for")
}
