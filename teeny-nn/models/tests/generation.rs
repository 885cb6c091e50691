//! Generating: options against transformers (`golden/decoders/llama`), sessions, batches, bad
//! input.

use crate::pretrained_decoders::{expected, golden, open, tokens};
use std::ops::ControlFlow;
use teeny_core::wrappers::{Faulty, Lasting, Request};
use teeny_core::{DType, DeviceRef, ErrorKind, Lazy, Result};
use teeny_models::{Decoder, Finish, Generated, GenerationConfig, OpenOptions};

fn ids(v: &[i32]) -> Vec<u32> {
    v.iter().map(|&id| id as u32).collect()
}

/// The text of `llama`, and the options of the greedy text of 32 tokens.
fn llama() -> (Decoder, Vec<u32>, GenerationConfig) {
    let text = ids(&tokens(&expected("llama")["tokens"]));
    let config = GenerationConfig::new().with_max_new_tokens(32);
    (open("llama", DType::F32), text, config)
}

fn run(decoder: &Decoder, prompts: &[Vec<u32>], config: &GenerationConfig) -> Vec<Generated> {
    decoder.generate(prompts, config, |_, _| ControlFlow::Continue(())).unwrap()
}

/// The steps of a batch with padding and of sessions are recorded and replayed: the tokens of a
/// device that does not record, and few operations that are recorded.
#[test]
fn steps_are_replayed_on_a_device_that_records() -> Result<()> {
    let of = |name: &str, device: &DeviceRef| Decoder::open(golden(name), device);
    let go = |_: usize, _: u32| ControlFlow::Continue(());
    for name in ["llama", "gpt2", "gemma3", "phi3-long"] {
        let plain = teeny_nn::device("cpu")?;
        let lazy = Lazy::new(plain.clone());
        let device: DeviceRef = lazy.clone();
        let (a, b) = (of(name, &plain)?, of(name, &device)?);
        let config = GenerationConfig::new().with_max_new_tokens(20);
        for prompts in [vec![vec![3, 5, 7]], vec![vec![3, 5, 7, 9], vec![4], vec![5, 6]]] {
            assert_eq!(b.generate(&prompts, &config, go)?, a.generate(&prompts, &config, go)?);
        }
        let (mut eager, mut replayed) = (a.session(48), b.session(48));
        let mut recorded = Vec::new();
        for prompt in [vec![3, 5, 7], vec![3, 5, 7, 2, 1], vec![9, 8]] {
            let before = lazy.counters().recorded;
            let got = replayed.generate(&prompt, &config, |_| ControlFlow::Continue(()))?;
            recorded.push(lazy.counters().recorded - before);
            let want = eager.generate(&prompt, &config, |_| ControlFlow::Continue(()))?;
            assert_eq!(got, want, "{name}");
        }
        // the prompt alone is recorded, and what chooses tokens
        let replays = recorded[1].max(recorded[2]) * 2 < recorded[0];
        assert!(replays || name == "phi3-long", "{name}: {recorded:?}");
    }
    Ok(())
}

