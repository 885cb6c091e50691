//! Readers of files check every size and position. Of thousands of damaged files, none makes a
//! reader panic or exceed the memory of its budget.
//!
//! The variable TEENY_FUZZ multiplies the number of files: with 25, most readers get 100,000.

use crate::common::*;
use crate::files::*;
use std::fs;
use teeny_core::{DType, DeviceRef, Reference, Result, Tensor};
use teeny_formats::{Gguf, SafeTensors, npz, pt};
use teeny_nn::data::idx;
use teeny_nn::state::Checkpoint;
use teeny_nn::train::Log;
use teeny_text::Bpe;

/// Extreme numbers for wrong headers.
const LIES: [&[u8]; 8] = [
    &[0xff; 8],
    &[0xff, 0xff, 0xff, 0x7f],
    &[0; 8],
    &[0x80],
    b"99999999999999999999",
    b"-1",
    b"4294967295",
    &[0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0],
];

fn damage(good: &[u8], dice: &mut Dice) -> Vec<u8> {
    let mut bytes = good.to_vec();
    for _ in 0..=dice.below(3) {
        let at = dice.below(bytes.len());
        match dice.below(7) {
            0 => bytes.truncate(at),
            1 if !bytes.is_empty() => bytes[at] ^= 1 << dice.below(8),
            2 if !bytes.is_empty() => bytes[at] = dice.below(256) as u8,
            3 => {
                let lie = LIES[dice.below(LIES.len())];
                let end = (at + lie.len()).min(bytes.len());
                bytes.splice(at..end, lie.iter().copied());
            }
            4 => {
                let lie = LIES[dice.below(LIES.len())];
                bytes.splice(at..at, lie.iter().copied());
            }
            5 => {
                let end = (at + dice.below(16)).min(bytes.len());
                bytes.drain(at..end);
            }
            _ => {
                let end = (at + dice.below(64)).min(bytes.len());
                let copy = bytes[at..end].to_vec();
                let to = dice.below(bytes.len());
                bytes.splice(to..to, copy);
            }
        }
    }
    bytes
}

/// Reads `count` damaged versions of a file; most must be errors with help, none may panic or
/// exceed the memory of its budget.
fn fuzz(name: &str, good: &[u8], count: usize, read: impl Fn(&[u8]) -> Result<()>) {
    read(good).unwrap_or_else(|e| panic!("{name}: {e}"));
    let count = count * fuzz_times();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ good.len() as u64);
    let mut refused = 0;
    for i in 0..count {
        let bytes = damage(good, &mut dice);
        let read = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&bytes)));
        let (result, peak) = peak_of(read);
        let Ok(result) = result else {
            panic!("{name}: panicked at damage {i}: {:?}", String::from_utf8_lossy(&bytes));
        };
        refused += usize::from(result.is_err());
        if let Err(error) = result {
            assert!(error.has_help(), "{name}: no help at damage {i}: {error}");
            let place = error.location().map(|line| line.file());
            assert_eq!(place, Some(file!()), "{name}: no line at damage {i}: {error}");
        }
        let most = limit(bytes.len(), bytes.len());
        assert!(peak <= most, "{name}: {peak} bytes at damage {i} of a file of {}", bytes.len());
    }
    assert!(refused > count / 4, "{name}: only {refused} of {count} damaged files were refused");
}

/// A device without a pool, which would keep memory.
fn reference() -> DeviceRef {
    Reference::new()
}

fn tensors(device: &DeviceRef) -> Vec<(String, Tensor)> {
    let x = f64s((0..12).map(f64::from).collect(), &[3, 4], device);
    let half = Tensor::ones((5,), DType::F16, device).unwrap();
    vec![
        ("fc.weight".to_string(), x.cast(DType::F32).unwrap()),
        ("fc.bias".to_string(), half),
        ("n".to_string(), x.cast(DType::I64).unwrap()),
    ]
}

#[test]
fn damaged_safetensors_files_are_errors() {
    let (folder, device) = (Folder::new("fuzz-safetensors"), reference());
    let path = folder.0.join("x");
    let mut good = Vec::new();
    teeny_formats::write(
        &mut good,
        &tensors(&device),
        &[("epoch".to_string(), "3".to_string())].into(),
    )
    .unwrap();
    fuzz("safetensors", &good, 4000, |bytes| {
        fs::write(&path, bytes).unwrap();
        let archive = SafeTensors::open(&path)?;
        archive.entries().keys().try_for_each(|name| archive.tensor(name, &device).map(|_| ()))
    });
}

