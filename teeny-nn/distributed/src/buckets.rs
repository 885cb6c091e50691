//! Gradients that are exchanged together while the backward pass goes on.
//!
//! ```text
//! parameters in reverse order   wte .. h.0 .. h.3 ln_f    as a backward pass completes them
//!                               └─ 2 ─┘└─ 1 ─┘└─ 0 ─┘     buckets of about a megabyte
//! ```
//!
//! A bucket is sent when all of its gradients are complete, and those before it were sent: every
//! rank sends the same buckets in the same order. [`Buckets`] is that plan, [`Reducer`] one pass.

use super::collective::{Collective, Pending, Reply};
use super::communicator::{Communicator, even};
use super::kind::{Kind, NotFinite, Reduce};
use super::traffic::Traffic;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;
use teeny_autograd::{Gradients, inner_device};
use teeny_core::{DType, DeviceRef, Error, Result, Tensor};
use teeny_nn::{Param, Store};

/// Called with the number of a parameter and its gradient.
pub(super) type Add<'a> = dyn FnMut(usize, &Tensor) -> Result<()> + 'a;

/// The default size of a bucket of gradients in bytes.
pub(super) const BUCKET: usize = 1 << 20;

/// How the gradient of a bucket is divided among the ranks.
#[derive(Clone, Debug)]
pub(super) enum Division {
    /// Every rank gets all of it; the field is the number of ranks.
    Whole(usize),
    /// Each rank gets its rows of each parameter, by parameter and rank.
    Rows(Vec<Vec<Range<usize>>>),
}

/// The parameters of a store in buckets.
#[derive(Debug)]
pub(super) struct Buckets {
    pub params: Vec<Param>,
    pub division: Division,
    /// The parameters in reverse order.
    pub buckets: Vec<Bucket>,
    /// The device of gradients and rows.
    pub device: DeviceRef,
}

#[derive(Debug)]
pub(super) struct Bucket {
    /// Numbers of parameters.
    pub params: Vec<usize>,
    pub dtype: DType,
    /// The elements of each rank's share.
    pub shares: Vec<usize>,
}

impl Buckets {
    /// Buckets of about `bytes` bytes of parameters of `store`.
    pub fn new(params: Vec<Param>, division: Division, bytes: usize, store: &Store) -> Buckets {
        let mut buckets: Vec<Bucket> = Vec::new();
        let mut filled = 0;
        for (i, param) in params.iter().enumerate().rev() {
            let value = param.value();
            let size = value.numel().saturating_mul(value.dtype().size());
            match buckets.last_mut() {
                Some(last) if last.dtype == value.dtype() && filled + size <= bytes => {
                    last.params.push(i);
                    filled += size;
                }
                _ => {
                    let dtype = value.dtype();
                    buckets.push(Bucket { params: vec![i], dtype, shares: Vec::new() });
                    filled = size;
                }
            }
        }
        let mut plan =
            Buckets { params, division, buckets, device: inner_device(store.device()).clone() };
        for i in 0..plan.buckets.len() {
            let size = |rank| plan.buckets[i].params.iter().map(|&i| plan.part_size(i, rank)).sum();
            plan.buckets[i].shares = match &plan.division {
                Division::Whole(ranks) => even(size(0), *ranks),
                Division::Rows(rows) => (0..rows.first().map_or(0, Vec::len)).map(size).collect(),
            };
        }
        plan
    }

    /// The rows of parameter `i` that belong to each rank; none if it is not divided.
    pub fn divided(&self, i: usize) -> &[Range<usize>] {
        match &self.division {
            Division::Rows(rows) => &rows[i],
            Division::Whole(_) => &[],
        }
    }

    /// The name of a bucket: its first and last parameter.
    pub fn name(&self, bucket: usize) -> String {
        let name = |i: &usize| self.params[*i].name();
        match &self.buckets[bucket].params[..] {
            [one] => name(one).to_string(),
            [first, .., last] => format!("{} .. {}", name(first), name(last)),
            [] => String::new(),
        }
    }

