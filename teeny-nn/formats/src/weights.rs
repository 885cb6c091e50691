//! The weights of a model, wherever they are: a file, a folder of files, or the local cache of the
//! Hugging Face hub.
//!
//! ```text
//! folder ─ model.safetensors
//!        ─ model.safetensors.index.json ─ parts: which file has which tensor
//!        ─ pytorch_model.bin, pytorch_model.bin.index.json
//!        ─ one .gguf file, which may have parts
//! ```

use super::element_type::ElementType;
use super::{Gguf, SafeTensors, TensorSource, file_kind, pt};
use crate::json::Json;
use crate::names::{listed, loading, of_file};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::Read;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use teeny_core::context::enter;
use teeny_core::file::{quoted, reason};
use teeny_core::{DeviceRef, Error, Result, Tensor, ToDevice};

/// A source of tensors of any format, for `Store::build_from` and several threads.
pub type Weights = Arc<dyn TensorSource + Send + Sync>;

/// The files of a folder that have weights, the first that is there.
const FILES: [&str; 4] = [
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];

/// Opens the weights at `path`: a safetensors, GGUF or PyTorch file, the index of a model in parts,
/// a folder with one of these, or `ORG/NAME` in the local cache of the Hugging Face hub.
///
/// Each [`TensorSource::read`] reads one tensor of a safetensors or GGUF file. A PyTorch file is
/// read whole, onto `device`.
///
/// # Errors
/// If weights are missing, or a file is damaged or of another kind; if an index names a file
/// outside its folder, or a tensor that the file does not have.
///
/// # Example
/// ```no_run
/// use teeny_formats::{Mapping, open_weights};
/// use teeny_nn::{Gpt, GptConfig, Store, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let store = Store::new(&device("cpu")?);
/// let weights = open_weights("openai-community/gpt2", store.device())?;
/// let (gpt, _) =
///     store.build_from(weights, &Mapping::gpt2(), |root| Gpt::new(root, GptConfig::gpt2()))?;
/// # Ok(()) }
/// ```
#[track_caller]
pub fn open_weights(path: impl AsRef<Path>, device: impl ToDevice) -> Result<Weights> {
    let _op = enter("open_weights");
    open(&resolve_path(path.as_ref())?, &device.to_device(), true)
}

/// `path` if it exists, otherwise the folder of the model of this name in the cache of the hub.
///
/// # Errors
/// If there is neither.
pub fn resolve_path(path: &Path) -> Result<PathBuf> {
    if path.exists() {
        return Ok(path.to_path_buf());
    }
    let nothing = || {
        Err(Error::io(format!("the file or folder {:?} does not exist", shown(path))).help(
            "use the path of a safetensors, GGUF or .bin file or of a folder with one, or \
             ORG/NAME of a model that was downloaded before",
        ))
    };
    let cached = hub().and_then(|hub| cached(&hub, path));
    cached.unwrap_or_else(nothing).map_err(|error| of_file(error, loading(path)))
}

/// Whether the file at `path` begins as GGUF files do.
pub fn is_gguf(path: &Path) -> bool {
    let mut first = [0; 4];
    File::open(path).and_then(|mut file| file.read_exact(&mut first)).is_ok() && first == *b"GGUF"
}

/// `may_be_index` is false for the files of an index, so that none names itself.
fn open(path: &Path, device: &DeviceRef, may_be_index: bool) -> Result<Weights> {
    if path.is_dir() && may_be_index {
        return open(&in_folder(path).map_err(|e| of_file(e, loading(path)))?, device, true);
    }
    let mut first = Vec::new();
    // the reader reports errors of reading
    let _ = File::open(path).and_then(|file| file.take(9).read_to_end(&mut first));
    Ok(match &first[..] {
        // safetensors: the size of a header of less than 4 GB, and the header
        [_, _, _, _, 0, 0, 0, 0, b'{'] => Arc::new(SafeTensors::open(path)?),
        [b'G', b'G', b'U', b'F', ..] => Arc::new(Gguf::open(path)?),
        [b'P', b'K', 3, 4, ..] | [0x80, 2, ..] => Arc::new(pt::read(path, device)?),
        [b'{', ..] if may_be_index => Arc::new(ShardedWeights::open(path, device)?),
        _ => Arc::new(SafeTensors::open(path)?),
    })
}

/// The file with the weights, or its index, in `folder`.
fn in_folder(folder: &Path) -> Result<PathBuf> {
    if let Some(found) = FILES.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
        return Ok(found);
    }
    let entries = folder.read_dir().map_err(|e| Error::io(reason(folder, &e)).with_source(e))?;
    let mut names: Vec<String> =
        entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    // of a file in parts the first, which names the others
    let is_later = |name: &str| name.contains("-of-") && !name.contains("-00001-of-");
    let ggufs: Vec<&String> =
        names.iter().filter(|name| name.ends_with(".gguf") && !is_later(name)).collect();
    match ggufs[..] {
        [one] => Ok(folder.join(one)),
        _ => {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            Err(Error::io(format!("no weights in the folder; it has {}", listed(&names))).help(
                match ggufs.len() {
                    0 => format!("weights are {} or one .gguf file", FILES.join(", ")),
                    _ => "use the path of one of the .gguf files".to_string(),
                },
            ))
        }
    }
}

/// The folder of the local cache of the hub.
fn hub() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    set("HF_HUB_CACHE")
        .or_else(|| Some(set("HF_HOME")?.join("hub")))
        .or_else(|| Some(set("XDG_CACHE_HOME")?.join("huggingface/hub")))
        .or_else(|| Some(std::env::home_dir()?.join(".cache/huggingface/hub")))
}

