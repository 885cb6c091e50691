//! Fusion by the recording device: a `Trace` counts the operations that run on the wrapped device.

use std::sync::Arc;
use teeny_core::wrappers::{Span, Trace};
use teeny_core::{DType, Lazy, LazyOptions, Reference, Result, Tensor, Window, random};

struct Lab {
    lazy: Arc<Lazy>,
    trace: Arc<Trace>,
}

impl Lab {
    fn new() -> Lab {
        Lab::with_options(LazyOptions::default())
    }

    fn with_options(options: LazyOptions) -> Lab {
        let trace = Trace::new(Reference::new());
        Lab { lazy: Lazy::with_options(trace.clone(), options), trace }
    }

    /// Random numbers that are computed.
    fn input(&self, shape: &[usize]) -> Tensor {
        let x = Tensor::randn(shape, DType::F32, &self.lazy).unwrap();
        x.to_vec::<f32>().unwrap();
        x
    }

    /// The operations that run on the wrapped device to read the result of `f` on inputs of these
    /// shapes, and the elements. Checks that `f` on `Reference` gives the same elements.
    fn run<const N: usize>(
        &self,
        shapes: [&[usize]; N],
        f: impl Fn([Tensor; N]) -> Result<Tensor>,
    ) -> Vec<Span> {
        let inputs = shapes.map(|shape| self.input(shape));
        let reference = Reference::new();
        let eager = inputs.each_ref().map(|x| x.to(&reference).unwrap());
        self.trace.clear();
        let y = f(inputs).unwrap();
        assert!(self.trace.spans().is_empty(), "recording runs nothing");
        let got = y.to_vec::<f32>().unwrap();
        let spans: Vec<Span> =
            self.trace.spans().into_iter().filter(|span| span.op != "download").collect();
        let want = f(eager).unwrap().to_vec::<f32>().unwrap();
        let bits = |all: &[f32]| all.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&got), bits(&want));
        spans
    }

    /// How many operations run.
    fn count<const N: usize>(
        &self,
        shapes: [&[usize]; N],
        f: impl Fn([Tensor; N]) -> Result<Tensor>,
    ) -> usize {
        self.run(shapes, f).len()
    }
}

#[test]
fn chains_of_elementwise_operations_are_one_kernel() {
    let lab = Lab::new();
    let s: &[usize] = &[4, 6];
    assert_eq!(lab.count([s, s, s], |[x, y, z]| x.add(&y)?.mul(&z)), 1);
    assert_eq!(lab.count([s, s], |[x, y]| x.add(&y)?.sin()?.mul(x.abs()?.sqrt()?)), 1);
    assert_eq!(
        lab.count([s, s, s, s], |[x, a, b, c]| a.mul(&x)?.add(&b)?.relu()?.mul(&c)?.sub(&x)),
        1
    );
    // A row of numbers is read by each row; a number is part of the program.
    assert_eq!(lab.count([s, &[6]], |[x, bias]| x.add(&bias)?.mul(2.0)?.gelu()), 1);
    assert_eq!(
        lab.count([s], |[x]| x.mul(Tensor::full((), 3.0, DType::F32, x.device())?)?.tanh()),
        1
    );
}

#[test]
fn a_thousand_additions_are_one_kernel_of_one_number() {
    let lab = Lab::new();
    let many = |[x]: [Tensor; 1]| {
        let mut y = x;
        for _ in 0..1000 {
            y = y.add(1.0)?;
        }
        Ok(y)
    };
    assert_eq!(lab.count([&[5]], many), 1);
}

