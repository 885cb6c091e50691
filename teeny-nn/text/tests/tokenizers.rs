//! Tokenizers: decoding restores the encoded text, merges equal Hugging Face's trainer, files
//! round-trip.

use serde_json::Value;
use std::path::PathBuf;
use std::time::Instant;
use teeny_formats::State;
use teeny_nn::data::corpus;
use teeny_nn::device::device;
use teeny_nn::state::Checkpoint;
use teeny_text::{
    Bpe, ByteTokenizer, CharTokenizer, DecodeStream, Tokenizer, WordOptions, WordTokenizer,
};

/// Text of many scripts, with controls, marks and emoji.
const MIXED: &str =
    "naïve café, 日本語 テキスト\n\n  नमस्ते 👩‍👩‍👧 \u{301}\u{fffd} \r\n\t x²½ don't \u{0}\u{7f} ''s";

/// Shakespeare from TEENY_DATA if it is set, otherwise the built-in scenes.
fn shakespeare() -> String {
    let dir = std::env::var_os("TEENY_DATA").map(PathBuf::from);
    dir.and_then(|dir| std::fs::read_to_string(dir.join("text/tinyshakespeare.txt")).ok())
        .unwrap_or_else(|| corpus::BUILTIN.to_string())
}

/// A change of a valid file.
type Change = dyn Fn(&mut Value);

fn temporary(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("teeny-tokenizer-{name}-{}", std::process::id()))
}

#[test]
fn decoding_gives_back_what_was_encoded() {
    let text = shakespeare();
    let start = Instant::now();
    let bpe = Bpe::train(&text, 1000).unwrap();
    println!("trained 744 merges on {} bytes in {:.2?}", text.len(), start.elapsed());
    let start = Instant::now();
    let tokens = bpe.encode(&text).unwrap();
    println!("encoded to {} tokens in {:.2?}", tokens.len(), start.elapsed());
    assert!(tokens.len() * 2 < text.len() && bpe.vocab_size() == 1000);
    let tokenizers: [&dyn Tokenizer; 3] =
        [&CharTokenizer::of(&text).unwrap(), &ByteTokenizer, &bpe];
    for tokenizer in tokenizers {
        let tokens = tokenizer.encode(&text).unwrap();
        assert!(tokens.iter().all(|&token| (token as usize) < tokenizer.vocab_size()));
        assert_eq!(tokenizer.decode(&tokens).unwrap(), text);
    }
    let others: [&dyn Tokenizer; 3] = [&CharTokenizer::of(MIXED).unwrap(), &ByteTokenizer, &bpe];
    for tokenizer in others {
        assert_eq!(tokenizer.decode(&tokenizer.encode(MIXED).unwrap()).unwrap(), MIXED);
        assert!(tokenizer.encode("").unwrap().is_empty());
    }
}

