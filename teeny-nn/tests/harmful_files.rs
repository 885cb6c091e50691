//! Files made to harm: a few bytes that claim gigabytes, names and references that multiply, and
//! content that is not allowed. Each is refused within the memory of its budget.

use crate::common::{Folder, device};
use crate::files::*;
use std::fs;
use std::path::Path;
use teeny_core::{Error, Reference, Result, Tensor};
use teeny_formats::{SafeTensors, npz, pt};
use teeny_nn::data::idx;
use teeny_nn::state::Checkpoint;
use teeny_nn::train::Log;
use teeny_text::Bpe;

/// The error of `read`, which keeps to `most` bytes of memory and quotes little of the file.
#[track_caller]
fn refused<T>(most: usize, read: impl FnOnce() -> Result<T>) -> String {
    let (result, peak) = peak_of(|| read().map(drop));
    let text = result.unwrap_err().to_string();
    assert!(peak <= most, "{peak} bytes, more than {most}: {text}");
    assert!(text.len() < 2000, "an error of {} bytes: {:.500}", text.len(), text);
    text
}

fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

#[test]
fn a_wrong_header_of_20_megabytes_takes_little_memory() {
    let n = 20_000_000;
    let short = n / 8; // for other ways to make a header wrong
    let empty =
        |i: usize| format!("\"t{i}\":{{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}},");
    let headers = [
        format!("{{\"x\":[{}0]}}", "0,".repeat(n / 2)),
        format!("{{\"x\":{{\"dtype\":\"{}\"}}}}", "F".repeat(short)),
        format!("{{\"{}\":0}}", "x".repeat(short)),
        format!("{{\"__metadata__\":\"{}\"}}", "x".repeat(short)),
        format!("{{\"x\":{}{}}}", "[".repeat(short), "]".repeat(short)),
        format!("{{\"x\":{}", "{\"\":".repeat(short)),
        format!(
            "{{\"x\":{{\"dtype\":\"F32\",\"shape\":[{}1],\"data_offsets\":[0,4]}}}}",
            "1,".repeat(short)
        ),
        // the last of many entries
        format!("{{{}\"x\":0}}", (0..short / 60).map(empty).collect::<String>()),
    ];
    let folder = Folder::new("harm-header");
    let path = folder.0.join("x.safetensors");
    for header in headers {
        fs::write(&path, safetensors(&header, &[])).unwrap();
        let most = 12 * header.len() + (1 << 20);
        let file = |path: &Path| refused(most, || SafeTensors::open(path));
        assert!(file(&path).starts_with("load \""));
        refused(most, || Checkpoint::load(&path, Reference::new()));
    }
}

#[test]
fn keys_that_come_twice_and_metadata_that_are_not_text_are_refused() {
    let entry =
        |end: usize| format!("{{\"dtype\":\"U8\",\"shape\":[{end}],\"data_offsets\":[0,{end}]}}");
    let refusal =
        |header: &str| refused(1 << 20, || SafeTensors::from_bytes(safetensors(header, &[7, 7])));
    let text = refusal(&format!("{{\"a\":{},\"\\u0061\":{}}}", entry(2), entry(2)));
    assert!(text.contains("two members are called \"a\""), "{text}");
    let twice = "{\"dtype\":\"U8\",\"shape\":[2],\"shape\":[2],\"data_offsets\":[0,2]}";
    let text = refusal(&format!("{{\"a\":{twice}}}"));
    assert!(text.contains("two members are called \"shape\""), "{text}");
    for metadata in ["3", "[\"a\"]", "\"a\"", "null", "{\"step\":3}", "{\"a\":\"1\",\"a\":\"2\"}"] {
        let text = refusal(&format!("{{\"__metadata__\":{metadata},\"a\":{}}}", entry(2)));
        assert!(text.contains("in the metadata of the header"), "{metadata}: {text}");
    }
    // ranges that end before they begin, and cover the data together
    let text = refusal(
        "{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,9]},\
          \"b\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[9,2]}}",
    );
    assert!(text.contains("overlap or leave a gap"), "{text}");
}

/// `]` and all of `items` in it, as a pickle.
fn list(items: &[&[u8]]) -> Vec<u8> {
    [b"\x80\x02](", items.concat().as_slice(), b"e."].concat()
}

fn text(length: usize) -> Vec<u8> {
    [b"X", &(length as u32).to_le_bytes()[..], &vec![b'x'; length]].concat()
}

