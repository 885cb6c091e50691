//! Combines the masks of a call into one mask of the scores.

use teeny_core::{DType, Error, Result, Tensor};

/// A mask and a key mask (B, S) as one mask with four axes. `sizes` are B, T and S: sequences,
/// queries and keys.
///
/// # Errors
/// If one does not fit the sizes.
pub(super) fn combined(
    mask: Option<&Tensor>,
    key_mask: Option<&Tensor>,
    sizes: [usize; 3],
) -> Result<Option<Tensor>> {
    let mask = mask.map(|mask| with_four_axes(mask, sizes)).transpose()?;
    let Some(key_mask) = key_mask else { return Ok(mask) };
    require_keys(key_mask, sizes)?;
    let key_mask = key_mask.unsqueeze(1)?.unsqueeze(1)?; // (B, 1, 1, S)
    match mask {
        None => Ok(Some(key_mask)),
        Some(mask) if mask.dtype() == DType::Bool => mask.and(&key_mask).map(Some),
        Some(mask) => key_mask.where_cond(&mask, f64::NEG_INFINITY).map(Some),
    }
}

/// A mask (B, n_head, T, S), with 1 for missing axes.
fn with_four_axes(mask: &Tensor, [batch, t, s]: [usize; 3]) -> Result<Tensor> {
    let mut own = mask.shape().iter().rev();
    if !fits(own.next(), s) || !fits(own.next(), t) {
        let text = format!("a mask of {} does not fit {t} queries and {s} keys", mask.shape());
        return Err(Error::shape(text).help(match mask.shape()[..] == [batch, s] {
            true => "AttentionOptions::with_key_mask takes a mask (B, S) of keys",
            false => "a mask is (T, S) or (B, n_head, T, S), or has 1 in place of a size",
        }));
    }
    let Some(missing) = 4usize.checked_sub(mask.ndim()) else {
        let text = format!("a mask of {} has more axes than (B, n_head, T, S)", mask.shape());
        return Err(Error::shape(text).help("mask.squeeze(0)? removes an axis of size 1"));
    };
    (0..missing).try_fold(mask.clone(), |mask, _| mask.unsqueeze(0))
}

/// Returns an error unless `key_mask` is (B, S) of bool.
fn require_keys(key_mask: &Tensor, [batch, _, s]: [usize; 3]) -> Result<()> {
    let (shape, dtype) = (key_mask.shape(), key_mask.dtype());
    match shape[..] {
        [own, keys] if dtype == DType::Bool => {
            if fits(Some(&own), batch) && fits(Some(&keys), s) {
                return Ok(());
            }
            let text = format!("key_mask is {shape}, but the keys are ({batch}, {s})");
            Err(Error::shape(text).help("pass the mask of the context, whose tokens are the keys"))
        }
        _ => {
            let text =
                format!("key_mask must be (B, S) of bool, true for tokens, not {shape} of {dtype}");
            Err(Error::shape(text)
                .help("a mask of the lengths of texts: positions.lt(&lengths.unsqueeze(1)?)?"))
        }
    }
}

/// Whether an axis of a mask is absent, has this size, or is broadcast.
fn fits(own: Option<&usize>, size: usize) -> bool {
    own.is_none_or(|&own| own == size || own == 1)
}

/// A mask (B, n_head, T, S) reshaped for grouped queries: (B, n_kv_head, G, T, S).
pub(super) fn grouped(mask: Tensor, n_kv_head: usize, group: usize) -> Result<Tensor> {
    if mask.shape()[1] == 1 { mask.unsqueeze(1) } else { mask.unflatten(1, (n_kv_head, group)) }
}
