//! Texts in and out of pretrained models, with the tokenizers of `golden/tokenizers`.

use crate::common::*;
use std::fs;
use std::ops::ControlFlow;
use std::path::PathBuf;
use teeny_core::{Result, Tensor, random};
use teeny_formats::Mapping;
use teeny_models::{Completion, Decoder, Encoder, Finish, GenerationConfig, OpenOptions};
use teeny_nn::Store;
use teeny_nn::transformer::{
    self, CausalLm, CausalLmConfig, EncoderConfig, EncoderInputs, TransformerConfig,
};
use teeny_text::{EncodeOptions, Tokenizer};

fn tokenizer(name: &str) -> PathBuf {
    let golden = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../text/tests/golden/tokenizers");
    golden.join(format!("{name}.json"))
}

/// A folder with a random decoder for 343 tokens, under the names of Phi 3, which this crate uses,
/// and the tokenizer of SmolLM.
fn decoder_folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    let store = Store::new(device());
    random::with_seed(3, || {
        let config = CausalLmConfig::new(343, 96, 2, 4, 32, 48);
        CausalLm::new(&store.root(), config).unwrap();
        // larger weights than a trained model's
        for param in store.all() {
            param.set(&param.value().mul(6.0).unwrap()).unwrap();
        }
    });
    store.save(folder.0.join("model.safetensors")).unwrap();
    let config = r#"{"model_type": "phi3", "vocab_size": 343, "hidden_size": 32,
        "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "max_position_embeddings": 96, "rms_norm_eps": 1e-6, "eos_token_id": [342]}"#;
    fs::write(folder.0.join("config.json"), config).unwrap();
    fs::copy(tokenizer("smollm"), folder.0.join("tokenizer.json")).unwrap();
    folder
}

fn complete(decoder: &Decoder, prompt: &str, config: &GenerationConfig) -> (Completion, String) {
    let mut streamed = String::new();
    let completion = decoder.complete(prompt, config, |piece| {
        streamed += piece;
        ControlFlow::Continue(())
    });
    (completion.unwrap(), streamed)
}

