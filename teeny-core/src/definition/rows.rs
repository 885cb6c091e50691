//! The definition of a row program: kernels, reductions and reads at a position, one after another.

use super::finish;
use crate::context::enter;
use crate::device::DeviceRef;
use crate::error::{Error, Result};
use crate::kernel::{Extent, Fold, Id, Kernel, Leaf, OpCode};
use crate::op::{Op, Outputs, ReduceOp};
use crate::scalar::Scalar;
use crate::shape::Shape;
use crate::tensor::Tensor;
use std::sync::Arc;

/// Runs `program`, which the device has declined.
pub(super) fn rows(
    program: &Kernel,
    inputs: &[&Tensor],
    params: &[Scalar],
    shape: &Shape,
    axes: &[usize],
    device: &DeviceRef,
) -> Result<Outputs> {
    let _op = enter("rows");
    let row_shape = shape.reduced(axes, true);
    let length = axes.iter().map(|&axis| shape[axis]).product();
    let extents = program.extents();
    let values = vec![None; program.nodes().len()];
    let mut run =
        Run { program, inputs, params, shape, row_shape, axes, length, extents, device, values };
    let outputs: Vec<Extent> =
        (0..program.outputs().len()).map(|o| program.output_extent(o)).collect();
    if shape.numel() == 0 && outputs.iter().all(|e| run.shape_of(*e).numel() == 0) {
        let empty = |(o, e): (usize, &Extent)| {
            finish(Tensor::zeros(run.shape_of(*e), program.output_dtype(o), device)?)
        };
        return outputs.iter().enumerate().map(empty).collect();
    }
    for id in (0..program.nodes().len() as Id).filter(|&id| program.is_reduction(id)) {
        let value = run.reduction(id)?;
        run.values[id as usize] = Some(value);
    }
    let output = |(o, extent): (usize, &Extent)| -> Result<_> {
        finish(run.value(program.outputs()[o], *extent, true)?)
    };
    outputs.iter().enumerate().map(output).collect()
}

struct Run<'a> {
    program: &'a Kernel,
    inputs: &'a [&'a Tensor],
    params: &'a [Scalar],
    shape: &'a Shape,
    /// With 1 for each axis of the row.
    row_shape: Shape,
    axes: &'a [usize],
    length: usize,
    extents: Vec<Extent>,
    device: &'a DeviceRef,
    /// The value of each node in the compute dtype, if it is a tensor.
    values: Vec<Option<Tensor>>,
}

/// A kernel with its inputs.
struct Launch {
    kernel: Arc<Kernel>,
    inputs: Vec<Tensor>,
    params: Vec<Scalar>,
}

