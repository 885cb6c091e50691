//! Names and layouts of other libraries: what a mapping makes of a file, its reverse, and models
//! that are made of files.

use crate::common::*;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use teeny_core::{DType, DeviceRef, Result, Tensor, random};
use teeny_formats::{Mapping, SafeTensors, State, TensorSource};
use teeny_nn::state::Stateful;
use teeny_nn::transformer::{Gpt, GptConfig};
use teeny_nn::{Embedding, EmbeddingOptions, Init, Linear, LinearOptions, Store};

/// The device of all tensors here.
fn cpu() -> DeviceRef {
    static CPU: OnceLock<DeviceRef> = OnceLock::new();
    CPU.get_or_init(device).clone()
}

/// Numbers below a limit, of one seed.
struct Draws(u64);

impl Draws {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % limit
    }
}

/// A tensor whose elements are found nowhere else.
fn marked(state: &mut State, name: String, shape: &[usize]) {
    let first = 1000.0 * state.tensors.len() as f32;
    let n = shape.iter().product::<usize>();
    let values: Vec<f32> = (0..n).map(|i| first + i as f32).collect();
    let tensor = Tensor::from_vec(values, shape, cpu()).unwrap();
    state.tensors.insert(name, tensor);
}

fn rows(x: &Tensor, from: usize, to: usize) -> Tensor {
    x.slice(0, from as isize..to as isize).unwrap().copy().unwrap()
}

fn bits(tensors: &BTreeMap<String, Tensor>) -> Vec<(String, Vec<usize>, Vec<u8>)> {
    let read =
        |(name, x): (&String, &Tensor)| (name.clone(), x.shape().to_vec(), x.to_bytes().unwrap());
    tensors.iter().map(read).collect()
}

fn all(source: &dyn TensorSource) -> BTreeMap<String, Tensor> {
    let names = source.shapes().into_iter().map(|(name, _)| name);
    names.map(|name| (name.clone(), source.read(&name, &cpu()).unwrap())).collect()
}

#[test]
fn random_mappings_do_what_their_rules_say_and_their_inverse_undoes_it() {
    for seed in 0..300 {
        let mut draws = Draws(seed);
        let (mut file, mut want) = (State::default(), BTreeMap::new());
        let mut mapping = Mapping::new();
        for group in 0..1 + draws.below(4) {
            // what the names of the file have where the rule has a star
            let layers: Vec<String> =
                (0..1 + draws.below(3)).map(|i| format!("{i}.é{}", draws.below(9))).collect();
            let (columns, parts) = (1 + draws.below(3), 2 + draws.below(2));
            let sizes: Vec<usize> = (0..parts).map(|_| 1 + draws.below(4)).collect();
            let total = sizes.iter().sum::<usize>();
            let turned = draws.below(2) == 0;
            let theirs = |part: &str| format!("file{group}.*.{part}.w");
            let ours = |part: &str| format!("model{group}.{part}.*");
            let names = ["q", "k", "v"];
            let at = |pattern: String, layer: &String| pattern.replace('*', layer);
            let stored = |file: &mut State, name: String, rows: usize| {
                let shape = if turned { [columns, rows] } else { [rows, columns] };
                marked(file, name.clone(), &shape);
                let x = &file.tensors[&name];
                if turned { x.t().unwrap().contiguous().unwrap() } else { x.clone() }
            };
            match draws.below(3) {
                0 => {
                    mapping = mapping.rename(&theirs("one"), &ours("one"));
                    for layer in &layers {
                        let x = stored(&mut file, at(theirs("one"), layer), total);
                        want.insert(at(ours("one"), layer), x);
                    }
                }
                1 => {
                    let from: Vec<String> = names[..parts].iter().map(|n| theirs(n)).collect();
                    let from: Vec<&str> = from.iter().map(String::as_str).collect();
                    mapping = mapping.join(&from, &ours("all"), &sizes);
                    for layer in &layers {
                        let read = (0..parts)
                            .map(|i| stored(&mut file, at(theirs(names[i]), layer), sizes[i]));
                        let read: Vec<Tensor> = read.collect();
                        let joined = Tensor::cat(&read, 0).unwrap();
                        want.insert(at(ours("all"), layer), joined);
                    }
                }
                _ => {
                    let to: Vec<String> = names[..parts].iter().map(|n| ours(n)).collect();
                    let to: Vec<&str> = to.iter().map(String::as_str).collect();
                    mapping = mapping.split(&theirs("all"), &to, &sizes);
                    for layer in &layers {
                        let x = stored(&mut file, at(theirs("all"), layer), total);
                        let mut start = 0;
                        for (name, size) in names.iter().zip(&sizes) {
                            want.insert(at(ours(name), layer), rows(&x, start, start + size));
                            start += size;
                        }
                    }
                }
            }
            if turned {
                mapping = mapping.transpose(&format!("file{group}.*"));
            }
        }
        marked(&mut file, "other".to_string(), &[2]);
        want.insert("other".to_string(), file.tensors["other"].clone());
        let model = all(&mapping.apply(&file).unwrap());
        assert_eq!(bits(&model), bits(&want), "seed {seed}: {mapping:?}");
        let model = State { tensors: model, ..State::default() };
        let back = all(&mapping.inverse().apply(&model).unwrap());
        assert_eq!(bits(&back), bits(&file.tensors), "seed {seed}: {mapping:?}");
    }
}

