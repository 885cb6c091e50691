//! Saving and loading by name; damaged files, full disks and files of other models.

use crate::common::*;
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use teeny_core::file::replace;
use teeny_core::{DType, Tensor};
use teeny_formats::{Mapping, SafeTensors, write};
use teeny_nn::{Init, Linear, Store};

fn model(outputs: usize) -> Store {
    let store = Store::new(device());
    Linear::new(&store.at("fc1"), 4, 3).unwrap();
    Linear::new(&store.at("fc2"), 3, outputs).unwrap();
    store
}

fn bits(store: &Store) -> Vec<Vec<u8>> {
    store.all().iter().map(|p| p.value().to_bytes().unwrap()).collect()
}

#[test]
fn a_saved_model_loads_bit_for_bit() {
    let folder = Folder::new("round-trip");
    let path = folder.0.join("mlp.safetensors");
    let (saved, loaded) = (model(2), model(2));
    assert_ne!(bits(&saved), bits(&loaded), "two models start from different draws");
    saved.save(&path).unwrap();
    loaded.load(&path).unwrap();
    assert_eq!(bits(&saved), bits(&loaded));
    assert_eq!(folder.files(), ["mlp.safetensors"]);
    let archive = SafeTensors::open(&path).unwrap();
    assert_eq!(
        archive.entries().keys().collect::<Vec<_>>(),
        ["fc1.bias", "fc1.weight", "fc2.bias", "fc2.weight"]
    );
    assert_eq!(archive.entry("fc1.weight").unwrap().shape, [3, 4]);
}

#[test]
fn every_type_and_shape_survives() {
    let folder = Folder::new("types");
    let path = folder.0.join("all.safetensors");
    let device = device();
    let mut tensors = Vec::new();
    for dtype in DType::ALL {
        let x = Tensor::new([[0.0f64, 1.0, 2.5], [3.0, 100.0, 7.0]], &device)
            .unwrap()
            .cast(dtype)
            .unwrap();
        tensors.push((format!("{dtype}.matrix"), x.clone()));
        tensors.push((format!("{dtype}.transposed"), x.t().unwrap()));
        tensors.push((format!("{dtype}.scalar"), Tensor::ones((), dtype, &device).unwrap()));
        tensors.push((format!("{dtype}.empty"), Tensor::zeros((0, 3), dtype, &device).unwrap()));
    }
    let metadata = BTreeMap::from([("epoch".to_string(), "3".to_string())]);
    replace(&path, |writer| write(writer, &tensors, &metadata)).unwrap();
    let archive = SafeTensors::open(&path).unwrap();
    assert_eq!(archive.metadata(), &metadata);
    assert_eq!(archive.entries().len(), tensors.len());
    for (name, want) in &tensors {
        let got = archive.tensor(name, &device).unwrap();
        assert_eq!((got.shape(), got.dtype()), (want.shape(), want.dtype()));
        assert_eq!(got.to_bytes().unwrap(), want.to_bytes().unwrap(), "{name}");
    }
    // the reference implementation agrees
    let bytes = fs::read(&path).unwrap();
    let theirs = safetensors::SafeTensors::deserialize(&bytes).unwrap();
    for (name, want) in &tensors {
        let view = theirs.tensor(name).unwrap();
        assert_eq!(
            (view.shape(), view.data()),
            (&want.shape()[..], &want.to_bytes().unwrap()[..]),
            "{name}"
        );
    }
}

#[test]
fn a_file_of_the_reference_implementation_loads() {
    let folder = Folder::new("theirs");
    let path = folder.0.join("theirs.safetensors");
    let data: Vec<u8> = [1.5f32, -2.0, 3.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    let view =
        safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![3], &data).unwrap();
    fs::write(&path, safetensors::serialize([("w", view)], None).unwrap()).unwrap();
    let w = SafeTensors::open(&path).unwrap().tensor("w", device()).unwrap();
    assert_eq!(w.to_vec::<f32>().unwrap(), [1.5, -2.0, 3.0]);
}

