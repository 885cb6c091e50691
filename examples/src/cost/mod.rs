//! A cost model of data-parallel training: how many ranks a model, a network and a strategy are
//! worth, computed instead of measured.
//!
//! ```text
//! Link Processor Cluster    what a message and a multiplication cost           cluster
//!   all_reduce ..           collectives of teeny and of MPI libraries          collectives
//!   Link::fit               a link from measured all_reduces                   fit
//!   MEASURED SUM_RATE ..    the numbers of the machine that was measured       calibration
//! Layer Workload            parameters and flops of a model, layer by layer    workload
//!   Workload::gpt           the layers of a GPT                                gpt
//! TrainingPlan              the strategy and the buckets of all ranks            step
//!   simulate, SimulatedStep time, bytes and memory of a training step            step
//! Scaling, limit            efficiency by the number of ranks                  scaling
//! ```
//!
//! Everything is a pure function of plain structs: seconds, bytes, bytes per second, and
//! floating-point operations ("flops") per second, all `f64`. All ranks are equal, so one rank is
//! simulated. DISTRIBUTED.md has the formulas, their sources, what the model
//! leaves out, and tables.
//!
//! # Example
//! ```
//! use examples::cost::*;
//! # fn main() -> teeny_core::Result<()> {
//! let cluster = Cluster::new(8, Link::ethernet10(), Processor::cpu());
//! let step = simulate(&Workload::gpt2(), &cluster, &TrainingPlan::new(Strategy::DataParallel))?;
//! assert!(step.exposed <= step.communication && step.seconds > step.compute);
//! # Ok(()) }
//! ```

mod calibration;
mod cluster;
mod collectives;
mod fit;
mod gpt;
mod scaling;
mod step;
mod workload;

pub use calibration::{CPU_FLOPS, CPU_MEMORY, MEASURED, SUM_RATE};
pub use cluster::{Cluster, Link, Processor};
pub use fit::Measured;
pub use scaling::{Scaling, ScalingRow, limit, sweep};
pub use step::{Memory, SimulatedStep, Strategy, TrainingPlan, simulate};
pub use workload::{Layer, Workload};
