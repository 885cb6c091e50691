//! Each route answers what the library computes.

use crate::common::*;
use serde_json::{Value, json};
use serve::Models;
use std::ops::ControlFlow;
use teeny_models::{ChatOptions, Decoder, GenerationConfig, Message};
use teeny_text::Tokenizer;

fn texts(values: &Value) -> Vec<f64> {
    values.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn from_base64(text: &str) -> Vec<u8> {
    const DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for group in text.as_bytes().chunks(4) {
        let digit = |b: &u8| DIGITS.find(*b as char).unwrap_or(0) as u32;
        let bits = group.iter().fold(0, |bits, b| bits << 6 | digit(b));
        let padding = group.iter().filter(|b| **b == b'=').count();
        out.extend(&bits.to_be_bytes()[1..4 - padding]);
    }
    out
}

#[test]
fn embeddings_are_those_of_the_library_as_numbers_and_as_base64() {
    let folder = encoder_folder("embeddings");
    let (model, limits) = (encoder(&folder), LIMITS);
    let server = Running::start(
        Models { encoder: Some(("embed".into(), encoder(&folder))), ..Models::default() },
        &limits,
    );
    let all = ["the cat sat", "a", "", "the dogs sat the cats sat a dog"];
    let want = model.embed_texts(&all).unwrap().to_vec::<f32>().unwrap();
    let counts = all.iter().map(|text| model.token_count(text).unwrap()).sum::<usize>();
    let got = server.post("/v1/embeddings", &json!({"input": all, "model": "embed"})).ok();
    assert_eq!((&got["object"], &got["model"]), (&json!("list"), &json!("embed")));
    assert_eq!(got["usage"], json!({"prompt_tokens": counts, "total_tokens": counts}));
    assert_eq!(got["data"].as_array().unwrap().len(), all.len());
    for (i, row) in want.chunks(12).enumerate() {
        let data = &got["data"][i];
        assert_eq!((&data["object"], &data["index"]), (&json!("embedding"), &json!(i)));
        let numbers: Vec<f32> = texts(&data["embedding"]).iter().map(|x| *x as f32).collect();
        assert_eq!(numbers, row, "{i}");
    }
    let body = json!({"input": all, "encoding_format": "base64"});
    let coded = server.post("/v1/embeddings", &body).ok();
    for (i, row) in want.chunks(12).enumerate() {
        let bytes = from_base64(coded["data"][i]["embedding"].as_str().unwrap());
        let (numbers, []) = bytes.as_chunks::<4>() else { panic!("{} bytes", bytes.len()) };
        assert!(numbers.iter().map(|b| f32::from_le_bytes(*b)).eq(row.iter().copied()), "{i}");
    }
    // one text alone, and more texts than a batch
    let alone = server.post("/v1/embeddings", &json!({"input": all[0], "user": "me"})).ok();
    let many = server.post("/v1/embeddings", &json!({"input": vec![all[0]; 40]})).ok();
    assert_eq!(many["data"].as_array().unwrap().len(), 40);
    for i in [0, 39] {
        let pairs = texts(&alone["data"][0]["embedding"]);
        let pairs = pairs.iter().zip(texts(&many["data"][i]["embedding"]));
        assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5));
    }
    assert_eq!(server.metric("serve_sentences_total"), 49.0);
    assert_eq!(server.metric("serve_batches_total"), 6.0);
}

fn complete(decoder: &Decoder, prompt: &[u32], config: &GenerationConfig) -> (String, usize) {
    let (prompts, configs) = ([prompt.to_vec()], [config.clone()]);
    let go = |_: usize, _: &str| ControlFlow::Continue(());
    let mut all = decoder.complete_each(&prompts, &configs, go).unwrap();
    let one = all.remove(0);
    (one.text, one.new_tokens)
}

