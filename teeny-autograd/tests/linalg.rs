//! A20: linear algebra against published examples, PyTorch's answers (`golden/linalg.json`), the
//! definitions, and on every kind of view.
use crate::common::{close, device, values, vec};
use serde_json::Value;
use std::sync::{Arc, OnceLock};
use teeny_autograd::{Autograd, Check, Grad, gradcheck, hvp};
use teeny_core::{
    DType, ErrorKind, Lazy, MatrixNorm, Reference, Result, SortOrder, Tensor, Triangle,
};
use teeny_cpu::Cpu;

/// One device for all tensors that meet.
fn reference() -> Arc<Reference> {
    static DEVICE: OnceLock<Arc<Reference>> = OnceLock::new();
    DEVICE.get_or_init(Reference::new).clone()
}

fn matrix<const M: usize, const N: usize>(data: [[f64; N]; M]) -> Tensor {
    Tensor::new(data, reference()).unwrap()
}

/// The fixtures, in f64 to 1e-10 (or the digits they were published with) and in f32 to 1e-5.
fn fixture(name: &str, found: impl Fn(DType) -> Result<Tensor>, wanted: &[f64], digits: f64) {
    for (dtype, tolerance) in [(DType::F64, digits), (DType::F32, 1e-5)] {
        let found = found(dtype).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.dtype(), dtype);
        close(&vec(&found.reshape(-1).unwrap().cast(DType::F64).unwrap()), wanted, tolerance);
    }
}

#[test]
fn a_system_of_three_equations() {
    let a = matrix([[4.0, -1.0, 0.0], [-1.0, 4.0, -1.0], [0.0, -1.0, 4.0]]);
    let b = Tensor::new([1.0f64, 2.0, 3.0], reference()).unwrap(); // (3)
    let exact = [13.0 / 28.0, 6.0 / 7.0, 27.0 / 28.0];
    close(&exact, &[0.46428571, 0.85714286, 0.96428571], 5e-9);
    fixture("solve", |t| a.cast(t)?.solve(&b.cast(t)?), &exact, 1e-10);
}

#[test]
fn four_equations_with_two_right_sides() {
    let a = matrix([
        [10.0, 2.0, 1.0, 0.0],
        [2.0, 8.0, 1.0, 1.0],
        [1.0, 1.0, 6.0, 2.0],
        [0.0, 1.0, 2.0, 7.0],
    ]);
    let b = matrix([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]);
    // by Cramer's rule, over det(a) = 2763
    let exact = [250.0, -48.0, -107.0, 330.0, 477.0, -180.0, -121.0, 399.0].map(|n| n / 2763.0);
    let published = [
        0.09048136,
        -0.01737242,
        -0.03872602,
        0.1194354,
        0.17263844,
        -0.06514658,
        -0.04379298,
        0.14440825,
    ];
    close(&exact, &published, 6e-9);
    fixture("solve", |t| a.cast(t)?.solve(&b.cast(t)?), &exact, 1e-10);
    fixture("det", |t| a.cast(t)?.det()?.div(2763.0), &[1.0], 1e-10);
}

#[test]
fn singular_values_of_five_rows() {
    let a = matrix([
        [1.0, 2.0, 3.0],
        [4.0, 5.0, 6.0],
        [7.0, 8.0, 9.0],
        [2.0, 0.0, 1.0],
        [3.0, 1.0, 4.0],
    ]);
    let s = a.svdvals().unwrap(); // (3)
    close(&vec(&s), &[17.57167264, 2.33734269, 1.33159671], 5e-9);
    // and to all digits the roots of the characteristic polynomial of aᵀ a
    for l in vec(&s.square().unwrap()) {
        assert!((((l - 316.0) * l + 2244.0) * l - 2991.0).abs() < 1e-10 * l.powi(3).max(2991.0));
    }
    fixture("svdvals", |t| a.cast(t)?.svdvals(), &vec(&s), 1e-10);
}

