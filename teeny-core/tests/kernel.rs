//! Building scalar programs: nodes stored once, constants folded, rules that keep every bit, types
//! and limits.

use std::sync::Arc;
use teeny_core::random::{Key, philox};
use teeny_core::{
    Arithmetic, Builder, DType, Error, ErrorKind, Expr, FloatFunction, Kernel, OpCode, OpNode,
    Reference, Result, Scalar, Tensor, map, map_n, map_sum,
};

fn unary(dtype: DType, body: impl for<'b> FnOnce(Expr<'b>) -> Expr<'b>) -> Kernel {
    Kernel::build([dtype], [], |[x], []| [body(x)]).expect("a legal program")
}

#[test]
fn equal_nodes_are_stored_once_and_unused_ones_dropped() {
    let kernel = Kernel::build([DType::F32; 2], [], |[a, b], []| {
        let _unused = a.exp().sin();
        [(a + b) * (a + b), (b + a).tanh()]
    });
    let kernel = kernel.expect("a legal program");
    let count = |op: OpCode| kernel.nodes().iter().filter(|n| n.op == op).count();
    assert_eq!(
        (count(Arithmetic::Add.into()), count(FloatFunction::Exp.into()), kernel.nodes().len()),
        (1, 0, 5)
    );
    // Sources come before their users.
    assert!(
        kernel
            .nodes()
            .iter()
            .enumerate()
            .all(|(i, n)| n.sources().iter().all(|&s| (s as usize) < i))
    );
}

/// Few nodes are compared one by one, many are looked up.
#[test]
fn equal_nodes_of_long_programs_are_stored_once() {
    for n in [5, 20, 200] {
        // An input, n numbers, n products, n - 1 sums.
        let kernel = unary(DType::F32, |x| {
            let sum = || (1..n).map(|i| x * (i as f64 + 0.5)).fold(x * 0.5, |sum, y| sum + y);
            let (first, second) = (sum(), sum());
            first + second
        });
        assert_eq!(kernel.nodes().len(), 1 + 3 * n, "{n} terms");
    }
}

#[test]
#[allow(clippy::erasing_op)] // zeros are what the test is about
fn constants_are_folded_and_neutral_elements_vanish() {
    let same: [fn(Expr<'_>) -> Expr<'_>; 6] = [
        |x| x * 1.0,
        |x| x / 1.0,
        |x| x - 0.0,
        |x| -(-x),
        |x| x.pow(1.0),
        |x| x.cast(DType::F64).cast(DType::F32),
    ];
    for body in same {
        assert_eq!(unary(DType::F32, body).passes_through(0), Some(0));
    }
    let folded = unary(DType::F32, |x| x + (x.like(2.0) * 3.0).exp());
    assert_eq!(folded.nodes().len(), 3, "{folded:?}");
    // x + 0.0 must stay: it turns -0.0 into 0.0. x * 0.0 must stay: NaN and -0.0.
    assert_eq!(unary(DType::F32, |x| x + 0.0).nodes().len(), 3);
    assert_eq!(unary(DType::F32, |x| x * 0.0).nodes().len(), 3);
    assert_eq!(unary(DType::I32, |x| x * 0).nodes().len(), 1);
}

#[test]
fn equal_programs_are_equal_and_share_their_hash() {
    let (a, b) = (unary(DType::F32, |x| x.gelu()), unary(DType::F32, |x| x.gelu()));
    assert_eq!((&a, a.content_hash()), (&b, b.content_hash()));
    assert_ne!(a, unary(DType::F64, |x| x.gelu()));
    assert_ne!(unary(DType::F32, |x| x * -0.0), unary(DType::F32, |x| x * 0.0));
}

#[test]
fn the_first_mistake_is_reported_with_the_types_that_would_do() {
    let error =
        Kernel::build([DType::Bool], [], |[x], []| [(-x).exp()]).expect_err("bools have no sign");
    assert_eq!((error.kind(), error.message()), (ErrorKind::DType, "neg does not work on bool"));
    assert!(error.to_string().contains("accepted: u8 u16 u32 u64 i8 i16 i32 i64 f16 bf16 f32 f64"));
    let many = Builder::new();
    let inputs: Vec<Expr<'_>> = (0..9).map(|_| many.input(DType::F32)).collect();
    assert!(many.finish(&inputs[..1]).is_err());
}

/// Numbers at which rules that look right go wrong.
fn numbers(dtype: DType, seed: u64) -> Vec<Scalar> {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        2.0,
        0.5,
        -3.5,
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        1e-40,
        3.4e38,
        255.0,
        -129.0,
    ];
    let random = (0..6).map(|i| (philox(Key { seed, draw: 9 }, i)[0] as f64 / 4.0e8) - 5.0);
    special.into_iter().chain(random).map(|v| Scalar::Float(v).cast(dtype)).collect()
}

