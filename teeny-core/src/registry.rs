//! Devices by name, for `TEENY_DEVICE=cpu` and `--device cpu`.

use crate::context::enter;
use crate::device::DeviceRef;
use crate::error::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Makes a device, or returns an error.
pub type Factory = fn() -> Result<DeviceRef>;

static DEVICES: Mutex<BTreeMap<String, Factory>> = Mutex::new(BTreeMap::new());

fn devices() -> std::sync::MutexGuard<'static, BTreeMap<String, Factory>> {
    // A panic while the map was held cannot have left it half-changed: insertions are atomic.
    DEVICES.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Makes `name` known. A later registration of the same name replaces the earlier one.
pub fn register(name: &str, factory: Factory) {
    devices().insert(name.to_string(), factory);
}

/// The registered names, sorted. `reference` is always among them.
pub fn names() -> Vec<String> {
    let mut names: Vec<String> = devices().keys().cloned().collect();
    names.push("reference".to_string());
    names.sort();
    names.dedup();
    names
}

/// A new device of the kind registered under `name`.
///
/// # Errors
/// If nothing is registered under this name, or the device cannot be made.
#[track_caller]
pub fn device(name: &str) -> Result<DeviceRef> {
    let _op = enter("device");
    let factory = devices().get(name).copied();
    match factory {
        Some(factory) => factory(),
        None if name == "reference" => Ok(crate::Reference::new()),
        None => Err(Error::device(format!(
            "no device is called {name:?}; known: {}",
            names().join(", ")
        ))
        .help("a backend is known once its crate's feature is enabled and it has been registered")),
    }
}