#[test]
fn two_right_sides_at_once_are_solved_as_one_by_one() {
    let a = values((4, 4), reference())
        .add(Tensor::eye(4, DType::F64, reference()).unwrap().mul(3.0).unwrap())
        .unwrap();
    let b = values((4, 2), reference());
    let both = a.solve(&b).unwrap(); // (4, 2)
    for column in 0..2 {
        let one = a.solve(&b.at(1, column).unwrap()).unwrap(); // (4)
        close(&vec(&both.at(1, column).unwrap()), &vec(&one), 1e-14);
    }
    close(&vec(&a.matmul(&both).unwrap()), &vec(&b), 1e-14);
}

#[test]
fn eigenvalues_5_and_2() {
    let a = matrix([[4.0, 2.0], [1.0, 3.0]]);
    let values = |t| {
        let (w, v) = a.cast(t)?.eig()?; // (2), (2, 2)
        close(&vec(&a.matmul(&v.cast(DType::F64)?)?), &vec(&v.mul(&w)?.cast(DType::F64)?), 1e-6);
        close(&vec(&v.vector_norm(2.0, 0)?.cast(DType::F64)?), &[1.0, 1.0], 1e-6);
        Ok(w.sort(0, SortOrder::Descending)?.0)
    };
    fixture("eig", values, &[5.0, 2.0], 1e-10);
}

#[test]
fn complex_eigenvalues_come_in_two_parts() {
    let turn = matrix([[0.0, -2.0], [2.0, 0.0]]);
    let (re, im) = turn.eigvals().unwrap(); // (2), (2)
    close(&vec(&re), &[0.0, 0.0], 1e-14);
    close(&vec(&im.sort(0, SortOrder::Ascending).unwrap().0), &[-2.0, 2.0], 1e-14);
    let error = turn.eig().unwrap_err().to_string();
    assert!(
        error.starts_with("eig at ") && error.contains("not real") && error.contains("eigvals"),
        "{error}"
    );
}

#[test]
fn pytorch_agrees_in_values_and_gradients() {
    let golden: Value = serde_json::from_str(include_str!("golden/linalg.json")).unwrap();
    let numbers =
        |v: &Value| v.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect::<Vec<_>>();
    for case in golden["cases"].as_array().unwrap() {
        let name = case["op"].as_str().unwrap();
        let wanted: Vec<Vec<f64>> = case["grads"].as_array().unwrap().iter().map(numbers).collect();
        for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-5)] {
            let d = device();
            let leaf = |x: &Value| {
                let shape: Vec<usize> = x["shape"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|n| n.as_u64().unwrap() as usize)
                    .collect();
                Tensor::from_vec(numbers(&x["data"]), shape, &d)
                    .unwrap()
                    .cast(dtype)
                    .unwrap()
                    .requires_grad()
                    .unwrap()
            };
            let inputs: Vec<Tensor> = case["inputs"].as_array().unwrap().iter().map(leaf).collect();
            let y = named(name, &inputs).unwrap_or_else(|error| panic!("{name}: {error}"));
            let size = |x: &[f64]| x.iter().fold(1.0f64, |most, x| most.max(x.abs()));
            let near = |a: &Tensor, b: &[f64]| {
                let a = vec(&a.reshape(-1).unwrap().cast(DType::F64).unwrap());
                let worst = a.iter().zip(b).fold(0.0f64, |most, (a, b)| most.max((a - b).abs()));
                assert!(
                    a.len() == b.len() && worst <= tolerance * size(b),
                    "{name} in {dtype}: off by {worst:e}\n{a:?}\n{b:?}"
                );
            };
            near(&y, &numbers(&case["result"]));
            let n = y.numel();
            let weights = Tensor::linspace(1.0 / n as f64, 1.0, n, dtype, &d).unwrap();
            let grads = y.mul(&weights).unwrap().sum_all().unwrap().backward().unwrap();
            inputs.iter().zip(&wanted).for_each(|(x, wanted)| near(grads.get(x).unwrap(), wanted));
        }
    }
}

