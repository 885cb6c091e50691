//! Recording: the operands of an op are gathered once, and a result becomes a node of the graph if
//! one of them is tracked.

use crate::cache::Cache;
use crate::detach_points::{DetachPoint, DetachPoints, Mask, Reason};
use crate::known::known;
use crate::mode;
use crate::node::{Backward, Edge, Handle, Node, Value};
use crate::storage::{Tracked, tracked};
use crate::symbolic::{Derivative, derive};
use std::ops::Deref;
use std::sync::Arc;
use teeny_core::kernel::MAX_INPUTS;
use teeny_core::op::PerOutput;
use teeny_core::{
    DType, DeviceRef, Error, Kernel, Layout, Outputs, Result, Shape, StorageRef, Tensor, context,
};

/// The part of an autograd device that recording uses: the inner device and the cached derivatives.
pub(crate) struct Recorder {
    inner: DeviceRef,
    cache: Cache<Derivative>,
}

impl Recorder {
    pub fn new(inner: DeviceRef, cache: Cache<Derivative>) -> Recorder {
        Recorder { inner, cache }
    }

    /// The device that computes.
    pub fn inner(&self) -> &DeviceRef {
        &self.inner
    }

    /// The number of cached derivatives.
    pub fn cached_derivatives(&self) -> usize {
        self.cache.len()
    }

    /// The derivative of `kernel` for the operands in `needs`.
    pub fn derivative(
        &self,
        kernel: &Arc<Kernel>,
        needs: u8,
        stored: bool,
    ) -> Result<Arc<Derivative>> {
        self.cache.get_recent(kernel, needs, stored, || match known(kernel, needs)? {
            Some(known) => Ok(known),
            None => derive(kernel, needs, stored),
        })
    }

    /// A storage of the inner device as a tensor: row-major `shape`.
    pub fn value(&self, storage: StorageRef, shape: Shape, dtype: DType) -> Result<Tensor> {
        Tensor::from_result(storage, shape, dtype, self.inner.clone())
    }
}

/// References, up to [`MAX_INPUTS`] of them without an allocation.
pub(crate) struct Refs<'t, T> {
    few: Option<[&'t T; MAX_INPUTS]>,
    len: usize,
    many: Vec<&'t T>,
}

impl<'t, T> Refs<'t, T> {
    fn collect(items: impl ExactSizeIterator<Item = Result<&'t T>>) -> Result<Refs<'t, T>> {
        let len = items.len();
        if len > MAX_INPUTS {
            return Ok(Refs { few: None, len, many: items.collect::<Result<_>>()? });
        }
        let mut few: Option<[&T; MAX_INPUTS]> = None;
        for (i, item) in items.enumerate() {
            let item = item?;
            few.get_or_insert([item; MAX_INPUTS])[i] = item;
        }
        Ok(Refs { few, len, many: Vec::new() })
    }
}

impl<'t, T> Deref for Refs<'t, T> {
    type Target = [&'t T];
    fn deref(&self) -> &[&'t T] {
        match &self.few {
            Some(few) => &few[..self.len],
            None => &self.many,
        }
    }
}

/// The operands of an op on an autograd device, gathered once.
pub(crate) struct Operands<'t> {
    outer: &'t [&'t Tensor],
    tracked: Refs<'t, Tracked>,
    /// The inner tensors of operands that are views of them, in order.
    views: Vec<Tensor>,
    /// The leaves they depend on.
    pub mask: Mask,
    /// Their detach points.
    pub detach_points: DetachPoints,
    /// True if the operation has to be recorded.
    pub recording: bool,
}

