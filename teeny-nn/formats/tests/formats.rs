//! Files written by PyTorch, NumPy and Hugging Face (`golden/*.pt`, `.npz`, `.safetensors`).

use crate::common::*;
use serde_json::Value;
use std::path::PathBuf;
use teeny_core::{DType, Tensor};
use teeny_formats::{Mapping, SafeTensors, State, TensorSource, npz, open_weights, pt};
use teeny_nn::{Init, Linear, Store};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn content() -> Value {
    parse(include_str!("golden/files.json"))
}

#[track_caller]
fn assert_same(got: &Tensor, want: &Value) {
    let want = tensor(want, got.device());
    assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
    assert_eq!(got.to_bytes().unwrap(), want.to_bytes().unwrap());
}

#[test]
fn a_state_dict_of_pytorch_reads_bit_for_bit_from_pt_and_safetensors() {
    let want = content();
    let want = want["state_dict"].as_object().unwrap();
    let state = pt::read(golden("state_dict.pt"), device()).unwrap();
    let archive = SafeTensors::open(golden("state_dict.safetensors")).unwrap();
    assert_eq!((state.tensors.len(), archive.entries().len()), (want.len(), want.len()));
    for (name, tensor) in want {
        assert_same(&state.tensors[name], tensor);
        assert_same(&archive.tensor(name, device()).unwrap(), tensor);
    }
}

/// A quadratic step in a reader or in the comparison of names would not end.
#[test]
fn files_of_many_tensors_are_read_in_linear_time() {
    let (folder, count) = (Folder::new("many-tensors"), 300_000);
    let names: Vec<String> = (0..count).map(|i| format!("model.layers.{i:06}")).collect();
    let at = |name: &str| folder.0.join(name);
    let entry =
        |name: &String| format!(r#""{name}":{{"dtype":"F32","shape":[0],"data_offsets":[0,0]}}"#);
    let header = format!("{{{}}}", names.iter().map(entry).collect::<Vec<_>>().join(","));
    let size = (header.len() as u64).to_le_bytes();
    std::fs::write(at("x.safetensors"), [&size, header.as_bytes()].concat()).unwrap();
    let read = |name: &str| {
        let source = open_weights(at(name), device()).unwrap();
        assert_eq!(source.shapes().len(), count, "{name}");
        for name in &names {
            assert_eq!(source.read(name, &device()).unwrap().shape()[..], [0]);
        }
        // none of the names is one of the model, whose names the file lacks
        let store = Store::new(device());
        let root = store.at("model").at("layers");
        for i in 0..count / 100 {
            root.param(&format!("other.{i}"), (0,), Init::ZEROS).unwrap();
        }
        let error = store.load_from(&source, &Mapping::new()).unwrap_err().to_string();
        assert!(error.contains(&format!("{count} unexpected keys")), "{name}: {error:.400}");
        let report = store.load_from(&source, &Mapping::new().strict(false)).unwrap();
        assert_eq!(report.unexpected_keys.len(), count, "{name}");
    };
    read("x.safetensors");
}

#[test]
fn a_pt_file_loads_into_a_model_by_name() {
    let store = Store::new(autograd());
    Linear::new(&store.at(0), 4, 3).unwrap();
    Linear::new(&store.at(2), 3, 2).unwrap();
    let state = pt::read(golden("state_dict.pt"), store.device()).unwrap();
    // this model does not have the normalisation of the file
    let error = store.load_from(&state, &Mapping::new()).unwrap_err().to_string();
    assert!(
        error.contains(
            "unexpected keys: 1.bias, 1.num_batches_tracked, 1.running_mean, 1.running_var, 1.weight"
        ),
        "{error}"
    );
    let loaded = store.load_from(&state, &Mapping::new().strict(false)).unwrap();
    assert_eq!(loaded.loaded, ["0.weight", "0.bias", "2.weight", "2.bias"]);
    assert!(loaded.missing_keys.is_empty() && loaded.unexpected_keys.len() == 5);
    assert_same(
        &store.get("2.weight").unwrap().value().to(device()).unwrap(),
        &content()["state_dict"]["2.weight"],
    );
}

#[test]
fn a_training_checkpoint_of_pytorch_becomes_flat_names() {
    let state = pt::read(golden("nested.pt"), autograd()).unwrap();
    assert_same(&state.tensors["optimizer.state.0.exp_avg"], &content()["exp_avg"]);
    assert_eq!(state.get::<u64>("epoch").unwrap(), 7);
    assert_eq!(
        (state.get::<f64>("loss").unwrap(), state.get::<bool>("best").unwrap()),
        (0.25, true)
    );
    assert_eq!(
        (state.get::<u64>("big").unwrap(), state.get::<i64>("negative").unwrap()),
        (1 << 40, -5)
    );
    assert_eq!(state.get::<String>("name").unwrap(), "tiny");
    assert_eq!(state.get::<f64>("optimizer.param_groups.0.betas.1").unwrap(), 0.999);
    let read = |name: &str| (state.tensors[name].shape().to_vec(), values(&state.tensors[name]));
    assert_eq!(
        read("transposed"),
        (vec![4, 3], vec![0.0, 4.0, 8.0, 1.0, 5.0, 9.0, 2.0, 6.0, 10.0, 3.0, 7.0, 11.0])
    );
    assert_eq!(read("row"), (vec![3], vec![5.0, 6.0, 7.0]));
    assert_eq!(read("parameter"), (vec![3, 2], vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]));
    assert_eq!(read("shared.0"), read("shared.1"));
    assert_eq!((read("scalar"), read("empty")), ((vec![], vec![2.5]), (vec![0, 3], vec![])));
    let types = [
        ("bool", DType::Bool),
        ("uint8", DType::U8),
        ("int8", DType::I8),
        ("int16", DType::I16),
        ("int32", DType::I32),
        ("int64", DType::I64),
    ];
    for (name, dtype) in
        types.into_iter().chain([("float16", DType::F16), ("bfloat16", DType::BF16)])
    {
        let x = &state.tensors[&format!("types.{name}")];
        let want = if dtype == DType::Bool { [0.0, 1.0, 1.0, 1.0] } else { [0.0, 1.0, 2.0, 3.0] };
        assert_eq!((x.dtype(), values(x)), (dtype, want.to_vec()));
    }
}

