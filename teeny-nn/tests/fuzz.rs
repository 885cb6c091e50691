//! Readers of files check every size and position. Of thousands of damaged files, none makes a
//! reader panic or allocate much more memory than the file has bytes.

mod common;

use common::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fs;
use teeny_core::{DType, DeviceRef, Result, Tensor};
use teeny_nn::data::idx;
use teeny_nn::state::{Archive, Checkpoint, npz, pt};

/// The system's allocator, which records the largest request of each thread.
struct Noting;

thread_local! {
    static LARGEST: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged; the record is a plain cell without a destructor.
unsafe impl GlobalAlloc for Noting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LARGEST.with(|largest| largest.set(largest.get().max(layout.size())));
        // SAFETY: the caller keeps the contract of `alloc`
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static NOTING: Noting = Noting;

/// Marsaglia's xorshift: the same damage in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}

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

/// Reads `count` damaged versions of a file; most must be errors, none may panic or allocate more
/// than `most` bytes at once.
fn fuzz(name: &str, good: &[u8], count: usize, most: usize, read: impl Fn(&[u8]) -> Result<()>) {
    read(good).unwrap_or_else(|e| panic!("{name}: {e}"));
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15 ^ good.len() as u64);
    let mut refused = 0;
    for i in 0..count {
        let bytes = damage(good, &mut dice);
        LARGEST.set(0);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| read(&bytes)));
        let Ok(result) = result else {
            panic!("{name}: panicked at damage {i}: {:?}", String::from_utf8_lossy(&bytes));
        };
        refused += usize::from(result.is_err());
        assert!(
            LARGEST.get() <= most,
            "{name}: {} bytes asked for at damage {i} of a file of {}",
            LARGEST.get(),
            bytes.len()
        );
    }
    assert!(refused > count / 4, "{name}: only {refused} of {count} damaged files were refused");
}

/// Allocations besides tensors: hash tables, the JSON of a header, a device's smallest blocks.
const BY_THE_WAY: usize = 1 << 20;

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
    let (folder, device) = (Folder::new("fuzz-safetensors"), device());
    let path = folder.0.join("x");
    let mut good = Vec::new();
    teeny_nn::state::write(
        &mut good,
        &tensors(&device),
        &[("epoch".to_string(), "3".to_string())].into(),
    )
    .unwrap();
    fuzz("safetensors", &good, 4000, BY_THE_WAY, |bytes| {
        fs::write(&path, bytes).unwrap();
        let archive = Archive::open(&path)?;
        archive.entries().keys().try_for_each(|name| archive.tensor(name, &device).map(|_| ()))
    });
}

#[test]
fn damaged_checkpoints_are_errors() {
    let (folder, device) = (Folder::new("fuzz-checkpoint"), device());
    let path = folder.0.join("x");
    let state = teeny_nn::state::State {
        tensors: tensors(&device).into_iter().collect(),
        ..Default::default()
    }
    .with("lr", 0.5);
    Checkpoint::new().put("part", &state).unwrap().save(&path).unwrap();
    let good = fs::read(&path).unwrap();
    fuzz("checkpoint", &good, 2000, BY_THE_WAY, |bytes| {
        fs::write(&path, bytes).unwrap();
        Checkpoint::load(&path, &device)?.part("part").map(|_| ())
    });
}

#[test]
fn damaged_npy_files_are_errors() {
    let device = device();
    for (_, x) in tensors(&device) {
        let mut good = Vec::new();
        x.write_npy(&mut good).unwrap();
        fuzz("npy", &good, 4000, BY_THE_WAY, |bytes| Tensor::from_npy(bytes, &device).map(|_| ()));
    }
}

#[test]
fn damaged_npz_files_are_errors() {
    for good in
        [&include_bytes!("golden/arrays.npz")[..], include_bytes!("golden/arrays_compressed.npz")]
    {
        fuzz("npz", good, 4000, BY_THE_WAY, |bytes| npz::from_bytes(bytes, device()).map(|_| ()));
    }
}

#[test]
fn damaged_pt_files_are_errors() {
    for good in [&include_bytes!("golden/nested.pt")[..], include_bytes!("golden/state_dict.pt")] {
        fuzz("pt", good, 4000, BY_THE_WAY, |bytes| pt::from_bytes(bytes, device()).map(|_| ()));
    }
}