#[test]
fn options_choose_the_tokens_of_transformers() {
    let (decoder, text, usual) = llama();
    let want = expected("llama");
    let variants = want["variants"].as_array().unwrap();
    assert!(variants.len() > 5);
    for variant in variants {
        let (options, mut config) = (&variant["options"], usual.clone());
        let size = |key: &str| options.get(key).map(|n| n.as_u64().unwrap() as usize);
        config.repetition_penalty =
            options.get("repetition_penalty").map_or(1.0, |x| x.as_f64().unwrap());
        config.no_repeat_ngram_size = size("no_repeat_ngram_size").unwrap_or(0);
        config.min_new_tokens = size("min_new_tokens").unwrap_or(0);
        config.max_new_tokens = size("max_new_tokens").unwrap_or(32);
        if let Some(tokens_) = options.get("suppress_tokens") {
            config.suppress_tokens = ids(&tokens(tokens_));
        }
        config.eos_tokens = match options.get("eos_token_id") {
            Some(one) if one.is_number() => vec![one.as_u64().unwrap() as u32],
            Some(all) => ids(&tokens(all)),
            None => Vec::new(),
        };
        let got = run(&decoder, &[text.clone(), text[..5].to_vec()], &config);
        for (i, (got, want)) in got.iter().zip(variant["tokens"].as_array().unwrap()).enumerate() {
            let mut want = ids(&tokens(want));
            if let Some(end) = want.iter().position(|id| config.eos_tokens.contains(id)) {
                want.truncate(end + 1); // padding follows
                assert_eq!(got.finish, Finish::EndToken, "{options}");
            } else {
                assert_eq!(got.finish, Finish::Length, "{options}");
            }
            // transformers counts the padding before the second text as tokens 0 of it
            let zero = |ids: &[u32]| ids.iter().position(|&id| i == 1 && id == 0);
            let same = [&got.tokens, &want].iter().filter_map(|ids| zero(ids)).min();
            let same = same.unwrap_or(want.len());
            assert_eq!(got.tokens[..same], want[..same], "{options}, text {i}");
        }
    }
}

#[test]
fn a_session_computes_the_new_tokens_only_and_changes_none() -> Result<()> {
    for name in ["llama", "gemma3", "phi3-long", "gpt2"] {
        let (decoder, text) = (open(name, DType::F32), ids(&tokens(&expected(name)["tokens"])));
        let config = GenerationConfig::new().with_max_new_tokens(3);
        let mut session = decoder.session(40);
        let mut all = text[..4].to_vec();
        for turn in 0..4 {
            let fresh = run(&decoder, std::slice::from_ref(&all), &config).remove(0);
            let same = session.generate(&all, &config, |_| ControlFlow::Continue(()))?;
            assert_eq!(same, fresh, "{name}, turn {turn}");
            all.extend(&same.tokens);
            assert_eq!(session.len(), all.len() - 1, "the last token is not computed");
            all.push(text[5 + turn]);
        }
        // another text, which has the first tokens of this one
        let other = [&all[..6], &text[..3]].concat();
        let fresh = run(&decoder, std::slice::from_ref(&other), &config).remove(0);
        assert_eq!(session.generate(&other, &config, |_| ControlFlow::Continue(()))?, fresh);
        // and the same text again
        assert_eq!(session.generate(&other, &config, |_| ControlFlow::Continue(()))?, fresh);
    }
    Ok(())
}

#[test]
fn keys_of_16_bits_choose_nearly_the_same_tokens() -> Result<()> {
    let (_, text, config) = llama();
    let options = OpenOptions::new().with_cache(DType::F16);
    let decoder = Decoder::open_with(golden("llama"), &options, crate::common::device())?;
    let mut session = decoder.session(64);
    let got = session.generate(&text, &config, |_| ControlFlow::Continue(()))?;
    let want = ids(&tokens(&expected("llama")["greedy"]));
    let same = got.tokens.iter().zip(&want).take_while(|(a, b)| a == b).count();
    assert!(same > 8, "{same} tokens are the same");
    Ok(())
}

#[test]
fn draws_repeat_with_their_seed_and_obey_their_options() {
    let (decoder, text, config) = llama();
    let all = |config: &GenerationConfig| {
        run(&decoder, std::slice::from_ref(&text), config).remove(0).tokens
    };
    let drawn = config.clone().sampled(5);
    assert_eq!(all(&drawn), all(&drawn));
    assert_ne!(all(&drawn), all(&config.clone().sampled(6)));
    let greedy = all(&config);
    for changed in [
        |c: &mut GenerationConfig| c.top_k = 1,
        |c: &mut GenerationConfig| c.temperature = 0.0,
        |c: &mut GenerationConfig| c.top_p = 1e-6,
        |c: &mut GenerationConfig| c.min_p = 1.0,
    ] {
        let mut config = drawn.clone();
        changed(&mut config);
        assert_eq!(all(&config), greedy);
    }
}