#[test]
fn pickles_that_refer_to_one_value_often_are_refused() {
    let refusal = |pickle: &[u8], storage: &[u8], deflate: bool| {
        let bytes = archive(pickle, storage, deflate);
        let most = limit(bytes.len(), if deflate { bytes.len() } else { 0 });
        refused(most, || pt::from_bytes(&bytes, device()))
    };
    let references = b"h\x01".repeat(100_000);
    // 10 GB of text
    let texts = list(&[&text(100_000), b"q\x01", &references]);
    assert!(archive(&texts, &[], true).len() < 1200);
    assert!(refusal(&texts, &[], true).contains("the limit for a file of this size"));
    assert!(refusal(&texts, &[], false).contains("the limit for a file of this size"));
    // 10 GB of names: a list below a long key
    let items = [b"](", &b"K\x01".repeat(100_000)[..], b"e"].concat();
    let names = [b"\x80\x02}", &text(100_000)[..], &items, b"s."].concat();
    assert!(refusal(&names, &[], false).contains("the limit for a file of this size"));
    // 2 GB of tensors that share a storage
    let end = PICKLE.len() - 2; // `s.` puts the tensor into a dictionary
    let storage = vec![0; 100_000];
    let view = b"(h\x07QK\x00J\xa8\x61\x00\x00\x85K\x01\x85\x89h\x0a)RtR";
    let tensor = [b"h\x02".as_slice(), view].concat();
    let tensors =
        [&PICKLE[..end], b"sX\x01\x00\x00\x00v](", &tensor.repeat(20_000), b"es."].concat();
    assert!(refusal(&tensors, &storage, false).contains("the limit for a file of this size"));
    // lists in lists in lists: 20^5 values
    let mut lists = b"\x80\x02K\x01q\x00".to_vec();
    for i in 0..5u8 {
        lists.extend([b']', b'(']);
        lists.extend([b'h', i].repeat(20));
        lists.extend([b'e', b'q', i + 1]);
    }
    lists.push(b'.');
    assert!(refusal(&lists, &[], true).contains("the limit for a file of this size"));
}

#[test]
fn long_pickles_keep_to_the_budget_of_their_file() {
    // whatever fills the memory of the interpreter most per byte
    for part in [
        &b"]"[..],
        b"N",
        b"}",
        b"(",
        b")",
        b"]q\x00",
        b"h\x00",
        b"N\x94",
        b"K\x01\x85",
        b"cos\nsystem\n)R",
        b"ctorch._utils\n_rebuild_parameter\n)R",
        b"(NNt",
        b"(Ne",
        b"]Na",
    ] {
        let count = 400_000 / part.len();
        let pickle = [b"\x80\x02]q\x00(", &part.repeat(count)[..], b"e."].concat();
        let bytes = archive(&pickle, &[], false);
        let read = || pt::from_bytes(&bytes, Reference::new()).map(drop);
        let (_, peak) = peak_of(read);
        assert!(peak <= limit(bytes.len(), 0), "{:?}: {peak}", String::from_utf8_lossy(part));
    }
}

#[test]
fn a_long_list_of_numbers_is_read() {
    let numbers = b"K\x07".repeat(200_000);
    let bytes = archive(&list(&[&numbers]), &[], false);
    let state = pt::from_bytes(&bytes, Reference::new()).unwrap();
    assert_eq!((state.values.len(), &*state.values["199999"]), (200_000, "7"));
}

#[test]
fn two_entries_of_one_name_are_refused() {
    let key = |name: &str| [b"X", &(name.len() as u32).to_le_bytes()[..], name.as_bytes()].concat();
    let pickle =
        [b"\x80\x02}(", &key("a.b")[..], b"K\x01", &key("a"), b"}", &key("b"), b"K\x02su."]
            .concat();
    let bytes = archive(&pickle, &[], false);
    let text = refused(1 << 20, || pt::from_bytes(&bytes, Reference::new()));
    assert!(text.contains("two entries are called \"a.b\""), "{text}");
}

#[test]
fn arrays_that_claim_more_than_they_hold_are_refused() {
    let npy = |shape: &str, descr: &str| {
        let header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
        let length = (header.len() as u16).to_le_bytes();
        [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), &[0; 8]].concat()
    };
    let ones = format!("({})", "1,".repeat(4_000));
    for shape in ["(9999999999,)", "(4294967296, 4294967296)", "((2,),)", &ones] {
        let bytes = npy(shape, "<f4");
        refused(1 << 20, || Tensor::from_npy(&bytes, Reference::new()));
    }
    let bytes = npy("(2,)", &"x".repeat(9_000));
    refused(1 << 20, || Tensor::from_npy(&bytes, Reference::new()));
}

