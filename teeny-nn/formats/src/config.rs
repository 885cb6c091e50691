//! [`Config`]: reads the sizes and options in `config.json`, under the keys of a model family.

use crate::keys;
use crate::names::{loading, of_file};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use teeny_core::file::quoted;
use teeny_core::{Error, Result};

/// The number of classes at most: their names are made before the weights are read.
const LABELS: usize = 1_000_000;

/// The keys of the files of a family of models.
#[derive(Clone, Default)]
pub struct Family {
    /// Values that no file changes.
    pub fixed: Map<String, Value>,
    /// Values of keys that a file lacks.
    pub defaults: Map<String, Value>,
    /// The names that files have for a key.
    pub names: BTreeMap<String, Vec<String>>,
    /// Keys of other families, which this one does not read.
    pub foreign: HashSet<String>,
}

/// A `config.json`.
#[derive(Clone)]
pub struct Config {
    /// The keys of the family; empty, if it is not known.
    pub family: Arc<Family>,
    path: PathBuf,
    /// The member of the file that has the values, if it is not the whole.
    section: Option<String>,
    values: Value,
    /// The keys that were read, with the names of sections before them.
    read: Arc<Mutex<HashSet<String>>>,
}

impl Config {
    /// The `config.json` of a folder.
    ///
    /// # Errors
    /// If the file does not exist or is not a JSON object.
    pub fn open(folder: &Path) -> Result<Config> {
        if folder.is_file() {
            return Err(Error::io("this is a file, not the folder of a model")
                .named(loading(folder))
                .help("use the folder that has config.json and the weights"));
        }
        Config::open_file(folder.join("config.json"))
    }

    /// Another file with keys and values.
    pub fn open_file(path: PathBuf) -> Result<Config> {
        let (path, values) = read(path)?;
        let config = Config::of(&path, None, values);
        if config.values.is_object() {
            return Ok(config);
        }
        Err(config.error("not a JSON object".to_string()))
    }

    /// A configuration of these values, which are a `section` of the file or the whole.
    pub fn of(path: &Path, section: Option<&str>, values: Value) -> Config {
        let (family, path, read) = (Arc::default(), path.to_path_buf(), Arc::default());
        let section = section.map(str::to_string);
        Config { family, path, section, values, read }
    }

    /// The member `key` of this file, if it is an object.
    pub fn section(&self, key: &str) -> Option<Config> {
        self.part(key).ok().filter(|_| self.get(&[key]).is_some())
    }

    /// The member `key` as a configuration, without values if it is missing.
    pub fn part(&self, key: &str) -> Result<Config> {
        match self.get(&[key]) {
            Some(value) if !value.is_object() => Err(self.wrong(&[key], value, "an object")),
            value => {
                let values = value.cloned().unwrap_or_else(|| Value::Object(Default::default()));
                let (path, section) = (self.path.clone(), Some(self.name(key)));
                let foreign = self.family.foreign.clone();
                let family = Arc::new(Family { foreign, ..Family::default() });
                Ok(Config { family, path, section, values, read: self.read.clone() })
            }
        }
    }

    /// All values.
    pub fn values(&self) -> &Value {
        &self.values
    }

    /// An error about this file.
    pub fn error(&self, text: String) -> Error {
        let text = match &self.section {
            Some(section) => format!("in {section:?}: {text}"),
            None => text,
        };
        let help = "the file was changed or is another model's: take the one of these weights";
        Error::value(text).named(loading(&self.path)).help(help)
    }

    /// `error` of a model that was made as this file says.
    pub fn noted(&self, error: Error) -> Error {
        error.note(format!("sizes and options come from {:?}", self.path.display().to_string()))
    }

    /// `key` with the names of the sections before it.
    fn name(&self, key: &str) -> String {
        self.section.iter().map(|section| format!("{section}.")).collect::<String>() + key
    }

