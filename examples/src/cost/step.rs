//! A training step, simulated event by event on one of many equal ranks.
//!
//! ```text
//! processor  forward ... | backward L | backward L-1 | .. | backward 0 |      | optimizer
//! network                             | bucket 1    | bucket 2  | .. | bucket k |
//!                                                                     exposed: |------|
//! ```
//!
//! Two things take time, the processor and the network; both do one thing after another, in the
//! order in which it was started. A collective operation starts when its data are ready and the
//! network is free. The processor waits for results that it needs from the network.

use super::cluster::Cluster;
use super::workload::Workload;
use std::fmt;
use teeny_core::{Error, Result};

/// The parts of the parameters, their gradients and Adam's moments that each rank stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// All of them; gradients are all-reduced in buckets.
    DataParallel,
    /// A share of the moments: gradients are reduce-scattered in buckets, each rank updates its
    /// share of the parameters, and all gather them in buckets before the next step. Source: the
    /// first stage of ZeRO, Rajbhandari et al. 2020, arXiv:1910.02054.
    Zero1,
    /// A share of everything: a layer's parameters are gathered before its forward pass and again
    /// before its backward pass, one layer ahead, and its gradients are reduce-scattered. Source:
    /// the third stage of ZeRO; `FullyShardedDataParallel` of PyTorch.
    Zero3,
}

impl Strategy {
    /// All strategies.
    pub const ALL: [Strategy; 3] = [Strategy::DataParallel, Strategy::Zero1, Strategy::Zero3];
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Strategy::DataParallel => "DP",
            Strategy::Zero1 => "ZeRO-1",
            Strategy::Zero3 => "ZeRO-3",
        })
    }
}

/// How the ranks train.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainingPlan {
    /// The parts that each rank stores.
    pub strategy: Strategy,
    /// Bytes of gradients that are sent together; 1 MiB. A bucket starts when it is full, and the
    /// last one at the end of the backward pass. Unused by [`Strategy::Zero3`], whose buckets are
    /// layers.
    pub bucket: f64,
}

/// Bytes of a bucket of [`DataParallel`](teeny_distributed::DataParallel) by default.
const BUCKET: f64 = (1 << 20) as f64;

impl TrainingPlan {
    /// `strategy` with the buckets of `DataParallel`.
    ///
    /// Source: Li et al. 2020, arXiv:2006.15704.
    pub fn new(strategy: Strategy) -> TrainingPlan {
        TrainingPlan { strategy, bucket: BUCKET }
    }

    /// Sets the bytes of a bucket.
    pub fn with_bucket(self, bytes: f64) -> TrainingPlan {
        TrainingPlan { bucket: bytes, ..self }
    }
}

/// Bytes of memory on each rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Memory {
    /// The parameters that the rank keeps.
    pub parameters: f64,
    /// Their gradients.
    pub gradients: f64,
    /// Adam's two moments, in f32.
    pub moments: f64,
    /// The activations that the forward pass of a micro-batch keeps.
    pub activations: f64,
    /// Layers of other ranks, with [`Strategy::Zero3`]: parameters of the largest two neighbours
    /// and the gradient of the largest layer.
    pub gathered: f64,
}

impl Memory {
    /// The sum, without buffers of messages.
    pub fn total(&self) -> f64 {
        self.parameters + self.gradients + self.moments + self.activations + self.gathered
    }
}

/// A simulated training step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SimulatedStep {
    /// Seconds.
    pub seconds: f64,
    /// Seconds in which the processor computes: forward, backward and the optimizer.
    pub compute: f64,
    /// Seconds in which the network is busy.
    pub communication: f64,
    /// Seconds in which the processor waits for it: `seconds - compute`.
    pub exposed: f64,
    /// Bytes that the rank sends.
    pub sent: f64,
    /// Bytes of memory on the rank.
    pub memory: Memory,
}

