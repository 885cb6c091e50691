//! Opens a device by name.
//!
//! The features `cpu` and `wgpu` compile the backends, which are registered by name in
//! [`teeny_core::registry`]; a program can register its own.

use teeny_core::context::enter;
use teeny_core::{DeviceRef, Error, Result, registry};

/// Opens the device `name`: `cpu`, `wgpu`, `reference`, a registered one, or `auto`.
///
/// `auto` is the device that `TEENY_DEVICE` names, or the first compiled backend that works, GPU
/// before CPU. [`choose`] also returns the reason.
///
/// Each call opens another device with separate memory, and tensors of two devices do not meet in
/// an operation: open a device once and clone it.
///
/// # Errors
/// If the device is unknown (the error lists the known ones), or does not work on this machine.
///
/// # Example
/// ```
/// # fn main() -> teeny_core::Result<()> {
/// let device = teeny_nn::device::device("cpu")?;
/// # let _ = device; Ok(()) }
/// ```
#[track_caller]
pub fn device(name: &str) -> Result<DeviceRef> {
    let _op = enter("device");
    Ok(choose(name)?.device)
}

/// A device and the reason for its choice.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The device.
    pub device: DeviceRef,
    /// One line for the user: the device, its hardware, and the reason.
    pub note: String,
}

/// [`device`] with the reason for the choice.
///
/// # Errors
/// As [`device`].
#[track_caller]
pub fn choose(name: &str) -> Result<Choice> {
    let _op = enter("choose");
    register_backends();
    if name != "auto" {
        return named(name, "asked for by name");
    }
    if let Some(wanted) = std::env::var_os("TEENY_DEVICE").filter(|v| !v.is_empty()) {
        let wanted = wanted.to_string_lossy();
        if wanted != "auto" {
            return named(&wanted, &format!("TEENY_DEVICE={wanted}"));
        }
    }
    let mut refusals = Vec::new();
    for candidate in ["wgpu", "cpu"] {
        if !registry::names().iter().any(|known| known == candidate) {
            continue;
        }
        let why = match refusals.as_slice() {
            [] => "the first that works".to_string(),
            refusals => format!("because {}", refusals.join("; ")),
        };
        match named(candidate, &why) {
            Ok(choice) => match drawback(&choice.device) {
                Some(drawback) => refusals.push(drawback),
                None => return Ok(choice),
            },
            Err(error) => refusals.push(format!("{candidate} does not work: {}", error.message())),
        }
    }
    let error = Error::device(format!("no device works; known: {}", registry::names().join(", ")))
        .help("the feature `cpu` or `wgpu` of this crate adds a device")
        .named("device");
    Err(refusals.into_iter().fold(error, Error::note))
}

/// Names under which a GPU is looked for; this library has one GPU engine.
const GPU_NAMES: [&str; 8] = ["wgpu", "gpu", "cuda", "rocm", "metal", "mps", "vulkan", "webgpu"];

fn named(name: &str, why: &str) -> Result<Choice> {
    let known = registry::names();
    let has = |name: &str| known.iter().any(|known| known == name);
    let gpu = GPU_NAMES.contains(&name.to_lowercase().as_str());
    if !has(name) && (gpu || name == "cpu") {
        let (feature, engine) = if gpu { ("wgpu", "GPU") } else { ("cpu", "CPU") };
        let known = known.join(", ");
        let error = match has(feature) {
            true => Error::device(format!("no device is called {name:?}; known: {known}"))
                .help("device(\"wgpu\") opens the GPU, by Vulkan, Metal, DirectX 12 or WebGPU"),
            false => Error::device(format!(
                "this program was built without the {engine} engine; known: {known}"
            ))
            .help(format!(
                "add the feature {feature:?} to teeny-nn in Cargo.toml: \
                 teeny-nn = {{ .., features = [{feature:?}] }}"
            )),
        };
        return Err(error.named(format!("device {name:?}")));
    }
    let device = registry::device(name).map_err(|e| e.named(format!("device {name:?}")))?;
    let info = device.info();
    Ok(Choice { note: format!("{}: {} ({why})", info.name, info.description), device })
}

/// Registers the compiled backends, unless the program has registered its own under their names.
fn register_backends() {
    #[cfg(feature = "cpu")]
    if !registry::names().iter().any(|known| known == "cpu") {
        registry::register("cpu", || Ok(teeny_cpu::Cpu::new()));
    }
    #[cfg(feature = "wgpu")]
    if !registry::names().iter().any(|known| known == "wgpu") {
        teeny_wgpu::register();
    }
}

/// Why `auto` prefers another device, if it does: the only adapter of the GPU backend emulates a
/// GPU on the CPU.
fn drawback(device: &DeviceRef) -> Option<String> {
    #[cfg(feature = "wgpu")]
    if let Some(gpu) = device.downcast_ref::<teeny_wgpu::Wgpu>()
        && gpu.capabilities().kind == teeny_wgpu::AdapterKind::Cpu
    {
        return Some(format!("wgpu would run on the CPU: {}", gpu.capabilities()));
    }
    let _ = device;
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_found_by_name_and_missing_ones_explained() {
        assert_eq!(choose("reference").unwrap().device.info().name, "reference");
        assert!(choose("reference").unwrap().note.ends_with("(asked for by name)"));
        let error = device("quantum").unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("device \"quantum\" at {}:", file!()))
                && error.contains(": no device is called \"quantum\"; known: ")
                && error.contains("reference"),
            "{error}"
        );
    }

    #[test]
    fn names_of_gpus_are_explained_by_the_feature_and_the_name_of_the_engine() {
        for name in ["cuda", "gpu", "CUDA", "wgpu"] {
            if name == "wgpu" && cfg!(feature = "wgpu") {
                continue;
            }
            let error = device(name).unwrap_err().to_string();
            let (first, help) = match cfg!(feature = "wgpu") {
                true => (format!("no device is called {name:?}; known: "), "device(\"wgpu\")"),
                false => (
                    "this program was built without the GPU engine; known: ".to_string(),
                    "teeny-nn = { .., features = [\"wgpu\"] }",
                ),
            };
            assert!(error.starts_with(&format!("device {name:?} at ")), "{error}");
            assert!(error.contains(&format!(": {first}")), "{error}");
            assert!(error.contains(help) && !error.contains("cargo run"), "{error}");
        }
    }

    #[test]
    fn a_program_can_add_a_device() {
        registry::register("mine", || Ok(teeny_core::Reference::new()));
        assert_eq!(device("mine").unwrap().info().name, "reference");
    }
}
