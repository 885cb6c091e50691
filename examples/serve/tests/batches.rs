//! Requests that come together: the same answers as alone, a bounded queue, clients that leave,
//! and the end of the server.

use crate::common::*;
use serde_json::{Value, json};
use serve::{Limits, Models};
use std::time::{Duration, Instant};

const TEXT: &str = "/v1/completions";

/// A request that takes as long as possible.
fn endless() -> Value {
    json!({"prompt": "a", "max_tokens": CONTEXT, "stream": true})
}

/// Without the number and the time of the answer.
fn body_of(reply: &Reply) -> Value {
    let mut value = reply.ok();
    value.as_object_mut().unwrap().retain(|key, _| key != "id" && key != "created");
    value
}

#[test]
fn concurrent_requests_have_the_answers_that_they_have_alone() {
    let server = Running::both("concurrent", &LIMITS);
    let words = ["the", "cat", "sat", "on", "a", "mat", "and", "dog"];
    let request = |i: usize| {
        let prompt: Vec<&str> = (0..=i % 7).map(|j| words[(i * 3 + j) % 8]).collect();
        let mut body = json!({"prompt": prompt.join(" "), "max_tokens": 5 + i % 40, "seed": i});
        match i % 4 {
            0 => {}
            1 => body["temperature"] = json!(0.5 + i as f64 / 40.0),
            2 => (body["temperature"], body["top_p"]) = (json!(1.2), json!(0.8)),
            _ => (body["temperature"], body["stop"]) = (json!(1.2), json!(["e", "a"])),
        }
        body
    };
    let alone: Vec<Value> = (0..40).map(|i| body_of(&server.post(TEXT, &request(i)))).collect();
    let batches = server.metric("serve_batches_total{kind=\"texts\"");
    assert_eq!(batches, 40.0);
    // while one text is generated, all others wait
    let mut first = server.open("POST", TEXT, &endless().to_string());
    read_until(&mut first, "data: ");
    std::thread::scope(|scope| {
        let send = |i| server.post(TEXT, &request(i));
        let threads: Vec<_> = (0..40).map(|i| scope.spawn(move || send(i))).collect();
        server.wait_for("serve_queue_length{kind=\"texts\"", 40.0);
        drop(first);
        for (thread, want) in threads.into_iter().zip(&alone) {
            assert_eq!(body_of(&thread.join().unwrap()), *want);
        }
    });
    let batches = server.metric("serve_batches_total{kind=\"texts\"") - batches;
    assert!((4.0..=5.0).contains(&batches), "{batches} batches of up to 16 texts");

    let embed = |i: usize| {
        let body = json!({"input": vec![words[i % 8].repeat(1 + i % 3); 1 + i % 5]});
        server.post("/v1/embeddings", &body).ok()["data"].clone()
    };
    let alone: Vec<Value> = (0..60).map(embed).collect();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..60).map(|i| scope.spawn(move || embed(i))).collect();
        for (thread, want) in threads.into_iter().zip(&alone) {
            let got = thread.join().unwrap();
            let rows = got.as_array().unwrap().iter().zip(want.as_array().unwrap());
            for (got, want) in rows {
                let numbers = |v: &Value| {
                    let list = v["embedding"].as_array().unwrap().iter();
                    list.map(|x| x.as_f64().unwrap()).collect::<Vec<_>>()
                };
                let pairs = numbers(got).into_iter().zip(numbers(want));
                assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-5));
            }
        }
    });
}

#[test]
fn a_short_prompt_is_not_cut_by_a_long_one_of_its_batch() {
    let folder = decoder_folder("cut");
    let config = std::fs::read_to_string(folder.at("config.json")).unwrap();
    let config = config.replace(&CONTEXT.to_string(), "300");
    std::fs::write(folder.at("config.json"), config).unwrap();
    let models = Models { decoder: Some(("d".into(), decoder(&folder))), ..Models::default() };
    let server = Running::start(models, &LIMITS);
    let bodies = [
        json!({"prompt": "a", "max_tokens": 200}),
        json!({"prompt": "the cat sat ".repeat(30), "max_tokens": 20}),
        json!({"prompt": "a", "max_tokens": 10}),
    ];
    std::thread::scope(|scope| {
        let send = |body| server.post(TEXT, body).ok();
        // many, so that some are of one batch
        let all = || bodies.iter().cycle().take(30);
        let threads: Vec<_> = all().map(|body| scope.spawn(move || send(body))).collect();
        for (thread, body) in threads.into_iter().zip(all()) {
            let got = thread.join().unwrap();
            assert_eq!(got["usage"]["completion_tokens"], body["max_tokens"], "{got}");
        }
    });
}