#[test]
fn conversations_and_texts_are_continued_as_the_library_does() {
    let folder = decoder_folder("texts");
    let model = decoder(&folder);
    let server = Running::start(
        Models { decoder: Some(("chat".into(), decoder(&folder))), ..Models::default() },
        &LIMITS,
    );
    let parts = json!([{"type": "text", "text": "the "}, {"type": "text", "text": "cat"}]);
    let messages = json!([{"role": "system", "content": "be short"},
        {"role": "user", "content": parts}]);
    let own = [Message::system("be short"), Message::user("the cat")];
    let prompt = model.template().unwrap().render(&own, &ChatOptions::new()).unwrap();
    let prompt = model.tokenizer().unwrap().encode(&prompt).unwrap();
    let greedy = model.generation.clone().with_max_new_tokens(30);
    let (want, new) = complete(&model, &prompt, &greedy);
    let body = json!({"messages": messages, "max_tokens": 30, "model": "chat", "n": 1});
    let got = server.post("/v1/chat/completions", &body).ok();
    assert_eq!(got["object"], "chat.completion");
    let choice = json!({"index": 0, "logprobs": null, "finish_reason": "length",
        "message": {"role": "assistant", "content": want}});
    assert_eq!(got["choices"], json!([choice]));
    let (all, before) = (prompt.len() + new, prompt.len());
    let usage = json!({"prompt_tokens": before, "completion_tokens": new, "total_tokens": all});
    assert_eq!(got["usage"], usage);
    assert!(got["id"].as_str().unwrap().starts_with("chatcmpl-"));
    assert!(got["created"].as_u64().unwrap() > 1_700_000_000);
    // a stop string
    let stop = want.chars().skip(6).take(3).collect::<String>();
    let body = json!({"messages": messages, "max_completion_tokens": 30, "stop": stop});
    let got = server.post("/v1/chat/completions", &body).ok();
    assert_eq!(got["choices"][0]["finish_reason"], "stop");
    assert_eq!(got["choices"][0]["message"]["content"], want[..want.find(&stop).unwrap()]);
    // draws
    let drawn = |seed: u64, temperature: f64| {
        let body = json!({"prompt": "the cat", "max_tokens": 12, "seed": seed, "top_p": 0.9,
            "temperature": temperature, "stop": null});
        let got = server.post("/v1/completions", &body).ok();
        assert_eq!(got["object"], "text_completion");
        got["choices"][0]["text"].as_str().unwrap().to_string()
    };
    let prompt = model.tokenizer().unwrap().encode("the cat").unwrap();
    for seed in [5, 6] {
        let mut config = model.generation.clone().with_max_new_tokens(12).sampled(seed);
        (config.temperature, config.top_p) = (1.5, 0.9);
        assert_eq!(drawn(seed, 1.5), complete(&model, &prompt, &config).0);
    }
    assert_ne!(drawn(5, 1.5), drawn(6, 1.5));
    let greedy = complete(&model, &prompt, &greedy.with_max_new_tokens(12)).0;
    assert_eq!(drawn(5, 0.0), greedy, "a temperature of 0 takes the most likely token");
    let body = json!({"prompt": ["the cat"], "max_tokens": 12});
    assert_eq!(server.post("/v1/completions", &body).ok()["choices"][0]["text"], greedy);
    // without a seed, each request has another
    let body = json!({"prompt": "a", "max_tokens": 12, "temperature": 2});
    let draw = || server.post("/v1/completions", &body).ok()["choices"][0]["text"].clone();
    assert_ne!(draw(), draw());
}

#[test]
fn fields_mean_what_openai_says() {
    let (decoder_files, encoder_files) = (decoder_folder("meaning"), encoder_folder("meaning-e"));
    let template = "{{ messages[0].content }} {{ reasoning_effort or 'usual' }}";
    std::fs::write(decoder_files.at("chat_template.jinja"), template).unwrap();
    let models = Models {
        decoder: Some(("chat".into(), decoder(&decoder_files))),
        encoder: Some(("embed".into(), encoder(&encoder_files))),
    };
    let server = Running::start(models, &LIMITS);
    let text = |change: Value| {
        let mut body = json!({"prompt": "the cat", "max_tokens": 12, "temperature": 2, "seed": 5});
        for (name, value) in change.as_object().unwrap() {
            body[name] = value.clone();
        }
        server.post("/v1/completions", &body).ok()["choices"][0]["text"].clone()
    };
    let greedy = text(json!({"temperature": 0}));
    assert_ne!(text(json!({})), greedy);
    // no probability: the most likely token
    for seed in 0..5 {
        assert_eq!(text(json!({"top_p": 0, "seed": seed})), greedy);
    }
    assert_eq!(text(json!({"max_tokens": 12.0, "seed": 5.0, "stop": []})), text(json!({})));
    assert_ne!(text(json!({"max_tokens": 3.0})), text(json!({})));
    assert_ne!(text(json!({"seed": 6.0})), text(json!({})));
    // the template has the effort of the request
    let tokens = |effort: Value| {
        let messages = json!([{"role": "user", "content": "the cat"}]);
        let body = json!({"messages": messages, "max_tokens": 8, "reasoning_effort": effort});
        let got = server.post("/v1/chat/completions", &body).ok();
        (got["usage"]["prompt_tokens"].clone(), got["choices"][0]["message"]["content"].clone())
    };
    let model = decoder(&decoder_files);
    for (effort, name) in [(json!(null), "usual"), (json!("low"), "low"), (json!("high"), "high")] {
        let prompt = model.tokenizer().unwrap().encode(&format!("the cat {name}")).unwrap();
        let config = model.generation.clone().with_max_new_tokens(8);
        let want = complete(&model, &prompt, &config).0;
        assert_eq!(tokens(effort), (json!(prompt.len()), json!(want)), "{name}");
    }
}

