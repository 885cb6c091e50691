//! Epilogue kernels of products: the bindings and parameters that a launch adds for one. See
//! `shaders/epilogue.wgsl`.

use crate::codegen::types::accumulation;
use crate::codegen::{epilogue::EpiloguePlan, generator};
use crate::device::Wgpu;
use crate::device::launch::Binding;
use crate::device::limits::MAX_BINDINGS;
use crate::device::params::Params;
use crate::ops::accumulation::cast_to_storage;
use crate::ops::coalesce::Coalesced;
use crate::ops::elementwise::elementwise;
use std::sync::Arc;
use teeny_core::{DType, Kernel, Layout, Outputs, Result, Scalar, Shape, StorageRef, Tensor};

/// A kernel after a product, with its operands.
#[derive(Clone, Copy)]
pub(crate) struct Epilogue<'a> {
    /// Its first input is the product.
    pub kernel: &'a Arc<Kernel>,
    /// Its other inputs, of the product's shape.
    pub others: &'a [&'a Tensor],
    pub params: &'a [Scalar],
    pub shape: &'a Shape,
}

impl Epilogue<'_> {
    /// Whether a launch of the product can run the kernel: it binds and passes few enough, and the
    /// GPU has its types.
    pub fn fits(&self, gpu: &Wgpu) -> bool {
        let kernel = self.kernel;
        2 + self.others.len() + kernel.outputs().len() <= MAX_BINDINGS
            && kernel.nodes().iter().all(|node| gpu.capabilities.supports(node.dtype))
            && !self.others.iter().any(|x| gpu.exceeds_binding(x))
            && !self.dtypes().any(|t| gpu.len_exceeds_binding(self.shape.numel(), accumulation(t)))
            && kernel.params().len() + self.others.len() * 9 < 128
    }

    fn joint(&self) -> Coalesced {
        let layouts: Vec<&Layout> = self.others.iter().map(|x| x.layout()).collect();
        Coalesced::new(self.shape, &layouts).padded()
    }

    /// Whether a tiled product, of which `columns` follow one another in the result, stores results
    /// in pairs: there are 16-bit floats to pack.
    pub fn pairs(&self, columns: usize) -> bool {
        columns.is_multiple_of(2) && self.dtypes().any(DType::is_half)
    }

    fn dtypes(&self) -> impl Iterator<Item = DType> {
        (0..self.kernel.outputs().len()).map(|i| self.kernel.output_dtype(i))
    }

    /// The part of the shader's text that is not the kernel.
    pub fn plan(&self, pairs: bool) -> EpiloguePlan<'_> {
        let axes = if self.others.is_empty() { 0 } else { self.joint().sizes.len() };
        EpiloguePlan { kernel: self.kernel, axes, pairs }
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

    /// Storage for the outputs: 16-bit floats that are stored in pairs have their own type, others
    /// their accumulation type.
    pub fn allocate(&self, gpu: &Wgpu, pairs: bool) -> Result<Vec<StorageRef>> {
        let one = |dtype: DType| {
            let packed = pairs && dtype.is_half();
            let written = if packed { dtype } else { accumulation(dtype) };
            gpu.allocate(self.shape.numel(), written)
        };
        self.dtypes().map(one).collect()
    }

    /// The outputs in their own types.
    pub fn finish(&self, gpu: &Wgpu, storages: Vec<StorageRef>, like: &Tensor) -> Result<Outputs> {
        let each = storages.into_iter().zip(self.dtypes());
        each.map(|(y, dtype)| cast_to_storage(gpu, y, dtype, like)).collect()
    }

    /// The kernel in a separate launch, on a product of type `dtype` that is stored.
    pub fn run_separately(
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
