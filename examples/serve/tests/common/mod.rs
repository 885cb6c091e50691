//! Tiny models, a server in this process, and a client of plain HTTP.
#![allow(dead_code)] // each test file uses a part

use serde_json::Value;
use serve::{Limits, Models, Server};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use teeny_core::{DeviceRef, random};
use teeny_models::{Decoder, Encoder};
use teeny_nn::Store;
use teeny_nn::transformer::{CausalLm, CausalLmConfig};
use tokio::sync::oneshot;

/// The time within which anything happens.
const SOON: Duration = Duration::from_secs(60);

/// A folder that is removed after the test.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let name = format!("teeny-serve-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn at(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn golden(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../teeny-nn/models/tests/golden").join(path)
}

pub fn device() -> DeviceRef {
    teeny_nn::device("cpu").unwrap()
}

/// The number of tokens that the decoder of [`decoder_folder`] takes at most.
pub const CONTEXT: usize = 8192;

const TEMPLATE: &str = "{% for m in messages %}\
    {% if m.role == 'tool' %}{{ raise_exception('no tools here') }}{% endif %}\
    <|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>assistant\n";

/// A random decoder without end token, with the tokenizer of SmolLM and a chat template.
pub fn decoder_folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    let store = Store::new(device());
    random::with_seed(3, || {
        let config = CausalLmConfig::new(343, CONTEXT, 1, 2, 16, 24);
        CausalLm::new(&store.root(), config).unwrap();
        // larger weights than a trained model's
        for param in store.all() {
            param.set(&param.value().mul(6.0).unwrap()).unwrap();
        }
    });
    store.save(folder.at("model.safetensors")).unwrap();
    let config = format!(
        r#"{{"model_type": "phi3", "vocab_size": 343, "hidden_size": 16, "eos_token_id": null,
        "intermediate_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2,
        "max_position_embeddings": {CONTEXT}, "rms_norm_eps": 1e-6}}"#
    );
    fs::write(folder.at("config.json"), config).unwrap();
    fs::copy(
        golden("../../../text/tests/golden/tokenizers/smollm.json"),
        folder.at("tokenizer.json"),
    )
    .unwrap();
    fs::write(folder.at("chat_template.jinja"), TEMPLATE).unwrap();
    folder
}

/// A golden encoder of 30 tokens, with a tokenizer of as many.
pub fn encoder_folder(name: &str) -> Folder {
    let folder = Folder::new(name);
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden("pretrained/bert").join(file), folder.at(file)).unwrap();
    }
    let words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "cat", "dog", "sat", "##s", "the"];
    let vocab: Vec<String> = words.iter().zip(0..).map(|(w, i)| format!("{w:?}: {i}")).collect();
    let tokenizer = format!(
        r###"{{"model": {{"type": "WordPiece", "unk_token": "[UNK]", "vocab": {{{}}},
            "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}},
            "pre_tokenizer": {{"type": "BertPreTokenizer"}},
            "post_processor": {{"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}}
        }}"###,
        vocab.join(", ")
    );
    fs::write(folder.at("tokenizer.json"), tokenizer).unwrap();
    folder
}

pub fn decoder(folder: &Folder) -> Decoder {
    Decoder::open(&folder.0, device()).unwrap()
}

pub fn encoder(folder: &Folder) -> Encoder {
    Encoder::open(&folder.0, device()).unwrap()
}

pub const LIMITS: Limits = Limits { queue: 64, batch: 16, context: CONTEXT, seed: 1 };

/// A server on a thread, which ends with this.
pub struct Running {
    pub address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    pub fn start(models: Models, limits: &Limits) -> Running {
        let server = Server::start(models, limits).unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                sender.send(listener.local_addr().unwrap()).unwrap();
                server.serve(listener, async { drop(stopped.await) }).await;
            });
        });
        let address = receiver.recv().unwrap();
        Running { address, stop: Some(stop), thread: Some(thread) }
    }

    /// Both models, with the names `chat` and `embed`.
    pub fn both(name: &str, limits: &Limits) -> Running {
        let (decoder_files, encoder_files) = (
            decoder_folder(&format!("{name}-decoder")),
            encoder_folder(&format!("{name}-encoder")),
        );
        let models = Models {
            decoder: Some(("chat".into(), decoder(&decoder_files))),
            encoder: Some(("embed".into(), encoder(&encoder_files))),
        };
        Running::start(models, limits)
    }

    /// Begins to shut down.
    pub fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    /// Waits for the end.
    pub fn join(&mut self) {
        self.thread.take().unwrap().join().unwrap();
    }

    /// A connection that has sent a request and has read nothing.
    pub fn open(&self, method: &str, path: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let request = format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    pub fn send(&self, method: &str, path: &str, body: &str) -> Reply {
        Reply::read(&mut self.open(method, path, body)).unwrap()
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &body.to_string())
    }

    /// The sum of the metrics whose line begins with `name`.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.send("GET", "/metrics", "").body;
        let value = |line: &str| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
        text.lines().filter(|line| line.starts_with(name)).map(value).sum()
    }

    /// Waits until a metric is at least `least`.
    pub fn wait_for(&self, name: &str, least: f64) {
        let start = Instant::now();
        while self.metric(name) < least {
            assert!(start.elapsed() < SOON, "{name} is {}, not {least}", self.metric(name));
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let stopped = self.stop.take().map(|stop| stop.send(()));
        if let Some(thread) = self.thread.take().filter(|_| stopped.is_some()) {
            let _ = thread.join();
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    /// The next answer on a connection; none, if it is closed before.
    pub fn read(stream: &mut TcpStream) -> Option<Reply> {
        let mut reader = BufReader::new(stream);
        let (mut head, mut line) = (String::new(), String::new());
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).ok()? == 0 {
                return None;
            }
            head += &line;
        }
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let lower = head.to_lowercase();
        let length = lower.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = Vec::new();
        if let Some(length) = length {
            body.resize(length.parse().ok()?, 0);
            reader.read_exact(&mut body).ok()?;
        } else if lower.contains("transfer-encoding: chunked") {
            loop {
                let mut size = String::new();
                reader.read_line(&mut size).ok()?;
                let start = body.len();
                let size = usize::from_str_radix(size.trim(), 16).ok()?;
                body.resize(start + size + 2, 0);
                reader.read_exact(&mut body[start..]).ok()?;
                body.truncate(start + size);
                if size == 0 {
                    break;
                }
            }
        }
        Some(Reply { status, head, body: String::from_utf8(body).ok()? })
    }

    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The body of a success.
    #[track_caller]
    pub fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The data of server-sent events.
    #[track_caller]
    pub fn events(&self) -> Vec<String> {
        assert_eq!(self.status, 200, "{self:?}");
        assert!(self.head.contains("text/event-stream"), "{self:?}");
        let events = self.body.strip_suffix("\n\n").unwrap().split("\n\n");
        events.map(|event| event.strip_prefix("data: ").unwrap().to_string()).collect()
    }
}

/// Reads until `text` has come.
pub fn read_until(stream: &mut TcpStream, text: &str) {
    let mut seen = Vec::new();
    let mut byte = [0];
    while !seen.ends_with(text.as_bytes()) {
        stream.read_exact(&mut byte).unwrap();
        seen.push(byte[0]);
    }
}

/// Marsaglia's xorshift: the same numbers in every run.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % n.max(1) as u64) as usize
    }
}