fn named(name: &str, x: &[Tensor]) -> Result<Tensor> {
    let flat = |parts: &[&Tensor]| -> Result<Tensor> {
        let parts = parts.iter().map(|p| p.reshape(-1)).collect::<Result<Vec<_>>>()?;
        Tensor::cat(&parts, 0)
    };
    let definite = || {
        x[0].matmul(&x[0].transpose(-2, -1)?)?.add(&Tensor::eye(4, x[0].dtype(), &x[0])?.mul(2.0)?)
    };
    let y = match name {
        "solve" => x[0].solve(&x[1])?,
        "inv" => x[0].inv()?,
        "det" => x[0].det()?,
        "slogdet" => x[0].slogdet()?.1,
        "cholesky" => definite()?.cholesky()?,
        "qr" => {
            let (q, r) = x[0].qr()?;
            flat(&[&q.abs()?, &r.abs()?])?
        }
        "eigh" => {
            let (w, v) = definite()?.eigh()?;
            flat(&[&w, &v.abs()?])?
        }
        "svd" => {
            let (u, s, vt) = x[0].svd()?;
            flat(&[&u.abs()?, &s, &vt.abs()?])?
        }
        "pinv" => x[0].pinv(None)?,
        "lstsq" => x[0].lstsq(&x[1])?,
        "lower" => x[0].solve_triangular(&x[1], Triangle::Lower)?,
        "upper_unit" => x[0].solve_triangular(&x[1], Triangle::UnitUpper)?,
        "frobenius" => x[0].matrix_norm(MatrixNorm::Frobenius)?,
        "nuclear" => x[0].matrix_norm(MatrixNorm::Nuclear)?,
        "spectral" => x[0].matrix_norm(MatrixNorm::Spectral)?,
        "columns" => x[0].matrix_norm(MatrixNorm::Columns)?,
        "rows" => x[0].matrix_norm(MatrixNorm::Rows)?,
        "vector_norm" => x[0].vector_norm(2.5, -1)?,
        other => panic!("{other}"),
    };
    y.reshape(-1)
}

#[test]
fn a_cholesky_factor_solves_as_either_triangle() {
    let factor = matrix([[2.0, 0.0], [-1.0, 4.0]]); // (2, 2)
    let b = matrix([[1.0, 2.0], [3.0, -1.0]]); // (2, 2)
    let ones = matrix([[1.0, 0.0], [-1.0, 1.0]]);
    for (l, triangle, read) in [
        (factor.clone(), Triangle::Lower, &factor),
        (factor.t().unwrap(), Triangle::Upper, &factor),
        (factor.clone(), Triangle::UnitLower, &ones),
        (factor.t().unwrap(), Triangle::UnitUpper, &ones),
    ] {
        let x = b.cholesky_solve(&l, triangle).unwrap();
        let a = read.matmul(&read.t().unwrap()).unwrap();
        close(&vec(&a.matmul(&x).unwrap()), &vec(&b), 1e-14);
    }
}