#[test]
fn merges_and_tokens_are_those_of_hugging_face() {
    // by tests/golden/make_words.py
    let golden: Value = serde_json::from_str(include_str!("golden/bpe.json")).unwrap();
    let bpe = Bpe::train(corpus::BUILTIN, 600).unwrap();
    let merges = golden["merges"].as_array().unwrap();
    assert_eq!(bpe.merges().len(), merges.len());
    let path = temporary("golden");
    bpe.save(&path).unwrap();
    let saved: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(&saved["model"]["merges"], &golden["merges"]);
    for case in golden["encoded"].as_array().unwrap() {
        let tokens: Vec<u32> =
            case["tokens"].as_array().unwrap().iter().map(|t| t.as_u64().unwrap() as u32).collect();
        assert_eq!(bpe.encode(case["text"].as_str().unwrap()).unwrap(), tokens, "{}", case["text"]);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn merging_is_deterministic_and_stops_when_nothing_repeats() {
    let [a, b] = [(); 2].map(|()| Bpe::train(corpus::BUILTIN, 700).unwrap());
    assert_eq!(a.merges(), b.merges());
    let bpe = Bpe::train("ab ab ab cd", 1000).unwrap();
    let spelled: Vec<&[u8]> =
        (256..bpe.vocab_size() as u32).map(|token| bpe.bytes_of(token).unwrap()).collect();
    assert_eq!(spelled, [&b"ab"[..], b" ab"]);
    // of equally frequent pairs the one with the smaller tokens comes first, in any order of the
    // text
    for text in ["xy ba", "ba xy"] {
        let bpe = Bpe::train(&[text; 4].join("\n"), 257).unwrap();
        assert_eq!(bpe.bytes_of(256).unwrap(), b"ba", "b is smaller than x");
    }
    // overlapping pairs
    let bpe = Bpe::train(&"aaaa\n".repeat(10), 258).unwrap();
    assert_eq!(bpe.decode(&bpe.encode("aaaaaaa").unwrap()).unwrap(), "aaaaaaa");
    assert_eq!(bpe.encode("aaaa").unwrap(), [257]);
    assert!(Bpe::train("", 255).is_err() && Bpe::train("", 300).unwrap().vocab_size() == 256);
}

#[test]
fn a_word_of_a_megabyte_is_encoded_in_no_time() {
    let bpe = Bpe::train(&"abab ".repeat(100), 300).unwrap();
    let text = "ab".repeat(500_000);
    let start = Instant::now();
    assert_eq!(bpe.decode(&bpe.encode(&text).unwrap()).unwrap(), text);
    assert!(start.elapsed().as_secs() < 10, "{:?}", start.elapsed());
}

#[test]
fn a_tokenizer_survives_its_file() {
    let bpe = Bpe::train(corpus::BUILTIN, 400)
        .unwrap()
        .with_specials(&["<|endoftext|>", "<pad>"])
        .unwrap();
    assert_eq!(
        (
            bpe.vocab_size(),
            bpe.special("<|endoftext|>"),
            bpe.special("<pad>"),
            bpe.special("<mask>")
        ),
        (402, Some(400), Some(401), None)
    );
    let path = temporary("file");
    bpe.save(&path).unwrap();
    let again = Bpe::load(&path).unwrap();
    assert_eq!(
        (again.merges(), again.vocab_size(), again.special("<pad>")),
        (bpe.merges(), 402, Some(401))
    );
    assert_eq!(again.encode(MIXED).unwrap(), bpe.encode(MIXED).unwrap());
    // a text cannot contain the special token
    assert!(!bpe.encode("<|endoftext|>").unwrap().contains(&400));
    assert_eq!(bpe.decode(&[400, 401]).unwrap(), "<|endoftext|><pad>");
    assert!(bpe.clone().with_specials(&["<pad>"]).is_err());

    // GPT-2's two files are the same tokenizer
    let file: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let mut vocab = file["model"]["vocab"].clone();
    vocab["<|endoftext|>"] = 400.into();
    let spell = |v: &Value| v.as_str().unwrap().to_string();
    let lines = file["model"]["merges"]
        .as_array()
        .unwrap()
        .iter()
        .map(|m| format!("{} {}\n", spell(&m[0]), spell(&m[1])));
    let (vocab_path, merges_path) = (temporary("vocab.json"), temporary("merges.txt"));
    std::fs::write(&vocab_path, vocab.to_string()).unwrap();
    std::fs::write(&merges_path, format!("#version: 0.2\n{}", lines.collect::<String>())).unwrap();
    let gpt2 = Bpe::load_gpt2(&vocab_path, &merges_path).unwrap();
    assert_eq!((gpt2.special("<|endoftext|>"), gpt2.vocab_size()), (Some(400), 401));
    assert_eq!(gpt2.encode(MIXED).unwrap(), bpe.encode(MIXED).unwrap());
    assert_eq!(gpt2.decode(&[400]).unwrap(), "<|endoftext|>");
    [path, vocab_path, merges_path].iter().for_each(|path| std::fs::remove_file(path).unwrap());
}

#[test]
fn files_of_other_tokenizers_and_damaged_ones_are_refused_by_name() {
    let path = temporary("refused");
    Bpe::train("", 256).unwrap().save(&path).unwrap();
    let good: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let error = |change: &Change| {
        let mut file = good.clone();
        change(&mut file);
        std::fs::write(&path, file.to_string()).unwrap();
        let error = Bpe::load(&path).unwrap_err().to_string();
        assert!(error.starts_with("load \""), "{error}");
        error
    };
    let cases: [(&str, &Change); 9] = [
        ("model.type is \"WordPiece\"", &|f| f["model"]["type"] = "WordPiece".into()),
        ("pre_tokenizer.type is null", &|f| f["pre_tokenizer"] = Value::Null),
        ("normalizer is set", &|f| f["normalizer"] = serde_json::json!({"type": "NFC"})),
        ("merge 0, \"a\" with \"b\", needs token \"ab\"", &|f| {
            f["model"]["merges"] = serde_json::json!(["a b"])
        }),
        ("model.merges: expected two tokens, found \"\\\"ab\\\"\"", &|f| {
            f["model"]["merges"] = serde_json::json!(["ab"])
        }),
        ("byte 0x61 has no token", &|f| {
            let vocab = f["model"]["vocab"].as_object_mut().unwrap();
            let a = vocab.remove("a").unwrap();
            vocab.insert("aa".into(), a);
        }),
        ("the number of token \"a\" is -1", &|f| f["model"]["vocab"]["a"] = (-1).into()),
        ("must have the numbers 0..=255", &|f| f["model"]["vocab"]["a"] = 7_000.into()),
        ("is not spelled in GPT-2's characters", &|f| f["model"]["vocab"]["日"] = 256.into()),
    ];
    for (expected, change) in cases {
        let error = error(change);
        assert!(error.contains(expected), "{expected}: {error}");
    }
    std::fs::write(&path, "{").unwrap();
    assert!(Bpe::load(&path).unwrap_err().to_string().contains("not JSON"));
    std::fs::remove_file(path).unwrap();
}

#[test]
fn an_unknown_character_or_token_is_named_with_its_place_and_a_way_out() {
    let tokenizer = CharTokenizer::of("abc\n").unwrap();
    let error = tokenizer.encode("abc\ncaféb").unwrap_err().to_string();
    assert!(
        error.starts_with(
            "encode: character 6 (line 2) is 'f', which is not one of the 4 in the vocabulary"
        ),
        "{error}"
    );
    assert!(
        error.contains(r#"vocabulary: "\nabc""#)
            && error.contains("help: ")
            && error.contains("ByteTokenizer"),
        "{error}"
    );
    let error = tokenizer.decode(&[0, 4]).unwrap_err().to_string();
    assert!(error.starts_with("decode: tokens[1] is 4, but there are 4 tokens (0..=3)"), "{error}");
    assert!(
        ByteTokenizer.decode(&[256]).is_err()
            && Bpe::train("", 256).unwrap().decode(&[256]).is_err()
    );
    assert!(CharTokenizer::of("").is_err());
    assert!(
        CharTokenizer::new("aba".chars())
            .unwrap_err()
            .to_string()
            .contains("character 0 of the vocabulary, 'a', is also character 2")
    );
}

#[test]
fn streamed_pieces_are_whole_characters_and_add_up() {
    let bpe = Bpe::train(corpus::BUILTIN, 300).unwrap();
    let chars = CharTokenizer::of(MIXED).unwrap();
    let long = MIXED.repeat(5);
    let mut cases: Vec<(&dyn Tokenizer, Vec<u32>)> = vec![
        (&bpe, bpe.encode(&long).unwrap()),
        (&ByteTokenizer, ByteTokenizer.encode(&long).unwrap()),
        (&chars, chars.encode(&long).unwrap()),
        // sequences that a model may generate: invalid UTF-8, and half a character at the end
        (&ByteTokenizer, (0..1000).map(|i| (i * i * 31 + i * 7) % 256).collect()),
        (&ByteTokenizer, vec![0xff; 100]),
        (&ByteTokenizer, [&[0xe2; 70][..], &[0x82, 0xac, 0xf0, 0x9f]].concat()),
    ];
    cases.push((&ByteTokenizer, Vec::new()));
    for (tokenizer, tokens) in cases {
        let mut stream = DecodeStream::new(tokenizer);
        let mut text: String = tokens.iter().map(|&token| stream.push(token).unwrap()).collect();
        text += &stream.finish().unwrap();
        assert_eq!(text, tokenizer.decode(&tokens).unwrap());
    }
    let mut stream = DecodeStream::new(&ByteTokenizer);
    let pieces: Vec<String> = "a€b".bytes().map(|byte| stream.push(byte.into()).unwrap()).collect();
    assert_eq!(pieces, ["a", "", "", "€", "b"]);
    assert!(stream.push(256).is_err());
    assert_eq!(stream.push(b'c'.into()).unwrap(), "c", "a token that was refused leaves no trace");
}

/// A tokenizer like Llama's: characters, and tokens for single bytes. A run of byte tokens that is
/// not UTF-8 decodes to one U+FFFD per byte, as in Hugging Face's `ByteFallback`.
struct ByteFallback(Vec<char>);

impl ByteFallback {
    const BYTES: u32 = 256;
}

impl Tokenizer for ByteFallback {
    fn vocab_size(&self) -> usize {
        256 + self.0.len()
    }

    fn encode(&self, text: &str) -> teeny_core::Result<Vec<u32>> {
        let tokens = |c: char| match self.0.iter().position(|own| *own == c) {
            Some(i) => vec![Self::BYTES + i as u32],
            None => c.to_string().bytes().map(u32::from).collect(),
        };
        Ok(text.chars().flat_map(tokens).collect())
    }

    fn decode(&self, tokens: &[u32]) -> teeny_core::Result<String> {
        let mut text = String::new();
        for run in tokens.chunk_by(|a, b| (*a < Self::BYTES) == (*b < Self::BYTES)) {
            if run[0] >= Self::BYTES {
                text.extend(run.iter().map(|token| self.0[(token - Self::BYTES) as usize]));
                continue;
            }
            let bytes = run.iter().map(|token| *token as u8).collect();
            text += &String::from_utf8(bytes).unwrap_or_else(|_| "\u{fffd}".repeat(run.len()));
        }
        Ok(text)
    }
}

/// Pieces of `tokens`, the last by `finish`.
fn streamed(tokenizer: &dyn Tokenizer, tokens: &[u32]) -> Vec<String> {
    let mut stream = DecodeStream::new(tokenizer);
    let mut pieces: Vec<String> = tokens.iter().map(|&token| stream.push(token).unwrap()).collect();
    pieces.push(stream.finish().unwrap());
    pieces
}

#[test]
fn a_character_of_several_byte_tokens_is_streamed_whole() {
    let tokenizer = ByteFallback("ab ".chars().collect());
    let pieces = |text: &str| streamed(&tokenizer, &tokenizer.encode(text).unwrap());
    assert_eq!(pieces("日"), ["", "", "日", ""]);
    assert_eq!(pieces("a日b"), ["a", "", "", "日", "b", ""]);
    assert_eq!(pieces("\n日"), ["\n", "", "", "日", ""]);
    // bytes that never become a character: the text after them is complete
    let broken = |tokens: &[u32]| streamed(&tokenizer, tokens).concat();
    assert_eq!(broken(&[0xe6, 0x97, 256, 257]), "\u{fffd}\u{fffd}ab");
    assert_eq!(broken(&[10, 0xe6, 256, 257]), "\n\u{fffd}ab", "the line break was returned");
    assert_eq!(broken(&[0xe6, 0x41]), "\u{fffd}\u{fffd}");
}

#[test]
fn random_texts_in_random_tokens_are_streamed_as_they_are() {
    let bpe = Bpe::train(&MIXED.repeat(4), 400).unwrap();
    let chars = CharTokenizer::of(MIXED).unwrap();
    let fallback = ByteFallback("aeinrst ,日é".chars().collect());
    let alphabet: Vec<char> = MIXED.chars().filter(|c| *c != '\u{fffd}').collect();
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |n: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % n as u64) as usize
    };
    for round in 0..400 {
        let text: String = (0..below(120)).map(|_| alphabet[below(alphabet.len())]).collect();
        // the bytes of the text in any tokens, not only those that encoding chooses
        let mut merged = Vec::new();
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let fits: Vec<u32> = (0..bpe.vocab_size() as u32)
                .filter(|&token| rest.starts_with(bpe.bytes_of(token).unwrap()))
                .collect();
            merged.push(fits[below(fits.len())]);
            rest = &rest[bpe.bytes_of(*merged.last().unwrap()).unwrap().len()..];
        }
        let mut mixed = Vec::new();
        for c in text.chars() {
            match below(2) {
                0 => mixed.extend(c.to_string().bytes().map(u32::from)),
                _ => mixed.extend(fallback.encode(&c.to_string()).unwrap()),
            }
        }
        let cases: [(&str, &dyn Tokenizer, Vec<u32>); 4] = [
            ("characters", &chars, chars.encode(&text).unwrap()),
            ("bytes", &ByteTokenizer, ByteTokenizer.encode(&text).unwrap()),
            ("bpe", &bpe, merged),
            ("byte fallback", &fallback, mixed),
        ];
        for (name, tokenizer, tokens) in cases {
            let pieces = streamed(tokenizer, &tokens);
            assert_eq!(pieces.concat(), text, "{name}, round {round}: {pieces:?}");
            let last = pieces.last().unwrap();
            assert!(last.is_empty(), "{name}, round {round}: {last:?} was held back");
        }
    }
}

