//! Running a kernel on tensors that broadcast to one shape, as every elementwise method and `map`
//! do. Tensors of one shape on one device, the common case, take a short path.

use crate::context::enter;
use crate::device::{DeviceRef, same};
use crate::error::{Error, Result};
use crate::kernel::Kernel;
use crate::messages::{BROADCAST, counts, wrong_input};
use crate::op::{Op, Outputs};
use crate::scalar::Scalar;
use crate::shape::{MAX_NDIM, Shape};
use crate::tensor::Tensor;
use crate::tensor::one_device::on_one_device;
use std::sync::Arc;

/// The shape all tensors broadcast to.
pub(in crate::tensor) fn broadcast_shape(tensors: &[&Tensor]) -> Result<Shape> {
    let mut shape = *tensors[0].shape();
    for tensor in &tensors[1..] {
        if shape != *tensor.shape() {
            shape = shape
                .broadcast(tensor.shape())
                .ok_or_else(|| no_broadcast(&shape, tensor.shape()))?;
        }
    }
    Ok(shape)
}

#[cold]
fn no_broadcast(a: &Shape, b: &Shape) -> Error {
    let ndim = a.ndim().max(b.ndim());
    let from_right = |s: &Shape, i: usize| if i < s.ndim() { s[s.ndim() - 1 - i] } else { 1 };
    let clash = (0..ndim).find(|&i| {
        let (m, n) = (from_right(a, i), from_right(b, i));
        m != n && m != 1 && n != 1
    });
    let Some(i) = clash else {
        return Error::value(format!(
            "{a} and {b} broadcast to more elements than memory can address"
        ))
        .help("reduce before broadcasting, or work on the parts of x.split(axis, size)?");
    };
    let axis = ndim - 1 - i;
    let (m, n) = (from_right(a, i), from_right(b, i));
    // A vector that would fit one axis further left is the commonest case: (32, 10) + (32,).
    let help = |name: &str, vector: &Shape, other: &Shape| {
        (vector.ndim() == 1 && other.ndim() == 2 && other[0] == vector[0]).then(|| {
            format!("{name}.unsqueeze(1) is ({}, 1) and would broadcast over columns", vector[0])
        })
    };
    let turned = || {
        (a.ndim() == 2 && b.ndim() == 2 && (a[0], a[1]) == (b[1], b[0]))
            .then(|| format!("rhs.t()? is {a} and would fit"))
    };
    Error::shape(format!(
        "{a} and {b} do not broadcast: aligned from the right, axis {axis} has {m} and {n}"
    ))
    .help(
        help("rhs", b, a)
            .or_else(|| help("lhs", a, b))
            .or_else(turned)
            .unwrap_or_else(|| BROADCAST.to_string()),
    )
}

/// Runs `kernel` on tensors that broadcast to one shape.
pub(super) fn run(
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
) -> Result<(Outputs, Shape, DeviceRef)> {
    let first = inputs[0];
    if alike(inputs) {
        let shape = first.shape();
        let outputs = Op::Elementwise { kernel, inputs, params, shape }.run(&first.device)?;
        return Ok((outputs, *shape, first.device.clone()));
    }
    let (expanded, shape, device) = expand_all(inputs)?;
    let views: Vec<&Tensor> = expanded.iter().collect();
    let mut op = Op::Elementwise { kernel, inputs: &views, params, shape: &shape };
    Ok((op.run(&device)?, shape, device))
}

/// The tensors on one device, expanded to the shape that they broadcast to.
fn expand_all(inputs: &[&Tensor]) -> Result<(Vec<Tensor>, Shape, DeviceRef)> {
    let (device, lifted) = on_one_device(inputs)?;
    let shape = broadcast_shape(inputs)?;
    let expanded = lifted
        .iter()
        .map(|t| if *t.shape() == shape { Ok(t.as_ref().clone()) } else { t.expand_to(&shape) })
        .collect::<Result<Vec<_>>>()?;
    Ok((expanded, shape, device))
}

/// Whether all have one shape and one device.
#[inline]
fn alike(inputs: &[&Tensor]) -> bool {
    let first = inputs[0];
    inputs[1..].iter().all(|t| t.shape() == first.shape() && same(&t.device, &first.device))
}

/// The axes in the order of memory if all tensors that are not broadcast are the same permutation of
/// a row-major layout, but not row-major: transposed ones, for example.
#[inline]
fn dense_order(inputs: &[&Tensor]) -> Option<[usize; MAX_NDIM]> {
    let layout = inputs[0].layout();
    if layout.is_contiguous() || layout.ndim() < 2 {
        return None;
    }
    order_of(inputs)
}