    /// The parts of a tensor like parameter `i`, by rank.
    fn parts(&self, i: usize, x: &Tensor) -> Result<Vec<Tensor>> {
        match &self.division {
            Division::Whole(_) => Ok(vec![x.reshape(-1)?]),
            Division::Rows(rows) => {
                let part = |rows: &Range<usize>| self::rows(x, rows)?.reshape(-1);
                rows[i].iter().map(part).collect()
            }
        }
    }

    /// `x(i)` for the parameters of a bucket, in the order of the ranks' shares.
    pub fn flat(&self, bucket: &Bucket, x: impl Fn(usize) -> Result<Tensor>) -> Result<Tensor> {
        let parts = bucket
            .params
            .iter()
            .map(|&i| self.parts(i, &x(i)?))
            .collect::<Result<Vec<Vec<Tensor>>>>()?;
        let ranks = parts.first().map_or(0, Vec::len);
        let ordered: Vec<&Tensor> =
            (0..ranks).flat_map(|rank| parts.iter().map(move |part| &part[rank])).collect();
        match ordered[..] {
            [one] => one.contiguous(),
            _ => Tensor::cat(&ordered, 0),
        }
    }

    /// The elements of parameter `i` that belong to `rank`; all of them if it is not divided.
    pub fn part_size(&self, i: usize, rank: usize) -> usize {
        let value = self.params[i].value();
        match &self.division {
            Division::Whole(_) => value.numel(),
            Division::Rows(rows) => rows[i][rank].len() * row_size(&value),
        }
    }

    /// The parameter that element `element` of a bucket belongs to, of the share of `rank` if
    /// parameters are divided.
    fn owner(&self, bucket: &Bucket, element: usize, rank: usize) -> usize {
        let mut end = 0;
        let owner = bucket.params.iter().find(|&&i| {
            end += self.part_size(i, rank);
            element < end
        });
        *owner.unwrap_or(&bucket.params[0])
    }
}

/// The elements of a row; of a tensor without axes, which is one row, 1.
pub(super) fn row_size(x: &Tensor) -> usize {
    x.shape().iter().skip(1).product()
}

/// Rows of a tensor; one without axes is one row.
pub(super) fn rows(x: &Tensor, rows: &Range<usize>) -> Result<Tensor> {
    let x = if x.ndim() == 0 { x.reshape(1)? } else { x.clone() };
    x.slice(0, rows.start as isize..rows.end as isize)
}

/// The reduction of the gradients of one backward pass.
#[derive(Debug)]
pub(super) struct Reducer {
    plan: Arc<Buckets>,
    comm: Arc<dyn Communicator>,
    gradients: Vec<Option<Tensor>>,
    /// The gradients that each bucket waits for.
    missing: Vec<usize>,
    sent: Vec<(Pending, Instant)>,
}

/// The bytes of the loss, which is sent with the last bucket.
const LOSS: usize = size_of::<f64>();

/// A gradient that is not finite.
#[derive(Clone, Copy)]
struct BadGradient {
    /// The number of the parameter.
    param: usize,
    /// The first rank whose gradient is not finite; `None` if only the mean is infinite.
    rank: Option<usize>,
}

/// The results of a pass.
pub(super) struct ReducedBuckets {
    /// The gradients of each bucket (N): all of them, or this rank's share.
    pub buckets: Vec<Tensor>,
    /// Whether there is a gradient, by parameter.
    pub present: Vec<bool>,
    /// The losses by rank.
    pub losses: Vec<f64>,
}

impl Reducer {
    pub fn new(plan: &Arc<Buckets>, comm: &Arc<dyn Communicator>) -> Reducer {
        Reducer {
            gradients: vec![None; plan.params.len()],
            missing: plan.buckets.iter().map(|bucket| bucket.params.len()).collect(),
            sent: Vec::new(),
            plan: plan.clone(),
            comm: comm.clone(),
        }
    }

