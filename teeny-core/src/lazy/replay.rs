//! Replays: the plan of a captured function, on new inputs.

use super::device::Lazy;
use super::recording::{Leaf, Recording, difference};
use super::symbol::{Integers, Output, Work};
use super::value::{LazyStorage, Slot, Value, value};
use crate::device::{DeviceRef, same};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::random::Source;
use crate::tensor::Tensor;
use std::borrow::Cow;
use std::mem;
use std::sync::Arc;

/// The operations that run from the third call on.
pub(super) struct Replay {
    pub(super) base: Recording,
    /// The symbol's value there, and how the integers of the work change with it.
    pub(super) at: usize,
    pub(super) slopes: Option<Integers>,
}

/// The recording device that `device` is.
pub(super) fn lazy(device: &DeviceRef) -> Result<&Lazy> {
    device
        .downcast_ref::<Lazy>()
        .ok_or_else(|| Error::internal("a capture on a device that does not record"))
}

/// The values that tensors of the recording device view.
pub(super) fn values(tensors: &[Tensor]) -> Result<Vec<Arc<Value>>> {
    tensors.iter().map(|x| Ok(value(x)?.clone())).collect()
}

/// `x` as a row-major tensor from the start of its storage, so that all calls read it alike.
pub(super) fn whole(x: Tensor) -> Result<Tensor> {
    if x.layout().is_contiguous() && x.layout().offset() == 0 {
        return Ok(x);
    }
    Op::Contiguous { x: &x }.tensor(x.device())
}

/// `x` on `device`.
fn on(x: Tensor, device: &DeviceRef) -> Result<Tensor> {
    if same(x.device(), device) { Ok(x) } else { x.to(device) }
}

impl Replay {
    /// The work of a call.
    fn work(&self, at: usize) -> Result<Cow<'_, Work>> {
        let Some(slopes) = &self.slopes else { return Ok(Cow::Borrowed(&self.base.work)) };
        let work = slopes.work(&self.base.work, self.at, at);
        work.map(Cow::Owned)
            .ok_or_else(|| Error::internal("a size of a captured function is out of range"))
    }

    /// An error if a call that was recorded differs from the replay.
    pub(super) fn agrees(&self, mut call: Recording, lazy: &Lazy, at: usize) -> Result<()> {
        self.base.same_data(&mut call, lazy)?;
        match self.slopes {
            // Sizes of 1 are laid out in other ways.
            Some(_) => Ok(()),
            None => difference(&call, &call, &*self.work(at)?),
        }
    }

    pub(super) fn run(
        &self,
        device: &DeviceRef,
        inputs: Vec<Tensor>,
        at: usize,
    ) -> Result<Vec<Tensor>> {
        let lazy = lazy(device)?;
        let work = self.work(at)?;
        if inputs.len() != work.inputs.len() {
            return Err(Error::value(format!(
                "the captured function has {} inputs, not {}",
                work.inputs.len(),
                inputs.len()
            ))
            .help("pass the inputs of the calls that were recorded"));
        }
        let mut below = Vec::with_capacity(inputs.len());
        for (i, (x, &(shape, dtype))) in inputs.into_iter().zip(&work.inputs).enumerate() {
            if *x.shape() != shape || x.dtype() != dtype {
                return Err(Error::shape(format!(
                    "input {i} of the captured function is {} {}, it was recorded as {dtype} {shape}",
                    x.dtype(),
                    x.shape()
                ))
                .help("capture the function again for other shapes, or use Capture::with_symbol"));
            }
            below.push(on(whole(x)?, device)?);
        }
        let values = values(&below)?;
        lazy.finish(&values);
        drop(below); // an input without another owner may be written in place
        let Recording { params, leaves, slots, draws, .. } = &self.base;
        let mut contexts = Cow::Borrowed(self.base.contexts.as_slice());
        let keys = draws.renew();
        if !keys.is_empty() {
            for node_context in contexts.to_mut() {
                if let Some(Source::Stream(position)) = node_context.source {
                    node_context.key = keys.get(position).copied();
                }
            }
        }
        let mut slots: Vec<Slot> = (0..*slots).map(|_| Slot::Empty).collect();
        for (slot, leaf) in leaves {
            slots[*slot as usize] = Slot::Value(match leaf {
                Leaf::Number(number) => {
                    let (bytes, dtype) = number.bytes()?;
                    LazyStorage::ready(lazy.inner.upload(&bytes, dtype)?).value().clone()
                }
                Leaf::Input(same) => {
                    let value = &values[same[0]];
                    if let Some(other) = same.iter().find(|&&i| !Arc::ptr_eq(&values[i], value)) {
                        return Err(Error::value(format!(
                            "inputs {} and {other} of the captured function were one tensor when it \
                             was recorded",
                            same[0]
                        ))
                        .help("pass one tensor again, or capture with different ones"));
                    }
                    value.clone()
                }
                Leaf::Constant(value) | Leaf::Uploaded(value) => value.clone(),
            });
        }
        drop(values);
        for slot in &mut slots {
            if let Slot::Value(value) = mem::replace(slot, Slot::Empty) {
                *slot = Slot::Temporary(value.take());
            }
        }
        lazy.replay(&work.items, &work.nodes, &contexts, params, &mut slots)?;
        work.outputs
            .iter()
            .map(|Output { slot, layout, dtype, device: outer }| {
                let storage = match &slots[*slot as usize] {
                    Slot::Value(value) => value.storage()?,
                    Slot::Temporary(result) => result.clone()?,
                    Slot::Empty => return Err(Error::internal("a result was not computed")),
                };
                let storage = Arc::new(LazyStorage::ready(storage));
                on(Tensor::from_parts(storage, *layout, *dtype, device.clone())?, outer)
            })
            .collect()
    }
}