#[test]
fn rules_that_do_not_fit_are_errors() {
    let mut file = State::default();
    marked(&mut file, "h.0.q".to_string(), &[4, 2]);
    marked(&mut file, "h.0.k".to_string(), &[2, 2]);
    marked(&mut file, "h.1.q".to_string(), &[4, 3]);
    marked(&mut file, "h.1.k".to_string(), &[2, 2]);
    let text = |mapping: Mapping| mapping.apply(&file).err().unwrap().to_string();
    let said = text(Mapping::new().rename("h.*.q", "q"));
    assert!(said.contains("\"h.*.q\" and \"q\" of a mapping have different numbers"), "{said}");
    let said = text(Mapping::new().join(&["h.*.q", "h.*.k"], "h.*.qk", &[4]));
    assert!(said.contains("2 parts") && said.contains("1 numbers of rows"), "{said}");
    let said = text(Mapping::new().join(&["h.*.q", "h.*.k"], "h.*.qk", &[4, 3]));
    assert!(said.contains("\"h.0.k\" is [2, 2], but its rule is for 3 rows"), "{said}");
    let said = text(Mapping::new().join(&["h.*.q", "h.*.k"], "h.*.qk", &[4, 2]));
    assert!(said.contains("\"h.1.q\" [4, 3] and \"h.1.k\" [2, 2] cannot be joined"), "{said}");
    let said = text(Mapping::new().join(&["h.*.q", "h.*.v"], "h.*.qv", &[4, 2]));
    assert!(said.contains("joined from 2 tensors, of which there are only h.0.q"), "{said}");
    let said = text(Mapping::new().split("h.*.q", &["h.*.a", "h.*.b"], &[usize::MAX, 3]));
    assert!(said.contains("\"h.0.q\" is [4, 2], but its rule is for"), "{said}");
    let said = text(Mapping::new().join(&["h.*.q"], "h.*.a", &[3]));
    assert!(said.contains("\"h.0.q\" is [4, 2], but its rule is for 3 rows"), "{said}");
    let said = text(Mapping::new().join(&["h.*.q"], "h.*.a", &[3, 4]));
    assert!(said.contains("2 numbers of rows"), "{said}");
    let said = text(Mapping::new().rename("h.*.q", "h.*.k"));
    assert!(said.contains("are both renamed to \"h.0.k\""), "{said}");
}

fn gpt() -> GptConfig {
    GptConfig::new(11, 8, 2, 2, 4)
}

/// A file with the weights of a model in the names and layout of Hugging Face.
fn gpt2_file(folder: &Folder) -> (Store, SafeTensors) {
    let store = Store::new(cpu());
    Gpt::new(&store.root(), gpt()).unwrap();
    let path = folder.0.join("model.safetensors");
    store.save_as(&path, &Mapping::gpt2()).unwrap();
    (store, SafeTensors::open(path).unwrap())
}