/// The folder of the model `ORG/NAME` in the cache `hub`; `None` if `name` has another form or is
/// not in the cache.
fn cached(hub: &Path, name: &Path) -> Option<Result<PathBuf>> {
    let mut parts = name.components().map(|part| match part {
        Component::Normal(part) => part.to_str(),
        _ => None,
    });
    let (Some(Some(owner)), Some(Some(model)), None) = (parts.next(), parts.next(), parts.next())
    else {
        return None;
    };
    let folder = hub.join(format!("models--{owner}--{model}"));
    folder.is_dir().then(|| {
        let main = folder.join("refs").join("main");
        let commit = std::fs::read_to_string(&main).map_err(|e| {
            Error::io(format!("cannot read {:?}: {}", shown(&main), reason(&main, &e)))
                .with_source(e)
        })?;
        let snapshot = folder.join("snapshots").join(plain(commit.trim())?);
        if snapshot.is_dir() {
            return Ok(snapshot);
        }
        Err(Error::io(format!("the cache has no {:?}", shown(&snapshot)))
            .help("a download that was broken off? download the model again"))
    })
}

/// Returns `name` if it is a file or folder name without a path.
fn plain(name: &str) -> Result<&str> {
    let mut parts = Path::new(name).components();
    match (parts.next(), parts.next()) {
        (Some(Component::Normal(part)), None) if part == name => Ok(name),
        _ => Err(Error::format(format!("{} is not the name of a file", quoted(name)))
            .help("an index can only name files in its folder")),
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// A model whose tensors are in several files, and the index that says which.
struct ShardedWeights {
    label: String,
    files: Vec<Weights>,
    /// The file of each tensor.
    places: BTreeMap<String, usize>,
}

impl ShardedWeights {
    fn open(index: &Path, device: &DeviceRef) -> Result<ShardedWeights> {
        let named = |error: Error| of_file(error, loading(index));
        let (names, places) = named_files(index).map_err(named)?;
        let folder = index.parent().unwrap_or(Path::new(""));
        // the error of a file names it
        let opened = names.iter().map(|name| open(&folder.join(name), device, false));
        let parts = ShardedWeights {
            label: loading(index),
            files: opened.collect::<Result<Vec<_>>>()?,
            places,
        };
        let mut known: HashSet<String> = parts.shapes().into_iter().map(|(name, _)| name).collect();
        known.extend(parts.unreadable().into_iter().map(|(name, _)| name));
        match parts.places.iter().find(|(tensor, _)| !known.contains(*tensor)) {
            None => Ok(parts),
            Some((tensor, &place)) => Err(named(
                Error::format(format!(
                    "the index says that {tensor:?} is in {:?}, which does not have it",
                    names[place]
                ))
                .help("the index is of another model, or a file was replaced"),
            )),
        }
    }

    /// The entries of each file that the index says it has.
    fn kept<T>(&self, each: impl Fn(&Weights) -> Vec<(String, T)>) -> Vec<(String, T)> {
        let files = self.files.iter().enumerate();
        let kept = files.flat_map(|(i, file)| {
            each(file).into_iter().filter(move |(name, _)| self.places.get(name) == Some(&i))
        });
        kept.collect()
    }
}

/// The files that an index names, and the number of the file of each tensor.
fn named_files(index: &Path) -> Result<(Vec<String>, BTreeMap<String, usize>)> {
    let bytes = teeny_core::file::read(index)?;
    let map = Json::parse(&bytes)?.object()?.remove("weight_map").ok_or_else(|| {
        let other = || Error::format("weight_map is missing");
        file_kind::other_kind(&bytes, "a model").unwrap_or_else(other)
    })?;
    let (mut numbers, mut names, mut places) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
    map.members(|tensor, file| {
        let file = file.string().ok_or_else(|| {
            Error::format(format!("the file of {tensor:?} is {}", quoted(file.text())))
        })?;
        let number = *numbers.entry(plain(&file)?.to_string()).or_insert(names.len());
        if number == names.len() {
            names.push(file);
        }
        places.insert(tensor, number);
        Ok(())
    })?;
    Ok((names, places))
}

impl TensorSource for ShardedWeights {
    fn label(&self) -> String {
        self.label.clone()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.kept(|file| file.shapes())
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        let missing = || Error::value(format!("no tensor {name:?}")).named(self.label());
        let place = self.places.get(name).ok_or_else(missing)?;
        let file = &self.files[*place];
        file.read(name, device).map_err(|error| error.note(format!("read by {}", file.label())))
    }

    fn element_type(&self, name: &str) -> Option<ElementType> {
        self.files[*self.places.get(name)?].element_type(name)
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        self.kept(|file| file.unreadable())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_of_the_cache_is_found_by_its_name() {
        let hub = std::env::temp_dir().join(format!("teeny-hub-{}", std::process::id()));
        let folder = hub.join("models--org--name");
        let model = Path::new("org/name");
        assert!(cached(&hub, model).is_none());
        std::fs::create_dir_all(folder.join("refs")).unwrap();
        assert!(cached(&hub, model).unwrap().unwrap_err().to_string().contains("main"));
        std::fs::write(folder.join("refs/main"), "abc123\n").unwrap();
        assert!(cached(&hub, model).unwrap().unwrap_err().to_string().contains("broken off"));
        std::fs::create_dir_all(folder.join("snapshots/abc123")).unwrap();
        assert_eq!(cached(&hub, model).unwrap().unwrap(), folder.join("snapshots/abc123"));
        for other in ["name", "org/name/more", "../org/name", "/org/name", "org/..", ""] {
            assert!(cached(&hub, Path::new(other)).is_none(), "{other}");
        }
        std::fs::write(folder.join("refs/main"), "../..").unwrap();
        assert!(cached(&hub, model).unwrap().is_err());
        std::fs::remove_dir_all(&hub).unwrap();
    }
}