#[test]
fn damaged_checkpoints_are_errors() {
    let (folder, device) = (Folder::new("fuzz-checkpoint"), reference());
    let path = folder.0.join("x");
    let state = teeny_formats::State {
        tensors: tensors(&device).into_iter().collect(),
        ..Default::default()
    }
    .with("lr", 0.5);
    Checkpoint::new().put("part", &state).unwrap().save(&path).unwrap();
    let good = fs::read(&path).unwrap();
    fuzz("checkpoint", &good, 2000, |bytes| {
        fs::write(&path, bytes).unwrap();
        Checkpoint::load(&path, &device)?.part("part").map(|_| ())
    });
}

#[test]
fn damaged_npy_files_are_errors() {
    let device = reference();
    for (_, x) in tensors(&device) {
        let mut good = Vec::new();
        x.write_npy(&mut good).unwrap();
        fuzz("npy", &good, 4000, |bytes| Tensor::from_npy(bytes, &device).map(|_| ()));
    }
}

#[test]
fn damaged_npz_files_are_errors() {
    for good in [
        &include_bytes!("../formats/tests/golden/arrays.npz")[..],
        include_bytes!("../formats/tests/golden/arrays_compressed.npz"),
    ] {
        fuzz("npz", good, 4000, |bytes| npz::from_bytes(bytes, reference()).map(|_| ()));
    }
}

#[test]
fn damaged_images_are_errors() {
    let (folder, device) = (Folder::new("fuzz-images"), reference());
    let path = folder.0.join("x");
    for (name, good) in [
        ("png", &include_bytes!("../data/tests/golden/image_files/rgb.png")[..]),
        ("png", include_bytes!("../data/tests/golden/image_files/palette.png")),
        ("jpeg", include_bytes!("../data/tests/golden/image_files/rgb.jpg")),
        ("jpeg", include_bytes!("../data/tests/golden/image_files/progressive.jpg")),
        ("jpeg", include_bytes!("../data/tests/golden/image_files/grey.jpg")),
    ] {
        fuzz(name, good, 500, |bytes| {
            fs::write(&path, bytes).unwrap();
            teeny_nn::data::images::read_image(&path, &device).map(|_| ())
        });
    }
}

#[test]
fn damaged_pt_files_are_errors() {
    for good in [
        &include_bytes!("../formats/tests/golden/nested.pt")[..],
        include_bytes!("../formats/tests/golden/state_dict.pt"),
    ] {
        fuzz("pt", good, 4000, |bytes| pt::from_bytes(bytes, reference()).map(|_| ()));
    }
}

#[test]
fn damaged_pickles_in_sound_archives_are_errors() {
    let read = |pickle: &[u8]| pt::from_bytes(&archive(pickle, &[0; 24], false), reference());
    assert_eq!(read(PICKLE).unwrap().tensors["w"].shape()[..], [2, 3]);
    fuzz("pickle", PICKLE, 20_000, |bytes| read(bytes).map(|_| ()));
}

/// [`archive`] in the form for files above 4 GiB: sizes and positions are in extra fields, and the
/// position of the directory in a separate record.
fn wide_archive(pickle: &[u8], storage: &[u8]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in [("a/data.pkl", pickle), ("a/data/0", storage)] {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let extra = [
            &b"XX\x01\0\x07\x01\0\x18\0"[..],
            &[content.len() as u64, content.len() as u64, file.len() as u64]
                .map(u64::to_le_bytes)
                .concat(),
        ]
        .concat();
        let head = [
            &[45, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..],
            &crc.sum().to_le_bytes(),
            &[0xff; 8],
            &(name.len() as u16).to_le_bytes(),
        ]
        .concat();
        let size = (extra.len() as u16).to_le_bytes();
        directory.extend(
            [b"PK\x01\x02\x2d\0", &head[..], &size, &[0; 10], &[0xff; 4], name.as_bytes(), &extra]
                .concat(),
        );
        file.extend([b"PK\x03\x04", &head[..], &[0, 0], name.as_bytes(), content].concat());
    }
    let (at, record) = (file.len() as u64, (file.len() + directory.len()) as u64);
    let numbers = [2, 2, directory.len() as u64, at].map(u64::to_le_bytes).concat();
    let record_64 =
        [b"PK\x06\x06", &44u64.to_le_bytes()[..], &[45, 0, 45, 0], &[0; 8], &numbers].concat();
    let locator = [b"PK\x06\x07", &[0; 4][..], &record.to_le_bytes(), &[1, 0, 0, 0]].concat();
    [
        file,
        directory,
        record_64,
        locator,
        b"PK\x05\x06\0\0\0\0".to_vec(),
        vec![0xff; 12],
        vec![0, 0],
    ]
    .concat()
}