    /// The value of `key`, which is noted as read.
    pub fn value(&self, key: &str) -> Option<&Value> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.insert(self.name(key));
        self.values.get(key)
    }

    /// The unread keys whose value is not null. Keys in a section that was read are included.
    pub fn unread(&self) -> Vec<String> {
        fn members<'a>(key: &str, values: &'a Value) -> Vec<(String, &'a Value)> {
            let members = values.as_object().into_iter().flatten();
            members.map(|(own, value)| (format!("{key}{own}"), value)).collect()
        }
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut left, mut unread) = (members(&self.name(""), &self.values), Vec::new());
        while let Some((key, value)) = left.pop() {
            let inside = format!("{key}.");
            if !read.contains(&key) && !value.is_null() {
                unread.push(key);
            } else if read.iter().any(|own| own.starts_with(&inside)) {
                left.extend(members(&inside, value));
            }
        }
        unread.sort();
        unread
    }

    /// Reads the keys that [`keys`] lists for files of these kinds, and returns the unread rest.
    ///
    /// # Errors
    /// If a key of these kinds is refused, or the file has one of the family by two names with two
    /// values.
    pub fn check(&self, kinds: &[&str], ignored: &[String]) -> Result<Vec<String>> {
        for names in self.family.names.values().filter(|_| kinds.contains(&"config")) {
            let value = |name| Some((name, self.values.get(name).filter(|x| !x.is_null())?));
            let found: Vec<_> = names.iter().filter_map(value).collect();
            if let Some((other, x)) = found.iter().find(|(_, x)| *x != found[0].1) {
                let text = format!("{:?} is {}, but {other:?} is {x}", found[0].0, found[0].1);
                return Err(self.error(text));
            }
        }
        let help = "use another model; OpenOptions::ignore_keys opens it as without the key";
        // a row for some families, and an option of this one
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_option = |key: &str| {
            let mut names = self.family.defaults.keys().chain(self.family.names.values().flatten());
            read.contains(&self.name(key)) && names.any(|own| own == key)
        };
        let value = |key: &str| self.value(key).filter(|_| !is_option(key)).cloned();
        match keys::refused(kinds, ignored, value) {
            None => Ok(self.unread()),
            Some(text) => Err(self.error(text).help(help)),
        }
    }

    /// The name of `key` in errors: the name in this file, or else the first name that files use.
    pub fn shown<'a>(&'a self, key: &'a str) -> &'a str {
        let names = self.family.names.get(key).and_then(|names| names.first());
        self.named(key).unwrap_or(names.map_or(key, String::as_str))
    }

    /// The name that this file has for `key`, if it has the key.
    fn named<'a>(&'a self, key: &'a str) -> Option<&'a str> {
        let names = self.family.names.get(key);
        if names.is_none() && !self.family.foreign.contains(key) {
            return self.value(key).map(|_| key);
        }
        // each is noted as read
        let names = names.into_iter().flatten().map(String::as_str);
        let found: Vec<_> = names.filter(|name| self.value(name).is_some()).collect();
        found.first().copied()
    }

    /// The value of the first of `keys` that the family fixes or the file has, otherwise the
    /// family's default. Null counts as missing.
    pub fn get(&self, keys: &[&str]) -> Option<&Value> {
        let own = |key: &&str| match self.family.fixed.get(*key) {
            Some(value) => Some(value),
            None => self.values.get(self.named(key)?),
        };
        let (own, usual) = (keys.iter().filter_map(own), keys.iter());
        let usual = usual.filter_map(|key| self.family.defaults.get(*key));
        own.chain(usual).find(|value| !value.is_null())
    }

    /// The text of `key`.
    ///
    /// # Errors
    /// If it is something else.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        let Some(value) = self.get(&[key]) else { return Ok(None) };
        value.as_str().map(Some).ok_or_else(|| self.wrong(&[key], value, "a text"))
    }

    /// The size of the first of `keys` that is there, otherwise `default`.
    pub fn size(&self, keys: &[&str], default: usize) -> Result<usize> {
        let Some(value) = self.get(keys) else { return Ok(default) };
        let size = value.as_u64().and_then(|size| u32::try_from(size).ok());
        size.map(|size| size as usize).ok_or_else(|| self.wrong(keys, value, "a size"))
    }

    /// The height and the width of `key`: a number, a list of two, or an object.
    pub fn sides(&self, key: &str) -> Result<Option<[usize; 2]>> {
        let Some(value) = self.get(&[key]) else { return Ok(None) };
        let size = |value: &Value| u32::try_from(value.as_u64()?).ok().map(|size| size as usize);
        let sides = match (value, value.as_array().map(Vec::as_slice)) {
            (Value::Object(_), _) => {
                let section = self.part(key)?;
                let side = |name| section.value(name).and_then(size);
                side("height").zip(side("width"))
            }
            (_, Some([height, width])) => size(height).zip(size(width)),
            _ => size(value).map(|size| (size, size)),
        };
        match sides {
            Some((height, width)) => Ok(Some([height, width])),
            None => Err(self.wrong(&[key], value, "a size, or a height and a width")),
        }
    }

    /// The number under the first of `keys` that the file has, otherwise `default`.
    pub fn number(&self, keys: &[&str], default: f64) -> Result<f64> {
        Ok(self.number_of(keys)?.unwrap_or(default))
    }

    /// The probability under the first of `keys` that the file has, otherwise `default`.
    pub fn probability(&self, keys: &[&str], default: f64) -> Result<f64> {
        let p = self.number(keys, default)?;
        let wrong = || self.error(format!("{:?} is {p}, not a probability", self.shown(keys[0])));
        if (0.0..=1.0).contains(&p) { Ok(p) } else { Err(wrong()) }
    }

    /// The number under the first of `keys` that the file has.
    pub fn number_of(&self, keys: &[&str]) -> Result<Option<f64>> {
        let Some(value) = self.get(keys) else { return Ok(None) };
        value.as_f64().map(Some).ok_or_else(|| self.wrong(keys, value, "a number"))
    }

    /// The truth value of `key`, otherwise `default`.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool> {
        let Some(value) = self.get(&[key]) else { return Ok(default) };
        value.as_bool().ok_or_else(|| self.wrong(&[key], value, "true or false"))
    }

    /// The items of the list `key`, each by `item`. One item needs no list.
    pub fn list<T>(
        &self,
        key: &str,
        wanted: &str,
        item: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<Vec<T>>> {
        let Some(value) = self.get(&[key]) else { return Ok(None) };
        let items = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        let items = items.iter().map(item).collect::<Option<_>>();
        items.map(Some).ok_or_else(|| self.wrong(&[key], value, wanted))
    }

    /// The chat template `name` of a `tokenizer_config.json`: a text is `default`.
    pub fn chat_template(&self, name: &str) -> Result<Option<String>> {
        let Some(value) = self.get(&["chat_template"]) else { return Ok(None) };
        if let Some(text) = value.as_str() {
            return Ok(Some(text.to_string()).filter(|_| name == "default"));
        }
        let items = value.as_array().map(Vec::as_slice).unwrap_or_default();
        let found = items.iter().find(|item| item["name"] == name);
        match found.and_then(|item| item["template"].as_str()) {
            Some(text) => Ok(Some(text.to_string())),
            None if found.is_none() && value.is_array() => Ok(None),
            None => Err(self.error("\"chat_template\" is neither a text nor a list".to_string())),
        }
    }

    /// The texts of the object `key` by their names.
    pub fn texts(&self, key: &str) -> Result<Vec<(String, String)>> {
        let Some(value) = self.get(&[key]) else { return Ok(Vec::new()) };
        let text =
            |(name, value): (&String, &Value)| Some((name.clone(), value.as_str()?.to_string()));
        let all = value.as_object().and_then(|members| members.iter().map(text).collect());
        all.ok_or_else(|| self.wrong(&[key], value, "texts by their names"))
    }

    /// The first text of the list `key`.
    pub fn first_text(&self, key: &str) -> Option<&str> {
        self.get(&[key])?.as_array()?.first()?.as_str()
    }

    /// The names of classes by their number.
    pub fn labels(&self) -> Result<Vec<String>> {
        let Some(value) = self.get(&["id2label"]) else {
            let count = self.size(&["num_labels"], 2)?;
            if count > LABELS {
                return Err(self.error(format!("\"num_labels\" is {count}, above {LABELS}")));
            }
            return Ok((0..count).map(|i| format!("LABEL_{i}")).collect());
        };
        let wrong = || self.wrong(&["id2label"], value, "texts of the classes 0, 1, ..");
        let names = value.as_object().ok_or_else(wrong)?;
        let name = |i: usize| names.get(&i.to_string())?.as_str().map(str::to_string);
        (0..names.len()).map(name).collect::<Option<_>>().ok_or_else(wrong)
    }

    /// Makes this the configuration of a model of `class` for `labels`. Returns whether its head
    /// is a new one.
    ///
    /// # Errors
    /// If `labels` is empty or has a label twice.
    pub fn set_labels(&mut self, class: &str, labels: &[String]) -> Result<bool> {
        let names: HashSet<&String> = labels.iter().collect();
        if names.len() < labels.len() || !(1..=LABELS).contains(&labels.len()) {
            let text = format!("got {} classes, {} of them different", labels.len(), names.len());
            return Err(Error::value(text).help("pass the name of each class once to with_labels"));
        }
        let is_same = self.first_text("architectures") == Some(class) && self.labels()? == labels;
        let numbered = || labels.iter().enumerate();
        self.values["architectures"] = json!([class]);
        self.values["id2label"] =
            numbered().map(|(i, name)| (i.to_string(), json!(name))).collect();
        self.values["label2id"] = numbered().map(|(i, name)| (name.clone(), json!(i))).collect();
        if let Some(values) = self.values.as_object_mut().filter(|_| !is_same) {
            values.remove("num_labels");
            values.remove("problem_type");
        }
        Ok(!is_same)
    }

    /// The numbers of the list `key`.
    pub fn numbers(&self, key: &str) -> Result<Option<Vec<f64>>> {
        self.list(key, "a list of numbers", Value::as_f64)
    }

    /// The tokens of `key`: a number or a list of them.
    pub fn tokens(&self, key: &str) -> Result<Vec<u32>> {
        let token = |value: &Value| value.as_u64().and_then(|id| u32::try_from(id).ok());
        Ok(self.list(key, "a token or a list of tokens", token)?.unwrap_or_default())
    }

    /// Whether `key` has a value that is not null.
    pub fn has(&self, key: &str) -> bool {
        self.get(&[key]).is_some()
    }

    /// Whether `key` is there, as `null`.
    pub fn is_null(&self, key: &str) -> bool {
        self.named(key).is_some_and(|name| self.values[name].is_null())
    }

    /// The value of `model_type`, if it is one of `known`.
    ///
    /// # Errors
    /// If it is not.
    pub fn family<'a>(&self, kind: &str, known: &[&'a str]) -> Result<&'a str> {
        let help = |text: String| {
            self.error(text).help(format!(
                "{kind}s are of {}; another family loads by a Mapping of its names and \
                 Store::build_from",
                known.join(", ")
            ))
        };
        let Some(name) = self.text("model_type")? else {
            return Err(help("\"model_type\" is missing".to_string()));
        };
        let found = known.iter().find(|known| **known == name);
        found.copied().ok_or_else(|| help(format!("no {kind} of model_type {name:?}")))
    }

    /// Returns an error if the weights are fewer tensors than layers.
    pub fn check_layers(&self, layers: usize, tensors: usize) -> Result<()> {
        if layers <= tensors {
            return Ok(());
        }
        let text = format!("{layers} layers, but the weights are {tensors} tensors");
        Err(self.error(text).help("config.json is of another model"))
    }

    /// An error about the first of `keys` that is there, whose value is not `wanted`.
    pub fn wrong(&self, keys: &[&str], value: &Value, wanted: &str) -> Error {
        let key = self.shown(keys.iter().find(|key| self.has(key)).unwrap_or(&keys[0]));
        let shown = match value.as_str() {
            Some(text) => quoted(text),
            None => quoted(&value.to_string()).trim_matches('"').to_string(),
        };
        self.error(format!("{key:?} is {shown}, not {wanted}"))
    }
}

/// The values of the JSON file at `path`.
pub fn read(path: PathBuf) -> Result<(PathBuf, Value)> {
    let values = teeny_core::file::read(&path).and_then(|bytes| {
        serde_json::from_slice(&bytes).map_err(|e| Error::format(format!("not JSON: {e}")))
    });
    values.map_err(|error| of_file(error, loading(&path))).map(|values| (path, values))
}
