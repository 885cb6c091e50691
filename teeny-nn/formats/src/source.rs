//! [`TensorSource`]: a source of named tensors.

use super::element_type::ElementType;
use super::safetensors::is_counter;
use super::{SafeTensors, State};
use std::collections::BTreeMap;
use std::sync::Arc;
use teeny_core::{DType, DeviceRef, Error, QuantTensor, Reference, Result, Tensor};

/// A source of named tensors: one file, several files, or a [`State`] in memory.
pub trait TensorSource {
    /// The name of the source in errors.
    fn label(&self) -> String;

    /// The names and shapes of the tensors, each name once.
    fn shapes(&self) -> Vec<(String, Vec<usize>)>;

    /// Reads tensor `name` onto `device`.
    ///
    /// # Errors
    /// If the tensor does not exist or cannot be read.
    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor>;

    /// Reads tensor `name` as the quantised matrix that it is in the source; none if it is not one.
    ///
    /// # Errors
    /// As [`TensorSource::read`].
    fn read_quantized(&self, name: &str, device: &DeviceRef) -> Result<Option<QuantTensor>> {
        let _ = (name, device);
        Ok(None)
    }

    /// The type of the elements of tensor `name` in the source, if it is known before it is read.
    fn element_type(&self, name: &str) -> Option<ElementType> {
        let _ = name;
        None
    }

    /// The tensors that cannot be read, each with the error of reading it.
    fn unreadable(&self) -> Vec<(String, Error)> {
        Vec::new()
    }
}

/// A source behind a pointer.
macro_rules! pointer {
    ($type:ty) => {
        impl<T: TensorSource + ?Sized> TensorSource for $type {
            fn label(&self) -> String {
                (**self).label()
            }

            fn shapes(&self) -> Vec<(String, Vec<usize>)> {
                (**self).shapes()
            }

            fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
                (**self).read(name, device)
            }

            fn read_quantized(
                &self,
                name: &str,
                device: &DeviceRef,
            ) -> Result<Option<QuantTensor>> {
                (**self).read_quantized(name, device)
            }

            fn element_type(&self, name: &str) -> Option<ElementType> {
                (**self).element_type(name)
            }

            fn unreadable(&self) -> Vec<(String, Error)> {
                (**self).unreadable()
            }
        }
    };
}
pointer!(&T);
pointer!(Arc<T>);

impl TensorSource for SafeTensors {
    fn label(&self) -> String {
        SafeTensors::label(self)
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.entries().iter().map(|(name, entry)| (name.clone(), entry.shape.clone())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        self.tensor_on_device(name, device)
    }

    fn element_type(&self, name: &str) -> Option<ElementType> {
        Some(ElementType::Plain(self.entries().get(name)?.dtype))
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        refused(SafeTensors::unreadable(self))
    }
}

/// The errors with their names, of tensors that cannot be read.
pub(super) fn refused(errors: &BTreeMap<String, Error>) -> Vec<(String, Error)> {
    errors.iter().map(|(name, error)| (name.clone(), error.clone())).collect()
}

impl TensorSource for State {
    fn label(&self) -> String {
        "load".to_string()
    }

    fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        self.tensors.iter().map(|(name, tensor)| (name.clone(), tensor.shape().to_vec())).collect()
    }

    fn read(&self, name: &str, device: &DeviceRef) -> Result<Tensor> {
        let tensor = self.tensor(name)?;
        if tensor.dtype() == DType::I64 && is_counter(name) {
            // on the host: the device may lack integers of 64 bits
            return tensor.to(Reference::new())?.cast(DType::I32)?.to(device);
        }
        tensor.to(device)
    }

    fn element_type(&self, name: &str) -> Option<ElementType> {
        Some(ElementType::Plain(self.tensors.get(name)?.dtype()))
    }

    fn unreadable(&self) -> Vec<(String, Error)> {
        refused(&self.unreadable)
    }
}
