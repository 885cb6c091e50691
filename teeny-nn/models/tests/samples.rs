//! Files of texts as batches: what counts in the loss, and what is refused.

use crate::common::*;
use std::fs;
use teeny_core::{Result, random};
use teeny_models::{Decoder, TextSamples};
use teeny_nn::Store;
use teeny_nn::data::Dataset;
use teeny_nn::transformer::{CausalLm, CausalLmConfig};
use teeny_text::{EncodeOptions, Tokenizer};

const TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                        {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// A random decoder with the tokenizer of SmolLM, whose end token is 342, and a chat template.
fn decoder(name: &str, template: &str) -> (Folder, Decoder) {
    let folder = Folder::new(name);
    let at = |name: &str| folder.0.join(name);
    let store = Store::new(teeny_nn::device("cpu").unwrap());
    let config = CausalLmConfig::new(343, 128, 1, 2, 16, 24);
    random::with_seed(3, || CausalLm::new(&store.root(), config)).unwrap();
    store.save(at("model.safetensors")).unwrap();
    let config = r#"{"model_type": "phi3", "vocab_size": 343, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "eos_token_id": 342}"#;
    fs::write(at("config.json"), config).unwrap();
    let tokenizer = include_str!("../../text/tests/golden/tokenizers/smollm.json");
    fs::write(at("tokenizer.json"), tokenizer).unwrap();
    fs::write(at("tokenizer_config.json"), r#"{"eos_token": "<|im_end|>"}"#).unwrap();
    fs::write(at("chat_template.jinja"), template).unwrap();
    let decoder = Decoder::open(&folder.0, teeny_nn::device("cpu").unwrap()).unwrap();
    (folder, decoder)
}

/// The texts of the tokens that count, and of all tokens, of each sample.
fn texts(decoder: &Decoder, samples: &TextSamples) -> Vec<[String; 2]> {
    let text = |tokens: Vec<u32>| decoder.tokenizer().unwrap().decode(&tokens).unwrap();
    let of = |sample: &teeny_models::TextSample| {
        let pairs = sample.tokens.iter().zip(&sample.counted);
        let counted = pairs.filter(|(_, counted)| **counted).map(|(token, _)| *token).collect();
        [text(counted), text(sample.tokens.clone())]
    };
    samples.samples().iter().map(of).collect()
}

#[test]
fn answers_are_learned_and_what_is_given_is_not() -> Result<()> {
    let (folder, decoder) = decoder("samples-answers", TEMPLATE);
    let path = folder.0.join("data.jsonl");
    let lines = [
        r#"{"text": "the cat sat"}"#,
        r#"{"prompt": "the cat", "completion": " sat"}"#,
        "",
        r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}"#,
        r#"{"messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "x"},
            {"role": "user", "content": "last", "name": "Ann"}], "id": 7}"#,
        r#"{"text": "the cat sat"}"#,
        r#"{"text": "", "source": "none"}"#,
    ];
    let lines: Vec<String> = lines.iter().map(|line| line.replace('\n', " ")).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    let (samples, report) = TextSamples::open(&path, &decoder, 128)?;
    let want = [
        ["the cat sat<|im_end|>", "the cat sat<|im_end|>"],
        [" sat<|im_end|>", "the cat sat<|im_end|>"],
        [
            "b<|im_end|>d<|im_end|>",
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb<|im_end|>\n\
             <|im_start|>user\nc<|im_end|>\n<|im_start|>assistant\nd<|im_end|>\n",
        ],
        [
            "x<|im_end|>",
            "<|im_start|>system\ns<|im_end|>\n<|im_start|>assistant\nx<|im_end|>\n\
             <|im_start|>user\nlast<|im_end|>\n",
        ],
        ["the cat sat<|im_end|>", "the cat sat<|im_end|>"],
    ];
    assert_eq!(texts(&decoder, &samples), want);
    assert_eq!([report.samples, report.duplicates, report.cut, report.left_out], [5, 1, 0, 1]);
    let said = report.to_string();
    assert!(said.contains("1 twice in the file") && said.contains("1 left out"), "{said}");
    for name in ["id", "name", "source"] {
        assert!(said.contains(&format!("; {name:?} is not read")), "{said}");
    }

    // targets are the next tokens of the positions, rows are padded behind
    let batch = samples.batch(&[1, 2], 0)?;
    let width = batch.tokens.shape()[1];
    let tokens = batch.tokens.to_vec::<i32>()?;
    let (positions, targets) = (batch.positions.to_vec::<i32>()?, batch.targets.to_vec::<i32>()?);
    assert_eq!(width, samples.samples()[2].tokens.len());
    assert_eq!(positions.len(), samples.samples()[1].count() + samples.samples()[2].count());
    for (position, target) in positions.iter().zip(&targets) {
        assert_eq!(tokens[*position as usize + 1], *target);
    }
    assert!(samples.batch(&[5], 0).is_err());
    Ok(())
}