#[test]
fn a_saved_tokenizer_opens_as_a_pretrained_one() {
    use teeny_text::PretrainedTokenizer;
    let bpe = Bpe::train(corpus::BUILTIN, 500).unwrap().with_specials(&["<|endoftext|>"]).unwrap();
    let path = temporary("bridge").with_extension("json");
    bpe.save(&path).unwrap();
    let read = PretrainedTokenizer::open(&path).unwrap();
    assert_eq!((read.vocab_size(), read.token("<|endoftext|>")), (501, Some(500)));
    for text in [MIXED, &shakespeare()[..10_000], ""] {
        let tokens = read.encode(text).unwrap();
        assert_eq!(tokens, bpe.encode(text).unwrap());
        assert_eq!(read.decode(&tokens).unwrap(), text);
    }
    std::fs::remove_file(&path).unwrap();
}

/// The words of `text` as a tokenizer with `options` splits them, in the order of the text.
fn split(text: &str, options: WordOptions) -> Vec<String> {
    let words = WordTokenizer::with_options([text], options).unwrap();
    words.encode(text).unwrap().iter().map(|&id| words.tokens()[id as usize].clone()).collect()
}

#[test]
fn texts_are_split_into_words_and_marks() {
    let all = WordOptions::new();
    let cases: [(&str, &[&str]); 8] = [
        ("It's 3.5 km, isn't it?", &["it's", "3", ".", "5", "km", ",", "isn't", "it", "?"]),
        ("'quoted' rock’n’roll--", &["'", "quoted", "'", "rock’n’roll", "-", "-"]),
        ("snake_case\tÉCOLE\nStraße", &["snake_case", "école", "straße"]),
        ("e\u{301}te\u{301} \u{301}a", &["e\u{301}te\u{301}", "\u{301}", "a"]),
        ("नमस्ते दुनिया।", &["नमस्ते", "दुनिया", "।"]),
        ("می\u{200c}خواهم", &["می\u{200c}خواهم"]),
        ("日本語、テキスト", &["日本語", "、", "テキスト"]),
        ("a👩b ½", &["a", "👩", "b", "½"]),
    ];
    for (text, words) in cases {
        assert_eq!(split(text, all), words, "{text:?}");
    }
    let words = all.with_punctuation(false);
    assert_eq!(split("'It's', she said…", words), ["it's", "she", "said"]);
    assert_eq!(split("So SO so", all.with_lowercase(false)), ["So", "SO", "so"]);
    assert_eq!(split("ΟΔΟΣ İ", all), ["οδος", "i\u{307}"]);
}