impl Run<'_> {
    fn shape_of(&self, extent: Extent) -> Shape {
        if extent == Extent::Element { *self.shape } else { self.row_shape }
    }

    /// The value of a fold or of a read at a position: one a row.
    fn reduction(&mut self, id: Id) -> Result<Tensor> {
        let node = self.program.nodes()[id as usize];
        let OpCode::Fold(fold) = node.op else {
            let OpCode::Input(i) = self.program.nodes()[node.src[0] as usize].op else {
                return Err(Error::internal("at() reads a value that is not an input"));
            };
            let position = self.value(node.src[1], Extent::Row, true)?;
            let wide = node.dtype.compute();
            // The position is checked for a per-row input too.
            let x = self.inputs[usize::from(i)].expand(self.shape)?;
            return self.at(&x, &position)?.cast(wide);
        };
        let op = ReduceOp::from(fold);
        let x = node.src[0];
        let axes = self.axes;
        let Launch { kernel, inputs, params } = self.launch(x, Extent::Element, false)?;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        if let Some(i) = kernel.passes_through(0) {
            let x = Op::Reduce { op, x: inputs[i], axes }.tensor(self.device)?;
            return x.reshape(self.row_shape);
        }
        let (kernel, inputs, params, shape) = (&kernel, &inputs[..], &params[..], self.shape);
        let reduced = if inputs.is_empty() {
            let x = Op::Elementwise { kernel, inputs, params, shape }.tensor(self.device)?;
            Op::Reduce { op, x: &x, axes }.tensor(self.device)?
        } else {
            Op::ReduceKernel { kernel, inputs, params, shape, op, axes }.tensor(self.device)?
        };
        reduced.reshape(self.row_shape)
    }

    /// The elements of `x` at `position`, one for each row.
    fn at(&self, x: &Tensor, position: &Tensor) -> Result<Tensor> {
        let (kept, row) = (
            (0..self.shape.ndim()).filter(|axis| !self.axes.contains(axis)),
            self.axes.iter().copied(),
        );
        let order: Vec<isize> = kept.chain(row).map(|axis| axis as isize).collect();
        let count = self.row_shape.numel();
        let rows = x.permute(&order[..])?.reshape((count, self.length))?;
        let index = position.permute(&order[..])?.reshape((count, 1))?;
        let order: Vec<usize> = order.iter().map(|&axis| axis as usize).collect();
        let picked = rows.gather(1, &index)?; // (rows, 1)
        let permuted: Vec<usize> = order.iter().map(|&axis| self.row_shape[axis]).collect();
        let mut back = vec![0isize; order.len()];
        order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i as isize);
        picked.reshape(&permuted[..])?.permute(&back[..])
    }

    /// The value of node `id` as a tensor of this extent, in the node's compute type or, if
    /// `rounded`, in its type.
    fn value(&mut self, id: Id, extent: Extent, rounded: bool) -> Result<Tensor> {
        let Launch { kernel, inputs, params } = self.launch(id, extent, rounded)?;
        let inputs: Vec<&Tensor> = inputs.iter().collect();
        let shape = self.shape_of(extent);
        let (kernel, inputs, params, shape) = (&kernel, &inputs[..], &params[..], &shape);
        Op::Elementwise { kernel, inputs, params, shape }.tensor(self.device)
    }

    /// The kernel that computes node `id` at each element of this extent, its inputs and
    /// parameters.
    fn launch(&mut self, id: Id, extent: Extent, rounded: bool) -> Result<Launch> {
        let known = |id: Id| self.values[id as usize].is_some();
        let part = match self.program.part(&[id], &known, rounded) {
            Ok(part) => part,
            Err(_) => {
                // It reads more tensors than a kernel may, so each operation runs by itself.
                for source in self.program.sources(&[id], &known) {
                    let value = self.value(source, self.extents[source as usize], false)?;
                    self.values[source as usize] = Some(value);
                }
                let known = |id: Id| self.values[id as usize].is_some();
                self.program.part(&[id], &known, rounded)?
            }
        };
        let shape = self.shape_of(extent);
        let mut inputs = Vec::with_capacity(part.leaves.len());
        for leaf in &part.leaves {
            let x = match *leaf {
                Leaf::Input(i) => self.inputs[i].clone(),
                Leaf::Node(id) => self.values[id as usize]
                    .clone()
                    .ok_or_else(|| Error::internal("a part reads a value that is not computed"))?,
                Leaf::Index => self.positions()?,
            };
            inputs.push(x.expand(shape)?);
        }
        let lengths = part.lengths.iter().map(|&dtype| Scalar::Int(self.length as i64).cast(dtype));
        let params = self.params.iter().copied().chain(lengths).collect();
        Ok(Launch { kernel: Arc::new(part.kernel), inputs, params })
    }

    /// The position along the row at each element.
    fn positions(&self) -> Result<Tensor> {
        let sizes: Vec<usize> = (0..self.shape.ndim())
            .map(|axis| if self.axes.contains(&axis) { self.shape[axis] } else { 1 })
            .collect();
        let end = i32::try_from(self.length).map_err(|_| {
            Error::value(format!("a row of {} has positions beyond i32", self.length))
                .help("reduce the axes one after another")
        })?;
        Tensor::arange(0, end, 1, self.device)?.reshape(&sizes[..])
    }
}

impl From<Fold> for ReduceOp {
    fn from(fold: Fold) -> ReduceOp {
        match fold {
            Fold::Sum => ReduceOp::Sum,
            Fold::Prod => ReduceOp::Prod,
            Fold::Max => ReduceOp::Max,
            Fold::Min => ReduceOp::Min,
            Fold::Any => ReduceOp::Any,
            Fold::All => ReduceOp::All,
        }
    }
}
