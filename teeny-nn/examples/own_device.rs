//! Your own device: it multiplies matrices itself and leaves everything else to the CPU's engine.
//! Wrapped in `Autograd` it trains a network.
//!
//! `cargo run --release --example own_device`
//!
//! A device has five methods, and `execute` gets every operation as data. One that returns
//! `Ok(None)` for a fused operation has it run in primitives; CONTRIBUTING.md says how to go on.
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use teeny_nn::prelude::*;
use teeny_nn::{Device, DeviceInfo, Op, Outputs, StorageRef};

#[derive(Debug)]
struct Mine {
    cpu: DeviceRef,
    products: AtomicUsize,
    others: AtomicUsize,
}

impl Device for Mine {
    fn info(&self) -> DeviceInfo {
        DeviceInfo { name: "mine".into(), description: "products by dot products".into() }
    }
    fn upload(&self, bytes: &[u8], dtype: DType) -> Result<StorageRef> {
        self.cpu.upload(bytes, dtype)
    }
    fn download(&self, x: &Tensor) -> Result<Vec<u8>> {
        self.cpu.download(x)
    }
    fn execute(&self, op: &mut Op<'_>) -> Result<Option<Outputs>> {
        if let Op::Matmul { lhs, rhs } = *op {
            let (shape, dtype) = op.outputs()?[0]; // checked: (m, k) @ (k, n) → (m, n)
            if let ([m, n], DType::F32) = (&shape[..], dtype) {
                self.products.fetch_add(1, Relaxed);
                let (a, b, k) = (lhs.to_vec::<f32>()?, rhs.to_vec::<f32>()?, lhs.shape()[1]);
                let dot = |i, j| (0..k).map(|l| a[i * k + l] * b[l * n + j]).sum();
                let y: Vec<f32> = (0..m * n).map(|at| dot(at / n, at % n)).collect();
                let y = Tensor::from_vec(y, shape, &self.cpu)?; // (m, n)
                return Ok(Some(y.storage().clone().into()));
            }
        }
        self.others.fetch_add(1, Relaxed);
        self.cpu.execute(op)
    }
    fn synchronize(&self) -> Result<()> {
        self.cpu.synchronize()
    }
}

fn main() -> Result<()> {
    let (loss, products, others) = train()?;
    println!("loss {loss:.4} after {products} products on this device and {others} other requests");
    Ok(())
}

/// Learns exclusive or, and returns the loss and the numbers of products and of other requests.
pub fn train() -> Result<(f32, usize, usize)> {
    manual_seed(1);
    let (products, others) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mine = Arc::new(Mine { cpu: device("cpu")?, products, others });
    let store = Store::new(Autograd::new(&mine));
    let x = Tensor::new([[0f32, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], store.device())?; // (4, 2)
    let y = Tensor::new([[0f32], [1.0], [1.0], [0.0]], store.device())?; // (4, 1)
    let (fc1, fc2) = (Linear::new(&store.at("fc1"), 2, 8)?, Linear::new(&store.at("fc2"), 8, 1)?);
    let model = Sequential::new().then(fc1).then(Activation::Tanh).then(fc2); // (4, 2) → (4, 1)
    let mut adam = Adam::new(store.trainable(), 0.05);
    for _ in 0..300 {
        let loss = bce_with_logits(&model.forward(&x)?, &y, Reduction::Mean)?; // ()
        adam.step(&loss.backward()?)?;
    }
    let loss = bce_with_logits(&model.forward(&x)?, &y, Reduction::Mean)?.item()?;
    Ok((loss, mine.products.load(Relaxed), mine.others.load(Relaxed)))
}