#[test]
fn compressed_files_keep_to_the_memory_of_their_inflation() {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    let zeros = vec![0; 20_000_000];
    std::io::Write::write_all(&mut packed, &[0, 0, 8, 1, 0x7f, 0xff, 0xff, 0xff]).unwrap();
    std::io::Write::write_all(&mut packed, &zeros).unwrap();
    let packed = packed.finish().unwrap();
    let text = refused(limit(packed.len(), packed.len()), || idx::from_bytes("x", &packed));
    assert!(text.contains("the limit for a file of this size"), "{text}");

    let folder = Folder::new("harm-npz");
    let path = folder.0.join("x.npz");
    let device = Reference::new();
    let zeros = Tensor::zeros((2_500_000,), teeny_core::DType::F64, &device).unwrap();
    npz::write(&path, &[("x".into(), zeros)], npz::Compression::Deflated).unwrap();
    let bytes = fs::read(&path).unwrap();
    let (read, peak) = peak_of(|| npz::from_bytes(&bytes, &device).map(drop));
    read.unwrap();
    assert!(peak <= limit(bytes.len(), bytes.len()), "{peak} for a file of {}", bytes.len());
}

#[test]
fn tokenizers_with_empty_or_repeated_tokens_are_refused() {
    let folder = Folder::new("harm-bpe");
    let path = folder.0.join("tokenizer.json");
    let bpe = Bpe::train("", 256).unwrap().with_specials(&["<pad>"]).unwrap();
    bpe.save(&path).unwrap();
    let good = fs::read_to_string(&path).unwrap();
    let refusal = |from: &str, to: &str| {
        assert!(good.contains(from), "{from}");
        let changed = good.replacen(from, to, 1);
        fs::write(&path, &changed).unwrap();
        refused(limit(changed.len(), 0), || Bpe::load(&path))
    };
    let text = refusal("\"vocab\":{", "\"vocab\":{\"\":257,");
    assert!(text.contains("token 257 is empty"), "{text}");
    let text = refusal("\"vocab\":{", "\"vocab\":{\"a\":257,");
    assert!(text.contains("two members are called \"a\""), "{text}");
    let special = "\"added_tokens\":[";
    let text = refusal(special, "\"added_tokens\":[{\"id\":257,\"content\":\"<pad>\"},");
    assert!(text.contains("special tokens 257 and 256 are both \"<pad>\""), "{text}");
    let text = refusal(special, "\"added_tokens\":[{\"id\":257,\"content\":\"\"},");
    assert!(text.contains("special token 257 is empty"), "{text}");
    let long = format!("\"merges\":[{}\"ab\"]", "\"a\",".repeat(1_000_000));
    let text = refusal("\"merges\":[]", &long);
    assert!(text.contains("model.merges: expected two tokens, found"), "{text}");
    let text = refusal("\"merges\":[]", &format!("\"merges\":[\"{}\"]", "a".repeat(1_000_000)));
    assert!(text.contains("expected two tokens, found"), "{text}");
}

#[test]
fn a_line_of_a_log_with_a_million_values_takes_little_memory() {
    let folder = Folder::new("harm-log");
    let path = folder.0.join("x.jsonl");
    let line = format!("{{\"step\": 1, \"x\": [{}0]}}\n", "0,".repeat(1_000_000));
    fs::write(&path, format!("{line}{{\"loss\": [{}0]}}\n", "0,".repeat(1_000_000))).unwrap();
    let most = 8 * line.len();
    let text = refused(most, || Log::resume(&path, &["step"], 5));
    assert!(text.contains("line 2 has no step"), "{text}");
}

#[test]
fn errors_do_not_quote_long_names() {
    let long = "x".repeat(1_000_000);
    let archive = SafeTensors::from_bytes(safetensors(
        &format!("{{\"{long}\":{{\"dtype\":\"{long}\",\"shape\":[],\"data_offsets\":[0,2]}}}}"),
        &[7, 7],
    ))
    .unwrap();
    let error: Error = archive.tensor(&long, Reference::new()).unwrap_err();
    assert!(error.to_string().len() < 1000);
}
