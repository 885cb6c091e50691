//! Loads the tensors of a source as the parameters of a model, which exists or is being built.
//!
//! ```text
//! load_from    the parameters of a store get other values, all of them or none
//! build_from   each parameter is read when its layer makes it; no initial values are drawn
//! ```

use super::{FirstValue, FirstValues, Param, Path, Store, Value};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use teeny_core::context::enter;
use teeny_core::{DeviceRef, Error, QuantTensor, QuantType, Result, Shape, Tensor};
use teeny_formats::{Index, KeyMismatch, Mapping, TensorSource, Weights};

/// The result of [`Store::load_from`] and [`Store::build_from`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Parameters and buffers with a new value.
    pub loaded: Vec<String>,
    /// Parameters and buffers that are not in the file.
    pub missing_keys: Vec<String>,
    /// Names in the file that the model does not have.
    pub unexpected_keys: Vec<String>,
    /// Names in the file that the mapping skips.
    pub skipped: Vec<String>,
}

impl Store {
    /// Replaces parameters and buffers by the tensors of `source`, renamed by `mapping`.
    ///
    /// # Errors
    /// If there are missing keys, unexpected keys or shape mismatches: the error lists all of them,
    /// and nothing has changed. With `Mapping::strict(false)` only shape mismatches are errors. As
    /// [`Mapping::apply`].
    ///
    /// # Example
    /// ```no_run
    /// use teeny_formats::{SafeTensors, Mapping};
    /// use teeny_nn::Store;
    /// # fn demo(store: &Store) -> teeny_core::Result<()> {
    /// let file = SafeTensors::open("gpt2.safetensors")?;
    /// let report = store.load_from(&file, &Mapping::gpt2().strict(false))?;
    /// println!("not in the file: {:?}", report.missing_keys);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn load_from(&self, source: &dyn TensorSource, mapping: &Mapping) -> Result<LoadReport> {
        let _op = enter("load_from");
        self.load_mapped(source, mapping).map_err(|e| e.named(source.label()))
    }

    fn load_mapped(&self, source: &dyn TensorSource, mapping: &Mapping) -> Result<LoadReport> {
        let index = Index::new(source, mapping)?;
        let mut keys = Keys::default();
        let params = self.all();
        let mut matching = Vec::new();
        for param in &params {
            if keys.compare(&index, mapping, param.name(), param.stored().shape())? == Key::Fits {
                matching.push(param);
            }
        }
        let report = keys.report(&index, mapping)?;
        let read = |name: &str| index.read(source, name, self.device());
        let tensors = matching.iter().map(|p| read(p.name())).collect::<Result<Vec<_>>>()?;
        Param::set_all(matching.into_iter().zip(&tensors))?;
        Ok(report)
    }

    /// Makes a model whose parameters are read from `source` while `make` makes its layers at the
    /// path that it gets, the root of this store. So no initial values are drawn, and tensors that
    /// are not in memory yet are read one at a time.
    ///
    /// # Errors
    /// As [`Store::load_from`]; the errors of `make`; if `make` calls it for the same store. The
    /// parameters that `make` has made are removed again.
    ///
    /// # Example
    /// ```
    /// use std::sync::Arc;
    /// use teeny_formats::{SafeTensors, Mapping};
    /// use teeny_nn::{Linear, Store, device::device};
    /// # fn main() -> teeny_core::Result<()> {
    /// let (saved, store) = (Store::new(&device("cpu")?), Store::new(&device("cpu")?));
    /// Linear::new(&saved.at("fc"), 4, 3)?;
    /// let file = SafeTensors::from_bytes(saved.to_bytes()?)?;
    /// let mapping = Mapping::new().rename("fc.*", "head.*");
    /// let (_head, report) =
    ///     store.build_from(Arc::new(file), &mapping, |root| Linear::new(&root.at("head"), 4, 3))?;
    /// assert_eq!(report.loaded, ["head.weight", "head.bias"]);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn build_from<M>(
        &self,
        source: Weights,
        mapping: &Mapping,
        make: impl FnOnce(&Path) -> Result<M>,
    ) -> Result<(M, LoadReport)> {
        let _op = enter("build_from");
        self.build_quantized(source, mapping, (true, None), make)
    }

    /// [`Store::build_from`] that `keeps` quantised matrices or makes them floats, with others
    /// quantised to `kind`, each as soon as it is read, where rows are whole blocks: all of them as
    /// floats are never in memory.
    ///
    /// # Errors
    /// As [`Store::build_from`].
    pub fn build_quantized<M>(
        &self,
        source: Weights,
        mapping: &Mapping,
        (keeps, kind): (bool, Option<QuantType>),
        make: impl FnOnce(&Path) -> Result<M>,
    ) -> Result<(M, LoadReport)> {
        let named = |error: Error| error.named(source.label());
        let index = Index::new(&*source, mapping).map_err(named)?;
        let (source, own, keys) = (source.clone(), mapping.clone(), Mutex::default());
        let reader = Arc::new(ParamReader { source, keeps, index, mapping: own, keys });
        let values = reader.clone();
        let values: Arc<FirstValues> = Arc::new(move |wanted, device| {
            let value = values.read(wanted, device).and_then(|value| match value {
                Some(Value::Plain(weight)) if wanted.quantized => quantized(weight, kind).map(Some),
                value => Ok(value),
            });
            value.map_err(|error| error.named(values.source.label()))
        });
        self.root().build("build_from", || {
            let model = with_values(self, values, || make(&self.root()))?;
            let keys = std::mem::take(&mut *reader.keys());
            Ok((model, keys.report(&reader.index, mapping).map_err(named)?))
        })
    }
}

