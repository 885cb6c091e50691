//! The gate through which unchecked shaders and experimental features pass: the only unsafe code of
//! this crate.
#![allow(unsafe_code)]

/// A module without run-time checks.
pub(crate) fn trusted(
    device: &wgpu::Device,
    descriptor: wgpu::ShaderModuleDescriptor<'_>,
) -> wgpu::ShaderModule {
    let checks = wgpu::ShaderRuntimeChecks {
        bounds_checks: false,
        force_loop_bounding: false,
        int_div_checks: false,
        ..wgpu::ShaderRuntimeChecks::checked()
    };
    // SAFETY: the text comes from this crate only. Its kernels compare every index with the sizes
    // that core has checked against the storage before they read or write, its loops count to such
    // sizes, and its divisions go through functions of the prelude that test for zero. The same
    // texts pass the conformance suite with all checks on.
    unsafe { device.create_shader_module_trusted(descriptor, checks) }
}

/// The permission to use cooperative matrices, which wgpu counts as experimental.
pub(crate) fn experimental_features() -> wgpu::ExperimentalFeatures {
    // SAFETY: the caller accepts that this part of wgpu may have mistakes. It is requested only
    // where the driver reports it, its one kernel reads and writes workgroup memory alone by such
    // matrices, at constant places, and each variant is compared with a known product before use.
    unsafe { wgpu::ExperimentalFeatures::enabled() }
}