#[test]
fn archives_with_64_bit_sizes_are_read_and_damaged_ones_are_errors() {
    let storage: Vec<u8> = (0..6).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let good = wide_archive(PICKLE, &storage);
    let w = pt::from_bytes(&good, reference()).unwrap().tensors.remove("w").unwrap();
    assert_eq!(values(&w), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    fuzz("zip64", &good, 4000, |bytes| pt::from_bytes(bytes, reference()).map(|_| ()));
}

#[test]
fn pickles_made_to_harm_are_errors() {
    let refusal = |pickle: &[u8]| {
        pt::from_bytes(&archive(pickle, &[0; 24], false), reference()).unwrap_err().to_string()
    };
    let system = b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00echo\x85R.";
    assert!(refusal(system).contains("the file calls \"os.system\""), "{}", refusal(system));
    let eval = b"\x80\x04\x8c\x08builtins\x8c\x04eval\x93\x8c\x011\x85R.";
    assert!(refusal(eval).contains("the file calls \"builtins.eval\""), "{}", refusal(eval));
    // lists of ten times the list before: 10^40 elements in 300 bytes
    let mut laughs = b"\x80\x02]q\x00".to_vec();
    for i in 0..40u8 {
        laughs.extend([b']', b'(']);
        (0..10).for_each(|_| laughs.extend([b'h', i]));
        laughs.extend([b'e', b'q', i + 1]);
    }
    laughs.push(b'.');
    assert!(refusal(&laughs).contains("nested too deeply"), "{}", refusal(&laughs));
    // a list that contains itself
    assert!(refusal(b"\x80\x02]q\x00h\x00a.").contains("nested too deeply"));
    let deep = [&b"\x80\x02"[..], &[b']'; 500_000], &[b'a'; 499_999], b"."].concat();
    assert!(refusal(&deep).contains("nested too deeply"));
    assert!(
        refusal(&[&b"\x80\x02"[..], &[b'N'; 2_000_000]].concat())
            .contains("the stack has more than")
    );
    let with = |from: &[u8], to: &[u8]| {
        let at = PICKLE.windows(from.len()).position(|w| w == from).expect("it is there");
        [&PICKLE[..at], to, &PICKLE[at + from.len()..]].concat()
    };
    // (2, 4) reaches beyond six elements; strides of 0 would make 65,535 x 65,535 of them; an
    // offset beyond the end
    assert!(refusal(&with(b"K\x02K\x03\x86", b"K\x02K\x04\x86")).contains("exceed 6 elements"));
    let unreadable = |pickle: &[u8]| {
        let state = pt::from_bytes(&archive(pickle, &[0; 24], false), reference()).unwrap();
        state.tensor("w").unwrap_err().to_string()
    };
    assert!(
        unreadable(&with(
            b"K\x02K\x03\x86q\x08K\x03K\x01",
            b"M\xff\xffM\xff\xff\x86q\x08K\x00K\x00"
        ))
        .contains("save x.contiguous()")
    );
    assert!(refusal(&with(b"QK\x00", b"QK\x06")).contains("exceed 6 elements"));
    assert!(unreadable(&with(b"FloatStorage", b"EvilStorage")).contains("EvilStorage"));
    assert!(refusal(&with(b"K\x02K\x03\x86", b"J\xff\xff\xff\xffK\x03\x86")).contains("got -1"));
}

#[test]
fn archives_that_inflate_without_end_are_refused() {
    // an .npy of a million zeros deflates by a factor of a thousand, as the directory states; here
    // the directory states ten times that size
    let folder = Folder::new("bomb");
    let path = folder.0.join("x.npz");
    npz::write(
        &path,
        &[("x".to_string(), Tensor::zeros((1_000_000,), DType::U8, device()).unwrap())],
        npz::Compression::Deflated,
    )
    .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let read = |bytes: &[u8]| npz::from_bytes(bytes, reference());
    assert_eq!(read(&bytes).unwrap().tensors["x"].numel(), 1_000_000);
    let entry = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    bytes[entry + 24..entry + 28].copy_from_slice(&10_000_000u32.to_le_bytes());
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("claims"), "{error}");
    bytes[entry + 24..entry + 28].copy_from_slice(&500_000u32.to_le_bytes());
    assert!(read(&bytes).unwrap_err().to_string().contains("damaged"));
}