#[test]
fn a_singular_matrix_is_named_with_its_place_and_a_remedy() {
    let device = reference();
    let good = [[2.0f64, 1.0], [1.0, 3.0]];
    // (1, 3, 2, 2)
    let batch = Tensor::new([[good, good, [[1.0, 2.0], [2.0, 4.0]]]], &device).unwrap();
    for error in [
        batch.inv().unwrap_err(),
        batch.solve(&Tensor::new([1.0f64, 1.0], &device).unwrap()).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Value);
        let text = error.to_string();
        assert!(
            text.contains("linalg.rs")
                && text.contains("the matrix at [0, 2] is singular")
                && text.contains("pinv"),
            "{text}"
        );
    }
    assert!(batch.inv().unwrap_err().to_string().starts_with("inv at "));
    // singular up to rounding only; scaled rows and columns are not
    let nine = matrix([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0], [7.0, 8.0, 9.0]]);
    assert!(nine.inv().unwrap_err().to_string().contains("the matrix is singular"));
    for scaled in
        [[[1.0, 0.0], [0.0, 1e-200]], [[1.0, 1e-20], [1.0, 2e-20]], [[1e-20, 2e-20], [1.0, 1.0]]]
    {
        close(
            &vec(&matrix(scaled).inv().unwrap().matmul(&matrix(scaled)).unwrap()),
            &[1.0, 0.0, 0.0, 1.0],
            1e-12,
        );
    }
    let error = matrix([[1.0, 2.0], [2.0, 1.0]]).cholesky().unwrap_err().to_string();
    assert!(
        error.starts_with("cholesky at ") && error.contains("leading minor of order 2"),
        "{error}"
    );
    let error = matrix([[1.0, 0.0], [5.0, 0.0]])
        .solve_triangular(&matrix([[1.0], [1.0]]), Triangle::Lower)
        .unwrap_err()
        .to_string();
    assert!(error.contains("singular: row 1 has become zero"), "{error}");
    let error = matrix([[1.0, f64::NAN]]).svd().unwrap_err().to_string();
    assert!(error.contains("NaN or an infinity"), "{error}");
}

#[test]
fn wrong_types_and_shapes_are_refused() {
    let x = values((3, 3), reference());
    for dtype in [DType::F16, DType::BF16, DType::I32, DType::Bool] {
        let error = x.cast(dtype).unwrap().det().unwrap_err().to_string();
        assert!(
            error.starts_with("det at ")
                && error.contains(dtype.name())
                && error.contains("help: x.cast("),
            "{error}"
        );
    }
    let error = values((2, 3), reference()).inv().unwrap_err().to_string();
    assert!(error.contains("expected square matrices, got (2, 3): 2 rows, 3 columns"), "{error}");
    let error = x.solve(&values(4, reference())).unwrap_err().to_string();
    assert!(
        error.contains("the matrix (3, 3) has 3 rows, the right-hand side (4, 1) has 4"),
        "{error}"
    );
    assert!(values(3, reference()).svd().unwrap_err().to_string().contains("needs matrices"));
}

#[test]
fn the_gradient_of_a_singular_determinant_is_the_cofactors() {
    let d = device();
    let x = Tensor::new([[1.0f64, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]], &d)
        .unwrap()
        .requires_grad()
        .unwrap();
    let grads = x.det().unwrap().backward().unwrap();
    close(&vec(grads.get(&x).unwrap()), &[4.0, 4.0, -4.0, -2.0, -2.0, 2.0, 0.0, 0.0, 0.0], 1e-12);
    let error = x.slogdet().unwrap().1.backward().map(|_| ()).unwrap_err().to_string();
    assert!(error.contains("singular"), "{error}");
}

/// A recording device knows only later that a matrix is singular.
#[test]
fn the_gradient_of_a_recorded_determinant_is_the_cofactors() {
    for d in [device(), Autograd::new(Lazy::new(Reference::new()))] {
        let x = Tensor::new([[[1.0f64, 2.0], [2.0, 4.0]], [[3.0, 1.0], [1.0, 2.0]]], &d).unwrap();
        let x = x.requires_grad().unwrap(); // (2, 2, 2), the first one singular
        let grads = x.det().unwrap().sum_all().unwrap().backward().unwrap();
        let want = [4.0, -2.0, -2.0, 1.0, 2.0, -1.0, -1.0, 3.0];
        close(&vec(grads.get(&x).unwrap()), &want, 1e-12);
        // The determinant of 2 by 2 is a bilinear form: its Hessian does not depend on the matrix.
        let direction = Tensor::new([[1.0f64, 2.0], [3.0, 5.0]], &d).unwrap(); // (2, 2)
        for i in 0..2 {
            let at = x.detach().unwrap().at(0, i).unwrap(); // (2, 2)
            let (_, product) = hvp(|a: &Tensor| a.det(), &at, &direction).unwrap();
            close(&vec(&product), &[5.0, -3.0, -2.0, 1.0], 1e-12);
        }
    }
}

