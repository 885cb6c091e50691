//! Running a plan on the device below.

use super::list::{Node, NodeContext, Operand};
use super::plan::{Call, Item};
use super::value::Slot;
use crate::clock::Instant;
use crate::context::{self, OpContext};
use crate::device::DeviceRef;
use crate::error::{Error, Result};
use crate::op::{Outputs, Recorded, RuntimeArgs};
use crate::scalar::Scalar;
use crate::storage::StorageRef;
use crate::tensor::Tensor;
use std::any::Any;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The items of a plan that run for a list.
pub(super) struct Run<'a> {
    pub(super) items: &'a [Item],
    pub(super) nodes: &'a [Node],
    pub(super) contexts: &'a [NodeContext],
    pub(super) params: &'a [Scalar],
    pub(super) device: &'a DeviceRef,
    /// The operation for which it runs.
    pub(super) reader: Option<OpContext>,
    /// Whether to wait for each item and take its time.
    pub(super) is_timed: bool,
}

/// The outcome of a run.
#[derive(Default)]
pub(super) struct Ran {
    /// Operations of the device below.
    pub(super) executed: u64,
    /// Fused ones among them that failed, so that their nodes ran one by one.
    pub(super) failed: u64,
    /// The first error of a node.
    pub(super) error: Option<Error>,
    /// The time of each item, if they are timed.
    pub(super) times: Vec<Duration>,
}

/// Buffers for the operands of an operation, reused by the next one.
#[derive(Default)]
struct Room {
    tensors: Vec<Tensor>,
    params: Vec<Scalar>,
}

impl Run<'_> {
    /// Runs all items. A node that fails passes its error to its results and to their readers; the
    /// others run. A fused operation that fails runs node by node, so that the error names the node
    /// and the results that do not need it are computed.
    pub(super) fn run(&self, slots: &mut [Slot]) -> Ran {
        let (mut ran, mut room) = (Ran::default(), Room::default());
        for item in self.items {
            ran.executed += 1;
            let start = self.is_timed.then(Instant::now);
            let done = item.kernel.as_ref().is_some_and(|call| {
                let done = self.call(call, item, slots, &mut room);
                ran.failed += u64::from(!done);
                done
            });
            if !done {
                for &id in &item.nodes {
                    self.node(id, &item.last, slots, &mut room, &mut ran);
                }
            }
            if let Some(start) = start {
                ran.error = ran.error.take().or(self.device.synchronize().err());
                ran.times.push(start.elapsed());
            }
            for &(from, to) in &item.shares {
                let result = storage(slots, from);
                set(slots, to, result);
            }
            for &slot in &item.last {
                slots[slot as usize] = Slot::Empty;
            }
        }
        ran
    }

    /// Runs a fused operation; whether it succeeded.
    fn call(&self, call: &Call, item: &Item, slots: &mut [Slot], room: &mut Room) -> bool {
        let Some(&root) = item.nodes.last() else { return false };
        let Room { tensors, params } = room;
        params.clear();
        params.extend(call.params.iter().map(|&place| self.params[place as usize]));
        let args = RuntimeArgs { params, key: None };
        let result = self.execute(root, &call.op, &call.operands, args, None, slots, tensors);
        let Ok(storages) = result else { return false };
        if storages.len() != call.outputs.len() {
            return false;
        }
        set_all(slots, call.outputs.iter().copied(), storages);
        true
    }

    /// Runs a node as it was recorded. A destination that ends with it is given to the device.
    fn node(&self, id: u32, last: &[u32], slots: &mut [Slot], room: &mut Room, ran: &mut Ran) {
        let Node { op, operands, params, destination, outputs, .. } = &self.nodes[id as usize];
        let params = &self.params[params.start as usize..params.end as usize];
        let args = RuntimeArgs { params, key: self.contexts[id as usize].key };
        let destination = destination.map(|slot| (slot, last.contains(&slot)));
        let tensors = &mut room.tensors;
        let result = self.execute(id, op, operands, args, destination, slots, tensors);
        let result = result.and_then(|storages| match storages.len() == outputs.len() {
            true => Ok(storages),
            false => Err(Error::internal(format!(
                "the device {} returned {} outputs of {}, not {}",
                self.device.info().name,
                storages.len(),
                self.contexts[id as usize].name,
                outputs.len()
            ))),
        });
        match result {
            Ok(storages) => set_all(slots, outputs.clone(), storages),
            Err(error) => {
                outputs.clone().for_each(|slot| set(slots, slot, Err(error.clone())));
                ran.error.get_or_insert(error);
            }
        }
    }

    /// Executes an operation on the wrapped device, with the name and line of node `id`. The
    /// destination is a slot, and true if the slot is freed.
    #[allow(clippy::too_many_arguments)]
    fn execute(
        &self,
        id: u32,
        op: &Recorded,
        operands: &[Operand],
        args: RuntimeArgs<'_>,
        destination: Option<(u32, bool)>,
        slots: &mut [Slot],
        tensors: &mut Vec<Tensor>,
    ) -> Result<Outputs> {
        tensors.clear(); // those of the operation before
        for Operand { slot, layout, dtype } in operands {
            let storage = storage(slots, *slot)?;
            Tensor::push_parts(tensors, storage, layout, *dtype, self.device)?;
        }
        let destination = destination.map(|(slot, ends)| match ends {
            true => match mem::replace(&mut slots[slot as usize], Slot::Empty) {
                Slot::Value(value) => value.take(),
                Slot::Temporary(result) => result,
                Slot::Empty => missing(),
            },
            false => storage(slots, slot),
        });
        let destination = destination.transpose()?;
        let context = &self.contexts[id as usize].context;
        // Errors and watchers see the operation that was recorded.
        let _context = context::resume_as(*context);
        with_references(tensors, |tensors| {
            let mut op = op.op(tensors, args, destination);
            // A device that panics fails at this operation: the others have nothing to do with it.
            let result = catch_unwind(AssertUnwindSafe(|| op.run(self.device)));
            result.unwrap_or_else(|panic| Err(panicked(self.device, &*panic))).map_err(|error| {
                context::failed_on(op.named_operands());
                match (self.reader, context) {
                    (Some(by), Some(of)) if by.location != of.location => error.note(format!(
                        "it was recorded, and run by {} at {}:{}",
                        by.op,
                        by.location.file(),
                        by.location.line()
                    )),
                    _ => error,
                }
            })
        })
    }
}

