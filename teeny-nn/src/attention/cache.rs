//! [`KvCache`]: the keys and values of earlier tokens, so that each new token is computed once.
//!
//! ```text
//! keys (B, n_kv_head, capacity, hs)   | kept ........ | new | free ........ |
//!                                     0              len               capacity
//! ```
//!
//! Assigning to a slice of a tensor works in place if the tensor has one owner, and the cache is
//! that owner: appending writes only the new rows, provided that the views returned by an earlier
//! call have been dropped.

use teeny_core::context::enter;
use teeny_core::device::common;
use teeny_core::{DType, Error, Result, Tensor};

/// Keys and values of one attention layer. The first append allocates the memory; it determines
/// batch, heads, dtype and device.
///
/// # Example
/// ```
/// use teeny_core::{DType, Tensor};
/// use teeny_nn::{attention::KvCache, device::device};
/// # fn main() -> teeny_core::Result<()> {
/// let mut cache = KvCache::new(128);
/// let k = Tensor::ones((1, 4, 3, 8), DType::F32, &device("cpu")?)?; // (B, n_kv_head, T, hs)
/// cache.append(&k, &k)?;
/// let (keys, _values) = cache.append(&k, &k)?;
/// assert_eq!(keys.shape()[..], [1, 4, 6, 8]);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct KvCache {
    capacity: usize,
    /// That of the first keys, if none.
    dtype: Option<DType>,
    len: usize,
    /// Keys (B, n_kv_head, capacity, hs) and values (B, n_kv_head, capacity, hv).
    rows: Option<[Tensor; 2]>,
    /// True after the device failed during a write, which loses the rows.
    lost: bool,
}

/// A length of a [`KvCache`] to rewind to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    len: usize,
    allocated: bool,
}

impl KvCache {
    /// An empty cache for up to `capacity` positions.
    pub fn new(capacity: usize) -> KvCache {
        KvCache { capacity, dtype: None, len: 0, rows: None, lost: false }
    }

    /// The same, with keys and values of `dtype`: 16 bits take half the memory of 32. Attention to
    /// them has their precision.
    pub fn with_dtype(mut self, dtype: DType) -> KvCache {
        self.dtype = Some(dtype);
        self
    }

    /// The number of positions kept.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no positions are kept.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The largest number of positions.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Drops all positions from `len` on, for another continuation of the same prefix. The memory
    /// stays allocated. `truncate(0)` also resets a cache whose rows were lost.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        self.lost &= self.len > 0;
    }

    /// The current length, for [`KvCache::rewind`].
    pub(crate) fn mark(&self) -> Mark {
        Mark { len: self.len, allocated: self.rows.is_some() }
    }

    /// Reverts the cache to `mark`.
    pub(crate) fn rewind(&mut self, mark: Mark) {
        self.len = mark.len;
        if !mark.allocated {
            self.rows = None; // the next append determines batch, dtype and device again
        }
        // kept rows that are missing now were lost since the mark
        self.lost = mark.len > 0 && self.rows.is_none();
    }

    /// Keeps the first `len` positions of keys and values (B, n_kv_head, capacity, hs).
    pub(crate) fn put(&mut self, rows: [Tensor; 2], len: usize) {
        *self = KvCache { len, rows: Some(rows), lost: false, ..*self };
    }

    /// The keys and values, (B, n_kv_head, capacity, hs), if there are any.
    pub(crate) fn into_rows(self) -> Option<[Tensor; 2]> {
        self.rows
    }

    /// Appends `k` (B, n_kv_head, T, hs) and `v` (B, n_kv_head, T, hv); returns all kept keys and
    /// values, views of (B, n_kv_head, len, hs) and (.., hv). Drop them before the next append, or
    /// that one copies.
    ///
    /// # Errors
    /// If the cache is full, or shapes or devices differ from those kept. The cache has not changed
    /// then.
    ///
    /// If the device fails while it writes the new rows (out of memory, a lost GPU), the kept rows
    /// are lost too, because the write is in place. Every later append is then an error until
    /// `truncate(0)`.
    #[track_caller]
    pub fn append(&mut self, k: &Tensor, v: &Tensor) -> Result<(Tensor, Tensor)> {
        let _op = enter("kv_cache");
        let &[.., t, _] = &k.shape()[..] else {
            return Err(Error::shape(format!("keys are (B, n_kv_head, T, hs), not {}", k.shape()))
                .help("k.unsqueeze(0)? adds an axis"));
        };
        if v.ndim() != k.ndim() || v.shape()[..v.ndim() - 1] != k.shape()[..k.ndim() - 1] {
            return Err(Error::shape(format!(
                "keys {} and values {} are not of the same positions",
                k.shape(),
                v.shape()
            ))
            .help("both are (B, n_kv_head, T, ..) with the same B, n_kv_head and T"));
        }
        if self.lost {
            return Err(Error::value(format!(
                "the {} positions kept were lost when the device failed in an earlier append",
                self.len
            ))
            .help("cache.truncate(0), then append all positions again"));
        }
        let end = self.len.saturating_add(t);
        if end > self.capacity {
            let text = format!(
                "{t} more positions do not fit: {} of {} are used",
                self.len, self.capacity
            );
            return Err(Error::value(text)
                .help("a larger KvCache::new(capacity), or a model with a larger context"));
        }
        for (kept, new) in self.rows.iter().flatten().zip([k, v]) {
            if *new.shape() != kept.shape().with_size(kept.ndim() - 2, t) {
                let text =
                    format!("rows of {} do not continue the {} kept", new.shape(), kept.shape());
                return Err(Error::shape(text).help("one cache per attention layer and per batch"));
            }
            common(new.device(), kept.device()).map_err(|e| {
                e.help("k.to(&device)?: a cache stays on the device of its first append")
            })?;
        }
        let [k, v] = match &self.rows {
            Some([keys, values]) => [k.cast(keys.dtype())?, v.cast(values.dtype())?],
            None => {
                let kept = |x: &Tensor| x.cast(self.dtype.unwrap_or(x.dtype()));
                [kept(k)?, kept(v)?]
            }
        };
        let range = self.len as isize..end as isize;
        let [keys, values] = match self.rows.take() {
            Some(rows) => rows,
            None => [self.allocate(&k)?, self.allocate(&v)?],
        };
        self.write([keys, values], range, &k, &v)
    }

    /// Writes the new rows into the kept ones, which are lost if that fails.
    fn write(
        &mut self,
        [keys, values]: [Tensor; 2],
        range: std::ops::Range<isize>,
        k: &Tensor,
        v: &Tensor,
    ) -> Result<(Tensor, Tensor)> {
        let end = range.end;
        self.lost = self.len > 0;
        let keys = keys.slice_assign(-2, range.clone(), k)?;
        let values = values.slice_assign(-2, range, v)?;
        let views = (keys.slice(-2, 0..end)?, values.slice(-2, 0..end)?);
        self.rows = Some([keys, values]);
        (self.len, self.lost) = (end as usize, false);
        Ok(views)
    }

    fn allocate(&self, like: &Tensor) -> Result<Tensor> {
        let shape = like.shape().with_size(like.ndim() - 2, self.capacity);
        Tensor::zeros(shape, like.dtype(), like)
    }
}