    /// The number of the parameter `name`.
    pub fn index(&self, name: &str) -> Result<usize> {
        let found = self.plan.params.iter().position(|param| param.name() == name);
        found.ok_or_else(|| Error::internal(format!("no bucket has {name:?}")))
    }

    /// The gradient of parameter `i` is complete.
    pub fn add(&mut self, i: usize, gradient: &Tensor) -> Result<()> {
        let of = |bucket: &Bucket| bucket.params.contains(&i);
        let bucket = self.plan.buckets.iter().position(of).unwrap_or(0);
        if bucket < self.sent.len() || self.gradients[i].is_some() {
            let name = self.plan.params[i].name();
            let text = format!("{name:?} has two gradients: its unit ran twice for one loss");
            return Err(Error::gradient(text)
                .help("run a unit once per backward pass, or leave its parameters whole"));
        }
        self.gradients[i] = Some(gradient.clone());
        self.missing[bucket] -= 1;
        // the last one brings the loss
        while self.sent.len() + 1 < self.missing.len() && self.missing[self.sent.len()] == 0 {
            self.send(Vec::new())?;
        }
        Ok(())
    }

    /// The gradients of a pass that is over.
    pub fn add_all(&mut self, gradients: &Gradients) -> Result<()> {
        for i in (0..self.plan.params.len()).rev() {
            let value = self.plan.params[i].value();
            if gradients.contains(&value) {
                self.add(i, gradients.get(&value)?)?;
            }
        }
        Ok(())
    }

    /// Sends the next bucket; parameters without a gradient send zeros, and say so.
    fn send(&mut self, loss: Vec<u8>) -> Result<()> {
        let bucket = &self.plan.buckets[self.sent.len()];
        let gradient = |i: usize| match &self.gradients[i] {
            Some(g) => Ok(g.clone()),
            None => {
                let shape = self.plan.params[i].shape();
                Tensor::zeros(shape, bucket.dtype, &self.plan.device)
            }
        };
        let flat = self.plan.flat(bucket, gradient)?;
        let kind = match self.plan.division {
            Division::Whole(_) => Kind::AllReduce(Reduce::Mean),
            Division::Rows(_) => Kind::ReduceScatter(Reduce::Mean),
        };
        let present = bucket.params.iter().map(|&i| u8::from(self.gradients[i].is_some()));
        let note = loss.into_iter().chain(present).collect();
        let collective = Collective::of(kind, &flat, bucket.shares.clone())?.with_note(note);
        self.sent.push((self.comm.start(collective), Instant::now()));
        bucket.params.iter().for_each(|&i| self.gradients[i] = None);
        Ok(())
    }