/// A line is encoded as one text: a tokenizer that puts a space before the first word of a text
/// puts none within it. Answers of weight 0 are given, not learned.
#[test]
fn a_prompt_and_its_completion_are_one_text() -> Result<()> {
    let (folder, _) = decoder("samples-one-text", TEMPLATE);
    let tokenizer = parse(include_str!("../../text/tests/golden/tokenizers/llama2.json"));
    fs::write(folder.0.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    fs::write(folder.0.join("tokenizer_config.json"), r#"{"eos_token": "</s>"}"#).unwrap();
    let decoder = Decoder::open(&folder.0, teeny_nn::device("cpu")?)?;
    let path = folder.0.join("data.jsonl");
    let lines = [
        r#"{"prompt": "def f(", "completion": "x):"}"#,
        r#"{"prompt": "a cat ", "completion": "sat"}"#,
        r#"{"messages": [{"role": "user", "content": "a"},
            {"role": "assistant", "content": "b", "weight": 0}, {"role": "user", "content": "c"},
            {"role": "assistant", "content": "d", "weight": 1}]}"#,
    ];
    fs::write(&path, lines.map(|line| line.replace('\n', " ")).join("\n")).unwrap();
    let (samples, _) = TextSamples::open(&path, &decoder, 128)?;
    let tokenizer = decoder.tokenizer()?;
    for (sample, whole) in samples.samples().iter().zip(["def f(x):", "a cat sat"]) {
        let mut want = tokenizer.encode_with(whole, &EncodeOptions::default())?.ids;
        want.extend(tokenizer.eos().filter(|eos| want.last() != Some(eos)));
        assert_eq!(sample.tokens, want, "{whole}");
        assert!(!sample.counted[0] && sample.counted[want.len() - 1]);
    }
    let [counted, _] = &texts(&decoder, &samples)[2];
    assert!(counted.contains('d') && !counted.contains('b'), "{counted}");
    Ok(())
}

