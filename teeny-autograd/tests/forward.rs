//! A30: tangents of every operation: against central differences, against the gradients, for every
//! layout.
use crate::common;
use crate::common::cases::{Case, all};
use crate::common::{close, values, vec};
use std::sync::Arc;
use teeny_autograd::{Autograd, Forward, Grad, allow_unused, apply, checkpoint, hvp, jvp, vjp};
use teeny_conformance::{Suite, every};
use teeny_core::{
    Builder, DType, Distribution, Expr, Key, Reference, Result, SortOrder, Tensor, map_n, map_sum,
};
use teeny_cpu::Cpu;

/// A fixed direction in the shape of `x`, away from 0.
fn direction(x: &Tensor, seed: u64) -> Tensor {
    Tensor::random(
        Distribution::Uniform { low: 0.5, high: 1.5 },
        x.shape(),
        DType::F64,
        Key { seed, draw: 7 },
        x,
    )
    .unwrap()
}

fn dot(a: &Tensor, b: &Tensor) -> f64 {
    a.mul(b).unwrap().sum_all().unwrap().item().unwrap()
}

type View = fn(&Tensor, &[usize]) -> Result<Tensor>;

/// The tangent agrees with the central difference along the direction, and with the gradient:
/// `<g, J v> = <Jᵀ g, v>`.
fn check(case: &Case, layout: &str, base: fn(&[usize]) -> Vec<usize>, view: View) {
    let x = case.inputs(Reference::new(), base);
    let v: Vec<Tensor> = x.iter().enumerate().map(|(i, x)| direction(x, i as u64)).collect();
    let f = |x: &Vec<Tensor>| {
        (case.f)(
            &x.iter()
                .zip(case.shapes)
                .map(|(x, shape)| view(x, shape))
                .collect::<Result<Vec<_>>>()?,
        )
    };
    let name = |what: &str| format!("{what} of {} of {layout} inputs", case.name);
    let (y, along) = jvp(f, &x, &v).unwrap_or_else(|e| panic!("{}: {e}", name("tangent")));
    assert_eq!(vec(&y), vec(&f(&x).unwrap()), "{}", name("value"));

    const EPS: f64 = 1e-5;
    let shifted = |step: f64| {
        vec(&f(&x.iter().zip(&v).map(|(x, v)| x.add(v.mul(step).unwrap()).unwrap()).collect())
            .unwrap())
    };
    for (t, (high, low)) in vec(&along).iter().zip(shifted(EPS).iter().zip(&shifted(-EPS))) {
        let numeric = (high - low) / (2.0 * EPS);
        assert!(
            (t - numeric).abs() <= 2e-6 * t.abs().max(numeric.abs()).max(1e-2),
            "{}: {t} and {numeric}",
            name("tangent")
        );
    }
    let g = direction(&y, 99);
    let (_, back) = vjp(f, &x, &g).unwrap();
    let (left, right): (f64, f64) =
        (dot(&g, &along), back.iter().zip(&v).map(|(b, v)| dot(b, v)).sum());
    let scale = vec(&along).iter().map(|t| t.abs()).sum::<f64>().max(1.0);
    assert!((left - right).abs() <= 1e-10 * scale, "{}: {left} and {right}", name("adjoint"));
}

/// Calls `body` with every case. Cases of a group have the same inputs, of which some use a part.
fn each_case(body: impl Fn(&Case)) {
    allow_unused(|| all().iter().for_each(body));
}

fn check_all(layout: &str, base: fn(&[usize]) -> Vec<usize>, view: View) {
    each_case(|case| check(case, layout, base, view));
}

#[test]
fn tangents_of_packed_inputs() {
    check_all("packed", |s| s.to_vec(), |x, _| Ok(x.clone()));
}

#[test]
fn tangents_of_transposed_inputs() {
    check_all(
        "transposed",
        |s| s.iter().rev().copied().collect(),
        |x, _| x.permute((0..x.ndim()).rev().collect::<Vec<_>>()),
    );
}

