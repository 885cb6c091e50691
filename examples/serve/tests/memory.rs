//! Memory does not grow with the number of requests. A separate program, whose memory is used by
//! the server and its clients alone.
//!
//!     TEENY_REQUESTS=100000 cargo test --release -p serve --test memory -- --nocapture

mod common;

use common::*;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

/// The requests of a plain test.
const REQUESTS: usize = 4000;

/// The clients that run at a time, and the requests of a connection.
const CLIENTS: usize = 8;
const CONNECTION: usize = 100;

const REQUESTS_BY_KIND: [(&str, &str, u16); 8] = [
    ("/v1/embeddings", r#"{"input": "the cat sat"}"#, 200),
    ("/v1/embeddings", r#"{"input": ["a", "the dogs", ""], "encoding_format": "base64"}"#, 200),
    ("/v1/completions", r#"{"prompt": "the cat", "max_tokens": 3}"#, 200),
    (
        "/v1/completions",
        r#"{"prompt": "a", "max_tokens": 9, "stop": "e", "temperature": 1.2}"#,
        200,
    ),
    (
        "/v1/chat/completions",
        r#"{"messages": [{"role": "user", "content": "a cat"}], "max_tokens": 4, "stream": true}"#,
        200,
    ),
    ("/v1/chat/completions", r#"{"messages": [{"role": "user", "content": "a"}], "n": 2}"#, 400),
    ("/v1/embeddings", r#"{"input": "#, 400),
    ("/nothing", "", 404),
];

/// The memory of this program in KiB, where the system says it.
fn memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.trim().strip_suffix(" kB")?.parse().ok()
}

#[test]
fn memory_is_flat() {
    let count = std::env::var("TEENY_REQUESTS").map_or(REQUESTS, |n| n.parse().unwrap());
    let server = Running::both("memory", &LIMITS);
    let (next, start) = (AtomicUsize::new(0), Instant::now());
    let run = |until: usize| {
        std::thread::scope(|scope| {
            for _ in 0..CLIENTS {
                scope.spawn(|| {
                    let (mut stream, mut sent) = (TcpStream::connect(server.address).unwrap(), 0);
                    loop {
                        let i = next.fetch_add(1, Ordering::Relaxed);
                        if i >= until {
                            break;
                        }
                        if sent == CONNECTION {
                            (stream, sent) = (TcpStream::connect(server.address).unwrap(), 0);
                        }
                        let (path, body, status) = REQUESTS_BY_KIND[i % REQUESTS_BY_KIND.len()];
                        // one write, or the second waits for an acknowledgement
                        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length:");
                        let request = format!("{head} {}\r\n\r\n{body}", body.len());
                        stream.write_all(request.as_bytes()).unwrap();
                        let reply = Reply::read(&mut stream).unwrap();
                        assert_eq!(reply.status, status, "{reply:?}");
                        sent += 1;
                    }
                });
            }
        });
        next.store(until, Ordering::Relaxed);
        let (used, time) = (memory(), start.elapsed().as_secs_f64());
        println!("{until:>7} requests: {:>7} KiB, {time:.1} s", used.unwrap_or(0.0));
        used
    };
    let marks: Vec<Option<f64>> =
        [count / 10, count / 4, count / 2, count].into_iter().map(run).collect();
    if let (Some(early), Some(late)) = (marks[0], marks[3]) {
        assert!(late < early + 8192.0, "{early} KiB, then {late} KiB");
    }
}
