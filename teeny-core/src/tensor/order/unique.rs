//! Unique elements, where they occur and how often: a sort, then the places where neighbours
//! differ. The number of results depends on the data, so that the device is waited for.

use crate::context::enter;
use crate::dtype::DType;
use crate::error::Result;
use crate::op::SortOrder;
use crate::shape::index_end;
use crate::tensor::Tensor;

impl Tensor {
    /// The different elements in ascending order, for each element of self its place among them (in
    /// self's shape), and how often each occurs (`I32`). NaN is different from itself. Zeros are
    /// equal for either sign, and the first of equal elements stands for them. Waits for the
    /// device.
    ///
    /// Equivalent: `torch.unique(x, return_inverse=True, return_counts=True)`.
    #[track_caller]
    pub fn unique(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("unique").on([("x", Some(self))]);
        let (sorted, order) = self.reshape(-1)?.sort(0, SortOrder::Ascending)?;
        let starts = starts(&sorted.unsqueeze(1)?)?; // (n)
        let (places, inverse, counts) = groups(&starts, Some(&order))?;
        Ok((sorted.index_select(0, &places)?, inverse.reshape(self.shape())?, counts))
    }

    /// The different slices along `axis` in ascending order (compared element by element), for each
    /// slice of self its place among them, and how often each occurs (`I32`). Waits for the device.
    ///
    /// Equivalent: `torch.unique(x, dim=axis, return_inverse=True, return_counts=True)`.
    #[doc(alias = "unique")]
    #[track_caller]
    pub fn unique_slices(&self, axis: isize) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("unique_slices").on([("x", Some(self))]);
        let axis = self.shape().axis(axis)?;
        let rows = self.movedim(axis, 0)?;
        let sizes = rows.shape().to_vec();
        let width: usize = sizes[1..].iter().product();
        // Its columns are sorted by one after another: a repeated axis must not repeat that for
        // longer than memory allows.
        let rows = rows.reshape((sizes[0], width))?.contiguous()?; // (n, width)
        // Stable sorts from the last element to the first leave the rows in lexicographic order.
        let mut order = Tensor::arange(0i32, index_end(sizes[0])?, 1, self)?; // (n)
        for column in (0..if rows.numel() > 0 { width } else { 0 }).rev() {
            let keys = rows.at(1, column as isize)?.index_select(0, &order)?;
            order = order.index_select(0, &keys.argsort(0, SortOrder::Ascending)?)?;
        }
        let sorted = rows.index_select(0, &order)?;
        let (places, inverse, counts) = groups(&starts(&sorted)?, Some(&order))?;
        let mut shape = sizes;
        shape[0] = places.numel();
        Ok((sorted.index_select(0, &places)?.reshape(shape)?.movedim(0, axis)?, inverse, counts))
    }

    /// [`Tensor::unique`] of a sequence that is not sorted: every run of equal neighbours (of self
    /// flattened) becomes one element.
    ///
    /// Equivalent: `torch.unique_consecutive(x, return_inverse=True, return_counts=True)`.
    #[track_caller]
    pub fn unique_consecutive(&self) -> Result<(Tensor, Tensor, Tensor)> {
        let _op = enter("unique_consecutive").on([("x", Some(self))]);
        let flat = self.reshape(-1)?;
        let (places, inverse, counts) = groups(&starts(&flat.unsqueeze(1)?)?, None)?;
        Ok((flat.index_select(0, &places)?, inverse.reshape(self.shape())?, counts))
    }
}

/// True where a row of (n, width) differs from the one above, and for the first.
fn starts(rows: &Tensor) -> Result<Tensor> {
    let n = rows.shape()[0];
    let first = Tensor::ones(n.min(1), DType::Bool, rows)?;
    let changes = rows.slice(0, n.min(1)..)?.ne(&rows.slice(0, ..n.saturating_sub(1))?)?.any(1)?;
    Tensor::cat(&[&first, &changes], 0)
}

/// Where the groups of a sequence begin, the group of each element (of the sequence in the `order`
/// it came from), and the sizes of the groups.
fn groups(starts: &Tensor, order: Option<&Tensor>) -> Result<(Tensor, Tensor, Tensor)> {
    let places = starts.true_positions()?; // (groups)
    let rank = starts.cast(DType::I32)?.cumsum(0)?.sub(1)?.cast(DType::I32)?; // (n)
    let inverse = match order {
        Some(order) => rank.zeros_like()?.scatter(0, order, &rank)?,
        None => rank,
    };
    let end = Tensor::new([index_end(starts.numel())?], starts)?;
    let ends = Tensor::cat(
        &[&places.slice(0, places.numel().min(1)..)?, &end.slice(0, ..places.numel().min(1))?],
        0,
    )?;
    Ok((places.clone(), inverse, ends.sub(&places)?))
}
