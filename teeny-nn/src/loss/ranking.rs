//! The contrastive loss of pairs: the other rows of a batch are the negatives.

use super::{CrossEntropy, Reduction};
use crate::norm::normalized;
use teeny_core::context::enter;
use teeny_core::{Error, Result, Tensor};

/// Cross-entropy of the cosines of each anchor with all candidates, times `scale`, where the
/// positive of the same row is the class: `-log softmax(scale cos(a, c))[i]` of row i. Candidates
/// are all positives, of which other rows' are negatives, and then `negatives`.
///
/// Shapes: anchors and positives (N, E), negatives (M, E) → scalar, or (N) without reduction. Of
/// one pair alone the loss is 0: a batch of pairs has at least two. Embeddings need not be
/// normalised; the cosine with a row of zeros is 0.
///
/// # Errors
/// If the shapes do not fit, the types differ or are not floats, the batch is empty, or `scale` is
/// not positive.
///
/// # Example
/// ```
/// use teeny_core::Tensor;
/// use teeny_nn::loss::{Reduction, multiple_negatives_ranking};
/// # fn main() -> teeny_core::Result<()> {
/// # let device = teeny_nn::device("cpu")?;
/// let questions = Tensor::new([[1.0f32, 0.1], [0.1, 1.0]], &device)?; // (N, E)
/// let answers = Tensor::new([[2.0f32, 0.0], [0.0, 3.0]], &device)?; // (N, E)
/// let loss = |answers: &Tensor| {
///     multiple_negatives_ranking(&questions, answers, None, 20.0, Reduction::Mean)?.item::<f32>()
/// };
/// assert!(loss(&answers)? < 1e-6 && loss(&answers.flip(&[0])?)? > 10.0);
/// # Ok(()) }
/// ```
/// Source: Henderson et al. 2017, arXiv:1705.00652. Equivalent: `MultipleNegativesRankingLoss` of
/// sentence-transformers, whose scale is 20.
#[track_caller]
pub fn multiple_negatives_ranking(
    anchors: &Tensor,
    positives: &Tensor,
    negatives: Option<&Tensor>,
    scale: f64,
    reduction: Reduction,
) -> Result<Tensor> {
    let _op = enter("multiple_negatives_ranking");
    if !scale.is_finite() || scale <= 0.0 {
        return Err(Error::value(format!("scale must be positive, not {scale}")));
    }
    let [n, width] = anchors.shape()[..] else {
        let text = format!("anchors are (N, E), not {}", anchors.shape());
        return Err(Error::shape(text).help("a row for each text"));
    };
    if n == 0 || positives.shape() != anchors.shape() {
        let text = format!("anchors are {}, positives {}", anchors.shape(), positives.shape());
        return Err(Error::shape(text).help("pass a positive for each anchor, and at least one"));
    }
    if let Some(other) = negatives.filter(|x| x.ndim() != 2 || x.shape()[1] != width) {
        let text = format!("anchors {} do not match negatives {}", anchors.shape(), other.shape());
        return Err(Error::shape(text).help(format!("negatives must be (M, {width})")));
    }
    let dtype = anchors.dtype();
    let others = [Some(positives), negatives];
    if let Some(other) = others.into_iter().flatten().find(|x| x.dtype() != dtype) {
        let text = format!("anchors are {dtype}, but the other embeddings are {}", other.dtype());
        return Err(Error::dtype(text).help("all embeddings must have the same dtype"));
    }
    let unit = |x: &Tensor| normalized(&x.cast(dtype.compute())?);
    let candidates = match negatives {
        Some(negatives) => Tensor::cat(&[positives, negatives], 0)?, // (N + M, E)
        None => positives.clone(),
    };
    let scores = unit(anchors)?.matmul(&unit(&candidates)?.t()?)?.mul(scale)?;
    let own = Tensor::arange(0i32, n as i32, 1, anchors)?; // (N)
    CrossEntropy::new().with_reduction(reduction).loss(&scores, &own)?.cast(dtype)
}