#[test]
fn a_text_is_continued_in_whole_characters_and_ends_at_stop_strings() -> Result<()> {
    let folder = decoder_folder("texts");
    let decoder = Decoder::open(&folder.0, device())?;
    assert_eq!(decoder.generation.eos_tokens, [342]);
    let config = decoder.generation.clone().with_max_new_tokens(60);
    let (whole, streamed) = complete(&decoder, "the cat", &config);
    assert_eq!(whole.text, streamed);
    let tokenizer = decoder.tokenizer()?;
    let prompt = tokenizer.encode("the cat")?;
    assert_eq!(whole.prompt_tokens, prompt.len());
    let tokens = decoder.generate(&[prompt], &config, |_, _| ControlFlow::Continue(()))?;
    assert_eq!(whole.text, tokenizer.decode_with(&tokens[0].tokens, true)?);
    assert_eq!((whole.finish, whole.new_tokens), (tokens[0].finish, tokens[0].tokens.len()));
    // a stop string from the middle of the text, which is streamed up to there
    let chars: Vec<char> = whole.text.chars().collect();
    assert!(chars.len() > 20, "{:?}", whole.text);
    let stop: String = chars[11..15].iter().collect();
    let before = &whole.text[..whole.text.find(&stop).unwrap()];
    let stops = config.clone().with_stop_strings(["nothing".to_string(), stop]);
    let (stopped, streamed) = complete(&decoder, "the cat", &stops);
    assert_eq!((stopped.text.as_str(), stopped.finish), (before, Finish::StopString));
    assert_eq!(streamed, before);
    // the beginning of a stop string that does not come is not lost
    let end: String = chars[chars.len() - 2..].iter().collect();
    let stops = config.clone().with_stop_strings([end + "never"]);
    assert_eq!(complete(&decoder, "the cat", &stops).0.text, whole.text);
    // a special token may be a stop string, though it is not text
    let end = decoder.tokenizer()?.text_of(342).unwrap().to_string();
    let mut ends = config.clone().with_stop_strings([end.clone()]);
    ends.eos_tokens.clear();
    ends.suppress_tokens = (0..342).collect();
    let (stopped, _) = complete(&decoder, "the cat", &ends);
    assert_eq!((stopped.text.as_str(), stopped.finish), ("", Finish::StopString), "{end}");
    // text that is held for one stop string stands before a token that spells another
    let texts = |id: &u32| tokenizer.decode(&[*id]).unwrap();
    let ids = &tokens[0].tokens;
    let plain = |id: &u32| tokenizer.text_of(*id).is_some_and(|text| text == texts(id));
    let at = (1..ids.len()).find(|&i| {
        plain(&ids[i - 1])
            && plain(&ids[i])
            && !ids[..i].iter().any(|id| texts(id).contains(&texts(&ids[i])))
    });
    let at = at.expect("a token that stands for its characters, after another such");
    let (held, stop) = (texts(&ids[at - 1]), texts(&ids[at]));
    let before = tokenizer.decode(&ids[..at])?;
    let stops = config.clone().with_stop_strings([held + "never", stop]);
    let (stopped, streamed) = complete(&decoder, "the cat", &stops);
    assert_eq!((stopped.text.as_str(), streamed.as_str()), (before.as_str(), before.as_str()));
    // the caller stops
    let mut pieces = 0;
    let stopped = decoder.complete("the cat", &config, |_| {
        pieces += 1;
        if pieces == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    assert_eq!((pieces, stopped.finish), (3, Finish::Stopped));
    assert!(whole.text.starts_with(&stopped.text));
    Ok(())
}

#[test]
fn an_id_that_the_tokenizer_lacks_has_no_text() -> Result<()> {
    let folder = decoder_folder("padded");
    let small = fs::read_to_string(folder.0.join("tokenizer.json")).unwrap();
    let mut small: serde_json::Value = serde_json::from_str(&small).unwrap();
    // the model has a larger vocabulary than the tokenizer
    let vocab = small["model"]["vocab"].as_object_mut().unwrap();
    let dropped: Vec<u32> = (330..342).collect();
    vocab.retain(|_, id| !dropped.contains(&(id.as_u64().unwrap() as u32)));
    let kept: Vec<String> = vocab.keys().cloned().collect();
    let merges = small["model"]["merges"].as_array_mut().unwrap();
    merges.retain(|merge| {
        let merge = merge.as_str().map(str::to_string).unwrap_or_else(|| {
            let parts = merge.as_array().unwrap();
            format!("{} {}", parts[0].as_str().unwrap(), parts[1].as_str().unwrap())
        });
        kept.contains(&merge.replacen(' ', "", 1))
    });
    fs::write(folder.0.join("tokenizer.json"), small.to_string()).unwrap();
    let decoder = Decoder::open(&folder.0, device())?;
    let mut config = decoder.generation.clone().with_max_new_tokens(4);
    config.suppress_tokens = (0..330).chain([342]).collect();
    let (nothing, _) = complete(&decoder, "the cat", &config);
    assert_eq!((nothing.text.as_str(), nothing.new_tokens), ("", 4));
    let prompts = vec![decoder.tokenizer()?.encode("the cat")?; 2];
    let usual = decoder.generation.clone().with_max_new_tokens(4);
    let both = decoder
        .complete_each(&prompts, &[config, usual.clone()], |_, _| ControlFlow::Continue(()))?;
    assert_eq!(both[0].text, "");
    assert_eq!(both[1], complete(&decoder, "the cat", &usual).0);
    Ok(())
}

#[test]
fn texts_of_a_batch_with_options_of_their_own_are_those_they_have_alone() -> Result<()> {
    let folder = decoder_folder("each");
    let decoder = Decoder::open(&folder.0, device())?;
    let greedy = decoder.generation.clone().with_max_new_tokens(24);
    let whole = complete(&decoder, "the cat", &greedy).0.text;
    let chars: Vec<char> = whole.chars().collect();
    let drawn = |seed, temperature| {
        let mut config = greedy.clone().sampled(seed);
        config.temperature = temperature;
        config
    };
    let mut mixed = drawn(7, 0.7).with_max_new_tokens(9);
    (mixed.top_p, mixed.repetition_penalty) = (0.9, 1.3);
    let cases = [
        ("the cat", greedy.clone()),
        ("a", drawn(5, 1.0)),
        ("the cat sat on the mat, and the dog", drawn(6, 1.5)),
        ("a", drawn(6, 1.0)),
        ("the cat", greedy.clone().with_stop_strings([chars[5..8].iter().collect::<String>()])),
        ("on the", mixed),
        ("the", greedy.clone().with_max_new_tokens(1)),
        ("the", greedy.clone().with_max_new_tokens(0)),
    ];
    let encode = |text: &str| decoder.tokenizer()?.encode(text);
    let prompts = cases.iter().map(|(text, _)| encode(text)).collect::<Result<Vec<_>>>()?;
    let configs: Vec<_> = cases.iter().map(|(_, config)| config.clone()).collect();
    let (mut streamed, mut calls) = (vec![String::new(); cases.len()], vec![0; cases.len()]);
    let got = decoder.complete_each(&prompts, &configs, |i, piece| {
        streamed[i] += piece;
        calls[i] += 1;
        ControlFlow::Continue(())
    })?;
    for (i, (text, config)) in cases.iter().enumerate() {
        assert_eq!(got[i], complete(&decoder, text, config).0, "{i}");
        assert_eq!(got[i].text, streamed[i], "{i}");
    }
    assert!(got[1].text != got[3].text && got[4].finish == Finish::StopString);
    assert!(calls[0] >= got[0].new_tokens, "a piece of each token, even if it is empty");
    // one is stopped after its second token, and the others go on
    calls.fill(0);
    let stopped = decoder.complete_each(&prompts, &configs, |i, _| {
        calls[i] += 1;
        if i == 2 && calls[2] == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    })?;
    assert_eq!((stopped[2].finish, stopped[2].new_tokens), (Finish::Stopped, 2));
    assert!((0..cases.len()).all(|i| i == 2 || stopped[i] == got[i]));
    // bad options of one text
    let all = |prompts: &[Vec<u32>], configs: &[GenerationConfig]| {
        let result = decoder.complete_each(prompts, configs, |_, _| ControlFlow::Continue(()));
        result.map_err(|error| error.to_string())
    };
    let mut bad = configs.clone();
    bad[3].temperature = -1.0;
    assert!(all(&prompts, &bad).unwrap_err().contains("temperature is -1"));
    let error = all(&prompts, &configs[1..]).unwrap_err();
    assert!(error.contains("8 prompts, but 7 configs"), "{error}");
    assert!(all(&[Vec::new()], &configs[..1]).unwrap_err().contains("the prompt has no tokens"));
    assert_eq!(all(&[], &[]), Ok(Vec::new()));
    Ok(())
}

#[test]
fn a_short_text_has_its_own_rotations_beside_a_long_one() -> Result<()> {
    let folder = Folder::copy("each-long", &crate::pretrained_decoders::golden("phi3-long"));
    fs::copy(tokenizer("smollm"), folder.0.join("tokenizer.json")).unwrap();
    let decoder = Decoder::open(&folder.0, device())?;
    let want = crate::pretrained_decoders::expected("phi3-long");
    let text: Vec<u32> =
        crate::pretrained_decoders::tokens(&want["tokens"]).iter().map(|&id| id as u32).collect();
    let config = GenerationConfig::new().with_max_new_tokens(20);
    let prompts = [text[..3].to_vec(), [&text[..], &text[..]].concat(), text[2..7].to_vec()];
    let configs = vec![config; 3];
    let mut calls = [0; 3];
    let all = decoder.complete_each(&prompts, &configs, |i, _| {
        calls[i] += 1;
        ControlFlow::Continue(())
    })?;
    for (i, prompt) in prompts.iter().enumerate() {
        let go = |_: usize, _: &str| ControlFlow::Continue(());
        let alone = decoder.complete_each(std::slice::from_ref(prompt), &configs[i..=i], go)?;
        assert_eq!(all[i], alone[0], "text {i}");
        assert!(calls[i] >= 20);
        let go = |_: usize, _: u32| ControlFlow::Continue(());
        let generated = decoder.generate(&prompts, &configs[0], go)?;
        let alone = decoder.generate(std::slice::from_ref(prompt), &configs[0], go)?;
        assert_eq!(generated[i], alone[0], "text {i}");
    }
    Ok(())
}

#[test]
#[cfg(feature = "chat")]
fn a_conversation_is_that_of_its_template() -> Result<()> {
    use teeny_models::{ChatOptions, Message};
    let folder = decoder_folder("conversation");
    let template = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n\
                    {% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
    let without = Decoder::open(&folder.0, device())?.chat(96, Vec::new()).err().unwrap();
    assert!(without.to_string().contains("no chat template"), "{without}");
    fs::write(folder.0.join("chat_template.jinja"), template).unwrap();
    let decoder = Decoder::open(&folder.0, device())?;
    let config = decoder.generation.clone().with_max_new_tokens(4);
    let mut chat = decoder.chat(96, vec![Message::system("be")])?;
    for (turn, text) in ["a", "the", "cat"].into_iter().enumerate() {
        let mut messages = chat.messages.clone();
        messages.push(Message::user(text));
        let answer = chat.send(text, &config, |_| ControlFlow::Continue(()))?;
        let prompt = decoder.template()?.render(&messages, &ChatOptions::new())?;
        let prompt = decoder.tokenizer()?.encode(&prompt)?;
        let fresh = decoder
            .generate(std::slice::from_ref(&prompt), &config, |_, _| ControlFlow::Continue(()))?;
        let want = decoder.tokenizer()?.decode_with(&fresh[0].tokens, true)?;
        assert_eq!(answer.prompt_tokens, prompt.len());
        assert_eq!(answer.text, want, "turn {turn}");
        messages.push(Message::assistant(want));
        assert_eq!(chat.messages, messages);
    }
    let before = chat.messages.clone();
    let long = "word ".repeat(100);
    let error = chat.send(&long, &config, |_| ControlFlow::Continue(())).unwrap_err().to_string();
    assert!(error.contains("the context") || error.contains("session"), "{error}");
    assert_eq!(chat.messages, before);
    Ok(())
}

/// A folder with a random BERT of this crate's names, and the mapping to BERT's names.
pub fn encoder_folder(name: &str) -> (Folder, Mapping, Store, transformer::Encoder) {
    let folder = Folder::new(name);
    let store = Store::new(device());
    let layer = TransformerConfig::new(16, 2, 24)
        .with_activation(teeny_nn::Activation::Gelu)
        .with_norm_eps(1e-12);
    let config = EncoderConfig::new(260, 24, 2, layer);
    let model = random::with_seed(4, || transformer::Encoder::new(&store.root(), config)).unwrap();
    store.set_training(false);
    store.save(folder.0.join("model.safetensors")).unwrap();
    let config = r#"{"model_type": "bert", "vocab_size": 260, "hidden_size": 16,
        "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2,
        "max_position_embeddings": 24}"#;
    fs::write(folder.0.join("config.json"), config).unwrap();
    fs::write(folder.0.join("sentence_bert_config.json"), r#"{"max_seq_length": 20}"#).unwrap();
    let prompts = r#"{"prompts": {"query": "find: "}, "default_prompt_name": null}"#;
    fs::write(folder.0.join("config_sentence_transformers.json"), prompts).unwrap();
    fs::copy(tokenizer("bert"), folder.0.join("tokenizer.json")).unwrap();
    let mut mapping = Mapping::new()
        .rename("embeddings.word.*", "embeddings.word_embeddings.*")
        .rename("embeddings.position.*", "embeddings.position_embeddings.*")
        .rename("embeddings.type.*", "embeddings.token_type_embeddings.*")
        .rename("embeddings.norm.*", "embeddings.LayerNorm.*");
    for end in ["weight", "bias"] {
        let parts = ["query", "key", "value"];
        let parts = parts.map(|name| format!("encoder.layer.*.attention.self.{name}.{end}"));
        let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
        mapping = mapping.split(&format!("layers.*.self_attn.in_proj_{end}"), &parts, &[16; 3]);
    }
    for (ours, theirs) in [
        ("self_attn.out_proj", "attention.output.dense"),
        ("norm1", "attention.output.LayerNorm"),
        ("linear1", "intermediate.dense"),
        ("linear2", "output.dense"),
        ("norm2", "output.LayerNorm"),
    ] {
        mapping =
            mapping.rename(&format!("layers.*.{ours}.*"), &format!("encoder.layer.*.{theirs}.*"));
    }
    (folder, mapping, store, model)
}

#[test]
fn texts_are_embedded_in_batches_as_each_alone() -> Result<()> {
    let (folder, mapping, store, model) = encoder_folder("embeddings");
    let options = OpenOptions::new().with_mapping(mapping);
    let encoder = Encoder::open_with(&folder.0, &options, device())?;
    assert_eq!((encoder.max_length(), encoder.prompt("query")), (20, Some("find: ")));
    assert_eq!(encoder.prompt("passage"), None);
    assert!(Encoder::knows(&folder.0) && !Encoder::knows(folder.0.join("nothing")));
    assert!(!Encoder::knows(decoder_folder("no_encoder").0.as_path()));
    // more than a batch, of many lengths, some too long
    let texts: Vec<String> =
        (0..70).map(|i| "the cat sat on a mat ".repeat(1 + i * 7 % 9)).collect();
    let texts: Vec<&str> =
        texts.iter().enumerate().map(|(i, text)| &text[..text.len().min(5 + i % 40)]).collect();
    let texts = [&texts[..], &["", "\u{e9}", "the ".repeat(50).leak()]].concat();
    let all = encoder.embed_texts(&texts)?;
    assert_eq!(all.shape()[..], [73, 16]);
    let rows = values(&all);
    for (i, text) in texts.iter().enumerate() {
        let options = EncodeOptions::default().with_max_length(20);
        let ids = encoder.tokenizer()?.encode_with(*text, &options)?.ids;
        assert!(ids.len() <= 20);
        assert_eq!(encoder.token_count(text)?, ids.len());
        let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        let like = encoder.store.all()[0].value();
        let tokens = Tensor::new([ids], &like)?;
        let alone = encoder.embed(&EncoderInputs::new(&tokens))?;
        assert_close(&rows[16 * i..][..16], &values(&alone), 1e-5, text);
        // the model that was saved
        if i % 10 == 0 {
            let states = model.hidden(&EncoderInputs::new(&tokens.to(store.device())?));
            let mean = states.and_then(|states| states.mean(1))?;
            assert_close(&values(&mean), &values(&alone), 1e-5, text);
        }
    }
    assert_eq!(encoder.embed_texts(&[])?.shape()[..], [0, 16]);
    // a default instruction comes before each text
    let prompts = r#"{"prompts": {"q": "the "}, "default_prompt_name": "q"}"#;
    fs::write(folder.0.join("config_sentence_transformers.json"), prompts).unwrap();
    let lower = r#"{"max_seq_length": 20, "do_lower_case": true}"#;
    fs::write(folder.0.join("sentence_bert_config.json"), lower).unwrap();
    let prompted = Encoder::open_with(&folder.0, &options, device())?;
    let (with, without) = (prompted.embed_texts(&["CAT"])?, encoder.embed_texts(&["the cat"])?);
    assert_eq!(values(&with), values(&without));
    let error = encoder.classify_texts(&["a"]).unwrap_err().to_string();
    assert!(error.contains("no head for classes of texts"), "{error}");
    Ok(())
}

/// As sentence-transformers' `Pooling` with `include_prompt` false: the first token and the tokens
/// of the instruction are not in the mean; and its files of other names with the length of texts.
#[test]
fn an_instruction_is_left_out_of_the_mean() -> Result<()> {
    let (folder, mapping, ..) = encoder_folder("left-out");
    let options = OpenOptions::new().with_mapping(mapping);
    let at = |name: &str| folder.0.join(name);
    let prompts = r#"{"prompts": {"q": "find: "}, "default_prompt_name": "q"}"#;
    fs::write(at("config_sentence_transformers.json"), prompts).unwrap();
    let modules =
        r#"[{"type": "st.Transformer", "path": ""}, {"type": "st.Pooling", "path": "1"}]"#;
    fs::write(at("modules.json"), modules).unwrap();
    fs::create_dir_all(at("1")).unwrap();
    fs::rename(at("sentence_bert_config.json"), at("sentence_roberta_config.json")).unwrap();
    let pooling = r#"{"word_embedding_dimension": 16, "pooling_mode": "mean",
        "include_prompt": false}"#;
    fs::write(at("1/config.json"), pooling).unwrap();
    let encoder = Encoder::open_with(&folder.0, &options, device())?;
    assert_eq!(encoder.max_length(), 20, "sentence_roberta_config.json is read");
    assert!(!encoder.pooling.include_prompt);
    let texts = ["the cat", "a mat", "the cat sat on a mat"];
    let rows = values(&encoder.embed_texts(&texts)?);
    let tokenizer = encoder.tokenizer()?;
    let skipped = tokenizer.encode_with("find: ", &EncodeOptions::default())?.ids.len() - 1;
    assert!(skipped > 1);
    for (i, text) in texts.iter().enumerate() {
        let prompted = format!("find: {text}");
        let ids = tokenizer.encode_with(prompted.as_str(), &EncodeOptions::default())?.ids;
        let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
        let tokens = Tensor::new([ids], encoder.store.all()[0].value())?;
        let states = encoder.model.hidden(&EncoderInputs::new(&tokens))?.at(0, 0)?;
        let mean = states.slice(0, skipped as isize..)?.mean(0)?;
        assert_close(&rows[16 * i..][..16], &values(&mean), 1e-5, text);
    }
    fs::write(at("1/config.json"), r#"{"include_prompt": "no"}"#).unwrap();
    let error = Encoder::open_with(&folder.0, &options, device()).err().unwrap().to_string();
    assert!(error.contains("include_prompt"), "{error}");
    Ok(())
}

#[test]
fn a_model_without_a_known_tokenizer_says_so_when_it_is_needed() -> Result<()> {
    let folder = decoder_folder("no-tokenizer");
    fs::remove_file(folder.0.join("tokenizer.json")).unwrap();
    let decoder = Decoder::open(&folder.0, device())?;
    let go = |_: &str| ControlFlow::Continue(());
    let error = decoder.complete("a", &decoder.generation, go).unwrap_err().to_string();
    assert!(error.contains("no tokenizer"), "{error}");
    fs::write(folder.0.join("tokenizer.json"), r#"{"model": {"type": "Other"}}"#).unwrap();
    let decoder = Decoder::open(&folder.0, device())?;
    let error = decoder.complete("a", &decoder.generation, go).unwrap_err().to_string();
    assert!(error.contains("Other"), "{error}");
    Ok(())
}

#[test]
fn threads_share_a_model_and_compute_what_one_computes() -> Result<()> {
    let folder = decoder_folder("threads");
    let decoder = Decoder::open(&folder.0, device())?;
    let (encoders, mapping, ..) = encoder_folder("threads-encoder");
    let options = OpenOptions::new().with_mapping(mapping);
    let encoder = Encoder::open_with(&encoders.0, &options, device())?;
    let config = decoder.generation.clone().with_max_new_tokens(12);
    let prompts = ["the", "a cat", "sat on", "a mat and the"];
    let continued = |text: &str| complete(&decoder, text, &config).0.text;
    let embedded = |text: &str| values(&encoder.embed_texts(&[text]).unwrap());
    let alone: Vec<_> = prompts.map(|text| (continued(text), embedded(text))).into();
    std::thread::scope(|scope| {
        let (continued, embedded) = (&continued, &embedded);
        let threads: Vec<_> = (0..3 * prompts.len())
            .map(|i| {
                let text = prompts[i % prompts.len()];
                scope.spawn(move || (continued(text), embedded(text)))
            })
            .collect();
        for (i, thread) in threads.into_iter().enumerate() {
            assert_eq!(thread.join().unwrap(), alone[i % prompts.len()]);
        }
    });
    Ok(())
}
