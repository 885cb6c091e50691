//! An HTTP server that classifies digits, by the standard library alone: `POST /predict` with 784
//! numbers from 0 to 1, and the answer is `{"digit": 7, "probability": 0.98}`.
//!
//! `cargo run --release --example server [PORT]` trains the model first. Then, in another window:
//! `curl -d "$(yes 0 | head -784 | tr '\n' ' ')" http://127.0.0.1:8080/predict`
#![forbid(unsafe_code)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;
use teeny_nn::prelude::*;

/// The largest request, in bytes.
const MAX_BODY: usize = 64 << 10;

fn main() -> Result<()> {
    let port = std::env::args().nth(1).unwrap_or_else(|| "8080".into());
    let listener = TcpListener::bind(format!("127.0.0.1:{port}"))?;
    println!("listening on http://{}", listener.local_addr()?);
    serve(listener, Arc::new(train()?), usize::MAX)
}

/// A network, and the store of its parameters, which knows the device.
pub struct Classifier {
    store: Store,
    model: Sequential,
}

/// A perceptron, trained on the digits that are a part of the library.
pub fn train() -> Result<Classifier> {
    manual_seed(1);
    let device = Autograd::new(device("cpu")?);
    let store = Store::new(&device);
    let model = Sequential::new()
        .then(Linear::new(&store.at("fc1"), 784, 64)?)
        .then(Activation::Relu)
        .then(Linear::new(&store.at("fc2"), 64, 10)?);
    let digits = digits::load()?;
    let loader = DataLoader::new(digits.train.on(&device), 64)?.shuffle(1);
    let mut adam = AdamW::new(store.trainable(), 3e-3);
    for epoch in 0..4 {
        for batch in loader.epoch(epoch) {
            let (x, targets) = batch?; // (B, 784), (B)
            adam.step(&cross_entropy(&model.forward(&x)?, &targets)?.backward()?)?;
        }
    }
    store.set_training(false);
    Ok(Classifier { store, model })
}

/// Answers `connections` connections, one thread for each. The threads share the model: a forward
/// pass changes nothing.
pub fn serve(listener: TcpListener, classifier: Arc<Classifier>, connections: usize) -> Result<()> {
    for stream in listener.incoming().take(connections) {
        let (stream, classifier) = (stream?, classifier.clone());
        std::thread::spawn(move || {
            if let Err(error) = answer(stream, &classifier) {
                eprintln!("{error}");
            }
        });
    }
    Ok(())
}

/// Answers one request.
fn answer(mut stream: TcpStream, classifier: &Classifier) -> Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let (status, text) = match request(&stream) {
        Err(error) => ("400 Bad Request", error.message().to_string()),
        Ok((target, body)) if target.starts_with("POST /predict ") => {
            match predict(classifier, &body) {
                Ok((digit, p)) => {
                    ("200 OK", format!("{{\"digit\": {digit}, \"probability\": {p:.4}}}"))
                }
                Err(error) => ("400 Bad Request", error.message().to_string()),
            }
        }
        Ok(_) => ("404 Not Found", "there is POST /predict".to_string()),
    };
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n", text.len())?;
    Ok(write!(stream, "Connection: close\r\n\r\n{text}")?)
}

/// The first line and the body of a request.
fn request(stream: &TcpStream) -> Result<(String, String)> {
    let mut lines = BufReader::new(stream.take(2 * MAX_BODY as u64));
    let (mut target, mut length) = (String::new(), 0);
    lines.read_line(&mut target)?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            let number = value.trim().parse().map_err(|_| Error::value("Content-Length?"))?;
            length = Some(number).filter(|&n| n <= MAX_BODY).ok_or(Error::value("too large"))?;
        }
    }
    let mut body = vec![0; length];
    lines.read_exact(&mut body)?;
    Ok((target, String::from_utf8(body).map_err(|_| Error::value("the body is not UTF-8"))?))
}

/// The most likely digit in `text`, numbers separated by spaces, and its probability.
pub fn predict(classifier: &Classifier, text: &str) -> Result<(usize, f32)> {
    let number =
        |word: &str| word.parse().map_err(|_| Error::value(format!("{word:?}: no number")));
    let pixels = text.split_whitespace().map(number).collect::<Result<Vec<f32>>>()?;
    let x = Tensor::from_vec(pixels, (1, 784), classifier.store.device())?; // (1, 784)
    let p = no_grad(|| classifier.model.forward(&x))?.softmax(1)?.to_vec::<f32>()?; // 10
    Ok(p.into_iter()
        .enumerate()
        .fold((0, 0.0), |best, (i, p)| if p > best.1 { (i, p) } else { best }))
}
