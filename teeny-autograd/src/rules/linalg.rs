//! Solving and factoring matrices.
//!
//! Sources: Giles 2008, "Collected matrix derivative results for forward and reverse mode AD"
//! (solve, det, eigh); Murray 2016, arXiv:1602.07527 (cholesky); Walter & Lehmann 2010,
//! arXiv:1001.1654, and Roberts & Roberts 2020, arXiv:2009.10071 (qr); Townsend 2016,
//! "Differentiating the singular value decomposition"; Golub & Pereyra 1973 (pinv).

use crate::nesting::differentiated;
use crate::record::{Operands, Rule, if_needed};
use teeny_core::{Error, LinalgOp, Result, Tensor, Triangle, map};

/// The rule of `op`, with the outputs `values`.
pub(crate) fn linalg(
    operands: &Operands<'_>,
    op: LinalgOp,
    inputs: &[&Tensor],
    values: &[Tensor],
) -> Rule {
    let needs: Vec<bool> = (0..inputs.len()).map(|i| operands.need(i)).collect();
    let inner: Vec<Tensor> = inputs.iter().map(|x| (*x).clone()).collect();
    let saved = values.to_vec();
    Rule {
        backward: Box::new(move |g| adjoint(op, &inner, &saved, g, &needs)),
        edges: operands.edges(),
        // The sign of a determinant is constant wherever it has a derivative.
        detached: (op == LinalgOp::SlogDet).then_some((0, None)),
    }
}

/// An error for an op that has no derivative rule.
pub(crate) fn require_rule(op: LinalgOp, inputs: &[&Tensor]) -> Result<()> {
    let &[.., m, n] = &inputs[0].shape()[..] else { return Ok(()) };
    let (what, help) = match op {
        LinalgOp::Eig => (
            "the eigenvalues of a general matrix have",
            "x.detach()? computes them without one; eigh has one, for symmetric matrices",
        ),
        LinalgOp::Svd { full: true } if m != n => {
            ("all columns of u and v have", "svd() gives those that have one")
        }
        LinalgOp::Qr { complete: true } if m > n => {
            ("all columns of q have", "qr() gives those that have one")
        }
        LinalgOp::Svd { .. }
        | LinalgOp::Qr { .. }
        | LinalgOp::Solve
        | LinalgOp::SolveTriangular(_)
        | LinalgOp::Det => return Ok(()),
        LinalgOp::SlogDet | LinalgOp::Cholesky | LinalgOp::Eigh | LinalgOp::Pinv { .. } => {
            return Ok(());
        }
    };
    Err(Error::gradient(format!("{what} no gradient here")).help(help))
}

/// The gradients of the operands from the gradients of the results.
pub(crate) fn adjoint(
    op: LinalgOp,
    inputs: &[Tensor],
    results: &[Tensor],
    g: &[Option<Tensor>],
    needs: &[bool],
) -> Result<Vec<Option<Tensor>>> {
    let a = &inputs[0];
    let first =
        || g[0].as_ref().ok_or_else(|| Error::internal("a backward pass without a gradient"));
    Ok(vec![Some(match op {
        LinalgOp::Solve => {
            let g_b = transposed(a)?.solve(first()?)?;
            let g_a = if_needed(needs[0], || g_b.matmul(&transposed(&results[0])?)?.neg())?;
            return Ok(vec![g_a, needs[1].then_some(g_b)]);
        }
        LinalgOp::SolveTriangular(triangle) => {
            let g_b = transposed(a)?.solve_triangular(first()?, triangle.transposed())?;
            let g_a = if_needed(needs[0], || {
                part(&g_b.matmul(&transposed(&results[0])?)?.neg()?, triangle)
            })?;
            return Ok(vec![g_a, needs[1].then_some(g_b)]);
        }
        LinalgOp::Det => cofactors(a, &results[0])?.mul(&as_matrices(first()?)?)?,
        LinalgOp::SlogDet => match &g[1] {
            Some(g) => transposed(&a.inv()?)?.mul(&as_matrices(g)?)?,
            None => a.zeros_like()?,
        },
        LinalgOp::Cholesky => cholesky(&results[0], first()?)?,
        LinalgOp::Qr { .. } => qr(a, &results[0], &results[1], g)?,
        LinalgOp::Eigh => eigh(&results[0], &results[1], g)?,
        LinalgOp::Eig => return Err(Error::internal("a gradient of eig, which is refused")),
        LinalgOp::Svd { .. } => svd(results, g)?,
        LinalgOp::Pinv { .. } => pinv(a, &results[0], first()?)?,
    })])
}

fn transposed(x: &Tensor) -> Result<Tensor> {
    x.transpose(-2, -1)
}

/// One number per matrix beside its elements: (..) → (.., 1, 1).
fn as_matrices(x: &Tensor) -> Result<Tensor> {
    x.unsqueeze(-1)?.unsqueeze(-1)
}