/// A step of `workload.items_per_rank` items on each rank of `cluster`.
///
/// More than `workload.items_at_once` items are computed in equal micro-batches, and gradients are
/// sent with the last one ([`Strategy::Zero3`]: with each). Adam reads parameter, gradient and
/// moments and writes parameter and moments.
///
/// # Errors
/// If the cluster has no ranks, a rate, a size or the number of items is not above 0, the workload
/// has no layers, a bucket is below 1 KiB, or there are more than a million micro-batches.
pub fn simulate(
    workload: &Workload,
    cluster: &Cluster,
    plan: &TrainingPlan,
) -> Result<SimulatedStep> {
    cluster.validate()?;
    let items = workload.items_per_rank;
    for (name, value) in [
        ("items_per_rank", items),
        ("items_at_once", workload.items_at_once),
        ("bytes_per_parameter", workload.bytes_per_parameter),
        ("bucket", plan.bucket),
    ] {
        if !value.is_finite() || value <= 0.0 {
            return Err(Error::value(format!("{name} is {value}, but a size must be above 0")));
        }
    }
    if workload.layers.is_empty() {
        return Err(Error::value("a workload has at least one layer"));
    }
    if plan.bucket < 1024.0 {
        return Err(Error::value(format!("a bucket of {} bytes is below 1 KiB", plan.bucket)));
    }
    let micro_batches = (items / workload.items_at_once).ceil();
    if micro_batches > 1e6 {
        return Err(Error::value(format!("{micro_batches} micro-batches are more than a million")));
    }
    let mut rank = Rank {
        cluster,
        bytes_per_parameter: workload.bytes_per_parameter,
        items: items / micro_batches,
        now: 0.0,
        computed: 0.0,
        network_free: 0.0,
        communication: 0.0,
        sent: 0.0,
    };
    for micro_batch in 1..=micro_batches as u64 {
        let last = micro_batch == micro_batches as u64;
        match plan.strategy {
            Strategy::Zero3 => rank.sharded_pass(workload),
            _ => rank.pass(workload, plan, last),
        }
    }
    rank.wait(rank.network_free);
    let n = cluster.ranks as f64;
    let shares = if plan.strategy == Strategy::DataParallel { 1.0 } else { n };
    let state = 3.0 * workload.bytes_per_parameter + 4.0 * MOMENT;
    rank.work(workload.parameters() / shares * state / cluster.processor.memory);
    if plan.strategy == Strategy::Zero1 {
        for bytes in buckets(workload.bytes(), plan.bucket) {
            rank.collective(Collective::AllGather, bytes, rank.now);
        }
        rank.wait(rank.network_free);
    }
    Ok(SimulatedStep {
        seconds: rank.now,
        compute: rank.computed,
        communication: rank.communication,
        exposed: (rank.now - rank.computed).max(0.0),
        sent: rank.sent,
        memory: memory(workload, n, plan.strategy, items / micro_batches),
    })
}

/// Bytes of one of Adam's two moments of a parameter.
const MOMENT: f64 = 4.0;

fn memory(workload: &Workload, n: f64, strategy: Strategy, items: f64) -> Memory {
    let (bytes, layers) = (workload.bytes(), &workload.layers);
    let moments = 2.0 * MOMENT * workload.parameters();
    let activations = items * layers.iter().map(|layer| layer.activations).sum::<f64>();
    let all = Memory { parameters: bytes, gradients: bytes, moments, activations, gathered: 0.0 };
    match strategy {
        Strategy::DataParallel => all,
        Strategy::Zero1 => Memory { moments: moments / n, ..all },
        // one rank gathers nothing
        Strategy::Zero3 if n == 1.0 => all,
        Strategy::Zero3 => {
            let largest = layers.iter().map(|layer| layer.parameters).fold(0.0, f64::max);
            let pair = layers.windows(2).map(|pair| pair[0].parameters + pair[1].parameters);
            let gathered = pair.fold(largest, f64::max) + largest;
            Memory {
                parameters: bytes / n,
                gradients: bytes / n,
                moments: moments / n,
                activations,
                gathered: gathered * workload.bytes_per_parameter,
            }
        }
    }
}