#[test]
fn a_pt_file_that_asks_for_more_than_data_is_refused_by_name() {
    let refusal = |name: &str| pt::read(golden(name), device()).unwrap_err().to_string();
    let error = refusal("whole_model.pt");
    assert!(
        error.contains("the file calls \"torch.nn.modules.container.Sequential\"")
            && error.contains("state_dict()"),
        "{error}"
    );
    assert!(refusal("expanded.pt").contains("save x.contiguous()"), "{}", refusal("expanded.pt"));
    assert!(refusal("legacy.pt").contains("PyTorch before 1.6"), "{}", refusal("legacy.pt"));
    assert!(refusal("arrays.npz").contains("no data.pkl"), "{}", refusal("arrays.npz"));
    assert!(refusal("no such file").contains("cannot read the file"));
}

#[test]
fn arrays_of_numpy_read_stored_and_deflated() {
    for name in ["arrays.npz", "arrays_compressed.npz"] {
        let arrays = npz::read(golden(name), device()).unwrap();
        let read = |name: &str| {
            let x = arrays.tensor(name).unwrap();
            (x.dtype(), x.shape().to_vec(), values(x))
        };
        let six: Vec<f64> = (0..6).map(f64::from).collect();
        assert_eq!(arrays.tensors.len(), 6);
        assert_eq!(read("weight"), (DType::F32, vec![2, 3], six.clone()));
        assert_eq!(read("fortran"), (DType::F64, vec![2, 3], six.clone()));
        assert_eq!(read("bias"), (DType::I64, vec![3], vec![1.0, -2.0, 3.0]));
        assert_eq!(read("scalar"), (DType::F64, vec![], vec![2.5]));
        assert_eq!(read("big_endian"), (DType::F32, vec![3], vec![0.0, 1.0, 2.0]));
        assert_eq!(read("mask"), (DType::Bool, vec![2], vec![1.0, 0.0]));
    }
}

#[test]
fn npz_round_trip_of_every_type() {
    let folder = Folder::new("npz");
    let mut tensors = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|&t| t != DType::BF16) {
        let x = Tensor::new([[0.0f64, 1.0, 2.5], [3.0, 100.0, 7.0]], device())
            .unwrap()
            .cast(dtype)
            .unwrap();
        tensors.push((format!("{dtype}/transposed"), x.t().unwrap()));
        tensors.push((format!("{dtype} empty"), Tensor::zeros((0, 2), dtype, device()).unwrap()));
    }
    for compression in [npz::Compression::Stored, npz::Compression::Deflated] {
        let path = folder.0.join(format!("{compression:?}.npz"));
        npz::write(&path, &tensors, compression).unwrap();
        let read = npz::read(&path, device()).unwrap();
        assert_eq!(read.tensors.len(), tensors.len());
        for (name, want) in &tensors {
            let got = read.tensor(name).unwrap();
            assert_eq!(
                (got.shape(), got.dtype(), got.to_bytes().unwrap()),
                (want.shape(), want.dtype(), want.to_bytes().unwrap()),
                "{name}"
            );
        }
    }
    assert!(
        std::fs::metadata(folder.0.join("Deflated.npz")).unwrap().len()
            < std::fs::metadata(folder.0.join("Stored.npz")).unwrap().len()
    );
    let path = folder.0.join("refused.npz");
    let twice = vec![tensors[0].clone(), tensors[0].clone()];
    assert!(
        npz::write(&path, &twice, npz::Compression::Stored)
            .unwrap_err()
            .to_string()
            .contains("two arrays cannot both be called")
    );
    let half = vec![("x".to_string(), Tensor::ones((2,), DType::BF16, device()).unwrap())];
    assert!(
        npz::write(&path, &half, npz::Compression::Stored)
            .unwrap_err()
            .to_string()
            .contains("NumPy has no bf16")
    );
    assert!(!path.exists());
}

