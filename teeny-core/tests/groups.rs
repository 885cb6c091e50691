//! The laws of operations, held against their values at special operands of every type. A law that
//! is not claimed has a counterexample there.

use teeny_core::kernel::eval::eval;
use teeny_core::{Arithmetic, Comparison, DType, OpCode, OpNode, Scalar, SignFunction};

/// NaN, infinities, zeros, the ends of the range and small numbers of a type.
fn special(dtype: DType) -> Vec<Scalar> {
    let largest = match dtype {
        DType::F16 => 65504.0,
        DType::BF16 => 3.3895313892515355e38,
        DType::F32 => f64::from(f32::MAX),
        _ => f64::MAX,
    };
    let all: Vec<Scalar> = if dtype.is_float() {
        let zero = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];
        let small = [1.0, -1.0, 2.0, 3.0, 0.1, -0.7, 1e-7, largest, -largest];
        zero.into_iter().chain(small).map(Scalar::Float).collect()
    } else if dtype == DType::Bool {
        vec![Scalar::Bool(false), Scalar::Bool(true)]
    } else {
        let bits = 8 * dtype.size() as u32;
        let ends = if dtype.is_signed_int() {
            let most = (i64::MAX) >> (64 - bits);
            [Scalar::Int(most), Scalar::Int(-most - 1)]
        } else {
            [Scalar::UInt(u64::MAX >> (64 - bits)), Scalar::UInt(1 << (bits - 1))]
        };
        let small = [0, 1, 2, 3, 5, -1, -2].map(Scalar::Int);
        ends.into_iter().chain(small).collect()
    };
    let stored = all.into_iter().map(|value| value.cast(dtype).cast(dtype.compute()));
    // Values between two operations, which 16-bit floats cannot store.
    let between = [0.1, -0.7].into_iter().filter(|_| dtype.is_half());
    stored.chain(between.map(|x| Scalar::Float(x).cast(dtype.compute()))).collect()
}

fn apply(op: OpCode, dtype: DType, args: &[Scalar]) -> Scalar {
    let result = if op.is_predicate() { DType::Bool } else { dtype };
    let mut all = [Scalar::Bool(false); 3];
    all[..args.len()].copy_from_slice(args);
    eval(&OpNode { op, src: [0; 3], dtype: result }, dtype, all)
}

/// Equal bits, where NaN is one value.
fn same(a: Scalar, b: Scalar) -> bool {
    a == b || (a.to_f64().is_nan() && b.to_f64().is_nan())
}

fn binary() -> impl Iterator<Item = (OpCode, DType)> {
    OpCode::BINARY.into_iter().flat_map(|op| {
        DType::ALL.into_iter().filter(move |dtype| op.accepts(*dtype)).map(move |dtype| (op, dtype))
    })
}

fn unary() -> impl Iterator<Item = (OpCode, DType)> {
    OpCode::UNARY.into_iter().flat_map(|op| {
        DType::ALL.into_iter().filter(move |dtype| op.accepts(*dtype)).map(move |dtype| (op, dtype))
    })
}

#[test]
fn commutative_operations_are_those_whose_operands_can_be_exchanged() {
    for (op, dtype) in binary() {
        let values = special(dtype);
        let f = |a, b| apply(op, dtype, &[a, b]);
        let holds = values.iter().all(|&a| values.iter().all(|&b| same(f(a, b), f(b, a))));
        assert_eq!(op.is_commutative_for(dtype), holds, "{} of {dtype}", op.name());
    }
    // Without a type: for all types.
    for op in OpCode::BINARY {
        let mut types = DType::ALL.into_iter().filter(|dtype| op.accepts(*dtype));
        assert_eq!(op.is_commutative(), types.all(|t| op.is_commutative_for(t)), "{}", op.name());
    }
}

#[test]
fn associative_operations_are_those_that_can_be_grouped_otherwise() {
    for (op, dtype) in binary().filter(|(op, dtype)| !op.is_predicate() || *dtype == DType::Bool) {
        let values = special(dtype);
        let f = |a, b| apply(op, dtype, &[a, b]);
        let holds = values.iter().all(|&a| {
            values.iter().all(|&b| values.iter().all(|&c| same(f(f(a, b), c), f(a, f(b, c)))))
        });
        assert_eq!(op.is_associative(dtype), holds, "{} of {dtype}", op.name());
    }
}