#[test]
fn what_has_no_gradient_refuses_a_tracked_matrix() {
    let d = device();
    let (square, tall) =
        (values((3, 3), &d).requires_grad().unwrap(), values((4, 3), &d).requires_grad().unwrap());
    for (error, name) in [
        (square.eigvals().map(|_| ()), "eigvals"),
        (tall.svd_full().map(|_| ()), "svd_full"),
        (tall.qr_complete().map(|_| ()), "qr_complete"),
    ] {
        let error = error.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Gradient);
        assert!(
            error.to_string().starts_with(&format!("{name} at "))
                && error.to_string().contains("no gradient"),
            "{error}"
        );
    }
    assert!(square.detach().unwrap().eigvals().is_ok());
}

#[test]
fn singular_values_have_a_gradient_where_they_coincide() {
    let d = device();
    let x = Tensor::eye(3, DType::F64, &d).unwrap().requires_grad().unwrap();
    let grads = x.matrix_norm(MatrixNorm::Nuclear).unwrap().backward().unwrap();
    close(&vec(grads.get(&x).unwrap()), &[1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0], 1e-12);
}

#[test]
fn rank_deficient_least_squares_has_the_least_norm() {
    let a = matrix([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]);
    let b = Tensor::new([1.0f64, 2.0, 3.0], reference()).unwrap(); // (3)
    close(&vec(&a.lstsq(&b).unwrap()), &[0.5, 0.5], 1e-13);
    assert_eq!(a.matrix_rank(None).unwrap().item::<i64>().unwrap(), 1);
    // the pseudo-inverse of constant rank has a gradient: scale the matrix
    let x = Tensor::new(2.0f64, reference()).unwrap();
    gradcheck(|x| a.to(&x[0])?.mul(&x[0])?.pinv(None), &[x], &Check::default()).unwrap();
}

#[test]
fn a_random_matrix_is_put_together_again() {
    let device = Cpu::new();
    for dtype in [DType::F32, DType::F64] {
        let x = Tensor::random(
            teeny_core::Distribution::Normal { mean: 0.0, std: 1.0 },
            (8, 50),
            dtype,
            teeny_core::Key { seed: 1, draw: 0 },
            &device,
        )
        .unwrap();
        let (u, s, vt) = x.svd().unwrap(); // (8, 8), (8), (8, 50)
        let error = u
            .mul(&s)
            .unwrap()
            .matmul(&vt)
            .unwrap()
            .sub(&x)
            .unwrap()
            .abs()
            .unwrap()
            .max_all()
            .unwrap();
        assert!(error.cast(DType::F64).unwrap().item::<f64>().unwrap() < 1e-5);
        let (q, r) = x.qr().unwrap(); // (8, 8), (8, 50)
        let error = q.matmul(&r).unwrap().sub(&x).unwrap().abs().unwrap().max_all().unwrap();
        assert!(error.cast(DType::F64).unwrap().item::<f64>().unwrap() < 1e-5);
        let (u, s, vt) = x.svd_full().unwrap();
        assert_eq!(
            (&u.shape()[..], &s.shape()[..], &vt.shape()[..]),
            (&[8, 8][..], &[8][..], &[50, 50][..])
        );
    }
}

