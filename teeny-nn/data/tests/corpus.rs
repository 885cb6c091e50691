//! Long texts as training data.

use std::path::PathBuf;
use teeny_core::Tensor;
use teeny_core::random::Key;
use teeny_data::{Corpus, DataLoader, corpus};
use teeny_nn::device::device;
use teeny_text::{ByteTokenizer, CharTokenizer, Tokenizer};

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
        error.contains("corpus.rs:")
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