#[test]
fn views_between_kernels_are_no_work() {
    let lab = Lab::new();
    let s: &[usize] = &[4, 6];
    assert_eq!(lab.count([s], |[x]| x.exp()?.t()?.mul(2.0)), 1);
    assert_eq!(lab.count([s], |[x]| x.exp()?.slice(0, 1..3)?.add(1.0)), 1);
    assert_eq!(lab.count([s], |[x]| x.exp()?.flip(1)?.add(1.0)), 1);
    assert_eq!(lab.count([s], |[x]| x.exp()?.reshape((2, 12))?.add(1.0)), 1);
    assert_eq!(lab.count([s, &[2, 2, 6]], |[x, y]| x.exp()?.reshape((2, 2, 6))?.add(&y)), 1);
    // A row whose sum of squares is repeated is cheap to compute again, a function is not.
    assert_eq!(lab.count([&[6], s], |[row, x]| row.mul(2.0)?.add(&x)), 1);
    assert_eq!(lab.count([&[6], &[4000, 6]], |[row, x]| row.exp()?.add(&x)), 2);
    // A copy between kernels is part of them.
    assert_eq!(lab.count([s], |[x]| x.exp()?.t()?.contiguous()?.add(1.0)), 1);
}

#[test]
fn a_kernel_moves_what_it_reads_and_writes() {
    let lab = Lab::new();
    let s: &[usize] = &[8, 16];
    let spans = lab.run([s, s, s], |[x, y, z]| x.add(&y)?.mul(&z));
    assert_eq!(spans[0].bytes, 4 * 8 * 16 * 4);
}

#[test]
fn a_value_with_two_readers_is_computed_in_one_kernel() {
    let lab = Lab::new();
    let s: &[usize] = &[3, 5];
    let diamond = |[x]: [Tensor; 1]| {
        let y = x.exp()?;
        y.add(1.0)?.mul(y.neg()?)
    };
    assert_eq!(lab.count([s], diamond), 1);
    assert_eq!(lab.lazy.counters().unfused, 0);
}

#[test]
fn a_held_value_is_one_more_output() {
    let lab = Lab::new();
    let x = lab.input(&[3, 5]);
    lab.trace.clear();
    let middle = x.exp().unwrap();
    let y = middle.add(1.0).unwrap();
    let got = y.to_vec::<f32>().unwrap();
    let middle: Vec<f32> = middle.to_vec().unwrap();
    assert!(middle.iter().zip(&got).all(|(m, y)| m + 1.0 == *y));
    let names: Vec<_> = lab.trace.spans().iter().map(|span| span.op).collect();
    assert_eq!(names, ["kernel", "download", "download"]);
}

#[test]
fn more_tensors_than_a_kernel_reads_are_two_kernels() {
    let lab = Lab::new();
    let s: &[usize] = &[5];
    let sum = |all: [Tensor; 9]| all[1..].iter().try_fold(all[0].clone(), |sum, x| sum.add(x));
    assert_eq!(lab.count([s; 9], sum), 2);
}

#[test]
fn an_operation_in_front_of_a_reduction_is_part_of_it_where_the_order_has_no_effect() {
    let s: &[usize] = &[4, 6];
    let (exact, any_order) =
        (Lab::new(), Lab::with_options(LazyOptions::new().with_reassociate(true)));
    for (lab, sums) in [(&exact, 2), (&any_order, 1)] {
        assert_eq!(lab.count([s], |[x]| x.exp()?.max(1)), 1);
        assert_eq!(lab.count([s], |[x]| x.exp()?.sum(1)), sums);
        assert_eq!(lab.count([s], |[x]| x.t()?.contiguous()?.max(0)), 1);
    }
}

/// 16-bit floats between two operations are rounded as if they had been stored.
#[test]
fn sixteen_bit_chains_have_the_bits_of_eager_ones() {
    random::with_seed(3, || {
        let lab = Lab::new();
        for dtype in [DType::F16, DType::BF16] {
            let half = |[x, y]: [Tensor; 2]| {
                let (x, y) = (x.cast(dtype)?, y.cast(dtype)?);
                x.mul(&y)?.add(&y)?.exp()?.sub(&x)?.cast(DType::F32)
            };
            assert_eq!(lab.count([&[50, 20], &[50, 20]], half), 1);
        }
    });
}

/// A value computed before an assignment keeps the elements of before.
#[test]
fn an_assignment_does_not_change_what_was_recorded_before() {
    let lab = Lab::new();
    let x = Tensor::new([1.0f32, 2.0, 3.0], &lab.lazy).unwrap().add(0.0).unwrap();
    let before = x.mul(10.0).unwrap();
    let x = x.assign(0..2, Tensor::new([7.0f32, 8.0], &lab.lazy).unwrap()).unwrap();
    let both = before.add(&x).unwrap();
    assert_eq!(both.to_vec::<f32>().unwrap(), [17.0, 28.0, 33.0]);
}

