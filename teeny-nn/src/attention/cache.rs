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
use teeny_core::{DType, Error, QuantType, Result, Shape, Tensor, map, map_rows};
use teeny_formats::gguf::ElementType;

/// Keys and values of one attention layer. The first append allocates the memory; it determines
/// batch, heads and device, and the type unless [`KvCache::with_type`] does.
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
    /// `None` stores the dtype of the first keys.
    of: Option<ElementType>,
    len: usize,
    /// Keys (B, n_kv_head, capacity, hs) and values (B, n_kv_head, capacity, hv).
    rows: Option<[Rows; 2]>,
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
        KvCache { capacity, of: None, len: 0, rows: None, lost: false }
    }

    /// The same, with keys and values of the type `of`: a float dtype, or
    /// [`QuantType::Q8_0`](teeny_core::QuantType::Q8_0).
    ///
    /// 16 bits take half the memory of 32; attention to them has their precision. Q8_0 takes 8.5:
    /// each 32 elements of a head have a scale, and are off by at most 1/254 of the largest of
    /// them. Attention reads these numbers as f32.
    pub fn with_type(mut self, of: impl Into<ElementType>) -> KvCache {
        self.of = Some(of.into());
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

    /// Puts back `tensors`, which [`KvCache::take`] returned, with `len` positions.
    ///
    /// # Errors
    /// If there are not as many.
    pub(crate) fn put(&mut self, tensors: Vec<Tensor>, len: usize) -> Result<()> {
        let rows = match (self.of, <[Tensor; 4]>::try_from(tensors)) {
            (Some(ElementType::Quantized(_)), Ok([keys, a, values, b])) => {
                [Rows::Blocks([keys, a]), Rows::Blocks([values, b])]
            }
            (None | Some(ElementType::Plain(_)), Err(tensors)) => {
                let [keys, values] = tensors
                    .try_into()
                    .map_err(|_| Error::internal("keys and values of a cache are two tensors"))?;
                [Rows::Floats(keys), Rows::Floats(values)]
            }
            _ => return Err(Error::internal("tensors of a cache of another type")),
        };
        *self = KvCache { len, rows: Some(rows), lost: false, ..*self };
        Ok(())
    }

    /// Gives up the keys and values of all positions, if there are any: two tensors, (B, n_kv_head,
    /// capacity, ..), or of blocks four. Until [`KvCache::put`] they are lost.
    pub(crate) fn take(&mut self) -> Vec<Tensor> {
        self.lost = self.len > 0;
        let tensors = |rows| match rows {
            Rows::Floats(x) => vec![x],
            Rows::Blocks(parts) => parts.into(),
        };
        self.rows.take().into_iter().flatten().flat_map(tensors).collect()
    }

    /// B, if there are keys and values.
    pub(crate) fn batch(&self) -> Option<usize> {
        self.rows.as_ref().map(|[keys, _]| keys.shape()[0])
    }

    /// Appends `k` (B, n_kv_head, T, hs) and `v` (B, n_kv_head, T, hv); returns all kept keys and
    /// values, (B, n_kv_head, len, hs) and (.., hv). Drop them before the next append, or
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
        let check = |(kept, new): (&Rows, &Tensor)| {
            let (shape, device) = (kept.shape(), kept.tensors()[0].device());
            if *new.shape() != shape.with_size(shape.ndim() - 2, t) {
                let text = format!("rows of {} do not continue the {shape} kept", new.shape());
                return Err(Error::shape(text).help("one cache per attention layer and per batch"));
            }
            common(new.device(), device).map(drop).map_err(|e| {
                e.help("k.to(&device)?: a cache stays on the device of its first append")
            })
        };
        let checked = self.rows.iter().flatten().zip([k, v]).try_for_each(check);
        match checked {
            Err(_) if self.len == 0 => self.rows = None, // other texts need other memory
            checked => checked?,
        }
        let of = self.of.unwrap_or(ElementType::Plain(k.dtype()));
        let new = [Rows::of(k, of)?, Rows::of(v, of)?];
        let kept = match self.rows.take() {
            Some(rows) => rows,
            None => [new[0].allocate(self.capacity)?, new[1].allocate(self.capacity)?],
        };
        self.write(kept, new)
    }

    /// Writes the new rows into the kept ones, which are lost if that fails.
    fn write(&mut self, [keys, values]: [Rows; 2], [k, v]: [Rows; 2]) -> Result<(Tensor, Tensor)> {
        let (start, new) = (self.len, k.shape());
        let end = start + new[new.ndim() - 2];
        self.lost = self.len > 0;
        let (keys, values) = (keys.write(start, &k)?, values.write(start, &v)?);
        let read = (keys.read(end)?, values.read(end)?);
        self.rows = Some([keys, values]);
        (self.len, self.lost) = (end, false);
        Ok(read)
    }
}