#[test]
fn tangents_of_flipped_inputs() {
    check_all("flipped", |s| s.to_vec(), |x, _| x.flip(..));
}

#[test]
fn tangents_of_sliced_inputs() {
    let view: View = |x, shape| {
        shape
            .iter()
            .enumerate()
            .try_fold(x.clone(), |x, (axis, n)| x.slice(axis as isize, 1..n + 1))
    };
    check_all("sliced", |s| s.iter().map(|n| n + 2).collect(), view);
}

#[test]
fn tangents_of_stepped_inputs() {
    let base = |s: &[usize]| [&[2 * s[0]], &s[1..]].concat();
    check_all("stepped", base, |x, _| x.slice_step(0, .., -2));
}

#[test]
fn tangents_of_expanded_inputs() {
    let base = |s: &[usize]| [&[1], &s[1..]].concat();
    check_all("expanded", base, |x, shape| x.expand(shape));
}

/// `sum(g * f(x))` for a fixed `g`: every element of the result counts, none the same.
fn projected(case: &Case, x: &[Tensor]) -> Result<Tensor> {
    let y = (case.f)(x)?;
    let g = Tensor::random(
        Distribution::Uniform { low: 0.5, high: 1.5 },
        y.shape(),
        DType::F64,
        Key { seed: 20, draw: 26 },
        &y,
    )?;
    y.mul(&g)?.square()?.sum_all()
}

#[test]
fn forward_over_reverse_agrees_with_reverse_over_reverse_for_every_operation() {
    each_case(|case| {
        let x = case.inputs(Reference::new(), |s| s.to_vec());
        let v: Vec<Tensor> = x.iter().enumerate().map(|(i, x)| direction(x, i as u64)).collect();
        let (gradient, along) = hvp(|x: &Vec<Tensor>| projected(case, x), &x, &v)
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
        let slope = |x: &Vec<Tensor>| {
            let (_, g) = vjp(
                |x: &Vec<Tensor>| projected(case, x),
                x,
                &Tensor::ones((), DType::F64, &x[0])?,
            )?;
            g.iter().zip(&v).try_fold(Tensor::zeros((), DType::F64, &x[0])?, |sum, (g, v)| {
                sum.add(&g.mul(v)?.sum_all()?)
            })
        };
        let (_, twice) = vjp(slope, &x, &Tensor::ones((), DType::F64, &x[0]).unwrap()).unwrap();
        let (_, once) = vjp(
            |x: &Vec<Tensor>| projected(case, x),
            &x,
            &Tensor::ones((), DType::F64, &x[0]).unwrap(),
        )
        .unwrap();
        for i in 0..x.len() {
            let compare = |what: &str, a: &Tensor, b: &Tensor| {
                let (a, b) = (vec(a), vec(b));
                let scale = a.iter().chain(&b).fold(1.0f64, |m, x| m.max(x.abs()));
                assert!(
                    a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-9 * scale),
                    "{what} {i} of {}: {a:?}\n{b:?}",
                    case.name
                );
            };
            compare("gradient", &gradient[i], &once[i]);
            compare("product", &along[i], &twice[i]);
        }
    });
}

#[test]
fn reverse_over_forward_agrees_with_forward_over_reverse_for_every_operation() {
    each_case(|case| {
        let x = case.inputs(Reference::new(), |s| s.to_vec());
        let v: Vec<Tensor> = x.iter().enumerate().map(|(i, x)| direction(x, i as u64)).collect();
        let f = |x: &Vec<Tensor>| projected(case, x);
        let (_, forward) = hvp(f, &x, &v).unwrap();
        let slope = |x: &Vec<Tensor>| Ok(jvp(f, x, &v)?.1);
        let (_, reverse) = vjp(slope, &x, &Tensor::ones((), DType::F64, &x[0]).unwrap())
            .unwrap_or_else(|e| panic!("{}: {e}", case.name));
        for (a, b) in forward.iter().zip(&reverse) {
            let (a, b) = (vec(a), vec(b));
            let scale = a.iter().chain(&b).fold(1.0f64, |m, x| m.max(x.abs()));
            assert!(
                a.iter().zip(&b).all(|(a, b)| (a - b).abs() <= 1e-9 * scale),
                "{}: {a:?}\n{b:?}",
                case.name
            );
        }
    });
}