/// [`dense_order`] for a first layout that may be one.
#[inline(never)]
fn order_of(inputs: &[&Tensor]) -> Option<[usize; MAX_NDIM]> {
    let is_broadcast = |t: &Tensor| {
        t.layout().strides().iter().zip(t.shape().iter()).any(|(&s, &size)| s == 0 && size != 1)
    };
    let layout = inputs.iter().find(|t| !is_broadcast(t))?.layout();
    if layout.is_contiguous() {
        return None;
    }
    let (strides, shape) = (layout.strides(), layout.shape());
    let mut order: [usize; MAX_NDIM] = std::array::from_fn(|axis| axis);
    order[..strides.len()].sort_by_key(|&axis| std::cmp::Reverse(strides[axis]));
    let mut step = 1isize;
    for &axis in order[..strides.len()].iter().rev().filter(|&&axis| shape[axis] != 1) {
        if strides[axis] != step {
            return None;
        }
        step *= shape[axis] as isize;
    }
    let same = |t: &Tensor| {
        let axes = strides.iter().zip(t.layout.strides()).zip(shape.iter());
        axes.filter(|&(_, &size)| size != 1).all(|((a, b), _)| a == b)
    };
    inputs.iter().all(|t| is_broadcast(t) || same(t)).then_some(order)
}

/// [`run_one`] on tensors whose memory is row-major with their axes in `order`: the result has the
/// same layout, so that memory is read and written in order.
#[inline(never)]
fn run_permuted(
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
    order: &[usize],
) -> Result<Tensor> {
    let views: Vec<Tensor> = inputs.iter().map(|t| t.through(t.layout.permute(order))).collect();
    let views: Vec<&Tensor> = views.iter().collect();
    let shape = *views[0].shape();
    let storage = Op::Elementwise { kernel, inputs: &views, params, shape: &shape }
        .first(&inputs[0].device)?;
    let result = views[0].result(storage, shape, kernel.output_dtype(0))?;
    let mut back = [0; MAX_NDIM];
    order.iter().enumerate().for_each(|(i, &axis)| back[axis] = i);
    Ok(result.through(result.layout.permute(&back[..order.len()])))
}

/// [`run`] for a kernel of one output.
pub(in crate::tensor) fn run_one(
    kernel: &Arc<Kernel>,
    inputs: &[&Tensor],
    params: &[Scalar],
) -> Result<Tensor> {
    let first = inputs[0];
    if alike(inputs) {
        if let Some(order) = dense_order(inputs) {
            return run_permuted(kernel, inputs, params, &order[..first.ndim()]);
        }
        // As `run`, without moving its results: the move would be noticeable in a small operation.
        let shape = first.shape();
        let mut op = Op::Elementwise { kernel, inputs, params, shape };
        let storage = op.first(&first.device)?;
        return first.result(storage, *shape, kernel.output_dtype(0));
    }
    let (expanded, shape, device) = expand_all(inputs)?;
    let views: Vec<&Tensor> = expanded.iter().collect();
    if let Some(order) = order_of(&views) {
        return run_permuted(kernel, &views, params, &order[..shape.ndim()]);
    }
    let mut op = Op::Elementwise { kernel, inputs: &views, params, shape: &shape };
    let storage = op.run(&device)?.into_first().ok_or_else(no_output)?;
    Tensor::from_result(storage, shape, kernel.output_dtype(0), device)
}

/// The outputs of `kernel`, one tensor for each.
pub(super) fn results(
    kernel: &Kernel,
    outputs: Outputs,
    shape: Shape,
    device: &DeviceRef,
) -> Result<Vec<Tensor>> {
    if outputs.len() != kernel.outputs().len() {
        let (name, len, wanted) = (device.info().name, outputs.len(), kernel.outputs().len());
        return Err(Error::internal(format!(
            "the device {name} returned {len} outputs of a kernel of {wanted}"
        )));
    }
    // One move of each tensor: `collect` into a result takes four.
    let mut tensors = Vec::with_capacity(outputs.len());
    for (i, storage) in outputs.into_iter().enumerate() {
        tensors.push(Tensor::from_result(storage, shape, kernel.output_dtype(i), device.clone())?);
    }
    Ok(tensors)
}