#[test]
fn frequent_words_have_small_tokens_and_rare_ones_none() {
    let texts = ["b c a", "c b", "c d b"];
    let words = WordTokenizer::of(texts).unwrap();
    assert_eq!(words.tokens(), ["<pad>", "<unk>", "b", "c", "a", "d"]);
    assert_eq!(words.vocab_size(), 6);
    assert_eq!(words.encode("D, c e").unwrap(), [5, 1, 3, 1]);
    assert_eq!(words.decode(&[5, 1, 3, 0, 0]).unwrap(), "d <unk> c");
    assert_eq!(words.decode(&[]).unwrap(), "");
    let error = words.decode(&[2, 6]).unwrap_err().to_string();
    assert!(error.contains("tokens[1] is 6, but there are 6 tokens (0..=5)"), "{error}");
    let tokens = |options| WordTokenizer::with_options(texts, options).unwrap().tokens().to_vec();
    assert_eq!(tokens(WordOptions::new().with_min_count(2))[2..], ["b", "c"]);
    assert_eq!(tokens(WordOptions::new().with_max_size(5))[2..], ["b", "c", "a"]);
    // the spellings of padding and of unknown words are text like any other
    assert_eq!(split("<pad> <unk>", WordOptions::new()), ["<", "pad", ">", "<", "unk", ">"]);
    for options in [WordOptions::new().with_min_count(4), WordOptions::new().with_max_size(2)] {
        let error = WordTokenizer::with_options(texts, options).unwrap_err().to_string();
        assert!(
            error.starts_with("WordTokenizer::with_options at ")
                && error.contains("tokenizers.rs")
                && error.contains("the vocabulary has 0 of the 4 words of the texts")
                && error.contains("help: "),
            "{error}"
        );
    }
    let error = WordTokenizer::of([" ", "\n"]).unwrap_err().to_string();
    assert!(error.contains("0 of the 0 words"), "{error}");
}