impl<'t> Operands<'t> {
    /// Gathers the operands. Under `no_grad`, adds a detach point if the op would be recorded.
    pub fn of(outer: &'t [&'t Tensor]) -> Result<Operands<'t>> {
        Operands::of_with(outer, None, &DetachPoints::default())
    }

    /// [`Operands::of`] with one more operand, given by its parts.
    pub fn of_with(
        outer: &'t [&'t Tensor],
        handle: Option<&Handle>,
        detach_points: &DetachPoints,
    ) -> Result<Operands<'t>> {
        let tracked = Refs::collect(outer.iter().map(|x| tracked(x)))?;
        let mut views = Vec::new();
        let mut mask = handle.map_or(0, |h| h.node.mask);
        let mut detach_points = detach_points.clone();
        let mut recording = handle.is_some();
        handle.inspect(|handle| handle.node.mark_used());
        for (x, storage) in outer.iter().zip(&*tracked) {
            detach_points.merge(&storage.detach_points);
            if storage.inner.layout() != x.layout() {
                views.push(storage.inner.with_layout(*x.layout())?);
            }
            if let Some(handle) = &storage.handle {
                mask |= handle.node.mask;
                recording = true;
                handle.node.mark_used();
            }
        }
        let mut out = Operands { outer, tracked, views, mask, detach_points, recording };
        if let (true, Some(off)) = (recording, mode::off()) {
            out.recording = false;
            out.tracked.iter().filter_map(|s| s.handle.as_ref()).chain(handle).for_each(mode::seen);
            let (op, location) = (off.op, Some(off.location));
            out.detach_points.push(DetachPoint {
                op,
                location,
                mask,
                reason: Reason::NotDifferentiable,
            });
        }
        Ok(out)
    }

    /// The inner tensors that the operands stand for, in their order.
    pub fn inner(&self) -> Result<Refs<'_, Tensor>> {
        let mut views = self.views.iter();
        Refs::collect(self.outer.iter().zip(&*self.tracked).map(|(x, storage)| {
            if storage.inner.layout() == x.layout() {
                Ok(&storage.inner)
            } else {
                views.next().ok_or_else(|| Error::internal("a view is missing"))
            }
        }))
    }

    /// The handle of operand `i` in the graph.
    pub fn handle(&self, i: usize) -> Option<&Handle> {
        self.tracked[i].handle.as_ref()
    }

    /// True if operand `i` needs a gradient.
    pub fn need(&self, i: usize) -> bool {
        self.handle(i).is_some()
    }

    /// The first eight operands that need gradients, as bits.
    pub fn needs(&self) -> u8 {
        let bit = |(i, s): (usize, &&Tracked)| u8::from(s.handle.is_some()) << i;
        self.tracked.iter().take(8).enumerate().map(bit).fold(0, |bits, bit| bits | bit)
    }

    /// The edges of a node: the values that its operands hold, and the view that the operation saw.
    pub fn edges(&self) -> Vec<Option<Edge>> {
        (0..self.outer.len()).map(|i| self.edge(i, self.outer[i].layout())).collect()
    }

    /// The edge to operand `i`, seen through `layout`.
    pub fn edge(&self, i: usize, layout: &Layout) -> Option<Edge> {
        self.handle(i).cloned().map(|from| {
            let whole = *layout == Layout::contiguous(from.value().shape);
            Edge { view: (!whole).then(|| Box::new(*layout)), from }
        })
    }

    /// The storage of the recorded result of operation `name`, the only one.
    pub fn store(
        self,
        name: &'static str,
        value: Tensor,
        edges: Vec<Option<Edge>>,
        backward: Backward,
    ) -> StorageRef {
        let values = PerOutput::one(Value::of(&value));
        let node = Arc::new(Node::op(name, backward, values, edges, self.mask, context::current()));
        Tracked::storage(value, Some(Handle { node, output: 0 }), self.detach_points)
    }

    /// The storages of results that are not recorded.
    pub fn untracked(&self, values: PerOutput<Tensor>) -> Result<Outputs> {
        values.try_map(|_, y| Ok(Tracked::storage(y, None, self.detach_points.clone())))
    }

    /// The same operands with a detach point of this op, if it would be recorded.
    pub fn stopped(mut self) -> Operands<'t> {
        if self.recording {
            self.detach_points.push(current_detach_point(self.mask));
        }
        self
    }

    /// The storages of the recorded results of operation `name` with this rule.
    pub fn record(
        self,
        name: &'static str,
        values: PerOutput<Tensor>,
        rule: Rule,
    ) -> Result<Outputs> {
        let Rule { backward, edges, detached } = rule;
        let is_detached = |output: usize| detached.is_some_and(|(other, _)| other == output);
        // A last output without a gradient does not count.
        let count = values.len() - usize::from(is_detached(values.len() - 1));
        let kept = values.iter().take(count).map(Value::of).collect();
        let node = Arc::new(Node::op(name, backward, kept, edges, self.mask, context::current()));
        values.try_map(|output, y| {
            let mut detach_points = self.detach_points.clone();
            if let Some((_, op)) = detached.filter(|_| is_detached(output)) {
                let point = current_detach_point(self.mask);
                detach_points.push(DetachPoint { op: op.unwrap_or(point.op), ..point });
                return Ok(Tracked::storage(y, None, detach_points));
            }
            let handle = Handle { node: node.clone(), output: output as u8 };
            Ok(Tracked::storage(y, Some(handle), detach_points))
        })
    }
}

/// Computes the gradients of an op's operands from the gradients of its outputs.
pub(crate) struct Rule {
    pub backward: Backward,
    pub edges: Vec<Option<Edge>>,
    /// An output that no gradient passes through, and what messages call it (`None`: as the op).
    pub detached: Option<(usize, Option<&'static str>)>,
}

impl Rule {
    /// The rule of an op whose first output has a gradient: `backward` gets it, in the output's
    /// shape, and returns the gradients of the `N` operands in their shapes.
    pub fn new<const N: usize>(
        operands: &Operands<'_>,
        backward: impl Fn(&Tensor) -> Result<[Option<Tensor>; N]> + Send + Sync + 'static,
    ) -> Rule {
        let backward: Backward = Box::new(move |g| match &g[0] {
            Some(g) => Ok(backward(g)?.into()),
            None => Ok(vec![None; N]),
        });
        Rule { backward, edges: operands.edges(), detached: None }
    }

    /// The same for an op with an output that no gradient passes through.
    pub fn detaching(mut self, output: usize, name: Option<&'static str>) -> Rule {
        self.detached = Some((output, name));
        self
    }
}

/// A detach point of the operation in progress.
pub(crate) fn current_detach_point(mask: Mask) -> DetachPoint {
    let context = context::current();
    DetachPoint {
        op: context.map_or("an operation", |c| c.op),
        location: context.map(|c| c.location),
        mask,
        reason: Reason::NotDifferentiable,
    }
}

/// `then` of `x`, if `need`ed: keeps rules to one line per input.
pub(crate) fn if_needed(
    need: bool,
    then: impl FnOnce() -> Result<Tensor>,
) -> Result<Option<Tensor>> {
    need.then(then).transpose()
}
