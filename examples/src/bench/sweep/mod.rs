//! Random workloads: operations at the shapes, layouts, types and parameters that models have.
//!
//! ```text
//!   draw     random sizes: layers of published models, and log-uniform ones
//!   case     an operation with its operands, as a line of JSON
//!   ops      a row per operation: how a case of it is drawn, and its call
//!   models   whole models, in inference and training
//! ```
//! A line has all that another library needs to do the same work, so that
//! `examples/compare/torch_sweep.py` times the two in turn. Cases depend on the seed and their
//! number alone.

pub mod case;
mod draw;
mod models;
mod ops;

use super::{digits, median};
use case::Case;
use draw::Draw;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::{Duration, Instant};
use teeny_autograd::{Autograd, Grad};
use teeny_core::{DType, DeviceRef, Error, ErrorKind, Result, Tensor, manual_seed};

/// Case after case, each timed and printed as a line of JSON.
pub struct Sweep {
    /// The device that does the work.
    pub device: DeviceRef,
    /// The seed of the cases.
    pub seed: u64,
    /// How many cases are drawn.
    pub cases: usize,
    /// Whether each case includes the gradients of its operands.
    pub grad: bool,
    /// The types that are drawn.
    pub dtypes: Vec<DType>,
    /// The operations that are drawn: all if empty.
    pub only: Vec<String>,
    /// Whole models instead of single operations.
    pub models: bool,
    /// Whether to time a case again for each line of standard input that says `again`, and to go on
    /// to the next for any other.
    pub turns: bool,
}

/// The times of one case, in seconds.
struct Times {
    least: f64,
    median: f64,
}

/// One run of a case, to the end.
type Run<'a> = dyn FnMut() -> Result<()> + 'a;

impl Sweep {
    /// Times all cases.
    ///
    /// # Errors
    /// If no operation has the selected name, type and a gradient, and if the device fails.
    pub fn run(&self) -> Result<()> {
        if self.models {
            return models::each(self.grad, &self.only, |number, line, build| {
                self.time(number, line, &mut || build(&self.device))
            });
        }
        let rows = ops::rows(&self.dtypes, self.grad, &self.only);
        let total: usize = rows.iter().map(|row| row.weight).sum();
        if total == 0 {
            return Err(Error::value("no operation of that name has these types and a gradient"));
        }
        for number in 0..self.cases {
            let mut draw = Draw::new(self.seed, number);
            let mut ticket = draw.below(total);
            let row = rows.iter().find(|row| {
                let found = ticket < row.weight;
                ticket = ticket.wrapping_sub(row.weight);
                found
            });
            let row = row.expect("the ticket is below the total");
            let case = row.draw(&mut draw, &row.types_of(&self.dtypes, self.grad), self.grad);
            match self.time(number, &case.line(), &mut || self.prepare(number, &case)) {
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    eprintln!("# {} is left out: {error}", case.op);
                }
                result => result?,
            }
        }
        Ok(())
    }

    /// The operands of `case`, and the run that uses them.
    fn prepare<'c>(&self, number: usize, case: &'c Case) -> Result<Box<Run<'c>>> {
        manual_seed(number as u64);
        let device = &self.device;
        let grad = case.grad;
        let on: DeviceRef = if grad { Autograd::new(device.clone()) } else { device.clone() };
        let operands = case
            .inputs
            .iter()
            .map(|input| {
                let x = input.on(&on)?;
                if grad && input.has_grad(x.dtype()) { x.requires_grad() } else { Ok(x) }
            })
            .collect::<Result<Vec<Tensor>>>()?;
        let device = device.clone();
        if !grad {
            return Ok(Box::new(move || {
                let y = (case.call)(&on, &operands)?;
                device.synchronize()?;
                drop(black_box(y));
                Ok(())
            }));
        }
        let y = (case.call)(&on, &operands)?;
        let g = Tensor::randn(*y.shape(), y.dtype(), &device)?;
        Ok(Box::new(move || {
            let y = (case.call)(&on, &operands)?;
            let gradients = y.into_backward_with(&g)?;
            device.synchronize()?;
            drop(black_box(gradients));
            Ok(())
        }))
    }

    /// Times what `prepare` makes and prints `line` with its times; again on request.
    fn time<'c>(
        &self,
        number: usize,
        line: &str,
        prepare: &mut dyn FnMut() -> Result<Box<Run<'c>>>,
    ) -> Result<()> {
        let mut input = std::io::stdin().lock();
        let mut run = prepare()?;
        loop {
            let Times { least, median } = clock(&mut *run)?;
            let (least, median) = (digits(least * 1e3), digits(median * 1e3));
            println!(r#"{{"case":{number},{line},"least_ms":{least},"ms":{median}}}"#);
            std::io::stdout().flush().ok();
            let mut answer = String::new();
            if !self.turns || input.read_line(&mut answer).is_err() || answer.trim() != "again" {
                return Ok(());
            }
        }
    }
}

