//! An entry of a kind that teeny does not have is refused by its name; the others are read.

use crate::common::*;
use crate::files::{archive, zip};
use std::fs;
use teeny_core::{DType, Error, ErrorKind, Result, Tensor};
use teeny_formats::{Mapping, SafeTensors, TensorSource, npz, pt};
use teeny_nn::state::Checkpoint;
use teeny_nn::{Init, Store};

#[track_caller]
fn says<T>(result: Result<T>, parts: &[&str]) {
    let text = result.map(drop).unwrap_err().to_string();
    parts.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in: {text}"));
}

/// A store with one parameter (2,) of each name.
fn store(names: &[&str]) -> Store {
    let store = Store::new(device());
    names.iter().for_each(|name| drop(store.root().param(name, (2,), Init::ZEROS).unwrap()));
    store
}

/// A model without the entry `scale` loads the entry `w`, and one with it names the entry.
#[track_caller]
fn loads_the_rest(source: &dyn TensorSource, parts: &[&str]) {
    let lenient = Mapping::new().strict(false);
    let model = store(&["w"]);
    let report = model.load_from(source, &lenient).unwrap();
    assert_eq!(report.loaded, ["w"]);
    assert!(report.unexpected_keys.contains(&"scale".to_string()), "{report:?}");
    assert_eq!(values(&model.get("w").unwrap().value()), [1.0, 2.0]);
    says(model.load_from(source, &Mapping::new()), &["unexpected keys: ", "scale"]);
    says(store(&["w", "scale"]).load_from(source, &lenient), parts);
    let skip = Mapping::new().rename("w", "w").skip("*");
    assert_eq!(model.load_from(source, &skip).unwrap().loaded, ["w"]);
}

#[test]
fn a_tensor_of_8_bit_or_complex_numbers_in_safetensors() {
    for (dtype, size) in [("F8_E4M3", 2), ("C64", 16), ("F4", 1)] {
        let header = format!(
            "{{\"w\":{{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}},\
               \"scale\":{{\"dtype\":\"{dtype}\",\"shape\":[2],\"data_offsets\":[8,{}]}}}}",
            8 + size
        );
        let w = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
        let bytes =
            [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &w, &vec![0; size]].concat();
        let archive = SafeTensors::from_bytes(bytes.clone()).unwrap();
        assert_eq!(archive.entries().keys().collect::<Vec<_>>(), ["w"]);
        assert_eq!(archive.unreadable().keys().collect::<Vec<_>>(), ["scale"]);
        assert_eq!(values(&archive.tensor("w", device()).unwrap()), [1.0, 2.0]);
        let error: Error = archive.tensor("scale", device()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::DType);
        says::<()>(Err(error), &["load bytes at ", ": tensor \"scale\" is", dtype, "help: "]);
        loads_the_rest(&archive, &["\"scale\"", dtype]);
        says(Checkpoint::from_bytes(bytes, device()), &["not a checkpoint"]);
    }
}

fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n");
    [b"\x93NUMPY\x01\x00", &(header.len() as u16).to_le_bytes()[..], header.as_bytes(), data]
        .concat()
}

#[test]
fn an_array_of_text_objects_or_records_in_npz() {
    let w = npy("'<f4'", "(2,)", &[1.0f32, 2.0].map(f32::to_le_bytes).concat());
    for descr in ["'<U3'", "'|O'", "'<c8'", "[('x', '<f4'), ('y', '<f8')]"] {
        let text = npy(descr, "(2,)", &[0; 24]);
        let bytes = zip(&[("w.npy", &w), ("scale.npy", &text), ("readme.txt", b"hello")], true);
        let arrays = npz::from_bytes(&bytes, device()).unwrap();
        assert_eq!(arrays.tensors.keys().collect::<Vec<_>>(), ["w"]);
        says(
            arrays.tensor("scale"),
            &["in entry \"scale.npy\"", descr.trim_matches('\''), "help: "],
        );
        says(arrays.tensor("readme.txt"), &["\"readme.txt\" is not an .npy file"]);
        says(arrays.tensor("b"), &["no tensor \"b\"; there are w"]);
        loads_the_rest(&arrays, &["scale.npy", descr.trim_matches('\'')]);
    }
}

fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// A tensor of a typed storage, or of an untyped one with a dtype.
fn tensor(storage: &str, count: u8, dtype: &str) -> Vec<u8> {
    let version = if dtype.is_empty() { 2 } else { 3 };
    let dtype = if dtype.is_empty() { String::new() } else { format!("ctorch\n{dtype}\nN") };
    [
        format!("ctorch._utils\n_rebuild_tensor_v{version}\n((").as_bytes(),
        &text("storage"),
        format!("c{storage}\n").as_bytes(),
        &text("0"),
        &text("cpu"),
        &[b'K', count],
        b"tQK\x00K",
        &[count],
        b"\x85K\x01\x85\x89ccollections\nOrderedDict\n)R",
        dtype.as_bytes(),
        b"tR",
    ]
    .concat()
}

/// `numpy.float64(..)`, as pickle writes it with protocol 2.
fn numpy_scalar() -> Vec<u8> {
    [
        b"cnumpy._core.multiarray\nscalar\n(cnumpy\ndtype\n(".as_slice(),
        &text("f8"),
        b"\x89\x88tR(K\x03",
        &text("<"),
        b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tbc_codecs\nencode\n(",
        &text("12345678"),
        &text("latin1"),
        b"tRtR",
    ]
    .concat()
}

fn dictionary(items: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let items: Vec<u8> = items.iter().flat_map(|(key, value)| [&key[..], value].concat()).collect();
    [b"\x80\x02}(", &items[..], b"u."].concat()
}

#[test]
fn numpy_scalars_tuple_keys_8_bit_floats_and_models_in_pt() {
    let storage = [1.0f32, 2.0].map(f32::to_le_bytes).concat();
    let others = [
        (numpy_scalar(), "numpy._core.multiarray.scalar", "x.item()"),
        (tensor("torch.storage\nUntypedStorage", 8, "float8_e4m3fn"), "float8_e4m3fn", "x.to("),
        (tensor("torch\nComplexFloatStorage", 1, ""), "ComplexFloatStorage", "x.to("),
        (b"ctorch.nn.modules.linear\nLinear\n)\x81}b".to_vec(), "Linear", "state_dict()"),
        (b"c__builtin__\nset\n]\x85R".to_vec(), "__builtin__.set", ""),
        (b"ctorch\nfloat32\n".to_vec(), "a class", ""),
        (b"C\x02ab".to_vec(), "bytes", ""),
    ];
    for (value, what, help) in others {
        let pickle = dictionary(&[
            (text("w"), tensor("torch\nFloatStorage", 2, "")),
            (text("scale"), value),
            (text("step"), b"K\x07".to_vec()),
            (b"K\x00K\x01\x86".to_vec(), b"K\x05".to_vec()),
            (text("narrow"), tensor("torch.storage\nUntypedStorage", 4, "uint16")),
        ]);
        let state = pt::from_bytes(&archive(&pickle, &storage, false), device()).unwrap();
        assert_eq!(values(state.tensor("w").unwrap()), [1.0, 2.0]);
        assert_eq!(state.get::<u64>("step").unwrap(), 7);
        let narrow = state.tensor("narrow").unwrap();
        assert_eq!((narrow.dtype(), values(narrow)[1]), (DType::U16, f64::from(0x3f80)));
        says(state.tensor("scale"), &["in entry \"scale\"", what, help]);
        says(state.get::<f64>("scale"), &["in entry \"scale\"", what, help]);
        says(state.tensor("(0, 1)"), &["the dictionary key (0, 1) is not text or a number"]);
        loads_the_rest(&state, &["\"scale\"", what]);
    }
    // a file that is nothing else
    let whole = [b"\x80\x02", numpy_scalar().as_slice(), b"."].concat();
    says(pt::from_bytes(&archive(&whole, &[], false), device()), &["numpy._core", "x.item()"]);
}

#[test]
fn a_checkpoint_with_an_unreadable_tensor_is_refused() {
    let folder = Folder::new("unreadable-checkpoint");
    let path = folder.0.join("x.ckpt");
    let mut checkpoint = Checkpoint::new();
    checkpoint.put("model", &store(&["w"])).unwrap().save(&path).unwrap();
    let bytes = fs::read(&path).unwrap();
    let at = bytes.windows(5).position(|w| w == b"\"F32\"").unwrap();
    let changed = [&bytes[..at], b"\"F99\"", &bytes[at + 5..]].concat();
    says(Checkpoint::from_bytes(changed, device()), &["\"model/w\" is \"F99\""]);
    let x: Tensor =
        Checkpoint::load(&path, device()).unwrap().part("model").unwrap().tensors["w"].clone();
    assert_eq!(values(&x), [0.0, 0.0]);
}
