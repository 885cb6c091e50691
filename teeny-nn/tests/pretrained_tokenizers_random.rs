//! `PretrainedTokenizer` and Hugging Face's crate on random texts: tokens, types, offsets, text.
//!
//! Variables: TEENY_SEED, TEENY_CASES (texts for each tokenizer), TEENY_TOKENIZER (a further
//! `tokenizer.json`, such as that of a published model).

use crate::pretrained_tokenizers::{NAMES, folder};
use std::path::{Path, PathBuf};
use teeny_nn::text::{EncodeInput, EncodeOptions, PretrainedTokenizer, Tokenizer};

/// Random numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n as u64) as usize
    }

    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }
}

/// Ranges of characters that Unicode had in 2015, from all planes.
#[rustfmt::skip]
const RANGES: [(u32, u32); 47] = [
    (0x20, 0x7e), (0x61, 0x7a), (0x20, 0x7e), (0x61, 0x7a), (0x20, 0x40), (0x00, 0x1f),
    (0x7f, 0xff), (0x100, 0x24f), (0x300, 0x36f), (0x391, 0x3c9), (0x410, 0x44f), (0x5d0, 0x5ea),
    (0x591, 0x5bd), (0x621, 0x64a), (0x64b, 0x652), (0x904, 0x939), (0x93e, 0x94d),
    (0xe01, 0xe3a), (0x1100, 0x1112), (0x1161, 0x1175), (0x11a8, 0x11c2), (0x1e00, 0x1eff),
    (0x1f00, 0x1f15), (0x2000, 0x2064), (0x2070, 0x2071), (0x20d0, 0x20f0), (0x2100, 0x2138),
    (0x2150, 0x2188), (0x2460, 0x24ff), (0x2581, 0x2581), (0x2600, 0x26ff), (0x3000, 0x303f),
    (0x3041, 0x3096), (0x309b, 0x30fa), (0x4e00, 0x9fa5), (0xac00, 0xd7a3), (0xe000, 0xf8ff),
    (0xf900, 0xfa2d), (0xfb00, 0xfb06), (0xfdf0, 0xfdfc), (0xfe00, 0xfe0f), (0xff01, 0xff5e),
    (0xfffd, 0xfffd), (0x1d400, 0x1d454), (0x1f300, 0x1f64f), (0x20000, 0x2a6d6),
    (0xe0061, 0xe007a),
];

const PARTS: [&str; 44] = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    " \n",
    "\t",
    "\r\n",
    "\u{a0}",
    "\u{3000}",
    "    \n  ",
    "▁",
    "Ġ",
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<mask>",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "<bos>",
    "<|im_start|>",
    "<|im_end|>",
    "<unk>",
    "[UNK]",
    "word",
    " word",
    "Yesterday",
    "yesterday",
    "<|0.00|>",
    "<0x41>",
    "<tool_call>",
    "hello world",
    " they'll",
    "IT'S",
    "12345",
    "lowest",
    "newest",
    "...",
    "?!",
    "e\u{301}",
    "\u{1f469}\u{200d}\u{1f467}",
    "## s",
    "@@",
];

fn random_text(rng: &mut Rng) -> String {
    let mut text = String::new();
    for _ in 0..rng.below(12) {
        if rng.below(2) == 0 {
            text += rng.pick(&PARTS);
            continue;
        }
        for _ in 0..1 + rng.below(6) {
            let (first, last) = rng.pick(&RANGES);
            let c = first + rng.below((last - first + 1) as usize) as u32;
            text.extend(char::from_u32(c));
        }
    }
    text
}

/// The seed of random tests: TEENY_SEED, or the time.
fn seed() -> u64 {
    let time = || std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let seed = std::env::var("TEENY_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(time) | 1;
    println!("TEENY_SEED={seed}");
    seed
}

/// Compares with Hugging Face's crate on `count` random texts; returns the first differences.
fn differences(path: &Path, count: usize, seed: u64) -> Vec<String> {
    let own = PretrainedTokenizer::open(path).unwrap();
    let mut crates = ::tokenizers::Tokenizer::from_file(path).unwrap();
    crates.with_truncation(None).unwrap();
    crates.with_padding(None);
    let mut rng = Rng(seed);
    let mut wrong = Vec::new();
    for i in 0..count {
        let (text, special) = (random_text(&mut rng), rng.below(2) == 0);
        let pair = (rng.below(8) == 0).then(|| random_text(&mut rng));
        let input = EncodeInput { text: &text, pair: pair.as_deref() };
        let options = EncodeOptions::default().with_add_special_tokens(special);
        let encoding = own.encode_with(input, &options).unwrap();
        let expected = match &pair {
            Some(pair) => crates.encode_char_offsets((text.as_str(), pair.as_str()), special),
            None => crates.encode_char_offsets(text.as_str(), special),
        }
        .unwrap();
        // the crate's offsets count characters
        let bytes = |text: &str, n: usize| text.chars().take(n).map(char::len_utf8).sum::<usize>();
        let sequences = expected.get_sequence_ids();
        let offsets: Vec<_> = expected
            .get_offsets()
            .iter()
            .zip(sequences)
            .map(|((a, b), sequence)| {
                let text = if sequence == Some(1) { pair.as_ref().unwrap() } else { &text };
                (bytes(text, *a), bytes(text, *b))
            })
            .collect();
        let ids = own.encode(&text).unwrap();
        let plain = crates.encode(text.as_str(), false).unwrap().get_ids().to_vec();
        let skip = rng.below(2) == 0;
        let decoded = own.decode_with(&encoding.ids, skip).unwrap();
        let text_differs = match encoding.ids.is_empty() {
            // the crate's BPEDecoder panics
            true => !decoded.is_empty(),
            false => decoded != crates.decode(&encoding.ids, skip).unwrap(),
        };
        if encoding.ids != expected.get_ids()
            || encoding.type_ids != expected.get_type_ids()
            || encoding.offsets != offsets
            || plain != ids
            || text_differs
        {
            wrong.push(format!("{path:?} {i}: {text:?} {pair:?}\n{encoding:?}\n{expected:?}"));
        }
    }
    wrong
}

#[test]
fn random_texts_have_the_tokens_of_hugging_faces_crate() {
    let seed = seed();
    let count = std::env::var("TEENY_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000);
    let mut paths: Vec<PathBuf> =
        NAMES.iter().map(|name| folder().join(format!("{name}.json"))).collect();
    // others, such as those of published models
    paths.extend(std::env::var_os("TEENY_TOKENIZER").map(PathBuf::from));
    let mut total = 0;
    for path in paths {
        let wrong = differences(&path, count, seed);
        println!("{path:?}: {} of {count} differ", wrong.len());
        wrong.iter().take(2).for_each(|text| println!("{text}"));
        total += wrong.len();
    }
    assert_eq!(total, 0);
}