#[test]
fn two_principal_component_analyses_agree() {
    let x = Tensor::random(
        teeny_core::Distribution::Normal { mean: 0.0, std: 1.0 },
        (40, 6),
        DType::F64,
        teeny_core::Key { seed: 2, draw: 0 },
        reference(),
    )
    .unwrap();
    let x =
        x.mul(Tensor::linspace(1.0, 3.0, 6, DType::F64, &x).unwrap()).unwrap().add(2.0).unwrap();
    let pca = x.pca(6).unwrap();
    // the other way: eigenvectors of the covariance
    let centred = x.sub(x.mean(0).unwrap()).unwrap();
    let (w, v) = centred.t().unwrap().matmul(&centred).unwrap().div(39.0).unwrap().eigh().unwrap();
    close(&vec(&pca.variance), &vec(&w.flip(0).unwrap()), 1e-12);
    close(
        &vec(&pca.components.abs().unwrap()),
        &vec(&v.t().unwrap().flip(0).unwrap().abs().unwrap()),
        1e-10,
    );
    assert!(
        pca.components
            .gather(1, &pca.components.abs().unwrap().argmax(1).unwrap().unsqueeze(1).unwrap())
            .unwrap()
            .gt(0.0)
            .unwrap()
            .all(..)
            .unwrap()
            .item::<bool>()
            .unwrap()
    );
    close(&vec(&pca.inverse(&pca.transform(&x).unwrap()).unwrap()), &vec(&x), 1e-12);
    let error = x.pca(7).unwrap_err().to_string();
    assert!(error.contains("cannot find 7 components of 40 samples of 6 features"), "{error}");
}

#[test]
fn batches_broadcast_and_empty_ones_are_answered() {
    let device = reference();
    let a = values((3, 1, 2, 2), &device)
        .add(Tensor::eye(2, DType::F64, &device).unwrap().mul(4.0).unwrap())
        .unwrap();
    let b = values((5, 2, 1), &device);
    let x = a.solve(&b).unwrap();
    assert_eq!(x.shape()[..], [3, 5, 2, 1]);
    close(&vec(&a.matmul(&x).unwrap()), &vec(&b.expand((3, 5, 2, 1)).unwrap()), 1e-13);
    // as many matrices as they have rows: the identity is not a batch of vectors
    let cube = values((3, 3, 3), &device)
        .add(Tensor::eye(3, DType::F64, &device).unwrap().mul(4.0).unwrap())
        .unwrap();
    let one = Tensor::eye(3, DType::F64, &device).unwrap().expand((3, 3, 3)).unwrap();
    close(&vec(&cube.matmul(&cube.inv().unwrap()).unwrap()), &vec(&one), 1e-13);
    let none = Tensor::zeros((0, 3, 3), DType::F32, &device).unwrap();
    assert_eq!(none.inv().unwrap().shape()[..], [0, 3, 3]);
    let nothing = Tensor::zeros((0, 0), DType::F64, &device).unwrap();
    assert_eq!(nothing.det().unwrap().item::<f64>().unwrap(), 1.0);
    assert_eq!(nothing.inv().unwrap().shape()[..], [0, 0]);
    let flat = Tensor::zeros((3, 0), DType::F64, &device).unwrap();
    assert_eq!(flat.svdvals().unwrap().shape()[..], [0]);
    assert_eq!(flat.pinv(None).unwrap().shape()[..], [0, 3]);
    assert_eq!(flat.matrix_rank(None).unwrap().item::<i64>().unwrap(), 0);
}

#[test]
fn the_cpu_and_its_wrappers_answer_alike() {
    let x = values((2, 4, 4), reference());
    let wanted = vec(&x.svdvals().unwrap());
    let trace = teeny_core::wrappers::Trace::new(Cpu::new());
    close(&vec(&x.to(&trace).unwrap().svdvals().unwrap()), &wanted, 0.0);
    let compared = teeny_core::wrappers::Compare::new(Cpu::new(), Reference::new());
    close(&vec(&x.to(&compared).unwrap().svdvals().unwrap()), &wanted, 0.0);
    let checked = teeny_core::wrappers::Checked::new(Cpu::new());
    close(&vec(&x.to(&checked).unwrap().svdvals().unwrap()), &wanted, 0.0);
}
