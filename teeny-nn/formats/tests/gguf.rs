//! GGUF files, against the Python package `gguf`: `golden/make_gguf.py` wrote `types.gguf`.

use crate::common::*;
use crate::files::gguf as file;
use std::fs;
use teeny_core::{DType, QuantType, Reference, Tensor};
use teeny_formats::gguf::{ElementType, Value, Writer};
use teeny_formats::{Gguf, Mapping, SafeTensors, TensorSource};
use teeny_nn::{Init, Linear, LinearOptions, Store};

const PATH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/types.gguf");

#[track_caller]
fn says(bytes: Vec<u8>, parts: &[&str]) {
    let text = Gguf::from_bytes(bytes).map(drop).unwrap_err().to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in: {text}"));
}

#[test]
fn quantised_tensors_have_the_values_of_the_python_package() {
    let device = Reference::new();
    let open = [Gguf::open(PATH).unwrap(), Gguf::from_bytes(fs::read(PATH).unwrap()).unwrap()];
    for file in open {
        let names: Vec<&String> =
            file.entries().keys().filter(|n| n.ends_with(".values")).collect();
        assert_eq!(names.len(), 12);
        for expected in names {
            let name = expected.strip_suffix(".values").unwrap();
            assert_eq!(file.entries()[name].type_name(), name);
            let bits = |name: &str| -> Vec<u32> {
                let tensor = file.tensor(name, &device).unwrap();
                assert_eq!((tensor.dtype(), tensor.shape()[0]), (DType::F32, 3), "{name}");
                tensor.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
            };
            assert_eq!(bits(name), bits(expected), "{name}");
        }
        assert!(file.unreadable().is_empty());
    }
}

#[test]
fn quantised_tensors_are_kept_in_blocks() {
    let (device, file) = (Reference::new(), Gguf::open(PATH).unwrap());
    let mut kept = 0;
    for (name, entry) in file.entries() {
        let bits = |x: Tensor| -> Vec<u32> {
            x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect()
        };
        let Some(matrix) = file.quantized(name, &device).unwrap() else {
            // two types are only decoded
            let plain = matches!(entry.type_name(), "F32" | "F16" | "BF16" | "I32");
            assert!(plain || ["Q2_K", "Q3_K"].contains(&&name[..]), "{name}");
            continue;
        };
        assert_eq!(bits(matrix.dequantize().unwrap()), bits(file.tensor(name, &device).unwrap()));
        assert_eq!(matrix.parts()[0].kind.name(), entry.type_name());
        // a layer keeps them, under its own name
        let columns = matrix.shape()[1];
        let others = file.entries().keys().filter(|other| *other != name);
        let mapping = others.fold(Mapping::new(), |mapping, other| mapping.skip(other));
        let mapping = mapping.rename(name, "fc.weight");
        let store = Store::new(&device);
        let source = std::sync::Arc::new(Gguf::open(PATH).unwrap());
        let options = LinearOptions::new().with_bias(false);
        let (layer, _) = store
            .build_from(source, &mapping, |root| {
                Linear::with_options(&root.at("fc"), columns, 3, options)
            })
            .unwrap();
        let own = layer.weight.quantized().unwrap();
        assert_eq!(own.blocks().to_bytes().unwrap(), matrix.blocks().to_bytes().unwrap());
        assert!(!layer.weight.is_trainable());
        kept += 1;
    }
    assert_eq!(kept, 10);
    let text = file.quantized("nothing", &device).unwrap_err().to_string();
    assert!(text.contains("no tensor \"nothing\""), "{text}");
}

#[test]
fn plain_tensors_keep_their_type_and_shape() {
    let (device, file) = (Reference::new(), Gguf::open(PATH).unwrap());
    let tensor = |name: &str| file.tensor(name, &device).unwrap();
    let wide = tensor("F32");
    assert_eq!(wide.shape()[..], [2, 5]);
    for (name, dtype) in [("F16", DType::F16), ("BF16", DType::BF16)] {
        assert_eq!(tensor(name).dtype(), dtype);
        let apart = wide.sub(tensor(name).cast(DType::F32).unwrap()).unwrap().abs().unwrap();
        assert!(apart.max_all().unwrap().item::<f32>().unwrap() < 0.02, "{name}");
    }
    assert_eq!(tensor("I32").to_vec::<i32>().unwrap(), [0, 1, 2, 3, 4, 5]);
    let text = file.tensor("F64", &device).unwrap_err().to_string();
    assert!(text.contains("no tensor \"F64\"") && text.contains("types.gguf"), "{text}");
}