#[test]
fn long_texts_are_cut_and_whole_files_are_pieces() -> Result<()> {
    let (folder, decoder) = decoder("samples-long-texts", TEMPLATE);
    let at = |name: &str| folder.0.join(name);
    let long = "the cat ".repeat(40);
    let line = format!(r#"{{"prompt": "{long}", "completion": "yes"}}"#);
    fs::write(at("data.jsonl"), format!("{line}\n{{\"text\": \"{long}\"}}\n")).unwrap();
    let (samples, report) = TextSamples::open(at("data.jsonl"), &decoder, 16)?;
    assert_eq!([report.samples, report.cut, report.left_out], [1, 2, 1], "{report}");
    assert_eq!(samples.samples()[0].tokens.len(), 16);
    fs::write(at("data.txt"), &long).unwrap();
    let (pieces, report) = TextSamples::open(at("data.txt"), &decoder, 16)?;
    let all: usize = pieces.samples().iter().map(|sample| sample.tokens.len()).sum();
    assert!(pieces.len() > 3 && report.tokens == all && report.cut == 0, "{report}");

    let (train, test) = pieces.clone().split(0.3, 5)?;
    assert_eq!(train.len() + test.len(), pieces.len());
    assert_eq!(test.len(), pieces.len() * 3 / 10);
    assert_eq!(pieces.clone().split(0.3, 5)?.1.samples(), test.samples(), "the same seed");
    assert!(pieces.clone().split(0.0, 5)?.1.is_empty());
    assert!(pieces.clone().split(1.0, 5).is_err() && pieces.split(-0.1, 5).is_err());
    Ok(())
}

#[test]
fn bad_lines_are_named_with_their_number_and_a_remedy() {
    let (folder, decoder) = decoder("samples-bad-lines", TEMPLATE);
    let path = folder.0.join("data.jsonl");
    let error = |line: &str| {
        fs::write(&path, format!("{{\"text\": \"fine\"}}\n\n{line}\n")).unwrap();
        TextSamples::open(&path, &decoder, 64).unwrap_err().to_string()
    };
    for (line, says) in [
        ("{\"text\": ", "not JSON"),
        ("[1]", "not a JSON object"),
        ("{\"txt\": \"a\"}", "the line has \"txt\""),
        ("{\"text\": 3}", "no string \"text\""),
        ("{\"prompt\": \"a\"}", "no string \"completion\""),
        ("{\"text\": \"a\\ud800b\"}", "is not a valid string: "),
        ("{\"text\": \"a\\ud83d\"}", "in \"text\""),
        ("{\"text\": \"\\udc00\"}", "surrogate"),
        ("{\"prompt\": \"a\", \"completion\": \"\\udead\"}", "in \"completion\""),
        ("{\"messages\": [{\"role\": \"assistant\", \"content\": \"\\ud800\"}]}", "in \"content\""),
        ("{\"messages\": {}}", "not a list"),
        (
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": []}]}",
            "a message has \"tool_calls\"",
        ),
        (
            "{\"messages\": [{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0.5}]}",
            "\"weight\" is 0.5",
        ),
        ("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", "nothing to learn"),
        ("{\"messages\": [{\"role\": \"assistant\"}]}", "no string \"content\""),
    ] {
        let error = error(line);
        assert!(error.contains(says) && error.contains("data.jsonl, line 3"), "{line}: {error}");
        assert!(error.contains("help"), "{error}");
    }
    fs::write(&path, b"{\"text\": \"a\"}\n\xff").unwrap();
    let error = TextSamples::open(&path, &decoder, 64).unwrap_err().to_string();
    assert!(error.contains("line 2: not UTF-8"), "{error}");
    fs::write(&path, "{\"text\": \"\"}").unwrap();
    let error = TextSamples::open(&path, &decoder, 64).unwrap_err().to_string();
    assert!(error.contains("nothing to learn"), "{error}");
    let json = folder.0.join("data.json");
    fs::write(&json, "[]").unwrap();
    assert!(TextSamples::open(&json, &decoder, 64).unwrap_err().to_string().contains(".jsonl"));
    assert!(TextSamples::open(folder.0.join("none"), &decoder, 64).is_err());
    assert!(TextSamples::open(&path, &decoder, 129).unwrap_err().to_string().contains("128"));
}

#[test]
fn a_template_that_rewrites_earlier_answers_is_refused() {
    let rewrites = "{% for m in messages %}{% if loop.last %}[{{ m.content }}]{% else %}\
                    {{ m.content }}{% endif %}{% endfor %}";
    let (folder, decoder) = decoder("samples-rewrites", rewrites);
    let path = folder.0.join("data.jsonl");
    let message = |role: &str, text: &str| format!(r#"{{"role": "{role}", "content": "{text}"}}"#);
    let line = [message("assistant", "a"), message("user", "b"), message("assistant", "c")];
    fs::write(&path, format!("{{\"messages\": [{}]}}", line.join(","))).unwrap();
    let error = TextSamples::open(&path, &decoder, 64).unwrap_err().to_string();
    assert!(error.contains("message 1") && error.contains("a line for each answer"), "{error}");
}
