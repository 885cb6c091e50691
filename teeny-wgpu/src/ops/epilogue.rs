//! Kernels behind products: what a launch of a product binds and passes for one. See
//! `shaders/epilogue.wgsl`.

use crate::codegen::types::accumulation;
use crate::codegen::{epilogue, generator};
use crate::device::Wgpu;
use crate::device::launch::Binding;
use crate::device::limits::MAX_BINDINGS;
use crate::device::params::Params;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::elementwise::elementwise;
use std::sync::Arc;
use teeny_core::{DType, Kernel, Layout, Outputs, Result, Scalar, Shape, StorageRef, Tensor};

/// A kernel behind a product.
#[derive(Clone, Copy)]
pub(crate) struct After<'a> {
    /// Its first input is the product.
    pub kernel: &'a Arc<Kernel>,
    /// Its other inputs, of the product's shape.
    pub others: &'a [&'a Tensor],
    pub params: &'a [Scalar],
    pub shape: &'a Shape,
}

impl After<'_> {
    /// Whether a launch of the product can run the kernel: it binds and passes few enough, and the
    /// GPU has its types.
    pub fn fits(&self, gpu: &Wgpu) -> bool {
        let kernel = self.kernel;
        let outputs = kernel.outputs().len();
        let results = (0..outputs).map(|i| kernel.output_dtype(i));
        2 + self.others.len() + outputs <= MAX_BINDINGS
            && kernel.nodes().iter().all(|node| gpu.capabilities.supports(node.dtype))
            && !self.others.iter().any(|x| gpu.exceeds_binding(x))
            && !results
                .clone()
                .any(|t| gpu.len_exceeds_binding(self.shape.numel(), accumulation(t)))
            && kernel.params().len() + self.others.len() * 9 < 128
    }

    fn joint(&self) -> Coalesced {
        let layouts: Vec<&Layout> = self.others.iter().map(|x| x.layout()).collect();
        Coalesced::new(self.shape, &layouts).padded()
    }

    /// The part of the shader's text that is not the kernel.
    pub fn epilogue(&self) -> epilogue::Epilogue<'_> {
        let axes = if self.others.is_empty() { 0 } else { self.joint().sizes.len() };
        epilogue::Epilogue { kernel: self.kernel, axes }
    }

    /// Appends the parameters of the epilogue.
    pub fn push(&self, words: &mut Params) {
        if !self.others.is_empty() {
            let joint = self.joint();
            joint.sizes.iter().skip(1).for_each(|&size| words.count(size));
            for (x, strides) in self.others.iter().zip(&joint.strides) {
                words.count(x.layout().offset());
                strides.iter().for_each(|&stride| words.int(stride));
            }
        }
        generator::push_scalars(words, self.kernel, self.params);
    }

    /// The bindings of the other inputs.
    pub fn inputs<'b>(&'b self, gpu: &Wgpu) -> Result<Vec<Binding<'b>>> {
        self.others.iter().map(|x| gpu.bind_tensor(x)).collect()
    }

    /// Storage for the outputs, of their accumulation types.
    pub fn allocate(&self, gpu: &Wgpu) -> Result<Vec<StorageRef>> {
        let outputs = 0..self.kernel.outputs().len();
        let one = |i| gpu.allocate(self.shape.numel(), accumulation(self.kernel.output_dtype(i)));
        outputs.map(one).collect()
    }

    /// The outputs in their own types.
    pub fn finish(&self, gpu: &Wgpu, storages: Vec<StorageRef>, like: &Tensor) -> Result<Outputs> {
        let each = storages.into_iter().enumerate();
        each.map(|(i, y)| cast_to_storage(gpu, y, self.kernel.output_dtype(i), like)).collect()
    }

    /// The kernel in a separate launch, on a product of type `dtype` that is stored.
    pub fn apart(
        &self,
        gpu: &Wgpu,
        product: StorageRef,
        dtype: DType,
        like: &Tensor,
    ) -> Result<Outputs> {
        let product = gpu.tensor(product, *self.shape, dtype, like)?;
        let inputs: Vec<&Tensor> =
            std::iter::once(&product).chain(self.others.iter().copied()).collect();
        elementwise(gpu, self.kernel, &inputs, self.params, self.shape)
    }
}