#[test]
fn metadata_are_values_by_key() {
    let file = Gguf::open(PATH).unwrap();
    let value = |key: &str| &file.metadata()[key];
    assert_eq!(value("general.architecture").as_str(), Some("test"));
    assert_eq!(value("test.layers").as_u64(), Some(3));
    assert_eq!(
        (value("test.negative").as_u64(), value("test.negative").as_f64()),
        (None, Some(-7.0))
    );
    assert_eq!(value("test.epsilon").as_f64(), Some(f64::from(1e-5f32)));
    assert_eq!(value("test.tied").as_bool(), Some(true));
    let tokens = value("tokenizer.ggml.tokens").as_list().unwrap();
    let tokens: Vec<_> = tokens.iter().filter_map(Value::as_str).collect();
    assert_eq!(tokens, ["<s>", "héllo", "\u{2581}a"]);
    assert_eq!(value("tokenizer.ggml.scores").as_list().unwrap()[1], Value::Float(-1.0));
}

#[test]
fn a_store_loads_from_a_gguf_file() {
    let store = Store::new(device());
    store.root().param("weight", (3, 64), Init::ZEROS).unwrap();
    let file = Gguf::open(PATH).unwrap();
    let only = Mapping::new().rename("Q8_0", "weight").skip("*");
    assert_eq!(store.load_from(&file, &only).unwrap().loaded, ["weight"]);
    let expected = file.read("Q8_0.values", &device()).unwrap();
    assert_eq!(values(&store.get("weight").unwrap().value()), values(&expected));
}

#[test]
fn the_parts_of_a_divided_model_are_one() {
    let folder = Folder::new("gguf-parts");
    let number = |n: u16| n.to_le_bytes().to_vec();
    let part = |k: u16, name: &str, x: f32| {
        let split = [("split.no", 2, number(k)), ("split.count", 2, number(2))];
        file(&split, &[(name, &[1], 0, 0)], &x.to_le_bytes())
    };
    let path = |k: u16| folder.0.join(format!("m-{:05}-of-00002.gguf", k + 1));
    fs::write(path(0), part(0, "a", 1.0)).unwrap();
    let text = Gguf::open(path(0)).unwrap_err().to_string();
    assert!(text.contains("m-00002-of-00002.gguf"), "{text}");
    fs::write(path(1), part(1, "b", 2.0)).unwrap();
    let model = Gguf::open(path(0)).unwrap();
    let item = |name: &str| model.tensor(name, Reference::new()).unwrap().item::<f32>().unwrap();
    assert_eq!((item("a"), item("b")), (1.0, 2.0));
    fs::write(path(1), part(1, "a", 2.0)).unwrap();
    let text = Gguf::open(path(0)).unwrap_err().to_string();
    assert!(text.contains("\"a\" is in two parts"), "{text}");
}

#[test]
fn a_type_that_is_not_read_refuses_its_tensor_alone() {
    let tensors: [(&str, &[u64], u32, u64); 3] =
        [("x", &[2], 0, 0), ("y", &[256], 16, 32), ("z", &[4], 999, 32)];
    let file = Gguf::from_bytes(file(&[], &tensors, &[0; 64])).unwrap();
    assert_eq!(file.tensor("x", Reference::new()).unwrap().to_vec::<f32>().unwrap(), [0.0; 2]);
    for (name, part) in [("y", "IQ2_XXS"), ("z", "number 999")] {
        let text = file.tensor(name, Reference::new()).unwrap_err().to_string();
        assert!(text.contains(part) && text.contains("Q8_0"), "{text}");
    }
}

#[test]
fn wrong_files_say_what_is_wrong() {
    let bytes = 4u32.to_le_bytes().to_vec();
    let one =
        |sizes: &[u64], kind: u32, offset: u64| file(&[], &[("w", sizes, kind, offset)], &[0; 64]);
    says(b"GGUF\0\0\0\x03".to_vec(), &["little-endian"]);
    says(b"GGUF\x01\0\0\0".to_vec(), &["version 1 of GGUF", "versions 2 and 3"]);
    says(b"GGUF\x03\0".to_vec(), &["truncated"]);
    says(one(&[17], 0, 0), &["\"w\"", "[17]", "64 bytes of data", "truncated"]);
    says(one(&[u64::MAX, 2], 0, 0), &["does not fit"]);
    says(one(&[33], 8, 0), &["rows of 33", "Q8_0 has blocks of 32"]);
    says(one(&[1], 0, 4), &["aligned to 32"]);
    says(one(&[1; 9], 0, 0), &["9 axes"]);
    let two: [(&str, &[u64], u32, u64); 2] = [("w", &[9], 0, 0), ("v", &[1], 0, 32)];
    says(file(&[], &two, &[0; 64]), &["overlap at byte"]);
    let same: [(&str, &[u64], u32, u64); 2] = [("w", &[1], 0, 0), ("w", &[1], 0, 32)];
    says(file(&[], &same, &[0; 64]), &["two tensors are called \"w\""]);
    let key = |value: &[u8], kind| file(&[("general.alignment", kind, value.to_vec())], &[], &[]);
    says(key(&3u32.to_le_bytes(), 4), &["general.alignment", "power of two"]);
    says(file(&[("k", 4, bytes.clone()), ("k", 4, bytes)], &[], &[]), &["\"k\" comes twice"]);
    says(key(&[2], 7), &["a bool is 2", "general.alignment"]);
    says(key(&[], 13), &["unknown type 13"]);
    says(key(&[&9u32.to_le_bytes()[..], &u64::MAX.to_le_bytes()].concat(), 9), &["truncated"]);
    says(b"PK\x03\x04....".to_vec(), &["a zip archive, not a GGUF file"]);
    let text = SafeTensors::open(PATH).map(drop).unwrap_err().to_string();
    assert!(text.contains("Gguf::open"), "{text}");
    let x = Tensor::ones((2,), DType::F32, Reference::new()).unwrap();
    let mut other = Vec::new();
    teeny_formats::write(&mut other, &[("x".to_string(), x)], &Default::default()).unwrap();
    says(other, &["does not begin with GGUF"]);
}