    /// Sends the remaining buckets, with the loss of this rank, and waits for everything.
    pub fn finish(
        mut self,
        loss: f64,
        check: bool,
        traffic: &mut Traffic,
    ) -> Result<ReducedBuckets> {
        let last = self.plan.buckets.len();
        while self.sent.len() < last {
            let is_last = self.sent.len() + 1 == last;
            self.send(if is_last { loss.to_le_bytes().to_vec() } else { Vec::new() })?;
        }
        let end = Instant::now();
        let plan = &*self.plan;
        let mut reduced = ReducedBuckets {
            buckets: Vec::with_capacity(last),
            present: vec![false; plan.params.len()],
            losses: Vec::new(),
        };
        let (mut error, mut not_finite) = (None, None);
        for (i, (pending, sent)) in self.sent.into_iter().enumerate() {
            let reply = pending.wait()?;
            let is_last = i + 1 == last;
            traffic.add(&plan.name(i), sent, end, &reply);
            let skip = if is_last { LOSS } else { 0 };
            if is_last {
                let loss = |note: &Vec<u8>| {
                    note.first_chunk().map_or(f64::NAN, |bytes| f64::from_le_bytes(*bytes))
                };
                reduced.losses = reply.notes.iter().map(loss).collect();
            }
            // every rank finds the same error, as all have the same notes
            error = error.or(plan.presence(i, &reply, skip, &mut reduced.present).err());
            not_finite = not_finite.or(reply.not_finite.map(|found| BadGradient {
                param: plan.owner(&plan.buckets[i], found.element, self.comm.rank()),
                rank: found.rank,
            }));
            reduced.buckets.push(reply.into_tensor()?);
        }
        if check && matches!(plan.division, Division::Rows(_)) {
            // a rank has seen its own rows only
            let note = |found: BadGradient| NotFinite { element: found.param, rank: found.rank };
            let mine = not_finite.map_or(Vec::new(), |found| note(found).encode());
            let all = self.comm.gather_bytes(mine)?;
            not_finite = all.iter().find_map(|bytes| {
                let NotFinite { element, rank } = NotFinite::decode(bytes)?;
                Some(BadGradient { param: element, rank })
            });
        }
        let error = error.or(not_finite.filter(|_| check).map(|found| plan.not_finite(found)));
        error.map_or(Ok(reduced), Err)
    }
}

impl Buckets {
    /// Notes which parameters of a bucket have gradients: on all ranks or on none.
    fn presence(
        &self,
        bucket: usize,
        reply: &Reply,
        skip: usize,
        present: &mut [bool],
    ) -> Result<()> {
        for (place, &i) in self.buckets[bucket].params.iter().enumerate() {
            let has = |note: &Vec<u8>| note.get(skip + place) == Some(&1);
            let with: Vec<String> = (0..reply.notes.len())
                .filter(|&rank| has(&reply.notes[rank]))
                .map(|rank| rank.to_string())
                .collect();
            present[i] = !with.is_empty();
            if !with.is_empty() && with.len() < reply.notes.len() {
                let without = (0..reply.notes.len()).find(|&rank| !has(&reply.notes[rank]));
                let text = format!(
                    "parameter {:?} has a gradient on rank {}, but none on rank {}",
                    self.params[i].name(),
                    with.join(", "),
                    without.unwrap_or(0)
                );
                return Err(
                    Error::gradient(text).help("every rank computes its loss with the same layers")
                );
            }
        }
        Ok(())
    }

    fn not_finite(&self, found: BadGradient) -> Error {
        let name = self.params[found.param].name();
        let text = match found.rank {
            Some(rank) => {
                format!("the gradient of {name:?} has NaN or infinite elements on rank {rank}")
            }
            None => format!("the mean of the ranks' gradients of {name:?} is infinite"),
        };
        Error::value(text).note("no parameter has changed").help(
            "the usual causes are too high a learning rate and NaN in the data of that rank; \
             with a LossScale, which handles it: check_finite(false)",
        )
    }

    /// Splits the elements `flat` (N) of a bucket into tensors by parameter: the whole, shaped as
    /// the parameter, or the rows of `rank`.
    pub fn unpack(
        &self,
        bucket: usize,
        flat: &Tensor,
        rank: usize,
    ) -> Result<Vec<(usize, Tensor)>> {
        let params = &self.buckets[bucket].params;
        let mut start = 0;
        let mut parts = Vec::with_capacity(params.len());
        for &i in params {
            let value = self.params[i].value();
            let shape = match &self.division {
                Division::Whole(_) => value.shape().to_vec(),
                Division::Rows(rows) => {
                    let mut shape = value.shape().to_vec();
                    shape.first_mut().into_iter().for_each(|n| *n = rows[i][rank].len());
                    if shape.is_empty() { vec![rows[i][rank].len()] } else { shape }
                }
            };
            let end = start + shape.iter().product::<usize>();
            parts.push((i, flat.slice(0, start as isize..end as isize)?.reshape(&shape[..])?));
            start = end;
        }
        Ok(parts)
    }
}
