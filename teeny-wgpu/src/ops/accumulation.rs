//! Kernels that write single elements write them in the accumulation type, the one that an element
//! type is computed in; a second launch casts them to the storage type where the two differ.

use crate::codegen::types::accumulation;
use crate::device::Wgpu;
use crate::ops::elementwise::elementwise;
use std::sync::{Arc, OnceLock};
use teeny_core::{DType, Error, Kernel, Result, Scalar, Shape, StorageRef, Tensor};

/// The lowest value of `dtype`; -inf for floats.
pub(crate) fn lowest(dtype: DType) -> Scalar {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => Scalar::Bool(false),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Scalar::Float(f64::NEG_INFINITY),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => Scalar::UInt(0),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => Scalar::Int(i64::MIN >> (64 - bits)),
    }
}

/// The highest value of `dtype`; inf for floats.
pub(crate) fn highest(dtype: DType) -> Scalar {
    let bits = 8 * dtype.size() as u32;
    match dtype {
        DType::Bool => Scalar::Bool(true),
        DType::F16 | DType::BF16 | DType::F32 | DType::F64 => Scalar::Float(f64::INFINITY),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => Scalar::UInt(u64::MAX >> (64 - bits)),
        DType::I8 | DType::I16 | DType::I32 | DType::I64 => Scalar::Int(i64::MAX >> (64 - bits)),
    }
}

/// The elements of `storage` in the type `dtype`: the storage itself if a kernel wrote that type, a
/// cast if it wrote the accumulation type of `dtype`.
pub(crate) fn cast_to_storage(
    gpu: &Wgpu,
    storage: StorageRef,
    dtype: DType,
    like: &Tensor,
) -> Result<StorageRef> {
    static CASTS: [OnceLock<Arc<Kernel>>; DType::ALL.len()] =
        [const { OnceLock::new() }; DType::ALL.len()];
    if storage.dtype() == dtype {
        return Ok(storage);
    }
    let kernel = match CASTS[dtype as usize].get() {
        Some(kernel) => kernel,
        None => {
            let kernel =
                Arc::new(Kernel::build([accumulation(dtype)], [], |[x], []| [x.cast(dtype)])?);
            CASTS[dtype as usize].get_or_init(|| kernel)
        }
    };
    let shape = Shape::new(&[storage.len()])?;
    let x = gpu.tensor(storage, shape, accumulation(dtype), like)?;
    let mut outputs = elementwise(gpu, kernel, &[&x], &[], &shape)?.into_iter();
    outputs.next().ok_or_else(|| Error::internal("a kernel returned no output"))
}
