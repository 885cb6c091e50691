//! Running a list of recorded operations on the device below.

use super::stream::Node;
use crate::context::{self, OpContext};
use crate::device::DeviceRef;
use crate::error::{Error, Result};
use crate::op::Outputs;
use crate::tensor::Tensor;

/// Runs `nodes` in their order on `device`, for `reader`, the operation in progress. A node that
/// fails gives its error to its results, and so do those that read them; the others run. The first
/// error is returned too.
pub(super) fn run(
    nodes: Vec<Node>,
    device: &DeviceRef,
    reader: Option<OpContext>,
) -> Option<Error> {
    let mut first = None;
    for node in nodes {
        let (name, outputs) = (node.name, node.outputs.clone());
        match run_node(node, device, reader) {
            Ok(storages) if storages.len() == outputs.len() => {
                for (value, storage) in outputs.iter().zip(storages) {
                    value.set(Ok(storage));
                }
            }
            result => {
                let error = match result {
                    Err(error) => error,
                    Ok(storages) => Error::internal(format!(
                        "the device {} returned {} outputs of {name}, not {}",
                        device.info().name,
                        storages.len(),
                        outputs.len()
                    )),
                };
                outputs.iter().for_each(|value| value.set(Err(error.clone())));
                first.get_or_insert(error);
            }
        }
    }
    first
}

/// Runs one node; its destination is given up to the device.
fn run_node(node: Node, device: &DeviceRef, reader: Option<OpContext>) -> Result<Outputs> {
    let Node { op, operands, destination, context, .. } = node;
    let mut tensors = Vec::with_capacity(operands.len());
    for operand in operands {
        let storage = operand.value.take()?;
        tensors.push(Tensor::from_parts(storage, operand.layout, operand.dtype, device.clone())?);
    }
    let destination = destination.map(|value| value.take()).transpose()?;
    let tensors: Vec<&Tensor> = tensors.iter().collect();
    // Errors and watchers see the operation that was recorded.
    let _context = context::resume_as(context);
    let mut op = op.op(&tensors, destination);
    op.run(device).map_err(|error| {
        context::failed_on(op.named_operands());
        match (reader, context) {
            (Some(by), Some(of)) if by.location != of.location => error.note(format!(
                "it was recorded, and run by {} at {}:{}",
                by.op,
                by.location.file(),
                by.location.line()
            )),
            _ => error,
        }
    })
}