/// Keys or values as they are kept.
#[derive(Clone, Debug)]
enum Rows {
    /// (B, n_kv_head, S, hs).
    Floats(Tensor),
    /// Q8_0: integers (B, n_kv_head, S, hs / 32, 32) of i8 and scales (B, n_kv_head, S, hs / 32, 1)
    /// of f16.
    Blocks([Tensor; 2]),
}

impl Rows {
    /// `x` (B, n_kv_head, S, hs) in the type `of`.
    fn of(x: &Tensor, of: ElementType) -> Result<Rows> {
        let (size, block) = (x.shape()[x.ndim() - 1], QuantType::Q8_0.block_elements());
        match of {
            ElementType::Plain(dtype) if dtype.is_float() => x.cast(dtype).map(Rows::Floats),
            ElementType::Quantized(QuantType::Q8_0) if size.is_multiple_of(block) && size > 0 => {
                let blocks = x.unflatten(-1, (size / block, block))?;
                let scales = map_rows([&blocks], -1, |[x]| {
                    (x.cast(DType::F32).abs().max() / 127.0).cast(DType::F16)
                })?;
                // by the scale before it is rounded to 16 bits, as in files
                let elements = map_rows([&blocks], -1, |[x]| {
                    let x = x.cast(DType::F32);
                    let scale = x.abs().max() / 127.0;
                    let inverse = scale.eq(0.0).where_cond(scale, scale.recip());
                    (x * inverse).round().cast(DType::I8)
                })?;
                Ok(Rows::Blocks([elements, scales]))
            }
            ElementType::Quantized(QuantType::Q8_0) => {
                let text = format!("heads of {size} are not whole blocks of {block}");
                Err(Error::shape(text).help("a cache of bf16 takes any size"))
            }
            other => Err(Error::dtype(format!("a cache keeps no {other}"))
                .help("f32, bf16, f16, f64 or Q8_0")),
        }
    }

    fn tensors(&self) -> &[Tensor] {
        match self {
            Rows::Floats(x) => std::slice::from_ref(x),
            Rows::Blocks(parts) => parts,
        }
    }

    /// (B, n_kv_head, S, hs).
    fn shape(&self) -> Shape {
        let shape = *self.tensors()[0].shape();
        match self {
            Rows::Floats(_) => shape,
            Rows::Blocks(_) => {
                let last = shape.ndim() - 1;
                shape.without(last).with_size(last - 1, shape[last - 1] * shape[last])
            }
        }
    }

    /// Zeros for `capacity` positions.
    fn allocate(&self, capacity: usize) -> Result<Rows> {
        let zeros = |x: &Tensor, back| {
            Tensor::zeros(x.shape().with_size(x.ndim() - back, capacity), x.dtype(), x)
        };
        Ok(match self {
            Rows::Floats(x) => Rows::Floats(zeros(x, 2)?),
            Rows::Blocks([x, scales]) => Rows::Blocks([zeros(x, 3)?, zeros(scales, 3)?]),
        })
    }

    /// The same, with `new` from position `start` on.
    fn write(self, start: usize, new: &Rows) -> Result<Rows> {
        let write = |x: Tensor, axis: isize, new: &Tensor| {
            let end = start + new.size(axis)?;
            x.slice_assign(axis, start as isize..end as isize, new)
        };
        match (self, new) {
            (Rows::Floats(x), Rows::Floats(new)) => write(x, -2, new).map(Rows::Floats),
            (Rows::Blocks([x, scales]), Rows::Blocks([new, new_scales])) => {
                Ok(Rows::Blocks([write(x, -3, new)?, write(scales, -3, new_scales)?]))
            }
            _ => Err(Error::internal("rows of another type than those kept")),
        }
    }

    /// The first `end` positions, (B, n_kv_head, end, hs).
    fn read(&self, end: usize) -> Result<Tensor> {
        let range = 0..end as isize;
        match self {
            Rows::Floats(x) => x.slice(-2, range),
            Rows::Blocks([x, scales]) => {
                let (x, scales) = (x.slice(-3, range.clone())?, scales.slice(-3, range)?);
                let x =
                    map([&x, &scales], |[x, scale]| x.cast(DType::F32) * scale.cast(DType::F32))?;
                x.flatten(-2, -1)
            }
        }
    }
}
