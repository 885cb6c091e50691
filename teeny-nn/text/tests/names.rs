//! Names as training data.

use std::path::PathBuf;
use teeny_core::Tensor;
use teeny_nn::device::device;
use teeny_text::Tokenizer;
use teeny_text::names::{self, Names, PADDING};

fn ints(x: &Tensor) -> Vec<i32> {
    x.to_vec().unwrap()
}

/// The real text `name`, if `TEENY_DATA` names a folder that has it.
fn real(name: &str) -> Option<String> {
    let dir = std::env::var_os("TEENY_DATA").map(PathBuf::from);
    let text = dir.and_then(|dir| {
        std::fs::read_to_string(dir.join("text").join(name))
            .or_else(|_| std::fs::read_to_string(dir.join(name)))
            .ok()
    });
    if text.is_none() {
        eprintln!("SKIPPED what needs {name}: set TEENY_DATA to a folder with it");
    }
    text
}

#[test]
fn windows_of_names_are_every_character_after_those_before_it() {
    let names = Names::parse("ab\n\n  cab \r\n").unwrap();
    assert_eq!(names.tokenizer().chars(), ['.', 'a', 'b', 'c']);
    let (x, y) = names.windows(3, device("cpu").unwrap()).unwrap(); // (7, 3), (7)
    assert_eq!((x.shape()[..].to_vec(), y.shape()[..].to_vec()), (vec![7, 3], vec![7]));
    assert_eq!(ints(&y), [1, 2, 0, 3, 1, 2, 0]);
    assert_eq!(ints(&x), [0, 0, 0, 0, 0, 1, 0, 1, 2, 0, 0, 0, 0, 0, 3, 0, 3, 1, 3, 1, 2]);
}

#[test]
fn sequences_of_names_are_shifted_and_padded() {
    let names = Names::parse("ab\ncab").unwrap();
    let (x, y) = names.sequences(5, device("cpu").unwrap()).unwrap(); // (2, 5) both
    assert_eq!(ints(&x), [0, 1, 2, 0, 0, 0, 3, 1, 2, 0]);
    assert_eq!(ints(&y), [1, 2, 0, PADDING, PADDING, 3, 1, 2, 0, PADDING]);
    let error = names.sequences(3, device("cpu").unwrap()).unwrap_err().to_string();
    assert!(error.contains("\"cab\" has 3 characters and needs a row of 4, not 3"), "{error}");
    assert_eq!(names.spell(&[3, 1, 0, 2]).unwrap(), "ca");
    assert_eq!(names.new_ones(&["cab".into(), "abc".into()]), ["abc"]);
}

#[test]
fn a_split_is_a_seeded_partition_with_one_vocabulary() {
    let names = Names::parse(names::BUILTIN).unwrap();
    let parts = |seed| {
        let (a, b, c) = names.split(seed);
        [a, b, c]
    };
    let split = parts(42);
    assert_eq!(split.each_ref().map(Names::len), [598, 75, 75]);
    let mut all: Vec<&String> = split.iter().flat_map(Names::names).collect();
    all.sort();
    assert!(all.into_iter().eq(names.names()));
    assert!(split.iter().all(|part| part.tokenizer() == names.tokenizer()));
    assert_eq!(parts(42)[1].names(), split[1].names());
    assert_ne!(parts(43)[1].names(), split[1].names());
}

#[test]
fn lists_that_are_no_names_are_refused() {
    let error = |text: &str| Names::parse(text).unwrap_err().to_string();
    assert!(
        error("anna\n\nj.r.\n")
            .contains("line 3 is \"j.r.\", but '.' marks where names begin and end")
    );
    assert!(error(" \n\n").contains("there are 0 names"));
    assert!(Names::parse("anna").unwrap().windows(0, device("cpu").unwrap()).is_err());
}

#[test]
fn names_txt_has_its_published_counts() {
    let Some(text) = real("names.txt") else { return };
    let names = Names::parse(&text).unwrap();
    assert_eq!((names.len(), names.longest(), names.tokenizer().vocab_size()), (32_033, 15, 27));
    let (x, y) = names.windows(1, device("cpu").unwrap()).unwrap(); // (N, 1), (N)
    let mut counts = [[0; 27]; 27];
    ints(&x).iter().zip(ints(&y)).for_each(|(&a, b)| counts[a as usize][b as usize] += 1);
    // all, ".a", "n."
    assert_eq!((y.numel(), counts[0][1], counts[14][0]), (228_146, 4_410, 6_763));
    assert_eq!(counts.iter().flatten().max(), Some(&6_763));
}