#[test]
fn a_caller_stops_a_text_and_the_others_go_on() {
    let (decoder, text, config) = llama();
    let prompts = [text.clone(), text[3..].to_vec()];
    let whole = run(&decoder, &prompts, &config);
    let mut seen = vec![Vec::new(); 2];
    let stopped = decoder.generate(&prompts, &config, |i, token| {
        seen[i].push(token);
        if i == 0 && seen[0].len() == 4 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    });
    let stopped = stopped.unwrap();
    assert_eq!((stopped[0].finish, stopped[0].tokens.len()), (Finish::Stopped, 4));
    assert_eq!(stopped[0].tokens, whole[0].tokens[..4]);
    assert_eq!(stopped[1], whole[1]);
    assert_eq!(seen, [stopped[0].tokens.clone(), stopped[1].tokens.clone()]);
}

#[test]
fn prompts_and_options_that_do_not_fit_are_errors() {
    let (decoder, text, config) = llama();
    let said = |prompts: &[Vec<u32>], config: &GenerationConfig| {
        let error = decoder.generate(prompts, config, |_, _| ControlFlow::Continue(()));
        error.unwrap_err().to_string()
    };
    let error = said(&[text.clone(), Vec::new()], &config);
    assert!(error.contains("prompt 1 has no tokens"), "{error}");
    let error = said(&[vec![3; 65]], &config);
    assert!(error.contains("the prompt has 65 tokens, the context 64"), "{error}");
    let error = said(&[vec![3], vec![3; 65]], &config);
    assert!(error.contains("prompt 1 has 65 tokens, the context 64"), "{error}");
    let error = said(&[vec![3, 40]], &config);
    assert!(error.contains("token 40 of the prompt is not below 40"), "{error}");
    for (name, changed) in [
        ("temperature is -1", (|c| c.temperature = -1.0) as fn(&mut GenerationConfig)),
        ("temperature is NaN", |c| c.temperature = f64::NAN),
        ("top_p is 0", |c| c.top_p = 0.0),
        ("min_p is 2", |c| c.min_p = 2.0),
        ("repetition_penalty is 0", |c| c.repetition_penalty = 0.0),
    ] {
        let mut config = config.clone().sampled(1);
        changed(&mut config);
        let error = said(std::slice::from_ref(&text), &config);
        assert!(error.contains(name), "{error}");
    }
    // a text ends where the context does
    let whole = run(&decoder, &[vec![3; 60]], &config).remove(0);
    assert_eq!((whole.tokens.len(), whole.finish), (5, Finish::Context));
    let exact = run(&decoder, &[vec![3; 60]], &config.clone().with_max_new_tokens(5)).remove(0);
    assert_eq!((exact.tokens, exact.finish), (whole.tokens, Finish::Length));
    // each text of a batch has the context for itself
    let prompts = [vec![3; 60], vec![5; 3], vec![7, 8]];
    let long = config.clone().with_max_new_tokens(70);
    let together = run(&decoder, &prompts, &long);
    for (prompt, got) in prompts.iter().zip(together) {
        assert_eq!(got, run(&decoder, std::slice::from_ref(prompt), &long).remove(0));
        assert_eq!((got.tokens.len(), got.finish), (65 - prompt.len(), Finish::Context));
    }
    let mut session = decoder.session(14);
    let got = session.generate(&text, &config, |_| ControlFlow::Continue(())).unwrap();
    assert_eq!((got.tokens.len(), got.finish), (3, Finish::Context), "the session holds 14");
    // a session and a completion have one prompt, which has no number
    let mut session = decoder.session(64);
    let mut alone = |prompt: &[u32]| {
        let generated = session.generate(prompt, &config, |_| ControlFlow::Continue(()));
        generated.unwrap_err()
    };
    let error = alone(&[3; 65]);
    assert!(error.to_string().contains("the prompt has 65 tokens, the context 64"), "{error}");
    assert_eq!(error.kind(), ErrorKind::Index);
    assert!(alone(&[]).to_string().contains("the prompt has no tokens"));
    assert!(alone(&[3, 40]).to_string().contains("token 40 of the prompt is not below 40"));
    let error = decoder.session(5).generate(&text, &config, |_| ControlFlow::Continue(()));
    let error = error.unwrap_err().to_string();
    assert!(error.contains("a prompt of 12 tokens does not fit a session of 5"), "{error}");
    assert!(run(&decoder, &[], &config).is_empty());
    let stops = config.clone().with_stop_strings(["."]);
    let error = said(std::slice::from_ref(&text), &stops);
    assert!(error.contains("Decoder::complete"), "{error}");
}