/// The elements that a triangular solve reads.
pub(crate) fn part(x: &Tensor, triangle: Triangle) -> Result<Tensor> {
    match triangle {
        Triangle::Lower => x.tril(0),
        Triangle::Upper => x.triu(0),
        Triangle::UnitLower => x.tril(-1),
        Triangle::UnitUpper => x.triu(1),
    }
}

/// The matrix of cofactors: `det(u) det(v) u c vᵀ` by the singular values of `a = u s vᵀ`, c the
/// products of all others. If it is to be differentiated again: `det(a) a⁻ᵀ`, or by [`adjugate`]
/// where the matrix is singular, as equal singular values have no gradient. The operations are the
/// same for all matrices: whether one is singular is known to the device alone.
pub(crate) fn cofactors(a: &Tensor, det: &Tensor) -> Result<Tensor> {
    let n = a.shape()[a.ndim() - 1];
    let (u, s, vt) = a.svd()?; // s: (.., n)
    let one = Tensor::eye(n, a.dtype(), a)?; // (n, n)
    if n > 0 && differentiated(a) {
        // The pivots of such a matrix are above the bound of `inv`.
        let bound = 4.0 * (n * n) as f64 * f64::EPSILON;
        let regular = s.slice(-1, n - 1..)?.gt(&s.slice(-1, ..1)?.mul(bound)?)?; // (.., 1)
        let regular = regular.unsqueeze(-1)?; // (.., 1, 1)
        let inverse = regular.where_cond(a, &one)?.inv()?; // (.., n, n)
        let polynomial = adjugate(&regular.where_cond(&one, a)?)?;
        return transposed(&regular.where_cond(&inverse.mul(&as_matrices(det)?)?, &polynomial)?);
    }
    // row i: all singular values but the i-th
    // (.., n)
    let others =
        map([&s.unsqueeze(-2)?, &one], |[s, d]| d.ne(0.0).where_cond(s.like(1), s))?.prod(-1)?;
    let sign = as_matrices(&u.det()?.mul(&vt.det()?)?)?;
    u.mul(&others.unsqueeze(-2)?)?.matmul(&vt)?.mul(&sign)
}

/// The transposed cofactors as a polynomial in `a`: `m ← a m - tr(a m) / k`, k = 1, .., n - 1, from
/// `m = 1`, and the sign. Exact derivatives of any order, in n matrix products that lose digits
/// where n is large.
///
/// Source: Faddeev and LeVerrier's algorithm, Householder 1964, section 6.7.
fn adjugate(a: &Tensor) -> Result<Tensor> {
    let n = a.shape()[a.ndim() - 1];
    let one = Tensor::eye(n, a.dtype(), a)?; // (n, n)
    let mut m = one.expand(*a.shape())?; // (.., n, n)
    for k in 1..n {
        let product = a.matmul(&m)?; // (.., n, n)
        let mean = as_matrices(&product.trace()?.div(k as f64)?)?; // (.., 1, 1)
        m = product.sub(&one.mul(&mean)?)?;
    }
    if n.is_multiple_of(2) { m.neg() } else { Ok(m) }
}

/// `1/2 l⁻ᵀ (p + pᵀ) l⁻¹` with p the lower triangle of `lᵀ g`, its diagonal halved.
fn cholesky(l: &Tensor, g: &Tensor) -> Result<Tensor> {
    let p = halved(&transposed(l)?.matmul(g)?)?;
    let s = p.add(&transposed(&p)?)?.mul(0.5)?;
    // l⁻ᵀ s l⁻¹ = l⁻ᵀ (l⁻ᵀ s)ᵀ, s being symmetric
    let left = transposed(l)?.solve_triangular(&s, Triangle::Upper)?;
    transposed(l)?.solve_triangular(&transposed(&left)?, Triangle::Upper)
}

/// The lower triangle with half the diagonal.
pub(crate) fn halved(x: &Tensor) -> Result<Tensor> {
    x.tril(0)?.add(&x.tril(-1)?)?.mul(0.5)
}

/// `(g_q + q s) r⁻ᵀ`, s the symmetric matrix with the lower triangle of `r g_rᵀ - g_qᵀ q`. A wide
/// matrix is `[x, y] = q [r, w]`: `w = qᵀ y` passes its gradient to y and to q, the rest is the
/// rule for `x = q r`.
fn qr(a: &Tensor, q: &Tensor, r: &Tensor, g: &[Option<Tensor>]) -> Result<Tensor> {
    let g_q = g[0].clone().map_or_else(|| q.zeros_like(), Ok)?;
    let g_r = g[1].clone().map_or_else(|| r.zeros_like(), Ok)?;
    let (m, n) = (r.shape()[r.ndim() - 2], r.shape()[r.ndim() - 1]);
    if n > m {
        let (y, g_w) = (a.slice(-1, m..)?, g_r.slice(-1, m..)?);
        let g_q = g_q.add(&y.matmul(&transposed(&g_w)?)?)?;
        let g_x = square_qr(q, &r.slice(-1, ..m)?, &g_q, &g_r.slice(-1, ..m)?)?;
        return Tensor::cat(&[&g_x, &q.matmul(&g_w)?], -1);
    }
    square_qr(q, r, &g_q, &g_r)
}

