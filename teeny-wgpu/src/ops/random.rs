//! Random numbers: Philox 4x32-10 in the shader, block by block, with the bits that
//! `teeny_core::random` defines. See `shaders/random.wgsl` and `random64.wgsl`.

use crate::codegen::elementwise::THREADS;
use crate::codegen::params::{Declaration, Field, Number, shader_params};
use crate::codegen::shader::shader;
use crate::codegen::types::{self, LANES};
use crate::device::launch::{Binding, Key, Launch, Program};
use crate::device::limits::MAX_COUNT;
use crate::device::params::Params;
use crate::device::storage::Memory;
use crate::device::{Wgpu, error};
use crate::ops::binding::WINDOW_ALIGNMENT;
use teeny_core::storage::downcast;
use teeny_core::{DType, Distribution, Result, Scalar, Shape, StorageRef};

/// The cases of [`Distribution`] without their numbers.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum DistributionKind {
    Uniform = 0,
    Normal = 1,
    Integer = 2,
    Bernoulli = 3,
}

/// The part of a stream of random numbers that a launch computes.
#[derive(Clone, Copy)]
struct Stream {
    /// Groups of four elements, and the number of the first one.
    quads: usize,
    first_quad: usize,
    key: teeny_core::Key,
}

impl Field for Stream {
    type Extent = ();
    fn declare(_: &str, (): (), declaration: &mut Declaration) {
        usize::declare("quads", (), declaration);
        usize::declare("first_quad", (), declaration);
        u64::declare("seed", (), declaration);
        u64::declare("draw", (), declaration);
        u32::declare("zero", (), declaration);
    }
    fn push(&self, params: &mut Params) {
        self.quads.push(params);
        self.first_quad.push(params);
        self.key.seed.push(params);
        self.key.draw.push(params);
        0u32.push(params); // keeps products apart from sums
    }
}

shader_params! {
    /// Parameters of a uniform distribution.
    struct UniformParams(dtype: DType) {
        stream: Stream,
        low: Number[dtype],
        high: Number[dtype],
    }
}

shader_params! {
    /// Parameters of a normal distribution.
    struct NormalParams(dtype: DType) {
        stream: Stream,
        mean: Number[dtype],
        deviation: Number[dtype],
    }
}

shader_params! {
    /// Parameters of a distribution of integers.
    struct IntegerParams() {
        stream: Stream,
        low: u64,
        /// Up to 2^32 for 32-bit types. 2^64 does not occur: both ends are i64, the upper one
        /// excluded.
        range: u64,
    }
}

shader_params! {
    /// Parameters of a Bernoulli distribution.
    struct BernoulliParams() {
        stream: Stream,
        p: Number[DType::F32],
    }
}

/// New storage with random elements.
pub(crate) fn random(
    gpu: &Wgpu,
    distribution: Distribution,
    shape: &Shape,
    dtype: DType,
    key: teeny_core::Key,
) -> Result<StorageRef> {
    gpu.require(dtype, "random numbers")?;
    let storage = gpu.allocate(shape.numel(), dtype)?;
    // Before the first window is computed: the last one's groups of four must be numbers of a
    // shader.
    if shape.numel() / LANES > MAX_COUNT {
        return Err(error::beyond(shape.numel() / LANES));
    }
    let kind = match distribution {
        Distribution::Uniform { .. } => DistributionKind::Uniform,
        Distribution::Normal { .. } => DistributionKind::Normal,
        Distribution::Integer { .. } => DistributionKind::Integer,
        Distribution::Bernoulli { .. } => DistributionKind::Bernoulli,
    };
    let window = (gpu.capabilities.max_binding as usize / dtype.size() / WINDOW_ALIGNMENT
        * WINDOW_ALIGNMENT)
        .max(WINDOW_ALIGNMENT);
    // A storage larger than one binding is filled window by window.
    for start in (0..shape.numel()).step_by(window) {
        let len = window.min(shape.numel() - start);
        let stream = Stream { quads: len.div_ceil(LANES), first_quad: start / LANES, key };
        let params = words(distribution, stream, dtype.compute());
        let (buffer, offset) =
            (downcast::<Memory>(&storage)?.buffer(), (start * dtype.size()) as u64);
        let bytes = ((len * dtype.size()) as u64).next_multiple_of(32);
        gpu.dispatch(&Launch {
            program: Program {
                key: Key::new("random", [kind as u32, dtype as u32]),
                wgsl: &|| wgsl(kind, dtype),
            },
            inputs: &[],
            outputs: &[Binding { buffer, offset, bytes }],
            params: &params,
            grid: gpu.dispatch_grid(len.div_ceil(LANES * THREADS) as u64)?,
        })?;
    }
    Ok(storage)
}

/// The parameters of a launch; `dtype` is the type that elements are computed in.
fn words(distribution: Distribution, stream: Stream, dtype: DType) -> Params {
    let number = |value: f64, dtype: DType| Number { value: Scalar::Float(value), dtype };
    match distribution {
        Distribution::Uniform { low, high } => {
            UniformParams { stream, low: number(low, dtype), high: number(high, dtype) }.words()
        }
        Distribution::Normal { mean, std } => {
            NormalParams { stream, mean: number(mean, dtype), deviation: number(std, dtype) }
                .words()
        }
        Distribution::Integer { low, high } => {
            let range = (high as i128 - low as i128) as u64;
            IntegerParams { stream, low: low as u64, range }.words()
        }
        Distribution::Bernoulli { p } => {
            BernoulliParams { stream, p: number(p, DType::F32) }.words()
        }
    }
}

/// The shader that computes random elements of type `dtype`.
///
/// # Errors
/// As [`crate::codegen::shader::Shader::render`].
pub(crate) fn wgsl(kind: DistributionKind, dtype: DType) -> Result<String> {
    let params = match kind {
        DistributionKind::Uniform => UniformParams::declaration(dtype.compute()),
        DistributionKind::Normal => NormalParams::declaration(dtype.compute()),
        DistributionKind::Integer => IntegerParams::declaration(),
        DistributionKind::Bernoulli => BernoulliParams::declaration(),
    };
    let shader = if dtype.size() == 8 {
        let from_bits = if dtype == DType::I64 { "bitcast<i64>(bits)" } else { "bits" };
        shader!("random64").text("from_bits", from_bits)
    } else {
        shader!("random")
            .text("dtype", dtype.name())
            .flag("half", dtype.size() == 2)
            .flag("bernoulli", kind == DistributionKind::Bernoulli)
    };
    shader
        .params(&params)
        .include(shader!("philox"))
        .text("quad", types::quad(dtype))
        .text("value", types::value(dtype))
        .text("store", types::store_quad(dtype, "out", "t", ["y0", "y1", "y2", "y3"]))
        .number("threads", THREADS)
        .flag("uniform", kind == DistributionKind::Uniform)
        .flag("normal", kind == DistributionKind::Normal)
        .flag("integer", kind == DistributionKind::Integer)
        .render()
}
