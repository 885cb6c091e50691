//! A folder of images, classified with random crops, flips and colours.
//!
//! `cargo run --release --example images`
#![forbid(unsafe_code)]

use std::{fs, path::Path, sync::Arc};
use teeny_nn::data::images::{ImageFolder, ImageTransform, ImageTransforms, write_png};
use teeny_nn::prelude::*;

const SIDE: usize = 24;

fn main() -> Result<()> {
    println!("{:.1} % of the test images are classified", train()?);
    Ok(())
}

/// Writes `count` crosses, discs and rings each, of random colours, sizes and places.
fn draw(folder: &Path, count: usize) -> Result<()> {
    let device = device("cpu")?;
    for (class, name) in ["cross", "disc", "ring"].iter().enumerate() {
        fs::create_dir_all(folder.join(name)).map_err(|e| Error::io(e.to_string()))?;
        for i in 0..count {
            let draws = Tensor::rand(9, DType::F32, &device)?.to_vec::<f32>()?;
            let [cy, cx, radius] = [0, 1, 2].map(|i| [9.0, 9.0, 5.0][i] + 5.0 * draws[i]);
            let byte = |i: usize| {
                let (y, x) = ((i / SIDE % SIDE) as f32 - cy, (i % SIDE) as f32 - cx);
                let (r, side) = (y.hypot(x), y.abs().max(x.abs()));
                let inside = match class {
                    0 => y.abs().min(x.abs()) < 1.5 && side < radius,
                    1 => r < radius,
                    _ => r < radius && r > 0.6 * radius,
                };
                let (least, draw) = if inside { (150.0, 3) } else { (0.0, 6) };
                (least + 100.0 * draws[draw + i / (SIDE * SIDE)]) as u8
            };
            let bytes: Vec<u8> = (0..3 * SIDE * SIDE).map(byte).collect();
            let image = Tensor::from_vec(bytes, (3, SIDE, SIDE), &device)?; // (3, H, W)
            write_png(folder.join(name).join(format!("{i:03}.png")), &image)?;
        }
    }
    Ok(())
}

/// Trains on three quarters of the images, and returns the accuracy on the others in percent.
pub fn train() -> Result<f64> {
    manual_seed(1);
    let device = Autograd::new(device("cpu")?);
    let path = std::env::temp_dir().join(format!("shapes-{}", std::process::id()));
    draw(&path, 100)?;
    let augment = [
        ImageTransform::RandomCrop { size: [SIDE, SIDE], padding: 2 },
        ImageTransform::FlipHorizontal { p: 0.5 },
        ImageTransform::ColorJitter { brightness: 0.2, contrast: 0.2, saturation: 0.2 },
    ];
    let [augment, plain] = [&augment[..], &[]].map(|x| ImageTransforms::new(1, x.iter().copied()));
    let folder = ImageFolder::open(&path, &device)?.with_transforms(plain?);
    let [_, test] = folder.clone().random_split([0.75, 0.25], 1)?;
    let [train, _] = folder.with_transforms(augment?).random_split([0.75, 0.25], 1)?;

    let (store, pad) = (Store::new(&device), Conv2dOptions::new().with_padding(1));
    let model = Sequential::new()
        .then(Conv2d::with_options(&store.at("conv1"), 3, 8, 3, pad)?) // (B, 8, 24, 24)
        .then(Activation::Relu)
        .then(MaxPool2d::new(2)) // (B, 8, 12, 12)
        .then(Conv2d::with_options(&store.at("conv2"), 8, 16, 3, pad)?) // (B, 16, 12, 12)
        .then(Activation::Relu)
        .then(MaxPool2d::new(2)) // (B, 16, 6, 6)
        .then(Flatten)
        .then(Linear::new(&store.at("fc"), 16 * 6 * 6, 3)?); // (B, 3)
    let one = Tensor::zeros((1, 3, SIDE, SIDE), DType::F32, &device)?;
    println!("{}", store.summary(|| model.forward(&one))?); // layers, shapes, parameters, FLOPs
    let mut adam = Adam::new(store.trainable(), 3e-3);
    let loader = Arc::new(DataLoader::new(train, 32)?.shuffle(1));
    for batch in (0..12).flat_map(|epoch| loader.prefetch(epoch, 0, 2)) {
        let (x, labels) = batch?; // (32, 3, 24, 24), (32)
        adam.step(&cross_entropy(&model.forward(&x)?, &labels)?.backward()?)?;
    }
    let (x, labels) = test.all()?; // (75, 3, 24, 24), (75)
    fs::remove_dir_all(path).map_err(|e| Error::io(e.to_string()))?;
    Ok(100.0 * accuracy(&store.evaluate(|| model.forward(&x))?, &labels)? as f64
        / test.len() as f64)
}