/// The error of a device that returned no storage.
#[cold]
pub(in crate::tensor) fn no_output() -> Error {
    Error::internal("the device returned no output")
}

pub(super) fn at_least_one(inputs: usize) -> Result<()> {
    if inputs > 0 {
        Ok(())
    } else {
        Err(Error::value("needs at least one tensor, whose device does the work")
            .help("Tensor::full(shape, value, dtype, &device)? needs none"))
    }
}

impl Kernel {
    /// Runs the kernel on tensors that broadcast to one shape, with the values of its run-time
    /// parameters.
    ///
    /// # Errors
    /// If the number or types of tensors or parameters are not the kernel's, or the shapes do not
    /// broadcast.
    #[track_caller]
    pub fn run(self: &Arc<Kernel>, inputs: &[&Tensor], params: &[Scalar]) -> Result<Vec<Tensor>> {
        let _op = enter("Kernel::run").on_all("inputs", inputs);
        at_least_one(inputs.len())?;
        let counted = inputs.len() == self.inputs().len() && params.len() == self.params().len();
        if !counted || !self.is_pointwise() {
            return Err(counts(self, inputs.len(), params.len()));
        }
        if let Some(i) = (0..inputs.len()).find(|&i| inputs[i].dtype != self.inputs()[i]) {
            return Err(wrong_input(
                i,
                (*inputs[i].shape(), inputs[i].dtype()),
                self.inputs()[i],
                inputs[i].shape(),
            ));
        }
        let (outputs, shape, device) = run(self, inputs, params)?;
        results(self, outputs, shape, &device)
    }

    /// [`Kernel::run`] for each of `launches`, the inputs and parameters of one: the outputs of each.
    /// One launch where [`Device::prefers_batched_kernels`] says so, which is faster for many small
    /// tensors.
    ///
    /// [`Device::prefers_batched_kernels`]: crate::Device::prefers_batched_kernels
    ///
    /// # Errors
    /// As [`Kernel::run`].
    ///
    /// # Example
    /// ```
    /// # use std::sync::Arc; use teeny_core::{DType, Kernel, Reference, Result, Scalar, Tensor};
    /// # fn main() -> Result<()> {
    /// # let device = Reference::new();
    /// let step = Kernel::build([DType::F32; 2], [DType::F32], |[w, g], [lr]| [w - g * lr])?;
    /// let weight = Tensor::ones((2, 3), DType::F32, &device)?; // (2, 3)
    /// let bias = Tensor::ones(3, DType::F32, &device)?; // (3)
    /// let lr = [Scalar::Float(0.5)];
    /// let new =
    ///     Arc::new(step).run_many(&[(&[&weight, &weight], &lr), (&[&bias, &bias], &lr)])?;
    /// assert_eq!(new[1][0].to_vec::<f32>()?, [0.5; 3]);
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn run_many(
        self: &Arc<Kernel>,
        launches: &[(&[&Tensor], &[Scalar])],
    ) -> Result<Vec<Vec<Tensor>>> {
        let inputs: Vec<&Tensor> = launches.iter().flat_map(|l| l.0).copied().collect();
        let _op = enter("Kernel::run_many").on_all("inputs", &inputs);
        let counted = |(inputs, params): &(&[&Tensor], &[Scalar])| {
            inputs.len() == self.inputs().len() && params.len() == self.params().len()
        };
        let first = launches.first().and_then(|(inputs, _)| inputs.first());
        let joins = |(inputs, _): &(&[&Tensor], &[Scalar])| {
            first.is_some_and(|first| alike(inputs) && same(&first.device, &inputs[0].device))
        };
        let Some(first) = first.filter(|first| {
            let pays = launches.len() > 1 && first.device.prefers_batched_kernels();
            pays && launches.iter().all(counted) && launches.iter().all(joins)
        }) else {
            return launches.iter().map(|(inputs, params)| self.run(inputs, params)).collect();
        };
        let params: Vec<Scalar> = launches.iter().flat_map(|l| l.1).copied().collect();
        let shapes: Vec<Shape> = launches.iter().map(|l| *l.0[0].shape()).collect();
        let (inputs, params, shapes) = (&inputs[..], &params[..], &shapes[..]);
        let all = Op::ElementwiseMany { kernel: self, inputs, params, shapes }
            .tensor_list(&first.device)?;
        let mut all = all.into_iter();
        let own = self.outputs().len();
        Ok(launches.iter().map(|_| all.by_ref().take(own).collect()).collect())
    }
}