/// A stored zip archive of one pickle and one storage, with correct checksums, so that damage
/// reaches the pickle.
fn archive(pickle: &[u8], storage: &[u8]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in [("a/data.pkl", pickle), ("a/data/0", storage)] {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let sizes =
            [(content.len() as u32).to_le_bytes(), (content.len() as u32).to_le_bytes()].concat();
        let common = [
            &[20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0][..],
            &crc.sum().to_le_bytes(),
            &sizes,
            &(name.len() as u16).to_le_bytes(),
            &[0, 0],
        ]
        .concat();
        directory.extend(
            [
                b"PK\x01\x02\x14\0",
                &common[..],
                &[0; 10],
                &(file.len() as u32).to_le_bytes(),
                name.as_bytes(),
            ]
            .concat(),
        );
        file.extend([b"PK\x03\x04", &common[..], name.as_bytes(), content].concat());
    }
    let at = file.len() as u32;
    let sizes = [(directory.len() as u32).to_le_bytes(), at.to_le_bytes()].concat();
    [file, directory, b"PK\x05\x06\0\0\0\0\x02\0\x02\0".to_vec(), sizes, vec![0, 0]].concat()
}

/// The pickle of {"w": a tensor (2, 3) with strides (3, 1)} as `torch.save` writes it.
const PICKLE: &[u8] = b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storageq\x03ctorch\nFloatStorage\nq\x04\
X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x06tq\x07QK\x00K\x02K\x03\x86q\x08K\x03K\x01\x86q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cRq\x0ds.";

#[test]
fn damaged_pickles_in_sound_archives_are_errors() {
    let read = |pickle: &[u8]| pt::from_bytes(&archive(pickle, &[0; 24]), device());
    assert_eq!(read(PICKLE).unwrap().tensors["w"].shape()[..], [2, 3]);
    fuzz("pickle", PICKLE, 20_000, BY_THE_WAY, |bytes| read(bytes).map(|_| ()));
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
    let w = pt::from_bytes(&good, device()).unwrap().tensors.remove("w").unwrap();
    assert_eq!(values(&w), [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    fuzz("zip64", &good, 4000, BY_THE_WAY, |bytes| pt::from_bytes(bytes, device()).map(|_| ()));
}

#[test]
fn pickles_made_to_harm_are_errors() {
    let refusal = |pickle: &[u8]| {
        pt::from_bytes(&archive(pickle, &[0; 24]), device()).unwrap_err().to_string()
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
    assert!(
        refusal(&with(b"K\x02K\x03\x86q\x08K\x03K\x01", b"M\xff\xffM\xff\xff\x86q\x08K\x00K\x00"))
            .contains("save x.contiguous()")
    );
    assert!(refusal(&with(b"QK\x00", b"QK\x06")).contains("exceed 6 elements"));
    assert!(refusal(&with(b"FloatStorage", b"EvilStorage")).contains("EvilStorage"));
    assert!(
        refusal(&with(b"K\x02K\x03\x86", b"J\xff\xff\xff\xffK\x03\x86")).contains("a size is -1")
    );
}

#[test]
fn archives_that_inflate_without_end_are_refused() {
    // an .npy of a million zeros deflates by a factor of a thousand, as the directory states; here
    // the directory states ten times that size
    let folder = Folder::new("bomb");
    let path = folder.0.join("x.npz");
    npz::write(
        &path,
        &[("x".to_string(), Tensor::zeros((1_000_000,), DType::U8, &device()).unwrap())],
        npz::Compression::Deflated,
    )
    .unwrap();
    let mut bytes = fs::read(&path).unwrap();
    assert_eq!(npz::from_bytes(&bytes, device()).unwrap()["x"].numel(), 1_000_000);
    let entry = bytes.windows(4).rposition(|w| w == b"PK\x01\x02").unwrap();
    bytes[entry + 24..entry + 28].copy_from_slice(&10_000_000u32.to_le_bytes());
    let error = npz::from_bytes(&bytes, device()).unwrap_err().to_string();
    assert!(error.contains("claims"), "{error}");
    bytes[entry + 24..entry + 28].copy_from_slice(&500_000u32.to_le_bytes());
    assert!(npz::from_bytes(&bytes, device()).unwrap_err().to_string().contains("damaged"));
}

#[test]
fn damaged_idx_files_are_errors() {
    let mut good = Vec::new();
    idx::write(&mut good, &[3, 4, 5], &(0..60).collect::<Vec<u8>>()).unwrap();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut packed, &good).unwrap();
    fuzz("idx", &good, 4000, BY_THE_WAY, |bytes| idx::from_bytes("x", bytes).map(|_| ()));
    fuzz("idx.gz", &packed.finish().unwrap(), 4000, BY_THE_WAY, |bytes| {
        idx::from_bytes("x", bytes).map(|_| ())
    });
}