/// A hundred calls with new data and new numbers: one plan, one kernel.
#[test]
fn equal_work_finds_its_plan() {
    let lab = Lab::new();
    for i in 0..100 {
        let x = Tensor::new([i as f32, 1.0], &lab.lazy).unwrap();
        let y = x.add(i as f32).unwrap().exp().unwrap().mul(0.5 + i as f32).unwrap();
        let want = (2.0 * i as f32).exp() * (0.5 + i as f32);
        let got: Vec<f32> = y.to_vec().unwrap();
        assert!(got[0] == want || (got[0] - want).abs() <= 1e-5 * want, "{i}: {got:?} {want}");
    }
    let counters = lab.lazy.counters();
    assert_eq!((counters.plans, counters.hits, counters.kernels), (1, 99, 1));
    // Another shape is another plan of the same kernel.
    let x = Tensor::new([1.0f32, 2.0, 3.0], &lab.lazy).unwrap();
    let y = x.add(1.5).unwrap().exp().unwrap().mul(2.5).unwrap();
    y.to_vec::<f32>().unwrap();
    let counters = lab.lazy.counters();
    assert_eq!((counters.plans, counters.kernels), (2, 1));
}

#[test]
fn what_follows_a_product_is_part_of_it() {
    let lab = Lab::new();
    let linear = |[x, w, b]: [Tensor; 3]| x.matmul(&w)?.add(&b)?.gelu();
    let spans = lab.run([&[4, 6], &[6, 5], &[5]], linear);
    assert_eq!(spans.iter().map(|span| span.op).collect::<Vec<_>>(), ["matmul_kernel"]);
    // Read by two operations of one kernel, and in a batch.
    assert_eq!(
        lab.count([&[3, 4, 6], &[3, 6, 5]], |[x, w]| {
            let y = x.matmul(&w)?;
            y.mul(y.neg()?.exp()?)
        }),
        1
    );
    let conv =
        |[x, w, b]: [Tensor; 3]| x.conv(&w, &Window::new(2))?.add(b.reshape((4, 1, 1))?)?.relu();
    let spans = lab.run([&[2, 3, 8, 8], &[4, 3, 3, 3], &[4]], conv);
    assert_eq!(spans.iter().map(|span| span.op).collect::<Vec<_>>(), ["conv_kernel"]);
    // A part of it is not all of its elements.
    assert_eq!(lab.count([&[4, 6], &[6, 4]], |[x, w]| x.matmul(&w)?.slice(0, 1..3)?.exp()), 2);
}

#[test]
fn a_held_product_is_one_more_output() {
    let lab = Lab::new();
    let (x, w) = (lab.input(&[3, 5]), lab.input(&[5, 4]));
    lab.trace.clear();
    let product = x.matmul(&w).unwrap();
    let y = product.add(1.0).unwrap();
    let got = y.to_vec::<f32>().unwrap();
    let product: Vec<f32> = product.to_vec().unwrap();
    assert!(product.iter().zip(&got).all(|(m, y)| m + 1.0 == *y));
    let names: Vec<_> = lab.trace.spans().iter().map(|span| span.op).collect();
    assert_eq!(names, ["matmul_kernel", "download", "download"]);
}

/// The sum is computed again by two kernels; only one of them could have the product.
#[test]
fn a_product_that_two_kernels_read_is_stored() {
    let lab = Lab::new();
    let run = |[x, w]: [Tensor; 2]| {
        let y = x.matmul(&w)?;
        let p = y.add(1.0)?;
        let (a, b) = (y.mul(&p)?, p.neg()?);
        drop((y, p));
        let (a, b) = (a.cumsum(0)?, b.cumsum(1)?);
        a.add(&b)
    };
    assert_eq!(lab.count([&[4, 6], &[6, 4]], run), 6);
    assert_eq!(lab.lazy.counters().unfused, 0);
}