fn bits(s: Scalar) -> (u8, u64) {
    match s {
        Scalar::Bool(v) => (0, v as u64),
        Scalar::Int(v) => (1, v as u64),
        Scalar::UInt(v) => (2, v),
        Scalar::Float(v) if v.is_nan() => (3, 0),
        Scalar::Float(v) => (3, v.to_bits()),
    }
}

/// A random expression and its value computed without any rule, node by node.
fn simplification_keeps(dtype: DType, seed: u64) {
    let builder = Builder::new();
    let x = builder.input(dtype);
    let mut state = 0;
    let mut roll = |n: usize| {
        state += 1;
        philox(Key { seed, draw: dtype as u64 }, state)[0] as usize % n
    };
    let inputs = numbers(dtype, seed);
    // For every expression the values it must have, one per input.
    let mut known: Vec<(Expr<'_>, DType, Vec<Scalar>)> = vec![(x, dtype, inputs.clone())];
    for value in [0.0, -0.0, 1.0, 2.0, -1.5] {
        let constant = builder.constant(value, dtype);
        known.push((
            constant,
            dtype,
            vec![Scalar::Float(value).cast(dtype.compute()); inputs.len()],
        ));
    }
    for _ in 0..25 {
        let (a, da, va) = known[roll(known.len())].clone();
        let (b, db, vb) = known[roll(known.len())].clone();
        let apply = |op: OpCode,
                     to: DType,
                     from: DType,
                     args: &dyn Fn(usize) -> [Scalar; 3]|
         -> Vec<Scalar> {
            (0..inputs.len())
                .map(|i| {
                    teeny_core::kernel::eval::eval(
                        &OpNode { op, src: [0; 3], dtype: to },
                        from,
                        args(i),
                    )
                })
                .collect()
        };
        let none = Scalar::Bool(false);
        let next = match roll(4) {
            0 => {
                let op = OpCode::UNARY[roll(OpCode::UNARY.len())];
                if !op.accepts(da) {
                    continue;
                }
                let to = if op.is_predicate() { DType::Bool } else { da };
                (a.unary(op), to, apply(op, to, da, &|i| [va[i], none, none]))
            }
            1 => {
                let to =
                    [dtype, DType::F64, DType::I32, DType::Bool, DType::F32, DType::F16][roll(6)];
                if to == da {
                    continue;
                }
                (a.cast(to), to, apply(OpCode::Cast, to, da, &|i| [va[i], none, none]))
            }
            _ => {
                let op = OpCode::BINARY[roll(OpCode::BINARY.len())];
                if da != db || !op.accepts(da) {
                    continue;
                }
                let to = if op.is_predicate() { DType::Bool } else { da };
                (a.binary(op, b), to, apply(op, to, da, &|i| [va[i], vb[i], none]))
            }
        };
        known.push(next);
    }
    for (expr, _, want) in &known {
        let kernel = builder.finish(&[*expr]).expect("a legal program");
        for (input, &want) in inputs.iter().zip(want) {
            let got = kernel.eval(&[*input], &[])[0];
            let want = want.cast(kernel.output_dtype(0));
            // A square computed as a product may differ from a power in the last place of an f64.
            let close = matches!((got, want), (Scalar::Float(g), Scalar::Float(w)) if (g - w).abs() <= 4e-16 * w.abs());
            assert!(
                bits(got) == bits(want) || dtype == DType::F64 && close,
                "{dtype} seed {seed}: {input} gives {got}, not {want}\n{kernel:?}"
            );
        }
    }
}

#[test]
fn simplification_keeps_every_bit_on_random_programs() {
    for dtype in DType::ALL {
        (0..150).for_each(|seed| simplification_keeps(dtype, seed));
    }
}

#[test]
fn integers_obey_the_laws_of_a_ring_and_of_division() {
    for dtype in DType::ALL.into_iter().filter(|t| t.is_int()) {
        let kernel = Kernel::build([dtype; 3], [], |[a, b, c], []| {
            let commute = (a + b).eq(b + a).and((a * b).eq(b * a));
            let associate = ((a + b) + c).eq(a + (b + c)).and(((a * b) * c).eq(a * (b * c)));
            let distribute = (a * (b + c)).eq(a * b + a * c).and((a - b).eq(a + -b));
            let divide = b.eq(0).or((a.floor_div(b) * b + a.rem(b)).eq(a));
            let bitwise = a.xor(b).eq(a.or(b) - a.and(b)).and(a.not().eq(-a - 1));
            [commute.and(associate).and(distribute).and(divide).and(bitwise)]
        });
        let kernel = kernel.expect("a legal program");
        for i in 0..300u64 {
            let w = philox(Key { seed: 5, draw: dtype as u64 }, i);
            let of =
                |j: usize| Scalar::UInt((w[j] as u64) << 32 | w[(j + 1) % 4] as u64).cast(dtype);
            assert_eq!(
                kernel.eval(&[of(0), of(1), of(2)], &[])[0],
                Scalar::Bool(true),
                "{dtype} {} {} {}",
                of(0),
                of(1),
                of(2)
            );
        }
    }
}

#[test]
fn remainders_take_the_sign_of_the_divisor() {
    let kernel = Kernel::build([DType::F64; 2], [], |[a, b], []| [a.rem(b), a.floor_div(b)])
        .expect("a legal program");
    for (a, b, rem, quotient) in [
        (7.0, 3.0, 1.0, 2.0),
        (-7.0, 3.0, 2.0, -3.0),
        (7.0, -3.0, -2.0, -3.0),
        (-7.0, -3.0, -1.0, 2.0),
        (5.5, 2.0, 1.5, 2.0),
    ] {
        assert_eq!(
            kernel.eval(&[Scalar::Float(a), Scalar::Float(b)], &[]),
            [Scalar::Float(rem), Scalar::Float(quotient)]
        );
    }
}

#[test]
fn a_program_takes_new_parameters_without_being_built_again() -> Result<()> {
    let device = Reference::new();
    let sgd = Arc::new(Kernel::build([DType::F32; 2], [DType::F32], |[w, g], [lr]| [w - g * lr])?);
    let (w, g) = (Tensor::new([1.0f32, 2.0], &device)?, Tensor::new([10.0f32, 20.0], &device)?);
    for lr in [0.1f32, 0.01] {
        let got = sgd.run(&[&w, &g], &[lr.into()])?[0].to_vec::<f32>()?;
        assert_eq!(got, [1.0 - 10.0 * lr, 2.0 - 20.0 * lr]);
    }
    assert!(sgd.run(&[&w], &[]).map(drop).is_err());
    let wrong = sgd
        .run(&[&w, &g.cast(DType::F64)?], &[Scalar::Float(1.0)])
        .map(drop)
        .expect_err("f64 is not f32");
    assert_eq!(wrong.message(), "input 1 of the kernel is f32, not f64");
    Ok(())
}

#[test]
fn map_runs_a_users_own_operation_on_broadcast_inputs() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::new([[1.0f32, -2.0], [3.0, 0.5]], &device)?;
    let b = Tensor::new([0.5f32, 1.0], &device)?;
    assert_eq!(
        map([&x, &b], |[x, b]| (x + b).relu() * 2.0)?.to_vec::<f32>()?,
        [3.0, 0.0, 7.0, 3.0]
    );
    let [sum, same] = map_n([&x, &b], |[x, b]| [x + b, b])?;
    assert_eq!((sum.shape(), same.shape()), (x.shape(), x.shape()));
    assert_eq!(same.to_vec::<f32>()?, [0.5, 1.0, 0.5, 1.0]);
    let three: Error = map([&x, &Tensor::zeros(3, DType::F32, &device)?], |[x, b]| x + b)
        .map(drop)
        .expect_err("2 is not 3");
    assert!(three.message().contains("(2, 2) and (3,) do not broadcast"));
    Ok(())
}