#[test]
fn idempotent_operations_change_nothing_the_second_time() {
    for (op, dtype) in unary() {
        let f = |a| apply(op, dtype, &[a]);
        let holds = !(op.is_predicate() && dtype != DType::Bool)
            && special(dtype).iter().all(|&a| same(f(f(a)), f(a)));
        assert_eq!(op.is_idempotent(dtype), holds, "{} of {dtype}", op.name());
    }
    for (op, dtype) in binary() {
        let holds = special(dtype).iter().all(|&a| same(apply(op, dtype, &[a, a]), a));
        assert_eq!(op.is_idempotent(dtype), holds, "{} of {dtype}", op.name());
    }
    for dtype in DType::ALL {
        for x in special(dtype) {
            for c in [false, true].map(Scalar::Bool) {
                assert!(same(apply(OpCode::Where, dtype, &[c, x, x]), x), "{dtype}");
            }
            let once = apply(OpCode::Cast, dtype, &[x]);
            assert!(same(apply(OpCode::Cast, dtype, &[once]), once), "{dtype}");
        }
    }
}

#[test]
fn operations_that_make_other_values_of_zeros_are_unsafe_on_padding() {
    use teeny_core::FloatFunction::*;
    let functions = [Recip, Rsqrt, Exp, Exp2, Log, Log2, Log10, Cos];
    for (op, dtype) in unary().chain(binary()) {
        let zero = Scalar::Int(0).cast(dtype.compute());
        let y = apply(op, dtype, &vec![zero; op.arity()]).to_f64();
        let expected = match op {
            OpCode::Float(f) => functions.contains(&f),
            OpCode::Not | OpCode::Compare(Comparison::Eq | Comparison::Le) => true,
            OpCode::Arithmetic(Arithmetic::Div | Arithmetic::Pow) => true,
            OpCode::Sign(SignFunction::Neg) => dtype.is_float(), // -0
            OpCode::Arithmetic(Arithmetic::Rem | Arithmetic::FloorDiv) => dtype.is_float(),
            _ => false,
        };
        assert_eq!(op.is_unsafe_pad(dtype), expected, "{} of {dtype}", op.name());
        assert_eq!(expected, y.to_bits() != 0, "{} of {dtype}: {y}", op.name());
    }
    for (value, is_unsafe) in [(0.0, false), (-0.0, true), (1.0, true), (f64::NAN, true)] {
        assert_eq!(OpCode::Const(Scalar::Float(value)).is_unsafe_pad(DType::F64), is_unsafe);
    }
}

#[test]
fn every_operation_is_in_the_groups_of_its_arity_and_result() {
    assert!(OpCode::UNARY.into_iter().all(|op| op.arity() == 1));
    assert!(OpCode::BINARY.into_iter().all(|op| op.arity() == 2));
    assert_eq!([OpCode::Where.arity(), OpCode::Cast.arity(), OpCode::Input(0).arity()], [3, 1, 0]);
    for op in OpCode::UNARY.into_iter().chain(OpCode::BINARY) {
        assert!(!op.is_comparison() || (op.is_predicate() && op.arity() == 2), "{}", op.name());
    }
    let leaves = [OpCode::Input(0), OpCode::Param(0), OpCode::Const(Scalar::Int(0))];
    for op in leaves.into_iter().chain([SignFunction::Neg.into(), OpCode::Not]) {
        for dtype in DType::ALL {
            let laws = [op.is_commutative_for(dtype), op.is_associative(dtype)];
            assert_eq!(laws, [false; 2]);
        }
    }
}

/// The laws that floats do not obey although integers do.
#[test]
fn sums_and_extremes_of_floats_have_their_counterexamples() {
    let float = |x: f64| Scalar::Float(x);
    let f = |op: Arithmetic, a, b| apply(op.into(), DType::F64, &[a, b]);
    let [a, b, c] = [1e300, -1e300, 1.0].map(float);
    let sums = [f(Arithmetic::Add, f(Arithmetic::Add, a, b), c), {
        let right = f(Arithmetic::Add, b, c);
        f(Arithmetic::Add, a, right)
    }];
    assert_eq!(sums.map(|x| x.to_f64()), [1.0, 0.0]);
    let signs = [[0.0, -0.0], [-0.0, 0.0]]
        .map(|[a, b]| f(Arithmetic::Max, float(a), float(b)).to_f64().is_sign_negative());
    assert_eq!(signs, [true, false]);
}
