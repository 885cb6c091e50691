//! Products of matrices and vectors. Each runs `Op::Matmul`, with the leading axes broadcast,
//! except `kron` and, of integers, `outer`, which multiply elements.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::messages::BROADCAST;
use crate::op::Op;
use crate::shape::Shape;
use crate::tensor::Tensor;
use crate::tensor::one_device::pair;

impl Tensor {
    /// The matrix product: `(.., m, k) @ (.., k, n) → (.., m, n)`.
    ///
    /// Leading axes broadcast. A vector on the left is a row, on the right a column, and its axis
    /// disappears from the result; two vectors give their dot product. Transposed and otherwise
    /// strided views are used as they are, without copies. Types are promoted; 16-bit floats
    /// accumulate in f32.
    ///
    /// Accuracy on `Cpu`: f32 are added up by parts of at most 512 products, so that a result is
    /// within `(min(k, 512) + k / 192 + 8) 2^-24 Σ |a b|` of the exact one (with 2^-53 for f64).
    ///
    /// # Errors
    /// If an operand is a scalar, the inner sizes differ, the leading axes do not broadcast, or
    /// both are bool.
    ///
    /// Equivalent: `torch.matmul`.
    #[track_caller]
    pub fn matmul(&self, rhs: &Tensor) -> Result<Tensor> {
        let _op = enter("matmul").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        let (lhs, rhs) = pair(self, rhs)?;
        let (a, b) = (lhs.as_ref(), rhs.as_ref());
        if a.ndim() == 0 || b.ndim() == 0 {
            return Err(mismatch(a, b, "a scalar is not a matrix").help("scale with x.mul(..)"));
        }
        let dtype = a.dtype().promote(b.dtype());
        if dtype == DType::Bool {
            return Err(Error::dtype("bools cannot be multiplied as matrices")
                .help("x.cast(DType::F32)? converts"));
        }
        // Matrices of one type with equal leading axes go to the device as they are: each of the
        // steps below would move a tensor of 184 bytes.
        if let ([lead @ .., _, k], [lead2 @ .., k2, _]) = (&a.shape()[..], &b.shape()[..])
            && (lead, k, a.dtype()) == (lead2, k2, b.dtype())
        {
            return Op::Matmul { lhs: a, rhs: b }.tensor(a.device());
        }
        let (row, column) = (a.ndim() == 1, b.ndim() == 1);
        let (a, b) = (a.cast(dtype)?, b.cast(dtype)?);
        let a = if row { a.unsqueeze(0)? } else { a };
        let b = if column { b.unsqueeze(1)? } else { b };
        let (m, k) = (a.shape()[a.ndim() - 2], a.shape()[a.ndim() - 1]);
        let (k2, n) = (b.shape()[b.ndim() - 2], b.shape()[b.ndim() - 1]);
        if k != k2 {
            let error = mismatch(&lhs, &rhs, &format!("{k} columns meet {k2} rows"));
            return Err(error.help(match (n == k && !column, m == k2 && !row) {
                (true, _) => format!("rhs.t() is {} and would fit", rhs.t()?.shape()),
                (_, true) => format!("lhs.t() is {} and would fit", lhs.t()?.shape()),
                _ => format!("rhs needs {k} rows, or lhs {k2} columns"),
            }));
        }
        let lead = |t: &Tensor| Shape::from_checked(&t.shape()[..t.ndim() - 2]);
        let Some(batch) = lead(&a).broadcast(&lead(&b)) else {
            return Err(mismatch(
                &lhs,
                &rhs,
                &format!("the leading axes {} and {} do not broadcast", lead(&a), lead(&b)),
            )
            .help(BROADCAST));
        };
        let full = |rows: usize, columns: usize| {
            let mut sizes = batch.to_vec();
            sizes.extend([rows, columns]);
            Shape::new(&sizes)
        };
        let (a, b) = (a.expand_to(&full(m, k)?)?, b.expand_to(&full(k, n)?)?);
        let out = Op::Matmul { lhs: &a, rhs: &b }.tensor(a.device())?;
        let out = if row { out.squeeze(-2)? } else { out };
        if column { out.squeeze(-1) } else { Ok(out) }
    }

    /// The dot product of two vectors, a scalar.
    ///
    /// # Errors
    /// If either is not a vector, or the lengths differ.
    #[track_caller]
    pub fn dot(&self, rhs: &Tensor) -> Result<Tensor> {
        let _op = enter("dot").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        require_vectors(self, rhs)?;
        self.matmul(rhs)
    }

    /// The products of all pairs: `(n,)` and `(m,)` → `(n, m)`.
    ///
    /// # Errors
    /// If either is not a vector.
    #[track_caller]
    pub fn outer(&self, rhs: &Tensor) -> Result<Tensor> {
        let _op = enter("outer").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        require_vectors(self, rhs)?;
        if self.dtype().promote(rhs.dtype()).is_float() {
            return self.unsqueeze(1)?.matmul(&rhs.unsqueeze(0)?);
        }
        self.unsqueeze(1)?.mul(rhs)
    }

    /// The Kronecker product: every element of self times all of `rhs`, sizes multiplied axis by
    /// axis; missing axes count as 1.
    ///
    /// # Errors
    /// If the larger of the two has more than 4 axes.
    ///
    /// Equivalent: `torch.kron`.
    #[track_caller]
    pub fn kron(&self, rhs: &Tensor) -> Result<Tensor> {
        let _op = enter("kron").on([("lhs", Some(self)), ("rhs", Some(rhs))]);
        let ndim = self.ndim().max(rhs.ndim());
        let sizes = |x: &Tensor| [vec![1; ndim - x.ndim()], x.shape().to_vec()].concat();
        let (a, b) = (sizes(self), sizes(rhs));
        let between = |sizes: &[usize], own: usize| {
            sizes.iter().flat_map(|&n| if own == 0 { [n, 1] } else { [1, n] }).collect::<Vec<_>>()
        };
        // (a0, b0, a1, b1, ..)
        let product = self.reshape(between(&a, 0))?.mul(&rhs.reshape(between(&b, 1))?)?;
        product.reshape(a.iter().zip(&b).map(|(m, n)| m * n).collect::<Vec<_>>())
    }
}

fn require_vectors(lhs: &Tensor, rhs: &Tensor) -> Result<()> {
    match (lhs.ndim(), rhs.ndim()) {
        (1, 1) => Ok(()),
        _ => {
            Err(Error::shape(format!("expected vectors, got {} and {}", lhs.shape(), rhs.shape()))
                .help("x.reshape(-1)? is a vector; lhs.matmul(&rhs)? multiplies matrices"))
        }
    }
}

#[cold]
fn mismatch(lhs: &Tensor, rhs: &Tensor, why: &str) -> Error {
    Error::shape(format!("cannot multiply {} @ {}: {why}", lhs.shape(), rhs.shape()))
        .help("(.., m, k) @ (.., k, n) is (.., m, n)")
}
