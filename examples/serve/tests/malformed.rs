//! Requests that are damaged at random do not stop the server.

use crate::common::*;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

const BODIES: [(&str, &str); 3] = [
    (
        "/v1/chat/completions",
        r#"{"messages": [{"role": "system", "content": "be"}, {"role": "user", "content":
            [{"type": "text", "text": "the cat"}]}], "max_tokens": 3, "temperature": 0.7,
            "top_p": 0.9, "seed": 5, "stop": ["a", "."], "stream": true,
            "stream_options": {"include_usage": true}, "n": 1, "tools": [], "model": "chat"}"#,
    ),
    (
        "/v1/completions",
        r#"{"prompt": "a \u00e9 b", "max_tokens": 3, "stop": "x", "logprobs": null}"#,
    ),
    ("/v1/embeddings", r#"{"input": ["a cat", "\ud83d\ude00"], "encoding_format": "base64"}"#),
];

/// Values that replace others.
fn odd(dice: &mut Dice) -> Value {
    let values = [
        json!(null),
        json!(true),
        json!(0),
        json!(-1),
        json!(1e308),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(0.5),
        json!(""),
        json!("\u{0}"),
        json!("a".repeat(5000)),
        json!([]),
        json!({}),
        json!([[]]),
        json!(["", ""]),
        json!({"type": "text"}),
        json!("base64"),
        json!("\u{10ffff}"),
    ];
    values[dice.below(values.len())].clone()
}

/// Changes a value somewhere in `value`.
fn change(value: &mut Value, dice: &mut Dice) {
    let deeper = dice.below(3) > 0;
    match value {
        Value::Object(map) if deeper && !map.is_empty() => {
            let key = map.keys().nth(dice.below(map.len())).unwrap().clone();
            match dice.below(8) {
                0 => drop(map.remove(&key)),
                1 => drop(map.insert(format!("{key}x"), odd(dice))),
                _ => change(&mut map[&key], dice),
            }
        }
        Value::Array(list) if deeper && !list.is_empty() => {
            let at = dice.below(list.len());
            change(&mut list[at], dice);
        }
        other => *other = odd(dice),
    }
}

#[test]
fn json_that_is_damaged_is_refused_or_answered() {
    let server = Running::both("json", &LIMITS);
    let (mut dice, mut answered, mut refused) = (Dice(0x5eed), 0, 0);
    for i in 0..1500 {
        let (path, text) = BODIES[i % 3];
        let body = if i % 2 == 0 {
            let mut value: Value = serde_json::from_str(text).unwrap();
            (0..dice.below(3)).for_each(|_| change(&mut value, &mut dice));
            value.to_string().into_bytes()
        } else {
            let mut bytes = text.as_bytes().to_vec();
            for _ in 0..=dice.below(3) {
                let at = dice.below(bytes.len());
                match dice.below(4) {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.truncate(at.max(1)),
                    2 => bytes.insert(at, b"{}[]\",:\\0-"[dice.below(10)]),
                    _ => bytes[at] = dice.below(256) as u8,
                }
            }
            bytes
        };
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n")
            .unwrap();
        stream.write_all(&body).unwrap();
        let reply = Reply::read(&mut stream).unwrap();
        let shown = String::from_utf8_lossy(&body);
        match reply.status {
            200 => answered += 1,
            400 | 404 => {
                refused += 1;
                assert!(reply.json()["error"]["message"].is_string(), "{shown}: {reply:?}");
            }
            _ => panic!("{shown}: {reply:?}"),
        }
    }
    assert!(answered > 100 && refused > 500, "{answered} answered, {refused} refused");
}

#[test]
fn http_that_is_damaged_does_not_stop_the_server() {
    let server = Running::both("http", &LIMITS);
    let mut dice = Dice(77);
    for i in 0..600 {
        let (path, body) = BODIES[i % 3];
        let length = match dice.below(4) {
            0 => dice.below(1 << 30),
            1 => dice.below(body.len()),
            _ => body.len(),
        };
        let kind = ["Content-Length: ", "content-length:-", "Transfer-Encoding: chunked\r\nX: "];
        let kind = kind[dice.below(8).saturating_sub(5)];
        let mut bytes = format!(
            "POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n{kind}{length}\
             \r\n\r\n{body}"
        )
        .into_bytes();
        for _ in 0..dice.below(5) {
            let at = dice.below(bytes.len().min(160));
            match dice.below(5) {
                0 => drop(bytes.remove(at)),
                1 => bytes.truncate(at + 1),
                2 => bytes.insert(at, b"\r\n: \0/?%\xff"[dice.below(9)]),
                3 => bytes.splice(at..at, vec![b'a'; 1 << dice.below(18)]).for_each(drop),
                _ => bytes[at] = dice.below(256) as u8,
            }
        }
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        // the server may have closed the connection
        let _ = stream.write_all(&bytes);
        let _ = stream.shutdown(Shutdown::Write);
        if dice.below(2) == 0 {
            let _ = stream.read(&mut [0; 4096]);
        }
    }
    server.send("GET", "/health", "").ok();
    for (path, body) in BODIES {
        assert_eq!(server.send("POST", path, body).status, 200, "{path}");
    }
    assert_eq!(server.metric("serve_queue_length"), 0.0);
}
