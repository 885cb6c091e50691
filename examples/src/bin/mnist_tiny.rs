//! MNIST in one file, with three crates: tensors, the CPU, gradients. No layers, no optimizer, no data library.
//!
//! `cargo run --release --bin mnist_tiny [FOLDER]`, where the folder has MNIST's four .gz files. Without one (or `TEENY_DATA`) it trains on
//! 1,797 small digits that are part of the program. `mnist.rs` is the grown-up version.
#![forbid(unsafe_code)]

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
    let device = Autograd::new(Cpu::new()); // one line chooses the engine and training
    let weight = |inputs, outputs| Tensor::normal(0.0, 0.02, (inputs, outputs), DType::F32, &device)?.requires_grad();
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
                return Err(Error::value(format!("the loss is {loss}; try a lower learning rate than {LR}")));
            }
            sum += f64::from(loss) * batch.len() as f64;
        }
        println!("epoch {}  loss {:.4}  {:.2} s", epoch + 1, sum / train.labels.len() as f64, start.elapsed().as_secs_f64());
    }
    let all: Vec<usize> = (0..test.labels.len()).collect();
    let right = no_grad(|| {
        let (x, targets) = test.batch(&all, &device)?; // (N, 784), (N, 1)
        logits(&x, &params)?.argmax(1)?.unsqueeze(1)?.eq(&targets)?.sum_all()?.item::<i64>()
    })?;
    println!("test accuracy {:.2} %", 100.0 * right as f64 / test.labels.len() as f64);
    Ok(())
}

/// (B, 784) → (B, 10).
fn logits(x: &Tensor, [w1, b1, w2, b2]: &[Tensor; 4]) -> Result<Tensor> {
    let h = x.matmul(w1)?.add(b1)?.relu()?; // (B, 128)
    h.matmul(w2)?.add(b2)
}

/// Images with pixels in 0..=1, row after row, and the digit in each.
struct Images {
    pixels: Vec<f32>,
    labels: Vec<i32>,
    area: usize,
}

impl Images {
    /// From the contents of two IDX files; `white` is the largest pixel.
    fn new(images: &[u8], labels: &[u8], white: f32) -> Result<Images> {
        let (sizes, pixels) = idx(images)?;
        let (count, labels) = idx(labels)?;
        if sizes.len() != 3 || count[..] != sizes[..1] || labels.iter().any(|l| *l > 9) {
            return Err(Error::format(format!("images {sizes:?} and labels {count:?} do not pair")));
        }
        let pixels = pixels.iter().map(|p| f32::from(*p) / white).collect();
        Ok(Images { pixels, labels: labels.iter().map(|l| i32::from(*l)).collect(), area: sizes[1] * sizes[2] })
    }

    /// The images and labels at `indices`: (B, area), (B, 1).
    fn batch(&self, indices: &[usize], device: &std::sync::Arc<Autograd>) -> Result<(Tensor, Tensor)> {
        let pixels: Vec<f32> = indices.iter().flat_map(|i| &self.pixels[i * self.area..][..self.area]).copied().collect();
        let labels: Vec<i32> = indices.iter().map(|i| self.labels[*i]).collect();
        Ok((Tensor::from_vec(pixels, (indices.len(), self.area), device)?, Tensor::from_vec(labels, (indices.len(), 1), device)?))
    }

    /// Images and labels from number `at` on, taken out.
    fn split_off(&mut self, at: usize) -> Images {
        Images { pixels: self.pixels.split_off(at * self.area), labels: self.labels.split_off(at), area: self.area }
    }
}

/// MNIST's training and test part, or the built-in digits in two parts.
fn load() -> Result<(Images, Images)> {
    let Some(dir) = std::env::args_os().nth(1).or_else(|| std::env::var_os("TEENY_DATA")).map(PathBuf::from) else {
        println!("training on the built-in digits, 8x8 pixels; for MNIST name a folder that has it");
        let images = inflate(include_bytes!("../../../teeny-nn/data/digits-images-idx3-ubyte.gz"))?;
        let labels = inflate(include_bytes!("../../../teeny-nn/data/digits-labels-idx1-ubyte.gz"))?;
        let mut train = Images::new(&images, &labels, 16.0)?;
        let test = train.split_off(1437);
        return Ok((train, test));
    };
    let read = |name: &str| {
        let path = dir.join(name);
        let bytes = std::fs::read(&path).map_err(|e| Error::io(format!("cannot read {path:?}: {e}")))?;
        inflate(&bytes).map_err(|e| e.fact(format!("in {path:?}")))
    };
    let part = |name: &str| Images::new(&read(&format!("{name}-images-idx3-ubyte.gz"))?, &read(&format!("{name}-labels-idx1-ubyte.gz"))?, 255.0);
    Ok((part("train")?, part("t10k")?))
}