#[cold]
fn panicked(device: &DeviceRef, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or(panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
    Error::internal(format!("the device {} panicked: {text}", device.info().name))
}

/// Calls `f` with references to `tensors`; a few of them are not allocated.
fn with_references<R>(tensors: &[Tensor], f: impl FnOnce(&[&Tensor]) -> R) -> R {
    const MAX_INLINE: usize = 8;
    match tensors.first() {
        Some(first) if tensors.len() <= MAX_INLINE => {
            let all: [&Tensor; MAX_INLINE] =
                std::array::from_fn(|i| tensors.get(i).unwrap_or(first));
            f(&all[..tensors.len()])
        }
        _ => f(&tensors.iter().collect::<Vec<_>>()),
    }
}

fn storage(slots: &[Slot], slot: u32) -> Result<StorageRef> {
    match &slots[slot as usize] {
        Slot::Value(value) => value.storage(),
        Slot::Temporary(result) => result.clone(),
        Slot::Empty => missing(),
    }
}

fn set(slots: &mut [Slot], slot: u32, result: Result<StorageRef>) {
    match &mut slots[slot as usize] {
        Slot::Value(value) => value.set(result),
        other => *other = Slot::Temporary(result),
    }
}

/// Stores as many results as there are slots.
fn set_all(slots: &mut [Slot], mut of: impl Iterator<Item = u32>, storages: Outputs) {
    if storages.len() == 1 {
        // nearly every operation
        if let (Some(slot), Some(storage)) = (of.next(), storages.into_first()) {
            set(slots, slot, Ok(storage));
        }
        return;
    }
    for (slot, storage) in of.zip(storages) {
        set(slots, slot, Ok(storage));
    }
}

#[cold]
fn missing() -> Result<StorageRef> {
    Err(Error::internal("a value was freed before the last operation that reads it"))
}