#[test]
fn a_stream_is_the_answer_in_pieces() {
    let server = Running::both("stream", &LIMITS);
    for (path, object) in
        [("chat/completions", "chat.completion.chunk"), ("completions", "text_completion")]
    {
        let path = format!("/v1/{path}");
        for seed in 0..5 {
            let mut body = json!({"max_tokens": 40, "temperature": 1.3, "seed": seed});
            match object {
                "text_completion" => body["prompt"] = json!("the cat"),
                _ => body["messages"] = json!([{"role": "user", "content": "the cat"}]),
            }
            let whole = server.post(&path, &body).ok();
            let stop = whole["choices"][0]["message"]["content"].as_str();
            let stop = stop.or(whole["choices"][0]["text"].as_str()).unwrap();
            if seed == 4 {
                body["stop"] = json!(stop.chars().skip(9).take(2).collect::<String>());
            }
            let whole = server.post(&path, &body).ok();
            body["stream"] = json!(true);
            body["stream_options"] = json!({"include_usage": seed % 2 == 0});
            let mut events = server.post(&path, &body).events();
            assert_eq!(events.pop().unwrap(), "[DONE]");
            let mut events: Vec<Value> =
                events.iter().map(|event| serde_json::from_str(event).unwrap()).collect();
            if seed % 2 == 0 {
                let last = events.pop().unwrap();
                assert_eq!((&last["usage"], &last["choices"]), (&whole["usage"], &json!([])));
            }
            let (mut text, mut reasons) = (String::new(), Vec::new());
            for event in &events {
                assert_eq!((&event["object"], &event["id"]), (&json!(object), &events[0]["id"]));
                let choice = &event["choices"][0];
                let piece = choice["delta"]["content"].as_str().or(choice["text"].as_str());
                text += piece.unwrap_or("");
                reasons.push(choice["finish_reason"].clone());
            }
            let want = &whole["choices"][0];
            let content = want["message"]["content"].as_str().or(want["text"].as_str()).unwrap();
            assert_eq!(text, content);
            assert_eq!(reasons.pop().unwrap(), want["finish_reason"]);
            assert!(events.len() > 3 && reasons.iter().all(Value::is_null));
            if object != "text_completion" {
                assert_eq!(events[0]["choices"][0]["delta"]["role"], "assistant");
            }
        }
    }
}

#[test]
fn models_health_and_metrics_are_there() {
    let server = Running::both("others", &LIMITS);
    let models = server.send("GET", "/v1/models", "").ok();
    let names: Vec<&Value> = models["data"].as_array().unwrap().iter().map(|m| &m["id"]).collect();
    assert_eq!(names, ["chat", "embed"]);
    assert_eq!(server.send("GET", "/health", "").ok(), json!({"status": "ok"}));
    server.post("/v1/embeddings", &json!({"input": ["a cat", "a"]})).ok();
    server.post("/v1/completions", &json!({"prompt": "a", "max_tokens": 7})).ok();
    assert_eq!(server.send("GET", "/nothing", "").status, 404);
    let metrics = server.send("GET", "/metrics", "");
    assert!(metrics.head.contains("text/plain; version=0.0.4"), "{metrics:?}");
    for line in [
        "serve_requests_total{route=\"/v1/embeddings\",status=\"200\"} 1",
        "serve_requests_total{route=\"/health\",status=\"200\"} 1",
        "serve_requests_total{route=\"other\",status=\"404\"} 1",
        "serve_queue_length{kind=\"embeddings\"} 0",
        "serve_queue_length{kind=\"texts\"} 0",
        "serve_sentences_total{kind=\"embeddings\"} 2",
        "serve_prompt_tokens_total{kind=\"embeddings\"} 7",
        "serve_new_tokens_total{kind=\"texts\"} 7",
        "serve_request_seconds_bucket{kind=\"texts\",le=\"+Inf\"} 1",
        "serve_request_seconds_count{kind=\"texts\"} 1",
        "# TYPE serve_request_seconds histogram",
    ] {
        assert!(metrics.body.lines().any(|other| other == line), "{line}\n{}", metrics.body);
    }
    // one connection for several requests
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    for _ in 0..3 {
        use std::io::Write;
        write!(stream, "GET /health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        assert_eq!(Reply::read(&mut stream).unwrap().status, 200);
    }
}