#[test]
fn map_sum_sums_a_broadcast_map_over_axes_of_the_common_shape() -> Result<()> {
    let device = Reference::new();
    let x = Tensor::new([[1.0f32, -2.0], [3.0, 0.5]], &device)?; // (2, 2)
    let b = Tensor::new([2.0f32, 10.0], &device)?; // (2)
    let product = |axes: &[isize]| map_sum([&x, &b], axes, |[x, b]| x * b);
    assert_eq!(product(&[0])?.to_vec::<f32>()?, [8.0, -15.0]);
    assert_eq!(product(&[-1])?.to_vec::<f32>()?, [-18.0, 11.0]);
    assert_eq!(product(&[0, 1])?.item::<f32>()?, -7.0);
    assert_eq!(product(&[])?.to_vec::<f32>()?, [2.0, -20.0, 6.0, 5.0]);
    let outside = product(&[2]).expect_err("there are two axes");
    assert!(outside.to_string().starts_with("map_sum at "), "{outside}");
    // what is counted is not added up in the narrow type
    let positive = map_sum([&x], .., |[x]| x.gt(0))?;
    assert_eq!((positive.dtype(), positive.item::<i64>()?), (DType::I64, 3));
    Ok(())
}

#[test]
fn sixteen_bit_values_are_rounded_by_casts_and_outputs_only() {
    // 0.7978845 is not a 16-bit number; what is computed in f32 must keep it.
    let scaled = unary(DType::F16, |x| (x * 0.7978845) * 1024.0);
    assert_eq!(scaled.eval(&[Scalar::Float(1.0)], &[])[0], Scalar::Float(817.0));
    let doubled = unary(DType::F16, |x| {
        x + x.like(0.7978845).exp() * 0.0 + (x.like(0.7978845) * x.like(1.0))
    });
    assert!(
        doubled
            .nodes()
            .iter()
            .any(|n| matches!(n.op, OpCode::Const(Scalar::Float(v)) if v == 0.7978845f32 as f64)),
        "{doubled:?}"
    );
    // A round trip through f32 rounds a product, so it must stay; an input is rounded already.
    assert_eq!(unary(DType::F16, |x| (x * x).cast(DType::F32).cast(DType::F16)).nodes().len(), 4);
    assert_eq!(unary(DType::F16, |x| x.cast(DType::F32).cast(DType::F16)).nodes().len(), 1);
}