/// transformers takes a text or a list of them.
#[test]
fn one_stop_string_of_a_model_is_a_list_of_one() -> Result<()> {
    let folder = crate::common::Folder::copy("stop-strings", &golden("qwen3"));
    let open = |text: &str| {
        std::fs::write(folder.0.join("generation_config.json"), text).unwrap();
        Decoder::open(&folder.0, crate::common::device())
    };
    let stops = |text: &str| open(text).map(|decoder| decoder.generation.stop_strings);
    assert_eq!(stops(r#"{"stop_strings": "\nUser:"}"#)?, ["\nUser:"]);
    assert_eq!(stops(r#"{"stop_strings": ["a", "b"]}"#)?, ["a", "b"]);
    assert!(stops(r#"{"stop_strings": []}"#)?.is_empty());
    assert!(stops(r#"{"stop_strings": null}"#)?.is_empty());
    for text in [r#"{"stop_strings": 5}"#, r#"{"stop_strings": ["a", 5]}"#] {
        let error = stops(text).unwrap_err().to_string();
        assert!(error.contains("stop_strings"), "{error}");
    }
    let tokens = |text: &str| open(text).map(|decoder| decoder.generation.suppress_tokens);
    assert_eq!(tokens(r#"{"suppress_tokens": 3}"#)?, [3]);
    Ok(())
}

#[test]
fn options_of_a_model_that_are_not_supported_are_errors_when_they_are_used() -> Result<()> {
    let golden = crate::pretrained_decoders::golden("qwen3");
    let folder = crate::common::Folder::copy("unsupported", &golden);
    for (text, part) in [
        (r#"{"num_beams": 4}"#, "\"num_beams\" is 4"),
        (r#"{"bad_words_ids": [[3]]}"#, "\"bad_words_ids\" is [[3]]"),
    ] {
        std::fs::write(folder.0.join("generation_config.json"), text).unwrap();
        let decoder = Decoder::open(&folder.0, crate::common::device())?;
        let go = |_, _| ControlFlow::Continue(());
        let error = decoder.generate(&[vec![3]], &decoder.generation, go).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
        assert!(decoder.generate(&[vec![3]], &GenerationConfig::new(), go).is_ok());
    }
    Ok(())
}

#[test]
fn a_session_goes_on_after_a_device_has_failed() {
    let faulty = Faulty::new(crate::common::device());
    let device: DeviceRef = faulty.clone();
    let decoder = Decoder::open(crate::pretrained_decoders::golden("llama"), &device).unwrap();
    let text = ids(&tokens(&expected("llama")["tokens"]));
    let config = GenerationConfig::new().with_max_new_tokens(3);
    let want = run(&decoder, std::slice::from_ref(&text), &config).remove(0);
    let go = |_| ControlFlow::Continue(());
    let mut failures = 0;
    for k in (0..).step_by(7) {
        let mut session = decoder.session(32);
        session.generate(&text[..6], &config, go).unwrap();
        faulty.fail(Request::Any, k, ErrorKind::OutOfMemory, Lasting::Once);
        let result = session.generate(&text, &config, go);
        faulty.heal();
        if result.is_ok() {
            break;
        }
        failures += 1;
        assert_eq!(session.generate(&text, &config, go).unwrap(), want, "request {k}");
    }
    assert!(failures > 20, "{failures}");
}
