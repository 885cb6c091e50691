//! The measured numbers of the model, in one place: replace them after a measurement.

use super::fit::Measured;

/// All-reduces between two processes of one machine with two processors (AMD EPYC, Zen 4), one
/// thread each, by `mpirun -n 2 scaling --measure`: the fastest of 30.
/// [`Link::shared_memory`](super::Link::shared_memory) is fitted to them.
pub const MEASURED: [Measured; 6] = [
    Measured { ranks: 2, bytes: 4.0, seconds: 17.5e-6 },
    Measured { ranks: 2, bytes: 16_384.0, seconds: 29.3e-6 },
    Measured { ranks: 2, bytes: 262_144.0, seconds: 114.3e-6 },
    Measured { ranks: 2, bytes: 1_048_576.0, seconds: 329.8e-6 },
    Measured { ranks: 2, bytes: 4_194_304.0, seconds: 1455.1e-6 },
    Measured { ranks: 2, bytes: 16_777_216.0, seconds: 9606.0e-6 },
];

/// Bytes of arriving f32 elements that a rank adds per second, on the host. An estimate: one
/// processor reads two operands and writes one. A link that is fitted with it repeats the
/// measurements whatever its value.
pub const SUM_RATE: f64 = 5e9;

/// Flops per second of [`Processor::cpu`](super::Processor::cpu) in training: the step of the
/// character GPT in BENCHMARKS.md, 12 sequences of 330.3 Mflop in 15.3 ms on two processors.
pub const CPU_FLOPS: f64 = 2.6e11;

/// Bytes per second that the optimizer of [`Processor::cpu`](super::Processor::cpu) reads and
/// writes: the memory of the machine of BENCHMARKS.md, 60 to 70 GB/s.
pub const CPU_MEMORY: f64 = 6e10;
