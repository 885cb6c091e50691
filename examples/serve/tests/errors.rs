//! Requests that are refused: the status, the field and the code of each.

use crate::common::*;
use serde_json::{Value, json};
use serve::{Limits, Models};
use std::io::Write;

const CHAT: &str = "/v1/chat/completions";
const TEXT: &str = "/v1/completions";
const EMBED: &str = "/v1/embeddings";

#[track_caller]
fn refused(reply: &Reply, status: u16, param: Option<&str>, part: &str) {
    assert_eq!(reply.status, status, "{reply:?}");
    let error = &reply.json()["error"];
    assert_eq!(error["param"], json!(param), "{error}");
    assert!(error["message"].as_str().unwrap().contains(part), "{error}");
    let kind = match status {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    assert_eq!(error["type"], kind, "{error}");
    assert!(error.get("code").is_some(), "{error}");
}

#[test]
fn wrong_fields_are_refused_by_their_names() {
    let server = Running::both("fields", &LIMITS);
    let base = |path: &str| match path {
        CHAT => json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 2}),
        TEXT => json!({"prompt": "a", "max_tokens": 2}),
        _ => json!({"input": "a"}),
    };
    let many = json!(vec!["a"; 2049]);
    let long = json!("word ".repeat(CONTEXT));
    let cases: Vec<(&str, &str, Value, &str)> = vec![
        (EMBED, "input", json!(null), "string"),
        (EMBED, "input", json!([]), "1 to 2048"),
        (EMBED, "input", many, "1 to 2048"),
        (EMBED, "input", json!([1, 2]), "strings"),
        (EMBED, "input", json!({"text": "a"}), "strings"),
        (EMBED, "encoding_format", json!("hex"), "base64"),
        (EMBED, "dimensions", json!(3), "not supported"),
        (EMBED, "model", json!(3), "a string"),
        (CHAT, "messages", json!("hello"), "a list"),
        (CHAT, "messages", json!([]), "at least one"),
        (CHAT, "messages[1]", json!([{"role": "user", "content": "a"}, 5]), "an object"),
        (CHAT, "messages[0].role", json!([{"content": "a"}]), "a string"),
        (CHAT, "messages[0].content", json!([{"role": "user"}]), "a string"),
        (
            CHAT,
            "messages[0].content",
            json!([{"role": "user", "content": [{"type": "image_url"}]}]),
            "parts",
        ),
        (
            CHAT,
            "messages[0].content",
            json!([{"role": "user", "content": [{"type": "text", "text": "a", "x": 1}]}]),
            "parts",
        ),
        (
            CHAT,
            "messages[0].name",
            json!([{"role": "user", "content": "a", "name": "me"}]),
            "not supported",
        ),
        (
            CHAT,
            "messages[0].user",
            json!([{"role": "user", "content": "a", "user": "me"}]),
            "not supported",
        ),
        (CHAT, "messages", json!([{"role": "tool", "content": "a"}]), "no tools here"),
        (CHAT, "messages", json!([{"role": "user", "content": long}]), "the context 8192"),
        (TEXT, "prompt", long.clone(), "the context 8192"),
        (TEXT, "prompt", json!(""), "no tokens"),
        (TEXT, "prompt", json!(["a", "b"]), "one string"),
        (TEXT, "prompt", json!([1, 2]), "one string"),
        (TEXT, "max_tokens", json!(0), "above 0"),
        (TEXT, "max_tokens", json!(-1), "above 0"),
        (TEXT, "max_tokens", json!(1.5), "an integer"),
        (TEXT, "max_completion_tokens", json!(3), "one of them"),
        (TEXT, "temperature", json!(-0.5), "0 to 2"),
        (TEXT, "temperature", json!(2.5), "0 to 2"),
        (TEXT, "temperature", json!("hot"), "a number"),
        (TEXT, "max_tokens", json!(0.0), "above 0"),
        (TEXT, "max_tokens", json!(1e300), "an integer"),
        (TEXT, "max_tokens", json!("2"), "an integer"),
        (TEXT, "top_p", json!(-0.1), "0 to 1"),
        (TEXT, "top_p", json!(1.5), "0 to 1"),
        (TEXT, "seed", json!(1.5), "an integer"),
        (TEXT, "stop", json!(""), "none of them empty"),
        (TEXT, "stop", json!(["a", ""]), "none of them empty"),
        (TEXT, "stop", json!(vec!["a"; 17]), "up to 16"),
        (TEXT, "stop", json!([5]), "strings"),
        (TEXT, "stream", json!("yes"), "true or false"),
        (TEXT, "stream_options", json!(true), "an object"),
        (TEXT, "stream_options.include_usage", json!({"include_usage": 1}), "true or false"),
        (TEXT, "stream_options.more", json!({"more": 1}), "not supported"),
        (TEXT, "n", json!(2), "not supported"),
        (TEXT, "best_of", json!(2), "not supported"),
        (TEXT, "echo", json!(true), "not supported"),
        (TEXT, "suffix", json!("."), "not supported"),
        (TEXT, "logprobs", json!(0), "not supported"),
        (CHAT, "logprobs", json!(true), "not supported"),
        (CHAT, "tools", json!([{"type": "function"}]), "not supported"),
        (CHAT, "tool_choice", json!("auto"), "not supported"),
        (CHAT, "frequency_penalty", json!(0.5), "not supported"),
        (CHAT, "logit_bias", json!({"5": 100}), "not supported"),
        (CHAT, "response_format", json!({"type": "json_object"}), "not supported"),
        (CHAT, "temprature", json!(0.5), "not supported"),
        (CHAT, "logit_bias", json!({"5": 0, "6": -1}), "not supported"),
        (CHAT, "modalities", json!(["text", "audio"]), "not supported"),
        (CHAT, "audio", json!({"voice": "alloy", "format": "wav"}), "not supported"),
        (CHAT, "web_search_options", json!({}), "not supported"),
        (CHAT, "verbosity", json!("low"), "not supported"),
        (CHAT, "reasoning_effort", json!("most"), "none, minimal, low, medium, high, xhigh"),
        (CHAT, "reasoning_effort", json!(3), "none, minimal, low, medium, high, xhigh"),
        (TEXT, "reasoning_effort", json!("low"), "not supported"),
        (CHAT, "top_logprobs", json!(2), "not supported"),
        (CHAT, "functions", json!([{"name": "f"}]), "not supported"),
        (CHAT, "n", json!(1.5), "not supported"),
        (
            CHAT,
            "stream_options.include_obfuscation",
            json!({"include_obfuscation": true}),
            "not supported",
        ),
        (
            CHAT,
            "messages[0].annotations",
            json!([{"role": "assistant", "content": "a", "annotations": [{"type": "url"}]}]),
            "not supported",
        ),
        (
            CHAT,
            "messages[0].tool_calls",
            json!([{"role": "assistant", "content": "a", "tool_calls": [{"id": "1"}]}]),
            "not supported",
        ),
        (CHAT, "messages[0].n", json!([{"role": "user", "content": "a", "n": 1}]), "not supported"),
    ];
    for (path, param, value, part) in cases {
        let mut body = base(path);
        let field = param.split(['[', '.']).next().unwrap();
        body[field] = value;
        refused(&server.post(path, &body), 400, Some(param), part);
    }
    // values that change nothing are accepted
    for (path, field, value) in [
        (TEXT, "n", json!(1)),
        (TEXT, "suffix", json!(null)),
        (TEXT, "echo", json!(false)),
        (TEXT, "seed", json!(-5)),
        (CHAT, "presence_penalty", json!(0)),
        (CHAT, "tools", json!([])),
        (CHAT, "logit_bias", json!({})),
        (CHAT, "response_format", json!({"type": "text"})),
        (CHAT, "user", json!("me")),
        (CHAT, "temperature", json!(null)),
        (EMBED, "dimensions", json!(null)),
        (TEXT, "best_of", json!(1.0)),
        (TEXT, "echo", json!(null)),
        (TEXT, "logprobs", json!(null)),
        (TEXT, "max_tokens", json!(2.0)),
        (CHAT, "max_completion_tokens", json!(null)),
        (TEXT, "seed", json!(7.0)),
        (TEXT, "stop", json!([])),
        (TEXT, "stop", json!(null)),
        (TEXT, "stream_options", json!({"include_usage": false, "include_obfuscation": false})),
        (TEXT, "suffix", json!("")),
        (TEXT, "temperature", json!(0)),
        (TEXT, "top_p", json!(0)),
        (TEXT, "top_p", json!(0.0)),
        (TEXT, "top_p", json!(1)),
        (CHAT, "audio", json!(null)),
        (CHAT, "frequency_penalty", json!(0.0)),
        (CHAT, "function_call", json!("none")),
        (CHAT, "functions", json!([])),
        (CHAT, "logit_bias", json!({"5": 0, "6": 0.0})),
        (CHAT, "logprobs", json!(false)),
        (CHAT, "metadata", json!({"a": "b"})),
        (CHAT, "modalities", json!(["text"])),
        (CHAT, "n", json!(1.0)),
        (CHAT, "parallel_tool_calls", json!(true)),
        (CHAT, "parallel_tool_calls", json!(false)),
        (CHAT, "prediction", json!({"type": "content", "content": "the cat"})),
        (CHAT, "prompt_cache_key", json!("x")),
        (CHAT, "prompt_cache_retention", json!("24h")),
        (CHAT, "reasoning_effort", json!("minimal")),
        (CHAT, "reasoning_effort", json!("high")),
        (CHAT, "safety_identifier", json!("x")),
        (CHAT, "service_tier", json!("auto")),
        (CHAT, "store", json!(true)),
        (CHAT, "tool_choice", json!("none")),
        (CHAT, "top_logprobs", json!(0)),
        (CHAT, "verbosity", json!("medium")),
        (CHAT, "web_search_options", json!(null)),
        (
            CHAT,
            "messages",
            json!([{"role": "assistant", "content": "a", "annotations": [], "audio": null,
                "function_call": null, "refusal": null, "tool_calls": []},
                {"role": "user", "content": [{"type": "text", "text": "a", "more": null}]}]),
        ),
    ] {
        let mut body = base(path);
        body[field] = value.clone();
        let reply = server.post(path, &body);
        assert_eq!(reply.status, 200, "{field}: {value}: {reply:?}");
    }
    let long = json!({"prompt": long});
    assert_eq!(server.post(TEXT, &long).json()["error"]["code"], "context_length_exceeded");
    let mut body = base(CHAT);
    body["n"] = json!(2);
    assert_eq!(server.post(CHAT, &body).json()["error"]["code"], "unsupported_parameter");
}

