//! Random single operations on the GPU engine against the oracle:
//! `cargo run --release -p teeny-wgpu --example fuzz_wgpu`.
//!
//! `--level` chooses how shaders run: `trusted` (the default), `checked`, `portable` (the limits of
//! every browser), or `narrow`, a device that binds 8 KiB and launches 64 workgroups a row, so that
//! small cases take the code paths of large tensors. See `teeny_conformance::oneop`.

use std::process::ExitCode;
use teeny_conformance::oneop::{Rules, Site, program};
use teeny_core::{DeviceRef, Error, Result};
use teeny_wgpu::{Options, Shaders, Wgpu};

struct Gpu(DeviceRef);

impl Site for Gpu {
    fn device(&self) -> &DeviceRef {
        &self.0
    }
}

fn sites(level: Option<&str>) -> Result<Vec<Box<dyn Site>>> {
    let mut options = Options::new().with_shaders(Shaders::Trusted);
    match level {
        None | Some("trusted") => {}
        Some("checked") => options.shaders = Shaders::Checked,
        Some("portable") => options.portable = true,
        Some("narrow") => (options.max_binding, options.max_workgroups) = (Some(8192), Some(64)),
        Some(other) => {
            return Err(Error::value(format!(
                "no level is called {other}: trusted, checked, portable or narrow"
            )));
        }
    }
    Ok(vec![Box::new(Gpu(Wgpu::with_options(&options)?))])
}

fn main() -> ExitCode {
    let rules = Rules {
        flushes_subnormals: true,
        loses_zero_signs: true,
        multiplies_padding: true,
        simplifies_programs: true,
        ..Rules::default()
    };
    program::main(sites, rules)
}
