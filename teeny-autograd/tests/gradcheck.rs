//! A23: the gradient of every differentiable operation agrees with central differences, whatever
//! the layout of its inputs.
use crate::common::cases::{Case, all};
use crate::common::{device, positive, values};
use std::sync::Arc;
use teeny_autograd::{Check, Grad, gradcheck, gradgradcheck};
use teeny_core::{Builder, DType, Device, ErrorKind, OpCode, Reference, Result, SortOrder, Tensor};

fn check(
    case: &Case,
    layout: &str,
    base: fn(&[usize]) -> Vec<usize>,
    view: fn(&Tensor, &[usize]) -> Result<Tensor>,
) {
    let inputs = case.inputs(Reference::new(), base);
    let f = |x: &[Tensor]| {
        let views = x
            .iter()
            .zip(case.shapes)
            .map(|(x, shape)| view(x, shape))
            .collect::<Result<Vec<_>>>()?;
        (case.f)(&views)
    };
    if let Err(error) = gradcheck(f, &inputs, &Check::default()) {
        panic!("{} of {layout} inputs: {error}", case.name);
    }
}

fn check_all(
    layout: &str,
    base: fn(&[usize]) -> Vec<usize>,
    view: fn(&Tensor, &[usize]) -> Result<Tensor>,
) {
    all().iter().for_each(|case| check(case, layout, base, view));
}

#[test]
fn every_operation_of_packed_inputs() {
    check_all("packed", |s| s.to_vec(), |x, _| Ok(x.clone()));
}

#[test]
fn every_operation_of_transposed_inputs() {
    let base = |s: &[usize]| {
        let mut s = s.to_vec();
        s.reverse();
        s
    };
    check_all("transposed", base, |x, _| x.permute((0..x.ndim()).rev().collect::<Vec<_>>()));
}

#[test]
fn every_operation_of_flipped_inputs() {
    check_all("flipped", |s| s.to_vec(), |x, _| x.flip(..));
}

#[test]
fn every_operation_of_sliced_inputs() {
    let base = |s: &[usize]| s.iter().map(|n| n + 2).collect();
    check_all("sliced", base, |x, shape| {
        shape
            .iter()
            .enumerate()
            .try_fold(x.clone(), |x, (axis, n)| x.slice(axis as isize, 1..n + 1))
    });
}

#[test]
fn every_operation_of_stepped_inputs() {
    let base = |s: &[usize]| {
        let mut s = s.to_vec();
        s[0] *= 2;
        s
    };
    check_all("stepped", base, |x, _| x.slice_step(0, .., -2));
}

#[test]
fn every_operation_of_expanded_inputs() {
    let base = |s: &[usize]| {
        let mut s = s.to_vec();
        s[0] = 1;
        s
    };
    check_all("expanded", base, |x, shape| x.expand(shape));
}

/// True for operations of a scalar program without a gradient, whatever their operands.
fn has_no_gradient(op: OpCode) -> bool {
    matches!(op, OpCode::Not | OpCode::IsNan | OpCode::Compare(_) | OpCode::Bitwise(_))
}

#[test]
fn every_opcode_has_a_slope_or_is_listed_as_having_none() {
    for op in OpCode::UNARY.into_iter().chain(OpCode::BINARY) {
        let listed = has_no_gradient(op);
        if !op.accepts(DType::F64) {
            assert!(listed, "{} takes no floats, so it cannot have a gradient", op.name());
            continue;
        }
        let builder = Builder::new();
        let inputs: Vec<_> = (0..op.arity()).map(|_| builder.input(DType::F64)).collect();
        let y = if op.arity() == 1 { inputs[0].unary(op) } else { inputs[0].binary(op, inputs[1]) };
        let kernel = Arc::new(builder.finish(&[y]).unwrap());
        let x: Vec<Tensor> = (0..op.arity())
            .map(|i| positive((2, 3), Reference::new()).add(0.37 * i as f64).unwrap())
            .collect();
        let run = |x: &[Tensor]| Ok(kernel.run(&x.iter().collect::<Vec<_>>(), &[])?.remove(0));
        if listed {
            let d = device();
            let leaves: Vec<Tensor> =
                x.iter().map(|x| x.to(&d).unwrap().requires_grad().unwrap()).collect();
            assert!(
                !run(&leaves).unwrap().is_tracked(),
                "{} has a gradient but is listed as having none",
                op.name()
            );
        } else {
            gradcheck(run, &x, &Check::default())
                .unwrap_or_else(|error| panic!("{}: {error}", op.name()));
            gradgradcheck(run, &x, &Check::default())
                .unwrap_or_else(|error| panic!("{}, twice: {error}", op.name()));
        }
    }
}