#[test]
fn other_requests_have_their_status() {
    let server = Running::both("status", &LIMITS);
    refused(&server.send("POST", CHAT, "{\"messages\": "), 400, None, "not valid JSON");
    refused(&server.send("POST", CHAT, ""), 400, None, "not valid JSON");
    refused(&server.send("POST", CHAT, "[1]"), 400, None, "not a JSON object");
    refused(&server.send("POST", CHAT, &"[".repeat(100_000)), 400, None, "not valid JSON");
    refused(&server.send("GET", "/v2", ""), 404, None, "/v2 does not exist");
    refused(&server.send("GET", "/v1/chat/completions/", ""), 404, None, "routes are");
    let reply = server.send("GET", CHAT, "");
    refused(&reply, 405, None, "takes POST, not GET");
    assert!(reply.head.to_lowercase().contains("allow: post"), "{reply:?}");
    refused(&server.send("POST", "/health", "{}"), 405, None, "takes GET, not POST");
    let body = json!({"input": "a", "model": "chat"});
    let reply = server.post(EMBED, &body);
    refused(&reply, 404, Some("model"), "model \"chat\" does not exist");
    assert_eq!(reply.json()["error"]["code"], "model_not_found");
    // too large: by its header, and as it comes
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    write!(stream, "POST {TEXT} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n").unwrap();
    refused(&Reply::read(&mut stream).unwrap(), 413, None, "4194304 bytes at most");
    let mut stream = std::net::TcpStream::connect(server.address).unwrap();
    write!(stream, "POST {TEXT} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        .unwrap();
    let part = "a".repeat(1 << 20);
    for _ in 0..4 {
        write!(stream, "100000\r\n{part}\r\n").unwrap();
    }
    write!(stream, "1\r\na\r\n").unwrap();
    refused(&Reply::read(&mut stream).unwrap(), 413, None, "4194304 bytes at most");
    server.send("GET", "/health", "").ok();
}

#[test]
fn a_server_without_a_model_for_a_route_says_so() {
    let (decoder_files, encoder_files) = (decoder_folder("only"), encoder_folder("only-encoder"));
    let texts =
        Models { decoder: Some(("d".into(), decoder(&decoder_files))), ..Models::default() };
    let server = Running::start(texts, &LIMITS);
    refused(&server.post(EMBED, &json!({"input": "a"})), 404, None, "--embeddings");
    let models =
        Models { encoder: Some(("e".into(), encoder(&encoder_files))), ..Models::default() };
    let server = Running::start(models, &LIMITS);
    refused(&server.post(TEXT, &json!({"prompt": "a"})), 404, None, "--model");
    // a decoder without a template completes texts, and refuses conversations
    std::fs::remove_file(decoder_files.at("chat_template.jinja")).unwrap();
    let models =
        Models { decoder: Some(("d".into(), decoder(&decoder_files))), ..Models::default() };
    let server = Running::start(models, &Limits { context: 8, ..LIMITS });
    let body = json!({"messages": [{"role": "user", "content": "a"}]});
    refused(&server.post(CHAT, &body), 400, Some("messages"), "no chat template");
    // the context ends a text
    let got = server.post(TEXT, &json!({"prompt": "a", "max_tokens": 50})).ok();
    assert_eq!(got["usage"]["total_tokens"], 8);
    assert_eq!(got["choices"][0]["finish_reason"], "length");
    std::fs::remove_file(decoder_files.at("tokenizer.json")).unwrap();
    let models =
        Models { decoder: Some(("d".into(), decoder(&decoder_files))), ..Models::default() };
    assert!(serve::Server::start(models, &LIMITS).is_err());
    assert!(serve::Server::start(Models::default(), &LIMITS).is_err());
}
