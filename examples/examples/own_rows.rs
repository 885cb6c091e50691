//! Your own norm and your own loss: a contrastive loss of pairs of vectors that are normalised to
//! length 1, once by tensor operations and once by two row programs.
//!
//! `cargo run --release --example own_rows`
//!
//! Prints of both the loss, the requests to the device, the bytes that they move and the time, forward
//! and backward. The loss is that of van den Oord et al. 2018, arXiv:1807.03748.
#![forbid(unsafe_code)]

use std::time::Instant;
use teeny_autograd::{Autograd, Grad};
use teeny_core::wrappers::Trace;
use teeny_core::{DType, Expr, Result, Tensor, manual_seed, map_rows};
use teeny_cpu::Cpu;

const PAIRS: usize = 512;
const WIDTH: usize = 256;
const TEMPERATURE: f64 = 0.07;

/// `x / |x|` of each row, written for one element.
fn unit(x: Expr<'_>) -> Expr<'_> {
    x / (x.square().sum() + 1e-12).sqrt()
}

/// The loss of each row of scores whose own column is `own`: (n, 1).
fn loss_of_row<'b>(scores: Expr<'b>, own: Expr<'b>) -> Expr<'b> {
    scores.logsumexp() - scores.at(own)
}

fn by_rows(a: &Tensor, b: &Tensor, own: &Tensor) -> Result<Tensor> {
    let (a, b) = (map_rows([a], -1, |[a]| unit(a))?, map_rows([b], -1, |[b]| unit(b))?); // (n, width)
    let scores = a.matmul(&b.t()?)?.div(TEMPERATURE)?; // (n, n)
    map_rows([&scores, own], -1, |[scores, own]| loss_of_row(scores, own))?.mean_all()
}

fn by_operations(a: &Tensor, b: &Tensor, own: &Tensor) -> Result<Tensor> {
    let unit = |x: &Tensor| x.div(&x.square()?.sum_keepdim(-1)?.add(1e-12)?.sqrt()?);
    let scores = unit(a)?.matmul(&unit(b)?.t()?)?.div(TEMPERATURE)?; // (n, n)
    let max = scores.max_keepdim(-1)?.detach()?; // (n, 1)
    let sum = scores.sub(&max)?.exp()?.sum_keepdim(-1)?; // (n, 1)
    sum.log()?.add(&max)?.sub(&scores.gather(1, own)?)?.mean_all()
}

fn main() -> Result<()> {
    manual_seed(1);
    let trace = Trace::new(Cpu::new());
    let device = Autograd::new(&trace);
    let draw = || Tensor::randn((PAIRS, WIDTH), DType::F32, &device)?.requires_grad();
    let (a, b) = (draw()?, draw()?); // (n, width)
    let own = Tensor::arange(0i64, PAIRS as i64, 1, &device)?.unsqueeze(1)?; // (n, 1)
    type Loss = fn(&Tensor, &Tensor, &Tensor) -> Result<Tensor>;
    let forms: [(&str, Loss); 2] = [("operations", by_operations), ("row programs", by_rows)];
    println!("{:<13} {:>9} {:>9} {:>9} {:>9}", "", "loss", "requests", "MB", "ms");
    let mut gradients = Vec::new();
    for (name, loss) in forms {
        loss(&a, &b, &own)?.backward()?; // kernels and derivatives are built once
        trace.clear();
        let start = Instant::now();
        let value = loss(&a, &b, &own)?;
        gradients.push(value.backward()?.take(&a)?);
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let spans = trace.spans();
        let bytes: u64 = spans.iter().map(|span| span.bytes).sum();
        let (loss, megabytes) = (value.item::<f32>()?, bytes as f64 / 1e6);
        println!("{name:<13} {loss:>9.4} {:>9} {megabytes:>9.2} {ms:>9.2}", spans.len());
    }
    let difference = gradients[0].sub(&gradients[1])?.abs()?.max_all()?.item::<f32>()?;
    println!("the gradients differ by at most {difference:.1e}");
    Ok(())
}