#[test]
fn operations_without_a_gradient_give_untracked_results() {
    let d = device();
    let x = values((2, 3), &d).requires_grad().unwrap();
    let results = [
        x.argmax(0),
        x.argmin(1),
        x.any(0),
        x.all(..),
        x.lt(0.0),
        x.is_nan(),
        x.cast(DType::I64),
        x.argsort(0, SortOrder::Ascending),
        x.gt(0.0).and_then(|c| c.cast(DType::F64)),
        Ok(x.max_pool_indices(&[2], &teeny_core::Window::new(1)).unwrap().1),
    ];
    for y in results {
        assert!(!y.unwrap().is_tracked());
    }
}

#[test]
fn a_wrong_gradient_is_reported_with_its_worst_element() {
    struct Wrong;
    impl teeny_autograd::Function for Wrong {
        fn name(&self) -> &'static str {
            "wrong"
        }
        fn forward(&self, x: &[&Tensor], _: &mut teeny_autograd::Saved) -> Result<Tensor> {
            x[0].square()
        }
        fn backward(&self, _: &teeny_autograd::Saved, g: &Tensor) -> Result<Vec<Option<Tensor>>> {
            Ok(vec![Some(g.clone())])
        }
    }
    let x = Tensor::new([0.5f64, 2.0], Reference::new()).unwrap();
    let error =
        gradcheck(|x| teeny_autograd::apply(Wrong, &[&x[0]]), &[x], &Check::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Gradient);
    assert!(error.to_string().contains("input 0, element 1: the gradient is"), "{error}");
}

#[test]
fn only_the_tensors_a_derivative_reads_are_saved() {
    // How many handles the graph keeps of the operand's and of the result's memory.
    let saved = |f: fn(&Tensor) -> Result<Tensor>| {
        let d = device();
        let x = values(10, &d).requires_grad().unwrap();
        let y = f(&x).unwrap();
        // One handle is the tensor's own, one the inner tensor's made here.
        let kept = |t: &Tensor| Arc::strong_count(d.unwrap(t).unwrap().storage()) - 2;
        (kept(&x), kept(&y))
    };
    assert_eq!(saved(|x| x.exp()), (0, 1), "exp reads its result");
    assert_eq!(saved(|x| x.tanh()), (0, 1), "tanh reads its result");
    assert_eq!(saved(|x| x.sigmoid()), (0, 1), "sigmoid reads its result");
    assert_eq!(saved(|x| x.softmax(0)), (0, 1), "softmax reads its result");
    assert_eq!(saved(|x| x.relu()), (1, 0), "relu reads its operand");
    assert_eq!(saved(|x| x.silu()), (1, 0), "silu reads its operand");
    assert_eq!(saved(|x| x.add(1.0)), (0, 0), "a sum reads nothing");
    assert_eq!(saved(|x| x.mul(3.0)), (0, 0), "a multiple reads nothing");
    assert_eq!(saved(|x| x.sum(0)), (0, 0), "a sum reads nothing");
}

#[test]
fn half_precision_gradients_have_the_type_of_their_input() {
    let d = device();
    for dtype in [DType::F16, DType::BF16] {
        let x = values((2, 3), &d).cast(dtype).unwrap().requires_grad().unwrap();
        let w = values((3, 2), &d).cast(DType::F32).unwrap().requires_grad().unwrap();
        let loss = x
            .matmul(&w)
            .unwrap()
            .gelu()
            .unwrap()
            .softmax(1)
            .unwrap()
            .square()
            .unwrap()
            .sum_all()
            .unwrap();
        let grads = loss.backward().unwrap();
        assert_eq!(grads.get(&x).unwrap().dtype(), dtype);
        assert_eq!(grads.get(&w).unwrap().dtype(), DType::F32);
    }
}