#[test]
fn threads_read_one_open_archive_at_the_same_time() {
    let folder = Folder::new("threads");
    let path = folder.0.join("many.safetensors");
    let device = device();
    let tensor = |i: usize| {
        (format!("t{i}"), Tensor::full((64 + i,), i as f32, DType::F32, &device).unwrap())
    };
    let tensors: Vec<_> = (0..40).map(tensor).collect(); // (64 + i,)
    replace(&path, |writer| write(writer, &tensors, &BTreeMap::new())).unwrap();
    let archive = SafeTensors::open(&path).unwrap();
    let is_wrong = |i: &usize| {
        let x = archive.tensor(&format!("t{i}"), &device).unwrap();
        x.to_vec::<f32>().unwrap() != vec![*i as f32; 64 + i]
    };
    let wrong =
        |thread: usize| (0..5_000).map(|n| (n * 7 + thread * 11) % 40).filter(is_wrong).count();
    let counts: Vec<usize> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|t| {
                scope.spawn({
                    let wrong = &wrong;
                    move || wrong(t)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(counts, [0; 8], "wrong tensors of 5,000 by thread");
}

#[test]
fn what_does_not_fit_changes_nothing_and_is_named() {
    let folder = Folder::new("misfit");
    let path = folder.0.join("mlp.safetensors");
    model(2).save(&path).unwrap();
    let wider = model(5);
    let before = bits(&wider);
    let error = wider.load(&path).unwrap_err().to_string();
    assert!(
        error.starts_with("load \"")
            && error.contains("does not match the model: 2 shape mismatches\n"),
        "{error}"
    );
    assert!(
        error.contains("\n  fc2.weight is (2, 3), but should be (5, 3)")
            && error.contains("\n  fc2.bias is (2,), but should be (5,)"),
        "{error}"
    );
    assert_eq!(bits(&wider), before);

    // a matrix whose axes are exchanged
    let exchanged = Store::new(device());
    exchanged.root().param("fc1.weight", (4, 3), Init::ONES).unwrap();
    let error = exchanged.load(&path).unwrap_err().to_string();
    assert!(error.contains("fc1.weight is (3, 4), but should be (4, 3)"), "{error}");
    assert!(error.contains("help: the transpose of fc1.weight would fit"), "{error}");
    let mapping = Mapping::new().transpose("fc1.weight").strict(false);
    exchanged.load_from(&SafeTensors::open(&path).unwrap(), &mapping).unwrap();

    // all differences in one error
    let other = Store::new(device());
    Linear::new(&other.at("fc"), 4, 3).unwrap();
    Linear::new(&other.at("fc1"), 4, 7).unwrap();
    let error = other.load(&path).unwrap_err().to_string();
    assert!(
        error.contains(
            "does not match the model: \
             2 missing keys, 2 unexpected keys, 2 shape mismatches\n  \
             missing keys: fc.weight (3, 4), fc.bias (3,)\n  \
             unexpected keys: fc2.bias, fc2.weight\n"
        ),
        "{error}"
    );
    assert!(
        error.contains("fc1.weight is (3, 4), but should be (7, 4)")
            && error.contains("fc1.bias is (3,), but should be (7,)"),
        "{error}"
    );
}

#[test]
fn an_unsound_file_is_an_error_wherever_it_is_cut_or_changed() {
    let folder = Folder::new("unsound");
    let path = folder.0.join("mlp.safetensors");
    model(2).save(&path).unwrap();
    let good = fs::read(&path).unwrap();
    let header = u64::from_le_bytes(good[..8].try_into().unwrap()) as usize;
    let refuse = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        SafeTensors::open(&path).unwrap_err().to_string()
    };
    for n in (0..good.len()).step_by(7) {
        assert!(refuse(&good[..n]).starts_with("load "), "cut to {n} bytes");
    }
    assert!(refuse(&good[..good.len() - 1]).contains("the file is truncated, or was appended to"));
    assert!(
        refuse(&[&good[..], &[0]].concat()).contains("the file is truncated, or was appended to")
    );
    assert!(
        refuse(&[&u64::MAX.to_le_bytes()[..], &good[8..]].concat())
            .contains("announce a header of 18446744073709551615 bytes")
    );
    assert!(
        refuse(b"PK\x03\x04 a zip file, as torch.save writes")
            .contains("this is a zip archive, not a safetensors file")
    );
    let swap = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let text = std::str::from_utf8(&good[8..8 + header]).unwrap().replace(from, to);
        [&good[..8], text.as_bytes(), &good[8 + header..]].concat()
    };
    assert!(refuse(&swap("[3,4]", "[9,9]")).contains("which is not the size of bytes"));
    assert!(refuse(&swap("\"dtype\"", "\"dtypo\"")).contains("is not valid"));
    assert!(refuse(&swap("[0,48]", "[1,49]")).contains("overlap or leave a gap at byte 0"));
}

/// A disk with space for `room` bytes.
struct Disk<'a> {
    inner: &'a mut dyn Write,
    room: usize,
}

impl Write for Disk<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.room {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        self.room -= bytes.len();
        self.inner.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[test]
fn a_full_disk_is_an_error_and_the_old_file_stays() {
    let folder = Folder::new("full");
    let path = folder.0.join("mlp.safetensors");
    model(2).save(&path).unwrap();
    let old = fs::read(&path).unwrap();
    let tensors = vec![("w".to_string(), Tensor::zeros((100,), DType::F32, device()).unwrap())];
    for room in [0, 8, 100, 400] {
        let error =
            replace(&path, |inner| write(&mut Disk { inner, room }, &tensors, &BTreeMap::new()))
                .unwrap_err()
                .to_string();
        assert!(error.starts_with("save \"") && error.contains("cannot write"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), old, "room for {room} bytes");
        assert_eq!(folder.files(), ["mlp.safetensors"], "no unfinished file stays");
    }
    assert!(model(2).save(folder.0.join("no/such/folder/x")).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn devices_and_links_stay_what_they_are() {
    use std::os::unix::fs::{FileTypeExt, symlink};
    let error = model(2).save("/dev/full").unwrap_err().to_string();
    assert!(
        error.starts_with(&format!("save \"/dev/full\" at {}:", file!()))
            && error.contains(": cannot write: No space left on device"),
        "{error}"
    );
    assert!(fs::metadata("/dev/full").unwrap().file_type().is_char_device());

    let folder = Folder::new("link");
    let (file, link) = (folder.0.join("real.safetensors"), folder.0.join("link.safetensors"));
    fs::write(&file, b"old").unwrap();
    symlink(&file, &link).unwrap();
    model(2).save(&link).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    model(2).load(&file).unwrap();
}

#[test]
fn names_cannot_be_taken_twice() {
    let store = Store::new(device());
    store.at("a").param("w", (2,), Init::ONES).unwrap();
    let error = store.at("a").param("w", (2,), Init::ONES).unwrap_err().to_string();
    assert!(error.contains("there is a parameter \"a.w\" already"), "{error}");
    assert!(
        store
            .get("a.v")
            .unwrap_err()
            .to_string()
            .contains("no parameter \"a.v\"; the store has a.w")
    );
}
