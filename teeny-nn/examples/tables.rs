//! Prices of flats by a table with categories and missing cells.
//!
//! `cargo run --release --example tables`
#![forbid(unsafe_code)]

use teeny_nn::data::{Table, TableEncoder};
use teeny_nn::prelude::*;

/// The cities with their prices in thousands for each square metre.
const CITIES: [(&str, f32); 4] = [("Bern", 9.0), ("Oslo", 7.5), ("Riga", 3.0), ("Rome", 5.0)];

fn main() -> Result<()> {
    let (error, deviation) = train()?;
    println!("test error {error:.0} thousand; the prices have a deviation of {deviation:.0}");
    Ok(())
}

/// The lines of a CSV file. A twentieth of the areas is missing.
fn flats(rows: usize) -> Result<String> {
    let draws = Tensor::rand((rows, 5), DType::F32, &device("cpu")?)?.to_vec::<f32>()?;
    let mut text = "area,city,lift,price\n".to_string();
    for row in draws.chunks(5) {
        let (city, price) = CITIES[(4.0 * row[0]) as usize];
        let (area, lift) = (30.0 + 90.0 * row[1], if row[2] < 0.4 { "yes" } else { "no" });
        let price = area * price + if lift == "yes" { 60.0 } else { 0.0 } + 20.0 * row[3];
        let area = if row[4] < 0.05 { String::new() } else { format!("{area:.1}") };
        text += &format!("{area},{city},{lift},{price:.1}\n");
    }
    Ok(text)
}

/// The mean square error of the model on all rows.
fn error(model: &impl Module, (x, y): &(Tensor, Tensor)) -> Result<f64> {
    let predicted = no_grad(|| model.forward(x))?; // (N, 1)
    Ok(f64::from(mse(&predicted.squeeze(1)?, y, Reduction::Mean)?.item::<f32>()?))
}

/// Trains, and returns the error on test rows and the standard deviation of their prices.
pub fn train() -> Result<(f64, f64)> {
    manual_seed(1);
    let device = Autograd::new(device("cpu")?);
    let folder = std::env::temp_dir();
    let id = std::process::id();
    let [csv, saved] = ["csv", "ckpt"].map(|end| folder.join(format!("flats-{id}.{end}")));
    std::fs::write(&csv, flats(1500)?).map_err(|e| Error::io(e.to_string()))?;
    let [train, test] = Table::read(&csv)?.random_split([0.8, 0.2], 1)?;
    let (train, test) = (train.all()?, test.all()?);
    let encoder = TableEncoder::new()
        .with_numbers(["area"])
        .with_categories(["city", "lift"])
        .with_target_number("price")
        .fit(&train)?; // means and categories of the training rows
    let tensors = |encoder: &TableEncoder, table| {
        let prices = encoder.targets(table, &device)?.div(100.0)?; // (N), in 100 thousands
        Ok::<_, Error>((encoder.inputs(table, &device)?, prices)) // (N, 8), (N)
    };

    let store = Store::new(&device);
    let model = Sequential::new()
        .then(Linear::new(&store.at("fc1"), encoder.width(), 32)?) // (B, 8) → (B, 32)
        .then(Activation::Relu)
        .then(Linear::new(&store.at("fc2"), 32, 1)?); // (B, 1)
    let mut adam = Adam::new(store.trainable(), 1e-2);
    let loader = DataLoader::new(tensors(&encoder, &train)?, 64)?.shuffle(1);
    for batch in (0..40).flat_map(|epoch| loader.epoch(epoch)) {
        let (x, y) = batch?; // (64, 8), (64)
        let loss = mse(&model.forward(&x)?.squeeze(1)?, &y, Reduction::Mean)?; // ()
        adam.step(&loss.backward()?)?;
    }
    // the encoder is saved with the model, and needs no training rows when it is loaded
    Checkpoint::new().put("model", &store)?.put("encoder", &encoder)?.save(&saved)?;
    let mut encoder = TableEncoder::new();
    Checkpoint::load(&saved, &device)?.restore("encoder", &mut encoder)?;
    let test = tensors(&encoder, &test)?;
    let variance = test.1.var([0], 0)?.item::<f32>()?;
    [csv, saved].iter().try_for_each(std::fs::remove_file).map_err(|e| Error::io(e.to_string()))?;
    Ok((100.0 * error(&model, &test)?.sqrt(), 100.0 * f64::from(variance).sqrt()))
}