fn square_qr(q: &Tensor, r: &Tensor, g_q: &Tensor, g_r: &Tensor) -> Result<Tensor> {
    let m = r.matmul(&transposed(g_r)?)?.sub(&transposed(g_q)?.matmul(q)?)?;
    let s = m.tril(0)?.add(&transposed(&m.tril(-1)?)?)?;
    let left = g_q.add(&q.matmul(&s)?)?; // (.., m, k)
    transposed(&r.solve_triangular(&transposed(&left)?, Triangle::Upper)?)
}

/// `v (diag(g_w) + f ∘ vᵀ g_v) vᵀ` with f = 1 / (w_j - w_i) beside the diagonal, made symmetric.
fn eigh(w: &Tensor, v: &Tensor, g: &[Option<Tensor>]) -> Result<Tensor> {
    let mut middle = match &g[0] {
        Some(g) => g.diag_embed(0)?,
        None => v.zeros_like()?,
    };
    if let Some(g) = &g[1] {
        let turned = transposed(v)?.matmul(g)?.mul(&gaps(w)?)?;
        middle = middle.add(&turned.add(&transposed(&turned)?)?.mul(0.5)?)?;
    }
    v.matmul(&middle)?.matmul(&transposed(v)?)
}

/// `1 / (w_j - w_i)` at row i and column j, 0 on the diagonal: (.., n) → (.., n, n).
pub(crate) fn gaps(w: &Tensor) -> Result<Tensor> {
    let n = w.shape()[w.ndim() - 1];
    let same = Tensor::eye(n, w.dtype(), w)?; // (n, n)
    map([&w.unsqueeze(-2)?, &w.unsqueeze(-1)?, &same], |[column, row, same]| {
        let same = same.ne(0.0);
        same.where_cond(column.like(0), same.where_cond(column.like(1), column - row).recip())
    })
}

/// With `e = 1 / (s_j² - s_i²)` beside the diagonal and `sk(x) = x - xᵀ`:
///
/// `u ((e ∘ sk(uᵀ g_u)) s + s (e ∘ sk(vᵀ g_v)) + diag(g_s)) vᵀ + (1 - u uᵀ) g_u s⁻¹ vᵀ + u s⁻¹ g_vᵀ
/// (1 - v vᵀ)`
fn svd(results: &[Tensor], g: &[Option<Tensor>]) -> Result<Tensor> {
    let [u, s, vt] = results else { return Err(Error::internal("three results of svd")) };
    let k = s.shape()[s.ndim() - 1];
    let (row, column) = (s.unsqueeze(-2)?, s.unsqueeze(-1)?); // (.., 1, k), (.., k, 1)
    let skew = |x: Tensor| -> Result<Tensor> { x.sub(&transposed(&x)?)?.mul(&gaps(&s.square()?)?) };
    let mut middle = match &g[1] {
        Some(g) => g.diag_embed(0)?,
        None => Tensor::zeros(u.shape().with_size(u.ndim() - 2, k), s.dtype(), s)?,
    };
    let mut outside: Option<Tensor> = None;
    if let Some(g) = &g[0] {
        let along = transposed(u)?.matmul(g)?; // (.., k, k)
        middle = middle.add(&skew(along.clone())?.mul(&row)?)?;
        if u.shape()[u.ndim() - 2] > k {
            outside = Some(g.sub(&u.matmul(&along)?)?.div(&row)?.matmul(vt)?);
        }
    }
    if let Some(g) = &g[2] {
        let along = g.matmul(&transposed(vt)?)?; // (.., k, k): g_vᵀ v
        middle = middle.add(&skew(transposed(&along)?)?.mul(&column)?)?;
        if vt.shape()[vt.ndim() - 1] > k {
            let term = u.matmul(&g.sub(&along.matmul(vt)?)?.div(&column)?)?;
            outside = Some(outside.map_or(Ok(term.clone()), |o| o.add(&term))?);
        }
    }
    let inside = u.matmul(&middle)?.matmul(vt)?;
    outside.map_or(Ok(inside.clone()), |o| inside.add(&o))
}

/// `-pᵀ g pᵀ + (1 - a p) gᵀ p pᵀ + pᵀ p gᵀ (1 - p a)`.
fn pinv(a: &Tensor, p: &Tensor, g: &Tensor) -> Result<Tensor> {
    let (pt, gt) = (transposed(p)?, transposed(g)?);
    let first = pt.matmul(g)?.matmul(&pt)?;
    let second = gt.matmul(p)?.matmul(&pt)?; // (.., m, n)
    let second = second.sub(&a.matmul(&p.matmul(&second)?)?)?;
    let third = pt.matmul(p)?.matmul(&gt)?; // (.., m, n)
    let third = third.sub(&third.matmul(p)?.matmul(a)?)?;
    second.add(&third)?.sub(&first)
}