#[test]
fn equal_or_less_becomes_one_comparison() {
    for dtype in [DType::F32, DType::I32] {
        let builder = Builder::new();
        let (x, y) = (builder.input(dtype), builder.input(dtype));
        for both in [x.eq(y).or(x.lt(y)), x.lt(y).or(y.eq(x)), y.eq(x).or(x.lt(y))] {
            let kernel = builder.finish(&[both]).expect("a legal program");
            assert_eq!(
                kernel.nodes().iter().filter(|node| node.op.arity() > 0).count(),
                1,
                "{kernel:?}"
            );
            for (a, b) in [(1, 2), (2, 2), (3, 2)] {
                let got =
                    kernel.eval(&[Scalar::Int(a).cast(dtype), Scalar::Int(b).cast(dtype)], &[])[0];
                assert_eq!(got, Scalar::Bool(a <= b));
            }
        }
        let other = builder.finish(&[x.eq(y).or(y.lt(x)).or(x.eq(x))]).expect("a legal program");
        assert!(other.nodes().iter().filter(|node| node.op.arity() > 0).count() > 1);
    }
}

#[test]
fn a_bound_that_does_not_matter_is_left_out_of_a_comparison() {
    type Build = for<'b> fn(Expr<'b>) -> Expr<'b>;
    let cases: [(Build, usize); 6] = [
        (|x| x.like(6).le(x.maximum(0)), 1),
        (|x| x.minimum(1).le(-1), 1),
        (|x| x.eq(-1).or(x.lt(-1)), 1),
        (|x| x.maximum(0).eq(6).or(x.like(6).lt(x.maximum(0))), 1),
        // The bound decides.
        (|x| x.like(0).le(x.maximum(0)), 2),
        (|x| x.minimum(1).le(2), 2),
    ];
    for dtype in [DType::F32, DType::F64, DType::BF16, DType::I32] {
        for (i, (build, operations)) in cases.iter().enumerate() {
            let kernel = unary(dtype, build);
            let found = kernel.nodes().iter().filter(|node| node.op.arity() > 0).count();
            assert_eq!(found, *operations, "{i}: {kernel:?}");
            for value in [f64::NAN, f64::NEG_INFINITY, -2.0, -1.0, -0.0, 0.0, 1.0, 2.0, 6.0, 7.0] {
                let x = Scalar::Float(value).cast(dtype.compute());
                let v = x.to_f64();
                let want = match i {
                    0 | 3 => v >= 6.0,
                    1 | 2 => v <= -1.0,
                    _ => !v.is_nan(),
                };
                assert_eq!(kernel.eval(&[x], &[])[0], Scalar::Bool(want), "{i}: {value}");
            }
        }
    }
}

#[test]
fn inputs_come_before_operations() {
    let builder = Builder::new();
    let x = builder.input(DType::F32);
    let doubled = x * 2.0;
    let y = builder.input(DType::F32);
    let kernel = builder.finish(&[doubled + y]).expect("a legal program");
    let is_input = |node: &OpNode| matches!(node.op, OpCode::Input(_));
    assert!(kernel.nodes()[..2].iter().all(is_input), "{kernel:?}");
    let values = [Scalar::Float(3.0), Scalar::Float(1.0)];
    assert_eq!(kernel.eval(&values, &[])[0], Scalar::Float(7.0));
}