#[test]
fn what_is_saved_under_other_names_is_read_back_bit_for_bit() {
    let folder = Folder::new("save-as");
    let (saved, file) = gpt2_file(&folder);
    assert_eq!(file.metadata()["format"], "pt");
    let shape = |name: &str| file.entries()[name].shape.clone();
    assert_eq!(shape("transformer.h.1.attn.c_attn.weight"), [4, 12], "(in, out)");
    assert_eq!(shape("transformer.wte.weight"), [11, 4]);
    let store = Store::new(cpu());
    let (model, report) =
        store.build_from(Arc::new(file), &Mapping::gpt2(), |root| Gpt::new(root, gpt())).unwrap();
    assert_eq!(store.to_bytes().unwrap(), saved.to_bytes().unwrap());
    assert_eq!(report.loaded.len(), store.all().len());
    assert!(store.all().iter().all(|param| param.is_trainable()));
    let tokens = Tensor::new([[1i32, 5, 10]], cpu()).unwrap();
    let other = Store::new(cpu());
    let same = Gpt::new(&other.root(), gpt()).unwrap();
    other.load_bytes(saved.to_bytes().unwrap()).unwrap();
    let logits = |model: &Gpt| model.logits(&tokens).unwrap().to_bytes().unwrap();
    assert_eq!(logits(&model), logits(&same));
    // without a mapping the layers that follow are drawn again
    Linear::new(&store.at("new"), 2, 2).unwrap();
}

#[test]
fn a_model_of_a_file_draws_no_random_numbers_and_has_the_dtype_of_its_store() -> Result<()> {
    let saved = Store::new(cpu());
    let options = EmbeddingOptions::new().with_padding_idx(1);
    Embedding::with_options(&saved.at("e"), 4, 2, options)?;
    // the generator of this thread: other tests draw from the process's generator
    let next = |store: &Store| -> Result<_> {
        let file = Arc::new(SafeTensors::from_bytes(saved.to_bytes()?)?);
        store.build_from(file, &Mapping::new(), |root| {
            Embedding::with_options(&root.at("e"), 4, 2, options)
        })?;
        Tensor::randn(4, DType::F32, cpu())?.to_bytes()
    };
    saved.get("e.weight")?.set(&Tensor::full((4, 2), 2.5f32, DType::F32, cpu())?)?;
    let store = Store::with_dtype(autograd(), DType::BF16);
    let after = random::with_seed(3, || next(&store))?;
    let drawn = random::with_seed(3, || Tensor::randn(4, DType::F32, cpu()))?;
    assert_eq!(after, drawn.to_bytes()?);
    let weight = store.get("e.weight")?.value();
    assert_eq!((weight.dtype(), values(&weight)), (DType::BF16, vec![2.5; 8]), "its padding too");
    Ok(())
}