#[test]
fn gpt2_files_load_with_transposed_weights_and_without_masks() {
    let device = device();
    let numbered = |m: usize, n: usize| {
        f64s((0..m * n).map(|i| i as f64).collect(), &[m, n], &device).cast(DType::F32).unwrap()
    };
    let mut file = State::default();
    for (name, tensor) in [
        ("transformer.wte.weight", numbered(5, 2)),
        ("transformer.h.0.attn.c_attn.weight", numbered(2, 6)),
        ("transformer.h.0.attn.c_proj.weight", numbered(2, 2)),
        ("transformer.h.0.mlp.c_fc.weight", numbered(2, 8)),
        ("transformer.h.0.attn.bias", numbered(4, 4)),
        ("transformer.h.0.attn.masked_bias", numbered(1, 1)),
    ] {
        file.tensors.insert(name.to_string(), tensor);
    }
    let store = Store::new(&device);
    for (name, shape) in [
        ("wte.weight", (5, 2)),
        ("h.0.attn.c_attn.weight", (6, 2)),
        ("h.0.attn.c_proj.weight", (2, 2)),
        ("h.0.mlp.c_fc.weight", (8, 2)),
    ] {
        store.root().param(name, shape, Init::ZEROS).unwrap();
    }
    let loaded = store.load_from(&file, &Mapping::gpt2()).unwrap();
    assert_eq!(loaded.skipped, ["transformer.h.0.attn.bias", "transformer.h.0.attn.masked_bias"]);
    assert_eq!(loaded.loaded.len(), 4);
    let read = |name: &str| values(&store.get(name).unwrap().value());
    assert_eq!(read("wte.weight"), (0..10).map(f64::from).collect::<Vec<_>>());
    assert_eq!(
        read("h.0.attn.c_attn.weight"),
        [0.0, 6.0, 1.0, 7.0, 2.0, 8.0, 3.0, 9.0, 4.0, 10.0, 5.0, 11.0]
    );
    assert_eq!(read("h.0.attn.c_proj.weight"), [0.0, 2.0, 1.0, 3.0], "square ones too");
    // a tied head is skipped as a copy, an untied head is loaded
    file.tensors.insert("lm_head.weight".to_string(), numbered(5, 2));
    let loaded = store.load_from(&file, &Mapping::gpt2()).unwrap();
    assert_eq!((loaded.loaded.len(), loaded.skipped.len()), (4, 2));
    assert_eq!(loaded.unexpected_keys, ["lm_head.weight"]);
    store.root().param("lm_head.weight", (5, 2), Init::ZEROS).unwrap();
    let loaded = store.load_from(&file, &Mapping::gpt2()).unwrap();
    assert_eq!((loaded.loaded.len(), loaded.skipped.len()), (5, 2));
    let head = store.get("lm_head.weight").unwrap().value();
    assert_eq!(values(&head), (0..10).map(f64::from).collect::<Vec<_>>());
}

#[test]
fn mappings_that_make_no_sense_are_errors() {
    let store = Store::new(device());
    store.root().param("w", (2,), Init::ZEROS).unwrap();
    let mut file = State::default();
    for name in ["a", "b"] {
        file.tensors.insert(name.to_string(), Tensor::ones((2,), DType::F32, device()).unwrap());
    }
    let error = store
        .load_from(&file, &Mapping::new().rename("a", "w").rename("b", "w"))
        .unwrap_err()
        .to_string();
    assert!(error.contains("\"a\" and \"b\" are both renamed to \"w\""), "{error}");
    let error = store.load_from(&file, &Mapping::new().transpose("*")).unwrap_err().to_string();
    assert!(error.contains("cannot transpose \"a\": [2] is not a matrix"), "{error}");
    let loaded = store.load_from(&file, &Mapping::new().rename("a", "w").skip("*")).unwrap();
    assert_eq!((loaded.loaded, loaded.skipped), (vec!["w".to_string()], vec!["b".to_string()]));
    assert_eq!(values(&store.get("w").unwrap().value()), [1.0, 1.0]);
}
