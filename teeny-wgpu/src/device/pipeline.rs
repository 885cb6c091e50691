//! From WGSL to pipelines, each compiled once: the cache by program key, and the layouts.
//!
//! A [`Key`] names everything a shader's text depends on, and nothing else: sizes and strides are
//! parameters. So the number of compilations is the number of different programs, which
//! [`crate::Counters::compiles`] shows.

use crate::device::error::scoped;
use crate::device::gate::trusted;
use crate::device::launch::{Key, Program};
use crate::device::limits::PARAM_BYTES;
use crate::device::lock::lock;
use crate::device::options::Shaders;
use crate::device::profile::{Compiled, print};
use std::collections::HashMap;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use teeny_core::clock::Instant;
use teeny_core::{Error, Result};

/// A compiled program with the layout of its storage buffers.
pub(crate) struct Pipeline {
    pub pipeline: wgpu::ComputePipeline,
    pub storages: wgpu::BindGroupLayout,
}

/// All pipelines of a device.
pub(crate) struct Pipelines {
    device: wgpu::Device,
    shaders: Shaders,
    /// Whether the adapter rounds quotients and roots of f32 correctly.
    rounds_quotients: bool,
    debug: u8,
    /// The layout of the parameters: binding 0 of group 1.
    pub uniform: wgpu::BindGroupLayout,
    known: Mutex<HashMap<Key, Arc<Pipeline>>>,
    compiles: AtomicU64,
    compiled: Mutex<Compiled>,
}

fn entry(
    binding: u32,
    ty: wgpu::BufferBindingType,
    dynamic: bool,
    size: u64,
) -> wgpu::BindGroupLayoutEntry {
    let ty = wgpu::BindingType::Buffer {
        ty,
        has_dynamic_offset: dynamic,
        min_binding_size: NonZeroU64::new(size),
    };
    wgpu::BindGroupLayoutEntry { binding, visibility: wgpu::ShaderStages::COMPUTE, ty, count: None }
}

impl Pipelines {
    pub fn new(
        device: wgpu::Device,
        shaders: Shaders,
        rounds_quotients: bool,
        debug: u8,
    ) -> Pipelines {
        let uniform = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
            label: Some("teeny parameters"),
            entries: &[entry(0, wgpu::BufferBindingType::Uniform, true, PARAM_BYTES)],
        });
        Pipelines {
            device,
            shaders,
            rounds_quotients,
            debug,
            uniform,
            known: Mutex::default(),
            compiles: AtomicU64::new(0),
            compiled: Mutex::default(),
        }
    }

    /// The number of shaders that were compiled.
    pub fn compiles(&self) -> u64 {
        self.compiles.load(Ordering::Relaxed)
    }

    /// How many shaders of each family were compiled, and the time that took on the host.
    pub fn compiled(&self) -> Compiled {
        lock(&self.compiled).clone()
    }

    /// The pipeline of `program`, which reads `reads` storage buffers and writes `writes` more.
    ///
    /// # Errors
    /// If the shader is not accepted.
    pub fn get(&self, program: &Program<'_>, reads: usize, writes: usize) -> Result<Arc<Pipeline>> {
        if let Some(pipeline) = lock(&self.known).get(&program.key) {
            return Ok(pipeline.clone());
        }
        let Key { family, variant, .. } = &program.key;
        let _span = tracing::debug_span!("compile", family, variant = ?variant).entered();
        let start = Instant::now();
        let mut source = (program.wgsl)()?;
        if !self.rounds_quotients {
            source = source.replacen(
                "ROUNDS_QUOTIENTS: bool = true",
                "ROUNDS_QUOTIENTS: bool = false",
                1,
            );
        }
        if self.debug >= 3 {
            print(format_args!("{}", numbered(family, &source)));
        }
        let pipeline = Arc::new(self.compile(family, &source, reads, writes)?);
        let time = start.elapsed();
        if self.debug >= 2 {
            print(format_args!(
                "wgpu compiled {family} variant {variant:x?}, {} lines, in {:.1} ms",
                source.lines().count(),
                time.as_secs_f64() * 1e3
            ));
        }
        self.compiles.fetch_add(1, Ordering::Relaxed);
        {
            let mut compiled = lock(&self.compiled);
            let (count, sum) = compiled.entry(family).or_default();
            (*count, *sum) = (*count + 1, *sum + time);
        }
        lock(&self.known).insert(program.key.clone(), pipeline.clone());
        Ok(pipeline)
    }

    fn compile(
        &self,
        label: &'static str,
        source: &str,
        reads: usize,
        writes: usize,
    ) -> Result<Pipeline> {
        let device = &self.device;
        let made = scoped(device, wgpu::ErrorFilter::Validation, || {
            let storage = |i: usize| wgpu::BufferBindingType::Storage { read_only: i < reads };
            let entries: Vec<_> =
                (0..reads + writes).map(|i| entry(i as u32, storage(i), false, 0)).collect();
            let storages = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(label),
                entries: &entries,
            });
            let layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(label),
                bind_group_layouts: &[Some(&storages), Some(&self.uniform)],
                immediate_size: 0,
            });
            let descriptor = wgpu::ShaderModuleDescriptor {
                label: Some(label),
                source: wgpu::ShaderSource::Wgsl(source.into()),
            };
            let module = match self.shaders {
                Shaders::Checked => device.create_shader_module(descriptor),
                Shaders::Trusted => trusted(device, descriptor),
            };
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(label),
                layout: Some(&layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: wgpu::PipelineCompilationOptions {
                    constants: &[],
                    zero_initialize_workgroup_memory: false,
                },
                cache: None,
            });
            Pipeline { pipeline, storages }
        });
        made.map_err(|e| {
            Error::internal(format!("the shader {label:?} was rejected: {e}"))
                .note(numbered(label, source))
        })
    }
}

/// The text with a number before each line.
fn numbered(label: &str, source: &str) -> String {
    source
        .lines()
        .enumerate()
        .fold(format!("// {label}"), |text, (i, line)| format!("{text}\n{:4} {line}", i + 1))
}

#[cfg(test)]
mod tests {
    use crate::Wgpu;
    use crate::device::launch::{Key, Launch, Program};
    use crate::device::params::Params;
    use teeny_core::ErrorKind;

    #[test]
    fn a_shader_that_does_not_compile_is_an_error_with_its_line_and_the_device_goes_on() {
        let Ok(gpu) = Wgpu::new() else { return };
        let broken = Program {
            key: Key::new("broken", []),
            wgsl: &|| Ok("@compute @workgroup_size(1)\nfn main() { let x = nothing; }".to_string()),
        };
        let launch = Launch {
            program: broken,
            inputs: &[],
            outputs: &[],
            params: &Params::new(),
            grid: [1; 3],
        };
        let error = gpu.dispatch(&launch).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(
            error.to_string().contains("\"broken\" was rejected")
                && error.to_string().contains("   2 fn main()"),
            "{error}"
        );
        let storage = gpu.allocate(4, teeny_core::DType::F32).unwrap();
        assert_eq!(storage.len(), 4);
    }
}