/// `weight`, quantised to `kind` if its rows are whole blocks of it.
fn quantized(weight: Tensor, kind: Option<QuantType>) -> Result<Value> {
    match kind.and_then(|kind| kind.fitting(weight.shape()[1])) {
        Some(kind) => QuantTensor::quantize(&weight, kind).map(Value::Quantized),
        None => Ok(Value::Plain(weight)),
    }
}

/// Runs `make`, in which the parameters of `store` begin with `values`.
fn with_values<T>(
    store: &Store,
    values: Arc<FirstValues>,
    make: impl FnOnce() -> Result<T>,
) -> Result<T> {
    /// Later parameters are drawn, also after a panic.
    struct Reset<'a>(&'a Store);
    impl Drop for Reset<'_> {
        fn drop(&mut self) {
            *self.0.first_values() = None;
        }
    }
    let mut first_values = store.first_values();
    if first_values.is_some() {
        return Err(Error::value("the parameters of this store are being read already")
            .help("build models of several files one after the other"));
    }
    *first_values = Some(values);
    drop(first_values);
    let _reset = Reset(store);
    make()
}

/// A source from which the parameters of a store are read as they are made.
struct ParamReader {
    source: Weights,
    /// Whether quantised matrices stay.
    keeps: bool,
    index: Index,
    mapping: Mapping,
    keys: Mutex<Keys>,
}

impl ParamReader {
    fn keys(&self) -> MutexGuard<'_, Keys> {
        // names are noted one by one, so the notes are whole after a panic
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ParamReader {
    fn read(&self, wanted: &FirstValue<'_>, device: &DeviceRef) -> Result<Option<Value>> {
        let FirstValue { name, shape, dtype, quantized } = *wanted;
        let key = self.keys().compare(&self.index, &self.mapping, name, &shape)?;
        let value = match key {
            Key::Absent => return Ok(None),
            // the other names are compared too, so that one error has them all: one zero stands for
            // any number of them
            Key::Differs => Tensor::zeros((), dtype, device)?.expand(shape)?,
            Key::Fits => {
                if quantized
                    && self.keeps
                    && let Some(value) = self.index.read_quantized(&*self.source, name, device)?
                {
                    return Ok(Some(Value::Quantized(value)));
                }
                let value = self.index.read(&*self.source, name, device)?.cast(dtype)?;
                // from the start of a storage, as all parameters are
                let whole = value.layout().offset() == 0;
                if whole { value.contiguous()? } else { value.copy()? }
            }
        };
        Ok(Some(Value::Plain(value)))
    }
}

/// How the file has a parameter.
#[derive(Clone, Copy, PartialEq)]
enum Key {
    Fits,
    /// Not at all, which is allowed.
    Absent,
    /// A tensor that is missing or has another shape is an error of [`Keys::report`].
    Differs,
}

/// The names that a model and a source have, compared.
#[derive(Default)]
struct Keys {
    report: LoadReport,
    mismatch: KeyMismatch,
    /// Names of the model that the source has too.
    met: BTreeSet<String>,
}

impl Keys {
    /// Compares the parameter `name` with the tensor that is read for it.
    fn compare(
        &mut self,
        index: &Index,
        mapping: &Mapping,
        name: &str,
        shape: &Shape,
    ) -> Result<Key> {
        let Some(recipe) = index.recipes.get(name) else {
            if let Some((_, error)) = index.unreadable.get(name) {
                return Err(error.clone());
            }
            self.report.missing_keys.push(name.to_string());
            if mapping.allows_missing(name) {
                return Ok(Key::Absent);
            }
            self.mismatch.missing(name, shape);
            return Ok(Key::Differs);
        };
        self.met.insert(name.to_string());
        if recipe.shape[..] != shape[..] {
            self.mismatch.shape(name, &recipe.shape, shape);
            return Ok(Key::Differs);
        }
        self.report.loaded.push(name.to_string());
        Ok(Key::Fits)
    }

    /// The report, or an error with all differences.
    fn report(mut self, index: &Index, mapping: &Mapping) -> Result<LoadReport> {
        let recipes = index.recipes.iter();
        let recipes = recipes.map(|(ours, recipe)| (ours, recipe.theirs().collect::<Vec<_>>()));
        let unreadable = index.unreadable.iter().map(|(ours, (theirs, _))| (ours, vec![theirs]));
        // a tensor that is split has several names here
        let mut seen = BTreeSet::new();
        for (ours, theirs) in
            recipes.chain(unreadable).filter(|(ours, _)| !self.met.contains(*ours))
        {
            for name in theirs.into_iter().filter(|name| seen.insert(*name)) {
                if !mapping.allows_unexpected(ours) {
                    self.mismatch.unexpected(name);
                }
                self.report.unexpected_keys.push(name.clone());
            }
        }
        self.mismatch.check("the model")?;
        self.report.skipped.extend(index.skipped.iter().cloned());
        Ok(self.report)
    }
}