#[test]
fn tangents_over_the_cpu_equal_those_over_the_oracle() {
    let cpu = Cpu::new();
    each_case(|case| {
        let x = case.inputs(Reference::new(), |s| s.to_vec());
        let v: Vec<Tensor> = x.iter().enumerate().map(|(i, x)| direction(x, i as u64)).collect();
        let there = |x: &[Tensor]| x.iter().map(|x| x.to(&cpu).unwrap()).collect::<Vec<_>>();
        let f = |x: &Vec<Tensor>| (case.f)(x);
        close(
            &vec(&jvp(f, &x, &v).unwrap().1),
            &vec(&jvp(f, &there(&x), &there(&v)).unwrap().1),
            1e-9,
        );
    });
}

#[test]
fn a_forward_device_passes_the_suite_of_devices() {
    let n = every(8);
    let report = Suite::new(Forward::new(Reference::new())).every(n).run();
    assert!(report.passed() && n * report.cases() > 10_000, "{report}");
}

#[test]
fn products_of_zeros_have_exact_tangents() {
    // (3, 5)
    let x = Tensor::new(
        [[2.0f64, 0.0, 3.0, 0.0, 5.0], [0.0, 4.0, 2.0, 5.0, 0.0], [1.0, 2.0, 3.0, 4.0, 0.0]],
        Reference::new(),
    )
    .unwrap();
    let v = Tensor::from_vec((1..16).map(f64::from).collect(), (3, 5), &x).unwrap(); // (3, 5)
    let cumprod = vec(&jvp(|x| x.cumprod(1), &x, &v).unwrap().1);
    assert_eq!(
        cumprod,
        [1.0, 4.0, 12.0, 0.0, 0.0, 6.0, 24.0, 48.0, 240.0, 0.0, 11.0, 34.0, 128.0, 596.0, 360.0]
    );
    assert_eq!(vec(&jvp(|x| x.prod(1), &x, &v).unwrap().1), [0.0, 0.0, 360.0]);
    // Twice along v: 2 Σ v_i v_j times the product of the others.
    let second = jvp(|x| Ok(jvp(|x| x.cumprod(1), x, &v)?.1), &x, &v).unwrap().1;
    assert_eq!(vec(&second.at(0, 0).unwrap()), [0.0, 4.0, 36.0, 96.0, 480.0]);
}

#[test]
fn equal_extrema_share_their_tangents_as_they_share_gradients() {
    // (2, 3)
    let x = Tensor::new([[1.0f64, 3.0, 3.0], [2.0, 2.0, 2.0]], Reference::new()).unwrap();
    let v = Tensor::new([[8.0f64, 1.0, 5.0], [3.0, 6.0, 0.0]], &x).unwrap(); // (2, 3)
    assert_eq!(vec(&jvp(|x| x.max(1), &x, &v).unwrap().1), [3.0, 3.0]);
    assert_eq!(vec(&jvp(|x| x.maximum(2.0), &x, &v).unwrap().1), [0.0, 1.0, 5.0, 0.0, 0.0, 0.0]);
    assert_eq!(
        vec(&jvp(|x| x.relu(), &x.sub(2.0).unwrap(), &v).unwrap().1),
        [0.0, 1.0, 5.0, 0.0, 0.0, 0.0]
    );
    let nan = Tensor::new([f64::NAN, 1.0], &x).unwrap();
    assert!(vec(&jvp(|x| x.max(0), &nan, &nan.ones_like().unwrap()).unwrap().1)[0].is_nan());
}