/// The sizes and values of an IDX file of bytes.
fn idx(file: &[u8]) -> Result<(Vec<usize>, &[u8])> {
    let error = || Error::format("not an IDX file of bytes, or not all of it");
    let axes = match file {
        [0, 0, 8, axes, ..] => usize::from(*axes),
        _ => return Err(error()),
    };
    let header = file.get(4..4 + 4 * axes).ok_or_else(error)?;
    let sizes: Vec<usize> = header.chunks_exact(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]) as usize).collect();
    let values = &file[4 + 4 * axes..];
    let numel = sizes.iter().try_fold(1usize, |n, size| n.checked_mul(*size));
    if numel == Some(values.len()) { Ok((sizes, values)) } else { Err(error()) }
}

/// The content of a gzip file (RFC 1951 and 1952), so that this file needs no other crate. The checksum is not looked at.
fn inflate(file: &[u8]) -> Result<Vec<u8>> {
    let damaged = || Error::format("not a gzip file, or not all of it");
    let [0x1f, 0x8b, 8, flags @ (0 | 8), _, _, _, _, _, _, rest @ ..] = file else { return Err(damaged()) };
    let name = if *flags == 8 { rest.iter().position(|b| *b == 0).ok_or_else(damaged)? + 1 } else { 0 };
    let mut bits = Bits { bytes: &rest[name..], at: 0 };
    bits.inflate().ok_or_else(damaged)
}

/// A deflate stream, read bit by bit from the lowest bit of each byte.
struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
}

/// How many codes there are of each length, and the symbols in the order of their codes.
type Codes = ([usize; 16], Vec<usize>);

impl Bits<'_> {
    fn take(&mut self, count: usize) -> Option<usize> {
        let mut value = 0;
        for i in 0..count {
            value |= usize::from(self.bytes.get(self.at / 8)? >> (self.at % 8) & 1) << i;
            self.at += 1;
        }
        Some(value)
    }

    /// Codes of one length are consecutive numbers, so the length and the number say which symbol it is.
    fn symbol(&mut self, (counts, symbols): &Codes) -> Option<usize> {
        let (mut code, mut first, mut before) = (0, 0, 0);
        for count in &counts[1..] {
            code |= self.take(1)?;
            if code < first + count {
                return symbols.get(before + code - first).copied();
            }
            before += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        None
    }

    fn inflate(&mut self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        loop {
            let last = self.take(1)? == 1;
            match self.take(2)? {
                0 => {
                    self.at = self.at.next_multiple_of(8);
                    let size = self.take(16)?;
                    let from = self.at / 8 + 2; // the size is there twice
                    out.extend_from_slice(self.bytes.get(from..from + size)?);
                    self.at = 8 * (from + size);
                }
                1 => {
                    let lengths = [vec![8; 144], vec![9; 112], vec![7; 24], vec![8; 8]].concat();
                    self.block(&mut out, &codes(&lengths), &codes(&[5; 30]))?;
                }
                2 => {
                    let (literals, distances, count) = (self.take(5)? + 257, self.take(5)? + 1, self.take(4)? + 4);
                    let mut lengths = vec![0; 19];
                    for place in [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15].into_iter().take(count) {
                        lengths[place] = self.take(3)?;
                    }
                    let meta = codes(&lengths);
                    lengths.clear();
                    while lengths.len() < literals + distances {
                        let (length, times) = match self.symbol(&meta)? {
                            16 => (*lengths.last()?, 3 + self.take(2)?),
                            17 => (0, 3 + self.take(3)?),
                            18 => (0, 11 + self.take(7)?),
                            length => (length, 1),
                        };
                        lengths.extend(std::iter::repeat_n(length, times));
                    }
                    self.block(&mut out, &codes(&lengths[..literals]), &codes(&lengths[literals..]))?;
                }
                _ => return None,
            }
            if last {
                return Some(out);
            }
        }
    }

    /// Literal bytes, and copies of `length` bytes from `distance` back, until the end of the block.
    fn block(&mut self, out: &mut Vec<u8>, literals: &Codes, distances: &Codes) -> Option<()> {
        loop {
            let length = match self.symbol(literals)? {
                byte @ 0..=255 => {
                    out.push(byte as u8);
                    continue;
                }
                256 => return Some(()),
                symbol @ 257..=264 => symbol - 254,
                symbol @ 265..=284 => {
                    let extra = (symbol - 261) / 4;
                    3 + ((4 + (symbol - 261) % 4) << extra) + self.take(extra)?
                }
                285 => 258,
                _ => return None,
            };
            let distance = match self.symbol(distances)? {
                symbol @ 0..=3 => symbol + 1,
                symbol @ 4..=29 => {
                    let extra = symbol / 2 - 1;
                    1 + ((2 + symbol % 2) << extra) + self.take(extra)?
                }
                _ => return None,
            };
            let from = out.len().checked_sub(distance)?;
            (from..from + length).for_each(|i| out.push(out[i]));
        }
    }
}

fn codes(lengths: &[usize]) -> Codes {
    let counts = std::array::from_fn(|length| if length == 0 { 0 } else { lengths.iter().filter(|l| **l == length).count() });
    let mut symbols: Vec<usize> = (0..lengths.len()).filter(|symbol| lengths[*symbol] > 0).collect();
    symbols.sort_by_key(|symbol| lengths[*symbol]);
    (counts, symbols)
}
