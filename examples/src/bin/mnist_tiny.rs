//! MNIST in one file, with three crates: tensors, the CPU, gradients. No layers, no optimizer, no
//! data library.
//!
//! `cargo run --release --bin mnist_tiny [FOLDER]`, where the folder has MNIST's four .gz files.
//! Without it and without `TEENY_DATA` it trains on 1,797 small digits, a part of the program.
//! `mnist.rs` does the same with teeny-nn.
#![forbid(unsafe_code)]

use std::io::Read;
use std::path::PathBuf;
use std::time::Instant;
use teeny_autograd::{Autograd, Grad, no_grad};
use teeny_core::{DType, Error, Key, Result, Tensor, manual_seed, permutation};
use teeny_cpu::Cpu;

const BATCH: usize = 64;
const HIDDEN: usize = 128;
const LR: f64 = 0.4;

fn main() -> Result<()> {
    let (train, test) = load()?;
    manual_seed(1);
    let device = Autograd::new(Cpu::new()); // the CPU, with gradients
    let weight = |inputs, outputs| {
        Tensor::normal(0.0, 0.02, (inputs, outputs), DType::F32, &device)?.requires_grad()
    };
    let bias = |outputs| Tensor::zeros((outputs,), DType::F32, &device)?.requires_grad();
    let mut params = [weight(train.area, HIDDEN)?, bias(HIDDEN)?, weight(HIDDEN, 10)?, bias(10)?];

    let start = Instant::now();
    for epoch in 0..if train.labels.len() < 10_000 { 40 } else { 5 } {
        let mut sum = 0.0;
        for batch in permutation(train.labels.len(), Key { seed: 1, draw: epoch }).chunks(BATCH) {
            let (x, targets) = train.batch(batch, &device)?; // (B, 784), (B, 1)
            let log_p = logits(&x, &params)?.log_softmax(1)?; // (B, 10)
            let loss = log_p.gather(1, &targets)?.mean_all()?.neg()?; // ()
            let grads = loss.backward()?;
            for param in &mut params {
                *param = param.detach()?.sub(&grads.get(param)?.mul(LR)?)?.requires_grad()?;
            }
            let loss = loss.item::<f32>()?;
            if !loss.is_finite() {
                return Err(Error::value(format!(
                    "the loss is {loss}; try a lower learning rate than {LR}"
                )));
            }
            sum += f64::from(loss) * batch.len() as f64;
        }
        examples::println!(
            "epoch {}  loss {:.4}  {:.2} s",
            epoch + 1,
            sum / train.labels.len() as f64,
            start.elapsed().as_secs_f64()
        );
    }
    let all: Vec<usize> = (0..test.labels.len()).collect();
    let right = no_grad(|| {
        let (x, targets) = test.batch(&all, &device)?; // (N, 784), (N, 1)
        logits(&x, &params)?.argmax(1)?.unsqueeze(1)?.eq(&targets)?.sum_all()?.item::<i64>()
    })?;
    examples::println!("test accuracy {:.2} %", 100.0 * right as f64 / test.labels.len() as f64);
    Ok(())
}

/// (B, 784) → (B, 10).
fn logits(x: &Tensor, [w1, b1, w2, b2]: &[Tensor; 4]) -> Result<Tensor> {
    let h = x.matmul(w1)?.add(b1)?.relu()?; // (B, 128)
    h.matmul(w2)?.add(b2)
}

/// Images with pixels in 0..=1, row by row, and the digit in each.
struct Images {
    pixels: Vec<f32>,
    labels: Vec<i32>,
    area: usize,
}

impl Images {
    /// Parses the contents of two IDX files; `white` is the largest pixel.
    fn new(images: &[u8], labels: &[u8], white: f32) -> Result<Images> {
        let (sizes, pixels) = idx(images)?;
        let (count, labels) = idx(labels)?;
        if sizes.len() != 3 || count[..] != sizes[..1] || labels.iter().any(|l| *l > 9) {
            return Err(Error::format(format!(
                "images {sizes:?} and labels {count:?} do not match"
            )));
        }
        let pixels = pixels.iter().map(|p| f32::from(*p) / white).collect();
        Ok(Images {
            pixels,
            labels: labels.iter().map(|l| i32::from(*l)).collect(),
            area: sizes[1] * sizes[2],
        })
    }

    /// The images and labels at `indices`: (B, area), (B, 1).
    fn batch(
        &self,
        indices: &[usize],
        device: &std::sync::Arc<Autograd>,
    ) -> Result<(Tensor, Tensor)> {
        let pixels: Vec<f32> = indices
            .iter()
            .flat_map(|i| &self.pixels[i * self.area..][..self.area])
            .copied()
            .collect();
        let labels: Vec<i32> = indices.iter().map(|i| self.labels[*i]).collect();
        Ok((
            Tensor::from_vec(pixels, (indices.len(), self.area), device)?,
            Tensor::from_vec(labels, (indices.len(), 1), device)?,
        ))
    }

    /// Removes the images and labels from index `at` on and returns them.
    fn split_off(&mut self, at: usize) -> Images {
        Images {
            pixels: self.pixels.split_off(at * self.area),
            labels: self.labels.split_off(at),
            area: self.area,
        }
    }
}

/// MNIST's training and test part, or the built-in digits in two parts.
fn load() -> Result<(Images, Images)> {
    let Some(dir) =
        std::env::args_os().nth(1).or_else(|| std::env::var_os("TEENY_DATA")).map(PathBuf::from)
    else {
        examples::println!("training on the built-in digits, 8x8 pixels; pass a folder of MNIST");
        let images =
            inflate(include_bytes!("../../../teeny-nn/data/data/digits-images-idx3-ubyte.gz"))?;
        let labels =
            inflate(include_bytes!("../../../teeny-nn/data/data/digits-labels-idx1-ubyte.gz"))?;
        let mut train = Images::new(&images, &labels, 16.0)?;
        let test = train.split_off(1437);
        return Ok((train, test));
    };
    let read = |name: &str| {
        let path = dir.join(name);
        let bytes = std::fs::read(&path)
            .map_err(|e| Error::io(format!("cannot read {path:?}: {e}")).with_source(e))?;
        inflate(&bytes).map_err(|e| e.note(format!("in {path:?}")))
    };
    let part = |name: &str| {
        Images::new(
            &read(&format!("{name}-images-idx3-ubyte.gz"))?,
            &read(&format!("{name}-labels-idx1-ubyte.gz"))?,
            255.0,
        )
    };
    Ok((part("train")?, part("t10k")?))
}

/// The sizes and values of an IDX file of bytes.
fn idx(file: &[u8]) -> Result<(Vec<usize>, &[u8])> {
    let error = || Error::format("not an IDX file of bytes, or truncated");
    let axes = match file {
        [0, 0, 8, axes, ..] => usize::from(*axes),
        _ => return Err(error()),
    };
    let header = file.get(4..4 + 4 * axes).ok_or_else(error)?;
    let sizes: Vec<usize> = header
        .chunks_exact(4)
        .map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize)
        .collect();
    let values = &file[4 + 4 * axes..];
    let numel = sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
    if numel == Some(values.len()) { Ok((sizes, values)) } else { Err(error()) }
}

/// The content of a gzip file.
fn inflate(file: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match flate2::read::GzDecoder::new(file).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(Error::format(format!("not a gzip file, or truncated: {error}"))),
    }
}