/// Times `run`: at least three runs in at least 20 ms to warm up, then samples of at least 50 us
/// for at least 60 ms, five of them at least.
fn clock(run: &mut Run<'_>) -> Result<Times> {
    let mut group = |n: usize| -> Result<f64> {
        let start = Instant::now();
        for _ in 0..n {
            run()?;
        }
        Ok(start.elapsed().as_secs_f64() / n as f64)
    };
    let mut warm = Vec::new();
    let start = Instant::now();
    while warm.len() < 3 || start.elapsed() < Duration::from_millis(20) {
        warm.push(group(1)?);
    }
    let n = ((5e-5 / median(&mut warm[1..])).ceil() as usize).clamp(1, 1000);
    let mut samples = Vec::new();
    let start = Instant::now();
    while samples.len() < 5 || start.elapsed() < Duration::from_millis(60) {
        samples.push(group(n)?);
    }
    let median = median(&mut samples);
    Ok(Times { least: samples[0], median })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations of the conformance suite that have another name here.
    const RENAMED: &[(&str, &str)] = &[
        ("random integers", "randint"),
        ("sum_keepdim", "sum"),
        ("max of ties", "max"),
        ("cummax, positions", "cummax"),
        ("cummin", "cummax"),
        ("cummin, positions", "cummax"),
        ("argmax with NaN", "argmax"),
        ("add a number", "add"),
        ("mul by a number", "mul"),
        ("div by a number", "div"),
        ("maximum with a number", "maximum"),
        ("sub over its left side", "sub"),
        ("sub over its right side", "sub"),
        ("kernel of three outputs", "chain"),
        ("kernel of eight inputs", "chain"),
        ("kernel that casts", "chain"),
        ("kernel with parameters", "chain"),
        ("map of four steps", "chain"),
        ("reduce of a kernel", "logical_sum"),
        ("assign", "slice_assign"),
        ("assign by index", "slice_assign"),
        ("assign, from itself", "slice_assign"),
        ("assign, shared", "slice_assign"),
        ("view, copied", "copy"),
        ("einsum", "bmm"),
        ("conv", "conv2d"),
        ("conv_weight_grad", "conv2d"),
        ("conv_transpose", "conv_transpose2d"),
        ("max_pool", "max_pool2d"),
        ("avg_pool", "avg_pool2d"),
    ];
    /// Operations that do no work, that PyTorch has no function for, or that only a recorded
    /// program requests (the rows `lazy/` of the bench time these).
    const LEFT_OUT: &[&str] = &[
        "cbrt",
        "conv_kernel",
        "div_trunc",
        "eig",
        "fmod",
        "heaviside",
        "index outside",
        "linspace",
        "log10",
        "elementwise_many",
        "matmul_kernel",
        "new storage",
        "positions",
        "request",
        "upload, download",
        "view",
    ];

    fn sweep(grad: bool, dtypes: Vec<DType>) -> Sweep {
        Sweep {
            device: teeny_cpu::Cpu::new(),
            seed: 1,
            cases: 0,
            grad,
            dtypes,
            only: vec![],
            models: false,
            turns: false,
        }
    }

    #[test]
    fn every_row_draws_cases_that_run() -> Result<()> {
        for grad in [false, true] {
            let sweep = sweep(grad, DType::ALL.to_vec());
            for row in ops::rows(&sweep.dtypes, grad, &[]) {
                let mut ran = 0;
                for number in 0..100 {
                    let mut draw = Draw::new(7, number);
                    let case = row.draw(&mut draw, &row.types_of(&sweep.dtypes, grad), grad);
                    let numel = |input: &case::Input| input.shape.iter().product::<usize>();
                    let small = case.inputs.iter().map(numel).sum::<usize>() < 100_000;
                    if small || number == 99 && ran == 0 {
                        match sweep.prepare(number, &case).and_then(|mut run| run()) {
                            Err(error) if error.kind() == ErrorKind::Unsupported => {}
                            result => result.map_err(|error| {
                                Error::value(format!("{}: {error}", case.line()))
                            })?,
                        }
                        ran += 1;
                    }
                    if ran == 3 {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    #[test]
    fn every_operation_of_the_conformance_suite_takes_part() {
        let rows: Vec<&str> =
            ops::rows(&DType::ALL, false, &[]).iter().map(|row| row.name).collect();
        let mut missing = std::collections::BTreeSet::new();
        teeny_conformance::each(|trial| {
            let op = trial.op();
            let renamed = RENAMED.iter().find(|(name, _)| *name == op).map(|&(_, name)| name);
            let name = renamed.unwrap_or(op).trim_end_matches("_grad");
            // "lt of a number" is a case of "lt", which has a row.
            let of_number = op.contains("number") || op.contains("over its left side");
            if !of_number && !rows.contains(&name) && !LEFT_OUT.contains(&op) {
                missing.insert(op);
            }
        });
        assert!(missing.is_empty(), "not in the sweep: {missing:?}");
    }
}
