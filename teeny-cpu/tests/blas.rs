//! The BLAS-style entry points against triple loops.

use teeny_cpu::blas::{BlasFloat, Trans, axpy, gemm, gemv};

fn numbers(n: usize, seed: usize) -> Vec<f64> {
    (0..n).map(|i| ((i * 37 + seed * 11) % 29) as f64 / 7.0 - 2.0).collect()
}

fn check<T: BlasFloat + Copy + Into<f64>>(convert: fn(f64) -> T, tolerance: f64) {
    for (m, n, k) in [
        (1, 1, 1),
        (3, 5, 7),
        (17, 33, 9),
        (1, 40, 31),
        (65, 1, 13),
        (70, 129, 90),
        (5, 4, 0),
        (1, 520, 8),
        (6, 9, 1100),
        (9, 3, 130),
        (2, 300, 1300),
        (12, 70, 4100),
    ] {
        for (ta, tb) in [
            (Trans::No, Trans::No),
            (Trans::Yes, Trans::No),
            (Trans::No, Trans::Yes),
            (Trans::Yes, Trans::Yes),
        ] {
            for beta in [0.0, 1.0, -0.5] {
                let (ra, ca) = if ta == Trans::No { (m, k) } else { (k, m) };
                let (rb, cb) = if tb == Trans::No { (k, n) } else { (n, k) };
                let (lda, ldb, ldc) = (ca + 3, cb + 1, n + 2);
                let (a, b, mut c) =
                    (numbers(ra * lda, 1), numbers(rb * ldb, 2), numbers(m * ldc, 3));
                let at = |i: usize, j: usize| {
                    if ta == Trans::No { a[i * lda + j] } else { a[j * lda + i] }
                };
                let bt = |i: usize, j: usize| {
                    if tb == Trans::No { b[i * ldb + j] } else { b[j * ldb + i] }
                };
                let mut want = c.clone();
                for i in 0..m {
                    for j in 0..n {
                        let dot: f64 = (0..k).map(|p| at(i, p) * bt(p, j)).sum();
                        want[i * ldc + j] =
                            1.5 * dot + if beta == 0.0 { 0.0 } else { beta * c[i * ldc + j] };
                        if beta == 0.0 {
                            c[i * ldc + j] = f64::NAN;
                        }
                    }
                }
                let [ca, cb, mut cc] =
                    [&a, &b, &c].map(|v| v.iter().map(|&v| convert(v)).collect::<Vec<T>>());
                gemm(
                    ta,
                    tb,
                    m,
                    n,
                    k,
                    convert(1.5),
                    &ca,
                    lda,
                    &cb,
                    ldb,
                    convert(beta),
                    &mut cc,
                    ldc,
                )
                .unwrap();
                for (i, (&got, want)) in cc.iter().zip(&want).enumerate() {
                    let got: f64 = got.into();
                    assert!(
                        (got - want).abs() <= tolerance * want.abs().max(1.0),
                        "{m}x{n}x{k} {ta:?} {tb:?} {beta}: c[{i}] {got} not {want}"
                    );
                }
                if tb == Trans::No && n == 1 {
                    let x: Vec<T> = (0..k).map(|p| convert(bt(p, 0))).collect();
                    let mut y: Vec<T> = (0..m).map(|i| convert(c[i * ldc])).collect();
                    gemv(
                        ta,
                        ra,
                        if ta == Trans::No { k } else { m },
                        convert(1.5),
                        &ca,
                        lda,
                        &x,
                        convert(beta),
                        &mut y,
                    )
                    .unwrap();
                    for (i, &got) in y.iter().enumerate() {
                        let (got, want): (f64, f64) = (got.into(), want[i * ldc]);
                        assert!(
                            (got - want).abs() <= tolerance * want.abs().max(1.0),
                            "gemv {ta:?} {beta}: {got} not {want}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn gemm_and_gemv_in_f32() {
    check::<f32>(|v| v as f32, 1e-4);
}

#[test]
fn gemm_and_gemv_in_f64() {
    check::<f64>(|v| v, 1e-12);
}

#[test]
fn axpy_and_sizes_that_do_not_fit() {
    let mut y = vec![1.0f64; 101];
    axpy(0.5, &numbers(101, 4), &mut y).unwrap();
    assert!(y.iter().zip(numbers(101, 4)).all(|(y, x)| *y == 1.0 + 0.5 * x));
    let error = axpy(1.0, &[1.0f32], &mut [1.0, 2.0]).unwrap_err().to_string();
    assert!(error.starts_with("axpy: x has 1 elements, y has 2"), "{error}");
    let mut c = [0.0f32; 4];
    let short =
        gemm(Trans::No, Trans::No, 2, 2, 2, 1.0, &[0.0; 3], 2, &[0.0; 4], 2, 0.0, &mut c, 2)
            .unwrap_err()
            .to_string();
    assert!(
        short.contains("a is (2, 2) with leading dimension 2, but has only 3 elements"),
        "{short}"
    );
    let message =
        gemm(Trans::No, Trans::No, 2, 2, 2, 1.0, &[0.0; 4], 1, &[0.0; 4], 2, 0.0, &mut c, 2)
            .unwrap_err()
            .to_string();
    assert!(message.contains("leading dimension is 1"), "{message}");
}