#[test]
fn damaged_idx_files_are_errors() {
    let mut good = Vec::new();
    idx::write(&mut good, &[3, 4, 5], &(0..60).collect::<Vec<u8>>()).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, &good).unwrap();
    fuzz("idx", &good, 4000, |bytes| idx::from_bytes("x", bytes).map(|_| ()));
    fuzz("idx.gz", &packed.finish().unwrap(), 4000, |bytes| {
        idx::from_bytes("x", bytes).map(|_| ())
    });
}

#[test]
fn damaged_tokenizer_files_are_errors() {
    let folder = Folder::new("fuzz-bpe");
    let [path, vocab, merges] = ["x.json", "vocab.json", "merges.txt"].map(|n| folder.0.join(n));
    let bpe = Bpe::train(&"low lower lowest ".repeat(9), 264).unwrap();
    bpe.with_specials(&["<pad>"]).unwrap().save(&path).unwrap();
    let good = fs::read(&path).unwrap();
    fuzz("tokenizer.json", &good, 500, |bytes| {
        fs::write(&path, bytes).unwrap();
        Bpe::load(&path).map(drop)
    });
    let file: serde_json::Value = serde_json::from_slice(&good).unwrap();
    let mut spelled = file["model"]["vocab"].clone();
    spelled["<|endoftext|>"] = spelled.as_object().unwrap().len().into();
    fs::write(&merges, "#version: 0.2\nl o\nlo w\n").unwrap();
    fuzz("vocab.json", spelled.to_string().as_bytes(), 500, |bytes| {
        fs::write(&vocab, bytes).unwrap();
        Bpe::load_gpt2(&vocab, &merges).map(drop)
    });
}

#[test]
fn damaged_logs_are_errors_and_stay_as_they_are() {
    let folder = Folder::new("fuzz-log");
    for name in ["x.csv", "x.jsonl"] {
        let path = folder.0.join(name);
        let mut log = Log::create(&path, &["step", "loss"]).unwrap();
        (0..9).for_each(|step: u64| log.write(&[step.into(), 0.25.into()]).unwrap());
        let good = fs::read(&path).unwrap();
        fuzz(name, &good, 500, |bytes| {
            fs::write(&path, bytes).unwrap();
            let resumed = Log::resume(&path, &["step", "loss"], 5).map(drop);
            assert!(resumed.is_ok() || fs::read(&path).unwrap() == bytes);
            resumed
        });
    }
}

#[test]
fn damaged_gguf_files_are_errors() {
    let device = reference();
    let list = |count: u64, values: &[u8]| {
        [&8u32.to_le_bytes(), &count.to_le_bytes()[..], values].concat()
    };
    let text = [&3u64.to_le_bytes()[..], b"abc"].concat();
    let metadata = [
        ("general.architecture", 8, text.clone()),
        ("general.alignment", 4, 32u32.to_le_bytes().to_vec()),
        ("tokens", 9, list(3, &text.repeat(3))),
        ("tied", 7, vec![1]),
        ("epsilon", 6, 1e-5f32.to_le_bytes().to_vec()),
    ];
    let tensors: [(&str, &[u64], u32, u64); 4] =
        [("a", &[2, 3], 0, 0), ("b", &[32], 8, 32), ("c", &[3], 1, 96), ("d", &[1], 99, 96)];
    let good = gguf(&metadata, &tensors, &[7; 128]);
    fuzz("gguf", &good, 4000, |bytes| {
        let file = Gguf::from_bytes(bytes)?;
        file.entries().keys().try_for_each(|name| file.tensor(name, &device).map(drop))
    });
}