#[test]
fn a_full_queue_refuses_and_forgets_those_who_left() {
    let server = Running::both("full", &Limits { queue: 2, batch: 1, ..LIMITS });
    let mut first = server.open("POST", TEXT, &endless().to_string());
    read_until(&mut first, "data: ");
    let short = json!({"prompt": "a", "max_tokens": 3});
    let mut waiting: Vec<_> =
        (0..2).map(|_| server.open("POST", TEXT, &short.to_string())).collect();
    server.wait_for("serve_queue_length{kind=\"texts\"", 2.0);
    let reply = server.post(TEXT, &short);
    assert_eq!(reply.status, 429, "{reply:?}");
    assert_eq!(reply.json()["error"]["code"], "queue_full");
    assert_eq!(reply.json()["error"]["type"], "rate_limit_error");
    assert!(reply.head.to_lowercase().contains("retry-after: 1"), "{reply:?}");
    // the queue of the other model is another
    server.post("/v1/embeddings", &json!({"input": "a"})).ok();
    // one that leaves makes room
    drop(waiting.pop());
    let start = Instant::now();
    let last = loop {
        let mut stream = server.open("POST", TEXT, &short.to_string());
        stream.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        match Reply::read(&mut stream) {
            Some(reply) if reply.status == 429 => assert!(start.elapsed().as_secs() < 30),
            other => break (stream, other),
        }
    };
    assert!(last.1.is_none(), "it waits: {last:?}");
    drop(first);
    assert_eq!(Reply::read(&mut waiting[0]).unwrap().status, 200);
}

#[test]
fn a_client_that_leaves_stops_its_text() {
    let server = Running::both("leave", &LIMITS);
    for stream in [true, false] {
        let before = server.metric("serve_new_tokens_total");
        let mut body = endless();
        body["stream"] = json!(stream);
        let mut client = server.open("POST", TEXT, &body.to_string());
        if stream {
            read_until(&mut client, "data: ");
        } else {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(client);
        let got = server.post(TEXT, &json!({"prompt": "a", "max_tokens": 3})).ok();
        assert_eq!(got["usage"]["completion_tokens"], 3);
        let tokens = server.metric("serve_new_tokens_total") - before;
        assert!(tokens < 0.9 * CONTEXT as f64, "{tokens} tokens for nobody");
    }
}

#[test]
fn a_server_that_stops_answers_what_it_has_and_refuses_the_rest() {
    let mut server = Running::both("stop", &LIMITS);
    let body = json!({"prompt": "a", "max_tokens": 6000, "stream": true});
    let mut running = server.open("POST", TEXT, &body.to_string());
    read_until(&mut running, "data: ");
    let short = json!({"prompt": "a", "max_tokens": 3});
    let mut waiting = server.open("POST", TEXT, &short.to_string());
    server.wait_for("serve_queue_length{kind=\"texts\"", 1.0);
    server.stop();
    let start = Instant::now();
    while server.send("GET", "/health", "").status != 503 {
        assert!(start.elapsed().as_secs() < 30);
    }
    for (path, body) in [(TEXT, &short), ("/v1/embeddings", &json!({"input": "a"}))] {
        let reply = server.post(path, body);
        assert_eq!((reply.status, &reply.json()["error"]["type"]), (503, &json!("server_error")));
    }
    read_until(&mut running, "data: [DONE]\n\n");
    assert_eq!(Reply::read(&mut waiting).unwrap().ok()["usage"]["completion_tokens"], 3);
    server.join();
    assert!(std::net::TcpStream::connect(server.address).is_err());
}