/// The bytes of a tensor as a file has them.
fn bytes_of(file: &Gguf, name: &str) -> Vec<u8> {
    match file.quantized(name, Reference::new()).unwrap() {
        Some(weight) => weight.to_blocks().unwrap().into_iter().flat_map(|(_, b)| b).collect(),
        None => file.tensor(name, Reference::new()).unwrap().to_bytes().unwrap(),
    }
}

#[test]
fn a_written_file_is_read_back() {
    let (folder, file) = (Folder::new("gguf-written"), Gguf::open(PATH).unwrap());
    let mut metadata = file.metadata().clone();
    let list = |values: Vec<Value>| Value::List(values);
    for (key, value) in [
        ("a.u64", Value::Unsigned(u64::MAX)),
        ("a.i64", Value::Signed(i64::MIN)),
        ("a.f64", Value::Float(0.1)),
        ("a.mixed", list(vec![Value::Unsigned(1), Value::Unsigned(1 << 40)])),
        ("a.empty", list(vec![])),
        ("a.nested", list(vec![list(vec![Value::Bool(true)]), list(vec![])])),
    ] {
        metadata.insert(key.to_string(), value);
    }
    let mut writer = Writer::new(metadata.clone());
    let written = file.entries().iter().filter_map(|(name, entry)| {
        let of = entry.element_type()?;
        writer.add(name, entry.shape(), of).unwrap();
        Some(name.clone())
    });
    let written: Vec<String> = written.collect();
    assert!(written.len() > 8, "{written:?}");
    let path = folder.0.join("x.gguf");
    writer.write(&path, |name| Ok(bytes_of(&file, name))).unwrap();
    let again = Gguf::open(&path).unwrap();
    metadata.remove("general.alignment");
    assert_eq!(*again.metadata(), metadata);
    assert_eq!(again.entries().keys().cloned().collect::<Vec<_>>(), written);
    for name in &written {
        let (before, after) = (&file.entries()[name], &again.entries()[name]);
        assert_eq!((before.shape(), before.type_name()), (after.shape(), after.type_name()));
        assert_eq!(bytes_of(&file, name), bytes_of(&again, name), "{name}");
    }

    // what fails leaves the old file
    let error = writer.write(&path, |_| Ok(vec![1])).unwrap_err().to_string();
    assert!(error.contains("has 1 bytes, not"), "{error}");
    assert_eq!(*Gguf::open(&path).unwrap().metadata(), metadata);
}

#[test]
fn what_a_file_cannot_have_is_refused() {
    let mut writer = Writer::new([].into());
    let f32s = ElementType::Plain(DType::F32);
    writer.add("a", &[2, 32], ElementType::Quantized(QuantType::Q8_0)).unwrap();
    for (name, shape, of, said) in [
        ("a", &[1][..], f32s, "two tensors are called"),
        ("b", &[1; 5], f32s, "5 axes"),
        ("b", &[2, 33], ElementType::Quantized(QuantType::Q8_0), "blocks of 32"),
        ("b", &[1], ElementType::Plain(DType::Bool), "no type"),
        ("b", &[usize::MAX, 2], f32s, "overflows"),
    ] {
        let error = writer.add(name, shape, of).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    }
    let mixed = Value::List(vec![Value::Bool(true), Value::Unsigned(1)]);
    let writer = Writer::new([("a.list".to_string(), mixed)].into());
    let path = std::env::temp_dir().join("never-written.gguf");
    let error = writer.write(&path, |_| Ok(vec![])).unwrap_err().to_string();
    assert!(error.contains("several types") && error.contains("a.list"), "{error}");
    assert!(!path.exists());
}