#[test]
fn sigmoid_has_a_finite_tangent_where_the_exponential_overflows() {
    let x = Tensor::new([-1000.0f64, 1000.0, 0.0], Reference::new()).unwrap(); // (3)
    let v = x.ones_like().unwrap();
    assert_eq!(vec(&jvp(|x| x.sigmoid(), &x, &v).unwrap().1), [0.0, 0.0, 0.25]);
    assert_eq!(vec(&jvp(|x| x.silu(), &x, &v).unwrap().1), [0.0, 1.0, 0.5]);
}

#[test]
fn a_kernel_at_the_limits_has_tangents_too() {
    // Eight operands that move: no kernel reads sixteen tensors. Four results: no kernel writes
    // eight.
    let reference = Reference::new();
    let x: Vec<Tensor> =
        (0..8).map(|i| values(5, &reference).add(0.1 * i as f64).unwrap()).collect();
    let v: Vec<Tensor> = x.iter().enumerate().map(|(i, x)| direction(x, i as u64)).collect();
    let all = |x: &Vec<Tensor>| {
        let [a, b, c, d] = map_n(
            [&x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], &x[7]],
            |[a, b, c, d, e, f, g, h]: [Expr<'_>; 8]| {
                [
                    (a * b + c * d).sin() * (e * f - g * h),
                    a * b,
                    a + 1.0,
                    c.gt(0.0).where_cond(c, d.exp()),
                ]
            },
        )?;
        Ok(vec![a, b, c, d])
    };
    let sum = |x: &Vec<Tensor>| {
        map_sum(
            [&x[0], &x[1], &x[2], &x[3], &x[4], &x[5], &x[6], &x[7]],
            0,
            |[a, b, c, d, e, f, g, h]: [Expr<'_>; 8]| (a * b + c * d + e * f - g * h).sin(),
        )
    };
    let (y, along) = jvp(all, &x, &v).unwrap();
    for (o, (y, t)) in y.iter().zip(&along).enumerate() {
        let g = direction(y, 5);
        let (_, back) = vjp(|x: &Vec<Tensor>| Ok(all(x)?.swap_remove(o)), &x, &g).unwrap();
        close(&[dot(&g, t)], &[back.iter().zip(&v).map(|(b, v)| dot(b, v)).sum()], 1e-12);
    }
    let (_, back) = vjp(sum, &x, &Tensor::ones((), DType::F64, &x[0]).unwrap()).unwrap();
    close(
        &vec(&jvp(sum, &x, &v).unwrap().1),
        &[back.iter().zip(&v).map(|(b, v)| dot(b, v)).sum()],
        1e-12,
    );
}

#[test]
fn half_precision_tangents_have_the_type_of_their_value() {
    for dtype in [DType::F16, DType::BF16] {
        let x = values((2, 3), Reference::new()).cast(dtype).unwrap();
        let w = values((3, 2), &x).cast(DType::F32).unwrap();
        let f = |x: &Tensor| x.layer_norm(1, None, None, 1e-5)?.softmax(0)?.log_softmax(1);
        let (y, t) = jvp(f, &x, &x.ones_like().unwrap()).unwrap();
        assert_eq!((y.dtype(), t.dtype()), (dtype, dtype));
        let (y, t) = jvp(|x| x.matmul(&w)?.gelu(), &x, &x.ones_like().unwrap()).unwrap();
        assert_eq!((y.dtype(), t.dtype()), (DType::F32, DType::F32));
        let wide = x.cast(DType::F32).unwrap();
        let (_, expected) =
            jvp(|x| x.matmul(&w)?.gelu(), &wide, &wide.ones_like().unwrap()).unwrap();
        assert_eq!(t.to_vec::<f32>().unwrap(), expected.to_vec::<f32>().unwrap());
    }
}

