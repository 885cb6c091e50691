//! The memory that a reader of files asks for, and zip archives with correct checksums.
#![allow(dead_code)] // each test file uses a part

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::Write;

/// The system's allocator, which counts the bytes in use of each thread.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    LIVE.set(LIVE.get() + bytes);
    PEAK.set(PEAK.get().max(LIVE.get()));
}

// SAFETY: every call is passed on unchanged; the counters are plain cells without destructors.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The result of `f`, and the most bytes that this thread had in use besides those before.
pub fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = f();
    (result, (PEAK.get() - before) as usize)
}

/// The memory that the reader of a file of `bytes` bytes may ask for, as `file::Budget` states it,
/// with the buffers of the file and of its errors.
pub fn limit(bytes: usize, deflated: usize) -> usize {
    (1 << 20) + 130 * bytes + 4 * 1032 * deflated
}

/// A `.pt` file of one pickle and one storage, with correct checksums, so that damage reaches the
/// pickle.
pub fn archive(pickle: &[u8], storage: &[u8], deflate: bool) -> Vec<u8> {
    zip(&[("a/data.pkl", pickle), ("a/data/0", storage)], deflate)
}

/// A zip archive of named entries.
pub fn zip(entries: &[(&str, &[u8])], deflate: bool) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for (name, content) in entries {
        let mut crc = flate2::Crc::new();
        crc.update(content);
        let packed = match deflate {
            true => {
                let level = flate2::Compression::best();
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(content).unwrap();
                encoder.finish().unwrap()
            }
            false => content.to_vec(),
        };
        let sizes = [packed.len(), content.len()].map(|n| (n as u32).to_le_bytes()).concat();
        let common = [
            &[20, 0, 0, 0, if deflate { 8 } else { 0 }, 0, 0, 0, 0x21, 0][..],
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
        file.extend([b"PK\x03\x04", &common[..], name.as_bytes(), &packed].concat());
    }
    let at = file.len() as u32;
    let sizes = [(directory.len() as u32).to_le_bytes(), at.to_le_bytes()].concat();
    let count = (entries.len() as u16).to_le_bytes();
    [file, directory, b"PK\x05\x06\0\0\0\0".to_vec(), [count, count].concat(), sizes, vec![0, 0]]
        .concat()
}

/// The pickle of {"w": a tensor (2, 3) with strides (3, 1)} as `torch.save` writes it.
pub const PICKLE: &[u8] = b"\x80\x02}q\x00X\x01\x00\x00\x00wq\x01ctorch._utils\n_rebuild_tensor_v2\nq\x02((X\x07\x00\x00\x00storageq\x03ctorch\nFloatStorage\nq\x04\
X\x01\x00\x00\x000q\x05X\x03\x00\x00\x00cpuq\x06K\x06tq\x07QK\x00K\x02K\x03\x86q\x08K\x03K\x01\x86q\x09\x89ccollections\nOrderedDict\nq\x0a)Rq\x0btq\x0cRq\x0ds.";

/// The bytes of a GGUF file with these metadata and tensors: name, sizes, type, offset.
pub fn gguf(
    metadata: &[(&str, u32, Vec<u8>)],
    tensors: &[(&str, &[u64], u32, u64)],
    data: &[u8],
) -> Vec<u8> {
    let text = |text: &str| [&(text.len() as u64).to_le_bytes()[..], text.as_bytes()].concat();
    let mut bytes = b"GGUF\x03\0\0\0".to_vec();
    bytes.extend((tensors.len() as u64).to_le_bytes());
    bytes.extend((metadata.len() as u64).to_le_bytes());
    for (key, kind, value) in metadata {
        bytes.extend([text(key), kind.to_le_bytes().to_vec(), value.clone()].concat());
    }
    for (name, sizes, kind, offset) in tensors {
        bytes.extend([text(name), (sizes.len() as u32).to_le_bytes().to_vec()].concat());
        sizes.iter().for_each(|size| bytes.extend(size.to_le_bytes()));
        bytes.extend(kind.to_le_bytes());
        bytes.extend(offset.to_le_bytes());
    }
    bytes.resize(bytes.len().next_multiple_of(32), 0);
    bytes.extend(data);
    bytes
}