/// `bytes` in buckets; the last one may be smaller.
fn buckets(bytes: f64, bucket: f64) -> impl Iterator<Item = f64> {
    let count = (bytes / bucket).ceil() as u64;
    (0..count).map(move |i| bucket.min(bytes - i as f64 * bucket))
}

enum Collective {
    AllReduce,
    ReduceScatter,
    AllGather,
}

/// A rank in the middle of its step; times in seconds since the step began.
struct Rank<'a> {
    cluster: &'a Cluster,
    bytes_per_parameter: f64,
    /// Items of a micro-batch.
    items: f64,
    /// Until when the processor is busy.
    now: f64,
    /// For how long it was.
    computed: f64,
    /// Until when the network is busy.
    network_free: f64,
    communication: f64,
    sent: f64,
}

impl Rank<'_> {
    fn work(&mut self, seconds: f64) {
        self.now += seconds;
        self.computed += seconds;
    }

    fn wait(&mut self, until: f64) {
        self.now = self.now.max(until);
    }

    /// Queues an operation whose data are ready at `ready`; returns when it ends.
    fn collective(&mut self, kind: Collective, bytes: f64, ready: f64) -> f64 {
        let half = self.cluster.all_reduce_bytes(bytes) / 2.0;
        let (seconds, sent) = match kind {
            Collective::AllReduce => (self.cluster.all_reduce(bytes), 2.0 * half),
            Collective::ReduceScatter => (self.cluster.reduce_scatter(bytes), half),
            Collective::AllGather => (self.cluster.all_gather(bytes), half),
        };
        self.network_free = self.network_free.max(ready) + seconds;
        self.communication += seconds;
        self.sent += sent;
        self.network_free
    }

    fn compute(&mut self, flops: f64) {
        self.work(flops * self.items / self.cluster.processor.flops);
    }

    /// Forward and backward pass of a micro-batch with all parameters; the last one sends.
    fn pass(&mut self, workload: &Workload, plan: &TrainingPlan, last: bool) {
        for layer in workload.layers.iter().rev() {
            self.compute(layer.flops);
        }
        let kind = || match plan.strategy {
            Strategy::DataParallel => Collective::AllReduce,
            _ => Collective::ReduceScatter,
        };
        let mut ready = 0.0; // bytes of gradients that are in no bucket that has started
        for layer in &workload.layers {
            self.compute(2.0 * layer.flops);
            if last {
                ready += layer.parameters * self.bytes_per_parameter;
                while ready >= plan.bucket {
                    self.collective(kind(), plan.bucket, self.now);
                    ready -= plan.bucket;
                }
            }
        }
        if ready > 0.0 {
            self.collective(kind(), ready, self.now);
        }
    }

    /// Forward and backward pass of a micro-batch with parameters that are gathered layer by layer.
    fn sharded_pass(&mut self, workload: &Workload) {
        let bytes = |i: usize| workload.layers[i].parameters * self.bytes_per_parameter;
        let bytes: Vec<f64> = (0..workload.layers.len()).map(bytes).collect();
        let order: Vec<usize> = (0..bytes.len()).rev().collect();
        self.gathered_layers(&order, &bytes, |rank, i| rank.compute(workload.layers[i].flops));
        let order: Vec<usize> = (0..bytes.len()).collect();
        self.gathered_layers(&order, &bytes, |rank, i| {
            rank.compute(2.0 * workload.layers[i].flops);
            rank.collective(Collective::ReduceScatter, bytes[i], rank.now);
        });
    }

    /// Computes layers in `order`; while one is computed, the next one is gathered.
    fn gathered_layers(
        &mut self,
        order: &[usize],
        bytes: &[f64],
        mut compute: impl FnMut(&mut Self, usize),
    ) {
        let Some(&first) = order.first() else { return };
        let mut arrives = self.collective(Collective::AllGather, bytes[first], self.now);
        for (at, &i) in order.iter().enumerate() {
            self.wait(arrives);
            if let Some(&next) = order.get(at + 1) {
                arrives = self.collective(Collective::AllGather, bytes[next], self.now);
            }
            compute(self, i);
        }
    }
}
