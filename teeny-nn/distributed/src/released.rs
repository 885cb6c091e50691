//! [`release`]: parameters without elements, and the device that says so.

use std::sync::Arc;
use teeny_core::{
    DType, Device, DeviceInfo, Error, Op, Outputs, Reference, Result, StorageRef, Tensor,
};
use teeny_nn::Param;

/// The device of a parameter while its unit does not run: every operation is an error.
#[derive(Debug)]
struct Released(String);

impl Released {
    fn error(&self) -> Error {
        Error::value(format!("{} has no elements here: its unit does not run", self.0)).help(
            "compute with it in Unit::forward or Unit::run; FullyShard is the state of the model",
        )
    }
}

impl Device for Released {
    fn info(&self) -> DeviceInfo {
        let description = "a parameter whose unit does not run".into();
        DeviceInfo { name: format!("the ranks' parts of {}", self.0), description }
    }

    fn upload(&self, _bytes: &[u8], _dtype: DType) -> Result<StorageRef> {
        Err(self.error())
    }

    fn download(&self, _x: &Tensor) -> Result<Vec<u8>> {
        Err(self.error())
    }

    fn execute(&self, _op: &mut Op<'_>) -> Result<Option<Outputs>> {
        Err(self.error())
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

/// Frees the elements of a parameter.
pub(super) fn release(param: &Param) -> Result<()> {
    let dtype = param.stored().dtype();
    let one = Tensor::zeros((), dtype, Reference::new())?.expand(param.shape())?;
    let (storage, layout, ..) = one.into_parts();
    let device = Arc::new(Released(format!("{:?}", param.name())));
    param.lend(Tensor::from_parts(storage, layout, dtype, device)?);
    Ok(())
}

/// Whether a parameter is in a unit that does not run.
pub(super) fn is_sharded(param: &Param) -> bool {
    param.stored().device().downcast_ref::<Released>().is_some()
}
