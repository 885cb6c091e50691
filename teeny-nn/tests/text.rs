//! Names and long texts as training data.

use std::path::PathBuf;
use teeny_core::Tensor;
use teeny_core::random::Key;
use teeny_nn::data::names::{self, PADDING};
use teeny_nn::data::{Corpus, DataLoader, Names, corpus};
use teeny_nn::device::device;
use teeny_nn::text::{ByteTokenizer, CharTokenizer, Tokenizer};

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
fn batches_of_a_corpus_are_pairs_of_neighbours_from_everywhere() {
    let cpu = device("cpu").unwrap();
    let corpus = Corpus::new(&(0..20).collect::<Vec<_>>(), &cpu).unwrap();
    let mut seen = [false; 20];
    for draw in 0..20 {
        let (x, y) = corpus.batch(8, 5, Key { seed: 3, draw }).unwrap(); // (8, 5) both
        assert_eq!((x.shape()[..].to_vec(), y.shape()[..].to_vec()), (vec![8, 5], vec![8, 5]));
        let (x, y) = (ints(&x), ints(&y));
        assert!(x.chunks(5).all(|row| row.windows(2).all(|pair| pair[1] == pair[0] + 1)));
        assert!(x.iter().zip(&y).all(|(x, y)| *y == x + 1));
        x.chunks(5).for_each(|row| seen[row[0] as usize] = true);
    }
    // an example takes 6 tokens, so the last begins at 14
    assert_eq!(seen.iter().rposition(|&s| s), Some(14));
    assert!(seen[..15].iter().all(|&s| s));
    let batch = |draw| ints(&corpus.batch(8, 5, Key { seed: 3, draw }).unwrap().0);
    assert_eq!(batch(7), batch(7));
    assert_ne!(batch(7), batch(8));
}

#[test]
fn an_epoch_of_windows_covers_the_text_once() {
    let corpus = Corpus::new(&(0..24).collect::<Vec<_>>(), device("cpu").unwrap()).unwrap();
    let loader = DataLoader::new(corpus.windows(5).unwrap(), 3).unwrap().shuffle(1);
    let mut targets: Vec<i32> = loader.epoch(0).flat_map(|batch| ints(&batch.unwrap().1)).collect();
    targets.sort_unstable();
    assert!(targets.into_iter().eq(1..=20), "four windows; 21, 22 and 23 are left over");
}

#[test]
fn a_corpus_shorter_than_the_context_names_both() {
    let corpus = Corpus::new(&[1, 2, 3, 4], device("cpu").unwrap()).unwrap();
    let error = corpus.batch(2, 4, Key { seed: 1, draw: 0 }).unwrap_err().to_string();
    assert!(error.starts_with("corpus.batch at "), "{error}");
    assert!(
        error.contains("text.rs")
            && error
                .contains("the corpus has 4 tokens, but one example with a context of 4 takes 5"),
        "{error}"
    );
    assert!(error.contains("help: take a longer text, or a shorter context"), "{error}");
    assert!(corpus.windows(usize::MAX).is_err() && corpus.windows(0).is_err());
    assert!(corpus.batch(2, 3, Key { seed: 1, draw: 0 }).is_ok());
    let (train, val) = corpus.split(0.75).unwrap();
    assert_eq!((ints(train.tokens()), ints(val.tokens())), (vec![1, 2, 3], vec![4]));
    assert!(corpus.split(1.5).is_err());
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

#[test]
fn shakespeare_has_its_published_vocabulary() {
    assert!(CharTokenizer::of(corpus::BUILTIN).unwrap().vocab_size() > 50);
    let Some(text) = real("tinyshakespeare.txt") else { return };
    let tokenizer = CharTokenizer::of(&text).unwrap();
    assert_eq!((tokenizer.vocab_size(), text.len()), (65, 1_115_394));
    let tokens = tokenizer.encode(&text).unwrap();
    assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
    let (train, val) = Corpus::new(&tokens, device("cpu").unwrap()).unwrap().split(0.9).unwrap();
    assert_eq!((train.len(), val.len()), (1_003_854, 111_540));
    assert_eq!(ByteTokenizer.encode(&text).unwrap().len(), text.len());
}
