//! The softmax of a tile of scores as data. `tile` has the arithmetic.

/// All widths of tiles are multiples of this: the lanes of the widest vector.
pub(super) const PAD: usize = 16;

/// An update of the online softmax by a tile of scores.
pub(super) struct OnlineSoftmax<'a, T> {
    /// Scores in, `exp(s - max)` out; rows [`OnlineSoftmax::row`] apart, `n` columns in use.
    pub s: *mut T,
    pub row: usize,
    pub n: usize,
    /// The running maximum of each row: as many as there are rows.
    pub max: &'a mut [T],
    /// The running sum of each row, in [`PAD`] parts.
    pub sum: *mut T,
    /// The sum of `P V` over earlier tiles, which is rescaled: rows of `width`.
    pub acc: *mut T,
    pub width: usize,
}

/// Probabilities and gradients of a tile of scores.
pub(super) struct SoftmaxBackward<'a, T> {
    /// Scores in, probabilities out.
    pub s: *mut T,
    /// Gradients of the probabilities in, of the scores out; not touched without `inner`.
    pub ds: *mut T,
    pub row: usize,
    pub n: usize,
    /// The logsumexp of each row.
    pub lse: &'a [T],
    /// `Σ g y` of each row.
    pub inner: Option<&'a [T]>,
    /// The factor of the scores, and so of their gradients.
    pub scale: T,
}