#[test]
fn positions_comparisons_and_integers_have_no_tangent() {
    let reference = Reference::new();
    let d = Forward::new(&reference);
    let x = values((2, 4), &reference);
    let x = d.dual(&x, &x.ones_like().unwrap()).unwrap();
    for y in [
        x.argmax(0),
        x.lt(0.0),
        x.is_nan(),
        x.cast(DType::I64),
        x.argsort(0, SortOrder::Ascending),
        x.any(0),
        x.floor(),
        x.detach(),
        x.zeros_like(),
    ] {
        assert!(d.unpack(&y.unwrap()).unwrap().1.is_none());
    }
    assert!(d.unpack(&x.sort(1, SortOrder::Ascending).unwrap().0).unwrap().1.is_some());
    assert!(d.unpack(&x.t().unwrap().slice(0, 1..).unwrap()).unwrap().1.is_some());
}

#[test]
fn assignment_gives_the_tangent_of_what_was_written() {
    let reference = Reference::new();
    let d = Forward::new(&reference);
    let plain = Tensor::zeros((2, 3), DType::F64, &d).unwrap();
    let kept = plain.clone();
    let x = Tensor::new([1.0f64, 2.0], &reference).unwrap();
    let moving = d.dual(&x, &x.mul(10.0).unwrap()).unwrap();
    // Into a slice of a tensor that does not move, then a constant over part of that.
    let y = plain.slice_assign(1, 1..3, &moving).unwrap();
    let y = y.assign((0, 1), 7.0).unwrap();
    let (value, tangent) = d.unpack(&y).unwrap();
    assert_eq!(vec(&value), [0.0, 7.0, 2.0, 0.0, 1.0, 2.0]);
    assert_eq!(vec(&tangent.unwrap()), [0.0, 0.0, 20.0, 0.0, 10.0, 20.0]);
    assert!(d.unpack(&kept).unwrap().1.is_none());
}

#[test]
fn a_custom_function_and_a_checkpoint_let_tangents_through() {
    struct Cube;
    impl teeny_autograd::Function for Cube {
        fn name(&self) -> &'static str {
            "cube"
        }
        fn forward(&self, x: &[&Tensor], saved: &mut teeny_autograd::Saved) -> Result<Tensor> {
            saved.save_for_backward(x[0]);
            x[0].pow(3)
        }
        fn backward(
            &self,
            saved: &teeny_autograd::Saved,
            g: &Tensor,
        ) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![Some(saved.tensors()[0].square()?.mul(3)?.mul(g)?)])
        }
    }
    let x = values(4, Reference::new());
    let v = direction(&x, 1);
    let f = |x: &Tensor| checkpoint(|x| apply(Cube, &[&x[0]]), &[x])?.sum_all();
    close(
        &vec(&jvp(f, &x, &v).unwrap().1),
        &[dot(&x.square().unwrap().mul(3.0).unwrap(), &v)],
        1e-12,
    );
    close(&vec(&hvp(f, &x, &v).unwrap().1), &vec(&x.mul(6.0).unwrap().mul(&v).unwrap()), 1e-12);
}

#[test]
fn a_kernel_and_its_tangent_are_one_pass() {
    // It reads x and t, and writes exp(x) and exp(x) t: the exponential is computed once.
    let builder = Builder::new();
    let x = builder.input(DType::F64);
    let y = x.exp();
    let t = builder.input(DType::F64);
    let kernel = Arc::new(builder.finish(&[y, y * t]).unwrap());
    let counter = common::counter::Counter::new(Reference::new());
    let x = values(4, &counter);
    let v = x.ones_like().unwrap();
    counter.take();
    let _ = jvp(|x| x.exp(), &x, &v).unwrap();
    let counts = counter.take();
    assert_eq!((counts.elementwise, counts.kernels), (1, vec![kernel]));
}

#[test]
fn forward_over_a_recorded_device_is_recorded() {
    let reverse = Autograd::new(Reference::new());
    let x = values(3, &reverse).requires_grad().unwrap();
    let v = direction(&x.detach().unwrap(), 2);
    let (_, along) = jvp(|x| x.sin(), &x, &v).unwrap();
    let g = along.sum_all().unwrap().backward().unwrap().take(&x).unwrap();
    close(
        &vec(&g),
        &vec(&x.detach().unwrap().sin().unwrap().neg().unwrap().mul(&v).unwrap()),
        1e-12,
    );
}
