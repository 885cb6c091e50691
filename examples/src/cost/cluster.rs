//! Links, processors, and the ranks that they connect.

use super::calibration::{CPU_FLOPS, CPU_MEMORY, MEASURED, SUM_RATE};
use super::fit::Measured;
use teeny_core::{Error, Result};

/// A connection that the ranks of one node share: their memory, or the network interface through
/// which they reach other nodes.
///
/// A message of b bytes takes `latency + b / bandwidth` seconds, and k ranks that send one at the
/// same time take `latency + k b / bandwidth`. The link is full-duplex. Source: the model of
/// Hockney 1994, doi:10.1016/S0167-8191(06)80021-9.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Seconds per message, for which the sender is occupied.
    pub latency: f64,
    /// Bytes per second, of all ranks of a node together.
    pub bandwidth: f64,
}

impl Link {
    /// The fraction of an Ethernet link's bits that are data of TCP: 1,448 of 1,538 bytes, with
    /// frames of 1,500 bytes (headers of Ethernet 38, IP 20, TCP with time stamps 32).
    const TCP_SHARE: f64 = 1448.0 / 1538.0;

    /// 1 Gbit/s Ethernet with TCP: 50 µs, 118 MB/s.
    ///
    /// The bandwidth is the line's without headers. The latency is a round figure for MPI over the
    /// kernel's TCP and a switch; NetPIPE measured 23 µs between neighbours
    /// (<http://norma.mbg.duth.gr/index.php?id=about:benchmarks:network>).
    pub fn ethernet1() -> Link {
        Link { latency: 50e-6, bandwidth: 1e9 / 8.0 * Link::TCP_SHARE }
    }

    /// 10 Gbit/s Ethernet with TCP: 20 µs, 1.18 GB/s. As [`Link::ethernet1`]; the latency is a
    /// round figure.
    pub fn ethernet10() -> Link {
        Link { latency: 20e-6, bandwidth: 1e10 / 8.0 * Link::TCP_SHARE }
    }

    /// 100 Gbit/s InfiniBand (EDR): 2 µs, 12.5 GB/s.
    ///
    /// The bandwidth is four lanes of 25 Gbit/s of data. The latency is a round figure for MPI
    /// without the kernel; NetPIPE measured 1.93 µs with 40 Gbit/s Ethernet
    /// (<https://blogs.cisco.com/performance/mpi-over-40gb-ethernet>).
    pub fn infiniband100() -> Link {
        Link { latency: 2e-6, bandwidth: 1e11 / 8.0 }
    }

    /// The memory of one machine, fitted to [`MEASURED`].
    pub fn shared_memory() -> Link {
        // the fit of a constant; the tests of the model cover it
        Link::fit(&MEASURED, SUM_RATE).unwrap_or(Link { latency: 0.0, bandwidth: CPU_MEMORY })
    }

    /// The link on which all_reduces take the measured times: least squares of the relative errors.
    ///
    /// All ranks of a measurement are in one node, and they add `sum_rate` bytes per second
    /// ([`Cluster::sum_rate`]; infinity if the link's bandwidth is to contain the sums). The
    /// formula is in [`Cluster::all_reduce`]. If the best latency is negative, it is 0.
    ///
    /// # Errors
    /// If a measurement has fewer than two ranks or no time, or latency and bandwidth cannot be
    /// told apart: at least two different sizes are needed, one of them small.
    pub fn fit(measured: &[Measured], sum_rate: f64) -> Result<Link> {
        let (latency, per_byte) = super::fit::least_squares(measured, sum_rate)?;
        Ok(Link { latency, bandwidth: 1.0 / per_byte })
    }
}

/// The computing part of a rank.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Processor {
    /// Floating-point operations per second that training achieves, not the peak of a data sheet.
    pub flops: f64,
    /// Bytes per second that the optimizer reads and writes.
    pub memory: f64,
}

impl Processor {
    /// Two processors of the machine in BENCHMARKS.md, in f32: 0.26 Tflop/s, 60 GB/s.
    pub fn cpu() -> Processor {
        Processor { flops: CPU_FLOPS, memory: CPU_MEMORY }
    }

    /// An NVIDIA A100 in mixed precision: 140 Tflop/s, 1.6 TB/s. Not measured with this library.
    ///
    /// 45 % of the 312 Tflop/s of NVIDIA's data sheet, as training of large transformers achieves:
    /// Narayanan et al. 2021, arXiv:2104.04473, has 135 to 163 Tflop/s per GPU. The memory is four
    /// fifths of the data sheet's 2 TB/s.
    pub fn a100() -> Processor {
        Processor { flops: 1.4e14, memory: 1.6e12 }
    }
}

/// The ranks that train together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// The number of ranks.
    pub ranks: usize,
    /// How many of them are in one node: ranks 0 to `ranks_per_node - 1` in the first, and so on.
    pub ranks_per_node: usize,
    /// The link between ranks of a node.
    pub within: Link,
    /// The link from a node to the others.
    pub between: Link,
    /// The processor of each rank.
    pub processor: Processor,
    /// Bytes of arriving elements that a rank adds per second.
    pub sum_rate: f64,
}

impl Cluster {
    /// One rank per node, connected by `between`; sums at [`SUM_RATE`].
    pub fn new(ranks: usize, between: Link, processor: Processor) -> Cluster {
        let within = Link::shared_memory();
        Cluster { ranks, ranks_per_node: 1, within, between, processor, sum_rate: SUM_RATE }
    }

    /// All ranks in one node, connected by its memory.
    pub fn one_node(ranks: usize, processor: Processor) -> Cluster {
        Cluster::new(ranks, Link::shared_memory(), processor).with_ranks_per_node(usize::MAX)
    }

    /// Sets the number of ranks.
    pub fn with_ranks(self, ranks: usize) -> Cluster {
        Cluster { ranks, ..self }
    }

    /// Sets how many ranks are in one node.
    pub fn with_ranks_per_node(self, ranks_per_node: usize) -> Cluster {
        Cluster { ranks_per_node, ..self }
    }

    /// Returns an error if a number of ranks is 0, a rate is not above 0, or a latency is below 0.
    pub(super) fn validate(&self) -> Result<()> {
        if self.ranks == 0 || self.ranks_per_node == 0 {
            return Err(Error::value("a cluster has at least one rank, and one per node"));
        }
        let rates = [
            ("within.bandwidth", self.within.bandwidth),
            ("between.bandwidth", self.between.bandwidth),
            ("processor.flops", self.processor.flops),
            ("processor.memory", self.processor.memory),
            ("sum_rate", self.sum_rate),
        ];
        let latencies =
            [("within.latency", self.within.latency), ("between.latency", self.between.latency)];
        for (name, rate) in rates {
            if rate.is_nan() || rate <= 0.0 {
                return Err(Error::value(format!("{name} is {rate}, but a rate must be above 0")));
            }
        }
        for (name, seconds) in latencies {
            if !seconds.is_finite() || seconds < 0.0 {
                return Err(Error::value(format!("{name} is {seconds}, but must be 0 or more")));
            }
        }
        Ok(())
    }
}