#[test]
fn a_file_that_does_not_fit_leaves_nothing_behind() -> Result<()> {
    let mut file = State::default();
    marked(&mut file, "fc.weight".to_string(), &[3, 5]);
    marked(&mut file, "extra".to_string(), &[1]);
    let file: Arc<State> = Arc::new(file);
    let store = Store::new(cpu());
    let old = store.root().param("old", 2, Init::ZEROS)?;
    let build = |mapping: &Mapping| {
        store.build_from(file.clone(), mapping, |root| Linear::new(&root.at("fc"), 4, 3))
    };
    let said = build(&Mapping::new()).unwrap_err().to_string();
    for part in [
        "1 missing key, 1 unexpected key, 1 shape mismatch",
        "missing keys: fc.bias (3,)",
        "extra",
        "fc.weight is (3, 5), but should be (3, 4)",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(store.all().len(), 1);
    assert_eq!(old.name(), "old");
    // the second half of a model that fails, and one that panics
    let lenient = Mapping::new().strict(false).rename("fc.*", "a.*");
    let failing = store.build_from(file.clone(), &lenient, |root| {
        Linear::with_options(&root.at("a"), 5, 3, LinearOptions::new())?;
        root.param("old", 1, Init::ZEROS)
    });
    assert!(failing.unwrap_err().to_string().contains("there is a parameter \"old\" already"));
    assert_eq!(store.all().len(), 1);
    let nested = store.build_from(file.clone(), &lenient, |_| build(&Mapping::new()));
    assert!(nested.unwrap_err().to_string().contains("being read already"));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        store.build_from(file.clone(), &lenient, |_| -> Result<()> { panic!("in a layer") })
    }));
    assert!(panicked.is_err());
    Linear::new(&store.at("fc"), 4, 3)?; // drawn
    // what the file lacks is drawn if that is allowed, and only that
    let head = Mapping::new().allow_missing("*.bias").allow_unexpected("extra");
    let other = Store::new(cpu());
    let (_, report) =
        other.build_from(file.clone(), &head, |root| Linear::new(&root.at("fc"), 5, 3))?;
    assert_eq!(report.loaded, ["fc.weight"]);
    assert_eq!(report.missing_keys, ["fc.bias"]);
    assert_eq!(report.unexpected_keys, ["extra"]);
    let shape = |store: &Store| store.get("fc.weight").map(|p| p.value().shape().to_vec());
    assert_eq!(shape(&other)?, [3, 5]);
    let said = other.load_from(&*file, &Mapping::new().allow_unexpected("*")).unwrap_err();
    assert!(said.to_string().contains("missing keys: fc.bias (3,)"), "{said}");
    Ok(())
}

#[test]
fn what_would_not_be_read_back_is_not_saved() {
    let folder = Folder::new("no-inverse");
    let store = Store::new(cpu());
    store.root().param("head.w", 2, Init::ZEROS).unwrap();
    store.root().param("h.0.attn.bias", 2, Init::ZEROS).unwrap();
    let path = folder.0.join("m.safetensors");
    // the mapping skips what GPT-2's files call so, a mask
    let said = store.save_as(&path, &Mapping::gpt2()).unwrap_err().to_string();
    assert!(said.contains("\"h.0.attn.bias\" is not read back under this name"), "{said}");
    assert!(folder.files().is_empty(), "{:?}", folder.files());
    // if two rules make a name, the first is inverted
    let mapping = Mapping::new().rename("aux.*", "head.*").rename("bert.*", "*");
    store.save_as(&path, &mapping).unwrap();
    let names = all(&SafeTensors::open(&path).unwrap()).into_keys().collect::<Vec<_>>();
    assert_eq!(names, ["aux.w", "bert.h.0.attn.bias"]);
}

#[test]
fn strict_leaves_what_a_mapping_allows_by_name() {
    let mut file = State::default();
    marked(&mut file, "lm_head.weight".to_string(), &[1]);
    let load = |mapping: Mapping| Store::new(cpu()).load_from(&file, &mapping).is_ok();
    assert!(load(Mapping::gpt2()) && load(Mapping::gpt2().strict(false).strict(true)));
    assert!(!load(Mapping::new()) && !load(Mapping::new().strict(false).strict(true)));
}

#[test]
fn several_threads_read_one_archive() -> Result<()> {
    let folder = Folder::new("threads");
    let mut state = State::default();
    for i in 0..40 {
        marked(&mut state, format!("w{i}"), &[1 + i, 7]);
    }
    let store = Store::new(cpu());
    for (name, x) in &state.tensors {
        store.root().param(name, *x.shape(), Init::ZEROS)?;
    }
    store.load_from(&state, &Mapping::new())?;
    let path = folder.0.join("m.safetensors");
    store.save(&path)?;
    let (file, want) = (SafeTensors::open(path)?, store.state()?);
    std::thread::scope(|scope| {
        for first in 0..4 {
            let (file, want) = (&file, &want);
            scope.spawn(move || {
                for i in (0..400).map(|i| (7 * i + first) % 40) {
                    let name = format!("w{i}");
                    let read = file.tensor(&name, cpu()).unwrap().to_bytes().unwrap();
                    assert_eq!(read, want.tensors[&name].to_bytes().unwrap());
                }
            });
        }
    });
    Ok(())
}