#[test]
fn a_batch_of_texts_is_padded_and_has_its_lengths() {
    let cpu = device("cpu").unwrap();
    let words = WordTokenizer::of(["a b c d"]).unwrap();
    let (ids, lengths) = words.encode_batch(&["d a", "", "a b x c"], &cpu).unwrap(); // (3, 4)
    assert_eq!(ids.shape()[..], [3, 4]);
    assert_eq!(ids.to_vec::<i32>().unwrap(), [5, 2, 0, 0, 1, 0, 0, 0, 2, 3, 1, 4]);
    assert_eq!(lengths, [2, 1, 4]);
    let (ids, lengths) = words.encode_batch::<String>(&[], &cpu).unwrap(); // (0, 0)
    assert_eq!((ids.shape()[..].to_vec(), lengths), (vec![0, 0], vec![]));
}

#[test]
fn a_checkpoint_keeps_the_vocabulary() {
    let cpu = device("cpu").unwrap();
    for options in [WordOptions::new(), WordOptions::new().with_lowercase(false).with_max_size(90)]
    {
        let words = WordTokenizer::with_options([MIXED, corpus::BUILTIN], options).unwrap();
        let mut checkpoint = Checkpoint::new();
        checkpoint.put("words", &words.state()).unwrap();
        let bytes = checkpoint.to_bytes().unwrap();
        let mut restored = WordTokenizer::default();
        let checkpoint = Checkpoint::from_bytes(bytes, &cpu).unwrap();
        restored.set_state(checkpoint.part("words").unwrap()).unwrap();
        assert_eq!(restored, words);
        assert_eq!(restored.encode(MIXED).unwrap(), words.encode(MIXED).unwrap());
    }
    let mut words = WordTokenizer::of(["a b"]).unwrap();
    let before = words.clone();
    let state = |tokens: &str| {
        State::default().with("tokens", tokens).with("lowercase", true).with("punctuation", true)
    };
    for tokens in ["", "<pad>", "a b", "<unk> <pad> a", "<pad> <unk> a a", "<pad> <unk>  a  b"] {
        let error = words.set_state(&state(tokens)).unwrap_err().to_string();
        assert!(error.contains("is not a vocabulary of different words"), "{error}");
        assert_eq!(words, before, "{tokens:?}");
    }
    assert!(words.set_state(&State::default()).is_err());
    words.set_state(&state("<pad> <unk>")).unwrap();
    assert_eq!(words, WordTokenizer::default());
    assert_eq!(words.encode("a b").unwrap(), [1, 1]);
}
